//! What a verified delta changes. All of it is applied in one atomic step.

use arck_core_state::directory::Dentry;
use arck_core_state::in_order::Place;
use arck_core_state::{FileKind, InodeNumber, PagePtr};
use std::borrow::Cow;

/// All changes of one fold; the names stand in the copied deltas.
#[derive(Clone, Debug, Default)]
pub struct Changes<'a> {
    /// Inodes that come alive, before anything else.
    pub creations: Vec<Creation>,
    /// One entry per inode of the fold set that has a branch or whose names change, in the order
    /// of the set; without those of `skipped` and `discarded`.
    pub inodes: Vec<InodeChange<'a>>,
    /// Change of the link count, for every inode that was there and gains or loses names, without
    /// zeros: for a file the names, for a directory nothing (the controller keeps 2 + subdirectories).
    pub links: Vec<(InodeNumber, i64)>,
    /// For every inode whose names came or went by records that say when: the last of these times. It
    /// is the inode's time of change unless that is later.
    pub times: Vec<(InodeNumber, i64)>,
    /// Directories that lose their only name: they are empty and die with the fold. Those that
    /// were inside others come first.
    pub removed_directories: Vec<InodeNumber>,
    /// Uncommitted inodes of the fold set that no name brings to life yet. Their deltas were not
    /// looked at: the controller must not advance their fold numbers.
    pub skipped: Vec<InodeNumber>,
    /// Uncommitted directories of the fold set that lost their name before they were created, but have
    /// records. What those did to other directories is among the changes, and what others did
    /// to them is folded, so the fold numbers must advance; there is nothing else to apply.
    pub discarded: Vec<InodeNumber>,
}

/// A new inode. Its first name is among the names added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creation {
    pub inode: InodeNumber,
    pub generation: u32,
    pub kind: FileKind,
    /// Permission bits (07777).
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub created: i64,
    /// The directory in which it is created.
    pub parent: InodeNumber,
    /// How many names it gets; of a directory one.
    pub names: u32,
}

/// A name that comes or goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedName<'a> {
    pub name: Cow<'a, [u8]>,
    /// The name's, by the directory's hash: [`VerifiedState::hash`](crate::VerifiedState::hash).
    pub hash: u64,
    pub dentry: Dentry,
    /// Of a name that goes: where it stood in the verified directory. A hint, for who looks whether it does.
    pub place: Option<Place>,
}

/// A changed inode; `None` = as verified.
#[derive(Clone, Debug)]
pub struct InodeChange<'a> {
    pub inode: InodeNumber,
    pub mode: Option<u32>,
    pub modified: Option<i64>,
    pub changed: Option<i64>,
    pub accessed: Option<i64>,
    /// Of a file or symbolic link, bytes.
    pub size: Option<u64>,
    /// Verified pages from this page number on are dropped, before `pages` is applied. Always
    /// set when a shorter file would leave verified pages beyond its end.
    pub limit: Option<u64>,
    /// Data pages set, in ascending order of page number; null = hole.
    pub pages: Vec<(u64, PagePtr)>,
    /// Page of the extended attributes; null = none any more.
    pub attributes: Option<PagePtr>,
    /// Of a directory: names taken away, before names are added. Both bucket by bucket: in the order of
    /// [`bucket_order`](arck_core_state::directory::bucket_order).
    pub names_removed: Vec<ChangedName<'a>>,
    pub names_added: Vec<ChangedName<'a>>,
}

#[cfg(any(test, feature = "testing"))]
impl Changes<'_> {
    /// The same without the deltas.
    pub fn into_owned(self) -> Changes<'static> {
        let own = |names: Vec<ChangedName<'_>>| {
            let names = names.into_iter().map(|changed| ChangedName {
                name: Cow::Owned(changed.name.into_owned()),
                ..changed
            });
            names.collect()
        };
        let inodes = self.inodes.into_iter().map(|change| InodeChange {
            inode: change.inode,
            mode: change.mode,
            modified: change.modified,
            changed: change.changed,
            accessed: change.accessed,
            size: change.size,
            limit: change.limit,
            pages: change.pages,
            attributes: change.attributes,
            names_removed: own(change.names_removed),
            names_added: own(change.names_added),
        });
        Changes {
            creations: self.creations,
            inodes: inodes.collect(),
            links: self.links,
            times: self.times,
            removed_directories: self.removed_directories,
            skipped: self.skipped,
            discarded: self.discarded,
        }
    }
}
