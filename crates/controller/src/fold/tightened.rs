//! What a fold is about to change that may tighten a class, found in what was verified.

use crate::fold::Folding;
use crate::fold::touched::Touched;
use crate::state::classes::{Class, Condition, Wish};
use arck_core_state::{FileKind, Inode};
use arck_verifier::{ChangedName, Changes};

/// The mode of an inode changes.
pub(crate) fn of_mode(old: &Inode, new: &Inode) -> Touched {
    let class = |inode| Class::world().and(Condition::of(inode, Wish::Search));
    let wider = match (class(old), class(new)) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(old), Some(new)) => old.implies(&new),
    };
    Touched::attributes(old.number, Some(*old), !wider)
}

impl Folding<'_> {
    /// What a fold is about to change that may tighten a class.
    pub(crate) fn touched_by(&self, changes: &Changes) -> Vec<Touched> {
        let mut touched = Vec::new();
        let mut unlinked = Vec::new();
        if !self.sessions.state.space.shared {
            return touched;
        }
        for inode in &changes.inodes {
            if let (Some(mode), Some(old)) = (inode.mode, self.sessions.state.shadow(inode.inode)) {
                let mut new = *old;
                new.mode = new.mode & !0o7777 | mode & 0o7777;
                touched.push(of_mode(old, &new));
            }
            for ChangedName { dentry, .. } in &inode.names_removed {
                // One that had no other name is an orphan now, or has got a name with the same fold.
                let others = self
                    .sessions
                    .state
                    .shadow(dentry.inode)
                    .map_or(0, |old| old.links);
                if others > 1 && dentry.kind != FileKind::Directory {
                    unlinked.push(Touched::unlinked(dentry.inode));
                }
            }
            for ChangedName { name, dentry, .. } in &inode.names_added {
                // One that is created here gets its class here; a directory stays with its parent.
                let lives = self.sessions.state.shadow(dentry.inode).is_some();
                if lives && dentry.kind != FileKind::Directory {
                    touched.push(Touched::moved(*dentry, inode.inode, name));
                }
            }
        }
        touched.append(&mut unlinked);
        touched
    }
}
