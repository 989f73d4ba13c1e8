//! Memory that others may change, and the process's maps, as a LibFS needs them; by name, of `arck-pm`.
//!
//! Stores to the pool that have to be durable give tokens, which [`durable`] fences and what is published asks for
//! ([`delta`](crate::delta)).

pub use arck_pm::copy::Stores;
pub use arck_pm::flush::know_leaf_7;
pub use arck_pm::mapping::{Locking, lock_pages, locking_to_come, note_locking_to_come};
pub use arck_pm::{Error, SharedBytes};

/// The order of persistence: what was flushed, what is durable, and the fence between.
pub mod durable {
    pub use arck_pm::order::{Durable, Flushed, FlushedSet, drain, fence};

    /// Whether stores are flushed in this process: not where the memory does not survive the machine.
    pub fn is_flushing() -> bool {
        arck_pm::policy() == arck_pm::PersistPolicy::Flush
    }
}

/// Copies that turn SIGBUS and SIGSEGV into an error, and what a handler of these signals has to know of them.
pub mod guarded {
    pub use arck_pm::guarded::{
        guarded_by_caller, guarded_copy, guarded_load_u64, guarded_zero, recover,
    };
}

/// The medium that is emulated: what it is like.
pub mod medium {
    pub use arck_pm::medium::{Curve, DELEGATES_MAX, Delegated, Model, Way, model};
}

/// Large copies by a fixed set of threads for each memory node.
pub mod delegation {
    pub use arck_pm::delegation::{
        Batch, Gates, at_once, batch, is_started, is_wanted, start, start_when_wanted, stop,
    };
}

/// Pieces of the session's mappings at addresses that a program chose.
pub mod placing {
    pub use arck_pm::placing::{
        Protection, copy_of, copy_of_parts, nothing, populate, protect, reserve, vacate, zeroes,
    };
}
