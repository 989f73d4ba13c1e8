//! Unix sockets with a name on the pool: binding, connecting, sending to a name, and the names that the kernel tells.
//!
//! The controller binds the program's socket to a node of its own, under the name that the program gave, in which the byte
//! 0xff stands for each slash ([`arckfs::FileSystem::bind_socket`]). Who connects, or sends, does so by a descriptor of
//! that node, in the program's own call. What the kernel tells of such names is put back to what it was, which is as long.
//!
//! Invariant: what does not name the pool goes to the kernel unchanged; the name of a socket that the kernel tells is
//! anybody's choice, and grants nothing.

use super::control;
use super::{HERE, masked};
use crate::backend::forks::Received;
use crate::backend::{Failure, inside, minus};
use crate::path::{Place, Scratch, place};
use crate::raw::{self, Arguments, blocking, error, syscall};
use crate::{memory, report, settings, thread};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Longest path in a socket's address, in bytes.
const PATH: usize = 108;
/// Bytes of the address before the path.
const FAMILY: usize = offset_of!(libc::sockaddr_un, sun_path);
/// Stands for a slash in what the controller binds to.
const SLASH: u8 = 0xff;

/// A path of the program's in an address.
struct Given {
    bytes: [u8; PATH + 1],
    length: usize,
}

/// The path that an address of the program's names; `None` for what is none.
fn path_in(address: usize, length: usize) -> Option<Given> {
    if address == 0 || thread::inside() || !settings::ready() {
        return None;
    }
    let mut room = [const { MaybeUninit::uninit() }; FAMILY + PATH];
    // SAFETY: bytes of the program's, of which no more is read than it says.
    let copied = unsafe { memory::copy_many_in(&mut room, address, length as u32 as usize) };
    let Ok([first, second, name @ ..]) = copied else {
        return None;
    };
    let family = u16::from_ne_bytes([*first, *second]);
    if i32::from(family) != libc::AF_UNIX || matches!(name.first(), None | Some(0)) {
        return None;
    }
    // The path may fill the address, without a NUL byte behind it.
    let mut given = Given {
        bytes: [0; PATH + 1],
        length: 0,
    };
    given.bytes[..name.len()].copy_from_slice(name);
    given.length = given.bytes.iter().position(|&byte| byte == 0)?;
    Some(given)
}

fn is_unix(socket: usize) -> bool {
    let (mut domain, mut length) = (0i32, 4u32);
    // SAFETY: an integer and its size on the stack.
    let result = unsafe {
        syscall!(
            libc::SYS_getsockopt,
            socket,
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            &raw mut domain,
            &raw mut length
        )
    };
    !raw::failed(result) && domain == libc::AF_UNIX
}

/// An address for the kernel, and what it leads to as long as this lives.
struct Address {
    address: libc::sockaddr_un,
    length: usize,
    node: Option<Received>,
}

impl Address {
    /// ENAMETOOLONG if it is longer than the kernel takes.
    fn of(path: &[u8]) -> Result<Address, isize> {
        // SAFETY: integers and bytes, for which all zeroes are a value.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        if path.len() > PATH {
            return Err(error(libc::ENAMETOOLONG));
        }
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(path) {
            *to = from.cast_signed();
        }
        Ok(Address {
            address,
            length: FAMILY + path.len(),
            node: None,
        })
    }

    fn pointer(&self) -> usize {
        (&raw const self.address) as usize
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        let _inside = thread::enter();
        drop(self.node.take());
    }
}

/// What to use instead of an address of the program's that a socket is to be connected to; `None`: that itself.
fn target(
    number: i64,
    socket: usize,
    address: usize,
    length: usize,
) -> Option<Result<Address, isize>> {
    let given = path_in(address, length)?;
    let mut scratch = Scratch::new();
    // SAFETY: a string that ends with a NUL byte.
    let place = unsafe { place(HERE, given.bytes.as_ptr() as usize, &mut scratch) };
    let (at, path) = match place {
        Place::Kernel => return None,
        // What is no such socket is told so by the kernel.
        _ if !is_unix(socket) => return None,
        Place::Error(error) => return Some(Err(error)),
        Place::Pool(at, path) => (at, path),
    };
    report::served(number);
    Some(match inside(|fs| fs.find_socket(at, path)) {
        Ok(node) => {
            let number = node.first().map_or(-1, AsRawFd::as_raw_fd);
            let found = Address::of(raw::descriptor_path(number as usize).bytes());
            found.map(|address| address.with(node))
        }
        Err(Failure::Errno(errno)) => Err(minus(errno)),
        // A link led out of the pool.
        Err(Failure::Outside(path)) => Address::of(&path),
    })
}

