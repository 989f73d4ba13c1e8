"""What the tests share. They run on a pool that is served already, `$ARCK_POOL`, with the `arck` command `$ARCK`."""

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import textwrap
import traceback
import unittest

import arck

POOL = os.environ["ARCK_POOL"]
ARCK = os.environ["ARCK"]
_numbers = itertools.count()


class OnPool(unittest.TestCase):
    """A test with a session, and a directory of its own."""

    def setUp(self) -> None:
        self.fs = arck.connect(POOL)
        self.addCleanup(self.fs.close)
        self.folder = f"{type(self).__name__}-{os.getpid()}-{next(_numbers)}"
        self.fs.mkdir(self.folder)

    def at(self, name: str) -> str:
        """A path in the test's directory."""
        return f"{self.folder}/{name}"


@contextlib.contextmanager
def new_pool(size):
    """A pool of a test's own, which nobody serves."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        pool = os.path.join(directory, "pool")
        subprocess.run([ARCK, "mkfs", pool, "--size", size], check=True, stdout=subprocess.DEVNULL)
        yield pool


@contextlib.contextmanager
def served(pool):
    """A controller for it."""
    server = subprocess.Popen([ARCK, "serve", pool], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield server
    finally:
        server.terminate()
        server.wait()


def python(code: str, *before: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs a program in another interpreter."""
    return subprocess.run(
        [*before, sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


def in_child(work) -> int:
    """Runs something in a forked child; gives the status that it exits with, 99 if it raised."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = work() or 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
