//! Opening a pool: replays the journal, rebuilds the tables, folds what dead sessions left.
//!
//! # Invariants
//! * Everything here can be interrupted and done again.
//! * A session that died is treated as one that hangs: its arena is copied, verified, folded.
//!   What is refused is set aside, and nothing else is affected.
//! * When it is done, nobody owns anything, and no number is granted, but to sessions that are
//!   still there ([`crate::take_up`]).
//! * Sessions that are still there read the pool meanwhile, and work on what they own: they see
//!   an entry of the journal applied as they see any change.

use crate::arena::{self, Arena};
use crate::change::{Change, Weight};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::files::{SegmentEntry, SegmentKind};
use crate::journal::{Journal, Target};
use crate::pool::Pool;
use crate::sessions::{Owned, Session};
use crate::slots::place;
use crate::state::State;
use arck_core_state::header::{COUNTED_MAX, HEADER_SIZE, HeaderKind};
use arck_core_state::{Inode, InodeNumber, PAGE_SIZE, PagePtr, layout};
use arck_pm::record::stored;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Applies the journal's last entry again, and maps the metadata segments.
pub fn replay(pool: &mut Pool, journal: &mut Journal) -> Result<()> {
    let redo = journal.read().unwrap_or_default();
    // The segment table first: it says what the other records may address.
    for (target, offset, bytes) in redo.records() {
        if target == Target::Segments {
            let memory = target.memory(pool);
            let stored = usize::try_from(offset)
                .ok()
                .and_then(|at| memory.copy_from(at, bytes));
            stored.ok_or_else(|| damaged(pool, NOT_THERE))?;
        }
    }
    map_metadata(pool)?;
    for (target, offset, bytes) in redo.records() {
        let memory = target.memory(pool);
        let is_mapped = target != Target::Pages || spans_mapped_pages(pool, offset, bytes.len());
        usize::try_from(offset)
            .ok()
            .filter(|at| is_mapped && at % 8 == 0)
            .and_then(|at| memory.slice(at, bytes.len()))
            .ok_or_else(|| damaged(pool, NOT_THERE))?;
    }
    redo.store(pool, || {});
    for (target, offset, bytes) in redo.records() {
        // In range, as was seen above.
        let _ = target.memory(pool).flush(offset as usize, bytes.len());
    }
    arck_pm::fence();
    Ok(())
}

const NOT_THERE: &str = "the journal addresses what is not there";

fn spans_mapped_pages(pool: &Pool, offset: u64, length: usize) -> bool {
    let last = offset + (length as u64).saturating_sub(1);
    (offset / PAGE_SIZE..=last / PAGE_SIZE).all(|page| pool.mapped_offset(PagePtr(page)).is_some())
}

fn damaged(pool: &Pool, what: impl Into<String>) -> Error {
    Error::Damaged {
        path: pool.path().into(),
        what: what.into(),
    }
}

fn map_metadata(pool: &mut Pool) -> Result<()> {
    for segment in 0..pool.geometry().segment_count {
        if pool.segment_entry(segment).kind() == SegmentKind::Metadata {
            pool.map_metadata(segment).map_err(|errno| {
                let name = crate::pool::numbered(layout::SEGMENTS, segment);
                match errno {
                    Errno::NOENT | Errno::IO => Error::Truncated {
                        path: pool.path().into(),
                        file: name,
                    },
                    errno => Error::system(pool.path().join(name), "mmap")(errno),
                }
            })?;
        }
    }
    Ok(())
}

/// Reads all headers and living inodes; takes marks and odd sequences away.
pub fn scan(state: &mut State) -> Result<()> {
    let end = state.pool.headers_end() / HEADER_SIZE as u64;
    let end = InodeNumber::try_from(end).unwrap_or(InodeNumber::MAX);
    let end = end.min(state.pool.geometry().inode_count);
    if end > 0 {
        state.pool.allocate_headers(end - 1).map_err(Error::system(
            state.pool.path().join(layout::HEADERS),
            "allocate",
        ))?;
    }
    let mut highest_fold = 0;
    let mut last_used = 0;
    let mut free = Vec::new();
    let mut taken: BTreeMap<PagePtr, u32> = BTreeMap::new();
    for number in 1..end {
        let Some(header) = state.pool.header(number) else {
            break;
        };
        let copy = header.copy();
        for (what, number_of) in [("sequence", copy.sequence), ("fold number", copy.fold)] {
            if number_of > COUNTED_MAX {
                let detail = format!("the {what} of inode {number} is {number_of:#x}");
                return Err(damaged(&state.pool, detail));
            }
        }
        highest_fold = highest_fold.max(copy.fold);
        if copy.sequence & 1 == 1 {
            header.sequence.store(copy.sequence + 1, Ordering::Release);
            stored(&header.sequence);
        }
        let bare = copy.ownership.bare();
        if copy.ownership != bare {
            header.ownership.store(bare.0, Ordering::Release);
            stored(&header.ownership);
        }
        if copy.generation != 0 {
            last_used = number;
        }
        match copy.kind {
            HeaderKind::Free => free.push(number),
            HeaderKind::Granted => state.granted += 1,
            HeaderKind::Alive | HeaderKind::Orphan => {
                let inode = Inode::read(&state.pool, copy.inode)
                    .filter(|inode| inode.number == number && inode.generation == copy.generation)
                    .ok_or_else(|| {
                        damaged(
                            &state.pool,
                            format!("inode {number} is not where its header says"),
                        )
                    })?;
                let (page, slot) = place(copy.inode);
                *taken.entry(page).or_insert(0) |= 1 << slot;
                state.set_shadow(number, Some(inode));
                if copy.kind == HeaderKind::Orphan {
                    state.orphans.insert(number);
                    if let Some(of) = crate::maps::kept_for(&inode) {
                        state.keepers.insert(number, of);
                    }
                }
            }
        }
    }
    if !state.is_alive(arck_core_state::ROOT_INODE) {
        return Err(damaged(&state.pool, "it has no root directory"));
    }
    state.numbers = crate::state::Numbers::new(
        last_used + 1,
        state.pool.geometry().inode_count,
        highest_fold + 1,
    );
    for number in free.into_iter().rev().filter(|&number| number <= last_used) {
        state.numbers.give_back(number);
    }
    for (page, mask) in taken {
        state.slots.load(state.space.label_of(page), page, mask);
    }
    Ok(())
}

