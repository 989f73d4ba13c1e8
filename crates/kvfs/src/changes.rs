//! Changes of keys: values set and keys taken away, several at once.
//!
//! Invariant: values are stored before the directory is locked, once for a call, however often its attempt
//! is made again.

use crate::{Error, Here, Store, VALUE_MAX, check_key, is_file};
use arck_libfs_kit::engine::{Alone, Attempt, Context, Engine};
use arck_libfs_kit::names::creations::Creation;
use arck_libfs_kit::names::directories::may_remove;
use arck_libfs_kit::names::together::{Contents, Successor};
use arck_libfs_kit::views::{CachedInode, Directory};
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

    /// None yet.
    pub fn new() -> Batch<'b> {
        Batch::default()
    }

    /// Gives a key a value, as [`Store::set`].
    pub fn set(&mut self, key: &'b [u8], value: &'b [u8]) -> &mut Self {
        self.0.insert(key, Some(value));
        self
    }

    /// Takes a key away, as [`Store::delete`].
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
        let changes = batch.0.iter().map(|(&key, &value)| (key, value));
        self.change(&changes.collect::<Vec<_>>())
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
        let made = self.run(&at, |context, here| {
            self.attempt(context, here, changes, &mut successors, &at)
        })?;
        Engine::new(self.here.last().session, &Alone).give_back();
        Ok(made)
    }

    /// One attempt; `at`: the key that it has come to.
    fn attempt<'b>(
        &self,
        context: &Context<'_>,
        here: &Here,
        changes: &[(&'b [u8], Option<&[u8]>)],
        successors: &mut [Option<Successor>],
        at: &Cell<&'b [u8]>,
    ) -> Attempt<usize> {
        let directory = context.view_to_change(here.directory.0, here.directory.1)?;
        let directory = Directory::of(directory)?;
        let user = here.create.owner.0;
        let mut looked = Vec::with_capacity(changes.len());
        for (key, _) in changes {
            at.set(key);
            let change = context.look_at(directory, key)?;
            if let Some(victim) = change.victim {
                is_file(victim.kind().ok_or(Errno::IO)?)?;
                // Who did not heed this would lose what he has changed.
                if !may_remove(&directory, victim, user) && user != 0 {
                    return Err(Errno::PERM.into());
                }
            }
            looked.push(change);
        }
        let there = looked.iter().filter(|one| one.victim.is_some()).count();
        if there == 0 && changes.iter().all(|(_, value)| value.is_none()) {
            return Ok(0);
        }
        // Before anything is stored in vain.
        context.expect_own(directory.inode())?;
        let all = changes.iter().zip(&looked).zip(successors.iter_mut());
        for (((_, value), one), successor) in all {
            let creation = creation_after(here.create, one.victim);
            match (value, &mut *successor) {
                (Some(_), Some(stored)) => stored.creation = creation,
                (Some(value), None) => {
                    let contents = Contents::store(context, value)?;
                    *successor = Some(Successor { creation, contents });
                }
                (None, _) => {}
            }
        }
        context.change_together(directory, &mut looked, successors)?;
        Ok(there)
    }
}

/// What the file after is like: the permission bits of the one before stay, but those for a group that is
/// another one now.
fn creation_after(mut new: Creation<'static>, victim: Option<&CachedInode>) -> Creation<'static> {
    if let Some(victim) = victim {
        new.mode = victim.mode.load(Ordering::Relaxed) & 0o777;
        if victim.gid.load(Ordering::Relaxed) != new.owner.1 {
            new.mode &= !0o070;
        }
    }
    new
}
