//! The controller of the model: the order of steps of a fold, as in the real one, with the real
//! marks, counters and header words.
//!
//! # Invariants
//! * One request at a time, as in the real service thread.
//! * The order of a fold: mark; barrier (the checker is sequentially consistent); wait for what
//!   is in flight, for a time that the checker chooses; copy; the same for what the copy says must
//!   come along, and what was copied with something in flight again; apply; end the fold number;
//!   keep a fold copy if anything was still in flight; take the marks away.
//! * Where it seals: behind the copy each header gets another number and slot for what its owner does now, in
//!   one step, and says what is sealed; then its mark goes, and what is sealed is applied while the owner goes on.
//!   Or the controller dies there, and the next one finds in the headers what it has to apply.
//! * The branch slot of an inode taken away while operations were in flight is not given out
//!   before they have left: until then they may store into it.

use crate::image::{self, Entry, HeaderWords};
use crate::ledger::Ledger;
use crate::memory::{BOTH, BRANCHES, Effect, Memory, Words, sealed_slot};
use crate::scenario::Mutation;
use arck_core_state::InodeNumber;
use arck_core_state::header::{HeaderKind, Ownership, identity_word, state_word};
use arck_core_state::primitive::{Ordering, fence, spin_hint};
use arck_protocol::operation::{InFlight, mark, unmark};
use arck_protocol::{Request, Response};
use rustix::io::Errno;
use shuttle::rand::{Rng, thread_rng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What becomes of the ownership of what is folded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    Keep,
    Release,
    ReleaseIdle,
}

#[derive(Clone)]
enum FoldCopy {
    Copy(Words),
    Nothing,
}

/// A kept fold copy, and what was in flight at the fold.
struct Kept {
    fold_copy: FoldCopy,
    in_flight: InFlight,
}

/// What becomes of a header by a fold.
struct End {
    inode: InodeNumber,
    /// The number that the copied delta had.
    ended: u64,
    fold: u64,
    ownership: Ownership,
    is_folded: bool,
    releases: bool,
    unseals: bool,
}

/// The copies of a fold set; `None` for an inode without a delta.
type Copies = Vec<(InodeNumber, Option<Words>)>;

fn effects(copies: &Copies) -> impl Iterator<Item = (InodeNumber, Effect)> {
    copies.iter().flat_map(|(inode, copy)| {
        let effects = copy.iter().flatten().filter_map(|&(_, w)| Effect::of(w));
        effects.map(|effect| (*inode, effect))
    })
}

/// What has to come along.
fn along(copies: &Copies) -> impl Iterator<Item = InodeNumber> {
    let names_both = |effect| {
        matches!(
            effect,
            Effect::AddToBoth(_) | Effect::Partner(_) | Effect::Gone(_)
        )
    };
    effects(copies)
        .filter(move |&(_, effect)| names_both(effect))
        .flat_map(|_| BOTH)
}

/// See the module's head.
pub struct Controller {
    memory: Arc<Memory>,
    ledger: Arc<Ledger>,
    mutation: Mutation,
    fold: u64,
    /// Of each session: what it owns, and in which slot the branch is.
    owned: Vec<BTreeMap<InodeNumber, usize>>,
    /// Of each session; the last freed is given out first.
    free_slots: Vec<Vec<usize>>,
    /// Session, slot, and who may still store into it.
    quarantine: Vec<(usize, usize, InFlight)>,
    fold_copies: BTreeMap<(usize, InodeNumber, u64), Kept>,
    /// Folds that may still be refused.
    refusals: u32,
    /// Whether folds may seal.
    seals: bool,
}

impl Controller {
    pub fn new(
        memory: Arc<Memory>,
        ledger: Arc<Ledger>,
        mutation: Mutation,
        (refusals, seals): (u32, bool),
    ) -> Controller {
        let sessions = memory.arenas.len();
        Controller {
            fold: 100,
            owned: vec![BTreeMap::new(); sessions],
            free_slots: vec![(0..BRANCHES).rev().collect(); sessions],
            quarantine: Vec::new(),
            fold_copies: BTreeMap::new(),
            memory,
            ledger,
            mutation,
            refusals,
            seals,
        }
    }

    /// Whatever the machine leaves if it fails here has all that was promised.
    fn may_fail(&self) {
        if self.seals {
            image::check(&self.memory, &self.ledger, self.mutation);
        }
    }

    fn next_fold(&mut self) -> u64 {
        self.fold += 1;
        self.fold
    }

