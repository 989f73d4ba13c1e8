//! What has completed and was not reaped yet, of a queue; and the descriptor that says so to loops of events.
//!
//! # Invariants
//! * The descriptor, once it is there, is readable exactly while something can be reaped: both change under one lock.
//! * It costs nothing as long as nobody has asked for it.

use crate::request::Completion;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What can be reaped.
#[derive(Default)]
pub struct Completions {
    done: VecDeque<Completion>,
    readiness: Option<Arc<OwnedFd>>,
}

impl Completions {
    pub fn len(&self) -> usize {
        self.done.len()
    }

    pub fn push(&mut self, completion: Completion) {
        self.done.push_back(completion);
        if self.done.len() == 1 {
            self.tell();
        }
    }

    pub fn take(&mut self, most: usize) -> Vec<Completion> {
        let taken: Vec<_> = self.done.drain(..most.min(self.done.len())).collect();
        if let (false, true, Some(readiness)) =
            (taken.is_empty(), self.done.is_empty(), &self.readiness)
        {
            let mut count = [0; 8];
            // It cannot block, and what it says is known.
            let _ = rustix::io::read(&**readiness, &mut count);
        }
        taken
    }

    fn tell(&self) {
        if let Some(readiness) = &self.readiness {
            // Its counter is 0 before, so there is room for 1.
            let _ = rustix::io::write(&**readiness, &1u64.to_ne_bytes());
        }
    }

    /// The descriptor, which is made now if there is none.
    pub fn readiness(&mut self) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(readiness) = &self.readiness {
            return Ok(Arc::clone(readiness));
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let readiness = Arc::new(eventfd(0, flags)?);
        self.readiness = Some(Arc::clone(&readiness));
        if !self.done.is_empty() {
            self.tell();
        }
        Ok(readiness)
    }
}
