//! Watching for programs, for who asks: see [`crate::handed::watching`].
//!
//! # Invariants
//! * Who watches may read the inode when he begins, by what its owner last made of it.
//! * What was done before a watch begins is not told by it.

use crate::core::Core;
use crate::fold::folding::After;
use crate::handed::watching::{Asked, Found, Key, NAMES_OF_ONE_MAX};
use crate::state::tables::buckets;
use crate::state::watching::Named;
use arck_core_state::directory::for_each_in_bucket;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, Inode, InodeNumber};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::time::Instant;

/// Inodes that are folded in one step.
const FOLDED_AT_ONCE: usize = 512;

impl Core {
    /// Has a descriptor watch an inode: see [`Call::AddWatch`](arck_protocol::socket::Call::AddWatch).
    pub fn add_watch(
        &mut self,
        session: SessionNumber,
        (key, parent): (Key, InodeNumber),
        inotify: BorrowedFd<'_>,
        mask: u32,
    ) -> Result<i32, Errno> {
        self.expect_open(session, key, None, 4)?;
        let user = self.sessions.user_of(session).ok_or(Errno::NOENT)?;
        if self.watched.has_too_many(user) {
            self.tidy_watched();
            if self.watched.has_too_many(user) {
                return Err(Errno::NOSPC);
            }
        }
        if !self.watched.has(key) {
            self.begin_to_watch((key, parent), user)?;
        }
        let is_new = !self.watched.is_watched(key.0);
        // What has been committed is not told to who comes only now; what owners have done before, neither.
        self.look_at_watched(Some(key.0));
        self.tell_all();
        if is_new {
            self.watched.forget_written(key.0);
        }
        if !self.watched.has(key) {
            return Err(Errno::STALE);
        }
        let watch = self.watched.add(key.0, inotify, user, mask);
        if watch.is_err() {
            self.tidy_watched();
        }
        self.looks.wake();
        watch
    }

    fn begin_to_watch(
        &mut self,
        (key, parent): (Key, InodeNumber),
        user: u32,
    ) -> Result<(), Errno> {
        self.tell_all();
        let header = self.sessions.state.header_of(key.0, key.1)?;
        let owner = header.ownership.session();
        if owner != 0 {
            // If that is refused, what is verified is what there is.
            let _ = self.access().fold(owner, &[key.0], After::Keep);
        }
        self.tell_all();
        let inode = *self.sessions.state.shadow(key.0).ok_or(Errno::STALE)?;
        let asked = Asked {
            key,
            is_directory: inode.kind() == Some(FileKind::Directory),
            user,
            parent: match inode.kind() {
                Some(FileKind::Directory) => inode.parent,
                _ => parent,
            },
        };
        let names = match asked.is_directory {
            true => self.names_of(&inode)?,
            false => Vec::new(),
        };
        let state = &mut self.sessions.state;
        let (pool, watching) = (&state.pool, &mut state.watching);
        pool.with_room(|| {
            self.watched
                .make(pool.directory(), &asked, &names, watching)
        })
    }

    /// The verified names of a directory, so many as stand for them on the host.
    fn names_of(&self, inode: &Inode) -> Result<Vec<Named>, Errno> {
        let mut names = Vec::new();
        for bucket in 0..buckets(inode) {
            let state = &self.sessions.state;
            for_each_in_bucket(state, inode.root, bucket, |dentry, _, name, _, _| {
                names.push(Named::new(inode.number, name.as_bytes(), dentry));
            })
            .map_err(|_| Errno::IO)?;
            if names.len() >= NAMES_OF_ONE_MAX {
                break;
            }
        }
        Ok(names)
    }

    /// When it is to be looked again what owners have changed.
    pub fn next_look(&self) -> Option<Instant> {
        let is_any = self.sessions.state.watching.is_any();
        self.looks.next().filter(|_| is_any)
    }

