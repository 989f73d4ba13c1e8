//! Model check under shuttle, of rings, slots and sleeping, on their real code:
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p arck-pm --lib delegation::model
//! ```
//!
//! Threads take slots, hand over pieces to more than one delegate, wait, and give the slots back, in all orders that the checker comes to;
//! then, or in the middle of it, the delegates end. What is checked: when a thread has waited, each of its pieces was copied once, as it
//! was handed over, and is durable if it was written; what was not there is told, and nothing else is; nobody sleeps for ever, which
//! shuttle reports as a deadlock; and at the end nothing was copied that nobody has asked for.
//!
//! What is not: weak memory; a process that forks; the copies themselves, and how [`super::Batch`] cuts an access.
//!
//! That it can fail is shown by breaking each rule by itself, which the checker has to find.

use super::delegate;
use super::primitive::modelled::done;
use super::ring::Piece;
use super::rules::{Rule, Rules};
use super::running::{finds, run, schedules};
use super::slots::Delegates;
use crate::medium::Way;
use shuttle::sync::Arc;
use shuttle::sync::atomic::Ordering;
use shuttle::thread;

/// What a thread hands over: where, and to which node. Bytes that are not there are [`Step::Missing`].
#[derive(Clone, Copy)]
enum Step {
    Write(usize),
    Read(usize),
    Missing(usize),
    /// And takes a slot again for what comes next.
    Wait,
}

use Step::{Missing, Read, Wait, Write};

struct Scenario {
    nodes: u32,
    /// Of each node.
    delegates: usize,
    askers: &'static [&'static [Step]],
    /// The delegates end while slots are used.
    ends_amid: bool,
}

const SCENARIOS: [Scenario; 6] = [
    // One piece: whoever is not woken sleeps for ever.
    Scenario {
        nodes: 1,
        delegates: 1,
        askers: &[&[Write(0), Wait, Read(0)]],
        ends_amid: false,
    },
    // Several delegates take what one thread hands over.
    Scenario {
        nodes: 1,
        delegates: 2,
        askers: &[&[Write(0), Read(0), Write(0)]],
        ends_amid: false,
    },
    // More than fits into a ring.
    Scenario {
        nodes: 1,
        delegates: 1,
        askers: &[&[Write(0), Write(0), Read(0), Write(0), Write(0)]],
        ends_amid: false,
    },
    // More threads than slots; and something that is not there.
    Scenario {
        nodes: 1,
        delegates: 2,
        askers: &[
            &[Write(0), Missing(0), Wait, Write(0)],
            &[Missing(0), Wait, Read(0)],
            &[Write(0), Write(0)],
        ],
        ends_amid: false,
    },
    // Two nodes.
    Scenario {
        nodes: 2,
        delegates: 1,
        askers: &[&[Write(0), Write(1), Read(0)], &[Write(1), Missing(0)]],
        ends_amid: false,
    },
    Scenario {
        nodes: 1,
        delegates: 2,
        askers: &[&[Write(0), Wait, Write(0)], &[Read(0), Wait, Write(0)]],
        ends_amid: true,
    },
];

/// Pieces are told from each other by where they go: the thread, and its how many-eth.
fn piece(way: Way, asker: usize, number: usize, is_there: bool) -> Piece {
    let address = (asker + 1) << 16 | (number + 1) << 8;
    Piece {
        way,
        to: std::ptr::without_provenance_mut(address),
        from: match is_there {
            true => std::ptr::without_provenance(address + 1),
            false => std::ptr::null(),
        },
        length: address + 2,
    }
}

/// One thread; how many pieces of its it has waited for that were there.
fn ask(all: &Delegates, asker: usize, steps: &[Step]) -> usize {
    let mut copied = 0;
    let mut last = usize::MAX;
    let mut number = 0;
    for batch in steps.split(|step| matches!(step, Wait)) {
        // It copies by itself where there is no slot.
        let Some(index) = all.take(last) else {
            continue;
        };
        last = index;
        let slot = &all.slots[index];
        let mut expected = Vec::new();
        let mut is_lacking = false;
        for step in batch {
            let (way, node, is_there) = match *step {
                Write(node) => (Way::Write, node, true),
                Read(node) => (Way::Read, node, true),
                Missing(node) => (Way::Write, node, false),
                Wait => continue,
            };
            let piece = piece(way, asker, number, is_there);
            number += 1;
            match is_there {
                true => expected.push((piece.to.addr(), piece.from.addr(), piece.length)),
                false => is_lacking = true,
            }
            all.hand_over(slot, node, piece);
        }
        slot.wait(all);
        assert_eq!(slot.has_failed.load(Ordering::Relaxed), is_lacking);
        let done = done();
        for piece in &expected {
            let times = done.iter().filter(|done| *done == piece).count();
            assert_eq!(times, 1, "a piece was copied {times} times");
        }
        copied += expected.len();
        slot.give_back();
    }
    copied
}

fn model(scenario: &'static Scenario, rules: Rules) {
    let most = scenario.askers.iter().copied().flatten().count();
    let mut all = Delegates::new(scenario.nodes, scenario.delegates);
    all.rules = rules;
    let all = Arc::new(all);
    for node in 0..scenario.nodes as usize {
        for index in 0..scenario.delegates {
            let delegates = Arc::clone(&all);
            all.note(thread::spawn(move || {
                delegate::run(&delegates, node, index);
            }));
        }
    }
    let asking: Vec<_> = scenario
        .askers
        .iter()
        .enumerate()
        .map(|(asker, steps)| {
            let all = Arc::clone(&all);
            thread::spawn(move || ask(&all, asker, steps))
        })
        .collect();
    // What is counted off was counted before, whoever looks at it.
    for slot in &all.slots {
        let left = slot.left.load(Ordering::SeqCst) as usize;
        assert!(left <= most, "{left} pieces are left of {most}");
    }
    if scenario.ends_amid {
        all.close();
    }
    let copied: usize = asking.into_iter().map(|asker| asker.join().unwrap()).sum();
    if !scenario.ends_amid {
        all.close();
    }
    assert_eq!(done().len(), copied, "copied, and not asked for");
}

#[test]
fn every_piece_is_copied_and_nobody_sleeps_for_ever() {
    for scenario in &SCENARIOS {
        run(move || model(scenario, Rules::default()), schedules());
    }
}

/// Each rule by itself, in one of the scenarios at least.
#[test]
fn finds_every_broken_rule() {
    for rule in [
        Rule::TakesSlotByExchange,
        Rule::WritesBeforeReady,
        Rule::TakesByExchange,
        Rule::ReadsBeforeFreeing,
        Rule::CountsBeforeHandingOver,
        Rule::ChangesBeforeWakingDelegates,
        Rule::ChangesBeforeWakingAsker,
        Rule::SeesBeforeLooking,
        Rule::DelegateSaysThatItSleeps,
        Rule::AskerSaysThatItSleeps,
        Rule::SleepsOnWhatWasSeen,
        Rule::LooksForPlaceAgain,
        Rule::DurableBeforeTelling,
        Rule::FailsBeforeTelling,
        Rule::BatchesBeforeEnd,
        Rule::EndsBeforeWaking,
        Rule::WakesAllAtEnd,
    ] {
        let rules = Rules::without(Some(rule));
        let models = SCENARIOS
            .iter()
            .map(|scenario| move || model(scenario, rules));
        finds(&rule, models, 5_000);
    }
}
