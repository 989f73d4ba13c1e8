//! Pages that are being emptied: see [`crate::access::emptying`].

use arck_core_state::PagePtr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// What a worker has done.
pub struct Emptied {
    /// May be used again.
    pub empty: Vec<PagePtr>,
    /// Could not be punched.
    pub shown: Vec<PagePtr>,
}

/// Pages of one user's segments that are being emptied.
pub struct Emptying {
    pub user: u32,
    pub pages: Vec<PagePtr>,
    /// `None`: there was no worker for it.
    pub worker: Option<Receiver<Emptied>>,
    /// Runs of pages that the worker is through with.
    pub progress: Arc<AtomicU64>,
    /// So many it was through with, at this time, when that was looked at last and had changed.
    pub seen: (u64, Instant),
}

/// Those that nobody waits for any more.
#[derive(Default)]
pub struct Emptyings(pub Vec<Emptying>);

impl Emptyings {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
