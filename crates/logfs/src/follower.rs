//! Following a log: reading what is appended, as soon as it is.
//!
//! # Invariants
//! * What a follower has read was durable, and nothing is left out or told twice.
//! * In the session of those who append, no message is sent: the size of the last section is looked at in shared memory, for a
//!   moment again and again, then the follower sleeps on the log's [bell](crate::state).
//! * Where another session appends, each look has the controller fold what that has appended: a recall. It stops the
//!   writers for a moment, so the follower takes along all that there is ([`AHEAD`] at most), and pauses between two looks for
//!   several times as long as the last one took, and longer each time when there was nothing.

use crate::reading::Looked;
use crate::sections::Section;
use crate::state::LOOK;
use crate::{Error, Here, Log};
use rustix::io::Errno;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long a follower looks again and again before it sleeps.
const EAGER: Duration = Duration::from_micros(15);
/// After a look that asked the controller, a pause is so many times as long.
const PAUSES: u32 = 8;
/// The longest of these pauses.
const PAUSE_MOST: Duration = Duration::from_millis(10);

/// Bytes that are read ahead by a look that asked the controller.
const AHEAD: usize = 1 << 18;

/// The log that is followed.
#[derive(Clone)]
enum Followed<'l> {
    Borrowed(&'l Log),
    Shared(Arc<Log>),
}

impl Deref for Followed<'_> {
    type Target = Log;
    fn deref(&self) -> &Log {
        match self {
            Followed::Borrowed(log) => log,
            Followed::Shared(log) => log,
        }
    }
}

/// Reads a log from a position on, and waits for more. Each belongs to one thread at a time; there may be many. Ends with
/// the borrow of its log, or keeps it open ([`follow_shared`](Log::follow_shared)).
pub struct Follower<'l> {
    log: Followed<'l>,
    position: u64,
    section: Option<Section>,
    /// Until then it does not ask the controller, and how long the pause before that was.
    rests: Option<(Instant, Duration)>,
    /// What was read ahead, and how much of that has been told.
    ahead: Vec<u8>,
    told: usize,
}

impl Log {
    /// Follows the log from a position on, which may be its end. ENODATA: that was cut off. EINVAL: the log ends before.
    pub fn follow(&self, position: u64) -> Result<Follower<'_>, Error> {
        Follower::new(Followed::Borrowed(self), position)
    }

    /// The same, where the follower is to be kept beside its log, or goes to another thread. As
    /// [`follow`](Log::follow).
    pub fn follow_shared(self: &Arc<Log>, position: u64) -> Result<Follower<'static>, Error> {
        Follower::new(Followed::Shared(Arc::clone(self)), position)
    }
}

impl<'l> Follower<'l> {
    fn new(log: Followed<'l>, position: u64) -> Result<Follower<'l>, Error> {
        let (section, _) = log.here()?.read_at(position, &mut [])?;
        Ok(Follower {
            log,
            position,
            section: Some(section),
            rests: None,
            ahead: Vec::new(),
            told: 0,
        })
    }
}

impl Follower<'_> {
    /// Where the next bytes come from.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads what follows: as much of it as there is and the buffer has room for, from one section; records may be cut
    /// where the buffer ends. Where there is nothing it blocks until there is, or until `timeout` is over, and gives 0 then. EINVAL for
    /// a buffer of no bytes. ENODATA: what follows was cut off. EBADMSG, EACCES, EIO.
    pub fn next(&mut self, buffer: &mut [u8], timeout: Duration) -> Result<usize, Error> {
        if buffer.is_empty() {
            return Err(Errno::INVAL.into());
        }
        let ahead = self.take_ahead(buffer);
        if ahead != 0 {
            return Ok(ahead);
        }
        let log = self.log.clone();
        let here = log.here()?;
        let begun = Instant::now();
        let mut eager = begun;
        loop {
            if !self.has_rested(timeout.saturating_sub(begun.elapsed())) {
                return Ok(0);
            }
            let read = self.look(here, buffer)?;
            if read != 0 || begun.elapsed() >= timeout {
                return Ok(read);
            }
            if self.rests.is_some() {
                continue;
            }
            if eager.elapsed() < EAGER {
                std::hint::spin_loop();
                continue;
            }
            let Some(bell) = here.bell else {
                std::thread::sleep(LOOK.min(timeout.saturating_sub(begun.elapsed())));
                continue;
            };
            let rung = bell.await_next();
            let read = self.look(here, buffer)?;
            if read != 0 {
                return Ok(read);
            }
            if self.rests.is_none() {
                bell.sleep(rung, LOOK.min(timeout.saturating_sub(begun.elapsed())));
            }
            eager = Instant::now();
        }
    }

    /// Tells what was read ahead; gives how much it was.
    fn take_ahead(&mut self, buffer: &mut [u8]) -> usize {
        let left = &self.ahead[self.told..];
        let length = left.len().min(buffer.len());
        buffer[..length].copy_from_slice(&left[..length]);
        self.told += length;
        self.position += length as u64;
        length
    }

    /// Pauses before a look that may ask the controller again; false if there is not so much time.
    fn has_rested(&self, most: Duration) -> bool {
        let Some((until, _)) = self.rests else {
            return true;
        };
        let left = until.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(most));
        left <= most
    }

    /// Looks once; gives how much was read.
    fn look(&mut self, here: &Here, buffer: &mut [u8]) -> Result<usize, Error> {
        let begun = Instant::now();
        let session = here.members.session;
        let header = self.section.and_then(|one| session.header(one.file.number));
        let owner = header.map_or(0, |header| header.ownership().session());
        let asks = owner != 0 && owner != session.number();
        let read = match asks && buffer.len() < AHEAD {
            true => {
                let mut ahead = std::mem::take(&mut self.ahead);
                ahead.resize(AHEAD, 0);
                let read = self.look_at_sections(here, &mut ahead)?;
                ahead.truncate(read);
                (self.ahead, self.told) = (ahead, 0);
                self.take_ahead(buffer)
            }
            false => {
                let read = self.look_at_sections(here, buffer)?;
                self.position += read as u64;
                read
            }
        };
        self.rests = asks.then(|| {
            let now = Instant::now();
            let of_this = (now - begun) * PAUSES;
            let pause = match self.rests {
                Some((_, last)) if read == 0 => of_this.max(last * 2),
                _ => of_this,
            };
            let pause = pause.min(PAUSE_MOST);
            (now + pause, pause)
        });
        Ok(read)
    }

    fn look_at_sections(&mut self, here: &Here, buffer: &mut [u8]) -> Result<usize, Error> {
        if let Some(section) = self.section {
            match here.look(section, self.position, buffer) {
                Ok(Looked::Read(read)) => return Ok(read),
                Ok(Looked::End { size }) if size < here.limit => return Ok(0),
                // Full, or not as it was: found anew.
                Ok(_) | Err(Errno::STALE) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let (section, looked) = here.read_at(self.position, buffer)?;
        self.section = Some(section);
        match looked {
            Looked::Read(read) => Ok(read),
            _ => Ok(0),
        }
    }
}
