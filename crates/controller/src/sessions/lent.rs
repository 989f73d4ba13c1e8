//! Files that sessions were sent to write, and what each may take of the pool's file system.
//!
//! A session can make a file longer than it is meant to be, or allocate memory in the unallocated
//! part of its arena, by mere stores; so can whoever keeps a descriptor when the session has ended.
//! The kernel has no limit for that. So a thread looks at the files now and then, and the service
//! thread closes the session of one that has outgrown what it may take, and has a worker take back
//! what was too much.
//!
//! # Invariants
//! * A file is here from before it is sent until it is known that nobody can write it any more.
//! * What a file may take is raised before anything is allocated in it.
//! * The looking thread does nothing but `stat`, `statfs` and asking for leases, which wait for
//!   no lock that a session can hold.

use crate::pool::files::numbered;
use crate::pool::reach::{Reach, reach_of};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{SegmentNumber, layout};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, StatVfs};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the free space of the pool's file system is looked at.
const INTERVAL: Duration = Duration::from_millis(100);
/// All files are looked at if so many bytes have been taken since they were last,
const TAKEN: u64 = 1 << 20;
/// or so much time has passed;
const ALL_INTERVAL: Duration = Duration::from_secs(2);
/// but for no more than one part in so many of the time.
const SHARE: u32 = 20;

/// A file that a session was sent to write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lent {
    Arena(SessionNumber),
    Segment(SegmentNumber),
}

impl Lent {
    /// Its name in the pool's directory.
    pub fn name(self) -> String {
        match self {
            Lent::Arena(session) => numbered(layout::ARENAS, session),
            Lent::Segment(segment) => numbered(layout::SEGMENTS, segment),
        }
    }
}

/// What a file may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Whose it is, or was last.
    pub session: SessionNumber,
    pub user: u32,
    /// Bytes of length.
    pub size: u64,
    /// Bytes of memory, with what the file system needs for itself.
    pub bytes: u64,
}

/// How a file was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub size: u64,
    pub bytes: u64,
}

impl Allowance {
    /// Whether a file is more than it may be.
    pub fn is_outgrown(&self, found: Found) -> bool {
        found.size > self.size || found.bytes > self.bytes
    }
}

/// What a file of so many granted bytes may take: a few pages more than it should, since sessions
/// are not closed for little, and file systems need some for themselves: `overhead` bytes were
/// found with a new one.
pub fn with_slack(granted: u64, overhead: u64) -> u64 {
    granted + granted / 64 + 4 * overhead + (256 << 10)
}

#[derive(Default)]
struct Files {
    allowed: BTreeMap<Lent, (Allowance, bool)>,
    outgrown: Vec<(Lent, Found)>,
    over: bool,
    has_thread: bool,
}

struct Shared {
    files: Mutex<Files>,
    changed: Condvar,
    directory: OwnedFd,
    /// Written when something is in `outgrown`.
    notice: Arc<OwnedFd>,
}

