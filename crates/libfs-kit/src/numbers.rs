//! The stock of granted inode numbers: a creation takes one without a message (DESIGN section 5).
//! When it runs low more are asked for, and the answer is fetched when it is there.
//!
//! # Invariants
//! * Every number in the stock is granted to this session and uncommitted, and no record or branch
//!   of it is in effect.
//! * `lock` protects the stock, what is put aside, and the request under way; it is held for a few
//!   loads and stores, or while one piece is put aside or fetched.
//! * No number that is granted is forgotten, but where there is no memory: what the stock has no room
//!   for is put aside, and used before more are asked for.
//! * A request under way is made and finished inside, where nobody builds the auxiliary state anew, and
//!   is the session's, not a member's: so what a member dies over, noted in `pending` or not, is found
//!   and finished when that is done, and costs no request slot.

use crate::carried::Carried;
use crate::delta::end_branch;
use crate::need::Need;
use crate::region::{Offset, ThreadSlot};
use crate::session::Session;
use crate::state::numbers::{PIECE, Piece, STOCK};

pub use crate::state::numbers::Numbers;
use arck_core_state::header::HeaderKind;
use arck_core_state::{InodeNumber, LiveHeader};
use arck_protocol::message::GRANT_MAX;
use arck_protocol::{Request, Response};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Numbers left at which more are asked for.
const LOW: u32 = GRANT_MAX as u32 / 2;

/// Whether that is the header of an inode that was granted to the session and is not committed yet.
pub fn is_uncommitted(session: &Session, header: &LiveHeader) -> bool {
    header.kind() == HeaderKind::Granted && header.ownership().session() == session.number()
}

impl Numbers {
    /// In a new build of the auxiliary state, when no creation is under way: the stock is what was
    /// granted to the session and is uncommitted, but for what goes on. Blocks while numbers asked for are
    /// on their way.
    pub fn begin_again(&self, session: &Session, slot: &ThreadSlot<'_>, carried: &Carried) {
        self.lock.reset();
        self.pending.store(0, Ordering::Relaxed);
        // What was noted, and what a member died over before it could note it, or after it had taken
        // the note away. The numbers are found below.
        session.finish_all_submitted();
        self.count.store(0, Ordering::Relaxed);
        // With the memory of the generation before.
        self.aside.store(Offset::NULL, Ordering::Relaxed);
        let uncommitted = (1..session.geometry().inode_count).filter(|&number| {
            session.header(number).is_some_and(|header| {
                is_uncommitted(session, header)
                    && !carried.has(number)
                    && end_branch(session, number, header)
            })
        });
        let uncommitted: Vec<InodeNumber> = uncommitted.collect();
        let (stock, aside) = uncommitted.split_at(uncommitted.len().min(STOCK));
        let _locked = self.lock.lock(slot.holder());
        // As those of the stock, the first are to be used first.
        for piece in aside.chunks(PIECE).rev() {
            self.put_aside(slot, piece);
        }
        self.put(slot, stock.iter().copied());
    }

    /// Puts at most a piece of numbers aside, for later; without memory they are forgotten until the
    /// session ends. Under the lock.
    fn put_aside(&self, slot: &ThreadSlot<'_>, numbers: &[InodeNumber]) {
        let region = slot.region();
        let Ok(piece) = region.allocate_zeroed::<Piece>(slot, 1) else {
            return;
        };
        let made = region.get(piece);
        for (place, &number) in made.numbers.iter().zip(numbers) {
            place.store(number, Ordering::Relaxed);
        }
        let count = numbers.len().min(PIECE) as u32;
        made.count.store(count, Ordering::Relaxed);
        made.next
            .store(self.aside.load(Ordering::Relaxed), Ordering::Relaxed);
        self.aside.store(piece, Ordering::Relaxed);
    }

    /// Puts a piece of what was put aside into the stock, if there is one, and room for it. Under the
    /// lock.
    fn fetch(&self, slot: &ThreadSlot<'_>) -> bool {
        let region = slot.region();
        let first = self.aside.load(Ordering::Relaxed);
        let has_room = self.count.load(Ordering::Relaxed) as usize + PIECE <= STOCK;
        let Some(piece) = region.try_get(first).filter(|_| has_room) else {
            return false;
        };
        let count = piece.count.load(Ordering::Relaxed) as usize;
        let numbers = &piece.numbers[..count.min(PIECE)];
        let numbers = numbers.iter().map(|number| number.load(Ordering::Relaxed));
        self.put(slot, numbers);
        self.aside
            .store(piece.next.load(Ordering::Relaxed), Ordering::Relaxed);
        // Only under the lock anybody looks at it.
        region.free(slot, first);
        true
    }

