//! The storm: steps that make, write, rename and remove, each drawn from a seed and the state that
//! the steps before it have made, and the model of that state.
//!
//! # Invariant
//! Step `n` of a storm follows from its seed alone, so the number of steps that have returned says
//! what has to be there; each step is one operation of the file system.

use arck_testkit::Random;
use std::collections::BTreeMap;

/// Files and directories that a storm keeps at most.
const NODES_MAX: usize = 90;
/// Bytes that a file has at most, about.
const FILE_MAX: u64 = 80_000;
/// Deepest path, in names.
const DEPTH_MAX: usize = 4;

/// What is under one path. Names of one file have the same `file` number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Directory { mode: u32 },
    File { file: u64 },
    Symlink { target: String },
}

/// Contents and permission bits of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    pub mode: u32,
    pub data: Vec<u8>,
}

/// Everything below the storm's directory, by path relative to it; the directory itself is "".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub nodes: BTreeMap<String, Node>,
    pub files: BTreeMap<u64, FileState>,
    next_file: u64,
}

/// One operation; paths are relative to the storm's directory, "" is that itself.
#[derive(Clone, Debug)]
pub enum Step {
    Mkdir {
        path: String,
        mode: u32,
    },
    Create {
        path: String,
        mode: u32,
    },
    Symlink {
        path: String,
        target: String,
    },
    Link {
        from: String,
        to: String,
    },
    Write {
        path: String,
        offset: u64,
        data: Vec<u8>,
    },
    Append {
        path: String,
        data: Vec<u8>,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    /// Over whatever is there, if that is allowed.
    Rename {
        from: String,
        to: String,
    },
    Exchange {
        one: String,
        other: String,
    },
}

/// A storm at some step.
pub struct Storm {
    seed: u64,
    pub done: u64,
    pub state: State,
}

impl Storm {
    pub fn new(seed: u64) -> Storm {
        Storm {
            seed,
            done: 0,
            state: State::default(),
        }
    }

    /// The step after those that are done.
    pub fn next(&self) -> Step {
        if self.done == 0 {
            return Step::Mkdir {
                path: String::new(),
                mode: 0o755,
            };
        }
        let mixed = self.seed ^ self.done.wrapping_mul(0x9e6c_63d0_876a_3f6b);
        let mut random = Random::new(mixed);
        // A draw that meets nothing it could work on is drawn again; creating always works.
        loop {
            if let Some(step) = draw(&self.state, &mut random) {
                return step;
            }
        }
    }

    pub fn apply(&mut self, step: &Step) {
        self.state.apply(step);
        self.done += 1;
    }
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() {
        name.to_owned()
    } else {
        format!("{directory}/{name}")
    }
}

/// Whether `path` is `directory` or lies in it.
fn is_within(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory);
    directory.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn depth(path: &str) -> usize {
    path.split('/').filter(|name| !name.is_empty()).count()
}

impl State {
    fn is_empty(&self, directory: &str) -> bool {
        !self
            .nodes
            .keys()
            .any(|path| path != directory && is_within(path, directory))
    }

    fn file_mut(&mut self, path: &str) -> &mut FileState {
        let Some(Node::File { file }) = self.nodes.get(path) else {
            panic!("no file: {path}");
        };
        self.files.get_mut(file).expect("a name has its file")
    }

    /// The file of a path that is one.
    pub fn file(&self, path: &str) -> Option<&FileState> {
        match self.nodes.get(path) {
            Some(Node::File { file }) => self.files.get(file),
            _ => None,
        }
    }

    /// Names of a file.
    pub fn links(&self, file: u64) -> u64 {
        let name = |node: &&Node| matches!(node, Node::File { file: other } if *other == file);
        self.nodes.values().filter(name).count() as u64
    }

    fn remove(&mut self, path: &str) {
        if let Some(Node::File { file }) = self.nodes.remove(path)
            && self.links(file) == 0
        {
            self.files.remove(&file);
        }
    }

