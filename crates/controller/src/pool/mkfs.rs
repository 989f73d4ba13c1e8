//! Makes a pool.
//!
//! # Invariant
//! The superblock is written last, but for its copy: a pool whose making was interrupted is no pool.

use crate::error::{Error, Result};
use crate::pool::clock::now;
use crate::pool::files::{self, allocate, durability_of, numbered, resized};
use arck_controller_state::segments::{self, SegmentEntry, SegmentKind};
use arck_controller_state::sessions as session_table;
use arck_core_state::header::{HeaderKind, identity_word, state_word};
use arck_core_state::superblock::{Durability, Superblock};
use arck_core_state::{
    FileKind, Geometry, IndexRoot, Inode, PAGE_BYTES, PAGE_SIZE, PagePtr, ROOT_INODE, layout,
};
use arck_pm::DurabilityMode;
use arck_pm::record::{self, FileChange, file_id};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use zerocopy::IntoBytes;

/// How to make a pool.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Bytes; see [`Geometry::for_pool_size`].
    pub size: u64,
    /// Permission bits of the root directory.
    pub mode: u32,
    /// Replace an Arck pool that is there (and not served).
    pub force: bool,
}

/// Initial size of the journal, bytes.
pub const JOURNAL_SIZE: u64 = 1 << 20;
/// Byte address of the root directory's inode: page 1 of segment 0.
const ROOT_ADDRESS: u64 = PAGE_SIZE;

/// Makes a pool in `path`, a directory that is empty or does not exist yet. `progress` is told
/// (done, all) while space is allocated, in segments. Gives the superblock.
///
/// # Errors
/// One line each: size, not empty, already served, a file system with reflinks, no space.
pub fn mkfs(
    path: &Path,
    options: &MkfsOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Superblock> {
    let geometry =
        Geometry::for_pool_size(options.size).ok_or(Error::Size { size: options.size })?;
    match std::fs::create_dir(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::system(path, "mkdir")(errno_of(&error))),
    }
    let directory = files::open_directory(path)?;
    clear(path, &directory, options.force)?;
    rustix::fs::fchmod(&directory, Mode::RWXU).map_err(Error::system(path, "chmod"))?;
    refuse_reflink(path, &directory)?;
    let _lock = files::lock(path, &directory)?;
    let mode = DurabilityMode::probe_directory(&directory)
        .map_err(Error::mapping(path, "probing durability"))?;
    for name in [layout::SEGMENTS, layout::ARENAS] {
        rustix::fs::mkdirat(&directory, name, Mode::RWXU)
            .map_err(Error::system(path.join(name), "mkdir"))?;
    }

    // The tables. The header table is sparse; the others are allocated whole.
    let headers = create(path, &directory, layout::HEADERS)?;
    rustix::fs::ftruncate(&headers, geometry.header_table_size())
        .map_err(Error::system(path.join(layout::HEADERS), "ftruncate"))?;
    resized(&headers);
    let table = |name: &'static str, size: u64| -> Result<OwnedFd> {
        let file = create(path, &directory, name)?;
        allocate(&file, 0, size).map_err(Error::system(path.join(name), "allocate"))?;
        Ok(file)
    };
    let bitmap = table(layout::PAGE_BITMAP, geometry.page_bitmap_size())?;
    let segments = table(
        layout::SEGMENT_TABLE,
        segments::table_size(geometry.segment_count),
    )?;
    let sessions = table(layout::SESSION_TABLE, session_table::TABLE_SIZE)?;
    let journal = table(layout::JOURNAL, JOURNAL_SIZE)?;

    // Segment 0 holds metadata; page 0 is never used, page 1 begins with the root's inode.
    let first = create(path, &directory, &numbered(layout::SEGMENTS, 0))?;
    allocate(&first, 0, geometry.segment_size)
        .map_err(Error::system(path.join(layout::SEGMENTS), "allocate"))?;
    progress(1, u64::from(geometry.segment_count));
    if mode == DurabilityMode::Dax {
        for segment in 1..geometry.segment_count {
            let file = create(path, &directory, &numbered(layout::SEGMENTS, segment))?;
            allocate(&file, 0, geometry.segment_size)
                .map_err(Error::system(path.join(layout::SEGMENTS), "allocate"))?;
            progress(u64::from(segment) + 1, u64::from(geometry.segment_count));
        }
    }
    let created = now();
    let root = Inode {
        number: ROOT_INODE,
        generation: 1,
        mode: FileKind::Directory.mode_bits() | options.mode & 0o7777,
        links: 2,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        size: PAGE_SIZE,
        root: IndexRoot::EMPTY,
        accessed: created,
        modified: created,
        changed: created,
        created,
        pages: 0,
        parent: ROOT_INODE,
        entries: 0,
        mediation: 0,
        reserved0: 0,
        attributes: PagePtr::NULL,
        reserved: [0; 3],
    };
    let header = [
        0,
        ROOT_ADDRESS,
        1,
        0,
        identity_word(1, 0),
        state_word(HeaderKind::Alive, Some(FileKind::Directory), 0),
        0,
        0,
    ];
    let entry = SegmentEntry {
        kind: SegmentKind::Metadata as u32,
        ..SegmentEntry::default()
    };
    write(path, &first, root.as_bytes(), ROOT_ADDRESS)?;
    allocate(&headers, 0, PAGE_SIZE)
        .map_err(Error::system(path.join(layout::HEADERS), "allocate"))?;
    write(
        path,
        &headers,
        header.as_bytes(),
        u64::from(ROOT_INODE) * 64,
    )?;
    write(path, &bitmap, &[0b11], 0)?;
    write(path, &segments, entry.as_bytes(), 0)?;
    write(path, &sessions, &1u64.to_le_bytes(), 0)?;
    for file in [&headers, &bitmap, &segments, &sessions, &journal, &first] {
        rustix::fs::fsync(file).map_err(Error::system(path, "fsync"))?;
        record::file(|| FileChange::Synced {
            file: file_id(file),
        });
    }

    let seed = files::identifier("/proc/sys/kernel/random/uuid");
    let superblock = Superblock {
        uuid: files::identifier("/proc/sys/kernel/random/uuid"),
        geometry,
        durability: match durability_of(mode) {
            Durability::Dax => Durability::Dax,
            other => other,
        },
        clean: true,
        created,
        hash_seed: seed
            .iter()
            .take(8)
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
        boot: files::boot_id(),
        uid: rustix::process::geteuid().as_raw(),
    };
    crate::pool::superblock::write(path, &directory, &superblock)?;
    // After it: a pool gets its copy when it is first served, if this is cut off here.
    crate::pool::superblock::keep_copy(path, &directory, &superblock)?;
    Ok(superblock)
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn create(path: &Path, directory: &OwnedFd, name: &str) -> Result<OwnedFd> {
    let file = rustix::fs::openat(
        directory,
        name,
        OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )
    .map_err(Error::system(path.join(name), "create"))?;
    record::file(|| FileChange::Named {
        file: file_id(&file),
        name: name.into(),
    });
    Ok(file)
}

