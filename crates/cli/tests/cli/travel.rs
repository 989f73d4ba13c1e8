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

/// A session is opened again and again, by a program that becomes somebody else and back, and once while the
/// controller, whose process is the first argument, is stopped: so it is in the middle of that when children are
/// made. None of them has a descriptor that was not there before the first session, but for those that stand for
/// the directory that it is listing, and for its locks, which are any child's.
const OPENING: &str = r#"
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
rights = ("socket:", "anon_inode:", "/memfd:arck-control", "/memfd:arck-group", os.environ["ARCK_POOL"] + "/")
def held():
    links = set()
    for number in os.listdir("/proc/self/fd"):
        try: link = os.readlink(f"/proc/self/fd/{number}")
        except OSError: continue
        if int(number) > 2 and link.startswith(rights) and "/lock-files/" not in link: links.add(link)
    return links
before = held()
def look(when):
    child = os.fork()
    if child == 0:
        left = held() - before
        if left: os.write(1, f"{when}: {sorted(left)}\n".encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
controller = int(sys.argv[1])
os.kill(controller, signal.SIGSTOP)
opening = threading.Thread(target=os.listdir, args=["/arck"])
opening.start()
time.sleep(0.3)
try:
    assert opening.is_alive() and held() - before, held()
    look("it waits for the controller")
finally: os.kill(controller, signal.SIGCONT)
opening.join()
opened, stops = 0, False
def open_again():
    global opened
    while not stops:
        for user in 1234, 0:
            os.seteuid(user)
            os.listdir("/arck")
            opened += 1
opening = threading.Thread(target=open_again)
opening.start()
for number in range(300): look(f"child {number}, session {opened}")
stops = True
opening.join()
print("enough" if opened > 20 else opened)
"#;

fn arck(command: &PathBuf, place: &Place, words: &[&str]) -> Command {
    let mut command = Command::new(command);
    command.args(words).env("ARCK_POOL", place.pool());
    command
}

/// What a script of root's prints, on a pool that is served to all; it is told the controller's process.
fn told_by(script: &str) -> String {
    // SAFETY: no arguments, no memory.
    let user = unsafe { libc::geteuid() };
    assert_eq!(
        user, 0,
        "these tests become another user: run them as root (sudo -E cargo test)"
    );
    let (place, command) = Place::of_users(0);
    let mkfs = ["mkfs", "--size", "64M", "--mode", "1777"];
    succeeded(&arck(&command, &place, &mkfs).output().unwrap());
    let serve = ["serve", "--shared", "--ready-fd", "1"];
    let mut serving = Serving::of(&mut arck(&command, &place, &serve));
    let controller = serving.process.id().to_string();
    let run = ["run", "--", "python3", "-c", script, &controller];
    let output = Running::start(arck(&command, &place, &run)).finished(BOUND);
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
    succeeded(&output)
}

#[test]
fn nothing_of_a_session_comes_into_other_hands() {
    assert_eq!(
        told_by(&[HELD, PARENT].concat()),
        "what only root may know\nwithout a name\n"
    );
}

/// Who was forked while another thread opened a session had the connection and all that the controller had sent.
#[test]
fn nor_of_one_that_is_being_opened() {
    assert_eq!(told_by(OPENING), "enough\n");
}
