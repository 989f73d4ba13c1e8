//! Sealed deltas, by hand: what the headers say of them, and what becomes of them when the controller dies behind
//! a seal, when their owner writes where it must not, when they are refused, and when there is no room to apply them.

mod common;

use arck_controller::{Options, RunningController, read_log};
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::{BRANCH_SIZE, StoredBranch};
use arck_core_state::directory::Dentry;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, HeaderCopy, InodeNumber};
use arck_protocol::{InodeList, Request, Response, ring};
use common::check::{Tree, check};
use common::{Client, PATIENCE, ROOT, TestPool};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// So long that no test sees its end.
const FOR_EVER: Duration = Duration::from_secs(100_000);

fn options() -> Options {
    Options {
        patience: Duration::from_millis(20),
        take_up: Duration::from_millis(50),
        grace: FOR_EVER,
        seal_pages: 1,
        ..Options::default()
    }
}

/// Stops the controller behind the first seal after it was armed, and has it die at a point, if one is given.
struct Gate {
    armed: Arc<AtomicBool>,
    seals: Arc<AtomicU32>,
    sealed: Receiver<()>,
    goes_on: Sender<()>,
}

impl Gate {
    /// It dies when it comes to a point for the time after so many.
    fn new(death: Option<(&'static str, u32)>) -> (Gate, Options) {
        let (says, sealed) = channel();
        let (goes_on, heard) = channel();
        let (says, heard) = (Mutex::new(says), Mutex::new(heard));
        let armed = Arc::new(AtomicBool::new(false));
        let (seals, passed) = (Arc::new(AtomicU32::new(0)), AtomicU32::new(0));
        let (switch, count) = (armed.clone(), seals.clone());
        let hook = move |name: &'static str| {
            if !switch.load(Ordering::SeqCst) {
                return;
            }
            if name == "sealed" && count.fetch_add(1, Ordering::SeqCst) == 0 {
                says.lock().unwrap().send(()).unwrap();
                heard.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            }
            if let Some((point, skipped)) = death {
                let dies = name == point && passed.fetch_add(1, Ordering::SeqCst) == skipped;
                assert!(!dies, "here the controller dies");
            }
        };
        let options = Options {
            crash_hook: Some(Arc::new(hook)),
            ..options()
        };
        let gate = Gate {
            armed,
            seals,
            sealed,
            goes_on,
        };
        (gate, options)
    }
}

/// A pool, and its controller.
struct Scene {
    pool: TestPool,
    controller: Option<RunningController>,
}

impl Scene {
    fn new(options: Options) -> Scene {
        let pool = TestPool::new(32 << 20);
        let controller = Some(pool.serve_with(options));
        Scene { pool, controller }
    }

    fn client(&self) -> Client {
        Client::connect(&self.pool.path())
    }

    /// Kills the controller, if it has not died, and starts another.
    fn restart(&mut self) {
        self.controller.take().unwrap().kill();
        self.controller = Some(self.pool.serve_with(options()));
    }

    fn end(mut self) -> Tree {
        self.controller.take().unwrap().stop().unwrap();
        check(&self.pool.path())
    }

    /// Has a request served until it is answered, or the controller dead; whether it died.
    fn dies(&self, client: &Client, slot: usize) -> bool {
        let controller = self.controller.as_ref().unwrap();
        while !controller.is_finished() && !ring::is_answered(client.control(), slot) {
            std::thread::yield_now();
        }
        !ring::is_answered(client.control(), slot)
    }
}

/// A directory whose names are verified, `e` beside it, and one change of each kind, to be sealed; the directories.
fn begin(client: &mut Client) -> [InodeNumber; 2] {
    client.acquire(&[ROOT]);
    let [d, e] = [b"d", b"e"].map(|name| client.create(ROOT, &name[..], FileKind::Directory));
    for name in [b"v0", b"v1", b"v2", b"v3"] {
        client.create(d, name, FileKind::File);
    }
    client.commit_all(false);
    client.remove(d, b"v0");
    client.rename((d, b"v1"), (d, b"r1"));
    client.create(d, b"f", FileKind::File);
    [d, e]
}

