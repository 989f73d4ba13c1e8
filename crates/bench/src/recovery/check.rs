//! What `arck check` of the whole pool takes.
//!
//! Invariant: what is told is of the command's process alone, as the kernel counted it at its end.

use crate::measure::monotonic;
use crate::outcome::Outcome;
use serde::Serialize;
use std::path::Path;
use std::process::{Command, Stdio};

/// One check.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Check {
    pub seconds: f64,
    /// Seconds of processor time, of all of its threads.
    pub processor: f64,
    /// Bytes that it had resident at most, those of the pool's files that it had mapped among them.
    pub memory: f64,
}

/// Checks a pool, in which nothing may be wrong.
pub fn check(arck: &Path, pool: &Path) -> Outcome<Check> {
    let begin = monotonic();
    let child = Command::new(arck)
        .arg("check")
        .arg(pool)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", arck.display()))?;
    let process = libc::pid_t::try_from(child.id()).map_err(|error| error.to_string())?;
    let mut status = 0;
    // SAFETY: numbers, for which zeroes are values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places live; our own child, which nobody else waits for.
    let waited = unsafe { libc::wait4(process, &raw mut status, 0, &raw mut usage) };
    let seconds = (monotonic() - begin) as f64 / 1e9;
    if waited != process || status != 0 {
        return Err(format!(
            "arck check of {}: status {status:#x}",
            pool.display()
        ));
    }
    let time = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Check {
        seconds,
        processor: time(usage.ru_utime) + time(usage.ru_stime),
        memory: usage.ru_maxrss as f64 * 1024.0,
    })
}
