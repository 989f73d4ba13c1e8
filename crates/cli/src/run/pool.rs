//! Which pool, who serves it, and the private controller.
//!
//! Two locks in the pool's directory keep several `arck run` and a private controller apart:
//!
//! * *start lock* (the directory itself, exclusive): held while an `arck run` looks for a
//!   controller or starts one, so that two do not start two.
//! * *use lock* (a byte of `run.lock`, shared): held by every `arck run` for as long as its command runs, and
//!   by every process of the command, by a descriptor that they inherit and the preload library
//!   keeps open ([`User::share_lock`]): what the command left in the background holds it still. Who has
//!   that descriptor can go on holding the lock, or let go of what this one command holds, and no more.
//!
//! A private controller ends by itself, when its starter is gone (its standard input, a pipe, is
//! at its end), no connection is open, and it gets the use lock exclusively; it keeps that lock
//! until its end, and whoever comes then waits and starts another. So it never ends under
//! somebody's feet, and it needs no help to end: a killed `arck run` leaves none behind.
//!
//! One that is killed is started again by who uses the pool ([`guard`](super::guard)). That it was
//! private they know by a *mark*: a record lock on the use lock's first byte, which it has for as
//! long as it lives ([`mark_private`]).

use super::guard::{Guard, Served};
use super::locks::{self, Place, USE_LOCK, connect_to, take_start_lock, try_for};
use super::private::{PrivateController, START_LIMIT, Wishes, being_opened};
use super::telling::{plain, say};
use crate::owner;
use arck_core_state::layout;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks for a controller that is gone.
const GONE_PAUSE: Duration = Duration::from_millis(20);
/// One that is gone for so long is worth a line.
const TOLD_AFTER: Duration = Duration::from_millis(500);

/// The pool that is named, or else the default; that only if it is the user's own. Everybody may make a directory
/// of that name in `/dev/shm`, and serve to all what others then take for theirs.
pub fn named_or_default(named: Option<&Path>) -> Result<PathBuf, String> {
    let is_named =
        named.is_some() || std::env::var_os("ARCK_POOL").is_some_and(|pool| !pool.is_empty());
    let pool = named.map_or_else(default_pool, Path::to_path_buf);
    match owner::other_user(&pool).filter(|_| !is_named) {
        Some(user) => Err(format!(
            "the pool {pool}, which is meant where none is named, belongs to user {user}, and not to you; if you want \
             it all the same, name it: {pool}",
            pool = pool.display()
        )),
        None => Ok(pool),
    }
}

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
    let named = named_or_default(named)?;
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
            "cannot use the pool {}: {}; use one of your own, or run this as its owner{}",
            pool.display(),
            plain(&error),
            owner::other_user(&pool).map_or(String::new(), |user| format!(
                " (user {user}), who lets all users in by: arck serve --shared {}",
                pool.display()
            ))
        )),
    }
}

/// Why this process has no pool there to use; `None` if it has, or if there is one to be repaired.
pub fn why_none(pool: &Path) -> Option<String> {
    if without_superblock(pool).is_some() {
        return None;
    }
    locate(Some(pool)).err()
}

/// What is to be done about a pool that has lost its superblock, if it has the copy.
pub fn without_superblock(pool: &Path) -> Option<String> {
    let has_copy = pool.join(layout::SUPERBLOCK_COPY).exists();
    has_copy.then(|| {
        let pool = pool.display();
        format!("the superblock of {pool} is gone; from its copy it is put back by: arck check --repair {pool}")
    })
}

/// A controller that is gone, and waited for.
struct Gone {
    since: Instant,
    patience: Duration,
    is_told: bool,
}

impl Default for Gone {
    fn default() -> Gone {
        Gone {
            since: Instant::now(),
            patience: arck_libfs_kit::connection::patience(),
            is_told: false,
        }
    }
}

impl Gone {
    /// Waits a moment; false if it has been waited for long enough.
    fn wait(&mut self, pool: &Path) -> bool {
        let waited = self.since.elapsed();
        if waited >= self.patience {
            return false;
        }
        if waited > TOLD_AFTER && !self.is_told {
            self.is_told = true;
            say(&format!(
                "the controller of {} is gone; waiting for another one, {} s at most",
                pool.display(),
                self.patience.as_secs()
            ));
        }
        std::thread::sleep(GONE_PAUSE);
        true
    }
}

/// One `arck run` as a user of a served pool.
pub struct User {
    use_lock: Option<Arc<OwnedFd>>,
    guard: Guard,
}

