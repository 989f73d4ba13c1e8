//! The table: what each number stands for, and notes of it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Descriptors from this number on are always the kernel's.
pub const TABLE_SIZE: usize = 1 << 20;
/// Not open as far as the program can tell.
pub const RESERVED: u64 = u64::MAX - 1;
/// Open in another process that handed it over; adopted at the first use.
pub const INHERITED: u64 = u64::MAX;

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
