//! An arena in memory, and the stores that make branches, records and delta indexes in it.

use crate::{ArenaSource, CopyFault};
use arck_core_state::arena::{ARENA_SPAN, DELTA_FIRST, branch_offset};
use arck_core_state::branch::{BRANCH_SIZE, StoredBranch};
use arck_core_state::index::{HEIGHT_MAX, IndexRoot, capacity, slot};
use arck_core_state::record::{
    DeltaPageHeader, NEXT_OFFSET, RECORD_UNIT, RECORD_UNITS_MAX, Record, RecordRef, Seed,
    UNITS_PER_PAGE, seal,
};
use arck_core_state::{HeaderCopy, InodeNumber, PAGE_SIZE};
use std::collections::{BTreeMap, HashMap};
use zerocopy::IntoBytes;

/// Bytes by page; what was never stored is 0.
#[derive(Clone, Debug)]
pub struct MemoryArena {
    pages: BTreeMap<u32, Box<[u8; 4096]>>,
    /// Reads at or beyond this byte fail.
    pub end: u64,
    next_page: u32,
    /// Last page and next free unit in it, by directory, fold number and tail.
    tails: HashMap<(InodeNumber, u64, usize), (u32, usize)>,
    next_sequence: u32,
}

impl Default for MemoryArena {
    fn default() -> Self {
        MemoryArena {
            pages: BTreeMap::new(),
            end: ARENA_SPAN,
            next_page: DELTA_FIRST,
            tails: HashMap::new(),
            next_sequence: 1,
        }
    }
}

impl ArenaSource for MemoryArena {
    fn copy(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), CopyFault> {
        if offset + buffer.len() as u64 > self.end {
            return Err(CopyFault);
        }
        self.read(offset, buffer);
        Ok(())
    }
}

impl MemoryArena {
    /// Reads bytes anywhere.
    pub fn read(&self, mut offset: u64, mut buffer: &mut [u8]) {
        while !buffer.is_empty() {
            let at = (offset % PAGE_SIZE) as usize;
            let (part, rest) = buffer.split_at_mut(buffer.len().min(4096 - at));
            match self.pages.get(&((offset / PAGE_SIZE) as u32)) {
                Some(page) => part.copy_from_slice(&page[at..at + part.len()]),
                None => part.fill(0),
            }
            offset += part.len() as u64;
            buffer = rest;
        }
    }

