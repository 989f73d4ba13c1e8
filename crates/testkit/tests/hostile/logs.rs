//! Logs: an honest one beside every attack, and attacks on logs: files of it that another user may write and forges, and
//! what the members of its group share.
//!
//! # Invariants
//! * A record says itself what it has to be, so that whoever reads it can tell.
//! * Of a log that others may write its owner believes nothing but that each call returns, soon, with what it asked for or an error that
//!   is told.

use super::attacker::Attacker;
use super::holding::BOUNDED;
use super::honest::{Times, serve_rounds};
use super::membership;
use super::process::{ATTACK_BOUND, BOUND, Role, become_user, tell, told};
use super::table::{Attack, Scene, case};
use super::world::{ATTACKER, ATTACKER_USER, OPEN, VALUES, VICTIM_USER};
use arck_logfs::{Error, Follower, Log, Options};
use arck_testkit::{Random, Shorthand, connect};
use arckfs::{At, FileSystem};
use rustix::io::Errno;
use std::cell::Cell;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a section of the honest log: few files, each of which somebody else has to be shown.
const OWN_SECTION: u64 = 30_000;
/// Records of it are kept for so many bytes.
const KEPT: u64 = 2 * OWN_SECTION;
/// Rounds in which something is appended, and after them each tenth one: who reads all that there is has to come to an end.
const CHANGING: usize = 300;
/// Bytes of a section of the one that is forged.
const SECTION: u64 = 5000;
const HEAD: usize = 8;
/// So long an attacker forges at once.
const FORGES: Duration = Duration::from_millis(700);
const GROUP: &str = "logging";
/// So long it goes on beside others that work.
const ROUNDS: u64 = 6;

/// Where the honest log is.
pub fn own() -> String {
    format!("{VALUES}/log")
}

fn record(count: usize) -> Vec<u8> {
    let length = HEAD + 1 + count * 97 % 900;
    let head = [count as u32, length as u32].map(u32::to_le_bytes);
    let rest = (HEAD..length).map(|at| (at * 13 + count * 5) as u8);
    head.concat().into_iter().chain(rest).collect()
}

/// That bytes are whole records, one behind the other.
fn assert_records(mut bytes: &[u8]) {
    let mut before = None;
    while !bytes.is_empty() {
        let head = bytes.first_chunk().map(|head| u32::from_le_bytes(*head));
        let count = head.unwrap_or_else(|| panic!("{} bytes are left", bytes.len())) as usize;
        let rest = bytes.strip_prefix(&record(count)[..]);
        bytes = rest.unwrap_or_else(|| panic!("record {count} is torn"));
        assert!(before.is_none_or(|before| before + 1 == count), "{count}");
        before = Some(count);
    }
}

fn options(pool: &Path, section: u64, mode: u32) -> Options {
    Options {
        make: true,
        section,
        mode,
        ..Options::new(pool)
    }
}

/// One that appends, reads, follows and cuts, and has a record of its own of all that.
struct Logger<'l> {
    log: &'l Log,
    follower: Follower<'l>,
    begin: u64,
    bytes: Vec<u8>,
    followed: u64,
    count: usize,
    round: usize,
    times: Times,
}

