//! A directory of tmpfs, through the kernel.

use super::Side;
use super::operation::{ACTORS, Base, Operation, Place, SLOTS, Subject, TimeChoice};
use super::outcome::{Outcome, View, set_time};
use crate::Random;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::path::PathBuf;

/// What the kernel adds to the flags of every file.
pub const LARGE_FILE: i32 = 0o100_000;
/// Longest piece of a file that is compared, from each end.
const PIECE: u64 = 1 << 19;

/// A directory of tmpfs, deep inside a temporary one, so that a path that leaves it by `..`
/// stays inside that.
pub struct HostSide {
    _temporary: tempfile::TempDir,
    path: PathBuf,
    root: OwnedFd,
    slots: [[Option<OwnedFd>; SLOTS]; ACTORS],
}

impl HostSide {
    #[allow(clippy::new_without_default)]
    pub fn new() -> HostSide {
        // Modes are given to ArckFS as the umask has left them.
        rustix::process::umask(Mode::empty());
        let temporary = tempfile::Builder::new()
            .prefix("arck-test-host-")
            .tempdir_in("/dev/shm")
            .expect("a directory in /dev/shm");
        let path = temporary.path().join("1/2/3/4/5/6/root");
        std::fs::create_dir_all(&path).expect("directories");
        let root = fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .expect("the directory just made");
        fs::fchmod(&root, Mode::from_bits_retain(0o755)).expect("chmod");
        HostSide {
            _temporary: temporary,
            path,
            root,
            slots: Default::default(),
        }
    }

