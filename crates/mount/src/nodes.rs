//! Inodes as the kernel knows them.
//!
//! Invariant: the kernel's number of an inode is made of the pool's number and generation, and of nothing else: there is
//! no table of what the kernel knows, and nothing to forget. One number never means two inodes at a time; of
//! directories that it means one after the other the kernel is told different generations ([`lives`](crate::lives)).

use crate::errno;
use arckfs::{At, Attributes, Errno, Failure, Timestamp};
use fuser::{FileAttr, FileType, INodeNo};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An inode of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub number: u32,
    pub generation: u32,
}

/// The generation that the first inode of a number has: those have the number that programs under the preload library
/// see.
const FIRST: u32 = 1;

impl Node {
    /// That of a number of the kernel's. Nonsense names nothing, which is found out where it is looked for.
    pub fn of(number: INodeNo) -> Node {
        Node {
            number: number.0 as u32,
            generation: ((number.0 >> 32) as u32).wrapping_add(FIRST),
        }
    }

    /// The kernel's number.
    pub fn number(self) -> INodeNo {
        INodeNo(arckfs::mounted_number(self.number, self.generation))
    }

    /// For calls that take a path from there on; with an empty one, for the inode itself.
    pub fn at(self) -> At {
        At::Inode(self.number, self.generation)
    }

    /// What the kernel is told of a call on the inode itself that has failed: that it is gone is ESTALE, by which the kernel looks
    /// the name up once more that another file has got meanwhile, and not that there is no such name.
    pub fn lost(self, failure: Failure) -> Errno {
        match errno(failure) {
            Errno::NOENT => Errno::STALE,
            errno => errno,
        }
    }
}

impl From<&Attributes> for Node {
    fn from(found: &Attributes) -> Node {
        Node {
            number: found.inode as u32,
            generation: found.generation,
        }
    }
}

/// A kind as it stands in a mode, or (without the shift) in an entry of a listing.
pub fn kind(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn time(of: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(of.seconds.unsigned_abs());
    let second = match of.seconds < 0 {
        true => UNIX_EPOCH.checked_sub(seconds),
        false => UNIX_EPOCH.checked_add(seconds),
    };
    second.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(u64::from(of.nanoseconds))
}

/// A time of the kernel's.
pub fn timestamp(time: SystemTime) -> Timestamp {
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-(before.as_secs() as i64), 0),
                part => (-(before.as_secs() as i64) - 1, 1_000_000_000 - part),
            }
        }
    };
    Timestamp {
        seconds,
        nanoseconds,
    }
}

/// What the kernel is told.
pub fn attributes(found: &Attributes) -> FileAttr {
    FileAttr {
        ino: Node::from(found).number(),
        size: found.size,
        blocks: found.blocks,
        atime: time(found.accessed),
        mtime: time(found.modified),
        ctime: time(found.changed),
        crtime: time(found.created),
        kind: kind(found.mode),
        perm: (found.mode & 0o7777) as u16,
        nlink: found.links,
        uid: found.uid,
        gid: found.gid,
        rdev: found.device,
        blksize: 4096,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_kernels_root() {
        let root = Node {
            number: 1,
            generation: FIRST,
        };
        assert_eq!(root.number(), INodeNo::ROOT);
        for node in [
            root,
            Node {
                number: u32::MAX,
                generation: 0,
            },
            Node {
                number: 7,
                generation: u32::MAX,
            },
        ] {
            assert_eq!(Node::of(node.number()), node);
        }
    }

    #[test]
    fn times_go_there_and_back() {
        for (seconds, nanoseconds) in [
            (0, 0),
            (1, 999_999_999),
            (-1, 0),
            (-1, 500_000_000),
            (1 << 33, 1),
        ] {
            let told = Timestamp {
                seconds,
                nanoseconds,
            };
            assert_eq!(timestamp(time(told)), told);
        }
    }
}
