//! Sessions that take turns, and followers; bad input; a pool that is full; a controller that dies and comes back.

mod common;

use arck_libfs_kit::Session;
use arck_libfs_kit::messages::Request;
use arck_logfs::{Error, Log, Options, RECORD_MAX};
use arck_testkit::{Random, Shorthand, TestPool, connect};
use arckfs::At;
use common::{all, as_files, open, options};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NONE: Duration = Duration::ZERO;

/// Two sessions append in turns, and a third one that is none of them reads: positions go on where the other's ended.
#[test]
fn sessions_take_turns() {
    let pool = TestPool::new(128 << 20);
    let logs = [open(&pool, 3000), open(&pool, 3000)];
    let files = pool.session();
    let mut random = Random::new(7);
    let mut bytes = Vec::new();
    for round in 0..120 {
        let log = random.pick(&logs);
        let length = 1 + random.below(900) as usize;
        let record = random.bytes(length);
        assert_eq!(
            log.append(&record).expect("append"),
            bytes.len() as u64,
            "round {round}"
        );
        bytes.extend(record);
        if random.percent(20) {
            assert!(
                all(random.pick(&logs)) == (0, bytes.clone()),
                "round {round}"
            );
            assert!(
                as_files(&files, "log") == (0, bytes.clone()),
                "round {round}"
            );
        }
    }
    // One cuts; the other knew sections that are gone, and may read them until it looks for others.
    logs[0].cut(bytes.len() as u64).expect("cut");
    let begin = logs[0].begin().expect("begin");
    assert!(begin > 0);
    assert_eq!(logs[1].begin().expect("begin"), begin);
    let cut = logs[1].read_at(0, &mut [0; 10]).expect_err("it is cut off");
    assert!(
        matches!(cut, Error::Cut { position: 0, begin: b } if b == begin),
        "{cut}"
    );
    assert_eq!(
        logs[1].append(b"after").expect("append"),
        bytes.len() as u64
    );
}

/// Programs see files that grow.
#[test]
fn others_follow_the_files() {
    let pool = TestPool::new(64 << 20);
    let (log, files) = (open(&pool, 1 << 20), pool.session());
    log.append(b"one\n").expect("append");
    let name = "log/00000000000000000000";
    let tail = files.open_at_root(name, libc::O_RDONLY).expect("open");
    let mut buffer = [0; 100];
    assert_eq!(files.read(tail, &mut buffer, None), Ok(4));
    for count in 0..20u32 {
        log.append(format!("line {count}\n").as_bytes())
            .expect("append");
        let read = files.read(tail, &mut buffer, None).expect("read");
        assert_eq!(buffer[..read], *format!("line {count}\n").as_bytes());
    }
    assert_eq!(files.get("log/.limit").expect("the limit"), b"1048576");
}

/// A follower that sleeps is woken, and does not find a record when it happens to look.
#[test]
fn a_follower_is_woken() {
    let pool = TestPool::new(64 << 20);
    let log = open(&pool, 500);
    const RECORDS: usize = 41;
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let log = &log;
        scope.spawn(move || {
            let mut follower = log.follow(0).expect("a follower");
            for _ in 0..RECORDS {
                let read = follower.next(&mut [0; 64], Duration::from_secs(10));
                assert_eq!(read.expect("next"), 64);
                tell.send(Instant::now()).expect("the writer");
            }
        });
        let mut late: Vec<Duration> = (0..RECORDS)
            .map(|_| {
                // Longer than it looks again and again, and at no interval of its own.
                std::thread::sleep(Duration::from_micros(7_300));
                let begun = Instant::now();
                log.append(&[1; 64]).expect("append");
                told.recv().expect("the follower") - begun
            })
            .collect();
        late.sort();
        let middle = late[RECORDS / 2];
        assert!(middle < Duration::from_micros(1500), "{middle:?}: {late:?}");
    });
}

