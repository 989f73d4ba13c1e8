//! An arena as bytes, for a fuzzer: short, and such that few changed bytes are a change of
//! the arena that says something.
//!
//! ```text
//! byte 0        bit 0: make the checksums of records right before anything is read
//! byte 1        delta pages that are allocated
//! byte 2        n, how many inodes are folded, each on its own: at most FIRST_MAX
//! n bytes       their numbers
//! then, to the end, runs of words: place (4 bytes, in words of the arena), count (1 byte), and so
//! many words of 8 bytes
//! ```

use super::judge::{Verdict, judge};
use super::scene::{Scene, user, world};
use crate::testing::{MemoryArena, MemoryState};
use arck_core_state::arena::{ARENA_PAGES, ARENA_SPAN, DELTA_FIRST};
use arck_core_state::record::{DeltaPageHeader, RECORD_UNIT, Record, Seed, UNITS_PER_PAGE};
use arck_core_state::{InodeNumber, PAGE_SIZE};
use std::ops::Range;
use std::sync::OnceLock;
use zerocopy::FromBytes;

/// Most inodes that one image folds.
const FIRST_MAX: usize = 4;

/// The image of a scene's arena.
pub fn encode(scene: &Scene) -> Vec<u8> {
    let arena = &scene.owner.arena;
    // A scene of branches alone has none.
    let pages = (arena.end / PAGE_SIZE).saturating_sub(u64::from(DELTA_FIRST));
    let first = &scene.first[..scene.first.len().min(FIRST_MAX)];
    let mut image = vec![1, pages as u8, first.len() as u8];
    image.extend(first.iter().map(|&number| number as u8));
    for start in arena.stored_pages() {
        let mut page = [0; 4096];
        arena.read(start, &mut page);
        // Lines that hold something, whole.
        for (at, line) in page.chunks(64).enumerate() {
            if line.iter().any(|&byte| byte != 0) {
                let word = (start / 8) as u32 + at as u32 * 8;
                image.extend(word.to_le_bytes());
                image.push(8);
                image.extend(line);
            }
        }
    }
    image
}

/// Where in the arena the runs of an image are stored, and where in the image they stand.
pub fn runs(image: &[u8]) -> Vec<(u64, Range<usize>)> {
    let mut runs = Vec::new();
    let count = image.get(2).map_or(0, |&count| usize::from(count));
    let mut at = (3 + count.min(FIRST_MAX)).min(image.len());
    while let Some(head) = image.get(at..at + 5) {
        let place = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let end = (at + 5 + usize::from(head[4]) * 8).min(image.len());
        let offset = u64::from(place) * 8 % (ARENA_SPAN - 256 * 8);
        runs.push((offset, at + 5..end));
        at = end;
    }
    runs
}

/// The arena of an image, which may be any bytes, and the inodes to fold.
fn decode(state: &MemoryState, image: &[u8]) -> (MemoryArena, Vec<InodeNumber>) {
    let mut arena = MemoryArena::default();
    let [flags, pages, count, rest @ ..] = image else {
        return (arena, Vec::new());
    };
    let count = usize::from(*count).min(FIRST_MAX).min(rest.len());
    let first = &rest[..count];
    for (offset, bytes) in runs(image) {
        arena.store(offset, &image[bytes]);
    }
    let end = (DELTA_FIRST + u32::from(*pages)).min(ARENA_PAGES);
    arena.end = u64::from(end) * PAGE_SIZE;
    if flags & 1 != 0 {
        seal(state, &mut arena);
    }
    (arena, first.iter().map(|&number| number.into()).collect())
}

/// Makes valid what looks like a record in a page that looks like one of records.
fn seal(state: &MemoryState, arena: &mut MemoryArena) {
    for start in arena.stored_pages() {
        let page = (start / PAGE_SIZE) as u32;
        if page < DELTA_FIRST {
            continue;
        }
        let mut bytes = [0; 4096];
        arena.read(start, &mut bytes);
        let Ok((header, _)) = DeltaPageHeader::read_from_prefix(&bytes) else {
            continue;
        };
        let (directory, fold) = (header.directory, header.fold);
        let present = state.headers.get(&directory).map(|header| header.fold);
        if present != Some(fold) {
            continue;
        }
        let mut at = 1;
        while at < UNITS_PER_PAGE {
            let unit = page * UNITS_PER_PAGE as u32 + at as u32;
            arena.seal(directory, fold, unit);
            arena.read(start, &mut bytes);
            let seed = Seed {
                directory,
                fold,
                unit,
            };
            match Record::decode(seed, &bytes[at * RECORD_UNIT..]) {
                Some(record) => at += record.units(),
                None => break,
            }
        }
    }
}

/// Folds what an image says, each inode on its own, against the world of the scenes. The error
/// says what must not be.
pub fn fold(image: &[u8]) -> Result<Vec<Verdict>, String> {
    static WORLD: OnceLock<MemoryState> = OnceLock::new();
    let world = WORLD.get_or_init(world);
    let (mut arena, first) = decode(world, image);
    let who = user();
    let owned = |number: &InodeNumber| {
        let header = world.headers.get(number);
        header.is_some_and(|header| header.ownership.session() == who.session)
    };
    let first = first.into_iter().filter(owned);
    first
        .map(|number| judge(world, &who, &mut arena, &[number], ARENA_PAGES as usize))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::corruption::{corruptions, forge};
    use super::super::scene::scenes;
    use super::*;

    /// An image shows what the scene shows, corrupted or not.
    #[test]
    fn images_are_judged_as_what_they_show() {
        for scene in scenes() {
            for verdict in fold(&encode(&scene)).unwrap() {
                assert!(matches!(verdict, Verdict::Folded(_)), "{}", scene.name);
            }
            let all = corruptions(&scene);
            // Not the ends of arenas: an image has whole pages.
            for corruption in all.iter().filter(|c| c.structure != "arena").step_by(29) {
                let mut forged = scene.clone();
                forged.owner.arena = forge(&scene, &[corruption]);
                let mut image = encode(&forged);
                image[0] = 0;
                let first = &forged.first[..forged.first.len().min(FIRST_MAX)];
                let shown = fold(&image).unwrap();
                assert_eq!(shown.len(), first.len());
                for (number, shown) in first.iter().zip(shown) {
                    let (state, who) = (&forged.state, &forged.owner.who);
                    let arena = &mut forged.owner.arena;
                    let judged = judge(state, who, arena, &[*number], usize::MAX).unwrap();
                    match (judged, shown) {
                        (Verdict::Refused(one), Verdict::Refused(two)) => assert_eq!(one, two),
                        (Verdict::Folded(one), Verdict::Folded(two)) => {
                            assert_eq!(one.inodes, two.inodes);
                            assert_eq!(one.names, two.names);
                        }
                        (one, two) => panic!("{}: {one:?}, {two:?}", scene.name),
                    }
                }
            }
        }
    }

    #[test]
    fn sealing_repairs_what_was_changed() {
        let scene = scenes().remove(0);
        let mut image = encode(&scene);
        let name = image
            .windows(3)
            .position(|window| window == b"new")
            .unwrap();
        image[name] = b'/';
        assert!(
            matches!(&fold(&image).unwrap()[0], Verdict::Refused(violation)
            if violation.rule == crate::Rule::Name)
        );
        image[0] = 0;
        assert!(matches!(&fold(&image).unwrap()[0], Verdict::Folded(_)));
    }

    #[test]
    fn any_bytes_are_an_image() {
        for length in 0..40 {
            assert!(fold(&vec![0xff; length]).is_ok());
            assert!(fold(&vec![1; length]).is_ok());
        }
    }
}
