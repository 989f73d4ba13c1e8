//! An append-only log as a LibFS: for write-ahead logs and streams of events, which many append to and some follow.
//!
//! A [`Log`] is a directory of a pool. What is appended to it is a stream of bytes; a *position* in it is a `u64`, the
//! number of bytes before. The stream lies in ordinary files, its *sections*, each named by the position of its
//! first byte in 20 digits: so `cat LOG/*`, `tail -f`, `grep` and `cp` work on it, and every program that reads files. A record is whatever
//! was appended at once, and stands there as it was given, with nothing before, between or behind: how records are told
//! from each other (a newline, a length) is the caller's business.
//!
//! ```no_run
//! use arck_logfs::{Log, Options};
//! use std::time::Duration;
//!
//! fn main() -> Result<(), arck_logfs::Error> {
//!     let options = Options { make: true, ..Options::new("/dev/shm/my-pool") };
//!     let log = Log::open(options, "events")?;
//!     // All threads may append at once. It is durable when this returns.
//!     let position = log.append(b"something happened\n")?;
//!     let mut follower = log.follow(position)?;
//!     let mut buffer = vec![0; 1 << 16];
//!     let read = follower.next(&mut buffer, Duration::from_secs(1))?;
//!     assert_eq!(&buffer[..read], b"something happened\n");
//!     // What is below is not needed any more: whole sections of that go.
//!     log.cut(position)?;
//!     log.close()
//! }
//! ```
//!
//! What makes it fast (the ideas are those of databases' write-ahead logs, with flat combining):
//!
//! * `commits`: threads that append at the same time are committed together, by one of them;
//! * a commit is bytes, a fence, one store of the size, a fence: there are no descriptors, offsets or maps on the way;
//! * a follower in the same session looks at the size in shared memory, and sleeps on a word there: no message. One in another
//!   session causes one recall for each batch that it reads.
//!
//! # What a crash leaves
//! * What has returned is there, each record as a whole. Of those that had not returned each is there as a whole or not at
//!   all, and none is without all that were acknowledged before it was appended: the stream is a prefix of the order in which records
//!   were committed. [`Log::append_all`] is one record in this respect.
//! * A cut that has returned stays. One that had not has taken away sections from the first on, or none.
//!
//! # Invariants
//! * What has been appended never changes, until it is cut off. Each byte of the stream has one position for ever.
//! * A record lies in one section. All are appended to the last; the next begins when that has reached the log's limit
//!   ([`Options::section`]), which is the log's and kept with it.
//! * The controller knows nothing of logs, and checks what it checks of all files. Who may write the files by other means (a shell's
//!   `>>`) can spoil the stream: that is found by who reads it (EBADMSG), or taken for records.
//!
//! # Modules
//! From below: `error`. `state`: bells of followers, in memory of the group. `members`: what is done when a member has died. `append`: one commit. `limit`, `sections`: how long sections become,
//! and their names. `commits`: group commit. `reading`, `follower`.
//!
//! # Locks, in this order
//! * The lead of the `commits`, of a process: who appends, and `current`, the section that is appended to.
//! * `known`, sections that were found, of a process: for a look.
//! * The kit's: a section's inode (its bytes and size, in all processes of a group), the directory's (names).
//!
//! Neither of the first two is taken under one of the kit's, and nobody waits for a message under the second.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/log.md")]
struct Page;

mod append;
mod commits;
mod error;
mod follower;
mod limit;
mod members;
mod reading;
mod sections;
mod state;

pub use error::{Error, RECORD_MAX};
pub use follower::Follower;

use append::{Appended, make_durable};
use arck_libfs_kit::Session;
use arck_libfs_kit::engine::{Engine, Way};
use arck_libfs_kit::names::creations::Creation;
use arck_libfs_kit::per_process::PerProcess;
use arck_libfs_kit::session::{REGION_SIZE, SessionOptions};
use commits::{Commits, Left};
use error::TURNS;
use members::Members;
use rustix::io::Errno;
use sections::{InDirectory, Known, Section, SectionFile};
use state::{Bell, Bells};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of a section, unless something else is said: 64 MiB.
pub const SECTION: u64 = 64 << 20;

