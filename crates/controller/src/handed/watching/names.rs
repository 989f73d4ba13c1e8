//! The names in nodes: made, removed and moved as those of the directories are that the nodes stand for.
//!
//! # Invariants
//! * There are no more names on the host than [`NAMES_OF_ONE_MAX`] of a directory and [`NAMES_MAX`] of a user, but one
//!   that is about to go. What comes beyond that is as what was there beyond it when the watch began.
//! * What is known to be in a node is what is on the host.

use super::host::{Host, Path, within};
use super::{Entry, NAMES_MAX, NAMES_OF_ONE_MAX, Place, Watched};
use crate::state::watching::{Named, Watching};
use arck_core_state::InodeNumber;

impl Watched {
    /// Whether what is told now is to be told of a directory's names.
    fn is_told(&self, directory: InodeNumber) -> bool {
        let node = self.nodes.get(&directory);
        node.is_some_and(|node| node.since <= self.told)
    }

    fn is_there(&self, named: &Named) -> bool {
        let node = self.nodes.get(&named.directory);
        node.is_some_and(|node| node.names.contains_key(&named.name))
    }

    /// Whether a directory's node may have another name.
    pub(super) fn has_room(&self, directory: InodeNumber) -> bool {
        let Some(node) = self.nodes.get(&directory) else {
            return false;
        };
        let all = self.names_of.get(&node.user).copied().unwrap_or(0);
        node.names.len() < NAMES_OF_ONE_MAX && all < NAMES_MAX
    }

    pub(super) fn path_of(&self, named: &Named) -> Option<Path> {
        let node = self.nodes.get(&named.directory)?;
        node.names.get(&named.name)?;
        Some(within(&node.path, &named.name))
    }

    /// The place of a name that is about to go or be moved away. One that is not on the host, since its directory has too
    /// many, is made first.
    fn name_at(&mut self, named: &Named, watching: &mut Watching) -> Option<Path> {
        if !self.is_there(named) {
            self.make_anyway(named, watching);
        }
        self.path_of(named)
    }

    fn place(&self, named: &Named) -> Option<Place> {
        let node = self.nodes.get(&named.directory)?;
        Some((named.directory, node.serial, named.name.clone()))
    }

    fn note(&mut self, named: &Named, watching: &mut Watching) {
        let Some(place) = self.place(named) else {
            return;
        };
        self.forget(named, watching);
        let Some(node) = self.nodes.get_mut(&named.directory) else {
            return;
        };
        let entry = Entry {
            inode: named.inode,
            is_directory: named.is_directory,
        };
        node.names.insert(named.name.clone(), entry);
        *self.names_of.entry(node.user).or_default() += 1;
        self.places.entry(named.inode).or_default().insert(place);
        watching.want(named.inode);
    }

    fn forget(&mut self, named: &Named, watching: &mut Watching) {
        let place = self.place(named);
        if let Some(place) = place
            && let Some(node) = self.nodes.get_mut(&named.directory)
            && let Some(entry) = node.names.remove(&named.name)
        {
            let user = node.user;
            self.forget_entry(&place, entry, user, watching);
        }
    }

