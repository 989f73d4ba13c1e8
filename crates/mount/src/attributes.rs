//! Attributes of inodes and of the pool, and extended attributes.

use crate::nodes::{Node, timestamp};
use crate::open::Open;
use crate::users::Session;
use arckfs::{Attributes, Errno, FileSystem, Handle, SetTime, Subject};
use fuser::TimeOrNow;
use std::sync::Arc;

/// An inode itself, whatever it is.
const ITSELF: i32 = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;

/// What is to be changed; nothing of it: nothing changes.
pub struct Changes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<TimeOrNow>,
    pub modified: Option<TimeOrNow>,
}

/// stat. ESTALE: it is gone.
pub fn of(fs: &FileSystem, node: Node) -> Result<Attributes, Errno> {
    let found = fs.stat(node.at(), b"", ITSELF);
    found.map_err(|failure| node.lost(failure))
}

fn time(wish: Option<TimeOrNow>) -> SetTime {
    match wish {
        None => SetTime::Omit,
        Some(TimeOrNow::Now) => SetTime::Now,
        Some(TimeOrNow::SpecificTime(time)) => SetTime::At(timestamp(time)),
    }
}

/// Changes attributes; `open` is by what the size is changed, if that is a descriptor, and `held` anything by which the
/// session has the inode open.
pub fn change(
    session: &Session,
    node: Node,
    open: Option<&Open>,
    held: impl FnOnce() -> Option<Arc<Open>>,
    changes: &Changes,
) -> Result<(), Errno> {
    if let Some(size) = changes.size {
        match open {
            Some(open) => {
                let (opener, handle) = open.enter()?;
                opener.truncate_handle(handle, size)?;
            }
            None => {
                let cut = session.enter()?.truncate(node.at(), b"", size);
                cut.map_err(|failure| node.lost(failure))?;
            }
        }
    }
    let fs = session.enter()?;
    if changes.uid.is_some() || changes.gid.is_some() {
        let [uid, gid] = [changes.uid, changes.gid].map(|id| id.unwrap_or(u32::MAX));
        let changed = fs.change_owner(node.at(), b"", uid, gid, ITSELF);
        match changed.map_err(|failure| node.lost(failure)) {
            // What has no name and was never folded is known by its being open alone.
            Err(Errno::AGAIN) => {
                let held = held().ok_or(Errno::AGAIN)?;
                fs.change_owner_handle(held.handle, uid, gid)?;
            }
            changed => changed?,
        }
    }
    if let Some(mode) = changes.mode {
        let changed = fs.change_mode(node.at(), b"", mode & 0o7777, ITSELF);
        changed.map_err(|failure| node.lost(failure))?;
    }
    let (accessed, modified) = (time(changes.accessed), time(changes.modified));
    let set = fs.set_times(node.at(), b"", accessed, modified, ITSELF);
    set.map_err(|failure| node.lost(failure))
}

/// getxattr: the value.
pub fn extended(
    fs: &FileSystem,
    node: Node,
    name: &[u8],
    room: usize,
) -> Result<(usize, Vec<u8>), Errno> {
    let mut value = vec![0; room];
    let length = fs.get_extended(Subject::Path(node.at(), b"", ITSELF), name, &mut value);
    let length = length.map_err(|failure| node.lost(failure))?;
    value.truncate(length);
    Ok((length, value))
}

/// listxattr: the names, each with a NUL.
pub fn extended_names(fs: &FileSystem, node: Node, room: usize) -> Result<(usize, Vec<u8>), Errno> {
    let mut names = vec![0; room];
    let length = fs.list_extended(Subject::Path(node.at(), b"", ITSELF), &mut names);
    let length = length.map_err(|failure| node.lost(failure))?;
    names.truncate(length);
    Ok((length, names))
}

/// setxattr.
pub fn set_extended(
    fs: &FileSystem,
    node: Node,
    name: &[u8],
    value: &[u8],
    flags: i32,
) -> Result<(), Errno> {
    let subject = Subject::Path(node.at(), b"", ITSELF);
    let set = fs.set_extended(subject, name, value, flags);
    set.map_err(|failure| node.lost(failure))
}

/// removexattr.
pub fn remove_extended(fs: &FileSystem, node: Node, name: &[u8]) -> Result<(), Errno> {
    let subject = Subject::Path(node.at(), b"", ITSELF);
    let removed = fs.remove_extended(subject, name);
    removed.map_err(|failure| node.lost(failure))
}

/// Before a file is written by who may not keep its set-id bits, through what another one has opened who may: they go.
/// Where that one may not either, writing takes them away by itself.
pub fn take_set_id(fs: &FileSystem, handle: Handle) -> Result<(), Errno> {
    let mode = fs.stat_handle(handle)?.mode & 0o7777;
    let group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    let kept = mode & !(0o4000 | group);
    if kept != mode {
        let _ = fs.change_mode_handle(handle, kept);
    }
    Ok(())
}
