//! Model check of the ownership protocol (DESIGN section 5), on the real code of this crate and
//! of the header, under shuttle:
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p arck-protocol --test ownership
//! ```
//!
//! Sessions append to inodes, take inodes from each other, commit and read, while a controller
//! folds. Each scenario runs under many schedules, random and priority-based (PCT);
//! `ARCK_MODEL_ITERATIONS` says how many of each (20 000 if it is not set), `ARCK_MODEL_SEED`
//! where to begin. A failure prints its schedule; with `ARCK_MODEL_REPLAY` naming a file that holds
//! it, a test of the first half runs that schedule alone.
//!
//! What is checked:
//! * every operation that returned is there exactly once, in the verified state or in the
//!   owner's delta, and nothing else is; nothing is folded twice;
//! * who recalls or acquires an inode sees all that had been promised before;
//! * a versioned read never sees a half-applied state;
//! * every request is answered, however often the controller goes to sleep;
//! * where folds seal: an owner finds all that it has done, in the active delta, the sealed one or the verified
//!   state; and whenever the machine fails or the controller dies, what was promised is recovered, once ([`image`]).
//!
//! What is not: weak memory. The checker is sequentially consistent, so it says nothing of the
//! `membarrier` that stands between mark and snapshot. Time is not modelled either: that folds
//! wait only so long is the checker's free choice.
//!
//! That the properties can fail at all is shown by mutations: in each test of the second half
//! one rule of the protocol is broken, and the checker has to find out.

#![cfg(shuttle)]

mod controller;
mod image;
mod ledger;
mod libfs;
mod memory;
mod scenario;
mod service;

use libfs::Want;
use scenario::{Action, Mutation, Scenario};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};

const fn field(inode: u32, value: usize) -> Action {
    Action::Operate(inode, Want::Field(value))
}
const fn record(inode: u32, value: usize) -> Action {
    Action::Operate(inode, Want::Record(value))
}
const fn remove(inode: u32, value: usize) -> Action {
    Action::Operate(inode, Want::Remove(value))
}
const fn both(value: usize) -> Action {
    Action::Operate(1, Want::Both(value))
}
const fn undo(inode: u32, value: usize) -> Action {
    Action::Operate(inode, Want::Undo(value))
}
const fn look_at_own(inode: u32) -> Action {
    Action::LookAtOwn(inode)
}
const fn commit(inode: u32) -> Action {
    Action::Commit(inode, false)
}
const fn release(inode: u32) -> Action {
    Action::Commit(inode, true)
}
const fn look(inode: u32) -> Action {
    Action::Look(inode)
}

/// Two threads append to one inode by tails of their own and commit, a reader recalls it.
const READER: Scenario = Scenario {
    inodes: 1,
    sessions: &[
        &[&[record(1, 0), record(1, 1)], &[record(1, 2), commit(1)]],
        &[&[look(1), look(1)]],
    ],
    rings: None,
    refusals: 1,
    seals: false,
    mutation: Mutation::None,
};

/// Two sessions write one inode; the second takes away what the first has added.
const WRITERS: Scenario = Scenario {
    inodes: 1,
    sessions: &[
        &[&[record(1, 0)], &[record(1, 1), commit(1)]],
        &[&[remove(1, 2), commit(1)]],
    ],
    rings: None,
    refusals: 1,
    seals: false,
    mutation: Mutation::None,
};

/// Branches are begun in slots that come and go with their inodes.
const SLOTS: Scenario = Scenario {
    inodes: 2,
    sessions: &[
        &[&[field(1, 0), field(1, 1)], &[field(2, 2), field(2, 3)]],
        &[&[field(1, 4), release(1)], &[look(2)]],
    ],
    rings: None,
    refusals: 0,
    seals: false,
    mutation: Mutation::None,
};

/// Operations on two inodes, which others read and take away one by one.
const PAIRS: Scenario = Scenario {
    inodes: 2,
    sessions: &[
        &[&[both(0), both(1)], &[record(2, 2)]],
        &[&[record(2, 3)], &[record(1, 4)]],
        &[&[look(1), look(2)]],
    ],
    rings: None,
    refusals: 1,
    seals: false,
    mutation: Mutation::None,
};

