//! What is told of files: as `std::fs::Metadata`, which nobody else can make.

use arckfs::{Attributes, Timestamp};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

/// What something with a name is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe. It is not opened by this crate.
    Pipe,
    /// A socket. It is not opened by this crate.
    Socket,
    /// The node of a character device. It is not opened by this crate.
    CharacterDevice,
    /// The node of a block device. It is not opened by this crate.
    BlockDevice,
}

impl FileType {
    /// Of type bits as in `st_mode`.
    fn of_mode(mode: u32) -> FileType {
        match mode & libc::S_IFMT {
            libc::S_IFDIR => FileType::Directory,
            libc::S_IFLNK => FileType::Symlink,
            libc::S_IFIFO => FileType::Pipe,
            libc::S_IFSOCK => FileType::Socket,
            libc::S_IFCHR => FileType::CharacterDevice,
            libc::S_IFBLK => FileType::BlockDevice,
            _ => FileType::File,
        }
    }

    /// Of `DT_*`.
    pub(crate) fn of_dentry(kind: u8) -> FileType {
        FileType::of_mode(u32::from(kind) << 12)
    }

    /// Whether it is a regular file.
    pub fn is_file(self) -> bool {
        self == FileType::File
    }

    /// Whether it is a directory.
    pub fn is_dir(self) -> bool {
        self == FileType::Directory
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(self) -> bool {
        self == FileType::Symlink
    }
}

/// What a file is like, at the moment of the call that told it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata(pub(crate) Attributes);

fn time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let rest = Duration::from_nanos(u64::from(time.nanoseconds));
    match time.seconds < 0 {
        true => SystemTime::UNIX_EPOCH - seconds + rest,
        false => SystemTime::UNIX_EPOCH + seconds + rest,
    }
}

impl Metadata {
    /// What it is.
    pub fn file_type(&self) -> FileType {
        FileType::of_mode(self.0.mode)
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Its size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "as std::fs::Metadata")]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Its permission bits, with the bits of its type.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.0.mode)
    }

    /// Bits of its type and permission bits, as in `st_mode`.
    pub fn mode(&self) -> u32 {
        self.0.mode
    }

    /// Its user.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Its group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// How many names it has.
    pub fn nlink(&self) -> u64 {
        u64::from(self.0.links)
    }

    /// Its inode number.
    pub fn ino(&self) -> u64 {
        self.0.inode
    }

    /// Units of 512 bytes that it takes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// When its contents were changed last, to nanoseconds.
    pub fn modified(&self) -> SystemTime {
        time(self.0.modified)
    }

    /// When its contents were read last, as far as that is kept.
    pub fn accessed(&self) -> SystemTime {
        time(self.0.accessed)
    }

    /// When it was changed last in any way.
    pub fn changed(&self) -> SystemTime {
        time(self.0.changed)
    }

    /// When it was made.
    pub fn created(&self) -> SystemTime {
        time(self.0.created)
    }
}

/// Room of a pool, as `statvfs` tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Bytes of all data and metadata that the pool has room for.
    pub bytes: u64,
    /// Bytes of that which are free.
    pub bytes_free: u64,
    /// Files, directories and links that the pool has room for.
    pub inodes: u64,
    /// Of these, those that there are not yet.
    pub inodes_free: u64,
}
