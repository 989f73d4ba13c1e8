//! Names: making, removing, renaming, linking, listing.

use super::*;
use crate::engine::patience::Patience;
use crate::names::by_message::Sent;
use arck_libfs_kit::messages::NO_OPEN_PLACE;
use arck_libfs_kit::views::{Directory, File};
use std::cell::Cell;

impl FileSystem {
    /// Gives number and generation of what it makes.
    pub(super) fn make(
        &self,
        at: At,
        path: &[u8],
        creation: Creation<'_>,
    ) -> Result<(InodeNumber, u32), Failure> {
        let start = self.start_of(at, path)?;
        let attempt = || {
            self.engine.run(|context| {
                context.walk(start, trim_end(path), false, |place| {
                    let Last::Name(name) = place.last else {
                        return Err(Errno::EXIST.into());
                    };
                    if path.ends_with(b"/") && creation.kind != FileKind::Directory {
                        return Err(context.only_a_directory(place.directory, name));
                    }
                    let made = context.create_name(place.directory, name, creation)?;
                    Ok(made.map(|made| (made.number(), made.generation())))
                })
            })
        };
        let was_full = Cell::new(false);
        let unlisted = (NO_OPEN_PLACE, 0);
        let send = |sent: &Sent| match self.engine.make_by_message(sent, &creation, unlisted) {
            // Its target needs a page, of which this session has some of its own where there are no others.
            Err(Errno::NOSPC) if !creation.target.is_empty() && !was_full.replace(true) => {
                self.engine.is_mediated_no_more(sent.directory);
                Err(Errno::BUSY)
            }
            made => made,
        };
        self.engine.here_or_by_message(attempt, send)
    }

    pub fn make_directory(&self, at: At, path: &[u8], mode: u32) -> Result<(), Failure> {
        self.make(
            at,
            path,
            Creation {
                kind: FileKind::Directory,
                mode: mode & 0o1777,
                target: b"",
                device: 0,
                opens: false,
                owner: self.engine.credentials.owner(),
                groups: &self.engine.credentials.groups,
            },
        )
        .map(|_| ())
    }

    /// `flags`: AT_REMOVEDIR.
    pub fn unlink(&self, at: At, path: &[u8], flags: AtFlags) -> Result<(), Failure> {
        let start = self.start_of(at, path)?;
        let directory = flags & libc::AT_REMOVEDIR != 0;
        let attempt = || {
            self.engine.run(|context| {
                context.walk(start, trim_end(path), false, |place| match place.last {
                    Last::Name(name) if directory => {
                        context.remove_directory(place.directory, name)
                    }
                    Last::Name(name) => {
                        if path.ends_with(b"/") {
                            if !place.directory.is_directory() {
                                return Err(Errno::NOTDIR.into());
                            }
                            let found = context.kit.lookup(place.directory, name)?;
                            let dentry = found.dentry.ok_or(Errno::NOENT)?;
                            let errno = if dentry.kind == FileKind::Directory {
                                Errno::ISDIR
                            } else {
                                Errno::NOTDIR
                            };
                            return Err(errno.into());
                        }
                        context.unlink_name(place.directory, name)
                    }
                    Last::Dot if directory => Err(Errno::INVAL.into()),
                    Last::DotDot if directory => Err(Errno::NOTEMPTY.into()),
                    _ => Err(Errno::ISDIR.into()),
                })
            })
        };
        let send = |sent: &Sent| self.engine.remove_by_message(sent, directory);
        let unlinked = self.engine.here_or_by_message(attempt, send);
        self.engine.kit().give_back();
        unlinked
    }

