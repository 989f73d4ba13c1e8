//! Path resolution.
//!
//! # Invariants
//! * Every directory that is searched is checked for search permission (EACCES); a component's
//!   length is checked where it is looked up (ENAMETOOLONG); forty symbolic links are followed,
//!   then ELOOP; of each that is the last of its path, whose it is counts
//!   ([`protected`](crate::names::protected)).
//! * A path that leaves the pool is not resolved here but given back as
//!   [`Failure::Outside`](crate::Failure::Outside), an absolute path of the host; but one that comes back to where the pool
//!   is mounted, read lexically, goes on at the root.

use super::Context;
use crate::interface::Errno;
use arck_libfs_kit::engine::Attempt;
use arck_libfs_kit::format::PATH_MAX;
use arck_libfs_kit::format::directory::Dentry;
use arck_libfs_kit::format::{FileKind, ROOT_INODE};
use arck_libfs_kit::names::lookup::{Before, Found};
use arck_libfs_kit::views::{CachedInode, Directory, File};
use std::sync::atomic::Ordering;

/// Symbolic links followed in one resolution.
const LINKS_MAX: u32 = 40;

/// Where a walk begins, and where the pool is mounted.
#[derive(Clone, Copy)]
pub struct Start<'p> {
    /// A directory's number and generation.
    pub directory: (u32, u32),
    pub mount: &'p [u8],
    /// The last name is for a file that may be made: with a slash behind it, also that of a
    /// link's target, it cannot be, and is not looked up.
    pub creating: bool,
    /// `RESOLVE_*` flags of openat2; none as a rule.
    pub resolve: u64,
}

/// Every link that would be followed is ELOOP.
const NO_SYMLINKS: u64 = libc::RESOLVE_NO_SYMLINKS;
/// Leaving the pool is EXDEV, also to come back.
const NO_XDEV: u64 = libc::RESOLVE_NO_XDEV;
/// Leading out of the starting directory is EXDEV.
const BENEATH: u64 = libc::RESOLVE_BENEATH;
/// The starting directory is its own parent and where absolute links begin.
const IN_ROOT: u64 = libc::RESOLVE_IN_ROOT;

/// The end of a walk.
pub struct Place<'p> {
    /// The directory that holds the last component.
    pub directory: Directory,
    pub last: Last<'p>,
    /// The path ended with a slash: the name must be, or become, a directory.
    pub slash: bool,
    /// What the last name leads to, if it has been looked up on the way and is there.
    pub known: Option<Dentry>,
    /// That it is not there, if it has been looked up to be made.
    pub absent: Option<&'p (Before, Found)>,
}

/// Last component of a path.
pub enum Last<'p> {
    /// The starting directory itself (an empty rest, `.`).
    Dot,
    /// `..`: `directory` is already the parent.
    DotDot,
    Name(&'p [u8]),
}

/// A path being rewritten by symbolic links: what is left to walk.
struct Rest {
    bytes: [u8; 2 * PATH_MAX + 2],
    from: usize,
}

enum Outcome<'p> {
    Ended(Place<'p>),
    /// The last component is a symbolic link to be followed, or an inner one was met: go on
    /// from this directory with the target before the rest.
    Link {
        directory: Directory,
        link: Dentry,
        rest: &'p [u8],
    },
}

