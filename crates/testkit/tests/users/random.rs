//! Random trees, modes and users, compared with the kernel: each user does the same on the pool and
//! on a directory of the host, and must be told the same. Now and then each looks through all that
//! he can map, past the library's checks, for contents that the kernel would not let him read.
//!
//! `ARCK_USERS_SEED=N cargo test -p arck-testkit --test users random` tries another sequence,
//! `ARCK_USERS_ROUNDS=N` so many.

use super::world::{ANN, BOB, Child, EVE, ROOT, Session, User, World, plain};
use arck_core_state::PagePtr;
use arck_testkit::{Random, Shorthand};
use arckfs::{At, Errno};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Root first: he notes for the others what there is.
const USERS: [User; 4] = [ROOT, ANN, BOB, EVE];
const MODES: [u32; 14] = [
    0o777, 0o755, 0o700, 0o711, 0o733, 0o750, 0o770, 0o644, 0o600, 0o640, 0o660, 0o444, 0o1777,
    0o2775,
];
const OPERATIONS: u32 = 400;
/// Operations between two looks at everything.
const BETWEEN: u32 = 25;
/// What a file begins with; a number follows.
const TAG: &[u8; 8] = b"arck-tag";

pub fn random_trees() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("ARCK_USERS_SEED").unwrap_or(1);
    for seed in seed..seed + number("ARCK_USERS_ROUNDS").unwrap_or(6) {
        one(seed);
    }
}

fn one(seed: u64) {
    let world = World::new(128 << 20);
    let host = world.pool().with_file_name("host");
    std::fs::create_dir(&host).unwrap();
    std::fs::set_permissions(&host, PermissionsExt::from_mode(0o1777)).unwrap();
    // The pool's root is the server's, as this is.
    std::os::unix::fs::chown(
        &host,
        Some(super::world::SERVER),
        Some(super::world::SERVER),
    )
    .unwrap();
    let mut workers: Vec<Worker> = Vec::new();
    for user in USERS {
        let worker = Worker::start(user, &world.pool(), &host, &workers);
        workers.push(worker);
    }
    let mut random = Random::new(seed);
    let mut done = Vec::new();
    for step in 0..OPERATIONS {
        let who = random.below(USERS.len() as u64) as usize;
        let operation = draw(&mut random, u64::from(step) + 1);
        done.push(format!("{}: {operation}", USERS[who].0));
        check(workers[who].ask(&operation), seed, &done);
        if step % BETWEEN == BETWEEN - 1 {
            for worker in &mut workers {
                check(worker.ask("fold"), seed, &done);
            }
            for worker in &mut workers {
                check(worker.ask("look"), seed, &done);
            }
        }
    }
    for worker in workers {
        worker.line.shutdown(std::net::Shutdown::Both).unwrap();
        worker.child.ended("a user");
    }
    assert_eq!(world.violations(), "", "seed {seed}");
}

fn check(answer: String, seed: u64, done: &[String]) {
    let last = done.len().saturating_sub(60);
    assert_eq!(
        answer,
        "",
        "seed {seed} after\n  {}",
        done[last..].join("\n  ")
    );
}

fn draw(random: &mut Random, tag: u64) -> String {
    let mut path = String::new();
    let depth = random.below(3);
    for _ in 0..depth {
        let _ = write!(path, "/d{}", random.below(3));
    }
    let directory = format!("{path}/d{}", random.below(3));
    let file = format!("{path}/f{}", random.below(3));
    let other = |random: &mut Random, kind: char| {
        let mut path = String::new();
        for _ in 0..random.below(3) {
            let _ = write!(path, "/d{}", random.below(3));
        }
        format!("{path}/{kind}{}", random.below(3))
    };
    let mode = *random.pick(&MODES);
    let any = if random.percent(50) {
        &directory
    } else {
        &file
    };
    let plain = mode & 0o777;
    // Of files, too: writing takes the bits away again.
    let of_any = match *any == file && random.percent(40) {
        true => *random.pick(&[0o4755, 0o6755, 0o2755, 0o2644, 0o6666, 0o2775]),
        false => mode,
    };
    match random.below(20) {
        0..=3 => format!("mkdir {directory} {mode}"),
        4..=6 => format!("create {file} {plain} {tag}"),
        7..=8 => format!("write {file} {tag}"),
        9..=11 => format!("read {file}"),
        12 => format!("list {directory}"),
        13 => format!("stat {any}"),
        14..=15 => format!("chmod {any} {of_any}"),
        16 => {
            let uid = random.pick(&[u32::MAX, 1001, 1002, 1003]);
            let gid = *random.pick(&[u32::MAX, 2000, 1001, 1002]);
            format!("chown {any} {uid} {gid}")
        }
        17 if random.percent(50) => format!("rename {directory} {}", other(random, 'd')),
        17 => format!("rename {file} {}", other(random, 'f')),
        18 => format!("unlink {file}"),
        _ if random.percent(40) => format!("rmdir {directory}"),
        _ => format!("link {file} {}", other(random, 'f')),
    }
}

