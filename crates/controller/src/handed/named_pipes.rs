//! Named pipes: where their two ends meet in the kernel (DESIGN section 9).
//!
//! An inode of a named pipe that somebody opens has a FIFO of the host's in a directory of the pool's that no session
//! can search, mode 0600 and the controller's. Who may open the inode in a mode gets the FIFO freshly opened in that
//! mode; what is read, written and waited for there is the kernel's alone from then on, whether or not there is a
//! controller. The FIFO's mode keeps everybody but the controller's own user from opening his descriptor again in
//! another mode (`/proc/self/fd/N`): so what he has is what he was given.
//!
//! Who opens a named pipe without O_NONBLOCK waits for the other end. It cannot be the kernel's open in which a program
//! waits, since that needs the right to open the FIFO; and the controller's threads wait for nobody. So the program
//! gets one end of a socket, its *ticket*, and waits for what comes by that, as long as it likes and until a signal
//! interrupts it. Whoever opens the other end brings both together: the ends of those who wait are opened first, so
//! that whoever comes finds them there, as he finds those who wait in the kernel's open.
//!
//! # Invariants
//! * Only the thread that can be given up ([`super::careful`]) opens and closes FIFOs: who holds one's lock, with a write
//!   whose source never comes, holds up nobody else.
//! * Who waits has nothing open, so the kernel counts nobody who is not there. One who is interrupted, or dies, closes
//!   his ticket, and does not count from then on.
//! * What is asked of a FIFO takes nothing out of it and puts nothing in.
//! * A FIFO that somebody has open is the only one of its inode while that lives, whichever controller made it. Those of
//!   inodes that are gone are removed soon ([`NamedPipes::tidy`]), and when others are made; those that nobody has open too, where a user has made
//!   [`USER_MAX`]. At most [`WAITING_MAX`] tickets are out for one user.

use super::careful::Careful;
use super::nodes::{Key, Nodes, name};
use crate::pool::names::NAMED_PIPES;
use arck_protocol::socket::{Access, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, tee};
use std::collections::HashMap;

/// FIFOs that there are at one user's instance.
const USER_MAX: usize = 1024;
/// FIFOs of which it is looked whether their inodes are gone when one is made.
const LOOKED_AT: usize = 8;
/// FIFOs of which it is looked whether anybody has them open when a user has too many.
const LOOKED_INTO: usize = 64;
/// Tickets of one user.
const WAITING_MAX: usize = 512;
/// What a ticket's packets are: a descriptor comes with the first; its sender has closed it.
const HERE: &[u8] = &[1];
const GO: &[u8] = &[2];

/// One who waits for the other end.
#[derive(Debug)]
struct Waiting {
    user: u32,
    /// The controller's end.
    ticket: OwnedFd,
}

impl Waiting {
    /// Whether he still waits.
    fn is_there(&self) -> bool {
        let mut asked = [PollFd::new(&self.ticket, PollFlags::empty())];
        match poll(&mut asked, Some(&Timespec::default())) {
            Ok(_) => !asked[0]
                .revents()
                .intersects(PollFlags::HUP | PollFlags::ERR),
            Err(_) => true,
        }
    }
}

/// Those who wait at one FIFO.
#[derive(Default, Debug)]
struct Queue {
    readers: Vec<Waiting>,
    writers: Vec<Waiting>,
}

impl Queue {
    fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.readers.iter().chain(&self.writers)
    }

    fn retain_there(&mut self) {
        self.readers.retain(Waiting::is_there);
        self.writers.retain(Waiting::is_there);
    }

    fn is_empty(&self) -> bool {
        self.readers.is_empty() && self.writers.is_empty()
    }
}

/// What opening came to.
#[derive(Debug)]
pub enum Opened {
    /// The pipe, to be [closed](NamedPipes::close_one) when it was sent.
    Now(OwnedFd),
    /// The ticket.
    Later(OwnedFd),
}

