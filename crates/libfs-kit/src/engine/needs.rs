//! What an attempt needs before it can be made again ([`Need`]), got: ownership, room, numbers, folds.
//!
//! # Invariants
//! * It runs between attempts, outside any operation of the protocol and with no lock of an
//!   inode held, since most of it waits for the controller. The session's `room` lock is taken
//!   first, so that one thread folds for room and the others find what it freed.
//! * What a fold has freed comes back when the views of what it folded are brought up to date, and the number of an
//!   inode that died uncommitted when no thread looks at that any more. A thread that is at it may not run for
//!   any time, on a busy machine or since it is stopped: then it is waited for ([`Waiting`]), outside, so that
//!   epochs go on and the dead are cleared away. ENOSPC is for who finds nobody who has any of it.

use super::Engine;
use super::waiting::Waiting;
use crate::need::Need;
use crate::ownership::{self, Owner};
use crate::region::ThreadSlot;
use crate::views::LAST;
use crate::views::reuse::next_dead;
use crate::{Session, ThreadContext};
use arck_core_state::InodeNumber;
use arck_protocol::{InodeList, Request};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often it is folded again where more delta pages than a few are in use after a fold: threads that
/// were interrupted have published since, or are about to give back what was theirs.
const FOLDED_MAX: u32 = 50;
/// Between two of these folds.
const FOLDED_PAUSE: Duration = Duration::from_micros(200);
const FEW_PAGES: u64 = 8;

/// How often, and after which pauses, what was given up is asked for.
const GIVEN_UP_MAX: u32 = 50;
const GIVEN_UP_PAUSE: Duration = Duration::from_millis(1);

/// How long a thread sleeps that has found another between the change of a name and that of a
/// count of links, where that has not run meanwhile: a few instructions.
const LINKS_PAUSE: Duration = Duration::from_micros(50);

/// How often is looked whether a delta is sealed, before its owner sleeps between looks.
const SEAL_SPINS: u32 = 2000;

/// So long those are waited for that look at what is gone; see [`wait_until_unseen`].
const UNSEEN_WAIT: Duration = Duration::from_millis(5);

/// Waits until nobody looks any more at what was there in this epoch, but not for who stays inside for long, or is stopped.
fn wait_until_unseen(session: &Session, slot: &ThreadSlot<'_>, epoch: u64) {
    if slot.is_pinned() {
        return;
    }
    let deadline = Instant::now() + UNSEEN_WAIT;
    loop {
        // Each takes the epoch one further, if it can.
        (0..3).for_each(|_| slot.collect());
        if session.region().is_over(epoch) || Instant::now() > deadline {
            return;
        }
        arck_protocol::wait::sleep(Duration::from_micros(100));
    }
}

/// Arena pages in use (16 MiB) at which a session folds by itself.
const DELTA_PAGES_FOLD: u64 = 4096;

/// What asking for something came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Met {
    Got,
    /// There is none, but other threads of the session are about to give some back.
    AboutToBe,
}

