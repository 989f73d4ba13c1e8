//! The scenes: a verified state with something of everything, and in each an honest delta.
//!
//! # Invariant
//! Each scene's delta is as an honest LibFS makes it: it passes, and what it leaves is a file
//! system.

use crate::Credentials;
use crate::testing::{MemoryState, Owner};
use arck_core_state::branch::{PARTNERS, StoredBranch};
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE, PagePtr, ROOT_INODE};

pub const SESSION: u32 = 7;
pub const OTHER_SESSION: u32 = 8;
pub const USER: u32 = 1000;
pub const OTHER_USER: u32 = 2000;
/// A supplementary group of the session, and one that it is not in.
pub const OWN_GROUP: u32 = USER + 1;
pub const OTHER_GROUP: u32 = 500;

/// Directories of the session's user, owned: `home`, `work`, in `home` the empty `empty` and
/// `full` with the file `inner`.
pub const HOME: InodeNumber = 10;
pub const WORK: InodeNumber = 11;
pub const EMPTY: InodeNumber = 12;
pub const FULL: InodeNumber = 13;
/// Root's, with the sticky bit; with files of the user (`mine`) and of another (`other`). Owned.
pub const STICKY: InodeNumber = 14;
/// With the set-group-id bit, of a group that the session is not in, writable by all. Owned.
pub const HANDING: InodeNumber = 15;
/// That the session owns and its user may not write, with the file `guarded`.
pub const LOCKED: InodeNumber = 16;
/// Of the user, owned by another session, with the file `far`.
pub const ELSEWHERE: InodeNumber = 17;
/// `lent`, an empty directory in `home` that another session owns.
pub const LENT: InodeNumber = 18;
/// Files in `home`, the user's, owned: `old` of two pages, `second` of none.
pub const OLD: InodeNumber = 20;
pub const SECOND: InodeNumber = 21;
/// `shared`: owned by nobody. `theirs`: by another session.
pub const SHARED: InodeNumber = 22;
pub const THEIRS: InodeNumber = 23;
/// `foreign`, of another user, not writable; and `marked`, writable, with set-id bits. Owned.
pub const FOREIGN: InodeNumber = 24;
pub const MARKED: InodeNumber = 25;
/// The symbolic link `link`, the file `tagged` with extended attributes. Owned.
pub const LINK: InodeNumber = 26;
pub const TAGGED: InodeNumber = 27;
pub const INNER: InodeNumber = 30;
pub const MINE: InodeNumber = 31;
pub const OTHER: InodeNumber = 32;
pub const GUARDED: InodeNumber = 33;
pub const FAR: InodeNumber = 34;
/// Files without a name: one that the session still owns, one that nobody does.
pub const ORPHAN: InodeNumber = 35;
pub const FOREIGN_ORPHAN: InodeNumber = 37;
pub const FREE: InodeNumber = 36;
/// Granted to the session: from here on, 24 of them; and one to another session.
pub const NEW: InodeNumber = 40;
pub const GRANTED: u32 = 24;
pub const GRANTED_TO_OTHER: InodeNumber = 70;

/// Data pages of the session: from here on, 1000; and behind them as many of another.
pub const PAGES: u64 = 5000;
pub const PAGES_OF_OTHER: u64 = PAGES + 1000;
/// Page of the extended attributes of `tagged`.
pub const ATTRIBUTES: u64 = PAGES + 20;

pub fn user() -> Credentials {
    Credentials {
        session: SESSION,
        uid: USER,
        gid: USER,
        groups: vec![OWN_GROUP],
    }
}

