//! The Unix socket (SOCK_SEQPACKET): greeting, and every exchange that carries descriptors.
//!
//! One packet is one message. A session sends one at a time and waits for the answer.

use crate::PROTOCOL_VERSION;
use crate::measure::HandOvers;
use crate::message::MESSAGE_MAX;
use crate::status::Status;
use crate::wire::{Malformed, Reader, Writer};
use arck_core_state::{Geometry, InodeNumber, SegmentNumber};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::mem::MaybeUninit;

/// Most descriptors in one packet.
pub const DESCRIPTORS_MAX: usize = 16;

/// What a session sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// First packet. → [`Answer::Welcome`]: a session of the caller's own, or, if programs of the
    /// same user, with the same groups, have a session under the same name of a trust group, a
    /// place in theirs.
    Hello { version: u32, caller: Caller },
    /// Of the member that was told to make the group's region ([`Welcome::makes_region`]): it is whole.
    /// Those who want to join wait for that. → [`Answer::Done`].
    RegionMade,
    /// A greeting of another version, of which nothing more is known. → [`Answer::Error`].
    OtherVersion { version: u32 },
    /// Descriptors of these segments (at most [`DESCRIPTORS_MAX`]), in this order: read-write of
    /// the session's own data segments, read-only of others. → [`Answer::Segments`]; EACCES if one
    /// is of a class that the session is not in.
    MapSegments { segments: Vec<SegmentNumber> },
    /// As `MapSegments`, read-only of the session's own too: what a process of a group only reads
    /// it cannot write, so it keeps nobody from getting it once it was given back.
    ReadSegments { segments: Vec<SegmentNumber> },
    /// A data segment of its own, read-write. → [`Answer::Segments`] with one entry; ENOSPC.
    GrantSegment,
    /// The lock file of an inode, opened in a mode in which the session may open the inode, or has it
    /// open: who locks that locks the inode. → [`Answer::Ahead`] with its descriptor, then
    /// [`Answer::Done`]; ESTALE, EACCES, ENOLCK.
    LockFile {
        inode: InodeNumber,
        generation: u32,
        access: Access,
    },
    /// Instead of `Hello`, to a controller that was started while the session was there: goes on with
    /// the session that an earlier one had opened. `secret` is what that one gave it; its control
    /// memory comes with the call, and of a trust group its region too. Each member of a group does
    /// so for itself. → [`Answer::Resumed`]; ESTALE if there is no such session (any more), EACCES
    /// if it is another user's or the secret is wrong, EBUSY if the member is connected.
    Resume {
        version: u32,
        session: u32,
        secret: [u64; 2],
        member: u16,
        caller: Caller,
    },
    /// An open file description that is about to be handed on: to a forked child, an executed program,
    /// or whoever is sent it. → [`Answer::Described`] with a descriptor that stands for it from then
    /// on, wherever it gets to: a file of the controller's that grants nothing by itself, and of which
    /// nobody can change what it stands for. Its offset is that of the description, and so are
    /// O_APPEND and O_NONBLOCK among its flags. What has no name lives until the last descriptor of it
    /// is closed. EACCES if the session could not open the inode so; ESTALE; EAGAIN if its user has
    /// too many.
    HandOn(HandedOn),
    /// Comes with such a descriptor, of whoever made it: → [`Answer::Described`]. Who presents it may
    /// use that inode in that mode from then on, until he has closed it, whatever his own rights
    /// are; where they do not suffice, by message. EBADF if it is none of this pool's; ESTALE.
    ///
    /// Unless the caller has the description's lock file (`has_lock`), that comes ahead, if one is kept
    /// ([`Call::KeepLock`]). `was_sent`: the descriptor came in a message, for which it was kept.
    Claim { was_sent: bool, has_lock: bool },
    /// Comes with such a descriptor, and its description's lock file: that is kept for one message more in
    /// which the descriptor is sent, until it is claimed, or nobody has the description any more. → [`Answer::Done`]; EBADF, EINVAL, ENOLCK if too many are.
    KeepLock,
    /// Orderly end of a program. If it is the last one of the session, everything is folded and
    /// released before the answer `Done`.
    Goodbye,
    /// Asks a controller to end cleanly; only the pool's user may.
    Shutdown,
    /// Measures hand-overs from now on, or no longer; only the pool's user may ask. Needs no
    /// session. → [`Answer::Measured`], since the last such call; EPERM.
    Measure { on: bool },
    /// How the pool is. Needs no session, and anybody may ask. → [`Answer::Status`].
    Status,
    /// As [`Request::Read`](crate::Request::Read), for [`PIECE_MAX`] bytes at most. → [`Answer::Piece`];
    /// the same errors.
    ReadPiece {
        inode: InodeNumber,
        generation: u32,
        position: u64,
        length: u32,
    },
}

