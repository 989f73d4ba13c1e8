//! Fork, exec and exit.
//!
//! Invariants:
//! * Between [`Fork::prepare`] and its end the thread counts as inside the LibFS and holds the
//!   allocator's locks, so the child finds our state whole, and libc's own calls pass.
//! * A forked child uses nothing of its parent's session: descriptors become INHERITED, the
//!   working directory a name, and the session is replaced at first need.
//! * Executed programs get this library and its settings in their environment, whatever
//!   environment the program passes.

pub mod libraries;

use crate::backend::{At, Failure, FileSystem, inside};
use crate::handlers::{HERE, outside};
use crate::path::{Place, Scratch, place};
use crate::raw::{self, Arguments, Text, error, syscall};
use crate::{
    allocator, backend, descriptors, directory, environment, handover, net, report, settings,
    signals, thread,
};
use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

/// Shared between a spawning parent and its child until the child runs another program: tells
/// the parent why that failed, as memory that libc believes to be shared would.
#[repr(C)]
struct SpawnRecord {
    /// Error number of the last failed exec.
    errno: AtomicI32,
    /// 1 once the child has exited without having executed anything.
    exited: AtomicI32,
}

/// In a spawned child: its record.
static RECORD: AtomicPtr<SpawnRecord> = AtomicPtr::new(std::ptr::null_mut());

/// A fork on its way.
pub struct Fork {
    inside: thread::Inside,
    record: *mut SpawnRecord,
}

impl Fork {
    /// Hands over what the child needs. `spawning`: the child shares our memory as far as libc
    /// knows, and is suspended on until it executes.
    pub fn prepare(spawning: bool) -> Fork {
        handover::externalize(|_| true);
        directory::prepare_fork();
        if backend::any_maps() {
            let _ = inside(|fs| {
                fs.hand_over_maps();
                Ok(())
            });
        }
        let mut record = std::ptr::null_mut();
        if spawning {
            // SAFETY: a fresh shared anonymous page.
            let page = unsafe {
                syscall!(
                    libc::SYS_mmap,
                    0,
                    4096,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                    -1isize,
                    0
                )
            };
            if !raw::failed(page) {
                record = page as *mut SpawnRecord;
            }
        }
        let inside = thread::enter();
        backend::hold_maps();
        allocator::lock_all();
        Fork { inside, record }
    }

    /// In the parent, with the clone's result, which may become an error of the child's exec.
    pub fn parent(self, result: isize) -> isize {
        allocator::unlock_all();
        backend::let_go_of_maps(false);
        let Fork { inside, record } = self;
        drop(inside);
        if record.is_null() {
            return result;
        }
        // SAFETY: our own mapping; the child has executed or exited by now (CLONE_VFORK).
        unsafe {
            let exited = (*record).exited.load(Ordering::Acquire) != 0;
            let errno = (*record).errno.load(Ordering::Acquire);
            raw::unmap(record.cast(), 4096);
            if result > 0 && exited && errno != 0 {
                syscall!(libc::SYS_wait4, result, 0, 0, 0);
                return error(errno);
            }
        }
        result
    }

    /// In the child. `cleared`: signal handlers were reset.
    pub fn child(self, cleared: bool) {
        let Fork { inside, record } = self;
        RECORD.store(record, Ordering::Release);
        forked(cleared);
        drop(inside);
        if record.is_null() {
            report::write(report::Event::Start);
        }
    }
}

fn forked(cleared: bool) {
    allocator::unlock_all();
    backend::let_go_of_maps(true);
    descriptors::forked();
    backend::forked();
    directory::forked();
    report::forked();
    net::forked(cleared);
}

