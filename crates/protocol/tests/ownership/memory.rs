//! The memory that LibFS threads, readers and the controller share in the model.
//!
//! # Invariants
//! * Whatever two parties use at the same time is an atomic of the model checker, so that it
//!   may switch threads at every access; loads and stores are as small as in the real format.
//! * Values are small: an *effect* adds a number to an inode or removes it, and no two
//!   operations store the same word in the same place.

use arck_core_state::InodeNumber;
use arck_core_state::header::{HeaderKind, LiveHeader, identity_word, state_word};
use arck_core_state::primitive::{AtomicU64, Ordering, spin_hint};
use arck_protocol::operation::OperationSlot;

/// What an operation does to an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Effect {
    Add(usize),
    Remove(usize),
    /// In the delta of [`BOTH`]`[0]`: adds a value to both of these inodes.
    AddToBoth(usize),
    /// In the delta of [`BOTH`]`[1]`: a fold has to take the other one along. Changes nothing.
    Partner(usize),
    /// Nothing any more: what stood there has been taken back.
    Gone(usize),
}

/// The inodes that one operation changes together.
pub const BOTH: [InodeNumber; 2] = [1, 2];

const REMOVES: u64 = 1 << 8;
const ADDS_TO_BOTH: u64 = 2 << 8;
const PARTNER: u64 = 3 << 8;
const GONE: u64 = 4 << 8;
const KINDS: u64 = 7 << 8;

impl Effect {
    /// Never 0.
    pub fn word(self) -> u64 {
        match self {
            Effect::Add(value) => value as u64 + 1,
            Effect::Remove(value) => (value as u64 + 1) | REMOVES,
            Effect::AddToBoth(value) => (value as u64 + 1) | ADDS_TO_BOTH,
            Effect::Partner(value) => (value as u64 + 1) | PARTNER,
            Effect::Gone(value) => (value as u64 + 1) | GONE,
        }
    }

    pub fn of(word: u64) -> Option<Effect> {
        let value = ((word & 0xff) as usize).checked_sub(1)?;
        Some(match word & KINDS {
            0 => Effect::Add(value),
            REMOVES => Effect::Remove(value),
            ADDS_TO_BOTH => Effect::AddToBoth(value),
            GONE => Effect::Gone(value),
            _ => Effect::Partner(value),
        })
    }

    /// What it does to each inode, standing in the delta of `inode`.
    pub fn parts(self, inode: InodeNumber) -> Vec<(InodeNumber, Effect)> {
        match self {
            Effect::AddToBoth(value) => BOTH.map(|inode| (inode, Effect::Add(value))).to_vec(),
            Effect::Partner(_) | Effect::Gone(_) => Vec::new(),
            Effect::Add(_) | Effect::Remove(_) => vec![(inode, self)],
        }
    }
}

/// Verified state of an inode: which values it holds, and what says so a second time, so that a
/// half-applied state can be told.
pub struct Verified {
    pub present: Vec<AtomicU64>,
    count: AtomicU64,
    sum: AtomicU64,
}

impl Verified {
    fn new(values: usize) -> Verified {
        Verified {
            present: (0..values).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    /// Controller only; the header's sequence is odd meanwhile.
    pub fn set(&self, value: usize, is_present: bool) {
        let (word, factor) = (u64::from(is_present), value as u64 + 1);
        self.present[value].store(word, Ordering::Release);
        let count = self.count.load(Ordering::Relaxed);
        let sum = self.sum.load(Ordering::Relaxed);
        let (count, sum) = if is_present {
            (count + 1, sum + factor)
        } else {
            (count - 1, sum - factor)
        };
        self.count.store(count, Ordering::Release);
        self.sum.store(sum, Ordering::Release);
    }

    pub fn holds(&self, value: usize) -> bool {
        self.present[value].load(Ordering::Acquire) == 1
    }

    /// A reader's look: the values present, of one state.
    pub fn read(&self, header: &LiveHeader) -> Vec<usize> {
        loop {
            let Some(sequence) = header.read_begin() else {
                spin_hint();
                continue;
            };
            let values: Vec<usize> = (0..self.present.len()).filter(|&v| self.holds(v)).collect();
            let count = self.count.load(Ordering::Acquire);
            let sum = self.sum.load(Ordering::Acquire);
            if !header.read_end(sequence) {
                continue;
            }
            assert_eq!(values.len() as u64, count, "half-applied state: count");
            let total: u64 = values.iter().map(|&value| value as u64 + 1).sum();
            assert_eq!(total, sum, "half-applied state: sum");
            return values;
        }
    }
}

/// Where the branch of the sealed delta is.
pub fn sealed_slot(header: &LiveHeader) -> usize {
    (header.state.load(Ordering::Acquire) >> 32) as usize
}

/// A branch slot: a tag that says whose it is, and fields whose stores publish. The fields bear
/// no tag, as size and times in the real one.
pub struct Branch {
    pub tag: AtomicU64,
    pub fields: Vec<AtomicU64>,
}

/// What stands in the tag of a branch that exists for this inode and fold number.
pub fn tag(inode: InodeNumber, fold: u64) -> u64 {
    u64::from(inode) << 32 | fold
}

/// A record in a tail: bound to inode and fold number, as its checksum binds the real one.
pub fn record(effect: Effect, inode: InodeNumber, fold: u64) -> u64 {
    fold << 24 | u64::from(inode) << 16 | effect.word()
}

/// Where an operation publishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Branch { slot: usize, field: usize },
    Tail { thread: usize, index: usize },
}

impl Place {
    /// Stands for the byte offset in the arena.
    pub fn offset(self) -> u64 {
        let (part, row, column) = match self {
            Place::Branch { slot, field } => (0, slot, field),
            Place::Tail { thread, index } => (1, thread, index),
        };
        part << 32 | (row as u64) << 16 | column as u64
    }
}

/// What was copied of a delta: each word of it, with its place; 0 where nothing stands.
pub type Words = Vec<(Place, u64)>;

/// A session's arena and its operation slots.
pub struct Arena {
    pub threads: Vec<OperationSlot>,
    pub branches: Vec<Branch>,
    /// One for each thread, so that no two threads store at one place.
    pub tails: Vec<Vec<AtomicU64>>,
}

/// Everything that is shared.
pub struct Memory {
    headers: Vec<LiveHeader>,
    verified: Vec<Verified>,
    pub arenas: Vec<Arena>,
}

/// Sizes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub inodes: usize,
    pub sessions: usize,
    /// Of a session.
    pub threads: usize,
    /// Operations in all.
    pub values: usize,
    pub fields: usize,
    pub tail: usize,
}

