//! Handles, as C has them: numbers that say of what kind they are, and which one.
//!
//! Invariant: a number that is no handle that is open is EBADF, whatever it is: 0, -1, a descriptor of the kernel's, one
//! of another kind, one that was closed.

use crate::inside::{self, Inside};
use crate::open_files::{self, OpenFile};
use crate::parts::{self, Part, State};
use crate::queues::{self, OpenQueue, Set};
use crate::roots::{self, Connection, What};
use crate::spools;
use crate::trouble::Trouble;
use arck_kvfs::Store;
use arck_logfs::Log;
use arck_queues::{QueueOptions, Spool};
use arckfs::{At, Errno, FileSystem, Handle};
use std::sync::Arc;
use std::time::Duration;

/// What stands for something that is open: a number above 0 that means one thing in the life of a process, or -1. No descriptor of the
/// kernel's is one. All threads may use all of them.
#[allow(non_camel_case_types)] // C's
pub type arck_handle = i64;

/// Where the kind stands.
const KIND: u32 = 60;
/// How often is looked whether another thread still uses what is closed.
const LOOKS_MOST: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Root = 1,
    File = 2,
    Part = 3,
    Queues = 4,
    Queue = 5,
}

fn handle_of(kind: Kind, key: u64) -> i64 {
    ((kind as u64) << KIND | key).cast_signed()
}

/// The kind and the key of what may be a handle.
#[inline]
fn parsed(handle: i64) -> Option<(Kind, u64)> {
    let word = handle.cast_unsigned();
    let kind = match word >> KIND {
        1 => Kind::Root,
        2 => Kind::File,
        3 => Kind::Part,
        4 => Kind::Queues,
        5 => Kind::Queue,
        _ => return None,
    };
    Some((kind, word & ((1 << KIND) - 1)))
}

#[inline]
fn key_of(handle: i64, kind: Kind) -> Result<u64, Trouble> {
    match parsed(handle) {
        Some((found, key)) if found == kind => Ok(key),
        _ => Err(Trouble::no_handle()),
    }
}

#[inline]
fn root_key(handle: i64) -> Result<u32, Trouble> {
    let key = key_of(handle, Kind::Root)?;
    u32::try_from(key).map_err(|_| Trouble::no_handle())
}

pub fn add_root(what: What) -> Result<i64, Trouble> {
    Ok(handle_of(Kind::Root, roots::add(what)?.into()))
}

pub fn add_file(root: u32, handle: Handle, files: &FileSystem) -> Result<i64, Trouble> {
    let added = open_files::add(OpenFile::new(root, handle, files.session()));
    if added.is_err() {
        files.close(handle);
    }
    Ok(handle_of(Kind::File, added?))
}

pub fn add_part(root: u32, state: State) -> i64 {
    handle_of(Kind::Part, parts::add(root, state))
}

pub fn add_queues(set: Set) -> i64 {
    handle_of(Kind::Queues, queues::add_set(set))
}

/// A queue of a file, with the threads of the set that a handle means, and perhaps with the spool of another and the path that finds the file.
/// EBADF, ESTALE, EINVAL; EXDEV: the spool is of another connection.
pub fn add_queue(
    set: i64,
    place: &Place,
    options: QueueOptions,
    spool: Option<(i64, &[u8])>,
) -> Result<i64, Trouble> {
    let set = key_of(set, Kind::Queues)?;
    let file = (place.files, place.file()?);
    let spool = match spool {
        None => None,
        Some((spool, path)) => Some((place.ring(spool)?, spools::expect_same(file, path)?)),
    };
    let spool = spool.as_ref().map(|(ring, path)| (ring, *path));
    let queue = OpenQueue::open(set, file, options, spool)?;
    Ok(handle_of(Kind::Queue, queues::add(place.root, queue)?))
}

/// Where a call on a pool begins: inside of a connection, at its root or at something that is open in it.
pub struct Place {
    _inside: Inside,
    pub root: u32,
    pub connection: &'static Connection,
    pub files: &'static FileSystem,
    pub at: At,
}

#[inline(always)]
fn connection(root: u32) -> Result<(Inside, &'static Connection), Trouble> {
    match roots::get(root)? {
        (inside, What::Connection(connection)) => Ok((inside, connection)),
        _ => Err(Trouble::no_handle()),
    }
}

/// A connection, or a file that is open. EBADF, ESTALE.
#[inline(always)]
pub fn place(handle: i64) -> Result<Place, Trouble> {
    if let Some((Kind::File, key)) = parsed(handle) {
        let file = open_files::get(key)?;
        let (inside, connection) = connection(file.root)?;
        let files = connection.last_files();
        file.expect_of(files.session())?;
        return Ok(Place {
            _inside: inside,
            root: file.root,
            connection,
            files,
            at: At::Directory(file.handle),
        });
    }
    let root = root_key(handle)?;
    let (inside, connection) = connection(root)?;
    Ok(Place {
        _inside: inside,
        root,
        connection,
        files: connection.files()?,
        at: At::Root,
    })
}

