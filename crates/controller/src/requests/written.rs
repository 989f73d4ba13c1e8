//! What all changes of a file's contents by message have in common.
//!
//! Invariant: whoever writes a file without being its owner leaves it as its owner's write would have.

use crate::pool::clock::now;
use crate::state::change::Change;
use arck_core_state::{Inode, PAGE_SIZE};
use arck_verifier::Credentials;

/// Where in a page a position of the file is, or that it ends before or behind it.
pub(super) fn within(page: u64, position: u64) -> usize {
    position.saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE) as usize
}

/// The rest of a change by `who`.
pub(super) fn changed(change: &mut Change<'_>, mut inode: Inode, who: &Credentials) {
    if let Some(mode) = arck_verifier::mode_after_write(who, &inode) {
        inode.mode = (inode.mode & !0o7777) | mode;
    }
    inode.modified = now();
    inode.changed = inode.modified;
    change.set_inode(inode);
}
