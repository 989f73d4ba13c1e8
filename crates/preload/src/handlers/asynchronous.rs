//! The kernel's asynchronous I/O (`io_setup` and what belongs to it, as libaio calls it).
//!
//! A request on a file of the pool is done while it is submitted, as the kernel does those on tmpfs. What is still to come is
//! its completion, among those of the host's files, in order, with time-outs, signal masks and eventfds as the kernel has
//! them: so each is stood for by a request of the kernel's that is complete at once ([`standing`]), and what
//! the program gets of it is put in that one's place when it is fetched.
//!
//! # Invariants
//! * To the program a context is a number of this library's own, at which no ring can be read: libaio looks for one there,
//!   and would find completions that are not the program's.
//! * A request is submitted, or refused with the error that the kernel would tell there; a failure that it would tell later
//!   is in the completion.
//! * What may have been done already is refused (EAGAIN) only if the kernel has no room, though the context had some: it
//!   can be done again.
//! * Nothing here waits for a lock: a handler of signals may come in between.

mod standing;

use super::data;
use crate::descriptors::is_pool;
use crate::memory;
use crate::raw::{self, Arguments, error, failed, pad, syscall};
use crate::{report, settings, signals, thread};
use standing::{Completion, Context, Standing};

/// A request as the kernel has it (`struct iocb`).
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    operation: u16,
    priority: u16,
    descriptor: u32,
    buffer: u64,
    length: u64,
    offset: u64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FSYNC: u16 = 2;
const FDSYNC: u16 = 3;
const POLL: u16 = 5;
const PREADV: u16 = 7;
const PWRITEV: u16 = 8;

/// The completion goes to an eventfd, too.
const TELLS_EVENT: u32 = 1;
/// Its priority is given.
const HAS_PRIORITY: u32 = 2;

/// Whether a call is the kernel's alone: there is no pool, or it is this library's own.
fn is_kernels() -> bool {
    thread::inside() || !settings::ready()
}

/// # Safety
/// The system call's own, in all of this module.
pub unsafe fn setup(a: &Arguments) -> isize {
    if is_kernels() {
        // SAFETY: the program's arguments, unchanged.
        return unsafe { raw::call(libc::SYS_io_setup as usize, a) };
    }
    // SAFETY: a number.
    let before = match unsafe { memory::copy_in::<u64>(a[1]) } {
        Ok(before) => before,
        Err(_) => return error(libc::EFAULT),
    };
    let count = a[0] as u32;
    if before != 0 || count == 0 {
        return error(libc::EINVAL);
    }
    report::served(libc::SYS_io_setup);
    match Context::begin(count) {
        Err(error) => error,
        Ok(context) => match memory::copy_out(a[1], &context.number()) {
            Ok(()) => 0,
            Err(_) => {
                context.end();
                error(libc::EFAULT)
            }
        },
    }
}

/// The context that the first argument names, or the answer of a call that names none.
fn context_of(number: i64, a: &Arguments) -> Result<&'static Context, isize> {
    if is_kernels() {
        // SAFETY: the program's arguments, unchanged.
        return Err(unsafe { raw::blocking_call(number as usize, a) });
    }
    Context::of(a[0]).ok_or(error(libc::EINVAL))
}

pub unsafe fn destroy(a: &Arguments) -> isize {
    match context_of(libc::SYS_io_destroy, a) {
        Ok(context) => context.end(),
        Err(answer) => answer,
    }
}

pub unsafe fn submit(a: &Arguments) -> isize {
    let context = match context_of(libc::SYS_io_submit, a) {
        Ok(context) => context,
        Err(answer) => return answer,
    };
    let count = a[1] as isize;
    if count < 0 {
        return error(libc::EINVAL);
    }
    // As the kernel: no more than the context has room for.
    let count = count.min(context.count() as isize);
    let mut done = 0;
    while done < count {
        // SAFETY: an address, and the request at one.
        let answer =
            match unsafe { memory::copy_in::<usize>(a[2] + done as usize * size_of::<usize>()) } {
                Ok(at) => submit_one(context, at),
                Err(_) => error(libc::EFAULT),
            };
        if failed(answer) {
            return if done == 0 { answer } else { done };
        }
        done += 1;
    }
    done
}

