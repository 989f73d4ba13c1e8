//! What becomes of an inode whose delta was refused: its owner gets time to repair it, then it is
//! set aside (DESIGN section 6).
//!
//! # Invariants
//! * An owned inode is refused, in its header and in [`Owned`](crate::sessions::owned::Owned), from the
//!   fold that its delta made fail until a fold of it succeeds or its owner loses it.
//! * The grace period counts from the first refusal: refusals after it do not prolong it.
//! * Nobody but the owner waits for it: readers get the verified state without another fold, and a
//!   writer gets the inode at once, after one last try.
//! * Nothing of other inodes is set aside, but what can no longer exist: the deltas of inodes whose
//!   only names stood in the one that is.

use crate::fold::folding::{After, Failure};
use crate::fold::{Folding, Folds};
use crate::sessions::arena::Reader;
use crate::sessions::fold_copies::{FoldCopy, KeptFoldCopy};
use crate::sessions::log::Event;
use crate::sessions::owned::Refusal;
use crate::space::number_set::NumberSet;
use crate::state::change::{Change, Weight};
use crate::state::marks::{heavy_barrier, unmark};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::{HeaderCopy, InodeNumber};
use arck_pm::record::stored;
use arck_protocol::operation::mark;
use arck_verifier::{CopiedDelta, PageBudget, copy_readable};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// No grace period is ended after so long, before sessions have been asked what they want.
pub const EVICTIONS_TIME: Duration = Duration::from_millis(1);
/// Pages of a delta that are set aside at most: 16 MiB.
const ASIDE_PAGES: usize = 4096;
/// Inodes that are set aside with a directory at most, each in a file of its own; of those beyond,
/// the delta is dropped.
const ASIDE_CHILDREN: usize = 256;
/// A delta that is refused with operations in flight is looked at so often before it is taken for
/// a violation.
pub const QUIESCE_ATTEMPTS: u32 = 5;
/// Inodes that are taken away at most because another cannot be folded without them.
pub const OTHERS_MAX: u32 = 16;
/// And no other after so long: each may draw in all that its session owns.
pub const OTHERS_TIME: Duration = Duration::from_millis(50);
/// How long a delta that is right, but for which there is no space, is kept before it is tried again.
pub const NO_SPACE_AGAIN: Duration = Duration::from_secs(1);

impl Folds {
    /// When the next grace period ends, or something sealed is to be tried again.
    pub fn next_eviction(&self) -> Option<Instant> {
        let sealed = self.sealed.first().map(|&(due, _)| due);
        let refused = self.refusals.first().map(|&(due, ..)| due);
        sealed.into_iter().chain(refused).min()
    }
}

