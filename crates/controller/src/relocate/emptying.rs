//! Emptying pages that were moved away: by workers, since the segment's session can hold its lock
//! for ever, and punching waits for pinned pages where memory is persistent.
//!
//! # Invariants
//! * A page is punched, and allocated in the backing again, before it is free.
//! * Nobody waits longer than [`PATIENCE`] for a worker that does not come forward, and for a second
//!   one of the same user not at all. Until it has ended, the segments are quarantined: nobody new
//!   is sent them, and they go to no other session.

use crate::change::{Change, Weight};
use crate::core::Core;
use crate::pool::{allocate, numbered};
use arck_core_state::{Geometry, PAGE_SIZE, PagePtr, SegmentNumber, layout};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// So long is waited for a worker that has done nothing meanwhile: a run of pages takes far less.
const PATIENCE: Duration = Duration::from_millis(250);

/// What a worker has done.
struct Emptied {
    /// May be used again.
    empty: Vec<PagePtr>,
    /// Could not be punched.
    shown: Vec<PagePtr>,
}

/// Pages of one user's segments that are being emptied.
struct Emptying {
    user: u32,
    pages: Vec<PagePtr>,
    /// `None`: there was no worker for it.
    worker: Option<Receiver<Emptied>>,
    /// Runs of pages that the worker is through with.
    progress: Arc<AtomicU64>,
}

/// Those that nobody waits for any more.
#[derive(Default)]
pub(crate) struct Emptyings(Vec<Emptying>);

impl Emptyings {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What the worker does.
fn empty(folder: &OwnedFd, geometry: Geometry, pages: &[PagePtr], progress: &AtomicU64) -> Emptied {
    let mut emptied = Emptied {
        empty: Vec::new(),
        shown: Vec::new(),
    };
    let is_next = |a: &PagePtr, b: &PagePtr| {
        a.0 + 1 == b.0 && geometry.segment_of(*a) == geometry.segment_of(*b)
    };
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let mut punched = Vec::new();
    // All of them before any is allocated again, which is what can fail.
    for run in pages.chunk_by(is_next) {
        let Some(&first) = run.first() else { continue };
        let name = numbered(layout::SEGMENTS, geometry.segment_of(first));
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let at = first.address() % geometry.segment_size;
        let length = run.len() as u64 * PAGE_SIZE;
        let file = rustix::fs::openat(folder, name, flags, Mode::empty());
        match file.and_then(|file| {
            rustix::fs::fallocate(&file, punch, at, length)?;
            crate::pool::punched(&file, at, length);
            Ok(file)
        }) {
            Ok(file) => punched.push((file, at, length, run)),
            Err(_) => emptied.shown.extend(run),
        }
        progress.fetch_add(1, Ordering::Relaxed);
        if punched.len() == FILES_MAX {
            allocate_again(&mut punched, &mut emptied);
        }
    }
    allocate_again(&mut punched, &mut emptied);
    emptied
}

/// Runs that are punched before any of them is allocated again: each has a descriptor.
const FILES_MAX: usize = 64;

fn allocate_again(punched: &mut Vec<(OwnedFd, u64, u64, &[PagePtr])>, emptied: &mut Emptied) {
    for (file, at, length, run) in punched.drain(..) {
        if allocate(file, at, length).is_ok() {
            emptied.empty.extend(run);
        }
    }
}

impl Core {
    /// Punches pages that nothing refers to any more, so that even a mapping that was kept shows
    /// nothing, and then frees them. What fails with one page (a session can use up the memory of
    /// the pool's file system, or hold its segment) leaves the others as they should be: that page
    /// stays out of use, and its segment is sent to nobody new.
    pub(super) fn empty_and_free(&mut self, pages: &[PagePtr]) -> Result<(), Errno> {
        let geometry = self.state.pool.geometry();
        let mut of_users: BTreeMap<u32, Vec<PagePtr>> = BTreeMap::new();
        for &page in pages {
            let entry = self.state.space.entry(geometry.segment_of(page));
            let user = entry.unwrap_or_default().uid;
            of_users.entry(user).or_default().push(page);
        }
        let mut done = Ok(());
        for (user, mut pages) in of_users {
            pages.sort_unstable();
            let has_stuck = self.emptyings.0.iter().any(|other| other.user == user);
            let mut emptying = Emptying {
                user,
                pages,
                worker: None,
                progress: Arc::default(),
            };
            self.begin(&mut emptying);
            match emptying.wait(has_stuck) {
                Some(emptied) => done = done.and(self.free_emptied(&emptying.pages, emptied)),
                None => {
                    tracing::warn!(
                        "{} pages that moved are not emptied: user {user} holds their segments",
                        emptying.pages.len()
                    );
                    self.hide_segments(&emptying.pages);
                    self.state
                        .space
                        .quarantine(segments_of(geometry, &emptying.pages));
                    self.emptyings.0.push(emptying);
                }
            }
        }
        done
    }