    fn descriptor(&self, actor: usize, slot: usize) -> Result<BorrowedFd<'_>, Errno> {
        self.slots[actor][slot]
            .as_ref()
            .map(|descriptor| descriptor.as_fd())
            .ok_or(Errno::BADF)
    }

    fn at(&self, actor: usize, place: &Place) -> Result<BorrowedFd<'_>, Errno> {
        match place.base {
            Base::Root => Ok(self.root.as_fd()),
            Base::Slot(slot) => self.descriptor(actor, slot),
        }
    }

    /// That there is a descriptor where the subject says so.
    fn check_slot(&self, actor: usize, subject: &Subject) -> Result<(), Errno> {
        match subject {
            Subject::Slot(slot) => self.descriptor(actor, *slot).map(drop),
            Subject::Place(place, _) => self.at(actor, place).map(drop),
        }
    }

    /// A path of a descriptor, or of a place: the calls of extended attributes take no directory.
    fn path_of(&self, actor: usize, subject: &Subject) -> Result<(Vec<u8>, bool), Errno> {
        use std::os::fd::AsRawFd;
        let (base, path, follow) = match subject {
            Subject::Slot(slot) => {
                let descriptor = self.descriptor(actor, *slot)?;
                let flags = fs::fcntl_getfl(descriptor)?;
                if flags.contains(OFlags::PATH) {
                    return Err(Errno::BADF);
                }
                (descriptor, &[][..], true)
            }
            Subject::Place(place, flags) => {
                let base = self.at(actor, place)?;
                // A path that is too long is told by another call.
                match fs::statat(base, &place.path[..], at_flags(*flags)) {
                    Err(Errno::NAMETOOLONG) => return Err(Errno::NAMETOOLONG),
                    _ if place.path.is_empty() => return Err(Errno::NOENT),
                    _ => {}
                }
                (base, &place.path[..], *flags == 0)
            }
        };
        let mut text = format!("/proc/self/fd/{}", base.as_raw_fd()).into_bytes();
        if !path.is_empty() {
            text.push(b'/');
            text.extend_from_slice(path);
        }
        Ok((text, follow))
    }

    fn attempt(&mut self, actor: usize, operation: &Operation) -> Result<Outcome, Errno> {
        let descriptor = |slot: usize| self.descriptor(actor, slot);
        let at = |place: &Place| self.at(actor, place);
        match operation {
            Operation::Open {
                slot,
                place,
                flags,
                mode,
            } => {
                let opened = fs::openat(
                    at(place)?,
                    &place.path[..],
                    OFlags::from_bits_retain(*flags as u32),
                    Mode::from_bits_retain(*mode),
                )?;
                self.slots[actor][*slot] = Some(opened);
            }
            Operation::Close { slot } => {
                descriptor(*slot)?;
                self.close(actor, *slot);
            }
            Operation::Duplicate { from, to } => {
                let copy = rustix::io::dup(descriptor(*from)?)?;
                self.slots[actor][*to] = Some(copy);
            }
            Operation::Read {
                slot,
                length,
                position,
            } => {
                let mut buffer = vec![0xaa; *length];
                let descriptor = descriptor(*slot)?;
                let read = match position {
                    Some(position) => rustix::io::pread(descriptor, &mut buffer[..], *position)?,
                    None => rustix::io::read(descriptor, &mut buffer[..])?,
                };
                buffer.truncate(read);
                return Ok(Outcome::Bytes(buffer));
            }
            Operation::Write {
                slot,
                length,
                position,
                seed,
            } => {
                let data = Random::new(*seed).bytes(*length);
                let descriptor = descriptor(*slot)?;
                let written = match position {
                    Some(position) => rustix::io::pwrite(descriptor, &data, *position)?,
                    None => rustix::io::write(descriptor, &data)?,
                };
                return Ok(Outcome::Number(written as u64));
            }
            Operation::Seek {
                slot,
                offset,
                whence,
            } => {
                use std::os::fd::AsRawFd;
                let descriptor = descriptor(*slot)?.as_raw_fd();
                // SAFETY: no memory is passed.
                let seek = |offset, whence| unsafe { libc::lseek(descriptor, offset, whence) };
                let before = seek(0, libc::SEEK_CUR);
                let sought = checked(seek(*offset, *whence))?;
                if operation.is_about_holes() {
                    checked(seek(before, libc::SEEK_SET))?;
                }
                return Ok(Outcome::Number(sought));
            }
            Operation::TruncateHandle { slot, size } => fs::ftruncate(descriptor(*slot)?, *size)?,
            Operation::Truncate { place, size } => {
                use std::os::fd::AsRawFd;
                // There is no truncateat, but a path through /proc; too long a one is told by
                // another call.
                let base = at(place)?;
                if place.path.is_empty() {
                    return Err(Errno::NOENT);
                }
                let stat = fs::statat(base, &place.path[..], AtFlags::empty())?;
                if view(&stat).size == Some(*size) && stat.st_mode & libc::S_IFMT == libc::S_IFREG {
                    // tmpfs changes the times or does not, by what is allocated; POSIX says no.
                    return Ok(Outcome::Done);
                }
                let mut path = format!("/proc/self/fd/{}/", base.as_raw_fd()).into_bytes();
                path.extend_from_slice(&place.path);
                let path = std::ffi::CString::new(path).map_err(|_| Errno::INVAL)?;
                // SAFETY: `path` ends with NUL and lives until the call returns.
                let done = unsafe { libc::truncate(path.as_ptr(), *size as i64) };
                checked(i64::from(done))?;
            }
            Operation::Allocate {
                slot,
                offset,
                length,
            } => fs::fallocate(
                descriptor(*slot)?,
                fs::FallocateFlags::empty(),
                *offset,
                *length,
            )?,
            Operation::StatHandle { slot } => {
                return Ok(Outcome::Stat(view(&fs::fstat(descriptor(*slot)?)?)));
            }
            Operation::Stat { place, flags } => {
                let stat = fs::statat(at(place)?, &place.path[..], at_flags(*flags))?;
                return Ok(Outcome::Stat(view(&stat)));
            }
            Operation::Access { place, mode } => fs::accessat(
                at(place)?,
                &place.path[..],
                fs::Access::from_bits_retain(*mode),
                AtFlags::empty(),
            )?,
            Operation::ChangeMode { place, mode } => fs::chmodat(
                at(place)?,
                &place.path[..],
                Mode::from_bits_retain(*mode),
                AtFlags::empty(),
            )?,
            Operation::ChangeModeHandle { slot, mode } => {
                fs::fchmod(descriptor(*slot)?, Mode::from_bits_retain(*mode))?;
            }
            Operation::ChangeOwner {
                place,
                uid,
                gid,
                flags,
            } => fs::chownat(
                at(place)?,
                &place.path[..],
                (*uid != u32::MAX).then(|| fs::Uid::from_raw(*uid)),
                (*gid != u32::MAX).then(|| fs::Gid::from_raw(*gid)),
                at_flags(*flags),
            )?,
            Operation::SetTimes {
                place,
                accessed,
                modified,
                flags,
            } => {
                let at = at(place)?;
                let path = &place.path[..];
                fs::utimensat(at, path, &times(*accessed, *modified), at_flags(*flags))?;
                let mut stat = fs::statat(at, path, at_flags(*flags))?;
                if matches!(accessed, None | Some(None)) || place.path.contains(&b'/') {
                    // Walking through a link may change its time.
                    stat.st_atime = i64::MAX;
                }
                return Ok(Outcome::Stat(with_accessed(&stat)));
            }
            Operation::SetTimesHandle {
                slot,
                accessed,
                modified,
            } => fs::futimens(descriptor(*slot)?, &times(*accessed, *modified))?,
            Operation::MakeDirectory { place, mode } => {
                fs::mkdirat(at(place)?, &place.path[..], Mode::from_bits_retain(*mode))?
            }
            Operation::MakeNode { place, mode } => fs::mknodat(
                at(place)?,
                &place.path[..],
                fs::FileType::from_raw_mode(*mode),
                Mode::from_bits_retain(*mode & 0o7777),
                0,
            )?,
            Operation::SetExtended {
                subject,
                name,
                length,
                flags,
                seed,
            } => {
                let value = Random::new(*seed).bytes(*length);
                let flags = fs::XattrFlags::from_bits_retain(*flags as u32);
                self.check_slot(actor, subject)?;
                check_lengths(name, *length, flags)?;
                let (path, follow) = self.path_of(actor, subject)?;
                if follow {
                    fs::setxattr(&path[..], &name[..], &value, flags)?;
                } else {
                    fs::lsetxattr(&path[..], &name[..], &value, flags)?;
                }
            }
            Operation::GetExtended {
                subject,
                name,
                buffer,
            } => {
                self.check_slot(actor, subject)?;
                check_lengths(name, 0, fs::XattrFlags::empty())?;
                let (path, follow) = self.path_of(actor, subject)?;
                let mut value = vec![0; *buffer];
                let (path, name) = (&path[..], &name[..]);
                let length = match (follow, value.is_empty()) {
                    (true, true) => fs::getxattr_query(path, name)?,
                    (true, false) => fs::getxattr(path, name, &mut value[..])?,
                    (false, true) => fs::lgetxattr_query(path, name)?,
                    (false, false) => fs::lgetxattr(path, name, &mut value[..])?,
                };
                return Ok(attribute(length, value));
            }
            Operation::ListExtended { subject, buffer } => {
                let (path, follow) = self.path_of(actor, subject)?;
                let mut names = vec![0; *buffer];
                let path = &path[..];
                let length = match (follow, names.is_empty()) {
                    (true, true) => fs::listxattr_query(path)?,
                    (true, false) => fs::listxattr(path, &mut names[..])?,
                    (false, true) => fs::llistxattr_query(path)?,
                    (false, false) => fs::llistxattr(path, &mut names[..])?,
                };
                return Ok(attributes(length, names));
            }
            Operation::RemoveExtended { subject, name } => {
                self.check_slot(actor, subject)?;
                check_lengths(name, 0, fs::XattrFlags::empty())?;
                let (path, follow) = self.path_of(actor, subject)?;
                if follow {
                    fs::removexattr(&path[..], &name[..])?;
                } else {
                    fs::lremovexattr(&path[..], &name[..])?;
                }
            }
            Operation::Unlink { place } => {
                fs::unlinkat(at(place)?, &place.path[..], AtFlags::empty())?;
            }
            Operation::RemoveDirectory { place } => {
                fs::unlinkat(at(place)?, &place.path[..], AtFlags::REMOVEDIR)?;
            }
            Operation::Rename { from, to, flags } => fs::renameat_with(
                at(from)?,
                &from.path[..],
                at(to)?,
                &to.path[..],
                fs::RenameFlags::from_bits_retain(*flags),
            )?,
            Operation::Link { from, to, flags } => fs::linkat(
                at(from)?,
                &from.path[..],
                at(to)?,
                &to.path[..],
                at_flags(*flags),
            )?,
            Operation::Symlink { target, place } => {
                fs::symlinkat(&target[..], at(place)?, &place.path[..])?;
            }
            Operation::ReadLink { place, length } => {
                let mut buffer = vec![0; *length];
                let read = fs::readlinkat_raw(at(place)?, &place.path[..], &mut buffer[..])?;
                buffer.truncate(read);
                return Ok(Outcome::Bytes(buffer));
            }
            Operation::List { place, .. } => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let directory = fs::openat(at(place)?, &place.path[..], flags, Mode::empty())?;
                return list(directory.as_fd());
            }
            Operation::ListHandle { slot, .. } => {
                let descriptor = descriptor(*slot)?;
                let before = fs::seek(descriptor, fs::SeekFrom::Current(0))?;
                fs::seek(descriptor, fs::SeekFrom::Start(0))?;
                let listed = list(descriptor);
                let after = if listed.is_ok() { 0 } else { before };
                fs::seek(descriptor, fs::SeekFrom::Start(after))?;
                return listed;
            }
            Operation::Flags { slot } => {
                let flags = fs::fcntl_getfl(descriptor(*slot)?)?.bits() & !(LARGE_FILE as u32);
                return Ok(Outcome::Number(u64::from(flags)));
            }
            Operation::SetFlags { slot, flags } => {
                fs::fcntl_setfl(descriptor(*slot)?, OFlags::from_bits_retain(*flags as u32))?;
            }
            Operation::PathOf { slot } => {
                use std::os::fd::AsRawFd;
                let descriptor = descriptor(*slot)?;
                if view(&fs::fstat(descriptor)?).size.is_none() {
                    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
                    let path = fs::readlink(link, Vec::new())?.into_bytes();
                    if path.ends_with(b" (deleted)") {
                        return Err(Errno::NOENT);
                    }
                    let root = self.path.as_os_str().len();
                    return Ok(Outcome::Bytes(path[root..].to_vec()));
                }
            }
            Operation::Sync { slot } => fs::fsync(descriptor(*slot)?)?,
            Operation::Content { place } => {
                let file = fs::openat(
                    at(place)?,
                    &place.path[..],
                    OFlags::RDONLY | OFlags::NOATIME,
                    Mode::empty(),
                )?;
                let content = pieces(
                    || Ok(fs::fstat(&file)?.st_size as u64),
                    |buffer, at| rustix::io::pread(&file, buffer, at),
                )?;
                return Ok(Outcome::Bytes(content));
            }
            Operation::Fold { .. } | Operation::Compare | Operation::Restart | Operation::Kill => {}
        }
        Ok(Outcome::Done)
    }

    /// Closes everything.
    pub fn close_all(&mut self) {
        self.slots = Default::default();
    }
}

