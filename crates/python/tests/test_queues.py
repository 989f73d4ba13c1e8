"""Queues: requests in flight, awaited and reaped, beside a model, and the ends of queues, loops and interpreters."""

import asyncio
import contextlib
import errno
import functools
import gc
import io
import os
import pickle
import random
import select
import signal
import subprocess
import threading
import time
import unittest
import warnings

from support import OnPool, in_child, new_pool, python, served

import arck

# What is tested is that forks beside threads do no harm.
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)

#: A request of this length keeps a thread busy for some milliseconds, and those that overlap it waiting.
LONG = 16 << 20
Request = arck.Request


class OnQueue(OnPool):
    """A test with a file that has a queue."""

    workers = 2

    def setUp(self) -> None:
        super().setUp()
        self.queues = arck.Queues(self.workers)
        self.addCleanup(self.queues.close)
        self.file = self.fs.open(self.at("f"), "w+b", buffering=0)
        self.queue = self.file.queue(self.queues)

    def only(self, request: Request) -> arck.Completion:
        """Submits one, and waits for it."""
        number = self.queue.submit(request)
        (done,) = self.queue.wait()
        self.assertEqual(done.request, number)
        return done


@contextlib.contextmanager
def held():
    """A queue whose writes are not done until what is given with it is called.

    Another session has the file, and the controller, by whom it would change hands, is stopped.
    """
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(new_pool("64M"))
        server = stack.enter_context(served(pool))
        owner, fs = (stack.enter_context(arck.connect(pool, wait=60)) for _ in range(2))
        owner.write_bytes("f", b"-")
        file = stack.enter_context(fs.open("f", "r+b", 0))
        queue = file.queue(stack.enter_context(arck.Queues(2)))
        # Should the test be at fault nobody is to wait for ever.
        late = subprocess.Popen(["sh", "-c", f"sleep 20; kill -CONT {server.pid}"])
        stack.callback(late.wait)
        stack.callback(late.terminate)

        def go_on():
            server.send_signal(signal.SIGCONT)

        stack.callback(go_on)
        server.send_signal(signal.SIGSTOP)
        os.waitpid(server.pid, os.WUNTRACED)
        yield queue, go_on


