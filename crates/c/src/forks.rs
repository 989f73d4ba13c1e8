//! Forks: a child has the handles that its parent had.
//!
//! A connection, a store or a log opens a session of the child's own at its first need; a batch goes on, and so does a follower.
//! Files and directories that are open are the parent's (ESTALE), and so are queues.
//!
//! # Invariants
//! * Whoever forks has the locks of [`open_files`], of [`parts`] and of [`queues`] meanwhile: in the child nobody else
//!   has them, and what they protect is whole.
//! * A handler of signals that forks where it has interrupted a call takes no lock: it may be its own thread's. Arck is of no
//!   use in that child.
//! * Nothing is done here that is not done for the parent's good: it notices nothing.

use crate::inside::{self, Inside};
use crate::{open_files, parts, queues};
use arck_libfs_kit::forks::Handlers;
use std::cell::RefCell;
use std::sync::MutexGuard;

thread_local! {
    /// What the thread that forks has locked.
    static LOCKED: RefCell<Option<Locked>> = const { RefCell::new(None) };
}

/// The locks, which are let go of before who holds them is outside.
struct Locked {
    _files: MutexGuard<'static, open_files::Free>,
    _parts: MutexGuard<'static, parts::Parts>,
    _queues: MutexGuard<'static, queues::Table>,
    _inside: Inside,
}

static HANDLERS: Handlers = Handlers::new();

extern "C" fn before() {
    HANDLERS.are_running();
    let _ = LOCKED.try_with(|locked| {
        // Where libc runs this twice, this thread has them.
        if let Ok(mut locked) = locked.try_borrow_mut()
            && locked.is_none()
        {
            let Ok(inside) = inside::enter(inside::NOTHING) else {
                return;
            };
            *locked = Some(Locked {
                _files: open_files::lock(),
                _parts: parts::lock(),
                _queues: queues::lock(),
                _inside: inside,
            });
        }
    });
}

extern "C" fn let_go() {
    let _ = LOCKED.try_with(|locked| {
        if let Ok(mut locked) = locked.try_borrow_mut() {
            *locked = None;
        }
    });
}

extern "C" fn in_child() {
    let_go();
    inside::in_child();
}

/// Before anything is opened.
pub fn watch() {
    HANDLERS.register(|| {
        inside::barrier::prepare();
        // SAFETY: functions that may run around a fork, of a library that stays loaded (build.rs). Where libc has no memory
        // for them, a child that leaves what is its parent's alone is as it was.
        unsafe { libc::pthread_atfork(Some(before), Some(let_go), Some(in_child)) };
    });
}
