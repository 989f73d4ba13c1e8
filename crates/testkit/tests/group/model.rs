//! One who changes files of his own, and knows what there must be: the oracle of the torture.
//!
//! All changes come from a seed, so that another process knows what was done by how much was. Names of
//! several workers stand in the same directories, where they meet at the same locks.

use arck_testkit::{Random, Shorthand};
use arckfs::{At, FileSystem, Handle, MapRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Names that a worker has in each directory.
const NAMES: u64 = 8;
pub const DIRECTORIES: [&str; 2] = ["d", "e"];
const PAGE: usize = 4096;

/// What a name leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    File(u64),
    Directory,
}

/// Names, and the contents of files by number: several names may lead to one.
#[derive(Clone, Default)]
pub struct Model {
    pub names: BTreeMap<String, Content>,
    pub files: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

#[derive(Clone)]
pub enum Change {
    Put(String, Vec<u8>),
    Append(String, Vec<u8>),
    Write(String, usize, Vec<u8>),
    Truncate(String, usize),
    Allocate(String, usize),
    /// Stores a byte at the beginning of each page, through a map.
    Map(String, u8),
    /// A file without a name gets one, if it is free.
    Nameless(String, Vec<u8>),
    Unlink(String),
    Rename(String, String),
    Link(String, String),
    MakeDirectory(String),
    RemoveDirectory(String),
    Read(String),
    List(usize),
    Sync(String),
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Put(name, new) => write!(f, "put {name}: {} bytes", new.len()),
            Change::Append(name, more) => write!(f, "append {} bytes to {name}", more.len()),
            Change::Write(name, at, new) => {
                write!(f, "write {} bytes to {name} at {at}", new.len())
            }
            Change::Truncate(name, size) => write!(f, "truncate {name} to {size}"),
            Change::Allocate(name, size) => write!(f, "allocate {size} bytes of {name}"),
            Change::Map(name, byte) => write!(f, "store {byte} to {name} by a map"),
            Change::Nameless(name, new) => write!(f, "link {} bytes as {name}", new.len()),
            Change::Unlink(name) => write!(f, "unlink {name}"),
            Change::Rename(name, other) => write!(f, "rename {name} to {other}"),
            Change::Link(name, other) => write!(f, "link {name} as {other}"),
            Change::MakeDirectory(name) => write!(f, "mkdir {name}"),
            Change::RemoveDirectory(name) => write!(f, "rmdir {name}"),
            Change::Read(name) => write!(f, "read {name}"),
            Change::List(directory) => write!(f, "list {}", DIRECTORIES[*directory]),
            Change::Sync(name) => write!(f, "sync {name}"),
        }
    }
}

/// A worker: changes from a seed.
pub struct Worker {
    id: u64,
    random: Random,
    pub model: Model,
}

impl Model {
    fn file(&self, name: &str) -> Option<u64> {
        match self.names.get(name) {
            Some(Content::File(file)) => Some(*file),
            _ => None,
        }
    }

    pub fn content(&self, name: &str) -> Option<&Vec<u8>> {
        self.files.get(&self.file(name)?)
    }

    fn content_mut(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        let file = self.file(name)?;
        self.files.get_mut(&file)
    }

    fn add(&mut self, name: &str, content: Vec<u8>) {
        self.next += 1;
        self.files.insert(self.next, content);
        let file = Content::File(self.next);
        self.names.insert(name.to_owned(), file);
    }

    fn is_directory(&self, name: &str) -> bool {
        self.names.get(name) == Some(&Content::Directory)
    }

