//! Watching the pool's inodes by the kernel's inotify.
//!
//! A program's inotify descriptor is the kernel's, and stays so: what it reads, polls, duplicates, inherits and closes, how
//! events are merged and when there are too many, the kernel says. For each inode that somebody watches the controller
//! keeps a node on the host ([`host`]). Who may read the inode sends his descriptor, and the controller has that watch
//! the node. Then whatever is committed of the inode is done to the node, too, and the kernel tells of it.
//!
//! # Invariants
//! * Only what has been verified and committed is told, once, in the order in which it was, whoever did it.
//! * Nobody but the controller ever has a descriptor of a node. Who watches learns the names and changes of what he could
//!   read when he began; as with the kernel's own, that ends when he closes his descriptor.
//! * What there is on the host and in memory is bounded for each user ([`WATCHES_MAX`], [`NAMES_MAX`]), and goes soon after the
//!   last descriptor that watches it ([`Watched::sweep`]).

mod host;
mod instances;
mod left;
mod looks;
mod moves;
mod names;
mod telling;

use self::host::{Host, within};
use self::instances::{Instance, Instances, watched_by};
use self::left::Telling;
pub use super::nodes::Key;
use super::nodes::name;
use crate::state::watching::{Named, Watching};
use arck_core_state::InodeNumber;
use foldhash::{HashMap, HashSet};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::collections::hash_map::IntoIter;
use std::time::{Duration, Instant};

pub use self::host::remove_all;
pub use self::looks::{Found, Look, Looks};

/// Watches that a user has: as `fs.inotify.max_user_watches` of a small machine.
const WATCHES_MAX: usize = 16_384;
/// Names on the host for one user's watches. What has more than that is watched all the same: see [`Watched::name_at`].
const NAMES_MAX: usize = 131_072;
/// Names of one directory.
pub const NAMES_OF_ONE_MAX: usize = 8192;
/// Whoever writes is taken to be done when he has not changed anything for so long.
const DONE_WRITING: Duration = Duration::from_millis(500);
/// What has ended is removed in steps of so many nodes and names.
const ENDED_AT_ONCE: usize = 200;
/// Of an inode with more names than this, so many are told of.
const PLACES_TOLD: usize = 64;
/// A user who has too many watches has it looked what is left of them in one of so many parts of the time.
const LOOKED_IN: u32 = 20;
/// With more watches than half of all, it is looked which are left whenever there are so many more.
const LOOK_AFTER: usize = 1024;

/// What stands for an inode.
#[derive(Debug)]
struct Node {
    generation: u32,
    is_directory: bool,
    /// At whose instance it was made.
    user: u32,
    /// Where the name is that goes when it is moved or removed; 0: unknown.
    parent: InodeNumber,
    /// What it is called on the host.
    path: String,
    /// Its number there.
    number: u64,
    /// What there is in it.
    names: HashMap<Box<[u8]>, Entry>,
    watchers: HashSet<Instance>,
    /// No other node has had it.
    serial: u64,
    /// What was committed before that many changes is no matter of this.
    since: u64,
}

/// A node that is in use no more, and what is left in it.
#[derive(Debug)]
struct Ending {
    number: InodeNumber,
    serial: u64,
    is_directory: bool,
    user: u32,
    path: String,
    names: IntoIter<Box<[u8]>, Entry>,
}

/// A directory, the number of its node, and a name in it.
type Place = (InodeNumber, u64, Box<[u8]>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    inode: InodeNumber,
    is_directory: bool,
}

/// What is to be watched.
pub struct Asked {
    pub key: Key,
    pub is_directory: bool,
    pub user: u32,
    /// A directory in which it has a name; 0: unknown.
    pub parent: InodeNumber,
}

/// Everything that is watched.
#[derive(Default, Debug)]
pub struct Watched {
    /// Made at the first need.
    host: Option<Host>,
    nodes: HashMap<InodeNumber, Node>,
    instances: Instances,
    /// Where inodes stand in nodes.
    places: HashMap<InodeNumber, HashSet<Place>>,
    names_of: HashMap<u32, usize>,
    /// Files that have been changed, and when last, by who may not have closed them yet.
    written: HashMap<InodeNumber, Instant>,
    /// Of those, the ones that are still to be looked at.
    closing: Vec<InodeNumber>,
    ending: VecDeque<Ending>,
    /// The number of the last node.
    last: u64,
    /// Until when it is not looked again what is left of a user's watches.
    looked: HashMap<u32, Instant>,
    /// A change that is told in part.
    telling: Option<Telling>,
    /// The number of the change that is told.
    told: u64,
}

/// What cannot be done on the host is told to nobody.
fn told(done: Result<(), Errno>) {
    if let Err(errno) = done {
        tracing::debug!("a change is not told to who watches: {errno}");
    }
}

impl Watched {
    /// Whether there is anything for an inode.
    pub fn has(&self, (number, generation): Key) -> bool {
        let node = self.nodes.get(&number);
        node.is_some_and(|node| node.generation == generation)
    }

