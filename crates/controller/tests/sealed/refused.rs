//! What becomes of sealed deltas when their owner writes where it must not, or they are refused.

use crate::common::{Client, PATIENCE};
use crate::scene::{
    BEFORE, Gate, Scene, begin, commit, edit_sealed_branch, go_on, paths, sealed_branch, set_aside,
};
use arck_controller::{Options, read_log};
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, HeaderCopy};
use arck_protocol::{InodeList, Request, Response};
use std::sync::atomic::Ordering;

/// What a session does to its arena behind a seal; given the header as it was sealed.
type Spoils = fn(&Client, &HeaderCopy);

const SPOILS: [(&str, Spoils); 4] = [
    ("no page of the tail", |client, sealed| {
        edit_sealed_branch(client, sealed, |branch| branch.tails[0] = u32::MAX);
    }),
    ("a page of somebody else's in the tail", |client, sealed| {
        let page = sealed_branch(client, sealed).unwrap().tails[0];
        client.store(u64::from(page) * 4096, &[0xff; 4096]);
    }),
    ("a chain that ends nowhere", |client, sealed| {
        let page = sealed_branch(client, sealed).unwrap().tails[0];
        let next = u64::from(page) * 4096 + arck_core_state::record::NEXT_OFFSET;
        client.store(next, &page.to_le_bytes());
    }),
    ("times and modes", |client, sealed| {
        edit_sealed_branch(client, sealed, |branch| branch.mode = 0o7777_7777);
    }),
];

/// What is refused of what was sealed takes along what came on top of it, and nothing else.
#[test]
fn what_is_overwritten_behind_the_seal_is_set_aside_with_what_came_on_top() {
    for (what, spoils) in SPOILS {
        for goes_on in [false, true] {
            let (gate, options) = Gate::new(Some(("sealed", 0)));
            let mut scene = Scene::new(options);
            let mut client = scene.client();
            let [d, e] = begin(&mut client);
            let f = client.lookup(d, b"f").unwrap().0.inode;
            let number = client.number();
            client.create(e, b"unhurt", FileKind::File);
            gate.armed.store(true, Ordering::SeqCst);
            let slot = client.submit(&commit(&[d])).unwrap();
            gate.sealed.recv_timeout(PATIENCE).unwrap();
            let header = client.header(d).copy();
            if goes_on {
                go_on(&mut client, d, number);
            }
            spoils(&client, &header.of_sealed().unwrap());
            gate.goes_on.send(()).unwrap();
            assert!(scene.dies(&client, slot));
            scene.restart();
            client.resume(&scene.pool.path());
            // Nothing is left of it that could be folded.
            assert_eq!(client.finish(slot), Response::Done, "{what}");
            let now = client.header(d).copy();
            assert_eq!((now.sealed, now.sealed_slot), (0, 0), "{what}");
            assert_eq!(now.ownership.session(), 0, "{what}");
            // The number that its owner has last seen of its own.
            let lost = if goes_on { header.fold } else { header.sealed };
            assert_eq!(
                client.header(d).evicted(),
                lost,
                "{what}, goes on {goes_on}"
            );
            assert!(now.fold > header.fold);
            let (entries, _) = read_log(&scene.pool.path()).unwrap();
            let refused = entries
                .iter()
                .filter(|entry| entry.event.subject() == Some((client.welcome.session, d)));
            assert!(refused.count() >= 1, "{what}: {entries:?}");
            // Both deltas, and what they were to create.
            let aside = set_aside(&scene.pool.path());
            assert!(aside > usize::from(goes_on), "{what}: {aside}");
            // Its number is free for something else.
            let header = client.header(f).copy();
            assert_eq!(header.kind, HeaderKind::Granted, "{what}");
            assert!(!header.ownership.is_marked(), "{what}");
            let other = scene.client();
            other.acquire(&[d]);
            let names: Vec<_> = other.names(d).into_keys().collect();
            assert_eq!(names, [b"v0", b"v1", b"v2", b"v3"], "{what}");
            other.goodbye();
            client.overlay.retain(|(within, _), _| *within != d);
            client.commit(&[e], false);
            assert!(client.verified(e, b"unhurt").is_some(), "{what}");
            client.acquire(&[d]);
            client.create_as(d, b"again", FileKind::File, f);
            client.commit_all(true);
            client.goodbye();
            let tree = scene.end();
            let expected = BEFORE.iter().copied().chain(["/d/again", "/e/unhurt"]);
            let mut expected: Vec<&str> = expected.collect();
            expected.sort_unstable();
            assert_eq!(paths(&tree), expected, "{what}");
        }
    }
}

