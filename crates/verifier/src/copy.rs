//! Takes a private copy of a delta out of a session's arena.
//!
//! The arena may change while it is copied and may say anything. Nothing here looks at it
//! twice: a page is copied, and only the copy tells what to copy next.
//!
//! # Invariants
//! * A page number is checked to be a delta page before it is followed.
//! * Which records are valid is found when their page is copied, and holds for the copy.
//! * One [`PageBudget`] serves a whole fold set; no page is copied twice under it. So the walk
//!   ends, whatever the chains say, and no page can belong to two branches.

use crate::rule::{Rule, Violation};
use arck_core_state::arena::{ARENA_PAGES, branch_offset, is_delta_page};
use arck_core_state::branch::{BRANCH_SIZE, StoredBranch, TAILS, offset};
use arck_core_state::header::HeaderKind;
use arck_core_state::index::HEIGHT_MAX;
use arck_core_state::record::{
    DeltaPageHeader, NEXT_OFFSET, RECORD_UNIT, Record, valid_records, valid_units,
};
use arck_core_state::{FileKind, HeaderCopy, IndexRoot, InodeNumber, PAGE_SIZE};
use foldhash::HashSet;
use std::collections::BTreeMap;
use zerocopy::FromBytes;

/// A read of the arena failed: its owner truncated it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the arena cannot be read")]
pub struct CopyFault;

/// A session's arena, as the controller reads it.
pub trait ArenaSource {
    /// Copies `buffer.len()` bytes from byte `offset`. Must fail, not fault, where there is no
    /// memory. The bytes may be torn by concurrent stores, but no finer than aligned 8 bytes.
    fn copy(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), CopyFault>;
}

/// The arena pages that one fold set has used, and how many it may use.
#[derive(Clone, Debug)]
pub struct PageBudget {
    visited: HashSet<u32>,
    limit: usize,
}

impl PageBudget {
    /// A budget of `limit` pages of 4096 bytes.
    pub fn new(limit: usize) -> PageBudget {
        PageBudget {
            visited: HashSet::default(),
            limit,
        }
    }

    /// Pages copied so far.
    pub fn used(&self) -> usize {
        self.visited.len()
    }
}

impl Default for PageBudget {
    /// As many pages as an arena has.
    fn default() -> Self {
        PageBudget::new(ARENA_PAGES as usize)
    }
}

/// A private copy of one inode's delta.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopiedDelta {
    pub inode: InodeNumber,
    /// The header when it was marked.
    pub header: HeaderCopy,
    /// The decoded branch.
    pub branch: StoredBranch,
    /// The slot as it was copied.
    pub branch_bytes: [u8; BRANCH_SIZE],
    /// Byte offset of the slot in the arena.
    pub branch_offset: u64,
    /// Copied delta pages by their page number in the arena: record pages of a directory, index
    /// pages of a file.
    pub pages: BTreeMap<u32, Box<[u8; 4096]>>,
    /// Of each page of a directory, the units that are valid, as was found when it was copied.
    valid: BTreeMap<u32, u8>,
}

impl CopiedDelta {
    /// The valid records of each page, with their units in the arena. The pages of a file hold none.
    pub(crate) fn records_by_page(
        &self,
    ) -> impl Iterator<Item = impl Iterator<Item = (u32, Record<'_>)>> {
        let pages = self.valid.iter();
        pages.filter_map(|(&number, &valid)| {
            let page = self.pages.get(&number)?;
            Some(valid_records(page, number, valid))
        })
    }

    /// The same of all pages.
    pub(crate) fn records(&self) -> impl Iterator<Item = (u32, Record<'_>)> {
        self.records_by_page().flatten()
    }

    /// About so many records: most have a unit of their own, and one for names.
    pub(crate) fn records_about(&self) -> usize {
        let units = self.valid.values().map(|&units| usize::from(units));
        units.map(|units| units.div_ceil(2)).sum()
    }

    /// `length` bytes from byte `offset` of the arena, as they were copied; `None` unless all of
    /// them lie in the branch slot or in one copied page. Serves fold copies.
    pub fn arena_bytes(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let within = |bytes, start: u64| -> Option<&[u8]> {
            let bytes: &[u8] = bytes;
            let first = usize::try_from(offset.checked_sub(start)?).ok()?;
            bytes.get(first..first.checked_add(length)?)
        };
        if let Some(found) = within(&self.branch_bytes, self.branch_offset) {
            return Some(found);
        }
        let number = u32::try_from(offset / PAGE_SIZE).ok()?;
        let page = self.pages.get(&number)?;
        within(&page[..], u64::from(number) * PAGE_SIZE)
    }

