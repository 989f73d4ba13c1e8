//! Registered files: what is the pool's among them is the mount's descriptor to the kernel, and to the library the
//! description, which stays open as long as it is registered.
//!
//! # Invariants
//! * The program's list is copied once, and the copy is what the kernel gets. What has no name is a placeholder there, by which
//!   the kernel can neither read nor write.
//! * What the kernel may have put in the place of a file is not taken for that file: nothing is known of it.

use crate::backend::Handle;
use crate::descriptors::{Descriptor, lookup, mounted, references};
use crate::memory;
use crate::raw::{self, error, syscall};
use crate::rings::entry::{self, Entry};
use crate::rings::{self as known, Ring};
use crate::unreached;
use std::num::NonZeroU64;

/// What the kernel takes at most.
const MOST: usize = 1 << 20;
/// Of `io_uring_register`.
const REGISTER: u32 = 2;
const UNREGISTER: u32 = 3;
const UPDATE: u32 = 6;
const REGISTER_TAGGED: u32 = 13;
const UPDATE_TAGGED: u32 = 14;
/// In a list: what is there stays.
const SKIPPED: i32 = -2;

/// A list of the program's as the kernel gets it, and what of it is the pool's.
#[derive(Default)]
struct List {
    numbers: Vec<i32>,
    /// Handles, of each of which a reference is had; 0 for what is not the pool's.
    handles: Vec<u64>,
}

impl Drop for List {
    fn drop(&mut self) {
        for handle in self.handles.drain(..).filter_map(NonZeroU64::new) {
            references::give_up(Handle(handle));
        }
    }
}

/// `None` where it cannot be read, or there is none.
fn translated(address: usize, count: usize) -> Option<Result<List, isize>> {
    if address == 0 || count == 0 || count > MOST {
        return None;
    }
    let mut given = Vec::new();
    given.try_reserve_exact(count).ok()?;
    // SAFETY: numbers, for which there is room.
    let given = unsafe { memory::copy_many_in::<i32>(given.spare_capacity_mut(), address, count) };
    let given = given.ok()?;
    let mut list = List::default();
    for number in given {
        let descriptor = *number as u32 as usize;
        let (number, handle) = match lookup(descriptor) {
            Descriptor::Kernel => (*number, 0),
            Descriptor::Error(_) if mounted::is_one(descriptor) => (*number, 0),
            Descriptor::Error(error) => return Some(Err(error)),
            Descriptor::Pool(handle) => {
                let mounted = match unreached::mounted::of(handle) {
                    // It has no name: the library alone can serve it, and the kernel a placeholder.
                    none if none == error(libc::ENOENT) => *number as isize,
                    failure if raw::failed(failure) => return Some(Err(failure)),
                    mounted => mounted,
                };
                if let Err(error) = references::retain(handle) {
                    return Some(Err(error));
                }
                (mounted as i32, handle.0.get())
            }
        };
        list.numbers.push(number);
        list.handles.push(handle);
    }
    Some(Ok(list))
}

/// What was registered is what the ring has from a place on: so many of the list.
fn note(ring: &Ring, place: usize, mut list: List, count: usize) {
    let count = count.min(list.handles.len());
    for (step, number) in list.numbers[..count].iter().enumerate() {
        // These stay what they are.
        if *number != SKIPPED {
            let handle = std::mem::take(&mut list.handles[step]);
            ring.put_files(place + step, &[handle]);
        }
    }
}

/// [`REGISTER`] and its like; `None`: as the program has it.
pub fn register(number: usize, operation: u32, address: usize, count: usize) -> Option<isize> {
    let ring = known::of(number)?;
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
            UNREGISTER => {
                let _held = ring.hold();
                // SAFETY: no pointers.
                let result = syscall!(libc::SYS_io_uring_register, number, operation, 0, 0);
                if result == 0 {
                    ring.let_go_of_files();
                }
                return Some(result);
            }
            _ => return None,
        }
    };
    let list = match translated(given[at] as usize, length)? {
        Ok(list) => list,
        Err(error) => return Some(error),
    };
    given[at] = list.numbers.as_ptr() as u64;
    let argument = match operation {
        REGISTER => list.numbers.as_ptr() as usize,
        _ => given.as_ptr() as usize,
    };
    let _held = ring.hold();
    // SAFETY: a structure of ours, with a list of ours.
    let result = unsafe {
        syscall!(
            libc::SYS_io_uring_register,
            number,
            operation,
            argument,
            count
        )
    };
    if !raw::failed(result) {
        let (place, count) = match operation {
            UPDATE | UPDATE_TAGGED => (given[0] as u32 as usize, result as usize),
            _ => (0, length),
        };
        note(ring, place, list, count);
    }
    Some(result)
}

/// The entry that does the same as [`UPDATE`], of a ring that is held.
pub fn update(ring: &Ring, number: usize, entry: &Entry) -> Option<isize> {
    let list = match translated(entry.address as usize, entry.length as usize)? {
        Ok(list) => list,
        Err(error) => return Some(error),
    };
    let place = entry.offset as u32;
    let given = [u64::from(place), list.numbers.as_ptr() as u64];
    // SAFETY: a structure of ours, with a list of ours.
    let result = unsafe {
        syscall!(
            libc::SYS_io_uring_register,
            number,
            UPDATE,
            given.as_ptr(),
            list.numbers.len()
        )
    };
    if !raw::failed(result) {
        note(ring, place as usize, list, result as usize);
    }
    Some(result)
}

/// Before the kernel takes an entry that may put something else in the place of a registered file.
pub fn before_kernel(ring: &Ring, entry: &Entry) {
    match entry.operation {
        entry::OPENAT
        | entry::OPENAT2
        | entry::CLOSE
        | entry::ACCEPT
        | entry::SOCKET
        | entry::PIPE => {
            // One more than the place; of two the second is behind it. In a place that the kernel chooses there is nothing.
            let count = if entry.operation == entry::PIPE { 2 } else { 1 };
            if let Some(place) = entry.other.checked_sub(1)
                && entry.other != entry::ANY_PLACE
            {
                ring.put_files(place as usize, &[0, 0][..count]);
            }
        }
        // The kernel chooses among places where nothing is.
        entry::FILES_UPDATE if entry.offset as u32 == entry::ANY_PLACE => {}
        entry::FILES_UPDATE => ring.let_go_of_files(),
        // It may be another ring's.
        entry::TO_RING => known::unsure_of_files(),
        _ => {}
    }
}
