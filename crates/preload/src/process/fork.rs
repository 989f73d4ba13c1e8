//! Fork.
//!
//! Invariant: between [`Fork::prepare`] and its end the thread counts as inside the LibFS and holds the
//! allocator's locks, so the child finds our state whole, and libc's own calls pass.

use super::{RECORD, SpawnRecord, forked, hand_over, spawn};
use crate::backend::inside;
use crate::raw::{self, error, syscall};
use crate::{allocator, backend, lock_files, report, thread};
use std::sync::atomic::Ordering;

/// A fork on its way.
pub struct Fork {
    inside: thread::Inside,
    record: *mut SpawnRecord,
}

impl Fork {
    /// Hands over what the child needs. `spawning`: the child is `posix_spawn`'s, which shares our
    /// memory as far as libc knows, and for which the parent waits until it executes.
    pub fn prepare(spawning: bool) -> Fork {
        spawn::detach();
        hand_over();
        if backend::any_maps() {
            let _ = inside(|fs| {
                fs.hand_over_maps();
                Ok(())
            });
        }
        let mut record = std::ptr::null_mut();
        if spawning {
            record = SpawnRecord::map();
        }
        let inside = thread::enter();
        backend::hold_maps();
        backend::before_fork();
        lock_files::table::hold();
        allocator::lock_all();
        Fork { inside, record }
    }

    /// In the parent, with the clone's result, which may become an error of the child's exec.
    pub fn parent(self, result: isize) -> isize {
        allocator::unlock_all();
        lock_files::table::let_go();
        backend::after_fork();
        backend::let_go_of_maps(false);
        let Fork { inside, record } = self;
        drop(inside);
        if record.is_null() {
            return result;
        }
        // SAFETY: our own mapping; the child has executed or exited by now (CLONE_VFORK).
        unsafe {
            let errno = (*record).errno.load(Ordering::Acquire);
            raw::unmap(record.cast(), 4096);
            if result > 0 && errno != 0 {
                syscall!(libc::SYS_wait4, result, 0, 0, 0);
                return error(errno);
            }
        }
        result
    }

    /// In the child. `cleared`: signal handlers were reset.
    pub fn child(self, cleared: bool) {
        let Fork { inside, record } = self;
        RECORD.store(record, Ordering::Release);
        forked(cleared);
        drop(inside);
        if record.is_null() {
            report::write(report::Event::Start);
        }
    }
}

/// What `fork` calls before, and after in both processes (`pthread_atfork`). Registered first,
/// so it runs last before the fork and first after it.
pub fn watch_forks() {
    unsafe extern "C" fn before() {
        std::mem::forget(Fork::prepare(false));
    }
    unsafe extern "C" fn in_parent() {
        allocator::unlock_all();
        lock_files::table::let_go();
        backend::after_fork();
        backend::let_go_of_maps(false);
        thread::leave();
    }
    unsafe extern "C" fn in_child() {
        RECORD.store(std::ptr::null_mut(), Ordering::Release);
        forked(false);
        thread::leave();
        report::write(report::Event::Start);
    }
    // SAFETY: the functions are safe to run around a fork.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}
