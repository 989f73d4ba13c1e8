"""Maps: a file's bytes in the program's memory."""

from __future__ import annotations

import io
import mmap
import os
import typing
from collections.abc import Iterator

from . import _arck
from ._raw import raw_of

#: Bytes that are looked at together where a map is searched.
_PIECE = 1 << 20


class Map(_arck.Map):
    """A part of a file in the program's memory, as ``mmap.mmap``: bytes that are the file's, without calls and copies.

    ``file`` is what ``fs.open`` gave, opened for reading and, with ``ACCESS_WRITE``, for writing too; it may be closed
    afterwards. ``length`` bytes from ``offset`` on, a multiple of 4096; all up to the end of the file if it is 0. ``access``
    is ``arck.ACCESS_READ``, ``ACCESS_WRITE`` (what is stored is the file's) or ``ACCESS_COPY`` (it is the program's alone);
    they are those of ``mmap``. If nothing is said, the map may be written if the file may.

    ``memoryview(map)`` shows the file's own bytes. While there is one the map is not closed: ``BufferError``.

    >>> fs.write_bytes("numbers", bytes(range(10)))
    10
    >>> with fs.open("numbers", "r+b") as file, arck.Map(file) as numbers:
    ...     numbers[2:4] = b"ab"
    ...     with memoryview(numbers) as view:
    ...         view[0] = 255
    ...     len(numbers), numbers[0], numbers.find(b"b"), numbers[3:5]
    (10, 255, 3, b'b\\x04')
    >>> fs.read_bytes("numbers")
    b'\\xff\\x01ab\\x04\\x05\\x06\\x07\\x08\\t'

    Behind the end of the file is nothing: where it is cut beneath a map, the methods of the map raise ``OSError`` (``EIO``),
    but a ``memoryview`` gets the signal SIGBUS, which ends the program, as with ``mmap.mmap``.
    """

    def __new__(cls, file: typing.Any, length: int = 0, access: int | None = None, offset: int = 0) -> Map:
        """Maps a part of a file."""
        raw = raw_of(file, "is mapped")
        if access is None:
            access = mmap.ACCESS_READ if raw._access == os.O_RDONLY else mmap.ACCESS_WRITE
        if length < 0 or offset < 0:
            raise ValueError("length and offset are not negative")
        self = super().__new__(cls, raw._open_handle(), length, access, offset)
        self._at = 0
        raw._maps.add(self)
        return self

    _at: int

    # ---- bytes

    def __len__(self) -> int:
        """Bytes of the map, which stay as many as they were."""
        self._check_open()
        return self._length

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed map.")

    def _check_writable(self) -> None:
        self._check_open()
        if self._access == mmap.ACCESS_READ:
            raise TypeError("map cannot be modified: it was made to be read")

    def _index(self, index: int) -> int:
        found = index + self._length if index < 0 else index
        if not 0 <= found < self._length:
            raise IndexError("map index out of range")
        return found

    @typing.overload
    def __getitem__(self, key: typing.SupportsIndex, /) -> int: ...
    @typing.overload
    def __getitem__(self, key: slice, /) -> bytes: ...
    def __getitem__(self, key: typing.Any, /) -> int | bytes:
        if not isinstance(key, slice):
            return self._copy_out(self._index(key.__index__()), 1)[0]
        covered, first, step = self._covered(key)
        return self._copy_out(covered.start, len(covered))[first::step] if covered else self._copy_out(0, 0)

    def _covered(self, key: slice) -> tuple[range, int, int]:
        """The bytes from the first to the last of a slice, the place of its first among them, and its step."""
        places = range(self._length)[key]
        if not places:
            return range(0), 0, places.step
        low, high = min(places[0], places[-1]), max(places[0], places[-1])
        return range(low, high + 1), places[0] - low, places.step

    def __setitem__(self, key: typing.Any, value: typing.Any, /) -> None:
        self._check_writable()
        if not isinstance(key, slice):
            self._copy_in(self._index(key.__index__()), bytes((value,)))
            return
        places = range(self._length)[key]
        data = value if places.step == 1 else bytes(value)
        if memoryview(data).nbytes != len(places):
            raise IndexError("map slice assignment is wrong size")
        if places.step == 1:
            self._copy_in(places.start, data)
            return
        for place, byte in zip(places, data, strict=True):
            self._copy_in(place, bytes((byte,)))

    def __iter__(self) -> Iterator[int]:
        """Its bytes, as numbers."""
        for start in range(0, len(self), _PIECE):
            yield from self[start : start + _PIECE]

    def __contains__(self, value: object, /) -> bool:
        """Whether it has a byte (a number), or bytes, somewhere."""
        wanted = bytes((value,)) if isinstance(value, int) else value
        return self.find(wanted, 0) >= 0

    def _bounds(self, start: int | None, end: int | None) -> tuple[int, int]:
        self._check_open()
        first, last, _ = slice(self._at if start is None else start, end).indices(self._length)
        return first, last

    def find(self, sub: typing.Any, start: int | None = None, end: int | None = None) -> int:
        """The lowest place where ``sub`` begins between ``start`` (the position, if none is given) and ``end``; -1 if none.

        >>> with fs.open("text", "w+") as file:
        ...     print("to be or not to be", file=file)
        ...     with arck.Map(file) as text:
        ...         text.find(b"be"), text.rfind(b"be"), text.find(b"be", 4, 10), b"or" in text
        (3, 16, -1, True)
        """
        wanted = bytes(sub)
        first, last = self._bounds(start, end)
        while first + len(wanted) <= last:
            piece = self._copy_out(first, min(last - first, _PIECE + len(wanted)))
            found = piece.find(wanted)
            if found >= 0:
                return first + found
            first += max(len(piece) - len(wanted) + 1, 1)
        return -1

    def rfind(self, sub: typing.Any, start: int | None = None, end: int | None = None) -> int:
        """As ``find``, the highest place."""
        wanted = bytes(sub)
        first, last = self._bounds(start, end)
        while first + len(wanted) <= last:
            begin = max(first, last - _PIECE - len(wanted))
            found = self._copy_out(begin, last - begin).rfind(wanted)
            if found >= 0:
                return begin + found
            last = begin + len(wanted) - 1 if begin > first else first - 1
        return -1

    def move(self, dest: int, src: int, count: int) -> None:
        """Copies ``count`` bytes from ``src`` to ``dest``, which may overlap."""
        self._check_writable()
        if min(dest, src, count) < 0 or max(dest, src) + count > len(self):
            raise ValueError("source, destination, or count out of range")
        self._copy_in(dest, self._copy_out(src, count))

    # ---- as a file

    def tell(self) -> int:
        """The position."""
        self._check_open()
        return self._at

    def seek(self, pos: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position; gives it. It lies inside the map, or at its end."""
        self._check_open()
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}
        if whence not in bases:
            raise ValueError("unknown seek type")
        place = bases[whence] + pos
        if not 0 <= place <= self._length:
            raise ValueError("seek out of range")
        self._at = place
        return place

    def seekable(self) -> bool:
        """Always true."""
        return True

    def read(self, size: int | None = None) -> bytes:
        """Reads from the position up to ``size`` bytes; all that there are, if it is negative or ``None``."""
        left = len(self) - self._at
        data = self._copy_out(self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data

    def readline(self) -> bytes:
        """Reads from the position to the next newline, with that."""
        end = self.find(b"\n")
        return self.read(None if end < 0 else end + 1 - self._at)

    def read_byte(self) -> int:
        """Reads a byte as a number."""
        if not (data := self.read(1)):
            raise ValueError("read byte out of range")
        return data[0]

    def write(self, data: typing.Any) -> int:
        """Writes at the position; gives how many bytes."""
        self._check_writable()
        if self._at + memoryview(data).nbytes > len(self):
            raise ValueError("data out of range")
        written = self._copy_in(self._at, data)
        self._at += written
        return written

    def write_byte(self, byte: int) -> None:
        """Writes a byte that is given as a number."""
        self.write(bytes((byte,)))

    def flush(self, offset: int = 0, size: int | None = None) -> None:
        """What was stored to the map, or to a part of it, is durable when this returns, as by ``msync``."""
        self._flush(offset, len(self) - offset if size is None else size)

    def close(self) -> None:
        """Gives the memory back. ``BufferError`` while there are views of it. Does nothing the second time."""
        self._end()

    def __enter__(self) -> Map:
        self._check_open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<arck.Map [closed]>"
        access = {mmap.ACCESS_READ: "READ", mmap.ACCESS_WRITE: "WRITE"}.get(self._access, "COPY")
        return f"<arck.Map of {self._length} bytes, ACCESS_{access}>"

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("cannot pickle an arck.Map")
