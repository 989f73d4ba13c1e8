//! Reading directories: a snapshot of the names, made when a listing begins.
//!
//! # Invariants
//! * A snapshot is one consistent state of the directory; names that come or go while it is
//!   being read may or may not appear, as POSIX allows, and no name appears twice.
//! * A snapshot is kept as `linux_dirent64` records, so that reading it is copying. Positions
//!   are byte offsets into it; they stay valid until the listing begins anew (rewinddir, a seek
//!   to 0). Any other is taken for the next record behind it.

pub mod scratch;

use super::Context;
use arck_libfs_kit::engine::Attempt;
use arck_libfs_kit::format::{FileKind, InodeNumber};
use arck_libfs_kit::memory::SharedBytes;
use arck_libfs_kit::views::Directory;
use std::sync::atomic::Ordering;

/// Bytes of a record before its name: inode number, position behind it, length, kind.
const RECORD_HEADER: usize = 19;
/// Where the record's length stands in it.
const LENGTH: usize = 16;
/// Bytes of a record with a short name, to guess how large a snapshot gets.
const RECORD_USUAL: usize = 40;

/// Bytes of the longest record.
const RECORD_MOST: usize = (RECORD_HEADER + 255 + 1).next_multiple_of(8);

/// Appends a record to a snapshot.
pub fn push(bytes: &mut Vec<u8>, inode: InodeNumber, kind: FileKind, name: &[u8]) {
    let length = (RECORD_HEADER + name.len() + 1).next_multiple_of(8);
    let next = (bytes.len() + length) as u64;
    // Names are at most 255 bytes long.
    let mut record = [0; RECORD_MOST];
    record[..8].copy_from_slice(&u64::from(inode).to_ne_bytes());
    record[8..16].copy_from_slice(&next.to_ne_bytes());
    record[LENGTH..18].copy_from_slice(&(length as u16).to_ne_bytes());
    record[18] = kind as u8;
    record[RECORD_HEADER..RECORD_HEADER + name.len()].copy_from_slice(name);
    bytes.extend_from_slice(&record[..length]);
}

impl Context<'_> {
    /// All names of a directory with `.` and `..`, packed, in `bytes`, which is empty.
    pub fn snapshot(&self, directory: Directory, mut bytes: Vec<u8>) -> Attempt<Vec<u8>> {
        let _locked = self.lock_whole(directory.inode());
        let names = self.entries(directory) as usize + 2;
        bytes.reserve(names.saturating_mul(RECORD_USUAL));
        push(&mut bytes, directory.number(), FileKind::Directory, b".");
        push(
            &mut bytes,
            directory.holder.load(Ordering::Relaxed),
            FileKind::Directory,
            b"..",
        );
        self.kit.for_each_name(directory, |inode, kind, name| {
            push(&mut bytes, inode, kind, name);
        })?;
        Ok(bytes)
    }

    /// The name by which `directory` holds the inode `number`, for getcwd.
    pub fn name_of(&self, directory: Directory, number: InodeNumber) -> Attempt<Option<Vec<u8>>> {
        let listing = self.snapshot(directory, Vec::new())?;
        let name = records(&listing)
            .filter(|record| record.name != b"." && record.name != b"..")
            .find(|record| record.inode == number)
            .map(|record| record.name.to_vec());
        Ok(name)
    }
}

/// A record of a snapshot.
pub struct Record<'b> {
    pub inode: InodeNumber,
    pub name: &'b [u8],
    /// Bytes it takes.
    pub length: usize,
}

/// The record that starts at the beginning of `bytes`, if it is there as a whole.
fn first_record(bytes: &[u8]) -> Option<Record<'_>> {
    let length = first_length(bytes)?;
    let record = bytes.get(..length)?;
    let inode = u32::from_ne_bytes(*record.first_chunk::<4>()?);
    let name = record.get(RECORD_HEADER..)?;
    let end = name.iter().position(|&byte| byte == 0)?;
    Some(Record {
        inode,
        name: &name[..end],
        length,
    })
}

fn first_length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(LENGTH..)?.first_chunk::<2>()?;
    let length = usize::from(u16::from_ne_bytes(*length));
    (length > RECORD_HEADER).then_some(length)
}

fn records(mut bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let record = first_record(bytes)?;
        bytes = bytes.get(record.length..)?;
        Some(record)
    })
}

/// Where the first record at or behind `position` begins in a snapshot; its end if there is none.
pub fn next_record(snapshot: &SharedBytes<'_>, position: u64) -> u64 {
    let mut at = 0;
    while (at as u64) < position && at < snapshot.len() {
        let mut length = [0; 2];
        if snapshot.copy_to(at + LENGTH, &mut length).is_none() {
            return snapshot.len() as u64;
        }
        at += usize::from(u16::from_ne_bytes(length)).max(1);
    }
    at.min(snapshot.len()) as u64
}

/// How many bytes of `bytes`, which begin with a record, are whole records.
pub fn whole_records(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some(length) = bytes.get(whole..).and_then(first_length)
        && whole + length <= bytes.len()
    {
        whole += length;
    }
    whole
}
