//! The place where the pool is seen, in listings of the host's directory that it is in: in the same
//! part of a listing as the name `.`, which every directory has once, and somewhere.
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
/// Bytes of the shortest record.
const RECORD_MIN: usize = 24;
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
fn terminated(path: &[u8]) -> Option<Box<[u8; PATH_MAX]>> {
    let path = if path.is_empty() { b"/" } else { path };
    let mut bytes = crate::path::room();
    bytes.get_mut(..path.len())?.copy_from_slice(path);
    (path.len() < PATH_MAX).then_some(bytes)
}

/// Device and inode number of the directory that the pool is in.
static PARENT: OnceLock<Option<(u64, u64)>> = OnceLock::new();

/// What `getdents64` on one of the kernel's directories tells, where the kernel told `result`: in
/// the directory that the pool is in, one record more.
///
/// # Safety
/// `buffer` is the program's, of `size` bytes.
#[inline(always)]
pub unsafe fn listed(directory: usize, buffer: usize, size: usize, result: isize) -> isize {
    if result < RECORD_MIN as isize || thread::inside() || !settings::ready() {
        return result;
    }
    // SAFETY: the caller's promise.
    unsafe { with_place(directory, buffer, size, result as usize) }.unwrap_or(result)
}

/// The records with the one more, if this is where it belongs. What stands in the buffer is copied
/// before it is looked at, a record at a time, and nothing in it is trusted for more than where in the
/// buffer the next one is.
///
/// # Safety
/// `buffer` is the program's, of `size` bytes, of which the kernel has just written `filled`.
unsafe fn with_place(directory: usize, buffer: usize, size: usize, filled: usize) -> Option<isize> {
    let mount = settings::MOUNT.get();
    let slash = mount.iter().rposition(|&byte| byte == b'/')?;
    let (parent, name) = (&mount[..slash], &mount[slash + 1..]);
    let here = libc::AT_FDCWD as isize as usize;
    let parent =
        *PARENT.get_or_init(|| terminated(parent).and_then(|path| status(here, path.as_ptr(), 0)));
    let listed = status(directory, c"".as_ptr().cast(), libc::AT_EMPTY_PATH);
    if parent.is_none() || parent != listed || name.len() > NAME_MAX {
        return None;
    }
    let length = (NAME + name.len() + 1).next_multiple_of(8);
    let read = |at: usize| {
        // SAFETY: within what the kernel has just written, but for the end of the last record, or
        // behind it: a place that cannot be read is an error; bytes, of which any value is one.
        unsafe { memory::copy_in::<[u8; RECORD_MIN]>(buffer + at) }.ok()
    };
    let (last, takes_it) = find(read, filled, size, length)?;
    let path = terminated(mount)?;
    if status(here, path.as_ptr(), libc::AT_SYMLINK_NOFOLLOW).is_some() {
        return None;
    }
    if last.end < filled {
        let offset = i64::from_ne_bytes(last.offset) as usize;
        // SAFETY: no pointers.
        let moved = unsafe { syscall!(libc::SYS_lseek, directory, offset, libc::SEEK_SET) };
        if failed(moved) {
            return None;
        }
    }
    if !takes_it {
        return Some(last.end as isize);
    }
    let mut record = [0u8; NAME + NAME_MAX + 8];
    record[..8].copy_from_slice(&INODE.to_ne_bytes());
    record[8..LENGTH].copy_from_slice(&last.offset);
    record[LENGTH..LENGTH + 2].copy_from_slice(&(length as u16).to_ne_bytes());
    record[NAME - 1] = libc::DT_DIR;
    record[NAME..NAME + name.len()].copy_from_slice(name);
    match memory::copy_slice_out(buffer + last.end, &record[..length]) {
        Ok(()) => Some((last.end + length) as isize),
        Err(errno) => Some(minus(errno)),
    }
}

/// A record of a listing: where it ends in the buffer, and the position in the directory behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Last {
    end: usize,
    offset: [u8; 8],
}

/// Behind which record of those with `.` among them there is room for `length` bytes more, and
/// `true`; what comes behind it in the buffer is told by the next call. `false`: the records up to
/// there are to be told alone, since `.` would have to wait for that call too, and the place with it.
/// `None`: all as it is.
fn find(
    read: impl Fn(usize) -> Option<[u8; RECORD_MIN]>,
    filled: usize,
    size: usize,
    length: usize,
) -> Option<(Last, bool)> {
    let mut at = 0;
    let mut dot = None;
    let mut before = None;
    let mut fits = None;
    while at < filled {
        let record = read(at)?;
        let taken = usize::from(u16::from_ne_bytes([record[LENGTH], record[LENGTH + 1]]));
        let last = Last {
            end: at + taken,
            offset: *record.get(8..LENGTH)?.first_chunk()?,
        };
        if taken < RECORD_MIN || last.end > filled {
            return None;
        }
        if record[NAME..].starts_with(b".\0") {
            dot = Some((last.end, before));
        }
        if last.end + length <= size {
            fits = Some(last);
        }
        before = Some(last);
        at = last.end;
    }
    match (dot?, fits) {
        ((end, _), Some(last)) if last.end >= end => Some((last, true)),
        ((_, before), _) => Some((before?, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of these names; the offset behind each is its number, from 1.
    fn listing(names: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, name) in (1u64..).zip(names) {
            let length = (NAME + name.len() + 1).next_multiple_of(8);
            let mut record = vec![0; length];
            record[8..LENGTH].copy_from_slice(&number.to_ne_bytes());
            record[LENGTH..LENGTH + 2].copy_from_slice(&(length as u16).to_ne_bytes());
            record[NAME..NAME + name.len()].copy_from_slice(name.as_bytes());
            bytes.append(&mut record);
        }
        bytes
    }

    fn find_in(names: &[&str], alternate: usize) -> Option<(u64, bool)> {
        let bytes = listing(names);
        let read = |at: usize| bytes.get(at..at + RECORD_MIN)?.first_chunk().copied();
        let found = find(read, bytes.len(), bytes.len() + alternate, 24)?;
        Some((u64::from_ne_bytes(found.0.offset), found.1))
    }

    /// Wherever `.` stands (in small directories of ext4 anywhere), and however full the buffer is.
    #[test]
    fn the_place_goes_where_dot_is() {
        assert_eq!(find_in(&[".", "..", "a"], 24), Some((3, true)));
        assert_eq!(find_in(&["a", "b", ".", "c", ".."], 100), Some((5, true)));
        // No room: what is at the end is told later.
        assert_eq!(find_in(&[".", "..", "a"], 23), Some((2, true)));
        assert_eq!(
            find_in(&["a", ".", "a name that is long"], 0),
            Some((2, true))
        );
        // `.` itself would be told later, and the place with it.
        assert_eq!(find_in(&["a", "b", "."], 0), Some((2, false)));
        assert_eq!(find_in(&["."], 0), None);
        // It is in another part of the listing.
        assert_eq!(find_in(&["..", "a", "b", ".c"], 100), None);
        assert_eq!(find_in(&[], 100), None);
        let bytes = listing(&["a"]);
        let torn = |at: usize| bytes.get(at..at + RECORD_MIN)?.first_chunk().copied();
        assert_eq!(find(torn, 48, 100, 24), None);
    }
}
