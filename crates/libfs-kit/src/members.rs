//! Members of the trust group that are gone: what they leave in the shared memory.
//!
//! The controller says which members have gone (`departed` in control memory), and gives their
//! numbers to nobody until their bits are taken. Whoever notices clears away: the kit the member's
//! thread slots, with what they had cached, the LibFS its open files.
//!
//! # Invariant
//! A member that was inside the LibFS when it died may have left anything half changed: the region
//! is damaged then, and stays so.

use crate::session::Session;
use arck_protocol::control::MEMBERS;
use std::sync::atomic::Ordering;

impl Session {
    /// Whether a member has gone that nobody has cleared away yet.
    #[inline]
    pub fn any_departed(&self) -> bool {
        let departed = &self.control().header.departed;
        self.is_of_group()
            && departed
                .iter()
                .any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Those members.
    pub fn departed(&self) -> impl Iterator<Item = u16> {
        let departed = &self.control().header.departed;
        (1..MEMBERS as u16).filter(|&member| crate::region::departed::has(departed, member))
    }

    /// Frees the thread slots of a member that is gone; false if it has left the region damaged.
    pub fn clear_slots_of(&'static self, member: u16) -> bool {
        let Ok(thread) = self.thread() else {
            return false;
        };
        if self.region().has_inside(member) {
            self.region().begin_damage();
        }
        self.region().clear_member(thread.slot(), member);
        !self.region().is_damaged()
    }

    /// Nothing is left of a member: its number may be given to another process.
    pub fn forget_departed(&self, member: u16) {
        let departed = &self.control().header.departed;
        if let Some(word) = departed.get(usize::from(member) / 64) {
            word.fetch_and(!(1 << (member % 64)), Ordering::AcqRel);
        }
    }
}
