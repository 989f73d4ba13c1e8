//! The kernel's asynchronous I/O (`io_setup` and what belongs to it, as libaio calls it).
//!
//! A request on a file of the pool is done while it is submitted, as the kernel does those on tmpfs. Its completion is kept
//! by the context, and fetched without the kernel where nobody waits for it there. Where somebody does, with a time-out or a
//! signal mask perhaps, or it is to be told to an eventfd, it is stood for by a request of the kernel's that is complete at
//! once ([`standing`]): what the program gets is put in that one's place when it is fetched.
//!
//! # Invariants
//! * To the program a context is a number of this library's own, at which no ring can be read: libaio looks for one there,
//!   and would find completions that are not the program's.
//! * A request is submitted, or refused with the error that the kernel would tell there; a failure that it would tell later
//!   is in the completion.
//! * What may have been done already is refused (EAGAIN) only if the kernel has no room, though the context had some: it
//!   can be done again.
//! * Nothing here waits for a lock: a handler of signals may come in between.

mod request;
mod standing;

use super::data;
use crate::descriptors::{Descriptor, lookup};
use crate::memory;
use crate::raw::{self, Arguments, error, failed, pad, syscall};
use crate::{report, settings, signals, thread};
use request::{
    Completion, FDSYNC, FSYNC, HAS_PRIORITY, PREAD, PREADV, PWRITE, PWRITEV, Request, TELLS_EVENT,
};
use standing::Context;

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
        let place = a[2].wrapping_add(done as usize * size_of::<usize>());
        // SAFETY: an address is a number.
        let at = unsafe { memory::copy_in::<usize>(place) };
        let answer = at.map_or(error(libc::EFAULT), |at| submit_one(context, at));
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
    match lookup(request.descriptor as usize) {
        Descriptor::Kernel => return context.submit(at),
        // This library's own, which to the program is not open.
        Descriptor::Error(error) => return error,
        Descriptor::Pool(_) => {}
    }
    if request.reserved != 0
        || request.length.cast_signed() < 0
        || request.flags & !(TELLS_EVENT | HAS_PRIORITY) != 0
    {
        return error(libc::EINVAL);
    }
    // The key is the kernel's to set, and with it the page is found to be writable.
    let key = at.wrapping_add(std::mem::offset_of!(Request, key));
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
    match request.flags & TELLS_EVENT {
        0 => standing.keep(completion),
        _ => standing.submit(completion, request.event_descriptor),
    }
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
        Ok(context) => fetch_from(context, a, |arguments| {
            // SAFETY: the program's pointers.
            unsafe { raw::blocking_call(libc::SYS_io_getevents as usize, arguments) }
        }),
        Err(answer) => answer,
    }
}

pub unsafe fn fetch_masked(a: &Arguments) -> isize {
    const NUMBER: i64 = crate::calls::numbers::SYS_io_pgetevents;
    match context_of(NUMBER, a) {
        Ok(context) => fetch_from(context, a, |arguments| {
            // SAFETY: the program's pointers.
            unsafe { signals::with_pair::<{ NUMBER as usize }>(arguments) }
        }),
        Err(answer) => answer,
    }
}

/// Fetches completions: those that are kept first, then, where they are too few, or the kernel has any, the `kernel`'s.
fn fetch_from(context: &Context, a: &Arguments, kernel: impl Fn(&Arguments) -> isize) -> isize {
    let (least, most) = (a[1] as isize, a[2] as isize);
    if least < 0 || most < least {
        return error(libc::EINVAL);
    }
    let (least, most) = (least as usize, most as usize);
    let mut got = 0;
    let mut collect = || {
        while got < most {
            let Some(kept) = context.kept() else { break };
            let at = a[3].wrapping_add(got * size_of::<Completion>());
            if memory::copy_out(at, &kept.completion()).is_err() {
                // It is not fetched, as by the kernel; what was before it is.
                kept.keep_on();
                return if got == 0 {
                    Err(error(libc::EFAULT))
                } else {
                    Ok(got)
                };
            }
            drop(kept);
            got += 1;
        }
        Ok(got)
    };
    let enough = |got: usize| got >= least && (got == most || !context.has_any_in_kernel());
    match collect() {
        Err(error) => return error,
        // Nothing is asked for, or all that is asked for is there. The kernel has to be asked where nothing was found: of a
        // context that another thread has ended it knows.
        Ok(got) if enough(got) && got != 0 => return got as isize,
        Ok(_) => {}
    }
    // From here on who keeps a completion sees that somebody waits, or it is seen here.
    let _waits = context.wait();
    let got = match collect() {
        Err(error) => return error,
        Ok(got) => got,
    };
    let arguments = [
        context.kernels(),
        least.saturating_sub(got),
        most - got,
        a[3].wrapping_add(got * size_of::<Completion>()),
        a[4],
        a[5],
    ];
    let count = put_in_place(context, arguments[3], kernel(&arguments));
    match failed(count) && got != 0 {
        true => got as isize,
        false => got as isize + count,
    }
}

/// Puts what the program is told in the place of what stood for it, among so many events that were fetched.
fn put_in_place(context: &Context, events: usize, count: isize) -> isize {
    for index in 0..count.max(0) as usize {
        let at = events.wrapping_add(index * size_of::<Completion>());
        // SAFETY: an event is numbers. It cannot be read if another thread takes the memory away, as it is put there.
        let Ok(event) = (unsafe { memory::copy_in::<Completion>(at) }) else {
            return error(libc::EFAULT);
        };
        let standing = context.fetched(event.request as usize);
        if let Some(completion) = standing
            && memory::copy_out(at, &completion).is_err()
        {
            return error(libc::EFAULT);
        }
    }
    count
}
