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

use crate::pool::names::LOCK_FILES;
use crate::threads::helper::{Helper, Stuck};
use arck_core_state::InodeNumber;
use arck_protocol::socket::Access;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Lock files that there are at one user's instance.
const USER_MAX: usize = 1 << 14;
/// Lock files that are looked at when one is made.
const LOOKED_AT: usize = 2;
/// Bytes of a FIFO's buffer, of which the kernel lets a user have so many for all of his.
const BUFFER: usize = 4096;
/// For whom it is looked at what an earlier controller has left: no user's number.
const NOBODY: u32 = u32::MAX;

/// Which inode: number and generation.
type Key = (InodeNumber, u32);

fn name((number, generation): Key) -> String {
    format!("{number:08x}-{generation:08x}")
}

fn key(name: &str) -> Option<Key> {
    let (number, generation) = name.split_once('-')?;
    let parse = |text: &str| u32::from_str_radix(text, 16).ok();
    let key = (parse(number)?, parse(generation)?);
    (self::name(key) == name).then_some(key)
}

/// All lock files of a pool.
#[derive(Default, Debug)]
pub struct LockFiles {
    /// Made at the first need.
    directory: Option<Arc<OwnedFd>>,
    helper: Helper,
    /// The one that was made and given at last, while nobody else was given one.
    new: Option<Key>,
    /// Those that did not open, or close, when that was tried last.
    stuck: HashMap<Key, Stuck>,
    /// At whose instance each was made; `None`: at an earlier controller's time.
    made_for: HashMap<Key, Option<u32>>,
    by_user: HashMap<u32, usize>,
    /// All, in the order in which they are looked at.
    order: VecDeque<Key>,
}

impl LockFiles {
    /// With what an earlier controller has left; of that what nobody has open is removed.
    pub fn open(pool: &OwnedFd) -> Result<LockFiles, Errno> {
        let mut files = LockFiles::default();
        let directory = match open_folder(pool) {
            Err(Errno::NOENT) => return Ok(files),
            other => other?,
        };
        let mut listed = rustix::fs::Dir::read_from(&directory)?;
        files.directory = Some(Arc::new(directory));
        while let Some(entry) = listed.read() {
            if let Some(key) = entry?.file_name().to_str().ok().and_then(key) {
                files.made_for.insert(key, None);
                files.order.push_back(key);
            }
        }
        files.look_at(files.order.len(), |_| true);
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
        let is_new = !self.made_for.contains_key(&key) && self.make(pool, key, user, is_there)?;
        let folder = self.directory.clone().ok_or(Errno::NOENT)?;
        self.new = is_new.then_some(key);
        let open = move || open_for(&folder, &name(key), access);
        match is_new {
            // Nobody else has it.
            true => open(),
            false => self.have_done(key, user, open).unwrap_or(Err(Errno::NOLCK)),
        }
    }

    /// Closes what was opened of an inode's lock file, and waits for that unless it is stuck.
    pub fn close_one(&mut self, key: Key, user: u32, file: OwnedFd) {
        // Nobody may ever ask for those again that have come back.
        self.stuck.retain(|_, stuck| stuck.is_stuck());
        if self.new == Some(key) {
            // There is one open file of it: who holds its lock has it open, so this is not the last of it.
            return drop(file);
        }
        // What is stuck is closed when it is not any more.
        let _ = self.have_done(key, user, move || drop(file));
    }

