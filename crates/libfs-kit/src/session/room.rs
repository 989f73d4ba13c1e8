//! Room for the descriptors that a session is sent, where the program has taken all that its limit leaves: a child that was
//! forked then goes on with the files that it has inherited.
//!
//! # Invariants
//! * The program's limit is as it was when a [`Raised`] is gone, or as the program has set it meanwhile.
//! * Nothing is shared that a thread could hold while another one forks.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

/// While it lives the process may have as many descriptors as it could allow itself.
pub(super) struct Raised {
    /// The soft limit before.
    was: Option<u64>,
}

impl Raised {
    pub(super) fn new() -> Raised {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        // Where that is refused there is as much room as before.
        set(maximum, maximum);
        Raised { was: current }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        // Else the program has set it since.
        if current == maximum
            && let Some(found) = set(self.was, maximum)
            && found.current != current
        {
            // It has done so just now.
            set(found.current, found.maximum);
        }
    }
}

/// Sets the limit; the one before. `None`: it is refused.
fn set(current: Option<u64>, maximum: Option<u64>) -> Option<Rlimit> {
    prlimit(None, Resource::Nofile, Rlimit { current, maximum }).ok()
}

/// Tries it, and where the process may have no more descriptors (EMFILE) tries it once more with room for them: with its soft
/// limit raised to the hard one for that moment. Does not block.
pub fn with_room<R>(mut attempt: impl FnMut() -> Result<R, Errno>) -> Result<R, Errno> {
    match attempt() {
        Err(Errno::MFILE) => {
            let _raised = Raised::new();
            attempt()
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own: the limit is all threads'.
    #[test]
    fn the_limit_is_as_it_was_or_as_it_was_set() {
        // SAFETY: the child makes system calls, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let soft = || getrlimit(Resource::Nofile).current;
            let hard = getrlimit(Resource::Nofile).maximum;
            let mut is_right = set(Some(64), hard).is_some();
            let raised = Raised::new();
            is_right &= soft() == hard;
            drop(raised);
            is_right &= soft() == Some(64);
            let raised = Raised::new();
            set(Some(65), hard);
            drop(raised);
            is_right &= soft() == Some(65);
            let mut limits = Vec::with_capacity(2);
            let tried = with_room(|| {
                limits.push(soft());
                match limits.len() {
                    1 => Err(Errno::MFILE),
                    _ => Ok(()),
                }
            });
            is_right &= tried.is_ok() && limits == [Some(65), hard] && soft() == Some(65);
            set(Some(66), Some(66));
            drop(Raised::new());
            is_right &= soft() == Some(66);
            // SAFETY: a number.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: the kernel writes the number.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