/// Sections that are cut off before any fold leave their inodes, with number and generation, to those that come after them. Who knew them
/// appends and reads at the end of the log all the same, and nowhere else.
#[test]
fn a_member_that_knew_what_is_cut_off_goes_on_behind_it() {
    let pool = TestPool::new(128 << 20);
    let member = |name| {
        let mut options = options(&pool, 16);
        options.group = "g".to_owned();
        Log::open(options, name).expect("a log")
    };
    let (one, other, apart) = (member("log"), member("log"), member("apart"));
    let mut random = Random::new(3);
    let mut end = 0;
    for round in 0..2_000_u64 {
        for _ in 0..random.below(12) {
            assert_eq!(other.append(&[b'o'; 8]).expect("append"), end);
            end += 8;
        }
        let cut = end - random.below(2).min(end / 8) * 8;
        other.cut(cut).expect("cut");
        apart.append(&[b'a'; 8]).expect("append to another log");
        apart.cut(apart.end().expect("end")).expect("cut");
        // At times its last section is far behind, and another's by now.
        if random.percent(30) {
            let position = one.append(&[b'm'; 8]).expect("append");
            assert_eq!(position, end, "round {round}");
            end += 8;
        }
        assert_eq!(one.end().expect("end"), end, "round {round}");
        let begin = one.begin().expect("begin");
        let mut bytes = vec![0; (end - begin) as usize + 1];
        assert_eq!(
            one.read_at(begin, &mut bytes).expect("read") as u64,
            end - begin
        );
        assert!(
            !bytes.contains(&b'a'),
            "round {round}: what is another log's"
        );
    }
}

/// Members append while others cut all of it off again and again: each position is given once, and none is left out.
#[test]
fn positions_are_given_once_while_sections_are_cut_off() {
    const RECORDS: u64 = 4_000;
    let pool = TestPool::new(128 << 20);
    let member = || {
        let mut options = options(&pool, 16);
        options.group = "g".to_owned();
        Log::open(options, "log").expect("a log")
    };
    let done = AtomicBool::new(false);
    let mut positions: Vec<u64> = std::thread::scope(|scope| {
        let appending = [(); 2].map(|()| {
            let log = member();
            scope.spawn(move || -> Vec<u64> {
                let append = |_| log.append(&[1; 8]).expect("append");
                (0..RECORDS).map(append).collect()
            })
        });
        let (cutting, done) = (member(), &done);
        scope.spawn(move || {
            let mut last = 0;
            while !done.load(Ordering::Acquire) {
                let end = cutting.end().expect("end");
                assert!(end >= last, "{end} after {last}");
                cutting.cut(end).expect("cut");
                last = end;
            }
        });
        let positions = appending.map(|thread| thread.join());
        done.store(true, Ordering::Release);
        positions
            .into_iter()
            .flat_map(|some| some.expect("no panic"))
            .collect()
    });
    positions.sort_unstable();
    let all: Vec<u64> = (0..2 * RECORDS).map(|number| number * 8).collect();
    assert!(
        positions == all,
        "{:?}",
        positions.iter().zip(all).find(|(one, other)| *one != other)
    );
}

/// Who has not looked while others filled thousands of sections finds the end, and what stands there.
#[test]
fn a_member_that_is_thousands_of_sections_behind_catches_up() {
    let pool = TestPool::new(128 << 20);
    let mut options = options(&pool, 8);
    options.group = "g".to_owned();
    let member = || Log::open(options.clone(), "log").expect("a log");
    let calls: [fn(&Log, u64) -> u64; 3] = [
        |log, _| log.append(b"appended").expect("append"),
        |log, _| log.end().expect("end"),
        |log, end| end + log.read_at(end, &mut [0; 8]).expect("read") as u64,
    ];
    let behind = calls.map(|call| (member(), call));
    let ahead = member();
    for number in 0..2_500_u64 {
        ahead.append(&number.to_le_bytes()).expect("append");
    }
    // The first one appends eight bytes behind it.
    for ((log, call), expected) in behind.iter().zip([20_000, 20_008, 20_008]) {
        assert_eq!(call(log, 20_000), expected);
    }
}