impl Folding<'_> {
    /// Notes what a fold refused, while the header is still marked; logs it, unless it is what was
    /// refused before.
    pub(crate) fn note_refusal(&mut self, owner: SessionNumber, failure: &Failure) {
        let Failure::Violation(violation) = failure else {
            return;
        };
        let number = violation.inode;
        let (rule, offset) = (violation.rule, violation.offset);
        let mut is_known = false;
        if let Some(session) = self.sessions.all.get_mut(&owner)
            // Of one that is leaving readers are not to ask again and again.
            && (session.live.is_some() || session.is_leaving)
            && let Some(owned) = session.owned.get_mut(number)
        {
            let before = owned.refusal();
            is_known = before.is_some_and(|before| (before.rule, before.offset) == (rule, offset));
            let due =
                before.map_or_else(|| Instant::now() + self.sessions.options.grace, |b| b.due);
            owned.rest_mut().refusal = Some(Refusal { due, rule, offset });
            self.folds.refusals.insert((due, owner, number));
            if let Some(header) = self.sessions.state.pool.header(number) {
                let refused = header.ownership().refused();
                header.ownership.store(refused.0, Ordering::Release);
                stored(&header.ownership);
            }
        }
        if !is_known {
            self.sessions.log_violation(owner, violation);
        }
    }

    /// Notes that these inodes were folded, or had nothing to fold; their headers say so already.
    pub(crate) fn note_accepted(&mut self, owner: SessionNumber, numbers: &[InodeNumber]) {
        let Some(session) = self.sessions.all.get_mut(&owner) else {
            return;
        };
        let mut repaired = Vec::new();
        for &number in numbers {
            if let Some(owned) = session.owned.get_mut(number)
                && owned.take_refusal().is_some()
            {
                repaired.push(number);
            }
        }
        for inode in repaired {
            self.sessions.log_event(
                owner,
                Event::Repaired {
                    session: owner,
                    inode,
                },
            );
        }
    }

    /// Nothing of what was refused is left.
    fn forget_refusals(&mut self, owner: SessionNumber, numbers: &NumberSet) {
        let Some(session) = self.sessions.all.get_mut(&owner) else {
            return;
        };
        for number in numbers.iter() {
            if let Some(owned) = session.owned.get_mut(number) {
                owned.take_refusal();
            }
        }
    }

    /// Whether an owner is within the grace period of an inode.
    pub(crate) fn is_refused(&self, owner: SessionNumber, number: InodeNumber) -> bool {
        self.sessions
            .all
            .get(&owner)
            .and_then(|session| session.owned.get(number))
            .is_some_and(|owned| owned.refusal().is_some())
    }

    /// Takes an inode away from an owner whose delta cannot be folded; the delta is set aside, and
    /// with it those of inodes that are created in it.
    pub fn take_away(&mut self, owner: SessionNumber, inode: InodeNumber, why: &Failure) {
        let session = self.sessions.all.get(&owner);
        if !session.is_some_and(|session| session.owned.contains(inode)) {
            return;
        }
        if let Some((delta, _)) = self.copy_readable(owner, inode)
            && delta.header.kind == HeaderKind::Granted
            && !self.is_refused(owner, delta.branch.parent)
            && !self.is_sealed(owner)
        {
            // It is created, empty, if the directory in which it is can be folded: the directory's
            // delta names it, and would be refused without it.
            let _ = self.fold(owner, &[delta.branch.parent], After::Keep);
        }
        if let Some(header) = self.sessions.state.pool.header(inode) {
            mark(header);
            stored(&header.ownership);
        }
        heavy_barrier();
        let mut set = NumberSet::from_iter([inode]);
        let active = self.copy_readable(owner, inode);
        let has_active = active.is_some();
        // With what is sealed goes what came on top of it.
        let deltas = [self.copy_sealed(owner, inode), active];
        for (delta, is_whole) in deltas.iter().flatten() {
            self.keep_aside(owner, inode, delta, why);
            for child in self.uncommitted(owner, delta, *is_whole) {
                if let Some(header) = self.sessions.state.pool.header(child) {
                    mark(header);
                    stored(&header.ownership);
                }
                set.insert(child);
            }
        }
        if set.len() > 1 {
            heavy_barrier();
        }
        let children = set.iter().filter(|&child| child != inode);
        for child in children.take(ASIDE_CHILDREN) {
            if let Some((delta, _)) = self.copy_readable(owner, child) {
                self.keep_aside(owner, child, &delta, why);
            }
        }
        // They may ask what became of it.
        let flights = self
            .sessions
            .all
            .get(&owner)
            .map(|session| session.in_flight());
        let flights = flights.unwrap_or_default();
        let mut fold_copies = Vec::new();
        let mut released = Vec::new();
        let mut unsealed = Vec::new();
        let mut change = Change::new(&mut self.sessions.state);
        let mut evict = || {
            for number in set.iter() {
                let fold = change.state.numbers.fold();
                let header = change.header(number)?;
                // What the owner has last seen of its own.
                let lost = match header.sealed {
                    sealed if sealed != 0 && !has_active => sealed,
                    _ => header.fold,
                };
                // Somebody may be in the middle of an operation under the active number, too; what was lost last is
                // what `evicted` tells below.
                let active = (lost != header.fold).then_some(header.fold);
                fold_copies.extend(active.into_iter().chain([lost]).map(|fold| KeptFoldCopy {
                    inode: number,
                    fold,
                    kind: FoldCopy::Lost,
                }));
                if std::mem::take(&mut header.sealed) != 0 {
                    unsealed.push(std::mem::take(&mut header.sealed_slot));
                }
                header.fold = fold;
                header.ownership = header.ownership.accepted();
                // Numbers that were not committed stay granted: the session may count on them.
                if header.kind != HeaderKind::Granted {
                    header.ownership = arck_core_state::Ownership::SHARED;
                    header.branch_slot = 0;
                    released.push(number);
                }
            }
            Ok::<(), Errno>(())
        };
        let evicted = evict();
        for lost in &fold_copies {
            // Before the fold number changes by which the session learns of it.
            if let Some(header) = change.state.pool.header(lost.inode) {
                header.evicted.store(lost.fold, Ordering::Release);
                stored(&header.evicted);
            }
        }
        if let Some(session) = self.sessions.all.get_mut(&owner) {
            session.keep_fold_copies(&change.state.pool, flights, fold_copies);
        }
        let committed = evicted.and_then(|()| change.commit(Weight::Ownership));
        unmark(&self.sessions.state, set.iter());
        match committed {
            Ok(()) => {
                self.forget_refusals(owner, &set);
                if let Some(session) = self.sessions.all.get_mut(&owner) {
                    session.disown(&self.sessions.state.pool, &released);
                    session.vacate(unsealed);
                    session.sealed.retain(|&number| !set.contains(number));
                }
            }
            Err(errno) => {
                tracing::error!("taking inode {inode} away: {errno}");
                if let Some(session) = self.sessions.all.get_mut(&owner) {
                    let whose = session.whose();
                    session
                        .fold_copies
                        .take_back(&self.sessions.state.pool, whose);
                }
            }
        }
    }

    /// What can be read of an inode's delta.
    fn copy_readable(
        &self,
        owner: SessionNumber,
        inode: InodeNumber,
    ) -> Option<(CopiedDelta, bool)> {
        let header = self.sessions.state.header_copy(inode)?;
        self.copy_delta_of(owner, inode, &header)
    }

    /// The same of what is sealed.
    fn copy_sealed(&self, owner: SessionNumber, inode: InodeNumber) -> Option<(CopiedDelta, bool)> {
        let header = self.sessions.state.header_copy(inode)?;
        self.copy_delta_of(owner, inode, &header.of_sealed()?)
    }

    fn copy_delta_of(
        &self,
        owner: SessionNumber,
        inode: InodeNumber,
        header: &HeaderCopy,
    ) -> Option<(CopiedDelta, bool)> {
        let session = self.sessions.all.get(&owner)?;
        let mut budget = PageBudget::new(ASIDE_PAGES);
        copy_readable(&mut Reader(&session.arena), inode, header, &mut budget)
    }

    /// The session's inodes that are to be created in a directory's delta: those that it names, or, if
    /// it cannot be read to its end, those that say so themselves.
    fn uncommitted(
        &self,
        owner: SessionNumber,
        delta: &CopiedDelta,
        is_whole: bool,
    ) -> Vec<InodeNumber> {
        let Some(session) = self.sessions.all.get(&owner) else {
            return Vec::new();
        };
        let is_uncommitted = |number: &InodeNumber| {
            session.owned.contains(*number)
                && self
                    .sessions
                    .state
                    .header_copy(*number)
                    .is_some_and(|header| header.kind == HeaderKind::Granted)
        };
        if is_whole {
            return delta
                .named_inodes()
                .into_iter()
                .filter(is_uncommitted)
                .collect();
        }
        let is_born_here = |number: &InodeNumber| {
            self.sessions
                .state
                .header_copy(*number)
                .and_then(|header| session.branch(*number, &header))
                .is_some_and(|branch| branch.parent == delta.inode)
        };
        let owned = session.owned.numbers();
        owned.filter(is_uncommitted).filter(is_born_here).collect()
    }
}
