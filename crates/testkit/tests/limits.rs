//! Limits: the longest names and paths, the deepest links, the largest files and directories, the
//! most descriptors.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, Failure, FileSystem};
use std::collections::BTreeSet;

const POOL: u64 = 64 << 20;

fn is(result: &Result<impl Sized, Failure>, errno: Errno) -> bool {
    matches!(result, Err(Failure::Errno(found)) if *found == errno)
}

fn errno<T: std::fmt::Debug>(result: Result<T, Failure>) -> Errno {
    match result {
        Err(Failure::Errno(errno)) => errno,
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_paths_and_links_have_limits() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    let longest = "n".repeat(255);
    session.put(&longest, b"x").unwrap();
    assert_eq!(session.names("").unwrap(), std::slice::from_ref(&longest));
    assert_eq!(
        errno(session.put(&"n".repeat(256), b"x")),
        Errno::NAMETOOLONG
    );
    assert_eq!(errno(session.get(&"a/".repeat(2100))), Errno::NAMETOOLONG);
    session.symlink(b"loop", At::Root, b"loop").unwrap();
    assert_eq!(errno(session.get("loop")), Errno::LOOP);
    session
        .symlink(longest.as_bytes(), At::Root, b"l0")
        .unwrap();
    for depth in 1..40 {
        let (from, to) = (format!("l{}", depth - 1), format!("l{depth}"));
        session
            .symlink(from.as_bytes(), At::Root, to.as_bytes())
            .unwrap();
    }
    assert_eq!(session.get("l39").unwrap(), b"x");
    session.symlink(b"l39", At::Root, b"l40").unwrap();
    assert_eq!(errno(session.get("l40")), Errno::LOOP);
}

#[test]
fn twenty_thousand_files_in_one_directory() {
    const FILES: usize = 20_000;
    let mut pool = TestPool::new(128 << 20);
    let one = pool.session();
    one.make_directory(At::Root, b"directory", 0o755).unwrap();
    let name = |number: usize| format!("file-{number:05}-{}", "x".repeat(number % 60));
    for number in 0..FILES {
        one.put(&format!("directory/{}", name(number)), b"")
            .expect("put");
        if number == FILES / 2 {
            one.fold(false).unwrap();
        }
    }
    let all: BTreeSet<String> = (0..FILES).map(name).collect();
    let check = |session: &FileSystem, all: &BTreeSet<String>| {
        let names = session.names("directory").expect("a listing");
        assert_eq!(names.len(), all.len());
        assert!(names.iter().eq(all.iter()));
        for number in (0..FILES).step_by(7) {
            let path = format!("directory/{}", name(number));
            let found = session.stat(At::Root, path.as_bytes(), 0);
            assert_eq!(
                found.is_ok(),
                all.contains(&name(number)),
                "{path}: {found:?}"
            );
        }
        assert!(is(
            &session.stat(At::Root, b"directory/file-99999", 0),
            Errno::NOENT
        ));
    };
    check(&one, &all);
    one.fold(false).unwrap();
    check(&one, &all);
    let two = pool.session();
    check(&two, &all);
    // Every second one goes; the reader and the owner agree.
    let mut rest = all.clone();
    for number in (0..FILES).step_by(2) {
        one.unlink(
            At::Root,
            format!("directory/{}", name(number)).as_bytes(),
            0,
        )
        .expect("unlink");
        rest.remove(&name(number));
    }
    check(&one, &rest);
    check(&two, &rest);
    one.disconnect().unwrap();
    two.disconnect().unwrap();
    pool.kill();
    pool.serve();
    let three = pool.session();
    check(&three, &rest);
    for name in &rest {
        three
            .unlink(At::Root, format!("directory/{name}").as_bytes(), 0)
            .expect("unlink");
    }
    three
        .unlink(At::Root, b"directory", libc::AT_REMOVEDIR)
        .expect("rmdir");
}

#[test]
fn a_sparse_file() {
    let mut pool = TestPool::new(POOL);
    let session = pool.session();
    let handle = session
        .open_at_root("sparse", libc::O_CREAT | libc::O_RDWR)
        .unwrap();
    let places = [0u64, 5000, (2 << 20) - 3, 1 << 30, (1 << 40) + 77];
    for &at in &places {
        assert_eq!(session.write(handle, b"island", Some(at)), Ok(6));
    }
    let check = |session: &FileSystem| {
        let handle = session
            .open_at_root("sparse", libc::O_RDONLY)
            .expect("open");
        let stat = session.stat_handle(handle).expect("stat");
        assert_eq!(stat.size, (1 << 40) + 77 + 6);
        assert!(stat.blocks * 512 < 1 << 20, "{} blocks", stat.blocks);
        let mut buffer = [1; 26];
        for &at in &places {
            let from = at.saturating_sub(10);
            let read = session.read(handle, &mut buffer, Some(from)).expect("read");
            let mut expected = vec![0; read];
            let within = (at - from) as usize;
            expected[within..within + 6].copy_from_slice(b"island");
            assert_eq!(&buffer[..read], expected, "around {at}");
        }
        assert_eq!(session.read(handle, &mut buffer, Some(500 << 30)), Ok(26));
        assert_eq!(buffer, [0; 26]);
        // From data to hole and on.
        assert_eq!(session.seek(handle, 0, libc::SEEK_HOLE), Ok(8192));
        assert_eq!(
            session.seek(handle, 8192, libc::SEEK_DATA),
            Ok((2 << 20) - 4096)
        );
        session.close(handle);
    };
    check(&session);
    session.fold(false).unwrap();
    check(&session);
    check(&pool.session());
    pool.kill();
    pool.serve();
    let session = pool.session();
    check(&session);
    // Cut in the middle of data, and grown again: what was cut off is gone.
    session.truncate(At::Root, b"sparse", 5003).unwrap();
    session.truncate(At::Root, b"sparse", 3 << 20).unwrap();
    let content = session.get("sparse").unwrap();
    assert_eq!(content.len(), 3 << 20);
    assert_eq!(&content[5000..5006], b"isl\0\0\0");
    assert!(content[5003..].iter().all(|&byte| byte == 0));
}

/// Links made by a session that lives: each has to be recalled from it.
#[test]
fn forty_links_of_another_session() {
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    one.put("file", b"content").unwrap();
    let mut directory = String::new();
    for depth in 0..=40 {
        // Each link in a directory of its own, deeper and deeper.
        one.make_directory(At::Root, format!("{directory}d").as_bytes(), 0o755)
            .unwrap();
        let target = if depth == 0 {
            "../file".to_owned()
        } else {
            "../link".to_owned()
        };
        directory.push_str("d/");
        one.symlink(
            target.as_bytes(),
            At::Root,
            format!("{directory}link").as_bytes(),
        )
        .unwrap();
    }
    let path = |links: usize| format!("{}link", "d/".repeat(links));
    assert_eq!(two.get(&path(40)).unwrap(), b"content");
    assert_eq!(errno(two.get(&path(41))), Errno::LOOP);
    assert_eq!(one.get(&path(40)).unwrap(), b"content");
    assert_eq!(errno(one.get(&path(41))), Errno::LOOP);
}

/// A path of 4,095 bytes goes, by single dots and by real directories; one of 4,096 does not.
#[test]
fn the_longest_path() {
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    let name = "d".repeat(203);
    let mut path = String::new();
    for _ in 0..20 {
        path.push_str(&name);
        one.make_directory(At::Root, path.as_bytes(), 0o755)
            .expect("mkdir");
        path.push('/');
    }
    // Twenty names and slashes are 4,080 bytes.
    let longest = format!("{path}{}", "f".repeat(15));
    assert_eq!(longest.len(), 4095);
    one.put(&longest, b"deep").expect("put");
    for session in [&one, &two] {
        assert_eq!(session.get(&longest).expect("get"), b"deep");
        assert_eq!(
            errno(session.get(&format!("{longest}f"))),
            Errno::NAMETOOLONG
        );
        assert_eq!(
            errno(session.put(&format!("{longest}f"), b"")),
            Errno::NAMETOOLONG
        );
    }
    let dots = format!("{}{}", "./".repeat(2045), &name[..5]);
    assert_eq!(dots.len(), 4095);
    one.put(&dots, b"dots").expect("put");
    assert_eq!(two.get(&name[..5]).expect("get"), b"dots");
    one.unlink(At::Root, longest.as_bytes(), 0).expect("unlink");
}

#[test]
fn a_file_of_sixteen_tebibytes() {
    const SIZE: u64 = 16 << 40;
    let mut pool = TestPool::new(POOL);
    let session = pool.session();
    let handle = session
        .open_at_root("huge", libc::O_CREAT | libc::O_RDWR)
        .unwrap();
    session.truncate_handle(handle, SIZE).unwrap();
    assert_eq!(session.write(handle, b"end", Some(SIZE - 3)), Ok(3));
    assert_eq!(session.write(handle, b"middle", Some(SIZE / 2)), Ok(6));
    let check = |session: &FileSystem| {
        let handle = session.open_at_root("huge", libc::O_RDONLY).unwrap();
        let stat = session.stat_handle(handle).unwrap();
        assert_eq!(stat.size, SIZE);
        assert!(stat.blocks * 512 <= 64 << 10, "{} blocks", stat.blocks);
        let mut buffer = [1; 16];
        assert_eq!(session.read(handle, &mut buffer, Some(SIZE - 3)), Ok(3));
        assert_eq!(&buffer[..3], b"end");
        assert_eq!(
            session.read(handle, &mut buffer, Some(SIZE / 2 - 5)),
            Ok(16)
        );
        assert_eq!(&buffer, b"\0\0\0\0\0middle\0\0\0\0\0");
        assert_eq!(session.read(handle, &mut buffer, Some(SIZE)), Ok(0));
        assert_eq!(session.seek(handle, -3, libc::SEEK_END), Ok(SIZE - 3));
        assert_eq!(session.read(handle, &mut buffer, None), Ok(3));
        session.close(handle);
    };
    check(&session);
    check(&pool.session());
    session.disconnect().unwrap();
    pool.stop();
    pool.serve();
    let session = pool.session();
    check(&session);
    session.truncate(At::Root, b"huge", 10).unwrap();
    assert_eq!(session.get("huge").unwrap(), [0; 10]);
    session.unlink(At::Root, b"huge", 0).unwrap();
}

#[test]
fn a_hundred_thousand_descriptors() {
    const COUNT: usize = 100_000;
    let pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("file", b"content").unwrap();
    let memory = || session.session().region().statistics().bytes_in_use;
    let before = memory();
    for round in 0..2 {
        let mut handles = Vec::with_capacity(COUNT);
        for _ in 0..COUNT {
            handles.push(session.open_at_root("file", libc::O_RDWR).expect("open"));
        }
        let distinct: BTreeSet<_> = handles.iter().map(|handle| handle.0).collect();
        assert_eq!(distinct.len(), COUNT);
        // Each has an offset of its own.
        let mut buffer = [0; 3];
        for &handle in handles.iter().step_by(997) {
            assert_eq!(session.read(handle, &mut buffer, None), Ok(3));
            assert_eq!(&buffer, b"con");
            assert_eq!(session.read(handle, &mut buffer, None), Ok(3));
            assert_eq!(&buffer, b"ten");
        }
        for (number, handle) in handles.into_iter().enumerate() {
            if number == COUNT / 2 && round == 0 {
                session.unlink(At::Root, b"file", 0).expect("unlink");
                session.put("file", b"content").expect("put");
            }
            session.close(handle);
        }
    }
    assert!(
        memory() <= before + 65_536,
        "{before} bytes before, {} after",
        memory()
    );
}

/// Many files open at once, each a different one.
#[test]
fn many_open_files() {
    const COUNT: usize = 12_000;
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    let name = |number: usize| format!("f{number}");
    let mut handles = Vec::new();
    for number in 0..COUNT {
        let handle = one
            .open_at_root(&name(number), libc::O_CREAT | libc::O_RDWR)
            .unwrap_or_else(|failure| panic!("file {number}: {failure:?}"));
        handles.push(handle);
    }
    for number in (0..COUNT).step_by(2) {
        two.unlink(At::Root, name(number).as_bytes(), 0)
            .expect("unlink");
    }
    for (number, &handle) in handles.iter().enumerate().step_by(101) {
        assert_eq!(one.write(handle, b"open", Some(0)), Ok(4), "file {number}");
    }
    handles.into_iter().for_each(|handle| one.close(handle));
    assert_eq!(two.names("").expect("names").len(), COUNT / 2);
}

/// A million names in one directory: made, found, listed, removed; how many is shorter in a
/// build without optimisation, whose point is the assertions.
#[test]
fn a_million_files_in_one_directory() {
    let count: usize = std::env::var("ARCK_LARGE_DIRECTORY")
        .map_or(1_000_000, |text| text.parse().expect("a number"));
    let started = std::time::Instant::now();
    let mut pool = TestPool::new(5 << 30);
    let session = pool.session();
    session.make_directory(At::Root, b"d", 0o755).unwrap();
    let path = |number: usize| format!("d/file-{number}").into_bytes();
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
    for number in 0..count {
        let handle = session
            .open(At::Root, &path(number), flags, 0o644)
            .unwrap_or_else(|failure| panic!("create {number}: {failure:?}"));
        session.close(handle);
    }
    let made = started.elapsed();
    for number in (0..count).step_by(37) {
        session.stat(At::Root, &path(number), 0).expect("stat");
        let missing = [&path(number)[..], b"x"].concat();
        assert!(is(&session.stat(At::Root, &missing, 0), Errno::NOENT));
    }
    let names = session.names("d").expect("names");
    assert_eq!(names.len(), count);
    let mut expected: Vec<String> = (0..count).map(|number| format!("file-{number}")).collect();
    expected.sort_unstable();
    assert!(names == expected);
    // Folded, they are as many, in another session and after a restart.
    session.disconnect().unwrap();
    pool.stop();
    pool.serve();
    let session = pool.session();
    let folded = started.elapsed();
    for number in (0..count).step_by(41) {
        session.stat(At::Root, &path(number), 0).expect("stat");
    }
    assert_eq!(session.names("d").expect("names").len(), count);
    let looked = started.elapsed();
    assert!(is(
        &session.unlink(At::Root, b"d", libc::AT_REMOVEDIR),
        Errno::NOTEMPTY
    ));
    for number in 0..count {
        session
            .unlink(At::Root, &path(number), 0)
            .unwrap_or_else(|failure| panic!("unlink {number}: {failure:?}"));
    }
    assert!(session.names("d").expect("names").is_empty());
    session
        .unlink(At::Root, b"d", libc::AT_REMOVEDIR)
        .expect("rmdir");
    eprintln!(
        "{count} files: made after {made:?}, folded after {folded:?}, looked at after {looked:?}, removed after {:?}",
        started.elapsed()
    );
    assert_eq!(pool.violations(), "");
}
