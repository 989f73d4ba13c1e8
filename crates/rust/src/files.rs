//! What has a path.

use crate::entries::ReadDir;
use crate::error::{of_errno, told};
use crate::file::File;
use crate::metadata::{FileType, Metadata, Space};
use crate::open::OpenOptions;
use crate::paths::inside;
use crate::session::Session;
use arckfs::{At, Errno, Failure, SetTime, Subject, Timestamp, masked};
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Bytes of a page of a pool.
const PAGE: u64 = 4096;

/// The files of a pool, in a session of this process ([`Pool::files`](crate::Pool::files)). Clones have the same session, which ends
/// with the last of them and of what they have opened. All threads may use it.
///
/// Methods are those of `std::fs`. Paths are those of the pool: `a` and `/a` are the same, there is no working directory, and a path that
/// leads out of the pool (`..` above the root, an absolute symbolic link to elsewhere) is EXDEV. Absolute links below
/// `$ARCK_MOUNT` (`/arck`, if it is not set) stay inside.
///
/// What changes names, permissions, times or attributes is durable when it returns, as a whole, and after a crash it is there as a whole
/// or not at all. For bytes of files see [`File`]. Calls block only for the controller: where another session has changed, or
/// changes, the same file or directory, and where this one needs room.
///
/// # Errors
/// Of all methods: `NotFound`, `NotADirectory`, `PermissionDenied`, `FilesystemLoop`, `InvalidFilename`, as of `std::fs`;
/// `StorageFull` where something is made; EIO: the session is lost, or what it did was refused; EXDEV as above; `ConnectionRefused` and the
/// like where the controller is needed and has been gone for `$ARCK_WAIT` seconds (30).
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let served = arck_test_pool::TestPool::new(32 << 20);
/// # let files = arck::Pool::new(served.path()).files()?;
/// files.create_dir_all("projects/arck")?;
/// files.write("projects/arck/README", "read me\n")?;
/// files.rename("projects/arck/README", "projects/arck/README.md")?;
/// files.symlink("README.md", "projects/arck/INDEX")?;
///
/// let mut names: Vec<_> = files.read_dir("projects/arck")?.map(|entry| entry.file_name()).collect();
/// names.sort();
/// assert_eq!(names, ["INDEX", "README.md"]);
/// assert_eq!(files.read_to_string("projects/arck/INDEX")?, "read me\n");
/// assert!(files.symlink_metadata("projects/arck/INDEX")?.is_symlink());
///
/// files.set_xattr("projects/arck/README.md", "user.language", b"en")?;
/// files.remove_dir_all("projects")?;
/// assert!(!files.try_exists("projects")?);
/// # files.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Files {
    pub(crate) session: Arc<Session>,
}

/// A time as a call is to set it; as it is where there is none.
fn set_time(time: Option<SystemTime>) -> SetTime {
    let Some(time) = time else {
        return SetTime::Omit;
    };
    let (seconds, nanoseconds) = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-(before.as_secs() as i64), 0),
                part => (-(before.as_secs() as i64) - 1, 1_000_000_000 - part),
            }
        }
    };
    SetTime::At(Timestamp {
        seconds,
        nanoseconds,
    })
}

impl Files {
    pub(crate) fn new(session: Arc<Session>) -> Files {
        Files { session }
    }

    /// Runs what is done with one path.
    fn run<T>(
        &self,
        path: impl AsRef<Path>,
        work: impl FnOnce(&arckfs::FileSystem, &[u8]) -> Result<T, Failure>,
    ) -> io::Result<T> {
        let path = inside(path.as_ref())?;
        self.session.run(|file_system| work(file_system, path))
    }

    // ---- contents

