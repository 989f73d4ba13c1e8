//! Files that are missing or too short, and what has to be so before anything else is looked at.
//!
//! # Invariant
//! Each step can be cut off, and is made again by the next repair.

use super::plan::Files;
use crate::finding::Finding;
use crate::pool::{Pool, segment_name};
use crate::tables::{GROUPS, SEGMENT_ENTRY, SESSION_TABLE, SegmentKind};
use crate::{Error, Result, pool, superblock};
use arck_core_state::arena::{ARENA_PAGES, BRANCH_PAGES, DELTA_FIRST};
use arck_core_state::{PAGE_SIZE, layout};
use foldhash::HashSet;
use std::path::Path;

/// Puts a superblock that is gone or damaged back from its copy; what was wrong.
pub(crate) fn mend_superblock(path: &Path, actions: &mut Vec<String>) -> Result<Option<Finding>> {
    let directory = pool::open_directory(path)?;
    let Some((copy, reason)) = superblock::lost(path, &directory)? else {
        return Ok(None);
    };
    let lock = pool::Lock::made(path, &directory)?;
    if !lock.take_alone(path)? {
        return Err(Error::Served { path: path.into() });
    }
    let files = Files {
        path,
        directory: &directory,
        segment_size: copy.geometry.segment_size,
    };
    files.replace(layout::SUPERBLOCK, &copy)?;
    actions.push("put the superblock back from its copy".to_owned());
    Ok(Some(superblock::told(
        layout::SUPERBLOCK,
        reason.to_string(),
    )))
}

/// Makes files that are missing or too short; whether there were any.
pub(crate) fn mend_files(pool: &Pool, actions: &mut Vec<String>) -> Result<bool> {
    let files = Files::of(pool);
    let geometry = pool.geometry;
    let table = u64::from(geometry.segment_count) * SEGMENT_ENTRY as u64;
    let mut wanted = vec![
        (layout::HEADERS.to_owned(), geometry.header_table_size()),
        (layout::PAGE_BITMAP.to_owned(), geometry.page_bitmap_size()),
        (layout::SESSION_TABLE.to_owned(), SESSION_TABLE as u64),
        (
            layout::SEGMENT_TABLE.to_owned(),
            table.next_multiple_of(PAGE_SIZE),
        ),
        (layout::JOURNAL.to_owned(), 1 << 20),
    ];
    for segment in 0..geometry.segment_count {
        if pool.segment_kind(segment) != SegmentKind::Free {
            wanted.push((segment_name(segment), geometry.segment_size));
        }
    }
    let mut mended = false;
    if superblock::finding(&pool.directory, &pool.superblock).is_some() {
        let copy = pool.superblock.lasting();
        files.replace(layout::SUPERBLOCK_COPY, &copy)?;
        actions.push("wrote the superblock's copy anew".to_owned());
    }
    for (name, length) in wanted {
        if files.extend(&name, length)? {
            actions.push(format!("filled {name} up with zeroes to {length} bytes"));
            mended = true;
        }
    }
    Ok(mended)
}

/// Entries of the session table that cannot be.
pub(crate) fn mend_sessions(pool: &Pool, actions: &mut Vec<String>) -> Result<()> {
    let files = Files::of(pool);
    let mut numbers = HashSet::default();
    let mut highest = 0;
    for entry in &pool.sessions {
        let is_sane = entry.groups <= GROUPS
            && entry.branch_pages <= BRANCH_PAGES
            && u64::from(entry.delta_pages) <= u64::from(ARENA_PAGES) - u64::from(DELTA_FIRST)
            && u64::from(entry.session) < pool.next_session
            && numbers.insert(entry.session);
        if pool.superblock.clean || !is_sane {
            files.clear_session(entry.at)?;
            actions.push(format!("forgot session {}", entry.session));
        } else {
            highest = highest.max(u64::from(entry.session));
        }
    }
    if pool.next_session == 0 || pool.next_session > u64::from(u32::MAX) {
        files.set_next_session(highest + 1)?;
        actions.push(format!("the next session is {}", highest + 1));
    }
    Ok(())
}
