//! Who is there, what they hold and were lent, and how much of everything they may have.
//!
//! Beneath it are `state`, `threads` and what lies under them.
//!
//! # Invariants
//! * What a session can write is looked at by atomic loads and guarded copies, each word once.
//! * Nobody has more of anything than half of what others leave, or a little.

pub mod arena;
pub mod grants;
pub mod holdings;
pub mod lent;
pub mod limits;
pub mod members;
pub mod memory;
pub mod receipts;
pub mod room;
pub mod session;
pub mod take_up;
pub mod violations;
