//! The files of a pool, open and mapped.
//!
//! # Invariants
//! * Whoever holds a [`Pool`] holds the lock of the pool: there is one controller.
//! * Only metadata segments are mapped writable here, and arenas are mapped read-only; of data
//!   segments the one that was [written last](crate::pool::written) is, at most. Descriptors for sessions come from fresh
//!   opens.
//! * Every page that is stored to has been allocated in the backing before.

use crate::error::{Error, Result};
use crate::pool::spare_files::SpareFiles;
use crate::pool::superblock;
use arck_controller_state::segments::{self, SegmentEntry};
use arck_controller_state::sessions as session_table;
use arck_core_state::superblock::{Durability, Superblock};
use arck_core_state::{
    Geometry, InodeNumber, LiveHeader, PAGE_BYTES, PagePtr, PageWords, Pages, SegmentNumber, cast,
    layout,
};
use arck_pm::record::{self, FileChange, file_id};
use arck_pm::{
    AddressSpace, DurabilityMode, MapOptions, Mapping, PersistOption, PersistPolicy, SharedBytes,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A test's hook, called in place of `fsync`.
pub type SyncHook = Arc<dyn Fn(BorrowedFd<'_>) -> std::result::Result<(), Errno> + Send + Sync>;

/// An open pool.
pub struct Pool {
    path: PathBuf,
    directory: OwnedFd,
    superblock: Superblock,
    flush: bool,
    _lock: PoolLock,
    pub(super) headers_file: OwnedFd,
    headers: Mapping,
    bitmap: Mapping,
    segment_table: Mapping,
    session_table: Mapping,
    space: AddressSpace,
    mapped: Vec<bool>,
    /// Looks at pages, since [`Pool::take_pages_read`]; some are missing where several threads look.
    pages_read: AtomicU64,
    /// Bytes of the header table that are allocated.
    pub(super) headers_allocated: u64,
    /// Called in place of fsync.
    sync_hook: Option<SyncHook>,
    /// Segments whose files are gone, of which the log has told.
    lost: Mutex<BTreeSet<SegmentNumber>>,
    spares: Mutex<SpareFiles>,
    /// See [`written`](crate::pool::written).
    pub(super) written: Mutex<Option<(SegmentNumber, Arc<Mapping>)>>,
}

/// Durability as the superblock says it.
pub fn durability_of(mode: DurabilityMode) -> Durability {
    match mode {
        DurabilityMode::Dax => Durability::Dax,
        DurabilityMode::Volatile => Durability::Volatile,
        DurabilityMode::Paged => Durability::Paged,
    }
}

fn mode_of(durability: Durability) -> DurabilityMode {
    match durability {
        Durability::Dax => DurabilityMode::Dax,
        Durability::Volatile => DurabilityMode::Volatile,
        Durability::Paged => DurabilityMode::Paged,
    }
}

/// The 16 bytes of a hexadecimal identifier such as the machine's boot id; zero if unreadable.
pub fn identifier(file: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let digits: Vec<u8> = text
        .bytes()
        .filter_map(|b| char::from(b).to_digit(16))
        .filter_map(|d| u8::try_from(d).ok())
        .collect();
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    bytes
}

/// The machine's boot id.
pub fn boot_id() -> [u8; 16] {
    identifier("/proc/sys/kernel/random/boot_id")
}

/// Name of a segment's or an arena's file.
pub fn numbered(directory: &str, number: u32) -> String {
    format!("{directory}/{number:08x}")
}

/// Opens a pool's directory. Root opens none of another user's, who could have him open, cut and write by the
/// names in it whatever links lead to: he becomes that user first; where he does not have to, since the
/// directory at that path was his own, it may have been replaced by now.
pub fn open_directory(path: &Path) -> Result<OwnedFd> {
    let directory = open_any_directory(path)?;
    let status = rustix::fs::fstat(&directory).map_err(Error::system(path, "fstat"))?;
    if rustix::process::geteuid().is_root() && status.st_uid != 0 {
        return Err(Error::Replaced {
            path: path.into(),
            owner: status.st_uid,
        });
    }
    Ok(directory)
}

fn open_any_directory(path: &Path) -> Result<OwnedFd> {
    rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|errno| match errno {
        Errno::NOENT => Error::Missing { path: path.into() },
        Errno::NOTDIR => Error::NoDirectory { path: path.into() },
        errno => Error::system(path, "open")(errno),
    })
}

/// The pool's lock, held until it is dropped.
pub struct PoolLock(OwnedFd);

impl Drop for PoolLock {
    /// Closing would do, but for a moment a child that was just forked has the file open too.
    fn drop(&mut self) {
        // Fails only for a descriptor that is none.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// How long a controller that was killed is waited for until it is seen to be ending,
const KILLED_LIMIT: Duration = Duration::from_millis(50);
/// and how long one that is: the kernel unmaps all its memory before it lets go of the lock.
const ENDING_LIMIT: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// In the flags of a process: it is on its way out (the kernel's PF_EXITING).
const EXITING: u64 = 4;

/// Whether a process has begun to end, and has not let go of all that it had.
fn is_ending(process: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return false;
    };
    // Behind the name, which may hold anything: the state, six numbers, and the flags.
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let flags = rest.split(' ').nth(6).and_then(|flags| flags.parse().ok());
    rest.starts_with(['Z', 'X']) || flags.is_some_and(|flags: u64| flags & EXITING != 0)
}

/// Takes the pool's lock, and writes this process's id into it. Waits for a controller that is just ending.
pub fn lock(path: &Path, directory: &OwnedFd) -> Result<PoolLock> {
    let file = rustix::fs::openat(
        directory,
        layout::LOCK,
        OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::RUSR | Mode::WUSR,
    )
    .map_err(Error::system(path.join(layout::LOCK), "open"))?;
    let began = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(Error::system(path.join(layout::LOCK), "flock")(errno)),
        }
        let mut text = [0u8; 32];
        let length = rustix::io::pread(&file, &mut text[..], 0).unwrap_or(0);
        let process = String::from_utf8_lossy(&text[..length]).trim().to_owned();
        let patience = match is_ending(&process) {
            true => ENDING_LIMIT,
            false => KILLED_LIMIT,
        };
        if began.elapsed() < patience {
            std::thread::sleep(LOCK_PAUSE);
            continue;
        }
        let by = match process.as_str() {
            "" => String::new(),
            process => format!(" by process {process}"),
        };
        return Err(Error::Served {
            path: path.into(),
            by,
        });
    }
    let process = format!("{}\n", std::process::id());
    // Only for the message above: no harm if it fails.
    let _ = rustix::fs::ftruncate(&file, 0);
    let _ = rustix::io::pwrite(&file, process.as_bytes(), 0);
    Ok(PoolLock(file))
}

