//! Eight processes of four users that create, rename and delete the same few names in one directory, which all may write.
//!
//! How it is known that nothing is lost and nothing done twice: each name has an account, of which all processes keep their
//! part. Who is told that he has created it, or renamed something to it where nothing was, adds one; who is told that he has
//! unlinked it, or renamed it away, takes one. In the end there is one file of that name, or none, as the account says. Where
//! renames may replace what is there, an account says it up to their number. And each file has the bytes of one creation.

use super::Case;
use super::board::Board;
use super::check;
use super::shared::{Worked, fairly, shared};
use super::world::{ANN, BOB, EVE, ROOT, Session, User, World, plain};
use arck_testkit::Random;
use arckfs::{At, Errno};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zerocopy::FromZeros;

pub const ALL: &[Case] = &[
    ("names_that_nobody_replaces", |seed| {
        fairly("storm", || storm(seed, false));
    }),
    ("names_that_others_replace", |seed| {
        fairly("storm", || storm(seed, true));
    }),
];

const DAN: User = User(1004, &[1004]);
const PROCESSES: [User; 8] = [ANN, BOB, EVE, DAN, ANN, BOB, EVE, DAN];
const NAMES: usize = 5;
const FOR: Duration = Duration::from_secs(3);
const READY: usize = 0;

#[derive(FromZeros)]
#[repr(C)]
struct Figures {
    worked: [Worked; PROCESSES.len()],
    /// Of each name: what came to be there less what went.
    accounts: [AtomicI64; NAMES],
    /// Of each name: renames to it that may have replaced something.
    replacing: [AtomicU64; NAMES],
}

impl AsRef<[Worked]> for Figures {
    fn as_ref(&self) -> &[Worked] {
        &self.worked
    }
}

fn path(name: usize) -> String {
    format!("/common/n{name}")
}

/// The bytes of a creation.
fn content(process: usize, number: u64) -> Vec<u8> {
    format!(
        "{process} {number} {:>width$}",
        ".",
        width = 1 + (number % 200) as usize
    )
    .into_bytes()
}

/// One of the processes.
struct Worker<'f> {
    session: &'f Session,
    figures: &'f Figures,
    process: usize,
    random: Random,
    replaces: bool,
    /// Files that it has made.
    made: u64,
}

impl Worker<'_> {
    /// An operation's only call, or its first: fails for an answer that is not allowed.
    fn call<T>(
        &self,
        what: &str,
        allowed: &[Errno],
        call: impl FnOnce(&Session) -> Result<T, Errno>,
    ) -> Option<T> {
        let worked = &self.figures.worked[self.process];
        match worked.call(|| call(self.session)) {
            Ok(value) => Some(value),
            Err(errno) if allowed.contains(&errno) => None,
            Err(errno) => panic!("process {}: {what}: {errno}", self.process),
        }
    }

    fn add(&self, name: usize, many: i64) {
        self.figures.accounts[name].fetch_add(many, Ordering::SeqCst);
    }

    fn create(&mut self, name: usize) -> bool {
        let path = path(name);
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        let opened = self.call("create", &[Errno::EXIST], |session| {
            plain(session.0.open(At::Root, path.as_bytes(), flags, 0o666))
        });
        let Some(handle) = opened else {
            return false;
        };
        self.add(name, 1);
        // Wherever it is by now.
        let bytes = content(self.process, self.made);
        self.made += 1;
        let written = self.call("write", &[], |session| {
            session.0.write(handle, &bytes, Some(0))
        });
        assert_eq!(written, Some(bytes.len()));
        let mut read = vec![0; bytes.len() + 1];
        let count = self.call("read", &[], |session| {
            session.0.read(handle, &mut read, Some(0))
        });
        assert_eq!(count, Some(bytes.len()));
        assert!(read[..bytes.len()] == bytes);
        self.call("close", &[], |session| {
            session.0.close(handle);
            Ok(())
        });
        true
    }

    fn rename(&self, from: usize, to: usize, flags: u32) -> bool {
        // What replaces is never told that something is there.
        let allowed: &[Errno] = match flags {
            libc::RENAME_NOREPLACE => &[Errno::NOENT, Errno::EXIST],
            _ => &[Errno::NOENT],
        };
        let renamed = self.call("rename", allowed, |session| {
            let (from, to) = (path(from), path(to));
            let (from, to) = (from.as_bytes(), to.as_bytes());
            plain(session.0.rename(At::Root, from, At::Root, to, flags))
        });
        if renamed.is_some() && flags != libc::RENAME_EXCHANGE {
            self.add(from, -1);
            self.add(to, 1);
            if flags == 0 {
                self.figures.replacing[to].fetch_add(1, Ordering::SeqCst);
            }
        }
        renamed.is_some()
    }

    fn step(&mut self) {
        let name = self.random.below(NAMES as u64) as usize;
        let other = (name + 1 + self.random.below(NAMES as u64 - 1) as usize) % NAMES;
        let done = match self.random.below(10) {
            0..=3 => self.create(name),
            4..=5 => self.rename(name, other, libc::RENAME_NOREPLACE),
            6 => self.rename(name, other, libc::RENAME_EXCHANGE),
            7 if self.replaces => self.rename(name, other, 0),
            _ => {
                let unlinked = self.call("unlink", &[Errno::NOENT], |session| {
                    session.unlink(&path(name))
                });
                if unlinked.is_some() {
                    self.add(name, -1);
                }
                unlinked.is_some()
            }
        };
        self.figures.worked[self.process].end(done);
    }
}

