//! A hand: a program under `arck run` that does operations of all kinds, one at a time, and says of each that
//! it begins and that it is done.
//!
//! # Invariant
//! * Every error is one that the manual does not allow here, since an operation is done only if what is
//!   there allows it: the hand says it and ends. Only a hand that was given little (`limited`) ends well
//!   then.

use crate::Random;
use crate::tree::{COMMON, Step, Tree, parent, pattern, place, public, published};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Pause after an operation: who reads what was said is not that fast.
const PAUSE: Duration = Duration::from_micros(300);
/// For so long a lock is tried: who has it may be stopped.
const LOCK_TRIED: Duration = Duration::from_millis(100);

/// The counters in [`COMMON`], and the kinds of locks that guard them.
pub const COUNTERS: [(&str, &[&str]); 2] = [("flock", &["flock"]), ("record", &["posix", "ofd"])];

/// One write, so that a line is whole or not there.
fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    if output
        .write_all(format!("{line}\n").as_bytes())
        .and_then(|()| output.flush())
        .is_err()
    {
        std::process::exit(0);
    }
}

pub struct Hand {
    name: String,
    others: Vec<String>,
    random: Random,
    tree: Tree,
    number: u64,
    seen: BTreeMap<String, u64>,
}

/// `others`: hands at which it looks. `steps`: 0 = for ever.
pub fn hand(name: &str, seed: u64, steps: u64, others: &[&str]) {
    // SAFETY: numbers only.
    unsafe {
        libc::umask(0);
        // Too large a file is an error then.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let own = format!("/arck/{name}");
    if let Err(error) = std::fs::DirBuilder::new().mode(0o700).create(&own)
        && error.kind() != ErrorKind::AlreadyExists
    {
        say(&format!("wrong: {own}: {error}"));
        std::process::exit(1);
    }
    // Of one who was killed.
    let _ = std::fs::remove_file(place(name, &fresh(name)));
    let mut hand = Hand {
        name: name.to_owned(),
        others: others.iter().map(|&name| name.to_owned()).collect(),
        random: Random::new(
            name.bytes()
                .fold(seed, |sum, byte| sum.wrapping_mul(31) + u64::from(byte)),
        ),
        tree: Tree::scan(name),
        number: seed << 32,
        seen: BTreeMap::new(),
    };
    say("ready");
    let mut done = 0;
    while steps == 0 || done < steps {
        let step = hand.choose();
        if !hand.tree.allows(&step) {
            continue;
        }
        say(&format!("begin {}", step.text()));
        match hand.perform(&step) {
            Ok(Some(found)) => say(&format!("done {} {found}", step.text())),
            Ok(None) => say(&format!("done {}", step.text())),
            Err(error) => {
                say(&format!("wrong: {}: {error}", step.text()));
                std::process::exit(1);
            }
        }
        hand.tree.apply(&step);
        done += 1;
        std::thread::sleep(PAUSE);
    }
}

/// What is to be renamed over the public file: its own business, from one start of the hand to the next.
pub fn fresh(name: &str) -> String {
    format!("common/{name}.fresh")
}

fn wrong<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::other(text.into()))
}

/// The result of a system call.
fn checked(result: libc::c_int) -> Result<libc::c_int> {
    if result < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn text(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.to_str().expect("a path")).expect("a path")
}

impl Hand {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn name_of_flat(&mut self) -> String {
        let number = self.below(5);
        match self.below(6) {
            0 | 1 => format!("common/{}.{number}", self.name),
            2 => format!("own/{number}"),
            3 => format!("own/d{}/e/{number}", self.below(2)),
            _ => format!("own/d{}/{number}", self.below(3)),
        }
    }

    fn name_of_directory(&mut self) -> String {
        match self.below(2) {
            0 => format!("own/d{}", self.below(3)),
            _ => format!("own/d{}/e", self.below(3)),
        }
    }

