//! `mmap` of pool files.
//!
//! A private mapping, or a shared one that cannot be written, is anonymous memory filled with
//! the file's bytes at the time of the call. Later changes of the file do not show in it, which
//! POSIX leaves open for private mappings and programs that map finished files do not notice. A
//! shared writable mapping is ENODEV: programs that need one say so, instead of losing data.

use super::{memory_mut, on_descriptor};
use crate::backend::{Errno, Failure, FileSystem, Handle};
use crate::raw::{self, Arguments, syscall};

/// # Safety
/// As the system call's.
#[inline(always)]
pub unsafe fn mmap(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        if a[3] as i32 & libc::MAP_ANONYMOUS != 0 {
            return raw::call(libc::SYS_mmap as usize, a);
        }
        on_descriptor(
            libc::SYS_mmap,
            a[4],
            |fs, handle| map(fs, handle, a),
            || raw::call(libc::SYS_mmap as usize, a),
        )
    }
}

unsafe fn map(fs: &FileSystem, handle: Handle, a: &Arguments) -> Result<isize, Failure> {
    let [address, length, protection, flags, _, offset] = *a;
    let (protection, flags) = (protection as i32, flags as i32);
    if length == 0 || !offset.is_multiple_of(4096) {
        return Err(Failure::Errno(Errno::INVAL));
    }
    let shared = matches!(
        flags & libc::MAP_TYPE,
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE
    );
    let access = fs.flags(handle);
    if access & libc::O_PATH != 0 {
        return Err(Failure::Errno(Errno::BADF));
    }
    if access & libc::O_ACCMODE == libc::O_WRONLY {
        return Err(Failure::Errno(Errno::ACCESS));
    }
    if shared && protection & libc::PROT_WRITE != 0 {
        return Err(Failure::Errno(Errno::NODEV));
    }
    if fs.stat_handle(handle)?.mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Failure::Errno(Errno::NODEV));
    }
    let kept = libc::MAP_FIXED
        | libc::MAP_FIXED_NOREPLACE
        | libc::MAP_32BIT
        | libc::MAP_NORESERVE
        | libc::MAP_LOCKED;
    let filling = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: where the program asked for it, or where the kernel chooses; filled before the
    // program sees it.
    unsafe {
        let start = syscall!(
            libc::SYS_mmap,
            address,
            length,
            filling,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | (flags & kept),
            -1isize,
            0
        );
        if raw::failed(start) {
            return Ok(start);
        }
        let buffer = memory_mut(start as usize, length)?;
        let mut filled = 0;
        while filled < length {
            match fs.read(
                handle,
                &mut buffer[filled..],
                Some((offset + filled) as u64),
            ) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(errno) => {
                    raw::unmap(start as *mut u8, length);
                    return Err(Failure::Errno(errno));
                }
            }
        }
        if protection != filling {
            syscall!(libc::SYS_mprotect, start, length, protection);
        }
        Ok(start)
    }
}
