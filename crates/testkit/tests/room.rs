//! What has succeeded in a nearly full pool can be folded: other sessions see it, and it is there
//! after a crash.

use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, Errno, Failure, FileSystem, Handle};

const NOSPC: Failure = Failure::Errno(Errno::NOSPC);

/// Fills with one file until not a page is left. Gives its handle and size.
fn fill(session: &FileSystem) -> (Handle, u64) {
    let handle = session
        .open_at_root("filler", libc::O_CREAT | libc::O_WRONLY)
        .expect("open");
    let mut size = 0;
    for piece in [vec![1; 1 << 20], vec![1; 4096]] {
        loop {
            match session.write(handle, &piece, None) {
                Ok(length) => size += length as u64,
                Err(errno) => {
                    assert_eq!(errno, Errno::NOSPC);
                    break;
                }
            }
        }
    }
    (handle, size)
}

/// Kills the controller, and opens the pool again.
fn crash(pool: &mut TestPool, sessions: Vec<FileSystem>) -> FileSystem {
    pool.kill();
    drop(sessions);
    pool.serve();
    assert_eq!(pool.violations(), "");
    assert!(
        !pool.path().join(arck_controller::ASIDE).exists(),
        "something could not be folded"
    );
    pool.session()
}

/// Names of two sessions, until there is room for none.
#[test]
fn names_of_two_sessions() {
    let mut pool = TestPool::new(16 << 20);
    let (one, two) = (pool.session(), pool.session());
    for (session, name) in [(&one, "one"), (&two, "two")] {
        session
            .make_directory(At::Root, name.as_bytes(), 0o755)
            .expect("mkdir");
        session
            .put(&format!("{name}-file"), b"linked")
            .expect("put");
    }
    fill(&one);
    let mut random = Random::new(5);
    let mut made = [0, 0];
    let mut full = [false, false];
    while full != [true, true] {
        let which = random.below(2) as usize;
        let (session, name) = [(&one, "one"), (&two, "two")][which];
        // A hundred or so at a time: what is taken back and given again goes to and fro.
        for _ in 0..random.below(200) {
            let path = format!("{name}/{:0>240}", made[which]);
            let from = format!("{name}-file");
            match session.link(At::Root, from.as_bytes(), At::Root, path.as_bytes(), 0) {
                Ok(()) => made[which] += 1,
                Err(failure) => {
                    assert_eq!(failure, NOSPC);
                    full[which] = true;
                    break;
                }
            }
        }
        assert!(made[0] + made[1] < 100_000, "names for ever in 16 MiB");
    }
    assert!(made[0] + made[1] > 1000, "{made:?}");
    for (reader, name, made) in [(&two, "one", made[0]), (&one, "two", made[1])] {
        assert_eq!(reader.names(name).expect("names").len(), made, "{name}");
    }
    let after = crash(&mut pool, vec![one, two]);
    assert_eq!(after.names("one").expect("names").len(), made[0]);
    assert_eq!(after.names("two").expect("names").len(), made[1]);
}

/// Removing is possible without room, and what comes behind it in the same delta is refused or can
/// be folded.
#[test]
fn names_that_come_and_go() {
    let mut pool = TestPool::new(16 << 20);
    let session = pool.session();
    session.put("file", b"linked").expect("put");
    fill(&session);
    let name = |number: usize| format!("{number:0>230}");
    let mut there: Vec<usize> = Vec::new();
    let mut next = 0;
    let mut random = Random::new(7);
    for round in 0..40 {
        // To the brim.
        loop {
            match session.link(At::Root, b"file", At::Root, name(next).as_bytes(), 0) {
                Ok(()) => there.push(next),
                Err(failure) => {
                    assert_eq!(failure, NOSPC);
                    break;
                }
            }
            next += 1;
        }
        assert!(there.len() > 1000, "round {round}: {}", there.len());
        // Ten away, one or none of other names in between.
        for _ in 0..10 {
            let at = random.below(there.len() as u64) as usize;
            let gone = there.swap_remove(at);
            session
                .unlink(At::Root, name(gone).as_bytes(), 0)
                .expect("unlink in a full pool");
            next += 1;
            match session.link(At::Root, b"file", At::Root, name(next).as_bytes(), 0) {
                Ok(()) => there.push(next),
                Err(failure) => assert_eq!(failure, NOSPC),
            }
            next += 1;
        }
    }
    let mut expected: Vec<String> = there.iter().map(|&number| name(number)).collect();
    expected.extend(["file".to_owned(), "filler".to_owned()]);
    expected.sort();
    assert!(session.names("").expect("names") == expected);
    assert!(pool.session().names("").expect("names") == expected);
    let after = crash(&mut pool, vec![session]);
    assert!(after.names("").expect("names") == expected);
}

