//! Names: [walking](walk) along paths, [opening](opening) and making what they lead to, what POSIX asks of
//! [changes](changes), and [listings](listing). What is stored is the kit's ([`arck_libfs_kit::names`]).

pub mod by_message;
pub mod changes;
pub mod listing;
pub mod opening;
pub mod paths;
pub mod protected;
pub mod walk;

use crate::data::Data;
use crate::interface::Errno;
use arck_libfs_kit::engine::{self as kit, Stop};
use paths::resolver::Paths;
use protected::Protected;
use std::cell::RefCell;
use std::ops::Deref;

/// What a session keeps for resolving paths.
pub struct Resolution {
    pub protected: Protected,
    pub paths: Paths,
}

/// One attempt, with all that an operation of ArckFS may do in it: names, and the [data](Data),
/// [attributes](crate::attributes::Attributing) and [maps](crate::mappings::Mapping) of what they lead to.
pub struct Context<'a> {
    pub data: Data<'a>,
    /// What the kit does of names.
    pub kit: &'a kit::Context<'a>,
    pub resolution: &'a Resolution,
    /// Where the call's path leads that is not in the pool; the attempt has failed with EXDEV.
    pub outside: &'a RefCell<Option<Vec<u8>>>,
}

impl<'a> Deref for Context<'a> {
    type Target = Data<'a>;
    #[inline(always)]
    fn deref(&self) -> &Data<'a> {
        &self.data
    }
}

impl Context<'_> {
    /// The path leaves the pool, to this absolute path of the host.
    #[cold]
    fn leads_outside(&self, path: Vec<u8>) -> Stop {
        *self.outside.borrow_mut() = Some(path);
        Errno::XDEV.into()
    }
}
