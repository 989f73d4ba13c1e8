//! Open file descriptions: session state in fixed slots of the group region.
//!
//! # Invariants
//! * A slot with references names an inode that the session's open table lists, so the
//!   controller does not free it (DESIGN section 5, open table).
//! * The offset of a description moves under its lock. One that was handed on has offset and flags of the
//!   kernel's file that stands for it (see [`crate::descriptions::shared_offsets`]), under the same lock in this process;
//!   that file is closed with the last reference.
//! * Slots form a free list under `descriptions_lock`. A slot that is used again has another
//!   handle: who still has the old one (a thread at work while another closed the descriptor)
//!   meets EBADF, never the other file. What is told of a description counts only if it is
//!   [`Opened::still`] that one afterwards; a slot is not used again while its lock is held.
//! * The last reference goes under the description's lock. Nobody waits for that lock inside: who has it
//!   may be waiting for the auxiliary state to be built anew.

pub mod shared_offsets;

use crate::engine::Engine;
use crate::interface::{Errno, Handle};
use crate::state::Description;
use arck_libfs_kit::format::InodeNumber;
use arck_libfs_kit::region::{LockGuard, Offset};
use arck_libfs_kit::views::open::Listed;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The files that stand for descriptions that were handed on, by number; process-private.
#[derive(Default)]
pub struct Externals {
    list: Mutex<Vec<Option<OwnedFd>>>,
}

impl Externals {
    fn list(&self) -> MutexGuard<'_, Vec<Option<OwnedFd>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes one and gives its number plus one.
    pub fn add(&self, file: OwnedFd) -> u32 {
        let mut list = self.list();
        if let Some(free) = list.iter().position(Option::is_none) {
            list[free] = Some(file);
            return free as u32 + 1;
        }
        list.push(Some(file));
        list.len() as u32
    }

    /// Most descriptions have none, and take no lock.
    #[inline]
    fn remove(&self, number: u32) -> Option<OwnedFd> {
        let place = number.checked_sub(1)? as usize;
        let mut list = self.list();
        list.get_mut(place)?.take()
    }

    #[inline]
    fn with<R>(&self, number: u32, body: impl FnOnce(&OwnedFd) -> R) -> Option<R> {
        let place = number.checked_sub(1)? as usize;
        let list = self.list();
        list.get(place)?.as_ref().map(body)
    }

    /// The descriptor of one.
    pub fn file(&self, number: u32) -> Option<RawFd> {
        self.with(number, OwnedFd::as_raw_fd)
    }
}

/// A description that was open a moment ago.
#[derive(Clone, Copy)]
pub struct Opened {
    slot: &'static Description,
    /// The high half of its handle.
    life: u32,
}

impl std::ops::Deref for Opened {
    type Target = Description;
    #[inline]
    fn deref(&self) -> &Description {
        self.slot
    }
}

impl Opened {
    /// That it has not been closed for good: what was read of it before is its own. EBADF.
    #[inline]
    pub fn still(&self) -> Result<(), Errno> {
        fence(Ordering::Acquire);
        match is_of(self.slot.references.load(Ordering::SeqCst), self.life) {
            true => Ok(()),
            false => Err(Errno::BADF),
        }
    }

    /// Number and generation of its inode. EBADF.
    #[inline]
    pub fn identity(&self) -> Result<(InodeNumber, u32), Errno> {
        let number = self.slot.inode.load(Ordering::Relaxed);
        let generation = self.slot.generation.load(Ordering::Relaxed);
        self.still()?;
        Ok((number, generation))
    }

    /// One reference more. EBADF if it is closed.
    pub fn refer(&self) -> Result<(), Errno> {
        let references = &self.slot.references;
        let mut seen = references.load(Ordering::Relaxed);
        loop {
            if !is_of(seen, self.life) {
                return Err(Errno::BADF);
            }
            let next = seen + 1;
            match references.compare_exchange_weak(seen, next, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }
}

/// Whether a word of references is that of an open description with this life.
#[inline]
fn is_of(references: u64, life: u32) -> bool {
    (references >> LIFE) as u32 == life && references as u32 != 0
}

/// In [`Description::references`] and in handles: where the life begins.
const LIFE: u32 = 32;
/// Lives after which they begin anew. Handles stay below what the preload library keeps for
/// itself.
const LIVES: u64 = 1 << 31;

/// The life of a slot that was never used: of another session that this process has left (when it changed
/// its user) a thread may still have a handle in its hands, which must not be one of this session's.
fn first_life() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.map_or(1, |time| 1 + time.as_nanos() as u64 % (LIVES - 1))
}

/// The offset of a description, which no other thread of the process moves meanwhile.
pub struct OffsetCell<'d> {
    description: &'d Description,
    /// What stands for it, if it was handed on; not closed as long as the lock is held.
    shared: Option<BorrowedFd<'d>>,
    _locked: LockGuard<'d>,
}

