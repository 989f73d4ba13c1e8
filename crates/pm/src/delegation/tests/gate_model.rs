//! Model check of a gate under shuttle, on its real code, beside that of the delegates (`model.rs`):
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p arck-pm --lib delegation::gate_model
//! ```
//!
//! What is checked: no more threads are inside than may be; who waits comes in, without ever being tired of waiting, which shuttle reports
//! as a deadlock; and where there are two places, two of those who have waited are inside at once.
//!
//! What is not: weak memory; places that are taken from who does not leave them (`tests.rs`).

use super::gate::{Gate, LONGEST, Place};
use super::rules::{Rule, Rules};
use super::running::{finds, run, schedules};
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;

#[derive(Clone, Copy)]
struct Scenario {
    most: u32,
    threads: u32,
    /// How often each enters.
    times: u32,
    /// Those who come in stay until all of them have: as many as there are places. They come while all are taken.
    meet: bool,
    /// There is one more, who wants no other beside him.
    has_other: bool,
    /// Places that are taken when they come, and left one by one.
    before: u32,
}

const SCENARIOS: [Scenario; 6] = [
    Scenario {
        most: 1,
        threads: 2,
        times: 2,
        meet: false,
        has_other: false,
        before: 0,
    },
    Scenario {
        most: 1,
        threads: 3,
        times: 1,
        meet: false,
        has_other: false,
        before: 0,
    },
    Scenario {
        most: 2,
        threads: 4,
        times: 2,
        meet: false,
        has_other: false,
        before: 0,
    },
    Scenario {
        most: 2,
        threads: 2,
        times: 1,
        meet: true,
        has_other: false,
        before: 2,
    },
    // Of the two places the second becomes free.
    Scenario {
        most: 2,
        threads: 1,
        times: 1,
        meet: false,
        has_other: true,
        before: 2,
    },
    // All come at the same time, to a gate at which nobody was.
    Scenario {
        most: 2,
        threads: 2,
        times: 2,
        meet: false,
        has_other: true,
        before: 0,
    },
];

fn enter(gate: &Gate, most: u32, rules: Rules) -> Place {
    gate.enter(most, LONGEST, 0, rules)
}

fn model(scenario: Scenario, rules: Rules) {
    let gate = Arc::new(Gate::new());
    let inside = Arc::new(AtomicU32::new(0));
    let met = Arc::new((Mutex::new(0), Condvar::new()));
    let mut taken: Vec<_> = (0..scenario.before)
        .map(|_| enter(&gate, scenario.most, rules))
        .collect();
    let threads: Vec<_> = (0..scenario.threads)
        .map(|_| {
            let (gate, inside, met) = (Arc::clone(&gate), Arc::clone(&inside), Arc::clone(&met));
            thread::spawn(move || {
                for _ in 0..scenario.times {
                    let place = enter(&gate, scenario.most, rules);
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= scenario.most, "{now} are inside");
                    if scenario.meet {
                        let mut count = met.0.lock().unwrap();
                        *count += 1;
                        met.1.notify_all();
                        drop(met.1.wait_while(count, |&mut count| count < scenario.most));
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                    gate.leave(&place, rules);
                }
            })
        })
        .collect();
    while scenario.meet && gate.waiting() < scenario.threads && rules.hold(Rule::SaysThatItWaits) {
        thread::yield_now();
    }
    let other = scenario.has_other.then(|| {
        let gate = Arc::clone(&gate);
        thread::spawn(move || gate.leave(&enter(&gate, 1, rules), rules))
    });
    let last = (scenario.has_other && scenario.before != 0).then(|| taken.remove(0));
    for place in taken {
        gate.leave(&place, rules);
    }
    for thread in threads {
        thread.join().unwrap();
    }
    // Only then the first place becomes free.
    if let Some(place) = last {
        gate.leave(&place, rules);
    }
    if let Some(other) = other {
        other.join().unwrap();
    }
    assert_eq!(gate.inside(), 0);
}

#[test]
fn so_many_are_inside_and_nobody_waits_for_ever() {
    for scenario in SCENARIOS {
        run(move || model(scenario, Rules::default()), schedules());
    }
}

/// Each rule by itself, in one of the scenarios at least.
#[test]
fn finds_every_broken_rule_of_a_gate() {
    for rule in [
        Rule::TakesPlaceByExchange,
        Rule::SaysThatItWaits,
        Rule::AsksToBeWoken,
        Rule::SeesTurnBeforeAsking,
        Rule::LooksBeforeWaiting,
        Rule::SaysThatItLooks,
        Rule::WakesNext,
        Rule::KnowsThatSomeDiffer,
        Rule::LeavesBeforeLooking,
    ] {
        let rules = Rules::without(Some(rule));
        let models = SCENARIOS
            .into_iter()
            .map(|scenario| move || model(scenario, rules));
        finds(&rule, models, 20_000);
    }
}
