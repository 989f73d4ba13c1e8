//! What has a session: connections, stores of KVFS, logs. All else is opened in one of these, and closed with it.
//!
//! # Invariants
//! * None is ever freed, nor does one get the number of another: a process can open some 3900 sessions to its end
//!   ([`MOST`] is more). So a number is one of these for ever, or none.
//! * Whoever uses one is [`inside`](crate::inside) of it. Its session ends when it is closed, and nobody is.

use crate::inside::{self, Inside};
use crate::trouble::Trouble;
use arck_kvfs::Store;
use arck_libfs_kit::Session;
use arck_libfs_kit::per_process::PerProcess;
use arck_logfs::Log;
use arckfs::{ConnectOptions, Errno, FileSystem};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// So many in the life of a process.
const MOST: usize = 4096;

/// A session of ArckFS, and the one that a forked child has instead.
pub struct Connection {
    options: ConnectOptions,
    here: PerProcess<FileSystem>,
    /// What is taken from the modes of what is made; [`UMASK_OF_PROCESS`].
    pub umask: AtomicU32,
}

/// What the process's own is, is asked each time.
pub const UMASK_OF_PROCESS: u32 = u32::MAX;

pub enum What {
    Connection(Connection),
    Store(Store),
    Log(Log),
}

struct Root {
    is_closed: AtomicBool,
    what: What,
}

static ROOTS: [OnceLock<Box<Root>>; MOST] = [const { OnceLock::new() }; MOST];
static NEXT: AtomicU32 = AtomicU32::new(0);

fn opened(options: &ConnectOptions) -> Result<PerProcess<FileSystem>, Trouble> {
    let file_system = FileSystem::connect(options)?;
    Ok(PerProcess::new(file_system.session(), file_system))
}

impl Connection {
    pub fn open(options: ConnectOptions) -> Result<Connection, Trouble> {
        Ok(Connection {
            here: opened(&options)?,
            options,
            umask: AtomicU32::new(UMASK_OF_PROCESS),
        })
    }

    /// That of this process: a forked child opens its own at its first need.
    #[inline]
    pub fn files(&self) -> Result<&FileSystem, Trouble> {
        let here = self.here.get_or_open(|| opened(&self.options))?;
        Ok(&here.kept)
    }

    /// That of the session that this process has, or had last.
    #[inline]
    pub fn last_files(&self) -> &FileSystem {
        &self.here.last().kept
    }

    /// The session that this process has, or had last.
    #[inline]
    pub fn last(&self) -> &'static Session {
        self.here.last().session
    }

    /// All that was done is folded when this returns, or it says why not.
    fn end(&self) -> Result<(), Errno> {
        let session = self.last();
        if session.has_ended() {
            return Ok(());
        }
        let said = session.goodbye();
        session.end();
        said
    }
}

/// Notes one that has been opened; gives its number. EMFILE.
pub fn add(what: What) -> Result<u32, Trouble> {
    let is_closed = AtomicBool::new(false);
    let root = Box::new(Root { is_closed, what });
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let Some(place) = ROOTS.get(number as usize) else {
        // Far from going round.
        NEXT.fetch_sub(1, Ordering::Relaxed);
        let _ = end(&root.what);
        return Err(Trouble::said(
            Errno::MFILE,
            "this process has opened as many sessions as one can; one is enough for all of its threads",
        ));
    };
    // Nobody else has this number.
    let _ = place.set(root);
    Ok(number)
}

/// One that is open, for as long as the caller is inside.
#[inline(always)]
pub fn get(number: u32) -> Result<(Inside, &'static What), Trouble> {
    let root = ROOTS.get(number as usize).and_then(OnceLock::get);
    let root = root.ok_or_else(Trouble::no_handle)?;
    let inside = inside::enter(number)?;
    match root.is_closed.load(Ordering::Acquire) {
        false => Ok((inside, &root.what)),
        true => Err(Trouble::no_handle()),
    }
}

/// Whether one is said to be closed.
pub fn is_closed(number: u32) -> bool {
    let root = ROOTS.get(number as usize).and_then(OnceLock::get);
    root.is_none_or(|root| root.is_closed.load(Ordering::Acquire))
}

/// Closes one: waits for those who are inside, has `before` done, and ends the session. EBADF, or what was not folded.
pub fn close(number: u32, before: impl FnOnce()) -> Result<(), Trouble> {
    let root = ROOTS.get(number as usize).and_then(OnceLock::get);
    let root = root.ok_or_else(Trouble::no_handle)?;
    let _inside = inside::enter(inside::NOTHING)?;
    if root.is_closed.swap(true, Ordering::SeqCst) {
        return Err(Trouble::no_handle());
    }
    inside::wait_until_left(number);
    before();
    match end(&root.what) {
        // Where the controller is gone nothing is lost: the next one folds what it finds of the session.
        Ok(()) | Err(Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn end(what: &What) -> Result<(), Errno> {
    match what {
        What::Connection(connection) => connection.end(),
        What::Store(store) => store.end(),
        What::Log(log) => log.finish().map_err(|error| error.errno()),
    }
}
