//! What an attempt at an operation lacks: the one type by which stocks, views and locks say so.
//!
//! Invariant: whoever gives a need away has changed nothing that another attempt would find changed.
//! It is met between attempts, outside of operations and with no lock of an inode held, since that
//! asks the controller, or waits for another thread ([`crate::engine::Engine::meet`]).

use arck_core_state::InodeNumber;
use rustix::io::Errno;

/// What has to be so before an attempt is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Ownership of these inodes (0 = no inode).
    Own([InodeNumber; 4]),
    /// The newest verified state of an inode that another session owns.
    Recall(InodeNumber),
    /// The same, of one that is going to be changed: it comes with the ownership, if that can be had.
    TakeOver(InodeNumber),
    /// That the attributes of an inode can be mapped; its contents too, if that is said.
    Admit(InodeNumber, bool),
    /// That the set-id bits of a file are gone that a write takes away.
    DropSetId(InodeNumber),
    /// The fold of an inode to end.
    Wait(InodeNumber),
    /// The lock of an inode, which could not be waited for under another lock.
    Busy(InodeNumber),
    /// Another thread's exclusive I/O on an inode's data to end.
    Exclusive(InodeNumber),
    /// Exclusive I/O on an inode's data, until the call ends.
    OwnExclusive(InodeNumber),
    /// Uncommitted inode numbers.
    Numbers,
    /// So many free pages in segments of the session's own.
    DataPages(u32),
    /// So many free pages of the arena.
    ArenaPages(u32),
    /// Room in the pool for what so many more delta pages add.
    Credits(u32),
    /// That the arena has this slot for a branch.
    BranchSlot(u32),
    /// Memory of the group's region: what a fold makes superfluous is free after it.
    Memory,
    /// A directory's delta to be sealed, or folded: it has as many pages as it may have.
    Seal(InodeNumber),
    /// The views of directories that were folded ahead to be brought up to date.
    Refresh,
    /// A pause of so many microseconds: the controller folds more slowly than this session changes names.
    Pause(u32),
    /// A fold of these inodes (0 = none).
    Commit([InodeNumber; 2]),
    /// Counts of links to be those of one state: another thread may be at it.
    Counts,
    /// No thread to look any more at what was there in this epoch of the region: two epochs later. It is not waited for long.
    Unseen(u64),
    /// Another thread to be through with a name and the links of its inode.
    Links,
    /// Nothing: something changed, look again.
    Again,
}

impl Need {
    /// Of one delta page: the same where `pages` are needed at once, none of which has been had.
    pub fn of_pages(self, pages: usize) -> Need {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        match self {
            Need::Credits(_) => Need::Credits(pages),
            Need::ArenaPages(_) => Need::ArenaPages(pages),
            other => other,
        }
    }
}

/// Why an attempt ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// For good.
    Failure(Errno),
    /// To be made again when this is so.
    Need(Need),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Failure(errno)
    }
}
impl From<Need> for Stop {
    fn from(need: Need) -> Stop {
        Stop::Need(need)
    }
}

/// Result of an attempt or of a part of one.
pub type Attempt<T> = Result<T, Stop>;
