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

/// The names in a section of a TOML file that has one a line.
fn names_in(manifest: &str, section: &str) -> BTreeSet<String> {
    let lines = manifest.lines().skip_while(|line| *line != section).skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// The fuzzers are a workspace of their own, which `make test` does not build: with a lock file that does not
/// know what our crates depend on, `make fuzz` would not begin.
#[test]
fn the_fuzzers_lock_file_knows_what_our_crates_depend_on() {
    let lock = fs::read_to_string(here("libfuzzer/Cargo.lock")).unwrap();
    let mut looked_at = 0;
    for package in lock.split("[[package]]") {
        let name = |line: &str| {
            Some(
                line.strip_prefix("name = \"arck-")?
                    .strip_suffix('"')?
                    .to_owned(),
            )
        };
        let Some(name) = package.lines().find_map(name) else {
            continue;
        };
        let manifest = match name.as_str() {
            "libfuzzer" => here("libfuzzer/Cargo.toml"),
            name => here("..").join(name).join("Cargo.toml"),
        };
        let manifest = fs::read_to_string(&manifest).unwrap();
        let wanted = names_in(&manifest, "[dependencies]");
        assert!(!wanted.is_empty(), "{name} depends on nothing");
        for dependency in wanted {
            let locked = format!("\"{dependency}\"");
            assert!(
                package.contains(&locked),
                "arck-{name}: {dependency} is missing"
            );
        }
        looked_at += 1;
    }
    assert!(looked_at >= 5, "only {looked_at} of our crates");
}
