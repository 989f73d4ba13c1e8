//! The auxiliary state, built anew after a member of the group died inside it; and what departed
//! members have left otherwise, cleared away.
//!
//! What a member does to the core state commits by single stores, so its death leaves that as whole
//! as the end of a process does. The auxiliary state is another matter: whatever the member was
//! changing is half changed. So nobody believes it any more (`Region::is_damaged`): calls that have
//! not published wait here, and are made again afterwards; calls that have are done. One thread
//! waits until all others are outside, has everything folded, and has the LibFS build a new
//! generation ([`LibFs::begin_again`](super::LibFs::begin_again)).
//!
//! # Invariants
//! * [`Views`](crate::views::Views) and the rest of the kit's part stay where they are, so that references
//!   to them hold.
//! * One thread of the group clears away at a time, under `departed_lock`; whoever finds it held goes on
//!   without.
//!
//! Locks: the region's own for rebuilding; while it is held nobody has another, but those that the LibFS
//! has outside of operations, whose holders wait.

use super::Engine;
use super::waiting::Waiting;
use crate::ownership;
use arck_protocol::Request;
use rustix::io::Errno;

impl Engine<'_> {
    /// Waits until the auxiliary state has been built anew, or does so. Outside. EIO if threads that
    /// run stay inside for too long, or the controller does not help.
    #[cold]
    pub fn rebuild(&self) -> Result<(), Errno> {
        let (session, region) = (self.session, self.session.region());
        let slot = session.thread()?.slot();
        let mut waiting = Waiting::new(session);
        let _alone = loop {
            if let Some(alone) = region.rebuilding().try_lock(slot.holder()) {
                break alone;
            }
            self.free_of_the_dead();
            waiting.pause(session, slot)?;
            if !region.is_damaged() {
                return Ok(());
            }
        };
        if !region.is_damaged() {
            return Ok(());
        }
        let mut waiting = Waiting::new(session);
        loop {
            for member in session.departed() {
                session.clear_slots_of(member);
            }
            if region.is_left_by_all_but(slot) {
                break;
            }
            waiting.pause(session, slot)?;
        }
        // What is refused is reported by operations on it.
        match ownership::ask_until_quiescent(session, &Request::CommitAll { release: true }) {
            Ok(()) | Err(Errno::IO) => {}
            Err(errno) => return Err(errno),
        }
        // What this process cannot reach would be left out, and lost to the others.
        let thread = session.thread()?;
        thread.forget_unreached();
        session.keep_up()?;
        let gone: Vec<u16> = session.departed().collect();
        self.libfs.begin_again(slot, &gone)?;
        if let Some(errno) = thread.unreached() {
            return Err(errno);
        }
        gone.into_iter()
            .for_each(|member| session.forget_departed(member));
        region.end_damage();
        Ok(())
    }

    /// Lets go of the lock for rebuilding if a member died with it.
    fn free_of_the_dead(&self) {
        let lock = self.session.region().rebuilding();
        let holder = lock.holder().map(|holder| holder.member);
        if let Some(member) = self.session.departed().find(|&gone| Some(gone) == holder) {
            lock.release_dead(member);
        }
    }

    /// Clears away what members have left that are gone, unless one has left the group's memory
    /// damaged (see [`Engine::rebuild`]).
    #[cold]
    pub fn clear_departed(&self) -> Result<(), Errno> {
        let thread = self.session.thread()?;
        let _inside = thread.slot().pin();
        if self.session.region().is_damaged() {
            // It is cleared away with the rest.
            return Ok(());
        }
        let lock = &self.views.departed_lock;
        let Some(_locked) = lock.try_lock(thread.slot().holder()) else {
            // By one who has gone itself, perhaps.
            let holder = lock.holder().map(|holder| holder.member);
            if let Some(member) = self.session.departed().find(|&gone| Some(gone) == holder) {
                lock.release_dead(member);
            }
            return Ok(());
        };
        for member in self.session.departed() {
            if !self.session.clear_slots_of(member) {
                return Ok(());
            }
            self.libfs.close_all_of(member)?;
            self.session.forget_departed(member);
        }
        Ok(())
    }
}
