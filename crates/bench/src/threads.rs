//! `arck-bench threads`: what two threads of one process get done beside one, in directories and
//! files of their own and in shared ones, on ArckFS and on tmpfs.
//!
//! # Invariants
//! * A round measures one thread and two threads of one side directly after each other; factors
//!   are taken inside such pairs.
//! * All threads begin a phase together, without sleeping before it; it takes from when the first
//!   of them begins until the last of them is done.
//! * The same number of operations for each thread, whatever their number: 2.0 is perfect.

use crate::calls::Calls;
use crate::measure::{Random, median};
use crate::micro::Way;
use crate::outcome::Outcome;
use crate::pool::{self, Bench};
use arck_pm::PersistOption;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[derive(Args)]
#[command(
    after_help = "A machine that does anything else shows less than there is: two threads need two
processors."
)]
pub struct ThreadsArguments {
    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// Rounds that count
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,

    /// How ArckFS is called: preload, direct, or both with a comma between them
    #[arg(long, value_enum, value_delimiter = ',', default_value = "preload")]
    way: Vec<Way>,

    /// The command that serves the pool [default: the one beside this executable; else a fork]
    #[arg(long, value_name = "PATH")]
    arck: Option<std::path::PathBuf>,
}

/// One operation in one kind of place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scaling {
    pub operation: String,
    /// Nanoseconds an operation of one thread.
    pub tmpfs: f64,
    pub arckfs: f64,
    /// What two threads get done in the time in which one does 1.
    pub tmpfs_factor: f64,
    pub arckfs_factor: f64,
}

/// Files that each thread makes in a round.
const FILES: u64 = 2_500;
/// How often each is opened.
const OPENS: u64 = 16;
/// Pages of a file, and how many each thread reads and writes in a round.
const PAGES: u64 = 4000;
const ACCESSES: u64 = 20_000;
const PAGE: usize = 4096;
const FLAGS: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;

const PHASES: [&str; 5] = [
    "create+close",
    "open+close",
    "unlink",
    "read 4 KiB",
    "overwrite 4 KiB",
];

pub fn main(arguments: &ThreadsArguments) -> Outcome<()> {
    let arck = pool::find_command(arguments.arck.as_deref())?;
    let bench = Bench::start(1 << 30, arguments.persist, arck.as_deref())?;
    for &way in &arguments.way {
        let library = match way {
            Way::Direct => None,
            Way::Preload => Some(
                pool::find_library().ok_or("libarck_preload.so is not beside this executable")?,
            ),
        };
        let output = bench
            .worker(library.as_deref())?
            .args(["--task", "threads"])
            .args(["--rounds", &arguments.rounds.to_string()])
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("starting a worker: {error}"))?;
        if !output.status.success() {
            return Err(format!("a worker failed: {}", output.status));
        }
        let all: Vec<Scaling> = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("a worker's answer makes no sense: {error}"))?;
        let name = match way {
            Way::Direct => "Rust API",
            Way::Preload => "preload",
        };
        println!(
            "\nTwo threads beside one, --persist {}, {name}:\n",
            arguments.persist
        );
        println!("| operation | tmpfs ns | factor | ArckFS ns | factor |");
        println!("| --- | ---: | ---: | ---: | ---: |");
        for one in all {
            println!(
                "| {} | {:.0} | {:.2} | {:.0} | {:.2} |",
                one.operation, one.tmpfs, one.tmpfs_factor, one.arckfs, one.arckfs_factor
            );
        }
    }
    Ok(())
}

/// In the worker.
pub fn measure<O: Calls + Sync, T: Calls + Sync>(
    ours: &O,
    theirs: &T,
    rounds: usize,
) -> Outcome<Vec<Scaling>>
where
    O::File: Send,
    T::File: Send,
{
    let mut all = Vec::new();
    for shared in [false, true] {
        // Of each side: of each phase, the pairs of nanoseconds.
        let mut times = [const { [const { Vec::new() }; PHASES.len()] }; 2];
        for round in 0..=rounds {
            let pairs = [
                [one_round(theirs, 1, shared)?, one_round(theirs, 2, shared)?],
                [one_round(ours, 1, shared)?, one_round(ours, 2, shared)?],
            ];
            if round == 0 {
                continue;
            }
            for (side, [one, two]) in times.iter_mut().zip(pairs) {
                for (phase, list) in side.iter_mut().enumerate() {
                    list.push((one[phase], two[phase]));
                }
            }
        }
        let place = if shared { "shared" } else { "private" };
        let time = |list: &[(f64, f64)]| median(list.iter().map(|pair| pair.0));
        let factor = |list: &[(f64, f64)]| median(list.iter().map(|(one, two)| 2.0 * one / two));
        for (phase, name) in PHASES.iter().enumerate() {
            all.push(Scaling {
                operation: format!("{name}, {place}"),
                tmpfs: time(&times[0][phase]),
                arckfs: time(&times[1][phase]),
                tmpfs_factor: factor(&times[0][phase]),
                arckfs_factor: factor(&times[1][phase]),
            });
        }
    }
    Ok(all)
}

