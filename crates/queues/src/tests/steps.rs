//! The engine, step by step, beside the oracle: random requests of some queues of one file, whose calls are underway for a random
//! while. Then the same with each rule broken.

use super::Random;
use super::oracle::{Ending, History, InMemory};
use crate::engine::{Engine, Outcome, TargetFacts, Work};
use crate::outstanding::{Job, QueueId};
use crate::request::{Closing, Completion, Counters, Operation, Request, RequestId};
use crate::rules::{Rule, Rules};
use crate::spool::Spooled;
use crate::target::Target;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LENGTH: u64 = 48;

struct Run {
    engine: Engine,
    target: Arc<InMemory>,
    ending: Arc<Mutex<Ending>>,
    queues: Vec<QueueId>,
    running: Vec<Work>,
    history: History,
    /// What was submitted as spooled: it is to be done, and by itself.
    spooled: BTreeSet<RequestId>,
    random: Random,
    fails: bool,
    is_crowded: bool,
    begin: Instant,
    now: u64,
    stamp: u8,
}

/// Where it is crowded there are many writes, which cover each other in many ways.
fn operation(random: &mut Random, stamp: u8, is_crowded: bool) -> Operation {
    if is_crowded && random.below(8) > 0 {
        let position = random.below(4) * 4;
        let length = 4 * (1 + random.below(5)) as usize;
        return match random.below(8) {
            0 => Operation::Read {
                position,
                buffer: vec![0; length],
            },
            _ => Operation::Write {
                position,
                bytes: vec![stamp; length],
            },
        };
    }
    let position = random.below(LENGTH + 8);
    // Some lengths are frequent, so that writes cover each other.
    let length = match random.below(4) {
        0 => 16,
        1 => 1 + random.below(24),
        _ => 8,
    };
    let position = match random.below(2) {
        0 => position / 8 * 8,
        _ => position,
    };
    let bytes = vec![stamp; length as usize];
    match random.below(24) {
        0..12 => Operation::Write { position, bytes },
        12..21 => Operation::Read {
            position,
            buffer: vec![0; length as usize],
        },
        21 => Operation::Append { bytes },
        22 => Operation::Sync {
            data_only: random.below(2) == 0,
        },
        _ => Operation::Write {
            position,
            bytes: Vec::new(),
        },
    }
}

impl Run {
    fn new(seed: u64, broken: Option<Rule>, fails: bool) -> Run {
        let mut engine = Engine::new(Rules::without(broken));
        let ending = Arc::new(Mutex::new(Ending::Well));
        let pause = Arc::clone(&ending);
        let first = vec![b'.'; LENGTH as usize];
        let target = Arc::new(InMemory::new(first, move || *pause.lock().unwrap()));
        let queues = (0..3).map(|at| {
            let target: Arc<dyn Target> = Arc::clone(&target) as Arc<dyn Target>;
            let of = TargetFacts::of(&*target).unwrap();
            let opened = engine.open(target, None, (12, at + 1), of);
            opened.unwrap().0
        });
        Run {
            queues: queues.collect(),
            engine,
            target,
            ending,
            running: Vec::new(),
            history: History::default(),
            spooled: BTreeSet::new(),
            random: Random::new(seed),
            fails,
            is_crowded: seed.is_multiple_of(2),
            begin: Instant::now(),
            now: 0,
            stamp: 0,
        }
    }

    fn at(&self, now: u64) -> Instant {
        self.begin + Duration::from_millis(now)
    }

    fn submit(&mut self) {
        self.stamp = self.stamp % 250 + 1;
        let operation = operation(&mut self.random, self.stamp, self.is_crowded);
        let mut request = Request::from(operation.clone());
        request.urgent = self.random.below(8) == 0;
        let within = (self.random.below(5) == 0).then(|| 1 + self.random.below(10));
        let mut deadline = within.map(|within| self.at(self.now + within));
        let queue = self.queues[self.random.below(3) as usize];
        let is_write = matches!(
            operation,
            Operation::Write { .. } | Operation::Append { .. }
        );
        let mut spooled = None;
        if is_write && self.random.below(5) == 0 && self.engine.reserve(queue, &request).is_ok() {
            if self.random.below(8) == 0 {
                self.engine.give_back(queue);
                return;
            }
            deadline = None;
            spooled = Some(Spooled(u64::from(self.stamp)));
        }
        match self.engine.submit(queue, request, deadline, spooled) {
            Ok((id, served)) => {
                if spooled.is_some() {
                    self.spooled.insert(id);
                }
                assert!(self.history.submitted.insert(id, operation).is_none());
                if let Some(mut served) = served {
                    let length = served.buffer.len();
                    let from = &served.bytes[served.offset..served.offset + length];
                    served.buffer.copy_from_slice(from);
                    let outcome = Outcome {
                        result: Ok(length),
                        buffer: served.buffer,
                        end: None,
                        panicked: false,
                    };
                    drop(served.bytes);
                    self.engine.finish(id, outcome);
                }
            }
            Err(refused) => {
                assert_eq!(refused.errno, Errno::AGAIN);
                assert_eq!(refused.request.operation, operation);
            }
        }
    }

    fn finish(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.random.below(self.running.len() as u64) as usize;
        let work = self.running.swap_remove(at);
        *self.ending.lock().unwrap() = match self.random.below(10) {
            0 if self.fails => Ending::Fails,
            1 if self.fails => Ending::Short,
            _ => Ending::Well,
        };
        let (mut buffer, mut end) = (Vec::new(), None);
        let result = match work.job {
            Job::Read {
                position,
                buffer: mut into,
            } => {
                let read = self.target.read(&mut into, position);
                buffer = into;
                read
            }
            Job::Write { position, bytes } => {
                let rest = &bytes[(work.from - position) as usize..];
                self.target.write(rest, work.from)
            }
            Job::Append { bytes } => {
                let appended = self.target.append(&bytes);
                buffer = bytes;
                end = appended.ok().map(|(_, end)| end);
                appended.map(|(length, _)| length)
            }
            Job::Sync { data_only } => self.target.sync(data_only).map(|()| 0),
        };
        let outcome = Outcome {
            result,
            buffer,
            end,
            panicked: false,
        };
        self.engine.finish(work.id, outcome);
    }

