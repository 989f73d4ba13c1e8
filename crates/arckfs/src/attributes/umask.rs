//! The process's umask, for faces of ArckFS that take permission bits as programs give them. The preload library keeps
//! account of it by itself.

/// Permission bits without those that the process's umask takes from what is made. The kernel tells it in `/proc`: to ask
/// by `umask` is to change it, for all threads. Where nothing tells it, what is nobody's but the user's.
pub fn masked(mode: u32) -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))
        .and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
    mode & !mask.unwrap_or(0o077)
}
