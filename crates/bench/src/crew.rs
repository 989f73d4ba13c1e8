//! Threads and processes that do the same together: FxMark's cases and Filebench's personalities.
//!
//! # Invariants
//! * All threads of all processes begin a run at a moment that they were told before, and it takes from when the
//!   first of them begins until the last is done.
//! * Both sides do the same operations; rounds of the one and the other alternate, and which is first does too.
//!   Each process has a session of its own, of one trust group. A round that is not counted comes first.

use crate::chapter::{Chapter, Processors, Row};
use crate::conversation::{self, Conversation};
use crate::machine::Machine;
use crate::measure::{median, monotonic, process_time};
use crate::outcome::Outcome;
use crate::pool::{self, Bench};
use crate::progress::Progress;
use arck_pm::PersistOption;
use arckfs::Resolver;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// The trust group of all processes.
const GROUP: &str = "crew";
/// Nanoseconds in which threads start, before they begin.
const START: u64 = 5_000_000;

/// The controller is waited for in such steps, so many at most, until it takes no more nanoseconds of the processor in one of
/// them: it looks for requests for a moment behind each.
const SETTLE: Duration = Duration::from_millis(5);
const SETTLES: usize = 100;
const IDLE: u64 = 250_000;

/// What one process of a crew has to know.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Share<W> {
    /// What is done.
    pub work: W,
    /// Processes, and which of them this is.
    pub processes: u64,
    pub process: u64,
    /// Threads of each process.
    pub threads: u64,
    /// All is divided by this: 1, or more for a quick look.
    pub divisor: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Order<W> {
    Prepare(Share<W>),
    Run { at: u64 },
    Clean,
}

/// When the first thread began and the last was done (nanoseconds of the monotonic clock), what all did, and how many
/// nanoseconds of processor time their processes took for it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Span {
    begin: u64,
    end: u64,
    operations: u64,
    processor: f64,
}

/// Nanoseconds of an operation in a run: from one to the next, and of processor time, of the processes and of the controller.
#[derive(Clone, Copy, Default)]
struct Taken {
    time: f64,
    processor: f64,
    controller: f64,
}

/// What a thread does in a run; it answers how many operations that was.
pub type Turns<'c> = Box<dyn FnMut() -> Outcome<u64> + Send + 'c>;

/// A process that is prepared.
pub struct Prepared<'c> {
    pub threads: Vec<Turns<'c>>,
    /// Removes what was prepared or made.
    pub clean: Box<dyn FnOnce() -> Outcome<()> + 'c>,
}

/// Whether each round begins with something new, or goes on with what the one before has left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rounds {
    Anew,
    GoOn,
}

/// One side's processes.
struct Crew<W> {
    processes: Vec<Conversation>,
    share: Share<W>,
}

impl<W: Copy + Serialize> Crew<W> {
    fn start(bench: &Bench, task: &str, side: Side, share: Share<W>) -> Outcome<Crew<W>> {
        let start = |_| {
            let mut command = bench.worker(None)?;
            command.args(["--task", task]);
            match side {
                Side::Tmpfs => command.arg("--kernel"),
                Side::Arck(which) => {
                    let name = which.name();
                    command.args(["--fs", name, "--group", &format!("{GROUP}-{name}")])
                }
            };
            Conversation::start(command)
        };
        Ok(Crew {
            processes: (0..share.processes).map(start).collect::<Outcome<_>>()?,
            share,
        })
    }

    /// One after the other: the first makes what all share, and is the last to remove it.
    fn prepare(&mut self) -> Outcome<()> {
        for (process, worker) in self.processes.iter_mut().enumerate() {
            let share = Share {
                process: process as u64,
                ..self.share
            };
            let _: Option<Span> = worker.ask(&Order::Prepare(share))?;
        }
        Ok(())
    }

