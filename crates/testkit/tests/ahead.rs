//! Directories that are likely to be removed next are acquired with the one that is: nobody else
//! notices, and nothing is acquired that somebody else has.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, FileSystem};

const REMOVE_DIRECTORY: i32 = libc::AT_REMOVEDIR;

fn make(session: &FileSystem, path: &str) {
    session
        .make_directory(At::Root, path.as_bytes(), 0o755)
        .unwrap_or_else(|error| panic!("{path}: {error:?}"));
    session.put(&format!("{path}/file"), b"content").unwrap();
}

/// As `rm -r` does it.
fn remove(session: &FileSystem, path: &str) {
    for name in session.names(path).unwrap() {
        let below = format!("{path}/{name}");
        match name.as_str() {
            "file" => session.unlink(At::Root, below.as_bytes(), 0).unwrap(),
            _ => remove(session, &below),
        }
    }
    session
        .unlink(At::Root, path.as_bytes(), REMOVE_DIRECTORY)
        .unwrap();
}

fn owns(session: &FileSystem, path: &str) -> bool {
    session.owns(At::Root, path.as_bytes()).unwrap()
}

#[test]
fn directories_beside_and_below_one_that_is_removed() {
    let pool = TestPool::new(64 << 20);
    {
        let maker = pool.session();
        make(&maker, "tree");
        for name in ["a", "b", "c", "c/inner", "d", "elsewhere"] {
            make(&maker, &format!("tree/{name}"));
        }
        make(&maker, "beside");
        maker.fold(true).unwrap();
    }
    let (one, other) = (pool.session(), pool.session());
    // Somebody else's is left to them.
    other.put("tree/elsewhere/new", b"theirs").unwrap();
    assert!(owns(&other, "tree/elsewhere"));
    remove(&one, "tree/a");
    assert!(!owns(&one, "tree/d"), "before it is clear what is going on");
    one.unlink(At::Root, b"tree/b/file", 0).unwrap();
    for (path, owned) in [
        ("tree/b", true),
        ("tree/c", true),
        ("tree/c/inner", true),
        ("tree/d", true),
        ("tree/elsewhere", false),
        ("beside", false),
    ] {
        assert_eq!(owns(&one, path), owned, "{path}");
    }
    // What was acquired in vain stands in nobody's way.
    assert_eq!(other.get("tree/d/file").unwrap(), b"content");
    other.put("tree/d/new", b"theirs").unwrap();
    other.unlink(At::Root, b"tree/d/file", 0).unwrap();
    assert_eq!(one.names("tree/d").unwrap(), ["new"]);
    one.unlink(At::Root, b"tree/d/new", 0).unwrap();
    other.unlink(At::Root, b"tree/elsewhere/new", 0).unwrap();
    remove(&one, "tree");
    assert_eq!(other.names("").unwrap(), ["beside"]);
    assert_eq!(pool.violations(), "");
}

#[test]
fn many_directories_are_removed_by_few_messages() {
    const DIRECTORIES: usize = 200;
    let pool = TestPool::new(64 << 20);
    {
        let maker = pool.session();
        make(&maker, "tree");
        for number in 0..DIRECTORIES {
            make(&maker, &format!("tree/{number}"));
        }
        maker.fold(true).unwrap();
    }
    let one = pool.session();
    let names = one.names("tree").unwrap();
    let mut missing = 0;
    for name in names.iter().filter(|name| *name != "file") {
        let path = format!("tree/{name}");
        missing += usize::from(!owns(&one, &path));
        remove(&one, &path);
    }
    // The first two, then one in as many as one message takes.
    assert!(missing <= 2 + DIRECTORIES / 15 + 1, "{missing} messages");
    assert_eq!(pool.violations(), "");
}
