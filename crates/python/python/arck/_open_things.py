"""What is open, so that it is closed in order when the interpreter ends, and forgotten in a forked child."""

from __future__ import annotations

import atexit
import os
import sys
import typing
import weakref

from . import _arck


class _Closable(typing.Protocol):
    def close(self) -> None: ...


# By identity: a store is a mapping, and has no hash.
_open: weakref.WeakValueDictionary[int, typing.Any] = weakref.WeakValueDictionary()


def note(thing: _Closable) -> None:
    """Notes a file system, a store or a log."""
    _open[id(thing)] = thing


def _close_all() -> None:
    """Before the interpreter takes modules apart: buffers are written, and sessions end."""
    for thing in list(_open.values()):
        try:
            getattr(thing, "_close_at_exit", thing.close)()
        except (OSError, ValueError, BufferError) as error:
            # Nobody is left to catch it; the others are closed all the same.
            print(f"arck: {thing!r} could not be closed: {error}", file=sys.stderr)


def _in_child() -> None:
    """In a forked child: what its parent has in buffers the parent writes."""
    _arck.in_child()
    for thing in list(_open.values()):
        forget = getattr(thing, "_forget_files", None)
        if forget is not None:
            forget()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_in_child)
