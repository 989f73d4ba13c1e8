//! Branches: one per owned inode with unfolded changes, 128 bytes in a slot of the owner's
//! arena. The controller assigns the slot; the header tells it.
//!
//! # Invariants
//! * A branch exists only if number, generation, epoch and fold number are those of the header.
//!   Fold numbers never repeat, so what an earlier use left in the slot is never taken for new.
//! * Line 0 becomes valid by its fold word, stored last: stores to one cache line reach the
//!   medium in program order. Line 1 is valid on its own when its fold word matches too;
//!   otherwise all of its fields count as unchanged.
//! * Every attribute is changed by one 8-byte store; a sentinel says "as verified".

use crate::geometry::InodeNumber;
use crate::index::IndexRoot;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a branch.
pub const BRANCH_SIZE: usize = 128;
/// "As verified", of sizes and limits.
pub const UNCHANGED_SIZE: u64 = u64::MAX;
/// "As verified", of times.
pub const UNCHANGED_TIME: i64 = i64::MIN;
/// "As verified", of the mode.
pub const UNCHANGED_MODE: u64 = u64::MAX;
/// Tails of a directory's delta.
pub const TAILS: usize = 4;
/// Partners that a branch can name.
pub const PARTNERS: usize = 4;

/// Byte offsets of the fields that are stored one by one.
pub mod offset {
    pub const IDENTITY: u64 = 0;
    pub const EPOCH: u64 = 8;
    pub const FOLD: u64 = 16;
    pub const SIZE: u64 = 24;
    pub const ROOT: u64 = 32;
    pub const MODIFIED: u64 = 40;
    pub const CHANGED: u64 = 48;
    pub const LIMIT: u64 = 56;
    pub const FOLD_OF_LINE_1: u64 = 64;
    pub const ACCESSED: u64 = 72;
    pub const MODE: u64 = 80;
    pub const TAILS: u64 = 88;
    pub const PARTNERS: u64 = 104;
    /// The parent in the low half of the word, the page of extended attributes in
    /// the high one: stored together.
    pub const PARENT: u64 = 120;
}

/// As stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StoredBranch {
    // ---- line 0
    pub number: u32,
    pub generation: u32,
    pub ownership_epoch: u32,
    pub reserved0: u32,
    /// The header's fold number when the branch was begun; stored last.
    pub fold: u64,
    /// Bytes, or [`UNCHANGED_SIZE`].
    pub size: u64,
    /// Of a file: root of the delta index (interior pointers are arena pages). Of a directory: 0.
    pub root: IndexRoot,
    /// Nanoseconds, or [`UNCHANGED_TIME`].
    pub modified: i64,
    pub changed: i64,
    /// Of a file: verified pages from this page number on are dropped, unless replaced here;
    /// [`UNCHANGED_SIZE`] = none. Lowered by truncation, never raised.
    pub limit: u64,
    // ---- line 1
    pub fold_of_line_1: u64,
    pub accessed: i64,
    /// Permission bits (07777), or [`UNCHANGED_MODE`].
    pub mode: u64,
    /// Of a directory: first arena page of each tail, 0 = none.
    pub tails: [u32; TAILS],
    /// Directories whose folds must come along (both ends of a move), 0 = none.
    pub partners: [u32; PARTNERS],
    /// Directory in whose delta this inode is created; 0 once committed.
    pub parent: u32,
    /// Page of the extended attributes: 0 = as verified, [`crate::extended::NONE`] = none, else a
    /// page of a data segment of the session's. (Page numbers fit: the largest pool has 2^32.)
    pub attributes: u32,
}
const _: () = assert!(size_of::<StoredBranch>() == BRANCH_SIZE);
const _: () = assert!(core::mem::offset_of!(StoredBranch, fold) as u64 == offset::FOLD);
const _: () = assert!(core::mem::offset_of!(StoredBranch, size) as u64 == offset::SIZE);
const _: () = assert!(core::mem::offset_of!(StoredBranch, root) as u64 == offset::ROOT);
const _: () = assert!(core::mem::offset_of!(StoredBranch, modified) as u64 == offset::MODIFIED);
const _: () = assert!(core::mem::offset_of!(StoredBranch, changed) as u64 == offset::CHANGED);
const _: () = assert!(core::mem::offset_of!(StoredBranch, limit) as u64 == offset::LIMIT);
const _: () =
    assert!(core::mem::offset_of!(StoredBranch, fold_of_line_1) as u64 == offset::FOLD_OF_LINE_1);
