//! The end of a session: what it did is folded or set aside, what it had becomes nobody's.
//!
//! Invariant: needs no help of the session; when it is through, no header names the session, and
//! its segments and arena wait until nobody can write them any more.

use crate::change::{Change, Weight};
use crate::core::Core;
use crate::fold::{After, Failure};
use crate::lent::Lent;
use crate::memory::Remains;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::{InodeNumber, Ownership};
use rustix::io::Errno;

impl Core {
    /// Ends a session, whatever became of its processes: folds, sets aside, releases.
    pub fn end_session(&mut self, number: SessionNumber, errno: i32) {
        let Some(session) = self.sessions.get_mut(&number) else {
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
        self.locks.drop_session(&self.state.pool, number);
        self.by_message.forget_session(number);
        // The release is done for all at once below.
        self.fold_all(number, false, |core, inode, _| {
            if core.fold_or_take_away(number, inode, After::Keep).is_err() {
                core.take_away(number, inode, &Failure::Errno(Errno::NOSPC));
            }
        });
        self.release_rest(number);
        let Some(session) = self.sessions.get(&number) else {
            return;
        };
        let (index, segments) = (session.index, session.segments.clone());
        let remains = Remains {
            user: Some(session.credentials.uid),
            bytes: session.arena.granted(),
        };
        self.lookout.ended(Lent::Arena(number));
        for &segment in &segments {
            self.lookout.ended(Lent::Segment(segment));
        }
        crate::receipts::remove(&self.state.pool, number);
        for &segment in &session.mapped {
            self.state.space.note_sent(segment, false);
        }
        if let Err(errno) = self.abandon_segments(&segments) {
            tracing::error!("giving back the segments of session {number}: {errno}");
        }
        crate::arena::clear_entry(&self.state.pool, index);
        self.sessions.remove(&number);
        self.count_away();
        self.remains.insert(number, remains);
        self.remove_remains();
        self.free_orphans(None);
        self.publish_free_counts(false);
    }

    /// Frees granted numbers that were never born, and releases what is still owned.
    fn release_rest(&mut self, number: SessionNumber) {
        let Some(session) = self.sessions.get(&number) else {
            return;
        };
        let mut owned: Vec<InodeNumber> = session.owned.keys().copied().collect();
        // In order, so that a recovery is the same each time.
        owned.sort_unstable();
        for part in owned.chunks(4096) {
            let mut change = Change::new(&mut self.state);
            let mut release = || {
                for &inode in part {
                    let fold = change.state.numbers.fold();
                    let header = change.header(inode)?;
                    header.fold = fold;
                    header.ownership = Ownership::SHARED;
                    header.branch_slot = 0;
                    if header.kind == HeaderKind::Granted {
                        change.free_inode(inode)?;
                    }
                }
                Ok::<(), Errno>(())
            };
            let released = release().and_then(|()| change.commit(Weight::Ownership));
            if let Err(errno) = released {
                tracing::error!("releasing what session {number} owned: {errno}");
            }
        }
    }

    /// Data segments of a session that is gone: nobody's, until they are granted again.
    pub fn abandon_segments(
        &mut self,
        segments: &[arck_core_state::SegmentNumber],
    ) -> Result<(), Errno> {
        if segments.is_empty() {
            return Ok(());
        }
        let mut change = Change::new(&mut self.state);
        for &segment in segments {
            if let Some(entry) = change.state.space.entry(segment) {
                change.set_segment(segment, crate::files::SegmentEntry { owner: 0, ..entry });
            }
        }
        change.commit(Weight::Fold)
    }
}
