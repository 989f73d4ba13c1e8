//! Regressions: each test tells the story of a bug that a reviewer found.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Failure, FileSystem, Handle};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const POOL: u64 = 64 << 20;
fn mv(s: &FileSystem, a: &str, b: &str) {
    s.rename(At::Root, a.as_bytes(), At::Root, b.as_bytes(), 0)
        .unwrap();
}
fn mkdir(s: &FileSystem, a: &str) {
    s.make_directory(At::Root, a.as_bytes(), 0o755).unwrap();
}
fn rm(s: &FileSystem, a: &str) {
    s.unlink(At::Root, a.as_bytes(), 0).unwrap();
}
fn rmdir(s: &FileSystem, a: &str) {
    s.unlink(At::Root, a.as_bytes(), libc::AT_REMOVEDIR)
        .unwrap();
}

/// A name moved into a new directory and removed there comes back.
#[test]
fn removed_through_a_new_directory_verified() {
    let pool = TestPool::new(POOL);
    let one = pool.session();
    mkdir(&one, "d");
    one.put("d/f", b"x").unwrap();
    one.disconnect().unwrap();
    let one = pool.session();
    mkdir(&one, "tmp");
    mv(&one, "d/f", "tmp/f");
    rm(&one, "tmp/f");
    rmdir(&one, "tmp");
    assert_eq!(one.names("d").unwrap(), Vec::<String>::new());
    one.disconnect().unwrap();
    let two = pool.session();
    assert_eq!(two.names("d").unwrap(), Vec::<String>::new(), "d/f is back");
}
#[test]
fn removed_through_a_new_directory_uncommitted() {
    let pool = TestPool::new(POOL);
    let one = pool.session();
    mkdir(&one, "d");
    one.put("d/f", b"x").unwrap();
    mkdir(&one, "tmp");
    mv(&one, "d/f", "tmp/f");
    rm(&one, "tmp/f");
    rmdir(&one, "tmp");
    one.put("other", b"other").unwrap();
    one.disconnect().unwrap();
    let two = pool.session();
    assert_eq!(two.names("d").unwrap(), Vec::<String>::new(), "d/f is back");
    assert_eq!(two.names("").unwrap(), ["d", "other"]);
}
/// Directories moved one after another.
#[test]
fn directories_moved_one_after_another() {
    let pool = TestPool::new(POOL);
    let one = pool.session();
    mkdir(&one, "a");
    mkdir(&one, "b");
    mkdir(&one, "c");
    for s in ["a/1", "a/2", "a/3"] {
        mkdir(&one, s);
    }
    mv(&one, "a/1", "b/1");
    assert_eq!(one.names("a").unwrap(), ["2", "3"]);
    assert_eq!(one.names("b").unwrap(), ["1"]);
    assert_eq!(one.names("c").unwrap(), Vec::<String>::new());
    mv(&one, "a/2", "b/2");
    assert_eq!(one.names("a").unwrap(), ["3"]);
    assert_eq!(one.names("b").unwrap(), ["1", "2"]);
    mv(&one, "a/3", "b/3");
    assert_eq!(one.names("b").unwrap(), ["1", "2", "3"]);
    assert_eq!(one.names("a").unwrap(), Vec::<String>::new());
    assert_eq!(one.stat(At::Root, b"a", 0).unwrap().links, 2);
    rmdir(&one, "a");
}
/// Deleting makes room for inodes.
#[test]
fn inode_numbers_come_back() {
    let pool = TestPool::new(16 << 20);
    let one = pool.session();
    let mut n = 0;
    let full = loop {
        match one.put(&format!("f{n}"), b"") {
            Ok(()) => n += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(full, arckfs::Failure::Errno(arckfs::Errno::NOSPC));
    assert!(n > 1000, "{n}");
    one.disconnect().unwrap();
    let one = pool.session();
    for i in 0..n {
        rm(&one, &format!("f{i}"));
    }
    for i in 0..n / 2 {
        one.put(&format!("g{i}"), b"")
            .unwrap_or_else(|e| panic!("g{i}: {e:?}"));
    }
}
/// Index pages of files come back to the arena.
#[test]
fn arena_pages_of_files_come_back() {
    let pool = TestPool::new(256 << 20);
    let one = pool.session();
    // Each round: a file of two pages replaced by rename, so that it is never looked at again.
    for _ in 0..2000 {
        one.put("new", &vec![1; 8192]).unwrap();
        mv(&one, "new", "current");
    }
    // The deltas of files that nobody looks at again are taken back once 16 MiB have gathered.
    assert!(one.session().state().arena.used() <= 4200);
}

/// A reader never sees zeroes in a file that only ever had none.
#[test]
fn readers_see_one_state() {
    let pool = TestPool::new(64 << 20);
    let writer = pool.session();
    let reader = pool.session();
    let size = 1 << 20;
    writer.put("f", &vec![b'x'; size]).unwrap();
    let stop = AtomicBool::new(false);
    let (zeros, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let h = reader.open_at_root("f", libc::O_RDONLY).unwrap();
                    let mut b = vec![b'?'; size];
                    if let Ok(n) = reader.read(h, &mut b, Some(0)) {
                        reads.fetch_add(1, Ordering::Relaxed);
                        if b[..n].iter().any(|&c| c != b'x') {
                            zeros.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    reader.close(h);
                }
            });
        }
        let started = Instant::now();
        let h = writer.open_at_root("f", libc::O_RDWR).unwrap();
        while started.elapsed() < Duration::from_secs(1) {
            writer.truncate_handle(h, 0).unwrap();
            writer.write(h, &vec![b'x'; size], Some(0)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    assert_eq!(zeros.load(Ordering::Relaxed), 0);
}

/// Two threads open and close one file while another session unlinks it: what is open stays. (The unlink came
/// after a time: where that was over before anybody had opened the file, nothing was tested.)
#[test]
fn what_is_open_stays() {
    let pool = TestPool::new(64 << 20);
    let one = pool.session();
    let two = pool.session();
    for round in 0..300 {
        let name = format!("f{round}");
        two.put(&name, b"content").unwrap();
        one.get(&name).unwrap();
        let is_whole = |handle| {
            let mut bytes = [0; 16];
            assert_eq!(one.read(handle, &mut bytes, Some(0)), Ok(7), "{name}");
        };
        let opened = AtomicU64::new(0);
        let throughout = one.open_at_root(&name, libc::O_RDONLY).unwrap();
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let mut is_first = true;
                    // Until it is gone.
                    let gone = loop {
                        let handle = one.open_at_root(&name, libc::O_RDONLY);
                        if std::mem::take(&mut is_first) {
                            opened.fetch_add(1, Ordering::Relaxed);
                        }
                        let h = match handle {
                            Ok(h) => h,
                            Err(errno) => break errno,
                        };
                        std::thread::yield_now();
                        is_whole(h);
                        one.close(h);
                    };
                    assert_eq!(gone, Failure::Errno(Errno::NOENT));
                });
            }
            s.spawn(|| {
                while opened.load(Ordering::Relaxed) < 2 {
                    std::thread::yield_now();
                }
                two.unlink(At::Root, name.as_bytes(), 0).unwrap();
                // fold it
                two.sync(
                    two.open_at_root("", libc::O_RDONLY | libc::O_DIRECTORY)
                        .unwrap(),
                )
                .unwrap();
            });
        });
        is_whole(throughout);
        one.close(throughout);
    }
}

