"""Spools: files in which queued writes are durable until they are done."""

from __future__ import annotations

import typing

from . import _arck, _open_things


class Replayed(typing.NamedTuple):
    """What was left in a spool, when it was opened."""

    #: Writes and appends that were queued and not done, and are done now.
    requests: int
    #: Their bytes.
    bytes: int
    #: Those that are dropped: their file is gone, or refuses them for ever (EFBIG and the like).
    dropped: int


class Spool(_arck.Spool):
    """A file in which queued writes are kept until they are done: ``fs.spool(path)`` opens one.

    Writes and appends of a queue that has one (``file.queue(queues, spool=spool)``) are durable when ``submit`` returns. What was
    queued when the program was killed, or the machine failed, is done when the spool is opened again, in the order of submission.

    >>> with fs.spool("day.spool", 1 << 20) as spool, arck.Queues() as queues, fs.open("day", "w+b", buffering=0) as file:
    ...     spool.replayed
    ...     with file.queue(queues, spool=spool) as queue:
    ...         number = queue.submit(arck.Request.append(b"survives from here on"))
    ...     fs.read_bytes("day")
    Replayed(requests=0, bytes=0, dropped=0)
    b'survives from here on'

    One process has it open, and it once: until it is closed, and the queues that have it are closed and gone.
    """

    def __new__(cls, file_system: _arck.FileSystem, path: typing.Any, size: int = 16 << 20) -> Spool:
        """Opens it, or makes it, and does what was left there: see ``FileSystem.spool``."""
        self = super().__new__(cls, file_system, path, size)
        self.name = path
        self.replayed = Replayed(*self._replayed)
        _open_things.note(self)
        return self

    #: The path that it was opened with.
    name: typing.Any
    #: What was left there, and is done since it was opened.
    replayed: Replayed

    def close(self) -> None:
        """Lets it go; queues that have it keep it, as long as they are there. Does nothing the second time."""
        self._end()

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<arck.Spool name={self.name!r}{' [closed]' * self.closed}>"

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("cannot pickle an arck.Spool")
