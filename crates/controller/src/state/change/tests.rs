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
