//! Named pipes of the pool: what the program gets is the kernel's own descriptor of the FIFO where both ends meet, so
//! that all that is done with it later is the kernel's.
//!
//! Who waits for the other end waits on a socket of the controller's, the *ticket*, by which the pipe comes; in a system
//! call that signals interrupt, and after whose handlers the kernel goes on, as they do and it does with an open.
//!
//! Invariants:
//! * A number that an open has found is the program's when it returns; before, no other open gets it, and a forked child
//!   does not have it.
//! * The ticket is closed when the open ends in whatever way: who does not wait any more does not count as one who does.
//! * Nothing of the LibFS is held while the program waits.

use super::hole::kernel_closed;
use super::stock::{allocate, close_for_good, give_back};
use super::table::{RESERVED, entry, raise_high_water};
use crate::backend::forks::Received;
use crate::backend::{Errno, Failure, NamedPipe, OpenedPipe, inside, minus, receive_pipe};
use crate::raw::{self, blocking, error, syscall};
use crate::{reserved, thread};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Flags of an open that its description keeps, beside those that the controller knows.
const KEPT: i32 = libc::O_APPEND | libc::O_ASYNC | libc::O_DIRECT;

/// Numbers that opens which wait have found; 0: none. Of more than these a forked child has placeholders.
static HELD: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// A number that an open has found, with a plain placeholder in it.
struct Number(usize);

impl Number {
    fn hold(number: usize) -> Number {
        raise_high_water(number);
        entry(number).store(RESERVED, Ordering::Release);
        for held in &HELD {
            let (new, old) = (Ordering::AcqRel, Ordering::Relaxed);
            if held.compare_exchange(0, number, new, old).is_ok() {
                break;
            }
        }
        Number(number)
    }

    /// The program's from now on.
    fn becomes(self, file: Received, flags: i32, close_on_exec: bool) -> isize {
        let _inside = thread::enter();
        let flag = if close_on_exec { libc::O_CLOEXEC } else { 0 };
        let (low, result) = file.place(|files| {
            let low = files.first().map_or(-1, AsRawFd::as_raw_fd);
            // SAFETY: a descriptor that has just come, and a number that is held for it.
            let result = unsafe {
                let set = match flags & KEPT {
                    0 => 0,
                    kept => {
                        let status = syscall!(libc::SYS_fcntl, low, libc::F_GETFL);
                        let status = status as i32 | kept;
                        syscall!(libc::SYS_fcntl, low, libc::F_SETFL, status)
                    }
                };
                match raw::failed(set) {
                    true => set,
                    false => syscall!(libc::SYS_dup3, low, self.0, flag),
                }
            };
            if !raw::failed(result) {
                self.release();
                entry(self.0).store(0, Ordering::Release);
            }
            (low, result)
        });
        kernel_closed(low as usize);
        if !raw::failed(result) {
            std::mem::forget(self);
        }
        result
    }

    fn release(&self) {
        for held in &HELD {
            let (new, old) = (Ordering::AcqRel, Ordering::Relaxed);
            if held.compare_exchange(self.0, 0, new, old).is_ok() {
                break;
            }
        }
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.release();
        give_back(self.0);
    }
}

/// In a forked child: no open of its parent's waits here.
pub fn forked() {
    for held in &HELD {
        let number = held.swap(0, Ordering::AcqRel);
        if number != 0 {
            close_for_good(number);
        }
    }
}

/// What an open waits for. A forked child closes its copy.
struct Ticket(Option<Received>);

impl Ticket {
    fn new(received: Received) -> Ticket {
        for file in received.iter() {
            reserved::mark(file.as_raw_fd() as usize);
        }
        Ticket(Some(received))
    }

    /// The pipe, when it has come; `None`: a new controller is to be asked.
    fn wait(&self) -> Result<Option<Received>, Errno> {
        let ticket = self.0.as_ref().and_then(|received| received.first());
        let ticket = ticket.ok_or(Errno::IO)?;
        let mut byte = 0u8;
        let (number, into) = (ticket.as_raw_fd(), &raw mut byte);
        // SAFETY: a descriptor of this library's, and a byte on the stack.
        let come = unsafe { blocking!(libc::SYS_recvfrom, number, into, 1, libc::MSG_PEEK, 0, 0) };
        match come {
            0 => return Ok(None),
            1.. => {}
            _ => return Err(Errno::from_raw_os_error(-come as i32)),
        }
        let received = {
            let _inside = thread::enter();
            receive_pipe(ticket.as_fd())?
        };
        if received.is_some() {
            // That nobody else has it any more; from who has sent it a moment ago.
            // SAFETY: as above.
            let told = || unsafe { syscall!(libc::SYS_recvfrom, number, into, 1, 0, 0, 0) };
            while told() == error(libc::EINTR) {}
        }
        Ok(received)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let _inside = thread::enter();
        if let Some(received) = self.0.take() {
            for file in received.iter() {
                entry(file.as_raw_fd() as usize).store(0, Ordering::Release);
            }
        }
    }
}

/// Opens a named pipe under a number that was found before, or the lowest that is free. Waits for the other end as its flags
/// say. The number, or minus an error number; ESTALE if what the path led to is gone.
pub fn open(
    pipe: &NamedPipe,
    number: Option<usize>,
    close_on_exec: bool,
) -> Result<isize, Failure> {
    let number = match number.map_or_else(|| allocate(0), Ok) {
        Ok(number) => Number::hold(number),
        Err(error) => return Ok(error),
    };
    let interruptions = &thread::current().interruptions;
    loop {
        let before = interruptions.load(Ordering::Relaxed);
        let ticket = match inside(|fs| Ok(fs.open_pipe(pipe)?))? {
            OpenedPipe::Now(file) => return Ok(number.becomes(file, pipe.flags(), close_on_exec)),
            OpenedPipe::Later(ticket) => Ticket::new(ticket),
        };
        // A signal that came while the LibFS was asked has come while it waited.
        let come = match interruptions.load(Ordering::Relaxed) == before {
            true => ticket.wait(),
            false => Err(Errno::INTR),
        };
        match come {
            Ok(Some(file)) => return Ok(number.becomes(file, pipe.flags(), close_on_exec)),
            Ok(None) => {}
            Err(errno) => return Ok(minus(errno)),
        }
    }
}
