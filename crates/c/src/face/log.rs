//! Logs: bytes that are only appended to, followed, and cut off at their beginning.

use crate::boundary::{Bytes, HandleRoom, PositionRoom, Room, Text, Vectors, Wishes};
use crate::face::store::from_root;
use crate::forks;
use crate::handles::{self, arck_handle};
use crate::inside;
use crate::options::{For, Wish};
use crate::parts::State;
use crate::roots::What;
use crate::trouble::{Trouble, answer};
use arck_logfs::{Log, Options, RECORD_MAX};
use arckfs::Errno;
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// Bytes of the longest record of a log, and of all that is appended together.
pub const ARCK_RECORD_MAX: usize = 1048576;

const _: () = assert!(ARCK_RECORD_MAX == RECORD_MAX);

/// So long a follower sleeps before it looks whether it has been closed.
const LOOK: Duration = Duration::from_millis(50);

/// Opens the log that a directory is, by its path from the pool's root; gives a handle. Symbolic links are not followed.
///
/// pool and options as of arck_connect: flags, mode, wait, group and section count. Members of a group follow each other without
/// messages; its programs have logs alone. Blocks until the controller has answered. ENOENT: no such directory, and no ARCK_MAKE; EBADMSG:
/// what is there is no log; and errors of arck_connect.
#[unsafe(no_mangle)]
pub extern "C" fn arck_log_open(pool: Text, directory: Text, options: Wishes) -> arck_handle {
    answer(|| {
        let _inside = inside::enter(inside::NOTHING)?;
        let directory = from_root(directory)?;
        let wish = Wish::of(pool, options, For::Log)?;
        forks::watch();
        let group = String::from_utf8(wish.group)
            .map_err(|_| Trouble::said(Errno::ILSEQ, "the group of a log has a name in UTF-8"))?;
        let usual = Options::new(wish.pool);
        let options = Options {
            group,
            make: wish.makes,
            section: wish.section.unwrap_or(usual.section),
            mode: wish.mode,
            patience: wish.patience,
            ..usual
        };
        let group = options.group.clone();
        let log = Log::open(options, &directory)
            .map_err(|error| Trouble::from(error).in_group(group.as_bytes()))?;
        handles::add_root(What::Log(log))
    })
}

/// Puts a position where C wants it, if it does.
fn tell(room: &PositionRoom, position: u64) -> Result<c_int, Trouble> {
    if room.is_there() {
        room.put(position)?;
    }
    Ok(0)
}

/// Appends a record of 1 to ARCK_RECORD_MAX bytes; position, unless it is NULL, gets where it begins.
///
/// It is durable when this returns, with all that was enqueued before. Blocks for other threads that append, and for another session
/// that has the log. Threads that append at once are committed together. EINVAL: no bytes. EMSGSIZE: too many. ENOSPC, EACCES, EIO: neither this record is there nor those that were to be committed with it. EBADF, EFAULT.
#[unsafe(no_mangle)]
pub extern "C" fn arck_log_append(
    log: arck_handle,
    record: Bytes,
    size: usize,
    position: PositionRoom,
) -> c_int {
    answer(|| {
        let record = record.get(size)?;
        let (_inside, log, _) = handles::log(log)?;
        tell(&position, log.append(record)?)
    })
}

/// Appends several records as one, of ARCK_RECORD_MAX bytes together and at most 1024: after a crash all are there, one behind the
/// other, or none is. As arck_log_append.
#[unsafe(no_mangle)]
pub extern "C" fn arck_log_appendv(
    log: arck_handle,
    records: Vectors,
    count: c_int,
    position: PositionRoom,
) -> c_int {
    answer(|| {
        let (_inside, log, _) = handles::log(log)?;
        let records: Vec<&[u8]> = records.full(count)?.collect();
        tell(&position, log.append_all(&records)?)
    })
}

/// Appends a record and does not wait. It is durable when arck_log_commit of it says so, or arck_log_append of any later one by this
/// process; arck_close of the log commits what is left.
///
/// enqueued, unless it is NULL, gets a handle for arck_log_commit, which ends it; arck_close gives it up, and not the record.
/// Blocks only where ARCK_RECORD_MAX bytes wait already. Errors as of arck_log_append.
#[unsafe(no_mangle)]
pub extern "C" fn arck_log_enqueue(
    log: arck_handle,
    record: Bytes,
    size: usize,
    enqueued: HandleRoom,
) -> c_int {
    answer(|| {
        let record = record.get(size)?;
        let (_inside, log, root) = handles::log(log)?;
        let left = log.enqueue(record)?;
        if enqueued.is_there() {
            enqueued.put(handles::add_part(root, State::Enqueued(left)))?;
        }
        Ok(0)
    })
}

