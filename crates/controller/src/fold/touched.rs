//! What a change may have given a tighter class: it is looked at when the fold is done, by [`crate::access`].

use crate::fold::Folding;
use crate::state::classes::{Class, Condition, Wish};
use arck_core_state::directory::Dentry;
use arck_core_state::{FileKind, Inode, InodeNumber, ROOT_INODE};
use arck_verifier::Changes;

/// An inode whose class may be tighter than it was.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    pub number: InodeNumber,
    /// 0: any.
    pub generation: u32,
    /// A directory in which it has a name, and which.
    pub via: Option<InodeNumber>,
    pub name: Box<[u8]>,
    /// It has lost a name, and has others.
    pub unlinked: bool,
    /// Its own mode or owner has changed.
    pub attributes: bool,
    /// As it was, if that has.
    pub old: Option<Inode>,
    /// Of a directory: with all that is beneath.
    pub deep: bool,
    /// What is in everything beneath is looked at, whether its place is right or not.
    pub whole: bool,
    /// Of a directory: the first of its buckets that has not been looked into.
    pub from: u64,
    /// What is in it alone, from there on (of a file: from that page on): the inode has its place.
    pub contents: bool,
    /// There was no room for its data: nobody is sent that from now on.
    pub hides: bool,
}

impl Touched {
    /// Its mode or owner has changed; it was `old`. `tighter`: so that fewer may search it, perhaps.
    pub fn attributes(number: InodeNumber, old: Option<Inode>, tighter: bool) -> Touched {
        Touched {
            number,
            old,
            attributes: true,
            deep: tighter,
            ..Touched::default()
        }
    }

    /// Everything, after a crash.
    pub fn all() -> Touched {
        Touched {
            whole: true,
            ..Touched::attributes(ROOT_INODE, None, true)
        }
    }

    /// It has a name in another directory.
    pub fn moved(dentry: Dentry, to: InodeNumber, name: &[u8]) -> Touched {
        Touched {
            number: dentry.inode,
            generation: dentry.generation,
            via: Some(to),
            name: name.into(),
            deep: dentry.kind == FileKind::Directory,
            ..Touched::default()
        }
    }

    /// What is in it is closed part by part: see [`parts`].
    pub fn contents(number: InodeNumber, generation: u32) -> Touched {
        Touched {
            number,
            generation,
            contents: true,
            ..Touched::default()
        }
    }

    /// A name of it is gone, and others are left.
    pub fn unlinked(number: InodeNumber) -> Touched {
        Touched {
            number,
            unlinked: true,
            ..Touched::default()
        }
    }
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
                let class = |inode| Class::world().and(Condition::of(inode, Wish::Search));
                let wider = match (class(old), class(&new)) {
                    (None, _) => true,
                    (Some(_), None) => false,
                    (Some(old), Some(new)) => old.implies(&new),
                };
                touched.push(Touched::attributes(inode.inode, Some(*old), !wider));
            }
            for (_, dentry) in &inode.names_removed {
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
            for (name, dentry) in &inode.names_added {
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
