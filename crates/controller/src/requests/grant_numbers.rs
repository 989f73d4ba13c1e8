//! Grants of inode numbers, in runs: as many as the session uses up in a while, where there are plenty.
//!
//! # Invariants
//! * A number is granted to one session at a time, and owned by it from then on; its branch slot is the session's
//!   too.
//! * No grant is more than a small part of what is free, of numbers and of metadata pages, or a few.

use crate::core::Core;
use crate::fold::reply::Reply;
use crate::sessions::Sessions;
use crate::sessions::arena::Grown;
use crate::sessions::session::{FIRST_GRANT, OWNED_MAX, Session};
use crate::state::tables::State;
use arck_controller_state::header_runs::HeaderRun;
use arck_core_state::InodeNumber;
use arck_core_state::cast;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::Response;
use arck_protocol::message::{GRANT_MAX, InodeRun, RUNS_MAX};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// A grant is no more than one part in so many of the numbers that are free, or of the metadata pages.
const PART_OF_FREE: u64 = 64;
/// How much more is granted at once to a session that is back so soon, or less to one that is not.
const STEP: usize = 4;
const SOON: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(10);

impl Session {
    /// How many numbers it is to get at once: what it uses up in a while.
    fn numbers_at_once(&self) -> usize {
        match self.granted_at.map(|at| at.elapsed()) {
            Some(since) if since < SOON => (self.next_grant * STEP).min(GRANT_MAX),
            Some(since) if since > LONG => (self.next_grant / STEP).max(FIRST_GRANT),
            _ => self.next_grant,
        }
    }

    fn free_slots_of(&mut self, runs: &[HeaderRun]) {
        for run in runs {
            (run.slot..run.slot + run.count).for_each(|slot| self.arena.free_slot(slot));
        }
    }
}

impl Core {
    /// Grants new inode numbers, perhaps fewer than asked for. ENOSPC; NOBUFS: it owns as many inodes as it may.
    pub fn grant_inodes(&mut self, session: SessionNumber, count: u32) -> Reply {
        let Some(asks) = self.sessions.all.get(&session) else {
            return Errno::NOENT.into();
        };
        let (at_once, owned) = (asks.numbers_at_once(), asks.owned.len());
        if owned + FIRST_GRANT > OWNED_MAX {
            return Errno::NOBUFS.into();
        }
        let mut count = (count as usize)
            .clamp(1, GRANT_MAX)
            .min(at_once)
            .min(OWNED_MAX - owned)
            .min(self.sessions.plenty_of_numbers().max(FIRST_GRANT));
        while !self.sessions.may_hold_numbers(session, count) {
            count /= 2;
            if count == 0 {
                return Errno::NOSPC.into();
            }
        }
        let pages = self.sessions.pages_for_numbers(count as u64);
        if !self.owners().make_spare(pages) {
            return Errno::NOSPC.into();
        }
        match self.sessions.ensure_slots(session, count) {
            Ok(Grown::Now) => {}
            Ok(Grown::Later) => return Reply::growing(),
            Err(errno) => return errno.into(),
        }
        let Sessions {
            state,
            all: sessions,
            ..
        } = &mut self.sessions;
        let Some(session) = sessions.get_mut(&session) else {
            return Errno::NOENT.into();
        };
        match grant(state, session, cast::count(count)) {
            Ok(runs) => {
                session.next_grant = at_once;
                session.granted_at = Some(Instant::now());
                let runs = runs.iter().map(|run| InodeRun {
                    first: run.first,
                    count: run.count,
                });
                Reply::Now(Response::Inodes(runs.collect()))
            }
            Err(errno) => errno.into(),
        }
    }
}

impl Sessions {
    /// Numbers that may be granted at once without others noticing.
    fn plenty_of_numbers(&self) -> usize {
        let numbers = self.state.numbers.count_free() / PART_OF_FREE;
        let pages = self.spare_pages() / PART_OF_FREE;
        let covered = pages.saturating_mul(crate::sessions::credits::NUMBERS_PER_PAGE);
        usize::try_from(numbers.min(covered)).unwrap_or(usize::MAX)
    }
}

