//! All corruptions of a scene, and arenas that hold one or more of them.
//!
//! # Invariants
//! * A corruption of a record leaves it valid: its checksum is made right afterwards (but where
//!   the checksum is what is corrupted).
//! * The same scene gives the same corruptions in the same order.

use super::fields::{self, Field, Kind};
use super::scene::{self, SESSION, Scene};
use super::values::{INODES, Known, values};
use crate::testing::{MemoryArena, MemoryState};
use crate::{CopiedDelta, PageBudget, copy_delta};
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::StoredBranch;
use arck_core_state::directory::Dentry;
use arck_core_state::record::{
    DeltaPageHeader, RECORD_UNIT, RECORD_UNITS_MAX, Record, Seed, StoredRecord, UNITS_PER_PAGE,
    effect, records,
};
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE};
use core::mem::offset_of;
use zerocopy::IntoBytes;

/// A record whose checksum is to be made right: directory, fold number, unit.
type Place = (InodeNumber, u64, u32);

/// Bytes that a forger stores.
#[derive(Clone, Debug)]
pub struct Corruption {
    pub structure: &'static str,
    pub field: &'static str,
    /// Where and what, for reports.
    pub what: String,
    /// Byte offsets in the arena, and what is stored there.
    pub stores: Vec<(u64, Vec<u8>)>,
    seal: Option<Place>,
    /// Where the arena ends now.
    end: Option<u64>,
    /// An inode that is to be folded to see it, beside those of the scene.
    pub first: Option<InodeNumber>,
}

impl Corruption {
    /// Whether both change some byte.
    pub fn overlaps(&self, other: &Corruption) -> bool {
        let ends = self.end.is_some() && other.end.is_some();
        let meet = |one: &(u64, Vec<u8>), two: &(u64, Vec<u8>)| {
            one.0 < two.0 + two.1.len() as u64 && two.0 < one.0 + one.1.len() as u64
        };
        let any = |one| other.stores.iter().any(|two| meet(one, two));
        ends || self.stores.iter().any(any)
    }
}

/// The scene's arena with these corruptions.
pub fn forge(scene: &Scene, corruptions: &[&Corruption]) -> MemoryArena {
    let mut arena = scene.owner.arena.clone();
    for corruption in corruptions {
        for (offset, bytes) in &corruption.stores {
            arena.store(*offset, bytes);
        }
        if let Some(end) = corruption.end {
            arena.end = end;
        }
    }
    for (directory, fold, unit) in corruptions.iter().filter_map(|c| c.seal) {
        arena.seal(directory, fold, unit);
    }
    arena
}

/// Every corruption of one field, or of few that belong together.
pub fn corruptions(scene: &Scene) -> Vec<Corruption> {
    let deltas = deltas(scene);
    let mut forger = Forger {
        known: known(scene, &deltas),
        scene,
        found: Vec::new(),
    };
    for delta in &deltas {
        forger.branch(delta);
        if delta.branch.tails.iter().any(|&page| page != 0) {
            forger.directory(delta);
        } else {
            forger.index(delta);
        }
    }
    forger.arena(&deltas);
    forger.begun_branches();
    forger.begun_directories();
    forger.found
}

/// The scene's deltas, by inode number.
pub fn deltas(scene: &Scene) -> Vec<CopiedDelta> {
    let mut arena = scene.owner.arena.clone();
    let headers = scene.state.headers.iter();
    headers
        .filter(|(_, header)| header.ownership.session() == SESSION)
        .filter_map(|(&number, header)| {
            let mut budget = PageBudget::default();
            copy_delta(&mut arena, number, header, &mut budget)
                .ok()
                .flatten()
        })
        .collect()
}

fn known(scene: &Scene, deltas: &[CopiedDelta]) -> Known {
    let mut known = Known {
        end: (scene.owner.arena.end / PAGE_SIZE) as u32,
        ..Known::default()
    };
    for delta in deltas {
        known.folds.push(delta.branch.fold);
        known.pages.extend(delta.pages.keys());
        for (unit, record) in records_of(delta).into_iter().take(8) {
            known.units.push(unit);
            known.sequences.push(record.sequence);
        }
    }
    known
}

