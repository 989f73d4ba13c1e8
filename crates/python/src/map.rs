//! Maps of files into the program's memory, beneath `arck.Map`.
//!
//! What Python's methods read and write here is copied guarded: where the file has been cut beneath the map it is an
//! `OSError`. Who has a `memoryview` of it loads and stores by itself, and gets SIGBUS there, as with every map.
//!
//! # Invariants
//! * The memory is mapped as long as anybody can reach it: who closes is refused while there are views, and waits for
//!   those who copy. A view keeps the object.
//! * A session ends after its maps: `arck.FileSystem.close` closes these first.
//! * In a forked child the memory stays, for views; the map is its parent's, and no session of the child's takes it for
//!   its own: the table of maps is empty there from the beginning ([`arckfs::leave_maps`], called by
//!   [`in_child`](crate::gate::in_child)).

use crate::arguments::Buffer;
use crate::errors::Refusal;
use crate::file::OpenFile;
use crate::gate::Gate;
use crate::session::Session;
use arck_libfs_kit::memory::{Error, SharedBytes, Stores, placing};
use arckfs::{Errno, FileSystem, MapRequest};
use pyo3::exceptions::{PyBufferError, PyIndexError, PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::{OsString, c_int};
use std::os::unix::ffi::OsStringExt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// As `mmap.ACCESS_*`: to read; shared, to be written; a copy of one's own.
const ACCESS_READ: i32 = 1;
const ACCESS_WRITE: i32 = 2;
const ACCESS_COPY: i32 = 3;

/// What is said to be closed.
const WHAT: &str = "map";
const PAGE: u64 = 4096;

/// How many there are who use its memory, and whether it is closed.
#[derive(Default)]
struct Uses {
    views: usize,
    is_closed: bool,
}

/// A part of a file in memory: what `arck.Map` is made of.
#[pyclass(frozen, subclass, module = "arck._arck")]
pub struct Map {
    session: Arc<Session>,
    /// That of the process that made it.
    of: &'static arck_libfs_kit::Session,
    path: Vec<u8>,
    address: NonNull<u8>,
    length: usize,
    access: i32,
    gate: Gate,
    uses: Mutex<Uses>,
}

// SAFETY: the address is of memory that no thread owns; it is reached guarded, or by Python's views, whose threads see
// to themselves.
unsafe impl Send for Map {}
// SAFETY: as above; what changes of the object itself is under its locks.
unsafe impl Sync for Map {}

impl Map {
    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told_closed() -> PyErr {
        Refusal::Closed(WHAT).raised()
    }

    /// That it is this process's, and open.
    fn usable(&self) -> PyResult<()> {
        if self.gate.is_closed() || self.session.is_closed() {
            return Err(Map::told_closed());
        }
        if self.of.has_ended() {
            return Err(Refusal::OfParent.of(&self.path));
        }
        Ok(())
    }

    fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: mapped as long as this is borrowed from who is inside the gate; reached guarded here, and by what
        // Python does through views, which takes any bytes for what they are.
        unsafe { SharedBytes::from_raw(self.address, self.length) }
    }

    /// Copies from or to a range of it, without Python's lock.
    fn copy(
        &self,
        py: Python<'_>,
        offset: usize,
        length: usize,
        mut copy: impl FnMut(SharedBytes<'_>) -> Result<(), Error> + Send,
    ) -> PyResult<()> {
        self.usable()?;
        if offset
            .checked_add(length)
            .is_none_or(|end| end > self.length)
        {
            return Err(PyIndexError::new_err("map index out of range"));
        }
        let done = py.detach(|| {
            let entered = self.gate.enter();
            entered.map(|_entered| {
                if copy(self.bytes()).is_ok() {
                    return true;
                }
                // What other processes of the group have made longer meanwhile.
                let address = self.address.as_ptr() as usize + offset;
                let caught_up = self
                    .session
                    .run_detached(|file_system| file_system.catch_up_with_maps(address));
                caught_up.is_ok() && copy(self.bytes()).is_ok()
            })
        });
        match done {
            None => Err(Map::told_closed()),
            Some(true) => Ok(()),
            Some(false) => {
                let path = OsString::from_vec(self.path.clone());
                let text = "the file has been cut: it ends before this place of the map";
                let errno = Errno::IO.raw_os_error();
                Err(PyOSError::new_err((errno, text, path)))
            }
        }
    }

    /// Gives the memory back. Once, when nobody uses it any more.
    fn unmap(&self) {
        let (address, length) = (self.address.as_ptr() as usize, self.length);
        if self.of.has_ended() {
            // SAFETY: mapped by `new`, or by the parent of this process; nobody reaches it any more, and the table of
            // maps, if it is this process's, is of a session that has ended.
            let _ = unsafe { placing::vacate(address, length) };
            return;
        }
        // Where the session was closed without its maps, which the interpreter's end alone does, the memory stays.
        // SAFETY: as above.
        let unmap = |file_system: &FileSystem| unsafe { file_system.unmap(address, length) };
        let _ = self.session.run_detached(unmap);
    }
}

#[pymethods]
impl Map {
    #[new]
    fn new(
        py: Python<'_>,
        file: &OpenFile,
        length: u64,
        access: i32,
        offset: u64,
    ) -> PyResult<Map> {
        let (protection, flags) = match access {
            ACCESS_READ => (libc::PROT_READ, libc::MAP_SHARED),
            ACCESS_WRITE => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED),
            ACCESS_COPY => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE),
            _ => {
                return Err(PyValueError::new_err(
                    "access is ACCESS_READ, ACCESS_WRITE or ACCESS_COPY",
                ));
            }
        };
        if !offset.is_multiple_of(PAGE) {
            return Err(PyValueError::new_err("offset is a multiple of 4096"));
        }
        let size = file.run(py, FileSystem::stat_handle)?.size;
        let left = size.checked_sub(offset).ok_or_else(|| {
            PyValueError::new_err(format!("offset {offset} is behind the file's end, {size}"))
        })?;
        let wanted = if length == 0 { left } else { length };
        if wanted > left {
            return Err(PyValueError::new_err(format!(
                "{wanted} bytes are more than the file has there, {left}"
            )));
        }
        if wanted == 0 {
            return Err(PyValueError::new_err("cannot map no bytes"));
        }
        let length = usize::try_from(wanted);
        let length = length.map_err(|_| PyValueError::new_err("length is too large"))?;
        let request = MapRequest {
            address: 0,
            length,
            protection,
            flags,
            offset,
        };
        let address = file.run(py, |file_system, handle| {
            // SAFETY: where the kernel likes it: nothing of the program's is replaced.
            unsafe { file_system.map(handle, &request) }
        })?;
        let (session, of, path) = file.whose();
        let address = NonNull::new(address as *mut u8);
        Ok(Map {
            session,
            of,
            path,
            address: address.ok_or_else(|| Refusal::Errno(Errno::IO).raised())?,
            length,
            access,
            gate: Gate::new(),
            uses: Mutex::default(),
        })
    }

    #[getter]
    fn _length(&self) -> usize {
        self.length
    }

    #[getter]
    fn _access(&self) -> i32 {
        self.access
    }

    /// Bytes of a range, copied.
    fn _copy_out<'py>(
        &self,
        py: Python<'py>,
        offset: usize,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, length, |buffer| {
            self.copy(py, offset, length, |bytes| {
                bytes.try_copy_to(offset, buffer)
            })
        })
    }

    /// Copies bytes into it.
    fn _copy_in(&self, py: Python<'_>, offset: usize, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        if self.access == ACCESS_READ {
            return Err(PyTypeError::new_err(
                "map cannot be modified: it was made to be read",
            ));
        }
        let data = Buffer::to_read(data)?;
        let source = data.bytes();
        self.copy(py, offset, source.len(), |bytes| {
            bytes.try_copy_from(offset, source, Stores::Cached)
        })?;
        Ok(source.len())
    }

    /// What was stored in a range is durable when this returns.
    fn _flush(&self, py: Python<'_>, offset: usize, length: usize) -> PyResult<()> {
        self.usable()?;
        if offset
            .checked_add(length)
            .is_none_or(|end| end > self.length)
        {
            return Err(PyValueError::new_err("flush values out of range"));
        }
        if self.access != ACCESS_WRITE || length == 0 {
            return Ok(());
        }
        let begin = offset / PAGE as usize * PAGE as usize;
        let address = self.address.as_ptr() as usize + begin;
        let length = length + (offset - begin);
        let flushed = self.session.run(py, |file_system| {
            let entered = self.gate.enter().ok_or(Refusal::Closed(WHAT))?;
            // SAFETY: this map's own memory, which stays while this is inside the gate.
            let flushed = unsafe { file_system.sync_maps(address, length, libc::MS_SYNC) };
            drop(entered);
            flushed.map_err(Refusal::Errno)
        });
        flushed.map_err(|refusal| refusal.of(&self.path))
    }

    /// How many views there are.
    #[getter]
    fn _views(&self) -> usize {
        self.uses().views
    }

    /// Gives the memory back. BufferError while there are views; does nothing the second time.
    fn _end(&self, py: Python<'_>) -> PyResult<()> {
        {
            let mut uses = self.uses();
            if uses.views != 0 {
                return Err(PyBufferError::new_err(
                    "cannot close: there are views of it (memoryview)",
                ));
            }
            if std::mem::replace(&mut uses.is_closed, true) {
                return Ok(());
            }
        }
        py.detach(|| {
            self.gate.close();
            self.unmap();
        });
        Ok(())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.gate.is_closed() || self.session.is_closed()
    }

    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut pyo3::ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let map = slf.get();
        map.usable()?;
        let mut uses = map.uses();
        if uses.is_closed {
            return Err(Map::told_closed());
        }
        let readonly = c_int::from(map.access == ACCESS_READ);
        // SAFETY: the interpreter's structure; the memory stays until the view is released, which holds the object.
        let filled = unsafe {
            pyo3::ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                map.address.as_ptr().cast(),
                map.length as isize,
                readonly,
                flags,
            )
        };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        uses.views += 1;
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut pyo3::ffi::Py_buffer) {
        let mut uses = self.uses();
        uses.views = uses.views.saturating_sub(1);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // No view is left: each holds the object.
        if !self.uses().is_closed {
            self.unmap();
        }
    }
}
