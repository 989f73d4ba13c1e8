//! The redo journal at work: its file, and what its entry says put in place. What an entry is made of is
//! [`arck_controller_state::journal`].
//!
//! An entry says, physically, which bytes go where. It is written whole, made durable, and then
//! applied in place; a valid entry found at the start is applied again, which changes nothing if
//! it had been applied. Redo of plain bytes is a choice: letting the copied delta itself be the
//! entry would need no second writing of what changed, but then replaying would have to run the
//! whole of verification and application again, in exactly the state it ran in before. New
//! pages, to which nothing refers yet, are written in place beforehand and never copied here, so
//! what an entry holds is small: pointers, headers, changed words.
//!
//! # Invariants
//! * What an entry addresses is in use once the entry is applied, or belongs to a table: so
//!   applying the last entry again, whatever free space has been used for since, harms nobody.
//! * An entry is valid if its checksum holds; the next one is written only after all of the
//!   last has been applied durably: by the first fence of the change that it belongs to.
//! * That order is in the types of [`order`]: an entry is written with a [`Prepared`], and what it says is put in
//!   place with a [`Standing`].

mod order;

use crate::error::{Error, Result};
pub use crate::pool::files::Pool;
use crate::pool::files::allocate;
use arck_controller_state::header_runs::HeaderRun;
use arck_controller_state::journal::{ENTRY_HEADER_SIZE, EntryHeader, JOURNAL_MAX, Redo, Target};
use arck_core_state::header::{FOLD_OFFSET, HEADER_SIZE, OWNERSHIP_OFFSET};
use arck_core_state::superblock::Durability;
use arck_core_state::{cast, layout};
use arck_pm::record::stored;
use arck_pm::{CACHE_LINE, Flushed, MapOptions, Mapping, SharedBytes, order as pm};
pub use order::{Applied, Beforehand, Entry, Prepared, Standing, Unfenced};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::atomic::{Ordering, fence};
use zerocopy::IntoBytes;

/// The memory that a target names.
pub fn memory(target: Target, pool: &Pool) -> SharedBytes<'_> {
    match target {
        Target::Headers | Target::Sequences | Target::HeaderRuns => pool.headers(),
        Target::Sessions => pool.session_table(),
        Target::Bitmap => pool.bitmap(),
        Target::Segments => pool.segment_table(),
        Target::Pages => pool.space(),
    }
}

/// Stores what an entry says, in the order that operations and readers rely on: sequence
/// words become odd, everything but fold numbers and owners is stored, sequence words become
/// even, then each header's fold number and after it its owner. The change clock becomes odd before sequence words become
/// even, and even at the end. What is out of range, which is in no valid entry, is left out. Flushes nothing.
pub fn store(redo: &Redo, pool: &Pool, _standing: &Standing, half: impl FnOnce()) {
    let numbers = redo.sequenced();
    let headers = || numbers.iter().filter_map(|&number| pool.header(number));
    for header in headers() {
        // Odd already only if a controller died here.
        let sequence = header.sequence.load(Ordering::Relaxed);
        header.sequence.store(sequence | 1, Ordering::Relaxed);
        stored(&header.sequence);
    }
    fence(Ordering::SeqCst);
    let store_run = |run: &HeaderRun, last: bool| {
        for (number, words) in run.headers() {
            let Some(header) = pool.header(number) else {
                return;
            };
            let [inode, fold, ownership, identity, state] = words;
            let words = match last {
                false => [(&header.inode, inode), (&header.identity, identity)],
                true => [(&header.fold, fold), (&header.ownership, ownership)],
            };
            let state = (!last).then_some((&header.state, state));
            for (place, word) in words.into_iter().chain(state) {
                place.store(word, Ordering::Release);
                stored(place);
            }
        }
    };
    let store_word = |memory: SharedBytes<'_>, at: u64, word: u64| {
        let stored = memory.store_u64(cast::index(at), word, Ordering::Release);
        debug_assert!(stored.is_some());
    };
    redo.runs().for_each(|run| store_run(&run, false));
    // Fold numbers and owners, in the order in which they stand.
    let mut last: Vec<(u64, u64)> = Vec::with_capacity(2 * numbers.len());
    for (target, offset, bytes) in redo.records() {
        let memory = memory(target, pool);
        // Only whole aligned words are ever put.
        for (at, word) in (offset..).step_by(8).zip(bytes.as_chunks::<8>().0) {
            let word = u64::from_le_bytes(*word);
            let is_last = target == Target::Headers
                && matches!(at % HEADER_SIZE as u64, FOLD_OFFSET | OWNERSHIP_OFFSET);
            match is_last {
                true => last.push((at, word)),
                false => store_word(memory, at, word),
            }
        }
    }
    half();
    // This thread alone moves it. Nothing is recorded: it means nothing after a failure. Odd already only if a controller
    // died here.
    let clock = pool.change_clock();
    clock.store(
        clock.load(Ordering::Relaxed).wrapping_add(1) | 1,
        Ordering::Release,
    );
    fence(Ordering::SeqCst);
    for header in headers() {
        let sequence = header.sequence.load(Ordering::Relaxed);
        debug_assert!(sequence % 2 == 1, "odd while the inode changes");
        header.sequence.store(sequence + 1, Ordering::Release);
        stored(&header.sequence);
    }
    // In ascending order: of each header the fold number, then the ownership.
    redo.runs().for_each(|run| store_run(&run, true));
    for (at, word) in last {
        store_word(pool.headers(), at, word);
    }
    clock.store(
        clock.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Release,
    );
}