impl Pool {
    /// Opens, locks, checks and maps a pool; marks it as not cleanly closed. Says in addition
    /// whether it had been closed cleanly, and in this boot of the machine. Which durability its file system
    /// offers is probed, unless it is given.
    pub fn open(
        path: &Path,
        persist: PersistOption,
        given: Option<DurabilityMode>,
    ) -> Result<(Pool, bool, bool)> {
        let directory = open_directory(path)?;
        let mut superblock = superblock::read(path, &directory)?;
        let lock = lock(path, &directory)?;
        let geometry = superblock.geometry;
        let mode = match given {
            Some(mode) => mode,
            None => DurabilityMode::probe_directory(&directory)
                .map_err(Error::mapping(path, "probing durability"))?,
        };
        superblock.durability = durability_of(mode);
        let policy = persist.policy(mode_of(superblock.durability));
        arck_pm::set_policy(policy);
        let synchronous = superblock.durability == Durability::Dax;
        let table = |name: &str, size: u64| -> Result<(OwnedFd, Mapping)> {
            let file = rustix::fs::openat(
                &directory,
                name,
                OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW,
                Mode::empty(),
            )
            .map_err(|errno| match errno {
                Errno::NOENT => Error::Truncated {
                    path: path.into(),
                    file: name.into(),
                },
                errno => Error::system(path.join(name), "open")(errno),
            })?;
            let status =
                rustix::fs::fstat(&file).map_err(Error::system(path.join(name), "fstat"))?;
            if u64::try_from(status.st_size).unwrap_or(0) < size {
                return Err(Error::Truncated {
                    path: path.into(),
                    file: name.into(),
                });
            }
            let length = usize::try_from(size).unwrap_or(usize::MAX);
            let mapping = Mapping::new(
                &file,
                0,
                length,
                MapOptions::READ_WRITE.synchronous(synchronous),
            )
            .map_err(Error::mapping(path.join(name), "mmap"))?;
            Ok((file, mapping))
        };
        let (headers_file, headers) = table(layout::HEADERS, geometry.header_table_size())?;
        let (_, bitmap) = table(layout::PAGE_BITMAP, geometry.page_bitmap_size())?;
        let (_, segment_table) = table(
            layout::SEGMENT_TABLE,
            segments::table_size(geometry.segment_count),
        )?;
        lengthen_session_table(path, &directory)?;
        let (_, session_table) = table(layout::SESSION_TABLE, session_table::TABLE_SIZE)?;
        let span = usize::try_from(geometry.span()).unwrap_or(usize::MAX);
        let space =
            AddressSpace::reserve(span).map_err(Error::mapping(path, "reserving address space"))?;
        let was_clean = superblock.clean;
        let same_boot = superblock.boot == boot_id();
        superblock.clean = false;
        superblock::write(path, &directory, &superblock)?;
        let pool = Pool {
            path: path.into(),
            directory,
            flush: policy == PersistPolicy::Flush,
            _lock: lock,
            headers_file,
            headers,
            bitmap,
            segment_table,
            session_table,
            space,
            mapped: vec![false; geometry.segment_count as usize],
            pages_read: AtomicU64::new(0),
            superblock,
            headers_allocated: 0,
            sync_hook: None,
            lost: Mutex::default(),
            spares: Mutex::default(),
            written: Mutex::default(),
        };
        Ok((pool, was_clean, same_boot))
    }

