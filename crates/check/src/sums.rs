//! What all inodes add up to: tables, link counts, the tree, and the page bitmap.
//!
//! Invariant: nothing here follows a pointer of the pool; it compares what the survey counted.

use crate::finding::{Finding, Place, Rule, bit_place, byte_place, header_place};
use crate::lost;
use crate::pool::{Pool, segment_name};
use crate::shared::lock;
use crate::tally::{ALIVE, DIRECTORY, ORPHAN, Tally, Users};
use arck_controller_state::segments::{self, SegmentKind, TOGETHER};
use arck_controller_state::sessions::GROUPS_MAX;
use arck_core_state::arena::{ARENA_PAGES, BRANCH_PAGES, DELTA_FIRST};
use arck_core_state::{InodeNumber, PAGE_SIZE, PagePtr, ROOT_INODE, layout};
use foldhash::HashSet;
use std::sync::atomic::Ordering;

/// Segment table, session table, and the files of data segments.
pub(crate) fn tables(tally: &Tally<'_>) {
    let pool = tally.pool;
    let told = |rule, place, detail| {
        tally.keep(Finding {
            rule,
            inode: None,
            path: None,
            place,
            detail,
        });
    };
    // Those of a pool that is served come and go.
    let sessions = if pool.served { &[][..] } else { &pool.sessions };
    if pool.next_session == 0 || pool.next_session > u64::from(u32::MAX) {
        let detail = format!("the next session is {:#x}", pool.next_session);
        let place = Place::File(layout::SESSION_TABLE, 0);
        told(Rule::SessionTable, place, detail);
    }
    for (index, (at, entry)) in sessions.iter().enumerate() {
        let place = |field: usize| Place::File(layout::SESSION_TABLE, (at + field) as u64);
        let said = |field, detail| told(Rule::SessionTable, place(field), detail);
        let session = entry.session;
        if pool.superblock.clean {
            said(0, format!("session {session}, and the pool was closed"));
        }
        if u64::from(session) >= pool.next_session {
            said(
                0,
                format!(
                    "session {session}, and the next one is {}",
                    pool.next_session
                ),
            );
        }
        if pool.sessions[..index]
            .iter()
            .any(|(_, other)| other.session == session)
        {
            said(0, format!("session {session} is there twice"));
        }
        let groups = entry.group_count;
        if groups as usize > GROUPS_MAX {
            said(4, format!("session {session} has {groups} groups"));
        }
        if u64::from(entry.branch_pages) > u64::from(BRANCH_PAGES)
            || u64::from(entry.delta_pages) > u64::from(ARENA_PAGES) - u64::from(DELTA_FIRST)
        {
            let (branch, delta) = (entry.branch_pages, entry.delta_pages);
            said(
                16,
                format!("session {session} has {branch} branch pages, {delta} delta pages"),
            );
        }
    }
    for segment in 0..pool.geometry.segment_count {
        let entry = pool.segment_entry(segment);
        let said = |field: u64, detail| {
            let at = segments::entry_offset(segment) + field;
            told(
                Rule::SegmentTable,
                Place::File(layout::SEGMENT_TABLE, at),
                detail,
            );
        };
        if entry.kind > 2 {
            said(0, format!("segment {segment} is of kind {}", entry.kind));
        }
        if entry.owner != 0 {
            if entry.kind() != SegmentKind::Data {
                said(
                    8,
                    format!("segment {segment} has an owner, and is not of data"),
                );
            } else if pool.superblock.clean {
                let owner = entry.owner;
                said(
                    8,
                    format!("segment {segment} is session {owner}'s, and the pool was closed"),
                );
            }
        }
        if entry.flags & !entry.kind().flags() != 0 {
            said(
                16,
                format!("segment {segment} has flags {:#x}", entry.flags),
            );
        }
        let names_file = (entry.file, entry.generation) != (0, 0);
        if names_file && entry.flags & TOGETHER == 0 {
            let file = entry.file;
            said(
                20,
                format!(
                    "segment {segment} is that of file {file}, which sessions do not have mapped together"
                ),
            );
        }
        if let Some(detail) = lost::of(pool, segment).map(|file| file.detail()) {
            told(Rule::Files, Place::Whole(segment_name(segment)), detail);
        }
    }
    if pool.segment_kind(0) != SegmentKind::Metadata {
        let place = Place::File(layout::SEGMENT_TABLE, 0);
        told(
            Rule::SegmentTable,
            place,
            "segment 0 is not of metadata".into(),
        );
    }
}

