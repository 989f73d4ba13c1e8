//! Buckets and lanes: how threads change the names of one directory, or the bytes of one file, at
//! the same time.
//!
//! A directory begins with one bucket and one lane, in its cached inode, protected by the inode's
//! lock. Once threads have waited for that lock a few times it is *spread*: it gets [`BUCKETS`]
//! buckets by the name's hash, each with its lock, and as many lanes as its delta has tails, for
//! the threads in turn, each with its tail and its part of the overlay's list; all on lines of
//! their own. Who changes a name then takes the lock of its bucket, and that of the thread's own
//! lane to append a record or to list an entry; everybody else takes the *whole* inode: its lock,
//! and those of its buckets if it has some. (ScaleFS and ArckFS lock buckets too; theirs are there
//! from the beginning. A directory that one thread uses would pay for them.)
//!
//! A file is spread when threads have waited to overwrite bytes of it. A bucket then is the lock of
//! every [`BUCKETS`]th piece of [`PIECE`] bytes (the range locks of OdinFS and ArckFS, as many as
//! two threads need): it is held to read, or to overwrite in place, what lies there. All that
//! changes size, pages or index takes the whole.
//!
//! # Invariants
//! * Buckets are made under the whole inode's lock, and stay as long as the cached inode.
//! * Only a directory whose branch is durably begun is changed under a bucket's lock alone: a
//!   branch begins, and ends, under the whole.
//! * No two records of a directory have one sequence number: each lane has its own numbers, equal
//!   to its place modulo [`TAILS`].
//! * A lane is held until what was appended to its tail is durable: what is read of a tail after a
//!   crash ends at the first record that is not.
//!
//! Order of locks: inodes by ascending number; of an inode, its lock, then buckets as they stand;
//! then one lane of one directory; then what threads share of a branch ([`Context::lock_branch`]);
//! then stocks.

use crate::Session;
use crate::engine::{Attempt, Context, Need};
use crate::region::{Holder, LockGuard, Offset, ReadGuard, WriteGuard};
use crate::views::{BUCKETS, Bucket, CachedInode, Directory, Lane, Spread, begun};
use arck_core_state::branch::TAILS;
use std::sync::atomic::Ordering;

/// How often threads wait for an inode before it is spread.
const WAITS: u32 = 8;
/// Bytes of a file that have one bucket.
const PIECE: u64 = 64 << 10;

/// An inode held alone, with all its buckets.
pub struct Whole {
    buckets: Buckets,
    _inode: WriteGuard<'static>,
}

