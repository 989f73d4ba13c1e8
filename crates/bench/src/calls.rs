//! The calls that are measured, behind one trait: libc's (for tmpfs, and for ArckFS under the
//! preload library) and ArckFS's Rust API.
//!
//! Invariant: an implementation adds nothing to the call but the check of its result; paths are
//! made beforehand by [`Calls::path`].

use crate::outcome::Outcome;
use arckfs::{At, Failure, FileSystem, Handle};
use std::ffi::{CStr, CString};

/// Calls on one file system.
pub trait Calls {
    type File: Copy;

    /// The path of a file below the place that is measured.
    fn path(&self, relative: &str) -> CString;
    fn open(&self, path: &CStr, flags: i32) -> Outcome<Self::File>;
    fn close(&self, file: Self::File);
    fn stat(&self, path: &CStr) -> Outcome<()>;
    fn unlink(&self, path: &CStr) -> Outcome<()>;
    fn rename(&self, from: &CStr, to: &CStr) -> Outcome<()>;
    fn make_directory(&self, path: &CStr) -> Outcome<()>;
    fn remove_directory(&self, path: &CStr) -> Outcome<()>;
    /// Entries of a directory, `.` and `..` included.
    fn list(&self, path: &CStr) -> Outcome<u64>;
    /// Reads a whole buffer at a position.
    fn read(&self, file: Self::File, buffer: &mut [u8], position: u64) -> Outcome<()>;
    /// Writes a whole buffer at a position.
    fn write(&self, file: Self::File, data: &[u8], position: u64) -> Outcome<()>;
    /// Writes a whole buffer at the file's offset.
    fn append(&self, file: Self::File, data: &[u8]) -> Outcome<()>;
    /// Reads what there is at a position, at most a buffer; 0 at the end.
    fn read_some(&self, file: Self::File, buffer: &mut [u8], position: u64) -> Outcome<usize>;
    /// Gives a file another size.
    fn truncate(&self, file: Self::File, size: u64) -> Outcome<()>;
    /// Makes what was written durable.
    fn sync(&self, file: Self::File) -> Outcome<()>;
}

/// libc's calls below a directory.
pub struct LibcCalls {
    pub base: String,
}

#[cold]
fn failed(call: &str, path: &CStr) -> String {
    let error = std::io::Error::last_os_error();
    format!("{call} {}: {error}", path.to_string_lossy())
}

fn zero(result: i32, call: &str, path: &CStr) -> Outcome<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(failed(call, path))
    }
}

fn whole(result: isize, length: usize, call: &str) -> Outcome<()> {
    if usize::try_from(result) == Ok(length) {
        Ok(())
    } else {
        Err(format!(
            "{call}: {result} of {length} bytes: {}",
            std::io::Error::last_os_error()
        ))
    }
}

impl Calls for LibcCalls {
    type File = i32;

    fn path(&self, relative: &str) -> CString {
        CString::new(format!("{}/{relative}", self.base)).unwrap_or_default()
    }
    #[inline]
    fn open(&self, path: &CStr, flags: i32) -> Outcome<i32> {
        // SAFETY: a C string, and a mode for O_CREAT.
        let descriptor = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o644) };
        if descriptor < 0 {
            return Err(failed("open", path));
        }
        Ok(descriptor)
    }
    #[inline]
    fn close(&self, file: i32) {
        // SAFETY: closes what `open` gave; the workload closes each once.
        unsafe { libc::close(file) };
    }
    #[inline]
    fn stat(&self, path: &CStr) -> Outcome<()> {
        let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: a C string and memory for the answer.
        let result = unsafe { libc::stat(path.as_ptr(), status.as_mut_ptr()) };
        std::hint::black_box(&status);
        zero(result, "stat", path)
    }
    #[inline]
    fn unlink(&self, path: &CStr) -> Outcome<()> {
        // SAFETY: a C string.
        zero(unsafe { libc::unlink(path.as_ptr()) }, "unlink", path)
    }
    #[inline]
    fn rename(&self, from: &CStr, to: &CStr) -> Outcome<()> {
        // SAFETY: two C strings.
        let result = unsafe { libc::rename(from.as_ptr(), to.as_ptr()) };
        zero(result, "rename", from)
    }
    #[inline]
    fn make_directory(&self, path: &CStr) -> Outcome<()> {
        // SAFETY: a C string.
        zero(unsafe { libc::mkdir(path.as_ptr(), 0o755) }, "mkdir", path)
    }
    #[inline]
    fn remove_directory(&self, path: &CStr) -> Outcome<()> {
        // SAFETY: a C string.
        zero(unsafe { libc::rmdir(path.as_ptr()) }, "rmdir", path)
    }
    fn list(&self, path: &CStr) -> Outcome<u64> {
        // SAFETY: a C string; the stream is closed below and not used after.
        unsafe {
            let stream = libc::opendir(path.as_ptr());
            if stream.is_null() {
                return Err(failed("opendir", path));
            }
            let mut count = 0;
            while !libc::readdir(stream).is_null() {
                count += 1;
            }
            libc::closedir(stream);
            Ok(count)
        }
    }
    #[inline]
    fn read(&self, file: i32, buffer: &mut [u8], position: u64) -> Outcome<()> {
        let length = buffer.len();
        // SAFETY: the buffer is writable and of that length.
        let done = unsafe {
            libc::pread(
                file,
                buffer.as_mut_ptr().cast(),
                length,
                position as libc::off_t,
            )
        };
        whole(done, length, "pread")
    }
    #[inline]
    fn write(&self, file: i32, data: &[u8], position: u64) -> Outcome<()> {
        // SAFETY: the buffer is readable and of that length.
        let done = unsafe {
            libc::pwrite(
                file,
                data.as_ptr().cast(),
                data.len(),
                position as libc::off_t,
            )
        };
        whole(done, data.len(), "pwrite")
    }
    #[inline]
    fn append(&self, file: i32, data: &[u8]) -> Outcome<()> {
        // SAFETY: the buffer is readable and of that length.
        let done = unsafe { libc::write(file, data.as_ptr().cast(), data.len()) };
        whole(done, data.len(), "write")
    }
    #[inline]
    fn read_some(&self, file: i32, buffer: &mut [u8], position: u64) -> Outcome<usize> {
        let (start, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the buffer is writable and of that length.
        let done = unsafe { libc::pread(file, start, length, position as libc::off_t) };
        usize::try_from(done).map_err(|_| failed("pread", c""))
    }
    #[inline]
    fn truncate(&self, file: i32, size: u64) -> Outcome<()> {
        // SAFETY: numbers only.
        let result = unsafe { libc::ftruncate(file, size as libc::off_t) };
        zero(result, "ftruncate", c"")
    }
    #[inline]
    fn sync(&self, file: i32) -> Outcome<()> {
        // SAFETY: a number only.
        zero(unsafe { libc::fsync(file) }, "fsync", c"")
    }
}

