//! A lock file that this process has open.

use super::slots::Slot;

/// Number and generation.
pub type Inode = (u32, u32);

pub struct LockFile {
    pub descriptor: usize,
    pub inode: Inode,
    /// Inode number of the file that stands for the description ([`file_of`](crate::descriptors::file_of)); 0: it was not
    /// handed on.
    pub stands: u64,
    /// Access mode, O_RDONLY and so on; `None`: it came from elsewhere, or has a number that the program may
    /// want.
    pub access: Option<i32>,
    pub slot: &'static Slot,
}

impl LockFile {
    /// No description uses it any more; see [`lock_files`](super).
    pub fn is_spent(&self) -> bool {
        self.stands == 0
    }
}
