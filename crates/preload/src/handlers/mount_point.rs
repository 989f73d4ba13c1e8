//! The place where the pool is seen, in listings of the host's directory that it is in: behind the
//! names `.` and `..`, with which every listing begins.
//!
//! # Invariants
//! * It stands in a listing once, whatever the room for each call, and has no offset of its own: who
//!   begins a listing at the one behind it does not find it.
//! * Where the host has something of that name, the kernel tells it.

use crate::backend::minus;
use crate::raw::{failed, syscall};
use crate::settings::{self, PATH_MAX};
use crate::{memory, thread};
use std::sync::OnceLock;

/// Bytes of a `struct linux_dirent64` before the name: inode number, offset, length, kind.
const NAME: usize = 19;
const LENGTH: usize = 16;
/// Bytes of the record of `.`, and of that of `..`.
const DOTS: usize = 24;
const NAME_MAX: usize = 255;
/// Any number but 0: what is there is another file system's.
const INODE: u64 = 1;

fn status(directory: usize, path: *const u8, flags: i32) -> Option<(u64, u64)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a NUL-terminated path, and a structure that the kernel fills.
    unsafe {
        let result = syscall!(
            libc::SYS_newfstatat,
            directory,
            path,
            stat.as_mut_ptr(),
            flags
        );
        if failed(result) {
            return None;
        }
        let stat = stat.assume_init();
        Some((stat.st_dev, stat.st_ino))
    }
}

/// The path with its NUL; an empty one is the root's.
fn terminated(path: &[u8]) -> Option<[u8; PATH_MAX]> {
    let path = if path.is_empty() { b"/" } else { path };
    let mut bytes = [0; PATH_MAX];
    bytes.get_mut(..path.len())?.copy_from_slice(path);
    (path.len() < PATH_MAX).then_some(bytes)
}

/// What `getdents64` on one of the kernel's directories tells, where the kernel told `result`: in
/// the directory that the pool is in, one record more.
///
/// # Safety
/// `buffer` is the program's, of `size` bytes.
#[inline(always)]
pub unsafe fn listed(directory: usize, buffer: usize, size: usize, result: isize) -> isize {
    if result < DOTS as isize || thread::inside() || !settings::ready() {
        return result;
    }
    // SAFETY: the kernel has just written there; bytes.
    match unsafe { memory::copy_in::<[u8; DOTS]>(buffer) } {
        Ok(first) if first[NAME..].starts_with(b".\0") => {
            // SAFETY: the caller's promise.
            unsafe { at_beginning(directory, buffer, size) }.unwrap_or(result)
        }
        _ => result,
    }
}

/// The beginning of a listing once more, with the record; `None` if it is as it was.
#[cold]
unsafe fn at_beginning(directory: usize, buffer: usize, size: usize) -> Option<isize> {
    /// Device and inode number of the directory that the pool is in.
    static PARENT: OnceLock<Option<(u64, u64)>> = OnceLock::new();
    let mount = settings::MOUNT.get();
    let slash = mount.iter().rposition(|&byte| byte == b'/')?;
    let (parent, name) = (&mount[..slash], &mount[slash + 1..]);
    let here = libc::AT_FDCWD as isize as usize;
    let parent =
        *PARENT.get_or_init(|| terminated(parent).and_then(|path| status(here, path.as_ptr(), 0)));
    let listed = status(directory, c"".as_ptr().cast(), libc::AT_EMPTY_PATH);
    let length = (NAME + name.len() + 1).next_multiple_of(8);
    let begin = 2 * DOTS + length;
    if parent.is_none() || parent != listed || name.len() > NAME_MAX || size < begin {
        return None;
    }
    let path = terminated(mount)?;
    if status(here, path.as_ptr(), libc::AT_SYMLINK_NOFOLLOW).is_some() {
        return None;
    }
    let mut records = [0u8; 2 * DOTS + NAME + NAME_MAX + 8];
    let list = |address: usize, size: usize| {
        // SAFETY: memory of ours, or the program's.
        unsafe { syscall!(libc::SYS_getdents64, directory, address, size) }
    };
    let rewind = || {
        // SAFETY: no pointers.
        unsafe { syscall!(libc::SYS_lseek, directory, 0, libc::SEEK_SET) }
    };
    if failed(rewind()) {
        return None;
    }
    let dots = list(records.as_mut_ptr() as usize, 2 * DOTS);
    let is_both = dots == 2 * DOTS as isize && records[DOTS + NAME..].starts_with(b"..\0");
    if !is_both {
        // A directory of another kind: from the beginning, as it was.
        rewind();
        return Some(list(buffer, size));
    }
    let (before, record) = records.split_at_mut(2 * DOTS);
    record[..8].copy_from_slice(&INODE.to_ne_bytes());
    record[8..LENGTH].copy_from_slice(&before[DOTS + 8..DOTS + LENGTH]);
    record[LENGTH..LENGTH + 2].copy_from_slice(&(length as u16).to_ne_bytes());
    record[NAME - 1] = libc::DT_DIR;
    record[NAME..NAME + name.len()].copy_from_slice(name);
    if let Err(errno) = memory::copy_slice_out(buffer, &records[..begin]) {
        rewind();
        return Some(minus(errno));
    }
    // What is wrong with the rest is told when it is asked for.
    Some(begin as isize + list(buffer + begin, size - begin).max(0))
}