/// What an owner does beside what is sealed, on which some of it depends: by name, as if that were verified.
fn go_on(client: &mut Client, d: InodeNumber, number: InodeNumber) {
    for entry in client.overlay.values_mut() {
        *entry = entry.map(|(dentry, _): (Dentry, _)| (dentry, None));
    }
    client.create_as(d, b"beside", FileKind::File, number);
    client.remove(d, b"r1");
    client.remove(d, b"v2");
}

const BEFORE: &[&str] = &["/d", "/d/v0", "/d/v1", "/d/v2", "/d/v3", "/e"];
const SEALED: &[&str] = &["/d", "/d/f", "/d/r1", "/d/v2", "/d/v3", "/e"];
const BOTH: &[&str] = &["/d", "/d/beside", "/d/f", "/d/v3", "/e"];

fn paths(tree: &Tree) -> Vec<&str> {
    tree.paths.keys().map(String::as_str).collect()
}

fn commit(inodes: &[InodeNumber]) -> Request {
    Client::commit_request(inodes, false)
}

/// Files in `aside`.
fn set_aside(pool: &Path) -> usize {
    std::fs::read_dir(pool.join("aside")).map_or(0, Iterator::count)
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

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

const POINTS: [&str; 5] = [
    "sealed",
    "fresh pages written",
    "journal written",
    "half applied",
    "applied",
];

/// Wherever it dies: all is there, and once.
#[test]
fn a_controller_dies_at_each_point_of_a_fold_that_seals() {
    let mut behind_the_seal = 0;
    for (lives, goes_on) in [(false, false), (false, true), (true, false), (true, true)] {
        for point in POINTS {
            for skipped in 0.. {
                let what = format!("{point} {skipped}, lives {lives}, goes on {goes_on}");
                let (gate, options) = Gate::new(Some((point, skipped)));
                let mut scene = Scene::new(options);
                let mut client = scene.client();
                let [d, _] = begin(&mut client);
                let number = client.number();
                gate.armed.store(true, Ordering::SeqCst);
                let slot = client.submit(&commit(&[d])).unwrap();
                let controller = scene.controller.as_ref().unwrap();
                let mut is_sealed = false;
                while !is_sealed && !controller.is_finished() {
                    is_sealed = gate.sealed.recv_timeout(Duration::from_millis(1)).is_ok();
                }
                let has_gone_on = is_sealed && goes_on;
                if has_gone_on {
                    go_on(&mut client, d, number);
                }
                if is_sealed {
                    gate.goes_on.send(()).unwrap();
                }
                let died = scene.dies(&client, slot);
                gate.armed.store(false, Ordering::SeqCst);
                let is_gone = died && !lives;
                let client = match is_gone {
                    true => {
                        drop(client);
                        None
                    }
                    false => Some(client),
                };
                if died {
                    behind_the_seal += u32::from(is_sealed);
                    scene.restart();
                }
                let mut expected = if has_gone_on { BOTH } else { SEALED };
                if let Some(mut client) = client {
                    if died {
                        client.resume(&scene.pool.path());
                    }
                    assert_eq!(client.finish(slot), Response::Done, "{what}");
                    assert_eq!(client.header(d).sealed(), 0, "{what}");
                    if goes_on && !has_gone_on {
                        client.overlay.clear();
                        go_on(&mut client, d, number);
                        expected = BOTH;
                    }
                    client.commit_all(true);
                    client.goodbye();
                }
                let pool = scene.pool.path();
                assert_eq!(set_aside(&pool), 0, "{what}");
                assert!(read_log(&pool).unwrap().0.is_empty(), "{what}");
                assert_eq!(paths(&scene.end()), expected, "{what}");
                if !died {
                    assert!(skipped > 0, "{what}");
                    break;
                }
            }
        }
    }
    assert!(behind_the_seal >= 16, "{behind_the_seal}");
}

/// # Regression
/// The end of a session looked for active deltas alone: where nothing else of a session was to be folded, names
/// that were only removed, or renamed, in what was sealed were as before.
#[test]
fn what_is_sealed_of_a_session_that_has_nothing_else_is_folded_when_it_ends() {
    let (gate, options) = Gate::new(Some(("sealed", 0)));
    gate.goes_on.send(()).unwrap();
    let mut scene = Scene::new(options);
    let mut client = scene.client();
    let [d, _] = begin(&mut client);
    client.commit_all(false);
    client.remove(d, b"f");
    client.rename((d, b"v2"), (d, b"r2"));
    gate.armed.store(true, Ordering::SeqCst);
    let slot = client.submit(&commit(&[d])).unwrap();
    assert!(scene.dies(&client, slot));
    drop(client);
    scene.restart();
    let expected = ["/d", "/d/r1", "/d/r2", "/d/v3", "/e"];
    assert_eq!(paths(&scene.end()), expected);
}

/// What a session does to its arena behind a seal; given the header as it was sealed.
type Spoils = fn(&Client, &HeaderCopy);

fn edit_sealed_branch(client: &Client, sealed: &HeaderCopy, edit: impl FnOnce(&mut StoredBranch)) {
    let branch = sealed_branch(client, sealed);
    let mut branch = branch.expect("it is there");
    edit(&mut branch);
    let offset = branch_offset(sealed.branch_slot).unwrap();
    client.store(offset, branch.as_bytes());
}

fn sealed_branch(client: &Client, sealed: &HeaderCopy) -> Option<StoredBranch> {
    let mut bytes = [0; BRANCH_SIZE];
    client.load(branch_offset(sealed.branch_slot).unwrap(), &mut bytes);
    let (generation, epoch) = (sealed.generation, sealed.ownership.epoch());
    StoredBranch::decode(
        &bytes,
        sealed_directory(client),
        generation,
        epoch,
        sealed.fold,
    )
}

/// The one directory of which something is sealed.
fn sealed_directory(client: &Client) -> InodeNumber {
    let mut numbers = 1..client.welcome.geometry.inode_count;
    let sealed = numbers.find(|&number| client.header(number).sealed() != 0);
    sealed.expect("something is sealed")
}

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

/// A small file system of its own, so that there is no room where a test wants that.
struct Disk {
    directory: PathBuf,
}

impl Disk {
    fn mount(directory: &Path, size: u64) -> Disk {
        let made = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(directory)
            .status();
        assert!(made.unwrap().success(), "mount: this test wants root");
        Disk {
            directory: directory.into(),
        }
    }

    /// Takes what room there is.
    fn fill(&self) {
        let filler = std::fs::File::create(self.directory.join("filler")).unwrap();
        let mut size = 0;
        for step in [1 << 20, 64 << 10, 4096] {
            while rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), size, step)
                .is_ok()
            {
                size += step;
            }
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.directory.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("-l")
            .arg(&self.directory)
            .status();
    }
}

