//! Files for segments that have none yet, allocated and zeroed ahead of their need.
//!
//! A segment of a new pool has no file until it is used, and making one takes longer than all else
//! that a session waits for when it is granted the segment. So, once a session has come, a thread makes a few, of huge pages where the kernel can ([`filling`](crate::pool::filling)). Only for pools in memory:
//! elsewhere allocating does not touch the pages.
//!
//! # Invariants
//! * A spare file has no name until it takes its place: whatever ends the controller, nothing is left
//!   of it.
//! * What is done to files that are in use already, to put their pages together, waits for no more than
//!   [`GATHERED_MAX`] of them, and for spares that are lacking.
//! * There are no more of them than [`SPARES`], nor than there are free segments; none is made where the
//!   file system has room for fewer than [`PLENTY`] more, and all are let go where it has none, whatever
//!   that was needed for ([`Pool::with_room`](crate::pool::files::Pool::with_room)): their memory is free when
//!   [`SpareFiles::give_up`] returns, unless the kernel takes longer than [`LONGEST`] over one file.
//! * Files in use are opened to read only, so that nobody takes the thread for one who may store to them.
//! * The thread touches nothing but files that it has opened itself.

use crate::pool::filling::HugePages;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

/// Files made ahead: what a program that does nothing but write uses up while one is made.
const SPARES: u32 = 3;
/// So many segments must have room beside a spare.
const PLENTY: u64 = 16;
/// Files in use that wait to have their pages put together.
const GATHERED_MAX: usize = 64;
/// Bytes that who waits makes at once: for so long he serves nobody else. Some huge pages where there are any.
const PIECE: u64 = 256 << 10;
/// So long the thread is waited for.
const LONGEST: Duration = Duration::from_millis(200);

/// See the module's head.
#[derive(Default)]
pub struct SpareFiles {
    maker: Maker,
    huge_pages: HugePages,
    told: Told,
}

/// Called by the thread when a file is made, and when it has ended.
type Told = Option<Arc<dyn Fn() + Send + Sync>>;

#[derive(Default)]
enum Maker {
    #[default]
    None,
    Works {
        orders: Sender<Order>,
        /// Orders to gather that are not done.
        gathered: Arc<AtomicUsize>,
        made: Receiver<OwnedFd>,
        /// Made, and not fetched.
        ready: VecDeque<OwnedFd>,
        /// One that who waits makes himself, a piece at a time, and how much of it is there.
        piecemeal: Option<(OwnedFd, u64)>,
        /// Orders given, less files fetched.
        under_way: u32,
        /// Told to the thread: whatever it is making is not wanted.
        stop: Arc<AtomicBool>,
        /// Disconnected when the thread has ended.
        ended: Receiver<()>,
    },
    /// The file system has no room, or no files without a name: none are made any more.
    Failed,
}

/// What the thread is to do.
enum Order {
    Make,
    /// To put the pages of a file that is in use together into huge ones.
    Gather(OwnedFd),
}

/// A file of this length without a name in the folder of `path`, with nothing in it.
fn begin(folder: &OwnedFd, path: &str, length: u64) -> Result<OwnedFd, Errno> {
    let system = rustix::fs::fstatvfs(folder)?;
    if system.f_bavail.saturating_mul(system.f_frsize) < length * PLENTY {
        return Err(Errno::NOSPC);
    }
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, path, flags, Mode::RUSR | Mode::WUSR)?;
    // A huge page is had of what is within the file.
    rustix::fs::ftruncate(&file, length)?;
    Ok(file)
}

/// The same file by a descriptor that only reads: one that could write would tell that somebody may still
/// store to it (see [`crate::pool::reach`]).
fn open_to_read(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(itself(file), flags, Mode::empty())
}

impl SpareFiles {
    /// Those that the spares are made of.
    pub fn huge_pages(&self) -> HugePages {
        self.huge_pages.clone()
    }

    /// Has this called, by the thread, when a file is made or none will be any more: from the next start of
    /// the thread on, which is before the first file.
    pub fn tell(&mut self, told: impl Fn() + Send + Sync + 'static) {
        self.told = Some(Arc::new(told));
    }