/// A file that another session made can be told its path once it is open: readlink of
/// /proc/self/fd/N answered ENOENT.
#[test]
fn the_path_of_an_opened_file_is_known() {
    let pool = TestPool::new(POOL);
    let one = pool.session();
    mkdir(&one, "d");
    one.put("d/f", b"x").unwrap();
    let two = pool.session();
    let handle = two.open_at_root("d/f", libc::O_RDONLY).unwrap();
    assert_eq!(two.path_of(handle).unwrap(), b"/arck/d/f");
    mv(&two, "d/f", "d/g");
    assert_eq!(two.path_of(handle).unwrap(), b"/arck/d/g");
    two.close(handle);
}

/// Gives what a session has open another name.
fn link_open(fs: &FileSystem, opened: Handle, to: &str) {
    fs.link(
        At::Directory(opened),
        b"",
        At::Root,
        to.as_bytes(),
        libc::AT_EMPTY_PATH,
    )
    .unwrap();
}

/// Two sessions with nothing folded but `all/x`, which one has open; the other has removed the name, and
/// then the first has given it another, `own/y`.
fn linked_here_and_removed_there(pool: &TestPool, is_open: bool) -> (FileSystem, FileSystem) {
    let (one, two) = (pool.session(), pool.session());
    mkdir(&one, "own");
    mkdir(&two, "all");
    two.put("all/x", b"text").unwrap();
    two.fold(true).unwrap();
    one.fold(true).unwrap();
    let opened = one.open_at_root("all/x", libc::O_RDONLY).unwrap();
    rm(&two, "all/x");
    link_open(&one, opened, "own/y");
    if !is_open {
        one.close(opened);
    }
    (one, two)
}

fn assert_linked(fs: &FileSystem, when: &str) {
    // Links are counted as the directories are known that have them.
    assert_eq!(fs.names("all").unwrap(), Vec::<String>::new(), "{when}");
    assert_eq!(fs.get("own/y").unwrap(), b"text", "{when}");
    let status = fs.stat(At::Root, b"own/y", 0).unwrap();
    assert_eq!(status.links, 1, "{when}");
}

