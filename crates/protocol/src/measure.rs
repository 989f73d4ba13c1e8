//! What hand-overs took and moved, as the controller measured it for whoever asked
//! ([`Call::Measure`](crate::socket::Call::Measure)).
//!
//! Invariant: all are sums since the last answer, except `received` and `answered`.

use crate::declare::messages;

messages! {
/// Times in nanoseconds, by CLOCK_MONOTONIC; counts of what was moved and looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandOvers {
    /// Requests to acquire, recall or commit that were answered.
    pub requests: u64,
    /// When the last of them was taken from its slot, and when it was answered; 0 = none was.
    pub received: u64,
    pub answered: u64,
    /// Waiting for leases, and for those who asked before.
    pub deferred: u64,
    /// Barriers, and operations in flight.
    pub wait: u64,
    pub copy: u64,
    /// Finding what must come along is part of it.
    pub verify: u64,
    /// Preparing the change, the journal entry, applying it.
    pub fold: u64,
    /// Storing the new owner.
    pub grant: u64,
    /// Folds, those included that found nothing.
    pub folds: u64,
    /// Bytes copied from arenas: branches and delta pages.
    pub bytes_copied: u64,
    /// Looks at pages of verified metadata, those of one page all counted.
    pub pages_read: u64,
    /// Names added and removed, pages of files, creations, changes of links: what the verifier let
    /// pass.
    pub records: u64,
    /// Journal entries.
    pub bytes_journaled: u64,
}
}