    /// An operation, allowed or not.
    fn choose(&mut self) -> Step {
        self.number += 1;
        let number = self.number;
        let (path, other) = (self.name_of_flat(), self.name_of_flat());
        let mode = [0o600, 0o644, 0o640, 0o755][self.below(4) as usize];
        let (place, length) = (self.below(30_000), self.below(9_000));
        let verb = [
            "create", "create", "nameless", "symlink", "mkdir", "mkdir", "write", "write", "write",
            "append", "append", "truncate", "map", "map", "chmod", "rename", "rename", "rename",
            "swap", "link", "unlink", "unlink", "rmdir", "fsync", "read", "read", "count",
            "publish", "peek", "denied",
        ][self.below(30) as usize];
        let is_of_directory =
            ["mkdir", "rmdir"].contains(&verb) || (verb == "rename" && number.is_multiple_of(4));
        let (path, other) = match is_of_directory {
            true => (self.name_of_directory(), self.name_of_directory()),
            false => (path, other),
        };
        match verb {
            "create" | "chmod" => Step::of(verb, &path, "", [mode, 0, 0]),
            "mkdir" => Step::of(verb, &path, "", [0o700 | mode, 0, 0]),
            "nameless" => Step::of(verb, &path, "", [mode, length, number]),
            "symlink" => Step::of(verb, &path, &format!("target-{number}"), [0; 3]),
            "write" | "map" => Step::of(verb, &path, "", [place, length, number]),
            "append" => Step::of(verb, &path, "", [0, length, number]),
            "truncate" => Step::of(verb, &path, "", [place, 0, 0]),
            "rename" | "swap" | "link" => Step::of(verb, &path, &other, [0; 3]),
            "publish" => Step::of(
                verb,
                &format!("common/{}.public", self.name),
                &fresh(&self.name),
                [number, 0, 0],
            ),
            "count" => Step::of(verb, COUNTERS[number as usize % 2].0, "", [number, 0, 0]),
            "peek" | "denied" if self.others.is_empty() => Step::of("fsync", &path, "", [0; 3]),
            "peek" | "denied" => {
                let which = self.below(self.others.len() as u64) as usize;
                Step::of(verb, &self.others[which].clone(), "", [0; 3])
            }
            _ => Step::of(verb, &path, "", [0; 3]),
        }
    }

    fn perform(&mut self, step: &Step) -> Result<Option<u64>> {
        let [one, two, three] = step.numbers;
        match step.verb.as_str() {
            "count" => return count(&step.path, one),
            "peek" => return self.peek(&step.path).map(|()| None),
            "denied" => return self.is_denied(&step.path).map(|()| None),
            _ => {}
        }
        let path = place(&self.name, &step.path);
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        match step.verb.as_str() {
            "create" => {
                let mut options = OpenOptions::new();
                options
                    .write(true)
                    .create_new(true)
                    .mode(one as u32)
                    .open(&path)?;
            }
            "nameless" => nameless(&path, one as u32, &pattern(three, two as usize))?,
            "symlink" => std::os::unix::fs::symlink(&step.other, &path)?,
            "mkdir" => std::fs::DirBuilder::new().mode(one as u32).create(&path)?,
            "write" => open()?.write_all_at(&pattern(three, two as usize), one)?,
            "append" => {
                let mut file = OpenOptions::new().append(true).open(&path)?;
                let bytes = pattern(three, two as usize);
                if file.write(&bytes)? != bytes.len() {
                    return wrong("a part of it was written");
                }
            }
            "truncate" => open()?.set_len(one)?,
            "map" => map(&open()?, one, &pattern(three, two as usize))?,
            "chmod" => std::fs::set_permissions(&path, Permissions::from_mode(one as u32))?,
            "rename" => std::fs::rename(&path, place(&self.name, &step.other))?,
            "swap" => {
                let (from, to) = (text(&path), text(&place(&self.name, &step.other)));
                let (at, exchange) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
                // SAFETY: two strings that live.
                checked(unsafe { libc::renameat2(at, from.as_ptr(), at, to.as_ptr(), exchange) })?;
            }
            "link" => std::fs::hard_link(&path, place(&self.name, &step.other))?,
            "unlink" => std::fs::remove_file(&path)?,
            "rmdir" => std::fs::remove_dir(&path)?,
            "fsync" => open()?.sync_all()?,
            "read" => self.read(&step.path, &path)?,
            "publish" => {
                let fresh = place(&self.name, &step.other);
                let mut options = OpenOptions::new();
                let mut file = options
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(0o644)
                    .open(&fresh)?;
                file.write_all(&published(one))?;
                std::fs::rename(&fresh, &path)?;
            }
            verb => panic!("{verb}"),
        }
        Ok(None)
    }

