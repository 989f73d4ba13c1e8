//! Random trees through archives: exported, imported into a fresh pool, exported again. All that
//! `arck export --help` promises is the same, and so is the second archive, byte for byte.
//!
//!     ARCK_ARCHIVES=200 ARCK_ARCHIVE_SEED=7 cargo test -p arck-cli --test cli carried
//!
//! for so many trees (default: 6) from another seed on.

use crate::support::{Place, Serving, arck, mkfs, succeeded};
use arck_testkit::{Random, connect_as};
use arckfs::{At, FileSystem, SetTime, Subject, Timestamp};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const PAGE: u64 = 4096;
/// Longest path that is made: what an archive's tools can be asked for in one piece.
const PATH_MAX: usize = 3000;

/// A name: mostly short, with bytes that mean something to somebody.
fn name(random: &mut Random) -> Vec<u8> {
    let length = match random.below(8) {
        0 => 255,
        1 => 99 + random.below(4),
        _ => 1 + random.below(12),
    };
    let special = b"\n\r\t =%\\\"'*?[]{}$;&|<>!~-.,:\x01\x7f\x80\xc3\xa4\xff";
    let byte = |random: &mut Random| match random.below(3) {
        0 => *random.pick(special),
        1 => b'a' + random.below(26) as u8,
        _ => loop {
            let byte = random.below(256) as u8;
            if byte != 0 && byte != b'/' {
                break byte;
            }
        },
    };
    loop {
        let name: Vec<u8> = (0..length).map(|_| byte(random)).collect();
        if name != b"." && name != b".." {
            return name;
        }
    }
}

fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        _ => [directory, b"/", name].concat(),
    }
}

/// Makes a tree.
fn fill(fs: &FileSystem, random: &mut Random) {
    let mut directories: Vec<Vec<u8>> = vec![Vec::new()];
    let mut files: Vec<Vec<u8>> = Vec::new();
    let mut all: Vec<Vec<u8>> = Vec::new();
    // One that is deep.
    let mut deep = Vec::new();
    while deep.len() < PATH_MAX - 300 {
        deep = below(&deep, &name(random));
        fs.make_directory(At::Root, &deep, 0o755).unwrap();
        all.push(deep.clone());
        directories.push(deep.clone());
    }
    for _ in 0..120 {
        let path = below(&random.pick(&directories).clone(), &name(random));
        if path.len() > PATH_MAX || all.contains(&path) {
            continue;
        }
        match random.below(10) {
            0 | 1 => {
                fs.make_directory(At::Root, &path, 0o755).unwrap();
                directories.push(path.clone());
            }
            2 => {
                let length = 1 + random.below(200) as usize;
                let mut target = random.bytes(length);
                target.iter_mut().for_each(|byte| *byte = (*byte).max(1));
                fs.symlink(&target, At::Root, &path).unwrap();
            }
            3 if !files.is_empty() => {
                let other = random.pick(&files).clone();
                fs.link(At::Root, &other, At::Root, &path, 0).unwrap();
            }
            4 => {
                fs.make_node(At::Root, &path, libc::S_IFIFO | 0o600, 0)
                    .unwrap();
            }
            // Others than root make none but the one that stands for nothing.
            5 => {
                let is_root = rustix::process::geteuid().is_root();
                let (kind, device) = match is_root {
                    true if random.percent(50) => (libc::S_IFBLK, random.below(1 << 32)),
                    true => (libc::S_IFCHR, random.below(1 << 32)),
                    false => (libc::S_IFCHR, 0),
                };
                fs.make_node(At::Root, &path, kind | 0o600, device).unwrap();
            }
            _ => {
                file(fs, random, &path);
                files.push(path.clone());
            }
        }
        all.push(path);
    }
    // From the end, so that nothing is made in a directory whose times are set.
    for path in all.iter().rev().chain([&b".".to_vec()]) {
        attributes(fs, random, path);
    }
}

fn file(fs: &FileSystem, random: &mut Random, path: &[u8]) {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    let handle = fs.open(At::Root, path, flags, 0o600).unwrap();
    let mut end = 0;
    for _ in 0..random.below(4) {
        let at = match random.below(4) {
            0 => 0,
            1 => end,
            2 => random.below(1 << 22),
            _ => random.below(1 << 40),
        };
        let length = match random.below(10) {
            0 => random.below(2 << 20),
            1 => PAGE * random.below(4),
            _ => random.below(10_000),
        };
        let mut bytes = random.bytes(length as usize);
        if random.percent(20) {
            bytes.fill(0);
        }
        assert_eq!(fs.write(handle, &bytes, Some(at)), Ok(bytes.len()));
        end = end.max(at + length);
    }
    if random.percent(20) {
        fs.truncate_handle(handle, random.below(end + 10_000))
            .unwrap();
    }
    fs.close(handle);
}

