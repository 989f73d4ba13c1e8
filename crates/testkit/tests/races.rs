//! Two threads of one session at the same names and descriptions: what one does in one step is
//! never seen half done by the other, and no error is told that a kernel would not tell.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, Failure, FileSystem};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const POOL: u64 = 64 << 20;
const ROUNDS: usize = 20_000;
/// Of those whose threads wait for each other.
const FEW_ROUNDS: usize = 1000;

/// Turns that the other thread has had before a test may end: else it was alone.
const FEW_TURNS: usize = 100;
/// How long an event is waited for that scheduling alone can hold off.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs `round` a number of times while another thread does `meanwhile` over and over.
fn against(meanwhile: impl Fn() + Sync, round: impl FnMut()) {
    repeated_against(ROUNDS, || true, meanwhile, round);
}

/// As many rounds, and more until it is `enough`.
fn repeated_against(
    rounds: usize,
    enough: impl Fn() -> bool,
    meanwhile: impl Fn() + Sync,
    mut round: impl FnMut(),
) {
    let done = AtomicBool::new(false);
    let turns = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                meanwhile();
                turns.fetch_add(1, Ordering::Relaxed);
            }
        });
        let all = std::panic::AssertUnwindSafe(|| {
            (0..rounds).for_each(|_| round());
            let deadline = Instant::now() + PATIENCE;
            let had = || turns.load(Ordering::Relaxed);
            // Over when the other thread has panicked: the scope tells.
            while !other.is_finished() && (had() < FEW_TURNS || !enough()) {
                let turns = had();
                assert!(
                    Instant::now() < deadline,
                    "it never happened: {turns} turns"
                );
                round();
            }
        });
        // A round that fails must not leave the other thread running for ever.
        let outcome = std::panic::catch_unwind(all);
        done.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Tells a thread that waits for this one that it has panicked.
struct TellPanic<'f>(&'f AtomicBool);

impl Drop for TellPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn make(one: &FileSystem, path: &[u8]) {
    let flags = libc::O_CREAT | libc::O_WRONLY;
    let handle = one.open(At::Root, path, flags, 0o644).expect("made");
    one.close(handle);
}

fn is_there(one: &FileSystem, path: &[u8]) -> bool {
    match one.stat(At::Root, path, 0) {
        Ok(_) => true,
        Err(Failure::Errno(Errno::NOENT)) => false,
        Err(other) => panic!("{}: {other:?}", String::from_utf8_lossy(path)),
    }
}

fn rename(one: &FileSystem, from: &[u8], to: &[u8]) -> Result<(), Failure> {
    one.rename(At::Root, from, At::Root, to, 0)
}

#[test]
fn a_name_that_is_replaced_is_there_all_the_time() {
    let pool = TestPool::new(POOL);
    let one = pool.session();
    make(&one, b"name");
    against(
        || assert!(is_there(&one, b"name")),
        || {
            make(&one, b"new");
            rename(&one, b"new", b"name").expect("renamed");
        },
    );
    // Also one that the verified directory has.
    one.fold(false).expect("fold");
    against(
        || {
            let handle = one.open(At::Root, b"name", libc::O_RDONLY, 0);
            one.close(handle.expect("there"));
        },
        || {
            make(&one, b"new");
            rename(&one, b"new", b"name").expect("renamed");
        },
    );
    assert_eq!(pool.violations(), "");
}

#[test]
fn a_name_that_comes_and_goes_is_there_or_not() {
    let pool = TestPool::new(POOL);
    let one = pool.session();
    against(
        || {
            is_there(&one, b"name");
            match one.open(At::Root, b"name", libc::O_RDONLY, 0) {
                Ok(handle) => {
                    let found = one.stat_handle(handle);
                    assert!(found.is_ok(), "{found:?}");
                    one.close(handle);
                }
                Err(failure) => assert_eq!(failure, Failure::Errno(Errno::NOENT)),
            }
        },
        || {
            make(&one, b"name");
            one.unlink(At::Root, b"name", 0).expect("unlinked");
        },
    );
    assert_eq!(pool.violations(), "");
}

#[test]
fn a_renamed_file_is_at_the_one_place_or_the_other() {
    for other in [&b"there"[..], b"directory/there"] {
        let pool = TestPool::new(POOL);
        let one = pool.session();
        one.make_directory(At::Root, b"directory", 0o755).unwrap();
        // 1: it is here or on its way. 2: it has been looked for.
        let phase = AtomicU32::new(0);
        let failed = AtomicBool::new(false);
        repeated_against(
            FEW_ROUNDS,
            || true,
            || {
                if phase.load(Ordering::Acquire) == 1 {
                    let _told = TellPanic(&failed);
                    while is_there(&one, b"here") {}
                    if is_there(&one, other) {
                        phase.store(2, Ordering::Release);
                    } else {
                        failed.store(true, Ordering::Relaxed);
                    }
                }
            },
            || {
                make(&one, b"here");
                phase.store(1, Ordering::Release);
                rename(&one, b"here", other).expect("renamed");
                while phase.load(Ordering::Acquire) == 1 {
                    assert!(!failed.load(Ordering::Relaxed), "at neither place");
                    std::hint::spin_loop();
                }
                one.unlink(At::Root, other, 0).expect("unlinked");
            },
        );
        assert_eq!(pool.violations(), "");
    }
}

