//! A store and ArckFS in two processes, on one directory: in turns and at once. And a store in a forked
//! child.

use arck_kvfs::{Batch, Options, Store, VALUE_MAX};
use arck_testkit::harness::{self, trial};
use arck_testkit::{Shorthand, TestPool, connect};
use std::process::ExitCode;

fn main() -> ExitCode {
    harness::run(vec![
        trial("two processes take turns", turns),
        trial("two processes at once", at_once),
        trial("a forked child opens a session of its own", forked),
    ])
}

fn store(pool: &TestPool) -> Store {
    let options = Options {
        make: true,
        ..Options::new(pool.path())
    };
    Store::open(options, "values").expect("a store")
}

/// Runs `work` in a forked child, and `beside` here; fails if the child did.
fn fork(work: impl FnOnce(), beside: impl FnOnce()) {
    // SAFETY: the child runs `work` and ends without coming back.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: the child of a process with threads ends at once.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    beside();
    let mut status = 0;
    // SAFETY: a child of this process, and a number to write.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "the child");
}

fn whole(key: u64, count: u64) -> Vec<u8> {
    let word = (key << 48 | count).to_le_bytes();
    word.repeat(1 + (count as usize * 997) % (VALUE_MAX / 8))
}

fn is_whole(key: u64, value: &[u8]) -> bool {
    let Some(word) = value.first_chunk() else {
        return false;
    };
    let count = u64::from_le_bytes(*word) & ((1 << 48) - 1);
    value == whole(key, count)
}

fn turns() {
    let pool = TestPool::new(128 << 20);
    let store = store(&pool);
    for round in 0..5u64 {
        for key in 0..20 {
            store
                .set(format!("{key}").as_bytes(), &whole(key, round * 2))
                .unwrap();
        }
        let files = || {
            let other = connect(&pool.path());
            for key in 0..20 {
                let path = format!("values/{key}");
                assert_eq!(other.get(&path).unwrap(), whole(key, round * 2), "{path}");
                other.put(&path, &whole(key, round * 2 + 1)).unwrap();
            }
            other
                .put("values/of the child", &round.to_le_bytes())
                .unwrap();
        };
        fork(files, || {});
        for key in 0..20 {
            let value = store.get(format!("{key}").as_bytes()).unwrap();
            assert_eq!(value, Some(whole(key, round * 2 + 1)), "key {key}");
        }
        assert!(store.delete(b"of the child").unwrap());
    }
}

fn at_once() {
    let pool = TestPool::new(128 << 20);
    let store = store(&pool);
    // By writing beside it and renaming, as programs do that replace files: a write in place is seen.
    let files = || {
        let other = connect(&pool.path());
        for count in 1..400u64 {
            let key = count % 5;
            let path = format!("values/{key}");
            other.put("values/new", &whole(key, count)).unwrap();
            let at = arckfs::At::Root;
            other
                .rename(at, b"values/new", at, path.as_bytes(), 0)
                .unwrap();
            let read = other.get(&format!("values/{}", (key + 1) % 5));
            assert!(
                read.is_ok_and(|value| is_whole((key + 1) % 5, &value)),
                "{count}"
            );
        }
    };
    for key in 0..5 {
        store
            .set(format!("{key}").as_bytes(), &whole(key, 0))
            .unwrap();
    }
    fork(files, || {
        for count in 1..400u64 {
            let key = count % 5;
            let mut batch = Batch::new();
            let (name, value) = (format!("{key}"), whole(key, 10_000 + count));
            batch
                .set(name.as_bytes(), &value)
                .set(b"last", name.as_bytes());
            store.apply(&batch).unwrap();
            let read = store.get(format!("{}", (key + 2) % 5).as_bytes()).unwrap();
            assert!(
                read.is_some_and(|value| is_whole((key + 2) % 5, &value)),
                "{count}"
            );
        }
    });
}

fn forked() {
    let pool = TestPool::new(64 << 20);
    let store = store(&pool);
    store.set(b"k", b"parent").unwrap();
    fork(
        || {
            assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"parent"[..]));
            store.set(b"k", b"child").unwrap();
            store.set(b"of the child", b"").unwrap();
            // Dropped, it ends the child's session and not the parent's.
            drop(store_of(&store));
        },
        || {
            for count in 0..200 {
                store.set(b"beside", &whole(1, count)).unwrap();
            }
        },
    );
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"child"[..]));
    assert_eq!(
        store.get(b"of the child").unwrap().as_deref(),
        Some(&b""[..])
    );
    assert_eq!(store.get(b"beside").unwrap(), Some(whole(1, 199)));
    store.set(b"k", b"parent again").unwrap();
    assert_eq!(
        store.get(b"k").unwrap().as_deref(),
        Some(&b"parent again"[..])
    );
}

/// The child's copy, as if it were its own to drop.
fn store_of(store: &Store) -> Store {
    // SAFETY: the child ends by `_exit` right after this copy has been dropped, and the original never is.
    unsafe { std::ptr::read(store) }
}
