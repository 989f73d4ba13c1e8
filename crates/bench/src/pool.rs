//! A pool in memory for a benchmark, served by a controller in a process of its own.
//!
//! # Invariants
//! * Times of a pool on which anything was refused are no times: [`Bench::stop`] is an error then.
//! * The controller is a child process: `arck serve`, or, where there is no such command beside
//!   this one, a fork of this process made before it has threads. Either ends when this process
//!   does, whatever ends it: it waits for the end of a pipe.
//! * A medium that is to be emulated ([`choose_medium`]) is named by the environment, which the controller has from this
//!   process.
//! * All files are in one scratch directory in memory that disappears with the [`Bench`].

use crate::outcome::Outcome;
use arck_controller::{Controller, MkfsOptions, Options, VIOLATIONS_LOG, VIOLATIONS_LOG_OLD, mkfs};
use arck_pm::{DurabilityMode, PersistOption, PersistPolicy};
use serde::de::DeserializeOwned;
use std::io::{PipeReader, PipeWriter, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Where the pool appears to libc.
pub const MOUNT: &str = "/arck";

/// Where scratch directories are made.
const MEMORY: &str = "/dev/shm";

/// A scratch directory with a served pool and an empty directory on tmpfs beside it.
pub struct Bench {
    server: Server,
    directory: tempfile::TempDir,
    /// The command that serves it.
    arck: Option<PathBuf>,
    persist: PersistOption,
    shared: bool,
    pub mode: DurabilityMode,
    pub policy: PersistPolicy,
}

/// A controller's process.
enum Server {
    /// It has ended.
    None,
    Command(Child),
    Forked {
        process: libc::pid_t,
        /// Closed to end it.
        line: Option<PipeWriter>,
    },
}

/// What the controller makes of it: with a medium, what is not flushed would not reach it.
fn with_medium(persist: PersistOption) -> PersistOption {
    match (persist, arck_medium::named(None)) {
        (PersistOption::Auto, Some(_)) => PersistOption::Always,
        (persist, _) => persist,
    }
}

/// Whether there is memory for what a measurement makes in [`MEMORY`]; an error says how much there should be.
pub fn need_memory(bytes: u64, what: &str) -> Outcome<()> {
    let room = rustix::fs::statvfs(MEMORY).map_err(|error| format!("{MEMORY}: {error}"))?;
    let mount = room.f_bavail * room.f_frsize;
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let free = kilobytes.map_or(mount, |kilobytes| mount.min(kilobytes * 1024));
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    match free >= bytes {
        true => Ok(()),
        false => Err(format!(
            "{what} need {} MiB of memory, of which {MEMORY} has {} MiB: ask for less, or make room there",
            mebibytes(bytes),
            mebibytes(free)
        )),
    }
}

/// The command `arck`: the one named, or the one beside this executable.
pub fn find_command(named: Option<&Path>) -> Outcome<Option<PathBuf>> {
    match named {
        Some(path) if path.is_file() => Ok(Some(path.to_owned())),
        Some(path) => Err(format!("{}: no such command", path.display())),
        None => Ok(beside("arck")),
    }
}

/// The preload library: `$ARCK_PRELOAD`, or the one beside this executable.
pub fn find_library() -> Option<PathBuf> {
    match std::env::var_os("ARCK_PRELOAD") {
        Some(path) => Some(path.into()),
        None => beside("libarck_preload.so"),
    }
}

/// A file beside this executable (or, for tests, one directory above).
fn beside(name: &str) -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?;
    let directory = executable.parent()?;
    [directory, directory.parent()?]
        .into_iter()
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

impl Bench {
    /// Makes a pool of `size` bytes and has it served.
    pub fn start(size: u64, persist: PersistOption, arck: Option<&Path>) -> Outcome<Bench> {
        Bench::start_as(size, persist, arck, false)
    }

    /// The same; `shared`: served to all users, by the command.
    pub fn start_as(
        size: u64,
        persist: PersistOption,
        arck: Option<&Path>,
        shared: bool,
    ) -> Outcome<Bench> {
        let directory = tempfile::Builder::new()
            .prefix("arck-bench-")
            .tempdir_in(MEMORY)
            .map_err(|error| format!("{MEMORY}: {error}"))?;
        let pool = directory.path().join("pool");
        std::fs::create_dir(directory.path().join("tmpfs"))
            .map_err(|error| format!("{MEMORY}: {error}"))?;
        let options = MkfsOptions {
            size,
            mode: 0o755,
            force: false,
        };
        mkfs(&pool, &options, &mut |_, _| {}).map_err(|error| error.to_string())?;
        let mode = DurabilityMode::probe(&pool).map_err(|error| error.to_string())?;
        let mut bench = Bench {
            server: Server::None,
            directory,
            arck: arck.map(Path::to_owned),
            persist,
            shared,
            mode,
            policy: with_medium(persist).policy(mode),
        };
        bench.serve()?;
        Ok(bench)
    }

    /// Has the pool served, which nobody serves; it is when this returns.
    pub fn serve(&mut self) -> Outcome<()> {
        let pool = self.pool();
        self.server = match &self.arck {
            Some(arck) => serve_by_command(arck, &pool, self.persist, self.shared)?,
            None => serve_by_fork(&pool, self.persist)?,
        };
        Ok(())
    }

    /// Ends the controller cleanly, and waits for it.
    pub fn stop(&mut self) -> Outcome<()> {
        self.end_controller()?;
        let refused = [VIOLATIONS_LOG_OLD, VIOLATIONS_LOG]
            .map(|name| std::fs::read_to_string(self.pool().join(name)).unwrap_or_default())
            .concat();
        match refused.lines().next() {
            None => Ok(()),
            Some(line) => Err(format!("the verifier refused changes: {line}")),
        }
    }

    fn end_controller(&mut self) -> Outcome<()> {
        match std::mem::replace(&mut self.server, Server::None) {
            Server::None => Ok(()),
            Server::Command(mut child) => {
                drop(child.stdin.take());
                if self.shared {
                    // SAFETY: our own child, which has not been waited for.
                    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
                }
                match child.wait() {
                    Ok(status) if status.success() => Ok(()),
                    other => Err(format!("the controller ended badly: {other:?}")),
                }
            }
            Server::Forked { process, line } => {
                drop(line);
                // SAFETY: waits for our own child; no status is asked for.
                unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) };
                Ok(())
            }
        }
    }

    /// Kills the controller, and waits until it is gone.
    pub fn kill(&mut self) {
        match std::mem::replace(&mut self.server, Server::None) {
            Server::None => {}
            Server::Command(mut child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Server::Forked { process, .. } => {
                // SAFETY: our own child, which is waited for then; no status is asked for.
                unsafe {
                    libc::kill(process, libc::SIGKILL);
                    libc::waitpid(process, std::ptr::null_mut(), 0);
                }
            }
        }
    }

    /// The controller's process.
    fn server_process(&self) -> Option<libc::pid_t> {
        match &self.server {
            Server::None => None,
            Server::Command(child) => Some(child.id().cast_signed()),
            Server::Forked { process, .. } => Some(*process),
        }
    }

    /// What the kernel tells of the controller's process; nothing if there is none.
    fn server_file(&self, name: &str) -> String {
        let Some(process) = self.server_process() else {
            return String::new();
        };
        std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default()
    }

    /// Nanoseconds of processor time that the controller's process has used.
    pub fn server_nanoseconds(&self) -> Outcome<u64> {
        let process = self.server_process().ok_or("there is no controller")?;
        let mut clock = 0;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: both are writable.
        let told = unsafe {
            libc::clock_getcpuclockid(process, &raw mut clock) == 0
                && libc::clock_gettime(clock, &raw mut time) == 0
        };
        match told {
            true => Ok(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()),
            false => Err("the controller's processor time cannot be read".to_owned()),
        }
    }

    /// Seconds of processor time that the controller's process has used; 0 if nobody knows.
    pub fn server_time(&self) -> f64 {
        let text = self.server_file("stat");
        // Behind the name, which may hold anything; user and system time are fields 14 and 15.
        let rest = text.rsplit(')').next().unwrap_or_default();
        let ticks = rest.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
        // SAFETY: a number in, a number out.
        let each = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        ticks / each.max(1) as f64
    }

    /// Bytes that the controller's process has had resident at most; 0 if nobody knows.
    pub fn server_memory(&self) -> f64 {
        let text = self.server_file("status");
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number.map_or(0.0, |number| number.parse().unwrap_or(0.0) * 1024.0)
    }

    pub fn pool(&self) -> PathBuf {
        self.directory.path().join("pool")
    }
    /// The directory on tmpfs.
    pub fn tmpfs(&self) -> PathBuf {
        self.directory.path().join("tmpfs")
    }
    /// What serves the pool, in words.
    pub fn server(&self) -> &'static str {
        match self.server {
            Server::None => "none",
            Server::Command(_) => "arck serve",
            Server::Forked { .. } => "forked",
        }
    }

    /// This executable as a worker on the pool: below `/arck` if `preload`.
    pub fn worker(&self, library: Option<&Path>) -> Outcome<Command> {
        let executable = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(executable);
        command
            .arg("worker")
            .arg("--pool")
            .arg(self.pool())
            .arg("--tmpfs")
            .arg(self.tmpfs())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if let Some(library) = library {
            command
                .arg("--preloaded")
                .env("LD_PRELOAD", library)
                .env("ARCK_POOL", self.pool())
                .env("ARCK_MOUNT", MOUNT);
        }
        Ok(command)
    }

    /// What a worker without a library answers that does a task; what it says besides is passed on.
    pub fn answer<T: DeserializeOwned>(&self, task: &str, arguments: &[&str]) -> Outcome<T> {
        let output = self
            .worker(None)?
            .args(["--task", task])
            .args(arguments)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("starting a worker: {error}"))?;
        if !output.status.success() {
            return Err(format!("a worker failed: {}", output.status));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("a worker's answer makes no sense: {error}"))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let ended = self.stop();
        if let (Err(line), false) = (ended, std::thread::panicking()) {
            panic!("{line}");
        }
    }
}

