//! Lock files of what another process is about to have, too.
//!
//! Invariant: two who have one description lock it by one lock file. Where that cannot be had, each makes its own
//! when it needs one.

use super::table::{COUNT, with};
use super::{look_up, make};
use crate::backend::{Handle, inside};
use crate::descriptors::{self, Descriptor};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

/// Before a description is sent: whoever gets it locks by the same lock file. Where that cannot be, he makes his
/// own when he needs one.
pub fn before_sending(handle: Handle) {
    let Some(file) = look_up(handle, false) else {
        return;
    };
    let number = file.descriptor() as i32;
    // SAFETY: in use here.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    let _ = inside(|fs| Ok(fs.keep_lock(handle, descriptor)?));
    file.end();
}

/// Which part of all descriptors that there can be may be made before forks.
const SHARE: usize = 4;

/// Before a fork or a message: what `wanted` says is the other side's too from then on, and has been handed on
/// ([`handover`](crate::handover)). Where there is no lock file to be had, each of the two makes its own when it
/// needs one.
pub fn before_sharing(wanted: impl Fn(usize) -> bool) {
    let most = descriptors::most_descriptors() / SHARE;
    for descriptor in descriptors::pool_descriptors() {
        let stands = descriptors::file_of(descriptor);
        if stands == 0 || !wanted(descriptor) {
            continue;
        }
        let has_one = COUNT.load(Ordering::Relaxed) > 0
            && with(|table| table.all().any(|file| file.stands == stands));
        if has_one {
            continue;
        }
        if COUNT.load(Ordering::Relaxed) >= most {
            return;
        }
        if let Descriptor::Pool(handle) = descriptors::lookup(descriptor)
            && is_lockable(handle)
        {
            let _ = make(descriptor, handle);
        }
    }
}

fn is_lockable(handle: Handle) -> bool {
    let flags = inside(|fs| Ok(fs.flags(handle)?));
    flags.is_ok_and(|flags| flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE != libc::O_ACCMODE)
}
