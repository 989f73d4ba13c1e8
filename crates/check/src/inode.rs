//! What can be said of one inode by looking at it and its pages alone.
//!
//! # Invariants
//! * Every walk ends, whatever the bytes say: a page is gone into only if the sink says that
//!   nobody else has it, and chains and heights are bounded by the format.
//! * Nothing is believed: pointers are checked before they are followed, lengths before they are
//!   used.

use crate::finding::{Finding, Place, Rule, byte_place, header_place};
use crate::pool::{Header, Pool};
use arck_controller_state::segments::SegmentKind;
use arck_core_state::arena::BRANCH_SLOTS;
use arck_core_state::geometry::{FILE_SIZE_MAX, LINKS_MAX, PATH_MAX};
use arck_core_state::header::{COUNTED_MAX, HeaderKind};
use arck_core_state::index::{FANOUT, HEIGHT_MAX, capacity};
use arck_core_state::{DEVICE_MAX, FileKind, Inode, InodeNumber, PAGE_SIZE, PagePtr, Pages};
use std::sync::atomic::Ordering;

/// What a page is used for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Use {
    /// Holds inodes: many may claim it.
    Inodes,
    Index,
    Bucket,
    Data,
    Attributes,
}

impl Use {
    pub fn name(self) -> &'static str {
        match self {
            Use::Inodes => "page of inodes",
            Use::Index => "index page",
            Use::Bucket => "hash page",
            Use::Data => "data page",
            Use::Attributes => "page of extended attributes",
        }
    }

    /// Where it belongs.
    pub fn segment_kind(self) -> SegmentKind {
        match self {
            Use::Inodes | Use::Index | Use::Bucket => SegmentKind::Metadata,
            Use::Data | Use::Attributes => SegmentKind::Data,
        }
    }
}

/// What a dentry says, its name aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub directory: InodeNumber,
    pub target: InodeNumber,
    pub generation: u32,
    pub kind: FileKind,
    pub page: PagePtr,
    pub unit: usize,
}

/// Who is told what a walk meets.
pub(crate) trait Sink {
    fn finding(&mut self, finding: Finding);
    /// The inode uses a page, which the pool contains. False: somebody has it already, and it is
    /// not gone into.
    fn claim(&mut self, of: InodeNumber, page: PagePtr, what: Use) -> bool;
    /// A well-formed name in a directory.
    fn name(&mut self, link: Link, name: &[u8]);
    /// Whether nobody wants to know any more.
    fn is_stopped(&self) -> bool;
}

/// What a living inode is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub inode: Inode,
    pub kind: FileKind,
    pub orphan: bool,
}

/// One look at one inode number.
pub(crate) struct Look<'a, S> {
    pub pool: &'a Pool,
    pub sink: &'a mut S,
    pub number: InodeNumber,
    pub header: Header,
}

