//! A LibFS of the model: operations as a LibFS makes them, on the real checks and the real
//! decision about what straddled a fold.
//!
//! # Invariants
//! * Nothing is asked of the controller inside an operation.
//! * An operation in a branch's fields holds the inode's lock from before it enters until it
//!   knows what became of it; one in a tail stores where no other thread does.
//! * What is sealed is changed by name alone: a record of the active delta is taken back in its place, one of the
//!   sealed delta, or one that is verified, by another record.
//! * A place is used again when its delta is neither active nor sealed any more.

use crate::image;
use crate::ledger::Ledger;
use crate::memory::{BOTH, Effect, Memory, Place, record, sealed_slot, tag};
use crate::scenario::Mutation;
use crate::service::Channel;
use arck_core_state::primitive::{Ordering, spin_hint};
use arck_core_state::{InodeNumber, LiveHeader};
use arck_protocol::operation::{
    Expected, LightBarrier, OperationSlot, Straddled, is_sealed_with, straddled, straddled_after,
};
use arck_protocol::{InodeList, Request, Response};
use rustix::io::Errno;
use shuttle::sync::{Mutex, MutexGuard};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a session knows of an inode, under the inode's lock.
struct View {
    expected: Expected,
    /// The branch has been begun.
    begun: bool,
    /// First free field.
    next: usize,
}

/// A session's auxiliary state.
pub struct Auxiliary {
    views: Vec<Mutex<View>>,
}

impl Auxiliary {
    pub fn new(inodes: usize) -> Auxiliary {
        let view = || {
            Mutex::new(View {
                expected: Expected {
                    ownership: Default::default(),
                    fold: 0,
                },
                begun: false,
                next: 0,
            })
        };
        Auxiliary {
            views: (0..inodes).map(|_| view()).collect(),
        }
    }
}

/// One thread of a session.
pub struct Thread {
    pub memory: Arc<Memory>,
    pub ledger: Arc<Ledger>,
    pub channel: Arc<Channel>,
    pub auxiliary: Arc<Auxiliary>,
    /// Index of the session; its number is one more.
    pub session: usize,
    /// Index of the thread in the session.
    pub thread: usize,
    pub mutation: Mutation,
    /// First place of its tail that was never used.
    pub tail: Cell<usize>,
    /// Records that it has published: place, inode, fold number.
    pub used: RefCell<Vec<(usize, InodeNumber, u64)>>,
    /// What it has added and not taken back.
    pub added: RefCell<Vec<Added>>,
    /// Whether folds seal, and the machine may fail.
    pub seals: bool,
}

/// A record that adds a value.
#[derive(Clone, Copy)]
pub struct Added {
    inode: InodeNumber,
    value: usize,
    index: usize,
    fold: u64,
}

/// Why an attempt ended.
enum Fix {
    /// Somebody else owns the inode, or a fold is under way.
    Own,
    Again,
}

/// What an operation wants.
#[derive(Clone, Copy, Debug)]
pub enum Want {
    /// Add this value by a field of the branch.
    Field(usize),
    /// Add this value by a record in a tail.
    Record(usize),
    /// Add this value to both of [`BOTH`], by one record in the delta of the first.
    Both(usize),
    /// Remove a value that the verified state holds, if any, else add this one.
    Remove(usize),
    /// Take back what this thread has added last by a record, if anything, else add this one.
    Undo(usize),
}

impl Thread {
    fn number(&self) -> u32 {
        self.session as u32 + 1
    }

    fn slot(&self) -> &OperationSlot {
        &self.memory.arenas[self.session].threads[self.thread]
    }

    /// A place in the thread's tail: where folds seal, one that was used for what is over now.
    fn take_place(&self) -> usize {
        let is_over = |&(_, inode, fold): &(usize, InodeNumber, u64)| {
            let header = self.memory.header(inode);
            let is_active = header.fold() == fold;
            // Loaded behind the number: it was stored before.
            let is_sealed = header.sealed() == fold;
            !is_active && (!is_sealed || self.mutation == Mutation::ReusesPagesOfSealed)
        };
        if self.seals {
            let used = self.used.borrow().clone();
            if let Some(at) = used.iter().position(is_over) {
                return self.used.borrow_mut().remove(at).0;
            }
        }
        self.tail.replace(self.tail.get() + 1)
    }

