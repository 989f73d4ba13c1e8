//! Every operation of an honest owner passes and does what it says.

use super::*;
use crate::Changes;
use arck_core_state::header::HeaderKind;

/// Runs operations, folds `first`, and checks that every directory that was folded holds what
/// the program saw.
fn folded(
    first: &[InodeNumber],
    operations: impl FnOnce(&mut Owner, &MemoryState),
) -> (MemoryState, Owner, Changes<'static>) {
    let (mut state, mut owner) = world();
    operations(&mut owner, &state);
    let (_, changes) = fold(&mut state, &mut owner, first);
    (state, owner, changes)
}

pub(super) fn fold(
    state: &mut MemoryState,
    owner: &mut Owner,
    first: &[InodeNumber],
) -> (Vec<InodeNumber>, Changes<'static>) {
    let seen: Vec<_> = state
        .headers
        .keys()
        .map(|&number| (number, owner.list(state, number)))
        .collect();
    let (set, changes) = owner.fold(state, first).unwrap();
    assert_eq!(state.check(), Ok(()));
    for (number, names) in seen {
        assert_eq!(owner.list(state, number), names, "directory {number}");
    }
    let set: Vec<_> = set.iter().map(|member| member.number).collect();
    for number in &set {
        if !changes.skipped.contains(number) && state.inodes.contains_key(number) {
            let verified = |(directory, _): &&(u32, Vec<u8>)| directory == number;
            let count = state.names.keys().filter(verified).count();
            assert_eq!(count, owner.list(state, *number).len());
        }
    }
    (set, changes)
}

fn inode_at(state: &MemoryState, directory: InodeNumber, name: &[u8]) -> Option<InodeNumber> {
    let found = state.names.get(&(directory, name.to_vec()));
    found.map(|dentry| dentry.inode)
}

#[test]
fn create_bears_a_file_with_its_attributes() {
    let (state, _, changes) = folded(&[HOME], |owner, state| {
        owner
            .create(state, HOME, b"new", NEW, FileKind::File, 0o640)
            .unwrap();
    });
    assert_eq!(inode_at(&state, HOME, b"new"), Some(NEW));
    assert_eq!(changes.creations.len(), 1);
    assert_eq!(
        (changes.creations[0].names, &changes.links[..]),
        (1, &[][..])
    );
    let inode = state.inodes[&NEW];
    assert_eq!(
        (inode.uid, inode.mode & 0o7777, inode.links),
        (USER, 0o640, 1)
    );
}

#[test]
fn the_fold_of_an_uncommitted_file_takes_its_ancestors_along() {
    let (state, _, changes) = folded(&[NEW + 2], |owner, state| {
        owner
            .create(state, HOME, b"d", NEW, FileKind::Directory, 0o755)
            .unwrap();
        owner
            .create(state, NEW, b"e", NEW + 1, FileKind::Directory, 0o755)
            .unwrap();
        owner
            .create(state, NEW + 1, b"f", NEW + 2, FileKind::File, 0o644)
            .unwrap();
        owner.write(state, NEW + 2, 0, PagePtr(PAGES + 9));
    });
    assert_eq!(inode_at(&state, NEW + 1, b"f"), Some(NEW + 2));
    assert_eq!(state.inodes[&NEW].parent, HOME);
    assert_eq!(state.data[&(NEW + 2, 0)], PagePtr(PAGES + 9));
    assert_eq!(changes.creations.len(), 3);
}

#[test]
fn a_directory_is_folded_without_its_new_children() {
    let (mut state, mut owner, changes) = folded(&[HOME], |owner, state| {
        owner
            .create(state, HOME, b"d", NEW, FileKind::Directory, 0o755)
            .unwrap();
        owner
            .create(state, NEW, b"f", NEW + 1, FileKind::File, 0o644)
            .unwrap();
    });
    assert_eq!(changes.creations.len(), 1);
    assert_eq!(inode_at(&state, NEW, b"f"), None);
    fold(&mut state, &mut owner, &[NEW]);
    assert_eq!(inode_at(&state, NEW, b"f"), Some(NEW + 1));
}

#[test]
fn unlink_of_verified_and_of_new_names() {
    let (state, _, changes) = folded(&[HOME], |owner, state| {
        owner.remove(state, HOME, b"old").unwrap();
        owner
            .create(state, HOME, b"new", NEW, FileKind::File, 0o644)
            .unwrap();
        owner.remove(state, HOME, b"new").unwrap();
        owner
            .create(state, HOME, b"old", NEW + 1, FileKind::File, 0o644)
            .unwrap();
    });
    assert_eq!(inode_at(&state, HOME, b"new"), None);
    assert_eq!(inode_at(&state, HOME, b"old"), Some(NEW + 1));
    assert!(!state.inodes.contains_key(&OLD));
    assert_eq!(changes.creations.len(), 1);
}

