//! Model check under shuttle, of all of the crate with its threads and its lock:
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p arck-queues --lib
//! ```
//!
//! Threads submit to queues of one file, cancel, wait and close, in all orders that the checker comes to. What is checked: the order of
//! timestamps explains each read and the last contents (ordering, covering, cancelling); a queue that is closed or dropped has
//! nothing outstanding, and its target is not called any more; nobody sleeps for ever, which shuttle reports as a deadlock.
//!
//! What is not: weak memory, since everything stands under one lock; deadlines, since the model's clock stands still.
//!
//! That it can fail is shown by breaking each rule by itself, which the checker has to find.

use super::oracle::{Ending, FILE, History, InMemory, Several};
use crate::request::{Closing, Operation, Request, RequestId};
use crate::rules::{Rule, Rules};
use crate::{Queue, QueueOptions, Queues};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::{Runner, thread};
use std::panic::{AssertUnwindSafe, catch_unwind};

const LENGTH: usize = 8;

fn write(position: u64, length: usize, stamp: u8) -> Operation {
    let bytes = vec![stamp; length];
    Operation::Write { position, bytes }
}

fn read(position: u64, length: usize) -> Operation {
    let buffer = vec![0; length];
    Operation::Read { position, buffer }
}

fn append(stamp: u8) -> Operation {
    Operation::Append {
        bytes: vec![stamp; 2],
    }
}

const SYNC: Operation = Operation::Sync { data_only: false };

/// What one thread does with its queue.
enum Step {
    Submit(Operation),
    /// The last but so many of its own.
    Cancel(usize),
    Wait,
    /// Submits together, and waits for so many, doing requests meanwhile.
    Exchange(Vec<Operation>, usize),
}

use Step::{Cancel, Exchange, Submit, Wait};

/// How it ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Close(Closing),
    /// Of all queues, while they are used.
    DropAll,
}

struct Scenario {
    threads: Vec<Vec<Step>>,
    end: End,
    /// Calls of the target, counted from 0, that end otherwise.
    endings: &'static [(usize, Ending)],
    /// So many of a thread are done at a time.
    in_flight: usize,
}

