//! What an entry asks for of the pool, done by the library while it is submitted: as the kernel does it on tmpfs.
//!
//! Invariant: what is answered here has been done, or has failed; `None` leaves everything as it was.

use super::super::{HERE, attributes, control, data, extended, names};
use super::files;
use crate::backend::Handle;
use crate::descriptors::{Descriptor, is_pool, lookup, mounted};
use crate::memory;
use crate::path::{Place, Scratch, place};
use crate::raw::{self, error, pad, syscall};
use crate::rings::Ring;
use crate::rings::entry::{self, DATA_ALONE, Entry};

/// What became of it.
pub struct Done {
    pub result: isize,
    /// What comes behind it in a chain is not to be done.
    pub has_failed: bool,
}

impl Done {
    fn all(result: isize) -> Done {
        Done {
            result,
            has_failed: raw::failed(result),
        }
    }
}

/// Of a ring, which is held, with this descriptor.
///
/// # Safety
/// The entry is the program's, with what it points to.
pub unsafe fn perform(entry: &Entry, ring: &Ring, number: usize) -> Option<Done> {
    // SAFETY: the caller's promise.
    unsafe {
        if entry.flags & entry::REGISTERED != 0 {
            return on_registered(entry, ring.file(entry.descriptor())?);
        }
        match entry.operation {
            entry::READ | entry::READV | entry::WRITE | entry::WRITEV => {
                is_served(entry.descriptor()).then(|| transfer(entry, None))
            }
            entry::FSYNC
            | entry::SYNC_FILE_RANGE
            | entry::FALLOCATE
            | entry::FADVISE
            | entry::FTRUNCATE
            | entry::FSETXATTR
            | entry::FGETXATTR => on_file(entry).map(Done::all),
            entry::CLOSE
                if entry.other == 0 && !is_refused(entry) && is_served(entry.descriptor()) =>
            {
                // What was asked for before, and the kernel has not begun, needs the mount's until then: see `by_mount`.
                match lookup(entry.descriptor()) {
                    Descriptor::Pool(handle) if mounted::find(handle).is_some() => None,
                    _ => Some(Done::all(control::close(&pad([entry.descriptor()])))),
                }
            }
            entry::FILES_UPDATE if entry.offset as u32 != entry::ANY_PLACE => {
                files::update(ring, number, entry).map(Done::all)
            }
            _ => by_name(entry).map(Done::all),
        }
    }
}

/// Whether a number is the pool's, or one that the program has not.
fn is_served(descriptor: usize) -> bool {
    match lookup(descriptor) {
        Descriptor::Kernel => false,
        Descriptor::Pool(_) => true,
        // An entry that was looked at before, and not taken then.
        Descriptor::Error(_) => !mounted::is_one(descriptor),
    }
}

/// Of a registered file.
unsafe fn on_registered(entry: &Entry, handle: Handle) -> Option<Done> {
    match entry.operation {
        entry::READ | entry::READV | entry::WRITE | entry::WRITEV => {
            // SAFETY: the caller's promise.
            Some(unsafe { transfer(entry, Some(handle)) })
        }
        entry::FSYNC if !is_refused(entry) => {
            Some(Done::all(synced(handle, data::sync_of(handle))))
        }
        _ => None,
    }
}

/// Of the description, or of the program's number.
unsafe fn transfer(entry: &Entry, registered: Option<Handle>) -> Done {
    let descriptor = entry.descriptor();
    let (address, length) = (entry.address as usize, entry.length as usize);
    let one = [address, length];
    let is_vector = matches!(entry.operation, entry::READV | entry::WRITEV);
    let (vector, count) = match is_vector {
        true => (address, length),
        false => (one.as_ptr() as usize, 1),
    };
    let position = entry.offset as usize;
    if (position as isize) < -1 {
        return Done::all(error(libc::EINVAL));
    }
    let arguments = [descriptor, vector, count, position, 0, entry.how as usize];
    // SAFETY: the program's buffers, and a vector of this function's.
    let result = unsafe {
        let writes = matches!(entry.operation, entry::WRITE | entry::WRITEV);
        match (registered, writes) {
            (Some(handle), _) => data::transfer_of(handle, &arguments, writes),
            (None, false) => data::preadv2(&arguments),
            (None, true) => data::pwritev2(&arguments),
        }
    };
    let mut wanted = length;
    if is_vector && !raw::failed(result) {
        // SAFETY: numbers.
        let lengths = (0..count).map(|part| unsafe {
            memory::copy_in::<[usize; 2]>(vector.wrapping_add(part * size_of::<[usize; 2]>()))
        });
        wanted = lengths.fold(0, |sum, part| {
            sum.saturating_add(part.map_or(0, |[_, length]| length))
        });
    }
    Done {
        result,
        has_failed: raw::failed(result) || (result as usize) < wanted,
    }
}

unsafe fn on_file(entry: &Entry) -> Option<isize> {
    let descriptor = entry.descriptor();
    if !is_served(descriptor) || is_refused(entry) {
        return None;
    }
    let (offset, address) = (entry.offset as usize, entry.address as usize);
    let (length, how) = (entry.length as usize, entry.how as usize);
    // SAFETY: the program's pointers.
    Some(unsafe {
        match entry.operation {
            entry::FSYNC => sync(descriptor, entry.how),
            entry::SYNC_FILE_RANGE => {
                data::sync_descriptor::<{ libc::SYS_sync_file_range as usize }>(&pad([
                    descriptor, offset, length, how,
                ]))
            }
            entry::FALLOCATE => data::fallocate(&pad([descriptor, length, offset, address])),
            entry::FADVISE => {
                let length = if address == 0 { length } else { address };
                data::advise::<{ libc::SYS_fadvise64 as usize }>(&pad([
                    descriptor, offset, length, how,
                ]))
            }
            entry::FTRUNCATE => data::ftruncate(&pad([descriptor, offset])),
            entry::FSETXATTR => extended::setxattr::<{ libc::SYS_fsetxattr as usize }>(&pad([
                descriptor, address, offset, length, how,
            ])),
            _ => extended::getxattr::<{ libc::SYS_fgetxattr as usize }>(&pad([
                descriptor, address, offset, length,
            ])),
        }
    })
}

