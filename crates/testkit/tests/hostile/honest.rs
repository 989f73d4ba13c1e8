//! Everybody but the attackers: the controller, who builds the world, the victim, and a third
//! session that comes when the attack is over.
//!
//! # Invariants
//! * The victim never believes what it has not compared with its own record of it.
//! * Each of its calls is timed.

use super::attacker::errno_name;
use super::process::{become_user, tell, told};
use super::world::{COMMON, OPEN, SECRET, VICTIM};
use arck_controller::{Controller, MkfsOptions, Options, mkfs};
use arck_testkit::{Shorthand, connect};
use arckfs::{At, Errno, Failure, FileSystem, Subject};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

/// Makes a pool if there is none, and serves it until it is told to stop.
pub fn controller(pool: &Path, size: &str) {
    become_user();
    // For the harness, which shows it when something goes wrong.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(tracing_subscriber::filter::LevelFilter::INFO)
        .init();
    if !pool.exists() {
        let options = MkfsOptions {
            size: size.parse().expect("a size"),
            mode: 0o755,
            force: false,
        };
        mkfs(pool, &options, &mut |_, _| {}).expect("mkfs");
    }
    let options = Options {
        shared: true,
        ..Options::default()
    };
    let running = Controller::open(pool, options)
        .and_then(Controller::spawn)
        .expect("a controller");
    // Sessions of other users come as far as the socket, and no farther.
    for (path, mode) in [(pool, 0o711), (&pool.join("socket"), 0o666)] {
        let metadata = std::fs::metadata(path).expect("a pool");
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{path:?}");
    }
    tell("serving");
    let _ = told();
    assert!(!running.is_finished(), "the controller ended by itself");
    running.stop().expect("a clean end");
}

/// Builds the world, as root where there are users.
pub fn builder(pool: &Path) {
    let fs = connect(pool);
    super::world::build(&fs);
    fs.disconnect().expect("a clean end");
    tell("built");
}

/// A session that was not there before: everything that is to be seen is well, and it can work.
pub fn third(pool: &Path) {
    become_user();
    let fs = connect(pool);
    let seen = walk(&fs, "", 0);
    let name = format!("{COMMON}/third");
    let content = contents(5, 200_000);
    fs.put(&name, &content).expect("a new file");
    assert!(fs.get(&name).expect("its contents") == content);
    // Whoever could write what it was given would have by then.
    std::thread::sleep(Duration::from_millis(20));
    assert!(fs.get(&name).expect("its contents") == content);
    let other = format!("{COMMON}/third-again");
    fs.rename(At::Root, name.as_bytes(), At::Root, other.as_bytes(), 0)
        .expect("a new name");
    fs.unlink(At::Root, other.as_bytes(), 0).expect("no name");
    let open = format!("{OPEN}/third");
    fs.put(&open, b"third").expect("a new file");
    fs.unlink(At::Root, open.as_bytes(), 0).expect("no name");
    fs.disconnect().expect("a clean end");
    super::values::look(pool);
    super::logs::look(pool);
    tell(&format!("well, {seen} names"));
}

/// A session that reads one file, and says what it found: an error, or its first byte.
pub fn reader(pool: &Path, path: &str) {
    become_user();
    match connect(pool).get(path) {
        Ok(content) => tell(&format!("{:?}", content.first())),
        Err(Failure::Errno(errno)) => tell(&errno_name(errno.raw_os_error())),
        Err(failure) => panic!("{path}: {failure:?}"),
    }
}

/// A session that writes to one file.
pub fn writer(pool: &Path, path: &str) {
    become_user();
    let fs = connect(pool);
    let write = || {
        let handle = fs.open_at_root(path, libc::O_WRONLY)?;
        let written = fs.write(handle, b"writer", Some(0));
        fs.close(handle);
        Ok(written?)
    };
    match write() {
        Ok(_) => tell("written"),
        Err(Failure::Errno(errno)) => tell(&errno_name(errno.raw_os_error())),
        Err(failure) => panic!("{path}: {failure:?}"),
    }
}

/// A session that lets nobody else at a file of its own.
pub fn closer(pool: &Path, path: &str) {
    become_user();
    let fs = connect(pool);
    match fs.change_mode(At::Root, path.as_bytes(), 0o600, 0) {
        Ok(()) => {
            // Before anybody is told of it, it is so.
            fs.fold(true).expect("folded");
            tell("closed");
        }
        Err(Failure::Errno(errno)) => tell(&errno_name(errno.raw_os_error())),
        Err(failure) => panic!("{path}: {failure:?}"),
    }
}

