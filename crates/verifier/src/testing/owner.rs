//! An owner session that makes deltas as a LibFS would, one operation at a time, and folds
//! them as the controller would.
//!
//! # Invariant
//! `overlay` says of every name that this session changed since its directory was last folded
//! where it leads now, so `lookup` is what a program would see.

use super::{MemoryArena, MemoryState};
use crate::{
    Changes, CopiedDelta, Credentials, PageBudget, SetMember, VerifiedState, Violation, closure,
    copy_delta, verify,
};
use arck_core_state::branch::{PARTNERS, TAILS, UNCHANGED_SIZE};
use arck_core_state::directory::Dentry;
use arck_core_state::extended;
use arck_core_state::header::HeaderKind;
use arck_core_state::index::HOLE;
use arck_core_state::record::{Record, RecordRef, effect};
use arck_core_state::{FileKind, HeaderCopy, InodeNumber, PAGE_SIZE, PagePtr};
use std::collections::BTreeMap;

/// When names are taken away and renamed.
const NAMED: i64 = 1_700_000_000_000_000_001;

/// Where a name leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub dentry: Dentry,
    /// The record that added it; `None` if it is a verified name.
    pub record: Option<RecordRef>,
}

/// An operation that a file system refuses, or that needs a fold first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// A session.
#[derive(Clone, Debug)]
pub struct Owner {
    pub who: Credentials,
    pub arena: MemoryArena,
    overlay: BTreeMap<(InodeNumber, Vec<u8>), Option<Entry>>,
    /// Mode and group of the uncommitted: what records of creation say.
    creations: BTreeMap<InodeNumber, (u32, u32)>,
    next_tail: usize,
    /// How many tails of a directory are used, in turn: 1 to [`TAILS`].
    pub tails: usize,
}

impl Owner {
    pub fn new(who: Credentials) -> Owner {
        Owner {
            who,
            arena: MemoryArena::default(),
            overlay: BTreeMap::new(),
            creations: BTreeMap::new(),
            next_tail: 0,
            tails: TAILS,
        }
    }

    /// What a program sees at a name.
    pub fn lookup(
        &self,
        state: &MemoryState,
        directory: InodeNumber,
        name: &[u8],
    ) -> Option<Entry> {
        match self.overlay.get(&(directory, name.to_vec())) {
            Some(entry) => *entry,
            None => state.lookup(directory, name).map(|dentry| Entry {
                dentry,
                record: None,
            }),
        }
    }

    /// All that a program sees in a directory.
    pub fn list(&self, state: &MemoryState, directory: InodeNumber) -> BTreeMap<Vec<u8>, Dentry> {
        let inside = (directory, vec![])..(directory + 1, vec![]);
        let mut names: BTreeMap<_, _> = state
            .names
            .range(inside.clone())
            .map(|((_, name), dentry)| (name.clone(), *dentry))
            .collect();
        for ((_, name), entry) in self.overlay.range(inside) {
            match entry {
                Some(entry) => names.insert(name.clone(), entry.dentry),
                None => names.remove(name),
            };
        }
        names
    }

    fn header(&self, state: &MemoryState, number: InodeNumber) -> HeaderCopy {
        state.headers[&number]
    }

    /// A record of this dentry that does nothing yet.
    pub fn record<'a>(&mut self, dentry: Dentry, name: &'a [u8], source: &'a [u8]) -> Record<'a> {
        let creation = self.creations.get(&dentry.inode).copied();
        let (mode, gid) = creation.unwrap_or((0, self.who.gid));
        Record {
            state: 0,
            sequence: self.arena.sequence(),
            kind: dentry.kind,
            inode: dentry.inode,
            generation: dentry.generation,
            source_directory: 0,
            mode,
            uid: self.who.uid,
            gid,
            created: 1_700_000_000_000_000_000,
            changed: None,
            kills: [RecordRef::default(); 2],
            name,
            source,
        }
    }

    /// Appends a record to the next tail of a directory.
    pub fn publish(
        &mut self,
        state: &MemoryState,
        directory: InodeNumber,
        record: &Record<'_>,
    ) -> RecordRef {
        let header = self.header(state, directory);
        let tail = self.next_tail;
        self.next_tail = (tail + 1) % self.tails;
        self.arena.append(directory, &header, tail, record)
    }

    fn show(&mut self, directory: InodeNumber, name: &[u8], entry: Option<Entry>) {
        self.overlay.insert((directory, name.to_vec()), entry);
    }

