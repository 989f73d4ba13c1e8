//! What is opened in a connection, a store or a log, and has a state of its own: names of a directory, keys of a store,
//! batches, followers, records that were enqueued, spools.
//!
//! # Invariants
//! * A number is that of one part for ever, and says what it was opened in.
//! * One thread uses a part at a time; another one that comes meanwhile is told so (EBUSY), and does not wait.
//! * Whoever uses a part is inside of what it was opened in, and so it is there.

use crate::spools::OpenSpool;
use crate::trouble::Trouble;
use arck_logfs::{Enqueued, Follower};
use arckfs::{Errno, Handle};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Names of a directory, as they are read.
pub struct Names {
    pub handle: Handle,
    pub of: &'static arck_libfs_kit::Session,
    pub records: Vec<u8>,
    /// Bytes of these that were filled, and told.
    pub filled: usize,
    pub told: usize,
}

/// Changes of a store that are to be made together: a value, or that it goes.
pub type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

pub enum State {
    Names(Names),
    Keys(std::vec::IntoIter<Vec<u8>>),
    Batch(Changes),
    Follower(Box<Follower<'static>>),
    Enqueued(Enqueued),
    Spool(OpenSpool),
}

pub struct Part {
    /// What it was opened in.
    pub root: u32,
    state: Mutex<State>,
}

impl Part {
    /// Its state, which nobody else has meanwhile. EBUSY.
    pub fn use_alone(&self) -> Result<MutexGuard<'_, State>, Trouble> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Trouble::said(
                Errno::BUSY,
                "another thread is using it, or was when this process was forked",
            )),
        }
    }
}

pub struct Parts {
    next: u64,
    all: BTreeMap<u64, Arc<Part>>,
}

static PARTS: Mutex<Parts> = Mutex::new(Parts {
    next: 1,
    all: BTreeMap::new(),
});

/// Its lock, which whoever forks has meanwhile.
pub fn lock() -> MutexGuard<'static, Parts> {
    // What it protects is changed by steps that do not fail.
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bits of a part's number in its key. Above them stands what it was opened in.
const NUMBER_BITS: u32 = 44;

/// What a part was opened in, by its key; of a key that is none, whatever it says.
pub fn root_of(key: u64) -> u32 {
    (key >> NUMBER_BITS) as u32
}

/// Notes one that has been opened; gives its key.
pub fn add(root: u32, state: State) -> u64 {
    let state = Mutex::new(state);
    let part = Arc::new(Part { root, state });
    let mut parts = lock();
    let key = u64::from(root) << NUMBER_BITS | parts.next;
    parts.next += 1;
    parts.all.insert(key, part);
    key
}

/// What a key means. EBADF.
pub fn get(key: u64) -> Result<Arc<Part>, Trouble> {
    let part = lock().all.get(&key).cloned();
    part.ok_or_else(Trouble::no_handle)
}

/// Makes a key mean nothing; gives what it did. EBADF.
pub fn take(key: u64) -> Result<Arc<Part>, Trouble> {
    let part = lock().all.remove(&key);
    part.ok_or_else(Trouble::no_handle)
}

/// Makes all keys of what is closed mean nothing.
pub fn forget_all_of(root: u32) {
    let mut gone = Vec::new();
    {
        let mut parts = lock();
        parts.all.retain(|_, part| {
            let stays = part.root != root;
            if !stays {
                gone.push(part.clone());
            }
            stays
        });
    }
    // What they hold is let go of behind the lock.
    drop(gone);
}
