"""Open files, for Python's ``io``: ``File`` is the raw one, ``open_file`` puts buffers and text around it."""

from __future__ import annotations

import functools
import io
import os
import typing
import weakref

from ._map import Map
from ._queue import Queue, Queues

if typing.TYPE_CHECKING:
    from . import _arck
    from ._spool import Spool

#: Bytes of a buffer, if nothing else is said.
BUFFER_SIZE = 64 << 10

_BASIC = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}


class Mode(typing.NamedTuple):
    """What a mode of ``open`` means."""

    #: ``O_*``.
    flags: int
    binary: bool
    #: As the raw file tells it.
    raw: str
    #: What is put around the raw file.
    buffered: type[io.BufferedReader] | type[io.BufferedWriter] | type[io.BufferedRandom]


@functools.lru_cache(maxsize=64)
def mode_of(mode: str) -> Mode:
    """What a mode of ``open`` means; the same is asked for again and again.

    >>> mode_of("r+").flags == os.O_RDWR, mode_of("wb").raw
    (True, 'wb')
    >>> mode_of("rw")
    Traceback (most recent call last):
    ValueError: must have exactly one of create/read/write/append mode
    """
    letters = set(mode)
    if letters - set("axrwb+t") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    if letters >= {"b", "t"}:
        raise ValueError("can't have text and binary mode at once")
    basic = letters & set("axrw")
    if len(basic) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    letter = basic.pop()
    flags = _BASIC[letter]
    if "+" in letters:
        flags = flags & ~os.O_ACCMODE | os.O_RDWR
        return Mode(flags, "b" in letters, f"{letter}b+", io.BufferedRandom)
    return Mode(flags, "b" in letters, f"{letter}b", io.BufferedReader if letter == "r" else io.BufferedWriter)