    fn add_partner(
        &mut self,
        state: &MemoryState,
        number: InodeNumber,
        partner: InodeNumber,
    ) -> Result<(), Refused> {
        let header = self.header(state, number);
        let partners = self.arena.branch(number, &header).partners;
        if partners.contains(&partner) {
            return Ok(());
        }
        let free = (0..PARTNERS).find(|&at| partners[at] == 0).ok_or(Refused)?;
        self.arena
            .edit_branch(number, &header, |branch| branch.partners[free] = partner);
        Ok(())
    }

    /// Creates an inode with a granted number.
    pub fn create(
        &mut self,
        state: &MemoryState,
        directory: InodeNumber,
        name: &[u8],
        number: InodeNumber,
        kind: FileKind,
        mode: u32,
    ) -> Result<RecordRef, Refused> {
        if self.lookup(state, directory, name).is_some() {
            return Err(Refused);
        }
        let header = self.header(state, number);
        let parent = state.inode(directory);
        let gid = match parent {
            Some(parent) if parent.mode & 0o2000 != 0 => parent.gid,
            _ => self.who.gid,
        };
        self.creations.insert(number, (mode, gid));
        self.arena
            .edit_branch(number, &header, |branch| branch.parent = directory);
        let dentry = Dentry {
            inode: number,
            generation: header.generation,
            kind,
        };
        let record = Record {
            state: effect::ADD,
            ..self.record(dentry, name, b"")
        };
        let place = self.publish(state, directory, &record);
        let record = Some(place);
        self.show(directory, name, Some(Entry { dentry, record }));
        Ok(place)
    }

