"""What is asked wrongly: errors, and what is used after it was closed."""

import errno
import gc
import io
import os
import pathlib
import pickle
import unittest
import warnings

from support import OnPool

import arck


class Errors(OnPool):
    def test_each_has_its_class_number_and_name(self):
        fs, at = self.fs, self.at
        fs.write_bytes(at("file"), b"")
        fs.makedirs(at("full/inner"))
        fs.symlink("turning", at("turning"))
        cases = [
            (FileNotFoundError, errno.ENOENT, at("none"), lambda: fs.open(at("none"))),
            (FileNotFoundError, errno.ENOENT, at("none"), lambda: fs.read_bytes(at("none"))),
            (FileNotFoundError, errno.ENOENT, at("none/x"), lambda: fs.write_bytes(at("none/x"), b"")),
            (FileNotFoundError, errno.ENOENT, "", lambda: fs.open("")),
            (FileNotFoundError, errno.ENOENT, "", lambda: fs.stat("")),
            (FileExistsError, errno.EEXIST, at("file"), lambda: fs.open(at("file"), "x")),
            (FileExistsError, errno.EEXIST, at("full"), lambda: fs.mkdir(at("full"))),
            (IsADirectoryError, errno.EISDIR, at("full"), lambda: fs.open(at("full"))),
            (IsADirectoryError, errno.EISDIR, at("full"), lambda: fs.open(at("full"), "w")),
            (IsADirectoryError, errno.EISDIR, at("full"), lambda: fs.read_bytes(at("full"))),
            (IsADirectoryError, errno.EISDIR, at("full"), lambda: fs.remove(at("full"))),
            (NotADirectoryError, errno.ENOTDIR, at("file/x"), lambda: fs.open(at("file/x"))),
            (NotADirectoryError, errno.ENOTDIR, at("file"), lambda: fs.listdir(at("file"))),
            (NotADirectoryError, errno.ENOTDIR, at("file"), lambda: fs.rmdir(at("file"))),
            (OSError, errno.ENOTEMPTY, at("full"), lambda: fs.rmdir(at("full"))),
            (OSError, errno.ELOOP, at("turning"), lambda: fs.open(at("turning"))),
            (OSError, errno.EINVAL, at("file"), lambda: fs.readlink(at("file"))),
            (OSError, errno.EINVAL, at("file"), lambda: fs.truncate(at("file"), -1)),
            (OSError, errno.EXDEV, "../x", lambda: fs.stat("../x")),
            (OSError, errno.ENAMETOOLONG, at("n" * 300), lambda: fs.stat(at("n" * 300))),
            (OSError, errno.ENODATA, at("file"), lambda: fs.getxattr(at("file"), "user.none")),
            (OSError, errno.ENODATA, at("file"), lambda: fs.removexattr(at("file"), "user.none")),
            (OSError, errno.EFBIG, at("file"), lambda: fs.truncate(at("file"), 1 << 62)),
        ]
        for kind, number, name, call in cases:
            with self.subTest(name=name, number=errno.errorcode[number]), self.assertRaises(OSError) as raised:
                call()
            self.assertIs(type(raised.exception), kind)
            self.assertEqual((raised.exception.errno, raised.exception.filename), (number, name))
        with self.assertRaises(FileNotFoundError) as raised:
            fs.rename(at("none"), at("other"))
        self.assertEqual((raised.exception.filename, raised.exception.filename2), (at("none"), at("other")))

    def test_wrong_types_and_lengths(self):
        fs, at = self.fs, self.at
        fs.write_bytes(at("file"), b"abc")
        wrong = [
            (TypeError, lambda: fs.open(3)),
            (TypeError, lambda: fs.open(None)),
            (TypeError, lambda: fs.read_bytes(object())),
            (TypeError, lambda: fs.write_bytes(at("file"), "text")),
            (TypeError, lambda: fs.write_bytes(at("file"), 7)),
            (TypeError, lambda: fs.open(at("file"), 7)),
            (TypeError, lambda: fs.open(at("file"), "r", "b")),
            (ValueError, lambda: fs.open("a\0b")),
            (ValueError, lambda: fs.open(at("file"), "rw")),
            (ValueError, lambda: fs.open(at("file"), "")),
            (ValueError, lambda: fs.open(at("file"), "rbt")),
            (ValueError, lambda: fs.open(at("file"), "rr")),
            (ValueError, lambda: fs.open(at("file"), "r", 0)),
            (ValueError, lambda: fs.open(at("file"), "rb", encoding="utf-8")),
            (ValueError, lambda: fs.open(at("file"), "r", newline="x")),
            (LookupError, lambda: fs.open(at("file"), "r", encoding="no such")),
            (OverflowError, lambda: fs.mkdir(at("d"), -1)),
            (OverflowError, lambda: fs.truncate(at("file"), 1 << 64)),
            (TypeError, lambda: fs.truncate(at("file"), "1")),
            (ValueError, lambda: fs.utime(at("file"), (1, 1), ns=(1, 1))),
            (ValueError, lambda: arck.connect(fs.pool, wait=-1)),
            (ValueError, lambda: arck.connect(fs.pool, wait=float("nan"))),
            (ValueError, lambda: arck.connect(fs.pool, group="g" * 65)),
            (TypeError, lambda: arck.connect(7)),
            (TypeError, lambda: arck.connect(fs.pool, group=7)),
            (TypeError, lambda: pickle.dumps(fs)),
            (TypeError, lambda: pickle.dumps(fs / "a")),
        ]
        with fs.open(at("file"), "r+b", buffering=0) as file:
            wrong += [
                (TypeError, lambda: file.readinto(b"cannot be written")),
                (TypeError, lambda: file.readinto(7)),
                (TypeError, lambda: file.write("text")),
                (TypeError, lambda: file.write(None)),
                (TypeError, lambda: file.seek("a")),
                (OverflowError, lambda: file.seek(1 << 64)),
                (OverflowError, lambda: file.pread(-1, 0)),
                (OSError, lambda: file.pread(1, -1)),
                (OSError, lambda: file.pwrite(b"x", -1)),
                (OSError, lambda: file.truncate(-1)),
                (TypeError, lambda: pickle.dumps(file)),
            ]
            for place, (kind, call) in enumerate(wrong):
                with self.subTest(place), self.assertRaises(kind):
                    call()
            # No memory is asked for that the file could not fill.
            self.assertEqual(file.read(1 << 40), b"abc")
        self.assertEqual(fs.read_bytes(at("file")), b"abc")
        with fs.open(at("file"), "rb", 0) as file:
            self.assertRaises(io.UnsupportedOperation, file.write, b"x")
            self.assertRaises(io.UnsupportedOperation, file.truncate, 0)
        with fs.open(at("file"), "wb", 0) as file:
            self.assertRaises(io.UnsupportedOperation, file.read, 1)

    def test_names_that_are_no_text(self):
        name = b"\xff\xfe name"
        self.fs.write_bytes(os.fsencode(self.at("")) + name, b"1")
        self.assertEqual(self.fs.listdir(self.folder), [os.fsdecode(name)])
        self.assertEqual(self.fs.read_bytes(self.at(os.fsdecode(name))), b"1")
        self.assertEqual(self.fs.read_bytes(pathlib.PurePosixPath(self.folder, os.fsdecode(name))), b"1")

    def test_where_nobody_serves(self):
        with self.assertRaises(FileNotFoundError):
            arck.connect("/nowhere")
        before = os.environ.pop("ARCK_POOL")
        try:
            with self.assertRaisesRegex(ValueError, "ARCK_POOL"):
                arck.connect()
        finally:
            os.environ["ARCK_POOL"] = before
        self.assertFalse(arck.connect().closed)


