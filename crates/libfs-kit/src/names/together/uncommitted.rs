//! Inodes on their way: conceived, then durable, then named by a record.
//!
//! # Invariants
//! * A record names what is durable: only [`Ready`] gives one, and only a fence makes it.
//! * What no record names is as if it had never been: its branch ends, durably, before its number is used for
//!   anything else, or its contents are ([`Contents`] keeps both together).

use super::contents::{Contents, Said};
use super::successor::Successor;
use crate::delta::{self, Begun, Created};
use crate::names::Context;
use crate::need::{Attempt, Need};
use crate::views::locks::Whole;
use crate::views::{CachedInode, Directory, File, begun, links};
use arck_core_state::FileKind;
use arck_core_state::directory::Dentry;
use arck_core_state::record::{Record, effect};
use arck_pm::{Durable, Flushed, order};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

/// An inode about to be created, locked. That it holds what it does is not durable yet.
pub(super) struct Conceived<'c, 'a> {
    uncommitted: Uncommitted<'c, 'a>,
    begun: Option<Flushed<Begun>>,
}

/// What was conceived, durably: a record may name it.
pub(super) struct Ready<'c, 'a> {
    uncommitted: Uncommitted<'c, 'a>,
    /// Of what has contents.
    begun: Option<Durable<Begun>>,
}

struct Uncommitted<'c, 'a> {
    context: &'c Context<'a>,
    inode: &'static CachedInode,
    said: Option<Said>,
    kind: FileKind,
    /// Its record may be there.
    may_be_created: bool,
    _locked: Whole,
}

impl<'c, 'a> Ready<'c, 'a> {
    /// Makes all of them durable, with what they hold, by one fence.
    pub fn all(
        conceived: Vec<Conceived<'c, 'a>>,
        successors: &mut [Option<Successor>],
    ) -> Vec<Ready<'c, 'a>> {
        let (uncommitted, begun): (Vec<_>, Vec<_>) = conceived
            .into_iter()
            .map(|conceived| (conceived.uncommitted, conceived.begun))
            .unzip();
        let mut durable = Vec::new();
        if uncommitted
            .iter()
            .any(|uncommitted| uncommitted.said.is_some())
        {
            let all = successors.iter_mut().flatten();
            let stored: Vec<_> = all.map(|one| one.contents.stored.take()).collect();
            let (stored, begun) = order::fence((stored, begun));
            for (successor, stored) in successors.iter_mut().flatten().zip(stored) {
                // In an attempt before this one they may have been fenced already.
                let contents = &mut successor.contents;
                contents.durable = stored.or(contents.durable.take());
            }
            durable = begun;
        }
        let mut durable = durable.into_iter();
        let ready = |uncommitted: Uncommitted<'c, 'a>| {
            if let Some(said) = uncommitted.said
                && let Ok(file) = File::of(uncommitted.inode)
            {
                uncommitted.context.has_from_creation(file, said);
            }
            // Nobody finds it before a name leads to it.
            uncommitted
                .inode
                .link_delta
                .store(links(1), Ordering::Relaxed);
            let begun = durable.next().flatten();
            Ready { uncommitted, begun }
        };
        uncommitted.into_iter().map(ready).collect()
    }

    /// The record that gives it its first name, by which it `replaces` what has that. From here on it may be
    /// created, until an attempt says that it is not.
    pub fn record<'n>(
        &mut self,
        name: &'n [u8],
        contents: &Contents,
        replaces: impl FnOnce(Record<'n>) -> Record<'n>,
    ) -> Result<delta::Ready<'n>, Errno> {
        let uncommitted = &mut self.uncommitted;
        let inode = uncommitted.inode;
        let field = |field: &AtomicU32| field.load(Ordering::Relaxed);
        let record = Record {
            state: effect::ADD,
            kind: uncommitted.kind,
            inode: inode.number(),
            generation: inode.generation(),
            mode: field(&inode.mode) & 0o7777,
            uid: field(&inode.uid),
            gid: field(&inode.gid),
            created: inode.created.load(Ordering::Relaxed) as i64,
            name,
            ..Record::of_nothing()
        };
        let created = match uncommitted.said {
            None => Created::Empty,
            Some(_) => Created::With(
                contents.durable.as_ref().ok_or(Errno::IO)?,
                self.begun.as_ref().ok_or(Errno::IO)?,
            ),
        };
        let ready = delta::Ready::creation(replaces(record), created)?;
        uncommitted.may_be_created = true;
        Ok(ready)
    }

    /// The record was not published, was taken back, or was missed by a fold: after a [`Need`], and not
    /// after a failure, which leaves that open.
    pub fn is_uncommitted(&mut self) {
        self.uncommitted.may_be_created = false;
    }

    pub fn dentry(&self) -> Dentry {
        Dentry {
            inode: self.uncommitted.inode.number(),
            generation: self.uncommitted.inode.generation(),
            kind: self.uncommitted.kind,
        }
    }
}

impl Drop for Uncommitted<'_, '_> {
    fn drop(&mut self) {
        if self.may_be_created {
            return;
        }
        if let Ok(file) = File::of(self.inode) {
            file.part().root.store(0, Ordering::Release);
        }
        self.inode.branch.store(begun::NOT, Ordering::Release);
        if self.said.is_none() {
            self.context.give_number_back(self.inode.number());
        }
    }
}

impl<'a> Context<'a> {
    /// Conceives what will be named in `directory`. Under the directory's lock, inside an operation.
    pub(super) fn conceive_with<'c>(
        &'c self,
        directory: Directory,
        successor: &mut Successor,
        time: i64,
    ) -> Attempt<Conceived<'c, 'a>> {
        let number = successor.contents.number(self)?;
        let said = successor.contents.said();
        let header = self.header(number)?;
        if header.ownership().session() != self.session.number() {
            // No longer granted to us: left for good.
            return Err(Need::Again.into());
        }
        let (inode, _, locked) = match self.conceive(directory, successor.creation, number, time) {
            Ok(conceived) => conceived,
            Err(stop) => {
                if said.is_none() {
                    self.give_number_back(number);
                }
                return Err(stop);
            }
        };
        let uncommitted = Uncommitted {
            context: self,
            inode,
            said,
            kind: successor.creation.kind,
            may_be_created: false,
            _locked: locked,
        };
        let begin = |said| self.begin_with(inode, &inode.expected(), said, time);
        let begun = uncommitted.said.map(begin).transpose()?;
        Ok(Conceived { uncommitted, begun })
    }
}