/// A user's process.
struct Worker {
    child: Child,
    line: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Worker {
    fn start(user: User, pool: &Path, host: &Path, others: &[Worker]) -> Worker {
        let (here, there) = UnixStream::pair().unwrap();
        let child = Child::start(user, || {
            // Else they would not see their ends.
            for other in others {
                super::world::close(&other.line);
                super::world::close(other.answers.get_ref());
            }
            super::world::close(&here);
            // SAFETY: a number.
            unsafe { libc::umask(0) };
            Session::run(pool, |session| {
                let both = Both {
                    session,
                    host: host.to_path_buf(),
                    user: user.0,
                };
                let mut answer = there.try_clone().unwrap();
                for line in BufReader::new(there).lines() {
                    let said = both.answer(&line.unwrap()).replace('\n', " ");
                    writeln!(answer, "{said}").unwrap();
                }
            });
        });
        let answers = BufReader::new(here.try_clone().unwrap());
        Worker {
            child,
            line: here,
            answers,
        }
    }

    fn ask(&mut self, what: &str) -> String {
        writeln!(self.line, "{what}").unwrap();
        let mut answer = String::new();
        let read = self.answers.read_line(&mut answer).unwrap();
        assert_ne!(read, 0, "a user's process ended");
        answer.trim_end().to_owned()
    }
}

/// A user on the pool and on the host.
struct Both<'s> {
    session: &'s Session,
    host: PathBuf,
    user: u32,
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap()
}

fn content(tag: &str, user: u32) -> Vec<u8> {
    let mut bytes = TAG.to_vec();
    bytes.extend(tag.parse::<u32>().unwrap().to_le_bytes());
    bytes.extend(user.to_le_bytes());
    bytes.resize(5000 + 100 * tag.len(), b'.');
    bytes
}

