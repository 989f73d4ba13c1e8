//! How a served pool is, for whoever asks ([`Call::Status`](crate::socket::Call::Status)).
//!
//! Invariant: nothing in it tells what any file is called, or holds.

use crate::declare::messages;

messages! {
/// Counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    pub sessions: u64,
    /// Pages of 4096 bytes that nobody uses and no session was granted.
    pub pages_free: u64,
    pub inodes_free: u64,
    /// Changes of rights of which what follows is not done yet.
    pub closings: u64,
    /// Inodes of which it is known that they have to be looked at for that.
    pub waiting: u64,
    /// Inodes looked at and pages moved for that, since the controller was started.
    pub work: u64,
    /// Inodes moved.
    pub moved: u64,
    /// Most work done between two looks at what sessions ask.
    pub longest: u64,
}
}
