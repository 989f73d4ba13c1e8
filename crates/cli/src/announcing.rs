//! How `arck status` finds the pools that are served on this machine: each controller listens on an
//! abstract Unix socket of a name of its own, and tells whoever connects there where its pool is.
//!
//! Anybody can listen on such a name, and say whatever he likes there. So what is announced is a hint:
//! whoever reads it knows from the kernel alone who has announced it ([`Peer`]), and looks at the pool itself
//! (`status::served`).
//!
//! # Invariants
//! * A controller never waits for whoever connects: it sends one packet to a socket that is new, and closes it.
//! * Nothing here waits for a controller either: sockets do not block, and who reads decides how long to wait.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the names begin with; 32 digits follow.
const PREFIX: &str = "arck-serves-";
const DIGITS: usize = 32;
/// Longest path that is told.
const PATH_MAX: usize = 4096;
/// Between two looks, where the process may have no more descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// An announcement: lasts as long as this.
pub struct Announcement {
    listener: OwnedFd,
    /// By which its path is known, wherever it is moved to.
    directory: OwnedFd,
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl Announcement {
    /// Announces that this process serves a pool. As who announces it counts who this process is now.
    pub fn make(pool: &Path) -> Result<Announcement, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, pool, flags, Mode::empty())?;
        let listener = socket()?;
        let mut random = [0u8; DIGITS / 2];
        let source = rustix::fs::open(
            "/dev/urandom",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        rustix::io::read(source, &mut random)?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{PREFIX}{digits}");
        rustix::net::bind(
            &listener,
            &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        )?;
        rustix::net::listen(&listener, 64)?;
        Ok(Announcement {
            listener,
            directory,
        })
    }

    /// Readable when somebody asks.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers some of those who ask.
    pub fn answer(&self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..16 {
            let asker = match rustix::net::accept_with(&self.listener, flags) {
                Ok(asker) => asker,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => return std::thread::sleep(PAUSE),
            };
            let place = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
            if let Ok(path) = std::fs::read_link(place) {
                // Who has gone again is told nothing.
                let _ = rustix::net::send(asker, path.as_os_str().as_bytes(), SendFlags::NOSIGNAL);
            }
        }
    }
}

/// The names under which something is announced, at most so many.
///
/// # Errors
/// The kernel does not list its sockets.
pub fn names(most: usize) -> std::io::Result<Vec<String>> {
    let mut lines = BufReader::new(std::fs::File::open("/proc/self/net/unix")?);
    let (mut names, mut line) = (Vec::new(), Vec::new());
    while names.len() < most {
        line.clear();
        // A name has a hundred bytes at most, and may have any: a line that is longer is none of ours.
        if lines.by_ref().take(4096).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        names.extend(name_in(&line));
    }
    Ok(names)
}

/// The name in a line of `/proc/net/unix`, if somebody listens there and it is one of these.
fn name_in(line: &[u8]) -> Option<String> {
    /// `__SO_ACCEPTCON`.
    const LISTENS: &str = "00010000";
    let text = std::str::from_utf8(line).ok()?;
    let mut words = text.split_ascii_whitespace();
    (words.nth(3) == Some(LISTENS)).then_some(())?;
    let name = words.nth(3)?.strip_prefix('@')?;
    let digits = name.strip_prefix(PREFIX)?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (digits.len() == DIGITS && digits.bytes().all(is_digit)).then(|| name.to_owned())
}

/// Who listens at the other end: process and user, as the kernel says; the process is 0 if it has no number for
/// this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    pub process: i32,
    pub user: u32,
}

impl Peer {
    /// Of a connected socket: who began to listen there.
    pub fn of(socket: BorrowedFd<'_>) -> Result<Peer, Errno> {
        let mut peer = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
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
            0 => Ok(Peer {
                process: peer.pid,
                user: peer.uid,
            }),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }
}

/// Connects to who listens on a name. AGAIN: too many others are waiting there.
pub fn connect(name: &str) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    rustix::net::connect(
        &socket,
        &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )?;
    Ok(socket)
}

/// What is told there: where the pool is. AGAIN: nothing yet.
pub fn told(socket: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let mut path = vec![0; PATH_MAX];
    let (length, _) = rustix::net::recv(socket, &mut path, RecvFlags::DONTWAIT)?;
    path.truncate(length);
    let path = PathBuf::from(OsString::from_vec(path));
    match path.is_absolute() {
        true => Ok(path),
        false => Err(Errno::PROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_others() {
        let name = "arck-serves-0123456789abcdef0123456789abcdef";
        let line = |flags: &str, name: &str| {
            format!("0000000000000000: 00000002 00000000 {flags} 0005 01 4711 {name}\n")
        };
        let found = name_in(line("00010000", &format!("@{name}")).as_bytes());
        assert_eq!(found.as_deref(), Some(name));
        for (flags, other) in [
            // Connected there.
            ("00000000", format!("@{name}")),
            // In the file system.
            ("00010000", name.to_owned()),
            ("00010000", format!("@{}", &name[1..])),
            ("00010000", format!("@{name}0")),
            ("00010000", format!("@{}\x1b", &name[..43])),
            ("00010000", String::new()),
        ] {
            assert_eq!(name_in(line(flags, &other).as_bytes()), None, "{other:?}");
        }
        assert_eq!(name_in(b"\xff\n"), None);
    }

    #[test]
    fn what_is_announced_is_found_and_told() {
        let place = tempfile::tempdir().unwrap();
        let here = std::fs::canonicalize(place.path()).unwrap();
        let before: Vec<String> = names(usize::MAX).unwrap();
        let announcement = Announcement::make(&here).unwrap();
        let ours = names(usize::MAX).unwrap();
        let ours: Vec<&String> = ours.iter().filter(|name| !before.contains(name)).collect();
        let asked = ours.iter().find_map(|name| {
            let socket = connect(name).ok()?;
            announcement.answer();
            (told(socket.as_fd()).ok()? == here).then_some(socket)
        });
        let peer = Peer::of(asked.expect("it is found").as_fd()).unwrap();
        let (process, user) = (std::process::id(), rustix::process::geteuid());
        assert_eq!(
            (peer.process.unsigned_abs(), peer.user),
            (process, user.as_raw())
        );
    }
}
