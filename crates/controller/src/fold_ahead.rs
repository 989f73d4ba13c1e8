//! Folds of what a session has gathered, before it has to ask for them.
//!
//! A session whose arena has as much in it as it may have ([`unfolded_max`]) folds all of it, and waits
//! for that: some 7 µs an inode. So when a quarter of that has come together, it is folded here, in
//! slices, while nobody asks for anything: a program that has a processor for itself then hardly ever
//! waits for folds, but where it changes what is just being folded.
//!
//! # Invariants
//! * A slice is folded only in a round in which no session has asked for anything, and is short.
//! * What is refused is left alone: its owner meets it when it folds itself.
//! * The same inodes are not looked at again before the session has gathered as much once more.

use crate::core::Core;
use crate::fold::After;
use arck_core_state::InodeNumber;
use arck_core_state::arena::unfolded_max;
use arck_core_state::geometry::SessionNumber;
use std::collections::VecDeque;

/// Inodes in a slice: about a millisecond.
const SLICE: usize = 128;

/// What is to be folded of a session.
pub struct Gathered {
    session: SessionNumber,
    /// Ascending, hence older ones first, and what is being worked on last.
    inodes: VecDeque<InodeNumber>,
}

impl Core {
    /// Looks whether a session that has asked for something has gathered enough.
    pub fn note_gathered(&mut self, number: SessionNumber) {
        let enough = u64::from(unfolded_max(&self.state.pool.geometry())) / 4;
        let Some(session) = self.sessions.get_mut(&number) else {
            return;
        };
        let used = session.used();
        // It gives back what was folded when it needs room.
        session.looked_at = session.looked_at.min(used);
        if used - session.looked_at < enough {
            return;
        }
        session.looked_at = used;
        let owner = &*session;
        let is_worth_it = |number: &&InodeNumber| {
            let header = self.state.header_copy(**number);
            header.is_some_and(|header| owner.has_branch(**number, &header))
        };
        let mut inodes: Vec<InodeNumber> =
            owner.owned.keys().filter(is_worth_it).copied().collect();
        inodes.sort_unstable();
        self.gathered.retain(|gathered| gathered.session != number);
        self.gathered.push_back(Gathered {
            session: number,
            inodes: inodes.into(),
        });
    }

    /// Folds a slice of what was gathered; of which session, if there is any.
    pub fn fold_gathered(&mut self) -> Option<SessionNumber> {
        let mut gathered = self.gathered.pop_front()?;
        let session = gathered.session;
        let count = SLICE.min(gathered.inodes.len());
        let is_left = |number: &InodeNumber| {
            let header = self.state.header_copy(*number);
            let owner = self.sessions.get(&session);
            // What came along with an earlier slice, or was folded for others, is done.
            header.zip(owner).is_some_and(|(header, owner)| {
                owner.has_branch(*number, &header) && !self.is_refused(session, *number)
            })
        };
        let slice = gathered.inodes.drain(..count).filter(is_left);
        let slice: Vec<InodeNumber> = slice.collect();
        let folded = match slice.is_empty() {
            true => Ok(()),
            false => self.fold(session, &slice, After::Keep),
        };
        if folded.is_ok() {
            // The fold took the room of what it folded with it. The session counts that still, and would
            // ask for more before its next change.
            self.raise_room(session, 1);
        }
        // The others take their turn.
        if folded.is_ok() && !gathered.inodes.is_empty() && self.sessions.contains_key(&session) {
            self.gathered.push_back(gathered);
        }
        Some(session)
    }
}
