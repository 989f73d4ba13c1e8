//! Who is at the other end of a socket through which descriptors are sent: whether this library is loaded into it.
//!
//! # Invariant
//! * Only what is known is said: of this process itself, or the ancestor that made a nameless pair (whose end a child may have),
//!   of one that the kernel does not name, and of one whose mappings this process may not look at, it is not.

use crate::raw::{self, syscall};
use crate::settings;

/// Bytes read at once.
const PIECE: usize = 16 << 10;
/// A longer list of mappings is not looked at: then nothing is known.
const FILE_MAX: usize = 1 << 20;
/// Generations of a process that are looked at.
const GENERATIONS: usize = 64;

/// Whether who connected the other end of a socket, or listens there, is a process that this library is not loaded into.
pub fn is_unreached(socket: usize) -> bool {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel fills the structure, up to its length.
    let asked = unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        let into = &raw mut peer;
        syscall!(
            libc::SYS_getsockopt,
            socket,
            level,
            option,
            into,
            &raw mut length
        )
    };
    let is_another = !raw::failed(asked) && peer.pid > 0 && peer.pid != raw::process_id();
    if !is_another || !are_numbers_ours() || (!has_name(socket) && is_ancestor(peer.pid)) {
        return false;
    }
    has_not_loaded(peer.pid, settings::LIBRARY.get())
}

/// Whether one end of a socket has a name: then who is told of has connected, or listens, and has not made both ends.
fn has_name(socket: usize) -> bool {
    let told = |number: i64| {
        let mut address = [0u8; size_of::<libc::sockaddr_un>()];
        let mut length = address.len() as libc::socklen_t;
        // SAFETY: the kernel fills our own buffer, up to its length.
        let asked = unsafe { syscall!(number, socket, address.as_mut_ptr(), &raw mut length) };
        !raw::failed(asked) && length as usize > size_of::<libc::sa_family_t>()
    };
    told(libc::SYS_getpeername) || told(libc::SYS_getsockname)
}

/// Whether the numbers of `/proc` are those that this process sees otherwise.
fn are_numbers_ours() -> bool {
    let mut told = [0u8; 24];
    let into = told.as_mut_ptr();
    // SAFETY: a constant path, and our own buffer with its length.
    let length = unsafe {
        let path = c"/proc/self".as_ptr();
        syscall!(libc::SYS_readlinkat, libc::AT_FDCWD, path, into, 24)
    };
    let mut own = raw::Text::<24>::new();
    own.number(raw::process_id() as u64);
    usize::try_from(length).is_ok_and(|length| told.get(..length) == Some(own.bytes()))
}

/// Whether that is this process, or one that it descends from: what such a one has made, others of its children may have.
fn is_ancestor(process: i32) -> bool {
    let mut at = raw::process_id();
    for _ in 0..GENERATIONS {
        if at == process {
            return true;
        }
        // After the name, which is in parentheses, and the state.
        let parent = of_process(at, b"/stat").and_then(|told| {
            let end = told.iter().rposition(|byte| *byte == b')')?;
            let rest = std::str::from_utf8(told.get(end + 2..)?).ok()?;
            rest.split(' ').nth(1)?.parse().ok()
        });
        match parent {
            Some(parent) if parent > 0 => at = parent,
            Some(_) => return false,
            // It cannot be told.
            None => return true,
        }
    }
    true
}

/// What stands in a file of a process in `/proc`, if it can be read, and is not empty nor too long.
fn of_process(process: i32, name: &[u8]) -> Option<Vec<u8>> {
    let mut path = raw::Text::<40>::new();
    path.push(b"/proc/").number(process as u64).push(name);
    // SAFETY: a path that lives, with its NUL.
    let file = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        syscall!(libc::SYS_openat, libc::AT_FDCWD, path.pointer(), flags)
    };
    if raw::failed(file) {
        return None;
    }
    let mut bytes = Vec::new();
    let is_whole = loop {
        let before = bytes.len();
        if before >= FILE_MAX {
            break false;
        }
        bytes.resize(before + PIECE, 0);
        let into = bytes[before..].as_mut_ptr();
        // SAFETY: our own buffer.
        let read = unsafe { syscall!(libc::SYS_read, file, into, PIECE) };
        bytes.truncate(before + usize::try_from(read).unwrap_or(0));
        if read <= 0 {
            break read == 0 && before != 0;
        }
    };
    raw::close(file);
    is_whole.then_some(bytes)
}

/// Device and inode number, as they stand in the line of a list of mappings in which this code lies.
fn own_file(maps: &[u8]) -> Option<&[u8]> {
    let own = is_unreached as *const () as usize;
    maps.split(|byte| *byte == b'\n').find_map(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        let range = std::str::from_utf8(words.next()?).ok()?;
        let (start, end) = range.split_once('-')?;
        let bound = |text| usize::from_str_radix(text, 16).ok();
        if !(bound(start)?..bound(end)?).contains(&own) {
            return None;
        }
        let (device, inode) = (words.nth(2)?, words.next()?);
        let from = device.as_ptr() as usize - line.as_ptr() as usize;
        line.get(from..from + device.len() + 1 + inode.len())
    })
}

/// Whether a process's mappings can be looked at, and none is of this library, nor of one of that name.
fn has_not_loaded(process: i32, library: &[u8]) -> bool {
    let name = library.rsplit(|byte| *byte == b'/').next();
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return false;
    };
    let maps = |process| of_process(process, b"/maps");
    let (Some(own), Some(maps)) = (maps(raw::process_id()), maps(process)) else {
        return false;
    };
    let Some(file) = own_file(&own) else {
        return false;
    };
    let (file, name) = ([b" ", file, b" "].concat(), [b"/", name].concat());
    let has = |wanted: &[u8]| maps.windows(wanted.len()).any(|part| part == wanted);
    !has(&file) && !has(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;

    #[test]
    fn only_another_process_that_can_be_looked_at_is_unreached() {
        // The test's own executable stands for the library: this process has it, and `sleep` has not.
        let own = std::env::current_exe().unwrap();
        let has_not_loaded = |process| has_not_loaded(process, own.as_os_str().as_encoded_bytes());
        assert!(!has_not_loaded(raw::process_id()));
        let mut sleep = Command::new("sleep").arg("30").spawn().unwrap();
        let sleeping = i32::try_from(sleep.id()).unwrap();
        let since = std::time::Instant::now();
        // Between fork and exec it is a copy of this one.
        while !has_not_loaded(sleeping) {
            assert!(since.elapsed() < std::time::Duration::from_secs(20));
            std::thread::yield_now();
        }
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(!has_not_loaded(sleeping), "it is gone");

        let (one, _other) = UnixStream::pair().unwrap();
        assert!(!is_unreached(one.as_raw_fd() as usize), "this one's own");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let connected = UnixStream::connect(&path).unwrap();
        assert!(!is_unreached(connected.as_raw_fd() as usize));
        assert!(!is_unreached(usize::MAX));
    }
}
