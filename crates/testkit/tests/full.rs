//! Full pools: ENOSPC wherever it can happen, with everything as it was, and room again after
//! deleting.

use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, Errno, Failure, FileSystem, Handle};
use std::collections::BTreeMap;

#[test]
fn a_full_pool_loses_nothing_and_can_be_used_again() {
    let mut pool = TestPool::new(32 << 20);
    let session = pool.session();
    session.put("first", b"first").unwrap();
    for round in 0..3u64 {
        // Files of all sizes until no more fits.
        let mut random = Random::new(round);
        let mut kept = Vec::new();
        let refused = loop {
            let name = format!("{round}-{}", kept.len());
            let content = random.bytes(1 + random.clone().below(400_000) as usize);
            match session.put(&name, &content) {
                Ok(()) => kept.push((name, content)),
                Err(failure) => break (name, failure),
            }
            assert!(kept.len() < 5000, "it never gets full");
        };
        assert_eq!(refused.1, Failure::Errno(Errno::NOSPC));
        assert!(
            kept.iter().map(|(_, content)| content.len()).sum::<usize>() > 12 << 20,
            "full with {} files",
            kept.len()
        );
        // Nothing is lost; what is there can be read, overwritten in place, renamed and removed.
        for (name, content) in &kept {
            assert_eq!(&session.get(name).unwrap(), content, "{name}");
        }
        assert_eq!(session.get("first").unwrap(), b"first");
        let (name, content) = &kept[0];
        session
            .rename(At::Root, name.as_bytes(), At::Root, b"moved", 0)
            .expect("rename in a full pool");
        assert_eq!(&session.get("moved").unwrap(), content);
        let other = pool.session();
        assert_eq!(&other.get("moved").unwrap(), content);
        other.disconnect().unwrap();
        session.unlink(At::Root, b"moved", 0).expect("unlink");
        let _ = session.unlink(At::Root, refused.0.as_bytes(), 0);
        for (name, _) in &kept[1..] {
            session
                .unlink(At::Root, name.as_bytes(), 0)
                .expect("unlink in a full pool");
        }
        assert_eq!(session.names("").unwrap(), ["first"]);
    }
    // All of it is free again, for another session too.
    session.disconnect().unwrap();
    pool.stop();
    pool.serve();
    let session = pool.session();
    assert_eq!(session.get("first").unwrap(), b"first");
    session.put("big", &vec![5; 16 << 20]).expect("room again");
    assert_eq!(session.get("big").unwrap(), vec![5; 16 << 20]);
}

