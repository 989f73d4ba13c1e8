//! Unix sockets with a name on the pool: where they are bound in the kernel (DESIGN section 9).
//!
//! A socket's name is an inode of the pool's, and a node of the host's in a directory that no session can search, under the
//! inode's number and generation. A program sends the socket itself, which the controller binds: it can be bound by any
//! descriptor of it, and stays the program's in all else (who listens and who connects, the kernel tells by their own
//! credentials). Who may connect to the inode is sent an O_PATH descriptor of the node, by which he connects himself: so
//! waiting, signals, and who he is are the kernel's matter. The node may be written by all, since nobody comes to it but
//! by such a descriptor: that is the right to connect.
//!
//! What the kernel tells of a bound socket's name (`getsockname`, to its peers too) is what it was bound to: a
//! name in a directory in which the thread stands that binds it, which is the path that the program gave, as long as that, with
//! the byte 0xff for each slash. After that the node is renamed.
//!
//! # Invariants
//! * Only a thread that can be given up touches a socket.
//! * Each inode's node is bound once: whoever was sent its descriptor connects to that socket or to none.
//! * A user has [`USER_MAX`] nodes at most, those of inodes that are gone not counted.

use super::careful::Careful;
use super::nodes::{Key, Nodes, name};
use crate::pool::names::{SOCKETS, SOCKETS_BINDING};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, bind, sockopt};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::cell::Cell;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

/// Nodes that there are at one user's instance.
const USER_MAX: usize = 4096;
/// Nodes of which it is looked whether their inodes are gone when one is made; and where a user has too many.
const LOOKED_AT: usize = 8;
const LOOKED_AT_MOST: usize = USER_MAX;

/// All sockets of a pool that somebody has bound.
#[derive(Debug)]
pub struct Sockets {
    nodes: Nodes,
    careful: Careful,
    /// Where they are bound. Made at the first need.
    binding: Option<Arc<OwnedFd>>,
}

impl Sockets {
    /// With what an earlier controller has left.
    pub fn open(pool: &OwnedFd, is_there: impl Fn(Key) -> bool) -> Result<Sockets, Errno> {
        // What was left half bound.
        Nodes::open(pool, SOCKETS_BINDING)?.close(pool);
        let mut sockets = Sockets {
            nodes: Nodes::open(pool, SOCKETS)?,
            careful: Careful::default(),
            binding: None,
        };
        sockets.remove_gone(sockets.nodes.count(), is_there);
        Ok(sockets)
    }

    /// Binds a socket to an inode, as its user asks who owns that. `path`: as the program gave it. `is_there`: whether an
    /// inode exists still. EADDRINUSE if it was bound before, ENFILE, EBUSY, EPERM where a thread may not have a directory of
    /// its own, and the kernel's errors.
    pub fn bind(
        &mut self,
        pool: &OwnedFd,
        key: Key,
        (socket, path): (OwnedFd, &[u8]),
        user: u32,
        is_there: impl Fn(Key) -> bool,
    ) -> Result<(), Errno> {
        self.careful.forget_returned();
        let given = Given::of(path)?;
        if self.nodes.has(key) {
            // An earlier controller may have bound it, and had no time to say so.
            let bound = move || given.is_name_of(socket);
            return match self.careful.has_done(key, user, bound) {
                Some(true) => Ok(()),
                _ => Err(Errno::ADDRINUSE),
            };
        }
        self.remove_gone(LOOKED_AT, &is_there);
        if self.nodes.has_as_many(user, USER_MAX) {
            self.remove_gone(self.nodes.count().min(LOOKED_AT_MOST), &is_there);
        }
        if self.nodes.has_as_many(user, USER_MAX) {
            return Err(Errno::NFILE);
        }
        let folder = self.nodes.made_directory(pool)?;
        let binding = self.binding(pool)?;
        let bound = self.careful.has_done(key, user, move || {
            bind_in(&binding, &folder, (&socket, &given), &name(key))
        });
        bound.unwrap_or(Err(Errno::BUSY))?;
        self.nodes.note(key, user);
        Ok(())
    }

    /// Closes the controller's copy of a socket, and waits for that unless it is stuck: while there is one, the socket goes
    /// on listening when its program has closed it.
    pub fn close_one(&mut self, key: Key, user: u32, socket: OwnedFd) {
        // What is stuck is closed when it is not any more.
        let _ = self.careful.has_done(key, user, move || drop(socket));
    }

