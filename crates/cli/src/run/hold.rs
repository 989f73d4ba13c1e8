//! Holding the place where the pool is seen, for programs that the library does not reach: to them
//! the path is the host's, and what they made there would be lost to the pool and to its user.
//!
//! The mount point is made, if it is missing and may be made: an empty directory that nobody may write, which
//! the last `arck run` that uses it removes, or what serves it to root's command, if that has left something in the
//! background. That stops users other than root. Root's command gets a mount
//! namespace of its own besides, in which the pool is mounted on it (FUSE, [`beneath`](super::beneath)); where that
//! cannot be, an empty file system that can only be read, since root passes by permission bits. Where the pool is
//! mounted there already, by whoever, all this is not needed.
//!
//! Other users' is mounted at a directory of their own, where that is to be ([`own_mount`](super::own_mount)).
//! A user namespace, by which they could have the same as root, is not made: in it, set-user-ID programs
//! (`sudo`, `su`) give no rights, the user's further groups cannot be given to files, and who looks
//! at the ids of others sees none. Where such a user could write the mount point itself, the report says so.
//!
//! # Invariants
//! * Mounts of the host reach the command, as they come and go; what it mounts itself stays its own.
//! * Whoever uses a mount point, or serves what is mounted there, has a shared lock of the directory, so nobody removes it
//!   under others (which would take away what is mounted on it), nor one that `arck run` has not made. Where somebody else keeps a
//!   lock of it that excludes that, it is used without: nobody who asks for the lock removes it then either.

use super::beneath::{Server, Serving};
use super::own_mount::{OF_ARCK, OwnMount};
use super::telling::plain;
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, FlockOperation, Mode, OFlags, fchmod, flock, fstat, open};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

/// How often a mount point is made again that another `arck run` removes meanwhile.
const TRIES: usize = 16;
/// Before it is tried again where somebody has it locked.
const PAUSE: Duration = Duration::from_millis(1);

/// What programs that are not reached find at the mount point.
pub enum Held {
    /// The pool, by the kernel.
    Mounted,
    /// Nothing that they could write.
    Yes,
    /// The host's, for this reason.
    No(String),
}

impl Held {
    /// For the report.
    pub fn told(&self, mount: &Path) -> String {
        let mount = mount.display();
        match self {
            Held::Mounted => format!(
                "what the library does not reach finds the pool at {mount} too, by the kernel"
            ),
            Held::Yes => format!(
                "what the library does not reach finds nothing at {mount}, and can make nothing there"
            ),
            Held::No(why) => format!(
                "what the library does not reach finds the host's {mount}, and may write there: {why}"
            ),
        }
    }
}

