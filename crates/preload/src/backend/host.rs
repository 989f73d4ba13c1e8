//! A host directory in place of a pool, for testing the interception alone.
//!
//! Not a file system: every operation is the kernel's, on a descriptor kept at a high number.
//! Handles count up and are never reused. With the directory `null` there are no files at all:
//! every open succeeds, every transfer moves all its bytes, and no system call is made, which
//! shows what the interception itself does.

mod attributes;
mod data;
mod extended;
mod locks;
mod names;

use super::forks::Received;
use super::*;
use crate::raw::{error, failed, syscall};
use crate::settings::HOST_DIRECTORY;
use arckfs::{Closed, ConnectError};
use std::collections::HashMap;
use std::ffi::CString;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

struct Open {
    file: isize,
    references: u32,
    /// What stands for it where it was handed on.
    handed_on: Option<OwnedFd>,
}

/// Nothing is reserved: see [`arckfs::give_up_reservations`].
pub fn give_up_reservations() {}

/// Nothing is a session's: see [`arckfs::side_of`].
pub fn side_of(_address: usize) -> (bool, usize) {
    (false, usize::MAX)
}

/// What the name of that begins with.
const PREFIX: &str = "arck-description:host:";

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

/// The same for calls that tell nothing but whether they failed.
fn done(result: isize) -> Result<(), Failure> {
    check(result).map(drop).map_err(Failure::from)
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
    pub fn connect_waiting(options: &ConnectOptions) -> Result<FileSystem, ConnectError> {
        FileSystem::connect(options)
    }
    pub fn close_in_child(self) {
        let open = self.open.into_inner().unwrap_or_else(|e| e.into_inner());
        for open in open.1.into_values() {
            crate::raw::close(open.file);
            // Closed by number already.
            std::mem::forget(open.handed_on);
        }
    }
    pub fn is_of_process(&self) -> bool {
        true
    }
    pub fn end(&self) {}
    pub fn has_inside(&self) -> bool {
        false
    }
    pub fn descriptors(&self) -> [i32; 1] {
        [self.root as i32]
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
                handed_on: None,
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
        drop(self.release(handle));
    }
    pub fn release(&self, handle: Handle) -> Option<Closed> {
        let mut open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        let entry = open.1.get_mut(&handle.0.get())?;
        entry.references -= 1;
        if entry.references > 0 {
            return None;
        }
        if entry.file != NULL {
            crate::raw::close(entry.file);
        }
        let handed_on = open.1.remove(&handle.0.get())?.handed_on;
        Some(Closed { handed_on })
    }
    /// What stands for it names a descriptor, of which the other side has a copy.
    pub fn hand_on(&self, handle: Handle) -> Result<i32, Errno> {
        let file = self.file(handle)?;
        let mut open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        let entry = open.1.get_mut(&handle.0.get()).ok_or(Errno::BADF)?;
        if let Some(known) = &entry.handed_on {
            return Ok(known.as_raw_fd());
        }
        // SAFETY: duplicates our own descriptor, and makes one for it; names are NUL-terminated.
        unsafe {
            // The description must survive the exec of this very process and the end of this
            // session: a duplicate without close-on-exec, at a high number.
            let kept = check(syscall!(libc::SYS_fcntl, file, libc::F_DUPFD, 2000))?;
            crate::descriptors::put(kept as usize, crate::descriptors::RESERVED, 0);
            let name = CString::new(format!("{PREFIX}{kept}")).unwrap_or_default();
            let made = check(syscall!(libc::SYS_memfd_create, name.as_ptr(), 0))?;
            let path = crate::raw::descriptor_path(made as usize);
            let (at, flags) = (libc::AT_FDCWD, libc::O_ACCMODE | libc::O_CLOEXEC);
            let closed = check(syscall!(libc::SYS_openat, at, path.pointer(), flags));
            syscall!(libc::SYS_fchmod, made, 0);
            crate::raw::close(made);
            let closed = high(closed?)? as i32;
            entry.handed_on = Some(OwnedFd::from_raw_fd(closed));
            Ok(closed)
        }
    }
    pub fn take_over(
        &self,
        descriptor: OwnedFd,
        _was_sent: bool,
        _has_lock: bool,
    ) -> Result<(Handle, Option<Received>), Errno> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
        let kept: isize = link
            .ok()
            .and_then(|link| {
                let name = link.to_str()?.strip_prefix("/memfd:")?;
                let name = name.strip_prefix(PREFIX)?.strip_suffix(" (deleted)")?;
                name.parse().ok()
            })
            .ok_or(Errno::BADF)?;
        // SAFETY: duplicates a descriptor inherited from the process that handed it on.
        let file = check(unsafe { syscall!(libc::SYS_fcntl, kept, libc::F_DUPFD_CLOEXEC, 1100) })?;
        let handle = self.insert(file);
        let mut open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(entry) = open.1.get_mut(&handle.0.get()) {
            entry.handed_on = Some(descriptor);
        }
        Ok((handle, None))
    }
    pub fn handed_on(&self, handle: Handle) -> Option<i32> {
        let open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        let handed_on = open.1.get(&handle.0.get())?.handed_on.as_ref()?;
        Some(handed_on.as_raw_fd())
    }
    fn control(&self, handle: Handle, command: i32, argument: usize) -> Result<isize, Errno> {
        // SAFETY: commands used here take integers or our own structures.
        check(unsafe { syscall!(libc::SYS_fcntl, self.file(handle)?, command, argument) })
    }
    pub fn flags(&self, handle: Handle) -> Result<i32, Errno> {
        if self.root == NULL {
            return Ok(libc::O_RDWR);
        }
        self.control(handle, libc::F_GETFL, 0)
            .map(|flags| flags as i32)
    }
    pub fn set_flags(&self, handle: Handle, flags: i32) -> Result<(), Errno> {
        self.control(handle, libc::F_SETFL, flags as usize)
            .map(drop)
    }
}

const _: () = assert!(error(1) == -1);