    /// `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE; EINVAL for others.
    pub fn rename(
        &self,
        from_at: At,
        from: &[u8],
        to_at: At,
        to: &[u8],
        flags: u32,
    ) -> Result<(), Failure> {
        use crate::names::changes::{EXCHANGE, End, NOREPLACE};
        if flags & !(NOREPLACE | EXCHANGE) != 0 || flags == NOREPLACE | EXCHANGE {
            return Err(Errno::INVAL.into());
        }
        let from_start = self.start_of(from_at, from)?;
        let to_start = self.start(to_at)?;
        let attempt = || {
            self.engine.run(|context| {
                // Neither name is followed, whatever stands behind it.
                context.walk(from_start, trim_end(from), false, |source| {
                    if to.is_empty() && !to_at.names_itself() {
                        return Err(Errno::NOENT.into());
                    }
                    context.walk(to_start, trim_end(to), false, |target| {
                        let Last::Name(from_name) = source.last else {
                            return Err(Errno::BUSY.into());
                        };
                        let Last::Name(to_name) = target.last else {
                            return Err(match flags & NOREPLACE {
                                0 => Errno::BUSY,
                                _ => Errno::EXIST,
                            }
                            .into());
                        };
                        let from_end = End {
                            directory: source.directory,
                            name: from_name,
                            slash: from.ends_with(b"/"),
                        };
                        let to_end = End {
                            directory: target.directory,
                            name: to_name,
                            slash: to.ends_with(b"/"),
                        };
                        let renamed = context.rename_name(from_end, to_end, flags)?;
                        Ok(match renamed {
                            Renamed::Done | Renamed::Nothing => None,
                            Renamed::ByMessage { from, to, victim } => {
                                Some((from, from_name.to_vec(), to, to_name.to_vec(), Some(victim)))
                            }
                            Renamed::ByController { from, to } => {
                                Some((from, from_name.to_vec(), to, to_name.to_vec(), None))
                            }
                        })
                    })
                })
            })
        };
        let mut patience = Patience::default();
        loop {
            let Some((from, from_name, to, to_name, sent)) = attempt()? else {
                self.engine.kit().give_back();
                return Ok(());
            };
            if sent.is_none() {
                let owned = [from, to];
                let owned = if from == to { &owned[..1] } else { &owned[..] };
                let other = if from == to { 0 } else { to };
                self.engine.kit().own([from, other, 0, 0])?;
                ownership::commit(self.engine.session, owned, false)?;
            }
            let moved = self.engine.session.ask(&Request::MoveDirectory {
                from,
                from_name,
                to,
                to_name,
                flags,
            });
            match moved {
                // They were mediated, or may not be reached for a moment while they are moved; it is looked at again.
                Err(Errno::STALE | Errno::BUSY | Errno::AGAIN | Errno::ACCESS)
                    if sent.is_some() && patience.is_left() => {}
                Err(Errno::STALE | Errno::BUSY) if sent.is_some() => {
                    return Err(Errno::AGAIN.into());
                }
                moved => {
                    moved?;
                    self.engine.has_lost_its_name(sent.flatten());
                    self.engine.kit().give_back();
                    return Ok(());
                }
            }
        }
    }

    /// `flags`: AT_SYMLINK_FOLLOW, AT_EMPTY_PATH.
    pub fn link(
        &self,
        from_at: At,
        from: &[u8],
        to_at: At,
        to: &[u8],
        flags: AtFlags,
    ) -> Result<(), Failure> {
        let empty = from.is_empty() && flags & libc::AT_EMPTY_PATH != 0;
        let from_start = if empty {
            self.start(from_at)?
        } else {
            self.start_of(from_at, from)?
        };
        let to_start = self.start(to_at)?;
        let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
        let attempt = || {
            self.engine.run(|context| {
                let target = if empty {
                    context.view(from_start.directory.0, from_start.directory.1)?
                } else {
                    context.resolve(from_start, from, follow)?
                };
                if to.is_empty() && !to_at.names_itself() {
                    return Err(Errno::NOENT.into());
                }
                context.walk(to_start, trim_end(to), false, |place| {
                    let Last::Name(name) = place.last else {
                        return Err(Errno::EXIST.into());
                    };
                    if to.ends_with(b"/") {
                        return Err(context.only_a_directory(place.directory, name));
                    }
                    context.add_link(target, place.directory, name)
                })
            })
        };
        let send = |sent: &Sent| self.engine.link_by_message(sent);
        self.engine.here_or_by_message(attempt, send)
    }

    pub fn symlink(&self, target: &[u8], at: At, path: &[u8]) -> Result<(), Failure> {
        if target.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if target.len() > PATH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        self.make(
            at,
            path,
            Creation {
                kind: FileKind::Link,
                mode: 0o777,
                target,
                device: 0,
                opens: false,
                owner: self.engine.credentials.owner(),
                groups: &self.engine.credentials.groups,
            },
        )
        .map(|_| ())
    }

    /// Number of bytes placed in `buffer` (truncated silently, as readlink does). With an empty
    /// path: of the link that `at` has open.
    pub fn read_link(&self, at: At, path: &[u8], buffer: &mut [u8]) -> Result<usize, Failure> {
        let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
        let otherwise = match path.is_empty() && !at.names_itself() {
            true => Errno::NOENT,
            false => Errno::INVAL,
        };
        self.on_path(at, path, flags, |context, inode| {
            if inode.kind() != Some(FileKind::Link) {
                return Err(otherwise.into());
            }
            let length = context.read_at(File::of(inode)?, buffer, 0)?;
            let whole = inode.size.load(Ordering::Relaxed).min(buffer.len() as u64);
            if (length as u64) < whole {
                return Err(Errno::FAULT.into());
            }
            Ok(length)
        })
    }

