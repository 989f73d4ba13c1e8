//! `arck run`: runs an unmodified program with a pool shown under a path.
//!
//! The program is started with the preload library in front (`LD_PRELOAD`) and told the pool and
//! the mount path by its environment (`ARCK_POOL`, `ARCK_MOUNT`, `ARCK_REPORT`). If nobody serves
//! the pool, a private controller is started first; it ends by itself once nobody uses the pool.
//!
//! Invariants:
//! * `arck run` does not end before its command, whatever signal it gets short of SIGKILL
//!   ([`signals`]), and its exit status is the command's.
//! * A private controller is never ended while another `arck run` or a session uses it
//!   ([`pool`]); one that is killed meanwhile is followed by another ([`guard`]).

mod arguments;
mod beneath;
mod delegating;
mod group;
mod guard;
mod hold;
mod locks;
mod own_mount;
mod pool;
mod private;
mod program;
mod reach;
mod report;
pub mod signals;
mod telling;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use crate::nested::PRELOAD_LIBRARY;
use arck_executable::Runtime;
use arguments::Persist;
pub use arguments::RunArguments;
pub use hold::give_up as give_up_point;
pub use locks::{Place, mark_private, take_use_lock, wait_for_mount_unused};
pub use own_mount::give_up as give_up_own_mount;
pub use pool::{User, default_pool, locate, named_or_default, why_none, without_superblock};
pub use private::Wishes;
use rustix::fd::OwnedFd;
use telling::say;
pub use telling::{plain, speak_as};

/// Where a pool is seen that is mounted nowhere, if nothing else is said.
const DEFAULT_MOUNT: &str = "/arck";

/// Longest mount path in bytes; the preload library refuses a longer one.
const MOUNT_MAX: usize = 255;

/// Exit status when `arck run` itself fails, before the command starts.
const FAILED: u8 = 1;
/// Exit status when the command line of `arck run` itself is wrong.
const WRONG_USAGE: u8 = 2;
/// Exit status, as in a shell, when the command cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status, as in a shell, when there is no such command.
const NOT_FOUND: u8 = 127;

/// Why the command was not run: one line for the user, and the exit status.
struct Refusal {
    line: String,
    status: u8,
}

impl From<String> for Refusal {
    fn from(line: String) -> Refusal {
        Refusal {
            line,
            status: FAILED,
        }
    }
}

/// Runs the command; returns when it has ended and everything of it is on the pool.
pub fn main(arguments: RunArguments) -> ExitCode {
    // A session does it when it is opened. As long as there is one thread it takes nothing, later it waits
    // for all processors to have been elsewhere: fifteen milliseconds. Fails where the kernel has none.
    let register = rustix::thread::MembarrierCommand::RegisterGlobalExpedited;
    let _ = rustix::thread::membarrier(register);
    match run(&arguments) {
        Ok(status) => finish(status),
        Err(refusal) => {
            say(&refusal.line);
            ExitCode::from(refusal.status)
        }
    }
}

/// Ends as the command ended: with its exit status, or by the signal that killed it.
fn finish(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        signals::die_of(signal);
        // Only if that signal cannot kill us (an init of its namespace): as shells say it.
        return ExitCode::from(u8::try_from(128 + signal).unwrap_or(FAILED));
    }
    ExitCode::from(
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(FAILED),
    )
}

