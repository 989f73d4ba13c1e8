//! Inodes that had the same number, and the same generation, one after the other.
//!
//! What is made and removed before a fold leaves its number to the next one, generation and all. The kernel may still hold the
//! first: by a descriptor of O_PATH, or because a last close is under way. A removed directory is a dead one to it, in
//! which nothing is made; and what was a file is looked at, opened and changed by that descriptor as if it were the next
//! one. So it has to be told that the next one is another.
//!
//! # Invariants
//! * As long as an inode has a name the same is told of it. So who is told of one waits while that very number is being
//!   removed, and for nobody else's: an operation may wait for another session.
//! * The lock is held over no operation on the pool.

use crate::nodes::Node;
use arckfs::{Attributes, Errno};
use fuser::Generation;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct State {
    /// How many inodes of a number and generation have lost their last names by this mount. Of a number, its last generation counts, so
    /// there are no more of these than the pool has inodes.
    removed: HashMap<u32, (u32, u64)>,
    /// How many removals of a number are under way.
    ending: HashMap<u32, u32>,
}

/// See the module's head.
#[derive(Default)]
pub struct Lives {
    state: Mutex<State>,
    /// Told when a removal is over.
    over: Condvar,
}

/// A removal under way, until this is dropped.
struct Ending<'l>(&'l Lives, u32);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if let Some(count) = state.ending.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                state.ending.remove(&self.1);
            }
        }
        drop(state);
        self.0.over.notify_all();
    }
}

impl Lives {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the kernel is told beside an inode's number. Blocks while what has this number is being removed.
    pub fn of(&self, found: &Attributes) -> Generation {
        let node = Node::from(found);
        let is_ending = |state: &mut State| state.ending.contains_key(&node.number);
        let waited = self.over.wait_while(self.lock(), is_ending);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        match state.removed.get(&node.number) {
            Some((generation, lives)) if *generation == node.generation => Generation(*lives),
            _ => Generation(0),
        }
    }

    /// Removes a name of an inode, and notes that if it was the last, as `remove` says. Blocks for that.
    pub fn end(
        &self,
        node: Node,
        remove: impl FnOnce() -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        *self.lock().ending.entry(node.number).or_default() += 1;
        let _ending = Ending(self, node.number);
        if !remove()? {
            return Ok(());
        }
        let mut state = self.lock();
        let life = state.removed.entry(node.number).or_default();
        match life.0 == node.generation {
            true => life.1 += 1,
            false => *life = (node.generation, 1),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn found(inode: u64, generation: u32) -> Attributes {
        Attributes {
            inode,
            generation,
            ..Attributes::default()
        }
    }

    #[test]
    fn the_next_one_is_another() {
        let lives = Lives::default();
        let of = |inode, generation| lives.of(&found(inode, generation)).0;
        let end = |number, generation| {
            lives.end(Node { number, generation }, || Ok(true)).unwrap();
        };
        assert_eq!(of(5, 1), 0);
        end(5, 1);
        end(5, 1);
        assert_eq!((of(5, 1), of(6, 1), of(5, 2)), (2, 0, 0));
        end(5, 2);
        assert_eq!((of(5, 2), of(5, 1)), (1, 0));
        let directory = Node {
            number: 5,
            generation: 2,
        };
        let refused = lives.end(directory, || Err(Errno::NOTEMPTY));
        assert_eq!(refused, Err(Errno::NOTEMPTY));
        assert_eq!(of(5, 2), 1);
        // It has other names.
        assert_eq!(lives.end(directory, || Ok(false)), Ok(()));
        assert_eq!(of(5, 2), 1);
    }

    /// A removal that waits keeps nobody but those waiting who are to be told of that very number.
    #[test]
    fn who_asks_for_another_one_does_not_wait() {
        let lives = Lives::default();
        let (goes_on, waits) = channel();
        let (tells, told) = channel();
        std::thread::scope(|scope| {
            let directory = Node {
                number: 5,
                generation: 1,
            };
            let (begins, begun) = channel();
            let lives = &lives;
            scope.spawn(move || {
                lives.end(directory, || {
                    begins.send(()).unwrap();
                    waits.recv().unwrap();
                    Ok(true)
                })
            });
            begun.recv().unwrap();
            assert_eq!(lives.of(&found(6, 1)).0, 0);
            scope.spawn(move || tells.send(lives.of(&found(5, 1)).0));
            let early = told.recv_timeout(Duration::from_millis(50));
            assert!(early.is_err(), "told before it was over: {early:?}");
            goes_on.send(()).unwrap();
            assert_eq!(told.recv(), Ok(1));
        });
    }
}
