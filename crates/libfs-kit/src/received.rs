//! Descriptors that came from the controller, or are on their way to be a session's.
//!
//! Invariant: whoever is forked meanwhile closes his copies of them before his own code runs ([`crate::forks`]).

use rustix::fd::{AsRawFd, OwnedFd};
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers of all that is [`Received`] now. Locked inside [`arck_pm::forks::mapping`] alone, so that no fork
/// finds it locked.
static RECEIVED: Mutex<Vec<i32>> = Mutex::new(Vec::new());

fn received() -> MutexGuard<'static, Vec<i32>> {
    RECEIVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections that are being made, and descriptors that the controller has sent, until they have been used
/// and are closed, or are a session's: whoever is forked meanwhile closes his copies ([`crate::forks::in_child`]).
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

    /// Makes a session of them, which `make` notes ([`crate::forks`]), in one step: whoever is forked closes them before it as what
    /// was received, and after it as the session's. It must be short, and map nothing.
    pub(crate) fn into_session<S, E>(
        mut self,
        make: impl FnOnce(Vec<OwnedFd>) -> Result<S, E>,
    ) -> Result<S, E> {
        arck_pm::forks::mapping(|| {
            self.forget();
            make(std::mem::take(&mut self.0))
        })
    }

    /// These and others.
    pub(crate) fn and(mut self, mut others: Received) -> Received {
        self.0.append(&mut others.0);
        self
    }

    /// The same under other numbers.
    pub(crate) fn moved(mut self, to: impl Fn(OwnedFd) -> OwnedFd) -> Received {
        arck_pm::forks::mapping(|| {
            self.forget();
            let files: Vec<OwnedFd> = std::mem::take(&mut self.0).into_iter().map(to).collect();
            received().extend(files.iter().map(AsRawFd::as_raw_fd));
            Received(files)
        })
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

/// In a forked child: the numbers of its parent's, which are nothing's from now on.
pub(crate) fn take_all() -> Vec<i32> {
    std::mem::take(&mut *received())
}