fn scenarios() -> Vec<fn() -> Scenario> {
    vec![
        // Ordering, and serving.
        || Scenario {
            threads: vec![
                vec![
                    Submit(write(0, 4, 1)),
                    Submit(write(2, 4, 2)),
                    Submit(read(1, 4)),
                ],
                vec![
                    Submit(read(0, 2)),
                    Submit(write(0, 8, 3)),
                    Submit(read(4, 4)),
                    Wait,
                ],
            ],
            end: End::Close(Closing::Finish),
            endings: &[],
            in_flight: 1,
        },
        // Covering, and the one that covers is cancelled or covered itself.
        || Scenario {
            threads: vec![
                vec![
                    Submit(write(0, 2, 1)),
                    Submit(write(0, 4, 2)),
                    Submit(write(0, 6, 3)),
                    Cancel(1),
                    Cancel(0),
                    Submit(read(1, 7)),
                ],
                vec![Submit(write(1, 3, 4)), Submit(read(0, 8)), Wait],
            ],
            end: End::Close(Closing::Finish),
            endings: &[],
            in_flight: 1,
        },
        // The one that covers fails, or ends short.
        || Scenario {
            threads: vec![
                vec![
                    Submit(write(0, 4, 1)),
                    Submit(write(0, 8, 2)),
                    Submit(read(2, 6)),
                    Submit(write(6, 2, 5)),
                    Wait,
                ],
                vec![Submit(write(4, 4, 3)), Submit(write(0, 8, 4)), Wait],
            ],
            end: End::Close(Closing::Finish),
            endings: &[(1, Ending::Short), (2, Ending::Fails)],
            in_flight: 1,
        },
        // Barriers; one of them is cancelled.
        || Scenario {
            threads: vec![
                vec![
                    Submit(write(6, 4, 1)),
                    Submit(append(2)),
                    Submit(read(6, 8)),
                    Submit(SYNC),
                    Submit(read(8, 8)),
                ],
                vec![
                    Submit(append(3)),
                    Cancel(0),
                    Submit(write(8, 2, 4)),
                    Submit(write(14, 2, 5)),
                    Wait,
                ],
            ],
            end: End::Close(Closing::Finish),
            endings: &[],
            in_flight: 1,
        },
        // Threads that do their own requests, and leave some of them to workers.
        || Scenario {
            threads: vec![
                vec![
                    Exchange(vec![write(0, 2, 1), write(2, 2, 2), append(3)], 1),
                    Wait,
                    Wait,
                ],
                vec![
                    Exchange(vec![write(4, 2, 4), read(0, 4), read(2, 4)], 2),
                    Submit(write(1, 2, 5)),
                    Wait,
                ],
            ],
            end: End::Close(Closing::Finish),
            endings: &[],
            in_flight: 1,
        },
        // Several at a time.
        || Scenario {
            threads: vec![
                vec![
                    Exchange(vec![write(0, 2, 1), write(2, 2, 2), read(0, 4)], 1),
                    Submit(append(3)),
                    Exchange(vec![write(1, 2, 4), read(4, 4), read(6, 2)], 2),
                ],
                vec![Submit(write(4, 2, 5)), Submit(read(2, 6)), Wait],
            ],
            end: End::Close(Closing::Finish),
            endings: &[(1, Ending::Short)],
            in_flight: 3,
        },
        // Closed with requests queued.
        || Scenario {
            threads: vec![
                vec![
                    Submit(write(0, 4, 1)),
                    Submit(write(0, 4, 2)),
                    Submit(write(2, 4, 3)),
                ],
                vec![Submit(read(0, 4)), Submit(write(0, 4, 4)), Cancel(0)],
            ],
            end: End::Close(Closing::Cancel),
            endings: &[],
            in_flight: 1,
        },
        // All dropped with requests queued.
        || Scenario {
            threads: vec![
                vec![
                    Submit(write(0, 4, 1)),
                    Submit(read(1, 2)),
                    Submit(write(0, 8, 2)),
                    Wait,
                ],
                vec![
                    Submit(write(1, 4, 3)),
                    Submit(SYNC),
                    Submit(read(0, 8)),
                    Wait,
                ],
            ],
            end: End::DropAll,
            endings: &[],
            in_flight: 1,
        },
    ]
}

fn submit(queue: &Queue, history: &Mutex<History>, operation: Operation) -> Option<RequestId> {
    // None where all have been dropped.
    let id = queue.submit(Request::from(operation.clone())).ok()?;
    history.lock().unwrap().submitted.insert(id, operation);
    Some(id)
}

