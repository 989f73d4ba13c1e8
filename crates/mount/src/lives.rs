//! Directories that had the same number, and the same generation, one after the other.
//!
//! What is made and removed before a fold leaves its number to the next one, generation and all. The kernel may still hold the
//! first: by a descriptor of O_PATH, or because a last close is under way. A removed directory is a dead one to it, in
//! which nothing is made, so it has to be told that the next one is another.
//!
//! Invariant: as long as a directory has a name the same is told of it. So while one is removed, none is made.

use crate::nodes::Node;
use arckfs::{Attributes, Errno};
use fuser::Generation;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// How many directories of a number and generation this mount has removed. Of a number, its last generation counts, so there
/// are no more of these than the pool has inodes.
#[derive(Default)]
pub struct Lives(RwLock<HashMap<u32, (u32, u64)>>);

impl Lives {
    /// What the kernel is told beside an inode's number.
    pub fn of(&self, found: &Attributes) -> Generation {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        told(&all, Node::from(found))
    }

    /// Makes something, while nothing is removed; with what is told of it.
    pub fn begin(
        &self,
        make: impl FnOnce() -> Result<Attributes, Errno>,
    ) -> Result<(Attributes, Generation), Errno> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let made = make()?;
        let generation = told(&all, Node::from(&made));
        Ok((made, generation))
    }

    /// Removes a directory, and notes which it was, if it was one.
    pub fn end(&self, remove: impl FnOnce() -> Result<Option<Node>, Errno>) -> Result<(), Errno> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(removed) = remove()? else {
            return Ok(());
        };
        let life = all.entry(removed.number).or_default();
        match life.0 == removed.generation {
            true => life.1 += 1,
            false => *life = (removed.generation, 1),
        }
        Ok(())
    }
}

fn told(all: &HashMap<u32, (u32, u64)>, node: Node) -> Generation {
    match all.get(&node.number) {
        Some((generation, lives)) if *generation == node.generation => Generation(*lives),
        _ => Generation(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_one_is_another() {
        let lives = Lives::default();
        let found = |inode, generation| Attributes {
            inode,
            generation,
            ..Attributes::default()
        };
        let of = |inode, generation| lives.of(&found(inode, generation)).0;
        let end = |number, generation| {
            lives.end(|| Ok(Some(Node { number, generation }))).unwrap();
        };
        assert_eq!(of(5, 1), 0);
        end(5, 1);
        end(5, 1);
        assert_eq!((of(5, 1), of(6, 1), of(5, 2)), (2, 0, 0));
        assert_eq!(lives.begin(|| Ok(found(5, 1))).unwrap().1.0, 2);
        end(5, 2);
        assert_eq!((of(5, 2), of(5, 1)), (1, 0));
        assert_eq!(lives.end(|| Err(Errno::NOTEMPTY)), Err(Errno::NOTEMPTY));
        assert_eq!(of(5, 2), 1);
    }
}
