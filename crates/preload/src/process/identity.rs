//! What a program that lies on the pool is told of itself. The kernel has executed a copy in a
//! memory file (or a script's interpreter, by this library's hand), and would tell of that one.
//!
//! ARCK_EXECFN is `=` and the file name that was executed, as the kernel would have it: AT_EXECFN, and
//! with its last component the name of the process; with `@` that is the name of the program's file. ARCK_EXE is the program's absolute path, where
//! `/proc/self/exe` leads. ARCK_EXEC is device and inode number of the file that the kernel executes,
//! for which the two are meant.
//!
//! Invariant: all are told by whoever executes, for this one program. They are in no environment that it
//! passes on, unless this library does not serve it (a static one): whom that executes finds that they
//! are not meant for him.

use crate::raw::{self, syscall};
use crate::settings;

/// Longest name of a process, without its NUL byte.
const NAME_MAX: usize = 15;

/// At start-up.
pub fn start() {
    let Some((kind, name)) = settings::EXECFN.get().split_first() else {
        return;
    };
    let named = match settings::EXECUTABLE.get() {
        path if *kind == b'@' && !path.is_empty() => path,
        _ => name,
    };
    let last = named.rsplit(|byte| *byte == b'/').next().unwrap_or(named);
    let mut text = raw::Text::<{ NAME_MAX + 1 }>::new();
    text.push(last);
    // SAFETY: a NUL-terminated string.
    unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_NAME, text.pointer()) };
    tell_file_name(name.as_ptr() as usize);
}

unsafe extern "C" {
    static environ: *const usize;
}

/// Puts the address of a string where the kernel has put that of AT_EXECFN.
fn tell_file_name(name: usize) {
    // SAFETY: before the program and what it was loaded with can have changed it, the environment is
    // the kernel's array on the stack, with a null pointer behind it and then pairs of which the
    // last has type 0. If it is another array by now, its strings do not lie on the stack above it,
    // and nothing is done.
    unsafe {
        let mut at = environ;
        if at.is_null() || *at < at as usize || *at - (at as usize) > STACK_PART {
            return;
        }
        while *at != 0 {
            at = at.add(1);
        }
        let mut pair = at.add(1).cast_mut();
        while *pair != 0 {
            if *pair == libc::AT_EXECFN as usize {
                pair.add(1).write(name);
                return;
            }
            pair = pair.add(2);
        }
    }
}

/// How much arguments and environment can take of the stack.
const STACK_PART: usize = 6 << 20;

/// The absolute path on the pool that `/proc/self/exe` stands for, if `path` is that or another name
/// of the same.
pub fn executable(path: &[u8]) -> Option<&'static [u8]> {
    let executable = settings::EXECUTABLE.get();
    let process = path.strip_prefix(b"/proc/")?.strip_suffix(b"/exe")?;
    let is_own = match process {
        b"self" | b"thread-self" => true,
        digits => raw::Text::<24>::new()
            .number(raw::process_id() as u64)
            .bytes()
            .eq(digits),
    };
    (is_own && !executable.is_empty()).then_some(executable)
}
