//! For tests, of this crate and of others (feature `testing`): a verified state in memory, an
//! arena in memory, an owner that makes deltas as a LibFS would, and a forger that does not.
//!
//! Nothing here is trusted or fast. [`MemoryState::apply`], [`MemoryState::check`] and
//! [`forgery::rights`] are written against DESIGN section 6 and not against the verifier, so that
//! the one can be tested by the other.

mod arena;
pub mod forgery;
mod owner;
mod state;

pub use arena::MemoryArena;
pub use owner::{Entry, Owner, Refused};
pub use state::MemoryState;
