//! Waiting for other threads of the session, in whichever process, that are at something.
//!
//! Invariant: who waits here is outside, with no lock held: others may die, and be cleared away, meanwhile.

use crate::Session;
use crate::region::ThreadSlot;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Between two looks: at first, and at most.
const PAUSE: Duration = Duration::from_micros(200);
const PAUSE_MOST: Duration = Duration::from_millis(10);

/// Waiting for others of the group: without end for those that are stopped (SIGSTOP, a debugger), as
/// for a file's lock; for others, who run, as long as for the controller.
pub struct Waiting {
    pause: Duration,
    patience: Duration,
    deadline: Instant,
}

impl Waiting {
    pub fn new(session: &Session) -> Waiting {
        let patience = session.patience();
        Waiting {
            pause: PAUSE,
            patience,
            deadline: Instant::now() + patience,
        }
    }

    /// A moment, longer each time. EIO: those who are waited for run, and do not come to an end.
    pub fn pause(&mut self, session: &Session, slot: &ThreadSlot<'_>) -> Result<(), Errno> {
        arck_protocol::wait::sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MOST);
        if self.pause < PAUSE_MOST {
            return Ok(());
        }
        let now = Instant::now();
        if session.is_kept_by_stopped(slot) {
            self.deadline = now + self.patience;
        }
        match now > self.deadline {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }
}
