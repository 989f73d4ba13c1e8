//! What is said on the socket, and what carries a descriptor.

use crate::PROTOCOL_VERSION;
use crate::declare::messages;
use crate::measure::HandOvers;
use crate::message::MESSAGE_MAX;
use crate::status::{Pool, Processes, Status};
#[cfg(any(test, feature = "testing"))]
use crate::wire::Draw;
use crate::wire::{
    self, Bytes, Coding, Flag, List, Malformed, PlainText, Reader, WireError, Writer,
};
use arck_core_state::{Geometry, InodeNumber, SegmentNumber};

/// Most descriptors in one packet.
pub const DESCRIPTORS_MAX: usize = 16;
/// Bytes that are read by one call at most.
pub const PIECE_MAX: usize = 1 << 20;
/// Where they begin in the memory file that comes with the answer; its first word is the piece's number.
pub const PIECE_OFFSET: usize = 4096;

/// Longest name of a trust group, in bytes.
pub const GROUP_NAME_MAX: usize = 64;

/// Bytes of a group's region, if nothing else is wished: memory is used as it fills.
pub const REGION_SIZE: u64 = 32 << 30;
/// The most that it can be: 8 TiB.
pub const REGION_SIZE_MAX: u64 = 8 << 40;

/// Most bytes of the path that a socket is bound to.
pub const SOCKET_PATH_MAX: usize = 108;

/// Most bytes of what went wrong; more are cut off.
const TEXT_MAX: usize = 1024;

