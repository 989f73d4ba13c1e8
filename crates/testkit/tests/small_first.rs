//! In which order a session's requests are served: what takes no time does not wait behind its own folds.

use arck_controller::Options;
use arck_libfs_kit::messages::{InodeList, Request};
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// The controller stands in a fold. Another one is asked for, and then inode numbers: those come first; also where two are
/// asked for at once, and the numbers only when the controller is at the first of them.
#[test]
fn numbers_come_before_a_fold_that_was_asked_for_earlier() {
    for is_late in [false, true] {
        numbers_before_a_fold(is_late);
    }
}

fn numbers_before_a_fold(is_late: bool) {
    let armed = Arc::new(AtomicBool::new(false));
    let (says, stands) = channel();
    let (goes, on) = channel();
    let (says, on) = (Mutex::new(says), Mutex::new(on));
    let switch = armed.clone();
    let hook = move |point: &'static str| {
        if point == "journal written" && switch.load(Ordering::SeqCst) {
            let _ = says.lock().unwrap().send(());
            let _ = on.lock().unwrap().recv_timeout(PATIENCE);
        }
    };
    let options = Options {
        crash_hook: Some(Arc::new(hook)),
        ..Options::default()
    };
    let pool = TestPool::with_options(64 << 20, options);
    let files = pool.session();
    let session = files.session();
    let folds = ["a", "b", "c"].map(|name| {
        let made = files.make_directory(At::Root, name.as_bytes(), 0o755);
        made.expect("mkdir");
        files
            .stat(At::Root, name.as_bytes(), 0)
            .expect("stat")
            .inode
    });
    files.fold(false).expect("fold");
    for name in ["a/file", "b/file", "c/file"] {
        files.put(name, b"content").expect("put");
    }
    let commit = |inode: u64| Request::Commit {
        inodes: InodeList::new(&[u32::try_from(inode).expect("a number")]).expect("a list"),
        release: false,
    };
    armed.store(true, Ordering::SeqCst);
    let first = session.submit(&commit(folds[0])).expect("a slot");
    stands.recv_timeout(PATIENCE).expect("it folds");
    let is_answered = |slot| session.finish(slot, false) != Err(Errno::TIMEDOUT);
    let mut last = session.submit(&commit(folds[1])).expect("a slot");
    if is_late {
        last = session.submit(&commit(folds[2])).expect("a slot");
        while !is_answered(first) {
            goes.send(()).expect("the controller");
            stands.recv_timeout(PATIENCE).expect("it folds");
        }
    }
    let grant = Request::GrantInodes { count: 16 };
    let numbers = session.submit(&grant).expect("a slot");
    if !is_late {
        assert!(last < numbers, "slots are taken in order");
    }
    // At each commit that follows: which of the two is answered. An answer is there to be fetched once.
    let mut answered = (false, false);
    let mut seen = Vec::new();
    loop {
        goes.send(()).expect("the controller");
        let stood = stands.recv_timeout(Duration::from_millis(500));
        answered.0 |= is_answered(last);
        answered.1 |= is_answered(numbers);
        match stood {
            Ok(()) => seen.push(answered),
            // Nothing is left to be committed.
            Err(_) => break,
        }
    }
    armed.store(false, Ordering::SeqCst);
    assert_eq!(answered, (true, true));
    // The numbers, while the fold is still to come.
    assert!(seen.contains(&(false, true)), "{seen:?}");
    assert!(!seen.contains(&(true, false)), "{seen:?}");
    assert_eq!(pool.violations(), "");
}