    /// Says that what sessions have stored from now on is of this boot of the machine: not before
    /// all of another one is discarded, so that an opening that is cut off discards it again.
    pub fn mark_opened(&mut self) -> Result<()> {
        superblock::keep_copy(&self.path, &self.directory, &self.superblock)?;
        let boot = boot_id();
        if self.superblock.boot == boot {
            return Ok(());
        }
        self.superblock.boot = boot;
        superblock::write(&self.path, &self.directory, &self.superblock)
    }

    /// Says that everything is folded and applied.
    pub fn mark_clean(&mut self) -> Result<()> {
        self.superblock.clean = true;
        superblock::write(&self.path, &self.directory, &self.superblock)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
    pub fn directory(&self) -> &OwnedFd {
        &self.directory
    }
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }
    pub fn geometry(&self) -> Geometry {
        self.superblock.geometry
    }
    pub fn durability(&self) -> Durability {
        self.superblock.durability
    }
    /// Whether stores have to be flushed.
    pub fn flushes(&self) -> bool {
        self.flush
    }
    /// Whether the kernel's write-back is what makes durable.
    pub fn is_paged(&self) -> bool {
        self.superblock.durability == Durability::Paged
    }

    /// A header of the live table; `None` beyond it and for number 0.
    pub fn header(&self, number: InodeNumber) -> Option<&LiveHeader> {
        (number != 0 && number < self.geometry().inode_count).then(|| self.header_at(number))
    }

    /// The change clock of the headers ([`LiveHeader`]'s module).
    pub fn change_clock(&self) -> &AtomicU64 {
        &self.header_at(0).sequence
    }

    fn header_at(&self, number: InodeNumber) -> &LiveHeader {
        assert!(number < self.geometry().inode_count, "outside of the table");
        // SAFETY: the mapping covers `header_table_size` bytes, hence entry `number`; it is
        // page-aligned, so each entry is aligned to 64; a header is nothing but atomics, for
        // which every content is valid, and the mapping lives as long as `self`.
        unsafe {
            &*self
                .headers
                .as_ptr()
                .cast::<LiveHeader>()
                .add(number as usize)
        }
    }