/// How a log is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The pool's directory.
    pub pool: PathBuf,
    /// The trust group to be one of: processes that name the same share a session, and follow each other without
    /// messages. They are to be of one user, and of this LibFS and version. Empty: a session of this process alone.
    pub group: String,
    /// Whether the log is made, with its directories, if there is none.
    pub make: bool,
    /// Bytes of a section, from 1 on, at which the next one begins, where the log is made: a log that there is keeps its
    /// own. Cutting takes away whole sections; each costs an inode and some pages.
    pub section: u64,
    /// Permission bits of new sections; those of directories follow.
    pub mode: u32,
    /// How long to wait for a controller where nobody serves the pool.
    pub patience: Duration,
}

impl Options {
    /// Of a pool: no group, nothing made, sections of [`SECTION`] bytes, mode 0644, and no patience.
    pub fn new(pool: impl Into<PathBuf>) -> Options {
        Options {
            pool: pool.into(),
            group: String::new(),
            make: false,
            section: SECTION,
            mode: 0o644,
            patience: Duration::ZERO,
        }
    }
}

/// A log that is open. All threads may use it. A forked child may, too: at its first need it opens a session of its own
/// (in the same group, if there is one), and the log by its path again. Dropped, it ends its session, as
/// [`close`](Log::close) does; after that there is nothing to call.
pub struct Log {
    options: Options,
    path: String,
    here: PerProcess<Here>,
}

/// A record that was [enqueued](Log::enqueue). Dropped, it is committed all the same, with the next.
#[must_use = "it is durable only when it is committed"]
pub struct Enqueued {
    left: Left,
    /// In which session of which process.
    of: usize,
}

/// What is kept of a session.
struct Here {
    members: Members,
    /// Number and generation.
    directory: (u32, u32),
    create: Creation<'static>,
    /// Bytes from which on a section takes no more.
    limit: u64,
    bell: Option<&'static Bell>,
    commits: Commits,
    current: Current,
    known: Mutex<Known>,
}

/// The section that is appended to, as far as this process knows. Used by who leads the commits alone, so it needs
/// no lock of its own.
struct Current {
    begin: AtomicU64,
    /// Inode number, and generation in the high half.
    file: AtomicU64,
    life: AtomicU64,
}

impl Current {
    fn of(section: Section) -> Current {
        let SectionFile {
            number,
            generation,
            life,
        } = section.file;
        Current {
            begin: AtomicU64::new(section.begin),
            file: AtomicU64::new(u64::from(number) | u64::from(generation) << 32),
            life: AtomicU64::new(life),
        }
    }

    #[inline]
    fn get(&self) -> Section {
        let file = self.file.load(Ordering::Relaxed);
        Section {
            begin: self.begin.load(Ordering::Relaxed),
            file: SectionFile {
                number: file as u32,
                generation: (file >> 32) as u32,
                life: self.life.load(Ordering::Relaxed),
            },
        }
    }