fn records_of(delta: &CopiedDelta) -> Vec<(u32, Record<'_>)> {
    let pages = delta.pages.iter();
    pages
        .flat_map(|(&page, bytes)| records(bytes, page, delta.inode, delta.branch.fold))
        .collect()
}

/// Names of every sort.
const NAMES: [&[u8]; 17] = [
    b"",
    b".",
    b"..",
    b"a/b",
    b"/",
    b"a\0b",
    b"\n",
    b"old",
    b"second",
    b"empty",
    b"full",
    b"lent",
    b"other",
    b"inner",
    b"new",
    b"twin",
    &[b'x'; 255],
];

struct Forger<'a> {
    scene: &'a Scene,
    known: Known,
    found: Vec<Corruption>,
}

impl Forger<'_> {
    fn push(
        &mut self,
        (structure, field): (&'static str, &'static str),
        what: String,
        stores: Vec<(u64, Vec<u8>)>,
        seal: Option<Place>,
    ) {
        self.found.push(Corruption {
            structure,
            field,
            what,
            stores,
            seal,
            end: None,
            first: None,
        });
    }

    /// To see the last corruption, this inode is to be folded.
    fn fold_for_last(&mut self, number: InodeNumber) {
        if let Some(last) = self.found.last_mut() {
            last.first = Some(number);
        }
    }

    /// Each field of the structure at `start` with all its values.
    fn fields(&mut self, fields: &[Field], start: u64, inode: InodeNumber, seal: Option<Place>) {
        for field in fields {
            let seal = seal.filter(|_| field.kind != Kind::Checksum);
            for element in field.elements() {
                self.element(field, start + element, inode, seal);
            }
        }
    }

    fn element(&mut self, field: &Field, at: u64, inode: InodeNumber, seal: Option<Place>) {
        let mut now = [0; 8];
        let width = field.width as usize;
        self.scene.owner.arena.read(at, &mut now[..width]);
        let now = u64::from_le_bytes(now);
        for value in values(field.kind, field.width, now, &self.known) {
            let name = (field.structure, field.name);
            let what = format!("of inode {inode} at {at:#x}: {value:#x} for {now:#x}");
            let stores = vec![(at, value.to_le_bytes()[..width].to_vec())];
            self.push(name, what, stores, seal);
        }
    }

    fn branch(&mut self, delta: &CopiedDelta) {
        self.fields(&fields::branch(), delta.branch_offset, delta.inode, None);
    }

    fn directory(&mut self, delta: &CopiedDelta) {
        let fold = delta.branch.fold;
        for (&page, bytes) in &delta.pages {
            let start = u64::from(page) * PAGE_SIZE;
            self.fields(&fields::delta_page(), start, delta.inode, None);
            let found: Vec<_> = records(bytes, page, delta.inode, fold).collect();
            // Of many records that are alike the first and the last.
            let few = found.len() <= 4;
            let ends = found.iter().enumerate();
            for (_, (unit, record)) in
                ends.filter(|&(at, _)| few || at == 0 || at == found.len() - 1)
            {
                let start = u64::from(*unit) * RECORD_UNIT as u64;
                let seal = Some((delta.inode, fold, *unit));
                self.fields(&fields::record(), start, delta.inode, seal);
                self.names(delta, *unit, record);
                self.dentries(delta, *unit);
            }
        }
    }

    /// Other names in a record.
    fn names(&mut self, delta: &CopiedDelta, unit: u32, record: &Record<'_>) {
        let place = (delta.inode, delta.branch.fold, unit);
        let room = UNITS_PER_PAGE - unit as usize % UNITS_PER_PAGE;
        for name in NAMES {
            for (field, changed) in [
                ("name", Record { name, ..*record }),
                (
                    "source",
                    Record {
                        source: name,
                        ..*record
                    },
                ),
            ] {
                if changed != *record && changed.units() <= room {
                    let shown = name.escape_ascii();
                    let what = format!("of inode {} at unit {unit}: \"{shown}\"", delta.inode);
                    let stores = vec![stored(place, &changed)];
                    self.push(("StoredRecord", field), what, stores, None);
                }
            }
        }
    }

    /// Other inodes in a record, with the generation and kind that belong to them.
    fn dentries(&mut self, delta: &CopiedDelta, unit: u32) {
        let start = u64::from(unit) * RECORD_UNIT as u64;
        let seal = Some((delta.inode, delta.branch.fold, unit));
        for number in INODES {
            for dentry in dentries_of(&self.scene.state, number) {
                let Dentry {
                    generation, kind, ..
                } = dentry;
                let at = |field: usize| start + field as u64;
                let stores = vec![
                    (
                        at(offset_of!(StoredRecord, inode)),
                        number.to_le_bytes().to_vec(),
                    ),
                    (
                        at(offset_of!(StoredRecord, generation)),
                        generation.to_le_bytes().to_vec(),
                    ),
                    (at(offset_of!(StoredRecord, kind)), vec![kind as u8]),
                ];
                let inode = delta.inode;
                let what = format!("of inode {inode} at unit {unit}: {number}, {kind:?}");
                let field = "inode, generation, kind";
                self.push(("StoredRecord", field), what, stores, seal);
            }
        }
    }

    /// The entries of a delta's index pages that are set, and some that are not.
    fn index(&mut self, delta: &CopiedDelta) {
        let root = delta.branch.root;
        let mut waiting = vec![(root.pointer(), root.height())];
        while let Some((pointer, level)) = waiting.pop() {
            let page = u32::try_from(pointer).ok();
            let Some(page) = page.filter(|page| level > 0 && delta.pages.contains_key(page)) else {
                continue;
            };
            let start = u64::from(page) * PAGE_SIZE;
            for slot in 0..512 {
                let at = start + 8 * slot;
                let mut entry = [0; 8];
                self.scene.owner.arena.read(at, &mut entry);
                let entry = u64::from_le_bytes(entry);
                if entry == 0 && ![0, 1, 2, 511].contains(&slot) {
                    continue;
                }
                let (name, kind) = match level {
                    1 => ("leaf entry", Kind::Leaf),
                    _ => ("interior entry", Kind::Interior),
                };
                let field = Field {
                    structure: "index page",
                    name,
                    offset: 0,
                    size: 8,
                    width: 8,
                    kind,
                };
                self.element(&field, at, delta.inode, None);
                if entry != 0 {
                    waiting.push((entry, level - 1));
                }
            }
        }
    }

    /// Its header, and ends within what is used.
    fn arena(&mut self, deltas: &[CopiedDelta]) {
        self.fields(&fields::arena(), 0, 0, None);
        let slots = deltas.iter().map(|delta| delta.branch_offset + 64);
        let pages = self.known.pages.iter().take(4);
        let pages = pages.flat_map(|&page| [0, 100].map(|more| u64::from(page) * PAGE_SIZE + more));
        let ends: Vec<u64> = slots.chain(pages).chain([0, PAGE_SIZE]).collect();
        for end in ends {
            let what = format!("of the arena: {end:#x}");
            self.push(("arena", "end"), what, Vec::new(), None);
            if let Some(last) = self.found.last_mut() {
                last.end = Some(end);
            }
        }
    }

    /// Branches of inodes that the session owns and has no branch of.
    fn begun_branches(&mut self) {
        type Edit = fn(&mut StoredBranch);
        let edits: [(&'static str, Edit); 8] = [
            ("size", |branch| branch.size = 0),
            ("root", |branch| branch.root.0 = scene::PAGES + 60),
            ("mode", |branch| branch.mode = 0o4777),
            ("modified", |branch| branch.modified = 9),
            ("changed", |branch| branch.changed = 9),
            ("accessed", |branch| branch.accessed = 9),
            ("limit", |branch| branch.limit = 0),
            ("attributes", |branch| {
                branch.attributes = scene::PAGES as u32 + 60
            }),
        ];
        use scene::*;
        for number in [
            LOCKED,
            GUARDED,
            STICKY,
            OTHER,
            FOREIGN,
            MARKED,
            HANDING,
            LINK,
            ORPHAN,
            FULL,
            NEW + 20,
        ] {
            for (field, edit) in edits {
                let Some((at, mut branch)) = self.unused_branch(number) else {
                    break;
                };
                edit(&mut branch);
                let what = format!("begun for inode {number}");
                let stores = vec![(at, branch.as_bytes().to_vec())];
                self.push(("StoredBranch", field), what, stores, None);
                self.fold_for_last(number);
            }
        }
    }

    fn unused_branch(&self, number: InodeNumber) -> Option<(u64, StoredBranch)> {
        let header = self.scene.state.headers.get(&number)?;
        let ownership_epoch = header.ownership.epoch();
        let new = StoredBranch::unchanged(number, header.generation, ownership_epoch, header.fold);
        let at = branch_offset(header.branch_slot)?;
        let mut bytes = [0; 128];
        self.scene.owner.arena.read(at, &mut bytes);
        (bytes == [0; 128]).then_some((at, new))
    }

    /// Deltas of directories (and of what is none) in which nothing has changed so far: one
    /// record, on the page that is allocated and not used.
    fn begun_directories(&mut self) {
        use scene::*;
        let page = self.known.end - 1;
        for number in [
            LOCKED,
            STICKY,
            HANDING,
            FULL,
            EMPTY,
            WORK,
            LINK,
            ORPHAN,
            NEW + 20,
        ] {
            let Some((at, mut branch)) = self.unused_branch(number) else {
                continue;
            };
            branch.tails[3] = page;
            let header = DeltaPageHeader {
                directory: number,
                next: 0,
                fold: branch.fold,
                reserved: [0; 6],
            };
            let unit = page * UNITS_PER_PAGE as u32 + 1;
            let names = self.scene.state.names.keys();
            let inside = names.filter(|(directory, _)| *directory == number);
            let inside: Vec<_> = inside.map(|(_, name)| name.clone()).collect();
            let template = self.scene.owner.clone().record(
                Dentry {
                    inode: NEW + 21,
                    generation: 1,
                    kind: FileKind::File,
                },
                b"added",
                b"",
            );
            let creation = Record {
                state: effect::ADD,
                ..template
            };
            let mut forged = vec![("name", creation)];
            for inode in [OLD, OTHER, EMPTY, number] {
                for dentry in dentries_of(&self.scene.state, inode) {
                    let record = Record {
                        inode,
                        generation: dentry.generation,
                        kind: dentry.kind,
                        ..creation
                    };
                    forged.push(("inode", record));
                }
            }
            for source in &inside {
                let record = Record {
                    state: effect::REMOVE_SOURCE,
                    name: b"",
                    source,
                    ..template
                };
                forged.push(("source", record));
            }
            for (field, record) in forged {
                let place = (number, branch.fold, unit);
                let stores = vec![
                    (at, branch.as_bytes().to_vec()),
                    (u64::from(page) * PAGE_SIZE, header.as_bytes().to_vec()),
                    stored(place, &record),
                ];
                let what = format!("begun for inode {number}: {}", record.inode);
                self.push(("StoredRecord", field), what, stores, None);
                self.fold_for_last(number);
            }
        }
    }
}

/// A record as it is stored at its place, checksum and all.
fn stored((directory, fold, unit): Place, record: &Record<'_>) -> (u64, Vec<u8>) {
    let mut buffer = [0; RECORD_UNITS_MAX * RECORD_UNIT];
    let seed = Seed {
        directory,
        fold,
        unit,
    };
    let length = record.encode(seed, &mut buffer).unwrap_or(0);
    (
        u64::from(unit) * RECORD_UNIT as u64,
        buffer[..length].to_vec(),
    )
}

/// What a name may lead to: an inode that lives, or one of each kind that may be created.
fn dentries_of(state: &MemoryState, inode: InodeNumber) -> Vec<Dentry> {
    let Some(header) = state.headers.get(&inode) else {
        return Vec::new();
    };
    let kinds = match header.file_kind {
        Some(kind) => vec![kind],
        None => vec![FileKind::File, FileKind::Directory],
    };
    let generation = header.generation;
    let dentry = |kind| Dentry {
        inode,
        generation,
        kind,
    };
    kinds.into_iter().map(dentry).collect()
}
