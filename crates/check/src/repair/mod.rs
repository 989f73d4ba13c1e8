//! Repair: what can be kept is kept where it is, what has lost its place goes to `lost+found`,
//! and all counts follow from what is left.
//!
//! | module | idea |
//! | --- | --- |
//! | `tables` | files and tables that are missing, too short, or make no sense |
//! | `kinds` | what segments are, and what anything refers to |
//! | `space` | whose pages are, and where new ones go |
//! | `files`, `names` | pages of files, names of directories |
//! | `tree` | which names count, what is cut off |
//! | `plan` | changing all of it in one step |
//! | `report` | what is to be told, kept until somebody was told |
//!
//! # Invariants
//! * A pool without findings is not touched.
//! * An inode that is in order keeps its pages, and its names that are.
//! * Everything ends, whatever the bytes say; what it takes follows from the pool's size.

mod files;
mod kinds;
mod names;
mod plan;
pub(crate) mod report;
mod space;
mod tables;
mod tree;

use crate::error::{Error, Result};
use crate::finding::{Finding, Rule};
use crate::inode::{Link, Look, Sink, Use};
use crate::pool::{Header, Pool, segment_name};
use crate::report::{Options, Report};
use crate::{classes, survey};
use arck_controller_state::segments::SegmentKind;
use arck_core_state::arena::BRANCH_SLOTS;
use arck_core_state::header::{COUNTED_MAX, HeaderKind, SEALED_OFFSET, identity_word, state_word};
use arck_core_state::inode::INODE_SIZE;
use arck_core_state::{
    FileKind, Inode, InodeNumber, Ownership, PAGE_SIZE, PagePtr, Pages, SegmentNumber,
};
use foldhash::{HashMap, HashSet};
use plan::Plan;
use report::Telling;
use space::{Owner, Space};
use std::collections::BTreeMap;
use std::path::Path;
use zerocopy::IntoBytes;

/// What was done.
#[derive(Debug, Default)]
pub struct Repaired {
    /// What was found before.
    pub before: Report,
    /// What is left; nothing, if all went well.
    pub after: Report,
    /// A line for each thing that was done.
    pub actions: Vec<String>,
    /// Lines of repairs before this one, which were cut off, or whose output was lost: what they
    /// had found, and what they had done or were about to do.
    pub earlier: Vec<String>,
}

/// Repairs are made again until nothing is found, at most so often.
const ROUNDS: usize = 4;

/// A living inode, as it will be.
pub(crate) struct Saved {
    /// Where it is; 0: it is new.
    address: u64,
    inode: Inode,
    kind: FileKind,
    /// As far as it can be seen alone, it is as it has to be.
    sound: bool,
    orphan: bool,
}

/// See [`crate::repair`].
pub(crate) fn repair(path: &Path, options: &Options<'_>) -> Result<Repaired> {
    let mut telling = Telling::new(path);
    let mut done = Repaired::default();
    let lost = tables::mend_superblock(path, &mut telling)?;
    for round in 0..ROUNDS {
        let mut findings = Vec::new();
        let mut pool = Pool::open(path, &mut findings)?;
        if pool.served || !pool.lock_alone()? {
            return Err(Error::Served { path: path.into() });
        }
        let report = survey::check(&pool, findings, options)?;
        if round == 0 {
            telling.found(&report.findings);
            done.before = report.clone();
            done.before.findings.splice(..0, lost.clone());
        }
        done.after = report;
        if done.after.is_clean() {
            break;
        }
        if tables::mend_files(&pool, &mut telling)? {
            // Tables have become longer: from the beginning.
            drop(pool);
            pool = Pool::open(path, &mut Vec::new())?;
            if pool.served || !pool.lock_alone()? {
                return Err(Error::Served { path: path.into() });
            }
        }
        tables::mend_sessions(&pool, &mut telling)?;
        pool.reads_all = true;
        let mislabelled = classes::mislabelled(&pool, &done.after.findings);
        Repair::new(&pool, &mislabelled, &mut telling).run()?;
    }
    done.earlier = telling.earlier;
    done.actions = telling.actions;
    Ok(done)
}

/// Notes whether anything was found.
struct Soundness(bool, HashSet<PagePtr>);

impl Sink for Soundness {
    fn finding(&mut self, finding: Finding) {
        // What its header says else is mended with the header.
        self.0 &= finding.rule == Rule::Header;
    }
    fn claim(&mut self, _: InodeNumber, page: PagePtr, what: Use) -> bool {
        what == Use::Inodes || self.1.insert(page)
    }
    fn name(&mut self, _: Link, _: &[u8]) {}
    fn is_stopped(&self) -> bool {
        false
    }
}

