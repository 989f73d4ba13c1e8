//! A pool whose controller stops behind its first seal, and a directory with one change of each kind to be sealed.

use crate::common::check::{Tree, check};
use crate::common::{Client, PATIENCE, ROOT, TestPool};
use arck_controller::{Options, RunningController};
use arck_core_state::HeaderCopy;
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::{BRANCH_SIZE, StoredBranch};
use arck_core_state::directory::Dentry;
use arck_core_state::{FileKind, InodeNumber};
use arck_protocol::{Request, ring};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// So long that no test sees its end.
pub const FOR_EVER: Duration = Duration::from_secs(100_000);

pub fn options() -> Options {
    Options {
        patience: Duration::from_millis(20),
        take_up: Duration::from_millis(50),
        grace: FOR_EVER,
        owned_kept: usize::MAX,
        seal_pages: 1,
        ..Options::default()
    }
}

/// Stops the controller behind the first seal after it was armed, and has it die at a point, if one is given.
pub struct Gate {
    pub armed: Arc<AtomicBool>,
    pub seals: Arc<AtomicU32>,
    pub sealed: Receiver<()>,
    pub goes_on: Sender<()>,
}

impl Gate {
    /// It dies when it comes to a point for the time after so many.
    pub fn new(death: Option<(&'static str, u32)>) -> (Gate, Options) {
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
pub struct Scene {
    pub pool: TestPool,
    pub controller: Option<RunningController>,
}

impl Scene {
    pub fn new(options: Options) -> Scene {
        let pool = TestPool::new(32 << 20);
        let controller = Some(pool.serve_with(options));
        Scene { pool, controller }
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.pool.path())
    }

    /// Kills the controller, if it has not died, and starts another.
    pub fn restart(&mut self) {
        self.controller.take().unwrap().kill();
        self.controller = Some(self.pool.serve_with(options()));
    }

    pub fn end(mut self) -> Tree {
        self.controller.take().unwrap().stop().unwrap();
        check(&self.pool.path())
    }

    /// Has a request served until it is answered, or the controller dead; whether it died.
    pub fn dies(&self, client: &Client, slot: usize) -> bool {
        let controller = self.controller.as_ref().unwrap();
        while !controller.is_finished() && !ring::is_answered(client.control(), slot) {
            std::thread::yield_now();
        }
        !ring::is_answered(client.control(), slot)
    }
}

/// A directory whose names are verified, `e` beside it, and one change of each kind, to be sealed; the directories.
pub fn begin(client: &mut Client) -> [InodeNumber; 2] {
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
pub fn go_on(client: &mut Client, d: InodeNumber, number: InodeNumber) {
    for entry in client.overlay.values_mut() {
        *entry = entry.map(|(dentry, _): (Dentry, _)| (dentry, None));
    }
    client.create_as(d, b"beside", FileKind::File, number);
    client.remove(d, b"r1");
    client.remove(d, b"v2");
}

pub const BEFORE: &[&str] = &["/d", "/d/v0", "/d/v1", "/d/v2", "/d/v3", "/e"];
pub const SEALED: &[&str] = &["/d", "/d/f", "/d/r1", "/d/v2", "/d/v3", "/e"];
pub const BOTH: &[&str] = &["/d", "/d/beside", "/d/f", "/d/v3", "/e"];

pub fn paths(tree: &Tree) -> Vec<&str> {
    tree.paths.keys().map(String::as_str).collect()
}

pub fn commit(inodes: &[InodeNumber]) -> Request {
    Client::commit_request(inodes, false)
}

/// Files in `aside`.
pub fn set_aside(pool: &Path) -> usize {
    std::fs::read_dir(pool.join("aside")).map_or(0, Iterator::count)
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn edit_sealed_branch(
    client: &Client,
    sealed: &HeaderCopy,
    edit: impl FnOnce(&mut StoredBranch),
) {
    let branch = sealed_branch(client, sealed);
    let mut branch = branch.expect("it is there");
    edit(&mut branch);
    let offset = branch_offset(sealed.branch_slot).unwrap();
    client.store(offset, branch.as_bytes());
}

pub fn sealed_branch(client: &Client, sealed: &HeaderCopy) -> Option<StoredBranch> {
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
pub fn sealed_directory(client: &Client) -> InodeNumber {
    let mut numbers = 1..client.welcome.geometry.inode_count;
    let sealed = numbers.find(|&number| client.header(number).sealed() != 0);
    sealed.expect("something is sealed")
}
