//! Runs one program several times, on a plain directory and on pools served under the mount prefix
//! by the preload library with each dispatch, and compares what it prints.

use arck_testkit::{TestPool, connect_as};
use arckfs::FileSystem;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The library as it is now: a test that runs alone builds it, in the target directory that the test was
/// built in.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().expect("a path");
        let target = test.ancestors().nth(3).expect("TARGET/debug/deps/TEST");
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
        // As all others are built: with other features it would be another library in the same place.
        let status = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--workspace",
                "--locked",
                "--target-dir",
            ])
            .arg(target)
            .args(["--manifest-path", manifest])
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the library does not build");
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("served.so");
        std::fs::copy(target.join("debug/libarck_preload.so"), &copy).expect("a copy");
        copy
    })
}

/// The group of all that is served by a pool.
const GROUP: &str = "served";

/// The group's first member, which does nothing and stays until it is dropped, as `arck run` does it.
pub fn keeper(pool: &TestPool) -> FileSystem {
    connect_as(&pool.path(), GROUP.as_bytes())
}

/// The command, served by a pool under `/arck`.
pub fn served_by_pool(pool: &TestPool, report: &str, command: &mut Command) -> Output {
    served_by_pool_at(pool, Path::new("/arck"), Path::new(report), command)
}

/// The command, served by a pool under `mount`, as `arck run` does it: its processes are a group.
pub fn served_by_pool_at(
    pool: &TestPool,
    mount: &Path,
    report: &Path,
    command: &mut Command,
) -> Output {
    let _keeper = keeper(pool);
    set_up(pool, mount, report, command);
    command.output().expect("the command runs")
}

pub fn set_up(pool: &TestPool, mount: &Path, report: &Path, command: &mut Command) {
    elsewhere(command);
    command
        .env("LD_PRELOAD", library())
        .env("ARCK_POOL", pool.path())
        .env("ARCK_GROUP", GROUP)
        .env("ARCK_MOUNT", mount)
        .env("ARCK_REPORT", report);
}

/// Has a command begin in the tests' own directory: one that does not get into the pool does what it does there, and not
/// among the sources.
fn elsewhere(command: &mut Command) -> &mut Command {
    static ELSEWHERE: OnceLock<PathBuf> = OnceLock::new();
    let directory = ELSEWHERE.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("elsewhere");
        std::fs::create_dir_all(&directory).expect("a directory");
        directory
    });
    match command.get_current_dir() {
        Some(_) => command,
        None => command.current_dir(directory),
    }
}

/// Bytes; room for what the tests write.
const POOL_SIZE: u64 = 256 << 20;

/// Which dispatch the library uses.
pub const DISPATCHES: [&str; 2] = ["sud-inclusive", "sud-exclusive"];

pub struct Place {
    pub directory: tempfile::TempDir,
    pub report: PathBuf,
    pool: OnceLock<TestPool>,
}

impl Place {
    pub fn new() -> Place {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let report = directory.path().join("report");
        std::fs::create_dir(directory.path().join("files")).expect("a directory");
        std::fs::write(&report, "").expect("a file for the report");
        Place {
            directory,
            report,
            pool: OnceLock::new(),
        }
    }

    pub fn files(&self) -> PathBuf {
        self.directory.path().join("files")
    }

    /// The place's own pool.
    pub fn pool(&self) -> &TestPool {
        self.pool.get_or_init(|| TestPool::new(POOL_SIZE))
    }

    /// The command, served by the place's pool under `/arck`.
    pub fn served(&self, dispatch: &str, command: &mut Command) -> Output {
        let report = self.report.to_str().expect("UTF-8");
        served_by_pool(self.pool(), report, command.env("ARCK_DISPATCH", dispatch))
    }

    /// The report's lines, parsed.
    pub fn report(&self) -> Vec<serde_json::Value> {
        std::fs::read_to_string(&self.report)
            .expect("a report")
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }
}

/// Compiles a C program of `tests/programs`.
pub fn compile(name: &str) -> PathBuf {
    compile_with(name, &[])
}

