//! A session whose own memory is small: the arena, in which its changes lie until they are folded,
//! and the group region, which holds its auxiliary state. What does not fit says so and changes
//! nothing; what can be folded makes room; the session goes on working.

use arck_controller::Options;
use arck_testkit::{MOUNT, Shorthand, TestPool};
use arckfs::{At, ConnectOptions, Errno, Failure, FileSystem, Handle};
use std::collections::BTreeSet;

fn within(pool: &TestPool, memory: u64) -> FileSystem {
    let options = ConnectOptions {
        pool: pool.path(),
        mount: MOUNT.to_vec(),
        group: Vec::new(),
        resolver: arck_testkit::resolver(),
    };
    FileSystem::connect_within(&options, memory).expect("connect")
}

/// Who needs several pages of the arena at once folds where fewer are left, and does not wait for those.
#[test]
fn several_pages_where_fewer_are_left() {
    for taken in 40..66u64 {
        let options = Options {
            arena_pages: 64,
            ..Options::default()
        };
        let pool = TestPool::with_options(256 << 20, options);
        let session = pool.session();
        let open = |name: &str| {
            let flags = libc::O_CREAT | libc::O_RDWR;
            session.open_at_root(name, flags).expect("open")
        };
        let (many, one) = (open("many"), open("one"));
        // A page of the index each.
        for number in 0..taken {
            assert_eq!(session.write(many, b"a", Some(number << 21)), Ok(1));
        }
        // Three at once.
        let written = session.write(one, b"b", Some(3 << 30));
        assert_eq!(written, Ok(1), "with {taken} pages taken");
        assert_eq!(pool.violations(), "");
    }
}

/// An arena that never grows: folds make room in it, whatever is done.
#[test]
fn an_arena_that_cannot_grow() {
    let options = Options {
        arena_pages: 64,
        ..Options::default()
    };
    let pool = TestPool::with_options(256 << 20, options);
    let session = pool.session();
    session
        .make_directory(At::Root, b"names", 0o755)
        .expect("mkdir");
    session.put("file", b"content").expect("put");
    for number in 0..4000 {
        let path = format!("names/{number:0>200}");
        let path = path.as_bytes();
        match number % 3 {
            0 => session.link(At::Root, b"file", At::Root, path, 0),
            1 => session.symlink(b"target", At::Root, path),
            _ => session.make_directory(At::Root, path, 0o755),
        }
        .expect("a fold makes room");
    }
    let other = pool.session();
    assert_eq!(other.names("names").expect("names").len(), 4000);
    // An index page each.
    let handle = session
        .open_at_root("sparse", libc::O_CREAT | libc::O_RDWR)
        .expect("open");
    for number in 0..500u64 {
        let written = session.write(handle, &number.to_le_bytes(), Some(number << 21));
        assert_eq!(written, Ok(8), "{number}");
    }
    // More index pages at once than there are in the arena.
    let size = session.stat_handle(handle).expect("stat").size;
    let blocks = session.stat_handle(handle).expect("stat").blocks;
    assert_eq!(
        session.allocate(handle, 0, 1 << 30, 160 << 20),
        Err(Errno::NOSPC)
    );
    let stat = session.stat_handle(handle).expect("stat");
    assert_eq!((stat.size, stat.blocks), (size, blocks));
    session
        .allocate(handle, 0, 1 << 30, 60 << 20)
        .expect("fewer fit");
    let reader = other.open_at_root("sparse", libc::O_RDONLY).expect("open");
    for number in 0..500u64 {
        let mut content = [0; 8];
        let read = other.read(reader, &mut content, Some(number << 21));
        assert_eq!(read, Ok(8));
        assert_eq!(u64::from_le_bytes(content), number);
    }
    assert_eq!(pool.violations(), "");
}

