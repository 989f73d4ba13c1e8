//! Libraries that an executed program finds on the pool, by `LD_LIBRARY_PATH` or by the paths in
//! the program and its libraries (`DT_RPATH`, `DT_RUNPATH`, with `$ORIGIN`).
//!
//! The loader runs before anything of ours, so it cannot see the pool. Before the program is
//! executed, its needed libraries are looked for as the loader would; those that lie on the pool
//! are copied into memory files and named in LD_PRELOAD, behind this library. The loader takes
//! what is loaded already for a needed library with the same DT_SONAME; one without a DT_SONAME is
//! not found this way. The new process closes the files at start-up ([`close_loaded`]).
//!
//! What a library needs that is opened by `dlopen` is found in the same way (`symbols::load`).
//!
//! Looked at are programs stored on the pool, and any program if LD_LIBRARY_PATH leads to the
//! pool; a program stored elsewhere whose own paths lead to the pool does not find its libraries.
//!
//! Invariant: what is read of a program or library is an allegation: every offset and length is
//! checked, sizes are bounded, and what makes no sense is left to the loader.

use crate::backend::{At, Errno, Failure, FileSystem, inside};
use crate::handlers::HERE;
use crate::path::{Place, Scratch, place};
use crate::raw::{self, syscall};
use crate::{environment, reserved, settings};
use std::ffi::CStr;

/// Most libraries of one program that are copied.
const LIBRARIES_MAX: usize = 64;
/// Most bytes of a table of strings, and of a dynamic section, that are read.
const TABLE_MAX: u64 = 1 << 20;

/// The environment with the libraries in it; undone when dropped.
pub struct Prepared {
    memory: *mut u8,
    size: usize,
    list: usize,
    files: Vec<isize>,
}

impl Prepared {
    /// The array, for execve.
    pub fn environment(&self) -> usize {
        self.list
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        for file in &self.files {
            raw::close(*file);
        }
        // SAFETY: our own mapping, which nobody uses after a failed execve.
        unsafe { raw::unmap(self.memory, self.size) };
    }
}

/// What the loader wants to know of a program or library.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wants {
    needed: Vec<Vec<u8>>,
    /// DT_RUNPATH, or DT_RPATH where there is none.
    search: Vec<u8>,
}

/// Reads `length` bytes of a file. `None` if there are not so many.
fn read(file: isize, offset: u64, length: u64) -> Option<Vec<u8>> {
    let length = usize::try_from(length.min(TABLE_MAX)).ok()?;
    let mut bytes = vec![0; length];
    // SAFETY: our own buffer.
    let done = unsafe { syscall!(libc::SYS_pread64, file, bytes.as_mut_ptr(), length, offset) };
    (done == length as isize).then_some(bytes)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(N)?)?;
    Some(
        field
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    )
}

impl Wants {
    /// Of an ELF file of this machine's kind.
    fn of(file: isize) -> Option<Wants> {
        const LOAD: u64 = 1;
        const DYNAMIC: u64 = 2;
        let head = read(file, 0, 64)?;
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (offset, count) = (number::<8>(&head, 32)?, number::<2>(&head, 56)?);
        let segments = read(file, offset, count * 56)?;
        let segments = segments.chunks_exact(56);
        let dynamic = segments
            .clone()
            .find(|segment| number::<4>(segment, 0) == Some(DYNAMIC))?;
        let dynamic = read(file, number::<8>(dynamic, 8)?, number::<8>(dynamic, 32)?)?;
        // (tag, value) up to the first that is 0.
        let entries: Vec<(u64, u64)> = dynamic
            .chunks_exact(16)
            .filter_map(|entry| Some((number::<8>(entry, 0)?, number::<8>(entry, 8)?)))
            .take_while(|(tag, _)| *tag != 0)
            .collect();
        let value = |wanted: u64| entries.iter().find(|(tag, _)| *tag == wanted);
        let (address, size) = (value(5)?.1, value(10)?.1);
        let place = segments
            .filter(|segment| number::<4>(segment, 0) == Some(LOAD))
            .find_map(|segment| {
                let start = number::<8>(segment, 16)?;
                let within = address.checked_sub(start)?;
                (within < number::<8>(segment, 32)?)
                    .then(|| number::<8>(segment, 8)?.checked_add(within))?
            })?;
        let strings = read(file, place, size)?;
        let string = |at: u64| -> Option<Vec<u8>> {
            let rest = strings.get(usize::try_from(at).ok()?..)?;
            rest.split(|byte| *byte == 0).next().map(<[u8]>::to_vec)
        };
        Some(Wants {
            needed: entries
                .iter()
                .filter(|(tag, _)| *tag == 1)
                .filter_map(|(_, at)| string(*at))
                .collect(),
            search: value(29)
                .or(value(15))
                .and_then(|(_, at)| string(*at))
                .unwrap_or_default(),
        })
    }
}

