//! Deltas as a raw client stores them, byte by byte.

use super::{Client, Entry};
use arck_core_state::arena::{DELTA_FIRST, branch_offset};
use arck_core_state::branch::{BRANCH_SIZE, PARTNERS, StoredBranch, UNCHANGED_SIZE};
use arck_core_state::directory::Dentry;
use arck_core_state::index::{HOLE, IndexRoot, capacity, slot};
use arck_core_state::record::{
    DeltaPageHeader, NEXT_OFFSET, RECORD_UNIT, RECORD_UNITS_MAX, Record, RecordRef, Seed,
    UNITS_PER_PAGE, effect,
};
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE, PagePtr};
use arck_protocol::{Request, Response};
use zerocopy::IntoBytes;

impl Client {
    pub fn store(&self, offset: u64, bytes: &[u8]) {
        self.arena
            .bytes()
            .copy_from(offset as usize, bytes)
            .unwrap();
    }

    pub fn load(&self, offset: u64, bytes: &mut [u8]) {
        self.arena.bytes().copy_to(offset as usize, bytes).unwrap();
    }

    pub fn slot_offset(&self, number: InodeNumber) -> u64 {
        branch_offset(self.header(number).branch_slot()).unwrap()
    }

    pub fn branch(&self, number: InodeNumber) -> StoredBranch {
        let header = self.header(number);
        let mut bytes = [0; BRANCH_SIZE];
        self.load(self.slot_offset(number), &mut bytes);
        let (generation, ownership_epoch) = (header.generation(), header.ownership().epoch());
        StoredBranch::decode(&bytes, number, generation, ownership_epoch, header.fold())
            .unwrap_or_else(|| {
                StoredBranch::unchanged(number, generation, ownership_epoch, header.fold())
            })
    }

    pub fn edit_branch(&self, number: InodeNumber, edit: impl FnOnce(&mut StoredBranch)) {
        assert_eq!(
            self.header(number).ownership().session(),
            self.welcome.session,
            "inode {number} is not owned"
        );
        let mut branch = self.branch(number);
        edit(&mut branch);
        self.store(self.slot_offset(number), branch.as_bytes());
    }

    /// A delta page.
    pub fn allocate(&mut self) -> u32 {
        if self.next_page == DELTA_FIRST + self.delta_pages {
            self.delta_pages *= 2;
            self.done(&Request::GrowArena {
                branch_pages: 0,
                delta_pages: self.delta_pages,
            });
        }
        self.next_page += 1;
        self.store(u64::from(self.next_page - 1) * PAGE_SIZE, &[0; 4096]);
        self.next_page - 1
    }

    pub fn append(&mut self, directory: InodeNumber, record: &Record<'_>) -> RecordRef {
        let fold = self.header(directory).fold();
        let place = self.tails.get(&(directory, fold)).copied();
        let (page, unit) = match place {
            Some((page, unit)) if unit + record.units() <= UNITS_PER_PAGE => (page, unit),
            _ => {
                let page = self.allocate();
                let header = DeltaPageHeader {
                    directory,
                    next: 0,
                    fold,
                    reserved: [0; 6],
                };
                self.store(u64::from(page) * PAGE_SIZE, header.as_bytes());
                match place {
                    Some((last, _)) => self.store(
                        u64::from(last) * PAGE_SIZE + NEXT_OFFSET,
                        &page.to_le_bytes(),
                    ),
                    None => self.edit_branch(directory, |branch| branch.tails[0] = page),
                }
                (page, 1)
            }
        };
        let first = page * UNITS_PER_PAGE as u32 + unit as u32;
        let mut buffer = [0; RECORD_UNITS_MAX * RECORD_UNIT];
        let seed = Seed {
            directory,
            fold,
            unit: first,
        };
        let length = record.encode(seed, &mut buffer).unwrap();
        self.store(u64::from(first) * RECORD_UNIT as u64, &buffer[..length]);
        self.tails
            .insert((directory, fold), (page, unit + record.units()));
        RecordRef {
            unit: first,
            sequence: record.sequence,
        }
    }

    pub fn record<'a>(&mut self, dentry: Dentry, name: &'a [u8], source: &'a [u8]) -> Record<'a> {
        self.sequence += 1;
        Record {
            state: 0,
            sequence: self.sequence,
            kind: dentry.kind,
            inode: dentry.inode,
            generation: dentry.generation,
            source_directory: 0,
            mode: self.creations.get(&dentry.inode).copied().unwrap_or(0),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            created: 1_700_000_000_000_000_000,
            changed: None,
            kills: [RecordRef::default(); 2],
            name,
            source,
        }
    }

    /// A granted number.
    pub fn number(&mut self) -> InodeNumber {
        if self.stock.is_empty() {
            match self.ask(&Request::GrantInodes { count: 256 }) {
                Response::Inodes(runs) => {
                    self.stock = runs.into_iter().flat_map(|run| run.numbers()).collect();
                }
                other => panic!("{other:?}"),
            }
        }
        self.stock.pop().unwrap()
    }

    pub fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Option<Entry> {
        match self.overlay.get(&(directory, name.to_vec())) {
            Some(entry) => *entry,
            None if self.is_alive(directory) => {
                self.verified(directory, name).map(|dentry| (dentry, None))
            }
            None => None,
        }
    }

    pub fn create(&mut self, directory: InodeNumber, name: &[u8], kind: FileKind) -> InodeNumber {
        let number = self.number();
        self.create_as(directory, name, kind, number);
        number
    }

