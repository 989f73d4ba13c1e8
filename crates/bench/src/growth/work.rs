//! In a worker: the phases, and what a bystander does.

use crate::calls::Calls;
use crate::conversation;
use crate::latencies::{Latencies, Stopwatch};
use crate::measure::Random;
use crate::outcome::Outcome;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// What a worker is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Order {
    Prepare {
        files: u64,
        directories: u64,
    },
    Run(Phase),
    /// To be a bystander until it is told to rest.
    Watch,
    Rest,
}

/// What is done to all files, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// To a new file, in space that nobody has used before.
    Append,
    Write,
    Create,
    Stat,
    Open,
    List,
    Rename,
    Unlink,
    /// The same where there were files before, and in space that they had.
    CreateAgain,
    AppendAgain,
    WriteAgain,
}

impl Phase {
    pub const ALL: [Phase; 11] = [
        Phase::Append,
        Phase::Write,
        Phase::Create,
        Phase::Stat,
        Phase::Open,
        Phase::List,
        Phase::Rename,
        Phase::Unlink,
        Phase::CreateAgain,
        Phase::AppendAgain,
        Phase::WriteAgain,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Append => "append 4 KiB, fresh",
            Phase::Write => "write 1 MiB into a new file, fresh",
            Phase::Create => "create+close, fresh",
            Phase::Stat => "stat, random",
            Phase::Open => "open+close, random",
            Phase::List => "readdir, per entry",
            Phase::Rename => "rename within a directory",
            Phase::Unlink => "unlink",
            Phase::CreateAgain => "create+close, recycled",
            Phase::AppendAgain => "append 4 KiB, recycled",
            Phase::WriteAgain => "write 1 MiB into a new file, recycled",
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Took {
    /// Nanoseconds an operation.
    pub each: f64,
    /// Nothing where a call is many operations.
    pub calls: Option<Latencies>,
}

const CREATE: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
/// Bytes that are appended or written.
const DATA: usize = 256 << 20;
const PAGE: usize = 4 << 10;
const LARGE: usize = 1 << 20;
/// How long a bystander waits before its next calls.
const PAUSE: Duration = Duration::from_micros(200);

/// Names made before anything is timed.
struct Tree {
    directories: Vec<CString>,
    before: Vec<CString>,
    after: Vec<CString>,
    order: Vec<u64>,
}

impl Tree {
    fn make<C: Calls>(calls: &C, files: u64, directories: u64) -> Outcome<Tree> {
        let each = files.div_ceil(directories);
        let names = |prefix: &str| -> Vec<CString> {
            (0..files)
                .map(|file| calls.path(&format!("growth-{}/{prefix}{file:08}", file / each)))
                .collect()
        };
        let directories: Vec<CString> = (0..directories)
            .map(|directory| calls.path(&format!("growth-{directory}")))
            .collect();
        directories
            .iter()
            .try_for_each(|directory| calls.make_directory(directory))?;
        Ok(Tree {
            directories,
            before: names("f"),
            after: names("r"),
            order: Random(files).below(files, files),
        })
    }

    fn run<C: Calls>(&self, calls: &C, phase: Phase) -> Outcome<Took> {
        let files = self.before.len() as u64;
        match phase {
            Phase::List => return self.list(calls),
            Phase::Append => return data(calls, "appended", PAGE),
            Phase::Write => return data(calls, "written", LARGE),
            Phase::AppendAgain => {
                calls.unlink(&calls.path("appended"))?;
                calls.unlink(&calls.path("written"))?;
                return data(calls, "appended", PAGE);
            }
            Phase::WriteAgain => {
                calls.unlink(&calls.path("appended"))?;
                let took = data(calls, "written", LARGE)?;
                calls.unlink(&calls.path("written"))?;
                return Ok(took);
            }
            _ => {}
        }
        let mut watch = Stopwatch::new()?;
        let start = Instant::now();
        watch.begin();
        for (place, random) in self.order.iter().enumerate() {
            match phase {
                Phase::Create | Phase::CreateAgain => {
                    calls.close(calls.open(&self.before[place], CREATE)?)
                }
                Phase::Stat => calls.stat(&self.before[*random as usize])?,
                Phase::Open => {
                    let path = &self.before[*random as usize];
                    calls.close(calls.open(path, libc::O_RDONLY)?);
                }
                Phase::Rename => calls.rename(&self.before[place], &self.after[place])?,
                Phase::Unlink => calls.unlink(&self.after[place])?,
                _ => {}
            }
            watch.lap();
        }
        let each = start.elapsed().as_nanos() as f64 / files as f64;
        if phase == Phase::CreateAgain {
            self.before.iter().try_for_each(|path| calls.unlink(path))?;
            let mut directories = self.directories.iter();
            directories.try_for_each(|directory| calls.remove_directory(directory))?;
        }
        Ok(Took {
            each,
            calls: Some(watch.latencies()),
        })
    }

    fn list<C: Calls>(&self, calls: &C) -> Outcome<Took> {
        let start = Instant::now();
        let mut found = 0;
        for directory in &self.directories {
            found += calls.list(directory)?;
        }
        let took = start.elapsed().as_nanos() as f64;
        // `.` and `..` too.
        let entries = self.before.len() as u64 + 2 * self.directories.len() as u64;
        if found != entries {
            return Err(format!("{found} entries listed, not {entries}"));
        }
        Ok(Took {
            each: took / entries as f64,
            calls: None,
        })
    }
}

/// Fills a new file, piece by piece.
fn data<C: Calls>(calls: &C, name: &str, piece: usize) -> Outcome<Took> {
    let bytes = vec![1; piece];
    let file = calls.open(&calls.path(name), CREATE | libc::O_APPEND)?;
    let mut watch = Stopwatch::new()?;
    let start = Instant::now();
    watch.begin();
    for _ in 0..DATA / piece {
        calls.append(file, &bytes)?;
        watch.lap();
    }
    let each = start.elapsed().as_nanos() as f64 / (DATA / piece) as f64;
    calls.close(file);
    Ok(Took {
        each,
        calls: Some(watch.latencies()),
    })
}

/// Makes, looks up and removes a file of its own, again and again.
fn watch<C: Calls>(calls: &C, rest: &AtomicBool) -> Outcome<Latencies> {
    let path = calls.path("bystander/file");
    let mut watch = Stopwatch::new()?;
    // Once at least, however short the phase is.
    loop {
        watch.begin();
        let file = calls.open(&path, CREATE)?;
        calls.append(file, &[1; 100])?;
        calls.close(file);
        watch.lap();
        calls.stat(&path)?;
        watch.lap();
        calls.unlink(&path)?;
        watch.lap();
        if rest.load(Ordering::Relaxed) {
            return Ok(watch.latencies());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Obeys orders until there are no more.
pub fn work<C: Calls + Sync>(calls: &C) -> Outcome<()> {
    let mut tree = None;
    let rest = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut bystander: Option<ScopedJoinHandle<Outcome<Latencies>>> = None;
        let answered = conversation::answer(|order| match order {
            Order::Prepare { files, directories } => {
                tree = Some(Tree::make(calls, files, directories)?);
                Ok(None)
            }
            Order::Run(phase) => {
                let tree = tree.as_ref().ok_or("nothing is prepared")?;
                tree.run(calls, phase).map(Some)
            }
            Order::Watch => {
                let path = calls.path("bystander");
                if calls.stat(&path).is_err() {
                    calls.make_directory(&path)?;
                }
                rest.store(false, Ordering::Relaxed);
                bystander = Some(scope.spawn(|| watch(calls, &rest)));
                Ok(None)
            }
            Order::Rest => {
                rest.store(true, Ordering::Relaxed);
                let bystander = bystander.take().ok_or("nobody watches")?;
                let watched = bystander.join();
                let latencies = watched.map_err(|_| "a thread panicked".to_owned())??;
                Ok(Some(Took {
                    each: latencies.middle,
                    calls: Some(latencies),
                }))
            }
        });
        // Who fails leaves no thread that nobody stops.
        rest.store(true, Ordering::Relaxed);
        answered
    })
}