impl<S: Sink> Look<'_, S> {
    pub fn report(&mut self, rule: Rule, place: Place, detail: String) {
        let inode = Some(self.number);
        self.sink.finding(Finding {
            rule,
            inode,
            path: None,
            place,
            detail,
        });
    }

    pub fn place(&self, page: PagePtr, offset: u64) -> Place {
        byte_place(self.pool.geometry.pages_per_segment(), page, offset)
    }

    fn of_header(&mut self, offset: u64, detail: String) {
        self.report(Rule::Header, header_place(self.number, offset), detail);
    }

    fn of_inode(&mut self, rule: Rule, field: u64, detail: String) {
        let address = self.header.inode;
        let place = self.place(PagePtr::of_address(address), address % PAGE_SIZE + field);
        self.report(rule, place, detail);
    }

    /// Checks header, inode and all of its pages. `None`: there is no inode that one could read.
    pub fn check(mut self) -> Option<Known> {
        let header = self.header;
        self.ownership();
        let kind = match HeaderKind::from_u8(header.kind()) {
            Some(HeaderKind::Free | HeaderKind::Granted) => {
                if header.inode != 0 {
                    let detail = format!("no inode, and yet one at {:#x}", header.inode);
                    self.of_header(8, detail);
                }
                let granted = header.kind() == HeaderKind::Granted as u8;
                if granted && header.ownership.session() == 0 && self.pool.superblock.clean {
                    self.of_header(40, "granted to nobody".into());
                }
                if !granted && header.ownership.session() != 0 && self.pool.superblock.clean {
                    self.of_header(24, "owned, and free".into());
                }
                return None;
            }
            Some(kind) => kind,
            None => {
                self.of_header(40, format!("kind {}", header.kind()));
                return None;
            }
        };
        let inode = self.inode()?;
        let Some(file_kind) = inode.kind() else {
            let detail = format!("mode {:o} is of no known type", inode.mode);
            self.of_inode(Rule::Inode, 8, detail);
            return None;
        };
        if header.file_kind() != file_kind as u8 {
            let detail = format!("type {}, the inode's is {file_kind:?}", header.file_kind());
            self.of_header(40, detail);
        }
        let orphan = kind == HeaderKind::Orphan;
        if orphan && inode.links != 0 {
            let detail = format!("{} links, and it is an orphan", inode.links);
            self.of_inode(Rule::Links, 12, detail);
        }
        self.fields(&inode, file_kind);
        self.contents(&inode, file_kind);
        Some(Known {
            inode,
            kind: file_kind,
            orphan,
        })
    }

    fn ownership(&mut self) {
        let header = self.header;
        if header.fold > COUNTED_MAX {
            self.of_header(16, format!("fold number {:#x}", header.fold));
        }
        if header.sequence > COUNTED_MAX {
            self.of_header(0, format!("sequence {:#x}", header.sequence));
        }
        if header.sealed != 0 && !header.may_be_sealed() {
            let detail = format!(
                "sealed {:#x} in slot {}, and no directory of a session's that goes on elsewhere",
                header.sealed,
                header.sealed_slot()
            );
            self.of_header(56, detail);
        }
        if header.sealed == 0 && header.sealed_slot() != 0 {
            let detail = format!("slot {} of what is not sealed", header.sealed_slot());
            self.of_header(40, detail);
        }
        if header.state_reserved() != 0 {
            let detail = format!("bits {:#x} of its state", header.state_reserved());
            self.of_header(40, detail);
        }
        let session = header.ownership.session();
        if session != 0 {
            if header.branch_slot() as usize >= BRANCH_SLOTS as usize {
                self.of_header(32, format!("branch slot {}", header.branch_slot()));
            }
            if self.pool.superblock.clean {
                let detail = format!("owned by session {session}, and the pool was closed");
                self.of_header(24, detail);
            }
        }
        if self.pool.superblock.clean {
            if header.sequence & 1 == 1 {
                self.of_header(
                    0,
                    "in the middle of a change, and the pool was closed".into(),
                );
            }
            if header.ownership.is_marked() {
                self.of_header(24, "marked for a fold, and the pool was closed".into());
            }
        }
    }

    fn inode(&mut self) -> Option<Inode> {
        let header = self.header;
        let page = PagePtr::of_address(header.inode);
        let Some(inode) = Inode::read(self.pool, header.inode) else {
            let detail = format!("no inode can be at {:#x}", header.inode);
            self.of_header(8, detail);
            return None;
        };
        if inode.number != self.number || inode.generation != header.generation() {
            let detail = format!(
                "at {:#x} is inode {}, generation {}, and not generation {} of this one",
                header.inode,
                inode.number,
                inode.generation,
                header.generation()
            );
            self.of_header(8, detail);
            return None;
        }
        self.sink.claim(self.number, page, Use::Inodes);
        if inode.generation == 0 {
            self.of_header(32, "generation 0".into());
        }
        Some(inode)
    }

    fn fields(&mut self, inode: &Inode, kind: FileKind) {
        let most = match kind {
            FileKind::File => FILE_SIZE_MAX,
            FileKind::Link => PATH_MAX as u64,
            // As many buckets as an index reaches.
            FileKind::Directory => capacity(HEIGHT_MAX).saturating_mul(PAGE_SIZE),
            FileKind::CharacterDevice | FileKind::BlockDevice => DEVICE_MAX,
            FileKind::Pipe | FileKind::Socket => 0,
        };
        if inode.size > most {
            let detail = format!("size {} of at most {most}", inode.size);
            self.of_inode(Rule::Inode, 24, detail);
        }
        if inode.links > LINKS_MAX {
            self.of_inode(Rule::Links, 12, format!("{} links", inode.links));
        }
        if kind == FileKind::Directory {
            if inode.size == 0 || !inode.size.is_multiple_of(PAGE_SIZE) {
                let detail = format!("size {} of a directory", inode.size);
                self.of_inode(Rule::Inode, 24, detail);
            }
        } else if self.header.kind() != HeaderKind::Orphan as u8 {
            // An orphan may keep pages of a file, and says of which.
            for (field, value) in [(80, inode.parent), (84, inode.entries)] {
                if value != 0 {
                    let name = if field == 80 { "parent" } else { "entries" };
                    let detail = format!("{name} {value}, and it is no directory");
                    self.of_inode(Rule::Inode, field, detail);
                }
            }
        }
        let has_attributes = !inode.attributes.is_null();
        if has_attributes && !matches!(kind, FileKind::File | FileKind::Directory) {
            let detail = "extended attributes on neither file nor directory".into();
            self.of_inode(Rule::Inode, 96, detail);
        }
    }

    /// Walks everything that the inode refers to.
    fn contents(&mut self, inode: &Inode, kind: FileKind) {
        if !inode.attributes.is_null() {
            let address = self.header.inode;
            let place = self.place(PagePtr::of_address(address), address % PAGE_SIZE + 96);
            self.claim(inode.attributes, Use::Attributes, &place);
        }
        let root = inode.root;
        let height = root.height();
        if height > HEIGHT_MAX {
            self.of_inode(Rule::Index, 32, format!("an index of height {height}"));
            return;
        }
        let is_directory = kind == FileKind::Directory;
        if kind.is_device() || matches!(kind, FileKind::Pipe | FileKind::Socket) {
            if root.pointer() != 0 || inode.pages != 0 {
                let detail = format!("pages of what has none ({kind:?})");
                self.of_inode(Rule::Index, 32, detail);
            }
            return;
        }
        let mut leaves = Vec::new();
        let mut found = 0;
        if root.pointer() != 0 {
            let address = self.header.inode;
            let place = self.place(PagePtr::of_address(address), address % PAGE_SIZE + 32);
            let end = inode.size.div_ceil(PAGE_SIZE);
            let mut walk = Walk {
                leaf: if is_directory { Use::Bucket } else { Use::Data },
                end,
                found: &mut found,
                buckets: &mut leaves,
            };
            self.walk(&mut walk, PagePtr(root.pointer()), height, 0, &place);
        }
        if is_directory {
            self.names(inode, &leaves);
        } else if found != inode.pages && !self.sink.is_stopped() {
            let detail = format!("{} data pages, and the index has {found}", inode.pages);
            self.of_inode(Rule::PageCount, 72, detail);
        }
    }

    /// Claims a page that `place` refers to. False: it is not to be gone into.
    fn claim(&mut self, page: PagePtr, what: Use, place: &Place) -> bool {
        let pool = self.pool;
        if !pool.geometry.contains(page) {
            let detail = format!("{} {:#x} is outside of the pool", what.name(), page.0);
            self.report(Rule::Index, place.clone(), detail);
            return false;
        }
        if pool.kind_of(page) != what.segment_kind() {
            let detail = format!(
                "{} {:#x} is in a segment of kind {:?}",
                what.name(),
                page.0,
                pool.kind_of(page)
            );
            self.report(Rule::PageKind, place.clone(), detail);
            // It stays with whoever has it rightly.
            return false;
        }
        self.sink.claim(self.number, page, what)
    }

    fn walk(&mut self, walk: &mut Walk<'_>, page: PagePtr, level: u32, first: u64, place: &Place) {
        if level == 0 {
            if first >= walk.end {
                let what = walk.leaf.name();
                let detail = format!("{what} number {first} of {}, beyond the end", walk.end);
                self.report(Rule::Index, place.clone(), detail);
            }
            *walk.found += 1;
            let is_new = self.claim(page, walk.leaf, place);
            if is_new && walk.leaf == Use::Bucket {
                walk.buckets.push((first, page));
            }
            return;
        }
        if !self.claim(page, Use::Index, place) || self.sink.is_stopped() {
            return;
        }
        let pool = self.pool;
        let Some(entries) = pool.page(page) else {
            return;
        };
        let step = capacity(level - 1);
        for slot in 0..FANOUT {
            let below = entries[slot as usize].load(Ordering::Relaxed);
            if below != 0 {
                let place = self.place(page, slot * 8);
                let first = first.saturating_add(slot * step);
                self.walk(walk, PagePtr(below), level - 1, first, &place);
            }
        }
    }

    /// Claims a further page of a bucket.
    pub fn claim_overflow(&mut self, page: PagePtr, place: &Place) -> bool {
        self.claim(page, Use::Bucket, place)
    }

    pub fn of_entries(&mut self, detail: String) {
        self.of_inode(Rule::Entries, 84, detail);
    }

    pub fn of_links(&mut self, detail: String) {
        self.of_inode(Rule::Links, 12, detail);
    }

    pub fn of_root(&mut self, detail: String) {
        self.of_inode(Rule::Entries, 32, detail);
    }
}

struct Walk<'a> {
    leaf: Use,
    /// Leaves from here on are beyond the end.
    end: u64,
    found: &'a mut u64,
    /// Of a directory: number and page of each bucket.
    buckets: &'a mut Vec<(u64, PagePtr)>,
}
