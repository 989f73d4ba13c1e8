//! Segments have no kind for good: what data filled is room for metadata once it is removed, and the other way
//! round, in the session that removed it, in others, and in later controllers.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, FileSystem};

const POOL: u64 = 64 << 20;
/// More than one page.
const SMALL: usize = 5000;
const FILES: usize = 2000;

/// Fills with one file, and removes it.
fn fill_and_remove(session: &FileSystem) -> usize {
    let handle = session
        .open_at_root("big", libc::O_CREAT | libc::O_WRONLY)
        .expect("open");
    let piece = vec![1; 1 << 20];
    let mut bytes = 0;
    while let Ok(length) = session.write(handle, &piece, None) {
        bytes += length;
    }
    session.close(handle);
    session.unlink(At::Root, b"big", 0).expect("unlink");
    bytes
}

fn make_and_remove_files(session: &FileSystem, what: &str) {
    let content = vec![2; SMALL];
    for number in 0..FILES {
        session
            .put(&format!("small{number}"), &content)
            .unwrap_or_else(|failure| panic!("{what}, file {number}: {failure:?}"));
    }
    for number in 0..FILES {
        session
            .unlink(At::Root, format!("small{number}").as_bytes(), 0)
            .expect("unlink");
    }
}

/// Makes files with long names for as long as there is room, and removes them.
fn make_and_remove_names(session: &FileSystem) -> usize {
    let name = |number: usize| format!("{number:0>250}");
    let mut made = 0;
    while made < 12_000 && session.put(&name(made), b"").is_ok() {
        made += 1;
    }
    for number in 0..made {
        session
            .unlink(At::Root, name(number).as_bytes(), 0)
            .expect("unlink");
    }
    made
}

/// In one session, in another one while the first lives, and after another start.
fn each_way(make: &dyn Fn(&FileSystem), take: &dyn Fn(&FileSystem, &str)) {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    make(&session);
    take(&session, "the same session");
    assert_eq!(pool.violations(), "");

    let pool = TestPool::new(POOL);
    let (session, other) = (pool.session(), pool.session());
    make(&session);
    take(&other, "another session");
    assert_eq!(pool.violations(), "");

    let mut pool = TestPool::new(POOL);
    let session = pool.session();
    make(&session);
    session.disconnect().expect("disconnect");
    pool.stop();
    pool.serve();
    let session = pool.session();
    take(&session, "another controller");
    session.disconnect().expect("disconnect");
    assert_eq!(pool.violations(), "");
}

/// Who looks at all that there was sees what comes in its place.
#[test]
fn who_looked_before_sees_what_comes() {
    let pool = TestPool::new(POOL);
    let (session, reader) = (pool.session(), pool.session());
    for round in 0..2u8 {
        let big = vec![round + 1; 40 << 20];
        session.put("big", &big).expect("put");
        assert!(reader.get("big").expect("get") == big, "round {round}");
        session.unlink(At::Root, b"big", 0).expect("unlink");
        // Names alone, and then files of more than a page: the former lie in what was data.
        let name = |number: usize| format!("{number:0>240}");
        for number in 0..10_000 {
            session.put(&name(number), b"").expect("put");
        }
        for number in (0..10_000).step_by(7) {
            let content = vec![number as u8; SMALL];
            session.put(&name(number), &content).expect("put");
        }
        assert_eq!(reader.names("").expect("names").len(), 10_000);
        for number in (0..10_000).step_by(7) {
            let content = reader.get(&name(number)).expect("get");
            assert!(
                content == vec![number as u8; SMALL],
                "round {round}, file {number}"
            );
        }
        for number in 0..10_000 {
            let name = name(number);
            session
                .unlink(At::Root, name.as_bytes(), 0)
                .expect("unlink");
        }
        assert_eq!(reader.names("").expect("names").len(), 0);
    }
    // Most of what was metadata is data.
    let bytes = fill_and_remove(&session);
    assert!(bytes > 56 << 20, "{bytes} bytes");
    assert_eq!(pool.violations(), "");
}

#[test]
fn where_data_was_metadata_has_room() {
    each_way(
        &|session| {
            let bytes = fill_and_remove(session);
            assert!(bytes > 48 << 20, "{bytes} bytes");
        },
        &make_and_remove_files,
    );
}

#[test]
fn where_metadata_was_data_has_room() {
    let fresh = TestPool::new(POOL);
    let session = fresh.session();
    let before = fill_and_remove(&session);
    drop((session, fresh));
    each_way(
        &|session| {
            let made = make_and_remove_names(session);
            assert!(made > 10_000, "{made} names");
        },
        &|session, what| {
            let bytes = fill_and_remove(session);
            assert!(
                bytes + (2 << 20) > before,
                "{what}: {bytes} bytes instead of {before}"
            );
        },
    );
}