/// Looks at everything below a directory, contents included; gives the number of names.
fn walk(fs: &FileSystem, directory: &str, depth: u32) -> usize {
    assert!(depth < 1000, "{directory} has no end");
    let names = match fs.names(directory) {
        Ok(names) => names,
        // What nobody may see, and what is gone by now.
        Err(Failure::Errno(Errno::ACCESS | Errno::NOENT)) => return 0,
        Err(failure) => panic!("{directory}: {failure:?}"),
    };
    let mut seen = 0;
    for name in names {
        assert!(
            !name.is_empty() && name.len() <= 255 && !name.contains(['/', '\0']),
            "a name in {directory}: {name:?}"
        );
        let path = match directory {
            "" => name,
            _ => format!("{directory}/{name}"),
        };
        seen += 1;
        let attributes = match fs.stat(At::Root, path.as_bytes(), libc::AT_SYMLINK_NOFOLLOW) {
            Ok(attributes) => attributes,
            Err(Failure::Errno(Errno::NOENT)) => continue,
            Err(failure) => panic!("{path}: {failure:?}"),
        };
        let mut buffer = vec![0; 1 << 16];
        let subject = Subject::Path(At::Root, path.as_bytes(), libc::AT_SYMLINK_NOFOLLOW);
        // Whatever they say: a length is what matters.
        if let Ok(length) = fs.list_extended(subject, &mut buffer) {
            assert!(length <= buffer.len());
        }
        match attributes.mode & libc::S_IFMT {
            libc::S_IFLNK => {
                if let Ok(length) = fs.read_link(At::Root, path.as_bytes(), &mut buffer) {
                    assert!(length <= 4095, "a target of {length} bytes");
                }
                // Where it leads to is nobody's promise.
                let _ = fs.stat(At::Root, path.as_bytes(), 0);
            }
            // Which grows while it is read; `logs::look` reads it.
            libc::S_IFDIR if path == super::logs::own() => {}
            libc::S_IFDIR => seen += walk(fs, &path, depth + 1),
            libc::S_IFREG if attributes.size < 16 << 20 => match fs.get(&path) {
                // The attacker may have taken the memory from under its own files.
                Ok(_) | Err(Failure::Errno(Errno::ACCESS | Errno::NOENT | Errno::IO)) => {}
                Err(failure) => panic!("{path}: {failure:?}"),
            },
            _ => {}
        }
    }
    seen
}

/// A session that works all the time, and knows what it has written.
struct Victim {
    fs: FileSystem,
    files: BTreeMap<String, Vec<u8>>,
    round: usize,
    times: Times,
}

/// How long calls took.
#[derive(Default)]
pub struct Times {
    longest: Duration,
}

impl Times {
    /// Makes a call.
    pub fn of<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let answer = call();
        self.longest = self.longest.max(started.elapsed());
        answer
    }

    /// The last that is said: rounds, and the longest call.
    pub fn tell(&self, rounds: usize) {
        tell(&format!("{rounds} {}", self.longest.as_millis()));
    }
}

/// Contents that tell file and version from all others.
fn contents(version: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 31 + at / 251 + version * 7) as u8)
        .collect()
}

const SLOTS: usize = 4;

impl Victim {
    fn timed<T>(&mut self, call: impl FnOnce(&FileSystem) -> Result<T, Failure>) -> T {
        let answer = self.tried(call);
        answer.unwrap_or_else(|failure| panic!("the victim, round {}: {failure:?}", self.round))
    }

    /// Writes a whole file. Where there is no space, false: then there is nothing of it.
    fn put(&mut self, name: &str, content: Vec<u8>) -> bool {
        match self.tried(|fs| fs.put(name, &content)) {
            Ok(()) => {
                self.files.insert(name.to_owned(), content);
                true
            }
            Err(Failure::Errno(Errno::NOSPC)) => {
                self.files.remove(name);
                let removed = self.tried(|fs| fs.unlink(At::Root, name.as_bytes(), 0));
                assert!(
                    matches!(removed, Ok(()) | Err(Failure::Errno(Errno::NOENT))),
                    "{removed:?}"
                );
                false
            }
            Err(failure) => panic!("the victim, round {}: {failure:?}", self.round),
        }
    }

    fn tried<T>(
        &mut self,
        call: impl FnOnce(&FileSystem) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.times.of(|| call(&self.fs))
    }

    fn check(&mut self, name: &str) {
        let got = self.timed(|fs| fs.get(name));
        let wanted = &self.files[name];
        assert!(
            got == *wanted,
            "the victim, round {}: {name} is {} bytes instead of {}, other from {:?} on",
            self.round,
            got.len(),
            wanted.len(),
            got.iter().zip(wanted).position(|(a, b)| a != b)
        );
    }

