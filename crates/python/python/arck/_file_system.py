"""File systems: ``connect`` opens a session on a pool, ``FileSystem`` has what is done with it."""

from __future__ import annotations

import os
import stat
import typing
import weakref

from . import _arck, _open_things
from ._file import discard, open_file
from ._log import Log
from ._path import Path
from ._spool import Spool
from ._store import Store


class StatvfsResult(typing.NamedTuple):
    """What ``FileSystem.statvfs`` gives: the fields of ``os.statvfs_result``."""

    f_bsize: int
    f_frsize: int
    f_blocks: int
    f_bfree: int
    f_bavail: int
    f_files: int
    f_ffree: int
    f_favail: int
    f_flag: int
    f_namemax: int
    f_fsid: int


class DirEntry:
    """What ``FileSystem.scandir`` gives of each name: as ``os.DirEntry``."""

    __slots__ = ("_file_system", "_inode", "_kind", "name", "path")

    def __init__(self, file_system: FileSystem, directory: str, listed: tuple[str, int, int]) -> None:
        self._file_system = file_system
        #: The name in its directory.
        self.name, self._kind, self._inode = listed
        #: The name after the path that was given to ``scandir``.
        self.path = os.path.join(directory, self.name)

    def inode(self) -> int:
        """The inode number."""
        return self._inode

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory, or a link to one."""
        return self._is(stat.S_IFDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a file, or a link to one."""
        return self._is(stat.S_IFREG, follow_symlinks)

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self._kind << 12 == stat.S_IFLNK

    def _is(self, kind: int, follow: bool) -> bool:
        if follow and self.is_symlink():
            return stat.S_IFMT(self._file_system._mode(self.path, True)) == kind
        return self._kind << 12 == kind

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """As ``os.stat`` of its path."""
        return self._file_system.stat(self.path, follow_symlinks=follow_symlinks)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<arck.DirEntry {self.name!r}>"


