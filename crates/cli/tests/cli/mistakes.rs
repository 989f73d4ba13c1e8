//! What users do wrong: every message names what is wrong and what to do, and the exit status is
//! the one that shells give.

use crate::support::{Place, Serving, arck, preload_library, refused};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

/// A command line, the exit status that it gives, and what the message has to hold. In both, `@`
/// is the directory of [`scene`].
type Mistake = (&'static [&'static str], i32, &'static [&'static str]);

const USAGE: &[Mistake] = &[
    (&[], 2, &["Usage: arck <COMMAND>", "mkfs", "serve", "run"]),
    (&["mkfs", "@/new"], 2, &["--size"]),
    (&["mkfs", "@/new", "--size"], 2, &["--size"]),
    (
        &["mkfs", "@/new", "--size", "1X"],
        2,
        &["'1X'", "512M or 1.5G"],
    ),
    (
        &["mkfs", "@/new", "--size", "-5"],
        2,
        &["'-5'", "512M or 1.5G"],
    ),
    (
        &["mkfs", "@/new", "--size", "lots"],
        2,
        &["'lots'", "512M or 1.5G"],
    ),
    (
        &["mkfs", "@/new", "--size", "16M", "--mode", "999"],
        2,
        &["'999'", "octal"],
    ),
    (
        &["mkfs", "@/new", "@/other", "--size", "16M"],
        2,
        &["@/other", "Usage"],
    ),
    (
        &["violations", "@/pool", "--show", "x"],
        2,
        &["'x'", "--show", "a number is wanted"],
    ),
    (
        &["check", "@/pool", "--limit", "x"],
        2,
        &["'x'", "--limit", "a number is wanted"],
    ),
    (
        &["check", "@/pool", "--threads", "99999999999999999999"],
        2,
        &["--threads", "more than can be"],
    ),
    (&["serve", "@/pool", "--lease", "-3"], 2, &["'-3'"]),
    (
        &["serve", "@/pool", "--medium", "floppy"],
        1,
        &["floppy", "no such file", "optane, cxl, dram"],
    ),
    (
        &["serve", "@/pool", "--medium", "optane", "--nodes", "17"],
        1,
        &["--nodes 17", "1 to 16 nodes"],
    ),
    (
        &["serve", "@/pool", "--medium", "none", "--nodes", "2"],
        1,
        &["--nodes 2", "--medium"],
    ),
    (
        &["serve", "@/pool", "--persist", "often"],
        2,
        &["auto, always or never"],
    ),
    (&["run"], 2, &["<CMD>"]),
    (&["run", "--pool", "@/pool"], 2, &["<CMD>"]),
    (
        &["run", "--pol", "@/pool", "true"],
        2,
        &["'--pol'", "'--pool'", "Usage"],
    ),
    (
        &["run", "--pol=@/pool", "true"],
        2,
        &["'--pol'", "'--pool'", "Usage"],
    ),
    (
        &["run", "--verbose", "true"],
        2,
        &["'--verbose'", "Usage", "--help"],
    ),
    (
        &["run", "-p", "@/pool", "true"],
        2,
        &["'-p'", "Usage", "--help"],
    ),
    (
        &["run", "@/pool", "true"],
        2,
        &["is a pool", "arck run --pool @/pool -- CMD"],
    ),
];

