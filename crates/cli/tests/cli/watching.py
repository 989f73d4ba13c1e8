"""Who watches (`watch TOP`) and who changes (`change TOP`): each is told the number of a case, and says what came of it."""

import ctypes
import json
import os
import select
import struct
import subprocess
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
NAMES = {
    0x2: "MODIFY", 0x4: "ATTRIB", 0x8: "CLOSE_WRITE", 0x40: "MOVED_FROM", 0x80: "MOVED_TO", 0x100: "CREATE",
    0x200: "DELETE", 0x400: "DELETE_SELF", 0x800: "MOVE_SELF", 0x2000: "UNMOUNT", 0x4000: "Q_OVERFLOW",
    0x8000: "IGNORED", 0x40000000: "ISDIR",
}
ALL = 0xFFF
# IN_ACCESS, IN_OPEN, IN_CLOSE_NOWRITE: nothing is changed.
NOT_TOLD = 0x1 | 0x20 | 0x10


def add(inotify, path, mask=ALL):
    watch = libc.inotify_add_watch(inotify, os.fsencode(path), mask)
    if watch < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return watch


def read(inotify, patience, quiet):
    """Events until none comes for a while, as (watch, mask, cookie, name)."""
    events, end = [], time.monotonic() + patience
    while select.select([inotify], [], [], max(0, end - time.monotonic()))[0]:
        data, at = os.read(inotify, 1 << 16), 0
        while at < len(data):
            watch, mask, cookie, length = struct.unpack_from("iIII", data, at)
            name = data[at + 16 : at + 16 + length].rstrip(b"\0")
            events.append((watch, mask, cookie, os.fsdecode(name)))
            at += 16 + length
        end = time.monotonic() + quiet
    return events


def put(path, text, mode="w"):
    with open(path, mode) as file:
        file.write(text)


def cut(path, size):
    with open(path, "r+") as file:
        file.truncate(size)


def change_many():
    for number in range(600):
        put(f"many/{number}", "")


CASES = [
    lambda: put("d/a", ""),
    lambda: put("d/a", "hello"),
    lambda: put("d/old", "z", "r+"),
    lambda: put("d/a", "more", "a"),
    lambda: os.mkdir("d/m"),
    lambda: os.chmod("d/a", 0o600),
    lambda: os.chmod("d/m", 0o700),
    lambda: os.utime("d/a", (1, 2)),
    lambda: os.utime("d/a"),
    lambda: os.rename("d/a", "d/b"),
    # Over a file that is watched itself.
    lambda: os.rename("d/b", "d/old"),
    lambda: os.rename("d/old", "e/x"),
    lambda: os.rename("out/in", "d/in"),
    lambda: os.rename("d/in", "out/in"),
    lambda: os.symlink("l", "d/s"),
    lambda: os.unlink("d/s"),
    lambda: os.mkfifo("d/p"),
    lambda: cut("e/x", 3),
    lambda: os.rename("d/m", "e/m"),
    lambda: os.rmdir("e/m"),
    lambda: os.chmod("d", 0o777),
    lambda: os.setxattr("e/x", "user.a", b"b"),
    lambda: os.setxattr("d", "user.a", b"b"),
    lambda: os.removexattr("d", "user.a"),
    lambda: os.utime("d", (1, 2)),
    lambda: put("d/" + "n" * 255, ""),
    lambda: put(b"d/\xff\n\x01", ""),
    # What is watched itself, in a directory that is not.
    lambda: put("single", "more", "a"),
    lambda: os.link("single", "out/link"),
    lambda: os.rename("single", "moved"),
    lambda: (os.unlink("moved"), os.unlink("out/link")),
    lambda: os.rename("e", "f"),
    lambda: os.rename("f/x", "f/y"),
    lambda: os.rename("f", "out/f"),
    lambda: os.rename("out/f/y", "d/y"),
    # An exchange of two names.
    lambda: libc.renameat2(-100, b"d/y", -100, b"d/p", 2),
    lambda: (os.rename("d/y", "d/1"), os.rename("d/p", "d/2")),
    change_many,
    lambda: subprocess.run(["rm", "-r", "d"], check=True),
]


def prepare(top):
    os.umask(0)
    os.mkdir(top)
    os.chdir(top)
    for name in ["d", "e", "out", "many", "d/sub"]:
        os.mkdir(name)
    for name in ["d/old", "out/in", "single"]:
        put(name, "x")
    for file in ["d/old", "out/in", "single"]:
        os.chmod(file, 0o666)


def watch(top, patience, quiet):
    os.chdir(top)
    inotify = libc.inotify_init1(0o4000)
    watched = {add(inotify, path): path for path in ["d", "e", "d/old", "single", "many"]}
    # What is asked again has the same number, and what is taken back tells so.
    assert watched[add(inotify, "d")] == "d"
    out = add(inotify, "out")
    assert libc.inotify_rm_watch(inotify, out) == 0
    assert [event[:2] for event in read(inotify, patience, quiet)] == [(out, 0x8000)]
    print("ready", flush=True)
    for _ in sys.stdin:
        moves, said = {}, set()
        for number, mask, cookie, name in read(inotify, patience, quiet):
            if mask & NOT_TOLD:
                continue
            what = "|".join(text for bit, text in NAMES.items() if mask & bit)
            text = f"{watched.get(number)}: {what} {name}"
            if cookie:
                moves.setdefault(cookie, []).append(text)
            else:
                said.add(text)
        said.update(" -> ".join(ends) for ends in moves.values())
        print(json.dumps(sorted(said)), flush=True)


def change(top):
    os.chdir(top)
    print("ready", flush=True)
    for line in sys.stdin:
        done = CASES[int(line)]()
        assert done in (None, 0) or isinstance(done, (tuple, subprocess.CompletedProcess)), done
        print("done", flush=True)


if __name__ == "__main__":
    role, top = sys.argv[1], sys.argv[2]
    if role == "count":
        print(len(CASES))
    elif role == "prepare":
        prepare(top)
    elif role == "change":
        change(top)
    else:
        watch(top, float(sys.argv[3]), float(sys.argv[4]))
