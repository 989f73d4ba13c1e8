//! The verifier: what stands in an arena is copied, verified and applied, and the outcome
//! judged. The seeds are the honest deltas of the mutation tests.

use crate::seed::Seed;
use arck_core_state::PAGE_SIZE;
use arck_core_state::arena::DELTA_FIRST;
use arck_core_state::branch::BRANCH_SIZE;
use arck_core_state::record::RECORD_UNIT;
use arck_verifier::testing::forgery::corruption::{corruptions, forge};
use arck_verifier::testing::forgery::fields::{self, Kind};
use arck_verifier::testing::forgery::values::{self, Known};
use arck_verifier::testing::forgery::{image, scene};

/// Every so many corruptions of a scene one is a seed too.
const STEP: usize = 101;

pub fn run(bytes: &[u8]) {
    if let Err(wrong) = image::fold(bytes) {
        panic!("{wrong}");
    }
}

/// Changes one field of an image as a forger would, chosen by `random`: a fuzzer that knows
/// nothing of fields takes long to put the same page into two of them. `false`: there is none.
pub fn mutate(image: &mut [u8], random: u64) -> bool {
    let runs = image::runs(image);
    let mut known = Known {
        end: DELTA_FIRST + image.get(1).map_or(1, |&pages| u32::from(pages).max(1)),
        ..Known::default()
    };
    for (offset, _) in runs.iter().filter(|run| run.0 >= DELTA_START) {
        known.pages.push((offset / PAGE_SIZE) as u32);
        known.units.push((offset / RECORD_UNIT as u64) as u32);
    }
    known.pages.dedup();
    let mut random = Draw(random);
    let Some((offset, place)) = random.pick(&runs) else {
        return false;
    };
    let fields = fields_at(*offset, place.len() as u64);
    let Some(&(kind, width, at)) = random.pick(&fields) else {
        return false;
    };
    let first = place.start + at as usize;
    let bytes = &mut image[first..first + width as usize];
    let mut now = [0; 8];
    now[..bytes.len()].copy_from_slice(bytes);
    let values = values::values(kind, width, u64::from_le_bytes(now), &known);
    let Some(value) = random.pick(&values) else {
        return false;
    };
    bytes.copy_from_slice(&value.to_le_bytes()[..width as usize]);
    true
}

/// Byte offset of the first delta page.
const DELTA_START: u64 = DELTA_FIRST as u64 * PAGE_SIZE;

/// What may stand in the `length` bytes from `offset` of the arena on: kind, width and place of
/// fields. A delta page may be one of records or one of an index.
fn fields_at(offset: u64, length: u64) -> Vec<(Kind, u64, u64)> {
    let (table, start) = if offset < DELTA_START {
        (fields::branch(), offset % BRANCH_SIZE as u64)
    } else if offset % PAGE_SIZE < RECORD_UNIT as u64 {
        (fields::delta_page(), offset % RECORD_UNIT as u64)
    } else {
        (fields::record(), offset % RECORD_UNIT as u64)
    };
    let elements = table.iter().flat_map(|field| {
        let of = |element| (field.kind, field.width, element);
        field.elements().map(of)
    });
    let inside =
        elements.filter(|(_, width, at)| (start..).contains(at) && at + width <= start + length);
    let mut found: Vec<_> = inside
        .map(|(kind, width, at)| (kind, width, at - start))
        .collect();
    if offset >= DELTA_START {
        let entries = (0..length / 8).map(|entry| entry * 8);
        found.extend(entries.flat_map(|at| [(Kind::Leaf, 8, at), (Kind::Interior, 8, at)]));
    }
    found
}

/// Numbers drawn from a seed.
struct Draw(u64);

impl Draw {
    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        from.get((self.0 >> 33) as usize % from.len().max(1))
    }
}

pub fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for mut scene in scene::scenes() {
        let name = scene.name.replace([' ', ',', '\''], "-");
        seeds.push((name.clone(), image::encode(&scene)));
        let forged = corruptions(&scene);
        let arenas = forged.iter().step_by(STEP).map(|one| forge(&scene, &[one]));
        for (at, arena) in arenas.collect::<Vec<_>>().into_iter().enumerate() {
            scene.owner.arena = arena;
            seeds.push((format!("{name}-{at}"), image::encode(&scene)));
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;
    use arck_verifier::Rule;
    use arck_verifier::testing::forgery::judge::Verdict;
    use std::collections::HashSet;

    #[test]
    fn forged_images_break_most_rules() {
        let mut broken: HashSet<Rule> = HashSet::new();
        let seeds = seeds();
        for round in 0..12_000u64 {
            let mut image = seeds[round as usize % seeds.len()].1.clone();
            for change in 0..1 + round % 3 {
                assert!(mutate(&mut image, round * 3 + change));
            }
            for verdict in image::fold(&image).unwrap() {
                if let Verdict::Refused(violation) = verdict {
                    broken.insert(violation.rule);
                }
            }
        }
        assert!(
            broken.len() > Rule::ALL.len() * 3 / 4,
            "{}: {broken:?}",
            broken.len()
        );
        assert!(!mutate(&mut [], 1) && !mutate(&mut [1, 1, 0, 5], 1));
    }
}