impl Context<'_> {
    /// The root directory's view.
    pub fn root(&self) -> Attempt<Directory> {
        let generation = self.header(ROOT_INODE)?.generation();
        Ok(Directory::of(self.view(ROOT_INODE, generation)?)?)
    }

    fn start(&self, start: Start<'_>) -> Attempt<Directory> {
        Ok(Directory::of(
            self.view(start.directory.0, start.directory.1)?,
        )?)
    }

    /// Walks to the directory of the last component. `follow`: the last component, if it is a
    /// symbolic link, is followed. Calls `end` with the place; the name in it lives only then.
    #[inline]
    pub fn walk<T>(
        &self,
        start: Start<'_>,
        path: &[u8],
        follow: bool,
        end: impl FnOnce(&Place<'_>) -> Attempt<T>,
    ) -> Attempt<T> {
        if path.len() > PATH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        if let Some((directory, name)) = self.remembered(start.directory, path, start.creating)?
            && name != b"."
            && name != b".."
        {
            self.credentials.check(&directory, 1)?;
            let (mut absent, looked);
            absent = None;
            let known = match follow {
                true if start.creating => {
                    let hash = self.hash(name);
                    let before = Before::of(self, directory, hash);
                    looked = (before, self.kit.lookup_hashed(directory, name, hash)?);
                    if looked.1.dentry.is_none() {
                        absent = Some(&looked);
                    }
                    looked.1.dentry
                }
                true => self.kit.dentry(directory, name)?,
                false => None,
            };
            return match known {
                Some(link) if link.kind == FileKind::Link => {
                    self.view_of(directory, name, link)?;
                    self.walk_links(start, directory, link, b"", follow, end)
                }
                known => end(&Place {
                    directory,
                    last: Last::Name(name),
                    slash: false,
                    known,
                    absent,
                }),
            };
        }
        let directory = match start.creating && !path.contains(&b'/') {
            true => {
                let start = self.view_to_change(start.directory.0, start.directory.1);
                Directory::of(start.map_err(|stop| self.to_create(stop, path, true))?)?
            }
            false => self.start(start)?,
        };
        match self.steps(start, directory, path, follow)? {
            Outcome::Ended(place) => end(&place),
            Outcome::Link {
                directory,
                link,
                rest,
            } => self.walk_links(start, directory, link, rest, follow, end),
        }
    }

    /// Goes on after the first symbolic link; apart, because it needs a buffer.
    #[cold]
    fn walk_links<T>(
        &self,
        start: Start<'_>,
        directory: Directory,
        link: Dentry,
        rest: &[u8],
        follow: bool,
        end: impl FnOnce(&Place<'_>) -> Attempt<T>,
    ) -> Attempt<T> {
        let mut buffers = [Rest::new(), Rest::new()];
        let mut from = directory;
        let mut target = link;
        let mut is_last = trim_slashes(rest).is_empty();
        buffers[0].set(rest);
        let mut current = 0;
        for _ in 0..LINKS_MAX {
            let link = self.view(target.inode, target.generation)?;
            if is_last {
                self.may_follow(from, link)?;
            }
            if start.resolve & NO_SYMLINKS != 0 {
                return Err(Errno::LOOP.into());
            }
            let (one, two) = buffers.split_at_mut(1);
            let (old, new) = if current == 0 {
                (&one[0], &mut two[0])
            } else {
                (&two[0], &mut one[0])
            };
            self.put_target(link, old.as_slice(), new)?;
            current = 1 - current;
            let mut path = buffers[current].as_slice();
            if path.first() == Some(&b'/') {
                // The root that it begins at is not the pool's.
                if start.resolve & BENEATH != 0 || start.resolve & (NO_XDEV | IN_ROOT) == NO_XDEV {
                    return Err(Errno::XDEV.into());
                }
                if start.resolve & IN_ROOT != 0 {
                    from = self.start(start)?;
                } else {
                    path = back(start.mount, &[], path)
                        .ok_or_else(|| self.leads_outside(path.to_vec()))?;
                    from = self.root()?;
                }
            }
            match self.steps(start, from, path, follow)? {
                Outcome::Ended(place) => return end(&place),
                Outcome::Link {
                    directory,
                    link,
                    rest,
                } => {
                    from = directory;
                    target = link;
                    is_last = trim_slashes(rest).is_empty();
                    let rest = rest.len();
                    buffers[current].keep_last(rest);
                }
            }
        }
        Err(Errno::LOOP.into())
    }

    /// Reads a link's target and puts it, and what is left of the path, into `new`.
    fn put_target(&self, link: &'static CachedInode, rest: &[u8], new: &mut Rest) -> Attempt<()> {
        let size = link.size.load(Ordering::Relaxed) as usize;
        if size == 0 || size > PATH_MAX {
            return Err(Errno::NOENT.into());
        }
        new.from = 0;
        let read = self.read_at(File::of(link)?, &mut new.bytes[..size], 0)?;
        if read != size {
            return Err(Errno::IO.into());
        }
        let mut length = size;
        if !rest.is_empty() {
            if size + 1 + rest.len() > 2 * PATH_MAX {
                // It is links leading through themselves that make a path this long.
                return Err(Errno::LOOP.into());
            }
            new.bytes[size] = b'/';
            new.bytes[size + 1..size + 1 + rest.len()].copy_from_slice(rest);
            length += 1 + rest.len();
        }
        // The path stands at the end of the buffer, so that its rests are cheap to keep.
        let capacity = new.bytes.len();
        new.bytes.copy_within(..length, capacity - length);
        new.from = capacity - length;
        Ok(())
    }

    fn steps<'p>(
        &self,
        start: Start<'_>,
        from: Directory,
        path: &'p [u8],
        follow: bool,
    ) -> Attempt<Outcome<'p>> {
        let mut directory = from;
        let mut path = trim_slashes(path);
        loop {
            let end = path
                .iter()
                .position(|&byte| byte == b'/')
                .unwrap_or(path.len());
            let (name, behind) = path.split_at(end);
            let rest = trim_slashes(behind);
            let slash = !behind.is_empty();
            if name.is_empty() {
                return Ok(Outcome::Ended(Place {
                    directory,
                    last: Last::Dot,
                    slash: true,
                    known: None,
                    absent: None,
                }));
            }
            self.credentials.check(&directory, 1)?;
            if name == b"." {
                if rest.is_empty() {
                    return Ok(Outcome::Ended(Place {
                        directory,
                        last: Last::Dot,
                        slash: true,
                        known: None,
                        absent: None,
                    }));
                }
                path = rest;
                continue;
            }
            if name == b".." {
                let confined = start.resolve & (BENEATH | IN_ROOT) != 0
                    && directory.number() == start.directory.0;
                if confined && start.resolve & BENEATH != 0 {
                    return Err(Errno::XDEV.into());
                }
                if !confined {
                    if directory.number() == ROOT_INODE {
                        let parent = parent_of(start.mount);
                        let crosses = start.resolve & NO_XDEV != 0;
                        match back(start.mount, parent, rest).filter(|_| !crosses) {
                            Some(inside) => {
                                path = inside;
                                continue;
                            }
                            None => return Err(self.leads_outside(above(parent, rest))),
                        }
                    }
                    directory = self.parent(&directory)?;
                }
                if rest.is_empty() {
                    return Ok(Outcome::Ended(Place {
                        directory,
                        last: Last::DotDot,
                        slash: true,
                        known: None,
                        absent: None,
                    }));
                }
                path = rest;
                continue;
            }
            let place = Place {
                directory,
                last: Last::Name(name),
                slash,
                known: None,
                absent: None,
            };
            if rest.is_empty() && ((!follow && !slash) || (slash && start.creating)) {
                return Ok(Outcome::Ended(place));
            }
            match self.kit.dentry(directory, name)? {
                Some(dentry) if dentry.kind == FileKind::Link => {
                    if rest.is_empty() && !follow && !slash {
                        return Ok(Outcome::Ended(place));
                    }
                    self.view_of(directory, name, dentry)?;
                    // A slash behind a link stays: what the link leads to must be a directory.
                    let rest = if rest.is_empty() { behind } else { rest };
                    return Ok(Outcome::Link {
                        directory,
                        link: dentry,
                        rest,
                    });
                }
                known if rest.is_empty() => return Ok(Outcome::Ended(Place { known, ..place })),
                Some(dentry) => {
                    directory = Directory::of(self.view_of(directory, name, dentry)?)?;
                }
                None => return Err(Errno::NOENT.into()),
            }
            path = rest;
        }
    }

    /// The directory in which an inode is. ENOENT for one that was removed, if that has gone since.
    pub fn parent(&self, inode: &CachedInode) -> Attempt<Directory> {
        let (number, generation) = self.holder(inode)?;
        Ok(Directory::of(self.view(number, generation)?)?)
    }

    /// Walks to an existing inode.
    #[inline]
    pub fn resolve(
        &self,
        start: Start<'_>,
        path: &[u8],
        follow: bool,
    ) -> Attempt<&'static CachedInode> {
        self.walk(start, path, follow, |place| {
            let Last::Name(name) = place.last else {
                return Ok(place.directory.inode());
            };
            self.credentials.check(&place.directory, 1)?;
            let dentry = match place.known {
                Some(dentry) => dentry,
                None => self
                    .kit
                    .dentry(place.directory, name)?
                    .ok_or(Errno::NOENT)?,
            };
            let inode = self.view_of(place.directory, name, dentry)?;
            if place.slash && !inode.is_directory() {
                return Err(Errno::NOTDIR.into());
            }
            Ok(inode)
        })
    }
}

