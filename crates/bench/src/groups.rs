//! What is measured: groups of operations that share a preparation.
//!
//! # Invariants
//! * What a group prepares is warm: files are written, read and looked up once before the first
//!   round that counts, on both sides in the same way.
//! * A round leaves the file system as it found it.

use crate::calls::Calls;
use crate::measure::{Random, Samples, timed};
use crate::outcome::Outcome;
use std::ffi::CString;

/// Sizes of it all.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Files made, renamed and removed in a round.
    pub files: u64,
    /// Files of the directory in which names are looked up at random.
    pub wide: u64,
    /// Directories made and removed in a round.
    pub directories: u64,
    /// Bytes of the file that is read and overwritten.
    pub data: u64,
    /// Bytes appended in a round.
    pub appended: u64,
    /// Look-ups in a round.
    pub lookups: u64,
}

impl Scale {
    pub const SHORT: Scale = Scale {
        files: 20_000,
        wide: 20_000,
        directories: 1_000,
        data: 64 << 20,
        appended: 16 << 20,
        lookups: 20_000,
    };
    pub const LONG: Scale = Scale {
        files: 100_000,
        wide: 100_000,
        directories: 10_000,
        data: 256 << 20,
        appended: 64 << 20,
        lookups: 100_000,
    };
}

pub const PAGE: u64 = 4096;
const LARGE: u64 = 2 << 20;

/// Operations that share a preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Names,
    Deep,
    Wide,
    Directories,
    Data,
    Append,
}

pub const CREATE: &str = "create+close, empty";
pub const RENAME: &str = "rename within a directory";
pub const UNLINK: &str = "unlink";
pub const OPEN_DEEP: &str = "open+close, five deep";
pub const STAT_DEEP: &str = "stat, five deep";
pub const OPEN_WIDE: &str = "open+close, random";
pub const STAT_WIDE: &str = "stat, random";
pub const LIST: &str = "readdir, per entry";
pub const MAKE_DIRECTORY: &str = "mkdir";
pub const REMOVE_DIRECTORY: &str = "rmdir";
pub const OVERWRITE: &str = "overwrite 4 KiB, sequential";
pub const OVERWRITE_RANDOM: &str = "overwrite 4 KiB, random";
pub const READ: &str = "read 4 KiB, sequential";
pub const READ_RANDOM: &str = "read 4 KiB, random";
pub const READ_LARGE: &str = "read 2 MiB";
pub const OVERWRITE_LARGE: &str = "overwrite 2 MiB";
pub const APPEND: &str = "append 4 KiB";

impl Group {
    pub const ALL: [Group; 6] = [
        Group::Names,
        Group::Deep,
        Group::Wide,
        Group::Directories,
        Group::Data,
        Group::Append,
    ];

    /// Operations, in the order of the report.
    pub fn operations(self) -> &'static [&'static str] {
        match self {
            Group::Names => &[CREATE, RENAME, UNLINK],
            Group::Deep => &[OPEN_DEEP, STAT_DEEP],
            Group::Wide => &[OPEN_WIDE, STAT_WIDE, LIST],
            Group::Directories => &[MAKE_DIRECTORY, REMOVE_DIRECTORY],
            Group::Data => &[
                OVERWRITE,
                OVERWRITE_RANDOM,
                READ,
                READ_RANDOM,
                READ_LARGE,
                OVERWRITE_LARGE,
            ],
            Group::Append => &[APPEND],
        }
    }

    /// Bytes for operations that are reported as bandwidth.
    pub fn bytes(operation: &str) -> u64 {
        match operation {
            READ_LARGE | OVERWRITE_LARGE => LARGE,
            _ => 0,
        }
    }
}

/// A group prepared on one file system.
pub struct Prepared<'c, C: Calls> {
    calls: &'c C,
    group: Group,
    scale: Scale,
    directory: CString,
    paths: Vec<CString>,
    others: Vec<CString>,
    file: Option<C::File>,
    random: Vec<u64>,
    buffer: Vec<u8>,
}

const CREATE_FLAGS: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;