#[test]
fn a_full_pool_that_crashes() {
    let mut pool = TestPool::new(32 << 20);
    let session = pool.session();
    let mut written = 0u64;
    let handle = session
        .open_at_root("file", libc::O_CREAT | libc::O_WRONLY)
        .unwrap();
    loop {
        match session.write(handle, &[(written >> 12) as u8; 4096], None) {
            Ok(4096) => written += 4096,
            Err(Errno::NOSPC) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(session.stat_handle(handle).unwrap().size, written);
    pool.kill();
    // What a process has mapped is nobody else's.
    drop(session);
    pool.serve();
    let session = pool.session();
    let content = session.get("file").unwrap();
    assert_eq!(content.len() as u64, written);
    for (page, bytes) in content.chunks(4096).enumerate() {
        assert!(bytes.iter().all(|&byte| byte == page as u8), "page {page}");
    }
    session.unlink(At::Root, b"file", 0).unwrap();
    session.put("other", &vec![1; 8 << 20]).expect("room again");
}

#[test]
fn inode_numbers_run_out_and_come_back() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    let inodes = session.statistics().unwrap().inodes;
    session.make_directory(At::Root, b"many", 0o755).unwrap();
    let mut made = 0u64;
    let failure = loop {
        let path = format!("many/{made}");
        match session.open(
            At::Root,
            path.as_bytes(),
            libc::O_CREAT | libc::O_WRONLY,
            0o644,
        ) {
            Ok(handle) => session.close(handle),
            Err(failure) => break failure,
        }
        made += 1;
        assert!(made <= inodes, "more files than there are inodes");
    };
    assert_eq!(failure, Failure::Errno(Errno::NOSPC));
    assert!(made > 500, "only {made} of {inodes} could be made");
    assert_eq!(session.names("many").unwrap().len() as u64, made);
    let fresh = pool.session();
    assert_eq!(fresh.names("many").unwrap().len() as u64, made);
    for number in 0..made {
        session
            .unlink(At::Root, format!("many/{number}").as_bytes(), 0)
            .expect("unlink");
    }
    for number in 0..made / 2 {
        session
            .put(&format!("many/again{number}"), b"")
            .expect("numbers come back");
    }
    assert_eq!(fresh.names("many").unwrap().len() as u64, made / 2);
}

/// What stands under a path: mode, links, size, and a digest of the content or the target.
type Node = (u32, u32, u64, u64);

/// Everything that is there.
fn picture(session: &FileSystem) -> BTreeMap<String, Node> {
    fn digest(bytes: &[u8]) -> u64 {
        let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29);
        let (words, rest) = bytes.as_chunks::<8>();
        let sum = words.iter().fold(bytes.len() as u64, |sum, word| {
            mix(sum, u64::from_le_bytes(*word))
        });
        rest.iter()
            .fold(sum, |sum, &byte| mix(sum, u64::from(byte)))
    }
    let mut nodes = BTreeMap::new();
    // A file with thousands of names is read once.
    let mut digests = BTreeMap::new();
    let mut waiting = vec![String::new()];
    while let Some(path) = waiting.pop() {
        let bytes = path.as_bytes();
        let stat = session
            .stat(At::Root, bytes, libc::AT_SYMLINK_NOFOLLOW)
            .expect("stat");
        let (size, sum) = match stat.mode & libc::S_IFMT {
            libc::S_IFDIR => {
                for name in session.names(&path).expect("names") {
                    waiting.push(format!("{path}/{name}").trim_start_matches('/').to_owned());
                }
                (0, 0)
            }
            libc::S_IFLNK => {
                let mut target = [0; 4096];
                let length = session
                    .read_link(At::Root, bytes, &mut target)
                    .expect("readlink");
                (stat.size, digest(&target[..length]))
            }
            _ => {
                let sum = digests
                    .entry(stat.inode)
                    .or_insert_with(|| digest(&session.get(&path).expect("content")));
                (stat.size, *sum)
            }
        };
        nodes.insert(path, (stat.mode, stat.links, size, sum));
    }
    nodes
}

/// Panics with the first paths that differ.
fn compare(expected: &BTreeMap<String, Node>, found: &BTreeMap<String, Node>) {
    let paths = expected.keys().chain(found.keys());
    let differ: Vec<_> = paths
        .filter(|&path| expected.get(path) != found.get(path))
        .map(|path| (path, expected.get(path), found.get(path)))
        .take(3)
        .collect();
    assert!(differ.is_empty(), "path, expected, found: {differ:?}");
}

/// What may fail for want of room; each leaves the tree as it was if it does.
struct Attempts<'s> {
    session: &'s FileSystem,
    /// A file of a few pages with a hole, and the handle of an O_APPEND description of it.
    file: Handle,
    append: Handle,
}

impl Attempts<'_> {
    /// Names and actions; each takes the number of the round, so that none is made twice.
    fn all(&self) -> Vec<(&'static str, Result<(), Errno>)> {
        let session = self.session;
        let errno = |failure| match failure {
            Failure::Errno(errno) => errno,
            Failure::Outside(_) => Errno::XDEV,
        };
        let whole = |written: Result<usize, Errno>, length: usize| match written {
            Ok(written) if written == length => Ok(()),
            // Short: it is the next one that says why.
            Ok(_) => Err(Errno::NOSPC),
            Err(errno) => Err(errno),
        };
        let at = At::Root;
        let long = "l".repeat(200);
        vec![
            (
                "create",
                session
                    .open(
                        at,
                        b"tries/new",
                        libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY,
                        0o600,
                    )
                    .map(|handle| session.close(handle))
                    .map_err(errno),
            ),
            (
                "mkdir",
                session
                    .make_directory(at, b"tries/directory", 0o700)
                    .map_err(errno),
            ),
            (
                "mknod",
                session
                    .make_node(at, b"tries/node", libc::S_IFREG | 0o600, 0)
                    .map_err(errno),
            ),
            (
                "symlink",
                session
                    .symlink(long.as_bytes(), at, b"tries/symlink")
                    .map_err(errno),
            ),
            (
                "link",
                session
                    .link(at, b"file", at, b"tries/link", 0)
                    .map_err(errno),
            ),
            (
                "rename",
                session
                    .rename(at, b"moves", at, b"tries/moved", 0)
                    .map_err(errno),
            ),
            (
                "rename over",
                session
                    .rename(at, b"tries/over-from", at, b"tries/over-to", 0)
                    .map_err(errno),
            ),
            (
                "write into a hole",
                whole(
                    session.write(self.file, &[7; 65_536], Some(1 << 18)),
                    65_536,
                ),
            ),
            (
                "overwrite",
                whole(session.write(self.file, &[8; 100], Some(0)), 100),
            ),
            (
                "append",
                whole(session.write(self.append, &[9; 40_000], None), 40_000),
            ),
            ("truncate up", session.truncate_handle(self.file, 1 << 19)),
            ("fallocate", session.allocate(self.file, 0, 0, 1 << 19)),
        ]
    }
}

