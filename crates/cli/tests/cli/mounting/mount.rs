//! A mount for a test.
//!
//! Invariant: no mount outlives its [`Mount`], whatever becomes of the test: it is detached, and whoever serves it ends
//! by that.

use crate::support::{Place, arck, honest_end, mkfs};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long something may take that is not asked for twice.
pub const SOON: Duration = Duration::from_secs(20);

/// A pool, a directory, and what is mounted there.
pub struct Mount {
    pub place: Place,
    /// What serves it, where that is a child of the test's.
    pub server: Option<Child>,
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < SOON, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether something is mounted there.
pub fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    table.lines().any(|line| {
        line.split(' ')
            .nth(4)
            .is_some_and(|at| Path::new(at) == path)
    })
}

/// Detaches whatever is mounted there; whether anything was.
pub fn detach(path: &Path) -> bool {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a string.
    unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) == 0 }
}

impl Mount {
    /// A pool and an empty directory; nothing is mounted yet.
    pub fn prepared(size: &str) -> Mount {
        let place = Place::new();
        let made = mkfs(&place.pool(), &["--size", size]);
        assert!(made.status.success(), "{made:?}");
        std::fs::create_dir(place.path().join("mount")).unwrap();
        Mount {
            place,
            server: None,
        }
    }

    /// Mounted by `arck mount` in the background.
    pub fn made(size: &str) -> Mount {
        let mount = Mount::prepared(size);
        mount.mount();
        mount
    }

    /// Where the pool is seen.
    pub fn path(&self) -> PathBuf {
        self.place.path().join("mount")
    }

    pub fn pool(&self) -> PathBuf {
        self.place.pool()
    }

    pub fn command(&self, options: &[&str]) -> Command {
        let mut command = arck();
        command.arg("mount").arg(self.pool()).arg(self.path());
        command.args(options);
        command
    }

    pub fn try_to_mount(&self, options: &[&str]) -> Output {
        self.command(options).output().unwrap()
    }

    pub fn mount(&self) {
        let output = self.try_to_mount(&[]);
        assert!(
            output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(),
            "{output:?}"
        );
        assert!(is_mounted(&self.path()));
    }

    /// Mounted by a child of the test's.
    pub fn mount_in_foreground(&mut self) {
        let mut command = self.command(&["--foreground"]);
        command.stdin(Stdio::null());
        self.server = Some(command.spawn().unwrap());
        let path = self.path();
        until("it is mounted", || is_mounted(&path));
    }

    /// Unmounts, and waits until the pool is closed, where nobody else serves it.
    pub fn unmount(&self) {
        let status = Command::new("umount").arg(self.path()).status().unwrap();
        assert!(status.success());
        assert!(!is_mounted(&self.path()));
        honest_end(&self.pool());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        while detach(&self.path()) {}
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        if !std::thread::panicking() {
            honest_end(&self.pool());
        }
    }
}
