//! Folds what stands in an arena, and says whether the outcome is one that may be.
//!
//! What must hold of every outcome, whatever the bytes:
//!
//! * it comes after no more steps than the delta's size allows;
//! * a refusal names an inode of the session and a place in its branch or in a delta page, on one
//!   line;
//! * what passes leaves a file system, in which nothing has changed that the session might not
//!   change ([`rights`](super::rights)).

use super::rights;
use crate::testing::MemoryState;
use crate::{
    ArenaSource, CopiedDelta, CopyFault, Credentials, PageBudget, SetMember, VerifiedState,
    Violation, closure, copy_delta, verify,
};
use arck_core_state::arena::{branch_offset, is_delta_page};
use arck_core_state::branch::BRANCH_SIZE;
use arck_core_state::directory::Dentry;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{HeaderCopy, Inode, InodeNumber, PAGE_SIZE, PagePtr};
use core::cell::Cell;

/// What became of a fold.
#[derive(Debug)]
pub enum Verdict {
    Refused(Violation),
    /// The state after it.
    Folded(Box<MemoryState>),
}

/// Most questions that a fold may ask for each member of its set, each record and each entry.
const QUESTIONS: u64 = 16;

/// Copies the deltas of `first` and of what must come along, at most `pages` pages, verifies
/// and applies them. The error says what must not be.
pub fn judge(
    state: &MemoryState,
    who: &Credentials,
    arena: &mut impl ArenaSource,
    first: &[InodeNumber],
    pages: usize,
) -> Result<Verdict, String> {
    let counted = Counted {
        state,
        questions: Cell::new(0),
    };
    let mut numbers = first.to_vec();
    let (set, deltas) = loop {
        let mut reads = Reads { arena, count: 0 };
        let mut budget = PageBudget::new(pages);
        let mut deltas = Vec::new();
        for &number in &numbers {
            let header = state.headers.get(&number);
            let header = header.ok_or(format!("closure names inode {number}"))?;
            match copy_delta(&mut reads, number, header, &mut budget) {
                Ok(delta) => deltas.extend(delta),
                Err(violation) => return refused(state, who, violation),
            }
        }
        if reads.count > numbers.len() + budget.used() {
            return Err(format!("{} reads of {} pages", reads.count, budget.used()));
        }
        counted.questions.set(0);
        let more = closure(&deltas, &counted, who.session);
        counted.within(&numbers, &deltas)?;
        let before = numbers.len();
        for number in more {
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        if numbers.len() == before {
            let set: Vec<SetMember> = numbers.iter().map(|&n| state.member(n)).collect();
            break (set, deltas);
        }
    };
    counted.questions.set(0);
    let verified = verify(&counted, who, &set, &deltas);
    counted.within(&numbers, &deltas)?;
    let changes = match verified {
        Ok(changes) => changes,
        Err(violation) => return refused(state, who, violation),
    };
    let mut after = Box::new(state.clone());
    after.apply(&set, &changes);
    after.check()?;
    rights::check(state, &after, who)?;
    Ok(Verdict::Folded(after))
}

fn refused(
    state: &MemoryState,
    who: &Credentials,
    violation: Violation,
) -> Result<Verdict, String> {
    let shown = violation.to_string();
    let header = state.headers.get(&violation.inode);
    let is_ours = header.is_some_and(|header| header.ownership.session() == who.session);
    let slot = header.and_then(|header| branch_offset(header.branch_slot));
    let in_slot =
        slot.is_some_and(|slot| (slot..slot + BRANCH_SIZE as u64).contains(&violation.offset));
    let page = u32::try_from(violation.offset / PAGE_SIZE);
    let fits = (in_slot || page.is_ok_and(is_delta_page)) && shown.len() < 2000;
    if is_ours && fits && !shown.contains(char::is_control) {
        Ok(Verdict::Refused(violation))
    } else {
        Err(format!("refused without a place: {shown}"))
    }
}

/// Counts how often the arena is read.
struct Reads<'a, A> {
    arena: &'a mut A,
    count: usize,
}

impl<A: ArenaSource> ArenaSource for Reads<'_, A> {
    fn copy(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), CopyFault> {
        self.count += 1;
        self.arena.copy(offset, buffer)
    }
}

/// Counts what the verifier asks.
struct Counted<'a> {
    state: &'a MemoryState,
    questions: Cell<u64>,
}

impl Counted<'_> {
    fn state(&self) -> &MemoryState {
        self.questions.set(self.questions.get() + 1);
        self.state
    }

    /// Whether no more was asked than the size of the deltas allows.
    fn within(&self, set: &[InodeNumber], deltas: &[CopiedDelta]) -> Result<(), String> {
        // A record takes a unit at least, which holds something; so does an entry.
        let used = |page: &[u8; 4096], size| {
            let parts = page.chunks(size);
            parts
                .filter(|part| part.iter().any(|&byte| byte != 0))
                .count()
        };
        let is_directory = |delta: &CopiedDelta| delta.branch.tails.iter().any(|&page| page != 0);
        let size: usize = deltas
            .iter()
            .map(|delta| {
                let size = if is_directory(delta) { 64 } else { 8 };
                let pages = delta.pages.values();
                1 + pages.map(|page| used(page, size)).sum::<usize>()
            })
            .sum();
        let most = QUESTIONS * (set.len() + size) as u64;
        if self.questions.get() > most {
            return Err(format!("{} questions of {most}", self.questions.get()));
        }
        Ok(())
    }
}

impl VerifiedState for Counted<'_> {
    fn header(&self, number: InodeNumber) -> Option<HeaderCopy> {
        self.state().header(number)
    }
    fn inode(&self, number: InodeNumber) -> Option<Inode> {
        self.state().inode(number)
    }
    fn hash(&self, name: &[u8]) -> u64 {
        self.state.hash(name)
    }
    fn lookup_hashed(&self, directory: InodeNumber, hash: u64, name: &[u8]) -> Option<Dentry> {
        self.state().lookup_hashed(directory, hash, name)
    }
    fn data_page(&self, number: InodeNumber, page: u64) -> PagePtr {
        self.state().data_page(number, page)
    }
    fn page_in_use(&self, page: PagePtr) -> bool {
        self.state().page_in_use(page)
    }
    fn data_segment_owner(&self, page: PagePtr) -> Option<SessionNumber> {
        self.state().data_segment_owner(page)
    }
}