    pub fn create_as(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
        kind: FileKind,
        number: InodeNumber,
    ) {
        self.edit_branch(number, |branch| branch.parent = directory);
        let dentry = Dentry {
            inode: number,
            generation: self.header(number).generation(),
            kind,
        };
        let mode = if kind == FileKind::Directory {
            0o755
        } else {
            0o644
        };
        self.creations.insert(number, mode);
        let record = Record {
            state: effect::ADD,
            ..self.record(dentry, name, b"")
        };
        let place = self.append(directory, &record);
        self.overlay
            .insert((directory, name.to_vec()), Some((dentry, Some(place))));
    }

    fn clear(&self, record: RecordRef, bits: u32) {
        let at = u64::from(record.unit) * RECORD_UNIT as u64 + 4;
        let mut state = [0; 4];
        self.load(at, &mut state);
        let state = u32::from_le_bytes(state) & !bits;
        self.store(at, &state.to_le_bytes());
    }

    pub fn remove(&mut self, directory: InodeNumber, name: &[u8]) {
        let (dentry, place) = self.lookup(directory, name).unwrap();
        match place {
            Some(place) => self.clear(place, effect::ADD),
            None => {
                let record = Record {
                    state: effect::REMOVE_SOURCE,
                    ..self.record(dentry, b"", name)
                };
                self.append(directory, &record);
            }
        }
        self.overlay.insert((directory, name.to_vec()), None);
    }

    pub fn add_partner(&self, number: InodeNumber, partner: InodeNumber) {
        self.edit_branch(number, |branch| {
            if !branch.partners.contains(&partner) {
                let free = (0..PARTNERS).find(|&at| branch.partners[at] == 0).unwrap();
                branch.partners[free] = partner;
            }
        });
    }

    pub fn link(
        &mut self,
        number: InodeNumber,
        kind: FileKind,
        directory: InodeNumber,
        name: &[u8],
    ) {
        self.add_partner(number, directory);
        let dentry = Dentry {
            inode: number,
            generation: self.header(number).generation(),
            kind,
        };
        let record = Record {
            state: effect::ADD,
            ..self.record(dentry, name, b"")
        };
        let place = self.append(directory, &record);
        self.overlay
            .insert((directory, name.to_vec()), Some((dentry, Some(place))));
    }

    /// Renames; directories only within one parent.
    pub fn rename(&mut self, from: (InodeNumber, &[u8]), to: (InodeNumber, &[u8])) {
        let (dentry, source) = self.lookup(from.0, from.1).unwrap();
        let target = self.lookup(to.0, to.1);
        if from.0 != to.0 {
            self.add_partner(from.0, to.0);
            self.add_partner(to.0, from.0);
        }
        let mut record = self.record(dentry, to.1, b"");
        record.state = effect::ADD;
        record.source_directory = if from.0 == to.0 { 0 } else { from.0 };
        match source {
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
            Some((_, None)) => record.state |= effect::REPLACE,
            Some((_, Some(place))) => {
                record.state |= effect::KILL_TARGET;
                record.kills[1] = place;
            }
            None => {}
        }
        let place = self.append(to.0, &record);
        self.overlay.insert((from.0, from.1.to_vec()), None);
        self.overlay
            .insert((to.0, to.1.to_vec()), Some((dentry, Some(place))));
    }

    /// Puts a page into a file; the file reaches to its end at least.
    pub fn write(&mut self, number: InodeNumber, page: u64, pointer: PagePtr) {
        self.set_entry(number, page, pointer.0);
        let verified = if self.is_alive(number) {
            self.inode(number).size
        } else {
            0
        };
        self.edit_branch(number, |branch| {
            let size = match branch.size {
                UNCHANGED_SIZE => verified,
                size => size,
            };
            branch.size = size.max((page + 1) * PAGE_SIZE);
        });
    }

    /// Sets the size; `reach`: pages beyond the new end that the delta may have set.
    pub fn truncate(&mut self, number: InodeNumber, size: u64, reach: u64) {
        let end = size.div_ceil(PAGE_SIZE);
        self.edit_branch(number, |branch| {
            branch.size = size;
            branch.limit = branch.limit.min(end);
        });
        for page in end..end.max(reach) {
            self.set_entry(number, page, HOLE);
        }
    }

    pub fn set_entry(&mut self, number: InodeNumber, page: u64, entry: u64) {
        let mut root = self.branch(number).root;
        while page >= capacity(root.height()) {
            let above = if root == IndexRoot::EMPTY {
                0
            } else {
                let first = if root.height() == 0 {
                    root.leaf()
                } else {
                    root.pointer()
                };
                let above = self.allocate();
                self.store(u64::from(above) * PAGE_SIZE, &first.to_le_bytes());
                above
            };
            root = IndexRoot::new(u64::from(above), root.height() + 1);
        }
        if root.height() == 0 {
            root = IndexRoot::new(entry, 0);
        } else {
            let mut pointer = root.pointer();
            if pointer == 0 {
                pointer = u64::from(self.allocate());
                root = IndexRoot::new(pointer, root.height());
            }
            for level in (1..=root.height()).rev() {
                let at = pointer * PAGE_SIZE + 8 * slot(page, level) as u64;
                if level == 1 {
                    self.store(at, &entry.to_le_bytes());
                    break;
                }
                let mut bytes = [0; 8];
                self.load(at, &mut bytes);
                pointer = u64::from_le_bytes(bytes);
                if pointer == 0 {
                    pointer = u64::from(self.allocate());
                    self.store(at, &pointer.to_le_bytes());
                }
            }
        }
        self.edit_branch(number, |branch| branch.root = root);
    }
}