    /// Something is done with an inode's lock file; `None` if that is stuck.
    fn have_done<T: Send + 'static>(
        &mut self,
        key: Key,
        user: u32,
        step: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.stuck.get(&key).is_some_and(Stuck::is_stuck) {
            return None;
        }
        match self.helper.has_done(user, step) {
            Ok(done) => {
                self.stuck.remove(&key);
                Some(done)
            }
            Err(stuck) => {
                self.stuck.extend(stuck.map(|stuck| (key, stuck)));
                None
            }
        }
    }

    /// Whether a file is an inode's lock file. Asks nobody but the kernel.
    pub fn is_of(&self, key: Key, file: BorrowedFd<'_>) -> bool {
        let is_own = || {
            let folder = self.directory.as_deref()?;
            let own = rustix::fs::statat(folder, name(key), AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            let theirs = rustix::fs::statx(file, c"", flags, StatxFlags::INO).ok()?;
            let device = rustix::fs::makedev(theirs.stx_dev_major, theirs.stx_dev_minor);
            Some(own.st_ino == theirs.stx_ino && own.st_dev == device)
        };
        is_own() == Some(true)
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
        if self
            .by_user
            .get(&user)
            .is_some_and(|&made| made >= USER_MAX)
        {
            // Once through: what he has closed does not count.
            self.look_at(self.order.len(), &is_there);
        }
        if self
            .by_user
            .get(&user)
            .is_some_and(|&made| made >= USER_MAX)
        {
            return Err(Errno::NOLCK);
        }
        let mode = Mode::RUSR | Mode::WUSR;
        let made = self
            .folder(pool)
            .and_then(|folder| rustix::fs::mknodat(folder, name(key), FileType::Fifo, mode, 0));
        let is_new = match made {
            Ok(()) => true,
            // One that could not be removed.
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(errno),
        };
        self.made_for.insert(key, Some(user));
        *self.by_user.entry(user).or_default() += 1;
        self.order.push_back(key);
        Ok(is_new)
    }

    /// Removes of the next so many those that nobody has open, or whose inodes are gone.
    fn look_at(&mut self, count: usize, is_there: impl Fn(Key) -> bool) {
        for _ in 0..count {
            let Some(key) = self.order.pop_front() else {
                return;
            };
            if is_there(key) && self.is_open(key) {
                self.order.push_back(key);
            } else {
                self.remove(key);
            }
        }
    }

    fn remove(&mut self, key: Key) {
        if let Some(folder) = &self.directory {
            // It may be gone.
            let _ = rustix::fs::unlinkat(folder, name(key), AtFlags::empty());
        }
        self.stuck.remove(&key);
        if let Some(Some(user)) = self.made_for.remove(&key)
            && let Some(made) = self.by_user.get_mut(&user)
        {
            *made -= 1;
            if *made == 0 {
                self.by_user.remove(&user);
            }
        }
    }

    /// Whether anybody has it open. If that cannot be told, it counts as open.
    fn is_open(&mut self, key: Key) -> bool {
        let Some(folder) = self.directory.clone() else {
            return false;
        };
        let user = self.made_for.get(&key).copied().flatten();
        let look = move || is_open(&folder, &name(key));
        self.have_done(key, user.unwrap_or(NOBODY), look)
            .unwrap_or(true)
    }

    fn folder(&mut self, pool: &OwnedFd) -> Result<&OwnedFd, Errno> {
        if self.directory.is_none() {
            match rustix::fs::mkdirat(pool, LOCK_FILES, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            self.directory = Some(Arc::new(open_folder(pool)?));
        }
        self.directory.as_deref().ok_or(Errno::NOENT)
    }

    /// At the controller's end: those that nobody has open go, and if that are all, the directory too.
    pub fn close(&mut self, pool: &OwnedFd) {
        self.look_at(self.order.len(), |_| true);
        // It fails if there are others.
        let _ = rustix::fs::unlinkat(pool, LOCK_FILES, AtFlags::REMOVEDIR);
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

fn open_folder(pool: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(pool, LOCK_FILES, flags, Mode::empty())
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
        let held = files.have_done((1, 1), 5, move || wait.recv().is_err());
        assert_eq!(held, None);
        let stuck = files.stuck[&(1, 1)].clone();
        let mut use_another = |generation| {
            let given = files.give(&pool, (2, generation), Access::Read, 6, |_| true);
            files.close_one((2, generation), 6, given.unwrap());
            files.stuck.len()
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
        files.by_user.insert(5, USER_MAX);
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
}