/// Waits until an enqueued record is durable, with all that were enqueued before it; position, unless it is NULL, gets where it
/// begins. The handle is none afterwards. ESTALE: it was enqueued before a fork. As arck_log_append.
#[unsafe(no_mangle)]
pub extern "C" fn arck_log_commit(enqueued: arck_handle, position: PositionRoom) -> c_int {
    answer(|| {
        let (_inside, part, what) = handles::part(enqueued)?;
        let committed = {
            let state = part.use_alone()?;
            match (&*state, what) {
                (State::Enqueued(left), What::Log(log)) => log.commit(left),
                _ => return Err(Trouble::no_handle()),
            }
        };
        handles::forget_part(enqueued)?;
        tell(&position, committed?)
    })
}

/// The first position that has not been cut off. EBADF, EFAULT, EACCES, EIO.
#[unsafe(no_mangle)]
pub extern "C" fn arck_log_begin(log: arck_handle, position: PositionRoom) -> c_int {
    answer(|| {
        position.expected()?;
        let (_inside, log, _) = handles::log(log)?;
        tell(&position, log.begin()?)
    })
}

/// The position behind all that has been appended. EBADF, EFAULT, EACCES, EIO.
#[unsafe(no_mangle)]
pub extern "C" fn arck_log_end(log: arck_handle, position: PositionRoom) -> c_int {
    answer(|| {
        position.expected()?;
        let (_inside, log, _) = handles::log(log)?;
        tell(&position, log.end()?)
    })
}

/// Reads from a position on until the buffer is full or the log ends; gives how many bytes it was, 0 at its end. Takes no lock.
/// ENODATA: that was cut off. EINVAL: the log ends before, or size is more than SSIZE_MAX. EBADMSG: the log is damaged. EBADF, EFAULT, EACCES, EIO.
#[unsafe(no_mangle)]
pub extern "C" fn arck_log_read(
    log: arck_handle,
    position: u64,
    buffer: Room,
    size: usize,
) -> isize {
    answer(|| {
        let buffer = buffer.get(size)?;
        let (_inside, log, _) = handles::log(log)?;
        Ok(log.read_at(position, buffer)?.cast_signed())
    })
}

/// Takes away what lies before a position, by whole sections, but never the last one. Durable when it returns. Who reads or follows what
/// is cut off is told so (ENODATA). EINVAL: the log ends before. EACCES, EPERM, EIO, EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn arck_log_cut(log: arck_handle, position: u64) -> c_int {
    answer(|| {
        let (_inside, log, _) = handles::log(log)?;
        log.cut(position)?;
        Ok(0)
    })
}

/// Follows a log from a position on, which may be its end; gives a handle for arck_follower_next. ENODATA: that was cut off.
/// EINVAL: the log ends before. EBADF, EACCES, EIO.
#[unsafe(no_mangle)]
pub extern "C" fn arck_log_follow(log: arck_handle, position: u64) -> arck_handle {
    answer(|| {
        let (_inside, log, root) = handles::log(log)?;
        let follower = Box::new(log.follow(position)?);
        Ok(handles::add_part(root, State::Follower(follower)))
    })
}

/// What follows: as much of it as there is and the buffer has room for; records may be cut where the buffer ends. Where there is nothing it
/// waits until there is, at most so many milliseconds, -1: for ever. Gives how many bytes it was, 0 if the time is over.
///
/// position, unless it is NULL, gets where the next bytes come from. Signals do not end the wait, but to close the follower or the log
/// does (EBADF). EINVAL: no room, or a wait below -1. ENODATA: what follows was cut off. EBUSY: another thread is reading by this
/// handle. EBADMSG, EFAULT, EACCES, EIO.
#[unsafe(no_mangle)]
pub extern "C" fn arck_follower_next(
    follower: arck_handle,
    buffer: Room,
    size: usize,
    wait: c_int,
    position: PositionRoom,
) -> isize {
    answer(|| {
        let buffer = buffer.get(size)?;
        let wait = match wait {
            -1 => None,
            wait => Some(u64::try_from(wait).map_err(|_| Errno::INVAL)?),
        };
        let wait = wait.map(Duration::from_millis);
        let began = Instant::now();
        let (mut inside, part, _) = handles::part(follower)?;
        // To the end of the call: who comes meanwhile is told so, and not who waits.
        let mut state = part.use_alone()?;
        let State::Follower(following) = &mut *state else {
            return Err(Trouble::no_handle());
        };
        loop {
            let left = wait.map(|wait| wait.saturating_sub(began.elapsed()));
            let read = following.next(buffer, left.map_or(LOOK, |left| left.min(LOOK)))?;
            if read != 0 || left.is_some_and(|left| left <= LOOK) {
                tell(&position, following.position())?;
                return Ok(read.cast_signed());
            }
            // Outside for a moment, so that who closes it or the log gets to.
            drop(inside);
            inside = handles::part(follower)?.0;
        }
    })
}
