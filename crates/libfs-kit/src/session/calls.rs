//! What is asked of the controller by the socket, with descriptors that go or come along: bytes of files that
//! cannot be mapped, descriptions that are handed on, lock files, named pipes, sockets.
//!
//! Invariant: what comes is noted before it is told of, so that a fork in between leaves nothing open
//! ([`Received`]).

use super::Session;
use super::room::with_room;
use crate::connection;
use crate::memory::delegation::Gates;
use crate::received::Received;
use arck_core_state::InodeNumber;
use arck_protocol::socket::{self, Access, Answer, Call, HandedOn};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// What a later controller is told of a description: its lock file does not come from there.
const CLAIM_AGAIN: Call = Call::Claim {
    was_sent: false,
    has_lock: true,
};

/// A named pipe that was asked for.
#[derive(Debug)]
pub enum OpenedPipe {
    /// One descriptor: the pipe.
    Now(Received),
    /// One descriptor, by which the pipe comes when somebody opens the other end ([`receive_pipe`]).
    Later(Received),
}

/// What has come by a [ticket](OpenedPipe::Later) that can be read: the pipe, and then, as soon as that can be read
/// again, that nobody else has it. `None`: the controller has ended. EMFILE. It must not block.
pub fn receive_pipe(ticket: BorrowedFd<'_>) -> Result<Option<Received>, Errno> {
    let (length, received) = Received::by(|| socket::receive(ticket, &mut [0; 8]))?;
    match (length, received.len()) {
        (0, _) => Ok(None),
        (_, 1) => Ok(Some(received)),
        _ => Err(Errno::MFILE),
    }
}

