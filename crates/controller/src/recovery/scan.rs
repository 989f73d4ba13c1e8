//! Reading all headers and inodes when a pool is opened, by several threads.
//!
//! # Invariants
//! * The threads read and change nothing, each another part of the numbers; what they found is put
//!   together, and what has to be mended is mended, in the order of the numbers and by one thread.
//!   So it is all the same how many threads there are.
//! * Nothing else of the pool is read here: neither directories nor indexes nor data.

use crate::error::{Error, Result};
use crate::options::Division;
use crate::pool::files::Pool;
use crate::pool::progress::{Reporter, Step};
use crate::sessions::session::OwnedInode;
use crate::space::slots::place;
use crate::state::tables::{PART, State};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::{COUNTED_MAX, HEADER_SIZE, HeaderKind};
use arck_core_state::{Inode, InodeNumber, PagePtr, cast};
use arck_pm::record::stored;
use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

/// Threads at most, unless more are asked for.
const THREADS_MAX: usize = 8;

/// Numbers that a thread reads at a time, unless another number is asked for.
const CHUNK: u32 = 16 * cast::count(PART);

impl Division {
    fn threads(self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_MAX)),
            threads => threads,
        }
    }

    fn chunk(self) -> u32 {
        NonZero::new(self.chunk).map_or(CHUNK, |chunk| chunk.get())
    }
}

/// What was found besides what stands in the tables.
pub struct Scanned {
    /// What sessions have, or had, in the order of numbers.
    pub held: Vec<OwnedInode>,
    /// What is marked still, since its session has something sealed: until that is folded.
    pub marked: Vec<InodeNumber>,
}

/// What stands in a part of the numbers.
#[derive(Default)]
struct Found {
    highest_fold: u64,
    /// 0: none.
    last_used: InodeNumber,
    free: Vec<InodeNumber>,
    granted: u64,
    inodes: Vec<Inode>,
    orphans: Vec<InodeNumber>,
    /// Pages of inodes with their taken places; a page is named again when another was in between.
    taken: Vec<(PagePtr, u32)>,
    held: Vec<OwnedInode>,
    /// Sequence words that are odd, and marked ownership words.
    half_changed: Vec<InodeNumber>,
    /// No header can be read from here on.
    ends_early: bool,
    /// What is wrong with the first inode that cannot be as it is; behind it nothing is read.
    damage: Option<String>,
}

/// One past the last number whose header was ever written.
pub fn numbers_end(pool: &Pool) -> InodeNumber {
    let end = pool.headers_end() / HEADER_SIZE as u64;
    let end = InodeNumber::try_from(end).unwrap_or(InodeNumber::MAX);
    end.min(pool.geometry().inode_count)
}

fn read(pool: &Pool, numbers: std::ops::Range<InodeNumber>) -> Found {
    let mut found = Found::default();
    found.inodes.reserve_exact(numbers.len());
    for number in numbers {
        let Some(copy) = pool.header(number).map(|header| header.copy()) else {
            found.ends_early = true;
            break;
        };
        for (what, counted) in [("sequence", copy.sequence), ("fold number", copy.fold)] {
            if counted > COUNTED_MAX {
                found.damage = Some(format!("the {what} of inode {number} is {counted:#x}"));
                return found;
            }
        }
        if copy.sealed != 0 && !copy.may_be_sealed() {
            let (sealed, slot) = (copy.sealed, copy.sealed_slot);
            found.damage = Some(format!(
                "inode {number} is sealed ({sealed:#x} in slot {slot}), and no directory of a session's that goes on \
                 elsewhere"
            ));
            return found;
        }
        found.highest_fold = found.highest_fold.max(copy.fold);
        if copy.sequence & 1 == 1 || copy.ownership != copy.ownership.bare() {
            found.half_changed.push(number);
        }
        if copy.generation != 0 {
            found.last_used = number;
        }
        let session = copy.ownership.session();
        if session != 0 || copy.kind == HeaderKind::Granted {
            found.held.push(OwnedInode {
                number,
                session,
                branch_slot: copy.branch_slot,
                sealed_slot: (copy.sealed != 0).then_some(copy.sealed_slot),
            });
        }
        match copy.kind {
            HeaderKind::Free => found.free.push(number),
            HeaderKind::Granted => found.granted += 1,
            HeaderKind::Alive | HeaderKind::Orphan => {
                let inode = Inode::read(pool, copy.inode)
                    .filter(|inode| inode.number == number && inode.generation == copy.generation);
                let Some(inode) = inode else {
                    found.damage = Some(format!("inode {number} is not where its header says"));
                    return found;
                };
                let (page, slot) = place(copy.inode);
                match found.taken.last_mut() {
                    Some((last, taken)) if *last == page => *taken |= 1 << slot,
                    _ => found.taken.push((page, 1 << slot)),
                }
                if copy.kind == HeaderKind::Orphan {
                    found.orphans.push(number);
                }
                found.inodes.push(inode);
            }
        }
    }
    found
}

