//! Executing programs: of the host, of the pool, and scripts.
//!
//! Invariants:
//! * Executed programs get this library and its settings in their environment, whatever
//!   environment the program passes.
//! * A program of the pool is executed from a copy in a memory file, which nobody else has. The
//!   copy holds what the program was at one moment.
//! * Errors are told in the order in which the kernel finds them.

use super::copying::copy_to_memory;
use super::libraries;
use super::script::{START, Script};
use super::spawn;
use crate::backend::{At, Errno, Failure, FileSystem, Handle, inside};
use crate::descriptors::replacements;
use crate::environment::Executed;
use crate::handlers::{HERE, outside};
use crate::lock_files::Handed;
use crate::path::{Place, Scratch, place};
use crate::raw::{self, Arguments, error, syscall};
use crate::{
    descriptors, directory, environment, handover, memory, report, settings, signals, thread,
    unreached,
};

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
    let file = File {
        directory: a[0],
        path: a[1],
        flags: a[4] as i32,
    };
    // SAFETY: the program's argument.
    unsafe { file.before_told_of(a[3]) };
    // What survives is what is not close-on-exec.
    let survives = |descriptor| !descriptors::close_on_exec(descriptor);
    // A child in its parent's memory has been handed everything.
    if !replacements::is_spawned_child() {
        handover::externalize(survives);
    }
    let handed = Handed::new(survives);
    report::write(report::Event::Counts);
    // SAFETY: the program's arguments.
    let told = unsafe { report::executing(a[0], a[1], a[4]) };
    // SAFETY: the program's arguments; the new environment lives until the call returns.
    let result = unsafe {
        match Executed::build(a[3], &handed) {
            Some(environment) => signals::executing(|| execute(&file, a[2], &environment, 0)),
            None => error(libc::ENOMEM),
        }
    };
    if told {
        report::write(report::Event::Stay);
    }
    result
}

/// A file to be executed, as execveat has it.
struct File {
    directory: usize,
    path: usize,
    flags: i32,
}

impl File {
    fn is_here(&self) -> bool {
        self.directory as i32 == libc::AT_FDCWD
    }

    fn is_nameless(&self) -> bool {
        self.flags & libc::AT_EMPTY_PATH != 0 && crate::handlers::is_empty(self.path)
    }

    /// The report tells which process executes it, so none may take that one's place afterwards.
    ///
    /// # Safety
    /// The path is null, or a string; `environment` is null or a NULL-terminated array of strings.
    unsafe fn before_told_of(&self, environment: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            self.before_looked_up();
            if replacements::is_spawned_child()
                && report::is_wanted()
                && (libraries::may_be_on_pool(environment) || self.is_script_of_pools())
            {
                spawn::detach();
            }
        }
    }

    /// Whether it is a script of the host's whose interpreter lies on the pool.
    ///
    /// # Safety
    /// The path is a string.
    unsafe fn is_script_of_pools(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { Script::read_host(self.path) }.is_some_and(|script| script.is_for_pools())
    }

    /// Looking it up may ask the LibFS, which is not for a child in its parent's memory.
    ///
    /// # Safety
    /// The path is null, or a string.
    unsafe fn before_looked_up(&self) {
        // SAFETY: the caller's promise.
        if replacements::is_spawned_child() && !unsafe { self.is_plainly_hosts() } {
            spawn::detach();
        }
    }

    /// Whether it is seen by its path alone, without asking the LibFS, that it is the host's.
    ///
    /// # Safety
    /// The path is null, or a string.
    unsafe fn is_plainly_hosts(&self) -> bool {
        // SAFETY: the caller's promise.
        let Some(path) = (unsafe { memory::text(self.path) }) else {
            return false;
        };
        match path.bytes {
            [b'/', b'/' | b'.', ..] => false,
            [b'/', ..] => {
                !path.dots
                    && !path.bytes.starts_with(b"/proc/")
                    && !path.bytes.starts_with(b"/dev/")
                    && crate::path::below_mount(path.bytes).is_none()
            }
            [] => false,
            [first, ..] => {
                self.is_here()
                    && !path.dots
                    && *first != b'.'
                    && !directory::is_on_pool()
                    && !directory::is_above_mount()
            }
        }
    }

    /// By its path alone, which is the name that a script's interpreter is given. Others go by the
    /// descriptor's name.
    fn has_whole_path(&self) -> bool {
        self.is_here() || memory::byte(self.path) == Some(b'/')
    }

    /// Notes the name under which the file is executed; the address of that string.
    ///
    /// # Safety
    /// The path is null, or a string.
    unsafe fn tell_name(&self, environment: &Executed) -> usize {
        // SAFETY: the caller's promise.
        let path = unsafe { memory::text(self.path) };
        let path = path.map_or(&b""[..], |text| text.bytes);
        if self.has_whole_path() {
            return environment.tell_name(false, &[path]);
        }
        let mut number = raw::Text::<24>::new();
        number.number(self.directory as u32 as u64);
        match path {
            b"" => environment.tell_name(true, &[b"/dev/fd/", number.bytes()]),
            path => environment.tell_name(false, &[b"/dev/fd/", number.bytes(), b"/", path]),
        }
    }
}

