//! Open files, beneath Python's `io`.

use crate::arguments::Buffer;
use crate::attributes;
use crate::errors::Refusal;
use crate::session::Session;
use arckfs::{Attributes, Errno, FileSystem, Handle};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of one read at most: what the kernel's call does.
const READ_MAX: usize = 0x7fff_f000;

/// A file that is open: what `arck.File` is made of.
#[pyclass(frozen, module = "arck._arck")]
pub struct OpenFile {
    session: Arc<Session>,
    /// That of the process that opened it.
    of: &'static arck_libfs_kit::Session,
    handle: Handle,
    /// For exceptions.
    path: Vec<u8>,
    is_closed: AtomicBool,
}

impl OpenFile {
    pub fn new(
        session: Arc<Session>,
        of: &'static arck_libfs_kit::Session,
        handle: Handle,
        path: Vec<u8>,
    ) -> OpenFile {
        let is_closed = AtomicBool::new(false);
        OpenFile {
            session,
            of,
            handle,
            path,
            is_closed,
        }
    }

    /// Its session, that of the process that opened it, and its path: for what is made of it.
    pub fn whose(&self) -> (Arc<Session>, &'static arck_libfs_kit::Session, Vec<u8>) {
        (Arc::clone(&self.session), self.of, self.path.clone())
    }

    /// Runs what is done on the file, without Python's lock.
    pub fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&FileSystem, Handle) -> Result<T, Errno> + Send,
    ) -> PyResult<T> {
        let closed = || Refusal::Closed("file");
        if self.is_closed.load(Ordering::Acquire) {
            return Err(closed().raised());
        }
        if self.of.has_ended() {
            let is_closed = self.session.is_closed();
            let refusal = if is_closed {
                closed()
            } else {
                Refusal::OfParent
            };
            return Err(refusal.of(&self.path));
        }
        let done = self
            .session
            .run(py, |file_system| work(file_system, self.handle));
        done.map_err(|refusal| match refusal {
            // Closed by another thread meanwhile.
            Refusal::Errno(Errno::BADF) if self.is_closed.load(Ordering::Acquire) => {
                closed().raised()
            }
            refusal => refusal.of(&self.path),
        })
    }
}

/// A position or a size that Python gives. EINVAL if it is negative, as of the kernel's calls.
fn natural(number: i64) -> PyResult<u64> {
    u64::try_from(number).map_err(|_| Refusal::Errno(Errno::INVAL).raised())
}

/// Reads up to `length` bytes, at `position` or from the file's own on.
fn read_bytes<'py>(
    py: Python<'py>,
    length: usize,
    read: impl FnOnce(&mut [u8]) -> PyResult<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut filled = 0;
    let bytes = PyBytes::new_with(py, length, |buffer| {
        filled = read(buffer)?;
        Ok(())
    })?;
    match filled == length {
        true => Ok(bytes),
        false => Ok(PyBytes::new(py, &bytes.as_bytes()[..filled])),
    }
}

#[pymethods]
impl OpenFile {
    /// Fills a buffer from the position on; gives how many bytes.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut buffer = Buffer::to_fill(buffer)?;
        let bytes = buffer.bytes_to_fill();
        self.run(py, |file_system, handle| {
            file_system.read(handle, bytes, None)
        })
    }

    /// Reads up to a number of bytes from the position on.
    fn read<'py>(&self, py: Python<'py>, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        // No more memory than the file can fill.
        let length = match length {
            0..=0xffff => length,
            _ => length.min(self.left(py)?.max(0xffff)),
        };
        read_bytes(py, length, |buffer| {
            self.run(py, |file_system, handle| {
                file_system.read(handle, buffer, None)
            })
        })
    }

    /// Reads all that there is from the position on.
    pub fn readall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let left = self.left(py)?;
        read_bytes(py, left, |buffer| {
            self.run(py, |file_system, handle| {
                let mut done = 0;
                while done < buffer.len() {
                    let end = buffer.len().min(done + READ_MAX);
                    match file_system.read(handle, &mut buffer[done..end], None)? {
                        0 => break,
                        read => done += read,
                    }
                }
                Ok(done)
            })
        })
    }

    /// Writes at the position; gives how many bytes.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = Buffer::to_read(data)?;
        let bytes = buffer.bytes();
        self.run(py, |file_system, handle| {
            file_system.write(handle, bytes, None)
        })
    }

    /// Reads up to a number of bytes at a position.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        position: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let position = natural(position)?;
        let length = match length {
            0..=0xffff => length,
            _ => {
                let size = self.run(py, FileSystem::stat_handle)?.size;
                let left = usize::try_from(size.saturating_sub(position)).unwrap_or(usize::MAX);
                length.min(left)
            }
        };
        read_bytes(py, length, |buffer| {
            self.run(py, |file_system, handle| {
                file_system.read(handle, buffer, Some(position))
            })
        })
    }

    /// Fills a buffer from a position on; gives how many bytes.
    fn preadinto(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        position: i64,
    ) -> PyResult<usize> {
        let position = natural(position)?;
        let mut buffer = Buffer::to_fill(buffer)?;
        let bytes = buffer.bytes_to_fill();
        self.run(py, |file_system, handle| {
            file_system.read(handle, bytes, Some(position))
        })
    }

    /// Writes at a position; gives how many bytes.
    fn pwrite(&self, py: Python<'_>, data: &Bound<'_, PyAny>, position: i64) -> PyResult<usize> {
        let position = natural(position)?;
        let buffer = Buffer::to_read(data)?;
        let bytes = buffer.bytes();
        self.run(py, |file_system, handle| {
            file_system.write(handle, bytes, Some(position))
        })
    }

    /// Moves the position; gives it.
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        self.run(py, |file_system, handle| {
            file_system.seek(handle, offset, whence)
        })
    }

    /// Cuts or lengthens the file.
    fn truncate(&self, py: Python<'_>, size: i64) -> PyResult<()> {
        let size = natural(size)?;
        self.run(py, |file_system, handle| {
            file_system.truncate_handle(handle, size)
        })
    }

    /// What has been written is durable when this returns.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, FileSystem::sync)
    }

    /// As `os.stat_result` is made from.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let (attributes, device): (Attributes, u64) = self.run(py, |file_system, handle| {
            Ok((
                file_system.stat_handle(handle)?,
                file_system.pool_identity()[0],
            ))
        })?;
        attributes::status(py, &attributes, device)
    }

    /// Closes it. Does nothing the second time, nor with what a parent process has opened.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.let_go());
    }

    #[getter]
    fn closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire) || self.session.is_closed()
    }
}

impl OpenFile {
    /// Bytes from the position to the end.
    fn left(&self, py: Python<'_>) -> PyResult<usize> {
        let left = self.run(py, |file_system, handle| {
            let at = file_system.seek(handle, 0, libc::SEEK_CUR)?;
            Ok(file_system.stat_handle(handle)?.size.saturating_sub(at))
        })?;
        usize::try_from(left).map_err(|_| PyOverflowError::new_err("the file is too large"))
    }

    fn let_go(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) || self.of.has_ended() {
            return;
        }
        // Of a session that has been closed nothing is open.
        let _ = self.session.run_detached(|file_system| {
            file_system.close(self.handle);
            Ok::<(), Errno>(())
        });
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.let_go();
    }
}
