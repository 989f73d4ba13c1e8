//! What can be done to a file system: operations as data, for two sides to do.
//!
//! # Invariant
//! An operation names what it is done to by places and slots alone, never by what an earlier one
//! told, so that it means something whichever others are left out.

/// Sessions that take turns.
pub const ACTORS: usize = 2;
/// Handles that each may have open.
pub const SLOTS: usize = 4;

/// Where a relative path starts: the root, or an open directory of the same actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    Root,
    Slot(usize),
}

/// A name from a base on.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    pub base: Base,
    pub path: Vec<u8>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Base::Slot(slot) = self.base {
            write!(f, "slot {slot}:")?;
        }
        match self.path.first().filter(|_| self.path.len() > 250) {
            Some(_) => write!(f, "<{} bytes>", self.path.len()),
            None => write!(f, "\"{}\"", self.path.escape_ascii()),
        }
    }
}

/// A time given to utimensat: `None` = now, else seconds and nanoseconds. Outside: omit.
pub type TimeChoice = Option<Option<(i64, u32)>>;

/// What an extended attribute is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Slot(usize),
    /// Flags: AT_SYMLINK_NOFOLLOW.
    Place(Place, i32),
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Open {
        slot: usize,
        place: Place,
        flags: i32,
        mode: u32,
    },
    Close {
        slot: usize,
    },
    Duplicate {
        from: usize,
        to: usize,
    },
    Read {
        slot: usize,
        length: usize,
        position: Option<u64>,
    },
    Write {
        slot: usize,
        length: usize,
        position: Option<u64>,
        seed: u64,
    },
    Seek {
        slot: usize,
        offset: i64,
        whence: i32,
    },
    TruncateHandle {
        slot: usize,
        size: u64,
    },
    Truncate {
        place: Place,
        size: u64,
    },
    Allocate {
        slot: usize,
        offset: u64,
        length: u64,
    },
    StatHandle {
        slot: usize,
    },
    Stat {
        place: Place,
        flags: i32,
    },
    Access {
        place: Place,
        mode: u32,
    },
    ChangeMode {
        place: Place,
        mode: u32,
    },
    ChangeModeHandle {
        slot: usize,
        mode: u32,
    },
    ChangeOwner {
        place: Place,
        uid: u32,
        gid: u32,
        flags: i32,
    },
    SetTimes {
        place: Place,
        accessed: TimeChoice,
        modified: TimeChoice,
        flags: i32,
    },
    SetTimesHandle {
        slot: usize,
        accessed: TimeChoice,
        modified: TimeChoice,
    },
    MakeDirectory {
        place: Place,
        mode: u32,
    },
    MakeNode {
        place: Place,
        mode: u32,
    },
    /// `flags`: XATTR_CREATE, XATTR_REPLACE.
    SetExtended {
        subject: Subject,
        name: Vec<u8>,
        length: usize,
        flags: i32,
        seed: u64,
    },
    GetExtended {
        subject: Subject,
        name: Vec<u8>,
        buffer: usize,
    },
    ListExtended {
        subject: Subject,
        buffer: usize,
    },
    RemoveExtended {
        subject: Subject,
        name: Vec<u8>,
    },
    Unlink {
        place: Place,
    },
    RemoveDirectory {
        place: Place,
    },
    Rename {
        from: Place,
        to: Place,
        flags: u32,
    },
    Link {
        from: Place,
        to: Place,
        flags: i32,
    },
    Symlink {
        target: Vec<u8>,
        place: Place,
    },
    ReadLink {
        place: Place,
        length: usize,
    },
    List {
        place: Place,
        buffer: usize,
    },
    ListHandle {
        slot: usize,
        buffer: usize,
    },
    Flags {
        slot: usize,
    },
    SetFlags {
        slot: usize,
        flags: i32,
    },
    PathOf {
        slot: usize,
    },
    Sync {
        slot: usize,
    },
    /// All of a file, for trees: the first and last pieces of a long one.
    Content {
        place: Place,
    },
    /// ArckFS only: this session's changes are folded.
    Fold {
        release: bool,
    },
    /// Both trees are compared, as this actor sees them.
    Compare,
    /// Sessions end, the controller ends and starts again; trees are compared.
    Restart,
    /// The controller ends as killed, with its sessions, and recovers; trees are compared.
    Kill,
}

impl Operation {
    /// SEEK_DATA and SEEK_HOLE: the offset is put back afterwards, since file systems may
    /// differ in what they call a hole where space was allocated ahead.
    pub fn is_about_holes(&self) -> bool {
        matches!(
            self,
            Operation::Seek {
                whence: libc::SEEK_DATA | libc::SEEK_HOLE,
                ..
            }
        )
    }
}

/// Whose turn it is, and what it does.
#[derive(Clone, Debug)]
pub struct Step {
    pub actor: usize,
    pub operation: Operation,
}
