"""Logs: what is appended is there and followed, in threads, processes and sessions; waits that signals end."""

import array
import errno
import gc
import os
import random
import signal
import threading
import time
import unittest
import warnings

from support import OnPool, in_child, python

import arck

# What is tested is that forks beside threads do no harm.
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)


class Logs(OnPool):
    def setUp(self):
        super().setUp()
        self.log = self.fs.log(self.at("log"), section=4096)
        self.addCleanup(self.log.close)

    def error(self, number, work, *arguments):
        with self.assertRaises(OSError) as raised:
            work(*arguments)
        self.assertEqual(raised.exception.errno, number, raised.exception)

    def test_records(self):
        log = self.log
        self.assertEqual((log.begin, log.end, log.section), (0, 0, 4096))
        self.assertEqual(log.append(b"one"), 0)
        self.assertEqual(log.append(bytearray(b"two")), 3)
        self.assertEqual(log.append(memoryview(b".three.")[1:6]), 6)
        self.assertEqual(log.append(array.array("B", [52])), 11)
        self.assertEqual(log.append_all([b"a", memoryview(b"b"), b""]), 12)
        waiting = [log.enqueue(b"x"), log.enqueue(b"y")]
        self.assertEqual([log.commit(one) for one in reversed(waiting)], [15, 14])
        self.assertEqual(log.commit(waiting[0]), 14)
        self.assertEqual((log.read(0, 100), log.read(3, 3), log.read(16, 10)), (b"onetwothree4abxy", b"two", b""))
        self.assertEqual(self.fs.read_bytes(self.at("log/00000000000000000000")), b"onetwothree4abxy")
        self.assertEqual(log.read(0, 1 << 62), b"onetwothree4abxy")

    def test_errors(self):
        log = self.log
        for wrong in (b"", bytes(log.RECORD_MAX + 1)):
            self.assertRaises(ValueError, log.append, wrong)
            self.assertRaises(ValueError, log.enqueue, wrong)
            self.assertRaises(ValueError, log.append_all, [wrong])
        self.assertRaises(ValueError, log.append_all, [])
        self.assertRaises(BufferError, log.append, memoryview(b"abcd")[::2])
        for wrong in ("text", 5, None):
            self.assertRaises(TypeError, log.append, wrong)
            self.assertRaises(TypeError, log.commit, wrong)
        log.append(bytes(log.RECORD_MAX))
        self.error(errno.EINVAL, log.read, log.end + 1, 1)
        self.error(errno.EINVAL, log.cut, log.end + 1)
        self.error(errno.EINVAL, log.follow, log.end + 1)
        self.assertRaises(OverflowError, log.read, -1, 1)
        self.assertRaises(OverflowError, log.read, 1 << 64, 1)
        self.assertRaises(ValueError, log.follow, 0, separator=b"")
        self.assertRaises(ValueError, next, log.follow(0, timeout=-1))
        self.assertRaises(ValueError, log.follow(0).read, 0)
        for _ in range(3):
            log.append(bytes(4096))
        log.cut(log.end)
        self.assertGreater(log.begin, 0)
        self.error(errno.ENODATA, log.read, 0, 1)
        self.error(errno.ENODATA, log.follow, 0)
        # Another log's, and a log that is none.
        with self.fs.log(self.at("other")) as other:
            self.error(errno.ESTALE, other.commit, log.enqueue(b"x"))
        self.assertRaises(FileNotFoundError, self.fs.log, self.at("none"), make=False)
        self.fs.write_bytes(self.at("file"), b"")
        self.assertRaises(NotADirectoryError, self.fs.log, self.at("file"))
        self.fs.mkdir(self.at("spoilt"))
        self.fs.write_bytes(self.at("spoilt/.limit"), b"many")
        self.error(errno.EBADMSG, self.fs.log, self.at("spoilt"))
        for wrong in (dict(section=0), dict(group="g" * 65)):
            self.assertRaises(ValueError, self.fs.log, self.at("wrong"), **wrong)
        self.assertRaises(OverflowError, self.fs.log, self.at("wrong"), section=-1)

    def test_closed(self):
        log = self.fs.log(self.at("closed"))
        follower = log.follow(0)
        waiting = log.enqueue(b"left behind")
        log.close()
        log.close()
        self.assertTrue(log.closed)
        uses = [
            lambda: log.append(b"x"),
            lambda: log.append_all([b"x"]),
            lambda: log.enqueue(b"x"),
            lambda: log.commit(waiting),
            lambda: log.read(0, 1),
            lambda: log.begin,
            lambda: log.end,
            lambda: log.cut(0),
            lambda: log.follow(0),
            lambda: next(follower),
            lambda: follower.read(),
        ]
        for use in uses:
            self.assertRaises(ValueError, use)
        self.assertEqual(self.fs.read_bytes(self.at("closed/00000000000000000000")), b"left behind")
        self.assertIn("closed]", repr(log))

    def test_closed_while_followed(self):
        for turn in range(5):
            log = self.fs.log(self.at(f"closed{turn}"))
            ended = []

            def follow(log=log, ended=ended):
                try:
                    list(log.follow(0))
                except ValueError as error:
                    ended.append(error)

            threads = [threading.Thread(target=follow) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.02)
            log.append(b"x")
            log.close()
            for thread in threads:
                thread.join()
            self.assertEqual(len(ended), 3)

    def test_separators(self):
        log = self.log
        random_ = random.Random(5)
        for separator in (b"\n", b"--", b"abca"):
            records = [bytes(random_.choices(b"abc-", k=random_.randrange(50))) for _ in range(300)]
            stream = b"".join(record + separator for record in records)
            expected = [part + separator for part in stream.split(separator)[:-1]]
            begin = log.end
            follower = log.follow(begin, separator=separator, timeout=0)
            told = []
            for start in range(0, len(stream), 997):
                log.append(stream[start : start + 997])
                told += list(follower)
                self.assertEqual(follower.position, begin + sum(map(len, told)))
            self.assertEqual(told, expected)
        log.append(b"unfinished")
        self.assertEqual((list(follower), follower.read(3, 0), follower.read(99, 0)), ([], b"unf", b"inished"))

    def test_waits(self):
        log = self.log
        begun = time.monotonic()
        self.assertEqual(list(log.follow(timeout=0.3)), [])
        self.assertEqual(log.follow(0).read(timeout=0.01), b"")
        self.assertGreater(time.monotonic() - begun, 0.3)
        # Others work while it waits, and it is woken.
        threading.Timer(0.1, lambda: log.append(b"woken")).start()
        self.assertEqual(next(log.follow(timeout=60)), b"woken")
        follower = log.follow()

        def wait():
            while True:
                try:
                    follower.read(1, timeout=60)
                    return
                except ValueError:
                    # The other was looking just then.
                    time.sleep(0.001)

        thread = threading.Thread(target=wait)
        thread.start()
        until = time.monotonic() + 30
        with self.assertRaises(ValueError):
            # Until the other has begun.
            while time.monotonic() < until:
                self.assertEqual(follower.read(1, timeout=0), b"")
                # Who looks all the time, and lets go of the interpreter only while it does, lets nobody begin.
                time.sleep(0.001)
        log.append(b"x")
        thread.join()

    def test_signals_end_a_wait(self):
        class Ended(Exception):
            pass

        def handler(*_):
            raise Ended

        before = signal.signal(signal.SIGALRM, handler)
        try:
            for log in (self.log, self.fs.log(self.at("log"))):
                follower = log.follow()
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                begun = time.monotonic()
                self.assertRaises(Ended, next, follower)
                self.assertLess(time.monotonic() - begun, 10)
                # It goes on from there.
                self.log.append(b"x")
                self.assertEqual(follower.read(1, 10), b"x")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        ran = python(
            f"""
            import arck, signal, threading
            # Where the tests are run in the background it is ignored.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT)).start()
            with arck.connect() as fs, fs.log({self.at("log")!r}) as log:
                log.follow().read()
            """
        )
        self.assertIn("KeyboardInterrupt", ran.stderr)
        self.assertEqual(ran.returncode, -signal.SIGINT, ran.stderr)

    def test_threads(self):
        log, count, told = self.log, 300, []
        lines = log.follow(0, separator=b"\n", timeout=60)

        def append(number):
            for turn in range(count):
                record = b"%d %d\n" % (number, turn)
                if turn % 3:
                    log.append(record)
                else:
                    log.enqueue(record)

        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for line in lines:
            told.append(tuple(map(int, line.split())))
            if len(told) == 4 * count - 4:
                break
        for thread in threads:
            thread.join()
        log.append(b"9 9\n")
        while told[-1] != (9, 9):
            told.append(tuple(map(int, next(lines).split())))
        for number in range(4):
            self.assertEqual([turn for who, turn in told if who == number], list(range(count)))

    def test_processes(self):
        """Children append, each in a session of its own; the parent follows in its."""
        log = self.log
        log.append(b"0 parent\n")
        lines = log.follow(0, separator=b"\n", timeout=30)
        follower = log.follow(0)
        waiting = log.enqueue(b"0 enqueued\n")

        def child(number):
            for turn in range(20):
                log.append(b"%d %d\n" % (number, turn))
            if number == 1:
                try:
                    log.commit(waiting)
                    return 1
                except OSError as error:
                    if error.errno != errno.ESTALE:
                        return 2
            if follower.read(100, 10)[:9] != b"0 parent\n":
                return 3
            log.close()
            return 0 if log.closed else 4

        statuses = [in_child(lambda number=number: child(number)) for number in (1, 2, 3)]
        self.assertEqual(statuses, [0, 0, 0])
        log.commit(waiting)
        told = [next(lines) for _ in range(62)]
        for number in (1, 2, 3):
            own = [line for line in told if line.startswith(b"%d " % number)]
            self.assertEqual(own, [b"%d %d\n" % (number, turn) for turn in range(20)])

    def test_groups(self):
        group = f"python-logs-{os.getpid()}"
        with self.fs.log(self.at("g"), group=group) as log:
            code = f"""
                import arck
                with arck.connect() as fs, fs.log({self.at("g")!r}, group={group!r}) as log:
                    log.append(b"by another program")
            """
            thread = threading.Thread(target=lambda: self.assertEqual(python(code).returncode, 0))
            thread.start()
            self.assertEqual(next(log.follow(0, timeout=60)), b"by another program")
            thread.join()

    def test_dropped(self):
        follower = self.fs.log(self.at("d")).follow(0)
        gc.collect()
        # It keeps its log.
        with self.fs.log(self.at("d")) as log:
            log.append(b"x")
        self.assertEqual(follower.read(1, 30), b"x")
        ran = python(
            f"""
            import arck
            fs = arck.connect()
            log = fs.log({self.at("d")!r})
            log.enqueue(b"at the end")
            follower = log.follow(0)
            """
        )
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual(follower.read(100, 30), b"at the end")

    def test_permissions(self):
        with arck.Log(self.fs.pool, self.at("secret"), mode=0o600) as log:
            log.append(b"x")
        status = self.fs.stat(self.at("secret/00000000000000000000"))
        self.assertEqual(status.st_mode & 0o777, 0o600)


if __name__ == "__main__":
    unittest.main()
