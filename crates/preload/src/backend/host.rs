//! A host directory in place of a pool, for testing the interception alone.
//!
//! Not a file system: every operation is the kernel's, on a descriptor kept at a high number.
//! Handles count up and are never reused. With the directory `null` there are no files at all:
//! every open succeeds, every transfer moves all its bytes, and no system call is made, which
//! shows what the interception itself does.

use super::*;
use crate::raw::{error, failed, syscall};
use crate::settings::HOST_DIRECTORY;
use arckfs::ConnectError;
use std::collections::HashMap;
use std::ffi::CString;
use std::num::NonZeroU64;
use std::sync::Mutex;

struct Open {
    file: isize,
    references: u32,
}

pub struct FileSystem {
    root: isize,
    open: Mutex<(u64, HashMap<u64, Open>)>,
}

/// The root's descriptor when there are no files.
const NULL: isize = -1;

pub type AtFlags = i32;

const NEVER: Timestamp = Timestamp {
    seconds: 0,
    nanoseconds: 0,
};
const NOTHING: Attributes = Attributes {
    inode: 1,
    mode: libc::S_IFREG | 0o644,
    links: 1,
    uid: 0,
    gid: 0,
    size: 0,
    blocks: 0,
    accessed: NEVER,
    modified: NEVER,
    changed: NEVER,
    created: NEVER,
};

fn check(result: isize) -> Result<isize, Errno> {
    if failed(result) {
        Err(Errno::from_raw_os_error(-result as i32))
    } else {
        Ok(result)
    }
}

fn high(file: isize) -> Result<isize, Errno> {
    // SAFETY: moves a descriptor that was just opened.
    let moved = check(unsafe { syscall!(libc::SYS_fcntl, file, libc::F_DUPFD_CLOEXEC, 1100) });
    crate::raw::close(file);
    moved
}

/// A path relative to a directory descriptor, checked lexically for leaving the root.
struct Located(isize, CString);

