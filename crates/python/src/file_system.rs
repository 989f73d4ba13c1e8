//! What has a path: files to open, names, directories, attributes.

use crate::arguments::{Buffer, PathArgument};
use crate::attributes::{self, follow_flag, subject};
use crate::errors::{Refusal, of_end};
use crate::file::OpenFile;
use crate::session::Session;
use arckfs::{At, ConnectOptions, Errno, FileSystem as Arck, Handle, NoFileSystem, masked};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are read at once, without a look at how large the file is.
const AT_ONCE: usize = 64 << 10;
/// A dentry: its name, its type (`DT_*`) and its inode number.
type Listed = (OsString, u8, u64);

thread_local! {
    /// What is read at once goes here first: how large the object of Python's is to be is known after.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A session on a pool: what `arck.FileSystem` is made of.
#[pyclass(frozen, subclass, module = "arck._arck")]
pub struct FileSystem {
    session: Arc<Session>,
}

/// What was read of a file: all, which is in the scratch memory, or it is larger, and open.
enum Read {
    All(usize),
    Open(Handle, &'static arck_libfs_kit::Session),
}

/// Opens what is no directory.
fn open(arck: &Arck, path: &[u8], flags: i32, mode: u32) -> Result<Handle, Refusal> {
    let mode = match flags & libc::O_CREAT {
        0 => 0,
        _ => masked(mode),
    };
    let handle = arck.open(At::Root, path, flags | libc::O_CLOEXEC, mode)?;
    let looked = if flags & libc::O_ACCMODE == libc::O_RDONLY {
        let attributes = arck.stat_handle(handle);
        attributes.and_then(|attributes| match attributes.mode & libc::S_IFMT {
            libc::S_IFDIR => Err(Errno::ISDIR),
            _ => Ok(()),
        })
    } else if flags & libc::O_APPEND != 0 {
        arck.seek(handle, 0, libc::SEEK_END).map(drop)
    } else {
        Ok(())
    };
    if looked.is_err() {
        arck.close(handle);
    }
    looked?;
    Ok(handle)
}

/// Writes all of it. ENOSPC and the like.
fn write_all(arck: &Arck, handle: Handle, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = arck.write(handle, bytes, None)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

impl FileSystem {
    /// For what is opened in it.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Runs what is done with one path, without Python's lock.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        path: &PathArgument,
        work: impl FnOnce(&Arck, &[u8]) -> Result<T, Refusal> + Send,
    ) -> PyResult<T> {
        let done = self.session.run(py, |arck| work(arck, path.inside()?));
        done.map_err(|refusal: Refusal| refusal.of(&path.given))
    }

    /// The same with two paths.
    fn run_two<T: Send>(
        &self,
        py: Python<'_>,
        [from, to]: [&PathArgument; 2],
        work: impl FnOnce(&Arck, &[u8], &[u8]) -> Result<T, Refusal> + Send,
    ) -> PyResult<T> {
        let done = self
            .session
            .run(py, |arck| work(arck, from.inside()?, to.inside()?));
        done.map_err(|refusal: Refusal| refusal.of_two(&from.given, &to.given))
    }
}

#[pymethods]
impl FileSystem {
    #[new]
    fn new(
        py: Python<'_>,
        pool: PathBuf,
        group: Vec<u8>,
        wait: f64,
        fs: &str,
    ) -> PyResult<FileSystem> {
        let patience = Duration::try_from_secs_f64(wait)
            .map_err(|_| PyValueError::new_err("wait is a number of seconds"))?;
        if group.len() > 64 {
            return Err(PyValueError::new_err(
                "the name of a group has 64 bytes at most",
            ));
        }
        let resolver = fs.parse();
        let resolver =
            resolver.map_err(|error: NoFileSystem| PyValueError::new_err(error.to_string()))?;
        // Where `arck run` shows a pool: absolute symbolic links below that stay inside.
        let mount = std::env::var_os("ARCK_MOUNT").unwrap_or_else(|| "/arck".into());
        let options = ConnectOptions {
            pool,
            mount: mount.into_vec(),
            group,
            resolver,
        };
        let session = Arc::new(Session::open(py, options, patience)?);
        Ok(FileSystem { session })
    }

    /// The pool's directory.
    #[getter]
    fn pool(&self) -> PathBuf {
        self.session.options().pool.clone()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.session.is_closed()
    }

    /// Ends the session.
    fn _end(&self, py: Python<'_>) -> PyResult<()> {
        of_end(py.detach(|| self.session.close()))
    }

    fn _open(
        &self,
        py: Python<'_>,
        path: PathArgument,
        flags: i32,
        mode: u32,
    ) -> PyResult<OpenFile> {
        let (handle, of) = self.run(py, &path, |arck, inside| {
            Ok((open(arck, inside, flags, mode)?, arck.session()))
        })?;
        let session = Arc::clone(&self.session);
        Ok(OpenFile::new(session, of, handle, path.given))
    }

    /// read_bytes(path)
    /// --
    ///
    /// All that a file holds, by one call.
    fn read_bytes<'py>(
        &self,
        py: Python<'py>,
        path: PathArgument,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let read = self.run(py, &path, |arck, inside| {
            let handle = arck.open(At::Root, inside, libc::O_RDONLY, 0)?;
            let read = SCRATCH.with_borrow_mut(|scratch| {
                scratch.resize(AT_ONCE, 0);
                arck.read(handle, scratch, Some(0))
            });
            if let Ok(AT_ONCE) = read {
                return Ok(Read::Open(handle, arck.session()));
            }
            arck.close(handle);
            Ok(Read::All(read?))
        })?;
        match read {
            Read::All(length) => {
                Ok(SCRATCH.with_borrow(|scratch| PyBytes::new(py, &scratch[..length])))
            }
            Read::Open(handle, of) => {
                let session = Arc::clone(&self.session);
                OpenFile::new(session, of, handle, path.given).readall(py)
            }
        }
    }

    /// write_bytes(path, data)
    /// --
    ///
    /// Makes a file hold just these bytes, by one call; gives how many.
    fn write_bytes(
        &self,
        py: Python<'_>,
        path: PathArgument,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let buffer = Buffer::to_read(data)?;
        let bytes = buffer.bytes();
        self.run(py, &path, |arck, inside| {
            let flags = libc::O_WRONLY | libc::O_TRUNC;
            // What is there already takes no look at the umask.
            let handle = match arck.open(At::Root, inside, flags, 0) {
                Err(arckfs::Failure::Errno(Errno::NOENT)) => {
                    open(arck, inside, flags | libc::O_CREAT, 0o666)?
                }
                handle => handle?,
            };
            let written = write_all(arck, handle, bytes);
            arck.close(handle);
            written?;
            Ok(bytes.len())
        })
    }

    fn _status<'py>(
        &self,
        py: Python<'py>,
        path: PathArgument,
        follow: bool,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let (attributes, device) = self.run(py, &path, |arck, inside| {
            let attributes = arck.stat(At::Root, inside, follow_flag(follow))?;
            Ok((attributes, arck.pool_identity()[0]))
        })?;
        attributes::status(py, &attributes, device)
    }

    /// The type and permission bits of what a path leads to; 0 if that is nothing.
    fn _mode(&self, py: Python<'_>, path: PathArgument, follow: bool) -> PyResult<u32> {
        self.run(py, &path, |arck, inside| {
            match arck.stat(At::Root, inside, follow_flag(follow)) {
                Ok(attributes) => Ok(attributes.mode),
                Err(arckfs::Failure::Errno(
                    Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::BADF,
                )) => Ok(0),
                Err(failure) => Err(failure.into()),
            }
        })
    }

    fn _list(&self, py: Python<'_>, path: PathArgument) -> PyResult<Vec<Listed>> {
        let listed = self.run(py, &path, |arck, inside| Ok(arck.list(At::Root, inside)?))?;
        let listed = listed.into_iter();
        Ok(listed
            .map(|one| (OsString::from_vec(one.name), one.kind, one.inode))
            .collect())
    }

    /// access(path, mode)
    /// --
    ///
    /// Whether the process may do that, as os.access: os.R_OK, os.W_OK, os.X_OK, os.F_OK.
    fn access(&self, py: Python<'_>, path: PathArgument, mode: i32) -> PyResult<bool> {
        self.run(py, &path, |arck, inside| {
            match arck.access(At::Root, inside, mode, 0) {
                Ok(()) => Ok(true),
                Err(arckfs::Failure::Errno(_)) => Ok(false),
                Err(outside) => Err(outside.into()),
            }
        })
    }

    /// mkdir(path, mode=0o777)
    /// --
    ///
    /// Makes a directory, as os.mkdir.
    #[pyo3(signature = (path, mode = 0o777))]
    fn mkdir(&self, py: Python<'_>, path: PathArgument, mode: u32) -> PyResult<()> {
        self.run(py, &path, |arck, inside| {
            Ok(arck.make_directory(At::Root, inside, masked(mode))?)
        })
    }

    /// rmdir(path)
    /// --
    ///
    /// Removes an empty directory, as os.rmdir.
    fn rmdir(&self, py: Python<'_>, path: PathArgument) -> PyResult<()> {
        self.run(py, &path, |arck, inside| {
            Ok(arck.unlink(At::Root, inside, libc::AT_REMOVEDIR)?)
        })
    }

    /// remove(path)
    /// --
    ///
    /// Removes a file, as os.remove.
    fn remove(&self, py: Python<'_>, path: PathArgument) -> PyResult<()> {
        self.run(py, &path, |arck, inside| {
            Ok(arck.unlink(At::Root, inside, 0)?)
        })
    }

    /// rename(source, target)
    /// --
    ///
    /// Renames a file or a directory, as os.rename: one atomic step, replacing a file that is there.
    fn rename(&self, py: Python<'_>, source: PathArgument, target: PathArgument) -> PyResult<()> {
        self.run_two(py, [&source, &target], |arck, from, to| {
            Ok(arck.rename(At::Root, from, At::Root, to, 0)?)
        })
    }

    /// link(source, target)
    /// --
    ///
    /// Gives a file another name, as os.link.
    fn link(&self, py: Python<'_>, source: PathArgument, target: PathArgument) -> PyResult<()> {
        self.run_two(py, [&source, &target], |arck, from, to| {
            Ok(arck.link(At::Root, from, At::Root, to, 0)?)
        })
    }

    /// symlink(target, path)
    /// --
    ///
    /// Makes a symbolic link at the path, as os.symlink.
    fn symlink(&self, py: Python<'_>, target: PathArgument, path: PathArgument) -> PyResult<()> {
        let done = self.session.run(py, |arck| {
            Ok::<_, Refusal>(arck.symlink(&target.given, At::Root, path.inside()?)?)
        });
        done.map_err(|refusal| refusal.of_two(&target.given, &path.given))
    }

    /// readlink(path)
    /// --
    ///
    /// Where a symbolic link leads, as os.readlink.
    fn readlink(&self, py: Python<'_>, path: PathArgument) -> PyResult<OsString> {
        self.run(py, &path, |arck, inside| {
            Ok(OsString::from_vec(arck.link_target(At::Root, inside)?))
        })
    }

    /// truncate(path, length)
    /// --
    ///
    /// Cuts or lengthens a file, as os.truncate.
    fn truncate(&self, py: Python<'_>, path: PathArgument, length: i64) -> PyResult<()> {
        self.run(py, &path, |arck, inside| {
            let length = u64::try_from(length).map_err(|_| Errno::INVAL)?;
            Ok(arck.truncate(At::Root, inside, length)?)
        })
    }

    /// chmod(path, mode)
    /// --
    ///
    /// Changes permission bits, as os.chmod.
    fn chmod(&self, py: Python<'_>, path: PathArgument, mode: u32) -> PyResult<()> {
        self.run(py, &path, |arck, inside| {
            Ok(arck.change_mode(At::Root, inside, mode & 0o7777, 0)?)
        })
    }

    /// chown(path, uid, gid, *, follow_symlinks=True)
    /// --
    ///
    /// Changes owner and group, as os.chown; -1 leaves one as it is.
    #[pyo3(signature = (path, uid, gid, *, follow_symlinks = true))]
    fn chown(
        &self,
        py: Python<'_>,
        path: PathArgument,
        uid: i64,
        gid: i64,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.run(py, &path, |arck, inside| {
            let id = |id: i64| match id {
                -1 => Ok(u32::MAX),
                id => u32::try_from(id).map_err(|_| Errno::INVAL),
            };
            let flags = follow_flag(follow_symlinks);
            Ok(arck.change_owner(At::Root, inside, id(uid)?, id(gid)?, flags)?)
        })
    }

    /// Sets times, in nanoseconds; `None`: now.
    fn _set_times(
        &self,
        py: Python<'_>,
        path: PathArgument,
        times: Option<(i128, i128)>,
        follow: bool,
    ) -> PyResult<()> {
        self.run(py, &path, |arck, inside| {
            let (accessed, modified) = match times {
                None => (arckfs::SetTime::Now, arckfs::SetTime::Now),
                Some((accessed, modified)) => {
                    (attributes::time(accessed)?, attributes::time(modified)?)
                }
            };
            let flags = follow_flag(follow);
            Ok(arck.set_times(At::Root, inside, accessed, modified, flags)?)
        })
    }

    /// Pages, free ones, inode numbers, free ones, and the pool's number.
    fn _statistics(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64, u64)> {
        let statistics = self.session.run(py, Arck::statistics);
        let statistics = statistics.map_err(Refusal::raised)?;
        Ok((
            statistics.pages,
            statistics.pages_free,
            statistics.inodes,
            statistics.inodes_free,
            statistics.id,
        ))
    }

    /// getxattr(path, attribute, *, follow_symlinks=True)
    /// --
    ///
    /// The value of an extended attribute, as os.getxattr.
    #[pyo3(signature = (path, attribute, *, follow_symlinks = true))]
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: PathArgument,
        attribute: PathArgument,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.run(py, &path, |arck, inside| {
            Ok(arck.extended_value(subject(inside, follow_symlinks), &attribute.given)?)
        })?;
        Ok(PyBytes::new(py, &value))
    }

    /// setxattr(path, attribute, value, flags=0, *, follow_symlinks=True)
    /// --
    ///
    /// Sets an extended attribute, as os.setxattr.
    #[pyo3(signature = (path, attribute, value, flags = 0, *, follow_symlinks = true))]
    fn setxattr(
        &self,
        py: Python<'_>,
        path: PathArgument,
        attribute: PathArgument,
        value: &Bound<'_, PyAny>,
        flags: i32,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let buffer = Buffer::to_read(value)?;
        let value = buffer.bytes();
        self.run(py, &path, |arck, inside| {
            let subject = subject(inside, follow_symlinks);
            Ok(arck.set_extended(subject, &attribute.given, value, flags)?)
        })
    }

    /// listxattr(path, *, follow_symlinks=True)
    /// --
    ///
    /// Names of extended attributes, as os.listxattr.
    #[pyo3(signature = (path, *, follow_symlinks = true))]
    fn listxattr(
        &self,
        py: Python<'_>,
        path: PathArgument,
        follow_symlinks: bool,
    ) -> PyResult<Vec<OsString>> {
        self.run(py, &path, |arck, inside| {
            let names = arck.extended_names(subject(inside, follow_symlinks))?;
            Ok(names.into_iter().map(OsString::from_vec).collect())
        })
    }

    /// removexattr(path, attribute, *, follow_symlinks=True)
    /// --
    ///
    /// Takes an extended attribute away, as os.removexattr.
    #[pyo3(signature = (path, attribute, *, follow_symlinks = true))]
    fn removexattr(
        &self,
        py: Python<'_>,
        path: PathArgument,
        attribute: PathArgument,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.run(py, &path, |arck, inside| {
            let subject = subject(inside, follow_symlinks);
            Ok(arck.remove_extended(subject, &attribute.given)?)
        })
    }
}
