//! Emptying pages that were moved away: by workers, since the segment's session can hold its lock
//! for ever, and punching waits for pinned pages where memory is persistent.
//!
//! # Invariants
//! * A page is punched, and allocated in the backing again, before it is free.
//! * No step waits longer than [`TURN`] for a worker. Whoever has closed something waits for it in turns
//!   (see [`closing`](super::closing)), while others are served: until it has ended, or was given up.
//! * A worker is given up that has done nothing for [`PATIENCE`]; a second one of the same user when the
//!   turn is over.
//! * Until a worker has ended for which a step has not waited, the segments are quarantined: they go to no
//!   other session. When it is given up, nobody new is sent them either.

use crate::access::Access;
use crate::access::emptyings::{Emptied, Emptying};
use crate::pool::files::{allocate, numbered};
use crate::state::change::{Change, Weight};
use arck_core_state::{Geometry, PAGE_SIZE, PagePtr, SegmentNumber, layout};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// So long a step waits for a worker: most have ended by then, where the machine is not very busy.
const TURN: Duration = Duration::from_millis(5);
/// So long is waited altogether for a worker that has done nothing meanwhile: a run of pages takes far
/// less, but on a busy machine it may have to wait for a processor.
const PATIENCE: Duration = Duration::from_secs(2);

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
            crate::pool::files::punched(&file, at, length);
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

impl Access<'_> {
    /// Punches pages that nothing refers to any more, so that even a mapping that was kept shows
    /// nothing, and then frees them. Gives what has not ended within a turn, for
    /// [`wait_for_emptying`](Self::wait_for_emptying).
    ///
    /// What fails with one page (a session can use up the memory of the pool's file system, or hold its
    /// segment) leaves the others as they should be: that page stays out of use, and its segment is sent
    /// to nobody new.
    pub(super) fn begin_emptying(&mut self, pages: &[PagePtr]) -> Vec<Emptying> {
        let geometry = self.sessions.state.pool.geometry();
        let mut of_users: BTreeMap<u32, Vec<PagePtr>> = BTreeMap::new();
        for &page in pages {
            let entry = self.sessions.state.space.entry(geometry.segment_of(page));
            let user = entry.unwrap_or_default().uid;
            of_users.entry(user).or_default().push(page);
        }
        let begun = of_users.into_iter().map(|(user, mut pages)| {
            pages.sort_unstable();
            let mut emptying = Emptying {
                user,
                pages,
                worker: None,
                progress: Arc::default(),
                seen: (0, Instant::now()),
            };
            self.begin(&mut emptying);
            emptying
        });
        let mut begun = begun.collect();
        self.wait_for_emptying(&mut begun);
        for emptying in &begun {
            let segments = segments_of(geometry, &emptying.pages);
            self.sessions.state.space.quarantine(segments);
        }
        begun
    }

    /// Waits a turn for workers, and frees what they have emptied. What is left has not ended.
    pub(super) fn wait_for_emptying(&mut self, under_way: &mut Vec<Emptying>) {
        if under_way.is_empty() {
            return;
        }
        // Whoever was too slow once may have come forward since.
        self.free_given_up(Duration::ZERO);
        let until = Instant::now() + TURN;
        for mut emptying in std::mem::take(under_way) {
            if emptying.worker.is_none() {
                self.begin(&mut emptying);
            }
            let patience = until.saturating_duration_since(Instant::now());
            match emptying.ended(patience) {
                Some(emptied) => self.free_emptied(&emptying.pages, emptied),
                None if self.is_given_up(&mut emptying) => self.give_up([emptying]),
                None => under_way.push(emptying),
            }
        }
    }

    /// Whether nobody waits for a worker any more that has had its turn.
    fn is_given_up(&self, emptying: &mut Emptying) -> bool {
        let progress = emptying.progress.load(Ordering::Relaxed);
        let (seen, since) = &mut emptying.seen;
        if *seen != progress {
            (*seen, *since) = (progress, Instant::now());
        }
        let is_of_user = |other: &Emptying| other.user == emptying.user;
        since.elapsed() > PATIENCE || self.places.emptyings.0.iter().any(is_of_user)
    }

    /// Nobody waits for these any more; they are freed when they are empty.
    pub(super) fn give_up(&mut self, under_way: impl IntoIterator<Item = Emptying>) {
        let geometry = self.sessions.state.pool.geometry();
        for emptying in under_way {
            tracing::warn!(
                "{} pages that moved are not emptied: user {} holds their segments",
                emptying.pages.len(),
                emptying.user
            );
            self.hide_segments(&emptying.pages);
            let segments = segments_of(geometry, &emptying.pages);
            self.sessions.state.space.quarantine(segments);
            self.places.emptyings.0.push(emptying);
        }
    }

    fn begin(&self, emptying: &mut Emptying) {
        let geometry = self.sessions.state.pool.geometry();
        let (pages, progress) = (emptying.pages.clone(), emptying.progress.clone());
        let folder = rustix::io::fcntl_dupfd_cloexec(self.sessions.state.pool.directory(), 0);
        let worker = folder.and_then(|folder| {
            let work = move || empty(&folder, geometry, &pages, &progress);
            self.sessions.workers.start(emptying.user, work)
        });
        emptying.worker = worker.ok();
    }

    /// Frees what has been emptied since it was given up; `patience`: waits so long for the rest.
    pub(crate) fn finish_emptying(&mut self, patience: Duration) {
        self.free_given_up(patience);
        self.end_quarantine();
    }

    fn free_given_up(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        for mut emptying in std::mem::take(&mut self.places.emptyings.0) {
            if emptying.worker.is_none() {
                self.begin(&mut emptying);
            }
            let left = until.saturating_duration_since(Instant::now());
            match emptying.ended(left) {
                Some(emptied) => self.free_emptied(&emptying.pages, emptied),
                None => self.places.emptyings.0.push(emptying),
            }
        }
    }

    /// What nobody is emptying any more may be given again.
    pub(super) fn end_quarantine(&mut self) {
        let geometry = self.sessions.state.pool.geometry();
        let under_way = self
            .places
            .closings
            .emptyings()
            .chain(&self.places.emptyings.0);
        let held: BTreeSet<SegmentNumber> = under_way
            .flat_map(|emptying| segments_of(geometry, &emptying.pages))
            .chain(self.places.relabelling.segments())
            .collect();
        self.sessions.state.space.keep_in_quarantine(&held);
    }

    fn free_emptied(&mut self, pages: &[PagePtr], emptied: Emptied) {
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
        let mut change = Change::new(&mut self.sessions.state);
        for page in empty {
            change.set_data_page_used(page, false);
        }
        if let Err(errno) = change.commit(Weight::Fold) {
            tracing::error!("pages that were emptied are not free: {errno}");
        }
    }
}