const POOLS: &[Mistake] = &[
    (
        &["mkfs", "@/new", "--size", "1M"],
        1,
        &["1 MiB", "16 MiB and 16 TiB", "--size 1G"],
    ),
    (&["mkfs", "@/new", "--size", "0"], 1, &["0 bytes", "16 MiB"]),
    (
        &["mkfs", "@/new", "--size", "100T"],
        1,
        &["100 TiB", "16 TiB"],
    ),
    (
        &["mkfs", "@/full", "--size", "16M"],
        1,
        &["@/full", "not empty", "another directory"],
    ),
    (
        &["mkfs", "@/full", "--size", "16M", "--force"],
        1,
        &["no Arck pool", "another directory"],
    ),
    (
        &["mkfs", "@/pool", "--size", "16M"],
        1,
        &["holds an Arck pool", "--force", "lost"],
    ),
    (
        &["mkfs", "@/file", "--size", "16M"],
        1,
        &["@/file", "is a directory"],
    ),
    (
        &["mkfs", "@/file/new", "--size", "16M"],
        1,
        &["@/file/new", "a file stands"],
    ),
    (
        &["mkfs", "@/no/new", "--size", "16M"],
        1,
        &["@/no/new", "the directory above"],
    ),
    (
        &["mkfs", "/proc/x", "--size", "16M"],
        1,
        &["/proc/x", "choose another place"],
    ),
    (
        &["status", "@/none"],
        1,
        &["no pool at @/none", "arck mkfs @/none"],
    ),
    (&["status", "@/full"], 1, &["not a pool", "arck mkfs"]),
    (
        &["status", "@/pool"],
        1,
        &["nobody serves the pool @/pool", "arck serve @/pool"],
    ),
    (
        &["check", "@/none"],
        2,
        &["no pool at @/none", "arck mkfs @/none"],
    ),
    (&["check", "@/full"], 2, &["not a pool", "arck mkfs"]),
    (
        &["check", "--repair", "@/none"],
        2,
        &["no pool at @/none", "arck mkfs @/none"],
    ),
    (
        &["serve", "@/none"],
        1,
        &["no pool at @/none", "arck mkfs @/none"],
    ),
    (
        &["serve", "@/file"],
        1,
        &["@/file", "is a directory, made by `arck mkfs`"],
    ),
    (&["serve", "@/full"], 1, &["no pool at @/full", "arck mkfs"]),
    (
        &["serve", "@/served"],
        1,
        &["@/served", "served by process", "stop"],
    ),
    (
        &["serve", "@/pool", "--ready-fd", "77"],
        1,
        &["--ready-fd 77", "open"],
    ),
    (
        &["mkfs", "@/served", "--size", "16M", "--force"],
        1,
        &["served by process", "stop"],
    ),
    (
        &["run", "--pool", "@/none", "true"],
        1,
        &["no pool at @/none", "arck mkfs @/none"],
    ),
    (
        &["run", "--pool", "@/file", "true"],
        1,
        &["@/file is a file", "arck mkfs"],
    ),
    (
        &["run", "--pool", "@/pool/superblock", "true"],
        1,
        &["is a file", "arck mkfs"],
    ),
    (
        &["run", "--pool", "@/full", "true"],
        1,
        &["not a pool", "arck mkfs"],
    ),
    (
        &["run", "--pool", "@/pool", "--mount", "arck", "true"],
        1,
        &["--mount arck", "/arck"],
    ),
    (
        &["run", "--pool", "@/pool", "--mount", "/", "true"],
        1,
        &["--mount /", "/arck"],
    ),
    (
        &["run", "--pool", "@/pool", "--mount", "/a/../b", "true"],
        1,
        &["/a/../b", "/arck"],
    ),
    (
        &["run", "--pool", "@/pool", "--mount", "@", "true"],
        1,
        &["own mount", "another --mount"],
    ),
    (
        &["run", "--pool", "@/pool", "--report=@/no/x", "true"],
        1,
        &["@/no/x", "No such file"],
    ),
];

const COMMANDS: &[Mistake] = &[
    (
        &["no-such-command"],
        127,
        &["no such command: no-such-command", "$PATH"],
    ),
    (
        &["./no-such-command"],
        127,
        &["no such command", "no such file"],
    ),
    (&[""], 127, &["no such command"]),
    (
        &["ls -l /arck"],
        127,
        &["\"ls -l /arck\"", "without quotes"],
    ),
    (&["/arck/none"], 127, &["/arck/none", "No such file"]),
    (
        &["@/script"],
        127,
        &["@/script", "interpreter /nonexistent/shell"],
    ),
    (&["@/file"], 126, &["@/file", "chmod +x"]),
    (&["@/full"], 126, &["@/full", "is a directory"]),
    (
        &["@/garbage"],
        126,
        &["@/garbage", "no program for this machine"],
    ),
];

