//! What I4 allows: the other side of the table of broken rules.

use super::operations::fold;
use super::*;
use crate::VerifiedState;
use arck_core_state::{DEVICE_MAX, extended};

fn with(edit: impl FnOnce(&mut MemoryState)) -> (MemoryState, Owner) {
    let (mut state, owner) = world();
    edit(&mut state);
    (state, owner)
}

fn mode_of(state: &mut MemoryState, number: InodeNumber, owner: (u32, u32), mode: u32) {
    state.change(number, |inode| {
        (inode.uid, inode.gid) = owner;
        inode.mode = inode.mode & !0o7777 | mode;
    });
}

#[test]
fn group_and_others_may_write_what_the_bits_allow() {
    for (owner, mode) in [
        ((OTHER_USER, USER), 0o070),
        ((OTHER_USER, USER + 1), 0o070),
        ((OTHER_USER, OTHER_USER), 0o007),
    ] {
        let (mut state, mut session) = with(|state| {
            mode_of(state, HOME, owner, mode);
            mode_of(state, OLD, owner, mode);
        });
        session.write(&state, OLD, 0, PagePtr(PAGES + 9));
        session
            .create(&state, HOME, b"new", NEW, FileKind::File, 0o600)
            .unwrap();
        session.remove(&state, HOME, b"second").unwrap();
        fold(&mut state, &mut session, &[HOME, OLD]);
    }
}

/// A device keeps the number with which root has made it; the character device 0 is anybody's to make.
#[test]
fn devices_are_roots_to_make() {
    for (uid, kind, number) in [
        (0, FileKind::CharacterDevice, 0x103),
        (0, FileKind::BlockDevice, DEVICE_MAX),
        (0, FileKind::BlockDevice, 0),
        (USER, FileKind::CharacterDevice, 0),
    ] {
        let (mut state, mut session) = with(|_| {});
        session.who.uid = uid;
        session
            .create(&state, HOME, b"device", NEW, kind, 0o4000)
            .unwrap();
        let header = state.headers[&NEW];
        session
            .arena
            .edit_branch(NEW, &header, |branch| branch.size = number);
        // Its name first, and then its number: as whoever folds the one may not need the other.
        fold(&mut state, &mut session, &[HOME]);
        fold(&mut state, &mut session, &[NEW]);
        let inode = state.inode(NEW).unwrap();
        assert_eq!((inode.kind(), inode.size), (Some(kind), number));
        // No write has been done that would take its set-id bits away, and none needs to be allowed.
        assert_eq!(inode.mode & 0o7777, 0o4000);
        // Whoever may have a name of it moves it, and its owner changes its mode.
        session.who.uid = USER;
        state.change(NEW, |inode| inode.uid = USER);
        session
            .rename(&state, (HOME, b"device"), (HOME, b"moved"), 0)
            .unwrap();
        let header = state.headers[&NEW];
        session
            .arena
            .edit_branch(NEW, &header, |branch| branch.mode = 0o600);
        fold(&mut state, &mut session, &[HOME, NEW]);
        let inode = state.inode(NEW).unwrap();
        assert_eq!((inode.mode & 0o7777, inode.size), (0o600, number));
    }
}

#[test]
fn owners_write_whatever_the_mode_says() {
    let (mut state, mut session) = with(|state| {
        mode_of(state, HOME, (USER, USER), 0);
        mode_of(state, OLD, (USER, USER), 0);
    });
    session.truncate(&state, OLD, 0, 0);
    session.remove(&state, HOME, b"second").unwrap();
    fold(&mut state, &mut session, &[HOME, OLD]);
}

#[test]
fn sticky_lets_owners_of_file_or_directory_remove() {
    for (directory, file) in [(OTHER_USER, USER), (USER, OTHER_USER)] {
        let (mut state, mut session) = with(|state| {
            mode_of(state, HOME, (directory, USER), 0o1777);
            mode_of(state, OLD, (file, USER), 0);
        });
        session.remove(&state, HOME, b"old").unwrap();
        fold(&mut state, &mut session, &[HOME]);
    }
}

