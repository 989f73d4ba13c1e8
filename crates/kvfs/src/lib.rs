//! KVFS: small files as values, for programs that have many (Trio, section 5).
//!
//! A [`Store`] is a directory of a pool: its keys are the names of files there, its values what these
//! hold, 32 KiB at most. They are the files of everybody else at the same time: what is set here other
//! sessions read, and the reverse. There are no descriptors and no offsets, a value is read and set as
//! a whole, and that is what makes it fast.
//!
//! A value is never changed: to set one creates a file that has its contents already, by a record
//! that takes the name from the file before. So
//!
//! * a crash leaves the value before or the one after, and so does a fold, at whatever moment. What has
//!   returned is durable (in a `paged` pool it is not, and nothing here makes it so: see `docs/choosing.md`). The changes
//!   of a [`Batch`] are all there, or none of them is;
//! * who has the file before open, or has another name for it, keeps that; the file after has its
//!   permission bits, and the setter as its owner, and no extended attributes;
//! * reading takes no lock: what was copied counts if the file had not ended by then.
//!
//! # Invariants
//! * The index of a value is of fixed size: eight pages at most, of which one word tells, or one line of a
//!   page ([`Contents`](arck_libfs_kit::names::together::Contents)).
//! * There is one lock: that of the directory, which the kit divides by names once threads wait for it. It
//!   protects names in this session: the delta's tail and the overlay. Files have none, and nothing is stored
//!   under it but records and branches.
//! * What a session may do the controller decides. [`Store`] checks no more than what would have it lose
//!   what it has set: the sticky bit.

mod changes;

pub use changes::Batch;

use arck_libfs_kit::engine::{Alone, Attempt, Context, Engine, Need, Way};
use arck_libfs_kit::format::{FileKind, NAME_MAX, PAGE_SIZE};
use arck_libfs_kit::names::creations::Creation;
use arck_libfs_kit::per_process::PerProcess;
use arck_libfs_kit::session::SessionOptions;
use arck_libfs_kit::views::{Directory, File};
use arck_libfs_kit::{ConnectError, Session};
use rustix::io::Errno;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Bytes of the longest value.
pub const VALUE_MAX: usize = 8 * PAGE_SIZE as usize;

/// Why it was not done. `Display` is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no session: no pool, or nobody who serves it.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// EINVAL or ENAMETOOLONG: keys are names of files, of 1 to 255 bytes.
    #[error("{key:?} is no key: {why}")]
    Key {
        /// What was given.
        key: String,
        /// What it must not be.
        why: &'static str,
        /// Its number.
        errno: Errno,
    },
    /// EFBIG.
    #[error(
        "{key}: values have {VALUE_MAX} bytes at most; read and write larger ones as files (arck run)"
    )]
    TooLarge {
        /// Whose value it was to be, or is.
        key: String,
    },
    /// EISDIR.
    #[error("{key} is a directory: open a store of it, or remove it with `arck run -- rmdir`")]
    IsDirectory {
        /// Its name.
        key: String,
    },
    /// The system or the controller refused: ENOSPC, EACCES, EPERM (the directory is sticky), ENOENT (the directory is gone), EIO and
    /// others.
    #[error("{what}: {errno}")]
    System {
        /// The key, or the directory.
        what: String,
        /// Why.
        errno: Errno,
    },
}

/// With the kind that its number of errno has, and this inside.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        let kind = std::io::Error::from_raw_os_error(error.errno().raw_os_error()).kind();
        std::io::Error::new(kind, error)
    }
}

impl Error {
    /// The number of the error, as errno has it.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Connect(error) => error.errno(),
            Error::Key { errno, .. } | Error::System { errno, .. } => *errno,
            Error::TooLarge { .. } => Errno::FBIG,
            Error::IsDirectory { .. } => Errno::ISDIR,
        }
    }

    /// Of what was done with a key.
    fn of(key: &[u8], errno: Errno) -> Error {
        let key = String::from_utf8_lossy(key).into_owned();
        match errno {
            Errno::FBIG => Error::TooLarge { key },
            Errno::ISDIR => Error::IsDirectory { key },
            errno => Error::System { what: key, errno },
        }
    }
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The pool's directory.
    pub pool: PathBuf,
    /// Whether directories are made that are not there.
    pub make: bool,
    /// Permission bits of files of new keys; those of directories follow.
    pub mode: u32,
    /// How long to wait for a controller where nobody serves the pool.
    pub patience: Duration,
}

