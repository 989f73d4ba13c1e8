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
mod looks;
mod moves;

use self::host::{Host, Path, within};
use self::instances::{Instance, Instances, watched_by};
use self::moves::{Step, steps};
pub use super::nodes::Key;
use super::nodes::name;
use crate::state::watching::{Became, Happened, Named, Watching};
use arck_core_state::InodeNumber;
use foldhash::{HashMap, HashSet};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::time::{Duration, Instant};

pub use self::host::remove_all;
pub use self::looks::{Found, Looks};

/// Watches that a user has: as `fs.inotify.max_user_watches` of a small machine.
const WATCHES_MAX: usize = 16_384;
/// Names on the host for one user's watches. What has more than that is watched all the same: see [`Watched::name_at`].
const NAMES_MAX: usize = 131_072;
/// Names of one directory.
pub const NAMES_OF_ONE_MAX: usize = 8192;
/// Whoever writes is taken to be done when he has not changed anything for so long.
const DONE_WRITING: Duration = Duration::from_millis(500);

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
}

/// A directory, and a name in it.
type Place = (InodeNumber, Box<[u8]>);

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
    places: HashMap<InodeNumber, Vec<Place>>,
    names_of: HashMap<u32, usize>,
    /// Files that have been changed, and when last, by who may not have closed them yet.
    written: HashMap<InodeNumber, Instant>,
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
        !self.nodes.is_empty()
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
        let path = name(asked.key);
        let (number, generation) = asked.key;
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
        };
        self.nodes.insert(number, node);
        watching.watch(number);
        watching.want(asked.parent);
        let room = NAMES_MAX.saturating_sub(self.names_of.get(&asked.user).copied().unwrap_or(0));
        for named in names.iter().take(room.min(NAMES_OF_ONE_MAX)) {
            self.make_name(named, watching);
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
        let (instance, former) = self.instances.know(inotify, user)?;
        if let Some(known) = self.instances.get_mut(instance) {
            for of in &known.watched {
                if let Some(node) = self.nodes.get_mut(of) {
                    node.watchers.retain(|watcher| !former.contains(watcher));
                    node.watchers.insert(instance);
                }
            }
            if known.watched.len() >= known.look_at {
                self.look_what_is_left(instance, inotify);
            }
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
        known.look_at = known.look_at.max(2 * known.watched.len());
    }

    /// Removes what nobody watches any more; whether that was anything.
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

    /// Tells what one change has done.
    pub fn tell(&mut self, happened: &Happened, watching: &mut Watching) {
        let became: HashMap<InodeNumber, Became> = happened.inodes.iter().copied().collect();
        let mut moved: Vec<(InodeNumber, InodeNumber)> = Vec::new();
        for step in steps(happened) {
            match step {
                Step::Remove(named) => self.remove_name(named, watching),
                Step::Move(from, to) => {
                    moved.push((from.inode, to.directory));
                    self.move_name(from, to, watching);
                }
                Step::Exchange(both) => {
                    moved.extend(both.map(|(from, to)| (from.inode, to.directory)));
                    self.exchange_names(both, watching);
                }
                Step::Leave(from) => self.leave(from, watching),
                Step::Arrive(to) => {
                    moved.push((to.inode, to.directory));
                    self.arrive(to, watching);
                }
                Step::Make { named, replaces } => {
                    match replaces {
                        true => self.arrive(named, watching),
                        false => self.make_name(named, watching),
                    }
                    self.tell_new(named, became.get(&named.inode));
                }
            }
        }
        let now = Instant::now();
        for &(number, became) in &happened.inodes {
            if became.is_gone {
                self.written.remove(&number);
                self.end(number, watching);
                continue;
            }
            if became.is_new {
                continue;
            }
            if became.has_other_data {
                self.at_all_places(number, |host, path, _| host.modify(path));
                if became.is_file {
                    self.written.insert(number, now);
                }
            }
            if became.has_other_attributes {
                self.at_all_places(number, Host::attribute);
            }
            if became.has_other_links {
                self.at_itself(number, Host::attribute);
            }
        }
        for (number, to) in moved {
            self.move_itself(number);
            if let Some(node) = self.nodes.get_mut(&number) {
                watching.want_no_more(std::mem::replace(&mut node.parent, to));
                watching.want(to);
            }
        }
    }

    fn tell_new(&mut self, named: &Named, became: Option<&Became>) {
        let Some(became) = became.filter(|became| became.is_new) else {
            return;
        };
        if became.has_other_data
            && let Some(path) = self.path_of(named)
        {
            self.on_host(|host| host.modify(&path));
        }
        if became.is_file && self.places.contains_key(&named.inode) {
            self.written.insert(named.inode, Instant::now());
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
            let others = self.places.get(&entry.inode).map_or(0, Vec::len);
            if others <= 1 && !self.nodes.contains_key(&entry.inode) {
                self.written.remove(&entry.inode);
            }
        }
    }

    /// Whether somebody may still write what has been changed.
    pub fn is_any_written(&self) -> bool {
        !self.written.is_empty()
    }

    /// Tells of files that have been changed, and that nobody has open any more, that they were closed.
    pub fn tell_closed(&mut self, is_open: impl Fn(InodeNumber) -> bool) {
        let written = &mut self.written;
        let closed: Vec<InodeNumber> = written
            .extract_if(|&number, &mut since| since.elapsed() > DONE_WRITING || !is_open(number))
            .map(|(number, _)| number)
            .collect();
        for number in closed {
            self.at_all_places(number, |host, path, is_directory| match is_directory {
                true => Ok(()),
                false => host.close_written(path),
            });
        }
    }

    fn on_host(&mut self, done: impl FnOnce(&mut Host) -> Result<(), Errno>) -> bool {
        let done = self.host.as_mut().map_or(Err(Errno::NOENT), done);
        let is_done = done.is_ok();
        told(done);
        is_done
    }

    fn path_of(&self, named: &Named) -> Option<Path> {
        let node = self.nodes.get(&named.directory)?;
        node.names.get(&named.name)?;
        Some(within(&node.path, &named.name))
    }

    /// Does something to all that stands for an inode.
    fn at_all_places(
        &mut self,
        number: InodeNumber,
        done: impl Fn(&Host, &[u8], bool) -> Result<(), Errno>,
    ) {
        let Some(host) = &self.host else {
            return;
        };
        for (directory, name) in self.places.get(&number).into_iter().flatten() {
            if let Some(node) = self.nodes.get(directory)
                && let Some(entry) = node.names.get(name)
            {
                told(done(host, &within(&node.path, name), entry.is_directory));
            }
        }
        self.at_itself(number, done);
    }

    fn at_itself(
        &mut self,
        number: InodeNumber,
        done: impl Fn(&Host, &[u8], bool) -> Result<(), Errno>,
    ) {
        if let (Some(host), Some(node)) = (&self.host, self.nodes.get(&number)) {
            told(done(host, node.path.as_bytes(), node.is_directory));
        }
    }

    fn move_itself(&mut self, number: InodeNumber) {
        if let (Some(host), Some(node)) = (&self.host, self.nodes.get_mut(&number)) {
            let own = name((number, node.generation));
            let other = match node.path == own {
                true => format!("{own}+"),
                false => own,
            };
            let moved = host.rename(node.path.as_bytes(), other.as_bytes());
            if moved.is_ok() {
                node.path = other;
            }
            told(moved);
        }
    }

    /// An inode is gone, or nobody watches it any more: so is what stands for it, and what is in that.
    fn end(&mut self, number: InodeNumber, watching: &mut Watching) {
        let Some(node) = self.nodes.get(&number) else {
            return;
        };
        let left = node.names.iter().map(|(name, entry)| Named {
            directory: number,
            name: name.clone(),
            inode: entry.inode,
            is_directory: entry.is_directory,
        });
        for named in left.collect::<Vec<_>>() {
            self.remove_name(&named, watching);
        }
        if let Some(node) = self.nodes.remove(&number) {
            watching.want_no_more(node.parent);
            self.on_host(|host| host.remove(node.path.as_bytes(), node.is_directory));
            for watcher in node.watchers {
                if let Some(known) = self.instances.get_mut(watcher) {
                    known.watched.remove(&number);
                }
            }
        }
        watching.forget(number);
    }

    /// The place of a name that is about to go or be moved away. One that is not on the host, since its directory has too many, is
    /// made first.
    fn name_at(&mut self, named: &Named, watching: &mut Watching) -> Option<Path> {
        let node = self.nodes.get(&named.directory)?;
        if !node.names.contains_key(&named.name) {
            self.make_name(named, watching);
        }
        self.path_of(named)
    }

    fn note(&mut self, named: &Named, watching: &mut Watching) {
        let Some(node) = self.nodes.get_mut(&named.directory) else {
            return;
        };
        let entry = Entry {
            inode: named.inode,
            is_directory: named.is_directory,
        };
        let user = node.user;
        let old = node.names.insert(named.name.clone(), entry);
        *self.names_of.entry(user).or_default() += 1;
        let place = (named.directory, named.name.clone());
        self.places.entry(named.inode).or_default().push(place);
        watching.want(named.inode);
        if let Some(old) = old {
            self.forget_entry(named, old, user, watching);
        }
    }

    fn forget(&mut self, named: &Named, watching: &mut Watching) {
        if let Some(node) = self.nodes.get_mut(&named.directory)
            && let Some(entry) = node.names.remove(&named.name)
        {
            let user = node.user;
            self.forget_entry(named, entry, user, watching);
        }
    }

    fn forget_entry(&mut self, named: &Named, entry: Entry, user: u32, watching: &mut Watching) {
        if let Some(count) = self.names_of.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.names_of.remove(&user);
            }
        }
        if let Some(places) = self.places.get_mut(&entry.inode) {
            let is_here =
                |(directory, name): &Place| (*directory, name) == (named.directory, &named.name);
            if let Some(at) = places.iter().position(is_here) {
                places.swap_remove(at);
            }
            if places.is_empty() {
                self.places.remove(&entry.inode);
            }
        }
        watching.want_no_more(entry.inode);
    }

    fn make_name(&mut self, named: &Named, watching: &mut Watching) {
        let Some(node) = self.nodes.get(&named.directory) else {
            return;
        };
        if node.names.contains_key(&named.name) {
            self.remove_name(named, watching);
        }
        let Some(node) = self.nodes.get(&named.directory) else {
            return;
        };
        let path = within(&node.path, &named.name);
        if self.on_host(|host| host.make(&path, named.is_directory)) {
            self.note(named, watching);
        }
    }

    fn remove_name(&mut self, named: &Named, watching: &mut Watching) {
        if let Some(path) = self.name_at(named, watching) {
            // It may be something else there than what is told.
            let node = self.nodes.get(&named.directory);
            let entry = node.and_then(|node| node.names.get(&named.name)).copied();
            let is_directory = entry.map_or(named.is_directory, |entry| entry.is_directory);
            self.on_host(|host| host.remove(&path, is_directory));
            self.forget(named, watching);
        }
    }

    /// Puts what stands at one place at another, where something may be.
    fn put(&mut self, from: &[u8], to: &Named, watching: &mut Watching) {
        let Some(node) = self.nodes.get(&to.directory) else {
            return;
        };
        let path = within(&node.path, &to.name);
        let there = node.names.get(&to.name).copied();
        if there.is_some_and(|there| there.is_directory != to.is_directory) {
            self.remove_name(to, watching);
        }
        if self.on_host(|host| host.rename(from, &path)) {
            self.note(to, watching);
        }
    }

    fn move_name(&mut self, from: &Named, to: &Named, watching: &mut Watching) {
        let is_watched = |named: &Named| self.nodes.contains_key(&named.directory);
        match (is_watched(from), is_watched(to)) {
            (true, true) => {
                if let Some(path) = self.name_at(from, watching) {
                    self.put(&path, to, watching);
                    self.forget(from, watching);
                }
            }
            (true, false) => self.leave(from, watching),
            (false, true) => self.arrive(to, watching),
            (false, false) => {}
        }
    }

    fn exchange_names(&mut self, both: [(&Named, &Named); 2], watching: &mut Watching) {
        let [(one, other), _] = both;
        let is_watched = |named: &Named| self.nodes.contains_key(&named.directory);
        if !(is_watched(one) && is_watched(other)) {
            for (from, _) in both {
                self.leave(from, watching);
            }
            for (_, to) in both {
                self.arrive(to, watching);
            }
            return;
        }
        let places = [one, other].map(|named| self.name_at(named, watching));
        if let [Some(first), Some(second)] = places
            && self.on_host(|host| host.exchange(&first, &second))
        {
            for (_, to) in both {
                self.note(to, watching);
            }
        }
    }

    /// IN_MOVED_FROM alone.
    fn leave(&mut self, from: &Named, watching: &mut Watching) {
        if !self.nodes.contains_key(&from.directory) {
            return;
        }
        if let Some(path) = self.name_at(from, watching) {
            self.on_host(|host| {
                let aside = host.aside();
                host.rename(&path, &aside)?;
                host.remove(&aside, from.is_directory)
            });
            self.forget(from, watching);
        }
    }

    /// IN_MOVED_TO alone.
    fn arrive(&mut self, to: &Named, watching: &mut Watching) {
        if !self.nodes.contains_key(&to.directory) {
            return;
        }
        let Some(aside) = self.host.as_mut().map(Host::aside) else {
            return;
        };
        if self.on_host(|host| host.make(&aside, to.is_directory)) {
            self.put(&aside, to, watching);
        }
    }
}