fn attributes(fs: &FileSystem, random: &mut Random, path: &[u8]) {
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    let mode = fs.stat(At::Root, path, flags).unwrap().mode;
    let is_link = mode & libc::S_IFMT == libc::S_IFLNK;
    let may_have = matches!(mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR);
    if rustix::process::geteuid().is_root() && random.percent(60) {
        let [uid, gid] = [(); 2].map(|()| *random.pick(&[0, 1, 1000, 0o7777777, 0x8000_0001]));
        fs.change_owner(At::Root, path, uid, gid, flags).unwrap();
    }
    for _ in 0..random.below(3) * u64::from(may_have) {
        let mut own = name(random);
        own.truncate(100);
        let key = [b"user.", &own[..]].concat();
        let length = random.below(300) as usize;
        let subject = Subject::Path(At::Root, path, flags);
        fs.set_extended(subject, &key, &random.bytes(length), 0)
            .unwrap();
    }
    if !is_link {
        let least = match rustix::process::geteuid().is_root() {
            true => 0,
            false => 0o700,
        };
        let mode = random.below(0o10000) as u32 | least;
        fs.change_mode(At::Root, path, mode, 0).unwrap();
    }
    let mut time = || {
        let seconds = match random.below(4) {
            0 => -(random.below(1 << 31) as i64),
            1 => random.below(4) as i64 - 2,
            _ => random.below(1 << 33) as i64,
        };
        let nanoseconds = match random.below(3) {
            0 => 0,
            _ => random.below(1_000_000_000) as u32,
        };
        SetTime::At(Timestamp {
            seconds,
            nanoseconds,
        })
    };
    fs.set_times(At::Root, path, time(), time(), flags).unwrap();
}

/// What is promised of a file.
#[derive(PartialEq, Debug)]
struct Known {
    mode: u32,
    owner: (u32, u32),
    device: u32,
    size: u64,
    links: u64,
    accessed: Timestamp,
    modified: Timestamp,
    /// The first of its names.
    first: Vec<u8>,
    target: Vec<u8>,
    extended: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Pages in which there is something but zeroes.
    pages: BTreeMap<u64, Vec<u8>>,
}

/// Every path, with what is promised of it; and blocks that it takes beyond pages with something in
/// them.
fn known(fs: &FileSystem) -> BTreeMap<Vec<u8>, (Known, u64)> {
    let mut found = BTreeMap::new();
    let mut first: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut waiting = vec![Vec::new()];
    while let Some(path) = waiting.pop() {
        let at = if path.is_empty() { &b"."[..] } else { &path };
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        let status = fs.stat(At::Root, at, flags).unwrap();
        let kind = status.mode & libc::S_IFMT;
        let mut target = Vec::new();
        if kind == libc::S_IFLNK {
            target.resize(4096, 0);
            let length = fs.read_link(At::Root, at, &mut target).unwrap();
            target.truncate(length);
        }
        if kind == libc::S_IFDIR {
            let mut names = names(fs, at);
            names.sort_unstable_by(|one, other| other.cmp(one));
            waiting.extend(names.iter().map(|name| below(&path, name)));
        }
        let pages = match kind {
            libc::S_IFREG => pages(fs, at, status.size),
            _ => BTreeMap::new(),
        };
        let taken = match kind {
            libc::S_IFREG => status.blocks - pages.len() as u64 * PAGE / 512,
            _ => 0,
        };
        let one = Known {
            mode: status.mode,
            owner: (status.uid, status.gid),
            device: status.device,
            size: if kind == libc::S_IFDIR {
                0
            } else {
                status.size
            },
            links: u64::from(status.links),
            accessed: status.accessed,
            modified: status.modified,
            first: first.entry(status.inode).or_insert(path.clone()).clone(),
            target,
            extended: extended(fs, at),
            pages,
        };
        found.insert(path, (one, taken));
    }
    found
}

fn names(fs: &FileSystem, at: &[u8]) -> Vec<Vec<u8>> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let handle = fs.open(At::Root, at, flags, 0).unwrap();
    let mut names = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let used = fs.read_directory(handle, &mut buffer).unwrap();
        if used == 0 {
            break;
        }
        let mut at = 0;
        while at < used {
            let length = usize::from(u16::from_ne_bytes([buffer[at + 16], buffer[at + 17]]));
            let name = &buffer[at + 19..at + length];
            let end = name.iter().position(|&byte| byte == 0).unwrap();
            if !matches!(&name[..end], b"." | b"..") {
                names.push(name[..end].to_vec());
            }
            at += length;
        }
    }
    fs.close(handle);
    names
}

