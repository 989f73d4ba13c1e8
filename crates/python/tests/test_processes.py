"""Threads, forks, the end of the interpreter, and programs of `arck run`."""

import errno
import multiprocessing
import random
import signal
import sys
import threading
import time
import unittest
import warnings

from support import ARCK, OnPool, in_child, python

import arck

# What is tested is that forks beside threads do no harm.
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)

BLOCK = 4096


def work_of_process(argument):
    """What each process of a pool of processes does: with a file system of its parent's."""
    fs, path, number = argument
    fs.write_bytes(f"{path}/{number}", b"%d" % number)
    return int(fs.read_bytes(f"{path}/{number}"))


class Threads(OnPool):
    def together(self, count, work):
        """Runs it in threads; raises what one of them raised."""
        raised = []

        def run(number):
            try:
                work(number)
            except BaseException as error:  # noqa: BLE001: it is raised below
                raised.append(error)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if raised:
            raise raised[0]

    def test_one_file(self):
        with self.fs.open(self.at("f"), "w+b", buffering=0) as file:

            def work(number):
                for turn in range(300):
                    block = bytes([number * 16 + turn % 16]) * BLOCK
                    file.pwrite(block, number * BLOCK)
                    self.assertEqual(file.pread(BLOCK, number * BLOCK), block)
                    whole = file.pread(BLOCK, (number + 1) % 4 * BLOCK)
                    self.assertLessEqual(len(set(whole)), 1)

            self.together(4, work)

    def test_one_position(self):
        with self.fs.open(self.at("f"), "wb", buffering=0) as file:
            self.together(4, lambda number: [file.write(bytes([65 + number]) * 100) for _ in range(500)])
        data = self.fs.read_bytes(self.at("f"))
        self.assertEqual(len(data), 4 * 500 * 100)
        self.assertTrue(all(len(set(data[at : at + 100])) == 1 for at in range(0, len(data), 100)))

    def test_one_buffered_file(self):
        with self.fs.open(self.at("f"), "w+b") as file:
            self.together(4, lambda number: [file.write(bytes([65 + number]) * 100) for _ in range(500)])
            file.seek(0)
            self.assertEqual(len(file.read()), 4 * 500 * 100)

    def test_one_store(self):
        with self.fs.keyvalue(self.at("s")) as store:

            def work(number):
                random_ = random.Random(number)
                for turn in range(400):
                    own = b"%d-%d" % (number, random_.randrange(20))
                    store[own] = b"%d" % turn
                    self.assertEqual(store[own], b"%d" % turn)
                    shared = store.get(b"shared")
                    self.assertTrue(shared is None or len(set(shared)) == 1)
                    store[b"shared"] = bytes([65 + number]) * random_.randrange(1, 9000)
                    if turn % 50 == 0:
                        len(store), list(store), store.pop(own, None)

            self.together(4, work)

    def test_names(self):
        def work(number):
            for turn in range(200):
                path = self.fs / self.folder / f"{number}-{turn}"
                path.write_bytes(b"x")
                path.rename(self.at(f"done-{number}-{turn}"))
                self.fs.listdir(self.folder)

        self.together(4, work)
        self.assertEqual(len(self.fs.listdir(self.folder)), 800)

    def closed_while_used(self, thing, uses, closing):
        """Threads use something that is closed meanwhile: they meet ValueError, and nothing else."""
        begun = threading.Barrier(4)

        def work(number):
            begun.wait()
            if number == 0:
                time.sleep(0.01)
                closing()
                return
            while True:
                try:
                    uses[number % len(uses)](thing)
                except ValueError:
                    return

        self.together(4, work)

    def test_closed_while_read(self):
        self.fs.write_bytes(self.at("f"), bytes(1 << 20))
        for _ in range(20):
            raw = self.fs.open(self.at("f"), "r+b", 0)
            uses = [
                lambda file: file.pread(1 << 20, 0),
                lambda file: file.readinto(bytearray(100_000)) or file.seek(0),
                lambda file: file.pwrite(bytes(5000), 1000),
            ]
            self.closed_while_used(raw, uses, raw.close)
            fs = arck.connect(self.fs.pool)
            raw = fs.open(self.at("f"), "r+b", 0)
            self.closed_while_used(raw, uses, fs.close)
            fs = arck.connect(self.fs.pool)
            uses = [
                lambda fs: fs.read_bytes(self.at("f")),
                lambda fs: fs.write_bytes(self.at("g"), bytes(1000)),
                lambda fs: (fs.listdir(self.folder), fs.stat(self.at("f"))),
            ]
            self.closed_while_used(fs, uses, fs.close)
            store = self.fs.keyvalue(self.at("s"))
            uses = [
                lambda store: store.get(b"a"),
                lambda store: store.update({b"a": b"1", b"b": b"2"}),
                lambda store: list(store),
            ]
            self.closed_while_used(store, uses, store.close)


    def test_threads_that_end_while_it_is_closed(self):
        for turn in range(100):
            fs = arck.connect(self.fs.pool)

            def work(number, fs=fs, turn=turn):
                if number == 0:
                    fs.close()
                    return
                try:
                    for _ in range(turn):
                        fs.stat(self.folder)
                except ValueError:
                    pass

            self.together(4, work)