/// Where a section becomes full and the next one is made just as somebody looks at its end, he is not told that bytes are missing.
#[test]
fn who_reads_the_end_of_a_log_that_grows_finds_no_fault() {
    const RECORDS: u64 = 20_000;
    let pool = TestPool::new(128 << 20);
    let log = open(&pool, 16);
    let appended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| {
            for number in 0..RECORDS {
                log.append(&number.to_le_bytes()).expect("append");
                if number % 500 == 0 {
                    log.cut(number * 8).expect("cut");
                }
            }
            appended.store(true, Ordering::Release);
        });
        let mut position = 0;
        while !(appended.load(Ordering::Acquire) && position == RECORDS * 8) {
            let mut bytes = [0; 8];
            match log.read_at(position, &mut bytes) {
                Ok(0) => {}
                Ok(8) => {
                    assert_eq!(u64::from_le_bytes(bytes), position / 8);
                    position += 8;
                }
                Err(Error::Cut { begin, .. }) => position = begin,
                other => panic!("at {position}: {other:?}"),
            }
            assert!(!appending.is_finished() || appended.load(Ordering::Acquire));
        }
    });
}

/// Records that are enqueued stand in that order, with what other threads append between them, and are there when one of
/// them is committed, or the log is closed.
#[test]
fn what_is_enqueued_is_committed_in_order() {
    let pool = TestPool::new(128 << 20);
    let log = open(&pool, 50_000);
    const EACH: u32 = 3000;
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let log = &log;
            scope.spawn(move || {
                let mut before = None;
                for first in (0..EACH).step_by(10) {
                    let mut enqueued = Vec::new();
                    for count in first..first + 10 {
                        let record = (u64::from(thread) << 32 | u64::from(count)).to_le_bytes();
                        enqueued.push((record, log.enqueue(&record).expect("enqueue")));
                    }
                    let (_, last) = &enqueued[9];
                    log.commit(last).expect("commit");
                    for (record, one) in &enqueued {
                        let position = log.commit(one).expect("it is");
                        assert!(before < Some(position), "the order of thread {thread}");
                        before = Some(position);
                        let mut read = [0; 8];
                        assert_eq!(log.read_at(position, &mut read).expect("read"), 8);
                        assert_eq!(read, *record);
                    }
                }
            });
        }
    });
    let end = log.end().expect("end");
    assert_eq!(end, u64::from(3 * EACH) * 8);
    let one = log.enqueue(b"of the end").expect("enqueue");
    let other = Log::open(options(&pool, 10), "other").expect("another log");
    assert_eq!(
        other.commit(&one).expect_err("it is not there").errno(),
        Errno::STALE
    );
    assert_eq!(log.end().expect("end"), end, "nobody has committed it");
    log.close().expect("close");
    let log = open(&pool, 10);
    let mut read = [0; 10];
    assert_eq!(log.read_at(end, &mut read).expect("read"), 10);
    assert_eq!(&read, b"of the end");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let pool = TestPool::new(64 << 20);
    let log = open(&pool, 1000);
    let long = vec![1; RECORD_MAX + 1];
    let records: Vec<&[u8]> = vec![&long[..RECORD_MAX / 2], &long[..RECORD_MAX / 2], b"x"];
    let files = pool.session();
    let append = |record: &[u8]| log.append(record).map(|_| ());
    let table: Vec<(&str, Result<(), Error>, Errno)> = vec![
        ("no bytes", append(b""), Errno::INVAL),
        ("too many", append(&long), Errno::MSGSIZE),
        (
            "enqueue nothing",
            log.enqueue(b"").map(|_| ()),
            Errno::INVAL,
        ),
        (
            "enqueue too much",
            log.enqueue(&long).map(|_| ()),
            Errno::MSGSIZE,
        ),
        ("no records", log.append_all(&[]).map(|_| ()), Errno::INVAL),
        (
            "empty records",
            log.append_all(&[b"", b""]).map(|_| ()),
            Errno::INVAL,
        ),
        (
            "too many together",
            log.append_all(&records).map(|_| ()),
            Errno::MSGSIZE,
        ),
        (
            "read behind the end",
            log.read_at(1, &mut [0]).map(|_| ()),
            Errno::INVAL,
        ),
        (
            "at the largest position",
            log.read_at(u64::MAX, &mut [0]).map(|_| ()),
            Errno::INVAL,
        ),
        (
            "follow behind the end",
            log.follow(1).map(|_| ()),
            Errno::INVAL,
        ),
        ("cut behind the end", log.cut(1), Errno::INVAL),
        (
            "follow into no buffer",
            log.follow(0)
                .and_then(|mut one| one.next(&mut [], NONE))
                .map(|_| ()),
            Errno::INVAL,
        ),
    ];
    for (what, outcome, errno) in table {
        assert_eq!(outcome.expect_err(what).errno(), errno, "{what}");
    }
    // Nothing of it is there, and the longest record is.
    assert_eq!(log.end().expect("end"), 0);
    assert_eq!(log.append(&long[..RECORD_MAX]).expect("append"), 0);
    let all = all(&log).1;
    assert!(all == long[..RECORD_MAX]);

    files.put("file", b"").expect("put");
    files
        .make_directory(At::Root, b"bad", 0o755)
        .expect("mkdir");
    files.put("bad/.limit", b"a lot").expect("put");
    files
        .make_directory(At::Root, b"zero", 0o755)
        .expect("mkdir");
    files.put("zero/.limit", b"0").expect("put");
    files
        .make_directory(At::Root, b"long", 0o755)
        .expect("mkdir");
    files.put("long/.limit", &[b'1'; 100]).expect("put");
    files
        .make_directory(At::Root, b"without", 0o755)
        .expect("mkdir");
    files
        .put("without/00000000000000000000", b"x")
        .expect("put");
    files
        .make_directory(At::Root, b"link", 0o755)
        .expect("mkdir");
    files.put("link/.limit", b"10").expect("put");
    files
        .symlink(b"../file", At::Root, b"link/00000000000000000000")
        .expect("symlink");
    let make = |directory: &str| Log::open(options(&pool, 10), directory).map(|_| ());
    let find = |directory: &str| {
        let found = Log::open(Options::new(pool.path()), directory);
        found.map(|_| ())
    };
    let table: Vec<(&str, Result<(), Error>, Errno)> = vec![
        ("there is none", find("nothing"), Errno::NOENT),
        ("a directory without a log", find(""), Errno::NOENT),
        ("a file", make("file"), Errno::NOTDIR),
        ("a dot", make("./log"), Errno::INVAL),
        (
            "a name too long",
            make(&"n".repeat(256)),
            Errno::NAMETOOLONG,
        ),
        ("a limit that is none", make("bad"), Errno::BADMSG),
        ("a limit of nothing", make("zero"), Errno::BADMSG),
        ("a limit too long", make("long"), Errno::BADMSG),
        ("sections without a limit", make("without"), Errno::BADMSG),
        ("a link as a section", make("link"), Errno::BADMSG),
        (
            "sections of no bytes",
            Log::open(options(&pool, 0), "new").map(|_| ()),
            Errno::INVAL,
        ),
        (
            "no pool",
            Log::open(Options::new("/dev/shm/no such pool"), "log").map(|_| ()),
            Errno::NOENT,
        ),
    ];
    for (what, outcome, errno) in table {
        assert_eq!(outcome.expect_err(what).errno(), errno, "{what}");
    }
}

