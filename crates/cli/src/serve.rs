//! `arck serve`: serves a pool until a signal, or, as a private controller, until nobody uses
//! it any more (the agreement is described in `run::pool`).
//!
//! Invariant: it ends by folding everything and closing the pool, whatever the reason, short of
//! SIGKILL.

mod deletion;
mod manager;
mod mounting;

use crate::announcing::Announcement;
use crate::opening;
use arck_controller::{Controller, DESCRIPTORS_MIN, Options, ProgressHook, RunningController};
use arck_pm::PersistOption;
use clap::Args;
use deletion::Deletion;
use manager::Manager;
use mounting::Mounting;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often a private controller looks whether it may end, once its starter is gone.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// For so long it does not say that it is busy: sessions may just be ending.
const BUSY_AFTER: Duration = Duration::from_millis(300);

/// Options of `arck serve`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  arck serve /dev/shm/pool                   until Ctrl-C or SIGTERM
  arck serve /dev/shm/pool --shared          for programs of all users
  arck serve /dev/shm/pool --persist always  as if the memory were persistent
  arck serve /dev/shm/pool --medium optane   as slow as Optane memory
  arck serve /dev/shm/pool --mount /mnt/pool for programs that arck run does not
                                             reach too (arck mount --help)

End the programs on a pool before its controller: they get errors from then on,
and those that are started wait 30 s for another one (ARCK_WAIT: seconds).")]
pub struct ServeArguments {
    /// Directory of the pool [default: $ARCK_POOL, else /dev/shm/arck-$USER]
    #[arg(value_name = "POOL")]
    pool: Option<PathBuf>,

    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = parse_persist)]
    persist: PersistOption,

    /// Emulate this medium: optane, cxl, dram, or a file that describes one (docs/medium.md); none for
    /// none [default: $ARCK_MEDIUM, else none]
    #[arg(long, value_name = "NAME|FILE")]
    medium: Option<String>,

    /// The emulated medium has so many memory nodes, and not as many as its description says: 1 to 16
    /// [default: $ARCK_NODES]
    #[arg(long, value_name = "N", value_parser = crate::number::parse::<u32>)]
    nodes: Option<u32>,

    /// Write the line `ready` to this descriptor once the pool is served; with --private, lines that
    /// begin with `opening` before, if that takes long
    #[arg(long, value_name = "N", value_parser = crate::number::parse::<RawFd>)]
    ready_fd: Option<RawFd>,

    /// End when standard input has ended and nobody uses the pool any more
    #[arg(long)]
    private: bool,

    /// Serve programs of all users, each by its rights to the files in the pool; else only your own
    /// and root's
    #[arg(long, conflicts_with = "private")]
    shared: bool,

    /// Mount the pool at this directory, for as long as it is served
    #[arg(long, value_name = "DIR", conflicts_with = "private")]
    mount: Option<PathBuf>,

    /// Microseconds for which an owner keeps a file against other writers
    #[arg(long, value_name = "US", default_value_t = 500, value_parser = crate::number::parse::<u64>)]
    lease: u64,

    /// Milliseconds for which a program may repair a change that was refused, before it loses the
    /// file
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = crate::number::parse::<u64>)]
    grace: u64,
}

fn parse_persist(text: &str) -> Result<PersistOption, String> {
    text.parse()
        .map_err(|error: arck_pm::Error| error.to_string())
}

/// Serves the pool.
pub fn main(arguments: &ServeArguments) -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ARCK_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .without_time()
        .init();
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("arck serve: {line}");
            ExitCode::FAILURE
        }
    }
}

/// A session takes a few descriptors: as many as the system allows.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Then there are fewer sessions at once; who comes after that is told so.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// What limits the files and the time of a program does not limit the controller that is started by it, as far as its
/// user may say so: it makes memory files of many GiB, and works for others. Who exceeds a limit on files is told EFBIG,
/// and not killed.
fn expect_no_limits() -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    for resource in [Resource::Fsize, Resource::Cpu] {
        let none = Rlimit {
            current: None,
            maximum: None,
        };
        if setrlimit(resource, none).is_err() {
            let maximum = getrlimit(resource).maximum;
            let current = maximum;
            let _ = setrlimit(resource, Rlimit { current, maximum });
        }
    }
    // SAFETY: no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    match getrlimit(Resource::Fsize).current {
        Some(limit) => Err(format!(
            "a controller makes memory files of many GiB, and the limit on the size of files (`ulimit -f`) is {limit} \
             bytes, which its user may not raise: start it where there is no such limit (arck serve POOL)"
        )),
        None => Ok(()),
    }
}