fn storm(seed: u64, replaces: bool) -> &'static Figures {
    let mut world = World::new(256 << 20);
    world.as_user(ANN, |ann| ann.mkdir("/common", 0o777));
    let board = Board::new();
    let figures: &'static Figures = shared();
    let start = |(process, user)| {
        board.start(&world, user, move |session| {
            // SAFETY: a number.
            unsafe { libc::umask(0) };
            let mut worker = Worker {
                session,
                figures,
                process,
                random: Random::new(seed.wrapping_mul(1000) + process as u64),
                replaces,
                made: 0,
            };
            board.add(READY);
            board.wait(READY, PROCESSES.len() as u64);
            let began = Instant::now();
            while began.elapsed() < FOR && !board.has_failed() {
                worker.step();
            }
        })
    };
    let children: Vec<_> = PROCESSES.into_iter().enumerate().map(start).collect();
    for child in children {
        child.ended("a process");
    }
    world.as_user(ROOT, |root| look(root, figures));
    assert_eq!(world.violations(), "", "seed {seed}");
    world.stop();
    let checked = check::check(&world.pool()).paths;
    assert!(checked.len() <= 1 + NAMES, "{checked:?}");
    let accounts: Vec<_> = (0..NAMES).map(|name| may_be_there(figures, name)).collect();
    println!("  {accounts:?}; {:?}", checked.keys());
    figures
}

/// How many files of a name there may be, as its account says.
fn may_be_there(figures: &Figures, name: usize) -> std::ops::RangeInclusive<i64> {
    let account = figures.accounts[name].load(Ordering::SeqCst);
    let replacing = figures.replacing[name].load(Ordering::SeqCst) as i64;
    account - replacing..=account
}

/// Everything there is as the accounts say, and each file whole.
fn look(session: &Session, figures: &Figures) {
    let names = session.names("/common").expect("readdir");
    let mut seen = BTreeMap::new();
    for name in 0..NAMES {
        let there = names.contains(&format!("n{name}"));
        let accounted = may_be_there(figures, name);
        assert!(
            accounted.contains(&i64::from(there)),
            "n{name} is there: {there}; its account: {accounted:?}"
        );
        if !there {
            assert_eq!(session.get(&path(name)), Err(Errno::NOENT));
            continue;
        }
        let bytes = session.get(&path(name)).expect("read");
        let text = String::from_utf8(bytes.clone()).expect("text");
        let numbers: Vec<&str> = text.split(' ').collect();
        let [process, number] = [0, 1].map(|at| numbers[at].parse::<u64>().expect("a number"));
        assert!(bytes == content(process as usize, number), "{text:?}");
        assert_eq!(seen.insert(text, name), None, "one file, two names");
    }
    assert_eq!(names.len(), seen.len(), "{names:?}");
}