/// The same with libraries.
pub fn compile_with(name: &str, libraries: &[&str]) -> PathBuf {
    compile_as(name, name, libraries)
}

/// The same under another name, with other options.
pub fn compile_as(name: &str, binary: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(format!("{name}.c"));
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(binary);
    let output = Command::new("cc")
        .args(["-O1", "-g", "-pthread", "-Wall", "-o"])
        .arg(&binary)
        .arg(&source)
        .args(options)
        .output()
        .expect("cc runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    binary
}

pub fn shown(output: &Output, directory: &str) -> String {
    format!(
        "{}{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status
    )
    .replace(directory, "DIRECTORY")
}

/// Runs `command DIRECTORY` plainly and served, with each dispatch, and compares everything printed
/// and the exit status. Returns what was printed.
pub fn compare(command: impl Fn() -> Command) -> String {
    let plain = Place::new();
    let directory = plain.files();
    let directory = directory.to_str().expect("UTF-8");
    let expected = shown(
        &elsewhere(command().arg(directory))
            .output()
            .expect("the command runs"),
        directory,
    );
    for dispatch in DISPATCHES {
        let place = Place::new();
        let got = shown(&place.served(dispatch, command().arg("/arck")), "/arck");
        assert!(
            expected == got,
            "dispatch {dispatch}\n--- plain\n{expected}\n--- served\n{got}"
        );
        let report = place.report();
        assert!(
            report
                .iter()
                .any(|line| line["interception"]["dispatch"] == dispatch),
            "{report:?}"
        );
        assert!(
            report
                .iter()
                .any(|line| !line["served"].as_object().expect("counts").is_empty())
        );
        assert!(
            report
                .iter()
                .all(|line| line["past"] == serde_json::json!({})),
            "{report:?}"
        );
    }
    expected
}

/// What diff(1) says, cut.
fn difference(expected: &str, got: &str) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let files = ["expected", "got"].map(|name| directory.path().join(name));
    for (file, text) in files.iter().zip([expected, got]) {
        std::fs::write(file, text).expect("a file");
    }
    let output = Command::new("diff")
        .args(&files)
        .output()
        .expect("diff runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .take(400)
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Runs `command DIRECTORY` on a directory of tmpfs and on a pool, and compares everything printed
/// and the exit status, line by line.
pub fn compare_with_tmpfs(command: impl Fn() -> Command) {
    let pool = TestPool::new(POOL_SIZE);
    compare_with_tmpfs_on(&pool, command, |_| {});
}

/// The same on this pool, with other settings where it is served.
pub fn compare_with_tmpfs_on(
    pool: &TestPool,
    command: impl Fn() -> Command,
    settings: impl FnOnce(&mut Command),
) {
    let plain = tempfile::tempdir_in("/dev/shm").expect("a directory of tmpfs");
    let directory = plain.path().to_str().expect("UTF-8");
    let expected = shown(
        &command().arg(directory).output().expect("the command runs"),
        directory,
    );
    let place = Place::new();
    let report = place.report.to_str().expect("UTF-8");
    let mut served = command();
    set_up(pool, Path::new("/arck"), Path::new(report), &mut served);
    settings(&mut served);
    let keeper = keeper(pool);
    let output = served.arg("/arck").output().expect("the command runs");
    let got = shown(&output, "/arck");
    drop(keeper);
    let difference = difference(&expected, &got);
    assert!(difference.is_empty(), "< tmpfs  > pool\n{difference}");
    assert!(expected.lines().count() > 10, "{expected}");
    assert_eq!(pool.violations(), "");
    assert!(
        place
            .report()
            .iter()
            .all(|line| line["past"] == serde_json::json!({}))
    );
}

/// Runs a C program on both.
pub fn compare_program(name: &str) -> String {
    let binary = compile(name);
    compare(|| Command::new(&binary))
}

/// Runs a shell script on both; `$D` is the directory.
pub fn compare_script(shell: &str, script: &str) -> String {
    compare(|| {
        let mut command = Command::new(shell);
        command
            .arg("-c")
            .arg(format!("D=$1; cd $D || exit 9\n{script}"))
            .arg("script");
        command
    })
}
