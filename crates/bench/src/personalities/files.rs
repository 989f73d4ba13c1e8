//! A set of files of which threads pick some that are there, or some that are not.
//!
//! Invariant: a file that is picked is nobody else's until it is given back.

use crate::calls::Calls;
use crate::measure::Random;
use crate::outcome::Outcome;
use crate::personalities::shape::{Shape, Tree};
use std::ffi::CString;
use std::sync::atomic::{AtomicU8, Ordering};

/// States of a file.
const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
const PICKED: u8 = 2;

pub struct FileSet {
    paths: Vec<CString>,
    states: Vec<AtomicU8>,
    /// Of the file when it is made anew.
    sizes: Vec<usize>,
    /// Outer ones first.
    directories: Vec<CString>,
}

pub const CREATE: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;

/// A number between 0 and 1, neither of them.
fn part(random: &mut Random) -> f64 {
    ((random.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// A size of a gamma distribution of shape 1.5: an exponential one and half the square of a normal one.
fn size(random: &mut Random, mean: usize) -> usize {
    let normal =
        (-2.0 * part(random).ln()).sqrt() * (2.0 * std::f64::consts::PI * part(random)).cos();
    let shape = 1.5;
    let value = -part(random).ln() + normal * normal / 2.0;
    ((value * mean as f64 / shape) as usize).max(1)
}

impl FileSet {
    /// `present` of 100 files are there.
    pub fn make<C: Calls>(
        calls: &C,
        files: u64,
        mean: usize,
        shape: Shape,
        present: u64,
    ) -> Outcome<FileSet> {
        let Tree {
            directories,
            of_files,
        } = shape.tree(files);
        let mut random = Random(files);
        let directory = of_files.iter().map(|&place| &directories[place]);
        let set = FileSet {
            paths: directory
                .enumerate()
                .map(|(file, directory)| calls.path(&format!("{directory}/{file:08}")))
                .collect(),
            states: (0..files).map(|_| AtomicU8::new(ABSENT)).collect(),
            sizes: (0..files).map(|_| size(&mut random, mean)).collect(),
            directories: directories.iter().map(|path| calls.path(path)).collect(),
        };
        for directory in &set.directories {
            calls.make_directory(directory)?;
        }
        let data = vec![1; set.sizes.iter().copied().max().unwrap_or(0)];
        for file in 0..set.paths.len() {
            if random.next() % 100 < present {
                let opened = calls.open(&set.paths[file], CREATE)?;
                calls.append(opened, &data[..set.sizes[file]])?;
                calls.close(opened);
                set.states[file].store(PRESENT, Ordering::Relaxed);
            }
        }
        Ok(set)
    }

    /// Removes what there is.
    pub fn remove<C: Calls>(&self, calls: &C) -> Outcome<()> {
        for (path, state) in self.paths.iter().zip(&self.states) {
            if state.load(Ordering::Relaxed) != ABSENT {
                calls.unlink(path)?;
            }
        }
        let mut inner_first = self.directories.iter().rev();
        inner_first.try_for_each(|directory| calls.remove_directory(directory))
    }

    /// The largest size of a new file.
    pub fn largest(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Some file that is there, or not there, from a random place on.
    fn pick(&self, random: &mut Random, state: u8) -> Outcome<usize> {
        let files = self.states.len();
        let start = random.next() as usize % files;
        let mut places = (start..files).chain(0..start);
        let picked = places.find(|&place| {
            self.states[place]
                .compare_exchange(state, PICKED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        });
        picked.ok_or_else(|| match state {
            PRESENT => "no file is left".to_owned(),
            _ => "all files are there".to_owned(),
        })
    }

    /// Does something with a file that is there: its path is handed in.
    pub fn with_present<T>(
        &self,
        random: &mut Random,
        body: impl FnOnce(&CString) -> Outcome<T>,
    ) -> Outcome<T> {
        let place = self.pick(random, PRESENT)?;
        let done = body(&self.paths[place]);
        self.states[place].store(PRESENT, Ordering::Release);
        done
    }

    /// Takes a file away that is there.
    pub fn take<C: Calls>(&self, calls: &C, random: &mut Random) -> Outcome<()> {
        let place = self.pick(random, PRESENT)?;
        let done = calls.unlink(&self.paths[place]);
        self.states[place].store(ABSENT, Ordering::Release);
        done
    }

    /// Makes a file that is not there, which `body` makes: its path and size are handed in.
    pub fn with_new<T>(
        &self,
        random: &mut Random,
        body: impl FnOnce(&CString, usize) -> Outcome<T>,
    ) -> Outcome<T> {
        let place = self.pick(random, ABSENT)?;
        let done = body(&self.paths[place], self.sizes[place]);
        self.states[place].store(PRESENT, Ordering::Release);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::LibcCalls;

    #[test]
    fn sizes_have_the_mean_that_is_asked_for() {
        let mut random = Random(3);
        let sum: usize = (0..100_000).map(|_| size(&mut random, 16_384)).sum();
        let mean = sum as f64 / 100_000.0;
        assert!((mean / 16_384.0 - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn files_are_there_or_not_as_they_are_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let base = directory.path().to_str().expect("a path").to_owned();
        let calls = LibcCalls { base };
        let set = FileSet::make(&calls, 1000, 100, Shape::Wide(20), 80).expect("files");
        let there = || {
            let states = set.states.iter();
            states
                .filter(|state| state.load(Ordering::Relaxed) == PRESENT)
                .count()
        };
        let before = there();
        assert!((700..900).contains(&before), "{before}");
        let mut random = Random(1);
        set.take(&calls, &mut random).expect("a file");
        assert_eq!(there(), before - 1);
        let made = set.with_new(&mut random, |path, size| {
            assert!(size > 0);
            calls.close(calls.open(path, CREATE)?);
            Ok(())
        });
        made.expect("a file");
        assert_eq!(there(), before);
        // One that is picked is nobody else's.
        let all = (0..before - 1).try_for_each(|_| set.pick(&mut random, PRESENT).map(|_| ()));
        all.expect("files");
        let last = set.with_present(&mut random, |_| set.pick(&mut Random(0), PRESENT));
        assert!(last.is_err());
        set.remove(&calls).expect("nothing is left");
        assert!(!directory.path().join("files").exists());
    }
}