/// Makes what the attempts need, as long as there is room.
fn furnish(session: &FileSystem) -> Attempts<'_> {
    session
        .make_directory(At::Root, b"tries", 0o755)
        .expect("mkdir");
    session.put("file", b"begins").expect("put");
    session.put("moves", b"moves").expect("put");
    session.put("tries/over-from", b"from").expect("put");
    session.put("tries/over-to", b"to").expect("put");
    let file = session.open_at_root("file", libc::O_RDWR).expect("open");
    session.write(file, b"end", Some(3 * 4096)).expect("write");
    let append = session
        .open_at_root("file", libc::O_WRONLY | libc::O_APPEND)
        .expect("open");
    Attempts {
        session,
        file,
        append,
    }
}

/// Every attempt, one by one: what fails says ENOSPC and leaves everything as it was, here and in
/// the eyes of another session. Gives the names of those that failed.
fn refused(pool: &TestPool, attempts: &Attempts<'_>) -> Vec<&'static str> {
    let session = attempts.session;
    let count = 12;
    let mut refused = Vec::new();
    // One call of `all` makes all of them; what it left is compared as a whole, and then what
    // succeeded is known from its result.
    let before = picture(session);
    let results = attempts.all();
    assert_eq!(results.len(), count);
    let after = picture(session);
    let done = |name: &str| {
        results
            .iter()
            .any(|(other, result)| *other == name && result.is_ok())
    };
    for (name, result) in &results {
        if let Err(errno) = result {
            assert_eq!(*errno, Errno::NOSPC, "{name}");
            refused.push(*name);
        }
    }
    let mut expected = before.clone();
    for (name, path) in [
        ("create", "tries/new"),
        ("mkdir", "tries/directory"),
        ("mknod", "tries/node"),
        ("symlink", "tries/symlink"),
        ("link", "tries/link"),
    ] {
        assert_eq!(after.contains_key(path), done(name), "{name}");
        if let Some(node) = after.get(path) {
            expected.insert(path.to_owned(), *node);
        }
        if done(name) && name == "mkdir" {
            expected
                .entry("tries".to_owned())
                .and_modify(|node| node.1 += 1);
        }
    }
    let moved = |expected: &mut BTreeMap<String, Node>, from: &str, to: &str| {
        let node = expected.remove(from).expect("it was there");
        expected.insert(to.to_owned(), node);
    };
    if done("rename") {
        moved(&mut expected, "moves", "tries/moved");
    }
    if done("rename over") {
        moved(&mut expected, "tries/over-from", "tries/over-to");
    }
    // The file is what its own attempts made of it: compared if none of them was done.
    let changes = [
        "write into a hole",
        "overwrite",
        "append",
        "truncate up",
        "fallocate",
        "link",
    ];
    if changes.iter().any(|name| done(name)) {
        let file = after["file"];
        for node in expected.values_mut() {
            if node.1 == before["file"].1 && node.3 == before["file"].3 {
                // One of its names.
                *node = file;
            }
        }
    }
    let size = |tree: &BTreeMap<String, Node>| tree["file"].2;
    if !["append", "truncate up", "fallocate"]
        .iter()
        .any(|name| done(name))
    {
        assert_eq!(size(&before), size(&after), "what failed changed the size");
    }
    compare(&expected, &after);
    let other = pool.session();
    compare(&expected, &picture(&other));
    other.disconnect().expect("disconnect");
    assert_eq!(pool.violations(), "");
    refused
}

/// Fills with one file until not a page is left. Gives its handle.
fn fill_data(session: &FileSystem) {
    let handle = session
        .open_at_root("filler", libc::O_CREAT | libc::O_WRONLY)
        .expect("open");
    for piece in [vec![1; 1 << 20], vec![1; 4096]] {
        loop {
            match session.write(handle, &piece, None) {
                Ok(length) if length == piece.len() => {}
                Ok(_) => break,
                Err(errno) => {
                    assert_eq!(errno, Errno::NOSPC);
                    break;
                }
            }
        }
    }
    session.close(handle);
}

#[test]
fn no_data_page_is_left() {
    let mut pool = TestPool::new(16 << 20);
    let session = pool.session();
    let attempts = furnish(&session);
    fill_data(&session);
    let names = refused(&pool, &attempts);
    for name in ["write into a hole", "append", "fallocate"] {
        assert!(names.contains(&name), "{name} found room: {names:?}");
    }
    for name in ["create", "mkdir", "rename", "link", "overwrite"] {
        assert!(
            !names.contains(&name),
            "{name} needs no data page: {names:?}"
        );
    }
    // A little room, and all of them can be done.
    session.unlink(At::Root, b"filler", 0).expect("unlink");
    assert_eq!(
        session.write(attempts.append, &[9; 40_000], None),
        Ok(40_000)
    );
    assert_eq!(
        session.write(attempts.file, &[7; 4096], Some(4096)),
        Ok(4096)
    );
    session
        .allocate(attempts.file, 0, 0, 1 << 20)
        .expect("room again");
    let before = picture(&session);
    drop(session);
    pool.stop();
    pool.serve();
    assert_eq!(picture(&pool.session()), before);
}

#[test]
fn no_inode_number_is_left() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    let attempts = furnish(&session);
    session
        .make_directory(At::Root, b"many", 0o755)
        .expect("mkdir");
    let mut made = 0;
    while session
        .make_node(
            At::Root,
            format!("many/{made}").as_bytes(),
            libc::S_IFREG | 0o600,
            0,
        )
        .is_ok()
    {
        made += 1;
    }
    let names = refused(&pool, &attempts);
    assert!(
        ["create", "mkdir", "mknod", "symlink"]
            .iter()
            .all(|name| names.contains(name)),
        "{names:?}"
    );
    for name in [
        "link",
        "rename",
        "rename over",
        "append",
        "truncate up",
        "overwrite",
    ] {
        assert!(
            !names.contains(&name),
            "{name} needs no inode number: {names:?}"
        );
    }
    for number in 0..made {
        session
            .unlink(At::Root, format!("many/{number}").as_bytes(), 0)
            .expect("unlink");
    }
    session.put("tries/new", b"new").expect("numbers again");
    session
        .make_directory(At::Root, b"tries/directory", 0o700)
        .expect("numbers again");
    session
        .symlink(b"target", At::Root, b"tries/symlink")
        .expect("numbers again");
}

#[test]
fn no_page_for_names_is_left() {
    let pool = TestPool::new(16 << 20);
    let session = pool.session();
    let attempts = furnish(&session);
    session
        .make_directory(At::Root, b"names", 0o755)
        .expect("mkdir");
    fill_data(&session);
    let mut made = 0;
    let name = |number: usize| format!("names/{number:0>250}");
    let failure = loop {
        match session.link(At::Root, b"file", At::Root, name(made).as_bytes(), 0) {
            Ok(()) => made += 1,
            Err(failure) => break failure,
        }
        assert!(made < 200_000, "names for ever in 16 MiB");
    };
    assert_eq!(failure, Failure::Errno(Errno::NOSPC));
    assert!(made > 1000, "{made}");
    assert_eq!(session.names("names").expect("names").len(), made);
    let names = refused(&pool, &attempts);
    assert!(!names.is_empty());
    for number in 0..made {
        session
            .unlink(At::Root, name(number).as_bytes(), 0)
            .expect("unlink in a full pool");
    }
    session
        .link(At::Root, b"file", At::Root, name(0).as_bytes(), 0)
        .expect("room again");
    assert_eq!(pool.violations(), "");
}
