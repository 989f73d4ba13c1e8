//! Queues whose writes are durable as soon as they are queued: each is written into a *spool* first, a ring of records in a file
//! (CrossFS, OSDI 2020, section 3: queues "in persistent memory"; its firmware replays them, here it is whoever opens the spool).
//!
//! A write, or an append, of such a queue is in the spool when it has been submitted. When it is done its record is marked, and then it
//! completes. After a crash, or where the process was killed, the records that are not marked are done again, in their order
//! ([`Spool::replay`]), before the spool takes others.
//!
//! | module | idea |
//! | --- | --- |
//! | `layout` | what stands in the file |
//! | `ring` | which part of it is in use |
//! | `reading` | what a crash has left |
//! | `replay` | doing it |
//! | `locked` | that one process has it |
//! | `own` | whose it is |
//!
//! # Invariants
//! * Records are in the order of the timestamps of their requests: both are given under the spool's lock.
//! * A record is durable, as a whole, before the next is written: so those that were acknowledged are those before the first that is not
//!   whole.
//! * A record is marked when what it says is durable in its file, and before anybody is told that it is done: what is
//!   replayed is older than no write of its file that somebody made because he had been told.
//! * What a mark of the ring's beginning frees is written over after that mark is durable.
//!
//! # Locks
//! `state` of a spool, for one record or mark; under it the lock of `workers` is taken, for a step of the engine, and the spool's file is called, which is therefore
//! not the target of a queue with the same spool.

mod layout;
mod locked;
mod own;
mod reading;
mod replay;
mod ring;
#[cfg(all(test, not(shuttle)))]
mod tests;

pub use locked::Locked;
pub use reading::{Left, Replayed};

use crate::caught::caught;
use crate::primitive::{Mutex, MutexGuard, lock};
use crate::target::{FileIdentity, Target};
use layout::{Head, Kind, Mark, Record};
use reading::{settle, write_whole};
use ring::Ring;
use rustix::io::Errno;
use std::sync::Arc;

/// Bytes that are written at once where a spool is made.
const PIECE: u64 = 1 << 20;

/// A file in which queued writes are kept: see [`Queues::open_spooled`](crate::Queues::open_spooled). One process has it open at a time,
/// which is for whoever opens it to see to ([`Locked`]).
pub struct Spool {
    file: Arc<dyn Target>,
    head: Head,
    state: Mutex<State>,
    /// Held by who replays.
    replays: Mutex<()>,
    /// The process that has it open.
    process: u32,
}

struct State {
    ring: Ring,
    epoch: u64,
    turn: u64,
    /// A record, as it is written.
    record: Vec<u8>,
    /// What was queued before it was opened is not all done.
    is_to_be_replayed: bool,
    /// Where a record is being written; after a failure something may stand there.
    is_writing_at: Option<u64>,
    /// A store into the file has failed: what stands there is not known.
    broken: Option<Errno>,
}

/// Where a request stands in a spool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Spooled(pub(crate) u64);

/// What is spooled of a request.
pub(crate) struct Kept<'r> {
    /// Where; `None`: at the file's end.
    pub position: Option<u64>,
    pub bytes: &'r [u8],
    pub file: FileIdentity,
    /// By which the file is found after a crash.
    pub name: &'r [u8],
}

impl Spool {
    /// Bytes of a ring, at least.
    pub const SIZE_MIN: u64 = *layout::SIZES.start();
    /// Bytes of a ring, at most.
    pub const SIZE_MAX: u64 = *layout::SIZES.end();
    /// Bytes of a file's name, at most.
    pub const NAME_MAX: usize = layout::NAME_MAX;

    /// Makes a spool of a file, whatever stands there, with a ring of `size` bytes (rounded down to lines of 128), and opens it. All of it is
    /// written, so that queueing needs no space. Durable when it returns.
    ///
    /// # Errors
    /// EINVAL: a size that there is not. Or what the file says, and then it is no spool.
    pub fn make(file: Arc<dyn Target>, size: u64) -> Result<Spool, Errno> {
        if !Spool::is_size(size) {
            return Err(Errno::INVAL);
        }
        let size = size / layout::UNIT * layout::UNIT;
        let mut identity = layout::Identity::default();
        rustix::rand::getrandom(&mut identity, rustix::rand::GetRandomFlags::empty())?;
        // What was there is no spool any more, before anything else is changed.
        write_whole(&*file, layout::MAKING, 0)?;
        settle(&*file)?;
        let nothing = vec![0; PIECE as usize];
        let end = layout::RING + size;
        let mut position = layout::MAKING.len() as u64;
        while position < end {
            let length = (end - position).min(PIECE);
            write_whole(&*file, &nothing[..length as usize], position)?;
            position += length;
        }
        let head = Head { identity, size }.encode();
        let mark = Mark {
            turn: 1,
            tail: 0,
            epoch: 0,
        };
        let (magic, rest) = head.split_at(layout::MAKING.len());
        write_whole(&*file, &mark.encode(&identity), layout::MARKS[1])?;
        write_whole(&*file, rest, magic.len() as u64)?;
        // Whoever finds the magic number finds the rest.
        settle(&*file)?;
        write_whole(&*file, magic, 0)?;
        settle(&*file)?;
        Spool::open(file)
    }

