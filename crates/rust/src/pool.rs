//! Pools, and how they are reached.

use crate::files::Files;
use crate::session::Session;
use crate::{keyvalue, log};
use arckfs::{ConnectOptions, Resolver};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Which file system a program has: they differ in how they find where paths lead, and in nothing that is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum FileSystemKind {
    /// ArckFS: for every program.
    #[default]
    ArckFs,
    /// FPFS: for deep trees of many directories.
    FpFs,
}

/// A pool that somebody serves (`arck serve`, or an `arck run` that started this program), and how to reach it. Making one does
/// nothing; each of [`files`](Pool::files), [`store`](Pool::store) and [`log`](Pool::log) opens a session.
///
/// A session keeps its addresses to the end of the process, open or not: a process can open some 3900 of them. One is enough for
/// all threads.
///
/// ```
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// # let served = arck_test_pool::TestPool::new(32 << 20);
/// # let directory = served.path();
/// let pool = arck::Pool::new(&directory).patience(Duration::from_secs(10));
/// let files = pool.files()?;
/// files.write("greeting", "hello\n")?;
/// files.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    directory: PathBuf,
    patience: Duration,
    group: Vec<u8>,
    kind: FileSystemKind,
}

impl Pool {
    /// The pool that a directory is: no patience, no group, ArckFS.
    pub fn new(directory: impl Into<PathBuf>) -> Pool {
        Pool {
            directory: directory.into(),
            patience: Duration::ZERO,
            group: Vec::new(),
            kind: FileSystemKind::default(),
        }
    }

    /// The pool that `$ARCK_POOL` names, which `arck run` sets, with the file system that `$ARCK_FS` names.
    ///
    /// # Errors
    /// `NotFound` where it is not set, `InvalidInput` for a file system that there is not.
    pub fn from_environment() -> io::Result<Pool> {
        let pool = std::env::var_os("ARCK_POOL").filter(|pool| !pool.is_empty());
        let pool = Pool::new(pool.ok_or_else(|| {
            let text = "which pool? Set $ARCK_POOL (arck run does)";
            io::Error::new(io::ErrorKind::NotFound, text)
        })?);
        match std::env::var("ARCK_FS").as_deref() {
            Err(_) | Ok("" | "arckfs") => Ok(pool),
            Ok("fpfs") => Ok(pool.file_system(FileSystemKind::FpFs)),
            Ok(other) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("$ARCK_FS: {other} is no file system; there are: arckfs, fpfs"),
            )),
        }
    }

    /// For how long somebody is waited for who serves the pool, where nobody does.
    pub fn patience(mut self, patience: Duration) -> Pool {
        self.patience = patience;
        self
    }

    /// The trust group to be one of, by its name of 1 to 64 bytes: programs of one user that name the same have one session
    /// together, and trust each other. For [`files`](Pool::files) alone; that of an `arck run` stands in `$ARCK_GROUP`.
    pub fn group(mut self, name: impl AsRef<[u8]>) -> Pool {
        self.group = name.as_ref().to_vec();
        self
    }

    /// Which file system [`files`](Pool::files) has. A group has one.
    pub fn file_system(mut self, kind: FileSystemKind) -> Pool {
        self.kind = kind;
        self
    }

    /// The pool's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Opens a session for files, directories and maps. Blocks until the controller answers.
    ///
    /// # Errors
    /// `NotFound`: there is no pool. `ConnectionRefused`: nobody has served it for as long as [`patience`](Pool::patience) says.
    /// `PermissionDenied`. `ResourceBusy` (EBUSY): the group has another file system. `InvalidInput`: the group's name is too long.
    pub fn files(&self) -> io::Result<Files> {
        if self.group.len() > 64 {
            let text = "the name of a group has 64 bytes at most";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // Where `arck run` shows a pool: absolute symbolic links below that stay inside.
        let mount = std::env::var_os("ARCK_MOUNT").unwrap_or_else(|| "/arck".into());
        let options = ConnectOptions {
            pool: self.directory.clone(),
            mount: mount.into_vec(),
            group: self.group.clone(),
            resolver: match self.kind {
                FileSystemKind::ArckFs => Resolver::Tree,
                FileSystemKind::FpFs => Resolver::FullPaths,
            },
        };
        let session = Session::open(options, self.patience)?;
        Ok(Files::new(Arc::new(session)))
    }

    /// Opens the store that a directory is, by its path from the pool's root, and makes that if it is not there. Blocks until the
    /// controller answers. For other options: [`keyvalue::Store::open`].
    ///
    /// # Errors
    /// As [`files`](Pool::files); ENOTDIR, EACCES, ENOSPC.
    pub fn store(&self, directory: &str) -> Result<keyvalue::Store, keyvalue::Error> {
        let mut options = keyvalue::Options::new(&self.directory);
        (options.make, options.patience) = (true, self.patience);
        keyvalue::Store::open(options, directory.trim_start_matches('/'))
    }

    /// Opens the log that a directory is, by its path from the pool's root, and makes that if it is not there. Blocks until the
    /// controller answers. For other options, and for a group, whose members follow each other without messages:
    /// [`log::Log::open`].
    ///
    /// # Errors
    /// As [`files`](Pool::files); ENOTDIR, EACCES, ENOSPC; EBADMSG for a directory that is no log.
    pub fn log(&self, directory: &str) -> Result<log::Log, log::Error> {
        let mut options = log::Options::new(&self.directory);
        (options.make, options.patience) = (true, self.patience);
        log::Log::open(options, directory.trim_start_matches('/'))
    }
}