#[test]
fn an_uncommitted_inode_without_a_name_is_skipped() {
    let (state, _, changes) = folded(&[NEW], |owner, state| {
        owner
            .create(state, HOME, b"new", NEW, FileKind::File, 0o644)
            .unwrap();
        owner.write(state, NEW, 0, PagePtr(PAGES + 9));
        owner.remove(state, HOME, b"new").unwrap();
    });
    assert_eq!(changes.skipped, [NEW]);
    assert!(changes.creations.is_empty());
    assert_eq!(state.headers[&NEW].kind, HeaderKind::Granted);
}

#[test]
fn renames_within_a_directory() {
    for tidy in 0..3 {
        let (state, _, _) = folded(&[HOME], |owner, state| {
            owner
                .create(state, HOME, b"a", NEW, FileKind::File, 0o644)
                .unwrap();
            owner
                .create(state, HOME, b"b", NEW + 1, FileKind::File, 0o644)
                .unwrap();
            // Verified to new, over verified, over delta, chains, and back.
            owner
                .rename(state, at(HOME, b"old"), at(HOME, b"c"), tidy)
                .unwrap();
            owner
                .rename(state, at(HOME, b"c"), at(HOME, b"second"), tidy)
                .unwrap();
            owner
                .rename(state, at(HOME, b"a"), at(HOME, b"b"), tidy)
                .unwrap();
            owner
                .rename(state, at(HOME, b"b"), at(HOME, b"a"), tidy)
                .unwrap();
            owner
                .rename(state, at(HOME, b"second"), at(HOME, b"old"), tidy)
                .unwrap();
            owner
                .rename(state, at(HOME, b"shared"), at(HOME, b"x"), tidy)
                .unwrap();
            owner
                .rename(state, at(HOME, b"empty"), at(HOME, b"y"), tidy)
                .unwrap();
            owner
                .rename(state, at(HOME, b"y"), at(HOME, b"z"), tidy)
                .unwrap();
        });
        assert_eq!(inode_at(&state, HOME, b"a"), Some(NEW));
        assert_eq!(inode_at(&state, HOME, b"b"), None);
        assert_eq!(inode_at(&state, HOME, b"old"), Some(OLD));
        assert_eq!(inode_at(&state, HOME, b"second"), None);
        assert_eq!(inode_at(&state, HOME, b"x"), Some(SHARED));
        assert_eq!(inode_at(&state, HOME, b"z"), Some(EMPTY));
        assert!(!state.inodes.contains_key(&SECOND));
    }
}

#[test]
fn renames_across_directories_fold_both() {
    for tidy in 0..3 {
        for first in [HOME, WORK] {
            let (state, _, _) = folded(&[first], |owner, state| {
                owner
                    .rename(state, at(HOME, b"old"), at(WORK, b"old"), tidy)
                    .unwrap();
                owner
                    .rename(state, at(HOME, b"shared"), at(WORK, b"s"), tidy)
                    .unwrap();
                owner
                    .rename(state, at(WORK, b"s"), at(HOME, b"second"), tidy)
                    .unwrap();
                owner
                    .create(state, HOME, b"n", NEW, FileKind::File, 0o644)
                    .unwrap();
                owner
                    .rename(state, at(HOME, b"n"), at(WORK, b"n"), tidy)
                    .unwrap();
                owner
                    .rename(state, at(WORK, b"n"), at(WORK, b"m"), tidy)
                    .unwrap();
            });
            assert_eq!(inode_at(&state, WORK, b"old"), Some(OLD));
            assert_eq!(inode_at(&state, HOME, b"second"), Some(SHARED));
            assert_eq!(inode_at(&state, WORK, b"m"), Some(NEW));
            assert_eq!(inode_at(&state, HOME, b"n"), None);
        }
    }
}

#[test]
fn a_directory_of_another_session_is_renamed_in_its_place() {
    let (mut state, mut owner) = world();
    state.set_owner(EMPTY, OTHER_SESSION);
    owner
        .rename(&state, at(HOME, b"empty"), at(HOME, b"d"), 0)
        .unwrap();
    fold(&mut state, &mut owner, &[HOME]);
    assert_eq!(inode_at(&state, HOME, b"d"), Some(EMPTY));
}

#[test]
fn a_directory_replaces_an_empty_one() {
    let (state, _, changes) = folded(&[HOME], |owner, state| {
        owner
            .create(state, HOME, b"d", NEW, FileKind::Directory, 0o755)
            .unwrap();
        owner
            .rename(state, at(HOME, b"d"), at(HOME, b"empty"), 0)
            .unwrap();
    });
    assert_eq!(inode_at(&state, HOME, b"empty"), Some(NEW));
    assert_eq!(changes.removed_directories, [EMPTY]);
}

