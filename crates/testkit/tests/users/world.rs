//! A pool that a user of its own serves, and processes of other users on it.
//!
//! # Invariants
//! * When a pool is dropped, the verifier has refused nothing on it.
//! * This process has one thread and never a session: users are forked from it.

use arck_controller::{Controller, MkfsOptions, Options, mkfs};
use arck_testkit::{Shorthand, connect, honest};
use arckfs::{At, Errno, Failure, FileSystem};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The user who serves the pool.
pub const SERVER: u32 = 990;

/// A user, and the groups in which he is; the first is his own.
#[derive(Clone, Copy)]
pub struct User(pub u32, pub &'static [u32]);

pub const ROOT: User = User(0, &[0]);
pub const ANN: User = User(1001, &[1001, 2000]);
pub const BOB: User = User(1002, &[1002, 2000]);
/// In no group with the others.
pub const EVE: User = User(1003, &[1003]);

/// Becomes a user, for good.
fn become_user(user: User) {
    let User(uid, groups) = user;
    // SAFETY: a list of numbers that lives; this process has one thread.
    let became = unsafe {
        libc::setgroups(groups.len(), groups.as_ptr()) == 0
            && libc::setresgid(groups[0], groups[0], groups[0]) == 0
            && libc::setresuid(uid, uid, uid) == 0
    };
    assert!(became, "becoming user {uid}");
    // SAFETY: integers only. What a new user's process may not do here is dump core, and be looked
    // at through /proc by itself.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) };
}

/// A forked process; waited for by [`Child::ended`].
pub struct Child(libc::pid_t);

impl Child {
    /// Runs `what` in a process of its own as a user.
    pub fn start(user: User, what: impl FnOnce()) -> Child {
        // SAFETY: this process has one thread, so the child's memory is in order.
        let process = unsafe { libc::fork() };
        assert!(process >= 0, "fork");
        if process == 0 {
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                become_user(user);
                what();
            }));
            // SAFETY: ends this process, without its parent's destructors.
            unsafe { libc::_exit(i32::from(ran.is_err())) };
        }
        Child(process)
    }

    fn wait(&self) -> i32 {
        let mut status = 0;
        // SAFETY: a number that lives; the process is this one's child.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(waited, self.0);
        status
    }

    /// Whether it has; not to be waited for again then.
    fn has_ended(&self) -> bool {
        let mut status = 0;
        // SAFETY: as in `wait`.
        unsafe { libc::waitpid(self.0, &raw mut status, libc::WNOHANG) == self.0 }
    }

    /// Waits for it, and fails if it did.
    pub fn ended(self, what: &str) {
        assert_eq!(self.wait(), 0, "{what} failed; see above");
    }

    pub fn kill(self) {
        // SAFETY: integers only; a child that has not been waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        self.wait();
    }
}

/// A pool, and the process that serves it to all users.
pub struct World {
    directory: tempfile::TempDir,
    server: Option<(Child, UnixStream)>,
}

impl World {
    /// A pool of `size` bytes whose root is as /tmp.
    pub fn new(size: u64) -> World {
        let directory = tempfile::Builder::new()
            .prefix("arck-users-")
            .tempdir_in("/dev/shm")
            .expect("a directory in /dev/shm");
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(directory.path(), everybody).expect("chmod");
        let mut world = World {
            directory,
            server: None,
        };
        let pool = world.pool();
        Child::start(User(SERVER, &[SERVER]), || {
            let made = MkfsOptions {
                size,
                mode: 0o1777,
                force: false,
            };
            mkfs(&pool, &made, &mut |_, _| {}).expect("mkfs");
        })
        .ended("mkfs");
        world.serve();
        world
    }

    pub fn pool(&self) -> PathBuf {
        self.directory.path().join("pool")
    }

    /// Where it stands at which point of a commit, counted from 0, the controller is to die.
    pub fn fuse(&self) -> PathBuf {
        self.directory.path().join("fuse")
    }