    /// Whatever the machine leaves if it fails here has all that was promised.
    fn may_fail(&self) {
        if self.seals {
            image::check(&self.memory, &self.ledger, self.mutation);
        }
    }

    /// Asks the controller, as the kit's session does.
    pub fn ask(&self, request: &Request) -> Result<Response, Errno> {
        match self.channel.ask(self.session, request)? {
            Response::Error(errno) => Err(Errno::from_raw_os_error(errno)),
            response => Ok(response),
        }
    }

    /// An operation, attempted until it is done.
    pub fn operate(&self, inode: InodeNumber, want: Want) {
        let mut lost = 0;
        loop {
            let attempt = match want {
                Want::Field(_) => self.attempt_field(inode, want),
                Want::Both(value) => self.attempt_both(value),
                Want::Undo(_) => self.attempt_undo(inode, want),
                Want::Record(_) | Want::Remove(_) => self.attempt_record(inode, want),
            };
            match attempt {
                Ok(()) => return,
                Err(Fix::Again) => {}
                Err(Fix::Own) => {
                    let one = [inode];
                    let inodes: &[InodeNumber] = match want {
                        Want::Both(_) => &BOTH,
                        _ => &one,
                    };
                    let is_other = |&&inode: &&InodeNumber| {
                        let header = self.memory.header(inode);
                        wait_unmarked(header);
                        header.ownership().session() != self.number()
                    };
                    let missing: Vec<_> = inodes.iter().filter(is_other).copied().collect();
                    if !missing.is_empty() {
                        // Stands for the other's lease, without which two sessions may take
                        // the inode from each other for ever.
                        (0..lost).for_each(|_| spin_hint());
                        lost += 1;
                        let inodes = InodeList::new(&missing).expect("few inodes");
                        // EIO: what the other session did is refused just now.
                        let _ = self.ask(&Request::Acquire { inodes });
                    }
                }
            }
        }
    }

    /// Folds this session's own delta.
    pub fn commit(&self, inode: InodeNumber, release: bool) {
        let inodes = list(inode);
        let _ = self.ask(&Request::Commit { inodes, release });
    }

    /// A reader's look, after a recall.
    pub fn look(&self, inode: InodeNumber) {
        let promised = self.ledger.acknowledged(inode);
        let inodes = list(inode);
        let recalled = self.ask(&Request::Recall { inodes });
        let values = self.memory.verified(inode).read(self.memory.header(inode));
        if recalled.is_ok() {
            self.ledger.check_seen(inode, &promised, &values);
        }
    }

    /// The owner's look: what is active over what is sealed over what is verified. As a reader, of an inode
    /// that this session does not own.
    pub fn look_at_own(&self, inode: InodeNumber) {
        let promised = self.ledger.acknowledged(inode);
        let (memory, header) = (&self.memory, self.memory.header(inode));
        let values = loop {
            wait_unmarked(header);
            let Ok(expected) = self.expected(header) else {
                return self.look(inode);
            };
            let Some(sequence) = header.read_begin() else {
                spin_hint();
                continue;
            };
            let (sealed, slot) = (header.sealed(), sealed_slot(header));
            let active_slot = header.branch_slot() as usize;
            let verified = memory.verified(inode);
            let values = (0..verified.present.len()).filter(|&value| verified.holds(value));
            let mut values: BTreeSet<usize> = values.collect();
            let delta = |fold, slot| memory.delta_of(self.session, inode, fold, slot);
            let is_seen = sealed != 0 && self.mutation != Mutation::DropsSealedEarly;
            let below = is_seen.then(|| delta(sealed, slot)).flatten();
            let above = delta(expected.fold, active_slot);
            if !expected.still_holds(header)
                || header.sealed() != sealed
                || !header.read_end(sequence)
            {
                continue;
            }
            for words in [below, above].into_iter().flatten() {
                for effect in words.iter().filter_map(|&(_, word)| Effect::of(word)) {
                    match effect {
                        Effect::Add(value) => drop(values.insert(value)),
                        Effect::Remove(value) => drop(values.remove(&value)),
                        Effect::AddToBoth(_) | Effect::Partner(_) | Effect::Gone(_) => {}
                    }
                }
            }
            break values;
        };
        let values: Vec<usize> = values.into_iter().collect();
        self.ledger.check_seen(inode, &promised, &values);
    }

