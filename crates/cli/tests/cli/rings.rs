//! io_uring on a pool that is mounted: beneath `arck run`, by itself, and through the mount alone, beside tmpfs. Needs root, and
//! the kernel's FUSE.

use crate::mounting::mount::{Mount, until};
use crate::support::{Place, run, succeeded};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What a program prints differently through a mount alone: the kernel does not move the offset of a file that it reads and
/// writes later. What tmpfs tells, and what is told there.
const THROUGH_MOUNT: [(&str, &str); 9] = [
    ("567 8", "567 5"),
    ("10", "5"),
    (
        "by read: 27 \"0abc4567##!.........one two\"",
        "by read: 27 \"0abc4!#7XY..........one two\"",
    ),
    (
        "appended: 30 \"0abc4567##!.........one twoend\"",
        "appended: 30 \"0abc4!#7XY..........one twoend\"",
    ),
    ("cut: 12 \"0abc4567##!.\"", "cut: 12 \"0abc4!#7XY..\""),
    ("in it: 11", "in it: 6"),
    ("moving: firstsecond 11", "moving: second 0"),
    ("in it: 11", "in it: 6"),
    ("moving: firstsecond 11", "moving: second 0"),
];

/// What differs from tmpfs under the library, and what becomes of the mount's descriptors.
const ALONE: &str = "\
a thread of the kernel's: EPERM
without a descriptor: EINVAL
a number for the ring: EINVAL
register what has no name: 0
behind a pipe without a name: submitted 2; 1=3 2=EBADF
without a name: submitted 1; 1=3
behind a pipe at its offset: submitted 2; 1=3 2=ESPIPE
registered behind a pipe: submitted 2; 1=3 2=EINVAL
neither is done: 10 \"0123456789\"
register: 0
the program has 20 more, of the file there are 40
only read, and written: submitted 2; 1=EBADF 2=2
the program has 1 more, of the file there are 21
the program has 0 more, of the file there are 20
unregistered: of the file there are 1
a child: submitted 2; 1=3 2=3
a child: 10 \"by23kid789\"
its parent: 10 \"by23kid789\"
closed: of the file there are 1
the ring too: of the file there are 0
of the file there are 1, and 0
of the file there are 1, and 0
told: many
";

/// A program of the library's tests.
fn compile(name: &str, options: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../preload/tests/programs")
        .join(name);
    let program = directory.path().join("program");
    let mut compile = Command::new("cc");
    compile.args(["-O1", "-Wall", "-pthread", "-o"]);
    compile.arg(&program).arg(source).args(options);
    assert!(compile.status().expect("cc runs").success());
    (directory, program)
}

fn on_tmpfs() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("arck-cli-")
        .tempdir_in("/dev/shm")
        .expect("a directory of tmpfs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Lines that differ.
fn differences<'a>(here: &'a str, there: &'a str) -> Vec<(&'a str, &'a str)> {
    assert_eq!(there.lines().count(), here.lines().count(), "{here}");
    let lines = there.lines().zip(here.lines());
    lines.filter(|(there, here)| there != here).collect()
}

/// A program's output on tmpfs, beneath `arck run`, on a mount that is there already, and through that alone.
fn told_of(name: &str, check: impl Fn(&str, &str, &str, &str)) {
    let (_directory, program) = compile(name, &[]);
    let program = program.to_str().expect("UTF-8");
    let (host, plain) = (on_tmpfs(), on_tmpfs());
    let beside = host.path().to_str().expect("UTF-8");
    let command = [beside, plain.path().to_str().expect("UTF-8")];
    let tmpfs = succeeded(&Command::new(program).args(command).output().unwrap());
    let place = Place::made();
    let command = [program, beside, "/arck"];
    let own = succeeded(&run(&place.pool(), &[], &command).output().unwrap());
    let mount = Mount::made("256M");
    let at = mount.path();
    let command = [program, beside, at.to_str().expect("UTF-8")];
    let beneath = succeeded(&run(&mount.pool(), &[], &command).output().unwrap());
    for entry in std::fs::read_dir(&at).unwrap() {
        let made = entry.unwrap().path();
        match made.is_dir() && !made.is_symlink() {
            true => std::fs::remove_dir_all(made).unwrap(),
            false => std::fs::remove_file(made).unwrap(),
        }
    }
    let alone = Command::new(program).args(&command[1..]).output().unwrap();
    check(&tmpfs, &own, &beneath, &succeeded(&alone));
    // The kernel ends rings, and lets go of the files that are registered with them, a moment after their process.
    until("nothing of it is open", || {
        Command::new("umount")
            .arg(&at)
            .status()
            .is_ok_and(|status| status.success())
    });
}

