//! What a check finds: which rule is broken, by what, where.
//!
//! Invariant: a finding is one line, whatever bytes stand in the pool.

use arck_core_state::{InodeNumber, PAGE_SIZE, PagePtr, SegmentNumber};
use std::fmt;

/// What has to be so. The names are part of the command's output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// The pool's files are there, and as long as its geometry says.
    Files,
    /// Kinds, owners and flags of segments; nothing is in use in a free one.
    SegmentTable,
    /// Sessions that the session table names.
    SessionTable,
    /// The journal's entry addresses what there is; in a pool that was closed it has been applied.
    Journal,
    /// An inode header's words.
    Header,
    /// The inode is where its header says, and its fields are in range.
    Inode,
    /// Root, height and pointers of an index; nothing beyond the end.
    Index,
    /// Hash pages: whose they are, and the units in them.
    Bucket,
    /// Names: well formed, once in a directory, in the bucket that their hash says.
    Name,
    /// Where a name leads: an inode that is alive, of this generation and type.
    Target,
    /// A directory has one name, in the directory that it calls its parent.
    Parent,
    /// A directory's number of names, and that it has no pages without any.
    Entries,
    /// Link counts; what is alive has a name, what is an orphan has none.
    Links,
    /// Every directory leads to the root.
    Tree,
    /// A file's number of data pages.
    PageCount,
    /// A page is used once.
    PageOnce,
    /// Metadata lies in metadata segments, data in data segments.
    PageKind,
    /// What is used is marked as in use.
    PageUsed,
    /// What is marked as in use is used.
    PageLeaked,
    /// Who may be sent a page's segment may read what is in it.
    PageClass,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 20] = [
        Rule::Files,
        Rule::SegmentTable,
        Rule::SessionTable,
        Rule::Journal,
        Rule::Header,
        Rule::Inode,
        Rule::Index,
        Rule::Bucket,
        Rule::Name,
        Rule::Target,
        Rule::Parent,
        Rule::Entries,
        Rule::Links,
        Rule::Tree,
        Rule::PageCount,
        Rule::PageOnce,
        Rule::PageKind,
        Rule::PageUsed,
        Rule::PageLeaked,
        Rule::PageClass,
    ];

    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Files => "files",
            Rule::SegmentTable => "segment-table",
            Rule::SessionTable => "session-table",
            Rule::Journal => "journal",
            Rule::Header => "header",
            Rule::Inode => "inode",
            Rule::Index => "index",
            Rule::Bucket => "bucket",
            Rule::Name => "name",
            Rule::Target => "target",
            Rule::Parent => "parent",
            Rule::Entries => "entries",
            Rule::Links => "links",
            Rule::Tree => "tree",
            Rule::PageCount => "page-count",
            Rule::PageOnce => "page-once",
            Rule::PageKind => "page-kind",
            Rule::PageUsed => "page-used",
            Rule::PageLeaked => "page-leaked",
            Rule::PageClass => "page-class",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where in the pool's files something stands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// A file of the pool, and a byte offset in it.
    File(&'static str, u64),
    /// A file of a segment.
    Segment(SegmentNumber, u64),
    /// A file of the pool as a whole.
    Whole(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(name, offset) => write!(f, "{name}+{offset:#x}"),
            Place::Segment(segment, offset) => write!(
                f,
                "{}/{segment:08x}+{offset:#x}",
                arck_core_state::layout::SEGMENTS
            ),
            Place::Whole(name) => f.write_str(name),
        }
    }
}

/// The place of an inode's header.
pub(crate) fn header_place(number: InodeNumber, offset: u64) -> Place {
    let at = u64::from(number) * arck_core_state::header::HEADER_SIZE as u64 + offset;
    Place::File(arck_core_state::layout::HEADERS, at)
}

/// The place of a page's bit.
pub(crate) fn bit_place(page: PagePtr) -> Place {
    Place::File(arck_core_state::layout::PAGE_BITMAP, page.0 / 8)
}

/// The place of a byte of the pool's address space; `pages` are those of a segment.
pub(crate) fn byte_place(pages: u64, page: PagePtr, offset: u64) -> Place {
    let pages = pages.max(1);
    let segment = SegmentNumber::try_from(page.0 / pages).unwrap_or(SegmentNumber::MAX);
    Place::Segment(segment, page.0 % pages * PAGE_SIZE + offset)
}

/// Something that is not as it has to be.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Finding {
    pub rule: Rule,
    pub inode: Option<InodeNumber>,
    /// A path from the root of the pool that leads to the inode, if one is known.
    pub path: Option<Vec<u8>>,
    pub place: Place,
    /// What is wrong.
    pub detail: String,
}

impl fmt::Display for Finding {
    /// `RULE: inode N "PATH": DETAIL (PLACE)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.rule)?;
        if let Some(inode) = self.inode {
            write!(f, "inode {inode}")?;
            if let Some(path) = &self.path {
                write!(f, " {}", quoted(path))?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{} ({})", self.detail, self.place)
    }
}

/// A name or path on one line: as it is, or in quotes with escapes where it has to be.
pub fn quoted(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text)
            if text
                .chars()
                .all(|c| c.is_alphanumeric() || "/._-+,=@%".contains(c)) =>
        {
            text.to_owned()
        }
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}
