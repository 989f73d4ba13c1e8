//! The pool's socket, and who is at the other end of a connection.
//!
//! # Invariants
//! * Credentials come from the kernel, as they were when the peer connected.
//! * So does who has sent a packet ([`Sender`]): a connection can get into other hands than those that
//!   made it, by a fork, an exec or as a descriptor that is sent on, and says nothing in those.

use crate::error::{Error, Result};
use crate::pool::files::Pool;
use crate::pool::names::{ASIDE, SOCKET_BINDING, VIOLATIONS_LOG, VIOLATIONS_LOG_OLD};
use arck_core_state::{cast, layout};
use arck_verifier::Credentials;
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::sync::OnceLock;

/// A descriptor to give up when there are no others left.
pub fn spare() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Mode of the directory of a pool that is served to all users: they reach the socket, which they
/// know by its name, and open nothing else, since all else is the pool's user's alone.
const SHARED_DIRECTORY: Mode = Mode::RWXU.union(Mode::XGRP).union(Mode::XOTH);

/// What there is by a name in the pool's directory is its user's alone from now on.
fn close(directory: &OwnedFd, name: &str, mode: Mode) -> std::result::Result<(), Errno> {
    match rustix::fs::chmodat(directory, name, mode, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Lets all users connect to what is being bound, or no others any more.
fn share(pool: &Pool, shared: bool) -> std::result::Result<(), Errno> {
    let directory = pool.directory();
    let mode = Mode::from_raw_mode(rustix::fs::fstat(directory)?.st_mode & 0o777);
    if shared {
        let everybody = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
        rustix::fs::chmodat(directory, SOCKET_BINDING, everybody, AtFlags::empty())?;
        for folder in [layout::SEGMENTS, layout::ARENAS, ASIDE] {
            close(directory, folder, Mode::RWXU)?;
        }
        // Earlier releases let all read them.
        for log in [VIOLATIONS_LOG, VIOLATIONS_LOG_OLD] {
            close(directory, log, Mode::RUSR | Mode::WUSR)?;
        }
        rustix::fs::fchmod(directory, SHARED_DIRECTORY)
    } else if mode == SHARED_DIRECTORY {
        rustix::fs::fchmod(directory, Mode::RWXU)
    } else {
        Ok(())
    }
}

/// Binds the pool's socket; through /proc, since an address holds few bytes of path. `shared`:
/// all users may connect. It has another name until they may: who waits for this controller would be told that he may
/// not, and give up his session.
pub fn bind_socket(pool: &Pool, shared: bool) -> Result<OwnedFd> {
    let context = |operation| Error::system(pool.path().join(layout::SOCKET), operation);
    match rustix::fs::unlinkat(pool.directory(), SOCKET_BINDING, AtFlags::empty()) {
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
        SOCKET_BINDING
    );
    let address = SocketAddrUnix::new(path).map_err(context("bind"))?;
    // Before anybody connects: a connection has it from here.
    rustix::net::sockopt::set_socket_passcred(&listener, true).map_err(context("passcred"))?;
    bind(&listener, &address).map_err(context("bind"))?;
    listen(&listener, 128).map_err(context("listen"))?;
    share(pool, shared).map_err(context("chmod"))?;
    let directory = pool.directory();
    rustix::fs::renameat(directory, SOCKET_BINDING, directory, layout::SOCKET)
        .map_err(context("rename"))?;
    Ok(listener)
}

/// Who has sent a packet, as the kernel says: process, and its real user and group. Numbers of
/// processes that this one cannot see are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    pub process: i32,
    pub uid: u32,
    pub gid: u32,
}

/// The process at the other end when it connected.
pub fn peers_process(socket: BorrowedFd<'_>) -> std::result::Result<i32, Errno> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = cast::count(size_of::<libc::ucred>());
    // SAFETY: the structure is writable for `length` bytes, and the kernel writes no more.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(peer.pid),
        _ => Err(last_errno()),
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::ACCESS)
}

/// A packet.
pub struct Packet {
    /// 0: the other side is gone.
    pub length: usize,
    /// All that came with it, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
    pub sender: Option<Sender>,
}

/// Words for what comes along: all descriptors that one packet can bring (`SCM_MAX_FD`), since what has no
/// room the kernel would close here and now, which can take for ever; and the sender.
const ALONG: usize = 256;