impl Address {
    fn with(mut self, node: Received) -> Address {
        self.node = Some(node);
        self
    }
}

/// # Safety
/// As the system call's. The same holds for every handler below.
pub unsafe fn bind(a: &Arguments) -> isize {
    // SAFETY: the program's arguments, or an address made of them.
    let kernel =
        |address: usize, length: usize| unsafe { syscall!(libc::SYS_bind, a[0], address, length) };
    let Some(given) = path_in(a[1], a[2]) else {
        return kernel(a[1], a[2]);
    };
    let mut scratch = Scratch::new();
    // SAFETY: a string that ends with a NUL byte.
    let place = unsafe { place(HERE, given.bytes.as_ptr() as usize, &mut scratch) };
    let (at, path) = match place {
        Place::Kernel => return kernel(a[1], a[2]),
        _ if !is_unix(a[0]) => return kernel(a[1], a[2]),
        Place::Error(error) => return error,
        Place::Pool(at, path) => (at, path),
    };
    report::served(libc::SYS_bind);
    // SAFETY: a number, and a structure that the kernel fills.
    let mode = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        syscall!(libc::SYS_fstat, a[0], &raw mut status);
        status.st_mode & 0o7777
    };
    // SAFETY: the program's; the controller looks at what it is sent.
    let socket = unsafe { BorrowedFd::borrow_raw(a[0] as i32) };
    let name = &given.bytes[..given.length];
    let mode = masked(mode as usize);
    match inside(|fs| fs.bind_socket((at, path), mode, name, socket)) {
        Ok(()) => 0,
        Err(Failure::Errno(errno)) => minus(errno),
        Err(Failure::Outside(path)) => match Address::of(&path) {
            Ok(address) => kernel(address.pointer(), address.length),
            Err(error) => error,
        },
    }
}

pub unsafe fn connect(a: &Arguments) -> isize {
    // SAFETY: the program's arguments, or an address made of them.
    unsafe {
        match target(libc::SYS_connect, a[0], a[1], a[2]) {
            None => blocking!(libc::SYS_connect, a[0], a[1], a[2]),
            Some(Ok(to)) => blocking!(libc::SYS_connect, a[0], to.pointer(), to.length),
            Some(Err(error)) => error,
        }
    }
}

pub unsafe fn sendto(a: &Arguments) -> isize {
    // SAFETY: the program's arguments, or an address made of them.
    unsafe {
        match target(libc::SYS_sendto, a[0], a[4], a[5]) {
            None => raw::other_call(libc::SYS_sendto as usize, a),
            Some(Ok(to)) => {
                blocking!(
                    libc::SYS_sendto,
                    a[0],
                    a[1],
                    a[2],
                    a[3],
                    to.pointer(),
                    to.length
                )
            }
            Some(Err(error)) => error,
        }
    }
}

/// Sends a message of the program's whose head names the pool; `None`: it does not.
///
/// # Safety
/// As the system call's `sendmsg`.
pub unsafe fn send_to_name(
    number: i64,
    socket: usize,
    message: usize,
    flags: usize,
) -> Option<isize> {
    // SAFETY: numbers.
    let head = unsafe { memory::copy_in::<libc::msghdr>(message) }.ok()?;
    let named = target(
        number,
        socket,
        head.msg_name as usize,
        head.msg_namelen as usize,
    )?;
    Some(match named {
        Ok(to) => {
            let head = libc::msghdr {
                msg_name: to.pointer() as *mut libc::c_void,
                msg_namelen: to.length as u32,
                ..head
            };
            // SAFETY: the program's message with another address.
            unsafe { blocking!(libc::SYS_sendmsg, socket, &raw const head, flags) }
        }
        Err(error) => error,
    })
}

/// Whether the head of a message of the program's names a path.
pub fn names_path(message: usize) -> bool {
    // SAFETY: numbers.
    let head = unsafe { memory::copy_in::<libc::msghdr>(message) };
    head.is_ok_and(|head| path_in(head.msg_name as usize, head.msg_namelen as usize).is_some())
}