    fn set(&self, section: Section) {
        let next = Current::of(section);
        self.begin.store(next.begin.into_inner(), Ordering::Relaxed);
        self.file.store(next.file.into_inner(), Ordering::Relaxed);
        self.life.store(next.life.into_inner(), Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What they protect is copied in and out as a whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(options: &Options, path: &str) -> Result<PerProcess<Here>, Error> {
    if options.section == 0 {
        return Err(Errno::INVAL.into());
    }
    let wish = SessionOptions {
        patience: options.patience,
        group: options.group.as_bytes(),
        region_size: REGION_SIZE,
        prepare: Bells::create,
        structures: state::FINGERPRINT,
    };
    let session = Session::connect_with(&options.pool, &wish)?;
    let opened = open(session, options, path, Bells::of);
    opened.inspect_err(|_| session.end())
}

/// Where the bell of a log stands, by the number of its directory.
type FindsBell = fn(&'static Session, u32) -> Option<&'static Bell>;

fn open(
    session: &'static Session,
    options: &Options,
    path: &str,
    bell: FindsBell,
) -> Result<PerProcess<Here>, Error> {
    let members = Members { session };
    let engine = Engine::new(session, &members);
    let create = Creation::file(options.mode);
    let made = options.make.then_some(Creation {
        // Who may read may search.
        mode: options.mode | (options.mode & 0o444) >> 2,
        ..create
    });
    let directory = engine.run(Way::Names, |context| {
        let found = context.directory_at(path.as_bytes(), made)?;
        Ok((found.number(), found.generation()))
    })?;
    let within = InDirectory {
        engine,
        directory,
        create,
    };
    let limit = within.limit(options.make.then_some(options.section))?;
    let all = within.list()?;
    let last = match all.last() {
        Some(&last) => last,
        None => within.find_or_make(0, None)?,
    };
    let mut known = Known::default();
    known.replace(&all);
    known.note(last);
    let here = Here {
        bell: bell(session, directory.0),
        members,
        directory,
        create,
        limit,
        commits: Commits::default(),
        current: Current::of(last),
        known: Mutex::new(known),
    };
    Ok(PerProcess::new(session, here))
}

impl Here {
    fn engine(&self) -> Engine<'_> {
        Engine::new(self.members.session, &self.members)
    }

    fn in_directory(&self) -> InDirectory<'_> {
        InDirectory {
            engine: self.engine(),
            directory: self.directory,
            create: self.create,
        }
    }

    fn note(&self, section: Section) {
        lock(&self.known).note(section);
    }

    /// All sections, looked up again.
    fn list(&self) -> Result<Vec<Section>, Errno> {
        let all = self.in_directory().list()?;
        lock(&self.known).replace(&all);
        Ok(all)
    }

    /// The last section, looked up again. ENOENT: the log is gone.
    fn last(&self) -> Result<Section, Errno> {
        self.list()?.last().copied().ok_or(Errno::NOENT)
    }

    /// Commits all these bytes as one record; gives where it begins. By who leads.
    fn commit(&self, parts: &[&[u8]]) -> Result<u64, Errno> {
        let engine = self.engine();
        for turn in 0..TURNS {
            let section = self.current.get();
            let next = match engine
                .run_local(|context| append::append(context, section.file, self.limit, parts))
            {
                Ok(Appended::At(within)) => {
                    let inodes = [section.file.number, self.directory.0];
                    make_durable(self.members.session, &inodes)?;
                    if let Some(bell) = self.bell {
                        bell.ring();
                    }
                    return Ok(section.begin + within);
                }
                // The next one was full, too: others are far ahead.
                Ok(Appended::Full(_)) if turn % 2 == 1 => self.last(),
                Ok(Appended::Full(size)) => {
                    let next = section.begin.checked_add(size).ok_or(Errno::FBIG)?;
                    self.in_directory().find_or_make(next, Some(section))
                }
                Err(errno) => Err(errno),
            };
            let next = match next {
                // It was cut off: others have gone on.
                Err(Errno::STALE) => self.last()?,
                next => next?,
            };
            self.note(next);
            self.current.set(next);
        }
        Err(Errno::AGAIN)
    }

    /// Commits what was enqueued and not committed.
    fn commit_all(&self) -> Result<(), Errno> {
        self.commits.commit_all(|parts| self.commit(parts))
    }
}

impl Log {
    /// Opens the log that a directory is, by its path from the pool's root. Symbolic links are not followed. Blocks until
    /// the controller answers. ENOENT if there is none and none is to be made; EBADMSG if what there is is none.
    pub fn open(options: Options, directory: &str) -> Result<Log, Error> {
        Ok(Log {
            here: connect(&options, directory)?,
            path: directory.to_owned(),
            options,
        })
    }

    /// The same on a session that there is, with another LibFS in it, which does not change sections meanwhile: for
    /// tests that look at what one session has not folded.
    #[doc(hidden)]
    pub fn within(session: &'static Session, directory: &str, section: u64) -> Result<Log, Error> {
        let options = Options {
            make: true,
            section,
            ..Options::new("")
        };
        Ok(Log {
            // What stands in its region is the other's.
            here: open(session, &options, directory, |_, _| None)?.as_guest(),
            path: directory.to_owned(),
            options,
        })
    }

    /// What is kept in this process.
    #[inline]
    fn here(&self) -> Result<&Here, Error> {
        let here = self
            .here
            .get_or_open(|| connect(&self.options, &self.path))?;
        Ok(&here.kept)
    }

    /// Appends a record of 1 to [`RECORD_MAX`] bytes; gives its position. It is durable when this returns, and everybody
    /// can see it. Blocks for other threads' appends, and for the controller where the section is another session's. An
    /// error leaves nothing of it, and nothing of the records that were to be committed with it: ENOSPC, EACCES, EIO.
    #[inline]
    pub fn append(&self, record: &[u8]) -> Result<u64, Error> {
        self.append_all(&[record])
    }

    /// Appends several records as one, of [`RECORD_MAX`] bytes together: all are there, one behind the other, or none is. As
    /// [`append`](Log::append).
    #[inline]
    pub fn append_all(&self, records: &[&[u8]]) -> Result<u64, Error> {
        let sum = |sum: usize, record: &&[u8]| sum.saturating_add(record.len());
        let length = records.iter().fold(0, sum);
        if !(1..=RECORD_MAX).contains(&length) {
            return Err(Error::Length { length });
        }
        let here = self.here()?;
        let commit = |parts: &[&[u8]]| here.commit(parts);
        Ok(here.commits.append(records, length, commit)?)
    }

    /// Appends a record as [`append`](Log::append), and does not wait: it is durable, and has a position, when
    /// [`commit`](Log::commit) says so, or a later record of any thread of this process that returned, whichever is first. A crash
    /// before may leave it or not, and none of two that were enqueued without the one that was first. Blocks only
    /// where [`RECORD_MAX`] bytes wait already.
    pub fn enqueue(&self, record: &[u8]) -> Result<Enqueued, Error> {
        let length = record.len();
        if !(1..=RECORD_MAX).contains(&length) {
            return Err(Error::Length { length });
        }
        let here = self.here()?;
        let commit = |parts: &[&[u8]]| here.commit(parts);
        let left = here.commits.enqueue(&[record], length, commit);
        let of = std::ptr::from_ref(here).addr();
        Ok(Enqueued { left, of })
    }

    /// Waits until an enqueued record is durable, with all that were enqueued before it; gives its position. ESTALE: it was
    /// enqueued in another log, or before a fork. As [`append`](Log::append).
    pub fn commit(&self, enqueued: &Enqueued) -> Result<u64, Error> {
        let here = self.here()?;
        if enqueued.of != std::ptr::from_ref(here).addr() {
            return Err(Errno::STALE.into());
        }
        let commit = |parts: &[&[u8]]| here.commit(parts);
        Ok(here.commits.commit(&enqueued.left, commit)?)
    }

    /// Takes away what lies before a position, by whole sections: those that end there or before it, but never the last. The
    /// time is that of changing some names, and not that of what is cut off. Durable when it returns. Who reads or follows what
    /// is cut off is told so (ENODATA). EINVAL behind the end; EACCES, EPERM.
    pub fn cut(&self, position: u64) -> Result<(), Error> {
        let end = self.end()?;
        if position > end {
            return Err(Error::Beyond { position, end });
        }
        let here = self.here()?;
        let all = here.list()?;
        // A section ends where the next one begins.
        let below = all.windows(2).take_while(|two| two[1].begin <= position);
        let count = below.count();
        here.in_directory().remove(&all[..count])?;
        lock(&here.known).replace(&all[count..]);
        make_durable(here.members.session, &[here.directory.0])?;
        here.engine().give_back();
        Ok(())
    }

    /// Commits what is enqueued, and ends the session: all is folded when this returns, or this says why not. What has been
    /// appended is durable without it. Blocks.
    pub fn close(self) -> Result<(), Error> {
        let here = self.here.last();
        if here.session.has_ended() {
            // It is a parent's, and nothing was done here.
            return Ok(());
        }
        here.kept.commit_all()?;
        Ok(here.session.goodbye()?)
    }

    /// Commits what is enqueued, and ends the session of this process, where others may hold references to this; says what
    /// was not folded. To be called when no thread is inside an operation: one that begins later opens another session.
    /// Does nothing the second time. Blocks.
    pub fn finish(&self) -> Result<(), Error> {
        let here = self.here.last();
        if here.session.has_ended() {
            return Ok(());
        }
        let committed = here.kept.commit_all();
        let said = here.session.goodbye();
        here.session.end();
        committed?;
        Ok(said?)
    }

    /// Bytes at which a section of this log takes no more.
    pub fn section(&self) -> Result<u64, Error> {
        Ok(self.here()?.limit)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let here = self.here.last();
        if !here.session.has_ended() {
            // Who wants to know closes it.
            let _ = here.kept.commit_all();
        }
    }
}
