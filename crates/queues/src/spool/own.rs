//! Opening a spool of one's own by its file: what all who have files with owners and modes do alike.
//!
//! # Invariant
//! * What a spool says is done with the rights of who opens it. So it is taken only from a file that nobody else can write, which is looked at after
//!   it was locked; and what is left of one that could not be made is taken away while it is locked: nobody has made one of it meanwhile.

use super::Spool;
use crate::target::Target;
use rustix::io::Errno;
use std::sync::Arc;

impl Spool {
    /// As [`Spool::open_or_make`], of a locked file of this user and mode. `cut` takes away what there is of the file, where it had no bytes and no spool
    /// came of it.
    ///
    /// # Errors
    /// EPERM: others can write the file, or could. As [`Spool::open_or_make`]; [`Spool::why_not`] puts them into words.
    pub fn open_own(
        file: Arc<dyn Target>,
        (owner, mode): (u32, u32),
        size: u64,
        cut: impl FnOnce(),
    ) -> Result<Spool, Errno> {
        if owner != rustix::process::geteuid().as_raw() || mode & 0o022 != 0 {
            return Err(Errno::PERM);
        }
        let was_empty = file.size()? == 0;
        let spool = Spool::open_or_make(Arc::clone(&file), size);
        if spool.is_err() && was_empty {
            cut();
        }
        spool
    }

    /// Why a spool was not locked or opened, where the error alone does not tell.
    pub fn why_not(errno: Errno) -> Option<&'static str> {
        match errno {
            Errno::INVAL => Some("a spool has 64 KiB to 4 GiB"),
            Errno::BUSY => Some(
                "another process has this spool open, or this one has: close it, and its queues",
            ),
            Errno::PERM => Some(
                "others can write this file, or could: what it says would be done in your name; remove it",
            ),
            Errno::BADMSG => Some("this is no spool, or a damaged one"),
            Errno::XDEV => Some("this spool was filled in another pool"),
            _ => None,
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::spool::Locked;
    use crate::{FileIdentity, spool::tests::on_machine};
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn it_is_of_who_opens_it_and_nobody_else_can_write_it() {
        let own = rustix::process::geteuid().as_raw();
        for (owner, mode, is_taken) in [
            (own, 0o600, true),
            (own, 0o644, true),
            (own, 0o620, false),
            (own, 0o602, false),
            (own + 1, 0o600, false),
        ] {
            let file = on_machine();
            let spool = Spool::open_own(file, (owner, mode), Spool::SIZE_MIN, || {
                panic!("a spool is there, or was not asked for")
            });
            let expected = if is_taken { None } else { Some(Errno::PERM) };
            assert_eq!(spool.err(), expected, "{owner} {mode:o}");
        }
    }

    /// What is left of a spool that cannot be made is cut off before anybody else can lock the file.
    #[test]
    fn what_does_not_come_about_is_cut_while_it_is_locked() {
        let path = std::env::temp_dir().join(format!("arck-own-spool-{}", std::process::id()));
        let opened = || {
            let mut options = File::options();
            options.write(true).create(true).truncate(false);
            OwnedFd::from(options.open(&path).expect("opened"))
        };
        let file = Locked::new(Full, opened()).expect("locked");
        let is_cut = AtomicBool::new(false);
        let own = (rustix::process::geteuid().as_raw(), 0o600);
        let spool = Spool::open_own(Arc::new(file), own, Spool::SIZE_MIN, || {
            let other = Locked::new(Full, opened()).map(drop);
            assert_eq!(other, Err(Errno::BUSY));
            is_cut.store(true, Ordering::Relaxed);
        });
        assert_eq!(spool.err(), Some(Errno::NOSPC));
        assert!(is_cut.load(Ordering::Relaxed));
        Locked::new(Full, opened()).map(drop).expect("free again");
        std::fs::remove_file(path).expect("removed");
    }

    /// There is no room for anything.
    struct Full;

    impl Target for Full {
        fn identity(&self) -> FileIdentity {
            FileIdentity {
                device: 1,
                inode: 1,
            }
        }
        fn size(&self) -> Result<u64, Errno> {
            Ok(0)
        }
        fn read(&self, _: &mut [u8], _: u64) -> Result<usize, Errno> {
            Ok(0)
        }
        fn write(&self, _: &[u8], _: u64) -> Result<usize, Errno> {
            Err(Errno::NOSPC)
        }
        fn append(&self, _: &[u8]) -> Result<(usize, u64), Errno> {
            Err(Errno::NOSPC)
        }
        fn sync(&self, _: bool) -> Result<(), Errno> {
            Ok(())
        }
    }
}
