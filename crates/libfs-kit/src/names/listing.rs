//! All names of a directory.
//!
//! Invariant: what is listed is one state of the directory, in which no name appears twice.

use super::Context;
use crate::need::Attempt;
use crate::views::Directory;
use arck_core_state::{FileKind, InodeNumber, directory};
use std::collections::HashSet;
use std::sync::atomic::Ordering;

impl Context<'_> {
    /// Calls `each` for every name, with what it leads to; what was listed counts only if this succeeds.
    /// Under the whole directory's lock.
    pub fn for_each_name(
        &self,
        directory: Directory,
        mut each: impl FnMut(InodeNumber, FileKind, &[u8]),
    ) -> Attempt<()> {
        // Of the verified names, those that the overlay hides or replaces: few, as a rule.
        let mut overlaid: HashSet<Vec<u8>> = HashSet::new();
        self.for_each_overlay(directory, |name, visible, verified| {
            if verified {
                overlaid.insert(name.to_vec());
            }
            if let Some((inode, kind)) = visible {
                each(inode, kind, name);
            }
        });
        let root = directory.verified_root();
        if root.pointer() != 0 {
            let buckets = directory.base_size.load(Ordering::Relaxed) / 4096;
            for bucket in 0..buckets {
                let (session, name) = (self.session, |name: &[u8]| overlaid.contains(name));
                directory::for_each_in_bucket(session, root, bucket, |dentry, _, bytes, _, _| {
                    if !name(bytes.as_bytes()) {
                        each(dentry.inode, dentry.kind, bytes.as_bytes());
                    }
                })
                .map_err(|_| self.lost(&directory))?;
            }
        }
        self.unmoved(&directory)
    }
}
