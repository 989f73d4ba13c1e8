//! Which paths are the pool's.
//!
//! A path is the pool's if, made absolute against the working directory and read lexically, it
//! lies at or below the mount prefix; or if it is relative to a pool directory. What starts with
//! the prefix and leads out again (`/arck/../etc`) is left to the LibFS, which knows the
//! directories and answers `Outside`.
//!
//! Invariant: paths that are not the pool's cost a comparison of the first component and, if
//! absolute, one scan for `/..`; nothing is copied.

pub mod below;

use crate::backend::{At, Errno, Failure, inside};
use crate::descriptors::{self, Descriptor};
use crate::memory::{self, Text};
use crate::settings::{self, PATH_MAX};
use crate::{directory, raw};
use below::strip;
pub use below::{below_mount, room};

/// Where a path leads.
#[derive(Debug)]
pub enum Place<'a> {
    /// To the kernel, unchanged.
    Kernel,
    /// To the LibFS.
    Pool(At, &'a [u8]),
    /// Nowhere: the error to return.
    Error(isize),
}

/// Room for a path that has to be rewritten, which few have: it is not on the stack, of which the
/// program may have little.
pub struct Scratch(Option<Box<[u8; PATH_MAX]>>);

impl Scratch {
    #[inline(always)]
    pub const fn new() -> Scratch {
        Scratch(None)
    }

    /// All zeroes.
    #[cold]
    fn room(&mut self) -> &mut [u8; PATH_MAX] {
        self.0.insert(room())
    }
}

/// Finds where a path leads. `directory` is a descriptor or AT_FDCWD.
///
/// # Safety
/// `path` is null or an address, of a string that stays as it is while the result is used.
/// Where it cannot be read the place is EFAULT.
#[inline(always)]
pub unsafe fn place<'a>(directory: usize, path: usize, scratch: &'a mut Scratch) -> Place<'a> {
    if !settings::ready() || crate::thread::inside() || memory::is_nowhere(path) {
        return Place::Kernel;
    }
    const BAD: isize = raw::error(libc::EFAULT);
    if directory as i32 != libc::AT_FDCWD {
        match memory::byte(path) {
            Some(b'/') => {}
            Some(first) => {
                return match descriptors::lookup(directory) {
                    Descriptor::Kernel if may_be_of_mount(first) => {
                        // SAFETY: the caller's promise.
                        match unsafe { memory::text(path) } {
                            Some(text) => beneath(directory, text.bytes, scratch),
                            None => Place::Error(BAD),
                        }
                    }
                    Descriptor::Kernel => Place::Kernel,
                    Descriptor::Error(error) => Place::Error(error),
                    // SAFETY: the caller's promise.
                    Descriptor::Pool(handle) => match unsafe { memory::text(path) } {
                        Some(text) => Place::Pool(At::Directory(handle), text.bytes),
                        None => Place::Error(BAD),
                    },
                };
            }
            None => return Place::Error(BAD),
        }
    }
    // SAFETY: the caller's promise.
    let Some(Text { bytes, dots }) = (unsafe { memory::text(path) }) else {
        return Place::Error(BAD);
    };
    if bytes.first() != Some(&b'/') {
        return match directory::current() {
            Some(Ok(handle)) => Place::Pool(At::Directory(handle), bytes),
            Some(Err(error)) => Place::Error(error),
            None if directory::is_above_mount() || dots || bytes.starts_with(b"..") => {
                relative(bytes, scratch)
            }
            None => Place::Kernel,
        };
    }
    if bytes.len() >= PATH_MAX {
        // Without this the prefix would be taken off what was cut off here.
        return Place::Error(raw::error(libc::ENAMETOOLONG));
    }
    let mount = settings::MOUNT.get();
    // Most paths differ from the prefix in their second byte.
    if bytes.get(1) == mount.get(1)
        && let Some(rest) = bytes.strip_prefix(mount)
        && matches!(rest.first(), None | Some(b'/'))
        && !settings::root_changed()
    {
        return Place::Pool(At::Root, strip(rest));
    }
    match bytes.get(1) {
        Some(b'/' | b'.') => return absolute(bytes, scratch),
        Some(b'd' | b'p') if may_name_descriptor(bytes) => {
            if let Some(descriptor) = descriptor_named(bytes) {
                if descriptors::is_pool(descriptor) {
                    return link(descriptor, scratch);
                }
            } else if let Some((descriptor, rest)) = below_descriptor(bytes)
                && descriptors::is_pool(descriptor)
            {
                return match descriptors::lookup(descriptor) {
                    Descriptor::Pool(handle) => Place::Pool(At::Directory(handle), rest),
                    Descriptor::Kernel => Place::Kernel,
                    Descriptor::Error(error) => Place::Error(error),
                };
            } else if let Some(path) = crate::process::identity::executable(bytes)
                && let Some(relative) = below_mount(path)
            {
                return Place::Pool(At::Root, relative);
            }
        }
        _ => {}
    }
    if dots {
        return absolute(bytes, scratch);
    }
    Place::Kernel
}