/// A session with a sealed delta for which there is no room.
struct NoRoom {
    controller: RunningController,
    client: Client,
    /// Another session, which has come while there was room.
    other: Client,
    d: InodeNumber,
    e: InodeNumber,
    numbers: Vec<InodeNumber>,
    /// Names in `d`, sealed ones included.
    names: usize,
    disk: Disk,
    pool: TestPool,
}

impl NoRoom {
    fn new() -> NoRoom {
        let directory = tempfile::Builder::new()
            .prefix("arck-no-room-")
            .tempdir_in("/dev/shm")
            .unwrap();
        let disk = Disk::mount(directory.path(), 160 << 20);
        let made = arck_controller::MkfsOptions {
            size: 64 << 20,
            mode: 0o755,
            force: false,
        };
        arck_controller::mkfs(&directory.path().join("pool"), &made, &mut |_, _| {}).unwrap();
        let pool = TestPool { directory };
        let seals = Arc::new(AtomicU32::new(0));
        let count = seals.clone();
        let controller = pool.serve_with(Options {
            lease: Duration::from_secs(3),
            crash_hook: Some(Arc::new(move |name| {
                count.fetch_add(u32::from(name == "sealed"), Ordering::SeqCst);
            })),
            ..options()
        });
        let mut client = Client::connect(&pool.path());
        let other = Client::connect(&pool.path());
        client.acquire(&[ROOT]);
        let [d, e] = [b"d", b"e"].map(|name| client.create(ROOT, &name[..], FileKind::Directory));
        client.commit_all(false);
        let numbers: Vec<_> = (0..50).map(|_| client.number()).collect();
        let file = client.create(d, b"file", FileKind::File);
        client.commit_all(false);
        client.done(&Request::GrowArena {
            branch_pages: 1024,
            delta_pages: 4096,
        });
        let mut names = 1;
        for round in 0.. {
            assert!(round < 200, "there was room for everything");
            if round == 1 {
                // The journal has grown by now.
                disk.fill();
            }
            client.done(&Request::MoreCredits {
                pages: 60,
                pressing: true,
            });
            for name in 0..300 {
                let name = format!("{round} {name} {}", "x".repeat(230));
                client.link(file, FileKind::File, d, name.as_bytes());
                names += 1;
            }
            client.overlay.clear();
            let before = seals.load(Ordering::SeqCst);
            let answer = client.ask(&commit(&[d]));
            assert_eq!(seals.load(Ordering::SeqCst), before + 1, "{answer:?}");
            if answer != Response::Done {
                assert_eq!(answer, Response::Error(libc::ENOSPC));
                break;
            }
        }
        NoRoom {
            controller,
            client,
            other,
            d,
            e,
            numbers,
            names,
            disk,
            pool,
        }
    }

