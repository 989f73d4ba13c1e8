//! What FxMark has writers do who share, as one of two sessions does it, in the pool or on tmpfs.
//!
//! Invariant: names and places of a session are never those of the other, but for the block that both write.

use super::how::How;
use super::timing::{until, until_none, wait_until};
use crate::calls::{Calls, DirectCalls, LibcCalls};
use crate::measure::{monotonic as now, processor_time};
use crate::outcome::Outcome;
use arckfs::{At, Mediation};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::CString;

const DIRECTORY: &str = "fxmark";
const BLOCK: usize = 4096;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Work {
    /// By one of both: a directory, and a file of two blocks, written as said.
    Prepare,
    /// MWCM: files created in the directory.
    Create,
    /// MWUM: files that this session has created removed.
    Unlink,
    /// What it has created and not removed goes, and is not timed.
    Clear,
    /// DWOM: a block of the file written over: its own one, or that which both write.
    Write { own: bool },
    /// By the first: a block of the file read. The other writes the other block meanwhile, or does nothing.
    Read { beside: bool },
}

/// An order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub work: Work,
    pub how: How,
    /// Where tmpfs is.
    pub tmpfs: String,
    /// Which of the two sessions it is.
    pub part: u64,
    pub begin: u64,
    pub end: u64,
}

impl Task {
    fn file(&self) -> &'static str {
        match self.how {
            How::Owners | How::Tmpfs => "fxmark-owned",
            How::Messages => "fxmark-told",
            How::Auto => "fxmark-found",
        }
    }
}

/// What was done, in how many nanoseconds, and how many of its processor.
pub struct Done {
    pub operations: u64,
    pub time: u64,
    pub busy: u64,
}

/// What a session knows of what it has created.
#[derive(Default)]
pub struct Worker {
    /// In the pool, and on tmpfs: how many in all, and what is there.
    made: HashMap<bool, (u64, Vec<CString>)>,
}

impl Worker {
    /// Nothing of what is not timed.
    pub fn follow(&mut self, pool: &DirectCalls, task: &Task) -> Outcome<Option<Done>> {
        if task.how == How::Tmpfs {
            let base = task.tmpfs.clone();
            return self.work(&LibcCalls { base }, task);
        }
        let worked = self.work(pool, task)?;
        if task.work == Work::Prepare {
            let mediation = match task.how {
                How::Messages => Mediation::On,
                How::Auto => Mediation::Auto,
                How::Owners | How::Tmpfs => Mediation::Off,
            };
            let file = task.file();
            let set = pool
                .file_system
                .set_mediation(At::Root, file.as_bytes(), mediation);
            set.map_err(|failure| format!("{file}: {failure:?}"))?;
        }
        Ok(worked)
    }

    fn work<C: Calls>(&mut self, calls: &C, task: &Task) -> Outcome<Option<Done>> {
        let (all, made) = self.made.entry(task.how == How::Tmpfs).or_default();
        let begin = wait_until(task.begin);
        let processor = processor_time();
        let done = |operations| Done {
            operations,
            time: now().saturating_sub(begin).max(1),
            busy: (processor_time() - processor) as u64,
        };
        let operations = match task.work {
            Work::Prepare => {
                let directory = calls.path(DIRECTORY);
                if calls.stat(&directory).is_err() {
                    calls.make_directory(&directory)?;
                }
                let flags = libc::O_CREAT | libc::O_RDWR;
                let file = calls.open(&calls.path(task.file()), flags)?;
                calls.write(file, &[0; 2 * BLOCK], 0)?;
                calls.close(file);
                return Ok(None);
            }
            Work::Create => until(task.end, || {
                let path = calls.path(&format!("{DIRECTORY}/{}-{all}", task.part));
                *all += 1;
                let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
                calls.close(calls.open(&path, flags)?);
                made.push(path);
                Ok(())
            })?,
            Work::Unlink => until_none(task.end, || match made.pop() {
                Some(path) => calls.unlink(&path).map(|()| true),
                None => Ok(false),
            })?,
            Work::Clear => {
                made.drain(..).try_for_each(|path| calls.unlink(&path))?;
                return Ok(None);
            }
            Work::Read { .. } if task.part == 0 => {
                let file = calls.open(&calls.path(task.file()), libc::O_RDONLY)?;
                let mut data = [0; BLOCK];
                let read = done(until(task.end, || calls.read(file, &mut data, 0))?);
                calls.close(file);
                return Ok(Some(read));
            }
            Work::Read { beside: false } => {
                let left = task.end.saturating_sub(now());
                std::thread::sleep(std::time::Duration::from_nanos(left));
                return Ok(Some(done(0)));
            }
            Work::Write { .. } | Work::Read { .. } => {
                let own = task.work != Work::Write { own: false };
                let file = calls.open(&calls.path(task.file()), libc::O_RDWR)?;
                let place = if own { task.part * BLOCK as u64 } else { 0 };
                let data = [task.part as u8; BLOCK];
                let written = done(until(task.end, || calls.write(file, &data, place))?);
                calls.close(file);
                return Ok(Some(written));
            }
        };
        Ok(Some(done(operations)))
    }
}