/// ArckFS's Rust API; paths are relative to the root of the pool.
pub struct DirectCalls {
    pub file_system: FileSystem,
}

#[cold]
fn refused(call: &str, path: &CStr, failure: &Failure) -> String {
    format!("{call} {}: {failure:?}", path.to_string_lossy())
}

impl Calls for DirectCalls {
    type File = Handle;

    fn path(&self, relative: &str) -> CString {
        CString::new(relative).unwrap_or_default()
    }
    #[inline]
    fn open(&self, path: &CStr, flags: i32) -> Outcome<Handle> {
        self.file_system
            .open(At::Root, path.to_bytes(), flags, 0o644)
            .map_err(|failure| refused("open", path, &failure))
    }
    #[inline]
    fn close(&self, file: Handle) {
        self.file_system.close(file);
    }
    #[inline]
    fn stat(&self, path: &CStr) -> Outcome<()> {
        self.file_system
            .stat(At::Root, path.to_bytes(), 0)
            .map(|attributes| {
                std::hint::black_box(&attributes);
            })
            .map_err(|failure| refused("stat", path, &failure))
    }
    #[inline]
    fn unlink(&self, path: &CStr) -> Outcome<()> {
        self.file_system
            .unlink(At::Root, path.to_bytes(), 0)
            .map_err(|failure| refused("unlink", path, &failure))
    }
    #[inline]
    fn rename(&self, from: &CStr, to: &CStr) -> Outcome<()> {
        self.file_system
            .rename(At::Root, from.to_bytes(), At::Root, to.to_bytes(), 0)
            .map_err(|failure| refused("rename", from, &failure))
    }
    #[inline]
    fn make_directory(&self, path: &CStr) -> Outcome<()> {
        self.file_system
            .make_directory(At::Root, path.to_bytes(), 0o755)
            .map_err(|failure| refused("mkdir", path, &failure))
    }
    #[inline]
    fn remove_directory(&self, path: &CStr) -> Outcome<()> {
        self.file_system
            .unlink(At::Root, path.to_bytes(), libc::AT_REMOVEDIR)
            .map_err(|failure| refused("rmdir", path, &failure))
    }
    fn list(&self, path: &CStr) -> Outcome<u64> {
        let directory = self.open(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
        // As much as libc asks for at once.
        let mut buffer = [0u8; 1 << 15];
        let mut count = 0;
        loop {
            let used = self
                .file_system
                .read_directory(directory, &mut buffer)
                .map_err(|errno| refused("readdir", path, &errno.into()))?;
            if used == 0 {
                break;
            }
            let mut at = 0;
            while at < used {
                at += usize::from(u16::from_ne_bytes([buffer[at + 16], buffer[at + 17]]));
                count += 1;
            }
        }
        self.close(directory);
        Ok(count)
    }
    #[inline]
    fn read(&self, file: Handle, buffer: &mut [u8], position: u64) -> Outcome<()> {
        match self.file_system.read(file, buffer, Some(position)) {
            Ok(length) if length == buffer.len() => Ok(()),
            other => Err(format!("read: {other:?}")),
        }
    }
    #[inline]
    fn write(&self, file: Handle, data: &[u8], position: u64) -> Outcome<()> {
        match self.file_system.write(file, data, Some(position)) {
            Ok(length) if length == data.len() => Ok(()),
            other => Err(format!("write: {other:?}")),
        }
    }
    #[inline]
    fn append(&self, file: Handle, data: &[u8]) -> Outcome<()> {
        match self.file_system.write(file, data, None) {
            Ok(length) if length == data.len() => Ok(()),
            other => Err(format!("append: {other:?}")),
        }
    }
    #[inline]
    fn read_some(&self, file: Handle, buffer: &mut [u8], position: u64) -> Outcome<usize> {
        let read = self.file_system.read(file, buffer, Some(position));
        read.map_err(|errno| format!("read: {errno}"))
    }
    #[inline]
    fn truncate(&self, file: Handle, size: u64) -> Outcome<()> {
        let truncated = self.file_system.truncate_handle(file, size);
        truncated.map_err(|errno| format!("truncate: {errno}"))
    }
    #[inline]
    fn sync(&self, file: Handle) -> Outcome<()> {
        let synced = self.file_system.sync(file);
        synced.map_err(|errno| format!("sync: {errno}"))
    }
}
