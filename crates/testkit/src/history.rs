//! Operations of several threads, and whether some order of them explains what they told.
//!
//! Each thread draws its operations from seed and thread; names and files are few and everybody's.
//! A run notes when each operation began and ended and what it told. [`explained`] looks for an
//! order of all operations, in which none stands before one that had ended when it began, and in
//! which the model tells the same: linearizability, by a search that remembers what led nowhere
//! (Wing and Gong; Lowe). The same histories, of one thread, on tmpfs hold the model to account.
//!
//! # Invariants
//! * An operation is one call. Data is reached through descriptors opened before.
//! * A thread's operations depend on seed and thread alone, so that leaving some out leaves the
//!   others as they were.
//! * What an operation tells is comparable: no inode numbers, no times.

use crate::Random;
use arckfs::{At, Errno, Failure, FileSystem, Handle};
use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DIRECTORIES: u64 = 2;
/// Names in each directory.
const NAMES: u64 = 3;
/// Files whose data is read and written.
const FILES: u64 = 2;
/// Longer than any file gets.
const LONGEST: usize = 1 << 20;

/// A name: directory and name.
pub type Name = (u8, u8);

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// mkdir: nobody reaches it by a descriptor, and rmdir needs it to be empty, which it is.
    Create(Name),
    Remove(Name),
    Rename(Name, Name),
    /// RENAME_NOREPLACE.
    RenameNew(Name, Name),
    /// A name for the one file that is there from the beginning.
    Link(Name),
    Unlink(Name),
    IsThere(Name),
    /// Links of the file that [`Action::Link`] names.
    Links,
    /// Names of the directory.
    List(u8),
    /// Appends so many bytes of the given value.
    Append(u8, u8, u16),
    /// Overwrites from the start.
    Write(u8, u8, u16),
    Truncate(u8, u16),
    /// All of the file.
    Read(u8),
}

/// What it told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    Done,
    Error(i32),
    /// A number of links, or what a name is: see [`Held`].
    Number(u64),
    /// Runs of equal bytes: value and count.
    Content(Vec<(u8, usize)>),
    Names(Vec<u8>),
}

/// An operation that was done.
#[derive(Clone, Debug)]
pub struct Event {
    pub thread: usize,
    pub action: Action,
    pub told: Told,
    /// Ticks of a clock that all threads share.
    pub begun: u64,
    pub ended: u64,
}

/// The operations of a thread.
pub fn actions(seed: u64, thread: u64, count: usize) -> Vec<Action> {
    let mut random = Random::new(seed.wrapping_mul(0x1_0001).wrapping_add(thread));
    (0..count).map(|_| action(&mut random, thread)).collect()
}

fn action(random: &mut Random, thread: u64) -> Action {
    let name = |random: &mut Random| {
        let directory = random.below(DIRECTORIES) as u8;
        (directory, random.below(NAMES) as u8)
    };
    let file = random.below(FILES) as u8;
    let fill = (thread * 50 + 1 + random.below(49)) as u8;
    // Inside a page, and across some.
    let length = *random.pick(&[1u16, 100, 4096, 5000, 12_000]);
    match random.below(17) {
        6 | 7 => Action::Link(name(random)),
        0 | 1 => Action::Create(name(random)),
        2 | 8 => Action::Remove(name(random)),
        3 | 4 => Action::Rename(name(random), name(random)),
        5 => Action::RenameNew(name(random), name(random)),
        9 => Action::Unlink(name(random)),
        10 | 11 => Action::IsThere(name(random)),
        12 => Action::List(random.below(DIRECTORIES) as u8),
        14 => Action::Write(file, fill, length),
        13 => Action::Append(file, fill, length),
        15 => Action::Truncate(file, length / 2),
        _ => Action::Read(file),
    }
}

fn runs(bytes: &[u8]) -> Vec<(u8, usize)> {
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for &byte in bytes {
        match runs.last_mut() {
            Some((value, count)) if *value == byte => *count += 1,
            _ => runs.push((byte, 1)),
        }
    }
    runs
}

/// Something that operations are done on.
pub trait Subject: Sync {
    fn apply(&self, action: Action) -> Told;
}