#[test]
fn a_set_group_id_directory_hands_its_group_down() {
    const GROUP: u32 = 77;
    let (mut state, mut session) = with(|state| {
        mode_of(state, HOME, (USER, GROUP), 0o2755);
    });
    session
        .create(&state, HOME, b"f", NEW, FileKind::File, 0o644)
        .unwrap();
    session
        .create(&state, HOME, b"d", NEW + 1, FileKind::Directory, 0o2755)
        .unwrap();
    // Created in one directory, first folded in another.
    session
        .rename(&state, at(HOME, b"f"), at(WORK, b"f"), 2)
        .unwrap();
    fold(&mut state, &mut session, &[NEW, NEW + 1]);
    assert_eq!(state.inodes[&NEW].gid, GROUP);
    assert_eq!(state.inodes[&(NEW + 1)].gid, GROUP);
    assert_eq!(state.inodes[&(NEW + 1)].mode & 0o7777, 0o2755);
}

#[test]
fn who_may_write_sets_extended_attributes() {
    // Without the bit for search too: it is the directory itself that is written.
    for (owner, mode) in [(USER, 0), (OTHER_USER, 0o602), (USER, 0o1000)] {
        let (mut state, mut session) = with(|state| {
            mode_of(state, HOME, (owner, OTHER_USER), mode);
            mode_of(state, OLD, (owner, OTHER_USER), mode);
            state.set_attributes(OLD, PagePtr(PAGES + 11));
        });
        for (number, page) in [(HOME, PAGES as u32 + 9), (OLD, PAGES as u32 + 10)] {
            let header = state.headers[&number];
            session.arena.edit_branch(number, &header, |branch| {
                (branch.attributes, branch.changed) = (page, 9);
            });
        }
        fold(&mut state, &mut session, &[HOME, OLD]);
        assert_eq!(state.inodes[&HOME].attributes, PagePtr(PAGES + 9));
        assert_eq!(state.inodes[&OLD].attributes, PagePtr(PAGES + 10));
        let header = state.headers[&OLD];
        session.arena.edit_branch(OLD, &header, |branch| {
            branch.attributes = extended::NONE;
        });
        fold(&mut state, &mut session, &[OLD]);
        assert!(state.inodes[&OLD].attributes.is_null());
        assert!(!state.page_in_use(PagePtr(PAGES + 10)));
    }
}

#[test]
fn root_may_do_everything() {
    let (mut state, mut session) = with(|state| {
        mode_of(state, HOME, (OTHER_USER, OTHER_USER), 0o1000);
        mode_of(state, OLD, (OTHER_USER, OTHER_USER), 0);
    });
    session.who.uid = 0;
    session.who.gid = 0;
    session.write(&state, OLD, 0, PagePtr(PAGES + 9));
    let header = state.headers[&OLD];
    session.arena.edit_branch(OLD, &header, |branch| {
        branch.mode = 0o6755;
        branch.modified = 1;
    });
    session.remove(&state, HOME, b"second").unwrap();
    session
        .create(&state, HOME, b"new", NEW, FileKind::File, 0o6755)
        .unwrap();
    fold(&mut state, &mut session, &[HOME, OLD]);
    assert_eq!(state.inodes[&OLD].mode & 0o7777, 0o6755);
}

#[test]
fn the_change_time_follows_a_link_to_a_strangers_file() {
    let (mut state, mut session) = with(|state| {
        mode_of(state, OLD, (OTHER_USER, OTHER_USER), 0o444);
    });
    session
        .link(&state, at(HOME, b"old"), at(HOME, b"linked"))
        .unwrap();
    let header = state.headers[&OLD];
    session
        .arena
        .edit_branch(OLD, &header, |branch| branch.changed = 9);
    fold(&mut state, &mut session, &[HOME, OLD]);
    assert_eq!(state.inodes[&OLD].changed, 9);
}
