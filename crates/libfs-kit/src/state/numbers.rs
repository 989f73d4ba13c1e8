//! Granted inode numbers, as they stand in the region; see [`crate::numbers`].

use crate::region::{AtomicOffset, Lock};
use crate::region_shared;
use arck_protocol::message::GRANT_MAX;
use std::sync::atomic::AtomicU32;

pub(crate) const STOCK: usize = 2 * GRANT_MAX;
/// Numbers in a piece of those put aside; with its header a kilobyte.
pub(crate) const PIECE: usize = GRANT_MAX - 4;

region_shared! {
    /// Numbers that are put aside.
    pub struct Piece {
        pub(crate) next: AtomicOffset<Piece>,
        pub(crate) count: AtomicU32,
        pub(crate) reserved: AtomicU32,
        pub(crate) numbers: [AtomicU32; PIECE],
    }

    /// In the auxiliary state.
    pub struct Numbers {
        pub(crate) lock: Lock,
        pub(crate) count: AtomicU32,
        /// Slot of the request under way plus one; 0 = none.
        pub(crate) pending: AtomicU32,
        pub(crate) reserved: AtomicU32,
        /// The first piece of what is put aside.
        pub(crate) aside: AtomicOffset<Piece>,
        pub(crate) stock: [AtomicU32; STOCK],
    }
}