/// A directory of a session, with the files open.
pub struct ArckSubject<'s> {
    session: &'s FileSystem,
    base: String,
    files: Vec<[Handle; 2]>,
}

impl<'s> ArckSubject<'s> {
    pub fn new(session: &'s FileSystem, base: &str) -> Self {
        let make = |path: String| {
            let made = session.make_directory(At::Root, path.as_bytes(), 0o755);
            made.expect("mkdir");
        };
        make(base.to_owned());
        (0..DIRECTORIES).for_each(|directory| make(format!("{base}/{directory}")));
        let open = |path: &str, flags| {
            let opened = session.open(At::Root, path.as_bytes(), flags | libc::O_CREAT, 0o644);
            opened.expect("open")
        };
        session.close(open(&format!("{base}/linked"), libc::O_WRONLY));
        let files = (0..FILES).map(|file| {
            let path = format!("{base}/file{file}");
            let append = libc::O_WRONLY | libc::O_APPEND;
            [open(&path, libc::O_RDWR), open(&path, append)]
        });
        ArckSubject {
            session,
            files: files.collect(),
            base: base.to_owned(),
        }
    }

    fn path(&self, (directory, name): Name) -> Vec<u8> {
        format!("{}/{directory}/{name}", self.base).into_bytes()
    }

    fn try_apply(&self, action: Action) -> Result<Told, Failure> {
        let (session, root) = (self.session, At::Root);
        let whole = |written: usize, length: u16| match written == usize::from(length) {
            true => Told::Done,
            false => Told::Number(written as u64),
        };
        let rename =
            |from, to, flags| session.rename(root, &self.path(from), root, &self.path(to), flags);
        match action {
            Action::Create(name) => session.make_directory(root, &self.path(name), 0o755)?,
            Action::Remove(name) => session.unlink(root, &self.path(name), libc::AT_REMOVEDIR)?,
            Action::Unlink(name) => session.unlink(root, &self.path(name), 0)?,
            Action::Rename(from, to) => rename(from, to, 0)?,
            Action::RenameNew(from, to) => rename(from, to, libc::RENAME_NOREPLACE)?,
            Action::Link(name) => {
                let from = format!("{}/linked", self.base);
                session.link(root, from.as_bytes(), root, &self.path(name), 0)?;
            }
            Action::IsThere(name) => {
                let stat = session.stat(root, &self.path(name), 0)?;
                return Ok(Told::Number(u64::from(
                    stat.mode & libc::S_IFMT == libc::S_IFDIR,
                )));
            }
            Action::Links => {
                let path = format!("{}/linked", self.base);
                let stat = session.stat(root, path.as_bytes(), 0)?;
                return Ok(Told::Number(u64::from(stat.links)));
            }
            Action::List(directory) => {
                use crate::Shorthand;
                let names = session.names(&format!("{}/{directory}", self.base))?;
                let names = names.iter().filter_map(|name| name.parse().ok());
                return Ok(Told::Names(names.collect()));
            }
            Action::Append(file, fill, length) => {
                let bytes = vec![fill; usize::from(length)];
                let written = session.write(self.files[usize::from(file)][1], &bytes, None)?;
                return Ok(whole(written, length));
            }
            Action::Write(file, fill, length) => {
                let bytes = vec![fill; usize::from(length)];
                let written = session.write(self.files[usize::from(file)][0], &bytes, Some(0))?;
                return Ok(whole(written, length));
            }
            Action::Truncate(file, size) => {
                session.truncate_handle(self.files[usize::from(file)][0], u64::from(size))?;
            }
            Action::Read(file) => {
                let mut buffer = vec![0; LONGEST];
                let handle = self.files[usize::from(file)][0];
                let read = session.read(handle, &mut buffer, Some(0))?;
                return Ok(Told::Content(runs(&buffer[..read])));
            }
        }
        Ok(Told::Done)
    }
}

impl Subject for ArckSubject<'_> {
    fn apply(&self, action: Action) -> Told {
        match self.try_apply(action) {
            Ok(told) => told,
            Err(Failure::Errno(errno)) => Told::Error(errno.raw_os_error()),
            Err(Failure::Outside(_)) => Told::Error(Errno::XDEV.raw_os_error()),
        }
    }
}

