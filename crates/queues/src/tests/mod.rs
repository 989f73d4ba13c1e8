//! Tests of the whole crate: an oracle, and what is held beside it.

#[cfg(not(shuttle))]
mod ends;
mod oracle;
#[cfg(not(shuttle))]
mod queues;
#[cfg(not(shuttle))]
mod steps;
#[cfg(not(shuttle))]
mod threads;
#[cfg(not(shuttle))]
mod together;

#[cfg(shuttle)]
mod model;

/// Numbers that a seed makes (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}
