"""Queues: many requests in flight on open files, awaited or reaped."""

from __future__ import annotations

import asyncio
import errno
import functools
import io
import os
import threading
import typing

from . import _arck, _open_things
from ._raw import raw_of

if typing.TYPE_CHECKING:
    from ._spool import Spool

#: What a call of the native part takes of a request besides its own arguments.
_Arguments = tuple[typing.Any, ...]


class Request:
    """A request that is to be submitted: ``Request.read``, ``write``, ``append`` or ``sync``.

    ``urgent``: it goes before what is not; among urgent requests, reads go before the others. ``within``: seconds in which
    it has to begin, or it completes with ``TimeoutError``, and nothing of it is done.
    """

    __slots__ = ("_arguments", "_call", "urgent", "within")

    def __init__(self, call: str, arguments: _Arguments, urgent: bool, within: float | None) -> None:
        self._call = call
        self._arguments = arguments
        self.urgent = urgent
        self.within = within

    @classmethod
    def read(cls, position: int, length: int, *, urgent: bool = False, within: float | None = None) -> Request:
        """Reads up to a number of bytes; its value is ``bytes``."""
        return cls("read", (position, length), urgent, within)

    @classmethod
    def write(cls, position: int, data: typing.Any, *, urgent: bool = False, within: float | None = None) -> Request:
        """Writes; its value is how many bytes. The data is copied when it is submitted."""
        return cls("write", (position, data), urgent, within)

    @classmethod
    def append(cls, data: typing.Any, *, urgent: bool = False, within: float | None = None) -> Request:
        """Writes at the file's end; its value is the position behind the data. A barrier: see ``Queue``."""
        return cls("append", (data,), urgent, within)

    @classmethod
    def sync(cls, *, data_only: bool = False, urgent: bool = False, within: float | None = None) -> Request:
        """Makes durable what was written; its value is ``None``. A barrier: see ``Queue``."""
        return cls("sync", (data_only,), urgent, within)

    def __repr__(self) -> str:
        return f"<arck.Request {self._call}>"