/// Branch slots of a session: more than it has inodes, since some lie in quarantine.
pub const BRANCHES: usize = 6;

impl Memory {
    /// Shared inodes with numbers from 1 on.
    pub fn new(sizes: &Sizes) -> Memory {
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let headers = (0..sizes.inodes)
            .map(|index| {
                let header = LiveHeader::new_free();
                header.fold.store(1 + index as u64, Ordering::Relaxed);
                header
                    .identity
                    .store(identity_word(1, 0), Ordering::Relaxed);
                let state = state_word(HeaderKind::Alive, None, 0);
                header.state.store(state, Ordering::Relaxed);
                header
            })
            .collect();
        let arena = || Arena {
            threads: (0..sizes.threads)
                .map(|_| OperationSlot::default())
                .collect(),
            branches: (0..BRANCHES)
                .map(|_| Branch {
                    tag: AtomicU64::new(0),
                    fields: words(sizes.fields),
                })
                .collect(),
            tails: (0..sizes.threads).map(|_| words(sizes.tail)).collect(),
        };
        Memory {
            headers,
            verified: (0..sizes.inodes)
                .map(|_| Verified::new(sizes.values))
                .collect(),
            arenas: (0..sizes.sessions).map(|_| arena()).collect(),
        }
    }

    pub fn inodes(&self) -> impl Iterator<Item = InodeNumber> + use<> {
        1..=self.headers.len() as InodeNumber
    }

    pub fn header(&self, inode: InodeNumber) -> &LiveHeader {
        &self.headers[inode as usize - 1]
    }

    pub fn verified(&self, inode: InodeNumber) -> &Verified {
        &self.verified[inode as usize - 1]
    }

    /// The active delta of an inode in an arena under its present header: each word that is part of it,
    /// with its place. `None` if there is none.
    pub fn delta(&self, session: usize, inode: InodeNumber) -> Option<Words> {
        let (fold, slot) = {
            let header = self.header(inode);
            (header.fold(), header.branch_slot() as usize)
        };
        self.delta_of(session, inode, fold, slot)
    }

    /// The same of the sealed one.
    pub fn sealed_delta(&self, session: usize, inode: InodeNumber) -> Option<Words> {
        let header = self.header(inode);
        match header.sealed() {
            0 => None,
            fold => self.delta_of(session, inode, fold, sealed_slot(header)),
        }
    }

    /// The delta of an inode under a fold number, with its branch in this slot.
    pub fn delta_of(
        &self,
        session: usize,
        inode: InodeNumber,
        fold: u64,
        slot: usize,
    ) -> Option<Words> {
        let arena = &self.arenas[session];
        let mut words = Vec::new();
        let branch = &arena.branches[slot];
        let begun = branch.tag.load(Ordering::Acquire) == tag(inode, fold);
        if begun {
            for (field, word) in branch.fields.iter().enumerate() {
                words.push((Place::Branch { slot, field }, word.load(Ordering::Acquire)));
            }
        }
        let mut any = begun;
        for (thread, tail) in arena.tails.iter().enumerate() {
            for (index, word) in tail.iter().enumerate() {
                let word = word.load(Ordering::Acquire);
                let is_ours = word != 0 && word == record(Effect::of(word)?, inode, fold);
                any |= is_ours;
                let place = Place::Tail { thread, index };
                words.push((place, if is_ours { word } else { 0 }));
            }
        }
        any.then_some(words)
    }
}
