//! Operations that are in flight while a fold copies what they store, and what is said of it.

mod common;

use arck_controller::Options;
use arck_core_state::FileKind;
use arck_protocol::{Request, Response};
use common::check::check;
use common::{Client, PATIENCE, ROOT, TestPool};
use rustix::io::Errno;
use std::time::{Duration, Instant};

#[test]
fn what_straddles_a_fold_gets_its_fold_copy() {
    let pool = TestPool::new(32 << 20);
    // So long that twenty messages take less than twenty of it, however busy the machine.
    let patience = Duration::from_secs(1);
    let controller = pool.serve_with(Options {
        patience,
        ..Options::default()
    });
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    client.create(ROOT, b"first", FileKind::File);
    let fold = client.header(ROOT).fold();
    let (offset, mut stored) = (client.slot_offset(ROOT), [0; 64]);
    client.load(offset, &mut stored);
    let fold_copy = |offset, length| Request::FoldCopy {
        inode: ROOT,
        fold,
        offset,
        length,
    };
    // A thread that does not leave: the wait ends, and what was copied can be looked at.
    client.enter(3);
    let started = Instant::now();
    client.commit(&[ROOT], false);
    assert!(started.elapsed() >= patience);
    assert_ne!(client.header(ROOT).fold(), fold);
    assert_eq!(
        client.ask(&fold_copy(offset, 64)),
        Response::Bytes(stored.to_vec())
    );
    assert_eq!(client.errno(&fold_copy(1 << 29, 64)), Errno::NODATA);
    // Nobody waits for that thread again.
    client.create(ROOT, b"between", FileKind::File);
    let started = Instant::now();
    for _ in 0..20 {
        client.recall_own(&[ROOT]);
    }
    assert!(started.elapsed() < 20 * patience);
    client.operation(3).leave();
    client.commit(&[ROOT], false);
    // Nothing in flight: everything was taken along.
    let fold = client.header(ROOT).fold();
    client.create(ROOT, b"second", FileKind::File);
    client.commit(&[ROOT], false);
    let whole = Request::FoldCopy {
        inode: ROOT,
        fold,
        offset: 0,
        length: 8,
    };
    assert_eq!(client.ask(&whole), Response::Done);
    client.goodbye();
    controller.stop().unwrap();
}

/// What was wrong with a move was told of a copy of the deltas that was thrown away with the move: of a name
/// that an operation in flight had just published, and that nobody saw afterwards. (A thread was told that a
/// directory was not there to be renamed, and found it; it showed in one of sixty runs of `histories`.)
#[test]
fn what_is_wrong_with_a_move_is_told_of_what_is_folded() {
    // The controller tells nobody when it has looked who is in flight: on a busy machine that takes longer.
    let pauses = [100, 400, 1600, 6400].map(Duration::from_millis);
    assert!(
        pauses.into_iter().any(fails_beside_a_rename),
        "the second of two folds never met an operation that the first had not"
    );
}

/// Whether the operation was in flight for the second fold alone, which is what the test is about.
fn fails_beside_a_rename(pause: Duration) -> bool {
    let pool = TestPool::new(32 << 20);
    // As long as it takes: operations leave when this test says so.
    let controller = pool.serve_with(Options {
        patience: 3 * PATIENCE,
        ..Options::default()
    });
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let [from, to] =
        [b"from", b"to__"].map(|name| client.create(ROOT, &name[..], FileKind::Directory));
    let inner = client.create(from, b"inner", FileKind::Directory);
    client.commit_all(false);
    // Mapped before the controller waits.
    assert!(client.verified(from, b"inner").is_some());
    client.create(from, b"unfolded", FileKind::File);
    let fold = client.header(from).fold();
    // Two folds, each of which waits for the operation that is in flight when it begins.
    client.enter(0);
    let slot = client.submit(&Request::MoveDirectory {
        from,
        from_name: b"inner".to_vec(),
        to,
        to_name: b"moved".to_vec(),
        flags: 0,
    });
    let comes = |client: &Client, patience: Duration, is_so: &dyn Fn(&Client) -> bool| {
        let began = Instant::now();
        while !is_so(client) && began.elapsed() < patience {
            std::thread::yield_now();
        }
        is_so(client)
    };
    let is_marked = |client: &Client| client.header(to).ownership().is_marked();
    assert!(comes(&client, PATIENCE, &is_marked), "a mark");
    // It has looked who is in flight by then, and is done with one fold before it marks for the other.
    std::thread::sleep(pause);
    client.enter(1);
    client.operation(0).leave();
    let is_folded = |client: &Client| client.header(from).fold() != fold;
    let is_first_over = comes(&client, 4 * pause, &is_folded);
    std::thread::sleep(pause);
    if !is_first_over || !is_marked(&client) {
        client.operation(1).leave();
        let _ = client.finish(slot.unwrap());
        client.goodbye();
        controller.stop().unwrap();
        return false;
    }
    client.rename((from, b"inner"), (from, b"other"));
    client.operation(1).leave();
    let answer = client.finish(slot.unwrap());
    assert_eq!(answer, Response::Error(Errno::NOENT.raw_os_error()));
    let seen = |name| client.verified(from, name).map(|dentry| dentry.inode);
    let is_seen = [b"inner", b"other"].map(|name| seen(&name[..]));
    assert_eq!(is_seen, [None, Some(inner)], "it was told of that");
    client.goodbye();
    controller.stop().unwrap();
    check(&pool.path());
    true
}

#[test]
fn a_branch_slot_is_not_used_again_while_somebody_may_store_there() {
    let pool = TestPool::new(32 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let slot = client.header(ROOT).branch_slot();
    let granted = |client: &Client| match client.ask(&Request::GrantInodes { count: 8 }) {
        Response::Inodes(runs) => runs
            .into_iter()
            .flat_map(|run| run.numbers())
            .map(|number| client.header(number).branch_slot())
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    client.enter(0);
    client.commit(&[ROOT], true);
    assert!(!granted(&client).contains(&slot));
    client.operation(0).leave();
    assert!(granted(&client).contains(&slot));
    client.goodbye();
    controller.stop().unwrap();
}
