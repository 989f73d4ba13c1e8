//! The one door to the LibFS: the `FileSystem` that serves the calls, its session's life, and how
//! code gets inside.
//!
//! Invariants:
//! * At most one session per process; opened by the first call that needs it. A forked child has none
//!   at first ([`forked`]), and a process that has become somebody else leaves it ([`leave_session`]).
//! * [`inside`] is the only way to run LibFS code: it marks the thread (signals are put off,
//!   libc's calls pass), finds it a stack that is large enough, and turns a panic into EIO.

use crate::raw::{self, syscall};
use crate::settings::{AT_ONCE, DELEGATES, FILE_SYSTEM, GROUP, MOUNT, POOL, WAIT};
use crate::{stack, thread};
pub use arckfs::{
    At, Attributes, ConnectOptions, Errno, Failure, FileSystem, Handle, MapRequest, MoveRequest,
    NamedPipe, OpenedPipe, Opening, Resolver, SetTime, Statistics, Subject, Threads, Timestamp,
    any_maps, forks, give_up_reservations, has_maps, hold_maps, let_go_of_maps, mounted_number,
    receive_pipe, side_of,
};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

static SESSION: AtomicPtr<FileSystem> = AtomicPtr::new(std::ptr::null_mut());
static CONNECTING: AtomicBool = AtomicBool::new(false);
static UNREACHABLE: AtomicBool = AtomicBool::new(false);
/// It has been said what the program lacks for a session.
static LACKS: AtomicBool = AtomicBool::new(false);
/// Device number that `stat` tells; 0 until the session is open.
static DEVICE: AtomicU64 = AtomicU64::new(0);