/// Nanoseconds an operation of one thread, for each phase.
fn one_round<C: Calls + Sync>(calls: &C, threads: u64, shared: bool) -> Outcome<[f64; PHASES.len()]>
where
    C::File: Send,
{
    let directory =
        |thread: u64| calls.path(&format!("threads-{}", if shared { 0 } else { thread }));
    let data = |thread: u64| calls.path(&format!("data-{}", if shared { 0 } else { thread }));
    let places = if shared { 1 } else { threads };
    for place in 0..places {
        calls.make_directory(&directory(place))?;
        let file = calls.open(&data(place), FLAGS)?;
        for page in 0..PAGES {
            calls.write(file, &[1; PAGE], page * PAGE as u64)?;
        }
        calls.close(file);
    }
    let arrived = AtomicU64::new(0);
    // All have arrived at the beginning of a phase when its number of threads has.
    let meet = |phase: usize| {
        arrived.fetch_add(1, Ordering::SeqCst);
        while arrived.load(Ordering::SeqCst) < (phase as u64 + 1) * threads {
            std::hint::spin_loop();
        }
    };
    let results: Vec<Outcome<Times>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (meet, data) = (&meet, data(thread));
                let base = if shared { 0 } else { thread };
                let paths: Vec<CString> = (0..FILES)
                    .map(|file| calls.path(&format!("threads-{base}/{thread}-{file}")))
                    .collect();
                scope.spawn(move || one_thread(calls, meet, &paths, &data, thread))
            })
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .map(|result| result.unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect()
    });
    for place in 0..places {
        calls.unlink(&data(place))?;
        calls.remove_directory(&directory(place))?;
    }
    let all = results.into_iter().collect::<Outcome<Vec<Times>>>()?;
    Ok(std::array::from_fn(|phase| {
        let begin = all
            .iter()
            .filter_map(|times| times.get(phase))
            .map(|time| time.0)
            .min();
        let end = all
            .iter()
            .filter_map(|times| times.get(phase))
            .map(|time| time.1)
            .max();
        let operations = [FILES, OPENS * FILES, FILES, ACCESSES, ACCESSES][phase];
        match (begin, end) {
            (Some(begin), Some(end)) => (end - begin).as_nanos() as f64 / operations as f64,
            _ => f64::NAN,
        }
    }))
}

/// When one thread began and ended each phase.
type Times = Vec<(Instant, Instant)>;

fn one_thread<C: Calls>(
    calls: &C,
    meet: &impl Fn(usize),
    paths: &[CString],
    data: &CString,
    thread: u64,
) -> Outcome<Times> {
    let file = calls.open(data, libc::O_RDWR)?;
    let random = Random(thread).below(PAGES, ACCESSES);
    let mut buffer = [thread as u8; PAGE];
    let mut times = Vec::with_capacity(PHASES.len());
    let mut failure: Outcome<()> = Ok(());
    // Once to warm up: inode numbers and memory are asked for, and stay with the thread.
    let make = || {
        paths.iter().try_for_each(|path| {
            calls.close(calls.open(path, FLAGS)?);
            Ok(())
        })
    };
    let remove = || paths.iter().try_for_each(|path| calls.unlink(path));
    let warm = make().and_then(|()| remove());
    failure = failure.and(warm);
    for phase in 0..PHASES.len() {
        // Whoever fails comes to the other meetings too.
        meet(phase);
        if failure.is_err() {
            continue;
        }
        let begin = Instant::now();
        failure = match phase {
            0 => make(),
            1 => (0..OPENS).flat_map(|_| paths).try_for_each(|path| {
                calls.close(calls.open(path, libc::O_RDONLY)?);
                Ok(())
            }),
            2 => remove(),
            3 => random
                .iter()
                .try_for_each(|page| calls.read(file, &mut buffer, page * PAGE as u64)),
            _ => random
                .iter()
                .try_for_each(|page| calls.write(file, &buffer, page * PAGE as u64)),
        };
        times.push((begin, Instant::now()));
    }
    calls.close(file);
    failure.map(|()| times)
}
