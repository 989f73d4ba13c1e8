//! What sessions may take of the memory of the pool's file system, and what is done with those who
//! take more.
//!
//! # Invariants
//! * The arenas of a user, those of ended sessions that somebody can still write included, have at
//!   most half of what others leave of the file system. Root and the pool's user may have all.
//! * A session of which a file has outgrown what it may take ([`crate::sessions::lent`]) is closed, which is
//!   logged; what was too much is taken back by a worker, as often as it is found.

use crate::pool::reach::Reach;
use crate::sessions::arena::Grown;
use crate::sessions::lent::{Allowance, Found, Lent, free_bytes};
use crate::sessions::log::Event;
use crate::sessions::{Remains, Sessions, TakenBack};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::layout;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::sync::mpsc::TryRecvError;

impl Sessions {
    /// Makes sure that a session's arena has so many pages, or that a worker sees to it. ENOSPC,
    /// also if its user has as much as he may have; EINVAL beyond the greatest size.
    pub fn grow_to(
        &mut self,
        number: SessionNumber,
        branch_pages: u32,
        delta_pages: u32,
    ) -> Result<Grown, Errno> {
        let session = self.all.get(&number).ok_or(Errno::NOENT)?;
        let (user, granted) = (session.credentials.uid, session.arena.granted());
        let pages = (branch_pages, delta_pages);
        let allowance = session.arena.allowance(number, pages)?;
        let more = session.arena.bytes_with(pages)?.saturating_sub(granted);
        if more != 0 && !self.may_take(user, more) {
            // What has just ended may be gone by now.
            self.remove_remains();
            if !self.may_take(user, more) {
                return Err(Errno::NOSPC);
            }
        }
        self.lookout.lend(Lent::Arena(number), allowance);
        let session = self.all.get_mut(&number).ok_or(Errno::NOENT)?;
        let grow = || session.arena.grow(branch_pages, delta_pages);
        let grown = self.state.pool.with_room(grow);
        crate::sessions::arena::store_pages(&self.state.pool, session.index, &session.arena);
        if grown.is_err() {
            let allowance = session.arena.allowance(number, session.arena.pages())?;
            self.lookout.lend(Lent::Arena(number), allowance);
        }
        grown
    }

    /// Makes sure that so many branch slots of a session are free, as far as there can be, or that
    /// a worker sees to it. ENOSPC.
    pub fn ensure_slots(&mut self, number: SessionNumber, count: usize) -> Result<Grown, Errno> {
        let session = self.all.get(&number).ok_or(Errno::NOENT)?;
        let delta_pages = session.arena.pages().1;
        match session.arena.pages_for_slots(count) {
            Some(branch_pages) => self.grow_to(number, branch_pages, delta_pages),
            None => Ok(Grown::Now),
        }
    }

    /// Whether the arenas of a user may have so many more bytes.
    pub(crate) fn may_take(&self, user: u32, more: u64) -> bool {
        if self.is_trusted(user) {
            return true;
        }
        let live = self.all.values();
        let live = live.filter(|session| session.credentials.uid == user);
        let live: u64 = live.map(|session| session.arena.granted()).sum();
        let remains = self.remains.values();
        let remains = remains.filter(|remains| remains.user == Some(user));
        let own = live + remains.map(|remains| remains.bytes).sum::<u64>();
        let free = free_bytes(self.state.pool.directory()).unwrap_or(0);
        own + more <= (own + free) / 2
    }

    /// Sessions of a user that have ended, and of whose arenas somebody keeps hold.
    pub fn count_remains(&self, user: u32) -> usize {
        let remains = self.remains.values();
        remains.filter(|remains| remains.user == Some(user)).count()
    }

    /// Looks from now on at a data segment that a session is about to be sent to write.
    pub fn lend_segment(&self, session: SessionNumber, user: u32, segment: u32) {
        let size = self.state.pool.geometry().segment_size;
        let allowance = Allowance {
            session,
            user,
            size,
            bytes: crate::sessions::lent::with_slack(size, 0),
        };
        self.lookout.lend(Lent::Segment(segment), allowance);
    }

