//! What a hand has made, as it knows it: names, kinds, modes, links and contents; and what each of its
//! operations makes of that.
//!
//! # Invariant
//! * One hand alone changes its names, so what is there follows from the operations that were done.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where hands of all users work side by side.
pub const COMMON: &str = "/arck/common";
/// Bytes of a file at most.
const FILE_MAX: usize = 32 << 10;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    Directory(u32),
    Link(String),
    /// Which file: names of the same file have the same number.
    File(u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    pub mode: u32,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Default, Debug)]
pub struct Tree {
    /// By path: below `own`, or in `common`, where names begin with the hand's.
    pub nodes: BTreeMap<String, Node>,
    pub files: BTreeMap<u64, File>,
}

/// An operation: a verb, up to two paths, up to three numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub verb: String,
    pub path: String,
    pub other: String,
    pub numbers: [u64; 3],
}

impl Step {
    pub fn of(verb: &str, path: &str, other: &str, numbers: [u64; 3]) -> Step {
        Step {
            verb: verb.to_owned(),
            path: path.to_owned(),
            other: other.to_owned(),
            numbers,
        }
    }

    /// As one line tells it. No path has a space in it.
    pub fn text(&self) -> String {
        let [one, two, three] = self.numbers;
        let other = if self.other.is_empty() {
            "-"
        } else {
            &self.other
        };
        format!("{} {} {other} {one} {two} {three}", self.verb, self.path)
    }

    pub fn read(text: &str) -> Step {
        let words: Vec<&str> = text.split(' ').collect();
        let [verb, path, other, one, two, three] = words[..] else {
            panic!("no operation: {text:?}");
        };
        let number = |word: &str| word.parse().expect("a number");
        let other = if other == "-" { "" } else { other };
        Step::of(verb, path, other, [number(one), number(two), number(three)])
    }

    /// Whether it stores into a file in place: of one that was not acknowledged any part may be there.
    fn stores(&self) -> bool {
        ["write", "append", "map"].contains(&self.verb.as_str())
    }
}

/// Bytes that tell which write they are of.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        word = word
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (word >> 33) as u8
    };
    (0..length).map(next).collect()
}

pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Where a path of the hand's is.
pub fn place(hand: &str, path: &str) -> PathBuf {
    match path.strip_prefix("common") {
        Some(rest) => PathBuf::from(format!("{COMMON}{rest}")),
        None => {
            let rest = path.strip_prefix("own").expect("own or common");
            PathBuf::from(format!("/arck/{hand}{rest}"))
        }
    }
}

impl Tree {
    /// What there is.
    pub fn scan(hand: &str) -> Tree {
        let mut tree = Tree::default();
        tree.add_directory(&format!("/arck/{hand}"), "own", "");
        tree.add_directory(COMMON, "common", &format!("{hand}."));
        tree
    }

    fn add_directory(&mut self, host: &str, path: &str, prefix: &str) {
        let entries = std::fs::read_dir(host).unwrap_or_else(|error| panic!("{host}: {error}"));
        for entry in entries {
            let name = entry.expect("an entry").file_name();
            let name = name.to_str().expect("a name");
            if name.starts_with(prefix) {
                self.add(&format!("{host}/{name}"), &format!("{path}/{name}"));
            }
        }
    }

    fn add(&mut self, host: &str, path: &str) {
        let metadata =
            std::fs::symlink_metadata(host).unwrap_or_else(|error| panic!("{host}: {error}"));
        let mode = metadata.permissions().mode() & 0o7777;
        let node = if metadata.is_dir() {
            self.add_directory(host, path, "");
            Node::Directory(mode)
        } else if metadata.is_symlink() {
            let target = std::fs::read_link(host).expect("a link");
            Node::Link(target.to_str().expect("a target").to_owned())
        } else {
            let number = metadata.ino();
            let bytes = std::fs::read(host).unwrap_or_else(|error| panic!("{host}: {error}"));
            assert_eq!(bytes.len() as u64, metadata.len(), "{host}");
            self.files.insert(number, File { mode, bytes });
            Node::File(number)
        };
        self.nodes.insert(path.to_owned(), node);
    }

    /// One line for each name, for [`Tree::read`].
    pub fn text(&self) -> String {
        let line = |(path, node): (&String, &Node)| match node {
            Node::Directory(mode) => format!("directory {path} {mode}\n"),
            Node::Link(target) => format!("link {path} {target}\n"),
            Node::File(number) => {
                let file = &self.files[number];
                let bytes: String = file
                    .bytes
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                format!("file {path} {number} {} {bytes}\n", file.mode)
            }
        };
        self.nodes.iter().map(line).collect::<String>() + "end\n"
    }

