//! Runs a case on tmpfs and on pools, and compares.

use crate::case::{self, Case, Form};
use crate::sources;
use crate::support::{Place, Serving, preload_library};
use crate::table::Row;
use crate::tree::{LISTING, tree};
use arck_testkit::{differences, honest};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// For so long a case may run, whatever the machine does beside it; then it hangs.
const PATIENCE: Duration = Duration::from_secs(400);

/// What a run shows.
struct Shown {
    output: String,
    status: ExitStatus,
    time: Duration,
}

impl Shown {
    fn text(&self) -> String {
        format!("{}\n{}", self.output, self.status)
    }
}

/// Where a case is run, and by whom.
struct Scene<'a> {
    case: &'a Case,
    place: Place,
    arck: PathBuf,
    user: (u32, u32),
}

/// Runs the case so many times on tmpfs and in each of its forms; says what differs. Times are added
/// to the row.
pub fn compare(case: &Case, rounds: usize, row: &mut Row) -> Result<(), String> {
    case.check_needs()?;
    sources::fetch(&case.sources)?;
    let version = Command::new("bash")
        .args(["-c", &case.version])
        .env("PATH", case::path())
        .env("NODE_PATH", case::node_path())
        .env("SOURCES", sources::kept())
        .output()
        .map_err(|error| format!("bash: {error}"))?;
    row.version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    if row.version.is_empty() {
        return Err(format!("no version: {version:?}"));
    }
    preload_library();
    for _ in 0..rounds {
        let scene = Scene::new(case)?;
        let host = scene.work(None)?;
        if !host.status.success() {
            return Err(format!("fails on tmpfs:\n{}", host.text()));
        }
        row.host.push(host.time);
        let expected = scene.tree(None)?;
        let aside = scene.place.path().join("on-tmpfs");
        std::fs::rename(scene.files(), aside).map_err(|error| error.to_string())?;
        for form in &case.forms {
            let time = scene
                .pool(*form, &host, &expected)
                .map_err(|difference| format!("{}: {difference}", form.name()))?;
            row.pool.push((*form, time));
        }
    }
    Ok(())
}

