//! Watching for programs, for who asks: see [`crate::handed::watching`].
//!
//! # Invariants
//! * Who watches may read the inode when he begins, by what its owner last made of it.
//! * What was done before a watch begins is not told by it, unless there is more of that than can be told in one turn.
//! * However much is watched, and has happened to it, one turn looks at and tells a bounded part of it.

use crate::core::Core;
use crate::fold::folding::After;
use crate::handed::watching::{Asked, Found, Key, Look, NAMES_OF_ONE_MAX};
use crate::state::tables::buckets;
use crate::state::watching::Named;
use arck_core_state::directory::for_each_in_bucket;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, Inode, InodeNumber};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Inodes that are folded in one step.
const FOLDED_AT_ONCE: usize = 512;
/// Inodes that are looked at in one turn.
const LOOKED_AT_ONCE: usize = 1024;
/// So long who watches is told of things in one turn.
const TURN: Duration = Duration::from_millis(2);
/// Who may look up names in a directory may ask for what happens to them.
const SEARCH: u32 = 1;

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
            self.watched.look_again(inotify, user)?;
            self.tidy_watched();
            if self.watched.has_too_many(user) {
                return Err(Errno::NOSPC);
            }
        }
        let is_new = !self.watched.is_watched(key.0);
        // What has been committed is not told to who comes only now; what owners have done before, neither.
        if self.watched.has(key) {
            let within: Vec<InodeNumber> = self.watched.inodes_in(key.0).collect();
            self.look_at([key.0].into_iter().chain(within).take(LOOKED_AT_ONCE));
            self.tell_until(Instant::now() + TURN);
        }
        // It may be gone by what was told.
        if !self.watched.has(key) {
            self.begin_to_watch(session, (key, parent), user)?;
        }
        if is_new {
            self.watched.forget_written(key.0);
        }
        let watch = self.watched.add(key.0, inotify, user, mask);
        if watch.is_err() {
            self.tidy_watched();
        }
        self.looks.wake();
        watch
    }

    /// A node is told of what is committed from now on.
    fn begin_to_watch(
        &mut self,
        session: SessionNumber,
        (key, parent): (Key, InodeNumber),
        user: u32,
    ) -> Result<(), Errno> {
        // If that is refused, what is verified is what there is.
        self.look_at([key.0].into_iter());
        let (mut inode, mut names) = self.what_to_watch(key)?;
        let within: Vec<InodeNumber> = names.iter().map(|named| named.inode).collect();
        if self.look_at(within.into_iter().take(LOOKED_AT_ONCE)) == Found::Something {
            (inode, names) = self.what_to_watch(key)?;
        }
        self.tell_until(Instant::now() + TURN);
        let is_directory = inode.kind() == Some(FileKind::Directory);
        let asked = Asked {
            key,
            is_directory,
            user,
            parent: match is_directory {
                true => inode.parent,
                false => self.parent_as_told(session, parent),
            },
        };
        let state = &mut self.sessions.state;
        let (pool, watching) = (&state.pool, &mut state.watching);
        pool.with_room(|| {
            self.watched
                .make(pool.directory(), &asked, &names, watching)
        })
    }

    /// A directory in which a session says that it has found something, if its user may look things up there; else 0.
    fn parent_as_told(&self, session: SessionNumber, parent: InodeNumber) -> InodeNumber {
        let sessions = &self.sessions;
        let inode = sessions.state.shadow(parent);
        let is_directory = inode.is_some_and(|inode| inode.kind() == Some(FileKind::Directory));
        let may = || {
            sessions.may_open(session, parent, SEARCH)
                || sessions.may_be_told(session, parent, SEARCH).is_ok()
        };
        match is_directory && may() {
            true => parent,
            false => 0,
        }
    }

    /// An inode as it was verified, and the names that it has as a directory.
    fn what_to_watch(&self, (number, generation): Key) -> Result<(Inode, Vec<Named>), Errno> {
        let inode = *self.sessions.state.shadow(number).ok_or(Errno::STALE)?;
        if inode.generation != generation {
            return Err(Errno::STALE);
        }
        let names = match inode.kind() {
            Some(FileKind::Directory) => self.names_of(&inode)?,
            _ => Vec::new(),
        };
        Ok((inode, names))
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
    /// anything was to be done, of which some may be left for the next turn.
    pub fn tell_watchers(&mut self) -> bool {
        if !self.watched.is_any() {
            return false;
        }
        let until = Instant::now() + TURN;
        let mut busy = self.watched.end_some(&mut self.sessions.state.watching);
        if !self.sessions.state.watching.is_any() {
            self.watched.tell_nothing(&mut self.sessions.state.watching);
            return busy;
        }
        if self.sessions.state.watching.take_moved() {
            self.looks.wake();
        }
        busy |= self.tell_until(until);
        if self.watched.is_telling(&self.sessions.state.watching) {
            return true;
        }
        if self.looks.is_due(Instant::now()) {
            busy |= self.look_at_some(until) == Found::Something;
        }
        busy |= self.let_go_of_some();
        if !self.watched.is_telling(&self.sessions.state.watching) {
            busy |= self.tell_closed(until);
        }
        busy
    }

    /// Whether there was anything.
    fn tell_until(&mut self, until: Instant) -> bool {
        self.watched.tell(&mut self.sessions.state.watching, until)
    }

    /// Looks at some of what is watched; when it was looked at everything, files are closed that nobody has open.
    /// What has been found at this turn.
    fn look_at_some(&mut self, until: Instant) -> Found {
        let began = Instant::now();
        let mut look = self.looks.take_look();
        let wanted = self.sessions.state.watching.wanted(look.from);
        let some: Vec<InodeNumber> = wanted.take(LOOKED_AT_ONCE).collect();
        let next = match some.len() {
            LOOKED_AT_ONCE => some.last().and_then(|last| last.checked_add(1)),
            _ => None,
        };
        let found = self.look_at(some.into_iter());
        look.found = look.found.max(found);
        self.tell_until(until);
        look.spent += began.elapsed();
        match next {
            Some(from) => self.looks.go_on(Look { from, ..look }),
            // What is in files that have come to be known by that.
            None if look.found == Found::Something && !look.is_again => {
                let again = Look {
                    from: 0,
                    is_again: true,
                    ..look
                };
                self.looks.go_on(again);
            }
            None => {
                if look.found == Found::Nothing && self.looks.becomes_quiet() {
                    self.looks.lets_go_from(0);
                }
                self.looks.looked(look.spent, look.found);
                self.watched.begin_to_close();
            }
        }
        found
    }

    /// Whether some are left.
    fn tell_closed(&mut self, until: Instant) -> bool {
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
        self.watched.tell_closed(is_open, until)
    }

    /// Folds what owners have changed of some inodes.
    fn look_at(&mut self, numbers: impl Iterator<Item = InodeNumber>) -> Found {
        let state = &self.sessions.state;
        let mut changed: BTreeMap<SessionNumber, Vec<InodeNumber>> = BTreeMap::new();
        let mut is_owned = false;
        for number in numbers {
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

    /// Owners that have changed nothing for a while own what is watched no longer: so nobody has to look at it. Whether some
    /// are left.
    fn let_go_of_some(&mut self) -> bool {
        let Some(from) = self.looks.take_letting_go() else {
            return false;
        };
        let wanted = self.sessions.state.watching.wanted(from);
        let some: Vec<InodeNumber> = wanted.take(FOLDED_AT_ONCE).collect();
        // Nobody asks: no session has the number 0.
        let _ = self.owners().recall(0, &some);
        let next = match some.len() {
            FOLDED_AT_ONCE => some.last().and_then(|last| last.checked_add(1)),
            _ => None,
        };
        if let Some(next) = next {
            self.looks.lets_go_from(next);
        }
        next.is_some()
    }

    /// Removes what nobody watches any more: to be called now and then.
    pub fn tidy_watched(&mut self) {
        if self.watched.is_any() {
            self.watched.sweep(&mut self.sessions.state.watching);
        }
    }
}
