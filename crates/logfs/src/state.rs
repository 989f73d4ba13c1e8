//! What members of a trust group share of their logs: bells, on which followers sleep until somebody has
//! appended.
//!
//! # Invariants
//! * A bell says nothing of a log but that it is worth a look: it can be rung for nothing, and whoever sleeps on
//!   it looks again after a while ([`LOOK`]), for a writer that was killed between its commit and the bell.
//! * Who waits says so before it looks for the last time, and who has appended looks whether anybody does
//!   behind its commit: one of the two sees the other.

use arck_libfs_kit::Session;
use arck_libfs_kit::region::{Offset, fingerprint};
use arck_libfs_kit::region_shared;
use rustix::io::Errno;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// Of the sources of what stands in the region.
pub const FINGERPRINT: u32 = fingerprint::of(&[include_bytes!("state.rs")]);

/// The root of the region at which the bells are found.
const ROOT: usize = 1;

/// Logs whose directories have numbers that are equal up to a multiple of this share a bell.
const BELLS: usize = 32;

/// Who sleeps on a bell looks again after so long.
pub const LOOK: Duration = Duration::from_millis(10);

region_shared! {
    /// Two cache lines: processors fetch them in pairs.
    pub struct Bell {
        /// Counts how often it was rung.
        rung: AtomicU32,
        /// Whether somebody sleeps, or is about to.
        is_awaited: AtomicU32,
        apart: [AtomicU64; 15],
    }

    /// Of all logs of a group.
    pub struct Bells {
        bells: [Bell; BELLS],
    }
}

impl Bells {
    /// Makes the bells in a new region. ENOMEM.
    pub fn create(session: &'static Session) -> Result<(), Errno> {
        let region = session.region();
        let bells = region
            .allocate_zeroed::<Bells>(session.thread()?.slot(), 1)
            .map_err(|_| Errno::NOMEM)?;
        let root = region.auxiliary_root(ROOT).ok_or(Errno::IO)?;
        root.store(bells.raw(), Ordering::Release);
        Ok(())
    }

    /// The bell of a log, by the inode number of its directory, in a session of this LibFS.
    pub fn of(session: &'static Session, directory: u32) -> Option<&'static Bell> {
        let region = session.region();
        let root = region.auxiliary_root(ROOT)?;
        let bells = region.try_get(Offset::<Bells>::from_raw(root.load(Ordering::Acquire)))?;
        bells.bells.get(directory as usize % BELLS)
    }
}

impl Bell {
    /// Wakes who waits. Behind a commit that everybody in the group can see.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.is_awaited.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.is_awaited.store(0, Ordering::Relaxed);
        self.rung.fetch_add(1, Ordering::SeqCst);
        // Fails only for an address that is none; this one is mapped.
        let _ = futex::wake(&self.rung, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Says that somebody is about to sleep; gives what to sleep on, after another look.
    pub fn await_next(&self) -> u32 {
        let rung = self.rung.load(Ordering::SeqCst);
        self.is_awaited.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        rung
    }

    /// Sleeps until it is rung, unless it has been since [`await_next`](Self::await_next); at most so long. May
    /// return for nothing.
    pub fn sleep(&self, rung: u32, most: Duration) {
        let time = futex::Timespec {
            tv_sec: most.as_secs() as i64,
            tv_nsec: i64::from(most.subsec_nanos()),
        };
        // Woken, rung before, interrupted, or out of time: the caller looks again.
        let _ = futex::wait(&self.rung, futex::Flags::empty(), rung, Some(&time));
    }
}
