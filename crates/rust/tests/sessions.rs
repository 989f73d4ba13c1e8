//! What sessions, maps, errors and forks are like, by cases.

use arck::{Files, MapAccess, Pool, errno};
use arck_test_pool::TestPool;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

fn served() -> (TestPool, Pool) {
    let served = TestPool::new(64 << 20);
    let pool = Pool::new(served.path());
    (served, pool)
}

fn is_send_and_sync<T: Send + Sync + 'static>() {}

#[test]
fn all_threads_may_use_them() {
    is_send_and_sync::<Files>();
    is_send_and_sync::<arck::File>();
    is_send_and_sync::<arck::Map>();
    is_send_and_sync::<arck::keyvalue::Store>();
    is_send_and_sync::<arck::log::Log>();
    let (_served, pool) = served();
    let files = pool.files().expect("a session");
    let file = files
        .options()
        .append(true)
        .create(true)
        .open("f")
        .expect("opened");
    std::thread::scope(|scope| {
        for number in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for _ in 0..200 {
                    (&*file).write_all(&[b'0' + number; 100]).expect("written");
                }
            });
        }
    });
    let all = files.read("f").expect("read");
    assert_eq!(all.len(), 4 * 200 * 100);
    assert!(
        all.chunks(100)
            .all(|one| one.iter().all(|byte| *byte == one[0]))
    );
}

#[test]
fn a_session_ends_with_the_last_that_uses_it() {
    let (_served, pool) = served();
    let files = pool.files().expect("a session");
    let file = files.create("f").expect("made");
    let clone = files.clone();
    assert_eq!(errno(&clone.close().unwrap_err()), Some(libc::EBUSY));
    // It goes on for the file.
    assert_eq!(errno(&files.close().unwrap_err()), Some(libc::EBUSY));
    (&file).write_all(b"still").expect("written");
    drop(file);
    let files = pool.files().expect("a session");
    assert_eq!(files.read("f").expect("read"), b"still");
    assert_eq!(files.read("/f").expect("read"), b"still");
    assert!(files.space().expect("told").bytes_free > 1 << 20);
    files.close().expect("all is folded");
}

#[test]
fn errors_have_numbers_kinds_and_explanations() {
    let (served, pool) = served();
    let files = pool.files().expect("a session");
    files.create_dir("d").expect("made");
    files.symlink("/etc/passwd", "out").expect("made");
    files.set_xattr("d", "user.a", b"1").expect("set");
    assert_eq!(files.get_xattr("d", "user.a").expect("told"), b"1");
    assert_eq!(files.list_xattrs("d").expect("told"), ["user.a"]);
    files.remove_xattr("d", "user.a").expect("removed");
    let store = pool.store("values").expect("a store");
    let log = pool.log("stream").expect("a log");
    let cases: Vec<(&str, std::io::Error, i32, &str)> = vec![
        ("nothing", files.read("n").unwrap_err(), libc::ENOENT, ""),
        ("no path", files.read("").unwrap_err(), libc::ENOENT, ""),
        (
            "zero",
            files.read("a\0b").unwrap_err(),
            libc::EINVAL,
            "zero bytes",
        ),
        (
            "a directory",
            files.read("d").unwrap_err(),
            libc::EISDIR,
            "",
        ),
        (
            "outside",
            files.read("out").unwrap_err(),
            libc::EXDEV,
            "/etc/passwd",
        ),
        (
            "above",
            files.read("../x").unwrap_err(),
            libc::EXDEV,
            "out of the pool",
        ),
        (
            "attribute",
            files.get_xattr("d", "user.b").unwrap_err(),
            libc::ENODATA,
            "",
        ),
        (
            "names",
            files.set_xattr("d", "trusted.b", b"").unwrap_err(),
            libc::EOPNOTSUPP,
            "",
        ),
        (
            "no pool",
            Pool::new("/nowhere").files().unwrap_err(),
            libc::ENOENT,
            "/nowhere",
        ),
        (
            "a key",
            store.set(b"a/b", b"").unwrap_err().into(),
            libc::EINVAL,
            "no key",
        ),
        (
            "no record",
            log.append(b"").unwrap_err().into(),
            libc::EINVAL,
            "a record of 0",
        ),
        (
            "behind",
            log.cut(5).unwrap_err().into(),
            libc::EINVAL,
            "behind the end",
        ),
    ];
    for (what, error, number, part) in cases {
        assert_eq!(errno(&error), Some(number), "{what}: {error:?}");
        assert!(error.to_string().contains(part), "{what}: {error}");
        let kind = std::io::Error::from_raw_os_error(number).kind();
        assert_eq!(error.kind(), kind, "{what}");
    }
    assert_eq!(errno(&std::io::Error::other("else")), None);
    assert!(pool.clone().group([b'g'; 65]).files().is_err());
    drop((log, store, files));
    // Nobody serves it.
    drop(served);
}