    pub fn headers(&self) -> SharedBytes<'_> {
        self.headers.bytes()
    }
    pub fn bitmap(&self) -> SharedBytes<'_> {
        self.bitmap.bytes()
    }
    pub fn segment_table(&self) -> SharedBytes<'_> {
        self.segment_table.bytes()
    }
    pub fn session_table(&self) -> SharedBytes<'_> {
        self.session_table.bytes()
    }
    /// The pool's address space; only mapped segments may be touched.
    pub fn space(&self) -> SharedBytes<'_> {
        self.space.bytes()
    }

    /// Makes a file's contents and size, or a folder's names, durable; nothing to do where a crash
    /// of the machine leaves nothing.
    pub fn sync(&self, file: impl AsFd) -> std::result::Result<(), Errno> {
        match &self.sync_hook {
            _ if self.superblock.durability == Durability::Volatile => Ok(()),
            Some(hook) => hook(file.as_fd()),
            None => rustix::fs::fsync(file),
        }
    }

    /// For tests: `hook` takes the place of `fsync`, and the pool counts as one of this durability.
    #[cfg(test)]
    pub fn record_syncs(&mut self, durability: Durability, hook: SyncHook) {
        self.superblock.durability = durability;
        self.sync_hook = Some(hook);
    }

    /// Writes a mapped range back, in `paged` mode; nothing to do otherwise.
    pub fn write_back(&self, range: SharedBytes<'_>) -> std::result::Result<(), Errno> {
        if self.is_paged() {
            arck_pm::durability::write_back(range).map_err(|error| error.errno())
        } else {
            Ok(())
        }
    }

    /// Looks at pages of verified metadata since this was asked last.
    pub fn take_pages_read(&self) -> u64 {
        self.pages_read.swap(0, Ordering::Relaxed)
    }

    /// A fresh open of one of the pool's files; never a duplicate.
    pub fn open_file(&self, name: &str, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
        let file = rustix::fs::openat(
            &self.directory,
            name,
            flags | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::RUSR | Mode::WUSR,
        )?;
        if flags.contains(OFlags::CREATE) {
            record::file(|| FileChange::Named {
                file: file_id(&file),
                name: name.into(),
            });
        }
        Ok(file)
    }

    /// Files that are made ahead of their need.
    pub fn spares(&self) -> MutexGuard<'_, SpareFiles> {
        // Nothing panics with it, and every state of it is a good one.
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what takes room in the file system; where there is none, the spares go, and it is done again.
    pub fn with_room<T>(
        &self,
        mut work: impl FnMut() -> std::result::Result<T, Errno>,
    ) -> std::result::Result<T, Errno> {
        match work() {
            Err(Errno::NOSPC | Errno::DQUOT) if self.spares().give_up() => work(),
            other => other,
        }
    }

    /// A segment's file is gone; whether that is new.
    pub fn note_lost(&self, segment: SegmentNumber) -> bool {
        let lost = self.lost.lock();
        lost.is_ok_and(|mut lost| lost.insert(segment))
    }

    /// Removes one of the pool's files; that it is not there is no error.
    pub fn remove_file(&self, name: &str) {
        self.forget_written();
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) => record::file(|| FileChange::Removed { name: name.into() }),
            Err(Errno::NOENT) => {}
            Err(errno) => tracing::warn!("cannot remove {name}: {errno}"),
        }
    }

    /// Maps a metadata segment for reading and writing, in place of what was mapped there: its file
    /// may be another one.
    pub fn map_metadata(&mut self, segment: SegmentNumber) -> std::result::Result<(), Errno> {
        let Some(mapped) = self.mapped.get_mut(segment as usize) else {
            return Err(Errno::INVAL);
        };
        let size = self.superblock.geometry.segment_size;
        let file = rustix::fs::openat(
            &self.directory,
            numbered(layout::SEGMENTS, segment),
            OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::empty(),
        )?;
        let status = rustix::fs::fstat(&file)?;
        if u64::try_from(status.st_size).unwrap_or(0) < size {
            return Err(Errno::IO);
        }
        let length = usize::try_from(size).map_err(|_| Errno::INVAL)?;
        self.space
            .map(
                segment as usize * length,
                length,
                &file,
                0,
                MapOptions::READ_WRITE.synchronous(self.superblock.durability == Durability::Dax),
            )
            .map_err(|error| error.errno())?;
        *mapped = true;
        Ok(())
    }

    /// A segment is none of metadata any more; nothing refers to it.
    pub fn unmap_metadata(&mut self, segment: SegmentNumber) {
        let size = cast::index(self.superblock.geometry.segment_size);
        if let Some(mapped) = self.mapped.get_mut(segment as usize)
            && *mapped
        {
            *mapped = false;
            if let Err(error) = self.space.unmap(segment as usize * size, size) {
                tracing::warn!("segment {segment} stays mapped: {error}");
            }
        }
    }

    /// An entry of the stored segment table.
    pub fn segment_entry(&self, segment: SegmentNumber) -> SegmentEntry {
        let mut bytes = [0u8; segments::SEGMENT_ENTRY_SIZE];
        let offset = segment as usize * bytes.len();
        if self.segment_table().copy_to(offset, &mut bytes).is_none() {
            return SegmentEntry::default();
        }
        zerocopy::transmute!(bytes)
    }

    /// Byte offset of a page in [`space`](Self::space), if its segment is mapped here.
    pub fn mapped_offset(&self, page: PagePtr) -> Option<usize> {
        if !self.geometry().contains(page)
            || !*self.mapped.get(self.geometry().segment_of(page) as usize)?
        {
            return None;
        }
        usize::try_from(page.address()).ok()
    }
}