    pub fn is_any(&self) -> bool {
        !(self.nodes.is_empty() && self.ending.is_empty())
    }

    /// Whether a user has all the watches that he may have.
    pub fn has_too_many(&self, user: u32) -> bool {
        self.instances.watches_of(user) >= WATCHES_MAX
    }

    /// Makes a node for an inode that has none, with these names in it, which are those of the verified directory, and from
    /// now on whatever happens to it. ENOSPC.
    pub fn make(
        &mut self,
        pool: &OwnedFd,
        asked: &Asked,
        names: &[Named],
        watching: &mut Watching,
    ) -> Result<(), Errno> {
        let host = match self.host.take() {
            Some(host) => host,
            None => Host::new(pool)?,
        };
        let host = self.host.insert(host);
        let (number, generation) = asked.key;
        self.last += 1;
        let path = format!("{}-{}", name(asked.key), self.last);
        host.make(path.as_bytes(), asked.is_directory)?;
        let node = Node {
            generation,
            is_directory: asked.is_directory,
            user: asked.user,
            parent: asked.parent,
            number: host.number_of(&path)?,
            path,
            names: HashMap::default(),
            watchers: HashSet::default(),
            serial: self.last,
            since: watching.count(),
        };
        // What had this number before is gone, though that may not be told yet.
        self.end(number, watching);
        self.nodes.insert(number, node);
        watching.watch(number);
        watching.want(asked.parent);
        for named in names.iter().take(NAMES_OF_ONE_MAX) {
            if !self.has_room(number) {
                break;
            }
            self.make_anyway(named, watching);
        }
        Ok(())
    }

    /// Has a descriptor watch an inode that [has](Self::has) a node; the number of the watch. EINVAL if it is none of
    /// inotify's; what the kernel says.
    pub fn add(
        &mut self,
        number: InodeNumber,
        inotify: BorrowedFd<'_>,
        user: u32,
        mask: u32,
    ) -> Result<i32, Errno> {
        let instance = self.know(inotify, user)?;
        let known = self.instances.get_mut(instance);
        if known.is_some_and(|known| known.watched.len() >= known.look_at) {
            self.look_what_is_left(instance, inotify);
        }
        let node = self.nodes.get_mut(&number).ok_or(Errno::STALE)?;
        let host = self.host.as_ref().ok_or(Errno::STALE)?;
        let watch = host.watch(inotify, &node.path, mask)?;
        node.watchers.insert(instance);
        if let Some(known) = self.instances.get_mut(instance) {
            known.watched.insert(number);
        }
        Ok(watch)
    }

    /// Which instance a descriptor is of.
    fn know(&mut self, inotify: BorrowedFd<'_>, user: u32) -> Result<Instance, Errno> {
        let (instance, former) = self.instances.know(inotify, user)?;
        if let Some(known) = self.instances.get_mut(instance) {
            for of in &known.watched {
                if let Some(node) = self.nodes.get_mut(of) {
                    node.watchers.retain(|watcher| !former.contains(watcher));
                    node.watchers.insert(instance);
                }
            }
        }
        Ok(instance)
    }

    /// Where a user has too many watches, it is looked what is left of those of the descriptor that he has sent, unless
    /// it has been a moment ago.
    pub fn look_again(&mut self, inotify: BorrowedFd<'_>, user: u32) -> Result<(), Errno> {
        let began = Instant::now();
        let last = self.looked.get(&user);
        if last.is_some_and(|&not_before| began < not_before) {
            return Ok(());
        }
        let instance = self.know(inotify, user)?;
        self.look_what_is_left(instance, inotify);
        self.looked
            .insert(user, Instant::now() + began.elapsed() * LOOKED_IN);
        Ok(())
    }

    /// Forgets what a descriptor has watched and does no more. What nobody watches any more goes with the next sweep.
    fn look_what_is_left(&mut self, instance: Instance, inotify: BorrowedFd<'_>) {
        let (Some(known), Ok(left)) = (self.instances.get_mut(instance), watched_by(inotify))
        else {
            return;
        };
        let nodes = &mut self.nodes;
        known.watched.retain(|of| match nodes.get_mut(of) {
            Some(node) if left.contains(&node.number) => true,
            Some(node) => {
                node.watchers.remove(&instance);
                false
            }
            None => false,
        });
        let count = known.watched.len();
        let most = (count + LOOK_AFTER).max(WATCHES_MAX / 2);
        known.look_at = known.look_at.max(2 * count).min(most);
    }

    /// Takes out of use what nobody watches any more; whether that was anything. It [goes](Self::end_some) soon.
    pub fn sweep(&mut self, watching: &mut Watching) -> bool {
        for (instance, known) in self.instances.take_ended() {
            for of in known.watched {
                if let Some(node) = self.nodes.get_mut(&of) {
                    node.watchers.remove(&instance);
                }
            }
        }
        let unwatched = self
            .nodes
            .iter()
            .filter(|(_, node)| node.watchers.is_empty());
        let unwatched: Vec<InodeNumber> = unwatched.map(|(&number, _)| number).collect();
        for &number in &unwatched {
            self.end(number, watching);
        }
        !unwatched.is_empty()
    }