    fn still_holds(&self, expected: &Expected, header: &LiveHeader) -> bool {
        if self.mutation == Mutation::LoadsFoldNumberFirst {
            let fold = header.fold();
            let ownership = header.ownership();
            return fold == expected.fold && ownership == expected.ownership;
        }
        expected.still_holds(header)
    }

    /// Enters and makes the first check.
    fn begin(&self, expected: &Expected, header: &LiveHeader) -> Result<(), Fix> {
        let enters_late = self.mutation == Mutation::EntersAfterCheck;
        if !enters_late {
            self.slot().enter(LightBarrier::Registered);
        }
        let holds = self.mutation == Mutation::NoFirstCheck || self.still_holds(expected, header);
        if !holds {
            self.slot().leave();
            return Err(Fix::Own);
        }
        if enters_late {
            self.slot().enter(LightBarrier::Registered);
        }
        Ok(())
    }

    /// Publishes, makes the second check and finds out what became of the operation.
    fn publish(
        &self,
        inode: InodeNumber,
        expected: &Expected,
        effect: Effect,
        word: u64,
        place: Place,
    ) -> Result<Straddled, Errno> {
        let (memory, header) = (&self.memory, self.memory.header(inode));
        if self.mutation == Mutation::LeavesBeforePublishing {
            self.slot().leave();
        }
        let arena = &memory.arenas[self.session];
        match place {
            Place::Branch { slot, field } => &arena.branches[slot].fields[field],
            Place::Tail { thread, index } => &arena.tails[thread][index],
        }
        .store(word, Ordering::Release);
        self.may_fail();
        let stands = self.mutation == Mutation::NoSecondCheck || self.still_holds(expected, header);
        if self.mutation != Mutation::LeavesBeforePublishing {
            self.slot().leave();
        }
        if stands {
            return Ok(Straddled::NotFolded);
        }
        wait_unmarked(header);
        if self.mutation == Mutation::DecidesByVerifiedState && header.fold() != expected.fold {
            let values = memory.verified(inode).read(header);
            let is_there = match effect {
                Effect::Add(value) => values.contains(&value),
                Effect::Remove(value) => !values.contains(&value),
                Effect::AddToBoth(_) | Effect::Partner(_) | Effect::Gone(_) => {
                    unreachable!("not published here")
                }
            };
            return Ok(if is_there {
                Straddled::Included
            } else {
                Straddled::Missed
            });
        }
        if is_sealed_with(header, expected) {
            return Ok(Straddled::Included);
        }
        straddled(header, expected, &word.to_le_bytes(), |length| {
            self.ask(&Request::FoldCopy {
                inode,
                fold: expected.fold,
                offset: place.offset(),
                length,
            })
        })
    }

