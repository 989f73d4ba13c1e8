//! Descriptors that belong to this library or the LibFS, not to the program.
//!
//! They are marked in the descriptor table, so that to the program they are not open: closing
//! one is EBADF, and loops that close everything leave them alone. The LibFS tells which descriptors it
//! keeps, and places them as high as these ([`floor`]), so that shells find the low numbers free.

use crate::descriptors::{RESERVED, TABLE_SIZE, entry};
use crate::raw::{self, syscall};
use crate::settings;
use std::sync::atomic::{AtomicUsize, Ordering};

/// At start-up: the descriptor that `arck run` keeps open in all processes of its command, so that
/// it is known when the last of them has ended. Programs that close everything that they do not
/// know (daemons, and many that start others) must not close that one.
pub fn start() {
    if let Some(descriptor) = named_by(&settings::KEEP) {
        mark(descriptor);
    }
}

/// The descriptor that a setting names. Its number may have been closed, and be another file's, where
/// this library was not loaded: so the file has to be the one that was meant.
fn named_by(setting: &settings::Setting) -> Option<usize> {
    let [descriptor, file @ ..] = setting.numbers::<3>()?;
    let descriptor = usize::try_from(descriptor).ok()?;
    (raw::identity_of(descriptor)? == file).then_some(descriptor)
}

/// Numbers from [`floor`] on that a program's limit leaves at least.
pub const NUMBERS: usize = 64;

/// Own descriptors are placed at or above this number, out of the way of programs that use
/// small numbers explicitly (shells); lower if the limit of open files is low.
pub fn floor() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 1024,
        rlim_max: 1024,
    };
    // SAFETY: the kernel fills `limit`.
    unsafe {
        syscall!(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_NOFILE,
            0,
            &raw mut limit
        )
    };
    (limit.rlim_cur.min(1024) as usize).saturating_sub(NUMBERS)
}

/// Moves a descriptor above [`floor`], close-on-exec, and marks it reserved.
pub fn keep(descriptor: isize) -> isize {
    keep_from(descriptor, floor())
}

/// The same above another number.
pub fn keep_from(descriptor: isize, minimum: usize) -> isize {
    // SAFETY: duplicating and closing a descriptor that the caller just opened.
    let moved = unsafe { syscall!(libc::SYS_fcntl, descriptor, libc::F_DUPFD_CLOEXEC, minimum) };
    if raw::failed(moved) {
        return moved;
    }
    raw::close(descriptor);
    mark(moved as usize);
    moved
}

pub fn mark(descriptor: usize) {
    if descriptor < TABLE_SIZE {
        // In one step, which is one page fault too. Whose number it is otherwise, it stays.
        let (new, old) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = entry(descriptor).compare_exchange(0, RESERVED, new, old);
    }
}

/// The LibFS's descriptors; 0 = none.
static SESSION: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

/// Takes out what is kept of the session, which the process leaves.
pub fn take_session() -> [usize; 16] {
    std::array::from_fn(|index| SESSION[index].swap(0, Ordering::Relaxed))
}

/// In a forked child, which has closed what its parent's session had open.
pub fn forget_session() {
    for descriptor in take_session() {
        if descriptor != 0 && is_marked(descriptor) {
            entry(descriptor).store(0, Ordering::Release);
        }
    }
}

/// What the LibFS is about to close itself.
pub fn forget(descriptors: &[i32]) {
    for descriptor in descriptors {
        entry(*descriptor as usize).store(0, Ordering::Release);
    }
}

/// Closes a descriptor of this library's.
pub fn let_go(descriptor: usize) {
    entry(descriptor).store(0, Ordering::Release);
    raw::close(descriptor as isize);
}

/// Whether it is one of this library's own.
pub fn is_marked(descriptor: usize) -> bool {
    descriptor < TABLE_SIZE && entry(descriptor).load(Ordering::Acquire) == RESERVED
}

/// Reserves the descriptors that the LibFS keeps.
pub fn reserve(descriptors: impl IntoIterator<Item = i32>) {
    for (descriptor, slot) in descriptors.into_iter().zip(&SESSION) {
        mark(descriptor as usize);
        slot.store(descriptor as usize, Ordering::Relaxed);
    }
}

/// So many numbers at the low end, and [`HIGH`] from [`floor`] on, are tried one by one: those of every program,
/// and the one that shells read a script from. Where something else is open, a list costs less than more trying.
const LOW: usize = 11;
const HIGH: usize = 3;