/// A pool that nobody serves, one that somebody does, and what is none.
fn scene() -> (Place, Serving) {
    let place = Place::made();
    let path = |name: &str| place.path().join(name);
    assert!(
        crate::support::mkfs(&path("served"), &["--size", "16M"])
            .status
            .success()
    );
    let serving = Serving::start(&path("served"), &[]);
    std::fs::create_dir(path("full")).unwrap();
    std::fs::write(path("full/mine"), "mine").unwrap();
    std::fs::write(path("file"), "a file").unwrap();
    for (name, contents) in [
        ("script", &b"#!/nonexistent/shell\n"[..]),
        ("garbage", b"\x7fELF\x02\x01\x01 is not all that it takes"),
    ] {
        std::fs::write(path(name), contents).unwrap();
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    (place, serving)
}

fn check(place: &Path, command: &mut Command, mistake: &Mistake, lines: bool) {
    let (words, status, says) = mistake;
    let place = place.to_str().unwrap();
    preload_library();
    let at = |text: &str| text.replace('@', place);
    let command = command
        .args(words.iter().map(|word| at(word)))
        .current_dir("/");
    let output = command.env_remove("ARCK_POOL").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(*status), "{words:?}: {text}");
    assert_eq!(output.stdout, b"", "{words:?}");
    assert!(!lines || text.lines().count() == 1, "{words:?}: {text}");
    // Neither numbers of errors nor bytes where people count in MiB.
    assert!(
        !text.contains("os error") && !text.contains("16777216"),
        "{words:?}: {text}"
    );
    for part in *says {
        assert!(text.contains(&at(part)), "{words:?} lacks {part:?}: {text}");
    }
}

#[test]
fn every_mistake_is_told_with_what_to_do() {
    let (place, mut serving) = scene();
    for mistake in USAGE {
        check(place.path(), &mut arck(), mistake, false);
    }
    for mistake in POOLS {
        check(place.path(), &mut arck(), mistake, true);
    }
    for mistake in COMMANDS {
        let mut run = arck();
        run.arg("run").arg("--pool").arg(place.pool()).arg("--");
        check(place.path(), &mut run, mistake, true);
    }
    assert!(!place.path().join("new").exists());
    serving.process.kill().unwrap();
    serving.process.wait().unwrap();
}

/// It is not proposed to do something else, which a name that is similar may be.
#[test]
fn a_command_that_there_is_not_is_told_without_another() {
    let place = Place::new();
    let words = [
        "mkf",
        "statu",
        "moun",
        "resize",
        "snapshot",
        "/dev/shm",
        "a\x1b[2J\n",
    ];
    for word in words {
        let shown = format!("no command '{}';", word.escape_debug());
        let says: &'static [&'static str] = Box::leak(Box::new([&*shown.leak(), "arck --help"]));
        for before in [&[][..], &["help"]] {
            let words = [before, &[word]].concat();
            check(place.path(), &mut arck(), &(words.leak(), 2, says), true);
        }
        let mut command = arck();
        let output = command.args([word, "--size", "1G"]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        for command in ["mkfs", "status", "serve", "run", "similar", "tip"] {
            assert!(!text.replace(word, "").contains(command), "{word}: {text}");
        }
    }
}

#[test]
fn what_the_environment_names_wrongly_is_told() {
    let place = Place::made();
    for (variable, says) in [("ARCK_PRELOAD", "$ARCK_PRELOAD"), ("TMPDIR", "$TMPDIR")] {
        let mut run = crate::support::run(&place.pool(), &["--report"], &["true"]);
        let output = run.env(variable, "/none").output().unwrap();
        refused(&output, says);
        refused(&output, "/none");
    }
}

