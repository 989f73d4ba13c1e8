//! The other session: a process that does one thing for each line it is sent, and says what came of
//! it.
//!
//! # Invariant
//! * No answer is waited for without a bound, and a process whose handle is dropped is ended, by its
//!   id.

use arck_libfs_kit::engine::{Alone, Engine, Way};
use arck_testkit::locks::{Kind, Owner, lock_all};
use arck_testkit::{Shorthand, connect};
use arckfs::{At, Errno, Failure, FileSystem, Handle};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Whatever is asked is answered by then, however slow the machine is.
pub const BOUND: Duration = Duration::from_secs(120);
const POOL: &str = "ARCK_HAND_OVER_POOL";

/// The pool, if this process is the other session.
pub fn pool() -> Option<PathBuf> {
    std::env::var_os(POOL).map(PathBuf::from)
}

/// The other session as a test sees it.
pub struct Other {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Other {
    pub fn start(pool: &Path) -> Other {
        let mut child = Command::new("/proc/self/exe")
            .env(POOL, pool)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let orders = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Other {
            child,
            orders,
            answers,
        }
    }

    pub fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the other session is there");
    }

    pub fn hear(&mut self) -> String {
        let answer = self.answers.recv_timeout(BOUND);
        answer.expect("the other session answers")
    }

    /// What it has said meanwhile.
    pub fn overhears(&mut self) -> Option<String> {
        self.answers.try_recv().ok()
    }

    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.expect("a process");
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('T'))
    }

    /// Whether any of its threads was stopped while it ran, and not in a system call.
    pub fn is_stopped_at_work(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        tasks.expect("its threads").flatten().any(|task| {
            let call = std::fs::read_to_string(task.path().join("syscall"));
            call.is_ok_and(|call| call.starts_with("-1 "))
        })
    }

    pub fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.hear()
    }

    /// Asks for what has to succeed.
    pub fn does(&mut self, order: &str) {
        assert_eq!(self.ask(order), "ok", "{order}");
    }

    pub fn signal(&self, signal: i32) {
        let process = i32::try_from(self.child.id()).expect("a process id");
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(process, signal) }, 0);
        if signal == libc::SIGSTOP {
            // Not before it has stopped: it might do one thing more.
            let mut status = 0;
            // SAFETY: waits for our own child to stop.
            let waited = unsafe { libc::waitpid(process, &raw mut status, libc::WUNTRACED) };
            assert!(waited == process && libc::WIFSTOPPED(status));
        }
    }

    /// Kills it, and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().expect("a kill");
        self.child.wait().expect("its end");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process.
pub fn main(pool: &Path) {
    let fs: &'static FileSystem = Box::leak(Box::new(connect(pool)));
    let mut files = HashMap::new();
    for order in std::io::stdin().lines() {
        let order = order.expect("an order");
        let words: Vec<&str> = order.split(' ').collect();
        let answer = match follow(fs, &mut files, &words) {
            Ok(answer) => answer,
            Err(Failure::Errno(errno)) => format!("errno {}", errno.raw_os_error()),
            Err(other) => format!("{other:?}"),
        };
        if !answer.is_empty() {
            println!("{answer}");
        }
    }
    // Nobody tells it anything any more; what it holds goes with it.
    std::process::exit(0);
}

/// A whole-file lock, by name: `flock`, `posix` or `description`, and `shared`, `exclusive` or `none`.
pub fn lock(file: &OwnedFd, owner: &str, kind: &str) -> Result<(), Errno> {
    let kind = match kind {
        "shared" => Kind::Shared,
        "exclusive" => Kind::Exclusive,
        _ => Kind::Unlock,
    };
    let owner = match owner {
        "flock" => Owner::Flock,
        "posix" => Owner::Process,
        _ => Owner::Description,
    };
    lock_all(file, owner, kind)
}

/// Lock files that this process has open, by name.
static LOCK_FILES: Mutex<BTreeMap<String, OwnedFd>> = Mutex::new(BTreeMap::new());

/// Whether what is held, or a storm, goes on.
static GOES_ON: AtomicBool = AtomicBool::new(false);
static THREAD: Mutex<Option<JoinHandle<Result<(), Failure>>>> = Mutex::new(None);

/// A thread that does this until it is told to end.
fn begin(what: impl FnOnce() -> Result<(), Failure> + Send + 'static) {
    GOES_ON.store(true, Ordering::SeqCst);
    *THREAD.lock().expect("no panic") = Some(std::thread::spawn(what));
}