impl Engine<'_> {
    /// Gets what an attempt needs. Outside of operations; what that changes of the auxiliary state nobody
    /// builds anew meanwhile. What fails since it is damaged is tried again.
    #[cold]
    pub fn meet(&self, thread: &'static ThreadContext, need: Need) -> Result<(), Errno> {
        if let Need::Unseen(epoch) = need {
            wait_until_unseen(self.session, thread.slot(), epoch);
        }
        let mut waiting = None;
        loop {
            let is_within = thread.slot().is_pinned();
            let inside = self.inside()?;
            let met = self.meet_inside(thread, need);
            let is_damaged = inside.is_some() && self.session.region().is_damaged();
            drop(inside);
            match met {
                Ok(Met::Got) => return Ok(()),
                Ok(Met::AboutToBe) if is_within => return Err(Errno::NOSPC),
                Ok(Met::AboutToBe) => {
                    let waiting = waiting.get_or_insert_with(|| Waiting::new(self.session));
                    // They run, and nothing comes of it.
                    let paused = waiting.pause(self.session, thread.slot());
                    paused.map_err(|_| Errno::NOSPC)?;
                    thread.slot().collect();
                    if self.session.is_of_group() {
                        self.be_one_of_group()?;
                    }
                }
                Err(errno) if is_within || !is_damaged => return Err(errno),
                Err(_) => {}
            }
        }
    }

    fn meet_inside(&self, thread: &'static ThreadContext, need: Need) -> Result<Met, Errno> {
        let (session, slot) = (self.session, thread.slot());
        let stock = session.state();
        let met = match need {
            Need::Numbers => return self.get_numbers(thread),
            Need::DataPages(count) => {
                return self.with_room(
                    || stock.data.grow(session, slot),
                    || stock.data.has_free(session, count),
                );
            }
            Need::ArenaPages(pages) => return self.grow_arena(pages),
            Need::Credits(pages) => return self.get_credits(thread, pages),
            Need::Again => Ok(()),
            Need::Own(numbers) => self.own(numbers),
            Need::Recall(number) => ownership::recall(session, number),
            Need::TakeOver(number) => match self.acquire(&[number]) {
                // Whatever needs it asks again, and tells why it cannot be had.
                Err(_) => ownership::recall(session, number),
                owned => owned,
            },
            Need::Admit(inode, contents) => session.ask(&Request::Admit { inode, contents }),
            Need::DropSetId(inode) => session.ask(&Request::DropSetId { inode }),
            Need::Wait(number) => {
                ownership::wait_unmarked(session, session.header(number).ok_or(Errno::STALE)?)
            }
            Need::Busy(number) => self.run_local(|context| {
                let inode = context.cached(number)?;
                drop(context.lock_whole(inode));
                Ok(())
            }),
            Need::Exclusive(number) | Need::OwnExclusive(number) => {
                // Views stay where they are: waiting for one keeps nobody's epoch.
                if let Some(inode) = self.known(number) {
                    drop(inode.exclusive.lock(slot.holder()));
                }
                Ok(())
            }
            Need::Memory => {
                self.fold_all()?;
                // After three, all is free that no thread looks at.
                (0..3).for_each(|_| slot.collect());
                Ok(())
            }
            Need::Links => {
                arck_protocol::wait::sleep(LINKS_PAUSE);
                Ok(())
            }
            Need::Counts => {
                // Without a lock that who is at it could need.
                drop(self.views.counts_lock.lock(slot.holder()));
                self.run_local(|context| context.cut_counts())
            }
            // Waited for outside.
            Need::Unseen(_) => Ok(()),
            Need::Seal(number) => self.wait_for_seal(number),
            Need::Pause(microseconds) => {
                self.views.pause(session, microseconds);
                Ok(())
            }
            Need::Refresh => self.refresh_folded_ahead(),
            Need::BranchSlot(branch) => stock.arena.grow_branches(session, branch),
            Need::Commit(numbers) => {
                ownership::commit(session, some(numbers, &mut [0; 2], |_| Ok(true))?, false)
            }
        };
        met.map(|()| Met::Got)
    }

    /// Finishes what was asked for ahead, if it is answered, and gives back what the directories used that it was about.
    fn refresh_folded_ahead(&self) -> Result<(), Errno> {
        let slot = self.session.thread()?.slot();
        let asked = {
            let _locked = self.views.ahead_lock.lock(slot.holder());
            if let Some(index) = self.views.ahead.load(Ordering::Relaxed).checked_sub(1) {
                if self.session.finish(index as usize, false) == Err(Errno::TIMEDOUT) {
                    return Ok(());
                }
                self.views.ahead.store(0, Ordering::Relaxed);
            }
            self.views.take_asked()
        };
        self.bring_up_to_date(&asked);
        Ok(())
    }

    /// What these directories used is given back, as far as they were folded. What fails is nobody's: it is told to
    /// whoever comes to them.
    fn bring_up_to_date(&self, asked: &[InodeNumber]) {
        let count = asked.iter().take_while(|&&number| number != 0).count();
        if count == 0 {
            return;
        }
        let _ = self.run_local(|context| context.refresh_folded_ahead(&asked[..count]));
        if let Ok(thread) = self.session.thread() {
            thread.forget_unreached();
        }
    }

    /// Waits until a directory's delta is sealed, or over. What is sealed before it is folded first; then this session
    /// may go on, while the controller folds what it has just sealed.
    fn wait_for_seal(&self, number: InodeNumber) -> Result<(), Errno> {
        let session = self.session;
        let slot = session.thread()?.slot();
        let header = session.header(number).ok_or(Errno::STALE)?;
        let fold = header.fold();
        let (pending, asked) = {
            let _locked = self.views.ahead_lock.lock(slot.holder());
            let pending = self.views.ahead.swap(0, Ordering::Relaxed);
            (pending, self.views.take_asked())
        };
        if let Some(index) = pending.checked_sub(1) {
            // Whatever the answer is, it may be asked once more.
            let _ = session.finish(index as usize, true);
        }
        self.bring_up_to_date(&asked);
        if header.fold() != fold {
            return Ok(());
        }
        let inodes = InodeList::new(&[number]).ok_or(Errno::INVAL)?;
        let release = false;
        let Ok(index) = session.submit(&Request::Commit { inodes, release }) else {
            // As many requests as there may be are under way: one more is waited for.
            return ownership::commit(session, &[number], false);
        };
        let (mut rounds, mut since) = (0u32, None);
        while header.fold() == fold {
            if session.is_answered(index) {
                // Folded, or not to be folded now: whoever asks and waits is told.
                return match session.finish(index, false) {
                    Ok(_) if header.fold() != fold => Ok(()),
                    _ => ownership::commit(session, &[number], false),
                };
            }
            rounds += 1;
            match rounds < SEAL_SPINS {
                true => std::hint::spin_loop(),
                false => {
                    if let Err(errno) = session.pause(*since.get_or_insert_with(Instant::now)) {
                        let _ = session.finish(index, true);
                        return Err(errno);
                    }
                }
            }
        }
        // The next one who asks ahead finds the answer.
        let mut left = Some(index);
        {
            let _locked = self.views.ahead_lock.lock(slot.holder());
            if self.views.ahead.load(Ordering::Relaxed) == 0 {
                self.views.ahead.store(index as u32 + 1, Ordering::Relaxed);
                left = None;
            }
        }
        if let Some(index) = left {
            let _ = session.finish(index, true);
        }
        Ok(())
    }

    /// Numbers of inodes to be made: those of such as died, or more of the controller's.
    fn get_numbers(&self, thread: &'static ThreadContext) -> Result<Met, Errno> {
        let (session, slot) = (self.session, thread.slot());
        let numbers = &session.state().numbers;
        if next_dead(self.views, slot) == Some(true) {
            return Ok(Met::Got);
        }
        match self.with_room(|| numbers.refill(session, slot), || false) {
            // Somebody may look at what the next one was, and keeps all from being used again.
            Err(Errno::NOSPC) if next_dead(self.views, slot).is_some() => Ok(Met::AboutToBe),
            other => other,
        }
    }

    /// Whether threads are at giving back what a fold has freed. To be looked at before it is asked for the last
    /// time: what has been given back by then is there.
    fn is_given_back(&self) -> bool {
        self.views.refreshing.load(Ordering::Acquire) != 0
    }

    /// Ownership of those among the inodes that this session does not own (0 = no inode).
    pub fn own(&self, numbers: [InodeNumber; 4]) -> Result<(), Errno> {
        let session = self.session;
        let mut wanted = [0; 4];
        let wanted = some(numbers, &mut wanted, |number| {
            let header = session.header(number).ok_or(Errno::STALE)?;
            ownership::wait_unmarked(session, header)?;
            Ok(!matches!(ownership::owner(session, header), Owner::Us(_)))
        })?;
        if wanted.is_empty() {
            return Ok(());
        }
        match self.acquire(wanted) {
            // As many owned as a session may: give up what is not needed right now.
            Err(Errno::NOBUFS) => {
                self.give_up_all()?;
                after_giving_up(|| ownership::acquire(session, wanted))
            }
            other => other,
        }
    }

    /// So many free arena pages: fewer are of no use to who needs them at once.
    fn grow_arena(&self, pages: u32) -> Result<Met, Errno> {
        let arena = &self.session.state().arena;
        let spare = || arena.used() < DELTA_PAGES_FOLD;
        if !spare() {
            // Enough has gathered: a fold now, so that neither the arena nor the time
            // to recover it grows without bound.
            self.fold_all()?;
            if spare() {
                return Ok(Met::Got);
            }
        }
        let enough = || spare() && arena.has_free(pages);
        self.with_room(|| arena.grow(self.session), enough)
    }

    /// Room for so many delta pages more.
    fn get_credits(&self, thread: &'static ThreadContext, pages: u32) -> Result<Met, Errno> {
        let arena = &self.session.state().arena;
        let ask = || {
            let asked = arena.ask_for_credits(self.session, pages, false);
            asked.map(|()| Met::Got)
        };
        match ask() {
            Err(Errno::NOSPC) => {
                let _alone = self.views.credits.lock(thread.slot().holder());
                match ask() {
                    Err(Errno::NOSPC) => {
                        // What the deltas take is less than what is kept for them.
                        self.fold_all()?;
                        self.ask_for_room_freed(pages)
                    }
                    other => other,
                }
            }
            other => other,
        }
    }

    /// Asks for the room that a fold has shown to be free.
    fn ask_for_room_freed(&self, pages: u32) -> Result<Met, Errno> {
        let arena = &self.session.state().arena;
        let mut folded = 0;
        loop {
            let is_given_back = self.is_given_back();
            match arena.ask_for_credits(self.session, pages, true) {
                Err(Errno::NOSPC) if is_given_back => return Ok(Met::AboutToBe),
                Err(Errno::NOSPC) if folded < FOLDED_MAX && arena.used() > FEW_PAGES => {
                    folded += 1;
                    arck_protocol::wait::sleep(FOLDED_PAUSE);
                    self.fold_all()?;
                }
                other => return other.map(|()| Met::Got),
            }
        }
    }

    /// Gets more room; where there is none, folds first, since a fold frees what it replaces.
    fn with_room(
        &self,
        mut grow: impl FnMut() -> Result<(), Errno>,
        enough: impl Fn() -> bool,
    ) -> Result<Met, Errno> {
        let mut grow = || grow().map(|()| Met::Got);
        match grow() {
            Err(Errno::NOSPC) => {
                // Another thread may be at it, and has not yet given back what its fold freed.
                let thread = self.session.thread()?;
                let _alone = self.views.credits.lock(thread.slot().holder());
                if enough() {
                    return Ok(Met::Got);
                }
                match grow() {
                    Err(Errno::NOSPC) => {}
                    other => return other,
                }
                self.fold_all()?;
                let is_given_back = self.is_given_back();
                if enough() {
                    return Ok(Met::Got);
                }
                match grow() {
                    Err(Errno::NOSPC) if is_given_back => Ok(Met::AboutToBe),
                    other => other,
                }
            }
            Err(Errno::NOBUFS) => {
                self.give_up_all()?;
                after_giving_up(grow)
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
        !matches!(self.views.dirty_first.load(Ordering::Acquire), 0 | LAST)
            || self.views.refreshing.load(Ordering::Acquire) != 0
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
        match ownership::ask_until_quiescent(self.session, &request) {
            // What is refused is reported by operations on it, and by no others: all else was
            // folded.
            Err(Errno::IO) => Ok(()),
            other => other,
        }
    }
}

/// What was given up is there when the operations have left that were in flight, of whatever thread of the group. ENOSPC:
/// one does not.
fn after_giving_up<T>(mut ask: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..GIVEN_UP_MAX {
        match ask() {
            Err(Errno::NOBUFS) => arck_protocol::wait::sleep(GIVEN_UP_PAUSE),
            other => return other,
        }
    }
    Err(Errno::NOSPC)
}

/// Those of the `numbers` that are inodes and `wanted`, in `place`.
fn some<const N: usize>(
    numbers: [InodeNumber; N],
    place: &mut [InodeNumber; N],
    mut wanted: impl FnMut(InodeNumber) -> Result<bool, Errno>,
) -> Result<&[InodeNumber], Errno> {
    let mut count = 0;
    for number in numbers.into_iter().filter(|&number| number != 0) {
        if wanted(number)? {
            place[count] = number;
            count += 1;
        }
    }
    Ok(&place[..count])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_asked_for_until_it_is_there() {
        let asked_for = |answers: &[Result<u32, Errno>]| {
            let mut left = answers.iter().copied();
            let answer = after_giving_up(|| left.next().unwrap_or(Err(Errno::NOBUFS)));
            (answer, left.len())
        };
        let (full, io) = (Err(Errno::NOBUFS), Err(Errno::IO));
        assert_eq!(asked_for(&[Ok(1), Ok(2)]), (Ok(1), 1));
        assert_eq!(asked_for(&[full, full, Ok(2)]), (Ok(2), 0));
        assert_eq!(asked_for(&[full, io, Ok(2)]), (io, 1));
        assert_eq!(asked_for(&[]), (Err(Errno::NOSPC), 0));
    }
}
