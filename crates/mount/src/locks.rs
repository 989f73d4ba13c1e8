//! Record locks (`fcntl`), which meet those of programs under the preload library.
//!
//! The controller keeps a file for each inode that is locked, and whoever may open the inode gets that file opened afresh;
//! the kernel keeps the locks by it. Here each owner of locks (a process, or an open file description) that comes through
//! the mount has such a file of its own, and what it locks is locked there for that description.
//!
//! A lock that is waited for is tried again and again by a thread of its own: at once when somebody gives one up through
//! the mount, else after a pause, since nobody tells of others. A wait ends with EINTR when a signal waits for whoever
//! waits for the lock: the kernel's own word of that does not come through the FUSE library, and without it he could not
//! even be killed.
//!
//! # Invariants
//! * An owner's locks of an inode go when any descriptor of it is closed by that owner ([`Locks::closed`]), or when the
//!   description goes through which they came ([`Locks::released`]).
//! * At most [`WAITING_MAX`] requests of a user wait for locks: ENOLCK for more. The more wait, the longer are the pauses of
//!   each, so that all together take no more of a processor.

use crate::nodes::Node;
use crate::open::Open;
use arckfs::{Errno, FileSystem, Handle};
use rustix::fd::{AsRawFd, OwnedFd};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Requests of a user that wait for locks at most.
const WAITING_MAX: usize = 512;
/// First pause before a lock is tried again, and the longest; each is twice as long as the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));
/// Where more than these wait, their pauses are as many times as long as there are that many.
const CROWD: usize = 32;

/// A part of a file, and how it is or is to be locked: F_RDLCK, F_WRLCK, F_UNLCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    /// The last byte; `i64::MAX` and beyond: to the end, wherever that will be.
    pub last: u64,
    pub kind: i32,
    /// Whose it is.
    pub process: u32,
}

/// Whose locks: the kernel's number of the process's table of descriptors, or of a description.
pub type Owner = u64;

/// What an owner locks by.
struct LockFile {
    file: OwnedFd,
    /// As F_GETFL's: what it may lock.
    access: i32,
    process: u32,
    /// The number of the description that it came by.
    through: u64,
}

/// See the module's head.
#[derive(Default)]
pub struct Locks {
    files: Mutex<HashMap<(Node, Owner), Arc<LockFile>>>,
    /// Told when a lock was given up.
    given_up: Condvar,
    /// How many requests of each user wait.
    waiting: Mutex<HashMap<u32, usize>>,
}

/// A request of a user's that waits, until this is dropped.
struct Waits {
    locks: Arc<Locks>,
    user: u32,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let mut waiting = self.locks.waiting();
        if let Some(count) = waiting.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.user);
            }
        }
    }
}

/// The longest pause where so many wait.
fn longest_pause(waiting: usize) -> Duration {
    PAUSES.1 * u32::try_from(waiting.div_ceil(CROWD).max(1)).unwrap_or(u32::MAX)
}

fn record(range: Range) -> Result<libc::flock, Errno> {
    // SAFETY: numbers, for which zeroes are values.
    let mut record: libc::flock = unsafe { std::mem::zeroed() };
    record.l_type = range.kind as libc::c_short;
    record.l_whence = libc::SEEK_SET as libc::c_short;
    record.l_start = i64::try_from(range.start).map_err(|_| Errno::INVAL)?;
    record.l_len = match i64::try_from(range.last) {
        Ok(last) if last < i64::MAX => last - record.l_start + 1,
        _ => 0,
    };
    Ok(record)
}

fn lock_by(file: &OwnedFd, range: Range) -> Result<(), Errno> {
    let record = record(range)?;
    // SAFETY: the kernel reads the structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const record) } {
        0 => Ok(()),
        _ => match Errno::from_io_error(&io::Error::last_os_error()) {
            Some(Errno::ACCESS) | None => Err(Errno::AGAIN),
            Some(errno) => Err(errno),
        },
    }
}

/// A lock file of an open file, to lock as much as its user may: best to read and write.
fn receive(open: &Open) -> Result<(OwnedFd, i32), Errno> {
    let (fs, handle) = open.enter()?;
    let access = fs.flags(handle)? & libc::O_ACCMODE;
    if access != libc::O_RDWR
        && let Ok(wide) = crate::data::open(&fs, open.node, libc::O_RDWR)
    {
        let file = lock_file(&fs, wide);
        fs.close(wide);
        if let Ok(file) = file {
            return Ok((file, libc::O_RDWR));
        }
    }
    Ok((lock_file(&fs, handle)?, access))
}

