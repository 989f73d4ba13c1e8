//! Who the process is, and what the permission bits let it do: checked in the LibFS for the
//! program's sake, as the kernel would answer.
//!
//! Invariant: nothing of this protects anybody; what a session may reach is the controller's and
//! the verifier's to say.

use crate::interface::Errno;
use arck_libfs_kit::format::FileKind;
use arck_libfs_kit::names::creations::Creation;
use arck_libfs_kit::views::CachedInode;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;

/// Who the process is, as the controller saw it at the greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// The ids that `access` asks for.
    real: (u32, u32),
    /// What root may, a bit for each capability. Those of others count for nothing on a pool: the
    /// controller is told ids alone.
    capabilities: u64,
}

/// Numbers of capabilities, as in capabilities(7).
#[derive(Clone, Copy)]
pub enum Capability {
    Chown = 0,
    DacOverride = 1,
    DacReadSearch = 2,
    Fowner = 3,
    Fsetid = 4,
    SysAdmin = 21,
    Mknod = 27,
}

/// The effective capabilities of this thread; all if the kernel does not tell.
fn effective_capabilities() -> u64 {
    const VERSION_3: u32 = 0x2008_0522;
    let head = [VERSION_3, 0];
    // Effective, permitted, inheritable; the lower halves, then the upper.
    let mut sets = [u32::MAX; 6];
    // SAFETY: the kernel reads two words and writes six.
    unsafe { libc::syscall(libc::SYS_capget, head.as_ptr(), sets.as_mut_ptr()) };
    u64::from(sets[0]) | u64::from(sets[3]) << 32
}

/// The real and the effective id of this thread.
fn real_and_effective(call: libc::c_long) -> (u32, u32) {
    let [mut real, mut effective, mut saved] = [0u32; 3];
    // SAFETY: the kernel writes three words, and has no reason to fail.
    unsafe { libc::syscall(call, &raw mut real, &raw mut effective, &raw mut saved) };
    (real, effective)
}

/// The further groups of this thread.
fn further_groups() -> Vec<u32> {
    const FEW: usize = 64;
    let mut groups = [0u32; FEW];
    // SAFETY: the kernel writes no more words than it is told there are.
    let count = unsafe { libc::syscall(libc::SYS_getgroups, FEW, groups.as_mut_ptr()) };
    match usize::try_from(count) {
        Ok(count) => groups[..count.min(FEW)].to_vec(),
        Err(_) => {
            let groups = rustix::process::getgroups().unwrap_or_default();
            groups.into_iter().map(|gid| gid.as_raw()).collect()
        }
    }
}

impl Credentials {
    /// What open makes where nothing is.
    pub fn opened_file(&self, mode: u32) -> Creation<'_> {
        Creation {
            kind: FileKind::File,
            mode: mode & 0o7777,
            target: b"",
            device: 0,
            opens: true,
            owner: self.owner(),
            groups: &self.groups,
        }
    }

    /// Effective ids of this process, in as few system calls as there can be: every program that joins a
    /// group asks twice.
    pub fn of_process() -> Credentials {
        let (real_user, uid) = real_and_effective(libc::SYS_getresuid);
        let (real_group, gid) = real_and_effective(libc::SYS_getresgid);
        Credentials {
            uid,
            real: (real_user, real_group),
            capabilities: match uid {
                0 => effective_capabilities(),
                _ => 0,
            },
            gid,
            groups: further_groups(),
        }
    }
    /// Of a session that the controller knows as this user's. In a user namespace of its own the process calls
    /// itself something else, often root: what it makes is the user's all the same, and refused as anybody else's.
    /// Its capabilities are those of its namespace, which say nothing about the pool.
    pub fn of_session(process: &Credentials, user: (u32, u32)) -> Credentials {
        if process.owner() == user {
            return process.clone();
        }
        Credentials {
            uid: user.0,
            gid: user.1,
            groups: process.groups.clone(),
            real: user,
            capabilities: 0,
        }
    }
    /// A number that tells apart who may search other directories than others.
    pub fn searcher(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.uid, self.gid, &self.groups, self.capabilities).hash(&mut hasher);
        hasher.finish()
    }
    /// Whose is what this process makes: user and group.
    pub fn owner(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }
    /// A user in no further group, who has all capabilities of his.
    #[cfg(test)]
    pub fn of_user(uid: u32) -> Credentials {
        Credentials {
            uid,
            gid: uid,
            groups: Vec::new(),
            real: (uid, uid),
            capabilities: if uid == 0 { u64::MAX } else { 0 },
        }
    }
    /// Whether this is root, and has not given that up.
    #[inline]
    pub fn may(&self, what: Capability) -> bool {
        self.capabilities & 1 << what as u32 != 0
    }
    /// Whether what is to be created may be made as far as it is a device; the character device 0, which stands for
    /// nothing, anybody may make. EPERM.
    pub fn check_device(&self, creation: &Creation<'_>) -> Result<(), Errno> {
        let is_device = creation.kind.is_device();
        let is_nothing = creation.kind == FileKind::CharacterDevice && creation.device == 0;
        match !is_device || is_nothing || self.may(Capability::Mknod) {
            true => Ok(()),
            false => Err(Errno::PERM),
        }
    }
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
    /// As [`Credentials::check`] for who started a set-user-ID program, or one that is somebody else for
    /// a while.
    pub fn check_real(&self, inode: &CachedInode, wanted: u32) -> Result<(), Errno> {
        if self.real == (self.uid, self.gid) {
            return self.check(inode, wanted);
        }
        let (uid, gid) = self.real;
        let capabilities = if uid == 0 { u64::MAX } else { 0 };
        let real = Credentials {
            uid,
            gid,
            capabilities,
            ..self.clone()
        };
        real.check(inode, wanted)
    }
    /// `wanted`: 4 read, 2 write, 1 execute or search. EACCES.
    pub fn check(&self, inode: &CachedInode, wanted: u32) -> Result<(), Errno> {
        let mode = inode.mode.load(Ordering::Relaxed);
        // Root may do everything, but execute only what somebody may execute.
        let executable = inode.is_directory() || mode & 0o111 != 0 || wanted & 1 == 0;
        if self.may(Capability::DacOverride) {
            return if executable {
                Ok(())
            } else {
                Err(Errno::ACCESS)
            };
        }
        let looked_at = match inode.is_directory() {
            true => wanted & 2 == 0,
            false => wanted == 4,
        };
        if looked_at && self.may(Capability::DacReadSearch) {
            return Ok(());
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
        if self.may(Capability::Fowner) || self.uid == inode.uid.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err(Errno::PERM)
        }
    }
}
