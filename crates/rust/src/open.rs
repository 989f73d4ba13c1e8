//! How files are opened.

use crate::file::File;
use crate::session::Session;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened: as `std::fs::OpenOptions`, of [`Files::options`](crate::Files::options).
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let served = arck_test_pool::TestPool::new(32 << 20);
/// # let files = arck::Pool::new(served.path()).files()?;
/// use std::io::Write;
///
/// let mut lines = files.options().append(true).create(true).mode(0o600).open("lines")?;
/// writeln!(lines, "one")?;
/// assert_eq!(files.read_to_string("lines")?, "one\n");
/// # drop(lines);
/// # files.close()
/// # }
/// ```
#[derive(Clone)]
pub struct OpenOptions<'f> {
    session: &'f Arc<Session>,
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
    flags: i32,
}

impl<'f> OpenOptions<'f> {
    pub(crate) fn new(session: &'f Arc<Session>) -> OpenOptions<'f> {
        OpenOptions {
            session,
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
            flags: 0,
        }
    }

    /// To read.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.read = read;
        self
    }

    /// To write, from the beginning on.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// To write, each time at the end, in one step with finding it.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.append = append;
        self
    }

    /// The file is cut to no bytes; with [`write`](OpenOptions::write).
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// The file is made if it is not there; with [`write`](OpenOptions::write) or [`append`](OpenOptions::append).
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// The file is made, and is not to be there (`AlreadyExists`).
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Permission bits of a file that is made, of which the process's umask takes its own: 0666, if nothing else is said.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Further flags of `open(2)`, such as `O_NOFOLLOW` and `O_DIRECTORY`; not those of the methods above.
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.flags = flags;
        self
    }

    /// Opens the file at a path. A file that is made is there, durably, when this returns. Blocks for the controller where another
    /// session has the directory or the file.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, `AlreadyExists`, `IsADirectory` (to write), `NotADirectory`, `StorageFull`; ENFILE: the
    /// session has too many files open; ENXIO: a named pipe, a socket or a device; `InvalidInput` for options that make no
    /// sense together.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => libc::O_RDONLY,
            (false, true, false) => libc::O_WRONLY,
            (true, true, false) => libc::O_RDWR,
            (false, _, true) => libc::O_WRONLY | libc::O_APPEND,
            (true, _, true) => libc::O_RDWR | libc::O_APPEND,
            (false, false, false) => return Err(invalid("to read, to write or to append?")),
        };
        let writes = self.write || self.append;
        if (self.truncate || self.create || self.create_new) && !writes
            || self.append && self.truncate && !self.create_new
        {
            return Err(invalid("options that make no sense together"));
        }
        let made = match (self.create, self.truncate, self.create_new) {
            (_, _, true) => libc::O_CREAT | libc::O_EXCL,
            (true, true, false) => libc::O_CREAT | libc::O_TRUNC,
            (true, false, false) => libc::O_CREAT,
            (false, true, false) => libc::O_TRUNC,
            (false, false, false) => 0,
        };
        let further = self.flags & !libc::O_ACCMODE;
        File::open(
            self.session,
            path.as_ref(),
            access | made | further,
            self.mode,
        )
    }
}

impl std::fmt::Debug for OpenOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut told = f.debug_struct("OpenOptions");
        told.field("read", &self.read).field("write", &self.write);
        told.field("append", &self.append);
        told.field("truncate", &self.truncate);
        told.field("create", &self.create);
        told.field("create_new", &self.create_new);
        told.field("mode", &format_args!("{:o}", self.mode));
        told.field("flags", &format_args!("{:#x}", self.flags));
        told.finish()
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
