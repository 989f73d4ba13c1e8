//! Inode headers: a flat table, one cache line per inode number, which every session maps
//! read-only. The controller is the only writer.
//!
//! # Invariants
//! * `sequence` is odd exactly while the controller changes the inode's verified state. A reader
//!   loads it, reads, and loads it again; equal and even means that what was read is one state.
//! * `ownership` changes only while the header is marked, or from shared; a marked header means
//!   that a fold is under way and that no operation may begin on the inode.
//! * An owned inode is refused from when its delta was refused until it is accepted, or taken
//!   away: as the ownership word differs then from what an operation expects, none begins.
//! * `fold` never repeats for an inode number: fold numbers come from one counter of the pool.
//! * Number 0 is no inode's. The `sequence` of its header is the table's *change clock*: it moves in every change that the
//!   controller applies, before a sequence becomes even by it, and once more when fold numbers and owners are stored. So who
//!   finds it as it was before he looked at headers knows that none has been folded since; and where it is even, he sees
//!   the fold numbers of all whose sequences he has seen even. It is never flushed, and means nothing to the next
//!   controller, but that it moves.
//! * `sealed` is set, with `fold` advanced and another branch slot, while the header is marked, and cleared in
//!   the step that makes the sealed delta verified state, while `sequence` is odd: who has seen an even
//!   sequence behind that step sees that nothing is sealed any more.

use crate::arena::branch_offset;
use crate::cast;
use crate::geometry::SessionNumber;
use crate::inode::FileKind;
use crate::primitive::{AtomicU64, Ordering, fence, spin_hint};

/// Bytes of a header.
pub const HEADER_SIZE: usize = 64;

/// Sequences and fold numbers count up from 1: further than this nobody has ever counted, and who
/// went on from there would overflow. Greater ones are damage.
pub const COUNTED_MAX: u64 = 1 << 62;

/// Who owns an inode, packed in one word: session number (bits 32..64), whether its delta is
/// refused (bit 31), ownership epoch (bits 1..31), fold mark (bit 0). Session 0 = shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ownership(pub u64);

impl Ownership {
    pub const SHARED: Ownership = Ownership(0);
    /// Epochs wrap here; they are compared for equality only.
    pub const EPOCH_MASK: u32 = 0x3fff_ffff;
    const REFUSED: u64 = 1 << 31;

    pub fn new(session: SessionNumber, epoch: u32) -> Ownership {
        Ownership(u64::from(session) << 32 | u64::from(epoch & Self::EPOCH_MASK) << 1)
    }
    pub fn session(self) -> SessionNumber {
        cast::high(self.0)
    }
    pub fn epoch(self) -> u32 {
        cast::low(self.0) >> 1 & Self::EPOCH_MASK
    }
    pub fn is_marked(self) -> bool {
        self.0 & 1 == 1
    }
    pub fn marked(self) -> Ownership {
        Ownership(self.0 | 1)
    }
    pub fn unmarked(self) -> Ownership {
        Ownership(self.0 & !1)
    }
    /// The owner's delta was refused, and has been neither accepted nor set aside since.
    pub fn is_refused(self) -> bool {
        self.0 & Self::REFUSED != 0
    }
    pub fn refused(self) -> Ownership {
        Ownership(self.0 | Self::REFUSED)
    }
    pub fn accepted(self) -> Ownership {
        Ownership(self.0 & !Self::REFUSED)
    }
    /// Session and epoch alone: what operations expect. Never equal to the word of a header that
    /// is marked or refused.
    pub fn bare(self) -> Ownership {
        self.unmarked().accepted()
    }
}

/// State of an inode number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HeaderKind {
    Free = 0,
    /// Granted to a session and not yet committed.
    Granted = 1,
    /// Alive; the inode tells the type.
    Alive = 2,
    /// No name left, but some open table still lists it.
    Orphan = 3,
}

impl HeaderKind {
    pub fn from_u8(value: u8) -> Option<HeaderKind> {
        match value {
            0 => Some(HeaderKind::Free),
            1 => Some(HeaderKind::Granted),
            2 => Some(HeaderKind::Alive),
            3 => Some(HeaderKind::Orphan),
            _ => None,
        }
    }
}

