//! The table: what each number stands for, and notes of it.

use crate::raw;
use arckfs::Handle;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Descriptors from this number on are always the kernel's.
pub const TABLE_SIZE: usize = 1 << 20;
/// Not open as far as the program can tell.
pub const RESERVED: u64 = u64::MAX - 1;
/// Open in another process that handed it over; adopted at the first use.
pub const INHERITED: u64 = u64::MAX;

/// What a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    Kernel,
    Pool(Handle),
    /// Not open, or not usable: the error to return.
    Error(isize),
}

pub(super) struct Entry {
    value: AtomicU64,
    notes: AtomicU64,
}

/// Numbers in a block, which is a few cache lines of one page: a program has seldom more open.
const BLOCK: usize = 64;
/// Neighbouring numbers, which different threads open and close at the same time, stand so many
/// entries apart, in different cache lines.
const APART: usize = BLOCK / 8;

static TABLE: [Entry; TABLE_SIZE] = [const {
    Entry {
        value: AtomicU64::new(0),
        notes: AtomicU64::new(0),
    }
}; TABLE_SIZE];

#[inline(always)]
pub(super) const fn place_in_table(descriptor: usize) -> usize {
    let (block, within) = (descriptor / BLOCK, descriptor % BLOCK);
    block * BLOCK + within % 8 * APART + within / 8
}

#[inline(always)]
pub(super) fn place(descriptor: usize) -> &'static Entry {
    &TABLE[place_in_table(descriptor)]
}

/// What a number, less than [`TABLE_SIZE`], stands for.
#[inline(always)]
pub fn entry(descriptor: usize) -> &'static AtomicU64 {
    &place(descriptor).value
}

#[inline(always)]
pub(super) fn notes_of(descriptor: usize) -> &'static AtomicU64 {
    &place(descriptor).notes
}

/// One above the highest number ever put into the table.
pub(super) static HIGH_WATER: AtomicUsize = AtomicUsize::new(0);

/// Close on exec, as the program sees it. (A plain placeholder itself always has the kernel's
/// flag; what must survive an exec is made external first.)
pub const CLOSE_ON_EXEC: u64 = 1;
/// An external placeholder; the bits from 12 on are its file's inode number.
pub const EXTERNAL: u64 = 2;
/// It came in a message, and has not been taken over yet.
pub const SENT: u64 = 4;
pub(super) const FILE: u64 = !0xfff;

pub fn is_free(descriptor: usize) -> bool {
    entry(descriptor).load(Ordering::Acquire) == 0
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
pub(super) fn raise_high_water(descriptor: usize) {
    if HIGH_WATER.load(Ordering::Relaxed) <= descriptor {
        HIGH_WATER.fetch_max(descriptor + 1, Ordering::AcqRel);
    }
}

/// How many came in messages of those that refer to a file, by device and inode number, and wait to be taken
/// over.
pub fn sent(identity: [u64; 2]) -> usize {
    let is_sent = |other: &usize| notes(*other) & SENT != 0 && is_inherited(*other, identity);
    pool_descriptors().filter(is_sent).count()
}

/// The notes have the inode number alone, which anybody can give a file of his.
pub(super) fn is_inherited(descriptor: usize, identity: [u64; 2]) -> bool {
    entry(descriptor).load(Ordering::Acquire) == INHERITED
        && file_of(descriptor) == identity[1]
        && raw::identity_of(descriptor) == Some(identity)
}

/// What was taken for one that was handed on is none.
pub fn is_kernels(descriptor: usize) {
    let entry = entry(descriptor);
    let _ = entry.compare_exchange(INHERITED, 0, Ordering::AcqRel, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
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
