//! Holding the place where the pool is seen, for programs that the library does not reach: to them
//! the path is the host's, and what they made there would be lost to the pool and to its user.
//!
//! The mount point is made, if it is missing and may be made: an empty directory that nobody may write.
//! That stops users other than root. Root passes by permission bits, so root's command gets a mount
//! namespace of its own besides, in which an empty file system that can only be read lies on it.
//!
//! A user namespace, by which other users could have the same, is not made: in it, set-user-ID programs
//! (`sudo`, `su`) give no rights, the user's further groups cannot be given to files, and who looks
//! at the ids of others sees none. Where such a user could write the mount point itself, the report says so.
//!
//! # Invariant
//! Mounts of the host reach the command, as they come and go; what it mounts itself stays its own.

use super::plain;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Mode of a mount point.
const NOBODY_WRITES: u32 = 0o555;

/// What programs that are not reached find at the mount point.
pub enum Held {
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

/// For what this thread starts from here on.
pub fn hold(mount: &Path) -> Held {
    if !rustix::process::geteuid().is_root() {
        return without_namespace(mount);
    }
    match in_own_namespace(mount) {
        Ok(()) => Held::Yes,
        Err(error) => Held::No(format!("root's own mount is refused: {}", plain(&error))),
    }
}

/// Makes the mount point if it is missing. Whether there is a directory then.
fn make(mount: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(NOBODY_WRITES).create(mount) {
        Ok(()) => {
            // Whatever is masked.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(NOBODY_WRITES);
            std::fs::set_permissions(mount, mode)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match std::fs::symlink_metadata(mount)?.is_dir() {
                true => Ok(()),
                false => Err(Errno::NOTDIR.into()),
            }
        }
        Err(error) => Err(error),
    }
}

fn without_namespace(mount: &Path) -> Held {
    // What this user may not make, his programs may not either.
    if make(mount).is_err() && std::fs::symlink_metadata(mount).is_err() {
        return Held::Yes;
    }
    let access = rustix::fs::Access::WRITE_OK;
    match rustix::fs::access(mount, access) {
        Ok(()) => Held::No("it exists, and the user may write it".to_string()),
        Err(_) => Held::Yes,
    }
}

fn in_own_namespace(mount: &Path) -> io::Result<()> {
    let root = c"/";
    let path = CString::new(mount.as_os_str().as_bytes())?;
    // SAFETY: a number. Threads that are there already stay where they are.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    mount_at(c"none", root, None, libc::MS_REC | libc::MS_SLAVE)?;
    make(mount)?;
    let closed = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let options = c"mode=0555,size=4k,nr_inodes=2";
    mount_at(c"arck", &path, Some((c"tmpfs", options)), closed)
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
