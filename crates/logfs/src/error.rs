//! Why something was not done, and how much can be asked for at once.
//!
//! Invariant: each error has one number of errno.

use arck_libfs_kit::ConnectError;
use rustix::io::Errno;

/// Bytes of the longest record, and of all that is appended together.
pub const RECORD_MAX: usize = 1 << 20;

/// How often a call finds that what it knew of sections is not so any more, before it gives up with EAGAIN.
pub const TURNS: u32 = 1000;

/// Why it was not done. `Display` is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no session: no pool, or nobody who serves it.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// EINVAL for none, EMSGSIZE for too many.
    #[error("a record of {length} bytes: it has 1 to {RECORD_MAX}")]
    Length {
        /// Bytes of the record, or of all together.
        length: usize,
    },
    /// ENODATA.
    #[error("position {position} has been cut off; the log begins at {begin}")]
    Cut {
        /// What was asked for.
        position: u64,
        /// The first position that there is.
        begin: u64,
    },
    /// EINVAL.
    #[error("position {position} is behind the end of the log, {end}")]
    Beyond {
        /// What was asked for.
        position: u64,
        /// Where the log ends.
        end: u64,
    },
    /// EBADMSG: what is in the directory is no log, or somebody has changed its files by other means.
    #[error("the log is damaged: {0}")]
    Malformed(String),
    /// The session was opened for a log that is closed, or lost; or the system or the controller refused: ENOSPC (cut
    /// the log, and go on), EACCES, ENOENT (the directory is gone), EIO and others.
    #[error("the log: {0}")]
    System(Errno),
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        match errno {
            Errno::BADMSG => {
                Error::Malformed("what has the name of a section is no file".to_owned())
            }
            errno => Error::System(errno),
        }
    }
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
            Error::Length { length: 0 } => Errno::INVAL,
            Error::Length { .. } => Errno::MSGSIZE,
            Error::Cut { .. } => Errno::NODATA,
            Error::Beyond { .. } => Errno::INVAL,
            Error::Malformed(_) => Errno::BADMSG,
            Error::System(errno) => *errno,
        }
    }
}
