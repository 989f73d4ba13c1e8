//! `arck mount`: a pool at a directory, for every program (`arck_mount`).
//!
//! Without `--foreground` the mount is served by another process of this command, which is started with its standard
//! output as a pipe and says `ready` there; what goes wrong before it says on standard error itself.
//!
//! # Invariants
//! * When `arck mount` has ended with status 0 the mount is there; else it is not, and one line says why.
//! * The process that serves it ends with the mount, and the mount with that process, whoever ends first: when it is told
//!   to end (SIGTERM, SIGINT, SIGHUP) it detaches the mount and folds all that was done.

mod helper;

use arck_mount::{Ender, MountOptions, Mounted, Point};
use clap::Args;
use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

pub use helper::{arguments_of, is_helper};

/// What is said when the mount is there.
pub const READY: &str = "ready\n";
/// What is said to a mount of `arck serve` when the pool is served.
pub const GO: &str = "go\n";

/// Options of `arck mount`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  arck mount /dev/shm/pool /mnt/pool            every program sees it there
  umount /mnt/pool                              ends it (fusermount3 -u, if you
                                                are not root)
  arck mount /dev/shm/pool ~/pool --foreground  until Ctrl-C
  mount -t arck /dev/shm/pool /mnt/pool         the same from fstab, as root

Static programs, Go, setuid programs, debuggers: whatever `arck run` does not
reach sees the pool there. Programs under `arck run` on the same pool see the
same files, and are faster.

A mount of root's is for all users, each with his own rights to what is on the
pool: other users than the pool's own need `arck serve --shared POOL`. A mount
of anybody else's is for himself alone. Where nobody serves the pool, a
controller is started, and ends after the mount.

Exit status: 0 it is mounted; 1 it is not, and one line says why.")]
pub struct MountArguments {
    /// Directory of the pool
    #[arg(value_name = "POOL")]
    pool: PathBuf,

    /// Directory to mount it at, which is empty
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Nothing on the pool is changed through the mount
    #[arg(long)]
    read_only: bool,

    /// Do not go to the background; end with the mount
    #[arg(long)]
    foreground: bool,

    /// Mount at a directory that is not empty too; what is in it is hidden
    #[arg(long)]
    nonempty: bool,

    /// Write the line `ready` to this descriptor once it is mounted
    #[arg(long, value_name = "N", hide = true, value_parser = crate::number::parse::<RawFd>)]
    ready_fd: Option<RawFd>,

    /// Serve what is mounted by this descriptor of the kernel's device, in another namespace, once standard input says so
    #[arg(long, value_name = "N", hide = true, value_parser = crate::number::parse::<RawFd>)]
    device: Option<RawFd>,

    /// With --device: DIR, which arck run may have made, locked; removed in the end, if nobody else uses it
    #[arg(long, value_name = "N", hide = true, value_parser = crate::number::parse::<RawFd>)]
    point: Option<RawFd>,

    /// With --device: end when nobody uses the mount any more, by this file's lock: for arck run of who is not root
    #[arg(long, value_name = "N", hide = true, value_parser = crate::number::parse::<RawFd>)]
    while_used: Option<RawFd>,

    /// Mount when standard input says so, and end when that ends: for arck serve
    #[arg(long, hide = true)]
    beneath: bool,
}

/// Mounts.
pub fn main(arguments: &MountArguments) -> ExitCode {
    crate::run::speak_as("mount");
    let done = match (arguments.device, arguments.foreground) {
        (Some(number), _) => serve_beneath(arguments, number),
        (None, true) => serve(arguments),
        (None, false) => in_background(arguments),
    };
    match done {
        Ok(status) => status,
        Err(line) => {
            eprintln!("arck mount: {line}");
            ExitCode::FAILURE
        }
    }
}

/// Starts what serves the mount, and waits until it is there.
fn in_background(arguments: &MountArguments) -> Result<ExitCode, String> {
    let failed =
        |error: io::Error| format!("cannot go to the background: {}", crate::run::plain(&error));
    // Found out here: the other one has another directory.
    let absolute = |path: &Path| std::path::absolute(path).map_err(failed);
    let mut command = serving(
        &absolute(&arguments.pool)?,
        &absolute(&arguments.directory)?,
    );
    command.args(arguments.read_only.then_some("--read-only"));
    command.args(arguments.nonempty.then_some("--nonempty"));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    // SAFETY: a system call between fork and exec, without memory. A session of its own: no key on this terminal is for it.
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let mut child = command.spawn().map_err(failed)?;
    let mut word = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output)
            .read_line(&mut word)
            .map_err(failed)?;
    }
    if word == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().map_err(failed)?;
    match status.code() {
        // It has said why.
        Some(_) => Ok(ExitCode::FAILURE),
        None => Err(format!(
            "what was to serve it ended before it was mounted: {status}"
        )),
    }
}

/// This command again, as what serves a mount, and says so on its standard output.
pub fn serving(pool: &Path, directory: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("arck").arg("mount").arg(pool).arg(directory);
    command.args(["--foreground", "--ready-fd", "1"]);
    command.env_remove("LD_PRELOAD").current_dir("/");
    command
}

