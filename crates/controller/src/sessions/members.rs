//! The processes of a session: a trust group (DESIGN section 8).
//!
//! Programs of one user that give the name of a group share one session: what one of them owns all
//! of them own, and none pays for what another did. The first makes the session, others join it,
//! and it ends with the last. When all its numbers are taken, the next makes another session of the
//! same name.
//!
//! # Invariants
//! * Only a process with the same user, group and further groups joins: to others the name says
//!   nothing, and they get a session of their own under it.
//! * A member's number is given to no other process before the group has cleared away what the
//!   member left in its shared memory (`departed` in control memory), nor while it may come back that was
//!   connected to an earlier controller (`members` there). Nor does the session end before it is known
//!   that such a one has: it is away again when all others have gone.
//! * The region of a group is made by the session's first member, in a file that the controller has made
//!   and nobody can size; nobody joins before that member has said that it is whole. If it ends first, the
//!   session ends, and the region with it, in which nobody else has been.
//! * What is the kernel's or the controller's to know of a member ends with it: its
//!   operations in flight, its requests.

use crate::sessions::Sessions;
use crate::sessions::group::place;
use crate::sessions::sent::Greeting;
use crate::sessions::session::{Live, Session};
use arck_controller_state::sessions::GROUPS_MAX;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::ring::Ring;
use arck_protocol::socket::Caller;
use arck_verifier::Credentials;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Whether they are the same user with the same groups, as far as a session remembers them.
pub fn are_same(known: &Credentials, who: &Credentials) -> bool {
    let first = |groups: &[u32]| groups[..groups.len().min(GROUPS_MAX)].to_vec();
    (known.uid, known.gid) == (who.uid, who.gid) && first(&known.groups) == first(&who.groups)
}

/// What becomes of a session when one of its processes has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Nobody is left: it ends.
    Nobody,
    /// Others are. Of these request slots (a bit set) nobody waits for the answer any more.
    Others(u32),
    /// The same; but none of the others has come back to this controller yet.
    Away(u32),
}

impl Sessions {
    /// A place in a session of a group, if there is one that this process may join and that has a
    /// number left: a group of more processes has several sessions. EMFILE.
    pub fn join_session(
        &mut self,
        credentials: &Credentials,
        caller: &Caller,
    ) -> Option<Result<(SessionNumber, Greeting), Errno>> {
        let mut sessions = self.all.values_mut();
        let session = sessions.find(|session| session.may_join(credentials, caller, true))?;
        let number = session.number;
        let joined = session.join(caller.process);
        Some(joined.and_then(|(member, wake)| {
            let greeting = self.greeting(number, member, wake, false);
            if greeting.is_err()
                && let Some(session) = self.all.get_mut(&number)
            {
                let control = session.live.as_ref().map(Live::control);
                session.members.remove(member, control);
            }
            Ok((number, greeting?))
        }))
    }

    /// Whether there is a session that this process may join as soon as its region is whole, and none
    /// that it may join now.
    pub fn may_join_soon(&self, credentials: &Credentials, caller: &Caller) -> bool {
        let is_any = |is_made| {
            let mut sessions = self.all.values();
            sessions.any(|session| session.may_join(credentials, caller, is_made))
        };
        is_any(false) && !is_any(true)
    }

    /// A member says that its group's region is whole.
    pub fn note_region(&mut self, number: SessionNumber) {
        let session = self.all.get(&number);
        if let Some(live) = session.and_then(|session| session.live.as_ref()) {
            live.control()
                .header
                .region_made
                .store(1, Ordering::Release);
        }
    }

    /// A process of a session has gone, whatever it was doing. What it has asked and nobody has
    /// begun to do is the caller's to forget.
    pub fn leave_session(&mut self, number: SessionNumber, member: u16) -> Left {
        let Some(session) = self.all.get_mut(&number) else {
            return Left::Nobody;
        };
        let control = session.live.as_ref().map(Live::control);
        let removed = session.members.remove(member, control);
        let left = |submitted| match session.members.is_empty() {
            false => Left::Others(submitted),
            true if session.members.expects_any() => Left::Away(submitted),
            true => Left::Nobody,
        };
        match (removed, left(0)) {
            (false, left) | (_, left @ Left::Nobody) => return left,
            (true, _) => {}
        }
        let mut submitted = 0;
        if let Some(live) = &session.live {
            let control = live.control();
            for slot in control
                .operations()
                .iter()
                .filter(|slot| slot.is_of(member))
            {
                slot.clear();
            }
            submitted = Ring::of(control, member).leave();
            let (word, bit) = place(member);
            control.header.departed[word].fetch_or(bit, Ordering::AcqRel);
        }
        left(submitted)
    }
}

impl Session {
    /// Whether a process may join: it is of the group and of the same user, there is a number for it, and
    /// the region is whole, or (`is_made`) is not.
    fn may_join(&self, credentials: &Credentials, caller: &Caller, is_made: bool) -> bool {
        !caller.group.is_empty()
            && self.members.is_named(&caller.group)
            && are_same(&self.credentials, credentials)
            && self
                .live
                .as_ref()
                .map(Live::control)
                .is_some_and(|control| {
                    let made = control.header.region_made.load(Ordering::Acquire) != 0;
                    made == is_made && self.members.free(control).is_some()
                })
    }

    /// The process for which the session is opened.
    pub fn join_as_first(&mut self, process: u32) -> Result<u16, Errno> {
        let live = self.live.as_ref().ok_or(Errno::AGAIN)?;
        self.members.add(process, live.control())
    }

    fn join(&mut self, process: u32) -> Result<(u16, OwnedFd), Errno> {
        let live = self.live.as_ref().ok_or(Errno::AGAIN)?;
        let wake = rustix::io::fcntl_dupfd_cloexec(&live.wake, 0)?;
        let member = self.members.add(process, Live::control(live))?;
        Ok((member, wake))
    }
}
