//! Honest sessions of every LibFS (`under_test`): whole values of small files, set, read, taken away and listed in a
//! directory of each one's own, while attackers are at work.
//!
//! # Invariants
//! * A value says itself what it has to be, so that whoever reads it can tell: no two are alike.
//! * Who works believes nothing that it has not compared with its own record.

use super::honest::{Times, serve_rounds};
use super::process::become_user;
use super::world::{COMMON, VALUES};
use arck_testkit::under_test::{Files, LIBFSES, LibFs};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;

const SLOTS: usize = 5;
/// Rounds in which something is changed, and after them each tenth one: while a session has not come back to another
/// controller, what all others remove is kept, and a small pool would be full of it.
const CHANGING: usize = 300;

/// Which value it is, its length, and bytes that follow from both.
fn value(version: usize) -> Vec<u8> {
    let length = 8 + version * 977 % 20_000;
    let head = [version as u32, length as u32].map(u32::to_le_bytes);
    let rest = (8..length).map(|at| (at * 31 + at / 251 + version * 7) as u8);
    head.concat().into_iter().chain(rest).collect()
}

/// That a value is one that somebody has set, and all of it.
fn assert_whole(name: &str, bytes: &[u8]) {
    let version = bytes.first_chunk().map(|head| u32::from_le_bytes(*head));
    let version = version.unwrap_or_else(|| panic!("{name} is {} bytes", bytes.len()));
    assert!(bytes == value(version as usize), "{name} is no whole value");
}

fn directory_of(libfs: &dyn LibFs) -> String {
    format!("{VALUES}/{}", libfs.name())
}

/// One that works.
struct Worker {
    files: Box<dyn Files>,
    values: BTreeMap<String, Vec<u8>>,
    round: usize,
    times: Times,
}

impl Worker {
    fn call<T>(&mut self, call: impl FnOnce(&dyn Files) -> Result<T, Errno>) -> T {
        let round = self.round;
        let answer = self.times.of(|| call(&*self.files));
        answer.unwrap_or_else(|errno| panic!("round {round}: {errno}"))
    }

    fn check(&mut self, name: &str) {
        let got = self.call(|files| files.get(name));
        let (known, round) = (self.values.get(name), self.round);
        assert!(got.as_ref() == known, "round {round}: {name} is another");
    }

    fn round(&mut self) {
        self.round += 1;
        let name = format!("value-{}", self.round % SLOTS);
        self.check(&name);
        if self.round > CHANGING && !self.round.is_multiple_of(10) {
            return;
        }
        let new = value(self.round);
        match self.times.of(|| self.files.replace(&name, &new)) {
            Ok(()) => drop(self.values.insert(name.clone(), new)),
            // Then all is as it was.
            Err(Errno::NOSPC) => {}
            Err(errno) => panic!("round {}: {errno}", self.round),
        }
        self.check(&name);
        if self.round % 7 == 3 {
            let was_there = self.values.remove(&name).is_some();
            assert_eq!(self.call(|files| files.delete(&name)), was_there);
            self.check(&name);
        }
        if self.round % 5 == 1 {
            let release = self.round.is_multiple_of(2);
            self.call(|files| files.fold(release));
        }
        let names: Vec<_> = self.values.keys().cloned().collect();
        assert_eq!(self.call(|files| files.list()), names);
    }
}

/// The role: works with a LibFS until it is told no more.
pub fn worker(pool: &Path, name: &str) {
    become_user();
    let libfs = LIBFSES.iter().find(|libfs| libfs.name() == name);
    let libfs = libfs.expect("a LibFS");
    let mut worker = Worker {
        files: libfs.open(pool, &directory_of(*libfs)),
        values: BTreeMap::new(),
        round: 0,
        times: Times::default(),
    };
    for _ in 0..SLOTS {
        worker.round();
    }
    serve_rounds(|| worker.round());
    for slot in 0..SLOTS {
        worker.check(&format!("value-{slot}"));
    }
    let Worker {
        files,
        round,
        times,
        ..
    } = worker;
    drop(files);
    times.tell(round);
}

/// What a session that was not there before finds, by every LibFS: each value of everybody is a whole one, and it can
/// set some of its own.
pub fn look(pool: &Path) {
    for reader in LIBFSES {
        for owner in LIBFSES {
            let files = reader.open(pool, &directory_of(owner));
            for name in files.list().expect("names") {
                // It may be gone meanwhile.
                if let Some(bytes) = files.get(&name).expect("a value") {
                    assert_whole(&name, &bytes);
                }
            }
        }
        let own = reader.open(pool, &format!("{COMMON}/third-values"));
        own.replace("own", &value(5)).expect("a value");
        assert_eq!(own.get("own"), Ok(Some(value(5))));
        assert_eq!(own.delete("own"), Ok(true));
    }
}