    /// Whether a file is being made, and none is ready: who can wait has it sooner than one of his own. Never, where
    /// nobody is [told](SpareFiles::tell). Does not block.
    pub fn is_coming(&mut self) -> bool {
        let Maker::Works {
            made,
            ready,
            under_way,
            ..
        } = &mut self.maker
        else {
            return false;
        };
        if ready.is_empty() {
            match made.try_recv() {
                Ok(file) => ready.push_back(file),
                Err(TryRecvError::Empty) => return *under_way != 0 && self.told.is_some(),
                Err(TryRecvError::Disconnected) => {
                    self.give_up();
                }
            }
        }
        false
    }

    /// Sees to it that there are spares, if so many segments are free.
    pub fn order(&mut self, directory: &OwnedFd, path: &'static str, length: u64, lacking: u32) {
        if let Maker::None = self.maker
            && lacking != 0
        {
            self.start(directory, path, length);
        }
        if let Maker::Works {
            orders,
            made,
            ready,
            under_way,
            ..
        } = &mut self.maker
        {
            while *under_way > lacking && (ready.pop_front().is_some() || made.try_recv().is_ok()) {
                *under_way -= 1;
            }
            while *under_way < SPARES.min(lacking) && orders.send(Order::Make).is_ok() {
                *under_way += 1;
            }
        }
    }

    /// Has the pages of a segment's file put together into huge ones some time soon, unless many wait for
    /// that already, or there was no room.
    pub fn gather(&mut self, file: &OwnedFd, directory: &OwnedFd, path: &'static str, length: u64) {
        if let Maker::None = self.maker {
            self.start(directory, path, length);
        }
        if let Maker::Works {
            orders, gathered, ..
        } = &self.maker
            && gathered.load(Ordering::Relaxed) < GATHERED_MAX
            && let Ok(file) = open_to_read(file)
        {
            gathered.fetch_add(1, Ordering::Relaxed);
            // Where the thread has ended nothing is gathered any more.
            let _ = orders.send(Order::Gather(file));
        }
    }