impl Drop for ArckSubject<'_> {
    fn drop(&mut self) {
        for handle in self.files.iter().flatten() {
            self.session.close(*handle);
        }
    }
}

/// A directory of tmpfs.
pub struct HostSubject {
    directory: tempfile::TempDir,
}

impl HostSubject {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
        for number in 0..DIRECTORIES {
            std::fs::create_dir(directory.path().join(number.to_string())).expect("mkdir");
        }
        for file in (0..FILES)
            .map(|file| format!("file{file}"))
            .chain(["linked".into()])
        {
            std::fs::write(directory.path().join(file), b"").expect("create");
        }
        HostSubject { directory }
    }

    fn try_apply(&self, action: Action) -> std::io::Result<Told> {
        let base = self.directory.path();
        let path = |(directory, name): Name| -> PathBuf {
            base.join(directory.to_string()).join(name.to_string())
        };
        let file = |file: u8, append: bool| {
            let mut options = std::fs::File::options();
            options.read(!append).write(!append).append(append);
            options.open(base.join(format!("file{file}")))
        };
        let rename = |from, to, flags| {
            let here = rustix::fs::CWD;
            rustix::fs::renameat_with(here, path(from), here, path(to), flags)
        };
        match action {
            Action::Create(name) => std::fs::create_dir(path(name))?,
            Action::Remove(name) => std::fs::remove_dir(path(name))?,
            Action::Unlink(name) => std::fs::remove_file(path(name))?,
            Action::Rename(from, to) => rename(from, to, rustix::fs::RenameFlags::empty())?,
            Action::RenameNew(from, to) => rename(from, to, rustix::fs::RenameFlags::NOREPLACE)?,
            Action::Link(name) => std::fs::hard_link(base.join("linked"), path(name))?,
            Action::IsThere(name) => {
                let is_directory = std::fs::metadata(path(name))?.is_dir();
                return Ok(Told::Number(u64::from(is_directory)));
            }
            Action::Links => {
                return Ok(Told::Number(
                    std::fs::metadata(base.join("linked"))?.nlink(),
                ));
            }
            Action::List(directory) => {
                let mut names = Vec::new();
                for entry in std::fs::read_dir(base.join(directory.to_string()))? {
                    names.extend(entry?.file_name().to_string_lossy().parse::<u8>());
                }
                names.sort_unstable();
                return Ok(Told::Names(names));
            }
            Action::Append(number, fill, length) => {
                let bytes = vec![fill; usize::from(length)];
                std::io::Write::write_all(&mut file(number, true)?, &bytes)?;
            }
            Action::Write(number, fill, length) => {
                file(number, false)?.write_all_at(&vec![fill; usize::from(length)], 0)?;
            }
            Action::Truncate(number, size) => file(number, false)?.set_len(u64::from(size))?,
            Action::Read(number) => {
                let mut bytes = vec![0; LONGEST];
                let read = file(number, false)?.read_at(&mut bytes, 0)?;
                return Ok(Told::Content(runs(&bytes[..read])));
            }
        }
        Ok(Told::Done)
    }
}

impl Subject for HostSubject {
    fn apply(&self, action: Action) -> Told {
        self.try_apply(action)
            .unwrap_or_else(|error| Told::Error(error.raw_os_error().unwrap_or(0)))
    }
}

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Held {
    Directory,
    Linked,
}

/// What everything is, between operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Model {
    names: BTreeMap<Name, Held>,
    files: [Vec<(u8, usize)>; FILES as usize],
}

/// Cuts or fills up with zeroes.
fn resized(content: &[(u8, usize)], size: usize) -> Vec<(u8, usize)> {
    let mut bytes: Vec<u8> = Vec::with_capacity(size);
    for &(value, count) in content {
        bytes.resize(bytes.len() + count, value);
    }
    bytes.resize(size, 0);
    runs(&bytes)
}

fn length(content: &[(u8, usize)]) -> usize {
    content.iter().map(|run| run.1).sum()
}

