//! Changes of keys: values set and keys taken away, several at once.
//!
//! Invariant: values are stored before the directory is locked, once for a call, however often its attempt
//! is made again.

use crate::{Error, Store, VALUE_MAX, birth, check_key, is_file};
use arck_libfs_kit::engine::{Attempt, Context, Need};
use arck_libfs_kit::names::births::Birth;
use arck_libfs_kit::names::together::{Contents, Successor};
use arck_libfs_kit::views::{CachedInode, flag};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Changes that are made together: after a crash all of them are there, or none is. Of two of one key the
/// later counts.
#[derive(Default, Debug)]
pub struct Batch<'b>(BTreeMap<&'b [u8], Option<&'b [u8]>>);

impl<'b> Batch<'b> {
    /// Changes at most.
    pub const MAX: usize = 256;

    pub fn new() -> Batch<'b> {
        Batch::default()
    }
    pub fn set(&mut self, key: &'b [u8], value: &'b [u8]) -> &mut Self {
        self.0.insert(key, Some(value));
        self
    }
    pub fn delete(&mut self, key: &'b [u8]) -> &mut Self {
        self.0.insert(key, None);
        self
    }
}

impl Store {
    /// Makes the changes of a batch; gives how many of its keys were there.
    pub fn apply(&self, batch: &Batch<'_>) -> Result<usize, Error> {
        let length = batch.0.len();
        if length > Batch::MAX {
            let (what, errno) = (format!("a batch of {length} changes"), Errno::TOOBIG);
            return Err(Error::System { what, errno });
        }
        self.change(
            &batch
                .0
                .iter()
                .map(|(&key, &value)| (key, value))
                .collect::<Vec<_>>(),
        )
    }

    /// The same of changes of different keys.
    pub(crate) fn change(&self, changes: &[(&[u8], Option<&[u8]>)]) -> Result<usize, Error> {
        for (key, value) in changes {
            check_key(key)?;
            if value.is_some_and(|value| value.len() > VALUE_MAX) {
                return Err(Error::of(key, Errno::FBIG));
            }
        }
        let Some(first) = changes.first() else {
            return Ok(0);
        };
        let at = Cell::new(first.0);
        let mut successors: Vec<_> = changes.iter().map(|_| None).collect();
        let made = self.run(&at, |context, directory| {
            let directory = context.view_to_change(directory.0, directory.1)?;
            self.attempt(context, directory, changes, &mut successors, &at)
        })?;
        if made != 0 {
            self.engine().give_back();
        }
        Ok(made)
    }

    /// One attempt; `at`: the key that it has come to.
    fn attempt<'b>(
        &self,
        context: &Context<'_>,
        directory: &'static CachedInode,
        changes: &[(&'b [u8], Option<&[u8]>)],
        successors: &mut [Option<Successor>],
        at: &Cell<&'b [u8]>,
    ) -> Attempt<usize> {
        if directory.has(flag::UNLINKED) {
            return Err(Errno::NOENT.into());
        }
        let mut looked = Vec::with_capacity(changes.len());
        for (key, _) in changes {
            at.set(key);
            let change = context.look_at(directory, key)?;
            if let Some(victim) = change.victim {
                is_file(victim.kind().ok_or(Errno::IO)?)?;
                self.may_remove(directory, victim)?;
            }
            looked.push(change);
        }
        let there = looked.iter().filter(|one| one.victim.is_some()).count();
        if there == 0 && changes.iter().all(|(_, value)| value.is_none()) {
            return Ok(0);
        }
        if directory.expected().ownership.session() != context.session.number() {
            // Before anything is stored in vain.
            return Err(Need::Own([directory.number(), 0, 0, 0]).into());
        }
        let all = changes.iter().zip(&looked).zip(successors.iter_mut());
        for (((_, value), one), successor) in all {
            let birth = self.birth_after(one.victim);
            match (value, &mut *successor) {
                (Some(_), Some(stored)) => stored.birth = birth,
                (Some(value), None) => {
                    let contents = Contents::store(context, value)?;
                    *successor = Some(Successor { birth, contents });
                }
                (None, _) => {}
            }
        }
        context.change_together(directory, &mut looked, successors)?;
        Ok(there)
    }

    /// Sticky directories: only the owner of a name's file or of the directory takes it away. Who did
    /// not heed this would lose what he has changed.
    fn may_remove(&self, directory: &CachedInode, victim: &CachedInode) -> Attempt<()> {
        let user = self.here().owner.0;
        let is_sticky = directory.mode.load(Ordering::Relaxed) & 0o1000 != 0;
        let has = |inode: &CachedInode| inode.uid.load(Ordering::Relaxed) == user;
        match !is_sticky || user == 0 || has(directory) || has(victim) {
            true => Ok(()),
            false => Err(Errno::PERM.into()),
        }
    }

    /// What the file after is like: the permission bits of the one before stay, but those for a group
    /// that is another one now.
    fn birth_after(&self, victim: Option<&CachedInode>) -> Birth<'static> {
        let mut birth = birth(&self.options, self.here().owner);
        if let Some(victim) = victim {
            birth.mode = victim.mode.load(Ordering::Relaxed) & 0o777;
            if victim.gid.load(Ordering::Relaxed) != birth.owner.1 {
                birth.mode &= !0o070;
            }
        }
        birth
    }
}