impl Place {
    /// That of another handle, of the same connection. EXDEV, EBADF, ESTALE.
    pub fn other(&self, handle: i64) -> Result<At, Trouble> {
        let (root, at) = match parsed(handle) {
            Some((Kind::File, key)) => {
                let file = open_files::get(key)?;
                if file.root == self.root {
                    file.expect_of(self.files.session())?;
                }
                (file.root, At::Directory(file.handle))
            }
            _ => (root_key(handle)?, At::Root),
        };
        if roots::is_closed(root) {
            return Err(Trouble::no_handle());
        }
        match root == self.root {
            true => Ok(at),
            false => Err(Trouble::said(
                Errno::XDEV,
                "the two are of different connections",
            )),
        }
    }

    /// What queues keep of a spool of the same connection. EXDEV, EBADF, ESTALE.
    fn ring(&self, spool: i64) -> Result<Arc<Spool>, Trouble> {
        let part = parts::get(key_of(spool, Kind::Part)?)?;
        let state = part.use_alone()?;
        let State::Spool(spool) = &*state else {
            return Err(Trouble::no_handle());
        };
        match part.root == self.root {
            true => spool.ring(),
            false => Err(Trouble::said(
                Errno::XDEV,
                "the spool is of another connection",
            )),
        }
    }

    /// The file that is meant, which is no connection. EBADF.
    #[inline]
    pub fn file(&self) -> Result<Handle, Trouble> {
        match self.at {
            At::Directory(handle) => Ok(handle),
            _ => Err(Trouble::said(
                Errno::BADF,
                "a connection is no file: open one in it",
            )),
        }
    }
}

#[inline]
pub fn store(handle: i64) -> Result<(Inside, &'static Store, u32), Trouble> {
    let root = root_key(handle)?;
    match roots::get(root)? {
        (inside, What::Store(store)) => Ok((inside, store, root)),
        _ => Err(Trouble::no_handle()),
    }
}

#[inline]
pub fn log(handle: i64) -> Result<(Inside, &'static Log, u32), Trouble> {
    let root = root_key(handle)?;
    match roots::get(root)? {
        (inside, What::Log(log)) => Ok((inside, log, root)),
        _ => Err(Trouble::no_handle()),
    }
}

/// A part, inside of what it was opened in. EBADF.
pub fn part(handle: i64) -> Result<(Inside, Arc<Part>, &'static What), Trouble> {
    let key = key_of(handle, Kind::Part)?;
    let (inside, what) = roots::get(parts::root_of(key))?;
    Ok((inside, parts::get(key)?, what))
}

/// A queue, inside of the connection of its file. EBADF, ESTALE.
pub fn queue(handle: i64) -> Result<(Inside, Arc<OpenQueue>), Trouble> {
    let key = key_of(handle, Kind::Queue)?;
    let (inside, _) = roots::get(queues::root_of(key))?;
    Ok((inside, queues::get(key)?))
}

/// Makes the handle of a part one of nothing; to be called inside.
pub fn forget_part(handle: i64) -> Result<Arc<Part>, Trouble> {
    parts::take(key_of(handle, Kind::Part)?)
}

/// Closes whatever it is. EBADF, or what was not folded of a session that has ended.
pub fn close(handle: i64) -> Result<(), Trouble> {
    match parsed(handle).ok_or_else(Trouble::no_handle)? {
        (Kind::Root, _) => {
            let root = root_key(handle)?;
            roots::close(root, || {
                queues::close_all_of(root);
                open_files::forget_all_of(root);
                parts::forget_all_of(root);
            })
        }
        (Kind::File, key) => {
            let (_inside, connection) = connection(open_files::get(key)?.root)?;
            let file = open_files::take(key)?;
            if file.expect_of(connection.last()).is_ok() {
                connection.files()?.close(file.handle);
            }
            Ok(())
        }
        (Kind::Queues, key) => {
            let _inside = inside::enter(inside::NOTHING)?;
            queues::close_set(key)
        }
        (Kind::Queue, key) => {
            let (_inside, _) = roots::get(queues::root_of(key))?;
            queues::close(key)
        }
        (Kind::Part, _) => {
            let (_inside, part, what) = part(handle)?;
            forget_part(handle)?;
            // Another thread that uses it has let go of it soon; one of before a fork never does.
            let mut looks = 0;
            let state = loop {
                match part.use_alone() {
                    Ok(state) => break state,
                    Err(_) if looks == LOOKS_MOST => return Ok(()),
                    Err(_) => std::thread::sleep(PAUSE),
                }
                looks += 1;
            };
            if let (State::Names(names), What::Connection(connection)) = (&*state, what)
                && !names.of.has_ended()
            {
                connection.files()?.close(names.handle);
            }
            Ok(())
        }
    }
}