    fn clean(&mut self) -> Outcome<()> {
        for worker in self.processes.iter_mut().rev() {
            let _: Option<Span> = worker.ask(&Order::<W>::Clean)?;
        }
        Ok(())
    }

    fn run(&mut self, bench: &Bench) -> Outcome<Taken> {
        let before = bench.server_nanoseconds()?;
        let at = monotonic() + START;
        for worker in &mut self.processes {
            worker.tell(&Order::<W>::Run { at })?;
        }
        let mut all: Option<Span> = None;
        for worker in &mut self.processes {
            let span: Option<Span> = worker.hear()?;
            let span = span.ok_or("a worker measured nothing")?;
            all = Some(all.map_or(span, |all| all.and(span)));
        }
        let all = all.ok_or("there are no processes")?;
        settle(bench)?;
        let controller = (bench.server_nanoseconds()? - before) as f64;
        let operations = all.operations as f64;
        Ok(Taken {
            time: (all.end - all.begin) as f64 / operations,
            processor: all.processor / operations,
            controller: controller / operations,
        })
    }

    fn end(self) -> Outcome<()> {
        let mut processes = self.processes.into_iter();
        processes.try_for_each(Conversation::end)
    }
}

impl Span {
    fn and(self, other: Span) -> Span {
        Span {
            begin: self.begin.min(other.begin),
            end: self.end.max(other.end),
            operations: self.operations + other.operations,
            processor: self.processor + other.processor,
        }
    }
}

/// Waits until the controller has done what it was asked to do.
fn settle(bench: &Bench) -> Outcome<()> {
    let mut before = bench.server_nanoseconds()?;
    for _ in 0..SETTLES {
        std::thread::sleep(SETTLE);
        let now = bench.server_nanoseconds()?;
        if now - before < IDLE {
            break;
        }
        before = now;
    }
    Ok(())
}

/// Something to measure.
pub struct Task<W> {
    pub name: &'static str,
    pub setting: String,
    pub share: Share<W>,
    pub rounds: Rounds,
    pub wanted: Option<f64>,
}

/// What one side works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Tmpfs,
    Arck(Resolver),
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Tmpfs => "tmpfs",
            Side::Arck(Resolver::Tree) => "Arck",
            Side::Arck(Resolver::FullPaths) => "FPFS",
        }
    }
}

/// How a command was called.
pub struct How<'h> {
    /// The factor is the first's time by the second's.
    pub sides: [Side; 2],
    pub command: &'static str,
    /// What its workers are told that they are.
    pub task: &'static str,
    pub told: &'static str,
    pub rounds: usize,
    pub persist: PersistOption,
    pub arck: Option<&'h Path>,
    /// Bytes of the pool, and of memory that both sides need.
    pub pool: u64,
    pub memory: u64,
}

/// Measures all of it, each on a pool of its own.
pub fn measure<W: Copy + Serialize>(how: &How, tasks: &[Task<W>]) -> Outcome<Chapter> {
    let start = Instant::now();
    let machine = Machine::look();
    pool::need_memory(how.memory, how.command)?;
    let progress = Progress::new(how.command, tasks.len());
    let mut chapter = Chapter {
        command: how.command.to_owned(),
        told: how.told.to_owned(),
        machine,
        persist: how.persist.to_string(),
        flushing: String::new(),
        controller: String::new(),
        rounds: how.rounds,
        sides: how.sides.map(|side| side.name().to_owned()),
        shortened: None,
        seconds: 0.0,
        rows: Vec::new(),
    };
    for task in tasks {
        progress.next(format!("{}, {}", task.name, task.setting));
        let mut bench = Bench::start(how.pool, how.persist, how.arck)?;
        pool::policy_name(bench.policy).clone_into(&mut chapter.flushing);
        bench.server().clone_into(&mut chapter.controller);
        // Two of Arck's sides have a pool each.
        let mut other = match how.sides[0] {
            Side::Tmpfs => None,
            Side::Arck(_) => Some(Bench::start(how.pool, how.persist, how.arck)?),
        };
        let pairs = pairs([other.as_ref().unwrap_or(&bench), &bench], how, task)
            .map_err(|error| format!("{}, {}: {error}", task.name, task.setting))?;
        other.iter_mut().try_for_each(Bench::stop)?;
        bench.stop()?;
        let times: Vec<(f64, f64)> = { pairs.iter() }.map(|[a, b]| (a.time, b.time)).collect();
        chapter.rows.push(Row {
            processors: Some(Processors {
                tmpfs: median(pairs.iter().map(|pair| pair[0].processor)),
                arck: median(pairs.iter().map(|pair| pair[1].processor)),
                controller: median(pairs.iter().map(|pair| pair[1].controller)),
            }),
            ..Row::of_pairs(task.name, &task.setting, &times, task.wanted)
        });
    }
    chapter.seconds = start.elapsed().as_secs_f64();
    Ok(chapter)
}

