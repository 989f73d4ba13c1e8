//! Files that are missing or too short, and what has to be so before anything else is looked at.
//!
//! # Invariants
//! * Each step can be cut off, and is made again by the next repair.
//! * What a step loses, and that it was made, is durably told before it.

use super::plan::Files;
use super::report::Telling;
use crate::error::{Error, Result};
use crate::finding::Finding;
use crate::pool::{Pool, segment_name};
use crate::{pool, superblock};
use arck_controller_state::journal::JOURNAL_MIN;
use arck_controller_state::segments::{self, SegmentKind};
use arck_controller_state::sessions::{GROUPS_MAX, TABLE_MIN};
use arck_core_state::arena::{ARENA_PAGES, BRANCH_PAGES, DELTA_FIRST};
use arck_core_state::layout;
use foldhash::HashSet;
use std::path::Path;

/// Puts a superblock that is gone or damaged back from its copy; what was wrong.
pub(crate) fn mend_superblock(path: &Path, telling: &mut Telling) -> Result<Option<Finding>> {
    let directory = pool::open_to_change(path)?;
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
    let lost = superblock::told(layout::SUPERBLOCK, reason.to_string());
    telling.found([&lost]);
    telling.say("put the superblock back from its copy".to_owned());
    telling.keep()?;
    files.replace_superblock(layout::SUPERBLOCK, &copy)?;
    Ok(Some(lost))
}

/// Makes files that are missing or too short; whether there were any.
pub(crate) fn mend_files(pool: &Pool, telling: &mut Telling) -> Result<bool> {
    let files = Files::of(pool);
    let geometry = pool.geometry;
    let mut wanted = vec![
        (layout::HEADERS.to_owned(), geometry.header_table_size()),
        (layout::PAGE_BITMAP.to_owned(), geometry.page_bitmap_size()),
        (layout::SESSION_TABLE.to_owned(), TABLE_MIN),
        (
            layout::SEGMENT_TABLE.to_owned(),
            segments::table_size(geometry.segment_count),
        ),
        (layout::JOURNAL.to_owned(), JOURNAL_MIN),
    ];
    for segment in 0..geometry.segment_count {
        if pool.segment_kind(segment) != SegmentKind::Free {
            wanted.push((segment_name(segment), geometry.segment_size));
        }
    }
    let copy_is_damaged = superblock::finding(&pool.directory, &pool.superblock).is_some();
    if copy_is_damaged {
        telling.say("wrote the superblock's copy anew".to_owned());
    }
    wanted.retain(|(name, length)| files.is_short(name, *length));
    for (name, length) in &wanted {
        telling.say(format!("filled {name} up with zeroes to {length} bytes"));
    }
    // Who had what in them cannot be found afterwards.
    telling.keep()?;
    if copy_is_damaged {
        let copy = pool.superblock.lasting();
        files.replace_superblock(layout::SUPERBLOCK_COPY, &copy)?;
    }
    for (name, length) in &wanted {
        files.extend(name, *length)?;
    }
    Ok(!wanted.is_empty())
}

/// Entries of the session table that cannot be.
pub(crate) fn mend_sessions(pool: &Pool, telling: &mut Telling) -> Result<()> {
    let files = Files::of(pool);
    let mut numbers = HashSet::default();
    let mut highest = 0;
    let mut cleared = Vec::new();
    for (at, entry) in &pool.sessions {
        let is_sane = entry.group_count as usize <= GROUPS_MAX
            && entry.branch_pages <= BRANCH_PAGES
            && u64::from(entry.delta_pages) <= u64::from(ARENA_PAGES) - u64::from(DELTA_FIRST)
            && u64::from(entry.session) < pool.next_session
            && numbers.insert(entry.session);
        if pool.superblock.clean || !is_sane {
            cleared.push(*at);
            telling.say(format!("forgot session {}", entry.session));
        } else {
            highest = highest.max(u64::from(entry.session));
        }
    }
    let is_numbered = (1..=u64::from(u32::MAX)).contains(&pool.next_session);
    if !is_numbered {
        telling.say(format!("the next session is {}", highest + 1));
    }
    if cleared.is_empty() && is_numbered {
        return Ok(());
    }
    telling.keep()?;
    for at in cleared {
        files.clear_session(at)?;
    }
    if !is_numbered {
        files.set_next_session(highest + 1)?;
    }
    Ok(())
}