    /// Whether there are spools with so many bytes.
    pub fn is_size(size: u64) -> bool {
        layout::SIZES.contains(&(size / layout::UNIT * layout::UNIT))
    }

    /// Opens a spool, or makes one of `size` bytes of a file in which nothing stands: that has no bytes, or is what is left of one that was being made.
    ///
    /// # Errors
    /// As [`Spool::open`] and [`Spool::make`].
    pub fn open_or_make(file: Arc<dyn Target>, size: u64) -> Result<Spool, Errno> {
        match reading::is_nothing(&*file)? {
            true => Spool::make(file, size),
            false => Spool::open(file),
        }
    }

    /// Opens a spool, and finds what was queued and not done. As long as there is some, no queue is opened with it: see
    /// [`Spool::replay`].
    ///
    /// # Errors
    /// EBADMSG: the file is no spool, or is damaged. Or what the file says.
    pub fn open(file: Arc<dyn Target>) -> Result<Spool, Errno> {
        let head = reading::head(&*file)?;
        let mark = reading::mark(&*file, &head)?;
        let mut state = State {
            ring: Ring::new(head.size, mark.tail),
            epoch: mark.epoch,
            turn: mark.turn,
            record: Vec::new(),
            is_to_be_replayed: false,
            is_writing_at: None,
            broken: None,
        };
        reading::find(&*file, &head, mark.epoch, &mut state.ring)?;
        state.is_to_be_replayed = !state.ring.is_empty();
        // From here on nothing is taken for a record that was written before and was not whole.
        state.epoch += 1;
        state.mark(&*file, &head)?;
        Ok(Spool {
            file,
            head,
            state: Mutex::new(state),
            replays: Mutex::new(()),
            process: std::process::id(),
        })
    }

    /// Whether everything that was queued is done; false in a forked child, which does not know.
    pub fn is_empty(&self) -> bool {
        self.is_here().is_ok() && lock(&self.state).ring.is_empty()
    }

    /// ESTALE in a forked child: whoever held the locks in its parent may never give them back here.
    pub(crate) fn is_here(&self) -> Result<(), Errno> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(Errno::STALE),
        }
    }

    /// Whether a queue can be opened with it, for such a file. ESTALE: in a forked child. EBUSY: it has to be replayed first. EINVAL: it is the spool's own. ENAMETOOLONG.
    pub(crate) fn admits(&self, file: FileIdentity, name: &[u8]) -> Result<(), Errno> {
        self.is_here()?;
        match () {
            () if name.len() > layout::NAME_MAX => Err(Errno::NAMETOOLONG),
            () if file == self.file.identity() => Err(Errno::INVAL),
            () if lock(&self.state).is_to_be_replayed => Err(Errno::BUSY),
            () => Ok(()),
        }
    }

    /// Takes the lock under which requests are spooled and get their timestamps.
    pub(crate) fn begin(&self) -> Spooling<'_> {
        Spooling {
            spool: self,
            state: lock(&self.state),
        }
    }

    /// An append is about to be done, at a file's end.
    pub(crate) fn begins(&self, record: Spooled, end: u64) -> Result<(), Errno> {
        let bytes = layout::begun(&self.head.identity, record.0, end);
        let offset = self.head.offset(record.0) + layout::offsets::END as u64;
        let begun = caught(|| {
            write_whole(&*self.file, &bytes, offset)?;
            settle(&*self.file)
        });
        self.note(begun.unwrap_or(Err(Errno::IO)))
    }

    /// A record needs not be done again: what came of it, in its file, is made durable first. What fails, or panics, ends the spool: no
    /// later record is marked, since that one would be done again without it.
    pub(crate) fn done(&self, record: Spooled, target: &dyn Target) -> Result<(), Errno> {
        let done = caught(|| {
            settle(target)?;
            self.forget(record)
        });
        self.note(done.unwrap_or(Err(Errno::IO)))
    }

    /// A record is not done again.
    fn forget(&self, record: Spooled) -> Result<(), Errno> {
        // Where one could not be marked none is that comes later: it would be done without the later one.
        if let Some(errno) = lock(&self.state).broken {
            return Err(errno);
        }
        let bytes = layout::done(&self.head.identity, record.0);
        let offset = self.head.offset(record.0) + layout::offsets::STATE as u64;
        write_whole(&*self.file, &bytes, offset)?;
        settle(&*self.file)?;
        lock(&self.state).ring.done(record.0);
        Ok(())
    }

    fn note(&self, written: Result<(), Errno>) -> Result<(), Errno> {
        if let Err(errno) = written {
            lock(&self.state).broken.get_or_insert(errno);
        }
        written
    }
}

