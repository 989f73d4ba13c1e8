//! What so many threads get done on files of their own, for how `arck-bench delegation` looks at it.
//!
//! Invariant: each thread writes and reads a file of its own, in order: within what it holds already, where no page is new, or behind its
//! end, where all are.

use crate::outcome::Outcome;
use arck_libfs_kit::memory::medium::{self, Delegated, Model, Way};
use arckfs::{At, FileSystem, Handle};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a thread's file.
pub const FILE: u64 = 4 << 20;

pub const SIZES: [(usize, &str); 2] = [(2 << 20, "2 MiB"), (4 << 10, "4 KiB")];

pub fn peak(model: &Model, way: Way, size: usize) -> f64 {
    let direction = model.direction(way);
    let share = direction.bandwidth(1, size) / direction.by_threads.at(1);
    direction.by_threads.peak() * share * f64::from(model.nodes) / 1000.0
}

pub fn model_of() -> Outcome<Model> {
    Ok(*medium::model().ok_or("no medium is emulated")?)
}

/// Whatever the medium's file says: what is not delegated is not to be seen.
pub fn delegated_all(model: &Model, threads: u32) -> Delegated {
    Delegated {
        threads,
        ..Delegated::usual(&model.write.by_threads)
    }
}

/// Gives a thread's file all of its bytes, and closes it.
pub fn fill(files: &FileSystem, handle: Handle, thread: usize) -> Outcome<()> {
    let content = vec![thread as u8; FILE as usize];
    let written = files.write(handle, &content, Some(0));
    files.close(handle);
    match written == Ok(content.len()) {
        true => Ok(()),
        false => Err(format!("filling a file: {written:?}")),
    }
}

/// What each thread does, again and again.
#[derive(Clone, Copy)]
pub struct Access {
    pub way: Way,
    pub size: usize,
    /// Writes are of new pages: the file is cut off, and grows again.
    pub is_fresh: bool,
}

/// Where it is measured.
pub struct Place<'f> {
    pub files: &'f FileSystem,
    pub medium: String,
    pub model: Model,
    /// Threads of each node.
    pub delegates: u32,
    /// Writes are of new pages.
    pub is_fresh: bool,
}

pub fn name(way: Way) -> &'static str {
    match way {
        Way::Write => "write",
        Way::Read => "read",
    }
}

/// A thread's file, and where it is in it.
struct Worker<'f> {
    files: &'f FileSystem,
    handle: Handle,
    buffer: Vec<u8>,
    at: u64,
}

impl Worker<'_> {
    fn access(&mut self, access: Access) -> Outcome<()> {
        if access.is_fresh && access.way == Way::Write && self.at == 0 {
            let cut = self.files.truncate_handle(self.handle, 0);
            cut.map_err(|errno| format!("cutting a file off: {errno}"))?;
        }
        let done = match access.way {
            Way::Write => self.files.write(self.handle, &self.buffer, Some(self.at)),
            Way::Read => self
                .files
                .read(self.handle, &mut self.buffer, Some(self.at)),
        };
        match done {
            Ok(count) if count == self.buffer.len() => {}
            other => {
                return Err(format!(
                    "an access of {} bytes: {other:?}",
                    self.buffer.len()
                ));
            }
        }
        self.at = (self.at + self.buffer.len() as u64) % FILE;
        Ok(())
    }
}

pub fn open(files: &FileSystem, thread: usize) -> Outcome<Handle> {
    let path = format!("/file-{thread}");
    let flags = libc::O_CREAT | libc::O_RDWR;
    let handle = files.open(At::Root, path.as_bytes(), flags, 0o600);
    handle.map_err(|failure| format!("{path}: {failure:?}"))
}

/// What was done: GB/s, and the longest access in milliseconds.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Done {
    pub rate: f64,
    pub longest: f64,
}

/// Of so many threads for about so long.
pub fn rate(files: &FileSystem, access: Access, threads: usize, time: Duration) -> Outcome<Done> {
    // All of them come to run first.
    let from = || Instant::now() + time / 4;
    rate_from(files, access, 0..threads, from, time)
}

/// The same on files of these numbers, counted from a moment on that is asked for when all have opened theirs.
pub fn rate_from(
    files: &FileSystem,
    access: Access,
    threads: Range<usize>,
    from: impl FnOnce() -> Instant,
    time: Duration,
) -> Outcome<Done> {
    let barrier = Barrier::new(threads.len() + 1);
    let (moved, longest) = (AtomicU64::new(0), AtomicU64::new(0));
    let (counts, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let work = |thread: usize| -> Outcome<()> {
        // What it opens and where it goes is known before it counts.
        let first = open(files, thread).and_then(|handle| {
            let mut worker = Worker {
                files,
                handle,
                buffer: vec![thread as u8; access.size],
                at: 0,
            };
            worker.access(access).map(|()| worker)
        });
        barrier.wait();
        let mut worker = first?;
        while !is_over.load(Ordering::Relaxed) {
            let counted = counts.load(Ordering::Relaxed).then(Instant::now);
            worker.access(access)?;
            moved.fetch_add(access.size as u64, Ordering::Relaxed);
            if let Some(begun) = counted {
                let took = begun.elapsed().as_nanos() as u64;
                longest.fetch_max(took, Ordering::Relaxed);
            }
        }
        files.close(worker.handle);
        Ok(())
    };
    std::thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = threads
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        barrier.wait();
        std::thread::sleep(from().saturating_duration_since(Instant::now()));
        counts.store(true, Ordering::Relaxed);
        let (begun, before) = (Instant::now(), moved.load(Ordering::Relaxed));
        std::thread::sleep(time);
        let bytes = moved.load(Ordering::Relaxed) - before;
        let seconds = begun.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        for thread in all {
            thread
                .join()
                .map_err(|_| "a thread panicked".to_owned())??;
        }
        Ok(Done {
            rate: bytes as f64 / seconds / 1e9,
            longest: longest.load(Ordering::Relaxed) as f64 / 1e6,
        })
    })
}
