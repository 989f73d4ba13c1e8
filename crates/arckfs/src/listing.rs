//! Reading directories: a snapshot of the names, made when a listing begins.
//!
//! # Invariants
//! * A snapshot is one consistent state of the directory; names that come or go while it is
//!   being read may or may not appear, as POSIX allows, and no name appears twice.
//! * Positions are byte offsets into the snapshot plus one; they stay valid until the listing
//!   begins anew (rewinddir, a seek to 0).

use crate::engine::{Attempt, Context};
use crate::interface::Errno;
use crate::state::CachedInode;
use arck_core_state::directory;
use arck_core_state::geometry::NAME_MAX;
use arck_core_state::{FileKind, InodeNumber};
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// Bytes of an entry of a snapshot before its name: inode number, kind, length.
pub const ENTRY_HEADER: usize = 6;

fn push(bytes: &mut Vec<u8>, inode: InodeNumber, kind: FileKind, name: &[u8]) {
    bytes.extend_from_slice(&inode.to_le_bytes());
    bytes.push(kind as u8);
    // Names are at most 255 bytes long.
    bytes.push(name.len().min(NAME_MAX) as u8);
    bytes.extend_from_slice(name);
}

impl<'a> Context<'a> {
    /// All names of a directory with `.` and `..`, packed.
    pub fn snapshot(&self, directory: &'static CachedInode) -> Attempt<Vec<u8>> {
        let _locked = directory.lock.write(self.slot().holder());
        let mut bytes = Vec::new();
        push(&mut bytes, directory.number(), FileKind::Directory, b".");
        push(
            &mut bytes,
            directory.parent.load(Ordering::Relaxed),
            FileKind::Directory,
            b"..",
        );
        // Of the verified names, those that the overlay hides or replaces: few, as a rule.
        let mut overlaid: HashSet<Vec<u8>> = HashSet::new();
        let mut added = Vec::new();
        self.for_each_overlay(directory, |name, visible, verified| {
            if verified {
                overlaid.insert(name.to_vec());
            }
            if let Some((inode, kind)) = visible {
                push(&mut added, inode, kind, name);
            }
        });
        let root = directory.verified_root();
        if root.pointer() != 0 {
            let buckets = directory.base_size.load(Ordering::Relaxed) / 4096;
            for bucket in 0..buckets {
                let listed = directory::for_each_in_bucket(
                    self.session,
                    root,
                    bucket,
                    |dentry, _, name, _, _| {
                        if !overlaid.contains(name.as_bytes()) {
                            push(&mut bytes, dentry.inode, dentry.kind, name.as_bytes());
                        }
                    },
                );
                if listed.is_err() {
                    self.unmoved(directory)?;
                    return Err(Errno::IO.into());
                }
            }
        }
        self.unmoved(directory)?;
        bytes.extend_from_slice(&added);
        Ok(bytes)
    }

    /// The name by which `directory` holds the inode `number`, for getcwd.
    pub fn name_of(
        &self,
        directory: &'static CachedInode,
        number: InodeNumber,
    ) -> Attempt<Option<Vec<u8>>> {
        let listing = self.snapshot(directory)?;
        let name = entries(&listing)
            .filter(|entry| entry.name != b"." && entry.name != b"..")
            .find(|entry| entry.inode == number)
            .map(|entry| entry.name.to_vec());
        Ok(name)
    }
}

/// An entry of a snapshot.
pub struct Entry<'b> {
    pub inode: InodeNumber,
    pub kind: u8,
    pub name: &'b [u8],
    /// Bytes it takes.
    pub length: usize,
}

/// The entry that starts at the beginning of `bytes`.
pub fn first_entry(bytes: &[u8]) -> Option<Entry<'_>> {
    let (inode, rest) = bytes.split_first_chunk::<4>()?;
    let (&[kind, length], rest) = rest.split_first_chunk::<2>()?;
    let name = rest.get(..usize::from(length))?;
    Some(Entry {
        inode: u32::from_le_bytes(*inode),
        kind,
        name,
        length: ENTRY_HEADER + usize::from(length),
    })
}

fn entries(mut bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    std::iter::from_fn(move || {
        let entry = first_entry(bytes)?;
        bytes = bytes.get(entry.length..)?;
        Some(entry)
    })
}

/// Appends a `linux_dirent64` to `buffer` at `at`; gives the bytes used, `None` if it does not
/// fit. `next` is the position behind the entry.
pub fn put_dirent(buffer: &mut [u8], at: usize, entry: &Entry<'_>, next: u64) -> Option<usize> {
    let length = (19 + entry.name.len() + 1).next_multiple_of(8);
    let record = buffer.get_mut(at..at + length)?;
    record[..8].copy_from_slice(&u64::from(entry.inode).to_ne_bytes());
    record[8..16].copy_from_slice(&next.to_ne_bytes());
    record[16..18].copy_from_slice(&(length as u16).to_ne_bytes());
    record[18] = entry.kind;
    record[19..19 + entry.name.len()].copy_from_slice(entry.name);
    record[19 + entry.name.len()..].fill(0);
    Some(length)
}
