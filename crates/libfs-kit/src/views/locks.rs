//! Stripes and shards: how threads change the names of one directory at the same time.
//!
//! A directory begins with one stripe and one shard, in its cached inode, protected by the inode's
//! lock. Once threads have waited for that lock a few times it is *striped*: it gets [`STRIPES`]
//! stripes by the name's hash, each with its lock, and as many shards as its delta has tails, for
//! the threads in turn, each with its tail and its part of the overlay's list; all on lines of
//! their own. Who changes a name then takes the lock of its stripe, and that of the thread's own
//! shard to append a record or to list an entry; everybody else takes the *whole* inode: its lock,
//! and those of its stripes if it has some. (ScaleFS and ArckFS lock stripes too; theirs are there
//! from the beginning. A directory that one thread uses would pay for them.)
//!
//! Files have stripes, too, for what [`byte_locks`](crate::views::byte_locks) says.
//!
//! # Invariants
//! * Stripes are made under the whole inode's lock, and stay as long as the cached inode.
//! * Only a directory whose branch is durably begun is changed under a stripe's lock alone: a
//!   branch begins, and ends, under the whole.
//! * No two records of a directory have one sequence number: each shard has its own numbers, equal
//!   to its place modulo [`TAILS`].
//! * A shard is held until what was appended to its tail is durable: what is read of a tail after a
//!   crash ends at the first record that is not.
//!
//! Order of locks: inodes by ascending number; of an inode, its lock, then stripes as they stand;
//! then one shard of one directory; then what threads share of a branch ([`Viewing::lock_branch`]);
//! then stocks.

pub use crate::attempt::whole::Whole;
use crate::attempt::whole::{AllStripes, lock_whole, striped, with_stripes};
use crate::delta::Tail;
use crate::need::{Attempt, Need};
use crate::region::{LockGuard, WriteGuard};
use crate::views::{
    CachedInode, Directory, PAGES_SHIFT, REMOVES, STRIPES, Shard, Stripe, Striped, Viewing, begun,
};
use arck_core_state::branch::TAILS;
use std::sync::atomic::Ordering;

/// What an operation has locked of one inode.
pub enum Locked {
    Stripe { _lock: WriteGuard<'static> },
    Whole { _lock: Whole },
}

/// What an operation has to lock of an inode: a stripe, or all of it.
#[derive(Clone, Copy)]
pub struct Want {
    inode: &'static CachedInode,
    stripe: Option<usize>,
}

impl Want {
    pub fn whole(inode: &'static CachedInode) -> Want {
        Want {
            inode,
            stripe: None,
        }
    }

    /// Inodes by number, then as their locks are ordered.
    fn order(&self) -> (u32, usize) {
        (
            self.inode.number(),
            self.stripe.map_or(0, |stripe| stripe + 1),
        )
    }

