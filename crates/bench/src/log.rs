//! `arck-bench log`: appending records that are durable, by some writers, and following them: the log of
//! `arck-logfs` beside ArckFS and tmpfs.
//!
//! A program without a log appends by `write` with O_APPEND, and `fsync`.
//!
//! # Invariants
//! * All are measured in one process, ArckFS and the log on one pool, each in its own session; rounds of the three
//!   take turns, and which is first does too.
//! * All threads begin a round together, in a file that is empty or a log that has been cut; it takes until the last
//!   of them is done.
//! * A follower's latency is from before the append until it has the record, on one clock.

use crate::latencies::{Latencies, Stopwatch};
use crate::machine::Machine;
use crate::measure::{self, median, monotonic};
use crate::outcome::Outcome;
use crate::output::{Output, Report};
use crate::pool::{self, Bench};
use arck_logfs::{Log, Options};
use arck_pm::PersistOption;
use arckfs::{At, ConnectOptions, FileSystem, Handle};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench log                       1 and 8 writers, followers
  arck-bench log --writers 1,2,4,8 --rounds 5
  arck-bench log --persist never")]
pub struct LogArguments {
    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// Rounds that count, on each side
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,

    /// Writers: threads, up to 64, some numbers of them with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,8",
        value_parser = clap::value_parser!(u64).range(1..=64))]
    writers: Vec<u64>,

    /// Records of all writers in a round: so many that threads which have to
    /// take turns do so often
    #[arg(long, value_name = "N", default_value_t = 160_000,
        value_parser = clap::value_parser!(u64).range(1_000..))]
    records: u64,

    #[command(flatten)]
    output: Output,
}

/// Writers that append records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub writers: u64,
    /// How many of a writer's records are made durable together.
    pub together: u64,
    pub bytes: usize,
    /// Nanoseconds a record, medians.
    pub tmpfs: f64,
    pub arckfs: f64,
    pub log: f64,
    /// Medians of the ratios of the rounds: above 1, the log is faster.
    pub to_tmpfs: f64,
    pub to_arckfs: f64,
}

/// A follower.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Followed {
    pub follower: String,
    /// Microseconds between two records.
    pub pause: u64,
    pub latencies: Latencies,
}

/// What a worker tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub rows: Vec<Row>,
    pub followed: Vec<Followed>,
}

#[derive(Serialize)]
struct Told {
    machine: Machine,
    persist: String,
    flushing: String,
    controller: String,
    rounds: usize,
    measured: Measured,
}

const POOL_SIZE: u64 = 2 << 30;
const BYTES: [usize; 3] = [64, 256, 4096];
/// No more bytes than these are appended in a round.
const BYTES_MOST: u64 = 256 << 20;
/// A follower sees one in so many of them.
const FOLLOWED: u64 = 40;
/// Microseconds between two of them.
const PAUSES: [u64; 2] = [50, 500];
const SIDES: usize = 3;
/// How many records a writer makes durable together.
const TOGETHER: [u64; 2] = [1, 8];

/// Where records are appended.
trait Appending: Sync {
    /// Empty, for a round.
    fn begin(&self) -> Outcome<()>;
    /// So many records, durable afterwards.
    fn append(&self, record: &[u8], count: u64) -> Outcome<()>;
}

struct OnTmpfs {
    path: PathBuf,
    file: File,
}

impl Appending for OnTmpfs {
    fn begin(&self) -> Outcome<()> {
        let cut = self.file.set_len(0);
        cut.map_err(|error| format!("{}: {error}", self.path.display()))
    }
    #[inline]
    fn append(&self, record: &[u8], count: u64) -> Outcome<()> {
        let appended = (0..count)
            .try_for_each(|_| (&self.file).write_all(record))
            .and_then(|()| self.file.sync_all());
        appended.map_err(|error| error.to_string())
    }
}

struct OnArckFs<'f> {
    files: &'f FileSystem,
    handle: Handle,
}

impl Appending for OnArckFs<'_> {
    fn begin(&self) -> Outcome<()> {
        let cut = self.files.truncate_handle(self.handle, 0);
        cut.map_err(|errno| errno.to_string())
    }
    #[inline]
    fn append(&self, record: &[u8], count: u64) -> Outcome<()> {
        for _ in 0..count {
            match self.files.write(self.handle, record, None) {
                Ok(length) if length == record.len() => {}
                other => return Err(format!("append: {other:?}")),
            }
        }
        self.files
            .sync(self.handle)
            .map_err(|errno| errno.to_string())
    }
}