/// Ends every session that the tables still know and that is not there any more.
pub fn recover(core: &mut Core, arenas_count: bool) -> Result<()> {
    let entries = arena::entries(&core.state.pool);
    let mut owned: HashMap<u32, Vec<(InodeNumber, u32)>> = HashMap::new();
    let mut nobodys = Vec::new();
    let end = core.state.pool.headers_end() / HEADER_SIZE as u64;
    for number in 1..InodeNumber::try_from(end).unwrap_or(InodeNumber::MAX) {
        let Some(header) = core.state.header_copy(number) else {
            break;
        };
        let session = header.ownership.session();
        if entries.iter().any(|(_, entry)| entry.session == session) {
            owned
                .entry(session)
                .or_default()
                .push((number, header.branch_slot));
        } else if session != 0 || header.kind == HeaderKind::Granted {
            nobodys.push(number);
        }
    }
    let may_fold = arenas_count || !core.state.pool.is_paged();
    let there = crate::take_up::those_there(&core.state.pool, &entries);
    // Those that are there first: their rooms are kept for them, whatever is folded.
    let (living, dead): (Vec<_>, Vec<_>) = entries
        .into_iter()
        .partition(|(_, entry)| there.contains(&entry.session));
    for (index, entry) in living.into_iter().chain(dead) {
        let inodes = owned.remove(&entry.session).unwrap_or_default();
        if !may_fold {
            nobodys.extend(inodes.iter().map(|&(number, _)| number));
            arena::clear_entry(&core.state.pool, index);
            continue;
        }
        let arena = match Arena::map(
            &core.state.pool,
            entry.session,
            (entry.branch_pages, entry.delta_pages),
            entry.uid,
            &core.workers,
        ) {
            Ok(arena) => arena,
            Err(errno) => {
                tracing::warn!("the arena of session {} is lost: {errno}", entry.session);
                nobodys.extend(inodes.iter().map(|&(number, _)| number));
                arena::clear_entry(&core.state.pool, index);
                continue;
            }
        };
        if there.contains(&entry.session) {
            core.expect_back(index, &entry, arena, &inodes);
            continue;
        }
        let credentials = crate::take_up::credentials(&entry);
        let mut session = Session::new(entry.session, credentials, index, arena, None);
        let room = u64::from(session.arena.pages().1);
        session.set_room(&core.state.pool, room);
        let since = Instant::now();
        session.owned = inodes
            .into_iter()
            .map(|(number, slot)| (number, Owned::new(since, slot)))
            .collect();
        core.sessions.insert(entry.session, session);
        core.end_session(entry.session, libc::EIO);
    }
    core.count_away();
    release(core, &nobodys)?;
    let ownerless: Vec<_> = (0..core.state.pool.geometry().segment_count)
        .filter(|&segment| {
            core.state
                .space
                .entry(segment)
                .is_some_and(|entry: SegmentEntry| {
                    entry.owner != 0 && !core.sessions.contains_key(&entry.owner)
                })
        })
        .collect();
    let failed = Error::system(
        core.state.pool.path().to_path_buf(),
        "releasing what sessions left",
    );
    core.abandon_segments(&ownerless).map_err(failed)?;
    core.find_remains();
    core.lend_leftovers();
    core.free_orphans(None);
    Ok(())
}

fn release(core: &mut Core, numbers: &[InodeNumber]) -> Result<()> {
    for part in numbers.chunks(4096) {
        let failed = Error::system(
            core.state.pool.path().to_path_buf(),
            "releasing what sessions left",
        );
        let mut change = Change::new(&mut core.state);
        let mut release = || {
            for &number in part {
                let fold = change.state.numbers.fold();
                let header = change.header(number)?;
                header.fold = fold;
                header.ownership = arck_core_state::Ownership::SHARED;
                header.branch_slot = 0;
                if header.kind == HeaderKind::Granted {
                    change.free_inode(number)?;
                }
            }
            Ok(())
        };
        release()
            .and_then(|()| change.commit(Weight::Ownership))
            .map_err(failed)?;
    }
    Ok(())
}
