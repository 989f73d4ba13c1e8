//! The memory that all processes of a trust group share.
//!
//! A region is one anonymous file, mapped by every member at an address of its own. References
//! inside it are [`Offset`]s; nothing in it is a pointer, a trait object, or a lock of one
//! process. It has two parts. *Session state* (thread slots, and an area of fixed slots for the
//! LibFS: open file descriptions, open table) is never discarded. *Auxiliary state* (everything
//! allocated: indexes, caches, free lists) carries the number of its build and can be thrown away.
//!
//! # What protects what
//!
//! * A process maps what is in use, not what could be: parts of the region that another member has begun
//!   to use become reachable here when they are first followed ([`mapping`]).
//! * Members trust each other, yet each access is bounds- and alignment-checked, and everything in
//!   the region is made of atomics ([`Shared`]): a wild offset or a use after free in one member
//!   gives wrong values, never undefined behaviour.
//! * A [`ThreadSlot`] is a thread's identity in the region. Allocation caches, lists of retired
//!   memory and the pinned epoch belong to a slot and are changed by its thread alone.
//! * What lock-free readers may still look at is freed through [`Guard::retire`], two epochs
//!   later; see [`epoch`].
//! * [`Lock`] and [`ReadWriteLock`] name their holder, so the death of a member is noticed by
//!   [`Region::clear_member`].
//!
//! Nothing here may be called from a signal handler that can interrupt the same slot's thread
//! inside one of these calls.
//!
//! # Checking it
//!
//! ```text
//! cargo test -p arck-libfs-kit region
//! RUSTFLAGS="--cfg shuttle" cargo test -p arck-libfs-kit --lib region
//! MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-disable-weak-memory-emulation" \
//!     cargo +nightly miri test -p arck-libfs-kit --lib region
//! RUSTFLAGS="-Zsanitizer=thread" cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu \
//!     -p arck-libfs-kit --lib region
//! ```

mod allocator;
mod build;
pub mod departed;
pub mod epoch;
pub mod fingerprint;
mod hash_table;
mod holder;
mod layout;
mod lock;
mod mapping;
mod offset;
mod primitive;
mod read_write_lock;
mod sizes;
mod structures;

/// What cannot be followed: of a fault of ours, or of what another member of the group has written there. One panic of that is
/// enough, and a second one in a destructor that the first runs would end the program.
fn is_nonsense<T>(offset: Offset<T>) {
    debug_assert!(std::thread::panicking(), "invalid {offset:?}");
}

#[cfg(test)]
mod tests;

pub use allocator::Statistics;
pub use epoch::{ClearedMember, Guard, NoThreadSlot, ThreadSlot};
pub use hash_table::{HashLink, HashNode, HashTable};
pub use holder::Holder;
pub use layout::{ROOTS, THREAD_SLOTS};
pub use lock::{Lock, LockGuard};
pub use offset::{AtomicOffset, Offset, Shared};
pub use read_write_lock::{Holders, ReadGuard, ReadWriteLock, WriteGuard};
pub use sizes::LARGEST_CLASS;

use arck_pm::SharedBytes;
use layout::{AREA, AuxiliaryHeader, Beginning, Header, Layout, SlotLine};
use mapping::Mapping;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Why a region cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The file does not hold a region, or one that is not completely made.
    #[error("not a region")]
    NotARegion,
    /// The region was made by an incompatible build.
    #[error(
        "it was made by programs that have another file system, or are of another version of Arck (structures {version}, \
         {fingerprint:#x}), which have to end first; or start this one apart from them, in a group of another name or in none \
         (arck run --own-group)"
    )]
    Incompatible {
        /// The version found.
        version: u32,
        /// The fingerprint of the structures found.
        fingerprint: u32,
    },
    /// The size in bytes is no multiple of the page size, too small, too large, or more than the
    /// file has.
    #[error("{0} bytes is no size for this region")]
    Size(u64),
    /// The system refused.
    #[error("mapping the region: {0}")]
    System(#[from] Errno),
}

/// The region has no room for an allocation (ENOMEM).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the shared region is full")]
pub struct OutOfMemory;

/// A group's shared memory, mapped.
pub struct Region {
    mapping: Mapping,
    layout: Layout,
}

impl Region {
    /// The largest size of a region in bytes: 8 TiB.
    pub const MAXIMUM_SIZE: u64 = layout::MAXIMUM_SIZE;

