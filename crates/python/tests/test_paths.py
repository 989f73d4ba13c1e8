"""Paths, beside pathlib's, and functions that are as those of os."""

import os
import pathlib
import stat
import tempfile
import time
import unittest

from support import OnPool

import arck


class Paths(OnPool):
    def trees(self):
        """The same tree on the host and on the pool: the paths of both."""
        host = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(host.cleanup)
        both = pathlib.Path(host.name), self.fs / self.folder
        for root in both:
            (root / "a/b/c").mkdir(parents=True)
            (root / "a/.hidden").mkdir()
            for name in ("x.py", "a/y.py", "a/b/z.PY", "a/b/c/x.py", "a/.hidden/x.py", "a/n.txt", "a/[odd].py"):
                (root / name).write_text(name)
            (root / "link").symlink_to("a")
        return both

    def test_glob(self):
        host, pool = self.trees()
        patterns = ["*", "*.py", "**/*.py", "a/*"]
        patterns += ["a/**/x.py", "a/b", "none/*", "*/b/*", "**/b/**/*.py", "[ax]*", "a/[[]odd].py"]
        for pattern in patterns:
            with self.subTest(pattern):
                theirs = sorted(str(path.relative_to(host)) for path in host.glob(pattern))
                ours = sorted(str(path.relative_to(pool)) for path in pool.glob(pattern))
                self.assertEqual(theirs, ours)
        self.assertEqual(
            sorted(path.name for path in host.rglob("x*")), sorted(path.name for path in pool.rglob("x*"))
        )
        # Of which Python's versions think differently.
        directories = sorted(str(path.relative_to(pool)) for path in pool.glob("**"))
        self.assertEqual(directories, [".", "a", "a/.hidden", "a/b", "a/b/c"])
        self.assertRaises(ValueError, lambda: list(pool.glob("")))
        self.assertRaises(NotImplementedError, lambda: list(pool.glob("/a")))

    def test_what_they_say(self):
        host, pool = self.trees()
        for name in ("x.py", "a", "link", "link/y.py", "none", "x.py/none", "a/b/c/x.py"):
            theirs, ours = host / name, pool / name
            for question in ("exists", "is_file", "is_dir", "is_symlink"):
                with self.subTest(name=name, question=question):
                    self.assertEqual(getattr(theirs, question)(), getattr(ours, question)())
        self.assertEqual((host / "link").readlink().name, (pool / "link").readlink().name)
        self.assertEqual(sorted(p.name for p in host.iterdir()), sorted(p.name for p in pool.iterdir()))

    def test_what_they_do(self):
        root = self.fs / self.folder
        path = root / "file"
        path.touch()
        self.assertRaises(FileExistsError, path.touch, exist_ok=False)
        self.assertEqual((path.write_bytes(b"1\n2\n"), path.read_text(), path.stat().st_size), (4, "1\n2\n", 4))
        self.assertRaises(TypeError, path.write_text, b"bytes")
        path.chmod(0o600)
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        other = path.rename(root / "other")
        self.assertEqual((type(other), other.name, path.exists()), (type(path), "other", False))
        (root / "second").hardlink_to(other)
        self.assertEqual((other.stat().st_nlink, other.stat().st_ino), (2, (root / "second").stat().st_ino))
        self.assertRaises(FileNotFoundError, path.unlink)
        path.unlink(missing_ok=True)
        other.unlink()
        (root / "d/e").mkdir(parents=True)
        (root / "d/e").mkdir(parents=True, exist_ok=True)
        self.assertRaises(FileExistsError, (root / "d").mkdir)
        self.assertRaises(FileExistsError, (root / "second").mkdir, exist_ok=True)
        self.assertRaises(FileNotFoundError, (root / "p/q").mkdir)
        (root / "d/e").rmdir()
        with (root / "second").open("a") as file:
            file.write("3")
        self.assertEqual((root / "second").replace(root / "third").read_bytes(), b"1\n2\n3")

    def test_what_is_made_of_them(self):
        path = self.fs / self.folder / "a.txt"
        made = [path.parent, path.with_suffix(".md"), path.with_name("b"), path.parents[0], path.relative_to(self.folder)]
        made += [path / "x", self.fs.path("a", "b"), path.joinpath("y"), "z" / path]
        for one in made:
            self.assertIsInstance(one, arck.Path)
            self.assertIs(one.file_system, self.fs)
        self.assertEqual(path, self.fs.path(str(path)))
        self.assertEqual(len({path, self.fs.path(str(path))}), 1)
        with arck.connect(self.fs.pool) as other:
            self.assertNotEqual(path, other.path(str(path)))
        self.assertEqual(os.fspath(path), str(path))


