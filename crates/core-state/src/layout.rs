//! Names of the files that make up a pool's directory, and the table that `docs/format.md` is
//! compared with.

/// [`crate::superblock`].
pub const SUPERBLOCK: &str = "superblock";
/// What never changes of the superblock, written by `mkfs` and left alone after that.
pub const SUPERBLOCK_COPY: &str = "superblock.copy";
/// The header table: `inode_count` entries of 64 bytes.
pub const HEADERS: &str = "headers";
/// One bit per page: set while the verified state refers to the page.
pub const PAGE_BITMAP: &str = "pages";
/// Private to the controller: what the read classes of segments are.
pub const CLASSES: &str = "classes";
/// Private to the controller: one entry per segment.
pub const SEGMENT_TABLE: &str = "segment-table";
/// Private to the controller: redo journal.
pub const JOURNAL: &str = "journal";
/// Private to the controller: sessions with an arena.
pub const SESSION_TABLE: &str = "session-table";
/// Directory of segment files, named by eight hexadecimal digits.
pub const SEGMENTS: &str = "segments";
/// Directory of arena files, named by the session's number in eight hexadecimal digits.
pub const ARENAS: &str = "arenas";
/// The controller's socket.
pub const SOCKET: &str = "socket";
/// What the last repair had to tell, as text.
pub const REPAIR_REPORT: &str = "repair-report";
/// Locked while a controller serves the pool.
pub const LOCK: &str = "lock";
