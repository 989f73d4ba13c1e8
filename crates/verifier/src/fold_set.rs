//! The fold set: which inodes are folded together, and whose they are.

use crate::by_number::ByNumber;
use crate::copy::CopiedDelta;
use crate::places::Places;
use crate::rule::{Rule, Violation};
use crate::state::{Credentials, VerifiedState};
use arck_core_state::branch::offset;
use arck_core_state::header::HeaderKind;
use arck_core_state::{HeaderCopy, InodeNumber};

/// An inode of a fold set, with or without a branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetMember {
    pub number: InodeNumber,
    /// The header when it was marked.
    pub header: HeaderCopy,
}

/// Everything that the rules are checked against.
pub(crate) struct FoldSet<'a, S> {
    pub state: &'a S,
    pub who: &'a Credentials,
    /// Where names stood when it was looked for what must come along.
    pub places: &'a Places,
    members: ByNumber<Member<'a>>,
}

struct Member<'a> {
    header: HeaderCopy,
    delta: Option<&'a CopiedDelta>,
}

impl<'a, S: VerifiedState> FoldSet<'a, S> {
    /// Checks that all members are the session's and that deltas and members fit.
    pub fn new(
        state: &'a S,
        who: &'a Credentials,
        set: &[SetMember],
        deltas: &'a [CopiedDelta],
        places: &'a Places,
    ) -> Result<FoldSet<'a, S>, Violation> {
        let mut members = ByNumber::default();
        members.reserve(set.len());
        for &SetMember { number, header } in set {
            let delta = None;
            members.get_or_insert_with(number, || Member { header, delta });
        }
        let mut fold_set = FoldSet {
            state,
            who,
            places,
            members,
        };
        for delta in deltas {
            fold_set.check_delta(delta)?;
            if let Some(member) = fold_set.members.get_mut(delta.inode) {
                member.delta = Some(delta);
            }
        }
        Ok(fold_set)
    }

    fn check_delta(&self, delta: &CopiedDelta) -> Result<(), Violation> {
        let refuse = |rule, field, detail: &str| {
            Err(Violation::new(
                rule,
                delta.inode,
                delta.field(field),
                detail,
            ))
        };
        let Some(Member { header, .. }) = self.members.get(delta.inode) else {
            return refuse(
                Rule::InFoldSet,
                offset::IDENTITY,
                "a delta without a member",
            );
        };
        if header.ownership.session() != self.who.session {
            return refuse(Rule::Owned, offset::EPOCH, "owned by another session");
        }
        let branch = &delta.branch;
        if branch.ownership_epoch != header.ownership.epoch() || branch.fold != header.fold {
            return refuse(Rule::Owned, offset::EPOCH, "branch of another ownership");
        }
        if branch.generation != header.generation {
            return refuse(Rule::Generation, offset::IDENTITY, "another generation");
        }
        let alive = self.state.inode(delta.inode).is_some();
        match header.kind {
            HeaderKind::Granted => Ok(()),
            HeaderKind::Alive | HeaderKind::Orphan if alive => Ok(()),
            _ => refuse(Rule::NumberGranted, offset::IDENTITY, "a free number"),
        }
    }

    pub fn contains(&self, number: InodeNumber) -> bool {
        self.members.contains(number)
    }

    pub fn delta(&self, number: InodeNumber) -> Option<&'a CopiedDelta> {
        self.members.get(number)?.delta
    }

    /// Whether the session owns the inode.
    pub fn owns(&self, number: InodeNumber) -> bool {
        let header = match self.members.get(number) {
            Some(member) => Some(member.header),
            None => self.state.header(number),
        };
        header.is_some_and(|header| header.ownership.session() == self.who.session)
    }
}