/// The verified state of all scenes.
pub fn world() -> MemoryState {
    use FileKind::{Directory, File, Link};
    let mut state = MemoryState::new(0, 0, 0o755);
    let (us, other, root) = ((USER, USER), (OTHER_USER, OTHER_USER), (0, 0));
    let handing = (OTHER_USER, OTHER_GROUP);
    for (parent, name, number, kind, mode, owner) in [
        (ROOT_INODE, &b"home"[..], HOME, Directory, 0o755, us),
        (ROOT_INODE, b"work", WORK, Directory, 0o755, us),
        (HOME, b"empty", EMPTY, Directory, 0o755, us),
        (HOME, b"full", FULL, Directory, 0o755, us),
        (ROOT_INODE, b"sticky", STICKY, Directory, 0o1777, root),
        (ROOT_INODE, b"handing", HANDING, Directory, 0o2777, handing),
        (ROOT_INODE, b"locked", LOCKED, Directory, 0o755, root),
        (ROOT_INODE, b"elsewhere", ELSEWHERE, Directory, 0o755, us),
        (HOME, b"lent", LENT, Directory, 0o755, us),
        (HOME, b"old", OLD, File, 0o644, us),
        (HOME, b"second", SECOND, File, 0o644, us),
        (HOME, b"shared", SHARED, File, 0o644, us),
        (HOME, b"theirs", THEIRS, File, 0o644, us),
        (HOME, b"foreign", FOREIGN, File, 0o644, other),
        (HOME, b"marked", MARKED, File, 0o6777, other),
        (HOME, b"link", LINK, Link, 0o777, us),
        (HOME, b"tagged", TAGGED, File, 0o644, us),
        (FULL, b"inner", INNER, File, 0o644, us),
        (STICKY, b"mine", MINE, File, 0o644, us),
        (STICKY, b"other", OTHER, File, 0o666, other),
        (LOCKED, b"guarded", GUARDED, File, 0o644, root),
        (ELSEWHERE, b"far", FAR, File, 0o644, us),
        (HOME, b"nameless", ORPHAN, File, 0o644, us),
        (HOME, b"gone", FREE, File, 0o644, us),
        (HOME, b"left", FOREIGN_ORPHAN, File, 0o644, us),
    ] {
        state.add(parent, name, number, kind, mode, owner);
    }
    state.add_link(WORK, b"twin", SECOND);
    state.segments.push((PAGES..PAGES + 1000, SESSION));
    let of_other = PAGES_OF_OTHER..PAGES_OF_OTHER + 1000;
    state.segments.push((of_other, OTHER_SESSION));
    for (number, pages, first) in [
        (OLD, 2, PAGES),
        (LINK, 1, PAGES + 2),
        (THEIRS, 1, PAGES_OF_OTHER),
        (MARKED, 1, PAGES_OF_OTHER + 1),
        (ORPHAN, 1, PAGES + 3),
    ] {
        for page in 0..pages {
            state.set_data(number, page, PagePtr(first + page));
        }
        state.change(number, |inode| inode.size = pages * PAGE_SIZE - 10);
    }
    state.change(LINK, |inode| inode.size = 5);
    state.set_attributes(TAGGED, PagePtr(ATTRIBUTES));
    state.orphan(ORPHAN);
    state.orphan(FOREIGN_ORPHAN);
    state.orphan(FREE);
    state.inodes.remove(&FREE);
    state.change_header(FREE, |header| header.kind = HeaderKind::Free);
    for number in [
        HOME, WORK, EMPTY, FULL, STICKY, HANDING, LOCKED, OLD, SECOND, FOREIGN, MARKED, LINK,
        TAGGED, INNER, MINE, OTHER, GUARDED, ORPHAN,
    ] {
        state.set_owner(number, SESSION);
    }
    for number in [ELSEWHERE, LENT, THEIRS, FAR] {
        state.set_owner(number, OTHER_SESSION);
    }
    for number in NEW..NEW + GRANTED {
        state.grant(number, SESSION);
    }
    state.grant(GRANTED_TO_OTHER, OTHER_SESSION);
    state
}

/// An honest delta.
#[derive(Clone, Debug)]
pub struct Scene {
    pub name: &'static str,
    pub state: MemoryState,
    pub owner: Owner,
    /// The inodes whose folds are asked for, each on its own.
    pub first: Vec<InodeNumber>,
    /// Pages that a fold may copy.
    pub budget: usize,
}

/// What an operation is done with.
struct Hand {
    state: MemoryState,
    owner: Owner,
}

impl Hand {
    fn create(&mut self, directory: InodeNumber, name: &[u8], number: InodeNumber, kind: FileKind) {
        let mode = match kind {
            FileKind::Directory => 0o755,
            _ => 0o644,
        };
        let created = self
            .owner
            .create(&self.state, directory, name, number, kind, mode);
        created.expect("a new name");
    }

    fn remove(&mut self, directory: InodeNumber, name: &[u8]) {
        let removed = self.owner.remove(&self.state, directory, name);
        removed.expect("a name");
    }