/// Is in the middle of a change of a directory until it is told to end.
fn hold(fs: &FileSystem, directory: &str) -> Result<(), Failure> {
    let engine = Engine::new(fs.session(), &Alone);
    let mut is_told = false;
    let held: Result<(), Errno> = engine.run(Way::Names, |context| {
        let held = context.directory_at(directory.as_bytes(), None)?;
        context.expect_own(held.inode())?;
        context.begin_change(&held)?;
        if !std::mem::replace(&mut is_told, true) {
            println!("ok");
        }
        while GOES_ON.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok(())
    });
    held.map_err(Failure::Errno)
}

/// Says how far a storm is, after so many steps.
pub const TOLD: u64 = 64;

/// Names in a directory come, are moved and go, until it is told to end ([`super::stopped::step`]).
fn storm(fs: &FileSystem, directory: &str) -> Result<(), Failure> {
    let mut step = 0;
    while GOES_ON.load(Ordering::SeqCst) {
        if let Err(failure) = super::stopped::step(fs, directory, step) {
            // Where a number of steps is expected, and so heard.
            println!("step {step}: {failure:?}");
            return Err(failure);
        }
        step += 1;
        if step.is_multiple_of(TOLD) {
            println!("{step}");
        }
    }
    println!("{step}");
    Ok(())
}

fn follow(
    fs: &'static FileSystem,
    files: &mut HashMap<String, Handle>,
    words: &[&str],
) -> Result<String, Failure> {
    let number = |place: usize| words[place].parse::<u64>().expect("a number");
    let file = || files.get(words[1]).copied().ok_or(Errno::BADF);
    let done = || Ok("ok".to_owned());
    match words[0] {
        // open NAME: to be read and written, made if it is not there.
        "open" => {
            let opened = fs.open_at_root(words[1], libc::O_RDWR | libc::O_CREAT)?;
            files.insert(words[1].to_owned(), opened);
            done()
        }
        "close" => {
            let closed = files.remove(words[1]).ok_or(Errno::BADF)?;
            fs.close(closed);
            done()
        }
        // write NAME PLACE VALUE LENGTH
        "write" => {
            let data = vec![number(3) as u8; number(4) as usize];
            let written = fs.write(file()?, &data, Some(number(2)))?;
            assert_eq!(written, data.len());
            done()
        }
        // read NAME PLACE LENGTH: how many bytes, the first and the last.
        "read" => {
            let mut data = vec![0; number(3) as usize];
            let length = fs.read(file()?, &mut data, Some(number(2)))?;
            let last = length.checked_sub(1).map(|last| data[last]);
            let first = data.first().filter(|_| length > 0);
            Ok(format!(
                "{length} {} {}",
                first.copied().unwrap_or(0),
                last.unwrap_or(0)
            ))
        }
        "cut" => {
            fs.truncate_handle(file()?, number(2))?;
            done()
        }
        // size NAME: bytes and links, of the open file.
        "size" => {
            let status = fs.stat_handle(file()?)?;
            Ok(format!("{} {}", status.size, status.links))
        }
        "put" => {
            fs.put(words[1], words[2].as_bytes())?;
            done()
        }
        "get" => Ok(String::from_utf8_lossy(&fs.get(words[1])?).into_owned()),
        "mkdir" => {
            fs.make_directory(At::Root, words[1].as_bytes(), 0o755)?;
            done()
        }
        "unlink" => {
            fs.unlink(At::Root, words[1].as_bytes(), 0)?;
            done()
        }
        "rename" => {
            let (from, to) = (words[1].as_bytes(), words[2].as_bytes());
            fs.rename(At::Root, from, At::Root, to, 0)?;
            done()
        }
        // lock NAME OWNER KIND
        "lock" => {
            let mut files = LOCK_FILES.lock().expect("nobody panics with it");
            let file = match files.entry(words[1].to_owned()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(fs.lock_file(file()?)?),
            };
            lock(file, words[2], words[3])?;
            done()
        }
        // enter: begins an operation on whatever it owns, and never ends it.
        "enter" => {
            let thread = fs.session().thread()?;
            let _inside = thread.enter();
            println!("ok");
            loop {
                std::hint::spin_loop();
            }
        }
        // hold NAME, storm NAME; end: and what came of it.
        "hold" => {
            let directory = words[1].to_owned();
            begin(move || hold(fs, &directory));
            // It says so itself.
            Ok(String::new())
        }
        "storm" => {
            let directory = words[1].to_owned();
            begin(move || storm(fs, &directory));
            Ok(String::new())
        }
        "end" => {
            GOES_ON.store(false, Ordering::SeqCst);
            let thread = THREAD.lock().expect("no panic").take();
            thread.expect("a thread").join().expect("no panic")?;
            done()
        }
        other => panic!("no such order: {other}"),
    }
}
