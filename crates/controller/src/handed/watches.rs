//! Notices when open file descriptions that several processes share are closed for good.
//!
//! Whatever is handed on is watched from then on ([`crate::handed::descriptions`]). Its file has no name, and goes with the
//! last descriptor of it, in whichever process and however that ended, also if the program there knows nothing
//! of pools; and the kernel tells that it no longer watches it.
//!
//! # Invariants
//! * What has been closed is noticed by whoever looks ([`Watches::closed`], which reads all notes): the kernel
//!   notes it before `close`, `dup2` or the parent's `wait` returns. Where so many were closed at once that the
//!   kernel has dropped notes, it is asked what it still watches.
//! * Nothing that a session sends can block the thread: only memory files are looked at.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;

/// What is watched, and under which names it is known.
#[derive(Default, Debug)]
pub struct Watches {
    /// Made at the first need.
    inotify: Option<OwnedFd>,
    names: HashMap<i32, u64>,
}

impl Watches {
    /// What to wait for; `None` if nothing was ever watched.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Watches a description from now on. EINVAL if it is not a sealed memory file, or known under
    /// another name; ENOLCK if the system's limit is reached.
    pub fn watch(&mut self, description: BorrowedFd<'_>, name: u64) -> Result<(), Errno> {
        // The only question that nothing but the kernel answers, whatever file it is.
        rustix::fs::fcntl_get_seals(description).map_err(|_| Errno::INVAL)?;
        let inotify = match self.inotify.take() {
            Some(inotify) => inotify,
            None => inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
                .map_err(|_| Errno::NOLCK)?,
        };
        let inotify = self.inotify.insert(inotify);
        let path = format!("/proc/self/fd/{}", description.as_raw_fd());
        // For nothing that happens to it: that it is gone is always told.
        let watch = inotify::add_watch(&*inotify, path, WatchFlags::DELETE_SELF)
            .map_err(|_| Errno::NOLCK)?;
        match self.names.insert(watch, name) {
            Some(known) if known != name => {
                self.names.insert(watch, known);
                Err(Errno::INVAL)
            }
            _ => Ok(()),
        }
    }

    /// The names of all that have been closed since this was asked last. Reads all notes, also where
    /// nothing is watched any more: one that stays wakes the controller for ever.
    pub fn closed(&mut self) -> Vec<u64> {
        let mut closed = Vec::new();
        let Some(inotify) = &self.inotify else {
            return closed;
        };
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(inotify, &mut room);
        let mut are_lost = false;
        // EAGAIN ends it.
        while let Ok(event) = events.next() {
            are_lost |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            if event.events().contains(ReadFlags::IGNORED)
                && let Some(name) = self.names.remove(&event.wd())
            {
                closed.push(name);
            }
        }
        if are_lost && let Some(watched) = still_watched(inotify) {
            // A file goes with its last descriptor, and its watch with it.
            self.names.retain(|watch, name| {
                let is_open = watched.contains(watch);
                if !is_open {
                    closed.push(*name);
                }
                is_open
            });
        }
        closed
    }
}

/// What the kernel watches, as it tells of an inotify descriptor.
fn still_watched(inotify: &OwnedFd) -> Option<HashSet<i32>> {
    let path = format!("/proc/self/fdinfo/{}", inotify.as_raw_fd());
    let told = std::fs::read_to_string(path)
        .inspect_err(|error| tracing::warn!("which descriptions are open is not told: {error}"))
        .ok()?;
    let lines = told
        .lines()
        .filter_map(|line| line.strip_prefix("inotify wd:"));
    let number = |line: &str| i32::from_str_radix(line.split(' ').next()?, 16).ok();
    Some(lines.filter_map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

    /// A description that grants neither reading nor writing, as sessions have them.
    fn description() -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SEAL).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let neither = OFlags::RWMODE | OFlags::CLOEXEC;
        rustix::fs::open(path, neither, Mode::empty()).unwrap()
    }

    #[test]
    fn the_last_descriptor_counts() {
        let mut watches = Watches::default();
        assert!(watches.closed().is_empty());
        let (one, two) = (description(), description());
        watches.watch(one.as_fd(), 1).unwrap();
        watches.watch(one.as_fd(), 1).unwrap();
        assert_eq!(watches.watch(one.as_fd(), 2), Err(Errno::INVAL));
        watches.watch(two.as_fd(), 2).unwrap();
        let copy = one.try_clone().unwrap();
        drop(one);
        assert!(watches.closed().is_empty());
        // Who passes by a file's mode can open it anew: that is not the description, and its end not the end.
        let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
        drop(rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap());
        assert!(watches.closed().is_empty());
        drop(copy);
        assert_eq!(watches.closed(), [1]);
        assert!(watches.closed().is_empty());
        drop(two);
        assert_eq!(watches.closed(), [2]);
        // Nor does anything wake the controller again, though nothing is watched now.
        let inotify = watches.descriptor().unwrap();
        let mut asked = [PollFd::new(&inotify, PollFlags::IN)];
        assert_eq!(poll(&mut asked, Some(&Timespec::default())), Ok(0));
        let three = description();
        watches.watch(three.as_fd(), 3).unwrap();
        drop(three);
        assert_eq!(watches.closed(), [3]);
    }

    /// A process that ended with more descriptions than the kernel keeps notes left some of them open for
    /// ever, with their locks; and so did whoever was closed beside it.
    #[test]
    fn no_number_of_descriptions_that_are_closed_at_once_is_too_large() {
        let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let most: u64 = most.trim().parse().unwrap();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let count = most + 100;
        let raised = rustix::process::Rlimit {
            current: limit.maximum,
            ..limit
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
        let mut watches = Watches::default();
        let stays = description();
        watches.watch(stays.as_fd(), u64::MAX).unwrap();
        let descriptions: Vec<OwnedFd> = (0..count)
            .map(|name| {
                let one = description();
                watches.watch(one.as_fd(), name).unwrap();
                one
            })
            .collect();
        drop(descriptions);
        let mut closed = watches.closed();
        closed.sort_unstable();
        assert!(
            closed.iter().copied().eq(0..count),
            "{} of {count}",
            closed.len()
        );
        drop(stays);
        assert_eq!(watches.closed(), [u64::MAX]);
    }

    #[test]
    fn other_files_are_refused() {
        let mut watches = Watches::default();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(watches.watch(file.as_fd(), 1), Err(Errno::INVAL));
        assert!(watches.descriptor().is_none());
    }
}
