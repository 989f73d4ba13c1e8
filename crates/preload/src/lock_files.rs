//! The descriptors by which the kernel keeps this process's advisory locks.
//!
//! For each description that is locked there is a descriptor of its inode's lock file, which the
//! controller has opened for it and the program does not see (see `arckfs::FileSystem::lock_file`); what
//! the program asks for is done there, by the kernel. So locks wait, are interrupted, found to be a
//! circle, and end, as those of the kernel's files.
//!
//! A description that other processes are about to have too must have its lock file before: two that lock
//! it must lock by one open file description. So one is made before a fork, is inherited with the
//! placeholder, and goes through exec with it ([`Handed`], ARCK_LOCKS).
//!
//! Invariants:
//! * A description has at most one lock file in a process: one is made at a time.
//! * It ends with the last descriptor of its description in this process, unless a thread is in a
//!   call on it ([`slots`]); then when that returns. Nothing else is put under its number before.
//! * Where nobody else has the description, it is not closed then, but unlocked, and the next of the same
//!   inode and mode that is locked gets it: it is *at hand* ([`at_hand`]). None at hand is of an inode of which the
//!   process may hold locks.
//! * The process's locks (POSIX) of an inode go when any descriptor of a file of that inode is closed, and
//!   at no other time. The kernel drops them too when any descriptor of the lock file is closed: so while
//!   there may be some (`process_locks`) none is, but for that reason; what is not needed any more meanwhile
//!   is *spent*, and kept until then.
//! * The table's lock is held by threads that are inside, which no signal handler interrupts, and over a
//!   fork. A child in its parent's memory only looks, as nobody else does then.

mod at_hand;
mod file;
pub mod handed;
pub mod sharing;
mod slots;
pub mod table;
#[cfg(test)]
pub(crate) mod tests;
mod using;

use crate::backend::forks::Received;
use crate::backend::{Errno, Failure, Handle, inside, minus};
use crate::descriptors::{hole, table::file_of};
use crate::raw::{self, error};
use crate::{reserved, thread};
use file::{Inode, LockFile};
pub use handed::Handed;
pub use slots::{FLOCK, OFD, is_known};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use table::{AT_HAND_FROM, COUNT, PROCESS_LOCKS, take, with};
pub use using::Use;

/// Held while a lock file is made.
static MAKING: AtomicBool = AtomicBool::new(false);

/// The lock file of a description that is locked, if it has one.
#[cold]
fn look_up(handle: Handle, is_alone: bool) -> Option<Use> {
    with(|table| {
        let slot = table.by_handle.get(&handle.0.get())?.slot;
        slots::remember(slot, handle);
        Use::of(slot, handle, is_alone)
    })
}

/// The program was given a number, which is the lowest that was free: before it comes to the numbers of lock files at
/// hand, these are closed.
#[inline(always)]
pub fn number_given(number: usize) {
    if number.saturating_add(1) >= AT_HAND_FROM.load(Ordering::Relaxed) {
        close_at_hand();
    }
}

/// Whether there were any.
#[cold]
fn close_at_hand() -> bool {
    with(|table| {
        let at_hand = table.at_hand.take_all();
        let are_some = !at_hand.is_empty();
        at_hand.into_iter().for_each(|file| table.close(file));
        are_some
    })
}

/// The process may hold locks by what is in use from now on. To be said before it may, and again after, if
/// they were dropped meanwhile.
#[cold]
pub fn lock_process(file: &Use) {
    with(|table| {
        let known = table.by_handle.get(&file.slot().handle());
        let is_it = |known: &&LockFile| std::ptr::eq(known.slot, file.slot());
        if let Some(inode) = known.filter(is_it).map(|known| known.inode) {
            table.lock_process(inode);
            file.slot().set_locks_process(true);
        }
    });
}

/// The lock file of what a descriptor stands for, which is made if need be. `is_alone`: the process has no
/// other thread, and the caller stays inside for as long as he uses it. Error: minus the error number.
#[inline(always)]
pub fn of(descriptor: usize, handle: Handle, is_alone: bool) -> Result<Use, isize> {
    match Use::found(handle, is_alone) {
        Some(file) => Ok(file),
        None => look_up_or_make(descriptor, handle, is_alone),
    }
}

#[cold]
fn look_up_or_make(descriptor: usize, handle: Handle, is_alone: bool) -> Result<Use, isize> {
    if let Some(file) = look_up(handle, is_alone) {
        return Ok(file);
    }
    make(descriptor, handle)?;
    // Closed by another thread meanwhile.
    look_up(handle, is_alone).ok_or(error(libc::EBADF))
}

#[cold]
fn make(descriptor: usize, handle: Handle) -> Result<(), isize> {
    // Inside, so that no signal handler comes here while it is held.
    let _inside = thread::enter();
    take(&MAKING);
    let made = make_one(descriptor, handle);
    MAKING.store(false, Ordering::Release);
    made
}