/// Whether the kernel refuses it before it looks at the descriptor, and takes no more then.
pub fn is_refused(entry: &Entry) -> bool {
    let has_more = entry.address != 0 || entry.buffer != 0;
    match entry.operation {
        entry::FSYNC => has_more || entry.other != 0 || entry.how & !DATA_ALONE != 0,
        entry::CLOSE => has_more || entry.offset != 0 || entry.length != 0 || entry.how != 0,
        _ => false,
    }
}

/// What the library has written, and, where there is one, what the mount's descriptor has.
pub unsafe fn sync(descriptor: usize, how: u32) -> isize {
    let arguments = pad([descriptor]);
    // SAFETY: a number.
    let result = unsafe {
        match how {
            0 => data::sync_descriptor::<{ libc::SYS_fsync as usize }>(&arguments),
            _ => data::sync_descriptor::<{ libc::SYS_fdatasync as usize }>(&arguments),
        }
    };
    match lookup(descriptor) {
        Descriptor::Pool(handle) => synced(handle, result),
        _ => result,
    }
}

/// After what the library has written was synced, with this result.
fn synced(handle: Handle, result: isize) -> isize {
    match mounted::find(handle) {
        // SAFETY: a number.
        Some(mounted) if !raw::failed(result) => unsafe { syscall!(libc::SYS_fsync, mounted) },
        _ => result,
    }
}

const FAULT: isize = error(libc::EFAULT);
const TOO_LONG: isize = error(libc::ENAMETOOLONG);

/// Whether a name leads to the pool, or nowhere.
unsafe fn is_pools(directory: usize, path: usize) -> bool {
    let mut scratch = Scratch::new();
    // SAFETY: the program's path.
    let place = unsafe { place(directory, path, &mut scratch) };
    match place {
        Place::Kernel => path == 0 && is_pool(directory),
        Place::Pool(..) => true,
        // The kernel reads a path before anything else, and takes no more entries if it cannot.
        Place::Error(error) if error == FAULT || error == TOO_LONG => false,
        // A descriptor of this library's own, perhaps: see `is_served`.
        Place::Error(_) => !mounted::is_one(directory),
    }
}

unsafe fn by_name(entry: &Entry) -> Option<isize> {
    let (directory, path) = (entry.directory(), entry.address as usize);
    let (second, second_path) = (entry.length as i32 as isize as usize, entry.offset as usize);
    // SAFETY: the program's paths.
    let leads_to_pool = unsafe {
        match entry.operation {
            entry::OPENAT | entry::OPENAT2 => {
                // What others have to come for is not waited for here.
                entry.other == 0 && is_pools(directory, path) && !is_waited_for(directory, path)
            }
            entry::STATX | entry::UNLINKAT | entry::MKDIRAT => is_pools(directory, path),
            entry::RENAMEAT | entry::LINKAT => {
                is_pools(directory, path) || is_pools(second, second_path)
            }
            entry::SYMLINKAT => is_pools(directory, second_path),
            entry::SETXATTR | entry::GETXATTR => is_pools(HERE, entry.third as usize),
            _ => false,
        }
    };
    if !leads_to_pool {
        return None;
    }
    let (length, how, offset) = (
        entry.length as usize,
        entry.how as usize,
        entry.offset as usize,
    );
    // SAFETY: the program's pointers.
    Some(unsafe {
        match entry.operation {
            entry::OPENAT => names::openat(&pad([directory, path, how, length])),
            entry::OPENAT2 => names::openat2(&pad([directory, path, offset, length])),
            entry::STATX => attributes::statx(&pad([directory, path, how, length, offset])),
            entry::UNLINKAT => names::unlinkat(&pad([directory, path, how])),
            entry::MKDIRAT => names::mkdirat(&pad([directory, path, length])),
            entry::RENAMEAT => names::renameat2(&pad([directory, path, second, second_path, how])),
            entry::LINKAT => names::linkat(&pad([directory, path, second, second_path, how])),
            entry::SYMLINKAT => names::symlinkat(&pad([path, directory, second_path])),
            entry::SETXATTR => extended::setxattr::<{ libc::SYS_setxattr as usize }>(&pad([
                entry.third as usize,
                path,
                offset,
                length,
                how,
            ])),
            _ => extended::getxattr::<{ libc::SYS_getxattr as usize }>(&pad([
                entry.third as usize,
                path,
                offset,
                length,
            ])),
        }
    })
}

/// Whether opening it may wait for somebody else: a named pipe.
unsafe fn is_waited_for(directory: usize, path: usize) -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let into = status.as_mut_ptr() as usize;
    // SAFETY: the program's path, and a structure of ours, for which all zeroes are a value.
    unsafe {
        let told = attributes::newfstatat(&pad([directory, path, into, 0]));
        !raw::failed(told) && status.assume_init().st_mode & libc::S_IFMT == libc::S_IFIFO
    }
}
