//! Data pages and size of a file or symbolic link: I1 and I2 for a file's delta.
//!
//! # Invariants
//! * A page that the verified state refers to stays where it is or goes; it never appears at
//!   another place. A new page is the session's own and appears once in the fold set.
//! * After the change no page lies beyond the file's end. Delta entries beyond it are ignored:
//!   an append publishes its page before its size.

use crate::copy::{CopiedDelta, entries};
use crate::fold_set::FoldSet;
use crate::page_set::PageSet;
use crate::rule::{Rule, Violation};
use crate::state::{Credentials, VerifiedState};
use arck_core_state::branch::{UNCHANGED_SIZE, offset};
use arck_core_state::geometry::{FILE_SIZE_MAX, PATH_MAX};
use arck_core_state::index::{HEIGHT_MAX, HOLE, IndexRoot, capacity};
use arck_core_state::{DEVICE_MAX, FileKind, Inode, PAGE_SIZE, PagePtr, extended};

/// What changes in a file.
#[derive(Debug, Default)]
pub(crate) struct FileChange {
    pub size: Option<u64>,
    pub limit: Option<u64>,
    pub pages: Vec<(u64, PagePtr)>,
}

impl FileChange {
    pub fn is_nothing(&self) -> bool {
        self.size.is_none() && self.limit.is_none() && self.pages.is_empty()
    }
}

/// Checks a branch against the inode as verified, or as created; `used` are the new data pages
/// of the whole fold set so far.
pub(crate) fn check<S: VerifiedState>(
    set: &FoldSet<'_, S>,
    delta: &CopiedDelta,
    inode: &Inode,
    used: &mut PageSet,
) -> Result<FileChange, Violation> {
    let branch = &delta.branch;
    let refuse = |rule, field, detail: String| {
        Err(Violation::new(
            rule,
            delta.inode,
            delta.field(field),
            detail,
        ))
    };
    if inode.kind() != Some(FileKind::Directory) && branch.tails.iter().any(|&page| page != 0) {
        let detail = "tails on what is no directory".to_owned();
        return refuse(Rule::FieldsOfKind, offset::TAILS, detail);
    }
    let greatest = match inode.kind() {
        Some(FileKind::File) => FILE_SIZE_MAX,
        Some(FileKind::Link) => PATH_MAX as u64,
        Some(kind) if kind.is_device() => return check_device(set.who, delta, inode, kind),
        _ => return check_no_data(delta),
    };
    let mut change = FileChange::default();
    let mut size = inode.size;
    if branch.size != UNCHANGED_SIZE {
        size = branch.size;
        change.size = Some(size);
    }
    if size > greatest {
        let detail = format!("{size} bytes of at most {greatest}");
        return refuse(Rule::Size, offset::SIZE, detail);
    }
    if branch.limit != UNCHANGED_SIZE && branch.limit > FILE_SIZE_MAX / PAGE_SIZE {
        let detail = format!("limit at page {}", branch.limit);
        return refuse(Rule::Limit, offset::LIMIT, detail);
    }
    if branch.root.height() > HEIGHT_MAX {
        let detail = format!("height {}", branch.root.height());
        return refuse(Rule::IndexHeight, offset::ROOT, detail);
    }
    let end = size.div_ceil(PAGE_SIZE);
    let limit = branch.limit.min(end);
    if limit < inode.size.div_ceil(PAGE_SIZE) {
        change.limit = Some(limit);
    }
    let mut walk = Walk {
        set,
        delta,
        verified_end: limit,
        end,
        used,
        found: Vec::new(),
    };
    if branch.root.height() == 0 {
        if branch.root != IndexRoot::EMPTY && end > 0 {
            walk.leaf(0, branch.root.leaf(), delta.field(offset::ROOT))?;
        }
    } else {
        walk.interior(branch.root.pointer(), branch.root.height(), 0)?;
    }
    change.pages = walk.found;
    Ok(change)
}

/// Checks the page of extended attributes that a branch sets; what stands in it is its readers'
/// business, as with data. `None`: it stays as it is.
pub(crate) fn check_attributes<S: VerifiedState>(
    set: &FoldSet<'_, S>,
    delta: &CopiedDelta,
    inode: &Inode,
    used: &mut PageSet,
) -> Result<Option<PagePtr>, Violation> {
    let page = match delta.branch.attributes {
        0 => return Ok(None),
        extended::NONE => PagePtr::NULL,
        page => PagePtr(u64::from(page)),
    };
    let refuse = |rule, what: &str| {
        let at = delta.field(offset::PARENT) + 4;
        let detail = format!("extended attributes in page {:#x}, {what}", page.0);
        Err(Violation::new(rule, delta.inode, at, detail))
    };
    if !matches!(inode.kind(), Some(FileKind::File | FileKind::Directory)) {
        return refuse(Rule::FieldsOfKind, "of neither file nor directory");
    }
    if page == inode.attributes {
        return Ok(None);
    }
    if page.is_null() {
        return Ok(Some(page));
    }
    if set.state.page_in_use(page) {
        return refuse(Rule::DataPageFree, "which is in use");
    }
    if set.state.data_segment_owner(page) != Some(set.who.session) {
        return refuse(Rule::DataPageOwned, "which is not the session's");
    }
    if !used.insert(page) {
        return refuse(Rule::DataPageOnce, "which is used twice");
    }
    Ok(Some(page))
}