/// A machine that failed while a log was being made, in a paged pool, leaves its limit without contents.
#[test]
fn a_log_that_was_being_made_is_finished_by_who_would_make_it() {
    let pool = TestPool::new(64 << 20);
    let files = pool.session();
    for (name, section) in [
        ("both", Some(&b""[..])),
        ("limit", None),
        ("begun", Some(b"x")),
    ] {
        files
            .make_directory(At::Root, name.as_bytes(), 0o755)
            .expect("mkdir");
        files.put(&format!("{name}/.limit"), b"").expect("put");
        if let Some(bytes) = section {
            let first = format!("{name}/00000000000000000000");
            files.put(&first, bytes).expect("put");
        }
        let found = Log::open(Options::new(pool.path()), name).map(|_| ());
        let errno = found.expect_err("nobody said to make it").errno();
        assert_eq!(errno, Errno::BADMSG, "{name}");
        let made = Log::open(options(&pool, 77), name);
        if section == Some(b"x") {
            let error = made.map(|_| ()).expect_err("something was appended");
            assert_eq!(error.errno(), Errno::BADMSG, "{name}");
            continue;
        }
        let made = made.expect("finished");
        assert_eq!(made.section().expect("told"), 77, "{name}");
        // Whoever comes later has that limit.
        let other = Log::open(options(&pool, 5), name).expect("a log");
        assert_eq!(other.section().expect("told"), 77, "{name}");
        assert_eq!(made.append(b"first").expect("append"), 0, "{name}");
        assert_eq!(other.append(b"second").expect("append"), 5, "{name}");
        assert_eq!(
            files.get(&format!("{name}/.limit")).expect("the limit"),
            b"77"
        );
    }
}

