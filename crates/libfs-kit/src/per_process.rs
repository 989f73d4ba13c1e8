//! What a LibFS keeps of its session, in the process that opened it and in children forked of that, in which
//! it has ended.
//!
//! Invariant: a session that was opened for this ends with it, in the process that has it; one that is somebody
//! else's does not.

use crate::Session;
use once_cell::race::OnceBox;

/// A session, what is kept of it, and the same of a forked child.
pub struct PerProcess<T> {
    pub session: &'static Session,
    pub kept: T,
    /// The session is somebody else's to end.
    is_guest: bool,
    /// Nobody waits for who puts something here: a child that is forked meanwhile has no such thread.
    of_child: OnceBox<PerProcess<T>>,
}

impl<T> PerProcess<T> {
    /// Of a session that was opened for it.
    pub fn new(session: &'static Session, kept: T) -> PerProcess<T> {
        let (is_guest, of_child) = (false, OnceBox::new());
        PerProcess {
            session,
            kept,
            is_guest,
            of_child,
        }
    }

    /// Of one that is somebody else's to end.
    pub fn as_guest(mut self) -> PerProcess<T> {
        self.is_guest = true;
        self
    }

    /// That of this process, or the last that there was.
    #[inline]
    pub fn last(&self) -> &PerProcess<T> {
        let mut last = self;
        while let (true, Some(own)) = (last.session.has_ended(), last.of_child.get()) {
            last = own;
        }
        last
    }

    /// That of this process: in a forked child it is opened at its first need.
    #[inline]
    pub fn get_or_open<E>(
        &self,
        open: impl FnOnce() -> Result<PerProcess<T>, E>,
    ) -> Result<&PerProcess<T>, E> {
        let last = self.last();
        if !last.session.has_ended() {
            return Ok(last);
        }
        // Where another thread was faster, this one's ends here.
        drop(last.of_child.set(Box::new(open()?)));
        Ok(last.last())
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        if !self.is_guest {
            self.session.end();
        }
    }
}
