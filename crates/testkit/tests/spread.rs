//! A directory that several threads of a session change at the same time: what stands in the tails
//! of its delta is what they did, to this session, to one that reads, and after a kill.

use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, FileSystem};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const THREADS: u64 = 4;
const ROUNDS: u64 = 6;
/// Changes that a thread makes in a round.
const CHANGES: u64 = 1500;
/// Names that are a thread's own, and that all threads take from each other.
const OWN: u64 = 40;
const COMMON: u64 = 10;

/// Random changes of one thread, which keeps in `own` which of its names are there, and with what.
fn change(session: &FileSystem, thread: u64, random: &mut Random, own: &mut BTreeMap<String, u64>) {
    for _ in 0..CHANGES {
        let name = format!("d/{thread}-{}", random.below(OWN));
        let other = format!("d/{thread}-{}", random.below(OWN));
        let common = format!("d/common-{}", random.below(COMMON));
        match random.below(6) {
            0 | 1 => {
                let content = random.below(1 << 40);
                session.put(&name, &content.to_le_bytes()).expect("put");
                own.insert(name, content);
            }
            2 => {
                let there = own.remove(&name).is_some();
                let removed = session.unlink(At::Root, name.as_bytes(), 0);
                assert_eq!(removed.is_ok(), there, "unlink {name}: {removed:?}");
            }
            3 => {
                let there = own.get(&name).copied();
                let moved =
                    session.rename(At::Root, name.as_bytes(), At::Root, other.as_bytes(), 0);
                assert_eq!(moved.is_ok(), there.is_some(), "rename {name}: {moved:?}");
                if let Some(content) = there {
                    own.remove(&name);
                    own.insert(other, content);
                }
            }
            4 => {
                // Replaces what any thread has put there.
                let there = own.remove(&name).is_some();
                let moved =
                    session.rename(At::Root, name.as_bytes(), At::Root, common.as_bytes(), 0);
                assert_eq!(moved.is_ok(), there, "rename {name}: {moved:?}");
            }
            _ => drop(session.unlink(At::Root, common.as_bytes(), 0)),
        }
    }
}

/// What a session sees: names with contents.
fn seen(session: &FileSystem) -> BTreeMap<String, u64> {
    let names = session.names("d").expect("a listing");
    let with_content = names.into_iter().map(|name| {
        let content = session.get(&format!("d/{name}")).expect("a file");
        let content = u64::from_le_bytes(content.try_into().expect("eight bytes"));
        (format!("d/{name}"), content)
    });
    with_content.collect()
}

#[test]
fn what_threads_did_in_one_directory_is_there_after_a_kill() {
    let mut pool = TestPool::new(128 << 20);
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    println!("seed {seed}");
    let mut owns = vec![BTreeMap::new(); THREADS as usize];
    let mut session = pool.session();
    session
        .make_directory(At::Root, b"d", 0o755)
        .expect("mkdir");
    let end = Instant::now() + Duration::from_secs(60);
    let mut round = 0;
    let mut was_spread = false;
    while round < ROUNDS || (!was_spread && Instant::now() < end) {
        std::thread::scope(|scope| {
            for (thread, own) in (0..).zip(&mut owns) {
                let session = &session;
                let mut random = Random::new(seed ^ (round * THREADS + thread));
                scope.spawn(move || change(session, thread, &mut random, own));
            }
        });
        was_spread |= session.spread_directories() != 0;
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        owns.iter().for_each(|own| expected.extend(own.clone()));
        let mut now = seen(&session);
        let before = now.clone();
        now.retain(|name, _| !name.starts_with("d/common"));
        assert_eq!(now, expected, "round {round}");
        match round % 3 {
            0 => {
                // Nothing of the delta has been folded: recovery finds it in the tails.
                pool.kill();
                pool.serve();
                session = pool.session();
            }
            1 => session.fold(false).expect("fold"),
            _ => assert_eq!(seen(&pool.session()), before, "round {round}, a reader"),
        }
        assert_eq!(seen(&session), before, "round {round}, afterwards");
        assert_eq!(pool.violations(), "");
        round += 1;
    }
    assert!(was_spread, "threads never waited for each other");
}