/// Flushes what [`store`] has stored, each line once where its words follow each other; `each` is told of every range.
pub fn flush(
    redo: &Redo,
    pool: &Pool,
    mut each: impl FnMut(SharedBytes<'_>),
) -> Option<Flushed<Applied>> {
    const LINE: u64 = CACHE_LINE as u64;
    let mut applied: Option<Flushed<Applied>> = None;
    for run in redo.runs() {
        let at = u64::from(run.first) * HEADER_SIZE as u64;
        let length = u64::from(run.count) * HEADER_SIZE as u64;
        // In range: it was stored to.
        if let Some(range) = pool.headers().slice(cast::index(at), cast::index(length))
            && let Some(dirty) = range.dirty(0, range.len())
        {
            applied = Some(dirty.describing().flush().join_all(applied));
            each(range);
        }
    }
    let mut flush = |(target, offset, end): (Target, u64, u64)| {
        // In range: it was stored to.
        let length = cast::index(end - offset);
        if let Some(range) = memory(target, pool).slice(cast::index(offset), length)
            && let Some(dirty) = range.dirty(0, length)
        {
            let flushed = dirty.describing().flush();
            applied = Some(flushed.join_all(applied.take()));
            each(range);
        }
    };
    // Target, beginning and end of what is to be flushed.
    let mut range: Option<(Target, u64, u64)> = None;
    for (target, offset, bytes) in redo.records() {
        let end = offset + bytes.len() as u64;
        match &mut range {
            // In the line in which the last record ends, or in the next one.
            Some((last, begins, ends))
                if *last == target && offset >= *begins && offset / LINE <= ends.div_ceil(LINE) =>
            {
                *ends = end.max(*ends);
            }
            _ => range
                .replace((target, offset, end))
                .into_iter()
                .for_each(&mut flush),
        }
    }
    range.into_iter().for_each(flush);
    applied
}

/// The open journal.
pub struct Journal {
    file: OwnedFd,
    mapping: Mapping,
    sequence: u64,
    synchronous: bool,
    /// Bytes of entries since [`Journal::take_bytes`].
    bytes: u64,
    /// What is to be durable before the next entry.
    unfenced: Unfenced,
    /// Whether what the last entry says is in place.
    is_applied: bool,
}

impl Journal {
    /// Opens and maps it.
    pub fn open(pool: &Pool) -> Result<Journal> {
        let path = pool.path().join(layout::JOURNAL);
        let file = pool
            .open_file(layout::JOURNAL, OFlags::RDWR)
            .map_err(|errno| match errno {
                Errno::NOENT => Error::Truncated {
                    path: pool.path().into(),
                    file: layout::JOURNAL.into(),
                },
                errno => Error::system(&path, "open")(errno),
            })?;
        let status = rustix::fs::fstat(&file).map_err(Error::system(&path, "fstat"))?;
        let length = usize::try_from(status.st_size).unwrap_or(0);
        if length < ENTRY_HEADER_SIZE {
            return Err(Error::Truncated {
                path: pool.path().into(),
                file: layout::JOURNAL.into(),
            });
        }
        let synchronous = pool.durability() == Durability::Dax;
        let mapping = Mapping::new(
            &file,
            0,
            length,
            MapOptions::READ_WRITE.synchronous(synchronous),
        )
        .map_err(Error::mapping(&path, "mmap"))?;
        Ok(Journal {
            file,
            mapping,
            sequence: 0,
            synchronous,
            bytes: 0,
            unfenced: Unfenced::default(),
            is_applied: true,
        })
    }

    /// The valid entry at the start, if there is one: it is to be applied again.
    pub fn read(&mut self) -> Option<(Redo, Standing)> {
        let mut header = [0u8; ENTRY_HEADER_SIZE];
        self.mapping.bytes().copy_to(0, &mut header)?;
        let header = EntryHeader::decode(&header)?;
        let length = usize::try_from(header.length).ok()?;
        if length > self.mapping.len() - ENTRY_HEADER_SIZE {
            return None;
        }
        let mut bytes = vec![0u8; length];
        self.mapping
            .bytes()
            .copy_to(ENTRY_HEADER_SIZE, &mut bytes)?;
        let redo = Redo::decode(&header, bytes)?;
        self.sequence = header.sequence;
        self.is_applied = false;
        Some((redo, Standing::found()))
    }

    /// Takes note of what was flushed and is to be durable before the next entry: what that refers to, or
    /// relies on.
    pub fn await_fence<T>(&self, flushed: Flushed<T>) {
        self.unfenced.add(flushed);
    }

    /// Makes durable what was noted; then another thread may go on.
    #[track_caller]
    pub fn make_durable(&self) {
        self.unfenced.fence();
    }

    /// Before an entry, by the first fence of its change: makes durable what it refers to, and what the
    /// entry before it said.
    #[track_caller]
    pub fn prepare(&self) -> Prepared {
        debug_assert!(self.is_applied, "the last entry is in place");
        self.unfenced.prepared()
    }

    /// What the entry says is in place, and flushed.
    pub fn has_applied(&mut self, _: Standing, applied: Option<Flushed<Applied>>) {
        applied
            .into_iter()
            .for_each(|applied| self.await_fence(applied));
        self.is_applied = true;
    }

    /// Bytes of entries written since this was asked last.
    pub fn take_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }

    /// Makes room for an entry of `size` bytes. ENOSPC: nothing has changed.
    pub fn reserve(&mut self, size: u64) -> std::result::Result<(), Errno> {
        let have = self.mapping.len() as u64;
        if size <= have {
            return Ok(());
        }
        if size > JOURNAL_MAX {
            return Err(Errno::NOSPC);
        }
        let wanted = size.next_power_of_two();
        allocate(&self.file, have, wanted - have)?;
        let length = usize::try_from(wanted).map_err(|_| Errno::NOSPC)?;
        self.mapping = Mapping::new(
            &self.file,
            0,
            length,
            MapOptions::READ_WRITE.synchronous(self.synchronous),
        )
        .map_err(|error| error.errno())?;
        Ok(())
    }

    /// Writes an entry and makes it durable; room was reserved.
    pub fn write(
        &mut self,
        redo: &Redo,
        pool: &Pool,
        sync: bool,
        _prepared: Prepared,
    ) -> std::result::Result<Standing, Errno> {
        debug_assert!(self.is_applied, "the last entry is in place");
        self.sequence += 1;
        let header = EntryHeader::new(self.sequence, redo.bytes());
        let memory = self.mapping.bytes();
        let size = ENTRY_HEADER_SIZE + redo.bytes().len();
        let content = memory.stream(ENTRY_HEADER_SIZE, redo.bytes());
        let content = content.ok_or(Errno::NOSPC)?;
        let header = memory.stream(0, header.as_bytes()).ok_or(Errno::NOSPC)?;
        let entry = pm::fence(content.join(header).describing::<Entry>());
        self.bytes += size as u64;
        if sync
            && let Some(written) = memory.slice(0, size)
            && let Err(errno) = pool.write_back(written)
        {
            // It was not committed, so it must not be found either.
            pm::drain(memory.stream_word(0, 0).ok_or(Errno::IO)?);
            return Err(errno);
        }
        self.is_applied = false;
        Ok(Standing::by(entry))
    }
}
