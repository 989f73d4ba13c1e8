//! This process as a member of a session: what its threads use of it to be inside of operations.
//!
//! Invariant: it lives as long as the process, as the session does that it is part of.

use crate::region::Region;
use arck_pm::mapping::Mapping;
use arck_protocol::control::ControlMemory;
use arck_protocol::operation::LightBarrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module's head.
pub struct Membership {
    /// Which member of the session this process is.
    pub(crate) member: u16,
    pub(crate) region: Region,
    pub(crate) control_mapping: Mapping,
    pub(crate) barrier: LightBarrier,
    pub(crate) ended: AtomicBool,
}

impl Membership {
    #[inline]
    pub fn control(&self) -> &ControlMemory {
        // SAFETY: the mapping is page aligned, CONTROL_SIZE bytes long, read-write, and lives as
        // long as `self`.
        unsafe { ControlMemory::from_pointer(self.control_mapping.as_ptr()) }
    }

    /// See [`Session::has_ended`](crate::Session::has_ended).
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
