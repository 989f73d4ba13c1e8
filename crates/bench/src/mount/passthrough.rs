//! A directory of tmpfs, passed through by the library that `arck mount` uses: what FUSE itself takes.
//!
//! Invariant: it is asked and answers as `arck mount` (no time-outs, no cache for reads and writes, as many threads), and does
//! for each request the system calls that it takes, by descriptors of what the kernel knows, and nothing else.

use fuser::{
    Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session,
    SessionACL, TimeOrNow, WriteFlags,
};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const BELIEVED: Duration = Duration::ZERO;
const REQUEST_MAX: usize = 1 << 20;

/// What the kernel knows: a descriptor, and how often it was told.
struct Known {
    file: Arc<OwnedFd>,
    told: u64,
}

struct Passthrough {
    known: RwLock<HashMap<u64, Mutex<Known>>>,
    open: RwLock<HashMap<u64, Arc<OwnedFd>>>,
    next: AtomicU64,
    opened: FopenFlags,
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; REQUEST_MAX]);
}

fn told(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

fn attributes(of: &Stat) -> FileAttr {
    let time = |seconds: i64, nanoseconds: u64| -> SystemTime {
        UNIX_EPOCH + Duration::new(seconds.unsigned_abs(), nanoseconds as u32)
    };
    FileAttr {
        ino: INodeNo(of.st_ino),
        size: of.st_size as u64,
        blocks: of.st_blocks as u64,
        atime: time(of.st_atime, of.st_atime_nsec),
        mtime: time(of.st_mtime, of.st_mtime_nsec),
        ctime: time(of.st_ctime, of.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: match of.st_mode & libc::S_IFMT {
            libc::S_IFDIR => FileType::Directory,
            libc::S_IFLNK => FileType::Symlink,
            _ => FileType::RegularFile,
        },
        perm: (of.st_mode & 0o7777) as u16,
        nlink: of.st_nlink as u32,
        uid: of.st_uid,
        gid: of.st_gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Passthrough {
    fn file(&self, number: INodeNo) -> Result<Arc<OwnedFd>, Errno> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(&number.0).ok_or(Errno::STALE)?;
        let known = known.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(known.file.clone())
    }

    fn opened(&self, number: FileHandle) -> Result<Arc<OwnedFd>, Errno> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&number.0).cloned().ok_or(Errno::BADF)
    }

    fn note_open(&self, file: OwnedFd) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, Arc::new(file));
        FileHandle(number)
    }

    /// Looks a name up, and notes that the kernel was told.
    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<Stat, Errno> {
        let above = self.file(parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&*above, name, flags, Mode::empty())?;
        let of = fs::fstat(&file)?;
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = known.get(&of.st_ino) {
                known.lock().unwrap_or_else(PoisonError::into_inner).told += 1;
                return Ok(of);
            }
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let entry = known.entry(of.st_ino).or_insert_with(|| {
            Mutex::new(Known {
                file: Arc::new(file),
                told: 0,
            })
        });
        entry.get_mut().unwrap_or_else(PoisonError::into_inner).told += 1;
        Ok(of)
    }

    fn answer(reply: ReplyEmpty, done: Result<(), Errno>) {
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn answer_entry(reply: ReplyEntry, found: Result<Stat, Errno>) {
        match found {
            Ok(of) => reply.entry(&BELIEVED, &attributes(&of), Generation(0)),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn reopen(&self, number: INodeNo, flags: OFlags) -> Result<OwnedFd, Errno> {
        let file = self.file(number)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
    }
}

impl Filesystem for Passthrough {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.set_max_write(REQUEST_MAX as u32);
        let _ = config.set_max_readahead(REQUEST_MAX as u32);
        for wish in [
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ] {
            let _ = config.add_capabilities(wish);
        }
        if config
            .add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
            .is_ok()
        {
            self.opened = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        Self::answer_entry(reply, self.find(parent, name));
    }

    fn forget(&self, _request: &Request, number: INodeNo, lookups: u64) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = known.get_mut(&number.0) else {
            return;
        };
        let entry = entry.get_mut().unwrap_or_else(PoisonError::into_inner);
        entry.told = entry.told.saturating_sub(lookups);
        if entry.told == 0 {
            known.remove(&number.0);
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        number: INodeNo,
        open: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let file = match open {
            Some(open) => self.opened(open),
            None => self.file(number),
        };
        match file.and_then(|file| fs::fstat(&*file)) {
            Ok(of) => reply.attr(&BELIEVED, &attributes(&of)),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        number: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        _modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _open: Option<FileHandle>,
        _created: Option<SystemTime>,
        _flags_changed: Option<SystemTime>,
        _saved: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changed = || {
            if let Some(size) = size {
                fs::ftruncate(self.reopen(number, OFlags::WRONLY)?, size)?;
            }
            fs::fstat(&*self.file(number)?)
        };
        match changed() {
            Ok(of) => reply.attr(&BELIEVED, &attributes(&of)),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn mkdir(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = || {
            fs::mkdirat(&*self.file(parent)?, name, Mode::from_raw_mode(mode))?;
            self.find(parent, name)
        };
        Self::answer_entry(reply, made());
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let file = self.file(parent);
        Self::answer(
            reply,
            file.and_then(|above| fs::unlinkat(&*above, name, AtFlags::empty())),
        );
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let file = self.file(parent);
        Self::answer(
            reply,
            file.and_then(|above| fs::unlinkat(&*above, name, AtFlags::REMOVEDIR)),
        );
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = || {
            fs::renameat(
                &*self.file(parent)?,
                name,
                &*self.file(new_parent)?,
                new_name,
            )
        };
        Self::answer(reply, done());
    }

    fn open(&self, _request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let kept = OFlags::ACCMODE | OFlags::APPEND | OFlags::TRUNC;
        let flags = OFlags::from_bits_truncate(flags.0.cast_unsigned()) & kept;
        match self.reopen(number, flags) {
            Ok(file) => reply.opened(self.note_open(file), self.opened),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn create(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = || {
            let kept = OFlags::ACCMODE | OFlags::APPEND | OFlags::TRUNC | OFlags::EXCL;
            let flags = OFlags::from_bits_truncate(flags.cast_unsigned()) & kept;
            let flags = flags | OFlags::CREATE | OFlags::CLOEXEC;
            let file = fs::openat(&*self.file(parent)?, name, flags, Mode::from_raw_mode(mode))?;
            Ok((self.find(parent, name)?, file))
        };
        match made() {
            Ok((of, file)) => {
                let open = self.note_open(file);
                reply.created(
                    &BELIEVED,
                    &attributes(&of),
                    Generation(0),
                    open,
                    self.opened,
                );
            }
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _number: INodeNo,
        open: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let buffer = &mut buffer[..(size as usize).min(REQUEST_MAX)];
            let file = self.opened(open);
            match file.and_then(|file| rustix::io::pread(&*file, &mut *buffer, offset)) {
                Ok(length) => reply.data(&buffer[..length]),
                Err(errno) => reply.error(told(errno)),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        _number: INodeNo,
        open: FileHandle,
        offset: u64,
        bytes: &[u8],
        _of: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = self.opened(open);
        match file.and_then(|file| rustix::io::pwrite(&*file, bytes, offset)) {
            Ok(length) => reply.written(length as u32),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _number: INodeNo,
        _open: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        _number: INodeNo,
        open: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let mut all = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let closed = all.remove(&open.0);
        drop(all);
        drop(closed);
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _open: FileHandle,
        position: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = || -> Result<Vec<(u64, FileType, Vec<u8>)>, Errno> {
            let directory = self.reopen(number, OFlags::RDONLY | OFlags::DIRECTORY)?;
            let mut names = Vec::new();
            for entry in fs::Dir::read_from(&directory)? {
                let entry = entry?;
                let kind = match entry.file_type() {
                    fs::FileType::Directory => FileType::Directory,
                    _ => FileType::RegularFile,
                };
                names.push((entry.ino(), kind, entry.file_name().to_bytes().to_vec()));
            }
            Ok(names)
        };
        match listed() {
            Ok(names) => {
                for (index, (inode, kind, name)) in names.iter().enumerate().skip(position as usize)
                {
                    if reply.add(
                        INodeNo(*inode),
                        index as u64 + 1,
                        *kind,
                        OsStr::from_bytes(name),
                    ) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(errno) => reply.error(told(errno)),
        }
    }
}

/// Passes `from` through at `at` until it is unmounted; calls `ready` when it is there. Blocks.
pub fn serve(from: &Path, at: &Path, ready: impl FnOnce()) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", at.display());
    let root = fs::openat(CWD, from, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let root = root.map_err(|errno| format!("{}: {errno}", from.display()))?;
    // Its own number is the kernel's for a root, and nothing else's here.
    debug_assert!(root.as_fd().as_raw_fd() >= 0);
    let known = Mutex::new(Known {
        file: Arc::new(root),
        told: u64::MAX / 2,
    });
    let passthrough = Passthrough {
        known: RwLock::new(HashMap::from([(INodeNo::ROOT.0, known)])),
        open: RwLock::default(),
        next: AtomicU64::new(1),
        opened: FopenFlags::empty(),
    };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("passthrough".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::CUSTOM(format!("max_read={REQUEST_MAX}")),
    ];
    config.acl = SessionACL::All;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    config.n_threads = Some((2 * processors).clamp(4, 32));
    let session = Session::new(passthrough, at, &config).map_err(failed)?;
    ready();
    session.run().map_err(failed)
}
