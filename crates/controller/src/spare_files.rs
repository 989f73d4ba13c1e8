//! Files for segments that have none yet, allocated and zeroed ahead of their need.
//!
//! A segment of a new pool has no file until it is used, and making one takes longer than all else
//! that a session waits for when it is granted the segment. So, once one
//! is made, a thread makes a few more. Only for pools in memory: elsewhere allocating does not touch
//! the pages.
//!
//! # Invariants
//! * A spare file has no name until it takes its place: whatever ends the controller, nothing is left
//!   of it.
//! * There are no more of them than [`SPARES`], nor than there are free segments; none is made where the
//!   file system has room for fewer than [`PLENTY`] more, and all are let go where it has none.
//! * The thread touches nothing but files that it has opened itself.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// Files made ahead: what a program that does nothing but write uses up while one is made.
const SPARES: u32 = 3;
/// So many segments must have room beside a spare.
const PLENTY: u64 = 16;
/// Written at once: small enough to stay in the processor's cache.
const ZEROES: usize = 64 << 10;

/// See the module's head.
#[derive(Default)]
pub struct SpareFiles(Maker);

#[derive(Default)]
enum Maker {
    #[default]
    None,
    Works {
        orders: Sender<()>,
        made: Receiver<OwnedFd>,
        /// Orders given, less files fetched.
        under_way: u32,
    },
    /// The file system has no room, or no files without a name: none are made any more.
    Failed,
}

/// Fills a part of a file in memory, in which nothing is yet, with zeroes, so that all of it is allocated.
/// ENOSPC, EDQUOT.
///
/// Takes no longer than `fallocate` there, which leaves the zeroing to whoever touches a page first, in a
/// fault of its own for each; what is zeroed is mapped by sixteen at a time.
pub fn fill(file: impl AsFd, offset: u64, length: u64) -> Result<(), Errno> {
    let zeroes = vec![0u8; ZEROES];
    let (mut at, end) = (offset, offset + length);
    while at < end {
        let part = &zeroes[..ZEROES.min(usize::try_from(end - at).unwrap_or(ZEROES))];
        match rustix::io::pwrite(&file, part, at) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => at += written as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// A file of this length without a name in the folder of `path`.
fn make(folder: &OwnedFd, path: &str, length: u64) -> Result<OwnedFd, Errno> {
    let system = rustix::fs::fstatvfs(folder)?;
    if system.f_bavail.saturating_mul(system.f_frsize) < length * PLENTY {
        return Err(Errno::NOSPC);
    }
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, path, flags, Mode::RUSR | Mode::WUSR)?;
    fill(&file, 0, length)?;
    Ok(file)
}

impl SpareFiles {
    /// Sees to it that there are spares, if so many segments are free.
    pub fn order(&mut self, directory: &OwnedFd, path: &'static str, length: u64, lacking: u32) {
        if let Maker::None = self.0
            && lacking != 0
        {
            self.0 = start(directory, path, length).unwrap_or(Maker::Failed);
        }
        if let Maker::Works {
            orders,
            made,
            under_way,
        } = &mut self.0
        {
            while *under_way > lacking && made.try_recv().is_ok() {
                *under_way -= 1;
            }
            while *under_way < SPARES.min(lacking) && orders.send(()).is_ok() {
                *under_way += 1;
            }
        }
    }

    /// A spare, if one is ready. Does not block.
    pub fn take(&mut self) -> Option<OwnedFd> {
        let Maker::Works {
            made, under_way, ..
        } = &mut self.0
        else {
            return None;
        };
        match made.try_recv() {
            Ok(file) => {
                *under_way -= 1;
                Some(file)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.give_up();
                None
            }
        }
    }

    /// Lets go of the spares: there is no room for them.
    pub fn give_up(&mut self) {
        self.0 = Maker::Failed;
    }
}

/// Starts the thread, which ends with its first failure, or when nobody can order any more.
fn start(directory: &OwnedFd, path: &'static str, length: u64) -> Result<Maker, Errno> {
    let folder = rustix::io::fcntl_dupfd_cloexec(directory, 0)?;
    let (orders, ordered) = channel();
    let (sender, made) = channel();
    std::thread::Builder::new()
        .name("arck-spares".into())
        .spawn(move || {
            while let Ok(()) = ordered.recv() {
                let Ok(file) = make(&folder, path, length) else {
                    return;
                };
                if sender.send(file).is_err() {
                    return;
                }
            }
        })
        .map_err(|_| Errno::AGAIN)?;
    Ok(Maker::Works {
        orders,
        made,
        under_way: 0,
    })
}

/// Gives a file without a name one that is free. ENOENT where there is no `/proc`.
pub fn name(file: &OwnedFd, directory: &OwnedFd, path: &str) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let itself = Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
    let flags = AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(rustix::fs::CWD, &itself, directory, path, flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, Instant};

    fn folder(at: &str) -> (tempfile::TempDir, OwnedFd) {
        let place = tempfile::tempdir_in(at).unwrap();
        let folder = std::fs::File::open(place.path()).unwrap();
        (place, folder.into())
    }

    fn wait(spares: &mut SpareFiles) -> OwnedFd {
        let since = Instant::now();
        loop {
            if let Some(file) = spares.take() {
                return file;
            }
            assert!(since.elapsed() < Duration::from_secs(20), "no file is made");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn spares_are_whole_zeroed_and_nameless() {
        let length = (ZEROES * 3 + 4096) as u64;
        let (place, directory) = folder("/dev/shm");
        let mut spares = SpareFiles::default();
        assert!(spares.take().is_none());
        spares.order(&directory, ".", length, 0);
        assert!(matches!(spares.0, Maker::None), "none is lacking");
        spares.order(&directory, ".", length, 2);
        let (one, two) = (wait(&mut spares), wait(&mut spares));
        assert!(spares.take().is_none(), "more than are lacking");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        name(&one, &directory, "one").unwrap();
        assert_eq!(name(&two, &directory, "one"), Err(Errno::EXIST));
        let file = std::fs::File::open(place.path().join("one")).unwrap();
        let status = file.metadata().unwrap();
        assert_eq!((status.len(), status.mode() & 0o777), (length, 0o600));
        assert!(status.blocks() * 512 >= length, "not all is allocated");
        let mut bytes = vec![1; length as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
        spares.give_up();
        spares.order(&directory, ".", length, 9);
        assert!(spares.take().is_none());
    }

    #[test]
    fn a_folder_that_takes_none_is_given_up() {
        let (_place, directory) = folder("/dev/shm");
        let mut spares = SpareFiles::default();
        spares.order(&directory, "absent", 4096, 1);
        let since = Instant::now();
        while !matches!(spares.0, Maker::Failed) {
            assert!(spares.take().is_none());
            assert!(since.elapsed() < Duration::from_secs(20), "still hoping");
        }
    }
}
