//! Which inodes have a delta, and what becomes of a delta that is over: folded, taken away or
//! refused.
//!
//! # Invariants
//! * An inode whose branch is begun is on the session's list (`dirty_first`, under `dirty_lock`) or
//!   being looked at by the one thread that took the list (`refreshing` counts those).
//! * A page of a delta is given back once, under the lock of its inode, and only when the header
//!   says that the delta is no longer one.

use crate::delta;
use crate::need::{Attempt, Need, Stop};
use crate::ownership::{self, Owner};
use crate::region::Lock;
use crate::views::{CachedInode, Directory, LAST, Shard, Viewing, begun, flag};
use arck_core_state::extended::NONE;
use arck_core_state::header::HeaderKind;
use arck_core_state::{IndexRoot, InodeNumber, PagePtr};
use std::sync::atomic::{AtomicU32, Ordering};

impl Viewing<'_> {
    /// Forgets a delta that does not exist any more and frees what it used. Under the inode's
    /// lock as a whole.
    pub fn discard_delta(&self, inode: &'static CachedInode) {
        let stock = self.session.state();
        // What is no directory has no overlay: its links are counted by those that name it.
        if let Ok(directory) = Directory::of(inode) {
            self.discard_sealed(directory);
            self.discard_overlay(directory);
        }
        for shard in self.shards(inode) {
            self.release_tail(shard.tail_first.load(Ordering::Relaxed));
            shard.forget_tail();
        }
        let root = IndexRoot(inode.file.root.load(Ordering::Acquire));
        let is_front = inode.has(flag::FRONT) && inode.take(flag::FRONT);
        if is_front && root.height() == 1 {
            let page = root.pointer() as u32;
            delta::for_each_in_front(self.session, page, |entry| {
                stock.data.release(self.session, PagePtr(entry));
            });
            stock.arena.release_front(self.session, self.slot(), page);
        } else if root.0 != 0 {
            let mut interior = Vec::new();
            delta::for_each_entry(
                self.session,
                root,
                &mut |_, entry| {
                    stock
                        .data
                        .release(self.session, arck_core_state::PagePtr(entry))
                },
                &mut |page| interior.push(page),
            );
            for page in interior {
                stock.arena.release(self.session, self.slot(), page);
            }
        }
        if inode.attributes.load(Ordering::Acquire) != 0 {
            self.release_extended(inode.attributes.swap(0, Ordering::AcqRel));
        }
        if !inode.is_directory() {
            inode.file.forget_delta();
            inode.reach.store(0, Ordering::Relaxed);
        }
        inode.branch.store(begun::NOT, Ordering::Release);
    }

    /// Gives back the pages of a tail, from the first on; 0: there is none.
    pub(super) fn release_tail(&self, first: u32) {
        if first == 0 {
            return;
        }
        let mut page = first;
        let mut released = 0;
        let mut bound = arck_core_state::arena::ARENA_PAGES;
        while page != 0 && bound != 0 {
            let next = self
                .session
                .arena_at(page as usize * 4096)
                .load_u64(page as usize * 4096, Ordering::Acquire)
                .map_or(0, |word| (word >> 32) as u32);
            let arena = &self.session.state().arena;
            arena.release(self.session, self.slot(), page);
            page = next;
            released += 1;
            bound -= 1;
        }
        self.views.has_released_tail(released);
    }

    /// A page of extended attributes of the delta's is not referred to any more.
    pub fn release_extended(&self, attributes: u32) {
        if attributes != 0 && attributes != NONE {
            let page = PagePtr(u64::from(attributes));
            self.session.state().data.release(self.session, page);
        }
    }

    /// Whether nothing of a delta is left in the view.
    pub fn has_no_delta(&self, inode: &'static CachedInode) -> bool {
        let relaxed = Ordering::Relaxed;
        inode.branch.load(relaxed) == begun::NOT
            && self.sealed(inode) == 0
            && inode.attributes.load(relaxed) == 0
            && (inode.is_directory() || inode.file.is_as_verified())
            && self.shards(inode).all(Shard::is_empty)
    }

    /// Brings the views of all inodes whose deltas were folded up to date, so that what their
    /// deltas used is free again.
    pub fn refresh_dirty(&self) -> Attempt<()> {
        let first = {
            let _locked = self.views.dirty_lock.lock(self.slot().holder());
            self.views.refreshing.fetch_add(1, Ordering::AcqRel);
            self.views.dirty_first.swap(LAST, Ordering::AcqRel)
        };
        let outcome = self.refresh_all(first);
        self.views.refreshing.fetch_sub(1, Ordering::AcqRel);
        outcome
    }

    /// Of those on the list that begins there.
    fn refresh_all(&self, first: InodeNumber) -> Attempt<()> {
        let mut at = first;
        let mut outcome = Ok(());
        while at != 0 && at != LAST {
            let inode = self.cached(at)?;
            at = inode.dirty_next.swap(0, Ordering::AcqRel);
            if outcome.is_ok() {
                outcome = self.refresh_folded(inode, false);
            }
            if inode.has(flag::UNCOMMITTED) && inode.has(flag::UNLINKED) {
                // Who closed it, or took its last name away, could not end its branch where a fold had it marked, and no
                // fold takes what has no name.
                self.dispose(inode);
            }
            if self.has_deltas(inode) {
                self.note_dirty(inode);
            }
        }
        outcome
    }

    /// Brings a view up to date if the delta that it has was folded, or is over otherwise; and so all others, if it was.
    pub fn refresh_if_folded(&self, inode: &'static CachedInode) -> Attempt<()> {
        self.refresh_folded(inode, true)
    }

    /// The same; the others only if it is asked `with_others`.
    pub(crate) fn refresh_folded(
        &self,
        inode: &'static CachedInode,
        with_others: bool,
    ) -> Attempt<()> {
        let header = self.header(inode.number())?;
        if !self.is_behind(inode, header) {
            return Ok(());
        }
        if header.ownership().is_marked() {
            return Err(Need::Wait(inode.number()).into());
        }
        if header.ownership().is_refused()
            && ownership::owner(self.session, header) == Owner::Us(inode.expected())
            && !self.has_sealed_no_more(inode, header)
        {
            // Not folded, and perhaps it will be yet.
            return Ok(());
        }
        self.note_lost(inode, header);
        if inode.has(flag::LOST) || matches!(ownership::owner(self.session, header), Owner::Other) {
            // The view is made, from what they are recalled for, when somebody asks for it.
            let _locked = self.lock_now(inode)?;
            if self.has_ended(inode, header)? {
                self.discard_delta(inode);
                self.show_nobody(inode);
            }
            return Ok(());
        }
        match self.refresh_with(inode, header, inode.generation(), with_others) {
            // Gone: nothing of its delta is left but what it used.
            Err(Stop::Failure(_)) => {
                let _locked = self.lock_now(inode)?;
                if header.generation() == inode.generation() && !self.has_ended(inode, header)? {
                    return Ok(());
                }
                // Of another generation it is another inode's: it was committed, freed and granted once more.
                let died_uncommitted = inode.has(flag::UNCOMMITTED)
                    && inode.has(flag::UNLINKED)
                    && header.generation() == inode.generation()
                    && header.kind() == HeaderKind::Granted
                    && header.ownership().session() == self.session.number()
                    && inode.refuse_openings();
                if died_uncommitted {
                    self.end_uncommitted(inode);
                } else {
                    self.discard_delta(inode);
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Notes that an inode has a delta. Under its lock.
    pub fn note_dirty(&self, inode: &CachedInode) {
        let (state, number) = (self.views, inode.number());
        if inode.is_directory() {
            let next = &inode.directory.changed_next;
            self.list_number(number, next, &state.changed_first, &state.changed_lock);
        }
        let next = &inode.dirty_next;
        self.list_number(number, next, &state.dirty_first, &state.dirty_lock);
    }

    /// Puts a number before the `first` of a list, if it is not in it.
    fn list_number(&self, number: u32, next: &AtomicU32, first: &AtomicU32, lock: &Lock) {
        let claimed = next.compare_exchange(0, LAST, Ordering::AcqRel, Ordering::Acquire);
        if claimed.is_ok() {
            let _locked = lock.lock(self.slot().holder());
            let second = first.swap(number, Ordering::AcqRel);
            next.store(if second == 0 { LAST } else { second }, Ordering::Release);
        }
    }
}