/// A header in the shared table.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct LiveHeader {
    /// Odd while the controller changes the inode.
    pub sequence: AtomicU64,
    /// Byte address of the [`Inode`](crate::inode::Inode) in the pool; 0 before creation.
    pub inode: AtomicU64,
    /// Fold number: a branch with another number does not exist.
    pub fold: AtomicU64,
    /// [`Ownership`].
    pub ownership: AtomicU64,
    /// Generation (low half), branch slot in the owner's arena (high half).
    pub identity: AtomicU64,
    /// [`HeaderKind`] (byte 0), [`FileKind`] (byte 1), branch slot of the sealed delta (high half).
    pub state: AtomicU64,
    /// The fold number that ended last without having been folded: its delta was set aside. Who
    /// expects that number has lost what it had changed.
    pub evicted: AtomicU64,
    /// Of a directory: the fold number of the delta that is sealed, to which nothing is added any more and
    /// which is being folded; 0 = none. What the owner does now goes under `fold`.
    pub sealed: AtomicU64,
}
#[cfg(not(shuttle))]
const _: () = assert!(size_of::<LiveHeader>() == HEADER_SIZE);

/// A private copy of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderCopy {
    pub sequence: u64,
    pub inode: u64,
    pub fold: u64,
    pub ownership: Ownership,
    pub generation: u32,
    pub branch_slot: u32,
    pub kind: HeaderKind,
    /// Meaningful when alive or orphan.
    pub file_kind: Option<FileKind>,
    /// Fold number of the sealed delta; 0 = none.
    pub sealed: u64,
    /// Its branch slot; 0 where there is none.
    pub sealed_slot: u32,
}

impl HeaderCopy {
    /// Whether it can have a sealed delta as it says: a living directory of a session's, whose active delta is another,
    /// and came later.
    pub fn may_be_sealed(&self) -> bool {
        self.kind == HeaderKind::Alive
            && self.file_kind == Some(FileKind::Directory)
            && self.ownership.session() != 0
            && self.sealed < self.fold
            && self.sealed_slot != self.branch_slot
            && branch_offset(self.sealed_slot).is_some()
    }

    /// The header as it was when its sealed delta was the active one; `None` where nothing is sealed.
    pub fn of_sealed(&self) -> Option<HeaderCopy> {
        (self.sealed != 0).then_some(HeaderCopy {
            fold: self.sealed,
            branch_slot: self.sealed_slot,
            sealed: 0,
            sealed_slot: 0,
            ..*self
        })
    }
}

/// Byte offsets of the words, for whoever writes redo records.
pub const SEQUENCE_OFFSET: u64 = 0;
pub const INODE_OFFSET: u64 = 8;
pub const FOLD_OFFSET: u64 = 16;
pub const OWNERSHIP_OFFSET: u64 = 24;
pub const IDENTITY_OFFSET: u64 = 32;
pub const STATE_OFFSET: u64 = 40;
pub const SEALED_OFFSET: u64 = 56;

/// Packs the identity word.
pub fn identity_word(generation: u32, branch_slot: u32) -> u64 {
    u64::from(generation) | u64::from(branch_slot) << 32
}

/// Packs the state word.
pub fn state_word(kind: HeaderKind, file_kind: Option<FileKind>, sealed_slot: u32) -> u64 {
    let kinds = u64::from(kind as u8) | u64::from(file_kind.map_or(0, |k| k as u8)) << 8;
    kinds | u64::from(sealed_slot) << 32
}

impl LiveHeader {
    /// A header as private memory, for tests and model checking.
    pub fn new_free() -> LiveHeader {
        LiveHeader {
            sequence: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            fold: AtomicU64::new(0),
            ownership: AtomicU64::new(0),
            identity: AtomicU64::new(0),
            state: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            sealed: AtomicU64::new(0),
        }
    }

    /// Ownership as it is now. Acquire: what the controller wrote before it set it is visible.
    pub fn ownership(&self) -> Ownership {
        Ownership(self.ownership.load(Ordering::Acquire))
    }

