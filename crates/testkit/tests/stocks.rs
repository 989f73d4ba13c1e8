//! Stocks of inode numbers: those of a session, and what each of its threads keeps of them at hand. No number is used
//! twice, none is lost with a thread, and where there are none any more that is said, by every thread.

use arck_core_state::InodeNumber;
use arck_core_state::header::HeaderKind;
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, Failure, FileSystem};
use std::collections::BTreeSet;

const THREADS: usize = 6;

/// Makes a file; its number.
fn make(fs: &FileSystem, path: &str) -> Result<u64, Failure> {
    let file = fs.open_at_root(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)?;
    let made = fs.stat_handle(file).expect("a stat").inode;
    fs.close(file);
    Ok(made)
}

fn unlink(fs: &FileSystem, path: &str) {
    let gone = fs.unlink(At::Root, path.as_bytes(), 0);
    gone.unwrap_or_else(|failure| panic!("{path}: {failure:?}"));
}

fn mkdir(fs: &FileSystem, path: &str) {
    let made = fs.make_directory(At::Root, path.as_bytes(), 0o755);
    made.unwrap_or_else(|failure| panic!("{path}: {failure:?}"));
}

/// Numbers that are granted to the session, and no inode's.
fn granted(fs: &FileSystem) -> usize {
    let session = fs.session();
    let numbers = 1..session.geometry().inode_count;
    let is_granted = |number: &InodeNumber| {
        let header = session.header(*number).expect("a header");
        header.kind() == HeaderKind::Granted && header.ownership().session() == session.number()
    };
    numbers.filter(is_granted).count()
}

/// Files that are made and removed by several threads at once: whatever is there at a time has a number of its own.
#[test]
fn no_number_is_used_twice_by_threads() {
    const ROUNDS: usize = 30;
    const FILES: usize = 40;
    let pool = TestPool::new(64 << 20);
    let fs = pool.session();
    (0..THREADS).for_each(|thread| mkdir(&fs, &thread.to_string()));
    for round in 0..ROUNDS {
        let numbers: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let fs = &fs;
                    scope.spawn(move || {
                        let path = |file| format!("{thread}/{round} {file}");
                        let made = (0..FILES).map(|file| make(fs, &path(file)).expect("a file"));
                        let mut made: Vec<u64> = made.collect();
                        // Half of them go, and as many come: their numbers are used again, or others are.
                        (0..FILES / 2).for_each(|file| unlink(fs, &path(file)));
                        made.drain(..FILES / 2);
                        let more = FILES..FILES + FILES / 2;
                        made.extend(more.map(|file| make(fs, &path(file)).expect("a file")));
                        made
                    })
                })
                .collect();
            let made = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            made.flatten().collect()
        });
        let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
        assert_eq!(numbers.len(), THREADS * FILES);
        assert_eq!(distinct.len(), numbers.len(), "round {round}");
        for thread in 0..THREADS {
            for name in fs.names(&thread.to_string()).expect("a listing") {
                unlink(&fs, &format!("{thread}/{name}"));
            }
        }
        if round % 3 == 0 {
            fs.fold(false).expect("a fold");
        }
    }
    assert_eq!(pool.violations(), "");
}

/// A thread ends with numbers at hand, of which it has used one: the next goes on with them.
#[test]
fn the_numbers_of_a_thread_that_ends_are_not_lost() {
    const ENDS: usize = 300;
    let pool = TestPool::new(64 << 20);
    let fs = pool.session();
    let mut most = 0;
    for thread in 0..ENDS {
        std::thread::scope(|scope| {
            scope.spawn(|| make(&fs, &thread.to_string()).expect("a file"));
        });
        if thread % 50 == 49 {
            // What was made is committed, and counts no more.
            fs.fold(false).expect("a fold");
            most = most.max(granted(&fs));
        }
    }
    // Each would have taken 26 along.
    assert!(
        most < ENDS * 26 / 4,
        "{most} numbers lie idle after {ENDS} threads"
    );
    assert_eq!(fs.names("").expect("a listing").len(), ENDS);
    assert_eq!(pool.violations(), "");
}

/// Each thread is told that there are no inodes any more, and waits for nothing; when some are free again, there are
/// as many as before.
#[test]
fn who_finds_no_numbers_any_more_is_told_so() {
    let pool = TestPool::new(16 << 20);
    let fs = pool.session();
    let inodes = u64::from(fs.session().geometry().inode_count);
    (0..THREADS).for_each(|thread| mkdir(&fs, &thread.to_string()));
    let fill = |round: usize| -> Vec<usize> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let fs = &fs;
                    scope.spawn(move || {
                        for file in 0.. {
                            match make(fs, &format!("{thread}/{round} {file}")) {
                                Ok(_) => assert!(file < 10_000, "it never gets full"),
                                Err(failure) => {
                                    assert_eq!(failure, Failure::Errno(Errno::NOSPC));
                                    return file;
                                }
                            }
                        }
                        unreachable!("it ends above")
                    })
                })
                .collect();
            let made = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            made.collect()
        })
    };
    let mut counts = Vec::new();
    for round in 0..3 {
        let made = fill(round);
        counts.push(made.iter().sum::<usize>() as u64);
        // Again at once: nobody waits.
        for thread in 0..THREADS {
            match make(&fs, &format!("{thread}/more")) {
                // What another thread had at hand, which has ended, is used.
                Ok(_) => unlink(&fs, &format!("{thread}/more")),
                Err(failure) => assert_eq!(failure, Failure::Errno(Errno::NOSPC)),
            }
        }
        for (thread, &files) in made.iter().enumerate() {
            (0..files).for_each(|file| unlink(&fs, &format!("{thread}/{round} {file}")));
        }
        fs.fold(false).expect("a fold");
    }
    println!("{counts:?} files of {inodes} inodes");
    // Few lie idle: what threads have at hand, and what the session has in stock.
    for count in counts {
        assert!(
            count > inodes * 3 / 4 && count < inodes,
            "{count} of {inodes}"
        );
    }
    assert_eq!(pool.violations(), "");
}
