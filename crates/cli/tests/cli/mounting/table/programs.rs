//! Programs that lie there, and programs at work there.

use super::{Seen, number};
use std::fs::{OpenOptions, remove_file, write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

pub fn programs(at: &Path, seen: &mut Seen) {
    let program = at.join("true");
    std::fs::copy("/bin/true", &program).unwrap();
    seen.note("runs", Command::new(&program).status().unwrap().code());
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o644)).unwrap();
    seen.note(
        "not executable",
        number(Command::new(&program).status()).map(drop),
    );
    write(at.join("garbage"), "\0garbage").unwrap();
    std::fs::set_permissions(at.join("garbage"), std::fs::Permissions::from_mode(0o755)).unwrap();
    seen.note(
        "no program",
        number(Command::new(at.join("garbage")).status()).map(drop),
    );
    std::fs::copy("/bin/sleep", at.join("sleep")).unwrap();
    let mut sleeping = Command::new(at.join("sleep")).arg("30").spawn().unwrap();
    seen.note(
        "busy",
        number(OpenOptions::new().write(true).open(at.join("sleep"))).map(drop),
    );
    seen.note(
        "unlinked all the same",
        number(remove_file(at.join("sleep"))),
    );
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
}

pub fn scripts(at: &Path, seen: &mut Seen) {
    write(
        at.join("script"),
        "#!/bin/sh\necho it runs in $(basename $(dirname $0)) >out; cat out; rm out; echo $?\n",
    )
    .unwrap();
    std::fs::set_permissions(at.join("script"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(at.join("script"))
        .current_dir(at)
        .output()
        .unwrap();
    seen.note(
        "says",
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .skip(1)
            .collect::<Vec<_>>(),
    );
    let script = "mkdir -p a/b/c && for i in 1 2 3; do echo $i >a/b/c/$i; done && cp -a a copy && diff -r a copy && \
        mv copy/b/c/1 copy/one && ln copy/one copy/two && find . | sort && tar cf x.tar a && rm -rf a && tar xf x.tar && \
        cat a/b/c/* && sed -i s/2/two/ a/b/c/2 && cat a/b/c/2 && du -a a | wc -l && rm -rf a copy x.tar";
    let output = Command::new("sh")
        .args(["-ec", script])
        .current_dir(at)
        .output()
        .unwrap();
    seen.note(
        "script",
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ),
    );
}
