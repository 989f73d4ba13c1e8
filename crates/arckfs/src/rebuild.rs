//! The auxiliary state, built anew from the core state after a member of the group died inside it.
//!
//! What a member does to the core state commits by single stores, so its death leaves that as whole
//! as the end of a process does. The auxiliary state is another matter: whatever the member was
//! changing is half changed. So nobody believes it any more (`Region::is_damaged`): calls that have
//! not published wait here, and are made again afterwards; calls that have are done. One thread
//! waits until all others are outside, has everything folded, and builds a new generation: nothing
//! in it but the stocks and, in the views of open files, that they are open.
//!
//! # Invariants
//! * Session state is not touched but where it refers to auxiliary state: snapshots of listings are
//!   made again at the next read of a directory.
//! * The open table lists what is open at every moment: entries are made anew before the old ones
//!   are taken out.
//! * [`AuxiliaryState`] and the kit's part stay where they are, so that references to them hold.
//!
//! What is lost: a file that was opened without a name, or whose last name was removed, before the
//! controller ever knew of it. It is in no delta that folds. (ESTALE.)
//!
//! Locks: the region's own for rebuilding; while it is held nobody has another.

use crate::engine::Engine;
use crate::inodes;
use crate::interface::Errno;
use crate::state::{AuxiliaryState, Description, flag};
use arck_libfs_kit::Session;
use arck_libfs_kit::ownership;
use arck_libfs_kit::region::{Offset, ThreadSlot};
use arck_protocol::Request;
use arck_protocol::control::MAP_WRITABLE;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long threads of the group that are inside are waited for.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_micros(200);

impl Engine {
    /// Waits until the auxiliary state has been built anew, or does so. Outside. EIO if threads stay
    /// inside for too long, or the controller does not help.
    #[cold]
    pub fn rebuild(&self) -> Result<(), Errno> {
        let (session, region) = (self.session, self.session.region());
        let slot = session.thread()?.slot();
        let deadline = Instant::now() + PATIENCE;
        let _alone = loop {
            if let Some(alone) = region.rebuilding().try_lock(slot.holder()) {
                break alone;
            }
            self.free_of_the_dead();
            if Instant::now() > deadline {
                return Err(Errno::IO);
            }
            std::thread::sleep(PAUSE);
        };
        if !region.is_damaged() {
            return Ok(());
        }
        loop {
            for member in session.departed() {
                session.clear_slots_of(member);
            }
            if region.is_left_by_all_but(slot) {
                break;
            }
            if Instant::now() > deadline {
                return Err(Errno::IO);
            }
            std::thread::sleep(PAUSE);
        }
        // What is refused is reported by operations on it.
        match ownership::ask_until_settled(session, &Request::CommitAll { release: true }) {
            Ok(()) | Err(Errno::IO) => {}
            Err(errno) => return Err(errno),
        }
        self.begin_again(slot)?;
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

    fn begin_again(&self, slot: &'static ThreadSlot<'static>) -> Result<(), Errno> {
        let (session, state) = (self.session, self.state);
        let end = state.description_end.load(Ordering::Acquire);
        let maps: Vec<u64> = session.control().maps().iter().map(word).collect();
        let is_mapped = maps.iter().any(|&entry| entry != 0);
        let gone: Vec<u16> = session.departed().collect();
        session.region().begin_generation();
        session.state().begin_again(session, is_mapped)?;
        begin_state_again(session, state)?;
        state.description_end.store(end, Ordering::Release);
        let listed = self.list_descriptions(slot, end, &gone)?;
        self.note_maps(&maps)?;
        self.unlist_others(&listed);
        gone.into_iter()
            .for_each(|member| session.forget_departed(member));
        Ok(())
    }

    /// Lists all that is open anew; gives the places in the open table. What departed members had
    /// open is closed.
    fn list_descriptions(
        &self,
        slot: &'static ThreadSlot<'static>,
        end: u32,
        gone: &[u16],
    ) -> Result<Vec<usize>, Errno> {
        let size = size_of::<Description>() as u64;
        let region = self.session.region();
        let mut free = 0;
        let mut places = Vec::new();
        for index in (0..end).rev() {
            let slots = region.session_area::<Description>(u64::from(index) * size, 1);
            let Some(description) = slots.and_then(|slots| slots.first()) else {
                continue;
            };
            let references = description.references.load(Ordering::Acquire);
            description.listing.store(Offset::NULL, Ordering::Relaxed);
            if references as u32 != 0 && gone.contains(&description.member()) {
                let free = references & !u64::from(u32::MAX);
                description.references.store(free, Ordering::SeqCst);
            }
            description.lock.reset();
            if description.references.load(Ordering::Relaxed) as u32 == 0 {
                description.other.store(free, Ordering::Relaxed);
                free = index + 1;
                continue;
            }
            let number = description.inode.load(Ordering::Relaxed);
            let generation = description.generation.load(Ordering::Relaxed);
            // What is gone stays gone: ESTALE at its next use.
            let _ = self.run_inside(slot, |context| {
                let inode = context.view(number, generation)?;
                context.list_open(inode)?;
                places.extend(inode.place());
                Ok(())
            });
        }
        self.state.description_free.store(free, Ordering::Release);
        Ok(places)
    }

    /// Which inodes have live maps in some process, and how many is not known any more: for ever.
    fn note_maps(&self, maps: &[u64]) -> Result<(), Errno> {
        for &entry in maps.iter().filter(|&&entry| entry != 0) {
            let number = (entry & !MAP_WRITABLE) as u32;
            let generation = (entry >> 32) as u32;
            let slot = self.session.thread()?.slot();
            let _ = self.run_inside(slot, |context| {
                let inode = context.view(number, generation)?;
                inode.set(flag::MAPPED, true);
                inode.keep_maps(entry & MAP_WRITABLE != 0);
                Ok(())
            });
        }
        self.state.maps_moved.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Takes out of the open table what is in other places.
    fn unlist_others(&self, places: &[usize]) {
        let wanted: std::collections::HashSet<usize> = places.iter().copied().collect();
        let opens = self.session.control().opens().iter().enumerate();
        for (_, entry) in opens.filter(|(place, _)| !wanted.contains(place)) {
            entry.store(0, Ordering::Release);
        }
    }
}

fn word(word: &AtomicU64) -> u64 {
    word.load(Ordering::SeqCst)
}

/// All of the state but what must go on counting.
fn begin_state_again(session: &'static Session, state: &AuxiliaryState) -> Result<(), Errno> {
    let paths = state.paths.load(Ordering::Relaxed);
    let maps_moved = state.maps_moved.load(Ordering::Relaxed);
    state.clear();
    state.paths.store(paths + (1 << 32), Ordering::Release);
    state.maps_moved.store(maps_moved, Ordering::Release);
    inodes::begin_state(session, state)
}