    fn begin(&self, emptying: &mut Emptying) {
        let geometry = self.state.pool.geometry();
        let (pages, progress) = (emptying.pages.clone(), emptying.progress.clone());
        let folder = rustix::io::fcntl_dupfd_cloexec(self.state.pool.directory(), 0);
        let worker = folder.and_then(|folder| {
            let work = move || empty(&folder, geometry, &pages, &progress);
            self.workers.start(emptying.user, work)
        });
        emptying.worker = worker.ok();
    }

    /// Frees what has been emptied since it was given up; `patience`: waits so long for the rest.
    pub(crate) fn finish_emptying(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        for mut emptying in std::mem::take(&mut self.emptyings.0) {
            if emptying.worker.is_none() {
                self.begin(&mut emptying);
            }
            let left = until.saturating_duration_since(Instant::now());
            let emptied = emptying.worker.as_ref().map(|worker| match left.is_zero() {
                true => worker.try_recv(),
                false => worker.recv_timeout(left).map_err(|error| match error {
                    RecvTimeoutError::Timeout => TryRecvError::Empty,
                    RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
                }),
            });
            match emptied {
                Some(Ok(emptied)) => {
                    if let Err(errno) = self.free_emptied(&emptying.pages, emptied) {
                        tracing::error!("freeing pages that were emptied: {errno}");
                    }
                }
                // Something went wrong in it: once more.
                Some(Err(TryRecvError::Disconnected)) => {
                    emptying.worker = None;
                    self.emptyings.0.push(emptying);
                }
                Some(Err(TryRecvError::Empty)) | None => self.emptyings.0.push(emptying),
            }
        }
        let geometry = self.state.pool.geometry();
        let held = self
            .emptyings
            .0
            .iter()
            .flat_map(|e| segments_of(geometry, &e.pages));
        let held: BTreeSet<SegmentNumber> = held.collect();
        self.state.space.keep_in_quarantine(&held);
    }

    fn free_emptied(&mut self, pages: &[PagePtr], emptied: Emptied) -> Result<(), Errno> {
        let Emptied { empty, shown } = emptied;
        if empty.len() < pages.len() {
            tracing::error!(
                "{} pages that moved cannot be used again; of them, {} can still be read by who \
                 could before",
                pages.len() - empty.len(),
                shown.len()
            );
        }
        self.hide_segments(&shown);
        let mut change = Change::new(&mut self.state);
        for page in empty {
            change.set_data_page_used(page, false);
        }
        change.commit(Weight::Fold)
    }
}

fn segments_of(geometry: Geometry, pages: &[PagePtr]) -> BTreeSet<SegmentNumber> {
    pages
        .iter()
        .map(|&page| geometry.segment_of(page))
        .collect()
}

impl Emptying {
    /// What the worker has done, if it comes forward; `at_once`: if it has by now.
    fn wait(&self, at_once: bool) -> Option<Emptied> {
        let worker = self.worker.as_ref()?;
        let patience = match at_once {
            true => Duration::ZERO,
            false => PATIENCE,
        };
        let mut seen = 0;
        loop {
            match worker.recv_timeout(patience) {
                Ok(emptied) => return Some(emptied),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    let progress = self.progress.load(Ordering::Relaxed);
                    if at_once || progress == seen {
                        return None;
                    }
                    seen = progress;
                }
            }
        }
    }
}
