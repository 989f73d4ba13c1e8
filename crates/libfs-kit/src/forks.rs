//! Forks: a child has nothing of its parent's sessions, whatever it does and whoever it becomes.
//!
//! What they have mapped the kernel leaves out ([`arck_pm::forks`]); what they have open is closed in the
//! child before its own code runs ([`in_child`]); and what the child finds in its copy of the parent's
//! memory says that the sessions have ended. It opens its own when it needs one.
//!
//! libc is asked to tell of forks when the first session is opened (`pthread_atfork`), unless who uses
//! this crate tells of them itself ([`are_told`]).

use crate::region::departed;
use crate::session::Session;
use crate::thread;
use rustix::fd::{AsRawFd, OwnedFd};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// All sessions that this process has opened, the last one first: each names the next. None is ever freed.
static SESSIONS: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());

/// Numbers of all that is [`Received`] now. Locked inside [`arck_pm::forks::mapping`] alone, so that no fork
/// finds it locked.
static RECEIVED: Mutex<Vec<i32>> = Mutex::new(Vec::new());

fn received() -> MutexGuard<'static, Vec<i32>> {
    RECEIVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections that are being made, and descriptors that the controller has sent, until they have been used
/// and are closed, or are a session's: whoever is forked meanwhile closes his copies ([`in_child`]).
#[derive(Default, Debug)]
pub struct Received(Vec<OwnedFd>);

impl Received {
    /// Receives, or makes, while nobody forks. It must not block.
    ///
    /// # Errors
    /// Those of `receive`.
    pub fn by<T, E>(
        receive: impl FnOnce() -> Result<(T, Vec<OwnedFd>), E>,
    ) -> Result<(T, Received), E> {
        arck_pm::forks::mapping(|| {
            let (told, files) = receive()?;
            received().extend(files.iter().map(AsRawFd::as_raw_fd));
            Ok((told, Received(files)))
        })
    }

    /// Makes a session of them, and notes it, in one step: whoever is forked closes them before it as what
    /// was received, and after it as the session's. It must be short, and map nothing.
    pub(crate) fn into_session<E>(
        mut self,
        make: impl FnOnce(Vec<OwnedFd>) -> Result<&'static Session, E>,
    ) -> Result<&'static Session, E> {
        arck_pm::forks::mapping(|| {
            self.forget();
            let session = make(std::mem::take(&mut self.0))?;
            note(session);
            Ok(session)
        })
    }

    /// These and others.
    pub(crate) fn and(mut self, mut others: Received) -> Received {
        self.0.append(&mut others.0);
        self
    }

    /// What is no right: children may have it.
    pub(crate) fn give_to_children(self) -> Vec<OwnedFd> {
        self.place(|files| files)
    }

    /// Gives them to `place`, while nobody forks: a child has all that it does with them, or nothing. It
    /// must not block, nor map anything.
    pub fn place<R>(mut self, place: impl FnOnce(Vec<OwnedFd>) -> R) -> R {
        arck_pm::forks::mapping(|| {
            self.forget();
            place(std::mem::take(&mut self.0))
        })
    }

    fn forget(&self) {
        let own = |number: &i32| self.0.iter().any(|file| file.as_raw_fd() == *number);
        received().retain(|number| !own(number));
    }
}

impl Deref for Received {
    type Target = [OwnedFd];
    fn deref(&self) -> &[OwnedFd] {
        &self.0
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            // In one step: the number of what is closed may be another file's.
            arck_pm::forks::mapping(|| {
                self.forget();
                self.0.clear();
            });
        }
    }
}

/// In a session: the one that was opened before it.
pub(crate) type Before = AtomicPtr<Session>;

/// Notes a new session.
fn note(session: &'static Session) {
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
    static WATCHED: Once = Once::new();
    unsafe extern "C" fn prepare() {
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
        WATCHED.call_once(|| unsafe {
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
    arck_pm::forks::let_go();
    thread::forget_all();
    departed::forget_all();
    for number in std::mem::take(&mut *received()) {
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
