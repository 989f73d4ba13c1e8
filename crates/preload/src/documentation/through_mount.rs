//! What becomes of calls through a mount, where that is not what the kernel says of any file system's files.
//!
//! `arck-cli`'s test `mounting::calls` has what differs from tmpfs, and that it is told here.

/// Calls, and what is said of them.
pub const THROUGH_MOUNT: &[(&str, &str)] = &[
    (
        "open openat creat",
        "works; O_TMPFILE is EOPNOTSUPP, a device is EACCES (`nodev`)",
    ),
    (
        "openat2",
        "works; O_TMPFILE is EOPNOTSUPP, RESOLVE_CACHED is EAGAIN",
    ),
    ("statx", "works; time of birth is not told"),
    (
        "ioctl",
        "as on tmpfs; of flags of inodes there are none, EOPNOTSUPP for any",
    ),
    ("fallocate", "works, FALLOC_FL_ZERO_RANGE (zeroes) too"),
    (
        "fcntl",
        "works; record locks are the pool's; leases and F_NOTIFY are those of the mount alone; seals are EINVAL",
    ),
    (
        "flock",
        "works among programs of the mount, and does not meet locks of those under `arck run`",
    ),
    ("renameat2", "works; RENAME_WHITEOUT is EINVAL"),
    (
        "setxattr lsetxattr fsetxattr setxattrat",
        "works for `user.*`; EOPNOTSUPP for `trusted.*` and `security.*`",
    ),
    (
        "inotify_add_watch",
        "works; changes by the mount's programs alone are told",
    ),
    (
        "mmap",
        "works; when others see what is written is in [mount.md](mount.md#what-is-coherent-and-what-is-not)",
    ),
    (
        "io_uring_enter",
        "works; a request without an offset (-1) does not move that of the description",
    ),
    (
        "io_submit",
        "works; of what has become longer by others it does not read what is new before the size was asked for",
    ),
    ("bind connect", "works; meets programs of the mount alone"),
    (
        "execve execveat",
        "works; set-user-ID and set-group-ID give no rights (`nosuid`)",
    ),
    (
        "mknod mknodat",
        "works; named pipes meet programs of the mount alone",
    ),
];
