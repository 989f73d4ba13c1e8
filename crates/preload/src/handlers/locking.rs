//! `mlockall` and `munlockall`: a program means its own memory.
//!
//! What the LibFS has mapped is shared by a group, far longer than what is in it, and would be allocated
//! for that; the kernel can only lock all of a process or ranges. So ranges are locked, all but the
//! LibFS's; and where the program wants what it maps later locked too (MCL_FUTURE), the LibFS makes its
//! mappings so that they are not ([`arckfs::lock_pages`]), and locks the program's maps of pool files.
//!
//! Invariant: what is said of mappings to come is said before the kernel begins to lock them, and taken
//! back after it has ceased to.

use crate::raw::{self, Arguments, error};
use crate::{backend, maps, report, thread};
use arckfs::{Locking, lock_pages, locking_to_come, note_locking_to_come};
use rustix::io::Errno;
use std::ops::Range;

const CURRENT: usize = libc::MCL_CURRENT as usize;
const FUTURE: usize = libc::MCL_FUTURE as usize;
const ONFAULT: usize = libc::MCL_ONFAULT as usize;

fn kernel(number: libc::c_long, flags: usize) -> isize {
    // SAFETY: no pointers; what is locked keeps its contents.
    unsafe { raw::call(number as usize, &[flags, 0, 0, 0, 0, 0]) }
}

/// # Safety
/// As the system call's.
pub unsafe fn mlockall(a: &Arguments) -> isize {
    // The kernel takes an `int`.
    let flags = a[0] as u32 as usize;
    let is_valid = flags & !(CURRENT | FUTURE | ONFAULT) == 0 && flags & (CURRENT | FUTURE) != 0;
    if thread::inside() || !is_valid {
        return kernel(libc::SYS_mlockall, a[0]);
    }
    report::served(libc::SYS_mlockall);
    let _inside = thread::enter();
    let locking = match flags & ONFAULT {
        0 => Locking::Whole,
        _ => Locking::OnFault,
    };
    if flags & CURRENT != 0 {
        if flags & FUTURE == 0 && locking_to_come().is_some() {
            // What is mapped from now on is not to be locked any more; that alone cannot be said.
            unlock_all();
        }
        if let Err(errno) = lock_all(locking) {
            return error(errno.raw_os_error());
        }
    }
    if flags & FUTURE == 0 {
        return 0;
    }
    let before = locking_to_come();
    note_locking_to_come(Some(locking));
    let locked = kernel(libc::SYS_mlockall, flags & !CURRENT);
    if locked < 0 {
        note_locking_to_come(before);
    }
    locked
}

/// # Safety
/// As the system call's.
pub unsafe fn munlockall(_: &Arguments) -> isize {
    report::served(libc::SYS_munlockall);
    let _inside = thread::enter();
    unlock_all()
}

fn unlock_all() -> isize {
    let unlocked = kernel(libc::SYS_munlockall, 0);
    if unlocked >= 0 {
        note_locking_to_come(None);
    }
    unlocked
}

/// Locks all that the program has mapped, or nothing.
fn lock_all(locking: Locking) -> Result<(), Errno> {
    let text = maps::read()?;
    let ranges = || maps::lines(&text).flat_map(|(range, _)| own(range));
    // As the kernel does, which looks at the limit before it begins. It is the judge in the end.
    let all: usize = ranges().map(|range| range.len()).sum();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    if limit.is_some_and(|limit| all as u64 > limit) && !may_exceed() {
        return Err(Errno::NOMEM);
    }
    for range in ranges() {
        // SAFETY: mapped when it was looked at; another thread may have unmapped it since.
        match unsafe { lock_pages(range.start, range.len(), locking) } {
            Ok(()) => {}
            // Unmapped meanwhile: the limit was looked at.
            Err(Errno::NOMEM) if limit.is_none() || may_exceed() => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// What is the program's of a range.
fn own(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        while at < range.end {
            let (is_ours, next) = backend::side_of(at);
            let from = std::mem::replace(&mut at, next.min(range.end));
            if !is_ours {
                return Some(from..at);
            }
        }
        None
    })
}

/// Whether the process may lock as much as it likes (CAP_IPC_LOCK).
fn may_exceed() -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    const IPC_LOCK: u32 = 14;
    let header = [VERSION_3, 0];
    // Effective, permitted, inheritable; twice.
    let mut sets = [0u32; 6];
    // SAFETY: both are as long as this version says.
    let answer = unsafe {
        let (header, sets) = (header.as_ptr() as usize, sets.as_mut_ptr() as usize);
        raw::call(libc::SYS_capget as usize, &[header, sets, 0, 0, 0, 0])
    };
    answer == 0 && sets[0] & 1 << IPC_LOCK != 0
}
