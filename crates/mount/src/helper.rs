//! Mounting by who is not root: fusermount3 does it, which is root's and set-user-ID, and hands over the kernel's device.
//!
//! Invariant: what the helper says when it refuses is told, in one line.

use crate::point::{no_helper, source_of};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The variable by which it is told the number of its end of the socket.
const SOCKET: &str = "_FUSE_COMMFD";

/// Mounts at a directory that was looked at; the kernel's device. `kind`: as the kernel tells it, `fuse.` and a word.
/// Blocks.
///
/// # Errors
/// One line.
pub fn mount(
    pool: &Path,
    directory: &Path,
    read_only: bool,
    kind: &str,
) -> Result<OwnedFd, String> {
    let failed = |errno: Errno| format!("mounting by fusermount3: {errno}");
    let (own, its) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(failed)?;
    let mut command = Command::new("fusermount3");
    let source = source_of(pool);
    let subtype = kind.trim_start_matches("fuse.");
    let mut how = format!(
        "fsname={source},subtype={subtype},default_permissions,nosuid,nodev,max_read={}",
        crate::data::REQUEST_MAX
    );
    if read_only {
        how += ",ro";
    }
    command.args(["-o", &how, "--"]).arg(directory);
    let number = its.as_raw_fd();
    command.env(SOCKET, number.to_string());
    // SAFETY: a system call between fork and exec, on a descriptor that is open there.
    unsafe {
        command.pre_exec(move || {
            let its = rustix::fd::BorrowedFd::borrow_raw(number);
            fcntl_setfd(its, FdFlags::empty()).map_err(io::Error::from)
        });
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| no_helper(&error))?;
    drop(its);
    let device = receive(&own);
    // Its end is that it has mounted, or not.
    let output = child
        .wait_with_output()
        .map_err(|error| no_helper(&error))?;
    match device {
        Ok(Some(device)) if output.status.success() => Ok(device),
        _ => Err(why_not(&String::from_utf8_lossy(&output.stderr))),
    }
}

fn receive(socket: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut along = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let mut parts = [io::IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut parts, &mut along, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => break,
        }
    }
    Ok(along.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    }))
}

/// What the helper said, and what to do about it.
fn why_not(said: &str) -> String {
    let said = said.trim();
    let line = said.lines().next().unwrap_or_default();
    let line = line.trim_start_matches("fusermount3: ");
    if line.contains("/dev/fuse") || line.contains("device not found") {
        let remedy = match line.contains("Permission denied") {
            true => "it is closed to you: chmod 666 /dev/fuse, as root",
            false => "this kernel has no FUSE, or has not loaded it: modprobe fuse, as root",
        };
        return format!("{line}; {remedy}");
    }
    match line {
        "" => "fusermount3 has not mounted it, and says nothing; it has to belong to root and be set-user-ID".to_owned(),
        line if line.contains("Operation not permitted") => format!(
            "fusermount3: {line}; it has to belong to root and be set-user-ID (chmod u+s), or mount as root"
        ),
        line => format!("fusermount3: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_helper_says_is_one_line() {
        for said in [
            "",
            "fusermount3: mount failed: Operation not permitted\nmore\n",
            "fuse: device not found, try 'modprobe fuse' first",
            "x",
        ] {
            let line = why_not(said);
            assert!(!line.contains('\n') && line.len() > 1, "{line}");
        }
        for (said, remedy) in [
            (
                "fusermount3: failed to open /dev/fuse: Permission denied",
                "chmod 666",
            ),
            (
                "fusermount3: failed to open /dev/fuse: No such file or directory",
                "modprobe",
            ),
            (
                "fuse: device not found, try 'modprobe fuse' first",
                "modprobe",
            ),
        ] {
            let line = why_not(said);
            assert!(
                line.contains(&format!("{remedy} ")) && line.ends_with("as root"),
                "{line}"
            );
        }
    }
}
