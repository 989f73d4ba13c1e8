//! The files of segments: making them, and making them anew.
//!
//! # Invariants
//! * A new file takes its place whole, by a rename, and is durable there before this returns, and so
//!   before the journal's entry that says whose the segment is: whatever a crash leaves, no segment
//!   has the file of a user that its label does not name, and none that is in use has none.
//! * All of a file is allocated in the backing before it is there.
//! * A segment of data without a file has nothing in it, and no session. If one has, somebody has removed
//!   the file: such a pool is not opened; while it is served, who needs what was there gets EIO.

use crate::pool::files::{Pool, allocate, numbered, resized};
use crate::pool::spare_files;
use arck_core_state::superblock::Durability;
use arck_core_state::{SegmentNumber, layout};
use arck_pm::record::{self, FileChange, file_id};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::sync::atomic::AtomicBool;

/// A file of the folder that is no segment's yet.
fn unfinished() -> String {
    format!("{}/new", layout::SEGMENTS)
}

impl Pool {
    /// Opens a segment's file. EIO if it is gone, of which the log tells once.
    pub fn open_segment(&self, segment: SegmentNumber, flags: OFlags) -> Result<OwnedFd, Errno> {
        let name = numbered(layout::SEGMENTS, segment);
        self.open_file(&name, flags).map_err(|errno| match errno {
            Errno::NOENT => {
                if self.note_lost(segment) {
                    let path = self.path().display();
                    tracing::error!(
                        "the file {name} of the pool {path} is gone, and what was in it: reading it is EIO. \
                         Stop the controller; then `arck check {path}` tells what is affected"
                    );
                }
                Errno::IO
            }
            errno => errno,
        })
    }

