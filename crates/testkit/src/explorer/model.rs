//! The operations that are explored, and what each does to a tree.
//!
//! # Invariant
//! The model knows names, kinds, link counts, sizes, contents, modes and extended attributes by
//! itself; only the times that an operation gives are taken from the session that made it. A call
//! that is made in several steps stamps the file at each: of what did not return, times may be
//! those of a step, which the clock told while the call was under way.

use super::spool;
use super::tree::{Content, Node, Tree};
use crate::Shorthand;
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE, index};
use arck_protocol::message::{WRITE_MAX, Written, allocation};
use arck_protocol::{Request, Response};
use arckfs::{At, Failure, FileSystem, Handle, MapRequest, Mediation, SetTime, Subject, Timestamp};
use std::collections::BTreeMap;
use std::ops::Range;
use std::ops::RangeInclusive;

/// What the clock that stamps files told before a call and after it; nanoseconds.
pub type Clock = RangeInclusive<i64>;

/// What a session has open until it links it.
pub type Held = BTreeMap<&'static str, Handle>;

/// A path, with the bytes of its value and what fills them; or taken away.
pub type Value = (&'static str, Option<(usize, u8)>);

/// One call of ArckFS, of KVFS, or of the log, or a fold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Create(&'static str),
    MakeDirectory(&'static str),
    Link(&'static str, &'static str),
    /// Opens a file, which its session has open until it links it.
    Hold(&'static str),
    /// Gives what a session holds another name, whether it has one or not, and closes it: the path that it was
    /// opened by, the new one.
    LinkHeld(&'static str, &'static str),
    /// Target, path.
    Symlink(&'static str, &'static str),
    /// Makes a character device: path, its number.
    Device(&'static str, u32),
    Unlink(&'static str),
    RemoveDirectory(&'static str),
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    /// Path, offset, bytes, what fills them.
    Write(&'static str, u64, usize, u8),
    /// The same, by a message to the controller: one that takes it whole.
    Tell(&'static str, u64, usize, u8),
    /// The same, while the session has a writable map of the file, as others might: by messages, in place.
    WriteMapped(&'static str, u64, usize, u8),
    /// [`Truncate`](Operation::Truncate), in the same way.
    TellSize(&'static str, u64),
    /// The same of [`Allocate`](Operation::Allocate), in one message: path, how, offset, bytes.
    TellAllocate(&'static str, u8, u64, u64),
    /// Has a directory or a file mediated: while nobody owns it, it is changed by messages.
    Mediate(&'static str),
    /// At the end.
    Append(&'static str, usize, u8),
    Truncate(&'static str, u64),
    /// Bytes stored behind the end of a file in its last page, which is the session's and verified, as a
    /// program stores them that has mapped it: path, what fills them.
    Litter(&'static str, u8),
    /// Path, mode of fallocate(2), offset, bytes.
    Allocate(&'static str, i32, u64, u64),
    ChangeMode(&'static str, u32),
    /// Path, seconds of last access and of last change of contents.
    SetTimes(&'static str, i64, i64),
    SetAttribute(&'static str, &'static str, &'static str),
    RemoveAttribute(&'static str, &'static str),
    /// Folds what the session has changed; true: and gives up what it owns.
    Commit(bool),
    /// By KVFS, in one batch: paths of one directory, each with the bytes of its value and what fills them,
    /// or taken away.
    Values(&'static [Value]),
    /// Makes a log: its directory, and so many bytes as its limit.
    MakeLog(&'static str, u64),
    /// Appends records to a log as one: the log's directory, of each its bytes and what fills them.
    Records(&'static str, &'static [(usize, u8)]),
    /// Cuts off all of a log that can be.
    CutLog(&'static str),
    /// Makes the file [`SPOOL`](super::spool::SPOOL) a spool.
    MakeSpool,
    /// Does what is left in the spool, then queues a write there that is not done: path, offset, bytes, what fills them.
    Queue(&'static str, u64, usize, u8),
    /// The same of one that is done, or of an append.
    Queued(&'static str, Option<u64>, usize, u8),
    /// Does what is left in the spool, which is of this path.
    Replay(&'static str),
}

/// How a LibFS gives names of one directory new values, or takes them away.
pub type Sets = fn(&'static [Value]) -> Vec<Operation>;

use Operation as O;

/// What fills `length` bytes of a write: no two pages alike, and no zero.
pub fn filling(length: usize, fill: u8) -> Vec<u8> {
    (0..length)
        .map(|at| (fill.wrapping_mul(31).wrapping_add((at / 8 % 251) as u8)) | 1)
        .collect()
}

/// Number and generation of what a path leads to.
fn identity(session: &FileSystem, path: &str) -> Result<(InodeNumber, u32), Failure> {
    let inode = session.stat(At::Root, path.as_bytes(), 0)?.inode as InodeNumber;
    let header = session.session().header(inode).expect("a header");
    Ok((inode, header.generation()))
}

fn litter(session: &FileSystem, inode: InodeNumber, fill: u8) {
    let kit = session.session();
    let (_, verified) = kit
        .verified(inode)
        .expect("to be readable")
        .expect("a file");
    let page = index::lookup(kit, verified.root, verified.size / PAGE_SIZE).expect("an index");
    assert!(kit.is_own(page), "{page:?} is not the session's");
    let bytes = kit.page_bytes(page).expect("a page");
    let within = (verified.size % PAGE_SIZE) as usize;
    // Not flushed: whether it stays is as with any store to a map.
    let littered = bytes.write(within, &filling(PAGE_SIZE as usize - within, fill));
    assert!(littered.is_some(), "within the page");
}

/// What KVFS makes of it.
fn set_values(session: &FileSystem, changes: &[Value]) -> Result<(), arck_kvfs::Error> {
    let directory = parent(changes[0].0);
    let store = arck_kvfs::Store::within(session.session(), directory)?;
    let key = |path: &'static str| path.rsplit('/').next().expect("a name").as_bytes();
    let values = changes.iter().map(|(path, value)| {
        let value = value.map(|(length, fill)| filling(length, fill));
        (key(path), value)
    });
    let values: Vec<_> = values.collect();
    let mut batch = arck_kvfs::Batch::new();
    for (key, value) in &values {
        match value {
            Some(value) => batch.set(key, value),
            None => batch.delete(key),
        };
    }
    store.apply(&batch).map(|_| ())
}

/// A log on a session that another LibFS has, too.
fn log(session: &FileSystem, directory: &str, limit: u64) -> arck_logfs::Log {
    arck_logfs::Log::within(session.session(), directory, limit).expect("a log")
}

/// What records are together.
fn joined(records: &[(usize, u8)]) -> Vec<u8> {
    let each = records.iter();
    each.flat_map(|&(length, fill)| filling(length, fill))
        .collect()
}

impl Operation {
    /// What has to be opened before, or is: `held`.
    pub fn prepare(&self, session: &FileSystem, held: &mut Held) -> Option<Handle> {
        let (path, flags) = match self {
            O::LinkHeld(path, _) => return held.remove(path),
            O::Write(path, ..) | O::Allocate(path, ..) => (path, libc::O_WRONLY),
            O::WriteMapped(path, ..) => (path, libc::O_RDWR),
            O::Append(path, ..) => (path, libc::O_WRONLY | libc::O_APPEND),
            _ => return None,
        };
        Some(
            session
                .open(At::Root, path.as_bytes(), flags, 0)
                .unwrap_or_else(|failure| panic!("opening for {self:?}: {failure:?}")),
        )
    }

    /// Makes the call. Gives what was created, to be closed.
    pub fn run(
        &self,
        session: &FileSystem,
        handle: Option<Handle>,
    ) -> Result<Option<Handle>, Failure> {
        let at = At::Root;
        let handle = |_: &str| handle.expect("it was prepared");
        match *self {
            O::Create(path) => {
                let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
                return session.open(at, path.as_bytes(), flags, 0o644).map(Some);
            }
            O::Hold(path) => {
                return session
                    .open(at, path.as_bytes(), libc::O_RDONLY, 0)
                    .map(Some);
            }
            O::LinkHeld(path, to) => {
                let held = At::Directory(handle(path));
                session.link(held, b"", at, to.as_bytes(), libc::AT_EMPTY_PATH)?;
            }
            O::MakeDirectory(path) => session.make_directory(at, path.as_bytes(), 0o755)?,
            O::Link(from, to) => session.link(at, from.as_bytes(), at, to.as_bytes(), 0)?,
            O::Symlink(target, path) => session.symlink(target.as_bytes(), at, path.as_bytes())?,
            O::Device(path, number) => {
                session.make_node(at, path.as_bytes(), libc::S_IFCHR | 0o600, number.into())?;
            }
            O::Unlink(path) => session.unlink(at, path.as_bytes(), 0)?,
            O::RemoveDirectory(path) => {
                session.unlink(at, path.as_bytes(), libc::AT_REMOVEDIR)?;
            }
            O::Rename(from, to) => session.rename(at, from.as_bytes(), at, to.as_bytes(), 0)?,
            O::Exchange(from, to) => session.rename(
                at,
                from.as_bytes(),
                at,
                to.as_bytes(),
                libc::RENAME_EXCHANGE,
            )?,
            O::Write(path, offset, length, fill) => {
                let written = session.write(handle(path), &filling(length, fill), Some(offset))?;
                assert_eq!(written, length);
            }
            O::WriteMapped(path, offset, length, fill) => {
                let request = MapRequest {
                    address: 0,
                    length: session.stat_handle(handle(path))?.size.max(1) as usize,
                    protection: libc::PROT_READ | libc::PROT_WRITE,
                    flags: libc::MAP_SHARED,
                    offset: 0,
                };
                // SAFETY: where the kernel likes, and nobody else knows of it.
                let address = unsafe { session.map(handle(path), &request)? };
                let written = session.write(handle(path), &filling(length, fill), Some(offset))?;
                assert_eq!(written, length);
                // SAFETY: mapped above.
                unsafe { session.unmap(address, request.length)? };
            }
            O::Mediate(path) => session.set_mediation(at, path.as_bytes(), Mediation::On)?,
            O::TellSize(path, size) => {
                let (inode, generation) = identity(session, path)?;
                session.session().ask(&Request::Resize {
                    inode,
                    generation,
                    size,
                })?;
            }
            O::TellAllocate(path, how, position, length) => {
                let (inode, generation) = identity(session, path)?;
                let told = session.session().request(&Request::Allocate {
                    inode,
                    generation,
                    position,
                    length,
                    how,
                })?;
                let end = (position + length).to_le_bytes().to_vec();
                assert_eq!(told, Response::Bytes(end), "in one message");
            }
            O::Tell(path, offset, length, fill) => {
                let (inode, generation) = identity(session, path)?;
                let bytes = filling(length, fill);
                let (position, append) = (offset, false);
                let told = match length <= WRITE_MAX {
                    true => session.session().request(&Request::Write {
                        inode,
                        generation,
                        position,
                        append,
                        bytes,
                    }),
                    false => {
                        let request = Request::WriteAttached {
                            inode,
                            generation,
                            position,
                            append,
                            length: length as u32,
                        };
                        session.session().request_with(&request, &bytes)
                    }
                };
                let written = Written {
                    end: offset + length as u64,
                    is_mediated: false,
                };
                assert_eq!(told, Ok(Response::Bytes(written.encode())));
            }
            O::Append(path, length, fill) => {
                let written = session.write(handle(path), &filling(length, fill), None)?;
                assert_eq!(written, length);
            }
            O::Truncate(path, size) => session.truncate(at, path.as_bytes(), size)?,
            O::Litter(path, fill) => litter(session, identity(session, path)?.0, fill),
            O::Allocate(path, mode, offset, length) => {
                session.allocate(handle(path), mode, offset, length)?;
            }
            O::ChangeMode(path, mode) => session.change_mode(at, path.as_bytes(), mode, 0)?,
            O::SetTimes(path, accessed, modified) => {
                let time = |seconds| {
                    SetTime::At(Timestamp {
                        seconds,
                        nanoseconds: 7,
                    })
                };
                session.set_times(at, path.as_bytes(), time(accessed), time(modified), 0)?;
            }
            O::SetAttribute(path, name, value) => session.set_extended(
                Subject::Path(at, path.as_bytes(), 0),
                name.as_bytes(),
                value.as_bytes(),
                0,
            )?,
            O::RemoveAttribute(path, name) => {
                session.remove_extended(Subject::Path(at, path.as_bytes(), 0), name.as_bytes())?
            }
            O::Values(changes) => set_values(session, changes).expect("the values"),
            O::MakeLog(directory, limit) => drop(log(session, directory, limit)),
            O::Records(directory, records) => {
                let bytes = joined(records);
                let log = log(session, directory, 1);
                log.append(&bytes).expect("the records");
            }
            O::CutLog(directory) => {
                let log = log(session, directory, 1);
                log.cut(log.end().expect("the end")).expect("the cut");
            }
            O::MakeSpool => spool::make(session),
            O::Queue(path, position, length, fill) => {
                spool::queue(session, path, position, filling(length, fill));
            }
            O::Queued(path, position, length, fill) => {
                spool::done(session, path, position, filling(length, fill));
            }
            O::Replay(_) => spool::replay(session),
            O::Commit(release) => session
                .session()
                .ask(&arck_protocol::Request::CommitAll { release })?,
        }
        Ok(None)
    }

    /// What a crash may leave half done.
    pub fn torn(&self, before: &Tree, clock: &Clock) -> Option<Torn> {
        if let O::Records(directory, _) = *self {
            // Records are there as a whole or not at all. A section that they are the first of is made before.
            return before.full_section(directory).map(|_| Torn {
                number: before.last + 1,
                start: 0,
                end: 0,
                stamps: Some(clock.clone()),
            });
        }
        let (path, start, length, stamps) = match *self {
            O::Write(path, offset, length, _) | O::WriteMapped(path, offset, length, _) => {
                (path, Some(offset), length as u64, None)
            }
            O::Append(path, length, _) => (path, None, length as u64, None),
            // Its size, its ends, and its pages, one after the other.
            O::Allocate(path, _, offset, length) => {
                (path, Some(offset), length, Some(clock.clone()))
            }
            // Its bytes are there as a whole or not at all, when the spool was replayed.
            O::Queue(path, ..) | O::Queued(path, ..) | O::Replay(path) => {
                (path, Some(0), 0, Some(clock.clone()))
            }
            _ => return None,
        };
        let number = *before.paths.get(path)?;
        let start = start.unwrap_or(before.nodes[&number].size);
        Some(Torn {
            number,
            start,
            end: start + length,
            stamps,
        })
    }
}

/// What of an inode a call changes step by step.
pub struct Torn {
    pub number: InodeNumber,
    /// Bytes of which a crash may leave any mixture, before and after.
    pub start: u64,
    pub end: u64,
    /// What else its times of modification and change may be.
    pub stamps: Option<Clock>,
}

/// An empty pool.
pub fn empty() -> Tree {
    let root = Node {
        mode: FileKind::Directory.mode_bits() | 0o755,
        links: 2,
        ..Node::default()
    };
    Tree {
        paths: BTreeMap::from([(String::new(), 1)]),
        nodes: BTreeMap::from([(1, root)]),
        last: 1,
        held: BTreeMap::new(),
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn is_directory(node: &Node) -> bool {
    FileKind::from_mode(node.mode) == Some(FileKind::Directory)
}

fn put(content: &mut Content, offset: u64, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        let within = (at % PAGE_SIZE) as usize;
        let part = (PAGE_SIZE as usize - within).min(bytes.len() - done);
        let page = content
            .entry(at / PAGE_SIZE)
            .or_insert_with(|| vec![0; PAGE_SIZE as usize]);
        page[within..within + part].copy_from_slice(&bytes[done..done + part]);
        done += part;
    }
    content.retain(|_, page| page.iter().any(|&byte| byte != 0));
}

/// Shortens a content to `size` bytes.
fn cut(content: &mut Content, size: u64) {
    content.retain(|&page, _| page * PAGE_SIZE < size);
    if let Some(last) = content.get_mut(&(size / PAGE_SIZE)) {
        last[(size % PAGE_SIZE) as usize..].fill(0);
    }
    content.retain(|_, page| page.iter().any(|&byte| byte != 0));
}

impl Tree {
    fn created(&mut self, path: &str, node: Node) {
        self.last += 1;
        let number = self.last;
        if is_directory(&node) {
            self.node(parent(path)).links += 1;
        }
        self.nodes.insert(number, node);
        self.paths.insert(path.into(), number);
    }

    fn node(&mut self, path: &str) -> &mut Node {
        let number = self.paths[path];
        self.nodes.get_mut(&number).expect("a path leads to a node")
    }

    fn remove(&mut self, path: &str) {
        let number = self.paths.remove(path).expect("the path is there");
        let node = self.nodes.get_mut(&number).expect("a node");
        node.links -= 1;
        if is_directory(node) {
            self.nodes.remove(&number);
            self.node(parent(path)).links -= 1;
        } else if node.links == 0 && !self.held.values().any(|&held| held == number) {
            self.nodes.remove(&number);
        }
    }

    /// Takes a name away, and what had no other.
    pub fn take_away(&mut self, path: &str) {
        self.remove(path);
    }

    /// Takes everything at and below a path away, to be put elsewhere.
    fn lift(&mut self, path: &str) -> BTreeMap<String, InodeNumber> {
        let below = format!("{path}/");
        let (lifted, kept) = std::mem::take(&mut self.paths)
            .into_iter()
            .partition(|(other, _)| other == path || other.starts_with(&below));
        self.paths = kept;
        let lifted: BTreeMap<String, InodeNumber> = lifted;
        if is_directory(&self.nodes[&lifted[path]]) {
            self.node(parent(path)).links -= 1;
        }
        lifted
    }

    fn lay(&mut self, lifted: BTreeMap<String, InodeNumber>, from: &str, to: &str) {
        if is_directory(&self.nodes[&lifted[from]]) {
            self.node(parent(to)).links += 1;
        }
        for (path, number) in lifted {
            self.paths
                .insert(format!("{to}{}", &path[from.len()..]), number);
        }
    }

    /// Where the last section of a log begins, and how long it is.
    fn last_section(&self, log: &str) -> (u64, u64) {
        let mut last = (0, 0);
        for (path, number) in &self.paths {
            let name = path
                .strip_prefix(log)
                .and_then(|name| name.strip_prefix('/'));
            if let Some(begin) = name.and_then(|name| name.parse().ok()) {
                last = (begin, self.nodes[number].size);
            }
        }
        last
    }

    /// Where the next section of a log begins, if the last is full.
    fn full_section(&self, log: &str) -> Option<u64> {
        let (begin, size) = self.last_section(log);
        let limit = &self.nodes[&self.paths[&format!("{log}/.limit")]];
        let text = &limit.content[&0][..limit.size as usize];
        let limit: u64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        (size >= limit).then_some(begin + size)
    }

    /// With the empty section that comes before the first of these records.
    pub fn with_next_section(&self, operation: &Operation) -> Option<Tree> {
        let O::Records(log, _) = *operation else {
            return None;
        };
        let next = self.full_section(log)?;
        let mut tree = self.clone();
        tree.make_section(log, next);
        Some(tree)
    }

    fn make_section(&mut self, log: &str, begin: u64) {
        let node = Node {
            mode: FileKind::File.mode_bits() | 0o644,
            links: 1,
            ..Node::default()
        };
        self.created(&format!("{log}/{begin:020}"), node);
    }

    /// The tree after an operation, but for times.
    pub fn apply(&mut self, operation: &Operation) {
        let made = |kind: FileKind, mode: u32, links| Node {
            mode: kind.mode_bits() | mode,
            links,
            ..Node::default()
        };
        match *operation {
            O::Create(path) => self.created(path, made(FileKind::File, 0o644, 1)),
            O::MakeDirectory(path) => self.created(path, made(FileKind::Directory, 0o755, 2)),
            O::Symlink(target, path) => {
                let mut node = made(FileKind::Link, 0o777, 1);
                node.size = target.len() as u64;
                put(&mut node.content, 0, target.as_bytes());
                self.created(path, node);
            }
            O::Device(path, number) => {
                let mut node = made(FileKind::CharacterDevice, 0o600, 1);
                node.size = number.into();
                self.created(path, node);
            }
            O::Link(from, to) => {
                self.node(from).links += 1;
                let number = self.paths[from];
                self.paths.insert(to.into(), number);
            }
            O::Hold(path) => drop(self.held.insert(path.into(), self.paths[path])),
            O::LinkHeld(path, to) => {
                let number = self.held.remove(path).expect("it is held");
                self.nodes.get_mut(&number).expect("a node").links += 1;
                self.paths.insert(to.into(), number);
            }
            O::Unlink(path) | O::RemoveDirectory(path) => self.remove(path),
            O::Rename(from, to) => {
                let lifted = self.lift(from);
                if self.paths.contains_key(to) {
                    self.remove(to);
                }
                self.lay(lifted, from, to);
            }
            O::Exchange(from, to) => {
                let (one, other) = (self.lift(from), self.lift(to));
                self.lay(one, from, to);
                self.lay(other, to, from);
            }
            O::Write(path, offset, length, fill)
            | O::Tell(path, offset, length, fill)
            | O::WriteMapped(path, offset, length, fill) => {
                let node = self.node(path);
                put(&mut node.content, offset, &filling(length, fill));
                node.size = node.size.max(offset + length as u64);
            }
            O::Append(path, length, fill) => {
                let node = self.node(path);
                put(&mut node.content, node.size, &filling(length, fill));
                node.size += length as u64;
            }
            O::Truncate(path, size) | O::TellSize(path, size) => {
                let node = self.node(path);
                cut(&mut node.content, size);
                node.size = size;
            }
            O::Allocate(path, mode, offset, length) => {
                let zeroes = mode & !libc::FALLOC_FL_KEEP_SIZE != 0;
                let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
                self.allocate(path, zeroes, offset..offset + length, keeps_size);
            }
            O::TellAllocate(path, how, offset, length) => {
                let zeroes = how != allocation::FILL;
                self.allocate(path, zeroes, offset..offset + length, true);
            }
            O::ChangeMode(path, mode) => {
                let node = self.node(path);
                node.mode = node.mode & !0o7777 | mode;
            }
            O::SetAttribute(path, name, value) => {
                let attributes = &mut self.node(path).attributes;
                attributes.insert(name.into(), value.into());
            }
            O::RemoveAttribute(path, name) => {
                self.node(path).attributes.remove(name.as_bytes());
            }
            O::Values(changes) => changes.iter().for_each(|&(path, value)| {
                let before = self.paths.contains_key(path).then(|| self.node(path).mode);
                if before.is_some() {
                    self.remove(path);
                }
                if let Some((length, fill)) = value {
                    let mut node = made(FileKind::File, before.unwrap_or(0o644) & 0o777, 1);
                    node.size = length as u64;
                    put(&mut node.content, 0, &filling(length, fill));
                    self.created(path, node);
                }
            }),
            O::MakeLog(log, limit) => {
                self.created(log, made(FileKind::Directory, 0o755, 2));
                self.make_section(log, 0);
                let text = limit.to_string();
                let mut node = made(FileKind::File, 0o644, 1);
                node.size = text.len() as u64;
                put(&mut node.content, 0, text.as_bytes());
                self.created(&format!("{log}/.limit"), node);
            }
            O::Records(log, records) => {
                if let Some(next) = self.full_section(log) {
                    self.make_section(log, next);
                }
                let (begin, size) = self.last_section(log);
                let bytes = joined(records);
                let node = self.node(&format!("{log}/{begin:020}"));
                put(&mut node.content, size, &bytes);
                node.size = size + bytes.len() as u64;
            }
            O::CutLog(log) => {
                let (last, _) = self.last_section(log);
                let first = format!("{log}/{:020}", 0)..format!("{log}/{last:020}");
                let gone: Vec<String> = self.paths.range(first).map(|one| one.0.clone()).collect();
                gone.iter().for_each(|path| self.remove(path));
            }
            O::MakeSpool => self.node(spool::SPOOL).size = spool::HEAD + spool::SIZE,
            O::Queue(path, offset, length, fill) => {
                put(&mut self.node(path).content, offset, &filling(length, fill));
            }
            O::Queued(path, offset, length, fill) => {
                let node = self.node(path);
                let offset = offset.unwrap_or(node.size);
                put(&mut node.content, offset, &filling(length, fill));
                node.size = node.size.max(offset + length as u64);
            }
            O::SetTimes(..) | O::Replay(_) | O::Commit(_) | O::Litter(..) | O::Mediate(_) => {}
        }
    }

    fn allocate(&mut self, path: &str, zeroes: bool, range: Range<u64>, keeps_size: bool) {
        let node = self.node(path);
        let last = range.end.min(node.size);
        if zeroes && range.start < last {
            let zeroes = vec![0; (last - range.start) as usize];
            put(&mut node.content, range.start, &zeroes);
        }
        if !keeps_size {
            node.size = node.size.max(range.end);
        }
    }

    /// Takes over times as a session tells them, and compares the rest with what it tells.
    pub fn observe(&mut self, session: &FileSystem) {
        let stat = |path: &str| {
            let told = session.stat(At::Root, path.as_bytes(), libc::AT_SYMLINK_NOFOLLOW);
            told.unwrap_or_else(|failure| panic!("stat of {path:?}: {failure:?}"))
        };
        // Links are counted as the directories are known that have them.
        let look_at_directories = || {
            for (path, number) in &self.paths {
                if is_directory(&self.nodes[number]) {
                    session.names(path).expect("names");
                }
            }
        };
        let told = self.paths.iter().map(|(path, &number)| {
            let told = stat(path);
            if told.links == self.nodes[&number].links {
                return (path.clone(), number, told);
            }
            look_at_directories();
            (path.clone(), number, stat(path))
        });
        let told: Vec<_> = told.collect();
        for (path, number, told) in told {
            let node = self.nodes.get_mut(&number).expect("a node");
            let size = if is_directory(node) {
                0
            } else {
                told.size + u64::from(told.device)
            };
            assert_eq!(
                (node.mode, node.links, node.size),
                (told.mode, told.links, size),
                "{path:?} live"
            );
            let nanoseconds =
                |time: Timestamp| time.seconds * 1_000_000_000 + i64::from(time.nanoseconds);
            node.times = [told.accessed, told.modified, told.changed].map(nanoseconds);
        }
    }

    /// Which paths lead to the same inode: each path with the first one of them.
    pub fn shape(&self) -> BTreeMap<&str, (&str, u32)> {
        let mut first: BTreeMap<InodeNumber, &str> = BTreeMap::new();
        self.paths
            .iter()
            .map(|(path, number)| {
                let first = *first.entry(*number).or_insert(path);
                let kind = self.nodes[number].mode & 0o170_000;
                (path.as_str(), (first, kind))
            })
            .collect()
    }
}