/// What was opened at one FIFO.
struct Meeting {
    /// For who asked; `None`: nobody is at the other end.
    own: Option<OwnedFd>,
    /// For those who waited, as many as there were.
    readers: Vec<OwnedFd>,
    writers: Vec<OwnedFd>,
}

/// What is asked of one.
#[derive(Clone, Copy)]
struct Asked {
    access: Access,
    waits: bool,
    /// Who waits there.
    readers: usize,
    writers: usize,
}

/// All named pipes of a pool that somebody has opened.
#[derive(Debug)]
pub struct NamedPipes {
    nodes: Nodes,
    careful: Careful,
    waiting: HashMap<Key, Queue>,
}

impl NamedPipes {
    /// With what an earlier controller has left.
    pub fn open(pool: &OwnedFd, is_there: impl Fn(Key) -> bool) -> Result<NamedPipes, Errno> {
        let mut pipes = NamedPipes {
            nodes: Nodes::open(pool, NAMED_PIPES)?,
            careful: Careful::default(),
            waiting: HashMap::new(),
        };
        pipes.remove_gone(pipes.nodes.count(), is_there);
        Ok(pipes)
    }

    /// Opens an inode's FIFO for a user, who may open that so. `is_there`: whether an inode exists still. ENXIO,
    /// ENFILE, EBUSY; see [`Call::OpenPipe`](arck_protocol::socket::Call::OpenPipe).
    pub fn open_one(
        &mut self,
        pool: &OwnedFd,
        key: Key,
        (access, waits): (Access, bool),
        user: u32,
        is_there: impl Fn(Key) -> bool,
    ) -> Result<Opened, Errno> {
        self.careful.forget_returned();
        if !self.nodes.has(key) {
            self.make(pool, key, user, is_there)?;
        }
        let folder = self.nodes.directory().cloned().ok_or(Errno::NOENT)?;
        let mut queue = self.waiting.remove(&key).unwrap_or_default();
        queue.retain_there();
        let asked = Asked {
            access,
            waits,
            readers: queue.readers.len(),
            writers: queue.writers.len(),
        };
        let met = self.careful.has_done(key, user, move || {
            meet(&|mode| open(&folder, &name(key), mode), asked)
        });
        let met = match met.unwrap_or(Err(Errno::BUSY)) {
            Ok(met) => met,
            Err(errno) => {
                self.put_back(key, queue);
                return Err(errno);
            }
        };
        self.bring_in(key, user, met.readers, &mut queue.readers);
        self.bring_in(key, user, met.writers, &mut queue.writers);
        let opened = match (met.own, access) {
            (Some(own), _) => Ok(Opened::Now(own)),
            (None, _) if !waits => Err(Errno::NXIO),
            (None, access) => match self.ticket(user, &queue) {
                Ok((ticket, theirs)) => {
                    let waiting = Waiting { user, ticket };
                    match access {
                        Access::Read => queue.readers.push(waiting),
                        _ => queue.writers.push(waiting),
                    }
                    Ok(Opened::Later(theirs))
                }
                Err(errno) => Err(errno),
            },
        };
        self.put_back(key, queue);
        opened
    }

    /// Whether a descriptor is of an inode's FIFO.
    pub fn is_of(&self, key: Key, file: BorrowedFd<'_>) -> bool {
        self.nodes.is_of(key, file)
    }

    /// Closes what was opened, and waits for that unless it is stuck.
    pub fn close_one(&mut self, key: Key, user: u32, file: OwnedFd) {
        // What is stuck is closed when it is not any more.
        let _ = self.careful.has_done(key, user, move || drop(file));
    }

    fn put_back(&mut self, key: Key, queue: Queue) {
        if !queue.is_empty() {
            self.waiting.insert(key, queue);
        }
    }

