//! `arck-bench start`: what it costs to be under the preload library at all: the time a program
//! takes to start, the memory that it has resident, the memory that is kept for each file and
//! directory looked at, and the storage of a small file.
//!
//! In a group that runs, on pools of two sizes: the programs are members, as those of `arck run`.
//!
//! Times are of whole processes, plain and under the library in turn; the figure is the median of
//! the differences inside such pairs. Memory is what the kernel counts for a worker process
//! (`smaps_rollup`), and for the mapping of its session's auxiliary state alone (`smaps`).

use crate::machine::Machine;
use crate::measure::median;
use crate::outcome::Outcome;
use crate::output;
use crate::output::Output;
use crate::pool::MOUNT;
use crate::pool::{self, Bench};
use crate::trees::{Side, words};
use arck_pm::PersistOption;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Files and directories looked at to see what each costs: so many that it is more than what the region has ready, 2 MiB
/// at a time.
const FILES: u64 = 20_000;
const DIRECTORIES: u64 = 20_000;
/// Files of one byte.
const SMALL_FILES: u64 = 10_000;
/// Pools on which programs are started, in GiB; what they do not use takes no memory.
const POOLS: [u64; 2] = [4, 64];
/// Length of their names: enough that a name shows if it is kept.
const NAME: usize = 16;

#[derive(Args)]
pub struct StartArguments {
    /// Pairs of processes that count
    #[arg(long, value_name = "N", default_value_t = 21)]
    rounds: usize,

    #[command(flatten)]
    output: Output,
}

/// Milliseconds of one way to start a program.
#[derive(Serialize)]
struct Start {
    what: &'static str,
    plain: f64,
    preload: f64,
    /// Median of the differences of the pairs.
    added: f64,
}

/// Milliseconds of a program that is one of a running group.
#[derive(Serialize)]
struct Member {
    what: &'static str,
    /// GiB.
    pool: u64,
    /// Medians of the differences of the pairs: by the clock, and of processor time.
    added: f64,
    added_processor: f64,
}

/// Bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Resident {
    all: u64,
    /// Written by this process, shared with nobody.
    private_dirty: u64,
    /// Of mappings of files, or of memory that other processes have too.
    shared: u64,
    /// Mapped by nobody else, but not written: text and data of libraries.
    private_clean: u64,
}

/// What a worker says of its memory.
#[derive(Serialize, Deserialize)]
pub struct Memory {
    before: Resident,
    opened: Resident,
    /// Bytes of auxiliary state for each file or directory; 0 in a plain worker.
    file: f64,
    new_file: f64,
    directory: f64,
}

#[derive(Serialize)]
struct Report {
    machine: Machine,
    rounds: usize,
    start: Vec<Start>,
    member: Vec<Member>,
    plain: Memory,
    preload: Memory,
    /// Bytes of storage of a file of one byte.
    small_file: f64,
}

pub fn main(arguments: &StartArguments) -> Outcome<()> {
    let arck = arguments.output.command()?;
    let library = pool::find_library()
        .ok_or("libarck_preload.so is not beside this executable: build arck-preload")?;
    let bench = Bench::start(512 << 20, PersistOption::Auto, arck.as_deref())?;
    let start = starts(arguments.rounds, &bench, &library, arck.as_deref())?;
    let mut member = Vec::new();
    for size in POOLS {
        member.extend(members(arguments.rounds, size, &library, arck.as_deref())?);
    }
    let free = room(&bench, &library, "room")?;
    room(&bench, &library, "small")?;
    let left = room(&bench, &library, "room")?;
    let report = Report {
        machine: Machine::look(),
        rounds: arguments.rounds,
        start,
        member,
        plain: ask(&bench, None, "memory")?,
        preload: ask(&bench, Some(&library), "memory")?,
        small_file: (free - left) / SMALL_FILES as f64,
    };
    arguments.output.publish(&report)
}

