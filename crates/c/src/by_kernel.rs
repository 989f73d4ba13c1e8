//! Copies of the program's memory by the kernel, which says EFAULT where there is none, in place of a signal.
//!
//! A request's buffer is looked at long after C has named it, and on behalf of others too: what one caller has promised
//! wrongly is not to end the whole program. A call of the kernel's costs less than a request does.
//!
//! # Invariants
//! * An address is an address: nothing here makes a reference of it.
//! * Where the kernel forbids the call (a filter of a container) the copy is made all the same, and a wrong address is a signal, as
//!   with all other calls.

use arckfs::Errno;
use std::ffi::c_void;

/// One of the kernel's two calls, `process_vm_readv` or `process_vm_writev`.
type Call = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// Whether the kernel has copied; `None` if it forbids that.
///
/// # Safety
/// `own` has `length` bytes of this crate's, which the call may use.
unsafe fn asked(
    call: Call,
    own: *mut u8,
    address: usize,
    length: usize,
) -> Option<Result<(), Errno>> {
    let vector = |iov_base: *mut c_void| libc::iovec {
        iov_base,
        iov_len: length,
    };
    let own = vector(own.cast());
    let programs = vector(std::ptr::with_exposed_provenance_mut(address));
    // SAFETY: vectors of one each; `own` as the caller says; what the other one leads to the kernel looks at.
    let copied = unsafe { call(libc::getpid(), &raw const own, 1, &raw const programs, 1, 0) };
    match usize::try_from(copied) {
        Ok(copied) if copied == length => Some(Ok(())),
        Ok(_) => Some(Err(Errno::FAULT)),
        Err(_) => match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS | libc::EACCES) => None,
            Some(libc::ENOMEM) => Some(Err(Errno::NOMEM)),
            _ => Some(Err(Errno::FAULT)),
        },
    }
}

/// What stands at an address. EFAULT: not all of it is there. ENOMEM.
pub fn bytes_at(address: usize, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes: Vec<u8> = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Errno::NOMEM)?;
    if length == 0 {
        return Ok(bytes);
    }
    let own = bytes.as_mut_ptr();
    // SAFETY: as much memory was reserved for it.
    let copied = unsafe { asked(libc::process_vm_readv, own, address, length) };
    match copied {
        Some(copied) => copied?,
        // SAFETY: C's promise of so many bytes; they are not those that were reserved just now.
        None => unsafe {
            own.copy_from_nonoverlapping(std::ptr::with_exposed_provenance(address), length);
        },
    }
    // SAFETY: so many were copied.
    unsafe { bytes.set_len(length) };
    Ok(bytes)
}

/// Puts bytes at an address. EFAULT: there is no room for all of them, and some may have been put.
pub fn put_at(address: usize, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    let own = bytes.as_ptr().cast_mut();
    // SAFETY: so many bytes, which this call reads alone.
    let copied = unsafe { asked(libc::process_vm_writev, own, address, bytes.len()) };
    match copied {
        Some(copied) => copied,
        None => {
            let target = std::ptr::with_exposed_provenance_mut::<u8>(address);
            // SAFETY: C's promise of room for so many, which is not this crate's.
            unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            Ok(())
        }
    }
}