/// What `fork` calls before, and after in both processes (`pthread_atfork`). Registered first,
/// so it runs last before the fork and first after it.
pub fn watch_forks() {
    unsafe extern "C" fn before() {
        std::mem::forget(Fork::prepare(false));
    }
    unsafe extern "C" fn in_parent() {
        allocator::unlock_all();
        backend::let_go_of_maps(false);
        thread::leave();
    }
    unsafe extern "C" fn in_child() {
        RECORD.store(std::ptr::null_mut(), Ordering::Release);
        forked(false);
        thread::leave();
        report::write(report::Event::Start);
    }
    // SAFETY: the functions are safe to run around a fork.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// `exit_group`: the last thing a process does.
///
/// # Safety
/// As the system call's; does not return.
pub unsafe fn exit_group(a: &Arguments) -> isize {
    report::write(report::Event::End);
    let record = RECORD.load(Ordering::Acquire);
    if !record.is_null() {
        // SAFETY: the parent's page, mapped in this child until it ends.
        unsafe { (*record).exited.store(1, Ordering::Release) };
    }
    // SAFETY: ends the process.
    unsafe { raw::call(libc::SYS_exit_group as usize, a) }
}

/// `execve`.
///
/// # Safety
/// As the system call's. `argv` and `envp` are NULL-terminated arrays of strings, or null.
pub unsafe fn execve(a: &Arguments) -> isize {
    // SAFETY: the newer form.
    unsafe { execveat(&[HERE, a[0], a[1], a[2], 0, 0]) }
}

/// # Safety
/// As for [`execve`].
pub unsafe fn execveat(a: &Arguments) -> isize {
    if thread::inside() || !settings::ready() {
        // SAFETY: the program's arguments.
        return unsafe { raw::call(libc::SYS_execveat as usize, a) };
    }
    if !environment::is_readable(a[2]) || !environment::is_readable(a[3]) {
        return error(libc::EFAULT);
    }
    // What survives is what is not close-on-exec.
    handover::externalize(|descriptor| !descriptors::close_on_exec(descriptor));
    report::write(report::Event::Counts);
    // SAFETY: the program's arguments.
    let told = unsafe { report::executing(a[0], a[1], a[4]) };
    // SAFETY: the program's arguments; the new environment lives until the call returns.
    let result = unsafe {
        let environment = environment::Executed::build(a[3]);
        match environment {
            Some(environment) => {
                signals::executing(|| execute(a[0], a[1], a[2], environment.pointer(), a[4], 0))
            }
            None => error(libc::ENOMEM),
        }
    };
    if told {
        report::write(report::Event::Stay);
    }
    let record = RECORD.load(Ordering::Acquire);
    if !record.is_null() && result < 0 {
        // SAFETY: as in `exit_group`.
        unsafe { (*record).errno.store(-result as i32, Ordering::Release) };
    }
    result
}

/// Interpreters of interpreters end here.
const DEPTH_MAX: u32 = 4;

unsafe fn execute(
    directory: usize,
    path: usize,
    arguments: usize,
    environment: usize,
    flags: usize,
    depth: u32,
) -> isize {
    if depth > DEPTH_MAX {
        return error(libc::ELOOP);
    }
    let mut scratch = Scratch::uninit();
    // SAFETY: the program's arguments, as for the system call.
    unsafe {
        let on_kernel = |directory: usize, path: usize| {
            let prepared = libraries_of_host(directory, path, environment);
            let environment = prepared
                .as_ref()
                .map_or(environment, libraries::Prepared::environment);
            let result = if directory as i32 == libc::AT_FDCWD && flags == 0 {
                syscall!(libc::SYS_execve, path, arguments, environment)
            } else {
                syscall!(
                    libc::SYS_execveat,
                    directory,
                    path,
                    arguments,
                    environment,
                    flags
                )
            };
            // The kernel does not find an interpreter that lies on the pool.
            if result == error(libc::ENOENT)
                && directory as i32 == libc::AT_FDCWD
                && let Some(script) = Script::read_host(path)
                && crate::path::below_mount(script.interpreter.bytes()).is_some()
            {
                return script.run(
                    CStr::from_ptr(path as *const _),
                    arguments,
                    environment,
                    depth,
                );
            }
            result
        };
        if flags as i32 & libc::AT_EMPTY_PATH != 0
            && crate::handlers::is_empty(path)
            && descriptors::is_pool(directory)
        {
            let descriptors::Descriptor::Pool(handle) = descriptors::lookup(directory) else {
                return error(libc::EBADF);
            };
            let path = inside(|fs| Ok(fs.path_of(handle)?));
            return match path {
                Ok(path) => {
                    let mut text = Text::<{ settings::PATH_MAX }>::new();
                    text.push(&path);
                    execute(
                        HERE,
                        text.pointer() as usize,
                        arguments,
                        environment,
                        0,
                        depth + 1,
                    )
                }
                Err(failure) => outside(failure, |_| error(libc::ENOENT)),
            };
        }
        match place(directory, path, &mut scratch) {
            Place::Kernel => on_kernel(directory, path),
            Place::Error(error) => error,
            Place::Pool(at, relative) => match inside(|fs| load(fs, at, relative)) {
                Err(failure) => outside(failure, |host| on_kernel(HERE, host)),
                Ok(Program::Error(error)) => error,
                Ok(Program::Script(script)) => {
                    let (script, name) = &*script;
                    // The name as given, if the interpreter can find the script by it.
                    if directory as i32 != libc::AT_FDCWD && name.bytes().is_empty() {
                        return error(libc::ENOENT);
                    }
                    let name = if directory as i32 == libc::AT_FDCWD {
                        CStr::from_ptr(path as *const _)
                    } else {
                        CStr::from_ptr(name.pointer().cast())
                    };
                    script.run(name, arguments, environment, depth)
                }
                Ok(Program::Binary(file)) => {
                    let prepared = libraries::prepare(file, &origin(at, relative), environment);
                    let result = syscall!(
                        libc::SYS_execveat,
                        file,
                        c"".as_ptr(),
                        arguments,
                        prepared
                            .as_ref()
                            .map_or(environment, libraries::Prepared::environment),
                        libc::AT_EMPTY_PATH
                    );
                    raw::close(file);
                    result
                }
            },
        }
    }
}

/// The absolute path of the directory of a file on the pool; empty if it cannot be told.
fn origin(at: At, relative: &[u8]) -> Vec<u8> {
    let path = inside(|fs| {
        let handle = fs.open(at, relative, libc::O_RDONLY, 0)?;
        let path = fs.path_of(handle);
        fs.close(handle);
        Ok(path?)
    });
    let mut path = path.unwrap_or_default();
    path.truncate(path.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
    path
}

/// The libraries on the pool of a program that is not, if there may be any.
///
/// # Safety
/// The program's arguments of execveat.
unsafe fn libraries_of_host(
    directory: usize,
    path: usize,
    environment: usize,
) -> Option<libraries::Prepared> {
    // SAFETY: the caller's promise.
    unsafe {
        if !libraries::may_be_on_pool(environment) {
            return None;
        }
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = syscall!(libc::SYS_openat, directory, path, flags);
        if raw::failed(file) {
            return None;
        }
        let prepared = libraries::prepare(file, b"", environment);
        raw::close(file);
        prepared
    }
}

/// A `#!` line.
struct Script {
    interpreter: Text<256>,
    argument: Option<Text<256>>,
}

impl Script {
    fn parse(start: &[u8]) -> Option<Script> {
        let line = start.strip_prefix(b"#!")?;
        let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
        let space = line
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(line.len());
        let (interpreter, rest) = line.split_at(space);
        let text = |bytes: &[u8]| {
            let mut text = Text::new();
            text.push(bytes);
            text
        };
        let rest = rest.trim_ascii();
        (!interpreter.is_empty()).then(|| Script {
            interpreter: text(interpreter),
            argument: (!rest.is_empty()).then(|| text(rest)),
        })
    }

    /// # Safety
    /// `path` is a NUL-terminated string.
    unsafe fn read_host(path: usize) -> Option<Script> {
        let mut start = [0u8; 256];
        // SAFETY: the path is the program's; the buffer is ours.
        let length = unsafe {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            let file = syscall!(libc::SYS_openat, libc::AT_FDCWD, path, flags);
            if raw::failed(file) {
                return None;
            }
            let length = syscall!(libc::SYS_read, file, start.as_mut_ptr(), start.len());
            raw::close(file);
            length
        };
        Script::parse(&start[..usize::try_from(length).ok()?])
    }

    /// Runs the interpreter on the script, with the program's arguments from the second on.
    ///
    /// # Safety
    /// `arguments` and `environment` as for execve.
    unsafe fn run(&self, path: &CStr, arguments: usize, environment: usize, depth: u32) -> isize {
        // SAFETY: NULL-terminated arrays; the new one is large enough for all of them.
        unsafe {
            let given = arguments as *const usize;
            let count = environment::length(arguments);
            let size = (count + 4) * size_of::<usize>();
            let Some(memory) = raw::map_anonymous(size) else {
                return error(libc::ENOMEM);
            };
            let list = memory.cast::<usize>();
            let mut at = 0;
            let mut push = |value: usize| {
                list.add(at).write(value);
                at += 1;
            };
            push(self.interpreter.pointer() as usize);
            if let Some(argument) = &self.argument {
                push(argument.pointer() as usize);
            }
            push(path.as_ptr() as usize);
            for i in 1..count {
                push(*given.add(i));
            }
            let interpreter = self.interpreter.pointer() as usize;
            let result = execute(HERE, interpreter, list as usize, environment, 0, depth + 1);
            raw::unmap(memory, size);
            result
        }
    }
}

enum Program {
    /// With its absolute path, or an empty one if that is not known.
    Script(Box<(Script, Text<{ settings::PATH_MAX }>)>),
    /// A memory file holding the program.
    Binary(isize),
    Error(isize),
}

/// Reads a program from the pool.
fn load(fs: &FileSystem, at: At, path: &[u8]) -> Result<Program, Failure> {
    fs.access(at, path, libc::X_OK, libc::AT_EACCESS)?;
    let handle = fs.open(at, path, libc::O_RDONLY, 0)?;
    let program = load_open(fs, handle);
    fs.close(handle);
    program
}

fn load_open(fs: &FileSystem, handle: backend::Handle) -> Result<Program, Failure> {
    if fs.stat_handle(handle)?.mode & libc::S_IFMT != libc::S_IFREG {
        return Ok(Program::Error(error(libc::EACCES)));
    }
    let mut start = [0u8; 256];
    let length = fs.read(handle, &mut start, Some(0))?;
    if let Some(script) = Script::parse(&start[..length]) {
        let mut name = Text::new();
        if let Ok(path) = fs.path_of(handle) {
            name.push(&path);
        }
        return Ok(Program::Script(Box::new((script, name))));
    }
    let file = copy_to_memory(fs, handle)?;
    Ok(if file < 0 {
        Program::Error(file)
    } else {
        Program::Binary(file)
    })
}

/// A memory file, close-on-exec, with the contents of an open file; or minus an error number.
///
/// # Errors
/// Reading fails.
pub fn copy_to_memory(fs: &FileSystem, handle: backend::Handle) -> Result<isize, Failure> {
    // SAFETY: constant name; the buffer is valid for what is written.
    unsafe {
        let file = syscall!(
            libc::SYS_memfd_create,
            c"arck-program".as_ptr(),
            libc::MFD_CLOEXEC
        );
        if raw::failed(file) {
            return Ok(file);
        }
        let mut buffer = vec![0u8; 128 * 1024];
        let mut offset = 0;
        loop {
            let n = match fs.read(handle, &mut buffer, Some(offset)) {
                Ok(n) => n,
                Err(errno) => {
                    raw::close(file);
                    return Err(Failure::Errno(errno));
                }
            };
            if n == 0 {
                return Ok(file);
            }
            let mut written = 0;
            while written < n {
                let result = syscall!(
                    libc::SYS_write,
                    file,
                    buffer.as_ptr().add(written),
                    n - written
                );
                if result <= 0 {
                    raw::close(file);
                    return Ok(error(libc::ENOMEM));
                }
                written += result as usize;
            }
            offset += n as u64;
        }
    }
}

/// The real `vfork` cannot be used, since the child would run in our memory; libc's `fork` can.
/// Found at start-up.
static REAL_SYSCALL: AtomicUsize = AtomicUsize::new(0);

/// At start-up: libc's own `syscall`, for what only it can do (making threads).
pub fn find_real_functions() {
    // SAFETY: a constant name.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) };
    REAL_SYSCALL.store(address as usize, Ordering::Relaxed);
}

/// libc's own `syscall`, if known.
pub fn real_syscall()
-> Option<unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> isize> {
    let address = REAL_SYSCALL.load(Ordering::Relaxed);
    // SAFETY: the function takes its arguments in registers and on the stack as declared.
    (address != 0).then(|| unsafe { std::mem::transmute(address) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_lines() {
        let script = Script::parse(b"#! /bin/sh -e  x \nrest").unwrap();
        assert_eq!(script.interpreter.bytes(), b"/bin/sh");
        assert_eq!(script.argument.unwrap().bytes(), b"-e  x");
        let script = Script::parse(b"#!/usr/bin/env").unwrap();
        assert_eq!(script.interpreter.bytes(), b"/usr/bin/env");
        assert!(script.argument.is_none());
        assert!(Script::parse(b"\x7fELF").is_none());
        assert!(Script::parse(b"#!\n").is_none());
    }
}