/// Whether [`descriptor_named`] is worth asking: by the first eight bytes at once, which all names
/// of descriptors have.
#[inline(always)]
fn may_name_descriptor(path: &[u8]) -> bool {
    const PROC: u64 = u64::from_le_bytes(*b"/proc/\0\0");
    let Some(start) = path.first_chunk::<8>() else {
        return false;
    };
    let start = u64::from_le_bytes(*start);
    start == u64::from_le_bytes(*b"/dev/fd/")
        || start == u64::from_le_bytes(*b"/dev/std")
        || start & 0xffff_ffff_ffff == PROC
}

/// The same of a path in the program's memory, while this library serves it.
///
/// # Safety
/// The path is null or a NUL-terminated string.
#[inline(always)]
pub unsafe fn descriptor_of(path: usize) -> Option<usize> {
    // Few paths get any further.
    if memory::is_nowhere(path)
        || memory::byte(path) != Some(b'/')
        || !matches!(memory::byte(path + 1), Some(b'd' | b'p'))
    {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { memory::text(path) }?;
    match may_name_descriptor(text.bytes) {
        true => descriptor_named(text.bytes),
        false => None,
    }
}

/// The descriptor that `/proc/self/fd/N`, `/dev/fd/N`, `/dev/stdin` and the like name.
pub fn descriptor_named(path: &[u8]) -> Option<usize> {
    match path {
        b"/dev/stdin" => return Some(0),
        b"/dev/stdout" => return Some(1),
        b"/dev/stderr" => return Some(2),
        _ => {}
    }
    let number = |name: &[u8]| {
        let slashes = name.iter().take_while(|byte| **byte == b'/').count();
        let digits = &name[slashes..];
        if digits.is_empty() || digits.len() > 7 || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        Some(
            digits
                .iter()
                .fold(0usize, |n, digit| n * 10 + usize::from(digit - b'0')),
        )
    };
    if let Some(digits) = path.strip_prefix(b"/dev/fd/") {
        return number(digits);
    }
    let rest = path.strip_prefix(b"/proc/")?;
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    let (process, rest) = rest.split_at(slash);
    if process != b"self"
        && process != b"thread-self"
        && number(process) != Some(raw::process_id() as usize)
    {
        return None;
    }
    number(rest.strip_prefix(b"/fd/")?)
}

/// The descriptor, and the path from there, of `/proc/self/fd/N/...` and `/dev/fd/N/...`.
fn below_descriptor(path: &[u8]) -> Option<(usize, &[u8])> {
    let before = if path.starts_with(b"/dev/fd/") {
        8
    } else {
        // Behind the process's directory.
        let process = path.strip_prefix(b"/proc/")?;
        let process = process.iter().position(|byte| *byte == b'/')?;
        "/proc/".len() + process + "/fd/".len()
    };
    let digits = path.get(before..)?.iter().position(|byte| *byte == b'/')?;
    let (name, rest) = path.split_at(before + digits);
    Some((descriptor_named(name)?, strip(rest)))
}

/// How `/proc` writes where what has no name was, as far as that is known: it has a name that cannot be looked up.
pub fn of_nameless(inode: u64) -> Vec<u8> {
    let mut path = settings::MOUNT.get().to_vec();
    path.extend_from_slice(format!("/#{inode} (deleted)").as_bytes());
    path
}

/// The path of an open pool file that was named by its descriptor; the file itself if it has no name, or is a symbolic
/// link, which is not followed.
#[cold]
fn link(descriptor: usize, scratch: &mut Scratch) -> Place<'_> {
    let handle = match descriptors::lookup(descriptor) {
        Descriptor::Pool(handle) => handle,
        Descriptor::Kernel => return Place::Kernel,
        Descriptor::Error(error) => return Place::Error(error),
    };
    let buffer = scratch.room();
    let found = inside(|fs| {
        let of = fs.stat_handle(handle)?;
        let itself = Place::Pool(At::Inode(of.inode as u32, of.generation), b"");
        if of.mode & libc::S_IFMT == libc::S_IFLNK {
            return Ok(Err(itself));
        }
        let path = match fs.path_of(handle) {
            Err(Errno::NOENT) => return Ok(Err(itself)),
            found => found?,
        };
        let rest = below_mount(&path).filter(|rest| rest.len() <= PATH_MAX);
        Ok(Ok(rest.map(|rest| {
            buffer[..rest.len()].copy_from_slice(rest);
            rest.len()
        })))
    });
    match found {
        Ok(Err(itself)) => itself,
        Ok(Ok(Some(length))) => Place::Pool(At::Root, &buffer[..length]),
        Err(Failure::Errno(errno)) => Place::Error(crate::backend::minus(errno)),
        _ => Place::Error(raw::error(libc::ENOENT)),
    }
}

