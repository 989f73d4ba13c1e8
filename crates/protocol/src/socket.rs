//! The Unix socket (SOCK_SEQPACKET): greeting, and every exchange that carries descriptors.
//!
//! One packet is one message. A session sends one at a time and waits for the answer.

mod calls;

pub use calls::{
    Access, Answer, Call, Caller, DESCRIPTORS_MAX, GROUP_NAME_MAX, HandedOn, PIECE_MAX,
    PIECE_OFFSET, REGION_SIZE, REGION_SIZE_MAX, SOCKET_PATH_MAX, Welcome,
};

use crate::message::MESSAGE_MAX;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::mem::MaybeUninit;

/// Sends one packet with descriptors. Does not raise SIGPIPE.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    loop {
        match sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        ) {
            Err(Errno::INTR) => continue,
            other => return other.map(|_| ()),
        }
    }
}

/// What sending a call came to, where the other side may have closed its end before: whom the controller turns away
/// it tells why, before he has said anything. That, or that it is gone, is received all the same.
pub fn or_last_word(sent: Result<(), Errno>) -> Result<(), Errno> {
    match sent {
        Err(Errno::CONNRESET | Errno::PIPE) => Ok(()),
        other => other,
    }
}

/// Receives one packet. An empty packet means that the other side is gone. Descriptors are
/// close-on-exec. There is room for all that one packet can bring (`SCM_MAX_FD`): what had none
/// the kernel would close here and now, which can take for ever.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let (length, descriptors, _) = receive_packet(socket, buffer)?;
    Ok((length, descriptors))
}

/// The same; and whether some of the descriptors were lost, since this process may have no more.
fn receive_packet(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>, bool), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let packet = loop {
        match recvmsg(
            socket,
            &mut [IoSliceMut::new(buffer)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(Errno::INTR) => continue,
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    let are_lost = packet.flags.contains(ReturnFlags::CTRUNC);
    Ok((packet.bytes, descriptors, are_lost))
}

/// One exchange from the session's side.
pub fn call(socket: &impl AsFd, call: &Call) -> Result<(Answer, Vec<OwnedFd>), Errno> {
    call_with(socket, call, &[])
}

/// The same with descriptors.
pub fn call_with(
    socket: &impl AsFd,
    call: &Call,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(Answer, Vec<OwnedFd>), Errno> {
    let mut buffer = [0u8; MESSAGE_MAX];
    let length = call.encode(&mut buffer).map_err(|_| Errno::INVAL)?;
    or_last_word(send(socket.as_fd(), &buffer[..length], descriptors))?;
    let mut ahead = Vec::new();
    loop {
        match receive_answer(socket.as_fd())? {
            (Answer::Ahead, descriptors) => ahead = descriptors,
            (answer, descriptors) => {
                ahead.extend(descriptors);
                return Ok((answer, ahead));
            }
        }
    }
}

/// Receives one answer, with as many of its descriptors as this process may have. CONNRESET if the other
/// side is gone.
pub fn receive_answer(socket: BorrowedFd<'_>) -> Result<(Answer, Vec<OwnedFd>), Errno> {
    let ((answer, _), descriptors) = receive_answer_or_part(socket)?;
    Ok((answer, descriptors))
}

/// The same; and whether some of the descriptors that came with it were lost, since this process may have
/// no more.
#[allow(clippy::type_complexity)]
pub fn receive_answer_or_part(
    socket: BorrowedFd<'_>,
) -> Result<((Answer, bool), Vec<OwnedFd>), Errno> {
    let mut buffer = [0u8; MESSAGE_MAX];
    let received = match receive_packet(socket, &mut buffer) {
        // The other end was closed with a packet unread in it: the kernel tells that once, and only then what had
        // been said there.
        Err(Errno::CONNRESET) => receive_packet(socket, &mut buffer),
        other => other,
    };
    let (length, descriptors, are_lost) = received?;
    if length == 0 {
        return Err(Errno::CONNRESET);
    }
    let answer = Answer::decode(&buffer[..length]).map_err(|_| Errno::PROTO)?;
    Ok(((answer, are_lost), descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arck_core_state::Geometry;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// It goes to the terminal of whoever asked, who may be root, from whoever serves the pool.
    #[test]
    fn what_went_wrong_is_told_in_text_that_steers_no_terminal() {
        let mut buffer = [0; MESSAGE_MAX];
        for (said, told) in [
            ("it is full: Größe 7", "it is full: Größe 7"),
            ("\x1b]0;title\x07\r\n\u{9b}2J", "?]0;title????2J"),
        ] {
            let length = Answer::Error(5, said.into()).encode(&mut buffer).unwrap();
            let answer = Answer::decode(&buffer[..length]);
            assert_eq!(answer, Ok(Answer::Error(5, told.into())));
        }
    }

    /// # Regression
    /// A controller that turns somebody away says why and closes its end. Where that was before he had greeted, or
    /// after it and before he looked, he was told that the connection was broken, and nothing of the reason.
    #[test]
    fn why_somebody_is_turned_away_is_told_whenever_he_asks() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        for is_early in [true, false] {
            let (one, other) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
            let answer = Answer::Error(75, "nobody knows you".into());
            let mut buffer = [0; MESSAGE_MAX];
            let length = answer.encode(&mut buffer).unwrap();
            let turn_away = move || {
                send(other.as_fd(), &buffer[..length], &[]).unwrap();
                drop(other);
            };
            if is_early {
                turn_away();
                assert_eq!(call(&one, &Call::Status).unwrap().0, answer);
            } else {
                let length = Call::Status.encode(&mut buffer).unwrap();
                send(one.as_fd(), &buffer[..length], &[]).unwrap();
                turn_away();
                assert_eq!(receive_answer(one.as_fd()).unwrap().0, answer);
            }
            assert_eq!(call(&one, &Call::Status).unwrap_err(), Errno::CONNRESET);
        }
    }

    #[test]
    fn descriptors_travel() {
        let (a, b) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let answer = Answer::Welcome(Welcome {
            session: 3,
            member: 1,
            geometry: Geometry::for_pool_size(64 << 20).unwrap(),
            uuid: [1; 16],
            hash_seed: 5,
            durability: 2,
            flush: 1,
            branch_pages: 1,
            delta_pages: 2,
            secret: [3, 4],
            makes_region: true,
            user: 1000,
            user_group: 100,
        });
        let mut buffer = [0; MESSAGE_MAX];
        let length = answer.encode(&mut buffer).unwrap();
        send(a.as_fd(), &buffer[..length], &[a.as_fd(), b.as_fd()]).unwrap();
        let mut other = [0; MESSAGE_MAX];
        let (got, descriptors) = receive(b.as_fd(), &mut other).unwrap();
        assert_eq!(Answer::decode(&other[..got]), Ok(answer));
        assert_eq!(descriptors.len(), 2);
    }
}