/// Serves as long as anybody sees the mount, whoever started it; then its mount point may be nobody's.
fn serve_beneath(arguments: &MountArguments, number: RawFd) -> Result<ExitCode, String> {
    // SAFETY: as in `serve_device`.
    let point = arguments
        .point
        .map(|number| unsafe { OwnedFd::from_raw_fd(number) });
    let served = serve_device(arguments, number);
    if arguments.while_used.is_some() && matches!(served, Ok(false)) {
        crate::run::give_up_own_mount(&arguments.pool, &arguments.directory, point);
    } else if let Some(point) = point {
        crate::run::give_up_point(&point, &arguments.directory);
    }
    served.map(|_| ExitCode::SUCCESS)
}

/// See [`arck_mount::beneath`]. False: `arck run` could not mount, or is gone.
fn serve_device(arguments: &MountArguments, number: RawFd) -> Result<bool, String> {
    let mut word = [0];
    if !matches!(io::Read::read(&mut io::stdin(), &mut word), Ok(1)) {
        return Ok(false);
    }
    // SAFETY: whoever started this has passed it by number, for nothing else; where nothing is open there, calls say so.
    let device = unsafe { OwnedFd::from_raw_fd(number) };
    // Before there are threads, which inherit the mask.
    let signals = arguments.while_used.map(|_| block_signals());
    let mounted = arck_mount::beneath::served(&arguments.pool, &arguments.directory, device)?;
    if let (Some(signals), Some(number)) = (signals, arguments.while_used) {
        end_with(signals, mounted.ender());
        let place = crate::run::Place::of(&arguments.directory);
        end_unused(mounted.ender(), number, place);
    }
    mounted.serve()?;
    Ok(true)
}

fn serve(arguments: &MountArguments) -> Result<ExitCode, String> {
    // Before there are threads, which inherit the mask.
    let signals = block_signals();
    if arguments.beneath {
        let mut word = String::new();
        let read = io::stdin().lock().read_line(&mut word);
        if read.is_err() || word != GO {
            return Ok(ExitCode::FAILURE);
        }
    }
    let pool = crate::run::locate(Some(&arguments.pool))?;
    let point = Point::find(&arguments.directory, arguments.nonempty)?;
    if pool.starts_with(point.path()) {
        return Err(format!(
            "the pool {} lies beneath {}, where it would be hidden by its own mount; name another directory",
            pool.display(),
            point.path().display()
        ));
    }
    let user = match arguments.beneath {
        true => None,
        false => Some(crate::run::User::attach(
            &pool,
            &crate::run::Wishes::new(None, None, None),
        )?),
    };
    let options = MountOptions {
        pool,
        point,
        read_only: arguments.read_only,
    };
    let served = Mounted::new(&options).and_then(|mounted| {
        end_with(signals, mounted.ender());
        if arguments.beneath {
            end_with_input(mounted.ender());
        }
        if let Some(number) = arguments.ready_fd {
            say_ready(number);
        }
        mounted.serve()
    });
    let line = user.and_then(crate::run::User::end);
    served?;
    match line {
        Some(line) => Err(line),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Says that the mount is there. From then on nobody listens: what was inherited for that is let go.
fn say_ready(number: RawFd) {
    // SAFETY: whoever started this has passed it by number; where nothing is open there, the call says so.
    let ready = unsafe { BorrowedFd::borrow_raw(number) };
    // Whoever started us may be gone already.
    let _ = rustix::io::write(ready, READY.as_bytes());
    let null: io::Result<OwnedFd> = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map(Into::into);
    let Ok(null) = null else { return };
    let _ = rustix::stdio::dup2_stdout(&null);
    let _ = rustix::stdio::dup2_stderr(&null);
}

/// The signals that end a mount, which wait for whoever takes them from now on.
fn block_signals() -> libc::sigset_t {
    // SAFETY: an all-zero set is a valid argument for sigemptyset, which initialises it.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` lives and is writable; the signal numbers are valid.
    unsafe {
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
    set
}

/// Ends the mount when one of these signals comes.
fn end_with(signals: libc::sigset_t, ender: Ender) {
    std::thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: a set and a number, which live.
        while unsafe { libc::sigwait(&raw const signals, &raw mut signal) } != 0 {}
        end(&ender);
    });
}

/// Ends the mount when standard input has ended.
fn end_with_input(ender: Ender) {
    std::thread::spawn(move || {
        // Whatever it says, until it ends.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        end(&ender);
    });
}

/// Ends the mount when nobody uses it any more.
fn end_unused(ender: Ender, number: RawFd, place: crate::run::Place) {
    // SAFETY: as in `serve_device`. It is open until this process has ended: who uses the mount then waits for that.
    let lock = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    std::thread::spawn(move || {
        crate::run::wait_for_mount_unused(&lock, place);
        end(&ender);
    });
}

fn end(ender: &Ender) {
    if let Err(why) = ender.end() {
        eprintln!("arck mount: {why}");
    }
}