impl Side for HostSide {
    fn stamps(&mut self, actor: usize, subject: &Subject) -> Option<[i64; 2]> {
        let stat = match subject {
            Subject::Slot(slot) => fs::fstat(self.descriptor(actor, *slot).ok()?).ok()?,
            Subject::Place(place, flags) => {
                let base = self.at(actor, place).ok()?;
                fs::statat(base, &place.path[..], at_flags(*flags)).ok()?
            }
        };
        let time = |seconds: i64, nanoseconds: u64| seconds * 1_000_000_000 + nanoseconds as i64;
        Some([
            time(stat.st_mtime, stat.st_mtime_nsec),
            time(stat.st_ctime, stat.st_ctime_nsec),
        ])
    }

    fn apply(&mut self, actor: usize, operation: &Operation) -> Outcome {
        match self.attempt(actor, operation) {
            Ok(outcome) => outcome,
            Err(errno) => Outcome::Error(errno),
        }
    }

    fn close(&mut self, actor: usize, slot: usize) {
        self.slots[actor][slot] = None;
    }
}

fn checked(result: i64) -> Result<u64, Errno> {
    u64::try_from(result)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// What the kernel checks before it looks at the path, which is looked at here first.
fn check_lengths(name: &[u8], length: usize, flags: fs::XattrFlags) -> Result<(), Errno> {
    if flags.bits() > 3 {
        return Err(Errno::INVAL);
    }
    if name.is_empty() || name.len() > 255 {
        return Err(Errno::RANGE);
    }
    if length > 65_536 {
        return Err(Errno::TOOBIG);
    }
    Ok(())
}

/// The value of an attribute; its length if that was all that was asked for.
pub fn attribute(length: usize, mut value: Vec<u8>) -> Outcome {
    if value.is_empty() {
        return Outcome::Number(length as u64);
    }
    value.truncate(length);
    Outcome::Bytes(value)
}

/// Names of attributes, sorted; their length if that was all that was asked for.
pub fn attributes(length: usize, names: Vec<u8>) -> Outcome {
    if names.is_empty() {
        return Outcome::Number(length as u64);
    }
    let names = names[..length].split_inclusive(|&byte| byte == 0);
    let mut names: Vec<_> = names.map(|name| (name.to_vec(), 0)).collect();
    names.sort();
    Outcome::Names(names)
}

fn at_flags(flags: i32) -> AtFlags {
    AtFlags::from_bits_retain(flags as u32)
}

fn times(accessed: TimeChoice, modified: TimeChoice) -> fs::Timestamps {
    let one = |choice: TimeChoice| match choice {
        None => fs::Timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        },
        Some(None) => fs::Timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_NOW,
        },
        Some(Some((seconds, nanoseconds))) => fs::Timespec {
            tv_sec: seconds,
            tv_nsec: i64::from(nanoseconds),
        },
    };
    fs::Timestamps {
        last_access: one(accessed),
        last_modification: one(modified),
    }
}

