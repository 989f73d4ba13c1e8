//! What the machine itself asks for: the floor under every figure of the other commands.
//!
//! # Invariants
//! * Memory is touched before it is timed; "out of the cache" means the next page of a random
//!   walk through many times what the caches hold. Memory whose first use is timed is kept to the end: no round has what
//!   another one had.
//! * Flushes are those that the library would use here, whatever the durability mode.
// What the bare stores cost: no order is to be had here.
#![allow(clippy::disallowed_methods)]

use crate::groups::PAGE;
use crate::machine::Machine;
use crate::measure::{Random, median, timed};
use crate::outcome::Outcome;
use arck_pm::mapping::HUGE_PAGE;
use arck_pm::{AddressSpace, HugePages, MapOptions, PersistPolicy, SharedBytes, set_policy};
use clap::Args;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What no file system can go without: a system call, a fence, a copy of a page; two processors
///
/// EXAMPLES
///   arck-bench floor
///   arck-bench floor --json floor.json
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct FloorArguments {
    /// Rounds that count
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Also write everything measured to this file
    #[arg(long, value_name = "FILE")]
    json: Option<std::path::PathBuf>,
}

/// Memory walked through: many times the caches.
const MEMORY: u64 = 512 << 20;
const LARGE: usize = 2 << 20;
/// Calls in a round of what is short, and of what moves a page.
const SHORT: u64 = 20_000;
const PAGES: u64 = 8_000;
const LARGES: u64 = 20;
/// Bytes of a file whose memory is used for the first time, and of what is written at once.
const FIRST: u64 = 64 << 20;
const PIECE: usize = 64 << 10;

struct Floor {
    memory: Vec<AtomicU64>,
    pages: Vec<u64>,
    buffer: Vec<u8>,
    /// What was used for the first time, so that it is not used again.
    files: Vec<OwnedFd>,
}

/// A file in memory that has none yet.
fn file_without_memory() -> Outcome<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::open("/dev/shm", flags, Mode::RUSR | Mode::WUSR);
    let file = file.map_err(|errno| format!("/dev/shm: {errno}"))?;
    rustix::fs::ftruncate(&file, FIRST).map_err(|errno| format!("ftruncate: {errno}"))?;
    Ok(file)
}

fn write(file: &OwnedFd, bytes: &[u8], at: u64) -> Outcome<()> {
    rustix::io::pwrite(file, bytes, at).map_err(|errno| format!("pwrite: {errno}"))?;
    Ok(())
}

/// Writes a file as long as [`FIRST`].
fn write_pieces(file: &OwnedFd) -> Outcome<()> {
    let zeroes = vec![0; PIECE];
    let mut places = (0..FIRST).step_by(PIECE);
    places.try_for_each(|at| write(file, &zeroes, at))
}

/// The same by huge pages, each whatever it takes.
fn gather_pieces(file: &OwnedFd) -> Outcome<()> {
    for at in (0..FIRST).step_by(HUGE_PAGE) {
        write(file, &[0], at)?;
        let mapped = || -> arck_pm::Result<AddressSpace> {
            let space = AddressSpace::reserve(HUGE_PAGE)?;
            space.map(0, HUGE_PAGE, file, at, MapOptions::READ_ONLY)?;
            Ok(space)
        };
        let space = mapped().map_err(|error| error.to_string())?;
        if !HugePages::default().gather(space.bytes()) {
            // As whoever has none does.
            write(file, &vec![0; HUGE_PAGE], at)?;
        }
    }
    Ok(())
}

impl Floor {
    fn new() -> Floor {
        let words = (MEMORY / 8) as usize;
        let mut memory = Vec::with_capacity(words);
        memory.resize_with(words, || AtomicU64::new(1));
        Floor {
            memory,
            pages: Random(3).below(MEMORY / PAGE, PAGES),
            buffer: vec![0x5a; LARGE],
            files: Vec::new(),
        }
    }