    pub fn read(text: &str) -> Tree {
        assert!(text.ends_with("end\n"), "a part of a tree: {text}");
        let mut tree = Tree::default();
        for line in text.lines().filter(|line| *line != "end") {
            let words: Vec<&str> = line.split(' ').collect();
            let (path, node) = match words[..] {
                ["directory", path, mode] => (path, Node::Directory(mode.parse().expect("a mode"))),
                ["link", path, target] => (path, Node::Link(target.to_owned())),
                ["file", path, number, mode, bytes] => {
                    let number = number.parse().expect("a number");
                    let byte = |at| u8::from_str_radix(&bytes[at..at + 2], 16).expect("a byte");
                    let bytes = (0..bytes.len()).step_by(2).map(byte).collect();
                    let mode = mode.parse().expect("a mode");
                    tree.files.insert(number, File { mode, bytes });
                    (path, Node::File(number))
                }
                _ => panic!("{line}"),
            };
            tree.nodes.insert(path.to_owned(), node);
        }
        tree
    }

    /// Each name and what it leads to; a file is named by the first of its names.
    fn described(&self) -> BTreeMap<&str, (String, &[u8])> {
        let mut first = BTreeMap::new();
        let mut described = BTreeMap::new();
        for (path, node) in &self.nodes {
            let what = match node {
                Node::Directory(mode) => (format!("directory {mode:o}"), &[][..]),
                Node::Link(target) => (format!("link to {target}"), &[][..]),
                Node::File(number) => {
                    let first = first.entry(*number).or_insert(path);
                    let file = &self.files[number];
                    (format!("file {first} {:o}", file.mode), &file.bytes[..])
                }
            };
            described.insert(path.as_str(), what);
        }
        described
    }

    /// What is otherwise in the other one, in words.
    pub fn difference(&self, other: &Tree) -> String {
        let (here, there) = (self.described(), other.described());
        let mut text = String::new();
        for path in here.keys().chain(there.keys()) {
            let (one, two) = (here.get(path), there.get(path));
            if one == two {
                continue;
            }
            let say = |what: Option<&(String, &[u8])>| match what {
                Some((what, bytes)) => format!("{what}, {} bytes", bytes.len()),
                None => "nothing".to_owned(),
            };
            let first = one.zip(two).and_then(|(one, two)| {
                let shared = one.1.len().min(two.1.len());
                (0..shared).find(|&at| one.1[at] != two.1[at])
            });
            text += &format!(
                "{path}: {} / {}, from byte {first:?} on\n",
                say(one),
                say(two)
            );
        }
        text
    }

    fn file(&self, path: &str) -> Option<&File> {
        match self.nodes.get(path) {
            Some(Node::File(number)) => self.files.get(number),
            _ => None,
        }
    }

    fn file_mut(&mut self, path: &str) -> &mut File {
        match self.nodes.get(path) {
            Some(Node::File(number)) => self.files.get_mut(number).expect("a file"),
            other => panic!("{path} is {other:?}"),
        }
    }

    fn has_directory(&self, path: &str) -> bool {
        path == "own"
            || path == "common"
            || matches!(self.nodes.get(path), Some(Node::Directory(_)))
    }

    fn is_empty(&self, directory: &str) -> bool {
        let inside = format!("{directory}/");
        !self.nodes.keys().any(|path| path.starts_with(&inside))
    }

    /// Whether the manual lets the operation succeed, and it stays small.
    pub fn allows(&self, step: &Step) -> bool {
        let (path, other) = (step.path.as_str(), step.other.as_str());
        let node = self.nodes.get(path);
        let is_free =
            |path: &str| !self.nodes.contains_key(path) && self.has_directory(parent(path));
        let is_flat = |node: Option<&Node>| matches!(node, Some(Node::File(_) | Node::Link(_)));
        let [one, two, _] = step.numbers;
        let size = self.file(path).map(|file| file.bytes.len());
        match step.verb.as_str() {
            "create" | "symlink" => is_free(path),
            "mkdir" => is_free(path) && path.starts_with("own") && path.matches('/').count() < 4,
            "nameless" => is_free(path) && two as usize <= FILE_MAX,
            "write" => size.is_some_and(|size| {
                one as usize <= size + 5000 && (one + two) as usize <= FILE_MAX
            }),
            "map" => size.is_some_and(|size| two > 0 && (one + two) as usize <= size),
            "append" => size.is_some_and(|size| size + two as usize <= FILE_MAX),
            "truncate" => size.is_some() && one as usize <= FILE_MAX,
            "chmod" | "fsync" | "read" => size.is_some(),
            "link" => size.is_some() && is_free(other),
            "unlink" => is_flat(node),
            "rmdir" => matches!(node, Some(Node::Directory(_))) && self.is_empty(path),
            "swap" => path != other && is_flat(node) && is_flat(self.nodes.get(other)),
            "rename" => match (node, self.nodes.get(other)) {
                _ if path == other || !self.has_directory(parent(other)) => false,
                (None, _) => false,
                (Some(Node::Directory(_)), target) => {
                    let is_well = match target {
                        None => true,
                        Some(Node::Directory(_)) => self.is_empty(other),
                        Some(_) => false,
                    };
                    is_well && other.starts_with("own") && !other.starts_with(&format!("{path}/"))
                }
                (Some(_), target) => !matches!(target, Some(Node::Directory(_))),
            },
            "count" | "publish" | "peek" | "denied" => true,
            verb => panic!("{verb}"),
        }
    }

