"""Spools: what is queued outlives the program that has queued it; and what is refused."""

import asyncio
import errno
import gc
import pickle
import signal
import unittest
import warnings

from support import OnPool, in_child, new_pool, python, served

import arck

# What is tested is that a forked child leaves a spool alone.
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)

Request = arck.Request
NOTHING = arck.Replayed(0, 0, 0)

#: Queues requests on two files, and dies of SIGKILL. The one worker has longer ones to do first, which are urgent.
KILLED = """
    import os, signal
    import arck

    fs = arck.connect()
    spool = fs.spool("spool", 4 << 20)
    assert spool.replayed == (0, 0, 0), spool.replayed
    queues = arck.Queues(1)
    names = ("blocks", "lines", "long")
    blocks, lines, long = (fs.open(name, "r+b", buffering=0) for name in names)
    blocks = blocks.queue(queues, depth=1024, spool=spool)
    lines = lines.queue(queues, depth=1024, spool=spool, path="/lines")
    long = long.queue(queues)
    # What it reads into is there before it is submitted; then the one worker is busy for longer than it takes to queue the others.
    long.submit(arck.Request.read(0, 256 << 20, urgent=True))
    for number in range(500):
        # The same places again and again: the last one stays.
        blocks.submit(arck.Request.write(number % 50 * 512, bytes([number % 251]) * 512))
        lines.submit(arck.Request.append(b"%d\\n" % number))
    print("queued", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Killed(unittest.TestCase):
    def kill(self, pool: str) -> None:
        """Has a program queue requests there and be killed."""
        with arck.connect(pool, wait=60) as fs:
            for name in ("blocks", "lines"):
                fs.write_bytes(name, b"")
            fs.write_bytes("long", bytes(256 << 20))
        child = python(KILLED, ARCK_POOL=pool)
        self.assertEqual((child.returncode, child.stdout), (-signal.SIGKILL, "queued\n"), child.stderr)

    def test_all_that_was_queued_is_done_in_order(self):
        left = 0
        for turn in range(40):
            # The worker may have come to all of it.
            if turn >= 3 and left > 0:
                break
            with new_pool("512M") as pool, served(pool):
                self.kill(pool)
                with arck.connect(pool, wait=60) as fs:
                    before = fs.read_bytes("lines").count(b"\n")
                    with fs.spool("spool") as spool:
                        left += spool.replayed.requests
                        self.assertGreaterEqual(spool.replayed.requests, 500 - before)
                        self.assertEqual(spool.replayed.dropped, 0)
                    lines = b"".join(b"%d\n" % number for number in range(500))
                    self.assertEqual(fs.read_bytes("lines"), lines)
                    blocks = b"".join(bytes([number % 251]) * 512 for number in range(450, 500))
                    self.assertEqual(fs.read_bytes("blocks"), blocks)
                    # What was done is not done again.
                    with fs.spool("spool") as spool:
                        self.assertEqual(spool.replayed, NOTHING)
                    self.assertEqual(fs.read_bytes("lines"), lines)
        self.assertGreater(left, 0)

    def test_files_that_were_moved_are_found_and_those_that_are_gone_are_dropped(self):
        done = dropped = 0
        for _ in range(40):
            if done > 0 and dropped > 0:
                break
            with new_pool("512M") as pool, served(pool):
                self.kill(pool)
                with arck.connect(pool, wait=60) as fs:
                    fs.makedirs("a/b")
                    fs.rename("lines", "a/b/moved")
                    fs.write_bytes("lines", b"new")
                    fs.remove("blocks")
                    with fs.spool("spool") as spool:
                        done += spool.replayed.requests
                        dropped += spool.replayed.dropped
                    self.assertEqual(fs.read_bytes("a/b/moved")[-4:], b"499\n")
                    self.assertEqual(fs.read_bytes("lines"), b"new")
                    self.assertFalse(fs.exists("blocks"))
        self.assertGreater(done, 0)
        self.assertGreater(dropped, 0)


class OnSpool(OnPool):
    """A test with a spool, and a file that may have queues with it."""

    def setUp(self) -> None:
        super().setUp()
        self.queues = arck.Queues(2)
        self.addCleanup(self.queues.close)
        self.file = self.fs.open(self.at("f"), "w+b", buffering=0)
        self.spool = self.fs.spool(self.at("spool"), 1 << 20)

    def refused(self, number: int, use) -> OSError:
        """The error of something that is refused with this number."""
        with self.assertRaises(OSError) as raised:
            use()
        self.assertEqual(raised.exception.errno, number, raised.exception)
        return raised.exception


class Refused(OnSpool):
    def test_what_is_no_spool_of_ours(self):
        self.fs.write_bytes(self.at("text"), b"some text")
        self.fs.chmod(self.at("text"), 0o600)
        error = self.refused(errno.EBADMSG, lambda: self.fs.spool(self.at("text")))
        self.assertEqual(error.filename, self.at("text"))
        self.assertEqual(self.fs.read_bytes(self.at("text")), b"some text")
        self.fs.write_bytes(self.at("shared"), b"")
        self.fs.chmod(self.at("shared"), 0o622)
        self.assertIsInstance(
            self.refused(errno.EPERM, lambda: self.fs.spool(self.at("shared"))), PermissionError
        )
        # One that does not come about leaves nothing.
        self.refused(errno.EINVAL, lambda: self.fs.spool(self.at("small"), 1))
        self.assertFalse(self.fs.exists(self.at("small")))
        self.assertEqual(self.fs.stat(self.at("spool")).st_mode & 0o777, 0o600)

    def test_one_that_is_open(self):
        self.refused(errno.EBUSY, lambda: self.fs.spool(self.at("spool")))
        with arck.connect(self.fs.pool) as other:
            self.refused(errno.EBUSY, lambda: other.spool(self.at("spool")))
        # Queues keep it.
        queue = self.file.queue(self.queues, spool=self.spool)
        self.spool.close()
        self.spool.close()
        self.refused(errno.EBUSY, lambda: self.fs.spool(self.at("spool")))
        queue.submit(Request.append(b"done"))
        queue.close()
        self.assertEqual(self.fs.read_bytes(self.at("f")), b"done")
        with self.assertRaises(ValueError):
            self.file.queue(self.queues, spool=self.spool)
        del queue
        gc.collect()
        with self.fs.spool(self.at("spool")) as spool:
            self.assertEqual(spool.replayed, NOTHING)
            self.assertFalse(spool.closed)
        self.assertTrue(spool.closed)

    def test_other_files(self):
        def queue(file, **named):
            return lambda: file.queue(self.queues, spool=self.spool, **named).close()

        self.fs.write_bytes(self.at("other"), b"")
        queue(self.file)()
        queue(self.file, path="/" + self.at("f"))()
        error = self.refused(errno.EINVAL, queue(self.file, path=self.at("other")))
        self.assertEqual(error.filename, self.at("other"))
        self.refused(errno.ENOENT, queue(self.file, path=self.at("none")))
        with self.fs.open(self.at("spool"), "r+b", buffering=0) as own:
            self.refused(errno.EINVAL, queue(own))
        with self.assertRaises(ValueError):
            queue(self.file, depth=0)()
        with self.assertRaises(ValueError):
            self.file.queue(self.queues, path=self.at("f"))
        with self.assertRaises(TypeError):
            pickle.dumps(self.spool)

    def test_what_is_promised(self):
        with self.file.queue(self.queues, spool=self.spool) as queue:
            for late in (Request.write(0, b"late", within=1.0), Request.append(b"late", within=1.0)):
                self.refused(errno.EINVAL, lambda late=late: queue.submit(late))
            self.refused(errno.EMSGSIZE, lambda: queue.submit(Request.write(0, bytes(600 << 10))))
            number = queue.submit(Request.write(0, bytes(400 << 10)))
            self.assertFalse(queue.cancel(number))
            queue.submit(Request.read(0, 1, within=60.0))
            self.assertEqual([done.error for done in queue.wait(2)], [None, None])

    def test_awaited(self):
        async def work():
            async with self.file.queue(self.queues, spool=self.spool) as queue:
                return await asyncio.gather(queue.append(b"one"), queue.append(b"two"), queue.sync())

        self.assertEqual(asyncio.run(work()), [3, 6, None])

    def test_forks(self):
        def work():
            # Its own session, with a file of its own.
            with self.fs.open(self.at("f"), "r+b", buffering=0) as file, arck.Queues(1) as queues:
                self.refused(errno.ESTALE, lambda: file.queue(queues, spool=self.spool))
            self.spool.close()
            self.refused(errno.EBUSY, lambda: self.fs.spool(self.at("spool")))

        self.assertEqual(in_child(work), 0)
        # Its descriptor is not what keeps it.
        self.refused(errno.EBUSY, lambda: self.fs.spool(self.at("spool")))
        with self.file.queue(self.queues, spool=self.spool) as queue:
            queue.submit(Request.append(b"parent"))
        self.assertEqual(self.file.pread(100, 0), b"parent")


class Ends(OnSpool):
    def test_the_file_system_lets_it_go(self):
        with arck.connect(self.fs.pool) as other:
            spool = other.spool(self.at("others"), 1 << 20)
            file = other.open(self.at("f"), "r+b", buffering=0)
            queue = file.queue(self.queues, depth=64, spool=spool)
            for _ in range(64):
                queue.submit(Request.append(b"x" * 4096))
        # What was promised is done.
        self.assertEqual(self.fs.stat(self.at("f")).st_size, 64 * 4096)
        self.assertTrue(spool.closed)
        with self.assertRaises(ValueError):
            other.spool(self.at("others"))
        del queue
        gc.collect()
        with self.fs.spool(self.at("others")) as spool:
            self.assertEqual(spool.replayed, NOTHING)


if __name__ == "__main__":
    unittest.main()
