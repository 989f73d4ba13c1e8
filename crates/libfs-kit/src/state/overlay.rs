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
        /// [`FileKind`] as a number; from bit 8 on, the shard in whose list the entry is.
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

impl OverlayEntry {
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_u8(self.kind.load(Ordering::Relaxed) as u8)
    }
    /// The shard in whose list the entry is.
    pub fn shard(&self) -> usize {
        (self.kind.load(Ordering::Relaxed) >> 8) as usize
    }
    /// Says what it leads to is, without changing its shard.
    pub fn set_kind(&self, kind: FileKind) {
        let shard = self.kind.load(Ordering::Relaxed) & !0xff;
        self.kind
            .store(shard | u32::from(kind as u8), Ordering::Relaxed);
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
