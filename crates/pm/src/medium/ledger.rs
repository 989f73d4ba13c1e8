//! What all threads of all processes on a pool share of its emulated medium: who is at a node, and until when the
//! node is busy.
//!
//! Source: one page of a memory file of the controller's, which every session may write.
//!
//! Invariants:
//!
//! * Nothing that is read here is trusted: a node is never busy for longer than [`QUEUE_MAX`] from now, and a thread
//!   that was never seen to leave is forgotten after [`INSIDE_MAX`]. So whatever a process writes, or however it
//!   ends, costs the others a bounded wait.
//! * It holds nothing but numbers about time: whoever reads it learns when others used the medium, and no more.

use std::sync::atomic::{AtomicU64, Ordering};

use super::model::{NODES_MAX, WORDS, Way};

/// Words of the page.
pub(super) const PAGE_WORDS: usize = 3 * 512;
/// How many threads have got a slot so far.
const TICKETS: usize = 512;
/// From here on: until when a node is busy one way, each in a cache line of its own.
const BUSY: usize = 520;
const LINE_WORDS: usize = 8;
/// From here on a word for each thread: until when it is where.
const SLOTS: usize = 1024;
const SLOT_COUNT: usize = PAGE_WORDS - SLOTS;

const _: () = assert!(WORDS <= TICKETS);
const _: () = assert!(BUSY + 2 * NODES_MAX as usize * LINE_WORDS <= SLOTS);

/// Nanoseconds for which a node is busy at most, from now.
pub(super) const QUEUE_MAX: u64 = 10_000_000;
/// How often a thread tries to note that a node is busy, while others do: whoever does nothing else keeps nobody.
const ATTEMPTS: u32 = 1000;
/// Nanoseconds for which a thread counts that has come and was not seen to leave: it may wait for a processor.
const INSIDE_MAX: u64 = 250_000_000;
/// Nanoseconds for which a thread counts that has left, so that one who comes back at once has not been away.
const GRACE: u64 = 2_000;

/// One way to one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) node: u32,
    pub(super) way: Way,
}

impl Port {
    fn index(self) -> usize {
        (self.node % NODES_MAX) as usize * 2 + self.way as usize
    }
}

/// Bits of a slot's word that say where; above them, until when (nanoseconds).
const PORT_BITS: u32 = 5;

/// See the module's head.
#[derive(Clone, Copy)]
pub(super) struct Ledger<'a> {
    words: &'a [AtomicU64; PAGE_WORDS],
}

impl<'a> Ledger<'a> {
    pub(super) fn new(words: &'a [AtomicU64; PAGE_WORDS]) -> Ledger<'a> {
        Ledger { words }
    }

    /// A slot for a thread. Where there are more threads than slots, some share one, and count as one.
    pub(super) fn take_slot(&self) -> usize {
        self.words[TICKETS].fetch_add(1, Ordering::Relaxed) as usize % SLOT_COUNT
    }

    fn slot(&self, slot: usize) -> &AtomicU64 {
        &self.words[SLOTS + slot % SLOT_COUNT]
    }

    fn note(&self, slot: usize, port: Port, until: u64) {
        let word = until << PORT_BITS | port.index() as u64;
        self.slot(slot).store(word, Ordering::Relaxed);
    }

    /// A thread is at a port.
    pub(super) fn enter(&self, slot: usize, port: Port, now: u64) {
        self.note(slot, port, now + INSIDE_MAX);
    }

    /// It is not any more.
    pub(super) fn leave(&self, slot: usize, port: Port, now: u64) {
        self.note(slot, port, now + GRACE);
    }

    /// How many threads are at a port; 1 at least, who asks.
    pub(super) fn inside(&self, port: Port, now: u64) -> u32 {
        let used = self.words[TICKETS].load(Ordering::Relaxed) as usize;
        let slots = &self.words[SLOTS..][..used.min(SLOT_COUNT)];
        let is_here = |slot: &&AtomicU64| {
            let word = slot.load(Ordering::Relaxed);
            let until = word >> PORT_BITS;
            let port_of = word & ((1 << PORT_BITS) - 1);
            port_of == port.index() as u64 && until > now && until <= now + 2 * INSIDE_MAX
        };
        (slots.iter().filter(is_here).count() as u32).max(1)
    }

    /// Keeps a node busy for `time` more, beginning with `arrival` where it is idle; when that is over. Times are
    /// nanoseconds of one clock for all processes.
    pub(super) fn reserve(&self, port: Port, arrival: u64, now: u64, time: u64) -> u64 {
        let word = &self.words[BUSY + port.index() * LINE_WORDS];
        let mut seen = word.load(Ordering::Relaxed);
        let mut done = 0;
        for _ in 0..ATTEMPTS {
            done = seen.min(now + QUEUE_MAX).max(arrival) + time;
            match word.compare_exchange_weak(seen, done, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => seen = other,
            }
        }
        done
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn page() -> Box<[AtomicU64; PAGE_WORDS]> {
        Box::new([const { AtomicU64::new(0) }; PAGE_WORDS])
    }

    const HERE: Port = Port {
        node: 1,
        way: Way::Write,
    };
    const NOW: u64 = 1 << 40;

    #[test]
    fn those_at_a_port_are_counted() {
        let page = page();
        let ledger = Ledger::new(&page);
        assert_eq!(ledger.inside(HERE, NOW), 1);
        let slots = [(); 5].map(|()| ledger.take_slot());
        for slot in slots {
            ledger.enter(slot, HERE, NOW);
        }
        let there = Port {
            way: Way::Read,
            ..HERE
        };
        assert_eq!(ledger.inside(HERE, NOW), 5);
        assert_eq!(ledger.inside(there, NOW), 1);
        ledger.enter(slots[0], there, NOW);
        ledger.leave(slots[1], HERE, NOW);
        assert_eq!(ledger.inside(HERE, NOW + 1), 4);
        assert_eq!(ledger.inside(HERE, NOW + GRACE), 3);
        // Whoever was killed inside.
        assert_eq!(ledger.inside(HERE, NOW + INSIDE_MAX), 1);
    }

    #[test]
    fn what_is_reserved_follows_what_was() {
        let page = page();
        let ledger = Ledger::new(&page);
        assert_eq!(ledger.reserve(HERE, NOW, NOW, 100), NOW + 100);
        assert_eq!(ledger.reserve(HERE, NOW, NOW, 100), NOW + 200);
        // Idle since then.
        assert_eq!(ledger.reserve(HERE, NOW + 500, NOW + 500, 7), NOW + 507);
        let other = Port { node: 0, ..HERE };
        assert_eq!(ledger.reserve(other, NOW, NOW, 1), NOW + 1);
    }

    #[test]
    fn nonsense_is_bounded() {
        let page = page();
        for word in &page[..] {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        let ledger = Ledger::new(&page);
        assert_eq!(ledger.inside(HERE, NOW), 1);
        assert_eq!(ledger.reserve(HERE, NOW, NOW, 9), NOW + QUEUE_MAX + 9);
        ledger.leave(ledger.take_slot(), HERE, NOW);
    }
}
