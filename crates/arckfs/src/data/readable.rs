//! How much of a program's buffer is there.
//!
//! Invariant: nothing of it is believed later: another thread may unmap it meanwhile.

use arck_libfs_kit::format::PAGE_SIZE;
use arck_libfs_kit::memory::guarded::guarded_copy;

/// How many bytes of a program's buffer can be read, up to the first that cannot.
#[cold]
#[inline(never)]
pub fn length(buffer: &[u8]) -> usize {
    let mut byte = 0u8;
    let mut length = 0;
    while length < buffer.len() {
        // SAFETY: a byte of our own, and one of a slice.
        let read = unsafe { guarded_copy(&raw mut byte, buffer[length..].as_ptr(), 1) };
        if read.is_err() {
            break;
        }
        // On to the next page.
        let next = (buffer.as_ptr() as usize + length + 1).next_multiple_of(PAGE_SIZE as usize);
        length = next - buffer.as_ptr() as usize;
    }
    length.min(buffer.len())
}