/// A device has a number, in the place of a size. Its name may be folded before its branch: until that comes, the
/// number is 0, and it keeps the one with which it comes.
fn check_device(
    who: &Credentials,
    delta: &CopiedDelta,
    inode: &Inode,
    kind: FileKind,
) -> Result<FileChange, Violation> {
    let number = delta.branch.size;
    let refuse = |rule, detail: String| {
        let at = delta.field(offset::SIZE);
        Err(Violation::new(rule, delta.inode, at, detail))
    };
    check_fields_of_data(delta)?;
    if number == UNCHANGED_SIZE {
        return Ok(FileChange::default());
    }
    if number > DEVICE_MAX {
        return refuse(Rule::Size, format!("number {number:#x} of a device"));
    }
    if inode.size != 0 && inode.size != number {
        let detail = format!("another number of device {:#x}", inode.size);
        return refuse(Rule::FieldsOfKind, detail);
    }
    let is_nothing = kind == FileKind::CharacterDevice && number == 0;
    if !is_nothing && !who.is_root() {
        return refuse(Rule::Device, format!("user {} makes a device", who.uid));
    }
    Ok(FileChange {
        size: Some(number),
        ..FileChange::default()
    })
}

/// What is neither file nor symbolic link has attributes only.
fn check_no_data(delta: &CopiedDelta) -> Result<FileChange, Violation> {
    if delta.branch.size != UNCHANGED_SIZE {
        let at = delta.field(offset::SIZE);
        let detail = "a size of what has none that changes";
        return Err(Violation::new(Rule::FieldsOfKind, delta.inode, at, detail));
    }
    check_fields_of_data(delta)?;
    Ok(FileChange::default())
}

/// That neither index nor limit is used.
fn check_fields_of_data(delta: &CopiedDelta) -> Result<(), Violation> {
    let branch = &delta.branch;
    let broken = [
        (branch.root != IndexRoot::EMPTY, offset::ROOT),
        (branch.limit != UNCHANGED_SIZE, offset::LIMIT),
    ];
    for (is_broken, field) in broken {
        if is_broken {
            let at = delta.field(field);
            let detail = "index or limit on what has no data pages";
            return Err(Violation::new(Rule::FieldsOfKind, delta.inode, at, detail));
        }
    }
    Ok(())
}

/// A walk over the copied delta index, in ascending order of file pages.
struct Walk<'a, 'b, S> {
    set: &'a FoldSet<'b, S>,
    delta: &'a CopiedDelta,
    /// Verified pages from here on are dropped.
    verified_end: u64,
    /// Pages of the file, rounded up.
    end: u64,
    used: &'a mut PageSet,
    found: Vec<(u64, PagePtr)>,
}

impl<S: VerifiedState> Walk<'_, '_, S> {
    /// `level` is at most the format's greatest height; `first` is the file page of the first
    /// entry.
    fn interior(&mut self, pointer: u64, level: u32, first: u64) -> Result<(), Violation> {
        let delta = self.delta;
        let page = u32::try_from(pointer)
            .ok()
            .and_then(|n| delta.pages.get(&n));
        let (Some(page), Some(below)) = (page, level.checked_sub(1)) else {
            return Ok(());
        };
        for (slot, entry) in entries(page) {
            let at = first.saturating_add(capacity(below).saturating_mul(slot as u64));
            if at >= self.end {
                break;
            }
            if below == 0 {
                self.leaf(at, entry, pointer * PAGE_SIZE + 8 * slot as u64)?;
            } else {
                self.interior(entry, below, at)?;
            }
        }
        Ok(())
    }

    fn leaf(&mut self, page: u64, entry: u64, at: u64) -> Result<(), Violation> {
        let number = self.delta.inode;
        if entry == HOLE {
            self.found.push((page, PagePtr::NULL));
            return Ok(());
        }
        let pointer = PagePtr(entry);
        let refuse = |rule, detail| {
            let detail = format!("data page {entry:#x} {detail}");
            Err(Violation::new(rule, number, at, detail))
        };
        if self.set.state.page_in_use(pointer) {
            let same =
                page < self.verified_end && self.set.state.data_page(number, page) == pointer;
            return if same {
                Ok(())
            } else {
                refuse(Rule::DataPageFree, "is in use")
            };
        }
        if self.set.state.data_segment_owner(pointer) != Some(self.set.who.session) {
            return refuse(Rule::DataPageOwned, "is not the session's");
        }
        if !self.used.insert(pointer) {
            return refuse(Rule::DataPageOnce, "is used twice");
        }
        self.found.push((page, pointer));
        Ok(())
    }
}
