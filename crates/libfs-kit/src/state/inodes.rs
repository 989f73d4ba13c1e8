//! Views of inodes, as they stand in the region; see [`crate::views`].

use super::kinds::{DirectoryPart, FilePart};
use super::overlay::OverlayEntry;
use crate::region::{AtomicOffset, Lock, ReadWriteLock};
use crate::region_shared;
use arck_core_state::Ownership;
use arck_core_state::branch::TAILS;
use arck_core_state::geometry::InodeNumber;
use arck_core_state::{FileKind, IndexRoot, Inode};
use arck_protocol::operation::Expected;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

fn none<T>() -> AtomicOffset<T> {
    AtomicOffset::default()
}

/// Ends a list of numbers.
pub const LAST: u32 = u32::MAX;

/// Inodes per leaf of the table.
pub const LEAF: usize = 512;

region_shared! {
    /// Part of the table of cached inodes.
    pub struct InodeLeaf {
        pub entries: [AtomicOffset<CachedInode>; LEAF],
    }

    /// See [`crate::views`]. Attributes are this session's view.
    pub struct CachedInode {
        pub lock: ReadWriteLock,
        pub number: AtomicU32,
        pub generation: AtomicU32,
        /// [`flag`] bits; from [`LIBFS_FLAGS`] on the LibFS's own.
        pub flags: AtomicU32,
        /// What the header said when the view was made: unmarked ownership, fold number, and
        /// the even sequence; a sequence of `u64::MAX` means that there is no view.
        pub ownership: AtomicU64,
        pub fold: AtomicU64,
        pub sequence: AtomicU64,

        pub mode: AtomicU32,
        pub uid: AtomicU32,
        pub gid: AtomicU32,
        /// Links in the verified state.
        pub base_links: AtomicU32,
        /// Links that this session's deltas add to the verified ones (high half; negative ones
        /// wrap), and how many names are being changed at this moment by which they will change
        /// (low half): one word, so that what is read belongs to one instant.
        pub link_delta: AtomicU64,
        pub size: AtomicU64,
        pub accessed: AtomicU64,
        pub modified: AtomicU64,
        pub changed: AtomicU64,
        pub created: AtomicU64,
        /// Verified root of the index, or of the hash pages, and the size of what it leads to.
        pub base_root: AtomicU64,
        pub base_size: AtomicU64,
        /// The directory in which it is. Of what is none: in which it is created, or through which it was
        /// opened last; 0: none is known.
        pub holder: AtomicU32,

        // ---- delta, protected by `lock`
        /// Whether the branch has been begun for `fold`: see [`begun`](crate::delta::begun).
        pub branch: AtomicU32,
        pub(crate) file: FilePart,
        /// Of a directory: what it has of names and delta, unless it is striped.
        pub shard: Shard,
        pub stripe: Stripe,
        /// What it has instead, or a file has, once it is striped; see [`locks`](crate::views::locks).
        pub striped: AtomicOffset<Striped>,
        /// Descriptions that have the inode open (low half), and its place in the open table
        /// plus one (high half): one word, so that the last close and a new open cannot cross.
        /// [`REFUSED`] while it ends.
        pub opened: AtomicU64,
        /// In the list of those with a delta: the number of the next, or [`LAST`]; 0 if it is in
        /// none.
        pub dirty_next: AtomicU32,
        /// Of a directory: names in the verified state. Of what is none: the delta's index has no entry from this page on
        /// (`u32::MAX`: nobody knows), so whoever cuts it at its end looks through no rest of an index page; it is
        /// lowered under the lock of the whole inode.
        pub(crate) reach: AtomicU32,
        pub(crate) directory: DirectoryPart,
        pub reuse_next: AtomicOffset<CachedInode>,
        /// The region's epoch when the inode that had the number before died uncommitted; see
        /// [`life`](crate::views::Viewing::life).
        pub reuse_epoch: AtomicU64,
        /// Of the delta, protected by `lock`: the page of the extended attributes, as the branch
        /// says it; 0 = as verified.
        pub attributes: AtomicU32,
        /// Held over reads and writes that take the inode's lock several times; see [`flag::EXCLUSIVE`].
        pub exclusive: Lock,
    }

    /// What one thread, or a few, put into a directory's delta. Protected by `lock`, or by the
    /// inode's lock where it is the only one.
    pub struct Shard {
        pub lock: Lock,
        /// Where the next record goes (0 = nowhere yet; [`REMOVES`] in the unit, and from [`PAGES_SHIFT`] on how many
        /// pages there are), the first page, the last sequence.
        pub tail_page: AtomicU32,
        pub(crate) tail_unit: AtomicU32,
        pub tail_first: AtomicU32,
        pub sequence: AtomicU32,
        /// Of the shard in the inode: where its [`SealedPart`](super::kinds::SealedPart) is, in units of
        /// [`GRAIN`] bytes; 0: it has none.
        pub(crate) sealed_part: AtomicU32,
        /// The overlay's entries.
        pub overlay_first: AtomicOffset<OverlayEntry>,
        /// Names more than the verified directory has; fewer wrap.
        pub entries: AtomicU32,
        /// How often threads waited for the inode, or read the file at the same moment, before it was striped; or waited to
        /// overwrite bytes of it, where its stripes are for something else.
        pub waited: AtomicU32,
    }

    /// Of a directory: the names with some hashes. Of a file: the bytes in some places.
    pub struct Stripe {
        pub lock: ReadWriteLock,
        /// Moves whenever a name of the overlay does; odd while a rename has taken a name away
        /// and not put it where it goes.
        pub names: AtomicU32,
    }

    /// A shard that is not on a line with others.
    pub struct ShardApart {
        pub shard: Shard,
        pub apart: [AtomicU64; 3],
    }

    /// A stripe that is not on a line with others.
    pub struct StripeApart {
        pub stripe: Stripe,
        pub apart: [AtomicU64; 7],
    }

    /// What an inode has that several threads change.
    pub struct Striped {
        pub shards: [ShardApart; TAILS],
        pub stripes: [StripeApart; STRIPES],
    }
}

