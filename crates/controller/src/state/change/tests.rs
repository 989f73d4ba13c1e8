//! Changes by themselves.

use super::*;
use crate::state::change::{Change, Weight};
use crate::state::tables::State;
use crate::testing::TestCore;
use std::sync::atomic::Ordering;

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

/// Who sees an inode's next even sequence finds the change clock moved, though fold numbers and owners are not stored yet;
/// and it moves once more behind those.
#[test]
fn the_change_clock_moves_before_sequences_are_even_and_at_the_end() {
    use crate::testing::{file, new_inode};
    use arck_core_state::header::HEADER_SIZE;
    use arck_core_state::{IndexRoot, layout};
    use arck_pm::{MapOptions, Mapping};
    use std::sync::Barrier;

    /// Enough that the first is even long before the last is.
    const INODES: usize = 400;
    const ROUNDS: usize = 300;
    let mut test = TestCore::new();
    let headers = std::fs::File::open(test.path().join(layout::HEADERS)).unwrap();
    let length = usize::try_from(headers.metadata().unwrap().len()).unwrap();
    let map = Mapping::new(&headers, 0, length, MapOptions::READ_ONLY).unwrap();
    let state = &mut test.core.sessions.state;
    let mut change = Change::new(state);
    let inode = file(0, 1, IndexRoot::EMPTY, 0, 0);
    let numbers: Vec<_> = (0..INODES)
        .map(|_| new_inode(&mut change, HeaderKind::Alive, inode).0)
        .collect();
    change.commit(Weight::Fold).unwrap();
    let first = *numbers.iter().min().unwrap() as usize;
    let sequence_of = |number: usize| {
        let at = number * HEADER_SIZE;
        map.bytes().load_u64(at, Ordering::Acquire).unwrap()
    };
    let turn = Barrier::new(2);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut late = 0;
            for _ in 0..ROUNDS {
                let (sequence, clock) = (sequence_of(first), sequence_of(0));
                turn.wait();
                loop {
                    let now = sequence_of(first);
                    if now != sequence && now.is_multiple_of(2) {
                        break;
                    }
                }
                late += usize::from(sequence_of(0) == clock);
                turn.wait();
            }
            late
        });
        let mut others = 0;
        for round in 0..ROUNDS {
            let mut change = Change::new(state);
            for &number in &numbers {
                let mut inode = change.inode(number).unwrap();
                inode.modified = i64::try_from(round).unwrap() + 1;
                change.set_inode(inode);
                let fold = change.state.numbers.fold();
                change.header(number).unwrap().fold = fold;
            }
            let before = sequence_of(0);
            turn.wait();
            change.commit(Weight::Fold).unwrap();
            // Nothing here may fail while the reader waits.
            let is_even = before.is_multiple_of(2);
            others += usize::from(!is_even || sequence_of(0) != before + 2);
            turn.wait();
        }
        assert_eq!(others, 0, "changes by which it did not move twice");
        assert_eq!(reader.join().unwrap(), 0, "rounds in which it moved late");
    });
    // A controller that died in the middle leaves it odd.
    let died = sequence_of(0) + 1;
    state.pool.change_clock().store(died, Ordering::Relaxed);
    let mut change = Change::new(state);
    let inode = change.inode(numbers[0]).unwrap();
    change.set_inode(inode);
    change.header(numbers[0]).unwrap().fold = u64::from(u32::MAX);
    change.commit(Weight::Fold).unwrap();
    assert_eq!(sequence_of(0), died + 3);
}
