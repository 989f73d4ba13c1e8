//! Opening a pool: replays the journal, and, once the tables are rebuilt ([`crate::recovery::scan`]), folds
//! what dead sessions left.
//!
//! # Invariants
//! * Everything here can be interrupted and done again.
//! * A session that died is treated as one that hangs: its arena is copied, verified, folded.
//!   What is refused is set aside, and nothing else is affected.
//! * When it is done, nobody owns anything, and no number is granted, but to sessions that are
//!   still there ([`crate::sessions::take_up`]).
//! * Sessions that are still there read the pool meanwhile, and work on what they own: they see
//!   an entry of the journal applied as they see any change.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::pool::files::Pool;
use crate::pool::journal::{self, Journal};
use crate::pool::progress::Step;
use crate::recovery::scan::Scanned;
use crate::sessions::arena::{self, Arena};
use crate::sessions::owned::Owned;
use crate::sessions::session::{OwnedInode, Session};
use crate::space::pages::Space;
use crate::state::marks::unmark;
use arck_controller_state::journal::Target;
use arck_controller_state::segments::{SegmentEntry, SegmentKind};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{InodeNumber, PAGE_SIZE, PagePtr, layout};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// Applies the journal's last entry again, and maps the metadata segments.
pub fn replay(pool: &mut Pool, open: &mut Journal) -> Result<()> {
    let Some((redo, standing)) = open.read() else {
        return map_metadata(pool);
    };
    // The segment table first: it says what the other records may address.
    for (target, offset, bytes) in redo.records() {
        if target == Target::Segments {
            let memory = journal::memory(target, pool);
            let stored = usize::try_from(offset)
                .ok()
                .and_then(|at| memory.copy_from(at, bytes));
            stored.ok_or_else(|| damaged(pool, NOT_THERE))?;
        }
    }
    map_metadata(pool)?;
    for (target, offset, bytes) in redo.records() {
        let memory = journal::memory(target, pool);
        let is_mapped = target != Target::Pages || spans_mapped_pages(pool, offset, bytes.len());
        usize::try_from(offset)
            .ok()
            .filter(|at| is_mapped && at % 8 == 0)
            .and_then(|at| memory.slice(at, bytes.len()))
            .ok_or_else(|| damaged(pool, NOT_THERE))?;
    }
    let inode_count = pool.geometry().inode_count;
    if !redo.runs().all(|run| run.is_within(inode_count)) {
        return Err(damaged(pool, NOT_THERE));
    }
    journal::store(&redo, pool, &standing, || {});
    open.has_applied(standing, journal::flush(&redo, pool, |_| {}));
    // No fence: it is all the same until there is another entry, and the first fence of the change
    // that brings it makes this durable. A second failure before that finds this entry once more.
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
                let name = crate::pool::files::numbered(layout::SEGMENTS, segment);
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

/// Looks whether segments of data that anything is in have files.
pub fn look_for_data(pool: &Pool, space: &Space) -> Result<()> {
    let pages = pool.geometry().pages_per_segment();
    for segment in 0..pool.geometry().segment_count {
        let entry = space.entry(segment).unwrap_or_default();
        let is_empty = entry.owner == 0 && space.unused_in(segment) == pages;
        if entry.kind() == SegmentKind::Data && !is_empty && !pool.has_segment(segment) {
            return Err(Error::Truncated {
                path: pool.path().into(),
                file: crate::pool::files::numbered(layout::SEGMENTS, segment),
            });
        }
    }
    Ok(())
}

/// Ends every session that the tables still know and that is not there any more.
/// `scanned`: what the headers say that sessions have.
pub fn recover(core: &mut Core, scanned: Scanned, arenas_count: bool) -> Result<()> {
    let entries = arena::entries(&core.sessions.state.pool);
    let known: HashSet<SessionNumber> = entries.iter().map(|(_, entry)| entry.session).collect();
    let mut owned: HashMap<SessionNumber, Vec<OwnedInode>> = HashMap::new();
    let mut nobodys = Vec::new();
    for held in scanned.held {
        if known.contains(&held.session) {
            let inodes = owned.entry(held.session).or_default();
            inodes.push(held);
        } else {
            nobodys.push(held.number);
        }
    }
    let may_fold = arenas_count || !core.sessions.state.pool.is_paged();
    let there = crate::sessions::take_up::those_there(&core.sessions.state.pool, &entries);
    // Those that are there first: their rooms are kept for them, whatever is folded.
    let (living, dead): (Vec<_>, Vec<_>) = entries
        .into_iter()
        .partition(|(_, entry)| there.contains(&entry.session));
    let left = dead
        .iter()
        .filter_map(|(_, entry)| owned.get(&entry.session));
    let left: usize = left.map(Vec::len).sum();
    tracing::info!(
        "{} sessions are still there, {} are gone, which had {left} inodes",
        living.len(),
        dead.len()
    );
    core.folds
        .progress
        .begin(Step::Sessions, (left + nobodys.len()) as u64);
    for (index, entry) in living.into_iter().chain(dead) {
        let inodes = owned.remove(&entry.session).unwrap_or_default();
        if !may_fold {
            nobodys.extend(inodes.iter().map(|inode| inode.number));
            arena::clear_entry(&core.sessions.state.pool, index);
            continue;
        }
        let arena = match Arena::map(
            &core.sessions.state.pool,
            entry.session,
            (entry.branch_pages, entry.delta_pages),
            entry.uid,
            &core.sessions.workers,
        ) {
            Ok(arena) => arena,
            Err(errno) => {
                tracing::warn!("the arena of session {} is lost: {errno}", entry.session);
                nobodys.extend(inodes.iter().map(|inode| inode.number));
                arena::clear_entry(&core.sessions.state.pool, index);
                continue;
            }
        };
        if there.contains(&entry.session) {
            // The controller before may have died before it flushed what is to be seen there, and
            // the session is told that it has what it has.
            let entry_flushed = arena::flush_entry(&core.sessions.state.pool, index);
            let journal = &core.sessions.state.journal;
            entry_flushed
                .into_iter()
                .for_each(|flushed| journal.await_fence(flushed));
            core.sessions.expect_back(index, &entry, arena, &inodes);
            // Before anybody is served: what is marked still waits for it.
            if let Err(failure) = core.folding().finish_sealed(entry.session) {
                tracing::warn!("what session {} has done waits: {failure}", entry.session);
            }
            continue;
        }
        let credentials = crate::sessions::take_up::credentials(&entry);
        let mut session = Session::new(entry.session, credentials, index, arena, None);
        let room = u64::from(session.arena.pages().1);
        session.set_credits(&core.sessions.state.pool, room);
        let since = Instant::now();
        let sealed = inodes.iter().filter(|inode| inode.sealed_slot.is_some());
        let sealed = sealed.map(|inode| inode.number).collect();
        session.owned = inodes
            .into_iter()
            .map(|inode| (inode.number, Owned::new(since, inode.branch_slot)))
            .collect();
        session.sealed = sealed;
        core.sessions.all.insert(entry.session, session);
        core.owners().end_session(entry.session, libc::EIO);
    }
    core.sessions.count_away();
    let waits = |number: &InodeNumber| {
        let header = core.sessions.state.header_copy(*number);
        let owner = header.map_or(0, |header| header.ownership.session());
        let session = core.sessions.all.get(&owner);
        session.is_some_and(|session| !session.sealed.is_empty())
    };
    let (_, unmarked): (Vec<_>, Vec<_>) = scanned.marked.into_iter().partition(waits);
    unmark(&core.sessions.state, &unmarked);
    release(core, &nobodys)?;
    core.folds.progress.end();
    let ownerless: Vec<_> = (0..core.sessions.state.pool.geometry().segment_count)
        .filter(|&segment| {
            core.sessions
                .state
                .space
                .entry(segment)
                .is_some_and(|entry: SegmentEntry| {
                    entry.owner != 0 && !core.sessions.all.contains_key(&entry.owner)
                })
        })
        .collect();
    let failed = Error::system(
        core.sessions.state.pool.path().to_path_buf(),
        "releasing what sessions left",
    );
    core.owners().abandon_segments(&ownerless).map_err(failed)?;
    core.sessions.find_remains();
    core.sessions.lend_leftovers();
    Ok(())
}

fn release(core: &mut Core, numbers: &[InodeNumber]) -> Result<()> {
    for part in numbers.chunks(4096) {
        let state = &mut core.sessions.state;
        let failed = Error::system(
            state.pool.path().to_path_buf(),
            "releasing what sessions left",
        );
        crate::ownership::ending::release(state, None, part).map_err(failed)?;
        core.folds.progress.add(part.len() as u64);
    }
    Ok(())
}
