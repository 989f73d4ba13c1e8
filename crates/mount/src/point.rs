//! The directory that a pool is mounted at.
//!
//! # Invariants
//! * Nothing is hidden that somebody could look for: a directory that is not empty is refused, unless that is wanted.
//! * What is detached is a mount of Arck's whose process is gone, and nothing else.

use arckfs::Errno;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The type of the mount as `/proc/self/mountinfo` has it, with the subtype behind.
pub const KIND: &str = "fuse.arck";
/// That of one that `arck run` has made for a user who is not root, and which ends with it.
pub const KIND_OF_RUN: &str = "fuse.arck-run";

/// A directory that can be mounted at.
#[derive(Clone, Debug)]
pub struct Point {
    path: PathBuf,
}

/// An I/O error as the system words it, without the error number.
fn plain(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.find(" (os error") {
        text.truncate(end);
    }
    text
}

impl Point {
    /// Looks whether a pool can be mounted there. Where a mount of Arck's is left whose process is gone, it is detached.
    ///
    /// # Errors
    /// One line that says what is wrong and what to do.
    pub fn find(path: &Path, may_hide: bool) -> Result<Point, String> {
        let shown = path.display();
        let mut looked = std::fs::metadata(path);
        if looked
            .as_ref()
            .is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
        {
            detach_dead(path)?;
            looked = std::fs::metadata(path);
        }
        let status = looked.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => format!("there is no directory {shown}; make it: mkdir {shown}"),
            Some(libc::ENOTDIR) => format!("a part of {shown} is a file; name a directory"),
            Some(libc::EACCES) => format!(
                "{shown} cannot be reached: Permission denied; name a directory of your own"
            ),
            _ => format!("cannot look at {shown}: {}", plain(&error)),
        })?;
        if !status.is_dir() {
            return Err(format!(
                "{shown} is not a directory; a pool is mounted at a directory"
            ));
        }
        let path =
            std::fs::canonicalize(path).map_err(|error| format!("{shown}: {}", plain(&error)))?;
        if path == Path::new("/") {
            return Err("a pool cannot be mounted at /; name another directory".to_owned());
        }
        if let Some(what) = mounted_at(&path) {
            return Err(match what.kind.as_str() {
                KIND => format!(
                    "the pool {} is mounted at {shown} already; end that with: {} {shown}",
                    what.source,
                    match rustix::process::geteuid().is_root() {
                        true => "umount",
                        false => "fusermount3 -u",
                    }
                ),
                KIND_OF_RUN => format!(
                    "the pool {} is mounted at {shown} by an arck run, until that ends; name another directory",
                    what.source
                ),
                _ => format!(
                    "{} is mounted at {shown}; name another directory",
                    what.source
                ),
            });
        }
        let own = rustix::process::geteuid().as_raw();
        if own != 0 && (status.uid() != own || status.permissions().mode() & 0o200 == 0) {
            return Err(format!(
                "{shown} is not yours to write; who is not root mounts at a directory of his own"
            ));
        }
        let is_empty = || std::fs::read_dir(&path).is_ok_and(|mut names| names.next().is_none());
        if !may_hide && !is_empty() {
            return Err(format!(
                "{shown} is not empty, and the mount would hide what is in it; name an empty directory, or say --nonempty"
            ));
        }
        Ok(Point { path })
    }

    /// Absolute, and without links.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Which mount: the kernel's number of it, which none has after it as long as that is there.
pub type MountNumber = u32;

/// A line of `/proc/self/mountinfo`.
pub struct Mount {
    pub number: MountNumber,
    /// Where it is seen.
    pub at: PathBuf,
    pub kind: String,
    pub source: String,
    /// Whose process serves it, as the kernel was told by who mounted it (FUSE).
    pub user: Option<u32>,
}

impl Mount {
    /// Whether it is a pool's.
    pub fn is_of_arck(&self) -> bool {
        [KIND, KIND_OF_RUN].contains(&&*self.kind)
    }
}

/// Undoes what the kernel does to spaces and such in that file.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|_| byte == b'\\');
        let octal =
            octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(meant) => {
                bytes.push(meant);
                rest = &behind[3..];
            }
            None => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    bytes
}

/// What is mounted, in the order in which it was; nothing where that cannot be read.
pub fn mounts() -> Vec<Mount> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table
        .split(|&byte| byte == b'\n')
        .filter_map(mount_of)
        .collect()
}

fn mount_of(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = words.iter().position(|&word| word == b"-")?;
    let text = |at: usize| {
        let word = words.get(at)?;
        Some(String::from_utf8_lossy(&unescaped(word)).into_owned())
    };
    let options = text(dash + 3).unwrap_or_default();
    let mut options = options.split(',');
    Some(Mount {
        number: text(0)?.parse().ok()?,
        at: PathBuf::from(OsStr::from_bytes(&unescaped(words.get(4)?))),
        kind: text(dash + 1)?,
        source: text(dash + 2)?,
        user: options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok()),
    })
}

