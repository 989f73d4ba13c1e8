"""What 4 KiB cost in Python: by the package, by `open().read()` under the preload, and on tmpfs.

    target/python/bin/python crates/python/bench.py    # after make build && scripts/python

Makes a pool of its own. Three programs take turns in short rounds: one has the package, one is started by `arck run`, one
has tmpfs. Each row is the median of the rounds, in nanoseconds an operation, and the factor that of the rounds' factors.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 15
COUNT = 4000
SIZE = 4096
NAMES = 100

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ARCK = os.environ.get("ARCK", os.path.join(ROOT, "target/release/arck"))


def timed(read) -> float:
    """Nanoseconds of one read, of as many as a round has, each of them checked."""
    names = [f"{number % NAMES}" for number in range(COUNT)]
    began = time.perf_counter_ns()
    for name in names:
        if len(read(name)) != SIZE:
            raise AssertionError(name)
    return (time.perf_counter_ns() - began) / COUNT


def answer(rows) -> None:
    """A program that takes turns: a round of all its rows for each line that it reads."""
    for _ in sys.stdin:
        print(*(timed(read) for read in rows.values()), flush=True)


def with_package() -> None:
    import arck

    fs = arck.connect(wait=10)
    store = fs.keyvalue("values")
    for number in range(NAMES):
        store[b"%d" % number] = bytes(SIZE)

    def by_open(name):
        with fs.open("values/" + name, "rb") as file:
            return file.read()

    keys = {f"{number}": b"%d" % number for number in range(NAMES)}
    answer(
        {
            "store": lambda name: store[keys[name]],
            "read_bytes": lambda name: fs.read_bytes("values/" + name),
            "open": by_open,
        }
    )


def with_open(directory: str) -> None:
    for number in range(NAMES):
        path = os.path.join(directory, f"{number}")
        if not os.path.exists(path):
            with open(path, "wb") as file:
                file.write(bytes(SIZE))

    def by_open(name):
        with open(directory + "/" + name, "rb") as file:
            return file.read()

    answer({"open": by_open})


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        pool = os.path.join(directory, "pool")
        subprocess.run([ARCK, "mkfs", pool, "--size", "256M"], check=True, stdout=subprocess.DEVNULL)
        server = subprocess.Popen([ARCK, "serve", pool], stdout=subprocess.DEVNULL)
        try:
            measure(directory, pool)
        finally:
            server.terminate()
            server.wait()


def measure(directory: str, pool: str) -> None:
    files = os.path.join(directory, "files")
    os.mkdir(files)
    program = [sys.executable, os.path.abspath(__file__)]
    commands = {
        "package": [*program, "package"],
        "preload": [ARCK, "run", "--pool", pool, "--", *program, "open", "/arck/values"],
        "tmpfs": [*program, "open", files],
    }
    programs = {}
    for name, command in commands.items():
        programs[name] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "ARCK_POOL": pool}
        )
        # The first round warms up, and has made the files that the next program reads.
        turn(programs[name])
    rounds = []
    for _ in range(ROUNDS):
        rounds.append({name: turn(program) for name, program in programs.items()})
    for program in programs.values():
        program.stdin.close()
        program.wait()

    rows = {
        "store[key], of fs.keyvalue": ("package", 0),
        "fs.read_bytes(path)": ("package", 1),
        "fs.open(path, 'rb').read()": ("package", 2),
        "open(path, 'rb').read(), arck run": ("preload", 0),
        "open(path, 'rb').read(), tmpfs": ("tmpfs", 0),
    }
    print(f"4 KiB in Python {sys.version.split()[0]}, medians of {ROUNDS} rounds of {COUNT} reads")
    print(f"{'':36} {'ns':>8} {'preload / this':>15} {'tmpfs / this':>13}")
    for row, (name, place) in rows.items():
        here = [one[name][place] for one in rounds]
        factors = [statistics.median(one[other][0] / one[name][place] for one in rounds) for other in ("preload", "tmpfs")]
        print(f"{row:36} {statistics.median(here):8.0f} {factors[0]:15.2f} {factors[1]:13.2f}")


def turn(program: subprocess.Popen) -> list[float]:
    print(file=program.stdin, flush=True)
    return [float(word) for word in program.stdout.readline().split()]


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["package"]:
            with_package()
        case ["open", directory]:
            with_open(directory)