#[test]
fn rmdir_looks_at_the_delta_of_the_removed() {
    let (state, _, changes) = folded(&[HOME], |owner, state| {
        owner
            .create(state, EMPTY, b"f", NEW, FileKind::File, 0o644)
            .unwrap();
        owner
            .rename(state, at(EMPTY, b"f"), at(WORK, b"f"), 0)
            .unwrap();
        owner.remove(state, HOME, b"empty").unwrap();
    });
    assert_eq!(changes.removed_directories, [EMPTY]);
    assert_eq!(inode_at(&state, WORK, b"f"), Some(NEW));
    assert_eq!(state.headers[&EMPTY].kind, HeaderKind::Free);
}

#[test]
fn a_directory_that_lived_in_the_delta_only_hands_on_what_it_held() {
    for first in [HOME, WORK, NEW] {
        let (state, _, changes) = folded(&[first], |owner, state| {
            owner
                .create(state, WORK, b"d", NEW, FileKind::Directory, 0o755)
                .unwrap();
            owner
                .rename(state, at(HOME, b"old"), at(NEW, b"old"), 0)
                .unwrap();
            owner
                .rename(state, at(NEW, b"old"), at(WORK, b"kept"), 0)
                .unwrap();
            owner
                .rename(state, at(HOME, b"second"), at(NEW, b"second"), 0)
                .unwrap();
            owner.remove(state, NEW, b"second").unwrap();
            owner.remove(state, WORK, b"d").unwrap();
        });
        assert_eq!(inode_at(&state, WORK, b"kept"), Some(OLD));
        assert_eq!(inode_at(&state, HOME, b"second"), None);
        assert_eq!(changes.discarded, [NEW]);
        assert!(changes.creations.is_empty());
    }
}

#[test]
fn a_kill_is_never_consumed_without_what_it_killed() {
    let (mut state, mut owner, changes) = folded(&[WORK], |owner, state| {
        owner
            .create(state, HOME, b"d", NEW, FileKind::Directory, 0o755)
            .unwrap();
        owner
            .create(state, NEW, b"f", NEW + 1, FileKind::File, 0o644)
            .unwrap();
        owner
            .rename(state, at(NEW, b"f"), at(WORK, b"f"), 0)
            .unwrap();
        owner.remove(state, HOME, b"d").unwrap();
    });
    assert_eq!(changes.discarded, [NEW]);
    assert_eq!(inode_at(&state, WORK, b"f"), Some(NEW + 1));
    let (_, changes) = fold(&mut state, &mut owner, &[NEW]);
    assert_eq!(changes.skipped, [NEW]);
}

#[test]
fn nested_directories_are_removed_from_the_inside_out() {
    let (mut state, mut owner) = world();
    let user = (USER, USER);
    state.add(EMPTY, b"d", 30, FileKind::Directory, 0o755, user);
    state.add(30, b"d", 31, FileKind::Directory, 0o755, user);
    state.set_owner(30, SESSION);
    state.set_owner(31, SESSION);
    owner.remove(&state, 30, b"d").unwrap();
    owner.remove(&state, EMPTY, b"d").unwrap();
    owner.remove(&state, HOME, b"empty").unwrap();
    let (_, changes) = fold(&mut state, &mut owner, &[HOME]);
    assert_eq!(changes.removed_directories, [31, 30, EMPTY]);
}

#[test]
fn links_count() {
    let (state, _, changes) = folded(&[HOME, WORK], |owner, state| {
        owner.link(state, at(HOME, b"old"), at(WORK, b"l")).unwrap();
        owner.link(state, at(HOME, b"old"), at(HOME, b"m")).unwrap();
        owner
            .create(state, HOME, b"n", NEW, FileKind::File, 0o644)
            .unwrap();
        owner.link(state, at(HOME, b"n"), at(WORK, b"n")).unwrap();
        owner.remove(state, HOME, b"n").unwrap();
    });
    assert_eq!(state.inodes[&OLD].links, 3);
    assert_eq!(state.inodes[&NEW].links, 1);
    assert_eq!(changes.creations[0].parent, WORK);
}

#[test]
fn a_last_name_is_not_folded_away_while_a_new_one_waits() {
    let (state, _, _) = folded(&[HOME], |owner, state| {
        owner.link(state, at(HOME, b"old"), at(WORK, b"l")).unwrap();
        owner.remove(state, HOME, b"old").unwrap();
    });
    assert_eq!(inode_at(&state, WORK, b"l"), Some(OLD));
    assert_eq!(state.inodes[&OLD].links, 1);
}

