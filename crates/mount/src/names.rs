//! Names: looking them up, making them, taking them away.
//!
//! Invariant: a name is looked up in the directory whose inode the kernel names, never by a path from the root: what is
//! moved meanwhile makes no difference.

use crate::errno;
use crate::nodes::Node;
use arckfs::{Attributes, Errno, FileSystem};

const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;

/// What a new name is to be.
pub enum Made<'t> {
    Directory(u32),
    /// Mode with kind, and a device's number.
    Node(u32, u32),
    Link(&'t [u8]),
    /// Another name of this.
    Another(Node),
}

/// What a name leads to, not followed. ENOENT.
pub fn look_up(fs: &FileSystem, directory: Node, name: &[u8]) -> Result<Attributes, Errno> {
    // The kernel knows the parents of directories, and asks for none by name.
    fs.stat(directory.at(), name, NOFOLLOW).map_err(errno)
}

/// Makes a name; what it leads to.
pub fn make(
    fs: &FileSystem,
    directory: Node,
    name: &[u8],
    made: Made<'_>,
) -> Result<Attributes, Errno> {
    let at = directory.at();
    match made {
        Made::Directory(mode) => fs.make_directory(at, name, mode),
        Made::Node(mode, device) => fs.make_node(at, name, mode, u64::from(device)),
        Made::Link(target) => fs.symlink(target, at, name),
        Made::Another(node) => fs.link(node.at(), b"", at, name, libc::AT_EMPTY_PATH),
    }
    .map_err(errno)?;
    look_up(fs, directory, name)
}

/// unlink and rmdir.
pub fn remove(
    fs: &FileSystem,
    directory: Node,
    name: &[u8],
    is_directory: bool,
) -> Result<(), Errno> {
    let flags = if is_directory { libc::AT_REMOVEDIR } else { 0 };
    fs.unlink(directory.at(), name, flags).map_err(errno)
}

/// Whether what has lost the name by which it was found has none left: it is gone, its number may be another's already,
/// and is not used by another as long as it is open.
pub fn was_last(fs: &FileSystem, found: &Attributes) -> bool {
    match fs
        .stat(Node::from(found).at(), b"", NOFOLLOW)
        .map_err(errno)
    {
        Ok(now) => now.links == 0 || now.created != found.created,
        Err(errno) => matches!(errno, Errno::STALE | Errno::NOENT),
    }
}

/// A name in a directory.
pub type Place<'n> = (Node, &'n [u8]);

/// rename, with its flags.
pub fn rename(fs: &FileSystem, from: Place<'_>, to: Place<'_>, flags: u32) -> Result<(), Errno> {
    fs.rename(from.0.at(), from.1, to.0.at(), to.1, flags)
        .map_err(errno)
}

/// Where a symbolic link leads.
pub fn read_link(fs: &FileSystem, link: Node) -> Result<Vec<u8>, Errno> {
    let mut target = vec![0; libc::PATH_MAX as usize];
    let length = fs.read_link(link.at(), b"", &mut target);
    let length = length.map_err(|failure| link.lost(failure))?;
    target.truncate(length);
    Ok(target)
}
