//! Descriptors that are sent through sockets (SCM_RIGHTS).
//!
//! What travels is the placeholder, of which the controller knows what it stands for: see
//! [`handover`](crate::handover). Who receives one, and is served by this library on the same pool,
//! finds an open file of its own session behind it, with the same offset; to all others it is a file
//! that can neither be read nor written. So what goes to a process of which it is known that this library is not loaded
//! into it ([`receivers`]) is a descriptor of the mount's, where there is one, at the same place of the same file.

use super::sockets;
use crate::backend::{Errno, Handle, minus};
use crate::descriptors::{self, Descriptor, placeholders};
use crate::handover::{self, held};
use crate::lock_files::sharing;
use crate::raw::{self, Arguments, blocking};
use crate::unreached::receivers;
use crate::{memory, reserved, settings, thread, unreached};

/// Longest part of a message's control data that is looked at, in bytes: more than the kernel takes
/// of descriptors.
const CONTROL_MAX: usize = 8192;
const HEAD: usize = size_of::<libc::cmsghdr>();

/// Calls `visit` for each descriptor in control data, with its place there.
fn for_each_descriptor(control: &[u8], mut visit: impl FnMut(usize, usize)) {
    let mut rest = control;
    while rest.len() >= HEAD {
        let word = |at: usize| {
            rest.get(at..at + 4).map_or(0, |bytes| {
                i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
            })
        };
        let length = word(0) as u32 as usize;
        if length < HEAD || length > rest.len() || word(4) != 0 {
            return;
        }
        if (word(8), word(12)) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            let first = control.len() - rest.len() + HEAD;
            for (at, bytes) in rest[HEAD..length].chunks_exact(4).enumerate() {
                let number = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                visit(number as u32 as usize, first + 4 * at);
            }
        }
        rest = rest
            .get(length.next_multiple_of(size_of::<usize>())..)
            .unwrap_or_default();
    }
}

/// Runs `look` on the control data of a message, if it can be read and there is any.
fn with_control<R>(message: usize, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
    // SAFETY: numbers, and bytes.
    unsafe {
        let head = memory::copy_in::<libc::msghdr>(message).ok()?;
        if head.msg_control.is_null() || head.msg_controllen < HEAD {
            return None;
        }
        let length = head.msg_controllen.min(CONTROL_MAX);
        let mut room = Box::<[u8]>::new_uninit_slice(length);
        let control = memory::copy_many_in(&mut room, head.msg_control as usize, length).ok()?;
        Some(look(control))
    }
}

/// Control data that is sent in place of the program's, with the mount's descriptors in it, which are closed when it is
/// dropped: then it has been sent.
struct Replaced {
    control: Vec<u8>,
    /// Numbers that the program cannot use meanwhile.
    opened: Vec<usize>,
}

impl Drop for Replaced {
    fn drop(&mut self) {
        self.opened.iter().for_each(|&number| held::close(number));
    }
}

impl Replaced {
    /// A descriptor of the mount's in the place of one of the pool's. False if there is none.
    fn replace(&mut self, at: usize, handle: Handle) -> bool {
        let opened = match unreached::mounted::another(handle) {
            failed if raw::failed(failed) => return false,
            opened => opened,
        };
        let kept = reserved::keep(opened);
        let is_there = !raw::failed(kept);
        if !is_there {
            raw::close(opened);
        } else {
            // A child that is forked meanwhile has no use for it.
            held::hold(kept as i32);
            self.opened.push(kept as usize);
            self.control[at..at + 4].copy_from_slice(&(kept as i32).to_ne_bytes());
        }
        is_there
    }
}

