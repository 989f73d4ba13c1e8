//! Who the process is, and what the permission bits let it do: checked in the LibFS for the
//! program's sake, as the kernel would answer.
//!
//! Invariant: nothing of this protects anybody; what a session may reach is the controller's and
//! the verifier's to say.

use crate::interface::Errno;
use crate::state::CachedInode;
use std::sync::atomic::Ordering;

/// Who the process is, as the controller saw it at the greeting.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Effective ids of this process.
    pub fn of_process() -> Credentials {
        Credentials {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: rustix::process::getgroups()
                .unwrap_or_default()
                .into_iter()
                .map(|gid| gid.as_raw())
                .collect(),
        }
    }
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
    /// `wanted`: 4 read, 2 write, 1 execute or search. EACCES.
    pub fn check(&self, inode: &CachedInode, wanted: u32) -> Result<(), Errno> {
        let mode = inode.mode.load(Ordering::Relaxed);
        if self.uid == 0 {
            // Root may do everything, but execute only what somebody may execute.
            let executable = inode.is_directory() || mode & 0o111 != 0 || wanted & 1 == 0;
            return if executable {
                Ok(())
            } else {
                Err(Errno::ACCESS)
            };
        }
        let bits = if self.uid == inode.uid.load(Ordering::Relaxed) {
            mode >> 6
        } else if self.in_group(inode.gid.load(Ordering::Relaxed)) {
            mode >> 3
        } else {
            mode
        };
        if bits & wanted == wanted {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }
    /// Owner of the inode or root. EPERM.
    pub fn check_owner(&self, inode: &CachedInode) -> Result<(), Errno> {
        if self.uid == 0 || self.uid == inode.uid.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err(Errno::PERM)
        }
    }
}