impl Options {
    /// Of a pool: nothing made, mode 0644, and no patience.
    pub fn new(pool: impl Into<PathBuf>) -> Options {
        Options {
            pool: pool.into(),
            make: false,
            mode: 0o644,
            patience: Duration::ZERO,
        }
    }
}

/// A directory of a pool. All threads may use it. A forked child may, too: at its first need it opens a
/// session of its own, and the directory by its path again. Dropped, it ends its session: what was set is
/// folded when that returns.
pub struct Store {
    options: Options,
    path: String,
    here: PerProcess<Here>,
}

/// What is kept of a session.
struct Here {
    /// Number and generation.
    directory: (u32, u32),
    /// Of the file of a new key.
    create: Creation<'static>,
}

fn connect(options: &Options, path: &str) -> Result<PerProcess<Here>, Error> {
    let wish = SessionOptions {
        patience: options.patience,
        ..SessionOptions::default()
    };
    let session = Session::connect_with(&options.pool, &wish)?;
    open(session, options, path).inspect_err(|_| session.end())
}

fn open(
    session: &'static Session,
    options: &Options,
    path: &str,
) -> Result<PerProcess<Here>, Error> {
    let create = Creation::file(options.mode);
    let made = options.make.then_some(Creation {
        // Who may read may search.
        mode: options.mode | (options.mode & 0o444) >> 2,
        ..create
    });
    let found = Engine::new(session, &Alone).run(Way::Names, |context| {
        let found = context.directory_at(path.as_bytes(), made)?;
        Ok((found.number(), found.generation()))
    });
    let directory = found.map_err(|errno| Error::System {
        what: format!("{}: directory {path}", options.pool.display()),
        errno,
    })?;
    Ok(PerProcess::new(session, Here { directory, create }))
}

impl Store {
    /// Opens the store that a directory is, by its path from the pool's root. Symbolic links are not
    /// followed. Blocks until the controller answers. ENOENT if there is none and none is to be made; ENOTDIR, EACCES, ENOSPC.
    pub fn open(options: Options, directory: &str) -> Result<Store, Error> {
        Ok(Store {
            here: connect(&options, directory)?,
            path: directory.to_owned(),
            options,
        })
    }

    /// The same on a session that there is, with another LibFS in it, which does not change files in place
    /// meanwhile: for tests that look at what one session has not folded.
    #[doc(hidden)]
    pub fn within(session: &'static Session, directory: &str) -> Result<Store, Error> {
        let options = Options::new("");
        Ok(Store {
            here: open(session, &options, directory)?.as_guest(),
            path: directory.to_owned(),
            options,
        })
    }

    /// Runs an operation, of `at`, on the directory, in a session of this process.
    #[inline]
    fn run<T>(
        &self,
        at: &Cell<&[u8]>,
        mut attempt: impl FnMut(&Context<'_>, &Here) -> Attempt<T>,
    ) -> Result<T, Error> {
        let here = self
            .here
            .get_or_open(|| connect(&self.options, &self.path))?;
        let ran = Engine::new(here.session, &Alone)
            .run(Way::Names, |context| attempt(context, &here.kept));
        ran.map_err(|errno| Error::of(at.get(), errno))
    }

    /// Ends the store's session of this process, as dropping it does, where others may hold references to this; says
    /// what was not folded. To be called when no thread is inside an operation: one that begins later opens
    /// another session. Blocks.
    pub fn end(&self) -> Result<(), Errno> {
        let session = self.here.last().session;
        if session.has_ended() {
            return Ok(());
        }
        let said = session.goodbye();
        session.end();
        said
    }

    /// The value of a key, if it has one. Blocks for the controller where another session has changed it. EFBIG for a file that is larger
    /// than a value, EISDIR, ELOOP for a symbolic link, EACCES, EIO.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut value = Box::new([0; VALUE_MAX]);
        let read = self.get_into(key, &mut value)?;
        Ok(read.map(|length| value[..length].to_vec()))
    }