fn joined(first: Vec<(u8, usize)>, second: &[(u8, usize)]) -> Vec<(u8, usize)> {
    let mut all = first;
    for &(value, count) in second {
        match all.last_mut() {
            Some(last) if last.0 == value => last.1 += count,
            _ => all.push((value, count)),
        }
    }
    all
}

impl Model {
    fn rename(&mut self, from: Name, to: Name, only_new: bool) -> Told {
        let error = |errno: Errno| Told::Error(errno.raw_os_error());
        let Some(&moved) = self.names.get(&from) else {
            return error(Errno::NOENT);
        };
        match (self.names.get(&to), moved) {
            (Some(_), _) if only_new => return error(Errno::EXIST),
            // Names of one file, or one name: nothing is done.
            (Some(Held::Linked), Held::Linked) => return Told::Done,
            (Some(_), _) if from == to => return Told::Done,
            (Some(Held::Linked), Held::Directory) => return error(Errno::NOTDIR),
            (Some(Held::Directory), Held::Linked) => return error(Errno::ISDIR),
            (Some(Held::Directory), Held::Directory) | (None, _) => {}
        }
        self.names.remove(&from);
        self.names.insert(to, moved);
        Told::Done
    }

    fn apply(&mut self, action: Action) -> Told {
        let error = |errno: Errno| Told::Error(errno.raw_os_error());
        match action {
            Action::Create(name) | Action::Link(name) => {
                if self.names.contains_key(&name) {
                    return error(Errno::EXIST);
                }
                let held = match action {
                    Action::Link(_) => Held::Linked,
                    _ => Held::Directory,
                };
                self.names.insert(name, held);
            }
            Action::Remove(name) => match self.names.get(&name) {
                None => return error(Errno::NOENT),
                Some(Held::Linked) => return error(Errno::NOTDIR),
                Some(Held::Directory) => drop(self.names.remove(&name)),
            },
            Action::Unlink(name) => match self.names.get(&name) {
                None => return error(Errno::NOENT),
                Some(Held::Directory) => return error(Errno::ISDIR),
                Some(Held::Linked) => drop(self.names.remove(&name)),
            },
            Action::Rename(from, to) => return self.rename(from, to, false),
            Action::RenameNew(from, to) => return self.rename(from, to, true),
            Action::IsThere(name) => {
                return match self.names.get(&name) {
                    None => error(Errno::NOENT),
                    Some(held) => Told::Number(u64::from(*held == Held::Directory)),
                };
            }
            Action::Links => {
                let links = self.names.values().filter(|&&held| held == Held::Linked);
                return Told::Number(1 + links.count() as u64);
            }
            Action::List(directory) => {
                let names = self.names.keys().filter(|name| name.0 == directory);
                return Told::Names(names.map(|name| name.1).collect());
            }
            Action::Append(file, fill, count) => {
                let content = &mut self.files[usize::from(file)];
                *content = joined(std::mem::take(content), &[(fill, usize::from(count))]);
            }
            Action::Write(file, fill, count) => {
                let content = &mut self.files[usize::from(file)];
                let mut rest = Vec::new();
                let mut passed = usize::from(count);
                for &(value, run) in content.iter() {
                    let cut = run.min(passed);
                    passed -= cut;
                    if run > cut {
                        rest.push((value, run - cut));
                    }
                }
                *content = joined(vec![(fill, usize::from(count))], &rest);
            }
            Action::Truncate(file, size) => {
                let content = &mut self.files[usize::from(file)];
                if length(content) != usize::from(size) {
                    *content = resized(content, usize::from(size));
                }
            }
            Action::Read(file) => return Told::Content(self.files[usize::from(file)].clone()),
        }
        Told::Done
    }
}

/// Does the operations of all threads at once.
pub fn run(subject: &impl Subject, threads: &[Vec<Action>]) -> Vec<Vec<Event>> {
    let clock = AtomicU64::new(0);
    let barrier = Barrier::new(threads.len());
    std::thread::scope(|scope| {
        let workers: Vec<_> = threads
            .iter()
            .enumerate()
            .map(|(thread, actions)| {
                let (clock, barrier) = (&clock, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let one = |&action: &Action| {
                        let begun = clock.fetch_add(1, Ordering::SeqCst);
                        let told = subject.apply(action);
                        let ended = clock.fetch_add(1, Ordering::SeqCst);
                        Event {
                            thread,
                            action,
                            told,
                            begun,
                            ended,
                        }
                    };
                    actions.iter().map(one).collect()
                })
            })
            .collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| worker.join().expect("a thread");
        workers.into_iter().map(join).collect()
    })
}