fn lock_file(fs: &FileSystem, handle: Handle) -> Result<OwnedFd, Errno> {
    fs.lock_file(handle).map_err(|errno| match errno {
        // To a program that would be a lock of somebody else's.
        Errno::ACCESS | Errno::AGAIN => Errno::NOLCK,
        errno => errno,
    })
}

fn may_lock(access: i32, kind: i32) -> bool {
    match kind {
        libc::F_RDLCK => access != libc::O_WRONLY,
        libc::F_WRLCK => access != libc::O_RDONLY,
        _ => true,
    }
}

impl Locks {
    fn files(&self) -> MutexGuard<'_, HashMap<(Node, Owner), Arc<LockFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner's lock file, made if there is none by which this can be locked.
    fn file(
        &self,
        open: &Open,
        through: u64,
        owner: Owner,
        range: Range,
    ) -> Result<Arc<LockFile>, Errno> {
        let key = (open.node, owner);
        let known = self.files().get(&key).cloned();
        if let Some(known) = known.filter(|known| may_lock(known.access, range.kind)) {
            return Ok(known);
        }
        let (file, access) = receive(open)?;
        let made = Arc::new(LockFile {
            file,
            access,
            process: range.process,
            through,
        });
        let mut files = self.files();
        // Another thread of the process may have been faster.
        if let Some(known) = files
            .get(&key)
            .filter(|known| may_lock(known.access, range.kind))
        {
            return Ok(known.clone());
        }
        files.insert(key, made.clone());
        Ok(made)
    }

    /// Locks or unlocks at once: EAGAIN where somebody else has what is asked for.
    pub fn set(&self, open: &Open, through: u64, owner: Owner, range: Range) -> Result<(), Errno> {
        if range.kind != libc::F_UNLCK {
            return lock_by(&self.file(open, through, owner, range)?.file, range);
        }
        let known = self.files().get(&(open.node, owner)).cloned();
        let done = known.map_or(Ok(()), |known| lock_by(&known.file, range));
        // Whoever has just tried in vain waits by now.
        drop(self.files());
        self.given_up.notify_all();
        done
    }

