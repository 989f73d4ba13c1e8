//! What one thread owes to the emulated medium, and when it waits for that.
//!
//! Source: the flushes, fences, streamed copies and bulk reads of the thread ([`crate::flush`], [`crate::copy`],
//! [`crate::shared`]).
//!
//! A thread has a time of its own, which the medium sets: an access ends when the node has moved its bytes, and no
//! sooner than its latency after it began. The thread waits until the clock has come so far. The other way round, a
//! thread that slept too long is behind the clock, and what it does next is counted from where it should have been:
//! a sleep of 10 microseconds takes 60, and the mean is right all the same.
//!
//! Invariants:
//!
//! * The real copy runs beside the emulated one: an access takes what the slower of the two takes.
//! * Nobody waits longer than [`WAIT_MAX`] at once, whatever stands in the shared page.
//! * To be behind the clock is credited for a sleep alone, not for a real copy that was slower than the emulated
//!   one, and lapses when the thread does not come back soon.

use super::ledger::{Ledger, Port, QUEUE_MAX};
use super::model::{Model, Way};

/// Bytes that are accounted for at once, so that a large access shares a node with others.
pub(super) const PIECE: usize = 64 << 10;
/// Nanoseconds for which nobody waits before a fence.
const DEBT_FREE: u64 = 2_000;
/// Nanoseconds from which on a thread sleeps; with less, it spins.
const SLEEP_FROM: u64 = 20_000;
/// Nanoseconds after which a thread that spins lets others run who are ready. It would be made to later, for longer, and
/// at any place, also where it does not count as being at the node; and who has not run yet does not count either.
const TURN: u64 = 100_000;
/// Nanoseconds that a thread waits at most.
const WAIT_MAX: u64 = QUEUE_MAX;
/// Nanoseconds by which a thread may be behind the clock, and how long it may be away before that lapses.
const CREDIT_MAX: u64 = 50_000_000;
const LAPSE: u64 = 1_000_000;

/// Time, and how to let it pass; one for the machine, one for tests.
pub(super) trait Clock {
    /// Nanoseconds since a moment that is the same for all processes.
    fn now(&self) -> u64;
    /// Lets about so many nanoseconds pass.
    fn sleep(&self, nanoseconds: u64);
    /// Lets others run.
    fn give_way(&self);
    /// Lets a few nanoseconds pass.
    fn pause(&self);
}

/// The medium and what is shared of it.
#[derive(Clone, Copy)]
pub(super) struct Bank<'a> {
    pub(super) model: &'a Model,
    pub(super) ledger: Ledger<'a>,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Account {
    slot: usize,
    /// The thread's own time, of when the clock was `last`.
    own: u64,
    last: u64,
    /// By how much it is behind the clock, and may stay.
    credit: u64,
    /// Bytes that were flushed and not accounted for, where they lie, and the size of the largest access.
    pending: u64,
    pending_port: Port,
    pending_size: usize,
    /// The unit of the medium that was written last, and its number plus 1: what falls into it again costs nothing.
    unit: u64,
    /// When it is others' turn.
    turn_ends: u64,
    /// Something waits for a fence.
    is_unfenced: bool,
}

const NOWHERE: Port = Port {
    node: 0,
    way: Way::Write,
};

impl Account {
    pub(super) const fn new(slot: usize) -> Account {
        Account {
            slot,
            own: 0,
            last: 0,
            credit: 0,
            pending: 0,
            pending_port: NOWHERE,
            pending_size: 0,
            unit: 0,
            turn_ends: 0,
            is_unfenced: false,
        }
    }

    /// The thread's own time, where an access begins at `now`.
    fn open(&mut self, now: u64) {
        if self.own >= self.last {
            // Work that was done meanwhile has paid what was owed.
            self.own = self.own.min(now + WAIT_MAX).max(now);
            self.credit = 0;
        } else {
            let lag = (self.last - self.own).min(CREDIT_MAX);
            let is_back = now.saturating_sub(self.last) < LAPSE;
            self.credit = if is_back { lag } else { 0 };
            self.own = now.saturating_sub(self.credit);
        }
        self.last = now;
    }

    /// Where an access has ended, before it is waited for.
    fn close(&mut self, now: u64) {
        // The machine itself was slower than the medium: no credit for that.
        self.own = self.own.max(now.saturating_sub(self.credit));
        self.last = now;
    }

    /// Waits until the clock, which is `now`, is where the thread is.
    fn wait(&mut self, clock: &impl Clock, mut now: u64) {
        let end = self.own.min(now + WAIT_MAX);
        if now < end {
            while now < end {
                let is_long = end - now >= SLEEP_FROM;
                if is_long || now >= self.turn_ends {
                    match is_long {
                        true => clock.sleep(end - now),
                        false => clock.give_way(),
                    }
                    now = clock.now();
                    self.turn_ends = now + TURN;
                } else {
                    clock.pause();
                    now = clock.now();
                }
            }
            self.own = self.own.min(now);
            self.credit = (now - self.own).min(CREDIT_MAX);
        }
        self.last = now;
    }

