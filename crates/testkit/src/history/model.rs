//! What everything is, between operations: what each of them has to tell, done one by one.
//!
//! # Invariant
//! The model tells what tmpfs tells (a test in `search` compares them).

use super::{Action, Explained, FILES, Name, Told, runs};
use arckfs::Errno;
use std::collections::BTreeMap;

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LedTo {
    Directory,
    Linked,
}

/// What everything is, between operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Model {
    names: BTreeMap<Name, LedTo>,
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
            (Some(LedTo::Linked), LedTo::Linked) => return Told::Done,
            (Some(_), _) if from == to => return Told::Done,
            (Some(LedTo::Linked), LedTo::Directory) => return error(Errno::NOTDIR),
            (Some(LedTo::Directory), LedTo::Linked) => return error(Errno::ISDIR),
            (Some(LedTo::Directory), LedTo::Directory) | (None, _) => {}
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
                    Action::Link(_) => LedTo::Linked,
                    _ => LedTo::Directory,
                };
                self.names.insert(name, held);
            }
            Action::Remove(name) => match self.names.get(&name) {
                None => return error(Errno::NOENT),
                Some(LedTo::Linked) => return error(Errno::NOTDIR),
                Some(LedTo::Directory) => drop(self.names.remove(&name)),
            },
            Action::Unlink(name) => match self.names.get(&name) {
                None => return error(Errno::NOENT),
                Some(LedTo::Directory) => return error(Errno::ISDIR),
                Some(LedTo::Linked) => drop(self.names.remove(&name)),
            },
            Action::Rename(from, to) => return self.rename(from, to, false),
            Action::RenameNew(from, to) => return self.rename(from, to, true),
            Action::IsThere(name) => {
                return match self.names.get(&name) {
                    None => error(Errno::NOENT),
                    Some(held) => Told::Number(u64::from(*held == LedTo::Directory)),
                };
            }
            Action::Links => {
                let links = self.names.values().filter(|&&held| held == LedTo::Linked);
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

impl Explained for Action {
    type Model = Model;

    fn apply(&self, model: &mut Model) -> Told {
        model.apply(*self)
    }
}