fn run(arguments: &RunArguments) -> Result<ExitStatus, Refusal> {
    if arguments.pool.is_none()
        && let Some(word) = arguments.command.first()
        && Path::new(word)
            .join(arck_core_state::layout::SUPERBLOCK)
            .exists()
    {
        let word = word.display();
        return Err(Refusal {
            line: format!("{word} is a pool, not a command; write: arck run --pool {word} -- CMD"),
            status: WRONG_USAGE,
        });
    }
    if let Some(named) = &arguments.mount {
        check_mount(named)?;
    }
    let library = find_preload_library()?;
    let pool = pool::locate(arguments.pool.as_deref())?;
    let mount = arguments.mount.clone();
    let mount = mount
        .or_else(|| arck_mount::beneath::mounted_at(&pool))
        .unwrap_or_else(|| PathBuf::from(DEFAULT_MOUNT));
    let mount = check_mount(&mount)?;
    if pool.starts_with(mount) {
        return Err(format!(
            "the pool {} lies under its own mount path {}; choose another --mount",
            pool.display(),
            mount.display()
        )
        .into());
    }
    let seen = crate::nested::seen_at(mount);
    if seen.is_none()
        && !arck_mount::beneath::is_of_run(mount)
        && !arck_mount::beneath::is_mounted_at(&pool, mount)
        && hold::hides_something(mount)
    {
        say(&format!(
            "{} exists on the host too; the command sees the pool there instead",
            mount.display()
        ));
    }

    // clap guarantees one word; an empty command would be refused below as not found.
    let (word, rest) = match arguments.command.split_first() {
        Some((word, rest)) => (word.as_os_str(), rest),
        None => (OsStr::new(""), &[][..]),
    };
    let (mut command, seen_of) = if Path::new(word).starts_with(mount) {
        // The kernel cannot execute what only the pool has; a program that runs with the preload
        // library can.
        let mut command = Command::new("/usr/bin/env");
        command.arg(word);
        (command, program::Seen::default())
    } else {
        (Command::new(word), program::Seen::of(word))
    };
    let warnings = seen_of.warnings;
    command.args(rest);
    signals::notice_ends(&mut command);
    signals::outlive_size_limits();

    let collector = match &arguments.report {
        Some(destination) => Some(report::Collector::new(destination.clone())?),
        None => None,
    };
    command
        .env(
            "LD_PRELOAD",
            preload_value(
                &library,
                std::env::var_os("LD_PRELOAD").as_deref(),
                seen_of.runtime.as_ref(),
            ),
        )
        .env("ARCK_POOL", &pool)
        .env("ARCK_MOUNT", mount);
    let resolver = group::resolver(arguments)?;
    let group = group::name(arguments, resolver, &pool, mount, &library);
    group::tell(&mut command, group.as_deref(), resolver);
    delegating::tell(&mut command, delegating::few(arguments)?);
    if let Some(collector) = &collector {
        command.env("ARCK_REPORT", collector.path());
    }
    let _reach = reach::Reach::tell(arguments, &mut command);

    let persist = arguments.persist.map(Persist::name);
    let wishes = Wishes::new(persist, arguments.medium.as_deref(), arguments.nodes);
    let user = pool::User::attach(&pool, &wishes)?;
    // While what is beneath is prepared.
    let membership = group::Membership::begin(group.as_deref(), resolver, &pool, mount);
    let server = |point: Option<&OwnedFd>| match arguments.no_mount {
        true => Err("it is not wanted".to_owned()),
        false => beneath::Server::start(&pool, mount, &user, point),
    };
    let own = || match arguments.no_mount {
        true => Err("--no-mount".to_owned()),
        false => own_mount::OwnMount::begin(&pool, mount, &user),
    };
    let hold = match seen {
        None => hold::hold(mount, &pool, server, own),
        // In an `arck run` of the same pool and mount point it is held already.
        Some(seen) if seen == pool => hold::Hold::of_another(match reach::is_beneath() {
            true => hold::Held::Mounted,
            false => hold::Held::Yes,
        }),
        Some(_) => hold::hold_over(mount, &pool, server),
    };
    reach::tell_beneath(&mut command, hold.is_mounted());
    let unseen = warnings.first().filter(|_| !hold.is_mounted());
    if let Some(warning) = unseen.filter(|_| reach::is_strict(arguments)) {
        membership.end();
        hold.end(mount);
        user.end();
        return Err(Refusal {
            line: format!("not executed (--strict): {warning}"),
            status: NOT_EXECUTABLE,
        });
    }
    if unseen.is_some() && !reach::is_quiet(arguments) {
        warnings.iter().for_each(|warning| say(warning));
    }
    let strays = hold.held.told(mount);
    let is_beneath = hold.is_own() || reach::is_beneath();
    let shared = user.share_lock(&mut command, is_beneath.then(|| locks::Place::of(mount)));
    let ended = shared.and_then(|shared| {
        let ended = run_to_its_end(&mut command, membership);
        drop(shared);
        ended
    });
    hold.end(mount);
    let controller_line = user.end();
    let (process, status) = ended.map_err(|error| Refusal {
        line: program::why_not(word, &error),
        status: if error.kind() == io::ErrorKind::NotFound {
            NOT_FOUND
        } else {
            NOT_EXECUTABLE
        },
    })?;
    if let Some(line) = controller_line {
        say(&line);
    }
    if let Some(collector) = collector {
        collector.finish(&report::Run {
            command: &arguments.command,
            process,
            status,
            pool: &pool,
            mount,
            strays,
        });
    }
    Ok(status)
}

