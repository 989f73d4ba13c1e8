//! The trust group of a command: all its processes have one session (DESIGN section 8).
//!
//! What one of them does the others see at once, and none pays for what another has done. All programs that a
//! user starts on a pool by one build of Arck are one group, from whatever terminal, so that what needs shared
//! memory works between them (SQLite's write-ahead log, LMDB, shared maps). `--own-group` makes one for this
//! command, `--group` names one; an `arck run` that is started by a program of a group, on the same pool, is of
//! that group.
//!
//! # Invariant
//! `arck run` is a member itself while its command runs, and does nothing with it: so the session
//! lasts from one short program to the next, and what they did is folded once, at the end.

use super::arguments::RunArguments;
use arckfs::{ConnectOptions, FileSystem, NoFileSystem, Resolver};
use rustix::io::Errno;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

/// The variable that tells the preload library the name.
const VARIABLE: &str = "ARCK_GROUP";
/// The one that tells it the file system.
const FILE_SYSTEM: &str = "ARCK_FS";

/// The name of the command's group; `None`: each of its processes has a session of its own. `library`: the
/// preload library; `mount`: where they see the pool.
pub fn name(
    arguments: &RunArguments,
    resolver: Resolver,
    pool: &Path,
    mount: &Path,
    library: &Path,
) -> Option<String> {
    if arguments.no_group {
        return None;
    }
    if arguments.own_group {
        return Some(of_this_run());
    }
    if let Some(name) = &arguments.group {
        return Some(name.clone());
    }
    let told = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
    let is_same_pool = std::env::var_os("ARCK_POOL").is_none_or(|told| Path::new(&told) == pool);
    told.filter(|_| is_same_pool).or_else(|| {
        let Ok(build) = build(library, mount) else {
            return Some(of_this_run());
        };
        // A group has one file system.
        let which = match resolver == Resolver::default() {
            true => String::new(),
            false => format!("-{}", resolver.name()),
        };
        Some(format!("user-{build:016x}{which}"))
    })
}

/// A name that no other `arck run` makes up.
fn of_this_run() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos();
    format!("run-{}-{now:x}", std::process::id())
}

/// What programs have in common that may share memory: the library, this command, and where they see the pool.
/// Files are told apart by where they lie and when they were changed, so an installed update is another build.
fn build(library: &Path, mount: &Path) -> Result<u64, Errno> {
    let mut hasher = DefaultHasher::new();
    for file in [library, Path::new("/proc/self/exe")] {
        let status = rustix::fs::stat(file)?;
        (status.st_dev, status.st_ino, status.st_size).hash(&mut hasher);
        (status.st_mtime, status.st_mtime_nsec).hash(&mut hasher);
    }
    mount.hash(&mut hasher);
    Ok(hasher.finish())
}

/// Which file system the command's programs have. What the environment says is of the program of the pool that this
/// command was started by, if any.
pub fn resolver(arguments: &RunArguments) -> Result<Resolver, String> {
    if let Some(resolver) = arguments.fs {
        return Ok(resolver);
    }
    match std::env::var_os(FILE_SYSTEM).filter(|name| !name.is_empty()) {
        None => Ok(Resolver::default()),
        Some(name) => {
            let named = name.to_string_lossy().parse();
            named.map_err(|error: NoFileSystem| format!("{FILE_SYSTEM}: {error}"))
        }
    }
}

/// Tells the command its group, and its file system. In a program of a pool a variable that is only taken away comes back
/// when the command is executed: the library has it go on with what its own program has. So one that does not count is
/// empty.
pub fn tell(command: &mut Command, name: Option<&str>, resolver: Resolver) {
    let system = (resolver != Resolver::default()).then(|| resolver.name());
    for (variable, value) in [(VARIABLE, name), (FILE_SYSTEM, system)] {
        if value.is_some() || std::env::var_os(variable).is_some() {
            command.env(variable, value.unwrap_or_default());
        }
    }
}

/// The place of `arck run` itself in its command's group; it is left when this is dropped.
pub struct Membership(Option<JoinHandle<Option<FileSystem>>>);

impl Membership {
    /// Joins, while the command starts. Does not block.
    pub fn begin(name: Option<&str>, resolver: Resolver, pool: &Path, mount: &Path) -> Membership {
        let joining = name.and_then(|name| {
            let options = ConnectOptions {
                pool: pool.to_path_buf(),
                mount: mount.as_os_str().as_bytes().to_vec(),
                group: name.as_bytes().to_vec(),
                resolver,
            };
            // Where this fails, so does it for the command's programs, which say why. Where there may be no
            // further thread, the group lasts from one of its programs to the next only while they overlap.
            let join = move || FileSystem::connect_waiting(&options).ok();
            std::thread::Builder::new().spawn(join).ok()
        });
        Membership(joining)
    }

    /// Leaves. Where nobody else is left, all that was done is folded when this returns.
    pub fn end(self) {}
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(joining) = self.0.take() {
            drop(joining.join());
        }
    }
}