#[test]
fn the_commands_end_is_arck_runs() {
    crate::support::hear_interrupts();
    let place = Place::made();
    let run = |script: &str| {
        let command = crate::support::run(&place.pool(), &[], &["sh", "-c", script]);
        { command }.status().unwrap()
    };
    assert_eq!(run("exit 42").code(), Some(42));
    assert_eq!(run("no-such-command 2>/dev/null").code(), Some(127));
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGINT] {
        // A shell says 128 + n of it.
        assert_eq!(run(&format!("kill -{signal} $$")).signal(), Some(signal));
    }
}

/// On a disk users expect what is written to be there when the machine comes back.
#[test]
fn a_pool_on_a_disk_is_told_of() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let probed = arck_pm::DurabilityMode::probe(disk.path()).unwrap();
    // Where the build directory is in memory nothing is to be told.
    let is_told = probed == arck_pm::DurabilityMode::Paged;
    let pool = disk.path().join("pool");
    let made = crate::support::mkfs(&pool, &["--size", "16M"]);
    let text = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success(), "{text}");
    assert_eq!(text.lines().count(), usize::from(is_told), "{text}");
    let tells = text.contains("synced") && text.contains("docs/crash-consistency.md");
    assert_eq!(tells, is_told, "{text}");
    let mut command = arck();
    command.arg("serve").arg(&pool).args(["--ready-fd", "1"]);
    let serving = Serving::of(command.stderr(std::process::Stdio::piped()));
    serving.signal(libc::SIGTERM);
    let output = serving.process.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let tells = text.starts_with("arck serve: ") && text.contains("synced");
    assert_eq!(tells, is_told, "{text}");
    // Each `arck run` would be too often.
    let run = crate::support::run(&pool, &[], &["true"]);
    assert_eq!(crate::support::succeeded(&{ run }.output().unwrap()), "");
}

#[test]
fn benchmarks_are_a_program_of_their_own() {
    // Beside the command, if it was built; nothing else is looked for.
    let output = arck()
        .args(["bench", "sharing", "--help"])
        .env("PATH", "")
        .output()
        .unwrap();
    if Path::new(env!("CARGO_BIN_EXE_arck"))
        .with_file_name("arck-bench")
        .is_file()
    {
        let text = crate::support::succeeded(&output);
        assert!(text.contains("--turns"), "{text}");
    } else {
        refused(&output, "cargo build --release -p arck-bench");
    }
}

#[test]
fn help_says_what_each_option_does() {
    for (words, says) in [
        (
            &["--help"][..],
            &["mkfs", "serve", "run", "Examples", "arck run --pool"][..],
        ),
        (
            &["mkfs", "--help"],
            &["--size", "--sparse", "--force", "1.5G", "Examples"],
        ),
        (
            &["serve", "--help"],
            &["--persist", "--medium", "Ctrl-C", "Examples"],
        ),
        (
            &["run", "--help"],
            &[
                "--pool",
                "--mount",
                "--report",
                "127",
                "128",
                "background",
                "Examples",
            ],
        ),
    ] {
        let output = arck().args(words).output().unwrap();
        let text = crate::support::succeeded(&output);
        for part in says {
            assert!(text.contains(part), "{words:?} lacks {part:?}: {text}");
        }
    }
    let commands = [
        "mkfs",
        "serve",
        "run",
        "status",
        "violations",
        "check",
        "export",
        "import",
    ];
    for words in std::iter::once(vec![]).chain(commands.map(|command| vec![command])) {
        // Not on a terminal.
        let output = arck().args(&words).arg("--help").output().unwrap();
        for line in crate::support::succeeded(&output).lines() {
            assert!(line.chars().count() <= 80, "{words:?}: {line}");
        }
    }
}
