//! Folds: bring the verified state up to an owner's delta (DESIGN section 5).
//!
//! # Invariants
//! * Order: mark every header of the set; heavy barrier; wait, bounded, for operations in
//!   flight; copy; the same for what the copy says must come along; [seal](super::seal) directories, if there is
//!   much to fold; verify the copies; seal directories now, if that is worth it and was not done; apply all
//!   in one commit, which advances fold numbers and takes the marks away. What was copied while
//!   operations were in flight is copied again.
//! * Whatever happens, no mark is left behind, but where something is sealed that could not be applied yet.
//! * What is sealed is folded before anything else of its session.
//! * A set has no more delta pages than a session is granted, whatever its chains say; so a fold is
//!   bounded before anything is verified ([`crate::sessions::credits`]).
//! * Nothing is folded of a set in which a rule is broken; the inode that breaks it is refused
//!   ([`crate::fold::refusals`]), or taken away, if it was sealed before it was verified.
//! * A fold number ends exactly when its delta was folded, or its owner lost the inode. What
//!   straddled that can ask for the fold copy.

use crate::fold::copied::Copied;
use crate::fold::letting_go::LetGo;
pub use crate::fold::numbers::After;
use crate::fold::numbers::{self, Folded};
use crate::fold::{Folding, meter, tails};
use crate::sessions::arena::Reader;
use crate::sessions::maps;
use crate::space::number_set::NumberSet;
use crate::state::apply;
use crate::state::change::{Change, Weight};
use crate::state::marks::{heavy_barrier, unmark};
use arck_core_state::branch::{BRANCH_SIZE, StoredBranch};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE, cast};
use arck_pm::record::stored;
use arck_protocol::operation::mark;
use arck_verifier::{
    Changes, CopiedDelta, PageBudget, Places, SetMember, Violation, closure_with, copy_delta,
    verify_with,
};
use rustix::io::Errno;

/// Inodes in one fold set at most: as many as a session may own, so that no honest delta is too
/// large to be folded.
const SET_MAX: usize = crate::sessions::session::OWNED_MAX;

/// Times that copies may turn out to name a larger set than before.
const RESTARTS_MAX: u32 = 64;

/// Times that what is asked for is tried again without another inode that was refused behind the seal.
const OTHERS_REFUSED_MAX: u32 = 16;

/// Why nothing was folded.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Violation(Violation),
    /// As a violation, but operations were in flight when the copy was made: it convicts nobody.
    #[error("{0}, with operations in flight")]
    Quiescing(Violation),
    #[error("{0}")]
    Errno(#[from] Errno),
}

/// Whether directories may be sealed for a fold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seals {
    /// If that is worth it.
    Large,
    Nothing,
}

/// A fold set that was found to be right, and what is to become of it.
struct Verified<'a> {
    changes: &'a Changes<'a>,
    found: Folded,
    let_go: LetGo,
    /// The session's credits.
    room: u64,
    is_within: bool,
}

