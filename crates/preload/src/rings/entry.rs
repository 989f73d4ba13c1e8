//! Submission entries and what a ring is set up with, as the kernel has them.

/// An entry (`struct io_uring_sqe`), without what commands of devices have in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    pub operation: u8,
    pub flags: u8,
    pub priority: u16,
    pub descriptor: i32,
    /// Or a second address, or another operand.
    pub offset: u64,
    pub address: u64,
    pub length: u32,
    /// Flags of the operation.
    pub how: u32,
    pub data: u64,
    pub buffer: u16,
    pub personality: u16,
    /// A place among registered files, or a second descriptor.
    pub other: u32,
    pub third: u64,
}

pub const NOP: u8 = 0;
pub const READV: u8 = 1;
pub const WRITEV: u8 = 2;
pub const FSYNC: u8 = 3;
pub const READ_FIXED: u8 = 4;
pub const WRITE_FIXED: u8 = 5;
pub const SYNC_FILE_RANGE: u8 = 8;
pub const ACCEPT: u8 = 13;
pub const FALLOCATE: u8 = 17;
pub const OPENAT: u8 = 18;
pub const CLOSE: u8 = 19;
pub const FILES_UPDATE: u8 = 20;
pub const STATX: u8 = 21;
pub const READ: u8 = 22;
pub const WRITE: u8 = 23;
pub const FADVISE: u8 = 24;
pub const OPENAT2: u8 = 28;
pub const SPLICE: u8 = 30;
pub const RENAMEAT: u8 = 35;
pub const UNLINKAT: u8 = 36;
pub const MKDIRAT: u8 = 37;
pub const SYMLINKAT: u8 = 38;
pub const LINKAT: u8 = 39;
pub const TO_RING: u8 = 40;
pub const FSETXATTR: u8 = 41;
pub const SETXATTR: u8 = 42;
pub const FGETXATTR: u8 = 43;
pub const GETXATTR: u8 = 44;
pub const SOCKET: u8 = 45;
pub const FTRUNCATE: u8 = 55;
pub const READV_FIXED: u8 = 58;
pub const WRITEV_FIXED: u8 = 59;
pub const PIPE: u8 = 62;

/// Its descriptor is a place among registered files.
pub const REGISTERED: u8 = 1;
/// After all that was submitted before it, and before all that comes after.
pub const DRAIN: u8 = 1 << 1;
/// The next one begins when this one has succeeded, or, with the other, when it has ended.
pub const LINK: u8 = 1 << 2;
pub const HARD_LINK: u8 = 1 << 3;
pub const ASYNCHRONOUS: u8 = 1 << 4;
pub const SKIPS_SUCCESS: u8 = 1 << 6;

/// Of [`NOP`]: its result is its length (`IORING_NOP_INJECT_RESULT`).
pub const TELLS_RESULT: u32 = 1;
/// Of [`FSYNC`]: as `fdatasync`.
pub const DATA_ALONE: u32 = 1;
/// Of [`SPLICE`]: what is read from is a registered file.
pub const FROM_REGISTERED: u32 = 1 << 31;
/// Of [`FILES_UPDATE`], in place of the first place: the kernel chooses.
pub const ANY_PLACE: u32 = u32::MAX;

impl Entry {
    pub fn descriptor(&self) -> usize {
        self.descriptor as u32 as usize
    }

    /// As an argument that may be AT_FDCWD.
    pub fn directory(&self) -> usize {
        self.descriptor as isize as usize
    }

    /// Whether it reads or writes a file, at the place that its offset says.
    pub fn is_transfer(&self) -> bool {
        matches!(
            self.operation,
            READ | READV | WRITE | WRITEV | READ_FIXED | WRITE_FIXED | READV_FIXED | WRITEV_FIXED
        )
    }

    /// What stands for an entry that is done: it does nothing, and tells the result.
    pub fn done(&self, result: isize) -> Entry {
        Entry {
            operation: NOP,
            flags: self.flags & (LINK | HARD_LINK | ASYNCHRONOUS | SKIPS_SUCCESS | DRAIN),
            length: result as i32 as u32,
            how: TELLS_RESULT,
            data: self.data,
            ..Entry::default()
        }
    }
}

/// Where in a ring's memory its counters are (`struct io_sqring_offsets`).
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Submission {
    pub head: u32,
    pub tail: u32,
    pub mask: u32,
    pub entries: u32,
    pub flags: u32,
    pub dropped: u32,
    pub array: u32,
    pub reserved: u32,
    /// Of the entries, where the program has given the memory.
    pub address: u64,
}

/// `struct io_cqring_offsets`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Completion {
    pub head: u32,
    pub tail: u32,
    pub mask: u32,
    pub entries: u32,
    pub overflow: u32,
    pub completions: u32,
    pub flags: u32,
    pub reserved: u32,
    /// Of the counters, where the program has given the memory.
    pub address: u64,
}

/// What a ring is asked for, and what it is (`struct io_uring_params`).
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Parameters {
    pub submissions: u32,
    pub completions: u32,
    pub flags: u32,
    pub thread_processor: u32,
    pub thread_idle: u32,
    pub features: u32,
    pub workers: u32,
    pub reserved: [u32; 3],
    pub submission: Submission,
    pub completion: Completion,
}

const _: () = assert!(size_of::<Entry>() == 56 && size_of::<Parameters>() == 120);

pub const POLLS_FILES: u32 = 1;
/// A thread of the kernel's takes entries, without a call.
pub const THREAD: u32 = 1 << 1;
pub const BEGINS_DISABLED: u32 = 1 << 6;
pub const LARGE_ENTRIES: u32 = 1 << 10;
pub const ONE_SUBMITS: u32 = 1 << 12;
pub const OWN_MEMORY: u32 = 1 << 14;
pub const NO_ARRAY: u32 = 1 << 16;
/// All that are understood: those up to DEFER_TASKRUN, NO_MMAP, NO_SQARRAY, HYBRID_IOPOLL and CQE_MIXED. Not one whose ring
/// has no descriptor (REGISTERED_FD_ONLY).
pub const KNOWN: u32 = ((1 << 15) - 1) | NO_ARRAY | 1 << 17 | 1 << 18;

/// Of `io_uring_enter`.
pub const WAITS: u32 = 1;
/// Flags of the call that there are.
pub const CALL_KNOWN: u32 = 0xff;
pub const HAS_STRUCTURE: u32 = 1 << 3;
pub const IS_REGISTERED: u32 = 1 << 4;

/// Places in the ring's descriptor at which its memory is mapped.
pub const COUNTERS_AT: u64 = 0;
pub const COUNTERS_ALSO_AT: u64 = 0x800_0000;
pub const ENTRIES_AT: u64 = 0x1000_0000;
