//! Counts of links: a verified part, and what the deltas of directories add to it.
//!
//! A fold of directories moves what their deltas add into the verified counts, of as many inodes
//! as they name; this session follows inode by inode: the overlay of a directory is discarded, and
//! with it its part of the counts, when its view is brought up to date.
//!
//! # Invariants
//! * `counts` of the session's state is odd from before the first part is taken out until some
//!   instant at which no directory had been folded whose part was still in: a *cut*. Until the
//!   next odd one, what deltas add to a count is that of the cut.
//! * The view of what directories' deltas have to do with is made from a sequence of its header
//!   that was seen before a cut, and lasted.
//! * A fold that changes a verified count moves the sequence of that header before any fold number,
//!   and so before any part is taken out.
//!
//! * From before a name is seen changed until the count is, the inode says so, and its count is not
//!   told: who has seen the name sees the count.
//!
//! * A cut that came to be is one for as long as the change clock stands as it did before the directories were looked at:
//!   nothing has been folded since. So they are looked at once a change of the controller's, however many there are and
//!   however many inodes are brought up to date.
//! * A directory that is marked has been folded, or not, by the time at which its fold number is stored. Where the clock was
//!   even before that was looked at, nobody has seen more of that fold than the number says: its part stays in, and
//!   nobody waits until the fold is over.
//!
//! So a count is right if, after both of its parts were read, `counts` is even and as before, and
//! the header's sequence that of the view: it is the count of the cut, or a later one with what
//! this session has done since.

use crate::need::{Attempt, Need, Stop};
use crate::ownership::{self, Owner};
use crate::views::{CachedInode, LAST, Viewing, flag};
use std::sync::atomic::{Ordering, fence};

/// How often the directories are looked at for a cut before the attempt is made again.
const CUTS: usize = 16;
/// How often is looked at what another thread is at, before it is waited for.
const LOOKS: usize = 64;

impl Viewing<'_> {
    /// Links of an inode whose view is up to date.
    #[inline]
    pub fn links(&self, inode: &CachedInode) -> Attempt<u32> {
        let seen = self.seen(inode);
        let counts = self.views.counts.load(Ordering::Acquire);
        let (links, changing) = inode.links_and_changes();
        fence(Ordering::Acquire);
        let is_directory = inode.is_directory();
        let is_counted = inode.has(flag::COUNTED);
        if is_directory || is_counted {
            self.unmoved_since(inode, seen)?;
        }
        if is_directory {
            // Its own delta alone adds to them.
            let removed = inode.has(flag::UNLINKED);
            return Ok(if removed { 0 } else { links });
        }
        if changing != 0 {
            return Err(self.wait_for_links(inode));
        }
        if is_counted
            && (!counts.is_multiple_of(2) || self.views.counts.load(Ordering::Relaxed) != counts)
        {
            return Err(Need::Counts.into());
        }
        Ok(links)
    }

    /// A name is being changed, and may be seen changed already, but the links are not.
    #[cold]
    fn wait_for_links(&self, inode: &CachedInode) -> Stop {
        for _ in 0..LOOKS {
            if inode.links_and_changes().1 == 0 {
                return Need::Again.into();
            }
            std::hint::spin_loop();
        }
        Need::Links.into()
    }

    /// Parts of counts are about to be taken out.
    pub fn begin_cut(&self) {
        let next = |counts: u64| Some((counts | 1) + 2);
        // Always stored.
        let _ = self
            .views
            .counts
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    /// Makes a cut: takes out the parts of all directories that were folded before this was called.
    /// Never waits.
    #[cold]
    pub fn cut_counts(&self) -> Attempt<()> {
        // What the caller has seen of a header was stored after the clock had moved for it.
        fence(Ordering::Acquire);
        let clock = self.session.change_clock().load(Ordering::Acquire);
        let views = self.views;
        if clock == views.cut_at.load(Ordering::Acquire)
            && clock != 0
            && views.counts.load(Ordering::SeqCst).is_multiple_of(2)
        {
            return Ok(());
        }
        let holder = self.slot().holder();
        let alone = || self.views.counts_lock.try_lock(holder);
        let _alone = (0..LOOKS)
            .find_map(|_| {
                alone().or_else(|| {
                    std::hint::spin_loop();
                    None
                })
            })
            .ok_or(Need::Counts)?;
        for _ in 0..CUTS {
            let counts = &self.views.counts;
            let before = counts.load(Ordering::SeqCst);
            let clock = self.session.change_clock().load(Ordering::SeqCst);
            if !self.refresh_changed(clock)? {
                continue;
            }
            // If this was a cut, what has been taken out since belongs to another.
            let even = before.next_multiple_of(2);
            if counts
                .compare_exchange(before, even, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
            {
                self.views.cut_at.store(clock, Ordering::Release);
                return Ok(());
            }
        }
        Err(Need::Again.into())
    }

    /// Brings the views of all directories up to date whose deltas were folded; true if none had
    /// parts of counts then. `clock`: the change clock before this. Under `counts_lock`.
    fn refresh_changed(&self, clock: u64) -> Attempt<bool> {
        let mut at = {
            let _locked = self.views.changed_lock.lock(self.slot().holder());
            self.views.changed_first.swap(LAST, Ordering::AcqRel)
        };
        let mut outcome = Ok(true);
        while at != LAST && at != 0 {
            let directory = self.cached(at)?;
            at = directory.directory.changed_next.swap(0, Ordering::AcqRel);
            if let Ok(none) = outcome {
                outcome = self.refresh_one(directory, clock).map(|had| none && !had);
            }
            if self.has_deltas(directory) {
                self.note_dirty(directory);
            }
        }
        outcome
    }

    /// Brings one up to date if it has been folded; true if it had parts of counts then.
    fn refresh_one(&self, directory: &'static CachedInode, clock: u64) -> Attempt<bool> {
        let header = self.header(directory.number())?;
        let (expected, ownership) = (directory.expected(), header.ownership());
        let unfolded = match (ownership.is_refused(), ownership.is_marked()) {
            (true, false) => ownership::owner(self.session, header) == Owner::Us(expected),
            (false, true) => {
                clock.is_multiple_of(2)
                    && ownership.bare() == expected.ownership
                    && header.fold() == expected.fold
            }
            _ => false,
        };
        if !self.is_behind(directory, header)
            || unfolded && !self.has_sealed_no_more(directory, header)
        {
            return Ok(false);
        }
        let had = directory.directory.is_overlaid();
        self.refresh_folded(directory, false)?;
        Ok(had)
    }
}
