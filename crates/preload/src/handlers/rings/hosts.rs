//! Entries that concern nobody but the kernel: most of what programs with rings submit, which waits for nothing of ours.
//!
//! # Invariants
//! * Nothing is done here. What is not known to be the kernel's alone is left to who looks at it further.
//! * An entry that is counted is the same to the kernel as it would be after having been looked at (`become_of`).

use crate::descriptors::{TABLE_SIZE, is_free};
use crate::rings::entry::{self, Entry};
use crate::rings::{self as known, Ring};

/// How many entries the kernel takes next, of so many at most, if all of them are its alone. Of a ring that is held.
pub fn count(ring: &Ring, most: u32) -> Option<u32> {
    let mut count = 0;
    for at in ring.next(most)? {
        if !is_kernels(&known::read(at?)?, ring) {
            return None;
        }
        count += 1;
    }
    Some(count)
}

fn is_kernels(entry: &Entry, ring: &Ring) -> bool {
    if entry.flags & entry::DRAIN != 0 {
        return false;
    }
    match entry.operation {
        _ if entry.is_transfer() => is_of_kernels_file(entry, ring),
        entry::FSYNC | entry::SYNC_FILE_RANGE | entry::FALLOCATE | entry::FADVISE => {
            is_of_kernels_file(entry, ring)
        }
        // Where it puts something in the place of a registered file, that is noted.
        entry::ACCEPT | entry::SOCKET | entry::PIPE => entry.other == 0,
        entry::NOP
        | entry::POLL_ADD
        | entry::POLL_REMOVE
        | entry::SENDMSG
        | entry::RECVMSG
        | entry::TIMEOUT
        | entry::TIMEOUT_REMOVE
        | entry::CANCEL
        | entry::LINK_TIMEOUT
        | entry::CONNECT
        | entry::SEND
        | entry::RECEIVE
        | entry::SHUTDOWN
        | entry::SEND_WITHOUT_COPY
        | entry::SENDMSG_WITHOUT_COPY => true,
        _ => false,
    }
}

fn is_of_kernels_file(entry: &Entry, ring: &Ring) -> bool {
    let descriptor = entry.descriptor();
    match entry.flags & entry::REGISTERED {
        0 => descriptor < TABLE_SIZE && is_free(descriptor),
        _ => ring.file(descriptor).is_none(),
    }
}
