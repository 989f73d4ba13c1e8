//! The stat and statvfs families, and the working directory's name.

use super::{check, fail, finish};
use crate::directory;
use crate::handlers::HERE;
use crate::raw::{self, error, failed};
use crate::settings::PATH_MAX;

const NOFOLLOW: usize = libc::AT_SYMLINK_NOFOLLOW as usize;

symbols! {
    stat | stat64: (path, buffer) => SYS_newfstatat(HERE, path, buffer);
    lstat | lstat64: (path, buffer) => SYS_newfstatat(HERE, path, buffer, NOFOLLOW);
    fstat | fstat64: (fd, buffer) => SYS_fstat(fd, buffer);
    fstatat | fstatat64: (at, path, buffer, flags) => SYS_newfstatat(at, path, buffer, flags);
    __xstat | __xstat64: (_version, path, buffer) => SYS_newfstatat(HERE, path, buffer);
    __lxstat | __lxstat64: (_version, path, buffer) => SYS_newfstatat(HERE, path, buffer, NOFOLLOW);
    __fxstat | __fxstat64: (_version, fd, buffer) => SYS_fstat(fd, buffer);
    __fxstatat | __fxstatat64: (_version, at, path, buffer, flags) =>
        SYS_newfstatat(at, path, buffer, flags);
    statx: (at, path, flags, mask, buffer) => SYS_statx(at, path, flags, mask, buffer);
    statfs | statfs64 | __statfs: (path, buffer) => SYS_statfs(path, buffer);
    fstatfs | fstatfs64: (fd, buffer) => SYS_fstatfs(fd, buffer);
    statvfs | statvfs64: (path, buffer) =>
        SYS_statfs { portable(buffer, |kernel| call!(SYS_statfs(path, kernel))) };
    fstatvfs | fstatvfs64: (fd, buffer) =>
        SYS_fstatfs { portable(buffer, |kernel| call!(SYS_fstatfs(fd, kernel))) };
}

/// `statvfs` made of `statfs`.
unsafe fn portable(buffer: usize, ask: impl FnOnce(usize) -> isize) -> isize {
    /// Set by the kernel in `f_flags` to say that they are valid.
    const ST_VALID: i64 = 0x20;
    // SAFETY: plain structures of integers; the program's buffer.
    unsafe {
        let mut kernel: libc::statfs = std::mem::zeroed();
        let result = ask(&raw mut kernel as usize);
        if failed(result) {
            return result;
        }
        let mut portable: libc::statvfs = std::mem::zeroed();
        portable.f_bsize = kernel.f_bsize as u64;
        portable.f_frsize = if kernel.f_frsize == 0 {
            kernel.f_bsize as u64
        } else {
            kernel.f_frsize as u64
        };
        portable.f_blocks = kernel.f_blocks;
        portable.f_bfree = kernel.f_bfree;
        portable.f_bavail = kernel.f_bavail;
        portable.f_files = kernel.f_files;
        portable.f_ffree = kernel.f_ffree;
        portable.f_favail = kernel.f_ffree;
        portable.f_fsid = std::mem::transmute::<libc::fsid_t, u64>(kernel.f_fsid);
        // `f_flags` is the first of the alternate words in this binding.
        let flags = (&raw const kernel.f_frsize).add(1).read();
        portable.f_flag = (flags & !ST_VALID) as u64;
        portable.f_namemax = kernel.f_namelen as u64;
        (buffer as *mut libc::statvfs).write_unaligned(portable);
        0
    }
}

/// # Safety
/// As libc's: `buffer` is null or has `size` bytes; a null one is answered in memory to `free`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getcwd(buffer: *mut u8, size: usize) -> *mut u8 {
    let mut name = [0u8; PATH_MAX];
    // SAFETY: our own buffer for the name; the program's is large enough by its size.
    unsafe {
        if !buffer.is_null() && size == 0 {
            fail(libc::EINVAL);
            return std::ptr::null_mut();
        }
        let length = {
            let arguments = [name.as_mut_ptr() as usize, name.len(), 0, 0, 0, 0];
            crate::calls::dispatch(libc::SYS_getcwd as usize, &arguments)
        };
        if length == error(libc::ERANGE) || length == error(libc::ENAMETOOLONG) {
            return long_directory(buffer, size);
        }
        if failed(length) {
            finish(length);
            return std::ptr::null_mut();
        }
        give_directory(&name[..length as usize], buffer, size)
    }
}

