//! Tables of calls, as in [`semantics`](crate::semantics): every form, flag and kind of file, on
//! a directory of tmpfs and on a pool.

use crate::support::{
    Place, compare_with_tmpfs, compile, keeper, served_by_pool_at, set_up, shown,
};
use arck_testkit::TestPool;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

fn same(name: &str) {
    let binary = compile(name);
    compare_with_tmpfs(|| Command::new(&binary));
}

#[test]
fn attributes() {
    same("attributes");
}

#[test]
fn corners() {
    same("corners");
}

#[test]
fn locks() {
    same("locks");
}

#[test]
fn places() {
    same("places");
}

#[test]
fn locks_of_shared_descriptions() {
    same("shared_locks");
}

#[test]
fn locks_of_descriptions_that_are_sent() {
    same("sent_locks");
}

#[test]
fn forks_while_locks_are_taken() {
    same("forked_locks");
}

#[test]
fn children_that_are_forked_at_the_limit_of_descriptors() {
    same("at_the_limit");
}

#[test]
fn locks_that_the_kernel_keeps() {
    same("kept_locks");
}

#[test]
fn locks_of_files_that_are_opened_again() {
    same("reopened_locks");
}

/// Who opens a file, locks it and closes it again and again asks the controller once for each mode: it is killed
/// after that. Each such lock was a message, and took ten times as long as on tmpfs.
#[test]
fn files_are_locked_again_without_a_message() {
    let script = r#"
import fcntl, os, struct
whole = struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0)
def lock(mode):
    for name in names:
        for kind in range(3):
            file = os.open(name, mode)
            if kind == 0: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            elif kind == 1: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else: fcntl.fcntl(file, 37, whole)
            os.close(file)
names = [f"/arck/{number}" for number in range(20)]
for name in names: open(name, "w").close()
lock(os.O_RDWR)
print("locked", flush=True)
input()
for time in range(50): lock(os.O_RDWR)
try: lock(os.O_RDONLY)
except OSError: print("again, but for what was not locked before", flush=True)
"#;
    let mut pool = TestPool::new(64 << 20);
    let place = Place::new();
    let keeper = keeper(&pool);
    let mut command = Command::new("python3");
    set_up(&pool, Path::new("/arck"), &place.report, &mut command);
    let command = command.args(["-c", script]).env("ARCK_WAIT", "1");
    let program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut program = program.expect("python3 runs");
    let mut answers = BufReader::new(program.stdout.take().expect("a pipe")).lines();
    let mut answer = || answers.next().and_then(Result::ok).unwrap_or_default();
    assert_eq!(answer(), "locked");
    pool.kill();
    let mut input = program.stdin.take().expect("a pipe");
    input.write_all(b"\n").expect("it waits");
    assert_eq!(answer(), "again, but for what was not locked before");
    pool.serve();
    program.wait().expect("it ends");
    drop(keeper);
    assert_eq!(pool.violations(), "");
}

/// The directory that the pool is in lists the place where it is seen, as it does a directory.
#[test]
fn the_directory_that_the_pool_is_in() {
    let script = r#"
        cd "$1"; ls; ls -aU | sort; echo *; find . | sort; find "$1" -type d | wc -l; cd /; ls -R "$1"
        du -a "$1" | wc -l; python3 -c 'import os, sys
for entry in sorted(os.scandir(sys.argv[1]), key=lambda e: e.name): print(entry.name, entry.is_dir(), entry.inode() > 0)
for top, directories, files in sorted(os.walk(sys.argv[1])): print(top, sorted(directories), sorted(files))' "$1"
        perl -e 'opendir D, $ARGV[0]; @a = readdir D; @none = readdir D; rewinddir D; @b = readdir D;
            print "@{[sort @a]} (@none) @{[sort @b]}\n"; rewinddir D;
            while (1) { $at = telldir D; defined($n = readdir D) or last; $at{$n} = $at }
            for $k (grep !/arck/, sort keys %at) { seekdir D, $at{$k}; @rest = readdir D; print "$k ", (grep { $_ eq $k } @rest) ? "found " : "lost " }
            seekdir D, $at; print defined readdir D ? "more" : "end", "\n";
            for $size (80, 100, 1000) {
                open F, "<", $ARGV[0]; $b = "x" x $size; @c = ();
                while (($r = syscall 217, fileno F, $b, $size) > 0) {
                    for ($i = 0; $i < $r; $i += unpack("x16 S", substr $b, $i)) { push @c, unpack("x19 Z*", substr $b, $i) }
                }
                print "$r @{[sort @c]}\n"
            }' "$1"
        cd "$1/arck"; ls; mkdir made; rmdir made; echo more > file; cat ../arck/file; cd ..; ls arck; rm -r arck/d; ls -R
    "#;
    for within in ["/dev/shm", "/tmp"] {
        let outer = tempfile::tempdir_in(within).expect("a directory");
        let directory = outer.path().to_str().expect("UTF-8");
        let mount = outer.path().join("arck");
        std::fs::write(outer.path().join("a"), "a").expect("a file");
        std::fs::create_dir(outer.path().join("z")).expect("a directory");
        let run = |script: &str| {
            let mut command = Command::new("bash");
            command.args(["-c", script, "bash", directory]);
            command
        };
        let fill = "mkdir -p \"$1/arck/d\"; echo text > \"$1/arck/file\"";
        let output = run(&format!("{fill}\n{script}")).output().expect("it runs");
        let expected = shown(&output, directory);
        assert!(output.status.success(), "{expected}");
        assert!(expected.contains("0 . .. a arck z\n"), "{expected}");
        std::fs::remove_dir_all(&mount).expect("removed");
        let pool = TestPool::new(64 << 20);
        let place = Place::new();
        let mut command = run(&format!("{fill}\n{script}"));
        let got = served_by_pool_at(&pool, &mount, &place.report, &mut command);
        assert_eq!(shown(&got, directory), expected);
        assert!(!mount.exists());
        // Once, if the host has a directory of that name.
        std::fs::create_dir(&mount).expect("a directory");
        let mut command = run("ls $1; ls $1/arck");
        let got = served_by_pool_at(&pool, &mount, &place.report, &mut command);
        assert_eq!(shown(&got, directory), "a\narck\nz\nfile\nexit status: 0");
    }
}
