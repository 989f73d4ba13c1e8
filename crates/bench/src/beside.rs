//! `arck-bench beside`: what the preload library costs calls that are none of its business, on
//! descriptors and paths of the host.
//!
//! Two processes make the same calls, one plainly, one under the preload library and with a file
//! of the pool open; they take turns, round by round, which of them is first alternating. The
//! figure is the median of the differences inside such pairs of rounds.

use crate::machine::Machine;
use crate::measure::{Sample, median, timed};
use crate::outcome::Outcome;
use crate::output;
use crate::output::Output;
use crate::pool::MOUNT;
use crate::pool::{self, Bench};
use arck_pm::PersistOption;
use clap::Args;
use serde::Serialize;
use std::ffi::CString;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Calls of one kind in a round.
const TIMES: u64 = 5_000;

/// What is called, and how many calls that is.
const OPERATIONS: [(&str, u64); 11] = [
    ("read 1 byte", 1),
    ("write 1 byte", 1),
    ("pread 1 byte", 1),
    ("lseek", 1),
    ("fstat", 1),
    ("fcntl F_GETFL", 1),
    ("dup, close", 2),
    ("open, close", 2),
    ("stat", 1),
    ("stat, relative", 1),
    ("access", 1),
];

#[derive(Args)]
pub struct BesideArguments {
    /// Rounds that count, on each side
    #[arg(long, value_name = "N", default_value_t = 41)]
    rounds: usize,

    #[command(flatten)]
    output: Output,
}

/// One row: nanoseconds of processor time a call.
#[derive(Serialize)]
struct Row {
    operation: &'static str,
    calls: u64,
    plain: f64,
    preload: f64,
    /// Median of the differences of the pairs.
    difference: f64,
}

#[derive(Serialize)]
struct Report {
    machine: Machine,
    rounds: usize,
    beside: Vec<Row>,
}

/// A worker, which answers each line with a line of samples.
struct Side {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Side {
    fn start(bench: &Bench, library: Option<&Path>) -> Outcome<Side> {
        let mut command = bench.worker(library)?;
        command.args(["--task", "beside"]);
        if library.is_none() {
            command.arg("--kernel");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| format!("starting a worker: {error}"))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a worker has no pipes".to_owned());
        };
        Ok(Side {
            child,
            orders,
            answers: BufReader::new(answers),
        })
    }

    fn round(&mut self) -> Outcome<Vec<f64>> {
        let mut line = String::new();
        self.orders
            .write_all(b"\n")
            .and_then(|()| self.answers.read_line(&mut line))
            .map_err(|error| format!("a worker: {error}"))?;
        let samples: Vec<f64> = serde_json::from_str(&line)
            .map_err(|error| format!("a worker's answer makes no sense: {error}"))?;
        if samples.len() == OPERATIONS.len() {
            Ok(samples)
        } else {
            Err("a worker's answer is too short".to_owned())
        }
    }

