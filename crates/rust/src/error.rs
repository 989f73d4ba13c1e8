//! What went wrong, as `std::io::Error`.
//!
//! Invariant: each error tells its number of errno ([`errno`]), and its kind is that number's.

use arckfs::{ConnectError, Errno, Failure};
use std::io;

/// Why something was not done, where more can be said of it than the number: what is inside such an [`io::Error`]. `Display` is
/// one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    number: i32,
    text: String,
}

impl Error {
    /// The number, as errno has it.
    pub fn errno(&self) -> i32 {
        self.number
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// The number of an error, as errno has it: of what this crate gives, of stores and logs too, and of the system's. `None` for
/// errors that have none.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let served = arck_test_pool::TestPool::new(32 << 20);
/// # let directory = served.path();
/// let files = arck::Pool::new(&directory).files()?;
/// let error = files.read("nothing").unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// assert_eq!(arck::errno(&error), Some(2));
///
/// let error = arck::Pool::new("/nowhere").files().unwrap_err();
/// assert_eq!(arck::errno(&error), Some(2));
/// assert!(error.to_string().contains("/nowhere"));
/// # files.close()
/// # }
/// ```
pub fn errno(error: &io::Error) -> Option<i32> {
    let number = error.raw_os_error();
    number.or_else(|| {
        let inside = error.get_ref()?;
        let own = inside.downcast_ref().map(Error::errno);
        let kept = |errno: Errno| errno.raw_os_error();
        let of_store = inside.downcast_ref::<arck_kvfs::Error>();
        let of_log = inside.downcast_ref::<arck_logfs::Error>();
        own.or_else(|| of_store.map(|error| kept(error.errno())))
            .or_else(|| of_log.map(|error| kept(error.errno())))
    })
}

/// An error that says more than its number.
pub fn told(errno: Errno, text: impl Into<String>) -> io::Error {
    let number = errno.raw_os_error();
    let text = text.into();
    let kind = io::Error::from_raw_os_error(number).kind();
    io::Error::new(kind, Error { number, text })
}

pub fn of_errno(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw_os_error())
}

pub fn of_failure(failure: Failure) -> io::Error {
    match failure {
        Failure::Errno(errno) => of_errno(errno),
        Failure::Outside(path) => {
            let path = String::from_utf8_lossy(&path);
            told(
                Errno::XDEV,
                format!("the path leads out of the pool, to {path}"),
            )
        }
    }
}

pub fn of_connect(error: ConnectError) -> io::Error {
    told(error.errno, error.message)
}