class Functions(OnPool):
    def test_status_and_times(self):
        before = time.time() - 1
        self.fs.write_bytes(self.at("f"), b"12345")
        status = self.fs.stat(self.at("f"))
        self.assertIsInstance(status, os.stat_result)
        self.assertTrue(stat.S_ISREG(status.st_mode))
        self.assertTrue(before < status.st_mtime < time.time() + 1)
        self.assertEqual((status.st_size, status.st_nlink, status.st_uid), (5, 1, os.getuid()))
        self.assertEqual(status.st_mtime_ns // 10**9, int(status.st_mtime))
        self.fs.utime(self.at("f"), ns=(1_500_000_000_123_456_789, -1))
        status = self.fs.stat(self.at("f"))
        self.assertEqual((status.st_atime_ns, status.st_mtime_ns), (1_500_000_000_123_456_789, -1))
        self.fs.utime(self.at("f"), (10.5, 20))
        self.assertEqual(self.fs.stat(self.at("f")).st_atime_ns, 10_500_000_000)
        self.assertTrue(self.fs.access(self.at("f"), os.R_OK | os.W_OK))
        self.assertFalse(self.fs.access(self.at("none"), os.F_OK))
        room = self.fs.statvfs()
        self.assertTrue(0 < room.f_bfree < room.f_blocks)
        if os.getuid() == 0:
            self.fs.chown(self.at("f"), 5, -1)
            self.assertEqual(self.fs.stat(self.at("f")).st_uid, 5)

    def test_scandir(self):
        self.fs.mkdir(self.at("d"))
        self.fs.write_bytes(self.at("f"), b"xy")
        self.fs.symlink("d", self.at("l"))
        with self.fs.scandir(self.folder) as entries:
            found = {entry.name: entry for entry in entries}
        told = {name: (e.is_dir(), e.is_file(), e.is_symlink()) for name, e in found.items()}
        self.assertEqual(told, {"d": (True, False, False), "f": (False, True, False), "l": (True, False, True)})
        self.assertFalse(found["l"].is_dir(follow_symlinks=False))
        self.assertEqual((found["f"].stat().st_size, found["f"].path), (2, self.at("f")))
        self.assertEqual(found["f"].inode(), self.fs.stat(found["f"]).st_ino)

    def test_many_names(self):
        names = {f"name {number}" for number in range(3000)}
        for name in names:
            self.fs.write_bytes(self.at(name), b"")
        self.assertEqual(set(self.fs.listdir(self.folder)), names)

    def test_extended_attributes(self):
        self.fs.write_bytes(self.at("f"), b"")
        self.assertEqual(self.fs.listxattr(self.at("f")), [])
        self.fs.setxattr(self.at("f"), "user.a", b"1\0")
        self.fs.setxattr(self.at("f"), b"user.empty", b"")
        self.assertEqual(sorted(self.fs.listxattr(self.at("f"))), ["user.a", "user.empty"])
        self.assertEqual(self.fs.getxattr(self.at("f"), "user.a"), b"1\0")
        self.assertEqual(self.fs.getxattr(self.at("f"), "user.empty"), b"")
        with self.assertRaises(FileExistsError):
            self.fs.setxattr(self.at("f"), "user.a", b"2", os.XATTR_CREATE)
        self.fs.removexattr(self.at("f"), "user.a")
        self.assertEqual(self.fs.listxattr(self.at("f")), ["user.empty"])

    def test_names(self):
        self.fs.makedirs(self.at("a/b"))
        self.assertRaises(FileExistsError, self.fs.makedirs, self.at("a/b"))
        self.fs.makedirs(self.at("a/b"), exist_ok=True)
        self.fs.write_bytes(self.at("a/f"), b"1")
        self.fs.write_bytes(self.at("g"), b"2")
        self.fs.replace(self.at("a/f"), self.at("g"))
        self.fs.link(self.at("g"), self.at("h"))
        self.fs.truncate(self.at("h"), 3)
        self.assertEqual(self.fs.read_bytes("/" + self.at("g")), b"1\0\0")
        self.fs.symlink("h", self.at("s"))
        self.assertEqual(self.fs.readlink(self.at("s")), "h")
        self.assertTrue(stat.S_ISLNK(self.fs.lstat(self.at("s")).st_mode))
        self.fs.unlink(self.at("h"))
        self.assertEqual((self.fs.exists(self.at("s")), self.fs.exists(self.at("s"), follow_symlinks=False)), (False, True))


if __name__ == "__main__":
    unittest.main()