    /// An uncommitted number, if one is in stock. Does not block.
    pub fn take(&self, session: &Session, slot: &ThreadSlot<'_>) -> Result<InodeNumber, Need> {
        let _locked = self.lock.lock(slot.holder());
        if self.count.load(Ordering::Relaxed) <= LOW && !self.fetch(slot) {
            self.look_ahead(session, slot);
        }
        let count = self.count.load(Ordering::Relaxed).checked_sub(1);
        let count = count.ok_or(Need::Numbers)?;
        self.count.store(count, Ordering::Relaxed);
        let number = self.stock.get(count as usize).ok_or(Need::Numbers)?;
        Ok(number.load(Ordering::Relaxed))
    }

    /// Fetches the numbers that were asked for, or asks for more. Under the lock.
    #[cold]
    fn look_ahead(&self, session: &Session, slot: &ThreadSlot<'_>) {
        let pending = self.pending.load(Ordering::Relaxed);
        if pending == 0 {
            let count = GRANT_MAX as u32;
            if let Ok(index) = session.submit(&Request::GrantInodes { count }) {
                self.pending.store(index as u32 + 1, Ordering::Relaxed);
            }
            return;
        }
        match session.finish(pending as usize - 1, false) {
            Err(Errno::TIMEDOUT) => {}
            answer => {
                self.pending.store(0, Ordering::Relaxed);
                // An error is met again, and told, by whoever finds the stock empty.
                if let Ok(Response::Inodes(numbers)) = answer {
                    self.put(slot, numbers.into_iter());
                }
            }
        }
    }

    /// Ascending numbers are handed out first to last: neighbours share pages of the table. Under the
    /// lock.
    fn put(&self, slot: &ThreadSlot<'_>, numbers: impl DoubleEndedIterator<Item = InodeNumber>) {
        numbers.rev().for_each(|number| self.keep(slot, number));
    }

    /// Puts a number into the stock. Under the lock.
    fn keep(&self, slot: &ThreadSlot<'_>, number: InodeNumber) {
        let mut count = self.count.load(Ordering::Relaxed) as usize;
        if count >= STOCK {
            // A whole piece goes, so that there is room for those that come next.
            count = STOCK - PIECE;
            let numbers: [InodeNumber; PIECE] =
                std::array::from_fn(|at| self.stock[count + at].load(Ordering::Relaxed));
            self.put_aside(slot, &numbers);
        }
        self.stock[count].store(number, Ordering::Relaxed);
        self.count.store(count as u32 + 1, Ordering::Relaxed);
    }

    /// Gives back a number whose creation did not happen. A number whose inode others may have seen must not come back before they
    /// have looked away: that is the caller's to see to.
    pub fn give_back(&self, slot: &ThreadSlot<'_>, number: InodeNumber) {
        let _locked = self.lock.lock(slot.holder());
        self.keep(slot, number);
    }

    /// Asks for more. Outside of operations. ENOSPC when the pool has no more inodes.
    pub fn refill(&self, session: &Session, slot: &ThreadSlot<'_>) -> Result<(), Errno> {
        // While the stock is built anew there is none to fill.
        slot.inside(|| self.refill_inside(session, slot))
            .unwrap_or(Ok(()))
    }

    fn refill_inside(&self, session: &Session, slot: &ThreadSlot<'_>) -> Result<(), Errno> {
        // What is there already, or what another thread has asked for, first.
        let pending = {
            let _locked = self.lock.lock(slot.holder());
            if self.fetch(slot) {
                return Ok(());
            }
            self.pending.swap(0, Ordering::Relaxed)
        };
        let answer = match pending.checked_sub(1) {
            Some(index) => session.finish(index as usize, true),
            None => Err(Errno::AGAIN),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) => session.request(&Request::GrantInodes {
                count: GRANT_MAX as u32,
            })?,
        };
        let Response::Inodes(numbers) = answer else {
            return Err(Errno::PROTO);
        };
        if numbers.is_empty() {
            return Err(Errno::NOSPC);
        }
        let _locked = self.lock.lock(slot.holder());
        self.put(slot, numbers.into_iter());
        Ok(())
    }
}
