//! Arck's pools in Rust: files, small values and logs, read and written by the calling process without system calls.
//!
//! A pool is a directory of byte-addressable memory (or of `/dev/shm`) that somebody serves:
//!
//! ```sh
//! arck mkfs /dev/shm/my-pool --size 1G
//! arck serve /dev/shm/my-pool &
//! ```
//!
//! ```
//! use std::io::{BufRead, BufReader, Write};
//!
//! # fn main() -> std::io::Result<()> {
//! # let served = arck_test_pool::TestPool::new(64 << 20);
//! # let directory = served.path();
//! let pool = arck::Pool::new(&directory);              // "/dev/shm/my-pool"
//!
//! // Files, as with std::fs.
//! let files = pool.files()?;
//! files.create_dir_all("reports/2026")?;
//! let mut report = files.create("reports/2026/november.txt")?;
//! writeln!(report, "all is well")?;
//! for line in BufReader::new(files.open("reports/2026/november.txt")?).lines() {
//!     println!("{}", line?);
//! }
//!
//! // Small files as values, which are replaced as wholes.
//! let settings = pool.store("settings")?;
//! settings.set(b"colour", b"blue")?;
//! assert_eq!(settings.get(b"colour")?.as_deref(), Some(&b"blue"[..]));
//! // They are files to everybody else.
//! assert_eq!(files.read("settings/colour")?, b"blue");
//!
//! // A stream that is only appended to.
//! let events = pool.log("events")?;
//! let position = events.append(b"started\n")?;
//! let mut bytes = [0; 100];
//! let read = events.read_at(position, &mut bytes)?;
//! assert_eq!(&bytes[..read], b"started\n");
//! # drop(report);
//! # events.close()?;
//! # drop(settings);
//! # files.close()
//! # }
//! ```
//!
//! | what | is for |
//! | --- | --- |
//! | [`Pool`] | which pool, and how it is reached |
//! | [`Files`], [`File`], [`Map`] | files, directories, links, attributes, maps: ArckFS, and FPFS for deep trees |
//! | [`queues`] | many requests in flight on open files |
//! | [`keyvalue`] | many small files that are read and replaced as wholes: KVFS |
//! | [`log`] | streams that many append to and some follow |
//!
//! Unmodified programs reach the same files by `arck run`, and everybody by `arck mount`. Longer examples are in `examples/rust`.
//!
//! # What holds of all of it
//!
//! * **Threads.** Everything may be used by all threads at once.
//! * **Durable on return.** A call that has returned is there after a crash of the program or of the machine, as far as the pool's memory
//!   survives it; in a pool on a file system of blocks (mode `paged`) after [`File::sync_all`], and a log's `append` syncs by itself. One
//!   that had not returned is there as a whole or not at all, but for the bytes of [`File`]'s writes, of which some may be there.
//! * **Others** see what a call has done when it has returned, in whatever program they are.
//! * **Blocking.** A call waits for the controller, `arck serve`, where it needs room or what another session has changed; otherwise it makes no
//!   system call. Where the controller is gone it waits for the next one, at most `$ARCK_WAIT` seconds (30).
//! * **Errors** are [`std::io::Error`], or become one by `?`: with the number of errno, which [`errno`] tells of all of them, and an explanation
//!   where there is more to be said ([`Error`]). What is an error has left everything as it was, if nothing else is said.
//! * **Forks.** In a forked child, files and maps of the parent are an error with ESTALE; [`Files`], stores and logs open a session of the
//!   child's own at their first need. The parent notices nothing.
//! * **Rights** are those of the process's user when the session was opened. A process that becomes another user opens another session.
//!
//! # Invariants of the crate
//! * It has no state of its own beside sessions, and no policy: each call is one of ArckFS's, or a few where that is said.
//! * All that a session has given is gone before it ends: [`Files`], [`File`] and [`Map`] hold it.

#![deny(missing_docs)]

#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Page;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/spool.md")]
struct SpoolPage;

mod entries;
mod error;
mod file;
mod files;
mod map;
mod metadata;
mod open;
mod paths;
mod pool;
mod queue;
mod session;
mod spool;