    /// Makes a region in the first `size` bytes of `file`, which must be that long already, all
    /// zero, and used by nobody else yet. Memory is used as the region fills.
    pub fn create(file: impl AsFd, size: u64) -> Result<Self, RegionError> {
        let length = rustix::fs::fstat(&file)?.st_size;
        if u64::try_from(length).is_ok_and(|length| length < size) {
            return Err(RegionError::Size(size));
        }
        let layout = Layout::of(size).ok_or(RegionError::Size(size))?;
        Self::initialise(
            Mapping::of_file(file, size, layout.windows(), layout.heap)?,
            layout,
        )
    }

    /// Maps a region that another member has made in `file`.
    pub fn open(file: impl AsFd) -> Result<Self, RegionError> {
        if cfg!(shuttle) {
            return Err(RegionError::System(Errno::NOSYS));
        }
        let length = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        if length < size_of::<Header>() as u64 {
            return Err(RegionError::NotARegion);
        }
        let Beginning {
            magic,
            version,
            fingerprint,
            size,
        } = Beginning::of_file(&file)?;
        if magic != layout::MAGIC {
            return Err(RegionError::NotARegion);
        }
        if version != layout::VERSION || fingerprint != Layout::fingerprint() {
            return Err(RegionError::Incompatible {
                version,
                fingerprint,
            });
        }
        let layout = Layout::of(size)
            .filter(|_| size <= length)
            .ok_or(RegionError::Size(size))?;
        let mapping = Mapping::of_file(file, size, layout.windows(), layout.heap)?;
        let region = Self { mapping, layout };
        region.keep_up().map_err(|OutOfMemory| Errno::NOMEM)?;
        Ok(region)
    }

    /// A region in zeroed memory of this process alone: for tests, and for a LibFS that will never
    /// fork.
    pub fn in_memory(size: u64) -> Result<Self, RegionError> {
        let layout = Layout::of(size).ok_or(RegionError::Size(size))?;
        Self::initialise(Mapping::of_memory(size, layout.windows())?, layout)
    }

    fn initialise(mapping: Mapping, layout: Layout) -> Result<Self, RegionError> {
        if cfg!(shuttle) {
            return Err(RegionError::System(Errno::NOSYS));
        }
        let region = Self { mapping, layout };
        let header = region.header();
        if header.magic.load(Ordering::Acquire) != 0 {
            return Err(RegionError::NotARegion);
        }
        header.version.store(layout::VERSION, Ordering::Relaxed);
        header
            .fingerprint
            .store(Layout::fingerprint(), Ordering::Relaxed);
        header.size.store(region.size(), Ordering::Relaxed);
        header.epoch.store(1, Ordering::Relaxed);
        region.auxiliary().build.store(1, Ordering::Relaxed);
        region.initialise_heap();
        header.magic.store(layout::MAGIC, Ordering::Release);
        Ok(region)
    }

    /// Tells waits for the region's locks where to look for members that are gone.
    pub fn watch(&'static self, departed: &'static departed::Set) {
        let auxiliary = self.layout.auxiliary as usize..self.layout.session_area as usize;
        departed::watch(
            self.base_address(),
            auxiliary,
            self.size() as usize,
            departed,
            &self.auxiliary().damaged,
        );
    }

    /// Says that what the LibFS keeps in a new region is there, for members that open it: structures with this
    /// [fingerprint](fingerprint::of).
    pub fn set_ready(&self, structures: u32) {
        self.keep_for_good();
        let ready = 1 << 32 | u64::from(structures);
        self.header().ready.store(ready, Ordering::Release);
    }

    /// That somebody has said so, of the same structures.
    pub fn expect_ready(&self, structures: u32) -> Result<(), RegionError> {
        match self.header().ready.load(Ordering::Acquire) {
            0 => Err(RegionError::NotARegion),
            ready if ready as u32 == structures => Ok(()),
            ready => Err(RegionError::Incompatible {
                version: layout::VERSION,
                fingerprint: ready as u32,
            }),
        }
    }

    /// Bytes of address space in the region.
    pub fn size(&self) -> u64 {
        self.mapping.size()
    }

