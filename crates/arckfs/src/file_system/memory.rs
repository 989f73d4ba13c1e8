//! Maps of files: `mmap` and what follows it. Addresses are the program's own.
//!
//! Safety, of all of these: the addresses are ones that the program passes to the kernel's call
//! of the same name, and mean the same; and no memory call on a range that has live maps goes to
//! the kernel past this module.

use super::*;
use crate::mappings::{self, Listing, Map, PAGE, READ, WRITE};
use arck_libfs_kit::format::PAGE_SIZE;
use arck_libfs_kit::memory::SharedBytes;
use arck_libfs_kit::memory::placing::{self, Protection};
use arck_libfs_kit::memory::{Locking, lock_pages};
use rustix::mm::{Advice, MremapFlags, MsyncFlags, madvise, msync};
use std::ops::Range;
use std::ptr::NonNull;

/// Arguments of `mmap`, without the descriptor.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    pub address: usize,
    /// Bytes.
    pub length: usize,
    /// `PROT_*`.
    pub protection: i32,
    /// `MAP_*`.
    pub flags: i32,
    /// Bytes.
    pub offset: u64,
}

/// Arguments of `mremap`.
#[derive(Clone, Copy, Debug)]
pub struct MoveRequest {
    pub address: usize,
    pub length: usize,
    pub new_length: usize,
    /// `MREMAP_*`.
    pub flags: i32,
    pub new_address: usize,
}

const EXECUTE: Protection = libc::PROT_EXEC as Protection;
/// Attempts to bring maps up to date after a change; then they stay as they are, and show the
/// file as it was there.
const REFRESH_ATTEMPTS: u32 = 64;
/// Flags of `mmap` that say where.
const PLACE_FLAGS: i32 =
    libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | libc::MAP_32BIT | libc::MAP_STACK;

/// Flags that the kernel knows for a map of a file, but MAP_SYNC, which not every file has.
const KNOWN_FLAGS: i32 = libc::MAP_TYPE
    | libc::MAP_FIXED
    | libc::MAP_32BIT
    | libc::MAP_STACK
    | libc::MAP_ANONYMOUS
    | libc::MAP_DENYWRITE
    | libc::MAP_EXECUTABLE
    | libc::MAP_GROWSDOWN
    | libc::MAP_LOCKED
    | libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_NONBLOCK
    | libc::MAP_HUGETLB
    | MAP_ABOVE_4G
    // MAP_UNINITIALIZED is one of their bits.
    | libc::MAP_HUGE_2MB
    | libc::MAP_HUGE_1GB;
const MAP_ABOVE_4G: i32 = 0x80;

/// What is at an address.
enum Shown {
    /// Pages of a file, which one, and whether the map may be written.
    Map(Range<u64>, (InodeNumber, u32), bool),
    /// So many bytes of something else, or of nothing.
    Other(usize),
}

/// The part of the first map, or of what is before it, in a range of addresses.
fn shown_at(at: usize, end: usize) -> Shown {
    let table = mappings::lock();
    let here = table.iter().find(|map| map.addresses().contains(&at));
    if let Some(map) = here {
        let first = map.first + ((at - map.start) / PAGE) as u64;
        let length = map.addresses().end.min(end) - at;
        let pages = first..first + (length / PAGE) as u64;
        let of = (map.listing.number, map.listing.generation);
        return Shown::Map(pages, of, map.is_shared && map.may_write);
    }
    let starts = table
        .iter()
        .map(|map| map.start)
        .filter(|start| *start > at);
    Shown::Other(starts.min().map_or(end, |start| start.min(end)) - at)
}

fn whole_pages(length: usize) -> Result<usize, Errno> {
    match length.checked_next_multiple_of(PAGE) {
        Some(0) => Err(Errno::INVAL),
        Some(length) if length <= isize::MAX as usize => Ok(length),
        _ => Err(Errno::NOMEM),
    }
}

