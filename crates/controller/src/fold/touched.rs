//! What a change may have given a tighter class: it is looked at when the fold is done, by [`crate::access`].

use arck_core_state::directory::Dentry;
use arck_core_state::{FileKind, Inode, InodeNumber, ROOT_INODE};

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