/// Listings that a session holds: each takes as much memory as the directory has names.
fn hold_listings(session: &FileSystem, path: &str) -> Vec<Handle> {
    let mut held = Vec::new();
    loop {
        let handle = session
            .open_at_root(path, libc::O_RDONLY | libc::O_DIRECTORY)
            .expect("open");
        held.push(handle);
        let mut buffer = [0; 4096];
        match session.read_directory(handle, &mut buffer) {
            Ok(_) => assert!(held.len() < 1000, "listings for ever"),
            Err(errno) => {
                assert_eq!(errno, Errno::NOMEM);
                return held;
            }
        }
    }
}

/// No memory for auxiliary state: every operation is done, or says ENOMEM and is not.
#[test]
fn a_region_that_is_full() {
    const KNOWN: usize = 150;
    let pool = TestPool::new(64 << 20);
    let big = pool.session();
    for directory in ["many", "known", "tries"] {
        big.make_directory(At::Root, directory.as_bytes(), 0o755)
            .expect("mkdir");
    }
    let fill = |number: usize| format!("many/{number:0>100}");
    for number in 0..6000 {
        big.put(&fill(number), b"").expect("put");
    }
    let known = |number: usize| format!("known/{number:0>100}");
    for number in 0..KNOWN {
        big.put(&known(number), b"known").expect("put");
    }
    big.disconnect().expect("disconnect");

    let session = within(&pool, 16 << 20);
    let at = At::Root;
    let mut expected: BTreeSet<String> = (0..KNOWN).map(known).collect();
    // The session knows these, and owns where they are.
    for number in 0..KNOWN {
        let path = known(number);
        let handle = session.open_at_root(&path, libc::O_RDWR).expect("open");
        assert_eq!(session.write(handle, b"KNOWN", Some(0)), Ok(5));
        session.close(handle);
    }
    session.put("tries/first", b"").expect("put");
    expected.insert("tries/first".to_owned());
    session.fold(false).expect("fold");

    let mut held = hold_listings(&session, "many");
    assert!(held.len() > 2, "{}", held.len());
    // What is left goes to views of files.
    let mut seen = 0;
    let failure = loop {
        match session.stat(at, fill(seen).as_bytes(), 0) {
            Ok(_) => seen += 1,
            Err(failure) => break failure,
        }
        assert!(seen < 6000, "all of it fits");
    };
    assert_eq!(failure, Failure::Errno(Errno::NOMEM));

    let nomem = Err(Failure::Errno(Errno::NOMEM));
    let mut refused = [0; 7];
    let mut done = [0; 7];
    let mut note = |which: usize, result: &Result<(), Failure>| {
        match result {
            Ok(()) => done[which] += 1,
            _ => {
                assert_eq!(*result, nomem, "{which}");
                refused[which] += 1;
            }
        }
        result.is_ok()
    };
    for number in 0..KNOWN {
        let new = |what: &str| format!("tries/{what}{number:0>150}");
        let path = new("link");
        let result = session.link(at, known(number).as_bytes(), at, path.as_bytes(), 0);
        if note(0, &result) {
            expected.insert(path);
        }
        let path = new("mkdir");
        if note(1, &session.make_directory(at, path.as_bytes(), 0o755)) {
            expected.insert(path);
        }
        let path = new("symlink");
        if note(2, &session.symlink(b"target", at, path.as_bytes())) {
            expected.insert(path);
        }
        let path = new("create");
        let create = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
        let created = session.open_at_root(&path, create);
        if note(3, &created.map(|handle| session.close(handle))) {
            expected.insert(path);
        }
        let (from, to) = (known(number), new("renamed"));
        if note(
            4,
            &session.rename(at, from.as_bytes(), at, to.as_bytes(), 0),
        ) {
            expected.remove(&from);
            expected.insert(to);
        } else if number % 2 == 0 {
            if note(5, &session.unlink(at, from.as_bytes(), 0)) {
                expected.remove(&from);
            }
        } else {
            let over = known((number + 1) % KNOWN);
            let result = session.rename(at, from.as_bytes(), at, over.as_bytes(), 0);
            if note(6, &result) {
                // The last goes over the first, which may be gone.
                expected.remove(&from);
                expected.insert(over);
            }
        }
    }
    assert!(
        refused[..4].iter().all(|&count| count > 0),
        "there was memory for everything: {refused:?} refused, {done:?} done"
    );
    // Files that are known can be read and written all the time.
    let there: Vec<String> = expected
        .iter()
        .filter(|path| path.starts_with("known/"))
        .cloned()
        .collect();
    for path in &there {
        assert_eq!(session.get(path).expect("get"), b"KNOWN", "{path}");
    }
    let tree = |session: &FileSystem| -> BTreeSet<String> {
        ["known", "tries"]
            .iter()
            .flat_map(|directory| {
                let names = session.names(directory).expect("names");
                names
                    .into_iter()
                    .map(move |name| format!("{directory}/{name}"))
            })
            .collect()
    };
    let other = pool.session();
    assert!(tree(&other) == expected, "{refused:?} {done:?}");

    // A little memory: it runs out anywhere within an operation.
    for _ in 0..2 {
        session.close(held.pop().expect("more than two"));
    }
    let mut refused = [0; 4];
    let mut done = 0;
    for number in 0..20_000 {
        let path = format!("tries/{number:0>0$}", 10 + number % 200);
        let bytes = path.as_bytes();
        let from = there[number % there.len()].as_bytes();
        let create = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
        let result = match number % 4 {
            0 => session.link(at, from, at, bytes, 0),
            1 => session.make_directory(at, bytes, 0o755),
            2 => session.symlink(b"target", at, bytes),
            _ => session
                .open_at_root(&path, create)
                .map(|handle| session.close(handle)),
        };
        if result.is_ok() {
            done += 1;
            expected.insert(path);
        } else {
            assert_eq!(result, nomem, "{path}");
            refused[number % 4] += 1;
        }
        if refused.iter().sum::<usize>() > 100 {
            break;
        }
    }
    assert!(done > 100, "{done} done, {refused:?} refused");
    assert!(tree(&other) == expected, "{done} done, {refused:?} refused");

    // Room again.
    for handle in held {
        session.close(handle);
    }
    assert!(tree(&session) == expected);
    for number in 0..KNOWN {
        let path = format!("tries/again{number:0>150}");
        session.put(&path, b"again").expect("memory again");
        expected.insert(path);
    }
    for path in &there {
        session.unlink(at, path.as_bytes(), 0).expect("unlink");
        expected.remove(path);
    }
    assert!(tree(&session) == expected);
    assert!(tree(&other) == expected);
    assert_eq!(pool.violations(), "");
}