#[test]
fn somebody_is_waited_for_who_serves_the_pool() {
    let (mut served, pool) = served();
    served.stop();
    let begun = Instant::now();
    let patient = pool.clone().patience(Duration::from_millis(300));
    let error = patient.files().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    std::thread::scope(|scope| {
        let patient = pool.clone().patience(Duration::from_secs(60));
        let opened = scope.spawn(move || patient.files().expect("a session"));
        std::thread::sleep(Duration::from_millis(100));
        served.serve();
        opened
            .join()
            .expect("no panic")
            .write("f", "x")
            .expect("written");
    });
}

#[test]
fn both_file_systems_and_groups() {
    let (_served, pool) = served();
    for kind in [arck::FileSystemKind::ArckFs, arck::FileSystemKind::FpFs] {
        let pool = pool.clone().file_system(kind).group(format!("{kind:?}"));
        let (one, two) = (pool.files().expect("one"), pool.files().expect("two"));
        let directory = format!("{kind:?}/a/b");
        one.create_dir_all(&directory).expect("made");
        one.write(format!("{directory}/f"), "x").expect("written");
        assert_eq!(
            two.read_to_string(format!("{directory}/f")).expect("read"),
            "x"
        );
        let mode = std::fs::Permissions::from_mode(0o600);
        two.set_permissions(format!("{directory}/f"), &mode)
            .expect("set");
        let told = one.metadata(format!("{directory}/f")).expect("told");
        assert_eq!(told.mode() & 0o7777, 0o600);
    }
}