/// Room for an address that the kernel is about to fill: where, and how much.
#[derive(Clone, Copy)]
pub struct Room {
    address: usize,
    size: usize,
}

impl Room {
    /// Of calls that are told where the size stands.
    #[inline(always)]
    pub fn of(address: usize, size: usize) -> Option<Room> {
        if address == 0 || size == 0 || thread::inside() || !settings::ready() {
            return None;
        }
        // SAFETY: an integer.
        let size = unsafe { memory::copy_in::<u32>(size) }.ok()? as usize;
        Some(Room { address, size })
    }

    /// Of a message.
    pub fn of_message(message: usize) -> Option<Room> {
        // SAFETY: numbers.
        let head = unsafe { memory::copy_in::<libc::msghdr>(message) }.ok()?;
        let address = head.msg_name as usize;
        (address != 0 && settings::ready()).then_some(Room {
            address,
            size: head.msg_namelen as usize,
        })
    }

    /// After the kernel has filled it with an address of so many bytes: a name that the controller has bound a socket to
    /// becomes the one that its program gave.
    pub fn filled(self, length: usize) {
        let mut room = [const { MaybeUninit::uninit() }; FAMILY + PATH];
        let length = length.min(self.size).min(room.len());
        // SAFETY: bytes that the kernel has written a moment ago.
        let copied = unsafe { memory::copy_many_in(&mut room, self.address, length) };
        let Ok([first, second, name @ ..]) = copied else {
            return;
        };
        let family = u16::from_ne_bytes([*first, *second]);
        if i32::from(family) != libc::AF_UNIX {
            return;
        }
        let mut bytes = [0; PATH];
        let bytes = &mut bytes[..name.len()];
        bytes.copy_from_slice(name);
        if put_back(bytes) {
            // Nobody is told that it cannot be written any more.
            let _ = memory::copy_slice_out(self.address + FAMILY, bytes);
        }
    }
}

/// Puts the slashes back into a path that the kernel tells; whether there were any to be put.
fn put_back(path: &mut [u8]) -> bool {
    let is_ours = !matches!(path.first(), None | Some(0)) && !path.contains(&b'/');
    let mut are_some = false;
    if is_ours {
        for byte in path.iter_mut().filter(|byte| **byte == SLASH) {
            *byte = b'/';
            are_some = true;
        }
    }
    are_some
}

/// A call that tells an address, in argument `AT` and its size in the next.
#[inline(always)]
fn tells<const AT: usize>(a: &Arguments, call: impl FnOnce() -> isize) -> isize {
    let room = Room::of(a[AT], a[AT + 1]);
    let result = call();
    if let Some(room) = room
        && !raw::failed(result)
        // SAFETY: an integer.
        && let Ok(length) = unsafe { memory::copy_in::<u32>(a[AT + 1]) }
    {
        room.filled(length as usize);
    }
    result
}

/// `getsockname` and `getpeername`.
///
/// # Safety
/// As the system call's.
pub unsafe fn name<const NUMBER: usize>(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    tells::<1>(a, || unsafe { raw::call(NUMBER, a) })
}

/// `accept` and `accept4`.
///
/// # Safety
/// As the system call's.
pub unsafe fn accept<const NUMBER: usize>(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    tells::<1>(a, || unsafe { control::opens::<NUMBER>(a) })
}

pub unsafe fn recvfrom(a: &Arguments) -> isize {
    // SAFETY: the program's arguments.
    let kernel = || unsafe { raw::other_call(libc::SYS_recvfrom as usize, a) };
    match a[4] {
        0 => kernel(),
        _ => tells::<4>(a, kernel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_are_put_back_where_the_controller_has_taken_them() {
        let told = |path: &[u8]| {
            let mut bytes = path.to_vec();
            put_back(&mut bytes).then_some(bytes)
        };
        assert_eq!(told(b"\xffarck\xffd\xffs\0"), Some(b"/arck/d/s\0".to_vec()));
        assert_eq!(told(b"d\xffs"), Some(b"d/s".to_vec()));
        // What lies on the host, has no slash, or no name, or an abstract one.
        for other in [b"/tmp/\xff".as_slice(), b"s\0", b"", b"\0\xff"] {
            assert_eq!(told(other), None, "{other:?}");
        }
    }
}
