//! Sealed deltas of directories: what the controller is folding while this session goes on (DESIGN section 5).
//!
//! The header says under which fold number a directory's delta was sealed, and that there is another one, under
//! which the session goes on. What the view has of the delta then becomes its *sealed part*: its overlay is found as
//! before, beneath that of the active delta, and is never changed. When the header says that nothing is sealed any
//! more, the sealed delta is verified state: the part goes, and with it the pages that it used.
//!
//! # Invariants
//! * There is at most one sealed part. It changes under the whole inode's lock; who asks for its fold number without
//!   that may get one that has gone.
//! * What verified state counts (names, links) is counted in the view until the sealed part goes, and not
//!   twice: the header's sequence has moved by then, so that whoever has seen both counts starts again.

use crate::need::{Attempt, Need};
use crate::region::Offset;
use crate::views::overlay::OverlayEntry;
use crate::views::{CachedInode, Directory, GRAIN, SealedPart, Shard, Stripe, Viewing, begun};
use arck_core_state::LiveHeader;
use arck_protocol::operation::Expected;
use std::sync::atomic::Ordering;

impl CachedInode {
    /// Where its sealed part is; null if it has none.
    fn sealed_part(&self) -> Offset<SealedPart> {
        let place = self.shard.sealed_part.load(Ordering::Acquire);
        Offset::from_raw(u64::from(place) * GRAIN)
    }
}

impl Viewing<'_> {
    /// Fold number of the sealed delta that a view has a part of; 0 = none.
    pub(crate) fn sealed(&self, inode: &CachedInode) -> u64 {
        let sealed = self.session.region().try_get(inode.sealed_part());
        sealed.map_or(0, |sealed| sealed.fold.load(Ordering::Acquire))
    }

    /// Whether a view has something of deltas.
    pub(crate) fn has_deltas(&self, inode: &CachedInode) -> bool {
        inode.branch.load(Ordering::Acquire) != begun::NOT || !inode.sealed_part().is_null()
    }

    /// Whether a view has a sealed part whose delta is verified state by now, or over otherwise.
    pub(crate) fn has_sealed_no_more(&self, inode: &CachedInode, header: &LiveHeader) -> bool {
        let sealed = self.sealed(inode);
        sealed != 0 && header.sealed() != sealed
    }

    /// Whether it is a seal, or the end of what was sealed, that the header says and the view does not know.
    pub(super) fn is_of_seal(&self, inode: &CachedInode, header: &LiveHeader) -> bool {
        let sealed = header.sealed();
        sealed != 0 && sealed == inode.expected().fold || self.has_sealed_no_more(inode, header)
    }

    /// Whether the header says something else of this session's deltas than the view.
    pub(crate) fn is_behind(&self, inode: &CachedInode, header: &LiveHeader) -> bool {
        !inode.expected().still_holds(header) || self.has_sealed_no_more(inode, header)
    }

    /// Brings what the view has of deltas up to what the header says is sealed, and is not any more. `expected`: what
    /// the header says of a directory of this session's. Under the whole inode's lock.
    pub(super) fn follow_seal(
        &self,
        directory: Directory,
        header: &LiveHeader,
        expected: &Expected,
    ) -> Attempt<()> {
        let sealed = header.sealed();
        // A directory that was refused since is looked at, too, as its session left it.
        let ownership = header.ownership();
        let is_owned = !ownership.is_marked() && ownership.bare() == expected.ownership;
        if !is_owned || header.fold() != expected.fold {
            return Err(Need::Again.into());
        }
        if self.has_sealed_no_more(&directory, header) {
            self.discard_sealed(directory);
        }
        let own = directory.expected();
        if sealed != 0 && own.fold == sealed && own.ownership == expected.ownership {
            self.becomes_sealed(directory, sealed)?;
            directory.expect(*expected);
        }
        Ok(())
    }

    /// What the view has of its delta becomes the sealed part.
    fn becomes_sealed(&self, directory: Directory, fold: u64) -> Attempt<()> {
        debug_assert!(directory.sealed_part().is_null(), "one is sealed at a time");
        let (region, relaxed) = (self.session.region(), Ordering::Relaxed);
        let place = region
            .allocate_zeroed::<SealedPart>(self.slot(), 1)
            .map_err(|_| self.no_memory())?;
        let sealed = region.get(place);
        let names = self.shards(directory.inode()).fold(0u32, |sum, shard| {
            sum.wrapping_add(shard.entries.load(relaxed))
        });
        sealed.fold.store(fold, relaxed);
        sealed.names.store(names, relaxed);
        let links = directory
            .links()
            .wrapping_sub(directory.base_links.load(relaxed));
        sealed.links.store(links, relaxed);
        directory.part().is_sealed_again();
        let places = sealed.tails.iter().zip(&sealed.overlays);
        for (shard, (tail, overlay)) in self.shards(directory.inode()).zip(places) {
            tail.store(shard.tail_first.load(relaxed), relaxed);
            overlay.store(shard.overlay_first.load(relaxed), relaxed);
            shard.begin_again();
        }
        // The region has less than 2^36 bytes.
        let grains = (place.raw() / GRAIN) as u32;
        directory.shard.sealed_part.store(grains, Ordering::Release);
        directory.branch.store(begun::NOT, Ordering::Release);
        self.stripes(directory.inode()).for_each(Stripe::changed);
        Ok(())
    }

    /// Drops the sealed part, whose delta was folded (or is over otherwise), and gives its pages back. Under the
    /// whole inode's lock.
    pub(super) fn discard_sealed(&self, directory: Directory) {
        let (region, relaxed) = (self.session.region(), Ordering::Relaxed);
        let place = directory.sealed_part();
        let Some(sealed) = region.try_get(place) else {
            return;
        };
        self.begin_cut();
        for (tail, overlay) in sealed.tails.iter().zip(&sealed.overlays) {
            self.discard_sealed_entries(directory, overlay.load(relaxed));
            self.release_tail(tail.load(relaxed));
        }
        let names = &directory.shard.entries;
        names.store(
            names.load(relaxed).wrapping_sub(sealed.names.load(relaxed)),
            relaxed,
        );
        directory.add_links(sealed.links.load(relaxed).wrapping_neg() as i32);
        directory.shard.sealed_part.store(0, Ordering::Release);
        self.stripes(directory.inode()).for_each(Stripe::changed);
        self.guard.retire(place);
    }

    /// Where the lists of the sealed part's overlay begin. Under the whole inode's lock.
    pub(super) fn sealed_overlays(
        &self,
        directory: Directory,
    ) -> impl Iterator<Item = Offset<OverlayEntry>> + use<> {
        let place = directory.sealed_part();
        let sealed = self.session.region().try_get(place).into_iter();
        sealed.flat_map(|sealed| {
            sealed
                .overlays
                .iter()
                .map(|first| first.load(Ordering::Acquire))
        })
    }
}

impl Shard {
    /// What it has of a delta is the sealed part's from now on; but names are counted until that goes.
    fn begin_again(&self) {
        let names = self.entries.load(Ordering::Relaxed);
        self.forget_tail();
        self.entries.store(names, Ordering::Relaxed);
        self.overlay_first.store(Offset::NULL, Ordering::Relaxed);
    }
}
