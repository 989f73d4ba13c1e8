//! An emulated medium beside its description: whether the waits of `arck-pm` add up to what the file says.
//!
//! # Invariants
//! * One node is measured, since the file says what a node does: the medium is emulated with all memory on one.
//! * All threads are counted in one window of time, in which all of them run; of an access across its border, the share
//!   that lies inside.
//! * Where this machine is slower than the file, it cannot be as fast: the same work without the medium is beside it.
// What the bare stores cost: no order is to be had here.
#![allow(clippy::disallowed_methods)]

use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::output::Report;
use crate::progress::Progress;
use arck_medium::Medium;
use arck_pm::medium::{Model, Way, emulate, make_page, note_pool, stop};
use arck_pm::{PersistPolicy, SharedBytes, set_policy};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

/// Streamed writes and reads of 2 MiB and 4 KiB by 1 to 64 threads, beside what the description says
///
/// EXAMPLES
///   arck-bench medium                        Optane
///   arck-bench medium --medium cxl --quick
///   arck-bench medium --medium mine.toml --json medium.json
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct MediumArguments {
    /// Fewer threads, and less time for each
    #[arg(long)]
    quick: bool,
    /// Also write everything measured to this file
    #[arg(long, value_name = "FILE")]
    json: Option<std::path::PathBuf>,
}

/// What is measured where nobody says.
const DEFAULT: &str = "optane";
const LARGE: usize = 2 << 20;
const SMALL: usize = 4 << 10;
const LINE: usize = 64;
/// Found beside the file, at most.
const TOLERANCE: f64 = 0.1;

/// One number of threads.
#[derive(Serialize)]
struct Row {
    threads: u32,
    /// GB/s: the file's, found, and found without a medium.
    file: f64,
    found: f64,
    machine: f64,
}

impl Row {
    /// What can be had: what the file says, and no more than the machine gives.
    fn expected(&self) -> f64 {
        self.file.min(self.machine)
    }

    fn is_right(&self) -> bool {
        (self.found / self.expected() - 1.0).abs() <= TOLERANCE
    }
}

/// Accesses of one size one way.
#[derive(Serialize)]
struct Table {
    what: &'static str,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Found {
    machine: Machine,
    medium: String,
    about: String,
    nodes: u32,
    tables: Vec<Table>,
    /// Nanoseconds of a line stored, flushed and fenced: the file's, found, without a medium.
    fence: [f64; 3],
}

/// One thread's memory: a place in the medium, and a buffer.
struct Place<'a> {
    bytes: SharedBytes<'a>,
    at: usize,
    buffer: Vec<u8>,
}

impl Place<'_> {
    fn access(&mut self, way: Way) -> Option<()> {
        match way {
            Way::Write => {
                self.bytes.stream_from(self.at, &self.buffer)?;
                arck_pm::fence();
                Some(())
            }
            Way::Read => self.bytes.copy_to(self.at, &mut self.buffer),
        }
    }
}

/// How long threads run before they are counted, for each: all of them have to have come to run.
const WARM_UP: Duration = Duration::from_millis(4);

/// GB/s of `threads` for `time`.
fn rate(bytes: SharedBytes<'_>, way: Way, size: usize, threads: u32, time: Duration) -> f64 {
    let barrier = Barrier::new(threads as usize);
    let window = OnceLock::new();
    let one = |thread: u32| {
        let mut place = Place {
            bytes,
            at: thread as usize * LARGE % bytes.len(),
            buffer: vec![0x5a; size],
        };
        barrier.wait();
        let begin = *window.get_or_init(|| Instant::now() + time / 5 + WARM_UP * threads);
        let end = begin + time;
        let (mut moved, mut from) = (0.0, Instant::now());
        while from < end {
            place.access(way)?;
            let to = Instant::now();
            let counted = to.min(end).saturating_duration_since(from.max(begin));
            let all = to.duration_since(from).as_secs_f64();
            if !counted.is_zero() {
                moved += size as f64 * (counted.as_secs_f64() / all);
            }
            from = to;
        }
        Some(moved)
    };
    std::thread::scope(|scope| {
        let one = &one;
        let all: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        let moved = all.into_iter().map(|thread| thread.join().ok().flatten());
        let moved: f64 = moved.map(|moved| moved.unwrap_or(f64::NAN)).sum();
        moved / time.as_nanos() as f64
    })
}

/// Nanoseconds of one of many lines that are stored, flushed and fenced.
fn line(bytes: SharedBytes<'_>) -> Outcome<f64> {
    const LINES: usize = 20_000;
    let begun = Instant::now();
    for index in 0..LINES {
        let at = index * 4 * LINE % bytes.len();
        let stored = bytes.store_u64(at, index as u64, Ordering::Relaxed);
        stored
            .and_then(|()| bytes.flush(at, LINE))
            .ok_or("a line outside the memory")?;
        arck_pm::fence();
    }
    Ok(begun.elapsed().as_nanos() as f64 / LINES as f64)
}