/// Before a message is sent through a socket: what is the pool's in it becomes what others can open. What is to be sent in
/// place of its control data, if anything is. EBADF for what is not open to the program.
fn before_sending(socket: usize, message: usize) -> Result<Option<Replaced>, isize> {
    let looked = with_control(message, |control| {
        let mut result = Ok(());
        let mut replaced = None;
        for_each_descriptor(control, |number, at| match descriptors::lookup(number) {
            Descriptor::Kernel => {}
            Descriptor::Error(error) => result = Err(error),
            Descriptor::Pool(handle) => {
                let made = replaced.get_or_insert_with(|| {
                    let is_whole = control.len() < CONTROL_MAX;
                    (is_whole && receivers::is_unreached(socket)).then(|| Replaced {
                        control: control.to_vec(),
                        opened: Vec::new(),
                    })
                });
                if made.as_mut().is_some_and(|made| made.replace(at, handle)) {
                    return;
                }
                handover::externalize(|other| other == number);
                sharing::before_sharing(|other| other == number);
                sharing::before_sending(handle);
            }
        });
        let replaced = replaced.flatten();
        result.map(|()| replaced.filter(|made| !made.opened.is_empty()))
    });
    looked.unwrap_or(Ok(None))
}

/// Whether there are descriptors of the pool in a message.
fn has_any(message: usize) -> bool {
    let has_any = with_control(message, |control| {
        let mut has_any = false;
        for_each_descriptor(control, |number, _| has_any |= descriptors::is_pool(number));
        has_any
    });
    has_any.unwrap_or(false)
}

/// After a message has come: what is a placeholder in it stands for what it stands for.
fn after_receiving(message: usize, flags: i32) {
    let close_on_exec = flags & libc::MSG_CMSG_CLOEXEC != 0;
    // What is only looked at comes again.
    let is_sent = flags & libc::MSG_PEEK == 0;
    with_control(message, |control| {
        for_each_descriptor(control, |number, _| {
            descriptors::kernel_opened(number as isize);
            handover::inherit(number, close_on_exec, is_sent);
        });
    });
}

fn is_ours() -> bool {
    settings::ready() && !thread::inside()
}

/// # Safety
/// As the system call's. The same holds for every handler below.
pub unsafe fn sendmsg(a: &Arguments) -> isize {
    let replaced = match is_ours() {
        true => match before_sending(a[0], a[1]) {
            Ok(replaced) => replaced,
            Err(error) => return error,
        },
        false => None,
    };
    let mut head;
    let mut message = a[1];
    if let Some(replaced) = &replaced {
        // SAFETY: numbers.
        head = match unsafe { memory::copy_in::<libc::msghdr>(message) } {
            Ok(head) => head,
            Err(errno) => return minus(errno),
        };
        head.msg_control = replaced.control.as_ptr().cast_mut().cast();
        head.msg_controllen = replaced.control.len();
        message = (&raw const head) as usize;
    }
    // SAFETY: the program's arguments, or its message with control data of our own.
    unsafe {
        sockets::send_to_name(libc::SYS_sendmsg, a[0], message, a[2])
            .unwrap_or_else(|| blocking!(libc::SYS_sendmsg, a[0], message, a[2]))
    }
}

/// `struct mmsghdr` begins with the message's own head.
fn messages(first: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |index| first + index * size_of::<libc::mmsghdr>())
}

/// As many messages as the kernel takes at once.
const MESSAGES_MAX: usize = 1024;

/// # Safety
/// As for [`sendmsg`].
pub unsafe fn sendmmsg(a: &Arguments) -> isize {
    if is_ours() {
        let count = (a[2] as u32 as usize).min(MESSAGES_MAX);
        let is_replaced = || messages(a[1], count).any(has_any) && receivers::is_unreached(a[0]);
        if messages(a[1], count).any(sockets::names_path) || is_replaced() {
            // SAFETY: the program's arguments.
            return unsafe { send_one_by_one(a, count) };
        }
        for message in messages(a[1], count) {
            let sent = before_sending(a[0], message);
            if !matches!(sent, Ok(None)) {
                // What is before it can be sent.
                if message == a[1] {
                    // SAFETY: the program's arguments.
                    return sent
                        .map_or_else(|error| error, |_| unsafe { send_one_by_one(a, count) });
                }
                let before = (message - a[1]) / size_of::<libc::mmsghdr>();
                // SAFETY: the program's arguments, fewer messages.
                return unsafe { blocking!(libc::SYS_sendmmsg, a[0], a[1], before, a[3]) };
            }
        }
    }
    // SAFETY: the program's arguments.
    unsafe { blocking!(libc::SYS_sendmmsg, a[0], a[1], a[2], a[3]) }
}