/// Receives one packet, and who has sent it. EAGAIN if there is none.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> std::result::Result<Packet, Errno> {
    let mut along = [0u64; ALONG];
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all zeroes are a value: nothing to be filled.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = along.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&along);
    let length = loop {
        // SAFETY: the header names the buffer and `along`, which live and are as long as it says.
        let length =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(length) {
            Ok(length) => break length,
            Err(_) => match last_errno() {
                Errno::INTR => {}
                errno => return Err(errno),
            },
        }
    };
    let mut packet = Packet {
        length,
        descriptors: Vec::new(),
        sender: None,
    };
    // SAFETY: the kernel has filled `along` as the header says now.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !message.is_null() {
        // SAFETY: a whole message in `along`, whose length the kernel has set; descriptors that came with
        // it are open and nobody else's.
        unsafe {
            let data = libc::CMSG_DATA(message);
            let bytes = (*message).cmsg_len - (data as usize - message as usize);
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    let numbers = data.cast::<i32>();
                    let each = (0..bytes / size_of::<i32>())
                        .map(|at| OwnedFd::from_raw_fd(numbers.add(at).read_unaligned()));
                    packet.descriptors.extend(each);
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if bytes >= size_of::<libc::ucred>() => {
                    let of = data.cast::<libc::ucred>().read_unaligned();
                    packet.sender = Some(Sender {
                        process: of.pid,
                        uid: of.uid,
                        gid: of.gid,
                    });
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    Ok(packet)
}

/// Which numbers of users, or of groups, the user namespace of this process knows.
struct Ids {
    are_all_known: bool,
    /// What all others are told as.
    unknown: u32,
}

/// Those of users and of groups. Where nothing tells, all are known: there are no namespaces.
fn known() -> &'static [Ids; 2] {
    static KNOWN: OnceLock<[Ids; 2]> = OnceLock::new();
    KNOWN.get_or_init(|| {
        ["uid", "gid"].map(|kind| {
            let map = std::fs::read_to_string(format!("/proc/self/{kind}_map"));
            let unknown = std::fs::read_to_string(format!("/proc/sys/kernel/overflow{kind}"));
            Ids {
                are_all_known: map.map_or(true, |map| is_whole(&map)),
                unknown: unknown.map_or(65534, |text| text.trim().parse().unwrap_or(65534)),
            }
        })
    })
}

/// Whether a map of a user namespace leaves no number out (the greatest is none).
fn is_whole(map: &str) -> bool {
    let lengths = map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2));
    lengths
        .filter_map(|length| length.parse::<u64>().ok())
        .sum::<u64>()
        >= u64::from(u32::MAX)
}

/// Who is at the other end, supplementary groups included; an error where the kernel does not say.
pub fn peer(socket: BorrowedFd<'_>) -> std::result::Result<Credentials, Errno> {
    let user = rustix::net::sockopt::socket_peercred(socket)?;
    let mut groups = vec![0u32; 64];
    loop {
        let mut length = cast::count(groups.len() * 4);
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
        let errno = last_errno();
        // Too many groups: the kernel has said how much room they take.
        if (length as usize) / 4 > groups.len() && length as usize / 4 <= 1 << 16 {
            groups.resize(length as usize / 4, 0);
            continue;
        }
        // Not "in no group": modes can also take from a group what all others have.
        return Err(errno);
    }
    let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
    let is_known = |ids: &Ids, id: u32| ids.are_all_known || id != ids.unknown;
    let known = known();
    let are_known = is_known(&known[0], uid)
        && std::iter::once(&gid)
            .chain(&groups)
            .all(|&id| is_known(&known[1], id));
    if !are_known {
        // Many have that number here, and are not one user.
        return Err(Errno::OVERFLOW);
    }
    Ok(Credentials {
        session: 0,
        uid,
        gid,
        groups,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestCore;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn a_map_is_whole_that_leaves_nobody_out() {
        for (map, expected) in [
            ("         0          0 4294967295\n", true),
            ("0 0 1000\n1000 100000 4294966295\n", true),
            ("         0       1000          1\n", false),
            ("0 0 65536\n", false),
            ("", false),
        ] {
            assert_eq!(is_whole(map), expected, "{map}");
        }
    }

    /// # Regression
    /// All might connect a moment after the socket was there: programs that were waiting for a controller in the place of
    /// one that had been killed gave up their sessions, and lost what they had in hand.
    #[test]
    fn whoever_finds_the_socket_may_connect() {
        const FOUND: usize = 100;
        let test = TestCore::new();
        let pool = &test.core.sessions.state.pool;
        let path = pool.path().join(layout::SOCKET);
        let (is_over, found) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok(socket) = rustix::fs::stat(&path) {
                        assert_eq!(socket.st_mode & 0o777, 0o666);
                        found.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            // On a busy machine the other thread may not run for a while.
            let end = Instant::now() + Duration::from_secs(60);
            while found.load(Ordering::Relaxed) < FOUND
                && !looking.is_finished()
                && Instant::now() < end
            {
                drop(bind_socket(pool, true).expect("bound"));
                rustix::fs::unlink(&path).expect("there");
            }
            is_over.store(true, Ordering::Relaxed);
            looking.join().expect("a look");
        });
        assert!(found.into_inner() >= FOUND, "it was hardly ever there");
    }
}
