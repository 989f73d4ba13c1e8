//! The rules, one variant each, and what a broken one looks like.
//!
//! # Invariant
//! Every refusal names exactly one rule, the inode in whose delta it was found, and the byte
//! offset in the session's arena where the offending value stands.

use arck_core_state::InodeNumber;
use core::fmt;

/// What a delta must keep. The groups are those of DESIGN section 6.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    // ---- I1: fields
    /// The arena can be read where the delta says it continues.
    ArenaReadable,
    /// A page pointer of a delta leads to a delta page of the arena.
    PageInArena,
    /// Each arena page is used by one chain or index, once.
    PageVisitedOnce,
    /// The delta takes no more pages than the controller's budget.
    PageBudget,
    /// A delta page says the directory and the fold number that it belongs to.
    PageHeader,
    /// Names have 1 to 255 bytes, no `/`, no NUL, and are not `.` or `..`.
    Name,
    /// Only known effect bits are set.
    StateBits,
    /// No two records of a branch have the same sequence.
    Sequence,
    /// What a record kills is a place for a record.
    KillReference,
    /// Times are not the sentinel where a time is due.
    Time,
    /// Sizes are at most the format's greatest.
    Size,
    /// Modes have permission bits only.
    Mode,
    /// The limit is a page number of a file, or none.
    Limit,
    /// The delta index is at most as high as the format allows.
    IndexHeight,
    /// A branch uses only the fields of its inode's kind.
    FieldsOfKind,
    /// Names are unique in a directory.
    NameUnique,

    // ---- I2: ownership of resources
    /// A new inode's number was granted to the session.
    NumberGranted,
    /// Inodes are named with their present generation.
    Generation,
    /// An inode that changes is owned by the session.
    Owned,
    /// What must change in the same step is in the fold set.
    InFoldSet,
    /// A data page lies in a data segment granted to the session.
    DataPageOwned,
    /// A data page is not in use elsewhere in the verified state.
    DataPageFree,
    /// A data page is used once in the fold set.
    DataPageOnce,

    // ---- I3: connected tree
    /// Names are in directories.
    InDirectory,
    /// A name that is removed exists in the verified state.
    NameExists,
    /// A name is removed once.
    NameRemovedOnce,
    /// A name tells the kind of its inode.
    Kind,
    /// A directory has one name.
    DirectoryOneName,
    /// A directory keeps its parent (moves are the controller's business).
    DirectoryParent,
    /// A directory that is removed is empty.
    DirectoryEmpty,
    /// Names are added to directories that hang together with the root.
    Connected,
    /// Link counts stay in range.
    LinkCount,
    /// An inode without names gets no new ones, but from its owner: he may have named it before.
    NotOrphan,

    // ---- I4: permission
    /// Changing names needs write and search permission on the directory.
    DirectoryPermission,
    /// In a sticky directory only the owners of file or directory remove a name.
    Sticky,
    /// Changing contents or size needs write permission.
    WritePermission,
    /// Changing the mode is for the file's owner.
    ModePermission,
    /// Changing times is for the file's owner and those who may write.
    TimePermission,
    /// A new inode belongs to the session's user.
    CreationUser,
    /// A new inode belongs to one of the session's groups, or to that of a set-group-id parent.
    CreationGroup,
    /// The set-group-id bit is for members of the group; a new file may have it without a bit for its group to
    /// execute it, as a directory hands it down.
    SetGroupId,
    /// A new device is root's to make, but for the character device 0, which stands for nothing.
    Device,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 42] = [
        Rule::ArenaReadable,
        Rule::PageInArena,
        Rule::PageVisitedOnce,
        Rule::PageBudget,
        Rule::PageHeader,
        Rule::Name,
        Rule::StateBits,
        Rule::Sequence,
        Rule::KillReference,
        Rule::Time,
        Rule::Size,
        Rule::Mode,
        Rule::Limit,
        Rule::IndexHeight,
        Rule::FieldsOfKind,
        Rule::NameUnique,
        Rule::NumberGranted,
        Rule::Generation,
        Rule::Owned,
        Rule::InFoldSet,
        Rule::DataPageOwned,
        Rule::DataPageFree,
        Rule::DataPageOnce,
        Rule::InDirectory,
        Rule::NameExists,
        Rule::NameRemovedOnce,
        Rule::Kind,
        Rule::DirectoryOneName,
        Rule::DirectoryParent,
        Rule::DirectoryEmpty,
        Rule::Connected,
        Rule::LinkCount,
        Rule::NotOrphan,
        Rule::DirectoryPermission,
        Rule::Sticky,
        Rule::WritePermission,
        Rule::ModePermission,
        Rule::TimePermission,
        Rule::CreationUser,
        Rule::CreationGroup,
        Rule::SetGroupId,
        Rule::Device,
    ];

    /// `I1` to `I4`.
    pub fn group(self) -> &'static str {
        match self as u8 {
            rule if rule <= Rule::NameUnique as u8 => "I1",
            rule if rule <= Rule::DataPageOnce as u8 => "I2",
            rule if rule <= Rule::NotOrphan as u8 => "I3",
            _ => "I4",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {self:?}", self.group())
    }
}

/// A broken rule. Shown on one line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{rule} broken by inode {inode} at arena offset {offset:#x}: {detail}")]
pub struct Violation {
    pub rule: Rule,
    /// The inode in whose delta it was found.
    pub inode: InodeNumber,
    /// Where, in bytes from the start of the session's arena.
    pub offset: u64,
    /// What exactly; one line, bytes from outside escaped.
    pub detail: String,
}

impl Violation {
    pub(crate) fn new(
        rule: Rule,
        inode: InodeNumber,
        offset: u64,
        detail: impl Into<String>,
    ) -> Violation {
        Violation {
            rule,
            inode,
            offset,
            detail: detail.into(),
        }
    }
}
