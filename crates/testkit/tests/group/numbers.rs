//! Inode numbers that were asked for when a member died.

use crate::{POOL, Process};
use arck_protocol::Request;
use arck_protocol::control::{REQUEST_SLOTS, slot_state};
use arck_protocol::ring::{self, Ring};
use arck_testkit::{Shorthand, TestPool, connect_as};
use arckfs::{At, FileSystem};
use std::sync::atomic::Ordering;

/// Of a process that is to die between claiming a slot to ask ahead, or submitting that, and noting it.
pub fn ask_unnoted(fs: &FileSystem) {
    let session = fs.session();
    let _inside = session.thread().expect("a thread").slot().pin();
    let claimed = Ring::of(session.control(), ring::ALL).try_claim();
    claimed.expect("a slot");
    let request = Request::GrantInodes { count: 1 };
    session.submit(&request).expect("a slot");
    println!("inside");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Request slots of the session that are not free.
fn busy(fs: &FileSystem) -> Vec<usize> {
    let slots = &fs.session().control().requests;
    let state = |at: usize| slots[at].state.load(Ordering::Acquire);
    (0..REQUEST_SLOTS)
        .filter(|&at| state(at) != slot_state::FREE)
        .collect()
}

/// However many members die over it, the session keeps its request slots.
pub fn what_the_dead_asked_ahead_costs_no_slot() {
    let pool = TestPool::new(POOL);
    let fs = connect_as(&pool.path(), b"g");
    for round in 0..4 {
        let before = fs.session().region().build();
        let mut process = Process::start(&pool, "asks ahead");
        assert_eq!(process.says(), fs.session().number().to_string());
        assert_eq!(process.says(), "inside");
        process.kill();
        while fs.session().region().build() == before || fs.session().region().is_damaged() {
            fs.stat(At::Root, b"/", 0).expect("the root");
        }
        // What this process asks ahead itself.
        let left = busy(&fs);
        assert!(left.len() <= 1, "round {round}: {left:?}");
    }
    for at in 0..2000 {
        fs.put(&format!("file-{at}"), b"").expect("put");
    }
    assert_eq!(pool.violations(), "");
}
