//! The command, pools to try it on, and what its output has to look like.
//!
//! # Invariant
//! * When a [`Place`] is dropped, the verifier has refused nothing on any of its pools.

use arck_testkit::honest;
use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::Duration;

pub fn arck() -> Command {
    Command::new(env!("CARGO_BIN_EXE_arck"))
}

/// The library that `arck run` preloads, beside the command. It is built here, because the tests
/// of the library itself leave it in another form.
pub fn preload_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let arck = Path::new(env!("CARGO_BIN_EXE_arck"));
        let profile = arck.parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "--target-dir"]);
        build.arg(profile.parent().unwrap());
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        // As `make` and `scripts/test` build it: with other features it would be another library in the same place.
        build.args(match profile.ends_with("release") {
            true => ["--release", "-parck-cli", "-parck-preload"].as_slice(),
            false => &["--workspace"],
        });
        assert!(build.status().unwrap().success());
        arck.with_file_name("libarck_preload.so")
    })
}

/// `arck run --pool POOL OPTIONS -- COMMAND`.
pub fn run(pool: &Path, options: &[&str], command: &[&str]) -> Command {
    preload_library();
    let mut run = arck();
    run.arg("run").arg("--pool").arg(pool).args(options);
    run.arg("--").args(command);
    run
}

/// A command that runs, the leader of a process group, which does not outlive this.
pub struct Running {
    what: String,
    child: Option<Child>,
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        command.stdin(Stdio::null());
        Running::spawned(command)
    }

    /// One that is told something now and then ([`Running::tell`]); its input ends when its end is waited for.
    pub fn start_told(mut command: Command) -> Running {
        command.stdin(Stdio::piped());
        Running::spawned(command)
    }

    fn spawned(mut command: Command) -> Running {
        command.stdout(Stdio::piped());
        let child = command.stderr(Stdio::piped()).process_group(0).spawn();
        Running {
            what: format!("{command:?}"),
            child: Some(child.unwrap()),
        }
    }

    /// The next line that it prints. Panics if it prints none.
    pub fn line(&mut self) -> String {
        let output = self.child.as_mut().and_then(|child| child.stdout.as_mut());
        let (mut line, mut byte) = (Vec::new(), [0]);
        let output = output.expect("its output");
        // Byte by byte: the rest of it is for `finished`.
        while output.read_exact(&mut byte).is_ok() && byte != *b"\n" {
            line.push(byte[0]);
        }
        assert!(byte == *b"\n", "{} prints {line:?} and ends", self.what);
        String::from_utf8(line).expect("text")
    }

    /// Writes it a line.
    pub fn tell(&mut self, line: &str) {
        let input = self.child.as_mut().and_then(|child| child.stdin.as_mut());
        let told = writeln!(input.expect("its input"), "{line}");
        told.unwrap_or_else(|error| panic!("{}: {error}", self.what));
    }

    /// All that it has printed, when it has ended by itself. Panics if it does not in this time.
    pub fn finished(mut self, bound: Duration) -> Output {
        let child = self.child.take().expect("a child");
        let group = child.id().cast_signed();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let _ = sender.send(child.wait_with_output());
        });
        if let Ok(output) = receiver.recv_timeout(bound) {
            return output.unwrap();
        }
        // SAFETY: a signal to the group of our own child, which is waited for until it ends.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        let output = receiver.recv_timeout(bound);
        panic!("{} hangs; so far: {output:?}", self.what);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // SAFETY: a signal to the group of our own child, which has not been waited for.
            unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
            let _ = child.wait();
        }
    }
}

/// Waits until nobody serves a pool any more, and sees that nothing was refused on it.
pub fn honest_end(pool: &Path) {
    let since = std::time::Instant::now();
    while arck_libfs_kit::session::connect_socket(pool).is_ok() {
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "{} is still served",
            pool.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    honest::assert_nothing_refused(pool);
}

/// A directory in memory, removed at the end.
pub struct Place {
    directory: tempfile::TempDir,
    has_refusals: Cell<bool>,
}

impl Place {
    pub fn new() -> Place {
        let directory = tempfile::Builder::new()
            .prefix("arck-cli-")
            .tempdir_in("/dev/shm")
            .unwrap();
        Place {
            directory,
            has_refusals: Cell::new(false),
        }
    }
    /// One that all may search and that belongs to `owner`, with a copy of the command, and of the
    /// library beside it, that all can reach. Needs root.
    pub fn of_users(owner: u32) -> (Place, PathBuf) {
        let place = Place::new();
        chown(place.path(), Some(owner), Some(owner)).unwrap();
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.path(), everybody.clone()).unwrap();
        let arck = place.path().join("arck");
        std::fs::copy(env!("CARGO_BIN_EXE_arck"), &arck).unwrap();
        let library = preload_library();
        let copy = place.path().join(library.file_name().unwrap());
        std::fs::copy(library, &copy).unwrap();
        for file in [&arck, &copy] {
            std::fs::set_permissions(file, everybody.clone()).unwrap();
        }
        (place, arck)
    }
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
    /// The test is of what is refused, so that its pools may end with refusals; `why` is for who reads it.
    pub fn has_refusals(&self, why: &'static str) {
        assert!(!why.is_empty(), "an exception has a reason");
        self.has_refusals.set(true);
    }
    /// Where the pool is, or would be.
    pub fn pool(&self) -> PathBuf {
        self.path().join("pool")
    }
    /// With a pool.
    pub fn made() -> Place {
        let place = Place::new();
        let made = mkfs(&place.pool(), &["--size", "16M"]);
        assert!(made.status.success(), "{made:?}");
        place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.has_refusals.get() {
            return;
        }
        let entries = std::fs::read_dir(self.path()).expect("a directory");
        for entry in entries {
            honest::assert_nothing_refused(&entry.expect("an entry").path());
        }
    }
}

pub fn mkfs(pool: &Path, arguments: &[&str]) -> Output {
    arck()
        .arg("mkfs")
        .arg(pool)
        .args(arguments)
        .output()
        .unwrap()
}

/// Its standard output, if it succeeded and said nothing on standard error.
pub fn succeeded(output: &Output) -> String {
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// One line on standard error, with this in it, and exit status 1.
pub fn refused(output: &Output, says: &str) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(says), "{text}");
}

/// A controller that has said that it is ready.
pub struct Serving {
    pub process: Child,
    pub status: BufReader<std::process::ChildStdout>,
}

impl Serving {
    pub fn start(pool: &Path, arguments: &[&str]) -> Serving {
        let mut command = arck();
        command.arg("serve").arg(pool).args(["--ready-fd", "1"]);
        Serving::of(command.args(arguments))
    }
    /// The same by a command that says on its output when it is ready.
    pub fn of(command: &mut Command) -> Serving {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut status = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        status.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Serving { process, status }
    }
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }
}

/// What is started hears SIGINT, also where the tests run in the background of a script, which ignores it.
pub fn hear_interrupts() {
    // SAFETY: the default action; nothing in this program handles it otherwise.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}
