//! Handing open descriptions on to forked children, executed programs, and whoever they are sent to.
//!
//! Before a fork, an exec or a message every pool descriptor that the other side may use gets another
//! placeholder, an *external* one: a descriptor that the controller has made for the description, and
//! that says for ever which file it stands for, and in which mode; its offset is the kernel's. The
//! other side finds it by number (fork), by looking through its descriptors at start-up (exec), or in the
//! message, and takes it over at the first use: by presenting it to the controller, which knows its own.
//!
//! Invariants:
//! * Nothing that stands in memory is handed on, and nothing that anybody but the controller says of
//!   such a descriptor is believed. What is found not to be one is left as it is.
//! * All descriptors of one description have one inode number, that of the file which stands for it.
//! * The LibFS keeps a descriptor of its own of each that is in use here ([`held`]); a forked child has
//!   those of its parent, and closes them before the program runs on.

pub mod held;

use crate::backend::{Errno, Failure, Handle, inside, minus};
use crate::descriptors::placeholders::{self, EXTERNAL_LINK, is_made_here, link, unnamed_file};
use crate::descriptors::references;
use crate::descriptors::table::{
    self, CLOSE_ON_EXEC, Descriptor, EXTERNAL, INHERITED, RESERVED, SENT, TABLE_SIZE,
};
use crate::{lock_files, raw, reserved, thread};
use held::hold;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// In a forked child: what it has of its parent's is named by the program's descriptors, and by no other.
pub fn forked() {
    // Another thread of the parent may have been at it.
    ADOPTING.store(false, Ordering::Release);
    held::take_all().for_each(reserved::let_go);
}

/// Makes external every pool descriptor that `wanted` says the other side will see.
pub fn externalize(wanted: impl Fn(usize) -> bool) {
    for descriptor in table::pool_descriptors() {
        if table::notes(descriptor) & EXTERNAL != 0 || !wanted(descriptor) {
            continue;
        }
        let value = table::entry(descriptor).load(Ordering::Acquire);
        let Some(handle) = NonZeroU64::new(value).filter(|v| v.get() < table::RESERVED) else {
            continue;
        };
        externalize_one(Handle(handle));
    }
}

/// The one place where descriptions are made ready to be handed on. Where that fails, those who are
/// handed one find that it cannot be used.
fn externalize_one(handle: Handle) {
    // What is made is open as long as the description.
    if references::retain(handle).is_err() {
        return;
    }
    let made = inside(|fs| {
        let file = fs.hand_on(handle)?;
        hold(file);
        Ok(file as usize)
    });
    if let Ok(file) = made
        && let Some([_, inode]) = raw::identity_of(file)
    {
        lock_files::external(handle, inode);
        for descriptor in table::pool_descriptors() {
            if table::entry(descriptor).load(Ordering::Acquire) != handle.0.get()
                || table::notes(descriptor) & EXTERNAL != 0
            {
                continue;
            }
            let close_on_exec = table::notes(descriptor) & CLOSE_ON_EXEC;
            let flags = if close_on_exec != 0 {
                libc::O_CLOEXEC
            } else {
                0
            };
            // SAFETY: replaces a plain placeholder by the external one, both ours.
            let result = unsafe { raw::syscall!(libc::SYS_dup3, file, descriptor, flags) };
            if !raw::failed(result) {
                let notes = close_on_exec | table::external(inode);
                table::put(descriptor, handle.0.get(), notes);
            }
        }
    }
    references::give_up(handle);
}

/// Held while something is taken over.
static ADOPTING: AtomicBool = AtomicBool::new(false);

/// What a number stands for that another process handed on: takes it over.
pub fn adopt(descriptor: usize) -> Descriptor {
    // Inside, so that no signal handler can come here while the lock is held.
    let _inside = thread::enter();
    while ADOPTING.swap(true, Ordering::Acquire) {
        // SAFETY: no arguments.
        unsafe { raw::syscall!(libc::SYS_sched_yield) };
    }
    let result = adopt_locked(descriptor);
    ADOPTING.store(false, Ordering::Release);
    result
}

