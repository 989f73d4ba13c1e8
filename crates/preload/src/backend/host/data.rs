//! Data: reading, writing, sizes, space; maps, which this has none of.

use super::*;

impl FileSystem {
    pub fn read(
        &self,
        handle: Handle,
        buffer: &mut [u8],
        position: Option<u64>,
    ) -> Result<usize, Errno> {
        if self.root == NULL {
            return Ok(buffer.len());
        }
        let file = self.file(handle)?;
        // SAFETY: the buffer.
        check(unsafe {
            match position {
                None => syscall!(libc::SYS_read, file, buffer.as_mut_ptr(), buffer.len()),
                Some(p) => syscall!(
                    libc::SYS_pread64,
                    file,
                    buffer.as_mut_ptr(),
                    buffer.len(),
                    p
                ),
            }
        })
        .map(|n| n as usize)
    }
    pub fn write(
        &self,
        handle: Handle,
        buffer: &[u8],
        position: Option<u64>,
    ) -> Result<usize, Errno> {
        if self.root == NULL {
            return Ok(buffer.len());
        }
        let file = self.file(handle)?;
        // SAFETY: the buffer.
        check(unsafe {
            match position {
                None => syscall!(libc::SYS_write, file, buffer.as_ptr(), buffer.len()),
                Some(p) => syscall!(libc::SYS_pwrite64, file, buffer.as_ptr(), buffer.len(), p),
            }
        })
        .map(|n| n as usize)
    }
    pub fn write_as(
        &self,
        handle: Handle,
        buffer: &[u8],
        position: Option<u64>,
        append: Option<bool>,
    ) -> Result<usize, Errno> {
        let Some(append) = append else {
            return self.write(handle, buffer, position);
        };
        let part = libc::iovec {
            iov_base: buffer.as_ptr().cast_mut().cast(),
            iov_len: buffer.len(),
        };
        let flags = if append {
            libc::RWF_APPEND
        } else {
            libc::RWF_NOAPPEND
        };
        let at = position.unwrap_or(u64::MAX);
        let file = self.file(handle)?;
        // SAFETY: a vector of one, and its buffer.
        check(unsafe { syscall!(libc::SYS_pwritev2, file, &raw const part, 1, at, 0, flags) })
            .map(|n| n as usize)
    }
    pub fn read_vector<'b>(
        &self,
        handle: Handle,
        buffers: impl IntoIterator<Item = &'b mut [u8]>,
        position: Option<u64>,
    ) -> Result<usize, Errno> {
        let parts = buffers
            .into_iter()
            .map(|part| (part.as_mut_ptr(), part.len()));
        self.vector(handle, parts, position, 0, libc::SYS_preadv2)
    }
    pub fn write_vector<'b>(
        &self,
        handle: Handle,
        buffers: impl IntoIterator<Item = &'b [u8]>,
        position: Option<u64>,
        append: Option<bool>,
    ) -> Result<usize, Errno> {
        let parts = buffers
            .into_iter()
            .map(|part| (part.as_ptr().cast_mut(), part.len()));
        let flags = match append {
            None => 0,
            Some(true) => libc::RWF_APPEND,
            Some(false) => libc::RWF_NOAPPEND,
        };
        self.vector(handle, parts, position, flags, libc::SYS_pwritev2)
    }
    fn vector(
        &self,
        handle: Handle,
        parts: impl Iterator<Item = (*mut u8, usize)>,
        position: Option<u64>,
        flags: i32,
        call: i64,
    ) -> Result<usize, Errno> {
        let vector: Vec<libc::iovec> = parts
            .map(|(base, length)| libc::iovec {
                iov_base: base.cast(),
                iov_len: length,
            })
            .collect();
        if self.root == NULL {
            return Ok(vector.iter().map(|part| part.iov_len).sum());
        }
        let at = position.unwrap_or(u64::MAX);
        let file = self.file(handle)?;
        // SAFETY: a vector, and its buffers.
        check(unsafe { syscall!(call, file, vector.as_ptr(), vector.len(), at, 0, flags) })
            .map(|n| n as usize)
    }
    pub fn seek(&self, handle: Handle, offset: i64, whence: i32) -> Result<u64, Errno> {
        if self.root == NULL {
            return Ok(0);
        }
        // SAFETY: integers.
        check(unsafe { syscall!(libc::SYS_lseek, self.file(handle)?, offset, whence) })
            .map(|n| n as u64)
    }
    pub fn truncate_handle(&self, handle: Handle, size: u64) -> Result<(), Errno> {
        // SAFETY: integers.
        check(unsafe { syscall!(libc::SYS_ftruncate, self.file(handle)?, size) }).map(drop)
    }
    pub fn truncate(&self, at: At, path: &[u8], size: u64) -> Result<(), Failure> {
        let handle = self.open(at, path, libc::O_WRONLY, 0)?;
        let result = self.truncate_handle(handle, size);
        self.close(handle);
        Ok(result?)
    }
    pub fn allocate(
        &self,
        handle: Handle,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<(), Errno> {
        // SAFETY: integers.
        check(unsafe {
            syscall!(
                libc::SYS_fallocate,
                self.file(handle)?,
                mode,
                offset,
                length
            )
        })
        .map(drop)
    }
    pub unsafe fn map(&self, handle: Handle, request: &MapRequest) -> Result<usize, Errno> {
        // SAFETY: the program's own choice of addresses.
        check(unsafe {
            syscall!(
                libc::SYS_mmap,
                request.address,
                request.length,
                request.protection,
                request.flags,
                self.file(handle)?,
                request.offset
            )
        })
        .map(|address| address as usize)
    }
    /// The kernel knows all of these maps, so none of the following is ever asked for.
    pub unsafe fn unmap(&self, _address: usize, _length: usize) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }
    pub unsafe fn protect(
        &self,
        _address: usize,
        _length: usize,
        _protection: i32,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }
    pub unsafe fn sync_maps(
        &self,
        _address: usize,
        _length: usize,
        _flags: i32,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }
    pub unsafe fn move_map(&self, _request: &MoveRequest) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }
    pub fn forget_maps(&self, _address: usize, _length: usize) {}
    pub fn hand_over_maps(&self) {}
    pub fn sync(&self, handle: Handle) -> Result<(), Errno> {
        self.file(handle).map(drop)
    }
}
