//! What children have of their parents, and exit; fork is in [`fork`], exec in [`execute`], children of `posix_spawn` in
//! [`spawn`].
//!
//! Invariant: a forked child has nothing of its parent's session, from before the program's own code runs in it:
//! none of its memory, none of its descriptors. What was open becomes INHERITED, the working directory
//! a name, and a session of the child's own is opened at first need.

mod copying;
pub mod execute;
pub mod fork;
pub mod identities;
pub mod identity;
pub mod libraries;
mod script;
pub mod sharing;
pub mod spawn;

pub use execute::{execve, execveat};

use crate::dispatch::arming;
use crate::patch::places;
use crate::raw::{self, Arguments, syscall};
use crate::{allocator, backend, descriptors, directory, handover, lock_files, report, rings};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

/// Shared between a parent in `posix_spawn` and its child until the child runs another program:
/// tells the parent why it did not, as memory that libc believes to be shared would.
#[repr(C)]
struct SpawnRecord {
    /// Error number that the child has ended with, without having executed anything; 0 if not.
    errno: AtomicI32,
}

impl SpawnRecord {
    /// On a page of its own; null if there is none.
    fn map() -> *mut SpawnRecord {
        // SAFETY: a fresh shared anonymous page.
        let page = unsafe {
            syscall!(
                libc::SYS_mmap,
                0,
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1isize,
                0
            )
        };
        if raw::failed(page) {
            return std::ptr::null_mut();
        }
        page as *mut SpawnRecord
    }
}

/// What a child of `posix_spawn` exits with when it could not do what it was to do before the
/// program, or execute it.
const SPAWN_ERROR: usize = 127;

/// In a spawned child: its record.
static RECORD: AtomicPtr<SpawnRecord> = AtomicPtr::new(std::ptr::null_mut());

/// What a child finds of its parent's, whichever way it is made.
fn hand_over() {
    handover::externalize(|_| true);
    lock_files::sharing::before_sharing(|_| true);
    directory::prepare_fork();
}

fn forked(cleared: bool) {
    allocator::unlock_all();
    backend::let_go_of_maps(true);
    has_copy(cleared);
}

/// A child that ran in its parent's memory has a copy of it. No lock was held.
fn detached(record: *mut SpawnRecord) {
    RECORD.store(record, Ordering::Release);
    descriptors::unknown();
    has_copy(false);
}

/// In a child whose memory is a copy of its parent's.
fn has_copy(cleared: bool) {
    // First of all, so that nothing of the parent's is reachable whatever else runs.
    backend::forked();
    handover::forked();
    descriptors::replacements::spawned_child(false);
    descriptors::forked();
    descriptors::pipes::forked();
    rings::forked();
    lock_files::forked();
    directory::forked();
    report::forked();
    places::forked();
    arming::forked(cleared);
}

/// `exit_group`: the last thing a process does.
///
/// # Safety
/// As the system call's; does not return.
pub unsafe fn exit_group(a: &Arguments) -> isize {
    let record = RECORD.load(Ordering::Acquire);
    if !record.is_null() && a[0] == SPAWN_ERROR {
        // SAFETY: the thread's own errno, which says what failed; the parent's page, mapped in
        // this child until it ends.
        unsafe {
            let errno = match *libc::__errno_location() {
                0 => libc::ECHILD,
                errno => errno,
            };
            (*record).errno.store(errno, Ordering::Release);
        }
    }
    report::write(report::Event::End);
    // SAFETY: ends the process.
    unsafe { raw::call(libc::SYS_exit_group as usize, a) }
}

/// libc's own `syscall`, found at start-up.
static REAL_SYSCALL: AtomicUsize = AtomicUsize::new(0);

/// At start-up: libc's own `syscall`, for what only it can do (making threads).
pub fn find_real_functions() {
    // SAFETY: a constant name.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) };
    REAL_SYSCALL.store(address as usize, Ordering::Relaxed);
}

/// libc's own `syscall`, if known.
pub fn real_syscall()
-> Option<unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> isize> {
    let address = REAL_SYSCALL.load(Ordering::Relaxed);
    // SAFETY: the function takes its arguments in registers and on the stack as declared.
    (address != 0).then(|| unsafe { std::mem::transmute(address) })
}