fn names<C: Calls>(calls: &C, directory: &str, prefix: &str, count: u64) -> Vec<CString> {
    (0..count)
        .map(|number| calls.path(&format!("{directory}/{prefix}{number:06}")))
        .collect()
}

fn make<C: Calls>(calls: &C, path: &CString) -> Outcome<()> {
    calls.close(calls.open(path, CREATE_FLAGS)?);
    Ok(())
}

impl<'c, C: Calls> Prepared<'c, C> {
    pub fn new(calls: &'c C, group: Group, scale: Scale) -> Outcome<Self> {
        let base = format!("{group:?}").to_lowercase();
        let mut prepared = Prepared {
            calls,
            group,
            scale,
            directory: calls.path(&base),
            paths: Vec::new(),
            others: Vec::new(),
            file: None,
            random: Vec::new(),
            buffer: vec![0x5a; LARGE as usize],
        };
        calls.make_directory(&prepared.directory)?;
        match group {
            Group::Names => {
                prepared.paths = names(calls, &base, "f", scale.files);
                prepared.others = names(calls, &base, "r", scale.files);
            }
            Group::Directories => {
                prepared.paths = names(calls, &base, "d", scale.directories);
            }
            Group::Deep => {
                let mut path = base;
                for level in 1..5 {
                    path = format!("{path}/{level}");
                    prepared.others.push(calls.path(&path));
                }
                for directory in &prepared.others {
                    calls.make_directory(directory)?;
                }
                prepared.paths = vec![calls.path(&format!("{path}/file"))];
                make(calls, &prepared.paths[0])?;
            }
            Group::Wide => {
                prepared.paths = names(calls, &base, "f", scale.wide);
                for path in &prepared.paths {
                    make(calls, path)?;
                }
                prepared.random = Random(1).below(scale.wide, scale.lookups);
            }
            Group::Data => {
                let path = calls.path(&format!("{base}/file"));
                let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
                let file = calls.open(&path, flags)?;
                for at in (0..scale.data).step_by(LARGE as usize) {
                    calls.write(file, &prepared.buffer, at)?;
                }
                prepared.file = Some(file);
                prepared.paths = vec![path];
                let pages = scale.data / PAGE;
                prepared.random = Random(2).below(pages, pages.min(scale.lookups));
            }
            Group::Append => prepared.paths = vec![calls.path(&format!("{base}/file"))],
        }
        Ok(prepared)
    }

    /// One round.
    pub fn round(&mut self, samples: &mut Samples) -> Outcome<()> {
        match self.group {
            Group::Names => self.round_names(samples),
            Group::Deep => self.round_deep(samples),
            Group::Wide => self.round_wide(samples),
            Group::Directories => self.round_directories(samples),
            Group::Data => self.round_data(samples),
            Group::Append => self.round_append(samples),
        }
    }

    fn round_names(&self, samples: &mut Samples) -> Outcome<()> {
        let calls = self.calls;
        let count = self.paths.len() as u64;
        let created = timed(count, || {
            for path in &self.paths {
                make(calls, path)?;
            }
            Ok(())
        })?;
        samples.add(CREATE, created);
        let renamed = timed(count, || {
            for (from, to) in self.paths.iter().zip(&self.others) {
                calls.rename(from, to)?;
            }
            Ok(())
        })?;
        samples.add(RENAME, renamed);
        let unlinked = timed(count, || {
            for path in &self.others {
                calls.unlink(path)?;
            }
            Ok(())
        })?;
        samples.add(UNLINK, unlinked);
        Ok(())
    }

    fn round_directories(&self, samples: &mut Samples) -> Outcome<()> {
        let calls = self.calls;
        let count = self.paths.len() as u64;
        let made = timed(count, || {
            for path in &self.paths {
                calls.make_directory(path)?;
            }
            Ok(())
        })?;
        samples.add(MAKE_DIRECTORY, made);
        let removed = timed(count, || {
            for path in &self.paths {
                calls.remove_directory(path)?;
            }
            Ok(())
        })?;
        samples.add(REMOVE_DIRECTORY, removed);
        Ok(())
    }

