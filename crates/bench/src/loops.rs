//! In a worker: one loop for each operation, as `count` and `step` count them from outside.
//!
//! Invariant: each loop runs once before it is counted, with as many operations, so that what
//! is counted is the steady state: stocks of numbers and pages are refilled in it as they always
//! will be.

use crate::calls::Calls;
use crate::groups::PAGE;
use crate::outcome::Outcome;
use crate::step::places;
use crate::trace;
use clap::ValueEnum;
use std::ffi::CString;

/// Loops, by phase.
pub const LOOPS: [&str; 10] = [
    "create+close",
    "open+close",
    "stat",
    "rename",
    "unlink",
    "append 4 KiB",
    "overwrite 4 KiB",
    "read 4 KiB",
    "open+close, five deep",
    "stat, five deep",
];

/// What is counted of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Counting {
    /// System calls of all threads
    Calls,
    /// Instructions of the loop
    Steps,
    /// What each operation does, alone
    Operations,
}

impl Counting {
    /// As a worker is told it.
    pub fn name(self) -> &'static str {
        match self {
            Counting::Calls => "calls",
            Counting::Steps => "steps",
            Counting::Operations => "operations",
        }
    }

    /// Operations of each loop: fewer where each instruction is a stop.
    pub fn turns(self) -> u64 {
        match self {
            Counting::Calls => 10_000,
            Counting::Steps => 100,
            Counting::Operations => 5,
        }
    }
}

/// How a loop is told to who counts. What marks nothing leaves no instruction in the loop.
trait Marks {
    fn begin(phase: u64);
    fn end();
    #[inline(always)]
    fn operation<R>(body: impl FnOnce() -> R) -> R {
        body()
    }
}

struct Calling;
impl Marks for Calling {
    fn begin(phase: u64) {
        trace::begin(phase);
    }
    fn end() {
        trace::end();
    }
}

struct Stepping;
impl Marks for Stepping {
    fn begin(phase: u64) {
        trace::begin_steps(phase, [0; 2]);
    }
    fn end() {
        trace::end_steps();
    }
}

struct Operating;
impl Marks for Operating {
    fn begin(phase: u64) {
        trace::begin_steps(phase, places::both());
    }
    fn end() {
        trace::end_steps();
    }
    #[inline(always)]
    fn operation<R>(body: impl FnOnce() -> R) -> R {
        places::operation_begins();
        let result = body();
        places::operation_ends();
        result
    }
}

/// All loops twice, the second time in phases, but for loops whose names have not `filter`
/// in them.
pub fn loops<C: Calls>(calls: &C, counting: Counting, filter: Option<&str>) -> Outcome<()> {
    let counts = |number: usize| filter.is_none_or(|filter| LOOPS[number].contains(filter));
    let turns = counting.turns();
    match counting {
        Counting::Calls => all::<C, Calling>(calls, turns, counts),
        Counting::Steps => all::<C, Stepping>(calls, turns, counts),
        Counting::Operations => all::<C, Operating>(calls, turns, counts),
    }
}

fn all<C: Calls, M: Marks>(calls: &C, turns: u64, counts: impl Fn(usize) -> bool) -> Outcome<()> {
    let mut deep = "count".to_owned();
    let mut directories = vec![calls.path(&deep)];
    for level in 1..5 {
        deep = format!("{deep}/{level}");
        directories.push(calls.path(&deep));
    }
    for directory in &directories {
        calls.make_directory(directory)?;
    }
    let deep = calls.path(&format!("{deep}/file"));
    let names = |prefix: &str| -> Vec<CString> {
        (0..turns)
            .map(|number| calls.path(&format!("count/{prefix}{number}")))
            .collect()
    };
    let (paths, others) = (names("f"), names("r"));
    let data_path = calls.path("count/data");
    let mut page = vec![1u8; PAGE as usize];
    let create = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    calls.close(calls.open(&deep, create)?);
    let open_and_close = |path: &CString, flags: i32| {
        M::operation(|| {
            calls.close(calls.open(path, flags)?);
            Ok(())
        })
    };
    for counted in [false, true] {
        let phase = |number: usize, body: &mut dyn FnMut() -> Outcome<()>| {
            let counted = counted && counts(number);
            if counted {
                M::begin(number as u64);
            }
            let result = body();
            if counted {
                M::end();
            }
            result
        };
        phase(0, &mut || {
            let mut paths = paths.iter();
            paths.try_for_each(|path| open_and_close(path, create))
        })?;
        phase(1, &mut || {
            let mut paths = paths.iter();
            paths.try_for_each(|path| open_and_close(path, libc::O_RDWR))
        })?;
        phase(2, &mut || {
            let mut paths = paths.iter();
            paths.try_for_each(|path| M::operation(|| calls.stat(path)))
        })?;
        phase(3, &mut || {
            let mut pairs = paths.iter().zip(&others);
            pairs.try_for_each(|(from, to)| M::operation(|| calls.rename(from, to)))
        })?;
        phase(4, &mut || {
            let mut others = others.iter();
            others.try_for_each(|path| M::operation(|| calls.unlink(path)))
        })?;
        let file = calls.open(&data_path, create)?;
        phase(5, &mut || {
            (0..turns).try_for_each(|_| M::operation(|| calls.append(file, &page)))
        })?;
        phase(6, &mut || {
            (0..turns).try_for_each(|at| M::operation(|| calls.write(file, &page, at * PAGE)))
        })?;
        phase(7, &mut || {
            (0..turns).try_for_each(|at| M::operation(|| calls.read(file, &mut page, at * PAGE)))
        })?;
        calls.close(file);
        calls.unlink(&data_path)?;
        phase(8, &mut || {
            (0..turns).try_for_each(|_| open_and_close(&deep, libc::O_RDONLY))
        })?;
        phase(9, &mut || {
            (0..turns).try_for_each(|_| M::operation(|| calls.stat(&deep)))
        })?;
    }
    calls.unlink(&deep)?;
    let mut directories = directories.iter().rev();
    directories.try_for_each(|directory| calls.remove_directory(directory))
}
