//! What Linux keeps programs from in directories like `/tmp`, in which all may make names: to follow a link
//! that somebody has put there for others, and to open, where they are about to make it, what somebody has put
//! there under that name (proc_sys_fs(5)).
//!
//! # Invariants
//! * Whether it does is the machine's word, `fs.protected_symlinks`, `fs.protected_regular` and
//!   `fs.protected_fifos`, read once, when a session is opened, and kept in the group's region
//!   for those who join it. What cannot be read counts as 1.
//! * As the other checks of a LibFS ([`credentials`](crate::attributes::credentials)), it protects its own program.
//! * Capabilities do not count: it is root above all whom links are put there for.

mod checks;

use crate::interface::Errno;
use arck_libfs_kit::format::FileKind;
use arck_libfs_kit::views::CachedInode;
use rustix::fs::{Mode, OFlags};
use std::ffi::CStr;
use std::sync::atomic::Ordering;

const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;

/// How the machine is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected {
    /// Of others' links: 1 in sticky directories that all may write.
    links: u32,
    /// Of others' files and pipes opened with O_CREAT: 1 in such directories, 2 also in those that a group
    /// may write.
    files: u32,
    pipes: u32,
}

/// Of a directory, what counts here.
#[derive(Clone, Copy)]
struct Holder {
    mode: u32,
    uid: u32,
}

impl Holder {
    fn of(inode: &CachedInode) -> Holder {
        Holder {
            mode: inode.mode.load(Ordering::Relaxed),
            uid: inode.uid.load(Ordering::Relaxed),
        }
    }

    /// Whether something of `owner`'s in it is trusted by `user` whatever is set: it is his own, the directory's
    /// owner's, or could be replaced by anybody.
    fn trusts(self, user: u32, owner: u32) -> bool {
        self.mode & STICKY == 0 || owner == user || owner == self.uid
    }
}

impl Protected {
    pub fn of_machine() -> Protected {
        Protected {
            links: setting(c"/proc/sys/fs/protected_symlinks"),
            files: setting(c"/proc/sys/fs/protected_regular"),
            pipes: setting(c"/proc/sys/fs/protected_fifos"),
        }
    }

    /// In one word, as it stands in the group's region: a byte for each, and one that says that they are there.
    pub fn packed(self) -> u64 {
        let bytes = [self.links, self.files, self.pipes].map(|setting| setting.min(255) as u8);
        let [links, files, pipes] = bytes;
        u64::from_le_bytes([links, files, pipes, 1, 0, 0, 0, 0])
    }

    /// The group says how careful its programs are. Where it says nothing, as a region that another build has
    /// made, the machine does.
    pub fn of_group(word: u64) -> Protected {
        match word.to_le_bytes().map(u32::from) {
            [_, _, _, 0, ..] => Protected::of_machine(),
            [links, files, pipes, ..] => Protected {
                links,
                files,
                pipes,
            },
        }
    }

    /// Whether `user` may follow the last link of a path, which is `owner`'s.
    fn lets_follow(self, user: u32, directory: Holder, owner: u32) -> bool {
        self.links == 0 || directory.mode & OTHERS_WRITE == 0 || directory.trusts(user, owner)
    }

    /// Whether `user` may open what is there with O_CREAT, which is `owner`'s. What is neither file nor pipe
    /// no setting lets him.
    fn lets_open(self, user: u32, directory: Holder, kind: FileKind, owner: u32) -> bool {
        let set = match kind {
            FileKind::File => self.files,
            FileKind::Pipe => self.pipes,
            FileKind::CharacterDevice | FileKind::BlockDevice => 1,
            FileKind::Directory | FileKind::Link | FileKind::Socket => 1,
        };
        let forbidden = match set {
            0 => 0,
            1 => OTHERS_WRITE,
            _ => OTHERS_WRITE | GROUP_WRITES,
        };
        directory.mode & forbidden == 0 || directory.trusts(user, owner)
    }
}

/// A setting's number; 1 if it cannot be read.
fn setting(path: &CStr) -> u32 {
    let read = || {
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = [0; 16];
        let length = rustix::io::read(&file, &mut text)?;
        Ok::<_, Errno>((text, length))
    };
    let Ok((text, length)) = read() else {
        return 1;
    };
    let text = str::from_utf8(text[..length].trim_ascii());
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDER: u32 = 1;
    const OTHER: u32 = 2;
    const USER: u32 = 3;

    #[test]
    fn others_links_and_files_are_left_alone_where_it_is_set() {
        // The settings of links, files and pipes; the directory's mode; whose it is; whether the link is
        // followed, and file, pipe and socket opened.
        let (yes, no) = (true, false);
        for (set, mode, owner, wanted) in [
            ([0, 0, 0], 0o1777, OTHER, [yes, yes, yes, no]),
            ([1, 0, 0], 0o1777, OTHER, [no, yes, yes, no]),
            ([0, 1, 0], 0o1777, OTHER, [yes, no, yes, no]),
            ([0, 0, 1], 0o1777, OTHER, [yes, yes, no, no]),
            ([1, 1, 1], 0o1775, OTHER, [yes, yes, yes, yes]),
            ([1, 2, 1], 0o1775, OTHER, [yes, no, yes, yes]),
            ([1, 1, 2], 0o1775, OTHER, [yes, yes, no, yes]),
            ([1, 2, 2], 0o1757, OTHER, [no, no, no, no]),
            ([1, 2, 2], 0o1755, OTHER, [yes, yes, yes, yes]),
            ([1, 2, 2], 0o0777, OTHER, [yes, yes, yes, yes]),
            ([1, 2, 2], 0o1777, USER, [yes, yes, yes, yes]),
            ([1, 2, 2], 0o1777, HOLDER, [yes, yes, yes, yes]),
        ] {
            let [links, files, pipes] = set;
            let protected = Protected {
                links,
                files,
                pipes,
            };
            assert_eq!(Protected::of_group(protected.packed()), protected);
            let directory = Holder { mode, uid: HOLDER };
            let opens = |kind| protected.lets_open(USER, directory, kind, owner);
            let found = [
                protected.lets_follow(USER, directory, owner),
                opens(FileKind::File),
                opens(FileKind::Pipe),
                opens(FileKind::Socket),
            ];
            assert_eq!(found, wanted, "{set:?} {mode:o} {owner}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_set() {
        let text = std::fs::read_to_string("/proc/sys/fs/protected_symlinks").unwrap();
        let machine = Protected::of_machine();
        assert_eq!(machine.links.to_string(), text.trim());
        assert_eq!(Protected::of_group(0), machine);
        for path in [c"/nowhere", c"/proc/sys/fs", c"/proc/sys/kernel/ostype"] {
            assert_eq!(setting(path), 1, "{path:?}");
        }
    }
}