class Completion(typing.NamedTuple):
    """What came of a request."""

    #: What ``submit`` gave.
    request: int
    #: ``bytes`` that were read, how many were written, or the position behind what was appended; ``None`` of a sync, and
    #: if there is an error.
    value: typing.Any
    #: How many bytes were read or written.
    length: int
    #: Why it was not done.
    error: OSError | None
    #: Of a read: the write from whose bytes it was served before that was done. Should that one fail, the read has seen
    #: what never was in the file.
    served_by: int | None
    #: Of a write: the later one that was done in place of it, which it lies in.
    covered_by: int | None

    def result(self) -> typing.Any:
        """The value; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value


class Queues(_arck.Queues):
    """The threads that do requests, and the order of what they do. One is enough for a program.

    ``workers``: how many threads, 1 to 1024; as many as there are processors if nothing is said. They start with the first
    request.

    >>> with arck.Queues() as queues, fs.open("raw", "w+b", buffering=0) as file:
    ...     with file.queue(queues) as queue:
    ...         first = queue.submit(arck.Request.write(0, b"hello"))
    ...         second = queue.submit(arck.Request.read(0, 100))
    ...         done = {one.request: one.result() for one in queue.wait(2)}
    ...         done[first], done[second]
    (5, b'hello')
    """

    def __new__(cls, workers: int | None = None) -> Queues:
        """Makes them; nothing is started yet."""
        self = super().__new__(cls, workers)
        _open_things.note(self)
        return self

    def close(self) -> None:
        """Cancels what has not begun in any queue, waits for what has, and ends the threads. Once; then it does nothing."""
        self._end()

    def __enter__(self) -> Queues:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<arck.Queues{' [closed]' * self.closed}>"

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("cannot pickle arck.Queues")


class Queue(_arck.Queue):
    """Requests on an open file: what ``file.queue(queues)`` gives.

    Each request has a timestamp, of all queues of ``queues``. Requests of a file that overlap, of which one writes, are done in
    the order in which they were submitted; all others at the same time, or in any order. A sync and an append are barriers: they
    wait for all earlier requests of the file, and all later ones wait for them.

    ``read``, ``write``, ``append`` and ``sync`` submit at once, and give an ``asyncio.Future`` to await. To cancel the task that
    awaits it cancels the request, which is not done then unless it has begun.

    >>> async def work(queues):
    ...     with fs.open("raw", "w+b", buffering=0) as file:
    ...         async with file.queue(queues) as queue:
    ...             write, read = queue.write(0, b"hello"), queue.read(1, 3)
    ...             return await write, await read, await queue.append(b"!"), await queue.sync()
    >>> with arck.Queues() as queues:
    ...     asyncio.run(work(queues))
    (5, b'ell', 6, None)

    Programs without an event loop have ``submit``, ``reap`` and ``wait``. One queue is used in one of these ways at a time, and by
    one event loop at a time: another use meanwhile is a ``RuntimeError``. Any thread may ``submit``, ``reap``, ``wait`` and
    ``cancel``.
    """

    def __new__(
        cls,
        file: typing.Any,
        queues: Queues,
        *,
        depth: int = 128,
        weight: int = 100,
        spool: Spool | None = None,
        path: typing.Any = None,
    ) -> Queue:
        """Opens a queue; the file stays open until the queue is closed and gone, also if it is closed itself.

        ``depth``: how many requests may be outstanding or completed and not reaped. ``weight``: its share beside others.
        ``spool``: writes and appends are in it, and durable, when they have been submitted (see ``Spool``). They cannot be cancelled, and take
        no ``within``. ``path``: where the file is found after a crash; the one that it was opened with, if nothing is said.
        """
        raw = raw_of(file, "has queues")
        if spool is None and path is not None:
            raise ValueError("path is where a spool finds the file: which spool?")
        spooled = None if spool is None else (spool, raw.name if path is None else path)
        self = super().__new__(cls, raw._open_handle(), queues, depth, weight, spooled)
        self.name = raw.name
        self._access = raw._access
        self._queues = queues
        self._lock = threading.Lock()
        self._waiting = 0
        self._loop = None
        self._awaited = {}
        raw._queues.add(self)
        return self

    #: The file's.
    name: typing.Any
    _access: int
    #: Kept, so that the threads are there as long as this is.
    _queues: Queues
    #: Held while it is looked at who uses the queue, and by whom that changes.
    _lock: threading.Lock
    #: Threads that wait.
    _waiting: int
    #: The event loop that awaits requests, if there are any of those; it looks for completions then.
    _loop: asyncio.AbstractEventLoop | None
    #: Futures of requests that have not been reaped, by the requests' numbers.
    _awaited: dict[int, asyncio.Future[typing.Any]]

    # ---- awaited

    def read(
        self, position: int, length: int, *, urgent: bool = False, within: float | None = None
    ) -> asyncio.Future[bytes]:
        """Reads up to ``length`` bytes: to be awaited. See ``Request``."""
        return self._submit_to_await(Request.read(position, length, urgent=urgent, within=within))

    def write(
        self, position: int, data: typing.Any, *, urgent: bool = False, within: float | None = None
    ) -> asyncio.Future[int]:
        """Writes; gives how many bytes: to be awaited."""
        return self._submit_to_await(Request.write(position, data, urgent=urgent, within=within))

    def append(self, data: typing.Any, *, urgent: bool = False, within: float | None = None) -> asyncio.Future[int]:
        """Writes at the file's end; gives the position behind that: to be awaited."""
        return self._submit_to_await(Request.append(data, urgent=urgent, within=within))

    def sync(
        self, *, data_only: bool = False, urgent: bool = False, within: float | None = None
    ) -> asyncio.Future[None]:
        """What was submitted before is done, and durable: to be awaited."""
        return self._submit_to_await(Request.sync(data_only=data_only, urgent=urgent, within=within))

    def _submit_to_await(self, request: Request) -> asyncio.Future[typing.Any]:
        loop = asyncio.get_running_loop()
        self._expect_own()
        with self._lock:
            self._forget_closed_loop()
            if self._awaited and self._loop is not loop:
                raise RuntimeError(f"{self!r} is used by another event loop")
            if not self._awaited and (self._waiting or self._count() != (0, 0)):
                raise RuntimeError(f"{self!r} has requests that are to be reaped first")
            if not self._awaited:
                loop.add_reader(self._readiness(), self._settle)
                self._loop = loop
            try:
                number = self._submit_native(request)
                future = self._awaited[number] = loop.create_future()
            finally:
                self._look_no_more()
        future.add_done_callback(functools.partial(self._after, number))
        return future

    def _look_no_more(self) -> None:
        """If nobody awaits anything any more, the loop has nothing to look for."""
        if self._loop is not None and not self._awaited:
            self._loop.remove_reader(self._readiness())
            self._loop = None

    def _after(self, number: int, future: asyncio.Future[typing.Any]) -> None:
        """Somebody may have cancelled the future, and means the request."""
        if future.cancelled() and number in self._awaited:
            self._cancel(number)

    def _settle(self) -> None:
        """In the loop's thread: takes what has completed, and tells those who await it."""
        with self._lock:
            for done in self._completions(self._reap(self.DEPTH_MAX)):
                future = self._awaited.pop(done.request, None)
                if future is None or future.done():
                    # Cancelled, when the request had begun.
                    continue
                if done.error is None:
                    future.set_result(done.value)
                elif done.error.errno == errno.ECANCELED:
                    future.cancel()
                else:
                    future.set_exception(done.error)
            self._look_no_more()

    def _forget_closed_loop(self) -> None:
        """Of a loop that was closed nobody awaits anything: what it has left is cancelled, or done and forgotten."""
        if self._loop is None or not self._loop.is_closed():
            return
        for number in self._awaited:
            self._cancel(number)
        while self._awaited:
            for done in self._wait(self.DEPTH_MAX, None):
                self._awaited.pop(done[0], None)
        self._loop = None

    # ---- reaped

    def submit(self, request: Request) -> int:
        """Submits a request; gives its number. ``BlockingIOError``: the queue is full, until something is reaped."""
        self._expect_own()
        with self._lock:
            self._expect_no_loop()
            return self._submit_native(request)

    def reap(self, most: int | None = None) -> list[Completion]:
        """Takes what has completed, ``most`` at most, in the order of completion. Never blocks."""
        self._expect_own()
        with self._lock:
            self._expect_no_loop()
            return self._completions(self._reap(self.DEPTH_MAX if most is None else most))

    def wait(self, at_least: int = 1, timeout: float | None = None) -> list[Completion]:
        """Waits until so many have completed, or none is outstanding, or for ``timeout`` seconds; takes all that have.

        Other threads run meanwhile. Signals are handled when it returns: it waits for nothing but what is outstanding.
        """
        self._expect_own()
        with self._lock:
            self._expect_no_loop()
            self._waiting += 1
        try:
            return self._completions(self._wait(at_least, timeout))
        finally:
            with self._lock:
                self._waiting -= 1

    def _expect_no_loop(self) -> None:
        self._forget_closed_loop()
        if self._awaited:
            raise RuntimeError(f"{self!r} is used by an event loop")

    # ---- both

    def _expect_own(self) -> None:
        """That it is not that of a parent process, whose locks may be locked for ever."""
        self._count()

    def _submit_native(self, request: Request) -> int:
        if request._call == "read" and self._access == os.O_WRONLY:
            raise io.UnsupportedOperation("File not open for reading")
        if request._call in ("write", "append") and self._access == os.O_RDONLY:
            raise io.UnsupportedOperation("File not open for writing")
        submit: typing.Callable[..., int] = getattr(self, f"_{request._call}")
        return submit(*request._arguments, request.urgent, request.within)

    def _completions(self, told: list[_arck._Told]) -> list[Completion]:
        return [
            Completion(
                number,
                value,
                length,
                OSError(error, os.strerror(error), self.name) if error else None,
                served_by,
                covered_by,
            )
            for number, value, length, error, served_by, covered_by in told
        ]

    def cancel(self, request: int) -> bool:
        """Cancels a request: it completes with ``ECANCELED``, and nothing of it is done. False: it has begun, or completed."""
        return self._cancel(request)

    def count(self) -> tuple[int, int]:
        """How many requests are outstanding, and how many completions can be reaped."""
        return self._count()

    def fileno(self) -> int:
        """A descriptor for ``select``, readable as long as something can be reaped; not to be read, written or closed."""
        return self._readiness()

    def close(self, *, cancel: bool = False) -> None:
        """Takes no more requests, and waits until all are done; with ``cancel``, what has not begun is cancelled.

        What has completed can be reaped afterwards. Does nothing the second time.
        """
        self._end(cancel)

    async def aclose(self, *, cancel: bool = False) -> None:
        """As ``close``, while the event loop runs on; then all who await requests know what came of them."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._end, cancel)
        if self._loop is loop:
            self._settle()

    @property
    def closed(self) -> bool:
        """Whether it, its file system or its threads are closed."""
        return self._closed or self._queues.closed

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self.close(cancel=kind is not None)

    async def __aenter__(self) -> Queue:
        return self

    async def __aexit__(self, kind: object, *exception: object) -> None:
        await self.aclose(cancel=kind is not None)

    def __repr__(self) -> str:
        return f"<arck.Queue name={self.name!r}{' [closed]' * self.closed}>"

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("cannot pickle an arck.Queue")