    /// At the controller's end.
    pub fn close(&mut self, pool: &OwnedFd) {
        self.nodes.clear();
        if self.host.take().is_some() {
            told(remove_all(pool));
        }
    }

    /// Whether somebody watches an inode that has a node.
    pub fn is_watched(&self, number: InodeNumber) -> bool {
        let node = self.nodes.get(&number);
        node.is_some_and(|node| !node.watchers.is_empty())
    }

    /// What was done before somebody began to watch an inode, and its names, is not told as closed.
    pub fn forget_written(&mut self, number: InodeNumber) {
        self.written.remove(&number);
        let Some(node) = self.nodes.get(&number) else {
            return;
        };
        for entry in node.names.values() {
            let others = self.places.get(&entry.inode).map_or(0, HashSet::len);
            if others <= 1 && !self.nodes.contains_key(&entry.inode) {
                self.written.remove(&entry.inode);
            }
        }
    }

    /// An inode is gone, or nobody watches it any more: so is what stands for it, and soon what is in that.
    fn end(&mut self, number: InodeNumber, watching: &mut Watching) {
        let Some(node) = self.nodes.remove(&number) else {
            return;
        };
        watching.want_no_more(node.parent);
        for watcher in &node.watchers {
            if let Some(known) = self.instances.get_mut(*watcher) {
                known.watched.remove(&number);
            }
        }
        watching.forget(number);
        match node.names.is_empty() {
            true if !node.watchers.is_empty() => {
                self.on_host(|host| host.remove(node.path.as_bytes(), node.is_directory));
            }
            _ => self.ending.push_back(Ending {
                number,
                serial: node.serial,
                is_directory: node.is_directory,
                user: node.user,
                path: node.path,
                names: node.names.into_iter(),
            }),
        }
    }

    /// Removes some of what has ended; whether there was anything.
    pub fn end_some(&mut self, watching: &mut Watching) -> bool {
        let mut left = ENDED_AT_ONCE;
        let any = !self.ending.is_empty();
        while left > 0
            && let Some(mut ending) = self.ending.pop_front()
        {
            for (name, entry) in ending.names.by_ref().take(left) {
                left -= 1;
                let path = within(&ending.path, &name);
                self.on_host(|host| host.remove(&path, entry.is_directory));
                let place = (ending.number, ending.serial, name);
                self.forget_entry(&place, entry, ending.user, watching);
            }
            if left == 0 {
                self.ending.push_front(ending);
                break;
            }
            left -= 1;
            self.on_host(|host| host.remove(ending.path.as_bytes(), ending.is_directory));
        }
        any
    }

    fn on_host(&mut self, done: impl FnOnce(&mut Host) -> Result<(), Errno>) -> bool {
        let done = self.host.as_mut().map_or(Err(Errno::NOENT), done);
        let is_done = done.is_ok();
        told(done);
        is_done
    }

    /// Does something to all that stands for an inode, or to many of them.
    fn at_all_places(
        &mut self,
        number: InodeNumber,
        done: impl Fn(&Host, &[u8], bool) -> Result<(), Errno>,
    ) {
        let Some(host) = &self.host else {
            return;
        };
        let places = self.places.get(&number).into_iter().flatten();
        for (directory, serial, name) in places.take(PLACES_TOLD) {
            if let Some(node) = self.nodes.get(directory)
                && node.serial == *serial
                && node.since <= self.told
                && let Some(entry) = node.names.get(name)
            {
                told(done(host, &within(&node.path, name), entry.is_directory));
            }
        }
        self.at_itself(number, done);
    }

    /// What there is in a node.
    pub fn inodes_in(&self, number: InodeNumber) -> impl Iterator<Item = InodeNumber> {
        let node = self.nodes.get(&number).into_iter();
        node.flat_map(|node| node.names.values().map(|entry| entry.inode))
    }

    fn at_itself(
        &mut self,
        number: InodeNumber,
        done: impl Fn(&Host, &[u8], bool) -> Result<(), Errno>,
    ) {
        if let (Some(host), Some(node)) = (&self.host, self.nodes.get(&number))
            && node.since <= self.told
        {
            told(done(host, node.path.as_bytes(), node.is_directory));
        }
    }

    fn move_itself(&mut self, number: InodeNumber) {
        if let (Some(host), Some(node)) = (&self.host, self.nodes.get_mut(&number)) {
            let other = match node.path.strip_suffix('+') {
                Some(own) => own.to_owned(),
                None => format!("{}+", node.path),
            };
            let moved = host.rename(node.path.as_bytes(), other.as_bytes());
            if moved.is_ok() {
                node.path = other;
            }
            told(moved);
        }
    }
}
