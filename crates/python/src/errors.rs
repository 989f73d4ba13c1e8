//! What went wrong, as Python's exceptions.

use arckfs::{ConnectError, Errno, Failure};
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Why something was not done.
pub enum Refusal {
    /// The file system, the store or the file is closed.
    Closed(&'static str),
    /// The file was opened by the process that this one was forked from.
    OfParent,
    Errno(Errno),
    /// A path leads out of the pool, to this one.
    Outside(Vec<u8>),
    Connect(ConnectError),
    /// With a line that says more than the number.
    Told(Errno, String),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal::Errno(errno)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        match failure {
            Failure::Errno(errno) => Refusal::Errno(errno),
            Failure::Outside(path) => Refusal::Outside(path),
        }
    }
}

impl From<ConnectError> for Refusal {
    fn from(error: ConnectError) -> Refusal {
        Refusal::Connect(error)
    }
}

/// What the system calls an error number.
pub fn text_of(errno: Errno) -> String {
    let error = std::io::Error::from_raw_os_error(errno.raw_os_error());
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// What the end of a session says to Python. Where the controller is gone nothing is lost: the next one folds what it
/// finds of the session.
pub fn of_end(said: Result<(), Errno>) -> Result<(), PyErr> {
    match said {
        Ok(()) | Err(Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN) => Ok(()),
        Err(errno) => Err(Refusal::Errno(errno).raised()),
    }
}

impl Refusal {
    /// The number alone, for who asks Arck's parts. EBADF: what is closed, or a parent's.
    pub fn errno(&self) -> Errno {
        match self {
            Refusal::Errno(errno) | Refusal::Told(errno, _) => *errno,
            Refusal::Closed(_) | Refusal::OfParent => Errno::BADF,
            Refusal::Outside(_) => Errno::XDEV,
            Refusal::Connect(_) => Errno::IO,
        }
    }

    /// The error number and what it means here; or what is no `OSError`.
    fn told(self) -> Result<(i32, String), PyErr> {
        let told = match self {
            Refusal::Closed(what) => {
                let line = format!("I/O operation on closed {what}.");
                return Err(PyValueError::new_err(line));
            }
            Refusal::OfParent => (
                Errno::STALE,
                "the file was opened before this process was forked; open it again here".to_owned(),
            ),
            Refusal::Errno(errno) => (errno, text_of(errno)),
            Refusal::Outside(path) => (
                Errno::XDEV,
                format!(
                    "it leads out of the pool, to {}",
                    String::from_utf8_lossy(&path)
                ),
            ),
            Refusal::Connect(error) => (error.errno, error.message),
            Refusal::Told(errno, text) => (errno, text),
        };
        Ok((told.0.raw_os_error(), told.1))
    }

    /// As the exception of something that has no path.
    pub fn raised(self) -> PyErr {
        self.told().map_or_else(|error| error, PyOSError::new_err)
    }

    /// As the exception of something that was done with a path.
    pub fn of(self, path: &[u8]) -> PyErr {
        let path = OsStr::from_bytes(path).to_owned();
        self.told().map_or_else(
            |error| error,
            |(errno, text)| PyOSError::new_err((errno, text, path)),
        )
    }

    /// As the exception of something that was done with two paths.
    pub fn of_two(self, from: &[u8], to: &[u8]) -> PyErr {
        let [from, to] = [from, to].map(|path| OsStr::from_bytes(path).to_owned());
        self.told().map_or_else(
            |error| error,
            |(errno, text)| PyOSError::new_err((errno, text, from, None::<i32>, to)),
        )
    }
}
