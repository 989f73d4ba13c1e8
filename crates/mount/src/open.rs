//! What is open through the mount.
//!
//! # Invariants
//! * What is open is used by the session that opened it, whoever has its descriptor by now: that is what a descriptor
//!   means. The inode stays as long as it is open, whether or not it has a name.
//! * A number is not used again.

use crate::listing::Listing;
use crate::nodes::Node;
use crate::users::{Entered, Session};
use arckfs::{Errno, Handle};
use fuser::FileHandle;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// See the module's head.
pub struct Open {
    pub session: Arc<Session>,
    pub handle: Handle,
    pub node: Node,
    /// Of a directory: what its listing was when it began.
    pub listing: Mutex<Option<Arc<Listing>>>,
}

impl Open {
    /// The session's file system, this thread being its user, and the description there.
    pub fn enter(&self) -> Result<(Entered<'_>, Handle), Errno> {
        Ok((self.session.enter()?, self.handle))
    }
}

/// All that is open, by the numbers that the kernel was given.
pub struct OpenTable {
    by_number: RwLock<HashMap<u64, Arc<Open>>>,
    next: AtomicU64,
}

impl Default for OpenTable {
    fn default() -> OpenTable {
        OpenTable {
            by_number: RwLock::default(),
            next: AtomicU64::new(1),
        }
    }
}

impl OpenTable {
    /// Notes what was opened.
    pub fn add(&self, session: Arc<Session>, handle: Handle, node: Node) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let open = Arc::new(Open {
            session,
            handle,
            node,
            listing: Mutex::default(),
        });
        let mut all = self
            .by_number
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        all.insert(number, open);
        FileHandle(number)
    }

    /// EBADF.
    pub fn get(&self, number: FileHandle) -> Result<Arc<Open>, Errno> {
        let all = self
            .by_number
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        all.get(&number.0).cloned().ok_or(Errno::BADF)
    }

    /// Something by which an inode is open, in a session or in any, if anything is.
    pub fn any_of(&self, node: Node, by: Option<&Arc<Session>>) -> Option<Arc<Open>> {
        let all = self
            .by_number
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let is_by = |open: &Open| by.is_none_or(|by| Arc::ptr_eq(by, &open.session));
        all.values()
            .find(|open| open.node == node && is_by(open))
            .cloned()
    }

    /// Closes it.
    pub fn remove(&self, number: FileHandle) {
        let mut all = self
            .by_number
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let open = all.remove(&number.0);
        drop(all);
        if let Some(open) = open
            // Where it cannot be entered the session is lost, and with it what it had open.
            && let Ok((fs, handle)) = open.enter()
        {
            fs.close(handle);
        }
    }
}
