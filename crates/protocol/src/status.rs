//! How a served pool is, for whoever asks ([`Call::Status`](crate::socket::Call::Status),
//! [`Call::Pool`](crate::socket::Call::Pool), [`Call::Processes`](crate::socket::Call::Processes)).
//!
//! Invariant: nothing in it tells what any file is called, or holds; and nobody is told of other users' processes but
//! the pool's user and root.

use crate::declare::messages;
use crate::message::MESSAGE_MAX;
#[cfg(any(test, feature = "testing"))]
use crate::wire::Draw;
use crate::wire::{Coding, Flag, Reader, Text, WireError, Writer};

/// Longest name of a program, in bytes: what the kernel keeps of it, and to spare.
const PROGRAM_MAX: usize = 32;
/// Processes that one answer tells of.
pub const PROCESSES_MAX: usize = 32;

messages! {
/// Counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    pub sessions: u64,
    /// Pages of 4096 bytes that nobody uses and no session was granted.
    pub pages_free: u64,
    pub inodes_free: u64,
    /// Changes of rights of which what follows is not done yet.
    pub closings: u64,
    /// Inodes of which it is known that they have to be looked at for that.
    pub waiting: u64,
    /// Inodes looked at and pages moved for that, since the controller was started.
    pub work: u64,
    /// Inodes moved.
    pub moved: u64,
    /// Most work done between two looks at what sessions ask.
    pub longest: u64,
}

/// What a pool is made of, and how it is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pool {
    /// Pages of 4096 bytes, used or not.
    pub pages: u64,
    pub inodes: u64,
    /// [`arck_core_state::superblock::Durability`] as a number.
    pub durability: u32,
    /// Whether stores are flushed (the controller's `--persist`, resolved).
    pub flush: bool as Flag,
    /// Whether it is served for all users; else for its own and root.
    pub shared: bool as Flag,
    /// Whose it is.
    pub user: u32,
    /// The controller, by the number that it has for itself.
    pub process: u32,
    /// Deltas that were refused since the controller was started.
    pub violations: u64,
    /// Files and directories that are mediated because somebody has said so, and because the controller has found it.
    pub mediated: u64,
    pub found: u64,
    /// Files that several sessions may have writable shared maps of.
    pub together: u64,
}

/// A process that has a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Session and member number: by these they are sorted.
    pub session: u32,
    pub member: u16,
    /// By the number that it has for the controller, as the kernel tells it; 0: for that it has none.
    pub process: u32,
    pub user: u32,
    /// What the kernel calls its program (`/proc/PID/comm`), which the process chooses; empty if it does not tell.
    pub program: String as Text<PROGRAM_MAX>,
}

/// As many processes as one answer holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Processes {
    /// Whether there are others behind these.
    pub more: bool as Flag,
    pub processes: Vec<Process> as SomeProcesses,
}
}

/// At most [`PROCESSES_MAX`]: their number in two bytes, and they.
struct SomeProcesses;

const _: () = assert!(Processes::MOST < MESSAGE_MAX);

impl Coding for SomeProcesses {
    type Value = Vec<Process>;
    const LEAST: usize = 2;
    const MOST: usize = 2 + PROCESSES_MAX * Process::MOST;
    fn put(value: &Vec<Process>, w: &mut Writer<'_>) -> Result<(), WireError> {
        w.count(value.len(), PROCESSES_MAX)?;
        value.iter().try_for_each(|one| Process::put(one, w))
    }
    fn get(r: &mut Reader<'_>) -> Result<Vec<Process>, WireError> {
        let count = r.count(PROCESSES_MAX)?;
        (0..count).map(|_| Process::get(r)).collect()
    }
    #[cfg(any(test, feature = "testing"))]
    fn drawn(draw: &mut Draw) -> Vec<Process> {
        (0..draw.length(PROCESSES_MAX))
            .map(|_| Process::drawn(draw))
            .collect()
    }
}