/// Link counts and names.
pub(crate) fn counts(tally: &Tally<'_>) {
    let is_alive = |number: InodeNumber| {
        tally.kinds.get(number as usize).is_some_and(|kind| {
            kind.load(Ordering::Relaxed) & (ALIVE | DIRECTORY | ORPHAN) == ALIVE | DIRECTORY
        })
    };
    if !is_alive(ROOT_INODE) {
        tally.keep(Finding {
            rule: Rule::Tree,
            inode: Some(ROOT_INODE),
            path: None,
            place: header_place(ROOT_INODE, 0),
            detail: "there is no root directory".into(),
        });
    }
    for number in tally.numbers.iter().cloned().flatten() {
        let at = number as usize;
        let kind = tally.kinds[at].load(Ordering::Relaxed);
        if kind & ALIVE == 0 {
            continue;
        }
        let links = tally.links[at].load(Ordering::Relaxed);
        let names = tally.names[at].load(Ordering::Relaxed);
        let (rule, detail) = if kind & ORPHAN != 0 {
            // A name that leads to it is a finding by itself.
            continue;
        } else if kind & DIRECTORY != 0 {
            let parent = tally.parents[at].load(Ordering::Relaxed);
            let wanted = u32::from(number != ROOT_INODE);
            if number == ROOT_INODE && parent != ROOT_INODE {
                (Rule::Parent, format!("the root's parent is {parent}"))
            } else if names == wanted {
                continue;
            } else {
                (Rule::Parent, format!("a directory with {names} names"))
            }
        } else if names == links && names > 0 {
            continue;
        } else {
            (Rule::Links, format!("{links} links, and {names} names"))
        };
        let address = tally.pool.header(number).inode;
        let pages = tally.pool.geometry.pages_per_segment();
        let field = if rule == Rule::Parent { 80 } else { 12 };
        let page = PagePtr::of_address(address);
        tally.keep(Finding {
            rule,
            inode: Some(number),
            path: None,
            place: byte_place(pages, page, address % PAGE_SIZE + field),
            detail,
        });
    }
}

/// Every directory leads to the root: what does not is in a circle, or beneath one, or beneath
/// what is no directory.
pub(crate) fn tree(tally: &Tally<'_>) {
    let end = tally.parents.len();
    let mut reaches = vec![false; end];
    let mut looked = vec![false; end];
    for first in tally.numbers.iter().cloned().flatten() {
        let is_directory = |at: usize| {
            tally.kinds.get(at).is_some_and(|kind| {
                kind.load(Ordering::Relaxed) & (DIRECTORY | ORPHAN) == DIRECTORY
            })
        };
        let mut way = Vec::new();
        let mut at = first as usize;
        // Until something is known, or nothing is to be known.
        while is_directory(at) && !looked[at] && at != ROOT_INODE as usize {
            looked[at] = true;
            way.push(at);
            at = tally.parents[at].load(Ordering::Relaxed) as usize;
        }
        let well = at == ROOT_INODE as usize || (at < end && reaches[at]);
        for &passed in &way {
            reaches[passed] = well;
        }
        // Beneath what has been told of, or what has no directory above: that has no name, or one
        // in something else, and is told of as such.
        let circle = (!well)
            .then(|| way.iter().position(|&passed| passed == at))
            .flatten();
        if let Some(begin) = circle {
            let members = &way[begin..];
            let Some(&least) = members.iter().min() else {
                continue;
            };
            tally.keep(Finding {
                rule: Rule::Tree,
                inode: InodeNumber::try_from(least).ok(),
                path: None,
                place: header_place(least as InodeNumber, 0),
                detail: format!(
                    "a circle of {} directories, cut off from the root",
                    members.len()
                ),
            });
        }
    }
}

