//! `arck-bench webproxy`: small files as values, by KVFS and by ArckFS beside each other: the mix of a web
//! proxy's cache (Filebench's `webproxy`, by which Trio measures its KVFS), and its parts.
//!
//! A turn of the mix takes one file away, makes it anew, and reads five others, each as a whole. ArckFS does
//! this as programs do: open, one read or write, close; unlink.
//!
//! # Invariants
//! * Both are measured in one process, on one pool, each in its own session and directory, by the same
//!   turns with the same sizes; rounds of the one and the other alternate, and which is first does too.
//! * All threads begin a round together; it takes until the last of them is done.
//! * What a thread reads of its own files has something in it; of another's it may be taken away, or, of
//!   ArckFS, truncated and not written yet.

use crate::machine::Machine;
use crate::measure::{self, Random, median};
use crate::outcome::Outcome;
use crate::output::{Output, Report};
use crate::pool::{self, Bench};
use arck_kvfs::{Options, Store, VALUE_MAX};
use arck_pm::PersistOption;
use arckfs::{At, ConnectOptions, Errno, FileSystem};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench webproxy                  two threads, 16 KiB on average
  arck-bench webproxy --mean 2K        smaller values
  arck-bench webproxy --threads 1 --persist never")]
pub struct WebproxyArguments {
    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// Rounds that count, on each side
    #[arg(long, value_name = "N", default_value_t = 15)]
    rounds: usize,

    /// Threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: u64,

    /// Bytes of a value on average, at most 16K
    #[arg(long, value_name = "SIZE", default_value = "16K", value_parser = pool::parse_size)]
    mean: u64,

    #[command(flatten)]
    output: Output,
}

/// One kind of turns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub turns: String,
    /// Nanoseconds a turn of one thread, medians.
    pub arckfs: f64,
    pub kvfs: f64,
    /// Median of the ratios of the pairs: above 1, KVFS is faster.
    pub ratio: f64,
}

#[derive(Serialize)]
struct Told {
    machine: Machine,
    persist: String,
    flushing: String,
    controller: String,
    threads: u64,
    mean: u64,
    rounds: usize,
    rows: Vec<Row>,
}

/// What turns there are, and how many of them a thread makes in a round.
const KINDS: [(&str, u64); 4] = [
    ("webproxy: delete, set, 5 gets", 2_000),
    ("get", 10_000),
    ("set, of a key that has a value", 2_500),
    ("delete, set", 2_500),
];
const KEYS: u64 = 1_000;
/// Credits for the deltas of both sessions are in it: each delta page keeps 40 metadata pages free, and a file of
/// more than a page has one. In a pool of 1 GiB there are too few for two threads' files, and whoever asks for
/// more folds all that he has, in each round: then the times are the controller's.
const POOL_SIZE: u64 = 4 << 30;
const GETS: usize = 5;

/// Reads, writes and takes away whole files.
trait Files: Sync {
    /// Bytes read; `None` if there is no such file.
    fn get(&self, key: &str, value: &mut [u8; VALUE_MAX]) -> Outcome<Option<usize>>;
    fn set(&self, key: &str, value: &[u8]) -> Outcome<()>;
    fn delete(&self, key: &str) -> Outcome<()>;
}

