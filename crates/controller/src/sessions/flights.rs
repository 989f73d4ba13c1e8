//! Operations that were in flight when a fold was made, and may yet ask what became of what they stored.

use arck_protocol::control::ControlMemory;
use std::sync::atomic::Ordering;

/// Operations of a session that were in flight at some time: threads and their counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Flights {
    pub waiting: Vec<(usize, u64)>,
    /// The session is away: any of its threads may have been.
    pub is_unknown: bool,
}

impl Flights {
    /// Whoever is inside an operation now.
    pub fn inside(control: &ControlMemory) -> Flights {
        let slots = control.operations().iter().enumerate();
        let inside = slots
            .map(|(index, slot)| (index, slot.counter()))
            .filter(|(_, counter)| counter & 1 == 1);
        Flights {
            waiting: inside.collect(),
            is_unknown: false,
        }
    }

    /// Whoever is inside an operation, or has left one and not begun another.
    pub fn inside_or_left(control: &ControlMemory) -> Flights {
        let slots = control.operations().iter().enumerate();
        let waiting = slots
            .filter(|(_, slot)| slot.thread.load(Ordering::Acquire) != 0)
            // An even counter is that of an operation that has left: it was one less inside.
            .map(|(index, slot)| (index, slot.counter().wrapping_sub(1) | 1));
        Flights {
            waiting: waiting.collect(),
            is_unknown: false,
        }
    }

    /// Of a session whose control memory is not there.
    pub fn unknown() -> Flights {
        Flights {
            waiting: Vec::new(),
            is_unknown: true,
        }
    }

    pub fn become_known(&mut self, inside: &Flights) {
        if self.is_unknown {
            *self = inside.clone();
        }
    }

    /// Bytes that it takes, and its part of a record.
    pub fn size(&self) -> usize {
        64 + self.waiting.len() * size_of::<(usize, u64)>()
    }

    /// Takes others in; each operation is there once.
    pub fn unite(&mut self, others: Flights) {
        self.append(others);
        self.waiting.sort_unstable();
        self.waiting.dedup();
    }

    pub fn are_none(&self) -> bool {
        self.waiting.is_empty() && !self.is_unknown
    }

    /// Those of both.
    pub fn append(&mut self, mut others: Flights) {
        self.waiting.append(&mut others.waiting);
        self.is_unknown |= others.is_unknown;
    }

    pub fn leave_out(&mut self, others: &Flights) {
        self.waiting
            .retain(|flight| !others.waiting.contains(flight));
    }

    /// Whether all of them have left, and have begun something else since (or are gone).
    pub fn all_went_on(&self, control: &ControlMemory) -> bool {
        !self.is_unknown
            && self.waiting.iter().all(|&(index, counter)| {
                let slot = control.threads.get(index);
                slot.is_none_or(|slot| slot.counter().wrapping_sub(counter) >= 2)
            })
    }

    /// Forgets those that have left since; true when none is left.
    pub fn all_left(&mut self, control: &ControlMemory) -> bool {
        self.waiting.retain(|&(index, counter)| {
            let slot = control.threads.get(index);
            slot.is_some_and(|slot| slot.counter() == counter)
        });
        self.are_none()
    }
}