fn model(scenario: fn() -> Scenario, rules: Rules) {
    let Scenario {
        threads,
        end,
        endings,
        in_flight,
    } = scenario();
    let calls = AtomicUsize::new(0);
    let is_gone = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
    let gone = Arc::clone(&is_gone);
    let file = std::sync::Arc::new(InMemory::new(vec![b'.'; LENGTH], move || {
        let all_gone = gone.iter().all(|gone| gone.load(Ordering::SeqCst));
        assert!(!all_gone, "called when all queues are gone");
        let call = calls.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        let ending = endings.iter().find(|(at, _)| *at == call);
        ending.map_or(Ending::Well, |(_, ending)| *ending)
    }));
    let queues = Queues::with_rules(2, rules);
    let history = Arc::new(Mutex::new(History::default()));
    let running: Vec<_> = threads
        .into_iter()
        .enumerate()
        .map(|(at, steps)| {
            let target = std::sync::Arc::new(Several {
                file: std::sync::Arc::clone(&file),
                identity: FILE,
                in_flight,
                begun: std::sync::atomic::AtomicU64::default(),
            });
            let queue = queues.open(target, QueueOptions::default()).unwrap();
            let (history, is_gone) = (Arc::clone(&history), Arc::clone(&is_gone));
            thread::spawn(move || {
                let mut own = Vec::new();
                for step in steps {
                    match step {
                        Submit(operation) => own.extend(submit(&queue, &history, operation)),
                        Cancel(back) => {
                            let id = own.len().checked_sub(back + 1).map(|at| own[at]);
                            let _ = id.map(|id| queue.cancel(id));
                        }
                        Exchange(operations, at_least) => {
                            let mut requests =
                                operations.iter().cloned().map(Request::from).collect();
                            // Nobody else completes what is of this queue before it is noted here.
                            let (submitted, some) = queue.exchange(&mut requests, at_least);
                            let mut history = history.lock().unwrap();
                            let taken = submitted.taken.iter().copied();
                            history.submitted.extend(taken.clone().zip(operations));
                            history.complete(some).unwrap();
                            own.extend(taken);
                        }
                        Wait => {
                            let some = queue.wait(1, Some(std::time::Duration::MAX));
                            history.lock().unwrap().complete(some).unwrap();
                        }
                    }
                }
                let closing = match end {
                    End::Close(closing) => closing,
                    End::DropAll => Closing::Cancel,
                };
                queue.close(closing);
                assert_eq!(
                    queue.count().0,
                    0,
                    "a closed queue has something outstanding"
                );
                let rest = queue.reap(usize::MAX);
                history.lock().unwrap().complete(rest).unwrap();
                drop(queue);
                is_gone[at].store(true, Ordering::SeqCst);
            })
        })
        .collect();
    let mut queues = Some(queues);
    if end == End::DropAll {
        drop(queues.take());
    }
    for one in running {
        one.join().unwrap();
    }
    drop(queues);
    let last = file.bytes.lock().unwrap().clone();
    let checked = history.lock().unwrap().check(vec![b'.'; LENGTH], &last);
    checked.unwrap_or_else(|error| panic!("the order of timestamps: {error}"));
}

fn schedules() -> usize {
    std::env::var("ARCK_MODEL_ITERATIONS").map_or(5_000, |count| count.parse().unwrap())
}

fn seed() -> u64 {
    std::env::var("ARCK_MODEL_SEED").map_or(1, |seed| seed.parse().unwrap())
}

fn run(scenario: fn() -> Scenario, broken: Option<Rule>, schedules: usize) {
    let rules = Rules::without(broken);
    let config = shuttle::Config::new;
    let random = RandomScheduler::new_from_seed(seed(), schedules);
    Runner::new(random, config()).run(move || model(scenario, rules));
    let adverse = PctScheduler::new_from_seed(seed(), 3, schedules);
    Runner::new(adverse, config()).run(move || model(scenario, rules));
}

#[test]
fn every_schedule_has_an_order() {
    for scenario in scenarios() {
        run(scenario, None, schedules());
    }
}

/// Each rule by itself, in one of the scenarios at least.
#[test]
fn finds_every_broken_rule() {
    for rule in [
        Rule::WaitsForOverlapping,
        Rule::BarrierWaits,
        Rule::LaterWaitForBarrier,
        Rule::WaitsForBarrierBefore,
        Rule::NextBarrierWaitsForMore,
        Rule::CoversWhatNobodyNeeds,
        Rule::CoversOnlyQueued,
        Rule::DoesCoveredAfterAll,
        Rule::LaterWaitForUncovered,
        Rule::KeepsWhatCoveringWrote,
        Rule::CoveredCompletesLater,
        Rule::PassesCoveredOn,
        Rule::ServesFromLast,
        Rule::KeepsWhatWasSeen,
        Rule::CancelsOnlyQueued,
        Rule::WakesWorkers,
        Rule::LendsOnlyAwake,
        Rule::WakesWaiting,
        Rule::LooksAfterBegun,
        Rule::CloseWaits,
    ] {
        let found = scenarios().into_iter().find_map(|scenario| {
            let ran = catch_unwind(AssertUnwindSafe(|| run(scenario, Some(rule), 5_000)));
            ran.err()
        });
        let panic = found.unwrap_or_else(|| panic!("{rule:?} was not found"));
        let text = panic.downcast_ref::<String>().map_or("", String::as_str);
        println!("{rule:?}: {}", text.lines().next().unwrap_or(""));
    }
}