impl Scene<'_> {
    fn new(case: &Case) -> Result<Scene<'_>, String> {
        let user = owner(case.user.as_deref())?;
        let (place, arck) = Place::of_users(user.0);
        let scene = Scene {
            case,
            place,
            arck,
            user,
        };
        // Not every user may read where this repository is.
        let cases = case.script.parent().expect("a directory");
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let applications = manifest.join("../preload/tests/applications");
        let demo = manifest.join("../../demo");
        copy_files(cases, &scene.cases());
        copy_files(&applications, &scene.applications());
        copy_files(&demo, &scene.demo());
        for package in &case.sources {
            let kept = sources::kept().join(package);
            copy_file(&kept, &scene.sources().join(package));
        }
        scene.empty(&scene.files())?;
        Ok(scene)
    }

    fn files(&self) -> PathBuf {
        self.place.path().join("files")
    }
    fn cases(&self) -> PathBuf {
        self.place.path().join("scripts/cases")
    }
    fn applications(&self) -> PathBuf {
        self.place.path().join("scripts/applications")
    }
    fn demo(&self) -> PathBuf {
        self.place.path().join("scripts/demo")
    }
    fn sources(&self) -> PathBuf {
        self.place.path().join("scripts/sources")
    }

    /// A new directory that belongs to the user.
    fn empty(&self, directory: &Path) -> Result<(), String> {
        let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
        if directory.exists() {
            std::fs::remove_dir_all(directory).map_err(fail)?;
        }
        std::fs::create_dir(directory).map_err(fail)?;
        chown(directory, Some(self.user.0), Some(self.user.1)).map_err(fail)
    }

    /// The same environment for all, with nothing of the test runner's.
    fn set_up(&self, command: &mut Command) {
        let toolchain = "RUSTUP_TOOLCHAIN";
        let kept = [
            ("PATH", Some(case::path())),
            (toolchain, std::env::var_os(toolchain)),
        ];
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        let rust = [("RUSTUP_HOME", ".rustup"), ("CARGO_HOME", ".cargo")].map(|(name, folder)| {
            let value = std::env::var_os(name).unwrap_or_else(|| home.join(folder).into());
            (name, Some(value))
        });
        command.env_clear();
        for (name, value) in kept.into_iter().chain(rust) {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let scratch = self.place.path().join("scratch");
        command
            .env("HOME", &scratch)
            .env("SCRATCH", &scratch)
            .env("CASES", self.cases())
            .env("APPLICATIONS", self.applications())
            .env("DEMO", self.demo())
            .env("SOURCES", self.sources())
            .env("INSTALLED", case::installed())
            .env("NODE_PATH", case::node_path())
            .env("PROJECT", concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC");
        self.become_user(command);
    }

    fn become_user(&self, command: &mut Command) {
        if rustix::process::geteuid().as_raw() != self.user.0 {
            command.uid(self.user.0).gid(self.user.1);
        }
    }

    /// The command, as it is or on the pool.
    fn command(&self, on: Option<(&Path, Form)>, words: &[&str]) -> Command {
        let Some((pool, form)) = on.filter(|(_, form)| *form != Form::Mount) else {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            return command;
        };
        let mut command = Command::new(&self.arck);
        command.arg("run").arg("--pool").arg(pool);
        command.arg("--mount").arg(self.files());
        if form == Form::Alone {
            command.arg("--no-group");
        }
        command.arg("--").args(words);
        command
    }

    /// The case's script, timed, after what makes the directory ready for it, which is not.
    fn work(&self, on: Option<(&Path, Form)>) -> Result<Shown, String> {
        self.empty(&self.place.path().join("scratch"))?;
        if let Some(before) = &self.case.before {
            let before = format!("cd \"$1\"; {before}");
            let files = self.files();
            let files = files.to_str().expect("UTF-8");
            let words = ["/bin/bash", "-euc", &before, "bash", files];
            self.succeeds(&mut self.command(on, &words))?;
        }
        let script = self
            .cases()
            .join(self.case.script.file_name().expect("a name"));
        let script = script.to_str().expect("UTF-8");
        let files = self.files();
        let files = files.to_str().expect("UTF-8");
        self.finish(&mut self.command(on, &["/bin/bash", "-eu", script, files]))
    }

    fn tree(&self, on: Option<(&Path, Form)>) -> Result<String, String> {
        let files = self.files();
        let words = [
            "/bin/sh",
            "-euc",
            LISTING,
            "sh",
            files.to_str().expect("UTF-8"),
        ];
        let listing = self.finish(&mut self.command(on, &words))?;
        if !listing.status.success() {
            return Err(format!("the listing fails:\n{}", listing.text()));
        }
        Ok(tree(self.case, &listing.output))
    }

    /// The case on a new pool; how long it took.
    fn pool(&self, form: Form, host: &Shown, expected: &str) -> Result<Duration, String> {
        let pool = self.place.path().join("pool");
        self.empty(&pool)?;
        std::fs::remove_dir(&pool).map_err(|error| error.to_string())?;
        let mut make = Command::new(&self.arck);
        make.args(["mkfs", "--size", "1G"]).arg(&pool);
        self.succeeds(&mut make)?;
        let on = Some((pool.as_path(), form));
        if form == Form::Mount {
            self.empty(&self.files())?;
        }
        let serving = self.serve(&pool, form)?;
        let shown = self.work(on)?;
        if shown.text() != host.text() {
            return Err(format!(
                "printed on tmpfs (<) and on the pool (>):\n{}",
                differences(&host.text(), &shown.text())
            ));
        }
        // What is durable is the same.
        serving.end()?;
        let serving = self.serve(&pool, form)?;
        let got = self.tree(on)?;
        serving.end()?;
        if got != expected {
            return Err(format!(
                "left behind on tmpfs (<) and on the pool (>):\n{}",
                differences(expected, &got)
            ));
        }
        let refused = honest::refused(&pool);
        if !refused.is_empty() {
            return Err(format!("the verifier refused changes:\n{refused}"));
        }
        if form == Form::Mount {
            // Fails if something is in it.
            std::fs::remove_dir(self.files()).map_err(|error| error.to_string())?;
        }
        if self.files().exists() {
            return Err("something was made beside the pool".to_owned());
        }
        let mut check = Command::new(&self.arck);
        self.succeeds(check.arg("check").arg(&pool))?;
        std::fs::remove_dir_all(&pool).map_err(|error| error.to_string())?;
        Ok(shown.time)
    }

    fn serve(&self, pool: &Path, form: Form) -> Result<Controller, String> {
        let mut serve = Command::new(&self.arck);
        serve.arg("serve").arg(pool);
        serve.args(["--persist", "always", "--ready-fd", "1"]);
        if form == Form::Mount {
            // The kernel's device may be closed to users; root's mount serves them.
            serve.arg("--mount").arg(self.files()).arg("--shared");
        } else {
            self.become_user(&mut serve);
        }
        let controller = Controller(Serving::of(&mut serve));
        if form == Form::Mount {
            let files = self.files();
            let device = |path: &Path| path.metadata().map(|of| of.dev()).ok();
            let beside = device(self.place.path());
            let began = Instant::now();
            while device(&files).is_none_or(|device| Some(device) == beside) {
                if began.elapsed() > PATIENCE {
                    return Err(format!("{} is not mounted", files.display()));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(controller)
    }

    fn succeeds(&self, command: &mut Command) -> Result<(), String> {
        let shown = self.finish(command)?;
        if shown.status.success() {
            return Ok(());
        }
        Err(format!("{command:?} fails:\n{}", shown.text()))
    }

    /// Runs it to its end. What it prints goes to a file, which what it leaves running may keep open.
    fn finish(&self, command: &mut Command) -> Result<Shown, String> {
        let path = self.place.path().join("output");
        let output = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        output.set_len(0).map_err(|error| error.to_string())?;
        self.set_up(command);
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        command.current_dir(self.place.path()).process_group(0);
        let began = Instant::now();
        let mut child = command
            .spawn()
            .map_err(|error| format!("{command:?}: {error}"))?;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                break status;
            }
            if began.elapsed() > PATIENCE {
                // SAFETY: a signal to the group that our own child leads, which has not been
                // waited for.
                unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
                let _ = child.wait();
                let output = std::fs::read(&path).unwrap_or_default();
                let output = String::from_utf8_lossy(&output);
                return Err(format!("hangs: {command:?}\n{output}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let time = began.elapsed();
        let output = std::fs::read(&path).map_err(|error| error.to_string())?;
        let output = String::from_utf8_lossy(&output).into_owned();
        Ok(Shown {
            output,
            status,
            time,
        })
    }
}

/// User and group that a case is run by: root becomes the one that the case names.
fn owner(user: Option<&str>) -> Result<(u32, u32), String> {
    let me = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let Some(user) = user.filter(|_| me.0 == 0) else {
        return Ok(me);
    };
    let number = |option: &str| -> Result<u32, String> {
        let output = Command::new("id").args([option, user]).output();
        let output = output.map_err(|error| format!("id: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim()
            .parse()
            .map_err(|_| format!("there is no user {user}: {output:?}"))
    };
    Ok((number("-u")?, number("-g")?))
}

/// Copies the files of a directory to a new one; all may read them.
fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        if entry.path().is_file() {
            copy_file(&entry.path(), &to.join(entry.file_name()));
        }
    }
}

/// Copies a file, and makes the directory that it is copied to; all may read it.
fn copy_file(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
    std::fs::copy(from, to).expect("a copy");
    let mode = from.metadata().expect("metadata").mode() | 0o444;
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(to, mode).expect("a mode");
}

/// A controller that does not outlive the case.
struct Controller(Serving);

impl Controller {
    fn end(mut self) -> Result<(), String> {
        self.0.signal(libc::SIGTERM);
        let status = self.0.process.wait().map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(());
        }
        Err(format!("the controller ends with {status}"))
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // Of one that has ended and been waited for, nothing comes.
        let _ = self.0.process.kill();
        let _ = self.0.process.wait();
    }
}
