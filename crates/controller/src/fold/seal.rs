//! Sealed deltas (DESIGN section 5): the owner of a directory goes on while what it has done there is folded.
//!
//! A fold marks its set, waits and copies. What takes longest, verification and application, comes after the *seal*: in
//! one commit the header of each directory says under which number and in which slot its delta is sealed, and
//! gets another number and slot, under which the owner goes on. Then its mark goes. All else of the set, and what
//! the sealed deltas name that is uncommitted, stays marked until the sealed deltas are verified state. (So what is
//! sealed is a memtable, and what the owner goes on with another one.)
//!
//! What is small is verified first, and sealed when it was found to be right: who is refused then can mend it, which he
//! cannot when it is sealed.
//!
//! # Invariants
//! * A sealed delta is whole: no operation was in flight when it was copied, and nobody publishes in it any more. It
//!   is folded before anything else of its session. If it is refused, it goes with what came on top of it.
//! * To the owner it is as good as verified: what it does now refers to what is sealed by name, never by place.
//! * What is uncommitted in a sealed delta is marked before its directory's mark goes: its owner, who could end
//!   it and use its number again, waits.
//! * Nothing is sealed for which there may be no room: its pages that add something are within the session's credits,
//!   and the journal has room for the entry. Where applying fails all the same, all but the sealed directories stays
//!   marked, and it is tried again ([`RETRY`]).
//! * Recovery finds what is sealed in the headers, and folds it first; of a session that lives on, what was marked
//!   stays so until then.

use crate::fold::Folding;
use crate::fold::copied::Copied;
use crate::fold::folding::{After, Failure, Seals};
use crate::fold::refusals::OTHERS_MAX;
use crate::sessions::owned::Owned;
use crate::state::change::{Change, Weight};
use crate::state::marks::unmark;
use crate::state::tables::State;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, InodeNumber};
use arck_pm::record::stored;
use arck_protocol::operation::mark;
use arck_verifier::{CopiedDelta, removed_last};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// What is sealed and could not be applied is tried again after so long.
const RETRY: Duration = Duration::from_millis(500);
/// Bytes of the journal's entry for each delta page, by a good measure: 31 names, each with words of pages, inodes, headers
/// and bitmaps.
const ENTRY_BYTES: u64 = 31 * 256;
/// A journal is not made longer than this for a fold that seals: what has more is folded while it is marked.
const JOURNAL_BYTES: u64 = 16 << 20;