    fn bytes(&self) -> SharedBytes<'_> {
        SharedBytes::from_words(&self.memory)
    }

    fn walk(&self, mut each: impl FnMut(SharedBytes<'_>, usize) -> Option<()>) -> Outcome<()> {
        for page in &self.pages {
            each(self.bytes(), (page * PAGE) as usize).ok_or("a page outside the memory")?;
        }
        Ok(())
    }

    /// Nanoseconds of each case, once.
    fn round(&mut self) -> Outcome<Vec<(&'static str, f64)>> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let page = PAGE as usize;
        let mut results = Vec::new();
        let mut add = |name, calls, body: &mut dyn FnMut() -> Outcome<()>| -> Outcome<()> {
            results.push((name, timed(calls, body)?.wall));
            Ok(())
        };
        add(
            "system call that does nothing (getppid)",
            SHORT,
            &mut || {
                for _ in 0..SHORT {
                    // SAFETY: the call takes nothing and changes nothing.
                    black_box(unsafe { libc::syscall(libc::SYS_getppid) });
                }
                Ok(())
            },
        )?;
        add("locked exchange, line in the cache", SHORT, &mut || {
            for value in 0..SHORT {
                black_box(self.memory[0].swap(value, Ordering::AcqRel));
            }
            Ok(())
        })?;
        add("store, flush and fence of a line", SHORT, &mut || {
            for value in 0..SHORT {
                let line = (value as usize % 64) * 8;
                self.memory[line].store(value, Ordering::Relaxed);
                let flushed = self.bytes().flush(line * 8, 64);
                flushed.ok_or("a line outside the memory")?;
                arck_pm::fence();
            }
            Ok(())
        })?;
        add("load of a line out of the cache", PAGES, &mut || {
            // Each place follows from what the last one held, so that none is loaded ahead.
            let mut offset = 0;
            for place in &self.pages {
                let index = (place * PAGE / 8 + offset) as usize;
                offset = self.memory[index].load(Ordering::Relaxed) & 7;
            }
            black_box(offset);
            Ok(())
        })?;
        add("copy of 4 KiB out of the cache", PAGES, &mut || {
            self.walk(|bytes, at| bytes.copy_to(at, &mut buffer[..page]))
        })?;
        add("streamed write of 4 KiB and fence", PAGES, &mut || {
            self.walk(|bytes, at| bytes.stream_and_fence_from(at, &buffer[..page]))
        })?;
        add("copy of 2 MiB out of the cache", LARGES, &mut || {
            for index in 0..LARGES as usize {
                let at = index * 8 * LARGE;
                let copied = self.bytes().copy_to(at, &mut buffer);
                copied.ok_or("a place outside the memory")?;
            }
            Ok(())
        })?;
        add("streamed write of 2 MiB and fence", LARGES, &mut || {
            for index in 0..LARGES as usize {
                let at = index * 8 * LARGE;
                let written = self.bytes().stream_and_fence_from(at, &buffer);
                written.ok_or("a place outside the memory")?;
            }
            Ok(())
        })?;
        self.buffer = buffer;
        let [one, other] = [file_without_memory()?, file_without_memory()?];
        let mut add = |name, file, fill: fn(&OwnedFd) -> Outcome<()>| -> Outcome<()> {
            results.push((name, timed(FIRST / PAGE, || fill(file))?.wall));
            Ok(())
        };
        add("first use of 4 KiB of memory, written", &one, write_pieces)?;
        add("first use of 4 KiB, of huge pages", &other, gather_pieces)?;
        self.files.extend([one, other]);
        Ok(results)
    }
}

/// Steps of arithmetic, and exchanges of a line, of a thread in a round.
const STEPS: u64 = 20_000_000;
const EXCHANGES: u64 = 200_000;

/// Arithmetic without memory, several independent chains of it.
fn compute(seed: u64) -> u64 {
    let mut chains = [seed, seed ^ 3, seed ^ 5, seed ^ 7];
    for step in 0..STEPS {
        for chain in &mut chains {
            *chain = chain.wrapping_mul(5).wrapping_add(step) ^ (*chain >> 7);
        }
    }
    chains.iter().fold(0, |all, chain| all ^ chain)
}

/// What two threads get done in the time in which one does 1, once: `work` is given the thread.
fn two_beside_one(work: impl Fn(u64) -> u64 + Sync) -> f64 {
    let time = |threads: u64| {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for thread in 1..threads {
                let work = &work;
                scope.spawn(move || black_box(work(thread)));
            }
            black_box(work(0));
        });
        begun.elapsed().as_secs_f64()
    };
    let one = time(1);
    2.0 * one / time(2)
}

/// The floor under all that two threads do.
fn round_of_two(floor: &Floor) -> [(&'static str, f64); 3] {
    let half = floor.pages.len() / 2;
    let load = |thread: u64| {
        // As above: each place follows from the one before.
        let mut offset = 0;
        for _ in 0..8 {
            for place in &floor.pages[thread as usize * half..][..half] {
                let index = (place * PAGE / 8 + offset) as usize;
                offset = floor.memory[index].load(Ordering::Relaxed) & 7;
            }
        }
        offset
    };
    let line = AtomicU64::new(0);
    let exchange =
        |thread| (0..EXCHANGES).fold(thread, |all, _| all ^ line.swap(all, Ordering::AcqRel));
    [
        ("arithmetic", two_beside_one(compute)),
        ("loads of lines out of the cache", two_beside_one(load)),
        ("locked exchanges of one line", two_beside_one(exchange)),
    ]
}

pub fn main(arguments: &FloorArguments) -> Outcome<()> {
    set_policy(PersistPolicy::Flush);
    let mut floor = Floor::new();
    floor.round()?;
    let rounds: Vec<_> = (0..arguments.rounds.max(1))
        .map(|_| floor.round())
        .collect::<Outcome<_>>()?;
    let cases: Vec<(&str, f64)> = (0..rounds[0].len())
        .map(|case| {
            let times = rounds.iter().map(|round| round[case].1);
            (rounds[0][case].0, median(times))
        })
        .collect();
    let pairs: Vec<_> = rounds.iter().map(|_| round_of_two(&floor)).collect();
    let pairs: Vec<(&str, f64)> = (0..pairs[0].len())
        .map(|case| {
            (
                pairs[0][case].0,
                median(pairs.iter().map(|pair| pair[case].1)),
            )
        })
        .collect();
    let machine = Machine::look();
    println!(
        "{}, {} processors, Linux {}; load {:.2}. Medians of {} rounds.\n",
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.load,
        rounds.len()
    );
    println!("| the machine | ns |\n| --- | ---: |");
    for (name, time) in &cases {
        println!("| {name} | {time:.0} |");
    }
    println!("\n| two threads beside one | factor |\n| --- | ---: |");
    for (name, factor) in &pairs {
        println!("| {name} | {factor:.2} |");
    }
    let json = serde_json::json!({ "machine": machine, "nanoseconds": cases
            .iter()
            .map(|(name, time)| (name.to_string(), serde_json::json!(time)))
            .collect::<serde_json::Map<_, _>>(), "two_threads": pairs
            .iter()
            .map(|(name, factor)| (name.to_string(), serde_json::json!(factor)))
            .collect::<serde_json::Map<_, _>>() });
    crate::output::save(arguments.json.as_deref(), &json)
}
