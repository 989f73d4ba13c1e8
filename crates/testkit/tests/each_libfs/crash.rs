//! A controller is killed, with sessions that have not folded: from their arenas it comes back, whether they are there
//! still or not.

use super::{Step, assert_same, host, seeds};
use arck_testkit::under_test::{Files, LIBFSES, LibFs};
use arck_testkit::{Random, TestPool};
use std::path::{Path, PathBuf};

const STEPS: usize = 60;

/// A copy, in which no session is there any more: as after a power cut that comes between two operations. (The crash
/// explorer cuts inside of them.)
pub fn copy(from: &Path, to: PathBuf) -> PathBuf {
    let mut command = std::process::Command::new("cp");
    let done = command
        .args(["-a", "--sparse=always"])
        .args([from, &to])
        .status();
    assert!(done.unwrap().success());
    to
}

fn steps(files: &dyn Files, host: &Path, random: &mut Random, of: &str) {
    for at in 0..STEPS {
        let step = match Step::draw(random) {
            // Few: what is not folded is what this is about.
            Step::Fold(_) if random.percent(70) => continue,
            step => step,
        };
        let (told, expected) = (step.on(files), step.on_host(host));
        let step = step.short();
        assert!(
            told == expected,
            "{of}: step {at}: {step}: {told:?}, {expected:?}"
        );
    }
}

fn run(libfs: &dyn LibFs, seed: u64) {
    let of = format!("{}, seed {seed}", libfs.name());
    let mut random = Random::new(seed);
    let (mut pool, host, folder) = (TestPool::new(64 << 20), host(), host());
    let files = libfs.open(&pool.path(), "files");
    for round in 0..2 {
        steps(&*files, host.path(), &mut random, &of);
        // So that there is something that no fold has taken.
        let late = [round; 5000];
        files
            .put("late", &late)
            .unwrap_or_else(|errno| panic!("{of}: {errno}"));
        std::fs::write(host.path().join("late"), late).unwrap();
        pool.kill();

        let copied = copy(&pool.path(), folder.path().join(format!("{round}")));
        let after = TestPool::adopt(&copied);
        for reader in LIBFSES {
            let of = format!("{of}: {} after the crash", reader.name());
            assert_same(&*reader.open(&after.path(), "files"), host.path(), &of);
        }
        drop(after);

        pool.serve();
        let of = format!("{of}: the session, with another controller");
        assert_same(&*files, host.path(), &of);
    }
    steps(&*files, host.path(), &mut random, &of);
    assert_same(&*files, host.path(), &of);
}

#[test]
fn what_has_returned_is_there_after_a_crash() {
    for libfs in LIBFSES {
        for seed in seeds(3) {
            run(libfs, seed);
        }
    }
}