    /// Whether the change does something, as it must.
    fn allows(&self, change: &Change) -> bool {
        let has = |name: &str| self.names.contains_key(name);
        match change {
            Change::Put(name, _) => !self.is_directory(name),
            Change::Append(name, _)
            | Change::Write(name, ..)
            | Change::Truncate(name, _)
            | Change::Allocate(name, _)
            | Change::Unlink(name)
            | Change::Sync(name)
            | Change::Read(name) => self.file(name).is_some(),
            Change::Map(name, _) => self.content(name).is_some_and(|bytes| !bytes.is_empty()),
            Change::Nameless(name, _) | Change::MakeDirectory(name) => !has(name),
            Change::Rename(name, other) => {
                name != other
                    && has(name)
                    && (!has(other) || self.is_directory(name) == self.is_directory(other))
            }
            Change::Link(name, other) => self.file(name).is_some() && !has(other),
            Change::RemoveDirectory(name) => self.is_directory(name),
            Change::List(_) => true,
        }
    }

    /// What there is after a change that is allowed.
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(name, new) => match self.content_mut(name) {
                Some(content) => content.clone_from(new),
                None => self.add(name, new.clone()),
            },
            Change::Nameless(name, new) => self.add(name, new.clone()),
            Change::Append(name, more) => {
                self.content_mut(name)
                    .expect("a file")
                    .extend_from_slice(more);
            }
            Change::Write(name, at, bytes) => {
                let content = self.content_mut(name).expect("a file");
                let end = content.len().max(at + bytes.len());
                content.resize(end, 0);
                content[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Change::Truncate(name, size) => {
                self.content_mut(name).expect("a file").resize(*size, 0);
            }
            Change::Allocate(name, size) => {
                let content = self.content_mut(name).expect("a file");
                content.resize(content.len().max(*size), 0);
            }
            Change::Map(name, byte) => {
                let content = self.content_mut(name).expect("a file");
                content.iter_mut().step_by(PAGE).for_each(|at| *at = *byte);
            }
            Change::Unlink(name) | Change::RemoveDirectory(name) => {
                self.names.remove(name);
            }
            Change::Rename(name, other) => {
                let same = self.names.get(name) == self.names.get(other);
                // Two names of one file: nothing is done.
                if !same || self.is_directory(name) {
                    let content = self.names.remove(name).expect("a name");
                    self.names.insert(other.clone(), content);
                }
            }
            Change::Link(name, other) => {
                let content = self.names.get(name).cloned().expect("a name");
                self.names.insert(other.clone(), content);
            }
            Change::MakeDirectory(name) => {
                self.names.insert(name.clone(), Content::Directory);
            }
            Change::Read(_) | Change::List(_) | Change::Sync(_) => {}
        }
        let used: BTreeSet<u64> = self
            .names
            .values()
            .filter_map(|content| match content {
                Content::File(file) => Some(*file),
                Content::Directory => None,
            })
            .collect();
        self.files.retain(|file, _| used.contains(file));
    }
}

impl Worker {
    pub fn new(id: u64) -> Worker {
        Worker {
            id,
            random: Random::new(id),
            model: Model::default(),
        }
    }

    /// Whether a name, without its directory, is one of the worker's.
    pub fn has(&self, name: &str) -> bool {
        name.strip_prefix(&self.id.to_string())
            .is_some_and(|rest| rest.starts_with('-'))
    }

    fn name(&mut self) -> String {
        let directory = DIRECTORIES[self.random.below(4) as usize / 3];
        format!("{directory}/{}-{}", self.id, self.random.below(NAMES))
    }

    /// What is done next.
    fn draw(&mut self) -> Change {
        loop {
            let (name, other) = (self.name(), self.name());
            let random = &mut self.random;
            let length = *random.pick(&[10, 100, 3000, 9000, 40_000]);
            let length = 1 + random.below(length) as usize;
            let at = random.below(30_000) as usize;
            let change = match random.below(30) {
                0..=4 => Change::Put(name, random.bytes(length)),
                5 | 6 => Change::Append(name, random.bytes(length)),
                7 | 8 => Change::Write(name, at, random.bytes(length)),
                9 | 10 => Change::Truncate(name, at),
                11 => Change::Allocate(name, at + length),
                12 | 13 => Change::Map(name, at as u8),
                14 | 15 => Change::Nameless(name, random.bytes(length)),
                16..=19 => Change::Unlink(name),
                20..=22 => Change::Rename(name, other),
                23 => Change::Link(name, other),
                24 => Change::MakeDirectory(name),
                25 => Change::RemoveDirectory(name),
                26 | 27 => Change::Read(name),
                28 => Change::List(at % DIRECTORIES.len()),
                _ => Change::Sync(name),
            };
            if self.model.allows(&change) {
                return change;
            }
        }
    }