    /// Whether this process's address space is limited, so that it may not be able to follow what other
    /// members do.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.mapping.is_limited()
    }

    /// This process's address space is about to be limited: reserves no more than is reached.
    pub fn give_up_reservation(&self) {
        self.mapping.give_up_reservation();
    }

    /// Before an operation, where [`is_limited`](Region::is_limited): makes reachable what other members
    /// use, and sees to it that there is room for what they may begin to use meanwhile. An operation that
    /// could not follow it would have to end the process.
    #[cold]
    pub fn prepare(&self) -> Result<(), OutOfMemory> {
        self.keep_up()?;
        self.mapping.keep_room().map_err(|_| OutOfMemory)
    }

    /// Addresses at which the region is mapped, or may be.
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let base = self.base_address();
        base..base + self.size() as usize
    }

    /// Where this process has the region, for diagnosis; it means nothing to other members.
    pub fn base_address(&self) -> usize {
        self.mapping.base_address()
    }

    /// The build of the auxiliary state, from 1.
    pub fn build(&self) -> u64 {
        self.auxiliary().build.load(Ordering::Acquire)
    }

    /// The object at `offset`; its type has at most 8192 bytes.
    ///
    /// An offset that cannot be followed (outside the region, misaligned) is a bug in some member:
    /// debug builds stop here. Release builds count it and give a reference to pages of the
    /// region kept for this purpose, so that a program that never asked for us does not die of it.
    #[inline]
    pub fn get<T: Shared>(&self, offset: Offset<T>) -> &T {
        match self.mapping.get(offset.raw()) {
            Some(object) => object,
            None => self.stray(offset),
        }
    }

    /// The object at `offset`, or `None` for null and for offsets that cannot be followed.
    #[inline]
    pub fn try_get<T: Shared>(&self, offset: Offset<T>) -> Option<&T> {
        self.mapping.get_unless_null(offset.raw())
    }

    /// `count` consecutive objects from `offset`; an empty slice where they do not fit.
    #[inline]
    pub fn get_slice<T: Shared>(&self, offset: Offset<T>, count: usize) -> &[T] {
        let slice = self.mapping.get_slice(offset.raw(), count);
        if slice.is_none() {
            is_nonsense(offset);
        }
        slice.unwrap_or_default()
    }

    #[cold]
    fn stray<T: Shared>(&self, offset: Offset<T>) -> &T {
        is_nonsense(offset);
        const { assert!(size_of::<T>() as u64 <= layout::STRAY_LENGTH) };
        self.header().stray.fetch_add(1, Ordering::Relaxed);
        match self.mapping.get(layout::STRAY) {
            Some(object) => object,
            // The stray pages are inside every region and page aligned.
            None => unreachable!(),
        }
    }

    /// This process has nothing of the region any more, which is zeroes of its own to whoever comes
    /// late. Others of the group have it as before.
    pub(crate) fn let_go(&self) {
        self.mapping.replace_by_zeroes();
    }

    /// Copies bytes out of the region; false, and nothing copied, if they are not all inside.
    pub fn read_bytes(&self, offset: Offset<AtomicU8>, bytes: &mut [u8]) -> bool {
        let Some((words, rest)) = self.words_and_rest(offset, bytes.len()) else {
            return false;
        };
        let (chunks, _) = bytes.as_chunks_mut::<8>();
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = word.load(Ordering::Relaxed).to_le_bytes();
        }
        for (byte, shared) in bytes[words.len() * 8..].iter_mut().zip(rest) {
            *byte = shared.load(Ordering::Relaxed);
        }
        true
    }

    /// A view of bytes of the region; `None` if they are not all inside.
    pub fn bytes(&self, offset: Offset<AtomicU8>, length: usize) -> Option<SharedBytes<'_>> {
        let bytes = self.mapping.get_slice(offset.raw(), length)?;
        Some(SharedBytes::from_bytes(bytes))
    }

    /// Copies bytes into the region; false, and nothing copied, if they do not fit.
    pub fn write_bytes(&self, offset: Offset<AtomicU8>, bytes: &[u8]) -> bool {
        let Some((words, rest)) = self.words_and_rest(offset, bytes.len()) else {
            return false;
        };
        for (chunk, word) in bytes.as_chunks::<8>().0.iter().zip(words) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        for (byte, shared) in bytes[words.len() * 8..].iter().zip(rest) {
            shared.store(*byte, Ordering::Relaxed);
        }
        true
    }

    /// Whether the region holds exactly `bytes` at `offset`.
    #[inline]
    pub fn bytes_equal(&self, offset: Offset<AtomicU8>, bytes: &[u8]) -> bool {
        let Some((words, rest)) = self.words_and_rest(offset, bytes.len()) else {
            return false;
        };
        let (chunks, last) = bytes.as_chunks::<8>();
        let mut chunks = chunks.iter().zip(words);
        chunks.all(|(chunk, word)| word.load(Ordering::Relaxed) == u64::from_le_bytes(*chunk))
            && last
                .iter()
                .zip(rest)
                .all(|(byte, shared)| shared.load(Ordering::Relaxed) == *byte)
    }

    /// As [`write_bytes`](Self::write_bytes), in whole words, with zeroes behind the bytes in the last one: for what
    /// was allocated for them alone, or before them.
    pub fn write_padded(&self, offset: Offset<AtomicU8>, bytes: &[u8]) -> bool {
        let Some((words, last)) = self.whole_words_and_last(offset, bytes) else {
            return false;
        };
        for (chunk, word) in bytes.as_chunks::<8>().0.iter().zip(words) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        if let Some(word) = last {
            word.store(padded(bytes), Ordering::Relaxed);
        }
        true
    }

    /// Whether the region holds `bytes` at `offset`, [written so](Self::write_padded).
    #[inline]
    pub fn padded_equal(&self, offset: Offset<AtomicU8>, bytes: &[u8]) -> bool {
        let Some((words, last)) = self.whole_words_and_last(offset, bytes) else {
            return false;
        };
        let mut chunks = bytes.as_chunks::<8>().0.iter().zip(words);
        chunks.all(|(chunk, word)| word.load(Ordering::Relaxed) == u64::from_le_bytes(*chunk))
            && last.is_none_or(|word| word.load(Ordering::Relaxed) == padded(bytes))
    }

    /// The words for `bytes` at `offset` that are theirs as a whole, and the one for what is left of them.
    #[inline(always)]
    fn whole_words_and_last(
        &self,
        offset: Offset<AtomicU8>,
        bytes: &[u8],
    ) -> Option<(&[AtomicU64], Option<&AtomicU64>)> {
        let count = bytes.len().div_ceil(8);
        let words = self.mapping.get_slice::<AtomicU64>(offset.raw(), count)?;
        let (whole, last) = words.split_at(bytes.len() / 8);
        Some((whole, last.first()))
    }

    /// `length` bytes at `offset`: the whole words, none if it is not aligned to them, and the
    /// bytes behind those. `None` if they are not all inside.
    #[inline]
    fn words_and_rest(
        &self,
        offset: Offset<AtomicU8>,
        length: usize,
    ) -> Option<(&[AtomicU64], &[AtomicU8])> {
        self.mapping.get_words_and_rest(offset.raw(), length)
    }

    /// A word of the session part for the LibFS to find its structures by; all 0 at first.
    /// `index` is below [`ROOTS`], else `None`.
    pub fn session_root(&self, index: usize) -> Option<&AtomicU64> {
        self.header().session_roots.get(index)
    }

    /// A word of the auxiliary part for the LibFS to find its structures by; all 0 at first.
    /// `index` is below [`ROOTS`], else `None`.
    pub fn auxiliary_root(&self, index: usize) -> Option<&AtomicU64> {
        self.auxiliary().roots.get(index)
    }

    /// Bytes in the area of fixed slots in the session part, all zero at first.
    pub fn session_area_length(&self) -> u64 {
        self.layout.session_area_length
    }

    /// `count` consecutive objects at `byte_offset` in the area of fixed slots of the session
    /// part; `None` if they do not fit or are not aligned.
    pub fn session_area<T: Shared>(&self, byte_offset: u64, count: usize) -> Option<&[T]> {
        let bytes = (count as u64).checked_mul(size_of::<T>() as u64)?;
        let end = byte_offset.checked_add(bytes)?;
        (end <= self.layout.session_area_length)
            .then(|| self.layout.session_area + byte_offset)
            .and_then(|offset| self.mapping.get_slice_in(AREA, offset, count))
    }

    fn header(&self) -> &Header {
        self.get(Offset::from_raw(0))
    }

    fn auxiliary(&self) -> &AuxiliaryHeader {
        self.get(Offset::from_raw(self.layout.auxiliary))
    }

    fn slot_line(&self, index: u16) -> &SlotLine {
        let line = u64::from(index) * size_of::<SlotLine>() as u64;
        self.get(Offset::from_raw(self.layout.slots + line))
    }
}

/// What is left of bytes behind their whole words, as a word with zeroes behind.
#[inline(always)]
fn padded(bytes: &[u8]) -> u64 {
    let rest = bytes.as_chunks::<8>().1;
    match bytes.last_chunk::<8>() {
        // The last eight bytes begin with some of the word before.
        Some(last) if !rest.is_empty() => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        _ => rest
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}
