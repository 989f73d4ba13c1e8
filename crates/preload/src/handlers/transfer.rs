//! Calls that move data between two descriptors inside the kernel.

use super::{memory, memory_mut};
use crate::backend::{Failure, Handle, inside, minus};
use crate::descriptors::{Descriptor, is_pool, lookup};
use crate::raw::{self, Arguments, error, syscall};
use crate::report;

/// `copy_file_range` works inside one file system of the kernel's; programs copy by reading and
/// writing when it fails with EXDEV.
///
/// # Safety
/// As the system call's. The same holds for every handler below.
pub unsafe fn copy_file_range(a: &Arguments) -> isize {
    if is_pool(a[0]) || is_pool(a[2]) {
        report::served(libc::SYS_copy_file_range);
        return error(libc::EXDEV);
    }
    // SAFETY: the program's arguments.
    unsafe { raw::call(libc::SYS_copy_file_range as usize, a) }
}

/// `splice`, `tee`, `vmsplice`: EINVAL, as for files that do not support them.
///
/// # Safety
/// The system call's own.
pub unsafe fn splice<const NUMBER: usize, const OTHER: usize>(a: &Arguments) -> isize {
    if is_pool(a[0]) || is_pool(a[OTHER]) {
        report::served(NUMBER as i64);
        return error(libc::EINVAL);
    }
    // SAFETY: the program's arguments.
    unsafe { raw::call(NUMBER, a) }
}

fn value(result: Result<usize, Failure>) -> isize {
    match result {
        Ok(n) => n as isize,
        Err(Failure::Errno(errno)) => minus(errno),
        Err(Failure::Outside(_)) => error(libc::EIO),
    }
}

enum End {
    Pool(Handle),
    Kernel(usize),
}

impl End {
    fn of(descriptor: usize) -> Result<End, isize> {
        match lookup(descriptor) {
            Descriptor::Pool(handle) => Ok(End::Pool(handle)),
            Descriptor::Kernel => Ok(End::Kernel(descriptor)),
            Descriptor::Error(error) => Err(error),
        }
    }

    fn read(&self, buffer: &mut [u8], from: Option<u64>) -> isize {
        match self {
            End::Pool(handle) => value(inside(|fs| Ok(fs.read(*handle, buffer, from)?))),
            // SAFETY: the buffer is valid for writing.
            End::Kernel(fd) => unsafe {
                match from {
                    None => syscall!(libc::SYS_read, *fd, buffer.as_mut_ptr(), buffer.len()),
                    Some(from) => {
                        syscall!(
                            libc::SYS_pread64,
                            *fd,
                            buffer.as_mut_ptr(),
                            buffer.len(),
                            from
                        )
                    }
                }
            },
        }
    }

    fn write(&self, buffer: &[u8]) -> isize {
        match self {
            End::Pool(handle) => value(inside(|fs| Ok(fs.write(*handle, buffer, None)?))),
            // SAFETY: the buffer is valid for reading.
            End::Kernel(fd) => unsafe {
                syscall!(libc::SYS_write, *fd, buffer.as_ptr(), buffer.len())
            },
        }
    }

    /// Undoes reading ahead of what could be written.
    fn step_back(&self, bytes: usize) {
        let by = -(bytes as i64);
        match self {
            End::Pool(handle) => {
                let _ = inside(|fs| Ok(fs.seek(*handle, by, libc::SEEK_CUR)?));
            }
            // SAFETY: no pointers.
            End::Kernel(fd) => unsafe {
                syscall!(libc::SYS_lseek, *fd, by, libc::SEEK_CUR);
            },
        }
    }
}

pub unsafe fn sendfile(a: &Arguments) -> isize {
    const PIECE: usize = 64 * 1024;
    if !is_pool(a[0]) && !is_pool(a[1]) {
        // SAFETY: the program's arguments.
        return unsafe { syscall!(libc::SYS_sendfile, a[0], a[1], a[2], a[3]) };
    }
    report::served(libc::SYS_sendfile);
    let (to, from) = match (End::of(a[0]), End::of(a[1])) {
        (Ok(to), Ok(from)) => (to, from),
        (Err(error), _) | (_, Err(error)) => return error,
    };
    let Some(memory_address) = raw::map_anonymous(PIECE) else {
        return error(libc::ENOMEM);
    };
    // SAFETY: a fresh mapping of PIECE bytes; the program's offset if not null.
    let total = unsafe {
        let mut offset = (a[2] >= 4096).then(|| (a[2] as *const u64).read_unaligned());
        let mut total = 0usize;
        let mut failure = 0;
        while total < a[3] {
            let length = PIECE.min(a[3] - total);
            let Ok(buffer) = memory_mut(memory_address as usize, length) else {
                break;
            };
            let got = from.read(buffer, offset);
            if got <= 0 {
                failure = got;
                break;
            }
            let got = got as usize;
            let mut sent = 0;
            while sent < got {
                let Ok(rest) = memory(memory_address as usize + sent, got - sent) else {
                    break;
                };
                let n = to.write(rest);
                if n <= 0 {
                    failure = n;
                    break;
                }
                sent += n as usize;
            }
            total += sent;
            match &mut offset {
                Some(offset) => *offset += sent as u64,
                None if sent < got => from.step_back(got - sent),
                None => {}
            }
            if sent < got {
                break;
            }
        }
        if let Some(offset) = offset {
            (a[2] as *mut u64).write_unaligned(offset);
        }
        if total == 0 { failure } else { total as isize }
    };
    // SAFETY: mapped above, not used any more.
    unsafe { raw::unmap(memory_address, PIECE) };
    total
}
