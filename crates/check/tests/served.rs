//! Pools that are checked while they are served: what changes is no finding, what is broken is.

mod common;

use arck_check::{Options, Report, Rule};
use arck_core_state::Geometry;
use arck_testkit::{Random, Shorthand, TestPool, connect};
use arckfs::{At, Errno, Failure};
use common::fill;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn check(pool: &Path) -> Result<Report, arck_check::Error> {
    arck_check::check(pool, &Options::default())
}

fn lines(report: &Report) -> String {
    let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Names come, go and move, files grow and shrink, in this session's own directories and in one
/// for all.
fn churn(pool: &Path, me: u64, stop: &AtomicBool, done: &AtomicU64) {
    let fs = connect(pool);
    let mut random = Random::new(me + 1);
    let own = format!("own{me}");
    fs.make_directory(At::Root, own.as_bytes(), 0o755).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let folder = |random: &mut Random| match random.below(3) {
            0 => own.clone(),
            1 => "all".to_owned(),
            _ => "d/e".to_owned(),
        };
        let path = |random: &mut Random| format!("{}/{}", folder(random), random.below(40));
        let (one, other) = (path(&mut random), path(&mut random));
        let told: Result<(), Failure> = match random.below(8) {
            0..3 => fs.put(&one, &vec![me as u8; random.below(40_000) as usize]),
            3 => fs.unlink(At::Root, one.as_bytes(), 0),
            4 => fs.rename(At::Root, one.as_bytes(), At::Root, other.as_bytes(), 0),
            5 => fs.link(At::Root, one.as_bytes(), At::Root, other.as_bytes(), 0),
            6 => fs.make_directory(At::Root, one.as_bytes(), 0o755),
            _ => fs.unlink(At::Root, one.as_bytes(), libc::AT_REMOVEDIR),
        };
        match told {
            Ok(()) => {}
            Err(Failure::Errno(errno)) => assert!(
                [
                    Errno::NOENT,
                    Errno::EXIST,
                    Errno::ISDIR,
                    Errno::NOTDIR,
                    Errno::NOTEMPTY,
                    Errno::INVAL,
                    Errno::PERM,
                    Errno::BUSY,
                    Errno::NOSPC,
                ]
                .contains(&errno),
                "{errno}"
            ),
            Err(Failure::Outside(path)) => panic!("{path:?}"),
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    fs.disconnect().unwrap();
}

#[test]
fn what_changes_is_no_finding() {
    let mut pool = TestPool::new(64 << 20);
    let fs = pool.session();
    fill(&fs);
    fs.make_directory(At::Root, b"all", 0o755).unwrap();
    fs.fold(true).unwrap();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let path = pool.path();
    std::thread::scope(|scope| {
        for me in 0..2 {
            let (path, stop, done) = (&path, &stop, &done);
            scope.spawn(move || churn(path, me, stop, done));
        }
        let mut decided = 0;
        for round in 0..12 {
            let before = done.load(Ordering::Relaxed);
            match check(&path) {
                Ok(report) => {
                    assert!(report.served);
                    let said = lines(&report);
                    if !report.is_clean() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    assert!(report.is_clean(), "round {round}:\n{said}");
                    decided += 1;
                }
                Err(error @ arck_check::Error::Busy { .. }) => println!("round {round}: {error}"),
                Err(error) => panic!("{error}"),
            }
            // They go on, and not only the check.
            while done.load(Ordering::Relaxed) < before + 20 {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(decided > 0);
    });
    fs.disconnect().unwrap();
    let report = check(&path).unwrap();
    assert!(report.is_clean(), "{}", lines(&report));
    pool.stop();
    let report = check(&path).unwrap();
    assert!(report.is_clean() && !report.served, "{}", lines(&report));
}

#[test]
fn what_is_broken_is_a_finding() {
    let mut pool = TestPool::new(64 << 20);
    let fs = pool.session();
    fill(&fs);
    fs.fold(true).unwrap();
    let path = pool.path();
    assert!(check(&path).unwrap().is_clean());
    let report = check(&path).unwrap();
    assert!(report.served && report.names > 2000);
    let poke = |name: &str, at: u64, change: &dyn Fn(u64) -> u64| {
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .open(path.join(name))
            .unwrap();
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).unwrap();
        let word = u64::from_le_bytes(bytes);
        file.write_all_at(&change(word).to_le_bytes(), at).unwrap();
    };
    let number = fs.stat(At::Root, b"empty", 0).unwrap().inode;
    let header = std::fs::read(path.join("headers")).unwrap();
    let at = number as usize * 64 + 8;
    let address = u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
    let size = Geometry::for_pool_size(64 << 20).unwrap().segment_size;
    let page = 16_000;
    let cases: [(Rule, String, u64, u64); 3] = [
        (
            Rule::PageLeaked,
            "pages".into(),
            page / 64 * 8,
            1 << (page % 64),
        ),
        (
            Rule::Links,
            format!("segments/{:08x}", address / size),
            address % size + 8,
            1 << 32,
        ),
        (Rule::Header, "headers".into(), number * 64 + 40, 1 << 8),
    ];
    for (rule, file, at, bit) in cases {
        poke(&file, at, &|word| word ^ bit);
        let report = check(&path).unwrap();
        let rules: Vec<Rule> = report.findings.iter().map(|f| f.rule).collect();
        assert!(rules.contains(&rule), "{rule}: {}", lines(&report));
        poke(&file, at, &|word| word ^ bit);
        let report = check(&path).unwrap();
        assert!(report.is_clean(), "{rule}: {}", lines(&report));
    }
    fs.disconnect().unwrap();
    pool.stop();
}
