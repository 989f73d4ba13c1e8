//! Queues: many requests in flight on an open file.

use crate::boundary::{CompletionsRoom, CountRoom, ReplayedRoom, RequestAt, Text};
use crate::face::paths::reach;
use crate::handles::{self, arck_handle};
use crate::inside;
use crate::making::masked;
use crate::parts::State;
use crate::queues::Set;
use crate::requests::{ARCK_CANCEL, ARCK_FINISH, Replayed};
use crate::spools::OpenSpool;
use crate::trouble::answer;
use arck_queues::{Closing, QueueOptions};
use arckfs::Errno;
use std::ffi::c_int;
use std::time::Duration;

/// Requests of a queue at most.
pub const ARCK_DEPTH_MAX: usize = 65_536;
/// The greatest weight of a queue.
pub const ARCK_WEIGHT_MAX: u32 = 1000;

const _: () = assert!(
    ARCK_DEPTH_MAX == QueueOptions::DEPTH_MAX && ARCK_WEIGHT_MAX == QueueOptions::WEIGHT_MAX
);

/// Opens a set of queues, which has the threads that do their requests; gives a handle. One is enough for a program, and for files of all
/// connections.
///
/// workers: how many threads, 1024 at most; 0: as many as there are processors. They start with the first request, have all signals blocked but
/// those of faults, and end when the set is closed. Closing it closes its queues. In a forked child a set is its parent's. Does not block. EINVAL.
#[unsafe(no_mangle)]
pub extern "C" fn arck_queues(workers: u32) -> arck_handle {
    answer(|| {
        let _inside = inside::enter(inside::NOTHING)?;
        Ok(handles::add_queues(Set::new(workers)?))
    })
}

/// Opens a queue of requests on an open file; gives a handle. The file stays open until the queue is closed, also if its own
/// handle is closed before.
///
/// depth: how many requests may be outstanding or completed and not reaped, ARCK_DEPTH_MAX at most; 0: 128. weight: its share beside other
/// queues of the set, in bytes, ARCK_WEIGHT_MAX at most; 0: 100. A file may have several queues. All threads may use them.
///
/// Requests of a file that overlap, of which one writes, are done in the order of their submission, whatever queue they are in; all others at the
/// same time, or in any order. Closing the queue cancels what has not begun, waits for what has, and forgets what was not reaped. EBADF, EINVAL, EIO;
/// ESTALE: the file or the set was opened before a fork.
#[unsafe(no_mangle)]
pub extern "C" fn arck_queue(
    queues: arck_handle,
    file: arck_handle,
    depth: usize,
    weight: u32,
) -> arck_handle {
    answer(|| {
        let place = handles::place(file)?;
        handles::add_queue(queues, &place, options_of(depth, weight), None)
    })
}

fn options_of(depth: usize, weight: u32) -> QueueOptions {
    let usual = QueueOptions::default();
    QueueOptions {
        depth: if depth == 0 { usual.depth } else { depth },
        weight: if weight == 0 { usual.weight } else { weight },
    }
}

/// Opens a spool, for arck_spooled_queue, and does what was queued there and is not done, since the program was killed or the machine failed, in the
/// order of submission; gives a handle. replayed, unless it is NULL, gets what that was.
///
/// connection and path as directory and path of arck_openat. If there is no such file, or it has no bytes, it is made, mode 0600, for size bytes that are
/// queued at once: 65536 to 2^32, and at least twice the longest. Blocks until all is done. It is open until its handle and those of its queues are
/// closed. EBUSY: it is open, here or in another process. EPERM: others can write the file, and could have anything done in the caller's name.
/// EBADMSG: it is no spool. EXDEV: it was filled in another pool. EINVAL: a size that there is not. And errors of arck_openat and arck_pwrite, also of the
/// files for which something was queued: then it is still there, and opening the spool again goes on.
#[unsafe(no_mangle)]
pub extern "C" fn arck_spool_open(
    connection: arck_handle,
    path: Text,
    size: u64,
    replayed: ReplayedRoom,
) -> arck_handle {
    answer(|| {
        let reached = reach(connection, path, 0)?;
        let place = &reached.place;
        let mode = masked(place.connection, 0o600);
        let (spool, told) = OpenSpool::open(place.files, (reached.at, reached.path), (size, mode))?;
        if replayed.is_there() {
            replayed.put(Replayed {
                requests: told.requests,
                bytes: told.bytes,
                dropped: told.dropped,
            })?;
        }
        Ok(handles::add_part(place.root, State::Spool(spool)))
    })
}

/// Opens a queue as arck_queue does, whose writes and appends are durable when arck_submit returns: they are in the spool then, and are done, in their
/// order, when that is opened after a crash.
///
/// path: where the file is found then, from the pool's root. What is queued so cannot be cancelled (EALREADY) and has no within (EINVAL); closing
/// waits for it. arck_submit says EAGAIN where the spool is full, EMSGSIZE of more than half of it. Errors as of arck_queue. EINVAL: the path leads to another
/// file, or the file is the spool. EXDEV: the spool is of another connection. ENOENT, ENAMETOOLONG, EFAULT; ESTALE: the spool was opened before a fork.
#[unsafe(no_mangle)]
pub extern "C" fn arck_spooled_queue(
    queues: arck_handle,
    file: arck_handle,
    depth: usize,
    weight: u32,
    spool: arck_handle,
    path: Text,
) -> arck_handle {
    answer(|| {
        let path = path.get()?;
        let place = handles::place(file)?;
        let options = options_of(depth, weight);
        handles::add_queue(queues, &place, options, Some((spool, path)))
    })
}

