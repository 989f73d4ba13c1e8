//! What a change says of an inode number: the words of its header, and the inode.

use arck_core_state::header::{HeaderKind, identity_word, state_word};
use arck_core_state::{FileKind, HeaderCopy, Inode, InodeNumber, Ownership};

/// The words of a header that a change sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderWords {
    pub inode: u64,
    pub fold: u64,
    pub ownership: Ownership,
    pub generation: u32,
    pub branch_slot: u32,
    pub kind: HeaderKind,
    pub file_kind: Option<FileKind>,
    /// Fold number and branch slot of the sealed delta; 0 = none.
    pub sealed: u64,
    pub sealed_slot: u32,
}

impl HeaderWords {
    /// As they stand, without the mark.
    pub fn of(copy: &HeaderCopy) -> HeaderWords {
        HeaderWords {
            inode: copy.inode,
            fold: copy.fold,
            ownership: copy.ownership.unmarked(),
            generation: copy.generation,
            branch_slot: copy.branch_slot,
            kind: copy.kind,
            file_kind: copy.file_kind,
            sealed: copy.sealed,
            sealed_slot: copy.sealed_slot,
        }
    }

    /// In the order of the stored words 1 to 5; `sealed` is the last word of the header.
    pub fn words(&self) -> [u64; 5] {
        [
            self.inode,
            self.fold,
            self.ownership.unmarked().0,
            identity_word(self.generation, self.branch_slot),
            state_word(self.kind, self.file_kind, self.sealed_slot),
        ]
    }
}

/// What a change says of an inode number.
pub struct Numbered {
    pub number: InodeNumber,
    /// The header as it will be, if it changes.
    pub header: Option<HeaderWords>,
    /// The inode as it will be, if it changes; `Some(None)`: it dies.
    pub inode: Option<Option<Inode>>,
    /// Byte address of the inode's new place; 0: it stays where it is.
    pub place: u64,
}

impl Numbered {
    /// Nothing yet.
    pub fn new(number: InodeNumber) -> Numbered {
        Numbered {
            number,
            header: None,
            inode: None,
            place: 0,
        }
    }
}
