"""File objects: with the standard library, and beside the built-in open."""

import array
import csv
import io
import json
import os
import pickle
import random
import shutil
import tarfile
import tempfile
import unittest
import zipfile

from support import OnPool

import arck


class WithTheStandardLibrary(OnPool):
    def test_csv_json_pickle(self):
        rows = [["a", "b,c"], ["1", 'say "x"'], ["", "ä\n"]]
        with self.fs.open(self.at("t.csv"), "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
        with self.fs.open(self.at("t.csv"), newline="", encoding="utf-8") as file:
            self.assertEqual(list(csv.reader(file)), rows)
        value = {"a": [1, 2.5, None], "ä": "€"}
        with self.fs.open(self.at("t.json"), "w") as file:
            json.dump(value, file)
        with self.fs.open(self.at("t.json")) as file:
            self.assertEqual(json.load(file), value)
        with self.fs.open(self.at("t.pickle"), "wb") as file:
            pickle.dump(value, file)
            pickle.dump(rows, file)
        with self.fs.open(self.at("t.pickle"), "rb") as file:
            self.assertEqual((pickle.load(file), pickle.load(file)), (value, rows))

    def test_archives(self):
        with self.fs.open(self.at("a.zip"), "wb") as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr("one", "1" * 100_000, zipfile.ZIP_DEFLATED)
            archive.writestr("two", b"\0\1\2")
        with self.fs.open(self.at("a.zip"), "rb") as file, zipfile.ZipFile(file) as archive:
            self.assertEqual(archive.namelist(), ["one", "two"])
            self.assertIsNone(archive.testzip())
            self.assertEqual(archive.read("one"), b"1" * 100_000)
        with self.fs.open(self.at("a.tar"), "w+b") as file:
            with tarfile.open(fileobj=file, mode="w") as archive:
                entry = tarfile.TarInfo("x")
                entry.size = 3
                archive.addfile(entry, io.BytesIO(b"abc"))
            file.seek(0)
            with tarfile.open(fileobj=file) as archive:
                self.assertEqual(archive.extractfile("x").read(), b"abc")

    def test_copyfileobj(self):
        data = random.Random(1).randbytes(3_000_001)
        self.fs.write_bytes(self.at("from"), data)
        for length in (1000, 64 << 10, 1 << 20):
            with self.fs.open(self.at("from"), "rb") as source, self.fs.open(self.at("to"), "wb") as target:
                shutil.copyfileobj(source, target, length)
            self.assertEqual(self.fs.read_bytes(self.at("to")), data)

    def test_buffers_of_any_kind(self):
        with self.fs.open(self.at("b"), "w+b", buffering=0) as file:
            self.assertEqual(file.write(memoryview(b"0123456789")[2:6]), 4)
            self.assertEqual(file.write(array.array("i", [1, 2])), 8)
            self.assertEqual(file.write(bytearray(b"end")), 3)
            file.seek(0)
            view = memoryview(bytearray(b"." * 10))
            self.assertEqual(file.readinto(view[2:6]), 4)
            self.assertEqual(bytes(view), b"..2345....")
            numbers = array.array("i", [0, 0])
            self.assertEqual(file.readinto(numbers), 8)
            self.assertEqual(list(numbers), [1, 2])
            self.assertEqual(file.preadinto(memoryview(numbers).cast("B")[:3], 12), 3)
            self.assertEqual(bytes(numbers)[:3], b"end")
            self.assertEqual(file.readinto(bytearray()), 0)
            self.assertEqual(file.write(b""), 0)
            self.assertEqual(file.write(memoryview(bytearray(12)).cast("B", (3, 4))), 12)
            with self.assertRaises(BufferError):
                file.write(memoryview(b"abcdef")[::2])
        with self.fs.open(self.at("b"), "rb") as file:
            self.assertEqual(memoryview(file.read())[:4], b"2345")
            self.assertEqual(file.peek(1)[:1], b"")

    def test_classes_and_attributes(self):
        cases = [
            ("w", -1, io.TextIOWrapper, "w"),
            ("r", -1, io.TextIOWrapper, "r"),
            ("r+", -1, io.TextIOWrapper, "r+"),
            ("rb", -1, io.BufferedReader, "rb"),
            ("wb", 512, io.BufferedWriter, "wb"),
            ("r+b", -1, io.BufferedRandom, "rb+"),
            ("ab", -1, io.BufferedWriter, "ab"),
            ("rb", 0, arck.File, "rb"),
            ("a+", 1, io.TextIOWrapper, "a+"),
        ]
        name = self.at("c")
        for mode, buffering, kind, told in cases:
            with self.subTest(mode), self.fs.open(name, mode, buffering) as file:
                self.assertIs(type(file), kind)
                self.assertEqual((file.mode, file.name, file.closed), (told, name, False))
                self.assertEqual(file.readable(), "r" in mode or "+" in mode)
                self.assertEqual(file.writable(), mode not in ("r", "rb"))
                self.assertTrue(file.seekable())
                self.assertFalse(file.isatty())
                self.assertRaises(io.UnsupportedOperation, file.fileno)
            self.assertTrue(file.closed)

    def test_positions(self):
        with self.fs.open(self.at("p"), "w+b", buffering=0) as file:
            file.write(b"0123456789")
            self.assertEqual((file.pread(3, 4), file.tell()), (b"456", 10))
            self.assertEqual((file.pwrite(b"ab", 1), file.tell()), (2, 10))
            self.assertEqual((file.seek(-3, os.SEEK_END), file.read(2), file.seek(-9, os.SEEK_CUR)), (7, b"78", 0))
            self.assertEqual(file.readall(), b"0ab3456789")
            self.assertEqual((file.truncate(4), file.tell(), file.stat().st_size), (4, 10, 4))
            self.assertEqual((file.pread(100_000, 2), file.pread(100, 1 << 40), file.read(-1)), (b"b3", b"", b""))
            file.seek(100)
            file.write(b"!")
            self.assertEqual(file.pread(200, 0), b"0ab3" + bytes(96) + b"!")
            file.sync()

    def test_whole_files_of_all_sizes(self):
        for size in (0, 1, 4095, 65535, 65536, 65537, 200_000, 5_000_000):
            data = random.Random(size).randbytes(size)
            self.assertEqual(self.fs.write_bytes(self.at("w"), data), size)
            self.assertEqual(self.fs.read_bytes(self.at("w")), data)
            with self.fs.open(self.at("w"), "rb") as file:
                self.assertEqual(file.read(), data)

    def test_umask(self):
        before = os.umask(0o027)
        try:
            self.fs.write_bytes(self.at("u"), b"")
            self.fs.mkdir(self.at("d"))
            self.fs.open(self.at("o"), "x").close()
        finally:
            os.umask(before)
        modes = [self.fs.stat(self.at(name)).st_mode & 0o777 for name in "udo"]
        self.assertEqual(modes, [0o640, 0o750, 0o640])


class BesideTheBuiltIn(OnPool):
    """The same operations, at random, on files of the pool and of the host."""

    def compare(self, theirs, ours, operation):
        outcomes = []
        for file in (theirs, ours):
            try:
                outcomes.append(operation(file))
            except (OSError, ValueError, TypeError) as error:
                outcomes.append((type(error), getattr(error, "errno", None)))
        self.assertEqual(*outcomes)

    def operations(self, random, text):
        def data():
            length = random.choice([0, 1, 10, 1000, 9000, 100_000])
            if text:
                return "".join(random.choices("abcä€\n\r", k=length))
            return random.randbytes(length)

        size = random.choice([-1, 0, 1, 7, 100, 8192, 70_000])
        place = random.choice([0, 1, 50, 9000, 200_000])
        written = data()
        common = [
            lambda file: file.read(size),
            lambda file: file.readline(),
            lambda file: file.readline(size),
            lambda file: file.readlines(1000),
            lambda file: file.write(written),
            lambda file: file.writelines([written, written[:3]]),
            lambda file: file.flush(),
            lambda file: file.tell(),
            lambda file: file.seek(0, os.SEEK_END),
            lambda file: file.seek(0),
            lambda file: file.truncate(),
            lambda file: file.truncate(place),
            lambda file: file.truncate(-1),
        ]
        binary = [
            lambda file: file.seek(place),
            lambda file: file.seek(-place, os.SEEK_END),
            lambda file: file.seek(place - 50, os.SEEK_CUR),
            lambda file: file.seek(-1),
            lambda file: file.seek(1, 17),
            lambda file: (lambda buffer: (file.readinto(buffer), bytes(buffer)))(bytearray(max(size, 0))),
        ]
        return random.choice(common if text else common + binary)

    def test_random_operations(self):
        directory = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(directory.cleanup)
        modes = ["r", "w", "a", "x", "r+", "w+", "a+", "x+", "rb", "wb", "ab", "r+b", "w+b", "a+b"]
        for seed in range(150):
            random_ = random.Random(seed)
            their_name = os.path.join(directory.name, str(seed % 5))
            our_name = self.at(str(seed % 5))
            mode = random_.choice(modes)
            buffering = random_.choice([-1, -1, 0, 1, 16, 10_000])
            # The built-in warns of the one, and has emptied the file already when it refuses the other.
            if buffering == ("b" in mode):
                buffering = -1
            options = {} if "b" in mode else {"encoding": "utf-8", "newline": random_.choice([None, "", "\n", "\r\n"])}
            opened = []
            for opening, name in ((open, their_name), (self.fs.open, our_name)):
                try:
                    opened.append(opening(name, mode, buffering, **options))
                except (OSError, ValueError) as error:
                    opened.append((type(error), getattr(error, "errno", None)))
            with self.subTest(seed=seed, mode=mode, buffering=buffering):
                if isinstance(opened[0], tuple) or isinstance(opened[1], tuple):
                    self.assertEqual(*opened)
                    continue
                for _ in range(30):
                    self.compare(*opened, self.operations(random_, "b" not in mode))
                self.compare(*opened, lambda file: file.close())
                self.compare(*opened, lambda file: file.read())
                with open(their_name, "rb") as file:
                    self.assertEqual(file.read(), self.fs.read_bytes(our_name))


if __name__ == "__main__":
    unittest.main()
