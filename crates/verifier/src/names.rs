//! I3, and the part of I2 that concerns inode numbers: what the names of a fold set do to the
//! tree.
//!
//! # Invariants
//! After the changes, if they are allowed: every directory but the root has one name, in a
//! directory that hangs together with the root; no cycle; removed directories are empty; the
//! link count of everything else is the number of its names.
//!
//! Why that needs no walk up to the root: a living directory never changes its parent here, so
//! only new directories could form a cycle, and they are followed down from living ones.

use crate::change::Creation;
use crate::effects::{Effects, PlacedRecord};
use crate::fold_set::FoldSet;
use crate::rule::{Rule, Violation};
use crate::state::{VerifiedState, is_directory, may_touch};
use arck_core_state::branch::UNCHANGED_TIME;
use arck_core_state::directory::Dentry;
use arck_core_state::geometry::LINKS_MAX;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, InodeNumber};
use foldhash::{HashMap, HashSet};
use std::borrow::Cow;

/// The names that change in one directory.
#[derive(Debug, Default)]
pub(crate) struct NameChange<'a> {
    pub directory: InodeNumber,
    pub removed: Vec<(Cow<'a, [u8]>, Dentry)>,
    pub added: Vec<(Cow<'a, [u8]>, Dentry)>,
    /// Record that changed the first name, for reports: inode and arena offset.
    pub first: (InodeNumber, u64),
}

/// A name taken from an inode, and by which record.
#[derive(Debug)]
pub(crate) struct Removal {
    pub directory: InodeNumber,
    pub victim: InodeNumber,
    pub first: (InodeNumber, u64),
}

/// How many names an inode gains and loses.
#[derive(Debug)]
struct Tally {
    inode: InodeNumber,
    kind: FileKind,
    added: u32,
    removed: u32,
    /// Directory that gained the last name.
    holder: InodeNumber,
    first: (InodeNumber, u64),
}

/// What the names do. Everything is in the order in which the records stand.
#[derive(Debug, Default)]
pub(crate) struct Names<'a> {
    pub changes: Vec<NameChange<'a>>,
    change_of: HashMap<InodeNumber, usize>,
    pub removals: Vec<Removal>,
    tallies: Vec<Tally>,
    tally_of: HashMap<InodeNumber, usize>,
    /// Creations with the offset of the record that bears.
    pub creations: Vec<(Creation, u64)>,
    creation_of: HashMap<InodeNumber, usize>,
    pub links: Vec<(InodeNumber, i64)>,
    /// When the names of an inode changed last, of those that change or are the session's.
    pub times: Vec<(InodeNumber, i64)>,
    time_of: HashMap<InodeNumber, usize>,
    pub removed_directories: Vec<InodeNumber>,
}