type Buckets = [Option<WriteGuard<'static>>; BUCKETS];

/// What an operation has locked of one inode.
pub enum Locked {
    Bucket { _lock: WriteGuard<'static> },
    Whole { _lock: Whole },
}

/// What of a file is locked to be read.
pub enum Reading {
    Bytes {
        _locks: [Option<ReadGuard<'static>>; BUCKETS],
    },
    Whole {
        _lock: ReadGuard<'static>,
    },
}

/// What an operation has to lock of an inode: a bucket, or all of it.
#[derive(Clone, Copy)]
pub struct Want {
    inode: &'static CachedInode,
    bucket: Option<usize>,
}

impl Want {
    pub fn whole(inode: &'static CachedInode) -> Want {
        Want {
            inode,
            bucket: None,
        }
    }

    /// Inodes by number, then as their locks are ordered.
    fn order(&self) -> (u32, usize) {
        (
            self.inode.number(),
            self.bucket.map_or(0, |bucket| bucket + 1),
        )
    }

    /// Whether a lock on this is one on `other` too.
    fn covers(&self, other: &Want) -> bool {
        std::ptr::eq(self.inode, other.inode)
            && (self.bucket.is_none() || self.bucket == other.bucket)
    }
}

/// The bucket of a hash: by bits that neither table takes first.
fn place_of(hash: u64) -> usize {
    (hash >> 32) as usize % BUCKETS
}

impl Spread {
    fn bucket(&self, place: usize) -> &Bucket {
        &self.buckets[place % BUCKETS].bucket
    }
    fn lane(&self, place: usize) -> &Lane {
        &self.lanes[place % TAILS].lane
    }
}

/// A lane of a directory that a thread may change.
pub struct InLane {
    pub lane: &'static Lane,
    /// Which one, and so which tail of the branch is its.
    pub place: usize,
    /// How far apart its sequence numbers are.
    pub apart: u32,
    _lock: Option<LockGuard<'static>>,
}

#[inline(always)]
fn spread(session: &'static Session, inode: &CachedInode) -> Option<&'static Spread> {
    let region = session.region();
    region.try_get(inode.spread.load(Ordering::Acquire))
}

/// As [`Context::lock_whole`].
#[inline(always)]
pub fn lock_whole(session: &'static Session, holder: Holder, inode: &'static CachedInode) -> Whole {
    let lock = inode.lock.write(holder);
    with_buckets(session, holder, inode, lock)
}

#[inline(always)]
fn with_buckets(
    session: &'static Session,
    holder: Holder,
    inode: &'static CachedInode,
    lock: WriteGuard<'static>,
) -> Whole {
    let mut buckets = [const { None }; BUCKETS];
    if let Some(spread) = spread(session, inode) {
        for (place, held) in buckets.iter_mut().enumerate() {
            *held = Some(spread.bucket(place).lock.write(holder));
        }
    }
    Whole {
        buckets,
        _inode: lock,
    }
}

/// Whether the bytes `[at, at + length)` have to do with a bucket; `length` > 0.
fn has_bytes(place: usize, at: u64, length: u64) -> bool {
    let (first, last) = (at / PIECE, (at + length - 1) / PIECE);
    let behind = (place as u64).wrapping_sub(first) % BUCKETS as u64;
    behind <= last - first
}

impl<'a> Context<'a> {
    #[inline(always)]
    fn spread(&self, inode: &CachedInode) -> Option<&'static Spread> {
        spread(self.session, inode)
    }

    /// The bucket of the names with a hash.
    #[inline(always)]
    pub fn bucket(&self, directory: Directory, hash: u64) -> &'static Bucket {
        match self.spread(directory.inode()) {
            None => &directory.inode().bucket,
            Some(spread) => spread.bucket(place_of(hash)),
        }
    }

    fn own_place(&self) -> usize {
        usize::from(self.slot().holder().thread) % TAILS
    }

    /// The thread's own lane of a directory, some name of which it has locked.
    #[inline(always)]
    pub fn own_lane(&self, directory: Directory) -> InLane {
        self.lane(directory, self.own_place())
    }

    /// A lane of a directory, some name of which this thread has locked; `place` counts only if it
    /// is spread.
    #[inline(always)]
    pub fn lane(&self, directory: Directory, place: usize) -> InLane {
        match self.spread(directory.inode()) {
            None => InLane {
                lane: &directory.inode().lane,
                place: 0,
                apart: 1,
                _lock: None,
            },
            Some(spread) => InLane {
                lane: spread.lane(place),
                place,
                apart: TAILS as u32,
                _lock: Some(spread.lane(place).lock.lock(self.slot().holder())),
            },
        }
    }

    /// Held while words of a branch are changed that several threads may change, where none of them
    /// need have the whole inode: those of tails, two of which share one, and of partners. The lock
    /// of the lane of which there is none in the inode then. After that of a lane.
    pub fn lock_branch(&self, inode: &'static CachedInode) -> Option<LockGuard<'static>> {
        self.spread(inode)?;
        Some(inode.lane.lock.lock(self.slot().holder()))
    }

    /// All lanes that an inode has.
    pub fn lanes(
        &self,
        inode: &'static CachedInode,
    ) -> impl Iterator<Item = &'static Lane> + use<> {
        let spread = self.spread(inode).into_iter();
        let spread = spread.flat_map(|spread| (0..TAILS).map(|place| spread.lane(place)));
        std::iter::once(&inode.lane).chain(spread)
    }

    /// All buckets that an inode has.
    pub fn buckets(
        &self,
        inode: &'static CachedInode,
    ) -> impl Iterator<Item = &'static Bucket> + use<> {
        let spread = self.spread(inode).into_iter();
        let spread = spread.flat_map(|spread| (0..BUCKETS).map(|place| spread.bucket(place)));
        std::iter::once(&inode.bucket).chain(spread)
    }

    /// Counts names more or fewer. Under the lock of a name.
    #[inline(always)]
    pub fn count_names(&self, directory: Directory, by: i32) {
        match self.spread(directory.inode()) {
            // No locked instruction, which would wait for all stores before it, is needed.
            None => {
                let entries = &directory.lane.entries;
                let count = entries.load(Ordering::Relaxed);
                entries.store(count.wrapping_add_signed(by), Ordering::Relaxed);
            }
            Some(spread) => {
                let lane = spread.lane(self.own_place());
                lane.entries.fetch_add(by as u32, Ordering::Relaxed);
            }
        }
    }

    /// Names of a directory, the delta's included. Exact under the whole inode's lock.
    pub fn entries(&self, directory: Directory) -> u32 {
        let entries = directory.part().base_entries.load(Ordering::Relaxed);
        self.lanes(directory.inode()).fold(entries, |sum, lane| {
            sum.wrapping_add(lane.entries.load(Ordering::Relaxed))
        })
    }

    /// Locks an inode as a whole. Blocks.
    #[inline(always)]
    pub fn lock_whole(&self, inode: &'static CachedInode) -> Whole {
        lock_whole(self.session, self.slot().holder(), inode)
    }

    /// Locks an inode as a whole if nobody has a part of it; never sleeps.
    pub fn try_lock_whole(&self, inode: &'static CachedInode) -> Option<Whole> {
        let holder = self.slot().holder();
        let lock = inode.lock.try_write(holder)?;
        let mut buckets = [const { None }; BUCKETS];
        if let Some(spread) = self.spread(inode) {
            for (place, held) in buckets.iter_mut().enumerate() {
                *held = Some(spread.bucket(place).lock.try_write(holder)?);
            }
        }
        Some(Whole {
            buckets,
            _inode: lock,
        })
    }

    /// What has to be locked to change names with this hash.
    pub fn want(&self, directory: Directory, hash: u64) -> Want {
        let spread = directory.branch.load(Ordering::Acquire) == begun::DURABLE
            && !directory.spread.load(Ordering::Acquire).is_null();
        Want {
            inode: directory.inode(),
            bucket: spread.then(|| place_of(hash)),
        }
    }

    /// Locks a directory to change names with this hash. Blocks; may spread the directory.
    #[inline(always)]
    pub fn lock_names(&self, directory: Directory, hash: u64) -> Locked {
        if directory.spread.load(Ordering::Acquire).is_null()
            && let Some(lock) = directory.inode().lock.try_write(self.slot().holder())
        {
            return Locked::Whole {
                _lock: with_buckets(self.session, self.slot().holder(), directory.inode(), lock),
            };
        }
        self.lock_contended(directory, hash)
    }

    #[inline(never)]
    fn lock_contended(&self, directory: Directory, hash: u64) -> Locked {
        if let Some(spread) = self.spread(directory.inode()) {
            let lock = spread
                .bucket(place_of(hash))
                .lock
                .write(self.slot().holder());
            if directory.branch.load(Ordering::Acquire) == begun::DURABLE {
                return Locked::Bucket { _lock: lock };
            }
        }
        let mut whole = self.lock_whole(directory.inode());
        self.has_waited(directory.inode(), &mut whole);
        Locked::Whole { _lock: whole }
    }

    /// A thread has had to wait for an inode that it would not have to have as a whole.
    fn has_waited(&self, inode: &'static CachedInode, whole: &mut Whole) {
        if self.spread(inode).is_none() {
            let waited = inode.lane.waited.load(Ordering::Relaxed) + 1;
            inode.lane.waited.store(waited, Ordering::Relaxed);
            if waited >= WAITS {
                self.spread_out(inode, whole);
            }
        }
    }

    /// Locks bytes of a file to read them; `length` > 0. Blocks.
    #[inline(always)]
    pub fn lock_to_read(&self, inode: &'static CachedInode, at: u64, length: u64) -> Reading {
        if inode.spread.load(Ordering::Acquire).is_null() {
            let lock = inode.lock.read();
            // It may have been spread while this thread waited.
            if inode.spread.load(Ordering::Acquire).is_null() {
                return Reading::Whole { _lock: lock };
            }
        }
        self.lock_bytes_to_read(inode, at, length)
    }

    #[inline(never)]
    fn lock_bytes_to_read(&self, inode: &'static CachedInode, at: u64, length: u64) -> Reading {
        let mut locks = [const { None }; BUCKETS];
        let Some(spread) = self.spread(inode) else {
            return Reading::Whole {
                _lock: inode.lock.read(),
            };
        };
        for (place, held) in locks.iter_mut().enumerate() {
            if has_bytes(place, at, length) {
                *held = Some(spread.bucket(place).lock.read());
            }
        }
        Reading::Bytes { _locks: locks }
    }

    /// Locks bytes of a file that is spread, to overwrite them in place; `length` > 0. Blocks.
    pub fn lock_bytes(
        &self,
        inode: &'static CachedInode,
        at: u64,
        length: u64,
    ) -> Option<[Option<WriteGuard<'static>>; BUCKETS]> {
        let spread = self.spread(inode)?;
        let holder = self.slot().holder();
        let mut locks = [const { None }; BUCKETS];
        for (place, held) in locks.iter_mut().enumerate() {
            if has_bytes(place, at, length) {
                *held = Some(spread.bucket(place).lock.write(holder));
            }
        }
        Some(locks)
    }

    /// Locks a file as a whole to write to it; spreads it if threads wait for each other only to
    /// overwrite what lies before `end`. Blocks.
    #[inline(always)]
    pub fn lock_to_write(&self, inode: &'static CachedInode, end: u64) -> Whole {
        if let Some(lock) = inode.lock.try_write(self.slot().holder()) {
            return with_buckets(self.session, self.slot().holder(), inode, lock);
        }
        self.wait_to_write(inode, end)
    }

    #[inline(never)]
    fn wait_to_write(&self, inode: &'static CachedInode, end: u64) -> Whole {
        let mut whole = self.lock_whole(inode);
        if end <= inode.size.load(Ordering::Relaxed) {
            self.has_waited(inode, &mut whole);
        }
        whole
    }

    /// Locks up to N parts of inodes, each once.
    pub fn lock_all<const N: usize>(&self, wants: [Option<Want>; N]) -> [Option<Locked>; N] {
        let mut wants = wants;
        loop {
            wants.sort_by_key(|want| want.as_ref().map_or((0, 0), Want::order));
            let mut last: Option<Want> = None;
            let locked = wants.map(|want| {
                let want = want?;
                if last.is_some_and(|last| last.covers(&want)) {
                    return None;
                }
                last = Some(want);
                let spread = want.bucket.zip(self.spread(want.inode));
                Some(match spread {
                    Some((place, spread)) => Locked::Bucket {
                        _lock: spread.bucket(place).lock.write(self.slot().holder()),
                    },
                    None => Locked::Whole {
                        _lock: self.lock_whole(want.inode),
                    },
                })
            });
            let mut ended = false;
            for want in wants.iter_mut().flatten() {
                if want.bucket.is_some()
                    && want.inode.branch.load(Ordering::Acquire) != begun::DURABLE
                {
                    // A fold has ended the branch meanwhile.
                    want.bucket = None;
                    ended = true;
                }
            }
            if !ended {
                return locked;
            }
        }
    }

    /// Gives an inode, which is held as a whole, its buckets. Without memory nothing changes.
    #[cold]
    fn spread_out(&self, inode: &'static CachedInode, whole: &mut Whole) {
        let region = self.session.region();
        let Ok(offset) = region.allocate_zeroed::<Spread>(self.slot(), 1) else {
            return;
        };
        let spread = region.get(offset);
        let relaxed = Ordering::Relaxed;
        for place in 0..BUCKETS {
            let names = inode.bucket.names.load(relaxed);
            spread.bucket(place).names.store(names, relaxed);
        }
        let sequence = inode.lane.sequence.load(relaxed) as usize;
        for place in 0..TAILS {
            let base = sequence.next_multiple_of(TAILS) + place;
            spread.lane(place).sequence.store(base as u32, relaxed);
        }
        // What there is goes on in lane 0; its entries say so already.
        let (first, only) = (spread.lane(0), &inode.lane);
        for (to, from) in [
            (&first.tail_page, &only.tail_page),
            (&first.tail_unit, &only.tail_unit),
            (&first.tail_first, &only.tail_first),
            (&first.removes, &only.removes),
            (&first.entries, &only.entries),
        ] {
            to.store(from.swap(0, relaxed), relaxed);
        }
        let listed = only.overlay_first.swap(Offset::NULL, relaxed);
        first.overlay_first.store(listed, relaxed);
        for (place, held) in whole.buckets.iter_mut().enumerate() {
            *held = Some(spread.bucket(place).lock.write(self.slot().holder()));
        }
        inode.spread.store(offset, Ordering::Release);
        self.views.spread.fetch_add(1, Ordering::Relaxed);
    }

    /// An inode's lock, if it is free: views are refreshed under other locks too, where waiting
    /// could be for ever.
    pub fn lock_now(&self, inode: &'static CachedInode) -> Attempt<Whole> {
        for _ in 0..64 {
            if let Some(locked) = self.try_lock_whole(inode) {
                return Ok(locked);
            }
            std::hint::spin_loop();
        }
        Err(Need::Busy(inode.number()).into())
    }
}

impl Bucket {
    /// A name of the overlay has changed, and everybody can see it. Under the bucket's lock.
    pub fn changed(&self) {
        let names = self.names.load(Ordering::Relaxed);
        self.names.store(names.wrapping_add(2), Ordering::Release);
    }
    /// A name is about to be taken from one place and put into another, or (the second time) has
    /// been. Under the bucket's lock.
    pub fn moves(&self) {
        let names = self.names.load(Ordering::Relaxed);
        self.names.store(names.wrapping_add(1), Ordering::Release);
    }
    /// Whether a name is between two places: what is not found now may be there all the time.
    /// To be asked after the search.
    pub fn is_moving(&self) -> bool {
        std::sync::atomic::fence(Ordering::Acquire);
        !self.names.load(Ordering::Relaxed).is_multiple_of(2)
    }
}

impl Lane {
    /// Whether no delta has left anything here.
    pub fn is_empty(&self) -> bool {
        self.tail_first.load(Ordering::Relaxed) == 0
            && self.overlay_first.load(Ordering::Relaxed).is_null()
    }
    /// The delta is over, and its pages are not here any more.
    pub fn forget_tail(&self) {
        for field in [
            &self.tail_page,
            &self.tail_unit,
            &self.tail_first,
            &self.entries,
            &self.removes,
        ] {
            field.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_buckets_of_its_pieces() {
        let of = |at, length| -> Vec<usize> {
            (0..BUCKETS)
                .filter(|&place| has_bytes(place, at, length))
                .collect()
        };
        let cases: [(u64, u64, &[usize]); 8] = [
            (0, 1, &[0]),
            (PIECE - 1, 1, &[0]),
            (PIECE - 1, 2, &[0, 1]),
            (7 * PIECE, PIECE, &[7]),
            (7 * PIECE, PIECE + 1, &[0, 7]),
            (13 * PIECE, 3 * PIECE, &[5, 6, 7]),
            (3, 8 * PIECE, &[0, 1, 2, 3, 4, 5, 6, 7]),
            (u64::MAX - PIECE, PIECE, &[6, 7]),
        ];
        for (at, length, places) in cases {
            assert_eq!(of(at, length), places, "[{at}, +{length})");
        }
    }
}
