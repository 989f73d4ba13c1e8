//! Opening and closing what somebody else may hold for ever: by a thread that can be given up, and not again while
//! that is stuck.
//!
//! Who has a FIFO open for writing can hold its lock for ever, and whoever opens or closes that waits then.
//!
//! # Invariant
//! * Nothing is begun on an inode's file on which a step is stuck.

use super::nodes::Key;
use crate::threads::helper::{Helper, Stuck};
use std::collections::HashMap;

/// See the module's head.
#[derive(Default, Debug)]
pub struct Careful {
    helper: Helper,
    /// Those that did not open, or close, when that was tried last.
    stuck: HashMap<Key, Stuck>,
}

impl Careful {
    /// Something is done with an inode's file, for a user; `None` if that is stuck.
    pub fn has_done<T: Send + 'static>(
        &mut self,
        key: Key,
        user: u32,
        step: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.stuck.get(&key).is_some_and(Stuck::is_stuck) {
            return None;
        }
        match self.helper.has_done(user, step) {
            Ok(done) => {
                self.stuck.remove(&key);
                Some(done)
            }
            Err(stuck) => {
                self.stuck.extend(stuck.map(|stuck| (key, stuck)));
                None
            }
        }
    }

    /// Forgets those that have come back: nobody may ever ask for them again.
    pub fn forget_returned(&mut self) {
        self.stuck.retain(|_, stuck| stuck.is_stuck());
    }

    /// An inode's file is gone.
    pub fn forget(&mut self, key: Key) {
        self.stuck.remove(&key);
    }

    #[cfg(test)]
    pub fn stuck(&self) -> &HashMap<Key, Stuck> {
        &self.stuck
    }
}