/// Somebody changes the files by other means: what is found to be wrong is told, and nothing waits for ever.
#[test]
fn what_others_do_to_the_files_is_told() {
    let pool = TestPool::new(64 << 20);
    let files = pool.session();
    let filled = |name: &str| {
        let log = Log::open(options(&pool, 100), name).expect("a log");
        for at in 0..10 {
            log.append(&[at; 60]).expect("append");
        }
        log
    };
    // A section in the middle goes.
    let log = filled("hole");
    files
        .unlink(At::Root, b"hole/00000000000000000120", 0)
        .expect("unlink");
    let mut buffer = [0; 600];
    log.begin().expect("a look at all names");
    let failed = log.read_at(0, &mut buffer).expect_err("bytes are missing");
    assert_eq!(failed.errno(), Errno::BADMSG, "{failed}");
    assert_eq!(log.append(b"goes on").expect("append"), 600);
    // A section is cut short.
    let log = filled("short");
    files
        .truncate(At::Root, b"short/00000000000000000120", 50)
        .expect("truncate");
    let failed = log.read_at(0, &mut buffer).expect_err("bytes are missing");
    assert_eq!(failed.errno(), Errno::BADMSG, "{failed}");
    // The last one goes: the log ends before, and goes on from there.
    let log = filled("last");
    files
        .unlink(At::Root, b"last/00000000000000000480", 0)
        .expect("unlink");
    // Until that is folded it is the other session's affair.
    Shorthand::fold(&files, true).expect("fold");
    assert_eq!(log.append(b"goes on").expect("append"), 480);
    // All of it goes.
    let log = filled("all");
    for name in files.names("all").expect("names") {
        files
            .unlink(At::Root, format!("all/{name}").as_bytes(), 0)
            .expect("unlink");
    }
    files
        .unlink(At::Root, b"all", libc::AT_REMOVEDIR)
        .expect("rmdir");
    assert_eq!(
        log.append(b"x").expect_err("it is gone").errno(),
        Errno::NOENT
    );
    assert_eq!(log.end().expect_err("it is gone").errno(), Errno::NOENT);
}