/// Grants at most so many numbers, whose branch slots there are. Nothing has changed if it fails.
fn grant(state: &mut State, session: &mut Session, count: u32) -> Result<Vec<HeaderRun>, Errno> {
    let mut runs: Vec<HeaderRun> = Vec::new();
    let mut left = count;
    let mut failed = Errno::NOSPC;
    while left > 0 && runs.len() < RUNS_MAX {
        let Some((first, taken)) = state.numbers.take_run(left) else {
            break;
        };
        let added = state
            .pool
            .allocate_headers(first + (taken - 1))
            .and_then(|()| add_run(state, session, first..first + taken, &mut runs));
        if let Err(errno) = added {
            failed = errno;
            break;
        }
        left -= taken;
    }
    if runs.len() > RUNS_MAX {
        // One run of free numbers was several, by their generations or slots.
        for run in runs.drain(RUNS_MAX..).collect::<Vec<_>>() {
            session.free_slots_of(&[run]);
            (run.first..run.first + run.count).for_each(|number| state.numbers.give_back(number));
        }
    }
    if runs.is_empty() {
        return Err(failed);
    }
    crate::sessions::arena::store_pages(&state.pool, session.index, &session.arena);
    if let Err(errno) = state.store_runs(&runs) {
        session.free_slots_of(&runs);
        let numbers = runs.iter().flat_map(|run| run.first..run.first + run.count);
        numbers.for_each(|number| state.numbers.give_back(number));
        return Err(errno);
    }
    let granted: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
    state.granted += granted;
    session.uncommitted += cast::index(granted);
    let numbers = runs.iter().flat_map(|run| {
        let slots = run.slot..run.slot + run.count;
        (run.first..run.first + run.count).zip(slots)
    });
    session.own(&state.pool, numbers);
    Ok(runs)
}

