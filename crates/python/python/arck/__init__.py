"""Arck's pools in Python: files, paths, maps, queues, small values and logs, read and written without system calls.

A pool is served by ``arck serve``, or by the ``arck run`` that started the program. ``connect`` opens a session on it:

>>> import arck
>>> with arck.connect(pool) as fs:
...     with fs.open("greeting.txt", "w") as file:
...         print("hello", file=file)
...     fs.read_bytes("greeting.txt")
b'hello\\n'

Paths are those of the pool: ``greeting.txt`` and ``/greeting.txt`` are the same file, in its root directory. Errors are
``OSError`` and its subclasses, with ``errno`` and ``filename``, as of Python's own ``open`` and ``os``. What is used after it
was closed is a ``ValueError``.

A file system, its files, its queues, its stores and its logs may be used by all threads. A forked child opens a session of its own at its
first need; files and queues that its parent had open are an ``OSError`` there.
"""

from mmap import ACCESS_COPY, ACCESS_READ, ACCESS_WRITE

from ._arck import Enqueued
from ._file import File
from ._file_system import DirEntry, FileSystem, StatvfsResult, connect
from ._log import Follower, Log
from ._map import Map
from ._path import Path
from ._queue import Completion, Queue, Queues, Request
from ._spool import Replayed, Spool
from ._store import Store

__all__ = [
    "ACCESS_COPY",
    "ACCESS_READ",
    "ACCESS_WRITE",
    "Completion",
    "DirEntry",
    "Enqueued",
    "File",
    "FileSystem",
    "Follower",
    "Log",
    "Map",
    "Path",
    "Queue",
    "Queues",
    "Replayed",
    "Request",
    "Spool",
    "StatvfsResult",
    "Store",
    "connect",
]
