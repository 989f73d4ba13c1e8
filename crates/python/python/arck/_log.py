"""Logs: a directory of a pool as a stream that is appended to, followed, and cut at its beginning."""

from __future__ import annotations

import os
import typing
from collections.abc import Iterable

from . import _arck, _open_things

#: Bytes that a follower reads at once.
_PIECE = 1 << 16


class Log(_arck.Log):
    """A stream of bytes that is only appended to: ``fs.log(directory)`` opens one.

    A position is the number of bytes before. What ``append`` was given is one record: it stands in the stream as it was
    given, as a whole, after a crash too. How records are told from each other is the caller's business: here by newlines. What
    has been appended is durable as far as the pool is, and others see it, also as files of the directory.

    >>> with fs.log("events") as log:
    ...     first = log.append(b"started\\n")
    ...     log.append_all([b"one\\n", b"two\\n"])
    ...     waiting = [log.enqueue(b"%d\\n" % number) for number in range(3)]
    ...     log.commit(waiting[-1])
    ...     log.read(first, 100), log.begin, log.end
    ...     for record in log.follow(first, separator=b"\\n", timeout=0):
    ...         print(record)
    8
    20
    (b'started\\none\\ntwo\\n0\\n1\\n2\\n', 0, 22)
    b'started\\n'
    b'one\\n'
    b'two\\n'
    b'0\\n'
    b'1\\n'
    b'2\\n'

    All threads may use it. A position that has been cut off is ``OSError`` with ``ENODATA``, one behind the end with ``EINVAL``,
    and a directory that is no log, or was spoilt by other means, with ``EBADMSG``.
    """

    def __new__(
        cls,
        pool: typing.Any,
        directory: str,
        *,
        make: bool = True,
        section: int = 64 << 20,
        mode: int = 0o644,
        group: str | bytes | None = None,
        wait: float = 0.0,
    ) -> Log:
        """Opens the log that a directory is, by its path; makes it if it is not there and ``make`` says so.

        ``section``: bytes of a file, at which the next one begins, where the log is made. ``mode``: permission bits of files.
        ``group``: a trust group of programs that have this log's session together and follow each other without messages;
        not one of ``arck run``. ``wait``: seconds for which somebody is waited for who serves the pool.
        """
        name = b"" if group is None else os.fsencode(group)
        self = super().__new__(cls, pool, directory, make=make, section=section, mode=mode, group=name, wait=wait)
        self._directory = directory
        _open_things.note(self)
        return self

    _directory: str

    def append_all(self, records: Iterable[typing.Any]) -> int:
        """Appends several records, ``RECORD_MAX`` bytes together, as one: all are there or none; gives where the first begins."""
        return self._append_all(list(records))

    def follow(
        self, position: int | None = None, *, separator: bytes | None = None, timeout: float | None = None
    ) -> Follower:
        """Reads from a position on (the end, if none is given), and then what is appended, as soon as it is: see ``Follower``."""
        return Follower(self, position, separator, timeout)

    def close(self) -> None:
        """Makes durable what is enqueued, and ends the log's session: all is verified and folded when this returns."""
        self._end()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<arck.Log {self._directory!r}{' [closed]' * self.closed}>"

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("cannot pickle an arck.Log")


class Follower:
    """Reads a log and waits for more: what ``log.follow`` gives. An iterator, for one thread at a time.

    It gives ``bytes`` as they come; or, where there is a ``separator``, what ends with it, with it. It waits for ever, or ends
    when nothing has come for ``timeout`` seconds; it goes on from there when it is asked again. Ctrl-C, as any signal
    whose handler raises, ends a wait.

    >>> with fs.log("steps") as log:
    ...     steps = log.follow(0, separator=b";", timeout=0.01)
    ...     log.append(b"one;two;th"), list(steps), steps.position
    ...     log.append(b"ree;"), list(steps), steps.position
    (0, [b'one;', b'two;'], 8)
    (10, [b'three;'], 14)
    """

    def __init__(self, log: Log, position: int | None, separator: bytes | None, timeout: float | None) -> None:
        if separator is not None and not separator:
            raise ValueError("empty separator")
        self._log = log
        self._follower = log._follow(log.end if position is None else position)
        self._separator = separator
        self._timeout = timeout
        self._rest = bytearray()
        #: Up to where the rest has no separator.
        self._looked = 0

    @property
    def position(self) -> int:
        """Where that begins which it will give next."""
        return self._follower._position - len(self._rest)

    def __iter__(self) -> Follower:
        return self

    def __next__(self) -> bytes:
        separator = self._separator
        if separator is None:
            if piece := self._follower._next(_PIECE, self._timeout):
                return piece
            raise StopIteration
        while (found := self._rest.find(separator, self._looked)) < 0:
            self._looked = max(len(self._rest) - len(separator) + 1, 0)
            piece = self._follower._next(_PIECE, self._timeout)
            if not piece:
                raise StopIteration
            self._rest += piece
        end = found + len(separator)
        record = bytes(self._rest[:end])
        del self._rest[:end]
        self._looked = 0
        return record

    def read(self, length: int = _PIECE, timeout: float | None = None) -> bytes:
        """Up to ``length`` bytes, whatever they are; none after ``timeout`` seconds without any."""
        if length < 1:
            raise ValueError("length is 1 or more")
        if self._rest:
            data = bytes(self._rest[:length])
            del self._rest[:length]
            self._looked = 0
            return data
        return self._follower._next(min(length, self._log.RECORD_MAX), timeout)