#[test]
fn submissions_are_as_on_tmpfs() {
    told_of("submissions.c", |tmpfs, own, beneath, alone| {
        assert!(tmpfs.lines().count() > 100, "{tmpfs}");
        assert_eq!(differences(own, tmpfs), []);
        assert_eq!(differences(beneath, tmpfs), []);
        // There the kernel's threads do what is asked for of names, in whatever order.
        let in_order = |difference: &(&str, &str)| !difference.0.starts_with("names: submitted");
        let told: Vec<_> = differences(alone, tmpfs)
            .into_iter()
            .filter(in_order)
            .collect();
        assert_eq!(told, THROUGH_MOUNT);
    });
}

#[test]
fn whoever_submits_is_told_what_tmpfs_tells() {
    told_of("submitters.c", |tmpfs, own, beneath, alone| {
        assert!(tmpfs.lines().count() > 30, "{tmpfs}");
        assert_eq!(differences(own, tmpfs), []);
        assert_eq!(differences(beneath, tmpfs), []);
        assert_eq!(differences(alone, tmpfs), [("offset: 10", "offset: 6")]);
    });
}

#[test]
fn what_differs_under_the_library() {
    let (_directory, program) = compile("submissions_alone.c", &[]);
    let place = Place::made();
    let command = [program.to_str().expect("UTF-8"), "/arck"];
    let output = run(&place.pool(), &[], &command).output().unwrap();
    assert_eq!(succeeded(&output), ALONE);
}

/// liburing's functions, and its instructions within the program.
#[test]
fn there_are_rings_where_there_is_a_mount() {
    for library in ["-luring", "-l:liburing.a"] {
        let (_directory, program) = compile("rings.c", &[library]);
        let program = program.to_str().expect("UTF-8");
        let plain = on_tmpfs();
        let tmpfs = Command::new(program).arg(plain.path()).output().unwrap();
        let tmpfs = succeeded(&tmpfs);
        assert!(tmpfs.contains("io_uring_queue_init: there"), "{tmpfs}");
        let place = Place::made();
        let command = [program, "/arck"];
        let beneath = succeeded(&run(&place.pool(), &[], &command).output().unwrap());
        assert_eq!(beneath, tmpfs, "{library}");
        let without = succeeded(
            &run(&place.pool(), &["--no-mount"], &command)
                .output()
                .unwrap(),
        );
        assert!(without.contains("io_uring_queue_init: ENOSYS"), "{without}");
    }
}

/// A ring that cannot be looked at is refused, and the report says so.
#[test]
fn a_ring_with_a_thread_is_reported() {
    let (_directory, program) = compile("submissions_alone.c", &[]);
    let place = Place::made();
    let command = [program.to_str().expect("UTF-8"), "/arck"];
    let output = run(&place.pool(), &["--report"], &command)
        .output()
        .unwrap();
    assert_eq!(text(&output), ALONE);
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines = errors.lines().filter(|line| line.contains("SQPOLL"));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 1, "{errors}");
    assert!(
        lines[0].contains("io_uring_setup") && lines[0].contains("refused: EPERM"),
        "{errors}"
    );
}

/// The calls of a program's own instructions trap at first, and then no more; what the program has in registers stays.
#[test]
fn calls_of_rings_are_rewritten_where_they_are() {
    let (_directory, program) = compile("ring_calls.c", &[]);
    let place = Place::made();
    for (patch, is_rewritten) in [(None, 1), (Some("never"), 0)] {
        let command = [program.to_str().expect("UTF-8"), "/arck"];
        let mut command = run(&place.pool(), &[], &command);
        if let Some(patch) = patch {
            command.env("ARCK_PATCH", patch);
        }
        let told = succeeded(&command.output().unwrap());
        let expected = format!(
            "no ring: 1\nfailures: 0\nrewritten: {is_rewritten}\na bare thread: 1\nbegins with the move: 1\nfailures: 0\n"
        );
        assert_eq!(told, expected, "{patch:?}");
    }
}