/// Whether something of the host's is there that the command does not see: more than a mount point.
pub fn hides_something(mount: &Path) -> bool {
    match std::fs::symlink_metadata(mount) {
        Ok(there) if there.is_dir() => !is_empty(mount),
        Ok(_) => true,
        Err(_) => false,
    }
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

/// The mount point while it is used.
pub struct Hold {
    pub held: Held,
    /// The directory beneath, locked, if there is one.
    point: Option<OwnedFd>,
    /// What serves the pool there.
    serving: Option<Serving>,
    /// The part in a mount of this user's, who is not root.
    own: Option<OwnMount>,
}

/// For what this thread starts from here on. `server`: what is to serve the pool there, if it is to be mounted.
/// It is given the mount point, to remove it when nobody uses it any more. `own`: the mount of who is not root.
pub fn hold(
    mount: &Path,
    pool: &Path,
    server: impl FnOnce(Option<&OwnedFd>) -> Result<Server, String>,
    own: impl FnOnce() -> Result<OwnMount, String>,
) -> Hold {
    // One that ends with those who use it is asked for nothing.
    if !arck_mount::beneath::is_of_run(mount) && arck_mount::beneath::is_mounted_at(pool, mount) {
        return Hold::of_another(Held::Mounted);
    }
    if !rustix::process::geteuid().is_root() {
        return match own() {
            Ok(own) => Hold {
                own: Some(own),
                ..Hold::of_another(Held::Mounted)
            },
            Err(why) => without_namespace(mount, &why),
        };
    }
    let point = match make(mount) {
        Ok(point) => point,
        // Another user's mount, which shows root nothing.
        Err(_) if arck_mount::beneath::is_of_run(mount) => {
            return in_own_namespace(mount, pool, server, None)
                .unwrap_or_else(|error| refused(error, None));
        }
        Err(error) => return refused(error, None),
    };
    in_own_namespace(mount, pool, server, Some(&point))
        .unwrap_or_else(|error| refused(error, Some(point)))
}

/// The same where another pool lies, which the command is not to see.
pub fn hold_over(
    mount: &Path,
    pool: &Path,
    server: impl FnOnce(Option<&OwnedFd>) -> Result<Server, String>,
) -> Hold {
    match rustix::process::geteuid().is_root() {
        true => {
            in_own_namespace(mount, pool, server, None).unwrap_or_else(|error| refused(error, None))
        }
        false => Hold::of_another(Held::No("another pool may lie there".to_owned())),
    }
}

/// `point`: the directory, if it was made, or used, before (root's own mount is refused where its root is no mount point:
/// in a directory that `chroot` was given).
fn refused(error: io::Error, point: Option<OwnedFd>) -> Hold {
    let why = format!("root's own mount is refused: {}", plain(&error));
    Hold {
        point,
        ..Hold::of_another(Held::No(why))
    }
}

impl Hold {
    /// Of one that somebody else holds, or nobody.
    pub fn of_another(held: Held) -> Hold {
        Hold {
            held,
            point: None,
            serving: None,
            own: None,
        }
    }

    /// Whether that ends with those who use it.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Whether the pool lies there.
    pub fn is_mounted(&self) -> bool {
        matches!(self.held, Held::Mounted)
    }

    /// The command has ended. Removes what was made, if nobody else uses it; what was done through a mount is folded
    /// when it returns.
    pub fn end(self, mount: &Path) {
        if let Some(own) = self.own {
            own.end();
        }
        if let Some(serving) = self.serving {
            // Else it ends with the last of those who see it.
            if !is_shared_namespace() {
                detach(mount);
                serving.end();
            }
        }
        let Some(point) = self.point else {
            return;
        };
        let is_mounted = !matches!(self.held, Held::No(_)) && rustix::process::geteuid().is_root();
        if is_mounted && is_shared_namespace() || !is_unused(&point) {
            return;
        }
        if is_mounted {
            detach(mount);
        }
        remove(mount);
    }
}

/// Who served what was mounted there does not any more: removes the mount point, if an `arck run` has made it and nobody
/// else uses it.
pub fn give_up(point: &OwnedFd, mount: &Path) {
    if is_unused(point) {
        remove(mount);
    }
}

/// Whether an `arck run` of this user's has made a mount point, which is still there, and nobody else uses it; it is locked
/// then, and nobody begins to.
fn is_unused(point: &OwnedFd) -> bool {
    let is_own = fstat(point).is_ok_and(|status| {
        status.st_mode & 0o7777 == OF_ARCK && status.st_uid == rustix::process::geteuid().as_raw()
    });
    let alone = FlockOperation::NonBlockingLockExclusive;
    // Who had it locked may have removed it.
    is_own && flock(point, alone).is_ok() && fstat(point).is_ok_and(|status| status.st_nlink > 0)
}

/// Where somebody has put something into it, it stays.
fn remove(mount: &Path) {
    let _ = std::fs::remove_dir(mount);
}

/// Takes away what is mounted there, if anything is.
fn detach(mount: &Path) {
    if let Ok(path) = CString::new(mount.as_os_str().as_bytes()) {
        // SAFETY: a string. Where nothing is mounted nothing is taken away.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Whether root's command has left others in its namespace.
fn is_shared_namespace() -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    // Of this thread: others of this process are outside.
    let Ok(own) = std::fs::read_link("/proc/thread-self/ns/mnt") else {
        return true;
    };
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return true;
    };
    let this = std::process::id();
    let is_other = |entry: &std::fs::DirEntry| {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok());
        number.is_some_and(|number| number != this)
    };
    processes
        .flatten()
        .filter(is_other)
        .any(|entry| std::fs::read_link(entry.path().join("ns/mnt")).is_ok_and(|of| of == own))
}

/// The mount point, made if it is missing, and locked.
fn make(mount: &Path) -> io::Result<OwnedFd> {
    make_and(mount, || ())
}

