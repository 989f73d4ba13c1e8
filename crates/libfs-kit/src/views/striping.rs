//! When an inode gets its stripes, and what those of a file are for.
//!
//! # Invariants
//! * Stripes are made under the whole inode's lock, and stay as long as the cached inode.
//! * What those of a file are for changes under it, too, which takes all of them: so who has a stripe, and looks then,
//!   knows. A view that gets another inode to show begins with stripes for threads, if it has any.

use crate::attempt::whole::{AllStripes, Whole};
use crate::region::Offset;
use crate::views::{CachedInode, STRIPES, Striped, Viewing, flag};
use arck_core_state::PAGE_SIZE;
use arck_core_state::branch::TAILS;
use std::sync::atomic::Ordering;

/// How often threads wait for an inode, or read it at the same moment, before it is striped.
pub(super) const WAITS: u32 = 8;
/// How often they wait to overwrite a file before its stripes get another purpose: who writes now and then takes
/// nothing away from those who read all the time.
const WAITS_TO_CHANGE: u32 = 64;

/// Bytes of a file that have one stripe.
pub(super) const PIECE: u64 = 64 << 10;

/// What the stripes of a file are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Threads,
    /// Pieces of so many bytes.
    Bytes(u64),
}

impl Purpose {
    /// Who reads or writes much takes few of them.
    pub(super) const PIECES: Purpose = Purpose::Bytes(PIECE);

    #[inline]
    pub(super) fn of(inode: &CachedInode) -> Purpose {
        match inode.flags.load(Ordering::Acquire) & (flag::BY_PIECE | flag::BY_PAGE) {
            0 => Purpose::Threads,
            flag::BY_PAGE => Purpose::Bytes(PAGE_SIZE),
            _ => Purpose::PIECES,
        }
    }

    /// What is best where threads wait for each other to overwrite so many bytes.
    pub(super) fn to_overwrite(length: u64) -> Purpose {
        Purpose::Bytes(if length <= PAGE_SIZE {
            PAGE_SIZE
        } else {
            PIECE
        })
    }

    /// Under the lock of the whole inode.
    pub(super) fn set_for(self, inode: &CachedInode) {
        let flags = [(flag::BY_PAGE, PAGE_SIZE), (flag::BY_PIECE, PIECE)];
        for (flag, piece) in flags {
            inode.set(flag, self == Purpose::Bytes(piece));
        }
    }
}

/// Counts that threads were in each other's way; whether that makes it so often. Exact under the whole inode's lock; else
/// some may be missed.
pub(super) fn count_wait(inode: &CachedInode, enough: u32) -> bool {
    let waited = inode.shard.waited.load(Ordering::Relaxed) + 1;
    let is_enough = waited >= enough;
    let kept = if is_enough { 0 } else { waited };
    inode.shard.waited.store(kept, Ordering::Relaxed);
    is_enough
}

impl Viewing<'_> {
    /// A thread has had to wait for a directory of which it wanted a name.
    pub(super) fn has_waited_for_name(&self, inode: &'static CachedInode, whole: &mut Whole) {
        if self.striped(inode).is_none() && count_wait(inode, WAITS) {
            self.make_striped(inode, whole);
        }
    }

    /// A thread has had to wait for bytes of a file, whose stripes had better be for `purpose`.
    pub(super) fn has_waited_for_bytes(
        &self,
        inode: &'static CachedInode,
        whole: &mut Whole,
        purpose: Purpose,
    ) {
        if self.striped(inode).is_none() {
            if count_wait(inode, WAITS) {
                self.make_striped(inode, whole);
                purpose.set_for(inode);
            }
        } else if Purpose::of(inode) != purpose && count_wait(inode, WAITS_TO_CHANGE) {
            purpose.set_for(inode);
        }
    }

    /// Gives an inode, which is held as a whole, its stripes: a file's are for threads. Without memory nothing changes.
    #[cold]
    pub(super) fn make_striped(&self, inode: &'static CachedInode, whole: &mut Whole) {
        let region = self.session.region();
        let Ok(offset) = region.allocate_zeroed::<Striped>(self.slot(), 1) else {
            return;
        };
        let striped = region.get(offset);
        let relaxed = Ordering::Relaxed;
        for place in 0..STRIPES {
            let names = inode.stripe.names.load(relaxed);
            striped.stripe(place).names.store(names, relaxed);
        }
        let sequence = inode.shard.sequence.load(relaxed) as usize;
        for place in 0..TAILS {
            let base = sequence.next_multiple_of(TAILS) + place;
            striped.shard(place).sequence.store(base as u32, relaxed);
        }
        // What there is goes on in shard 0; its entries say so already.
        let (first, only) = (striped.shard(0), &inode.shard);
        for (to, from) in [
            (&first.tail_page, &only.tail_page),
            (&first.tail_unit, &only.tail_unit),
            (&first.tail_first, &only.tail_first),
            (&first.entries, &only.entries),
        ] {
            to.store(from.swap(0, relaxed), relaxed);
        }
        let listed = only.overlay_first.swap(Offset::NULL, relaxed);
        first.overlay_first.store(listed, relaxed);
        let holder = self.slot().holder();
        whole.stripes = AllStripes::take(striped, |lock| Some(lock.write(holder)));
        inode.striped.store(offset, Ordering::Release);
        self.views.striped.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_purpose_that_it_was_given() {
        let inode = CachedInode::new(7, 3);
        assert_eq!(Purpose::of(&inode), Purpose::Threads);
        let overwritten = [1, PAGE_SIZE, PAGE_SIZE + 1].map(Purpose::to_overwrite);
        assert_eq!(
            overwritten,
            [PAGE_SIZE, PAGE_SIZE, PIECE].map(Purpose::Bytes)
        );
        for purpose in overwritten.into_iter().chain([Purpose::Threads]) {
            purpose.set_for(&inode);
            assert_eq!(Purpose::of(&inode), purpose);
        }
    }
}