    /// The same for a `thread` that waits until it gets the lock, or a signal; here another thread waits, which calls
    /// `then`, unless the lock is to be had at once.
    pub fn set_waiting(
        self: &Arc<Self>,
        open: &Arc<Open>,
        through: u64,
        owner: Owner,
        range: Range,
        thread: u32,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let set = self.set(open, through, owner, range);
        if set != Err(Errno::AGAIN) {
            return then(set);
        }
        let Some(waits) = self.begin_waiting(open.session.who.uid) else {
            return then(Err(Errno::NOLCK));
        };
        let open = open.clone();
        let wait = move || {
            let got = waits.locks.wait(&open, through, owner, range, thread);
            drop(waits);
            then(got);
        };
        // Where there may be no further thread, the request is answered as its reply is dropped: EIO.
        let _ = std::thread::Builder::new()
            .name("lock".to_owned())
            .spawn(wait);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more request of a user's that waits, if he may have one more.
    fn begin_waiting(self: &Arc<Self>, user: u32) -> Option<Waits> {
        let mut waiting = self.waiting();
        let count = waiting.entry(user).or_default();
        if *count >= WAITING_MAX {
            return None;
        }
        *count += 1;
        let locks = self.clone();
        Some(Waits { locks, user })
    }

    fn wait(
        &self,
        open: &Open,
        through: u64,
        owner: Owner,
        range: Range,
        thread: u32,
    ) -> Result<(), Errno> {
        let mut pause = PAUSES.0;
        loop {
            let longest = longest_pause(self.waiting().values().sum());
            // Its file may have gone and come again meanwhile.
            let file = self.file(open, through, owner, range)?;
            let files = self.files();
            match lock_by(&file.file, range) {
                Err(Errno::AGAIN) => {}
                done => return done,
            }
            if is_signalled(thread) {
                return Err(Errno::INTR);
            }
            // Whoever gives one up says so under the same lock, or after it.
            let waited = self.given_up.wait_timeout(files, pause);
            let (_files, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            pause = match waited.timed_out() {
                true => (2 * pause).min(longest),
                false => PAUSES.0,
            };
        }
    }

    /// Who has locked what this owner asks for; of kind F_UNLCK if nobody.
    pub fn get(
        &self,
        open: &Open,
        through: u64,
        owner: Owner,
        range: Range,
    ) -> Result<Range, Errno> {
        let file = self.file(open, through, owner, range)?;
        let mut asked = record(range)?;
        // SAFETY: the kernel reads and writes the structure.
        let done = unsafe { libc::fcntl(file.file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut asked) };
        if done != 0 {
            return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        let start = asked.l_start.cast_unsigned();
        let process = match u32::try_from(asked.l_pid) {
            Ok(process) => process,
            // A description's: one of this mount, or of nobody that could be named.
            Err(_) => self.another(open.node, owner),
        };
        Ok(Range {
            start,
            last: match asked.l_len {
                0 => i64::MAX.cast_unsigned(),
                length => start + length.cast_unsigned() - 1,
            },
            kind: i32::from(asked.l_type),
            process,
        })
    }

    /// The process of another owner of locks of an inode, if there is just one.
    fn another(&self, node: Node, owner: Owner) -> u32 {
        let files = self.files();
        let mut others = files
            .iter()
            .filter(|((of, by), _)| *of == node && *by != owner);
        match (others.next(), others.next()) {
            (Some((_, one)), None) => one.process,
            _ => 0,
        }
    }

    fn forget(&self, mut is_meant: impl FnMut(&(Node, Owner), &LockFile) -> bool) {
        let mut files = self.files();
        if files.is_empty() {
            return;
        }
        files.retain(|key, file| !is_meant(key, file));
        drop(files);
        self.given_up.notify_all();
    }

    /// An owner has closed a descriptor of an inode.
    pub fn closed(&self, node: Node, owner: Owner) {
        self.forget(|key, _| *key == (node, owner));
    }

    /// A description is gone.
    pub fn released(&self, node: Node, through: u64) {
        self.forget(|key, file| key.0 == node && file.through == through);
    }
}

/// Whether a signal waits for a thread that it does not hold back, nor ignore.
fn is_signalled(thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"));
    status.is_ok_and(|status| signals_wait(&status))
}

fn signals_wait(status: &str) -> bool {
    let set = |name: &str| {
        let mut lines = status.lines();
        let set = lines.find_map(|line| line.strip_prefix(name));
        set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
            .unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") & !set("SigIgn:") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_waits_if_nobody_holds_it_back() {
        let status = |own: u64, shared: u64, blocked: u64, ignored: u64| {
            format!(
                "Name:\tx\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n"
            )
        };
        for (sets, expected) in [
            ((0, 0, 0, 0), false),
            ((1, 0, 0, 0), true),
            ((0, 0x100, 0, 0), true),
            ((0, 0x100, 0x100, 0), false),
            ((0, 0x100, 0, 0x100), false),
            ((0x3, 0, 1, 0), true),
        ] {
            let (own, shared, blocked, ignored) = sets;
            assert_eq!(
                signals_wait(&status(own, shared, blocked, ignored)),
                expected,
                "{sets:?}"
            );
        }
        assert!(!is_signalled(std::process::id()));
    }

    #[test]
    fn no_user_waits_for_so_many_that_others_cannot() {
        let locks = Arc::new(Locks::default());
        let one = |user| locks.begin_waiting(user);
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| one(1001)).collect();
        assert!(waiting.iter().all(Option::is_some));
        assert!(one(1001).is_none() && one(1002).is_some());
        waiting.truncate(1);
        assert!(one(1001).is_some());
        drop(waiting);
        assert!(locks.waiting().is_empty());
        let pauses = [0, 1, CROWD, CROWD + 1, 20 * CROWD].map(longest_pause);
        assert_eq!(pauses.map(|pause| pause.as_millis()), [16, 16, 16, 32, 320]);
    }

    #[test]
    fn ranges_are_the_kernels() {
        let range = |start, last| {
            record(Range {
                start,
                last,
                kind: libc::F_WRLCK,
                process: 1,
            })
        };
        let told = |start, last| range(start, last).map(|record| (record.l_start, record.l_len));
        assert_eq!(told(0, i64::MAX as u64), Ok((0, 0)));
        assert_eq!(told(10, 10), Ok((10, 1)));
        assert_eq!(told(10, u64::MAX), Ok((10, 0)));
        assert_eq!(told(u64::MAX, u64::MAX), Err(Errno::INVAL));
    }
}
