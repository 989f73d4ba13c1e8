//! A log in several processes: of one trust group and of none, at once, killed in the middle, forked.
//!
//! Invariant: a record says whose it is and the how-manieth, and its bytes follow from that; so a stream can be taken
//! to pieces, and whatever is torn, lost, doubled or out of order is found.

use arck_logfs::{Log, Options};
use arck_testkit::harness::{self, trial};
use arck_testkit::{Random, Shorthand, TestPool, connect};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    harness::run(vec![
        trial("processes of a group append at once", || at_once("g")),
        trial("processes of no group append at once", || at_once("")),
        trial("members of a group are killed while they append", || {
            killed("g", 12)
        }),
        trial("processes of no group are killed while they append", || {
            killed("", 6)
        }),
        trial("followers see all, in order", followed),
        trial("a forked child has the log, too", forked),
    ])
}

const SECTION: u64 = 100_000;

fn open(pool: &Path, group: &str) -> Log {
    let options = Options {
        make: true,
        section: SECTION,
        group: group.to_owned(),
        ..Options::new(pool)
    };
    Log::open(options, "log").expect("a log")
}

const HEAD: usize = 16;

fn record(writer: u32, count: u32) -> Vec<u8> {
    let length =
        HEAD as u32 + (count * 37 + writer) % 500 + if count.is_multiple_of(50) { 9000 } else { 0 };
    let mut record = Vec::with_capacity(length as usize);
    for word in [0x5245_434f, writer, count, length] {
        record.extend(u32::to_le_bytes(word));
    }
    let fill = HEAD as u32..length;
    record.extend(fill.map(|at| (at * 7 + writer * 31 + count) as u8));
    record
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at * 4..].first_chunk().expect("a word"))
}

/// The counts of each writer, and where each record is; panics at what is no record.
fn records(bytes: &[u8]) -> BTreeMap<u32, Vec<(u32, u64)>> {
    let mut found: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
    let mut at = 0;
    while at < bytes.len() {
        assert!(
            bytes.len() - at >= HEAD,
            "torn at {at}, {} bytes",
            bytes.len()
        );
        let (writer, count) = (word(&bytes[at..], 1), word(&bytes[at..], 2));
        let expected = record(writer, count);
        assert!(
            bytes[at..].starts_with(&expected),
            "torn at {at}: {writer}, {count}"
        );
        found.entry(writer).or_default().push((count, at as u64));
        at += expected.len();
    }
    found
}

/// A child that runs `work`, and can tell something by a pipe.
struct Child {
    process: libc::pid_t,
    told: File,
}

impl Child {
    fn of(work: impl FnOnce(&mut File)) -> Child {
        let (from, to) = std::io::pipe().expect("a pipe");
        // SAFETY: the child runs `work` and ends without coming back.
        let process = unsafe { libc::fork() };
        assert!(process >= 0, "fork");
        if process == 0 {
            drop(from);
            let mut to = File::from(OwnedFd::from(to));
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut to)));
            // SAFETY: the child of a process with threads ends at once.
            unsafe { libc::_exit(i32::from(done.is_err())) };
        }
        let told = File::from(OwnedFd::from(from));
        Child { process, told }
    }

    fn kill(&self) {
        // SAFETY: a child of this process that nobody has waited for.
        unsafe { libc::kill(self.process, libc::SIGKILL) };
    }

    /// Waits for its end; gives its status, and what it has told.
    fn end(mut self) -> (i32, Vec<u8>) {
        let mut told = Vec::new();
        self.told.read_to_end(&mut told).expect("the pipe");
        let mut status = 0;
        // SAFETY: a child of this process, and a number to write.
        let ended = unsafe { libc::waitpid(self.process, &raw mut status, 0) };
        assert_eq!(ended, self.process);
        (status, told)
    }
}

