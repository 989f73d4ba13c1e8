//! Threads for what may last for ever: closing what sessions sent, growing a file that they have too, opening
//! what somebody holds.
//!
//! This room knows no other.
//!
//! # Invariant
//! * Such a thread touches nothing of the controller's but what it was given; the service thread waits for
//!   none of them without an end.

pub mod closer;
pub mod helper;
pub mod workers;
