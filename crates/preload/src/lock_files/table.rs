//! The table of lock files, and what becomes of one.
//!
//! Invariant: what is in it is changed by who holds its lock. See [`lock_files`](super) for the others.

use super::at_hand::{self, AtHand};
use super::file::{Inode, LockFile};
use super::slots::Slot;
use crate::backend::Handle;
use crate::raw::{self, syscall};
use crate::{reserved, thread};
use std::cell::UnsafeCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Default)]
pub struct Table {
    pub by_handle: BTreeMap<u64, LockFile>,
    /// Of descriptions that were handed on to this process and not opened in its session yet, and spent
    /// ones.
    pub others: Vec<LockFile>,
    /// Closed, and still in use.
    pub closed: Vec<LockFile>,
    pub at_hand: AtHand,
    /// Inodes of which the process may hold locks.
    pub process_locks: BTreeSet<Inode>,
    /// All that were ever made, and those of no lock file.
    pub slots: Vec<&'static Slot>,
    pub free_slots: Vec<&'static Slot>,
}

pub(super) struct Locked {
    lock: AtomicBool,
    pub(super) table: UnsafeCell<Option<Table>>,
}

// SAFETY: the table is used by who holds the lock, and by a child in its parent's memory, while that waits.
unsafe impl Sync for Locked {}

pub(super) static TABLE: Locked = Locked {
    lock: AtomicBool::new(false),
    table: UnsafeCell::new(None),
};

/// Lock files in the table, and inodes in `process_locks`: where there are none, nobody has to look.
pub(super) static COUNT: AtomicUsize = AtomicUsize::new(0);

pub(super) static PROCESS_LOCKS: AtomicUsize = AtomicUsize::new(0);

/// Lowest number of a lock file at hand.
pub(super) static AT_HAND_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);

pub(super) fn take(lock: &AtomicBool) {
    while lock.swap(true, Ordering::Acquire) {
        // SAFETY: no arguments.
        unsafe { syscall!(libc::SYS_sched_yield) };
    }
}

/// Runs `body` with the table.
pub(super) fn with<R>(body: impl FnOnce(&mut Table) -> R) -> R {
    let _inside = thread::enter();
    take(&TABLE.lock);
    // SAFETY: the lock is held.
    let table = unsafe { &mut *TABLE.table.get() };
    let table = table.get_or_insert_with(Table::default);
    let result = body(table);
    let count = table.by_handle.len() + table.others.len();
    COUNT.store(count, Ordering::Relaxed);
    PROCESS_LOCKS.store(table.process_locks.len(), Ordering::Relaxed);
    AT_HAND_FROM.store(table.at_hand.from(), Ordering::Relaxed);
    TABLE.lock.store(false, Ordering::Release);
    result
}

/// Before a fork; the thread is inside.
pub fn hold() {
    take(&TABLE.lock);
}

/// After it, in either process.
pub fn let_go() {
    TABLE.lock.store(false, Ordering::Release);
}

/// Drops the process's locks that it has by a lock file.
fn unlock(descriptor: usize) {
    let all = libc::flock {
        l_type: libc::F_UNLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: a descriptor of this library's, and a structure on the stack.
    unsafe { syscall!(libc::SYS_fcntl, descriptor, libc::F_SETLK, &raw const all) };
}

impl Table {
    pub fn all(&self) -> impl Iterator<Item = &LockFile> {
        self.by_handle.values().chain(&self.others)
    }

    /// A lock file that no description uses yet.
    pub fn file(&mut self, descriptor: usize, inode: Inode, stands: u64) -> LockFile {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            let slot = Slot::make();
            self.slots.push(slot);
            slot
        });
        slot.begin(descriptor);
        LockFile {
            descriptor,
            inode,
            stands,
            access: None,
            slot,
        }
    }

    /// A description of this session has a lock file.
    pub fn attach(&mut self, handle: Handle, file: LockFile) {
        let locks_process = self.process_locks.contains(&file.inode);
        file.slot.attach(handle, locks_process);
        self.by_handle.insert(handle.0.get(), file);
    }

    /// The process may hold locks of an inode from now on. There are none yet, so those at hand may go.
    pub fn lock_process(&mut self, inode: Inode) {
        if self.process_locks.insert(inode) {
            let at_hand = self.at_hand.take_all_of(inode);
            at_hand
                .into_iter()
                .flatten()
                .for_each(|file| self.close(file));
        }
    }

    /// Closes what nobody uses.
    pub fn close(&mut self, file: LockFile) {
        file.slot.end();
        reserved::let_go(file.descriptor);
        self.free_slots.push(file.slot);
    }

    /// The description of a lock file is not the program's any more. `closes`: by a close of the program's.
    pub fn end(&mut self, mut file: LockFile, closes: bool) {
        let locks_process = self.process_locks.contains(&file.inode);
        if file.slot.end() {
            self.closed.push(file);
        } else if !closes && locks_process {
            file.stands = 0;
            self.others.push(file);
        } else if locks_process || !at_hand::unlock(&file) {
            self.close(file);
        } else if let Some(other) = self.at_hand.put(file) {
            self.close(other);
        }
    }

    /// A descriptor of an inode is closed.
    pub fn drop_process_locks(&mut self, inode: Inode) {
        if !self.process_locks.remove(&inode) {
            return;
        }
        for file in self.all().filter(|file| file.inode == inode) {
            file.slot.set_locks_process(false);
        }
        if let Some(any) = self.all().find(|file| file.inode == inode) {
            unlock(any.descriptor);
        }
        let is_over = |file: &mut LockFile| file.inode == inode && file.is_spent();
        let over: Vec<LockFile> = self.others.extract_if(.., is_over).collect();
        over.into_iter().for_each(|file| self.close(file));
    }

    /// That an exec closes a lock file of an inode, which drops the process's locks: as it does where a
    /// descriptor that it closes has a lock file of its own.
    pub fn let_drop(&mut self, inode: Inode) {
        let mut spent = self.others.iter().filter(|file| file.is_spent());
        if !self.process_locks.contains(&inode) || spent.any(|file| file.inode == inode) {
            return;
        }
        let Some(any) = self.all().find(|file| file.inode == inode) else {
            return;
        };
        let floor = reserved::floor();
        // SAFETY: another descriptor of a lock file.
        let descriptor = unsafe {
            syscall!(
                libc::SYS_fcntl,
                any.descriptor,
                libc::F_DUPFD_CLOEXEC,
                floor
            )
        };
        if !raw::failed(descriptor) {
            let descriptor = descriptor as usize;
            reserved::mark(descriptor);
            let file = self.file(descriptor, inode, 0);
            self.others.push(file);
        }
    }

    /// Takes out that of what was handed on, and is not open in this session yet.
    pub fn take_other(&mut self, stands: u64) -> Option<LockFile> {
        let at = self.others.iter().position(|file| file.stands == stands)?;
        Some(self.others.swap_remove(at))
    }
}

/// What was closed while it was used, and is not any more.
pub(super) fn close_unused() {
    with(|table| {
        let unused: Vec<LockFile> = table
            .closed
            .extract_if(.., |file| !file.slot.is_used())
            .collect();
        for mut file in unused {
            if table.process_locks.contains(&file.inode) {
                file.stands = 0;
                table.others.push(file);
            } else {
                table.close(file);
            }
        }
    });
}