/// An absolute path with `.`, `..` or empty components.
#[cold]
fn absolute<'a>(path: &[u8], scratch: &'a mut Scratch) -> Place<'a> {
    let buffer = scratch.room();
    place_of(normalize(&[path], buffer), path.ends_with(b"/"), buffer)
}

/// A relative path while the working directory is the kernel's.
#[cold]
fn relative<'a>(path: &[u8], scratch: &'a mut Scratch) -> Place<'a> {
    if path.is_empty() || path == b"." {
        return Place::Kernel;
    }
    let mut start = room();
    let length = directory::kernel_name(&mut start);
    if length == 0 || start[0] != b'/' {
        return Place::Kernel;
    }
    let buffer = scratch.room();
    place_of(
        normalize(&[&start[..length], path], buffer),
        path.ends_with(b"/"),
        buffer,
    )
}

/// Whether a component of the mount prefix begins with this byte.
#[inline]
fn may_be_of_mount(first: u8) -> bool {
    settings::MOUNT
        .get()
        .windows(2)
        .any(|two| two == [b'/', first])
}

/// A relative path from one of the kernel's directories, which leads into the pool if the
/// directory is above the mount prefix and the path goes on along it, as those of programs that
/// open a path component by component do.
#[cold]
fn beneath<'a>(directory: usize, path: &[u8], scratch: &'a mut Scratch) -> Place<'a> {
    let mount = settings::MOUNT.get();
    let first = path.split(|byte| *byte == b'/').next();
    if !mount
        .split(|byte| *byte == b'/')
        .any(|component| Some(component) == first)
    {
        return Place::Kernel;
    }
    let mut start = room();
    let link = raw::descriptor_path(directory);
    // SAFETY: a NUL-terminated path, and room of its length.
    let length = unsafe {
        raw::syscall!(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            link.pointer(),
            start.as_mut_ptr(),
            start.len()
        )
    };
    let length = usize::try_from(length).unwrap_or(0);
    // The path of the root ends with the slash.
    let start = start.get(..length).unwrap_or_default();
    let start = start.strip_suffix(b"/").unwrap_or(start);
    let is_above = mount
        .strip_prefix(start)
        .is_some_and(|rest| rest.first() == Some(&b'/'));
    if length == 0 || !is_above {
        return Place::Kernel;
    }
    let buffer = scratch.room();
    place_of(
        normalize(&[start, path], buffer),
        path.ends_with(b"/"),
        buffer,
    )
}

fn place_of(length: Option<usize>, slash: bool, buffer: &mut [u8; PATH_MAX]) -> Place<'_> {
    let Some(mut length) = length else {
        return Place::Kernel;
    };
    if slash && length < PATH_MAX && buffer[length - 1] != b'/' {
        buffer[length] = b'/';
        length += 1;
    }
    match below_mount(&buffer[..length]) {
        Some(rest) => Place::Pool(At::Root, rest),
        None => Place::Kernel,
    }
}

