//! Requests that a session makes and responses that it gets, in the slots of control memory.

pub mod listed;

use crate::declare::messages;
#[cfg(any(test, feature = "testing"))]
use crate::wire::Draw;
use crate::wire::{self, Bytes, Coding, List, Reader, Text, WireError, Writer};
use arck_core_state::{InodeNumber, NAME_MAX, SegmentNumber};

/// Longest encoded message that travels through a request slot, in bytes.
pub const MESSAGE_MAX: usize = 2032;
/// Most inodes that one request names.
pub const INODES_MAX: usize = 128;
/// Most that one asks to be acquired or recalled: for each of which another session may have to be waited for.
pub const ASKED_FOR_MAX: usize = 16;
/// Most inode numbers granted at once.
pub const GRANT_MAX: usize = 8192;
/// Most runs of them.
pub const RUNS_MAX: usize = 240;
/// Most segments that one request gives back.
pub const GIVE_BACK_MAX: usize = 256;
/// Longest piece of a fold copy that one request reads, in bytes.
pub const FOLD_COPY_MAX: usize = 1024;

/// Most bytes of a file that one request reads.
pub const READ_MAX: usize = 2000;
/// Most bytes of a file that one request writes.
pub const WRITE_MAX: usize = 2000;
/// Most bytes of the reason for which a delta was refused; more are cut off.
const REASON_MAX: usize = 512;

/// A short list of inode numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InodeList {
    count: usize,
    numbers: [InodeNumber; INODES_MAX],
}

impl std::fmt::Debug for InodeList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl Default for InodeList {
    fn default() -> InodeList {
        InodeList {
            count: 0,
            numbers: [0; INODES_MAX],
        }
    }
}

impl InodeList {
    /// `None` if there are more than [`INODES_MAX`].
    pub fn new(numbers: &[InodeNumber]) -> Option<InodeList> {
        let mut list = InodeList::default();
        list.numbers
            .get_mut(..numbers.len())?
            .copy_from_slice(numbers);
        list.count = numbers.len();
        Some(list)
    }
    pub fn as_slice(&self) -> &[InodeNumber] {
        &self.numbers[..self.count]
    }
}

/// Inode numbers that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeRun {
    pub first: InodeNumber,
    pub count: u32,
}

impl InodeRun {
    /// What is beyond the greatest number is left out.
    pub fn numbers(self) -> std::ops::Range<InodeNumber> {
        self.first..self.first.saturating_add(self.count)
    }
}

/// At most [`RUNS_MAX`] runs: how many in two bytes, and of each the first number, and how many there are.
pub struct Runs;

impl Coding for Runs {
    type Value = Vec<InodeRun>;
    const LEAST: usize = 2;
    const MOST: usize = 2 + 8 * RUNS_MAX;
    fn put(value: &Vec<InodeRun>, w: &mut Writer<'_>) -> Result<(), WireError> {
        w.count(value.len(), RUNS_MAX)?;
        value.iter().try_for_each(|run| {
            InodeNumber::put(&run.first, w)?;
            u32::put(&run.count, w)
        })
    }
    fn get(r: &mut Reader<'_>) -> Result<Vec<InodeRun>, WireError> {
        let run = |r: &mut Reader<'_>| -> Result<InodeRun, WireError> {
            Ok(InodeRun {
                first: InodeNumber::get(r)?,
                count: u32::get(r)?,
            })
        };
        (0..r.count(RUNS_MAX)?).map(|_| run(r)).collect()
    }
    #[cfg(any(test, feature = "testing"))]
    fn drawn(draw: &mut Draw) -> Vec<InodeRun> {
        let run = |draw: &mut Draw| InodeRun {
            first: InodeNumber::drawn(draw),
            count: u32::drawn(draw),
        };
        (0..draw.length(RUNS_MAX)).map(|_| run(draw)).collect()
    }
}

