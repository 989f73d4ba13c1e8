//! Many requests in flight: a queue for each open file, of whatever file system there is.
//!
//! The design is CrossFS's (Ren, Min, Kannan, OSDI 2020, sections 3 and 4): what waits in place of taking turns by a lock on the
//! file is requests in queues, ordered by what they overlap. Where its queues are a device's, these are worked on by some threads of the process.
//!
//! ```
//! use arck_queues::{Closing, Errno, FileIdentity, Queues, QueueOptions, Request, Target};
//! use std::sync::{Arc, Mutex};
//!
//! /// A file in memory.
//! struct InMemory(Mutex<Vec<u8>>);
//!
//! impl Target for InMemory {
//!     fn identity(&self) -> FileIdentity {
//!         FileIdentity { device: 0, inode: 1 }
//!     }
//!     fn size(&self) -> Result<u64, Errno> {
//!         Ok(self.0.lock().unwrap().len() as u64)
//!     }
//!     fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
//!         let bytes = self.0.lock().unwrap();
//!         let rest = &bytes[bytes.len().min(position as usize)..];
//!         let length = rest.len().min(buffer.len());
//!         buffer[..length].copy_from_slice(&rest[..length]);
//!         Ok(length)
//!     }
//!     fn write(&self, new: &[u8], position: u64) -> Result<usize, Errno> {
//!         let mut bytes = self.0.lock().unwrap();
//!         let (begin, end) = (position as usize, position as usize + new.len());
//!         let length = bytes.len().max(end);
//!         bytes.resize(length, 0);
//!         bytes[begin..end].copy_from_slice(new);
//!         Ok(new.len())
//!     }
//!     fn append(&self, new: &[u8]) -> Result<(usize, u64), Errno> {
//!         let mut bytes = self.0.lock().unwrap();
//!         bytes.extend_from_slice(new);
//!         Ok((new.len(), bytes.len() as u64))
//!     }
//!     fn sync(&self, _data_only: bool) -> Result<(), Errno> {
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Errno> {
//! let queues = Queues::new();
//! let file = Arc::new(InMemory(Mutex::default()));
//! let queue = queues.open(file, QueueOptions::default())?;
//! queue.submit(Request::write(0, b"hello"))?;
//! // It sees what was submitted before it.
//! let read = queue.submit(Request::read(0, 5))?;
//! let all = queue.wait(2, None);
//! let seen = all.iter().find(|one| one.id == read).unwrap();
//! assert_eq!((seen.result, &seen.buffer[..]), (Ok(5), &b"hello"[..]));
//! queue.close(Closing::Finish);
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//! * **Order.** Each request has a timestamp, of all files. Requests of a file, through whatever queue, that overlap and of which one writes
//!   are done in the order of their timestamps; all others in any order, and at the same time. A write behind the file's end overlaps reads of
//!   what lies between. A sync and an append are barriers: they overlap everything. Requests of different files know nothing of each other.
//! * **Reads** see every write that was submitted before them, and none that was submitted later. Where the last write before it that overlaps it
//!   covers all of its bytes and is not done yet, a read is served from the bytes of that write, at once.
//! * **Covered writes.** A queued write that lies in a later one is not done, if nothing in between needs it, no barrier and no read. It
//!   completes with its length when the later one is done. If the later one fails, is cancelled, is late or ends short, the earlier one is
//!   done after all, as far as the later one has not written. It is not covered by one that is less urgent.
//! * **Failures** are told to who submitted what failed. What waited for it goes on: an order is no transaction. So a sync that succeeds says
//!   that what was done before it is durable, not that all was done.
//! * **Durability** is the target's: of what has completed that is durable which is so when the target's call returns, and all of it after a sync.
//!   What is queued is in this process alone, and ends with it; that of a queue with a [`Spool`] is durable when it is queued.
//! * **Urgent** requests go before others, and reads among them first; of any 18 that begin, one is of each kind that waits (see
//!   `schedule`). A request that waits for others is as late as these are, which urgency does not change.
//! * **Weights.** Queues share the workers by weight, in bytes, while they have something ready.
//! * **Cancelling, and deadlines,** are for what has not begun; there nothing is done at all. What is late is noticed by a worker
//!   that is free, and by every call that submits, reaps, waits, cancels or closes.
//! * **Threads.** Who waits without a time-out does requests of that queue meanwhile, up to eight together while they are quick (those have begun as
//!   far as cancelling and deadlines go), and wakes nobody for what takes less than that. Should one of them take long all the same, a worker
//!   does the others within some milliseconds. A target that does several at a time ([`Target::in_flight`]) has so many of each thread.
//! * **Not ordered** is what reaches a file by other calls than its queues': a read or a cut of the file by a plain call happens before or
//!   after each request that is outstanding. A request on a file that was cut meanwhile is done on what there is then.
//!
//! # Modules
//! From below: `primitive`, `rules`, `numbered`, `target`, `request`. `outstanding`: a request underway. `intervals`, `barriers`, `order`: what
//! overlaps, and what follows from it. `schedule`: what is next. `completions`: what is there to be reaped.
//! `engine`: the steps, with `ending`, `covering` and `withdrawing`. `handful`, `lock`, `caught`, `calling`, `underway`: what a thread
//! does at a time, and what it holds meanwhile. `workers`: the threads.
//! `spool`: what is durable before it is done. `queue`: what programs hold.
//!
//! # Invariants of the crate
//! * It knows no file system: a [`Target`] is all that it needs of one.
//! * Rules have names (`rules`), and for each there is a test in which it is broken and found to be so, by the oracle or by the model
//!   checker (`RUSTFLAGS="--cfg shuttle" cargo test --release -p arck-queues --lib`).

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod barriers;
mod calling;
mod caught;
mod completions;
mod engine;
mod handful;
mod intervals;
mod lock;
mod numbered;
mod order;
mod outstanding;
mod primitive;
mod queue;
mod request;
mod rules;
mod schedule;
mod spool;
mod target;
mod underway;
mod workers;

#[cfg(test)]
mod tests;

pub use queue::{Queue, QueueOptions, Queues};
pub use request::{
    Closing, Completion, Counters, Operation, Refused, Request, RequestId, Submitted,
};
pub use rustix::io::Errno;
pub use spool::{Left, Locked, Replayed, Spool};
pub use target::{Access, Begun, Direction, FileIdentity, Target, Transfer, Underway};