impl OffsetCell<'_> {
    /// Whether other processes may move it.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    pub fn get(&self) -> Result<u64, Errno> {
        match self.shared {
            Some(file) => shared_offsets::get(file),
            None => Ok(self.description.offset.load(Ordering::Relaxed)),
        }
    }

    pub fn set(&self, offset: u64) -> Result<(), Errno> {
        match self.shared {
            Some(file) => shared_offsets::set(file, offset),
            None => {
                self.description.offset.store(offset, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Moves it; where it is then. EINVAL if there is no such offset.
    pub fn move_by(&self, distance: i64) -> Result<u64, Errno> {
        if let Some(file) = self.shared {
            return shared_offsets::move_by(file, distance);
        }
        let moved = self.get()?.checked_add_signed(distance);
        let moved = moved.filter(|&moved| i64::try_from(moved).is_ok());
        let moved = moved.ok_or(Errno::INVAL)?;
        self.set(moved)?;
        Ok(moved)
    }

    /// Takes so many bytes from the offset on, to be read or written and then [used](Self::use_of);
    /// where they begin.
    pub fn take(&self, length: usize) -> Result<u64, Errno> {
        match self.shared {
            Some(file) => shared_offsets::take(file, length),
            None => self.get(),
        }
    }

    /// Of what was taken `from` there on so much was read or written.
    pub fn use_of(&self, from: u64, taken: usize, used: usize) {
        match self.shared {
            Some(file) => shared_offsets::give_back(file, taken, used),
            None => {
                let offset = from + used as u64;
                self.description.offset.store(offset, Ordering::Relaxed);
            }
        }
    }
}

impl Engine {
    /// The description of a handle. EBADF.
    #[inline]
    pub fn description(&self, handle: Handle) -> Result<Opened, Errno> {
        let life = (handle.0.get() >> LIFE) as u32;
        let number = u64::from(handle.0.get() as u32);
        let index = number.checked_sub(1).ok_or(Errno::BADF)?;
        let slots = self
            .session
            .region()
            .session_area::<Description>(index * size_of::<Description>() as u64, 1)
            .ok_or(Errno::BADF)?;
        match slots.first() {
            Some(slot) if is_of(slot.references.load(Ordering::Acquire), life) => {
                Ok(Opened { slot, life })
            }
            _ => Err(Errno::BADF),
        }
    }

    /// That a slot for a description is free, before what is opened is made or emptied. Other
    /// threads may take it. ENFILE.
    pub fn expect_description(&self) -> Result<(), Errno> {
        let free = self.state.description_free.load(Ordering::Relaxed) != 0;
        let next = u64::from(self.state.description_end.load(Ordering::Relaxed)) + 1;
        let size = size_of::<Description>() as u64;
        match free
            || next * size <= self.session.region().session_area_length()
            || self.at_hand.has_description(self.session.thread()?.slot())
        {
            true => Ok(()),
            false => Err(Errno::NFILE),
        }
    }

    /// A new description of an inode that [`list_open`](arck_libfs_kit::views::Viewing::list_open) has listed. ENFILE.
    pub fn new_description(&self, opened: Listed, flags: i32) -> Result<Handle, Errno> {
        let _inside = self.kit().inside()?;
        let thread = self.session.thread()?;
        let area = self.session.region();
        let size = size_of::<Description>() as u64;
        let index = if let Some(spare) = self.at_hand.take_description(thread.slot()) {
            u64::from(spare - 1)
        } else {
            let _locked = self.state.descriptions_lock.lock(thread.slot().holder());
            let free = self.state.description_free.load(Ordering::Relaxed);
            if free != 0 {
                let slot = area
                    .session_area::<Description>(u64::from(free - 1) * size, 1)
                    .and_then(|slots| slots.first())
                    .ok_or(Errno::NFILE)?;
                self.state
                    .description_free
                    .store(slot.other.load(Ordering::Relaxed), Ordering::Relaxed);
                u64::from(free - 1)
            } else {
                let end = self.state.description_end.load(Ordering::Relaxed);
                if (u64::from(end) + 1) * size > area.session_area_length() {
                    return Err(Errno::NFILE);
                }
                self.state.description_end.store(end + 1, Ordering::Relaxed);
                u64::from(end)
            }
        };
        let slot = area
            .session_area::<Description>(index * size, 1)
            .and_then(|slots| slots.first())
            .ok_or(Errno::NFILE)?;
        slot.flags.store(flags as u32, Ordering::Relaxed);
        slot.inode.store(opened.number, Ordering::Relaxed);
        slot.generation.store(opened.generation, Ordering::Relaxed);
        slot.offset.store(0, Ordering::Relaxed);
        slot.listing.store(Offset::NULL, Ordering::Relaxed);
        slot.external.store(0, Ordering::Relaxed);
        slot.begin(self.session.member());
        // Nobody else changes the word of a free slot.
        let life = match slot.references.load(Ordering::Relaxed) {
            0 => first_life(),
            before => ((before >> LIFE) + 1) % LIVES,
        };
        slot.references.store(life << LIFE | 1, Ordering::Release);
        if opened.counted_in != area.build() {
            // Built anew since it was listed; what is gone meanwhile is ESTALE at its next use.
            let _ = self.run_inside(thread.slot(), |context| {
                context.list_open(context.view(opened.number, opened.generation)?)
            });
        }
        NonZeroU64::new(life << LIFE | (index + 1))
            .map(Handle)
            .ok_or(Errno::NFILE)
    }

    /// One reference less; if that was the last one, whose slot is free now, gives the opening that is
    /// to be taken off the open table, and the file that stood for it if it was handed on.
    pub fn release_description(
        &self,
        handle: Handle,
        externals: &Externals,
    ) -> Result<Option<(Listed, Option<OwnedFd>)>, Errno> {
        let thread = self.session.thread()?;
        let slot = self.description(handle)?;
        let mut held = None;
        let _inside = loop {
            let inside = self.kit().inside()?;
            let seen = slot.references.load(Ordering::SeqCst);
            if !is_of(seen, slot.life) {
                return Err(Errno::BADF);
            }
            if seen as u32 == 1 && held.is_none() {
                // A thread may still be at work with it: the slot is not another's before that ends.
                held = slot.lock.try_lock(thread.slot().holder());
                if held.is_none() {
                    // It may have to wait for the auxiliary state to be built anew, which waits for all
                    // that are inside.
                    drop(inside);
                    held = Some(slot.lock.lock(thread.slot().holder()));
                    continue;
                }
            }
            // So many there were when it was decided whether the lock is needed.
            let one_less = slot.references.compare_exchange(
                seen,
                seen - 1,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            match one_less {
                Ok(_) if seen as u32 == 1 => break inside,
                Ok(_) => return Ok(None),
                Err(_) => {}
            }
        };
        let listed = Listed {
            number: slot.inode.load(Ordering::Relaxed),
            generation: slot.generation.load(Ordering::Relaxed),
            counted_in: self.session.region().build(),
        };
        self.drop_listing(slot)?;
        // The last reference is gone: nobody else looks at the slot.
        let external = slot.external.load(Ordering::Acquire);
        if external != 0 {
            slot.external.store(0, Ordering::Release);
        }
        let file = externals.remove(external);
        // A slot's number fits: the area is at most 64 MiB.
        let number = handle.0.get() as u32;
        if self.at_hand.keep_description(thread.slot(), number) {
            return Ok(Some((listed, file)));
        }
        let _locked = self.state.descriptions_lock.lock(thread.slot().holder());
        let free = self.state.description_free.load(Ordering::Relaxed);
        slot.other.store(free, Ordering::Relaxed);
        self.state.description_free.store(number, Ordering::Relaxed);
        Ok(Some((listed, file)))
    }

    /// The offset of a description, held still until the cell is dropped.
    pub fn offset_cell<'d>(
        &self,
        description: Opened,
        externals: &'d Externals,
    ) -> Result<OffsetCell<'d>, Errno> {
        let cell = self.any_offset_cell(description, externals)?;
        // Under its lock: see `release_description`.
        description.still()?;
        Ok(cell)
    }

    #[inline]
    fn any_offset_cell<'d>(
        &self,
        description: Opened,
        externals: &'d Externals,
    ) -> Result<OffsetCell<'d>, Errno> {
        let thread = self.session.thread()?;
        let description = description.slot;
        let _locked = description.lock.lock(thread.slot().holder());
        let external = description.external.load(Ordering::Acquire);
        // SAFETY: open as long as there is a reference, the last of which goes under the lock; and whether
        // there is one is looked at before it is used.
        let borrow = |file| unsafe { BorrowedFd::borrow_raw(file) };
        Ok(OffsetCell {
            description,
            shared: externals.file(external).map(borrow),
            _locked,
        })
    }

    /// Has a description's offset and flags be those of a file that stands for it. If another thread was
    /// quicker, nothing. Gives that file.
    pub fn share_offset(
        &self,
        description: Opened,
        externals: &Externals,
        file: OwnedFd,
    ) -> Result<RawFd, Errno> {
        let thread = self.session.thread()?;
        let slot = description.slot;
        let _locked = slot.lock.lock(thread.slot().holder());
        description.still()?;
        let external = slot.external.load(Ordering::Acquire);
        if let Some(known) = externals.file(external) {
            return Ok(known);
        }
        let flags = slot.flags.load(Ordering::Acquire).cast_signed();
        shared_offsets::begin(file.as_fd(), slot.offset.load(Ordering::Relaxed), flags)?;
        let number = file.as_raw_fd();
        slot.external.store(externals.add(file), Ordering::Release);
        Ok(number)
    }

    /// Whether a description was opened for no more than a name (O_PATH).
    pub fn is_path_only(description: Opened) -> bool {
        description.flags.load(Ordering::Acquire).cast_signed() & libc::O_PATH != 0
    }

    /// `O_*` flags of a description.
    pub fn flags_of(&self, description: Opened, externals: &Externals) -> i32 {
        let own = description.flags.load(Ordering::Acquire).cast_signed();
        let external = description.external.load(Ordering::Acquire);
        let shared = externals.with(external, |external| {
            shared_offsets::flags(external.as_fd(), own)
        });
        shared.unwrap_or(own)
    }

    pub fn store_flags(&self, description: Opened, externals: &Externals, flags: i32) {
        description.flags.store(flags as u32, Ordering::Release);
        let external = description.external.load(Ordering::Acquire);
        externals.with(external, |external| {
            // It is open: fails only if the kernel does not take one of the flags.
            let _ = shared_offsets::set_flags(external.as_fd(), flags);
        });
    }

    /// Keeps a snapshot of names with the description.
    pub fn keep_listing(&self, description: Opened, listing: &[u8]) -> Result<(), Errno> {
        let thread = self.session.thread()?;
        let region = self.session.region();
        let (bytes, _inside) = loop {
            let inside = self.kit().inside()?;
            self.drop_listing(description)?;
            match region.allocate_bytes(thread.slot(), listing.len().max(1)) {
                Ok(bytes) => break (bytes, inside),
                // Not for want of it: it is built anew at the next try.
                Err(_) if inside.is_some() && region.is_damaged() => {}
                Err(_) => return Err(Errno::NOMEM),
            }
        };
        region.write_bytes(bytes, listing);
        description
            .listing_end
            .store(listing.len() as u64, Ordering::Relaxed);
        description.listing_read.store(0, Ordering::Relaxed);
        description.listing.store(bytes, Ordering::Release);
        Ok(())
    }

    /// Forgets a snapshot.
    pub fn drop_listing(&self, description: Opened) -> Result<(), Errno> {
        if description.listing.load(Ordering::Acquire).is_null() {
            return Ok(());
        }
        let _inside = self.kit().inside()?;
        let listing: Offset<AtomicU8> = description.listing.swap(Offset::NULL, Ordering::AcqRel);
        if !listing.is_null() {
            let thread = self.session.thread()?;
            let size = description.listing_end.load(Ordering::Relaxed) as usize;
            self.session
                .region()
                .free_bytes(thread.slot(), listing, size.max(1));
        }
        Ok(())
    }
}