fn write(path: &Path, file: &OwnedFd, bytes: &[u8], offset: u64) -> Result<()> {
    match rustix::io::pwrite(file, bytes, offset) {
        Ok(written) if written == bytes.len() => {
            record::file(|| FileChange::Written {
                file: file_id(file),
                offset,
                bytes: bytes.to_vec(),
            });
            Ok(())
        }
        Ok(_) => Err(Error::system(path, "write")(Errno::NOSPC)),
        Err(errno) => Err(Error::system(path, "write")(errno)),
    }
}

/// Makes sure that the directory is empty: it is, or it holds a pool and `force` says so.
fn clear(path: &Path, directory: &OwnedFd, force: bool) -> Result<()> {
    let list = |what: &Path| -> Result<Vec<std::ffi::OsString>> {
        let entries =
            std::fs::read_dir(what).map_err(|e| Error::system(what, "readdir")(errno_of(&e)))?;
        entries
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<std::io::Result<_>>()
            .map_err(|e| Error::system(what, "readdir")(errno_of(&e)))
    };
    let names = list(path)?;
    if names.is_empty() {
        return Ok(());
    }
    let is_pool = !matches!(
        crate::pool::superblock::read(path, directory),
        Err(Error::Missing { .. }
            | Error::Superblock {
                reason: arck_core_state::superblock::SuperblockError::NotAPool,
                ..
            })
    );
    if !is_pool {
        return Err(Error::NotEmpty { path: path.into() });
    }
    if !force {
        return Err(Error::HoldsPool { path: path.into() });
    }
    let _lock = files::lock(path, directory)?;
    // The superblock first, and its copy before it: what is half removed is no pool any more.
    let files = [
        layout::SUPERBLOCK_COPY,
        layout::SUPERBLOCK,
        layout::SOCKET,
        layout::HEADERS,
        layout::PAGE_BITMAP,
        layout::CLASSES,
        layout::SEGMENT_TABLE,
        layout::SESSION_TABLE,
        layout::JOURNAL,
        crate::pool::names::SOCKET_BINDING,
        crate::pool::names::VIOLATIONS_LOG,
        crate::pool::names::VIOLATIONS_LOG_OLD,
        layout::REPAIR_REPORT,
        layout::LOCK,
    ];
    let remove = |name: &Path, flags| match rustix::fs::unlinkat(directory, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::system(path.join(name), "unlink")(errno)),
    };
    for name in files {
        remove(Path::new(name), AtFlags::empty())?;
    }
    for folder in [
        layout::SEGMENTS,
        layout::ARENAS,
        crate::pool::names::ASIDE,
        crate::pool::names::LOCK_FILES,
        crate::pool::names::NAMED_PIPES,
        crate::pool::names::SOCKETS,
        crate::pool::names::SOCKETS_BINDING,
    ] {
        let inside = match list(&path.join(folder)) {
            Ok(inside) => inside,
            Err(Error::System {
                errno: Errno::NOENT,
                ..
            }) => continue,
            Err(error) => return Err(error),
        };
        for name in inside {
            remove(&Path::new(folder).join(name), AtFlags::empty())?;
        }
        remove(Path::new(folder), AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// A file system that can share blocks between files would let a session share blocks of its
/// segments under the controller's feet.
fn refuse_reflink(path: &Path, directory: &OwnedFd) -> Result<()> {
    let names = [".arck-reflink-source", ".arck-reflink-target"];
    let probe = || -> Result<bool> {
        let source = create(path, directory, names[0])?;
        let target = create(path, directory, names[1])?;
        write(path, &source, &[1; PAGE_BYTES], 0)?;
        Ok(rustix::fs::ioctl_ficlone(&target, &source).is_ok())
    };
    let shares = probe();
    for name in names {
        // Leftovers of the probe; nothing depends on them.
        let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        record::file(|| FileChange::Removed { name: name.into() });
    }
    if shares? {
        return Err(Error::Reflink { path: path.into() });
    }
    Ok(())
}