/// Joins the parts and removes `.`, `..` and empty components; the result's length, or `None` if
/// it does not fit. Stops removing once the path is below the mount: there the LibFS decides.
fn normalize(parts: &[&[u8]], buffer: &mut [u8; PATH_MAX]) -> Option<usize> {
    let mut length = 0;
    for component in parts
        .iter()
        .flat_map(|part| part.split(|byte| *byte == b'/'))
    {
        let in_pool = below_mount(&buffer[..length]).is_some();
        match component {
            b"" | b"." => {}
            b".." if !in_pool => {
                length = buffer[..length]
                    .iter()
                    .rposition(|byte| *byte == b'/')
                    .unwrap_or(0);
            }
            _ => {
                if length + 1 + component.len() > PATH_MAX {
                    return None;
                }
                buffer[length] = b'/';
                buffer[length + 1..length + 1 + component.len()].copy_from_slice(component);
                length += 1 + component.len();
            }
        }
    }
    if length == 0 {
        buffer[0] = b'/';
        length = 1;
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(parts: &[&[u8]]) -> Vec<u8> {
        let mut buffer = [0; PATH_MAX];
        let length = normalize(parts, &mut buffer).unwrap();
        buffer[..length].to_vec()
    }

    #[test]
    fn components_are_removed() {
        assert_eq!(normalized(&[b"/a/./b//c"]), b"/a/b/c");
        assert_eq!(normalized(&[b"/a/../../b/.."]), b"/");
        assert_eq!(normalized(&[b"/home/me", b"../you/x"]), b"/home/you/x");
        assert_eq!(normalized(&[b"//"]), b"/");
        assert_eq!(normalized(&[b"/", b"arck"]), b"/arck");
    }

    #[test]
    fn too_long_is_refused() {
        let mut buffer = [0; PATH_MAX];
        let long = vec![b'x'; PATH_MAX];
        assert_eq!(normalize(&[&long], &mut buffer), None);
    }

    #[test]
    fn descriptors_by_name() {
        assert_eq!(descriptor_named(b"/dev/stdin"), Some(0));
        assert_eq!(descriptor_named(b"/dev/fd/12"), Some(12));
        assert_eq!(descriptor_named(b"/proc/self/fd/7"), Some(7));
        assert_eq!(descriptor_named(b"/proc/self/fd//7"), Some(7));
        let own = format!("/proc/{}/fd/9", std::process::id());
        assert_eq!(descriptor_named(own.as_bytes()), Some(9));
        for other in [
            &b"/proc/1/fd/9x"[..],
            b"/proc/self/fd/",
            b"/proc/self/fdinfo/1",
            b"/dev/null",
            b"/proc/self",
        ] {
            assert_eq!(descriptor_named(other), None);
        }
    }

    #[test]
    fn paths_below_descriptors() {
        assert_eq!(below_descriptor(b"/dev/fd/3/a/b"), Some((3, &b"a/b"[..])));
        assert_eq!(
            below_descriptor(b"/proc/self/fd/31//a/"),
            Some((31, &b"a/"[..]))
        );
        assert_eq!(below_descriptor(b"/dev/fd/3/"), Some((3, &b"."[..])));
        for other in [
            &b"/dev/fd/3"[..],
            b"/dev/fd//3",
            b"/dev/fd/x/3",
            b"/proc/self/cwd/3/x",
            b"/proc/self",
        ] {
            assert_eq!(below_descriptor(other), None);
        }
    }

    #[test]
    fn names_of_descriptors_are_suspected() {
        for (name, expected) in [
            (c"/dev/fd/1", true),
            (c"/dev/stdin", true),
            (c"/proc/self/fd/3", true),
            (c"/dev/shm/x", false),
            (c"/d", false),
            (c"/procx", false),
            (c"/proc", false),
        ] {
            assert_eq!(may_name_descriptor(name.to_bytes()), expected, "{name:?}");
        }
    }

    #[test]
    fn prefix_is_stripped() {
        assert_eq!(strip(b""), b".");
        assert_eq!(strip(b"/"), b".");
        assert_eq!(strip(b"//x/y/"), b"x/y/");
    }
}
