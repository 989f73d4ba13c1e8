//! Which paths are the pool's.
//!
//! A path is the pool's if, made absolute against the working directory and read lexically, it
//! lies at or below the mount prefix; or if it is relative to a pool directory. What starts with
//! the prefix and leads out again (`/arck/../etc`) is left to the LibFS, which knows the
//! directories and answers `Outside`.
//!
//! Invariant: paths that are not the pool's cost a comparison of the first component and, if
//! absolute, one scan for `/..`; nothing is copied.

use crate::backend::{At, Failure, FileSystem, Handle, inside};
use crate::descriptors::{self, Descriptor};
use crate::settings::{self, PATH_MAX};
use crate::{directory, handover, raw};
use std::ffi::CStr;
use std::mem::MaybeUninit;

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

/// Room for a path that has to be rewritten.
pub type Scratch = MaybeUninit<[u8; PATH_MAX]>;

/// Finds where a path leads. `directory` is a descriptor or AT_FDCWD.
///
/// # Safety
/// `path` is null or a NUL-terminated string that stays as it is while the result is used.
#[inline(always)]
pub unsafe fn place<'a>(directory: usize, path: usize, scratch: &'a mut Scratch) -> Place<'a> {
    if !settings::ready() || crate::thread::inside() || path < 4096 {
        return Place::Kernel;
    }
    let pointer = path as *const u8;
    // SAFETY: the string has at least its NUL byte, and nothing past it is read.
    unsafe {
        if *pointer != b'/' {
            if directory as i32 == libc::AT_FDCWD {
                match directory::current() {
                    Some(Ok(handle)) => {
                        return Place::Pool(At::Directory(handle), bytes(pointer));
                    }
                    Some(Err(error)) => return Place::Error(error),
                    None => {}
                }
                if directory::is_above_mount()
                    || (*pointer == b'.' && *pointer.add(1) == b'.')
                    || has_dots(pointer)
                {
                    return relative(bytes(pointer), scratch);
                }
                return Place::Kernel;
            }
            return match descriptors::lookup(directory) {
                Descriptor::Kernel => Place::Kernel,
                Descriptor::Pool(handle) => Place::Pool(At::Directory(handle), bytes(pointer)),
                Descriptor::Error(error) => Place::Error(error),
            };
        }
        let mount = settings::MOUNT.get();
        let mut i = 1;
        while i < mount.len() && *pointer.add(i) == mount[i] {
            i += 1;
        }
        if i == mount.len() && matches!(*pointer.add(i), 0 | b'/') {
            return Place::Pool(At::Root, strip(bytes(pointer.add(i))));
        }
        match *pointer.add(1) {
            b'/' | b'.' => return absolute(bytes(pointer), scratch),
            b'd' | b'p' if may_name_descriptor(pointer) => {
                if let Some(descriptor) = descriptor_named(bytes(pointer))
                    && descriptors::is_pool(descriptor)
                {
                    return link(descriptor, scratch);
                }
            }
            _ => {}
        }
        if has_dots(pointer) {
            return absolute(bytes(pointer), scratch);
        }
        Place::Kernel
    }
}

/// # Safety
/// `pointer` is a NUL-terminated string that lives as long as the result is used.
#[inline(always)]
unsafe fn bytes<'a>(pointer: *const u8) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(pointer.cast()).to_bytes() }
}

/// Whether a string has `/..` in it. (libc's `strstr` takes as long as all the rest here.)
///
/// # Safety
/// `pointer` is a NUL-terminated string.
#[inline]
unsafe fn has_dots(pointer: *const u8) -> bool {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set1_epi8, _mm_setzero_si128,
    };
    let skipped = pointer as usize % 16;
    let mut at = pointer as usize - skipped;
    // What counts in the block at `at`, a bit for each byte.
    let mut counts = 0xffff << skipped;
    // The slashes and dots seen: of the block before in bits 0 to 15, of this one in 16 to 31.
    let (mut slashes, mut dots) = (0u64, 0u64);
    loop {
        let block: __m128i;
        // SAFETY: the block is aligned and has a byte of the string in it, so it lies in a page
        // that can be read; what is not of the string is masked out. By assembly, since to the
        // language it is outside the string. The rest are computations.
        let (nul, slash, dot) = unsafe {
            std::arch::asm!("movdqa {0}, [{1}]", out(xmm_reg) block, in(reg) at,
                options(pure, readonly, nostack, preserves_flags));
            let places =
                |what: __m128i| _mm_movemask_epi8(_mm_cmpeq_epi8(block, what)) as u64 & counts;
            (
                places(_mm_setzero_si128()),
                places(_mm_set1_epi8(b'/' as i8)),
                places(_mm_set1_epi8(b'.' as i8)),
            )
        };
        // Below the first NUL byte; all of them if there is none.
        let before = (nul & nul.wrapping_neg()).wrapping_sub(1);
        slashes |= (slash & before) << 16;
        dots |= (dot & before) << 16;
        if slashes & (dots >> 1) & (dots >> 2) != 0 {
            return true;
        }
        if nul != 0 {
            return false;
        }
        slashes >>= 16;
        dots >>= 16;
        counts = 0xffff;
        at += 16;
    }
}

/// Whether [`descriptor_named`] is worth asking.
///
/// # Safety
/// `pointer` is a NUL-terminated string.
#[inline]
unsafe fn may_name_descriptor(pointer: *const u8) -> bool {
    [&b"/dev/fd/"[..], b"/dev/std", b"/proc/"]
        .iter()
        .any(|start| {
            // SAFETY: reads no further than the first difference, so not past the NUL byte.
            (0..start.len()).all(|i| unsafe { *pointer.add(i) } == start[i])
        })
}