/// Appends records until `most`, and tells the position of each as soon as it is acknowledged.
fn append(log: &Log, writer: u32, most: u32, to: &mut File) {
    for count in 0..most {
        let position = log.append(&record(writer, count)).expect("append");
        to.write_all(&position.to_le_bytes()).expect("the pipe");
    }
}

fn positions(told: &[u8]) -> Vec<u64> {
    let (words, _) = told.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// All of the log by a session that comes then, and the same as files.
fn whole(pool: &Path) -> Vec<u8> {
    let log = open(pool, "");
    let end = log.end().expect("end");
    let mut bytes = vec![0; end as usize];
    assert_eq!(log.read_at(0, &mut bytes).expect("read") as u64, end);
    drop(log);
    let files = connect(pool);
    let names = files.names("log").expect("names").into_iter();
    let names = names.filter(|name| name != ".limit");
    let all = names.flat_map(|name| files.get(&format!("log/{name}")).expect("a section"));
    assert!(
        all.collect::<Vec<u8>>() == bytes,
        "the files are another stream"
    );
    bytes
}

/// That the first records of a writer are all there, where it was told, and no more than `more` besides.
fn assert_all(found: &[(u32, u64)], told: &[u64], more: usize, of: &str) {
    let counts = found.iter().map(|one| one.0);
    assert!(
        counts.eq(0..found.len() as u32),
        "{of}: lost, doubled or out of order"
    );
    let there = found.iter().map(|one| one.1);
    assert!(
        told.iter().copied().eq(there.take(told.len())),
        "{of}: elsewhere"
    );
    assert!(
        (told.len()..=told.len() + more).contains(&found.len()),
        "{of}: {}",
        found.len()
    );
}

/// Two processes, of two threads each.
fn at_once(group: &'static str) {
    const EACH: u32 = 600;
    let pool = TestPool::new(256 << 20);
    let path: PathBuf = pool.path();
    drop(open(&path, group));
    let work = |process: u32| {
        let path = path.clone();
        Child::of(move |to| {
            let log = open(&path, group);
            let (log, mut other) = (&log, to.try_clone().expect("the pipe"));
            std::thread::scope(|scope| {
                let _one = scope.spawn(move || append(log, 2 * process, EACH, &mut other));
                for count in 0..EACH {
                    log.append(&record(2 * process + 1, count)).expect("append");
                }
            });
        })
    };
    let children = [0, 1].map(work);
    let told = children.map(Child::end);
    let found = records(&whole(&path));
    assert_eq!(found.len(), 4);
    for (process, (status, told)) in told.iter().enumerate() {
        assert_eq!(*status, 0, "process {process}");
        let (told, first) = (positions(told), 2 * process as u32);
        assert_eq!(told.len() as u32, EACH);
        assert_all(&found[&first], &told, 0, "a thread that told");
        assert_eq!(found[&(first + 1)].len() as u32, EACH);
        assert_all(&found[&(first + 1)], &[], EACH as usize, "a thread");
    }
    assert_eq!(pool.violations(), "");
}

/// Writers are killed at some moment; one that is not goes on, and a new one comes.
fn killed(group: &'static str, rounds: u32) {
    let pool = TestPool::new(256 << 20);
    let path: PathBuf = pool.path();
    drop(open(&path, group));
    let mut random = Random::new(u64::from(rounds) * 77);
    let survivor = {
        let path = path.clone();
        Child::of(move |to| append(&open(&path, group), 1000, 400, to))
    };
    let mut all: Vec<Vec<u8>> = Vec::new();
    for round in 0..rounds {
        let work = |writer: u32| {
            let path = path.clone();
            Child::of(move |to| append(&open(&path, group), writer, u32::MAX, to))
        };
        let mut children = [2 * round, 2 * round + 1].map(work);
        // They have begun, and are somewhere in the middle.
        for child in &mut children {
            let mut first = [0; 8];
            child.told.read_exact(&mut first).expect("a first record");
            all.push(first.to_vec());
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        for (at, child) in children.into_iter().enumerate() {
            child.kill();
            let (status, told) = child.end();
            assert_eq!(status & 0x7f, libc::SIGKILL, "it ended by itself");
            all[2 * round as usize + at].extend(told);
        }
    }
    let (status, told) = survivor.end();
    assert_eq!(status, 0, "who was not killed goes on");
    let last = Child::of(move |to| append(&open(&path, group), 1001, 50, to)).end();
    assert_eq!(last.0, 0, "who comes afterwards");
    let found = records(&whole(&pool.path()));
    for (writer, told) in all.iter().enumerate() {
        let of = format!("group {group:?}, writer {writer}");
        let none = Vec::new();
        let there = found.get(&(writer as u32)).unwrap_or(&none);
        // The one that it was at when it was killed.
        assert_all(there, &positions(told), 1, &of);
    }
    assert_all(&found[&1000], &positions(&told), 0, "who was not killed");
    assert_all(&found[&1001], &positions(&last.1), 0, "who came afterwards");
    assert_eq!(pool.violations(), "");
}

/// A process of the group, and one of no group, follow while two append; one follower comes later.
fn followed() {
    const EACH: u32 = 1500;
    let pool = TestPool::new(256 << 20);
    let path: PathBuf = pool.path();
    drop(open(&path, "g"));
    let end: u64 = (0..2)
        .flat_map(|writer| (0..EACH).map(move |count| record(writer, count).len() as u64))
        .sum();
    let follow = |group: &'static str, step: usize| {
        let path = path.clone();
        Child::of(move |to| {
            let log = open(&path, group);
            let mut follower = log.follow(0).expect("a follower");
            let mut all = Vec::new();
            let mut buffer = vec![0; step];
            let begun = Instant::now();
            while (all.len() as u64) < end {
                let read = follower.next(&mut buffer, Duration::from_secs(20));
                let read = read.expect("next");
                assert!(read > 0, "nothing came for 20 s at {}", all.len());
                all.extend_from_slice(&buffer[..read]);
                assert!(begun.elapsed() < Duration::from_secs(60), "too slow");
            }
            assert_eq!(
                follower.next(&mut buffer, Duration::from_millis(1)).ok(),
                Some(0)
            );
            let found = records(&all);
            for writer in 0..2 {
                assert_all(&found[&writer], &[], EACH as usize, "followed");
            }
            to.write_all(b"seen").expect("the pipe");
        })
    };
    let write = |writer: u32| {
        let path = path.clone();
        Child::of(move |to| append(&open(&path, "g"), writer, EACH, to))
    };
    let mut children = vec![follow("g", 5000), follow("", 777), follow("", 1 << 20)];
    let writers = [0, 1].map(write);
    children.push(follow("g", 100));
    for writer in writers {
        assert_eq!(writer.end().0, 0, "a writer");
    }
    for child in children {
        assert_eq!(child.end(), (0, b"seen".to_vec()), "a follower");
    }
}

fn forked() {
    let pool = TestPool::new(64 << 20);
    for group in ["", "g"] {
        let log = open(&pool.path(), group);
        let begin = log.append(&record(0, 0)).expect("append");
        let child = Child::of(|to| {
            let mut read = record(0, 0);
            read.fill(0);
            assert_eq!(log.read_at(begin, &mut read).expect("read"), read.len());
            assert_eq!(read, record(0, 0));
            append(&log, 1, 100, to);
            let mut follower = log.follow(begin).expect("a follower");
            assert!(follower.next(&mut read, Duration::ZERO).expect("next") > 0);
        });
        for count in 1..100 {
            log.append(&record(0, count)).expect("append");
        }
        assert_eq!(child.end().0, 0, "the child, group {group:?}");
        let end = log.end().expect("end");
        let mut bytes = vec![0; (end - begin) as usize];
        assert_eq!(log.read_at(begin, &mut bytes).expect("read"), bytes.len());
        let found = records(&bytes);
        assert_eq!((found[&0].len(), found[&1].len()), (100, 100));
        log.close().expect("close");
    }
}