    /// One record that changes two inodes. If the second does not hold any more, the record is
    /// taken back before the operation is left: a fold of the first would find half of it. Whoever looks once more, since
    /// a fold was refused, takes it back where the first inode is not marked.
    fn attempt_both(&self, value: usize) -> Result<(), Fix> {
        let memory = Arc::clone(&self.memory);
        let headers = BOTH.map(|inode| memory.header(inode));
        let expected = [self.expected(headers[0])?, self.expected(headers[1])?];
        let holds = |i: usize| self.still_holds(&expected[i], headers[i]);
        self.begin(&expected[0], headers[0])?;
        if !holds(1) {
            self.slot().leave();
            return Err(Fix::Own);
        }
        let (partner, index) = (self.take_place(), self.take_place());
        let tail = &memory.arenas[self.session].tails[self.thread];
        let word = record(Effect::Partner(value), BOTH[1], expected[1].fold);
        tail[partner].store(word, Ordering::Release);
        let effect = Effect::AddToBoth(value);
        let word = record(effect, BOTH[0], expected[0].fold);
        tail[index].store(word, Ordering::Release);

        let mut last = word;
        let mut is_waited_for = true;
        let result = loop {
            self.slot().enter(LightBarrier::Registered);
            let first_holds = holds(0);
            if first_holds && holds(1) {
                self.slot().leave();
                break Ok(Straddled::NotFolded);
            }
            // Whoever has come in once more is not waited for: beneath a mark the record may have been copied.
            let takes_back = match self.mutation {
                Mutation::LeavesHalfStanding => false,
                Mutation::TakesBackOnlyWhatHolds => first_holds,
                Mutation::TakesBackBeneathMarks => true,
                _ => is_waited_for || first_holds,
            };
            if takes_back && !holds(1) {
                last = 0;
                tail[index].store(last, Ordering::Release);
            }
            self.slot().leave();
            is_waited_for = false;
            wait_unmarked(headers[0]);
            let thought = match self.mutation {
                Mutation::ForgetsTakingBack => word,
                _ => last,
            };
            let place = Place::Tail {
                thread: self.thread,
                index,
            };
            let (published, thought) = (word.to_le_bytes(), thought.to_le_bytes());
            match straddled_after(headers[0], &expected[0], &published, &thought, |length| {
                self.ask(&Request::FoldCopy {
                    inode: BOTH[0],
                    fold: expected[0].fold,
                    offset: place.offset(),
                    length,
                })
            }) {
                Ok(Straddled::NotFolded) if last == 0 => break Ok(Straddled::Missed),
                Ok(Straddled::NotFolded) if self.mutation == Mutation::LeavesHalfStanding => {
                    break Ok(Straddled::NotFolded);
                }
                // The fold was refused: the record stands, if the other inode still holds.
                Ok(Straddled::NotFolded) => {}
                result => break result,
            }
        };
        self.done(BOTH[0], effect, result)
    }

    /// What this session may expect of an inode that it owns.
    fn expected(&self, header: &LiveHeader) -> Result<Expected, Fix> {
        let fold = header.fold();
        let ownership = header.ownership();
        if ownership.session() != self.number() {
            return Err(Fix::Own);
        }
        let ownership = ownership.unmarked();
        Ok(Expected { ownership, fold })
    }

    fn attempt_field(&self, inode: InodeNumber, want: Want) -> Result<(), Fix> {
        let header = self.memory.header(inode);
        let mut view = lock(&self.auxiliary.views[inode as usize - 1]);
        let now = self.expected(header)?;
        if now != view.expected {
            *view = View {
                expected: now,
                begun: false,
                next: 0,
            };
        }
        self.begin(&now, header)?;
        let slot = if self.mutation == Mutation::TakesSlotFromHeader {
            Some(header.branch_slot())
        } else {
            now.branch_slot(header)
        };
        let Some(slot) = slot.map(|slot| slot as usize) else {
            self.slot().leave();
            return Err(Fix::Own);
        };
        let branch = &self.memory.arenas[self.session].branches[slot];
        if !view.begun {
            for field in &branch.fields {
                field.store(0, Ordering::Release);
            }
            branch.tag.store(tag(inode, now.fold), Ordering::Release);
            view.begun = true;
        }
        let effect = Effect::Add(want.value());
        let place = Place::Branch {
            slot,
            field: view.next,
        };
        view.next += 1;
        self.done(
            inode,
            effect,
            self.publish(inode, &now, effect, effect.word(), place),
        )
    }

    fn attempt_record(&self, inode: InodeNumber, want: Want) -> Result<(), Fix> {
        let header = self.memory.header(inode);
        let expected = self.expected(header)?;
        self.begin(&expected, header)?;
        let effect = self.choose(inode, want);
        let place = Place::Tail {
            thread: self.thread,
            index: self.take_place(),
        };
        let result = self.publish_record(inode, &expected, effect, place);
        if let (Ok(Straddled::Missed), Effect::Remove(value)) = (&result, effect) {
            self.ledger.notes().claimed.remove(&value);
        }
        self.done(inode, effect, result)
    }

