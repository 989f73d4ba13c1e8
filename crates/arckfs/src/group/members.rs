//! What members of the trust group leave behind that are gone: their open files.
//!
//! # Invariants
//! * One thread of the group clears away at a time, under `departed_lock` of the auxiliary state;
//!   whoever finds it held goes on without.
//! * A member's descriptions are used by that member alone, so they are nobody's when it has gone.
//!   What it shared with others (a forked child, say) they have descriptions of their own of.

use crate::descriptions::Externals;
use crate::engine::Engine;
use crate::interface::{Errno, Handle};
use crate::state::Description;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

impl Engine {
    /// Closes all that a member had open. Its locks the controller has dropped.
    pub(super) fn close_open_files_of(&self, member: u16) -> Result<(), Errno> {
        self.state.set_has_maps(member, false);
        let none = Externals::default();
        let end = self.state.description_end.load(Ordering::Acquire);
        let region = self.session.region();
        let size = size_of::<Description>() as u64;
        for index in 0..u64::from(end) {
            let slots = region.session_area::<Description>(index * size, 1);
            let Some(slot) = slots.and_then(|slots| slots.first()) else {
                break;
            };
            // Of any: it may have died over one that is free again, or while it waited for one that is
            // another's by now. Its number will be somebody else's, who would seem to hold them for ever.
            slot.lock.release_dead(member);
            let references = slot.references.load(Ordering::Acquire);
            if references as u32 == 0 || slot.member() != member {
                continue;
            }
            // The number of what only its own process had.
            slot.external.store(0, Ordering::Relaxed);
            let last = references & !u64::from(u32::MAX) | 1;
            slot.references.store(last, Ordering::SeqCst);
            let number_and_life = references & !u64::from(u32::MAX) | (index + 1);
            let Some(handle) = NonZeroU64::new(number_and_life).map(Handle) else {
                continue;
            };
            if let Some((listed, _)) = self.release_description(handle, &none)? {
                self.kit().unlist_open(listed)?;
            }
        }
        Ok(())
    }
}