    /// Reads what nobody else may, and writes it anew.
    fn check_secret(&mut self) {
        for name in ["victim/private", "victim/home/secret"] {
            let content = self.timed(|fs| fs.get(name));
            assert!(content == SECRET, "{name}: {content:?}");
            let written = self.tried(|fs| {
                let handle = fs.open_at_root(name, libc::O_WRONLY)?;
                let written = fs.write(handle, SECRET, Some(0));
                fs.close(handle);
                Ok(written?)
            });
            let is_well = matches!(written, Ok(_) | Err(Failure::Errno(Errno::NOSPC)));
            assert!(is_well, "{name}: {written:?}");
        }
    }

    fn round(&mut self) {
        self.round += 1;
        if self.round.is_multiple_of(4) {
            self.check_secret();
        }
        let slot = self.round % SLOTS;
        let name = format!("{VICTIM}/file-{slot}");
        if self.files.contains_key(&name) {
            self.check(&name);
        }
        let content = contents(self.round, (self.round * 977 + slot * 4099) % 50_000 + 1);
        if !self.put(&name, content) {
            return;
        }
        self.check(&name);

        // A piece in the middle.
        let at = self.files[&name].len() / 2;
        let piece = [self.round as u8; 40];
        let written = self.tried(|fs| {
            let handle = fs.open_at_root(&name, libc::O_RDWR)?;
            let written = fs.write(handle, &piece, Some(at as u64));
            fs.close(handle);
            Ok(written?)
        });
        match written {
            Ok(written) => assert_eq!(written, piece.len()),
            Err(Failure::Errno(Errno::NOSPC)) => return self.check(&name),
            Err(failure) => panic!("the victim, round {}: {failure:?}", self.round),
        }
        let known = self.files.get_mut(&name).expect("just written");
        known.resize(known.len().max(at + piece.len()), 0);
        known[at..at + piece.len()].copy_from_slice(&piece);
        self.check(&name);

        let moved = format!("{VICTIM}/inner/moved-{slot}");
        for (from, to) in [(&name, &moved), (&moved, &name)] {
            self.timed(|fs| fs.rename(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0));
            let content = self.files.remove(from).expect("known");
            self.files.insert(to.clone(), content);
            self.check(to);
        }
        let listed = self.timed(|fs| fs.names(VICTIM));
        let mut wanted: Vec<String> = (0..SLOTS)
            .map(|slot| format!("file-{slot}"))
            .filter(|name| self.files.contains_key(&format!("{VICTIM}/{name}")))
            .collect();
        wanted.extend(["home", "inner", "private"].map(String::from));
        assert_eq!(listed, wanted, "names of the victim, round {}", self.round);

        // Where others write as well.
        let shared = format!("{COMMON}/victim-{slot}");
        let content = contents(self.round + 50, self.round * 499 % 20_000 + 1);
        if self.put(&shared, content) {
            self.check(&shared);
            self.timed(|fs| fs.unlink(At::Root, shared.as_bytes(), 0));
            self.files.remove(&shared);
        }
        let gone = self.tried(|fs| fs.get(&shared));
        assert_eq!(gone, Err(Failure::Errno(Errno::NOENT)));
        // Anybody may write this one, so nothing is known of it: it only has to answer.
        let both = format!("{COMMON}/both");
        let _ = self.tried(|fs| fs.get(&both));
        let _ = self.tried(|fs| {
            let handle = fs.open_at_root(&both, libc::O_WRONLY)?;
            let written = fs.write(handle, b"victim", Some(0));
            fs.close(handle);
            Ok(written?)
        });
    }
}

/// Goes through rounds until it is told to end; says `round` after each line it is told, once it has gone
/// through a whole one since. Ends the process where nobody tells it anything any more.
pub fn serve_rounds(mut round: impl FnMut()) {
    let (sender, orders) = channel();
    std::thread::spawn(move || {
        while let Some(order) = told() {
            if sender.send(order).is_err() {
                return;
            }
        }
    });
    tell("ready");
    loop {
        match orders.try_recv() {
            Ok(order) if order == "end" => return,
            Ok(_) => {
                round();
                tell("round");
            }
            Err(TryRecvError::Empty) => round(),
            Err(TryRecvError::Disconnected) => std::process::exit(0),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The role: works until it is told no more.
pub fn victim(pool: &Path) {
    become_user();
    let mut victim = Victim {
        fs: connect(pool),
        files: BTreeMap::new(),
        round: 0,
        times: Times::default(),
    };
    for _ in 0..SLOTS {
        victim.round();
    }
    serve_rounds(|| victim.round());
    victim.check_secret();
    for name in victim.files.keys().cloned().collect::<Vec<_>>() {
        victim.check(&name);
    }
    let Victim {
        fs, round, times, ..
    } = victim;
    fs.disconnect().expect("a clean end");
    times.tell(round);
}