/// Submits the request at an address; 1, or why not.
fn submit_one(context: &Context, at: usize) -> isize {
    // SAFETY: a request is numbers.
    let Ok(request) = (unsafe { memory::copy_in::<Request>(at) }) else {
        return error(libc::EFAULT);
    };
    if !is_pool(request.descriptor as usize) {
        return context.submit(at);
    }
    if request.reserved != 0
        || request.length as i64 != request.length.cast_signed()
        || request.length.cast_signed() < 0
        || request.flags & !(TELLS_EVENT | HAS_PRIORITY) != 0
    {
        return error(libc::EINVAL);
    }
    // The key is the kernel's to set, and with it the page is found to be writable.
    let key = at + std::mem::offset_of!(Request, key);
    if memory::copy_out(key, &0u32).is_err() {
        return error(libc::EFAULT);
    }
    let Some(standing) = context.standing() else {
        return error(libc::EAGAIN);
    };
    report::served(libc::SYS_io_submit);
    // SAFETY: the program's request.
    let result = unsafe { perform(&request) };
    // Of a directory nothing can be read so.
    let result = match result {
        is_directory if is_directory == error(libc::EISDIR) => error(libc::EINVAL),
        result => result,
    };
    let is_refused = matches!(
        -result as i32,
        libc::EBADF | libc::EINVAL | libc::EOPNOTSUPP
    );
    if failed(result) && is_refused {
        return result;
    }
    let completion = Completion {
        data: request.data,
        request: at as u64,
        result: result as i64,
        further: 0,
    };
    let event = (request.flags & TELLS_EVENT != 0).then_some(request.event_descriptor);
    standing.submit(completion, event)
}

/// Does what a request on the pool asks for, and gives what its completion tells.
unsafe fn perform(request: &Request) -> isize {
    let descriptor = request.descriptor as usize;
    let (buffer, length) = (request.buffer as usize, request.length as usize);
    let one = [buffer, length];
    let position = request.offset as usize;
    let by_vector = |vector: usize, count: usize| -> Arguments {
        // A position of -1 is none to these calls, and a bad one here.
        [
            descriptor,
            vector,
            count,
            position,
            0,
            request.rw_flags as usize,
        ]
    };
    if matches!(request.operation, PREAD | PWRITE | PREADV | PWRITEV) && (position as isize) < 0 {
        return error(libc::EINVAL);
    }
    // SAFETY: the program's buffers, and a vector of this function's.
    unsafe {
        match request.operation {
            PREAD => data::preadv2(&by_vector(one.as_ptr() as usize, 1)),
            PWRITE => data::pwritev2(&by_vector(one.as_ptr() as usize, 1)),
            PREADV => data::preadv2(&by_vector(buffer, length)),
            PWRITEV => data::pwritev2(&by_vector(buffer, length)),
            FSYNC | FDSYNC
                if buffer != 0 || length != 0 || position != 0 || request.rw_flags != 0 =>
            {
                error(libc::EINVAL)
            }
            FSYNC => data::sync_descriptor::<{ libc::SYS_fsync as usize }>(&pad([descriptor])),
            FDSYNC => data::sync_descriptor::<{ libc::SYS_fdatasync as usize }>(&pad([descriptor])),
            _ => error(libc::EINVAL),
        }
    }
}

pub unsafe fn cancel(a: &Arguments) -> isize {
    match context_of(libc::SYS_io_cancel, a) {
        // What the pool was asked for is done: as the kernel of what it does not find.
        // SAFETY: the program's pointers.
        Ok(context) => unsafe { syscall!(libc::SYS_io_cancel, context.kernels(), a[1], a[2]) },
        Err(answer) => answer,
    }
}

pub unsafe fn fetch(a: &Arguments) -> isize {
    match context_of(libc::SYS_io_getevents, a) {
        Ok(context) => {
            let arguments = [context.kernels(), a[1], a[2], a[3], a[4], 0];
            // SAFETY: the program's pointers.
            let count = unsafe { raw::blocking_call(libc::SYS_io_getevents as usize, &arguments) };
            put_in_place(context, a[3], count)
        }
        Err(answer) => answer,
    }
}

pub unsafe fn fetch_masked(a: &Arguments) -> isize {
    const NUMBER: i64 = crate::calls::numbers::SYS_io_pgetevents;
    match context_of(NUMBER, a) {
        Ok(context) => {
            let arguments = [context.kernels(), a[1], a[2], a[3], a[4], a[5]];
            // SAFETY: the program's pointers.
            let count = unsafe { signals::with_pair::<{ NUMBER as usize }>(&arguments) };
            put_in_place(context, a[3], count)
        }
        Err(answer) => answer,
    }
}

/// Puts what the program is told in the place of what stood for it, among so many events that were fetched.
fn put_in_place(context: &Context, events: usize, count: isize) -> isize {
    for index in 0..count.max(0) as usize {
        let at = events + index * size_of::<Completion>();
        // SAFETY: an event is numbers. It cannot be read if another thread takes the memory away, as it is put there.
        let Ok(event) = (unsafe { memory::copy_in::<Completion>(at) }) else {
            return error(libc::EFAULT);
        };
        if let Some(completion) = Standing::fetched(context, event.request as usize)
            && memory::copy_out(at, &completion).is_err()
        {
            return error(libc::EFAULT);
        }
    }
    count
}