    /// Takes out what lies under a path, with the paths relative to it.
    fn take(&mut self, path: &str) -> Vec<(String, Node)> {
        let below: Vec<String> = self
            .nodes
            .keys()
            .filter(|other| is_within(other, path))
            .cloned()
            .collect();
        below
            .into_iter()
            .filter_map(|other| Some((other[path.len()..].to_owned(), self.nodes.remove(&other)?)))
            .collect()
    }

    fn put(&mut self, path: &str, taken: Vec<(String, Node)>) {
        self.nodes.extend(
            taken
                .into_iter()
                .map(|(rest, node)| (format!("{path}{rest}"), node)),
        );
    }

    /// What a step does.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Mkdir { path, mode } => {
                self.nodes
                    .insert(path.clone(), Node::Directory { mode: *mode });
            }
            Step::Create { path, mode } => {
                let file = self.next_file;
                self.next_file += 1;
                self.nodes.insert(path.clone(), Node::File { file });
                let made = FileState {
                    mode: *mode,
                    data: Vec::new(),
                };
                self.files.insert(file, made);
            }
            Step::Symlink { path, target } => {
                let target = target.clone();
                self.nodes.insert(path.clone(), Node::Symlink { target });
            }
            Step::Link { from, to } => {
                let node = self.nodes[from].clone();
                self.nodes.insert(to.clone(), node);
            }
            Step::Write { path, offset, data } => {
                let start = usize::try_from(*offset).expect("a small offset");
                let file = self.file_mut(path);
                if file.data.len() < start + data.len() {
                    file.data.resize(start + data.len(), 0);
                }
                file.data[start..start + data.len()].copy_from_slice(data);
            }
            Step::Append { path, data } => self.file_mut(path).data.extend_from_slice(data),
            Step::Truncate { path, size } => {
                let size = usize::try_from(*size).expect("a small size");
                self.file_mut(path).data.resize(size, 0);
            }
            Step::Chmod { path, mode } => match self.nodes.get_mut(path) {
                Some(Node::Directory { mode: old }) => *old = *mode,
                _ => self.file_mut(path).mode = *mode,
            },
            Step::Unlink { path } | Step::Rmdir { path } => self.remove(path),
            Step::Rename { from, to } => {
                self.remove(to);
                let taken = self.take(from);
                self.put(to, taken);
            }
            Step::Exchange { one, other } => {
                let first = self.take(one);
                let second = self.take(other);
                self.put(other, first);
                self.put(one, second);
            }
        }
    }
}

/// A path of a kind that is there.
fn pick(state: &State, random: &mut Random, is: fn(&Node) -> bool) -> Option<String> {
    let paths: Vec<&String> = state
        .nodes
        .iter()
        .filter(|(path, node)| !path.is_empty() && is(node))
        .map(|(path, _)| path)
        .collect();
    (!paths.is_empty()).then(|| (*random.pick(&paths)).clone())
}

fn is_directory(node: &Node) -> bool {
    matches!(node, Node::Directory { .. })
}

fn is_file(node: &Node) -> bool {
    matches!(node, Node::File { .. })
}

/// A path in some directory, whose name may be taken or not.
fn place(state: &State, random: &mut Random) -> String {
    let directory = pick(state, random, is_directory).filter(|_| !random.percent(40));
    let name = format!("n{:02}", random.below(40));
    // Some names are long: they take more of a page.
    let name = if random.percent(10) {
        format!("{name}{}", "-long".repeat(random.below(45) as usize))
    } else {
        name
    };
    join(&directory.unwrap_or_default(), &name)
}

fn free_place(state: &State, random: &mut Random) -> Option<String> {
    let path = place(state, random);
    (!state.nodes.contains_key(&path) && depth(&path) <= DEPTH_MAX).then_some(path)
}

