//! What tests of logs share: a log in a pool, and all that it holds, as a log and as files.

use arck_logfs::{Log, Options};
use arck_testkit::{Shorthand, TestPool};
use arckfs::FileSystem;

pub fn options(pool: &TestPool, section: u64) -> Options {
    Options {
        make: true,
        section,
        ..Options::new(pool.path())
    }
}

pub fn open(pool: &TestPool, section: u64) -> Log {
    Log::open(options(pool, section), "log").expect("a log")
}

/// All that a log holds, from its beginning.
pub fn all(log: &Log) -> (u64, Vec<u8>) {
    let (begin, end) = (log.begin().expect("begin"), log.end().expect("end"));
    let mut bytes = vec![0; (end - begin) as usize + 1];
    let read = log.read_at(begin, &mut bytes).expect("read");
    assert_eq!(read as u64, end - begin, "bytes to the end");
    bytes.truncate(read);
    (begin, bytes)
}

/// The same, by another LibFS: ordinary files, one behind the other.
pub fn as_files(files: &FileSystem, directory: &str) -> (u64, Vec<u8>) {
    let names = files.names(directory).expect("names");
    let names: Vec<_> = names.iter().filter(|name| *name != ".limit").collect();
    let begin = names
        .first()
        .expect("a section")
        .parse()
        .expect("a position");
    let mut bytes = Vec::new();
    for name in names {
        assert_eq!(name.parse(), Ok(begin + bytes.len() as u64), "{name}");
        bytes.extend(
            files
                .get(&format!("{directory}/{name}"))
                .expect("a section"),
        );
    }
    (begin, bytes)
}
