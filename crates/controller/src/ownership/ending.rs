//! The end of a session: what it did is folded or set aside, what it had becomes nobody's.
//!
//! # Invariants
//! * It needs no help of the session; when it is through, no header names the session, and its
//!   segments and arena wait until nobody can write them any more.
//! * It goes step by step, and others are served between two steps: who wants what the session owns
//!   has it folded and taken as from any session that does not answer.

use crate::ownership::Owners;
use crate::ownership::sweeps::{Purpose, Sweep};
use crate::sessions::Remains;
use crate::sessions::lent::Lent;
use crate::state::change::{Change, Weight};
use crate::state::tables::State;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::{InodeNumber, Ownership};
use rustix::io::Errno;

/// Inodes that are released in one step.
const RELEASED: usize = 4096;

/// The end of a session that is under way.
pub struct Ending {
    pub session: SessionNumber,
    stage: Stage,
}

enum Stage {
    /// What it did is folded, or set aside.
    Fold(Sweep),
    /// What it still owns is released; the last is next.
    Release(Vec<InodeNumber>),
}

impl Owners<'_> {
    /// Ends a session, whatever became of its processes: folds, sets aside, releases.
    pub fn end_session(&mut self, number: SessionNumber, errno: i32) {
        self.cut_off(number, errno);
        if let Some(mut ending) = self.begin_end(number) {
            while self.end_step(&mut ending) {}
        }
    }

    /// Nobody joins a session any more, or comes back to it: it waits for its end. False if it does
    /// already, or there is none.
    pub fn close_doors(&mut self, number: SessionNumber) -> bool {
        let Some(session) = self.sessions.all.get_mut(&number).filter(|s| !s.is_leaving) else {
            return false;
        };
        session.is_leaving = true;
        session.is_away = false;
        session.members.group = None;
        self.sessions.count_away();
        true
    }

    /// Whoever still has a session's memory is heard no more, and told.
    pub fn cut_off(&mut self, number: SessionNumber, errno: i32) {
        let Some(session) = self.sessions.all.get_mut(&number) else {
            return;
        };
        session.is_away = false;
        if let Some(live) = session.live.take() {
            let control = live.control();
            control
                .header
                .closed
                .store(errno.unsigned_abs(), std::sync::atomic::Ordering::SeqCst);
            for slot in &control.requests {
                // Whoever waits for an answer looks at `closed` when it wakes.
                let _ = rustix::thread::futex::wake(
                    &slot.state,
                    rustix::thread::futex::Flags::empty(),
                    u32::MAX,
                );
            }
        }
        self.sweeps.under_way.remove(&number);
        self.sessions.rights.forget_session(number);
    }

    /// Begins the end of a session that has been cut off.
    pub fn begin_end(&self, number: SessionNumber) -> Option<Ending> {
        let sweep = self.begin_sweep(number, Purpose::End)?;
        Some(Ending {
            session: number,
            stage: Stage::Fold(sweep),
        })
    }

    /// A step of an end; false when there is no such session any more.
    pub fn end_step(&mut self, ending: &mut Ending) -> bool {
        let number = ending.session;
        match &mut ending.stage {
            Stage::Fold(sweep) => {
                if !self.sweep_step(sweep) {
                    let session = self.sessions.all.get(&number);
                    let owned = session.map(|session| session.owned.numbers());
                    let mut owned: Vec<InodeNumber> = owned.into_iter().flatten().collect();
                    // In order, so that a recovery is the same each time.
                    owned.sort_unstable_by(|a, b| b.cmp(a));
                    ending.stage = Stage::Release(owned);
                }
                true
            }
            Stage::Release(owned) => {
                let part: Vec<InodeNumber> = (0..RELEASED).map_while(|_| owned.pop()).collect();
                if !part.is_empty() {
                    self.release(number, &part);
                    return true;
                }
                self.forget_session(number);
                false
            }
        }
    }

    /// Frees granted numbers that were never committed, and releases what is still owned.
    fn release(&mut self, number: SessionNumber, part: &[InodeNumber]) {
        let released = release(&mut self.sessions.state, Some(number), part);
        if let Err(errno) = released {
            tracing::error!("releasing what session {number} owned: {errno}");
        } else if let Some(session) = self.sessions.all.get_mut(&number) {
            session.disown(&self.sessions.state.pool, part);
        }
    }

    /// Nothing is left of what a session owned.
    fn forget_session(&mut self, number: SessionNumber) {
        let Some(session) = self.sessions.all.get(&number) else {
            return;
        };
        let (index, segments) = (session.index, session.segments.clone());
        let user = session.credentials.uid;
        let remains = Remains {
            user: Some(user),
            bytes: session.arena.granted(),
        };
        self.sessions.lookout.ended(Lent::Arena(number));
        for &segment in &segments {
            self.sessions.lookout.ended(Lent::Segment(segment));
        }
        crate::sessions::fold_copies::remove(&self.sessions.state.pool, number);
        for &segment in &session.mapped {
            self.sessions.state.space.note_sent(segment, false);
        }
        if let Err(errno) = self.abandon_segments(&segments) {
            tracing::error!("giving back the segments of session {number}: {errno}");
        }
        crate::sessions::arena::clear_entry(&self.sessions.state.pool, index);
        self.sessions.all.remove(&number);
        self.sessions.forget_gates(user);
        self.sessions.count_away();
        self.sessions.remains.insert(number, remains);
        self.sessions.remove_remains();
        self.access().free_next_orphans();
        self.sessions.publish_free_counts(false);
    }

    /// Data segments of a session that is gone: nobody's, until they are granted again.
    pub fn abandon_segments(
        &mut self,
        segments: &[arck_core_state::SegmentNumber],
    ) -> Result<(), Errno> {
        if segments.is_empty() {
            return Ok(());
        }
        let mut change = Change::new(&mut self.sessions.state);
        for &segment in segments {
            if let Some(entry) = change.state.space.entry(segment) {
                change.set_segment(
                    segment,
                    arck_controller_state::segments::SegmentEntry { owner: 0, ..entry },
                );
            }
        }
        change.commit(Weight::Fold)
    }
}

/// Has nobody own these inodes any more, those of a session, or all: frees granted numbers that were never committed.
pub fn release(
    state: &mut State,
    of: Option<SessionNumber>,
    inodes: &[InodeNumber],
) -> Result<(), Errno> {
    let mut granted = Vec::new();
    let mut change = Change::new(state);
    for &inode in inodes {
        let header = change.state.header_copy(inode).ok_or(Errno::NOENT)?;
        if of.is_some_and(|of| header.ownership.session() != of) {
            // It was taken away meanwhile.
            continue;
        }
        if header.kind == HeaderKind::Granted {
            granted.push(inode);
            continue;
        }
        let fold = change.state.numbers.fold();
        let header = change.header(inode)?;
        header.fold = fold;
        header.ownership = Ownership::SHARED;
        header.branch_slot = 0;
        (header.sealed, header.sealed_slot) = (0, 0);
    }
    match change.is_empty() {
        true => drop(change),
        false => change.commit(Weight::Ownership)?,
    }
    state.free_granted(&granted)
}
