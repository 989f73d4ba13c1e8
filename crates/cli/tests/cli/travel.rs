//! What of a session travels into other hands: to a forked child, and to one that gives up its rights. It looks
//! at all that it holds. (Of what is executed: `heirs.c` and `robbed.c` of the preload tests.) Needs root.
//!
//! # Regression
//! A root program that had opened a file and forked left its child the whole session: memory, arena, region
//! and every segment stayed mapped when the child became another user, which read root's private files in
//! them.

use crate::support::{Place, Running, Serving, succeeded};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(100);

/// What this process holds of a session, each by what it is to the kernel: memory that can be written, connection
/// and wake descriptor, and, of segments, all that only the pool's files' owner may read. Maps come first: to
/// look at descriptors may be to use the pool, and so to join the group anew.
const HELD: &str = r#"
import os, sys
def held():
    found = set()
    for line in open("/proc/self/maps"):
        words = line.split(None, 5)
        name = words[5].strip() if len(words) > 5 else ""
        is_pools = name.startswith((os.environ["ARCK_POOL"] + "/", "/memfd:arck-control", "/memfd:arck-group"))
        if is_pools and "w" in words[1]: found.add(("mapping", name, int(words[4])))
    for number in os.listdir("/proc/self/fd"):
        try: link, status = os.readlink(f"/proc/self/fd/{number}"), os.stat(f"/proc/self/fd/{number}")
        except OSError: continue
        if int(number) > 2 and (link.startswith(("socket:", "/memfd:arck-control", "/memfd:arck-group"))
                                or "/segments/" in link or "/arenas/" in link):
            found.add(("descriptor", link, status.st_ino))
    return found
"#;

/// Three children are looked at: one that has not used the pool, one that has become another user without a use
/// of it, and one that has become so after a use of it as root; the others, moreover, when they have used it
/// as that user.
const PARENT: &str = r#"
os.makedirs("/arck/home", 0o700)
private = open("/arck/home/private", "w+")
private.write("what only root may know"); private.flush()
nameless = os.open("/arck/home", os.O_TMPFILE | os.O_RDWR)
os.write(nameless, b"without a name")
mine = held()
assert {what for what, *_ in mine} == {"descriptor", "mapping"}, mine
def look(when):
    for left in sorted(held() & mine): print(when, *left)
def become(): os.setgroups([]); os.setresgid(1234, 1234, 1234); os.setresuid(1234, 1234, 1234)
def as_another():
    look("another user:")
    try: os.listdir("/arck/home"); print("it may look into root's directory")
    except PermissionError: pass
    look("another user, on the pool:")
def unused(): look("forked:")
def drops(): become(); as_another()
def uses(): assert os.listdir("/arck/home") == ["private"]; become(); as_another()
for child in unused, drops, uses:
    forked = os.fork()
    if forked == 0:
        child()
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(forked, 0)[1] == 0, child
private.seek(0)
print(private.read())
os.lseek(nameless, 0, 0)
print(os.read(nameless, 100).decode())
"#;

fn arck(command: &PathBuf, place: &Place, words: &[&str]) -> Command {
    let mut command = Command::new(command);
    command.args(words).env("ARCK_POOL", place.pool());
    command
}

#[test]
fn nothing_of_a_session_comes_into_other_hands() {
    // SAFETY: no arguments, no memory.
    let user = unsafe { libc::geteuid() };
    assert_eq!(
        user, 0,
        "this test becomes another user: run it as root (sudo -E cargo test)"
    );
    let (place, command) = Place::of_users(0);
    let mkfs = ["mkfs", "--size", "64M", "--mode", "1777"];
    succeeded(&arck(&command, &place, &mkfs).output().unwrap());
    let serve = ["serve", "--shared", "--ready-fd", "1"];
    let mut serving = Serving::of(&mut arck(&command, &place, &serve));
    let script = [HELD, PARENT].concat();
    let run = ["run", "--", "python3", "-c", &script];
    let output = Running::start(arck(&command, &place, &run)).finished(BOUND);
    assert_eq!(
        succeeded(&output),
        "what only root may know\nwithout a name\n"
    );
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}