impl Folding<'_> {
    /// Whether a session has something sealed.
    pub(super) fn is_sealed(&self, owner: SessionNumber) -> bool {
        let session = self.sessions.all.get(&owner);
        session.is_some_and(|session| !session.sealed.is_empty())
    }

    /// Whether the session has credits for what a set adds. Pages on which names only go need none.
    pub(super) fn is_within_credits(&self, owner: SessionNumber, copied: &Copied) -> bool {
        let room = self.sessions.all.get(&owner).map_or(0, |s| s.credits());
        let adding = || copied.deltas.iter().map(CopiedDelta::pages_that_add);
        copied.pages() as u64 <= room || adding().sum::<usize>() as u64 <= room
    }

    /// Seals the directories of a set that was copied, if that is worth it and can be done, and takes their marks away.
    /// What they name and is uncommitted is marked: that, so that who is done with the set takes it away.
    pub(super) fn seal(&mut self, owner: SessionNumber, copied: &Copied) -> Vec<InodeNumber> {
        let pages = copied.pages();
        if pages < self.sessions.options.seal_pages
            || copied.straddled
            || self.sessions.state.pool.is_paged()
            || !self.is_within_credits(owner, copied)
        {
            return Vec::new();
        }
        let candidates = copied.deltas.iter().filter(|delta| can_be_sealed(delta));
        // A directory that dies with the fold is no more when it is folded.
        let dying = match copied.deltas.len() {
            1 => Vec::new(),
            _ => removed_last(&copied.deltas, &self.sessions.state),
        };
        let candidates = candidates.filter(|delta| !dying.contains(&delta.inode));
        let candidates: Vec<&CopiedDelta> = candidates.collect();
        let state = &mut self.sessions.state;
        let Some(session) = self.sessions.all.get_mut(&owner) else {
            return Vec::new();
        };
        // Nobody would go on.
        if session.live.is_none() || !session.sealed.is_empty() {
            return Vec::new();
        }
        let entry = pages as u64 * ENTRY_BYTES;
        let State { pool, journal, .. } = &mut *state;
        if entry > JOURNAL_BYTES || pool.with_room(|| journal.reserve(entry)).is_err() {
            return Vec::new();
        }
        let mut sealed: Vec<(InodeNumber, u32)> = Vec::new();
        for delta in &candidates {
            let owned = session.owned.get_mut(delta.inode);
            let spare = owned.and_then(Owned::take_spare);
            if let Some(slot) = spare.or_else(|| session.take_slot().ok()) {
                sealed.push((delta.inode, slot));
            }
        }
        if sealed.is_empty() {
            return Vec::new();
        }
        let mut born = Vec::new();
        for delta in candidates {
            for number in delta.inodes_added() {
                let Some(header) = state.pool.header(number) else {
                    continue;
                };
                let copy = header.copy();
                if copy.kind == HeaderKind::Granted && copy.ownership.session() == owner {
                    mark(header);
                    stored(&header.ownership);
                    born.push(number);
                }
            }
        }
        let mut change = Change::new(state);
        let mut put = || {
            for &(number, slot) in &sealed {
                let fold = change.state.numbers.fold();
                let header = change.header(number)?;
                header.sealed = std::mem::replace(&mut header.fold, fold);
                header.sealed_slot = std::mem::replace(&mut header.branch_slot, slot);
            }
            Ok::<(), Errno>(())
        };
        let put = put().and_then(|()| change.commit(Weight::Ownership));
        if put.is_err() {
            // Nothing has changed: it is folded while it is marked.
            for &(_, slot) in &sealed {
                session.arena.free_slot(slot);
            }
            unmark(
                state,
                born.iter().filter(|number| !copied.set.contains(**number)),
            );
            return Vec::new();
        }
        for &(number, slot) in &sealed {
            if let Some(owned) = session.owned.get_mut(number) {
                owned.slot = slot;
            }
            session.sealed.push(number);
        }
        state.crash_point("sealed");
        born
    }

    /// Folds what is sealed of a session, if anything is.
    pub(crate) fn finish_sealed(&mut self, owner: SessionNumber) -> Result<(), Failure> {
        if !self.is_sealed(owner) {
            return Ok(());
        }
        self.finish(owner)?;
        self.unmark_owned(owner);
        Ok(())
    }

    /// What was sealed before it was verified was not folded. If that is since it was refused, it is taken away, with
    /// what came on top of it, and what else is sealed is folded. Gives the inode that was refused.
    pub(super) fn refuse_sealed(
        &mut self,
        owner: SessionNumber,
        failure: &Failure,
    ) -> Option<InodeNumber> {
        let (Failure::Violation(violation) | Failure::Quiescing(violation)) = failure else {
            // It is tried again.
            return None;
        };
        self.take_away(owner, violation.inode, failure);
        // Else it is tried again.
        let _ = self.finish_sealed(owner);
        if !self.is_sealed(owner) {
            self.unmark_owned(owner);
        }
        Some(violation.inode)
    }

    /// Of a session of which nothing is sealed any more: some may have been marked for what was taken away instead.
    fn unmark_owned(&mut self, owner: SessionNumber) {
        if let Some(session) = self.sessions.all.get(&owner) {
            let owned: Vec<InodeNumber> = session.owned.numbers().collect();
            unmark(&self.sessions.state, &owned);
        }
    }

    fn finish(&mut self, owner: SessionNumber) -> Result<(), Failure> {
        for _ in 0..=OTHERS_MAX {
            let session = self.sessions.all.get(&owner);
            let sealed = session.map_or(Vec::new(), |session| session.sealed.clone());
            if sealed.is_empty() {
                return Ok(());
            }
            let folded = self.fold_set(owner, &sealed, After::Keep, Seals::Nothing, |_, _| Ok(()));
            match folded {
                // What is refused takes along what came on top of it.
                Err(failure @ (Failure::Violation(_) | Failure::Quiescing(_))) => {
                    let (Failure::Violation(violation) | Failure::Quiescing(violation)) = &failure
                    else {
                        return Err(failure);
                    };
                    let guilty = violation.inode;
                    self.take_away(owner, guilty, &failure);
                }
                other => return other,
            }
        }
        self.take_away_sealed(owner, Errno::IO);
        Ok(())
    }

    /// Takes all away that is sealed; false if nothing is.
    pub(crate) fn take_away_sealed(&mut self, owner: SessionNumber, why: Errno) -> bool {
        let session = self.sessions.all.get(&owner);
        let sealed = session.map_or(Vec::new(), |session| session.sealed.clone());
        for &number in &sealed {
            self.take_away(owner, number, &Failure::Errno(why));
        }
        !sealed.is_empty()
    }

    /// Notes that it is to be tried again to fold what is sealed: once, however often that was tried in vain.
    pub(super) fn finish_later(&mut self, owner: SessionNumber) {
        if !self.folds.sealed.iter().any(|&(_, other)| other == owner) {
            self.folds.sealed.insert((Instant::now() + RETRY, owner));
        }
    }

    /// Tries to fold what is sealed, where that is due; whether anything was.
    pub(crate) fn finish_due(&mut self) -> bool {
        let mut was_due = false;
        while let Some(&(due, owner)) = self.folds.sealed.first()
            && due <= Instant::now()
        {
            self.folds.sealed.pop_first();
            was_due = true;
            if let Err(failure) = self.finish_sealed(owner) {
                tracing::warn!("what session {owner} has done waits to be folded: {failure}");
            }
        }
        was_due
    }
}

/// Whether an owner can go on beside this delta: names alone are looked for in two deltas.
fn can_be_sealed(delta: &CopiedDelta) -> bool {
    let header = &delta.header;
    header.kind == HeaderKind::Alive
        // It is no more when it is folded.
        && !header.ownership.is_refused()
        && header.file_kind == Some(FileKind::Directory)
        && header.sealed == 0
        && delta.branch.attributes == 0
        && delta.branch.tails.iter().any(|&page| page != 0)
}

#[cfg(test)]
mod tests {
    use crate::testing::TestCore;

    /// # Regression
    /// Each attempt in vain left another one to come: a session that asked a thousand times had its controller try
    /// for ever, and answer nobody.
    #[test]
    fn what_is_tried_in_vain_is_tried_again_once() {
        let mut test = TestCore::new();
        let [one, other] = [0, 0].map(|user| test.session(user, &[0]));
        for _ in 0..3 {
            test.core.folding().finish_later(one);
            test.core.folding().finish_later(other);
        }
        let owners = test.core.folds.sealed.iter().map(|&(_, owner)| owner);
        assert_eq!(owners.collect::<Vec<_>>(), [one, other]);
    }
}
