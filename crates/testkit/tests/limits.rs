//! Limits: what happens when something is full, too long, or goes round in circles.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, Failure};

const POOL: u64 = 32 << 20;

fn errno<T: std::fmt::Debug>(result: Result<T, Failure>) -> Errno {
    match result {
        Err(Failure::Errno(errno)) => errno,
        other => panic!("{other:?}"),
    }
}

/// A full pool answers ENOSPC, loses nothing, and is usable after deleting.
#[test]
fn a_full_pool_loses_nothing() {
    let mut pool = TestPool::new(POOL);
    let session = pool.session();
    let content = |number: usize| vec![number as u8; 100_000];
    let mut made = 0;
    let full = loop {
        match session.put(&format!("f{made}"), &content(made)) {
            Ok(()) => made += 1,
            Err(failure) => break failure,
        }
    };
    assert_eq!(full, Failure::Errno(Errno::NOSPC));
    assert!(made > 100, "{made}");
    let _ = session.unlink(At::Root, format!("f{made}").as_bytes(), 0);
    for number in 0..made {
        assert_eq!(session.get(&format!("f{number}")).unwrap(), content(number));
    }
    for number in 0..made / 2 {
        session
            .unlink(At::Root, format!("f{number}").as_bytes(), 0)
            .unwrap();
    }
    for number in 0..made / 4 {
        session
            .put(&format!("g{number}"), &content(number + 1))
            .unwrap();
    }
    session.disconnect().unwrap();
    pool.stop();
    pool.serve();
    let session = pool.session();
    for number in made / 2..made {
        assert_eq!(session.get(&format!("f{number}")).unwrap(), content(number));
    }
    for number in 0..made / 4 {
        assert_eq!(
            session.get(&format!("g{number}")).unwrap(),
            content(number + 1)
        );
    }
    assert_eq!(pool.violations(), "");
}

/// Writing and deleting far more than the pool holds does not fill it.
#[test]
fn churn_does_not_fill_the_pool() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    for round in 0..400 {
        session.put("churned", &vec![round as u8; 1 << 20]).unwrap();
        if round % 3 == 0 {
            session.unlink(At::Root, b"churned", 0).unwrap();
        }
        session.put(&format!("small{}", round % 7), b"x").unwrap();
        session
            .unlink(At::Root, format!("small{}", round % 7).as_bytes(), 0)
            .unwrap();
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

/// A large directory is complete before and after a fold, and in another session.
#[test]
fn a_large_directory_is_complete() {
    let pool = TestPool::new(256 << 20);
    let one = pool.session();
    one.make_directory(At::Root, b"d", 0o755).unwrap();
    let mut expected: Vec<String> = (0..20_000).map(|n| format!("file-{n}")).collect();
    for name in &expected {
        one.put(&format!("d/{name}"), b"").unwrap();
    }
    expected.sort();
    assert_eq!(one.names("d").unwrap(), expected);
    let two = pool.session();
    assert_eq!(two.names("d").unwrap(), expected);
    assert_eq!(one.names("d").unwrap(), expected);
    for name in expected.iter().step_by(97) {
        assert_eq!(two.get(&format!("d/{name}")).unwrap(), b"");
        one.unlink(At::Root, format!("d/{name}").as_bytes(), 0)
            .unwrap();
        assert_eq!(errno(two.get(&format!("d/{name}"))), Errno::NOENT);
    }
}
