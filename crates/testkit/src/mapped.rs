//! Shared maps of files, as tests have them: memory that is looked at and stored to, and gone when they are dropped.
//!
//! Invariant: no more than the map is reached, whatever a test asks for.

use arckfs::{Errno, FileSystem, Handle, MapRequest};
use std::sync::atomic::AtomicU32;

pub const READ: i32 = libc::PROT_READ;
pub const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// A map of a file.
pub struct Mapped<'s> {
    session: &'s FileSystem,
    address: usize,
    length: usize,
}

/// A shared one from the file's beginning on. Errors are those of [`FileSystem::map`].
pub fn map(
    session: &FileSystem,
    handle: Handle,
    length: usize,
    protection: i32,
) -> Result<Mapped<'_>, Errno> {
    let request = MapRequest {
        address: 0,
        length,
        protection,
        flags: libc::MAP_SHARED,
        offset: 0,
    };
    map_as(session, handle, request)
}

/// Any other, where the kernel likes.
pub fn map_as(
    session: &FileSystem,
    handle: Handle,
    request: MapRequest,
) -> Result<Mapped<'_>, Errno> {
    assert_eq!(request.address, 0);
    // SAFETY: where the kernel likes.
    let address = unsafe { session.map(handle, &request)? };
    Ok(Mapped {
        session,
        address,
        length: request.length,
    })
}

impl Mapped<'_> {
    /// `mprotect` of the first bytes.
    pub fn protect(&self, length: usize, protection: i32) {
        assert!(length <= self.length);
        // SAFETY: a part of the map; what it points to stays.
        unsafe {
            self.session
                .protect(self.address, length, protection)
                .unwrap()
        };
    }

    /// `msync` of all of it.
    pub fn sync(&self, flags: i32) {
        // SAFETY: changes nothing.
        unsafe {
            self.session
                .sync_maps(self.address, self.length, flags)
                .unwrap()
        };
    }

    /// A byte, or `None` where there is nothing: the kernel is asked, to whom that is EFAULT.
    pub fn get(&self, at: usize) -> Option<u8> {
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(at < self.length);
        // SAFETY: reads one byte of the map, if there is one.
        let written = unsafe {
            let from = (self.address + at) as *const libc::c_void;
            libc::write(std::os::fd::AsRawFd::as_raw_fd(&writer), from, 1)
        };
        if written != 1 {
            return None;
        }
        let mut byte = [0];
        std::io::Read::read_exact(&mut &reader, &mut byte).unwrap();
        Some(byte[0])
    }

    /// The same of what is known to be there.
    pub fn byte(&self, at: usize) -> u8 {
        assert!(at < self.length);
        // SAFETY: a part of the map; where the file is not, the test ends.
        unsafe { ((self.address + at) as *const u8).read_volatile() }
    }

    pub fn put(&self, at: usize, byte: u8) {
        assert!(at < self.length);
        // SAFETY: a writable map of the test's own.
        unsafe { ((self.address + at) as *mut u8).write_volatile(byte) }
    }

    /// Four bytes that others change at the same time. The file is there.
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.length && at.is_multiple_of(4));
        // SAFETY: a part of the map, which lives as long as `self`; whoever else stores there does so atomically.
        unsafe { &*((self.address + at) as *const AtomicU32) }
    }

    /// Another map of the same pages, of which no session knows, and that is never unmapped: for who keeps what he may not.
    pub fn hidden(&self) -> Hidden {
        // SAFETY: where the kernel likes; an old size of 0 leaves the old map as it is.
        let kept =
            unsafe { libc::mremap(self.address as *mut _, 0, self.length, libc::MREMAP_MAYMOVE) };
        assert_ne!(kept, libc::MAP_FAILED);
        Hidden {
            address: kept as usize,
            length: self.length,
        }
    }
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { self.session.unmap(self.address, self.length).unwrap() };
    }
}

/// See [`Mapped::hidden`].
pub struct Hidden {
    address: usize,
    length: usize,
}

impl Hidden {
    pub fn get(&self, at: usize) -> u8 {
        assert!(at < self.length);
        // SAFETY: a part of the map, whose pages the kernel keeps.
        unsafe { ((self.address + at) as *const u8).read_volatile() }
    }

    pub fn put(&self, at: usize, byte: u8) {
        assert!(at < self.length);
        // SAFETY: as above; it is to be written.
        unsafe { ((self.address + at) as *mut u8).write_volatile(byte) }
    }
}
