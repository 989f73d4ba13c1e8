//! Files by what they are, and not by their names: for who has noted an identity and comes back after a crash.
//!
//! Invariant: what is opened is the file that is meant, and no other that has its name or its number by now.

use super::*;
use arck_libfs_kit::format::HeaderKind;
use arck_libfs_kit::messages::Request::CommitAll;

/// How often all directories are looked at for a file that is there.
const SEARCHES: u32 = 3;

impl FileSystem {
    /// Opens the file of an identity ([`FileSystem::identity`]), to write, and to read as well if the caller may: where `path` leads to it, or else
    /// wherever it is, which takes a look at all directories. Gives nothing if it is gone: has no name any more. Blocks as [`FileSystem::open`].
    ///
    /// # Errors
    /// What opening the file says. Or, where it is there and not found, why a directory could not be looked into; EAGAIN: it was moved
    /// meanwhile, again and again.
    pub fn open_identity(
        &self,
        path: &[u8],
        identity: (u32, u32),
    ) -> Result<Option<Handle>, Failure> {
        if let Some(found) = self.open_if_same(path, identity)? {
            return Ok(Some(found));
        }
        for _ in 0..SEARCHES {
            if self.is_gone(identity) {
                return Ok(None);
            }
            if let Some(found) = self.search(identity)? {
                return Ok(Some(found));
            }
            // It was moved from where nobody had looked yet to where somebody had; or this session has taken its last name away, which
            // its header does not say before that is folded.
            self.engine.session.ask(&CommitAll { release: false })?;
        }
        match self.is_gone(identity) {
            true => Ok(None),
            false => Err(Errno::AGAIN.into()),
        }
    }

    /// Whether no file of this identity has a name, as far as that is folded.
    fn is_gone(&self, (number, generation): (u32, u32)) -> bool {
        let header = self.engine.session.header(number);
        header.is_none_or(|header| {
            header.generation() != generation
                || matches!(header.kind(), HeaderKind::Free | HeaderKind::Orphan)
        })
    }

    /// The file of a path, if it is the one that is meant.
    fn open_if_same(&self, path: &[u8], identity: (u32, u32)) -> Result<Option<Handle>, Failure> {
        let open = |access: i32| {
            let flags = access | libc::O_NONBLOCK | libc::O_CLOEXEC;
            self.open(At::Root, path, flags, 0)
        };
        let opened = match open(libc::O_RDWR) {
            Err(Failure::Errno(Errno::ACCESS)) => open(libc::O_WRONLY),
            other => other,
        };
        match opened {
            Ok(handle) => {
                let found = self.identity(handle);
                if found == Ok(identity) {
                    return Ok(Some(handle));
                }
                self.close(handle);
                found?;
                Ok(None)
            }
            Err(Failure::Errno(
                Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::NXIO | Errno::LOOP,
            )) => Ok(None),
            Err(failure) => match self.is_other(path, identity) {
                Ok(false) => Err(failure),
                // Or nobody can say what it leads to, and the file may be elsewhere.
                Ok(true) | Err(_) => Ok(None),
            },
        }
    }

    /// Whether a path leads to another file than the one that is meant.
    fn is_other(&self, path: &[u8], identity: (u32, u32)) -> Result<bool, Failure> {
        let found = self.stat(At::Root, path, 0)?;
        Ok((found.inode, found.generation) != (u64::from(identity.0), identity.1))
    }

    /// Looks for a file in all directories. What cannot be looked into is an error where the file is not found elsewhere.
    fn search(&self, identity: (u32, u32)) -> Result<Option<Handle>, Failure> {
        let mut unseen = None;
        let mut directories = vec![Vec::new()];
        while let Some(directory) = directories.pop() {
            let listed = match self.list(At::Root, &directory) {
                Ok(listed) => listed,
                Err(Failure::Errno(Errno::NOENT)) => continue,
                Err(failure) => {
                    unseen.get_or_insert(failure);
                    continue;
                }
            };
            for entry in listed {
                let mut path = directory.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&entry.name);
                if entry.kind == libc::DT_DIR {
                    directories.push(path);
                } else if entry.inode == u64::from(identity.0)
                    && let Some(found) = self.open_if_same(&path, identity)?
                {
                    return Ok(Some(found));
                }
            }
        }
        match unseen {
            Some(failure) if !self.is_gone(identity) => Err(failure),
            _ => Ok(None),
        }
    }
}
