"""Pools that nobody serves yet, whose controller ends, or that are full."""

import contextlib
import errno
import threading
import time
import unittest

from support import new_pool, served

import arck


class Pools(unittest.TestCase):
    def test_either_file_system_finds_what_the_other_has_made(self):
        deep = "/".join(["d"] * 30)
        with new_pool("64M") as pool, served(pool):
            with arck.connect(pool, wait=30, fs="fpfs", group="deep") as fs:
                fs.makedirs(deep)
                fs.write_bytes(deep + "/file", b"text")
                with self.assertRaises(OSError) as refused:
                    arck.connect(pool, group="deep", fs="arckfs")
                self.assertEqual(refused.exception.errno, errno.EBUSY)
                self.assertIn("--own-group", str(refused.exception))
                with arck.connect(pool) as other:
                    self.assertEqual(other.read_bytes(deep + "/file"), b"text")
        with self.assertRaisesRegex(ValueError, "ext4 is no file system; there are: arckfs, fpfs"):
            arck.connect("/nowhere", fs="ext4")

    def test_nobody_serves_it(self):
        with new_pool("64M") as pool:
            with self.assertRaisesRegex(ConnectionRefusedError, "arck serve"):
                arck.connect(pool)
            began = time.monotonic()
            with self.assertRaises(ConnectionRefusedError):
                arck.connect(pool, wait=0.3)
            self.assertGreater(time.monotonic() - began, 0.25)
            with self.assertRaises(ConnectionRefusedError):
                arck.Store(pool, "s")

    def test_it_is_waited_for(self):
        with new_pool("64M") as pool, contextlib.ExitStack() as stack:
            starting = threading.Timer(0.3, lambda: stack.enter_context(served(pool)))
            starting.start()
            with arck.connect(pool, wait=60) as fs:
                self.assertEqual(fs.listdir(), [])
            starting.join()

    def test_the_next_controller(self):
        with new_pool("64M") as pool:
            with served(pool) as server:
                fs = arck.connect(pool, wait=60)
                file = fs.open("f", "wb", 0)
                file.write(b"before")
                server.kill()
                server.wait()
                # What the session owns needs no controller.
                file.write(b" and without")
            with served(pool):
                file.write(b" and after")
                fs.mkdir("d")
                fs.close()
                with arck.connect(pool, wait=60) as fs:
                    self.assertEqual(fs.read_bytes("f"), b"before and without and after")

    def test_it_is_full(self):
        with new_pool("32M") as pool, served(pool), arck.connect(pool, wait=60) as fs:
            with self.assertRaises(OSError) as raised:
                for number in range(100):
                    fs.write_bytes(f"{number}", bytes(1 << 20))
            self.assertEqual(raised.exception.errno, errno.ENOSPC)
            file = fs.open("buffered", "wb")
            with self.assertRaises(OSError) as raised:
                for _ in range(100):
                    file.write(bytes(1 << 20))
            self.assertEqual(raised.exception.errno, errno.ENOSPC)
            for name in fs.listdir():
                fs.remove(name)
            file.close()
            fs.write_bytes("again", bytes(1 << 20))
            self.assertEqual(len(fs.read_bytes("again")), 1 << 20)

    def test_larger_than_memory(self):
        with new_pool("64M") as pool, served(pool), arck.connect(pool, wait=60) as fs:
            fs.write_bytes("sparse", b"x")
            fs.truncate("sparse", 1 << 42)
            # Python's own error for what it has no memory for.
            with self.assertRaises((MemoryError, OverflowError)):
                fs.read_bytes("sparse")
            with fs.open("sparse", "rb", 0) as file:
                self.assertEqual(file.pread(2, (1 << 42) - 2), b"\0\0")


if __name__ == "__main__":
    unittest.main()