/// Somebody else's fold has taken the verified name away meanwhile.
#[test]
fn an_owners_link_outlives_the_name_that_it_was_made_by() {
    let (mut state, mut owner) = world();
    owner
        .link(&state, at(HOME, b"old"), at(WORK, b"l"))
        .unwrap();
    state.orphan(OLD);
    fold(&mut state, &mut owner, &[WORK]);
    assert_eq!(inode_at(&state, WORK, b"l"), Some(OLD));
    assert_eq!(state.inodes[&OLD].links, 1);
    assert_eq!(state.headers[&OLD].kind, HeaderKind::Alive);
}

#[test]
fn write_append_and_holes() {
    let (state, _, changes) = folded(&[OLD], |owner, state| {
        owner.write(state, OLD, 1, PagePtr(PAGES + 10));
        owner.write(state, OLD, 2, PagePtr(PAGES + 11));
        owner.write(state, OLD, 600, PagePtr(PAGES + 12));
        // The verified page at its own place, and a page that is ahead of the size.
        let header = state.headers[&OLD];
        owner.arena.set_entry(OLD, &header, 0, PAGES);
        owner.arena.set_entry(OLD, &header, 700, 12_345);
    });
    let set = |page| PagePtr(PAGES + page);
    assert_eq!(changes.inodes.len(), 1);
    let change = &changes.inodes[0];
    assert_eq!(change.pages, [(1, set(10)), (2, set(11)), (600, set(12))]);
    assert_eq!((change.size, change.limit), (Some(601 * PAGE_SIZE), None));
    assert_eq!(state.data[&(OLD, 0)], set(0));
}

#[test]
fn truncate_drops_pages_even_without_a_limit() {
    let (state, _, changes) = folded(&[OLD], |owner, state| {
        let header = state.headers[&OLD];
        owner
            .arena
            .edit_branch(OLD, &header, |branch| branch.size = 100);
    });
    assert_eq!(changes.inodes[0].limit, Some(1));
    assert!(state.data.contains_key(&(OLD, 0)) && !state.data.contains_key(&(OLD, 1)));
    let (state, _, changes) = folded(&[OLD], |owner, state| {
        owner.truncate(state, OLD, 0, 0);
        owner.write(state, OLD, 1, PagePtr(PAGES + 10));
    });
    assert_eq!(changes.inodes[0].limit, Some(0));
    assert_eq!(state.data.get(&(OLD, 0)), None);
    assert_eq!(state.data[&(OLD, 1)], PagePtr(PAGES + 10));
}

#[test]
fn attributes_of_files_and_directories() {
    let (state, _, _) = folded(&[OLD, HOME], |owner, state| {
        for number in [OLD, HOME] {
            let header = state.headers[&number];
            owner.arena.edit_branch(number, &header, |branch| {
                branch.mode = 0o4710;
                branch.modified = -5;
                branch.changed = 6;
                branch.accessed = i64::MAX;
            });
        }
    });
    for number in [OLD, HOME] {
        let inode = state.inodes[&number];
        assert_eq!(inode.mode & 0o7777, 0o4710);
        assert_eq!((inode.modified, inode.changed), (-5, 6));
    }
}

#[test]
fn a_writer_of_a_strangers_file_takes_its_set_id_bits() {
    let (mut state, mut owner) = world();
    state.change(OLD, |inode| {
        inode.uid = OTHER_USER;
        inode.mode = FileKind::File.mode_bits() | 0o6777;
    });
    owner.write(&state, OLD, 0, PagePtr(PAGES + 10));
    let (_, changes) = fold(&mut state, &mut owner, &[OLD]);
    assert_eq!(changes.inodes[0].mode, Some(0o777));
}

#[test]
fn what_has_no_branch_is_not_copied() {
    let (mut state, mut owner) = world();
    let (set, changes) = fold(&mut state, &mut owner, &[HOME, NEW]);
    assert_eq!(set, [HOME, NEW]);
    assert!(changes.inodes.is_empty());
    assert_eq!(changes.skipped, [NEW]);
}

#[test]
fn fold_copies_show_the_bytes_that_were_folded() {
    let (state, mut owner) = world();
    let place = owner
        .create(&state, HOME, b"new", NEW, FileKind::File, 0o644)
        .unwrap();
    let (_, deltas) = owner.copy(&state, &[HOME]).unwrap();
    let at = u64::from(place.unit) * 64;
    let record = deltas[0].arena_bytes(at, 64).unwrap();
    assert_eq!(record[8..12], place.sequence.to_le_bytes());
    let slot = deltas[0].branch_offset;
    assert_eq!(deltas[0].arena_bytes(slot, 4).unwrap(), HOME.to_le_bytes());
    assert_eq!(deltas[0].arena_bytes(slot + 100, 29), None);
    assert_eq!(deltas[0].arena_bytes(at - at % PAGE_SIZE, 4097), None);
    assert_eq!(deltas[0].arena_bytes(u64::MAX, 1), None);
}
