# What system calls say of files in the directory that is the argument, a line each: the call, what is asked for, and what
# came of it. By number where Python has no function, so that nothing stands between.
import ctypes
import errno
import fcntl
import mmap
import os
import signal
import socket
import stat
import struct
import sys

place = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
# F_NOTIFY sends it.
signal.signal(signal.SIGIO, signal.SIG_IGN)


def name(number):
    return {errno.ENOTSUP: "EOPNOTSUPP"}.get(number, errno.errorcode.get(number, str(number)))


def say(call, what, result):
    print(f"{call} {what}: {result}")


def done(function, *arguments):
    try:
        function(*arguments)
        return "done"
    except OSError as error:
        return name(error.errno)


def call(number, *arguments):
    ctypes.set_errno(0)
    return "done" if libc.syscall(number, *arguments) >= 0 else name(ctypes.get_errno())


def at(file):
    return os.path.join(place, file)


READ_WRITE_NEW = os.O_RDWR | os.O_CREAT | os.O_TRUNC
file = os.open(at("file"), READ_WRITE_NEW, 0o600)
os.write(file, b"x" * 70000)
other = os.open(at("other"), READ_WRITE_NEW, 0o600)
folder = os.open(place, os.O_RDONLY)

say("openat", "O_TMPFILE", done(os.open, place, os.O_TMPFILE | os.O_RDWR, 0o600))
say("openat", "O_DIRECT", done(os.open, at("file"), os.O_RDWR | os.O_DIRECT))
say("openat", "O_PATH", done(os.open, at("file"), os.O_PATH))
told = ctypes.create_string_buffer(256)
libc.statx(file, b"", 0x1000, 0x800, told)
say("statx", "time of birth", "told" if struct.unpack_from("I", told.raw)[0] & 0x800 else "not told")
for what, number in (("FS_IOC_GETFLAGS", 0x80086601), ("FS_IOC_FSGETXATTR", 0x801C581F), ("FS_IOC_GETVERSION", 0x80087601)):
    say("ioctl", what, done(fcntl.ioctl, file, number, bytearray(64)))
for what, flags in (("a flag", 0x40), ("none", 0)):
    say("ioctl", "FS_IOC_SETFLAGS of " + what, done(fcntl.ioctl, other, 0x40086602, struct.pack("Q", flags)))
say("ioctl", "FICLONE", done(fcntl.ioctl, other, 0x40049409, file))
say("copy_file_range", "a part", done(os.copy_file_range, file, other, 1000, 0, 0))
modes = ((0, "room"), (1, "room behind the end"), (3, "a hole"), (0x10, "zeroes"), (8, "collapse"), (0x20, "insert"), (0x40, "unshare"))
for mode, what in modes:
    say("fallocate", what, call(285, file, mode, ctypes.c_long(4096), ctypes.c_long(4096)))
say("lseek", "SEEK_HOLE", done(os.lseek, file, 0, os.SEEK_HOLE))
say("lseek", "SEEK_DATA", done(os.lseek, file, 0, os.SEEK_DATA))
lease = os.open(at("lease"), READ_WRITE_NEW, 0o600)
for what, number, argument in (
    ("F_SETLEASE", 1024, fcntl.F_WRLCK),
    ("F_GETLEASE", 1025, 0),
    ("F_NOTIFY", 1026, 4),
    ("F_ADD_SEALS", 1033, 1),
    ("F_GET_SEALS", 1034, 0),
    ("F_SET_RW_HINT", 1036, struct.pack("Q", 2)),
    ("F_GETPIPE_SZ", 1032, 0),
):
    of = {"F_NOTIFY": folder}.get(what, lease)
    say("fcntl", what, done(fcntl.fcntl, of, number, argument))
say("flock", "alone", done(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB))
say("fcntl", "F_SETLK", done(fcntl.lockf, file, fcntl.LOCK_EX | fcntl.LOCK_NB))
say("splice", "into a pipe", done(os.splice, file, os.pipe()[1], 100, 0))
say("sendfile", "to a file", done(os.sendfile, other, file, 0, 100))
for from_, to, flags, what in (
    ("a", "b", 1, "RENAME_NOREPLACE"),
    ("a", "b", 2, "RENAME_EXCHANGE"),
    ("a", "b", 4, "RENAME_WHITEOUT"),
):
    for made in (from_, to):
        open(at(made), "w").close()
    say("renameat2", what, call(316, -100, at(from_).encode(), -100, at(to).encode(), flags))
say("linkat", "AT_EMPTY_PATH", call(265, file, b"", -100, at("link").encode(), 0x1000))
for kind, what in ((stat.S_IFIFO, "a named pipe"), (stat.S_IFSOCK, "a socket"), (stat.S_IFCHR, "a device")):
    say("mknodat", what, done(os.mknod, at(what), kind | 0o600, os.makedev(1, 3)))
say("openat", "a device", done(os.open, at("a device"), os.O_RDWR))
for attribute in ("user.a", "trusted.a", "security.a"):
    say("setxattr", attribute, done(os.setxattr, at("file"), attribute, b"value"))
for flag, what in ((1, "RWF_HIPRI"), (2, "RWF_DSYNC"), (8, "RWF_NOWAIT"), (0x10, "RWF_APPEND"), (0x40, "RWF_ATOMIC")):
    say("pwritev2", what, done(os.pwritev, file, [b"zz"], 0, flag))
say("sync_file_range", "a part", call(277, file, ctypes.c_long(0), ctypes.c_long(100), 7))
say("readahead", "a part", call(187, file, ctypes.c_long(0), 100))
say("fadvise64", "of all", done(os.posix_fadvise, file, 0, 0, 3))
say("syncfs", "all", call(306, file))
say("fsync", "a file", done(os.fsync, file))
say("fsync", "a directory", done(os.fsync, folder))


def mapped(flags):
    with mmap.mmap(file, 4096, flags) as memory:
        memory[0] = 1
        memory.flush()


for flags, what in ((1, "MAP_SHARED"), (2, "MAP_PRIVATE"), (3, "MAP_SHARED_VALIDATE"), (0x80003, "MAP_SYNC")):
    say("mmap", what, done(mapped, flags))
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + b"\0" * 128)
say("name_to_handle_at", "a file", call(303, -100, at("file").encode(), handle, ctypes.byref(ctypes.c_int()), 0))
watch = libc.inotify_init1(0)
say("inotify_add_watch", "a directory", call(254, watch, place.encode(), 0xFFF))
say("cachestat", "a file", call(451, file, ctypes.create_string_buffer(16), ctypes.create_string_buffer(40), 0))
say("bind", "a name", done(socket.socket(socket.AF_UNIX).bind, at("bound")))
say("io_setup", "a context", call(206, 8, ctypes.byref(ctypes.c_ulong())))
say("io_uring_setup", "a ring", call(425, 8, ctypes.create_string_buffer(120)))
say("utimensat", "of a file", done(os.utime, at("file"), (1, 2)))
say("statfs", "of a file", done(os.statvfs, at("file")))
say("fchownat", "of a file", done(os.chown, at("file"), 5, 5))
say("chdir", "a directory", done(os.chdir, place))
