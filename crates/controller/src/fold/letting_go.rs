//! Files that their owner gives up with the fold that brings them.
//!
//! Who makes thousands of files comes back to few of them. What it does not own any more takes none of its branch slots,
//! of which there are so many at most, and which it uses again while they are in its caches; and it never owns so much that
//! all of that has to be given up at once. What it comes back to it acquires again.
//!
//! # Invariants
//! * What is let go has no delta but one that is folded now: it is marked, and who was in flight is waited for, before
//!   that is looked at.
//! * A file stays with its owner that comes to lie where he could not acquire it again, or that has no name.

use crate::fold::Folding;
use crate::fold::copied::Copied;
use crate::state::change::Change;
use crate::state::marks::{heavy_barrier, unmark};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, InodeNumber};
use arck_pm::record::stored;
use arck_protocol::operation::mark;
use arck_verifier::{Creation, Credentials};
use foldhash::HashSet;

/// In a fold what is in flight is waited for twice: here no longer than for such a part of the patience.
const PART: u32 = 8;

/// What is to be let go.
#[derive(Default)]
pub(super) struct LetGo {
    pub all: HashSet<InodeNumber>,
    /// Those that were marked for it.
    pub marked: Vec<InodeNumber>,
    /// Who would acquire them again; `None`: that can be whoever it is.
    who: Option<Credentials>,
}

impl LetGo {
    /// Those that have come to a place where their owner could acquire them again: who reaches that may, whatever the
    /// mode. In one that nobody reaches he is shown what he has made as long as it is his.
    pub fn within_reach(&self, change: &Change<'_>) -> HashSet<InodeNumber> {
        let Some(who) = &self.who else {
            return self.all.clone();
        };
        let is_in_reach = |&number: &InodeNumber| {
            let label = change.label_of_inode(number);
            change.state.admits(label, who)
        };
        self.all.iter().copied().filter(is_in_reach).collect()
    }
}

fn may_be_let_go(creation: &Creation) -> bool {
    creation.kind != FileKind::Directory && creation.names > 0
}

impl Folding<'_> {
    /// Which of these creations are to be let go, marked: none where their owner has few inodes, or is about something that
    /// it was not waited for.
    pub(super) fn mark_to_let_go(
        &mut self,
        owner: SessionNumber,
        copied: &Copied,
        creations: &[Creation],
    ) -> LetGo {
        let (state, options) = (&self.sessions.state, &self.sessions.options);
        let Some(session) = self.sessions.all.get(&owner) else {
            return LetGo::default();
        };
        if copied.straddled || session.live.is_none() || session.owned.len() <= options.owned_kept {
            return LetGo::default();
        }
        let who = state.space.shared.then(|| session.credentials.clone());
        let created = creations.iter().filter(|creation| may_be_let_go(creation));
        let created = created.map(|creation| creation.inode);
        let (within, beside): (Vec<_>, Vec<_>) =
            created.partition(|&number| copied.set.contains(number));
        let mut all: HashSet<InodeNumber> = within.into_iter().collect();
        let mut marked = Vec::new();
        for &number in &beside {
            if let Some(header) = state.pool.header(number)
                && !header.ownership().is_marked()
            {
                mark(header);
                stored(&header.ownership);
                marked.push(number);
            }
        }
        // Those that were marked before may have been since the others were waited for.
        if !beside.is_empty() {
            heavy_barrier();
            if !session.is_left_within(options.patience / PART) {
                unmark(state, &marked);
                let marked = Vec::new();
                return LetGo { all, marked, who };
            }
        }
        let is_idle = |number: InodeNumber| {
            let header = state.header_copy(number);
            header.is_some_and(|header| !session.has_branch(number, &header))
        };
        all.extend(beside.into_iter().filter(|&number| is_idle(number)));
        let (marked, kept): (Vec<_>, Vec<_>) =
            marked.into_iter().partition(|number| all.contains(number));
        unmark(state, &kept);
        LetGo { all, marked, who }
    }
}
