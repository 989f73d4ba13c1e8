//! `arck mkfs` and `arck serve` as commands: bad input is one line that says what and what to
//! do, and exit status 1; wrong usage is exit status 2.

use crate::support::{Place, Serving, arck, mkfs, refused};
use std::io::{BufRead, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};

fn serve_fails(pool: &Path, says: &str) {
    refused(&arck().arg("serve").arg(pool).output().unwrap(), says);
}

#[test]
fn pools_that_cannot_be_served() {
    let place = Place::new();
    serve_fails(&place.pool(), "arck mkfs");
    std::fs::create_dir(place.pool()).unwrap();
    serve_fails(&place.pool(), "no pool");

    let superblock = |place: &Place| place.pool().join("superblock");
    let edit = |place: &Place, at: usize, value: u8| {
        let mut bytes = std::fs::read(superblock(place)).unwrap();
        bytes[at] = value;
        std::fs::write(superblock(place), bytes).unwrap();
    };
    let place = Place::made();
    edit(&place, 0, b'X');
    serve_fails(&place.pool(), "not an Arck pool");
    let place = Place::made();
    edit(&place, 8, 77);
    serve_fails(&place.pool(), "version 77");
    let place = Place::made();
    edit(&place, 40, 77);
    serve_fails(&place.pool(), "damaged");
    for file in [
        "headers",
        "pages",
        "segment-table",
        "session-table",
        "journal",
    ] {
        let place = Place::made();
        let file = place.pool().join(file);
        std::fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(10)
            .unwrap();
        serve_fails(&place.pool(), "damaged");
        std::fs::remove_file(&file).unwrap();
        serve_fails(&place.pool(), "damaged");
    }
    let place = Place::made();
    let segment = place.pool().join("segments/00000000");
    std::fs::File::options()
        .write(true)
        .open(segment)
        .unwrap()
        .set_len(4096)
        .unwrap();
    serve_fails(&place.pool(), "damaged");
}

