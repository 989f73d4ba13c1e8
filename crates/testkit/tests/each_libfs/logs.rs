//! Logs beside every LibFS: their sections are files that each reads, also after a crash; what is damaged of them is
//! refused, and takes nothing from others.

use super::{crash::copy, host, seeds};
use arck_controller::Options;
use arck_core_state::IndexRoot;
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::offset::{ROOT, SIZE};
use arck_libfs_kit::Session;
use arck_logfs::Log;
use arck_protocol::Request;
use arck_testkit::under_test::LIBFSES;
use arck_testkit::{DurabilityMode, Random, Shorthand, TestPool};
use arckfs::{At, Errno};
use std::path::Path;
use std::time::Duration;

const SECTION: u64 = 10_000;

fn open(pool: &Path) -> Log {
    let options = arck_logfs::Options {
        make: true,
        section: SECTION,
        ..arck_logfs::Options::new(pool)
    };
    Log::open(options, "log").expect("a log")
}

/// What a log holds from a position on.
fn read(log: &Log, begin: u64) -> Vec<u8> {
    let mut bytes = vec![0; (log.end().expect("end") - begin) as usize];
    assert_eq!(log.read_at(begin, &mut bytes).expect("read"), bytes.len());
    bytes
}

/// That every LibFS, and the log, finds these bytes.
fn assert_holds(pool: &Path, begin: u64, bytes: &[u8], of: &str) {
    for reader in LIBFSES {
        let of = format!("{of}: {}", reader.name());
        let files = reader.open(pool, "log");
        let names = files.list().expect("names");
        let names = names.iter().filter(|name| *name != ".limit");
        let mut found = Vec::new();
        for name in names {
            assert_eq!(name.parse(), Ok(begin + found.len() as u64), "{of}");
            found.extend(files.get(name).expect("a section").expect("it is there"));
        }
        assert!(found == bytes, "{of}: other bytes");
    }
    let log = open(pool);
    assert_eq!(log.begin().expect("begin"), begin, "{of}");
    assert!(read(&log, begin) == bytes, "{of}: the log has other bytes");
}

#[test]
fn what_was_appended_is_there_after_a_crash_for_every_libfs() {
    for seed in seeds(3) {
        let of = format!("seed {seed}");
        let (mut pool, folder) = (TestPool::new(64 << 20), host());
        let mut random = Random::new(seed);
        let log = open(&pool.path());
        let (mut begin, mut bytes) = (0, Vec::new());
        for round in 0..3 {
            for _ in 0..40 {
                let length = 1 + random.below(3000) as usize;
                let record = random.bytes(length);
                let position = log.append(&record).expect(&of);
                assert_eq!(position, begin + bytes.len() as u64, "{of}");
                bytes.extend(record);
            }
            if random.percent(60) {
                let position = begin + random.below(bytes.len() as u64);
                log.cut(position).expect(&of);
                let before = std::mem::replace(&mut begin, log.begin().expect(&of));
                assert!(begin <= position, "{of}");
                bytes.drain(..(begin - before) as usize);
            }
            pool.kill();
            let copied = copy(&pool.path(), folder.path().join(format!("{round}")));
            let after = TestPool::adopt(&copied);
            assert_holds(&after.path(), begin, &bytes, &of);
            drop(after);
            pool.serve();
            assert!(read(&log, begin) == bytes, "{of}: the session");
        }
        drop(log);
        assert_holds(&pool.path(), begin, &bytes, &of);
    }
}

