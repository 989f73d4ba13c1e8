//! Tests of the whole path: arena, copy, closure, verification, application.

mod mutations;
mod operations;
mod permissions;
mod properties;
mod rules;

use crate::Credentials;
use crate::testing::{MemoryState, Owner};
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE, PagePtr, ROOT_INODE};

pub(crate) const SESSION: u32 = 7;
pub(crate) const OTHER_SESSION: u32 = 8;
pub(crate) const USER: u32 = 1000;
pub(crate) const OTHER_USER: u32 = 2000;
/// Directories, alive and owned.
pub(crate) const HOME: InodeNumber = 10;
pub(crate) const WORK: InodeNumber = 11;
pub(crate) const EMPTY: InodeNumber = 12;
/// Files in `HOME`, alive and owned: `old` with two pages and `second`.
pub(crate) const OLD: InodeNumber = 20;
pub(crate) const SECOND: InodeNumber = 21;
/// A file in `HOME` that is shared, `shared`.
pub(crate) const SHARED: InodeNumber = 22;
/// First of the numbers that are granted.
pub(crate) const NEW: InodeNumber = 40;
pub(crate) const GRANTED: u32 = 40;
/// Data pages of the session: from here on, 1000 of them.
pub(crate) const PAGES: u64 = 5000;

pub(crate) fn user() -> Credentials {
    Credentials {
        session: SESSION,
        uid: USER,
        gid: USER,
        groups: vec![USER + 1],
    }
}

/// A name in a directory.
pub(crate) fn at(directory: InodeNumber, name: &[u8]) -> (InodeNumber, &[u8]) {
    (directory, name)
}

/// ```text
/// / home/ { empty/, old, second, shared }   work/
/// ```
pub(crate) fn world() -> (MemoryState, Owner) {
    let owner = (USER, USER);
    let mut state = MemoryState::new(0, 0, 0o755);
    state.add(ROOT_INODE, b"home", HOME, FileKind::Directory, 0o755, owner);
    state.add(ROOT_INODE, b"work", WORK, FileKind::Directory, 0o755, owner);
    state.add(HOME, b"empty", EMPTY, FileKind::Directory, 0o755, owner);
    state.add(HOME, b"old", OLD, FileKind::File, 0o644, owner);
    state.add(HOME, b"second", SECOND, FileKind::File, 0o644, owner);
    state.add(HOME, b"shared", SHARED, FileKind::File, 0o644, owner);
    state.segments.push((PAGES..PAGES + 1000, SESSION));
    state
        .segments
        .push((PAGES + 1000..PAGES + 2000, OTHER_SESSION));
    state.change(OLD, |inode| inode.size = 2 * PAGE_SIZE);
    state.set_data(OLD, 0, PagePtr(PAGES));
    state.set_data(OLD, 1, PagePtr(PAGES + 1));
    for number in [HOME, WORK, EMPTY, OLD, SECOND] {
        state.set_owner(number, SESSION);
    }
    for number in NEW..NEW + GRANTED {
        state.grant(number, SESSION);
    }
    assert_eq!(state.check(), Ok(()));
    (state, Owner::new(user()))
}