    /// Answers a request of session `session` (its index).
    pub fn serve(&mut self, session: usize, request: &Request) -> Response {
        let answer = |result: Result<(), Errno>| match result {
            Ok(()) => Response::Done,
            Err(errno) => Response::Error(errno.raw_os_error()),
        };
        match request {
            Request::Acquire { inodes } => answer(self.acquire(session, inodes.as_slice())),
            Request::Recall { inodes } => answer(self.recall(session, inodes.as_slice())),
            Request::Commit { inodes, release } => {
                let after = if *release {
                    After::Release
                } else {
                    After::Keep
                };
                answer(self.fold(session, inodes.as_slice(), after))
            }
            Request::FoldCopy {
                inode,
                fold,
                offset,
                length,
            } => self.fold_copy(session, *inode, *fold, *offset, *length),
            _ => Response::Error(Errno::INVAL.raw_os_error()),
        }
    }

    fn owner(&self, inode: InodeNumber) -> Option<usize> {
        (0..self.owned.len()).find(|&session| self.owned[session].contains_key(&inode))
    }

    fn acquire(&mut self, session: usize, inodes: &[InodeNumber]) -> Result<(), Errno> {
        for &inode in inodes {
            match self.owner(inode) {
                Some(owner) if owner == session => continue,
                Some(owner) => self.fold(owner, &[inode], After::Release)?,
                None => {}
            }
            self.give(session, inode);
        }
        Ok(())
    }

    fn give(&mut self, session: usize, inode: InodeNumber) {
        let slot = self.take_slot(session);
        let fold = self.next_fold();
        let header = self.memory.header(inode);
        let identity = identity_word(1, slot as u32);
        header.identity.store(identity, Ordering::Release);
        unmark(
            header,
            Ownership::new(session as u32 + 1, fold as u32),
            fold,
        );
        self.owned[session].insert(inode, slot);
    }

    fn take_slot(&mut self, session: usize) -> usize {
        let threads = &self.memory.arenas[session].threads;
        for (of, slot, mut in_flight) in std::mem::take(&mut self.quarantine) {
            if of == session && in_flight.all_left(threads) {
                self.free_slots[of].push(slot);
            } else {
                self.quarantine.push((of, slot, in_flight));
            }
        }
        self.free_slots[session]
            .pop()
            .expect("a slot for each inode")
    }

