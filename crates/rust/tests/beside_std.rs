//! The same calls, at random, on a pool by this crate and on tmpfs by `std::fs`: the same outcomes, error numbers too. The seed of a
//! failure is printed.

use arck::{Files, Pool};
use arck_test_pool::TestPool;
use std::io::{Read, Result, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % below
    }

    fn path(&mut self) -> PathBuf {
        let names = ["a", "b", "c", "link", "é"];
        let mut path = PathBuf::new();
        for _ in 0..=self.below(3) {
            path.push(names[self.below(5) as usize]);
        }
        path
    }
}

/// What a call says, with the error's number where it is one.
fn outcome<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => match arck::errno(&error) {
            Some(number) => format!("errno {number}"),
            // Of checks that are made before any call.
            None if error.kind() == std::io::ErrorKind::InvalidInput => "errno 22".to_owned(),
            None => format!("{:?}", error.kind()),
        },
    }
}

/// What both tell of a file.
fn told(size: u64, mode: u32, links: u64, modified: SystemTime) -> String {
    // Directories have sizes of their own, and times that are not set are of the moment.
    let is_set = modified < SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let size = if mode & libc::S_IFMT == libc::S_IFDIR {
        0
    } else {
        size
    };
    format!("{size} {mode:o} {links} {:?}", is_set.then_some(modified))
}

fn with_open(
    file: &mut (impl Read + Write + Seek + FileExt),
    bytes: &[u8],
    at: i64,
) -> Vec<String> {
    let mut buffer = [0; 3000];
    let mut exact = [0; 5];
    vec![
        outcome(file.write(bytes)),
        outcome(file.seek(SeekFrom::Current(at))),
        outcome(file.read(&mut buffer).map(|read| buffer[..read].to_vec())),
        outcome(file.seek(SeekFrom::End(at))),
        outcome(file.write_at(bytes, at.unsigned_abs())),
        outcome(file.read_exact_at(&mut exact, at.unsigned_abs())),
        outcome(file.rewind()),
        outcome(file.read(&mut buffer).map(|read| buffer[..read].to_vec())),
    ]
}

