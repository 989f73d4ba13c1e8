"""Queues: many requests in flight on one file, while the program does something else.

    ARCK_POOL=/dev/shm/my-pool python3 examples/python/queues.py
"""

import asyncio

import arck

ROW = 4096


async def fill(queue: arck.Queue, rows: int) -> None:
    """Writes rows, as many at a time as the queue takes, and makes them durable."""
    room = asyncio.Semaphore(64)

    async def write(number: int) -> None:
        async with room:
            await queue.write(number * ROW, b"%7d\n" % number * (ROW // 8))

    await asyncio.gather(*(write(number) for number in range(rows)))
    await queue.sync()


async def work(fs: arck.FileSystem, queues: arck.Queues) -> None:
    """Writes and reads as tasks of an event loop."""
    with fs.open("example-table", "w+b", buffering=0) as file:
        async with file.queue(queues) as queue:
            await fill(queue, 1000)
            # A read sees what was submitted before it, done or not.
            write = queue.write(0, b"the first row".ljust(ROW))
            row = await queue.read(0, ROW, urgent=True)
            print(row.rstrip(), await write)

            # What nobody waits for any more is not done, unless it has begun.
            try:
                await asyncio.wait_for(queue.append(b"a last row".ljust(ROW)), timeout=10)
            except TimeoutError:
                print("too late")


def count(fs: arck.FileSystem, queues: arck.Queues) -> None:
    """The same without an event loop: what is submitted is reaped."""
    with fs.open("example-table", "rb", buffering=0) as file, file.queue(queues, depth=2000) as queue:
        rows = file.stat().st_size // ROW
        for number in range(rows):
            queue.submit(arck.Request.read(number * ROW, ROW))
        print(rows, "rows,", sum(one.result().count(b"\n") for one in queue.wait(rows)), "lines")


with arck.connect() as fs, arck.Queues() as queues:
    asyncio.run(work(fs, queues))
    count(fs, queues)
