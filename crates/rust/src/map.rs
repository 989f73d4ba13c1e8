//! Maps of files.
//!
//! # Invariants
//! * The memory is mapped as long as the [`Map`] lives, and its session as long.
//! * It is reached guarded, or by who has promised to ([`Map::as_ptr`]).
//! * A forked child has its parent's memory, and no session of it takes that for its own ([`arckfs::leave_maps`]).

use crate::error::{of_errno, told};
use crate::session::Session;
use arck_libfs_kit::forks::Handlers;
use arck_libfs_kit::memory::{Error, SharedBytes, Stores, placing};
use arckfs::{Errno, FileSystem, Handle, MapRequest};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// What may be done with a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapAccess {
    /// It shows the file, and is read.
    Read,
    /// It shows the file, and what is stored into it is the file's. While there is one, other sessions read the file; writing to it and
    /// cutting it is ETXTBSY for them, and such a map of their own ENODEV; of a file that several users may write, on a pool that is served to
    /// several, all maps are one memory.
    Write,
    /// It is a copy: what is stored into it nobody else sees.
    Copy,
}

/// A part of a file in the program's memory: what [`File::map`](crate::File::map) gives. Dropped, it is given back.
///
/// Others may change the file's bytes at any moment, and cut the file: behind its end is nothing. So there is no slice of it.
/// [`read_at`](Map::read_at) and [`write_at`](Map::write_at) copy, and are an error where the file was cut; who needs the bytes where they
/// are has [`as_ptr`](Map::as_ptr), and there the signal SIGBUS ends the program, as with every map.
///
/// What is stored others see at once. After a crash it is there if [`flush`](Map::flush), or the file's
/// [`sync_all`](crate::File::sync_all), has returned since.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let served = arck_test_pool::TestPool::new(32 << 20);
/// # let files = arck::Pool::new(served.path()).files()?;
/// use arck::MapAccess;
///
/// files.write("table", vec![0; 8192])?;
/// let file = files.options().read(true).write(true).open("table")?;
/// let map = file.map(0, 8192, MapAccess::Write)?;
/// map.write_at(b"row", 4096)?;
/// map.flush()?;
/// let mut row = [0; 3];
/// file.read_at(&mut row, 4096)?;
/// assert_eq!(&row, b"row");
///
/// file.set_len(10)?;
/// assert!(map.read_at(&mut row, 4096).is_err());
/// # drop((map, file));
/// # files.close()
/// # }
/// ```
pub struct Map {
    session: Arc<Session>,
    /// That of the process that made it.
    of: &'static arck_libfs_kit::Session,
    address: NonNull<u8>,
    length: usize,
    access: MapAccess,
}

// SAFETY: the address is of memory that no thread owns; it is reached guarded, or by who has promised to.
unsafe impl Send for Map {}
// SAFETY: as above; nothing of the object itself changes.
unsafe impl Sync for Map {}

static HANDLERS: Handlers = Handlers::new();

extern "C" fn before() {
    HANDLERS.are_running();
}

extern "C" fn in_child() {
    arckfs::leave_maps();
}

