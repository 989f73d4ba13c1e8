//! Turns at being the owner of a file or a directory: who has waited for one, and how much was done in it. By that the
//! controller [finds](crate::sessions::mediating) what is better changed by messages.
//!
//! Invariant: what is counted is of no use to whoever writes a false count, but to have his own writes slowed down.

use crate::sessions::Sessions;
use crate::sessions::session::Session;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, InodeNumber, Mediation};
use std::time::Instant;

impl Sessions {
    /// Somebody waits for the lease of inodes.
    pub fn note_wanted(&mut self, owner: SessionNumber, numbers: &[InodeNumber]) {
        let Some(owner) = self.all.get_mut(&owner) else {
            return;
        };
        for &number in numbers {
            if let Some(owned) = owner.owned.get_mut(number) {
                owned.rest_mut().wanted = true;
            }
        }
    }

    /// These inodes are taken from their owner for another session; which of them are mediated from now on.
    pub fn change_owner(
        &mut self,
        owner: SessionNumber,
        numbers: &[InodeNumber],
    ) -> Vec<InodeNumber> {
        let Some(owner) = self.all.get(&owner) else {
            return Vec::new();
        };
        if self.state.pool.is_paged() {
            // Each message would be written back by itself, and a turn is as a whole.
            return Vec::new();
        }
        let now = Instant::now();
        let mut found = Vec::new();
        for &number in numbers {
            let rest = owner.owned.get(number).and_then(|owned| owned.rest());
            // Who has not taken it from another has had it for as long as he likes.
            let Some((rest, began)) = rest.and_then(|rest| Some((rest, rest.operations?))) else {
                continue;
            };
            let Some(inode) = self.state.shadow(number) else {
                continue;
            };
            let kind = inode.kind();
            let may_be = matches!(kind, Some(FileKind::File | FileKind::Directory));
            if !may_be || inode.mediation() != Mediation::Auto {
                continue;
            }
            let operations = owner
                .operations()
                .map_or(u64::MAX, |now| now.wrapping_sub(began));
            let file = (number, inode.generation);
            if self
                .mediating
                .changes_owner(file, rest.wanted, operations, now)
            {
                found.push(number);
            }
        }
        found
    }
}

impl Session {
    /// Operations that threads of the session have begun, of whatever kind; `None` while it is away.
    pub fn operations(&self) -> Option<u64> {
        let control = self.live.as_ref()?.control();
        let counters = control.operations().iter().map(|slot| slot.counter() / 2);
        Some(counters.fold(0, u64::wrapping_add))
    }
}