/// A directory of a search path: `$ORIGIN` replaced, the empty one the working directory.
fn directory(word: &[u8], origin: &[u8]) -> Vec<u8> {
    for name in [&b"$ORIGIN"[..], b"${ORIGIN}"] {
        if let Some(rest) = word.strip_prefix(name) {
            return [origin, rest].concat();
        }
    }
    if word.is_empty() {
        b".".to_vec()
    } else {
        word.to_vec()
    }
}

/// A library of the pool.
pub struct Copied {
    /// A copy in a memory file.
    pub file: isize,
    /// Its absolute path, of which nothing may be known.
    pub path: Vec<u8>,
}

impl Copied {
    pub fn new(fs: &FileSystem, at: At, path: &[u8]) -> Result<Copied, Failure> {
        let handle = fs.open(at, path, libc::O_RDONLY, 0)?;
        let copied = super::copying::copy_to_memory(fs, handle);
        let path = fs.path_of(handle).unwrap_or_default();
        fs.close(handle);
        let file = copied?;
        match raw::failed(file) {
            true => Err(Failure::Errno(Errno::from_raw_os_error(-file as i32))),
            false => Ok(Copied { file, path }),
        }
    }
}

/// Where a library was found.
enum Found {
    /// On the pool.
    Copy(Copied),
    /// Elsewhere, or nowhere: the loader's business.
    Elsewhere,
}

/// Looks for a library in a list of directories. `None`: in none of them.
fn look(name: &[u8], directories: &[Vec<u8>]) -> Option<(Found, Vec<u8>)> {
    directories.iter().find_map(|directory| {
        let path = [directory, &b"/"[..], name, b"\0"].concat();
        let mut scratch = Scratch::new();
        let pointer = path.as_ptr() as usize;
        // SAFETY: a string of our own.
        let found = match unsafe { place(HERE, pointer, &mut scratch) } {
            Place::Pool(at, relative) => inside(|fs| Copied::new(fs, at, relative))
                .ok()
                .map(Found::Copy),
            Place::Error(_) => None,
            Place::Kernel => {
                // SAFETY: a string of our own.
                let there =
                    unsafe { syscall!(libc::SYS_faccessat, HERE, pointer, libc::R_OK) } == 0;
                there.then_some(Found::Elsewhere)
            }
        };
        Some((found?, directory.clone()))
    })
}

/// Copies of all libraries that a program, or a library, finds on the pool; each before what it
/// needs, as far as that was not needed before.
pub fn gather(program: isize, origin: &[u8], library_path: Option<&[u8]>) -> Vec<Copied> {
    let mut files: Vec<Copied> = Vec::new();
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut waiting = vec![(program, origin.to_vec())];
    while let Some((file, origin)) = waiting.pop() {
        let Some(wants) = Wants::of(file) else {
            continue;
        };
        let mut directories: Vec<Vec<u8>> = Vec::new();
        let mut add = |list: &[u8], separators: &[u8]| {
            for word in list.split(|byte| separators.contains(byte)) {
                directories.push(directory(word, &origin));
            }
        };
        if let Some(path) = library_path.filter(|path| !path.is_empty()) {
            add(path, b":;");
        }
        if !wants.search.is_empty() {
            add(&wants.search, b":");
        }
        for name in wants.needed {
            // With a slash it is a path, which the loader opens.
            if name.contains(&b'/') || seen.contains(&name) || files.len() == LIBRARIES_MAX {
                continue;
            }
            if let Some((Found::Copy(copy), directory)) = look(&name, &directories) {
                waiting.push((copy.file, directory));
                files.push(copy);
            }
            seen.push(name);
        }
    }
    files
}

