//! What sessions are sent, and what is kept for them.

use crate::sessions::fold_copies::FOLD_COPY_BYTES;
use crate::sessions::session::{Live, Session};
use crate::sessions::{Sessions, arena};
use arck_controller_state::segments::SegmentKind;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{SegmentNumber, layout};
use arck_protocol::socket::Welcome;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// What a new session is sent, in this order (see [`arck_protocol::socket::Answer::Welcome`]).
pub type Greeting = (Welcome, Vec<OwnedFd>);

fn reopen(descriptor: &OwnedFd) -> Result<OwnedFd, Errno> {
    // Files that a session handed in can be its own, with a lease: then EAGAIN, and nobody waits.
    rustix::fs::open(
        format!("/proc/self/fd/{}", descriptor.as_raw_fd()),
        OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    )
}

impl Sessions {
    /// What the sessions of a session's user have to be few at a time. ESTALE, ENFILE, ENOMEM.
    pub(crate) fn gates_of(&mut self, session: SessionNumber) -> Result<OwnedFd, Errno> {
        let session = self.all.get(&session).ok_or(Errno::STALE)?;
        reopen(self.gates.of(session.credentials.uid)?)
    }

    /// A session of a user has gone.
    pub(crate) fn forget_gates(&mut self, user: u32) {
        let mut all = self.all.values();
        let has_one = || all.any(|session| session.credentials.uid == user);
        self.gates.left(user, has_one);
    }

    /// After a fold of a session's: the fold copies of all sessions of its user together take no more
    /// than [`FOLD_COPY_BYTES`], but for the last. Root and the pool's user may have so much for each.
    pub(crate) fn bound_fold_copies(&mut self, last: SessionNumber) {
        let Some(user) = self.all.get(&last).map(|s| s.credentials.uid) else {
            return;
        };
        if self.is_trusted(user) {
            return;
        }
        let pool = &self.state.pool;
        let sessions = &mut self.all;
        let total = |sessions: &BTreeMap<SessionNumber, Session>| -> usize {
            let of_user = sessions.values().filter(|s| s.credentials.uid == user);
            of_user.map(|s| s.fold_copies.bytes()).sum()
        };
        if total(sessions) <= FOLD_COPY_BYTES {
            return;
        }
        for session in sessions.values_mut().filter(|s| s.credentials.uid == user) {
            let control = session.live.as_ref().map(Live::control);
            let whose = session.whose();
            session.fold_copies.drop_asked(pool, whose, control);
        }
        let mut left = total(sessions);
        while left > FOLD_COPY_BYTES {
            let candidates = sessions.values_mut().filter(|session| {
                let may_lose = session.number != last || session.fold_copies.len() > 1;
                session.credentials.uid == user && may_lose
            });
            let most = candidates.max_by_key(|session| session.fold_copies.bytes());
            let lost = most.map_or(0, |session| {
                let whose = session.whose();
                session.fold_copies.lose_oldest(pool, whose)
            });
            match lost {
                0 => return,
                bytes => left -= bytes,
            }
        }
    }

    /// Whether a user may take all that there is: root, and the pool's own.
    pub fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || uid == self.state.pool.superblock().uid
    }

    /// What a new member of a session is sent.
    pub(crate) fn greeting(
        &self,
        number: SessionNumber,
        member: u16,
        wake: OwnedFd,
        makes_region: bool,
    ) -> Result<Greeting, Errno> {
        let session = self.all.get(&number).ok_or(Errno::STALE)?;
        let group = session.members.group.as_ref().ok_or(Errno::STALE)?;
        let pool = &self.state.pool;
        let entry = arena::entry(pool, session.index).ok_or(Errno::STALE)?;
        let mut descriptors = vec![
            pool.open_file(layout::HEADERS, OFlags::RDONLY)?,
            pool.open_file(layout::PAGE_BITMAP, OFlags::RDONLY)?,
            reopen(&group.control)?,
            wake,
            reopen(&group.region)?,
            crate::sessions::arena::open_arena(pool, number, member)?,
        ];
        if let Some(page) = &self.medium {
            descriptors.push(reopen(page)?);
        }
        let superblock = pool.superblock();
        let (branch_pages, delta_pages) = session.arena.pages();
        let welcome = Welcome {
            session: number,
            member,
            geometry: superblock.geometry,
            uuid: superblock.uuid,
            hash_seed: superblock.hash_seed,
            durability: superblock.durability as u32,
            flush: u32::from(pool.flushes()),
            branch_pages,
            delta_pages,
            secret: entry.secret,
            makes_region,
            user: session.credentials.uid,
            user_group: session.credentials.gid,
        };
        Ok((welcome, descriptors))
    }

    /// Descriptors of segments: of the session's own to write, if that is wanted, else to read. EACCES for a segment of
    /// nobody's or beyond the table, and for one of a class that the session is not in.
    pub fn map_segments(
        &mut self,
        session: SessionNumber,
        segments: &[SegmentNumber],
        to_write: bool,
    ) -> Result<Vec<OwnedFd>, Errno> {
        let Sessions {
            state,
            all: sessions,
            leaving,
            ..
        } = self;
        let session = sessions.get_mut(&session).ok_or(Errno::NOENT)?;
        let mut descriptors = Vec::with_capacity(segments.len());
        for &segment in segments {
            let entry = state.space.entry(segment).ok_or(Errno::ACCESS)?;
            let is_own = entry.kind() == SegmentKind::Data && entry.owner == session.number;
            let is_together =
                to_write && !is_own && state.may_write_together(&session.credentials, &entry);
            if entry.kind() == SegmentKind::Free
                || !(is_own || is_together || state.admits(entry.class, &session.credentials))
            {
                return Err(Errno::ACCESS);
            }
            let access = match (is_own || is_together) && to_write {
                true => OFlags::RDWR,
                false => OFlags::RDONLY,
            };
            if is_together {
                state.space.note_writer(segment, &session.credentials);
                // Who can write it was asked before.
                leaving.remove(&entry.file);
            }
            descriptors.push(state.pool.open_segment(segment, access)?);
            if session.mapped.insert(segment) {
                state.space.note_sent(segment, true);
            }
        }
        Ok(descriptors)
    }
}
