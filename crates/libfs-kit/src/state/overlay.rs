//! A name by which this session's deltas differ from the verified directories; see [`crate::names`].

use crate::region::{AtomicOffset, Offset};
use crate::region_hash_node;
use arck_core_state::FileKind;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

region_hash_node! {
    /// A name that differs from the verified state. The name's bytes follow.
    pub struct OverlayEntry {
        /// Neighbours in the directory's list, protected by the directory's lock.
        pub next: AtomicOffset<OverlayEntry>,
        pub previous: AtomicOffset<OverlayEntry>,
        pub directory: AtomicU32,
        /// What the name leads to; 0 = the verified name is hidden.
        pub inode: AtomicU32,
        pub generation: AtomicU32,
        /// [`FileKind`] as a number; from bit 8 on, the shard in whose list the entry is; [`SUPERSEDED`]; from bit
        /// 16 on, how often the directory had been sealed when it was made.
        pub kind: AtomicU32,
        /// Record whose ADD makes the name visible.
        pub record_unit: AtomicU32,
        pub record_sequence: AtomicU32,
        /// 1 if the verified directory has the name, hidden or replaced here.
        pub verified: AtomicU32,
        /// What the verified name leads to, if it has one.
        pub verified_inode: AtomicU32,
        pub name_length: AtomicU32,
        /// Of `verified_inode`: its number may be another inode's by now.
        pub verified_generation: AtomicU32,
    }
}

/// In [`OverlayEntry::kind`].
const SUPERSEDED: u32 = 1 << 12;

impl OverlayEntry {
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_u8(self.kind.load(Ordering::Relaxed) as u8)
    }
    /// The shard in whose list the entry is.
    pub fn shard(&self) -> usize {
        (self.kind.load(Ordering::Relaxed) >> 8 & 0xf) as usize
    }
    /// The word of its kind, for an entry that is made when its directory has been sealed so often.
    pub fn kind_word(kind: Option<FileKind>, shard: usize, seals: u32) -> u32 {
        kind.map_or(0, |kind| u32::from(kind as u8)) | (shard as u32) << 8 | seals << 16
    }
    /// Whether it is of the directory's active delta, which has been sealed so often; else it is of the sealed one.
    pub fn is_active(&self, seals: u32) -> bool {
        self.kind.load(Ordering::Relaxed) >> 16 == seals & 0xffff
    }
    /// Of a sealed delta: an entry of the active one has taken its place.
    pub fn supersede(&self) {
        self.kind.fetch_or(SUPERSEDED, Ordering::Relaxed);
    }
    /// Whether one has.
    pub fn is_superseded(&self) -> bool {
        self.kind.load(Ordering::Relaxed) & SUPERSEDED != 0
    }
    /// Says what it leads to is, and nothing else.
    pub fn set_kind(&self, kind: FileKind) {
        let others = self.kind.load(Ordering::Relaxed) & !0xff;
        self.kind
            .store(others | u32::from(kind as u8), Ordering::Relaxed);
    }
    /// Where the bytes of the name begin.
    pub fn name_offset(entry: Offset<OverlayEntry>) -> Offset<AtomicU8> {
        Offset::from_raw(entry.raw() + size_of::<OverlayEntry>() as u64)
    }
    /// Bytes of the entry with its name.
    pub fn length(&self) -> usize {
        size_of::<OverlayEntry>() + self.name_length.load(Ordering::Relaxed) as usize
    }
}
