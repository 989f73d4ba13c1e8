//! `arck-bench delegation --across`: what it costs to move bytes between the pool and the memory of another process, beside that of one's
//! own: the floor under delegates that serve other processes than their own.
//!
//! # Invariants
//! * Both sides are touched before they are timed, and the other process does nothing meanwhile.
//! * Where the kernel moves fewer bytes than it was asked to, nothing is told.
// What the bare stores cost: no order is to be had here.
#![allow(clippy::disallowed_methods)]

use crate::machine::Machine;
use crate::measure::median;
use crate::outcome::Outcome;
use crate::output::Report;
use arck_pm::{PersistPolicy, SharedBytes, set_policy};
use rustix::process::{Pid, Signal};
use serde::Serialize;
use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

const SIZES: [usize; 3] = [4 << 10, 64 << 10, 2 << 20];
const LARGEST: usize = SIZES[2];
/// Bytes that are fetched at once before they are streamed: they stay in the processor's cache.
const PIECE: usize = 64 << 10;
/// Accesses of a round.
const ACCESSES: usize = 200;

/// Microseconds for each of [`SIZES`].
#[derive(Serialize)]
struct Row {
    what: &'static str,
    microseconds: [f64; SIZES.len()],
}

#[derive(Serialize)]
pub struct Found {
    machine: Machine,
    rows: Vec<Row>,
}

/// A process that has a copy of this one's memory, and does nothing; it ends when this is dropped.
struct Other(Pid);

impl Other {
    fn begin() -> Outcome<Other> {
        // SAFETY: the child does nothing but wait for its end, by system calls.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            }
        }
        let process = Pid::from_raw(child).ok_or("there is no other process");
        Ok(Other(process?))
    }

    /// Copies from where this process has `there`, to `here`.
    fn fetch(&self, here: &mut [u8], there: *const u8) -> Outcome<()> {
        let (here, there) = vectors(here.as_mut_ptr(), there.cast_mut(), here.len());
        // SAFETY: what is written is a slice's memory; what the other process has is the kernel's to look at.
        let moved = unsafe {
            libc::process_vm_readv(self.0.as_raw_nonzero().get(), &here, 1, &there, 1, 0)
        };
        all("process_vm_readv", moved, here.iov_len)
    }

    /// Copies from `here` to where this process has `there`.
    fn give(&self, here: *const u8, there: *mut u8, length: usize) -> Outcome<()> {
        let (here, there) = vectors(here.cast_mut(), there, length);
        // SAFETY: what is written is the other process's.
        let moved = unsafe {
            libc::process_vm_writev(self.0.as_raw_nonzero().get(), &here, 1, &there, 1, 0)
        };
        all("process_vm_writev", moved, length)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.0), rustix::process::WaitOptions::empty());
    }
}

fn vectors(here: *mut u8, there: *mut u8, length: usize) -> (libc::iovec, libc::iovec) {
    let vector = |base: *mut u8| libc::iovec {
        iov_base: base.cast(),
        iov_len: length,
    };
    (vector(here), vector(there))
}

fn all(call: &str, moved: isize, length: usize) -> Outcome<()> {
    match usize::try_from(moved) {
        Ok(moved) if moved == length => Ok(()),
        Ok(moved) => Err(format!("{call}: {moved} of {length} bytes")),
        Err(_) => Err(format!("{call}: {}", std::io::Error::last_os_error())),
    }
}

/// The median of some rounds.
fn time(rounds: usize, size: usize, mut work: impl FnMut(usize) -> Outcome<()>) -> Outcome<f64> {
    let mut times = Vec::new();
    // The first touches what there is, and does not count.
    for round in 0..=rounds {
        let begun = Instant::now();
        for index in 0..ACCESSES {
            work(index * size % LARGEST)?;
        }
        if round > 0 {
            times.push(begun.elapsed().as_secs_f64() * 1e6 / ACCESSES as f64);
        }
    }
    Ok(median(times.iter().copied()))
}

pub fn measure(rounds: usize) -> Outcome<Found> {
    set_policy(PersistPolicy::Flush);
    let words: Vec<AtomicU64> = (0..LARGEST as u64 / 8).map(AtomicU64::new).collect();
    let pool = SharedBytes::from_words(&words);
    let mut buffer = vec![1u8; LARGEST];
    let mut piece = vec![2u8; LARGEST];
    let there = buffer.as_mut_ptr();
    let other = Other::begin()?;
    let lost = || "outside of the memory".to_owned();
    let mut rows = Vec::new();
    let mut add = |what, work: &mut dyn FnMut(usize, usize) -> Outcome<()>| -> Outcome<()> {
        let mut microseconds = [0.0; SIZES.len()];
        for (place, size) in microseconds.iter_mut().zip(SIZES) {
            *place = time(rounds, size, |at| work(at, size))?;
        }
        rows.push(Row { what, microseconds });
        Ok(())
    };
    add(
        "write: streamed from one's own memory, and fenced",
        &mut |at, size| {
            pool.stream_from(at, &buffer[at..at + size])
                .ok_or_else(lost)?;
            arck_pm::fence();
            Ok(())
        },
    )?;
    add(
        "write: fetched from another's by process_vm_readv, streamed, and fenced",
        &mut |at, size| {
            for from in (at..at + size).step_by(PIECE) {
                let length = PIECE.min(at + size - from);
                other.fetch(&mut piece[..length], there.wrapping_add(from))?;
                pool.stream_from(from, &piece[..length]).ok_or_else(lost)?;
            }
            arck_pm::fence();
            Ok(())
        },
    )?;
    add("read: copied to one's own memory", &mut |at, size| {
        pool.copy_to(at, &mut buffer[at..at + size])
            .ok_or_else(lost)
    })?;
    add(
        "read: given to another's by process_vm_writev",
        &mut |at, size| {
            let from = pool.slice(at, size).ok_or_else(lost)?;
            other.give(from.as_ptr(), there.wrapping_add(at), size)
        },
    )?;
    Ok(Found {
        machine: Machine::look(),
        rows,
    })
}

impl Report for Found {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}\n", self.machine)?;
        writeln!(
            text,
            "| microseconds | 4 KiB | 64 KiB | 2 MiB |\n| --- | ---: | ---: | ---: |"
        )?;
        for row in &self.rows {
            let [small, middle, large] = row.microseconds;
            writeln!(
                text,
                "| {} | {small:.2} | {middle:.2} | {large:.1} |",
                row.what
            )?;
        }
        Ok(())
    }
}