fn make_one(descriptor: usize, handle: Handle) -> Result<(), isize> {
    if with(|table| table.by_handle.contains_key(&handle.0.get())) {
        return Ok(());
    }
    let told = |failure| match failure {
        // To the program that would be a lock of somebody else's.
        Failure::Errno(errno) if errno.raw_os_error() == libc::EACCES => error(libc::ENOLCK),
        Failure::Errno(errno) if errno.raw_os_error() == libc::EAGAIN => error(libc::ENOLCK),
        Failure::Errno(errno) => minus(errno),
        Failure::Outside(_) => error(libc::EIO),
    };
    let stands = file_of(descriptor);
    let known = inside(|fs| Ok((fs.flags(handle)? & libc::O_ACCMODE, fs.identity(handle)?)));
    let (access, inode) = known.map_err(told)?;
    // What another process is about to have, or has, is not one at hand, which nobody was told of.
    let found = stands == 0
        && with(|table| match table.at_hand.take(inode, access) {
            Some(file) => {
                table.attach(handle, file);
                true
            }
            None => false,
        });
    if !found {
        let receive = || inside(|fs| Ok(fs.receive_lock_file(handle)?));
        let received = match receive() {
            // Those at hand may be what is too many.
            Err(Failure::Errno(Errno::NOLCK | Errno::MFILE)) if close_at_hand() => receive(),
            received => received,
        };
        let received = received.map_err(told)?;
        // A child has it hidden, or not at all.
        let low = received.place(|files| {
            let file = files.into_iter().next();
            file.map(|file| note(handle, inode, stands, Some(access), file))
        });
        hole::kernel_closed(low.ok_or(error(libc::EIO))?);
    }
    // Whoever closed it meanwhile has found none.
    if inside(|fs| Ok(fs.flags(handle)?)).is_err() {
        closed(handle);
    }
    Ok(())
}

/// Whether what was handed on to this process, and is not open in its session yet, has its lock file here.
pub fn has_inherited(stands: u64) -> bool {
    stands != 0
        && COUNT.load(Ordering::Relaxed) > 0
        && with(|table| table.others.iter().any(|file| file.stands == stands))
}

/// The lock file of a description that was sent to this process.
pub fn received(handle: Handle, inode: Inode, stands: u64, lock: Received) {
    let low = lock.place(|files| {
        let file = files.into_iter().next();
        file.map(|file| note(handle, inode, stands, None, file))
    });
    if let Some(low) = low {
        hole::kernel_closed(low);
    }
}

/// Hides a new lock file, and puts it into the table. Gives the number that it had.
fn note(handle: Handle, inode: Inode, stands: u64, access: Option<i32>, file: OwnedFd) -> usize {
    let low = file.into_raw_fd() as usize;
    with(|table| {
        // Its low number is closed, which drops locks: where there may be some, it stays there, and
        // where the high ones are all taken.
        let moved = match table.process_locks.contains(&inode) {
            true => error(libc::EMFILE),
            false => reserved::keep(low as isize),
        };
        let (kept, access) = match raw::failed(moved) {
            true => (low, None),
            false => (moved as usize, access.filter(|_| at_hand::are_allowed())),
        };
        reserved::mark(kept);
        let file = table.file(kept, inode, stands);
        table.attach(handle, LockFile { access, ..file });
    });
    low
}

/// Before the program closes a descriptor.
pub fn closing(handle: Handle) {
    if PROCESS_LOCKS.load(Ordering::Relaxed) == 0 {
        return;
    }
    if let Ok(Some(inode)) = lockable(handle) {
        with(|table| table.drop_process_locks(inode));
    }
}

/// The inode of an open file; `None` for O_PATH, which has nothing to do with the locks of the file.
fn lockable(handle: Handle) -> Result<Option<Inode>, Failure> {
    inside(|fs| match fs.flags(handle)? & libc::O_PATH {
        0 => Ok(Some(fs.identity(handle)?)),
        _ => Ok(None),
    })
}

/// The last descriptor of a description was closed.
pub fn closed(handle: Handle) {
    ended(handle, true);
}

/// The last reference to a description went, and no descriptor of the program's with it.
pub fn given_up(handle: Handle) {
    ended(handle, false);
}

fn ended(handle: Handle, closes: bool) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    with(|table| {
        if let Some(file) = table.by_handle.remove(&handle.0.get()) {
            table.end(file, closes);
        }
    });
}

/// A descriptor was closed that stood for what was handed on, and not opened in this session. `last`: no
/// other does.
pub fn closed_inherited(stands: u64, last: bool) {
    if stands == 0 || COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    with(|table| {
        if let Some(file) = table.take_other(stands) {
            table.drop_process_locks(file.inode);
            match last {
                true => table.end(file, true),
                false => table.others.push(file),
            }
        }
    });
}

/// What was handed on is open in this session.
pub fn adopted(stands: u64, handle: Handle) {
    if stands == 0 || COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    with(|table| {
        if let Some(file) = table.take_other(stands) {
            table.attach(handle, file);
        }
    });
}

/// From now on a file stands for a description, wherever it is handed on.
pub fn external(handle: Handle, stands: u64) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    with(|table| {
        if let Some(file) = table.by_handle.get_mut(&handle.0.get()) {
            file.stands = stands;
        }
    });
}

/// In a forked child, which has the table as it was, with the descriptors: descriptions are its parent's
/// until it opens them itself; the locks of the process are not its own.
pub fn forked() {
    MAKING.store(false, Ordering::Relaxed);
    table::let_go();
    leave(true);
}

/// The process has left its session, and opens what it has in another.
pub fn left() {
    leave(false);
}

fn leave(is_child: bool) {
    with(|table| {
        if is_child {
            table.slots.iter().for_each(|slot| slot.forked());
            table.process_locks.clear();
        }
        let others = std::mem::take(&mut table.others);
        let known = std::mem::take(&mut table.by_handle).into_values();
        for file in known.chain(others) {
            match file.stands {
                // To unlock it would unlock it for its parent.
                0 if is_child => table.close(file),
                0 => table.end(file, false),
                _ => {
                    file.slot.detach();
                    table.others.push(file);
                }
            }
        }
        let at_hand = table.at_hand.take_all();
        at_hand.into_iter().for_each(|file| table.close(file));
        if is_child {
            let closed = std::mem::take(&mut table.closed);
            closed.into_iter().for_each(|file| table.close(file));
        }
    });
}
