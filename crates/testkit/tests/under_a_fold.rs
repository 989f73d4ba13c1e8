//! What goes on while a fold has directories marked, and that trees which are removed are folded meanwhile: nobody
//! waits for more of a fold than he has to, and counts of links are right at each moment of it.

use arck_controller::Options;
use arck_core_state::InodeNumber;
use arck_libfs_kit::engine::{Alone, Engine, Way};
use arck_libfs_kit::session::connect_socket;
use arck_protocol::measure::HandOvers;
use arck_protocol::socket::{Answer, Call, call};
use arck_testkit::{Shorthand, StopAtEnd, TestPool};
use arckfs::{At, Errno, FileSystem};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const POOL: u64 = 64 << 20;
/// How long is waited for what comes at once, if it comes.
const PATIENCE: Duration = Duration::from_secs(60);

fn mkdir(session: &FileSystem, path: &str) {
    let made = session.make_directory(At::Root, path.as_bytes(), 0o755);
    made.unwrap_or_else(|error| panic!("{path}: {error:?}"));
}

fn links(session: &FileSystem, path: &str) -> u32 {
    let found = session.stat(At::Root, path.as_bytes(), 0);
    found
        .unwrap_or_else(|error| panic!("{path}: {error:?}"))
        .links
}

fn wait(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// One whose folds wait for operations as long as a test takes.
fn patient_pool() -> TestPool {
    let options = Options {
        patience: PATIENCE,
        ..Options::default()
    };
    TestPool::with_options(POOL, options)
}

/// Does this while a fold of all has an inode marked: it has its marks for as long as another thread is inside an
/// operation on the directory that is `held`.
fn while_marked(one: &FileSystem, held: &[u8], marked: InodeNumber, meanwhile: impl FnOnce()) {
    let engine = Engine::new(one.session(), &Alone);
    let header = one.session().header(marked).expect("a header");
    let (is_inside, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _over = StopAtEnd(&is_over);
        scope.spawn(|| {
            let stays: Result<(), Errno> = engine.run(Way::Names, |context| {
                let held = context.directory_at(held, None)?;
                context.expect_own(held.inode())?;
                context.begin_change(&held)?;
                is_inside.store(true, Ordering::Relaxed);
                wait("the end", || is_over.load(Ordering::Relaxed));
                Ok(())
            });
            assert_eq!(stays, Ok(()));
        });
        wait("an operation", || is_inside.load(Ordering::Relaxed));
        scope.spawn(|| one.fold(false).expect("a fold"));
        wait("a mark", || header.ownership().is_marked());
        meanwhile();
        assert!(header.ownership().is_marked(), "the fold was over");
    });
}

/// What has been folded since this was asked last.
fn measured(pool: &Path) -> HandOvers {
    let socket = connect_socket(pool).expect("a controller");
    match call(&socket, &Call::Measure { on: true })
        .expect("an answer")
        .0
    {
        Answer::Measured(measured) => measured,
        other => panic!("{other:?}"),
    }
}

/// A file that directories had to do with once waited for all directories that a fold had marked, before its count of
/// links was told: also for those with which it has nothing to do.
#[test]
fn a_count_of_links_does_not_wait_for_a_fold_of_other_directories() {
    let pool = patient_pool();
    let one = pool.session();
    for name in ["one", "other", "third"] {
        mkdir(&one, name);
    }
    one.put("one/file", b"").expect("put");
    one.fold(false).expect("a fold");
    one.put("other/new", b"").expect("put");
    let other = one.stat(At::Root, b"other", 0).expect("there").inode;
    while_marked(&one, b"third", other as InodeNumber, || {
        let begun = Instant::now();
        assert_eq!(links(&one, "one/file"), 1);
        let took = begun.elapsed();
        assert!(took < PATIENCE / 2, "it waited {took:?}");
    });
    assert_eq!(pool.violations(), "");
}

/// A file without a name is closed for the last time while a fold of all has it marked: its branch could not be ended
/// then, and nobody came back to it before the session ended. So its number and all that it held stayed in use.
#[test]
fn what_is_closed_under_a_fold_is_used_again() {
    const FEW: usize = 10;
    let pool = patient_pool();
    let one = pool.session();
    let engine = Engine::new(one.session(), &Alone);
    let content = vec![7; 40_000];
    one.put("first", b"").expect("put");
    let used = || {
        engine.fold_all().expect("a fold");
        one.session().state().arena.used()
    };
    let before = used();
    for _ in 0..FEW {
        one.put("name", &content).expect("put");
        let handle = one.open_at_root("name", libc::O_RDONLY).expect("there");
        one.unlink(At::Root, b"name", 0).expect("unlinked");
        let number = one.stat_handle(handle).expect("stat").inode as InodeNumber;
        while_marked(&one, b"", number, || one.close(handle));
    }
    let after = used();
    assert!(after < before + FEW as u64 / 2, "{after} pages of {before}");
    assert_eq!(pool.violations(), "");
}

