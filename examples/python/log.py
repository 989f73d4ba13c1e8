"""A log: one thread appends, another follows, and what is not needed any more is cut off.

    ARCK_POOL=/dev/shm/my-pool python3 examples/python/log.py
"""

import threading

import arck


def follow(lines: arck.Follower, seen: list[bytes]) -> None:
    """Takes what comes, line by line, until it is told to end; a minute without anything is the end, too."""
    for line in lines:
        seen.append(line)
        if line == b"the end\n":
            return


# Small files, so that there is something to cut off.
with arck.connect() as fs, fs.log("example-log", section=4096) as log:
    seen: list[bytes] = []
    # From the end on, where this log was made before.
    lines = log.follow(log.end, separator=b"\n", timeout=60)
    reader = threading.Thread(target=follow, args=(lines, seen))
    reader.start()

    # Durable when it returns, and then the follower has it.
    log.append(b"the beginning\n")
    # Several that become durable with one wait.
    for number in range(1000):
        waiting = log.enqueue(b"event %d\n" % number)
    position = log.commit(waiting)
    log.append_all([b"nearly\n", b"the end\n"])
    reader.join()
    print(len(seen), "lines; the last event at", position)

    log.cut(position)
    print("the log begins at", log.begin, "and ends at", log.end)

    # Files, to everybody else.
    for name in sorted(fs.listdir("example-log")):
        print(name, fs.stat(f"example-log/{name}").st_size)