pub use entries::{DirEntry, ReadDir};
pub use error::{Error, errno};
pub use file::File;
pub use files::Files;
pub use map::{Map, MapAccess};
pub use metadata::{FileType, Metadata, Space};
pub use open::OpenOptions;
pub use pool::{FileSystemKind, Pool};

/// Many requests in flight: reads, writes, appends and syncs that are submitted to a queue of an open file, and done by some threads.
/// [`File::queue`](crate::File::queue) opens a queue.
///
/// Requests of a file that overlap are done in the order in which they were submitted, through whatever queue; all others at the same time,
/// or in any order. A read sees what was submitted before it, and is served from a write that is not done yet where that covers it. A write that
/// a later one covers before it began is not done. Syncs and appends are barriers. What has completed is durable as [`File`] says; what
/// is queued is in this process alone. Plain calls on the same file are in no order with what is queued.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let served = arck_test_pool::TestPool::new(32 << 20);
/// # let files = arck::Pool::new(served.path()).files()?;
/// use arck::queues::{Closing, QueueOptions, Queues, Request};
/// use std::time::Duration;
///
/// // One for the program: its threads.
/// let queues = Queues::new();
/// let file = files.options().read(true).write(true).create(true).open("table")?;
/// let queue = file.queue(&queues, QueueOptions::default())?;
/// for row in 0..8u8 {
///     queue.submit(Request::write(u64::from(row) * 4096, vec![row; 4096]))?;
/// }
/// queue.submit(Request::sync())?;
/// let read = queue.submit(Request::read(3 * 4096, 100).urgent().within(Duration::from_secs(10)))?;
/// let mut left = 10;
/// while left > 0 {
///     for completion in queue.wait(1, None) {
///         let length = completion.result?;
///         if completion.id == read {
///             assert_eq!(&completion.buffer[..length], &[3; 100]);
///         }
///         left -= 1;
///     }
/// }
/// queue.close(Closing::Finish);
/// # drop((queue, file));
/// # files.close()
/// # }
/// ```
pub mod queues {
    pub use crate::queue::Queue;
    pub use crate::spool::Spool;
    pub use arck_queues::{
        Closing, Completion, Counters, Operation, QueueOptions, Queues, Refused, Replayed, Request,
        RequestId, Submitted,
    };
}

/// Small files as values: KVFS. [`Pool::store`](crate::Pool::store) opens a store.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let served = arck_test_pool::TestPool::new(32 << 20);
/// # let pool = arck::Pool::new(served.path());
/// use arck::keyvalue::Batch;
///
/// let sessions = pool.store("sessions")?;
/// sessions.set(b"anna", b"language=no")?;
/// // All of it, or nothing: also if the machine stops in the middle.
/// let mut batch = Batch::new();
/// batch.delete(b"anna").set(b"bert", b"language=de");
/// sessions.apply(&batch)?;
/// assert_eq!(sessions.list()?, [b"bert".to_vec()]);
/// # Ok(())
/// # }
/// ```
pub mod keyvalue {
    pub use arck_kvfs::{Batch, Error, Options, Store, VALUE_MAX};
}

/// Streams that are only appended to. [`Pool::log`](crate::Pool::log) opens a log.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let served = arck_test_pool::TestPool::new(32 << 20);
/// # let pool = arck::Pool::new(served.path());
/// use std::time::Duration;
///
/// let events = pool.log("events")?;
/// let first = events.append(b"one\n")?;
/// // Several that become durable with one wait.
/// let _ = events.enqueue(b"two\n")?;
/// let last = events.enqueue(b"three\n")?;
/// events.commit(&last)?;
///
/// let mut follower = events.follow(first)?;
/// let mut bytes = [0; 100];
/// let read = follower.next(&mut bytes, Duration::from_secs(1))?;
/// assert_eq!(&bytes[..read], b"one\ntwo\nthree\n");
/// // There is no more for now.
/// assert_eq!(follower.next(&mut bytes, Duration::ZERO)?, 0);
/// # drop(follower);
/// # events.close()?;
/// # Ok(())
/// # }
/// ```
pub mod log {
    pub use arck_logfs::{Enqueued, Error, Follower, Log, Options, RECORD_MAX, SECTION};
}