/// A file has as many links as were made, whatever part of them is verified by now: also between the instant at which a
/// verified count is changed and that at which the directory's delta is over.
#[test]
fn counts_of_links_are_right_at_each_moment_of_a_fold() {
    const DIRECTORIES: usize = 2000;
    const ROUNDS: usize = 60;
    let pool = TestPool::new(POOL);
    let one = pool.session();
    let file = |directory: usize| format!("files/{directory}");
    mkdir(&one, "files");
    for directory in 0..DIRECTORIES {
        one.put(&file(directory), b"").expect("put");
    }
    one.fold(false).expect("a fold");
    let is_over = AtomicBool::new(false);
    // Links of each file, and since which round; 0: they are being changed.
    let expected: Vec<AtomicU32> = (0..DIRECTORIES).map(|_| AtomicU32::new(1)).collect();
    let looks = std::thread::scope(|scope| {
        let over = StopAtEnd(&is_over);
        let looking = scope.spawn(|| {
            let mut looks = 0;
            while !is_over.load(Ordering::Relaxed) {
                for (directory, expected) in expected.iter().enumerate() {
                    let before = expected.load(Ordering::SeqCst);
                    let found = links(&one, &file(directory));
                    if before != 0 && expected.load(Ordering::SeqCst) == before {
                        assert_eq!(found, before % 4, "directory {directory}");
                        looks += 1;
                    }
                }
            }
            looks
        });
        for round in 0..ROUNDS {
            for (directory, expected) in expected.iter().enumerate() {
                expected.store(0, Ordering::SeqCst);
                // What dies with a fold is not sealed, but marked until it is over.
                let (path, link) = (directory.to_string(), format!("{directory}/link"));
                if round % 2 == 0 {
                    mkdir(&one, &path);
                    let file = file(directory);
                    let linked = one.link(At::Root, file.as_bytes(), At::Root, link.as_bytes(), 0);
                    linked.expect("linked");
                } else {
                    one.unlink(At::Root, link.as_bytes(), 0).expect("unlinked");
                    let removed = one.unlink(At::Root, path.as_bytes(), libc::AT_REMOVEDIR);
                    removed.expect("removed");
                }
                let links = 2 - round as u32 % 2;
                expected.store(4 * (round as u32 + 1) + links, Ordering::SeqCst);
            }
            one.fold(false).expect("a fold");
            if looking.is_finished() {
                break;
            }
        }
        drop(over);
        looking.join().expect("looks")
    });
    assert!(looks > 1000, "only {looks} looks");
    assert_eq!(pool.violations(), "");
}

/// Where a tree is removed it is folded while that goes on, a few directories after others: all that was removed since is
/// one step, for which who goes on waits.
#[test]
fn a_tree_that_is_removed_is_folded_meanwhile() {
    const DIRECTORIES: usize = 160;
    const FILES: usize = 60;
    let pool = TestPool::new(POOL);
    let path = |directory: usize| format!("tree/{directory}");
    {
        let maker = pool.session();
        mkdir(&maker, "tree");
        for directory in 0..DIRECTORIES {
            mkdir(&maker, &path(directory));
            for file in 0..FILES {
                let path = format!(
                    "{}/a name that takes some room, number {file}",
                    path(directory)
                );
                maker.put(&path, b"").expect("put");
            }
        }
        maker.fold(true).expect("a fold");
    }
    let one = pool.session();
    measured(&pool.path());
    let mut folded = 0;
    for directory in 0..DIRECTORIES {
        let path = path(directory);
        for name in one.names(&path).expect("a listing") {
            let path = format!("{path}/{name}");
            one.unlink(At::Root, path.as_bytes(), 0).expect("unlinked");
        }
        let removed = one.unlink(At::Root, path.as_bytes(), libc::AT_REMOVEDIR);
        removed.expect("removed");
        if directory == DIRECTORIES / 2 {
            folded = measured(&pool.path()).records;
        }
    }
    assert!(folded > 0, "nothing was folded in the middle of it");
    assert_eq!(one.names("tree").expect("a listing"), [""; 0]);
    assert_eq!(pool.violations(), "");
}