/// One call on both; what each said.
fn call(random: &mut Random, files: &Files, host: &Path) -> (String, Vec<String>, Vec<String>) {
    let (one, two) = (random.path(), random.path());
    let (host_one, host_two) = (host.join(&one), host.join(&two));
    let bytes = vec![b'a' + random.below(26) as u8; random.below(9000) as usize];
    let kind = random.below(18);
    let asked = format!("{kind} of {one:?}, {two:?}, {} bytes", bytes.len());
    let (theirs, ours) = match kind {
        0 => (
            outcome(std::fs::write(&host_one, &bytes)),
            outcome(files.write(&one, &bytes)),
        ),
        1 => (outcome(std::fs::read(&host_one)), outcome(files.read(&one))),
        2 => (
            outcome(std::fs::create_dir(&host_one)),
            outcome(files.create_dir(&one)),
        ),
        3 => (
            outcome(std::fs::create_dir_all(&host_one)),
            outcome(files.create_dir_all(&one)),
        ),
        4 => (
            outcome(std::fs::rename(&host_one, &host_two)),
            outcome(files.rename(&one, &two)),
        ),
        5 => (
            outcome(std::fs::hard_link(&host_one, &host_two)),
            outcome(files.hard_link(&one, &two)),
        ),
        6 => (
            outcome(std::os::unix::fs::symlink(&one, &host_two)),
            outcome(files.symlink(&one, &two)),
        ),
        7 => (
            outcome(std::fs::read_link(&host_one)),
            outcome(files.read_link(&one)),
        ),
        8 => (
            outcome(std::fs::remove_file(&host_one)),
            outcome(files.remove_file(&one)),
        ),
        9 => (
            outcome(std::fs::remove_dir(&host_one)),
            outcome(files.remove_dir(&one)),
        ),
        10 => (
            outcome(std::fs::remove_dir_all(&host_one)),
            outcome(files.remove_dir_all(&one)),
        ),
        11 => {
            let sorted = |mut names: Vec<_>| {
                names.sort();
                names
            };
            let theirs = std::fs::read_dir(&host_one)
                .map(|names| sorted(names.flatten().map(|name| name.file_name()).collect()));
            let ours = files.read_dir(&one);
            let ours = ours.map(|names| sorted(names.map(|name| name.file_name()).collect()));
            (outcome(theirs), outcome(ours))
        }
        12 => {
            let theirs = std::fs::symlink_metadata(&host_one);
            let theirs =
                theirs.and_then(|of| Ok(told(of.len(), of.mode(), of.nlink(), of.modified()?)));
            let ours = files.symlink_metadata(&one);
            let ours = ours.map(|of| told(of.len(), of.mode(), of.nlink(), of.modified()));
            (outcome(theirs), outcome(ours))
        }
        13 => {
            // Not what takes root's own rights away.
            let mode = std::fs::Permissions::from_mode(0o700 | random.below(0o100) as u32);
            (
                outcome(std::fs::set_permissions(&host_one, mode.clone())),
                outcome(files.set_permissions(&one, &mode)),
            )
        }
        14 => {
            let time = SystemTime::UNIX_EPOCH + Duration::new(random.below(1_000_000), 500);
            let times = std::fs::FileTimes::new().set_modified(time);
            let theirs = std::fs::File::open(&host_one);
            (
                outcome(theirs.and_then(|file| file.set_times(times))),
                outcome(files.set_times(&one, None, Some(time))),
            )
        }
        15 => (
            outcome(std::fs::copy(&host_one, &host_two)),
            outcome(files.copy(&one, &two)),
        ),
        _ => {
            let mut flag = || random.below(2) == 1;
            let [read, write, append, truncate, create, create_new] = [(); 6].map(|()| flag());
            let at = random.below(9000) as i64 - 4500;
            let mut theirs = std::fs::OpenOptions::new();
            theirs
                .read(read)
                .write(write)
                .append(append)
                .truncate(truncate);
            theirs.create(create).create_new(create_new).mode(0o640);
            let mut ours = files.options();
            ours.read(read)
                .write(write)
                .append(append)
                .truncate(truncate);
            ours.create(create).create_new(create_new).mode(0o640);
            let (mut open, mut opened) = match (theirs.open(&host_one), ours.open(&one)) {
                (Ok(theirs), Ok(ours)) => (theirs, ours),
                (theirs, ours) => {
                    let (theirs, ours) = (outcome(theirs.map(|_| ())), outcome(ours.map(|_| ())));
                    return (asked, vec![theirs], vec![ours]);
                }
            };
            let asked =
                format!("{asked}, {read} {write} {append} {truncate} {create} {create_new} {at}");
            let (mut open, mut opened) = match open.metadata().is_ok_and(|of| of.is_dir()) {
                true => return (asked, Vec::new(), Vec::new()),
                false => (
                    with_open(&mut open, &bytes, at),
                    with_open(&mut opened, &bytes, at),
                ),
            };
            open.push(outcome(std::fs::read(&host_one)));
            opened.push(outcome(files.read(&one)));
            return (asked, open, opened);
        }
    };
    (asked, vec![theirs], vec![ours])
}

#[test]
fn the_same_calls_have_the_same_outcomes() {
    for seed in 0..60 {
        println!("seed {seed}");
        let pool = TestPool::new(64 << 20);
        let host = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let files = Pool::new(pool.path()).files().expect("a session");
        let mut random = Random(seed);
        let mut errors = 0;
        for turn in 0..400 {
            let (asked, theirs, ours) = call(&mut random, &files, host.path());
            assert_eq!(theirs, ours, "seed {seed}, turn {turn}: {asked}");
            errors += usize::from(theirs.iter().any(|said| said.starts_with("errno")));
        }
        assert!((40..380).contains(&errors), "{errors} errors");
        files.close().expect("all is folded");
    }
}