/// The page bitmap against what is used.
pub(crate) fn space(tally: &Tally<'_>, find_users: impl FnOnce(HashSet<PagePtr>) -> Users) {
    let pool = tally.pool;
    let mut wanted: HashSet<PagePtr> = std::mem::take(&mut *lock(&tally.twice));
    let mut leaked = Runs::default();
    let mut unmarked = Vec::new();
    for (index, (used, inodes)) in tally.used.iter().zip(&tally.inode_pages).enumerate() {
        let (used, inodes) = (used.load(Ordering::Relaxed), inodes.load(Ordering::Relaxed));
        let marked = match &tally.marked {
            Some(marked) => marked.get(index).copied().unwrap_or(0),
            None => pool.bits(index as u64),
        };
        // Page 0 is nobody's and never free.
        let claimed = used | inodes | u64::from(index == 0);
        let page = |bit: u32| PagePtr(index as u64 * 64 + u64::from(bit));
        for bit in bits(used & inodes) {
            wanted.insert(page(bit));
        }
        for bit in bits(claimed & !marked) {
            unmarked.push(page(bit));
        }
        if marked & !claimed == 0 {
            continue;
        }
        for bit in bits(marked & !claimed).filter(|&bit| page(bit).0 < pool.geometry.page_count()) {
            leaked.add(page(bit));
        }
    }
    for (first, count) in leaked.runs {
        let kind = pool.kind_of(first);
        let detail = match count {
            1 => format!(
                "page {:#x} is marked as in use, and nothing uses it ({kind:?})",
                first.0
            ),
            _ => format!(
                "{count} pages from {:#x} on are marked as in use, and nothing uses them ({kind:?})",
                first.0
            ),
        };
        tally.keep(Finding {
            rule: Rule::PageLeaked,
            inode: None,
            path: None,
            place: bit_place(first),
            detail,
        });
    }
    let twice: Vec<PagePtr> = wanted.iter().copied().collect();
    wanted.extend(&unmarked);
    if wanted.is_empty() || tally.stop.load(Ordering::Relaxed) {
        return;
    }
    let users = find_users(wanted);
    for page in twice {
        let users = users.get(&page).map(Vec::as_slice).unwrap_or_default();
        let told: Vec<String> = users
            .iter()
            .map(|(inode, what)| format!("{} of inode {inode}", what.name()))
            .collect();
        tally.keep(Finding {
            rule: Rule::PageOnce,
            inode: users.first().map(|user| user.0),
            path: None,
            place: page_place(pool, page),
            detail: format!("page {:#x} is {}", page.0, told.join(" and ")),
        });
    }
    for page in unmarked {
        let user = users.get(&page).and_then(|users| users.first());
        let what = user.map_or("the page that is never used", |user| user.1.name());
        tally.keep(Finding {
            rule: Rule::PageUsed,
            inode: user.map(|user| user.0),
            path: None,
            place: bit_place(page),
            detail: format!("{what} {:#x} is not marked as in use", page.0),
        });
    }
}

fn page_place(pool: &Pool, page: PagePtr) -> Place {
    byte_place(pool.geometry.pages_per_segment(), page, 0)
}

fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}

/// Pages that follow each other.
#[derive(Default)]
struct Runs {
    runs: Vec<(PagePtr, u64)>,
}

impl Runs {
    fn add(&mut self, page: PagePtr) {
        match self.runs.last_mut() {
            Some((first, count)) if first.0 + *count == page.0 => *count += 1,
            _ => self.runs.push((page, 1)),
        }
    }
}
