//! The core state of Arck: the one format that the controller, the verifier and every LibFS
//! share as common knowledge (DESIGN section 4).
//!
//! This crate owns every size and offset. Nothing else casts bytes. It does no I/O, holds no
//! mapping and contains no unsafe code: memory reaches it as byte slices (private copies, to be
//! decoded) or as [`PageWords`] (live shared pages, read with atomic loads).
//!
//! Two kinds of state are described here:
//!
//! * **Verified state**, written by the controller alone: [`superblock`], the [`header`] table,
//!   [`inode`]s, hashed [`directory`] hash pages and [`index`] pages.
//! * **Deltas**, written by an owner session in its own [`arena`]: [`branch`]es, directory
//!   [`record`]s and index pages of the same shape as the verified ones.
//!
//! Beside them stand pages that nobody verifies, written by who may write the inode: file data,
//! and [`extended`] attributes.
//!
//! # Invariants
//! * Every stored structure has a fixed little-endian layout without implicit padding, asserted
//!   at compile time beside its definition and drawn in `docs/format.md`; a test compares the two.
//! * Decoding never trusts a length, a pointer or an enumeration: it returns `None` or an error.
#![forbid(unsafe_code)]
// Numbers are narrowed by what is meant: see `arck_core_state::cast`.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod arena;
pub mod branch;
pub mod cast;
pub mod directory;
pub mod extended;
pub mod geometry;
pub mod header;
pub mod in_order;
pub mod index;
pub mod inode;
pub mod layout;
pub mod primitive;
pub mod record;
pub mod superblock;

pub use geometry::{
    CACHE_LINE, Geometry, InodeNumber, NAME_MAX, PAGE_BYTES, PAGE_SIZE, PagePtr, ROOT_INODE,
    SegmentNumber,
};
pub use header::{HeaderCopy, LiveHeader, Ownership};
pub use index::IndexRoot;
pub use inode::{DEVICE_MAX, FileKind, Inode, Mediation, TOGETHER};

/// A live page of the pool as 512 words. Other processes may be changing it, hence atomics: a
/// reader copies words out with relaxed loads and validates with the inode's sequence word.
pub type PageWords = [core::sync::atomic::AtomicU64; 512];

/// 512 words, wherever they are.
pub trait Words {
    /// A word, whose index is below 512.
    fn word(&self, index: usize) -> u64;
}

/// Words in private memory, which can be changed.
pub trait EditWords: Words {
    /// Sets a word, whose index is below 512.
    fn set_word(&self, index: usize, value: u64);
}

impl Words for PageWords {
    fn word(&self, index: usize) -> u64 {
        self[index].load(core::sync::atomic::Ordering::Relaxed)
    }
}

impl EditWords for PageWords {
    fn set_word(&self, index: usize, value: u64) {
        self[index].store(value, core::sync::atomic::Ordering::Relaxed);
    }
}

impl<W: Words + ?Sized> Words for &W {
    fn word(&self, index: usize) -> u64 {
        (**self).word(index)
    }
}

impl<W: EditWords + ?Sized> EditWords for &W {
    fn set_word(&self, index: usize, value: u64) {
        (**self).set_word(index, value);
    }
}

impl<W: Words + ?Sized> Words for Box<W> {
    fn word(&self, index: usize) -> u64 {
        (**self).word(index)
    }
}

impl<W: EditWords + ?Sized> EditWords for Box<W> {
    fn set_word(&self, index: usize, value: u64) {
        (**self).set_word(index, value);
    }
}

/// A page in private memory, all zeroes.
pub fn zeroed_page() -> Box<PageWords> {
    page_of((0..512).map(|_| 0))
}

/// A copy of a page in private memory.
pub fn copied_page(page: &PageWords) -> Box<PageWords> {
    let words = page.iter();
    page_of(words.map(|word| word.load(core::sync::atomic::Ordering::Relaxed)))
}

/// Made where it is to stay, and not on the stack first. There are 512 words.
fn page_of(words: impl Iterator<Item = u64>) -> Box<PageWords> {
    let words: Box<[_]> = words.map(core::sync::atomic::AtomicU64::new).collect();
    let new = || core::array::from_fn(|_| core::sync::atomic::AtomicU64::new(0));
    words.try_into().unwrap_or_else(|_| Box::new(new()))
}

/// Where live pages come from: the mapped segments of one process.
pub trait Pages {
    /// The page, or `None` if the pointer is outside the pool or not mappable here. Must be
    /// safe to call with any value: pointers come from memory that may be changing.
    fn page(&self, pointer: PagePtr) -> Option<&PageWords>;

    /// Has the line of a word of a page fetched that will be looked at soon. Who can does not wait for it.
    fn prefetch(&self, page: &PageWords, index: usize) {
        core::hint::black_box(page.word(index));
    }
}
