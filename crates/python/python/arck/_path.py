"""Paths of a pool, as those of ``pathlib``."""

from __future__ import annotations

import fnmatch
import os
import pathlib
import re
import stat
import typing
from collections.abc import Iterator

if typing.TYPE_CHECKING:
    from ._file_system import FileSystem


class Path(pathlib.PurePosixPath):
    """A path of a pool: a ``pathlib.PurePosixPath`` that knows its file system. ``fs.path("a/b")`` and ``fs / "a"`` make one.

    It has the methods of ``pathlib.Path`` that a pool has something for. What is made of a path is one of the same file
    system. Two paths are equal if their names and their file systems are.

    >>> notes = fs / "notes"
    >>> notes.mkdir()
    >>> (notes / "monday.txt").write_text("rain")
    4
    >>> [path.name for path in notes.iterdir()], (notes / "monday.txt").read_text()
    (['monday.txt'], 'rain')
    """

    #: The file system; each has a class of its own, so that what ``pathlib`` makes of a path has it, too.
    file_system: typing.ClassVar[FileSystem]

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Path) and other.file_system is not self.file_system:
            return False
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return f"arck.Path({str(self)!r})"

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("cannot pickle an arck.Path: it has a session")

    # ---- files

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> typing.IO[typing.Any]:
        """Opens the file: see ``FileSystem.open``."""
        return self.file_system.open(self, mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        """All that the file holds."""
        return self.file_system.read_bytes(self)

    def write_bytes(self, data: typing.Any) -> int:
        """Makes the file hold these bytes; gives how many."""
        return self.file_system.write_bytes(self, data)

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """All that the file holds, as text."""
        with self.open("r", encoding=encoding, errors=errors) as file:
            return typing.cast(str, file.read())

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        """Makes the file hold this text; gives how many characters."""
        if not isinstance(data, str):
            raise TypeError(f"data must be str, not {type(data).__name__}")
        with self.open("w", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(data)

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        """Makes an empty file, or sets the times of one that is there."""
        if exist_ok:
            try:
                return self.file_system.utime(self)
            except FileNotFoundError:
                pass
        flags = os.O_CREAT | os.O_WRONLY | (0 if exist_ok else os.O_EXCL)
        self.file_system._open(self, flags, mode).close()

    # ---- status

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """As ``os.stat``."""
        return self.file_system.stat(self, follow_symlinks=follow_symlinks)

    def lstat(self) -> os.stat_result:
        """As ``os.lstat``."""
        return self.stat(follow_symlinks=False)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it leads to something."""
        return self.file_system.exists(self, follow_symlinks=follow_symlinks)

    def is_file(self) -> bool:
        """Whether it leads to a file."""
        return stat.S_ISREG(self.file_system._mode(self, True))

    def is_dir(self) -> bool:
        """Whether it leads to a directory."""
        return stat.S_ISDIR(self.file_system._mode(self, True))

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.file_system._mode(self, False))

    def chmod(self, mode: int) -> None:
        """Changes permission bits."""
        self.file_system.chmod(self, mode)

    # ---- names

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the file."""
        try:
            self.file_system.remove(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: typing.Any) -> typing.Self:
        """Renames it, replacing a file that is there; gives the new path."""
        self.file_system.rename(self, target)
        return type(self)(target)

    def replace(self, target: typing.Any) -> typing.Self:
        """The same."""
        return self.rename(target)

    def symlink_to(self, target: typing.Any, target_is_directory: bool = False) -> None:
        """Makes a symbolic link here that leads there. ``target_is_directory`` means nothing, as on Linux."""
        self.file_system.symlink(target, self)

    def hardlink_to(self, target: typing.Any) -> None:
        """Gives the file ``target`` this name, too."""
        self.file_system.link(target, self)

    def readlink(self) -> typing.Self:
        """Where the symbolic link leads."""
        return type(self)(self.file_system.readlink(self))

    # ---- directories

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes a directory, and with ``parents`` those above it."""
        try:
            self.file_system.mkdir(self, mode)
        except FileNotFoundError:
            if not parents or self.parent == self:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, exist_ok=exist_ok)
        except OSError:
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self) -> None:
        """Removes the directory, which is empty."""
        self.file_system.rmdir(self)

    def iterdir(self) -> Iterator[typing.Self]:
        """Paths of what is in the directory, in no order."""
        for name in self.file_system.listdir(self):
            yield self / name

    def glob(self, pattern: str) -> Iterator[typing.Self]:
        """Paths below this one that a pattern fits: ``*``, ``?`` and ``[...]`` in a name, ``**`` for any directories.

        Upper and lower case differ. Symbolic links to directories are not walked through by ``**``.

        >>> fs.makedirs("tree/a/b")
        >>> fs.write_bytes("tree/a/b/x.py", b"")
        0
        >>> [str(path) for path in (fs / "tree").glob("**/*.py")]
        ['tree/a/b/x.py']
        """
        parts = pathlib.PurePosixPath(pattern).parts
        if not parts:
            raise ValueError(f"Unacceptable pattern: {pattern!r}")
        if pattern.startswith("/"):
            raise NotImplementedError("Non-relative patterns are unsupported")
        seen = set()
        for path in self._glob(parts):
            if path not in seen:
                seen.add(path)
                yield path

    def rglob(self, pattern: str) -> Iterator[typing.Self]:
        """``glob`` with ``**/`` before the pattern."""
        return self.glob(f"**/{pattern}")

    def _glob(self, parts: tuple[str, ...]) -> Iterator[typing.Self]:
        if not parts:
            yield self
            return
        first, rest = parts[0], parts[1:]
        if first == "**":
            yield from self._glob(rest)
            for path in self._directories():
                yield from path._glob(parts)
        elif not re.search(r"[*?\[]", first):
            path = self / first
            if path.exists(follow_symlinks=False):
                yield from path._glob(rest)
        elif self.is_dir():
            fits = re.compile(fnmatch.translate(first)).match
            for path in self.iterdir():
                if fits(path.name) and (not rest or path.is_dir()):
                    yield from path._glob(rest)

    def _directories(self) -> Iterator[typing.Self]:
        if not self.is_dir():
            return
        for entry in self.file_system.scandir(self):
            if entry.is_dir(follow_symlinks=False):
                yield self / entry.name