class Reaped(OnQueue):
    def test_each_operation(self):
        numbers = [
            self.queue.submit(request)
            for request in (
                Request.write(0, b"hello"),
                Request.read(1, 100),
                Request.append(bytearray(b"!!")),
                Request.sync(),
                Request.read(0, 100, urgent=True, within=60.0),
                Request.sync(data_only=True),
            )
        ]
        self.assertEqual(numbers, sorted(numbers))
        done = {one.request: one for one in self.queue.wait(6)}
        values = [done[number].result() for number in numbers]
        self.assertEqual(values, [5, b"ello", 7, None, b"hello!!", None])
        self.assertEqual([done[number].length for number in numbers], [5, 4, 2, 0, 7, 0])
        self.assertEqual(self.file.pread(100, 0), b"hello!!")
        self.assertEqual((self.queue.count(), self.queue.reap(), self.queue.wait()), ((0, 0), [], []))

    def test_data_is_copied(self):
        data = bytearray(b"before")
        number = self.queue.submit(Request.write(0, data))
        data[:] = b"behind!"
        self.assertEqual(self.queue.wait()[0].request, number)
        self.assertEqual(self.file.pread(10, 0), b"before")

    def test_a_full_queue(self):
        queue = self.file.queue(self.queues, depth=2, weight=1000)
        for at in range(2):
            queue.submit(Request.write(at, b"x"))
        with self.assertRaises(BlockingIOError):
            queue.submit(Request.write(2, b"x"))
        while queue.count() != (0, 2):
            time.sleep(0.001)
        with self.assertRaises(BlockingIOError):
            queue.submit(Request.write(2, b"x"))
        self.assertEqual(len(queue.reap(1)), 1)
        queue.submit(Request.write(2, b"x"))
        self.assertEqual(len(queue.wait(2)), 2)

    def test_a_time_to_begin_by(self):
        done = self.only(Request.write(0, b"late", within=0))
        self.assertIsInstance(done.error, TimeoutError)
        with self.assertRaises(TimeoutError):
            done.result()
        self.assertEqual((done.value, done.length, self.file.pread(4, 0)), (None, 0, b""))
        for wrong in (-1.0, float("nan")):
            with self.assertRaises(ValueError):
                self.queue.submit(Request.sync(within=wrong))

    def test_cancelling(self):
        with held() as (queue, go_on):
            first = queue.submit(Request.write(0, b"h"))
            late = queue.submit(Request.append(b"late"))
            self.assertTrue(queue.cancel(late))
            (done,) = queue.wait()
            self.assertEqual((done.request, done.error.errno, done.error.filename), (late, errno.ECANCELED, "f"))
            self.assertEqual((done.value, done.length), (None, 0))
            go_on()
            self.assertEqual(queue.wait()[0].result(), 1)
            for over in (first, late, 1 << 60):
                self.assertFalse(queue.cancel(over))
            self.assertEqual(self.only(Request.read(0, 9)).result(), b"")

    def test_closing(self):
        for cancel in (False, True):
            queue = self.file.queue(self.queues, depth=1000)
            for at in range(1000):
                queue.submit(Request.write(at, b"x"))
            queue.close(cancel=cancel)
            queue.close()
            self.assertTrue(queue.closed)
            with self.assertRaisesRegex(ValueError, "closed"):
                queue.submit(Request.sync())
            done = queue.reap()
            self.assertEqual(len(done), 1000)
            errors = {one.error.errno for one in done if one.error}
            self.assertLessEqual(errors, {errno.ECANCELED} if cancel else set())
        with self.assertRaises(KeyError), self.file.queue(self.queues) as queue:
            queue.submit(Request.write(0, b"x"))
            raise KeyError
        self.assertTrue(queue.closed)

    def test_what_is_closed_around_it(self):
        # The file, which the queue keeps open.
        self.file.close()
        self.assertEqual(self.only(Request.write(0, b"open")).result(), 4)
        self.assertEqual(self.fs.read_bytes(self.at("f")), b"open")
        with self.assertRaises(ValueError):
            self.file.queue(self.queues)
        # The threads.
        self.queue.submit(Request.write(0, b"l" * LONG))
        self.queues.close()
        self.assertTrue(self.queue.closed)
        self.assertEqual(len(self.queue.reap()), 1)
        with self.assertRaisesRegex(ValueError, "closed"):
            self.queue.submit(Request.sync())
        # The file system.
        with arck.connect(self.fs.pool) as fs, arck.Queues() as queues:
            with fs.open(self.at("g"), "w+b", buffering=0) as file:
                queue = file.queue(queues)
            queue.submit(Request.write(0, b"l" * LONG))
            fs.close()
            self.assertEqual(len(queue.reap()), 1)
            with self.assertRaisesRegex(ValueError, "closed"):
                queue.submit(Request.sync())
        with self.assertRaisesRegex(ValueError, "closed"), self.fs.open(self.at("f"), "rb", buffering=0) as file:
            file.queue(queues)

    def test_a_file_that_is_cut(self):
        shortened = 0
        for _ in range(200):
            self.file.truncate(LONG)
            self.queue.submit(Request.write(0, b"l" * LONG))
            last = self.queue.submit(Request.read(LONG - 4, 16))
            self.file.truncate(100)
            done = {one.request: one.result() for one in self.queue.wait(2)}
            self.assertLessEqual(len(done[last]), 4)
            if self.file.stat().st_size == 100:
                shortened += 1
                break
        self.assertGreater(shortened, 0)
        self.assertEqual(self.only(Request.write(0, b"on")).result(), 2)

    def test_wrong_arguments(self):
        for wrong in (0, 1025):
            with self.assertRaises(ValueError):
                arck.Queues(wrong)
        for depth, weight in ((0, 1), (arck.Queue.DEPTH_MAX + 1, 1), (1, 0), (1, arck.Queue.WEIGHT_MAX + 1)):
            with self.assertRaisesRegex(ValueError, "depth is 1 to 65536, weight 1 to 1000"):
                self.file.queue(self.queues, depth=depth, weight=weight)
        for request, error in (
            (Request.read(-1, 1), OSError),
            (Request.read(0, -1), OverflowError),
            (Request.write(0, "text"), TypeError),
            (Request.write(0, memoryview(b"abcd")[::2]), BufferError),
            (Request.write((1 << 63) - 4, b"12345678"), OSError),
            (Request.write(1 << 63, b"1"), OverflowError),
            (Request.append(None), TypeError),
        ):
            with self.subTest(request), self.assertRaises(error):
                self.queue.submit(request)
        self.assertEqual(self.queue.count(), (0, 0))
        with self.fs.open(self.at("f"), "rb", buffering=0) as file, file.queue(self.queues) as queue:
            for request in (Request.write(0, b""), Request.append(b"")):
                with self.assertRaises(io.UnsupportedOperation):
                    queue.submit(request)
        with self.fs.open(self.at("f"), "ab", buffering=0) as file, file.queue(self.queues) as queue:
            with self.assertRaises(io.UnsupportedOperation):
                queue.submit(Request.read(0, 1))
            queue.submit(Request.write(0, b"abcd"))
            queue.submit(Request.write(1, b"X"))
            queue.wait(2)
        self.assertEqual(self.file.pread(9, 0), b"aXcd")
        with self.assertRaises(TypeError):
            arck.Queue(io.BytesIO(), self.queues)
        for thing in (self.queue, self.queues):
            with self.assertRaises(TypeError):
                pickle.dumps(thing)

    def test_a_file_with_a_buffer(self):
        with self.fs.open(self.at("g"), "w+") as file:
            file.write("text")
            with arck.Queue(file, self.queues) as queue:
                queue.submit(Request.read(0, 100))
                self.assertEqual(queue.wait()[0].result(), b"text")

    def test_a_descriptor_to_select(self):
        self.assertEqual(select.select([self.queue], [], [], 0)[0], [])
        self.queue.submit(Request.sync())
        self.assertEqual(select.select([self.queue], [], [], 60)[0], [self.queue])
        self.queue.reap()
        self.assertEqual(select.select([self.queue], [], [], 0)[0], [])

    def test_others_run_while_one_waits(self):
        """A thread waits without the interpreter's lock, and so another one can have what it waits for go on."""
        with held() as (queue, go_on):
            seen = []

            def help_on():
                time.sleep(0.05)
                seen.append(queue.count())
                go_on()

            thread = threading.Thread(target=help_on)
            queue.submit(Request.write(0, b"h"))
            thread.start()
            self.assertEqual([one.result() for one in queue.wait()], [1])
            thread.join()
            self.assertEqual(seen, [(1, 0)])

    def test_closing_waits_and_lets_others_run(self):
        with held() as (queue, go_on):
            seen = []

            def help_on():
                time.sleep(0.05)
                seen.append(queue.count())
                go_on()

            thread = threading.Thread(target=help_on)
            queue.submit(Request.write(0, b"h"))
            thread.start()
            queue.close()
            thread.join()
            self.assertEqual((seen, queue.count()), ([(1, 0)], (0, 1)))

    def test_threads(self):
        seen, count, lock = [], 300, threading.Lock()

        def work(number):
            for turn in range(count):
                request = Request.write(number * 64, bytes([65 + turn % 26]) * 64)
                while True:
                    try:
                        self.queue.submit(request)
                        break
                    except BlockingIOError:
                        pass
                done = self.queue.wait(timeout=0.001) if turn % 2 else self.queue.reap(3)
                with lock:
                    seen.extend(done)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.queue.close()
        seen += self.queue.reap()
        self.assertEqual(len({one.request for one in seen}), 4 * count)
        self.assertEqual({one.result() for one in seen}, {64})
        self.assertEqual(self.file.pread(1000, 0), bytes([65 + (count - 1) % 26]) * 256)