/// No description is left: open says ENFILE before it makes or empties anything.
#[test]
fn no_description_is_left() {
    let pool = TestPool::new(16 << 20);
    let session = within(&pool, 8 << 20);
    session.put("file", b"content").expect("put");
    let mut open = Vec::new();
    loop {
        match session.open_at_root("file", libc::O_RDONLY) {
            Ok(handle) => open.push(handle),
            Err(failure) => {
                assert_eq!(failure, Failure::Errno(Errno::NFILE));
                break;
            }
        }
        assert!(open.len() < 1 << 20, "descriptions for ever");
    }
    assert!(open.len() > 1000, "{}", open.len());
    let nfile = Err(Failure::Errno(Errno::NFILE));
    let create = libc::O_CREAT | libc::O_WRONLY;
    assert_eq!(session.open_at_root("new", create), nfile);
    assert_eq!(session.open_at_root("file", create | libc::O_TRUNC), nfile);
    assert_eq!(
        session.open_at_root("file", libc::O_WRONLY | libc::O_TRUNC),
        nfile
    );
    session.close(open.pop().expect("one"));
    assert_eq!(session.get("file").expect("get"), b"content");
    let handle = session
        .open_at_root("file", libc::O_RDONLY)
        .expect("the one that is free");
    // The directory cannot be listed now; another session sees that nothing was made.
    assert_eq!(pool.session().names("").expect("names"), ["file"]);
    session.close(handle);
    for handle in open {
        session.close(handle);
    }
    session.put("new", b"").expect("descriptions again");
    assert_eq!(session.names("").expect("names").len(), 2);
}
