//! The kernel's requests: who sent each, and by what it is served. [`kernel`]: each of them.
//!
//! Invariant: every request is answered once, by the thread that has it, when what it asks for is done.

mod kernel;

use crate::attributes;
use crate::listing::Listing;
use crate::lives::Lives;
use crate::locks::Locks;
use crate::names::{self, Made};
use crate::nodes::{self, Node};
use crate::open::OpenTable;
use crate::users::{Session, Users};
use arckfs::{Attributes, Errno, FileSystem};
use fuser::{
    FileHandle, FopenFlags, Generation, INodeNo, ReplyEmpty, ReplyEntry, ReplyXattr, Request,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// For how long the kernel may believe what it was told.
const BELIEVED: Duration = Duration::ZERO;

/// See the module's head.
pub struct Requests {
    users: Arc<Users>,
    open: OpenTable,
    locks: Arc<Locks>,
    lives: Lives,
    /// How files are opened.
    opened: FopenFlags,
}

fn told(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

impl Requests {
    pub fn new(users: Arc<Users>) -> Requests {
        Requests {
            users,
            open: OpenTable::default(),
            locks: Arc::default(),
            lives: Lives::default(),
            opened: FopenFlags::empty(),
        }
    }

    fn session(&self, request: &Request) -> Result<Arc<Session>, Errno> {
        self.users
            .session(request.pid(), request.uid(), request.gid())
    }

    /// Does something by the session of whoever sent the request.
    fn serve<T>(
        &self,
        request: &Request,
        work: impl FnOnce(&FileSystem) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let session = self.session(request)?;
        work(&*session.enter()?)
    }

    /// The same by the session that has opened something.
    fn by_open<T>(
        &self,
        number: FileHandle,
        work: impl FnOnce(&FileSystem, arckfs::Handle) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let open = self.open.get(number)?;
        let (fs, handle) = open.enter()?;
        work(&fs, handle)
    }

    /// Something whose answer is that it was done.
    fn answer(reply: ReplyEmpty, done: Result<(), Errno>) {
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn answer_entry(reply: ReplyEntry, found: Result<(Attributes, Generation), Errno>) {
        match found {
            Ok((found, generation)) => {
                reply.entry(&BELIEVED, &nodes::attributes(&found), generation);
            }
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn answer_extended(reply: ReplyXattr, size: u32, found: Result<(usize, Vec<u8>), Errno>) {
        match found {
            Ok((length, _)) if size == 0 => reply.size(length as u32),
            Ok((_, bytes)) => reply.data(&bytes),
            Err(errno) => reply.error(told(errno)),
        }
    }

    /// Makes a name for whoever asks.
    fn make(
        &self,
        request: &Request,
        directory: INodeNo,
        name: &OsStr,
        made: Made<'_>,
    ) -> Result<(Attributes, Generation), Errno> {
        self.serve(request, |fs| {
            let made = names::make(fs, Node::of(directory), name.as_bytes(), made)?;
            Ok((made, self.lives.of(&made)))
        })
    }

    /// Takes a name away.
    fn remove(
        &self,
        request: &Request,
        directory: INodeNo,
        name: &OsStr,
        is_directory: bool,
    ) -> Result<(), Errno> {
        let (directory, name) = (Node::of(directory), name.as_bytes());
        self.serve(request, |fs| {
            let found = names::look_up(fs, directory, name)?;
            self.lives.end(Node::from(&found), || {
                names::remove(fs, directory, name, is_directory)?;
                Ok(names::was_last(fs, &found))
            })
        })
    }

    /// Attributes; of what is open also for who cannot reach it any more.
    fn attributes(
        &self,
        request: &Request,
        node: Node,
        open: Option<FileHandle>,
    ) -> Result<Attributes, Errno> {
        if let Some(number) = open {
            return self.by_open(number, |fs, handle| fs.stat_handle(handle));
        }
        let found = self.serve(request, |fs| attributes::of(fs, node));
        let Err(errno @ (Errno::STALE | Errno::NOENT | Errno::ACCESS)) = found else {
            return found;
        };
        match self.open.any_of(node, None) {
            Some(open) => {
                let (fs, handle) = open.enter()?;
                fs.stat_handle(handle)
            }
            None => Err(errno),
        }
    }

    /// The listing of an open directory: a new one at its beginning.
    fn listing(&self, number: FileHandle, position: u64) -> Result<Arc<Listing>, Errno> {
        let open = self.open.get(number)?;
        let mut listing = open.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = listing.as_ref().filter(|_| position != 0) {
            return Ok(known.clone());
        }
        let (fs, handle) = open.enter()?;
        let read = Arc::new(Listing::read(&fs, handle)?);
        *listing = Some(read.clone());
        Ok(read)
    }
}

/// The number by which the kernel is told of an entry: that of its inode, if it is there still.
fn number(fs: &FileSystem, number: u32) -> INodeNo {
    let generation = fs
        .session()
        .header(number)
        .map_or(0, |header| header.generation());
    Node { number, generation }.number()
}
