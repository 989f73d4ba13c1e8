//! What the verifier asks.

use arck_core_state::directory::Dentry;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::in_order::{Place, Sought};
use arck_core_state::{FileKind, HeaderCopy, Inode, InodeNumber, PagePtr};

/// Verified state, as the controller's own tables tell it (shadow inodes).
pub trait VerifiedState {
    /// Header of an inode number; `None` beyond the table.
    fn header(&self, number: InodeNumber) -> Option<HeaderCopy>;
    /// Shadow inode, of orphans too; `None` if the number is not alive (granted, free).
    fn inode(&self, number: InodeNumber) -> Option<Inode>;
    /// A name in a verified directory.
    fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Option<Dentry> {
        self.lookup_hashed(directory, self.hash(name), name)
    }
    /// The same, of a name whose hash is known.
    fn lookup_hashed(&self, directory: InodeNumber, hash: u64, name: &[u8]) -> Option<Dentry>;
    /// Names in a verified directory, which stand in the order of buckets: `each` is told of every one, with its place
    /// among them, what it leads to, and where it stands as far as that is known.
    fn lookup_all(
        &self,
        directory: InodeNumber,
        sought: &[Sought<'_>],
        each: &mut dyn FnMut(usize, Option<(Dentry, Option<Place>)>),
    ) {
        for (at, Sought { hash, name }) in sought.iter().enumerate() {
            let found = self.lookup_hashed(directory, *hash, name);
            each(at, found.map(|dentry| (dentry, None)));
        }
    }
    /// A number that stays while no name of any verified directory changes; `None`: who asks twice looks twice.
    fn revision(&self) -> Option<u64> {
        None
    }
    /// A name's hash, by which it is found in a verified directory.
    fn hash(&self, name: &[u8]) -> u64;
    /// The verified data page at `page` of a file; null for a hole.
    fn data_page(&self, number: InodeNumber, page: u64) -> PagePtr;
    /// Whether a page is referred to by the verified state.
    fn page_in_use(&self, page: PagePtr) -> bool;
    /// The session to which the page's segment is granted for data; `None` for metadata
    /// segments, segments of nobody and pages outside the pool.
    fn data_segment_owner(&self, page: PagePtr) -> Option<SessionNumber>;
}

/// Who made the delta.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    pub session: SessionNumber,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
    /// Classic permission check: `wanted` is a mask of 4 (read), 2 (write), 1 (search).
    pub fn may(&self, inode: &Inode, wanted: u32) -> bool {
        if self.is_root() {
            // Root needs one execute bit somewhere to execute a file; search it always may.
            return true;
        }
        let bits = if self.uid == inode.uid {
            inode.mode >> 6
        } else if self.in_group(inode.gid) {
            inode.mode >> 3
        } else {
            inode.mode
        };
        bits & wanted & 7 == wanted & 7
    }
}

/// Whether the user may change the contents of `inode`: data of a file, names of a directory.
pub(crate) fn may_write(who: &Credentials, inode: &Inode) -> bool {
    let wanted = if is_directory(inode) { 3 } else { 2 };
    who.uid == inode.uid || who.may(inode, wanted)
}

/// Whether the user may set an inode's times as he likes.
pub fn may_touch(who: &Credentials, inode: &Inode) -> bool {
    who.is_root() || who.uid == inode.uid || may_write(who, inode)
}

/// Whether names may stand in it at all.
pub(crate) fn is_directory(inode: &Inode) -> bool {
    inode.kind() == Some(FileKind::Directory)
}