    /// Does what is next; whatever is told of it must be right.
    pub fn work(&mut self, fs: &FileSystem) {
        let change = self.draw();
        self.make(fs, &change);
        self.model.apply(&change);
    }

    /// As if it had been done; gives what it was.
    pub fn imagine(&mut self) -> Change {
        let change = self.draw();
        self.model.apply(&change);
        change
    }

    fn make(&self, fs: &FileSystem, change: &Change) {
        let say = format!("{}: {change:?}", self.id);
        let root = At::Root;
        let with = |name: &str, flags: i32, what: &dyn Fn(Handle)| {
            let handle = fs.open_at_root(name, flags).expect(&say);
            what(handle);
            fs.close(handle);
        };
        match change {
            Change::Put(name, content) => fs.put(name, content).expect(&say),
            Change::Append(name, more) => {
                with(name, libc::O_WRONLY | libc::O_APPEND, &|handle| {
                    assert_eq!(fs.write(handle, more, None), Ok(more.len()), "{say}");
                });
            }
            Change::Write(name, at, bytes) => with(name, libc::O_WRONLY, &|handle| {
                let written = fs.write(handle, bytes, Some(*at as u64));
                assert_eq!(written, Ok(bytes.len()), "{say}");
            }),
            Change::Truncate(name, size) => {
                fs.truncate(root, name.as_bytes(), *size as u64)
                    .expect(&say);
            }
            Change::Allocate(name, size) => with(name, libc::O_RDWR, &|handle| {
                fs.allocate(handle, 0, 0, *size as u64).expect(&say);
            }),
            Change::Map(name, byte) => with(name, libc::O_RDWR, &|handle| {
                let length = self.model.content(name).map_or(0, Vec::len);
                store(fs, handle, length, *byte, &say);
            }),
            Change::Nameless(name, content) => {
                let directory = name.split('/').next().unwrap_or_default();
                with(directory, libc::O_TMPFILE | libc::O_RDWR, &|handle| {
                    let written = fs.write(handle, content, None);
                    assert_eq!(written, Ok(content.len()), "{say}");
                    let at = At::Directory(handle);
                    fs.link(at, b"", root, name.as_bytes(), libc::AT_EMPTY_PATH)
                        .expect(&say);
                });
            }
            Change::Unlink(name) => fs.unlink(root, name.as_bytes(), 0).expect(&say),
            Change::Rename(name, other) => {
                fs.rename(root, name.as_bytes(), root, other.as_bytes(), 0)
                    .expect(&say);
            }
            Change::Link(name, other) => {
                fs.link(root, name.as_bytes(), root, other.as_bytes(), 0)
                    .expect(&say);
            }
            Change::MakeDirectory(name) => {
                fs.make_directory(root, name.as_bytes(), 0o700).expect(&say);
            }
            Change::RemoveDirectory(name) => {
                fs.unlink(root, name.as_bytes(), libc::AT_REMOVEDIR)
                    .expect(&say);
            }
            Change::Read(name) => {
                let content = fs.get(name).expect(&say);
                assert!(Some(&content) == self.model.content(name), "{say}");
            }
            Change::List(directory) => self.list(fs, DIRECTORIES[*directory]),
            Change::Sync(name) => with(name, libc::O_RDONLY, &|handle| {
                fs.sync(handle).expect(&say);
            }),
        }
    }

    /// That a listing has the worker's names, each once.
    fn list(&self, fs: &FileSystem, directory: &str) {
        let names = fs.names(directory).expect("a listing");
        let own: Vec<String> = names
            .into_iter()
            .filter(|name| self.has(name))
            .map(|name| format!("{directory}/{name}"))
            .collect();
        let prefix = format!("{directory}/");
        let known = self.model.names.keys();
        let known: Vec<&String> = known.filter(|name| name.starts_with(&prefix)).collect();
        assert!(
            own.iter().eq(known.iter().copied()),
            "{own:?}, but {known:?}"
        );
    }
}

