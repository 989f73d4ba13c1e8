//! Sessions that make many files, in one directory or in many: what they own stays little, and so does what waits to be
//! folded.

use arck_controller::Options;
use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, FileSystem, Handle};
use std::sync::atomic::{AtomicBool, Ordering};

/// Inodes from which on a session keeps no files.
const KEPT: usize = 48;

fn pool() -> TestPool {
    TestPool::with_options(
        256 << 20,
        Options {
            owned_kept: KEPT,
            ..Options::default()
        },
    )
}

fn owns(session: &FileSystem, path: &str) -> bool {
    session.owns(At::Root, path.as_bytes()).unwrap()
}

fn create(session: &FileSystem, path: &str, mode: u32) -> Handle {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    session
        .open(At::Root, path.as_bytes(), flags, mode)
        .unwrap_or_else(|error| panic!("{path}: {error:?}"))
}

fn write(session: &FileSystem, handle: Handle, at: u64, content: &[u8]) {
    assert_eq!(
        session.write(handle, content, Some(at)).unwrap(),
        content.len()
    );
}

#[test]
fn who_makes_many_files_keeps_few() {
    let pool = pool();
    let (one, other) = (pool.session(), pool.session());
    one.make_directory(At::Root, b"d", 0o755).unwrap();
    let name = |number| format!("d/{number}");
    let mut handles = Vec::new();
    for number in 0..400 {
        // Some could not be opened to write by anybody.
        let mode = if number % 7 == 0 { 0o400 } else { 0o644 };
        let handle = create(&one, &name(number), mode);
        if number % 3 == 0 {
            write(&one, handle, 0, name(number).as_bytes());
        }
        handles.push(handle);
    }
    let nameless = create(&one, "d/nameless", 0o644);
    one.unlink(At::Root, b"d/nameless", 0).unwrap();
    one.fold(false).unwrap();
    assert!(owns(&one, "d"), "the directory is gone on with");
    let kept = (0..400).filter(|&number| owns(&one, &name(number))).count();
    assert!(kept < 150, "{kept} are owned");
    // Whoever has it open goes on, whatever he owns; and so does everybody else.
    for (number, &handle) in (0..).zip(&handles) {
        one.change_mode_handle(handle, 0o400 + number % 2 * 0o200)
            .unwrap();
        write(&one, handle, 5000, name(number).as_bytes());
    }
    for number in 0..400 {
        let content = other.get(&name(number)).unwrap();
        assert_eq!(&content[5000..], name(number).as_bytes());
        let begins = content.starts_with(name(number).as_bytes());
        assert_eq!(begins, number % 3 == 0, "{number}");
    }
    write(&one, nameless, 0, b"here");
    assert_eq!(one.stat_handle(nameless).unwrap().links, 0);
    one.close(nameless);
    other.unlink(At::Root, b"d/399", 0).unwrap();
    other.put("d/399", b"theirs").unwrap();
    assert_eq!(one.get("d/399").unwrap(), b"theirs");
    handles.into_iter().for_each(|handle| one.close(handle));
    assert_eq!(pool.violations(), "");
}

/// Files are written, linked, renamed and removed while folds let them go.
#[test]
fn files_are_changed_while_they_are_let_go() {
    const THREADS: u32 = 3;
    const FILES: u32 = 1500;
    let seed = 7;
    println!("seed {seed}");
    let pool = pool();
    let session = pool.session();
    let is_done = AtomicBool::new(false);
    let of = |thread: u32, number: u32| format!("d{thread}/{number}");
    std::thread::scope(|scope| {
        let folds = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                session.fold(false).unwrap();
            }
        });
        let makers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let session = &session;
                scope.spawn(move || {
                    let mut random = Random::new(seed + u64::from(thread));
                    let directory = format!("d{thread}");
                    session
                        .make_directory(At::Root, directory.as_bytes(), 0o755)
                        .unwrap();
                    for number in 0..FILES {
                        let path = of(thread, number);
                        let handle = create(session, &path, 0o644);
                        for _ in 0..random.below(3) {
                            write(session, handle, 0, b"not yet ");
                        }
                        write(session, handle, 0, path.as_bytes());
                        let moved = format!("{path}+");
                        match number % 4 {
                            1 => session
                                .rename(At::Root, path.as_bytes(), At::Root, moved.as_bytes(), 0)
                                .unwrap(),
                            2 => session
                                .link(At::Root, path.as_bytes(), At::Root, moved.as_bytes(), 0)
                                .unwrap(),
                            3 => session.unlink(At::Root, path.as_bytes(), 0).unwrap(),
                            _ => {}
                        }
                        write(session, handle, 100, path.as_bytes());
                        session.close(handle);
                    }
                })
            })
            .collect();
        makers.into_iter().for_each(|maker| maker.join().unwrap());
        is_done.store(true, Ordering::Relaxed);
        folds.join().unwrap();
    });
    let other = pool.session();
    for thread in 0..THREADS {
        let mut expected = Vec::new();
        for number in 0..FILES {
            let path = of(thread, number);
            let plus = format!("{number}+");
            match number % 4 {
                0 => expected.push(number.to_string()),
                1 => expected.push(plus),
                2 => expected.extend([number.to_string(), plus]),
                _ => continue,
            }
            let name = format!("d{thread}/{}", expected.last().unwrap());
            let content = other.get(&name).unwrap();
            assert!(content.starts_with(path.as_bytes()), "{name}");
            assert_eq!(&content[100..], path.as_bytes(), "{name}");
        }
        let mut names = other.names(&format!("d{thread}")).unwrap();
        names.sort();
        expected.sort();
        assert_eq!(names, expected, "d{thread}");
    }
    assert_eq!(pool.violations(), "");
}

/// # Regression
/// Folding ahead looked at one directory's pages: a session that changed few names in each of many gathered 16 MiB,
/// and waited until all of it was folded.
#[test]
fn few_names_in_each_of_many_directories_are_folded_ahead() {
    const DIRECTORIES: u32 = 150;
    const NAMES: u32 = 120;
    let pool = TestPool::new(256 << 20);
    let session = pool.session();
    let used = || session.session().state().arena.used();
    let mut most = 0;
    for directory in 0..DIRECTORIES {
        let path = format!("d{directory}");
        session
            .make_directory(At::Root, path.as_bytes(), 0o755)
            .unwrap();
        for number in 0..NAMES {
            let handle = create(&session, &format!("{path}/{number}"), 0o644);
            session.close(handle);
        }
        most = most.max(used());
    }
    // All together take several times as many.
    let all = u64::from(DIRECTORIES * NAMES / 31);
    assert!(most < all / 2, "{most} pages in use at once, of {all}");
    let other = pool.session();
    for directory in 0..DIRECTORIES {
        let names = other.names(&format!("d{directory}")).unwrap();
        assert_eq!(names.len(), NAMES as usize);
    }
    assert_eq!(pool.violations(), "");
}