    /// Looks at what sessions have left that ended before the controller was started.
    pub fn lend_leftovers(&self) {
        for segment in 0..self.state.pool.geometry().segment_count {
            let entry = self.state.space.entry(segment).unwrap_or_default();
            if entry.kind() == arck_controller_state::segments::SegmentKind::Data
                && !self.all.contains_key(&entry.owner)
                && entry.uid < arck_controller_state::segments::HIDDEN
                && self.state.pool.reach(&Lent::Segment(segment).name()) == Reach::Somebodys
            {
                self.lend_segment(0, entry.uid, segment);
                self.lookout.ended(Lent::Segment(segment));
            }
        }
    }

    /// A file was found to be more than it may be. Gives the session that is to be closed for
    /// that, if it is still there.
    pub fn outgrown(&mut self, lent: Lent, found: Found) -> Option<SessionNumber> {
        let allowance = self.lookout.allowance(lent)?;
        // It may have been given more since it was looked at, or be another's by now, with what was too
        // much taken back: nobody is closed for what is not so.
        let found = self.lookout.look_at(lent).unwrap_or(found);
        if !allowance.is_outgrown(found) {
            return None;
        }
        let session = allowance.session;
        let session_is = self.all.get(&session);
        let is_live = session_is.is_some_and(|session| !session.is_leaving);
        if is_live || !self.taken_back.contains_key(&lent) {
            let name = lent.name();
            tracing::warn!("session {session}: {name} is more than it may be, and cut: {found:?}");
            self.taken_back.insert(lent, TakenBack(None));
            let event = Event::Outgrown {
                session,
                file: name,
                size: found.size,
                bytes: found.bytes,
                allowed: allowance.bytes,
            };
            self.log_event_of(allowance.user, event);
        }
        is_live.then_some(session)
    }

    /// Has a worker take back what is too much of a file, whose session is gone.
    pub fn take_back(&mut self, lent: Lent) {
        let Some(allowance) = self.lookout.allowance(lent) else {
            return;
        };
        self.taken_back
            .retain(|&lent, _| self.lookout.allowance(lent).is_some());
        let Some(TakenBack(worker)) = self.taken_back.get_mut(&lent) else {
            return;
        };
        let is_at_it = worker
            .as_ref()
            .is_some_and(|worker| worker.try_recv() == Err(TryRecvError::Empty));
        if is_at_it {
            return;
        }
        let size = match lent {
            // Nothing in it counts any more.
            Lent::Arena(_) => 0,
            Lent::Segment(_) => allowance.size,
        };
        let pool = self.state.pool.directory();
        let cut = rustix::io::fcntl_dupfd_cloexec(pool, 0).and_then(|pool| {
            self.workers
                .start(allowance.user, move || cut(&pool, lent, size))
        });
        // Where there is no worker for it, when it is found again.
        *worker = cut.ok();
    }
}

/// Makes a file as long as this, with nothing allocated behind its end.
fn cut(pool: &OwnedFd, lent: Lent, size: u64) {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let done = rustix::fs::openat(pool, lent.name(), flags, Mode::empty())
        .and_then(|file| rustix::fs::ftruncate(file, size));
    match done {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => tracing::warn!("cutting {}: {errno}", lent.name()),
    }
}

impl Sessions {
    /// Removes the arenas of sessions that are gone, but for those that somebody can still write.
    pub fn remove_remains(&mut self) {
        let pool = &self.state.pool;
        let lookout = &self.lookout;
        self.remains.retain(|&session, _| {
            let lent = Lent::Arena(session);
            let stays = pool.reach(&lent.name()) == Reach::Somebodys;
            if !stays {
                pool.remove_file(&lent.name());
                lookout.forget(lent);
            }
            stays
        });
    }

    /// Notes the arenas whose session is in no table: it was being opened, or had just ended.
    pub fn find_remains(&mut self) {
        let folder = self.state.pool.path().join(layout::ARENAS);
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        for name in entries.flatten().map(|entry| entry.file_name()) {
            let Some(name) = name.to_str() else { continue };
            let (number, is_arena) = match name.split_once('.') {
                Some((number, _)) => (number, false),
                None => (name, true),
            };
            let Ok(session) = u32::from_str_radix(number, 16) else {
                continue;
            };
            if self.all.contains_key(&session) {
                continue;
            }
            if !is_arena {
                crate::sessions::fold_copies::remove(&self.state.pool, session);
                continue;
            }
            let bytes = arck_core_state::arena::ARENA_SPAN;
            let remains = Remains { user: None, bytes };
            self.remains.entry(session).or_insert(remains);
        }
        self.remove_remains();
    }
}
