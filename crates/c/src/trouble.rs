//! Why something was not done: a number for `errno`, and a line for people, which `arck_message` tells.
//!
//! Invariants:
//! * No call ends by a panic: that is EIO, and says so.
//! * Lines are made when they are asked for, where what went wrong is all in the number.
//! * To say that a call was interrupted takes and frees no memory: malloc may be what was.

use crate::errno;
use arckfs::{ConnectError, Errno, Failure};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why something was not done.
#[derive(Debug)]
pub struct Trouble {
    errno: Errno,
    line: Line,
}

#[derive(Debug)]
enum Line {
    /// What the system calls the number.
    Usual,
    Interrupted,
    Fixed(&'static str),
    Own(String),
}

impl Trouble {
    pub fn said(errno: Errno, line: &'static str) -> Trouble {
        let line = Line::Fixed(line);
        Trouble { errno, line }
    }

    pub fn told(errno: Errno, line: String) -> Trouble {
        let line = Line::Own(line);
        Trouble { errno, line }
    }

    /// Of opening something in a group: where its programs have other structures in the memory that they share, they are in
    /// the way, whichever call it was.
    pub fn in_group(mut self, group: &[u8]) -> Trouble {
        if self.errno == Errno::PROTONOSUPPORT && !group.is_empty() {
            self.errno = Errno::BUSY;
        }
        self
    }

    /// A handle that is none, or none of this kind.
    #[cold]
    pub fn no_handle() -> Trouble {
        Trouble::said(
            Errno::BADF,
            "the handle is closed, or was never one of this kind",
        )
    }

    /// A call was to be made where one was interrupted.
    #[cold]
    pub fn interrupted() -> Trouble {
        let (errno, line) = (Errno::DEADLK, Line::Interrupted);
        Trouble { errno, line }
    }

    /// What belongs to the process that this one was forked from.
    #[cold]
    pub fn of_parent() -> Trouble {
        Trouble::said(
            Errno::STALE,
            "it was opened before this process was forked; open it again here",
        )
    }

    pub fn errno(&self) -> Errno {
        self.errno
    }

    pub fn is(&self, errno: i32) -> bool {
        self.errno.raw_os_error() == errno
    }

    /// The line for people.
    pub fn text(&self) -> String {
        match &self.line {
            Line::Usual => {
                let error = std::io::Error::from_raw_os_error(self.errno.raw_os_error());
                let text = error.to_string();
                let end = text.find(" (os error").unwrap_or(text.len());
                text[..end].to_owned()
            }
            Line::Interrupted => INTERRUPTED.to_string_lossy().into_owned(),
            Line::Fixed(line) => (*line).to_owned(),
            Line::Own(line) => line.clone(),
        }
    }
}

impl From<Errno> for Trouble {
    #[inline]
    fn from(errno: Errno) -> Trouble {
        let line = Line::Usual;
        Trouble { errno, line }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        match failure {
            Failure::Errno(errno) => errno.into(),
            Failure::Outside(path) => {
                let path = String::from_utf8_lossy(&path);
                Trouble::told(
                    Errno::XDEV,
                    format!("the path leads out of the pool, to {path}"),
                )
            }
        }
    }
}

impl From<ConnectError> for Trouble {
    fn from(error: ConnectError) -> Trouble {
        Trouble::told(error.errno, error.message)
    }
}

impl From<arck_kvfs::Error> for Trouble {
    #[cold]
    fn from(error: arck_kvfs::Error) -> Trouble {
        Trouble::told(error.errno(), error.to_string())
    }
}

impl From<arck_logfs::Error> for Trouble {
    #[cold]
    fn from(error: arck_logfs::Error) -> Trouble {
        Trouble::told(error.errno(), error.to_string())
    }
}

const INTERRUPTED: &CStr =
    c"a handler of signals has interrupted a call of Arck's, and cannot make another one";

/// What the last call that failed said in this thread, and room for its text.
struct Last {
    trouble: Option<Trouble>,
    text: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = const {
        RefCell::new(Last { trouble: None, text: None })
    };
    /// The last call that failed had interrupted another one.
    static HAD_INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

#[cold]
fn note(trouble: Trouble) {
    errno::set(trouble.errno);
    let has_interrupted = matches!(trouble.line, Line::Interrupted);
    HAD_INTERRUPTED.set(has_interrupted);
    if has_interrupted {
        return;
    }
    // A thread that is ending has no room for it any more.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.trouble = Some(trouble);
        }
    });
}

/// The last line of this thread, which stays until this is asked again.
pub fn last_line() -> *const c_char {
    const NOTHING: &CStr = c"nothing has failed in this thread";
    if HAD_INTERRUPTED.get() {
        return INTERRUPTED.as_ptr();
    }
    let told = LAST.try_with(|last| {
        let mut last = last.try_borrow_mut().ok()?;
        let mut text = last.trouble.as_ref()?.text();
        text.retain(|letter| letter != '\0');
        Some(last.text.insert(CString::new(text).ok()?).as_ptr())
    });
    told.ok().flatten().unwrap_or(NOTHING.as_ptr())
}

/// Runs the body of a function of C's: its value, or -1 and `errno`.
#[inline(always)]
pub fn answer<T: From<i8>>(body: impl FnOnce() -> Result<T, Trouble>) -> T {
    let trouble = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(trouble)) => trouble,
        Err(panic) => {
            // To drop it might be the next one.
            std::mem::forget(panic);
            let line = "a fault in Arck's library, which standard error tells; what the call was to do is not known to be done";
            Trouble::said(Errno::IO, line)
        }
    };
    note(trouble);
    T::from(-1)
}