/// Pages far apart, each of which needs index pages of its own.
#[test]
fn index_pages_of_sparse_files() {
    let mut pool = TestPool::new(16 << 20);
    let session = pool.session();
    let handle = session
        .open_at_root("sparse", libc::O_CREAT | libc::O_RDWR)
        .expect("open");
    let (filler, size) = fill(&session);
    // Data pages there are; the rest of the pool has none.
    session
        .truncate_handle(filler, size - (4 << 20))
        .expect("truncate");
    let place = |number: u64| (number * 3) << 30;
    let mut written = 0u64;
    loop {
        match session.write(handle, &written.to_le_bytes(), Some(place(written))) {
            Ok(length) => assert_eq!(length, 8),
            Err(errno) => {
                assert_eq!(errno, Errno::NOSPC);
                break;
            }
        }
        written += 1;
        assert!(written < 5000, "index pages for ever");
    }
    assert!(written > 150, "{written}");
    let check = |reader: &FileSystem| {
        let handle = reader.open_at_root("sparse", libc::O_RDONLY).expect("open");
        for number in 0..written {
            let mut content = [0; 8];
            assert_eq!(
                reader.read(handle, &mut content, Some(place(number))),
                Ok(8)
            );
            assert_eq!(u64::from_le_bytes(content), number);
        }
        reader.close(handle);
    };
    check(&session);
    check(&pool.session());
    session
        .truncate_handle(handle, 0)
        .expect("truncate to nothing");
    for number in 0..written {
        session
            .write(handle, &number.to_le_bytes(), Some(place(number)))
            .expect("room again");
    }
    let after = crash(&mut pool, vec![session]);
    check(&after);
}

/// The first page of a file with an index and a hole there: its delta needs no index page, the
/// verified file does.
#[test]
fn first_pages_of_sparse_files() {
    const FILES: usize = 120;
    let mut pool = TestPool::new(16 << 20);
    let session = pool.session();
    let name = |number: usize| format!("sparse{number}");
    for number in 0..FILES {
        let handle = session
            .open_at_root(&name(number), libc::O_CREAT | libc::O_RDWR)
            .expect("open");
        session
            .write(handle, b"far", Some(300 << 30))
            .expect("write");
        session.close(handle);
    }
    let (filler, size) = fill(&session);
    session
        .truncate_handle(filler, size - (2 << 20))
        .expect("truncate");
    session.fold(false).expect("fold");
    // Names until there is no room for any.
    let mut links = 0;
    while session
        .link(
            At::Root,
            b"filler",
            At::Root,
            format!("{links:0>250}").as_bytes(),
            0,
        )
        .is_ok()
    {
        links += 1;
    }
    assert!(links > 100, "{links}");
    let mut written = Vec::new();
    for number in 0..FILES {
        let handle = session
            .open_at_root(&name(number), libc::O_RDWR)
            .expect("open");
        match session.write(handle, b"first", Some(0)) {
            Ok(length) => {
                assert_eq!(length, 5);
                written.push(number);
            }
            Err(errno) => assert_eq!(errno, Errno::NOSPC),
        }
        session.close(handle);
    }
    let check = |reader: &FileSystem| {
        for number in 0..FILES {
            let handle = reader
                .open_at_root(&name(number), libc::O_RDONLY)
                .expect("open");
            let mut content = [0; 5];
            assert_eq!(reader.read(handle, &mut content, Some(0)), Ok(5));
            let expected: &[u8] = match written.contains(&number) {
                true => b"first",
                false => &[0; 5],
            };
            assert_eq!(content, expected, "{number}");
            reader.close(handle);
        }
    };
    check(&session);
    session.fold(false).expect("a fold of all that succeeded");
    check(&pool.session());
    let after = crash(&mut pool, vec![session]);
    check(&after);
}

/// Threads of one session that share its room, with another session that has it folded.
#[test]
fn names_of_several_threads() {
    const THREADS: usize = 4;
    let mut pool = TestPool::new(16 << 20);
    let session = pool.session();
    for thread in 0..THREADS {
        session
            .make_directory(At::Root, format!("{thread}").as_bytes(), 0o755)
            .expect("mkdir");
        session.put(&format!("file{thread}"), b"").expect("put");
    }
    fill(&session);
    let other = pool.session();
    let (session, reader) = (&session, &other);
    let made: Vec<usize> = std::thread::scope(|scope| {
        let link = |thread: usize| {
            let from = format!("file{thread}");
            let mut made = 0;
            loop {
                let path = format!("{thread}/{made:0>220}");
                match session.link(At::Root, from.as_bytes(), At::Root, path.as_bytes(), 0) {
                    Ok(()) => made += 1,
                    Err(failure) => {
                        assert_eq!(failure, NOSPC);
                        return made;
                    }
                }
                if made % 100 == 0 {
                    assert!(reader.names(&format!("{thread}")).expect("names").len() >= made);
                }
            }
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || link(thread)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert!(made.iter().sum::<usize>() > 1000, "{made:?}");
    for (thread, &made) in made.iter().enumerate() {
        let names = other.names(&format!("{thread}")).expect("names");
        assert_eq!(names.len(), made, "{thread}");
    }
    pool.kill();
    drop(other);
    pool.serve();
    assert!(!pool.path().join(arck_controller::ASIDE).exists());
    let after = pool.session();
    for (thread, &made) in made.iter().enumerate() {
        let names = after.names(&format!("{thread}")).expect("names");
        assert_eq!(names.len(), made, "{thread} after a crash");
    }
}
