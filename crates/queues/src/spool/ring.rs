//! Which part of a spool's ring is in use, in memory.
//!
//! # Invariants
//! * What lies between `told` and `head` is not written over: after a crash it is read again. `told` is what the file's marks say.
//! * Records become free in their order: the ring begins with the first that is not done.

use std::collections::VecDeque;

/// A record that stands in the ring, with what is passed over before it.
struct Entry {
    at: u64,
    until: u64,
    is_done: bool,
}

pub struct Ring {
    size: u64,
    head: u64,
    tail: u64,
    told: u64,
    entries: VecDeque<Entry>,
}

/// Where a record goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Bytes that are passed over before it, from where the ring ended.
    pub skipped: u64,
    pub at: u64,
    /// The marks have to say first where the ring begins now.
    pub is_told_first: bool,
}

impl Ring {
    /// One that begins somewhere, with nothing in it.
    pub fn new(size: u64, tail: u64) -> Ring {
        Ring {
            size,
            head: tail,
            tail,
            told: tail,
            entries: VecDeque::new(),
        }
    }

    pub fn head(&self) -> u64 {
        self.head
    }

    pub fn tail(&self) -> u64 {
        self.tail
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where a record of so many bytes goes; nowhere, until something is done.
    pub fn place(&self, total: u64) -> Option<Place> {
        let room = self.size - self.head % self.size;
        let skipped = if total > room { room } else { 0 };
        let at = self.head + skipped;
        let until = at + total;
        (until - self.tail <= self.size).then_some(Place {
            skipped,
            at,
            is_told_first: until - self.told > self.size,
        })
    }

    /// The marks say where it begins.
    pub fn is_told(&mut self) {
        self.told = self.tail;
    }

    /// A record stands there.
    pub fn add(&mut self, at: u64, total: u64) {
        self.head = at + total;
        self.entries.push_back(Entry {
            at,
            until: self.head,
            is_done: false,
        });
    }

    /// Bytes are passed over, at the ring's end.
    pub fn skip(&mut self, length: u64) {
        self.head += length;
        match self.entries.back_mut() {
            Some(last) => last.until = self.head,
            None => self.tail = self.head,
        }
    }

    /// A record is done.
    pub fn done(&mut self, at: u64) {
        if let Ok(found) = self.entries.binary_search_by_key(&at, |entry| entry.at) {
            self.entries[found].is_done = true;
        }
        while let Some(first) = self.entries.front()
            && first.is_done
        {
            self.tail = first.until;
            self.entries.pop_front();
        }
    }

    /// Those that are not done, in their order.
    pub fn undone(&self) -> impl Iterator<Item = u64> {
        let undone = self.entries.iter().filter(|entry| !entry.is_done);
        undone.map(|entry| entry.at)
    }
}
