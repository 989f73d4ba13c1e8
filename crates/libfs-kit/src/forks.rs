//! Forks: a child has nothing of its parent's sessions, whatever it does and whoever it becomes.
//!
//! What they have mapped the kernel leaves out ([`arck_pm::forks`]); what they have open is closed in the
//! child before its own code runs ([`in_child`]); and what the child finds in its copy of the parent's
//! memory says that the sessions have ended. It opens its own when it needs one.
//!
//! libc is asked to tell of forks when the first session is opened (`pthread_atfork`), unless who uses
//! this crate tells of them itself ([`are_told`]).

use crate::received;
pub use crate::received::Received;
use crate::region::departed;
use crate::session::{Session, reach, room};
use crate::thread;
pub use arck_pm::forks::Handlers;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// All sessions that this process has opened, the last one first: each names the next. None is ever freed.
static SESSIONS: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());

/// Notes a new session; in one step with its descriptors ([`Received::into_session`](crate::received::Received::into_session)).
pub(crate) fn note(session: &'static Session) {
    let own = std::ptr::from_ref(session).cast_mut();
    let mut first = SESSIONS.load(Ordering::Acquire);
    loop {
        session.opened_before().store(first, Ordering::Relaxed);
        let (new, old) = (Ordering::AcqRel, Ordering::Acquire);
        match SESSIONS.compare_exchange(first, own, new, old) {
            Ok(_) => return,
            Err(other) => first = other,
        }
    }
}

static ARE_TOLD: AtomicBool = AtomicBool::new(false);

/// From now on the caller runs [`before`] before each fork, and [`in_parent`] and [`in_child`] after it.
pub fn are_told() {
    ARE_TOLD.store(true, Ordering::Relaxed);
}

/// Before the first session is opened.
pub(crate) fn watch() {
    static HANDLERS: Handlers = Handlers::new();
    unsafe extern "C" fn prepare() {
        HANDLERS.are_running();
        before();
    }
    unsafe extern "C" fn parent() {
        in_parent();
    }
    unsafe extern "C" fn child() {
        in_child();
    }
    if !ARE_TOLD.load(Ordering::Relaxed) {
        // SAFETY: functions that may run around a fork. Where libc has no memory for them, children that
        // leave what is their parent's alone are as they were.
        HANDLERS.register(|| unsafe {
            libc::pthread_atfork(Some(prepare), Some(parent), Some(child));
        });
    }
}

/// Before a fork. Waits for those who are in the middle of mapping something.
pub fn before() {
    arck_pm::forks::hold();
}

/// After a fork, or where it failed.
pub fn in_parent() {
    arck_pm::forks::let_go();
}

/// In a forked child, before anything else: nothing of the parent's is open any more. There is one thread.
pub fn in_child() {
    arck_pm::forks::in_child();
    arck_pm::delegation::has_forked();
    arck_pm::medium::has_forked();
    room::in_child();
    reach::forget_addresses();
    thread::forget_all();
    departed::forget_all();
    for number in received::take_all() {
        // SAFETY: this child's copy of a descriptor that a thread of its parent was using; that thread is
        // not here.
        unsafe { rustix::io::close(number) };
    }
    let mut session = SESSIONS.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: a session that was noted, and lives as long as the process: here, its copy.
    while let Some(parents) = unsafe { session.as_ref() } {
        parents.is_parents();
        session = parents.opened_before().load(Ordering::Relaxed);
    }
}
