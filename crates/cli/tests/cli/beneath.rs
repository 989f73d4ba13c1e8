//! Programs that the library is not loaded into reach the pool through the mount that `arck run` has beneath: the same
//! files under the same path, in the directory that they were started in. Needs root, and the kernel's FUSE.

use crate::support::{Place, Running, arck, run, succeeded};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Copies its first file to the second, tells where it is, and what its standard output is good for. With -x: executes a program that
/// is to know nothing of the library.
const SOURCE: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    char bytes[4096], here[4096];
    if (count > 2 && !strcmp(words[1], "-x")) {
        char *variables[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", 0};
        execve(words[2], words + 2, variables);
        perror(words[2]);
        return 8;
    }
    if (count > 2) {
        int from = open(words[1], O_RDONLY);
        int to = open(words[2], O_WRONLY | O_CREAT | O_TRUNC, 0640);
        if (from < 0 || to < 0) { perror("open"); return 3; }
        ssize_t got;
        while ((got = read(from, bytes, sizeof bytes)) > 0)
            if (write(to, bytes, got) != got) { perror("write"); return 4; }
        if (got < 0 || fsync(to) || close(to)) { perror("read"); return 5; }
    }
    if (!getcwd(here, sizeof here)) { perror("getcwd"); return 6; }
    if (dprintf(1, "at %s\n", here) < 0) { perror("standard output"); return 7; }
    return 0;
}
"#;

fn expect_root() {
    let is_root = rustix::process::geteuid().is_root();
    assert!(
        is_root,
        "only root has a mount namespace of his own: run this as root (sudo -E cargo test)"
    );
}

pub fn compile(directory: &Path) -> PathBuf {
    let (file, program) = (directory.join("copies.c"), directory.join("copies"));
    std::fs::write(&file, SOURCE).unwrap();
    let mut compile = Command::new("cc");
    compile.arg("-static").arg("-o").arg(&program).arg(&file);
    assert!(compile.status().unwrap().success());
    program
}

fn script(place: &Place, options: &[&str], script: &str) -> Output {
    let program = compile(place.path());
    let script = format!("p={}\n{script}", program.display());
    run(&place.pool(), options, &["sh", "-c", &script])
        .output()
        .unwrap()
}

