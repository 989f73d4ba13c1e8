//! Lock files that are closed, and processes that fork, while they are used. The files are this process's own.

use super::*;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;

/// A description with a lock file that nobody else has.
pub(crate) struct Made {
    pub handle: Handle,
    pub inode: Inode,
    pub descriptor: usize,
    /// Another open file of the same.
    other: OwnedFd,
}

impl Made {
    /// `number`: of no other test.
    pub fn new(number: u32) -> Made {
        let other = rustix::fs::memfd_create("lock file", MemfdFlags::CLOEXEC).unwrap();
        let path = format!("/proc/self/fd/{}", other.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).unwrap();
        let descriptor = file.into_raw_fd() as usize;
        reserved::mark(descriptor);
        let inode = (number, 1);
        let handle = Handle(NonZeroU64::new(0xffff_0000 + u64::from(number)).unwrap());
        with(|table| {
            let file = table.file(descriptor, inode, 0);
            let access = Some(libc::O_RDWR);
            table.attach(handle, LockFile { access, ..file });
        });
        Made {
            handle,
            inode,
            descriptor,
            other,
        }
    }

    /// Whether its number is still that of this lock file.
    pub fn is_open(&self) -> bool {
        raw::identity_of(self.descriptor) == raw::identity_of(self.other.as_raw_fd() as usize)
    }

    /// Whether somebody has locked it, as another description finds it.
    pub fn is_locked(&self) -> bool {
        let mut lock = whole(libc::F_WRLCK);
        let (file, command) = (self.other.as_raw_fd(), libc::F_OFD_GETLK);
        // SAFETY: a descriptor that is open, and a structure on the stack.
        let asked = unsafe { libc::fcntl(file, command, &raw mut lock) };
        assert_eq!(asked, 0);
        i32::from(lock.l_type) != libc::F_UNLCK
    }

    fn use_it(&self, is_alone: bool) -> Option<Use> {
        look_up(self.handle, is_alone)
    }
}

/// As a thread that is about to close a descriptor of the inode.
pub(crate) fn drop_process_locks(made: &Made) {
    with(|table| table.drop_process_locks(made.inode));
}

/// A lock of all bytes.
pub(crate) fn whole(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// A thread has found the lock file of a description, and another closes that before the first has made its
/// call: the number is nothing else's until it has, since what that is would be locked instead.
#[test]
fn what_is_closed_while_it_is_used_is_closed_after() {
    for (number, is_alone) in [(1, false), (2, true)] {
        let made = Made::new(number);
        let used = [made.use_it(is_alone), made.use_it(is_alone)];
        closed(made.handle);
        assert!(made.is_open());
        assert!(made.use_it(is_alone).is_none(), "it is nobody's any more");
        let [one, two] = used.map(Option::unwrap);
        assert!(one.end(), "it is told that the description was closed");
        assert!(made.is_open());
        assert!(two.end());
        assert!(!made.is_open());
    }
    // One that nobody uses is kept for the next description, unlocked.
    let made = Made::new(3);
    assert!(!made.use_it(false).unwrap().end());
    closed(made.handle);
    let at_hand = with(|table| table.at_hand.take(made.inode, libc::O_RDWR)).unwrap();
    assert!(made.is_open());
    with(|table| table.close(at_hand));
    assert!(!made.is_open());
}

/// # Regression
/// A handler of a signal interrupted a thread that waited for a lock, and forked. The child, in which nobody used
/// anything, went back into the call and ended its use: the count went below nothing, and the lock file was in
/// use for ever, with its locks.
#[test]
fn a_use_that_began_before_a_fork_is_none_in_the_child() {
    for (number, is_alone) in [(4, false), (5, true)] {
        let made = Made::new(number);
        let used = made.use_it(is_alone).unwrap();
        // As in the child: see `forked`, which does more, to what other tests have, too.
        let slot = used.slot();
        slot.forked();
        assert!(!used.end());
        assert!(!slot.is_used());
        // From then on it is counted as ever.
        let used = made.use_it(is_alone).unwrap();
        assert!(slot.is_used());
        closed(made.handle);
        assert!(used.end());
        assert!(!made.is_open());
    }
}