/// Adds numbers that have been taken, each with a slot; those that get none are given back.
fn add_run(
    state: &mut State,
    session: &mut Session,
    numbers: std::ops::Range<InodeNumber>,
    runs: &mut Vec<HeaderRun>,
) -> Result<(), Errno> {
    let of = session.number;
    let mut add = |state: &mut State, session: &mut Session, number| {
        let slot = session.take_slot()?;
        let fold = state.numbers.fold();
        state.append_to_runs(runs, number, |header| HeaderRun {
            fold,
            session: of,
            first: number,
            count: 1,
            generation: header.generation.max(1),
            slot,
            reserved: 0,
        })
    };
    for number in numbers.clone() {
        if let Err(errno) = add(state, session, number) {
            (number..numbers.end).for_each(|number| state.numbers.give_back(number));
            return Err(errno);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::testing::TestCore;
    use arck_core_state::header::HeaderKind;
    use std::collections::HashSet;
    use std::process::Command;
    use std::sync::{Arc, Mutex};

    fn granted(test: &mut TestCore, session: SessionNumber) -> Result<Vec<InodeNumber>, Errno> {
        loop {
            match test.core.grant_inodes(session, GRANT_MAX as u32) {
                Reply::Now(Response::Inodes(runs)) => {
                    return Ok(runs.into_iter().flat_map(InodeRun::numbers).collect());
                }
                Reply::Now(Response::Error(errno)) => {
                    return Err(Errno::from_raw_os_error(errno));
                }
                Reply::Now(other) => panic!("{other:?}"),
                Reply::Later(_) | Reply::Growing(_) => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn who_is_back_soon_gets_more_and_all_come_back_when_he_ends() {
        let mut test = TestCore::of_size(1 << 30);
        let ann = test.session(1001, &[1001]);
        let free = test.core.sessions.state.numbers.count_free();
        let (mut all, mut slots, mut counts) = (HashSet::new(), HashSet::new(), Vec::new());
        for _ in 0..6 {
            // Where others keep it from the processor that is late.
            let soon = Some(Instant::now());
            let session = test.core.sessions.all.get_mut(&ann).unwrap();
            session.granted_at = session.granted_at.and(soon);
            let numbers = granted(&mut test, ann).unwrap();
            counts.push(numbers.len());
            for number in numbers {
                assert!(all.insert(number), "{number} twice");
                let header = test.core.sessions.state.header_copy(number).unwrap();
                assert_eq!(header.kind, HeaderKind::Granted);
                assert_eq!(header.ownership.session(), ann);
                assert_eq!(header.ownership, HeaderRun::ownership(ann, header.fold));
                assert!(header.generation > 0 && header.sequence.is_multiple_of(2));
                assert!(slots.insert(header.branch_slot), "a slot twice");
            }
        }
        assert_eq!(counts[..4], [16, 64, 256, 1024]);
        assert!(
            counts
                .iter()
                .all(|&count| count as u64 <= free / PART_OF_FREE)
        );
        let state = &test.core.sessions.state;
        assert_eq!(state.granted, all.len() as u64);
        assert_eq!(state.numbers.count_free(), free - all.len() as u64);
        let generation = state.header_copy(*all.iter().next().unwrap()).unwrap();
        test.core.owners().end_session(ann, libc::ESHUTDOWN);
        let state = &test.core.sessions.state;
        assert_eq!((state.granted, state.numbers.count_free()), (0, free));
        for &number in &all {
            let header = state.header_copy(number).unwrap();
            assert_eq!(header.kind, HeaderKind::Free);
            assert_eq!(header.generation, generation.generation + 1);
            assert_eq!((header.ownership.0, header.branch_slot), (0, 0));
        }
        // Late, he gets fewer.
        let bob = test.session(1002, &[1002]);
        let session = test.core.sessions.all.get_mut(&bob).unwrap();
        session.next_grant = 256;
        session.granted_at = Instant::now().checked_sub(LONG * 2);
        let late = session.granted_at.is_some();
        let expected = if late { 64 } else { 256 };
        assert_eq!(granted(&mut test, bob).unwrap().len(), expected);
    }

    /// A small pool has some for everybody, whoever asks how often.
    #[test]
    fn a_small_pool_gives_few_at_once() {
        let mut test = TestCore::new();
        let ann = test.session(1001, &[1001]);
        let bob = test.session(1002, &[1002]);
        let mut of_ann = 0;
        while let Ok(numbers) = granted(&mut test, ann) {
            assert!(numbers.len() <= 64, "{}", numbers.len());
            of_ann += numbers.len();
        }
        assert!(of_ann > 1000, "{of_ann}");
        let of_bob = granted(&mut test, bob).unwrap();
        assert!(!of_bob.is_empty());
    }

    /// Wherever a controller ends in the middle of a grant, or of giving back, the next one finds all numbers free.
    #[test]
    fn a_grant_that_nobody_was_told_of_is_void() {
        let copies = Arc::new(Mutex::new(Vec::new()));
        let hook = {
            let copies = copies.clone();
            move |pool: &std::path::Path, point: &'static str| {
                let mut copies = copies.lock().unwrap();
                let to = tempfile::tempdir_in("/dev/shm").unwrap();
                let mut copy = Command::new("cp");
                copy.args(["-a", "--sparse=always"])
                    .arg(pool)
                    .arg(to.path());
                assert!(copy.status().unwrap().success());
                copies.push((point, to));
            }
        };
        let mut test = TestCore::with_points(hook);
        let free = test.core.sessions.state.numbers.count_free();
        let ann = test.session(1001, &[1001]);
        copies.lock().unwrap().clear();
        let numbers = granted(&mut test, ann).unwrap();
        assert!(!numbers.is_empty());
        test.core.owners().end_session(ann, libc::ESHUTDOWN);
        drop(test);
        let mut seen = HashSet::new();
        for (point, copy) in copies.lock().unwrap().drain(..) {
            seen.insert(point);
            let core = Core::open(&copy.path().join("pool"), Options::default()).unwrap();
            let state = &core.sessions.state;
            assert_eq!(
                (state.granted, state.numbers.count_free()),
                (0, free),
                "{point}"
            );
            for &number in &numbers {
                let header = state.header_copy(number).unwrap();
                assert_eq!(header.kind, HeaderKind::Free, "{point}: {number}");
                assert_eq!(header.ownership.0, 0, "{point}: {number}");
            }
        }
        assert!(
            seen.contains("journal written") && seen.contains("half applied"),
            "{seen:?}"
        );
    }
}