def awaiting(test):
    """A test that runs in an event loop."""

    @functools.wraps(test)
    def run(self):
        asyncio.run(asyncio.wait_for(test(self), 100), debug=False)

    return run


class Awaited(OnQueue):
    @awaiting
    async def test_each_operation(self):
        async with self.queue as queue:
            self.assertEqual(await queue.write(0, b"hello"), 5)
            self.assertEqual(await queue.read(1, 100), b"ello")
            self.assertEqual(await queue.append(b"!!"), 7)
            self.assertIsNone(await queue.sync())
            self.assertIsNone(await queue.sync(data_only=True, urgent=True))
            # Submitted in this order, whoever is awaited first.
            futures = queue.write(0, b"HELLO"), queue.read(0, 5), queue.append(b"?", within=60), queue.read(0, 99)
            self.assertEqual(await futures[3], b"HELLO!!?")
            self.assertEqual(await asyncio.gather(*futures), [5, b"HELLO", 8, b"HELLO!!?"])
        self.assertTrue(queue.closed)
        with self.assertRaisesRegex(ValueError, "closed"):
            queue.sync()

    @awaiting
    async def test_many_tasks(self):
        async def work(number):
            for turn in range(50):
                block = bytes([number]) * (turn + 1)
                await self.queue.write(number * 64, block)
                self.assertEqual(await self.queue.read(number * 64, turn + 1), block)

        await asyncio.gather(*(work(number) for number in range(64)))
        self.assertEqual(self.queue.count(), (0, 0))
        # The loop looks for nothing any more.
        self.assertFalse(asyncio.get_running_loop().remove_reader(self.queue.fileno()))

    @awaiting
    async def test_the_loop_runs_on(self):
        """Others have their turn while a request is done."""
        with held() as (queue, go_on):
            seen = []

            async def help_on():
                await asyncio.sleep(0.05)
                seen.append(queue.count())
                go_on()

            self.assertEqual(await asyncio.gather(queue.write(0, b"h"), help_on()), [1, None])
            self.assertEqual(seen, [(1, 0)])

            async with queue:
                seen.clear()
                queue.write(0, b"i")
                helping = asyncio.ensure_future(help_on())
            await helping

    @awaiting
    async def test_errors(self):
        with self.assertRaises(TimeoutError):
            await self.queue.write(0, b"late", within=0)
        queue = self.file.queue(self.queues, depth=2)
        first = [queue.write(0, b"x"), queue.write(1, b"x")]
        with self.assertRaises(BlockingIOError):
            queue.write(2, b"x")
        self.assertEqual(await asyncio.gather(*first), [1, 1])
        with self.assertRaises(OSError):
            queue.read(-1, 1)
        # What was refused has left nothing.
        self.assertEqual(await queue.write(2, b"x"), 1)
        self.assertEqual(queue.submit(Request.sync()) and len(queue.wait()), 1)

    @awaiting
    async def test_cancelling_a_task(self):
        with held() as (queue, go_on):
            first = queue.write(0, b"h")

            async def work():
                await queue.append(b"c")

            task = asyncio.ensure_future(work())
            await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            # As by who has no patience any more.
            with self.assertRaises(TimeoutError):
                await asyncio.wait_for(queue.append(b"late"), 0.01)
            # They are done with, while the first one is not.
            while queue.count()[0] > 1:
                await asyncio.sleep(0.001)
            read = queue.read(0, 9)
            self.assertFalse(first.done())
            go_on()
            self.assertEqual((await first, await read), (1, b"h"))

    @awaiting
    async def test_cancelling_what_has_begun(self):
        with held() as (queue, go_on):
            future = queue.write(0, b"h")
            # Both threads are idle, so it has begun soon; and nothing else can be seen of that.
            await asyncio.sleep(0.2)
            future.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await future
            await asyncio.sleep(0)
            self.assertEqual(queue.count(), (1, 0))
            go_on()
            # It is done all the same.
            self.assertEqual(await queue.read(0, 9), b"h")

    @awaiting
    async def test_closing_cancels_who_awaits(self):
        with held() as (queue, go_on):
            futures = [queue.write(0, b"h"), queue.append(b"late"), queue.sync()]
            closing = asyncio.ensure_future(queue.aclose(cancel=True))
            await asyncio.sleep(0.05)
            go_on()
            await closing
            self.assertEqual([future.cancelled() for future in futures], [False, True, True])
            self.assertEqual(await futures[0], 1)
        # By a call that is none of the loop's.
        queue = self.file.queue(self.queues)
        futures = [queue.write(0, b"l" * LONG), queue.append(b"x")]
        await asyncio.get_running_loop().run_in_executor(None, queue.close)
        self.assertEqual((await futures[0], (await futures[1]) > LONG), (LONG, True))

    @awaiting
    async def test_one_way_at_a_time(self):
        future = self.queue.write(0, b"l" * LONG)
        for use in (lambda: self.queue.submit(Request.sync()), self.queue.reap, self.queue.wait):
            with self.assertRaisesRegex(RuntimeError, "used by an event loop"):
                use()
        self.assertEqual(await future, LONG)
        self.queue.submit(Request.sync())
        with self.assertRaisesRegex(RuntimeError, "to be reaped first"):
            self.queue.sync()
        self.queue.wait()
        await self.queue.sync()

    def test_no_loop(self):
        with self.assertRaisesRegex(RuntimeError, "no running event loop"):
            self.queue.sync()
        self.assertEqual(self.queue.count(), (0, 0))

    @awaiting
    async def test_two_loops(self):
        said, held, free = [], threading.Event(), threading.Event()

        async def work():
            future = self.queue.write(0, b"l" * LONG)
            held.set()
            # The loop stands still, and has not looked.
            free.wait(60)
            said.append(await future)

        thread = threading.Thread(target=lambda: asyncio.run(work()))
        thread.start()
        held.wait(60)
        with self.assertRaisesRegex(RuntimeError, "another event loop"):
            self.queue.sync()
        free.set()
        await asyncio.get_running_loop().run_in_executor(None, thread.join)
        self.assertEqual(said, [LONG])
        # One after the other they may.
        await self.queue.sync()

    def test_a_loop_that_is_closed_with_requests_outstanding(self):
        """The queue is free again, for another loop and for none."""

        async def leave(queue):
            return [queue.write(0, b"h"), *(queue.append(b"late") for _ in range(8))]

        async def use(queue):
            self.assertEqual(await queue.write(0, b"next"), 4)
            return await queue.read(0, 99)

        def use_without(queue):
            queue.submit(Request.write(0, b"next"))
            queue.submit(Request.read(0, 99))
            return max(queue.wait(2)).result()

        for uses in (lambda queue: asyncio.run(use(queue)), use_without):
            with held() as (queue, go_on):
                loop = asyncio.new_event_loop()
                futures = loop.run_until_complete(leave(queue))
                loop.close()
                self.assertFalse(any(future.done() for future in futures))
                helping = threading.Timer(0.05, go_on)
                helping.start()
                # What had not begun is not there.
                self.assertEqual(uses(queue), b"next")
                helping.join()

    def test_nobody_is_left(self):
        """Queues that nobody has any more, with requests outstanding, of a loop that is gone and of none."""

        async def leave(queue):
            for at in range(100):
                queue.write(at, b"x")

        for turn in range(20):
            queue = self.file.queue(self.queues, depth=200)
            if turn % 2:
                loop = asyncio.new_event_loop()
                loop.run_until_complete(leave(queue))
                loop.close()
                del loop
            else:
                for at in range(100):
                    queue.submit(Request.write(at, b"x"))
            del queue
            gc.collect()
        self.assertEqual(self.only(Request.sync()).error, None)

    @awaiting
    async def test_nobody_awaits(self):
        for at in range(100):
            self.queue.write(at, b"y")
        await self.queue.sync()
        self.assertEqual(self.file.pread(100, 0), b"y" * 100)


