//! Lines for people, on the standard error of a program that asked for none.
//!
//! The program did not write them, so it is not ended for them: the limit on the size of files (SIGXFSZ),
//! or a pipe that nobody reads any more (SIGPIPE), would send it a signal.
//!
//! # Invariant
//! The thread's mask of signals, and what is pending for it, are afterwards as they were before.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// Signals that a write can raise, as the kernel has sets of them: bit n - 1 is signal n.
static RAISED: u64 = 1 << (libc::SIGXFSZ - 1) | 1 << (libc::SIGPIPE - 1);
/// Bytes of such a set.
const SET: usize = size_of::<u64>();

/// Writes a line to standard error, as far as it takes it. Nobody may be listening.
pub fn tell(line: &[u8]) {
    // SAFETY: at worst it is not open.
    tell_to(unsafe { BorrowedFd::borrow_raw(2) }, line);
}

/// Tells that a LibFS uses the kit as it must not, in a whole line, before anything is lost by it; gives what the
/// operation is to fail with. Where assertions are compiled in, it is a panic.
#[cold]
pub(crate) fn misused(line: &'static str) -> Errno {
    debug_assert!(false, "{}", line.trim_end());
    tell(line.as_bytes());
    Errno::IO
}

/// The kernel is asked itself: the program may have functions of its own in the place of libc's.
fn tell_to(file: BorrowedFd<'_>, line: &[u8]) {
    let (mut mask, mut pending) = (0u64, 0u64);
    let no_set = std::ptr::null_mut::<u64>();
    let block = libc::SIG_BLOCK;
    // SAFETY: the kernel reads one set, and fills two.
    unsafe {
        let mask = &raw mut mask;
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            block,
            &raw const RAISED,
            mask,
            SET,
        );
        libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, SET);
    }
    if rustix::io::write(file, line).is_err() {
        // What was pending before is the program's own.
        let ours = RAISED & !pending;
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let no_answer = std::ptr::null_mut::<libc::siginfo_t>();
        let at_once = &raw const at_once;
        // SAFETY: the kernel reads a set and a time.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigtimedwait,
                &raw const ours,
                no_answer,
                at_once,
                SET,
            );
        }
    }
    let restore = libc::SIG_SETMASK;
    // SAFETY: the kernel reads the set that it has filled: the mask of this thread, as it was.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            restore,
            &raw const mask,
            no_set,
            SET,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::fs::{Mode, OFlags, SeekFrom};
    use rustix::process::{Resource, Rlimit, setrlimit};

    /// The line of a library ended `ls 2>&1 | true`, and programs under `ulimit -f` with a log. Without the
    /// mask this test's process ends.
    #[test]
    fn a_line_for_people_ends_no_program() {
        // Rust's programs do not hear of pipes; others do.
        // SAFETY: the default action, in a program in which nothing handles it otherwise.
        let handler = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        tell_to(writer.as_fd(), b"line\n");
        // Far behind what other tests of this process write meanwhile.
        let far = 1 << 40;
        let file = tempfile();
        rustix::fs::seek(&file, SeekFrom::Start(far)).unwrap();
        let before = rustix::process::getrlimit(Resource::Fsize);
        let limit = Rlimit {
            current: Some(far),
            maximum: before.maximum,
        };
        setrlimit(Resource::Fsize, limit).unwrap();
        tell_to(file.as_fd(), b"line\n");
        setrlimit(Resource::Fsize, before).unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 0);
        // Nothing of it is left, and signals are heard as before.
        let (mut pending, mut mask) = (0u64, 0u64);
        let none = std::ptr::null::<u64>();
        let block = libc::SIG_BLOCK;
        // SAFETY: the kernel fills two sets.
        unsafe {
            let mask = &raw mut mask;
            libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, SET);
            libc::syscall(libc::SYS_rt_sigprocmask, block, none, mask, SET);
        }
        assert_eq!((pending & RAISED, mask & RAISED), (0, 0));
        // One that was pending and held back stays so.
        // SAFETY: as above; a signal to this thread.
        unsafe {
            let no_set = std::ptr::null_mut::<u64>();
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                block,
                &raw const RAISED,
                no_set,
                SET,
            );
            let (process, thread) = (libc::getpid(), libc::gettid());
            libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGPIPE);
        }
        tell_to(writer.as_fd(), b"line\n");
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, SET) };
        assert_eq!(pending & RAISED, 1 << (libc::SIGPIPE - 1));
        // SAFETY: as it was. What is pending ends with this thread.
        unsafe { libc::signal(libc::SIGPIPE, handler) };
    }

    fn tempfile() -> rustix::fd::OwnedFd {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::open(std::env::temp_dir(), flags, mode).unwrap()
    }
}