impl Files for Store {
    #[inline]
    fn get(&self, key: &str, value: &mut [u8; VALUE_MAX]) -> Outcome<Option<usize>> {
        let got = self.get_into(key.as_bytes(), value);
        got.map_err(|error| error.to_string())
    }
    #[inline]
    fn set(&self, key: &str, value: &[u8]) -> Outcome<()> {
        let set = Store::set(self, key.as_bytes(), value);
        set.map_err(|error| error.to_string())
    }
    #[inline]
    fn delete(&self, key: &str) -> Outcome<()> {
        let deleted = Store::delete(self, key.as_bytes());
        deleted.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl Files for FileSystem {
    #[inline]
    fn get(&self, key: &str, value: &mut [u8; VALUE_MAX]) -> Outcome<Option<usize>> {
        let file = match self.open(At::Root, key.as_bytes(), libc::O_RDONLY, 0) {
            Err(failure) if failure == Errno::NOENT.into() => return Ok(None),
            opened => opened.map_err(|failure| format!("open {key}: {failure:?}"))?,
        };
        let read = self.read(file, value, None);
        self.close(file);
        read.map(Some)
            .map_err(|errno| format!("read {key}: {errno}"))
    }
    #[inline]
    fn set(&self, key: &str, value: &[u8]) -> Outcome<()> {
        let flags = libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY;
        let file = self
            .open(At::Root, key.as_bytes(), flags, 0o644)
            .map_err(|failure| format!("open {key}: {failure:?}"))?;
        let mut done = 0;
        let mut written = Ok(0);
        while done < value.len() {
            // As a program does: what a call has room for may be less.
            written = self.write(file, &value[done..], None);
            match written {
                Ok(length @ 1..) => done += length,
                _ => break,
            }
        }
        self.close(file);
        match done == value.len() {
            true => Ok(()),
            false => Err(format!("write {key}: {written:?} after {done}")),
        }
    }
    #[inline]
    fn delete(&self, key: &str) -> Outcome<()> {
        let unlinked = self.unlink(At::Root, key.as_bytes(), 0);
        unlinked.map_err(|failure| format!("unlink {key}: {failure:?}"))
    }
}

pub fn main(arguments: &WebproxyArguments) -> Outcome<()> {
    if !(1..=VALUE_MAX as u64 / 2).contains(&arguments.mean) || arguments.threads == 0 {
        return Err("--mean is 1 to 16K, and there is a thread".into());
    }
    let machine = Machine::look();
    let arck = arguments.output.command()?;
    let mut bench = Bench::start(POOL_SIZE, arguments.persist, arck.as_deref())?;
    let [rounds, threads, mean] = [
        arguments.rounds.to_string(),
        arguments.threads.to_string(),
        arguments.mean.to_string(),
    ];
    let given = ["--rounds", &rounds, "--threads", &threads, "--mean", &mean];
    let rows = bench.answer("webproxy", &given)?;
    let told = Told {
        machine,
        persist: arguments.persist.to_string(),
        flushing: pool::policy_name(bench.policy).to_owned(),
        controller: bench.server().to_owned(),
        threads: arguments.threads,
        mean: arguments.mean,
        rounds: arguments.rounds,
        rows,
    };
    bench.stop()?;
    arguments.output.publish(&told)
}

impl Report for Told {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write;
        writeln!(
            text,
            "{}.\nKVFS and ArckFS (Rust API), {} thread(s), {KEYS} files for each in one directory, values of 1 \
             to {} bytes; `--persist {}` ({}); controller: {}. Nanoseconds a turn of one thread; medians of {} \
             rounds on each side, alternating in one process; factor = ArckFS / KVFS, median of the pairs.\n",
            self.machine,
            self.threads,
            2 * self.mean - 1,
            self.persist,
            self.flushing,
            self.controller,
            self.rounds
        )?;
        writeln!(text, "| turn | ArckFS | KVFS | factor |")?;
        writeln!(text, "| --- | ---: | ---: | ---: |")?;
        for row in &self.rows {
            let Row {
                turns,
                arckfs,
                kvfs,
                ratio,
            } = row;
            writeln!(text, "| {turns} | {arckfs:.0} | {kvfs:.0} | {ratio:.2} |")?;
        }
        Ok(())
    }
}

/// In the worker.
pub fn measure(pool: &Path, threads: u64, mean: u64, rounds: usize) -> Outcome<Vec<Row>> {
    let made = |options| Options {
        make: true,
        ..options
    };
    let store = Store::open(made(Options::new(pool)), "kvfs").map_err(|error| error.to_string())?;
    let options = ConnectOptions {
        pool: pool.to_path_buf(),
        mount: crate::pool::MOUNT.into(),
        group: Vec::new(),
        resolver: arckfs::Resolver::default(),
    };
    let files = FileSystem::connect(&options).map_err(|error| error.to_string())?;
    files
        .make_directory(At::Root, b"arckfs", 0o755)
        .map_err(|failure| format!("{failure:?}"))?;
    let names = |before: &str| -> Vec<String> {
        let keys = 0..threads * KEYS;
        keys.map(|key| format!("{before}file-{key}")).collect()
    };
    let sides: [(&dyn Files, Vec<String>); 2] = [(&files, names("arckfs/")), (&store, names(""))];
    let mut rows = Vec::new();
    for (kind, (turns, _)) in KINDS.iter().enumerate() {
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            for turn in 0..2 {
                let side = (round + turn) % 2;
                let (files, names) = &sides[side];
                let time = one_round(*files, names, kind, threads, mean, round as u64)?;
                // The first is to warm up.
                if round > 0 {
                    times[side].push(time);
                }
            }
        }
        let [arckfs, kvfs] = &times;
        rows.push(Row {
            turns: (*turns).to_owned(),
            arckfs: median(arckfs.iter().copied()),
            kvfs: median(kvfs.iter().copied()),
            ratio: median(arckfs.iter().zip(kvfs).map(|(one, other)| one / other)),
        });
    }
    Ok(rows)
}

/// Nanoseconds a turn.
fn one_round(
    files: &dyn Files,
    names: &[String],
    kind: usize,
    threads: u64,
    mean: u64,
    round: u64,
) -> Outcome<f64> {
    let arrived = AtomicU64::new(0);
    let meet = || {
        arrived.fetch_add(1, Ordering::SeqCst);
        while arrived.load(Ordering::SeqCst) < threads {
            std::hint::spin_loop();
        }
    };
    let one = |thread: u64| -> Outcome<(Instant, Instant)> {
        let mut random = Random(thread << 32 | round);
        let data = vec![thread as u8 + 1; VALUE_MAX];
        let mut value = Box::new([0; VALUE_MAX]);
        let own = &names[(thread * KEYS) as usize..][..KEYS as usize];
        let sizes = random.below(2 * mean - 1, KEYS);
        let size = |key: usize| sizes[key] as usize + 1;
        let filled = (0..own.len()).try_for_each(|key| files.set(&own[key], &data[..size(key)]));
        // Whoever fails comes to the meeting too.
        meet();
        filled?;
        let turns = KINDS[kind].1;
        let picks = random.below(KEYS, turns);
        let reads = random.below(names.len() as u64, turns * GETS as u64);
        let get = |name: &str, value: &mut [u8; VALUE_MAX]| match files.get(name, value)? {
            Some(0) => Err(format!("{name}: empty")),
            _ => Ok(()),
        };
        let begin = Instant::now();
        for (turn, &pick) in picks.iter().enumerate() {
            let key = pick as usize;
            if kind == 0 || kind == 3 {
                files.delete(&own[key])?;
            }
            if kind != 1 {
                files.set(&own[key], &data[..size(key)])?;
            }
            match kind {
                0 => reads[turn * GETS..][..GETS].iter().try_for_each(|&read| {
                    files.get(&names[read as usize], &mut value).map(|_| ())
                })?,
                1 => get(&own[key], &mut value)?,
                _ => {}
            }
        }
        Ok((begin, Instant::now()))
    };
    let took = measure::together(threads, one)?;
    Ok(took.as_nanos() as f64 / KINDS[kind].1 as f64)
}