    /// Byte offset of a branch field in the arena.
    pub(crate) fn field(&self, field: u64) -> u64 {
        self.branch_offset + field
    }
}

/// Copies the delta of inode `number`, whose header is `header` (epoch, fold number and slot
/// are taken from there). `None` if there is no branch for it, so that nothing is changed.
pub fn copy_delta(
    source: &mut impl ArenaSource,
    number: InodeNumber,
    header: &HeaderCopy,
    budget: &mut PageBudget,
) -> Result<Option<CopiedDelta>, Violation> {
    let Some(delta) = copy_branch(source, number, header)? else {
        return Ok(None);
    };
    check_fields_of_kind(&delta)?;
    let mut copier = Copier {
        source,
        budget,
        delta,
    };
    copier.tails()?;
    copier.index()?;
    Ok(Some(copier.delta))
}

/// The directories in whose deltas an inode has names that no fold has taken, as its branch says.
pub fn partners_of(
    source: &mut impl ArenaSource,
    number: InodeNumber,
    header: &HeaderCopy,
) -> Result<Vec<InodeNumber>, Violation> {
    let delta = copy_branch(source, number, header)?;
    let partners = delta.iter().flat_map(|delta| delta.branch.partners);
    Ok(partners.filter(|&partner| partner != 0).collect())
}

/// A delta of which only the branch has been copied.
fn copy_branch(
    source: &mut impl ArenaSource,
    number: InodeNumber,
    header: &HeaderCopy,
) -> Result<Option<CopiedDelta>, Violation> {
    if header.kind == HeaderKind::Free {
        return Ok(None);
    }
    let Some(branch_offset) = branch_offset(header.branch_slot) else {
        return Ok(None);
    };
    let mut branch_bytes = [0; BRANCH_SIZE];
    source
        .copy(branch_offset, &mut branch_bytes)
        .map_err(|fault| {
            Violation::new(
                Rule::ArenaReadable,
                number,
                branch_offset,
                fault.to_string(),
            )
        })?;
    let Some(branch) = StoredBranch::decode(
        &branch_bytes,
        number,
        header.generation,
        header.ownership.epoch(),
        header.fold,
    ) else {
        return Ok(None);
    };
    Ok(Some(CopiedDelta {
        inode: number,
        header: *header,
        branch,
        branch_bytes,
        branch_offset,
        pages: BTreeMap::new(),
        valid: BTreeMap::new(),
    }))
}

/// As much of the delta as can be copied, whatever is wrong with it: for somebody to look at, not
/// to be verified; and whether that is all of it. `None` if there is no branch, or it cannot be
/// read.
pub fn copy_readable(
    source: &mut impl ArenaSource,
    number: InodeNumber,
    header: &HeaderCopy,
    budget: &mut PageBudget,
) -> Option<(CopiedDelta, bool)> {
    let delta = copy_branch(source, number, header).ok()??;
    let mut copier = Copier {
        source,
        budget,
        delta,
    };
    // Each ends where it cannot go on; what it has copied until then stays.
    let is_whole = copier.tails().is_ok() & copier.index().is_ok();
    Some((copier.delta, is_whole))
}

/// Before any pointer is followed: a branch has the tails of a directory or the index of a
/// file, never both, and a living inode those of its kind.
fn check_fields_of_kind(delta: &CopiedDelta) -> Result<(), Violation> {
    let branch = &delta.branch;
    let has_tails = branch.tails.iter().any(|&page| page != 0);
    let has_root = branch.root != IndexRoot::EMPTY;
    let known = match delta.header.kind {
        HeaderKind::Alive | HeaderKind::Orphan => delta.header.file_kind,
        HeaderKind::Free | HeaderKind::Granted => None,
    };
    let refuse = |field, detail: &str| {
        Err(Violation::new(
            Rule::FieldsOfKind,
            delta.inode,
            delta.field(field),
            detail,
        ))
    };
    if has_tails && has_root {
        return refuse(offset::TAILS, "both the tails of a directory and an index");
    }
    if has_tails && known.is_some_and(|kind| kind != FileKind::Directory) {
        return refuse(offset::TAILS, "tails on what is no directory");
    }
    let indexed = |kind| matches!(kind, FileKind::File | FileKind::Link);
    if has_root && known.is_some_and(|kind| !indexed(kind)) {
        return refuse(offset::ROOT, "an index on what has no data pages");
    }
    Ok(())
}

