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
//! * Session state is not touched but where it refers to auxiliary state, which is made anew for it:
//!   snapshots of listings are copied, so that who reads one goes on where he was.
//! * What survivors have open is theirs, whether the controller knows of it or not: inodes without a
//!   name that it has never known go on with their deltas ([`nameless`]).
//! * The open table lists what is open at every moment: entries are made anew before the old ones
//!   are taken out.
//! * [`AuxiliaryState`] and the kit's part stay where they are, so that references to them hold.
//! * Whoever builds may die over it: the next one finds what he needs of the old generation by the
//!   words that `Region::auxiliary_root` keeps for that ([`OLD_INODES`]).
//!
//! Locks: the region's own for rebuilding; while it is held nobody has another, but those of
//! descriptions, whose holders wait.

mod nameless;

use crate::engine::Engine;
use crate::inodes;
use crate::interface::Errno;
use crate::state::{AuxiliaryState, Description, flag};
use arck_libfs_kit::Session;
use arck_libfs_kit::carried::Carried;
use arck_libfs_kit::ownership;
use arck_libfs_kit::region::{Offset, ThreadSlot};
use arck_protocol::Request;
use arck_protocol::control::MAP_WRITABLE;
use nameless::Old;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two looks: at first, and at most.
const PAUSE: Duration = Duration::from_micros(200);
const PAUSE_MOST: Duration = Duration::from_millis(10);

/// Waiting for others of the group: without end for those that are stopped (SIGSTOP, a debugger), as
/// for a file's lock; for others, who run, as long as for the controller.
struct Waiting {
    pause: Duration,
    patience: Duration,
    deadline: Instant,
}

impl Waiting {
    fn new(session: &Session) -> Waiting {
        let patience = session.patience();
        Waiting {
            pause: PAUSE,
            patience,
            deadline: Instant::now() + patience,
        }
    }

    /// EIO: those who are waited for run, and do not come to an end.
    fn pause(&mut self, session: &Session, slot: &ThreadSlot<'_>) -> Result<(), Errno> {
        arck_protocol::wait::sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MOST);
        if self.pause < PAUSE_MOST {
            return Ok(());
        }
        let now = Instant::now();
        if session.is_kept_by_stopped(slot) {
            self.deadline = now + self.patience;
        }
        match now > self.deadline {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }
}