    /// Opens a file to read. Errors: as [`OpenOptions::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.options().read(true).open(path)
    }

    /// Opens a file to write, makes it if it is not there, and cuts it to no bytes if it is. Errors: as [`OpenOptions::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = self.options();
        options.write(true).create(true).truncate(true).open(path)
    }

    /// For opening a file otherwise.
    pub fn options(&self) -> OpenOptions<'_> {
        OpenOptions::new(&self.session)
    }

    /// All that a file holds.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut file = self.open(path)?;
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        let mut bytes = Vec::with_capacity(size);
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The same as text. Errors: `InvalidData` where it is no UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let bytes = self.read(path)?;
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Makes a file hold just these bytes: it is cut, or made, and then written; a crash may come between.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
        self.create(path)?.write_all(contents.as_ref())
    }

    /// Copies a file's contents and permission bits; gives how many bytes.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
        let mut source = self.open(from)?;
        let metadata = source.metadata()?;
        if !metadata.is_file() {
            return Err(told(Errno::INVAL, "what is copied is no regular file"));
        }
        let mut options = self.options();
        options.write(true).create(true).truncate(true);
        let mut target = options.mode(metadata.mode() & 0o777).open(to)?;
        let copied = io::copy(&mut source, &mut target)?;
        target.set_permissions(&metadata.permissions())?;
        Ok(copied)
    }

    // ---- status

    /// What a file is like; of what a symbolic link leads to.
    pub fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        let told = self.run(path, |fs, path| fs.stat(At::Root, path, 0));
        told.map(Metadata)
    }

    /// The same of a symbolic link itself.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        let told = self.run(path, |fs, path| fs.stat(At::Root, path, flags));
        told.map(Metadata)
    }

    /// Whether a path leads to something.
    pub fn try_exists(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sets permission bits. Errors: EPERM for who is not the file's owner.
    pub fn set_permissions(
        &self,
        path: impl AsRef<Path>,
        permissions: &Permissions,
    ) -> io::Result<()> {
        let mode = permissions.mode() & 0o7777;
        self.run(path, |fs, path| fs.change_mode(At::Root, path, mode, 0))
    }

    /// Sets user and group; `None` leaves one as it is. Of a symbolic link, what it leads to. Errors: EPERM.
    pub fn set_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> io::Result<()> {
        let (uid, gid) = (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX));
        self.run(path, |fs, path| {
            fs.change_owner(At::Root, path, uid, gid, 0)
        })
    }

    /// Sets the times of the last access and change, to nanoseconds; `None` leaves one as it is. Errors: EPERM.
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> io::Result<()> {
        let (accessed, modified) = (set_time(accessed), set_time(modified));
        self.run(path, |fs, path| {
            fs.set_times(At::Root, path, accessed, modified, 0)
        })
    }

    /// Room of the pool.
    pub fn space(&self) -> io::Result<Space> {
        let told = self.session.run(|fs| Ok(fs.statistics()?))?;
        Ok(Space {
            bytes: told.pages * PAGE,
            bytes_free: told.pages_free * PAGE,
            inodes: told.inodes,
            inodes_free: told.inodes_free,
        })
    }

    // ---- directories and names

    /// The names in a directory, as they are now.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> io::Result<ReadDir> {
        let path = path.as_ref();
        let listed = self.run(path, |fs, inside| fs.list(At::Root, inside))?;
        Ok(ReadDir::new(Arc::clone(&self.session), path, listed))
    }

    /// Makes a directory, with permission bits 0777 without the umask's. Errors: `AlreadyExists`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mode = masked(0o777);
        self.run(path, |fs, path| fs.make_directory(At::Root, path, mode))
    }

    /// Makes a directory and those above it that are not there; nothing if all are. Several steps: a crash may come between.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let made = self.create_dir(path);
        match made {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = path.parent().filter(|above| !above.as_os_str().is_empty());
                self.create_dir_all(above.ok_or(error)?)?;
                self.created(path, self.create_dir(path))
            }
            made => self.created(path, made),
        }
    }

    /// A directory that is there is as good as one that was made.
    fn created(&self, path: &Path, made: io::Result<()>) -> io::Result<()> {
        match made {
            Err(_) if self.metadata(path).is_ok_and(|found| found.is_dir()) => Ok(()),
            made => made,
        }
    }

    /// Removes a directory that is empty. Errors: `DirectoryNotEmpty`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.run(path, |fs, path| {
            fs.unlink(At::Root, path, libc::AT_REMOVEDIR)
        })
    }

    /// Removes a directory and all beneath it; symbolic links themselves. Several steps, of which an error leaves what is left.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        match self.symlink_metadata(path)?.file_type() {
            FileType::Directory => {}
            FileType::Symlink => return self.remove_file(path),
            _ => return Err(of_errno(Errno::NOTDIR)),
        }
        for entry in self.read_dir(path)? {
            let removed = match entry.file_type().is_dir() {
                true => self.remove_dir_all(entry.path()),
                false => self.remove_file(entry.path()),
            };
            match removed {
                // Somebody else was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        self.remove_dir(path)
    }

    /// Takes a name away, of what is no directory; who has the file open keeps it. Errors: `IsADirectory`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.run(path, |fs, path| fs.unlink(At::Root, path, 0))
    }

    /// Gives what has a name another one, which it takes from what had it: in one step, also for a crash. Errors: `DirectoryNotEmpty`,
    /// `IsADirectory`, `NotADirectory`; `InvalidInput`: a directory beneath itself.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let (from, to) = (inside(from.as_ref())?, inside(to.as_ref())?);
        self.session
            .run(|fs| fs.rename(At::Root, from, At::Root, to, 0))
    }

    /// Gives a file one more name; of a symbolic link, itself. Errors: `AlreadyExists`, EPERM (a directory), `TooManyLinks`.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        let (original, link) = (inside(original.as_ref())?, inside(link.as_ref())?);
        self.session
            .run(|fs| fs.link(At::Root, original, At::Root, link, 0))
    }

    /// Makes a symbolic link, whose target is up to 4095 bytes and need not be there. Errors: `AlreadyExists`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        let target = target.as_ref().as_os_str().as_bytes();
        self.run(link, |fs, link| fs.symlink(target, At::Root, link))
    }

    /// The target of a symbolic link. Errors: `InvalidInput`: it is none.
    pub fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let target = self.run(path, |fs, path| fs.link_target(At::Root, path))?;
        Ok(OsString::from_vec(target).into())
    }

    // ---- extended attributes

    /// The value of an extended attribute; of what a symbolic link leads to. Errors: ENODATA: it has none of that name. `Unsupported`:
    /// names begin with `user.`.
    pub fn get_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> io::Result<Vec<u8>> {
        let name = name.as_ref().as_bytes();
        self.run(path, |fs, path| {
            fs.extended_value(Subject::Path(At::Root, path, 0), name)
        })
    }

    /// Sets an extended attribute, whether it is there or not. Errors: `Unsupported` as of [`get_xattr`](Files::get_xattr); ENOSPC, E2BIG or ERANGE: all
    /// attributes of a file have one page together.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
    ) -> io::Result<()> {
        let name = name.as_ref().as_bytes();
        self.run(path, |fs, path| {
            fs.set_extended(Subject::Path(At::Root, path, 0), name, value, 0)
        })
    }

    /// Names of extended attributes, in no order.
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
        let names = self.run(path, |fs, path| {
            fs.extended_names(Subject::Path(At::Root, path, 0))
        })?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Takes an extended attribute away. Errors: ENODATA.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = name.as_ref().as_bytes();
        self.run(path, |fs, path| {
            fs.remove_extended(Subject::Path(At::Root, path, 0), name)
        })
    }

    // ---- the session

    /// The pool's directory.
    pub fn pool(&self) -> &Path {
        self.session.pool()
    }

    /// Ends the session: all that was done is verified and folded when this returns, or it says why not. What has returned is durable without it.
    /// Blocks.
    ///
    /// # Errors
    /// `ResourceBusy`: clones, or files, maps and directories of it are in use; the session ends with the last of these. EIO:
    /// something was refused. Where the controller is gone nothing is lost: the next one folds what it finds.
    pub fn close(self) -> io::Result<()> {
        match Arc::into_inner(self.session) {
            Some(session) => session.close(),
            None => Err(told(
                Errno::BUSY,
                "files, maps or clones of these files are in use; drop them first",
            )),
        }
    }
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("pool", &self.pool()).finish()
    }
}
