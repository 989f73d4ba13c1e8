//! A write whose source never comes: it holds the lock of the file that is written for as long as
//! the process lives.
//!
//! The source is memory whose faults a userfaultfd is to serve, and nobody serves it. Since Linux
//! 5.2 faults in the kernel are so held up for privileged processes only (or where
//! `vm.unprivileged_userfaultfd` is 1), so the descriptor is made before the process becomes its
//! user; a FUSE file, which every user can have where `fusermount` is installed, does the same.

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

static FAULTS: OnceLock<Result<OwnedFd, String>> = OnceLock::new();

const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFD_API: u64 = 0xaa;
const REGISTER_MODE_MISSING: u64 = 1;

/// Takes what is needed while the process may.
pub fn prepare() {
    FAULTS.get_or_init(|| {
        // SAFETY: a system call with an integer argument, which gives a descriptor or an error.
        let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        match RawFd::try_from(descriptor) {
            // SAFETY: new, and nobody else's.
            Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
            _ => Err(format!("userfaultfd: {}", std::io::Error::last_os_error())),
        }
    });
}

/// Bytes of a source.
const LENGTH: usize = 1 << 16;

/// Memory whose first bytes never come.
#[derive(Clone, Copy)]
pub struct Source(pub usize);

/// One that a userfaultfd is to serve, made once.
pub fn unserved() -> Result<Source, String> {
    static SOURCE: OnceLock<Result<usize, String>> = OnceLock::new();
    SOURCE.get_or_init(register).clone().map(Source)
}

fn failed(what: &str) -> String {
    format!("{what}: {}", std::io::Error::last_os_error())
}

/// The userfaultfd, told once which interface is meant.
fn faults() -> Result<RawFd, String> {
    static TOLD: OnceLock<Result<RawFd, String>> = OnceLock::new();
    let tell = || {
        let faults = match FAULTS.get() {
            Some(Ok(faults)) => faults.as_raw_fd(),
            Some(Err(why)) => return Err(why.clone()),
            None => return Err("not prepared".into()),
        };
        let mut api = [UFFD_API, 0, 0];
        // SAFETY: an ioctl with a structure of the size that its number says, which lives.
        match unsafe { libc::ioctl(faults, UFFDIO_API, api.as_mut_ptr()) } {
            0 => Ok(faults),
            _ => Err(failed("UFFDIO_API")),
        }
    };
    TOLD.get_or_init(tell).clone()
}

/// Pages that are missing in memory that is mapped there never come, for whoever uses this mapping.
pub fn never_comes(address: *mut u8, length: usize) -> Result<(), String> {
    let mut register = [address as u64, length as u64, REGISTER_MODE_MISSING, 0];
    // SAFETY: an ioctl with a structure of the size that its number says, which lives.
    match unsafe { libc::ioctl(faults()?, UFFDIO_REGISTER, register.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(failed("UFFDIO_REGISTER")),
    }
}

fn register() -> Result<usize, String> {
    // SAFETY: a private map of its own.
    unsafe {
        let source = libc::mmap(
            std::ptr::null_mut(),
            LENGTH,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if source == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        never_comes(source.cast(), LENGTH)?;
        Ok(source as usize)
    }
}

/// Begins to write to a file, at its beginning, what never comes. Returns when the writer is
/// stuck in it, and has the file's lock.
pub fn hold_inode_lock(file: RawFd, source: Source) -> Result<(), String> {
    // SAFETY: whoever calls keeps the descriptor, and the kernel only reads the map.
    let write = move |bytes| unsafe { libc::pwrite(file, bytes, LENGTH, 0) };
    stick(libc::SYS_pwrite64, source, write)
}

/// The same with a pipe that has room: whoever opens, closes or asks anything of it waits for the writer.
pub fn hold_pipe(pipe: RawFd, source: Source) -> Result<(), String> {
    // SAFETY: as above.
    let write = move |bytes| unsafe { libc::write(pipe, bytes, LENGTH) };
    stick(libc::SYS_write, source, write)
}

/// Begins this system call in a thread, and returns when that is asleep in it.
fn stick(
    number: libc::c_long,
    Source(source): Source,
    write: impl FnOnce(*const libc::c_void) -> isize + Send + 'static,
) -> Result<(), String> {
    let (sender, thread) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // SAFETY: a system call without arguments.
        let _ = sender.send(unsafe { libc::gettid() });
        write(source as *const libc::c_void);
    });
    let thread = thread.recv().map_err(|error| error.to_string())?;
    let path = format!("/proc/self/task/{thread}/syscall");
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(10) {
        let call = std::fs::read_to_string(&path).unwrap_or_default();
        if call.starts_with(&format!("{number} ")) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err("the write did not get stuck".into())
}
