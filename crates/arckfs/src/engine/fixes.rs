//! What an attempt needs before it can be made again, got: ownership, room, numbers, folds.
//!
//! Invariant: runs between attempts, outside any operation of the protocol and with no lock of an
//! inode held, since most of it waits for the controller. The session's `room` lock is taken
//! first, so that one thread folds for room and the others find what it freed.

use super::{Engine, Fix};
use crate::interface::Errno;
use crate::state::LAST;
use arck_libfs_kit::ThreadContext;
use arck_libfs_kit::ownership::{self, Owner};
use arck_protocol::Request;
use std::sync::atomic::Ordering;

/// How long threads are waited for that give back what a fold has freed, and how often.
const GIVING_BACK: std::time::Duration = std::time::Duration::from_micros(200);
const GIVING_BACK_MAX: u32 = 500;
/// How often it is folded again where more delta pages than a few are in use after a fold: threads that
/// were interrupted have published since, or are about to give back what was theirs.
const FOLDED_MAX: u32 = 50;
const FEW_PAGES: u64 = 8;

/// How long a thread sleeps that has found another between the change of a name and that of a
/// count of links, where that has not run meanwhile: a few instructions.
const LINKS_PAUSE: std::time::Duration = std::time::Duration::from_micros(50);

/// Arena pages in use (16 MiB) at which a session folds by itself.
const DELTA_PAGES_FOLD: u64 = 4096;

impl Engine {
    #[cold]
    pub fn fix(&self, thread: &'static ThreadContext, fix: Fix) -> Result<(), Errno> {
        let (session, slot) = (self.session, thread.slot());
        let stock = session.state();
        match fix {
            Fix::Again => Ok(()),
            Fix::Own(numbers) => {
                let mut wanted = [0; 4];
                let mut count = 0;
                for number in numbers.into_iter().filter(|&number| number != 0) {
                    let header = session.header(number).ok_or(Errno::STALE)?;
                    ownership::wait_unmarked(session, header)?;
                    if !matches!(ownership::owner(session, header), Owner::Us(_)) {
                        wanted[count] = number;
                        count += 1;
                    }
                }
                if count == 0 {
                    return Ok(());
                }
                match self.acquire(&wanted[..count]) {
                    // As many owned as a session may: give up what is not needed right now.
                    Err(Errno::NOBUFS) => {
                        self.give_up_all()?;
                        ownership::acquire(session, &wanted[..count])
                    }
                    other => other,
                }
            }
            Fix::Recall(number) => ownership::recall(session, number),
            Fix::TakeOver(number) => match self.acquire(&[number]) {
                // Whatever needs it asks again, and tells why it cannot be had.
                Err(_) => ownership::recall(session, number),
                owned => owned,
            },
            Fix::Admit(inode, contents) => session.ask(&Request::Admit { inode, contents }),
            Fix::DropSetId(inode) => session.ask(&Request::DropSetId { inode }),
            Fix::Wait(number) => {
                ownership::wait_unmarked(session, session.header(number).ok_or(Errno::STALE)?)
            }
            Fix::Busy(number) => self.run_local(|context| {
                let inode = context.cached(number)?;
                drop(context.lock_whole(inode));
                Ok(())
            }),
            Fix::Turn(number) | Fix::OwnTurn(number) => {
                // Cached inodes stay where they are: waiting for one keeps nobody's epoch.
                if let Some(inode) = self.known(number) {
                    drop(inode.turn.lock(slot.holder()));
                }
                Ok(())
            }
            Fix::Numbers => self.with_room(|| stock.numbers.refill(session, slot), || false),
            Fix::DataPages => self.with_room(
                || stock.data.grow(session, slot),
                || stock.data.has_free(session),
            ),
            Fix::ArenaPages => {
                let spare = || stock.arena.used() < DELTA_PAGES_FOLD;
                if !spare() {
                    // Enough has gathered: a fold now, so that neither the arena nor the time
                    // to recover it grows without bound.
                    self.fold_all()?;
                    if spare() {
                        return Ok(());
                    }
                }
                let enough = || spare() && stock.arena.has_free();
                self.with_room(|| stock.arena.grow(session), enough)
            }
            Fix::Room(pages) => match stock.arena.ask_for_room(session, pages, false) {
                Err(Errno::NOSPC) => {
                    let _alone = self.state.room.lock(slot.holder());
                    match stock.arena.ask_for_room(session, pages, false) {
                        Err(Errno::NOSPC) => {
                            // What the deltas take is less than what is kept for them.
                            self.fold_all()?;
                            self.ask_for_room_freed(pages)
                        }
                        other => other,
                    }
                }
                other => other,
            },
            Fix::Memory => {
                self.fold_all()?;
                // After three, all is free that no thread looks at.
                (0..3).for_each(|_| slot.collect());
                Ok(())
            }
            Fix::Links => {
                arck_protocol::wait::sleep(LINKS_PAUSE);
                Ok(())
            }
            Fix::Counts => {
                // Without a lock that who is at it could need.
                drop(self.state.counts_lock.lock(slot.holder()));
                self.run_local(|context| context.settle_counts())
            }
            Fix::BranchSlot(branch) => stock.arena.grow_branches(session, branch),
            Fix::Commit(numbers) => {
                let mut wanted = [0; 2];
                let mut count = 0;
                for number in numbers.into_iter().filter(|&number| number != 0) {
                    wanted[count] = number;
                    count += 1;
                }
                ownership::commit(session, &wanted[..count], false)
            }
        }
    }

