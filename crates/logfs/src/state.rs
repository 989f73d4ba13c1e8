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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Log, Options};
    use arck_libfs_kit::session::{REGION_SIZE, SessionOptions};
    use arck_testkit::{Random, TestPool};
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    const GROUP: &str = "g";

    /// Longer than any look takes on a machine that is busy.
    const BOUND: Duration = Duration::from_secs(5);

    fn open(pool: &TestPool) -> Log {
        let options = Options {
            group: GROUP.to_owned(),
            make: true,
            ..Options::new(pool.path())
        };
        Log::open(options, "log").expect("a log")
    }

    /// Another member, that writes where it likes.
    fn join(pool: &TestPool) -> &'static Session {
        let wish = SessionOptions {
            group: GROUP.as_bytes(),
            region_size: REGION_SIZE,
            prepare: Bells::create,
            structures: FINGERPRINT,
            ..SessionOptions::default()
        };
        Session::connect_with(&pool.path(), &wish).expect("a member")
    }

    /// Each record is followed, soon and as it is.
    fn appends_are_followed(log: &Log, of: &str) {
        let mut follower = log.follow(log.end().expect(of)).expect(of);
        for count in 0..20u8 {
            let begun = Instant::now();
            let mut buffer = [0; 20];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(u64::from(count % 3)));
                    log.append(&[count; 10]).expect(of);
                });
                assert_eq!(follower.next(&mut buffer, BOUND).expect(of), 10, "{of}");
            });
            assert_eq!(buffer[..10], [count; 10], "{of}");
            assert!(begun.elapsed() < BOUND, "{of}: {:?}", begun.elapsed());
        }
    }

    /// Wherever a member says that the bells stand, nobody reads what is none of the region's, and nobody waits for
    /// longer than a look.
    #[test]
    fn a_place_of_the_bells_that_is_none_costs_no_more_than_looks() {
        let pool = TestPool::new(64 << 20);
        let log = open(&pool);
        let member = join(&pool);
        let root = member.region().auxiliary_root(ROOT).expect("a root");
        let bells = root.load(Ordering::Acquire);
        let size = member.region().size();
        for place in [
            0,
            1,
            bells + 1,
            size - 8,
            size - 128,
            size,
            size + 1,
            1 << 62,
            u64::MAX - 7,
            u64::MAX,
        ] {
            let of = format!("the bells at {place:#x}");
            root.store(place, Ordering::Release);
            for directory in [0, 5, u32::MAX] {
                // Where there is one, it can be looked at.
                let bell = Bells::of(member, directory);
                let _ = bell.map(|bell| bell.rung.load(Ordering::Relaxed));
            }
            let late = open(&pool);
            appends_are_followed(&late, &of);
            appends_are_followed(&log, &of);
        }
        root.store(bells, Ordering::Release);
        drop(log);
        member.end();
    }

    #[test]
    fn a_member_that_rings_and_resets_bells_at_random_keeps_nobody_waiting() {
        let pool = TestPool::new(64 << 20);
        let log = open(&pool);
        let member = join(&pool);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(3);
                while !ended.load(Ordering::Relaxed) {
                    for directory in 0..BELLS as u32 {
                        let bell = Bells::of(member, directory).expect("a bell");
                        bell.rung
                            .store(random.next_word() as u32, Ordering::Relaxed);
                        let awaited = random.below(2) as u32;
                        bell.is_awaited.store(awaited, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_micros(random.below(200)));
                }
            });
            for _ in 0..5 {
                appends_are_followed(&log, "scribbled bells");
            }
            ended.store(true, Ordering::Relaxed);
        });
        drop(log);
        member.end();
    }
}
