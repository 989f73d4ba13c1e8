//! What a fuzzer drives: everything in Arck that reads bytes of somebody it does not trust.
//!
//! * [`delta`]: an arena is copied, verified and applied; see `arck_verifier::testing::forgery`.
//! * [`message`]: messages, in both directions, of request slots and of the socket.
//! * [`format`](mod@format): stored structures and live pages.
//! * [`seed`]: what they begin with.
//!
//! Here are the targets and their seeds, which are tried in `cargo test` too; in `libfuzzer`, a
//! workspace of its own, are the programs that `make fuzz` runs.
//!
//! # Invariant
//! A target panics if something is wrong, and only then. It depends on its bytes alone.
#![forbid(unsafe_code)]

pub mod delta;
pub mod format;
pub mod message;
pub mod seed;

pub use seed::Seed;

/// What can be fuzzed.
#[derive(Clone, Copy)]
pub struct Target {
    /// As the program of `libfuzzer`.
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub seeds: fn() -> Vec<Seed>,
}

/// Every target.
pub const TARGETS: [Target; 3] = [
    Target {
        name: "delta",
        run: delta::run,
        seeds: delta::seeds,
    },
    Target {
        name: "message",
        run: message::run,
        seeds: message::seeds,
    },
    Target {
        name: "format",
        run: format::run,
        seeds: format::seeds,
    },
];
