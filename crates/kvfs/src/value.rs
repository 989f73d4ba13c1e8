//! Reading a value, without a lock.
//!
//! Invariant: what was read counts only if the file has not moved or ended meanwhile: its pages may be
//! another's.

use arck_libfs_kit::engine::{Attempt, Context, Need};
use arck_libfs_kit::format::PAGE_SIZE;
use arck_libfs_kit::views::CachedInode;
use rustix::io::Errno;
use std::sync::atomic::{Ordering, fence};

/// Bytes of the longest value.
pub const VALUE_MAX: usize = 8 * PAGE_SIZE as usize;

/// Reads the value of a file, whose view is up to date; gives its length. EFBIG.
pub(crate) fn read(
    context: &Context<'_>,
    inode: &'static CachedInode,
    value: &mut [u8; VALUE_MAX],
) -> Attempt<usize> {
    let seen = context.seen(inode);
    let read = read_as_it_is(context, inode, value);
    // Not even a failure counts if it was found in a mixture of states, or of files.
    fence(Ordering::Acquire);
    context.unmoved_since(inode, seen)?;
    match context.seen(inode) == seen {
        true => read,
        false => Err(Need::Again.into()),
    }
}

fn read_as_it_is(
    context: &Context<'_>,
    inode: &'static CachedInode,
    value: &mut [u8; VALUE_MAX],
) -> Attempt<usize> {
    let size = inode.size.load(Ordering::Acquire);
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let parts = value.get_mut(..size).ok_or(Errno::FBIG)?;
    for (page, part) in (0..).zip(parts.chunks_mut(PAGE_SIZE as usize)) {
        let page = context.data_page(inode, page)?;
        if page.is_null() {
            part.fill(0);
            continue;
        }
        let Some(bytes) = context.session.page_bytes(page) else {
            return Err(context.lost(inode));
        };
        bytes.try_copy_to(0, part).map_err(|error| error.errno())?;
    }
    Ok(size)
}