struct Repair<'p, 'a> {
    pool: &'p Pool,
    plan: Plan,
    space: Space<'p>,
    saved: BTreeMap<InodeNumber, Saved>,
    /// The pages of directories, as they are.
    directory_pages: HashMap<InodeNumber, Vec<PagePtr>>,
    /// Bytes of a new page of inodes that are taken; its page.
    new_inodes: Option<(PagePtr, u64)>,
    highest_fold: u64,
    telling: &'a mut Telling,
}

impl<'p, 'a> Repair<'p, 'a> {
    fn new(
        pool: &'p Pool,
        mislabelled: &HashSet<SegmentNumber>,
        telling: &'a mut Telling,
    ) -> Repair<'p, 'a> {
        let kinds = kinds::Kinds::new(pool);
        let entries = kinds.entries(mislabelled);
        let mut numbers: Vec<_> = mislabelled.iter().collect();
        numbers.sort_unstable();
        for segment in numbers {
            telling.say(format!(
                "nobody but root and the pool's user is sent {} any more",
                segment_name(*segment)
            ));
        }
        Repair {
            pool,
            plan: Plan::default(),
            space: Space::new(pool, entries, kinds.referred),
            saved: BTreeMap::new(),
            directory_pages: HashMap::default(),
            new_inodes: None,
            highest_fold: 0,
            telling,
        }
    }

    fn say(&mut self, what: String) {
        self.telling.say(what);
    }

    fn run(mut self) -> Result<()> {
        self.find_inodes();
        self.find_lost_inodes();
        let names = self.settle_directories();
        self.settle_files();
        self.settle_tree(names)?;
        self.write_inodes();
        self.write_headers();
        self.write_segments();
        self.write_bitmap();
        self.telling.keep()?;
        self.plan.commit(self.pool)
    }

    /// Inodes that are where their headers say.
    fn find_inodes(&mut self) {
        for number in self.pool.numbers().into_iter().flatten() {
            let header = self.pool.header(number);
            if header.fold <= COUNTED_MAX {
                self.highest_fold = self.highest_fold.max(header.fold);
            }
            let page = PagePtr::of_address(header.inode);
            if let Some(inode) = kinds::inode_of(self.pool, number, header.inode)
                && self.space.kind_of(page) == SegmentKind::Metadata
            {
                self.save(number, header, header.inode, inode);
            }
        }
    }

    fn save(&mut self, number: InodeNumber, header: Header, address: u64, mut inode: Inode) {
        let Some(kind) = inode.kind() else { return };
        self.space
            .claim(PagePtr::of_address(address), Owner::Inodes);
        let mut sound = Soundness(true, HashSet::default());
        let look = Look {
            pool: self.pool,
            sink: &mut sound,
            number,
            header,
        };
        let is_known = look.check().is_some();
        if inode.generation == 0 {
            inode.generation = header.generation().max(1);
        }
        let saved = Saved {
            address,
            kind,
            sound: sound.0 && is_known,
            orphan: header.kind() == HeaderKind::Orphan as u8 && inode.links == 0,
            inode,
        };
        self.saved.insert(number, saved);
    }

    /// Numbers whose headers say that they are alive, and lead nowhere: their inodes may still
    /// stand among the others.
    fn find_lost_inodes(&mut self) {
        let mut lost: HashMap<InodeNumber, Header> = HashMap::default();
        for number in self.pool.numbers().into_iter().flatten() {
            let header = self.pool.header(number);
            let says = matches!(
                HeaderKind::from_u8(header.kind()),
                Some(HeaderKind::Alive | HeaderKind::Orphan) | None
            );
            if says && !self.saved.contains_key(&number) {
                lost.insert(number, header);
            }
        }
        if lost.is_empty() {
            return;
        }
        let taken: HashSet<u64> = self.saved.values().map(|saved| saved.address).collect();
        let pages: HashSet<PagePtr> = taken
            .iter()
            .map(|&address| PagePtr::of_address(address))
            .collect();
        let mut pages: Vec<PagePtr> = pages.into_iter().collect();
        pages.sort_unstable();
        for page in pages {
            for address in (page.address()..page.address() + PAGE_SIZE).step_by(INODE_SIZE) {
                let inode = Inode::read(self.pool, address).filter(|_| !taken.contains(&address));
                let Some(inode) = inode else { continue };
                // As old inodes stay where they were, the generation has to agree.
                let header = lost.get(&inode.number).copied();
                if let Some(header) = header.filter(|h| h.generation() == inode.generation)
                    && inode.kind().is_some()
                    && inode.number != 0
                {
                    lost.remove(&inode.number);
                    self.save(inode.number, header, address, inode);
                    self.say(format!("found inode {} at {address:#x}", inode.number));
                }
            }
        }
        for number in lost.into_keys() {
            self.say(format!("gave up inode {number}: it is nowhere"));
        }
    }

