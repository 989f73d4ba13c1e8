//! Who sets values again and again, in a pool that is mostly empty, always finds room: also when the controller has
//! gone and come back, once or several times, and sessions of others have come back to it.

use arck_testkit::TestPool;
use arck_testkit::under_test::{LIBFSES, LibFs};

const ROUNDS: usize = 4000;

fn run(libfs: &dyn LibFs, restarts: usize) {
    let mut pool = TestPool::new(64 << 20);
    let files = libfs.open(&pool.path(), "files");
    let others: Vec<_> = LIBFSES
        .iter()
        .map(|other| other.open(&pool.path(), other.name()))
        .collect();
    for other in &others {
        other.put("there", b"it").expect("a value");
    }
    for _ in 0..restarts {
        pool.kill();
        pool.serve();
        // What is removed is kept as long as a session is away: it may have that open.
        for other in &others {
            other.fold(false).expect("a fold");
        }
    }
    for round in 0..ROUNDS {
        let of = format!("{}, {restarts} restarts, round {round}", libfs.name());
        let name = format!("value-{}", round % 5);
        let content = vec![round as u8; 8 + round * 977 % 20_000];
        let set = files.replace(&name, &content);
        set.unwrap_or_else(|errno| panic!("{of}: set: {errno}"));
        if round % 7 == 3 {
            let deleted = files.delete(&name);
            assert_eq!(deleted, Ok(true), "{of}: delete");
        }
        if round % 5 == 1 {
            let folded = files.fold(round % 2 == 0);
            folded.unwrap_or_else(|errno| panic!("{of}: fold: {errno}"));
        }
        if round % 100 == 0 {
            for other in &others {
                other.get("there").expect("a value").expect("it is there");
            }
        }
    }
}

#[test]
fn who_sets_values_again_finds_room() {
    for libfs in LIBFSES {
        for restarts in 0..3 {
            run(libfs, restarts);
        }
    }
}