    pub fn remove(&mut self, path: &str) {
        let Some(Node::File(number)) = self.nodes.remove(path) else {
            return;
        };
        if !self.nodes.values().any(|node| *node == Node::File(number)) {
            self.files.remove(&number);
        }
    }

    fn new_file(&mut self, path: &str, mode: u32, bytes: Vec<u8>) {
        let number = self.files.keys().next_back().map_or(1, |last| last + 1);
        self.files.insert(number, File { mode, bytes });
        self.nodes.insert(path.to_owned(), Node::File(number));
    }

    pub fn apply(&mut self, step: &Step) {
        let (path, other) = (step.path.as_str(), step.other.as_str());
        let [one, two, three] = step.numbers;
        match step.verb.as_str() {
            "create" => self.new_file(path, one as u32, Vec::new()),
            "symlink" => drop(
                self.nodes
                    .insert(path.to_owned(), Node::Link(other.to_owned())),
            ),
            "mkdir" => drop(
                self.nodes
                    .insert(path.to_owned(), Node::Directory(one as u32)),
            ),
            "nameless" => self.new_file(path, one as u32, pattern(three, two as usize)),
            "write" | "map" => {
                let bytes = &mut self.file_mut(path).bytes;
                let (start, end) = (one as usize, (one + two) as usize);
                bytes.resize(bytes.len().max(end), 0);
                bytes[start..end].copy_from_slice(&pattern(three, two as usize));
            }
            "append" => self
                .file_mut(path)
                .bytes
                .extend(pattern(three, two as usize)),
            "truncate" => self.file_mut(path).bytes.resize(one as usize, 0),
            "chmod" => self.file_mut(path).mode = one as u32,
            "link" => drop(
                self.nodes
                    .insert(other.to_owned(), self.nodes[path].clone()),
            ),
            "unlink" | "rmdir" => self.remove(path),
            "swap" => {
                let (left, right) = (self.nodes[path].clone(), self.nodes[other].clone());
                self.nodes.insert(path.to_owned(), right);
                self.nodes.insert(other.to_owned(), left);
            }
            // Two names of one file stay two.
            "rename"
                if self.nodes.get(path) == self.nodes.get(other) && self.file(path).is_some() => {}
            "rename" => {
                self.remove(other);
                let inside = format!("{path}/");
                let is_moved = |name: &String| name == path || name.starts_with(&inside);
                let moved: Vec<String> = self
                    .nodes
                    .keys()
                    .filter(|&n| is_moved(n))
                    .cloned()
                    .collect();
                for name in moved {
                    let node = self.nodes.remove(&name).expect("a node");
                    self.nodes
                        .insert(format!("{other}{}", &name[path.len()..]), node);
                }
            }
            "publish" => {
                self.remove(path);
                self.new_file(path, 0o644, published(one));
            }
            "fsync" | "read" | "count" | "peek" | "denied" => {}
            verb => panic!("{verb}"),
        }
    }

    /// Whether what was found is this, or this with the operation that was under way: done, or not, or, if
    /// it stores into a file, any part of it.
    pub fn explains(&self, found: &Tree, under_way: Option<&Step>) -> Result<(), String> {
        let mut found = found.clone();
        let mut before = self.clone();
        let Some(step) = under_way else {
            let difference = before.difference(&found);
            return if difference.is_empty() {
                Ok(())
            } else {
                Err(difference)
            };
        };
        if step.verb == "publish" {
            // What is renamed over the other is the hand's own business.
            found.remove(&step.other);
        }
        let mut after = before.clone();
        after.apply(step);
        if step.stores()
            && let (Some(old), Some(new), Some(got)) = (
                before.file(&step.path),
                after.file(&step.path),
                found.file(&step.path),
            )
            && is_between(&old.bytes, &new.bytes, &got.bytes)
        {
            let bytes = got.bytes.clone();
            before.file_mut(&step.path).bytes = bytes;
        }
        let difference = before.difference(&found);
        if difference.is_empty() || after.difference(&found).is_empty() {
            return Ok(());
        }
        Err(format!("with {} under way:\n{difference}", step.text()))
    }
}

/// Whether each byte is an old one or a new one, and the length between.
fn is_between(old: &[u8], new: &[u8], got: &[u8]) -> bool {
    let lengths = old.len().min(new.len())..=old.len().max(new.len());
    let is_either = |(at, &byte): (usize, &u8)| {
        let old = old.get(at).copied().unwrap_or(0);
        byte == old || new.get(at) == Some(&byte)
    };
    lengths.contains(&got.len()) && got.iter().enumerate().all(is_either)
}

/// What a hand shows to all: a number, and bytes that follow from it.
pub fn published(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(pattern(number, 200 + number as usize % 5000));
    bytes
}

/// The hands' file that others look at.
pub fn public(hand: &str) -> PathBuf {
    Path::new(COMMON).join(format!("{hand}.public"))
}
