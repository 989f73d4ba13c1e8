//! The modes of what is made: what the caller says, without what the umask takes.

use crate::roots::{Connection, UMASK_OF_PROCESS};
use std::sync::atomic::Ordering;

/// The process's umask. The kernel tells it here: to ask by `umask` is to change it, for all threads.
fn of_process() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))
        .and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
    // Where nothing tells it: what is nobody's but the user's.
    mask.unwrap_or(0o077)
}

/// Without type bits too.
pub fn masked(connection: &Connection, mode: libc::mode_t) -> u32 {
    let mask = match connection.umask.load(Ordering::Relaxed) {
        UMASK_OF_PROCESS => of_process(),
        mask => mask,
    };
    mode & 0o7777 & !mask
}