    fn end(self) -> Outcome<()> {
        let Side {
            mut child, orders, ..
        } = self;
        drop(orders);
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("a worker failed: {status}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

pub fn main(arguments: &BesideArguments) -> Outcome<()> {
    let arck = arguments.output.command()?;
    let library = pool::find_library()
        .ok_or("libarck_preload.so is not beside this executable: build arck-preload")?;
    let bench = Bench::start(64 << 20, PersistOption::Auto, arck.as_deref())?;
    let mut plain = Side::start(&bench, None)?;
    let mut preload = Side::start(&bench, Some(&library))?;
    let mut samples: [Vec<Vec<f64>>; 2] = Default::default();
    for round in 0..=arguments.rounds {
        let pair = if round % 2 == 0 {
            let first = plain.round()?;
            [first, preload.round()?]
        } else {
            let first = preload.round()?;
            [plain.round()?, first]
        };
        // The first is to warm up.
        if round > 0 {
            for (list, sample) in samples.iter_mut().zip(pair) {
                list.push(sample);
            }
        }
    }
    plain.end()?;
    preload.end()?;
    let [plain, preload] = &samples;
    let row = |(index, (operation, calls)): (usize, &(&'static str, u64))| Row {
        operation,
        calls: *calls,
        plain: median(plain.iter().map(|round| round[index])),
        preload: median(preload.iter().map(|round| round[index])),
        difference: median(
            plain
                .iter()
                .zip(preload)
                .map(|(plain, preload)| preload[index] - plain[index]),
        ),
    };
    let report = Report {
        machine: Machine::look(),
        rounds: arguments.rounds,
        beside: OPERATIONS.iter().enumerate().map(row).collect(),
    };
    arguments.output.publish(&report)
}

impl output::Report for Report {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{}.\nNanoseconds of processor time a call, on \
             files of the host, without and with the preload library (which has a file of the \
             pool open); medians of {} rounds on each side, alternating; added = median of the \
             differences of the pairs.\n\n| calls beside the pool | plain | under the preload \
             library | added |\n| --- | ---: | ---: | ---: |",
            self.machine, self.rounds
        )?;
        for row in &self.beside {
            writeln!(
                text,
                "| {} | {:.0} | {:.0} | {:.0} |",
                row.operation, row.plain, row.preload, row.difference
            )?;
        }
        Ok(())
    }
}

/// In a worker: for each line of standard input, one round, told in a line.
pub fn rounds(directory: &Path, preloaded: bool) -> Outcome<()> {
    let failed = |what: &str| format!("{what}: {}", std::io::Error::last_os_error());
    let string = |text: String| CString::new(text).map_err(|error| error.to_string());
    let name = string(format!("{}/beside-{preloaded}", directory.display()))?;
    std::env::set_current_dir(directory).map_err(|error| error.to_string())?;
    let relative = string(format!("beside-{preloaded}"))?;
    std::fs::write(directory.join(format!("beside-{preloaded}")), [7u8; 4096])
        .map_err(|error| error.to_string())?;
    // SAFETY: calls with C strings, and memory for what they answer, below.
    let (file, null, zero) = unsafe {
        if preloaded {
            let path = string(format!("{MOUNT}/beside"))?;
            if libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600) < 0 {
                return Err(failed("a file of the pool"));
            }
        }
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
        let zero = libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY);
        (libc::open(name.as_ptr(), libc::O_RDWR), null, zero)
    };
    if file.min(null).min(zero) < 0 {
        return Err(failed("a file beside the pool"));
    }
    for line in std::io::stdin().lines() {
        line.map_err(|error| error.to_string())?;
        let mut samples = Vec::new();
        for (operation, calls) in OPERATIONS {
            let sample = one(operation, file, (null, zero), &name, &relative)?;
            samples.push(sample.processor / calls as f64);
        }
        let text = serde_json::to_string(&samples).map_err(|error| error.to_string())?;
        println!("{text}");
    }
    Ok(())
}

fn one(
    operation: &str,
    file: i32,
    (null, zero): (i32, i32),
    name: &CString,
    relative: &CString,
) -> Outcome<Sample> {
    let mut byte = 0u8;
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    let repeat = |mut call: Box<dyn FnMut() -> bool + '_>| {
        timed(TIMES, || {
            for _ in 0..TIMES {
                if !call() {
                    let error = std::io::Error::last_os_error();
                    return Err(format!("{operation}: {error}"));
                }
            }
            Ok(())
        })
    };
    let (byte, status) = ((&raw mut byte).cast(), status.as_mut_ptr());
    let (name, relative) = (name.as_ptr(), relative.as_ptr());
    // SAFETY: C strings, and memory for what is read, that live as long as the closures.
    unsafe {
        repeat(match operation {
            "read 1 byte" => Box::new(move || libc::read(zero, byte, 1) == 1),
            "write 1 byte" => Box::new(move || libc::write(null, byte, 1) == 1),
            "pread 1 byte" => Box::new(move || libc::pread(file, byte, 1, 0) == 1),
            "lseek" => Box::new(move || libc::lseek(file, 0, libc::SEEK_SET) == 0),
            "fstat" => Box::new(move || libc::fstat(file, status) == 0),
            "fcntl F_GETFL" => Box::new(move || libc::fcntl(file, libc::F_GETFL) >= 0),
            "dup, close" => Box::new(move || libc::close(libc::dup(file)) == 0),
            "open, close" => Box::new(move || libc::close(libc::open(name, libc::O_RDONLY)) == 0),
            "stat" => Box::new(move || libc::stat(name, status) == 0),
            "stat, relative" => Box::new(move || libc::stat(relative, status) == 0),
            "access" => Box::new(move || libc::access(name, libc::R_OK) == 0),
            _ => return Err(format!("{operation} is not measured")),
        })
    }
}
