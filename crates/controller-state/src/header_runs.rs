//! Runs of inode headers: numbers that follow each other and are granted to a session, or freed, together, as one
//! record of the redo journal says it of thousands.
//!
//! # Invariants
//! * A run says of each of its numbers what the header is afterwards, and does not look at what it was before:
//!   applying it again changes nothing.
//! * No number of a run has an inode, before or after: only its owner looks at such a header, and sequence words
//!   stay as they are.

use arck_core_state::header::{HeaderKind, identity_word, state_word};
use arck_core_state::{InodeNumber, Ownership, cast};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What the headers of numbers that follow each other are from now on. A number that is so many behind the first one
/// has the fold number, and the branch slot, so many behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HeaderRun {
    /// Fold number of the first.
    pub fold: u64,
    /// To whom they are granted; 0: they are free.
    pub session: u32,
    /// The first number.
    pub first: InodeNumber,
    /// How many there are.
    pub count: u32,
    /// Of all of them.
    pub generation: u32,
    /// Branch slot of the first; 0 of those that are free.
    pub slot: u32,
    pub reserved: u32,
}

/// Bytes of a run.
pub const HEADER_RUN_SIZE: usize = 32;
const _: () = assert!(size_of::<HeaderRun>() == HEADER_RUN_SIZE);

impl HeaderRun {
    /// The owner that goes with a fold number: its low bits are the epoch.
    pub fn ownership(session: u32, fold: u64) -> Ownership {
        match session {
            0 => Ownership::SHARED,
            _ => Ownership::new(session, cast::low(fold)),
        }
    }

    /// One past the last number.
    pub fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.count)
    }

    /// Whether all of it is in a table of so many headers, of which the first is none.
    pub fn is_within(&self, inode_count: InodeNumber) -> bool {
        self.first != 0 && self.end() <= u64::from(inode_count)
    }

    /// Adds the number behind the last one, if it and what its header is to be continue the run.
    pub fn joins(&mut self, next: &HeaderRun) -> bool {
        let count = u64::from(self.count);
        let continues = u64::from(next.first) == self.end()
            && next.session == self.session
            && next.generation == self.generation
            && next.fold == self.fold + count
            && (self.session == 0 || u64::from(next.slot) == u64::from(self.slot) + count);
        if continues {
            self.count += next.count;
        }
        continues
    }

    /// Each number with the words 1 to 5 of its header: inode, fold number, ownership, identity, state.
    pub fn headers(&self) -> impl Iterator<Item = (InodeNumber, [u64; 5])> + use<> {
        let run = *self;
        (0..run.count).map(move |at| {
            let fold = run.fold.wrapping_add(u64::from(at));
            let (kind, slot) = match run.session {
                0 => (HeaderKind::Free, 0),
                _ => (HeaderKind::Granted, run.slot.wrapping_add(at)),
            };
            let ownership = HeaderRun::ownership(run.session, fold);
            let words = [
                0,
                fold,
                ownership.0,
                identity_word(run.generation, slot),
                state_word(kind, None, 0),
            ];
            (run.first.wrapping_add(at), words)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: HeaderRun = HeaderRun {
        fold: 100,
        session: 7,
        first: 10,
        count: 1,
        generation: 3,
        slot: 50,
        reserved: 0,
    };

    #[test]
    fn what_follows_joins_and_nothing_else_does() {
        let next = HeaderRun {
            fold: 101,
            first: 11,
            slot: 51,
            ..RUN
        };
        let mut run = RUN;
        assert!(run.joins(&next));
        assert_eq!(run, HeaderRun { count: 2, ..RUN });
        let others = [
            HeaderRun { fold: 102, ..next },
            HeaderRun { first: 12, ..next },
            HeaderRun { slot: 50, ..next },
            HeaderRun { session: 8, ..next },
            HeaderRun {
                generation: 4,
                ..next
            },
        ];
        for other in others {
            let mut run = RUN;
            assert!(!run.joins(&other), "{other:?}");
            assert_eq!(run, RUN);
        }
    }

    #[test]
    fn each_number_has_its_own_words() {
        let run = HeaderRun { count: 3, ..RUN };
        let all: Vec<_> = run.headers().collect();
        let last = [
            0,
            102,
            Ownership::new(7, 102).0,
            identity_word(3, 52),
            state_word(HeaderKind::Granted, None, 0),
        ];
        assert_eq!((all.len(), all[2]), (3, (12, last)));
        let freed = HeaderRun {
            session: 0,
            slot: 0,
            ..run
        };
        let words = [0, 102, 0, identity_word(3, 0), 0];
        assert_eq!(freed.headers().last(), Some((12, words)));
        assert!(run.is_within(13) && !run.is_within(12));
        let none = HeaderRun { first: 0, ..run };
        assert!(!none.is_within(100));
        let beyond = HeaderRun {
            count: u32::MAX,
            ..run
        };
        assert!(!beyond.is_within(u32::MAX));
    }
}
