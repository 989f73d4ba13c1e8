//! Announcements of pools that another user forges: `arck status` is not kept waiting by them, believes nothing
//! of them about other's pools, and prints nothing that would steer a terminal. Needs root, to become that user;
//! says so where it is not.

use crate::support::{Place, Running, Serving, arck, succeeded};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const EVE: u32 = 1003;
const BOUND: Duration = Duration::from_secs(10);

/// What Eve runs: announces in each way that there is, says that it does, and stays until its input ends.
const FORGER: &str = r#"
import os, secrets, socket, sys, threading
pool, own = sys.argv[1:]
def listener():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.bind('\0arck-serves-' + secrets.token_hex(16))
    s.listen(8)
    return s
def says(s, what):
    def serve():
        while True:
            asker, _ = s.accept()
            try:
                asker.send(what)
            except OSError:
                pass
            asker.close()
    threading.Thread(target=serve, daemon=True).start()
kept = []
# That another's pool is hers.
for _ in range(3):
    says(listener(), pool.encode())
# Pools of hers: of a name that steers a terminal and whose controller never answers, with one whose backlog is full,
# with one that tells nonsense, and one that lies about itself.
for name, kind in [('a\x1b[2J\nb', 'silent'), ('full', 'full'), ('nonsense', 'nonsense'), ('lies', 'lies')]:
    directory = os.path.join(own, name)
    os.mkdir(directory)
    open(os.path.join(directory, 'superblock'), 'w').close()
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = os.path.join(directory, 'socket')
    s.bind(path)
    os.chmod(path, 0o777)
    s.listen(0)
    kept.append(s)
    if kind == 'full':
        while True:
            c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            c.setblocking(False)
            kept.append(c)
            try:
                c.connect(path)
            except BlockingIOError:
                break
    if kind == 'nonsense':
        says(s, b'\x06' + b'\xff' * 63)
    if kind == 'lies':
        says(s, b'\x06' + b'\xff' * 64)
    says(listener(), directory.encode())
# What is no path, and what is none that leads anywhere.
for what in [b'', b'\0', b'x' * 5000, b'relative', b'/' + b'\xff' * 90, b'/proc/self/fd/0', b'/dev/tty']:
    says(listener(), what)
# Listens and never says anything.
kept.append(listener())
# Bound in the file system under such a name, with a line break that looks like a line of /proc/net/unix.
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind('\0x\n0: 00000002 00000000 00010000 0005 01 1 @arck-serves-' + 'a' * 32)
s.listen(1)
kept.append(s)
print('forged', flush=True)
sys.stdin.readline()
# So many that others would have no room.
for _ in range(300):
    kept.append(listener())
print('many', flush=True)
sys.stdin.read()
"#;

#[test]
fn announcements_that_others_forge_are_worth_nothing() {
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests become other users: run them as root (sudo -E cargo test)"
    );
    let place = Place::made();
    let pool = place.pool();
    let serving = Serving::start(&pool, &[]);
    let eves = tempfile::Builder::new()
        .prefix("arck-eve-")
        .tempdir_in("/dev/shm");
    let eves = eves.unwrap();
    chown(eves.path(), Some(EVE), Some(EVE)).unwrap();
    let mut forger = Command::new("python3");
    forger.args(["-c", FORGER]).arg(&pool).arg(eves.path());
    forger.uid(EVE).gid(EVE).current_dir("/");
    let mut forger = Running::start_told(forger);
    assert_eq!(forger.line(), "forged");

    for (arguments, are_many) in [(&[][..], false), (&["--json"], false), (&[], true)] {
        if are_many {
            forger.tell("more");
            assert_eq!(forger.line(), "many");
        }
        let since = Instant::now();
        let text = succeeded(&arck().arg("status").args(arguments).output().unwrap());
        assert!(since.elapsed() < BOUND, "{:?}", since.elapsed());
        let shows_control = |line: &str| line.chars().any(char::is_control);
        assert!(!text.lines().any(shows_control), "{text:?}");
        let of_pool = |path: &Path| {
            let path = path.to_str().unwrap().to_owned();
            text.lines()
                .filter(move |line| line.contains(&path))
                .collect::<Vec<_>>()
        };
        let ours = of_pool(&pool);
        assert_eq!(ours.len(), 1, "{text}");
        assert!(
            ours[0].contains(&serving.process.id().to_string()),
            "{text}"
        );
        assert!(!ours[0].contains("does not answer"), "{text}");
        // What answers as a controller does is a pool, and hers.
        let hers = of_pool(eves.path());
        assert!(
            hers.iter()
                .all(|line| line.contains("/lies") && line.contains("1003")),
            "{text}"
        );
        assert!(hers.len() <= 1, "{text}");
        // Nor is what says nothing told of as if it were anybody's own.
        assert!(text.lines().count() < 20, "{text}");
    }
    // Named, hers say what is wrong, in one line, and in time.
    for name in ["full", "nonsense"] {
        let since = Instant::now();
        let output = arck().arg("status").arg(eves.path().join(name)).output();
        crate::support::refused(&output.unwrap(), "the controller of ");
        assert!(since.elapsed() < BOUND, "{:?}", since.elapsed());
    }
    drop(forger);
}