    /// Bytes of whole units that an access touches and the one before did not.
    fn units(&mut self, model: &Model, offset: u64, len: usize) -> u64 {
        let unit = u64::from(model.unit);
        let first = offset / unit;
        let last = offset.saturating_add(len as u64 - 1) / unit;
        let is_again = self.unit == first + 1;
        self.unit = last + 1;
        (last - first + u64::from(!is_again)) * unit
    }

    /// Has a node move bytes, after what it moves already.
    fn move_bytes(&mut self, bank: Bank<'_>, port: Port, bytes: u64, size: usize, now: u64) {
        bank.ledger.enter(self.slot, port, now);
        let threads = bank.ledger.inside(port, now);
        let direction = bank.model.direction(port.way);
        let time = direction.nanoseconds(bytes, threads, size);
        self.own = bank.ledger.reserve(port, self.own, now, time);
    }

    fn move_pending(&mut self, bank: Bank<'_>, now: u64) {
        if self.pending > 0 {
            let (port, size) = (self.pending_port, self.pending_size);
            let bytes = std::mem::take(&mut self.pending);
            self.pending_size = 0;
            self.move_bytes(bank, port, bytes, size, now);
        }
    }

    /// The thread has flushed `len` bytes at `offset` of the pool, more than none; they are moved at the fence.
    pub(super) fn flush(&mut self, bank: Bank<'_>, clock: &impl Clock, offset: u64, len: usize) {
        let port = Port {
            node: bank.model.node_of(offset),
            way: Way::Write,
        };
        let is_elsewhere = self.pending > 0 && self.pending_port != port;
        if is_elsewhere || self.pending >= PIECE as u64 {
            let now = clock.now();
            self.open(now);
            self.move_pending(bank, now);
            self.settle(clock, now);
        }
        self.pending += self.units(bank.model, offset, len);
        self.pending_port = port;
        self.pending_size = self.pending_size.max(len);
        self.is_unfenced = true;
    }

    /// After some bytes were moved, at `now`: waits if they are many.
    fn settle(&mut self, clock: &impl Clock, now: u64) {
        self.close(now);
        if self.own > now + DEBT_FREE {
            self.wait(clock, now);
        }
    }

    /// Before a copy to or from the medium, which moves as many bytes as [`Account::copied`] says.
    pub(super) fn copies(&mut self, bank: Bank<'_>, now: u64, way: Way, offset: u64) {
        let node = bank.model.node_of(offset);
        bank.ledger.enter(self.slot, Port { node, way }, now);
    }

    /// Nothing was copied of what was about to be: it is not at the node any more.
    pub(super) fn leaves(&mut self, bank: Bank<'_>, way: Way, offset: u64) {
        let node = bank.model.node_of(offset);
        bank.ledger.leave(self.slot, Port { node, way }, self.last);
    }

    /// After a copy that began at `begun`, of `len` bytes at `offset`, more than none. Who has written is at the node
    /// until the fence.
    pub(super) fn copied(
        &mut self,
        bank: Bank<'_>,
        clock: &impl Clock,
        begun: u64,
        way: Way,
        offset: u64,
        len: usize,
    ) {
        self.open(begun);
        let arrival = self.own.min(begun);
        let mut port = NOWHERE;
        let mut now = clock.now();
        let mut done = 0;
        if way == Way::Read {
            self.unit = 0;
        }
        while done < len {
            let at = offset.wrapping_add(done as u64);
            let stripe_left = bank.model.stripe - at % bank.model.stripe;
            let stripe_left = usize::try_from(stripe_left).unwrap_or(PIECE);
            let part = (len - done).min(PIECE).min(stripe_left);
            let node = bank.model.node_of(at);
            port = Port { node, way };
            let bytes = self.units(bank.model, at, part);
            self.move_bytes(bank, port, bytes, len, now);
            done += part;
            if done < len && self.own > now + DEBT_FREE {
                self.wait(clock, now);
                now = self.last;
            }
        }
        match way {
            Way::Write => {
                self.is_unfenced = true;
                if self.pending == 0 {
                    self.pending_port = port;
                }
                self.settle(clock, now);
            }
            // Nothing follows that a read could be waited for at.
            Way::Read => {
                self.unit = 0;
                let latency = u64::from(bank.model.read.latency);
                self.own = self.own.max(arrival + latency);
                self.close(now);
                self.wait(clock, now);
                bank.ledger.leave(self.slot, port, self.last);
            }
        }
    }

    /// Whether a fence has anything to wait for.
    pub(super) fn is_unfenced(&self) -> bool {
        self.is_unfenced
    }

    /// After a fence that began at `begun`: waits for all that was written before, and for the latency, once.
    pub(super) fn fenced(&mut self, bank: Bank<'_>, clock: &impl Clock, begun: u64) {
        self.open(begun);
        let arrival = self.own.min(begun);
        let port = self.pending_port;
        let now = clock.now();
        self.move_pending(bank, now);
        let latency = u64::from(bank.model.write.latency);
        self.own = self.own.max(arrival + latency);
        self.is_unfenced = false;
        self.unit = 0;
        self.close(now);
        self.wait(clock, now);
        bank.ledger.leave(self.slot, port, self.last);
    }
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
