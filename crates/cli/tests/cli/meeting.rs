//! Programs that meet in the kernel, of several users and at a controller that is killed. Those of several users need
//! root, to become them.

use crate::support::{Place, Running, run, succeeded};
use crate::users::{ANN, BOB, DENIED, EVE, Users};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a script prints that runs while another one does.
fn told(running: Running) -> String {
    succeeded(&running.finished(PATIENCE))
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
    let said = program.finished(PATIENCE);
    assert_eq!(succeeded(&said), "come\n");
}
