//! Lock files through exec: which ones the new program gets, and how it finds them (ARCK_LOCKS).
//!
//! Invariant: what is told is numbers, each of which is compared with what the kernel says of the
//! descriptor. Whoever tells wrong ones tells of what the process has open anyway.

use super::file::{Inode, LockFile};
use super::lockable;
use super::table::{COUNT, PROCESS_LOCKS, TABLE, Table, with};
use crate::backend::Handle;
use crate::descriptors::{replacements, table as descriptors};
use crate::raw::{self, syscall};
use crate::{reserved, settings, thread};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

/// What a program that is executed is told of the lock files that it gets, with the placeholders of their
/// descriptions.
pub struct Handed<S: Fn(usize) -> bool> {
    survives: S,
    /// Inodes of which the exec closes descriptors, and with them the process's locks.
    dropped: Vec<Inode>,
}

/// Longest text of one.
const TEXT_MAX: usize = 104;

impl<S: Fn(usize) -> bool> Handed<S> {
    /// `survives`: which descriptors of the pool the new program has.
    pub fn new(survives: S) -> Self {
        let mut handed = Handed {
            survives,
            dropped: Vec::new(),
        };
        if COUNT.load(Ordering::Relaxed) > 0 {
            // A child in its parent's memory has no locks of its own.
            if !replacements::is_spawned_child() && PROCESS_LOCKS.load(Ordering::Relaxed) > 0 {
                let _inside = thread::enter();
                handed.find_dropped();
                with(|table| {
                    handed
                        .dropped
                        .iter()
                        .for_each(|&inode| table.let_drop(inode))
                });
            }
            handed.close_on_exec(false);
        }
        handed
    }

    fn find_dropped(&mut self) {
        for descriptor in descriptors::pool_descriptors() {
            let value = descriptors::entry(descriptor).load(Ordering::Acquire);
            let handle = NonZeroU64::new(value).filter(|v| v.get() < descriptors::RESERVED);
            if let Some(handle) = handle.map(Handle)
                && !(self.survives)(descriptor)
                && let Ok(Some(inode)) = lockable(handle)
            {
                self.dropped.push(inode);
            }
        }
    }

    /// Calls `visit` for each lock file that the new program gets, and with whether the process may hold
    /// locks by it.
    fn each(&self, mut visit: impl FnMut(&LockFile, bool)) {
        if COUNT.load(Ordering::Relaxed) == 0 {
            return;
        }
        let is_child = replacements::is_spawned_child();
        let mut look = |table: &Table| {
            for descriptor in descriptors::pool_descriptors() {
                if (self.survives)(descriptor)
                    && let Some(file) = table.all().find(|file| stands_for(descriptor, file))
                {
                    let locks = table.process_locks.contains(&file.inode);
                    visit(file, locks && !is_child);
                }
            }
            let spent = table.others.iter().filter(|file| file.is_spent());
            for file in spent.filter(|_| !is_child) {
                if table.process_locks.contains(&file.inode) && !self.dropped.contains(&file.inode)
                {
                    visit(file, true);
                }
            }
        };
        match is_child {
            // SAFETY: its parent waits, and had one thread.
            true => unsafe { (*TABLE.table.get()).as_ref() }.map_or((), look),
            false => with(|table| look(table)),
        }
    }

    fn close_on_exec(&self, yes: bool) {
        let flags = if yes { libc::FD_CLOEXEC } else { 0 };
        self.each(|file, _| {
            // SAFETY: a flag of a descriptor of this library's.
            unsafe { syscall!(libc::SYS_fcntl, file.descriptor, libc::F_SETFD, flags) };
        });
    }

    /// No more bytes than that are written.
    pub fn text_max(&self) -> usize {
        let mut count = 0;
        self.each(|_, _| count += 1);
        count * TEXT_MAX
    }

    /// Calls `write` with one part of the text after another; see [`start`].
    pub fn write(&self, mut write: impl FnMut(&[u8])) {
        let mut last = usize::MAX;
        self.each(|file, locks_process| {
            // Duplicates come one after another, mostly.
            if std::mem::replace(&mut last, file.descriptor) == file.descriptor {
                return;
            }
            let [device, number] = raw::identity_of(file.descriptor).unwrap_or_default();
            let mut text = raw::Text::<TEXT_MAX>::new();
            text.number(file.descriptor as u64);
            for number in [
                device,
                number,
                file.stands,
                u64::from(file.inode.0),
                u64::from(file.inode.1),
                u64::from(locks_process),
            ] {
                text.push(b":").number(number);
            }
            text.push(b",");
            write(text.bytes());
        });
    }
}

impl<S: Fn(usize) -> bool> Drop for Handed<S> {
    fn drop(&mut self) {
        self.close_on_exec(true);
    }
}

/// At start-up: what the program that has executed this one has handed on (ARCK_LOCKS). Of each lock file its
/// descriptor, device and inode number; the inode number of the file that stands for its description, or 0 if
/// it is spent; inode and generation; and whether the process may hold locks of it. A number that is another file's by now is
/// none of these.
pub fn start() {
    for text in settings::locks().split(|byte| *byte == b',') {
        let Some([descriptor, device, number, stands, inode, generation, locks]) =
            settings::numbers::<7>(text)
        else {
            continue;
        };
        let Ok(descriptor) = usize::try_from(descriptor) else {
            continue;
        };
        let (Ok(inode), Ok(generation)) = (u32::try_from(inode), u32::try_from(generation)) else {
            continue;
        };
        if raw::identity_of(descriptor) != Some([device, number]) {
            continue;
        }
        reserved::mark(descriptor);
        // SAFETY: a flag of a descriptor that is this library's from now on.
        unsafe { syscall!(libc::SYS_fcntl, descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
        with(|table| {
            if table
                .others
                .iter()
                .any(|file| file.descriptor == descriptor)
            {
                return;
            }
            let inode = (inode, generation);
            let file = table.file(descriptor, inode, stands);
            table.others.push(file);
            if locks != 0 {
                table.lock_process(inode);
            }
        });
    }
}

/// At start-up, when all that was handed on has been found: the rest is nobody's.
pub fn found_all() {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    with(|table| {
        let is_there = |file: &LockFile| {
            descriptors::pool_descriptors().any(|descriptor| stands_for(descriptor, file))
        };
        let is_nobodys = |file: &mut LockFile| !file.is_spent() && !is_there(file);
        let nobodys: Vec<LockFile> = table.others.extract_if(.., is_nobodys).collect();
        nobodys.into_iter().for_each(|file| table.close(file));
    });
}

fn stands_for(descriptor: usize, file: &LockFile) -> bool {
    !file.is_spent() && descriptors::file_of(descriptor) == file.stands
}
