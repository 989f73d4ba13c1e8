//! The working directory, when it lies on the pool.
//!
//! The kernel's own working directory is then one that has been removed: relative paths never
//! reach the kernel, and those of a program that this library does not reach (a static one) find
//! nothing and make nothing there, rather than in some directory of the host.
//!
//! Invariants:
//! * `CURRENT`: 0 = the kernel's, TO_BE_OPENED = on the pool at `NAME` but without a handle in
//!   this session yet (after fork or exec), else the handle of a directory opened with O_PATH.
//! * `NAME` is written only under `LOCK`, or before there are threads.
//! * The previous directory's handle is closed only at the change after the next, so a thread
//!   that just loaded it can finish its call.

use crate::backend::{At, Errno, Failure, Handle, inside, minus};
use crate::descriptors::{mounted, replacements};
use crate::settings::{self, PATH_MAX};
use crate::{raw, thread};
use std::cell::UnsafeCell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static CURRENT: AtomicU64 = AtomicU64::new(0);
static PREVIOUS: AtomicU64 = AtomicU64::new(0);
const TO_BE_OPENED: u64 = u64::MAX;
/// Whether the kernel's working directory is an ancestor of the mount prefix, so that plain
/// relative paths may lead into the pool.
static ABOVE_MOUNT: AtomicBool = AtomicBool::new(false);

static LOCK: AtomicBool = AtomicBool::new(false);
struct Name(UnsafeCell<([u8; PATH_MAX], usize)>);
// SAFETY: accessed only while LOCK is held.
unsafe impl Sync for Name {}
static NAME: Name = Name(UnsafeCell::new(([0; PATH_MAX], 0)));

/// Holds `LOCK`. Being inside keeps signal handlers away meanwhile.
struct Locked(#[expect(dead_code, reason = "held for its effect")] thread::Inside);

fn lock() -> Locked {
    let inside = thread::enter();
    while LOCK.swap(true, Ordering::Acquire) {
        // SAFETY: no arguments.
        unsafe { raw::syscall!(libc::SYS_sched_yield) };
    }
    Locked(inside)
}

impl Locked {
    #[expect(clippy::mut_from_ref, reason = "exclusive by the lock")]
    fn name(&self) -> &mut ([u8; PATH_MAX], usize) {
        // SAFETY: the lock is held and each caller takes the reference once.
        unsafe { &mut *NAME.0.get() }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        LOCK.store(false, Ordering::Release);
    }
}

/// The working directory's handle if it is on the pool.
#[inline(always)]
pub fn current() -> Option<Result<Handle, isize>> {
    match NonZeroU64::new(CURRENT.load(Ordering::Acquire)) {
        None => None,
        Some(value) if value.get() != TO_BE_OPENED => Some(Ok(Handle(value))),
        Some(_) => Some(open_named()),
    }
}

pub fn is_on_pool() -> bool {
    CURRENT.load(Ordering::Relaxed) != 0
}

#[cold]
fn open_named() -> Result<Handle, isize> {
    let locked = lock();
    let value = CURRENT.load(Ordering::Acquire);
    if value != TO_BE_OPENED {
        return NonZeroU64::new(value)
            .map(Handle)
            .ok_or(raw::error(libc::ENOENT));
    }
    let (bytes, length) = locked.name();
    let relative =
        crate::path::below::below_mount(&bytes[..*length]).ok_or(raw::error(libc::ENOENT))?;
    match inside(|fs| fs.open(At::Root, relative, libc::O_PATH | libc::O_DIRECTORY, 0)) {
        Ok(handle) => {
            CURRENT.store(handle.0.get(), Ordering::Release);
            Ok(handle)
        }
        Err(Failure::Errno(errno)) => Err(minus(errno)),
        Err(Failure::Outside(_)) => Err(raw::error(libc::ENOENT)),
    }
}

/// Changes to a directory of the pool; takes over the handle.
pub fn change(handle: Handle) {
    if replace(handle.0.get()) == 0 {
        go_nowhere();
    }
}

/// Puts the kernel's working directory on a removed one. Where none can be made it stays.
fn go_nowhere() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    for place in ["/dev/shm", "/tmp", "/var/tmp"] {
        let process = raw::process_id();
        let path = format!("{place}/.arck-nowhere-{process}-{count}\0");
        // SAFETY: NUL-terminated paths.
        unsafe {
            if raw::failed(raw::syscall!(libc::SYS_mkdir, path.as_ptr(), 0o700)) {
                continue;
            }
            let changed = raw::syscall!(libc::SYS_chdir, path.as_ptr());
            raw::syscall!(libc::SYS_rmdir, path.as_ptr());
            if !raw::failed(changed) {
                return;
            }
        }
    }
}

