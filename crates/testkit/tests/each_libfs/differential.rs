//! Sessions of LibFSes on one directory, in turns, beside a directory of tmpfs.

use super::{Step, assert_same, host, seeds};
use arck_testkit::under_test::{LIBFSES, LibFs};
use arck_testkit::{Random, TestPool};

const STEPS: usize = 150;

/// Each alone, and each two, of one kind as well: every step of another session is a hand-over.
fn arrangements() -> Vec<Vec<&'static dyn LibFs>> {
    let mut found: Vec<Vec<&dyn LibFs>> = Vec::new();
    for (at, &one) in LIBFSES.iter().enumerate() {
        found.push(vec![one]);
        found.extend(LIBFSES[at..].iter().map(|&other| vec![one, other]));
    }
    found
}

#[test]
fn every_libfs_does_what_tmpfs_does_alone_and_beside_others() {
    let mut hand_overs = 0;
    for arrangement in arrangements() {
        let names: Vec<_> = arrangement.iter().map(|libfs| libfs.name()).collect();
        for seed in seeds(4) {
            let of = format!("{}, seed {seed}", names.join(" beside "));
            hand_overs += run(&arrangement, seed, &of);
        }
    }
    assert!(
        hand_overs > 100,
        "only {hand_overs} steps were another session's"
    );
}

/// Gives how often another session went on.
fn run(arrangement: &[&dyn LibFs], seed: u64, of: &str) -> usize {
    let (mut pool, host) = (TestPool::new(64 << 20), host());
    let mut random = Random::new(seed);
    let mut hand_overs = 0;
    {
        let open = |libfs: &&dyn LibFs| libfs.open(&pool.path(), "files");
        let sessions: Vec<_> = arrangement.iter().map(open).collect();
        let mut last = 0;
        for at in 0..STEPS {
            let who = random.below(sessions.len() as u64) as usize;
            hand_overs += usize::from(who != last);
            last = who;
            let step = Step::draw(&mut random);
            let (told, expected) = (step.on(&*sessions[who]), step.on_host(host.path()));
            let name = arrangement[who].name();
            assert!(
                told == expected,
                "{of}: step {at}, {name}: {}: {told:?} instead of {expected:?}",
                step.short()
            );
        }
        for (files, libfs) in sessions.iter().zip(arrangement) {
            assert_same(
                &**files,
                host.path(),
                &format!("{of}: {} at the end", libfs.name()),
            );
        }
    }
    // What is folded when sessions end, every LibFS reads, after a controller that has ended.
    pool.stop();
    pool.serve();
    for libfs in LIBFSES {
        let of = format!("{of}: {} afterwards", libfs.name());
        assert_same(&*libfs.open(&pool.path(), "files"), host.path(), &of);
    }
    hand_overs
}