    pub(super) fn forget_entry(
        &mut self,
        place: &Place,
        entry: Entry,
        user: u32,
        watching: &mut Watching,
    ) {
        if let Some(count) = self.names_of.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.names_of.remove(&user);
            }
        }
        if let Some(places) = self.places.get_mut(&entry.inode) {
            places.remove(place);
            if places.is_empty() {
                self.places.remove(&entry.inode);
            }
        }
        watching.want_no_more(entry.inode);
    }

    /// Makes a name, though there may be no room for it.
    pub(super) fn make_anyway(&mut self, named: &Named, watching: &mut Watching) {
        let Some(node) = self.nodes.get(&named.directory) else {
            return;
        };
        let path = within(&node.path, &named.name);
        if self.on_host(|host| host.make(&path, named.is_directory)) {
            self.note(named, watching);
        }
    }

    pub(super) fn make_name(&mut self, named: &Named, watching: &mut Watching) {
        if !self.is_told(named.directory) {
            return;
        }
        if self.is_there(named) {
            self.remove_name(named, watching);
        }
        if self.has_room(named.directory) {
            self.make_anyway(named, watching);
        }
    }

    pub(super) fn remove_name(&mut self, named: &Named, watching: &mut Watching) {
        if !self.is_told(named.directory) {
            return;
        }
        if let Some(path) = self.name_at(named, watching) {
            // It may be something else there than what is told.
            let node = self.nodes.get(&named.directory);
            let entry = node.and_then(|node| node.names.get(&named.name)).copied();
            let is_directory = entry.map_or(named.is_directory, |entry| entry.is_directory);
            if self.on_host(|host| host.remove(&path, is_directory)) {
                self.forget(named, watching);
            }
        }
    }

    /// Puts what stands at one place at another, where something may be; whether that was done.
    fn put(&mut self, from: &[u8], to: &Named, watching: &mut Watching) -> bool {
        let Some(node) = self.nodes.get(&to.directory) else {
            return false;
        };
        let path = within(&node.path, &to.name);
        let there = node.names.get(&to.name).copied();
        if there.is_some_and(|there| there.is_directory != to.is_directory) {
            self.remove_name(to, watching);
        }
        let is_put = self.on_host(|host| host.rename(from, &path));
        if is_put {
            self.note(to, watching);
        }
        is_put
    }

    pub(super) fn move_name(&mut self, from: &Named, to: &Named, watching: &mut Watching) {
        match (self.is_told(from.directory), self.is_told(to.directory)) {
            (true, true) => {
                let makes_room = self.is_there(from) && from.directory == to.directory;
                if !(makes_room || self.is_there(to) || self.has_room(to.directory)) {
                    self.leave(from, watching);
                } else if let Some(path) = self.name_at(from, watching)
                    && self.put(&path, to, watching)
                {
                    self.forget(from, watching);
                }
            }
            (true, false) => self.leave(from, watching),
            (false, true) => self.arrive(to, watching),
            (false, false) => {}
        }
    }

    pub(super) fn exchange_names(&mut self, both: [(&Named, &Named); 2], watching: &mut Watching) {
        let [(one, other), _] = both;
        let can_be = |named: &Named| {
            self.is_told(named.directory)
                && (self.is_there(named) || self.has_room(named.directory))
        };
        if !(can_be(one) && can_be(other)) {
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
    pub(super) fn leave(&mut self, from: &Named, watching: &mut Watching) {
        if !self.is_told(from.directory) {
            return;
        }
        if let Some(path) = self.name_at(from, watching) {
            let Some(aside) = self.host.as_mut().map(Host::aside) else {
                return;
            };
            if self.on_host(|host| host.rename(&path, &aside)) {
                self.forget(from, watching);
                self.on_host(|host| host.remove(&aside, from.is_directory));
            }
        }
    }

    /// IN_MOVED_TO alone.
    pub(super) fn arrive(&mut self, to: &Named, watching: &mut Watching) {
        if !self.is_told(to.directory) || !(self.is_there(to) || self.has_room(to.directory)) {
            return;
        }
        let Some(aside) = self.host.as_mut().map(Host::aside) else {
            return;
        };
        if self.on_host(|host| host.make(&aside, to.is_directory))
            && !self.put(&aside, to, watching)
        {
            self.on_host(|host| host.remove(&aside, to.is_directory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handed::watching::{Asked, ENDED_AT_ONCE};
    use rustix::fd::OwnedFd;
    use rustix::fs::{Mode, OFlags};

    const DIRECTORY: InodeNumber = 7;

    fn named(number: usize) -> Named {
        Named {
            directory: DIRECTORY,
            name: format!("f{number}").into_bytes().into(),
            inode: InodeNumber::try_from(number + 1000).unwrap(),
            is_directory: false,
        }
    }

    fn watched(place: &OwnedFd, watching: &mut Watching) -> Watched {
        let mut watched = Watched::default();
        let asked = Asked {
            key: (DIRECTORY, 1),
            is_directory: true,
            user: 5,
            parent: 0,
        };
        watched.make(place, &asked, &[], watching).unwrap();
        watched.told = u64::MAX;
        watched
    }

    #[test]
    fn names_beyond_what_there_may_be_are_not_put_on_the_host() {
        let top = tempfile::tempdir().unwrap();
        let place = rustix::fs::open(top.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let watching = &mut Watching::default();
        let mut watched = watched(&place, watching);
        let count = |watched: &Watched| watched.nodes[&DIRECTORY].names.len();
        for number in 0..NAMES_OF_ONE_MAX + 10 {
            match number % 2 {
                0 => watched.make_name(&named(number), watching),
                _ => watched.arrive(&named(number), watching),
            }
        }
        assert_eq!(count(&watched), NAMES_OF_ONE_MAX);
        // Whatever is done with one that is not there leaves no more than there were.
        let beyond = NAMES_OF_ONE_MAX + 1;
        for turn in 0..5 {
            let to = named(beyond + 20 + turn);
            watched.move_name(&named(beyond), &to, watching);
            watched.exchange_names([(&named(beyond), &to), (&to, &named(beyond))], watching);
            watched.remove_name(&named(beyond), watching);
            assert_eq!(count(&watched), NAMES_OF_ONE_MAX);
        }
        // What goes makes room.
        watched.remove_name(&named(0), watching);
        watched.make_name(&named(beyond), watching);
        assert!(watched.is_there(&named(beyond)));
        let on_host = std::fs::read_dir(top.path().join("watched")).unwrap();
        let nodes = on_host.map(|node| std::fs::read_dir(node.unwrap().path()).unwrap().count());
        assert_eq!(nodes.sum::<usize>(), NAMES_OF_ONE_MAX);
        // It goes in steps.
        watched.end(DIRECTORY, watching);
        let mut steps = 0;
        while watched.end_some(watching) {
            steps += 1;
        }
        assert!(steps > NAMES_OF_ONE_MAX / ENDED_AT_ONCE, "{steps}");
        assert!(watched.places.is_empty() && watched.names_of.is_empty());
        assert_eq!(watching.wanted(0).count(), 0);
    }
}