    pub fn serve(&mut self) {
        let pool = self.pool();
        let fuse = self.fuse();
        let (mut here, mut there) = UnixStream::pair().expect("a pair of sockets");
        let server = Child::start(User(SERVER, &[SERVER]), || {
            let passed = AtomicU32::new(0);
            let hook = move |_: &'static str| {
                let Ok(text) = std::fs::read_to_string(&fuse) else {
                    return;
                };
                let at: u32 = text.parse().expect("a number");
                if passed.fetch_add(1, Ordering::SeqCst) == at {
                    // SAFETY: integers only; ends this process.
                    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
                }
            };
            let options = Options {
                shared: true,
                crash_hook: Some(Arc::new(hook)),
                ..Options::default()
            };
            let controller = Controller::open(&pool, options).expect("open");
            let running = controller.spawn().expect("spawn");
            there.write_all(b"!").expect("a reader");
            let mut end = [0];
            // The other side is closed, or says that it is to end.
            let read = there.read(&mut end).expect("read");
            if read == 1 {
                running.stop().expect("a clean end");
            }
        });
        here.set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a limit");
        here.read_exact(&mut [0]).expect("a pool that is served");
        self.server = Some((server, here));
    }

    /// Ends the controller cleanly.
    pub fn stop(&mut self) {
        if let Some((server, mut line)) = self.server.take() {
            line.write_all(b"x").expect("a server");
            server.ended("the controller");
        }
    }

    /// Whether the controller has ended by itself; then it is gone.
    pub fn has_died(&mut self) -> bool {
        let died = self
            .server
            .as_ref()
            .is_none_or(|(server, _)| server.has_ended());
        if died {
            self.server = None;
        }
        died
    }

    /// Kills the controller.
    pub fn crash(&mut self) {
        if let Some((server, _)) = self.server.take() {
            server.kill();
        }
    }

    /// Runs `what` as a user, with a session of his own.
    pub fn as_user(&self, user: User, what: impl FnOnce(&Session)) {
        let pool = self.pool();
        Child::start(user, || Session::run(&pool, what)).ended(&format!("user {}", user.0));
    }

    /// A user whose session lasts while this process does something else; it is his turn first.
    pub fn beside(&self, user: User, what: impl FnOnce(&Session, &mut Turns)) -> (Child, Turns) {
        let pool = self.pool();
        let (here, there) = UnixStream::pair().expect("a pair of sockets");
        let mut turns = Turns(there);
        let child = Child::start(user, || {
            close(&here);
            let session = Session(connect(&pool));
            what(&session, &mut turns);
        });
        (child, Turns(here))
    }

    /// Two users at the same time, each with a session that lasts; they take turns.
    pub fn together(
        &self,
        one: User,
        first: impl FnOnce(&Session, &mut Turns),
        two: User,
        second: impl FnOnce(&Session, &mut Turns),
    ) {
        let pool = self.pool();
        let (here, there) = UnixStream::pair().expect("a pair of sockets");
        let mut first_turns = Turns(here.try_clone().expect("a descriptor"));
        let mut second_turns = Turns(there.try_clone().expect("a descriptor"));
        let first = Child::start(one, || {
            // Else its own end would keep it from seeing that the other has gone.
            close(&there);
            close(&second_turns.0);
            Session::run(&pool, |session| first(session, &mut first_turns));
        });
        let second = Child::start(two, || {
            close(&here);
            close(&first_turns.0);
            Session::run(&pool, |session| {
                second_turns.wait();
                second(session, &mut second_turns);
            });
        });
        drop((here, there, first_turns, second_turns));
        let names = [one.0, two.0];
        let status = [first.wait(), second.wait()];
        assert_eq!(status, [0, 0], "users {names:?} failed; see above");
    }

    /// What the verifier refused.
    pub fn violations(&self) -> String {
        honest::refused(&self.pool())
    }
}

