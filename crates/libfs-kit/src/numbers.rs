//! The stock of granted inode numbers: a birth takes one without a message (DESIGN section 5).
//!
//! # Invariants
//! * Every number in the stock is granted to this session and unborn, and no record or branch
//!   of it is in effect.
//! * `lock` protects the stock; it is held for a few loads and stores.

use crate::region::{Lock, ThreadSlot};
use crate::region_shared;
use crate::session::Session;
use arck_core_state::InodeNumber;
use arck_protocol::message::GRANT_MAX;
use arck_protocol::{Request, Response};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

const STOCK: usize = 2 * GRANT_MAX;

region_shared! {
    /// In the auxiliary state.
    pub struct Numbers {
        lock: Lock,
        count: AtomicU32,
        stock: [AtomicU32; STOCK],
    }
}

impl Numbers {
    /// An unborn number, if one is in stock.
    pub fn take(&self, slot: &ThreadSlot<'_>) -> Option<InodeNumber> {
        let _locked = self.lock.lock(slot.holder());
        let count = self.count.load(Ordering::Relaxed).checked_sub(1)?;
        self.count.store(count, Ordering::Relaxed);
        Some(self.stock.get(count as usize)?.load(Ordering::Relaxed))
    }

    /// Gives back a number whose birth did not happen; forgotten until the session ends if the
    /// stock is full. A number whose inode others may have seen must not come back before they
    /// have looked away: that is the caller's to see to.
    pub fn give_back(&self, slot: &ThreadSlot<'_>, number: InodeNumber) {
        let _locked = self.lock.lock(slot.holder());
        let count = self.count.load(Ordering::Relaxed);
        if let Some(place) = self.stock.get(count as usize) {
            place.store(number, Ordering::Relaxed);
            self.count.store(count + 1, Ordering::Relaxed);
        }
    }

    /// Asks for more. Outside of operations. ENOSPC when the pool has no more inodes.
    pub fn refill(&self, session: &Session, slot: &ThreadSlot<'_>) -> Result<(), Errno> {
        let count = GRANT_MAX as u32;
        let Response::Inodes(numbers) = session.request(&Request::GrantInodes { count })? else {
            return Err(Errno::PROTO);
        };
        if numbers.is_empty() {
            return Err(Errno::NOSPC);
        }
        // Ascending numbers are handed out first to last: neighbours share pages of the table.
        for number in numbers.into_iter().rev() {
            self.give_back(slot, number);
        }
        Ok(())
    }
}
