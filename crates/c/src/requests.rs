//! Requests and completions of queues, as C has them, and as the queues do.
//!
//! # Invariants
//! * What a request says that there is not is refused, and not passed over.
//! * The program's buffers are copied by the kernel alone ([`by_kernel`]). A request whose buffer is not there is one that does nothing
//!   to the file, and completes with EFAULT.

use crate::by_kernel;
use crate::trouble::Trouble;
use arck_queues as queues;
use arck_queues::{Operation, RequestId};
use arckfs::Errno;
use std::ffi::c_void;
use std::time::Duration;

/// Bytes of one request at most: what the kernel's calls do.
const AT_ONCE: usize = 0x7fff_f000;
const LENGTH_MAX: usize = isize::MAX as usize;

/// An operation: reads size bytes from position on into buffer.
pub const ARCK_READ: u32 = 1;
/// An operation: writes size bytes of buffer from position on, also in a file that was opened to append.
pub const ARCK_WRITE: u32 = 2;
/// An operation: writes size bytes of buffer at the file's end. A barrier: it waits for all earlier requests of the file, and all
/// later ones wait for it.
pub const ARCK_APPEND: u32 = 3;
/// An operation: makes durable what was written, as arck_fsync. A barrier.
pub const ARCK_SYNC: u32 = 4;

/// A flag: it goes before what is not urgent; among urgent requests, reads go before others.
pub const ARCK_URGENT: u32 = 1;
/// A flag of ARCK_SYNC: as arck_fdatasync.
pub const ARCK_DATA_ONLY: u32 = 2;

/// How a queue ends: what is queued is done.
pub const ARCK_FINISH: i32 = 0;
/// How a queue ends: what has not begun is cancelled.
pub const ARCK_CANCEL: i32 = 1;

/// What arck_submit takes. What is of no use to an operation is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Request {
    /// ARCK_READ, ARCK_WRITE, ARCK_APPEND, ARCK_SYNC.
    pub operation: u32,
    /// 0, or some of ARCK_URGENT, ARCK_DATA_ONLY.
    pub flags: u32,
    /// Of a read: it stays until the completion is reaped, is filled then, and is not to be looked at before. Of others: it is
    /// the caller's again when arck_submit returns.
    pub buffer: *mut c_void,
    /// Bytes of the buffer. More than 0x7ffff000 are read or written in part, as by read(2).
    pub size: usize,
    /// From which byte on: 0 to 2^63 - 1.
    pub position: i64,
    /// Within how many nanoseconds from now on it has to begin; it completes with ETIMEDOUT otherwise. 0: it has no such time.
    pub within: u64,
    /// The caller's own; it comes back with the completion.
    pub user: u64,
    /// 0.
    pub reserved: [u64; 2],
}

/// What arck_spool_open has found in a spool.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Replayed {
    /// Writes and appends that were queued and not done, and are done now.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that are dropped: their file is gone, or refuses them for ever (EFBIG and the like).
    pub dropped: u64,
}

/// What arck_reap and arck_wait give: what came of a request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Completion {
    /// Which: what arck_submit gave.
    pub request: i64,
    /// What the request said.
    pub user: u64,
    /// How many bytes were read or written, 0 for a sync; -1: see error.
    pub result: i64,
    /// 0, or a number of errno. ECANCELED: it was cancelled, and nothing of it was done. ETIMEDOUT: it had not begun in time, and
    /// nothing of it was done. EFAULT: there is no such buffer; of a write nothing was done. Otherwise as of arck_pread, arck_pwrite, arck_fsync.
    pub error: i32,
    /// 0.
    pub reserved: u32,
    /// Of an append: the position behind its bytes.
    pub end: u64,
    /// Of a read: the write that it was served from before that was done, or 0. If that write fails, as its own completion says, the
    /// read has seen what never was in the file.
    pub served_by: i64,
    /// Of a write: the later one that was done in place of it and covers it, or 0.
    pub covered_by: i64,
}

/// What is kept of a request until it is reaped.
pub struct Note {
    user: u64,
    /// Of a read: where its bytes are to be put.
    room: Option<usize>,
    /// There was no such buffer, and what was submitted in place of the request does nothing.
    is_bad: bool,
}

impl Request {
    /// As the queues have it. EINVAL: what it asks for there is not. ENOMEM.
    pub fn checked(&self) -> Result<(queues::Request, Note), Trouble> {
        let length = self.size.min(AT_ONCE);
        let position = self.expect_known()?;
        let address = self.buffer.expose_provenance();
        let mut note = Note {
            user: self.user,
            room: None,
            is_bad: false,
        };
        let operation = match self.operation {
            ARCK_SYNC => Operation::Sync {
                data_only: self.flags & ARCK_DATA_ONLY != 0,
            },
            ARCK_READ => {
                note.room = Some(address);
                let buffer = zeroes(length)?;
                Operation::Read { position, buffer }
            }
            other => match by_kernel::bytes_at(address, length) {
                Ok(bytes) if other == ARCK_APPEND => Operation::Append { bytes },
                Ok(bytes) => Operation::Write { position, bytes },
                Err(Errno::FAULT) => {
                    note.is_bad = true;
                    let bytes = Vec::new();
                    Operation::Write { position, bytes }
                }
                Err(errno) => return Err(errno.into()),
            },
        };
        let mut request = queues::Request::from(operation);
        request.urgent = self.flags & ARCK_URGENT != 0;
        request.deadline = (self.within != 0).then(|| Duration::from_nanos(self.within));
        Ok((request, note))
    }

    /// That nothing is asked for that there is not; gives the position. EINVAL.
    fn expect_known(&self) -> Result<u64, Errno> {
        let (flags, has_bytes, has_position) = match self.operation {
            ARCK_READ | ARCK_WRITE => (ARCK_URGENT, true, true),
            ARCK_APPEND => (ARCK_URGENT, true, false),
            ARCK_SYNC => (ARCK_URGENT | ARCK_DATA_ONLY, false, false),
            _ => return Err(Errno::INVAL),
        };
        let is_known = self.flags & !flags == 0
            && self.reserved == [0; 2]
            && self.size <= LENGTH_MAX
            && (has_bytes || self.buffer.is_null() && self.size == 0)
            && (has_position || self.position == 0);
        match is_known {
            true => u64::try_from(self.position).map_err(|_| Errno::INVAL),
            false => Err(Errno::INVAL),
        }
    }
}

/// ENOMEM.
fn zeroes(length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Errno::NOMEM)?;
    bytes.resize(length, 0);
    Ok(bytes)
}

impl Note {
    /// What came of the request. The bytes of a read are in C's buffer then, or it says EFAULT.
    pub fn told(&self, completion: &queues::Completion) -> Completion {
        let result = match (completion.result, self.room) {
            (Ok(_), _) if self.is_bad => Err(Errno::FAULT),
            (Ok(length), Some(room)) => {
                let read = &completion.buffer[..length];
                by_kernel::put_at(room, read).map(|()| length)
            }
            (result, _) => result,
        };
        let number = |id: Option<RequestId>| id.map_or(0, |id| id.timestamp().cast_signed());
        Completion {
            request: number(Some(completion.id)),
            user: self.user,
            result: result.map_or(-1, |length| length as i64),
            error: result.err().map_or(0, Errno::raw_os_error),
            reserved: 0,
            end: completion.end.unwrap_or(0),
            served_by: number(completion.served_by),
            covered_by: number(completion.covered_by),
        }
    }
}
