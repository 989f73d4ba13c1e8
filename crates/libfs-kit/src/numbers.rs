//! The stock of granted inode numbers: a creation takes one without a message (DESIGN section 5).
//! When few are left, more are asked for, and the answer is fetched when it is there.
//!
//! # Invariants
//! * Every number in the stock is granted to this session and uncommitted, and no record or branch
//!   of it is in effect.
//! * `lock` protects the stock, what is put aside, and the request under way; it is held for a few
//!   loads and stores, or while one piece is put aside or fetched. A thread takes some at once, to keep at
//!   hand ([`crate::views::reuse`]).
//! * No number that is granted is forgotten, but where there is no memory: what the stock has no room
//!   for is put aside, and used before an empty stock is told of.
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
use arck_protocol::message::{GRANT_MAX, InodeRun};
use arck_protocol::{Request, Response};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// One thread takes no more at once than one part in so many of what is left.
const SHARE: u32 = 4;

/// Whether that is the header of an inode that was granted to the session and is not committed yet.
pub fn is_uncommitted(session: &Session, header: &LiveHeader) -> bool {
    header.kind() == HeaderKind::Granted && header.ownership().session() == session.number()
}

/// Adds a number to the run beside it.
fn joined(run: InodeRun, number: InodeNumber) -> Option<InodeRun> {
    let count = run.count.checked_add(1)?;
    let first = match number {
        _ if run.count == 0 => return None,
        _ if number.checked_add(1) == Some(run.first) => number,
        _ if run.first.checked_add(run.count) == Some(number) => run.first,
        _ => return None,
    };
    Some(InodeRun { first, count })
}