/// Submits a request; gives its number, which is above 0, means one request in the life of a set, and is its place in the order.
///
/// The bytes of a write or an append are copied before this returns; those of a read are put into its buffer when its completion is reaped.
/// Does not wait for requests. Durable is what has completed, as by the plain call; what is queued ends with the process.
///
/// EAGAIN: the queue is full, until something is reaped; or no thread can be started. EINVAL: a wrong request, or its range ends behind 2^63 - 1. EBADF: the
/// queue was ended, or the file was not opened for that. ESTALE: the queue was opened before a fork. ENOMEM; EFAULT: request is NULL. A buffer
/// that is not there is EFAULT in the completion.
#[unsafe(no_mangle)]
pub extern "C" fn arck_submit(queue: arck_handle, request: RequestAt) -> i64 {
    answer(|| {
        let request = request.get()?;
        let (_inside, queue) = handles::queue(queue)?;
        queue.submit(&request)
    })
}

/// Takes what has completed, in the order of completion, most of them at most; gives how many. Never blocks. EBADF, ESTALE; EFAULT:
/// completions is NULL; then nothing is taken.
#[unsafe(no_mangle)]
pub extern "C" fn arck_reap(
    queue: arck_handle,
    completions: CompletionsRoom,
    most: usize,
) -> isize {
    answer(|| {
        completions.expected(most)?;
        let (_inside, queue) = handles::queue(queue)?;
        Ok(completions.put(&queue.reap(most)))
    })
}

/// Waits until at_least requests have completed, or none is outstanding, or the time is over: so many milliseconds, -1: it has no end.
/// Takes all that have completed; gives how many, which may be 0.
///
/// most: for how many completions there is room, which is the queue's depth at least. Without a time-out the thread does requests of this queue itself
/// meanwhile. Signals do not end the wait; closing the queue does. EINVAL: too little room, or a time-out below -1. As arck_reap.
#[unsafe(no_mangle)]
pub extern "C" fn arck_wait(
    queue: arck_handle,
    completions: CompletionsRoom,
    most: usize,
    at_least: usize,
    timeout: c_int,
) -> isize {
    answer(|| {
        completions.expected(most)?;
        let timeout = match timeout {
            -1 => None,
            some => Some(u64::try_from(some).map_err(|_| Errno::INVAL)?),
        };
        let (_inside, queue) = handles::queue(queue)?;
        let done = queue.wait(most, at_least, timeout.map(Duration::from_millis))?;
        Ok(completions.put(&done))
    })
}

/// Cancels a request: it completes with ECANCELED, and nothing of it is done. Does not block. EALREADY: it has begun, or a read was served from
/// it; it completes as ever. ENOENT: it has completed, or is none of this queue. EBADF, ESTALE.
#[unsafe(no_mangle)]
pub extern "C" fn arck_cancel(queue: arck_handle, request: i64) -> c_int {
    answer(|| {
        let (_inside, queue) = handles::queue(queue)?;
        queue.cancel(request)?;
        Ok(0)
    })
}

/// Has a queue take no more requests (EBADF), and blocks until nothing is outstanding. how: ARCK_FINISH or ARCK_CANCEL. What has completed can be
/// reaped afterwards; the handle stays until arck_close. EINVAL, EBADF, ESTALE.
#[unsafe(no_mangle)]
pub extern "C" fn arck_queue_end(queue: arck_handle, how: c_int) -> c_int {
    answer(|| {
        let closing = match how {
            ARCK_FINISH => Closing::Finish,
            ARCK_CANCEL => Closing::Cancel,
            _ => return Err(Errno::INVAL.into()),
        };
        let (_inside, queue) = handles::queue(queue)?;
        queue.end(closing);
        Ok(0)
    })
}

/// How many requests of a queue are outstanding, and how many completions can be reaped. Each may be NULL. EBADF, ESTALE.
#[unsafe(no_mangle)]
pub extern "C" fn arck_queue_count(
    queue: arck_handle,
    outstanding: CountRoom,
    completed: CountRoom,
) -> c_int {
    answer(|| {
        let (_inside, queue) = handles::queue(queue)?;
        let (waiting, done) = queue.count();
        for (room, count) in [(outstanding, waiting), (completed, done)] {
            if room.is_there() {
                room.put(count)?;
            }
        }
        Ok(0)
    })
}

/// A descriptor of the kernel's that is readable as long as something can be reaped, for poll(2), epoll(7) and what is built on them. It is made
/// when it is asked for first, is the same each time, and stays the queue's, with which it is closed: it is not to be read, written or closed. EMFILE, ENFILE,
/// ENOMEM, EBADF, ESTALE.
#[unsafe(no_mangle)]
pub extern "C" fn arck_queue_readiness(queue: arck_handle) -> c_int {
    answer(|| {
        let (_inside, queue) = handles::queue(queue)?;
        queue.readiness()
    })
}