impl Logger<'_> {
    fn call<T>(&mut self, call: impl FnOnce(&Log) -> Result<T, Error>) -> T {
        let round = self.round;
        let answer = self.times.of(|| call(self.log));
        answer.unwrap_or_else(|error| panic!("the log, round {round}: {error}"))
    }

    fn append(&mut self) {
        let records = [record(self.count), record(self.count + 1)];
        let appended = match self.count % 3 {
            0 => self
                .times
                .of(|| self.log.append(&records[0]))
                .map(|at| (at, 1)),
            1 => {
                let both = [&records[0][..], &records[1]];
                self.times
                    .of(|| self.log.append_all(&both))
                    .map(|at| (at, 2))
            }
            _ => self.times.of(|| {
                let first = self.log.enqueue(&records[0])?;
                let second = self.log.enqueue(&records[1])?;
                self.log.commit(&second)?;
                Ok((self.log.commit(&first)?, 2))
            }),
        };
        match appended {
            Ok((at, count)) => {
                assert_eq!(at, self.begin + self.bytes.len() as u64);
                records[..count]
                    .iter()
                    .for_each(|one| self.bytes.extend(one));
                self.count += count;
            }
            // Then there is nothing of it.
            Err(error) if error.errno() == Errno::NOSPC => {}
            Err(error) => panic!("the log, round {}: {error}", self.round),
        }
    }

    fn follow(&mut self) {
        let mut buffer = [0; 3000];
        loop {
            let next = self
                .times
                .of(|| self.follower.next(&mut buffer, Duration::ZERO));
            let read = next.unwrap_or_else(|error| panic!("round {}: {error}", self.round));
            if read == 0 {
                break;
            }
            let at = (self.followed - self.begin) as usize;
            assert!(
                self.bytes[at..].starts_with(&buffer[..read]),
                "what follows"
            );
            self.followed += read as u64;
        }
        assert_eq!(self.followed, self.begin + self.bytes.len() as u64);
    }

    fn check(&mut self) {
        let (begin, length) = (self.begin, self.bytes.len());
        let mut read = vec![0; length + 1];
        let got = self.call(|log| log.read_at(begin, &mut read));
        assert_eq!(got, length, "round {}", self.round);
        assert!(read[..got] == self.bytes, "round {}", self.round);
    }

    fn round(&mut self) {
        self.round += 1;
        if self.round > CHANGING && !self.round.is_multiple_of(10) {
            return;
        }
        self.append();
        self.follow();
        if self.bytes.len() as u64 > KEPT {
            let position = self.begin + KEPT / 2;
            self.call(|log| log.cut(position));
            let begin = self.call(Log::begin);
            let before = std::mem::replace(&mut self.begin, begin);
            assert!(before <= self.begin && self.begin <= position);
            self.bytes.drain(..(self.begin - before) as usize);
        }
        if self.round.is_multiple_of(30) {
            self.check();
        }
    }
}

/// The role: works with a log of its own until it is told no more.
pub fn logger(pool: &Path) {
    become_user();
    let log = Log::open(options(pool, OWN_SECTION, 0o644), &own()).expect("a log");
    let mut logger = Logger {
        log: &log,
        follower: log.follow(0).expect("a follower"),
        begin: 0,
        bytes: Vec::new(),
        followed: 0,
        count: 0,
        round: 0,
        times: Times::default(),
    };
    logger.round();
    serve_rounds(|| logger.round());
    logger.check();
    let Logger { round, times, .. } = logger;
    drop(log);
    times.tell(round);
}

/// What a session that was not there before finds: whole records, to which it can add nothing.
pub fn look(pool: &Path) {
    let log = Log::open(Options::new(pool), &own()).expect("a log");
    let begin = log.begin().expect("where it begins");
    // Its owner goes on.
    let end = log.end().expect("where it ends");
    let mut bytes = vec![0; (end - begin) as usize];
    match log.read_at(begin, &mut bytes) {
        Ok(read) => {
            assert_eq!(read, bytes.len());
            assert_records(&bytes);
        }
        Err(Error::Cut { .. }) => {}
        Err(error) => panic!("another's log: {error}"),
    }
    if super::process::has_users() {
        let refused = log
            .append(b"by somebody else")
            .expect_err("it is the victim's");
        assert_eq!(refused.errno(), Errno::ACCESS, "{refused}");
    }
}

/// Where the log is that its owner lets everybody write.
fn open_to_all() -> String {
    format!("{OPEN}/log")
}

/// What an honest call may say of a log that others spoil.
fn is_told(error: &Error) -> bool {
    [
        Errno::BADMSG,
        Errno::NODATA,
        Errno::NOENT,
        Errno::INVAL,
        Errno::FBIG,
        Errno::NOSPC,
        Errno::ACCESS,
        Errno::PERM,
        Errno::AGAIN,
        Errno::IO,
        Errno::STALE,
        Errno::ISDIR,
    ]
    .contains(&error.errno())
}