    fn rename(&mut self, from: (InodeNumber, &[u8]), to: (InodeNumber, &[u8])) {
        let renamed = self.owner.rename(&self.state, from, to, 0);
        renamed.expect("a name");
    }

    fn link(&mut self, from: (InodeNumber, &[u8]), to: (InodeNumber, &[u8])) {
        let linked = self.owner.link(&self.state, from, to);
        linked.expect("a name");
    }

    fn write(&mut self, number: InodeNumber, page: u64, pointer: u64) {
        self.owner
            .write(&self.state, number, page, PagePtr(PAGES + pointer));
    }

    fn truncate(&mut self, number: InodeNumber, size: u64, reach: u64) {
        self.owner.truncate(&self.state, number, size, reach);
    }

    fn branch(&mut self, number: InodeNumber, edit: impl FnOnce(&mut StoredBranch)) {
        let header = self.state.headers[&number];
        self.owner.arena.edit_branch(number, &header, edit);
    }

    fn times(&mut self, number: InodeNumber) {
        self.branch(number, |branch| {
            (branch.modified, branch.changed) = (7_000, 7_000);
        });
    }
}

type Operation = (&'static str, &'static [InodeNumber], fn(&mut Hand));

/// Every operation: its name, the inodes whose folds are asked for, and what a LibFS does.
const OPERATIONS: &[Operation] = &[
    ("create", &[HOME, NEW], |h| {
        h.create(HOME, b"new", NEW, FileKind::File);
        h.times(HOME);
    }),
    ("create with a group handed down", &[HANDING], |h| {
        h.create(HANDING, b"new", NEW, FileKind::File);
    }),
    ("create and write", &[NEW], |h| {
        h.create(HOME, b"new", NEW, FileKind::File);
        h.write(NEW, 0, 50);
    }),
    ("pipe", &[HOME, NEW], |h| {
        h.create(HOME, b"pipe", NEW, FileKind::Pipe);
        h.times(NEW);
    }),
    ("device", &[HOME, NEW], |h| {
        h.create(HOME, b"device", NEW, FileKind::CharacterDevice);
        h.branch(NEW, |branch| branch.size = 0);
        h.times(NEW);
    }),
    ("mkdir", &[HOME, NEW + 1], |h| {
        h.create(HOME, b"d", NEW, FileKind::Directory);
        h.create(NEW, b"e", NEW + 1, FileKind::Directory);
        h.create(NEW + 1, b"f", NEW + 2, FileKind::File);
    }),
    ("mkdir and create", &[HOME, NEW], |h| {
        h.create(HOME, b"d", NEW, FileKind::Directory);
        h.create(HOME, b"f", NEW + 1, FileKind::File);
        h.create(NEW, b"g", NEW + 2, FileKind::File);
    }),
    ("mkdir and rmdir", &[HOME], |h| {
        h.create(HOME, b"d", NEW, FileKind::Directory);
        h.create(NEW, b"f", NEW + 1, FileKind::File);
        h.rename((NEW, b"f"), (HOME, b"f"));
        h.remove(HOME, b"d");
    }),
    ("rename within", &[HOME], |h| {
        h.rename((HOME, b"old"), (HOME, b"renamed"));
        h.times(HOME);
    }),
    ("rename over", &[HOME], |h| {
        h.rename((HOME, b"old"), (HOME, b"second"));
    }),
    ("rename across", &[HOME, WORK], |h| {
        h.rename((HOME, b"old"), (WORK, b"old"));
    }),
    ("rename across and over", &[HOME, WORK], |h| {
        h.rename((HOME, b"old"), (WORK, b"twin"));
    }),
    ("rename of what is new, over what is new", &[HOME], |h| {
        h.create(HOME, b"a", NEW, FileKind::File);
        h.create(HOME, b"b", NEW + 1, FileKind::File);
        h.rename((HOME, b"a"), (HOME, b"b"));
    }),
    ("rename of what is new, across", &[HOME, NEW], |h| {
        h.create(HOME, b"a", NEW, FileKind::File);
        h.rename((HOME, b"a"), (WORK, b"b"));
    }),
    ("rename of a directory", &[HOME], |h| {
        h.rename((HOME, b"full"), (HOME, b"moved"));
    }),
    ("rename over a directory", &[HOME], |h| {
        h.rename((HOME, b"full"), (HOME, b"empty"));
    }),
    ("unlink", &[HOME, OLD], |h| {
        h.remove(HOME, b"old");
        h.remove(HOME, b"second");
        h.times(OLD);
    }),
    ("unlink in a sticky directory", &[STICKY], |h| {
        h.remove(STICKY, b"mine");
    }),
    ("rmdir", &[HOME], |h| {
        h.remove(HOME, b"empty");
        h.times(HOME);
    }),
    ("rmdir of what was full", &[HOME], |h| {
        h.remove(FULL, b"inner");
        h.remove(HOME, b"full");
    }),
    ("link", &[HOME, OLD], |h| {
        h.link((HOME, b"old"), (WORK, b"l"));
        h.link((HOME, b"old"), (HOME, b"l"));
    }),
    ("link to a foreign file", &[HOME, FOREIGN], |h| {
        h.link((HOME, b"foreign"), (HOME, b"l"));
        h.branch(FOREIGN, |branch| branch.changed = 7_000);
    }),
    ("symbolic link", &[HOME, NEW], |h| {
        h.create(HOME, b"s", NEW, FileKind::Link);
        h.write(NEW, 0, 50);
        h.branch(NEW, |branch| branch.size = 9);
    }),
    ("write", &[OLD], |h| {
        h.write(OLD, 0, 50);
        h.write(OLD, 3, 51);
        h.times(OLD);
    }),
    ("write of the first page", &[SECOND], |h| {
        h.write(SECOND, 0, 50)
    }),
    ("write far out", &[OLD], |h| {
        h.write(OLD, 1, 50);
        h.write(OLD, 600, 51);
    }),
    ("write of two files", &[OLD], |h| {
        h.write(OLD, 1, 50);
        h.write(SECOND, 1, 51);
        h.branch(OLD, |branch| branch.partners[PARTNERS - 1] = SECOND);
    }),
    ("write of another's file with set-id bits", &[MARKED], |h| {
        h.write(MARKED, 1, 50);
    }),
    ("write without a name", &[ORPHAN], |h| {
        h.write(ORPHAN, 1, 50)
    }),
    ("truncate", &[OLD], |h| {
        h.truncate(OLD, 100, 3);
        h.times(OLD);
    }),
    ("truncate and write", &[OLD], |h| {
        h.truncate(OLD, 0, 2);
        h.write(OLD, 1, 50);
    }),
    ("setxattr", &[OLD], |h| {
        h.owner
            .set_extended(&h.state, OLD, Some(PagePtr(PAGES + 50)));
    }),
    ("setxattr of a directory and a file", &[HOME], |h| {
        h.owner
            .set_extended(&h.state, HOME, Some(PagePtr(PAGES + 50)));
        h.write(OLD, 0, 51);
        h.branch(HOME, |branch| branch.partners[0] = OLD);
    }),
    ("removexattr", &[TAGGED], |h| {
        h.owner.set_extended(&h.state, TAGGED, None);
    }),
    ("setattr", &[OLD], |h| {
        h.branch(OLD, |branch| {
            branch.mode = 0o755;
            (branch.modified, branch.accessed) = (1, 2);
            branch.changed = 3;
        });
    }),
    ("setattr of directories", &[HANDING, HOME], |h| {
        h.branch(HANDING, |branch| branch.changed = 3);
        h.branch(HOME, |branch| branch.mode = 0o2755);
    }),
    ("creates on several pages", &[HOME], |h| {
        h.owner.tails = 1;
        for file in 0..14u8 {
            let name = [b'a' + file; 255];
            h.create(HOME, &name, NEW + u32::from(file), FileKind::File);
        }
    }),
];

/// All scenes.
pub fn scenes() -> Vec<Scene> {
    let state = world();
    OPERATIONS
        .iter()
        .map(|&(name, first, operation)| {
            let mut hand = Hand {
                state: state.clone(),
                owner: Owner::new(user()),
            };
            operation(&mut hand);
            let Hand { state, mut owner } = hand;
            // As the controller allocates: a page more than is used.
            let spare = owner.arena.allocate();
            owner.arena.end = u64::from(spare + 1) * PAGE_SIZE;
            Scene {
                name,
                state,
                owner,
                first: first.to_vec(),
                budget: usize::MAX,
            }
        })
        .collect()
}
