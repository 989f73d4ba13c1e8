//! In a worker: what each personality's threads do in a loop.

use super::files::{CREATE, FileSet};
use super::personality::{Personality, Work};
use super::shape::Shape;
use crate::calls::Calls;
use crate::crew::{Prepared, Share, Turns};
use crate::measure::Random;
use crate::outcome::Outcome;
use std::ffi::CString;
use std::sync::Arc;

const KIB: usize = 1024;
/// Most bytes that an append has.
const APPENDED: u64 = 16 << 10;
/// Bytes that are read at once.
const READ: usize = 1 << 20;

impl Personality {
    /// Files, bytes of one on average, files of a directory, how many of 100 are there at first.
    fn files(self) -> (u64, usize, u64, u64) {
        match self {
            Personality::Varmail => (1_000, 16 * KIB, 1_000_000, 80),
            Personality::Webproxy => (10_000, 16 * KIB, 1_000_000, 80),
            Personality::Webserver => (1_000, 16 * KIB, 20, 100),
            Personality::Fileserver => (10_000, 128 * KIB, 20, 80),
        }
    }

    /// Loops of all threads in a round, and operations in each.
    fn loops(self) -> (u64, u64) {
        match self {
            Personality::Varmail => (8_000, 13),
            Personality::Webproxy => (6_000, 19),
            Personality::Webserver => (4_000, 33),
            Personality::Fileserver => (2_000, 11),
        }
    }
}

pub fn prepare<'c, C: Calls + Sync>(calls: &'c C, share: Share<Work>) -> Outcome<Prepared<'c>>
where
    C::File: Send,
{
    let Work { personality, depth } = share.work;
    let (files, mean, width, present) = personality.files();
    let shape = depth.map_or(Shape::Wide(width), Shape::Deep);
    // Each thread has at most one file at a time.
    let files = (files / share.divisor).max(4 * share.threads + 100);
    let set = Arc::new(FileSet::make(calls, files, mean, shape, present)?);
    let log = calls.path("log");
    let logs = personality == Personality::Webserver;
    if logs {
        calls.close(calls.open(&log, CREATE)?);
    }
    let (loops, operations) = personality.loops();
    let loops = (loops / share.divisor / share.threads).max(1);
    let threads = (0..share.threads)
        .map(|number| {
            let mut thread = Thread {
                calls,
                set: Arc::clone(&set),
                random: Random(number << 32),
                data: vec![number as u8; set.largest().max(APPENDED as usize)],
                buffer: vec![0; READ],
            };
            let log = log.clone();
            Box::new(move || {
                (0..loops).try_for_each(|_| thread.once(personality, &log))?;
                Ok(loops * operations)
            }) as Turns<'c>
        })
        .collect();
    Ok(Prepared {
        threads,
        clean: Box::new(move || {
            if logs {
                calls.unlink(&log)?;
            }
            set.remove(calls)
        }),
    })
}

struct Thread<'c, C> {
    calls: &'c C,
    set: Arc<FileSet>,
    random: Random,
    data: Vec<u8>,
    buffer: Vec<u8>,
}

impl<C: Calls> Thread<'_, C> {
    fn once(&mut self, personality: Personality, log: &CString) -> Outcome<()> {
        match personality {
            Personality::Varmail => {
                self.take()?;
                self.create(false, true)?;
                self.read(true)?;
                self.read(false)
            }
            Personality::Webproxy => {
                self.take()?;
                self.create(false, false)?;
                (0..5).try_for_each(|_| self.read(false))
            }
            Personality::Webserver => {
                (0..10).try_for_each(|_| self.read(false))?;
                let file = self.calls.open(log, libc::O_RDWR | libc::O_APPEND)?;
                let appended = self.append(file);
                self.calls.close(file);
                appended
            }
            Personality::Fileserver => {
                // As a whole, with its size.
                self.create(true, false)?;
                self.grow()?;
                self.read(false)?;
                self.take()?;
                let (calls, set) = (self.calls, &self.set);
                set.with_present(&mut self.random, |path| calls.stat(path))
            }
        }
    }

    fn take(&mut self) -> Outcome<()> {
        self.set.take(self.calls, &mut self.random)
    }

    fn append(&mut self, file: C::File) -> Outcome<()> {
        let length = self.random.next() % APPENDED + 1;
        self.calls.append(file, &self.data[..length as usize])
    }

    /// Makes a file, of its own size or with what an append has.
    fn create(&mut self, whole: bool, sync: bool) -> Outcome<()> {
        let (calls, data) = (self.calls, &self.data);
        let appended = (self.random.next() % APPENDED + 1) as usize;
        self.set.with_new(&mut self.random, |path, size| {
            let file = calls.open(path, CREATE)?;
            let length = if whole { size } else { appended };
            let mut done = calls.append(file, &data[..length]);
            if sync {
                done = done.and_then(|()| calls.sync(file));
            }
            calls.close(file);
            done
        })
    }

    /// Reads a file as a whole; `reply`: appends to it then, and makes that durable.
    fn read(&mut self, reply: bool) -> Outcome<()> {
        let (calls, data, buffer) = (self.calls, &self.data, &mut self.buffer);
        let appended = (self.random.next() % APPENDED + 1) as usize;
        self.set.with_present(&mut self.random, |path| {
            let file = calls.open(path, libc::O_RDWR | libc::O_APPEND)?;
            let mut position = 0;
            let mut done = loop {
                match calls.read_some(file, buffer, position) {
                    Ok(length) if length == buffer.len() => position += length as u64,
                    Ok(_) => break Ok(()),
                    Err(line) => break Err(line),
                }
            };
            if reply {
                done = done
                    .and_then(|()| calls.append(file, &data[..appended]))
                    .and_then(|()| calls.sync(file));
            }
            calls.close(file);
            done
        })
    }

    /// Appends to a file that is there.
    fn grow(&mut self) -> Outcome<()> {
        let (calls, data) = (self.calls, &self.data);
        let appended = (self.random.next() % APPENDED + 1) as usize;
        self.set.with_present(&mut self.random, |path| {
            let file = calls.open(path, libc::O_RDWR | libc::O_APPEND)?;
            let done = calls.append(file, &data[..appended]);
            calls.close(file);
            done
        })
    }
}
