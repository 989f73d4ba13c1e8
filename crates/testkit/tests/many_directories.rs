//! A few names in each of thousands of directories: what an operation costs does not grow with how many directories
//! have changed, though folds of them come between.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, FileSystem};

const FILES: u64 = 12_000;

/// Nanoseconds of processor time that this thread had.
fn processor_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What a rename and an unlink take this thread, of files spread over so many directories.
fn each(directories: u64) -> u64 {
    let pool = TestPool::new(512 << 20);
    let session = pool.session();
    let path = |kind: &str, file: u64| format!("{}/{kind}{file}", file % directories);
    for directory in 0..directories {
        let name = directory.to_string();
        let made = session.make_directory(At::Root, name.as_bytes(), 0o755);
        made.expect("mkdir");
    }
    for file in 0..FILES {
        session.put(&path("file", file), b"").expect("put");
    }
    let since = processor_time();
    for file in 0..FILES {
        let (from, to) = (path("file", file), path("renamed", file));
        let moved = session.rename(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0);
        moved.expect("rename");
    }
    for file in 0..FILES {
        let removed = session.unlink(At::Root, path("renamed", file).as_bytes(), 0);
        removed.expect("unlink");
    }
    let took = processor_time() - since;
    assert!(is_empty(&session, directories));
    assert_eq!(pool.violations(), "");
    took / (2 * FILES)
}

fn is_empty(session: &FileSystem, directories: u64) -> bool {
    (0..directories).all(|directory| {
        let names = session.names(&directory.to_string());
        names.expect("a listing").is_empty()
    })
}

/// Each directory with a delta was once looked at for each file that was brought up to date behind a fold: with 2,000 of
/// them an operation took nine times as long as with 20, and on with their number.
#[test]
fn an_operation_costs_as_much_however_many_directories_have_changed() {
    // The least of three: how folds meet the operations differs from run to run, by what else the machine does.
    let least = |directories| (0..3).map(|_| each(directories)).min().unwrap_or(0);
    let (few, many) = (least(20), least(2000));
    println!("{few} ns with 20 directories, {many} ns with 2,000");
    assert!(many < 5 * few, "{few} ns, {many} ns");
}