/// The open descriptors, and how many they are, if all are among the numbers that programs and this
/// library use. The kernel tells how many there are (since Linux 6.2) without making an object for each,
/// as it does where they are listed.
fn open_by_trying() -> Option<([usize; LOW + HIGH], usize)> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a constant path, and a structure that the kernel fills.
    let status = unsafe {
        let (path, into) = (c"/proc/self/fd".as_ptr(), status.as_mut_ptr());
        if raw::failed(syscall!(
            libc::SYS_newfstatat,
            libc::AT_FDCWD,
            path,
            into,
            0
        )) {
            return None;
        }
        status.assume_init()
    };
    // An older kernel says 0.
    let count = usize::try_from(status.st_size).ok();
    let count = count.filter(|count| (1..=LOW + HIGH).contains(count))?;
    let mut open = [0; LOW + HIGH];
    let mut found = 0;
    // Mostly the three that every program has, and the one that `arck run` keeps open.
    let (from, usual) = (floor(), 3);
    if from < LOW {
        return None;
    }
    for number in (0..usual).chain(from..from + HIGH).chain(usual..LOW) {
        // SAFETY: only asks.
        if !raw::failed(unsafe { syscall!(libc::SYS_fcntl, number, libc::F_GETFD) }) {
            open[found] = number;
            found += 1;
            if found == count {
                return Some((open, found));
            }
        }
    }
    None
}

/// Calls `visit` for every open descriptor of this process but the one used for looking.
pub fn for_each_open(visit: impl FnMut(usize)) {
    match open_by_trying() {
        Some((open, count)) => open[..count].iter().copied().for_each(visit),
        None => for_each_listed(visit),
    }
}

fn for_each_listed(mut visit: impl FnMut(usize)) {
    // SAFETY: a constant NUL-terminated path; the buffer outlives the calls; records are read
    // within the length the kernel returned.
    unsafe {
        let directory = syscall!(
            libc::SYS_openat,
            libc::AT_FDCWD,
            c"/proc/self/fd".as_ptr(),
            libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC
        );
        if raw::failed(directory) {
            return;
        }
        let mut buffer = [0u64; 512];
        loop {
            let length = syscall!(
                libc::SYS_getdents64,
                directory,
                buffer.as_mut_ptr(),
                size_of_val(&buffer)
            );
            if length <= 0 {
                break;
            }
            let bytes = std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), length as usize);
            let mut at = 0;
            while at + 19 < bytes.len() {
                let record = u16::from_ne_bytes([bytes[at + 16], bytes[at + 17]]) as usize;
                if record < 20 || at + record > bytes.len() {
                    break;
                }
                let name = &bytes[at + 19..at + record];
                let digits = name.iter().take_while(|c| c.is_ascii_digit());
                if name[0].is_ascii_digit() {
                    let number = digits.fold(0usize, |n, c| n * 10 + usize::from(c - b'0'));
                    if number as isize != directory {
                        visit(number);
                    }
                }
                at += record;
            }
        }
        raw::close(directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::os::fd::AsRawFd;

    /// In a process of its own, in which nobody else opens and closes.
    #[test]
    fn all_that_is_open_is_found_by_trying_and_by_listing() {
        // SAFETY: the child makes system calls and collects numbers, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let good = std::panic::catch_unwind(|| {
                // SAFETY: what the parent has open is closed in this child alone.
                unsafe { syscall!(libc::SYS_close_range, 3, u32::MAX, 0) };
                let tried = || open_by_trying().is_some();
                let every = || {
                    let (mut all, mut listed) = (BTreeSet::new(), BTreeSet::new());
                    for_each_open(|number| assert!(all.insert(number)));
                    for_each_listed(|number| assert!(listed.insert(number)));
                    assert_eq!(all, listed);
                    all
                };
                let file = std::fs::File::open("/dev/null").unwrap();
                let high = |from: usize| {
                    // SAFETY: a new number for an open file.
                    let number =
                        unsafe { syscall!(libc::SYS_fcntl, file.as_raw_fd(), libc::F_DUPFD, from) };
                    assert!(!raw::failed(number));
                    number as usize
                };
                let low = file.as_raw_fd() as usize;
                let above = high(floor() + 1);
                let all = every();
                assert!(all.contains(&low) && all.contains(&above), "{all:?}");
                // Where the kernel tells how many there are.
                let can = std::fs::metadata("/proc/self/fd").unwrap().len() > 0;
                assert_eq!(tried(), can);
                let between = high(LOW + 100);
                assert!(!tried());
                assert!(every().contains(&between));
                raw::close(between as isize);
                assert_eq!(tried(), can);
                // Few numbers are allowed, so that the high ones are among the low ones.
                let limit = libc::rlimit {
                    rlim_cur: 80,
                    rlim_max: 80,
                };
                // SAFETY: a structure to be read.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
                let few = [24, 25, 40].map(high);
                let all = every();
                assert!(few.iter().all(|number| all.contains(number)), "{all:?}");
            });
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(good.is_err())) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
