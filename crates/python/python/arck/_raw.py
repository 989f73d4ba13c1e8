"""Raw files beneath those that ``fs.open`` gives."""

from __future__ import annotations

import io
import typing

if typing.TYPE_CHECKING:
    from ._file import File


def raw_of(file: typing.Any, use: str) -> File:
    """The raw file beneath what ``fs.open`` gave, whose buffer is written first; ``use``: for what, to be told if it is none."""
    from ._file import File

    raw = file
    if isinstance(raw, io.TextIOBase):
        raw.flush()
        raw = getattr(raw, "buffer", raw)
    if isinstance(raw, (io.BufferedWriter, io.BufferedRandom)):
        raw.flush()
    raw = getattr(raw, "raw", raw)
    if not isinstance(raw, File):
        raise TypeError(f"a file of a pool {use}, not {type(file).__name__}")
    return raw