class BesideAModel(OnQueue):
    """Random requests: what reads give, and what is in the file, is as if they had been done one after the other."""

    SIZE = 3000

    def requests(self, random_, count):
        """Requests, with what each is to give and the contents that there are at the end."""
        model = bytearray()
        made = []
        for _ in range(count):
            kind = random_.choices(("read", "write", "append", "sync"), (8, 8, 1, 1))[0]
            position, length = random_.randrange(self.SIZE), random_.choice((0, 1, 7, 100, 900))
            data = random_.randbytes(length)
            urgent = random_.random() < 0.2
            if kind == "read":
                made.append(("read", (position, length), urgent, bytes(model[position : position + length])))
            elif kind == "write":
                if length:
                    model.extend(bytes(max(position - len(model), 0)))
                    model[position : position + length] = data
                made.append(("write", (position, data), urgent, length))
            elif kind == "append":
                model += data
                made.append(("append", (data,), urgent, len(model)))
            else:
                made.append(("sync", (), urgent, None))
        return made, bytes(model)

    def rounds(self):
        seed = int(os.environ.get("ARCK_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"ARCK_TEST_SEED={seed}")
        random_ = random.Random(seed)
        for turn in range(30):
            self.file.truncate(0)
            with self.subTest(seed=seed, turn=turn):
                yield self.requests(random_, 150), random_

    def test_awaited(self):
        async def work(made):
            queues = [self.queue, self.file.queue(self.queues, weight=7)]
            running = []
            for number, (kind, arguments, urgent, value) in enumerate(made):
                queue = queues[number % 3 % 2]
                running.append((getattr(queue, kind)(*arguments, urgent=urgent), value))
                if queue.count()[0] > 50:
                    await running[-1][0]
            for future, value in running:
                self.assertEqual(await future, value)

        looked = 0
        for (made, contents), _ in self.rounds():
            asyncio.run(work(made))
            self.assertEqual(self.fs.read_bytes(self.at("f")), contents)
            looked += len(made)
        self.assertEqual(looked, 30 * 150)

    def test_reaped(self):
        looked = 0
        for (made, contents), random_ in self.rounds():
            values = {}
            for kind, arguments, urgent, value in made:
                if sum(self.queue.count()) > 100 or random_.random() < 0.05:
                    timeout = random_.choice((None, 1))
                    done = self.queue.wait(random_.randrange(1, 90), timeout)
                    looked += self.look(done, values)
                number = self.queue.submit(getattr(Request, kind)(*arguments, urgent=urgent))
                values[number] = value
            looked += self.look(self.queue.wait(arck.Queue.DEPTH_MAX), values)
            self.assertEqual(values, {})
            self.assertEqual(self.fs.read_bytes(self.at("f")), contents)
        self.assertEqual(looked, 30 * 150)

    def look(self, done, values):
        for one in done:
            self.assertEqual(one.result(), values.pop(one.request))
        return len(done)


class Ends(OnQueue):
    def test_forks(self):
        def work():
            uses = (
                lambda: self.queue.submit(Request.sync()),
                self.queue.reap,
                self.queue.wait,
                self.queue.count,
                self.queue.fileno,
                lambda: self.queue.cancel(1),
                lambda: asyncio.run(self.await_one()),
                lambda: self.fs.open(self.at("f"), "rb", buffering=0).queue(self.queues),
            )
            for use in uses:
                with self.assertRaises(OSError) as raised:
                    use()
                self.assertEqual(raised.exception.errno, errno.ESTALE)
            with arck.Queues(4) as queues, self.fs.open(self.at("f"), "r+b", buffering=0) as file:
                with file.queue(queues) as queue:
                    queue.submit(Request.write(LONG, b"child"))
                    self.assertEqual(queue.wait()[0].result(), 5)
                    # The parent's threads are not these, whatever of theirs these have: it is not they who end.
                    self.queue.close()
                    self.queues.close()
                    self._cleanups.clear()
                    self.queue = self.queues = uses = use = None
                    gc.collect()
            return 7

        self.queue.submit(Request.write(0, b"l" * LONG))
        self.assertEqual(in_child(work), 7)
        # The parent notices nothing.
        self.assertEqual(self.queue.wait()[0].result(), LONG)
        self.assertEqual(self.file.pread(9, LONG), b"child")

    async def await_one(self):
        await self.queue.sync()

    def test_forks_while_others_use_it(self):
        ended = threading.Event()

        def work():
            while not ended.is_set():
                with contextlib.suppress(BlockingIOError):
                    self.queue.submit(Request.write(0, bytes(1 << 20)))
                self.queue.wait(timeout=0.001)

        def refused():
            # Who waits for a lock of the parent's does so for ever.
            signal.alarm(30)
            for use in (lambda: self.queue.submit(Request.sync()), self.queue.reap, self.queue.wait):
                with self.assertRaises(OSError) as raised:
                    use()
                self.assertEqual(raised.exception.errno, errno.ESTALE)
            self.queue.close()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(50):
                self.assertEqual(in_child(refused), 0)
        finally:
            ended.set()
            for thread in threads:
                thread.join()

    #: A thousand requests that are outstanding, in a loop that is closed, in one that runs, and in none.
    PROGRAM = """
        import asyncio, os, sys, arck
        fs = arck.connect()
        queues = arck.Queues(1)
        file = fs.open({path!r}, "w+b", buffering=0)
        queue = file.queue(queues, depth=1000)

        async def leave():
            futures.extend(queue.write(at * 4096, b"q" * 4096) for at in range(1000))
            {inside}

        futures = []
        {outside}
    """

    def test_an_interpreter_that_ends_with_a_thousand_queued(self):
        leave = "asyncio.new_event_loop().run_until_complete(leave())"
        submit = "[queue.submit(arck.Request.write(at * 4096, b'q' * 4096)) for at in range(1000)]"
        cases = {
            "awaited": ("pass", leave, 0),
            "awaited, and the loop closed": ("pass", "asyncio.run(leave())", 0),
            "in the loop": ("sys.exit(3)", "asyncio.run(leave())", 3),
            "an exception in the loop": ("raise KeyError", "asyncio.run(leave())", 1),
            "reaped by nobody": ("pass", submit, 0),
            "the queue kept by nobody": ("pass", f"{submit}; del queue, file", 0),
            "os._exit": ("pass", f"{submit}; os._exit(5)", 5),
            "a thread that waits": (
                "pass",
                f"import threading; {submit}; threading.Thread(target=queue.wait, args=(1000, 60), daemon=True).start()",
                0,
            ),
            "killed": ("pass", f"{submit}; os.kill(os.getpid(), 9)", -9),
        }
        for name, (inside, outside, status) in cases.items():
            with self.subTest(name):
                code = self.PROGRAM.format(path=self.at("ends"), inside=inside, outside=outside)
                ended = python(code)
                self.assertEqual(ended.returncode, status, ended.stderr)
                if status != 1:
                    self.assertEqual(ended.stderr, "")
                # What was done was done as a whole.
                data = self.fs.read_bytes(self.at("ends"))
                self.assertEqual(len(data) % 4096, 0)
                for at in range(0, len(data), 4096):
                    self.assertIn(data[at : at + 4096], (bytes(4096), b"q" * 4096))


if __name__ == "__main__":
    unittest.main()
