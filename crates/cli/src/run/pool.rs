//! Which pool, who serves it, and the private controller.
//!
//! Two locks in the pool's directory keep several `arck run` and a private controller apart:
//!
//! * *start lock* (the directory itself, exclusive): held while an `arck run` looks for a
//!   controller or starts one, so that two do not start two.
//! * *use lock* (`run.lock`, shared): held by every `arck run` for as long as its command runs, and
//!   by every process of the command, by a descriptor that they inherit and the preload library
//!   keeps open ([`User::share_lock`]): what the command left in the background holds it still.
//!
//! A private controller ends by itself, when its starter is gone (its standard input, a pipe, is
//! at its end), no connection is open, and it gets the use lock exclusively; it keeps that lock
//! until its end, and whoever comes then waits and starts another. So it never ends under
//! somebody's feet, and it needs no help to end: a killed `arck run` leaves none behind.

use super::{plain, say};
use crate::bar::Bar;
use crate::{opening, owner};
use arck_core_state::layout;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FlockOperation, MemfdFlags, Mode, OFlags, flock, memfd_create, openat};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The use lock's file in the pool's directory.
pub const USE_LOCK: &str = "run.lock";

/// How long a private controller may take until it serves, or says how far it is.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long its end is waited for; it goes on by itself after that.
const END_LIMIT: Duration = Duration::from_secs(30);
/// How long a lock is waited for: somebody else's start, or a controller's end.
const LOCK_LIMIT: Duration = Duration::from_secs(40);
/// Between two tries for a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// The pool when none is named: `$ARCK_POOL`, else `/dev/shm/arck-$USER` (the user's number
/// where there is no such variable).
pub fn default_pool() -> PathBuf {
    if let Some(pool) = std::env::var_os("ARCK_POOL").filter(|pool| !pool.is_empty()) {
        return PathBuf::from(pool);
    }
    let mut name = std::ffi::OsString::from("arck-");
    match std::env::var_os("USER").filter(|user| !user.is_empty()) {
        Some(user) => name.push(user),
        None => name.push(rustix::process::geteuid().as_raw().to_string()),
    }
    Path::new("/dev/shm").join(name)
}

/// The pool's directory as an absolute path, if it looks like a pool.
pub fn locate(named: Option<&Path>) -> Result<PathBuf, String> {
    let named = named.map_or_else(default_pool, Path::to_path_buf);
    crate::nested::refuse(&named)?;
    let pool = std::fs::canonicalize(&named).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no pool at {}; name the directory of one, or make it: arck mkfs {} --size 1G",
            named.display(),
            named.display()
        ),
        _ => format!(
            "cannot reach the pool {}: {}",
            named.display(),
            plain(&error)
        ),
    })?;
    match std::fs::metadata(pool.join(layout::SUPERBLOCK)) {
        Ok(_) => Ok(pool),
        Err(error) if error.raw_os_error() == Some(libc::ENOTDIR) => Err(format!(
            "{} is a file; a pool is a directory, made with: arck mkfs DIRECTORY --size 1G",
            pool.display()
        )),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => match without_superblock(&pool)
        {
            Some(advice) => Err(advice),
            None => Err(format!(
                "{} is not a pool (it has no superblock); name the directory of one, or make one: \
                 arck mkfs DIRECTORY --size 1G",
                pool.display()
            )),
        },
        Err(error) => Err(format!(
            "cannot use the pool {}: {}; use one of your own, or run this as its owner",
            pool.display(),
            plain(&error)
        )),
    }
}

/// What is to be done about a pool that has lost its superblock, if it has the copy.
pub fn without_superblock(pool: &Path) -> Option<String> {
    let has_copy = pool.join(layout::SUPERBLOCK_COPY).exists();
    has_copy.then(|| {
        let pool = pool.display();
        format!("the superblock of {pool} is gone; from its copy it is put back by: arck check --repair {pool}")
    })
}

