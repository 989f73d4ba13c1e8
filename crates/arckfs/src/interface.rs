//! The public types of ArckFS: what callers pass and get.

use std::path::PathBuf;

pub use rustix::io::Errno;

/// How to reach a pool.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Directory of the pool.
    pub pool: PathBuf,
    /// Absolute path prefix under which the pool appears to programs, e.g. `/arck`; no trailing
    /// slash. Absolute symbolic-link targets below it stay inside the pool.
    pub mount: Vec<u8>,
    /// The trust group to be one of: its programs have one session together, and trust each other.
    /// At most 64 bytes; empty: none.
    pub group: Vec<u8>,
    /// Which file system its programs have: how it finds where paths lead. One for all of a group.
    pub resolver: Resolver,
}

/// How a file system finds where paths lead; all else they share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Resolver {
    /// ArckFS: directory by directory, and each thread remembers the few that it used last.
    #[default]
    Tree,
    /// FPFS: by one table from full paths to directories, for deep trees of many directories (Trio, section 5).
    FullPaths,
}

impl Resolver {
    /// All of them, for who lists them.
    pub const ALL: [Resolver; 2] = [Resolver::Tree, Resolver::FullPaths];

    /// What the file system is called, as `arck run --fs` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Resolver::Tree => "arckfs",
            Resolver::FullPaths => "fpfs",
        }
    }
}

/// No file system is called so; `Display` says which there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no file system; there are: {known}", known = Resolver::ALL.map(Resolver::name).join(", "))]
pub struct NoFileSystem(String);

impl std::str::FromStr for Resolver {
    type Err = NoFileSystem;

    fn from_str(name: &str) -> Result<Resolver, NoFileSystem> {
        let named = Resolver::ALL.into_iter().find(|one| one.name() == name);
        named.ok_or_else(|| NoFileSystem(name.to_owned()))
    }
}

/// By how many threads at once large accesses to a memory node are done: those of who asks, as a gate lets them
/// ([`FileSystem::at_once`](crate::FileSystem::at_once)), or others ([`FileSystem::delegate_when_wanted`](crate::FileSystem::delegate_when_wanted)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Threads {
    /// By all that ask.
    #[default]
    Off,
    /// As many as the description of the emulated medium says; off where none is emulated.
    Auto,
    /// So many, 1 to 64.
    Number(u32),
}

impl Threads {
    const MOST: u32 = arck_libfs_kit::memory::medium::DELEGATES_MAX;
}

/// No such number of threads; `Display` says what there can be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no number of threads; there can be: 1 to {most}, auto, off", most = Threads::MOST)]
pub struct NotThreads(String);

impl std::str::FromStr for Threads {
    type Err = NotThreads;

    fn from_str(text: &str) -> Result<Threads, NotThreads> {
        match (text, text.parse()) {
            ("off", _) => Ok(Threads::Off),
            ("auto", _) => Ok(Threads::Auto),
            (_, Ok(threads)) if (1..=Threads::MOST).contains(&threads) => {
                Ok(Threads::Number(threads))
            }
            _ => Err(NotThreads(text.to_owned())),
        }
    }
}

impl std::fmt::Display for Threads {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Threads::Off => formatter.write_str("off"),
            Threads::Auto => formatter.write_str("auto"),
            Threads::Number(threads) => threads.fmt(formatter),
        }
    }
}

/// Why a session could not be opened; `Display` says what to do about it, in one line.
#[derive(Debug)]
pub struct ConnectError {
    pub message: String,
    pub errno: Errno,
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for ConnectError {}

/// Why an operation that takes a path did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The error number to hand to the program.
    Errno(Errno),
    /// The path leaves the pool (an absolute symbolic link, or `..` above the root). The caller
    /// redoes its call with this absolute host path instead.
    Outside(Vec<u8>),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::Errno(errno)
    }
}

/// An open file description (POSIX's term: flags and offset, shared by `dup`ed descriptors).
/// A plain number, valid in this session until [`close`](crate::FileSystem::close)d as often as
/// it was opened or retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub std::num::NonZeroU64);

/// What a path was opened to.
#[derive(Debug)]
pub enum Opening {
    File(Handle),
    /// To be opened where its ends meet ([`open_pipe`](crate::FileSystem::open_pipe)).
    Pipe(NamedPipe),
}

/// A named pipe that may be opened, and with which flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedPipe {
    /// Number and generation.
    pub(crate) inode: (u32, u32),
    pub(crate) flags: i32,
}

impl NamedPipe {
    /// `O_*`, as it is opened.
    pub fn flags(&self) -> i32 {
        self.flags
    }
}

/// Where a relative path starts. Absolute paths are never passed: the caller strips the mount
/// prefix and passes [`At::Root`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Root,
    Directory(Handle),
    /// An inode by its number and generation, as [`Attributes`] tell them: of whatever kind where the path is
    /// empty (which then names the inode itself), else a directory. ESTALE once it is gone. It is nobody's right: the
    /// session reaches it only where the controller lets its user look.
    Inode(u32, u32),
}

impl At {
    /// Whether an empty path names what it begins at, without AT_EMPTY_PATH.
    pub(crate) fn names_itself(self) -> bool {
        !matches!(self, At::Directory(_))
    }
}

/// An inode that a call names by a path or by a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'p> {
    /// Flags: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
    Path(At, &'p [u8], i32),
    Handle(Handle),
}

/// Seconds and nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// One argument of `utimensat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    Omit,
    Now,
    At(Timestamp),
}

/// What `stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Attributes {
    pub inode: u64,
    /// How often the number has been given to an inode: number and generation never come back together.
    pub generation: u32,
    /// Type bits and permission bits, as in `st_mode`.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of a device: its number, as in `st_rdev`; else 0.
    pub device: u32,
    /// Bytes.
    pub size: u64,
    /// Allocated storage in units of 512 bytes.
    pub blocks: u64,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub created: Timestamp,
}

/// What a directory says of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedName {
    pub name: Vec<u8>,
    /// `DT_*`.
    pub kind: u8,
    pub inode: u64,
}

/// The number that an inode has in the kernel where the pool is mounted: of its number and its generation, so that none
/// means two inodes. Those of the first generation have the pool's number.
pub fn mounted_number(inode: u32, generation: u32) -> u64 {
    u64::from(generation.wrapping_sub(1)) << 32 | u64::from(inode)
}

/// What is left of a description that is closed.
#[derive(Debug)]
pub struct Closed {
    /// The file that stood for it, if it was handed on: for whoever keeps account of descriptors.
    pub handed_on: Option<std::os::fd::OwnedFd>,
}

/// What `statfs` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Pages of 4096 bytes.
    pub pages: u64,
    pub pages_free: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub name_max: u32,
    pub id: u64,
}

/// Of a description's flags, the bits that say whether it reads and writes.
pub(crate) const ACCESS_MODE: i32 = libc::O_ACCMODE;
