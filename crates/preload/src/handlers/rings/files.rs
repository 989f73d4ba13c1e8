//! Registered files: what is the pool's among them is the mount's descriptor to the kernel.
//!
//! Invariant: the program's list is copied once, and the copy is what the kernel gets.

use crate::descriptors::{Descriptor, lookup, mounted};
use crate::memory;
use crate::raw::{self, error, syscall};
use crate::rings::entry::Entry;
use crate::unreached;

/// What the kernel takes at most.
const MOST: usize = 1 << 20;
/// Of `io_uring_register`.
pub const REGISTER: u32 = 2;
pub const UPDATE: u32 = 6;
pub const REGISTER_TAGGED: u32 = 13;
pub const UPDATE_TAGGED: u32 = 14;

/// A list of the program's as the kernel gets it; `None` where all of it is the kernel's, or it cannot be read.
fn translated(address: usize, count: usize) -> Option<Result<Vec<i32>, isize>> {
    if address == 0 || count == 0 || count > MOST {
        return None;
    }
    let mut list = Vec::new();
    list.try_reserve_exact(count).ok()?;
    // SAFETY: numbers, for which there is room.
    let given = unsafe { memory::copy_many_in::<i32>(list.spare_capacity_mut(), address, count) };
    let mut list = given.ok()?.to_vec();
    let mut is_changed = false;
    for number in &mut list {
        let descriptor = *number as u32 as usize;
        match lookup(descriptor) {
            Descriptor::Kernel => {}
            Descriptor::Error(_) if mounted::is_one(descriptor) => {}
            Descriptor::Error(error) => return Some(Err(error)),
            Descriptor::Pool(handle) => {
                let mounted = unreached::mounted::of(handle);
                if raw::failed(mounted) {
                    return Some(Err(match mounted == error(libc::ENOENT) {
                        true => error(libc::EBADF),
                        false => mounted,
                    }));
                }
                *number = mounted as i32;
                is_changed = true;
            }
        }
    }
    is_changed.then_some(Ok(list))
}

/// [`REGISTER`] and its like; `None`: as the program has it.
pub fn register(ring: usize, operation: u32, address: usize, count: usize) -> Option<isize> {
    // The structure, which of its words is the list's address, and how long that is.
    // SAFETY: numbers.
    let (mut given, at, length): ([u64; 4], usize, usize) = unsafe {
        match operation {
            REGISTER => ([address as u64, 0, 0, 0], 0, count),
            UPDATE => {
                let [first, list] = memory::copy_in::<[u64; 2]>(address).ok()?;
                ([first, list, 0, 0], 1, count)
            }
            // The number of files is half of the first word.
            REGISTER_TAGGED => {
                let given: [u64; 4] = memory::copy_in(address).ok()?;
                (given, 2, given[0] as u32 as usize)
            }
            // Tags are behind the list, and the number behind them.
            UPDATE_TAGGED => {
                let given: [u64; 4] = memory::copy_in(address).ok()?;
                (given, 1, given[3] as u32 as usize)
            }
            _ => return None,
        }
    };
    let list = match translated(given[at] as usize, length)? {
        Ok(list) => list,
        Err(error) => return Some(error),
    };
    given[at] = list.as_ptr() as u64;
    let argument = match operation {
        REGISTER => list.as_ptr() as usize,
        _ => given.as_ptr() as usize,
    };
    // SAFETY: a structure of ours, with a list of ours.
    Some(unsafe {
        syscall!(
            libc::SYS_io_uring_register,
            ring,
            operation,
            argument,
            count
        )
    })
}

/// The entry that does the same as [`UPDATE`].
pub fn update(ring: usize, entry: &Entry) -> Option<isize> {
    let list = match translated(entry.address as usize, entry.length as usize)? {
        Ok(list) => list,
        Err(error) => return Some(error),
    };
    let given = [u64::from(entry.offset as u32), list.as_ptr() as u64];
    // SAFETY: a structure of ours, with a list of ours.
    Some(unsafe {
        syscall!(
            libc::SYS_io_uring_register,
            ring,
            UPDATE,
            given.as_ptr(),
            list.len()
        )
    })
}