fn view(stat: &fs::Stat) -> View {
    let directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    View {
        mode: stat.st_mode,
        links: stat.st_nlink,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: (!directory).then_some(stat.st_size as u64),
        modified: set_time(stat.st_mtime, stat.st_mtime_nsec as u32),
        accessed: None,
    }
}

fn with_accessed(stat: &fs::Stat) -> View {
    View {
        accessed: set_time(stat.st_atime, stat.st_atime_nsec as u32),
        ..view(stat)
    }
}

fn list(directory: BorrowedFd<'_>) -> Result<Outcome, Errno> {
    let mut buffer = Vec::with_capacity(1 << 16);
    let mut entries = fs::RawDir::new(directory, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let kind = match entry.file_type() {
            fs::FileType::Directory => libc::DT_DIR,
            fs::FileType::Symlink => libc::DT_LNK,
            fs::FileType::RegularFile => libc::DT_REG,
            fs::FileType::Fifo => libc::DT_FIFO,
            fs::FileType::Socket => libc::DT_SOCK,
            _ => libc::DT_UNKNOWN,
        };
        names.push((entry.file_name().to_bytes().to_vec(), kind));
    }
    names.sort();
    Ok(Outcome::Names(names))
}

/// Names and types in a buffer of `linux_dirent64`.
pub fn parse_entries(mut bytes: &[u8], names: &mut Vec<(Vec<u8>, u8)>) {
    while bytes.len() > 19 {
        let length = usize::from(u16::from_ne_bytes([bytes[16], bytes[17]]));
        let name = &bytes[19..length];
        let end = name.iter().position(|&byte| byte == 0).expect("a NUL");
        names.push((name[..end].to_vec(), bytes[18]));
        bytes = &bytes[length..];
    }
}

/// The whole of a short file; of a long one its beginning and its end.
pub fn pieces(
    size: impl FnOnce() -> Result<u64, Errno>,
    mut read: impl FnMut(&mut [u8], u64) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    let size = size()?;
    let mut content = Vec::new();
    let ranges = if size <= 2 * PIECE {
        [0..size, 0..0]
    } else {
        [0..PIECE, size - PIECE..size]
    };
    for mut range in ranges {
        while range.start < range.end {
            let mut buffer = vec![0xaa; (range.end - range.start).min(1 << 16) as usize];
            let got = read(&mut buffer, range.start)?;
            if got == 0 {
                return Err(Errno::NODATA);
            }
            content.extend_from_slice(&buffer[..got]);
            range.start += got as u64;
        }
    }
    Ok(content)
}