/// A full pool is told, and what was cut off is room for more.
#[test]
fn a_pool_is_used_up_and_goes_on_after_a_cut() {
    let pool = TestPool::new(64 << 20);
    let log = open(&pool, 1 << 20);
    let mut end = 0;
    for round in 0..3 {
        for length in [100_000, 4096, 10] {
            let record = vec![round + 1; length];
            let error = loop {
                match log.append(&record) {
                    Ok(position) => {
                        assert_eq!(position, end, "round {round}");
                        end += record.len() as u64;
                    }
                    Err(error) => break error,
                }
            };
            assert_eq!(error.errno(), Errno::NOSPC, "{error}");
            assert_eq!(log.end().expect("end"), end, "nothing of it is there");
        }
        let begin = log.begin().expect("begin");
        assert!(
            end - begin > 40 << 20,
            "round {round}: {} bytes",
            end - begin
        );
        log.cut(end).expect("cut");
    }
    log.append(b"goes on").expect("append");
}

#[test]
fn a_controller_that_is_killed_and_comes_back_loses_nothing() {
    let mut pool = TestPool::new(128 << 20);
    let log = open(&pool, 2000);
    let mut bytes = Vec::new();
    let mut random = Random::new(11);
    for round in 0..4 {
        for _ in 0..40 {
            let length = 1 + random.below(300) as usize;
            let record = random.bytes(length);
            assert_eq!(log.append(&record).expect("append"), bytes.len() as u64);
            bytes.extend(record);
        }
        pool.kill();
        // Nobody is asked for what this session owns.
        assert_eq!(
            log.append(b"meanwhile").expect("append"),
            bytes.len() as u64
        );
        bytes.extend(b"meanwhile");
        pool.serve();
        assert!(all(&log) == (0, bytes.clone()), "round {round}");
    }
    drop(log);
    assert!(as_files(&connect(&pool.path()), "log") == (0, bytes));
}

/// All of the session is folded over and over while threads append.
#[test]
fn appends_under_folds() {
    let pool = TestPool::new(256 << 20);
    let session = Session::connect(&pool.path()).expect("a session");
    let log = Log::within(session, "log", 20_000).expect("a log");
    let ended = AtomicBool::new(false);
    let appended = std::thread::scope(|scope| {
        let workers = [0u64, 1].map(|thread| {
            let (log, ended) = (&log, &ended);
            scope.spawn(move || {
                let mut count = 0;
                while !ended.load(Ordering::Relaxed) {
                    let record = (thread << 32 | count).to_le_bytes();
                    let position = log.append(&record).expect("append");
                    let mut read = [0; 8];
                    assert_eq!(log.read_at(position, &mut read).expect("read"), 8);
                    assert_eq!(read, record, "at {position}");
                    count += 1;
                }
                count
            })
        });
        let mut folds = 0;
        while folds < 300 && !workers.iter().any(|worker| worker.is_finished()) {
            match session.ask(&Request::CommitAll {
                release: folds % 5 == 0,
            }) {
                Ok(()) => folds += 1,
                Err(Errno::AGAIN) => {}
                Err(other) => panic!("a fold: {other}"),
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        ended.store(true, Ordering::Relaxed);
        workers.map(|worker| worker.join().expect("a writer"))
    });
    assert!(appended.iter().all(|&count| count > 100), "{appended:?}");
    let appended: u64 = appended.iter().sum();
    assert_eq!(all(&log).1.len() as u64, appended * 8);
    assert_eq!(pool.violations(), "");
    session.end();
}

/// Where others have references: what is enqueued is committed, and all folded.
#[test]
fn a_session_ends_by_a_reference() {
    let pool = TestPool::new(64 << 20);
    let log = open(&pool, 1 << 20);
    let _ = log.enqueue(b"left").expect("enqueue");
    log.finish().expect("end");
    log.finish().expect("once more, for nothing");
    let files = connect(&pool.path());
    assert_eq!(as_files(&files, "log"), (0, b"left".to_vec()));
    // A reference that is left opens another one.
    assert_eq!(log.append(b"more").expect("append"), 4);
}