    /// Takes the pages of directories, those in order first; gives their names, and whether they
    /// have to be written anew.
    fn settle_directories(&mut self) -> BTreeMap<InodeNumber, (Vec<names::Name>, bool)> {
        let mut all = BTreeMap::new();
        let mut strange = Vec::new();
        for sound in [true, false] {
            let numbers: Vec<InodeNumber> = self
                .saved
                .iter()
                .filter(|(_, s)| s.kind == FileKind::Directory && s.sound == sound)
                .map(|(&number, _)| number)
                .collect();
            for number in numbers {
                let Some(inode) = self.saved.get(&number).map(|saved| saved.inode) else {
                    continue;
                };
                let found = names::read(self.pool, &self.space, &inode);
                for &page in &found.pages {
                    self.space.claim(page, Owner::Inode(number));
                }
                let is_whole = found.names.len() as u64 == u64::from(inode.entries);
                let anew = !(sound && is_whole && found.strange.is_empty());
                if anew {
                    strange.extend(found.strange.iter().map(|&page| (number, page)));
                }
                all.insert(number, (found.names, anew, found.pages));
            }
        }
        for (number, page) in strange {
            if self.space.owner(page).is_none()
                && let Some(words) = self.pool.page(page)
                && let Some(entry) = all.get_mut(&number)
            {
                entry.0.extend(names::names(words));
            }
        }
        let mut names = BTreeMap::new();
        for (number, (found, anew, pages)) in all {
            self.directory_pages.insert(number, pages);
            names.insert(number, (found, anew));
        }
        for sound in [true, false] {
            self.each_saved(sound, |repair, saved| {
                if saved.kind == FileKind::Directory {
                    let mut fate = files::Fate::default();
                    let Repair {
                        pool, plan, space, ..
                    } = repair;
                    files::attributes(pool, plan, space, &mut saved.inode, saved.kind, &mut fate);
                    repair.say_fate(saved.inode.number, &fate);
                }
            });
        }
        names
    }

    fn settle_files(&mut self) {
        for sound in [true, false] {
            self.each_saved(sound, |repair, saved| {
                if saved.kind == FileKind::Directory {
                    return;
                }
                let Repair {
                    pool, plan, space, ..
                } = repair;
                let fate = files::settle(pool, plan, space, &mut saved.inode, saved.kind);
                if !saved.orphan {
                    saved.inode.parent = 0;
                    saved.inode.entries = 0;
                }
                repair.say_fate(saved.inode.number, &fate);
            });
        }
    }

    fn say_fate(&mut self, number: InodeNumber, fate: &files::Fate) {
        if fate.copied > 0 {
            self.say(format!(
                "gave inode {number} copies of {} pages that are another's too",
                fate.copied
            ));
        }
        if fate.dropped > 0 {
            self.say(format!(
                "took {} pointers from inode {number} that led to nothing of its own",
                fate.dropped
            ));
        }
    }

    fn each_saved(&mut self, sound: bool, mut each: impl FnMut(&mut Self, &mut Saved)) {
        let mut saved = std::mem::take(&mut self.saved);
        for one in saved.values_mut().filter(|one| one.sound == sound) {
            each(self, one);
        }
        self.saved = saved;
    }

    /// A place for an inode that is new. ENOSPC: there is no room.
    fn new_place(&mut self) -> Result<u64> {
        let (page, used) = match self.new_inodes {
            Some((page, used)) if used + (INODE_SIZE as u64) <= PAGE_SIZE => (page, used),
            _ => {
                let page = self.space.allocate(SegmentKind::Metadata, Owner::Inodes);
                let page = page.ok_or_else(|| self.no_room())?;
                self.plan.add_page(page, arck_core_state::zeroed_page());
                (page, 0)
            }
        };
        self.new_inodes = Some((page, used + INODE_SIZE as u64));
        Ok(page.address() + used)
    }

    fn no_room(&self) -> Error {
        Error::NoRoom {
            path: self.pool.path.clone(),
        }
    }

