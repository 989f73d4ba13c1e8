//! Shared maps of a file that another process of the group changes: what is stored through one never gets into another
//! file, and what has come to be there is found.

use crate::support::{Place, Running, run, succeeded};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(100);

/// What a script of Python's prints, to whose processes the pool is `/arck`.
fn says(size: &str, script: &str) -> String {
    let place = Place::new();
    succeeded(&crate::support::mkfs(&place.pool(), &["--size", size]));
    let script = format!("{COMMON}\n{script}");
    let command = run(&place.pool(), &[], &["python3", "-c", &script]);
    succeeded(&Running::start(command).finished(SOON))
}

/// `Other` is another process of the group, which does what it is told. `map` maps a file: `at` is one of its bytes.
const COMMON: &str = r#"
import ctypes, os, subprocess, sys
os.chdir("/arck")
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
READ, WRITE, SHARED, PAGE = 1, 2, 1, 4096
def map(file, length, protection):
    place = libc.mmap(None, length, protection, SHARED, file, 0)
    assert place != ctypes.c_void_p(-1).value, ctypes.get_errno()
    return place
def at(place): return ctypes.string_at(place, 1)
class Other:
    def __init__(self):
        text = "import os, sys\nfor line in sys.stdin: exec(line); print('done', flush=True)"
        self.it = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    def does(self, line):
        self.it.stdin.write(line + "\n"); self.it.stdin.flush()
        assert self.it.stdout.readline() == "done\n", line
file = os.open("file", os.O_RDWR | os.O_CREAT)
"#;

/// # Regression
/// The pages that the cut set free, once it was folded, were taken for the other files, while the map showed them still.
#[test]
fn stores_never_get_into_another_file() {
    for how in ["", "os.pwrite(g, b'n' * (1 << 18), 0)"] {
        let script = r#"
os.pwrite(file, b"f" * (1 << 18), 0)
place = map(file, 1 << 18, READ | WRITE)
at(place)
# What is mapped is folded where a process forks.
other = Other()
other.does("g = os.open('file', os.O_RDWR); os.ftruncate(g, 0); HOW")
other.does("exec(\"try:\\n for i in range(900): open(f'other{i}', 'w').write('o' * (1 << 18))\\nexcept OSError as error: full = error\")")
other.does("assert full.errno == 28, full")
# Nothing is called between: to this process the file is as it was.
for page in range(0, 1 << 18, PAGE): ctypes.memset(place + page, ord("X"), 16)
wrong = [name for name in os.listdir(".") if name.startswith("other") and "X" in open(name).read()]
print(wrong)
"#;
        assert_eq!(says("64M", &script.replace("HOW", how)), "[]\n", "{how}");
    }
}

#[test]
fn what_another_makes_longer_is_there() {
    for (protection, how, expected) in [
        ("READ", "os.pwrite(g, b'P' * 4096, page * 4096)", "b'P'"),
        ("READ", "os.ftruncate(g, (page + 1) * 4096)", "b'\\x00'"),
        (
            "READ | WRITE",
            "os.pwrite(g, b'P' * 4096, page * 4096)",
            "b'P'",
        ),
        (
            "READ | WRITE",
            "os.ftruncate(g, (page + 1) * 4096)",
            "b'\\x00'",
        ),
    ] {
        let script = r#"
os.pwrite(file, b"f" * PAGE, 0)
other = Other()
place = map(file, 1 << 20, PROTECTION)
other.does("g = os.open('file', os.O_RDWR)")
for page in range(1, 20):
    other.does(f"page = {page}; HOW")
    ctypes.set_errno(77)
    assert at(place + page * PAGE) == EXPECTED, page
    if PROTECTION & WRITE:
        ctypes.memset(place + page * PAGE, ord("s"), 1)
        other.does(f"assert os.pread(g, 1, {page} * 4096) == b's'")
print("all")
"#;
        let script = script.replace("PROTECTION", protection).replace("HOW", how);
        let said = says("64M", &script.replace("EXPECTED", expected));
        assert_eq!(said, "all\n", "{protection}: {how}");
    }
}

/// Behind the end there is nothing, as ever: who reads it is ended by SIGBUS, or has it caught.
#[test]
fn behind_the_end_there_is_nothing() {
    let script = r#"
os.pwrite(file, b"f" * PAGE, 0)
other = Other()
place = map(file, 1 << 20, READ)
libc.signal.restype = ctypes.c_void_p
leave = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda signal: os._exit(40 + signal))
libc.signal(7, leave)
at(place + PAGE)
"#;
    let place = Place::made();
    let script_of = format!("{COMMON}\n{script}");
    let command = run(&place.pool(), &[], &["python3", "-c", &script_of]);
    let output = Running::start(command).finished(SOON);
    assert_eq!(output.status.code(), Some(47), "{output:?}");
    let script = r#"
os.pwrite(file, b"f" * PAGE, 0)
other = Other()
place = map(file, 1 << 20, READ)
other.does("g = os.open('file', os.O_RDWR); os.pwrite(g, b'P' * 4096, 4096)")
child = os.fork()
if child == 0:
    print(at(place + PAGE), flush=True)
    at(place + 2 * PAGE)
    print("there is something", flush=True)
    os._exit(0)
print(os.WTERMSIG(os.waitpid(child, 0)[1]))
"#;
    assert_eq!(says("64M", script), "b'P'\n7\n");
}
