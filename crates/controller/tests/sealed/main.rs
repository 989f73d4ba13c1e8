//! Sealed deltas, by hand: what the headers say of them, and what is sealed.

#[path = "../common/mod.rs"]
mod common;
mod crashes;
mod forged;
mod named;
mod refused;
mod room;
mod scene;

use crate::common::{Client, PATIENCE, ROOT};
use crate::scene::{BOTH, Gate, Scene, begin, commit, go_on, paths};
use arck_controller::Options;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, HeaderCopy, InodeNumber};
use arck_protocol::{Request, Response};
use std::sync::atomic::Ordering;

#[test]
fn a_header_says_what_is_sealed_of_its_directory() {
    let (gate, options) = Gate::new(None);
    let scene = Scene::new(options);
    let mut client = scene.client();
    let [d, _] = begin(&mut client);
    let f = client.lookup(d, b"f").unwrap().0.inode;
    let number = client.number();
    let before = client.header(d).copy();
    gate.armed.store(true, Ordering::SeqCst);
    let slot = client.submit(&commit(&[d])).unwrap();
    gate.sealed.recv_timeout(PATIENCE).unwrap();
    let sealed = client.header(d).copy();
    assert_eq!((before.sealed, before.sealed_slot), (0, 0));
    // The header as it was stands in it, and can be told.
    assert_eq!(sealed.of_sealed(), Some(before));
    assert_ne!(sealed.branch_slot, before.branch_slot);
    assert!(sealed.fold > before.fold);
    // What the sealed delta creates waits; the directory does not.
    let created = client.header(f).copy();
    assert!(created.ownership.is_marked() && created.kind == HeaderKind::Granted);
    assert!(client.verified(d, b"v0").is_some());
    go_on(&mut client, d, number);
    gate.goes_on.send(()).unwrap();
    assert_eq!(client.finish(slot), Response::Done);
    let after = client.header(d).copy();
    let expected = HeaderCopy {
        sealed: 0,
        sealed_slot: 0,
        sequence: after.sequence,
        inode: after.inode,
        ..sealed
    };
    assert_eq!(after, expected);
    assert!(after.sequence > sealed.sequence && after.sequence.is_multiple_of(2));
    assert!(client.is_alive(f) && !client.header(f).ownership().is_marked());
    assert!(client.verified(d, b"beside").is_none());
    let names: Vec<_> = client.names(d).into_keys().collect();
    assert_eq!(names, [&b"f"[..], b"r1", b"v2", b"v3"]);
    // The next seal is of what was begun beside this one.
    client.commit_all(false);
    assert!(client.header(d).fold() > after.fold);
    assert_eq!(client.header(d).evicted(), 0);
    assert_eq!(gate.seals.load(Ordering::SeqCst), 2);
    client.goodbye();
    assert_eq!(paths(&scene.end()), BOTH);
}

#[test]
fn what_is_not_worth_it_or_nobody_would_go_on_with_is_not_sealed() {
    type Asks = fn(&mut Client, [InodeNumber; 2]) -> Request;
    let cases: [(&str, usize, u32, Asks); 7] = [
        ("a directory", 1, 1, |_, [d, _]| commit(&[d])),
        ("two directories", 1, 1, |client, [d, e]| {
            client.create(e, b"g", FileKind::File);
            commit(&[d, e])
        }),
        ("few pages", 100, 0, |_, [d, _]| commit(&[d])),
        ("given up", 1, 0, |_, [d, _]| {
            Client::commit_request(&[d], true)
        }),
        ("no names", 1, 0, |_, [_, e]| commit(&[e])),
        ("refused, and repaired", 1, 0, |client, [d, _]| {
            let number = client.number();
            client.create_as(d, b"v2", FileKind::File, number);
            let answer = client.ask(&commit(&[d]));
            assert!(matches!(answer, Response::Violation(_)), "{answer:?}");
            client.remove(d, b"v2");
            commit(&[d])
        }),
        ("moved by the controller", 1, 0, |_, [_, e]| {
            Request::MoveDirectory {
                from: ROOT,
                from_name: b"e".to_vec(),
                to: e,
                to_name: b"in itself".to_vec(),
                flags: 0,
            }
        }),
    ];
    for (what, seal_pages, seals, asks) in cases {
        let (gate, options) = Gate::new(None);
        gate.goes_on.send(()).unwrap();
        let scene = Scene::new(Options {
            seal_pages,
            ..options
        });
        let mut client = scene.client();
        let directories = begin(&mut client);
        let request = asks(&mut client, directories);
        gate.armed.store(true, Ordering::SeqCst);
        let answer = client.ask(&request);
        assert_eq!(
            gate.seals.load(Ordering::SeqCst),
            seals,
            "{what}: {answer:?}"
        );
        client.commit_all(true);
        client.goodbye();
        scene.end();
    }
}

/// A directory that dies with the fold is not sealed, whatever has changed in it: it is no more when that is folded.
#[test]
fn a_directory_that_dies_with_the_fold_is_not_sealed() {
    for seal_unverified_pages in [1, 100] {
        let (gate, options) = Gate::new(None);
        let scene = Scene::new(Options {
            seal_unverified_pages,
            ..options
        });
        let mut client = scene.client();
        client.acquire(&[ROOT]);
        let d = client.create(ROOT, b"d", FileKind::Directory);
        client.create(d, b"f", FileKind::File);
        client.commit_all(false);
        client.remove(d, b"f");
        client.remove(ROOT, b"d");
        client.create(ROOT, b"beside", FileKind::File);
        gate.armed.store(true, Ordering::SeqCst);
        let slot = client.submit(&commit(&[ROOT, d])).unwrap();
        gate.sealed.recv_timeout(PATIENCE).unwrap();
        assert_ne!(client.header(ROOT).sealed(), 0);
        let dies = client.header(d).copy();
        assert_eq!(dies.sealed, 0);
        assert!(dies.ownership.is_marked());
        gate.goes_on.send(()).unwrap();
        assert_eq!(client.finish(slot), Response::Done);
        client.goodbye();
        assert_eq!(paths(&scene.end()), ["/beside"]);
    }
}

/// Names that go need no credits, so a session without any has what it has removed folded while it goes on.
#[test]
fn what_only_takes_names_away_is_sealed_without_credits() {
    for adds in [false, true] {
        let (gate, options) = Gate::new(None);
        gate.goes_on.send(()).unwrap();
        let scene = Scene::new(options);
        let mut client = scene.client();
        client.acquire(&[ROOT]);
        for number in 0..3_000 {
            client.create(ROOT, format!("{number}").as_bytes(), FileKind::File);
            if number % 1_000 == 999 {
                client.commit_all(false);
            }
        }
        client.commit_all(false);
        for number in 0..3_000 {
            client.remove(ROOT, format!("{number}").as_bytes());
        }
        if adds {
            // On more pages than there are credits for, by a session that asks for none.
            for number in 0..2_500 {
                client.create(ROOT, format!("{number}+").as_bytes(), FileKind::File);
            }
        }
        let credits = &client.control().header.delta_credits;
        let credits = credits.load(Ordering::SeqCst);
        assert!(credits < 3_000 / 31, "{credits} credits");
        gate.armed.store(true, Ordering::SeqCst);
        let answer = client.ask(&commit(&[ROOT]));
        assert_eq!(answer, Response::Done);
        assert_eq!(gate.seals.load(Ordering::SeqCst), u32::from(!adds));
        client.commit_all(true);
        client.goodbye();
        let left = if adds { 2_500 } else { 0 };
        assert_eq!(paths(&scene.end()).len(), left);
    }
}
