//! A session's arena as the controller sees it.
//!
//! # Invariants
//! * It is read by guarded copies from a read-only mapping, and only where the controller has
//!   allocated it: reading elsewhere could allocate, or fault. No more of it is mapped, so that nobody else
//!   who reads all that the controller has mapped does either, for which its session would be closed.
//! * A branch slot belongs to one inode at a time.
//! * Its file is grown by a worker ([`crate::threads::workers`]), for which nobody waits long.
//! * What was once asked of a worker counts as taken, part by part, whether the worker has answered, has
//!   failed half-way, or is still at it: so much may be in the file without the session's doing.

#[cfg(test)]
mod tests;

use crate::pool::files::{Pool, allocate, resized};
use crate::pool::filling::{self, HUGE, HugePages};
use crate::pool::journal::Beforehand;
use crate::sessions::lent::{Allowance, Lent, with_slack};
use crate::space::free_set::FreeSet;
use crate::threads::workers::Workers;
use arck_controller_state::sessions as session_table;
use arck_core_state::arena::{
    ARENA_PAGES, ARENA_SPAN, ArenaHeader, BRANCH_PAGES, BRANCHES_PER_PAGE, DELTA_FIRST, MAGIC,
};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::superblock::Durability;
use arck_core_state::{PAGE_BYTES, PAGE_SIZE, cast};
use arck_pm::long::Part;
use arck_pm::record::{self, FileChange, file_id};
use arck_pm::{Flushed, LongFile, MapOptions, order};
use arck_verifier::{ArenaSource, CopyFault};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use zerocopy::IntoBytes;

/// Pages of branch table that a new session gets. Little, so that a session is opened fast.
const FIRST_BRANCH_PAGES: u32 = 4;
/// Pages of branch table from which on it grows by whole huge pages, and the pages of one.
const MANY_BRANCH_PAGES: u32 = 128;
const HUGE_PAGES_PAGES: u32 = cast::low(HUGE / PAGE_SIZE);
/// Delta pages that a new session gets.
const FIRST_DELTA_PAGES: u32 = 64;

/// See the module's head.
pub struct Arena {
    file: OwnedFd,
    mapping: LongFile,
    branch_pages: u32,
    delta_pages: u32,
    free_slots: FreeSet,
    next_slot: u32,
    growth: Option<Growth>,
    /// The most that was asked of a worker, of each part: never less than what is allocated.
    asked: (u32, u32),
    /// Bytes that were in the file beyond that when this controller found it.
    found: u64,
    /// Bytes that the file system took for a new one beyond what was asked for.
    overhead: u64,
    /// Its pages are zeroed when they are allocated ([`filling`]): it is in memory.
    is_memory: bool,
    /// Of which many are, where that is worth while.
    huge_pages: Option<HugePages>,
    workers: Workers,
    /// Whose workers grow it.
    user: u32,
}

/// The file is being grown to so many pages.
struct Growth {
    branch_pages: u32,
    delta_pages: u32,
    outcome: Receiver<Result<(), Errno>>,
    /// What is left of [`GROWTH_PATIENCE`]: it is waited for once.
    patience: Duration,
}

/// So long is waited for a growth at once, as few pages take: else its end is an event.
const GROWTH_PATIENCE: Duration = Duration::from_micros(200);

/// Whether what was asked for is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grown {
    Now,
    /// It is being seen to: ask again.
    Later,
}

/// Bytes of an arena of so many pages.
fn bytes_of((branch_pages, delta_pages): (u32, u32)) -> u64 {
    (1 + u64::from(branch_pages) + u64::from(delta_pages)) * PAGE_SIZE
}

/// Both parts of an arena of so many pages, in bytes of its file.
fn parts(branch_pages: u32, delta_pages: u32) -> [Part; 2] {
    let page = PAGE_BYTES;
    let part = |first: u32, pages: u32| Part {
        start: first as usize * page,
        // Every arena has some pages of each.
        end: (first + pages.max(1)) as usize * page,
    };
    [part(0, 1 + branch_pages), part(DELTA_FIRST, delta_pages)]
}