class _Scandir:
    """An iterator of dentries that ``with`` may be said to, as that of ``os.scandir``."""

    def __init__(self, entries: list[DirEntry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> _Scandir:
        return self

    def __next__(self) -> DirEntry:
        return next(self._entries)

    def __enter__(self) -> _Scandir:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self._entries = iter(())


class FileSystem(_arck.FileSystem):
    """A session on a pool: what ``arck.connect`` gives.

    Functions have the names, arguments and errors of those in ``os``. Those that are not here are in ``arck.Path``.

    >>> fs.makedirs("projects/arck", exist_ok=True)
    >>> fs.write_bytes("projects/arck/README", b"read me")
    7
    >>> fs.stat("projects/arck/README").st_size, fs.listdir("projects")
    (7, ['arck'])
    >>> fs.remove("nothing")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'nothing'
    """

    def __new__(cls, pool: typing.Any, group: bytes = b"", wait: float = 0.0, fs: str = "arckfs") -> FileSystem:
        """Opens a session: see ``connect``."""
        self = super().__new__(cls, pool, group, wait, fs)
        self._files = weakref.WeakSet()
        self._of_parent = weakref.WeakSet()
        self._maps = weakref.WeakSet()
        self._queues = weakref.WeakSet()
        self._spools = weakref.WeakSet()
        self._path_class = type("Path", (Path,), {"__slots__": (), "__module__": "arck", "file_system": self})
        _open_things.note(self)
        return self

    _files: weakref.WeakSet[typing.Any]
    #: Files that a parent process has opened.
    _of_parent: weakref.WeakSet[typing.Any]
    _maps: weakref.WeakSet[typing.Any]
    _queues: weakref.WeakSet[typing.Any]
    _spools: weakref.WeakSet[Spool]
    _path_class: type[Path]

    # ---- the session

    def close(self) -> None:
        """Closes the maps, queues and files that are open, writing buffers, and ends the session.

        What has not begun in queues is cancelled.

        All that was done is verified and folded when this returns; if the controller is gone, the next one does that.
        What is used afterwards is a ``ValueError``. While there are views of a map (``memoryview``) it is a ``BufferError``, and
        nothing is closed.
        """
        maps = list(self._maps)
        if any(one._views for one in maps):
            raise BufferError("cannot close: there are views of a map (memoryview)")
        for one in maps:
            one.close()
        self._close_rest()

    def _close_at_exit(self) -> None:
        """As ``close``; maps that have views stay, until the process has ended."""
        for one in list(self._maps):
            if not one._views:
                one.close()
        self._close_rest()

    def _close_rest(self) -> None:
        for file in list(self._of_parent):
            discard(file)
        for queue in list(self._queues):
            queue.close(cancel=True)
        for spool in list(self._spools):
            spool.close()
        failed: Exception | None = None
        for file in list(self._files):
            try:
                file.close()
            except (OSError, ValueError) as error:
                failed = failed or error
        self._files.clear()
        self._end()
        if failed is not None:
            raise failed

    def _forget_files(self) -> None:
        self._of_parent |= self._files
        self._files = weakref.WeakSet()
        self._maps = weakref.WeakSet()
        self._queues = weakref.WeakSet()
        self._spools = weakref.WeakSet()

    def __enter__(self) -> FileSystem:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<arck.FileSystem {os.fspath(self.pool)!r}{' [closed]' * self.closed}>"

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("cannot pickle an arck.FileSystem: connect in the other process")

    # ---- files and paths

    def open(
        self,
        path: typing.Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> typing.IO[typing.Any]:
        """Opens a file, as the built-in ``open`` does; the arguments mean the same, and the same classes of ``io`` come of it.

        There is no descriptor: ``fileno()`` is an ``io.UnsupportedOperation``.

        >>> with fs.open("table.csv", "w", newline="") as file:
        ...     csv.writer(file).writerow(["a", 1])
        5
        >>> with fs.open("table.csv", "rb") as file:
        ...     file.read()
        b'a,1\\r\\n'
        """
        file = open_file(self, path, mode, buffering, encoding, errors, newline)
        self._files.add(file)
        return file

    def path(self, *parts: typing.Any) -> Path:
        """A path of this file system.

        >>> fs.path("a", "b").parent
        arck.Path('a')
        """
        return self._path_class(*parts)

    def __truediv__(self, part: typing.Any) -> Path:
        """``fs / "a"`` is ``fs.path("a")``."""
        return self._path_class(part)

    def keyvalue(self, directory: typing.Any, *, make: bool = True, mode: int = 0o644) -> Store:
        """The small files of a directory as a mapping of ``bytes`` to ``bytes``: see ``Store``. It has a session of its own."""
        if self.closed:
            raise ValueError("I/O operation on closed file system.")
        return Store(self.pool, os.fspath(directory), make=make, mode=mode)

    def log(
        self,
        directory: typing.Any,
        *,
        make: bool = True,
        section: int = 64 << 20,
        mode: int = 0o644,
        group: str | bytes | None = None,
    ) -> Log:
        """A directory as a stream that is only appended to: see ``Log``. It has a session of its own."""
        if self.closed:
            raise ValueError("I/O operation on closed file system.")
        return Log(self.pool, os.fspath(directory), make=make, section=section, mode=mode, group=group)

    def spool(self, path: typing.Any, size: int = 16 << 20) -> Spool:
        """A file in which queued writes are durable until they are done: see ``Spool``.

        What was left there is done before this returns: ``replayed`` says what. If there is no such file, or it has no bytes, it is made,
        mode 0600, for ``size`` bytes that are queued at once (64 KiB to 4 GiB). ``OSError`` with ``EBUSY``: it is open already; with
        ``EBADMSG``: it is no spool; ``PermissionError``: others can write it, and could have anything done in your name.
        """
        spool = Spool(self, path, size)
        self._spools.add(spool)
        return spool

    # ---- status

    def stat(self, path: typing.Any, *, follow_symlinks: bool = True) -> os.stat_result:
        """As ``os.stat``."""
        return os.stat_result(*self._status(path, follow_symlinks))

    def lstat(self, path: typing.Any) -> os.stat_result:
        """As ``os.lstat``."""
        return os.stat_result(*self._status(path, False))

    def exists(self, path: typing.Any, *, follow_symlinks: bool = True) -> bool:
        """Whether a path leads to something."""
        return self._mode(path, follow_symlinks) != 0

    def utime(
        self,
        path: typing.Any,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the times of access and change, as ``os.utime``; now, if none are given."""
        if times is not None:
            if ns is not None:
                raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
            accessed, modified = (round(time * 1_000_000_000) for time in times)
            ns = accessed, modified
        self._set_times(path, ns, follow_symlinks)

    def statvfs(self, path: typing.Any = "/") -> StatvfsResult:
        """Room and inodes of the pool, as ``os.statvfs``; of all paths the same."""
        self._status(path, True)
        pages, pages_free, inodes, inodes_free, number = self._statistics()
        free = (pages_free, pages_free, inodes, inodes_free, inodes_free)
        return StatvfsResult(4096, 4096, pages, *free, 0, 255, number)

    # ---- directories and names

    def listdir(self, path: typing.Any = "/") -> list[str]:
        """Names in a directory, in no order, as ``os.listdir``."""
        return [name for name, _, _ in self._list(path)]

    def scandir(self, path: typing.Any = "/") -> _Scandir:
        """What is in a directory, as ``os.scandir``, as it is now.

        >>> fs.mkdir("shelf")
        >>> with fs.scandir("/") as entries:
        ...     any(entry.name == "shelf" and entry.is_dir() for entry in entries)
        True
        """
        directory = os.fsdecode(path)
        return _Scandir([DirEntry(self, directory, listed) for listed in self._list(path)])

    def makedirs(self, path: typing.Any, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Makes a directory and those above it that are not there, as ``os.makedirs``."""
        self.path(path).mkdir(mode, parents=True, exist_ok=exist_ok)

    def replace(self, source: typing.Any, target: typing.Any) -> None:
        """Renames, replacing a file that is there, as ``os.replace``."""
        self.rename(source, target)

    def unlink(self, path: typing.Any) -> None:
        """Removes a file, as ``os.unlink``."""
        self.remove(path)


def connect(
    pool: typing.Any = None, *, group: str | bytes | None = None, wait: float | None = None, fs: str | None = None
) -> FileSystem:
    """Opens a session on a pool, which somebody serves.

    ``pool``: its directory; ``$ARCK_POOL`` if none is given, which ``arck run`` sets. ``group``: the trust group to be one of,
    whose programs have one session together and trust each other; none, if nothing is said. ``wait``: for how many seconds
    somebody is waited for who serves the pool; not at all, if nothing is said. ``fs``: which file system, ``"arckfs"`` or
    ``"fpfs"``, which is for deep trees of many directories; ``$ARCK_FS``, else ArckFS, if nothing is said. A group has one.

    >>> with arck.connect(pool) as fs:
    ...     fs.closed
    False
    >>> arck.connect("/nowhere")
    Traceback (most recent call last):
    FileNotFoundError: ...
    """
    if pool is None:
        pool = os.environ.get("ARCK_POOL")
        if not pool:
            raise ValueError("which pool? Give its directory, or set $ARCK_POOL (arck run does)")
    name = b"" if group is None else os.fsencode(group)
    which = fs if fs is not None else os.environ.get("ARCK_FS") or "arckfs"
    return FileSystem(pool, name, 0.0 if wait is None else wait, which)
