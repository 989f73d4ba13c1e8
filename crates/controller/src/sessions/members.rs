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

use crate::core::Core;
use crate::sessions::session::{Greeting, Live, Session};
use arck_controller_state::sessions::GROUPS_MAX;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::control::{ControlMemory, MEMBERS};
use arck_protocol::ring::Ring;
use arck_protocol::socket::Caller;
use arck_verifier::Credentials;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// What a group has besides its session.
pub struct Group {
    pub name: Vec<u8>,
    /// Control memory and region, for those who join.
    pub control: OwnedFd,
    pub region: OwnedFd,
}

/// The processes of a session.
#[derive(Default)]
pub struct Members {
    /// `None`: there is only one, and nobody joins.
    pub group: Option<Group>,
    /// Process ids by member number.
    processes: BTreeMap<u16, u32>,
    /// Those who were connected to an earlier controller, and have not come back: a bit each.
    expected: [u64; MEMBERS / 64],
}

/// The word of a set of members, and the bit in it.
fn place(member: u16) -> (usize, u64) {
    (usize::from(member) / 64, 1 << (member % 64))
}

impl Members {
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// How many processes there are.
    pub fn count(&self) -> usize {
        self.processes.len()
    }

    pub fn has(&self, member: u16) -> bool {
        self.processes.contains_key(&member)
    }

    /// Notes a process under a number that is free. EAGAIN if none is.
    pub fn add(&mut self, process: u32, control: &ControlMemory) -> Result<u16, Errno> {
        let member = self.free(control).ok_or(Errno::AGAIN)?;
        self.processes.insert(member, process);
        let (word, bit) = place(member);
        control.header.members[word].fetch_or(bit, Ordering::AcqRel);
        Ok(member)
    }

    /// Of a session that an earlier controller opened: whom that knew may come back.
    pub fn expect_back(&mut self, control: &ControlMemory) {
        self.expected = std::array::from_fn(|word| {
            let departed = control.header.departed[word].load(Ordering::Acquire);
            control.header.members[word].load(Ordering::Acquire) & !departed
        });
    }

    /// Whether any may come back.
    pub fn expects_any(&self) -> bool {
        self.expected.iter().any(|&word| word != 0)
    }

    /// Who may come back.
    pub fn expected(&self) -> impl Iterator<Item = u16> {
        numbers().filter(|&member| {
            let (word, bit) = place(member);
            self.expected[word] & bit != 0
        })
    }

    /// A number that is free.
    fn free(&self, control: &ControlMemory) -> Option<u16> {
        numbers().find(|member| {
            let (word, bit) = place(*member);
            let departed = control.header.departed[word].load(Ordering::Acquire);
            !self.has(*member) && (departed | self.expected[word]) & bit == 0
        })
    }

    /// Notes a process that had this number at an earlier controller. EBUSY if it is connected.
    pub fn come_back(&mut self, member: u16, process: u32) -> Result<(), Errno> {
        if self.has(member) {
            return Err(Errno::BUSY);
        }
        self.processes.insert(member, process);
        let (word, bit) = place(member);
        self.expected[word] &= !bit;
        Ok(())
    }

    /// Whether it was there, or waited for.
    fn remove(&mut self, member: u16, control: Option<&ControlMemory>) -> bool {
        let (word, bit) = place(member);
        if let Some(control) = control {
            control.header.members[word].fetch_and(!bit, Ordering::AcqRel);
        }
        let was_expected = self.expected[word] & bit != 0;
        self.expected[word] &= !bit;
        self.processes.remove(&member).is_some() || was_expected
    }

    fn is_named(&self, name: &[u8]) -> bool {
        self.group.as_ref().is_some_and(|group| group.name == name)
    }
}

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

impl Core {
    /// A place in a session of a group, if there is one that this process may join and that has a
    /// number left: a group of more processes has several sessions. EMFILE.
    pub fn join_session(
        &mut self,
        credentials: &Credentials,
        caller: &Caller,
    ) -> Option<Result<(SessionNumber, Greeting), Errno>> {
        let mut sessions = self.sessions.values_mut();
        let session = sessions.find(|session| session.may_join(credentials, caller, true))?;
        let number = session.number;
        let joined = session.join(caller.process);
        Some(joined.and_then(|(member, wake)| {
            let greeting = self.greeting(number, member, wake, false);
            if greeting.is_err()
                && let Some(session) = self.sessions.get_mut(&number)
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
            let mut sessions = self.sessions.values();
            sessions.any(|session| session.may_join(credentials, caller, is_made))
        };
        is_any(false) && !is_any(true)
    }

    /// A member says that its group's region is whole.
    pub fn note_region(&mut self, number: SessionNumber) {
        let session = self.sessions.get(&number);
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
        let Some(session) = self.sessions.get_mut(&number) else {
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
/// All numbers of members but the first process's.
fn numbers() -> impl Iterator<Item = u16> {
    (1..).take(MEMBERS - 1)
}
