//! `arck run --fs`: which of the file systems a command's programs have, and what becomes of two in one group.

use crate::support::{Place, Running, refused, run, succeeded};
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

fn finished(command: Command) -> std::process::Output {
    Running::start(command).finished(SOON)
}

/// A deep tree that a shell, and what it starts, makes and changes.
const DEEP: &str = r#"
set -e
cd /arck
mkdir -p a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t
echo text >a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/file
mv a/b/c/d moved
cat moved/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/file
cat a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/file 2>/dev/null || echo gone
echo "$ARCK_FS"
(cd moved/e/f && find . -type f)
"#;

#[test]
fn programs_have_the_file_system_that_they_are_given() {
    for (options, named) in [
        (&["--fs", "fpfs"][..], "fpfs"),
        (&["--fs", "fpfs", "--no-group"], "fpfs"),
        (&["--fs", "fpfs", "--group", "deep"], "fpfs"),
        (&["--fs", "arckfs"], ""),
        (&[], ""),
    ] {
        let place = Place::made();
        let said = succeeded(&finished(run(&place.pool(), options, &["sh", "-c", DEEP])));
        let file = "./g/h/i/j/k/l/m/n/o/p/q/r/s/t/file";
        assert_eq!(
            said,
            format!("text\ngone\n{named}\n{file}\n"),
            "{options:?}"
        );
    }
}

/// Two that are not of one group work beside each other; what a command starts has its file system.
#[test]
fn two_file_systems_are_two_groups() {
    let place = Place::made();
    let arck = crate::support::arck();
    let arck = arck.get_program().to_str().unwrap();
    let inner = format!(
        "echo $ARCK_FS $ARCK_GROUP; {arck} run -- sh -c 'echo $ARCK_FS $ARCK_GROUP'; \
                         {arck} run --own-group --fs arckfs -- sh -c 'echo $ARCK_FS; cat /arck/a/file'"
    );
    let script = "mkdir /arck/a; echo text >/arck/a/file; ".to_owned() + &inner;
    let said = succeeded(&finished(run(
        &place.pool(),
        &["--fs", "fpfs"],
        &["sh", "-c", &script],
    )));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert_eq!(lines[0], lines[1], "of one group");
    assert!(
        lines[0].starts_with("fpfs user-") && lines[0].ends_with("-fpfs"),
        "{said}"
    );
    assert_eq!(lines[2..], ["", "text"]);
}

#[test]
fn a_group_has_one_file_system() {
    let place = Place::made();
    let arck = crate::support::arck();
    let arck = arck.get_program().to_str().unwrap();
    for (theirs, ours) in [("arckfs", "fpfs"), ("fpfs", "arckfs")] {
        let inner = format!(
            "echo a >/arck/{theirs}; {arck} run --group one --fs {ours} -- sh -c 'cat /arck/{theirs}' 2>&1; \
                             cat /arck/{theirs}"
        );
        let options = ["--fs", theirs, "--group", "one"];
        let output = finished(run(&place.pool(), &options, &["sh", "-c", &inner]));
        let said = succeeded(&output);
        let part = format!(
            "the programs of group one have {theirs}, and this one is to have {ours}: a group has one file system; \
             end them, or be of another group: arck run --own-group --fs {ours}"
        );
        assert!(said.contains(&part), "{said}");
        assert!(said.ends_with("\na\n"), "theirs goes on: {said}");
    }
}

#[test]
fn a_file_system_of_another_name_is_none() {
    let place = Place::made();
    let output = finished(run(&place.pool(), &["--fs", "ext4"], &["true"]));
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("ext4") && said.contains("arckfs, fpfs"),
        "{said}"
    );
    let mut command = run(&place.pool(), &[], &["true"]);
    command.env("ARCK_FS", "ext4");
    refused(
        &finished(command),
        "ARCK_FS: ext4 is no file system; there are: arckfs, fpfs",
    );
    // A program that is told so by somebody else.
    let script = "ARCK_FS=ext4 cat /arck/file; echo $?";
    let output = finished(run(&place.pool(), &["--no-group"], &["sh", "-c", script]));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("ARCK_FS names no file system: arckfs and fpfs are known"),
        "{told}"
    );
    assert_eq!(succeeded_with_errors(&output), "1\n");
}

/// What a program of a group starts without one has none.
#[test]
fn who_is_to_have_no_group_has_none() {
    let place = Place::made();
    let arck = crate::support::arck();
    let arck = arck.get_program().to_str().unwrap();
    let script = format!(
        "{arck} run --no-group -- sh -c 'echo group: $ARCK_GROUP.; echo text >/arck/file'; cat /arck/file"
    );
    let said = succeeded(&finished(run(&place.pool(), &[], &["sh", "-c", &script])));
    assert_eq!(said, "group: .\ntext\n");
}

fn succeeded_with_errors(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
