//! What FxMark (Min et al., USENIX ATC'16) has writers do who share: MWCM (all create files in one directory), MWUM (all unlink
//! their own files in one directory), and DWOM (all overwrite blocks of one file), here of two users. FxMark counts how fast
//! it is; here each answer is compared with what is there.
//!
//! In a block is one number, over and over, of who wrote it and as the how manyth. By that, every read is judged: what has been
//! overwritten as far as the reader knows does not come back, and where the file is mediated nobody sees a mixture.

use super::Case;
use super::board::Board;
use super::check;
use super::shared::{Worked, fairly, shared};
use super::world::{ANN, BOB, ROOT, Session, User, World, plain};
use arck_testkit::{Random, Shorthand};
use arckfs::{At, Errno, Handle, Mediation};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zerocopy::FromZeros;

pub const ALL: &[Case] = &[("what_fxmark_has_two_do", |seed| {
    for &(name, work) in ROWS {
        fairly(name, || run(name, work, seed));
    }
})];

/// What both do.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    /// Files with names of one's own, in one directory.
    Create,
    /// The same, of files that are there.
    Unlink,
    /// Blocks of one file that is written as said: both the same, or each its own.
    Write(Mediation, Blocks),
}

#[derive(Clone, Copy, PartialEq)]
enum Blocks {
    Same,
    Own,
}

const ROWS: &[(&str, Work)] = &[
    ("MWCM", Work::Create),
    ("MWUM", Work::Unlink),
    ("DWOM, by owners", Work::Write(Mediation::Off, Blocks::Own)),
    ("DWOM, by messages", Work::Write(Mediation::On, Blocks::Own)),
    (
        "DWOM, as is found",
        Work::Write(Mediation::Auto, Blocks::Own),
    ),
    (
        "DWOM, one block, by owners",
        Work::Write(Mediation::Off, Blocks::Same),
    ),
    (
        "DWOM, one block, by messages",
        Work::Write(Mediation::On, Blocks::Same),
    ),
    (
        "DWOM, one block, as is found",
        Work::Write(Mediation::Auto, Blocks::Same),
    ),
];

const PAIR: [User; 2] = [ANN, BOB];
const DIRECTORY: &str = "/common";
const FILE: &str = "/file";
const BLOCK: usize = 4096;
/// Blocks are written for so long.
const FOR: Duration = Duration::from_millis(700);
/// Files of each. That takes hundreds of leases.
const FILES: u64 = 15_000;
const READY: usize = 0;

#[derive(FromZeros)]
#[repr(C)]
struct Figures {
    /// Up to the moment at which the first ends, who has the other's count then.
    worked: [Worked; PAIR.len()],
    /// Operations of each, all of them.
    done: [AtomicU64; PAIR.len()],
    over: AtomicU64,
    /// Blocks read of which not all was of one write.
    mixtures: AtomicU64,
}

impl AsRef<[Worked]> for Figures {
    fn as_ref(&self) -> &[Worked] {
        &self.worked
    }
}

/// One of both.
struct Worker<'f> {
    session: &'f Session,
    figures: &'f Figures,
    who: usize,
    done: u64,
}

impl Worker<'_> {
    /// A call that has to succeed.
    fn call<T>(&self, what: &str, call: impl FnOnce(&Session) -> Result<T, Errno>) -> T {
        let result = self.figures.worked[self.who].call(|| call(self.session));
        result.unwrap_or_else(|errno| panic!("{what} {} of {}: {errno}", self.done, self.who))
    }

    fn end(&mut self) {
        self.done += 1;
        self.figures.done[self.who].store(self.done, Ordering::SeqCst);
        // Only what both do at the same time counts for what is fair.
        if self.figures.over.load(Ordering::SeqCst) == 0 {
            self.figures.worked[self.who].end(true);
        }
    }

    fn create_all(&mut self) {
        for number in 0..FILES {
            let path = own_path(self.who, number);
            self.call("create", |session| create(session, &path));
            self.end();
            if number.is_multiple_of(16) {
                assert_eq!(create(self.session, &path), Err(Errno::EXIST));
            }
        }
    }

    /// In no order, so that all of the directory is changed by both.
    fn unlink_all(&mut self, random: &mut Random) {
        let mut left: Vec<u64> = (0..FILES).collect();
        while !left.is_empty() {
            let number = left.swap_remove(random.below(left.len() as u64) as usize);
            let path = own_path(self.who, number);
            self.call("unlink", |session| session.unlink(&path));
            self.end();
            if number.is_multiple_of(16) {
                assert_eq!(self.session.unlink(&path), Err(Errno::NOENT));
            }
        }
    }

    fn write_all(&mut self, mediation: Mediation, blocks: Blocks, until: Instant) {
        let opened = self.session.0.open_at_root(FILE, libc::O_RDWR);
        let handle = plain(opened).expect("open");
        let at = block_of(self.who, blocks);
        let other = 1 - self.who;
        // The last one of the other's that was seen.
        let mut seen = 0;
        while Instant::now() < until {
            let stamp = stamp(self.who, self.done + 1);
            let bytes = stamp.to_le_bytes().repeat(BLOCK / 8);
            let written = self.call("write", |session| session.0.write(handle, &bytes, Some(at)));
            assert_eq!(written, BLOCK);
            self.end();
            let read = self.call("read", |session| read_block(session, handle, at));
            let Some(read) = one_stamp(&read) else {
                let (words, _) = read.as_chunks::<8>();
                let words: BTreeSet<u64> = words.iter().map(|w| u64::from_le_bytes(*w)).collect();
                assert!(mediation != Mediation::On, "a mixture, of {words:x?}");
                assert!(blocks == Blocks::Same, "nobody else writes this");
                self.figures.mixtures.fetch_add(1, Ordering::SeqCst);
                continue;
            };
            if read == stamp {
                continue;
            }
            let number = number_of(other, read);
            assert!(
                blocks == Blocks::Same && number > seen,
                "{} has written {stamp:#x} and reads {read:#x}, last of the other's {seen}",
                self.who
            );
            seen = number;
        }
        self.session.0.close(handle);
    }
}