#[test]
fn maps() {
    let (_served, pool) = served();
    let files = pool.files().expect("a session");
    files
        .write("f", vec![b'a'; 3 * 4096 + 10])
        .expect("written");
    let file = files
        .options()
        .read(true)
        .write(true)
        .open("f")
        .expect("opened");
    let readable = files.open("f").expect("opened");
    let numbers = [
        (
            readable.map(0, 1, MapAccess::Write).unwrap_err(),
            libc::EACCES,
        ),
        (file.map(0, 0, MapAccess::Read).unwrap_err(), libc::EINVAL),
        (file.map(1, 1, MapAccess::Read).unwrap_err(), libc::EINVAL),
    ];
    for (error, number) in numbers {
        assert_eq!(errno(&error), Some(number), "{error}");
    }
    for (offset, length) in [(0, 3 * 4096 + 11), (1 << 20, 1), (u64::MAX - 4095, 1)] {
        let error = file.map(offset, length, MapAccess::Read).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    let map = file.map(4096, 2 * 4096, MapAccess::Write).expect("mapped");
    let copy = readable.map(0, 4096, MapAccess::Copy).expect("mapped");
    let shown = readable.map(0, 3 * 4096, MapAccess::Read).expect("mapped");
    copy.write_at(b"copy", 0).expect("stored");
    map.write_at(b"map", 4095).expect("stored");
    map.flush().expect("flushed");
    assert!(shown.write_at(b"x", 0).is_err());
    let mut bytes = [0; 5];
    shown.read_at(&mut bytes, 2 * 4096 - 2).expect("read");
    assert_eq!(&bytes, b"amapa");
    assert_eq!(files.read("f").expect("read")[2 * 4096 - 1..][..3], *b"map");
    // SAFETY: a byte of the map, which nobody changes meanwhile.
    assert_eq!(unsafe { map.as_ptr().add(4095).read_volatile() }, b'm');
    // Another session reads what is stored, and has no writable map of it.
    let others = pool.files().expect("another");
    assert_eq!(others.read("f").expect("read")[..4], *b"aaaa");
    let theirs = others
        .options()
        .read(true)
        .write(true)
        .open("f")
        .expect("opened");
    let error = theirs.map(0, 1, MapAccess::Write).unwrap_err();
    assert_eq!(errno(&error), Some(libc::ENODEV));
    for (range, is_in) in [(0..2 * 4096, true), (1..2 * 4096 + 1, false)] {
        let mut bytes = vec![0; range.len()];
        assert_eq!(
            map.read_at(&mut bytes, range.start).is_ok(),
            is_in,
            "{range:?}"
        );
    }
    assert!(map.read_at(&mut bytes, usize::MAX).is_err());
    file.set_len(10).expect("cut");
    for place in [0, 4096, 8191] {
        let error = map.read_at(&mut bytes[..1], place).unwrap_err();
        assert_eq!(errno(&error), Some(libc::EIO), "{error}");
        assert_eq!(
            errno(&map.write_at(b"x", place).unwrap_err()),
            Some(libc::EIO)
        );
    }
    file.set_len(3 * 4096).expect("longer");
    map.read_at(&mut bytes, 0).expect("read");
    assert_eq!(bytes, [0; 5]);
    assert_eq!(
        errno(&files.clone().close().unwrap_err()),
        Some(libc::EBUSY)
    );
    drop((map, copy, shown));
    // Given back, another session may have one.
    let map = theirs.map(0, 1, MapAccess::Write).expect("mapped");
    map.write_at(b"T", 0).expect("stored");
    assert_eq!(files.read("f").expect("read")[0], b'T');
}

/// Two sessions of a program have their maps in one table, and inodes of the same number on two pools.
#[test]
fn maps_of_two_pools_have_nothing_to_do_with_each_other() {
    const PAGE: u64 = 4096;
    let pools = [served(), served()];
    let sizes = [PAGE, 100 * PAGE];
    let opened = [0, 1].map(|at| {
        let files = pools[at].1.files().expect("a session");
        files
            .write("f", vec![b'a'; sizes[at] as usize])
            .expect("written");
        let mut options = files.options();
        let file = options.read(true).write(true).open("f").expect("opened");
        let map = file
            .map(0, sizes[at] as usize, MapAccess::Write)
            .expect("mapped");
        (files, file, map)
    });
    let [(_, one, one_map), (_, other, other_map)] = &opened;
    assert_eq!(
        one.metadata().expect("told").ino(),
        other.metadata().expect("told").ino()
    );
    // What it grows by is mapped by nobody, and takes no room.
    one.set_len(100 * PAGE).expect("longer");
    assert_eq!(one.metadata().expect("told").blocks(), PAGE / 512);
    one.set_len(0).expect("cut");
    let mut byte = [0];
    assert!(one_map.read_at(&mut byte, 0).is_err());
    // Growing again, it gets the one page that its map shows, and none for the other's map.
    one.set_len(100 * PAGE).expect("longer");
    one_map.write_at(b"b", 0).expect("stored");
    assert_eq!(one.metadata().expect("told").blocks(), PAGE / 512);
    other_map
        .read_at(&mut byte, 99 * PAGE as usize)
        .expect("it is another's");
    assert_eq!(byte, [b'a']);
}

/// What a member of one group has made its maps follow is no word about those of another group.
#[test]
fn maps_of_two_groups_follow_what_members_of_their_own_change() {
    let pools = [served(), served()];
    let opened = [0, 1].map(|at| {
        let pool = pools[at].1.clone().group("g");
        let (files, other) = (pool.files().expect("one"), pool.files().expect("another"));
        files.write("f", [b'a'; 4096]).expect("written");
        let file = files.open("f").expect("opened");
        let map = file.map(0, 4096, MapAccess::Read).expect("mapped");
        (files, other, map)
    });
    // They count what they change, and do the same in turn.
    for round in b'b'..b'z' {
        for (_, other, _) in &opened {
            other.write("f", [round; 4096]).expect("written");
        }
        for (at, (files, _, map)) in opened.iter().enumerate() {
            assert_eq!(files.metadata("f").expect("told").len(), 4096);
            let mut bytes = [0; 10];
            map.read_at(&mut bytes, 4000).expect("read");
            assert_eq!(bytes, [round; 10], "pool {at}");
        }
    }
}

/// A child's own exit says what it found.
#[test]
fn a_forked_child_has_a_session_of_its_own() {
    let (_served, pool) = served();
    let files = pool.files().expect("a session");
    files.write("f", vec![b'p'; 4096]).expect("written");
    let file = files
        .options()
        .read(true)
        .write(true)
        .open("f")
        .expect("opened");
    let map = file.map(0, 4096, MapAccess::Write).expect("mapped");
    let store = pool.store("s").expect("a store");
    let log = pool.log("l").expect("a log");
    // SAFETY: the child runs what a child may that had other threads beside it: locks of this process's heap are free, as far as
    // libc sees to it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut bytes = [0; 4];
        let is_stale = |error: std::io::Error| errno(&error) == Some(libc::ESTALE);
        let found = [
            (&file).read(&mut bytes).is_err_and(is_stale),
            map.flush().is_err_and(is_stale),
            map.read_at(&mut bytes, 0).is_err_and(is_stale),
            map.write_at(b"child", 0).is_err_and(is_stale),
            file.map(0, 1, MapAccess::Read).is_err_and(is_stale),
            files.read("f").is_ok_and(|all| all == [b'p'; 4096]),
            files.write("child", "own").is_ok(),
            store.set(b"k", b"child").is_ok(),
            log.append(b"child").is_ok(),
            files
                .options()
                .read(true)
                .write(true)
                .open("child")
                .is_ok_and(|own| {
                    own.map(0, 3, MapAccess::Write)
                        .is_ok_and(|own| own.write_at(b"O", 0).is_ok())
                }),
        ];
        drop((map, file, log, store));
        let is_closed = files.close().is_ok();
        let failed = found
            .iter()
            .position(|found| !found)
            .map_or(0, |at| at as i32 + 1);
        // SAFETY: ends the child, without the parent's ends.
        unsafe { libc::_exit(if is_closed { failed } else { 99 }) };
    }
    let mut status = 0;
    // SAFETY: the child that was forked above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 0, "{status:#x}");
    assert!(libc::WIFEXITED(status));
    assert_eq!(files.read("child").expect("read"), b"Own");
    assert_eq!(
        store.get(b"k").expect("read").as_deref(),
        Some(&b"child"[..])
    );
    assert_eq!(log.end().expect("told"), 5);
    let mut before = [0; 5];
    map.read_at(&mut before, 0).expect("read");
    assert_eq!(before, [b'p'; 5]);
    map.write_at(b"parent", 0).expect("stored");
    assert_eq!(files.read("f").expect("read")[..6], *b"parent");
}
