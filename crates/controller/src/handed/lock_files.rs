//! Lock files: what the kernel keeps the advisory locks of an inode by (DESIGN section 8).
//!
//! An inode that somebody locks has a FIFO in a directory of the pool that no session can search. Who may
//! open the inode in a mode gets the FIFO freshly opened in that mode, and locks that: POSIX locks are
//! then the process's, `flock` and OFD locks those of the description that he got; the kernel lets wait,
//! finds circles, hands on to children and drops at death, whether or not there is a controller.
//!
//! A FIFO, because it has a name, by which the next controller finds the same one; can be opened for
//! writing without there being anything of the pool's to write; and tells whether anybody has it open.
//! What is written into it is its own, in a buffer of one page unless who has it makes that larger.
//!
//! Who may write the inode can hold its FIFO's lock for ever, and whoever opens or closes that waits then. So what
//! somebody else may have open is opened and closed by a thread that can be given up ([`crate::threads::helper`]); and nobody
//! is given a lock file that is held so.
//!
//! # Invariants
//! * The thread that everybody waits for opens none but those that it has just made, and closes none that others
//!   may have had by then.
//! * A lock file that somebody has open is the only one of its inode: it is not removed before all have
//!   closed it, or the inode is gone. Only the controller opens them, so none is opened meanwhile.
//! * Those that nobody has open are removed, two looked at for each that is made: there are at most about
//!   twice as many as are open. A user has made at most [`USER_MAX`] of those that are there.

use super::careful::Careful;
use super::nodes::{Key, Nodes, name};
use crate::pool::names::LOCK_FILES;
use arck_protocol::socket::Access;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Lock files that there are at one user's instance.
const USER_MAX: usize = 1 << 14;
/// Lock files that are looked at when one is made.
const LOOKED_AT: usize = 2;
/// Bytes of a FIFO's buffer, of which the kernel lets a user have so many for all of his.
const BUFFER: usize = 4096;
/// For whom it is looked at what an earlier controller has left: no user's number.
const NOBODY: u32 = u32::MAX;

/// All lock files of a pool.
#[derive(Debug)]
pub struct LockFiles {
    nodes: Nodes,
    careful: Careful,
    /// The one that was made and given at last, while nobody else was given one.
    new: Option<Key>,
}

impl LockFiles {
    /// With what an earlier controller has left; of that what nobody has open is removed.
    pub fn open(pool: &OwnedFd) -> Result<LockFiles, Errno> {
        let mut files = LockFiles {
            nodes: Nodes::open(pool, LOCK_FILES)?,
            careful: Careful::default(),
            new: None,
        };
        files.look_at(files.nodes.count(), |_| true);
        Ok(files)
    }

    /// Another open of an inode's lock file, which is made if there is none, for a user. ENOLCK if too many
    /// are there at his instance. `is_there`: whether an inode exists still.
    pub fn give(
        &mut self,
        pool: &OwnedFd,
        key: Key,
        access: Access,
        user: u32,
        is_there: impl Fn(Key) -> bool,
    ) -> Result<OwnedFd, Errno> {
        let is_new = !self.nodes.has(key) && self.make(pool, key, user, is_there)?;
        let folder = self.nodes.directory().cloned().ok_or(Errno::NOENT)?;
        self.new = is_new.then_some(key);
        let open = move || open_for(&folder, &name(key), access);
        match is_new {
            // Nobody else has it.
            true => open(),
            false => {
                let opened = self.careful.has_done(key, user, open);
                opened.unwrap_or(Err(Errno::NOLCK))
            }
        }
    }

    /// Closes what was opened of an inode's lock file, and waits for that unless it is stuck.
    pub fn close_one(&mut self, key: Key, user: u32, file: OwnedFd) {
        self.careful.forget_returned();
        if self.new == Some(key) {
            // There is one open file of it: who holds its lock has it open, so this is not the last of it.
            return drop(file);
        }
        // What is stuck is closed when it is not any more.
        let _ = self.careful.has_done(key, user, move || drop(file));
    }

    /// Whether a file is an inode's lock file. Asks nobody but the kernel.
    pub fn is_of(&self, key: Key, file: BorrowedFd<'_>) -> bool {
        self.nodes.is_of(key, file)
    }