/// One operation and one other party: the smallest place for most mistakes.
const ONE_READER: Scenario = Scenario {
    inodes: 1,
    sessions: &[&[&[record(1, 0)]], &[&[look(1), look(1)]]],
    rings: None,
    refusals: 0,
    seals: false,
    mutation: Mutation::None,
};
/// The second operation can straddle a fold that has something to fold.
const TWO_RECORDS: Scenario = Scenario {
    sessions: &[&[&[record(1, 0), record(1, 1)]], &[&[look(1), look(1)]]],
    ..ONE_READER
};
/// A fold at the owner's wish while somebody reads.
const ONE_COMMIT: Scenario = Scenario {
    sessions: &[&[&[record(1, 0), commit(1)]], &[&[look(1)]]],
    ..ONE_READER
};
const ONE_WRITER: Scenario = Scenario {
    sessions: &[&[&[record(1, 0)]], &[&[remove(1, 1), commit(1)]]],
    ..ONE_READER
};
/// An inode is taken away while another is acquired.
const ONE_SLOT: Scenario = Scenario {
    inodes: 2,
    sessions: &[&[&[field(1, 0)], &[field(2, 1)]], &[&[field(1, 2)]]],
    ..ONE_READER
};

/// An inode of a pair is taken away, then the other one.
const ONE_PAIR: Scenario = Scenario {
    inodes: 2,
    sessions: &[
        &[&[both(0)]],
        &[&[record(2, 1), record(1, 2)]],
        &[&[look(1)]],
    ],
    ..ONE_READER
};

/// The same where folds are refused, so that an operation is looked at once more, perhaps beneath the mark of the next.
const ONE_REFUSED_PAIR: Scenario = Scenario {
    inodes: 2,
    sessions: &[&[&[both(0)]], &[&[look(1), look(1)]]],
    refusals: 1,
    ..ONE_READER
};

/// Everything through rings, with fewer slots than threads.
const RINGS: Scenario = Scenario {
    inodes: 1,
    sessions: &[
        &[&[record(1, 0)], &[record(1, 1)]],
        &[&[remove(1, 2)]],
        &[&[look(1)]],
    ],
    rings: Some(1),
    refusals: 0,
    seals: false,
    mutation: Mutation::None,
};

/// An owner goes on beside what is sealed: adds, takes back what it has added, and looks. A reader has it folded.
const SEALED: Scenario = Scenario {
    inodes: 1,
    sessions: &[
        &[
            &[record(1, 0), commit(1), undo(1, 1), record(1, 2)],
            &[record(1, 3), look_at_own(1), undo(1, 4)],
        ],
        &[&[look(1), look(1)]],
    ],
    rings: None,
    refusals: 1,
    seals: true,
    mutation: Mutation::None,
};
/// The same by fields of branches, whose slots come and go.
const SEALED_SLOTS: Scenario = Scenario {
    sessions: &[
        &[
            &[field(1, 0), commit(1), field(1, 1)],
            &[field(1, 2), look_at_own(1)],
        ],
        &[&[look(1), field(1, 3)]],
    ],
    ..SEALED
};
/// Operations on two inodes are sealed together.
const SEALED_PAIRS: Scenario = Scenario {
    inodes: 2,
    sessions: &[
        &[
            &[both(0), commit(1), record(2, 1)],
            &[both(2), record(2, 3)],
        ],
        &[&[look(2), look(1)]],
    ],
    ..SEALED
};
/// One thread, and a fold at its own wish.
const ONE_SEAL: Scenario = Scenario {
    sessions: &[&[&[record(1, 0), undo(1, 1), record(1, 2)], &[commit(1)]]],
    refusals: 0,
    ..SEALED
};
const ONE_SEALED_LOOK: Scenario = Scenario {
    sessions: &[&[&[record(1, 0), look_at_own(1)], &[commit(1)]]],
    ..ONE_SEAL
};
const ONE_SEALED_SLOT: Scenario = Scenario {
    sessions: &[&[&[field(1, 0), field(1, 1)], &[commit(1)]]],
    ..ONE_SEAL
};
const ONE_SEALED_PAIR: Scenario = Scenario {
    inodes: 2,
    sessions: &[&[&[both(0), record(2, 1)], &[commit(1)]]],
    ..ONE_SEAL
};

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {text}"))
    })
}

fn run(scenario: Scenario, scheduler: impl Scheduler + 'static, print: bool) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(20_000);
    config.silence_warnings = true;
    // A panic is reported on the stack of the thread that failed.
    config.stack_size = 1 << 18;
    if !print {
        config.failure_persistence = FailurePersistence::None;
    }
    Runner::new(scheduler, config).run(move || scenario.run());
}