fn adopt_locked(descriptor: usize) -> Descriptor {
    let value = table::entry(descriptor).load(Ordering::Acquire);
    match NonZeroU64::new(value) {
        // Another thread was here first, or closed it.
        None => return Descriptor::Kernel,
        Some(handle) if handle.get() < RESERVED => return Descriptor::Pool(Handle(handle)),
        Some(value) if value.get() == INHERITED => {}
        Some(_) => return Descriptor::Error(raw::error(libc::EBADF)),
    }
    let notes = table::notes(descriptor);
    let (command, from) = (libc::F_DUPFD_CLOEXEC, reserved::floor());
    let kept = arckfs::with_room(|| {
        // SAFETY: asks for another number of a file.
        let kept = unsafe { raw::syscall!(libc::SYS_fcntl, descriptor, command, from) };
        match raw::failed(kept) {
            true => Err(Errno::from_raw_os_error(-kept as i32)),
            false => Ok(kept),
        }
    });
    let kept = match kept {
        Ok(kept) => kept,
        Err(errno) => return Descriptor::Error(minus(errno)),
    };
    // SAFETY: made above, and nobody else's.
    let kept = unsafe { OwnedFd::from_raw_fd(kept as i32) };
    let file = table::file_in(notes);
    let identity = raw::identity_of(kept.as_raw_fd() as usize).unwrap_or_default();
    // Another thread may have put something else there.
    let is_it = file != 0 && identity[1] == file;
    let sent = table::sent(identity);
    let known = is_it.then(|| known_here(identity)).flatten();
    let taken_over = match (is_it, known) {
        (_, Some(handle)) => {
            received_again(handle, sent);
            Ok(handle)
        }
        (true, None) => inside(|fs| {
            let has_lock = lock_files::has_inherited(file);
            let (handle, lock) = fs.take_over(kept, sent > 0, has_lock)?;
            if let Some(held) = fs.handed_on(handle) {
                hold(held);
            }
            Ok((handle, fs.identity(handle)?, lock))
        })
        .map(|(handle, inode, lock)| {
            if let Some(lock) = lock {
                lock_files::received(handle, inode, file, lock);
            }
            received_again(handle, sent.saturating_sub(1));
            handle
        }),
        (false, None) => Err(Failure::Errno(Errno::BADF)),
    };
    match taken_over {
        Ok(handle) if references::adopted(identity, handle) => Descriptor::Pool(handle),
        Ok(handle) => {
            // Another thread has closed it.
            references::let_go(handle);
            Descriptor::Error(raw::error(libc::EBADF))
        }
        Err(Failure::Errno(Errno::BADF)) => {
            // It only looks like one.
            table::is_kernels(descriptor);
            Descriptor::Kernel
        }
        Err(Failure::Errno(errno)) => Descriptor::Error(minus(errno)),
        Err(Failure::Outside(_)) => Descriptor::Error(raw::error(libc::EIO)),
    }
}

/// A description that is open here came so many times more.
fn received_again(handle: Handle, times: usize) {
    for _ in 0..times {
        // Where it fails, the lock is kept as long as the description is open somewhere.
        let _ = inside(|fs| Ok(fs.received_again(handle)?));
    }
}

/// The description that a file stands for, if it is open here already: one more reference. The file's device
/// counts too, as anybody can make one with that inode number.
fn known_here(identity: [u64; 2]) -> Option<Handle> {
    table::pool_descriptors()
        .filter(|other| table::file_of(*other) == identity[1])
        .filter_map(|other| {
            let value = table::entry(other).load(Ordering::Acquire);
            let handle = NonZeroU64::new(value).filter(|value| value.get() < RESERVED)?;
            (raw::identity_of(other) == Some(identity)).then_some(Handle(handle))
        })
        .find(|handle| references::retain(*handle).is_ok())
}

/// At start-up: finds the descriptions that were handed on through exec.
pub fn find_inherited() {
    reserved::for_each_open(|descriptor| {
        // Most are neither, which one question tells.
        if reserved::is_marked(descriptor) || unnamed_file(descriptor).is_none() {
            return;
        }
        if inherit(descriptor, false, false) {
            return;
        }
        // A plain placeholder that leaked through a foreign exec: nothing behind it.
        if placeholders::is_plain(descriptor) && is_made_here(descriptor) {
            raw::close(descriptor as isize);
        }
    });
}

/// Takes a descriptor for one that was handed on, if it looks like one; the controller says whether it is
/// when it is used. `is_sent`: it came in a message.
pub fn inherit(descriptor: usize, close_on_exec: bool, is_sent: bool) -> bool {
    let Some(status) = unnamed_file(descriptor).filter(|_| descriptor < TABLE_SIZE) else {
        return false;
    };
    let is_closed_to_all = status.st_mode & 0o777 == 0 && status.st_size == 0;
    let mut room = [0; 64];
    if !is_closed_to_all || !link(descriptor, &mut room).starts_with(EXTERNAL_LINK) {
        return false;
    }
    let closes = if close_on_exec { CLOSE_ON_EXEC } else { 0 };
    let sent = if is_sent { SENT } else { 0 };
    let notes = table::external(status.st_ino) | closes | sent;
    table::put(descriptor, INHERITED, notes);
    true
}
