//! Filling files in memory before they are used, so that all of them is allocated, and whoever maps them has few
//! faults.
//!
//! Where [huge pages](arck_pm::huge_pages) are to be had, one page is written of each 2 MiB, and the kernel puts a huge
//! page in its place, which it zeroes at once: a tenth of what zeroing page by page takes. Where there is none, or it
//! would take longer, the pages are written one by one.
//!
//! # Invariants
//! * Nothing that a file holds already changes; where nothing is yet, zeroes are.
//! * No more of a file is allocated than what was asked for, and what is before that in its first huge page.

use arck_pm::AddressSpace;
use arck_pm::mapping::MapOptions;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a huge page.
pub const HUGE: u64 = arck_pm::mapping::HUGE_PAGE as u64;
/// Written at once: small enough to stay in the processor's cache.
pub const ZEROES: usize = 64 << 10;
/// What is written so that there is a page at all.
const ONE: [u8; 8] = [0; 8];

/// Huge pages, as long as they are worth it. Cheap to clone: what one finds the others know.
#[derive(Clone, Default)]
pub struct HugePages(Arc<arck_pm::HugePages>);

impl HugePages {
    /// Puts the pages of a part of a file together, holes included, where that is possible and worth while; false if
    /// not: what is there is as good, but slower, and there may be holes.
    pub fn gather(&self, file: impl AsFd, offset: u64, length: u64) -> bool {
        if !self.0.are_worth_it() {
            return false;
        }
        let mapped = || -> arck_pm::Result<AddressSpace> {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let space = AddressSpace::reserve(length)?;
            space.map(0, length, file, offset, MapOptions::READ_ONLY)?;
            Ok(space)
        };
        mapped().is_ok_and(|space| self.0.gather(space.bytes()))
    }

    /// Fills a range of a file in which nothing is yet with zeroes: see the module's head. Of what is before `part`
    /// nothing is allocated. ENOSPC, EDQUOT; ECANCELED if it was told to stop.
    pub fn fill(
        &self,
        file: impl AsFd,
        part: u64,
        range: Range<u64>,
        stop: &AtomicBool,
    ) -> Result<(), Errno> {
        let file = file.as_fd();
        let (mut at, end) = (range.start, range.end);
        while at < end {
            // To the end of the huge page.
            let to = (at + 1).next_multiple_of(HUGE).min(end);
            let is_huge = to.is_multiple_of(HUGE) && to - HUGE >= part;
            if stop.load(Ordering::Relaxed) {
                return Err(Errno::CANCELED);
            }
            if !is_huge || !self.0.are_worth_it() || !self.fill_one(file, at, to)? {
                fill_unless(file, at, to - at, stop)?;
            }
            at = to;
        }
        Ok(())
    }

    /// The part of a huge page from `at` on.
    fn fill_one(&self, file: impl AsFd, at: u64, to: u64) -> Result<bool, Errno> {
        match rustix::io::pwrite(&file, &ONE, at) {
            Ok(0) => Err(Errno::NOSPC),
            Ok(_) => Ok(self.gather(file, to - HUGE, HUGE)),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

/// The same, page by page. ENOSPC, EDQUOT.
pub fn fill(file: impl AsFd, offset: u64, length: u64) -> Result<(), Errno> {
    fill_unless(file, offset, length, &AtomicBool::new(false))
}

/// Page by page: takes no longer than `fallocate` in memory, which leaves the zeroing to whoever touches a page
/// first, in a fault of its own for each; what is zeroed is mapped by sixteen at a time.
fn fill_unless(file: impl AsFd, offset: u64, length: u64, stop: &AtomicBool) -> Result<(), Errno> {
    let zeroes = vec![0u8; ZEROES];
    let (mut at, end) = (offset, offset + length);
    while at < end {
        if stop.load(Ordering::Relaxed) {
            return Err(Errno::CANCELED);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::OwnedFd;
    use rustix::fs::{Mode, OFlags};

    fn file(length: u64) -> OwnedFd {
        let flags = OFlags::RDWR | OFlags::TMPFILE;
        let file = rustix::fs::open("/dev/shm", flags, Mode::RUSR | Mode::WUSR).unwrap();
        rustix::fs::ftruncate(&file, length).unwrap();
        file
    }

    fn bytes(file: &OwnedFd) -> u64 {
        u64::try_from(rustix::fs::fstat(file).unwrap().st_blocks).unwrap() * 512
    }

    /// With huge pages and without: what was there stays, what was asked for is there, and no more.
    #[test]
    fn what_is_there_stays_and_the_rest_is_zeroes() {
        const PAGE: u64 = 4096;
        let lacking = HugePages(Arc::new(arck_pm::HugePages::none()));
        for pages in [HugePages::default(), lacking] {
            // From the middle of a huge page to the middle of another one.
            let file = file(16 * HUGE);
            fill(&file, 3 * PAGE, PAGE).unwrap();
            rustix::io::pwrite(&file, b"what is there", 3 * PAGE).unwrap();
            let end = 2 * HUGE + 5 * PAGE;
            let stop = AtomicBool::new(false);
            pages.fill(&file, 0, 4 * PAGE..end, &stop).unwrap();
            let whole = bytes(&file);
            assert!((end - 3 * PAGE..=end).contains(&whole), "{whole} of {end}");
            let part = 4 * HUGE + PAGE;
            pages.fill(&file, part, part..5 * HUGE, &stop).unwrap();
            assert_eq!(bytes(&file) - whole, HUGE - PAGE, "before the part");
            let mut all = vec![1; usize::try_from(end).unwrap()];
            rustix::io::pread(&file, &mut all[..], 0).unwrap();
            assert_eq!(&all[3 * 4096..][..13], b"what is there");
            all[3 * 4096..][..13].fill(0);
            assert!(all.iter().all(|&byte| byte == 0));
            stop.store(true, Ordering::Relaxed);
            let stopped = pages.fill(&file, 0, end..end + HUGE, &stop);
            assert_eq!(stopped, Err(Errno::CANCELED));
        }
    }

    #[test]
    fn a_full_file_system_is_told_of() {
        let file = file(HUGE);
        // Beyond what a file can be.
        let beyond = u64::MAX / 2 / HUGE * HUGE;
        let stop = AtomicBool::new(false);
        let filled = HugePages::default().fill(&file, 0, beyond..beyond + HUGE, &stop);
        assert!(filled.is_err());
    }
}