/// Closes a descriptor in a child, which ends without destructors.
pub fn close(socket: &UnixStream) {
    // SAFETY: this process does not use it again, and does not close it at its end.
    unsafe { libc::close(socket.as_raw_fd()) };
}

impl Drop for World {
    fn drop(&mut self) {
        // What users have stored by now is folded, or refused; unless it does not matter any more.
        match std::thread::panicking() {
            true => self.crash(),
            false => self.stop(),
        }
        honest::assert_nothing_refused(&self.pool());
    }
}

/// Whose turn it is: the first of two begins.
pub struct Turns(UnixStream);

impl Turns {
    /// Lets the other go on, and waits until he has done the same, or has ended.
    pub fn next(&mut self) {
        self.pass();
        self.wait();
    }
    pub fn pass(&mut self) {
        let _ = self.0.write_all(b"!");
    }
    pub fn wait(&mut self) {
        let _ = self.0.read(&mut [0]);
    }
}

/// A user's session.
pub struct Session(pub FileSystem);

impl Session {
    pub fn run(pool: &Path, what: impl FnOnce(&Session)) {
        let session = Session(connect(pool));
        what(&session);
        session.0.disconnect().expect("an orderly end");
    }

    pub fn mkdir(&self, path: &str, mode: u32) {
        let made = self.0.make_directory(At::Root, path.as_bytes(), mode);
        made.unwrap_or_else(|error| panic!("mkdir {path}: {error:?}"));
        self.chmod(path, mode);
    }
    pub fn put(&self, path: &str, content: &[u8], mode: u32) {
        let put = self.0.put(path, content);
        put.unwrap_or_else(|error| panic!("writing {path}: {error:?}"));
        self.chmod(path, mode);
    }
    pub fn chmod(&self, path: &str, mode: u32) {
        self.try_chmod(path, mode)
            .unwrap_or_else(|errno| panic!("chmod {path}: {errno}"));
    }
    pub fn try_chmod(&self, path: &str, mode: u32) -> Result<(), Errno> {
        plain(self.0.change_mode(At::Root, path.as_bytes(), mode, 0))
    }
    pub fn try_chown(&self, path: &str, uid: u32, gid: u32) -> Result<(), Errno> {
        plain(self.0.change_owner(At::Root, path.as_bytes(), uid, gid, 0))
    }
    pub fn try_put(&self, path: &str, content: &[u8]) -> Result<(), Errno> {
        plain(self.0.put(path, content))
    }
    /// Overwrites the beginning of a file that is there.
    pub fn try_write(&self, path: &str, content: &[u8]) -> Result<(), Errno> {
        let handle = plain(self.0.open_at_root(path, libc::O_WRONLY))?;
        let written = self.0.write(handle, content, Some(0));
        self.0.close(handle);
        written.map(|_| ())
    }
    pub fn get(&self, path: &str) -> Result<Vec<u8>, Errno> {
        plain(self.0.get(path))
    }
    pub fn names(&self, path: &str) -> Result<Vec<String>, Errno> {
        plain(self.0.names(path))
    }
    pub fn stat(&self, path: &str) -> Result<arckfs::Attributes, Errno> {
        plain(self.0.stat(At::Root, path.as_bytes(), 0))
    }
    pub fn unlink(&self, path: &str) -> Result<(), Errno> {
        plain(self.0.unlink(At::Root, path.as_bytes(), 0))
    }
    pub fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        plain(self.0.rename(At::Root, from, At::Root, to, 0))
    }
    pub fn link(&self, from: &str, to: &str) -> Result<(), Errno> {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        plain(self.0.link(At::Root, from, At::Root, to, 0))
    }
    pub fn fold(&self) {
        self.0.fold(false).expect("a fold");
    }
}

pub fn plain<T>(result: Result<T, Failure>) -> Result<T, Errno> {
    result.map_err(|failure| match failure {
        Failure::Errno(errno) => errno,
        Failure::Outside(_) => Errno::XDEV,
    })
}