/// Text for a terminal, from whoever serves a pool: what would steer the terminal is taken out.
fn plain_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// Bytes that are read by one call at most.
pub const PIECE_MAX: usize = 1 << 20;
/// Where they begin in the memory file that comes with the answer; its first word is the piece's number.
pub const PIECE_OFFSET: usize = 4096;

/// What a descriptor that is handed on stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandedOn {
    pub inode: InodeNumber,
    pub generation: u32,
    /// `O_*`, of which the access mode and O_PATH say what may be done with it.
    pub flags: u32,
    /// A directory in which the inode has a name, if that is known, else 0: a hint.
    pub parent: InodeNumber,
}

impl HandedOn {
    fn encode(&self, w: &mut Writer) -> Result<(), Malformed> {
        w.u32(self.inode)?;
        w.u32(self.generation)?;
        w.u32(self.flags)?;
        w.u32(self.parent)
    }

    fn decode(r: &mut Reader) -> Result<HandedOn, Malformed> {
        Ok(HandedOn {
            inode: r.u32()?,
            generation: r.u32()?,
            flags: r.u32()?,
            parent: r.u32()?,
        })
    }
}

/// What an open file is open for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

impl Access {
    fn number(self) -> u8 {
        match self {
            Access::Read => 0,
            Access::Write => 1,
            Access::ReadWrite => 2,
        }
    }

    fn from_number(number: u8) -> Result<Access, Malformed> {
        match number {
            0 => Ok(Access::Read),
            1 => Ok(Access::Write),
            2 => Ok(Access::ReadWrite),
            _ => Err(Malformed),
        }
    }
}

/// Longest name of a trust group, in bytes.
pub const GROUP_NAME_MAX: usize = 64;

/// Bytes of a group's region, if nothing else is wished: memory is used as it fills.
pub const REGION_SIZE: u64 = 32 << 30;
/// The most that it can be: 8 TiB.
pub const REGION_SIZE_MAX: u64 = 8 << 40;

/// Which process greets, and in whose company (DESIGN section 8).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// Its process id, as it tells it with its locks.
    pub process: u32,
    /// The trust group that it is one of; empty: none, it has a session for itself.
    pub group: Vec<u8>,
    /// Bytes that the region is to have, if a session is opened: pages of 4096, at most
    /// [`REGION_SIZE_MAX`]; 0: [`REGION_SIZE`].
    pub region: u64,
}

impl Caller {
    /// This process.
    pub fn of_process(group: &[u8]) -> Caller {
        let process = rustix::process::getpid().as_raw_nonzero().get();
        Caller {
            process: process.unsigned_abs(),
            group: group.to_vec(),
            region: 0,
        }
    }

    /// The same, with a wish for the region.
    pub fn with_region(self, region: u64) -> Caller {
        Caller { region, ..self }
    }

    fn encode(&self, w: &mut Writer) -> Result<(), Malformed> {
        w.u32(self.process)?;
        w.bytes(&self.group)?;
        w.u64(self.region)
    }

    fn decode(r: &mut Reader) -> Result<Caller, Malformed> {
        let process = r.u32()?;
        let group = r.bytes()?;
        let region = r.u64()?;
        match group.len() {
            ..=GROUP_NAME_MAX => Ok(Caller {
                process,
                group: group.to_vec(),
                region,
            }),
            _ => Err(Malformed),
        }
    }
}

/// What it gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Descriptors: headers (read-only), page bitmap (read-only), control memory, wake (an
    /// eventfd), group region (a memfd, of its size for good), arena (read-write).
    Welcome(Welcome),
    /// One descriptor: wake, in place of the old one. Every request that stands submitted in control
    /// memory is answered.
    Resumed,
    Segments(Vec<SegmentNumber>),
    Done,
    Measured(HandOvers),
    Status(Status),
    /// One descriptor: a memory file of the connection's, to be read, with so many bytes of a file at
    /// [`PIECE_OFFSET`]. They are right if its first word is still this number when they have been copied:
    /// the next piece of the same connection goes to the same place.
    Piece {
        number: u64,
        length: u32,
    },
    /// What a description stands for.
    Described(HandedOn),
    /// Descriptors of the answer that follows. That says that the sender has closed its own: so a lock that is
    /// taken by one of them ends with who got it, and not when the sender gets so far.
    Ahead,
    /// errno and one line for the user.
    Error(i32, String),
}