/// One `arck run` as a user of a served pool.
pub struct User {
    use_lock: Option<OwnedFd>,
    /// Kept open so that the controller notices our end.
    connection: Option<OwnedFd>,
    private: Option<PrivateController>,
}

impl User {
    /// Makes sure that somebody serves the pool. Blocks at most for the limits above.
    pub fn attach(pool: &Path, persist: Option<&str>) -> Result<User, String> {
        let failed = |error: Errno| {
            format!(
                "cannot use the pool {}: {}",
                pool.display(),
                plain(&error.into())
            )
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = openat(CWD, pool, flags | OFlags::DIRECTORY, Mode::empty());
        let directory = match opened {
            // Another user's, served to all: there is its socket to reach, and nothing to lock.
            Err(Errno::ACCESS) if !owner::is_owner(pool) => return User::visit(pool),
            opened => opened.map_err(failed)?,
        };
        lock(&directory, FlockOperation::NonBlockingLockExclusive)
            .map_err(failed)?
            .then_some(())
            .ok_or_else(|| {
                format!(
                    "another arck run is still starting on {}; try again",
                    pool.display()
                )
            })?;
        let mode = Mode::RUSR | Mode::WUSR;
        let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW;
        let opened = owner::as_owner(pool, || openat(&directory, USE_LOCK, flags, mode));
        let use_lock = match opened {
            Ok(file) => Some(file),
            Err(errno @ (Errno::ACCESS | Errno::PERM)) if owner::is_owner(pool) => {
                return Err(format!(
                    "cannot open {}: {}; it belongs to another user: remove it, or give it back \
                     (chown)",
                    pool.join(USE_LOCK).display(),
                    plain(&errno.into())
                ));
            }
            // Somebody else's pool: its controller is not private, so there is nothing to lock.
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => None,
            Err(error) => return Err(failed(error)),
        };
        // Out of the way of the small numbers that shells use, as the preload library's own.
        let use_lock = use_lock
            .map(|file| fcntl_dupfd_cloexec(&file, kept_descriptor()))
            .transpose()
            .map_err(failed)?;
        if let Some(file) = &use_lock
            && !lock(file, FlockOperation::NonBlockingLockShared).map_err(failed)?
        {
            return Err(format!(
                "the last private controller of {} is still ending; try again",
                pool.display()
            ));
        }
        if let Some(connection) = connect_to(&directory).map_err(failed)? {
            if persist.is_some() {
                say("the pool is served already; --persist changes nothing");
            }
            return Ok(User {
                use_lock,
                connection: Some(connection),
                private: None,
            });
        }
        let private = Some(PrivateController::start(pool, persist)?);
        Ok(User {
            use_lock,
            connection: None,
            private,
        })
    }

    /// Connects to a pool that another user serves.
    fn visit(pool: &Path) -> Result<User, String> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = |error: Errno| {
            let reason = plain(&error.into());
            format!("cannot use the pool {}: {reason}", pool.display())
        };
        let directory = openat(CWD, pool, flags, Mode::empty()).map_err(failed)?;
        match connect_to(&directory).map_err(failed)? {
            Some(connection) => Ok(User {
                use_lock: None,
                connection: Some(connection),
                private: None,
            }),
            None => Err(format!(
                "nobody serves the pool {}, which belongs to another user; he does, for all users, \
                 by: arck serve {} --shared",
                pool.display(),
                pool.display()
            )),
        }
    }

    /// Lets the processes of a command hold the use lock too: it is inherited, and `ARCK_KEEP`
    /// tells the preload library which descriptor that is. Nothing may be started after this but
    /// the command.
    pub fn share_lock(&self, command: &mut Command) -> io::Result<()> {
        let Some(lock) = &self.use_lock else {
            return Ok(());
        };
        let status = rustix::fs::fstat(lock)?;
        let (device, inode) = (status.st_dev, status.st_ino);
        let kept = format!("{}:{device}:{inode}", lock.as_raw_fd());
        command.env("ARCK_KEEP", kept);
        Ok(fcntl_setfd(lock, FdFlags::empty())?)
    }

