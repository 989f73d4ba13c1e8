//! A process of which pieces are stepped through, an instruction at a time. (`arck-bench step` looks at each instruction
//! besides, and at system calls; here it is the number of one thread that is wanted.)
//!
//! # Invariant
//! * A process is ended with its handle, whatever becomes of the test.

use std::io::Read;
use std::process::{Command, Stdio};

/// What the process is to do, in its environment.
pub const WHAT: &str = "ARCK_STEPS";
const BEGINS: i32 = libc::SIGUSR1;
const ENDS: i32 = libc::SIGUSR2;
/// No piece is as long as this.
const STEPS_MOST: u64 = 2_000_000;

/// Of the process: from here on it is stepped through.
pub fn begin() {
    static TRACED: std::sync::Once = std::sync::Once::new();
    // SAFETY: has its parent trace it, once, and tells it where to look by a signal.
    unsafe {
        TRACED.call_once(|| assert_eq!(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0), 0));
        libc::raise(BEGINS);
    }
}

/// Of the process: to here.
pub fn end() {
    // SAFETY: as above.
    unsafe { libc::raise(ENDS) };
}

/// Starts this program again, to do something; gives the instructions of its pieces, and what it said. So the same few
/// of its own, by which it says where a piece begins and ends, are in each.
pub fn count(what: &str) -> (Vec<u64>, String) {
    let mut child = Command::new("/proc/self/exe")
        .env(WHAT, what)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts again");
    let process = i32::try_from(child.id()).expect("a process id");
    let mut pieces = Vec::new();
    let mut counted: Option<u64> = None;
    loop {
        let mut status = 0;
        // SAFETY: waits for our own child.
        let waited = unsafe { libc::waitpid(process, &raw mut status, libc::__WALL) };
        assert_eq!(waited, process);
        if !libc::WIFSTOPPED(status) {
            assert_eq!(status, 0, "{what}");
            break;
        }
        let request = match (libc::WSTOPSIG(status), &mut counted) {
            (BEGINS, begun @ None) => {
                *begun = Some(0);
                libc::PTRACE_SINGLESTEP
            }
            (libc::SIGTRAP, Some(count)) if *count < STEPS_MOST => {
                *count += 1;
                libc::PTRACE_SINGLESTEP
            }
            (ENDS, begun) => {
                pieces.extend(begun.take());
                libc::PTRACE_CONT
            }
            (signal, _) => {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{what}: signal {signal} after {counted:?} instructions");
            }
        };
        // SAFETY: our own child, which is stopped.
        assert_eq!(unsafe { libc::ptrace(request, process, 0, 0) }, 0);
    }
    // It was waited for above.
    let _ = child.wait();
    let mut said = String::new();
    let output = child.stdout.as_mut().expect("its output");
    output.read_to_string(&mut said).expect("text");
    (pieces, said)
}