impl Coding for InodeList {
    type Value = InodeList;
    const LEAST: usize = 2;
    const MOST: usize = 2 + 4 * INODES_MAX;
    fn put(value: &InodeList, w: &mut Writer<'_>) -> Result<(), WireError> {
        w.count(value.count, INODES_MAX)?;
        let mut numbers = value.as_slice().iter();
        numbers.try_for_each(|number| InodeNumber::put(number, w))
    }
    fn get(r: &mut Reader<'_>) -> Result<InodeList, WireError> {
        let mut list = InodeList {
            count: r.count(INODES_MAX)?,
            ..InodeList::default()
        };
        for number in &mut list.numbers[..list.count] {
            *number = InodeNumber::get(r)?;
        }
        Ok(list)
    }
    #[cfg(any(test, feature = "testing"))]
    fn drawn(draw: &mut Draw) -> InodeList {
        let numbers: Vec<_> = (0..draw.length(INODES_MAX))
            .map(|_| InodeNumber::drawn(draw))
            .collect();
        InodeList::new(&numbers).unwrap_or_default()
    }
}

messages! {
/// What a session asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// More inode numbers, granted (already owned). → [`Response::Inodes`]; ENOSPC.
    1 GrantInodes { count: u32 },
    /// Ownership of all these inodes, taken back from others if need be. → `Done` when all are
    /// owned; EACCES, EPERM, ESTALE (one is not alive), EROFS.
    2 Acquire { inodes: InodeList },
    /// Fold the deltas of these inodes (and what must come along); with `release`, give them up.
    /// → `Done` or [`Response::Violation`].
    3 Commit { inodes: InodeList, release: bool },
    /// Fold everything the session owns. → `Done` or `Violation`.
    4 CommitAll { release: bool },
    /// A reader wants the newest state of inodes that another session owns: fold them there.
    /// → `Done` always once the verified state is as new as it gets.
    5 Recall { inodes: InodeList },
    /// Moves a directory to another parent (or exchanges two names, `flags` as renameat2's),
    /// under the controller's one lock; the caller owns both parents, and has committed them. In mediated directories any
    /// rename, which nobody owns them for.
    6 MoveDirectory {
        from: InodeNumber,
        from_name: Vec<u8> as Bytes<NAME_MAX>,
        to: InodeNumber,
        to_name: Vec<u8> as Bytes<NAME_MAX>,
        flags: u32,
    },
    /// chown; `u32::MAX` leaves an id as it is. The inode need not be owned. EPERM.
    7 SetOwner {
        inode: InodeNumber,
        uid: u32,
        gid: u32,
    },
    /// Makes sure that so many pages of both parts of the arena are allocated. ENOSPC, EDQUOT.
    8 GrowArena { branch_pages: u32, delta_pages: u32 },
    /// That the session may fill `pages` delta pages more than it says it uses with what adds to
    /// the verified state (`delta_credits` of control memory). `pressing`: for that, other sessions'
    /// changes are folded, if need be; the session's own have just been. → `Done`; ENOSPC.
    16 MoreCredits { pages: u32, pressing: bool },
    /// Reads from the fold copy of the fold that ended fold number `fold` of `inode`: the bytes
    /// of the arena at `offset` as they were folded. → [`Response::Bytes`]; ENODATA if the
    /// place was not part of the copy; ESTALE if there is no such fold copy any more.
    9 FoldCopy {
        inode: InodeNumber,
        fold: u64,
        offset: u64,
        length: u32,
    },
    /// The session no longer lists an inode that may be an orphan: free it if nobody does.
    13 Forget { inode: InodeNumber },
    /// fsync in `paged` mode: fold, write back, sync the journal.
    14 Sync { inodes: InodeList },
    /// What a verified name leads to, for who may search the directory and all above it but
    /// cannot map it; afterwards the session can map the inode that it leads to, and the
    /// directory if it may read it. → [`Response::Found`], or `Done` if there is no such name;
    /// EACCES, ENOTDIR, ESTALE.
    18 LookUp {
        directory: InodeNumber,
        name: Vec<u8> as Bytes<NAME_MAX>,
    },
    /// That the session can map the attributes of an inode; with `contents` what is in it too, for
    /// which it must have read permission. It moves to segments of its class, if need be.
    /// → `Done`; EACCES; EBUSY if it is in a shared map of another session; ENOSPC, ESTALE.
    19 Admit { inode: InodeNumber, contents: bool },
    /// The verified inode, as stored, behind 8 bytes of its header's sequence: for who may see it and
    /// cannot map it. → [`Response::Bytes`]; EACCES, ESTALE.
    20 Inspect { inode: InodeNumber },
    /// At most [`READ_MAX`] bytes of a file, for who may read it, or could when he opened it, and
    /// cannot map it. → [`Response::Bytes`], fewer at the end of the file; EACCES, ESTALE, EISDIR.
    21 Read {
        inode: InodeNumber,
        generation: u32,
        position: u64,
        length: u32,
    },
    /// Writes at most [`WRITE_MAX`] bytes to a file, at its end with `append`: for who may write it, or
    /// could when he opened it, and cannot own it or cannot map what is around them. Durable when it is
    /// answered. → [`Response::Bytes`]: a [`Written`]; EACCES, ESTALE, EISDIR, EINVAL, EFBIG, ENOSPC; EBUSY if a
    /// session has it mapped for writing.
    24 Write {
        inode: InodeNumber,
        generation: u32,
        position: u64,
        append: bool,
        bytes: Vec<u8> as Bytes<WRITE_MAX>,
    },
    /// As [`Request::Write`], of `length` bytes that are [attached](crate::control::Attachment): whole, or not at all.
    /// EBUSY, of a mediated file, if any session has it mapped.
    28 WriteAttached {
        inode: InodeNumber,
        generation: u32,
        position: u64,
        append: bool,
        length: u32,
    },
    /// How sessions share a file or a directory that more than one of them writes ([`arck_core_state::Mediation`]), for its
    /// owner and for root. → `Done`; EACCES, EPERM, ESTALE, EINVAL (neither, or no such value), ENOSPC.
    27 SetMediation {
        inode: InodeNumber,
        generation: u32,
        mediation: u32,
    },
    /// Makes a name in a mediated directory, of a new inode of any kind; `mode` is its permission bits, and it is of the group `gid`, or of
    /// the directory's as set-group-ID says. `size` is the number of a device; of a symbolic link it is how many bytes its target has, which is
    /// [attached](crate::control::Attachment); else it is 0. With `open` it is listed at that place of the open table, which the session
    /// has [reserved](crate::control::open_reserved) with that `mark`, or at [none](crate::control::NO_OPEN_PLACE). → [`Response::Bytes`]: a
    /// [`Named`]; EBUSY: the directory is not mediated; EEXIST,
    /// EPERM (of another user, or not the user's group; a device), EACCES, ENOENT (it was removed), ESTALE, EINVAL, EMLINK, ENOSPC.
    29 MakeName {
        directory: InodeNumber,
        generation: u32,
        name: Vec<u8> as Bytes<NAME_MAX>,
        kind: u8,
        mode: u32,
        uid: u32,
        gid: u32,
        size: u32,
        open: u32,
        mark: u32,
    },
    /// Takes a name from a mediated directory: that of an empty directory, or of anything else. → [`Response::Bytes`]: a
    /// [`Named`] of no inode; EBUSY: the directory is not mediated; ENOENT, EISDIR, ENOTDIR, ENOTEMPTY, EPERM, EACCES, ESTALE, EINVAL,
    /// ENOSPC.
    30 RemoveName {
        directory: InodeNumber,
        generation: u32,
        name: Vec<u8> as Bytes<NAME_MAX>,
        is_directory: bool,
    },
    /// Gives an inode another name, in a mediated directory; for who could own the inode. → [`Response::Bytes`]: a [`Named`] of no
    /// inode; EBUSY: the directory is not mediated; EEXIST, EPERM (it is a directory), EMLINK, ENOENT (it has lost all names, or the directory was
    /// removed), EACCES, ESTALE, EINVAL, ENOSPC.
    32 LinkName {
        directory: InodeNumber,
        generation: u32,
        name: Vec<u8> as Bytes<NAME_MAX>,
        inode: InodeNumber,
        inode_generation: u32,
    },
    /// Sets those attributes of a file or a directory that `which` names, a bit each ([`which`]), where what changes it goes by message. Times are nanoseconds
    /// since the epoch, in two's complement. → `Done`; EBUSY: its owner is to do it, also where the mode of a file is meant that
    /// sessions have mapped together; EPERM, EACCES, ESTALE, EINVAL, ENOSPC.
    33 SetAttributes {
        inode: InodeNumber,
        generation: u32,
        which: u32,
        mode: u32,
        accessed: u64,
        modified: u64,
    },
    /// Sets an extended attribute, as the bits of `how` say ([`extended`]); its value is `length` bytes that are
    /// [attached](crate::control::Attachment). For who may write the inode, by its mode as it is, and may reach it, or could when he
    /// opened it. → `Done`; EEXIST, ENODATA, EACCES, EPERM (a sticky directory of another user, or what has no such attributes), ESTALE, EINVAL; E2BIG: they do not fit
    /// together; ENOSPC; EBUSY: it does not change by message, and its owner is to do it.
    35 SetExtended {
        inode: InodeNumber,
        generation: u32,
        name: Vec<u8> as Bytes<NAME_MAX>,
        how: u8,
        length: u32,
    },
    /// Verified extended attributes of an inode: of the [page](arck_core_state::extended::Page) in which they stand, what is used from `position` on. For who
    /// may read the inode, by its mode as it is; with `names` for everybody who may reach it, with values that are empty. Reached it may be
    /// as above. → [`Response::Bytes`]: as many as there are, and at most [`READ_MAX`], the first 8 of which say whether the
    /// rest is of the same attributes as another answer's; EACCES, ESTALE, EINVAL.
    36 Extended {
        inode: InodeNumber,
        generation: u32,
        position: u32,
        names: bool,
    },
    /// As fallocate(2), for who may write the file, or could when he opened it, and cannot own it: `how` is one of [`allocation`]. The file ends
    /// where it did. As many pages as one message does. → [`Response::Bytes`]: the position up to which that was done, of
    /// eight bytes; EACCES, ESTALE, EINVAL, EFBIG; ENOSPC, before anything is changed where it is certain; EBUSY if a session has it mapped for writing.
    34 Allocate {
        inode: InodeNumber,
        generation: u32,
        position: u64,
        length: u64,
        how: u8,
    },
    /// Has pages of a file lie where all sessions that may write it can store to them: `count` from the one on that is
    /// `first`, as far as the file reaches. The file is then [`TOGETHER`](arck_core_state::TOGETHER), until nobody has a writable map of it.
    /// → [`Response::Bytes`]: up to which page that has been done, of eight bytes; EOPNOTSUPP: its owner is to map it by
    /// himself, since nobody else may write it; ETXTBSY: another session has a writable map of another kind; EACCES, ESTALE, EINVAL,
    /// ENOSPC.
    31 MapTogether {
        inode: InodeNumber,
        generation: u32,
        first: u64,
        count: u64,
    },
    /// Changes the length of a file, as [`Request::Write`] writes it. → `Done`; EACCES, ESTALE, EINVAL,
    /// EFBIG, ENOSPC; EBUSY if a session has it mapped for writing.
    25 Resize {
        inode: InodeNumber,
        generation: u32,
        size: u64,
    },
    /// Verified names of a directory, from those on that stand in `bucket` behind `skip` others: for who
    /// may read it, or could when he opened it, and cannot map it. → [`Response::Bytes`]: a
    /// [`listed::Listed`]; EACCES, ESTALE, ENOTDIR.
    26 List {
        inode: InodeNumber,
        generation: u32,
        bucket: u64,
        skip: u32,
    },
    /// That the set-id bits of a file go that a write takes away: before a session writes it. → `Done`;
    /// EACCES, ESTALE.
    22 DropSetId { inode: InodeNumber },
    /// Data segments of this session in which nothing is, and which it does not look at any more, become
    /// nobody's; at most [`GIVE_BACK_MAX`]. Those that are in use stay the session's. → `Done`; EINVAL.
    23 GiveBack { segments: Vec<SegmentNumber> as List<GIVE_BACK_MAX> },
    /// Nothing; for measuring and for waking.
    15 Ping,
}