messages! {
/// What a session sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// First packet. → [`Answer::Welcome`]: a session of the caller's own, or, if programs of the
    /// same user, with the same groups, have a session under the same name of a trust group, a
    /// place in theirs. Of a greeting of another version nothing but that is known.
    1 Hello { version: u32 as Version, caller: Caller },
    /// Of the member that was told to make the group's region ([`Welcome::makes_region`]): it is whole.
    /// Those who want to join wait for that. → [`Answer::Done`].
    20 RegionMade,
    /// Descriptors of these segments (at most [`DESCRIPTORS_MAX`]), in this order: read-write of
    /// the session's own data segments, read-only of others. → [`Answer::Segments`]; EACCES if one
    /// is of a class that the session is not in.
    2 MapSegments { segments: Vec<SegmentNumber> as List<DESCRIPTORS_MAX> },
    /// As `MapSegments`, read-only of the session's own too: what a process of a group only reads
    /// it cannot write, so it keeps nobody from getting it once it was given back.
    10 ReadSegments { segments: Vec<SegmentNumber> as List<DESCRIPTORS_MAX> },
    /// A data segment of its own, read-write. → [`Answer::Segments`] with one entry; ENOSPC.
    3 GrantSegment,
    /// The lock file of an inode, opened in a mode in which the session may open the inode, or has it
    /// open: who locks that locks the inode. → [`Answer::Ahead`] with its descriptor, then
    /// [`Answer::Done`]; ESTALE, EACCES, ENOLCK.
    6 LockFile {
        inode: InodeNumber,
        generation: u32,
        access: Access,
    },
    /// Instead of `Hello`, to a controller that was started while the session was there: goes on with
    /// the session that an earlier one had opened. `secret` is what that one gave it; its control
    /// memory comes with the call, and of a trust group its region too. Each member of a group does
    /// so for itself. → [`Answer::Resumed`]; ESTALE if there is no such session (any more), EACCES
    /// if it is another user's or the secret is wrong, EBUSY if the member is connected.
    9 Resume {
        version: u32 as Version,
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
    21 HandOn(of: HandedOn),
    /// Comes with such a descriptor, of whoever made it: → [`Answer::Described`]. Who presents it may
    /// use that inode in that mode from then on, until he has closed it, whatever his own rights
    /// are; where they do not suffice, by message. EBADF if it is none of this pool's; ESTALE.
    ///
    /// Unless the caller has the description's lock file (`has_lock`), that comes ahead, if one is kept
    /// ([`Call::KeepLock`]). `was_sent`: the descriptor came in a message, for which it was kept.
    22 Claim { was_sent: bool, has_lock: bool },
    /// Comes with such a descriptor, and its description's lock file: that is kept for one message more in
    /// which the descriptor is sent, until it is claimed, or nobody has the description any more. → [`Answer::Done`]; EBADF, EINVAL, ENOLCK if too many are.
    23 KeepLock,
    /// A named pipe, opened in a mode in which the session may open the inode. It is a FIFO of the host's, which all
    /// who open that inode get, each freshly opened. If `waits`, as `open` without O_NONBLOCK: where nobody is at the
    /// other end, → [`Answer::Waits`]. Else, and where somebody is, → [`Answer::Ahead`] with its descriptor, then
    /// [`Answer::Done`]; ENXIO for writing where nobody reads; ESTALE, EACCES; ENFILE if its user has too many; EBUSY
    /// if somebody holds the FIFO up.
    24 OpenPipe {
        inode: InodeNumber,
        generation: u32,
        access: Access,
        waits: bool,
    },
    /// Comes with a descriptor, which may be of the FIFO of this inode. → [`Answer::Done`]; EBADF if it is not.
    25 IsPipe { inode: InodeNumber, generation: u32 },
    /// Comes with a Unix socket, which is bound to the inode of one that the session's user owns. `path`: as the program
    /// gave it. → [`Answer::Done`]; EADDRINUSE if one was bound to it before, ESTALE, EACCES, ENFILE if its
    /// user has too many, and what the kernel tells of that socket.
    26 BindSocket {
        inode: InodeNumber,
        generation: u32,
        path: Vec<u8> as Bytes<SOCKET_PATH_MAX>,
    },
    /// By which one connects to the socket that is bound to an inode: → [`Answer::Done`] with a descriptor (O_PATH),
    /// for who may write the inode. ECONNREFUSED if none ever was; ESTALE, EACCES.
    27 FindSocket { inode: InodeNumber, generation: u32 },
    /// Comes with an inotify descriptor, which is to watch an inode that the session may read, for what `mask` says. Each
    /// change is told when it has been folded. → [`Answer::Watched`]; EACCES, ESTALE, EINVAL if that is no such descriptor,
    /// ENOSPC if its user has too many watches, and what the kernel tells of it. `parent`: a directory in which the
    /// inode has a name, if that is known, else 0: a hint, by which it is noticed that the name goes.
    28 AddWatch {
        inode: InodeNumber,
        generation: u32,
        mask: u32,
        parent: InodeNumber,
    },
    /// Orderly end of a program. If it is the last one of the session, everything is folded and
    /// released before the answer `Done`.
    4 Goodbye,
    /// Asks a controller to end cleanly; only the pool's user may.
    5 Shutdown,
    /// Measures hand-overs from now on, or no longer; only the pool's user may ask. Needs no
    /// session. → [`Answer::Measured`], since the last such call; EPERM.
    7 Measure { on: bool },
    /// How the pool is. Needs no session, and anybody may ask. → [`Answer::Status`].
    8 Status,
    /// What the pool is made of, and how it is served. Needs no session, and anybody may ask. →
    /// [`Answer::Pool`].
    40 Pool,
    /// Who has a session: processes behind this session and member (0 and 0: from the first on), in that
    /// order; all of them for the pool's user and root, their own for others. Needs no session, and anybody
    /// may ask. → [`Answer::Processes`].
    41 Processes { session: u32, member: u16 },
    /// What the sessions of the caller's user have together to be few at a time at large accesses: a memory file of zeroes at first, of
    /// its size for good, to be read and written; its words are advice, which nobody relies on. It stays as long as he has any
    /// session. → [`Answer::Done`] with its descriptor; ENFILE, ENOMEM.
    42 Gates,
    /// As [`Request::Read`](crate::Request::Read), for [`PIECE_MAX`] bytes at most. → [`Answer::Piece`];
    /// the same errors.
    11 ReadPiece {
        inode: InodeNumber,
        generation: u32,
        position: u64,
        length: u32,
    },
}

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

/// What an open file is open for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    0 Read,
    1 Write,
    2 ReadWrite,
}

/// Which process greets, and in whose company (DESIGN section 8).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// Its process id, as it tells it with its locks.
    pub process: u32,
    /// The trust group that it is one of; empty: none, it has a session for itself.
    pub group: Vec<u8> as Bytes<GROUP_NAME_MAX>,
    /// Bytes that the region is to have, if a session is opened: pages of 4096, at most
    /// [`REGION_SIZE_MAX`]; 0: [`REGION_SIZE`].
    pub region: u64,
}

