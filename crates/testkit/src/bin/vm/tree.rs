//! What is there after a cut, and whether it is one of the states that may be.
//!
//! # Invariant
//! Reads only, and through the C library alone (`std::fs`), so that the preload library serves it.

use crate::storm::{Node, State, Step};
use arck_testkit::Random;
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// One thing that is there.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Directory {
        mode: u32,
    },
    File {
        mode: u32,
        links: u64,
        inode: u64,
        data: Vec<u8>,
    },
    Symlink {
        target: String,
    },
}

/// Everything in and below `top`, by path relative to it; empty if `top` is not there.
pub fn read(top: &Path) -> io::Result<BTreeMap<String, Found>> {
    let mut found = BTreeMap::new();
    match fs::symlink_metadata(top) {
        Ok(metadata) => read_one(top, String::new(), &metadata, &mut found)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(found)
}

fn read_one(
    path: &Path,
    name: String,
    metadata: &Metadata,
    found: &mut BTreeMap<String, Found>,
) -> io::Result<()> {
    let mode = metadata.permissions().mode() & 0o7777;
    let kind = metadata.file_type();
    let one = if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let below = entry.path();
            let text = entry.file_name().to_string_lossy().into_owned();
            let text = if name.is_empty() {
                text
            } else {
                format!("{name}/{text}")
            };
            read_one(&below, text, &fs::symlink_metadata(&below)?, found)?;
        }
        Found::Directory { mode }
    } else if kind.is_symlink() {
        let target = fs::read_link(path)?.to_string_lossy().into_owned();
        if metadata.len() != target.len() as u64 {
            return Err(io::Error::other(format!("{name}: size of a symbolic link")));
        }
        Found::Symlink { target }
    } else {
        let data = fs::read(path)?;
        if metadata.len() != data.len() as u64 {
            return Err(io::Error::other(format!(
                "{name}: size and contents differ"
            )));
        }
        Found::File {
            mode,
            links: metadata.nlink(),
            inode: metadata.ino(),
            data,
        }
    };
    found.insert(name, one);
    Ok(())
}

/// A number that tells two states apart; inode numbers count, so that links do.
pub fn digest(found: &BTreeMap<String, Found>) -> u64 {
    let mut sum = 1;
    let mut add = |bytes: &[u8]| {
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            sum = Random::new(sum ^ u64::from_le_bytes(padded)).next_word();
        }
        sum = Random::new(sum ^ bytes.len() as u64).next_word();
    };
    for (path, one) in found {
        add(path.as_bytes());
        match one {
            Found::Directory { mode } => add(&mode.to_le_bytes()),
            Found::Symlink { target } => add(target.as_bytes()),
            Found::File {
                mode,
                links,
                inode,
                data,
            } => {
                add(&mode.to_le_bytes());
                add(&links.to_le_bytes());
                add(&inode.to_le_bytes());
                add(data);
            }
        }
    }
    sum
}

/// Whether a file's contents may be there.
type Contents<'a> = dyn Fn(&str, &[u8], &[u8]) -> bool + 'a;

/// The first difference between what is there and a state.
fn difference(
    found: &BTreeMap<String, Found>,
    state: &State,
    contents: &Contents<'_>,
) -> Option<String> {
    if let Some(path) = state.nodes.keys().find(|path| !found.contains_key(*path)) {
        return Some(format!("\"{path}\" is not there"));
    }
    let mut inodes = BTreeMap::new();
    for (path, one) in found {
        let Some(node) = state.nodes.get(path) else {
            return Some(format!("\"{path}\" is there"));
        };
        let same = match (one, node) {
            (Found::Directory { mode }, Node::Directory { mode: wanted }) => mode == wanted,
            (Found::Symlink { target }, Node::Symlink { target: wanted }) => target == wanted,
            (
                Found::File {
                    mode,
                    links,
                    inode,
                    data,
                },
                Node::File { file },
            ) => {
                let wanted = state.file(path)?;
                if *inodes.entry(*file).or_insert(*inode) != *inode {
                    return Some(format!("\"{path}\" is another file than its other names"));
                }
                if !contents(path, data, &wanted.data) {
                    let at = data
                        .iter()
                        .zip(&wanted.data)
                        .take_while(|(a, b)| a == b)
                        .count();
                    return Some(format!(
                        "\"{path}\" has other contents: {} bytes, expected {}, the same up to {at}",
                        data.len(),
                        wanted.data.len()
                    ));
                }
                *mode == wanted.mode && *links == state.links(*file)
            }
            _ => false,
        };
        if !same {
            let shown = match one {
                Found::File { mode, links, .. } => format!("file, mode {mode:o}, {links} links"),
                other => format!("{other:?}"),
            };
            return Some(format!("\"{path}\" is {shown}; expected {node:?}"));
        }
    }
    None
}