fn pages(fs: &FileSystem, at: &[u8], size: u64) -> BTreeMap<u64, Vec<u8>> {
    let handle = fs.open(At::Root, at, libc::O_RDONLY, 0).unwrap();
    let mut pages = BTreeMap::new();
    let mut at = 0;
    while at < size {
        let Ok(begin) = fs.seek(handle, at as i64, libc::SEEK_DATA) else {
            break;
        };
        let page = begin / PAGE;
        let mut bytes = vec![0; PAGE as usize];
        let length = fs.read(handle, &mut bytes, Some(page * PAGE)).unwrap();
        bytes.truncate(length);
        if bytes.iter().any(|&byte| byte != 0) {
            pages.insert(page, bytes);
        }
        at = (page + 1) * PAGE;
    }
    fs.close(handle);
    pages
}

fn extended(fs: &FileSystem, at: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let subject = || Subject::Path(At::Root, at, libc::AT_SYMLINK_NOFOLLOW);
    let mut buffer = vec![0; 1 << 16];
    let length = fs.list_extended(subject(), &mut buffer).unwrap_or(0);
    let names = buffer[..length].split(|&byte| byte == 0);
    let names = names.filter(|name| !name.is_empty());
    let with_value = names.map(|name| {
        let mut value = vec![0; 1 << 16];
        let length = fs.get_extended(subject(), name, &mut value).unwrap();
        value.truncate(length);
        (name.to_vec(), value)
    });
    with_value.collect()
}

/// With a session on a pool that is served for as long.
fn with_pool<R>(pool: &Path, work: impl FnOnce(&FileSystem) -> R) -> R {
    let mut serving = Serving::start(pool, &[]);
    let fs = connect_as(pool, b"");
    let done = work(&fs);
    fs.disconnect().unwrap();
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
    done
}

fn archive_of(pool: &Path, archive: &Path) {
    let file = std::fs::File::create(archive).unwrap();
    let mut command = arck();
    let output = command.arg("export").arg(pool).stdout(file).output();
    succeeded(&output.unwrap());
}

#[test]
fn a_random_tree_is_carried_over_whole() {
    let number = |variable: &str, default| {
        let text = std::env::var(variable).ok();
        text.map_or(default, |text| text.parse::<u64>().expect("a number"))
    };
    let seed = number("ARCK_ARCHIVE_SEED", 1);
    for seed in seed..seed + number("ARCK_ARCHIVES", 6) {
        let place = Place::new();
        let pools = ["one", "two"].map(|name| place.path().join(name));
        for pool in &pools {
            assert!(mkfs(pool, &["--size", "64M"]).status.success());
        }
        let before = with_pool(&pools[0], |fs| {
            fill(fs, &mut Random::new(seed));
            known(fs)
        });
        let archives = ["one.tar", "two.tar"].map(|name| place.path().join(name));
        archive_of(&pools[0], &archives[0]);
        let mut import: Command = arck();
        let input = std::fs::File::open(&archives[0]).unwrap();
        import.arg("import").arg(&pools[1]).stdin(input);
        assert_eq!(succeeded(&import.output().unwrap()), "", "seed {seed}");
        let after = with_pool(&pools[1], known);
        let told = |path: &Vec<u8>| format!("seed {seed}: {}", path.escape_ascii());
        for (path, (wanted, _)) in &before {
            let (found, more) = after.get(path).unwrap_or_else(|| panic!("{}", told(path)));
            assert!(found == wanted, "{}: {found:?}, not {wanted:?}", told(path));
            // Holes, and pages of zeroes, take nothing.
            assert_eq!(*more, 0, "{}", told(path));
        }
        assert_eq!(after.len(), before.len(), "seed {seed}");
        archive_of(&pools[1], &archives[1]);
        let again = std::fs::read(&archives[1]).unwrap();
        assert_eq!(again.len() % 512, 0);
        let checked = arck().arg("check").arg(&pools[1]).output().unwrap();
        assert_eq!(succeeded(&checked), "", "seed {seed}");
        // What was a page of zeroes is a hole by now: from then on nothing changes.
        let third = place.path().join("three");
        assert!(mkfs(&third, &["--size", "64M"]).status.success());
        let mut import: Command = arck();
        let input = std::fs::File::open(&archives[1]).unwrap();
        import.arg("import").arg(&third).stdin(input);
        assert_eq!(succeeded(&import.output().unwrap()), "", "seed {seed}");
        archive_of(&third, &archives[0]);
        assert!(std::fs::read(&archives[0]).unwrap() == again, "seed {seed}");
    }
}
