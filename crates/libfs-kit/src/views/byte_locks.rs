//! How threads read and overwrite the bytes of one file at the same time.
//!
//! A file is striped when threads have waited to overwrite bytes of it. A stripe then is the lock of
//! every [`STRIPES`]th piece of so many bytes (the range locks of OdinFS and ArckFS, as many as
//! two threads need): it is held to read, or to overwrite in place, what lies there. All that
//! changes size, pages or index takes the whole. Pieces are pages where those who waited for each other wrote no more than
//! one, since what they write may lie side by side; they are larger where those wait who read or write more, and would take
//! all stripes.
//!
//! A file is striped, too, when threads have read it at the same moment: then each stripe is for some threads. Who reads
//! takes that of his thread, whatever he reads, so readers write no line that another one reads (distributed locks of
//! readers, as the kernel's `brlock` was). All that writes takes the whole. Once threads have waited often to overwrite
//! bytes, for each other or for those who read, the stripes are for bytes.
//!
//! # Invariants
//! * Who has taken stripes looks once more what they are for ([`Purpose`](crate::views::striping::Purpose)).
//! * Who reads by the inode's lock finds no stripes when he has it: else he takes those.
//!
//! Order of locks: as in [`locks`](super::locks).

use crate::attempt::whole::{AllStripes, Whole};
use crate::region::{ReadGuard, WriteGuard};
use crate::views::striping::{Purpose, WAITS, count_wait};
use crate::views::{CachedInode, STRIPES, Striped, Viewing};
use arck_core_state::FileKind;
use std::cell::Cell;
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

/// Threads have read at the same moment: whether that makes it often enough. (Symbolic links are read once.)
#[cold]
fn is_to_be_striped(inode: &CachedInode) -> bool {
    inode.kind() == Some(FileKind::File) && count_wait(inode, WAITS)
}

/// The stripes of a file; if it has none, since there was no memory, all of it to be read. Blocks.
fn stripes_or_all(
    inode: &'static CachedInode,
    stripes: impl Fn() -> Option<&'static Striped>,
) -> Result<&'static Striped, Reading> {
    if let Some(striped) = stripes() {
        return Ok(striped);
    }
    let _lock = inode.lock.read();
    // Somebody else may have found memory before this lock was had: nobody who overwrites bytes would wait for it.
    stripes().ok_or(Reading::Whole { _lock })
}

