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

use crate::by_number::ByNumber;
use crate::change::{ChangedName, Creation};
use crate::effects::{Effects, PlacedRecord};
use crate::fold_set::FoldSet;
use crate::named::{Place, look_up};
use crate::order::bucket_by_bucket;
use crate::places;
use crate::rule::{Rule, Violation};
use crate::state::{VerifiedState, is_directory, may_touch};
use arck_core_state::branch::UNCHANGED_TIME;
use arck_core_state::directory::{Dentry, bucket_order};
use arck_core_state::geometry::LINKS_MAX;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, InodeNumber};
use foldhash::{HashMap, HashSet};

/// The names that change in one directory, bucket by bucket.
#[derive(Debug)]
pub(crate) struct NameChange<'a> {
    pub directory: InodeNumber,
    pub removed: Vec<ChangedName<'a>>,
    pub added: Vec<ChangedName<'a>>,
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
    /// When names of it changed last, as far as records say it.
    changed: Option<i64>,
    /// Which of the creations bears it.
    creation: Option<usize>,
}

/// What the names do. Everything but names is in the order in which the records stand.
#[derive(Debug, Default)]
pub(crate) struct Names<'a> {
    changes: ByNumber<NameChange<'a>>,
    pub removals: Vec<Removal>,
    tallies: ByNumber<Tally>,
    /// Creations with the offset of the record that bears.
    pub creations: Vec<(Creation, u64)>,
    pub links: Vec<(InodeNumber, i64)>,
    /// When the names of an inode changed last, of those that change or are the session's.
    pub times: Vec<(InodeNumber, i64)>,
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
            match names.tallies.entries()[at].kind {
                FileKind::Directory => names.check_directory(set, at)?,
                _ => names.check_links(set, at)?,
            }
        }
        names.check_empty(set)?;
        names.sort_removed(set);
        names.check_connected(set)?;
        Ok(names)
    }

    pub fn changes(&self) -> &[NameChange<'a>] {
        self.changes.entries()
    }

    pub fn change(&self, directory: InodeNumber) -> Option<&NameChange<'a>> {
        self.changes.get(directory)
    }

    pub fn take_change(&mut self, directory: InodeNumber) -> Option<NameChange<'a>> {
        let change = self.changes.get_mut(directory)?;
        Some(NameChange {
            removed: core::mem::take(&mut change.removed),
            added: core::mem::take(&mut change.added),
            ..*change
        })
    }

    pub fn creation(&self, inode: InodeNumber) -> Option<&Creation> {
        Some(&self.creations.get(self.tallies.get(inode)?.creation?)?.0)
    }

    /// Whether the inode gains or loses names.
    pub fn concern(&self, inode: InodeNumber) -> bool {
        self.tallies.contains(inode)
    }

    fn change_mut(&mut self, directory: InodeNumber, by: &PlacedRecord<'_>) -> &mut NameChange<'a> {
        self.changes.get_or_insert_with(directory, || NameChange {
            directory,
            removed: Vec::new(),
            added: Vec::new(),
            first: (by.directory, by.offset()),
        })
    }

    /// The times of what kills records. These say of any inode what they like, so they are heard for
    /// one whose names do change, or that is the session's and its user's to touch.
    fn note_kills<S: VerifiedState>(&mut self, set: &FoldSet<'_, S>, effects: &Effects<'_>) {
        let mut touched: ByNumber<(InodeNumber, i64)> = ByNumber::default();
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
            match self.tallies.get_mut(number) {
                Some(tally) => tally.changed = tally.changed.max(Some(time)),
                None if is_touched() => {
                    let touched = touched.get_or_insert_with(number, || (number, time));
                    touched.1 = touched.1.max(time);
                }
                None => {}
            }
        }
        let tallies = self.tallies.entries().iter();
        let told = tallies.filter_map(|tally| Some((tally.inode, tally.changed?)));
        self.times = told.chain(touched.into_entries()).collect();
    }

    fn tally_mut(&mut self, dentry: Dentry, by: &PlacedRecord<'_>) -> &mut Tally {
        let tally = self.tallies.get_or_insert_with(dentry.inode, || Tally {
            inode: dentry.inode,
            kind: dentry.kind,
            added: 0,
            removed: 0,
            holder: 0,
            first: (by.directory, by.offset()),
            changed: None,
            creation: None,
        });
        tally.changed = tally.changed.max(by.record.changed);
        tally
    }

    /// Verified names that go.
    fn take_away<'e, S: VerifiedState>(
        &mut self,
        set: &FoldSet<'_, S>,
        effects: &'e Effects<'a>,
    ) -> Result<(), Violation> {
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
        }
        let place = |placed: &'e PlacedRecord<'a>, directory, name: &'a [u8], hash| Place {
            placed,
            directory,
            name,
            hash,
            dentry: dentry(placed),
            verified: None,
            known: None,
        };
        let mut known = set.places.reader(set.state.revision());
        let mut going: Vec<Place<'_, 'a>> = Vec::with_capacity(effects.records.len());
        let removals = effects.records.iter().flat_map(|placed| {
            let removals = placed.removals();
            removals.map(move |removal| (placed, removal))
        });
        going.extend(removals.map(|(placed, (is_source, directory, name))| {
            let known = known(places::key(placed, is_source));
            let hash = known.map_or_else(|| set.state.hash(name), |known| known.hash);
            Place {
                verified: known.map(|known| known.dentry),
                known: known.and_then(|known| known.place),
                ..place(placed, directory, name, hash)
            }
        }));
        let order = bucket_by_bucket(&going);
        Names::find_all(set, &mut going, &order)?;
        for place in &going {
            let (placed, directory, dentry) = (place.placed, place.directory, place.gone());
            self.change_mut(directory, placed);
            self.tally_mut(dentry, placed).removed += 1;
            self.removals.push(Removal {
                directory,
                victim: dentry.inode,
                first: (placed.directory, placed.offset()),
            });
        }
        for run in order.chunk_by(|&one, &next| going[one].directory == going[next].directory) {
            let changed = run.iter().map(|&at| ChangedName {
                name: going[at].name.into(),
                hash: going[at].hash,
                dentry: going[at].gone(),
                place: going[at].known,
            });
            if let Some(change) = self.changes.get_mut(going[run[0]].directory) {
                change.removed = changed.collect();
            }
        }
        let mut coming: Vec<Place<'_, 'a>> = Vec::with_capacity(effects.records.len());
        coming.extend(effects.adds().map(|placed| {
            let name = placed.record.name;
            place(placed, placed.directory, name, set.state.hash(name))
        }));
        let going = order.iter().map(|&at| &going[at]);
        self.come(set, coming, going.collect())
    }

    /// Looks up what verified names lead to: they are there, each once.
    fn find_all<S: VerifiedState>(
        set: &FoldSet<'_, S>,
        going: &mut [Place<'_, '_>],
        order: &[usize],
    ) -> Result<(), Violation> {
        look_up(set, going, order);
        let mut before: Option<usize> = None;
        // The one that stands first of what is wrong.
        let mut wrong: Option<(usize, Rule)> = None;
        for &at in order {
            let place = &going[at];
            let is_again = before.is_some_and(|before| going[before].is_as(place));
            before = Some(at);
            let rule = match place.verified.is_some() {
                true if !is_again => continue,
                true => Rule::NameRemovedOnce,
                false => Rule::NameExists,
            };
            if wrong.is_none_or(|(first, _)| at < first) {
                wrong = Some((at, rule));
            }
        }
        let Some((at, rule)) = wrong else {
            return Ok(());
        };
        let Place {
            placed,
            directory,
            name,
            ..
        } = &going[at];
        let shown = name.escape_ascii();
        let detail = match rule {
            Rule::NameExists => format!("no \"{shown}\" in directory {directory}"),
            _ => format!("\"{shown}\" of directory {directory} again"),
        };
        Err(placed.violation(rule, detail))
    }

    /// Names that are added are unique, and collide with no verified name that stays; `going` are those that do
    /// not, bucket by bucket.
    fn come<S: VerifiedState>(
        &mut self,
        set: &FoldSet<'_, S>,
        mut coming: Vec<Place<'_, 'a>>,
        going: Vec<&Place<'_, 'a>>,
    ) -> Result<(), Violation> {
        let key = |place: &Place<'_, 'a>| (place.directory, bucket_order(place.hash), place.name);
        let goes = |place| {
            going
                .binary_search_by_key(&key(place), |gone| key(gone))
                .is_ok()
        };
        let order = bucket_by_bucket(&coming);
        look_up(set, &mut coming, &order);
        let mut before: Option<&Place<'_, '_>> = None;
        let mut wrong: Option<usize> = None;
        for &at in &order {
            let place = &coming[at];
            let is_again = before.is_some_and(|before| before.is_as(place));
            before = Some(place);
            let is_there = place.verified.is_some() && !goes(place);
            if (is_again || is_there) && wrong.is_none_or(|first| at < first) {
                wrong = Some(at);
            }
        }
        if let Some(at) = wrong {
            let detail = format!("name \"{}\" is there", coming[at].name.escape_ascii());
            return Err(coming[at].placed.violation(Rule::NameUnique, detail));
        }
        for place in &coming {
            self.change_mut(place.directory, place.placed);
        }
        for run in order.chunk_by(|&one, &next| coming[one].directory == coming[next].directory) {
            let changed = run.iter().map(|&at| ChangedName {
                name: coming[at].name.into(),
                hash: coming[at].hash,
                dentry: coming[at].dentry,
                place: None,
            });
            if let Some(change) = self.changes.get_mut(coming[run[0]].directory) {
                change.added = changed.collect();
            }
        }
        Ok(())
    }

    /// What names that come lead to, and the creations among them.
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
            let mut born = None;
            let kind = if header.kind != HeaderKind::Granted {
                set.state.inode(number).and_then(|inode| inode.kind())
            } else if header.ownership.session() != set.who.session {
                return refuse(Rule::NumberGranted, "granted to another session");
            } else if let Some(creation) = self.creation(number) {
                Some(creation.kind)
            } else {
                born = Some(self.creations.len());
                Some(self.bear(placed)?)
            };
            if kind != Some(record.kind) {
                return refuse(Rule::Kind, "another kind");
            }
            if header.kind == HeaderKind::Orphan && kind == Some(FileKind::Directory) {
                return refuse(Rule::NotOrphan, "a directory that was removed");
            }
            let tally = self.tally_mut(dentry(placed), placed);
            tally.added = tally.added.saturating_add(1);
            tally.holder = placed.directory;
            tally.creation = tally.creation.or(born);
        }
        Ok(())
    }

    /// The first name of an uncommitted inode bears it. Gives its kind.
    fn bear(&mut self, placed: &PlacedRecord<'_>) -> Result<FileKind, Violation> {
        let record = &placed.record;
        if record.mode > 0o7777 {
            let detail = format!("mode {:#o} of a new inode", record.mode);
            return Err(placed.violation(Rule::Mode, detail));
        }
        if record.created == UNCHANGED_TIME {
            return Err(placed.violation(Rule::Time, "a new inode without a time"));
        }
        let creation = Creation {
            inode: record.inode,
            generation: record.generation,
            kind: record.kind,
            mode: record.mode,
            uid: record.uid,
            gid: record.gid,
            created: record.created,
            parent: placed.directory,
            names: 1,
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
        let tally = &self.tallies.entries()[at];
        let number = tally.inode;
        let (inode, offset) = tally.first;
        let refuse = |rule, detail: &str| {
            let detail = format!("directory {number} {detail}");
            Err(Violation::new(rule, inode, offset, detail))
        };
        let created = tally.creation.is_some();
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
        let tally = &self.tallies.entries()[at];
        let number = tally.inode;
        let (inode, offset) = tally.first;
        let refuse = |rule, detail: String| Err(Violation::new(rule, inode, offset, detail));
        let net = i64::from(tally.added) - i64::from(tally.removed);
        let links = if tally.creation.is_some() {
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
        match tally.creation.and_then(|at| self.creations.get_mut(at)) {
            // In range, as was checked; names that come are no more than records.
            Some((creation, _)) => creation.names = tally.added,
            None if net != 0 => self.links.push((number, net)),
            None => {}
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
                    .tallies
                    .get(number)
                    .map_or((number, 0), |tally| tally.first);
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
            .changes()
            .iter()
            .map(|change| change.directory)
            .filter(living)
            .collect();
        let mut connected = HashSet::default();
        while let Some(number) = waiting.pop() {
            connected.insert(number);
            waiting.extend(children.remove(&number).unwrap_or_default());
        }
        for change in self.changes() {
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

/// What the name of a record leads to.
fn dentry(placed: &PlacedRecord<'_>) -> Dentry {
    Dentry {
        inode: placed.record.inode,
        generation: placed.record.generation,
        kind: placed.record.kind,
    }
}