    /// Gives those who waited what was opened for them.
    fn bring_in(&mut self, key: Key, user: u32, ends: Vec<OwnedFd>, waiting: &mut Vec<Waiting>) {
        if ends.is_empty() {
            return;
        }
        let who = waiting.drain(..ends.len().min(waiting.len()));
        let who: Vec<Waiting> = who.collect();
        for (one, end) in who.iter().zip(&ends) {
            // Who has gone away meanwhile has been there.
            let _ = send(one.ticket.as_fd(), HERE, &[end.as_fd()]);
        }
        let _ = self.careful.has_done(key, user, move || drop(ends));
        for one in who {
            let _ = send(one.ticket.as_fd(), GO, &[]);
        }
    }

    /// A socket by which something will come: the controller's end, and the other; for one who is to be in a queue that
    /// is looked at now.
    fn ticket(&mut self, user: u32, queue: &Queue) -> Result<(OwnedFd, OwnedFd), Errno> {
        let count = |waiting: &HashMap<Key, Queue>| {
            let all = waiting.values().chain([queue]).flat_map(Queue::all);
            all.filter(|one| one.user == user).count()
        };
        if count(&self.waiting) >= WAITING_MAX {
            self.waiting.retain(|_, queue| {
                queue.retain_there();
                !queue.is_empty()
            });
            if count(&self.waiting) >= WAITING_MAX {
                return Err(Errno::NFILE);
            }
        }
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (own, theirs) = pair.map_err(|_| Errno::NFILE)?;
        rustix::fs::fcntl_setfl(&own, OFlags::NONBLOCK)?;
        Ok((own, theirs))
    }