impl Engine {
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
        match ownership::ask_until_settled(session, &Request::CommitAll { release: true }) {
            Ok(()) | Err(Errno::IO) => {}
            Err(errno) => return Err(errno),
        }
        // What this process cannot reach would be left out, and lost to the others.
        let thread = session.thread()?;
        thread.forget_unreached();
        session.keep_up()?;
        self.begin_again(slot)?;
        if let Some(errno) = thread.unreached() {
            return Err(errno);
        }
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
        let gone: Vec<u16> = session.departed().collect();
        for &member in &gone {
            state.set_has_maps(member, false);
        }
        let is_mapped = state.has_any_maps();
        if !is_mapped {
            // Of the departed, all of them.
            let maps = session.control().maps().iter();
            maps.for_each(|entry| entry.store(0, Ordering::SeqCst));
        }
        let maps: Vec<u64> = session.control().maps().iter().map(word).collect();
        self.remember_old()?;
        let old = self.look_at_old(&gone)?;
        let mut carried = Carried::default();
        let stored = old
            .nameless
            .iter()
            .map(|one| one.carry(session, &mut carried))
            .collect::<Result<Vec<_>, Errno>>()?;
        session.region().begin_generation();
        session.state().begin_again(session, is_mapped, &carried)?;
        begin_state_again(session, state)?;
        let _inside = slot.pin();
        for (one, stored) in old.nameless.iter().zip(stored) {
            self.run_inside(slot, |context| context.go_on(one, stored.as_ref()))?;
        }
        let listed = self.list_descriptions(slot, &old, &gone)?;
        let mapped = self.note_maps(slot, &maps)?;
        self.unlist_others(listed.into_iter().chain(mapped));
        gone.into_iter()
            .for_each(|member| session.forget_departed(member));
        self.forget_old()
    }

    /// The description with an index, from 0.
    fn description_at(&self, index: u32) -> Option<&'static Description> {
        let at = u64::from(index) * size_of::<Description>() as u64;
        let slots = self.session.region().session_area::<Description>(at, 1);
        slots.and_then(|slots| slots.first())
    }

    /// Lists all that is open anew; gives the places in the open table. What departed members had
    /// open is closed.
    fn list_descriptions(
        &self,
        slot: &'static ThreadSlot<'static>,
        old: &Old,
        gone: &[u16],
    ) -> Result<Vec<usize>, Errno> {
        let end = self.state.description_end.load(Ordering::Acquire);
        let mut free = 0;
        let mut places = Vec::new();
        for index in (0..end).rev() {
            let Some(description) = self.description_at(index) else {
                continue;
            };
            // Of any, as where members are cleared away.
            for &member in gone {
                description.lock.release_dead(member);
            }
            let references = description.references.load(Ordering::Acquire);
            if references as u32 != 0 && gone.contains(&description.member()) {
                let free = references & !u64::from(u32::MAX);
                description.references.store(free, Ordering::SeqCst);
                description.lock.reset();
            }
            if description.references.load(Ordering::Relaxed) as u32 == 0 {
                description.listing.store(Offset::NULL, Ordering::Relaxed);
                description.other.store(free, Ordering::Relaxed);
                free = index + 1;
                continue;
            }
            self.keep_snapshot(slot, description, old.listings.get(&index));
            let number = description.inode.load(Ordering::Relaxed);
            let generation = description.generation.load(Ordering::Relaxed);
            // What is gone stays gone: ESTALE at its next use.
            let _ = self.run_inside(slot, |context| {
                let inode = context.list_again(number, generation)?;
                places.extend(inode.place());
                Ok(())
            });
        }
        self.state.description_free.store(free, Ordering::Release);
        Ok(places)
    }

    /// A snapshot of a listing goes on. Without memory it is made anew.
    fn keep_snapshot(&self, slot: &ThreadSlot<'_>, of: &Description, bytes: Option<&Vec<u8>>) {
        let region = self.session.region();
        let copy = bytes.and_then(|bytes| {
            let copy = region.allocate_bytes(slot, bytes.len().max(1)).ok()?;
            region.write_bytes(copy, bytes).then_some(copy)
        });
        of.listing
            .store(copy.unwrap_or(Offset::NULL), Ordering::Release);
    }

    /// Which inodes have live maps in some process, and how many is not known any more: until the state
    /// is built anew when nobody has any. So long each is listed as open as well; gives the places in
    /// the open table.
    fn note_maps(
        &self,
        slot: &'static ThreadSlot<'static>,
        maps: &[u64],
    ) -> Result<Vec<usize>, Errno> {
        let mut places = Vec::new();
        for &entry in maps.iter().filter(|&&entry| entry != 0) {
            let number = (entry & !MAP_WRITABLE) as u32;
            let generation = (entry >> 32) as u32;
            let _ = self.run_inside(slot, |context| {
                let inode = context.list_again(number, generation)?;
                inode.set(flag::MAPPED, true);
                inode.keep_maps(entry & MAP_WRITABLE != 0);
                places.extend(inode.place());
                Ok(())
            });
        }
        self.state.maps_moved.fetch_add(1, Ordering::AcqRel);
        Ok(places)
    }

    /// Takes out of the open table what is in other places.
    fn unlist_others(&self, places: impl Iterator<Item = usize>) {
        let wanted: HashSet<usize> = places.collect();
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
    state.paths.fetch_add(1 << 32, Ordering::AcqRel);
    state.clear();
    inodes::begin_state(session, state)
}
