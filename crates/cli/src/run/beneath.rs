//! The process that serves the mount beneath a command's interception. Root's is started before the command's mount namespace is
//! made, so that it keeps nothing of that alive, and told to begin when the pool is mounted there.
//!
//! # Invariants
//! * It ends with the mount, and if it is never told to begin, with `arck run`.
//! * It uses the pool for as long as it lives: a private controller does not end before it.

use super::pool::User;
use super::telling::plain;
use arck_mount::beneath;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long its end is waited for, in which it folds what was done through it; it goes on by itself after that.
const END_LIMIT: Duration = Duration::from_secs(10);

/// See the module's head.
pub struct Server {
    process: Child,
    device: OwnedFd,
}

impl Server {
    /// Starts one. Does not wait for it. `point`: the directory at which it is to be mounted, locked, where that is the
    /// host's: it removes it in the end, if nobody else uses it.
    ///
    /// # Errors
    /// One line: the kernel has no FUSE, or no process can be started.
    pub fn start(
        pool: &Path,
        mount: &Path,
        user: &User,
        point: Option<&OwnedFd>,
    ) -> Result<Server, String> {
        Server::of_device(beneath::device()?, pool, mount, user, point, None)
    }

    /// The same for a device that was opened. `lock`: see `locks::serve_mount`; it ends when nobody uses the mount.
    ///
    /// # Errors
    /// One line: no process can be started.
    pub fn of_device(
        device: OwnedFd,
        pool: &Path,
        mount: &Path,
        user: &User,
        point: Option<&OwnedFd>,
        lock: Option<&OwnedFd>,
    ) -> Result<Server, String> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("arck").arg("mount").arg(pool).arg(mount);
        let kept = [
            ("--device", Some(device.as_raw_fd())),
            ("--point", point.map(OwnedFd::as_raw_fd)),
            ("--while-used", lock.map(OwnedFd::as_raw_fd)),
        ];
        for (option, number) in kept {
            if let Some(number) = number {
                command.args([option, &number.to_string()]);
            }
        }
        command.env_remove("LD_PRELOAD").current_dir("/");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A key on the terminal is for the command.
            .process_group(0);
        let failed = |error: io::Error| {
            format!(
                "what is to serve a mount cannot be started: {}",
                plain(&error)
            )
        };
        let use_lock = user.share_lock(&mut command, None).map_err(failed)?;
        let kept_lock = use_lock.as_ref().map(OwnedFd::as_raw_fd);
        // What this process has inherited would be kept open: locks of an `arck run` around this one, for whose end that
        // process might wait.
        // SAFETY: system calls between fork and exec, on descriptors that are open there.
        unsafe {
            command.pre_exec(move || {
                let on_exec = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
                libc::close_range(3, libc::c_uint::MAX, on_exec);
                let kept = kept.into_iter().filter_map(|(_, number)| number);
                kept.chain(kept_lock).try_for_each(|number| {
                    let descriptor = rustix::fd::BorrowedFd::borrow_raw(number);
                    fcntl_setfd(descriptor, FdFlags::empty()).map_err(io::Error::from)
                })
            });
        }
        let process = command.spawn().map_err(failed)?;
        drop(use_lock);
        Ok(Server { process, device })
    }

    /// Mounts the pool in this thread's namespace, and has it served. `point`: the directory there, if it is the host's.
    ///
    /// # Errors
    /// One line; then it ends.
    pub fn mount(
        mut self,
        pool: &Path,
        mount: &Path,
        point: Option<&OwnedFd>,
    ) -> Result<Serving, String> {
        match beneath::mount(pool, mount, point, &self.device) {
            Ok(()) => self.begin(),
            Err(line) => {
                drop(self.process.stdin.take());
                let _ = self.process.wait();
                Err(line)
            }
        }
    }

    /// Has it serve: it is mounted.
    ///
    /// # Errors
    /// One line: it has ended.
    pub fn begin(mut self) -> Result<Serving, String> {
        let input = self.process.stdin.take();
        match input.map(|mut input| input.write_all(b"\n")) {
            Some(Ok(())) => Ok(Serving(self.process)),
            _ => {
                let _ = self.process.wait();
                Err("what is to serve a mount has ended".to_owned())
            }
        }
    }
}

/// What serves a mount.
pub struct Serving(Child);

impl Serving {
    /// Waits for its end, after the mount was detached. Blocks at most [`END_LIMIT`].
    pub fn end(mut self) {
        let number = Pid::from_raw(self.0.id().cast_signed());
        let process = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
        let limit = Timespec::try_from(END_LIMIT).ok();
        let ended = process.is_some_and(|process| {
            let mut wait = [PollFd::new(&process, PollFlags::IN)];
            poll(&mut wait, limit.as_ref()).is_ok_and(|count| count > 0)
        });
        if ended {
            let _ = self.0.wait();
        }
    }
}