    /// Whether a lock on this is one on `other` too.
    fn covers(&self, other: &Want) -> bool {
        std::ptr::eq(self.inode, other.inode)
            && (self.stripe.is_none() || self.stripe == other.stripe)
    }
}

/// The stripe of a hash: by bits that neither table takes first.
fn place_of(hash: u64) -> usize {
    (hash >> 32) as usize % STRIPES
}

/// A shard of a directory that a thread may change.
pub struct InShard {
    pub shard: &'static Shard,
    /// Which one, and so which tail of the branch is its.
    pub place: usize,
    /// How far apart its sequence numbers are.
    pub apart: u32,
    _lock: Option<LockGuard<'static>>,
}

impl Viewing<'_> {
    #[inline(always)]
    pub(super) fn striped(&self, inode: &CachedInode) -> Option<&'static Striped> {
        striped(self.session, inode)
    }

    /// The stripe of the names with a hash.
    #[inline(always)]
    pub fn stripe(&self, directory: Directory, hash: u64) -> &'static Stripe {
        match self.striped(directory.inode()) {
            None => &directory.inode().stripe,
            Some(striped) => striped.stripe(place_of(hash)),
        }
    }

    fn own_place(&self) -> usize {
        usize::from(self.slot().holder().thread) % TAILS
    }

    /// The thread's own shard of a directory, some name of which it has locked.
    #[inline(always)]
    pub fn own_shard(&self, directory: Directory) -> InShard {
        self.shard(directory, self.own_place())
    }

    /// A shard of a directory, some name of which this thread has locked; `place` counts only if it
    /// is striped.
    #[inline(always)]
    pub fn shard(&self, directory: Directory, place: usize) -> InShard {
        match self.striped(directory.inode()) {
            None => InShard {
                shard: &directory.inode().shard,
                place: 0,
                apart: 1,
                _lock: None,
            },
            Some(striped) => InShard {
                shard: striped.shard(place),
                place,
                apart: TAILS as u32,
                _lock: Some(striped.shard(place).lock.lock(self.slot().holder())),
            },
        }
    }

    /// Held while words of a branch are changed that several threads may change, where none of them
    /// need have the whole inode: those of tails, two of which share one, and of partners. The lock
    /// of the shard of which there is none in the inode then. After that of a shard.
    pub fn lock_branch(&self, inode: &'static CachedInode) -> Option<LockGuard<'static>> {
        self.striped(inode)?;
        Some(inode.shard.lock.lock(self.slot().holder()))
    }

    /// All shards that an inode has.
    pub fn shards(
        &self,
        inode: &'static CachedInode,
    ) -> impl Iterator<Item = &'static Shard> + use<> {
        let striped = self.striped(inode).into_iter();
        let striped = striped.flat_map(|striped| (0..TAILS).map(|place| striped.shard(place)));
        std::iter::once(&inode.shard).chain(striped)
    }

    /// All stripes that an inode has.
    pub fn stripes(
        &self,
        inode: &'static CachedInode,
    ) -> impl Iterator<Item = &'static Stripe> + use<> {
        let striped = self.striped(inode).into_iter();
        let striped = striped.flat_map(|striped| (0..STRIPES).map(|place| striped.stripe(place)));
        std::iter::once(&inode.stripe).chain(striped)
    }

    /// Counts names more or fewer. Under the lock of a name.
    #[inline(always)]
    pub fn count_names(&self, directory: Directory, by: i32) {
        match self.striped(directory.inode()) {
            // No locked instruction, which would wait for all stores before it, is needed.
            None => {
                let entries = &directory.shard.entries;
                let count = entries.load(Ordering::Relaxed);
                entries.store(count.wrapping_add_signed(by), Ordering::Relaxed);
            }
            Some(striped) => {
                let shard = striped.shard(self.own_place());
                shard.entries.fetch_add(by as u32, Ordering::Relaxed);
            }
        }
    }

    /// Names of a directory, the delta's included. Exact under the whole inode's lock.
    pub fn entries(&self, directory: Directory) -> u32 {
        let entries = directory.reach.load(Ordering::Relaxed);
        self.shards(directory.inode()).fold(entries, |sum, shard| {
            sum.wrapping_add(shard.entries.load(Ordering::Relaxed))
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
        let mut stripes = None;
        if let Some(striped) = self.striped(inode) {
            stripes = Some(AllStripes::take(striped, |lock| lock.try_write(holder))?);
        }
        Some(Whole {
            stripes,
            _inode: lock,
        })
    }

    /// What has to be locked to change names with this hash.
    pub fn want(&self, directory: Directory, hash: u64) -> Want {
        let striped = directory.branch.load(Ordering::Acquire) == begun::DURABLE
            && !directory.striped.load(Ordering::Acquire).is_null();
        Want {
            inode: directory.inode(),
            stripe: striped.then(|| place_of(hash)),
        }
    }

    /// Locks a directory to change names with this hash. Blocks; may striped the directory.
    #[inline(always)]
    pub fn lock_names(&self, directory: Directory, hash: u64) -> Locked {
        if directory.striped.load(Ordering::Acquire).is_null()
            && let Some(lock) = directory.inode().lock.try_write(self.slot().holder())
        {
            return Locked::Whole {
                _lock: with_stripes(self.session, self.slot().holder(), directory.inode(), lock),
            };
        }
        self.lock_contended(directory, hash)
    }

    #[inline(never)]
    fn lock_contended(&self, directory: Directory, hash: u64) -> Locked {
        if let Some(striped) = self.striped(directory.inode()) {
            let lock = striped
                .stripe(place_of(hash))
                .lock
                .write(self.slot().holder());
            if directory.branch.load(Ordering::Acquire) == begun::DURABLE {
                return Locked::Stripe { _lock: lock };
            }
        }
        let mut whole = self.lock_whole(directory.inode());
        self.has_waited_for_name(directory.inode(), &mut whole);
        Locked::Whole { _lock: whole }
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
                let striped = want.stripe.zip(self.striped(want.inode));
                Some(match striped {
                    Some((place, striped)) => Locked::Stripe {
                        _lock: striped.stripe(place).lock.write(self.slot().holder()),
                    },
                    None => Locked::Whole {
                        _lock: self.lock_whole(want.inode),
                    },
                })
            });
            let mut ended = false;
            for want in wants.iter_mut().flatten() {
                if want.stripe.is_some()
                    && want.inode.branch.load(Ordering::Acquire) != begun::DURABLE
                {
                    // A fold has ended the branch meanwhile.
                    want.stripe = None;
                    ended = true;
                }
            }
            if !ended {
                return locked;
            }
        }
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

