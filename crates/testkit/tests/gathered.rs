//! What a session has gathered is folded ahead, while nobody asks for anything: a session that has
//! half of what it may have unfolded finds most of it folded, and goes on with the pages.

use arck_core_state::arena::unfolded_max;
use arck_core_state::header::HeaderKind;
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, FileSystem};
use std::time::{Duration, Instant};

const FILES_IN_DIRECTORY: usize = 100;

fn path(file: usize) -> String {
    format!("d{}/f{file}", file / FILES_IN_DIRECTORY)
}

/// Two pages: a file of one has no index page.
fn content(file: usize) -> Vec<u8> {
    path(file).repeat(800).into_bytes()
}

/// Files that take a page of the arena each, for their index.
fn make(session: &FileSystem, files: std::ops::Range<usize>) {
    for file in files {
        if file % FILES_IN_DIRECTORY == 0 {
            let directory = format!("d{}", file / FILES_IN_DIRECTORY);
            session
                .make_directory(At::Root, directory.as_bytes(), 0o755)
                .unwrap();
        }
        session.put(&path(file), &content(file)).unwrap();
    }
}

/// How many of the files are born in the verified state.
fn born(session: &FileSystem, files: std::ops::Range<usize>) -> usize {
    files
        .filter(|&file| {
            let status = session.stat(At::Root, path(file).as_bytes(), 0).unwrap();
            let header = session.session().header(status.inode as u32).unwrap();
            header.kind() == HeaderKind::Alive
        })
        .count()
}

#[test]
fn what_is_gathered_is_folded_and_taken_back() {
    let pool = TestPool::new(512 << 20);
    let session = pool.session();
    let most = unfolded_max(session.session().geometry()) as usize;
    let used = || session.session().state().arena.used() as usize;

    // Less than a quarter is left alone.
    let few = most / 4 - 200;
    make(&session, 0..few);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(born(&session, 0..few), 0, "folded too early");

    let many = most / 2 + 200;
    make(&session, few..many);
    let since = Instant::now();
    // Those that were there when a quarter had come together, the first ones surely.
    while born(&session, 0..few) < few {
        let (now, used) = (born(&session, 0..few), used());
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "{now} of {few} are folded, {used} pages in use"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(used() > most / 4, "somebody has folded all of it");

    // The next growth of the arena takes back what was folded.
    make(&session, many..most + 500);
    assert!(used() < most, "{} pages", used());
    for file in 0..most + 500 {
        assert!(session.get(&path(file)).unwrap() == content(file), "{file}");
    }
    session.fold(true).unwrap();
    let other = pool.session();
    for file in 0..most + 500 {
        assert!(other.get(&path(file)).unwrap() == content(file), "{file}");
    }
    assert_eq!(pool.violations(), "");
}