/// In [`Shard::tail_unit`]: the last page may hold only what takes names away, since the pool had no room to fold
/// more.
pub(crate) const REMOVES: u32 = 1 << 31;
/// In [`Shard::tail_unit`]: the unit is below this bit, how many pages the tail has above.
pub(crate) const PAGES_SHIFT: u32 = 8;
/// What the region's memory is aligned to, in bytes.
pub(crate) const GRAIN: u64 = 16;

/// Stripes of a striped directory: what two threads change lies in one stripe once in as many times.
pub const STRIPES: usize = 8;
/// Bytes of a cache line.
pub const LINE: usize = 64;
const _: () = assert!(cfg!(shuttle) || size_of::<Striped>() == (TAILS + STRIPES) * LINE);
const _: () = assert!(cfg!(shuttle) || size_of::<CachedInode>() <= 256);

/// Bits of [`CachedInode::flags`].
pub mod flag {
    /// Not created yet: exists in this session's deltas only.
    pub const UNCOMMITTED: u32 = 1;
    /// Its last name is gone.
    pub const UNLINKED: u32 = 2;
    /// A live map of a program's shows it: see [`Dependents::view_moved`](crate::views::Dependents::view_moved).
    pub const MAPPED: u32 = 4;
    /// Not all of its live maps show what they should.
    pub const STALE_MAPS: u32 = 8;
    /// A thread reads or writes in several steps that must look like one: it holds
    /// [`CachedInode::exclusive`](super::CachedInode::exclusive), and all others wait for that. Set and
    /// looked at under the inode's lock.
    pub const EXCLUSIVE: u32 = 16;
    /// Uncommitted and never had a name (O_TMPFILE), but may get one.
    pub const LINKABLE: u32 = 32;
    /// The controller has told of it, since it lies where this session cannot look. It told whoever had it
    /// open, or had been shown the way: a path that leads to it now may show more.
    pub const TOLD: u32 = 64;
    /// Of what is no directory: deltas of directories have had to do with its links.
    pub const COUNTED: u32 = 1024;
    /// What the session had changed was refused and set aside, and no operation has reported it
    /// yet.
    pub const LOST: u32 = 256;
    /// The index of its delta is one page, with entries in the first line alone: it was created with that, and
    /// nothing has been changed since. Its [`branch`](crate::changing::Changing::branch) takes this away.
    pub const FRONT: u32 = 128;
    /// Verified directories are being removed from it: see [`crate::engine`].
    pub const REMOVING: u32 = 512;
    /// A program may have stored to its pages through maps, which the LibFS has not flushed.
    pub const STORED: u32 = 2048;
    /// Of a file that is striped: stripes are for pieces, or pages, of it. Neither: for threads that read. See
    /// [`byte_locks`](crate::views::byte_locks). Both change under the lock of the whole inode.
    pub const BY_PIECE: u32 = 4096;
    pub const BY_PAGE: u32 = 8192;
    /// Nobody becomes its owner for a write that fits in a message
    /// ([`Mediation::On`](arck_core_state::Mediation)), as far as is known.
    pub const MEDIATED: u32 = 16384;
    /// Sessions may have writable maps of it together ([`arck_core_state::TOGETHER`]), as far as is known. It is
    /// [`MEDIATED`], too.
    pub const TOGETHER: u32 = 32768;
}