/// Compares what is there with `state`, after which `flight` may have happened: whole or not at
/// all, or, if it writes data, in part.
///
/// # Errors
/// What differs from both.
pub fn compare(
    found: &BTreeMap<String, Found>,
    state: &State,
    flight: Option<&Step>,
) -> Result<(), String> {
    let same: &Contents<'_> = &|_, data, wanted| data == wanted;
    let Some(before) = difference(found, state, same) else {
        return Ok(());
    };
    let Some(step) = flight else {
        return Err(before);
    };
    let mut later = state.clone();
    later.apply(step);
    let Some(after) = difference(found, &later, same) else {
        return Ok(());
    };
    if let Step::Write { path, offset, data } = step
        && let Some(target) = state.file(path)
    {
        let start = usize::try_from(*offset).unwrap_or(usize::MAX);
        let old = &target.data;
        let partly: &Contents<'_> = &|at, bytes, wanted| {
            // All names of the file that is written.
            let is_target = state.nodes.get(at) == state.nodes.get(path);
            if !is_target {
                return bytes == wanted;
            }
            part_of_write(bytes, old, start, data)
        };
        if difference(found, state, partly).is_none() {
            return Ok(());
        }
    }
    let mut short = format!("{step:?}");
    short.truncate(200);
    Err(format!(
        "{before}; and, with the step that was under way ({short}), {after}"
    ))
}

/// Whether `bytes` may be what a write of `data` at `start` over `old` leaves that did not return.
fn part_of_write(bytes: &[u8], old: &[u8], start: usize, data: &[u8]) -> bool {
    let end = start + data.len();
    if bytes.len() != old.len() && bytes.len() != old.len().max(end) {
        return false;
    }
    bytes.iter().enumerate().all(|(at, &byte)| {
        let before = old.get(at).copied();
        let written = at.checked_sub(start).and_then(|at| data.get(at).copied());
        match (before, written) {
            (None, Some(new)) => byte == new,
            (before, written) => byte == before.unwrap_or(0) || Some(byte) == written,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_write() {
        let old = [1, 2, 3, 4];
        // Whole, not at all, half of the overwritten part.
        assert!(part_of_write(&[1, 2, 7, 8, 9], &old, 2, &[7, 8, 9]));
        assert!(part_of_write(&old, &old, 2, &[7, 8, 9]));
        assert!(part_of_write(&[1, 2, 3, 8], &old, 2, &[7, 8, 9]));
        // Something else; beyond the range; a new size without the new data.
        assert!(!part_of_write(&[1, 2, 5, 4], &old, 2, &[7, 8, 9]));
        assert!(!part_of_write(&[0, 2, 3, 4], &old, 2, &[7, 8, 9]));
        assert!(!part_of_write(&[1, 2, 7, 8, 0], &old, 2, &[7, 8, 9]));
        assert!(!part_of_write(&[1, 2, 7, 8, 9, 0], &old, 2, &[7, 8, 9]));
        // A hole.
        assert!(part_of_write(&[1, 2, 3, 4, 0, 9], &old, 5, &[9]));
        assert!(!part_of_write(&[1, 2, 3, 4, 5, 9], &old, 5, &[9]));
    }
}