    /// Makes an inode's lock file; whether nobody can have had it before.
    fn make(
        &mut self,
        pool: &OwnedFd,
        key: Key,
        user: u32,
        is_there: impl Fn(Key) -> bool,
    ) -> Result<bool, Errno> {
        self.look_at(LOOKED_AT, &is_there);
        if self.nodes.has_as_many(user, USER_MAX) {
            // Once through: what he has closed does not count.
            self.look_at(self.nodes.count(), &is_there);
        }
        if self.nodes.has_as_many(user, USER_MAX) {
            return Err(Errno::NOLCK);
        }
        let mode = Mode::RUSR | Mode::WUSR;
        let made = self
            .nodes
            .made_directory(pool)
            .and_then(|folder| rustix::fs::mknodat(folder, name(key), FileType::Fifo, mode, 0));
        let is_new = match made {
            Ok(()) => true,
            // One that could not be removed.
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(errno),
        };
        self.nodes.note(key, user);
        Ok(is_new)
    }

    /// Removes of the next so many those that nobody has open, or whose inodes are gone.
    fn look_at(&mut self, count: usize, is_there: impl Fn(Key) -> bool) {
        for _ in 0..count {
            let Some(key) = self.nodes.next() else {
                return;
            };
            if is_there(key) && self.is_open(key) {
                self.nodes.keep(key);
            } else {
                self.careful.forget(key);
                self.nodes.remove(key);
            }
        }
    }

    /// Whether anybody has it open. If that cannot be told, it counts as open.
    fn is_open(&mut self, key: Key) -> bool {
        let Some(folder) = self.nodes.directory().cloned() else {
            return false;
        };
        let user = self.nodes.user_of(key).unwrap_or(NOBODY);
        let look = move || is_open(&folder, &name(key));
        self.careful.has_done(key, user, look).unwrap_or(true)
    }

    /// At the controller's end: those that nobody has open go, and if that are all, the directory too.
    pub fn close(&mut self, pool: &OwnedFd) {
        self.look_at(self.nodes.count(), |_| true);
        self.nodes.close(pool);
    }
}

/// Opens a lock file in a mode.
fn open_for(folder: &OwnedFd, name: &str, access: Access) -> Result<OwnedFd, Errno> {
    // For neither reading nor writing alone it opens without somebody at the other end.
    let both = open_one(folder, name, OFlags::RDWR)?;
    // A busy buffer stays as it is.
    let _ = rustix::pipe::fcntl_setpipe_size(&both, BUFFER);
    match access {
        Access::ReadWrite => Ok(both),
        Access::Read => open_one(folder, name, OFlags::RDONLY),
        Access::Write => open_one(folder, name, OFlags::WRONLY),
    }
}

/// Whether anybody has a lock file open.
fn is_open(folder: &OwnedFd, name: &str) -> bool {
    match open_one(folder, name, OFlags::WRONLY) {
        // Nobody reads.
        Err(Errno::NXIO) => {}
        Err(Errno::NOENT) => return false,
        _ => return true,
    }
    let Ok(reader) = open_one(folder, name, OFlags::RDONLY) else {
        return true;
    };
    // The end of the file, unless somebody could write.
    rustix::io::read(&reader, &mut [0u8; 1]) != Ok(0)
}