impl<'a> Names<'a> {
    /// Checks the tree rules; permission is checked elsewhere.
    pub fn check<S: VerifiedState>(
        set: &FoldSet<'_, S>,
        effects: &Effects<'a>,
    ) -> Result<Names<'a>, Violation> {
        let mut names = Names::default();
        names.take_away(set, effects)?;
        names.add(set, effects)?;
        names.note_kills(set, effects);
        for at in 0..names.tallies.len() {
            match names.tallies[at].kind {
                FileKind::Directory => names.check_directory(set, at)?,
                _ => names.check_links(set, at)?,
            }
        }
        names.check_empty(set)?;
        names.sort_removed(set);
        names.check_connected(set)?;
        Ok(names)
    }

    pub fn change(&self, directory: InodeNumber) -> Option<&NameChange<'a>> {
        self.changes.get(*self.change_of.get(&directory)?)
    }

    pub fn take_change(&mut self, directory: InodeNumber) -> Option<NameChange<'a>> {
        let at = *self.change_of.get(&directory)?;
        self.changes.get_mut(at).map(core::mem::take)
    }

    pub fn creation(&self, inode: InodeNumber) -> Option<&Creation> {
        Some(&self.creations.get(*self.creation_of.get(&inode)?)?.0)
    }

    /// Whether the inode gains or loses names.
    pub fn concern(&self, inode: InodeNumber) -> bool {
        self.tally_of.contains_key(&inode)
    }

    fn change_mut(&mut self, directory: InodeNumber, by: &PlacedRecord<'_>) -> &mut NameChange<'a> {
        let next = self.changes.len();
        let at = *self.change_of.entry(directory).or_insert(next);
        if at == next {
            self.changes.push(NameChange {
                directory,
                first: (by.directory, by.offset()),
                ..NameChange::default()
            });
        }
        &mut self.changes[at]
    }

    /// A name of the inode changed at that time, if the record says so.
    fn note_time(&mut self, inode: InodeNumber, time: Option<i64>) {
        let Some(time) = time else { return };
        let next = self.times.len();
        let at = *self.time_of.entry(inode).or_insert(next);
        if at == next {
            self.times.push((inode, time));
        }
        self.times[at].1 = self.times[at].1.max(time);
    }

    /// The times of what kills records. These say of any inode what they like, so they are heard for
    /// one whose names do change, or that is the session's and its user's to touch.
    fn note_kills<S: VerifiedState>(&mut self, set: &FoldSet<'_, S>, effects: &Effects<'_>) {
        for (killed, time) in effects.timed_kills() {
            let (number, generation) = (killed.record.inode, killed.record.generation);
            let is_touched = || {
                let alive = set.state.header(number).is_some_and(|header| {
                    header.kind == HeaderKind::Alive && header.generation == generation
                });
                let inode = (alive && set.owns(number)).then(|| set.state.inode(number));
                inode
                    .flatten()
                    .is_some_and(|inode| may_touch(set.who, &inode))
            };
            if self.concern(number) || is_touched() {
                self.note_time(number, Some(time));
            }
        }
    }

    fn tally_mut(&mut self, dentry: Dentry, by: &PlacedRecord<'_>) -> &mut Tally {
        let next = self.tallies.len();
        let at = *self.tally_of.entry(dentry.inode).or_insert(next);
        if at == next {
            self.tallies.push(Tally {
                inode: dentry.inode,
                kind: dentry.kind,
                added: 0,
                removed: 0,
                holder: 0,
                first: (by.directory, by.offset()),
            });
        }
        &mut self.tallies[at]
    }

    /// Verified names that go.
    fn take_away<S: VerifiedState>(
        &mut self,
        set: &FoldSet<'_, S>,
        effects: &Effects<'a>,
    ) -> Result<(), Violation> {
        let mut gone = HashSet::default();
        for placed in &effects.records {
            if placed.reaches_elsewhere() && !set.contains(placed.source_directory()) {
                let detail = format!("source directory {}", placed.source_directory());
                return Err(placed.violation(Rule::InFoldSet, detail));
            }
            if placed.reaches_elsewhere()
                && let Some(source) = set.state.inode(placed.source_directory())
                && !is_directory(&source)
            {
                let detail = format!("source directory {}", placed.source_directory());
                return Err(placed.violation(Rule::InDirectory, detail));
            }
            for (directory, bytes) in placed.removals() {
                let shown = bytes.escape_ascii();
                let found = set.state.lookup(directory, bytes);
                let Some(dentry) = found else {
                    let detail = format!("no \"{shown}\" in directory {directory}");
                    return Err(placed.violation(Rule::NameExists, detail));
                };
                if !gone.insert((directory, bytes)) {
                    let detail = format!("\"{shown}\" of directory {directory} again");
                    return Err(placed.violation(Rule::NameRemovedOnce, detail));
                }
                self.change_mut(directory, placed)
                    .removed
                    .push((bytes.into(), dentry));
                self.tally_mut(dentry, placed).removed += 1;
                self.note_time(dentry.inode, placed.record.changed);
                self.removals.push(Removal {
                    directory,
                    victim: dentry.inode,
                    first: (placed.directory, placed.offset()),
                });
            }
        }
        // Names that are added are unique, and collide with no verified name that stays.
        let mut come = HashSet::default();
        for placed in effects.adds() {
            let place = (placed.directory, placed.record.name);
            let stays = !gone.contains(&place) && set.state.lookup(place.0, place.1).is_some();
            if !come.insert(place) || stays {
                let detail = format!("name \"{}\" is there", place.1.escape_ascii());
                return Err(placed.violation(Rule::NameUnique, detail));
            }
        }
        Ok(())
    }

    /// Names that come, and the creations among them.
    fn add<S: VerifiedState>(
        &mut self,
        set: &FoldSet<'_, S>,
        effects: &Effects<'a>,
    ) -> Result<(), Violation> {
        for placed in effects.adds() {
            let record = &placed.record;
            let number = record.inode;
            let refuse = |rule, detail: &str| {
                Err(placed.violation(rule, format!("inode {number}: {detail}")))
            };
            let Some(header) = set.state.header(number).filter(|_| number != 0) else {
                return refuse(Rule::NumberGranted, "beyond the table");
            };
            match header.kind {
                HeaderKind::Free => return refuse(Rule::NumberGranted, "free"),
                // Its owner named it here while it had a name: that went in somebody else's delta,
                // which was folded before this one.
                HeaderKind::Orphan if header.ownership.session() == set.who.session => {}
                HeaderKind::Orphan => return refuse(Rule::NotOrphan, "an orphan"),
                HeaderKind::Granted | HeaderKind::Alive => {}
            }
            if header.generation != record.generation {
                return refuse(Rule::Generation, "another generation");
            }
            let kind = if header.kind != HeaderKind::Granted {
                set.state.inode(number).and_then(|inode| inode.kind())
            } else if header.ownership.session() != set.who.session {
                return refuse(Rule::NumberGranted, "granted to another session");
            } else {
                Some(self.bear(placed)?)
            };
            if kind != Some(record.kind) {
                return refuse(Rule::Kind, "another kind");
            }
            if header.kind == HeaderKind::Orphan && kind == Some(FileKind::Directory) {
                return refuse(Rule::NotOrphan, "a directory that was removed");
            }
            let dentry = Dentry {
                inode: number,
                generation: record.generation,
                kind: record.kind,
            };
            self.change_mut(placed.directory, placed)
                .added
                .push((record.name.into(), dentry));
            let tally = self.tally_mut(dentry, placed);
            tally.added = tally.added.saturating_add(1);
            tally.holder = placed.directory;
            self.note_time(number, placed.record.changed);
        }
        Ok(())
    }

    /// The first name of an uncommitted inode bears it, further ones are links. Gives its kind.
    fn bear(&mut self, placed: &PlacedRecord<'_>) -> Result<FileKind, Violation> {
        let record = &placed.record;
        if let Some(creation) = self.creation(record.inode) {
            return Ok(creation.kind);
        }
        if record.mode > 0o7777 {
            let detail = format!("mode {:#o} of a new inode", record.mode);
            return Err(placed.violation(Rule::Mode, detail));
        }
        if record.created == UNCHANGED_TIME {
            return Err(placed.violation(Rule::Time, "a new inode without a time"));
        }
        self.creation_of.insert(record.inode, self.creations.len());
        let creation = Creation {
            inode: record.inode,
            generation: record.generation,
            kind: record.kind,
            mode: record.mode,
            uid: record.uid,
            gid: record.gid,
            created: record.created,
            parent: placed.directory,
        };
        self.creations.push((creation, placed.offset()));
        Ok(record.kind)
    }

    /// One name before, one name after, in the same place or none.
    fn check_directory<S: VerifiedState>(
        &mut self,
        set: &FoldSet<'_, S>,
        at: usize,
    ) -> Result<(), Violation> {
        let tally = &self.tallies[at];
        let number = tally.inode;
        let (inode, offset) = tally.first;
        let refuse = |rule, detail: &str| {
            let detail = format!("directory {number} {detail}");
            Err(Violation::new(rule, inode, offset, detail))
        };
        let created = self.creation_of.contains_key(&number);
        if tally.added > 1 || (tally.added == 1 && !created && tally.removed == 0) {
            return refuse(Rule::DirectoryOneName, "gets another name");
        }
        if created {
            return Ok(());
        }
        let Some(verified) = set.state.inode(number) else {
            return refuse(Rule::Generation, "is not alive");
        };
        if tally.added == 1 {
            if tally.holder != verified.parent {
                return refuse(Rule::DirectoryParent, "gets another parent");
            }
            return Ok(());
        }
        if !set.owns(number) {
            return refuse(Rule::Owned, "is removed and not owned");
        }
        if !set.contains(number) {
            return refuse(Rule::InFoldSet, "is removed without its delta");
        }
        self.removed_directories.push(number);
        Ok(())
    }

    fn check_links<S: VerifiedState>(
        &mut self,
        set: &FoldSet<'_, S>,
        at: usize,
    ) -> Result<(), Violation> {
        let tally = &self.tallies[at];
        let number = tally.inode;
        let (inode, offset) = tally.first;
        let refuse = |rule, detail: String| Err(Violation::new(rule, inode, offset, detail));
        let net = i64::from(tally.added) - i64::from(tally.removed);
        let links = if self.creation_of.contains_key(&number) {
            0
        } else {
            if net > 0 && !set.owns(number) {
                let detail = format!("inode {number} is linked and not owned");
                return refuse(Rule::Owned, detail);
            }
            match set.state.inode(number) {
                Some(inode) => i64::from(inode.links),
                None => return refuse(Rule::Generation, format!("inode {number} is not alive")),
            }
        };
        if !(0..=i64::from(LINKS_MAX)).contains(&(links + net)) {
            let detail = format!("{links} links of inode {number} change by {net}");
            return refuse(Rule::LinkCount, detail);
        }
        if net != 0 {
            self.links.push((number, net));
        }
        Ok(())
    }

    fn check_empty<S: VerifiedState>(&self, set: &FoldSet<'_, S>) -> Result<(), Violation> {
        for &number in &self.removed_directories {
            let before = set.state.inode(number).map_or(0, |inode| inode.entries);
            let (removed, added) = self
                .change(number)
                .map_or((0, 0), |change| (change.removed.len(), change.added.len()));
            if added != 0 || before as usize != removed {
                let (inode, offset) = self
                    .tally_of
                    .get(&number)
                    .map_or((number, 0), |&at| self.tallies[at].first);
                let detail =
                    format!("directory {number} has {before} names, loses {removed}, gets {added}");
                return Err(Violation::new(Rule::DirectoryEmpty, inode, offset, detail));
            }
        }
        Ok(())
    }

    /// Puts removed directories before those that held them.
    fn sort_removed<S: VerifiedState>(&mut self, set: &FoldSet<'_, S>) {
        let removed: HashSet<_> = self.removed_directories.iter().copied().collect();
        let mut inside: HashMap<InodeNumber, Vec<InodeNumber>> = HashMap::default();
        let mut order = Vec::with_capacity(removed.len());
        for &number in &self.removed_directories {
            match set.state.inode(number) {
                Some(inode) if removed.contains(&inode.parent) => {
                    inside.entry(inode.parent).or_default().push(number);
                }
                _ => order.push(number),
            }
        }
        let mut at = 0;
        while let Some(number) = order.get(at) {
            order.extend(inside.remove(number).unwrap_or_default());
            at += 1;
        }
        order.reverse();
        self.removed_directories = order;
    }

    /// Every directory that gains names hangs together with the root: it lives and stays, or it
    /// is created in one that does.
    fn check_connected<S: VerifiedState>(&self, set: &FoldSet<'_, S>) -> Result<(), Violation> {
        let mut children: HashMap<InodeNumber, Vec<InodeNumber>> = HashMap::default();
        for (creation, _) in &self.creations {
            if creation.kind == FileKind::Directory {
                children
                    .entry(creation.parent)
                    .or_default()
                    .push(creation.inode);
            }
        }
        // Removed directories gain nothing, as is checked, so every living one stays.
        let living = |number: &InodeNumber| {
            set.state
                .header(*number)
                .is_some_and(|h| h.kind == HeaderKind::Alive)
        };
        let mut waiting: Vec<InodeNumber> = self
            .changes
            .iter()
            .map(|change| change.directory)
            .filter(living)
            .collect();
        let mut connected = HashSet::default();
        while let Some(number) = waiting.pop() {
            connected.insert(number);
            waiting.extend(children.remove(&number).unwrap_or_default());
        }
        for change in &self.changes {
            let number = change.directory;
            let (inode, offset) = change.first;
            if !change.added.is_empty() && !connected.contains(&number) {
                let detail = format!("directory {number} has no way to the root");
                return Err(Violation::new(Rule::Connected, inode, offset, detail));
            }
        }
        Ok(())
    }
}
