//! The locks in a pool's directory that keep several `arck run` and a private controller apart (see
//! [`pool`](super::pool)), and the way to the controller that there is.

use super::private::START_LIMIT;
use super::telling::plain;
use arck_core_state::layout;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The use lock's file in the pool's directory.
pub const USE_LOCK: &str = "run.lock";

/// How long a lock is waited for: somebody else's start, or a controller's end.
const LOCK_LIMIT: Duration = Duration::from_secs(40);
/// Between two tries for a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// Takes the start lock of the pool of this directory. Blocks at most [`LOCK_LIMIT`].
pub fn take_start_lock(pool: &Path, directory: &OwnedFd) -> Result<(), String> {
    match try_for(|| flock(directory, FlockOperation::NonBlockingLockExclusive)) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!(
            "another arck run is still starting on {}; try again",
            pool.display()
        )),
        Err(errno) => Err(format!(
            "cannot use the pool {}: {}",
            pool.display(),
            plain(&errno.into())
        )),
    }
}

/// Bytes of the use lock's file: the mark of a private controller, and the use lock. From [`MOUNTS`] on there are two for each
/// directory at which `arck run` mounts for its user.
const MARK: libc::off_t = 0;
const USE: libc::off_t = 1;
const MOUNTS: libc::off_t = 16;

/// The locks of a directory at which `arck run` mounts for its user: shared by who uses the mount, and by the process
/// that serves it. (Two directories may have the same; then their mounts end together.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(libc::off_t);

impl Place {
    pub fn of(mount: &Path) -> Place {
        // The same in each version of the command.
        let sum = crc32c::crc32c(mount.as_os_str().as_bytes());
        Place(MOUNTS + 2 * libc::off_t::from(sum))
    }

    fn used(self) -> libc::off_t {
        self.0
    }

    fn served(self) -> libc::off_t {
        self.0 + 1
    }
}

/// A lock of a byte.
fn record(kind: libc::c_int, byte: libc::off_t) -> libc::flock {
    // SAFETY: numbers, for which zeroes are values.
    let mut record: libc::flock = unsafe { std::mem::zeroed() };
    record.l_type = kind as libc::c_short;
    record.l_whence = libc::SEEK_SET as libc::c_short;
    record.l_start = byte;
    record.l_len = 1;
    record
}

