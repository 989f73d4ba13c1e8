"""Maps: beside `mmap.mmap`, their views, files that are cut beneath them, forks, threads."""

import array
import errno
import hashlib
import io
import mmap
import os
import pickle
import random
import re
import signal
import struct
import tempfile
import threading
import unittest
import warnings

from support import OnPool, in_child, python

import arck

# What is tested is that forks beside threads do no harm.
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)

PAGE = 4096


class Maps(OnPool):
    def made(self, data=b"0123456789", name="m"):
        self.fs.write_bytes(self.at(name), data)
        return self.at(name)

    def test_access(self):
        path = self.made()
        with self.fs.open(path, "rb") as file, arck.Map(file) as read:
            self.assertEqual((read[:], len(read), memoryview(read).readonly), (b"0123456789", 10, True))
            for change in (
                lambda: read.__setitem__(0, 1),
                lambda: read.__setitem__(slice(0, 1), b"x"),
                lambda: read.write(b"x"),
                lambda: read.move(0, 1, 1),
            ):
                self.assertRaises(TypeError, change)
            self.assertRaises(PermissionError, arck.Map, file, 0, arck.ACCESS_WRITE)
            with arck.Map(file, access=arck.ACCESS_COPY) as copy:
                copy[0:2] = b"ab"
                self.assertEqual((copy[:4], read[:4]), (b"ab23", b"0123"))
        with self.fs.open(path, "r+b", 0) as file, file.map() as written:
            written[-1] = 65
            written.flush()
            written.flush(0, 10)
            self.assertRaises(ValueError, written.flush, 0, 11)
        self.assertEqual(self.fs.read_bytes(path), b"012345678A")
        with self.fs.open(path, "ab", 0) as file:
            self.assertRaises(PermissionError, file.map)

    def test_arguments(self):
        path = self.made(bytes(3 * PAGE))
        with self.fs.open(path, "r+b") as file:
            cases = [
                (dict(length=-1), ValueError),
                (dict(offset=-PAGE), ValueError),
                (dict(offset=1), ValueError),
                (dict(length=3 * PAGE + 1), ValueError),
                (dict(length=PAGE + 1, offset=2 * PAGE), ValueError),
                (dict(offset=4 * PAGE), ValueError),
                (dict(offset=3 * PAGE), ValueError),
                (dict(length=1 << 80), OverflowError),
                (dict(access=7), ValueError),
                (dict(access="r"), TypeError),
            ]
            for arguments, error in cases:
                with self.subTest(arguments):
                    self.assertRaises(error, arck.Map, file, **arguments)
            with arck.Map(file, 5, offset=PAGE) as part:
                self.assertEqual(len(part), 5)
                self.assertRaises(IndexError, part.__getitem__, 5)
                self.assertRaises(IndexError, part.__setitem__, slice(0, 2), b"abc")
                self.assertRaises(ValueError, part.__setitem__, 0, 256)
                self.assertRaises(TypeError, pickle.dumps, part)
        self.assertRaises(ValueError, arck.Map, file)
        self.made(b"")
        with self.fs.open(path, "r+b") as file:
            self.assertRaises(ValueError, arck.Map, file)
        self.assertRaises(TypeError, arck.Map, io.BytesIO(b"abc"))

    def test_with_the_standard_library(self):
        path = self.made(pickle.dumps(list(range(1000))) + b"key=value\n")
        with self.fs.open(path, "r+b", 0) as file, file.map() as map_:
            self.assertEqual(pickle.loads(map_), list(range(1000)))
            self.assertEqual(re.search(rb"(key)=(\w+)", map_).groups(), (b"key", b"value"))
            self.assertEqual(hashlib.sha256(map_).digest(), hashlib.sha256(map_[:]).digest())
            struct.pack_into("<I", map_, 4, 0x01020304)
            self.assertEqual(struct.unpack_from("<I", map_, 4), (0x01020304,))
            with memoryview(map_) as view, view[:16].cast("I") as numbers:
                numbers[0] = 77
                self.assertEqual(array.array("I", map_[:4])[0], 77)
            # From a file of the pool into a map of another, and back.
            other = self.made(bytes(100), "other")
            with self.fs.open(other, "r+b", 0) as target, target.map() as there:
                self.assertEqual(file.preadinto(memoryview(there)[10:14], 0), 4)
                self.assertEqual(there[10:14], map_[:4])
                self.assertEqual(target.write(memoryview(there)[10:14]), 4)
                self.assertEqual(there[:4], map_[:4])

    def test_what_calls_write_is_in_the_map_and_the_other_way_round(self):
        path = self.made(bytes(2 * PAGE))
        with self.fs.open(path, "r+b") as file, arck.Map(file) as map_:
            file.write(b"by a call")
            file.flush()
            self.assertEqual(map_[:9], b"by a call")
            map_[PAGE : PAGE + 3] = b"map"
            file.seek(PAGE)
            self.assertEqual(file.read(3), b"map")
        # What is in a file's buffer is written first; the file may be closed.
        with self.fs.open(path, "r+") as file:
            file.write("buffered")
            map_ = arck.Map(file)
        self.assertEqual(map_[:8], b"buffered")
        with arck.connect(self.fs.pool) as other:
            self.assertEqual(other.read_bytes(path)[PAGE : PAGE + 3], b"map")
            map_[PAGE] = ord("M")
            self.assertEqual(other.read_bytes(path)[PAGE : PAGE + 3], b"Map")
            with other.open(path, "r+b", 0) as file, self.assertRaises(OSError) as raised:
                file.map()
            self.assertEqual(raised.exception.errno, errno.ENODEV)
            for change in (lambda: other.write_bytes(path, b"x"), lambda: other.truncate(path, 1)):
                with self.assertRaises(OSError) as raised:
                    change()
                self.assertEqual(raised.exception.errno, errno.ETXTBSY)
            with other.open(path, "rb", 0) as file, file.map() as theirs:
                self.assertEqual(theirs[PAGE : PAGE + 3], b"Map")
        map_.close()
        with arck.connect(self.fs.pool) as other, other.open(path, "r+b", 0) as file, file.map() as theirs:
            theirs[0] = ord("B")
        self.assertEqual(self.fs.read_bytes(path)[:8], b"Buffered")

    def test_views_keep_it_open(self):
        fs = arck.connect(self.fs.pool)
        file = fs.open(self.made(), "r+b", 0)
        map_ = file.map()
        view = memoryview(map_)
        self.assertRaises(BufferError, map_.close)
        self.assertRaises(BufferError, fs.close)
        part = view[2:4]
        view.release()
        self.assertRaises(BufferError, map_.close)
        self.assertEqual((bytes(part), map_[0], file.pread(1, 0)), (b"23", 48, b"0"))
        part.release()
        fs.close()
        self.assertTrue(map_.closed)
        map_.close()
        for use in (
            lambda: map_[0],
            lambda: len(map_),
            lambda: memoryview(map_),
            lambda: map_.find(b"1"),
            lambda: map_.read(),
            lambda: map_.flush(),
            lambda: map_.__enter__(),
        ):
            self.assertRaises(ValueError, use)
        self.assertEqual(repr(map_), "<arck.Map [closed]>")
        # Dropped, it is closed, when its last view is.
        with self.fs.open(self.at("m"), "r+b", 0) as file:
            view = memoryview(file.map())
            view[0] = ord("x")
        view.release()
        with arck.connect(self.fs.pool) as other, other.open(self.at("m"), "r+b", 0) as file, file.map() as theirs:
            self.assertEqual(theirs[0], ord("x"))

    def test_a_file_that_is_cut(self):
        path = self.made(b"a" * (3 * PAGE))
        with self.fs.open(path, "r+b", 0) as file, file.map() as map_:
            for cut in (lambda: file.truncate(PAGE + 10), lambda: self.fs.truncate(path, 10)):
                cut()
                size = file.stat().st_size
                self.assertEqual(map_[size - 1 : size + 1], b"a\0")
                for use in (
                    lambda: map_[2 * PAGE],
                    lambda: map_[:],
                    lambda: map_.__setitem__(2 * PAGE, 1),
                    lambda: map_.find(b"no"),
                    lambda: file.write(memoryview(map_)[2 * PAGE :]),
                    lambda: file.readinto(memoryview(map_)[2 * PAGE :]) or self.fail("nothing read"),
                ):
                    with self.assertRaises(OSError) as raised:
                        file.seek(0)
                        use()
                    self.assertIn(raised.exception.errno, (errno.EIO, errno.EFAULT))
            file.truncate(3 * PAGE)
            self.assertEqual(map_[2 * PAGE], 0)

    def test_who_stores_through_a_view_of_a_file_that_was_cut_is_ended(self):
        """As with `mmap.mmap`; the interpreter's own `faulthandler` says where."""
        path = self.made(b"a" * (2 * PAGE))
        code = f"""
            import arck, faulthandler
            fs = arck.connect()
            file = fs.open({path!r}, "r+b", 0)
            map = file.map()
            view = memoryview(map)
            file.truncate(0)
            try:
                map[PAGE]
            except NameError:
                pass
            try:
                map[0]
            except OSError as error:
                print(error.errno, flush=True)
            print(view[0])
        """
        for options in ((), ("env", "PYTHONFAULTHANDLER=1")):
            self.fs.write_bytes(path, b"a" * (2 * PAGE))
            ran = python(code, *options)
            self.assertEqual((ran.returncode, ran.stdout), (-signal.SIGBUS, f"{errno.EIO}\n"), ran.stderr)
            self.assertEqual("Bus error" in ran.stderr, bool(options), ran.stderr)

    def test_the_end_of_the_interpreter(self):
        path = self.made(bytes(2 * PAGE))
        ran = python(
            f"""
            import arck
            fs = arck.connect()
            map = fs.open({path!r}, "r+b", 0).map()
            view = memoryview(map)
            view[0:4] = b"last"
            other = fs.open({path!r}, "r+b", 0).map()
            """
        )
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual(self.fs.read_bytes(path)[:4], b"last")

    def test_forks(self):
        path = self.made(b"." * (2 * PAGE))
        with self.fs.open(path, "r+b", 0) as file, file.map() as map_:
            view = memoryview(map_)

            def child():
                for use in (lambda: map_[0], lambda: map_.flush(), lambda: memoryview(map_)):
                    try:
                        use()
                        return 1
                    except OSError as error:
                        if error.errno != errno.ESTALE:
                            return 2
                # What was there before the fork is the same memory.
                view[0:5] = b"child"
                with self.fs.open(self.at("own"), "w+b", 0) as own:
                    own.write(b"x" * PAGE)
                    with own.map() as its:
                        its[0:3] = b"own"
                if self.fs.read_bytes(path)[:5] != b"child":
                    return 3
                view.release()
                map_.close()
                self.fs.close()
                return 0

            self.assertEqual(in_child(child), 0)
            self.assertEqual((map_[:5], self.fs.read_bytes(self.at("own"))[:4]), (b"child", b"ownx"))
            map_[0:6] = b"parent"
            self.assertEqual(bytes(view[:6]), b"parent")
            view.release()
        self.assertEqual(self.fs.read_bytes(path)[:6], b"parent")

    def test_forks_beside_threads_that_make_maps(self):
        path = self.made(bytes(64 * PAGE))
        ended = threading.Event()

        def work():
            while not ended.is_set():
                with self.fs.open(path, "r+b", 0) as file, file.map() as map_:
                    map_[PAGE] = 1

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()

        def child():
            with self.fs.open(self.at("c"), "w+b", 0) as file:
                file.write(bytes(PAGE))
                with file.map() as map_:
                    map_[0] = 1
            self.fs.close()

        try:
            for _ in range(20):
                self.assertEqual(in_child(child), 0)
        finally:
            ended.set()
            for thread in threads:
                thread.join()

    def test_threads_use_what_is_closed(self):
        path = self.made(bytes(64 * PAGE))
        for turn in range(30):
            with self.fs.open(path, "r+b", 0) as file:
                map_ = file.map()
            raised = []

            def use(map_=map_, raised=raised):
                try:
                    while True:
                        map_[:]
                        map_[PAGE : 2 * PAGE] = bytes(PAGE)
                        with memoryview(map_) as view:
                            view[5] = 1
                except ValueError:
                    pass
                except BaseException as error:  # noqa: BLE001: it is raised below
                    raised.append(error)

            threads = [threading.Thread(target=use) for _ in range(3)]
            for thread in threads:
                thread.start()
            while not map_.closed:
                try:
                    map_.close()
                except BufferError:
                    pass
            for thread in threads:
                thread.join()
            self.assertEqual(raised, [], f"turn {turn}")