/// # Safety
/// As for [`sendmmsg`], of `count` messages.
unsafe fn send_one_by_one(a: &Arguments, count: usize) -> isize {
    for (sent, message) in messages(a[1], count).enumerate() {
        // SAFETY: the caller's promise.
        let result = unsafe { sendmsg(&[a[0], message, a[3], 0, 0, 0]) };
        if raw::failed(result) {
            return if sent == 0 { result } else { sent as isize };
        }
        let length = message + std::mem::offset_of!(libc::mmsghdr, msg_len);
        if let Err(errno) = memory::copy_out(length, &(result as u32)) {
            return minus(errno);
        }
    }
    count as isize
}

/// # Safety
/// As for [`sendmsg`].
pub unsafe fn recvmsg(a: &Arguments) -> isize {
    let room = is_ours().then(|| sockets::Room::of_message(a[1])).flatten();
    if is_ours() {
        descriptors::before_kernel_opens();
    }
    // SAFETY: the program's arguments.
    let result = unsafe { blocking!(libc::SYS_recvmsg, a[0], a[1], a[2]) };
    if !raw::failed(result) && is_ours() {
        after_receiving(a[1], a[2] as i32);
        name_told(room, a[1]);
    }
    result
}

/// # Safety
/// As for [`sendmsg`].
pub unsafe fn recvmmsg(a: &Arguments) -> isize {
    let mut rooms = Vec::new();
    if is_ours() {
        let count = (a[2] as u32 as usize).min(MESSAGES_MAX);
        let all = || messages(a[1], count).map(sockets::Room::of_message);
        if all().any(|room| room.is_some()) {
            rooms.extend(all());
        }
        descriptors::before_kernel_opens();
    }
    // SAFETY: the program's arguments.
    let result = unsafe { blocking!(libc::SYS_recvmmsg, a[0], a[1], a[2], a[3], a[4]) };
    if !raw::failed(result) && is_ours() {
        for (index, message) in messages(a[1], result as usize).enumerate() {
            after_receiving(message, a[3] as i32);
            name_told(rooms.get(index).copied().flatten(), message);
        }
    }
    result
}

/// After a message has come from a socket that has a name.
fn name_told(room: Option<sockets::Room>, message: usize) {
    let length = message + std::mem::offset_of!(libc::msghdr, msg_namelen);
    if let Some(room) = room
        // SAFETY: an integer.
        && let Ok(length) = unsafe { memory::copy_in::<u32>(length) }
    {
        room.filled(length as usize);
    }
}

/// What a process hands out of another: the same.
///
/// # Safety
/// As for [`sendmsg`].
pub unsafe fn pidfd_getfd(a: &Arguments) -> isize {
    if is_ours() {
        descriptors::before_kernel_opens();
    }
    // SAFETY: the program's arguments.
    let result = unsafe { raw::call(libc::SYS_pidfd_getfd as usize, a) };
    if !raw::failed(result) && is_ours() {
        descriptors::kernel_opened(result);
        if !handover::inherit(result as usize, true, false)
            && placeholders::is_plain(result as usize)
        {
            // Its owner has told nobody what it stands for.
            raw::close(result);
            return minus(Errno::BADF);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_in_control_data() {
        let found = |words: &[i32], length: usize| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let mut found = Vec::new();
            let bytes = &bytes[..length.min(bytes.len())];
            for_each_descriptor(bytes, |number, at| {
                assert_eq!(bytes[at..at + 4], (number as i32).to_ne_bytes());
                found.push(number);
            });
            found
        };
        let rights = [libc::SOL_SOCKET, libc::SCM_RIGHTS];
        let one = [20, 0, rights[0], rights[1], 7, 0];
        assert_eq!(found(&one, 24), [7]);
        // The last needs no padding.
        assert_eq!(found(&one, 20), [7]);
        let two = [&[16, 0, libc::SOL_SOCKET, libc::SCM_CREDENTIALS][..], &one].concat();
        assert_eq!(found(&two, 40), [7]);
        // What leads beyond the end, or nowhere.
        assert!(found(&[40, 0, rights[0], rights[1], 7, 0], 24).is_empty());
        assert!(found(&[0, 0, rights[0], rights[1]], 16).is_empty());
        assert!(found(&[20, 1, rights[0], rights[1], 7, 0], 24).is_empty());
    }
}
