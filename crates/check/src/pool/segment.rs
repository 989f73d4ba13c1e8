//! A segment's file, as it is looked at.
//!
//! Invariant: a mapped one is read without SIGBUS as long as nobody but the controller can make it
//! shorter; of one that others may have, a copy is taken.

use crate::memory::{self, Memory};
use arck_core_state::{SegmentNumber, layout};
use rustix::fd::OwnedFd;
use rustix::fs::AtFlags;
use rustix::io::Errno;

/// A segment's file, mapped, or a copy of it.
pub(super) struct Segment {
    pub memory: Memory,
    /// Device and inode of the file.
    identity: (u64, u64),
    /// Bytes of the file.
    pub length: u64,
}

impl Segment {
    /// One of metadata: the controller alone has it.
    pub fn map(directory: &OwnedFd, segment: SegmentNumber, size: u64) -> Result<Segment, Errno> {
        let file = memory::open(directory, &segment_name(segment))?;
        let status = rustix::fs::fstat(&file)?;
        let (memory, length) = Memory::of(&file, size)?;
        Ok(Segment {
            memory,
            identity: (status.st_dev, status.st_ino),
            length,
        })
    }

    /// A copy: who had the segment may still cut it off.
    pub fn hold(directory: &OwnedFd, segment: SegmentNumber, size: u64) -> Result<Segment, Errno> {
        let file = memory::open(directory, &segment_name(segment))?;
        let status = rustix::fs::fstat(&file)?;
        let memory = Memory::held(&file, size)?;
        Ok(Segment {
            memory,
            identity: (status.st_dev, status.st_ino),
            length: u64::try_from(status.st_size).unwrap_or(0),
        })
    }

    /// Whether it is still the file of that name.
    pub fn is_as_named(&self, directory: &OwnedFd, segment: SegmentNumber) -> bool {
        let name = segment_name(segment);
        let status = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        status.is_ok_and(|status| (status.st_dev, status.st_ino) == self.identity)
    }
}

/// The file of a segment.
pub(crate) fn segment_name(segment: SegmentNumber) -> String {
    format!("{}/{segment:08x}", layout::SEGMENTS)
}