/// Runs a scenario under many schedules.
fn check_with(scenario: Scenario, iterations: usize, print: bool) {
    let seed = number("ARCK_MODEL_SEED", 1) as u64;
    for depth in [2, 4] {
        let scheduler = PctScheduler::new_from_seed(seed, depth, iterations / 2);
        run(scenario, scheduler, print);
    }
    run(
        scenario,
        RandomScheduler::new_from_seed(seed, iterations),
        print,
    );
}

/// As many schedules as asked for, divided by `weight`; or the one to be replayed.
fn check(scenario: Scenario, weight: usize) {
    if let Ok(path) = std::env::var("ARCK_MODEL_REPLAY") {
        let schedule = ReplayScheduler::new_from_file(&path)
            .unwrap_or_else(|error| panic!("ARCK_MODEL_REPLAY={path}: {error}"));
        return run(scenario, schedule, false);
    }
    let iterations = number("ARCK_MODEL_ITERATIONS", 20_000) / weight;
    check_with(scenario, iterations.max(2), true);
}

/// An operation that returned is not there.
const LOST: &[&str] = &["what was promised", "is not there"];
const LOST_BY_FAILURE: &[&str] = &["not there after a failure", "undone by a failure"];
const TWICE: &[&str] = &["folded twice", "folded and in the delta"];
const LOST_OR_TWICE: &[&str] = &[LOST[0], LOST[1], TWICE[0], TWICE[1]];
const HALF_APPLIED: &[&str] = &["half-applied state"];
const HALF_DONE: &[&str] = &["can never be folded"];
/// Everybody sleeps, or somebody waits for ever for a request slot of one who sleeps.
const ASLEEP: &[&str] = &["deadlock", "exceeded max_steps"];

/// Asserts that the checker finds the mistake, and finds it as what it is: one of `how` is part
/// of what the failure says. Without the mistake the same scenario passes.
fn finds(mutation: Mutation, scenario: Scenario, how: &[&str]) {
    check_with(scenario, 500, true);
    let broken = scenario.with(mutation);
    let found = catch_unwind(AssertUnwindSafe(|| check_with(broken, 200_000, false)));
    let Err(panic) = found else {
        panic!("{mutation:?} was not found");
    };
    let text = match panic.downcast_ref::<String>() {
        Some(text) => text.as_str(),
        None => panic.downcast_ref::<&str>().copied().unwrap_or(""),
    };
    assert!(
        how.iter().any(|how| text.contains(how)),
        "{mutation:?} failed otherwise: {text}"
    );
}

#[test]
fn readers_see_what_was_promised() {
    check(READER, 1);
}

#[test]
fn writers_take_turns() {
    check(WRITERS, 1);
}

#[test]
fn branch_slots_come_and_go() {
    check(SLOTS, 1);
}

#[test]
fn pairs_stay_together() {
    check(PAIRS, 2);
}

#[test]
fn no_request_is_lost() {
    // A request through a ring takes many more steps than the rest.
    check(RINGS, 4);
}

#[test]
fn owners_go_on_beside_what_is_sealed() {
    check(SEALED, 2);
}

#[test]
fn slots_of_what_is_sealed_come_and_go() {
    check(SEALED_SLOTS, 2);
}

#[test]
fn pairs_are_sealed_together() {
    check(SEALED_PAIRS, 4);
}

#[test]
fn finds_no_first_check() {
    finds(Mutation::NoFirstCheck, ONE_READER, LOST);
}

#[test]
fn finds_no_second_check() {
    finds(Mutation::NoSecondCheck, ONE_READER, LOST);
}

#[test]
fn finds_fold_number_loaded_first() {
    finds(Mutation::LoadsFoldNumberFirst, TWO_RECORDS, LOST);
}

#[test]
fn finds_entering_after_the_check() {
    finds(Mutation::EntersAfterCheck, ONE_READER, LOST);
}

#[test]
fn finds_leaving_before_publishing() {
    finds(Mutation::LeavesBeforePublishing, ONE_READER, LOST);
}

#[test]
fn finds_deciding_by_verified_state() {
    finds(Mutation::DecidesByVerifiedState, ONE_WRITER, TWICE);
}

#[test]
fn finds_slot_taken_from_the_header() {
    finds(Mutation::TakesSlotFromHeader, ONE_SLOT, LOST);
}

