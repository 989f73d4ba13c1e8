//! The verifier: what stands in an arena is copied, verified and applied, and the outcome
//! judged. The seeds are the honest deltas of the mutation tests.

use crate::Seed;
use arck_verifier::testing::forgery::corruption::{corruptions, forge};
use arck_verifier::testing::forgery::{image, scene};

/// Every so many corruptions of a scene one is a seed too.
const STEP: usize = 101;

pub fn run(bytes: &[u8]) {
    if let Err(wrong) = image::fold(bytes) {
        panic!("{wrong}");
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