/// Takes a lock of a byte for an open file, which all have who inherit that. EAGAIN.
fn take(file: &OwnedFd, kind: libc::c_int, byte: libc::off_t) -> Result<(), Errno> {
    let wanted = record(kind, byte);
    // SAFETY: the kernel reads the structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Shares the use lock.
pub fn share(file: &OwnedFd) -> Result<(), Errno> {
    take(file, libc::F_RDLCK, USE)
}

/// The use lock's file, to take a lock in it that excludes others.
fn open_to_exclude(pool: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(CWD, pool.join(USE_LOCK), flags, Mode::RUSR | Mode::WUSR)
}

/// For a private controller: says so to those who use the pool, for as long as what is returned is
/// open. `None`: the use lock's file cannot be opened, and they will not know.
pub fn mark_private(pool: &Path) -> Option<OwnedFd> {
    let file = open_to_exclude(pool).ok()?;
    take(&file, libc::F_WRLCK, MARK).is_ok().then_some(file)
}

/// Whether a private controller serves the pool of this use lock.
pub fn is_private(use_lock: &OwnedFd) -> bool {
    ![None, Some(libc::F_UNLCK)].contains(&against(use_lock, libc::F_RDLCK, MARK))
}

/// The kind of lock by which others keep an open file from taking this one of a byte.
fn against(file: &OwnedFd, kind: libc::c_int, byte: libc::off_t) -> Option<libc::c_int> {
    let mut asked = record(kind, byte);
    // SAFETY: the kernel writes the structure.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut asked) };
    (done == 0).then_some(libc::c_int::from(asked.l_type))
}

/// Says that this `arck run`, or its command, uses such a mount. EAGAIN while one ends.
pub fn share_mount(file: &OwnedFd, place: Place) -> Result<(), Errno> {
    take(file, libc::F_RDLCK, place.used())
}

/// The `arck run` does not use it any more.
pub fn leave_mount(file: &OwnedFd, place: Place) {
    // What was locked can be let go.
    let _ = take(file, libc::F_UNLCK, place.used());
}

/// Whether others use it.
pub fn is_mount_used(file: &OwnedFd, place: Place) -> bool {
    against(file, libc::F_WRLCK, place.used()) == Some(libc::F_RDLCK)
}

/// Whether the process that serves it is there: from before it is mounted, until it has ended.
pub fn is_mount_served(file: &OwnedFd, place: Place) -> bool {
    against(file, libc::F_WRLCK, place.served()) == Some(libc::F_RDLCK)
}

/// For what is to serve such a mount: a file that it is to keep open for as long as it does.
pub fn serve_mount(pool: &Path, place: Place) -> Result<OwnedFd, Errno> {
    let file = open_to_exclude(pool)?;
    take(&file, libc::F_RDLCK, place.served())?;
    Ok(file)
}

/// Blocks until nobody uses such a mount; from then on nobody does, as long as the file is open.
pub fn wait_for_mount_unused(file: &OwnedFd, place: Place) {
    let wanted = record(libc::F_WRLCK, place.used());
    loop {
        // SAFETY: the kernel reads the structure.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &raw const wanted) };
        match done {
            0 => return,
            // A signal, or no memory for a lock.
            _ => std::thread::sleep(LOCK_PAUSE),
        }
    }
}

/// For a private controller that would end: the use lock, which nobody else has then, for as long as what
/// is returned is open. EAGAIN.
pub fn take_use_lock(pool: &Path) -> Result<OwnedFd, Errno> {
    let file = open_to_exclude(pool)?;
    take(&file, libc::F_WRLCK, USE)?;
    Ok(file)
}

/// Takes a lock, trying for [`LOCK_LIMIT`]; whether it was got.
pub fn try_for(lock: impl Fn() -> Result<(), Errno>) -> Result<bool, Errno> {
    try_at_most(LOCK_LIMIT, lock)
}

/// The same for so long.
pub fn try_at_most(limit: Duration, lock: impl Fn() -> Result<(), Errno>) -> Result<bool, Errno> {
    let started = Instant::now();
    loop {
        match lock() {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK | Errno::ACCESS) => {
                if started.elapsed() > limit {
                    return Ok(false);
                }
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Connects to the pool's controller; `None` if there is none. Goes through `/proc`, because a
/// socket's address holds only 107 bytes of path.
pub fn connect_to(directory: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let path = format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), layout::SOCKET);
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let started = Instant::now();
    loop {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(Some(socket)),
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
            Err(Errno::INTR) => {}
            // Too many are waiting to be let in.
            Err(Errno::AGAIN) if started.elapsed() < START_LIMIT => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("arck-run-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn nobody_serves_an_unconnected_pool() {
        let directory = scratch("connect");
        let opened = openat(CWD, &directory, OFlags::RDONLY, Mode::empty()).unwrap();
        assert!(connect_to(&opened).unwrap().is_none());
        // A socket that a dead controller left behind.
        drop(UnixListener::bind(directory.join(layout::SOCKET)).unwrap());
        // Of another type than the controller's: refused as a mistake, not taken for absence.
        assert!(!matches!(connect_to(&opened), Ok(Some(_))));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_lock_goes_with_its_file() {
        let directory = scratch("lock");
        let open = || openat(CWD, &directory, OFlags::RDONLY, Mode::empty()).unwrap();
        let first = open();
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        assert!(try_for(|| flock(&first, exclusive)).unwrap());
        assert_eq!(
            flock(open(), FlockOperation::NonBlockingLockShared),
            Err(Errno::WOULDBLOCK)
        );
        drop(first);
        let second = open();
        assert!(try_for(|| flock(&second, exclusive)).unwrap());
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// A mount of `arck run`'s ends when the last has left it, and is waited for by who comes. Those at other directories
    /// have nothing to do with it.
    #[test]
    fn a_mount_ends_with_the_last_who_uses_it() {
        let directory = scratch("mount-lock");
        let [place, other] = ["/a", "/b"].map(|mount| Place::of(Path::new(mount)));
        assert_ne!(place, other);
        let serving = serve_mount(&directory, place).unwrap();
        let path = directory.join(USE_LOCK);
        let open = || openat(CWD, &path, OFlags::RDONLY, Mode::empty()).unwrap();
        let (first, second) = (open(), open());
        for file in [&first, &second] {
            share_mount(file, place).unwrap();
        }
        share_mount(&open(), other).unwrap();
        assert!(is_mount_used(&first, place) && is_mount_served(&first, place));
        assert!(!is_mount_served(&first, other));
        leave_mount(&first, place);
        assert!(is_mount_used(&first, place), "the second uses it");
        std::thread::scope(|scope| {
            scope.spawn(|| wait_for_mount_unused(&serving, place));
            drop(second);
        });
        assert!(!is_mount_used(&first, place));
        assert_eq!(share_mount(&first, place), Err(Errno::AGAIN));
        let short = Duration::from_millis(5);
        assert!(!try_at_most(short, || share_mount(&first, place)).unwrap());
        // It has ended.
        drop(serving);
        assert!(!is_mount_served(&first, place));
        share_mount(&first, place).unwrap();
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// What a command's processes inherit keeps a private controller, and no more: whoever has it excludes
    /// nobody, says of no controller that it is private, and lets go of nothing that another has.
    #[test]
    fn what_is_inherited_has_no_power() {
        let directory = scratch("use-lock");
        let private = mark_private(&directory).unwrap();
        let path = directory.join(USE_LOCK);
        let open = || openat(CWD, &path, OFlags::RDONLY, Mode::empty()).unwrap();
        let (used, inherited) = (open(), open());
        for file in [&used, &inherited] {
            take(file, libc::F_RDLCK, USE).unwrap();
            assert!(is_private(file));
        }
        assert_eq!(take_use_lock(&directory).err(), Some(Errno::AGAIN));
        drop(private);
        assert!(!is_private(&used));
        for byte in [MARK, USE] {
            assert_eq!(take(&inherited, libc::F_WRLCK, byte), Err(Errno::BADF));
            take(&inherited, libc::F_RDLCK, byte).unwrap();
        }
        let _ = flock(&inherited, FlockOperation::NonBlockingLockExclusive);
        assert!(!is_private(&used));
        take(&open(), libc::F_RDLCK, USE).unwrap();
        take(&inherited, libc::F_UNLCK, USE).unwrap();
        assert_eq!(take_use_lock(&directory).err(), Some(Errno::AGAIN));
        drop(used);
        let taken = take_use_lock(&directory).unwrap();
        assert_eq!(take(&open(), libc::F_RDLCK, USE), Err(Errno::AGAIN));
        drop(taken);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