/// A working directory whose name, with its NUL, is longer than the system call tells.
///
/// # Safety
/// As for [`getcwd`].
#[cold]
unsafe fn long_directory(buffer: *mut u8, size: usize) -> *mut u8 {
    /// Names beyond this are ENAMETOOLONG.
    const MOST: usize = 1 << 20;
    if !directory::is_on_pool() {
        // The C library finds its way upwards.
        // SAFETY: a constant name; the function has the type of this one.
        unsafe {
            let next = libc::dlsym(libc::RTLD_NEXT, c"getcwd".as_ptr());
            if next.is_null() {
                fail(libc::ENAMETOOLONG);
                return std::ptr::null_mut();
            }
            type Next = unsafe extern "C" fn(*mut u8, usize) -> *mut u8;
            return std::mem::transmute::<*mut libc::c_void, Next>(next)(buffer, size);
        }
    }
    let mut name = vec![0; MOST];
    match directory::name(&mut name) {
        // SAFETY: the caller's promise.
        Some(length) if length > 0 => unsafe {
            give_directory(&name[..length as usize], buffer, size)
        },
        failed => {
            let failed = failed.filter(|failed| *failed != error(libc::ERANGE));
            // SAFETY: it sets errno only.
            unsafe { finish(failed.unwrap_or(error(libc::ENAMETOOLONG))) };
            std::ptr::null_mut()
        }
    }
}

/// Gives `name`, which ends in its NUL, in the way that [`getcwd`] was asked for it.
///
/// # Safety
/// As for [`getcwd`].
unsafe fn give_directory(name: &[u8], buffer: *mut u8, size: usize) -> *mut u8 {
    let length = name.len();
    if name[0] != b'/' {
        fail(libc::ENOENT);
        return std::ptr::null_mut();
    }
    let mut target = buffer;
    // SAFETY: the program's buffer is large enough by its size, or memory is allocated.
    unsafe {
        if target.is_null() {
            if size == 0 || size >= length {
                target = libc::malloc(size.max(length)).cast();
            }
            if target.is_null() {
                fail(if size == 0 || size >= length {
                    libc::ENOMEM
                } else {
                    libc::ERANGE
                });
                return target;
            }
        } else if size < length {
            fail(libc::ERANGE);
            return std::ptr::null_mut();
        }
        std::ptr::copy_nonoverlapping(name.as_ptr(), target, length);
    }
    target
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __getcwd_chk(buffer: *mut u8, size: usize, room: usize) -> *mut u8 {
    check(size <= room);
    // SAFETY: the same function.
    unsafe { getcwd(buffer, size) }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn get_current_dir_name() -> *mut u8 {
    // SAFETY: asks for allocated memory.
    unsafe { getcwd(std::ptr::null_mut(), 0) }
}

/// # Safety
/// As libc's: `buffer` has PATH_MAX bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getwd(buffer: *mut u8) -> *mut u8 {
    if buffer.is_null() {
        fail(libc::EINVAL);
        return buffer;
    }
    // SAFETY: the caller's promise.
    unsafe { getcwd(buffer, PATH_MAX) }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __getwd_chk(buffer: *mut u8, room: usize) -> *mut u8 {
    // SAFETY: the same function, in the room there is.
    unsafe { getcwd(buffer, room.min(PATH_MAX)) }
}

const _: () = assert!(raw::error(1) == -1);

written_out! {
    getcwd => SYS_getcwd;
    __getcwd_chk => SYS_getcwd;
    get_current_dir_name => SYS_getcwd;
    getwd => SYS_getcwd;
    __getwd_chk => SYS_getcwd;
}