/// Scripts whose interpreters are scripts end here.
const DEPTH_MAX: u32 = 5;

/// `depth`: how many scripts lead to this file.
///
/// # Safety
/// `file` and `arguments` are the program's, as for the system call.
unsafe fn execute(file: &File, arguments: usize, environment: &Executed, depth: u32) -> isize {
    let mut scratch = Scratch::new();
    // SAFETY: the program's arguments, as for the system call.
    unsafe {
        file.before_looked_up();
        if file.is_nameless() && descriptors::is_pool(file.directory) {
            let descriptors::Descriptor::Pool(handle) = descriptors::lookup(file.directory) else {
                return error(libc::EBADF);
            };
            let loaded = inside(|fs| load_descriptor(fs, handle));
            return match loaded {
                Ok(program) => run(file, program, arguments, environment, depth),
                Err(failure) => outside(failure, |_| error(libc::ENOENT)),
            };
        }
        match place(file.directory, file.path, &mut scratch) {
            Place::Kernel => execute_host(file, arguments, environment, depth),
            Place::Error(error) => error,
            Place::Pool(..) if file.flags & !KNOWN_FLAGS != 0 => error(libc::EINVAL),
            Place::Pool(at, relative) => match inside(|fs| load(fs, at, relative, file.flags)) {
                Ok(program) => run(file, program, arguments, environment, depth),
                Err(failure) => outside(failure, |path| {
                    let host = File {
                        directory: HERE,
                        path,
                        flags: file.flags,
                    };
                    execute_host(&host, arguments, environment, depth)
                }),
            },
        }
    }
}

const KNOWN_FLAGS: i32 = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;

/// A file of the kernel's.
///
/// # Safety
/// `file` and `arguments` are the program's, as for the system call.
unsafe fn execute_host(file: &File, arguments: usize, environment: &Executed, depth: u32) -> isize {
    let program = unreached::Program {
        directory: file.directory,
        path: file.path,
        flags: file.flags,
    };
    // SAFETY: the program's argument.
    match unsafe { unreached::before_host(&program) } {
        Ok(runtime) => environment.put_first(runtime.as_ref()),
        Err(refused) => return refused,
    }
    // SAFETY: the program's arguments, as for the system call.
    unsafe {
        if environment.has_told() {
            environment.tell_file(executed_for(file));
        }
        let prepared = libraries_of_host(file, environment.pointer());
        let list = prepared
            .as_ref()
            .map_or(environment.pointer(), libraries::Prepared::environment);
        let result = if file.is_here() && file.flags == 0 {
            syscall!(libc::SYS_execve, file.path, arguments, list)
        } else {
            syscall!(
                libc::SYS_execveat,
                file.directory,
                file.path,
                arguments,
                list,
                file.flags
            )
        };
        // The kernel does not find an interpreter that lies on the pool.
        if result == error(libc::ENOENT)
            && file.is_here()
            && let Some(script) = Script::read_host(file.path)
            && script.is_for_pools()
        {
            return interpret(file, &script, arguments, environment, depth);
        }
        result
    }
}

/// Which file the kernel executes when it is given an interpreter of the host's: that may be a script
/// itself.
///
/// # Safety
/// The path is a string.
unsafe fn executed_for(file: &File) -> Option<[u64; 2]> {
    let mut script;
    let mut path = file.path;
    // SAFETY: the caller's promise; then strings of scripts, of which the last one lives.
    unsafe {
        for _ in 0..DEPTH_MAX {
            let Some(next) = Script::read_host(path) else {
                break;
            };
            script = next;
            path = script.interpreter.pointer() as usize;
        }
        raw::identity(|status| syscall!(libc::SYS_newfstatat, HERE, path, status, 0))
    }
}

/// Runs what was read of the pool.
///
/// # Safety
/// `file` and `arguments` are the program's, as for the system call.
unsafe fn run(
    file: &File,
    program: Program,
    arguments: usize,
    environment: &Executed,
    depth: u32,
) -> isize {
    // SAFETY: the program's arguments, as for the system call.
    unsafe {
        match program {
            Program::Error(error) => error,
            Program::Script(script) => {
                // The interpreter could not open it.
                if !file.has_whole_path() && descriptors::close_on_exec(file.directory) {
                    return error(libc::ENOENT);
                }
                interpret(file, &script, arguments, environment, depth)
            }
            Program::Binary(copy, path) => {
                match unreached::before_copy(copy, &path) {
                    Ok(runtime) => environment.put_first(runtime.as_ref()),
                    Err(refused) => {
                        raw::close(copy);
                        return refused;
                    }
                }
                if depth == 0 {
                    file.tell_name(environment);
                }
                environment.tell_file(raw::identity_of(copy as usize));
                environment.tell_executable(&path);
                let length = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                let list = environment.pointer();
                let prepared = libraries::prepare(copy, &path[..length], list);
                let list = prepared
                    .as_ref()
                    .map_or(list, libraries::Prepared::environment);
                let empty = c"".as_ptr();
                let flags = libc::AT_EMPTY_PATH;
                let result = syscall!(libc::SYS_execveat, copy, empty, arguments, list, flags);
                raw::close(copy);
                result
            }
        }
    }
}

