//! Processes that change who they are: user, group, further groups, capabilities.
//!
//! A session is of who the process was when it connected, and may for ever do what he may. So a
//! process that is somebody else now leaves its session, before the call returns that made it so, and
//! its next call on the pool opens another one: what it does from then on it does with its new rights
//! and no others. What it has open goes along, as to a forked child.
//!
//! libc makes such a call in each thread. Each is followed by a comparison, the last of which is made
//! when all threads are who they shall be.

use crate::raw::{self, Arguments};
use crate::{backend, descriptors, directory, handover, lock_files, reserved, settings, thread};
use std::sync::atomic::{AtomicBool, Ordering};

/// A call that can change who the process is.
///
/// # Safety
/// As the system call's.
pub unsafe fn change<const NUMBER: usize>(a: &Arguments) -> isize {
    if !thread::inside() && settings::ready() {
        // Before, as the controller takes no word for the session from who is somebody else.
        handover::externalize(|_| true);
    }
    // SAFETY: the program's arguments.
    let result = unsafe { raw::call(NUMBER, a) };
    if !raw::failed(result) && !thread::inside() && settings::ready() {
        CHANGED.store(true, Ordering::Relaxed);
        look();
    }
    result
}

/// Whether any such call has succeeded.
static CHANGED: AtomicBool = AtomicBool::new(false);

/// Whether this process, or one that it is forked from since it began its program, may be somebody else
/// than when it began.
pub fn have_changed() -> bool {
    CHANGED.load(Ordering::Relaxed)
}

fn look() {
    static LOOKING: AtomicBool = AtomicBool::new(false);
    // Whoever is at it looks at all that was changed before it began; others wait for it.
    while LOOKING.swap(true, Ordering::Acquire) {
        // SAFETY: no arguments.
        unsafe { raw::syscall!(libc::SYS_sched_yield) };
    }
    if backend::is_somebody_elses() {
        leave();
    }
    LOOKING.store(false, Ordering::Release);
}

fn leave() {
    directory::prepare_fork();
    if backend::any_maps() {
        let _ = backend::inside(|fs| {
            fs.hand_over_maps();
            Ok(())
        });
    }
    let mut held = Vec::new();
    let left = {
        let _inside = thread::enter();
        backend::hold_maps();
        let left = backend::leave_session();
        backend::let_go_of_maps(left.is_some());
        if left.is_some() {
            descriptors::forked();
            held.extend(handover::held::take_all());
            lock_files::left();
            directory::forked();
            descriptors::replacements::replaced();
        }
        left
    };
    if let Some(left) = left {
        left.end();
        // Nobody uses them any more.
        held.into_iter().for_each(reserved::let_go);
    }
}