fn serve_by_command(
    arck: &Path,
    pool: &Path,
    persist: PersistOption,
    shared: bool,
) -> Outcome<Server> {
    let whose = if shared { "--shared" } else { "--private" };
    let mut command = Command::new(arck);
    if shared {
        let end_with_us = || {
            // SAFETY: numbers only.
            match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: it makes one system call, and allocates nothing.
        unsafe { command.pre_exec(end_with_us) };
    }
    let mut child = command
        .arg("serve")
        .arg(pool)
        .args([whose, "--ready-fd", "1"])
        .args(["--persist", &persist.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", arck.display()))?;
    let ready = child.stdout.as_mut().is_some_and(is_ready);
    if !ready {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("{} serve did not start", arck.display()));
    }
    Ok(Server::Command(child))
}

/// Whether a controller says that it is ready; how far it is with that it may say before.
fn is_ready(status: &mut ChildStdout) -> bool {
    let mut line = Vec::new();
    let mut byte = [0];
    // Byte by byte: what it says later is for others.
    while status.read_exact(&mut byte).is_ok() {
        match byte[0] {
            b'\n' if line.starts_with(b"opening ") => line.clear(),
            b'\n' => return line == b"ready",
            other => line.push(other),
        }
    }
    false
}

fn serve_by_fork(pool: &Path, persist: PersistOption) -> Outcome<Server> {
    let pipe = || std::io::pipe().map_err(|error| error.to_string());
    let (line, line_end) = pipe()?;
    let (mut ready, ready_end) = pipe()?;
    // SAFETY: this process has one thread, so the child may do anything.
    let process = unsafe { libc::fork() };
    if process < 0 {
        return Err(format!("fork: {}", std::io::Error::last_os_error()));
    }
    if process == 0 {
        drop((line_end, ready));
        let status = match serve_until_end(pool, persist, line, ready_end) {
            Ok(()) => 0,
            Err(line) => {
                eprintln!("arck-bench: {line}");
                1
            }
        };
        // SAFETY: ends the child without running what the parent registered.
        unsafe { libc::_exit(status) };
    }
    drop((line, ready_end));
    let mut word = [0];
    if ready.read_exact(&mut word).is_err() {
        // SAFETY: waits for our own child; no status is asked for.
        unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) };
        return Err("the controller did not start".to_owned());
    }
    Ok(Server::Forked {
        process,
        line: Some(line_end),
    })
}