impl Folding<'_> {
    /// Folds what `owner` has changed of `wanted`, and what must come along. Inodes that it does
    /// not own are left out.
    pub fn fold(
        &mut self,
        owner: SessionNumber,
        wanted: &[InodeNumber],
        after: After,
    ) -> Result<(), Failure> {
        let seals = match after {
            After::Keep | After::ReleaseIdle => Seals::Large,
            // Who is to lose the inode, or finds another beneath his delta, does not go on meanwhile.
            After::Release | After::Renew => Seals::Nothing,
        };
        let mut others = 0;
        loop {
            self.finish_sealed(owner)?;
            let failure = match self.fold_set(owner, wanted, after, seals, |_, _| Ok(())) {
                Err(failure) if self.is_sealed(owner) => failure,
                folded => return folded,
            };
            // It was sealed before it was looked at. What was asked for is folded without what kept it from that.
            let guilty = self.refuse_sealed(owner, &failure);
            let is_another = guilty.is_some_and(|guilty| !wanted.contains(&guilty));
            others += 1;
            if !is_another || others > OTHERS_REFUSED_MAX {
                return Err(failure);
            }
        }
    }

    /// As [`fold`](Self::fold), with a change of the controller's own in the same atomic step;
    /// it adds to the list what loses its last name.
    pub fn fold_and(
        &mut self,
        owner: SessionNumber,
        wanted: &[InodeNumber],
        after: After,
        extra: impl FnOnce(&mut Change<'_>, &mut Vec<InodeNumber>) -> Result<(), Errno>,
    ) -> Result<(), Failure> {
        self.finish_sealed(owner)?;
        self.fold_set(owner, wanted, after, Seals::Nothing, extra)
    }

    /// Folds one set, of what is sealed where something is.
    pub(super) fn fold_set(
        &mut self,
        owner: SessionNumber,
        wanted: &[InodeNumber],
        after: After,
        seals: Seals,
        extra: impl FnOnce(&mut Change<'_>, &mut Vec<InodeNumber>) -> Result<(), Errno>,
    ) -> Result<(), Failure> {
        let mut copied = self.copy_or_unmark(owner, wanted)?;
        if seals == Seals::Large && copied.pages() >= self.sessions.options.seal_unverified_pages {
            copied.born = self.seal(owner, &copied);
        }
        self.fold_copied(owner, wanted, after, seals, copied, extra)
    }

    /// Marks and copies a set; takes its marks away if that fails.
    fn copy_or_unmark(
        &mut self,
        owner: SessionNumber,
        wanted: &[InodeNumber],
    ) -> Result<Copied, Failure> {
        self.mark_and_copy(owner, wanted).map_err(|(set, failure)| {
            self.note_refusal(owner, &failure);
            self.unmark_unless_sealed(owner, &set);
            failure
        })
    }

    /// Verifies and applies what is marked and copied.
    pub(super) fn fold_copied(
        &mut self,
        owner: SessionNumber,
        wanted: &[InodeNumber],
        after: After,
        seals: Seals,
        mut copied: Copied,
        extra: impl FnOnce(&mut Change<'_>, &mut Vec<InodeNumber>) -> Result<(), Errno>,
    ) -> Result<(), Failure> {
        let set = copied.set.clone();
        let straddled = copied.straddled;
        let mut born = std::mem::take(&mut copied.born);
        match self.apply_copied(owner, wanted, after, seals, copied, extra) {
            Ok((dying, sealed_since)) => {
                born.extend(sealed_since);
                // Normally the commit has done it; but not for what stayed as it was.
                unmark(&self.sessions.state, set.iter().chain(born.iter().copied()));
                if !dying.is_empty() {
                    // What operations still did to these is not in the copy.
                    let none = NumberSet::default();
                    let quiescent = if straddled { &none } else { &set };
                    self.free_dying(&dying, quiescent);
                }
                Ok(())
            }
            Err(failure) => {
                self.note_refusal(owner, &failure);
                self.unmark_unless_sealed(owner, &set);
                Err(failure)
            }
        }
    }

    /// After a failure: what goes with what is sealed waits marked until that can be applied. In what is sealed itself
    /// the owner goes on, as behind the seal.
    fn unmark_unless_sealed(&mut self, owner: SessionNumber, set: &NumberSet) {
        let session = self.sessions.all.get(&owner);
        match session.map_or(&[][..], |session| &session.sealed) {
            [] => unmark(&self.sessions.state, set.iter()),
            sealed => {
                unmark(&self.sessions.state, sealed);
                self.finish_later(owner);
            }
        }
    }

    fn mark_and_copy(
        &mut self,
        owner: SessionNumber,
        wanted: &[InodeNumber],
    ) -> Result<Copied, (NumberSet, Failure)> {
        let mut set = NumberSet::default();
        let Some(session) = self.sessions.all.get_mut(&owner) else {
            return Err((set, Errno::NOENT.into()));
        };
        set.extend(
            wanted
                .iter()
                .copied()
                .filter(|&number| session.owned.contains(number)),
        );
        let mut copied = Copied {
            set,
            members: Vec::new(),
            deltas: Vec::new(),
            places: Places::default(),
            straddled: false,
            born: Vec::new(),
        };
        let pages = match self.sessions.recovering {
            // What a session was granted when the machine failed may not be known.
            true => usize::MAX,
            false => cast::index(crate::sessions::credits::PAGES_AT_ONCE),
        };
        let mut budget = PageBudget::new(pages);
        // Of the set, those that are not marked and copied yet.
        let mut fresh: Vec<InodeNumber> = copied.set.iter().collect();
        let mut restarts = 0;
        loop {
            for &number in &fresh {
                if let Some(header) = self.sessions.state.pool.header(number) {
                    mark(header);
                    stored(&header.ownership);
                }
            }
            let begun = self.folds.meter.now();
            let straddled_before = copied.straddled;
            if !fresh.is_empty() {
                heavy_barrier();
                copied.straddled = !session.wait_in_flight(self.sessions.options.patience);
            }
            let waited = self.folds.meter.add(begun, |m| &mut m.wait);
            if straddled_before || copied.straddled {
                // What was copied before may show half of an operation: all of it again.
                fresh = copied.set.iter().collect();
                copied.members.clear();
                copied.deltas.clear();
                budget = PageBudget::new(pages);
            }
            // What was copied while nothing was in flight stays as it is: nobody publishes under
            // a mark.
            let before = copied.deltas.len();
            let mut reader = Reader(&session.arena);
            copied.members.reserve(fresh.len());
            for &number in &fresh {
                let Some(header) = self.sessions.state.delta_to_fold(number) else {
                    continue;
                };
                copied.members.push(SetMember { number, header });
                match copy_delta(&mut reader, number, &header, &mut budget) {
                    Ok(delta) => copied.deltas.extend(delta),
                    Err(violation) => return Err((copied.set, Failure::Violation(violation))),
                }
            }
            let deltas = copied.deltas.get(before..).unwrap_or_default();
            let read: usize = deltas.iter().map(|delta| delta.pages.len()).sum();
            let bytes = (fresh.len() * BRANCH_SIZE) as u64 + read as u64 * PAGE_SIZE;
            self.folds.meter.totals.bytes_copied += bytes;
            let begun = self.folds.meter.add(waited, |m| &mut m.copy);
            // What must come along follows from the deltas: of what loses its last name, what its own delta gives others.
            // Whoever gives a file one after this is asked before it is freed, as any other owner is
            // ([`super::orphans`]). What else a delta tells of a file that has none is of use to nobody but who has it
            // open, and is folded when he asks. What is sealed is folded alone: where its owner has named something
            // since, more may have been done that it knows nothing of.
            let state = &self.sessions.state;
            let may_name = session.sealed.is_empty();
            let names_something = |branch: StoredBranch| branch.partners.iter().any(|&by| by != 0);
            let comes = |number| {
                let header = state.header_copy(number);
                header.is_some_and(|header| {
                    header.file_kind == Some(FileKind::Directory)
                        || may_name && session.branch(number, &header).is_some_and(names_something)
                })
            };
            let mut more = match copied.deltas.len() {
                same if same == before => Vec::new(),
                _ => closure_with(&copied.deltas, state, owner, &mut copied.places, comes),
            };
            self.folds.meter.add(begun, |m| &mut m.verify);
            let says_something = |number| {
                let header = state.header_copy(number);
                header.is_some_and(|header| {
                    header.file_kind == Some(FileKind::Directory)
                        || session.has_branch(number, &header)
                })
            };
            let is_new = |set: &NumberSet, number| {
                session.owned.contains(number) && !set.contains(number) && says_something(number)
            };
            more.retain(|&number| is_new(&copied.set, number));
            if more.is_empty() {
                copied.members.sort_unstable_by_key(|member| member.number);
                copied.deltas.sort_unstable_by_key(|delta| delta.inode);
                return Ok(copied);
            }
            // A chain of thousands that draw in one another must not be gone along as many times:
            // what these draw in is looked for now, unmarked as they are, and all of it marked at
            // once. A session that shows something else each time is given up.
            restarts += 1;
            fresh.clear();
            let mut seen_budget = PageBudget::new(pages);
            while !more.is_empty() {
                copied.set.extend(more.iter().copied());
                fresh.extend(&more);
                if copied.set.len() > SET_MAX || restarts > RESTARTS_MAX {
                    return Err((copied.set, Errno::AGAIN.into()));
                }
                let seen: Vec<CopiedDelta> = more
                    .iter()
                    .filter_map(|&number| {
                        let header = state.delta_to_fold(number)?;
                        copy_delta(&mut reader, number, &header, &mut seen_budget).ok()?
                    })
                    .collect();
                if seen.is_empty() {
                    break;
                }
                more = closure_with(&seen, state, owner, &mut Places::default(), comes);
                more.retain(|&number| is_new(&copied.set, number));
            }
        }
    }

    /// Gives what has lost its last name, and what was marked for a seal.
    fn apply_copied(
        &mut self,
        owner: SessionNumber,
        wanted: &[InodeNumber],
        after: After,
        seals: Seals,
        copied: Copied,
        extra: impl FnOnce(&mut Change<'_>, &mut Vec<InodeNumber>) -> Result<(), Errno>,
    ) -> Result<(Vec<InodeNumber>, Vec<InodeNumber>), Failure> {
        self.freeing().note_kept();
        let Some(session) = self.sessions.all.get(&owner) else {
            return Err(Errno::NOENT.into());
        };
        let begun = self.folds.meter.now();
        let changes = verify_with(
            &self.sessions.state,
            &session.credentials,
            &copied.members,
            &copied.deltas,
            &copied.places,
        )
        .map_err(|violation| match copied.straddled {
            // An operation in flight may show half of itself for an instant.
            true => Failure::Quiescing(violation),
            false => Failure::Violation(violation),
        })?;
        let begun = self.folds.meter.add(begun, |m| &mut m.verify);
        self.folds.meter.totals.folds += 1;
        self.folds.meter.totals.records += meter::records(&changes);
        let found = Folded {
            with_delta: copied.deltas.iter().map(|delta| delta.inode).collect(),
            skipped: changes.skipped.iter().copied().collect(),
        };
        let room = session.credits();
        let is_within = self.is_within_credits(owner, &copied);
        let born = match seals == Seals::Large && !self.is_sealed(owner) {
            true => self.seal(owner, &copied),
            false => Vec::new(),
        };
        let let_go = match after {
            After::Renew => LetGo::default(),
            _ => self.mark_to_let_go(owner, &copied, &changes.creations),
        };
        let verified = Verified {
            changes: &changes,
            found,
            let_go,
            room,
            is_within,
        };
        let applied = self.apply_verified(owner, (wanted, after), &copied, &verified, extra);
        // The commit has done it, but for what stays with its owner.
        unmark(&self.sessions.state, &verified.let_go.marked);
        let dying = applied?;
        self.folds.meter.add(begun, |m| &mut m.fold);
        Ok((dying, born))
    }

    /// Gives what has lost its last name.
    fn apply_verified(
        &mut self,
        owner: SessionNumber,
        (wanted, after): (&[InodeNumber], After),
        copied: &Copied,
        verified: &Verified<'_>,
        extra: impl FnOnce(&mut Change<'_>, &mut Vec<InodeNumber>) -> Result<(), Errno>,
    ) -> Result<Vec<InodeNumber>, Failure> {
        let Verified {
            changes,
            found,
            let_go,
            room,
            is_within,
        } = verified;
        // Every header of the set is marked, and the barrier was issued after that.
        let mapped = maps::mapped_by_others(&self.sessions.all, owner, &copied.set);
        let folded: usize = copied
            .deltas
            .iter()
            .filter(|delta| !found.skipped.contains(&delta.inode))
            .map(|delta| delta.pages.len())
            .sum();
        let kept_for_others = self.sessions.kept_for_others(owner);
        let pages_for_splits = self.sessions.pages_for_splits(owner, folded as u64);
        let touched = self.touched_by(changes);
        let resized = tails::resized(&self.sessions.state, changes);
        let mut change = Change::new(&mut self.sessions.state);
        change.limit_splits(pages_for_splits);
        for (number, _) in mapped.into_keys() {
            change.keep_pages_of(number);
        }
        let created: Vec<InodeNumber> = changes
            .creations
            .iter()
            .map(|creation| creation.inode)
            .collect();
        let named = changes.links.iter().filter(|(_, by)| *by > 0);
        let named: Vec<InodeNumber> = named.map(|(number, _)| *number).collect();
        let mut dying = apply::apply(&mut change, changes)?;
        extra(&mut change, &mut dying)?;
        let keepers = maps::keep_pages(&mut change)?;

        // Fold numbers and ownership, in the same commit.
        let let_go = let_go.within_reach(&change);
        let ended = numbers::end(&mut change, &copied.set, (wanted, after), &let_go, found)?;
        if change.is_empty() {
            // Nothing to fold and nothing to change: no commit.
            return Ok(Vec::new());
        }
        let weight = if change.is_ownership_only() {
            Weight::Ownership
        } else {
            Weight::Fold
        };
        if !*is_within
            && change.has_allocated()
            && change.state.space.metadata_headroom() < kept_for_others
        {
            return Err(Errno::NOSPC.into());
        }
        let straddled = copied.straddled;
        let fold_copies = match straddled {
            true => ended.fold_copies(&copied.members, copied.deltas.clone(), found),
            false => Vec::new(),
        };
        let has_fold_copies = !fold_copies.is_empty();
        tails::clear_before_growth(change.state, &resized);
        if let Some(session) = self.sessions.all.get_mut(&owner) {
            let pool = &change.state.pool;
            session.keep_fold_copies(pool, session.stuck(), fold_copies);
            // Before the session can learn that these delta pages are free.
            session.set_credits(pool, room.saturating_sub(folded as u64));
        }
        if let Err(errno) = change.commit(weight) {
            if let Some(session) = self.sessions.all.get_mut(&owner) {
                let pool = &self.sessions.state.pool;
                session.set_credits(pool, *room);
                if has_fold_copies {
                    session.fold_copies.take_back(pool, session.whose());
                }
            }
            return Err(errno.into());
        }

        if folded >= self.sessions.options.seal_unverified_pages {
            self.sessions.keep_in_credits(owner);
        }
        self.sessions.state.clear_after_cuts(&resized);
        self.folds.touched.extend(touched);
        self.note_accepted(owner, &ended.accepted);
        self.sessions.show_created(owner, &created);
        self.note_orphans(&mut dying, named, keepers);
        let Some(session) = self.sessions.all.get_mut(&owner) else {
            return Ok(dying);
        };
        session.disown(&self.sessions.state.pool, &ended.released);
        let may_store = straddled || session.live.is_none();
        session.has_unsealed(ended.unsealed, may_store);
        if straddled {
            self.sessions.bound_fold_copies(owner);
        }
        Ok(dying)
    }

    /// What a fold that is committed made of inodes without names: `dying` have lost their last one, `named`
    /// have got one again, and `keepers` hold pages of others that somebody's map still shows.
    fn note_orphans(
        &mut self,
        dying: &mut Vec<InodeNumber>,
        named: Vec<InodeNumber>,
        keepers: Vec<maps::Keeper>,
    ) {
        let orphans = &mut self.sessions.state.orphans;
        orphans.extend(dying.iter().copied());
        for number in named {
            self.freeing().is_named_again(number);
        }
        for (keeper, of) in keepers {
            let generation = self
                .sessions
                .state
                .header_copy(of)
                .map_or(0, |copy| copy.generation);
            self.sessions.state.orphans.insert(keeper);
            self.sessions.state.keepers.insert(keeper, (of, generation));
            if self.sessions.state.space.shared {
                // Whether it may stay is to be looked at.
                dying.push(keeper);
            }
        }
    }
}
