//! A pool of a few segments and its controller's state, for tests that ask it directly, as whoever
//! they like.
//!
//! # Invariant
//! * Nothing here is in a controller that is built to be used.

use crate::core::Core;
use crate::options::Options;
use crate::pool::mkfs::{MkfsOptions, mkfs};
use crate::state::change::Change;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::inode::FileKind;
use arck_core_state::{IndexRoot, Inode, InodeNumber, PagePtr};
use arck_protocol::socket::Caller;
use arck_verifier::Credentials;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A new inode in a change, with a number and generation of its own; both.
pub fn new_inode(change: &mut Change<'_>, kind: HeaderKind, inode: Inode) -> (InodeNumber, u32) {
    let number = change.take_number().unwrap();
    change.state.pool.allocate_headers(number).unwrap();
    let generation = change.header(number).unwrap().generation.max(1);
    let inode = Inode {
        number,
        generation,
        ..inode
    };
    let address = change.place_inode(inode).unwrap();
    let fold = change.state.numbers.fold();
    let header = change.header(number).unwrap();
    header.inode = address;
    header.kind = kind;
    header.file_kind = inode.kind();
    header.generation = generation;
    header.fold = fold;
    (number, generation)
}

/// A file of a user that everybody may read, of so many names, bytes and pages.
pub fn file(uid: u32, links: u32, root: IndexRoot, size: u64, pages: u64) -> Inode {
    Inode {
        number: 0,
        generation: 0,
        mode: FileKind::File.mode_bits() | 0o644,
        links,
        uid,
        gid: uid,
        size,
        root,
        accessed: 0,
        modified: 0,
        changed: 0,
        created: 0,
        pages,
        parent: 0,
        entries: 0,
        mediation: 0,
        reserved0: 0,
        attributes: PagePtr::NULL,
        reserved: [0; 3],
    }
}

/// Gone when dropped.
pub struct TestCore {
    pub core: Core,
    folder: tempfile::TempDir,
}

impl TestCore {
    /// A pool of 16 MiB that is served to all users.
    pub fn new() -> TestCore {
        TestCore::of_size(16 << 20)
    }

    /// The same of so many bytes.
    pub fn of_size(size: u64) -> TestCore {
        TestCore::made(size, |_, _| {})
    }

    /// The same of 16 MiB; `hook` is called at the named points of every commit, with the pool's folder.
    pub fn with_points(hook: impl Fn(&Path, &'static str) + Send + Sync + 'static) -> TestCore {
        TestCore::made(16 << 20, hook)
    }

    fn made(size: u64, hook: impl Fn(&Path, &'static str) + Send + Sync + 'static) -> TestCore {
        let folder = tempfile::Builder::new()
            .prefix("arck-core-")
            .tempdir_in("/dev/shm")
            .unwrap();
        let pool = folder.path().join("pool");
        let made = MkfsOptions {
            size,
            mode: 0o1777,
            force: false,
        };
        mkfs(&pool, &made, &mut |_, _| {}).unwrap();
        let at = pool.clone();
        let options = Options {
            shared: true,
            crash_hook: Some(Arc::new(move |point| hook(&at, point))),
            ..Options::default()
        };
        TestCore {
            core: Core::open(&pool, options).unwrap(),
            folder,
        }
    }

    /// The same pool under another controller, as if this one had been killed.
    pub fn reopened(self) -> TestCore {
        let TestCore { core, folder } = self;
        let options = core.sessions.options.clone();
        drop(core);
        let core = Core::open(&folder.path().join("pool"), options).unwrap();
        TestCore { core, folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("pool")
    }

    /// A session of a user, the first of whose groups is his own.
    pub fn session(&mut self, uid: u32, groups: &[u32]) -> SessionNumber {
        let credentials = Credentials {
            session: 0,
            uid,
            gid: groups[0],
            groups: groups[1..].to_vec(),
        };
        let (number, _) = self
            .core
            .open_session(credentials, &Caller::default())
            .unwrap();
        number
    }
}
