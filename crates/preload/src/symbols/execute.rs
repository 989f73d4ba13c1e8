//! fork's kin, the exec family, and exit.

use super::{fail, finish};
use crate::process;
use crate::raw::{self, Text};
use crate::settings::PATH_MAX;
use std::ffi::CStr;

unsafe extern "C" {
    static environ: usize;
}

/// A child of `vfork` would run in our memory, and in the middle of libc's functions there when it has to
/// detach ([`process::spawn`]), so it is a `fork`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn vfork() -> i32 {
    // SAFETY: libc's own; its handlers prepare the hand-over.
    unsafe { libc::fork() }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __vfork() -> i32 {
    // SAFETY: the same function.
    unsafe { vfork() }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execve(path: usize, arguments: usize, environment: usize) -> isize {
    // SAFETY: the program's arguments.
    unsafe { finish(process::execve(&[path, arguments, environment, 0, 0, 0])) }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execv(path: usize, arguments: usize) -> isize {
    // SAFETY: the program's arguments, in its own environment.
    unsafe { execve(path, arguments, environ) }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fexecve(fd: usize, arguments: usize, environment: usize) -> isize {
    let flags = libc::AT_EMPTY_PATH as usize;
    let empty = c"".as_ptr() as usize;
    // SAFETY: the program's arguments.
    unsafe {
        finish(process::execveat(&[
            fd,
            empty,
            arguments,
            environment,
            flags,
            0,
        ]))
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execveat(
    at: usize,
    path: usize,
    arguments: usize,
    environment: usize,
    flags: usize,
) -> isize {
    // SAFETY: the program's arguments.
    unsafe {
        finish(process::execveat(&[
            at,
            path,
            arguments,
            environment,
            flags as u32 as usize,
            0,
        ]))
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvp(file: usize, arguments: usize) -> isize {
    // SAFETY: the program's arguments, in its own environment.
    unsafe { execvpe(file, arguments, environ) }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvpe(file: usize, arguments: usize, environment: usize) -> isize {
    // SAFETY: the program's strings; no allocation, so that a forked child may call it.
    unsafe {
        let name = CStr::from_ptr(file as *const _).to_bytes();
        if name.is_empty() {
            return fail(libc::ENOENT);
        }
        if name.contains(&b'/') {
            return finish(run_or_script(file, arguments, environment));
        }
        let search = libc::getenv(c"PATH".as_ptr());
        let search = if search.is_null() {
            b"/bin:/usr/bin"
        } else {
            CStr::from_ptr(search).to_bytes()
        };
        let mut denied = false;
        for directory in search.split(|byte| *byte == b':') {
            if directory.len() + name.len() + 2 > PATH_MAX {
                continue;
            }
            let mut path = Text::<PATH_MAX>::new();
            if !directory.is_empty() {
                path.push(directory).push(b"/");
            }
            path.push(name);
            let result = run_or_script(path.pointer() as usize, arguments, environment);
            match -result as i32 {
                libc::EACCES => denied = true,
                libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT => {}
                _ => return finish(result),
            }
        }
        fail(if denied { libc::EACCES } else { libc::ENOENT })
    }
}

/// What is not a program the kernel knows is run by the shell.
unsafe fn run_or_script(path: usize, arguments: usize, environment: usize) -> isize {
    // SAFETY: NULL-terminated arrays; the list has room for two more entries and the NULL.
    unsafe {
        let result = process::execve(&[path, arguments, environment, 0, 0, 0]);
        if result != raw::error(libc::ENOEXEC) {
            return result;
        }
        process::spawn::detach();
        let count = crate::environment::length(arguments);
        let size = (count + 4) * size_of::<usize>();
        let Some(memory) = raw::map_anonymous(size) else {
            return raw::error(libc::ENOMEM);
        };
        let list = memory.cast::<usize>();
        let shell = c"/bin/sh".as_ptr() as usize;
        list.write(shell);
        list.add(1).write(path);
        for i in 1..count {
            list.add(i + 1).write(*(arguments as *const usize).add(i));
        }
        let result = process::execve(&[shell, list as usize, environment, 0, 0, 0]);
        raw::unmap(memory, size);
        result
    }
}

/// The variadic ones: their arguments are laid out as one array on the stack (the registers are
/// pushed just below the caller's stack arguments), which is the `argv` that exec wants.
macro_rules! variadic {
    ($name:ident, $body:ident) => {
        /// # Safety
        /// As the libc function of this name.
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rbp",
                "mov rbp, rsp",
                "push rax",
                "and rsp, -16",
                "call {body}",
                "mov rdx, [rbp - 8]",
                "mov rsp, rbp",
                "pop rbp",
                "add rsp, 40",
                "push rdx",
                "ret",
                body = sym $body,
            )
        }
    };
}
variadic!(execl, arck_execl);
variadic!(execlp, arck_execlp);
variadic!(execle, arck_execle);

unsafe extern "C" fn arck_execl(path: usize, arguments: usize) -> isize {
    // SAFETY: the array that the entry point laid out.
    unsafe { execve(path, arguments, environ) }
}

unsafe extern "C" fn arck_execlp(file: usize, arguments: usize) -> isize {
    // SAFETY: the array that the entry point laid out.
    unsafe { execvpe(file, arguments, environ) }
}

unsafe extern "C" fn arck_execle(path: usize, arguments: usize) -> isize {
    // SAFETY: the environment follows the NULL that ends the arguments.
    unsafe {
        let count = crate::environment::length(arguments);
        execve(path, arguments, *(arguments as *const usize).add(count + 1))
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn _exit(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe {
        process::exit_group(&[status as usize, 0, 0, 0, 0, 0]);
    }
    unreachable!("the kernel ends the process")
}

/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "as in libc")]
pub unsafe extern "C" fn _Exit(status: i32) -> ! {
    // SAFETY: the same function.
    unsafe { _exit(status) }
}

written_out! {
    execve => SYS_execve;
    execv => SYS_execve;
    execvp => SYS_execve;
    execvpe => SYS_execve;
    execl => SYS_execve;
    execlp => SYS_execve;
    execle => SYS_execve;
    fexecve => SYS_execveat;
    execveat => SYS_execveat;
    vfork => SYS_vfork;
    __vfork => SYS_vfork;
    _exit => SYS_exit_group;
    _Exit => SYS_exit_group;
}
