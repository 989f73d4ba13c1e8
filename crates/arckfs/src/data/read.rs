//! Reading file data.
//!
//! # Invariants
//! * Owned inodes are read under their lock, or that of the bytes, the delta's entries before the verified ones.
//! * Inodes that nobody owns are read without a lock and without writing anything shared; what
//!   was read counts only if the header's sequence did not move (KucoFS's versioned read).
//! * Bytes beyond the size are never given out, whatever stands in the last page.
//! * The buffer is the program's: it is written by guarded copies alone, and what cannot be
//!   written cuts the read short, or is EFAULT at its first byte.

use super::Data;
use crate::interface::Errno;
use arck_libfs_kit::engine::Attempt;
use arck_libfs_kit::format::PAGE_SIZE;
use arck_libfs_kit::memory::delegation;
use arck_libfs_kit::memory::guarded::{guarded_copy, guarded_zero};
use arck_libfs_kit::memory::medium::Way;
use arck_libfs_kit::memory::{Error, SharedBytes};
use arck_libfs_kit::views::File;
use std::sync::atomic::Ordering;

fn byte_at(bytes: &SharedBytes<'_>, at: usize) -> Result<u8, Errno> {
    let mut byte = [0];
    bytes
        .try_copy_to(at, &mut byte)
        .map_err(|error| error.errno())?;
    Ok(byte[0])
}

/// After a copy to `target` that failed: how many bytes can be there, and are. The error if it was
/// not the buffer's fault.
#[cold]
#[inline(never)]
fn bad_buffer(
    error: Error,
    target: &mut [u8],
    byte: impl Fn(usize) -> Result<u8, Errno>,
) -> Result<usize, Errno> {
    let Error::BadAddress(fault) = error else {
        return Err(error.errno());
    };
    // The copy told where its last step began; the rest of that step byte by byte.
    let mut done = fault.copied;
    while done < target.len() {
        let one = byte(done)?;
        // SAFETY: a slice's memory, which nobody else uses.
        if unsafe { guarded_copy(target[done..].as_mut_ptr(), &one, 1) }.is_err() {
            break;
        }
        done += 1;
    }
    Ok(done)
}

impl Data<'_> {
    /// Reads at `position`; `inode` is an up-to-date view. Short at the end of the file, and where
    /// the buffer ends that can be written. EIO if a page's backing is gone; EFAULT.
    pub fn read_at(&self, file: File, buffer: &mut [u8], position: u64) -> Attempt<usize> {
        let seen = self.seen(&file);
        let owned = self.owns(&file);
        let length = buffer.len().max(1) as u64;
        let _locked = owned.then(|| self.lock_to_read(file.inode(), position, length));
        self.heed_exclusive(&file)?;
        let read = self.read_as_it_is(file, buffer, position);
        // Not even a failure counts if it was found in a mixture of states.
        self.unmoved_since(&file, seen)?;
        read
    }

    #[inline(always)]
    fn read_as_it_is(&self, file: File, buffer: &mut [u8], position: u64) -> Attempt<usize> {
        let size = file.size.load(Ordering::Acquire);
        if position >= size {
            return Ok(0);
        }
        let length = usize::try_from(size - position)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        if delegation::is_wanted(Way::Read, length)
            && self.read_delegated(file, &mut buffer[..length], position)?
        {
            return Ok(length);
        }
        let mut done = 0;
        while done < length {
            let at = position + done as u64;
            let within = (at % PAGE_SIZE) as usize;
            let part = (PAGE_SIZE as usize - within).min(length - done);
            let target = &mut buffer[done..done + part];
            let page = self.data_page(file, at / PAGE_SIZE)?;
            let copied = if page.is_null() {
                // SAFETY: a slice's memory, which nobody else uses.
                unsafe { guarded_zero(target.as_mut_ptr(), part) }.map_err(Error::BadAddress)
            } else {
                let Some(bytes) = self.session.page_bytes(page) else {
                    return Err(self.lost(&file));
                };
                bytes.try_copy_to(within, target)
            };
            if let Err(error) = copied {
                done += bad_buffer(error, target, |at| {
                    if page.is_null() {
                        return Ok(0);
                    }
                    let bytes = self.session.page_bytes(page).ok_or(Errno::IO)?;
                    byte_at(&bytes, within + at)
                })?;
                if done == 0 {
                    return Err(Errno::FAULT.into());
                }
                return Ok(done);
            }
            done += part;
        }
        Ok(length)
    }

    /// The same of all of the buffer, by the threads of its nodes. False: not all of it was, and it is to be read by itself.
    #[cold]
    fn read_delegated(&self, file: File, buffer: &mut [u8], position: u64) -> Attempt<bool> {
        let Some(mut batch) = delegation::batch() else {
            return Ok(false);
        };
        let mut done = 0;
        while done < buffer.len() {
            let at = position + done as u64;
            let within = (at % PAGE_SIZE) as usize;
            let part = (PAGE_SIZE as usize - within).min(buffer.len() - done);
            let target = &mut buffer[done..done + part];
            let page = self.data_page(file, at / PAGE_SIZE)?;
            if page.is_null() {
                // SAFETY: a slice's memory, which nobody else uses.
                if unsafe { guarded_zero(target.as_mut_ptr(), part) }.is_err() {
                    return Ok(false);
                }
            } else {
                let Some(bytes) = self.session.page_bytes(page) else {
                    return Ok(false);
                };
                // SAFETY: the batch is waited for, or dropped, before this returns, and nobody else uses the buffer until then.
                if unsafe { batch.copy_out(&bytes, within, target) }.is_none() {
                    return Ok(false);
                }
            }
            done += part;
        }
        Ok(batch.wait().is_ok())
    }
}
