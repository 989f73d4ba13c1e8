//! What sessions ask for: each request, and what it takes of the rooms beneath.
//!
//! # Invariant
//! * A request is a private copy when it comes here; every number in it is checked before use.

pub mod allocate;
pub mod by_message;
pub mod change_names;
pub mod dispatch;
pub mod extended;
pub mod grant_numbers;
pub mod grants;
pub mod handing_on;
pub mod list_by_message;
pub mod locking;
pub mod looking_up;
pub mod map_together;
pub mod meeting;
pub mod move_names;
pub mod opening;
pub mod set_attributes;
pub mod watching;
pub mod write_by_message;
pub mod write_together;
pub mod written;