fn segments_of(geometry: Geometry, pages: &[PagePtr]) -> BTreeSet<SegmentNumber> {
    pages
        .iter()
        .map(|&page| geometry.segment_of(page))
        .collect()
}

impl Emptying {
    /// What the worker has done, if it has ended by then.
    fn ended(&mut self, patience: Duration) -> Option<Emptied> {
        let worker = self.worker.as_ref()?;
        let ended = match patience.is_zero() {
            true => worker.try_recv(),
            false => worker.recv_timeout(patience).map_err(|error| match error {
                RecvTimeoutError::Timeout => TryRecvError::Empty,
                RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
            }),
        };
        if ended.as_ref().err() == Some(&TryRecvError::Disconnected) {
            // Something went wrong in it: once more.
            self.worker = None;
        }
        ended.ok()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Core;
    use crate::testing::TestCore;
    use crate::threads::workers::WORKERS_MAX;
    use arck_controller_state::segments::CONTROLLER;
    use std::sync::mpsc::Sender;

    /// All workers that a user may have, until this is dropped.
    pub struct Stuck {
        _until: Vec<Sender<()>>,
    }

    impl Stuck {
        pub fn new(core: &Core, user: u32) -> Stuck {
            let start = |_| {
                let (sender, receiver) = std::sync::mpsc::channel::<()>();
                let work = move || receiver.recv().is_err();
                core.sessions.workers.start(user, work).unwrap();
                sender
            };
            Stuck {
                _until: (0..WORKERS_MAX).map(start).collect(),
            }
        }
    }

    /// Closes a file; gives its page, which it has left.
    fn close(test: &mut TestCore) -> PagePtr {
        let (number, page) = test.readable_file(1001);
        let closed = test.made_private(number);
        test.core.access().tighten(vec![closed]);
        page
    }

    fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
        let began = Instant::now();
        (what(), began.elapsed())
    }

    /// As long as somebody held a segment, or a worker had no processor, a step waited for it; and what
    /// moved after that was not waited for at all, so that whoever had closed it was told too early.
    #[test]
    fn a_closing_waits_in_turns_until_what_it_left_is_empty() {
        let mut test = TestCore::new();
        let stuck = Stuck::new(&test.core, CONTROLLER);
        let (first, took) = timed(|| close(&mut test));
        assert!(took < PATIENCE / 4, "a step of {took:?}");
        let second = close(&mut test);
        let is_used = |test: &TestCore, page| test.core.sessions.state.space.is_used(page);
        for _ in 0..10 {
            assert_eq!(
                test.core.places.closings.progress()[0],
                2,
                "both are under way"
            );
            let (any, took) = timed(|| test.core.access().close_slice());
            assert!(any && took < PATIENCE / 4, "a step of {took:?}");
            assert!(is_used(&test, first) && is_used(&test, second));
        }
        assert!(test.core.places.emptyings.is_empty(), "given up too early");
        drop(stuck);
        test.core.access().finish_closing();
        assert!(!is_used(&test, first) && !is_used(&test, second));
        assert!(test.core.places.emptyings.is_empty());
    }

    /// Who holds his segments for ever keeps nobody's closing from ending.
    #[test]
    fn who_never_comes_forward_is_given_up() {
        let mut test = TestCore::new();
        let stuck = Stuck::new(&test.core, CONTROLLER);
        // He is waited for from within the closing on.
        let (first, took) = timed(|| {
            let first = close(&mut test);
            test.core.access().finish_closing();
            first
        });
        assert!(took >= PATIENCE, "{took:?}");
        assert_eq!(test.class_of(first), None, "others are sent it");
        // Of the same user nobody is waited for any more.
        let (second, took) = timed(|| close(&mut test));
        test.core.access().finish_closing();
        assert!(took < PATIENCE / 4, "{took:?}");
        assert_eq!(test.core.places.emptyings.0.len(), 2);
        assert!(test.core.sessions.state.space.is_used(first));
        drop(stuck);
        let since = Instant::now();
        while !test.core.places.emptyings.is_empty() {
            assert!(since.elapsed() < 10 * PATIENCE, "it has come forward");
            test.core.access().finish_emptying(TURN);
        }
        for page in [first, second] {
            assert!(!test.core.sessions.state.space.is_used(page));
        }
    }
}