    /// Removes a name: of a file, or of an empty directory.
    pub fn remove(
        &mut self,
        state: &MemoryState,
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<(), Refused> {
        let entry = self.lookup(state, directory, name).ok_or(Refused)?;
        let dentry = entry.dentry;
        if dentry.kind == FileKind::Directory && !self.list(state, dentry.inode).is_empty() {
            return Err(Refused);
        }
        match entry.record {
            Some(record) => self.arena.clear(record, effect::ADD),
            None => {
                let record = Record {
                    state: effect::REMOVE_SOURCE,
                    changed: Some(NAMED),
                    ..self.record(dentry, b"", name)
                };
                self.publish(state, directory, &record);
            }
        }
        self.show(directory, name, None);
        Ok(())
    }

    /// Gives a file another name.
    pub fn link(
        &mut self,
        state: &MemoryState,
        from: (InodeNumber, &[u8]),
        to: (InodeNumber, &[u8]),
    ) -> Result<(), Refused> {
        let dentry = self.lookup(state, from.0, from.1).ok_or(Refused)?.dentry;
        if dentry.kind == FileKind::Directory || self.lookup(state, to.0, to.1).is_some() {
            return Err(Refused);
        }
        self.add_partner(state, dentry.inode, to.0)?;
        let record = Record {
            state: effect::ADD,
            ..self.record(dentry, to.1, b"")
        };
        let record = Some(self.publish(state, to.0, &record));
        self.show(to.0, to.1, Some(Entry { dentry, record }));
        Ok(())
    }

    /// Renames, within a directory or across, over an existing name or not. `tidy`: 0 leaves
    /// the kills standing, 1 clears what was killed, 2 clears the kill bits as well.
    pub fn rename(
        &mut self,
        state: &MemoryState,
        from: (InodeNumber, &[u8]),
        to: (InodeNumber, &[u8]),
        tidy: u8,
    ) -> Result<RecordRef, Refused> {
        let source = self.lookup(state, from.0, from.1).ok_or(Refused)?;
        let target = self.lookup(state, to.0, to.1);
        let dentry = source.dentry;
        let is_directory = dentry.kind == FileKind::Directory;
        if from == to || (is_directory && from.0 != to.0) {
            return Err(Refused);
        }
        if let Some(target) = target {
            let same = target.dentry.inode == dentry.inode;
            let occupied = !self.list(state, target.dentry.inode).is_empty();
            let mixed = is_directory != (target.dentry.kind == FileKind::Directory);
            if same || mixed || (is_directory && occupied) {
                return Err(Refused);
            }
        }
        if from.0 != to.0 {
            self.add_partner(state, from.0, to.0)?;
            self.add_partner(state, to.0, from.0)?;
        }
        let mut record = self.record(dentry, to.1, b"");
        record.state = effect::ADD;
        record.changed = Some(NAMED);
        record.source_directory = if from.0 == to.0 { 0 } else { from.0 };
        match source.record {
            None => {
                record.state |= effect::REMOVE_SOURCE;
                record.source = from.1;
            }
            Some(place) => {
                record.state |= effect::KILL_SOURCE;
                record.kills[0] = place;
            }
        }
        match target {
            Some(Entry { record: None, .. }) => record.state |= effect::REPLACE,
            Some(Entry {
                record: Some(place),
                ..
            }) => {
                record.state |= effect::KILL_TARGET;
                record.kills[1] = place;
            }
            None => {}
        }
        let place = self.publish(state, to.0, &record);
        if tidy > 0 {
            let killed = source.record.into_iter();
            for killed in killed.chain(target.and_then(|target| target.record)) {
                self.arena.clear(killed, effect::ADD);
            }
        }
        if tidy > 1 {
            self.arena
                .clear(place, effect::KILL_SOURCE | effect::KILL_TARGET);
        }
        let record = Some(place);
        self.show(from.0, from.1, None);
        self.show(to.0, to.1, Some(Entry { dentry, record }));
        Ok(place)
    }

    /// Puts a page into a file and makes the file reach to its end at least.
    pub fn write(&mut self, state: &MemoryState, number: InodeNumber, page: u64, pointer: PagePtr) {
        let header = self.header(state, number);
        self.arena.set_entry(number, &header, page, pointer.0);
        let size = self.size(state, number).max((page + 1) * PAGE_SIZE);
        self.arena
            .edit_branch(number, &header, |branch| branch.size = size);
    }

    /// Sets the page of the extended attributes; `None`: there are none any more.
    pub fn set_extended(
        &mut self,
        state: &MemoryState,
        number: InodeNumber,
        page: Option<PagePtr>,
    ) {
        let header = self.header(state, number);
        let attributes = page.map_or(extended::NONE, |page| page.0 as u32);
        self.arena
            .edit_branch(number, &header, |branch| branch.attributes = attributes);
    }

    /// Size as a program sees it.
    pub fn size(&self, state: &MemoryState, number: InodeNumber) -> u64 {
        let size = self.arena.branch(number, &self.header(state, number)).size;
        match size {
            UNCHANGED_SIZE => state.inode(number).map_or(0, |inode| inode.size),
            size => size,
        }
    }

    /// Sets the size; pages that are cut off come back as holes. `reach`: file pages beyond the
    /// new end that the delta may have set.
    pub fn truncate(&mut self, state: &MemoryState, number: InodeNumber, size: u64, reach: u64) {
        let header = self.header(state, number);
        let end = size.div_ceil(PAGE_SIZE);
        self.arena.edit_branch(number, &header, |branch| {
            branch.size = size;
            branch.limit = branch.limit.min(end);
        });
        for page in end..end.max(reach) {
            self.arena.set_entry(number, &header, page, HOLE);
        }
    }

    /// Copies the delta of `first` and of all that must come along.
    pub fn copy(
        &mut self,
        state: &MemoryState,
        first: &[InodeNumber],
    ) -> Result<(Vec<SetMember>, Vec<CopiedDelta>), Violation> {
        let mut numbers = first.to_vec();
        loop {
            let mut budget = PageBudget::default();
            let mut deltas = Vec::new();
            for &number in &numbers {
                let header = self.header(state, number);
                deltas.extend(copy_delta(&mut self.arena, number, &header, &mut budget)?);
            }
            let before = numbers.len();
            for number in closure(&deltas, state, self.who.session) {
                if !numbers.contains(&number) {
                    numbers.push(number);
                }
            }
            if numbers.len() == before {
                let set = numbers.iter().map(|&number| state.member(number)).collect();
                return Ok((set, deltas));
            }
        }
    }

    /// Copies and verifies.
    pub fn try_fold(
        &mut self,
        state: &MemoryState,
        first: &[InodeNumber],
    ) -> Result<(Vec<SetMember>, Changes<'static>), Violation> {
        let (set, deltas) = self.copy(state, first)?;
        let changes = verify(state, &self.who, &set, &deltas)?;
        Ok((set, changes.into_owned()))
    }

    /// Copies, verifies and applies. What was folded is not in the overlay any more.
    pub fn fold(
        &mut self,
        state: &mut MemoryState,
        first: &[InodeNumber],
    ) -> Result<(Vec<SetMember>, Changes<'static>), Violation> {
        let (set, changes) = self.try_fold(state, first)?;
        state.apply(&set, &changes);
        let folded = |number| {
            let is_member = set.iter().any(|member| member.number == number);
            is_member && !changes.skipped.contains(&number)
        };
        self.overlay.retain(|(directory, _), _| !folded(*directory));
        self.creations.retain(|number, _| {
            state
                .header(*number)
                .is_some_and(|h| h.kind == HeaderKind::Granted)
        });
        Ok((set, changes))
    }
}
