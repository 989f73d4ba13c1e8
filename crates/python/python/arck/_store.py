"""Small values: a directory of a pool as a mapping of ``bytes`` to ``bytes``."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Mapping, MutableMapping

from . import _arck, _open_things


class Store(_arck.Store, MutableMapping[bytes, bytes]):
    """A directory of a pool as a mapping: its keys are the names of files, its values what they hold.

    ``fs.keyvalue(directory)`` opens one. A value has 32,768 bytes at most (``VALUE_MAX``), a key 255, without ``/`` and zero
    bytes; others are a ``ValueError``. What is set is durable as far as the pool is, and everybody sees it, as files.

    >>> with fs.keyvalue("colours") as store:
    ...     store[b"red"] = b"#f00"
    ...     store.update({b"green": b"#0f0", b"blue": b"#00f"})
    ...     sorted(store), store[b"red"], store.get(b"black"), b"blue" in store
    ([b'blue', b'green', b'red'], b'#f00', None, True)
    >>> fs.read_bytes("colours/green")
    b'#0f0'
    """

    def __new__(
        cls,
        pool: typing.Any,
        directory: str,
        *,
        make: bool = True,
        mode: int = 0o644,
        wait: float = 0.0,
    ) -> Store:
        """Opens the store that a directory is, by its path; makes the directory if it is not there and ``make`` says so.

        ``mode`` has the permission bits of files of new keys. ``wait``: seconds for which somebody is waited for who serves
        the pool.
        """
        self = super().__new__(cls, pool, directory, make=make, mode=mode, wait=wait)
        self._directory = directory
        _open_things.note(self)
        return self

    _directory: str

    def __iter__(self) -> Iterator[bytes]:
        """All keys that there are now, in no order."""
        return iter(self._keys())

    def apply(self, changes: Mapping[bytes, bytes | None]) -> int:
        """Makes changes together: after a crash all of them are there, or none is. Others see them together, too.

        A key with ``None`` is taken away. ``BATCH_MAX`` (256) changes at most. Gives how many of the keys were there.

        >>> store.apply({b"new": b"1", b"old": None})
        0
        """
        return self._apply(list(changes.items()))

    def update(self, other: typing.Any = (), /, **changes: bytes) -> None:
        """Sets many keys. Up to ``BATCH_MAX`` of them are one change (see ``apply``); more are several, one after the other.

        >>> store.update([(b"a", b"1"), (b"b", b"2")])
        """
        if changes:
            raise TypeError("keys are bytes: update takes no keywords")
        self._change(dict(other).items())

    def clear(self) -> None:
        """Takes all keys away that there are now; in several changes if they are many."""
        self._change((key, None) for key in self._keys())

    def _change(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        together: list[tuple[bytes, bytes | None]] = []
        for change in changes:
            together.append(change)
            if len(together) == self.BATCH_MAX:
                self._apply(together)
                together = []
        if together:
            self._apply(together)

    def close(self) -> None:
        """Ends the store's session: all that was set is verified and folded when this returns."""
        self._end()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<arck.Store {self._directory!r}{' [closed]' * self.closed}>"

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("cannot pickle an arck.Store")
