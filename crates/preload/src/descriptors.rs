//! The process's table from descriptor numbers to open file descriptions.
//!
//! Every number given to the program is an open kernel descriptor, a *placeholder*, so nothing
//! else can take the number and the kernel's own rules (poll, fork, exec, limits) hold. It is a
//! memory file reopened with access mode 3, which grants neither reading nor writing: a `read`
//! or `write` that gets past this library fails with EBADF instead of quietly doing the wrong
//! thing.
//!
//! Two kinds: *plain* placeholders are duplicates of one empty template, close-on-exec, all the
//! same (see `stock`); *external* ones stand for a description in every process that has it (see
//! `handover`).
//!
//! Invariants:
//! * `entry(fd)`: 0 = the kernel's, RESERVED = not open to the program (stock, or our own),
//!   INHERITED = a description of another process still to be adopted, else a `Handle`.
//! * `notes(fd)` is meaningful only for handles and INHERITED.
//!
//! No locks: each entry is one atomic word, and taking it out (`swap`) decides who closes. Who
//! looks a number up may find it replaced when it uses what it found: see `replacements`.

mod closing;
mod duplicating;
mod opening;
pub mod replacements;
mod stock;
mod table;

use crate::backend::{Handle, inside};
use crate::{handover, lock_files, raw};
pub use closing::{close, close_range};
pub use duplicating::{duplicate, duplicate_onto};
pub use opening::{open, open_within};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
pub use stock::{
    before_kernel_opens, before_kernel_opens_from, before_kernel_opens_two, kernel_closed,
    kernel_opened, most_descriptors, unknown, unstock,
};
pub use table::{CLOSE_ON_EXEC, EXTERNAL, INHERITED, RESERVED, SENT, TABLE_SIZE, entry, is_free};
use table::{FILE, HIGH_WATER, notes_of};

/// What a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    Kernel,
    Pool(Handle),
    /// Not open, or not usable: the error to return.
    Error(isize),
}

/// Looks a descriptor up, as given in a register (an `int`).
#[inline(always)]
pub fn lookup(descriptor: usize) -> Descriptor {
    let descriptor = descriptor as u32 as usize;
    if descriptor >= TABLE_SIZE {
        return Descriptor::Kernel;
    }
    match NonZeroU64::new(entry(descriptor).load(Ordering::Acquire)) {
        None => Descriptor::Kernel,
        Some(value) if value.get() < RESERVED => Descriptor::Pool(Handle(value)),
        Some(value) => lookup_special(descriptor, value.get()),
    }
}

#[cold]
fn lookup_special(descriptor: usize, value: u64) -> Descriptor {
    if crate::thread::inside() {
        return Descriptor::Kernel;
    }
    if value == RESERVED {
        return Descriptor::Error(raw::error(libc::EBADF));
    }
    handover::adopt(descriptor)
}

/// Whether a number is the pool's, without adopting it.
pub fn is_pool(descriptor: usize) -> bool {
    let descriptor = descriptor as u32 as usize;
    descriptor < TABLE_SIZE && !matches!(entry(descriptor).load(Ordering::Acquire), 0 | RESERVED)
}

pub fn is_reserved(descriptor: usize) -> bool {
    let descriptor = descriptor as u32 as usize;
    descriptor < TABLE_SIZE && entry(descriptor).load(Ordering::Acquire) == RESERVED
}

/// All numbers that are the pool's now.
pub fn pool_descriptors() -> impl Iterator<Item = usize> {
    (0..HIGH_WATER.load(Ordering::Acquire)).filter(|fd| is_pool(*fd))
}

pub fn notes(descriptor: usize) -> u64 {
    notes_of(descriptor).load(Ordering::Acquire)
}

/// Inode number of the file that stands for a descriptor's description; 0: it was not handed on.
pub fn file_of(descriptor: usize) -> u64 {
    file_in(notes(descriptor))
}

/// The same, of what [`notes`] told.
pub const fn file_in(notes: u64) -> u64 {
    if notes & EXTERNAL == 0 {
        0
    } else {
        notes >> 12
    }
}