/// What is mounted at a directory, the last if there are several.
fn mounted_at(path: &Path) -> Option<Mount> {
    mounts().into_iter().rev().find(|mount| mount.at == path)
}

/// Detaches what a mount process that is gone has left.
fn detach_dead(path: &Path) -> Result<(), String> {
    let shown = path.display();
    // It cannot be looked at, and so not be resolved: all but the last part can.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let resolved = absolute
        .parent()
        .and_then(|above| std::fs::canonicalize(above).ok());
    let resolved = resolved
        .zip(absolute.file_name())
        .map_or(absolute.clone(), |(above, name)| above.join(name));
    match mounted_at(&resolved) {
        Some(what) if what.is_of_arck() => detach(&resolved).map_err(|error| {
            format!("the mount at {shown} is left of a process that is gone, and cannot be detached: {error}; umount {shown}")
        }),
        _ => Err(format!(
            "{shown} is a mount of something else whose process is gone; detach it: umount {shown}"
        )),
    }
}

/// A pool as the source of a mount, which is to be text, and in which a comma would end the option.
pub fn source_of(pool: &Path) -> String {
    pool.display().to_string().replace(',', "?")
}

/// The number of the mount at a directory.
pub fn number_at(path: &Path) -> Option<MountNumber> {
    mounted_at(path).map(|mount| mount.number)
}

/// Detaches that mount, wherever it is by now, if it is the last at that place: what somebody else has mounted on it since is
/// his.
pub fn detach_one(number: Option<MountNumber>) -> Result<(), String> {
    let mounts = mounts();
    let Some(mount) = mounts.iter().find(|mount| Some(mount.number) == number) else {
        return Ok(());
    };
    match number_at(&mount.at) == number {
        true => detach(&mount.at),
        false => Ok(()),
    }
}

/// Detaches a mount at once; who uses it still goes on with what he has, if anybody serves that.
pub fn detach(path: &Path) -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: a string.
        return match unsafe {
            libc::umount2(name.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW)
        } {
            0 => Ok(()),
            _ => Err(plain(&io::Error::last_os_error())),
        };
    }
    let mut command = Command::new("fusermount3");
    command.args(["-u", "-z", "--"]).arg(path);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| no_helper(&error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Detaches what is left of a mount that nobody serves any more, if anything is.
pub fn detach_if_dead(path: &Path) {
    let looked = std::fs::metadata(path);
    if looked.is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN)) {
        // Else the next one does it.
        let _ = detach_dead(path);
    }
}

/// Why the helper of users who are not root could not be started.
pub fn no_helper(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "fusermount3 is not installed, and only root mounts without it; \
             install it (Debian: apt install fuse3), or mount as root"
                .to_owned()
        }
        _ => format!("fusermount3: {}", plain(error)),
    }
}

/// Opens the kernel's device, by which one mount is served.
///
/// # Errors
/// One line.
pub fn device() -> Result<OwnedFd, String> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(no_device)
}

/// Why the kernel's device cannot be had.
pub fn no_device(errno: Errno) -> String {
    match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            "this kernel has no FUSE (/dev/fuse is missing); load it: modprobe fuse".to_owned()
        }
        Errno::ACCESS | Errno::PERM => {
            "/dev/fuse may not be opened; its mode is usually 0666 (chmod 666 /dev/fuse), and a \
             container has to be given it"
                .to_owned()
        }
        errno => format!("/dev/fuse cannot be opened: {errno}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_comes_back() {
        for (told, meant) in [
            ("/a", "/a"),
            (r"/a\040b", "/a b"),
            (r"\134x", r"\x"),
            (r"a\04", r"a\04"),
        ] {
            assert_eq!(unescaped(told.as_bytes()), meant.as_bytes());
        }
    }

    #[test]
    fn what_is_mounted_is_found() {
        assert_eq!(
            mounted_at(Path::new("/proc")).map(|mount| mount.kind),
            Some("proc".to_owned())
        );
        assert!(mounted_at(Path::new("/proc/self")).is_none());
    }

    #[test]
    fn directories_that_are_no_place_for_a_mount_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path, says: &str| {
            let line = Point::find(path, false).unwrap_err();
            assert!(line.contains(says) && !line.contains('\n'), "{line}");
        };
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        refused(&folder.path().join("none"), "mkdir");
        refused(&file, "not a directory");
        refused(&file.join("below"), "is a file");
        refused(folder.path(), "not empty");
        refused(Path::new("/"), "another directory");
        refused(Path::new("/proc"), "mounted at");
        assert!(Point::find(folder.path(), true).is_ok());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(
            Point::find(folder.path(), false).unwrap().path(),
            folder.path().canonicalize().unwrap()
        );
    }
}
