//! Cache lines: which of them a range touches, and how it is cut at their borders.

/// Below this many bytes a copy moves words; from there on `rep movsb`, which
/// the processor turns into whole lines.
#[cfg(not(miri))]
pub(crate) const STRING_COPY_FROM: usize = 768;

/// Size of a cache line in bytes: the unit of a flush.
pub const CACHE_LINE: usize = 64;

/// The lines a range touches: the address of the first one and their number.
#[inline(always)]
pub(crate) fn lines_of(address: usize, len: usize) -> (usize, usize) {
    if len == 0 {
        return (address & !(CACHE_LINE - 1), 0);
    }
    let first = address & !(CACHE_LINE - 1);
    let last = (address + (len - 1)) & !(CACHE_LINE - 1);
    (first, (last - first) / CACHE_LINE + 1)
}

/// Which stores a copy makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// Ordinary ones: to be flushed by the caller.
    Cached,
    /// Streaming ones for whole lines, flushed ones for the ragged ends.
    Streaming,
}

/// A range cut at line boundaries: `head` bytes up to the first, `lines` bytes
/// of whole lines, `tail` bytes after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) head: usize,
    pub(crate) lines: usize,
    pub(crate) tail: usize,
}

impl Parts {
    #[inline(always)]
    pub(crate) fn of(address: usize, len: usize) -> Parts {
        let head = (address.wrapping_neg() % CACHE_LINE).min(len);
        let lines = (len - head) & !(CACHE_LINE - 1);
        Parts {
            head,
            lines,
            tail: len - head - lines,
        }
    }
}
