//! Records: what changes names, appended to a directory's delta.
//!
//! # Invariants
//! * An operation commits by one store: a record that becomes valid, or an effect of a record
//!   taken back. What a record refers to is durable before.
//! * No two records of a directory have one sequence number.

use super::Context;
use crate::changing::{Confirmed, Expected, Published};
use crate::delta::{self, Ready, Tail};
use crate::need::Attempt;
use crate::views::{CachedInode, Directory, Shard};
use arck_core_state::record::{Record, RecordRef, effect};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

impl Context<'_> {
    /// That there is a place for a record, before anything is changed that goes with it.
    pub fn expect_place(&self, directory: Directory, record: &Record<'_>) -> Attempt<()> {
        let own = self.own_shard(directory);
        if has_place(own.shard, &own.shard.tail(), record) {
            return Ok(());
        }
        let arena = &self.session.state().arena;
        let page = arena.take(self.session, self.slot())?;
        arena.release(self.session, self.slot(), page);
        Ok(())
    }

    /// Appends a record to a directory's delta, stamps the directory, makes both durable, and
    /// looks at the headers again. `involved`: the directory first, then what else the record
    /// speaks of. Under the locks of all of them.
    pub fn commit_record(
        &self,
        directory: Directory,
        expected: &Expected,
        mut record: Ready<'_>,
        involved: &[(&CachedInode, Expected)],
        time: i64,
    ) -> Attempt<(RecordRef, Confirmed)> {
        let session = self.session;
        let stock = session.state();
        self.expect_reached()?;
        let mut branch = self.branch(directory.inode(), expected)?;
        let own = self.own_shard(directory);
        let shard = own.shard;
        let mut tail = shard.tail();
        let mut fresh = None;
        let adds = record.record().state & effect::ADD != 0;
        if !has_place(shard, &tail, record.record()) {
            self.expect_few_pages(directory, &own, adds)?;
            // What only takes names away makes room, and must be possible where there is none.
            let taken = match adds {
                true => stock
                    .arena
                    .take(session, self.slot())
                    .map(|page| (page, true)),
                false => stock.arena.take_for_removal(session, self.slot()),
            };
            match taken {
                Ok((page, may_add)) => {
                    fresh = Some(page);
                    shard.set_only_removes(!may_add);
                }
                Err(need) => return Err(need.into()),
            }
        }
        let last = shard.sequence.load(Ordering::Relaxed);
        let sequence = last.wrapping_add(own.apart);
        record.set_sequence(sequence);
        shard.sequence.store(sequence, Ordering::Relaxed);
        let tails = if tail.page == 0 {
            self.lock_branch(directory.inode())
        } else {
            None
        };
        let (reference, stored) = delta::append_record(
            session,
            &mut branch,
            own.place,
            &mut tail,
            fresh,
            directory.number(),
            expected.fold,
            &record,
        )?;
        drop(tails);
        if shard.tail_first.load(Ordering::Relaxed) == 0 {
            shard.tail_first.store(tail.page, Ordering::Relaxed);
            self.waits_to_be_folded(directory);
        }
        shard.set_tail(tail, u32::from(fresh.is_some()));
        if fresh.is_some() {
            self.fold_ahead(directory, &own, 1, adds);
        }
        let stamp = self.stamp(directory.inode(), &branch, time)?;
        let (committed, stamped) = branch.fence((stored, stamp.stored));
        drop(own);
        let offset = u64::from(reference.unit) * 64;
        let word = session
            .arena_at(offset as usize)
            .load_u64(offset as usize, Ordering::Acquire)
            .ok_or(Errno::IO)?;
        // A record without effects says nothing.
        let before = word & u64::from(u32::MAX);
        let confirmed = self.confirm(
            involved,
            Published {
                offset,
                word,
                before,
                length: record.record().units() * 64,
            },
            committed,
        )?;
        directory.stamped(stamp.time, stamped);
        Ok((reference, confirmed))
    }
}

/// Whether a record fits into the last page of a stripe's tail, and may stand there.
fn has_place(shard: &Shard, tail: &Tail, record: &Record<'_>) -> bool {
    let adds = record.state & effect::ADD != 0;
    tail.has_room(record.units()) && !(adds && shard.only_removes())
}