/// What an operation took in each round, on the two sides.
fn pairs<W: Copy + Serialize>(
    benches: [&Bench; 2],
    how: &How,
    task: &Task<W>,
) -> Outcome<Vec<[Taken; 2]>> {
    let start = |side: usize| Crew::start(benches[side], how.task, how.sides[side], task.share);
    let mut sides = [start(0)?, start(1)?];
    let anew = task.rounds == Rounds::Anew;
    if !anew {
        sides.iter_mut().try_for_each(Crew::prepare)?;
    }
    let mut pairs = Vec::new();
    for round in 0..=how.rounds {
        let mut pair = [Taken::default(); 2];
        for turn in 0..2 {
            let side = (round + turn) % 2;
            let crew = &mut sides[side];
            if anew {
                crew.prepare()?;
            }
            pair[side] = crew.run(benches[side])?;
            if anew {
                crew.clean()?;
            }
        }
        if round > 0 {
            pairs.push(pair);
        }
    }
    for mut crew in sides {
        if !anew {
            crew.clean()?;
        }
        crew.end()?;
    }
    Ok(pairs)
}

/// In a worker: obeys orders until there are no more.
pub fn work<'c, C, W: DeserializeOwned>(
    calls: &'c C,
    prepare: impl Fn(&'c C, Share<W>) -> Outcome<Prepared<'c>>,
) -> Outcome<()> {
    let mut prepared: Option<Prepared> = None;
    conversation::answer(|order| match order {
        Order::Prepare(share) => {
            prepared = Some(prepare(calls, share)?);
            Ok(None)
        }
        Order::Run { at } => match &mut prepared {
            Some(prepared) => run(prepared, at).map(Some),
            None => Err("nothing is prepared".to_owned()),
        },
        Order::Clean => match prepared.take() {
            Some(prepared) => (prepared.clean)().map(|()| None),
            None => Err("nothing is prepared".to_owned()),
        },
    })
}

fn run(prepared: &mut Prepared, at: u64) -> Outcome<Span> {
    let one = |turns: &mut Turns| -> Outcome<Span> {
        std::thread::sleep(Duration::from_nanos(at.saturating_sub(monotonic())));
        let begin = monotonic();
        let operations = turns()?;
        Ok(Span {
            begin,
            end: monotonic(),
            operations,
            processor: 0.0,
        })
    };
    let before = process_time();
    let spans: Vec<Outcome<Span>> = std::thread::scope(|scope| {
        let threads = prepared.threads.iter_mut();
        let threads: Vec<_> = threads
            .map(|turns| scope.spawn(move || one(turns)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|result| result.unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect()
    });
    let spans: Vec<Span> = spans.into_iter().collect::<Outcome<_>>()?;
    let all = spans.into_iter().reduce(Span::and).map(|all| Span {
        processor: process_time() - before,
        ..all
    });
    all.ok_or_else(|| "there are no threads".to_owned())
}
