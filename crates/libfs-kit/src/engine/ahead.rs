//! Acquiring ahead: directories that are likely to be removed next.
//!
//! A change in a directory that nobody owns costs a message. Who removes a tree changes directory
//! after directory; so once a directory has been removed from another, what is acquired below that
//! other one comes with more directories from there, in one message.
//!
//! # Invariants
//! * Only what nobody owns is acquired ahead. To others it is as if this session had been in there: a
//!   recall that finds nothing makes it shared again.
//! * It is a guess: where it fails, what is wanted is asked for alone. What is read here is looked at
//!   again by the controller, so it need not be of one state.

use crate::engine::Engine;
use crate::ownership;
use crate::views::flag;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, InodeNumber, directory};
use arck_protocol::message::ASKED_FOR_MAX;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Directories that are looked into for more, at most.
const LOOKS: usize = 64;

impl Engine<'_> {
    /// Becomes the owner of the inodes `wanted`, and perhaps of directories beside and below the
    /// first. Blocks; not inside an operation. Errors as of [`ownership::acquire`].
    #[cold]
    pub fn acquire(&self, wanted: &[InodeNumber]) -> Result<(), Errno> {
        if let [first] = *wanted
            && let Some(inodes) = self.with_neighbours(first)
            && ownership::acquire(self.session, &inodes).is_ok()
        {
            return Ok(());
        }
        ownership::acquire(self.session, wanted)
    }

    /// A directory and, if directories are being removed from the one that holds it, others from
    /// there: those beside it, then those below them.
    fn with_neighbours(&self, number: InodeNumber) -> Option<Vec<InodeNumber>> {
        let inode = self.known(number).filter(|inode| inode.is_directory())?;
        let holder = self.known(inode.holder.load(Ordering::Relaxed))?;
        if !holder.has(flag::REMOVING) {
            return None;
        }
        let mut all = vec![number];
        self.add_directories_of(holder.number(), &mut all);
        let mut at = 0;
        while at < all.len().min(LOOKS) && all.len() < ASKED_FOR_MAX {
            self.add_directories_of(all[at], &mut all);
            at += 1;
        }
        (all.len() > 1).then_some(all)
    }

    /// Adds the verified directories in directory `number` that nobody owns, as many as fit.
    fn add_directories_of(&self, number: InodeNumber, all: &mut Vec<InodeNumber>) {
        let session = self.session;
        let Ok(Some((_, verified))) = session.verified(number) else {
            return;
        };
        if verified.kind() != Some(FileKind::Directory) {
            return;
        }
        for bucket in 0..verified.size / 4096 {
            if all.len() >= ASKED_FOR_MAX {
                return;
            }
            let listed = directory::for_each_in_bucket(
                session,
                verified.root,
                bucket,
                |dentry, _, _, _, _| {
                    let is_free = dentry.kind == FileKind::Directory
                        && session.header(dentry.inode).is_some_and(|header| {
                            header.kind() == HeaderKind::Alive
                                && header.generation() == dentry.generation
                                && header.ownership().session() == 0
                        });
                    if is_free && all.len() < ASKED_FOR_MAX && !all.contains(&dentry.inode) {
                        all.push(dentry.inode);
                    }
                },
            );
            if listed.is_err() {
                return;
            }
        }
    }
}