impl Session {
    /// What all programs of the session's user on this pool have together to be few at a time at large accesses
    /// ([`at_once`](crate::memory::delegation::at_once)), for as long as the process lives; behind the session's end it is the
    /// process's own. Asked for once. Blocks. ENFILE, ENOMEM, EMFILE.
    pub fn gates(&'static self) -> Result<&'static Gates, Errno> {
        if let Some(gates) = self.gates.get() {
            return Ok(gates);
        }
        let (Answer::Done, descriptors) = self.call(&Call::Gates)? else {
            return Err(Errno::PROTO);
        };
        let [file] = &*descriptors else {
            return Err(Errno::PROTO);
        };
        let gates = Gates::map(file).map_err(|error| error.errno())?;
        // Another thread's is of the same file.
        Ok(self.gates.get_or_init(|| gates))
    }

    /// Bytes of a file that this session may read and cannot map, as the controller reads them out: no
    /// more than [`PIECE_MAX`](socket::PIECE_MAX), and fewer where the file ends. `copy` takes them from a
    /// descriptor and the position in it. Blocks.
    pub fn read_piece(
        &self,
        (inode, generation): (InodeNumber, u32),
        position: u64,
        length: usize,
        mut copy: impl FnMut(BorrowedFd<'_>, u64, usize) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        let call = Call::ReadPiece {
            inode,
            generation,
            position,
            length: length.min(socket::PIECE_MAX) as u32,
        };
        loop {
            let (
                Answer::Piece {
                    number,
                    length: told,
                },
                descriptors,
            ) = self.call(&call)?
            else {
                return Err(Errno::PROTO);
            };
            let ([file], true) = (&*descriptors, told as usize <= length) else {
                return Err(Errno::PROTO);
            };
            copy(file.as_fd(), socket::PIECE_OFFSET as u64, told as usize)?;
            let mut word = [0; 8];
            if rustix::io::pread(file, &mut word, 0)? == 8 && u64::from_le_bytes(word) == number {
                return Ok(told as usize);
            }
            // Another thread has asked for a piece meanwhile, which is in the same place.
        }
    }

    /// A descriptor that stands for something that the session has open, wherever it is handed on
    /// ([`Call::HandOn`]). Blocks.
    pub fn hand_on(&self, of: HandedOn) -> Result<OwnedFd, Errno> {
        match with_room(|| self.call(&Call::HandOn(of)))? {
            (Answer::Described(_), descriptors) => {
                let descriptors = descriptors.give_to_children();
                let descriptor = descriptors.into_iter().next().ok_or(Errno::PROTO)?;
                let descriptor = connection::placed(descriptor);
                self.connection.note_told(descriptor.as_fd(), &CLAIM_AGAIN);
                Ok(descriptor)
            }
            _ => Err(Errno::PROTO),
        }
    }

    /// What a descriptor stands for that was handed on to this process, which may use it so from now on
    /// ([`Call::Claim`]), as long as it keeps that descriptor; and its lock file, if one is kept and
    /// the caller has none (`has_lock`). `was_sent`: the descriptor came in a message. Blocks.
    pub fn claim(
        &self,
        descriptor: BorrowedFd<'_>,
        was_sent: bool,
        has_lock: bool,
    ) -> Result<(HandedOn, Option<Received>), Errno> {
        let call = Call::Claim { was_sent, has_lock };
        let (answer, received) = self.call_with(&call, &[descriptor])?;
        let Answer::Described(of) = answer else {
            return Err(Errno::PROTO);
        };
        self.connection.note_told(descriptor, &CLAIM_AGAIN);
        Ok((of, (received.len() == 1).then_some(received)))
    }

    /// Has the controller keep the lock file of a description that was handed on, for one message in which
    /// ([`Call::KeepLock`]). Blocks.
    pub fn keep_lock(&self, descriptor: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Result<(), Errno> {
        self.call_with(&Call::KeepLock, &[descriptor, file])
            .map(drop)
    }

    /// The lock file of an inode, freshly opened in a mode in which the session may open the inode, or has
    /// it open ([`Call::LockFile`]): one descriptor. Blocks. ESTALE, EACCES, ENOLCK.
    pub fn lock_file(
        &self,
        inode: InodeNumber,
        generation: u32,
        access: Access,
    ) -> Result<Received, Errno> {
        let call = Call::LockFile {
            inode,
            generation,
            access,
        };
        match self.call_with(&call, &[])? {
            (Answer::Done, received) if received.len() == 1 => Ok(received),
            _ => Err(Errno::PROTO),
        }
    }

    /// Binds a Unix socket to the inode of one, for a program that has given `path` ([`Call::BindSocket`]). Blocks.
    /// EINVAL for a longer path than a socket's address has, EADDRINUSE, ESTALE, EACCES, ENFILE.
    pub fn bind_socket(
        &self,
        (inode, generation): (InodeNumber, u32),
        path: &[u8],
        socket: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let path = path.to_vec();
        let call = Call::BindSocket {
            inode,
            generation,
            path,
        };
        self.call_with(&call, &[socket]).map(drop)
    }

    /// One descriptor, by whose name in `/proc` one connects to what is bound to an inode ([`Call::FindSocket`]). Blocks.
    /// ECONNREFUSED, ESTALE, EACCES.
    pub fn find_socket(&self, (inode, generation): (InodeNumber, u32)) -> Result<Received, Errno> {
        let call = Call::FindSocket { inode, generation };
        match self.call_with(&call, &[])? {
            (Answer::Done, received) if received.len() == 1 => {
                Ok(received.moved(connection::placed))
            }
            _ => Err(Errno::PROTO),
        }
    }

    /// Has an inotify descriptor watch an inode that the session may read ([`Call::AddWatch`]); the number of the watch.
    /// Blocks. EACCES, ESTALE, EINVAL, ENOSPC.
    pub fn add_watch(
        &self,
        (inode, generation): (InodeNumber, u32),
        inotify: BorrowedFd<'_>,
        mask: u32,
        parent: InodeNumber,
    ) -> Result<u32, Errno> {
        let call = Call::AddWatch {
            inode,
            generation,
            mask,
            parent,
        };
        match self.call_with(&call, &[inotify])? {
            (Answer::Watched { watch }, _) => Ok(watch),
            _ => Err(Errno::PROTO),
        }
    }

    /// That a descriptor is of the FIFO of a named pipe ([`Call::IsPipe`]). Blocks. EBADF.
    pub fn expect_pipe(
        &self,
        (inode, generation): (InodeNumber, u32),
        descriptor: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let call = Call::IsPipe { inode, generation };
        self.call_with(&call, &[descriptor]).map(drop)
    }

    /// A named pipe, opened in a mode in which the session may open the inode ([`Call::OpenPipe`]); if it `waits`, when
    /// somebody opens the other end. Blocks, but not for that. ENXIO, ESTALE, EACCES, ENFILE, EBUSY.
    pub fn open_pipe(
        &self,
        (inode, generation): (InodeNumber, u32),
        access: Access,
        waits: bool,
    ) -> Result<OpenedPipe, Errno> {
        let call = Call::OpenPipe {
            inode,
            generation,
            access,
            waits,
        };
        match self.call_with(&call, &[])? {
            (Answer::Done, received) if received.len() == 1 => Ok(OpenedPipe::Now(received)),
            (Answer::Waits, received) if received.len() == 1 => {
                Ok(OpenedPipe::Later(received.moved(connection::placed)))
            }
            _ => Err(Errno::PROTO),
        }
    }
}