/// What follows the mount prefix, without leading slashes; `.` for the prefix itself.
#[inline(always)]
fn strip(rest: &[u8]) -> &[u8] {
    let mut rest = rest;
    while let Some(after) = rest.strip_prefix(b"/") {
        rest = after;
    }
    if rest.is_empty() { b"." } else { rest }
}

/// The part of an absolute path below the mount prefix, or `None` if it is not below it.
pub fn below_mount(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(settings::MOUNT.get())?;
    (settings::MOUNT.is_set() && matches!(rest.first(), None | Some(b'/'))).then(|| strip(rest))
}

/// The descriptor that `/proc/self/fd/N`, `/dev/fd/N`, `/dev/stdin` and the like name.
pub fn descriptor_named(path: &[u8]) -> Option<usize> {
    match path {
        b"/dev/stdin" => return Some(0),
        b"/dev/stdout" => return Some(1),
        b"/dev/stderr" => return Some(2),
        _ => {}
    }
    let number = |digits: &[u8]| {
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

/// The absolute path of an open file: as it is now, or else as it was when the file was handed
/// over, if that still names it.
pub fn name_of(fs: &FileSystem, descriptor: usize, handle: Handle) -> Result<Vec<u8>, Failure> {
    let missing = match fs.path_of(handle) {
        Ok(path) => return Ok(path),
        Err(errno) => errno,
    };
    let mut recorded = [0; handover::PATH_SIZE];
    let length = handover::recorded_path(descriptor, &mut recorded);
    let relative = below_mount(&recorded[..length]).ok_or(missing)?;
    if length > 0
        && fs
            .stat(At::Root, relative, libc::AT_SYMLINK_NOFOLLOW)?
            .inode
            == fs.stat_handle(handle)?.inode
    {
        return Ok(recorded[..length].to_vec());
    }
    Err(Failure::Errno(missing))
}

/// The path of an open pool file that was named by its descriptor.
#[cold]
fn link(descriptor: usize, scratch: &mut Scratch) -> Place<'_> {
    let handle = match descriptors::lookup(descriptor) {
        Descriptor::Pool(handle) => handle,
        Descriptor::Kernel => return Place::Kernel,
        Descriptor::Error(error) => return Place::Error(error),
    };
    let buffer = initialized(scratch);
    let found = inside(|fs| {
        let path = name_of(fs, descriptor, handle)?;
        let rest = below_mount(&path).filter(|rest| rest.len() <= PATH_MAX);
        Ok(rest.map(|rest| {
            buffer[..rest.len()].copy_from_slice(rest);
            rest.len()
        }))
    });
    match found {
        Ok(Some(length)) => Place::Pool(At::Root, &buffer[..length]),
        Err(Failure::Errno(errno)) => Place::Error(crate::backend::minus(errno)),
        _ => Place::Error(raw::error(libc::ENOENT)),
    }
}

fn initialized(scratch: &mut Scratch) -> &mut [u8; PATH_MAX] {
    scratch.write([0; PATH_MAX])
}

/// An absolute path with `.`, `..` or empty components.
#[cold]
fn absolute<'a>(path: &[u8], scratch: &'a mut Scratch) -> Place<'a> {
    let buffer = initialized(scratch);
    place_of(normalize(&[path], buffer), path.ends_with(b"/"), buffer)
}

/// A relative path while the working directory is the kernel's.
#[cold]
fn relative<'a>(path: &[u8], scratch: &'a mut Scratch) -> Place<'a> {
    if path.is_empty() || path == b"." {
        return Place::Kernel;
    }
    let mut start = [0u8; PATH_MAX];
    let length = directory::kernel_name(&mut start);
    if length == 0 || start[0] != b'/' {
        return Place::Kernel;
    }
    let buffer = initialized(scratch);
    place_of(
        normalize(&[&start[..length], path], buffer),
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
    fn dots_are_found_wherever_they_are() {
        let has = |text: &[u8]| {
            // Every position in a block, with something that must not count before and behind.
            let mut answers = (0..40).map(|place| {
                let mut buffer = [b'/'; 160];
                buffer[place..place + text.len()].copy_from_slice(text);
                if place > 0 {
                    buffer[place - 1] = b'/';
                }
                buffer[place + text.len()] = 0;
                buffer[place + text.len() + 1..].fill(b'.');
                // SAFETY: NUL-terminated.
                unsafe { has_dots(buffer[place..].as_ptr()) }
            });
            let first = answers.next().unwrap();
            assert!(answers.all(|answer| answer == first), "{text:?}");
            first
        };
        for length in 0..60 {
            let plain = vec![b'x'; length];
            assert!(!has(&plain));
            for found in [&b"/.."[..], b"/../", b"/..x", b"/a/.."] {
                assert!(has(&[&plain, found].concat()), "{length}");
                assert!(has(&[found, &plain].concat()), "{length}");
            }
            for not in [
                &b"../"[..],
                b"/.",
                b"/.x.",
                b"./.",
                b"/",
                b".",
                b"..",
                b"/a..",
            ] {
                assert!(!has(&[&plain, not].concat()), "{length}");
            }
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
            // SAFETY: a C string.
            let got = unsafe { may_name_descriptor(name.as_ptr().cast()) };
            assert_eq!(got, expected, "{name:?}");
        }
    }

    #[test]
    fn prefix_is_stripped() {
        assert_eq!(strip(b""), b".");
        assert_eq!(strip(b"/"), b".");
        assert_eq!(strip(b"//x/y/"), b"x/y/");
    }
}