fn open_one(folder: &OwnedFd, name: &str, access: OFlags) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};

    fn place() -> (tempfile::TempDir, OwnedFd) {
        let place = tempfile::tempdir().unwrap();
        let directory = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = rustix::fs::open(place.path(), directory, Mode::empty()).unwrap();
        (place, directory)
    }

    fn count(place: &tempfile::TempDir) -> usize {
        let listed = std::fs::read_dir(place.path().join(LOCK_FILES));
        listed.map_or(0, |listed| listed.count())
    }

    const ALL: [Access; 3] = [Access::Read, Access::Write, Access::ReadWrite];

    #[test]
    fn every_mode_is_the_same_file_and_grants_no_more() {
        let (_place, pool) = place();
        let mut files = LockFiles::open(&pool).unwrap();
        let mut given = Vec::new();
        for access in ALL {
            given.push(files.give(&pool, (7, 1), access, 5, |_| true).unwrap());
        }
        let identities: Vec<u64> = given
            .iter()
            .map(|file| rustix::fs::fstat(file).unwrap().st_ino)
            .collect();
        assert!(identities.iter().all(|&inode| inode == identities[0]));
        for (file, access) in given.iter().zip(ALL) {
            let flags = rustix::fs::fcntl_getfl(file).unwrap() & OFlags::RWMODE;
            let expected = match access {
                Access::Read => OFlags::RDONLY,
                Access::Write => OFlags::WRONLY,
                Access::ReadWrite => OFlags::RDWR,
            };
            assert_eq!(flags, expected);
        }
        let [one, two, _] = given.as_slice() else {
            panic!()
        };
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        flock(one, exclusive).unwrap();
        assert_eq!(flock(two, exclusive), Err(Errno::WOULDBLOCK));
        let other = files
            .give(&pool, (7, 2), Access::Read, 5, |_| true)
            .unwrap();
        flock(other, exclusive).unwrap();
    }

    #[test]
    fn what_nobody_has_open_goes_and_the_rest_is_found_again() {
        for access in ALL {
            let (place, pool) = place();
            let mut files = LockFiles::open(&pool).unwrap();
            let kept = files.give(&pool, (1, 1), access, 5, |_| true).unwrap();
            flock(&kept, FlockOperation::LockExclusive).unwrap();
            for number in 2..100 {
                files.give(&pool, (number, 1), access, 5, |_| true).unwrap();
            }
            assert!(count(&place) < 5, "{} with {access:?}", count(&place));
            // The next controller, which finds the one that is locked.
            let mut files = LockFiles::open(&pool).unwrap();
            assert_eq!(count(&place), 1);
            let again = files
                .give(&pool, (1, 1), Access::Read, 5, |_| true)
                .unwrap();
            let exclusive = FlockOperation::NonBlockingLockExclusive;
            assert_eq!(flock(&again, exclusive), Err(Errno::WOULDBLOCK));
            drop(kept);
            flock(&again, exclusive).unwrap();
            files.close(&pool);
            assert_eq!(count(&place), 1, "it is open");
            drop(again);
            let mut files = LockFiles::open(&pool).unwrap();
            files.close(&pool);
            assert!(!place.path().join(LOCK_FILES).exists());
        }
    }

    #[test]
    fn what_is_written_into_it_keeps_it_open_for_nobody() {
        let (place, pool) = place();
        let mut files = LockFiles::open(&pool).unwrap();
        let file = files.give(&pool, (1, 1), Access::ReadWrite, 5, |_| true);
        let file = file.unwrap();
        assert_eq!(rustix::io::write(&file, &[1; 8192]), Ok(BUFFER));
        for _ in 0..3 {
            files.look_at(9, |_| true);
            assert_eq!(count(&place), 1);
        }
        drop(file);
        files.look_at(9, |_| true);
        assert_eq!(count(&place), 0);
    }

    #[test]
    fn an_inode_that_is_gone_leaves_no_file() {
        let (place, pool) = place();
        let mut files = LockFiles::open(&pool).unwrap();
        let _open = files
            .give(&pool, (1, 1), Access::Read, 5, |_| true)
            .unwrap();
        files.look_at(1, |_| false);
        assert_eq!(count(&place), 0);
    }

    /// What was stuck once is forgotten when it is not any more, although nobody asks for that file again.
    #[test]
    fn what_has_come_back_is_forgotten() {
        let (_place, pool) = place();
        let mut files = LockFiles::open(&pool).unwrap();
        let (hold, wait) = std::sync::mpsc::channel::<()>();
        let held = files
            .careful
            .has_done((1, 1), 5, move || wait.recv().is_err());
        assert_eq!(held, None);
        let stuck = files.careful.stuck()[&(1, 1)].clone();
        let mut use_another = |generation| {
            let given = files.give(&pool, (2, generation), Access::Read, 6, |_| true);
            files.close_one((2, generation), 6, given.unwrap());
            files.careful.stuck().len()
        };
        assert_eq!(use_another(1), 1);
        drop(hold);
        let since = std::time::Instant::now();
        while stuck.is_stuck() {
            assert!(since.elapsed() < std::time::Duration::from_secs(20));
            std::thread::yield_now();
        }
        assert_eq!(use_another(2), 0);
    }

    #[test]
    fn one_user_leaves_others_theirs() {
        let (_place, pool) = place();
        let mut files = LockFiles::open(&pool).unwrap();
        files.nodes.count_as_made(5, USER_MAX);
        let given = files.give(&pool, (1, 1), Access::Read, 5, |_| true);
        assert_eq!(given.err(), Some(Errno::NOLCK));
        files
            .give(&pool, (1, 1), Access::Read, 6, |_| true)
            .unwrap();
        // The file is there: it is at nobody's new expense.
        files
            .give(&pool, (1, 1), Access::Read, 5, |_| true)
            .unwrap();
    }
}