class BesideMmap(OnPool):
    """The same operations, at random, on a map of a file of the pool and on one of the host."""

    def operations(self, random_, length):
        def place():
            return random_.choice([0, 1, length - 1, length, -1, -length, random_.randrange(-length, 2 * length)])

        a, b, step = place(), place(), random_.choice([None, None, None, 1, 2, -1, 7])
        size = random_.choice([0, 1, 10, 5000])
        data = random_.randbytes(size)
        some = random_.randbytes(random_.choice([1, 1, 2, 3]))
        whence = random_.choice([0, 1, 2, 3])
        target, source, count = abs(place()), abs(place()), random_.choice([0, 1, 100, 9000])
        part = slice(a, b, step)
        return random_.choice(
            [
                lambda m: m[a],
                lambda m: m[part],
                lambda m: m.__setitem__(a, some[0]),
                lambda m: m.__setitem__(part, random.Random(a).randbytes(len(range(length)[part]))),
                lambda m: m.__setitem__(part, data),
                lambda m: m.find(some),
                lambda m: m.find(some, a),
                lambda m: m.find(some, a, b),
                lambda m: m.rfind(some),
                lambda m: m.rfind(some, a, b),
                lambda m: m.find(b""),
                lambda m: m.read(),
                lambda m: m.read(size),
                lambda m: m.read(None),
                lambda m: m.readline(),
                lambda m: m.read_byte(),
                lambda m: m.write(data),
                lambda m: m.write_byte(some[0]),
                # What it gives is told since 3.13 only.
                lambda m: (m.seek(a, whence), m.tell())[1],
                lambda m: (m.seek(0), m.tell())[1],
                lambda m: m.tell(),
                lambda m: m.move(target, source, count),
                lambda m: (len(m), m.flush()),
                lambda m: bytes(memoryview(m)[part]),
            ]
        )

    def test_random_operations(self):
        directory = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(directory.cleanup)
        accesses = [arck.ACCESS_READ, arck.ACCESS_WRITE, arck.ACCESS_COPY]
        for seed in range(120):
            random_ = random.Random(seed)
            size = random_.choice([1, 100, PAGE, PAGE + 1, 5 * PAGE + 77])
            data = bytes(random_.choices(b"ab\n\0", k=size))
            their_name, our_name = os.path.join(directory.name, str(seed)), self.at(str(seed))
            with open(their_name, "wb") as file:
                file.write(data)
            self.fs.write_bytes(our_name, data)
            access = random_.choice(accesses)
            with open(their_name, "r+b") as theirs, self.fs.open(our_name, "r+b") as ours:
                their_map, our_map = mmap.mmap(theirs.fileno(), 0, access=access), arck.Map(ours, access=access)
                for turn in range(60):
                    operation = self.operations(random_, size)
                    outcomes = []
                    for map_ in (their_map, our_map):
                        try:
                            outcomes.append(operation(map_))
                        except (OSError, ValueError, TypeError, IndexError) as error:
                            outcomes.append(type(error))
                    self.assertEqual(*outcomes, f"seed {seed}, turn {turn}, {size} bytes, access {access}")
                self.assertEqual(their_map[:], our_map[:], f"seed {seed}")
                self.assertEqual(list(our_map), list(our_map[:]))
                self.assertEqual((our_map[0] in our_map, b"abab\n\0x" in our_map), (True, False))
                their_map.close()
                our_map.close()
            with open(their_name, "rb") as file:
                self.assertEqual(file.read(), self.fs.read_bytes(our_name), f"seed {seed}")


if __name__ == "__main__":
    unittest.main()