/// What is large is sealed before it is verified: what is refused then takes along what came on top of it, and nobody
/// else waits for that. What is small is verified first, and may be repaired.
#[test]
fn what_was_sealed_unverified_and_is_refused_takes_along_what_came_on_top() {
    for (seal_unverified_pages, by_reader) in [(1, false), (1, true), (100, false)] {
        let is_sealed = seal_unverified_pages == 1;
        let (gate, options) = Gate::new(None);
        let scene = Scene::new(Options {
            seal_unverified_pages,
            ..options
        });
        let mut client = scene.client();
        let [d, e] = begin(&mut client);
        let [number, again, beside] = std::array::from_fn(|_| client.number());
        // A name that is there.
        client.create_as(d, b"v3", FileKind::File, again);
        client.create(e, b"unhurt", FileKind::File);
        gate.armed.store(true, Ordering::SeqCst);
        if !is_sealed {
            let answer = client.ask(&commit(&[d]));
            assert!(matches!(answer, Response::Violation(_)), "{answer:?}");
            assert_eq!(gate.seals.load(Ordering::SeqCst), 0);
            client.remove(d, b"v3");
            client.commit_all(true);
            client.goodbye();
            assert!(paths(&scene.end()).contains(&"/d/f"));
            continue;
        }
        let reader = scene.client();
        let slot = match by_reader {
            false => client.submit(&commit(&[d])).unwrap(),
            true => reader
                .submit(&Request::Recall {
                    inodes: InodeList::new(&[d]).unwrap(),
                })
                .unwrap(),
        };
        gate.sealed.recv_timeout(PATIENCE).unwrap();
        let sealed = client.header(d).copy();
        assert!(sealed.sealed != 0 && !sealed.ownership.is_marked());
        go_on(&mut client, d, number);
        gate.goes_on.send(()).unwrap();
        match by_reader {
            false => {
                let answer = client.finish(slot);
                assert!(matches!(answer, Response::Violation(_)), "{answer:?}");
            }
            true => assert_eq!(reader.finish(slot), Response::Done),
        }
        let now = client.header(d).copy();
        assert_eq!((now.sealed, now.sealed_slot), (0, 0));
        assert_eq!(now.ownership.session(), 0);
        assert_eq!(client.header(d).evicted(), sealed.fold);
        assert!(set_aside(&scene.pool.path()) >= 2);
        for number in [number, again, beside] {
            let header = client.header(number).copy();
            assert_eq!(header.kind, HeaderKind::Granted);
            assert!(!header.ownership.is_marked());
        }
        let names: Vec<_> = reader.names(d).into_keys().collect();
        assert_eq!(names, [b"v0", b"v1", b"v2", b"v3"]);
        client.overlay.retain(|(within, _), _| *within != d);
        client.commit(&[e], true);
        client.acquire(&[d]);
        client.create_as(d, b"after", FileKind::File, again);
        client.commit_all(true);
        client.goodbye();
        reader.goodbye();
        let tree = scene.end();
        let expected = BEFORE.iter().copied().chain(["/d/after", "/e/unhurt"]);
        let mut expected: Vec<&str> = expected.collect();
        expected.sort_unstable();
        assert_eq!(paths(&tree), expected);
    }
}