/// Times of processes, in milliseconds.
fn starts(
    rounds: usize,
    bench: &Bench,
    library: &Path,
    arck: Option<&Path>,
) -> Outcome<Vec<Start>> {
    let file = bench.tmpfs().join("start");
    fs::write(&file, b"one line\n").map_err(|error| error.to_string())?;
    let served = |program: &str, argument: Option<&str>| {
        let mut command = Command::new(program);
        command
            .args(argument)
            .env("LD_PRELOAD", library)
            .env("ARCK_POOL", bench.pool())
            .env("ARCK_MOUNT", MOUNT);
        command
    };
    let on_pool = format!("{MOUNT}/start");
    run(served("cp", None).arg(&file).arg(&on_pool))?;
    let mut ways: Vec<(&'static str, Command, Command)> = Vec::new();
    ways.push(("`true`", Command::new("true"), served("true", None)));
    let mut cat = Command::new("cat");
    cat.arg(&file);
    ways.push(("`cat FILE`", cat, served("cat", Some(&on_pool))));
    if let Some(arck) = arck {
        let mut command = Command::new(arck);
        command
            .arg("run")
            .arg("--pool")
            .arg(bench.pool())
            .args(["--", "true"])
            .env("ARCK_PRELOAD", library);
        ways.push(("`true`, by `arck run`", Command::new("true"), command));
    }
    ways.into_iter()
        .map(|(what, mut plain, mut preload)| {
            let mut pairs = Vec::new();
            for round in 0..=rounds {
                let pair = if round % 2 == 0 {
                    let first = run(&mut plain)?;
                    (first, run(&mut preload)?)
                } else {
                    let second = run(&mut preload)?;
                    (run(&mut plain)?, second)
                };
                // The first is to warm up.
                if round > 0 {
                    pairs.push(pair);
                }
            }
            Ok(Start {
                what,
                plain: median(pairs.iter().map(|pair| pair.0)),
                preload: median(pairs.iter().map(|pair| pair.1)),
                added: median(pairs.iter().map(|pair| pair.1 - pair.0)),
            })
        })
        .collect()
}

/// In a group on a pool of so many GiB.
fn members(rounds: usize, size: u64, library: &Path, arck: Option<&Path>) -> Outcome<Vec<Member>> {
    let bench = Bench::start(size << 30, PersistOption::Auto, arck)?;
    let mut plain = Side::start(&bench, None)?;
    let mut preload = Side::start(&bench, Some(library))?;
    let file = bench.tmpfs().with_file_name("start");
    fs::write(&file, b"one line\n").map_err(|error| error.to_string())?;
    let copy = words(&format!("cp {} {{}}/start", file.display()));
    for side in [&mut plain, &mut preload] {
        side.run(&copy)?;
    }
    let mut rows = Vec::new();
    for (what, command) in [("`true`", "true"), ("`cat FILE`", "cat {}/start")] {
        let command = words(command);
        let (mut wall, mut processor) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let (first, second);
            if round % 2 == 0 {
                first = plain.run(&command)?;
                second = preload.run(&command)?;
            } else {
                second = preload.run(&command)?;
                first = plain.run(&command)?;
            }
            // The first is to warm up.
            if round > 0 {
                wall.push(second.wall - first.wall);
                processor.push(second.processor - first.processor);
            }
        }
        rows.push(Member {
            what,
            pool: size,
            added: median(wall),
            added_processor: median(processor),
        });
    }
    plain.end()?;
    preload.end()?;
    Ok(rows)
}

/// Milliseconds of a process.
fn run(command: &mut Command) -> Outcome<f64> {
    let start = Instant::now();
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
    let time = start.elapsed().as_secs_f64() * 1e3;
    if status.success() {
        Ok(time)
    } else {
        Err(format!(
            "{} failed: {status}",
            command.get_program().to_string_lossy()
        ))
    }
}

/// What a worker of this task says.
fn ask<T: for<'a> Deserialize<'a>>(
    bench: &Bench,
    library: Option<&Path>,
    task: &str,
) -> Outcome<T> {
    let mut command = bench.worker(library)?;
    command.args(["--task", task]);
    if library.is_none() {
        command.arg("--kernel");
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("starting a worker: {error}"))?;
    if !output.status.success() {
        return Err(format!("a worker failed: {}", output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("a worker's answer makes no sense: {error}"))
}

/// Free bytes of the pool, as a worker finds or leaves them.
fn room(bench: &Bench, library: &Path, task: &str) -> Outcome<f64> {
    ask(bench, Some(library), task)
}

impl output::Report for Report {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{}.\nMilliseconds of a process, plainly and under \
             the preload library on a pool that is served already; medians of {} pairs, in turn; \
             added = median of the differences.\n\n| program | plain | under the preload library \
             | added |\n| --- | ---: | ---: | ---: |",
            self.machine, self.rounds
        )?;
        for row in &self.start {
            writeln!(
                text,
                "| {} | {:.2} | {:.2} | {:.2} |",
                row.what, row.plain, row.preload, row.added
            )?;
        }
        writeln!(
            text,
            "\n| in a running group, ms added | pool | by the clock | processor time |\n\
             | --- | ---: | ---: | ---: |"
        )?;
        for row in &self.member {
            writeln!(
                text,
                "| {} | {} GiB | {:.2} | {:.2} |",
                row.what, row.pool, row.added, row.added_processor
            )?;
        }
        let kib = |bytes: u64| bytes as f64 / 1024.0;
        writeln!(
            text,
            "\n| resident, KiB | all | written by it alone | shared | not written, its alone |\n\
             | --- | ---: | ---: | ---: | ---: |"
        )?;
        for (what, resident) in [
            ("a program, plain", self.plain.before),
            ("with a file of tmpfs open", self.plain.opened),
            ("under the preload library", self.preload.before),
            ("with a file of the pool open", self.preload.opened),
        ] {
            writeln!(
                text,
                "| {what} | {:.0} | {:.0} | {:.0} | {:.0} |",
                kib(resident.all),
                kib(resident.private_dirty),
                kib(resident.shared),
                kib(resident.private_clean)
            )?;
        }
        writeln!(
            text,
            "\n| bytes for each | |\n| --- | ---: |\n\
             | file looked up, auxiliary state | {:.0} |\n\
             | file made, auxiliary state with a name of {NAME} bytes | {:.0} |\n\
             | directory looked into, auxiliary state | {:.0} |\n\
             | file of one byte, storage | {:.0} |",
            self.preload.file, self.preload.new_file, self.preload.directory, self.small_file
        )
    }
}