#[test]
fn pools_that_cannot_be_made() {
    let place = Place::made();
    let size = ["--size", "16M"];
    refused(&mkfs(&place.pool(), &size), "not empty");
    refused(
        &mkfs(&Place::new().pool(), &["--size", "1M"]),
        "between 16 MiB and 16 TiB",
    );
    refused(
        &mkfs(Path::new("/nonexistent/pool"), &size),
        "/nonexistent/pool",
    );
    assert_eq!(
        mkfs(&place.pool(), &["--size", "lots"]).status.code(),
        Some(2)
    );
    assert_eq!(mkfs(&place.pool(), &[]).status.code(), Some(2));
    // --force replaces a pool, and nothing else.
    assert!(
        mkfs(&place.pool(), &["--size", "32M", "--force"])
            .status
            .success()
    );
    let other = Place::new();
    std::fs::create_dir(other.pool()).unwrap();
    std::fs::write(other.pool().join("mine"), "mine").unwrap();
    refused(
        &mkfs(&other.pool(), &["--size", "16M", "--force"]),
        "not empty",
    );
    let serving = Serving::start(&place.pool(), &[]);
    refused(
        &mkfs(&place.pool(), &["--size", "32M", "--force"]),
        "already served",
    );
    drop(serving.status);
    let mut process = serving.process;
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn served_once_and_ended_by_a_signal() {
    let place = Place::made();
    let mut serving = Serving::start(&place.pool(), &[]);
    serve_fails(
        &place.pool(),
        &format!("served by process {}", serving.process.id()),
    );
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
    // Killed, it leaves nothing that would hinder the next one.
    let mut serving = Serving::start(&place.pool(), &[]);
    serving.signal(libc::SIGKILL);
    serving.process.wait().unwrap();
    let mut serving = Serving::start(&place.pool(), &["--persist", "always"]);
    serving.signal(libc::SIGINT);
    assert!(serving.process.wait().unwrap().success());
}

#[test]
fn a_private_controller_ends_with_its_starter_unless_it_is_used() {
    let place = Place::made();
    let mut serving = Serving::start(&place.pool(), &["--private"]);
    drop(serving.process.stdin.take());
    assert!(serving.process.wait().unwrap().success());
    let mut rest = String::new();
    serving.status.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");

    let mut serving = Serving::start(&place.pool(), &["--private"]);
    let lock = std::fs::File::open(place.pool().join("run.lock")).unwrap();
    // The use lock: its second byte.
    // SAFETY: numbers, for which zeroes are values; the kernel reads the structure.
    let taken = unsafe {
        let mut record: libc::flock = std::mem::zeroed();
        (record.l_type, record.l_start, record.l_len) = (libc::F_RDLCK as i16, 1, 1);
        libc::fcntl(lock.as_raw_fd(), libc::F_OFD_SETLK, &raw const record)
    };
    assert_eq!(taken, 0);
    drop(serving.process.stdin.take());
    let mut line = String::new();
    serving.status.read_line(&mut line).unwrap();
    assert_eq!(line, "busy\n");
    drop(lock);
    assert!(serving.process.wait().unwrap().success());
}

#[test]
fn a_private_controller_ends_when_its_pool_is_deleted() {
    let place = Place::made();
    let mut serving = Serving::start(&place.pool(), &["--private"]);
    std::fs::remove_dir_all(place.pool()).unwrap();
    drop(serving.process.stdin.take());
    let started = std::time::Instant::now();
    while serving.process.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < std::time::Duration::from_secs(10));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_pool_that_is_deleted_while_it_is_served_is_told() {
    let place = Place::made();
    let mut command = arck();
    command.arg("serve").arg(place.pool());
    let mut serving = Serving::of(command.args(["--ready-fd", "1"]).stderr(Stdio::piped()));
    // Moved, it is still a pool.
    let moved = place.path().join("moved");
    std::fs::rename(place.pool(), &moved).unwrap();
    std::fs::rename(&moved, place.pool()).unwrap();
    assert!(serving.process.try_wait().unwrap().is_none());
    std::fs::remove_dir_all(place.pool()).unwrap();
    let output = serving.process.wait_with_output().unwrap();
    refused(&output, "was deleted while it was served");
    refused(&output, "arck mkfs");
}

#[test]
fn more_than_there_is_room_for_is_refused_before_any_harm() {
    let place = Place::made();
    let superblock = std::fs::read(place.pool().join("superblock")).unwrap();
    let size = ["--size", "16T"];
    let other = place.path().join("other");
    let output = mkfs(&other, &size);
    refused(&output, "a pool of 16 TiB does not fit");
    refused(&output, "--size (at most ");
    assert!(!other.exists());
    refused(
        &mkfs(&place.pool(), &["--size", "16T", "--force"]),
        "does not fit",
    );
    let after = std::fs::read(place.pool().join("superblock")).unwrap();
    assert_eq!(superblock, after);
    // What it says fits does, and --sparse makes any.
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let fitting = text
        .split("at most ")
        .nth(1)
        .unwrap()
        .split(')')
        .next()
        .unwrap();
    let half = fitting.trim_end_matches('M').parse::<u64>().unwrap() / 2;
    assert!(
        mkfs(&other, &["--size", &format!("{half}M")])
            .status
            .success()
    );
    let sparse = mkfs(&place.path().join("sparse"), &["--size", "1T", "--sparse"]);
    assert!(sparse.status.success(), "{sparse:?}");
}

#[test]
fn out_of_descriptors_it_turns_away_and_goes_on() {
    use arck_protocol::socket::{Answer, Call, call};
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };

    let place = Place::made();
    let mut serving = Serving::of(
        Command::new("sh")
            .args(["-c", "ulimit -n 48; exec \"$0\" serve \"$1\" --ready-fd 1"])
            .arg(env!("CARGO_BIN_EXE_arck"))
            .arg(place.pool()),
    );
    let hello = || {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let address = SocketAddrUnix::new(place.pool().join("socket")).unwrap();
        connect(&socket, &address).unwrap();
        let answer = call(&socket, &Call::hello(b"")).map(|(answer, _)| answer);
        (socket, answer)
    };
    let mut sessions = Vec::new();
    let mut refused = 0;
    for _ in 0..60 {
        let (socket, answer) = hello();
        match answer {
            Ok(Answer::Welcome(_)) => sessions.push(socket),
            Ok(Answer::Error(errno, _)) => {
                assert_eq!(errno, libc::EMFILE);
                refused += 1;
            }
            // Turned away before it had said hello.
            Err(_) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(
        sessions.len() > 3 && refused > 3,
        "{} {refused}",
        sessions.len()
    );
    drop(sessions);
    // The ends are noticed one by one.
    let started = std::time::Instant::now();
    while !matches!(hello().1, Ok(Answer::Welcome(_))) {
        assert!(started.elapsed() < std::time::Duration::from_secs(10));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

/// A controller that was killed and had not ended yet, since the kernel was unmapping its memory, kept the
/// next one from starting: the program that waited for one was told after half a minute that there is none.
#[test]
fn one_that_was_just_killed_is_waited_for() {
    let place = Place::new();
    assert!(mkfs(&place.pool(), &["--size", "2G"]).status.success());
    let mut killed = Serving::start(&place.pool(), &[]);
    for _ in 0..10 {
        killed.signal(libc::SIGKILL);
        let next = Serving::start(&place.pool(), &[]);
        killed.process.wait().unwrap();
        killed = next;
    }
    killed.signal(libc::SIGTERM);
    assert!(killed.process.wait().unwrap().success());
}