/// The role: uses a log that others forge, whatever becomes of it; says how long its longest call took, in milliseconds, how many
/// were done and how many were told an error.
pub fn trusting(pool: &Path) {
    become_user();
    let mut longest = Duration::ZERO;
    let (mut well, mut failed) = (0, 0);
    let mut random = Random::new(0x106_5eed);
    let mut log = Log::open(options(pool, SECTION, 0o666), &open_to_all()).ok();
    tell("working");
    let (sender, orders) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        while let Some(order) = told() {
            if sender.send(order).is_err() {
                return;
            }
        }
        std::process::exit(0);
    });
    loop {
        if orders.try_recv().is_ok() {
            tell(&format!("{} {well} {failed}", longest.as_millis()));
        }
        let begun = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| use_it(pool, &mut log, &mut random)));
        longest = longest.max(begun.elapsed());
        match done {
            Ok(Ok(())) => well += 1,
            Ok(Err(error)) if is_told(&error) => failed += 1,
            Ok(Err(error)) => {
                tell(&format!("{error} ({:?})", error.errno()));
                return;
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                tell(&format!("a panic: {}", text.unwrap_or_default()));
                return;
            }
        }
    }
}

/// One call on a log; it is opened again now and then.
fn use_it(pool: &Path, log: &mut Option<Log>, random: &mut Random) -> Result<(), Error> {
    if log.is_none() || random.percent(2) {
        // Sessions keep their addresses: not too many of them.
        std::thread::sleep(Duration::from_millis(20));
        *log = Some(Log::open(options(pool, SECTION, 0o666), &open_to_all())?);
    }
    let Some(log) = log else { return Ok(()) };
    let mut buffer = vec![0; 1 + random.below(20_000) as usize];
    let position = random.below(30_000);
    match random.below(8) {
        0..3 => drop(log.append(&buffer[..1 + position as usize % buffer.len()])?),
        3 => drop(log.read_at(position, &mut buffer)?),
        4 => drop(log.begin()?),
        5 => drop(log.end()?),
        6 => log.cut(position)?,
        _ => {
            let mut follower = log.follow(position)?;
            for _ in 0..3 {
                follower.next(&mut buffer, Duration::from_millis(1))?;
            }
        }
    }
    Ok(())
}

/// Changes something of the log's directory that no log has; what cannot be done is not.
fn forge(files: &FileSystem, random: &mut Random) {
    let log = open_to_all();
    let position = match random.below(6) {
        0 => random.next_word(),
        1 => u64::MAX - random.below(3000),
        2 => i64::MAX as u64 - random.below(3),
        _ => random.below(6) * SECTION,
    };
    let names = files.names(&log).unwrap_or_default();
    let there = match names.is_empty() {
        true => format!("{log}/.limit"),
        false => format!("{log}/{}", random.pick(&names)),
    };
    let made = format!("{log}/{position:020}");
    let at = |path: &String| path.clone().into_bytes();
    let size = *random.pick(&[0, 1, 4999, 5000, 1 << 30, 1 << 42, i64::MAX as u64]);
    let _ = match random.below(16) {
        0 => files.unlink(At::Root, &at(&there), 0),
        1 => files.unlink(At::Root, &at(&there), libc::AT_REMOVEDIR),
        2 => files.truncate(At::Root, &at(&there), size),
        3 => files.rename(At::Root, &at(&there), At::Root, &at(&made), 0),
        4 => files.link(At::Root, &at(&there), At::Root, &at(&made), 0),
        5 => files.symlink(b"/etc/passwd", At::Root, &at(&made)),
        6 => files.make_directory(At::Root, &at(&made), 0o777),
        7 => files.make_node(At::Root, &at(&made), libc::S_IFIFO | 0o666, 0),
        8 => files.make_node(At::Root, &at(&made), libc::S_IFSOCK | 0o666, 0),
        9 => files.put(&made, &vec![0xff; random.below(9000) as usize]),
        10 => files.put(&format!("{log}/.limit"), &random.next_word().to_le_bytes()),
        _ => files.put(&format!("{log}/.limit"), SECTION.to_string().as_bytes()),
    };
    if random.percent(5) {
        let _ = Shorthand::fold(files, random.percent(50));
    }
}