    fn write_inodes(&mut self) {
        for saved in self.saved.values() {
            let is_new = self
                .new_inodes
                .is_some_and(|(page, _)| PagePtr::of_address(saved.address) == page);
            let old = Inode::read(self.pool, saved.address).filter(|_| !is_new);
            let old = old.as_ref().map(IntoBytes::as_bytes);
            let new = saved.inode.as_bytes();
            for (index, word) in new.as_chunks::<8>().0.iter().enumerate() {
                let at = index * 8;
                if old.and_then(|old| old.get(at..at + 8)) != Some(&word[..]) {
                    let address = saved.address + at as u64;
                    self.plan.set_word(address, u64::from_le_bytes(*word));
                }
            }
        }
    }

    fn write_headers(&mut self) {
        let closed = self.pool.superblock.clean;
        let mut numbers: Vec<InodeNumber> = self.pool.numbers().into_iter().flatten().collect();
        numbers.extend(self.saved.keys().copied());
        numbers.sort_unstable();
        numbers.dedup();
        let mut said = Vec::new();
        for number in numbers {
            let old = self.pool.header(number);
            let saved = self.saved.get(&number);
            let sequence = match old.sequence {
                sequence if sequence > COUNTED_MAX => 0,
                sequence => sequence.next_multiple_of(2),
            };
            let mut fold = old.fold;
            if fold > COUNTED_MAX || (fold == 0 && saved.is_some()) {
                self.highest_fold += 1;
                fold = self.highest_fold;
            }
            let mut ownership = if closed {
                Ownership::SHARED
            } else {
                old.ownership
            };
            let mut slot = old.branch_slot();
            if slot >= BRANCH_SLOTS {
                (ownership, slot) = (Ownership::SHARED, 0);
            }
            let is_sealed = old.sealed != 0
                && old.may_be_sealed()
                && ownership != Ownership::SHARED
                && saved.is_some_and(|saved| !saved.orphan && saved.kind == FileKind::Directory);
            let (sealed, sealed_slot) = match is_sealed {
                true => (old.sealed, old.sealed_slot()),
                false => (0, 0),
            };
            let words = match saved {
                Some(saved) => {
                    let kind = if saved.orphan {
                        HeaderKind::Orphan
                    } else {
                        HeaderKind::Alive
                    };
                    [
                        sequence,
                        saved.address,
                        fold,
                        ownership.0,
                        identity_word(saved.inode.generation, slot),
                        state_word(kind, Some(saved.kind), sealed_slot),
                    ]
                }
                None => {
                    let is_granted = old.kind() == HeaderKind::Granted as u8 && !closed;
                    let was_free = old.kind() == HeaderKind::Free as u8;
                    if !was_free && !is_granted {
                        said.push(format!("freed inode number {number}"));
                    }
                    let generation = if was_free || is_granted {
                        old.generation()
                    } else {
                        // No name of the one that is given up leads to the next one.
                        old.generation().wrapping_add(1).max(1)
                    };
                    let (kind, ownership) = if is_granted {
                        (HeaderKind::Granted, ownership)
                    } else {
                        slot = 0;
                        (HeaderKind::Free, Ownership::SHARED)
                    };
                    [
                        sequence,
                        0,
                        fold,
                        ownership.0,
                        identity_word(generation, slot),
                        state_word(kind, None, 0),
                    ]
                }
            };
            let before = [
                old.sequence,
                old.inode,
                old.fold,
                old.ownership.0,
                old.identity,
                old.state,
            ];
            for ((word, before), offset) in words.into_iter().zip(before).zip((0..).step_by(8)) {
                if word != before {
                    self.plan.set_header(number, offset, word);
                }
            }
            if sealed != old.sealed {
                self.plan.set_header(number, SEALED_OFFSET, sealed);
            }
        }
        for line in said {
            self.say(line);
        }
    }

    fn write_segments(&mut self) {
        for segment in 0..self.pool.geometry.segment_count {
            let old = self.pool.segment_entry(segment);
            let new = self.space.segments[segment as usize];
            if old != new {
                self.plan.set_segment(segment, new);
                let kind = new.kind();
                self.say(format!("segment {segment} is of {kind:?} now"));
            }
        }
    }

    fn write_bitmap(&mut self) {
        let mut changed = 0u64;
        for (index, word) in (0..).zip(self.space.bitmap()) {
            let old = self.pool.bits(index);
            if word != old {
                changed += u64::from((word ^ old).count_ones());
                self.plan.set_bits(index, word);
            }
        }
        if changed > 0 {
            self.say(format!(
                "marked {changed} pages as they are, in use or free"
            ));
        }
    }
}