/// Ascending numbers, as runs.
fn runs_of(numbers: impl Iterator<Item = InodeNumber>) -> Vec<InodeRun> {
    let mut runs: Vec<InodeRun> = Vec::new();
    for number in numbers {
        match runs.last_mut().map(|run| (joined(*run, number), run)) {
            Some((Some(longer), run)) => *run = longer,
            _ => runs.push(InodeRun {
                first: number,
                count: 1,
            }),
        }
    }
    runs
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
        self.left.store(0, Ordering::Relaxed);
        self.few.store(0, Ordering::Relaxed);
        // With the memory of the generation before.
        self.aside.store(Offset::NULL, Ordering::Relaxed);
        let uncommitted = (1..session.geometry().inode_count).filter(|&number| {
            session.header(number).is_some_and(|header| {
                is_uncommitted(session, header)
                    && !carried.has(number)
                    && end_branch(session, number, header)
            })
        });
        let runs = runs_of(uncommitted);
        let _locked = self.lock.lock(slot.holder());
        self.put(slot, &runs);
    }

    /// Puts the last piece of the stock aside, for later; without memory it is forgotten until the
    /// session ends. Under the lock.
    fn put_aside(&self, slot: &ThreadSlot<'_>) {
        let count = self.count.load(Ordering::Relaxed) as usize;
        let from = count.saturating_sub(PIECE);
        let runs = &self.stock[from..count.min(STOCK)];
        self.count.store(from as u32, Ordering::Relaxed);
        let region = slot.region();
        let Ok(piece) = region.allocate_zeroed::<Piece>(slot, 1) else {
            let lost = runs.iter().map(|run| run.get().count).sum();
            self.count_less(lost);
            return;
        };
        let made = region.get(piece);
        for (place, run) in made.runs.iter().zip(runs) {
            place.set(run.get());
        }
        made.count.store(runs.len() as u32, Ordering::Relaxed);
        made.next
            .store(self.aside.load(Ordering::Relaxed), Ordering::Relaxed);
        self.aside.store(piece, Ordering::Relaxed);
    }

    /// Puts a piece of what was put aside into the stock, if there is one, and nothing else in stock. Under
    /// the lock.
    fn fetch(&self, slot: &ThreadSlot<'_>) -> bool {
        let region = slot.region();
        let first = self.aside.load(Ordering::Relaxed);
        let is_empty = self.count.load(Ordering::Relaxed) == 0;
        let Some(piece) = region.try_get(first).filter(|_| is_empty) else {
            return false;
        };
        let count = (piece.count.load(Ordering::Relaxed) as usize).min(PIECE);
        for (place, run) in self.stock.iter().zip(&piece.runs[..count]) {
            place.set(run.get());
        }
        self.count.store(count as u32, Ordering::Relaxed);
        self.aside
            .store(piece.next.load(Ordering::Relaxed), Ordering::Relaxed);
        // Only under the lock anybody looks at it.
        region.free(slot, first);
        true
    }

    /// Takes uncommitted numbers, no more than fit into `into`, and than others can spare; gives how many. Does
    /// not block.
    pub fn take_some(
        &self,
        session: &Session,
        slot: &ThreadSlot<'_>,
        into: &mut [InodeNumber],
    ) -> Result<usize, Need> {
        let _locked = self.lock.lock(slot.holder());
        if self.left.load(Ordering::Relaxed) <= self.few.load(Ordering::Relaxed) {
            self.look_ahead(session, slot);
        }
        let share = (self.left.load(Ordering::Relaxed) / SHARE).max(1) as usize;
        let most = share.min(into.len());
        let mut taken = 0;
        while taken < most {
            let Some((last, run)) = self.last_run(slot) else {
                break;
            };
            let count = (run.count as usize).min(most - taken);
            let places = &mut into[taken..taken + count];
            let numbers = run.numbers();
            places
                .iter_mut()
                .zip(numbers)
                .for_each(|(place, number)| *place = number);
            taken += count;
            match run.count - count as u32 {
                0 => self.count.store(last, Ordering::Relaxed),
                left => self.stock[last as usize].set(InodeRun {
                    first: run.first + count as u32,
                    count: left,
                }),
            }
        }
        self.count_less(taken as u32);
        match taken {
            0 => Err(Need::Numbers),
            taken => Ok(taken),
        }
    }

    /// The last run in stock and its place, from what was put aside if need be. Under the lock.
    fn last_run(&self, slot: &ThreadSlot<'_>) -> Option<(u32, InodeRun)> {
        if self.count.load(Ordering::Relaxed) == 0 && !self.fetch(slot) {
            return None;
        }
        let last = self.count.load(Ordering::Relaxed).checked_sub(1)?;
        Some((last, self.stock.get(last as usize)?.get()))
    }

    fn count_less(&self, numbers: u32) {
        let left = self.left.load(Ordering::Relaxed);
        self.left
            .store(left.saturating_sub(numbers), Ordering::Relaxed);
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
                match answer {
                    Ok(Response::Inodes(runs)) => self.put_granted(slot, &runs),
                    // An error is met again, and told, by whoever finds the stock empty: until then it is
                    // asked as often as what is left halves.
                    _ => {
                        let left = self.left.load(Ordering::Relaxed);
                        self.few.store(left / 2, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// Puts a grant into the stock: half of it used, more are asked for; by who goes on to use many, while there are two
    /// grants, so that there are enough while the controller is busy with a fold. Under the lock.
    fn put_granted(&self, slot: &ThreadSlot<'_>, runs: &[InodeRun]) {
        let granted = runs
            .iter()
            .map(|run| run.count)
            .fold(0, u32::saturating_add);
        let few = match granted as usize >= GRANT_MAX {
            true => (self.few.load(Ordering::Relaxed) + granted).min(2 * granted),
            false => granted / 2,
        };
        self.few.store(few, Ordering::Relaxed);
        self.put(slot, runs);
    }

    /// Ascending numbers are handed out first to last: neighbours share pages of the table. Under the
    /// lock.
    fn put(&self, slot: &ThreadSlot<'_>, runs: &[InodeRun]) {
        for &run in runs.iter().rev().filter(|run| run.count > 0) {
            if self.count.load(Ordering::Relaxed) as usize >= STOCK {
                self.put_aside(slot);
            }
            let count = self.count.load(Ordering::Relaxed);
            self.stock[count as usize].set(run);
            self.count.store(count + 1, Ordering::Relaxed);
            let left = self.left.load(Ordering::Relaxed);
            self.left
                .store(left.saturating_add(run.count), Ordering::Relaxed);
        }
    }

    /// Gives back a number whose creation did not happen. A number whose inode others may have seen must not come back before they
    /// have looked away: that is the caller's to see to.
    pub fn give_back(&self, slot: &ThreadSlot<'_>, number: InodeNumber) {
        let _locked = self.lock.lock(slot.holder());
        let last = self.count.load(Ordering::Relaxed).wrapping_sub(1) as usize;
        if let Some(place) = self.stock.get(last)
            && let Some(longer) = joined(place.get(), number)
        {
            place.set(longer);
            let left = self.left.load(Ordering::Relaxed);
            self.left.store(left.saturating_add(1), Ordering::Relaxed);
            return;
        }
        let run = InodeRun {
            first: number,
            count: 1,
        };
        self.put(slot, &[run]);
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
            if self.last_run(slot).is_some() {
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
        let Response::Inodes(runs) = answer else {
            return Err(Errno::PROTO);
        };
        if runs.is_empty() {
            return Err(Errno::NOSPC);
        }
        let _locked = self.lock.lock(slot.holder());
        self.put_granted(slot, &runs);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_runs() {
        let run = |first, count| InodeRun { first, count };
        let numbers = [2, 3, 4, 9, 11, 12];
        assert_eq!(
            runs_of(numbers.into_iter()),
            [run(2, 3), run(9, 1), run(11, 2)]
        );
        assert_eq!(joined(run(5, 2), 4), Some(run(4, 3)));
        assert_eq!(joined(run(5, 2), 7), Some(run(5, 3)));
        for other in [3, 5, 6, 8] {
            assert_eq!(joined(run(5, 2), other), None);
        }
    }
}
