//! The pool's socket, and who is at the other end of a connection.
//!
//! # Invariant
//! * Credentials come from the kernel, as they were when the peer connected.

use crate::error::{Error, Result};
use crate::pool::Pool;
use arck_core_state::layout;
use arck_verifier::Credentials;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

/// A descriptor to give up when there are no others left.
pub fn spare() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Mode of the directory of a pool that is served to all users: they reach the socket, which they
/// know by its name, and open nothing else, since all else is the pool's user's alone.
const SHARED_DIRECTORY: Mode = Mode::RWXU.union(Mode::XGRP).union(Mode::XOTH);

/// Lets all users connect, or no others any more.
fn share(pool: &Pool, shared: bool) -> std::result::Result<(), Errno> {
    let directory = pool.directory();
    let mode = Mode::from_raw_mode(rustix::fs::fstat(directory)?.st_mode & 0o777);
    if shared {
        let everybody = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
        rustix::fs::chmodat(directory, layout::SOCKET, everybody, AtFlags::empty())?;
        for folder in [layout::SEGMENTS, layout::ARENAS] {
            rustix::fs::chmodat(directory, folder, Mode::RWXU, AtFlags::empty())?;
        }
        rustix::fs::fchmod(directory, SHARED_DIRECTORY)
    } else if mode == SHARED_DIRECTORY {
        rustix::fs::fchmod(directory, Mode::RWXU)
    } else {
        Ok(())
    }
}

/// Binds the pool's socket; through /proc, since an address holds few bytes of path. `shared`:
/// all users may connect.
pub fn bind_socket(pool: &Pool, shared: bool) -> Result<OwnedFd> {
    let context = |operation| Error::system(pool.path().join(layout::SOCKET), operation);
    match rustix::fs::unlinkat(pool.directory(), layout::SOCKET, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(context("unlink")(errno)),
    }
    let listener = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .map_err(context("socket"))?;
    let path = format!(
        "/proc/self/fd/{}/{}",
        pool.directory().as_raw_fd(),
        layout::SOCKET
    );
    let address = SocketAddrUnix::new(path).map_err(context("bind"))?;
    bind(&listener, &address).map_err(context("bind"))?;
    listen(&listener, 128).map_err(context("listen"))?;
    share(pool, shared).map_err(context("chmod"))?;
    Ok(listener)
}

/// Who is at the other end, supplementary groups included; an error where the kernel does not say.
pub fn peer(socket: BorrowedFd<'_>) -> std::result::Result<Credentials, Errno> {
    let user = rustix::net::sockopt::socket_peercred(socket)?;
    let mut groups = vec![0u32; 64];
    loop {
        let mut length = (groups.len() * 4) as libc::socklen_t;
        // SAFETY: the buffer is writable for `length` bytes, and the kernel writes no more.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            groups.truncate(length as usize / 4);
            break;
        }
        let errno = std::io::Error::last_os_error();
        // Too many groups: the kernel has said how much room they take.
        if (length as usize) / 4 > groups.len() && length as usize / 4 <= 1 << 16 {
            groups.resize(length as usize / 4, 0);
            continue;
        }
        // Not "in no group": modes can also take from a group what all others have.
        return Err(Errno::from_io_error(&errno).unwrap_or(Errno::ACCESS));
    }
    Ok(Credentials {
        session: 0,
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        groups,
    })
}