/// Whether the libraries of a program stored elsewhere may lie on the pool.
///
/// # Safety
/// `environment` is a NULL-terminated array of strings.
pub unsafe fn may_be_on_pool(environment: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        environment::value(environment, b"LD_LIBRARY_PATH=").is_some_and(|path| {
            let is_on_pool = crate::directory::is_on_pool();
            path.split(|byte| matches!(byte, b':' | b';'))
                .any(|word| match word.first() {
                    Some(b'/') => word.starts_with(settings::MOUNT.get()),
                    // Relative: `$ORIGIN` is so, too.
                    _ => is_on_pool || word.contains(&b'$'),
                })
        })
    }
}

/// The environment to execute a program with, whose open file is `program` and whose directory is
/// `origin`. `None` if none of its libraries lies on the pool.
///
/// # Safety
/// `environment` is a NULL-terminated array of strings, which lives as long as the result.
pub unsafe fn prepare(program: isize, origin: &[u8], environment: usize) -> Option<Prepared> {
    // SAFETY: the caller's promise; writes stay within the mapping, which has room for the array
    // and the one string.
    unsafe {
        let library_path = environment::value(environment, b"LD_LIBRARY_PATH=");
        let copies = gather(program, origin, library_path);
        if copies.is_empty() {
            return None;
        }
        let preload = environment::value(environment, b"LD_PRELOAD=").unwrap_or_default();
        let mut value = [b"LD_PRELOAD=", preload].concat();
        let mut files = Vec::new();
        for copy in copies {
            // Above what programs use, and open in the new process.
            let kept = syscall!(libc::SYS_fcntl, copy.file, libc::F_DUPFD, reserved::floor());
            raw::close(copy.file);
            if !raw::failed(kept) {
                files.push(kept);
                value.extend_from_slice(b":");
                value.extend_from_slice(environment::MARK);
                value.extend_from_slice(kept.to_string().as_bytes());
            }
        }
        value.push(0);
        let count = environment::length(environment);
        let size = (count + 2) * size_of::<usize>() + value.len();
        let Some(memory) = raw::map_anonymous(size) else {
            files.iter().for_each(|file| raw::close(*file));
            return None;
        };
        let list = memory.cast::<usize>();
        let text = memory.add((count + 2) * size_of::<usize>());
        std::ptr::copy_nonoverlapping(value.as_ptr(), text, value.len());
        let mut written = 0;
        for i in 0..count {
            let entry = *(environment as *const usize).add(i);
            if !CStr::from_ptr(entry as *const _)
                .to_bytes()
                .starts_with(b"LD_PRELOAD=")
            {
                list.add(written).write(entry);
                written += 1;
            }
        }
        // The mapping is zero-filled: the NULL is there already.
        list.add(written).write(text as usize);
        Some(Prepared {
            memory,
            size,
            list: list as usize,
            files,
        })
    }
}

/// At start-up: the loader has mapped the copies, so their files are not needed any more.
pub fn close_loaded(preload: &[u8]) {
    for word in preload.split(|byte| *byte == b':') {
        let digits = word.strip_prefix(environment::MARK).unwrap_or_default();
        if let Some(file) = settings::number(digits) {
            raw::close(file as isize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_program_says_what_it_needs() {
        let own = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let wants = Wants::of(own.as_raw_fd() as isize).unwrap();
        assert!(wants.needed.contains(&b"libc.so.6".to_vec()), "{wants:?}");
    }

    #[test]
    fn nonsense_says_nothing() {
        let file = tempfile::tempfile().unwrap();
        let of = |bytes: &[u8]| {
            file.set_len(0).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
            Wants::of(file.as_raw_fd() as isize)
        };
        assert_eq!(of(b""), None);
        assert_eq!(of(&[0xff; 4096]), None);
        // A head of which each field lies as far as it can.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for place in 32..64 {
            let mut bytes = own[..4096.min(own.len())].to_vec();
            bytes[place] = 0xff;
            let _ = of(&bytes);
        }
        let mut cut = own.clone();
        cut.truncate(own.len() / 2);
        let _ = of(&cut);
    }

    #[test]
    fn directories_of_a_search_path() {
        assert_eq!(directory(b"", b"/o"), b".");
        assert_eq!(directory(b"/a", b"/o"), b"/a");
        assert_eq!(directory(b"$ORIGIN/../lib", b"/o"), b"/o/../lib");
        assert_eq!(directory(b"${ORIGIN}", b"/o"), b"/o");
    }
}