    /// The same, into memory of the caller's; gives its length in bytes. Errors as [`get`](Store::get).
    #[inline]
    pub fn get_into(
        &self,
        key: &[u8],
        value: &mut [u8; VALUE_MAX],
    ) -> Result<Option<usize>, Error> {
        self.get_if_fits(key, value)
    }

    /// The same, into memory that may be too little for it: what is longer than that is not read, and its length is
    /// given all the same.
    #[inline]
    pub fn get_if_fits(&self, key: &[u8], value: &mut [u8]) -> Result<Option<usize>, Error> {
        check_key(key)?;
        self.run(&Cell::new(key), |context, here| {
            let directory = Directory::of(context.view(here.directory.0, here.directory.1)?)?;
            let Some(found) = context.dentry(directory, key)? else {
                return Ok(None);
            };
            is_file(found.kind)?;
            let file = File::of(context.view_of(directory, key, found)?)?;
            if file.size.load(Ordering::Acquire) <= value.len() as u64 {
                return context.read_whole(file, value).map(Some);
            }
            length(context, file).map(Some)
        })
    }

    /// Gives a key a value, of [`VALUE_MAX`] bytes at most: durable when it returns, and after a crash before that the one before or this.
    /// Blocks for the controller where another session has the directory. EFBIG, EISDIR, ENOSPC, EACCES, EPERM, EIO.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.change(&[(key, Some(value))]).map(|_| ())
    }

    /// Takes a key away; whether it was there. Durable, blocks and fails as [`set`](Store::set).
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.change(&[(key, None)])? != 0)
    }

    /// All keys, in no order, at one moment. Takes the time of a look at all names. EACCES, EIO.
    pub fn list(&self) -> Result<Vec<Vec<u8>>, Error> {
        let at = Cell::new(self.path.as_bytes());
        self.run(&at, |context, here| {
            let directory = Directory::of(context.view(here.directory.0, here.directory.1)?)?;
            let _locked = context.lock_now(directory.inode())?;
            let mut keys = Vec::new();
            context.for_each_name(directory, |_, kind, name| {
                if kind == FileKind::File {
                    keys.push(name.to_vec());
                }
            })?;
            Ok(keys)
        })
    }
}

/// How long a value is; as it was at one moment, and not that of another file. EFBIG: it is none.
#[cold]
fn length(context: &Context<'_>, file: File) -> Attempt<usize> {
    let seen = context.seen(&file);
    let size = file.size.load(Ordering::Acquire);
    fence(Ordering::Acquire);
    context.unmoved_since(&file, seen)?;
    if context.seen(&file) != seen {
        return Err(Need::Again.into());
    }
    match usize::try_from(size) {
        Ok(length) if length <= VALUE_MAX => Ok(length),
        _ => Err(Errno::FBIG.into()),
    }
}

/// That a name can be a key.
fn check_key(key: &[u8]) -> Result<(), Error> {
    let (why, errno) = match key {
        b"" => ("it has no bytes", Errno::INVAL),
        b"." | b".." => ("that is the name of a directory", Errno::INVAL),
        key if key.len() > NAME_MAX => ("it has more than 255 bytes", Errno::NAMETOOLONG),
        key if key.contains(&b'/') => ("it has a slash; stores are directories", Errno::INVAL),
        key if key.contains(&0) => ("it has a byte 0", Errno::INVAL),
        _ => return Ok(()),
    };
    let key = String::from_utf8_lossy(key).into_owned();
    Err(Error::Key { key, why, errno })
}

/// That a name leads to a file.
fn is_file(kind: FileKind) -> Attempt<()> {
    match kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(Errno::ISDIR.into()),
        FileKind::Link => Err(Errno::LOOP.into()),
        FileKind::CharacterDevice | FileKind::BlockDevice => Err(Errno::NXIO.into()),
        FileKind::Pipe | FileKind::Socket => Err(Errno::NXIO.into()),
    }
}