#[test]
fn what_is_not_reached_finds_the_pool_beneath() {
    expect_root();
    let place = Place::made();
    // A script, what it prints, and what is said of programs.
    for (words, printed, named) in [
        (
            "echo one >/arck/a; $p /arck/a /arck/b; cat /arck/b; stat -c '%a %U' /arck/b",
            "at /\none\n640 root\n",
            false,
        ),
        (
            "mkdir -p /arck/d/e; cd /arck/d/e; echo two >f; $p f ../g; cat ../g; ls ..",
            "at /arck/d/e\ntwo\ne\ng\n",
            false,
        ),
        // What is on the pool itself.
        (
            "cp $p /arck/copies; cd /arck; ./copies a c; cat c",
            "at /arck\none\n",
            false,
        ),
        // Through others that are not reached, or forget the environment.
        (
            "cd /arck/d; env -i $p g h; cat h",
            "at /arck/d\ntwo\n",
            false,
        ),
        (
            "cd /arck/d; (cd e; $p f k); cat e/k; pwd",
            "at /arck/d/e\ntwo\n/arck/d\n",
            false,
        ),
        // A directory that was removed is none for it either.
        (
            "mkdir /arck/x; cd /arck/x; rmdir /arck/x; $p; echo $?",
            "6\n",
            false,
        ),
        // What it inherits is the kernel's: alone, between others that are reached, or not, and without a name.
        (
            "cd /arck; $p >out; echo $?; cat out",
            "0\nat /arck\n",
            false,
        ),
        (
            "cd /arck; (echo 1; $p; echo 2; $p; $p; cat a) >out; cat out; stat -c %s out",
            "1\nat /arck\n2\nat /arck\nat /arck\none\n35\n",
            false,
        ),
        (
            "cd /arck; $p >>out; tail -n 1 out; wc -l <out",
            "at /arck\n7\n",
            false,
        ),
        (
            "cd /arck; $p /dev/stdin /arck/i <d/g; cat i",
            "at /arck\ntwo\n",
            false,
        ),
        (
            "cd /arck; (read x; $p /dev/fd/0 i; cat) <out; cat i",
            "at /arck\nat /arck\n2\nat /arck\nat /arck\none\nat /arck\n1\nat /arck\n2\nat /arck\nat /arck\none\nat /arck\n",
            false,
        ),
        (
            "cd /arck; python3 -c 'import subprocess, sys; subprocess.run([sys.argv[1]], stdout=open(\"o\", \"w\"))' $p; cat o",
            "at /arck\n",
            false,
        ),
        (
            "cd /arck/d; exec 9<.; cd /; ls /arck/d >/dev/null; $p",
            "at /\n",
            false,
        ),
        // In another root nothing is called as before, and no library can be loaded: all goes through the mount.
        (
            "mkdir -p /arck/r/bin; cd /arck; cp $p /bin/cat r/bin; for f in $(ldd /bin/cat | grep -v arck | grep -o '/[^ ]*'); do \
             mkdir -p r${f%/*}; cp $f r$f; done; cp a r; chroot r /bin/copies a b; cat r/b; chroot r /bin/cat /b >o 2>&1; cat o; \
             (cd r; echo three | chroot . cat - b >>../o 2>&1); cat o; chroot o cat 2>/dev/null; echo $?",
            "at /\none\none\none\nthree\none\n125\n",
            false,
        ),
        // One that writes in the middle of a file, which others may do too, it cannot use: it is told, and so is the user.
        (
            "cd /arck; $p 1<>out; echo $?; head -n 1 out",
            "7\n1\n",
            true,
        ),
    ] {
        let output = script(&place, &[], &format!("cd /; {words}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            printed,
            "{words}: {errors}"
        );
        assert_eq!(
            errors.contains("copies is a static executable"),
            named,
            "{words}: {errors}"
        );
    }
    // That nothing is said of programs changes nothing else.
    let output = script(&place, &["--quiet"], "cd /arck/d; $p g q >o; cat o q");
    assert_eq!(succeeded(&output), "at /arck/d\ntwo\n");
    // A file that a program has left open to its children it writes as it did, wherever it likes.
    let left_open = "import os, subprocess, sys\n\
                     file = os.open('/arck/left', os.O_WRONLY | os.O_CREAT)\n\
                     os.set_inheritable(file, True)\n\
                     os.write(file, b'0123456789')\n\
                     subprocess.run([sys.argv[1]], close_fds=False, stdout=subprocess.DEVNULL)\n\
                     os.pwrite(file, b'ab', 0)\n\
                     print(open('/arck/left').read())";
    let left_open = script(&place, &[], &format!("python3 -c \"{left_open}\" $p"));
    assert_eq!(succeeded(&left_open), "ab23456789\n");
    // --strict refuses what does not see the pool, which this does.
    let output = script(&place, &["--strict"], "$p /arck/a /arck/s; cat /arck/s");
    assert!(succeeded(&output).ends_with("one\n"));
    let report = place.path().join("report.json");
    let option = format!("--report={}", report.display());
    succeeded(&script(&place, &[&option], "$p"));
    assert!(
        std::fs::read_to_string(&report)
            .unwrap()
            .contains("by the kernel")
    );
}

/// Nothing is left: no process, no mount, no directory.
#[test]
fn the_mount_beneath_ends_with_the_last_of_the_command() {
    expect_root();
    let place = Place::made();
    let program = compile(place.path());
    let servers = || {
        let pool = place.pool().display().to_string();
        let listed = Command::new("pgrep")
            .args(["-fc", &format!("arck mount {pool} ")])
            .output();
        String::from_utf8(listed.unwrap().stdout)
            .unwrap()
            .trim()
            .to_owned()
    };
    let point = place.path().join("seen");
    let mount = ["--mount", point.to_str().unwrap()];
    let p = program.display();
    let at = point.display();
    let mut command = run(
        &place.pool(),
        &mount,
        &[
            "sh",
            "-c",
            &format!(
                "echo text >{at}/a; {p} {at}/a {at}/b >/dev/null; \
         (sleep 2; {p} {at}/b {at}/c >/dev/null) >/dev/null 2>&1 & echo started"
            ),
        ],
    );
    let output = command.output().unwrap();
    assert_eq!(succeeded(&output), "started\n");
    // The command has ended, and what it has left has not.
    assert_eq!(servers(), "1");
    let patience = std::time::Instant::now();
    while servers() != "0" {
        assert!(
            patience.elapsed() < Duration::from_secs(30),
            "it is still served"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = run(&place.pool(), &mount, &["cat", &format!("{at}/c")])
        .output()
        .unwrap();
    assert_eq!(succeeded(&output), "text\n");
    // One whose command and `arck run` are killed.
    let script = format!("{p} {at}/a {at}/k; echo done; sleep 100");
    let mut running = Running::start(run(&place.pool(), &mount, &["sh", "-c", &script]));
    assert_eq!(
        running.line(),
        format!("at {}", std::env::current_dir().unwrap().display())
    );
    assert_eq!(running.line(), "done");
    drop(running);
    while servers() != "0" {
        assert!(
            patience.elapsed() < Duration::from_secs(60),
            "it is still served"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = run(&place.pool(), &mount, &["cat", &format!("{at}/k")])
        .output()
        .unwrap();
    assert_eq!(succeeded(&output), "text\n");
}

/// The pool of a command within a command is what both ways lead to.
#[test]
fn a_command_within_another_has_its_own_pool_beneath() {
    expect_root();
    let (outer, inner) = (Place::made(), Place::made());
    let arck = env!("CARGO_BIN_EXE_arck");
    let pool = inner.pool().display().to_string();
    let output = script(
        &outer,
        &[],
        &format!(
            "cd /; echo outer >/arck/a; {arck} run --pool {pool} -- sh -c 'echo inner >/arck/a; '$p' /arck/a /arck/b >/dev/null'; \
         $p /arck/a /arck/b >/dev/null; cat /arck/b; {arck} run --pool {pool} -- cat /arck/b; \
         {arck} run -- sh -c \"$p /arck/b /arck/c; cat /arck/c\""
        ),
    );
    assert_eq!(
        succeeded(&output),
        "outer\ninner\nat /\nouter\n",
        "{output:?}"
    );
}

/// `arck run` on a pool that is mounted shows it where it is mounted.
#[test]
fn a_mounted_pool_is_seen_where_it_is_mounted() {
    expect_root();
    let place = Place::made();
    let program = compile(place.path());
    let point = place.path().join("point");
    std::fs::create_dir(&point).unwrap();
    succeeded(
        &arck()
            .arg("mount")
            .arg(place.pool())
            .arg(&point)
            .output()
            .unwrap(),
    );
    let at = point.display();
    let script = format!("cd {at}; echo text >a; {} a b; cat b", program.display());
    let output = run(&place.pool(), &[], &["sh", "-c", &script])
        .output()
        .unwrap();
    let seen = std::fs::read_to_string(point.join("b"));
    let elsewhere = run(&place.pool(), &["--mount", "/arck"], &["cat", "/arck/b"])
        .output()
        .unwrap();
    let ended = Command::new("umount").arg(&point).status().unwrap();
    assert!(ended.success());
    assert_eq!(succeeded(&output), format!("at {at}\ntext\n"), "{output:?}");
    assert_eq!(seen.unwrap(), "text\n");
    assert_eq!(succeeded(&elsewhere), "text\n");
}

#[test]
fn a_mount_point_goes_when_what_a_command_left_in_the_background_has_ended() {
    expect_root();
    let place = Place::made();
    let point = place.path().join("seen");
    let mount = point.to_str().unwrap();
    let begun = place.path().join("begun");
    let goes_on = place.path().join("goes-on");
    std::fs::write(&goes_on, "").unwrap();
    let script = format!(
        "(echo x >{mount}/f; : >{}; while test -e {}; do sleep 0.1; done) >/dev/null 2>&1 &",
        begun.display(),
        goes_on.display()
    );
    let ended = run(&place.pool(), &["--mount", mount], &["sh", "-c", &script])
        .output()
        .unwrap();
    succeeded(&ended);
    let waits = |what: &str, done: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(60);
        while !done() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    waits("what is left does not begin", &|| begun.exists());
    assert!(point.exists(), "it is used");
    // One more that uses it, and ends, leaves it.
    let other = run(
        &place.pool(),
        &["--mount", mount],
        &["cat", &format!("{mount}/f")],
    );
    assert_eq!(succeeded(&{ other }.output().unwrap()), "x\n");
    assert!(point.exists(), "it is used still");
    std::fs::remove_file(&goes_on).unwrap();
    waits("the mount point stays", &|| !point.exists());
}