    /// Publishes a record in the thread's tail, and remembers it.
    fn publish_record(
        &self,
        inode: InodeNumber,
        expected: &Expected,
        effect: Effect,
        place: Place,
    ) -> Result<Straddled, Errno> {
        let fold = expected.fold;
        let word = record(effect, inode, fold);
        let result = self.publish(inode, expected, effect, word, place);
        if let Place::Tail { index, .. } = place {
            self.used.borrow_mut().push((index, inode, fold));
            if let (Ok(Straddled::NotFolded | Straddled::Included), Effect::Add(value)) =
                (&result, effect)
            {
                self.added.borrow_mut().push(Added {
                    inode,
                    value,
                    index,
                    fold,
                });
            }
        }
        result
    }

    fn attempt_undo(&self, inode: InodeNumber, want: Want) -> Result<(), Fix> {
        let last = self.added.borrow().last().copied();
        let Some(added) = last.filter(|added| added.inode == inode) else {
            return self.attempt_record(inode, want);
        };
        let header = self.memory.header(inode);
        let expected = self.expected(header)?;
        self.begin(&expected, header)?;
        self.ledger.notes().claimed.insert(added.value);
        let is_active = added.fold == expected.fold;
        let by_place = self.mutation == Mutation::EditsSealedInPlace;
        let result = if is_active || by_place && added.fold == header.sealed() {
            let place = Place::Tail {
                thread: self.thread,
                index: added.index,
            };
            let effect = Effect::Add(added.value);
            let gone = record(Effect::Gone(added.value), inode, added.fold);
            let result = self.publish(inode, &expected, effect, gone, place);
            if matches!(result, Ok(Straddled::NotFolded | Straddled::Included)) {
                self.ledger.retract(inode, effect);
            }
            result
        } else {
            let place = Place::Tail {
                thread: self.thread,
                index: self.take_place(),
            };
            let effect = Effect::Remove(added.value);
            let result = self.publish_record(inode, &expected, effect, place);
            if matches!(result, Ok(Straddled::NotFolded | Straddled::Included)) {
                self.ledger.acknowledge(inode, effect);
                self.may_fail();
            }
            result
        };
        match result.expect("the controller answers every question about a fold copy") {
            Straddled::NotFolded | Straddled::Included => {
                self.added.borrow_mut().pop();
                Ok(())
            }
            Straddled::Missed => Err(Fix::Again),
        }
    }

    /// What to do to an inode just found to be this session's, so that the verified state has
    /// all that other sessions were promised.
    fn choose(&self, inode: InodeNumber, want: Want) -> Effect {
        let Want::Remove(instead) = want else {
            return Effect::Add(want.value());
        };
        let promised = self.ledger.acknowledged(inode);
        let values = self.memory.verified(inode).read(self.memory.header(inode));
        self.ledger.check_seen(inode, &promised, &values);
        let mut notes = self.ledger.notes();
        let free = values.into_iter().find(|v| !notes.claimed.contains(v));
        match free {
            Some(value) => {
                notes.claimed.insert(value);
                Effect::Remove(value)
            }
            None => Effect::Add(instead),
        }
    }

    fn done(
        &self,
        inode: InodeNumber,
        effect: Effect,
        result: Result<Straddled, Errno>,
    ) -> Result<(), Fix> {
        match result.expect("the controller answers every question about a fold copy") {
            Straddled::NotFolded | Straddled::Included => {
                self.ledger.acknowledge(inode, effect);
                self.may_fail();
                Ok(())
            }
            Straddled::Missed => Err(Fix::Again),
        }
    }
}

impl Want {
    fn value(self) -> usize {
        match self {
            Want::Field(value)
            | Want::Record(value)
            | Want::Both(value)
            | Want::Remove(value)
            | Want::Undo(value) => value,
        }
    }
}

fn list(inode: InodeNumber) -> InodeList {
    InodeList::new(&[inode]).expect("one inode is not too many")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics and goes on")
}

fn wait_unmarked(header: &LiveHeader) {
    while header.ownership().is_marked() {
        spin_hint();
    }
}
