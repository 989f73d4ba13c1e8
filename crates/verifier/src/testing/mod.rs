//! For tests, of this crate and of others (feature `testing`): a verified state in memory, an
//! arena in memory, and an owner that makes deltas as a LibFS would.
//!
//! Nothing here is trusted or fast. [`MemoryState::apply`] and [`MemoryState::check`] are
//! written against DESIGN section 6 and not against the verifier, so that the one can be tested
//! by the other.

mod arena;
mod owner;
mod state;

pub use arena::MemoryArena;
pub use owner::{Entry, Owner, Refused};
pub use state::MemoryState;