/// Runs `body` inside the LibFS, opening the session if need be. EIO if there is none to open
/// or the LibFS panicked; ENOMEM, EMFILE, ENFILE where the program lacks what a session takes.
#[inline(always)]
pub fn inside<R>(
    body: impl FnOnce(&'static FileSystem) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let result = entered(body);
    if let Err(Failure::Errno(Errno::FBIG)) = result {
        // Not inside, where it might end the process in the middle of something.
        size_exceeded();
    }
    result
}

/// A call has ended with EFBIG: if that is because of RLIMIT_FSIZE, its thread gets the signal that goes
/// with it.
#[cold]
#[inline(never)]
fn size_exceeded() {
    if !thread::inside() && arckfs::size_limit::is_reached() {
        // SAFETY: a signal to this very thread.
        unsafe {
            let thread_id = syscall!(libc::SYS_gettid);
            syscall!(
                libc::SYS_tgkill,
                raw::process_id(),
                thread_id,
                libc::SIGXFSZ
            );
        }
    }
}

#[inline(always)]
fn entered<R>(body: impl FnOnce(&'static FileSystem) -> Result<R, Failure>) -> Result<R, Failure> {
    let _inside = thread::enter();
    let session = SESSION.load(Ordering::Acquire);
    if session.is_null() {
        return slow(body);
    }
    // SAFETY: a published session is never freed while this process uses it.
    let session = unsafe { &*session };
    if !stack::has_room(thread::current()) {
        return narrow(session, body);
    }
    serve(session, body)
}

/// Runs `body` where there is room for it.
#[inline(always)]
fn serve<R>(
    session: &'static FileSystem,
    body: impl FnOnce(&'static FileSystem) -> Result<R, Failure>,
) -> Result<R, Failure> {
    match catch_unwind(AssertUnwindSafe(|| body(session))) {
        Ok(result) => result,
        Err(_) => Err(Failure::Errno(Errno::IO)),
    }
}

/// The same, where there may be little.
#[cold]
#[inline(never)]
fn narrow<R>(
    session: &'static FileSystem,
    body: impl FnOnce(&'static FileSystem) -> Result<R, Failure>,
) -> Result<R, Failure> {
    stack::run(|| serve(session, body))
}

#[cold]
#[inline(never)]
fn slow<R>(body: impl FnOnce(&'static FileSystem) -> Result<R, Failure>) -> Result<R, Failure> {
    stack::run(|| {
        catch_unwind(AssertUnwindSafe(|| body(open_session()?)))
            .unwrap_or(Err(Failure::Errno(Errno::IO)))
    })
}

fn open_session() -> Result<&'static FileSystem, Failure> {
    while CONNECTING.swap(true, Ordering::Acquire) {
        // SAFETY: no arguments.
        unsafe { raw::syscall!(libc::SYS_sched_yield) };
    }
    let result = open_session_locked();
    CONNECTING.store(false, Ordering::Release);
    result.map_err(Failure::Errno)
}

fn open_session_locked() -> Result<&'static FileSystem, Errno> {
    let session = SESSION.load(Ordering::Acquire);
    if !session.is_null() {
        // SAFETY: as in `inside`.
        return Ok(unsafe { &*session });
    }
    if UNREACHABLE.load(Ordering::Relaxed) {
        return Err(Errno::IO);
    }
    let Some(resolver) = resolver() else {
        UNREACHABLE.store(true, Ordering::Relaxed);
        print(b"ARCK_FS names no file system: arckfs and fpfs are known; the pool is not served to this program");
        return Err(Errno::IO);
    };
    let Some(delegates) = threads(DELEGATES.get()) else {
        UNREACHABLE.store(true, Ordering::Relaxed);
        print(b"ARCK_DELEGATE is no number of threads: 1 to 64, auto and off are known; the pool is not served to this program");
        return Err(Errno::IO);
    };
    let Some(at_once) = threads(AT_ONCE.get()) else {
        UNREACHABLE.store(true, Ordering::Relaxed);
        print(b"ARCK_AT_ONCE is no number of threads: 1 to 64, auto and off are known; the pool is not served to this program");
        return Err(Errno::IO);
    };
    let options = ConnectOptions {
        pool: std::ffi::OsStr::from_bytes(POOL.get()).into(),
        mount: MOUNT.get().to_vec(),
        group: GROUP.get().to_vec(),
        resolver,
    };
    arckfs::keep_descriptors_from(crate::reserved::floor() as i32);
    forks::are_told();
    arckfs::note_wait(std::str::from_utf8(WAIT.get()).ok());
    let connected = catch_unwind(|| FileSystem::connect_waiting(&options));
    match connected {
        Ok(Ok(session)) => {
            let identity = session.pool_identity();
            // Major 0 is the kernel's for file systems without a device; the high minors are
            // far above those it hands out.
            let minor = 0x8_0000 | ((identity[0] ^ identity[1]) & 0x7_ffff) as u32;
            DEVICE.store(libc::makedev(0, minor), Ordering::Relaxed);
            crate::reserved::reserve(session.descriptors());
            // The numbers have been looked at.
            let _ = session.delegate_when_wanted(delegates, || !thread::is_in_handler());
            if session.at_once(at_once).is_err() {
                print(b"what programs have together to be few at a time cannot be had: ARCK_AT_ONCE is not heeded by this program");
            }
            let session = Box::into_raw(Box::new(session));
            SESSION.store(session, Ordering::Release);
            // SAFETY: just published; never freed in this process.
            Ok(unsafe { &*session })
        }
        // The program may have more again in a moment, and is told what it lacks.
        Ok(Err(error)) if matches!(error.errno, Errno::NOMEM | Errno::MFILE | Errno::NFILE) => {
            if !LACKS.swap(true, Ordering::Relaxed) {
                print(error.message.as_bytes());
            }
            Err(error.errno)
        }
        other => {
            UNREACHABLE.store(true, Ordering::Relaxed);
            print(match &other {
                Ok(Err(error)) => error.message.as_bytes(),
                _ => b"opening a session failed inside the library",
            });
            Err(Errno::IO)
        }
    }
}

/// Which file system this program has.
fn resolver() -> Option<Resolver> {
    match FILE_SYSTEM.get() {
        b"" => Some(Resolver::default()),
        name => std::str::from_utf8(name).ok()?.parse().ok(),
    }
}

/// By how many threads large accesses are done, as a setting says.
fn threads(setting: &[u8]) -> Option<Threads> {
    match setting {
        b"" => Some(Threads::default()),
        text => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}

/// A line for people on standard error.
fn print(message: &[u8]) {
    let mut text = raw::Text::<1024>::new();
    text.push(b"arck: ").push(message).push(b"\n");
    raw::print(2, text.bytes());
}

/// The device number of the pool, as `st_dev`.
pub fn device() -> u64 {
    DEVICE.load(Ordering::Relaxed)
}

/// Whether there is a session, and it is not of who the process is now.
pub fn is_somebody_elses() -> bool {
    if SESSION.load(Ordering::Acquire).is_null() {
        // Somebody else may be let in.
        UNREACHABLE.store(false, Ordering::Relaxed);
        return false;
    }
    inside(|fs| Ok(!fs.is_of_process())).unwrap_or(false)
}

/// Takes the session away from the process, whose next call opens another one; `None` if another
/// thread was quicker.
pub fn leave_session() -> Option<Left> {
    let session = SESSION.swap(std::ptr::null_mut(), Ordering::AcqRel);
    (!session.is_null()).then(|| {
        crate::reserved::take_session();
        Left(session)
    })
}

/// A session that the process has left. Other threads may still be inside.
pub struct Left(*mut FileSystem);

impl Left {
    /// Ends it, when nobody is inside any more. Whoever is for more than some time, or comes late with
    /// what he has looked up before, is told errors (see [`FileSystem`]'s end).
    pub fn end(self) {
        let _inside = thread::enter();
        // SAFETY: the pointer came from Box::into_raw, and nobody else has taken it out.
        let session = unsafe { &*self.0 };
        for _ in 0..PATIENCE {
            if !session.has_inside() {
                break;
            }
            // Not by libc's function, which is a cancellation point.
            let millisecond = libc::timespec {
                tv_sec: 0,
                tv_nsec: 1_000_000,
            };
            // SAFETY: reads its first argument; the rest is asked not to be told.
            unsafe { crate::raw::syscall!(libc::SYS_nanosleep, &raw const millisecond, 0) };
        }
        // References to the file system itself may be about for as long as the process lives, so it is
        // not freed; nor does it close the last of its descriptors.
        let descriptors = session.descriptors();
        let (last, others) = match descriptors.as_ref() as &[i32] {
            [others @ .., last] => (Some(*last), others),
            [] => (None, &[][..]),
        };
        crate::reserved::forget(others);
        session.end();
        if let Some(last) = last {
            crate::reserved::let_go(last as usize);
        }
    }
}

/// Milliseconds for which threads in a session that the process has left are waited for.
const PATIENCE: u32 = 1_000;

/// Before a fork, when nothing is left to be mapped.
pub fn before_fork() {
    forks::before();
}

/// In the process that has forked.
pub fn after_fork() {
    forks::in_parent();
}

/// In a forked child, before any code but this library's runs there: nothing of the parent's session is
/// mapped (the kernel has left it out), and nothing of it stays open. The next call that needs a
/// session opens the child's own; the parent's stays in memory that nobody looks at any more.
pub fn forked() {
    forks::in_child();
    crate::reserved::forget_session();
    SESSION.store(std::ptr::null_mut(), Ordering::Release);
    CONNECTING.store(false, Ordering::Release);
    UNREACHABLE.store(false, Ordering::Relaxed);
}

/// An error number as handlers return it.
#[inline(always)]
pub fn minus(errno: Errno) -> isize {
    -(errno.raw_os_error() as isize)
}