/// The notes of an external placeholder.
pub const fn external(inode: u64) -> u64 {
    EXTERNAL | inode << 12
}

pub fn set_close_on_exec(descriptor: usize, yes: bool) {
    let before = if yes {
        notes_of(descriptor).fetch_or(CLOSE_ON_EXEC, Ordering::AcqRel)
    } else {
        notes_of(descriptor).fetch_and(!CLOSE_ON_EXEC, Ordering::AcqRel)
    };
    if before & EXTERNAL != 0 {
        // SAFETY: sets a flag of an open placeholder.
        unsafe { raw::syscall!(libc::SYS_fcntl, descriptor, libc::F_SETFD, usize::from(yes)) };
    }
}

pub fn close_on_exec(descriptor: usize) -> bool {
    notes(descriptor) & CLOSE_ON_EXEC != 0
}

/// Puts an entry in place for a number whose placeholder is open.
pub fn put(descriptor: usize, value: u64, notes: u64) {
    raise_high_water(descriptor);
    notes_of(descriptor).store(notes, Ordering::Release);
    entry(descriptor).store(value, Ordering::Release);
}

#[inline]
fn raise_high_water(descriptor: usize) {
    if HIGH_WATER.load(Ordering::Relaxed) <= descriptor {
        HIGH_WATER.fetch_max(descriptor + 1, Ordering::AcqRel);
    }
}

/// One more reference to what a descriptor stood for a moment ago.
pub fn retain(handle: Handle) -> Result<(), isize> {
    // Another thread may have closed it.
    inside(|fs| Ok(fs.retain(handle)?)).map_err(|_| raw::error(libc::EBADF))
}

/// Drops one, by closing a descriptor of the program's.
pub fn let_go(handle: Handle) {
    lock_files::closing(handle);
    if release_one(handle) {
        lock_files::closed(handle);
    }
}

/// Whether it was the last.
fn release_one(handle: Handle) -> bool {
    let released = inside(|fs| {
        let closed = fs.release(handle);
        let is_last = closed.is_some();
        if let Some(file) = closed.and_then(|closed| closed.handed_on) {
            handover::let_go(file);
        }
        Ok(is_last)
    });
    released == Ok(true)
}

/// Gives up a reference for which there was no descriptor: the process keeps its locks of the file.
pub fn give_up(handle: Handle) {
    if release_one(handle) {
        lock_files::given_up(handle);
    }
}

/// In a forked child: every description belongs to the parent's session and must be taken over.
pub fn forked() {
    for descriptor in pool_descriptors() {
        entry(descriptor).store(INHERITED, Ordering::Release);
    }
}

/// How many came in messages of those that refer to a file, by device and inode number, and wait to be taken
/// over.
pub fn sent(identity: [u64; 2]) -> usize {
    let is_sent = |other: &usize| notes(*other) & SENT != 0 && is_inherited(*other, identity);
    pool_descriptors().filter(is_sent).count()
}

/// The notes have the inode number alone, which anybody can give a file of his.
fn is_inherited(descriptor: usize, identity: [u64; 2]) -> bool {
    entry(descriptor).load(Ordering::Acquire) == INHERITED
        && file_of(descriptor) == identity[1]
        && raw::identity_of(descriptor) == Some(identity)
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

/// What was taken for one that was handed on is none.
pub fn is_kernels(descriptor: usize) {
    let entry = entry(descriptor);
    let _ = entry.compare_exchange(INHERITED, 0, Ordering::AcqRel, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::table::{Entry, place_in_table};
    use super::*;

    #[test]
    fn every_number_has_its_own_place_and_neighbours_share_no_line() {
        let mut seen = vec![false; TABLE_SIZE];
        for descriptor in 0..TABLE_SIZE {
            let place = place_in_table(descriptor);
            assert!(!std::mem::replace(&mut seen[place], true), "{descriptor}");
            let next = place_in_table((descriptor + 1) % TABLE_SIZE);
            assert!(
                place.abs_diff(next) * size_of::<Entry>() >= 128 || descriptor % 8 == 7,
                "{descriptor}"
            );
        }
    }
}