    fn make(
        &mut self,
        pool: &OwnedFd,
        key: Key,
        user: u32,
        is_there: impl Fn(Key) -> bool,
    ) -> Result<(), Errno> {
        self.remove_gone(LOOKED_AT, is_there);
        if self.nodes.has_as_many(user, USER_MAX) {
            self.remove_closed(LOOKED_INTO);
            if self.nodes.has_as_many(user, USER_MAX) {
                return Err(Errno::NFILE);
            }
        }
        let folder = self.nodes.made_directory(pool)?;
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::mknodat(folder, name(key), FileType::Fifo, mode, 0) {
            // One that could not be removed.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        self.nodes.note(key, user);
        Ok(())
    }

    /// Removes those whose inodes are gone, of so many: to be called now and then.
    pub fn tidy(&mut self, most: usize, is_there: impl Fn(Key) -> bool) {
        self.remove_gone(self.nodes.count().min(most), is_there);
    }

    /// Removes of the next so many those whose inodes are gone: whoever has them open has them without a name.
    fn remove_gone(&mut self, count: usize, is_there: impl Fn(Key) -> bool) {
        for _ in 0..count {
            let Some(key) = self.nodes.next() else {
                return;
            };
            match is_there(key) {
                true => self.nodes.keep(key),
                false => self.remove(key),
            }
        }
    }

    /// Removes of the next so many those that nobody has open or waits for. Somebody who reads without waiting, and has
    /// had nobody who writes, is told by that look that one has come and gone: so it is made where there are too
    /// many alone.
    fn remove_closed(&mut self, count: usize) {
        for _ in 0..count {
            let Some(key) = self.nodes.next() else {
                return;
            };
            match self.is_open(key) {
                true => self.nodes.keep(key),
                false => self.remove(key),
            }
        }
    }

    fn remove(&mut self, key: Key) {
        self.careful.forget(key);
        self.nodes.remove(key);
    }

    /// If that cannot be told, it counts as open.
    fn is_open(&mut self, key: Key) -> bool {
        if let Some(queue) = self.waiting.get_mut(&key) {
            queue.retain_there();
            if !queue.is_empty() {
                return true;
            }
            self.waiting.remove(&key);
        }
        let Some(folder) = self.nodes.directory().cloned() else {
            return false;
        };
        // An earlier controller's counts to nobody; no user has this number.
        let user = self.nodes.user_of(key).unwrap_or(u32::MAX);
        let look = move || is_open(&|mode| open(&folder, &name(key), mode));
        self.careful.has_done(key, user, look).unwrap_or(true)
    }

    /// At the controller's end: those that nobody has open go, and if that are all, the directory too.
    pub fn close(&mut self, pool: &OwnedFd) {
        self.remove_closed(self.nodes.count());
        self.nodes.close(pool);
    }
}

/// Opens the FIFO for who asks and for those who have waited for him, so that each finds the others.
fn meet(open: &dyn Fn(OFlags) -> Result<OwnedFd, Errno>, asked: Asked) -> Result<Meeting, Errno> {
    let many = |count: usize, mode: OFlags| -> Result<Vec<OwnedFd>, Errno> {
        let ends = (0..count)
            .map(|_| open(mode))
            .collect::<Result<Vec<_>, _>>()?;
        ends.iter().try_for_each(wait_in)?;
        Ok(ends)
    };
    let readers = |count| many(count, OFlags::RDONLY);
    let writers = |count| many(count, OFlags::WRONLY);
    let met = match asked.access {
        Access::ReadWrite => {
            let own = open(OFlags::RDWR)?;
            Meeting {
                readers: readers(asked.readers)?,
                writers: writers(asked.writers)?,
                own: Some(own),
            }
        }
        Access::Write => {
            let readers = readers(asked.readers)?;
            let own = match open(OFlags::WRONLY) {
                Ok(own) => Some(own),
                Err(Errno::NXIO) => None,
                Err(errno) => return Err(errno),
            };
            Meeting {
                own,
                readers,
                writers: Vec::new(),
            }
        }
        Access::Read => {
            let own = open(OFlags::RDONLY)?;
            let writers = writers(asked.writers)?;
            let is_alone = asked.waits && writers.is_empty() && !has_writer(&own, open)?;
            Meeting {
                own: (!is_alone).then_some(own),
                readers: Vec::new(),
                writers,
            }
        }
    };
    if asked.waits {
        met.own.iter().try_for_each(wait_in)?;
    }
    Ok(met)
}

/// Whoever has it waits in it, as without O_NONBLOCK.
fn wait_in(file: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::fcntl_setfl(file, OFlags::empty())
}

/// Whether somebody may write into what was opened for reading a moment ago.
fn has_writer(
    reader: &OwnedFd,
    open: &dyn Fn(OFlags) -> Result<OwnedFd, Errno>,
) -> Result<bool, Errno> {
    let (_end, scratch) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // Copies without taking anything out.
    match tee(reader, scratch, 1, SpliceFlags::NONBLOCK) {
        Ok(0) => Ok(false),
        Err(Errno::AGAIN) => Ok(true),
        // Whoever has written that may be gone. To a reader that has had a writer, the kernel says so: this one has had
        // one in a moment.
        Ok(_) => {
            drop(open(OFlags::WRONLY)?);
            let mut asked = [PollFd::new(reader, PollFlags::IN)];
            poll(&mut asked, Some(&Timespec::default()))?;
            Ok(!asked[0].revents().contains(PollFlags::HUP))
        }
        Err(errno) => Err(errno),
    }
}

/// Whether anybody has a FIFO open.
fn is_open(open: &dyn Fn(OFlags) -> Result<OwnedFd, Errno>) -> bool {
    match open(OFlags::WRONLY) {
        // Nobody reads.
        Err(Errno::NXIO) => {}
        Err(Errno::NOENT) => return false,
        _ => return true,
    }
    let Ok(reader) = open(OFlags::RDONLY) else {
        return true;
    };
    has_writer(&reader, open).unwrap_or(true)
}

/// Opens one, without waiting for anybody. Its flags are those that a program has given, so that they say the same.
fn open(folder: &OwnedFd, name: &str, access: OFlags) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests;