/// Reads numbers 1 to `end` in chunks, and gives what was found in their order.
fn read_all(
    pool: &Pool,
    end: InodeNumber,
    division: Division,
    progress: &mut Reporter,
) -> Vec<Found> {
    let chunk = division.chunk();
    let count = (end.saturating_sub(1)).div_ceil(chunk);
    let numbers = |index: u32| {
        // Neither is beyond `end`.
        let first = 1 + index * chunk;
        first..end.min(first.saturating_add(chunk))
    };
    let threads = division.threads().min(count as usize);
    if threads <= 1 {
        let one = |index| {
            let found = read(pool, numbers(index));
            progress.add(numbers(index).len() as u64);
            found
        };
        return (0..count).map(one).collect();
    }
    let next = AtomicU64::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut all: Vec<Option<Found>> = Vec::new();
    all.resize_with(count as usize, || None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, numbers) = (sender.clone(), &next, &numbers);
            let work = move || {
                while let Ok(index) = u32::try_from(next.fetch_add(1, Ordering::Relaxed))
                    && index < count
                    && sender.send((index, read(pool, numbers(index)))).is_ok()
                {}
            };
            // One that cannot be started is missed by nobody: what is left is read below.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        drop(sender);
        for (index, found) in receiver {
            progress.add(numbers(index).len() as u64);
            all[index as usize] = Some(found);
        }
    });
    let whole = all.into_iter().enumerate();
    whole
        .map(|(index, found)| found.unwrap_or_else(|| read(pool, numbers(cast::count(index)))))
        .collect()
}

/// Reads all headers and living inodes into the tables; takes marks and odd sequences away.
pub fn scan(state: &mut State, division: Division, progress: &mut Reporter) -> Result<Scanned> {
    let end = numbers_end(&state.pool);
    if end > 0 {
        state.pool.allocate_headers(end - 1).map_err(Error::system(
            state.pool.path().join(arck_core_state::layout::HEADERS),
            "allocate",
        ))?;
    }
    progress.begin(Step::Inodes, u64::from(end));
    let parts = read_all(&state.pool, end, division, progress);
    let mut highest_fold = 0;
    let mut last_used = 0;
    let mut free = Vec::new();
    let mut taken: HashMap<PagePtr, u32, foldhash::fast::RandomState> = HashMap::default();
    let mut held = Vec::new();
    let sealed = parts.iter().flat_map(|found| &found.held);
    let sealed = sealed.filter(|inode| inode.sealed_slot.is_some());
    let sealed: HashSet<SessionNumber> = sealed.map(|inode| inode.session).collect();
    let mut marked = Vec::new();
    for mut found in parts {
        highest_fold = highest_fold.max(found.highest_fold);
        last_used = last_used.max(found.last_used);
        for &number in &found.half_changed {
            let owner = state.pool.header(number);
            let owner = owner.map_or(0, |header| header.ownership().session());
            let waits = sealed.contains(&owner);
            unmark(&state.pool, number, waits);
            if waits {
                marked.push(number);
            }
        }
        if let Some(what) = found.damage {
            let path = state.pool.path().into();
            return Err(Error::Damaged { path, what });
        }
        free.append(&mut found.free);
        state.granted += found.granted;
        for inode in found.inodes {
            state.set_shadow(inode.number, Some(inode));
        }
        for (page, mask) in found.taken {
            *taken.entry(page).or_insert(0) |= mask;
        }
        for number in found.orphans {
            state.orphans.insert(number);
            let of = state
                .shadow(number)
                .and_then(crate::sessions::maps::kept_for);
            if let Some(of) = of {
                state.keepers.insert(number, of);
            }
        }
        held.append(&mut found.held);
        if found.ends_early {
            break;
        }
    }
    if !state.is_alive(arck_core_state::ROOT_INODE) {
        return Err(Error::Damaged {
            path: state.pool.path().into(),
            what: "it has no root directory".to_owned(),
        });
    }
    state.numbers = crate::state::tables::Numbers::new(
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
    progress.end();
    Ok(Scanned { held, marked })
}

/// Takes a header's mark away, unless it `waits`, and makes its sequence word even.
fn unmark(pool: &Pool, number: InodeNumber, waits: bool) {
    let Some(header) = pool.header(number) else {
        return;
    };
    let copy = header.copy();
    if copy.sequence & 1 == 1 {
        header.sequence.store(copy.sequence + 1, Ordering::Release);
        stored(&header.sequence);
    }
    let bare = match waits {
        true => copy.ownership.accepted(),
        false => copy.ownership.bare(),
    };
    if copy.ownership != bare {
        header.ownership.store(bare.0, Ordering::Release);
        stored(&header.ownership);
    }
}