/// Numbers of the pool and of the new session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    pub session: u32,
    /// Which member of the session the process is, from 1.
    pub member: u16,
    pub geometry: Geometry,
    pub uuid: [u8; 16],
    pub hash_seed: u64,
    /// [`arck_core_state::superblock::Durability`] as a number.
    pub durability: u32,
    /// 1 if stores must be flushed (the controller's `--persist`, resolved).
    pub flush: u32,
    /// Pages of branch table and of delta already allocated in the arena.
    pub branch_pages: u32,
    pub delta_pages: u32,
    /// By which the session proves itself to a later controller ([`Call::Resume`]).
    pub secret: [u64; 2],
    /// The region is all zeroes, and this process the only member: it makes what is to be there, and says
    /// so ([`Call::RegionMade`]). A process that cannot just ends, and the session with it: the next one
    /// gets another region.
    pub makes_region: bool,
    /// Whose session it is, as the controller's kernel tells it. A process in a user namespace calls itself
    /// something else: what it makes belongs to these.
    pub user: u32,
    pub user_group: u32,
}

impl Call {
    /// The greeting of this process, as one of a trust group (empty: of none).
    pub fn hello(group: &[u8]) -> Call {
        Call::hello_of(Caller::of_process(group))
    }

    /// The greeting of a caller.
    pub fn hello_of(caller: Caller) -> Call {
        Call::Hello {
            version: PROTOCOL_VERSION,
            caller,
        }
    }

    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, Malformed> {
        let mut w = Writer::new(buffer);
        match self {
            Call::Hello { version, caller } => {
                w.u8(1)?;
                w.u32(*version)?;
                caller.encode(&mut w)?;
            }
            Call::OtherVersion { version } => {
                w.u8(1)?;
                w.u32(*version)?;
            }
            Call::MapSegments { segments } => {
                w.u8(2)?;
                w.list(segments)?;
            }
            Call::ReadSegments { segments } => {
                w.u8(10)?;
                w.list(segments)?;
            }
            Call::GrantSegment => w.u8(3)?,
            Call::RegionMade => w.u8(20)?,
            Call::Goodbye => w.u8(4)?,
            Call::Shutdown => w.u8(5)?,
            Call::Status => w.u8(8)?,
            Call::Measure { on } => {
                w.u8(7)?;
                w.u8(u8::from(*on))?;
            }
            Call::Resume {
                version,
                session,
                secret,
                member,
                caller,
            } => {
                w.u8(9)?;
                w.u32(*version)?;
                w.u32(*session)?;
                w.u64(secret[0])?;
                w.u64(secret[1])?;
                w.u32(u32::from(*member))?;
                caller.encode(&mut w)?;
            }
            Call::ReadPiece {
                inode,
                generation,
                position,
                length,
            } => {
                w.u8(11)?;
                w.u32(*inode)?;
                w.u32(*generation)?;
                w.u64(*position)?;
                w.u32(*length)?;
            }
            Call::HandOn(of) => {
                w.u8(21)?;
                of.encode(&mut w)?;
            }
            Call::Claim { was_sent, has_lock } => {
                w.u8(22)?;
                w.u8(u8::from(*was_sent))?;
                w.u8(u8::from(*has_lock))?;
            }
            Call::KeepLock => w.u8(23)?,
            Call::LockFile {
                inode,
                generation,
                access,
            } => {
                w.u8(6)?;
                w.u32(*inode)?;
                w.u32(*generation)?;
                w.u8(access.number())?;
            }
        }
        Ok(w.used())
    }
    pub fn decode(bytes: &[u8]) -> Result<Call, Malformed> {
        let mut r = Reader::new(bytes);
        let call = match r.u8()? {
            kind @ (1 | 9) => {
                let version = r.u32()?;
                if version != PROTOCOL_VERSION {
                    return Ok(Call::OtherVersion { version });
                }
                match kind {
                    1 => Call::Hello {
                        version,
                        caller: Caller::decode(&mut r)?,
                    },
                    _ => Call::Resume {
                        version,
                        session: r.u32()?,
                        secret: [r.u64()?, r.u64()?],
                        member: u16::try_from(r.u32()?).map_err(|_| Malformed)?,
                        caller: Caller::decode(&mut r)?,
                    },
                }
            }
            2 => Call::MapSegments {
                segments: r.list()?,
            },
            3 => Call::GrantSegment,
            20 => Call::RegionMade,
            4 => Call::Goodbye,
            5 => Call::Shutdown,
            7 => Call::Measure { on: r.boolean()? },
            8 => Call::Status,
            10 => Call::ReadSegments {
                segments: r.list()?,
            },
            11 => Call::ReadPiece {
                inode: r.u32()?,
                generation: r.u32()?,
                position: r.u64()?,
                length: r.u32()?,
            },
            21 => Call::HandOn(HandedOn::decode(&mut r)?),
            22 => Call::Claim {
                was_sent: r.boolean()?,
                has_lock: r.boolean()?,
            },
            23 => Call::KeepLock,
            6 => Call::LockFile {
                inode: r.u32()?,
                generation: r.u32()?,
                access: Access::from_number(r.u8()?)?,
            },
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(call)
    }
}

impl Answer {
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, Malformed> {
        let mut w = Writer::new(buffer);
        match self {
            Answer::Welcome(welcome) => {
                w.u8(1)?;
                w.u32(welcome.session)?;
                w.u32(u32::from(welcome.member))?;
                w.u64(welcome.geometry.segment_size)?;
                w.u32(welcome.geometry.segment_count)?;
                w.u32(welcome.geometry.inode_count)?;
                w.raw(&welcome.uuid)?;
                w.u64(welcome.hash_seed)?;
                w.u32(welcome.durability)?;
                w.u32(welcome.flush)?;
                w.u32(welcome.branch_pages)?;
                w.u32(welcome.delta_pages)?;
                w.u64(welcome.secret[0])?;
                w.u64(welcome.secret[1])?;
                w.u32(u32::from(welcome.makes_region))?;
                w.u32(welcome.user)?;
                w.u32(welcome.user_group)?;
            }
            Answer::Segments(segments) => {
                w.u8(2)?;
                w.list(segments)?;
            }
            Answer::Done => w.u8(3)?,
            Answer::Resumed => w.u8(7)?,
            Answer::Error(errno, text) => {
                w.u8(4)?;
                w.u32(errno.unsigned_abs())?;
                w.bytes(text.as_bytes())?;
            }
            Answer::Measured(measured) => {
                w.u8(5)?;
                measured.encode(&mut w)?;
            }
            Answer::Status(status) => {
                w.u8(6)?;
                status.encode(&mut w)?;
            }
            Answer::Piece { number, length } => {
                w.u8(8)?;
                w.u64(*number)?;
                w.u32(*length)?;
            }
            Answer::Described(of) => {
                w.u8(21)?;
                of.encode(&mut w)?;
            }
            Answer::Ahead => w.u8(9)?,
        }
        Ok(w.used())
    }
    pub fn decode(bytes: &[u8]) -> Result<Answer, Malformed> {
        let mut r = Reader::new(bytes);
        let answer = match r.u8()? {
            1 => {
                let session = r.u32()?;
                let member = u16::try_from(r.u32()?).map_err(|_| Malformed)?;
                let geometry = Geometry {
                    segment_size: r.u64()?,
                    segment_count: r.u32()?,
                    inode_count: r.u32()?,
                };
                if !geometry.is_sane() {
                    return Err(Malformed);
                }
                Answer::Welcome(Welcome {
                    session,
                    member,
                    geometry,
                    uuid: r.raw(16)?.try_into().map_err(|_| Malformed)?,
                    hash_seed: r.u64()?,
                    durability: r.u32()?,
                    flush: r.u32()?,
                    branch_pages: r.u32()?,
                    delta_pages: r.u32()?,
                    secret: [r.u64()?, r.u64()?],
                    makes_region: r.u32()? != 0,
                    user: r.u32()?,
                    user_group: r.u32()?,
                })
            }
            2 => Answer::Segments(r.list()?),
            3 => Answer::Done,
            4 => {
                let errno = r.errno()?;
                Answer::Error(errno, plain_text(r.bytes()?))
            }
            5 => Answer::Measured(HandOvers::decode(&mut r)?),
            6 => Answer::Status(Status::decode(&mut r)?),
            7 => Answer::Resumed,
            8 => Answer::Piece {
                number: r.u64()?,
                length: r.u32()?,
            },
            21 => Answer::Described(HandedOn::decode(&mut r)?),
            9 => Answer::Ahead,
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(answer)
    }
}

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

