//! Folds that a session could make last: what bounds them, and that depth costs nothing.

mod common;

use arck_controller::Options;
use arck_core_state::FileKind;
use arck_core_state::directory::Dentry;
use arck_core_state::record::Record;
use arck_protocol::{Request, Response};
use common::{Client, ROOT, TestPool};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A session filled a gigabyte of delta pages with 8,000,000 records that say nothing, and everybody
/// waited 9.1 s while they were verified. A fold takes no more pages than a session is granted.
#[test]
fn a_delta_of_more_pages_than_are_granted_is_refused_before_it_is_verified() {
    let pool = TestPool::new(64 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let directory = client.create(ROOT, b"full", FileKind::Directory);
    client.commit(&[ROOT], false);
    let dentry = Dentry {
        inode: directory,
        generation: client.header(directory).generation(),
        kind: FileKind::Directory,
    };
    // 8,000 pages, each with 31 records without a bit of state.
    for _ in 0..8_000 * 31 {
        let name = b"a name of a unit, and its record of one more";
        let record: Record<'_> = client.record(dentry, name, b"");
        assert_eq!(record.units(), 2);
        client.append(directory, &record);
    }
    let began = Instant::now();
    let answer = client.ask(&Client::commit_request(&[directory], false));
    eprintln!("{answer:?} after {:?}", began.elapsed());
    let Response::Violation(text) = answer else {
        panic!("{answer:?}");
    };
    assert!(text.contains("pages"), "{text}");
    // Others are folded as ever.
    client.create(ROOT, b"other", FileKind::File);
    client.done(&Client::commit_request(&[ROOT], false));
    controller.stop().unwrap();
}

/// Who says that it uses ever more gets no more room than what is folded at once.
#[test]
fn room_ends_where_a_fold_ends() {
    let pool = TestPool::new(4 << 30);
    let controller = pool.serve();
    let client = Client::connect(&pool.path());
    let header = &client.control().header;
    // No more is in use than there is.
    client.done(&Request::GrowArena {
        branch_pages: 0,
        delta_pages: 10_000,
    });
    let refused = loop {
        let room = header.delta_credits.load(Ordering::SeqCst);
        assert!(room <= 8192, "{room} delta pages");
        header.delta_used.store(room, Ordering::SeqCst);
        let more = Request::MoreCredits {
            pages: 1,
            pressing: false,
        };
        match client.ask(&more) {
            Response::Done => {}
            other => break other,
        }
    };
    assert_eq!(refused, Response::Error(Errno::NOSPC.raw_os_error()));
    assert!(header.delta_credits.load(Ordering::SeqCst) >= 4096);
    // Less is in use, and there is room again.
    header.delta_used.store(0, Ordering::SeqCst);
    client.done(&Request::MoreCredits {
        pages: 1,
        pressing: false,
    });
    controller.stop().unwrap();
}

/// A tree 60,000 deep took 6.1 s to fold: for each new directory everything above it was looked at,
/// to see who may read it.
#[test]
fn a_directory_deep_in_a_tree_costs_what_one_at_its_top_does() {
    const BATCHES: usize = 34;
    const BATCH: usize = 1800;
    let pool = TestPool::new(2 << 30);
    let controller = pool.serve_with(Options {
        shared: true,
        ..Options::default()
    });
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let mut deepest = client.create(ROOT, b"top", FileKind::Directory);
    let mut took = Vec::new();
    for _ in 0..BATCHES {
        for _ in 0..BATCH {
            deepest = client.create(deepest, b"d", FileKind::Directory);
        }
        // All above that is not committed yet comes along.
        let began = Instant::now();
        client.done(&Client::commit_request(&[deepest], false));
        took.push(began.elapsed());
        client.overlay.clear();
        client.done(&Request::CommitAll { release: true });
        client.acquire(&[deepest]);
    }
    eprintln!("{BATCH} directories within each other: {took:?}");
    let least = took[..6].iter().min().unwrap();
    let last = took[BATCHES - 6..].iter().min().unwrap();
    assert!(
        *last < 3 * (*least).max(Duration::from_millis(40)),
        "{took:?}"
    );
    controller.stop().unwrap();
}

/// Of directories within each other that are not committed yet, those above had to be looked at one after the other,
/// with a budget of as many pages as had been copied in the round before: chains of some thousands were
/// told EAGAIN.
#[test]
fn a_chain_of_thousands_that_are_not_born_is_folded_at_once() {
    let pool = TestPool::new(1 << 30);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    for depth in [500, 4_000, 6_000] {
        let mut deepest = client.create(ROOT, format!("{depth}").as_bytes(), FileKind::Directory);
        for _ in 1..depth {
            deepest = client.create(deepest, b"d", FileKind::Directory);
        }
        let began = Instant::now();
        let answer = client.ask(&Client::commit_request(&[deepest], false));
        eprintln!("{depth}: {answer:?} after {:?}", began.elapsed());
        assert_eq!(answer, Response::Done, "{depth}");
        client.overlay.clear();
        client.done(&Request::CommitAll { release: true });
        client.acquire(&[ROOT]);
    }
    controller.stop().unwrap();
}