#[test]
fn nothing_is_put_into_a_removed_directory() {
    let pool = TestPool::new(POOL);
    let one = pool.session();
    make(&one, b"linked");
    // How often something was put into it, and how often it was not there.
    let (put, refused) = (Cell::new(0), Cell::new(0));
    repeated_against(
        ROUNDS,
        || put.get() > 0 && refused.get() > 0,
        || {
            let made = one.make_directory(At::Root, b"directory", 0o755);
            assert!(
                matches!(made, Ok(()) | Err(Failure::Errno(Errno::EXIST))),
                "{made:?}"
            );
            // Time for the other thread to find the directory, and to be inside when it goes.
            for _ in 0..20 {
                is_there(&one, b"directory/file");
            }
            let removed = one.unlink(At::Root, b"directory", libc::AT_REMOVEDIR);
            assert!(
                matches!(removed, Ok(()) | Err(Failure::Errno(Errno::NOTEMPTY))),
                "{removed:?}"
            );
        },
        || {
            make(&one, b"file");
            let inside = b"directory/file";
            let ways: [&dyn Fn() -> Result<(), Failure>; 3] = [
                &|| rename(&one, b"file", inside),
                &|| one.link(At::Root, b"linked", At::Root, inside, 0),
                &|| one.make_directory(At::Root, inside, 0o755),
            ];
            for way in ways {
                match way() {
                    Ok(()) => {
                        assert!(is_there(&one, inside));
                        let kind = one.stat(At::Root, inside, 0).unwrap().mode & libc::S_IFMT;
                        let flags = match kind {
                            libc::S_IFDIR => libc::AT_REMOVEDIR,
                            _ => 0,
                        };
                        one.unlink(At::Root, inside, flags).expect("unlinked");
                        put.set(put.get() + 1);
                    }
                    Err(failure) => {
                        assert_eq!(failure, Failure::Errno(Errno::NOENT));
                        refused.set(refused.get() + 1);
                    }
                }
            }
        },
    );
    one.fold(false).expect("fold");
    assert_eq!(one.stat(At::Root, b"linked", 0).unwrap().links, 1);
    assert_eq!(pool.violations(), "");
}

#[test]
fn a_closed_handle_leads_to_no_other_file() {
    let pool = TestPool::new(POOL);
    let one = pool.session();
    make(&one, b"one");
    one.put("two", b"content").unwrap();
    let open = |path: &str| one.open_at_root(path, libc::O_RDWR).expect("open");
    let closed = open("one");
    one.close(closed);
    // The slot is used again, at once.
    let other = open("two");
    let mut buffer = [0; 4];
    assert_eq!(one.read(closed, &mut buffer, None), Err(Errno::BADF));
    assert_eq!(one.write(closed, b"wrong", Some(0)), Err(Errno::BADF));
    assert_eq!(one.seek(closed, 3, libc::SEEK_SET), Err(Errno::BADF));
    assert_eq!(one.retain(closed), Err(Errno::BADF));
    one.close(closed);
    assert_eq!(one.read(other, &mut buffer, None), Ok(4));
    assert_eq!(&buffer, b"cont");
    one.close(other);
    // While one thread reads at the offset others open and close.
    let failed = AtomicU32::new(0);
    repeated_against(
        FEW_ROUNDS,
        || true,
        || {
            let handle = open("one");
            assert!(one.seek(handle, 7, libc::SEEK_SET).is_ok());
            if one.seek(handle, 0, libc::SEEK_CUR) != Ok(7) {
                failed.fetch_add(1, Ordering::Relaxed);
            }
            one.close(handle);
        },
        || {
            let handle = open("two");
            std::thread::scope(|scope| {
                scope.spawn(|| one.close(handle));
                let _ = one.read(handle, &mut [0; 3], None);
            });
        },
    );
    assert_eq!(failed.load(Ordering::Relaxed), 0, "another's offset moved");
}

#[test]
fn blocks_of_a_small_file_that_another_session_appends_to() {
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    one.put("file", b"one").unwrap();
    let handle = two
        .open_at_root("file", libc::O_WRONLY | libc::O_APPEND)
        .unwrap();
    assert_eq!(two.write(handle, b"two", None), Ok(3));
    let found = two.stat_handle(handle).unwrap();
    assert_eq!((found.size, found.blocks), (6, 8));
}

/// What another session replaces while it is being opened: who has it open keeps it, and nobody is
/// told of a file that ends while he opens it.
#[test]
fn what_was_opened_while_another_session_replaced_it_stays() {
    let pool = TestPool::new(POOL);
    let (maker, reader) = (pool.session(), pool.session());
    let flags = libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY;
    let replace = || {
        let handle = maker.open(At::Root, b"new", flags, 0o644).expect("made");
        assert_eq!(maker.write(handle, b"text", None), Ok(4));
        maker.close(handle);
        rename(&maker, b"new", b"name").expect("renamed");
        maker.fold(false).expect("fold");
    };
    replace();
    against(
        || {
            let handle = reader.open(At::Root, b"name", libc::O_RDONLY, 0);
            let handle = handle.expect("there");
            for _ in 0..3 {
                let mut bytes = [0; 8];
                assert_eq!(reader.read(handle, &mut bytes, Some(0)), Ok(4));
                assert_eq!(&bytes[..4], b"text");
                std::thread::yield_now();
            }
            reader.close(handle);
        },
        replace,
    );
    assert_eq!(pool.violations(), "");
}