    #[test]
    fn calls_survive() {
        for call in [
            Call::Hello {
                version: PROTOCOL_VERSION,
                caller: Caller::of_process(b"editors"),
            },
            Call::OtherVersion { version: 1 },
            Call::MapSegments {
                segments: vec![1, 2, 3],
            },
            Call::ReadSegments {
                segments: vec![4, 5],
            },
            Call::GrantSegment,
            Call::RegionMade,
            Call::HandOn(HandedOn {
                inode: 1,
                generation: 2,
                flags: 3,
                parent: 4,
            }),
            Call::Claim {
                was_sent: false,
                has_lock: true,
            },
            Call::KeepLock,
            Call::Goodbye,
            Call::Shutdown,
            Call::Measure { on: true },
            Call::Resume {
                version: PROTOCOL_VERSION,
                session: 7,
                secret: [8, 9],
                member: 10,
                caller: Caller::of_process(b"editors"),
            },
            Call::LockFile {
                inode: 1,
                generation: 2,
                access: Access::Write,
            },
            Call::ReadPiece {
                inode: 1,
                generation: 2,
                position: 3 << 40,
                length: 4,
            },
        ] {
            let mut buffer = [0; 100];
            let length = call.encode(&mut buffer).unwrap();
            assert_eq!(Call::decode(&buffer[..length]), Ok(call));
        }
    }
}
