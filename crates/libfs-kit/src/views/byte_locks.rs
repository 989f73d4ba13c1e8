//! How threads read and overwrite the bytes of one file at the same time.
//!
//! A file is striped when threads have waited to overwrite bytes of it. A stripe then is the lock of
//! every [`STRIPES`]th piece of [`PIECE`](crate::views::striping) bytes (the range locks of OdinFS and ArckFS, as many as
//! two threads need): it is held to read, or to overwrite in place, what lies there. All that
//! changes size, pages or index takes the whole. Pieces are pages, where whoever waited last wrote no more than one: what
//! threads write then may lie side by side.
//!
//! A file is striped *by thread* when threads have read it at the same moment: who reads takes the stripe of his
//! thread, whatever he reads, so readers write no line that another one reads (distributed locks of readers, as in
//! the kernel's `brlock`). All that writes takes the whole. Once threads have waited to overwrite bytes, the stripes are for
//! bytes, and stay so.
//!
//! # Invariants
//! * What the stripes of a file are for ([`Purpose`](crate::views::striping::Purpose)) changes under the lock of the whole inode alone, which takes all of them:
//!   so who has a stripe, and looks then, knows.
//! * Who reads by the inode's lock finds no stripes when he has it: else he takes those.
//!
//! Order of locks: as in [`locks`](super::locks).

use crate::attempt::whole::{Whole, with_stripes};
use crate::region::{ReadGuard, WriteGuard};
use crate::views::striping::{Purpose, count_wait};
use crate::views::{CachedInode, STRIPES, Striped, Viewing};
use std::sync::atomic::Ordering;

