//! References to open descriptions: one for each number that stands for one.
//!
//! Invariant: who drops one by closing a descriptor of the program's drops the process's locks of the file too. Who
//! gives up one for which there was no descriptor does not.

use super::mounted;
use super::table::{HIGH_WATER, INHERITED, SENT, entry, is_inherited, notes_of};
use crate::backend::{Handle, inside};
use crate::handover::held;
use crate::{lock_files, raw};
use std::sync::atomic::Ordering;

/// One more reference to what a descriptor stood for a moment ago.
pub fn retain(handle: Handle) -> Result<(), isize> {
    // Another thread may have closed it.
    inside(|fs| Ok(fs.retain(handle)?)).map_err(|_| raw::error(libc::EBADF))
}

/// Drops one, by closing a descriptor of the program's.
pub fn let_go(handle: Handle) {
    lock_files::closing(handle);
    if release_one(handle) {
        mounted::closed(handle);
        lock_files::closed(handle);
    }
}

/// Whether it was the last.
fn release_one(handle: Handle) -> bool {
    let released = inside(|fs| {
        let closed = fs.release(handle);
        let is_last = closed.is_some();
        if let Some(file) = closed.and_then(|closed| closed.handed_on) {
            held::let_go(file);
        }
        Ok(is_last)
    });
    matches!(released, Ok(true))
}

/// Gives up a reference for which there was no descriptor: the process keeps its locks of the file.
pub fn give_up(handle: Handle) {
    if release_one(handle) {
        mounted::closed(handle);
        lock_files::given_up(handle);
    }
}

/// Replaces entries that refer to one file, by device and inode number, after taking it over. False: there is
/// none any more.
pub fn adopted(identity: [u64; 2], handle: Handle) -> bool {
    lock_files::adopted(identity[1], handle);
    let mut first = true;
    let high = HIGH_WATER.load(Ordering::Acquire);
    for other in 0..high {
        if is_inherited(other, identity) {
            // Another thread may close it meanwhile.
            if !first && retain(handle).is_err() {
                continue;
            }
            let replaced = entry(other).compare_exchange(
                INHERITED,
                handle.0.get(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match replaced {
                Ok(_) => {
                    notes_of(other).fetch_and(!SENT, Ordering::AcqRel);
                    first = false;
                }
                Err(_) if first => {}
                Err(_) => let_go(handle),
            }
        }
    }
    !first
}