/// The numbers of a line of `smaps`, in bytes, by its name.
fn field(line: &str, name: &str) -> u64 {
    let rest = line
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix(':'));
    let number = rest.and_then(|rest| rest.split_whitespace().next());
    number.map_or(0, |number| number.parse::<u64>().unwrap_or(0) * 1024)
}

fn resident() -> Outcome<Resident> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").map_err(|error| error.to_string())?;
    let sum = |name: &str| text.lines().map(|line| field(line, name)).sum::<u64>();
    Ok(Resident {
        all: sum("Rss"),
        private_dirty: sum("Private_Dirty"),
        shared: sum("Shared_Clean") + sum("Shared_Dirty"),
        private_clean: sum("Private_Clean"),
    })
}

/// Resident bytes of the memory files that are mapped: the session's auxiliary state, its control
/// memory, maps of program files that are copies.
fn memory_files() -> Outcome<f64> {
    let text = fs::read_to_string("/proc/self/smaps").map_err(|error| error.to_string())?;
    let mut ours = false;
    let mut sum = 0;
    for line in text.lines() {
        if line
            .split(' ')
            .next()
            .is_some_and(|word| word.contains('-'))
        {
            ours = line.contains("memfd:");
        } else if ours {
            sum += field(line, "Rss");
        }
    }
    Ok(sum as f64)
}

/// In a worker: its memory, before and after it opens a file, and what each file adds.
pub fn memory(base: &str, preloaded: bool) -> Outcome<Memory> {
    let text = |error: std::io::Error| error.to_string();
    let before = resident()?;
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(format!("{base}/one"))
        .map_err(text)?;
    let opened = resident()?;
    drop(file);
    let (mut looked_up, mut new, mut directory) = (0.0, 0.0, 0.0);
    if preloaded {
        fs::create_dir(format!("{base}/files")).map_err(text)?;
        let name = |index: u64| format!("{base}/files/{index:0NAME$}");
        let start = memory_files()?;
        for index in 0..FILES {
            fs::write(name(index), b"").map_err(text)?;
        }
        new = (memory_files()? - start) / FILES as f64;
        for index in 0..DIRECTORIES {
            fs::create_dir(format!("{base}/d{index}")).map_err(text)?;
            fs::write(format!("{base}/d{index}/file"), b"").map_err(text)?;
        }
        // SAFETY: no arguments. Everything is folded.
        unsafe { libc::sync() };
        // Another session looks them up. A forked child has its own.
        let (mut answer, question) = std::io::pipe().map_err(text)?;
        // SAFETY: this process has one thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let found = looked_at(base, name);
            let line = serde_json::to_string(&found).unwrap_or_default();
            let _ = std::io::Write::write_all(&mut &question, line.as_bytes());
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        drop(question);
        let mut line = String::new();
        std::io::Read::read_to_string(&mut answer, &mut line).map_err(text)?;
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        let found: Result<(f64, f64), String> =
            serde_json::from_str(&line).map_err(|error| error.to_string())?;
        (looked_up, directory) = found?;
    }
    Ok(Memory {
        before,
        opened,
        file: looked_up,
        new_file: new,
        directory,
    })
}

/// Bytes for each file that is looked up, and for each directory that is looked into.
fn looked_at(base: &str, name: impl Fn(u64) -> String) -> Result<(f64, f64), String> {
    let text = |error: std::io::Error| error.to_string();
    fs::metadata(format!("{base}/one")).map_err(text)?;
    fs::metadata(name(0)).map_err(text)?;
    let start = memory_files()?;
    for index in 0..FILES {
        fs::metadata(name(index)).map_err(text)?;
    }
    let files = memory_files()?;
    for index in 0..DIRECTORIES {
        fs::metadata(format!("{base}/d{index}/file")).map_err(text)?;
    }
    let directories = memory_files()?;
    let file = (files - start) / FILES as f64;
    // With each directory a file was looked up.
    let directory = (directories - files) / DIRECTORIES as f64 - file;
    Ok((file, directory))
}

/// In a worker: free bytes of the pool; before that, for `small`, files of one byte are made.
pub fn free_room(base: &str, small: bool) -> Outcome<f64> {
    if small {
        let text = |error: std::io::Error| error.to_string();
        fs::create_dir(format!("{base}/small")).map_err(text)?;
        for index in 0..SMALL_FILES {
            fs::write(format!("{base}/small/{index:0NAME$}"), b"1").map_err(text)?;
        }
        // SAFETY: no arguments.
        unsafe { libc::sync() };
    }
    let path = std::ffi::CString::new(base).map_err(|error| error.to_string())?;
    let mut status = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a C string, and room for the answer, which is there if the call succeeds.
    unsafe {
        if libc::statvfs(path.as_ptr(), status.as_mut_ptr()) != 0 {
            return Err(std::io::Error::last_os_error().to_string());
        }
        let status = status.assume_init();
        Ok((status.f_bfree * status.f_frsize) as f64)
    }
}