impl Stripe {
    /// A name of the overlay has changed, and everybody can see it. Under the stripe's lock.
    pub fn changed(&self) {
        let names = self.names.load(Ordering::Relaxed);
        self.names.store(names.wrapping_add(2), Ordering::Release);
    }
    /// A name is about to be taken from one place and put into another, or (the second time) has
    /// been. Under the stripe's lock.
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

/// Of the unit in [`Shard::tail_unit`].
const UNIT: u32 = (1 << PAGES_SHIFT) - 1;

impl Shard {
    /// Whether no delta has left anything here.
    pub fn is_empty(&self) -> bool {
        self.tail_first.load(Ordering::Relaxed) == 0
            && self.overlay_first.load(Ordering::Relaxed).is_null()
    }
    /// Whether the last page of its tail may hold only what takes names away.
    pub(crate) fn only_removes(&self) -> bool {
        self.tail_unit.load(Ordering::Relaxed) & REMOVES != 0
    }
    /// Says so. Under its lock, as what follows.
    pub(crate) fn set_only_removes(&self, only: bool) {
        let unit = self.tail_unit.load(Ordering::Relaxed) & !REMOVES;
        let removes = if only { REMOVES } else { 0 };
        self.tail_unit.store(unit | removes, Ordering::Relaxed);
    }
    /// Where the next record of its tail goes.
    pub(crate) fn tail(&self) -> Tail {
        Tail {
            page: self.tail_page.load(Ordering::Relaxed),
            unit: self.tail_unit.load(Ordering::Relaxed) & UNIT,
        }
    }
    /// The same, to be so from now on, with so many `pages` more.
    pub(crate) fn set_tail(&self, tail: Tail, pages: u32) {
        let others = self.tail_unit.load(Ordering::Relaxed) & !UNIT;
        let others = others + (pages << PAGES_SHIFT);
        self.tail_page.store(tail.page, Ordering::Relaxed);
        self.tail_unit.store(tail.unit | others, Ordering::Relaxed);
    }
    /// How many pages its tail has. (An arena has 2^18.)
    #[inline]
    pub(crate) fn pages(&self) -> u32 {
        (self.tail_unit.load(Ordering::Relaxed) & !REMOVES) >> PAGES_SHIFT
    }
    /// The delta is over, and its pages are not here any more.
    pub fn forget_tail(&self) {
        for field in [
            &self.tail_page,
            &self.tail_unit,
            &self.tail_first,
            &self.entries,
        ] {
            field.store(0, Ordering::Relaxed);
        }
    }
}
