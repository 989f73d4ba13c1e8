//! Changes by themselves.

use super::*;
use crate::state::change::{Change, Weight};
use crate::state::tables::State;
use crate::testing::TestCore;

/// # Regression
/// A page of names that was made, freed and made again in one change (a directory that split as it was closed) was
/// noted as one that had moved, and was zeroed at the end, when it was in use again.
#[test]
fn a_page_that_moves_where_it_was_made_is_whole_for_who_gets_it_next() {
    const VALUE: u64 = 0x1234_5678;
    let mut test = TestCore::new();
    let state = &mut test.core.sessions.state;
    let mut change = Change::new(state);
    let first = change.new_page().unwrap();
    change.set_word(first, 3, 1).unwrap();
    change.move_page(first);
    // It is anybody's at once.
    let again = change.new_page().unwrap();
    assert_eq!(again, first, "another page: nothing is shown by it");
    change.set_word(again, 3, VALUE).unwrap();
    change.commit(Weight::Fold).unwrap();
    let word = |state: &State| {
        let words = state.pool.page(first).unwrap();
        words[3].load(Ordering::Relaxed)
    };
    assert_eq!(word(state), VALUE);
    assert!(state.space.is_used(first));
    // One that was there before moves for good, and nothing of it is left where it was.
    let mut change = Change::new(state);
    change.move_page(first);
    change.commit(Weight::Fold).unwrap();
    assert_eq!(word(state), 0);
    assert!(!state.space.is_used(first));
}

/// Who has looked up names looks again when some may be others, and not for what other changes do.
#[test]
fn the_verified_state_says_whether_names_have_changed() {
    use crate::state::apply::{change_links, directory, free};
    use crate::testing::{file, new_inode};
    use arck_core_state::directory::Dentry;
    use arck_core_state::{IndexRoot, ROOT_INODE};
    use arck_verifier::VerifiedState;

    let mut test = TestCore::new();
    let state = &mut test.core.sessions.state;
    let step = |state: &mut State, what: &dyn Fn(&mut Change<'_>)| {
        let before = state.revision().unwrap();
        let mut change = Change::new(state);
        what(&mut change);
        change.commit(Weight::Fold).unwrap();
        state.revision() != Some(before)
    };
    let mut change = Change::new(state);
    let inode = file(0, 1, IndexRoot::EMPTY, 0, 0);
    let (number, generation) = new_inode(&mut change, HeaderKind::Alive, inode);
    change.commit(Weight::Fold).unwrap();
    let dentry = Dentry {
        inode: number,
        generation,
        kind: FileKind::File,
    };
    assert!(step(state, &|change| {
        let mut root = change.inode(ROOT_INODE).unwrap();
        directory::add(change, &mut root, b"name", dentry).unwrap();
        change.set_inode(root);
    }));
    // As a seal, links of a file, and the end of one.
    assert!(!step(state, &|change| {
        change.header(ROOT_INODE).unwrap().fold += 1;
    }));
    assert!(!step(state, &|change| {
        change_links(change, number, 1, &mut Vec::new()).unwrap();
    }));
    assert!(!step(state, &|change| free(change, number).unwrap()));
    // The last name of a directory: no page of it is left to be changed.
    assert!(step(state, &|change| {
        let mut root = change.inode(ROOT_INODE).unwrap();
        directory::remove(change, &mut root, b"name").unwrap();
        change.set_inode(root);
    }));
}