/// Name of a session's arena file.
pub fn name(session: SessionNumber) -> String {
    Lent::Arena(session).name()
}

impl Arena {
    /// Makes a new arena. ENOSPC, EMFILE.
    pub fn create(
        pool: &Pool,
        session: SessionNumber,
        user: u32,
        workers: &Workers,
    ) -> Result<Arena, Errno> {
        let file = pool.open_file(&name(session), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        let make = || {
            rustix::fs::ftruncate(&file, ARENA_SPAN)?;
            resized(&file);
            let header = ArenaHeader {
                magic: MAGIC,
                session,
                reserved: 0,
            };
            allocate(&file, 0, (1 + u64::from(FIRST_BRANCH_PAGES)) * PAGE_SIZE)?;
            allocate(
                &file,
                u64::from(DELTA_FIRST) * PAGE_SIZE,
                u64::from(FIRST_DELTA_PAGES) * PAGE_SIZE,
            )?;
            rustix::io::pwrite(&file, header.as_bytes(), 0)?;
            record::file(|| FileChange::Written {
                file: file_id(&file),
                offset: 0,
                bytes: header.as_bytes().to_vec(),
            });
            let blocks = rustix::fs::fstat(&file)?.st_blocks;
            let pages = (FIRST_BRANCH_PAGES, FIRST_DELTA_PAGES);
            let mut arena = Arena::map(pool, session, pages, user, workers)?;
            let bytes = u64::try_from(blocks).unwrap_or(0) * 512;
            arena.overhead = bytes.saturating_sub(arena.granted());
            Ok(arena)
        };
        pool.with_room(make)
            .inspect_err(|_| pool.remove_file(&name(session)))
    }

    /// Maps an arena that exists.
    pub fn map(
        pool: &Pool,
        session: SessionNumber,
        (branch_pages, delta_pages): (u32, u32),
        user: u32,
        workers: &Workers,
    ) -> Result<Arena, Errno> {
        let file = pool.open_file(&name(session), OFlags::RDWR)?;
        let readable = pool.open_file(&name(session), OFlags::RDONLY)?;
        let span = usize::try_from(ARENA_SPAN).map_err(|_| Errno::NOMEM)?;
        let branch_pages = branch_pages.min(BRANCH_PAGES);
        let delta_pages = delta_pages.min(ARENA_PAGES - DELTA_FIRST);
        let mapping = LongFile::new(
            &readable,
            span,
            &parts(branch_pages, delta_pages),
            MapOptions::READ_ONLY.synchronous(pool.durability() == Durability::Dax),
        )
        .map_err(|error| error.errno())?;
        Ok(Arena {
            file,
            mapping,
            branch_pages,
            delta_pages,
            asked: (branch_pages, delta_pages),
            free_slots: FreeSet::default(),
            next_slot: 0,
            growth: None,
            found: 0,
            overhead: 0,
            is_memory: pool.durability() == Durability::Volatile,
            huge_pages: pool.huge_pages(),
            workers: workers.clone(),
            user,
        })
    }

    /// Allocated pages of both parts.
    pub fn pages(&self) -> (u32, u32) {
        (self.branch_pages, self.delta_pages)
    }

    /// Bytes that are allocated, or may be by what was asked of a worker.
    pub fn granted(&self) -> u64 {
        bytes_of(self.asked) + self.found
    }

    /// Bytes of [`granted`](Arena::granted) when so many pages have been asked for as well. EINVAL beyond
    /// the greatest size.
    pub fn bytes_with(&self, pages: (u32, u32)) -> Result<u64, Errno> {
        Ok(bytes_of(self.asked_with(pages)?) + self.found)
    }

    /// What is asked of workers in all when this is asked for: the greater of each part, since whoever
    /// grows the file goes on from what is there by then.
    fn asked_with(&self, (branch_pages, delta_pages): (u32, u32)) -> Result<(u32, u32), Errno> {
        if branch_pages > BRANCH_PAGES || delta_pages > ARENA_PAGES - DELTA_FIRST {
            return Err(Errno::INVAL);
        }
        let (branch_asked, delta_asked) = self.asked;
        Ok((branch_pages.max(branch_asked), delta_pages.max(delta_asked)))
    }

    /// Of a session that an earlier controller opened: nobody knows how much the file system took at first.
    pub fn allow_for_overhead(&mut self) {
        /// Bytes; four times as much is let pass.
        const OVERHEAD: u64 = 2 << 20;
        self.overhead = OVERHEAD;
    }

    /// Bytes that are in the file beyond what is known to be granted: what the controller before this one was
    /// having allocated when it ended, if the session has not stored there itself.
    pub fn excess(&self) -> Result<u64, Errno> {
        let blocks = rustix::fs::fstat(&self.file)?.st_blocks;
        let bytes = u64::try_from(blocks).unwrap_or(0) * 512;
        Ok(bytes.saturating_sub(self.granted()))
    }

    /// Takes so many bytes for granted, in whichever part they lie.
    pub fn grant_excess(&mut self, bytes: u64) {
        self.found += bytes;
    }

    /// What the file may be when it has grown to so many pages. EINVAL beyond the greatest size.
    pub fn allowance(&self, session: SessionNumber, pages: (u32, u32)) -> Result<Allowance, Errno> {
        Ok(Allowance {
            session,
            user: self.user,
            size: ARENA_SPAN,
            bytes: with_slack(self.bytes_with(pages)?, self.overhead),
        })
    }

    /// Makes sure that so many pages are allocated, or that a worker sees to it. ENOSPC; EINVAL
    /// beyond the greatest size.
    pub fn grow(&mut self, branch_pages: u32, delta_pages: u32) -> Result<Grown, Errno> {
        self.asked = self.asked_with((branch_pages, delta_pages))?;
        loop {
            if let Some(growth) = &mut self.growth {
                let patience = std::mem::take(&mut growth.patience);
                match growth.outcome.recv_timeout(patience) {
                    Err(RecvTimeoutError::Timeout) => return Ok(Grown::Later),
                    Err(RecvTimeoutError::Disconnected) => {
                        self.growth = None;
                        return Err(Errno::IO);
                    }
                    Ok(outcome) => {
                        let pages = (growth.branch_pages, growth.delta_pages);
                        self.growth = None;
                        outcome?;
                        for part in parts(pages.0, pages.1) {
                            let reached = self.mapping.reach(part.start, part.end);
                            reached.map_err(|error| error.errno())?;
                        }
                        (self.branch_pages, self.delta_pages) = pages;
                    }
                }
            }
            if branch_pages <= self.branch_pages && delta_pages <= self.delta_pages {
                return Ok(Grown::Now);
            }
            let branch_pages = branch_pages.max(self.branch_pages);
            let delta_pages = delta_pages.max(self.delta_pages);
            match self.begin_growth(branch_pages, delta_pages) {
                Ok(growth) => self.growth = Some(growth),
                // When another of the user's workers has ended.
                Err(Errno::AGAIN) => return Ok(Grown::Later),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn begin_growth(&self, branch_pages: u32, delta_pages: u32) -> Result<Growth, Errno> {
        let file = rustix::io::fcntl_dupfd_cloexec(&self.file, 0)?;
        let parts = [
            // The page of the header, before the first, is there.
            (0, 1, self.branch_pages, branch_pages),
            (DELTA_FIRST, DELTA_FIRST, self.delta_pages, delta_pages),
        ];
        let (is_memory, huge_pages) = (self.is_memory, self.huge_pages.clone());
        let never = AtomicBool::new(false);
        let allocate_part = move |file: &OwnedFd, part, offset, length| match &huge_pages {
            Some(huge_pages) => huge_pages.fill(file, part, offset..offset + length, &never),
            None if is_memory => filling::fill(file, offset, length),
            None => allocate(file, offset, length),
        };
        let allocate_parts = move || -> Result<(), Errno> {
            for (part, first, from, to) in parts {
                if to > from {
                    let start = u64::from(first) + u64::from(from);
                    let length = u64::from(to - from) * PAGE_SIZE;
                    allocate_part(
                        &file,
                        u64::from(part) * PAGE_SIZE,
                        start * PAGE_SIZE,
                        length,
                    )?;
                }
            }
            Ok(())
        };
        let outcome = self.workers.start(self.user, allocate_parts)?;
        Ok(Growth {
            branch_pages,
            delta_pages,
            outcome,
            patience: GROWTH_PATIENCE,
        })
    }

    /// Branch pages that there have to be so that so many slots are free, as far as there can be;
    /// `None`: as many as there are.
    pub fn pages_for_slots(&self, count: usize) -> Option<u32> {
        let unused = self.branch_pages * BRANCHES_PER_PAGE - self.next_slot;
        let free = cast::index(self.free_slots.count());
        let missing = count.saturating_sub(free + unused as usize);
        if missing == 0 || self.branch_pages == BRANCH_PAGES {
            return None;
        }
        let pages = cast::count(missing).div_ceil(BRANCHES_PER_PAGE);
        let wanted = (self.branch_pages * 2).max(self.branch_pages + pages);
        // Behind the page of the header; many are of huge pages, which begin with it.
        let wanted = match self.huge_pages {
            None => wanted,
            Some(_) if wanted <= MANY_BRANCH_PAGES => wanted,
            Some(_) => (1 + wanted).next_multiple_of(HUGE_PAGES_PAGES) - 1,
        };
        Some(wanted.min(BRANCH_PAGES))
    }

    /// A free branch slot, taken. ENOSPC: see [`Arena::pages_for_slots`]; NOBUFS: there cannot be more, so that
    /// something has to be given up first.
    pub fn take_slot(&mut self) -> Result<u32, Errno> {
        if let Some(slot) = self.free_slots.take() {
            return Ok(slot);
        }
        if self.next_slot == self.branch_pages * BRANCHES_PER_PAGE {
            return Err(match self.branch_pages {
                BRANCH_PAGES => Errno::NOBUFS,
                _ => Errno::NOSPC,
            });
        }
        self.next_slot += 1;
        Ok(self.next_slot - 1)
    }

    /// Takes all slots, of which these are in use; those that are not.
    pub fn take_all_slots(&mut self, used: impl Iterator<Item = u32>) -> Vec<u32> {
        self.next_slot = self.branch_pages * BRANCHES_PER_PAGE;
        let mut is_used = vec![false; self.next_slot as usize];
        for slot in used {
            if let Some(is_used) = is_used.get_mut(slot as usize) {
                *is_used = true;
            }
        }
        (0..self.next_slot)
            .filter(|&slot| !is_used[slot as usize])
            .collect()
    }

    pub fn free_slot(&mut self, slot: u32) {
        self.free_slots.insert(slot);
    }

    fn is_allocated(&self, offset: u64, length: u64) -> bool {
        let within = |first: u64, pages: u32| {
            let start = first * PAGE_SIZE;
            let end = start + u64::from(pages) * PAGE_SIZE;
            offset >= start && offset.checked_add(length).is_some_and(|last| last <= end)
        };
        within(0, 1 + self.branch_pages) || within(u64::from(DELTA_FIRST), self.delta_pages)
    }
}

/// Reads for a fold.
pub struct Reader<'a>(pub &'a Arena);

impl ArenaSource for Reader<'_> {
    fn copy(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), CopyFault> {
        if !self.0.is_allocated(offset, buffer.len() as u64) {
            return Err(CopyFault);
        }
        let offset = usize::try_from(offset).map_err(|_| CopyFault)?;
        self.0
            .mapping
            .bytes()
            .try_copy_to(offset, buffer)
            .map_err(|_| CopyFault)
    }
}

/// Stores a session's entry in the session table; counts once its number is stored. It is durable
/// when the session can have done something: by the first fence of the change that makes it own an
/// inode or a segment, and of its arena only what it owns is looked at. What a failure of the machine
/// leaves before is an entry, perhaps with lines of another, of a session that owns nothing: this
/// one, or the one before it in this place, whose end the journal holds.
pub fn store_entry(
    pool: &Pool,
    index: usize,
    entry: &session_table::SessionEntry,
) -> Result<Flushed<Beforehand>, Errno> {
    let table = pool.session_table();
    let offset = session_table::entry_offset(index);
    let bytes = entry.as_bytes();
    let identity = u64::from(entry.session) | u64::from(entry.group_count) << 32;
    let store = || {
        table.store_u64(offset, 0, Ordering::Release)?;
        table.copy_from(offset + 8, &bytes[8..])?;
        table.store_u64(offset, identity, Ordering::Release)?;
        Some(table.dirty(offset, bytes.len())?.describing().flush())
    };
    store().ok_or(Errno::INVAL)
}

/// Flushes a session's entry, to be fenced.
pub fn flush_entry(pool: &Pool, index: usize) -> Option<Flushed<Beforehand>> {
    let offset = session_table::entry_offset(index);
    // In range: an entry was read there.
    let entry = pool
        .session_table()
        .dirty(offset, session_table::SESSION_ENTRY_SIZE);
    Some(entry?.describing().flush())
}

/// Stores how much of a session's arena is allocated, durably if that has changed: what stands there
/// already was made durable when it was stored, by the first change for a new session, or when the
/// pool was opened.
pub fn store_pages(pool: &Pool, index: usize, arena: &Arena) {
    let offset = session_table::entry_offset(index) + session_table::PAGES_OFFSET;
    let (branch_pages, delta_pages) = arena.pages();
    let word = u64::from(branch_pages) | u64::from(delta_pages) << 32;
    let table = pool.session_table();
    if table.load_u64(offset, Ordering::Relaxed) != Some(word)
        && let Some(stored) = table.write_u64(offset, word)
    {
        order::drain(stored.flush());
    }
}

/// Takes a session's entry away, when the change that released what it owned is in the journal. Not
/// durable: who finds it after a failure of the machine takes it away once more, of a session that
/// owns nothing. Numbers of sessions are not used again.
pub fn clear_entry(pool: &Pool, index: usize) {
    let offset = session_table::entry_offset(index);
    // In range: it was stored there.
    let _ = pool.session_table().store_u64(offset, 0, Ordering::Release);
}

/// All entries of the session table that count, with their indexes.
pub fn entries(pool: &Pool) -> Vec<(usize, session_table::SessionEntry)> {
    (0..session_table::SESSIONS_MAX)
        .filter_map(|index| Some((index, entry(pool, index)?)))
        .collect()
}

/// An entry of the session table, if it counts.
pub fn entry(pool: &Pool, index: usize) -> Option<session_table::SessionEntry> {
    let offset = session_table::entry_offset(index);
    let mut bytes = [0u8; session_table::SESSION_ENTRY_SIZE];
    pool.session_table().copy_to(offset, &mut bytes)?;
    session_table::SessionEntry::decode(bytes)
}

/// A session number that was never used; durable before it is given.
pub fn next_session(pool: &Pool) -> Result<SessionNumber, Errno> {
    let table = pool.session_table();
    let next = table
        .load_u64(0, Ordering::Relaxed)
        .ok_or(Errno::IO)?
        .max(1);
    let number = SessionNumber::try_from(next).map_err(|_| Errno::NOSPC)?;
    order::drain(table.write_u64(0, next + 1).ok_or(Errno::IO)?.flush());
    Ok(number)
}

/// A descriptor of a session's arena to be sent to a member, locked for as long as it is mapped.
pub fn open_arena(pool: &Pool, session: SessionNumber, member: u16) -> Result<OwnedFd, Errno> {
    let file = pool.open_file(&name(session), OFlags::RDWR)?;
    // Where there are no such locks, no session outlives its controller.
    let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
    let _ = lock_byte(&file, libc::F_OFD_SETLK, member);
    Ok(file)
}

/// Takes the lock that is the open file's of the byte that stands for a member, or asks who has it: as the
/// kernel leaves it.
#[expect(clippy::cast_possible_truncation, reason = "constants of the kernel's")]
pub fn lock_byte(file: &OwnedFd, command: libc::c_int, member: u16) -> Result<libc::flock, Errno> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: libc::off_t::from(member),
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: an open file, and a structure on the stack that the kernel reads and fills.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}