class File(io.RawIOBase):
    """A file without a buffer: what ``fs.open(path, "rb", buffering=0)`` gives.

    Each call is one of Arck's. What ``write`` has written is durable as far as the pool is, and others see it.

    >>> with fs.open("raw", "w+b", buffering=0) as file:
    ...     file.write(b"abc"), file.pread(2, 1), file.pwrite(b"X", 0), file.tell()
    (3, b'bc', 1, 3)
    """

    _handle: _arck.OpenFile | None = None
    _discards = False

    def __init__(self, file_system: _arck.FileSystem, path: typing.Any, mode: str = "r") -> None:
        """Opens a file; the mode is that of ``open``, and always binary."""
        flags, _, raw, _ = mode_of(mode)
        self._access = flags & os.O_ACCMODE
        self._handle = file_system._open(path, flags, 0o666)
        #: Those of the file system, which it closes; so are queues.
        self._maps: weakref.WeakSet[Map] = getattr(file_system, "_maps", weakref.WeakSet())
        self._queues: weakref.WeakSet[Queue] = getattr(file_system, "_queues", weakref.WeakSet())
        self.name = path
        self.mode = raw

    def _open_handle(self) -> _arck.OpenFile:
        if self._handle is None:
            raise ValueError("I/O operation on uninitialized object")
        return self._handle

    def _handle_to_read(self) -> _arck.OpenFile:
        if self._access == os.O_WRONLY:
            self._check_open()
            raise io.UnsupportedOperation("File not open for reading")
        return self._open_handle()

    def _handle_to_write(self) -> _arck.OpenFile:
        if self._access == os.O_RDONLY:
            self._check_open()
            raise io.UnsupportedOperation("File not open for writing")
        return self._open_handle()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def readable(self) -> bool:
        """Whether it was opened for reading."""
        self._check_open()
        return self._access != os.O_WRONLY

    def writable(self) -> bool:
        """Whether it was opened for writing."""
        self._check_open()
        return self._access != os.O_RDONLY

    def seekable(self) -> bool:
        """Always true."""
        self._check_open()
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Reads up to ``size`` bytes; all that there is if it is negative or ``None``."""
        if size is None or size < 0:
            return self.readall()
        return self._handle_to_read().read(size)

    def readall(self) -> bytes:
        """Reads from the position to the end."""
        return self._handle_to_read().readall()

    def readinto(self, buffer: typing.Any) -> int:
        """Fills a writable buffer from the position on; gives how many bytes."""
        return self._handle_to_read().readinto(buffer)

    def write(self, data: typing.Any) -> int:
        """Writes bytes at the position; gives how many."""
        if self._discards:
            return memoryview(data).nbytes
        return self._handle_to_write().write(data)

    def pread(self, size: int, offset: int) -> bytes:
        """Reads up to ``size`` bytes at an offset, as ``os.pread``; the position stays."""
        return self._handle_to_read().pread(size, offset)

    def preadinto(self, buffer: typing.Any, offset: int) -> int:
        """Fills a writable buffer from an offset on; gives how many bytes."""
        return self._handle_to_read().preadinto(buffer, offset)

    def pwrite(self, data: typing.Any, offset: int) -> int:
        """Writes bytes at an offset, as ``os.pwrite``; the position stays."""
        return self._handle_to_write().pwrite(data, offset)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the position; gives it."""
        return self._open_handle().seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self._open_handle().seek(0, io.SEEK_CUR)

    def truncate(self, size: int | None = None) -> int:
        """Cuts or lengthens the file, to the position if nothing else is said; gives the size."""
        handle = self._handle_to_write()
        length = self.tell() if size is None else size
        handle.truncate(length)
        return length

    def map(self, length: int = 0, access: int | None = None, offset: int = 0) -> Map:
        """A part of the file in the program's memory: see ``Map``.

        >>> with fs.open("raw", "w+b", buffering=0) as file:
        ...     file.write(b"abc")
        ...     with file.map(access=arck.ACCESS_READ) as map:
        ...         map[:2], bytes(map)
        3
        (b'ab', b'abc')
        """
        return Map(self, length, access, offset)

    def queue(
        self,
        queues: Queues,
        *,
        depth: int = 128,
        weight: int = 100,
        spool: Spool | None = None,
        path: typing.Any = None,
    ) -> Queue:
        """A queue of requests on the file: see ``Queue``. With a spool they are durable when they are queued: see ``Spool``."""
        return Queue(self, queues, depth=depth, weight=weight, spool=spool, path=path)

    def sync(self) -> None:
        """What has been written is durable when this returns, as by ``os.fsync``."""
        self._open_handle().sync()

    def stat(self) -> os.stat_result:
        """As ``os.fstat``."""
        return os.stat_result(*self._open_handle().status())

    def close(self) -> None:
        """Closes the file. Does nothing the second time."""
        if not self.closed:
            try:
                super().close()
            finally:
                if self._handle is not None:
                    self._handle.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<arck.File [closed]>"
        return f"<arck.File name={getattr(self, 'name', None)!r} mode={getattr(self, 'mode', None)!r}>"


def discard(file: typing.Any) -> None:
    """Has what a file holds in its buffers go nowhere from now on: in a forked child, whose parent writes it."""
    try:
        buffered = getattr(file, "buffer", file)
        raw = getattr(buffered, "raw", buffered)
    except ValueError:
        # Somebody has taken the raw file out of it.
        return
    raw._discards = True


def open_file(
    file_system: _arck.FileSystem,
    path: typing.Any,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> typing.IO[typing.Any]:
    """Opens a file as the built-in ``open`` does: see ``FileSystem.open``."""
    if not isinstance(mode, str):
        raise TypeError(f"invalid mode: {mode!r}")
    if not isinstance(buffering, int):
        raise TypeError(f"invalid buffering: {buffering!r}")
    _, binary, _, buffered = mode_of(mode)
    if binary:
        if encoding is not None or errors is not None or newline is not None:
            raise ValueError("binary mode takes no encoding, errors or newline argument")
    elif buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    else:
        encoding = io.text_encoding(encoding, 3)

    result: typing.Any = File(file_system, path, mode)
    if buffering == 0:
        return typing.cast("typing.IO[typing.Any]", result)
    try:
        result = buffered(result, buffering if buffering > 1 else BUFFER_SIZE)
        if not binary:
            result = io.TextIOWrapper(result, encoding, errors, newline, buffering == 1)
            result.mode = mode
    except BaseException:
        result.close()
        raise
    return typing.cast("typing.IO[typing.Any]", result)