struct Copier<'a, S> {
    source: &'a mut S,
    budget: &'a mut PageBudget,
    delta: CopiedDelta,
}

impl<S: ArenaSource> Copier<'_, S> {
    fn refuse<T>(&self, rule: Rule, at: u64, detail: impl Into<String>) -> Result<T, Violation> {
        Err(Violation::new(rule, self.delta.inode, at, detail))
    }

    /// Copies the page that the pointer at arena byte `at` leads to.
    fn page(&mut self, pointer: u64, at: u64) -> Result<(u32, Box<[u8; 4096]>), Violation> {
        let number = match u32::try_from(pointer) {
            Ok(number) if is_delta_page(number) => number,
            _ => {
                return self.refuse(Rule::PageInArena, at, format!("pointer {pointer:#x}"));
            }
        };
        if self.budget.visited.contains(&number) {
            return self.refuse(
                Rule::PageVisitedOnce,
                at,
                format!("arena page {number} again"),
            );
        }
        if self.budget.visited.len() >= self.budget.limit {
            let limit = self.budget.limit;
            return self.refuse(Rule::PageBudget, at, format!("more than {limit} pages"));
        }
        self.budget.visited.insert(number);
        // Not on the stack first.
        let bytes: Box<[u8]> = vec![0; 4096].into();
        let mut bytes = bytes.try_into().unwrap_or_else(|_| Box::new([0; 4096]));
        let start = u64::from(number) * PAGE_SIZE;
        if let Err(fault) = self.source.copy(start, &mut bytes[..]) {
            return self.refuse(Rule::ArenaReadable, start, fault.to_string());
        }
        Ok((number, bytes))
    }

    /// Every page of every tail of a directory.
    fn tails(&mut self) -> Result<(), Violation> {
        for tail in 0..TAILS {
            let mut pointer = self.delta.branch.tails[tail];
            let mut at = self.delta.field(offset::TAILS) + 4 * tail as u64;
            while pointer != 0 {
                let (number, bytes) = self.page(u64::from(pointer), at)?;
                let start = u64::from(number) * PAGE_SIZE;
                let Ok((header, _)) = DeltaPageHeader::read_from_prefix(&bytes[..RECORD_UNIT])
                else {
                    return self.refuse(Rule::PageHeader, start, "too short");
                };
                let (directory, fold) = (header.directory, header.fold);
                if (directory, fold) != (self.delta.inode, self.delta.branch.fold) {
                    return self.refuse(
                        Rule::PageHeader,
                        start,
                        format!("page of directory {directory}, fold {fold}"),
                    );
                }
                self.delta
                    .valid
                    .insert(number, valid_units(&bytes, number, directory, fold));
                self.delta.pages.insert(number, bytes);
                pointer = header.next;
                at = start + NEXT_OFFSET;
            }
        }
        Ok(())
    }

    /// The interior pages of a file's delta index.
    fn index(&mut self) -> Result<(), Violation> {
        let root = self.delta.branch.root;
        let at = self.delta.field(offset::ROOT);
        if root.height() > HEIGHT_MAX {
            return self.refuse(
                Rule::IndexHeight,
                at,
                format!("height {} of at most {HEIGHT_MAX}", root.height()),
            );
        }
        if root.height() == 0 || root.pointer() == 0 {
            return Ok(());
        }
        // At most 511 entries of each level above the one in hand wait here.
        let mut waiting = vec![(root.pointer(), root.height(), at)];
        while let Some((pointer, level, at)) = waiting.pop() {
            let (number, bytes) = self.page(pointer, at)?;
            if level > 1 {
                let start = u64::from(number) * PAGE_SIZE;
                waiting.extend(
                    entries(&bytes)
                        .map(|(slot, entry)| (entry, level - 1, start + 8 * slot as u64)),
                );
            }
            self.delta.pages.insert(number, bytes);
        }
        Ok(())
    }
}

/// The entries of a copied index page that are not 0, with their slots.
pub(crate) fn entries(page: &[u8; 4096]) -> impl Iterator<Item = (usize, u64)> + '_ {
    let (words, _) = page.as_chunks::<8>();
    words
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .enumerate()
        .filter(|&(_, entry)| entry != 0)
}
