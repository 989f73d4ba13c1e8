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
use arckfs::{ConnectOptions, FileSystem};
use rustix::io::Errno;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

/// The variable that tells the preload library the name.
const VARIABLE: &str = "ARCK_GROUP";

/// The name of the command's group; `None`: each of its processes has a session of its own. `library`: the
/// preload library; `mount`: where they see the pool.
pub fn name(arguments: &RunArguments, pool: &Path, mount: &Path, library: &Path) -> Option<String> {
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
        let build = build(library, mount);
        Some(build.map_or_else(|_| of_this_run(), |build| format!("user-{build:016x}")))
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

/// Tells the command its group.
pub fn tell(command: &mut Command, name: Option<&str>) {
    match name {
        Some(name) => command.env(VARIABLE, name),
        None => command.env_remove(VARIABLE),
    };
}

/// The place of `arck run` itself in its command's group; it is left when this is dropped.
pub struct Membership(Option<JoinHandle<Option<FileSystem>>>);

impl Membership {
    /// Joins, while the command starts. Does not block.
    pub fn begin(name: Option<&str>, pool: &Path, mount: &Path) -> Membership {
        let joining = name.and_then(|name| {
            let options = ConnectOptions {
                pool: pool.to_path_buf(),
                mount: mount.as_os_str().as_bytes().to_vec(),
                group: name.as_bytes().to_vec(),
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