fn own_path(who: usize, number: u64) -> String {
    format!("{DIRECTORY}/{who}-{number}")
}

fn create(session: &Session, path: &str) -> Result<(), Errno> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
    let handle = plain(session.0.open_at_root(path, flags))?;
    session.0.close(handle);
    Ok(())
}

fn block_of(who: usize, blocks: Blocks) -> u64 {
    match blocks {
        Blocks::Same => 0,
        Blocks::Own => (who * BLOCK) as u64,
    }
}

fn stamp(who: usize, number: u64) -> u64 {
    (who as u64 + 1) << 48 | number
}

fn number_of(who: usize, read: u64) -> u64 {
    let number = read.wrapping_sub(stamp(who, 0));
    assert!(number < 1 << 48, "{read:#x} is of nobody");
    number
}

fn read_block(session: &Session, handle: Handle, at: u64) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; BLOCK];
    let read = session.0.read(handle, &mut bytes, Some(at))?;
    assert_eq!(read, BLOCK);
    Ok(bytes)
}

/// The one of which a block consists.
fn one_stamp(block: &[u8]) -> Option<u64> {
    let (words, _) = block.as_chunks::<8>();
    let first = words[0];
    let is_whole = words.iter().all(|word| *word == first);
    is_whole.then(|| u64::from_le_bytes(first))
}

fn prepare(session: &Session, work: Work) {
    session.mkdir(DIRECTORY, 0o777);
    match work {
        Work::Create => {}
        Work::Unlink => {
            for number in 0..FILES {
                for who in 0..PAIR.len() {
                    create(session, &own_path(who, number)).expect("create");
                }
            }
        }
        Work::Write(mediation, _) => {
            session.put(FILE, &[0; 2 * BLOCK], 0o666);
            let set = session
                .0
                .set_mediation(At::Root, FILE.as_bytes(), mediation);
            set.expect("its owner may");
        }
    }
}

fn run(name: &'static str, work: Work, seed: u64) -> &'static Figures {
    let mut world = World::new(256 << 20);
    world.as_user(ANN, |ann| prepare(ann, work));
    let board = Board::new();
    let figures: &'static Figures = shared();
    let start = |(who, user)| {
        board.start(&world, user, move |session| {
            let mut worker = Worker {
                session,
                figures,
                who,
                done: 0,
            };
            board.add(READY);
            board.wait(READY, PAIR.len() as u64);
            let until = Instant::now() + FOR;
            match work {
                Work::Create => worker.create_all(),
                Work::Unlink => worker.unlink_all(&mut Random::new(seed * 2 + who as u64)),
                Work::Write(mediation, blocks) => worker.write_all(mediation, blocks, until),
            }
            figures.over.store(1, Ordering::SeqCst);
            let is_mediated = matches!(work, Work::Write(Mediation::On, _));
            let owns = || session.0.owns(At::Root, FILE.as_bytes());
            assert!(!is_mediated || !owns().expect("a file"), "{name}: owned");
        })
    };
    let children: Vec<_> = PAIR.into_iter().enumerate().map(start).collect();
    for child in children {
        child.ended(name);
    }
    let done = [0, 1].map(|who: usize| figures.done[who].load(Ordering::SeqCst));
    world.as_user(ROOT, |root| look(root, work, done));
    assert_eq!(world.violations(), "", "{name}");
    world.stop();
    check::check(&world.pool());
    let mixtures = figures.mixtures.load(Ordering::SeqCst);
    println!("{name}: {done:?} operations, {mixtures} mixtures read");
    figures
}

/// What is there is what both have done.
fn look(session: &Session, work: Work, done: [u64; 2]) {
    let names = session.names(DIRECTORY).expect("readdir");
    let names: BTreeSet<String> = names.into_iter().collect();
    match work {
        Work::Create => {
            let all = (0..2 * FILES).map(|at| format!("{}-{}", at % 2, at / 2));
            assert!(names == all.collect(), "{} names", names.len());
        }
        Work::Unlink => assert!(names.is_empty(), "{names:?}"),
        Work::Write(_, blocks) => {
            let handle = plain(session.0.open_at_root(FILE, libc::O_RDONLY)).expect("open");
            let last = [0, 1].map(|who| stamp(who, done[who]));
            let read = [0, 1].map(|who| {
                let block = read_block(session, handle, block_of(who, blocks)).expect("read");
                one_stamp(&block).expect("a block is of one write in the end")
            });
            match blocks {
                Blocks::Own => assert_eq!(read, last),
                Blocks::Same => assert!(last.contains(&read[0]), "{read:x?}, not of {last:x?}"),
            }
            session.0.close(handle);
        }
    }
}