    /// Whether a segment has a file.
    pub fn has_segment(&self, segment: SegmentNumber) -> bool {
        let name = numbered(layout::SEGMENTS, segment);
        rustix::fs::statat(self.directory(), name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Makes sure that a segment has a file, and that all of it is allocated in the backing; a file
    /// that is made here is durable. ENOSPC.
    pub fn allocate_segment(&self, segment: SegmentNumber) -> Result<(), Errno> {
        match self.open_file(&numbered(layout::SEGMENTS, segment), OFlags::RDWR) {
            Ok(file) => {
                self.with_room(|| allocate(&file, 0, self.geometry().segment_size))?;
                self.gather(&file);
                Ok(())
            }
            Err(Errno::NOENT) => self.replace_segment(segment),
            Err(errno) => Err(errno),
        }
    }

    /// Gives a segment a new file, durably: who has the old one open or mapped keeps that. ENOSPC;
    /// blocks for as long as somebody holds the lock of the old one.
    pub fn replace_segment(&self, segment: SegmentNumber) -> Result<(), Errno> {
        self.forget_written();
        match self.put_in_place(segment) {
            Err(Errno::NOSPC | Errno::DQUOT) => {
                self.spares().give_up();
                // There is no room for both; the old one holds nothing that counts. If it is all
                // that is lost, the segment has no file until there is room for one.
                self.remove_file(&numbered(layout::SEGMENTS, segment));
                self.put_in_place(segment)?;
            }
            other => other?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.sync(rustix::fs::openat(
            self.directory(),
            layout::SEGMENTS,
            flags,
            Mode::empty(),
        )?)
    }

    fn put_in_place(&self, segment: SegmentNumber) -> Result<(), Errno> {
        let unfinished = unfinished();
        // Of a start that ended here.
        self.remove_file(&unfinished);
        let make = || {
            let file = match self.named_spare(&unfinished) {
                Some(file) => file,
                None => {
                    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
                    let file = self.open_file(&unfinished, flags)?;
                    self.fill_segment(&file)?;
                    file
                }
            };
            self.sync(&file)?;
            let (folder, name) = (self.directory(), numbered(layout::SEGMENTS, segment));
            rustix::fs::renameat(folder, &unfinished, folder, &name)?;
            record::file(|| FileChange::Named {
                file: file_id(&file),
                name,
            });
            Ok(())
        };
        make().inspect_err(|_| self.remove_file(&unfinished))
    }

    /// Allocates all of a new file. Where that is done of huge pages, it takes as long as a few faults.
    fn fill_segment(&self, file: &OwnedFd) -> Result<(), Errno> {
        let length = self.geometry().segment_size;
        let Some(huge_pages) = self.huge_pages() else {
            return allocate(file, 0, length);
        };
        rustix::fs::ftruncate(file, length)?;
        huge_pages.fill(file, 0, 0..length, &AtomicBool::new(false))?;
        resized(file);
        Ok(())
    }

    /// A file made ahead, all of it allocated, under this name.
    fn named_spare(&self, path: &str) -> Option<OwnedFd> {
        let file = self.spares().take()?;
        if spare_files::name(&file, self.directory(), path).is_err() {
            self.spares().give_up();
            return None;
        }
        record::file(|| FileChange::Named {
            file: file_id(&file),
            name: path.into(),
        });
        resized(&file);
        Some(file)
    }

    /// Has the pages of a segment's file put together into huge ones, some time soon: where whoever maps it
    /// has them without asking.
    fn gather(&self, file: &OwnedFd) {
        if self.durability() == Durability::Volatile {
            let length = self.geometry().segment_size;
            self.spares()
                .gather(file, self.directory(), layout::SEGMENTS, length);
        }
    }

    /// Makes a piece of a file for a segment, for somebody who waits for one; true if one is there by that.
    pub fn make_piece(&self) -> bool {
        let length = self.geometry().segment_size;
        self.spares()
            .make_piece(self.directory(), layout::SEGMENTS, length)
    }

    /// Has files made ahead of their need, where that takes long; so many segments are free.
    pub fn order_spares(&self, lacking: u32) {
        if self.durability() == Durability::Volatile {
            let length = self.geometry().segment_size;
            let folder = layout::SEGMENTS;
            self.spares()
                .order(self.directory(), folder, length, lacking);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestCore;
    use arck_controller_state::segments::SegmentKind;
    use std::collections::HashMap;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    /// Bytes of a segment of the pool.
    const SEGMENT: u64 = 256 << 10;

    /// What a disk would hold after a power loss: of the folder of segments, the names and which
    /// files they named when it was last made durable; of files, the size that they had.
    #[derive(Default)]
    struct Disk {
        names: HashMap<String, u64>,
        sizes: HashMap<u64, u64>,
    }

    fn names(folder: &Path) -> HashMap<String, u64> {
        let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        entries
            .map(|entry| {
                let inode = entry.metadata().unwrap().ino();
                (entry.file_name().into_string().unwrap(), inode)
            })
            .collect()
    }

    /// When the journal says that a segment is another user's, or a class's, that it has a file, and
    /// which, would survive a power loss.
    #[test]
    fn new_files_are_durable_before_they_count() {
        let disk = Arc::new(Mutex::new(Disk::default()));
        let checked = Arc::new(Mutex::new(Vec::new()));
        let mut test = TestCore::with_points({
            let (disk, checked) = (disk.clone(), checked.clone());
            move |pool, point| {
                if point != "journal written" {
                    return;
                }
                let disk = disk.lock().unwrap();
                for (name, inode) in names(&pool.join(layout::SEGMENTS)) {
                    let durable = disk.names.get(&name) == Some(&inode)
                        && disk.sizes.get(&inode) == Some(&SEGMENT);
                    checked.lock().unwrap().push((name, inode, durable));
                }
            }
        });
        let folder = test.path().join(layout::SEGMENTS);
        {
            let mut disk = disk.lock().unwrap();
            disk.names = names(&folder);
            disk.sizes = disk.names.values().map(|&inode| (inode, SEGMENT)).collect();
        }
        let hook = {
            let disk = disk.clone();
            move |file: rustix::fd::BorrowedFd<'_>| {
                let status = rustix::fs::fstat(file)?;
                let mut disk = disk.lock().unwrap();
                if status.st_mode & libc::S_IFMT == libc::S_IFDIR {
                    disk.names = names(&folder);
                } else {
                    disk.sizes
                        .insert(status.st_ino, u64::try_from(status.st_size).unwrap());
                }
                Ok(())
            }
        };
        let pool = &mut test.core.sessions.state.pool;
        pool.record_syncs(Durability::Paged, Arc::new(hook));
        let segment_size = pool.geometry().segment_size;
        assert_eq!(segment_size, SEGMENT);

        // One user takes all; what he leaves goes to another, and to classes.
        let ann = test.session(1001, &[1001]);
        let mut segments = Vec::new();
        while let Ok((segment, _)) = test.core.grant_segment(ann, false) {
            segments.push(segment);
        }
        test.core.owners().end_session(ann, libc::ESHUTDOWN);
        let pool = test.path();
        let file = |segment| {
            let name = pool.join(numbered(layout::SEGMENTS, segment));
            std::fs::metadata(name).unwrap().ino()
        };
        let before: Vec<u64> = segments.iter().map(|&segment| file(segment)).collect();
        let bob = test.session(1002, &[1002]);
        test.core.grant_segment(bob, false).unwrap();
        let after: Vec<u64> = segments.iter().map(|&segment| file(segment)).collect();
        assert_ne!(before, after, "no segment was made anew");
        let given = |kind| {
            let of_kind = |&&segment: &&u32| test.core.sessions.state.space.kind(segment) == kind;
            segments.iter().filter(of_kind).count()
        };
        assert!(given(SegmentKind::Data) > 0);
        let checked = checked.lock().unwrap();
        assert!(checked.iter().any(|(_, inode, _)| after.contains(inode)));
        for (name, inode, durable) in checked.iter() {
            assert!(durable, "segment {name}: file {inode}");
        }
    }
}