/// A session had linked another one's file, and had not folded that; the file's other name was removed by
/// its owner, and folded. The controller freed the file, so the link was refused ("I2 NumberGranted: free"), and
/// with it all that the first had changed of its directory.
#[test]
fn a_link_outlives_the_name_that_it_was_made_by() {
    for is_open in [false, true] {
        for who in ["the remover", "the linker", "both"] {
            let when = format!("{who} folded, open {is_open}");
            let pool = TestPool::new(POOL);
            let (one, two) = linked_here_and_removed_there(&pool, is_open);
            one.put("own/more", b"more").unwrap();
            if who != "the linker" {
                two.fold(true).unwrap();
            }
            assert_linked(&one, &when);
            if who != "the remover" {
                one.fold(true).unwrap();
            }
            let three = pool.session();
            assert_linked(&three, &when);
            assert_eq!(three.get("own/more").unwrap(), b"more", "{when}");
            assert_linked(&two, &when);
            // It is a file as any other.
            two.put("own/y", b"later").unwrap();
            assert_eq!(one.get("own/y").unwrap(), b"later", "{when}");
            rm(&three, "own/y");
            three.fold(true).unwrap();
            assert_eq!(one.names("own").unwrap(), ["more"], "{when}");
        }
    }
}

/// The same where each keeps the other's file: neither can be folded before the other.
#[test]
fn links_outlive_names_crosswise() {
    let pool = TestPool::new(POOL);
    let sessions = [pool.session(), pool.session()];
    for (at, fs) in sessions.iter().enumerate() {
        mkdir(fs, &format!("{at}"));
        fs.put(&format!("{at}/x"), &[at as u8; 5000]).unwrap();
        fs.fold(true).unwrap();
    }
    let open = |at: usize| {
        let path = format!("{}/x", 1 - at);
        sessions[at].open_at_root(&path, libc::O_RDONLY).unwrap()
    };
    let opened = [open(0), open(1)];
    for (at, fs) in sessions.iter().enumerate() {
        rm(fs, &format!("{at}/x"));
    }
    for (at, fs) in sessions.iter().enumerate() {
        link_open(fs, opened[at], &format!("{at}/y"));
        fs.close(opened[at]);
    }
    let third = pool.session();
    for at in 0..2 {
        assert_eq!(third.names(&format!("{at}")).unwrap(), ["y"]);
        let kept = third.get(&format!("{at}/y")).unwrap();
        assert_eq!(kept, [1 - at as u8; 5000]);
    }
}

/// The machine fails before anything of it is folded: whose arena comes first must not count.
#[test]
fn a_link_outlives_the_name_after_a_crash() {
    for linker_is_first in [false, true] {
        let mut pool = TestPool::new(POOL);
        let early = linker_is_first.then(|| linked_here_and_removed_there(&pool, false));
        let (one, two) = early.unwrap_or_else(|| {
            let (two, one) = (pool.session(), pool.session());
            mkdir(&two, "all");
            two.put("all/x", b"text").unwrap();
            two.fold(true).unwrap();
            mkdir(&one, "own");
            one.fold(true).unwrap();
            let opened = one.open_at_root("all/x", libc::O_RDONLY).unwrap();
            rm(&two, "all/x");
            link_open(&one, opened, "own/y");
            one.close(opened);
            (one, two)
        });
        pool.kill();
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let copied = folder.path().join("pool");
        let done = std::process::Command::new("cp")
            .args(["-a", "--sparse=always"])
            .args([&pool.path(), &copied])
            .status();
        assert!(done.unwrap().success());
        let after = TestPool::adopt(&copied);
        assert_linked(&after.session(), "after the crash");
        drop(after);
        pool.serve();
        assert_linked(&one, "the linker, with another controller");
        assert_linked(&two, "the remover, with another controller");
    }
}

/// A fold that takes the last name of what another session has named, whose fold takes the last name of what a third
/// has named, and so on, round through all of them: far more than one call of the controller's folds, or than folds
/// within each other find stack for, so that the rest waits for its turn.
#[test]
fn a_chain_of_names_that_outlive_others_is_folded() {
    // A session folds by itself what takes more pages than so many directories do, and so it does where the pool has
    // no room for the deltas of all of them.
    const SESSIONS: usize = 70;
    const EACH: usize = 40;
    let pool = TestPool::new(2 << 30);
    let sessions: Vec<_> = (0..SESSIONS).map(|_| pool.session()).collect();
    let length = SESSIONS * EACH;
    let of = |at: usize| &sessions[at % SESSIONS];
    for at in 0..length {
        mkdir(of(at), &format!("d{at}"));
        of(at).put(&format!("d{at}/x"), &at.to_le_bytes()).unwrap();
    }
    for session in &sessions {
        session.fold(true).unwrap();
    }
    let next = |at| (at + 1) % length;
    let open_next = |at| {
        let path = format!("d{}/x", next(at));
        of(at).open_at_root(&path, libc::O_RDONLY).unwrap()
    };
    let opened: Vec<_> = (0..length).map(open_next).collect();
    for at in 0..length {
        rm(of(at), &format!("d{at}/x"));
    }
    for (at, handle) in opened.into_iter().enumerate() {
        link_open(of(at), handle, &format!("d{at}/y"));
        of(at).close(handle);
    }
    let last = pool.session();
    for at in 0..length {
        assert_eq!(last.names(&format!("d{at}")).unwrap(), ["y"], "d{at}");
        let kept = last.get(&format!("d{at}/y")).unwrap();
        assert_eq!(kept, next(at).to_le_bytes(), "d{at}");
    }
}
