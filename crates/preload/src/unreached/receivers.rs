//! Who is at the other end of a socket through which descriptors are sent: whether this library is loaded into it.
//!
//! # Invariant
//! * Only what is known is said: of this process itself (whose end a child may have), of one that the kernel does not
//!   name, and of one whose mappings this process may not look at, it is not.

use crate::raw::{self, syscall};
use crate::settings;

/// Bytes read at once.
const PIECE: usize = 8 << 10;

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
    is_another && has_not_loaded(peer.pid, settings::LIBRARY.get())
}

/// Whether a process's mappings can be looked at, and none is of a library of that name.
fn has_not_loaded(process: i32, library: &[u8]) -> bool {
    let name = library.rsplit(|byte| *byte == b'/').next();
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return false;
    };
    let wanted = [b"/", name].concat();
    let mut path = raw::Text::<40>::new();
    path.push(b"/proc/").number(process as u64).push(b"/maps");
    // SAFETY: a path that lives, with its NUL.
    let maps = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        syscall!(libc::SYS_openat, libc::AT_FDCWD, path.pointer(), flags)
    };
    if raw::failed(maps) {
        return false;
    }
    let mut bytes: Vec<u8> = Vec::new();
    let mut is_any = false;
    let found = loop {
        // What a name may have begun with stays.
        let kept = bytes.len().min(wanted.len() - 1);
        bytes.drain(..bytes.len() - kept);
        bytes.resize(kept + PIECE, 0);
        let into = bytes[kept..].as_mut_ptr();
        // SAFETY: our own buffer.
        let read = unsafe { syscall!(libc::SYS_read, maps, into, PIECE) };
        if read <= 0 {
            // One that could not be read to its end may have it.
            break raw::failed(read) || !is_any;
        }
        is_any = true;
        bytes.truncate(kept + read as usize);
        if bytes.windows(wanted.len()).any(|part| part == wanted) {
            break true;
        }
    };
    raw::close(maps);
    !found
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
