"""Open files, for Python's ``io``: ``File`` is the raw one, ``open_file`` puts buffers and text around it."""

from __future__ import annotations

import io
import os
import typing

if typing.TYPE_CHECKING:
    from . import _arck

#: Bytes of a buffer, if nothing else is said.
BUFFER_SIZE = 64 << 10

_BASIC = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}


def flags_of(mode: str) -> int:
    """The ``O_*`` flags of a mode as ``open`` takes it, without its ``b`` and ``t``.

    >>> flags_of("r+") == os.O_RDWR
    True
    >>> flags_of("q")
    Traceback (most recent call last):
    ValueError: invalid mode: 'q'
    """
    letters = mode.replace("+", "", 1)
    if letters not in _BASIC:
        raise ValueError(f"invalid mode: {mode!r}")
    flags = _BASIC[letters]
    return flags if letters == mode else flags & ~os.O_ACCMODE | os.O_RDWR


class File(io.RawIOBase):
    """A file without a buffer: what ``fs.open(path, "rb", buffering=0)`` gives.

    Each call is one of Arck's. What ``write`` has written is durable as far as the pool is, and others see it.

    >>> with fs.open("raw", "w+b", buffering=0) as file:
    ...     file.write(b"abc"), file.pread(2, 1), file.pwrite(b"X", 0), file.tell()
    (3, b'bc', 1, 3)
    """

    _handle: _arck.OpenFile | None = None

    def __init__(self, file_system: _arck.FileSystem, path: typing.Any, mode: str = "r") -> None:
        """Opens a file; the mode is that of ``open`` without ``b`` and ``t``."""
        flags = flags_of(mode)
        self._access = flags & os.O_ACCMODE
        self._handle = file_system._open(path, flags, 0o666)
        self.name = path
        self.mode = mode.replace("+", "") + "b" + "+" * ("+" in mode)

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
    letters = set(mode)
    if letters - set("axrwb+t") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    binary = "b" in letters
    if binary and "t" in letters:
        raise ValueError("can't have text and binary mode at once")
    if len(letters & set("axrw")) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
        if binary and value is not None:
            raise ValueError(f"binary mode doesn't take {'an' if name[0] == 'e' else 'a'} {name} argument")
    if buffering == 0 and not binary:
        raise ValueError("can't have unbuffered text I/O")
    if not binary:
        encoding = io.text_encoding(encoding, 3)

    raw = File(file_system, path, mode.replace("b", "").replace("t", ""))
    if buffering == 0:
        return typing.cast("typing.IO[typing.Any]", raw)
    result: typing.Any = raw
    try:
        size = BUFFER_SIZE if buffering in (-1, 1) or buffering < 0 else buffering
        if "+" in letters:
            result = io.BufferedRandom(raw, size)
        elif "r" in letters:
            result = io.BufferedReader(raw, size)
        else:
            result = io.BufferedWriter(raw, size)
        if not binary:
            result = io.TextIOWrapper(result, encoding, errors, newline, buffering == 1)
            result.mode = mode
    except BaseException:
        result.close()
        raise
    return typing.cast("typing.IO[typing.Any]", result)
