//! Names that change together: files that are created with their contents, and names taken away, all of
//! them by one store.
//!
//! # Invariants
//! * What a file is created with is stored before ([`Contents`]). It is the caller's until the file may be
//!   created, however often the attempt is made, and the file's from then on.
//! * The records of names that change together lie behind one word of their directory's delta, so that
//!   a crash, or a fold, finds all of them or none; a record that is alone is valid by itself.

mod contents;
mod successor;
mod uncommitted;

pub use contents::Contents;
pub(super) use contents::Said;
pub use successor::Successor;

use super::Context;
use crate::changing::{Confirmed, Expected, Published};
use crate::delta::{self, pages_for};
use crate::names::lookup::{Before, Found};
use crate::need::{Attempt, Need, Stop};
use crate::views::locks::Locked;
use crate::views::times::now;
use crate::views::{CachedInode, Directory, flag};
use arck_core_state::FileKind;
use arck_core_state::record::{Record, RecordRef, effect};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use uncommitted::{Conceived, Ready};

/// A name that changes, as [looked at](Context::look_at) before its directory is locked.
pub struct Change<'n> {
    name: &'n [u8],
    before: Before,
    found: Found,
    /// What has the name now.
    pub victim: Option<&'static CachedInode>,
}

impl Context<'_> {
    /// Looks at a name that is going to change. EISDIR of a directory; ENOENT where `directory` is removed itself.
    pub fn look_at<'n>(&self, directory: Directory, name: &'n [u8]) -> Attempt<Change<'n>> {
        if directory.has(flag::UNLINKED) {
            return Err(Errno::NOENT.into());
        }
        let before = Before::of(self, directory, self.hash(name));
        let found = self.lookup(directory, name)?;
        let view = |dentry: arck_core_state::directory::Dentry| match dentry.kind {
            FileKind::Directory => Err(Errno::ISDIR.into()),
            _ => self.view_of(directory, name, dentry),
        };
        let victim = found.dentry.map(view).transpose()?;
        Ok(Change {
            name,
            before,
            found,
            victim,
        })
    }

    /// Changes names of one directory together: each leads to its successor then, which is created, or to
    /// nothing. What had the name loses it, and stays with those who have it open or by another name.
    /// Names are different from each other; one that there is not is not taken away.
    ///
    /// The end of a call: what is created is given once. The only lock that is waited for is that of the directory,
    /// or of the one name ([`lock_names`](crate::views::Viewing::lock_names)).
    pub fn change_together(
        &self,
        directory: Directory,
        changes: &mut [Change<'_>],
        successors: &mut [Option<Successor>],
    ) -> Attempt<()> {
        self.change_together_if(directory, changes, successors, || Ok(()))
    }

    /// The same, if `holds` says so where no other session and no other thread changes these names. It may look at others of
    /// the directory, and waits for nothing.
    pub fn change_together_if(
        &self,
        directory: Directory,
        changes: &mut [Change<'_>],
        successors: &mut [Option<Successor>],
        holds: impl FnOnce() -> Attempt<()>,
    ) -> Attempt<()> {
        self.publish_together(directory, changes, successors, holds)?;
        for victim in changes.iter().filter_map(|change| change.victim) {
            self.dispose(victim);
        }
        Ok(())
    }

    fn publish_together(
        &self,
        directory: Directory,
        changes: &mut [Change<'_>],
        successors: &mut [Option<Successor>],
        holds: impl FnOnce() -> Attempt<()>,
    ) -> Attempt<()> {
        for successor in successors.iter().flatten() {
            successor.contents.expect_own()?;
        }
        let _locked = match changes {
            [one] => self.lock_names(directory, one.found.hash),
            _ => Locked::Whole {
                _lock: self.lock_now(directory.inode())?,
            },
        };
        let expected = self.begin_change(&directory)?;
        let time = now();
        let mut prepared = Vec::with_capacity(changes.len());
        let mut conceived: Vec<Conceived<'_, '_>> = Vec::with_capacity(changes.len());
        for (change, successor) in changes.iter_mut().zip(successors.iter_mut()) {
            if change.before != Before::of(self, directory, change.found.hash) {
                let then = change.found.dentry;
                change.found = self.lookup(directory, change.name)?;
                if change.found.dentry != then {
                    return Err(Need::Again.into());
                }
            }
            let adds = successor.is_some();
            prepared.push(self.prepare_overlay(directory, change.name, &change.found, adds)?);
            if let Some(successor) = successor {
                conceived.push(self.conceive_with(directory, successor, time)?);
            }
        }
        holds()?;
        let mut ready = Ready::all(conceived, successors);
        let mut unnamed = ready.iter_mut();
        let mut records: Vec<delta::Ready<'_>> = Vec::with_capacity(changes.len());
        for (change, successor) in changes.iter().zip(successors.iter()) {
            let created = successor
                .as_ref()
                .and_then(|successor| Some((successor, unnamed.next()?)));
            match created {
                Some((successor, child)) => {
                    let replaces = |record| change.replacing(record, time);
                    records.push(child.record(change.name, &successor.contents, replaces)?);
                }
                None if change.victim.is_none() => {}
                None => records.push(delta::Ready::removal(change.removing(time))),
            }
        }
        let is_one = records.len() == 1;
        let committed = match records.pop() {
            None => return Ok(()),
            Some(record) if is_one => self
                .commit_record(
                    directory,
                    &expected,
                    record,
                    &[(directory.inode(), expected)],
                    time,
                )
                .map(|(reference, confirmed)| (vec![reference], confirmed)),
            Some(last) => {
                records.push(last);
                self.commit_records(directory, &expected, &mut records, time)
            }
        };
        drop(records);
        match committed {
            // Taken back, or missed by a fold.
            Err(Stop::Need(_)) => ready.iter_mut().for_each(Ready::is_uncommitted),
            _ => successors
                .iter_mut()
                .flatten()
                .for_each(|successor| successor.contents.are_given()),
        }
        let (references, confirmed) = committed?;
        if confirmed == Confirmed::Folded {
            return Ok(());
        }
        let (mut references, mut created) = (references.into_iter(), ready.iter());
        let all = changes.iter().zip(successors.iter()).zip(prepared);
        for ((change, successor), memory) in all {
            let child = successor.as_ref().and_then(|_| created.next());
            if child.is_none() && change.victim.is_none() {
                continue;
            }
            let reference: RecordRef = references.next().ok_or(Errno::IO)?;
            if let Some(victim) = change.victim {
                victim.links_will_change();
            }
            let now = child.map(|child| (child.dentry(), reference));
            self.set_overlay(directory, change.name, &change.found, now, memory);
            self.count_names(
                directory,
                i32::from(child.is_some()) - i32::from(change.found.dentry.is_some()),
            );
            if let Some(victim) = change.victim {
                victim.changed_at(time);
                victim.links_have_changed(-1);
            }
        }
        Ok(())
    }

    /// As [`Context::commit_record`], of several records of one directory: all of them are there
    /// after a crash or a fold, or none is. Under the whole directory's lock.
    fn commit_records(
        &self,
        directory: Directory,
        expected: &Expected,
        records: &mut [delta::Ready<'_>],
        time: i64,
    ) -> Attempt<(Vec<RecordRef>, Confirmed)> {
        self.expect_reached()?;
        let mut branch = self.branch(directory.inode(), expected)?;
        let own = self.own_shard(directory);
        let shard = own.shard;
        self.expect_few_pages(directory, &own, true)?;
        let pages = self.take_pages_for(records)?;
        let mut tail = shard.tail();
        let mut sequence = shard.sequence.load(Ordering::Relaxed);
        for record in records.iter_mut() {
            sequence = sequence.wrapping_add(own.apart);
            record.set_sequence(sequence);
        }
        shard.sequence.store(sequence, Ordering::Relaxed);
        let tails = match tail.page {
            0 => self.lock_branch(directory.inode()),
            _ => None,
        };
        let linked = delta::append_linked(
            self.session,
            &mut branch,
            own.place,
            &mut tail,
            &pages,
            directory.number(),
            expected.fold,
            records,
        )?;
        drop(tails);
        if let (0, Some(&first)) = (shard.tail_first.load(Ordering::Relaxed), pages.first()) {
            shard.tail_first.store(first, Ordering::Relaxed);
            self.waits_to_be_folded(directory);
        }
        shard.set_tail(tail, pages.len() as u32);
        self.fold_ahead(directory, &own, pages.len() as u32, true);
        shard.set_only_removes(false);
        let stamp = self.stamp(directory.inode(), &branch, time)?;
        let (committed, stamped) = branch.fence((linked.stored, stamp.stored));
        drop(own);
        let published = Published {
            offset: linked.offset,
            word: linked.word,
            before: linked.before,
            length: 8,
        };
        let confirmed = self.confirm(&[(directory.inode(), *expected)], published, committed)?;
        directory.stamped(stamp.time, stamped);
        Ok((linked.references, confirmed))
    }

    /// The arena pages that these records need. All or none.
    fn take_pages_for(&self, records: &[delta::Ready<'_>]) -> Result<Vec<u32>, Need> {
        let arena = &self.session.state().arena;
        let count = pages_for(records);
        let mut pages = Vec::with_capacity(count);
        while pages.len() < count {
            match arena.take(self.session, self.slot()) {
                Ok(page) => pages.push(page),
                Err(need) => {
                    for page in pages {
                        arena.release(self.session, self.slot(), page);
                    }
                    return Err(need.of_pages(count));
                }
            }
        }
        Ok(pages)
    }
}

impl<'n> Change<'n> {
    /// The record takes the name from what has it.
    fn replacing(&self, mut record: Record<'n>, time: i64) -> Record<'n> {
        if self.found.dentry.is_none() {
            return record;
        }
        record.changed = Some(time);
        if self.found.record.unit != 0 {
            record.state |= effect::KILL_TARGET;
            record.kills[1] = self.found.record;
        } else {
            record.state |= effect::REPLACE;
        }
        record
    }

    fn removing(&self, time: i64) -> Record<'n> {
        let mut record = Record {
            changed: Some(time),
            ..Record::of_nothing()
        };
        if self.found.record.unit != 0 {
            record.state = effect::KILL_SOURCE;
            record.kills[0] = self.found.record;
        } else {
            record.state = effect::REMOVE_SOURCE;
            record.source = self.name;
        }
        record
    }
}