/// Runs a script's interpreter.
///
/// # Safety
/// `file` and `arguments` are the program's, as for the system call.
unsafe fn interpret(
    file: &File,
    script: &Script,
    arguments: usize,
    environment: &Executed,
    depth: u32,
) -> isize {
    // It is the pool's, and what is mapped for it is the process's own.
    spawn::detach();
    if depth == DEPTH_MAX {
        return error(libc::ELOOP);
    }
    // SAFETY: the program's arguments, as for the system call; the interpreter's path is a string
    // that lives as long as the script.
    unsafe {
        // A script that is another's interpreter is known by its path.
        let name = match depth {
            0 => file.tell_name(environment),
            _ => file.path,
        };
        let interpreter = File {
            directory: HERE,
            path: script.interpreter.pointer() as usize,
            flags: 0,
        };
        // The kernel finds the working directory by that name.
        if script.interpreter.bytes().is_empty() {
            return error(libc::EACCES);
        }
        script.with_arguments(name, arguments, |arguments| {
            execute(&interpreter, arguments, environment, depth + 1)
        })
    }
}

/// The libraries on the pool of a program that is not, if there may be any.
///
/// # Safety
/// The program's arguments of execveat.
unsafe fn libraries_of_host(file: &File, environment: usize) -> Option<libraries::Prepared> {
    // SAFETY: the caller's promise.
    unsafe {
        if !libraries::may_be_on_pool(environment) {
            return None;
        }
        spawn::detach();
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let opened = syscall!(libc::SYS_openat, file.directory, file.path, flags);
        if raw::failed(opened) {
            return None;
        }
        let prepared = libraries::prepare(opened, b"", environment);
        raw::close(opened);
        prepared
    }
}

enum Program {
    Script(Box<Script>),
    /// A memory file holding the program, and its absolute path; empty if that is not known.
    Binary(isize, Vec<u8>),
    Error(isize),
}

/// Reads a program from the pool.
fn load(fs: &FileSystem, at: At, path: &[u8], flags: i32) -> Result<Program, Failure> {
    if flags & libc::AT_SYMLINK_NOFOLLOW != 0
        && fs.stat(at, path, libc::AT_SYMLINK_NOFOLLOW)?.mode & libc::S_IFMT == libc::S_IFLNK
    {
        return Err(Failure::Errno(Errno::LOOP));
    }
    fs.access(at, path, libc::X_OK, libc::AT_EACCESS)?;
    let handle = fs.open(at, path, libc::O_RDONLY, 0)?;
    let program = load_open(fs, handle);
    fs.close(handle);
    program
}

/// The same by a descriptor, of O_PATH too.
fn load_descriptor(fs: &FileSystem, handle: Handle) -> Result<Program, Failure> {
    fs.access(
        At::Directory(handle),
        b"",
        libc::X_OK,
        libc::AT_EACCESS | libc::AT_EMPTY_PATH,
    )?;
    let flags = fs.flags(handle)?;
    if flags & (libc::O_PATH | libc::O_ACCMODE) == libc::O_RDONLY {
        return load_open(fs, handle);
    }
    let path = fs.path_of(handle)?;
    let relative = crate::path::below_mount(&path).ok_or(Errno::NOENT)?;
    let handle = fs.open(At::Root, relative, libc::O_RDONLY, 0)?;
    let program = load_open(fs, handle);
    fs.close(handle);
    program
}

fn load_open(fs: &FileSystem, handle: Handle) -> Result<Program, Failure> {
    if fs.stat_handle(handle)?.mode & libc::S_IFMT != libc::S_IFREG {
        return Ok(Program::Error(error(libc::EACCES)));
    }
    let mut start = [0u8; START];
    fs.read(handle, &mut start, Some(0))?;
    if let Some(script) = Script::parse(&start) {
        return Ok(match script {
            Ok(script) => Program::Script(Box::new(script)),
            Err(error) => Program::Error(error),
        });
    }
    let file = copy_to_memory(fs, handle)?;
    Ok(if file < 0 {
        Program::Error(file)
    } else {
        Program::Binary(file, fs.path_of(handle).unwrap_or_default())
    })
}