/// Takes the stripes of a file that a thread needs to read `length` bytes at `at`. Blocks. And whether it had to wait for
/// some of many.
fn read_stripes(
    inode: &CachedInode,
    striped: &'static Striped,
    thread: usize,
    (at, length): (u64, u64),
) -> (Reading, bool) {
    loop {
        let mut has_waited = false;
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
                        let lock = &striped.stripe(place).lock;
                        let taken = lock.try_read();
                        has_waited |= taken.is_none() && length > piece;
                        *held = Some(taken.unwrap_or_else(|| lock.read()));
                    }
                }
                Reading::Bytes { _locks: locks }
            }
        };
        if Purpose::of(inode) == purpose {
            return (reading, has_waited);
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
            self.make_striped(inode, &mut whole);
        }
    }

    /// Locks bytes of a file to read them; `length` > 0. Blocks.
    #[inline(always)]
    pub fn lock_to_read(&self, inode: &'static CachedInode, at: u64, length: u64) -> Reading {
        if inode.striped.load(Ordering::Acquire).is_null() {
            let (lock, in_company) = inode.lock.read_in_company();
            // It may have been striped while this thread waited.
            if inode.striped.load(Ordering::Acquire).is_null()
                && !(in_company && is_to_be_striped(inode))
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
        let striped = match stripes_or_all(inode, || self.striped(inode)) {
            Ok(striped) => striped,
            Err(all) => return all,
        };
        let thread = usize::from(self.slot().holder().thread);
        let (mut reading, has_waited) = read_stripes(inode, striped, thread, (at, length));
        if has_waited && Purpose::of(inode) != Purpose::PIECES {
            drop(reading);
            let mut whole = self.lock_whole(inode);
            self.has_waited_for_bytes(inode, &mut whole, Purpose::PIECES);
            drop(whole);
            (reading, _) = read_stripes(inode, striped, thread, (at, length));
        }
        reading
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
        let mut has_waited = false;
        for (place, held) in locks.iter_mut().enumerate() {
            if has_bytes(piece, place, at, length) {
                let lock = &striped.stripe(place).lock;
                let taken = lock.try_write(holder);
                has_waited |= taken.is_none();
                *held = Some(taken.unwrap_or_else(|| lock.write(holder)));
            }
        }
        let wanted = Purpose::to_overwrite(length);
        if has_waited && purpose != wanted {
            drop(locks);
            let mut whole = self.lock_whole(inode);
            self.has_waited_for_bytes(inode, &mut whole, wanted);
            return None;
        }
        (Purpose::of(inode) == purpose).then_some(locks)
    }

    /// Locks a file as a whole to write `length` bytes up to `end`; stripes it if threads wait for each other only to
    /// overwrite what there is. Blocks.
    #[inline(always)]
    pub fn lock_to_write(&self, inode: &'static CachedInode, length: u64, end: u64) -> Whole {
        let lock = inode.lock.try_write(self.slot().holder());
        if let Some(_inode) = lock {
            return match self.striped(inode) {
                None => Whole {
                    stripes: None,
                    _inode,
                },
                Some(striped) => self.take_stripes_to_write((inode, _inode), striped, length, end),
            };
        }
        self.wait_to_write(inode, length, end)
    }

    #[inline(never)]
    fn take_stripes_to_write(
        &self,
        (inode, _inode): (&'static CachedInode, WriteGuard<'static>),
        striped: &'static Striped,
        length: u64,
        end: u64,
    ) -> Whole {
        let holder = self.slot().holder();
        let has_waited = Cell::new(false);
        let stripes = AllStripes::take(striped, |lock| {
            let taken = lock.try_write(holder);
            has_waited.set(has_waited.get() || taken.is_none());
            Some(taken.unwrap_or_else(|| lock.write(holder)))
        });
        let mut whole = Whole { stripes, _inode };
        if has_waited.get() {
            // For who reads, where stripes are for threads.
            let wanted = match Purpose::of(inode) {
                Purpose::Threads => Purpose::PIECES,
                Purpose::Bytes(_) => Purpose::to_overwrite(length),
            };
            self.would_overwrite(inode, &mut whole, end, wanted);
        }
        whole
    }

    #[inline(never)]
    fn wait_to_write(&self, inode: &'static CachedInode, length: u64, end: u64) -> Whole {
        let mut whole = self.lock_whole(inode);
        self.would_overwrite(inode, &mut whole, end, Purpose::to_overwrite(length));
        whole
    }

    /// A thread has waited to write up to `end`.
    fn would_overwrite(
        &self,
        inode: &'static CachedInode,
        whole: &mut Whole,
        end: u64,
        wanted: Purpose,
    ) {
        if end <= inode.size.load(Ordering::Relaxed) {
            self.has_waited_for_bytes(inode, whole, wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Holders, Region, ThreadSlot};
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

    /// One, and stripes for it.
    fn file() -> (ThreadSlot<'static>, &'static CachedInode, &'static Striped) {
        let region: &'static Region = Box::leak(Box::new(Region::in_memory(16 << 20).unwrap()));
        let slot = region.claim_thread_slot(0).unwrap();
        let inode = region.allocate(&slot, CachedInode::new(7, 3)).unwrap();
        let striped = region.allocate_zeroed::<Striped>(&slot, 1).unwrap();
        (slot, region.get(inode), region.get(striped))
    }

    #[test]
    fn who_waits_for_a_stripe_takes_those_that_it_needs_by_then() {
        let (slot, inode, striped) = file();
        let read = || read_stripes(inode, striped, 5, (0, 1)).0;
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

    /// # Regression
    /// Who found none read on by the inode's lock, where stripes had been made before he had it: those who overwrite bytes
    /// by their stripes did not wait for him.
    #[test]
    fn who_finds_no_stripes_looks_again_when_it_has_the_lock() {
        let (_, inode, striped) = file();
        let looks = Cell::new(0);
        let made_meanwhile = || (looks.replace(looks.get() + 1) > 0).then_some(striped);
        assert!(stripes_or_all(inode, made_meanwhile).is_ok());
        assert_eq!(inode.lock.holders(), Holders::None);
        let all = stripes_or_all(inode, || None);
        assert!(matches!(all, Err(Reading::Whole { .. })));
        assert_eq!(inode.lock.holders(), Holders::Readers(1));
    }
}
