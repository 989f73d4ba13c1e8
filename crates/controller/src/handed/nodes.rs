//! Files of the host's that stand for inodes, in a directory of the pool's that no session can search: under each
//! inode's number and generation, so that the next controller finds the same ones.
//!
//! # Invariants
//! * Only the controller's user can search the directory, and nothing but the controller makes or removes what is in it.
//! * What is there is counted to the user at whose instance it was made; what an earlier controller has left, to nobody.

use arck_core_state::InodeNumber;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Which inode: number and generation.
pub type Key = (InodeNumber, u32);

/// The name of an inode's file.
pub fn name((number, generation): Key) -> String {
    format!("{number:08x}-{generation:08x}")
}

fn key(name: &str) -> Option<Key> {
    let (number, generation) = name.split_once('-')?;
    let parse = |text: &str| u32::from_str_radix(text, 16).ok();
    let key = (parse(number)?, parse(generation)?);
    (self::name(key) == name).then_some(key)
}

/// All files of one directory.
#[derive(Debug)]
pub struct Nodes {
    /// Its name in the pool's.
    folder: &'static str,
    /// Made at the first need.
    directory: Option<Arc<OwnedFd>>,
    /// At whose instance each was made; `None`: at an earlier controller's time.
    made_for: HashMap<Key, Option<u32>>,
    by_user: HashMap<u32, usize>,
    /// All, in the order in which they are looked at.
    order: VecDeque<Key>,
}

impl Nodes {
    /// With what an earlier controller has left. What lies there under no inode's name is removed.
    pub fn open(pool: &OwnedFd, folder: &'static str) -> Result<Nodes, Errno> {
        let mut nodes = Nodes {
            folder,
            directory: None,
            made_for: HashMap::new(),
            by_user: HashMap::new(),
            order: VecDeque::new(),
        };
        let directory = match open_folder(pool, folder) {
            Err(Errno::NOENT) => return Ok(nodes),
            other => other?,
        };
        let mut listed = rustix::fs::Dir::read_from(&directory)?;
        while let Some(entry) = listed.read() {
            let entry = entry?;
            match entry.file_name().to_str().ok().and_then(key) {
                Some(key) => {
                    nodes.made_for.insert(key, None);
                    nodes.order.push_back(key);
                }
                None if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                // It fails if that is a directory, which nobody here has made.
                None => {
                    let _ = rustix::fs::unlinkat(&directory, entry.file_name(), AtFlags::empty());
                }
            }
        }
        nodes.directory = Some(Arc::new(directory));
        Ok(nodes)
    }

    /// The directory, if there is one.
    pub fn directory(&self) -> Option<&Arc<OwnedFd>> {
        self.directory.as_ref()
    }

    /// The directory, which is made if there is none.
    pub fn made_directory(&mut self, pool: &OwnedFd) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(directory) = &self.directory {
            return Ok(directory.clone());
        }
        match rustix::fs::mkdirat(pool, self.folder, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let directory = Arc::new(open_folder(pool, self.folder)?);
        Ok(self.directory.insert(directory).clone())
    }

    /// Whether a descriptor is of an inode's file. Asks nobody but the kernel, and not for its size, which the kernel
    /// tells of a FIFO when whoever writes to it lets it.
    pub fn is_of(&self, key: Key, file: BorrowedFd<'_>) -> bool {
        let is_own = || {
            let directory = self.directory.as_ref()?;
            let own = rustix::fs::statat(directory, name(key), AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            let theirs = rustix::fs::statx(file, c"", flags, StatxFlags::INO).ok()?;
            let device = rustix::fs::makedev(theirs.stx_dev_major, theirs.stx_dev_minor);
            Some(own.st_ino == theirs.stx_ino && own.st_dev == device)
        };
        is_own() == Some(true)
    }

    pub fn has(&self, key: Key) -> bool {
        self.made_for.contains_key(&key)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.order.len()
    }

    /// At whose instance one was made.
    pub fn user_of(&self, key: Key) -> Option<u32> {
        self.made_for.get(&key).copied().flatten()
    }

    /// Whether at a user's instance so many have been made that are there.
    pub fn has_as_many(&self, user: u32, most: usize) -> bool {
        self.by_user.get(&user).is_some_and(|&made| made >= most)
    }

    /// One was made at a user's instance.
    pub fn note(&mut self, key: Key, user: u32) {
        self.made_for.insert(key, Some(user));
        *self.by_user.entry(user).or_default() += 1;
        self.order.push_back(key);
    }

    /// The one that is to be looked at next, which is to be [kept](Self::keep) or [removed](Self::remove).
    pub fn next(&mut self) -> Option<Key> {
        self.order.pop_front()
    }

    pub fn keep(&mut self, key: Key) {
        self.order.push_back(key);
    }

    pub fn remove(&mut self, key: Key) {
        if let Some(directory) = &self.directory {
            // It may be gone.
            let _ = rustix::fs::unlinkat(directory, name(key), AtFlags::empty());
        }
        if let Some(Some(user)) = self.made_for.remove(&key)
            && let Some(made) = self.by_user.get_mut(&user)
        {
            *made -= 1;
            if *made == 0 {
                self.by_user.remove(&user);
            }
        }
    }

    /// At the controller's end: if none is left, the directory goes too.
    pub fn close(&mut self, pool: &OwnedFd) {
        // It fails if there are some.
        let _ = rustix::fs::unlinkat(pool, self.folder, AtFlags::REMOVEDIR);
    }

    #[cfg(test)]
    pub fn count_as_made(&mut self, user: u32, count: usize) {
        self.by_user.insert(user, count);
    }
}

fn open_folder(pool: &OwnedFd, folder: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(pool, folder, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_what_else_may_lie_there() {
        assert_eq!(key(&name((0x12, 0xffff_ffff))), Some((0x12, 0xffff_ffff)));
        for wrong in [
            "",
            "-",
            "1-2",
            "00000001-0000000g",
            "+0000001-00000001",
            "x",
        ] {
            assert_eq!(key(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_inodes_is_removed_when_a_pool_is_opened() {
        let place = tempfile::tempdir().unwrap();
        let directory = OFlags::RDONLY | OFlags::DIRECTORY;
        let pool = rustix::fs::open(place.path(), directory, Mode::empty()).unwrap();
        let folder = place.path().join("nodes");
        std::fs::create_dir(&folder).unwrap();
        for file in [name((7, 1)).as_str(), "half-made"] {
            std::fs::write(folder.join(file), "").unwrap();
        }
        let mut nodes = Nodes::open(&pool, "nodes").unwrap();
        assert!(nodes.has((7, 1)) && nodes.count() == 1);
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
        assert_eq!(left.len(), 1);
        nodes.close(&pool);
        assert!(folder.exists(), "there is one in it");
        let found = nodes.next().unwrap();
        nodes.remove(found);
        nodes.close(&pool);
        assert!(!folder.exists());
    }
}
