//! Lock files of descriptions that are being sent through sockets (SCM_RIGHTS).
//!
//! Two processes that lock one description must do so by one open file description of its inode's
//! [lock file](crate::handed::lock_files). A fork and an exec hand that on as they hand on every descriptor. A message
//! carries what its sender put in, to a receiver who has made room for that and no more. So the sender
//! leaves the lock file here, and who claims the description gets it with that: as long as it is on its way
//! the description is locked, whatever becomes of the sender, as with files of the kernel's.
//!
//! # Invariants
//! * Only an open file of the description's own inode's lock file is kept, open in the description's mode.
//!   Of what a session sends nothing is asked that anybody but the kernel answers.
//! * One is kept until it has been claimed for each message that it was sent in, or the description is closed for
//!   good ([`crate::handed::watches`]): then nobody's lock lasts longer than the description.

use crate::fair::{descriptors_max, may_have_more};
use arck_core_state::InodeNumber;
use foldhash::HashMap;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// Lock files that are kept at once, if there are descriptors for so many.
const KEPT_MAX: usize = 1024;

struct KeptLock {
    file: OwnedFd,
    /// Whose lock file it is.
    of: (InodeNumber, u32),
    /// At whose instance.
    user: u32,
    /// How many messages it is kept for.
    claims: u32,
}

/// All that are kept, by the names of their descriptions.
#[derive(Default)]
pub struct KeptLocks {
    kept: HashMap<u64, KeptLock>,
    of_users: HashMap<u32, usize>,
}

impl KeptLocks {
    pub fn keep(
        &mut self,
        name: u64,
        of: (InodeNumber, u32),
        file: BorrowedFd<'_>,
        user: u32,
    ) -> Result<(), Errno> {
        if let Some(kept) = self.kept.get_mut(&name) {
            kept.claims = kept.claims.saturating_add(1);
            return Ok(());
        }
        let file = rustix::io::fcntl_dupfd_cloexec(file, 0)?;
        *self.of_users.entry(user).or_default() += 1;
        let kept = KeptLock {
            file,
            of,
            user,
            claims: 1,
        };
        self.kept.insert(name, kept);
        Ok(())
    }

    pub fn may_have_more(&self, name: u64, user: u32, is_trusted: bool) -> bool {
        let own = self.of_users.get(&user).copied().unwrap_or(0);
        let capacity = KEPT_MAX.min(descriptors_max() / 32);
        self.kept.contains_key(&name)
            || may_have_more(own, self.kept.len() - own, capacity, is_trusted)
    }

    /// For who claims a description that he was sent. `None` if nothing is kept of it.
    pub fn take(&mut self, name: u64) -> Option<OwnedFd> {
        let kept = self.kept.get_mut(&name)?;
        kept.claims -= 1;
        match kept.claims {
            0 => self.remove(name).map(|(file, ..)| file),
            _ => self.copy(name),
        }
    }

    /// For who claims it otherwise: what was sent is still to be claimed.
    pub fn copy(&self, name: u64) -> Option<OwnedFd> {
        let kept = self.kept.get(&name)?;
        rustix::io::fcntl_dupfd_cloexec(&kept.file, 0).ok()
    }

    /// Its description is closed for good, or nobody claims it any more. Gives the file, whose lock file it is, and
    /// at whose instance it was kept: it may be the last one, and so is closed with care.
    pub fn remove(&mut self, name: u64) -> Option<(OwnedFd, (InodeNumber, u32), u32)> {
        let kept = self.kept.remove(&name)?;
        if let Some(count) = self.of_users.get_mut(&kept.user) {
            *count -= 1;
            if *count == 0 {
                self.of_users.remove(&kept.user);
            }
        }
        Some((kept.file, kept.of, kept.user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Core;
    use crate::testing::TestCore;
    use arck_core_state::ROOT_INODE;
    use arck_protocol::socket::{Access, HandedOn};
    use rustix::fd::AsFd;
    use rustix::fs::{FlockOperation, OFlags, flock};

    const TRY: FlockOperation = FlockOperation::NonBlockingLockExclusive;

    fn root() -> HandedOn {
        HandedOn {
            inode: ROOT_INODE,
            generation: 1,
            flags: libc::O_RDONLY as u32,
            parent: 0,
        }
    }

    #[test]
    fn a_lock_is_there_until_it_is_claimed_or_its_description_is_closed() {
        let mut test = TestCore::new();
        let session = test.session(1001, &[1001]);
        let core = &mut test.core;
        let key = (ROOT_INODE, 1);
        let open = |core: &mut Core| core.lock_file(session, key, Access::Read).unwrap();
        let other = open(core);
        for claims in [0, 1, 2] {
            let (made, descriptor) = core.hand_on(session, root()).unwrap();
            let lock = open(core);
            flock(&lock, TRY).unwrap();
            for _ in 0..claims.max(1) {
                core.keep_lock(session, descriptor.as_fd(), lock.as_fd())
                    .unwrap();
            }
            drop(lock);
            assert_eq!(flock(&other, TRY), Err(Errno::WOULDBLOCK));
            for left in (0..claims).rev() {
                let claimed = core.kept_locks.take(made.name).unwrap();
                assert_eq!(core.kept_locks.kept.len(), usize::from(left > 0));
                // It is the same.
                flock(&claimed, TRY).unwrap();
            }
            if claims == 0 {
                core.forget_closed();
                assert_eq!(flock(&other, TRY), Err(Errno::WOULDBLOCK));
                drop(descriptor);
                core.forget_closed();
            }
            assert!(core.kept_locks.take(made.name).is_none());
            assert!(core.kept_locks.of_users.is_empty());
            flock(&other, TRY).unwrap();
            flock(&other, FlockOperation::Unlock).unwrap();
        }
    }

    #[test]
    fn nothing_else_is_kept() {
        let mut test = TestCore::new();
        let session = test.session(1001, &[1001]);
        let core = &mut test.core;
        let (_, descriptor) = core.hand_on(session, root()).unwrap();
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        for wrong in [pipe.as_fd(), file.as_fd(), descriptor.as_fd()] {
            let kept = core.keep_lock(session, descriptor.as_fd(), wrong);
            assert_eq!(kept, Err(Errno::INVAL));
        }
        // In another mode than the description's.
        let read = core
            .lock_file(session, (ROOT_INODE, 1), Access::Read)
            .unwrap();
        let path = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&read));
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        let write = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap();
        let kept = core.keep_lock(session, descriptor.as_fd(), write.as_fd());
        assert_eq!(kept, Err(Errno::INVAL));
        let kept = core.keep_lock(session, file.as_fd(), read.as_fd());
        assert_eq!(kept, Err(Errno::BADF));
        core.keep_lock(session, descriptor.as_fd(), read.as_fd())
            .unwrap();
    }

    #[test]
    fn one_user_leaves_others_theirs() {
        let mut kept = KeptLocks::default();
        let (file, _writer) = rustix::pipe::pipe().unwrap();
        let mut name = 0;
        while kept.may_have_more(name, 5, false) {
            kept.keep(name, (ROOT_INODE, 1), file.as_fd(), 5).unwrap();
            name += 1;
        }
        assert!(name > 1 && kept.may_have_more(0, 5, false), "{name}");
        assert!(kept.may_have_more(name, 6, false));
    }
}
