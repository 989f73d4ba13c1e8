//! `arck-bench delegation --bystander`: what one thread waits for that does small things while many write much.
//!
//! # Invariants
//! * What it does is too small for a gate, and for delegates: what it waits for is the medium, the processors, and what others hold.
//! * Rounds of all ways take turns, each with and after the same writers.

use super::rate::{Access, Place, SIZES, delegated_all, name, open, peak, rate};
use super::ways::{ALL, How};
use crate::machine::Machine;
use crate::measure::median;
use crate::outcome::Outcome;
use crate::output::Report;
use arck_libfs_kit::memory::medium::Way;
use arckfs::{At, FileSystem};
use serde::Serialize;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The file of the bystander, behind those of as many writers as there can be.
const OWN: usize = 1 << 20;
/// Bytes that it writes at once.
const LITTLE: usize = 100;

/// Times of one thing, in microseconds, of all rounds.
#[derive(Clone, Copy, Serialize)]
struct Times {
    median: f64,
    /// 99 % take no longer.
    most: f64,
    longest: f64,
}

impl Times {
    fn of(mut all: Vec<f64>) -> Outcome<Times> {
        all.sort_by(f64::total_cmp);
        let longest = *all.last().ok_or("the bystander came to nothing")?;
        Ok(Times {
            median: median(all.iter().copied()),
            most: all[(all.len() * 99).div_ceil(100) - 1],
            longest,
        })
    }
}

/// What was done by the writers of one size that go about it one way, and beside them. GB/s.
#[derive(Serialize)]
struct Row {
    operation: String,
    how: How,
    rate: f64,
    peak: f64,
    /// Makes a name and takes it away; writes little, where it has written before.
    names: Times,
    writes: Times,
}

#[derive(Serialize)]
pub struct Found {
    machine: Machine,
    threads: usize,
    delegates: u32,
    rows: Vec<Row>,
}

pub fn measure(place: &Place<'_>, threads: usize, rounds: usize, time: Duration) -> Outcome<Found> {
    let few = delegated_all(&place.model, place.delegates);
    let mut rows = Vec::new();
    for (size, size_name) in SIZES {
        let access = Access {
            way: Way::Write,
            size,
            is_fresh: place.is_fresh,
        };
        let mut all = ALL.map(|_| (Vec::new(), Bystander::default()));
        for _ in 0..rounds {
            for (how, (rates, beside)) in ALL.into_iter().zip(&mut all) {
                let done = how.within(place.files, place.model.nodes, &few, || {
                    let is_over = AtomicBool::new(false);
                    std::thread::scope(|scope| {
                        let bystander = scope.spawn(|| beside.stand(place.files, &is_over));
                        let is_over = Over(&is_over);
                        let done = rate(place.files, access, threads, time);
                        drop(is_over);
                        let stood = bystander.join();
                        stood.map_err(|_| "the bystander panicked".to_owned())??;
                        done
                    })
                })?;
                rates.push(done.rate);
            }
        }
        for (how, (rates, beside)) in ALL.into_iter().zip(all) {
            rows.push(Row {
                operation: format!("{} {size_name}", name(access.way)),
                how,
                rate: median(rates),
                peak: peak(&place.model, access.way, size),
                names: Times::of(beside.names)?,
                writes: Times::of(beside.writes)?,
            });
        }
    }
    Ok(Found {
        machine: Machine::look(),
        threads,
        delegates: place.delegates,
        rows,
    })
}

/// Tells the bystander to end, when dropped: it is waited for, whatever became of the writers.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Times of all that the bystander did, in microseconds.
#[derive(Default)]
struct Bystander {
    names: Vec<f64>,
    writes: Vec<f64>,
}

impl Bystander {
    fn stand(&mut self, files: &FileSystem, is_over: &AtomicBool) -> Outcome<()> {
        let handle = open(files, OWN)?;
        let timed = |times: &mut Vec<f64>, what: &dyn Fn() -> Outcome<()>| {
            let begun = Instant::now();
            what()?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            Ok::<(), String>(())
        };
        let write = || match files.write(handle, &[1; LITTLE], Some(0)) {
            Ok(LITTLE) => Ok(()),
            other => Err(format!("the bystander's write: {other:?}")),
        };
        let names = || {
            let (path, flags) = (b"/bystander", libc::O_CREAT | libc::O_EXCL | libc::O_RDWR);
            let made = files.open(At::Root, path, flags, 0o600);
            files.close(made.map_err(|failure| format!("the bystander: {failure:?}"))?);
            let removed = files.unlink(At::Root, path, 0);
            removed.map_err(|failure| format!("the bystander: {failure:?}"))
        };
        write()?;
        names()?;
        while !is_over.load(Ordering::Relaxed) {
            timed(&mut self.names, &names)?;
            timed(&mut self.writes, &write)?;
            // It is no writer among others: most of the time it does nothing.
            std::thread::sleep(Duration::from_micros(500));
        }
        files.close(handle);
        Ok(())
    }
}

impl Report for Found {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}\n", self.machine)?;
        writeln!(
            text,
            "{} threads write, each in a file of its own, and another one makes a name and takes it away, and writes {LITTLE} bytes, every \
             half a millisecond: microseconds. {} delegates, or so many at once.\n",
            self.threads, self.delegates
        )?;
        writeln!(
            text,
            "| writers | | of the medium | a name: median | 99 % | longest | {LITTLE} bytes: median | 99 % | longest |\n\
             | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        )?;
        for row in &self.rows {
            let how = match row.how {
                How::Alone => "by themselves",
                How::Delegated => "delegated",
                How::AtOnce => "so many at once",
            };
            let times = |times: &Times| {
                let Times {
                    median,
                    most,
                    longest,
                } = times;
                format!("{median:.1} | {most:.0} | {longest:.0}")
            };
            writeln!(
                text,
                "| {} | {how} | {:.0} % | {} | {} |",
                row.operation,
                100.0 * row.rate / row.peak,
                times(&row.names),
                times(&row.writes)
            )?;
        }
        Ok(())
    }
}
