//! Requests and completions as the kernel has them.

/// A request as the kernel has it (`struct iocb`).
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Request {
    pub data: u64,
    pub key: u32,
    pub rw_flags: u32,
    pub operation: u16,
    pub priority: u16,
    pub descriptor: u32,
    pub buffer: u64,
    pub length: u64,
    pub offset: u64,
    pub reserved: u64,
    pub flags: u32,
    pub event_descriptor: u32,
}

pub const PREAD: u16 = 0;
pub const PWRITE: u16 = 1;
pub const FSYNC: u16 = 2;
pub const FDSYNC: u16 = 3;
pub const POLL: u16 = 5;
pub const PREADV: u16 = 7;
pub const PWRITEV: u16 = 8;

/// The completion goes to an eventfd, too.
pub const TELLS_EVENT: u32 = 1;
/// Its priority is given.
pub const HAS_PRIORITY: u32 = 2;

/// What the program is told of a request (`struct io_event`).
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Completion {
    pub data: u64,
    /// Its address.
    pub request: u64,
    pub result: i64,
    pub further: i64,
}
