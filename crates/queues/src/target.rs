//! What a queue needs of an open file: the seam to whatever file system there is.
//!
//! # Invariants
//! * A target is called by several threads at once, never under a lock of this crate, and never for two requests that depend on each
//!   other.

use rustix::io::Errno;
use std::sync::Arc;

/// Which file it is. Two targets with the same identity are of one file, and their requests are in one order; two files that are open
/// at the same time in one [`Queues`](crate::Queues) never have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct FileIdentity {
    /// Whose numbers they are: as wide as a device and a number on it.
    pub device: u128,
    /// Its number there, as long as it is open.
    pub inode: u64,
}

impl FileIdentity {
    /// Of a file of a pool of Arck, by the pool's identity and the file's number and generation. Files of one pool have one identity each, in
    /// whatever session they were opened.
    pub fn in_pool(pool: [u64; 2], (number, generation): (u32, u32)) -> FileIdentity {
        FileIdentity {
            device: u128::from(pool[1]) << 64 | u128::from(pool[0]),
            inode: u64::from(generation) << 32 | u64::from(number),
        }
    }

    /// Number and generation, if it is a file of this pool.
    pub fn of_pool(&self, pool: [u64; 2]) -> Option<(u32, u32)> {
        let found = (self.inode as u32, (self.inode >> 32) as u32);
        (*self == FileIdentity::in_pool(pool, found)).then_some(found)
    }
}

/// What a file was opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// [`Target::read`] may be called.
    pub read: bool,
    /// [`Target::write`] and [`Target::append`] may be called.
    pub write: bool,
}

/// An open file. It blocks as long as it has to: a worker is lost to others for so long. A panic in it is EIO to whoever asked.
pub trait Target: Send + Sync {
    /// Which file it is. Asked once, when a queue is opened.
    fn identity(&self) -> FileIdentity;

    /// What it was opened for. Asked once, when a queue is opened.
    fn access(&self) -> Access {
        Access {
            read: true,
            write: true,
        }
    }

    /// How many bytes the file has. Asked when a queue is opened; an error is that of the opening.
    fn size(&self) -> Result<u64, Errno>;

    /// Reads at a position in bytes; gives how many, fewer than the buffer has at the file's end alone.
    fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno>;

    /// Writes at a position in bytes; gives how many. Where it gives an error, it has written nothing that is to stay.
    fn write(&self, bytes: &[u8], position: u64) -> Result<usize, Errno>;

    /// Writes at the file's end, in one step with finding it; gives how many bytes, and the position behind them.
    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno>;

    /// Whether what is written, or appended, is durable when the call returns. Asked by spools alone, which sync the file otherwise.
    fn is_durable(&self) -> bool {
        false
    }

    /// How many reads and writes of one thread it does at the same time by [`begin`](Target::begin). Asked once, when a queue is opened. 1: that is not
    /// called.
    fn in_flight(&self) -> usize {
        1
    }

    /// Begins to read or write, and does not block: a device does it meanwhile, or several do. An error is that of the request.
    fn begin(&self, mut transfer: Transfer) -> Begun {
        let position = transfer.position();
        let done = match transfer.direction() {
            Direction::Read(buffer) => self.read(buffer, position),
            Direction::Write(bytes) => self.write(bytes, position),
        };
        Begun::Done(transfer, done)
    }

    /// What was written before is durable when it returns; with `data_only`, what is needed to read it is.
    fn sync(&self, data_only: bool) -> Result<(), Errno>;
}

/// What a [`Target`] has begun.
pub enum Begun {
    /// It is done: how many bytes, as for [`Target::read`] and [`Target::write`].
    Done(Transfer, Result<usize, Errno>),
    /// It is not done yet.
    Underway(Box<dyn Underway>),
}

/// A read or a write that was begun. The thread that began it looks after it: it polls and waits, and goes on to others meanwhile. A panic in it
/// is EIO to whoever asked, and the buffer of a read is lost.
pub trait Underway: Send {
    /// How many bytes, if it has ended; as for [`Target::read`] and [`Target::write`]. Never blocks.
    fn poll(&mut self) -> Option<Result<usize, Errno>>;

    /// Blocks until it has ended, or for a while: it is polled afterwards.
    fn wait(&mut self);

    /// Gives the buffer back, once it was said to have ended.
    fn end(self: Box<Self>) -> Transfer;
}

/// The buffer of a read or a write, and where in the file it belongs. It is the target's until it has ended.
#[derive(Debug)]
pub struct Transfer {
    position: u64,
    buffer: Buffer,
}

#[derive(Debug)]
enum Buffer {
    Read(Vec<u8>),
    /// Reads are served from it meanwhile. What lies before some byte was written by another.
    Write(Arc<Vec<u8>>, usize),
}

/// Which way the bytes go.
#[derive(Debug)]
pub enum Direction<'t> {
    /// From the file to here.
    Read(&'t mut [u8]),
    /// From here to the file.
    Write(&'t [u8]),
}

impl Transfer {
    pub(crate) fn read(position: u64, buffer: Vec<u8>) -> Transfer {
        Transfer {
            position,
            buffer: Buffer::Read(buffer),
        }
    }

    /// Of a write, from a position on that lies in it.
    pub(crate) fn write(position: u64, bytes: Arc<Vec<u8>>, from: u64) -> Transfer {
        Transfer {
            position: from,
            buffer: Buffer::Write(bytes, (from - position) as usize),
        }
    }

    /// From which byte of the file on.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The bytes, and whether they are read or written.
    pub fn direction(&mut self) -> Direction<'_> {
        match &mut self.buffer {
            Buffer::Read(buffer) => Direction::Read(buffer),
            Buffer::Write(bytes, from) => Direction::Write(&bytes[*from..]),
        }
    }

    /// How many bytes.
    pub fn length(&self) -> usize {
        match &self.buffer {
            Buffer::Read(buffer) => buffer.len(),
            Buffer::Write(bytes, from) => bytes.len() - from,
        }
    }

    /// Of a read. A write's is kept with the request.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        match self.buffer {
            Buffer::Read(buffer) => buffer,
            Buffer::Write(..) => Vec::new(),
        }
    }
}