    /// Stores bytes anywhere.
    pub fn store(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let at = (offset % PAGE_SIZE) as usize;
            let (part, rest) = bytes.split_at(bytes.len().min(4096 - at));
            let page = self.pages.entry((offset / PAGE_SIZE) as u32);
            let page = page.or_insert_with(|| Box::new([0; 4096]));
            page[at..at + part.len()].copy_from_slice(part);
            offset += part.len() as u64;
            bytes = rest;
        }
    }

    /// Makes the checksum of the record at a unit right, whatever stands there.
    pub fn seal(&mut self, directory: InodeNumber, fold: u64, unit: u32) {
        let start = u64::from(unit) * RECORD_UNIT as u64;
        let mut buffer = [0; RECORD_UNITS_MAX * RECORD_UNIT];
        let length = buffer.len().min((PAGE_SIZE - start % PAGE_SIZE) as usize);
        self.read(start, &mut buffer[..length]);
        let seed = Seed {
            directory,
            fold,
            unit,
        };
        // A record that claims to reach beyond its page cannot be made valid.
        if seal(seed, &mut buffer[..length]).is_some() {
            self.store(start, &buffer[..4]);
        }
    }

    /// Offsets of all pages ever stored to, ascending.
    pub fn stored_pages(&self) -> Vec<u64> {
        let numbers = self.pages.keys();
        numbers.map(|&page| u64::from(page) * PAGE_SIZE).collect()
    }

    /// A delta page that nothing uses yet.
    pub fn allocate(&mut self) -> u32 {
        self.next_page += 1;
        self.next_page - 1
    }

    /// A sequence that no record has.
    pub fn sequence(&mut self) -> u32 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// The branch of an inode; a new one if there is none.
    pub fn branch(&self, number: InodeNumber, header: &HeaderCopy) -> StoredBranch {
        let mut bytes = [0; BRANCH_SIZE];
        let (generation, ownership_epoch) = (header.generation, header.ownership.epoch());
        self.read(slot_offset(header), &mut bytes);
        StoredBranch::decode(&bytes, number, generation, ownership_epoch, header.fold)
            .unwrap_or_else(|| {
                StoredBranch::unchanged(number, generation, ownership_epoch, header.fold)
            })
    }

    /// Changes the branch of an inode, beginning it if there is none.
    pub fn edit_branch(
        &mut self,
        number: InodeNumber,
        header: &HeaderCopy,
        edit: impl FnOnce(&mut StoredBranch),
    ) {
        let mut branch = self.branch(number, header);
        edit(&mut branch);
        self.store(slot_offset(header), branch.as_bytes());
    }

    /// Appends a record to a tail of a directory's delta.
    pub fn append(
        &mut self,
        directory: InodeNumber,
        header: &HeaderCopy,
        tail: usize,
        record: &Record<'_>,
    ) -> RecordRef {
        let key = (directory, header.fold, tail);
        let place = self.tails.get(&key).copied();
        let (page, unit) = match place {
            Some((page, unit)) if unit + record.units() <= UNITS_PER_PAGE => (page, unit),
            _ => {
                let page = self.allocate();
                let page_header = DeltaPageHeader {
                    directory,
                    next: 0,
                    fold: header.fold,
                    reserved: [0; 6],
                };
                self.store(u64::from(page) * PAGE_SIZE, page_header.as_bytes());
                match place {
                    Some((last, _)) => {
                        let at = u64::from(last) * PAGE_SIZE + NEXT_OFFSET;
                        self.store(at, &page.to_le_bytes());
                    }
                    None => self.edit_branch(directory, header, |b| b.tails[tail] = page),
                }
                (page, 1)
            }
        };
        let first = page * UNITS_PER_PAGE as u32 + unit as u32;
        self.put(directory, header.fold, first, record);
        self.tails.insert(key, (page, unit + record.units()));
        RecordRef {
            unit: first,
            sequence: record.sequence,
        }
    }

    /// Writes a record at a unit.
    pub fn put(&mut self, directory: InodeNumber, fold: u64, unit: u32, record: &Record<'_>) {
        let mut buffer = [0; RECORD_UNITS_MAX * RECORD_UNIT];
        let seed = Seed {
            directory,
            fold,
            unit,
        };
        let length = record.encode(seed, &mut buffer).expect("names that fit");
        self.store(u64::from(unit) * RECORD_UNIT as u64, &buffer[..length]);
    }

    /// Clears bits of a record's state.
    pub fn clear(&mut self, record: RecordRef, bits: u32) {
        let at = u64::from(record.unit) * RECORD_UNIT as u64 + 4;
        let mut state = [0; 4];
        self.read(at, &mut state);
        let state = u32::from_le_bytes(state) & !bits;
        self.store(at, &state.to_le_bytes());
    }

    /// Sets a leaf entry of a file's delta index, which grows as needed.
    pub fn set_entry(&mut self, number: InodeNumber, header: &HeaderCopy, page: u64, entry: u64) {
        let mut root = self.branch(number, header).root;
        while page >= capacity(root.height()) && root.height() < HEIGHT_MAX {
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
                self.read(at, &mut bytes);
                pointer = u64::from_le_bytes(bytes);
                if pointer == 0 {
                    pointer = u64::from(self.allocate());
                    self.store(at, &pointer.to_le_bytes());
                }
            }
        }
        self.edit_branch(number, header, |branch| branch.root = root);
    }
}

fn slot_offset(header: &HeaderCopy) -> u64 {
    branch_offset(header.branch_slot).expect("a slot of the table")
}