/// That a controller may have the descriptors without which it could let no program in.
fn expect_descriptors() -> Result<(), String> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit.filter(|&limit| limit < DESCRIPTORS_MIN) {
        Some(limit) => Err(format!(
            "a controller takes {DESCRIPTORS_MIN} descriptors at least, and the limit (`ulimit -n`) is \
             {limit}: allow more"
        )),
        None => Ok(()),
    }
}

fn serve(arguments: &ServeArguments) -> Result<(), String> {
    raise_descriptor_limit();
    expect_descriptors()?;
    expect_no_limits()?;
    if arguments.private && arguments.ready_fd.is_none_or(|number| number < 3) {
        forget_inherited();
    }
    let ready = arguments.ready_fd.map(own).transpose()?;
    let manager = Manager::new(arguments.private);
    // Before there are threads: they inherit the mask.
    let signals =
        ending_signals().map_err(|errno| format!("cannot watch for signals: {}", plain(errno)))?;
    let pool = crate::run::named_or_default(arguments.pool.as_deref())?;
    let (progress, opened) = tell_of_opening(arguments.private, ready.as_ref(), &pool);
    // Before this process becomes the pool's owner, who may not read it.
    let medium = arck_medium::chosen(arguments.medium.as_deref(), arguments.nodes)
        .map_err(|error| error.to_string())?;
    let options = Options {
        persist: arguments.persist,
        medium: medium.map(|medium| medium.model),
        progress: Some(manager.opening(progress)),
        lease: Duration::from_micros(arguments.lease),
        grace: Duration::from_millis(arguments.grace),
        shared: arguments.shared,
        ..Options::default()
    };
    crate::nested::refuse(&pool)?;
    let mounting = arguments.mount.as_ref();
    let mut mounting = mounting
        .map(|directory| Mounting::prepare(&pool, directory))
        .transpose()?;
    crate::owner::become_owner(&pool)?;
    let controller = Controller::open(&pool, options).and_then(Controller::spawn);
    opened();
    let say = |word: &str| {
        if let Some(ready) = &ready {
            // Whoever started us may be gone already.
            let _ = rustix::io::write(ready, word.as_bytes());
        }
    };
    let controller = controller.map_err(|error| {
        if matches!(error, arck_controller::Error::Served { .. }) {
            say("served\n");
        }
        error.to_string()
    })?;
    // As the pool's owner, who this process is by now.
    let announcement = announce(&pool);
    // Before anybody is told that it is there.
    let _mark = arguments.private.then(|| crate::run::mark_private(&pool));
    let deletion = Deletion::watch(&pool)
        .map_err(|errno| format!("cannot watch {}: {}", pool.display(), plain(errno)))?;
    if let Some(line) = mounting
        .as_mut()
        .and_then(|mounting| mounting.begin().err())
    {
        controller.stop().map_err(|error| error.to_string())?;
        return Err(line);
    }
    say("ready\n");
    manager.ready(&pool);
    if !arguments.private {
        crate::durability::tell("serve", &pool);
    }
    if !arguments.private && std::io::stderr().is_terminal() {
        eprintln!(
            "arck serve: serving {} until Ctrl-C; programs that are on it then get errors until they \
             are started again",
            pool.display()
        );
    }
    let watched = Watched {
        controller: &controller,
        signals: signals.as_fd(),
        deletion: &deletion,
        announcement: announcement.as_ref(),
    };
    // Kept until the end: who comes after it starts another controller.
    let _use_lock = if arguments.private {
        wait_private(&watched, &pool, &say)
    } else {
        watched.wait(None, None);
        None
    };
    drop(announcement);
    manager.stopping();
    if let Some(mounting) = mounting {
        mounting.end();
    }
    if deletion.happened() {
        // There is nothing left to fold anything into.
        controller.kill();
        return Err(format!(
            "the pool {} was deleted while it was served, and what programs did on it is lost; \
             make it anew with: arck mkfs {} --size SIZE",
            pool.display(),
            pool.display()
        ));
    }
    controller.stop().map_err(|error| error.to_string())
}

/// Who is told how far the opening is, and what to call when it is over.
fn tell_of_opening(
    private: bool,
    ready: Option<&OwnedFd>,
    pool: &Path,
) -> (ProgressHook, Box<dyn Fn()>) {
    let pipe = ready.and_then(|ready| rustix::io::fcntl_dupfd_cloexec(ready, 3).ok());
    match pipe.filter(|_| private) {
        // Whoever started a private controller waits for it.
        Some(pipe) => (opening::through(pipe), Box::new(|| {})),
        None => {
            let (hook, end) = opening::on_standard_error(pool);
            (hook, Box::new(end))
        }
    }
}