/// In the forked child: serves until the other end of `line` is closed.
fn serve_until_end(
    pool: &Path,
    persist: PersistOption,
    mut line: PipeReader,
    ready: PipeWriter,
) -> Outcome<()> {
    let medium = arck_medium::chosen(None, None).map_err(|error| error.to_string())?;
    let options = Options {
        persist,
        medium: medium.map(|medium| medium.model),
        ..Options::default()
    };
    let controller = Controller::open(pool, options)
        .and_then(Controller::spawn)
        .map_err(|error| error.to_string())?;
    std::io::Write::write_all(&mut &ready, b"r").map_err(|error| error.to_string())?;
    let mut end = [0];
    let _ = line.read(&mut end);
    controller.stop().map_err(|error| error.to_string())
}

/// `--medium` and `--nodes`, for all controllers that this process starts from now on; before there are threads.
///
/// # Errors
/// One line, of a medium that is none.
pub fn choose_medium(name: Option<&str>, nodes: Option<u32>) -> Outcome<()> {
    arck_medium::chosen(name, nodes).map_err(|error| error.to_string())?;
    let named = name.map(|name| arck_medium::named(Some(name)).unwrap_or_default());
    let nodes = nodes.map(|nodes| nodes.to_string());
    for (variable, value) in [
        (arck_medium::VARIABLE, named),
        (arck_medium::NODES_VARIABLE, nodes),
    ] {
        if let Some(value) = value {
            // SAFETY: there is one thread.
            unsafe { std::env::set_var(variable, value) };
        }
    }
    Ok(())
}

/// Bytes of a size such as `64M`, `1G` or `1GiB`: powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let sizes = parse_size::Config::new().with_binary();
    sizes.parse_size(text).map_err(|error| error.to_string())
}

/// `--persist`.
pub fn parse_persist(text: &str) -> Result<PersistOption, String> {
    text.parse()
        .map_err(|error: arck_pm::Error| error.to_string())
}

/// How the policy is told in reports.
pub fn policy_name(policy: PersistPolicy) -> &'static str {
    match policy {
        PersistPolicy::Flush => "every store flushed and fenced",
        PersistPolicy::NoFlush => "nothing flushed",
    }
}
