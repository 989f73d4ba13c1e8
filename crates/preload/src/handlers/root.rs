//! `chroot`. Inside another root nothing is called what it is called outside: the pool is not seen there, nor can this
//! library be loaded into programs that are executed there. Where the kernel has the pool mounted beneath, a directory of
//! the pool can be a root, and what the programs in it do goes through the mount.
//!
//! # Invariants
//! * The root has changed ([`settings::ROOT_CHANGED`]) if this library is not found any more where it was: executed programs are not told to
//!   load it then, and no absolute path is the pool's.
//! * What such programs inherit open on the pool has been replaced by the mount's descriptors before: afterwards
//!   these could not be opened.

use super::{HERE, outside};
use crate::backend::inside;
use crate::path::{Place, Scratch, place};
use crate::raw::{self, Arguments, syscall};
use crate::{report, settings, thread, unreached};
use std::sync::atomic::Ordering;

/// # Safety
/// The system call's own.
pub unsafe fn chroot(a: &Arguments) -> isize {
    let kernel = |path: usize| {
        let beneath =
            settings::BENEATH.get() == b"1" && !thread::inside() && !settings::root_changed();
        if beneath && is_directory(path) {
            unreached::leave_to_mount();
        }
        // SAFETY: the program's argument, or a path of the pool with its NUL.
        let result = unsafe { syscall!(libc::SYS_chroot, path) };
        if result == 0 && settings::ready() && !is_library_there() {
            settings::ROOT_CHANGED.store(true, Ordering::Relaxed);
        }
        result
    };
    let mut scratch = Scratch::new();
    // SAFETY: the program's path.
    match unsafe { place(HERE, a[0], &mut scratch) } {
        Place::Kernel => kernel(a[0]),
        Place::Error(error) => error,
        Place::Pool(..) if settings::BENEATH.get() != b"1" => {
            report::past(libc::SYS_chroot);
            kernel(a[0])
        }
        Place::Pool(at, path) => {
            report::served(libc::SYS_chroot);
            let found = inside(|fs| {
                let handle = fs.open(at, path, libc::O_PATH | libc::O_DIRECTORY, 0)?;
                let path = fs.path_of(handle);
                fs.close(handle);
                Ok(path?)
            });
            match found {
                Ok(mut path) => {
                    path.push(0);
                    kernel(path.as_ptr() as usize)
                }
                Err(failure) => outside(failure, kernel),
            }
        }
    }
}

/// Of who will be told an error nothing is replaced.
fn is_directory(path: usize) -> bool {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the caller's path; the descriptor is our own.
    let opened = unsafe { syscall!(libc::SYS_openat, HERE, path, flags) };
    if !raw::failed(opened) {
        raw::close(opened);
    }
    !raw::failed(opened)
}

fn is_library_there() -> bool {
    // SAFETY: the setting has its NUL.
    unsafe {
        let path = settings::LIBRARY.get().as_ptr();
        !raw::failed(syscall!(libc::SYS_faccessat, HERE, path, libc::R_OK))
    }
}
