//! Files of the pool as memory files, which the kernel executes and maps.

use crate::backend::{Failure, FileSystem, Handle};
use crate::raw::{self, error, syscall};

/// A memory file, close-on-exec, with the contents of an open file; or minus an error number.
///
/// # Errors
/// Reading fails.
pub fn copy_to_memory(fs: &FileSystem, handle: Handle) -> Result<isize, Failure> {
    // SAFETY: constant name; the buffer is valid for what is written.
    unsafe {
        let file = syscall!(
            libc::SYS_memfd_create,
            c"arck-program".as_ptr(),
            libc::MFD_CLOEXEC
        );
        if raw::failed(file) {
            return Ok(file);
        }
        let mut buffer = vec![0u8; 128 * 1024];
        let mut offset = 0;
        loop {
            let n = match fs.read(handle, &mut buffer, Some(offset)) {
                Ok(n) => n,
                Err(errno) => {
                    raw::close(file);
                    return Err(Failure::Errno(errno));
                }
            };
            if n == 0 {
                return Ok(file);
            }
            let mut written = 0;
            while written < n {
                // Where it is more than files of the process may be, that is what it is told: it has
                // written nothing that it could be ended for.
                let result = raw::write_unsignalled(file as usize, &buffer[written..n]);
                if result <= 0 {
                    raw::close(file);
                    return Ok(match result == error(libc::EFBIG) {
                        true => result,
                        false => error(libc::ENOMEM),
                    });
                }
                written += result as usize;
            }
            offset += n as u64;
        }
    }
}