class AfterClosing(OnPool):
    def test_a_file(self):
        raw = self.fs.open(self.at("f"), "w+b", buffering=0)
        raw.write(b"x")
        raw.close()
        raw.close()
        calls = [
            lambda: raw.read(1),
            raw.read,
            lambda: raw.readinto(bytearray(1)),
            lambda: raw.write(b"x"),
            raw.tell,
            lambda: raw.seek(0),
            raw.truncate,
            lambda: raw.pread(1, 0),
            raw.sync,
            raw.stat,
            raw.readable,
            raw.flush,
            raw.__enter__,
        ]
        for place, call in enumerate(calls):
            with self.subTest(place):
                self.assertRaises(ValueError, call)
        self.assertIn("closed", repr(raw))

    def test_a_file_system(self):
        fs = arck.connect(self.fs.pool)
        text = fs.open(self.at("text"), "w")
        text.write("in a buffer")
        raw = fs.open(self.at("raw"), "wb", 0)
        path, store = fs / self.folder, fs.keyvalue(self.at("store"))
        fs.close()
        fs.close()
        # It has closed its files, and their buffers are written.
        self.assertTrue(text.closed and raw.closed and fs.closed)
        self.assertEqual(self.fs.read_bytes(self.at("text")), b"in a buffer")
        calls = [
            fs.listdir,
            lambda: fs.open(self.at("text")),
            lambda: fs.read_bytes(self.at("text")),
            lambda: fs.stat("/"),
            lambda: fs.rename("a", "b"),
            fs.statvfs,
            fs.__enter__().listdir,
            lambda: list(path.iterdir()),
            lambda: text.write("x"),
            lambda: raw.write(b"x"),
            lambda: fs.keyvalue("x"),
        ]
        for place, call in enumerate(calls):
            with self.subTest(place):
                self.assertRaises(ValueError, call)
        # The store has a session of its own.
        store[b"k"] = b"v"
        store.close()
        for call in (lambda: store[b"k"], lambda: len(store), lambda: store.update({b"a": b"b"}), lambda: list(store)):
            self.assertRaises(ValueError, call)

    def test_what_nobody_has_any_more(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            self.fs.open(self.at("f"), "w").write("kept")
            gc.collect()
            self.assertEqual(self.fs.read_bytes(self.at("f")), b"kept")
            fs = arck.connect(self.fs.pool)
            file = fs.open(self.at("g"), "wb", 0)
            del fs
            gc.collect()
            # A file keeps its session.
            file.write(b"x")
            self.assertEqual(self.fs.read_bytes(self.at("g")), b"x")
        raw = arck.File.__new__(arck.File)
        self.assertRaises(ValueError, raw.tell)
        raw.close()

    def test_many_are_let_go_of(self):
        self.fs.write_bytes(self.at("f"), b"x")
        for _ in range(300):
            with arck.connect(self.fs.pool) as fs:
                fs.open(self.at("f"), "rb").read()
        for _ in range(20_000):
            self.fs.open(self.at("f"), "rb", 0)
        self.assertEqual(self.fs.read_bytes(self.at("f")), b"x")


if __name__ == "__main__":
    unittest.main()
