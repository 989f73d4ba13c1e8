//! Memory that the kernel writes on a process's behalf after the process has let go of it: buffers
//! registered with io_uring keep the pages that they were, whatever becomes of map and file.

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

const REGISTER_BUFFERS: libc::c_uint = 0;
const ENTER_GETEVENTS: libc::c_uint = 1;
const READ_FIXED: u8 = 4;
const OFFSET_SQ_RING: libc::off_t = 0;
const OFFSET_SQES: libc::off_t = 0x1000_0000;

#[repr(C)]
#[derive(Default)]
struct Parameters {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    /// head, tail, ring_mask, ring_entries, flags, dropped, array, reserved, user address.
    sq: [u32; 10],
    cq: [u32; 10],
}

#[repr(C)]
struct Submission {
    opcode: u8,
    flags: u8,
    priority: u16,
    descriptor: i32,
    offset: u64,
    address: u64,
    length: u32,
    operation_flags: u32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    splice: u32,
    reserved: [u64; 2],
}

/// A ring with one registered buffer.
pub struct Pinned {
    ring: OwnedFd,
    /// Addresses of the rings, of the submissions.
    rings: usize,
    submissions: usize,
    sq: [u32; 10],
    cq: [u32; 10],
    address: u64,
    length: u32,
}

fn failed(what: &str) -> String {
    format!("{what}: {}", std::io::Error::last_os_error())
}

impl Pinned {
    /// Pins memory that is mapped now.
    pub fn new(address: *mut u8, length: usize) -> Result<Pinned, String> {
        let mut parameters = Parameters::default();
        let vector = libc::iovec {
            iov_base: address.cast(),
            iov_len: length,
        };
        // SAFETY: system calls with structures of the kernel's layout that live during the calls;
        // the new descriptor is nobody else's; the maps are as long as the kernel's own rings for
        // one entry (a page), and stay.
        unsafe {
            let ring = libc::syscall(libc::SYS_io_uring_setup, 1u32, &raw mut parameters);
            if ring < 0 {
                return Err(failed("io_uring_setup"));
            }
            let ring = OwnedFd::from_raw_fd(ring as i32);
            let number = ring.as_raw_fd();
            let map = |offset| {
                libc::mmap(
                    std::ptr::null_mut(),
                    4096,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_POPULATE,
                    number,
                    offset,
                )
            };
            let (rings, submissions) = (map(OFFSET_SQ_RING), map(OFFSET_SQES));
            if rings == libc::MAP_FAILED || submissions == libc::MAP_FAILED {
                return Err(failed("mmap of a ring"));
            }
            let registered = libc::syscall(
                libc::SYS_io_uring_register,
                number,
                REGISTER_BUFFERS,
                &raw const vector,
                1u32,
            );
            if registered != 0 {
                return Err(failed("io_uring_register"));
            }
            Ok(Pinned {
                ring,
                rings: rings as usize,
                submissions: submissions as usize,
                sq: parameters.sq,
                cq: parameters.cq,
                address: address as u64,
                length: length as u32,
            })
        }
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: an aligned word of the rings, which stay mapped; the kernel writes it too.
        unsafe { &*((self.rings + offset as usize) as *const AtomicU32) }
    }

    /// Has the kernel fill the pinned pages from a file. Gives the bytes, or what the kernel says.
    pub fn fill(&self, source: &OwnedFd) -> Result<u32, String> {
        let [_, tail, mask, _, _, _, array, ..] = self.sq;
        let submission = Submission {
            opcode: READ_FIXED,
            flags: 0,
            priority: 0,
            descriptor: source.as_raw_fd(),
            offset: 0,
            address: self.address,
            length: self.length,
            operation_flags: 0,
            user_data: 0,
            buffer: 0,
            personality: 0,
            splice: 0,
            reserved: [0; 2],
        };
        let at = self.word(tail).load(Ordering::Acquire);
        let place = at & self.word(mask).load(Ordering::Relaxed);
        // SAFETY: one entry was asked for, so the place is 0, in a page of submissions; the kernel
        // reads it only after the tail says so.
        unsafe {
            (self.submissions as *mut Submission)
                .add(place as usize)
                .write(submission)
        };
        self.word(array + 4 * place).store(place, Ordering::Relaxed);
        self.word(tail).store(at.wrapping_add(1), Ordering::Release);
        // SAFETY: a system call with integer arguments and no set of signals.
        let entered = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.ring.as_raw_fd(),
                1u32,
                1u32,
                ENTER_GETEVENTS,
                std::ptr::null::<libc::c_void>(),
                0usize,
            )
        };
        if entered != 1 {
            return Err(failed("io_uring_enter"));
        }
        let [head, _, mask, _, _, entries, ..] = self.cq;
        let at = self.word(head).load(Ordering::Acquire);
        let place = at & self.word(mask).load(Ordering::Relaxed);
        // Entries of 16 bytes: user data (8), result (4), flags.
        let result = self.word(entries + 16 * place + 8).load(Ordering::Relaxed) as i32;
        self.word(head).store(at.wrapping_add(1), Ordering::Release);
        u32::try_from(result).map_err(|_| format!("errno {}", -result))
    }
}

/// Pages that a pipe refers to, whatever becomes of map and file.
pub struct Piped {
    read: OwnedFd,
    write: OwnedFd,
    /// To look at them, and leave them where they are.
    copy: (OwnedFd, OwnedFd),
    length: usize,
}

/// Bytes of a pipe: as many as everybody may have.
pub const PIPE: usize = 1 << 20;

fn pipe() -> Result<(OwnedFd, OwnedFd), String> {
    let (read, write) = rustix::pipe::pipe().map_err(|error| format!("pipe: {error}"))?;
    rustix::pipe::fcntl_setpipe_size(&write, PIPE).map_err(|error| format!("a pipe: {error}"))?;
    Ok((read, write))
}

impl Piped {
    /// Puts memory that is mapped now into a pipe, by vmsplice.
    pub fn new(address: *mut u8) -> Result<Piped, String> {
        let (read, write) = pipe()?;
        let vector = libc::iovec {
            iov_base: address.cast(),
            iov_len: PIPE,
        };
        // SAFETY: one vector that lives during the call; what it names is only referred to.
        let length = unsafe { libc::vmsplice(write.as_raw_fd(), &raw const vector, 1, 0) };
        match usize::try_from(length) {
            Ok(length) if length > 0 => Ok(Piped {
                read,
                write,
                copy: pipe()?,
                length,
            }),
            _ => Err(failed("vmsplice")),
        }
    }

    /// What stands in the pages now.
    pub fn look(&self) -> Vec<u8> {
        let (read, write) = (&self.copy.0, &self.copy.1);
        // SAFETY: descriptors that live, and a length.
        let length = unsafe { libc::tee(self.read.as_raw_fd(), write.as_raw_fd(), self.length, 0) };
        let length = usize::try_from(length).expect("what is in the pipe");
        assert!(length > 0 && self.write.as_raw_fd() >= 0);
        let mut bytes = vec![0; length];
        let mut at = 0;
        while at < length {
            at += rustix::io::read(read, &mut bytes[at..]).expect("what is in the pipe");
        }
        bytes
    }
}