/// What of a file is locked to be read.
pub enum Reading {
    Bytes {
        _locks: [Option<ReadGuard<'static>>; STRIPES],
    },
    /// All of it: by the inode's lock, or by the stripe of the thread.
    Whole { _lock: ReadGuard<'static> },
}

/// Whether the bytes `[at, at + length)` have to do with a stripe that is for pieces of `piece` bytes; `length` > 0.
fn has_bytes(piece: u64, place: usize, at: u64, length: u64) -> bool {
    let (first, last) = (at / piece, (at + length - 1) / piece);
    let behind = (place as u64).wrapping_sub(first) % STRIPES as u64;
    behind <= last - first
}

/// Takes the stripes of a file that a thread needs to read `length` bytes at `at`. Blocks.
fn read_stripes(
    inode: &CachedInode,
    striped: &'static Striped,
    thread: usize,
    (at, length): (u64, u64),
) -> Reading {
    loop {
        let purpose = Purpose::of(inode);
        let reading = match purpose {
            Purpose::Threads => {
                let _lock = striped.stripe(thread).lock.read();
                Reading::Whole { _lock }
            }
            Purpose::Bytes(piece) => {
                let mut locks = [const { None }; STRIPES];
                for (place, held) in locks.iter_mut().enumerate() {
                    if has_bytes(piece, place, at, length) {
                        *held = Some(striped.stripe(place).lock.read());
                    }
                }
                Reading::Bytes { _locks: locks }
            }
        };
        if Purpose::of(inode) == purpose {
            return reading;
        }
    }
}

impl Viewing<'_> {
    /// What the stripes of a file are for, if it has some; for diagnosis and tests.
    pub fn stripes_are_for(&self, inode: &CachedInode) -> Option<Purpose> {
        self.striped(inode)?;
        Some(Purpose::of(inode))
    }

    /// Threads have read a file at the same moment, often enough: each gets a stripe for that. The caller has no lock of the
    /// inode. Blocks.
    #[cold]
    #[inline(never)]
    fn stripe_by_thread(&self, inode: &'static CachedInode) {
        let mut whole = self.lock_whole(inode);
        if self.striped(inode).is_none() {
            self.make_striped(inode, &mut whole, Purpose::Threads);
        }
    }

    /// Locks bytes of a file to read them; `length` > 0. Blocks.
    #[inline(always)]
    pub fn lock_to_read(&self, inode: &'static CachedInode, at: u64, length: u64) -> Reading {
        if inode.striped.load(Ordering::Acquire).is_null() {
            let (lock, in_company) = inode.lock.read_in_company();
            // It may have been striped while this thread waited.
            if inode.striped.load(Ordering::Acquire).is_null() && !(in_company && count_wait(inode))
            {
                return Reading::Whole { _lock: lock };
            }
            drop(lock);
        }
        self.lock_stripes_to_read(inode, at, length)
    }

    #[inline(never)]
    fn lock_stripes_to_read(&self, inode: &'static CachedInode, at: u64, length: u64) -> Reading {
        if inode.striped.load(Ordering::Acquire).is_null() {
            self.stripe_by_thread(inode);
        }
        let Some(striped) = self.striped(inode) else {
            return Reading::Whole {
                _lock: inode.lock.read(),
            };
        };
        let thread = usize::from(self.slot().holder().thread);
        read_stripes(inode, striped, thread, (at, length))
    }

    /// Locks bytes of a file that is striped by bytes, to overwrite them in place; `length` > 0. Blocks.
    pub fn lock_bytes(
        &self,
        inode: &'static CachedInode,
        at: u64,
        length: u64,
    ) -> Option<[Option<WriteGuard<'static>>; STRIPES]> {
        let striped = self.striped(inode)?;
        let purpose = Purpose::of(inode);
        let Purpose::Bytes(piece) = purpose else {
            return None;
        };
        let holder = self.slot().holder();
        let mut locks = [const { None }; STRIPES];
        for (place, held) in locks.iter_mut().enumerate() {
            if has_bytes(piece, place, at, length) {
                *held = Some(striped.stripe(place).lock.write(holder));
            }
        }
        (Purpose::of(inode) == purpose).then_some(locks)
    }

    /// Locks a file as a whole to write `length` bytes up to `end`; stripes it if threads wait for each other only to
    /// overwrite what there is. Blocks.
    #[inline(always)]
    pub fn lock_to_write(&self, inode: &'static CachedInode, length: u64, end: u64) -> Whole {
        if let Some(lock) = inode.lock.try_write(self.slot().holder()) {
            return with_stripes(self.session, self.slot().holder(), inode, lock);
        }
        self.wait_to_write(inode, length, end)
    }

    #[inline(never)]
    fn wait_to_write(&self, inode: &'static CachedInode, length: u64, end: u64) -> Whole {
        let mut whole = self.lock_whole(inode);
        if end <= inode.size.load(Ordering::Relaxed) {
            self.has_waited(inode, &mut whole, Purpose::to_overwrite(length));
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::whole::AllStripes;
    use crate::region::Region;
    use crate::views::striping::PIECE;
    use arck_core_state::PAGE_SIZE;

    #[test]
    fn a_range_has_the_stripes_of_its_pieces() {
        for piece in [PIECE, PAGE_SIZE] {
            let of = |at, length| -> Vec<usize> {
                (0..STRIPES)
                    .filter(|&place| has_bytes(piece, place, at, length))
                    .collect()
            };
            let cases: [(u64, u64, &[usize]); 8] = [
                (0, 1, &[0]),
                (piece - 1, 1, &[0]),
                (piece - 1, 2, &[0, 1]),
                (7 * piece, piece, &[7]),
                (7 * piece, piece + 1, &[0, 7]),
                (13 * piece, 3 * piece, &[5, 6, 7]),
                (3, 8 * piece, &[0, 1, 2, 3, 4, 5, 6, 7]),
                (u64::MAX - piece, piece, &[6, 7]),
            ];
            for (at, length, places) in cases {
                assert_eq!(of(at, length), places, "[{at}, +{length}) of {piece}");
            }
        }
    }

    #[test]
    fn who_waits_for_a_stripe_takes_those_that_it_needs_by_then() {
        let region: &'static Region = Box::leak(Box::new(Region::in_memory(16 << 20).unwrap()));
        let slot = region.claim_thread_slot(0).unwrap();
        let inode = region.allocate(&slot, CachedInode::new(7, 3)).unwrap();
        let striped = region.allocate_zeroed::<Striped>(&slot, 1).unwrap();
        let (inode, striped) = (region.get(inode), region.get(striped));
        let read = || read_stripes(inode, striped, 5, (0, 1));
        let changes = [Purpose::Threads, Purpose::Bytes(PIECE), Purpose::Threads];
        for change in changes.windows(2) {
            change[0].set_for(inode);
            let whole = AllStripes::take(striped, |lock| Some(lock.write(slot.holder())));
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| matches!(read(), Reading::Whole { .. }));
                // Most probably it waits by then.
                std::thread::sleep(std::time::Duration::from_millis(50));
                change[1].set_for(inode);
                drop(whole);
                let is_by_thread = reader.join().unwrap();
                assert_eq!(is_by_thread, change[1] == Purpose::Threads, "{change:?}");
            });
        }
    }
}