impl Pages for Pool {
    fn page(&self, pointer: PagePtr) -> Option<&PageWords> {
        let offset = self.mapped_offset(pointer)?;
        let page = self.space().slice(offset, PAGE_BYTES)?;
        // Not one step, which would cost more than looking.
        let looks = self.pages_read.load(Ordering::Relaxed);
        self.pages_read.store(looks + 1, Ordering::Relaxed);
        // SAFETY: the page lies in a segment that is mapped until `self` is dropped, is aligned
        // to 4096, and is 512 atomic words, for which every content is valid.
        Some(unsafe { &*page.as_ptr().cast::<PageWords>() })
    }
}

/// Gives a pool that an earlier release made room for as many sessions as there are now. What is shorter
/// than any release made it is damage, which is told of by who opens it.
fn lengthen_session_table(path: &Path, directory: &OwnedFd) -> Result<()> {
    let name = layout::SESSION_TABLE;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(directory, name, flags, Mode::empty()) else {
        return Ok(());
    };
    let status = rustix::fs::fstat(&file).map_err(Error::system(path.join(name), "fstat"))?;
    let has = u64::try_from(status.st_size).unwrap_or(0);
    match has {
        session_table::TABLE_MIN..session_table::TABLE_SIZE => {
            allocate(&file, 0, session_table::TABLE_SIZE)
                .map_err(Error::system(path.join(name), "allocate"))
        }
        _ => Ok(()),
    }
}

/// Allocates a range of a file in the backing, growing the file. ENOSPC, EDQUOT.
pub fn allocate(file: impl AsFd, offset: u64, length: u64) -> std::result::Result<(), Errno> {
    let file = file.as_fd();
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), offset, length) {
            Ok(()) => {
                resized(file);
                return Ok(());
            }
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP) => break,
            Err(errno) => return Err(errno),
        }
    }
    // A file system without fallocate: write zeroes where nothing is yet, and grow.
    let size = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
    let zeroes = vec![0u8; 1 << 16];
    let mut at = offset.max(size);
    while at < offset + length {
        let step = (offset + length - at).min(zeroes.len() as u64);
        let written = rustix::io::pwrite(file, &zeroes[..cast::index(step)], at)?;
        if written == 0 {
            return Err(Errno::NOSPC);
        }
        at += written as u64;
    }
    resized(file);
    Ok(())
}

/// Tells a trace, if one is recorded, how long a file is now.
pub fn resized(file: impl AsFd) {
    let file = file.as_fd();
    record::file(|| FileChange::Length {
        file: file_id(file),
        len: rustix::fs::fstat(file).map_or(0, |status| u64::try_from(status.st_size).unwrap_or(0)),
    });
}

/// Tells a trace, if one is recorded, that a range of a file was punched.
pub fn punched(file: impl AsFd, offset: u64, len: u64) {
    let file = file.as_fd();
    record::file(|| FileChange::Punched {
        file: file_id(file),
        offset,
        len,
    });
}