impl Both<'_> {
    /// Nothing, or what differs.
    fn answer(&self, operation: &str) -> String {
        let words: Vec<&str> = operation.split(' ').collect();
        let (pool, host) = match words[0] {
            "fold" => {
                self.session.fold();
                return String::new();
            }
            "look" => return self.look(),
            _ => (self.on_pool(&words), self.on_host(&words)),
        };
        // Which of two reasons for a refusal is told is not compared.
        let refused = |errno| match errno {
            Errno::PERM => Errno::ACCESS,
            other => other,
        };
        if pool.as_ref().map_err(|&e| refused(e)) == host.as_ref().map_err(|&e| refused(e)) {
            String::new()
        } else {
            format!("{operation}: the pool says {pool:?}, the host {host:?}")
        }
    }

    fn on_pool(&self, words: &[&str]) -> Result<String, Errno> {
        let fs = &self.session.0;
        let path = words[1];
        let bytes = path.as_bytes();
        let number = |at: usize| words[at].parse::<u32>().unwrap();
        match words[0] {
            "mkdir" => {
                plain(fs.make_directory(At::Root, bytes, number(2)))?;
            }
            "create" => {
                let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
                let handle = plain(fs.open(At::Root, bytes, flags, number(2)))?;
                let written = fs.write(handle, &content(words[3], self.user), None);
                fs.close(handle);
                written?;
            }
            // Who may write and not read is told EACCES for parts of pages (docs/differences.md).
            "write" => {
                let handle = plain(fs.open_at_root(path, libc::O_RDWR))?;
                let written = fs.write(handle, &content(words[2], self.user), Some(0));
                fs.close(handle);
                written?;
            }
            "read" => {
                let read = self.session.get(path)?;
                return Ok(format!("{} {:?}", read.len(), read.get(..16)));
            }
            "list" => return Ok(plain(fs.names(path))?.join(" ")),
            "stat" => {
                let stat = self.session.stat(path)?;
                return Ok(format!("{:o} {} {}", stat.mode, stat.uid, stat.gid));
            }
            "chmod" => self.session.try_chmod(path, number(2))?,
            "chown" => self.session.try_chown(path, number(2), number(3))?,
            "rename" => self.session.rename(path, words[2])?,
            "unlink" => self.session.unlink(path)?,
            "rmdir" => plain(fs.unlink(At::Root, bytes, libc::AT_REMOVEDIR))?,
            "link" => {
                // As fs.protected_hardlinks has it.
                if self.user != 0 && self.session.stat(path)?.uid != self.user {
                    return Err(Errno::PERM);
                }
                self.session.link(path, words[2])?;
            }
            other => panic!("{other}"),
        }
        Ok(String::new())
    }

    fn on_host(&self, words: &[&str]) -> Result<String, Errno> {
        let at = |path: &str| self.host.join(&path[1..]);
        let path = at(words[1]);
        let number = |at: usize| words[at].parse::<u32>().unwrap();
        let mut options = std::fs::OpenOptions::new();
        options.write(true);
        match words[0] {
            "mkdir" => {
                let mode = rustix::fs::Mode::from_raw_mode(number(2));
                rustix::fs::mkdir(&path, mode)?;
            }
            "create" => {
                let mut file = options
                    .create_new(true)
                    .mode(number(2))
                    .open(path)
                    .map_err(errno)?;
                file.write_all(&content(words[3], self.user))
                    .map_err(errno)?;
            }
            "write" => {
                let mut file = options.read(true).open(path).map_err(errno)?;
                file.write_all(&content(words[2], self.user))
                    .map_err(errno)?;
            }
            "read" => {
                let read = std::fs::read(path).map_err(errno)?;
                return Ok(format!("{} {:?}", read.len(), read.get(..16)));
            }
            "list" => {
                let entries = std::fs::read_dir(path).map_err(errno)?;
                let mut names: Vec<String> = entries
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .collect();
                names.sort();
                return Ok(names.join(" "));
            }
            "stat" => {
                let stat = std::fs::symlink_metadata(path).map_err(errno)?;
                return Ok(format!("{:o} {} {}", stat.mode(), stat.uid(), stat.gid()));
            }
            "chmod" => {
                let mode = PermissionsExt::from_mode(number(2));
                std::fs::set_permissions(path, mode).map_err(errno)?;
            }
            "chown" => {
                let id = |at| Some(number(at)).filter(|&id| id != u32::MAX);
                std::os::unix::fs::chown(path, id(2), id(3)).map_err(errno)?;
            }
            "rename" => rustix::fs::rename(path, at(words[2]))?,
            "unlink" => rustix::fs::unlink(path)?,
            "rmdir" => rustix::fs::rmdir(path)?,
            "link" => {
                let stat = std::fs::symlink_metadata(&path).map_err(errno)?;
                if self.user != 0 && stat.uid() != self.user {
                    return Err(Errno::PERM);
                }
                rustix::fs::link(path, at(words[2]))?;
            }
            other => panic!("{other}"),
        }
        Ok(String::new())
    }

    /// Contents that this user can map, of files that he neither wrote nor may read on the host.
    fn look(&self) -> String {
        if self.user == 0 {
            // He may read everything, and notes for the others what there is.
            let mut live = String::new();
            note(&self.host, &mut live);
            std::fs::write(self.host.with_file_name("live"), live).unwrap();
            let everybody = PermissionsExt::from_mode(0o644);
            std::fs::set_permissions(self.host.with_file_name("live"), everybody).unwrap();
            return String::new();
        }
        let live = std::fs::read_to_string(self.host.with_file_name("live")).unwrap_or_default();
        let mut paths_of: std::collections::HashMap<(u32, u32), Vec<&str>> = Default::default();
        for line in live.lines() {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            let key = (words[0].parse().unwrap(), words[1].parse().unwrap());
            paths_of.entry(key).or_default().push(words[2]);
        }
        let session = self.session.0.session();
        let geometry = *session.geometry();
        let mut head = [0u8; 16];
        let mut wrong = String::new();
        for segment in 0..geometry.segment_count {
            let first = u64::from(segment) * geometry.pages_per_segment();
            for number in first..first + geometry.pages_per_segment() {
                if number == 0 {
                    continue;
                }
                let Some(bytes) = session.page_bytes(PagePtr(number)) else {
                    break;
                };
                if bytes.try_copy_to(0, &mut head).is_err() || head[..8] != *TAG {
                    continue;
                }
                let word = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().unwrap());
                let (tag, writer) = (word(8), word(12));
                // What is nowhere any more is what somebody has seen, or nobody's.
                let Some(paths) = paths_of.get(&(tag, writer)) else {
                    continue;
                };
                let may = writer == self.user
                    || paths
                        .iter()
                        .any(|path| std::fs::File::open(self.host.join(path)).is_ok());
                if !may {
                    let _ = write!(
                        wrong,
                        "sees {tag} of {writer} in page {number}: {paths:?}; "
                    );
                }
            }
        }
        wrong
    }
}

/// Tag, writer and path of every file.
fn note(directory: &Path, live: &mut String) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            note(&path, live);
        } else if let Ok(content) = std::fs::read(&path)
            && content.len() >= 16
        {
            let word = |at: usize| u32::from_le_bytes(*content[at..].first_chunk().unwrap());
            let _ = writeln!(live, "{} {} {}", word(8), word(12), path.display());
        }
    }
}
