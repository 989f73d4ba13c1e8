//! Real applications, each at work by itself on a pool and on a directory of tmpfs: everything
//! printed, the exit status and the files left behind must be the same, and the report must say
//! that no call got past the library.
//!
//! Both see their files under the same path (first the directory itself, then, once it is moved
//! away, the mount prefix), so that names stored in what they write are the same too, and what
//! got past the library would find nothing there.

use super::support::served_by_pool_at;
use arck_testkit::{TestPool, differences};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

struct Application {
    name: &'static str,
    /// What must be installed: a command or a file, and the Debian package that has it.
    needs: &'static [(&'static str, &'static str)],
    /// The command; the directory to work in is put behind it. `SCRIPTS` is the directory of the
    /// scripts, `SCRATCH` one outside the pool.
    command: &'static [&'static str],
    /// The program whose line in the report must count served calls.
    program: &'static str,
    /// Files (any path with this in it) whose bytes hold times or inode numbers.
    volatile: &'static [&'static str],
}

const BASH: Application = Application {
    name: "bash",
    needs: &[("/bin/bash", "bash")],
    command: &["/bin/bash", "SCRIPTS/bash.sh"],
    program: "/bin/bash",
    volatile: &[],
};

const PERL: Application = Application {
    name: "perl",
    needs: &[("/usr/bin/perl", "perl")],
    command: &["/usr/bin/perl", "SCRIPTS/perl.pl"],
    program: "/usr/bin/perl",
    volatile: &[],
};

// Not by way of PATH, where it may be a shell script.
const PYTHON: Application = Application {
    name: "python3",
    needs: &[("/usr/bin/python3", "python3")],
    command: &["/usr/bin/python3", "SCRIPTS/python.py"],
    program: "/usr/bin/python3",
    volatile: &["__pycache__/"],
};

const NODE: Application = Application {
    name: "node",
    needs: &[("node", "nodejs")],
    command: &["node", "SCRIPTS/node.js"],
    program: "node",
    volatile: &[],
};

const JAVA: Application = Application {
    name: "java",
    needs: &[
        ("java", "default-jdk-headless"),
        ("javac", "default-jdk-headless"),
    ],
    command: &["java", "SCRIPTS/Files.java"],
    program: "java",
    volatile: &[],
};

const GCC: Application = Application {
    name: "gcc",
    needs: &[
        ("gcc", "build-essential"),
        ("g++", "build-essential"),
        ("make", "build-essential"),
    ],
    command: &["/bin/bash", "SCRIPTS/gcc.sh"],
    program: "cc1",
    // Archives hold no times (ar is deterministic in Debian); objects hold their paths, which
    // are the same.
    volatile: &[],
};

const GIT: Application = Application {
    name: "git",
    needs: &[("git", "git")],
    command: &["/bin/bash", "SCRIPTS/git.sh"],
    program: "git",
    // The index holds what `stat` says.
    volatile: &[".git/index"],
};

const SQLITE: Application = Application {
    name: "sqlite3",
    needs: &[("sqlite3", "sqlite3")],
    command: &["/bin/bash", "SCRIPTS/sqlite.sh"],
    program: "sqlite3",
    volatile: &[],
};

const REDIS: Application = Application {
    name: "redis-server",
    needs: &[
        ("redis-server", "redis-server"),
        ("redis-cli", "redis-tools"),
        ("redis-benchmark", "redis-tools"),
    ],
    command: &["/bin/sh", "SCRIPTS/redis.sh", "SCRATCH"],
    program: "redis-server",
    // Its snapshot says when it was made.
    volatile: &["base.rdb"],
};

#[test]
fn bash() {
    check(&BASH);
}

#[test]
fn perl() {
    check(&PERL);
}

#[test]
fn python3() {
    check(&PYTHON);
}

#[test]
fn node() {
    check(&NODE);
}

#[test]
fn java() {
    check(&JAVA);
}

#[test]
fn gcc() {
    check(&GCC);
}

#[test]
fn git() {
    check(&GIT);
}

#[test]
fn sqlite3() {
    check(&SQLITE);
}

#[test]
fn redis_server() {
    check(&REDIS);
}

/// Bytes; room for what the applications write.
const POOL_SIZE: u64 = 512 << 20;