/// What it gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Descriptors: headers (read-only), page bitmap (read-only), control memory, wake (an
    /// eventfd), group region (a memfd, of its size for good), arena (read-write); where a medium is
    /// emulated, its page (a memfd, read-write).
    1 Welcome(welcome: Welcome),
    /// One descriptor: wake, in place of the old one. Every request that stands submitted in control
    /// memory is answered.
    7 Resumed,
    2 Segments(segments: Vec<SegmentNumber> as List<DESCRIPTORS_MAX>),
    3 Done,
    5 Measured(measured: HandOvers),
    6 Status(status: Status),
    40 Pool(pool: Pool),
    41 Processes(processes: Processes),
    /// One descriptor: a memory file of the connection's, to be read, with so many bytes of a file at
    /// [`PIECE_OFFSET`]. They are right if its first word is still this number when they have been copied:
    /// the next piece of the same connection goes to the same place.
    8 Piece {
        number: u64,
        length: u32,
    },
    /// What a description stands for.
    21 Described(of: HandedOn),
    /// Descriptors of the answer that follows. That says that the sender has closed its own: so a lock that is
    /// taken by one of them ends with who got it, and not when the sender gets so far.
    9 Ahead,
    /// One descriptor: a socket by which the pipe comes as soon as somebody opens the other end. First a packet of one
    /// byte, with its descriptor; then one of one byte more, when the sender has closed its own. If it ends before,
    /// the controller has, and the next one is to be asked. Who closes it does not wait any more.
    10 Waits,
    /// The number of the watch.
    28 Watched { watch: u32 },
    /// errno and one line for the user.
    4 Error(errno: i32, text: String as PlainText<TEXT_MAX>),
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
    pub makes_region: bool as Flag,
    /// Whose session it is, as the controller's kernel tells it. A process in a user namespace calls itself
    /// something else: what it makes belongs to these.
    pub user: u32,
    pub user_group: u32,
}
}

const _: () = assert!(Call::MOST <= MESSAGE_MAX && Answer::MOST <= MESSAGE_MAX);

/// The version of who speaks: of another one nothing else is read.
pub struct Version;

impl Coding for Version {
    type Value = u32;
    const LEAST: usize = u32::LEAST;
    const MOST: usize = u32::MOST;
    fn put(value: &u32, w: &mut Writer<'_>) -> Result<(), WireError> {
        u32::put(value, w)
    }
    fn get(r: &mut Reader<'_>) -> Result<u32, WireError> {
        match u32::get(r)? {
            PROTOCOL_VERSION => Ok(PROTOCOL_VERSION),
            other => Err(WireError::OtherVersion(other)),
        }
    }
    #[cfg(any(test, feature = "testing"))]
    fn drawn(_: &mut Draw) -> u32 {
        PROTOCOL_VERSION
    }
}

impl Coding for Geometry {
    type Value = Geometry;
    const LEAST: usize = u64::LEAST + 2 * u32::LEAST;
    const MOST: usize = Geometry::LEAST;
    fn put(value: &Geometry, w: &mut Writer<'_>) -> Result<(), WireError> {
        u64::put(&value.segment_size, w)?;
        u32::put(&value.segment_count, w)?;
        u32::put(&value.inode_count, w)
    }
    fn get(r: &mut Reader<'_>) -> Result<Geometry, WireError> {
        let geometry = Geometry {
            segment_size: u64::get(r)?,
            segment_count: u32::get(r)?,
            inode_count: u32::get(r)?,
        };
        geometry.is_sane().then_some(geometry).ok_or(Malformed)
    }
    #[cfg(any(test, feature = "testing"))]
    fn drawn(draw: &mut Draw) -> Geometry {
        let size = Geometry::POOL_SIZE_MIN << draw.number(10);
        Geometry::for_pool_size(size).expect("a size that a pool can have")
    }
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

    /// Encodes into `buffer`; gives the bytes used.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        wire::encode::<Call>(self, buffer)
    }
    /// Decodes a private copy.
    pub fn decode(bytes: &[u8]) -> Result<Call, WireError> {
        wire::decode::<Call>(bytes)
    }
}

impl Answer {
    /// Encodes into `buffer`; gives the bytes used.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        wire::encode::<Answer>(self, buffer)
    }
    /// Decodes a private copy.
    pub fn decode(bytes: &[u8]) -> Result<Answer, WireError> {
        wire::decode::<Answer>(bytes)
    }
}