fn length(random: &mut Random) -> usize {
    let bound = *random.pick(&[60, 600, 5_000, 5_000, 30_000]);
    1 + random.below(bound) as usize
}

fn draw(state: &State, random: &mut Random) -> Option<Step> {
    let crowded = state.nodes.len() >= NODES_MAX;
    let kind = random.below(100);
    Some(match kind {
        0..24 if !crowded => Step::Create {
            path: free_place(state, random)?,
            mode: *random.pick(&[0o644, 0o600, 0o640, 0o755]),
        },
        24..29 if !crowded => Step::Mkdir {
            path: free_place(state, random)?,
            mode: *random.pick(&[0o755, 0o700]),
        },
        29..32 if !crowded => Step::Symlink {
            path: free_place(state, random)?,
            target: "t".repeat(1 + random.below(300) as usize),
        },
        32..36 if !crowded => Step::Link {
            from: pick(state, random, is_file)?,
            to: free_place(state, random)?,
        },
        36..48 => {
            let path = pick(state, random, is_file)?;
            let size = state.file(&path)?.data.len() as u64;
            // Now and then behind the end, which leaves a hole.
            let offset = random.below(size + 1) + if random.percent(10) { 9_000 } else { 0 };
            let data = {
                let length = length(random);
                random.bytes(length)
            };
            Step::Write {
                offset: offset.min(FILE_MAX),
                path,
                data,
            }
        }
        48..58 => {
            let path = pick(state, random, is_file)?;
            if state.file(&path)?.data.len() as u64 > FILE_MAX {
                return None;
            }
            let data = {
                let length = length(random);
                random.bytes(length)
            };
            Step::Append { path, data }
        }
        58..63 => {
            let path = pick(state, random, is_file)?;
            let size = state.file(&path)?.data.len() as u64;
            let size = if random.percent(80) {
                random.below(size + 1)
            } else {
                size + random.below(9_000)
            };
            Step::Truncate {
                path,
                size: size.min(FILE_MAX),
            }
        }
        63..66 => Step::Chmod {
            path: pick(state, random, |node| !matches!(node, Node::Symlink { .. }))?,
            mode: *random.pick(&[0o700, 0o755, 0o750]),
        },
        66..82 => Step::Unlink {
            path: pick(state, random, |node| !is_directory(node))?,
        },
        82..85 => {
            let path = pick(state, random, is_directory)?;
            if !state.is_empty(&path) {
                return None;
            }
            Step::Rmdir { path }
        }
        85..97 => {
            let from = pick(state, random, |_| true)?;
            let to = place(state, random);
            return rename(state, from, to);
        }
        97.. => {
            let one = pick(state, random, |_| true)?;
            let other = pick(state, random, |_| true)?;
            let apart = !is_within(&one, &other) && !is_within(&other, &one);
            return (apart && shallow(state, &one, &other) && shallow(state, &other, &one))
                .then_some(Step::Exchange { one, other });
        }
        _ => return None,
    })
}

/// Whether what lies under `from` stays within the depth if it goes to `to`.
fn shallow(state: &State, from: &str, to: &str) -> bool {
    let below = state.nodes.keys().filter(|path| is_within(path, from));
    let deepest = below.map(|path| depth(path)).max().unwrap_or(0);
    deepest + depth(to) <= DEPTH_MAX + depth(from)
}

/// The rename, if POSIX allows it and it does something.
fn rename(state: &State, from: String, to: String) -> Option<Step> {
    if is_within(&to, &from) || is_within(&from, &to) || !shallow(state, &from, &to) {
        return None;
    }
    let source = state.nodes.get(&from)?;
    let allowed = match state.nodes.get(&to) {
        None => true,
        // Two names of one file: rename does nothing.
        Some(target) if target == source && is_file(source) => false,
        Some(target) if is_directory(target) => is_directory(source) && state.is_empty(&to),
        Some(_) => !is_directory(source),
    };
    allowed.then_some(Step::Rename { from, to })
}
