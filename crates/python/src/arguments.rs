//! Paths, buffers and times that Python passes.
//!
//! # Invariants
//! * The memory of a buffer stays where it is as long as it is held: Python refuses to resize or free it.
//! * Arck moves a buffer's bytes by the routines that it moves those of unmodified programs by, which take any
//!   bytes for what they are: what another thread of Python changes meanwhile may come out mixed, and does no harm.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

/// A wait that has no end has this one.
pub const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// Seconds, as Python gives them.
pub fn seconds(number: f64, what: &str) -> PyResult<Duration> {
    let duration = Duration::try_from_secs_f64(number)
        .map_err(|_| PyValueError::new_err(format!("{what} is a number of seconds")))?;
    Ok(duration.min(FOR_EVER))
}

/// A path: `str`, `bytes`, or what has `__fspath__`.
pub struct PathArgument {
    /// As it was given.
    pub given: Vec<u8>,
    /// Bytes of that before the path from the pool's root begins.
    slashes: usize,
}

impl PathArgument {
    fn new(given: Vec<u8>) -> PyResult<PathArgument> {
        if given.contains(&0) {
            return Err(PyValueError::new_err("embedded null byte"));
        }
        let slashes = given.iter().take_while(|&&byte| byte == b'/').count();
        Ok(PathArgument { given, slashes })
    }

    /// From the pool's root. Only what was given as no bytes at all leads nowhere.
    pub fn inside(&self) -> Result<&[u8], arckfs::Errno> {
        match self.given.is_empty() {
            true => Err(arckfs::Errno::NOENT),
            false => Ok(&self.given[self.slashes..]),
        }
    }
}

/// The bytes of a `str` or `bytes`, if it is one.
fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Some(text.extract::<OsString>()?.into_vec()));
    }
    let bytes = object.cast::<PyBytes>().ok();
    Ok(bytes.map(|bytes| bytes.as_bytes().to_vec()))
}

impl<'py> FromPyObject<'_, 'py> for PathArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<PathArgument> {
        if let Some(bytes) = bytes_of(&object)? {
            return PathArgument::new(bytes);
        }
        let wrong = || {
            let kind = object.get_type().name().map(|name| name.to_string());
            let kind = kind.unwrap_or_default();
            PyTypeError::new_err(format!("a path is str, bytes or os.PathLike, not {kind}"))
        };
        let told = object.getattr(pyo3::intern!(object.py(), "__fspath__"));
        let path = told.map_err(|_| wrong())?.call0()?;
        PathArgument::new(bytes_of(&path)?.ok_or_else(wrong)?)
    }
}

/// A buffer of Python's in one piece.
pub struct Buffer(PyBuffer<u8>);

impl Buffer {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let buffer = pyo3::buffer::PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("memory of one piece is needed"));
        }
        drop(buffer);
        // As bytes, whatever its items are.
        let view = pyo3::types::PyMemoryView::from(object)?;
        let bytes = view.call_method1(pyo3::intern!(object.py(), "cast"), ("B",))?;
        Ok(Buffer(PyBuffer::get(&bytes)?))
    }

    /// Of what is to be read from.
    pub fn to_read(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        Buffer::of(object)
    }

    /// Of what is to be written to.
    pub fn to_fill(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let buffer = Buffer::of(object)?;
        match buffer.0.readonly() {
            true => Err(PyTypeError::new_err(
                "a writable bytes-like object is needed",
            )),
            false => Ok(buffer),
        }
    }

    pub fn length(&self) -> usize {
        self.0.len_bytes()
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        if self.length() == 0 {
            return &[];
        }
        // SAFETY: that many bytes in one piece, which stay there as long as this is borrowed. Other threads may
        // write them meanwhile: see the module's head.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.length()) }
    }

    /// Its bytes, of what is to be written to.
    pub fn bytes_to_fill(&mut self) -> &mut [u8] {
        if self.length() == 0 || self.0.readonly() {
            return &mut [];
        }
        // SAFETY: as above, and Python lets them be written.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.length()) }
    }
}