/// Stores a byte at the beginning of each page of a file.
fn store(fs: &FileSystem, handle: Handle, length: usize, byte: u8, say: &str) {
    let request = MapRequest {
        address: 0,
        length,
        protection: libc::PROT_READ | libc::PROT_WRITE,
        flags: libc::MAP_SHARED,
        offset: 0,
    };
    // SAFETY: where the kernel likes; nobody else knows of the map.
    unsafe {
        let address = fs.map(handle, &request).expect(say);
        for at in (0..length).step_by(PAGE) {
            ((address + at) as *mut u8).write_volatile(byte);
        }
        fs.unmap(address, length).expect(say);
    }
}

/// What a session sees of a worker's files.
pub fn seen(fs: &FileSystem, worker: &Worker) -> Model {
    let mut seen = Model::default();
    for directory in DIRECTORIES {
        for name in fs.names(directory).expect("a listing") {
            if !worker.has(&name) {
                continue;
            }
            let name = format!("{directory}/{name}");
            let status = fs.stat(At::Root, name.as_bytes(), libc::AT_SYMLINK_NOFOLLOW);
            let status = status.expect("what is listed");
            if status.mode & libc::S_IFMT == libc::S_IFDIR {
                seen.names.insert(name, Content::Directory);
                continue;
            }
            let content = fs.get(&name).expect("what is listed");
            seen.files.insert(status.inode, content);
            seen.names.insert(name, Content::File(status.inode));
        }
    }
    seen
}

/// That what is seen is what a model says.
pub fn expect_same(seen: &Model, model: &Model, what: &str) {
    let names = |of: &Model| of.names.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(seen), names(model), "{what}");
    for name in model.names.keys() {
        assert!(is_same(seen, model, name), "{what}: {name}");
    }
}

fn is_same(one: &Model, other: &Model, name: &str) -> bool {
    one.is_directory(name) == other.is_directory(name) && one.content(name) == other.content(name)
}

/// That what a worker has left is what it had done, with or without the change at which it died: of a
/// change of data perhaps a part, else all or nothing.
pub fn expect_left(seen: &Model, done: &Model, change: &Change, what: &str) {
    let mut next = done.clone();
    next.apply(change);
    let is = |wanted: &Model| {
        seen.names.keys().eq(wanted.names.keys())
            && wanted.names.keys().all(|name| is_same(seen, wanted, name))
    };
    if is(done) || is(&next) {
        return;
    }
    let what = format!("{what}, then {change:?}");
    let changed = match change {
        Change::Put(name, _)
        | Change::Append(name, _)
        | Change::Write(name, ..)
        | Change::Truncate(name, _)
        | Change::Allocate(name, _)
        | Change::Map(name, _) => name,
        _ => {
            expect_same(seen, done, &what);
            return;
        }
    };
    // A new file may be there, and empty.
    let wanted = match seen.names.contains_key(changed) {
        true => &next,
        false => done,
    };
    let names = |of: &Model| of.names.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(seen), names(wanted), "{what}");
    let of_changed = next.names.get(changed);
    for name in wanted.names.keys() {
        if next.names.get(name) != of_changed {
            assert!(is_same(seen, done, name), "{what}: {name}");
            continue;
        }
        let (before, after) = (done.content(name), next.content(name).expect("a file"));
        let before = before.map_or(&[][..], Vec::as_slice);
        let found = seen.content(name).expect("a file");
        assert!(
            found.len() <= before.len().max(after.len()),
            "{what}: {name}"
        );
        for (at, byte) in found.iter().enumerate() {
            let possible = [before.get(at), after.get(at), Some(&0)];
            assert!(possible.contains(&Some(byte)), "{what}: {name}, byte {at}");
        }
    }
}