/// What it is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    1 Done,
    /// An errno.
    2 Error(errno: i32),
    /// The delta was refused; one line for the log.
    3 Violation(reason: String as Text<REASON_MAX>),
    /// Granted inode numbers; generation, fold number and slot stand in their headers.
    4 Inodes(inodes: Vec<InodeRun> as Runs),
    5 Bytes(bytes: Vec<u8> as Bytes<READ_MAX>),
    /// A dentry.
    7 Found {
        inode: InodeNumber,
        generation: u32,
        /// [`arck_core_state::FileKind`].
        kind: u8,
    },
}
}

const _: () = assert!(Request::MOST <= MESSAGE_MAX && Response::MOST <= MESSAGE_MAX);

/// Which attributes [`Request::SetAttributes`] sets.
pub mod which {
    /// Permission bits.
    pub const MODE: u32 = 1;
    pub const ACCESSED: u32 = 2;
    pub const MODIFIED: u32 = 4;
    pub const ALL: u32 = MODE | ACCESSED | MODIFIED;
}

/// What [`Request::SetExtended`] does to an attribute: none of these bits, and it is set, whether it is there or not.
pub mod extended {
    /// It may not be there: else EEXIST.
    pub const CREATE: u8 = 1;
    /// It has to be there: else ENODATA.
    pub const REPLACE: u8 = 2;
    /// It is taken away, and has to be there. Nothing is attached.
    pub const REMOVE: u8 = 4;
    /// The session cannot do it as the inode's owner: it does not see the page in which the others stand.
    pub const UNSEEN: u8 = 8;
}

