//! Maps by numbers that this crate gives, one after the other: of requests, queues and files.
//!
//! # Invariants
//! * Nobody else chooses the numbers, so a hash that is one multiplication is enough: no program can make them meet.
//! * What grows and shrinks in turns allocates nothing: a map keeps its room.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by such a number.
pub type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<Scattering>>;

/// Numbers that follow each other differ in the lowest bits and in the highest, which a `HashMap` takes.
#[derive(Default)]
pub struct Scattering(u64);

impl Hasher for Scattering {
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