/// Starts the command, passes signals on to it, and waits for its end.
fn run_to_its_end(
    command: &mut Command,
    membership: group::Membership,
) -> io::Result<(u32, ExitStatus)> {
    signals::forward();
    let mut child = command.spawn()?;
    signals::child_started(child.id());
    signals::wait_for_end(child.id())?;
    membership.end();
    // From here on the number of the process may be reused, so nothing is sent to it any more.
    signals::child_ended();
    let status = child.wait()?;
    Ok((child.id(), status))
}

/// A mount path is absolute, normalised, not the root, and short enough.
fn check_mount(mount: &Path) -> Result<&Path, String> {
    let bytes = mount.as_os_str().as_bytes();
    let normal: PathBuf = mount.components().collect();
    let simple = mount
        .components()
        .all(|component| matches!(component, Component::RootDir | Component::Normal(_)));
    if !mount.is_absolute() || !simple || normal.as_os_str() != mount.as_os_str() || bytes == b"/" {
        return Err(format!(
            "--mount {}: give an absolute path other than / itself, without `.`, `..`, or a slash \
             too many (such as /arck)",
            mount.display()
        ));
    }
    if bytes.len() > MOUNT_MAX {
        return Err(format!("--mount is longer than {MOUNT_MAX} bytes"));
    }
    Ok(mount)
}