    /// What it has made itself is as it made it.
    fn read(&self, name: &str, path: &Path) -> Result<()> {
        let mut one = Tree::default();
        one.nodes
            .insert(name.to_owned(), self.tree.nodes[name].clone());
        let bytes = std::fs::read(path)?;
        let crate::tree::Node::File(number) = self.tree.nodes[name] else {
            return wrong("no file");
        };
        let expected = &self.tree.files[&number];
        let mode = std::fs::metadata(path)?.permissions().mode() & 0o7777;
        if bytes != expected.bytes || mode != expected.mode {
            return wrong(format!(
                "{} bytes, mode {mode:o}, are not what was written",
                bytes.len()
            ));
        }
        let names = std::fs::read_dir(path.parent().expect("a directory"))?;
        let listed = names
            .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path() == path))
            .count();
        let directory = parent(name);
        if listed != 1 {
            return wrong(format!("listed {listed} times in {directory}"));
        }
        Ok(())
    }

    /// What another one shows is whole, and not older than what it showed before.
    fn peek(&mut self, other: &str) -> Result<()> {
        let bytes = match std::fs::read(public(other)) {
            Ok(bytes) => bytes,
            // It has shown nothing yet.
            Err(error) if error.kind() == ErrorKind::NotFound && !self.seen.contains_key(other) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let number = bytes.first_chunk().map(|first| u64::from_le_bytes(*first));
        let Some(number) = number.filter(|&number| bytes == published(number)) else {
            return wrong(format!("{} bytes of {other} are not whole", bytes.len()));
        };
        let before = self.seen.insert(other.to_owned(), number).unwrap_or(0);
        if number < before {
            return wrong(format!("{other} shows {number} after {before}"));
        }
        Ok(())
    }

    /// Another user's directory is closed; root's way is open.
    fn is_denied(&self, other: &str) -> Result<()> {
        // SAFETY: no arguments.
        let is_root = unsafe { libc::geteuid() } == 0;
        let user = |name: &str| name.split('-').next().map(str::to_owned);
        let may = is_root || user(other) == user(&self.name);
        match std::fs::read_dir(format!("/arck/{other}")) {
            Ok(_) if may => Ok(()),
            Ok(_) => wrong(format!("it may look into {other}")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == ErrorKind::PermissionDenied && !may => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn nameless(path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
    let directory = text(path.parent().expect("a directory"));
    let flags = libc::O_TMPFILE | libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: a string that lives.
    let file = checked(unsafe { libc::open(directory.as_ptr(), flags, mode) })?;
    // SAFETY: just opened, and nobody else's.
    let mut file = unsafe { File::from_raw_fd(file) };
    file.write_all(bytes)?;
    let from = text(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())));
    let to = text(path);
    let (at, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: two strings that live.
    checked(unsafe { libc::linkat(at, from.as_ptr(), at, to.as_ptr(), follow) }).map(drop)
}

fn map(file: &File, start: u64, bytes: &[u8]) -> Result<()> {
    let before = start % 4096;
    let length = before as usize + bytes.len();
    let (rights, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let offset = (start - before) as libc::off_t;
    // SAFETY: a new mapping of a file that is that long.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            rights,
            shared,
            file.as_raw_fd(),
            offset,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    // SAFETY: inside of the mapping, which nobody else has; then it is given back.
    unsafe {
        let to = memory.cast::<u8>().add(before as usize);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        checked(libc::msync(memory, length, libc::MS_SYNC))?;
        checked(libc::munmap(memory, length)).map(drop)
    }
}

fn record(kind: libc::c_int) -> libc::flock {
    // SAFETY: numbers, for which zeroes are values.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock
}

/// One more, under a lock: what it is now. Nothing, if somebody else had the lock for long.
fn count(which: &str, number: u64) -> Result<Option<u64>> {
    let path = format!("{COMMON}/counter-{which}");
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let kinds = COUNTERS
        .iter()
        .find(|(name, _)| *name == which)
        .expect("a counter")
        .1;
    let kind = kinds[(number / 2) as usize % kinds.len()];
    let descriptor = file.as_raw_fd();
    let write = record(libc::F_WRLCK);
    // SAFETY: a descriptor that is open, and a structure that lives.
    let try_it = || unsafe {
        match kind {
            "flock" => libc::flock(descriptor, libc::LOCK_EX | libc::LOCK_NB),
            "posix" => libc::fcntl(descriptor, libc::F_SETLK, &write),
            _ => libc::fcntl(descriptor, libc::F_OFD_SETLK, &write),
        }
    };
    let began = Instant::now();
    while let Err(error) = checked(try_it()) {
        let is_taken = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES));
        if !is_taken {
            return Err(error);
        }
        if began.elapsed() > LOCK_TRIED {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 0)?;
    let next = u64::from_le_bytes(word) + 1;
    file.write_all_at(&next.to_le_bytes(), 0)?;
    let free = record(libc::F_UNLCK);
    // SAFETY: as above.
    checked(unsafe {
        match kind {
            "flock" => libc::flock(descriptor, libc::LOCK_UN),
            "posix" => libc::fcntl(descriptor, libc::F_SETLK, &free),
            _ => libc::fcntl(descriptor, libc::F_OFD_SETLK, &free),
        }
    })?;
    Ok(Some(next))
}

/// Looks at what all show, and ends; `change`: becomes other users meanwhile (root can).
pub fn visitor(change: bool) {
    let look = || {
        let mut bytes = 0;
        for entry in std::fs::read_dir(COMMON).expect("the common directory") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|ending| ending == "public")
                && let Ok(mut file) = File::open(&path)
            {
                bytes += file.read_to_end(&mut Vec::new()).expect("its contents");
            }
        }
        assert!(
            std::fs::metadata("/arck/not-there").is_err(),
            "{bytes} bytes"
        );
    };
    look();
    if change {
        // SAFETY: numbers, and a list that lives, in a process with one thread.
        unsafe {
            checked(libc::setegid(2000)).expect("setegid");
            look();
            checked(libc::setegid(0)).expect("setegid");
            let groups = [2000, 2001];
            checked(libc::setgroups(2, groups.as_ptr())).expect("setgroups");
            look();
            let child = checked(libc::fork()).expect("fork");
            if child == 0 {
                // One that never uses the pool, or that does so as somebody else.
                if libc::getpid() % 2 == 0 {
                    checked(libc::setresuid(1001, 1001, 1001)).expect("setresuid");
                    look();
                }
                std::process::exit(0);
            }
            let mut status = 0;
            checked(libc::waitpid(child, &raw mut status, 0)).expect("waitpid");
            assert_eq!(status, 0);
            look();
            checked(libc::setresgid(1002, 1002, 1002)).expect("setresgid");
            checked(libc::setresuid(1002, 1002, 1002)).expect("setresuid");
        }
        look();
    }
}
