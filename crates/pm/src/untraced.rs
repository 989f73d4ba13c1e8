//! Guarded stores as they are, whether they are recorded or not: [`crate::copy`] makes them, and
//! [`crate::record`] does so for what it has noted.

use crate::error::Fault;
use crate::lines::{Parts, Stores};
use crate::{control, guarded};

/// # Safety
/// As [`crate::copy::guarded_store`].
pub(crate) unsafe fn guarded_store_untraced(
    destination: *mut u8,
    source: *const u8,
    len: usize,
    stores: Stores,
) -> Result<(), Fault> {
    let control = control::load();
    if stores == Stores::Cached || !control.flushes() {
        // SAFETY: as this function's contract says.
        return unsafe { guarded::guarded_copy(destination, source, len) };
    }
    let parts = Parts::of(destination as usize, len);
    let done = parts.head + parts.lines;
    // SAFETY: the three parts make up the range of the contract; the middle starts and
    // ends on a line. The flushes are guarded too, because the file may be
    // truncated between a copy and its flush.
    unsafe {
        guarded::guarded_copy(destination, source, parts.head)?;
        guarded::guarded_flush(destination, parts.head)?;
        guarded::guarded_stream_lines(
            destination.add(parts.head),
            source.add(parts.head),
            parts.lines,
        )
        .map_err(|fault| Fault {
            copied: parts.head + fault.copied,
            ..fault
        })?;
        guarded::guarded_copy(destination.add(done), source.add(done), parts.tail).map_err(
            |fault| Fault {
                copied: done + fault.copied,
                ..fault
            },
        )?;
        guarded::guarded_flush(destination.add(done), parts.tail).map_err(|fault| Fault {
            copied: done,
            ..fault
        })?;
    }
    Ok(())
}
