//! Which fold numbers a fold ends, and which inodes it takes from their owner, in the same commit as what
//! it applies.
//!
//! # Invariant
//! A fold number ends if its delta was folded, if its owner loses the inode, or if it is renewed; that of a
//! sealed delta has ended when it was [sealed](super::seal). Who stored
//! something under a number that has ended finds a fold copy, if operations were in flight.

use crate::sessions::fold_copies::{FoldCopy, KeptFoldCopy};
use crate::space::number_set::NumberSet;
use crate::state::change::Change;
use arck_core_state::header::HeaderKind;
use arck_core_state::{InodeNumber, Ownership};
use arck_verifier::{CopiedDelta, SetMember};
use foldhash::HashSet;
use rustix::io::Errno;

/// What becomes of the ownership of the inodes that were asked for; those that come along stay, but for what is
/// [let go](super::letting_go).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    Keep,
    Release,
    /// Release those that turn out to have no delta.
    ReleaseIdle,
    /// Keep, and what was asked for gets a new fold number also if it has no delta: the verified
    /// state changes under the owner, and an operation in flight that has not been waited for
    /// would take what it publishes now for something on top of the state it has seen.
    Renew,
}

/// What a fold has found of the inodes of its set.
pub(super) struct Folded {
    /// Those that have a delta.
    pub with_delta: HashSet<InodeNumber>,
    /// Those of them whose delta is not folded now.
    pub skipped: HashSet<InodeNumber>,
}

impl Folded {
    fn is_folded(&self, number: InodeNumber) -> bool {
        self.with_delta.contains(&number) && !self.skipped.contains(&number)
    }
}

/// What has ended with a fold beside the deltas: inodes that have another fold number although nothing of them was
/// folded, and refusals.
#[derive(Default)]
pub(super) struct Ended {
    /// Those that nobody owns any more.
    pub released: Vec<InodeNumber>,
    /// What was sealed, and its branch slots.
    pub unsealed: Vec<(InodeNumber, u32)>,
    renewed: Vec<InodeNumber>,
    /// Those that were refused, and are not any more.
    pub accepted: Vec<InodeNumber>,
}

/// Ends fold numbers of `set`, and ownership of those that are wanted, as [`After`] says, or
/// [let go](super::letting_go).
pub(super) fn end(
    change: &mut Change<'_>,
    set: &NumberSet,
    (wanted, after): (&[InodeNumber], After),
    let_go: &HashSet<InodeNumber>,
    folded: &Folded,
) -> Result<Ended, Errno> {
    let wanted: HashSet<InodeNumber> = wanted.iter().copied().collect();
    let mut ended = Ended::default();
    // What has no delta of its own is not in the set.
    let beside = let_go.iter().copied();
    let beside = beside.filter(|&number| !set.contains(number));
    for number in set.iter().chain(beside) {
        let has_delta = folded.with_delta.contains(&number);
        let is_wanted = wanted.contains(&number);
        let is_renewed = after == After::Renew && is_wanted && !has_delta;
        let fold = change.state.numbers.fold();
        let header = change.header(number)?;
        let is_released = match after {
            After::Keep | After::Renew => false,
            After::Release => true,
            After::ReleaseIdle => !has_delta,
        };
        let lets_go = let_go.contains(&number) && !folded.skipped.contains(&number);
        let releases = (is_released && is_wanted || !is_renewed && lets_go)
            && header.kind != HeaderKind::Granted;
        if header.sealed != 0 {
            debug_assert!(!releases && !is_renewed, "{number} is sealed");
            header.sealed = 0;
            let slot = std::mem::take(&mut header.sealed_slot);
            ended.unsealed.push((number, slot));
        } else if folded.is_folded(number) || releases || is_renewed {
            debug_assert!(fold > header.fold, "fold numbers of {number} repeat");
            header.fold = fold;
        }
        if header.ownership.is_refused() {
            header.ownership = header.ownership.accepted();
            ended.accepted.push(number);
        }
        if is_renewed {
            ended.renewed.push(number);
        }
        if releases {
            header.ownership = Ownership::SHARED;
            header.branch_slot = 0;
            ended.released.push(number);
        }
    }
    Ok(ended)
}

impl Ended {
    /// What operations that were in flight can ask for.
    pub fn fold_copies(
        &self,
        members: &[SetMember],
        deltas: Vec<CopiedDelta>,
        folded: &Folded,
    ) -> Vec<KeptFoldCopy> {
        let has_ended = |number| self.released.contains(&number) || self.renewed.contains(&number);
        let nothing = members
            .iter()
            .filter(|member| {
                has_ended(member.number) && !folded.with_delta.contains(&member.number)
            })
            .map(|member| KeptFoldCopy {
                inode: member.number,
                fold: member.header.fold,
                kind: FoldCopy::Nothing,
            });
        let copies = deltas
            .into_iter()
            .filter(|delta| folded.is_folded(delta.inode))
            .map(|delta| KeptFoldCopy {
                inode: delta.inode,
                fold: delta.branch.fold,
                kind: FoldCopy::Copy(Box::new(delta)),
            });
        nothing.chain(copies).collect()
    }
}
