//! Who may change what: grants of numbers, acquisition, recall, release, the end of a session.
//!
//! # Invariants
//! * An inode has one owner at most, and it is stored durably before the owner is told.
//! * Permission (I4) is checked against the shadow inode at the time of the grant.
//! * An inode is taken from an owner not before its lease is over, without its help, and only
//!   after its delta has been folded, or set aside if it cannot be.

use crate::fold::folding::{After, Failure};
use crate::fold::reply::Reply;
use crate::ownership::Owners;
use crate::sessions::Sessions;
use crate::sessions::arena::Grown;
use crate::sessions::session::OWNED_MAX;
use crate::state::change::{Change, Weight};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, InodeNumber, Mediation, Ownership, cast};
use arck_protocol::Response;
use arck_verifier::VerifiedState;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// An owner keeps an inode against other writers so many times as long as it took to fold it for the
/// owner, if that is longer than a lease.
const EARNED: u32 = 4;
/// But no longer than this.
const EARNED_MAX: Duration = Duration::from_millis(8);

/// A new epoch; epochs are compared for equality only, together with a fold number that is
/// never used twice.
pub fn ownership_for(session: SessionNumber, fold: u64) -> Ownership {
    Ownership::new(session, cast::low(fold))
}

impl Owners<'_> {
    /// Makes a session the owner of all of these inodes, or of none.
    pub fn acquire(&mut self, session: SessionNumber, inodes: &[InodeNumber]) -> Reply {
        match self.try_acquire(session, inodes) {
            Ok(reply) => reply,
            Err(errno) => errno.into(),
        }
    }

    fn try_acquire(
        &mut self,
        session: SessionNumber,
        inodes: &[InodeNumber],
    ) -> Result<Reply, Errno> {
        let mut others: BTreeMap<SessionNumber, Vec<InodeNumber>> = BTreeMap::new();
        let mut not_before: Option<Instant> = None;
        for &number in inodes {
            let owner = self
                .sessions
                .check_own(session, number)?
                .ownership
                .session();
            if owner == session {
                continue;
            }
            // A session that is away may have a map of a file, which counts only when it is back.
            let kind = self
                .sessions
                .state
                .inode(number)
                .and_then(|inode| inode.kind());
            if kind == Some(FileKind::File) || self.sessions.owner_is_away(owner) {
                not_before = not_before.max(self.sessions.put_off_for_away());
            }
            if owner == 0 {
                continue;
            }
            others.entry(owner).or_default().push(number);
            if let Some(owned) = self
                .sessions
                .all
                .get(&owner)
                .and_then(|other| other.owned.get(number))
            {
                let earned = owned.rest().map_or(Duration::ZERO, |rest| rest.earned);
                let lease = self.sessions.options.lease.max(earned);
                not_before = not_before.max(Some(owned.since + lease));
            }
        }
        if let Some(not_before) = not_before
            && not_before > Instant::now()
        {
            for (&owner, numbers) in &others {
                self.sessions.note_wanted(owner, numbers);
            }
            return Ok(Reply::Later(not_before));
        }
        if self.sessions.ensure_slots(session, inodes.len())? == Grown::Later {
            return Ok(Reply::growing());
        }
        // Early, so that nothing is folded for nothing.
        self.sessions.refuse_mapped(session, inodes)?;
        let folding = Instant::now();
        let mut found = Vec::new();
        for (owner, numbers) in &others {
            found.extend(self.sessions.change_owner(*owner, numbers));
            self.reclaim(*owner, numbers)?;
        }
        for number in found {
            if let Err(errno) = self.mediate(number) {
                // Then it is written by owners, as fast as before.
                tracing::debug!("inode {number} is not mediated: {errno}");
            }
        }
        for &number in inodes {
            let header = self.sessions.state.header_copy(number);
            let is_own = header.is_some_and(|header| header.ownership.session() == session);
            // What sessions have mapped together nobody owns.
            if !is_own && let Some(due) = self.access().end_together(number, Some(session))? {
                return Ok(Reply::Later(due));
            }
        }
        let earned = (folding.elapsed() * EARNED).min(EARNED_MAX);
        let granting = self.folds.meter.now();
        self.sessions.refuse_mapped(session, inodes)?;
        // Folding may have changed modes, or ended inodes.
        let mut wanted = Vec::new();
        for &number in inodes {
            let header = self.sessions.check_own(session, number)?;
            if header.ownership.session() != session && !wanted.contains(&number) {
                wanted.push(number);
            }
        }
        self.give(session, &wanted)?;
        let is_earned = earned > self.sessions.options.lease;
        if let Some(session) = self.sessions.all.get_mut(&session)
            && (is_earned || !others.is_empty())
        {
            let operations = session.operations();
            for &number in &wanted {
                if let Some(owned) = session.owned.get_mut(number) {
                    owned.rest_mut().operations = operations;
                    if is_earned {
                        owned.rest_mut().earned = earned;
                    }
                }
            }
        }
        self.folds.meter.add(granting, |m| &mut m.grant);
        Ok(Reply::Now(Response::Done))
    }

    /// A file that nobody owns is mediated from now on, as the controller has found.
    fn mediate(&mut self, number: InodeNumber) -> Result<(), Errno> {
        let inode = self.sessions.state.shadow(number);
        let is_auto = inode.is_some_and(|inode| inode.mediation() == Mediation::Auto);
        if !is_auto || self.sessions.is_mapped(number) {
            return Ok(());
        }
        self.access().set_mediation(number, Mediation::Found)
    }

    /// Takes inodes from an owner: folds them, and sets aside what cannot be folded.
    /// ENOSPC: one that could be folded, but for that.
    pub(crate) fn reclaim(
        &mut self,
        owner: SessionNumber,
        numbers: &[InodeNumber],
    ) -> Result<(), Errno> {
        if numbers.len() > 1 {
            match self.access().fold(owner, numbers, After::Release) {
                Ok(()) => return Ok(()),
                Err(Failure::Errno(Errno::NOSPC)) => return Err(Errno::NOSPC),
                Err(_) => {}
            }
        }
        for &number in numbers {
            self.fold_or_take_away(owner, number, After::Release)?;
        }
        Ok(())
    }

    /// Stores a new owner for inodes that are shared.
    fn give(&mut self, session: SessionNumber, numbers: &[InodeNumber]) -> Result<(), Errno> {
        if numbers.is_empty() {
            return Ok(());
        }
        let Sessions {
            state,
            all: sessions,
            ..
        } = self.sessions;
        let session = sessions.get_mut(&session).ok_or(Errno::NOENT)?;
        if session.owned.len() + numbers.len() > OWNED_MAX {
            return Err(Errno::NOBUFS);
        }
        let mut slots = Vec::with_capacity(numbers.len());
        let mut give = || {
            for _ in numbers {
                slots.push(session.take_slot()?);
            }
            let mut change = Change::new(state);
            for (&number, &slot) in numbers.iter().zip(&slots) {
                let fold = change.state.numbers.fold();
                let header = change.header(number)?;
                if header.ownership.session() != 0 {
                    return Err(Errno::BUSY);
                }
                debug_assert!(fold > header.fold, "fold numbers of {number} repeat");
                header.fold = fold;
                header.branch_slot = slot;
                header.ownership = ownership_for(session.number, fold);
            }
            change.commit(Weight::Ownership)
        };
        let given = give();
        crate::sessions::arena::store_pages(&state.pool, session.index, &session.arena);
        if let Err(errno) = given {
            for slot in slots {
                session.arena.free_slot(slot);
            }
            return Err(errno);
        }
        session.own(&state.pool, numbers.iter().copied().zip(slots));
        Ok(())
    }

    /// A reader wants the newest state: folds where the owners are, at most once per lease time,
    /// and leaves them there, unless they have had nothing to fold when their lease is over.
    pub fn recall(&mut self, reader: SessionNumber, inodes: &[InodeNumber]) -> Reply {
        let mut owners: BTreeMap<(SessionNumber, bool), Vec<InodeNumber>> = BTreeMap::new();
        let mut not_before: Option<Instant> = None;
        for &number in inodes {
            let Some(header) = self.sessions.state.header_copy(number) else {
                continue;
            };
            let owner = header.ownership.session();
            if owner == reader || header.kind == HeaderKind::Granted {
                continue;
            }
            let Some(session) = self.sessions.all.get(&owner) else {
                continue;
            };
            let Some(owned) = session.owned.get(number) else {
                continue;
            };
            if owned.refusal().is_some() {
                // The verified state is the newest there is, until the owner has repaired it.
                continue;
            }
            if session.is_away {
                not_before = not_before.max(self.sessions.put_off_for_away());
            }
            let lease_over = owned.since.elapsed() > self.sessions.options.lease;
            // What was done before the reader asked is visible here, without a barrier.
            if session.has_branch(number, &header) {
                let folded = owned.rest().and_then(|rest| rest.folded);
                let again = folded.map(|folded| folded + self.sessions.options.lease);
                if again.is_some_and(|again| again > Instant::now()) {
                    not_before = not_before.max(again);
                }
            } else if !lease_over {
                continue;
            }
            owners.entry((owner, lease_over)).or_default().push(number);
        }
        if let Some(not_before) = not_before {
            return Reply::Later(not_before);
        }
        for ((owner, lease_over), numbers) in owners {
            let after = if lease_over {
                After::ReleaseIdle
            } else {
                After::Keep
            };
            let mut folded = self.access().fold(owner, &numbers, after);
            if folded.is_err() && numbers.len() > 1 {
                // One of them need not keep the reader from the others.
                for &number in &numbers {
                    folded = self.access().fold(owner, &[number], after);
                }
            }
            match folded {
                Ok(()) => {}
                // The reader gets the verified state; the refusal has been logged.
                Err(Failure::Violation(_) | Failure::Quiescing(_)) => {}
                Err(Failure::Errno(errno)) => {
                    tracing::warn!("folding for a reader, session {owner}: {errno}");
                }
            }
            if let Some(session) = self.sessions.all.get_mut(&owner) {
                let now = Instant::now();
                for &number in &numbers {
                    if let Some(owned) = session.owned.get_mut(number) {
                        owned.rest_mut().folded = Some(now);
                    }
                }
            }
        }
        Reply::Now(Response::Done)
    }

    /// Folds some of a session's own inodes.
    pub fn commit(
        &mut self,
        session: SessionNumber,
        inodes: &[InodeNumber],
        release: bool,
    ) -> Reply {
        let after = if release { After::Release } else { After::Keep };
        match self.access().fold(session, inodes, after) {
            Ok(()) => Reply::Now(Response::Done),
            Err(failure) => failure.into(),
        }
    }
}
