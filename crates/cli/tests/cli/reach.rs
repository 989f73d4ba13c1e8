//! Programs that the library is not loaded into are named once for each `arck run`, or refused.

use crate::support::{Place, run};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Makes a directory, if it is given one.
const SOURCE: &str = "
#include <stdio.h>
#include <sys/stat.h>
int main(int count, char **words) {
    puts(\"ran\");
    return count > 1 && mkdir(words[1], 0755) ? (perror(\"mkdir\"), 3) : 0;
}
";
/// What Go's linker leaves in its programs.
const NOTE_OF_GO: &str = "
__asm__(\".pushsection .note.go.buildid, \\\"a\\\", @note\\n\"
        \".long 4, 4, 4\\n.asciz \\\"Go\\\"\\n.balign 4\\n.ascii \\\"abcd\\\"\\n.popsection\");
";

/// Compiles that.
fn compile(directory: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let file = directory.join(format!("{name}.c"));
    std::fs::write(&file, source).unwrap();
    let program = directory.join(name);
    let mut compile = Command::new("cc");
    compile.args(options).arg("-o").arg(&program).arg(&file);
    assert!(compile.status().unwrap().success());
    program
}

/// What was said of programs, line by line.
fn said(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = text.lines().filter(|line| line.starts_with("arck"));
    lines.map(str::to_owned).collect()
}

#[test]
fn what_is_not_reached_is_named_once() {
    let place = Place::made();
    let directory = place.path();
    compile(directory, "static", SOURCE, &["-static"]);
    compile(directory, "pie", SOURCE, &["-static-pie"]);
    let go = [SOURCE, NOTE_OF_GO].concat();
    compile(directory, "go", &go, &["-static"]);
    compile(directory, "cgo", &go, &[]);
    compile(directory, "dynamic", SOURCE, &[]);
    std::fs::write(directory.join("script"), "#! ./static x\n").unwrap();
    std::fs::write(directory.join("plain"), "#!/bin/sh\nexit 0\n").unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    for script in ["script", "plain"] {
        std::fs::set_permissions(directory.join(script), mode.clone()).unwrap();
    }
    // A script, how many programs ran, and what is said.
    let a_static = "static is a static executable";
    let table: &[(&str, usize, &[&str])] = &[
        (
            "./static; ./static; env ./static; $PWD/static",
            4,
            &[a_static],
        ),
        ("env -i ./static; env -i env -i ./static", 2, &[a_static]),
        ("(./static); exec ./static", 2, &[a_static]),
        (
            "for i in 1 2 3 4 5 6 7 8; do ./static & done; wait",
            8,
            &[a_static],
        ),
        (
            "for i in 1 2 3 4 5; do sh -c 'sh -c ./static; :'; done",
            5,
            &[a_static],
        ),
        (
            "./static; ./pie; ./static; ./pie",
            4,
            &[a_static, "pie is a static executable"],
        ),
        ("./go; ./go", 2, &["go is a Go program"]),
        ("./script; ./script", 2, &[a_static]),
        (
            "cp static /arck/there; /arck/there; cd /arck; ./there",
            2,
            &["there is a static executable"],
        ),
        // What is reached, is not there, or is not executed.
        (
            "./dynamic; ./cgo; ./plain; /lib64/ld-linux-x86-64.so.2 ./dynamic",
            3,
            &[],
        ),
        (
            "cat ./static >/dev/null; chmod -x static; ./static; chmod +x static",
            0,
            &[],
        ),
        ("./none; ./; ./static.c", 0, &[]),
    ];
    for (script, ran, expected) in table {
        let mut command = run(&place.pool(), &["--no-mount"], &["bash", "-c", script]);
        let output = command.current_dir(directory).output().unwrap();
        let lines = said(&output);
        assert_eq!(lines.len(), expected.len(), "{script}: {output:?}");
        for words in *expected {
            let line = lines.iter().find(|line| line.contains(words));
            let line = line.unwrap_or_else(|| panic!("{script}: {output:?}"));
            assert!(
                line.starts_with("arck: ") && line.contains("/arck;"),
                "{line}"
            );
        }
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(told.matches("ran").count(), *ran, "{script}: {output:?}");
        let mut quiet = run(
            &place.pool(),
            &["--no-mount", "--quiet"],
            &["bash", "-c", script],
        );
        let output = quiet.current_dir(directory).output().unwrap();
        assert_eq!(said(&output), [""; 0], "{script}");
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(told.matches("ran").count(), *ran, "{script}: {output:?}");
    }
    violations(&place);
}

/// What such a program writes to a file of the pool's that it was given is lost: that is said each time, and when nothing
/// else is.
#[test]
fn what_is_lost_is_said() {
    let place = Place::made();
    let directory = place.path();
    compile(directory, "static", SOURCE, &["-static"]);
    for (script, lost) in [
        ("./static >/arck/out; ./static >/arck/out", 2),
        ("./static 2>/arck/out", 1),
        ("(./static) >>/arck/out", 1),
        ("./static; ./static </arck/in", 0),
        ("./static 3>/arck/out", 0),
        ("./static | cat >/arck/out", 0),
    ] {
        for options in [&["--no-mount"][..], &["--no-mount", "--quiet"]] {
            // Where standard error is the file that is meant, it is said there.
            let script = format!("echo x >/arck/in; rm -f /arck/out; {script}; cat /arck/out >&2");
            let output = run(&place.pool(), options, &["bash", "-c", &script])
                .current_dir(directory)
                .output()
                .unwrap();
            let lines = said(&output);
            let told = lines.iter().filter(|line| line.contains("is lost"));
            assert_eq!(told.count(), lost, "{script} {options:?}: {output:?}");
        }
    }
    violations(&place);
}

fn violations(place: &Place) {
    let mut violations = crate::support::arck();
    let violations = violations.arg("violations").arg(place.pool()).output();
    let said = crate::support::succeeded(&violations.unwrap());
    assert!(said.starts_with("nothing was refused"), "{said}");
}

#[test]
fn what_is_not_reached_is_not_executed_if_so_wished() {
    let place = Place::made();
    let directory = place.path();
    compile(directory, "static", SOURCE, &["-static"]);
    compile(directory, "dynamic", SOURCE, &[]);
    for script in [
        "./static; echo $?",
        "env ./static; echo $?",
        "env -i ./static; echo $?",
        "env -u ARCK_STRICT ./static; echo $?",
        "python3 -c 'import os; os.posix_spawn(\"./static\", [\"x\"], {})'; echo 126",
        "cp static /arck/; /arck/static; echo $?",
        "PATH=.:$PATH; static; echo $?",
    ] {
        let mut command = run(
            &place.pool(),
            &["--no-mount", "--strict"],
            &["bash", "-c", script],
        );
        let output = command.current_dir(directory).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(told, "126\n", "{script}: {output:?}");
        let lines = said(&output);
        assert_eq!(lines.len(), 1, "{script}: {output:?}");
        assert!(lines[0].contains("static executable"), "{lines:?}");
        assert!(lines[0].contains("not executed (--strict)"), "{lines:?}");
    }
    let mut command = run(&place.pool(), &["--no-mount", "--strict"], &["./dynamic"]);
    let output = command.current_dir(directory).output().unwrap();
    assert_eq!(output.stdout, b"ran\n", "{output:?}");
    // The command itself; by the variable as by the option.
    for (options, variable) in [
        (&["--no-mount", "--strict"][..], ""),
        (&["--no-mount"], "1"),
    ] {
        let mut command = run(&place.pool(), options, &["./static"]);
        let command = command.current_dir(directory).env("ARCK_STRICT", variable);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(126), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(said(&output)[0].contains("static executable"), "{output:?}");
    }
    violations(&place);
}

/// Whether the file system of this directory lets files give rights.
fn lets_give_rights(directory: &Path) -> bool {
    let status = rustix::fs::statvfs(directory).unwrap();
    !status
        .f_flag
        .contains(rustix::fs::StatVfsMountFlags::NOSUID)
}

/// Needs root, who makes such files.
#[test]
fn who_gets_rights_by_a_program_is_told_that_it_is_not_reached() {
    const USER: u32 = 54321;
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: needs root");
        return;
    }
    let (place, arck) = Place::of_users(USER);
    // Memory file systems are often mounted so that nothing there gives rights.
    let programs = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let directory = programs.path();
    assert!(
        lets_give_rights(directory),
        "{directory:?} is mounted nosuid"
    );
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory, everybody.clone()).unwrap();
    let program = |name: &str, mode: u32, owner: u32| {
        let path = directory.join(name);
        std::fs::copy("/bin/true", &path).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    program("user", 0o4755, 0);
    program("group", 0o2755, 0);
    program("own", 0o6755, USER);
    program("plain", 0o755, 0);
    let capable = program("capable", 0o755, 0);
    let capable = CString::new(capable.as_os_str().as_bytes()).unwrap();
    // Version 2, effective; CAP_NET_RAW.
    let value: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
    // SAFETY: strings, and a value of that length.
    let set = unsafe {
        let name = c"security.capability".as_ptr();
        let length = size_of_val(&value);
        libc::setxattr(capable.as_ptr(), name, value.as_ptr().cast(), length, 0)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    let as_user = |words: &[&str]| {
        let mut command = Command::new(&arck);
        command.args(words).uid(USER).gid(USER).current_dir("/");
        command.env("HOME", "/").env_remove("XDG_RUNTIME_DIR");
        command.output().unwrap()
    };
    let pool = place.pool();
    let pool = pool.to_str().unwrap();
    let made = as_user(&["mkfs", pool, "--size", "16M"]);
    assert!(made.status.success(), "{made:?}");
    for (name, is_named) in [
        ("user", true),
        ("group", true),
        ("capable", true),
        ("own", false),
        ("plain", false),
    ] {
        let path = directory.join(name);
        let script = format!("{}; :", path.display());
        let output = as_user(&["run", "--pool", pool, "--", "sh", "-c", &script]);
        let lines = said(&output);
        assert_eq!(lines.len(), usize::from(is_named), "{name}: {output:?}");
        assert!(
            lines.iter().all(|line| line.contains("other rights")),
            "{lines:?}"
        );
        // Root has them.
        let mut command = run(&place.pool(), &["--no-mount"], &["sh", "-c", &script]);
        let is_named = name == "own";
        let lines = said(&command.output().unwrap());
        assert_eq!(lines.len(), usize::from(is_named), "{name}: {lines:?}");
    }
}

/// What stands in a directory of the host's.
fn listed(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// `restic init -r /arck/repo`, behind `env` or `make`, wrote its repository to the host's disk.
#[test]
fn what_is_not_reached_makes_nothing_where_the_pool_is_seen() {
    const USER: u32 = 54321;
    let (place, arck) = match rustix::process::geteuid().is_root() {
        true => Place::of_users(USER),
        false => (Place::new(), PathBuf::from(env!("CARGO_BIN_EXE_arck"))),
    };
    crate::support::preload_library();
    let directory = place.path();
    compile(directory, "static", SOURCE, &["-static"]);
    let program = directory.join("static");
    // Root, and, where they can be become, another user, in directories of their own.
    let mut users = vec![None];
    if rustix::process::geteuid().is_root() {
        users.push(Some(USER));
    }
    for user in users {
        let command = |words: &[&str]| {
            let mut command = Command::new(&arck);
            command
                .args(words)
                .current_dir(directory)
                .env_remove("ARCK_STRICT");
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
            command.output().unwrap()
        };
        let own = directory.join(format!("own-{}", user.unwrap_or(0)));
        std::fs::create_dir(&own).unwrap();
        let pool = own.join("pool");
        if let Some(user) = user {
            chown(&own, Some(user), Some(user)).unwrap();
        }
        let pool = pool.to_str().unwrap();
        let made = command(&["mkfs", pool, "--size", "16M"]);
        assert!(made.status.success(), "{made:?}");
        // Missing on the host, there and empty, and again.
        let missing = own.join("missing");
        let there = own.join("there");
        std::fs::create_dir(&there).unwrap();
        if let Some(user) = user {
            chown(&there, Some(user), Some(user)).unwrap();
        }
        let report = own.join("report.json");
        let option = format!("--report={}", report.display());
        for (mount, is_held) in [
            (&missing, true),
            (&missing, true),
            // His own directory, which only root can have hidden.
            (
                &there,
                user.is_none() && rustix::process::geteuid().is_root(),
            ),
        ] {
            let path = mount.to_str().unwrap();
            for script in [
                "$0 $1/made",
                "env $0 $1/made",
                "echo all: >m; echo '\t'$0 $1/made >>m; make -f m",
            ] {
                let script = format!("mkdir -p $1/seen; {script}; : ; ls $1");
                let program = program.to_str().unwrap();
                let words = [
                    "run",
                    "--no-mount",
                    "--quiet",
                    "--pool",
                    pool,
                    "--mount",
                    path,
                    &option,
                    "--",
                    "sh",
                    "-c",
                ];
                let mut words = words.to_vec();
                let script = format!("cd {}; {script}", own.display());
                words.extend([&script, program, path]);
                let output = command(&words);
                let told = String::from_utf8_lossy(&output.stdout);
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(told.contains("ran\n"), "{script}: {output:?}");
                // The pool is there all the same.
                assert!(told.ends_with("seen\n"), "{script}: {output:?}");
                let report = std::fs::read_to_string(&report).unwrap();
                let report: serde_json::Value = serde_json::from_str(&report).unwrap();
                let strays = report["strays"].as_str().unwrap();
                assert_eq!(strays.contains("can make nothing"), is_held, "{strays}");
                match is_held {
                    true => {
                        // Nor is anything left of what was made for it.
                        let left = mount.exists().then(|| listed(mount));
                        let expected = (mount == &there).then(Vec::new);
                        assert_eq!(left, expected, "{script}: {output:?}");
                        assert!(errors.contains("mkdir: "), "{script}: {output:?}");
                    }
                    false => {
                        assert_eq!(listed(mount), ["made"], "{script}: {output:?}");
                        std::fs::remove_dir(mount.join("made")).unwrap();
                    }
                }
            }
        }
        // What is in a directory of the host's is not to be seen by the command, which is said.
        std::fs::create_dir(there.join("old")).unwrap();
        let there = there.to_str().unwrap();
        let words = ["run", "--pool", pool, "--mount", there, "--", "ls", there];
        let output = command(&words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("exists on the host too"), "{output:?}");
        assert_eq!(output.stdout, b"seen\n", "{output:?}");
    }
}