    pub fn fold(&self) -> u64 {
        self.fold.load(Ordering::Acquire)
    }

    /// See [`LiveHeader::evicted`].
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Acquire)
    }

    /// See [`LiveHeader::sealed`].
    pub fn sealed(&self) -> u64 {
        self.sealed.load(Ordering::Acquire)
    }

    pub fn generation(&self) -> u32 {
        cast::low(self.identity.load(Ordering::Acquire))
    }

    pub fn branch_slot(&self) -> u32 {
        cast::high(self.identity.load(Ordering::Acquire))
    }

    pub fn kind(&self) -> HeaderKind {
        HeaderKind::from_u8(cast::byte(self.state.load(Ordering::Acquire), 0))
            .unwrap_or(HeaderKind::Free)
    }

    pub fn file_kind(&self) -> Option<FileKind> {
        FileKind::from_u8(cast::byte(self.state.load(Ordering::Acquire), 1))
    }

    /// All words, loaded one by one; a consistent state only under the sequence check or in
    /// the controller.
    pub fn copy(&self) -> HeaderCopy {
        let identity = self.identity.load(Ordering::Acquire);
        let state = self.state.load(Ordering::Acquire);
        HeaderCopy {
            sequence: self.sequence.load(Ordering::Acquire),
            inode: self.inode.load(Ordering::Acquire),
            fold: self.fold.load(Ordering::Acquire),
            ownership: self.ownership(),
            generation: cast::low(identity),
            branch_slot: cast::high(identity),
            kind: HeaderKind::from_u8(cast::byte(state, 0)).unwrap_or(HeaderKind::Free),
            file_kind: FileKind::from_u8(cast::byte(state, 1)),
            sealed: self.sealed(),
            sealed_slot: cast::high(state),
        }
    }

    /// Begins a versioned read (KucoFS section 3.3): waits, bounded, for an even sequence.
    /// `None` when the controller kept the inode odd for too long: ask it by message then.
    pub fn read_begin(&self) -> Option<u64> {
        for _ in 0..READ_SPIN_MAX {
            let sequence = self.sequence.load(Ordering::Acquire);
            if sequence & 1 == 0 {
                return Some(sequence);
            }
            spin_hint();
        }
        None
    }

    /// Ends a versioned read: true if nothing changed since `read_begin` gave `sequence`.
    pub fn read_end(&self, sequence: u64) -> bool {
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == sequence
    }
}

#[cfg(not(shuttle))]
const READ_SPIN_MAX: u32 = 100_000;
#[cfg(shuttle)]
const READ_SPIN_MAX: u32 = 3;

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn ownership_packs() {
        let owner = Ownership::new(7, 0x3fff_ffff);
        assert_eq!(
            (owner.session(), owner.epoch(), owner.is_marked()),
            (7, 0x3fff_ffff, false)
        );
        assert!(owner.marked().is_marked());
        assert_eq!(owner.marked().unmarked(), owner);
        assert_eq!(owner.marked().session(), 7);
        let refused = owner.refused();
        assert!(refused.is_refused() && !owner.is_refused() && !refused.is_marked());
        assert_eq!((refused.session(), refused.epoch()), (7, 0x3fff_ffff));
        assert_eq!(refused.accepted(), owner);
        assert_eq!(refused.marked().unmarked(), refused);
        assert_eq!(refused.marked().bare(), owner);
    }

    #[test]
    fn offsets_are_as_said() {
        use core::mem::offset_of;
        let said = [
            (SEQUENCE_OFFSET, offset_of!(LiveHeader, sequence)),
            (INODE_OFFSET, offset_of!(LiveHeader, inode)),
            (FOLD_OFFSET, offset_of!(LiveHeader, fold)),
            (OWNERSHIP_OFFSET, offset_of!(LiveHeader, ownership)),
            (IDENTITY_OFFSET, offset_of!(LiveHeader, identity)),
            (STATE_OFFSET, offset_of!(LiveHeader, state)),
            (SEALED_OFFSET, offset_of!(LiveHeader, sealed)),
        ];
        for (said, is) in said {
            assert_eq!(said, is as u64);
        }
    }
}
