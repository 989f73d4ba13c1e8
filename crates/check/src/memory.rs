//! A file of the pool as words: mapped where it is as long as it has to be, a private copy where
//! it is shorter.
//!
//! Invariant: nothing here is accessed beyond what the file held when it was opened, so that a
//! pool with short files is read without SIGBUS.

use arck_pm::{MapOptions, Mapping, SharedBytes};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module's head.
pub(crate) enum Memory {
    Mapped(Mapping),
    Held(Vec<AtomicU64>),
}

impl Memory {
    /// `size` bytes of an open file, with zeroes for what it has not; and how many it has.
    pub fn of(file: &OwnedFd, size: u64) -> Result<(Memory, u64), Errno> {
        let has = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        let length = usize::try_from(size).map_err(|_| Errno::FBIG)?;
        if has >= size && length > 0 {
            let mapping = Mapping::new(file, 0, length, MapOptions::READ_ONLY)
                .map_err(|error| error.errno())?;
            return Ok((Memory::Mapped(mapping), has));
        }
        Ok((Memory::held(file, size)?, has))
    }

    /// A private copy of at most `size` bytes of an open file.
    pub fn held(file: &OwnedFd, size: u64) -> Result<Memory, Errno> {
        let bytes = read(file, size)?;
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            AtomicU64::new(u64::from_le_bytes(word))
        });
        Ok(Memory::Held(words.collect()))
    }

    pub fn bytes(&self) -> SharedBytes<'_> {
        match self {
            Memory::Mapped(mapping) => mapping.bytes(),
            Memory::Held(words) => SharedBytes::from_words(words),
        }
    }

    /// The word at a byte offset; 0 for what the file has not.
    pub fn word(&self, offset: u64) -> u64 {
        let at = usize::try_from(offset).ok();
        at.and_then(|at| self.bytes().load_u64(at, Ordering::Acquire))
            .unwrap_or(0)
    }
}

/// Opens a file of the pool's directory for reading.
pub(crate) fn open(directory: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// The first `length` bytes of a file, or what there is of them.
pub(crate) fn read(file: &OwnedFd, length: u64) -> Result<Vec<u8>, Errno> {
    let has = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
    let length = usize::try_from(length.min(has)).map_err(|_| Errno::FBIG)?;
    let mut bytes = vec![0; length];
    let mut at = 0;
    while at < length {
        match rustix::io::pread(file, &mut bytes[at..], at as u64) {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    bytes.truncate(at);
    Ok(bytes)
}

/// The parts of a sparse file that hold anything, in order. All of it where that is not told.
pub(crate) fn parts(file: &OwnedFd, size: u64) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < size {
        let part = rustix::fs::seek(file, SeekFrom::Data(at))
            .and_then(|data| Ok(data..rustix::fs::seek(file, SeekFrom::Hole(data))?));
        match part {
            Ok(part) if part.end > part.start && part.start >= at => {
                at = part.end;
                parts.push(part.start..part.end.min(size));
            }
            Err(Errno::NXIO) => break,
            _ => {
                parts.push(at..size);
                break;
            }
        }
    }
    parts
}