/// The same; `made` is called when it has just been made.
fn make_and(mount: &Path, made: impl Fn()) -> io::Result<OwnedFd> {
    for tries_left in (0..TRIES).rev() {
        let is_new = match DirBuilder::new().mode(OF_ARCK).create(mount) {
            Ok(()) => {
                made();
                true
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let point = match open(mount, flags, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            point => point?,
        };
        if is_new && is_own_and_empty(&point)? {
            // Whatever is masked. That of what is open, and not of what stands there now: who may write
            // beside it can put anything in its place, to have it opened to all.
            fchmod(&point, Mode::from_raw_mode(OF_ARCK))?;
        }
        let locked = flock(&point, FlockOperation::NonBlockingLockShared);
        // Else it is being removed, or has been.
        let is_there = fstat(&point)?.st_nlink > 0;
        if is_there && (locked.is_ok() || tries_left == 0) {
            return Ok(point);
        }
        if locked.is_err() {
            std::thread::sleep(PAUSE);
        }
    }
    Err(Errno::BUSY.into())
}

/// Whether a directory can be the one that was just made.
fn is_own_and_empty(directory: &OwnedFd) -> io::Result<bool> {
    let is_own = fstat(directory)?.st_uid == rustix::process::geteuid().as_raw();
    let mut entries = Dir::read_from(directory)?.flatten();
    let is_empty = entries.all(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."));
    Ok(is_own && is_empty)
}

/// `why`: it is not mounted there.
fn without_namespace(mount: &Path, why: &str) -> Hold {
    let point = make(mount).ok();
    // What this user may not make, his programs may not either.
    let may_write = std::fs::symlink_metadata(mount).is_ok()
        && rustix::fs::access(mount, rustix::fs::Access::WRITE_OK).is_ok();
    let held = match may_write {
        true => Held::No(format!(
            "it exists, and the user may write it; it is not mounted there: {why}"
        )),
        false => Held::Yes,
    };
    Hold {
        point,
        ..Hold::of_another(held)
    }
}

/// `outside`: what lies there, locked, if it is the host's.
fn in_own_namespace(
    mount: &Path,
    pool: &Path,
    server: impl FnOnce(Option<&OwnedFd>) -> Result<Server, String>,
    outside: Option<&OwnedFd>,
) -> io::Result<Hold> {
    let path = CString::new(mount.as_os_str().as_bytes())?;
    // Which stays outside, and may live longer than this: it has the mount point locked for itself.
    let server = server(outside);
    // SAFETY: a number. Threads that are there already stay where they are.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    mount_at(c"none", c"/", None, libc::MS_REC | libc::MS_SLAVE)?;
    // In this namespace: the other one's cannot be mounted on.
    let point = outside.map(|_| make(mount)).transpose()?;
    let mounted = server.and_then(|server| server.mount(pool, mount, point.as_ref()));
    if let Ok(serving) = mounted {
        return Ok(Hold {
            point,
            serving: Some(serving),
            ..Hold::of_another(Held::Mounted)
        });
    }
    let closed = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let options = c"mode=0555,size=4k,nr_inodes=2";
    mount_at(c"arck", &path, Some((c"tmpfs", options)), closed)?;
    Ok(Hold {
        point,
        ..Hold::of_another(Held::Yes)
    })
}

fn mount_at(
    source: &CStr,
    target: &CStr,
    kind: Option<(&CStr, &CStr)>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let (kind, options) = match kind {
        Some((kind, options)) => (kind.as_ptr(), options.as_ptr().cast()),
        None => (std::ptr::null(), std::ptr::null()),
    };
    // SAFETY: strings that outlive the call, or null where the kernel wants none.
    match unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, options) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::fs::{Permissions, create_dir, set_permissions, symlink_metadata, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Everybody may open it, and so lock it: then root's command had the host's directory under its eyes, and could
    /// write what got past the library there.
    #[test]
    fn who_locks_a_mount_point_takes_it_from_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let mount = folder.path().join("mount");
        let first = make(&mount).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        drop(first);
        let other = open(&mount, flags, Mode::empty()).unwrap();
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
        let second = make(&mount).unwrap();
        assert_eq!(
            fstat(&second).unwrap().st_ino,
            fstat(&other).unwrap().st_ino
        );
    }

    /// There the mount point was made before root's own mount was refused, and stayed for ever.
    #[test]
    fn where_the_root_is_no_mount_point_nothing_stays() {
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root, "only root changes his root: run this as root");
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_path_buf();
        let [mount, pool] = ["/mount", "/pool"].map(Path::new);
        let within = std::thread::spawn(move || {
            // SAFETY: a number. The others of this process keep their root.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0);
            rustix::process::chroot(&root).unwrap();
            let none = || "none".to_owned();
            let hold = hold(mount, pool, |_| Err(none()), || Err(none()));
            assert!(matches!(hold.held, Held::No(_)));
            assert!(mount.is_dir());
            hold.end(mount);
            assert!(!mount.exists());
        });
        within.join().unwrap();
        assert!(is_empty(folder.path()));
    }

    /// The mode of the mount point was set by its path: who owned the directory above put a link there
    /// in between, and root's `arck run` let everybody read, and search, what it led to.
    #[test]
    fn what_is_put_in_the_place_of_a_mount_point_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let [mount, link, file, full] =
            ["mount", "link", "file", "full"].map(|name| folder.path().join(name));
        let mode = |path: &Path| symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
        write(&file, "secret").unwrap();
        set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        create_dir(&full).unwrap();
        write(full.join("inside"), "").unwrap();
        set_permissions(&full, Permissions::from_mode(0o700)).unwrap();
        for target in [&file, &full] {
            symlink(target, &link).unwrap();
            let exchange = |other: &Path| {
                renameat_with(CWD, &mount, CWD, other, RenameFlags::EXCHANGE).unwrap();
            };
            assert!(make_and(&mount, || exchange(&link)).is_err());
            assert_eq!([mode(&file), mode(&full)], [0o600, 0o700]);
            // One of its directories, with what is in it.
            std::fs::remove_file(&mount).unwrap();
            std::fs::remove_dir(&link).unwrap();
            make_and(&mount, || exchange(&full)).unwrap();
            assert_eq!([mode(&file), mode(&mount)], [0o600, 0o700]);
            std::fs::remove_dir(&full).unwrap();
            std::fs::rename(&mount, &full).unwrap();
        }
        drop(make(&mount).unwrap());
        assert_eq!(mode(&mount), OF_ARCK);
    }
}