impl Rest {
    fn new() -> Rest {
        Rest {
            bytes: [0; 2 * PATH_MAX + 2],
            from: 2 * PATH_MAX + 2,
        }
    }
    fn as_slice(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
    fn set(&mut self, path: &[u8]) {
        self.from = self.bytes.len() - path.len();
        self.bytes[self.from..].copy_from_slice(path);
    }
    fn keep_last(&mut self, length: usize) {
        self.from = self.bytes.len() - length;
    }
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let start = path
        .iter()
        .position(|&byte| byte != b'/')
        .unwrap_or(path.len());
    &path[start..]
}

/// The directory that the mount point is in; empty for the host's root.
fn parent_of(mount: &[u8]) -> &[u8] {
    let parent = mount.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    &mount[..parent]
}

/// What is left of a path that begins in the host's directory `from` (an ancestor of the mount;
/// empty for its root) when it has come to the mount, without leading slashes. The host's
/// directories are passed lexically, as the preload library passes them.
fn back<'p>(mount: &[u8], from: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    // Where the path is: below so many bytes of the mount's name, and so many names off it.
    let (mut along, mut off) = (from.len(), 0u32);
    let mut rest = trim_slashes(path);
    while !rest.is_empty() && along < mount.len() {
        let end = rest.iter().position(|&byte| byte == b'/');
        let (name, behind) = rest.split_at(end.unwrap_or(rest.len()));
        rest = trim_slashes(behind);
        let next = mount.get(along + 1..)?;
        match name {
            b"." => {}
            b".." if off > 0 => off -= 1,
            b".." => along = parent_of(&mount[..along]).len(),
            _ if off == 0
                && next.starts_with(name)
                && matches!(next.get(name.len()), None | Some(b'/')) =>
            {
                along += 1 + name.len();
            }
            _ => off += 1,
        }
    }
    (along == mount.len()).then_some(rest)
}

