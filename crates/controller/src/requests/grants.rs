//! Grants of data segments.
//!
//! # Invariant
//! * A segment belongs to one session, durably before its descriptor is sent.

use crate::core::Core;
use crate::fold::reply::Reply;
use crate::sessions::Sessions;
use crate::sessions::lent::Lent;
use crate::state::change::{Change, Weight};
use crate::state::classes::Class;
use arck_controller_state::segments::SegmentKind;
use arck_core_state::SegmentNumber;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::Response;
use arck_protocol::message::GIVE_BACK_MAX;
use rustix::io::Errno;

impl Core {
    /// See [`arck_protocol::Request::GiveBack`]. The session may go on writing what it gave back: nobody
    /// gets that before nobody can any more.
    pub fn take_segments_back(
        &mut self,
        number: SessionNumber,
        segments: &[SegmentNumber],
    ) -> Reply {
        if segments.len() > GIVE_BACK_MAX {
            return Errno::INVAL.into();
        }
        let pages = self.sessions.state.pool.geometry().pages_per_segment();
        let is_empty = |core: &Core, segment| core.sessions.state.space.unused_in(segment) == pages;
        let is_own = |segment: &&SegmentNumber| {
            let entry = self
                .sessions
                .state
                .space
                .entry(**segment)
                .unwrap_or_default();
            entry.kind() == SegmentKind::Data && entry.owner == number && is_empty(self, **segment)
        };
        let empty: Vec<SegmentNumber> = segments.iter().filter(is_own).copied().collect();
        if let Err(errno) = self.owners().abandon_segments(&empty) {
            return errno.into();
        }
        let Sessions {
            state,
            all: sessions,
            ..
        } = &mut self.sessions;
        if let Some(session) = sessions.get_mut(&number) {
            session.segments.retain(|segment| !empty.contains(segment));
            for &segment in &empty {
                // What a process of it has mapped that process drops before it uses it again.
                if session.mapped.remove(&segment) {
                    state.space.note_sent(segment, false);
                }
                state.space.note_given_back(segment, number);
            }
        }
        for &segment in &empty {
            self.sessions.lookout.ended(Lent::Segment(segment));
        }
        self.sessions.publish_free_counts(false);
        Reply::Now(Response::Done)
    }

    /// Grants a data segment, read-write. ENOSPC; INPROGRESS, if the session `may_wait`, while a file is being made.
    pub fn grant_segment(
        &mut self,
        session: SessionNumber,
        may_wait: bool,
    ) -> Result<(arck_core_state::SegmentNumber, rustix::fd::OwnedFd), Errno> {
        let pages = self.sessions.state.pool.geometry().pages_per_segment();
        match self.sessions.state.space.has_segment_for_data() {
            true => drop(self.owners().make_spare(pages)),
            false if self.sessions.state.space.shared => self.freeing().give_back_segments(),
            // What is the same user's and empty is granted as it is; nothing else is needed as a rule.
            false => {}
        }
        if !self.sessions.may_hold_segment(session) {
            // What it has filled may not have been told of.
            let _ = self.owners().commit_all(session);
            if !self.sessions.may_hold_segment(session) {
                return Err(Errno::NOSPC);
            }
        }
        let number = session;
        self.freeing().note_kept();
        let found = match self.sessions.find_data_segment(number, may_wait) {
            Err(Errno::NOSPC) => {
                // Some that nobody needs may be metadata still.
                self.freeing().give_back_segments();
                self.sessions.find_data_segment(number, may_wait)
            }
            found => found,
        };
        let (segment, uid, label) = found?;
        let pool = &self.sessions.state.pool;
        let file = pool.open_segment(segment, rustix::fs::OFlags::RDWR)?;
        self.sessions.lend_segment(number, uid, segment);
        let Sessions {
            state,
            all: sessions,
            ..
        } = &mut self.sessions;
        let session = sessions.get_mut(&number).ok_or(Errno::NOENT)?;
        let mut change = Change::new(state);
        change.set_segment(
            segment,
            arck_controller_state::segments::SegmentEntry {
                kind: arck_controller_state::segments::SegmentKind::Data as u32,
                class: label,
                owner: session.number,
                uid,
                ..arck_controller_state::segments::SegmentEntry::default()
            },
        );
        change.commit(Weight::Fold)?;
        session.segments.push(segment);
        Ok((segment, file))
    }
}

impl Sessions {
    /// The segment that a session may be granted, its user, and the label that it gets. ENOSPC; INPROGRESS, as
    /// [`Core::grant_segment`] says.
    fn find_data_segment(
        &mut self,
        session: SessionNumber,
        may_wait: bool,
    ) -> Result<(SegmentNumber, u32, u32), Errno> {
        let kept = self.kept_pages();
        let credentials = &self.all.get(&session).ok_or(Errno::NOENT)?.credentials;
        let state = &mut self.state;
        let uid = credentials.uid;
        let is_class = state.space.shared && !state.is_privileged(credentials);
        let class = is_class.then(|| Class::only(uid));
        let label = state.label(class.as_ref());
        let space = &mut state.space;
        let segment = space.find_data_segment(&state.pool, session, uid, label, kept, may_wait)?;
        Ok((segment, uid, label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestCore;
    use std::sync::{Arc, Condvar, Mutex};
    use std::time::{Duration, Instant};

    /// Keeps the thread that makes files from making another one, until it is opened.
    #[derive(Default)]
    struct Gate(Mutex<bool>, Condvar);

    impl Gate {
        fn pass(&self) {
            let closed = self.0.lock().unwrap();
            drop(self.1.wait_while(closed, |is_open| !*is_open).unwrap());
        }
        fn open(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_all();
        }
    }

    /// A file for the first data of a pool is made when somebody comes, not when he stores it.
    #[test]
    fn the_first_session_has_files_made() {
        let mut test = TestCore::of_size(64 << 20);
        let pool = &test.core.sessions.state.pool;
        assert!(pool.spares().take().is_none());
        test.session(1001, &[1001]);
        let since = Instant::now();
        let spares = || test.core.sessions.state.pool.spares();
        while spares().take().is_none() {
            assert!(since.elapsed() < Duration::from_secs(20), "never made");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn who_may_wait_waits_for_a_file_and_nothing_has_changed_then() {
        let mut test = TestCore::of_size(64 << 20);
        let gate = Arc::new(Gate::default());
        let passes = gate.clone();
        let pool = &test.core.sessions.state.pool;
        pool.spares().tell(move || passes.pass());
        let ann = test.session(1001, &[1001]);
        let has = |test: &TestCore| test.core.sessions.all[&ann].segments.clone();
        // What is made already is granted.
        let waits = (0..8).find_map(|_| {
            let before = has(&test);
            let granted = test.core.grant_segment(ann, true);
            granted.err().map(|errno| (errno, before))
        });
        assert_eq!(waits, Some((Errno::INPROGRESS, has(&test))));
        let again = test.core.grant_segment(ann, true).map(drop);
        assert_eq!(again, Err(Errno::INPROGRESS));
        // Who may not has one at once.
        let before = has(&test).len();
        let (segment, _) = test.core.grant_segment(ann, false).unwrap();
        assert_eq!(has(&test).last(), Some(&segment));
        assert_eq!(has(&test).len(), before + 1);
        gate.open();
        let since = Instant::now();
        while let Err(errno) = test.core.grant_segment(ann, true) {
            assert_eq!(errno, Errno::INPROGRESS);
            assert!(since.elapsed() < Duration::from_secs(20), "never made");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(has(&test).len(), before + 2);
    }
}
