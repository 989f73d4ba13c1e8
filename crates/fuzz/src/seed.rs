//! A seed: bytes that a fuzzer begins with, and what they are.

/// A name and a seed.
pub type Seed = (String, Vec<u8>);