impl FileSystem {
    /// Maps a file; gives the address. Shared maps, and private ones that can only be read, show
    /// the file's pages themselves; other private ones are copies. A writable shared map gives
    /// the whole range pages of its own first.
    ///
    /// EACCES, EBADF, EINVAL, ENODEV (no regular file, or another session has a writable map),
    /// ENOMEM, ENOSPC, EOVERFLOW.
    ///
    /// # Safety
    /// See the module's head.
    pub unsafe fn map(&self, handle: Handle, request: &MapRequest) -> Result<usize, Errno> {
        let MapRequest { offset, flags, .. } = *request;
        let protection = request.protection as Protection & (READ | WRITE | EXECUTE);
        if request.length == 0 || !offset.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::INVAL);
        }
        let length = whole_pages(request.length)?;
        if offset
            .checked_add(length as u64)
            .is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(Errno::OVERFLOW);
        }
        let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
        if fixed && !request.address.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        let description = self.engine.description(handle)?;
        let open_flags = self.engine.flags_of(description, &self.externals);
        if open_flags & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        // Huge pages are of other files, and a stack grows into no file.
        if flags & (libc::MAP_HUGETLB | libc::MAP_GROWSDOWN) != 0 {
            return Err(Errno::INVAL);
        }
        let is_shared = match flags & libc::MAP_TYPE {
            libc::MAP_PRIVATE => false,
            libc::MAP_SHARED => true,
            // Which promises that unknown flags are refused: nobody here knows MAP_SYNC.
            libc::MAP_SHARED_VALIDATE if flags & !KNOWN_FLAGS != 0 => {
                return Err(Errno::OPNOTSUPP);
            }
            libc::MAP_SHARED_VALIDATE => true,
            _ => return Err(Errno::INVAL),
        };
        let access = open_flags & ACCESS_MODE;
        let may_write = access == libc::O_RDWR;
        let unreadable = access == libc::O_WRONLY || access == ACCESS_MODE;
        if unreadable || (is_shared && protection & WRITE != 0 && !may_write) {
            return Err(Errno::ACCESS);
        }
        let (number, generation) = description.identity()?;
        let size = self.on_handle(handle, |_, inode| match inode.kind() {
            Some(FileKind::File) => Ok(inode.size.load(Ordering::Acquire)),
            _ => Err(Errno::NODEV.into()),
        })?;
        let place_flags = (flags & PLACE_FLAGS) as u32;
        if flags & libc::MAP_FIXED != 0 {
            self.forget(&(request.address..request.address + length));
        }
        // SAFETY: the program's own choice of addresses.
        let address = unsafe { placing::reserve(request.address, length, place_flags)? };
        let is_live = is_shared || protection & (WRITE | EXECUTE) == 0;
        let first = offset / PAGE_SIZE;
        let file_pages = first..first + (length / PAGE) as u64;
        let session = self.engine.session;
        let made = if is_live {
            let map = Map {
                is_shared,
                may_write: is_shared && may_write,
                is_writable: is_shared && protection & WRITE != 0,
                ..Map::new(
                    session,
                    (number, generation),
                    address,
                    file_pages,
                    protection,
                )
            };
            self.establish(map)
        } else {
            Err(Errno::ACCESS)
        };
        let made = match made {
            // What may be read by message alone, too.
            Err(Errno::ACCESS | Errno::BUSY | Errno::NOSPC) if !is_shared => {
                // SAFETY: reserved above, and nothing was placed there.
                unsafe { self.copy_into(handle, address, length, offset, size, protection) }
            }
            made => made,
        };
        if let Err(errno) = made {
            // SAFETY: reserved above, and unknown to anybody.
            let _ = unsafe { placing::vacate(address, length) };
            return Err(match errno {
                // Another session has it mapped to be written.
                Errno::TXTBSY => Errno::NODEV,
                other => other,
            });
        }
        if flags & (libc::MAP_POPULATE | libc::MAP_LOCKED) != 0 {
            // SAFETY: mapped above.
            unsafe { placing::populate(address, length, protection) };
        }
        // SAFETY: mapped above.
        let lock = || unsafe { lock_pages(address, length, Locking::Whole) };
        if flags & libc::MAP_LOCKED != 0 && lock().is_err() {
            // SAFETY: mapped above, and unknown to anybody.
            unsafe { self.unmap(address, length)? };
            return Err(Errno::AGAIN);
        }
        Ok(address)
    }

    /// Lists the inode as open, gives a writable map its pages, places the map.
    fn establish(&self, map: Map) -> Result<(), Errno> {
        let (number, generation) = (map.listing.number, map.listing.generation);
        let listed = self.engine.run_local(|context| {
            let inode = context.view(number, generation)?;
            let listed = context.list_open(inode)?;
            map.listing.count_in(listed.counted_in);
            Ok(listed)
        })?;
        let placed = self.place(map);
        if placed != Ok(false) {
            self.engine.kit().unlist_open(listed)?;
        }
        placed.map(|_| ())
    }

    /// Takes maps out of the table, and their inodes off the open table; the memory is to be
    /// unmapped or replaced by the caller, in this thread.
    pub fn forget_maps(&self, address: usize, length: usize) {
        let length = length.next_multiple_of(PAGE);
        self.forget(&(address..address.saturating_add(length)));
    }

    fn forget(&self, range: &Range<usize>) {
        let gone = mappings::lock().forget(range);
        if !gone.is_empty() {
            self.unlist(gone);
            let writes = |map: &Map| map.is_writable && map.listing.is_of(self.engine.session);
            // Under the lock, so that nobody places a map meanwhile.
            let table = mappings::lock();
            if !table.iter().any(writes) {
                self.engine.session.let_go_together();
            }
        }
    }

    fn unlist(&self, gone: Vec<Listing>) {
        for listing in gone {
            let unlisted = self.engine.run_local(|context| {
                let inode = context.cached(listing.number)?;
                let _locked = context.lock_whole(inode);
                mappings::lock().list(context.session, inode, None)?;
                Ok(())
            });
            if unlisted.is_ok() {
                // Fails only where the session itself is lost; then the controller cleans up.
                let _ = self.engine.kit().unlist_open(listing.listed());
            }
        }
    }

    /// `munmap`.
    ///
    /// # Safety
    /// See the module's head.
    pub unsafe fn unmap(&self, address: usize, length: usize) -> Result<(), Errno> {
        if !address.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        let length = whole_pages(length)?;
        self.forget_maps(address, length);
        // SAFETY: the caller's promise.
        unsafe { placing::vacate(address, length) }
    }

    /// `mprotect`. EACCES for writing where the descriptor did not allow it.
    ///
    /// # Safety
    /// See the module's head.
    pub unsafe fn protect(
        &self,
        address: usize,
        length: usize,
        protection: i32,
    ) -> Result<(), Errno> {
        let wanted = protection as Protection;
        if address.is_multiple_of(PAGE) && length != 0 {
            let range = address..address.saturating_add(whole_pages(length)?);
            if wanted & (WRITE | EXECUTE) != 0 {
                // SAFETY: the caller's promise.
                unsafe { self.loosen(&range, wanted)? };
            }
            let mut table = mappings::lock();
            // Under the lock, so that nothing is placed with the old protection afterwards.
            // SAFETY: the caller's promise.
            unsafe { placing::protect(address, length, wanted)? };
            for place in table.cut(&range) {
                table[place].protection = wanted & (READ | WRITE | EXECUTE);
            }
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { placing::protect(address, length, wanted) }
    }

    /// Before memory becomes writable or executable: private maps become copies, shared ones get
    /// pages of their own.
    unsafe fn loosen(&self, range: &Range<usize>, wanted: Protection) -> Result<(), Errno> {
        let mut files = Vec::new();
        let gone = {
            let mut table = mappings::lock();
            let mut copied = Vec::new();
            for place in table.cut(range) {
                let map = &table[place];
                if !map.is_shared {
                    copied.push(map.addresses());
                } else if wanted & WRITE != 0 {
                    if !map.may_write {
                        return Err(Errno::ACCESS);
                    }
                    if !map.is_writable {
                        let listing = &map.listing;
                        files.push((listing.number, listing.generation, map.file_pages()));
                    }
                }
            }
            let mut gone = Vec::new();
            let mut outcome = Ok(());
            for part in copied {
                // SAFETY: the map's own range, held still by the table's lock.
                outcome = outcome.and_then(|()| unsafe { table.copy_out(&part) });
                if outcome.is_ok() {
                    gone.extend(table.forget(&part));
                }
            }
            (gone, outcome)
        };
        self.unlist(gone.0);
        gone.1?;
        for (number, generation, pages) in files {
            self.make_writable((number, generation), pages, range)?;
        }
        Ok(())
    }

    /// `madvise` with MADV_REMOVE: a hole in each file that is mapped there, shared, by a descriptor that allowed
    /// writing. EACCES for other maps, EINVAL where pages are locked; ENOMEM, after all else, where nothing is mapped.
    ///
    /// # Safety
    /// See the module's head.
    pub unsafe fn remove_mapped(&self, address: usize, length: usize) -> Result<(), Errno> {
        if !address.is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        let length = length.checked_next_multiple_of(PAGE).ok_or(Errno::INVAL)?;
        let end = address.checked_add(length).ok_or(Errno::INVAL)?;
        let (mut at, mut lacks) = (address, false);
        while at < end {
            let (length, done) = match shown_at(at, end) {
                Shown::Map(pages, of, allowed) => {
                    let length = (pages.end - pages.start) as usize * PAGE;
                    let all = MsyncFlags::ASYNC | MsyncFlags::INVALIDATE;
                    // SAFETY: changes no memory; says whether some of it is locked.
                    let locked = unsafe { msync(at as *mut _, length, all) } == Err(Errno::BUSY);
                    let done = match (locked, allowed) {
                        (true, _) => Err(Errno::INVAL),
                        (_, false) => Err(Errno::ACCESS),
                        _ => self.punch_mapped(of, pages),
                    };
                    (length, done)
                }
                Shown::Other(length) => {
                    // SAFETY: the program's own memory and choice.
                    let done = unsafe { madvise(at as *mut _, length, Advice::LinuxRemove) };
                    (length, done)
                }
            };
            match done {
                Err(Errno::NOMEM) => lacks = true,
                other => other?,
            }
            at += length;
        }
        match lacks {
            true => Err(Errno::NOMEM),
            false => Ok(()),
        }
    }

    /// `mremap` of a range that has live maps. EFAULT if it is not of one map.
    ///
    /// # Safety
    /// See the module's head.
    pub unsafe fn move_map(&self, request: &MoveRequest) -> Result<usize, Errno> {
        let MoveRequest { address, flags, .. } = *request;
        let moves = flags & libc::MREMAP_MAYMOVE != 0;
        let fixed = flags & libc::MREMAP_FIXED != 0;
        let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        if !address.is_multiple_of(PAGE)
            || flags & !known != 0
            || (fixed && (!moves || !request.new_address.is_multiple_of(PAGE)))
        {
            return Err(Errno::INVAL);
        }
        let old = match request.length {
            0 if !moves => return Err(Errno::INVAL),
            0 => 0,
            length => whole_pages(length)?,
        };
        let new = whole_pages(request.new_length)?;
        let old_range = address..address.saturating_add(old);
        let target_range = request.new_address..request.new_address.saturating_add(new);
        if fixed && target_range.start < old_range.end && old_range.start < target_range.end {
            return Err(Errno::INVAL);
        }
        let (mut map, end) = {
            let table = mappings::lock();
            let Some(map) = table.iter().find(|map| map.addresses().contains(&address)) else {
                drop(table);
                return self.move_other(request);
            };
            if old_range.end > map.addresses().end {
                return Err(Errno::FAULT);
            }
            if old == 0 && !map.is_shared {
                return Err(Errno::INVAL);
            }
            let first = map.first + ((address - map.start) / PAGE) as u64;
            let pages = first..first + (new / PAGE) as u64;
            let of = (map.listing.number, map.listing.generation);
            let session = self.engine.session;
            let copy = Map {
                is_shared: map.is_shared,
                may_write: map.may_write,
                is_writable: map.is_writable,
                ..Map::new(session, of, address, pages, map.protection)
            };
            (copy, map.addresses().end)
        };
        if !fixed && old != 0 && new <= old {
            if new < old {
                // SAFETY: the program gives that part up.
                unsafe { self.unmap(address + new, old - new)? };
            }
            return Ok(address);
        }
        // SAFETY: an address range nobody uses yet, or the program's own.
        unsafe {
            if !fixed && old != 0 && old_range.end == end {
                let more = new - old;
                let place = libc::MAP_FIXED_NOREPLACE as u32;
                if let Ok(behind) = placing::reserve(end, more, place) {
                    let placed = self.establish(map.rest_of(old));
                    if placed.is_err() {
                        let _ = placing::vacate(behind, more);
                    }
                    return placed.map(|()| address);
                }
            }
            if !moves {
                return Err(Errno::NOMEM);
            }
            let place = match fixed {
                true => {
                    self.forget(&target_range);
                    libc::MAP_FIXED
                }
                false => 0,
            };
            let target = placing::reserve(request.new_address, new, place as u32)?;
            map.start = target;
            if let Err(errno) = self.establish(map) {
                let _ = placing::vacate(target, new);
                return Err(errno);
            }
            if old != 0 {
                self.unmap(address, old)?;
            }
            Ok(target)
        }
    }

    /// `mremap` of memory that is none of ours, but may go where ours was.
    fn move_other(&self, request: &MoveRequest) -> Result<usize, Errno> {
        let flags = MremapFlags::from_bits_retain(request.flags as u32);
        let old = request.address as *mut std::ffi::c_void;
        let target = request.new_address as *mut std::ffi::c_void;
        let (length, new) = (request.length, request.new_length);
        // SAFETY: the program's own memory and choice.
        let moved = unsafe {
            if request.flags & libc::MREMAP_FIXED != 0 {
                self.forget_maps(request.new_address, new);
                rustix::mm::mremap_fixed(old, length, new, flags, target)
            } else {
                rustix::mm::mremap(old, length, new, flags)
            }
        };
        moved.map(|address| address as usize)
    }

    /// Has the process's maps show what other processes of its group have changed by now, as any call does first, and gives
    /// the one at an address the pages that it lacks. For who has found nothing there.
    pub fn catch_up_with_maps(&self, address: usize) -> Result<(), Errno> {
        self.engine.run_local(|_| Ok(()))?;
        let listing = mappings::lock()
            .iter()
            .find(|map| map.addresses().contains(&address))
            .map(|map| (map.listing.number, map.listing.generation));
        if let Some((number, generation)) = listing {
            self.refresh_maps(number, generation);
        }
        Ok(())
    }

    /// Before a fork: folds what mapped files have unfolded, so that the child's session knows
    /// them.
    pub fn hand_over_maps(&self) {
        let mut numbers: Vec<InodeNumber> = mappings::lock()
            .iter()
            .filter(|map| map.listing.is_of(self.engine.session))
            .map(|map| map.listing.number)
            .collect();
        numbers.dedup();
        for number in numbers {
            // Where it fails the child's map shows what it shows now.
            let _ = ownership::commit(self.engine.session, &[number], false);
        }
    }

    /// In a forked child, with its new session: its parent's maps become its own.
    pub(super) fn adopt_maps(&self) {
        if !mappings::take_forked() {
            return;
        }
        // No other thread makes maps: the first call that needs a session has opened it.
        let listings: Vec<_> = mappings::lock()
            .iter()
            .map(|map| map.listing.clone())
            .collect();
        for listing in listings {
            if !listing.is_of(self.engine.session) {
                let adopted = self.engine.run_local(|context| context.adopt_map(&listing));
                if adopted.is_err() {
                    mappings::lock().retain(|map| map.listing.number != listing.number);
                }
            }
        }
    }

    /// After a change of a mapped file: gives writable maps the pages that they have come to
    /// lack. Where that cannot be done (a full pool), touching them is SIGBUS.
    pub(super) fn refresh_maps(&self, number: InodeNumber, generation: u32) {
        let mut wanting: Vec<(u64, Range<u64>)> = mappings::lock()
            .iter()
            .filter(|map| map.is_writable && map.listing.number == number)
            // A program may have maps of another session's file with that number.
            .filter(|map| map.listing.is_of(self.engine.session))
            .map(|map| (map.first, map.file_pages()))
            .collect();
        let mut attempts = 0;
        if self.engine.complete_together((number, generation)) {
            wanting.clear();
        }
        let _ = self.engine.run_local(|context| {
            let inode = context.view(number, generation)?;
            if !inode.has(flag::STALE_MAPS) || attempts > REFRESH_ATTEMPTS {
                return Ok(());
            }
            for (own, pages) in &mut wanting {
                context.own_up_to(inode, own, pages)?;
            }
            attempts += 1;
            context.refresh_maps(inode)
        });
    }
}

impl mappings::Locked {
    /// Replaces the pages of a live map by private copies; behind the end of its file stays
    /// nothing.
    ///
    /// # Safety
    /// `range` is that of a map in the table.
    unsafe fn copy_out(&mut self, range: &Range<usize>) -> Result<(), Errno> {
        let Some(map) = self.iter().find(|map| map.addresses() == *range) else {
            return Ok(());
        };
        let filled = map.filled();
        let Some(start) = NonNull::new(range.start as *mut u8).filter(|_| filled != 0) else {
            return Ok(());
        };
        // SAFETY: mapped readable for the moment of the copy; the table's lock holds it still.
        unsafe {
            placing::protect(range.start, filled, READ)?;
            let source = SharedBytes::from_raw(start, filled);
            placing::copy_of_parts(range.start, source, READ, map.parts())
        }
    }
}
