//! Attributes: stat, access, modes, owners, times; what the file system has left.

use super::*;

impl FileSystem {
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
        done(unsafe { syscall!(libc::SYS_faccessat2, directory, path.as_ptr(), mode, flags) })
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
        done(unsafe { syscall!(libc::SYS_fchmodat, directory, path.as_ptr(), mode) })
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
        done(unsafe {
            syscall!(
                libc::SYS_fchownat,
                directory,
                path.as_ptr(),
                uid,
                gid,
                flags
            )
        })
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
        done(unsafe {
            syscall!(
                libc::SYS_utimensat,
                directory,
                path.as_ptr(),
                times.as_ptr(),
                flags
            )
        })
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
        Ok(self.statistics_of_fold())
    }

    pub fn statistics_of_fold(&self) -> Statistics {
        Statistics {
            pages: 1 << 20,
            pages_free: 1 << 19,
            inodes: 1 << 20,
            inodes_free: 1 << 19,
            name_max: 255,
            id: 7,
        }
    }
}
