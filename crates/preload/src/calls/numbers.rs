//! The numbers of system calls, with those that the `libc` crate does not have yet.
#![allow(non_upper_case_globals, reason = "as in the libc crate")]

pub use libc::*;

/// Numbers from here on have no handler.
pub const COUNT: usize = 512;

/// No call's: counts rings that are refused since a thread of the kernel's would submit what nobody has looked at.
pub const RING_WITH_THREAD: i64 = COUNT as i64 - 1;

pub const SYS_io_pgetevents: i64 = 333;
pub const SYS_cachestat: i64 = 451;
pub const SYS_setxattrat: i64 = 463;
pub const SYS_getxattrat: i64 = 464;
pub const SYS_listxattrat: i64 = 465;
pub const SYS_removexattrat: i64 = 466;
pub const SYS_open_tree_attr: i64 = 467;
pub const SYS_file_getattr: i64 = 468;
pub const SYS_file_setattr: i64 = 469;
