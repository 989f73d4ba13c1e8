//! Lock files that no description has any more, for the next one that is locked: many programs open a file,
//! lock it and close it again and again, and asking the controller costs ten times as much as locking.
//!
//! Invariants:
//! * One is locked by nobody, and nobody but this process can lock by it: its description was handed on to
//!   nobody. A child has it closed.
//! * It grants what the controller has granted this process, as who it is now: whoever becomes somebody else
//!   leaves his behind.
//! * They are not in the program's way: there are none under a low limit of descriptors, and all are closed when
//!   the program is given the last number below theirs.

use super::file::{Inode, LockFile};
use super::slots::{FLOCK, OFD};
use crate::raw::{self, syscall};
use crate::reserved;
use std::collections::{BTreeMap, VecDeque};

/// Inode and access mode.
type Key = (Inode, i32);

/// Where a process may have fewer descriptors than that, none is kept.
const LIMIT: usize = 256;
/// What is at hand at most, where the process may have many more descriptors than that.
const MOST: usize = 1024;

pub struct AtHand {
    /// With when it was put here.
    files: BTreeMap<Key, (u64, LockFile)>,
    /// In the order in which they were put here; what was taken out since stands there still.
    order: VecDeque<(u64, Key)>,
    count: u64,
    /// None has a lower number.
    from: usize,
}

impl Default for AtHand {
    fn default() -> Self {
        AtHand {
            files: BTreeMap::new(),
            order: VecDeque::new(),
            count: 0,
            from: usize::MAX,
        }
    }
}

/// Whether a lock file that was just made may be one in the end.
pub fn are_allowed() -> bool {
    raw::limit(libc::RLIMIT_NOFILE).is_some_and(|limit| limit >= LIMIT)
}

/// Drops the locks of a description that nobody has any more. Whether its lock file can be kept at hand.
pub fn unlock(file: &LockFile) -> bool {
    if file.stands != 0 || file.access.is_none() {
        return false;
    }
    let kinds = file.slot.kinds();
    let everything = libc::flock {
        l_type: libc::F_UNLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: a descriptor of this library's, and a structure on the stack.
    unsafe {
        let failed = kinds & FLOCK != 0
            && raw::failed(syscall!(libc::SYS_flock, file.descriptor, libc::LOCK_UN));
        let command = libc::F_OFD_SETLK;
        let at = &raw const everything;
        let failed = failed
            || kinds & OFD != 0
                && raw::failed(syscall!(libc::SYS_fcntl, file.descriptor, command, at));
        if failed {
            return false;
        }
    }
    file.slot.forget_kinds();
    true
}

impl AtHand {
    /// Keeps one that is unlocked. What is to be closed instead, if anything is.
    pub fn put(&mut self, file: LockFile) -> Option<LockFile> {
        let Some(access) = file.access else {
            return Some(file);
        };
        let key = (file.inode, access);
        if self.order.len() > 2 * MOST {
            let files = &self.files;
            self.order
                .retain(|(put, key)| files.get(key).is_some_and(|(when, _)| when == put));
        }
        self.count += 1;
        self.from = self.from.min(file.descriptor);
        self.order.push_back((self.count, key));
        let same = self.files.insert(key, (self.count, file));
        if same.is_some() {
            return same.map(|(_, file)| file);
        }
        while let Some(&(put, key)) = self.order.front() {
            let is_there = self.files.get(&key).is_some_and(|&(when, _)| when == put);
            if is_there && self.files.len() <= most(self.files.len()) {
                break;
            }
            self.order.pop_front();
            if is_there {
                return self.files.remove(&key).map(|(_, file)| file);
            }
        }
        None
    }

    /// Takes out that of an inode and a mode.
    pub fn take(&mut self, inode: Inode, access: i32) -> Option<LockFile> {
        let (_, file) = self.files.remove(&(inode, access))?;
        if self.files.is_empty() {
            self.order.clear();
            self.from = usize::MAX;
        }
        Some(file)
    }

    pub fn take_all_of(&mut self, inode: Inode) -> [Option<LockFile>; 3] {
        [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR].map(|access| self.take(inode, access))
    }

    pub fn take_all(&mut self) -> Vec<LockFile> {
        let all = std::mem::take(self).files;
        all.into_values().map(|(_, file)| file).collect()
    }

    /// None has a lower number.
    pub fn from(&self) -> usize {
        self.from
    }
}

/// What is at hand that there may be, where there are so many: of the numbers for this library's own half.
fn most(there: usize) -> usize {
    if there <= reserved::NUMBERS / 2 {
        return there;
    }
    let limit = raw::limit(libc::RLIMIT_NOFILE).unwrap_or(0);
    (limit.saturating_sub(reserved::floor()) / 2).min(MOST)
}