impl User {
    /// Makes sure that somebody serves the pool. Blocks at most for the limits above.
    pub fn attach(pool: &Path, wishes: &Wishes) -> Result<User, String> {
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
        // One that served all users and was killed is started again by who had started it, for all again: a private one would keep it from
        // that, and all other users out.
        let mut gone = Gone::default();
        while connect_to(&directory).map_err(failed)?.is_none()
            && arck_libfs_kit::connection::was_for_all(pool)
            && gone.wait(pool)
        {}
        take_start_lock(pool, &directory)?;
        let mode = Mode::RUSR | Mode::WUSR;
        // Whatever lies there: of a FIFO nobody waits for the other end.
        let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = owner::as_owner(&directory, || openat(&directory, USE_LOCK, flags, mode));
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
            && !try_for(|| locks::share(file)).map_err(failed)?
        {
            return Err(format!(
                "the last private controller of {} is still ending; try again",
                pool.display()
            ));
        }
        let deadline = Instant::now() + START_LIMIT;
        let served = loop {
            if let Some(connection) = connect_to(&directory).map_err(failed)? {
                for option in &wishes.given {
                    say(&format!(
                        "the pool is served already; {option} changes nothing"
                    ));
                }
                break Served::by_another(connection, use_lock.as_ref());
            }
            match PrivateController::start(pool, wishes)? {
                Some(controller) => break Served::Ours(controller),
                None if Instant::now() >= deadline => return Err(being_opened(pool)),
                // An `arck serve` that has the pool's lock and no socket yet.
                None => std::thread::sleep(GONE_PAUSE),
            }
        };
        let use_lock = use_lock.map(Arc::new);
        let guard = Guard::start(pool, wishes, use_lock.clone(), served);
        Ok(User { use_lock, guard })
    }

    /// Connects to a pool that another user serves. Where its controller was killed, waits for the next
    /// one, as the programs do that are started (`ARCK_WAIT`).
    fn visit(pool: &Path) -> Result<User, String> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = |error: Errno| {
            let reason = plain(&error.into());
            format!("cannot use the pool {}: {reason}", pool.display())
        };
        let directory = openat(CWD, pool, flags, Mode::empty()).map_err(failed)?;
        let mut gone = Gone::default();
        loop {
            if let Some(connection) = connect_to(&directory).map_err(failed)? {
                return Ok(User {
                    use_lock: None,
                    guard: Guard::start(
                        pool,
                        &Wishes::new(None, None, None),
                        None,
                        Served::by_another(connection, None),
                    ),
                });
            }
            // One that ends in order takes its socket away, and nobody is known to start another.
            let socket = rustix::fs::statat(&directory, layout::SOCKET, AtFlags::SYMLINK_NOFOLLOW);
            if socket.err() == Some(Errno::NOENT) || !gone.wait(pool) {
                return Err(format!(
                    "nobody serves the pool {}, which belongs to another user; he does, for all \
                     users, by: arck serve {} --shared",
                    pool.display(),
                    pool.display()
                ));
            }
        }
    }

    /// The use lock, where this user may have it.
    pub fn use_lock(&self) -> Option<Arc<OwnedFd>> {
        self.use_lock.clone()
    }

    /// Lets the processes of a command hold the use lock too, and that of a mount of `arck run`'s, by an open file of their
    /// own, which they inherit; `ARCK_KEEP` tells the preload library which descriptor that is. Nothing may be started
    /// after this but the command. What is returned is open until then.
    pub fn share_lock(
        &self,
        command: &mut Command,
        of_mount: Option<Place>,
    ) -> io::Result<Option<OwnedFd>> {
        let Some(lock) = &self.use_lock else {
            return Ok(None);
        };
        // To be read alone: whoever it gets to, also of other users, can exclude nobody by it, nor have
        // anybody believe that a private controller serves the pool.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{}", lock.as_raw_fd());
        let shared = openat(CWD, path, flags, Mode::empty())?;
        let shared = fcntl_dupfd_cloexec(&shared, kept_descriptor())?;
        locks::share(&shared)?;
        if let Some(place) = of_mount {
            // Whoever asks for it has it himself, or is within who has: nobody has taken it to end the mount.
            let _ = locks::share_mount(&shared, place);
        }
        let status = rustix::fs::fstat(&shared)?;
        let (device, inode) = (status.st_dev, status.st_ino);
        let kept = format!("{}:{device}:{inode}", shared.as_raw_fd());
        command.env("ARCK_KEEP", kept);
        fcntl_setfd(&shared, FdFlags::empty())?;
        Ok(Some(shared))
    }

    /// The command has ended: a private controller that nobody else uses ends now. Returns a
    /// line for the user if that failed. Blocks at most [`END_LIMIT`].
    pub fn end(self) -> Option<String> {
        let served = self.guard.stop();
        drop(self.use_lock);
        match served {
            Served::Ours(controller) => controller.end(),
            Served::Others(_) | Served::Kept { .. } | Served::Nobody => None,
        }
    }
}

/// The least number for the descriptor of the use lock.
fn kept_descriptor() -> i32 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1024);
    i32::try_from(limit.min(1024)).map_or(0, |limit| (limit - 64).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