#[test]
fn finds_half_an_operation_left_standing() {
    finds(Mutation::LeavesHalfStanding, ONE_PAIR, HALF_DONE);
}

#[test]
fn finds_half_an_operation_left_to_a_fold() {
    finds(Mutation::TakesBackOnlyWhatHolds, ONE_PAIR, HALF_DONE);
}

#[test]
fn finds_taking_back_beneath_marks() {
    finds(
        Mutation::TakesBackBeneathMarks,
        ONE_REFUSED_PAIR,
        LOST_OR_TWICE,
    );
}

#[test]
fn finds_forgetting_what_was_taken_back() {
    finds(Mutation::ForgetsTakingBack, ONE_PAIR, LOST);
}

#[test]
fn finds_no_mark() {
    finds(Mutation::DoesNotMark, ONE_WRITER, LOST);
}

#[test]
fn finds_no_wait_and_no_fold_copy() {
    finds(Mutation::DoesNotWait, ONE_READER, LOST);
}

#[test]
fn finds_copying_before_waiting() {
    finds(Mutation::CopiesBeforeWaiting, ONE_READER, LOST);
}

#[test]
fn finds_copies_kept_of_what_was_in_flight() {
    finds(Mutation::KeepsStraddledCopies, ONE_PAIR, TWICE);
}

#[test]
fn finds_other_halves_left_out() {
    finds(Mutation::LeavesPartnersOut, ONE_PAIR, HALF_DONE);
}

#[test]
fn finds_fold_number_kept() {
    finds(Mutation::KeepsFoldNumber, ONE_READER, TWICE);
}

#[test]
fn finds_unmarking_before_the_fold_number() {
    finds(Mutation::UnmarksBeforeFoldNumber, ONE_READER, LOST);
}

#[test]
fn finds_fold_copy_dropped_too_early() {
    finds(Mutation::DropsFoldCopyWhenLeft, ONE_READER, LOST);
}

#[test]
fn finds_slot_reused_at_once() {
    finds(Mutation::ReusesSlotAtOnce, ONE_SLOT, LOST);
}

#[test]
fn finds_no_sequence() {
    finds(Mutation::KeepsSequenceEven, ONE_COMMIT, HALF_APPLIED);
}

#[test]
fn finds_sleeping_without_looking() {
    finds(Mutation::SleepsWithoutLooking, RINGS, ASLEEP);
}

#[test]
fn finds_records_of_what_is_sealed_edited_in_place() {
    finds(Mutation::EditsSealedInPlace, ONE_SEAL, LOST);
}

#[test]
fn finds_pages_of_what_is_sealed_reused() {
    finds(Mutation::ReusesPagesOfSealed, ONE_SEAL, LOST_BY_FAILURE);
}

#[test]
fn finds_what_is_sealed_taken_for_folded() {
    finds(Mutation::DropsSealedEarly, ONE_SEALED_LOOK, LOST);
}

#[test]
fn finds_unmarking_before_the_seal() {
    finds(Mutation::UnmarksBeforeSeal, ONE_SEAL, LOST);
}

#[test]
fn finds_a_seal_in_two_steps() {
    finds(Mutation::SealsWithoutJournal, ONE_SEAL, LOST_BY_FAILURE);
}

#[test]
fn finds_slot_of_what_is_sealed_reused() {
    finds(Mutation::SealsInPlace, ONE_SEALED_SLOT, LOST_BY_FAILURE);
}

#[test]
fn finds_the_other_half_not_sealed() {
    finds(Mutation::SealsOneOfTwo, ONE_SEALED_PAIR, LOST);
}

#[test]
fn finds_sealing_what_operations_straddle() {
    finds(Mutation::SealsWhatStraddles, ONE_SEAL, LOST);
}

#[test]
fn finds_unsealing_before_applying() {
    finds(Mutation::UnsealsBeforeApplying, ONE_SEALED_LOOK, LOST);
}

#[test]
fn finds_a_next_controller_that_forgets_what_is_sealed() {
    finds(Mutation::NextForgetsSealed, ONE_SEAL, LOST);
}

#[test]
fn finds_recovery_in_the_wrong_order() {
    finds(Mutation::RecoversActiveFirst, ONE_SEAL, LOST_BY_FAILURE);
}

#[test]
fn finds_recovery_that_forgets_what_is_sealed() {
    finds(Mutation::RecoveryForgetsSealed, ONE_SEAL, LOST_BY_FAILURE);
}