const _: () = assert!(core::mem::offset_of!(StoredBranch, accessed) as u64 == offset::ACCESSED);
const _: () = assert!(core::mem::offset_of!(StoredBranch, mode) as u64 == offset::MODE);
const _: () = assert!(core::mem::offset_of!(StoredBranch, tails) as u64 == offset::TAILS);
const _: () = assert!(core::mem::offset_of!(StoredBranch, partners) as u64 == offset::PARTNERS);
const _: () = assert!(core::mem::offset_of!(StoredBranch, parent) as u64 == offset::PARENT);

impl StoredBranch {
    /// A branch that changes nothing.
    pub fn unchanged(
        number: InodeNumber,
        generation: u32,
        ownership_epoch: u32,
        fold: u64,
    ) -> StoredBranch {
        StoredBranch {
            number,
            generation,
            ownership_epoch,
            reserved0: 0,
            fold,
            size: UNCHANGED_SIZE,
            root: IndexRoot::EMPTY,
            modified: UNCHANGED_TIME,
            changed: UNCHANGED_TIME,
            limit: UNCHANGED_SIZE,
            fold_of_line_1: fold,
            accessed: UNCHANGED_TIME,
            mode: UNCHANGED_MODE,
            tails: [0; TAILS],
            partners: [0; PARTNERS],
            parent: 0,
            attributes: 0,
        }
    }

    /// Decodes a private copy of a slot and applies the validity rules: `None` if the branch
    /// does not exist for (number, generation, epoch, fold); line 1 reset if it is not valid.
    pub fn decode(
        bytes: &[u8],
        number: InodeNumber,
        generation: u32,
        ownership_epoch: u32,
        fold: u64,
    ) -> Option<StoredBranch> {
        let (mut branch, _) = StoredBranch::read_from_prefix(bytes).ok()?;
        if (
            branch.number,
            branch.generation,
            branch.ownership_epoch,
            branch.fold,
        ) != (number, generation, ownership_epoch, fold)
        {
            return None;
        }
        if branch.fold_of_line_1 != fold {
            let empty = StoredBranch::unchanged(number, generation, ownership_epoch, fold);
            branch.fold_of_line_1 = fold;
            branch.accessed = empty.accessed;
            branch.mode = empty.mode;
            branch.tails = empty.tails;
            branch.partners = empty.partners;
            branch.parent = 0;
            branch.attributes = 0;
        }
        Some(branch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exists_only_with_the_same_numbers() {
        let branch = StoredBranch::unchanged(5, 6, 7, 8);
        let bytes = branch.as_bytes();
        assert_eq!(StoredBranch::decode(bytes, 5, 6, 7, 8), Some(branch));
        for (n, g, e, f) in [(4, 6, 7, 8), (5, 5, 7, 8), (5, 6, 6, 8), (5, 6, 7, 9)] {
            assert_eq!(StoredBranch::decode(bytes, n, g, e, f), None);
        }
    }

    #[test]
    fn a_stale_second_line_counts_as_unchanged() {
        let mut branch = StoredBranch::unchanged(5, 6, 7, 8);
        branch.fold_of_line_1 = 3;
        branch.mode = 0o777;
        branch.tails = [9; TAILS];
        let decoded = StoredBranch::decode(branch.as_bytes(), 5, 6, 7, 8);
        assert_eq!(decoded, Some(StoredBranch::unchanged(5, 6, 7, 8)));
    }
}