    fn is_sealed(&self) -> bool {
        self.client.header(self.d).sealed() != 0
    }

    fn end(self) -> Tree {
        drop((self.client, self.other));
        self.controller.stop().unwrap();
        let tree = check(&self.pool.path());
        drop(self.disk);
        tree
    }
}

#[test]
fn what_is_sealed_and_has_no_room_waits_for_it_and_its_owner_does_not() {
    let mut scene = NoRoom::new();
    let (d, e) = (scene.d, scene.e);
    assert!(scene.is_sealed());
    let sealed = scene.client.header(d).copy();
    let goes_on = |scene: &mut NoRoom, name: &[u8]| {
        assert!(!scene.client.header(d).ownership().is_marked(), "{name:?}");
        let number = scene.numbers.pop().unwrap();
        scene.client.create_as(d, name, FileKind::File, number);
        scene.names += 1;
    };
    goes_on(&mut scene, b"beside");
    let number = scene.numbers.pop().unwrap();
    scene
        .client
        .create_as(e, b"elsewhere", FileKind::File, number);
    // What is sealed comes first: nothing else is folded, and nothing is set aside.
    let answer = scene.client.ask(&commit(&[e]));
    assert_eq!(answer, Response::Error(libc::ENOSPC));
    goes_on(&mut scene, b"behind another attempt");
    let other = &scene.other;
    for wanted in [d, e] {
        let acquire = Request::Acquire {
            inodes: arck_protocol::InodeList::new(&[wanted]).unwrap(),
        };
        assert_eq!(other.errno(&acquire), rustix::io::Errno::NOSPC, "{wanted}");
        other.recall(&[wanted]);
    }
    assert!(other.names(e).is_empty());
    assert_eq!(set_aside(&scene.pool.path()), 0);
    let now = scene.client.header(d).copy();
    assert_eq!(
        now,
        HeaderCopy {
            ownership: now.ownership,
            ..sealed
        }
    );
    goes_on(&mut scene, b"behind others");
    scene.disk.make_room();
    let client = &scene.client;
    wait_until("room", || client.header(d).sealed() == 0);
    assert_eq!(client.header(d).fold(), sealed.fold);
    let other = &scene.other;
    other.acquire(&[d, e]);
    assert_eq!(other.names(d).len(), scene.names);
    assert_eq!(other.names(e).len(), 1);
    let names = scene.names;
    assert_eq!(scene.end().paths.len(), names + 3);
}

