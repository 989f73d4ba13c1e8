//! When inodes that have lost their last name are freed.
//!
//! A name that an inode's owner has given it is in his delta, which nobody may have folded when another
//! fold, somebody else's or his own, takes the last verified one away. It was alive when it was named, so the name is a good one, and the
//! inode must not be freed beneath it: its owner's delta is folded first, after which it is no orphan any more.
//! The verifier lets an orphan's owner name it for that.
//!
//! # Invariant
//! * No orphan is freed that a delta names which was there when its owner's operations were last waited for.
//!   Afterwards nobody owns it, so nobody names it.

use crate::fold::Folding;
use crate::fold::folding::{After, Failure};
use crate::sessions::arena::Reader;
use crate::space::number_set::NumberSet;
use crate::state::marks::{heavy_barrier, unmark};
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_pm::record::stored;
use arck_protocol::operation::mark;
use arck_verifier::partners_of;

/// Orphans of one owner that are looked at in one step: a millisecond at most.
const AT_ONCE: usize = 1024;
/// Steps of one call.
const STEPS: usize = 64;

impl Folding<'_> {
    /// Frees those of the next orphans in turn that no session lists that counts: of all, if they are not
    /// very many.
    pub fn free_next_orphans(&mut self) {
        let next = self.freeing().next_orphans();
        self.free_orphans(Some(&next));
    }

    /// Frees those of the given orphans (`None`: of all) that no session lists that counts. Where very
    /// much is listed, perhaps later: the service asks for all now and then.
    pub fn free_orphans(&mut self, which: Option<&[InodeNumber]>) {
        self.free_unkept(which, &NumberSet::default());
    }

    /// The same of what has lost its last name by a fold. Of those that are `quiescent` nothing is left that is
    /// not folded.
    pub fn free_dying(&mut self, dying: &[InodeNumber], quiescent: &NumberSet) {
        self.free_unkept(Some(dying), quiescent);
    }

    fn free_unkept(&mut self, which: Option<&[InodeNumber]>, quiescent: &NumberSet) {
        let unkept = self.freeing().unkept(which);
        if unkept.is_empty() {
            return;
        }
        let mut free = Vec::new();
        for number in unkept {
            let header = self.sessions.state.pool.header(number);
            let owner = header.map_or(0, |header| header.ownership().session());
            match quiescent.contains(number) || !self.sessions.all.contains_key(&owner) {
                true => free.push(number),
                false => _ = self.freed.owned.entry(owner).or_default().insert(number),
            }
        }
        self.freeing().doom(free);
        self.free_owned();
    }

    /// Frees orphans that somebody owns, once what he has named is folded. A step after the other, not within
    /// each other: a fold may take the last names from what another session has named, and so on, in a chain as
    /// long as two sessions like.
    fn free_owned(&mut self) {
        if std::mem::replace(&mut self.freed.is_freeing_owned, true) {
            return;
        }
        for _ in 0..STEPS {
            let Some((owner, numbers)) = self.freed.next_owned(AT_ONCE) else {
                break;
            };
            let (named, mut free) = self.named_elsewhere(owner, numbers);
            if !named.is_empty() {
                match self.fold(owner, &named, After::Release) {
                    // What is refused comes to nothing.
                    Ok(()) | Err(Failure::Violation(_)) => free.extend(named),
                    Err(Failure::Quiescing(_) | Failure::Errno(_)) => {}
                }
            }
            free.retain(|number| self.sessions.state.orphans.contains(*number));
            self.freeing().doom(free);
        }
        // What is left is looked at in its turn.
        self.freed.owned.clear();
        self.freed.is_freeing_owned = false;
    }

    /// Of orphans of an owner, those that he has named in his deltas, and those that he has not.
    fn named_elsewhere(
        &mut self,
        owner: SessionNumber,
        numbers: Vec<InodeNumber>,
    ) -> (Vec<InodeNumber>, Vec<InodeNumber>) {
        let (state, options) = (&self.sessions.state, &self.sessions.options);
        let Some(session) = self.sessions.all.get_mut(&owner) else {
            return (Vec::new(), numbers);
        };
        let header = |number: &InodeNumber| state.pool.header(*number);
        let owned = numbers.iter().filter_map(header);
        for header in owned.filter(|header| header.ownership().session() == owner) {
            mark(header);
            stored(&header.ownership);
        }
        heavy_barrier();
        // Who does not come out was seen naming it, or will be told that it is gone.
        let _ = session.wait_in_flight(options.patience);
        let mut reader = Reader(&session.arena);
        let parts = numbers.iter().partition(|&&number| {
            let copy = state.header_copy(number);
            let copy = copy.filter(|copy| copy.ownership.session() == owner);
            let partners = copy.map(|copy| partners_of(&mut reader, number, &copy));
            partners.is_some_and(|partners| partners.is_ok_and(|all| !all.is_empty()))
        });
        unmark(state, &numbers);
        parts
    }
}