class Forks(OnPool):
    def test_a_child_has_a_session_of_its_own(self):
        self.fs.write_bytes(self.at("f"), b"parent")
        raw = self.fs.open(self.at("f"), "rb", 0)
        buffered = self.fs.open(self.at("buffered"), "w")
        buffered.write("once")
        store = self.fs.keyvalue(self.at("s"))
        store[b"k"] = b"parent"

        def child():
            try:
                raw.read(1)
                return 1
            except OSError as error:
                if error.errno != errno.ESTALE:
                    return 2
            if self.fs.read_bytes(self.at("f")) != b"parent" or store[b"k"] != b"parent":
                return 3
            self.fs.write_bytes(self.at("f"), b"child!")
            store[b"k"] = b"child!"
            with self.fs.open(self.at("new"), "w") as file:
                file.write("by the child")
            raw.close()
            store.close()
            self.fs.close()
            return 0 if self.fs.closed and store.closed else 4

        self.assertEqual(in_child(child), 0)
        self.assertEqual((raw.read(), store[b"k"]), (b"child!", b"child!"))
        self.assertEqual(self.fs.read_bytes(self.at("new")), b"by the child")
        buffered.close()
        self.assertEqual(self.fs.read_bytes(self.at("buffered")), b"once")

    def test_a_child_that_uses_nothing(self):
        self.assertEqual(in_child(lambda: 0), 0)
        self.assertEqual(in_child(self.fs.close), 0)
        self.assertFalse(self.fs.closed)
        self.assertEqual(self.fs.listdir(self.folder), [])
        # A grandchild too.
        self.assertEqual(in_child(lambda: in_child(lambda: len(self.fs.listdir(self.folder)))), 0)

    def test_forks_beside_threads(self):
        ends = threading.Event()
        store = self.fs.keyvalue(self.at("s"))
        self.addCleanup(store.close)
        store[b"k"] = bytes(10_000)
        self.fs.write_bytes(self.at("f"), b"")

        def work():
            while not ends.is_set():
                self.fs.write_bytes(self.at("f"), bytes(10_000))
                store[b"k"] = bytes(10_000)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):

                def child():
                    # Of a write in place others may see what has been done of it.
                    whole = len(store[b"k"]) == 10_000 and len(self.fs.read_bytes(self.at("f"))) <= 10_000
                    self.fs.close()
                    return 0 if whole else 1

                self.assertEqual(in_child(child), 0)
        finally:
            ends.set()
            for thread in threads:
                thread.join()

    def test_multiprocessing(self):
        context = multiprocessing.get_context("fork")
        processes = [
            context.Process(target=work_of_process, args=((self.fs, self.folder, number),)) for number in range(4)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            self.assertEqual(process.exitcode, 0)
        self.assertEqual(sorted(self.fs.listdir(self.folder)), ["0", "1", "2", "3"])


class Ends(OnPool):
    def test_files_that_are_open_are_written(self):
        code = f"""
            import arck
            fs = arck.connect()
            text = fs.open({self.at("text")!r}, "w")
            text.write("text ä")
            binary = fs.open({self.at("binary")!r}, "wb")
            binary.write(b"bytes")
            store = fs.keyvalue({self.at("s")!r})
            store[b"k"] = b"v"
            {{}}
        """
        for end, status in (("", 0), ("raise SystemExit(3)", 3), ("1 / 0", 1), ("import sys; sys.exit(0)", 0)):
            with self.subTest(end):
                ended = python(code.format(end), PYTHONUTF8="1")
                self.assertEqual(ended.returncode, status, ended.stderr)
                self.assertNotIn("arck:", ended.stderr)
                self.assertEqual(self.fs.read_bytes(self.at("text")), "text ä".encode())
                self.assertEqual(self.fs.read_bytes(self.at("binary")), b"bytes")
                self.assertEqual(self.fs.read_bytes(self.at("s/k")), b"v")
                for name in ("text", "binary", "s/k"):
                    self.fs.remove(self.at(name))

    def test_a_thread_that_is_at_work(self):
        code = f"""
            import arck, threading
            fs = arck.connect()
            store = fs.keyvalue({self.at("s")!r})
            def work():
                while True:
                    fs.write_bytes({self.at("f")!r}, b"whole")
                    store[b"k"] = b"whole"
            for _ in range(3):
                threading.Thread(target=work, daemon=True).start()
            import time; time.sleep(0.2)
        """
        ended = python(code)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn(self.fs.read_bytes(self.at("f")), (b"", b"whole"))
        self.assertEqual(self.fs.read_bytes(self.at("s/k")), b"whole")

    def test_a_forked_child_that_ends_as_a_program_does(self):
        code = f"""
            import arck, os, sys
            fs = arck.connect()
            file = fs.open({self.at("f")!r}, "w")
            file.write("once")
            if os.fork() == 0:
                sys.exit(5)
            print(os.waitstatus_to_exitcode(os.wait()[1]))
        """
        ended = python(code)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "5\n", ""))
        self.assertEqual(self.fs.read_bytes(self.at("f")), b"once")

    def test_who_is_killed(self):
        code = f"""
            import arck, os
            fs = arck.connect()
            fs.write_bytes({self.at("f")!r}, b"returned")
            file = fs.open({self.at("g")!r}, "w")
            file.write("in a buffer")
            os.kill(os.getpid(), 9)
        """
        self.assertEqual(python(code).returncode, -signal.SIGKILL)
        self.assertEqual(self.fs.read_bytes(self.at("f")), b"returned")
        self.assertEqual(self.fs.read_bytes(self.at("g")), b"")


