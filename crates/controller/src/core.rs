//! The controller's state, all of it, used by one thread: no locks. What a request's answer promises is
//! so when the answer is given; what it leaves to be tidied (orphans, pages to be emptied, the walk of a
//! closing) is done in slices after it, unless the answer waits for that (`service::held`).
//!
//! # Invariant
//! * While a pool is served, the thread waits for a session for [`Options::patience`](crate::Options) at most, at a fold;
//!   requests that have to wait for longer (`lease`, `take_up`, `grace`) are put off. Work takes what it
//!   takes, for all who ask meanwhile: a fold is bounded by the pages that a session may have in its
//!   arena, not by a time.

use crate::access::{Access, Places};
use crate::fold::{Folding, Folds};
use crate::freeing::{Freed, Freeing};
use crate::handed::kept_locks::KeptLocks;
use crate::handed::lock_files::LockFiles;
use crate::handed::named_pipes::NamedPipes;
use crate::handed::sockets::Sockets;
use crate::handed::watching::{Looks, Watched};
use crate::ownership::{Owners, Sweeps};
use crate::sessions::Sessions;

/// See the module's head. What is done is done by the rooms, each of which borrows what it needs; what is here
/// by itself is requests ([`crate::requests`]), opening and closing.
pub struct Core {
    pub sessions: Sessions,
    pub freed: Freed,
    pub folds: Folds,
    pub places: Places,
    pub sweeps: Sweeps,
    pub lock_files: LockFiles,
    pub kept_locks: KeptLocks,
    pub named_pipes: NamedPipes,
    pub sockets: Sockets,
    pub watched: Watched,
    pub looks: Looks,
}

impl Core {
    pub fn freeing(&mut self) -> Freeing<'_> {
        Freeing {
            sessions: &mut self.sessions,
            freed: &mut self.freed,
        }
    }

    pub fn folding(&mut self) -> Folding<'_> {
        Folding {
            sessions: &mut self.sessions,
            freed: &mut self.freed,
            folds: &mut self.folds,
        }
    }

    pub fn access(&mut self) -> Access<'_> {
        Access {
            sessions: &mut self.sessions,
            freed: &mut self.freed,
            folds: &mut self.folds,
            places: &mut self.places,
        }
    }

    pub fn owners(&mut self) -> Owners<'_> {
        Owners {
            sessions: &mut self.sessions,
            freed: &mut self.freed,
            folds: &mut self.folds,
            places: &mut self.places,
            sweeps: &mut self.sweeps,
        }
    }
}
