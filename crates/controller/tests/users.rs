//! Several users: what a session must not be sent, and what it must not be able to do to the
//! controller by changes of rights.

mod common;

use arck_controller::{Controller, MkfsOptions, Options, RunningController, mkfs};
use arck_core_state::FileKind;
use common::check::check;
use common::{Client, ROOT};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// A pool that is served to all users, gone when dropped.
struct SharedPool {
    directory: tempfile::TempDir,
}

impl SharedPool {
    fn new(size: u64) -> SharedPool {
        let directory = tempfile::Builder::new()
            .prefix("arck-controller-")
            .tempdir_in("/dev/shm")
            .unwrap();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(directory.path(), everybody).unwrap();
        let options = MkfsOptions {
            size,
            mode: 0o1777,
            force: false,
        };
        mkfs(&directory.path().join("pool"), &options, &mut |_, _| {}).unwrap();
        SharedPool { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("pool")
    }

    fn serve(&self) -> RunningController {
        let options = Options {
            shared: true,
            ..Options::default()
        };
        Controller::open(&self.path(), options)
            .unwrap()
            .spawn()
            .unwrap()
    }
}

/// A chain of directories, the mode of each of which its owner has changed: when the first is
/// folded, all below move, each with a fold that changes a mode in turn. What the controller has
/// to do for that may not lie on its stack, and not be done again for each.
#[test]
fn directories_that_are_closed_within_each_other() {
    const DEPTH: usize = 4000;
    let pool = SharedPool::new(128 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let mut chain = Vec::new();
    let mut at = ROOT;
    for _ in 0..DEPTH {
        at = client.create(at, b"d", FileKind::Directory);
        chain.push(at);
    }
    client.commit_all(false);
    let place = |number| client.header(number).inode.load(Ordering::SeqCst);
    let places: Vec<u64> = chain.iter().map(|&number| place(number)).collect();
    for &number in &chain {
        client.edit_branch(number, |branch| branch.mode = 0o700);
    }
    // One is folded: all below it have got another place, and those that moved were folded.
    client.done(&Client::commit_request(&chain[..1], false));
    for (&number, &before) in chain.iter().zip(&places).skip(1) {
        assert_ne!(place(number), before);
        assert_eq!(client.inode(number).mode & 0o777, 0o700);
    }
    client.commit_all(true);
    client.goodbye();
    controller.stop().unwrap();
    check(&pool.path());
}
