//! The auxiliary state, built anew from the core state after a member of the group died inside it.
//!
//! What a member does to the core state commits by single stores, so its death leaves that as whole
//! as the end of a process does. The auxiliary state is another matter: whatever the member was
//! changing is half changed. So nobody believes it any more (`Region::is_damaged`): calls that have
//! not published wait here, and are made again afterwards; calls that have are done. One thread
//! waits until all others are outside, has everything folded, and makes a new build: nothing
//! in it but the stocks and, in the views of open files, that they are open.
//!
//! # Invariants
//! * Session state is not touched but where it refers to auxiliary state, which is made anew for it:
//!   snapshots of listings are copied, so that who reads one goes on where he was.
//! * What survivors have open is theirs, whether the controller knows of it or not: inodes without a
//!   name that it has never known go on with their deltas ([`nameless`]).
//! * The open table lists what is open at every moment: entries are made anew before the old ones
//!   are taken out.
//! * [`AuxiliaryState`](crate::state::AuxiliaryState) and the kit's part stay where they are, so that references
//!   to them hold.
//! * Whoever builds may die over it: the next one finds what he needs of the old build by the
//!   words that `Region::auxiliary_root` keeps for that ([`OLD_INODES`](nameless::OLD_INODES)).
//!
//! Locks: the region's own for rebuilding; while it is held nobody has another, but those of
//! descriptions, whose holders wait.

mod nameless;

use crate::engine::Engine;
use crate::interface::Errno;
use crate::mappings::counts::MapCounts;
use crate::state::Description;
use arck_libfs_kit::carried::Carried;
use arck_libfs_kit::messages::MAP_WRITABLE;
use arck_libfs_kit::region::{Offset, ThreadSlot};
use arck_libfs_kit::views::flag;
use nameless::{Old, go_on};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

impl Engine {
    /// See [`LibFs::begin_again`](arck_libfs_kit::engine::LibFs::begin_again).
    pub(super) fn begin_state_again(
        &self,
        slot: &'static ThreadSlot<'static>,
        gone: &[u16],
    ) -> Result<(), Errno> {
        let (session, state) = (self.session, self.state);
        for &member in gone {
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
        let old = self.look_at_old(gone)?;
        let mut carried = Carried::default();
        let stored = old
            .nameless
            .iter()
            .map(|one| one.carry(session, &mut carried))
            .collect::<Result<Vec<_>, Errno>>()?;
        session.region().begin_build();
        session.state().begin_again(session, is_mapped, &carried)?;
        state.begin_again(session)?;
        let _inside = slot.pin();
        for (one, stored) in old.nameless.iter().zip(stored) {
            self.run_inside(slot, |context| go_on(context, one, stored.as_ref()))?;
        }
        let listed = self.list_descriptions(slot, &old, gone)?;
        let mapped = self.note_maps(slot, &maps)?;
        self.unlist_others(listed.into_iter().chain(mapped));
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