/// The kernel's working directory counts from now on (it has just been set).
pub fn leave() {
    replace(0);
    look_above();
}

/// Gives what it was.
fn replace(value: u64) -> u64 {
    let before = CURRENT.swap(value, Ordering::AcqRel);
    let kept = if before == TO_BE_OPENED { 0 } else { before };
    if kept == 0 && value == 0 {
        return before;
    }
    let oldest = PREVIOUS.swap(kept, Ordering::AcqRel);
    if let Some(oldest) = NonZeroU64::new(oldest) {
        replacements::replaced();
        let _ = inside(|fs| {
            fs.close(Handle(oldest));
            Ok(())
        });
        mounted::closed(Handle(oldest));
    }
    before
}

/// Writes the absolute path with its NUL into `buffer`: its length with the NUL, or minus an
/// error number, as `getcwd(2)` does. `None` if the kernel knows better.
pub fn name(buffer: &mut [u8]) -> Option<isize> {
    let value = CURRENT.load(Ordering::Acquire);
    if value == 0 {
        return None;
    }
    let put = |path: &[u8], buffer: &mut [u8]| {
        if path.len() + 1 > buffer.len() {
            return raw::error(libc::ERANGE);
        }
        buffer[..path.len()].copy_from_slice(path);
        buffer[path.len()] = 0;
        path.len() as isize + 1
    };
    if replacements::is_spawned_child() {
        // It does not ask the session, but what was noted for it; and it takes no lock, since it may be
        // killed. There is no other thread.
        // SAFETY: nobody writes meanwhile.
        let (bytes, length) = unsafe { &*NAME.0.get() };
        return Some(put(&bytes[..*length], buffer));
    }
    if value == TO_BE_OPENED {
        let locked = lock();
        let (bytes, length) = locked.name();
        return Some(put(&bytes[..*length], buffer));
    }
    let handle = Handle(NonZeroU64::new(value)?);
    Some(
        match inside(|fs| Ok(fs.path_of(handle).map(|path| put(&path, buffer))?)) {
            Ok(length) => length,
            Err(Failure::Errno(errno)) => minus(errno),
            Err(Failure::Outside(_)) => minus(Errno::NOENT),
        },
    )
}

/// Notes the path, for a forked child, which opens it in its own session. In the parent, before
/// the fork.
pub fn prepare_fork() {
    if !is_on_pool() {
        return;
    }
    let mut buffer = crate::path::below::room();
    let length = name(&mut buffer[..]);
    let locked = lock();
    let name = locked.name();
    match length {
        Some(length) if length > 0 => {
            name.1 = length as usize - 1;
            name.0.copy_from_slice(&buffer[..]);
        }
        _ => name.1 = 0,
    }
}

/// In the child.
pub fn forked() {
    LOCK.store(false, Ordering::Release);
    PREVIOUS.store(0, Ordering::Relaxed);
    if is_on_pool() {
        CURRENT.store(TO_BE_OPENED, Ordering::Release);
    }
}

/// At start-up.
pub fn start() {
    let is_somewhere = look_above();
    let start = settings::START_DIRECTORY.get();
    // A program that is not served, and hands on what it was told, may have gone elsewhere.
    if !is_somewhere && crate::path::below::below_mount(start).is_some() {
        let locked = lock();
        let name = locked.name();
        name.0[..start.len()].copy_from_slice(start);
        name.1 = start.len();
        CURRENT.store(TO_BE_OPENED, Ordering::Release);
    }
}

/// Whether relative paths that do not go up can lead into the pool.
#[inline(always)]
pub fn is_above_mount() -> bool {
    ABOVE_MOUNT.load(Ordering::Relaxed)
}

/// Looks where the kernel's working directory is. False if nowhere.
pub fn look_above() -> bool {
    let mut buffer = crate::path::below::room();
    let length = kernel_name(&mut buffer);
    let path = &buffer[..length];
    let mount = settings::MOUNT.get();
    let above = match mount.strip_prefix(path) {
        Some(rest) => path == b"/" || rest.first() == Some(&b'/'),
        None => false,
    };
    ABOVE_MOUNT.store(above && !path.is_empty(), Ordering::Relaxed);
    !path.is_empty()
}

/// The kernel's working directory; length 0 if unknown.
pub fn kernel_name(buffer: &mut [u8; PATH_MAX]) -> usize {
    // SAFETY: the kernel writes at most the buffer's length.
    let length = unsafe { raw::syscall!(libc::SYS_getcwd, buffer.as_mut_ptr(), buffer.len()) };
    if length > 1 { length as usize - 1 } else { 0 }
}