impl Appending for Log {
    fn begin(&self) -> Outcome<()> {
        let cut = self.end().and_then(|end| self.cut(end));
        cut.map_err(|error| error.to_string())
    }
    #[inline]
    fn append(&self, record: &[u8], count: u64) -> Outcome<()> {
        // The last takes along what is enqueued.
        let appended = (1..count)
            .try_for_each(|_| self.enqueue(record).map(drop))
            .and_then(|()| Log::append(self, record));
        appended.map(|_| ()).map_err(|error| error.to_string())
    }
}

pub fn main(arguments: &LogArguments) -> Outcome<()> {
    let machine = Machine::look();
    let arck = arguments.output.command()?;
    let mut bench = Bench::start(POOL_SIZE, arguments.persist, arck.as_deref())?;
    let writers = arguments.writers.iter().map(u64::to_string);
    let (rounds, records) = (arguments.rounds.to_string(), arguments.records.to_string());
    let writers = writers.collect::<Vec<_>>().join(",");
    let given = [
        "--rounds",
        &rounds,
        "--filter",
        &writers,
        "--records",
        &records,
    ];
    let measured = bench.answer("log", &given)?;
    let told = Told {
        machine,
        persist: arguments.persist.to_string(),
        flushing: pool::policy_name(bench.policy).to_owned(),
        controller: bench.server().to_owned(),
        rounds: arguments.rounds,
        measured,
    };
    bench.stop()?;
    arguments.output.publish(&told)
}

impl Report for Told {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write;
        writeln!(
            text,
            "{}.\nRecords appended, so many of a writer made durable together: tmpfs and ArckFS (Rust API) by write with \
             O_APPEND and an fsync, the log by enqueue and append; `--persist {}` ({}); controller: {}. Nanoseconds a record of all writers; medians of {} rounds \
             on each side, taking turns in one process; factors are medians of those of the rounds.\n",
            self.machine, self.persist, self.flushing, self.controller, self.rounds
        )?;
        writeln!(
            text,
            "| writers | together | bytes | tmpfs | ArckFS | log | tmpfs / log | ArckFS / log |"
        )?;
        writeln!(
            text,
            "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        )?;
        for row in &self.measured.rows {
            writeln!(
                text,
                "| {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} |",
                row.writers,
                row.together,
                row.bytes,
                row.tmpfs,
                row.arckfs,
                row.log,
                row.to_tmpfs,
                row.to_arckfs
            )?;
        }
        writeln!(
            text,
            "\nFrom before an append until a follower has the record, microseconds:\n"
        )?;
        writeln!(
            text,
            "| follower | a record every | median | 99 % | longest |"
        )?;
        writeln!(text, "| --- | ---: | ---: | ---: | ---: |")?;
        for one in &self.measured.followed {
            let Latencies {
                middle,
                percent_99,
                longest,
                ..
            } = one.latencies;
            writeln!(
                text,
                "| {} | {} µs | {:.1} | {:.1} | {:.0} |",
                one.follower,
                one.pause,
                middle / 1e3,
                percent_99 / 1e3,
                longest / 1e3
            )?;
        }
        Ok(())
    }
}

/// In the worker.
pub fn measure(
    (pool, tmpfs): (&Path, &Path),
    writers: &str,
    records: u64,
    rounds: usize,
) -> Outcome<Measured> {
    let writers = writers.split(',').map(str::parse::<u64>);
    let writers = writers.collect::<Result<Vec<_>, _>>();
    let writers = writers.map_err(|error| format!("writers: {error}"))?;
    let open = |group: &str, name: &str| {
        let options = Options {
            make: true,
            group: group.to_owned(),
            ..Options::new(pool)
        };
        Log::open(options, name).map_err(|error| error.to_string())
    };
    let rows = {
        let log = open("", "log")?;
        let files = FileSystem::connect(&ConnectOptions {
            pool: pool.to_path_buf(),
            mount: crate::pool::MOUNT.into(),
            group: Vec::new(),
            resolver: arckfs::Resolver::default(),
        });
        let files = files.map_err(|error| error.to_string())?;
        let flags = libc::O_CREAT | libc::O_APPEND | libc::O_WRONLY;
        let handle = files
            .open(At::Root, b"appended", flags, 0o644)
            .map_err(|failure| format!("{failure:?}"))?;
        let path = tmpfs.join("appended");
        let file = File::options().create(true).append(true).open(&path);
        let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
        let files = &files;
        let sides: [&dyn Appending; SIDES] =
            [&OnTmpfs { path, file }, &OnArckFs { files, handle }, &log];
        rows(&sides, &writers, records, rounds)?
    };
    let log = open("followed", "followed")?;
    let (member, other) = (open("followed", "followed")?, open("", "followed")?);
    let mut followed = Vec::new();
    for (name, follower) in [
        ("of the same process", &log),
        ("of the group", &member),
        ("of another session", &other),
    ] {
        for pause in PAUSES {
            followed.push(Followed {
                follower: name.to_owned(),
                pause,
                latencies: follow(&log, follower, pause, records / FOLLOWED)?,
            });
        }
    }
    Ok(Measured { rows, followed })
}