class Beside(OnPool):
    def test_a_program_of_arck_run(self):
        code = f"""
            import arck, os
            folder = {self.folder!r}
            for group in (None, os.environ["ARCK_GROUP"]):
                with arck.connect(group=group) as fs:
                    for turn in range(50):
                        fs.write_bytes(folder + "/x", b"fs %d" % turn)
                        with open("/arck/" + folder + "/x", "rb") as file:
                            assert file.read() == b"fs %d" % turn
                        with open("/arck/" + folder + "/x", "wb") as file:
                            file.write(b"open %d" % turn)
                        assert fs.read_bytes(folder + "/x") == b"open %d" % turn
                    # The link of the one leads where it does for the other.
                    link = f"{{folder}}/link {{group}}"
                    os.symlink("/arck/" + folder + "/x", "/arck/" + link)
                    assert fs.read_bytes(link) == b"open 49"
                    child = os.fork()
                    if child == 0:
                        same = fs.read_bytes(folder + "/x") == b"open 49" == open("/arck/" + link, "rb").read()
                        os._exit(0 if same else 1)
                    assert os.waitpid(child, 0)[1] == 0
                    store = fs.keyvalue(folder + "/store")
                    store[b"k"] = b"v"
                    assert open("/arck/" + folder + "/store/k").read() == "v"
                    left = fs.open(f"{{folder}}/left {{group}}", "w")
                    left.write("buffered")
            print("done")
        """
        ended = python(code, ARCK, "run", "--pool", self.fs.pool, "--")
        self.assertEqual((ended.returncode, ended.stdout), (0, "done\n"), ended.stderr)
        left = [name for name in self.fs.listdir(self.folder) if name.startswith("left")]
        self.assertEqual([self.fs.read_bytes(self.at(name)) for name in left], [b"buffered"] * 2)


if __name__ == "__main__":
    sys.exit(unittest.main())