    /// S_IFREG, S_IFIFO, S_IFSOCK, S_IFCHR and S_IFBLK nodes. Devices are root's to make (else EPERM), but for the
    /// character device 0, and have this number, of which 32 bits count; devices cannot be
    /// opened (ENXIO). EPERM for a directory, EINVAL for what there is not.
    pub fn make_node(&self, at: At, path: &[u8], mode: u32, device: u64) -> Result<(), Failure> {
        let kind = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => FileKind::File,
            libc::S_IFIFO => FileKind::Pipe,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharacterDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            libc::S_IFDIR => return Err(Errno::PERM.into()),
            _ => return Err(Errno::INVAL.into()),
        };
        self.make(
            at,
            path,
            Creation {
                kind,
                mode: mode & 0o7777,
                target: b"",
                // The kernel's argument has no more.
                device: device as u32,
                opens: false,
                owner: self.engine.credentials.owner(),
                groups: &self.engine.credentials.groups,
            },
        )
        .map(|_| ())
    }

    /// Fills `buffer` with `linux_dirent64` records from the description's position on; 0 = end.
    /// EINVAL if the buffer is too small for the next entry, ENOENT if the directory was removed.
    pub fn read_directory(&self, handle: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        let description = self.engine.description(handle)?;
        // What is open for writing alone is no directory, which is found out below.
        if Engine::is_path_only(description) {
            return Err(Errno::BADF);
        }
        let cell = self.engine.offset_cell(description, &self.externals)?;
        let (number, generation) = description.identity()?;
        let gone = |inode: &CachedInode| {
            inode.generation() == generation && inode.is_directory() && inode.has(flag::UNLINKED)
        };
        if self.engine.kit().known(number).is_some_and(gone) {
            return Err(Errno::NOENT);
        }
        // Where the listing stands changes when the auxiliary state is built anew.
        let _inside = loop {
            let inside = self.engine.kit().inside()?;
            if !description.listing.load(Ordering::Acquire).is_null() {
                break inside;
            }
            drop(inside);
            let scratch = Cell::new(self.engine.listing.take());
            let listed = self.on_handle(handle, |context, inode| {
                if !inode.is_directory() {
                    return Err(Errno::NOTDIR.into());
                }
                if inode.has(flag::UNLINKED) {
                    return Err(Errno::NOENT.into());
                }
                context.snapshot(Directory::of(inode)?, scratch.take())
            });
            let listing = match listed {
                Err(denied @ (Errno::ACCESS | Errno::NOSPC)) => {
                    self.engine.list_by_message((number, generation), denied)?
                }
                listed => listed?,
            };
            self.engine.keep_listing(description, &listing)?;
            self.engine.listing.give_back(listing);
        };
        let region = self.engine.session.region();
        let end = description.listing_end.load(Ordering::Relaxed);
        let listing = description.listing.load(Ordering::Acquire);
        let mut position = cell.get()?;
        if position != 0 && position != description.listing_read.load(Ordering::Relaxed) {
            // Sought, or of another listing.
            let whole = region.bytes(listing, end as usize).ok_or(Errno::IO)?;
            position = listing::next_record(&whole, position);
        }
        let left = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let from = arck_libfs_kit::region::Offset::from_raw(listing.raw() + position);
        if left == 0 {
            return Ok(0);
        }
        let bytes = region.bytes(from, length).ok_or(Errno::IO)?;
        let (length, refused) = match bytes.try_copy_to(0, &mut buffer[..length]) {
            Ok(()) => (length, Errno::INVAL),
            Err(arck_libfs_kit::memory::Error::BadAddress(fault)) => {
                let mut first = vec![0; length];
                let fits =
                    bytes.copy_to(0, &mut first).is_some() && listing::whole_records(&first) != 0;
                (fault.copied, if fits { Errno::FAULT } else { Errno::INVAL })
            }
            Err(error) => return Err(error.errno()),
        };
        let used = listing::whole_records(&buffer[..length]);
        if used == 0 {
            return Err(refused);
        }
        let next = position + used as u64;
        description.listing_read.store(next, Ordering::Relaxed);
        cell.set(next)?;
        Ok(used)
    }

    /// The absolute path (mount prefix included) by which a directory, or a file, is reached now;
    /// for getcwd and /proc/self/fd. ENOENT if it was removed.
    pub fn path_of(&self, handle: Handle) -> Result<Vec<u8>, Errno> {
        let (number, generation) = self.engine.description(handle)?.identity()?;
        let path = self.engine.run_local(|context| {
            let mut names: Vec<Vec<u8>> = Vec::new();
            let mut at = context.view(number, generation)?;
            while at.number() != ROOT_INODE {
                if at.has(flag::UNLINKED) || names.len() > PATH_MAX / 2 {
                    return Err(Errno::NOENT.into());
                }
                if !at.is_directory() && at.holder.load(Ordering::Relaxed) == 0 {
                    return Err(Errno::NOENT.into());
                }
                let parent = context.parent(at)?;
                names.push(context.name_of(parent, at.number())?.ok_or(Errno::NOENT)?);
                at = parent.inode();
            }
            Ok(names)
        })?;
        let mut absolute = self.mount.clone();
        for name in path.iter().rev() {
            absolute.push(b'/');
            absolute.extend_from_slice(name);
        }
        if absolute.is_empty() {
            absolute.push(b'/');
        }
        Ok(absolute)
    }
}