fn rows(
    sides: &[&dyn Appending; SIDES],
    writers: &[u64],
    records: u64,
    rounds: usize,
) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for &writers in writers {
        let each = TOGETHER
            .iter()
            .flat_map(|&one| BYTES.map(|bytes| (one, bytes)));
        for (together, bytes) in each {
            let turns = records.min(BYTES_MOST / bytes as u64) / writers / together;
            let mut times = [const { Vec::new() }; SIDES];
            for round in 0..=rounds {
                for turn in 0..SIDES {
                    let side = (round + turn) % SIDES;
                    let time = one_round(sides[side], writers, (turns, together), bytes)?;
                    // The first is to warm up.
                    if round > 0 {
                        times[side].push(time);
                    }
                }
            }
            let [tmpfs, arckfs, log] = &times;
            let ratio =
                |side: &Vec<f64>| median(side.iter().zip(log).map(|(other, log)| other / log));
            rows.push(Row {
                writers,
                together,
                bytes,
                tmpfs: median(tmpfs.iter().copied()),
                arckfs: median(arckfs.iter().copied()),
                log: median(log.iter().copied()),
                to_tmpfs: ratio(tmpfs),
                to_arckfs: ratio(arckfs),
            });
        }
    }
    Ok(rows)
}

/// Nanoseconds a record. Each writer has so many turns of so many records.
fn one_round(
    side: &dyn Appending,
    writers: u64,
    (turns, together): (u64, u64),
    bytes: usize,
) -> Outcome<f64> {
    side.begin()?;
    let arrived = AtomicU64::new(0);
    let one = |writer: u64| -> Outcome<(Instant, Instant)> {
        let record = vec![writer as u8 + 1; bytes];
        arrived.fetch_add(1, Ordering::SeqCst);
        while arrived.load(Ordering::SeqCst) < writers {
            std::thread::yield_now();
        }
        let begin = Instant::now();
        for _ in 0..turns {
            side.append(&record, together)?;
        }
        Ok((begin, Instant::now()))
    };
    let took = measure::together(writers, one)?;
    Ok(took.as_nanos() as f64 / (turns * together * writers) as f64)
}

/// How long it takes until a follower has `count` records, of which one comes every `pause` microseconds.
fn follow(log: &Log, by: &Log, pause: u64, count: u64) -> Outcome<Latencies> {
    const RECORD: usize = 64;
    let failed = |error: arck_logfs::Error| error.to_string();
    let begin = log.end().map_err(failed)?;
    std::thread::scope(|scope| {
        let follower = scope.spawn(move || -> Outcome<Latencies> {
            let mut follower = by.follow(begin).map_err(failed)?;
            let mut watch = Stopwatch::new()?;
            let mut record = [0; RECORD];
            for _ in 0..count {
                let read = follower.next(&mut record, Duration::from_secs(10));
                let now = monotonic();
                match (read.map_err(failed)?, record.first_chunk()) {
                    (RECORD, Some(sent)) => {
                        watch.add(now.saturating_sub(u64::from_le_bytes(*sent)))
                    }
                    (read, _) => return Err(format!("{read} bytes of a record")),
                }
            }
            Ok(watch.latencies())
        });
        for _ in 0..count {
            std::thread::sleep(Duration::from_micros(pause));
            let mut record = [1; RECORD];
            record[..8].copy_from_slice(&monotonic().to_le_bytes());
            log.append(&record).map_err(failed)?;
        }
        follower.join().map_err(|_| "a follower panicked")?
    })
}
