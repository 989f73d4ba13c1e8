//! What a LibFS and the controller say to each other, and the memory they share to say it.
//!
//! * [`message`]: requests and responses. They are declared once, as all messages are (`declare`), of codings
//!   ([`wire`]); `docs/messages.md` lists them.
//! * [`control`]: the control memory of a session: request slots, operation slots, open table.
//! * [`ring`]: small requests through control memory, with polling and futex wake-up.
//! * [`socket`]: the Unix socket: greeting, and everything that carries a descriptor.
//! * [`measure`]: what hand-overs took, for whoever asks.
//! * [`wait`]: futexes, for both sides of a ring.
//! * [`operation`]: the protocol by which a fold and an operation in flight meet (DESIGN
//!   section 5), the same code on both sides and under the model checker.
//!
//! # Invariants
//! * Control memory is writable by the session: the controller reads each value once, checks
//!   it, and then uses it; it never waits for the session without a bound.
//! * A decoder accepts only what an encoder produces; trailing bytes are an error.
// Numbers are narrowed by what is meant: see `arck_core_state::cast`.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod control;
mod declare;
pub mod measure;
pub mod message;
pub mod operation;
pub mod ring;
pub mod socket;
pub mod status;
pub mod wait;
pub mod wire;

pub use control::ControlMemory;
pub use message::{InodeList, Request, Response};
pub use status::Status;

/// Version of the protocol; another one is refused at the greeting.
pub const PROTOCOL_VERSION: u32 = 24;

#[cfg(test)]
mod documentation;
#[cfg(test)]
mod message_bytes;
#[cfg(test)]
mod round_trips;