    fn recall(&mut self, reader: usize, inodes: &[InodeNumber]) -> Result<(), Errno> {
        for &inode in inodes {
            let after = if thread_rng().r#gen() {
                After::ReleaseIdle
            } else {
                After::Keep
            };
            if let Some(owner) = self.owner(inode).filter(|&owner| owner != reader) {
                self.fold(owner, &[inode], after)?;
            }
        }
        Ok(())
    }

    /// False if the time ran out.
    fn wait(&self, session: usize, in_flight: &mut InFlight) -> bool {
        let threads = &self.memory.arenas[session].threads;
        let mut patience = thread_rng().gen_range(0..8);
        while !in_flight.all_left(threads) {
            if patience == 0 || self.mutation == Mutation::DoesNotWait {
                return false;
            }
            patience -= 1;
            spin_hint();
        }
        true
    }

    /// Folds what `session` owns of `wanted`. EIO if the delta is refused.
    fn fold(&mut self, session: usize, wanted: &[InodeNumber], after: After) -> Result<(), Errno> {
        let memory = Arc::clone(&self.memory);
        let is_owned = |inode: &&InodeNumber| self.owned[session].contains_key(inode);
        let mut set: BTreeSet<InodeNumber> = wanted.iter().filter(is_owned).copied().collect();
        if set.is_empty() {
            return Ok(());
        }
        // Of the set, those that are not marked and copied yet.
        let mut fresh: Vec<InodeNumber> = set.iter().copied().collect();
        let mut copies = Copies::new();
        let mut straddled = false;
        let in_flight = loop {
            if self.mutation != Mutation::DoesNotMark {
                fresh.iter().for_each(|&inode| mark(memory.header(inode)));
            }
            let copy = |inodes: &[InodeNumber]| -> Copies {
                let copied = inodes.iter();
                copied
                    .map(|&inode| (inode, memory.delta(session, inode)))
                    .collect()
            };
            let mut in_flight = InFlight::snapshot(&memory.arenas[session].threads);
            let too_early = self.mutation == Mutation::CopiesBeforeWaiting;
            let too_early = too_early.then(|| copy(&fresh));
            let straddled_before = straddled;
            straddled = !self.wait(session, &mut in_flight);
            if let Some(early) = too_early {
                copies.extend(early);
            } else {
                // What was copied with nothing in flight stays as it is.
                let keeps = self.mutation == Mutation::KeepsStraddledCopies;
                if (straddled || straddled_before) && !keeps {
                    fresh = set.iter().copied().collect();
                    copies.clear();
                }
                copies.extend(copy(&fresh));
            }
            let more: BTreeSet<InodeNumber> = along(&copies)
                .filter(|inode| is_owned(&inode) && !set.contains(inode))
                .collect();
            if more.is_empty() || self.mutation == Mutation::LeavesPartnersOut {
                break in_flight;
            }
            set.extend(&more);
            fresh = more.into_iter().collect();
        };

        // Half an operation: of one in flight that is going to take it back, or a mistake.
        let is_half = effects(&copies)
            .flat_map(|(inode, effect)| effect.parts(inode))
            .any(|(inode, _)| !set.contains(&inode));
        assert!(
            straddled || !is_half,
            "this delta can never be folded: {copies:?}"
        );
        let is_refused = self.refusals > 0 && thread_rng().gen_ratio(1, 3);
        if is_half || is_refused {
            self.refusals -= u32::from(is_refused);
            for &inode in &set {
                let header = memory.header(inode);
                unmark(header, header.ownership(), header.fold());
            }
            return Err(Errno::IO);
        }

        let is_whole = !straddled || self.mutation == Mutation::SealsWhatStraddles;
        let seals = self.seals && is_whole && after != After::Release;
        if seals && thread_rng().r#gen() && self.seal(session, &copies) {
            if thread_rng().r#gen() {
                self.dies(session);
                return Ok(());
            }
            // It takes its time, in which the owner does something.
            (0..thread_rng().gen_range(0..4)).for_each(|_| spin_hint());
        }
        self.finish(
            session,
            (wanted, after),
            copies,
            straddled.then_some(in_flight),
        );
        Ok(())
    }

    /// Seals what has a delta of a set that was copied; false if nothing has.
    fn seal(&mut self, session: usize, copies: &Copies) -> bool {
        let memory = Arc::clone(&self.memory);
        let with_delta = copies.iter().filter(|(_, copy)| copy.is_some());
        let mut sealed = Vec::new();
        for (inode, _) in with_delta {
            let header = memory.header(*inode);
            if self.mutation == Mutation::SealsOneOfTwo && !sealed.is_empty() {
                unmark(header, header.ownership(), header.fold());
                continue;
            }
            let old = header.branch_slot() as usize;
            let slot = match self.mutation {
                Mutation::SealsInPlace => old,
                _ => self.take_slot(session),
            };
            let words = HeaderWords {
                session: session + 1,
                fold: self.next_fold(),
                slot,
                sealed: header.fold(),
                sealed_slot: old,
            };
            sealed.push((*inode, words));
        }
        if self.mutation != Mutation::SealsWithoutJournal {
            self.ledger.notes().journal = Some(Entry {
                headers: sealed.clone(),
                values: Vec::new(),
            });
        }
        self.may_fail();
        for (inode, words) in &sealed {
            let header = memory.header(*inode);
            let ownership = header.ownership();
            if self.mutation == Mutation::UnmarksBeforeSeal {
                let word = ownership.unmarked().0;
                header.ownership.store(word, Ordering::Release);
            }
            let identity = identity_word(1, words.slot as u32);
            header.identity.store(identity, Ordering::Release);
            let state = state_word(HeaderKind::Alive, None, words.sealed_slot as u32);
            header.state.store(state, Ordering::Release);
            let store_sealed = || header.sealed.store(words.sealed, Ordering::Release);
            if self.mutation == Mutation::SealsWithoutJournal {
                unmark(header, ownership, words.fold);
                self.may_fail();
                store_sealed();
            } else {
                store_sealed();
                unmark(header, ownership, words.fold);
            }
            self.may_fail();
            self.owned[session].insert(*inode, words.slot);
        }
        self.ledger.notes().journal = None;
        self.may_fail();
        !sealed.is_empty()
    }

    /// The controller dies behind a seal; the next one knows what the headers say, and folds what is sealed
    /// before anybody is served.
    fn dies(&mut self, session: usize) {
        let memory = Arc::clone(&self.memory);
        (0..thread_rng().gen_range(0..4)).for_each(|_| spin_hint());
        let is_owned = |inode: &InodeNumber| self.owned[session].contains_key(inode);
        let owned: Vec<InodeNumber> = memory.inodes().filter(is_owned).collect();
        let is_sealed = |inode: &InodeNumber| memory.header(*inode).sealed() != 0;
        let sealed: Vec<InodeNumber> = owned.iter().copied().filter(is_sealed).collect();
        if self.mutation != Mutation::NextForgetsSealed {
            let copy = |&inode: &InodeNumber| (inode, memory.sealed_delta(session, inode));
            let mut copies: Copies = sealed.iter().map(copy).collect();
            // Marked still, and without a delta.
            let more: BTreeSet<InodeNumber> = along(&copies)
                .filter(|inode| owned.contains(inode) && !sealed.contains(inode))
                .collect();
            let set = sealed.iter().chain(&more);
            set.for_each(|&inode| mark(memory.header(inode)));
            let mut in_flight = InFlight::snapshot(&memory.arenas[session].threads);
            let straddled = !self.wait(session, &mut in_flight);
            let copy = |inode| (inode, memory.delta(session, inode));
            copies.extend(more.into_iter().map(copy));
            let flights = straddled.then_some(in_flight);
            self.finish(session, (&sealed, After::Keep), copies, flights);
        }
        // What was marked with it and had no delta.
        for inode in owned {
            let header = memory.header(inode);
            unmark(header, header.ownership(), header.fold());
        }
    }

    /// Applies what was copied, of sealed deltas or of active ones, and ends their numbers. `flights`: what was
    /// in flight when it was copied, if anything was.
    fn finish(
        &mut self,
        session: usize,
        (wanted, after): (&[InodeNumber], After),
        copies: Copies,
        flights: Option<InFlight>,
    ) {
        let ends: Vec<End> = copies
            .iter()
            .map(|(inode, copy)| {
                let releases = match after {
                    After::Keep => false,
                    After::Release => true,
                    After::ReleaseIdle => copy.is_none(),
                } && wanted.contains(inode);
                self.end(session, *inode, copy.is_some(), releases)
            })
            .collect();
        self.ledger.notes().journal = Some(self.entry(session, &copies, &ends));
        self.may_fail();
        if self.mutation == Mutation::UnsealsBeforeApplying {
            ends.iter().for_each(|end| self.unseal(session, end, None));
        }
        self.apply(session, &copies, &ends, flights.as_ref());
        for (end, (inode, copy)) in ends.into_iter().zip(copies) {
            self.store_end(&end);
            self.may_fail();
            let ends = (end.is_folded && !end.unseals) || end.releases;
            if let Some(in_flight) = &flights
                && self.mutation != Mutation::DoesNotWait
                && ends
            {
                let fold_copy = copy.map_or(FoldCopy::Nothing, FoldCopy::Copy);
                let in_flight = in_flight.clone();
                let kept = Kept {
                    fold_copy,
                    in_flight,
                };
                self.fold_copies.insert((session, inode, end.ended), kept);
            }
            if end.releases
                && let Some(slot) = self.owned[session].remove(&inode)
            {
                self.leave_slot(session, slot, flights.as_ref());
            }
        }
        self.ledger.notes().journal = None;
        self.may_fail();
    }

    /// Nobody has a slot any more, unless somebody in flight still stores into it.
    fn leave_slot(&mut self, session: usize, slot: usize, flights: Option<&InFlight>) {
        match flights {
            Some(in_flight) if self.mutation != Mutation::ReusesSlotAtOnce => {
                self.quarantine.push((session, slot, in_flight.clone()));
            }
            _ => self.free_slots[session].push(slot),
        }
    }

    /// What the journal holds of a fold.
    fn entry(&self, session: usize, copies: &Copies, ends: &[End]) -> Entry {
        let headers = ends.iter().map(|end| {
            let words = HeaderWords {
                session: end.ownership.session() as usize,
                fold: end.fold,
                slot: match end.releases {
                    true => 0,
                    false => self.owned[session][&end.inode],
                },
                sealed: 0,
                sealed_slot: 0,
            };
            (end.inode, words)
        });
        let parts = effects(copies).flat_map(|(of, effect)| effect.parts(of));
        Entry {
            headers: headers.collect(),
            values: parts
                .filter_map(|(inode, effect)| match effect {
                    Effect::Add(value) => Some((inode, value, true)),
                    Effect::Remove(value) => Some((inode, value, false)),
                    Effect::AddToBoth(_) | Effect::Partner(_) | Effect::Gone(_) => None,
                })
                .collect(),
        }
    }

    /// Nothing of this inode is sealed any more.
    fn unseal(&mut self, session: usize, end: &End, flights: Option<&InFlight>) {
        let header = self.memory.header(end.inode);
        if !end.unseals || header.sealed() == 0 {
            return;
        }
        let slot = sealed_slot(header);
        header.sealed.store(0, Ordering::Release);
        let state = state_word(HeaderKind::Alive, None, 0);
        header.state.store(state, Ordering::Release);
        if self.mutation != Mutation::SealsInPlace {
            self.leave_slot(session, slot, flights);
        }
    }

    /// Changes the verified state, of all inodes in one step for each reader.
    fn apply(&mut self, session: usize, copies: &Copies, ends: &[End], flights: Option<&InFlight>) {
        let (memory, mutation) = (Arc::clone(&self.memory), self.mutation);
        let step = |by: fn(u64) -> u64| {
            if mutation == Mutation::KeepsSequenceEven {
                return;
            }
            for (inode, _) in copies {
                let sequence = &memory.header(*inode).sequence;
                sequence.store(by(sequence.load(Ordering::Relaxed)), Ordering::Release);
            }
        };
        step(|sequence| sequence | 1);
        fence(Ordering::SeqCst);
        for (inode, effect) in effects(copies).flat_map(|(of, effect)| effect.parts(of)) {
            let is_new = self.ledger.notes().applied.insert((inode, effect));
            assert!(is_new, "inode {inode}: {effect:?} was folded twice");
            let verified = memory.verified(inode);
            match effect {
                Effect::Add(value) => verified.set(value, true),
                Effect::Remove(value) => {
                    assert!(verified.holds(value), "inode {inode}: {value} is not there");
                    verified.set(value, false);
                }
                Effect::AddToBoth(_) | Effect::Partner(_) | Effect::Gone(_) => {}
            }
        }
        for end in ends {
            self.unseal(session, end, flights);
        }
        self.may_fail();
        fence(Ordering::SeqCst);
        step(|sequence| sequence + 1);
    }

    /// Which number an inode gets, and whose it is; one whose sealed delta is folded keeps both.
    fn end(&mut self, session: usize, inode: InodeNumber, is_folded: bool, releases: bool) -> End {
        let memory = Arc::clone(&self.memory);
        let header = memory.header(inode);
        let ended = header.fold();
        let unseals = header.sealed() != 0;
        let next = self.next_fold();
        let is_over = is_folded && !unseals && self.mutation != Mutation::KeepsFoldNumber;
        let ownership = if releases {
            Ownership::SHARED
        } else {
            let is_owner = header.ownership().session() == session as u32 + 1;
            assert!(is_owner, "inode {inode} changed hands during a fold");
            header.ownership()
        };
        End {
            inode,
            ended,
            fold: if releases || is_over { next } else { ended },
            ownership,
            is_folded,
            releases,
            unseals,
        }
    }

    /// Ends a fold number, and the mark.
    fn store_end(&self, end: &End) {
        let header = self.memory.header(end.inode);
        if end.releases {
            header
                .identity
                .store(identity_word(1, 0), Ordering::Release);
        }
        if self.mutation == Mutation::UnmarksBeforeFoldNumber {
            let word = end.ownership.unmarked().0;
            header.ownership.store(word, Ordering::Release);
        }
        unmark(header, end.ownership, end.fold);
    }

    fn fold_copy(
        &self,
        session: usize,
        inode: InodeNumber,
        fold: u64,
        offset: u64,
        length: u32,
    ) -> Response {
        let kept = self
            .fold_copies
            .get(&(session, inode, fold))
            .filter(|kept| {
                let threads = &self.memory.arenas[session].threads;
                self.mutation != Mutation::DropsFoldCopyWhenLeft
                    || !kept.in_flight.clone().all_left(threads)
            });
        let no_data = || Response::Error(Errno::NODATA.raw_os_error());
        match kept.map(|kept| &kept.fold_copy) {
            None => Response::Done,
            Some(FoldCopy::Nothing) => no_data(),
            Some(FoldCopy::Copy(words)) => words
                .iter()
                .find(|(place, _)| place.offset() == offset)
                .map_or_else(no_data, |(_, word)| {
                    Response::Bytes(word.to_le_bytes()[..length as usize].to_vec())
                }),
        }
    }
}
