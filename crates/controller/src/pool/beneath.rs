//! Whether the file system beneath has room for a pool, found out before anything is made.
//!
//! A pool in ordinary memory takes its segments from the file system beneath as they are used, so
//! that one larger than what is free can be made, and fails only when programs have filled it.

use crate::error::{Error, Result};
use crate::pool::mkfs::JOURNAL_SIZE;
use arck_controller_state::{segments, sessions as session_table};
use arck_core_state::Geometry;
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes that a pool of this shape takes when it is full, its tables included.
fn needed(geometry: &Geometry) -> u64 {
    geometry.span()
        + geometry.header_table_size()
        + geometry.page_bitmap_size()
        + segments::table_size(geometry.segment_count)
        + session_table::TABLE_SIZE
        + JOURNAL_SIZE
}

/// Largest size of a pool, in whole MiB, that needs no more than `room`; 0 if there is none.
fn fitting(room: u64) -> u64 {
    let fits = |mebibytes: u64| {
        Geometry::for_pool_size(mebibytes << 20).is_some_and(|shape| needed(&shape) <= room)
    };
    let (mut low, mut high) = (0, (room.min(Geometry::POOL_SIZE_MAX) >> 20) + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        // Sizes below the smallest pool's do not fit, but larger ones may.
        if fits(middle) || middle << 20 < Geometry::POOL_SIZE_MIN {
            low = middle;
        } else {
            high = middle;
        }
    }
    if fits(low) { low << 20 } else { 0 }
}

/// Bytes that the files in a directory hold, two levels deep as a pool is; what cannot be looked
/// at counts as nothing.
fn held(directory: &Path, depth: u32) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?, entry.path())))
        .map(|(metadata, path)| {
            if metadata.is_dir() && depth > 0 {
                held(&path, depth - 1)
            } else {
                metadata.blocks() * 512
            }
        })
        .sum()
}

/// Whether a pool of `size` bytes fits where `path` is or would be, what a pool that is there
/// already holds counted as free. A size that no pool can have fits: [`crate::pool::mkfs`] refuses it.
/// So does every size on a file system that does not tell what is free.
///
/// # Errors
/// [`Error::Room`]; or the file system cannot be asked.
pub fn check_room(path: &Path, size: u64) -> Result<()> {
    let Some(geometry) = Geometry::for_pool_size(size) else {
        return Ok(());
    };
    let mut place = path;
    let status = loop {
        match rustix::fs::statvfs(place) {
            Ok(status) => break status,
            // Not there yet: where it would be made.
            Err(Errno::NOENT) if place == path => {
                place = match path.parent() {
                    Some(parent) if parent != Path::new("") => parent,
                    _ => Path::new("."),
                };
            }
            // The path is wrong, as `mkfs` will say.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(Error::system(place, "statvfs")(errno)),
        }
    };
    if status.f_blocks == 0 {
        return Ok(());
    }
    let room = status
        .f_bavail
        .saturating_mul(status.f_frsize)
        .saturating_add(if place == path { held(path, 1) } else { 0 });
    if needed(&geometry) <= room {
        return Ok(());
    }
    Err(Error::Room {
        path: place.into(),
        size,
        room,
        fitting: fitting(room),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_the_largest_that_does() {
        for room in [
            0,
            1 << 20,
            17 << 20,
            19 << 20,
            1 << 30,
            5 << 30,
            1 << 40,
            u64::MAX,
        ] {
            let size = fitting(room);
            let needs = |size| Geometry::for_pool_size(size).map(|shape| needed(&shape));
            if size == 0 {
                assert!(needs(Geometry::POOL_SIZE_MIN).unwrap() > room);
                continue;
            }
            assert!(needs(size).unwrap() <= room);
            assert!(
                needs(size + (1 << 20)).is_none_or(|more| more > room),
                "{room}"
            );
        }
    }

    #[test]
    fn what_a_pool_holds_counts_as_free() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let inner = directory.path().join("segments");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("0"), vec![1; 1 << 20]).unwrap();
        std::fs::write(directory.path().join("table"), vec![1; 1 << 16]).unwrap();
        assert!(held(directory.path(), 1) >= (1 << 20) + (1 << 16));
        assert_eq!(held(&directory.path().join("none"), 1), 0);
    }

    #[test]
    fn more_than_there_is_does_not_fit() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = directory.path().join("pool");
        assert!(check_room(&pool, 16 << 20).is_ok());
        let Err(Error::Room { room, fitting, .. }) = check_room(&pool, 1 << 44) else {
            panic!("16 TiB of memory");
        };
        assert!(fitting < room && check_room(&pool, fitting / 2).is_ok());
    }
}