/// `..` at the root: the directory that the mount point is in.
fn above(parent: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut path = parent.to_vec();
    path.push(b'/');
    path.extend_from_slice(rest);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_back() {
        let from_root = |path| back(b"/arck", b"", path);
        assert_eq!(from_root(b"arck"), Some(&b""[..]));
        assert_eq!(from_root(b"/arck//x/../y/"), Some(&b"x/../y/"[..]));
        assert_eq!(from_root(b"./../../arck/x"), Some(&b"x"[..]));
        assert_eq!(from_root(b"tmp/./a/.././../arck/x"), Some(&b"x"[..]));
        for outside in [
            &b""[..],
            b"/",
            b".",
            b"..",
            b"arc",
            b"arckx",
            b"arckx/arck",
            b"tmp/arck",
            b"tmp/../tmp/arck/..",
        ] {
            assert_eq!(from_root(outside), None, "{outside:?}");
        }
        let mount = b"/a/bb/c";
        assert_eq!(parent_of(mount), b"/a/bb");
        let from_parent = |path| back(mount, parent_of(mount), path);
        assert_eq!(from_parent(b"c/d"), Some(&b"d"[..]));
        assert_eq!(from_parent(b"../bb/c/d"), Some(&b"d"[..]));
        assert_eq!(from_parent(b"../../../a/bb/c"), Some(&b""[..]));
        assert_eq!(from_parent(b"../b/../bb/x/../c/d"), Some(&b"d"[..]));
        assert_eq!(from_parent(b"../c"), None);
        assert_eq!(from_parent(b"../../bb/c"), None);
        assert_eq!(from_parent(b"../b/c"), None);
        assert_eq!(back(mount, b"", b"/a/bb/c"), Some(&b""[..]));
        assert_eq!(back(mount, b"", b"/a/bb"), None);
    }
}