/// # Regression
/// Who looked within the owner's lease was shown what there was before, since nothing was active.
#[test]
fn who_looks_has_what_is_sealed_folded_as_soon_as_there_is_room() {
    let scene = NoRoom::new();
    let names = scene.other.names(scene.d).len();
    scene.other.recall(&[scene.d]);
    assert_eq!(scene.other.names(scene.d).len(), names, "there is no room");
    scene.disk.make_room();
    scene.other.recall(&[scene.d]);
    assert_eq!(scene.other.names(scene.d).len(), scene.names);
    assert!(!scene.is_sealed());
    scene.end();
}

/// Whoever takes leave, or is cut off, with something sealed: it is folded with what came on top of it.
#[test]
fn what_is_sealed_is_folded_when_its_session_ends() {
    for (says_goodbye, goes_on) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut scene = NoRoom::new();
        if goes_on {
            let number = scene.numbers.pop().unwrap();
            scene
                .client
                .create_as(scene.d, b"beside", FileKind::File, number);
            scene.names += 1;
        }
        scene.disk.make_room();
        let NoRoom { client, other, .. } = scene;
        match says_goodbye {
            true => client.goodbye(),
            false => drop(client),
        }
        wait_until("the end of the session", || {
            other.header(scene.d).ownership().session() == 0
        });
        assert_eq!(other.names(scene.d).len(), scene.names);
        assert_eq!(set_aside(&scene.pool.path()), 0);
        drop(other);
        scene.controller.stop().unwrap();
        check(&scene.pool.path());
    }
}

/// # Regression
/// At the end of a session, what had room was taken away as well, since what is sealed came first and had none.
#[test]
fn what_has_no_room_when_its_session_ends_takes_nothing_else_along() {
    let mut scene = NoRoom::new();
    let (d, e) = (scene.d, scene.e);
    let number = scene.numbers.pop().unwrap();
    scene
        .client
        .create_as(e, b"elsewhere", FileKind::File, number);
    let before = scene.other.names(d);
    drop(scene.client);
    let other = &scene.other;
    wait_until("the end of the session", || {
        [d, e]
            .iter()
            .all(|&number| other.header(number).ownership().session() == 0)
    });
    assert_eq!(other.header(d).sealed(), 0);
    assert_eq!(other.names(d), before);
    assert_eq!(other.names(e).len(), 1);
    scene.disk.make_room();
    drop(scene.other);
    scene.controller.stop().unwrap();
    check(&scene.pool.path());
}

/// What is overwritten while it waits for room waits no longer; all else is folded.
#[test]
fn what_is_overwritten_while_it_waits_for_room_is_taken_away() {
    let mut scene = NoRoom::new();
    let (d, e) = (scene.d, scene.e);
    let number = scene.numbers.pop().unwrap();
    scene
        .client
        .create_as(e, b"elsewhere", FileKind::File, number);
    let sealed = scene.client.header(d).copy();
    let before = scene.other.names(d);
    edit_sealed_branch(&scene.client, &sealed.of_sealed().unwrap(), |branch| {
        branch.tails[0] = u32::MAX;
    });
    scene.client.commit(&[e], false);
    let now = scene.client.header(d);
    assert_eq!((now.sealed(), now.ownership().session()), (0, 0));
    assert_eq!(now.evicted(), sealed.sealed);
    assert_eq!(scene.other.names(d), before);
    assert_eq!(scene.other.names(e).len(), 1);
    scene.disk.make_room();
    scene.end();
}