    /// The command has ended: a private controller that nobody else uses ends now. Returns a
    /// line for the user if that failed. Blocks at most [`END_LIMIT`].
    pub fn end(self) -> Option<String> {
        drop(self.use_lock);
        drop(self.connection);
        self.private.and_then(PrivateController::end)
    }
}

/// The least number for the descriptor of the use lock.
fn kept_descriptor() -> i32 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1024);
    i32::try_from(limit.min(1024)).map_or(0, |limit| (limit - 64).max(0))
}

/// Takes a lock, trying for [`LOCK_LIMIT`]; whether it was got. The lock goes with `file`.
fn lock(file: &OwnedFd, operation: FlockOperation) -> Result<bool, Errno> {
    let started = Instant::now();
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                if started.elapsed() > LOCK_LIMIT {
                    return Ok(false);
                }
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Connects to the pool's controller; `None` if there is none. Goes through `/proc`, because a
/// socket's address holds only 107 bytes of path.
fn connect_to(directory: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let path = format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), layout::SOCKET);
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let started = Instant::now();
    loop {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(Some(socket)),
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
            Err(Errno::INTR) => {}
            // Too many are waiting to be let in.
            Err(Errno::AGAIN) if started.elapsed() < START_LIMIT => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// A controller that this process started.
struct PrivateController {
    /// Its standard input is the pipe whose end tells it that its starter is gone.
    process: Child,
    /// Says how far it is if that takes long, `ready`, later perhaps `busy`, each on a line.
    status: ChildStdout,
    /// Its standard error, in memory.
    log: File,
}

/// What came through the status pipe.
enum Word {
    Line(String),
    End,
    TimeOut,
}

impl PrivateController {
    fn start(pool: &Path, persist: Option<&str>) -> Result<PrivateController, String> {
        let failed =
            |error: io::Error| format!("cannot start a private controller: {}", plain(&error));
        let log = File::from(
            memfd_create("arck-controller-log", MemfdFlags::CLOEXEC)
                .map_err(|error| failed(error.into()))?,
        );
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("serve")
            .arg(pool)
            .args(["--private", "--ready-fd", "1"]);
        if let Some(persist) = persist {
            command.args(["--persist", persist]);
        }
        command
            .arg0("arck")
            .env_remove("LD_PRELOAD")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().map_err(failed)?)
            // A key on the terminal is for the command; the controller outlives it.
            .process_group(0);
        let mut process = command.spawn().map_err(failed)?;
        let Some(status) = process.stdout.take() else {
            return Err("cannot start a private controller: it has no status pipe".to_string());
        };
        let mut controller = PrivateController {
            process,
            status,
            log,
        };
        match controller.first_word(pool) {
            Word::Line(line) if line == "ready" => Ok(controller),
            Word::TimeOut => {
                controller.kill();
                Err(format!(
                    "the private controller of {} does not answer after {} s; run arck serve \
                     yourself to see why",
                    pool.display(),
                    START_LIMIT.as_secs()
                ))
            }
            Word::Line(_) | Word::End => {
                controller.kill();
                let said = controller.said();
                Err(if said.is_empty() {
                    "the private controller ended without a word".to_string()
                } else {
                    said
                })
            }
        }
    }

    /// The first word that is not how far it is with opening the pool: as long as it says that, it
    /// is waited for.
    fn first_word(&mut self, pool: &Path) -> Word {
        let what = format!("arck run: opening {}", pool.display());
        let bar = Bar::new(what.clone(), Duration::ZERO);
        loop {
            let word = self.next_word(START_LIMIT);
            if let Word::Line(line) = &word
                && let Some((done, all, step)) = opening::read(line)
            {
                bar.step(&format!("{what}, {step}"), done, all);
                continue;
            }
            bar.end();
            return word;
        }
    }

    /// For one that failed to start; it has nothing to lose.
    fn kill(&mut self) {
        // It may have ended by itself, and then there is nothing to kill.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Lets it end, unless others use the pool.
    fn end(mut self) -> Option<String> {
        drop(self.process.stdin.take());
        match self.next_word(END_LIMIT) {
            Word::Line(_) => None,
            Word::TimeOut => Some(format!(
                "the private controller is still busy after {} s; it ends by itself",
                END_LIMIT.as_secs()
            )),
            Word::End => {
                let status = self.process.wait();
                let said = self.said();
                match status {
                    Ok(status) if status.success() => (!said.is_empty()).then_some(said),
                    Ok(status) => Some(format!("the private controller failed ({status}): {said}")),
                    Err(error) => Some(format!("lost the private controller: {}", plain(&error))),
                }
            }
        }
    }

    /// What it wrote to standard error, trimmed; without its own name in front.
    fn said(&mut self) -> String {
        let mut text = Vec::new();
        // What cannot be read is not said.
        let _ = self.log.rewind();
        let _ = self.log.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        let text = text.trim();
        text.strip_prefix("arck serve: ")
            .or(text.strip_prefix("arck: "))
            .unwrap_or(text)
            .to_string()
    }

    /// The next line of the status pipe, waiting at most `limit`.
    fn next_word(&mut self, limit: Duration) -> Word {
        let started = Instant::now();
        let mut line = Vec::new();
        loop {
            let left = limit.saturating_sub(started.elapsed());
            let Ok(timeout) = rustix::event::Timespec::try_from(left) else {
                return Word::TimeOut;
            };
            match poll(
                &mut [PollFd::new(&self.status, PollFlags::IN)],
                Some(&timeout),
            ) {
                Ok(0) => return Word::TimeOut,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return Word::End,
            }
            let mut byte = [0];
            match self.status.read(&mut byte) {
                Ok(0) => return Word::End,
                Ok(_) if byte[0] == b'\n' => {
                    return Word::Line(String::from_utf8_lossy(&line).into_owned());
                }
                Ok(_) => line.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Word::End,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("arck-run-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn missing_and_foreign_directories_are_refused_with_advice() {
        let directory = scratch("locate");
        let missing = locate(Some(&directory.join("none"))).unwrap_err();
        assert!(missing.contains("arck mkfs"), "{missing}");
        let foreign = locate(Some(&directory)).unwrap_err();
        assert!(
            foreign.contains("not a pool") && foreign.contains("arck mkfs"),
            "{foreign}"
        );
        std::fs::write(directory.join(layout::SUPERBLOCK_COPY), b"").unwrap();
        let damaged = locate(Some(&directory)).unwrap_err();
        assert!(damaged.contains("arck check --repair"), "{damaged}");
        std::fs::write(directory.join(layout::SUPERBLOCK), b"").unwrap();
        assert_eq!(
            locate(Some(&directory)).unwrap(),
            directory.canonicalize().unwrap()
        );
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn nobody_serves_an_unconnected_pool() {
        let directory = scratch("connect");
        let opened = openat(CWD, &directory, OFlags::RDONLY, Mode::empty()).unwrap();
        assert!(connect_to(&opened).unwrap().is_none());
        // A socket that a dead controller left behind.
        drop(UnixListener::bind(directory.join(layout::SOCKET)).unwrap());
        // Of another type than the controller's: refused as a mistake, not taken for absence.
        assert!(!matches!(connect_to(&opened), Ok(Some(_))));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_lock_goes_with_its_file() {
        let directory = scratch("lock");
        let open = || openat(CWD, &directory, OFlags::RDONLY, Mode::empty()).unwrap();
        let first = open();
        assert!(lock(&first, FlockOperation::NonBlockingLockExclusive).unwrap());
        assert_eq!(
            flock(open(), FlockOperation::NonBlockingLockShared),
            Err(Errno::WOULDBLOCK)
        );
        drop(first);
        assert!(lock(&open(), FlockOperation::NonBlockingLockShared).unwrap());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