impl Map {
    pub(crate) fn new(
        session: Arc<Session>,
        file_system: &FileSystem,
        handle: Handle,
        offset: u64,
        length: usize,
        access: MapAccess,
    ) -> io::Result<Map> {
        // SAFETY: a function that may run in a forked child. Where libc has no memory for it, a child that maps nothing is as
        // it was.
        HANDLERS.register(|| unsafe {
            type Handler = unsafe extern "C" fn();
            let (before, child): (Handler, Handler) = (before, in_child);
            libc::pthread_atfork(Some(before), None, Some(child));
        });
        let (protection, flags) = match access {
            MapAccess::Read => (libc::PROT_READ, libc::MAP_SHARED),
            MapAccess::Write => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED),
            MapAccess::Copy => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE),
        };
        let request = MapRequest {
            address: 0,
            length,
            protection,
            flags,
            offset,
        };
        // SAFETY: where the kernel likes it: nothing of the program's is replaced.
        let address = unsafe { file_system.map(handle, &request) }.map_err(of_errno)?;
        let address = NonNull::new(address as *mut u8);
        Ok(Map {
            session,
            of: file_system.session(),
            address: address.ok_or_else(|| of_errno(Errno::IO))?,
            length,
            access,
        })
    }

    /// Bytes of the map, which stay as many as they were.
    #[expect(clippy::len_without_is_empty, reason = "no map is empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// What may be done with it.
    pub fn access(&self) -> MapAccess {
        self.access
    }

    /// Where it lies. The bytes are those of the file, which other threads and processes may change at any moment: who loads
    /// and stores them does so by atomics or volatile accesses, and makes no reference of them. Behind the file's end each is SIGBUS;
    /// a store into a map that may only be read is SIGSEGV. Not to be used when the map is dropped; in a forked child, where it is the
    /// same memory, not when the parent has dropped it.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// That it is this process's. A forked child has the memory, and is not told when its pages become another file's.
    fn usable(&self) -> io::Result<()> {
        self.session.run_in(self.of, |_| Ok(()))
    }

    fn copy(
        &self,
        offset: usize,
        length: usize,
        mut copy: impl FnMut(SharedBytes<'_>) -> Result<(), Error>,
    ) -> io::Result<()> {
        if offset
            .checked_add(length)
            .is_none_or(|end| end > self.length)
        {
            let text = format!(
                "{length} bytes at {offset} are more than the map has, {}",
                self.length
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.usable()?;
        // SAFETY: mapped as long as this is; reached guarded here, and by who has promised to.
        let bytes = unsafe { SharedBytes::from_raw(self.address, self.length) };
        if copy(bytes).is_ok() {
            return Ok(());
        }
        // What other processes of the group have made longer meanwhile.
        let address = self.address.as_ptr() as usize + offset;
        self.session.run_in(self.of, |file_system| {
            file_system.catch_up_with_maps(address)
        })?;
        copy(bytes).map_err(|_| {
            let text = "the file has been cut: it ends before this place of the map";
            told(Errno::IO, text)
        })
    }

    /// Copies bytes from an offset of the map on.
    ///
    /// # Errors
    /// `InvalidInput`: the range does not lie in the map. ESTALE in a forked child. EIO: the file was cut, and has no page there any
    /// more; some bytes may have been copied.
    pub fn read_at(&self, buffer: &mut [u8], offset: usize) -> io::Result<()> {
        self.copy(offset, buffer.len(), |bytes| {
            bytes.try_copy_to(offset, buffer)
        })
    }

    /// Copies bytes into the map, at an offset of it.
    ///
    /// # Errors
    /// As [`read_at`](Map::read_at); `PermissionDenied`: it may only be read.
    pub fn write_at(&self, buffer: &[u8], offset: usize) -> io::Result<()> {
        if self.access == MapAccess::Read {
            return Err(told(Errno::ACCESS, "the map was made to be read"));
        }
        self.copy(offset, buffer.len(), |bytes| {
            bytes.try_copy_from(offset, buffer, Stores::Cached)
        })
    }

    /// What was stored into the map is durable when this returns. Blocks in pools on a file system of blocks.
    ///
    /// # Errors
    /// EIO; ESTALE in a forked child.
    pub fn flush(&self) -> io::Result<()> {
        self.usable()?;
        if self.access != MapAccess::Write {
            return Ok(());
        }
        let address = self.address.as_ptr() as usize;
        self.session.run_in(self.of, |file_system| {
            // SAFETY: this map's own memory.
            unsafe { file_system.sync_maps(address, self.length, libc::MS_SYNC) }
        })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let (address, length) = (self.address.as_ptr() as usize, self.length);
        // SAFETY: mapped by `new`, here or in the parent of this process, and reached by nobody any more. In a forked child
        // the table of maps does not know it.
        let _ = unsafe {
            match self.of.has_ended() {
                true => placing::vacate(address, length).map_err(of_errno),
                false => self
                    .session
                    .run_in(self.of, |file_system| file_system.unmap(address, length)),
            }
        };
    }
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut told = f.debug_struct("Map");
        told.field("length", &self.length)
            .field("access", &self.access)
            .finish()
    }
}
