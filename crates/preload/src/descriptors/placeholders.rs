//! Placeholders: files of the kernel's that can neither be read nor written, how a plain one is made, and by what
//! one is told from other files.
//!
//! Invariant: what looks like one may be anybody's. It is believed to be a plain one where nobody else but root can
//! have made it ([`is_made_here`]); of an external one the controller says what it is.

use crate::raw;

/// Of plain placeholders.
const NAME: &std::ffi::CStr = c"arck-description";
const LINK: &[u8] = b"/memfd:arck-description (deleted)";
/// What the links of external ones begin with.
pub const EXTERNAL_LINK: &[u8] = b"/memfd:arck-description:";

/// A new plain placeholder, close-on-exec: an empty file that can neither be read nor written.
pub fn make() -> isize {
    // SAFETY: constant name; descriptors made here are ours.
    unsafe {
        let file = raw::syscall!(
            libc::SYS_memfd_create,
            NAME.as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING
        );
        if raw::failed(file) {
            return file;
        }
        let mut result = raw::syscall!(
            libc::SYS_fcntl,
            file,
            libc::F_ADD_SEALS,
            libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL
        );
        if !raw::failed(result) {
            // Access mode 3: for neither reading nor writing.
            result = raw::syscall!(
                libc::SYS_openat,
                libc::AT_FDCWD,
                raw::descriptor_path(file as usize).pointer(),
                libc::O_ACCMODE | libc::O_CLOEXEC
            );
        }
        raw::close(file);
        result
    }
}

/// Whether it is a plain one of this library's, of this process or another.
pub fn is_plain(descriptor: usize) -> bool {
    unnamed_file(descriptor).is_some() && link(descriptor, &mut [0; 64]) == LINK
}

/// Whether what looks like a plain placeholder was opened as this library does it ([`make`]),
/// by a process of this one's user, or root's. Nobody else can give his file these.
pub fn is_made_here(descriptor: usize) -> bool {
    // SAFETY: questions about a descriptor, and a number out.
    let (flags, own) = unsafe {
        let flags = raw::syscall!(libc::SYS_fcntl, descriptor, libc::F_GETFL);
        (flags, raw::syscall!(libc::SYS_geteuid))
    };
    let is_closed_to_all = flags as i32 & libc::O_ACCMODE == libc::O_ACCMODE;
    let is_trusted = |user: u32| user == 0 || user as isize == own;
    let user = unnamed_file(descriptor).map(|status| status.st_uid);
    !raw::failed(flags) && is_closed_to_all && user.is_some_and(is_trusted)
}

/// A regular file that has no name. Reading a link of `/proc` takes ten times as long as this, which most
/// descriptors fail.
pub fn unnamed_file(descriptor: usize) -> Option<libc::stat> {
    // SAFETY: filled by the kernel, or all zeroes.
    let status = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        raw::syscall!(libc::SYS_fstat, descriptor, &raw mut status);
        status
    };
    let is_regular = status.st_mode & libc::S_IFMT == libc::S_IFREG;
    (is_regular && status.st_nlink == 0).then_some(status)
}

/// What `/proc` says of a descriptor, as far as there is room.
pub fn link(descriptor: usize, room: &mut [u8; 64]) -> &[u8] {
    // SAFETY: the kernel writes at most the buffer's length.
    let length = unsafe {
        raw::syscall!(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            raw::descriptor_path(descriptor).pointer(),
            room.as_mut_ptr(),
            room.len()
        )
    };
    &room[..length.max(0) as usize]
}