    /// Asks for the room that a fold has shown to be free: also what other threads are about to give
    /// back of it.
    fn ask_for_room_freed(&self, pages: u32) -> Result<(), Errno> {
        let arena = &self.session.state().arena;
        let mut folded = 0;
        for _ in 0..GIVING_BACK_MAX {
            let others_give_back = self.state.refreshing.load(Ordering::Acquire) != 0;
            match arena.ask_for_room(self.session, pages, true) {
                Err(Errno::NOSPC) if others_give_back => arck_protocol::wait::sleep(GIVING_BACK),
                Err(Errno::NOSPC) if folded < FOLDED_MAX && arena.used() > FEW_PAGES => {
                    folded += 1;
                    arck_protocol::wait::sleep(GIVING_BACK);
                    self.fold_all()?;
                }
                other => return other,
            }
        }
        Err(Errno::NOSPC)
    }

    /// Gets more room; where there is none, folds first, since a fold frees what it replaces.
    fn with_room(
        &self,
        mut grow: impl FnMut() -> Result<(), Errno>,
        enough: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        match grow() {
            Err(Errno::NOSPC) => {
                // Another thread may be at it, and has not yet given back what its fold freed.
                let thread = self.session.thread()?;
                let _alone = self.state.room.lock(thread.slot().holder());
                if enough() {
                    return Ok(());
                }
                match grow() {
                    Err(Errno::NOSPC) => {}
                    other => return other,
                }
                self.fold_all()?;
                if enough() { Ok(()) } else { grow() }
            }
            Err(Errno::NOBUFS) => {
                self.give_up_all()?;
                grow()
            }
            other => other,
        }
    }

    /// Folds and releases everything: what is needed is acquired again.
    fn give_up_all(&self) -> Result<(), Errno> {
        self.commit_all(true)?;
        self.run_local(|context| context.refresh_dirty())
    }

    /// Whether this session has changed something that it does not know to be folded.
    pub fn has_dirty(&self) -> bool {
        !matches!(self.state.dirty_first.load(Ordering::Acquire), 0 | LAST)
            || self.state.refreshing.load(Ordering::Acquire) != 0
    }

    /// Folds all that this session has changed, and takes back what the deltas used; but what was
    /// refused.
    pub fn fold_all(&self) -> Result<(), Errno> {
        self.commit_all(false)?;
        self.run_local(|context| context.refresh_dirty())
    }

    /// Where this session has lost much data, and others would get little: gives back the segments
    /// that are empty now. After an operation that may have dropped pages. What fails is not told: the
    /// room is then the session's until its end.
    #[inline]
    pub fn give_back(&self) {
        if self.session.state().data.may_give_back(self.session) {
            let _ = self.give_back_segments();
        }
    }

    #[cold]
    fn give_back_segments(&self) -> Result<(), Errno> {
        self.fold_all()?;
        let thread = self.session.thread()?;
        let data = &self.session.state().data;
        data.give_back(self.session, thread.slot())
    }

    fn commit_all(&self, release: bool) -> Result<(), Errno> {
        let request = Request::CommitAll { release };
        match ownership::ask_until_settled(self.session, &request) {
            // What is refused is reported by operations on it, and by no others: all else was
            // folded.
            Err(Errno::IO) => Ok(()),
            other => other,
        }
    }
}