/// In [`CachedInode::flags`]: the bits from here on are the LibFS's own.
pub const LIBFS_FLAGS: u32 = 16;

/// In [`CachedInode::opened`]: it is open for nobody, and nobody may open it.
pub const REFUSED: u64 = 1 << 63;

impl CachedInode {
    pub fn new(number: InodeNumber, generation: u32) -> CachedInode {
        let word = || AtomicU64::new(0);
        let half = || AtomicU32::new(0);
        CachedInode {
            lock: ReadWriteLock::new(),
            number: AtomicU32::new(number),
            generation: AtomicU32::new(generation),
            flags: half(),
            ownership: word(),
            fold: word(),
            sequence: AtomicU64::new(u64::MAX),
            mode: half(),
            uid: half(),
            gid: half(),
            base_links: half(),
            link_delta: word(),
            size: word(),
            accessed: word(),
            modified: word(),
            changed: word(),
            created: word(),
            base_root: word(),
            base_size: word(),
            holder: half(),
            directory: DirectoryPart::new(),
            file: FilePart::new(),
            branch: half(),
            shard: Shard {
                lock: Lock::new(),
                tail_page: half(),
                tail_unit: half(),
                tail_first: half(),
                sequence: half(),
                sealed_part: half(),
                overlay_first: none(),
                entries: half(),
                waited: half(),
            },
            stripe: Stripe {
                lock: ReadWriteLock::new(),
                names: half(),
            },
            striped: none(),
            opened: word(),
            dirty_next: half(),
            reuse_next: none(),
            reuse_epoch: word(),
            attributes: half(),
            reach: half(),
            exclusive: Lock::new(),
        }
    }