fn check(application: &Application) {
    let missing: Vec<_> = application
        .needs
        .iter()
        .filter(|(tool, _)| !is_installed(tool))
        .map(|(tool, package)| format!("{tool} (Debian's package {package})"))
        .collect();
    assert!(
        missing.is_empty(),
        "{} cannot be tested without {}; scripts/prepare installs it",
        application.name,
        missing.join(", ")
    );

    let place = tempfile::Builder::new()
        .prefix("arck-test-")
        .tempdir_in("/dev/shm")
        .expect("a directory in /dev/shm");
    let directory = place.path().join("files");
    let scratch = place.path().join("scratch");
    std::fs::create_dir(&directory).expect("a directory");
    std::fs::create_dir(&scratch).expect("a directory");

    let expected = finish(&mut command(application, &scratch, &directory));
    let expected_tree = tree(&finish(&mut listing(&directory)), application.volatile);
    assert!(
        expected.status.success(),
        "{} fails on tmpfs: {}",
        application.name,
        shown(&expected)
    );
    std::fs::rename(&directory, place.path().join("on-tmpfs")).expect("a rename");

    let mut pool = TestPool::new(POOL_SIZE);
    let report = place.path().join("report");
    std::fs::write(&report, "").expect("a file for the report");
    let serve = |pool: &TestPool, command: &mut Command| {
        served_by_pool_at(pool, &directory, &report, command.stdin(Stdio::null()))
    };
    let got = serve(&pool, &mut command(application, &scratch, &directory));
    assert!(
        shown(&expected) == shown(&got),
        "{}: printed on tmpfs (<) and on the pool (>):\n{}",
        application.name,
        differences(&shown(&expected), &shown(&got))
    );
    let lines = report_lines(&report);
    let served = lines.iter().any(|line| {
        line["program"]
            .as_str()
            .is_some_and(|name| name.ends_with(application.program))
            && !line["served"].as_object().expect("counts").is_empty()
    });
    assert!(
        served,
        "no call of {} was served: {lines:#?}",
        application.program
    );

    let compare_trees = |pool: &TestPool, when: &str| {
        let listed = serve(pool, &mut listing(&directory));
        assert!(listed.status.success(), "{}", shown(&listed));
        let got_tree = tree(&listed, application.volatile);
        assert!(
            expected_tree == got_tree,
            "{}, {when}: files on tmpfs (<) and on the pool (>):\n{}",
            application.name,
            differences(&expected_tree, &got_tree)
        );
    };
    compare_trees(&pool, "as left behind");
    // What is durable is the same.
    pool.stop();
    pool.serve();
    compare_trees(&pool, "after a new start of the controller");

    for line in report_lines(&report) {
        assert_eq!(line["past"], serde_json::json!({}), "{line:#}");
    }
    assert!(!directory.exists(), "something was made beside the pool");
    assert_eq!(pool.violations(), "");
}

fn is_installed(tool: &str) -> bool {
    if tool.starts_with('/') {
        return Path::new(tool).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(tool).exists())
}

fn command(application: &Application, scratch: &Path, directory: &Path) -> Command {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/applications");
    let words: Vec<_> = application
        .command
        .iter()
        .map(|word| {
            word.replace("SCRIPTS", scripts)
                .replace("SCRATCH", scratch.to_str().expect("UTF-8"))
        })
        .collect();
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .arg(directory)
        // Not what the test runner has: a job server's descriptors, a home with settings.
        .env_remove("MAKEFLAGS")
        .env_remove("CARGO_MAKEFLAGS")
        .env_remove("LD_LIBRARY_PATH")
        .env("HOME", scratch)
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC");
    command
}

/// Every name with its kind, mode, owner, and for what is no directory its link count and size;
/// then what files hold.
fn listing(directory: &Path) -> Command {
    let script = r#"cd "$1"
        find . \( -type d -printf '%p\t%y %m %U %G\n' \) -o -printf '%p\t%y %m %U %G %n %s %l\n'
        find . -type f -print0 | xargs -0 -r sha256sum | sed 's/^\([0-9a-f]*\)  \(.*\)$/\2\t\1/'"#;
    let mut command = Command::new("/bin/sh");
    command.args(["-euc", script, "sh"]).arg(directory);
    command
}

/// The listing, sorted by name; of volatile files only that they are there.
fn tree(listing: &Output, volatile: &[&str]) -> String {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for line in String::from_utf8_lossy(&listing.stdout).lines() {
        let (name, said) = line.split_once('\t').expect("a name and a tab");
        let entry = names.entry(name.to_owned()).or_default();
        if !volatile.iter().any(|part| name.contains(part)) {
            entry.push(' ');
            entry.push_str(said);
        }
    }
    names
        .iter()
        .map(|(name, said)| format!("{name}{said}\n"))
        .collect()
}

fn finish(command: &mut Command) -> Output {
    command
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

fn shown(output: &Output) -> String {
    format!(
        "--- {}, errors:\n{}--- output:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout),
    )
}

fn report_lines(report: &Path) -> Vec<serde_json::Value> {
    std::fs::read_to_string(report)
        .expect("a report")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}