/// Whether some order explains the history.
pub fn explained(history: &[Vec<Event>]) -> bool {
    unexplained(history).is_none()
}

/// How many operations of each thread can be explained, at the most, if not all can be.
pub fn unexplained(history: &[Vec<Event>]) -> Option<Vec<usize>> {
    let mut furthest = vec![0; history.len()];
    let mut seen = HashSet::new();
    let mut waiting = vec![(vec![0usize; history.len()], Model::default())];
    while let Some((places, model)) = waiting.pop() {
        let next = || {
            (0..)
                .zip(history)
                .filter_map(|(thread, list)| Some((thread, list.get(*places.get(thread)?)?)))
        };
        // None: everything has been explained.
        let limit = next().map(|(_, event)| event.ended).min()?;
        if places.iter().sum::<usize>() > furthest.iter().sum() {
            furthest.clone_from(&places);
        }
        for (thread, event) in next().filter(|(_, event)| event.begun < limit) {
            let mut after = model.clone();
            if after.apply(event.action) == event.told {
                let mut further = places.clone();
                further[thread] += 1;
                if seen.insert((further.clone(), after.clone())) {
                    waiting.push((further, after));
                }
            }
        }
    }
    Some(furthest)
}

/// Leaves out operations as long as one of `tries` runs of the rest is still not explained.
pub fn shorten(
    mut threads: Vec<Vec<Action>>,
    tries: usize,
    patience: Duration,
    mut fails: impl FnMut(&[Vec<Action>]) -> Option<Vec<Vec<Event>>>,
) -> (Vec<Vec<Action>>, Option<Vec<Vec<Event>>>) {
    let begun = Instant::now();
    let mut last = None;
    let mut piece = threads.iter().map(Vec::len).max().unwrap_or(0).div_ceil(2);
    while piece > 0 {
        for thread in 0..threads.len() {
            let mut at = 0;
            while at < threads[thread].len() {
                if begun.elapsed() > patience {
                    return (threads, last);
                }
                let mut fewer = threads.clone();
                let end = (at + piece).min(fewer[thread].len());
                fewer[thread].drain(at..end);
                match (0..tries).find_map(|_| fails(&fewer)) {
                    Some(history) => {
                        threads = fewer;
                        last = Some(history);
                    }
                    None => at = end,
                }
            }
        }
        piece /= 2;
    }
    (threads, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(thread: usize, action: Action, told: Told, begun: u64, ended: u64) -> Event {
        Event {
            thread,
            action,
            told,
            begun,
            ended,
        }
    }

    /// What overlaps may be ordered either way; what does not, not.
    #[test]
    fn orders_are_found_and_refused() {
        let exists = || Told::Error(libc::EEXIST);
        let make = Action::Create((0, 0));
        let late = |begun| {
            vec![
                vec![event(0, make, exists(), 0, 3)],
                vec![event(1, make, Told::Done, begun, begun + 1)],
            ]
        };
        assert!(explained(&late(1)));
        assert!(!explained(&late(4)), "the second had not begun");
        let both = vec![
            vec![event(0, make, Told::Done, 0, 3)],
            vec![event(1, make, Told::Done, 1, 2)],
        ];
        assert!(!explained(&both), "two winners");
        let torn = vec![
            vec![event(0, Action::Write(0, 7, 100), Told::Done, 0, 3)],
            vec![event(
                1,
                Action::Read(0),
                Told::Content(vec![(7, 50)]),
                1,
                2,
            )],
        ];
        assert!(!explained(&torn), "a part of a write");
    }

    /// The model tells what tmpfs tells.
    #[test]
    fn the_model_is_as_tmpfs() {
        for seed in 0..50 {
            let history = run(&HostSubject::new(), &[actions(seed, 0, 150)]);
            assert!(explained(&history), "seed {seed}: {history:#?}");
        }
    }
}