    /// Makes of what is all zero what [`CachedInode::new`] is: a view that nobody can reach yet.
    pub(crate) fn begin(&self, number: InodeNumber, generation: u32) {
        self.number.store(number, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
        self.sequence.store(u64::MAX, Ordering::Relaxed);
        self.file.begin_again();
    }

    pub fn number(&self) -> InodeNumber {
        self.number.load(Ordering::Relaxed)
    }
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }
    /// Whether a description of this session has it open, or it is about to end.
    pub fn is_open(&self) -> bool {
        self.opened.load(Ordering::SeqCst) != 0
    }
    /// How many have it open.
    pub fn openings(&self) -> u32 {
        self.opened.load(Ordering::SeqCst) as u32
    }
    /// Refuses all openings until [`CachedInode::allow_openings`], for what is to end unless it is
    /// open: false then. Under its lock, for which those wait that are refused.
    pub fn refuse_openings(&self) -> bool {
        self.opened
            .compare_exchange(0, REFUSED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
    /// Under the same lock.
    pub fn allow_openings(&self) {
        self.opened.store(0, Ordering::Release);
    }
    pub fn expected(&self) -> Expected {
        Expected {
            ownership: Ownership(self.ownership.load(Ordering::Acquire)),
            fold: self.fold.load(Ordering::Acquire),
        }
    }
    pub fn expect(&self, expected: Expected) {
        self.fold.store(expected.fold, Ordering::Release);
        self.ownership
            .store(expected.ownership.0, Ordering::Release);
    }
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode.load(Ordering::Relaxed))
    }
    pub fn is_directory(&self) -> bool {
        self.kind() == Some(FileKind::Directory)
    }
    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::SeqCst) & flag != 0
    }
    pub fn set(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::SeqCst);
        } else {
            self.flags.fetch_and(!flag, Ordering::AcqRel);
        }
    }
    /// Where the open table lists it.
    pub fn place(&self) -> Option<usize> {
        let place = self.opened.load(Ordering::SeqCst) >> 32;
        (place as usize & 0x3fff_ffff).checked_sub(1)
    }
    /// Clears a flag; whether it was set. One of several threads is told so.
    pub fn take(&self, flag: u32) -> bool {
        self.flags.fetch_and(!flag, Ordering::AcqRel) & flag != 0
    }
    pub fn links(&self) -> u32 {
        self.links_and_changes().0
    }
    /// Links, and names being changed by which they will change.
    #[inline]
    pub fn links_and_changes(&self) -> (u32, u32) {
        let base = self.base_links.load(Ordering::Relaxed);
        let delta = self.link_delta.load(Ordering::Acquire);
        (base.wrapping_add((delta >> 32) as u32), delta as u32)
    }
    pub fn add_links(&self, by: i32) {
        self.is_counted();
        self.link_delta.fetch_add(links(by), Ordering::AcqRel);
    }
    /// What is no directory: a name by which its links change is about to be changed. Under the
    /// name's lock; [`CachedInode::links_have_changed`] follows under the same.
    pub fn links_will_change(&self) {
        self.link_delta.fetch_add(1, Ordering::AcqRel);
    }
    /// The name has been changed.
    pub fn links_have_changed(&self, by: i32) {
        self.is_counted();
        let change = links(by).wrapping_sub(1);
        self.link_delta.fetch_add(change, Ordering::AcqRel);
    }
    /// Nothing is added to the verified links any more.
    pub fn forget_links(&self) {
        self.link_delta
            .fetch_and(u64::from(u32::MAX), Ordering::AcqRel);
    }
    /// What is no directory: the delta of one has to do with its links from now on.
    #[inline]
    pub fn is_counted(&self) {
        if !self.has(flag::COUNTED) {
            self.set(flag::COUNTED, true);
        }
    }
    pub fn verified_root(&self) -> IndexRoot {
        IndexRoot(self.base_root.load(Ordering::Acquire))
    }
}

impl CachedInode {
    /// Of a number about to be created, both parts are as new. Under its lock; the list of directories
    /// in which an earlier life may have put it stays as it is.
    pub(crate) fn parts_begin_again(&self) {
        self.directory.begin_again();
        self.file.begin_again();
        self.reach.store(0, Ordering::Relaxed);
    }

    /// Brings the part of its kind to the verified state. Under its lock.
    pub(crate) fn load_part(&self, verified: &Inode) {
        let relaxed = Ordering::Relaxed;
        self.reach.store(verified.entries, relaxed);
        self.file.pages.store(verified.pages, relaxed);
    }

    /// The view shows another inode from now on: what was known of the one before is over.
    pub(crate) fn forget_the_one_before(&self) {
        self.forget_links();
        self.flags.store(0, Ordering::Release);
        self.file.forget_delta();
        self.directory.nothing_overlaid();
    }
}

/// What adds to `link_delta` so many links.
pub fn links(by: i32) -> u64 {
    (i64::from(by) << 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Offset, Region};

    #[test]
    fn a_view_begins_in_zeroes_as_a_new_one() {
        let region = Region::in_memory(16 << 20).unwrap();
        let slot = region.claim_thread_slot(0).unwrap();
        let new = region.allocate(&slot, CachedInode::new(7, 3)).unwrap();
        let begun = region.allocate_zeroed::<CachedInode>(&slot, 1).unwrap();
        region.get(begun).begin(7, 3);
        let words = |inode: Offset<CachedInode>| -> Vec<u64> {
            let words = region.get_slice(inode.cast::<AtomicU64>(), size_of::<CachedInode>() / 8);
            words
                .iter()
                .map(|word| word.load(Ordering::Relaxed))
                .collect()
        };
        assert_eq!(words(new), words(begun));
    }
}