impl FileSystem {
    pub fn connect(_options: &ConnectOptions) -> Result<FileSystem, ConnectError> {
        if HOST_DIRECTORY.get() == b"null" {
            return Ok(FileSystem {
                root: NULL,
                open: Mutex::new((0, HashMap::new())),
            });
        }
        let path = CString::new(HOST_DIRECTORY.get()).unwrap_or_default();
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: a NUL-terminated path.
        let root =
            check(unsafe { syscall!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) })
                .and_then(high)
                .map_err(|errno| ConnectError {
                    message: "ARCK_HOST_BACKEND_DIR cannot be opened".into(),
                    errno,
                })?;
        Ok(FileSystem {
            root,
            open: Mutex::new((0, HashMap::new())),
        })
    }
    pub fn abandon_after_fork(self) {
        for open in self
            .open
            .into_inner()
            .unwrap_or_else(|e| e.into_inner())
            .1
            .values()
        {
            crate::raw::close(open.file);
        }
    }
    pub fn pool_identity(&self) -> [u64; 2] {
        [1, 2]
    }
    fn file(&self, handle: Handle) -> Result<isize, Errno> {
        let open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        open.1
            .get(&handle.0.get())
            .map(|open| open.file)
            .ok_or(Errno::BADF)
    }
    fn insert(&self, file: isize) -> Handle {
        let mut open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        open.0 += 1;
        let number = open.0;
        open.1.insert(
            number,
            Open {
                file,
                references: 1,
            },
        );
        Handle(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }
    fn locate(&self, at: At, path: &[u8]) -> Result<Located, Failure> {
        let path_c = CString::new(path).map_err(|_| Errno::INVAL)?;
        let (directory, mut base) = match at {
            At::Root => (self.root, Vec::new()),
            At::Directory(handle) => {
                let file = self.file(handle)?;
                (
                    file,
                    if path.starts_with(b"..") || path.windows(3).any(|w| w == b"/..") {
                        self.below(handle)?
                    } else {
                        b"/x/x/x/x/x/x".to_vec()
                    },
                )
            }
        };
        for component in path.split(|b| *b == b'/') {
            match component {
                b"" | b"." => {}
                b".." => match base.iter().rposition(|b| *b == b'/') {
                    Some(at) => base.truncate(at),
                    None => {
                        let mut parts: Vec<&[u8]> = Vec::new();
                        let mount = MOUNT.get();
                        let start: &[u8] = if base.is_empty() { mount } else { &base };
                        let full = match at {
                            At::Root => [start, b"/", path].concat(),
                            At::Directory(handle) => {
                                [mount, &self.below(handle)?[..], b"/", path].concat()
                            }
                        };
                        for component in full.split(|b| *b == b'/') {
                            match component {
                                b"" | b"." => {}
                                b".." => {
                                    parts.pop();
                                }
                                other => parts.push(other),
                            }
                        }
                        return Err(Failure::Outside([b"/", &parts.join(&b'/')[..]].concat()));
                    }
                },
                other => {
                    base.push(b'/');
                    base.extend_from_slice(other);
                }
            }
        }
        Ok(Located(directory, path_c))
    }
    fn link_text(&self, file: isize) -> Result<Vec<u8>, Errno> {
        let mut buffer = vec![0u8; 4096];
        let path = crate::raw::descriptor_path(file as usize);
        // SAFETY: buffer of its length.
        let n = check(unsafe {
            syscall!(
                libc::SYS_readlinkat,
                libc::AT_FDCWD,
                path.pointer(),
                buffer.as_mut_ptr(),
                buffer.len()
            )
        })?;
        buffer.truncate(n as usize);
        Ok(buffer)
    }
    /// Path below the root, starting with a slash, or empty.
    fn below(&self, handle: Handle) -> Result<Vec<u8>, Errno> {
        let root = self.link_text(self.root)?;
        let full = self.link_text(self.file(handle)?)?;
        full.strip_prefix(&root[..])
            .map(<[u8]>::to_vec)
            .ok_or(Errno::NOENT)
    }
    pub fn open(&self, at: At, path: &[u8], flags: i32, mode: u32) -> Result<Handle, Failure> {
        self.open_within(at, path, flags, mode, 0)
    }
    pub fn open_within(
        &self,
        at: At,
        path: &[u8],
        flags: i32,
        mode: u32,
        resolve: u64,
    ) -> Result<Handle, Failure> {
        if self.root == NULL {
            return Ok(self.insert(NULL));
        }
        let Located(directory, path) = self.locate(at, path)?;
        let flags = flags | libc::O_CLOEXEC;
        let how = [flags as u64, u64::from(mode), resolve];
        // SAFETY: a NUL-terminated path, and a structure of its size. The umask is applied again,
        // which changes nothing.
        let file = check(unsafe {
            if resolve == 0 {
                syscall!(libc::SYS_openat, directory, path.as_ptr(), flags, mode)
            } else {
                syscall!(
                    libc::SYS_openat2,
                    directory,
                    path.as_ptr(),
                    how.as_ptr(),
                    size_of_val(&how)
                )
            }
        })?;
        Ok(self.insert(high(file)?))
    }
    pub fn retain(&self, handle: Handle) -> Result<(), Errno> {
        let mut open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        open.1
            .get_mut(&handle.0.get())
            .ok_or(Errno::BADF)?
            .references += 1;
        Ok(())
    }
    pub fn close(&self, handle: Handle) {
        let mut open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(entry) = open.1.get_mut(&handle.0.get()) {
            entry.references -= 1;
            if entry.references == 0 {
                if entry.file != NULL {
                    crate::raw::close(entry.file);
                }
                open.1.remove(&handle.0.get());
            }
        }
    }
    /// # Safety
    /// See the real one. The page names process and descriptor; the other side duplicates it.
    pub unsafe fn externalize(&self, handle: Handle, memory: *const ExternalDescription) {
        // SAFETY: the page is mapped.
        let page = unsafe { &*memory };
        if let Ok(file) = self.file(handle) {
            // The description must survive the exec of this very process and the end of this
            // session: keep a duplicate without close-on-exec, at a high number.
            // SAFETY: duplicates our own descriptor.
            let kept = unsafe { syscall!(libc::SYS_fcntl, file, libc::F_DUPFD, 2000) };
            crate::descriptors::put(kept as usize, crate::descriptors::RESERVED, 0);
            page.inode.store(kept as u64, Ordering::Relaxed);
            page.magic
                .store(ExternalDescription::MAGIC, Ordering::Release);
        }
    }
    /// # Safety
    /// See the real one.
    pub unsafe fn adopt(&self, memory: *const ExternalDescription) -> Result<Handle, Errno> {
        // SAFETY: the page is mapped.
        let page = unsafe { &*memory };
        if page.magic.load(Ordering::Acquire) != ExternalDescription::MAGIC {
            return Err(Errno::STALE);
        }
        let kept = page.inode.load(Ordering::Relaxed) as isize;
        // SAFETY: duplicates a descriptor inherited from the process that externalized it.
        let file = check(unsafe { syscall!(libc::SYS_fcntl, kept, libc::F_DUPFD_CLOEXEC, 1100) })?;
        Ok(self.insert(file))
    }
    fn control(&self, handle: Handle, command: i32, argument: usize) -> Result<isize, Errno> {
        // SAFETY: commands used here take integers or our own structures.
        check(unsafe { syscall!(libc::SYS_fcntl, self.file(handle)?, command, argument) })
    }
    pub fn flags(&self, handle: Handle) -> i32 {
        if self.root == NULL {
            return libc::O_RDWR;
        }
        self.control(handle, libc::F_GETFL, 0).unwrap_or(0) as i32
    }
    pub fn set_flags(&self, handle: Handle, flags: i32) -> Result<(), Errno> {
        self.control(handle, libc::F_SETFL, flags as usize)
            .map(drop)
    }
    pub fn read(
        &self,
        handle: Handle,
        buffer: &mut [u8],
        position: Option<u64>,
    ) -> Result<usize, Errno> {
        if self.root == NULL {
            return Ok(buffer.len());
        }
        let file = self.file(handle)?;
        // SAFETY: the buffer.
        check(unsafe {
            match position {
                None => syscall!(libc::SYS_read, file, buffer.as_mut_ptr(), buffer.len()),
                Some(p) => syscall!(
                    libc::SYS_pread64,
                    file,
                    buffer.as_mut_ptr(),
                    buffer.len(),
                    p
                ),
            }
        })
        .map(|n| n as usize)
    }
    pub fn write(
        &self,
        handle: Handle,
        buffer: &[u8],
        position: Option<u64>,
    ) -> Result<usize, Errno> {
        if self.root == NULL {
            return Ok(buffer.len());
        }
        let file = self.file(handle)?;
        // SAFETY: the buffer.
        check(unsafe {
            match position {
                None => syscall!(libc::SYS_write, file, buffer.as_ptr(), buffer.len()),
                Some(p) => syscall!(libc::SYS_pwrite64, file, buffer.as_ptr(), buffer.len(), p),
            }
        })
        .map(|n| n as usize)
    }
    pub fn write_as(
        &self,
        handle: Handle,
        buffer: &[u8],
        position: Option<u64>,
        append: Option<bool>,
    ) -> Result<usize, Errno> {
        let Some(append) = append else {
            return self.write(handle, buffer, position);
        };
        let part = libc::iovec {
            iov_base: buffer.as_ptr().cast_mut().cast(),
            iov_len: buffer.len(),
        };
        let flags = if append {
            libc::RWF_APPEND
        } else {
            libc::RWF_NOAPPEND
        };
        let at = position.unwrap_or(u64::MAX);
        let file = self.file(handle)?;
        // SAFETY: a vector of one, and its buffer.
        check(unsafe { syscall!(libc::SYS_pwritev2, file, &raw const part, 1, at, 0, flags) })
            .map(|n| n as usize)
    }
    pub fn read_vector<'b>(
        &self,
        handle: Handle,
        buffers: impl IntoIterator<Item = &'b mut [u8]>,
        position: Option<u64>,
    ) -> Result<usize, Errno> {
        let parts = buffers
            .into_iter()
            .map(|part| (part.as_mut_ptr(), part.len()));
        self.vector(handle, parts, position, 0, libc::SYS_preadv2)
    }
    pub fn write_vector<'b>(
        &self,
        handle: Handle,
        buffers: impl IntoIterator<Item = &'b [u8]>,
        position: Option<u64>,
        append: Option<bool>,
    ) -> Result<usize, Errno> {
        let parts = buffers
            .into_iter()
            .map(|part| (part.as_ptr().cast_mut(), part.len()));
        let flags = match append {
            None => 0,
            Some(true) => libc::RWF_APPEND,
            Some(false) => libc::RWF_NOAPPEND,
        };
        self.vector(handle, parts, position, flags, libc::SYS_pwritev2)
    }
    fn vector(
        &self,
        handle: Handle,
        parts: impl Iterator<Item = (*mut u8, usize)>,
        position: Option<u64>,
        flags: i32,
        call: i64,
    ) -> Result<usize, Errno> {
        let vector: Vec<libc::iovec> = parts
            .map(|(base, length)| libc::iovec {
                iov_base: base.cast(),
                iov_len: length,
            })
            .collect();
        if self.root == NULL {
            return Ok(vector.iter().map(|part| part.iov_len).sum());
        }
        let at = position.unwrap_or(u64::MAX);
        let file = self.file(handle)?;
        // SAFETY: a vector, and its buffers.
        check(unsafe { syscall!(call, file, vector.as_ptr(), vector.len(), at, 0, flags) })
            .map(|n| n as usize)
    }
    pub fn seek(&self, handle: Handle, offset: i64, whence: i32) -> Result<u64, Errno> {
        if self.root == NULL {
            return Ok(0);
        }
        // SAFETY: integers.
        check(unsafe { syscall!(libc::SYS_lseek, self.file(handle)?, offset, whence) })
            .map(|n| n as u64)
    }
    pub fn truncate_handle(&self, handle: Handle, size: u64) -> Result<(), Errno> {
        // SAFETY: integers.
        check(unsafe { syscall!(libc::SYS_ftruncate, self.file(handle)?, size) }).map(drop)
    }
    pub fn truncate(&self, at: At, path: &[u8], size: u64) -> Result<(), Failure> {
        let handle = self.open(at, path, libc::O_WRONLY, 0)?;
        let result = self.truncate_handle(handle, size);
        self.close(handle);
        Ok(result?)
    }
    pub fn allocate(
        &self,
        handle: Handle,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<(), Errno> {
        // SAFETY: integers.
        check(unsafe {
            syscall!(
                libc::SYS_fallocate,
                self.file(handle)?,
                mode,
                offset,
                length
            )
        })
        .map(drop)
    }
    pub unsafe fn map(&self, handle: Handle, request: &MapRequest) -> Result<usize, Errno> {
        // SAFETY: the program's own choice of addresses.
        check(unsafe {
            syscall!(
                libc::SYS_mmap,
                request.address,
                request.length,
                request.protection,
                request.flags,
                self.file(handle)?,
                request.offset
            )
        })
        .map(|address| address as usize)
    }
    /// The kernel knows all of these maps, so none of the following is ever asked for.
    pub unsafe fn unmap(&self, _address: usize, _length: usize) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }
    pub unsafe fn protect(
        &self,
        _address: usize,
        _length: usize,
        _protection: i32,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }
    pub unsafe fn sync_maps(
        &self,
        _address: usize,
        _length: usize,
        _flags: i32,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }
    pub unsafe fn move_map(&self, _request: &MoveRequest) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }
    pub fn forget_maps(&self, _address: usize, _length: usize) {}
    pub fn hand_over_maps(&self) {}
    pub fn sync(&self, handle: Handle) -> Result<(), Errno> {
        self.file(handle).map(drop)
    }
    fn stat_raw(&self, directory: isize, path: &CString, flags: i32) -> Result<Attributes, Errno> {
        // SAFETY: a plain structure that the kernel fills.
        let s = unsafe {
            let mut s: libc::statx = std::mem::zeroed();
            check(syscall!(
                libc::SYS_statx,
                directory,
                path.as_ptr(),
                flags,
                0xfff,
                &raw mut s
            ))?;
            s
        };
        let time = |t: libc::statx_timestamp| Timestamp {
            seconds: t.tv_sec,
            nanoseconds: t.tv_nsec,
        };
        Ok(Attributes {
            inode: s.stx_ino,
            mode: s.stx_mode.into(),
            links: s.stx_nlink,
            uid: s.stx_uid,
            gid: s.stx_gid,
            size: s.stx_size,
            blocks: s.stx_blocks,
            accessed: time(s.stx_atime),
            modified: time(s.stx_mtime),
            changed: time(s.stx_ctime),
            created: time(s.stx_btime),
        })
    }
    pub fn stat_handle(&self, handle: Handle) -> Result<Attributes, Errno> {
        if self.root == NULL {
            return Ok(NOTHING);
        }
        self.stat_raw(self.file(handle)?, &CString::default(), libc::AT_EMPTY_PATH)
    }
    pub fn stat(&self, at: At, path: &[u8], flags: AtFlags) -> Result<Attributes, Failure> {
        if self.root == NULL {
            return Ok(NOTHING);
        }
        let Located(directory, path) = self.locate(at, path)?;
        Ok(self.stat_raw(directory, &path, flags)?)
    }
    pub fn access(&self, at: At, path: &[u8], mode: i32, flags: AtFlags) -> Result<(), Failure> {
        if self.root == NULL {
            return Ok(());
        }
        let Located(directory, path) = self.locate(at, path)?;
        // SAFETY: a NUL-terminated path.
        Ok(
            check(unsafe { syscall!(libc::SYS_faccessat2, directory, path.as_ptr(), mode, flags) })
                .map(drop)?,
        )
    }
    pub fn change_mode(
        &self,
        at: At,
        path: &[u8],
        mode: u32,
        _flags: AtFlags,
    ) -> Result<(), Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        // SAFETY: a NUL-terminated path.
        Ok(
            check(unsafe { syscall!(libc::SYS_fchmodat, directory, path.as_ptr(), mode) })
                .map(drop)?,
        )
    }
    pub fn change_mode_handle(&self, handle: Handle, mode: u32) -> Result<(), Errno> {
        // SAFETY: integers.
        check(unsafe { syscall!(libc::SYS_fchmod, self.file(handle)?, mode) }).map(drop)
    }
    pub fn change_owner(
        &self,
        at: At,
        path: &[u8],
        uid: u32,
        gid: u32,
        flags: AtFlags,
    ) -> Result<(), Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        // SAFETY: a NUL-terminated path.
        Ok(check(unsafe {
            syscall!(
                libc::SYS_fchownat,
                directory,
                path.as_ptr(),
                uid,
                gid,
                flags
            )
        })
        .map(drop)?)
    }
    pub fn change_owner_handle(&self, handle: Handle, uid: u32, gid: u32) -> Result<(), Errno> {
        // SAFETY: integers.
        check(unsafe { syscall!(libc::SYS_fchown, self.file(handle)?, uid, gid) }).map(drop)
    }
    fn times(accessed: SetTime, modified: SetTime) -> [libc::timespec; 2] {
        [accessed, modified].map(|time| match time {
            SetTime::Omit => libc::timespec {
                tv_sec: 0,
                tv_nsec: libc::UTIME_OMIT,
            },
            SetTime::Now => libc::timespec {
                tv_sec: 0,
                tv_nsec: libc::UTIME_NOW,
            },
            SetTime::At(t) => libc::timespec {
                tv_sec: t.seconds,
                tv_nsec: t.nanoseconds.into(),
            },
        })
    }
    pub fn set_times(
        &self,
        at: At,
        path: &[u8],
        accessed: SetTime,
        modified: SetTime,
        flags: AtFlags,
    ) -> Result<(), Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        let times = Self::times(accessed, modified);
        // SAFETY: a NUL-terminated path, two times.
        Ok(check(unsafe {
            syscall!(
                libc::SYS_utimensat,
                directory,
                path.as_ptr(),
                times.as_ptr(),
                flags
            )
        })
        .map(drop)?)
    }
    pub fn set_times_handle(
        &self,
        handle: Handle,
        accessed: SetTime,
        modified: SetTime,
    ) -> Result<(), Errno> {
        let times = Self::times(accessed, modified);
        // SAFETY: two times.
        check(unsafe {
            syscall!(
                libc::SYS_utimensat,
                self.file(handle)?,
                0,
                times.as_ptr(),
                0
            )
        })
        .map(drop)
    }
    pub fn statistics(&self) -> Result<Statistics, Errno> {
        Ok(Statistics {
            pages: 1 << 20,
            pages_free: 1 << 19,
            inodes: 1 << 20,
            inodes_free: 1 << 19,
            name_max: 255,
            id: 7,
        })
    }
    pub fn make_directory(&self, at: At, path: &[u8], mode: u32) -> Result<(), Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        // SAFETY: a NUL-terminated path.
        Ok(
            check(unsafe { syscall!(libc::SYS_mkdirat, directory, path.as_ptr(), mode) })
                .map(drop)?,
        )
    }
    pub fn unlink(&self, at: At, path: &[u8], flags: AtFlags) -> Result<(), Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        // SAFETY: a NUL-terminated path.
        Ok(
            check(unsafe { syscall!(libc::SYS_unlinkat, directory, path.as_ptr(), flags) })
                .map(drop)?,
        )
    }
    pub fn rename(
        &self,
        from_at: At,
        from: &[u8],
        to_at: At,
        to: &[u8],
        flags: u32,
    ) -> Result<(), Failure> {
        let (from, to) = (self.locate(from_at, from)?, self.locate(to_at, to)?);
        // SAFETY: NUL-terminated paths.
        Ok(check(unsafe {
            syscall!(
                libc::SYS_renameat2,
                from.0,
                from.1.as_ptr(),
                to.0,
                to.1.as_ptr(),
                flags
            )
        })
        .map(drop)?)
    }
    pub fn link(
        &self,
        from_at: At,
        from: &[u8],
        to_at: At,
        to: &[u8],
        flags: AtFlags,
    ) -> Result<(), Failure> {
        let (from, to) = (self.locate(from_at, from)?, self.locate(to_at, to)?);
        // SAFETY: NUL-terminated paths.
        Ok(check(unsafe {
            syscall!(
                libc::SYS_linkat,
                from.0,
                from.1.as_ptr(),
                to.0,
                to.1.as_ptr(),
                flags
            )
        })
        .map(drop)?)
    }
    pub fn symlink(&self, target: &[u8], at: At, path: &[u8]) -> Result<(), Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        let target = CString::new(target).map_err(|_| Errno::INVAL)?;
        // SAFETY: NUL-terminated strings.
        Ok(check(unsafe {
            syscall!(
                libc::SYS_symlinkat,
                target.as_ptr(),
                directory,
                path.as_ptr()
            )
        })
        .map(drop)?)
    }
    pub fn read_link(&self, at: At, path: &[u8], buffer: &mut [u8]) -> Result<usize, Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        // SAFETY: a NUL-terminated path and the buffer.
        Ok(check(unsafe {
            syscall!(
                libc::SYS_readlinkat,
                directory,
                path.as_ptr(),
                buffer.as_mut_ptr(),
                buffer.len()
            )
        })
        .map(|n| n as usize)?)
    }
    /// An extended attribute's call on whatever a subject names: `call` of its number and of the
    /// path or descriptor. `numbers`: of a path, of one that is a link itself, of a descriptor.
    fn on_subject(
        &self,
        subject: Subject<'_>,
        numbers: [i64; 3],
        call: impl FnOnce(i64, isize) -> isize,
    ) -> Result<usize, Failure> {
        let result = match subject {
            Subject::Handle(handle) => call(numbers[2], self.file(handle)?),
            Subject::Path(at, path, flags) => {
                let Located(directory, path) = self.locate(at, path)?;
                // These calls take no directory.
                let mut full = format!("/proc/self/fd/{directory}/").into_bytes();
                full.extend_from_slice(path.to_bytes_with_nul());
                let link = usize::from(flags & libc::AT_SYMLINK_NOFOLLOW != 0);
                call(numbers[link], full.as_ptr() as isize)
            }
        };
        Ok(check(result)? as usize)
    }
    pub fn get_extended(
        &self,
        subject: Subject<'_>,
        name: &[u8],
        buffer: &mut [u8],
    ) -> Result<usize, Failure> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let numbers = [libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_fgetxattr];
        self.on_subject(subject, numbers, |number, which| {
            // SAFETY: a NUL-terminated path or a descriptor, a NUL-terminated name, the buffer.
            unsafe {
                syscall!(
                    number,
                    which,
                    name.as_ptr(),
                    buffer.as_mut_ptr(),
                    buffer.len()
                )
            }
        })
    }
    pub fn list_extended(&self, subject: Subject<'_>, buffer: &mut [u8]) -> Result<usize, Failure> {
        let numbers = [
            libc::SYS_listxattr,
            libc::SYS_llistxattr,
            libc::SYS_flistxattr,
        ];
        self.on_subject(subject, numbers, |number, which| {
            // SAFETY: a NUL-terminated path or a descriptor, and the buffer.
            unsafe { syscall!(number, which, buffer.as_mut_ptr(), buffer.len()) }
        })
    }
    pub fn set_extended(
        &self,
        subject: Subject<'_>,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<(), Failure> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let numbers = [libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr];
        let set = |number, which| {
            // SAFETY: a NUL-terminated path or a descriptor, a NUL-terminated name, the value.
            unsafe {
                syscall!(
                    number,
                    which,
                    name.as_ptr(),
                    value.as_ptr(),
                    value.len(),
                    flags
                )
            }
        };
        self.on_subject(subject, numbers, set).map(drop)
    }
    pub fn remove_extended(&self, subject: Subject<'_>, name: &[u8]) -> Result<(), Failure> {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let numbers = [
            libc::SYS_removexattr,
            libc::SYS_lremovexattr,
            libc::SYS_fremovexattr,
        ];
        let remove = |number, which| {
            // SAFETY: a NUL-terminated path or a descriptor, and a NUL-terminated name.
            unsafe { syscall!(number, which, name.as_ptr()) }
        };
        self.on_subject(subject, numbers, remove).map(drop)
    }
    pub fn make_node(&self, at: At, path: &[u8], mode: u32, device: u64) -> Result<(), Failure> {
        let Located(directory, path) = self.locate(at, path)?;
        // SAFETY: a NUL-terminated path.
        Ok(
            check(unsafe { syscall!(libc::SYS_mknodat, directory, path.as_ptr(), mode, device) })
                .map(drop)?,
        )
    }
    pub fn read_directory(&self, handle: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the buffer.
        check(unsafe {
            syscall!(
                libc::SYS_getdents64,
                self.file(handle)?,
                buffer.as_mut_ptr(),
                buffer.len()
            )
        })
        .map(|n| n as usize)
    }
    pub fn path_of(&self, handle: Handle) -> Result<Vec<u8>, Errno> {
        Ok([MOUNT.get(), &self.below(handle)?[..]].concat())
    }
    fn flock_of(request: LockRequest) -> libc::flock {
        // SAFETY: plain integers.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = match request.kind {
            LockKind::Shared => libc::F_RDLCK,
            LockKind::Exclusive => libc::F_WRLCK,
            LockKind::Unlock => libc::F_UNLCK,
        } as i16;
        lock.l_start = request.start as i64;
        lock.l_len = if request.end == u64::MAX {
            0
        } else {
            (request.end - request.start) as i64
        };
        lock
    }
    pub fn lock(&self, handle: Handle, request: LockRequest) -> Result<(), Errno> {
        if request.owner == LockOwner::Flock {
            let operation = match request.kind {
                LockKind::Shared => libc::LOCK_SH,
                LockKind::Exclusive => libc::LOCK_EX,
                LockKind::Unlock => libc::LOCK_UN,
            } | libc::LOCK_NB;
            // SAFETY: integers.
            return check(unsafe { syscall!(libc::SYS_flock, self.file(handle)?, operation) })
                .map(drop);
        }
        let lock = Self::flock_of(request);
        let command = if request.owner == LockOwner::Process {
            libc::F_SETLK
        } else {
            libc::F_OFD_SETLK
        };
        match self.control(handle, command, &raw const lock as usize) {
            Err(Errno::ACCESS) => Err(Errno::AGAIN),
            other => other.map(drop),
        }
    }
    pub fn conflicting_lock(
        &self,
        handle: Handle,
        request: LockRequest,
    ) -> Result<Option<(LockRequest, i32)>, Errno> {
        let mut lock = Self::flock_of(request);
        let command = if request.owner == LockOwner::Process {
            libc::F_GETLK
        } else {
            libc::F_OFD_GETLK
        };
        self.control(handle, command, &raw mut lock as usize)?;
        let kind = match i32::from(lock.l_type) {
            libc::F_UNLCK => return Ok(None),
            libc::F_RDLCK => LockKind::Shared,
            _ => LockKind::Exclusive,
        };
        let end = if lock.l_len == 0 {
            u64::MAX
        } else {
            (lock.l_start + lock.l_len) as u64
        };
        Ok(Some((
            LockRequest {
                kind,
                start: lock.l_start as u64,
                end,
                owner: request.owner,
            },
            lock.l_pid,
        )))
    }
}

const _: () = assert!(error(1) == -1);
