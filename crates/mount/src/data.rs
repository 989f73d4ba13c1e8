//! Contents: what is read and written goes through no cache of the kernel's but that of maps.

use crate::errno;
use crate::nodes::Node;
use crate::open::Open;
use arckfs::{Errno, FileSystem, Handle};
use std::cell::RefCell;

/// Most bytes of one request.
pub const REQUEST_MAX: usize = 1 << 20;

/// Flags of an open that are of the description. The kernel keeps the others: how a file is found and made, and that
/// it is read for execution.
const KEPT: i32 = libc::O_ACCMODE | libc::O_APPEND | libc::O_NOATIME | libc::O_SYNC | libc::O_DSYNC;

thread_local! {
    /// What a thread reads into.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Opens a file, or (with O_DIRECTORY) a directory, that the kernel has found. ESTALE: it is gone.
pub fn open(fs: &FileSystem, node: Node, flags: i32) -> Result<Handle, Errno> {
    let flags = flags & (KEPT | libc::O_TRUNC | libc::O_DIRECTORY);
    let opened = fs.open(node.at(), b"", flags, 0);
    opened.map_err(|failure| node.lost(failure))
}

/// Makes a file and opens it; with O_EXCL only if it is not there: EEXIST.
pub fn create(
    fs: &FileSystem,
    directory: Node,
    name: &[u8],
    flags: i32,
    mode: u32,
) -> Result<Handle, Errno> {
    let kept = flags & (KEPT | libc::O_TRUNC | libc::O_EXCL);
    // A link that has come there meanwhile is the kernel's to follow.
    let flags = kept | libc::O_CREAT | libc::O_NOFOLLOW;
    match fs.open(directory.at(), name, flags, mode & 0o7777) {
        Ok(handle) => Ok(handle),
        Err(failure) => match errno(failure) {
            Errno::LOOP => Err(Errno::STALE),
            errno => Err(errno),
        },
    }
}

/// Reads, and hands on what was read.
pub fn read<T>(
    open: &Open,
    offset: u64,
    size: usize,
    then: impl FnOnce(Result<&[u8], Errno>) -> T,
) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        let size = size.min(REQUEST_MAX);
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        let read = open
            .enter()
            .and_then(|(fs, handle)| fs.read(handle, &mut buffer[..size], Some(offset)));
        // Not inside any more.
        then(read.map(|length| &buffer[..length]))
    })
}

/// Copies from one open file to another, as much as can be; how much that is.
pub fn copy(from: &Open, at: u64, to: &Open, to_at: u64, length: u64) -> Result<u64, Errno> {
    let mut done = 0;
    while done < length {
        let size = usize::try_from(length - done)
            .unwrap_or(REQUEST_MAX)
            .min(REQUEST_MAX);
        let step = read(from, at + done, size, |read| {
            let read = read?;
            if read.is_empty() {
                return Ok(0);
            }
            let (fs, handle) = to.enter()?;
            fs.write_as(handle, read, Some(to_at + done), Some(false))
        });
        match step {
            Ok(0) => break,
            Ok(step) => done += step as u64,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}