/// What [`Request::Allocate`] does in its range.
pub mod allocation {
    /// Holes get pages of zeroes.
    pub const FILL: u8 = 0;
    /// The same, and what is there becomes zero.
    pub const ZERO: u8 = 1;
    /// What is there becomes a hole, or zero where it is a part of a page.
    pub const PUNCH: u8 = 2;
}

/// What a change of a name by message has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Named {
    /// What was made; 0: a name was taken away.
    pub inode: InodeNumber,
    pub generation: u32,
    /// Whether the next one is to come by message, too.
    pub is_mediated: bool,
}

impl Named {
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = self.inode.to_le_bytes().to_vec();
        bytes.extend(self.generation.to_le_bytes());
        bytes.push(u8::from(self.is_mediated));
        bytes
    }
    pub fn decode(bytes: &[u8]) -> Option<Named> {
        let (&inode, rest) = bytes.split_first_chunk()?;
        let (&generation, &[is_mediated @ (0 | 1)]) = rest.split_first_chunk()? else {
            return None;
        };
        Some(Named {
            inode: InodeNumber::from_le_bytes(inode),
            generation: u32::from_le_bytes(generation),
            is_mediated: is_mediated == 1,
        })
    }
}

/// What a write by message has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// The position behind the bytes.
    pub end: u64,
    /// Whether the next one is to come by message, too.
    pub is_mediated: bool,
}

impl Written {
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = self.end.to_le_bytes().to_vec();
        bytes.push(u8::from(self.is_mediated));
        bytes
    }
    pub fn decode(bytes: &[u8]) -> Option<Written> {
        let (&end, &[is_mediated @ (0 | 1)]) = bytes.split_first_chunk()? else {
            return None;
        };
        Some(Written {
            end: u64::from_le_bytes(end),
            is_mediated: is_mediated == 1,
        })
    }
}

impl Request {
    /// Encodes into `buffer`; gives the bytes used.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        wire::encode::<Request>(self, buffer)
    }
    /// Decodes a private copy.
    pub fn decode(bytes: &[u8]) -> Result<Request, WireError> {
        wire::decode::<Request>(bytes)
    }
}

impl Response {
    /// Encodes into `buffer`; gives the bytes used.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        wire::encode::<Response>(self, buffer)
    }
    /// Decodes a private copy.
    pub fn decode(bytes: &[u8]) -> Result<Response, WireError> {
        wire::decode::<Response>(bytes)
    }
}