    /// A spare, if one is ready. Does not block.
    pub fn take(&mut self) -> Option<OwnedFd> {
        let Maker::Works {
            made,
            ready,
            under_way,
            ..
        } = &mut self.maker
        else {
            return None;
        };
        match ready.pop_front().map_or_else(|| made.try_recv(), Ok) {
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

    /// Makes a piece of one more file, of the length that all have, beside the thread: for who waits and has nothing else
    /// to do. True if one is done by that.
    pub fn make_piece(&mut self, directory: &OwnedFd, path: &str, length: u64) -> bool {
        let Maker::Works {
            ready,
            piecemeal,
            under_way,
            ..
        } = &mut self.maker
        else {
            return false;
        };
        let (file, at) = match piecemeal.take() {
            Some(begun) => begun,
            None => match begin(directory, path, length) {
                Ok(file) => (file, 0),
                Err(_) => return false,
            },
        };
        let end = (at + PIECE).min(length);
        let never = AtomicBool::new(false);
        if self.huge_pages.fill(&file, 0, at..end, &never).is_err() {
            // Where there is no room the thread finds that out, too.
            return false;
        }
        match end < length {
            true => *piecemeal = Some((file, end)),
            false => {
                ready.push_back(file);
                *under_way += 1;
            }
        }
        end == length
    }

    /// Lets go of the spares, for good: there is no room for them. False if none can have been there.
    /// Waits for the thread, which at most puts pages of one file together still.
    pub fn give_up(&mut self) -> bool {
        let Maker::Works {
            orders,
            made,
            stop,
            ended,
            ..
        } = std::mem::replace(&mut self.maker, Maker::Failed)
        else {
            return false;
        };
        stop.store(true, Ordering::Relaxed);
        drop((orders, made));
        let _ = ended.recv_timeout(LONGEST);
        true
    }

    fn start(&mut self, directory: &OwnedFd, path: &'static str, length: u64) {
        let told = self.told.clone();
        let maker = start(directory, path, length, &self.huge_pages, told);
        self.maker = maker.unwrap_or(Maker::Failed);
    }
}

/// Tells whoever waits when it is dropped.
struct Tells(Told);

impl Tells {
    fn tell(&self) {
        if let Some(told) = &self.0 {
            told();
        }
    }
}

impl Drop for Tells {
    fn drop(&mut self) {
        self.tell();
    }
}

/// Starts the thread, which ends with its first failure, or when nobody can order any more.
fn start(
    directory: &OwnedFd,
    path: &'static str,
    length: u64,
    huge_pages: &HugePages,
    tells: Told,
) -> Result<Maker, Errno> {
    let huge_pages = huge_pages.clone();
    let folder = rustix::io::fcntl_dupfd_cloexec(directory, 0)?;
    let (orders, ordered) = channel();
    let (sender, made) = channel();
    let gathered = Arc::new(AtomicUsize::new(0));
    let done = gathered.clone();
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    let (ends, ended) = channel();
    std::thread::Builder::new()
        .name("arck-spares".into())
        .spawn(move || {
            // Dropped after all files, and told of then.
            let tells = Tells(tells);
            let _ends: Sender<()> = ends;
            let (sender, ordered, folder) = (sender, ordered, folder);
            let mut later = VecDeque::new();
            loop {
                // Spares are waited for; what is in use can be used as it is.
                let order = match later.is_empty() {
                    true => ordered.recv().map_err(|_| TryRecvError::Disconnected),
                    false => ordered.try_recv(),
                };
                match order {
                    Ok(Order::Make) => {
                        let Ok(file) = begin(&folder, path, length) else {
                            return;
                        };
                        if huge_pages.fill(&file, 0, 0..length, &told).is_err() {
                            return;
                        }
                        if sender.send(file).is_err() {
                            return;
                        }
                        tells.tell();
                    }
                    Ok(Order::Gather(file)) => later.push_back(file),
                    Err(TryRecvError::Empty) => {
                        if let Some(file) = later.pop_front() {
                            huge_pages.gather(&file, 0, length);
                            done.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                    Err(TryRecvError::Disconnected) => return,
                }
            }
        })
        .map_err(|_| Errno::AGAIN)?;
    Ok(Maker::Works {
        orders,
        gathered,
        made,
        ready: VecDeque::new(),
        piecemeal: None,
        under_way: 0,
        stop,
        ended,
    })
}

/// Gives a file without a name one that is free. ENOENT where there is no `/proc`.
pub fn name(file: &OwnedFd, directory: &OwnedFd, path: &str) -> Result<(), Errno> {
    let flags = AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(rustix::fs::CWD, itself(file), directory, path, flags)
}

/// The path of a file by its descriptor.
fn itself(file: &OwnedFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::filling::{ZEROES, fill};
    use arck_pm::{AddressSpace, MapOptions};
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::time::Instant;

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
        assert!(matches!(spares.maker, Maker::None), "none is lacking");
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
        assert!(spares.give_up());
        assert!(!spares.give_up());
        spares.order(&directory, ".", length, 9);
        assert!(spares.take().is_none());
    }

    /// Whoever waits is told of each file, and of the end of the thread; without anybody to tell nobody waits.
    #[test]
    fn who_waits_is_told_when_a_file_is_made() {
        let length = (ZEROES * 3) as u64;
        let (_place, directory) = folder("/dev/shm");
        let mut untold = SpareFiles::default();
        untold.order(&directory, ".", length, 1);
        assert!(!untold.is_coming(), "nobody would tell");
        let mut spares = SpareFiles::default();
        let (telling, told) = channel();
        spares.tell(move || telling.send(()).unwrap_or_default());
        assert!(!spares.is_coming(), "nobody makes any");
        spares.order(&directory, ".", length, 2);
        for left in [1, 0] {
            told.recv_timeout(Duration::from_secs(20)).expect("a file");
            assert!(!spares.is_coming(), "one is there");
            assert!(spares.take().is_some());
            assert!(left != 0 || !spares.is_coming(), "none is made any more");
        }
        assert!(spares.give_up());
        told.recv_timeout(Duration::from_secs(20)).expect("the end");
        assert!(!spares.is_coming());
    }

    /// What is made a piece at a time is as whole as what the thread makes, and counts with it.
    #[test]
    fn files_are_made_piece_by_piece_beside_the_thread() {
        let length = PIECE * 2 + 4096;
        let (_place, directory) = folder("/dev/shm");
        let mut spares = SpareFiles::default();
        assert!(!spares.make_piece(&directory, ".", length), "not begun");
        spares.order(&directory, ".", length, 1);
        let thread = wait(&mut spares);
        let done: Vec<bool> = (0..6)
            .map(|_| spares.make_piece(&directory, ".", length))
            .collect();
        assert_eq!(done, [false, false, true, false, false, true]);
        for file in [thread, wait(&mut spares), wait(&mut spares)] {
            assert_eq!(bytes(&file), (length, length));
        }
        assert!(spares.take().is_none());
        spares.make_piece(&directory, ".", length);
        assert!(spares.give_up());
        assert!(!spares.make_piece(&directory, ".", length), "given up");
    }

    /// How long a file is, and how much of it is allocated.
    fn bytes(file: &OwnedFd) -> (u64, u64) {
        let status = rustix::fs::fstat(file).unwrap();
        let (size, blocks) = (status.st_size as u64, status.st_blocks as u64);
        (size, blocks * 512)
    }

    /// How much of a file's mapping huge pages make up, in bytes.
    fn huge(file: &OwnedFd, length: u64) -> u64 {
        let length = length as usize;
        let space = AddressSpace::reserve(length).unwrap();
        space
            .map(0, length, file, 0, MapOptions::READ_ONLY)
            .unwrap();
        space
            .populate(0, length, arck_pm::Access::ReadOnly)
            .unwrap();
        let address = format!("{:x}-", space.base() as usize);
        let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap();
        // It may be the first.
        let mappings = format!("\n{mappings}");
        let own = mappings.split_once(&format!("\n{address}")).unwrap().1;
        let huge = own.split_once("ShmemPmdMapped:").unwrap().1;
        let kilobytes = huge.split_whitespace().next().unwrap();
        kilobytes.parse::<u64>().unwrap() << 10
    }

    /// Whether this kernel can put pages together: from 6.1 on it must.
    fn can_collapse() -> bool {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release
            .split(['.', '-'])
            .map(|part| part.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6u32, 1u32)
    }

    /// Whether it was so within 20 seconds.
    fn comes_true(mut is_so: impl FnMut() -> bool) -> bool {
        let since = Instant::now();
        while !is_so() {
            if since.elapsed() > Duration::from_secs(20) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// On a machine at full load the kernel may find the pages busy (EAGAIN), or no huge page that is free just
    /// then (ENOMEM): they are left as they are, which is as good, but slower. This test once wanted huge pages
    /// at the first attempt, and failed there.
    #[test]
    fn spares_and_files_in_use_are_of_huge_pages() {
        let length = 4 << 20;
        let (_place, directory) = folder("/dev/shm");
        let least = if can_collapse() { length } else { 0 };
        assert!(comes_true(|| {
            let mut spares = SpareFiles::default();
            spares.order(&directory, ".", length, 1);
            huge(&wait(&mut spares), length) >= least
        }));

        let flags = OFlags::RDWR | OFlags::TMPFILE;
        let used = rustix::fs::openat(&directory, ".", flags, Mode::RUSR | Mode::WUSR).unwrap();
        fill(&used, 0, length).unwrap();
        rustix::io::pwrite(&used, b"what is there", 3 << 20).unwrap();
        assert!(comes_true(|| {
            let mut spares = SpareFiles::default();
            spares.gather(&used, &directory, ".", length);
            let Maker::Works { gathered, .. } = &spares.maker else {
                panic!("nobody works");
            };
            let is_done = || gathered.load(Ordering::Relaxed) == 0;
            assert!(comes_true(is_done), "never done");
            huge(&used, length) >= least
        }));
        // Whoever asks whether somebody may store to the file finds the one descriptor of this test.
        let readers = open_to_read(&used).unwrap();
        assert!(
            !rustix::fs::fcntl_getfl(&readers)
                .unwrap()
                .contains(OFlags::RDWR)
        );
        let mut bytes = [0; 13];
        rustix::io::pread(&used, &mut bytes, 3 << 20).unwrap();
        assert_eq!(&bytes, b"what is there");
    }

    #[test]
    fn a_folder_that_takes_none_is_given_up() {
        let (_place, directory) = folder("/dev/shm");
        let mut spares = SpareFiles::default();
        spares.order(&directory, "absent", 4096, 1);
        let since = Instant::now();
        while !matches!(spares.maker, Maker::Failed) {
            assert!(spares.take().is_none());
            assert!(since.elapsed() < Duration::from_secs(20), "still hoping");
        }
    }
}
