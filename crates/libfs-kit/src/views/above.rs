//! The directory in which a directory is, or was when it was removed.
//!
//! # Invariants
//! * What has a name keeps the directory that holds it: its number is that one's. What was removed does not: the number
//!   may be another inode's by now, of the next generation, or of the same one if the first died uncommitted.
//! * So which one it is is noted while the directory is there, and compared once it is removed. An uncommitted one is
//!   known by the epoch that [`life`](Viewing::life) tells, too. That of one that is committed later may change while
//!   it lives: whoever was removed from it before is told that it is gone.
//! * The note has the place of the [`limit`](crate::state::kinds::FilePart) that a file has. It is that of a new view
//!   wherever one becomes what is no directory.

use crate::need::Attempt;
use crate::views::refresh::known_in;
use crate::views::{CachedInode, Viewing, flag};
use arck_core_state::{Inode, InodeNumber};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Nobody knows; as in a new view.
const UNKNOWN: u64 = u64::MAX;
/// In the low half of a note: it was uncommitted. Beneath that, when the one before it died.
const UNCOMMITTED: u32 = 1 << 31;

/// The note of one of this generation, which was committed.
fn committed(generation: u32) -> u64 {
    u64::from(generation) << 32
}

/// The note of one of this generation, which was not.
fn uncommitted(generation: u32, holder: &CachedInode) -> u64 {
    let epoch = holder.reuse_epoch.load(Ordering::Acquire) as u32;
    committed(generation) | u64::from(epoch | UNCOMMITTED)
}

impl CachedInode {
    /// Notes which directory holds it, which is there.
    pub(crate) fn lies_in(&self, holder: &CachedInode) {
        let generation = holder.generation();
        let above = match holder.has(flag::UNCOMMITTED) {
            true => uncommitted(generation, holder),
            false => committed(generation),
        };
        self.file.limit.store(above, Ordering::Relaxed);
    }
}

impl Viewing<'_> {
    /// Notes what holds a directory in the verified state of this sequence, unless it is removed there.
    pub(super) fn note_above(&self, inode: &CachedInode, verified: &Inode, sequence: u64) {
        if !inode.is_directory() || verified.links == 0 {
            return;
        }
        let number = verified.parent;
        let above = self.header(number).map(|header| {
            let generation = header.generation();
            match self.known_as(number, generation) {
                Some(holder) if holder.has(flag::UNCOMMITTED) => uncommitted(generation, holder),
                _ => committed(generation),
            }
        });
        // It is that of the directory that held it only if that still does.
        let holds = self
            .header(inode.number())
            .is_ok_and(|header| header.sequence.load(Ordering::Acquire) == sequence);
        let above = above.ok().filter(|_| holds).unwrap_or(UNKNOWN);
        inode.file.limit.store(above, Ordering::Relaxed);
    }

    fn known_as(&self, number: InodeNumber, generation: u32) -> Option<&'static CachedInode> {
        let table = self.views.inodes.load(Ordering::Acquire);
        known_in(self.session, table, number).filter(|inode| inode.generation() == generation)
    }

    /// Number and generation of the directory in which a directory is, or was when it was removed, or in which what is
    /// none is known to have been. ENOENT if a removed one's has gone since.
    pub fn holder(&self, inode: &CachedInode) -> Attempt<(InodeNumber, u32)> {
        let number = inode.holder.load(Ordering::Acquire);
        let generation = self.header(number)?.generation();
        if inode.is_directory() && inode.has(flag::UNLINKED) {
            let above = inode.file.limit.load(Ordering::Relaxed);
            let is_the_same = match above as u32 & UNCOMMITTED {
                0 => above == committed(generation),
                _ => self
                    .known_as(number, generation)
                    .is_some_and(|holder| above == uncommitted(generation, holder)),
            };
            if above == UNKNOWN || !is_the_same {
                return Err(Errno::NOENT.into());
            }
        }
        Ok((number, generation))
    }
}