/// Whether nobody but root and the user of this process can have written a file, or can put another one in its
/// place: by a path without links. (`su` leaves root the variables of another user.)
fn is_ones_own(file: &Path) -> io::Result<bool> {
    let own = rustix::process::geteuid().as_raw();
    let (by_others, sticky) = (0o022, 0o1000);
    for part in file.ancestors() {
        let status = std::fs::symlink_metadata(part)?;
        let is_kept =
            status.mode() & by_others == 0 || status.is_dir() && status.mode() & sticky != 0;
        if ![0, own].contains(&status.uid()) || !is_kept {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The preload library: `$ARCK_PRELOAD`, or beside this executable, or in `../lib/arck`.
fn find_preload_library() -> Result<PathBuf, String> {
    let library = if let Some(path) = std::env::var_os("ARCK_PRELOAD") {
        let failed = |error: io::Error| {
            let path = Path::new(&path).display();
            format!("$ARCK_PRELOAD names {path}: {}", plain(&error))
        };
        let library = std::fs::canonicalize(&path).map_err(failed)?;
        if !is_ones_own(&library).map_err(failed)? {
            return Err(format!(
                "$ARCK_PRELOAD names {}, which others than root and yourself own, may write or replace; it \
                 would be loaded into your programs: unset the variable, or name a copy of your own",
                library.display()
            ));
        }
        library
    } else {
        let executable = std::env::current_exe()
            .map_err(|error| format!("cannot find its own executable: {}", plain(&error)))?;
        let directory = executable.parent().unwrap_or(Path::new("/"));
        [
            directory.join(PRELOAD_LIBRARY),
            directory.join("../lib/arck").join(PRELOAD_LIBRARY),
        ]
        .iter()
        .find_map(|candidate| std::fs::canonicalize(candidate).ok())
        .ok_or_else(|| {
            format!(
                "{PRELOAD_LIBRARY} is neither in {} nor in its ../lib/arck; build it \
                     (cargo build -p arck-preload) or set $ARCK_PRELOAD",
                directory.display()
            )
        })?
    };
    // The dynamic linker splits LD_PRELOAD at these and knows no quoting.
    if library
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| matches!(byte, b' ' | b':'))
    {
        return Err(format!(
            "{} has a space or a colon in its path, which LD_PRELOAD cannot express; copy it \
             elsewhere and set $ARCK_PRELOAD",
            library.display()
        ));
    }
    Ok(library)
}

/// `LD_PRELOAD` with our library first, behind a runtime that has to be, and what was there before behind it.
fn preload_value(library: &Path, before: Option<&OsStr>, runtime: Option<&Runtime>) -> OsString {
    let mut value = OsString::new();
    for part in runtime.map(Runtime::before).unwrap_or_default() {
        value.push(OsStr::from_bytes(part));
    }
    value.push(library);
    for word in before
        .unwrap_or_default()
        .as_bytes()
        .split(|byte| matches!(byte, b' ' | b':'))
    {
        if !word.is_empty() && word != library.as_os_str().as_bytes() {
            value.push(":");
            value.push(OsStr::from_bytes(word));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_paths() {
        for good in ["/arck", "/a/b", "/mnt/pool.1"] {
            assert!(check_mount(Path::new(good)).is_ok(), "{good}");
        }
        let long = format!("/{}", "x".repeat(MOUNT_MAX));
        for bad in [
            "", "/", "arck", "./arck", "/arck/", "/a//b", "/a/../b", "/a/.", &long,
        ] {
            assert!(check_mount(Path::new(bad)).is_err(), "{bad}");
        }
    }

    /// Whoever owns a directory above could replace a library of root's between the look and its use.
    #[test]
    fn a_library_is_ones_own_if_all_directories_above_are() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let folder = place.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("library");
        std::fs::write(&file, "").unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (of_folder, of_file, expected) in [
            (0o755, 0o644, true),
            (0o755, 0o664, false),
            (0o775, 0o644, false),
            (0o777, 0o644, false),
            (0o1777, 0o644, true),
        ] {
            set(&folder, of_folder);
            set(&file, of_file);
            assert_eq!(
                is_ones_own(&file).unwrap(),
                expected,
                "{of_folder:o} {of_file:o}"
            );
        }
        if rustix::process::geteuid().is_root() {
            set(&folder, 0o755);
            assert!(is_ones_own(&file).unwrap());
            std::os::unix::fs::chown(&folder, Some(5001), None).unwrap();
            assert!(!is_ones_own(&file).unwrap());
        }
    }

    #[test]
    fn preload_keeps_what_was_there() {
        let library = Path::new("/l/libarck_preload.so");
        let value = |before: Option<&str>| preload_value(library, before.map(OsStr::new), None);
        assert_eq!(value(None), "/l/libarck_preload.so");
        assert_eq!(value(Some("")), "/l/libarck_preload.so");
        assert_eq!(
            value(Some("/x.so /y.so")),
            "/l/libarck_preload.so:/x.so:/y.so"
        );
        // A nested `arck run` does not load it twice.
        assert_eq!(
            value(Some("/l/libarck_preload.so:/x.so")),
            "/l/libarck_preload.so:/x.so"
        );
    }

    #[test]
    fn errors_are_worded_plainly() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(plain(&error), "No such file or directory");
    }
}
