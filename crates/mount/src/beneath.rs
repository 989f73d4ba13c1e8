//! A mount beneath the interception: in the mount namespace of one command, for what the preload library does not reach.
//!
//! The command's `arck run` mounts, in the namespace that it has made, by a device that it has opened; a process outside
//! of the namespace serves it, so that the namespace, and with it the mount, ends with the last of the command's
//! processes. That process opens no session before somebody asks for something.
//!
//! # Invariant
//! * What is asked before anybody serves waits, and is answered when he does.

use crate::mounted::{self, Mounted};
pub use crate::point::device;
use crate::point::{self, KIND};
use arckfs::ConnectOptions;
use rustix::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Mounts a pool at a directory of this thread's mount namespace, which is root's to do; `point`: the directory, open,
/// where it is the host's, which has to be what the path says without links. Whoever has the device serves it.
///
/// # Errors
/// One line.
pub fn mount(
    pool: &Path,
    directory: &Path,
    point: Option<&OwnedFd>,
    device: &OwnedFd,
) -> Result<(), String> {
    let mounted = match point {
        Some(point) => mounted::mount_on(pool, directory, point, false, device),
        // What lies there is another mount of ours.
        None => mounted::mount(pool, directory, false, device),
    };
    mounted.map_err(|errno| format!("mounting at {} failed: {errno}", directory.display()))
}

/// Serves what was mounted by the device at a directory that this process need not see, until it is unmounted. Blocks.
///
/// # Errors
/// One line.
pub fn serve(pool: &Path, directory: &Path, device: OwnedFd) -> Result<(), String> {
    Mounted::beneath(
        ConnectOptions {
            pool: pool.to_path_buf(),
            mount: directory.as_os_str().as_encoded_bytes().to_vec(),
            group: Vec::new(),
        },
        device,
    )?
    .serve()
}

/// Where a pool is mounted in this process's namespace by root or its own user, if it is: the last of its mounts. Others
/// could have the kernel show anything as the pool.
pub fn mounted_at(pool: &Path) -> Option<PathBuf> {
    let mounts = point::mounts().into_iter().rev();
    let found = { mounts }.find(|mount| is_ours(mount, pool))?;
    // One whose process is gone shows nothing.
    std::fs::metadata(&found.at).is_ok().then_some(found.at)
}

/// Whether a mount is that pool's, of root's or this user's.
fn is_ours(mount: &point::Mount, pool: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    mount.kind == KIND
        && Path::new(&mount.source) == pool
        && mount.user.is_some_and(|user| user == 0 || user == own)
}

/// Whether the last of what is mounted at a directory is that pool's mount, of root's or this user's.
pub fn is_mounted_at(pool: &Path, directory: &Path) -> bool {
    let mounts = point::mounts();
    let last = mounts.iter().rev().find(|mount| mount.at == directory);
    last.is_some_and(|mount| is_ours(mount, pool)) && std::fs::metadata(directory).is_ok()
}
