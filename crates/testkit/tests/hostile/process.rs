//! The processes of the tests: this program started again in a role of its own, as a user of its
//! own, that says what it does a line at a time.
//!
//! # Invariants
//! * No wait is without a bound, and none of the bounds is near what a slow machine needs.
//! * A process that is still there when its handle is dropped is ended by its id.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Within this time everybody who is not an attacker is answered, whatever attackers do.
pub const BOUND: Duration = Duration::from_secs(20);
/// The same of who comes later, and reads all that there is: thousands of files of the attackers', each of which has a change that
/// is refused for him. The row of that takes 40 seconds for two such looks on a quiet machine (`--test hostile "all slots"`).
pub const LOOK_BOUND: Duration = Duration::from_secs(60);
/// An attack is over after this time.
pub const ATTACK_BOUND: Duration = Duration::from_secs(180);

/// Names the role that a process of this program plays; its arguments are what the role needs.
const ROLE: &str = "ARCK_HOSTILE_ROLE";
const USER: &str = "ARCK_HOSTILE_USER";

/// Who somebody is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct User(pub u32);

/// Whether processes can be given users of their own.
pub fn has_users() -> bool {
    rustix::process::geteuid().is_root()
}

/// What processes said on their standard error, for when something goes wrong.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<String>>);

impl Log {
    /// What was said, by processes that have ended.
    pub fn text(&self) -> String {
        // The last of it may still be on its way. A process that cannot end holds nobody up.
        let started = Instant::now();
        while Arc::strong_count(&self.0) > 1 && started.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.0.lock().expect("nobody panics with it").clone()
    }

    /// Adds what a process says from now on.
    fn follow(&self, output: ChildStderr) {
        let log = self.0.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let mut log = log.lock().expect("nobody panics with it");
                log.push_str(&line);
                log.push('\n');
            }
        });
    }
}

/// A process in a role.
pub struct Role {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Role {
    /// Starts this program in a role; as `user` where that is possible.
    pub fn start(role: &str, user: User, arguments: &[&str]) -> Role {
        Role::start_with(role, user, arguments, None)
    }

    /// The same; what it says on its standard error goes to `log`.
    pub fn start_with(role: &str, user: User, arguments: &[&str], log: Option<&Log>) -> Role {
        let mut command = Command::new("/proc/self/exe");
        command
            .args(arguments)
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if log.is_some() {
            command.stderr(Stdio::piped());
        }
        if has_users() {
            command.env(USER, user.0.to_string());
        }
        let mut child = command.spawn().expect("a process");
        let output = child.stdout.take().expect("its output");
        if let (Some(log), Some(errors)) = (log, child.stderr.take()) {
            log.follow(errors);
        }
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Role {
            name: role.to_owned(),
            input: child.stdin.take(),
            child,
            lines,
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).expect("a signal");
    }

    /// The next line that it says.
    pub fn line(&mut self, bound: Duration) -> String {
        match self.lines.recv_timeout(bound) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{} said nothing for {bound:?}", self.name)
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().expect("its status");
                panic!("{} ended: {status}", self.name)
            }
        }
    }

    /// Says a line to it; whether it still listens will show.
    pub fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    /// Says a line and hears one.
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.line(BOUND)
    }

    /// Lets it end by itself. Panics if it does not, or ends badly.
    pub fn end(mut self) {
        self.input = None;
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("its status") {
                assert!(status.success(), "{} ended: {status}", self.name);
                return;
            }
            assert!(started.elapsed() < BOUND, "{} does not end", self.name);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it at once.
    pub fn kill(mut self) {
        self.kill_now();
    }

    fn kill_now(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.kill_now();
    }
}

/// The role that this process was started in.
pub fn own_role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Becomes the user that this process was told to be; its groups are that user's one.
pub fn become_user() {
    let Some(user) = std::env::var(USER).ok().and_then(|user| user.parse().ok()) else {
        return;
    };
    // SAFETY: calls with integer arguments (and an empty list), in a process with one thread.
    let became = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(user, user, user) == 0
            && libc::setresuid(user, user, user) == 0
            // What lies in /proc stays its own: that is looked at by the attacks.
            && libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
    };
    assert!(
        became,
        "becoming user {user}: {}",
        std::io::Error::last_os_error()
    );
}

/// The next line that this process is told; `None` = no more.
pub fn told() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
    }
}

/// Says a line to who started this process.
pub fn tell(line: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}