/// The lock of a spool: see [`Spool::begin`].
pub(crate) struct Spooling<'s> {
    spool: &'s Spool,
    state: MutexGuard<'s, State>,
}

impl Spooling<'_> {
    /// Writes a request into the spool. It is durable when this returns.
    ///
    /// # Errors
    /// EMSGSIZE: it is longer than half the ring, or its name is too long. EAGAIN: there is no room until something is done. Or what the spool's
    /// file said, now or before; EIO if it panics.
    pub fn keep(&mut self, kept: &Kept<'_>) -> Result<Spooled, Errno> {
        if let Some(errno) = self.state.broken {
            return Err(errno);
        }
        let done = caught(|| self.write(kept)).unwrap_or(Err(Errno::IO));
        let Err(errno) = done else { return done };
        let written = self.state.is_writing_at.take();
        if written.is_some() || !matches!(errno, Errno::MSGSIZE | Errno::AGAIN) {
            self.state.broken.get_or_insert(errno);
        }
        if let Some(at) = written {
            // Nothing is written behind what stands there now, which nobody was promised: if it can be, it is made none. Where nothing
            // was written, what was promised may stand: in a full ring its oldest record.
            let Spool { file, head, .. } = self.spool;
            let _ = caught(|| file.write(&[0; layout::HEADER_LENGTH], head.offset(at)));
        }
        done
    }

    fn write(&mut self, kept: &Kept<'_>) -> Result<Spooled, Errno> {
        let Spool { file, head, .. } = self.spool;
        let state = &mut *self.state;
        let mut record = Record {
            at: 0,
            epoch: state.epoch,
            kind: match kept.position {
                Some(_) => Kind::Write,
                None => Kind::Append,
            },
            file: kept.file,
            position: kept.position.unwrap_or(0),
            length: kept.bytes.len().try_into().map_err(|_| Errno::MSGSIZE)?,
            name_length: kept.name.len().try_into().map_err(|_| Errno::MSGSIZE)?,
        };
        if record.total() > head.size / 2 || kept.name.len() > layout::NAME_MAX {
            return Err(Errno::MSGSIZE);
        }
        let place = state.ring.place(record.total()).ok_or(Errno::AGAIN)?;
        if place.is_told_first {
            state.mark(&**file, head)?;
        }
        if place.skipped > 0 {
            let skip = Record {
                at: state.ring.head(),
                kind: Kind::Skip,
                position: 0,
                length: place.skipped.try_into().map_err(|_| Errno::MSGSIZE)?,
                name_length: 0,
                ..record
            };
            state.write(&**file, head, &skip, (b"", b""))?;
            state.ring.skip(place.skipped);
        }
        record.at = place.at;
        state.write(&**file, head, &record, (kept.name, kept.bytes))?;
        state.ring.add(record.at, record.total());
        Ok(Spooled(record.at))
    }
}

impl State {
    /// Says in the file where the ring begins.
    fn mark(&mut self, file: &dyn Target, head: &Head) -> Result<(), Errno> {
        let turn = self.turn + 1;
        let mark = Mark {
            turn,
            tail: self.ring.tail(),
            epoch: self.epoch,
        };
        let offset = layout::MARKS[(turn % 2) as usize];
        write_whole(file, &mark.encode(&head.identity), offset)?;
        settle(file)?;
        self.turn = turn;
        self.ring.is_told();
        Ok(())
    }

    fn write(
        &mut self,
        file: &dyn Target,
        head: &Head,
        record: &Record,
        bytes: (&[u8], &[u8]),
    ) -> Result<(), Errno> {
        record.encode(&head.identity, bytes, &mut self.record);
        self.is_writing_at = Some(record.at);
        write_whole(file, &self.record, head.offset(record.at))?;
        settle(file)?;
        self.is_writing_at = None;
        Ok(())
    }
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool")
            .field("file", &self.file.identity())
            .field("size", &self.head.size)
            .finish_non_exhaustive()
    }
}
