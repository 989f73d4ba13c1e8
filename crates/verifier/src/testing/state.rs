//! Verified state in memory: applies changes and checks that it is a file system.

use crate::{ChangedName, Changes, SetMember, VerifiedState};
use arck_core_state::branch::UNCHANGED_TIME;
use arck_core_state::directory::{Dentry, hash_name};
use arck_core_state::geometry::{FILE_SIZE_MAX, LINKS_MAX, NAME_MAX, PATH_MAX, SessionNumber};
use arck_core_state::header::{HeaderKind, Ownership};
use arck_core_state::{
    DEVICE_MAX, FileKind, HeaderCopy, Inode, InodeNumber, PAGE_SIZE, PagePtr, ROOT_INODE,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use zerocopy::FromZeros;

/// The tables of a controller, in memory.
#[derive(Clone, Debug)]
pub struct MemoryState {
    pub headers: BTreeMap<InodeNumber, HeaderCopy>,
    pub inodes: BTreeMap<InodeNumber, Inode>,
    pub names: BTreeMap<(InodeNumber, Vec<u8>), Dentry>,
    /// Data pages by inode and page number in the file.
    pub data: BTreeMap<(InodeNumber, u64), PagePtr>,
    /// Pages of the pool granted for data, and to whom.
    pub segments: Vec<(Range<u64>, SessionNumber)>,
    in_use: HashSet<PagePtr>,
    next_fold: u64,
    next_slot: u32,
}

impl MemoryState {
    /// A root directory of this owner, mode and nothing else. Shared.
    pub fn new(uid: u32, gid: u32, mode: u32) -> MemoryState {
        let mut state = MemoryState {
            headers: BTreeMap::new(),
            inodes: BTreeMap::new(),
            names: BTreeMap::new(),
            data: BTreeMap::new(),
            segments: Vec::new(),
            in_use: HashSet::new(),
            next_fold: 1,
            next_slot: 1,
        };
        state.insert(
            ROOT_INODE,
            ROOT_INODE,
            FileKind::Directory,
            mode,
            (uid, gid),
        );
        state
    }

    fn insert(
        &mut self,
        number: InodeNumber,
        parent: InodeNumber,
        kind: FileKind,
        mode: u32,
        (uid, gid): (u32, u32),
    ) {
        let generation = self.header(number).map_or(1, |header| header.generation);
        let mut inode = Inode::new_zeroed();
        inode.number = number;
        inode.generation = generation;
        inode.mode = kind.mode_bits() | mode;
        (inode.uid, inode.gid) = (uid, gid);
        if kind == FileKind::Directory {
            inode.parent = parent;
            inode.links = 2;
        }
        self.inodes.insert(number, inode);
        let (fold, branch_slot) = (self.fold_number(), self.slot());
        let header = self.headers.entry(number).or_insert(HeaderCopy {
            sequence: 0,
            inode: 0,
            fold,
            ownership: Ownership::SHARED,
            generation,
            branch_slot,
            kind: HeaderKind::Alive,
            file_kind: None,
            sealed: 0,
            sealed_slot: 0,
        });
        header.kind = HeaderKind::Alive;
        header.file_kind = Some(kind);
    }

    fn fold_number(&mut self) -> u64 {
        self.next_fold += 1;
        self.next_fold
    }

    fn slot(&mut self) -> u32 {
        self.next_slot += 1;
        self.next_slot
    }

    /// A verified inode with a first name.
    pub fn add(
        &mut self,
        parent: InodeNumber,
        name: &[u8],
        number: InodeNumber,
        kind: FileKind,
        mode: u32,
        owner: (u32, u32),
    ) {
        self.insert(number, parent, kind, mode, owner);
        self.add_name(parent, name, number);
        let counted = match kind {
            FileKind::Directory => parent,
            _ => number,
        };
        self.change(counted, |inode| inode.links += 1);
    }

    fn add_name(&mut self, directory: InodeNumber, name: &[u8], number: InodeNumber) {
        let inode = self.inodes[&number];
        let dentry = Dentry {
            inode: number,
            generation: inode.generation,
            kind: inode.kind().expect("a known kind"),
        };
        self.names.insert((directory, name.to_vec()), dentry);
        self.change(directory, |inode| inode.entries += 1);
    }

    /// A further name for a file.
    pub fn add_link(&mut self, directory: InodeNumber, name: &[u8], number: InodeNumber) {
        self.add_name(directory, name, number);
        self.change(number, |inode| inode.links += 1);
    }

    /// A verified data page.
    pub fn set_data(&mut self, number: InodeNumber, page: u64, pointer: PagePtr) {
        if let Some(old) = self.data.remove(&(number, page)) {
            self.in_use.remove(&old);
        }
        if !pointer.is_null() {
            self.data.insert((number, page), pointer);
            self.in_use.insert(pointer);
        }
    }

    /// Changes a shadow inode that exists.
    pub fn change(&mut self, number: InodeNumber, edit: impl FnOnce(&mut Inode)) {
        edit(self.inodes.get_mut(&number).expect("an inode"));
    }

    /// Changes a header that exists.
    pub fn change_header(&mut self, number: InodeNumber, edit: impl FnOnce(&mut HeaderCopy)) {
        edit(self.headers.get_mut(&number).expect("a header"));
    }

    /// Takes the only name of a file away, as if some session still had it open.
    pub fn orphan(&mut self, number: InodeNumber) {
        let key = self.names.iter().find(|(_, d)| d.inode == number);
        let (directory, name) = key.map(|(key, _)| key.clone()).expect("a name");
        self.names.remove(&(directory, name));
        self.change(directory, |inode| inode.entries -= 1);
        self.change(number, |inode| inode.links = 0);
        self.change_header(number, |header| header.kind = HeaderKind::Orphan);
    }

    /// The pages that the verified state refers to.
    pub fn pages_in_use(&self) -> &HashSet<PagePtr> {
        &self.in_use
    }

    /// Grants an inode number to a session.
    pub fn grant(&mut self, number: InodeNumber, session: SessionNumber) {
        let generation = self.header(number).map_or(1, |h| h.generation + 1);
        let header = HeaderCopy {
            sequence: 0,
            inode: 0,
            fold: self.fold_number(),
            ownership: Ownership::new(session, 1),
            generation,
            branch_slot: self.slot(),
            kind: HeaderKind::Granted,
            file_kind: None,
            sealed: 0,
            sealed_slot: 0,
        };
        self.headers.insert(number, header);
    }

    /// Makes a session the owner, or nobody (0).
    pub fn set_owner(&mut self, number: InodeNumber, session: SessionNumber) {
        self.change_header(number, |header| {
            header.ownership = Ownership::new(session, header.ownership.epoch() + 1);
        });
    }

    /// The member that a fold set would have for it.
    pub fn member(&self, number: InodeNumber) -> SetMember {
        SetMember {
            number,
            header: self.headers[&number],
        }
    }

    /// Applies verified changes as the controller does, fold numbers included.
    pub fn apply(&mut self, set: &[SetMember], changes: &Changes<'_>) {
        for creation in &changes.creations {
            let owner = (creation.uid, creation.gid);
            self.insert(
                creation.inode,
                creation.parent,
                creation.kind,
                creation.mode,
                owner,
            );
        }
        for creation in &changes.creations {
            match creation.kind {
                FileKind::Directory => self.change(creation.parent, |inode| inode.links += 1),
                _ => self.change(creation.inode, |inode| inode.links = creation.names),
            }
        }
        for change in &changes.inodes {
            let number = change.inode;
            if let Some(limit) = change.limit {
                let beyond = (number, limit)..=(number, u64::MAX);
                let dropped: Vec<_> = self.data.range(beyond).map(|(&key, _)| key).collect();
                for (_, page) in dropped {
                    self.set_data(number, page, PagePtr::NULL);
                }
            }
            for &(page, pointer) in &change.pages {
                self.set_data(number, page, pointer);
            }
            if let Some(page) = change.attributes {
                self.set_attributes(number, page);
            }
            for ChangedName { name, dentry, .. } in &change.names_removed {
                let key = (number, name.to_vec());
                assert_eq!(self.names.remove(&key), Some(*dentry));
                self.change(number, |inode| inode.entries -= 1);
            }
            self.change(number, |inode| {
                let kind = inode.mode & !0o7777;
                inode.mode = change.mode.map_or(inode.mode, |mode| kind | mode);
                inode.size = change.size.unwrap_or(inode.size);
                inode.modified = change.modified.unwrap_or(inode.modified);
                inode.changed = change
                    .changed
                    .map_or(inode.changed, |t| t.max(inode.changed));
                inode.accessed = change.accessed.unwrap_or(inode.accessed);
            });
        }
        for change in &changes.inodes {
            for ChangedName { name, dentry, .. } in &change.names_added {
                let key = (change.inode, name.to_vec());
                assert_eq!(self.names.insert(key, *dentry), None);
                self.change(change.inode, |inode| inode.entries += 1);
            }
        }
        for &(number, time) in &changes.times {
            self.change(number, |inode| inode.changed = inode.changed.max(time));
        }
        for &(number, net) in &changes.links {
            self.change(number, |inode| {
                inode.links = u32::try_from(i64::from(inode.links) + net).expect("in range");
            });
            if self.inodes[&number].links == 0 {
                self.free(number);
            } else {
                // It may have been an orphan until now.
                self.change_header(number, |header| header.kind = HeaderKind::Alive);
            }
        }
        for &number in &changes.removed_directories {
            let parent = self.inodes[&number].parent;
            self.change(parent, |inode| inode.links -= 1);
            self.free(number);
        }
        for member in set {
            if !changes.skipped.contains(&member.number) {
                let fold = self.fold_number();
                self.change_header(member.number, |header| header.fold = fold);
            }
        }
    }

    /// Sets the page of an inode's extended attributes.
    pub fn set_attributes(&mut self, number: InodeNumber, page: PagePtr) {
        let old = self.inodes.get(&number).map(|inode| inode.attributes);
        if let Some(old) = old {
            self.in_use.remove(&old);
        }
        if !page.is_null() {
            assert!(self.in_use.insert(page), "page {page:?} of {number} in use");
        }
        self.change(number, |inode| inode.attributes = page);
    }

    fn free(&mut self, number: InodeNumber) {
        self.set_attributes(number, PagePtr::NULL);
        self.inodes.remove(&number);
        let every = (number, 0)..=(number, u64::MAX);
        let pages: Vec<_> = self.data.range(every).map(|(key, _)| key.1).collect();
        for page in pages {
            self.set_data(number, page, PagePtr::NULL);
        }
        self.change_header(number, |header| {
            header.kind = HeaderKind::Free;
            header.ownership = Ownership::SHARED;
        });
    }

    /// Whether it is a file system: tree, link counts, pages, fields. Says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let ensure = |holds: bool, what: String| if holds { Ok(()) } else { Err(what) };
        let mut names_of: HashMap<InodeNumber, u32> = HashMap::new();
        let mut entries: HashMap<InodeNumber, u32> = HashMap::new();
        let mut subdirectories: HashMap<InodeNumber, u32> = HashMap::new();
        for ((directory, name), dentry) in &self.names {
            let shown = name.escape_ascii();
            let sound = (1..=NAME_MAX).contains(&name.len())
                && name != b"."
                && name != b".."
                && !name.iter().any(|&byte| byte == 0 || byte == b'/');
            ensure(sound, format!("name {shown}"))?;
            let holder = self.inodes.get(directory).and_then(Inode::kind);
            ensure(
                holder == Some(FileKind::Directory),
                format!("{shown} in {directory}, which is no directory"),
            )?;
            let inode = self.inodes.get(&dentry.inode);
            let inode = inode.ok_or(format!("{shown} leads to no inode"))?;
            ensure(
                inode.kind() == Some(dentry.kind) && inode.generation == dentry.generation,
                format!("{shown} leads to another inode"),
            )?;
            *names_of.entry(dentry.inode).or_default() += 1;
            *entries.entry(*directory).or_default() += 1;
            if dentry.kind == FileKind::Directory {
                ensure(
                    inode.parent == *directory,
                    format!("{shown}: parent {}, in {directory}", inode.parent),
                )?;
                *subdirectories.entry(*directory).or_default() += 1;
            }
        }
        for (&number, inode) in &self.inodes {
            let count = |map: &HashMap<_, u32>| map.get(&number).copied().unwrap_or(0);
            ensure(inode.created != UNCHANGED_TIME, format!("time of {number}"))?;
            let header = self.headers.get(&number).map(|header| header.kind);
            let orphan = header == Some(HeaderKind::Orphan) && inode.links == 0;
            ensure(
                header == Some(HeaderKind::Alive) || orphan,
                format!("header of {number}"),
            )?;
            ensure(
                inode.kind().is_some() && inode.number == number,
                format!("kind or number of {number}"),
            )?;
            let longest = match inode.kind() {
                Some(FileKind::Link) => PATH_MAX as u64,
                Some(FileKind::File) => FILE_SIZE_MAX,
                Some(FileKind::CharacterDevice | FileKind::BlockDevice) => DEVICE_MAX,
                _ => 0,
            };
            ensure(inode.size <= longest, format!("size of {number}"))?;
            if inode.kind() == Some(FileKind::Directory) {
                let expected = u32::from(number != ROOT_INODE);
                ensure(
                    count(&names_of) == expected,
                    format!("{} names of directory {number}", count(&names_of)),
                )?;
                ensure(
                    inode.links == 2 + count(&subdirectories) && inode.entries == count(&entries),
                    format!("counts of directory {number}"),
                )?;
                self.check_way_to_root(number)?;
            } else {
                ensure(
                    inode.links == count(&names_of)
                        && (u32::from(!orphan)..=LINKS_MAX).contains(&inode.links),
                    format!("{} links of {number}", inode.links),
                )?;
            }
        }
        let mut seen = HashSet::new();
        for (&(number, page), pointer) in &self.data {
            let size = self.inodes.get(&number).map_or(0, |inode| inode.size);
            ensure(
                seen.insert(*pointer) && page < size.div_ceil(PAGE_SIZE),
                format!("data page {} of {number}", pointer.0),
            )?;
        }
        for (number, inode) in &self.inodes {
            let page = inode.attributes;
            let may_have = matches!(inode.kind(), Some(FileKind::File | FileKind::Directory));
            ensure(
                page.is_null() || may_have && self.in_use.contains(&page) && seen.insert(page),
                format!("extended attributes {} of {number}", page.0),
            )?;
        }
        for (&number, header) in &self.headers {
            let alive = matches!(header.kind, HeaderKind::Alive | HeaderKind::Orphan);
            ensure(
                alive == self.inodes.contains_key(&number),
                format!("header of {number} is {:?}", header.kind),
            )?;
        }
        ensure(
            seen == self.in_use,
            "pages in use are not those referred to".to_owned(),
        )
    }

    fn check_way_to_root(&self, number: InodeNumber) -> Result<(), String> {
        let mut at = number;
        for _ in 0..=self.inodes.len() {
            if at == ROOT_INODE {
                return Ok(());
            }
            at = self.inodes.get(&at).map_or(0, |inode| inode.parent);
        }
        Err(format!("directory {number} has no way to the root"))
    }
}

impl VerifiedState for MemoryState {
    fn header(&self, number: InodeNumber) -> Option<HeaderCopy> {
        self.headers.get(&number).copied()
    }
    fn inode(&self, number: InodeNumber) -> Option<Inode> {
        self.inodes.get(&number).copied()
    }
    fn hash(&self, name: &[u8]) -> u64 {
        hash_name(0, name)
    }
    fn lookup_hashed(&self, directory: InodeNumber, _: u64, name: &[u8]) -> Option<Dentry> {
        self.names.get(&(directory, name.to_vec())).copied()
    }
    fn data_page(&self, number: InodeNumber, page: u64) -> PagePtr {
        self.data.get(&(number, page)).copied().unwrap_or_default()
    }
    fn page_in_use(&self, page: PagePtr) -> bool {
        self.in_use.contains(&page)
    }
    fn data_segment_owner(&self, page: PagePtr) -> Option<SessionNumber> {
        let found = self
            .segments
            .iter()
            .find(|(range, _)| range.contains(&page.0));
        found.map(|(_, session)| *session)
    }
}