/// An error number as the system words it.
fn plain(errno: Errno) -> String {
    crate::run::plain(&errno.into())
}

/// Closes what a private controller inherited and has no use for. Its starter may itself be in the
/// background of an ended `arck run`, and hold the use lock that this process has to get some day.
fn forget_inherited() {
    // SAFETY: this is the first thing that the process does: nothing of it has opened anything.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

/// Takes the descriptor that was passed by number.
fn own(number: RawFd) -> Result<OwnedFd, String> {
    let duplicate = if number < 0 {
        Err(Errno::BADF)
    } else {
        // SAFETY: only borrowed for the duplication; if nothing is open under that number, the
        // kernel says so.
        rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(number) }, 3)
    };
    duplicate.map_err(|errno| {
        format!(
            "--ready-fd {number}: {}; it has to be open for writing when arck serve starts",
            plain(errno)
        )
    })
}

/// Tells `arck status` of the pool; that it is served does not depend on it.
fn announce(pool: &Path) -> Option<Announcement> {
    Announcement::make(pool)
        .inspect_err(|errno| {
            tracing::warn!(
                "arck status will not list the pool: it cannot be announced: {}",
                plain(*errno)
            );
        })
        .ok()
}

/// A descriptor that becomes readable when the process is asked to end.
fn ending_signals() -> Result<OwnedFd, Errno> {
    // SAFETY: an all-zero set is a valid argument for sigemptyset, which initialises it.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` lives and is writable; the signal numbers are valid; signalfd with -1 makes
    // a new descriptor, which nobody else owns.
    let descriptor = unsafe {
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if descriptor < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    // SAFETY: just made, and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Why waiting ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// A signal came, the controller ended by itself, or its pool was deleted.
    End,
    /// `also` became readable, or was closed at the other end.
    Also,
    TimeOut,
}

/// What ends a controller.
struct Watched<'a> {
    controller: &'a RunningController,
    signals: BorrowedFd<'a>,
    deletion: &'a Deletion,
    announcement: Option<&'a Announcement>,
}

impl Watched<'_> {
    fn wait(&self, also: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> Woken {
        // However often somebody asks what is announced.
        let until = limit.map(|limit| Instant::now() + limit);
        let announced = self.announcement.map(Announcement::descriptor);
        let always = [
            Some(self.signals),
            Some(self.controller.finished_descriptor()),
            Some(self.deletion.descriptor()),
        ];
        let watched: Vec<BorrowedFd<'_>> = always
            .into_iter()
            .chain([announced, also])
            .flatten()
            .collect();
        loop {
            let mut set: Vec<PollFd<'_>> = watched
                .iter()
                .map(|&descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
                .collect();
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut set, timeout.as_ref()) {
                Ok(0) => return Woken::TimeOut,
                Err(Errno::INTR) => continue,
                Err(_) => return Woken::End,
                Ok(_) => {}
            }
            let ready = |index: usize| set.get(index).is_some_and(|e| !e.revents().is_empty());
            if ready(0) || ready(1) || ready(2) && self.deletion.happened() {
                return Woken::End;
            }
            if also.is_some() && ready(watched.len() - 1) {
                return Woken::Also;
            }
            if let Some(announcement) = self.announcement.filter(|_| ready(3)) {
                announcement.answer();
                if left.is_some_and(|left| left.is_zero()) {
                    return Woken::TimeOut;
                }
            }
        }
    }
}

/// Waits until the starter is gone and nobody uses the pool; gives the lock that keeps others
/// from beginning to.
fn wait_private(watched: &Watched<'_>, pool: &Path, say: &dyn Fn(&str)) -> Option<OwnedFd> {
    let stdin = std::io::stdin();
    let input = stdin.as_fd();
    let mut buffer = [0u8; 256];
    loop {
        match watched.wait(Some(input), None) {
            Woken::End => return None,
            Woken::TimeOut => {}
            Woken::Also => match rustix::io::read(input, &mut buffer) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => break,
            },
        }
    }
    let since = Instant::now();
    let mut said = false;
    loop {
        let controller = watched.controller;
        if controller.connections() == 0 {
            match crate::run::take_use_lock(pool) {
                // Somebody may have connected before he asked for the lock that we have now.
                Ok(lock) if controller.connections() == 0 => return Some(lock),
                // The pool was deleted or moved: nobody can come any more. Or nobody but another
                // user can take the lock: it would never be got.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
                    return None;
                }
                _ => {}
            }
        }
        if !said && since.elapsed() > BUSY_AFTER {
            said = true;
            say("busy\n");
        }
        if watched.wait(None, Some(LOOK_INTERVAL)) == Woken::End {
            return None;
        }
    }
}