    fn round_deep(&self, samples: &mut Samples) -> Outcome<()> {
        let path = &self.paths[0];
        self.lookups(samples, OPEN_DEEP, STAT_DEEP, |_| path)
    }

    fn round_wide(&self, samples: &mut Samples) -> Outcome<()> {
        self.lookups(samples, OPEN_WIDE, STAT_WIDE, |turn| {
            &self.paths[self.random[turn as usize] as usize]
        })?;
        let entries = self.scale.wide + 2;
        let listed = timed(entries, || match self.calls.list(&self.directory)? {
            found if found == entries => Ok(()),
            found => Err(format!("{found} entries listed, not {entries}")),
        })?;
        samples.add(LIST, listed);
        Ok(())
    }

    fn lookups<'p>(
        &self,
        samples: &mut Samples,
        open: &'static str,
        stat: &'static str,
        path: impl Fn(u64) -> &'p CString,
    ) -> Outcome<()> {
        let calls = self.calls;
        let turns = self.scale.lookups;
        let opened = timed(turns, || {
            for turn in 0..turns {
                calls.close(calls.open(path(turn), libc::O_RDONLY)?);
            }
            Ok(())
        })?;
        samples.add(open, opened);
        let told = timed(turns, || {
            for turn in 0..turns {
                calls.stat(path(turn))?;
            }
            Ok(())
        })?;
        samples.add(stat, told);
        Ok(())
    }

    fn round_data(&mut self, samples: &mut Samples) -> Outcome<()> {
        let calls = self.calls;
        let Some(file) = self.file else {
            return Ok(());
        };
        let pages = (self.scale.data / PAGE).min(self.scale.lookups);
        let page = PAGE as usize;
        let data = &mut self.buffer;
        let written = timed(pages, || {
            (0..pages).try_for_each(|at| calls.write(file, &data[..page], at * PAGE))
        })?;
        samples.add(OVERWRITE, written);
        let mut random = self.random.iter();
        let written = timed(self.random.len() as u64, || {
            random.try_for_each(|at| calls.write(file, &data[..page], at * PAGE))
        })?;
        samples.add(OVERWRITE_RANDOM, written);
        let read = timed(pages, || {
            (0..pages).try_for_each(|at| calls.read(file, &mut data[..page], at * PAGE))
        })?;
        samples.add(READ, read);
        let mut random = self.random.iter();
        let read = timed(self.random.len() as u64, || {
            random.try_for_each(|at| calls.read(file, &mut data[..page], at * PAGE))
        })?;
        samples.add(READ_RANDOM, read);
        let pieces = self.scale.data / LARGE;
        let read = timed(pieces, || {
            (0..pieces).try_for_each(|at| calls.read(file, data, at * LARGE))
        })?;
        samples.add(READ_LARGE, read);
        let written = timed(pieces, || {
            (0..pieces).try_for_each(|at| calls.write(file, data, at * LARGE))
        })?;
        samples.add(OVERWRITE_LARGE, written);
        Ok(())
    }

    fn round_append(&self, samples: &mut Samples) -> Outcome<()> {
        let calls = self.calls;
        let path = &self.paths[0];
        let file = calls.open(path, CREATE_FLAGS | libc::O_APPEND)?;
        let pages = self.scale.appended / PAGE;
        let data = &self.buffer[..PAGE as usize];
        let appended = timed(pages, || {
            (0..pages).try_for_each(|_| calls.append(file, data))
        })?;
        samples.add(APPEND, appended);
        calls.close(file);
        calls.unlink(path)
    }

    /// Removes what was prepared.
    pub fn finish(self) -> Outcome<()> {
        if let Some(file) = self.file {
            self.calls.close(file);
        }
        if matches!(self.group, Group::Deep | Group::Wide | Group::Data) {
            for path in &self.paths {
                self.calls.unlink(path)?;
            }
        }
        if self.group == Group::Deep {
            for directory in self.others.iter().rev() {
                self.calls.remove_directory(directory)?;
            }
        }
        self.calls.remove_directory(&self.directory)
    }
}