/// In a pool on an ordinary file system the kernel writes back when it likes, so what is folded and synced is all that another
/// boot finds: each append, commit and cut that has returned is that, and also the directories that were made for the log.
#[test]
fn what_was_appended_survives_the_machine_in_a_paged_pool() {
    for seed in seeds(3) {
        let of = format!("seed {seed}");
        let mut pool = TestPool::counting_as(DurabilityMode::Paged, 64 << 20);
        let mut random = Random::new(seed);
        let (mut begin, mut bytes) = (0, Vec::new());
        for round in 0..5 {
            let of = format!("{of}, round {round}");
            let log = open(&pool.path());
            assert_eq!(log.begin().expect(&of), begin, "{of}");
            assert!(read(&log, begin) == bytes, "{of}: other bytes");
            for _ in 0..1 + random.below(40) {
                let length = 1 + random.below(3000) as usize;
                let record = random.bytes(length);
                let end = begin + bytes.len() as u64;
                let position = match random.below(3) {
                    0 => log.append(&record),
                    1 => log.append_all(&[&record[..1], &record[1..]]),
                    _ => log.enqueue(&record).and_then(|one| log.commit(&one)),
                };
                assert_eq!(position.expect(&of), end, "{of}");
                bytes.extend(record);
            }
            if random.percent(60) {
                log.cut(begin + random.below(bytes.len() as u64 + 1))
                    .expect(&of);
                let before = std::mem::replace(&mut begin, log.begin().expect(&of));
                bytes.drain(..(begin - before) as usize);
            }
            // What nobody waited for may be gone.
            drop(log.enqueue(b"left behind").expect(&of));
            pool.kill();
            // It has not ended: nothing of it is told to the next controller.
            std::mem::forget(log);
            pool.boot_again();
            pool.serve();
        }
        assert_holds(&pool.path(), begin, &bytes, &of);
    }
    // Made, and nothing appended; and with one record, in directories that were made for it.
    for record in [None, Some(b"deep")] {
        let mut pool = TestPool::counting_as(DurabilityMode::Paged, 64 << 20);
        let open = |pool: &TestPool, make| {
            let options = arck_logfs::Options {
                make,
                section: 77,
                ..arck_logfs::Options::new(pool.path())
            };
            Log::open(options, "deep/er/log").expect("a log")
        };
        let log = open(&pool, true);
        if let Some(record) = record {
            assert_eq!(log.append(record).expect("append"), 0);
        }
        pool.kill();
        std::mem::forget(log);
        pool.boot_again();
        pool.serve();
        let log = open(&pool, false);
        assert_eq!(log.section().expect("its limit"), 77);
        assert!(read(&log, 0) == record.map_or(&b""[..], |record| &record[..]));
    }
}

/// Who has made a log may not have come so far as to make its limit durable when another member of its session appends.
#[test]
fn a_limit_survives_the_machine_before_a_record_does() {
    let mut pool = TestPool::counting_as(DurabilityMode::Paged, 64 << 20);
    let files = pool.session();
    let made = files.make_directory(At::Root, b"log", 0o755);
    made.expect("a directory");
    for (name, content) in [(".limit", "77"), ("00000000000000000000", "")] {
        let path = format!("log/{name}");
        files.put(&path, content.as_bytes()).expect("a file");
    }
    let log = Log::within(files.session(), "log", SECTION).expect("a log");
    assert_eq!(log.append(b"record").expect("append"), 0);
    pool.kill();
    std::mem::forget((log, files));
    pool.boot_again();
    pool.serve();
    let log = Log::open(arck_logfs::Options::new(pool.path()), "log").expect("a log");
    assert_eq!(log.section().expect("its limit"), 77);
    assert!(read(&log, 0) == b"record");
}

/// What of a section's branch is damaged, and how.
const DAMAGES: [(&str, u64, u64); 3] = [
    ("a page of nobody's", ROOT, 7),
    ("a page outside of the pool", ROOT, 1 << 40),
    ("a size beyond all", SIZE, 1 << 62),
];

#[test]
fn what_is_damaged_of_a_log_is_refused_and_takes_nothing_from_others() {
    for (what, field, value) in DAMAGES {
        let options = Options {
            grace: Duration::from_millis(30),
            ..Options::default()
        };
        let pool = TestPool::with_options(64 << 20, options);
        pool.has_refusals("an arena is damaged");
        let session = Session::connect(&pool.path()).expect("a session");
        let log = Log::within(session, "log", SECTION).expect("a log");
        log.append(b"folded").expect(what);
        let fold = || session.ask(&Request::CommitAll { release: false });
        fold().expect(what);
        let path = b"log/00000000000000000000";
        let found = pool.session().stat(At::Root, path, 0).expect(what);
        assert_eq!(log.append(b"lost").expect(what), 6);

        let header = session.header(found.inode as u32).expect("a header");
        let branch = branch_offset(header.branch_slot()).expect("a branch");
        let value = match field {
            ROOT => IndexRoot::new(value, 0).0,
            _ => value,
        };
        let at = (branch + field) as usize;
        let _ = session.arena_at(at).write_u64(at, value).expect(what);
        assert_eq!(fold(), Err(Errno::IO), "{what}");
        assert_ne!(pool.violations(), "", "{what}");
        let refused = log.append(b"more").expect_err(what);
        assert_eq!(refused.errno(), Errno::IO, "{what}");

        // Others have what was verified, and go on from there; so does this one, when it has been told.
        let other = open(&pool.path());
        assert!(read(&other, 0) == b"folded", "{what}");
        assert_eq!(other.append(b", on").expect(what), 6, "{what}");
        let again = (0..100).find_map(|_| log.append(b", again").ok());
        assert_eq!(again, Some(10), "{what}");
        assert!(read(&other, 0) == b"folded, on, again", "{what}");
        drop(log);
        session.end();
        assert_holds(&pool.path(), 0, b"folded, on, again", what);
    }
}