fn forges(a: &mut Attacker) -> String {
    let files = connect(&a.pool);
    let mut random = Random::new(0xf0_46ed);
    a.when_asked = Some(Box::new(move || {
        let begun = Instant::now();
        while begun.elapsed() < FORGES {
            for _ in 0..1 + random.below(20) {
                forge(&files, &mut random);
            }
            std::thread::sleep(Duration::from_micros(random.below(3000)));
        }
        BOUNDED.into()
    }));
    BOUNDED.into()
}

fn its_owner_goes_on(scene: &mut Scene, attacker: &mut Role) {
    let pool = scene.pool_text();
    let mut trusting = Role::start("trusting", VICTIM_USER, &[&pool]);
    assert_eq!(trusting.line(ATTACK_BOUND), "working");
    let (mut done, mut told_so) = (0, 0);
    for _ in 0..ROUNDS {
        assert_eq!(attacker.ask("forge"), BOUNDED);
        let said = trusting.ask("how was it?");
        let figures = said.split(' ').map(str::parse::<u64>);
        let figures: Result<Vec<_>, _> = figures.collect();
        let Ok([longest, well, failed]) = figures.as_deref() else {
            panic!("who trusts the log: {said}");
        };
        assert!(u128::from(*longest) < BOUND.as_millis(), "{longest} ms");
        (done, told_so) = (*well, *failed);
        scene.victim_works();
    }
    assert!(
        done > 100 && told_so > 100,
        "{done} calls, {told_so} errors"
    );
    trusting.kill();
}

/// Until it fails.
fn follow_for_ever(log: &Log) -> Result<Infallible, Error> {
    let mut follower = log.follow(log.end()?)?;
    loop {
        follower.next(&mut [0; 500], Duration::from_millis(50))?;
    }
}

/// The role: a member of a group that has a log together, whatever becomes of that. It says that it is there when asked.
pub fn member(pool: &Path) {
    become_user();
    // What it panics over is none of the table, unless it does so in the middle of that, which ends it.
    thread_local! {
        static IS_PANICKING: Cell<bool> = const { Cell::new(false) };
    }
    std::panic::set_hook(Box::new(|panic| {
        if IS_PANICKING.replace(true) {
            eprintln!("{panic}\n{}", std::backtrace::Backtrace::force_capture());
        }
    }));
    fn attempt(what: impl FnOnce() -> Result<(), Error>) {
        let _ = catch_unwind(AssertUnwindSafe(what));
        IS_PANICKING.set(false);
    }
    let options = Options {
        group: GROUP.to_owned(),
        ..options(pool, SECTION, 0o644)
    };
    let log = Log::open(options, &format!("{ATTACKER}/full/log")).expect("a log");
    log.append(b"begun").expect("append");
    tell("working");
    std::thread::spawn(|| {
        // Whatever the others are at.
        while told().is_some() {
            tell("there");
        }
        std::process::exit(0);
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                attempt(|| follow_for_ever(&log).map(|never| match never {}));
            }
        });
        for count in 0.. {
            attempt(|| {
                log.append(&record(count))?;
                log.read_at(log.begin()?, &mut [0; 100])?;
                log.cut(log.end()?)
            });
        }
    });
}

fn scribbles(a: &mut Attacker) -> String {
    membership::scribbles_in(a, GROUP.as_bytes())
}

fn members_are_there(scene: &mut Scene, attacker: &mut Role) {
    let pool = scene.pool_text();
    let mut members: Vec<Role> = (0..2)
        .map(|_| Role::start("log-member", ATTACKER_USER, &[&pool]))
        .collect();
    for member in &mut members {
        assert_eq!(member.line(ATTACK_BOUND), "working");
    }
    assert_eq!(attacker.ask("scribble"), BOUNDED);
    for _ in 0..ROUNDS {
        scene.victim_works();
        scene.third_works();
        // What they share is nonsense, and no address: none has been ended by a signal.
        for member in &mut members {
            assert_eq!(member.ask("are you there?"), "there");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    members.into_iter().for_each(Role::kill);
}

pub const ATTACKS: &[Attack] = &[
    case(
        "log",
        "forges the files of a log that its owner lets everybody write",
        BOUNDED,
        forges,
    )
    .and(its_owner_goes_on),
    case(
        "log",
        "joins the group of a log, and writes all over what its members share",
        BOUNDED,
        scribbles,
    )
    .and(members_are_there),
];