/// See the module's head.
pub struct Lookout(Arc<Shared>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Files> {
        // Nothing panics with it, and every state of it is a good one.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self) -> u64 {
        free_bytes(&self.directory).unwrap_or(0)
    }

    fn run(&self) {
        // As if all had been looked at long ago.
        let mut free_then = u64::MAX;
        let mut last = Instant::now();
        let mut took = Duration::ZERO;
        loop {
            let mut files = self.lock();
            while files.allowed.is_empty() && !files.over {
                files = self.wait(files, None);
            }
            if !files.over {
                files = self.wait(files, Some(INTERVAL.max(took * SHARE)));
            }
            if files.over {
                return;
            }
            drop(files);
            let free = self.free();
            let is_due = last.elapsed() > ALL_INTERVAL;
            if free.saturating_add(TAKEN) > free_then && !is_due {
                free_then = free_then.max(free);
                continue;
            }
            let began = Instant::now();
            self.look(is_due);
            last = Instant::now();
            took = began.elapsed();
            free_then = free;
        }
    }

    fn wait<'a>(
        &self,
        files: MutexGuard<'a, Files>,
        time: Option<Duration>,
    ) -> MutexGuard<'a, Files> {
        match time {
            None => self
                .changed
                .wait(files)
                .unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                // Woken early only by the end.
                let until = |files: &mut Files| !files.over;
                self.changed
                    .wait_timeout_while(files, time, until)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        }
    }

    /// Looks at all files; `and_reach`: forgets those of ended sessions that nobody can write.
    fn look(&self, and_reach: bool) {
        let files: Vec<(Lent, (Allowance, bool))> = {
            let files = self.lock();
            files
                .allowed
                .iter()
                .map(|(lent, of)| (*lent, *of))
                .collect()
        };
        let mut outgrown = Vec::new();
        let mut out_of_reach = Vec::new();
        for (lent, (allowance, has_ended)) in files {
            let name = lent.name();
            let found = match found(&self.directory, &name) {
                Ok(found) => found,
                Err(Errno::NOENT) if has_ended => {
                    out_of_reach.push((lent, allowance));
                    continue;
                }
                Err(_) => continue,
            };
            if allowance.is_outgrown(found) {
                outgrown.push((lent, found));
            } else if has_ended && and_reach && reach_of(&self.directory, &name) == Reach::Nobodys {
                out_of_reach.push((lent, allowance));
            }
        }
        let mut files = self.lock();
        for (lent, allowance) in out_of_reach {
            // Unless it has been lent again meanwhile.
            if files.allowed.get(&lent) == Some(&(allowance, true)) {
                files.allowed.remove(&lent);
            }
        }
        if !outgrown.is_empty() {
            files.outgrown = outgrown;
            // A full counter wakes as well.
            let _ = rustix::io::write(&*self.notice, &1u64.to_ne_bytes());
        }
    }
}

/// How a file of the pool's is now.
fn found(directory: &OwnedFd, name: &str) -> Result<Found, Errno> {
    let status = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(Found {
        size: u64::try_from(status.st_size).unwrap_or(0),
        bytes: u64::try_from(status.st_blocks).unwrap_or(0) * 512,
    })
}

/// Bytes of a file system that are free.
pub fn free_bytes(directory: &OwnedFd) -> Result<u64, Errno> {
    let StatVfs {
        f_bavail, f_frsize, ..
    } = rustix::fs::fstatvfs(directory)?;
    Ok(f_bavail.saturating_mul(f_frsize))
}

impl Lookout {
    /// For the files of a directory; `notice` is an eventfd.
    pub fn new(directory: OwnedFd, notice: Arc<OwnedFd>) -> Lookout {
        Lookout(Arc::new(Shared {
            files: Mutex::new(Files::default()),
            changed: Condvar::new(),
            directory,
            notice,
        }))
    }

    /// What a file may be from now on. Before it is sent, or grown.
    pub fn lend(&self, lent: Lent, allowance: Allowance) {
        let mut files = self.0.lock();
        let is_first = files.allowed.is_empty();
        files.allowed.insert(lent, (allowance, false));
        if !files.has_thread {
            let shared = self.0.clone();
            let started = std::thread::Builder::new()
                .name("arck-lookout".into())
                .spawn(move || shared.run());
            // Without one, at the next attempt.
            files.has_thread = started.is_ok();
        }
        drop(files);
        if is_first {
            self.0.changed.notify_all();
        }
    }

    /// The session has ended; who kept the file can still write it.
    pub fn ended(&self, lent: Lent) {
        if let Some((_, has_ended)) = self.0.lock().allowed.get_mut(&lent) {
            *has_ended = true;
        }
    }

    /// Nobody can write the file any more.
    pub fn forget(&self, lent: Lent) {
        self.0.lock().allowed.remove(&lent);
    }

    /// What a file may be.
    pub fn allowance(&self, lent: Lent) -> Option<Allowance> {
        self.0
            .lock()
            .allowed
            .get(&lent)
            .map(|(allowance, _)| *allowance)
    }

    /// How a file is now, if it can be told.
    pub fn look_at(&self, lent: Lent) -> Option<Found> {
        found(&self.0.directory, &lent.name()).ok()
    }

    /// What has been found since this was asked last.
    pub fn take_outgrown(&self) -> Vec<(Lent, Found)> {
        std::mem::take(&mut self.0.lock().outgrown)
    }

    /// Becomes readable when there is something to take.
    pub fn notice(&self) -> Arc<OwnedFd> {
        self.0.notice.clone()
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.changed.notify_all();
    }
}