    /// Folds what owners have changed of what is watched, if it is time to look; and tells what has happened. Whether
    /// anything was to be done.
    pub fn tell_watchers(&mut self) -> bool {
        if !self.sessions.state.watching.is_any() {
            return false;
        }
        if self.sessions.state.watching.take_moved() {
            self.looks.wake();
        }
        let now = Instant::now();
        if self.looks.is_due(now) {
            let mut found = self.look_at_watched(None);
            if self.tell_all() {
                // What is in files that have come to be known by that.
                self.look_at_watched(None);
                self.tell_all();
                found = Found::Something;
            }
            if found == Found::Nothing && self.looks.becomes_quiet() {
                self.let_go_of_watched();
            }
            self.looks.looked(now, found);
            self.tell_closed();
        }
        self.tell_all()
    }

    /// Whether there was anything.
    fn tell_all(&mut self) -> bool {
        let watching = &mut self.sessions.state.watching;
        let has_next = watching.has_next();
        while let Some(happened) = watching.take_next() {
            self.watched.tell(&happened, watching);
        }
        has_next
    }

    fn tell_closed(&mut self) {
        if !self.watched.is_any_written() {
            return;
        }
        let sessions = &self.sessions;
        let is_open = |number: InodeNumber| {
            let Some(header) = sessions.state.header_copy(number) else {
                return false;
            };
            sessions.all.values().any(|session| {
                let live = session.live.as_ref();
                let lists =
                    live.is_some_and(|live| live.control().lists(number, header.generation));
                // What is there to be folded has to be told first.
                lists
                    || (header.ownership.session() == session.number
                        && session.has_branch(number, &header))
            })
        };
        self.watched.tell_closed(is_open);
    }

    /// Folds what owners have changed of what is watched.
    fn look_at_watched(&mut self, also: Option<InodeNumber>) -> Found {
        let state = &self.sessions.state;
        let mut changed: BTreeMap<SessionNumber, Vec<InodeNumber>> = BTreeMap::new();
        let mut is_owned = false;
        for number in state.watching.wanted().chain(also) {
            let Some(header) = state.header_copy(number) else {
                continue;
            };
            let owner = header.ownership.session();
            let Some(session) = self.sessions.all.get(&owner) else {
                continue;
            };
            is_owned = true;
            let is_refused = |number| {
                let owned = session.owned.get(number);
                owned.is_none_or(|owned| owned.refusal().is_some())
            };
            // Who is away does nothing with it meanwhile that would not wait.
            if session.has_branch(number, &header) && !session.is_away && !is_refused(number) {
                changed.entry(owner).or_default().push(number);
            }
        }
        let found = match (is_owned, changed.is_empty()) {
            (_, false) => Found::Something,
            (true, true) => Found::Nothing,
            (false, true) => Found::Nobody,
        };
        for (owner, mut numbers) in changed {
            numbers.sort_unstable();
            for numbers in numbers.chunks(FOLDED_AT_ONCE) {
                let folded = self.access().fold(owner, numbers, After::Keep);
                if folded.is_err() && numbers.len() > 1 {
                    // One of them need not keep who watches from what became of the others. Refusals are logged.
                    for &number in numbers {
                        let _ = self.access().fold(owner, &[number], After::Keep);
                    }
                }
            }
        }
        found
    }

    /// Owners that have changed nothing for a while own what is watched no longer: so nobody has to look at it.
    fn let_go_of_watched(&mut self) {
        let wanted: Vec<InodeNumber> = self.sessions.state.watching.wanted().collect();
        for numbers in wanted.chunks(FOLDED_AT_ONCE) {
            // Nobody asks: no session has the number 0.
            let _ = self.owners().recall(0, numbers);
        }
    }

    /// Removes what nobody watches any more: to be called now and then.
    pub fn tidy_watched(&mut self) {
        if self.watched.is_any() {
            self.watched.sweep(&mut self.sessions.state.watching);
        }
    }
}
