//! What C says when it opens something.
//!
//! Invariant: what a call has no use for is refused, and not passed over.

use crate::boundary::{Text, Wishes, Zeroable};
use crate::trouble::Trouble;
use arckfs::{Errno, NoFileSystem, Resolver};
use std::ffi::{OsStr, OsString, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// A store or a log, and the directories above it, are made where there is none.
pub const ARCK_MAKE: u32 = 1;

/// In the options: a controller is waited for as long as `$ARCK_WAIT` says (30 seconds, if it says nothing).
pub const ARCK_WAIT_USUAL: i32 = -1;

/// Bytes of the longest name of a group.
const GROUP_MAX: usize = 64;

/// How something is opened. All bytes are zero but for what is said; `size` is said always. What is zero is as usual. A later
/// version of Arck may have more members, at the end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Options {
    /// sizeof(struct arck_options).
    pub size: usize,
    /// Of stores and logs: 0 or ARCK_MAKE.
    pub flags: u32,
    /// Of stores and logs: permission bits of what is made there, whatever the umask is. Those of directories follow. 0: 0644.
    pub mode: u32,
    /// Where nobody serves the pool: for how many milliseconds somebody is waited for. 0: not at all. ARCK_WAIT_USUAL.
    pub wait: i32,
    /// 0.
    pub reserved: u32,
    /// Of connections and logs: the trust group to be one of, whose programs share a session and trust each other. At most
    /// 64 bytes. NULL: none.
    pub group: *const c_char,
    /// Of connections: which file system, "arckfs" or "fpfs". NULL: what $ARCK_FS says, else "arckfs". A group has one.
    pub fs: *const c_char,
    /// Of logs: bytes of a section, where the log is made. 0: 64 MiB.
    pub section: u64,
}

// SAFETY: integers and pointers; what they point to is looked at by `boundary`.
unsafe impl Zeroable for Options {}

/// What members the first version had.
const LEAST: usize = 48;

/// For what something is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    Connection,
    Store,
    Log,
}

/// What is wished for, checked.
pub struct Wish {
    pub pool: PathBuf,
    pub makes: bool,
    pub mode: u32,
    pub patience: Duration,
    pub group: Vec<u8>,
    pub resolver: Resolver,
    pub section: Option<u64>,
}

fn refused(line: String) -> Trouble {
    Trouble::told(Errno::INVAL, line)
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl Wish {
    pub fn of(pool: Text, wishes: Wishes, what: For) -> Result<Wish, Trouble> {
        let pool = match pool.if_any() {
            Some(b"") => return Err(Errno::NOENT.into()),
            Some(given) => PathBuf::from(OsStr::from_bytes(given)),
            None => variable("ARCK_POOL").map(PathBuf::from).ok_or_else(|| {
                refused(
                    "which pool? Name its directory, or set ARCK_POOL (arck run does)".to_owned(),
                )
            })?,
        };
        let options: Option<Options> = wishes.get(LEAST)?;
        let mut wish = Wish {
            pool,
            makes: false,
            mode: 0o644,
            patience: Duration::ZERO,
            group: Vec::new(),
            resolver: Resolver::default(),
            section: None,
        };
        let mut fs = variable("ARCK_FS").map(OsString::into_vec);
        if let Some(options) = &options {
            options.check(what)?;
            wish.makes = options.flags & ARCK_MAKE != 0;
            if options.mode != 0 {
                wish.mode = options.mode;
            }
            wish.patience = match u64::try_from(options.wait) {
                Ok(milliseconds) => Duration::from_millis(milliseconds),
                Err(_) => arck_libfs_kit::connection::patience(),
            };
            wish.group = Text::at(options.group)
                .if_any()
                .unwrap_or_default()
                .to_vec();
            if wish.group.len() > GROUP_MAX {
                return Err(refused(format!(
                    "the name of a group has {GROUP_MAX} bytes at most"
                )));
            }
            wish.section = (options.section != 0).then_some(options.section);
            if let Some(named) = Text::at(options.fs).if_any() {
                fs = Some(named.to_vec());
            }
        }
        if let (For::Connection, Some(fs)) = (what, fs) {
            let resolver = String::from_utf8_lossy(&fs).parse();
            wish.resolver = resolver.map_err(|error: NoFileSystem| refused(error.to_string()))?;
        }
        Ok(wish)
    }
}

impl Options {
    fn check(&self, what: For) -> Result<(), Trouble> {
        let wrong = match what {
            _ if self.reserved != 0 => "reserved",
            _ if self.wait < ARCK_WAIT_USUAL => "wait",
            For::Connection if self.flags != 0 => "flags",
            For::Connection if self.mode != 0 => "mode",
            For::Connection | For::Store if self.section != 0 => "section",
            For::Store if !self.group.is_null() => "group",
            For::Store | For::Log if !self.fs.is_null() => "fs",
            _ if self.flags & !ARCK_MAKE != 0 => "flags",
            _ if self.mode & !0o777 != 0 => "mode",
            _ => return Ok(()),
        };
        Err(refused(format!(
            "the options have a {wrong} that is of no use here"
        )))
    }
}
