//! What becomes of sealed deltas when there is no room to apply them.

use crate::common::check::{Tree, check};
use crate::common::{Client, ROOT, TestPool};
use crate::scene::{commit, edit_sealed_branch, options, set_aside, wait_until};
use arck_controller::{Options, RunningController};
use arck_core_state::{FileKind, HeaderCopy, InodeNumber};
use arck_protocol::{Request, Response};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

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

    /// Makes a file, by a number that was granted while there was room.
    fn create(&mut self, directory: InodeNumber, name: &[u8]) {
        let number = self.numbers.pop().unwrap();
        self.client
            .create_as(directory, name, FileKind::File, number);
        self.names += usize::from(directory == self.d);
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
        scene.create(d, name);
    };
    goes_on(&mut scene, b"beside");
    scene.create(e, b"elsewhere");
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
            scene.create(scene.d, b"beside");
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
    scene.create(e, b"elsewhere");
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
    scene.create(e, b"elsewhere");
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