    /// By which one connects to what is bound to an inode: for who may write that. ECONNREFUSED if nothing ever was.
    pub fn find(&self, key: Key) -> Result<OwnedFd, Errno> {
        let folder = self.nodes.directory().ok_or(Errno::CONNREFUSED)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(folder, name(key), flags, Mode::empty()) {
            Err(Errno::NOENT) => Err(Errno::CONNREFUSED),
            other => other,
        }
    }

    fn binding(&mut self, pool: &OwnedFd) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(binding) = &self.binding {
            return Ok(binding.clone());
        }
        let made = Nodes::open(pool, SOCKETS_BINDING)?.made_directory(pool)?;
        Ok(self.binding.insert(made).clone())
    }

    /// Removes those whose inodes are gone, of so many: to be called now and then.
    pub fn tidy(&mut self, most: usize, is_there: impl Fn(Key) -> bool) {
        self.remove_gone(self.nodes.count().min(most), is_there);
    }

    /// Removes of the next so many those whose inodes are gone: who is connected stays so.
    fn remove_gone(&mut self, count: usize, is_there: impl Fn(Key) -> bool) {
        for _ in 0..count {
            let Some(key) = self.nodes.next() else {
                return;
            };
            match is_there(key) {
                true => self.nodes.keep(key),
                false => {
                    self.careful.forget(key);
                    self.nodes.remove(key);
                }
            }
        }
    }

    /// At the controller's end.
    pub fn close(&mut self, pool: &OwnedFd) {
        self.nodes.close(pool);
        let _ = rustix::fs::unlinkat(pool, SOCKETS_BINDING, AtFlags::REMOVEDIR);
    }
}

/// What a socket is bound to for a program that has given a path.
struct Given {
    name: Vec<u8>,
    address: SocketAddrUnix,
}

impl Given {
    /// EINVAL for what is no name.
    fn of(path: &[u8]) -> Result<Given, Errno> {
        let slashless = path
            .iter()
            .map(|&byte| if byte == b'/' { 0xff } else { byte });
        let name: Vec<u8> = slashless.collect();
        if name.is_empty() || name.contains(&0) || matches!(&*name, b"." | b"..") {
            return Err(Errno::INVAL);
        }
        let address = SocketAddrUnix::new(name.as_slice())?;
        Ok(Given { name, address })
    }

    fn is_name_of(&self, socket: OwnedFd) -> bool {
        name_of(socket).is_some_and(|told| told == self.name)
    }
}

/// What a socket is bound to; of whichever kind it is.
fn name_of(socket: OwnedFd) -> Option<Vec<u8>> {
    let told = UnixDatagram::from(socket).local_addr().ok()?;
    Some(told.as_pathname()?.as_os_str().as_bytes().to_vec())
}

/// Binds a socket, under its program's name, in `binding`, in which the thread stands from then on; and gives it its own
/// name in `folder`.
fn bind_in(
    binding: &OwnedFd,
    folder: &OwnedFd,
    (socket, given): (&OwnedFd, &Given),
    name: &str,
) -> Result<(), Errno> {
    if sockopt::socket_domain(socket)? != AddressFamily::UNIX {
        return Err(Errno::INVAL);
    }
    stand_in(binding)?;
    let Given { name: own, address } = given;
    // What an attempt has left that was cut off.
    let _ = rustix::fs::unlinkat(binding, own.as_slice(), AtFlags::empty());
    bind(socket, address)?;
    let all = Mode::from_raw_mode(0o666);
    let named = rustix::fs::chmodat(binding, own.as_slice(), all, AtFlags::empty())
        .and_then(|()| rustix::fs::renameat(binding, own.as_slice(), folder, name));
    if named.is_err() {
        let _ = rustix::fs::unlinkat(binding, own.as_slice(), AtFlags::empty());
    }
    named
}

/// Makes a directory this thread's current one, and no other thread's.
fn stand_in(directory: &OwnedFd) -> Result<(), Errno> {
    thread_local! {
        static IS_APART: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_APART.get() {
        // SAFETY: the thread gets a current directory and a umask of its own, and shares all else as before:
        // descriptors among them.
        unsafe { unshare_unsafe(UnshareFlags::FS)? };
        IS_APART.set(true);
    }
    rustix::process::fchdir(directory)
}

#[cfg(test)]
mod tests;