/// What the description lets `threads` do, in GB/s: nobody's access is shorter than the latency.
fn promised(model: &Model, way: Way, size: usize, threads: u32) -> f64 {
    let direction = model.direction(way);
    let alone = f64::from(threads) * size as f64 / f64::from(direction.latency.max(1));
    (direction.bandwidth(threads, size) / 1000.0).min(alone)
}

/// Emulates a medium until it is dropped.
struct Emulation;

impl Emulation {
    fn begin(model: &Model, bytes: SharedBytes<'_>) -> Outcome<Emulation> {
        // A page of its own, on which there is nobody yet.
        let page = make_page(model).map_err(|error| error.to_string())?;
        emulate(page).map_err(|error| error.to_string())?;
        note_pool(bytes.as_ptr());
        Ok(Emulation)
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        stop();
    }
}

const CASES: [(&str, Way, usize); 4] = [
    ("streamed writes of 2 MiB", Way::Write, LARGE),
    ("streamed writes of 4 KiB", Way::Write, SMALL),
    ("reads of 2 MiB", Way::Read, LARGE),
    ("reads of 4 KiB", Way::Read, SMALL),
];

fn measure(medium: &Medium, is_quick: bool) -> Outcome<Found> {
    let model = Model {
        nodes: 1,
        ..medium.model
    };
    let (threads, time) = match is_quick {
        true => (&[1, 4, 16][..], Duration::from_millis(60)),
        false => (&[1, 2, 4, 8, 16, 32, 64][..], Duration::from_millis(400)),
    };
    let mut words = Vec::new();
    words.resize_with(16 * LARGE / 8, || AtomicU64::new(1));
    let bytes = SharedBytes::from_words(&words);
    let progress = Progress::new("medium", CASES.len() * threads.len());
    let mut tables = Vec::new();
    for (what, way, size) in CASES {
        let mut rows = Vec::new();
        for &threads in threads {
            progress.next(format!("{what}, {threads} threads"));
            let machine = rate(bytes, way, size, threads, time / 2);
            let emulation = Emulation::begin(&model, bytes)?;
            let found = rate(bytes, way, size, threads, time);
            drop(emulation);
            rows.push(Row {
                threads,
                file: promised(&model, way, size, threads),
                found,
                machine,
            });
        }
        tables.push(Table { what, rows });
    }
    let unit = model.write.nanoseconds(model.unit.into(), 1, LINE);
    let without = line(bytes)?;
    let emulation = Emulation::begin(&model, bytes)?;
    let with = line(bytes)?;
    drop(emulation);
    Ok(Found {
        machine: Machine::look(),
        medium: medium.name.clone(),
        about: medium.about.clone(),
        nodes: medium.model.nodes,
        tables,
        fence: [unit.max(model.write.latency.into()) as f64, with, without],
    })
}

impl Report for Found {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "`arck-bench medium`: {} ({}), one node of {}. {}.\n",
            self.medium, self.about, self.nodes, self.machine
        )?;
        for table in &self.tables {
            writeln!(
                text,
                "| {}, threads | file GB/s | found | found / file | no medium |\n\
                 | ---: | ---: | ---: | ---: | ---: |",
                table.what
            )?;
            for row in &table.rows {
                let Row {
                    threads,
                    file,
                    found,
                    machine,
                } = row;
                let share = found / file;
                let mark = if machine < file { "*" } else { "" };
                writeln!(
                    text,
                    "| {threads} | {file:.2} | {found:.2} | {share:.2}{mark} | {machine:.2} |"
                )?;
            }
            writeln!(text)?;
        }
        let [file, found, machine] = self.fence;
        writeln!(
            text,
            "A line stored, flushed and fenced: file {file:.0} ns, found {found:.0}, without a medium {machine:.0}.\n"
        )?;
        let rows = || self.tables.iter().flat_map(|table| &table.rows);
        let right = rows().filter(|row| row.is_right()).count();
        writeln!(
            text,
            "{right} of {} are within {:.0} % of the file, or, where this machine gives less (*), of what it gives.",
            rows().count(),
            TOLERANCE * 100.0
        )
    }
}

pub fn main(arguments: &MediumArguments) -> Outcome<()> {
    let chosen = arck_medium::chosen(None, None).map_err(|error| error.to_string())?;
    let medium = match chosen {
        Some(medium) => medium,
        None => Medium::load(DEFAULT).map_err(|error| error.to_string())?,
    };
    set_policy(PersistPolicy::Flush);
    let found = measure(&medium, arguments.quick)?;
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = found.write(&mut text);
    print!("{text}");
    crate::output::save(arguments.json.as_deref(), &found)
}
