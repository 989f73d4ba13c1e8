//! What can go wrong, and which errno a program should see for it.

use crate::medium::ModelError;
use rustix::io::Errno;

/// Result of the fallible operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A guarded access met a page that its file no longer backs (SIGBUS), or memory that is not
/// mapped so (SIGSEGV, where [`crate::guarded::recover`] is told of it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the file behind the mapping gives no page there ({copied} bytes copied before it)")]
pub struct Fault {
    /// Bytes that were surely copied before the fault; what lies after them
    /// in the destination is unspecified.
    pub copied: usize,
    /// The address that faulted; 0 if the processor does not tell.
    pub address: usize,
}

/// Errors of mapping, probing and checked access.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The range does not lie inside the view, or is not aligned as the access needs.
    #[error("range {offset:#x}+{len:#x} lies outside a view of {size:#x} bytes or is misaligned")]
    OutOfBounds {
        /// Byte offset asked for.
        offset: usize,
        /// Length asked for, in bytes.
        len: usize,
        /// Size of the view, in bytes.
        size: usize,
    },
    /// See [`Fault`]; in the view.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A [`Fault`] in the memory that was copied from or to, outside the view.
    #[error("no memory at the address that was given ({} bytes copied before it)", .0.copied)]
    BadAddress(Fault),
    /// A system call failed.
    #[error("{operation}: {errno}")]
    System {
        /// What was attempted.
        operation: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A trace is already being recorded in this process.
    #[error("a trace is already being recorded in this process")]
    AlreadyRecording,
    /// A medium that cannot be emulated.
    #[error("the medium: {0}")]
    Medium(#[from] ModelError),
    /// `--persist` takes auto, always or never.
    #[error("unknown persistence option {0:?}: use auto, always or never")]
    UnknownPersistOption(String),
}

impl Error {
    /// The errno for programs: EFAULT for a range outside or a bad address, EIO for a fault,
    /// the kernel's own for a system call, EBUSY and EINVAL for the rest.
    pub fn errno(&self) -> Errno {
        match self {
            Error::OutOfBounds { .. } | Error::BadAddress(_) => Errno::FAULT,
            Error::Fault(_) => Errno::IO,
            Error::System { errno, .. } => *errno,
            Error::AlreadyRecording => Errno::BUSY,
            Error::UnknownPersistOption(_) | Error::Medium(_) => Errno::INVAL,
        }
    }

    pub(crate) fn system(operation: &'static str) -> impl FnOnce(Errno) -> Error {
        move |errno| Error::System { operation, errno }
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        error.errno()
    }
}

impl From<Fault> for Errno {
    fn from(_: Fault) -> Errno {
        Errno::IO
    }
}
