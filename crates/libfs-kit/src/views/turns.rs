//! Turns: reads and writes of file data that take an inode's lock several times and still look
//! like one to all threads of the session.
//!
//! What fits in one step is atomic by the inode's lock alone. A longer write, or one of several
//! buffers, holds the inode's *turn* besides, and says so by a flag that everybody who has got
//! the inode's lock, or that of some bytes, looks at: one load from a cache line that the lock has just brought. Nobody
//! waits for a turn under another lock. A write that goes over bytes of the file in place, and does
//! more than that, takes a turn too: it may have to begin again after it has stored the one and
//! before it has published the other.
//!
//! # Invariants
//! * [`flag::TURN`] is set and cleared by the holder of the turn. It is set under the inode's lock:
//!   whoever has had that lock before is done.
//! * A turn is held across the attempts of one call and what they ask of the controller, so it is
//!   taken outside of operations, and before every lock but that of a description.
//! * Turns hold within the session: another session may become the file's owner between two steps
//!   of a write that is longer than one.

use crate::Session;
use crate::engine::{Attempt, Context, Engine, Need};
use crate::region::{Holder, LockGuard};
use crate::views::locks::lock_whole;
use crate::views::{CachedInode, flag};
use arck_core_state::InodeNumber;
use rustix::io::Errno;

/// One thread's turn on an inode's data, until dropped.
#[must_use = "the turn ends when this is dropped"]
pub struct Turn {
    inode: &'static CachedInode,
    _held: LockGuard<'static>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Before the lock goes, which is when others look again.
        self.inode.set(flag::TURN, false);
    }
}

impl Engine<'_> {
    /// Takes the turn on the data of an inode that is open. Blocks; outside of operations.
    pub fn take_turn(&self, number: InodeNumber, generation: u32) -> Result<Turn, Errno> {
        let inode = self.run_local(|context| context.view(number, generation))?;
        let thread = self.session.thread()?;
        Ok(Turn::on(self.session, inode, thread.slot().holder()))
    }
}

impl Turn {
    /// Waits for the turn. Outside of operations, and the thread has no turn yet.
    pub fn on(session: &'static Session, inode: &'static CachedInode, holder: Holder) -> Turn {
        let held = inode.turn.lock(holder);
        let turn = Turn { inode, _held: held };
        let _locked = lock_whole(session, holder, inode);
        inode.set(flag::TURN, true);
        turn
    }
}

impl<'a> Context<'a> {
    /// That no other thread has its turn on the inode. Under the inode's lock.
    #[inline(always)]
    pub fn heed_turn(&self, inode: &CachedInode) -> Attempt<()> {
        match inode.has(flag::TURN) {
            false => Ok(()),
            true => self.heed_turn_of(inode),
        }
    }

    /// That this thread has its turn on the inode: what it stores is not seen before it is done,
    /// however often it has to begin again. Under the inode's lock.
    pub fn has_turn(&self, inode: &CachedInode) -> Attempt<()> {
        match inode.has(flag::TURN) && inode.turn.holder() == Some(self.slot().holder()) {
            true => Ok(()),
            false => Err(Need::OwnTurn(inode.number()).into()),
        }
    }

    /// Before an attempt is made again that others may have seen the effect of: nobody comes in
    /// between, unless somebody has been waiting with the turn for the inode's lock. Under it.
    #[cold]
    pub fn keep_turn(&self, inode: &'static CachedInode) {
        let holder = self.slot().holder();
        if let Some(held) = inode.turn.try_lock(holder) {
            inode.set(flag::TURN, true);
            self.keep(Turn { inode, _held: held });
        }
    }

    #[cold]
    fn heed_turn_of(&self, inode: &CachedInode) -> Attempt<()> {
        match inode.turn.holder() {
            Some(holder) if holder != self.slot().holder() => {
                Err(Need::Turn(inode.number()).into())
            }
            _ => Ok(()),
        }
    }
}
