//! Who a thread of the mount process is.
//!
//! The controller takes a session's user and groups from the kernel, as they are when the session connects, and once
//! more when it comes back to a controller that was started again. So whatever is asked of a user's session is done by a
//! thread that is that user: its effective ids and its groups, which in Linux are the thread's own.
//!
//! # Invariants
//! * The real and the saved user stay root's: no other user may send the process a signal, trace it, or look at its
//!   memory, and a thread can always become somebody else. The sender of packets, which the controller compares too, is
//!   told by real ids, and stays the same.
//! * A thread that could not become somebody is root again, and says so to itself: nothing is done for anybody by it
//!   until it has become him.

use arckfs::Errno;
use std::cell::RefCell;
use std::sync::Arc;

/// A user as the controller knows him: effective user and group, and further groups in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Who {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl Who {
    /// With the groups sorted, and none twice.
    pub fn new(uid: u32, gid: u32, mut groups: Vec<u32>) -> Who {
        groups.sort_unstable();
        groups.dedup();
        Who { uid, gid, groups }
    }

    /// Who this process is.
    pub fn of_process() -> Who {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Who::new(
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
            groups.into_iter().map(|group| group.as_raw()).collect(),
        )
    }
}

thread_local! {
    /// Whom this thread has become; `None`: as the process began.
    static NOW: RefCell<Option<Arc<Who>>> = const { RefCell::new(None) };
}

/// Leaves an id as it is.
const KEEP: libc::c_long = -1;

/// Whether the call was done.
fn done(result: libc::c_long) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM)),
    }
}

/// The effective user of this thread alone.
fn set_user(uid: u32) -> Result<(), Errno> {
    // SAFETY: numbers. Not libc's function, which would change all threads.
    done(unsafe { libc::syscall(libc::SYS_setresuid, KEEP, libc::c_long::from(uid), KEEP) })
}

/// The effective group and the further groups of this thread alone, which is root.
fn set_groups(gid: u32, groups: &[u32]) -> Result<(), Errno> {
    // SAFETY: as many numbers as are said, which the kernel reads.
    done(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    // SAFETY: numbers.
    done(unsafe { libc::syscall(libc::SYS_setresgid, KEEP, libc::c_long::from(gid), KEEP) })
}

/// This thread becomes `who`, until it becomes somebody else. Only for a process that is root: EPERM.
pub fn become_user(who: &Arc<Who>) -> Result<(), Errno> {
    NOW.with(|now| {
        let mut now = now.borrow_mut();
        if now.as_ref().is_some_and(|now| Arc::ptr_eq(now, who)) {
            return Ok(());
        }
        // What follows takes root's rights, which an effective user who is not root has laid aside.
        *now = None;
        set_user(0)?;
        let became = set_groups(who.gid, &who.groups).and_then(|()| set_user(who.uid));
        if became.is_ok() {
            *now = Some(who.clone());
        }
        became
    })
}

/// This thread becomes root, to look at what other users may not: EPERM.
pub fn become_root() -> Result<(), Errno> {
    NOW.with(|now| {
        let mut now = now.borrow_mut();
        if now.as_ref().is_some_and(|now| now.uid != 0) {
            set_user(0)?;
            *now = None;
        }
        Ok(())
    })
}
