//! What this process has mapped, as the kernel tells.

#![allow(dead_code, reason = "each test uses its part")]

use rustix::fd::OwnedFd;
use rustix::fs::MemfdFlags;

pub fn memfd(length: usize) -> OwnedFd {
    let file = rustix::fs::memfd_create("mapping", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, length as u64).unwrap();
    file
}

/// The word of a file at an offset.
pub fn sees(file: &OwnedFd, offset: u64) -> u64 {
    let mut word = [0; 8];
    assert_eq!(rustix::io::pread(file, &mut word, offset), Ok(8));
    u64::from_le_bytes(word)
}

/// Bytes between two addresses that can be read.
pub fn readable(from: usize, length: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            let (start, end) = (number(start)?.max(from), number(end)?.min(from + length));
            (rest.starts_with('r') && start < end).then(|| end - start)
        })
        .sum()
}

/// A field of `/proc/self/status`, in bytes.
pub fn status(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    let kibibytes = line.split_whitespace().nth(1).unwrap();
    kibibytes.parse::<usize>().unwrap() << 10
}

/// What the kernel says of the mapping that begins at an address.
pub fn flags_of(address: usize) -> Vec<String> {
    let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let begins = format!("{address:x}-");
    let of_it = all.lines().skip_while(|line| !line.starts_with(&begins));
    let flags = of_it
        .filter_map(|line| line.strip_prefix("VmFlags:"))
        .next();
    let flags = flags.unwrap_or_default().split_whitespace();
    flags.map(str::to_owned).collect()
}
