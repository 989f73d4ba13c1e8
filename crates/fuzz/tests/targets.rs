//! Each target stands its seeds, what a fuzzer once found, and blind changes of the seeds; and
//! `libfuzzer` has a program for each.

use arck_fuzz::TARGETS;
use std::path::Path;
use std::{collections::BTreeSet, fs};

fn here(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn seeds_pass_whole_shortened_and_changed() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        let names: BTreeSet<_> = seeds.iter().map(|seed| &seed.0).collect();
        assert!(
            names.len() == seeds.len() && seeds.len() > 8,
            "{}",
            target.name
        );
        let mut random = 1u64;
        for (_, bytes) in &seeds {
            (target.run)(bytes);
            for part in 1..4 {
                (target.run)(&bytes[..bytes.len() * part / 4]);
            }
            for _ in 0..10 {
                let mut changed = bytes.clone();
                for _ in 0..3 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let at = (random >> 33) as usize % changed.len();
                    changed[at] = (random >> 24) as u8;
                }
                (target.run)(&changed);
            }
        }
    }
}

#[test]
fn nothing_once_found_is_found_again() {
    for target in TARGETS {
        let found = here("regressions").join(target.name);
        for file in fs::read_dir(found).unwrap() {
            let path = file.unwrap().path();
            println!("{}", path.display());
            (target.run)(&fs::read(path).unwrap());
        }
    }
}

#[test]
fn each_target_has_a_program() {
    let programs: BTreeSet<_> = fs::read_dir(here("libfuzzer/targets"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    let expected =
        TARGETS.map(|target| here("libfuzzer/targets").join(format!("{}.rs", target.name)));
    assert_eq!(programs, BTreeSet::from(expected));
}