    fn reap(&mut self) -> Result<(), String> {
        for queue in self.queues.clone() {
            let most = self.random.below(4) as usize;
            let reaped = self.engine.reap(queue, most);
            self.complete(reaped)?;
        }
        Ok(())
    }

    fn complete(&mut self, reaped: Vec<Completion>) -> Result<(), String> {
        for one in &reaped {
            let is_withdrawn = matches!(one.result, Err(Errno::CANCELED | Errno::TIMEDOUT));
            if self.spooled.contains(&one.id) && (is_withdrawn || one.covered_by.is_some()) {
                return Err(format!("{} was spooled and not done: {one:?}", one.id));
            }
        }
        self.history.complete(reaped)
    }

    fn cancel(&mut self) {
        let newest = self.history.submitted.keys().next_back();
        let Some(newest) = newest.copied() else {
            return;
        };
        let back = self.random.below(12);
        let id = RequestId(newest.0.saturating_sub(back));
        let queue = self.queues[self.random.below(3) as usize];
        let _ = self.engine.cancel(queue, id);
    }

    fn run(mut self, steps: usize) -> Result<Counters, String> {
        for _ in 0..steps {
            let most = if self.is_crowded { 24 } else { 20 };
            match self.random.below(most) {
                20.. => self.cancel(),
                0..7 => self.submit(),
                7..11 => {
                    if self.running.len() < 4 {
                        self.running.extend(self.engine.take());
                    }
                }
                11..15 => self.finish(),
                15..18 => self.reap()?,
                18 => self.cancel(),
                _ => {
                    self.now += 1;
                    self.engine.expire(self.at(self.now));
                }
            }
        }
        if self.random.below(2) == 0 {
            self.engine.close(self.queues[0], Closing::Cancel);
            self.engine.close(self.queues[1], Closing::Finish);
        }
        loop {
            self.running.extend(self.engine.take());
            if self.running.is_empty() {
                break;
            }
            self.finish();
        }
        for queue in std::mem::take(&mut self.queues) {
            let reaped = self.engine.reap(queue, usize::MAX);
            self.complete(reaped)?;
            if self.engine.count(queue) != (0, 0) {
                return Err(format!("{:?} are left", self.engine.count(queue)));
            }
            self.engine.remove(queue);
        }
        let counters = self.engine.counters;
        let submitted = self.history.submitted.len() as u64;
        assert_eq!(counters.submitted, submitted);
        let last = self.target.bytes.lock().unwrap().clone();
        let first = vec![b'.'; LENGTH as usize];
        self.history.check(first, &last)?;
        assert_eq!(counters.completed, submitted);
        Ok(counters)
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number =
        |name, otherwise| std::env::var(name).map_or(otherwise, |one| one.parse().unwrap());
    let first = number("ARCK_QUEUES_SEED", 1);
    first..first + number("ARCK_QUEUES_RUNS", 2000)
}

#[test]
fn the_order_of_timestamps_explains_everything() {
    let mut all = Counters::default();
    for fails in [false, true] {
        for seed in seeds() {
            let counters = Run::new(seed, None, fails).run(400);
            let counters = counters.unwrap_or_else(|error| {
                panic!("ARCK_QUEUES_SEED={seed}, failures: {fails}: {error}")
            });
            all.covered += counters.covered;
            all.served += counters.served;
            all.cancelled += counters.cancelled;
            all.timed_out += counters.timed_out;
        }
    }
    println!("{all:?}");
    let least = [all.covered, all.served, all.cancelled, all.timed_out];
    assert!(least.iter().all(|&count| count > 1000), "{all:?}");
}

/// Seeds that failed once: what a write had covered that was cancelled while it was covered itself did not go before those that had
/// waited for that write, and that lay beneath the same.
#[test]
fn what_failed_once() {
    for (seed, fails) in [(401_495, true), (500_503, false)] {
        let run = Run::new(seed, None, fails).run(400);
        run.unwrap_or_else(|error| panic!("{seed}, failures: {fails}: {error}"));
    }
}

/// Each rule broken by itself is missed by the oracle.
#[test]
fn finds_every_broken_rule() {
    for rule in [
        Rule::WaitsForOverlapping,
        Rule::LengthensForReaders,
        Rule::BarrierWaits,
        Rule::LaterWaitForBarrier,
        Rule::WaitsForBarrierBefore,
        Rule::NextBarrierWaitsForMore,
        Rule::CoversNothingBeforeBarrier,
        Rule::CoversWhatNobodyNeeds,
        Rule::CoversOnlyQueued,
        Rule::DoesCoveredAfterAll,
        Rule::LaterWaitForUncovered,
        Rule::KeepsWhatCoveringWrote,
        Rule::NamesWhatWasDone,
        Rule::CoveredCompletesLater,
        Rule::PassesCoveredOn,
        Rule::ServesFromLast,
        Rule::KeepsWhatWasSeen,
        Rule::CancelsOnlyQueued,
        Rule::KeepsWhatIsSpooled,
        Rule::CoversNothingSpooled,
    ] {
        let found = seeds().find_map(|seed| Run::new(seed, Some(rule), true).run(400).err());
        let found = found.unwrap_or_else(|| panic!("{rule:?} was not missed"));
        println!("{rule:?}: {found}");
    }
}
