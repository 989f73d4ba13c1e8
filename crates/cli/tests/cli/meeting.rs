//! Programs that meet in the kernel, of several users and at a controller that is killed. Those of several users need
//! root, to become them.

use crate::support::{Place, Running, run, succeeded};
use crate::users::{ANN, BOB, DENIED, EVE, Users};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// What a script prints that runs while another one does.
fn told(running: Running) -> String {
    succeeded(&running.finished(PATIENCE))
}

/// The same of one whose controller was killed, of which `arck run` says a line each time.
fn said_through_restarts(running: Running) -> String {
    let output = running.finished(PATIENCE);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_expected = |line: &str| line.contains("another one is started");
    assert!(output.status.success(), "{output:?}");
    assert!(told.lines().all(is_expected), "{told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn named_pipes_between_users_are_opened_as_modes_say() {
    let mut users = Users::new();
    users.serve(&["--shared"]);
    users.says(
        ANN,
        "mkfifo -m 622 inbox; mkfifo -m 644 outbox; mkfifo -m 640 team; chgrp 2000 team; mkfifo -m 600 own; \
         mkdir -m 700 home; mkfifo -m 666 home/hidden",
    );
    // Who may not is told so, before he would wait for anybody.
    for script in [
        "cat inbox",
        "cat <>inbox",
        "echo x >outbox",
        "echo x >team",
        "echo x >own",
        "cat own",
        "cat home/hidden",
        "chmod 666 own",
    ] {
        let says = match script {
            "chmod 666 own" => "not permitted",
            _ => DENIED,
        };
        users.fails(BOB, script, says);
    }
    users.fails(EVE, "cat team", DENIED);
    // Each waits for the other, whoever comes first.
    for is_reader_first in [true, false] {
        for (reader, read, writer, write) in [
            (ANN, "cat inbox", EVE, "echo to ann >inbox"),
            (EVE, "cat outbox", ANN, "echo to ann >outbox"),
            (BOB, "cat team", ANN, "echo to ann >team"),
            (ANN, "cat own", (0, [0].as_slice()), "echo to ann >own"),
            ((0, [0].as_slice()), "cat own", ANN, "echo to ann >own"),
        ] {
            let (reads, writes) = (users.running(reader, read), users.running(writer, write));
            let (first, second) = match is_reader_first {
                true => (reads, writes),
                false => (writes, reads),
            };
            let first = Running::start(first);
            std::thread::sleep(Duration::from_millis(300));
            let said = [told(Running::start(second)), told(first)].concat();
            assert_eq!(said, "to ann\n", "{read} {write}");
        }
    }
    // What was opened goes on when the right to open it has gone.
    let script = "exec 3<outbox; echo open; cat <&3";
    let reading = Running::start(users.running(BOB, script));
    let script = "exec 3>outbox; chmod 600 outbox; sleep 0.5; echo still >&3";
    assert_eq!(users.says(ANN, script), "");
    assert_eq!(told(reading), "open\nstill\n");
    users.fails(BOB, "cat outbox", DENIED);
    // A descriptor of one is no way to the other end, by its name.
    users.says(ANN, "chmod 644 outbox");
    let writing = Running::start(users.running(ANN, "exec 3>outbox; sleep 2"));
    users.fails(BOB, "exec 3<outbox; echo x >/proc/self/fd/3", DENIED);
    told(writing);
    users.end();
}

/// Makes and opens as many as it gets, and says how many; keeps them until its input ends.
const HOARDER: &str = r#"
import os, sys
opened = []
os.mkdir("hoard")
for number in range(3000):
    name = f"hoard/{number}"
    os.mkfifo(name)
    try:
        opened.append(os.open(name, os.O_RDWR))
    except OSError as error:
        print(len(opened), os.strerror(error.errno), flush=True)
        break
sys.stdin.readline()
"#;

#[test]
fn who_opens_thousands_of_named_pipes_leaves_others_theirs() {
    let mut users = Users::new();
    users.serve(&["--shared"]);
    let hoards = format!("ulimit -n 4096; exec python3 -c '{HOARDER}'");
    let mut hoarding = Running::start_told(users.running(EVE, &hoards));
    assert_eq!(hoarding.line(), "1024 Too many open files in system");
    users.fails(
        EVE,
        "mkfifo more; exec 3<>more",
        "Too many open files in system",
    );
    let meets = "mkfifo own; echo here >own & cat own; wait; rm own";
    assert_eq!(users.says(BOB, meets), "here\n");
    hoarding.tell("");
    hoarding.finished(PATIENCE);
    // What nobody has open counts no more.
    let meets = "mkfifo other; echo again >other & cat other; wait";
    assert_eq!(users.says(EVE, meets), "again\n");
    users.end();
}

/// What is open goes on when the controller is killed, and who opens then meets it; who waits, waits on.
const OPENERS: &str = r#"
import os, sys, threading
os.mkfifo("/arck/open"); os.mkfifo("/arck/waited")
reader = os.open("/arck/open", os.O_RDONLY | os.O_NONBLOCK)
writer = os.open("/arck/open", os.O_WRONLY)
come = []
def wait():
    with open("/arck/waited", "rb") as file:
        come.append(file.read())
thread = threading.Thread(target=wait)
thread.start()
for round in range(3):
    print("ready", flush=True)
    sys.stdin.readline()
    os.write(writer, b"kept")
    assert os.read(reader, 9) == b"kept"
    other = os.open("/arck/open", os.O_WRONLY | os.O_NONBLOCK)
    os.write(other, b"met")
    os.close(other)
    assert os.read(reader, 9) == b"met"
    assert os.fstat(reader).st_ino == os.stat("/arck/open").st_ino
other = os.open("/arck/waited", os.O_WRONLY)
os.write(other, b"come")
os.close(other)
thread.join()
print(come[0].decode(), flush=True)
"#;

#[test]
fn named_pipes_outlive_the_controller() {
    let place = Place::made();
    let pool = place.pool();
    let command: Command = run(&pool, &[], &["python3", "-c", OPENERS]);
    let mut program = Running::start_told(command);
    for _ in 0..3 {
        assert_eq!(program.line(), "ready");
        std::thread::sleep(Duration::from_millis(200));
        crate::restarted::kill_and_wait_for_the_next(&pool);
        program.tell("go on");
    }
    assert_eq!(said_through_restarts(program), "come\n");
}

/// Listens at a path, and answers the user whom the kernel tells of to each who connects, until one says that it is enough.
const SERVER_OF: &str = r#"
import os, socket, struct, sys
path, mode = sys.argv[1], int(sys.argv[2], 8)
server = socket.socket(socket.AF_UNIX)
server.bind(path)
os.chmod(path, mode)
server.listen()
print(server.getsockname(), flush=True)
while True:
    client, _ = server.accept()
    pid, uid, gid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    said = client.recv(100).decode()
    client.sendall(f"{uid} {said}".encode())
    client.close()
    if said == "end":
        break
"#;

/// Says something to who listens at a path, and prints the answer, and who that is.
const CLIENT_OF: &str = r#"
import socket, struct, sys
client = socket.socket(socket.AF_UNIX)
try:
    client.connect(sys.argv[1])
except OSError as error:
    sys.exit(error.strerror)
client.sendall(sys.argv[2].encode())
pid, uid, gid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
print(client.recv(100).decode(), "of", uid, client.getpeername())
"#;

#[test]
fn sockets_between_users_are_connected_as_modes_say() {
    let mut users = Users::new();
    users.serve(&["--shared"]);
    users.says(ANN, "mkdir -m 755 ann; mkdir -m 700 ann/home");
    let listens = |path: &str, mode: &str| format!("exec python3 -c '{SERVER_OF}' {path} {mode}");
    let says = |path: &str, word: &str| format!("exec python3 -c '{CLIENT_OF}' {path} {word}");
    const REFUSED: &str = "Connection refused";
    for (path, mode, others) in [
        ("/arck/ann/all", "666", None),
        ("/arck/ann/own", "600", Some(DENIED)),
        ("ann/home/hidden", "666", Some(DENIED)),
    ] {
        let mut server = Running::start(users.running(ANN, &listens(path, mode)));
        assert_eq!(server.line(), path);
        for (user, number) in [(BOB, 1002), (EVE, 1003)] {
            match others {
                None => assert_eq!(
                    users.says(user, &says(path, "hello")),
                    format!("{number} hello of 1001 {path}\n")
                ),
                Some(error) => users.fails(user, &says(path, "hello"), error),
            }
        }
        // Nobody else binds to what is hers, or takes it away.
        users.fails(
            BOB,
            &listens(path, "666"),
            match path {
                "ann/home/hidden" => DENIED,
                _ => "Address already in use",
            },
        );
        users.fails(BOB, &format!("rm -f {path}"), DENIED);
        for (user, number, word) in [((0, [0].as_slice()), 0, "hello"), (ANN, 1001, "end")] {
            let told = users.says(user, &says(path, word));
            assert_eq!(told, format!("{number} {word} of 1001 {path}\n"));
        }
        server.finished(PATIENCE);
        users.fails(ANN, &says(path, "hello"), REFUSED);
    }
    // After another controller has come, what was left is nobody's, and what is made anew is met.
    users.end();
    users.serve(&["--shared"]);
    users.fails(BOB, &says("/arck/ann/all", "hello"), REFUSED);
    users.fails(
        ANN,
        &listens("/arck/ann/all", "666"),
        "Address already in use",
    );
    users.says(ANN, "rm ann/all");
    let mut server = Running::start(users.running(ANN, &listens("/arck/ann/all", "666")));
    assert_eq!(server.line(), "/arck/ann/all");
    let told = users.says(BOB, &says("/arck/ann/all", "end"));
    assert_eq!(told, "1002 end of 1001 /arck/ann/all\n");
    server.finished(PATIENCE);
    users.end();
}

/// What is bound is connected to under the next controller, and what is bound then, too.
const LISTENER: &str = r#"
import socket, sys, threading
def listen(path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    return server
first = listen("/arck/first")
for round in range(2):
    print("ready", flush=True)
    sys.stdin.readline()
    for path, server in [("/arck/first", first), (f"/arck/other{round}", listen(f"/arck/other{round}"))]:
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        served, _ = server.accept()
        served.sendall(path.encode())
        assert client.recv(100).decode() == client.getpeername() == path
print("done", flush=True)
"#;

#[test]
fn sockets_outlive_the_controller() {
    let place = Place::made();
    let pool = place.pool();
    let mut program = Running::start_told(run(&pool, &[], &["python3", "-c", LISTENER]));
    for _ in 0..2 {
        assert_eq!(program.line(), "ready");
        crate::restarted::kill_and_wait_for_the_next(&pool);
        program.tell("go on");
    }
    assert_eq!(said_through_restarts(program), "done\n");
}

/// What others have built on sockets: Python's servers, the server that forks its processes, and its managers.
const LIBRARIES: &str = r#"
import multiprocessing, os, socketserver, socket, sys, tempfile, threading
from multiprocessing.connection import Client, Listener
from multiprocessing.managers import BaseManager

class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline().upper())

def double(number):
    return 2 * number

class Counter:
    def __init__(self):
        self.count = 0
    def add(self, number):
        self.count += number
        return self.count

class Manager(BaseManager):
    pass
Manager.register("Counter", Counter)

if __name__ == "__main__":
    assert tempfile.gettempdir() == "/arck/tmp", tempfile.gettempdir()
    with socketserver.ThreadingUnixStreamServer("/arck/echo", Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        client = socket.socket(socket.AF_UNIX)
        client.connect("/arck/echo")
        client.sendall(b"said\n")
        print(client.recv(10).decode(), end="")
        server.shutdown()
        thread.join()
    context = multiprocessing.get_context("forkserver")
    with context.Pool(3) as pool:
        print(pool.map(double, range(10)))
    with Listener("/arck/tmp/listener") as listener:
        def answer():
            with listener.accept() as connection:
                connection.send(connection.recv() + ["told", listener.address])
        thread = threading.Thread(target=answer)
        thread.start()
        with Client("/arck/tmp/listener") as connection:
            connection.send(["asked"])
            print(connection.recv())
        thread.join()
    with Manager() as manager:
        counter = manager.Counter()
        print([counter.add(n) for n in (1, 2, 3)])
"#;

/// Nothing is left of what was removed, as soon as that is folded, for whoever looks.
#[test]
fn nodes_go_with_their_inodes() {
    let place = Place::made();
    let pool = place.pool();
    const MAKER: &str = r#"
import os, socket, sys
for number in range(20):
    os.mkfifo(f"/arck/pipe{number}")
    os.close(os.open(f"/arck/pipe{number}", os.O_RDWR))
    socket.socket(socket.AF_UNIX).bind(f"/arck/socket{number}")
print("made", flush=True)
sys.stdin.readline()
for name in os.listdir("/arck"):
    os.unlink(f"/arck/{name}")
print("removed", flush=True)
sys.stdin.readline()
"#;
    let mut program = Running::start_told(run(&pool, &[], &["python3", "-c", MAKER]));
    let count = |folder: &str| {
        let listed = std::fs::read_dir(pool.join(folder));
        listed.map_or(0, |listed| listed.count())
    };
    assert_eq!(program.line(), "made");
    assert_eq!((count("named-pipes"), count("sockets")), (20, 20));
    program.tell("remove");
    assert_eq!(program.line(), "removed");
    let began = Instant::now();
    while (count("named-pipes"), count("sockets")) != (0, 0) {
        assert!(began.elapsed() < PATIENCE, "they stay");
        // Another session, which has the removal folded.
        let looks = run(&pool, &["--own-group"], &["ls", "/arck"])
            .output()
            .unwrap();
        assert_eq!(succeeded(&looks), "");
    }
    program.tell("end");
    succeeded(&program.finished(PATIENCE));
}

#[test]
fn libraries_of_python_meet_on_the_pool() {
    let place = Place::made();
    let pool = place.pool();
    let script =
        "mkdir /arck/tmp && cat >/arck/libraries.py && TMPDIR=/arck/tmp python3 /arck/libraries.py";
    let mut program = Running::start_told(run(&pool, &[], &["sh", "-c", script]));
    LIBRARIES.lines().for_each(|line| program.tell(line));
    assert_eq!(
        succeeded(&program.finished(PATIENCE)),
        "SAID\n[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]\n['asked', 'told', '/arck/tmp/listener']\n[1, 3, 6]\n"
    );
}

/// Nobody listens at a socket any more when its program has closed it, however busy the machine is: the controller, which has
/// bound it, has no copy of it then.
#[test]
fn a_socket_that_was_closed_refuses_at_once() {
    const SCRIPT: &str = "
import os, signal, socket
def busy():
    child = os.fork()
    while child == 0: pass
    return child
children = [busy() for _ in range(3)]
connected = 0
try:
    for number in range(100):
        name = '/arck/%d' % number
        listens = socket.socket(socket.AF_UNIX)
        listens.bind(name)
        listens.listen()
        listens.close()
        try:
            socket.socket(socket.AF_UNIX).connect(name)
            connected += 1
        except ConnectionRefusedError:
            pass
finally:
    for child in children: os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
print(connected)
";
    let place = Place::made();
    let mut command = run(&place.pool(), &[], &["python3", "-c", SCRIPT]);
    assert_eq!(succeeded(&command.output().unwrap()), "0\n");
}
