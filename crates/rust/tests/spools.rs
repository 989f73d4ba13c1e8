//! Queues whose writes are durable when they are queued, on the files of a pool.

use arck::queues::{Closing, QueueOptions, Queues, Replayed, Request, Spool};
use arck::{File, Files, Pool, errno};
use arck_test_pool::TestPool;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

const SIZE: u64 = 16 << 20;
const NONE: Replayed = Replayed {
    requests: 0,
    bytes: 0,
    dropped: 0,
};

fn served() -> (TestPool, Pool) {
    let served = TestPool::new(64 << 20);
    let pool = Pool::new(served.path());
    (served, pool)
}

fn opened(files: &Files, path: &str) -> File {
    let mut options = files.options();
    options.read(true).write(true).create(true);
    options.open(path).expect("opened")
}

/// Kills this process, in the middle of whatever its threads do: nothing is dropped.
fn die() {
    // SAFETY: ends the process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Runs something in a child that dies of it.
fn killed(work: impl FnOnce()) {
    // SAFETY: the child opens what it uses itself, and dies.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: a child of this process, which nobody else waits for.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFSIGNALED(status), "{status:#x}");
}

fn deep() -> QueueOptions {
    QueueOptions {
        depth: 2048,
        ..QueueOptions::default()
    }
}

/// A program is killed with a thousand requests queued, on two files: all of them are done, in their order.
#[test]
fn a_program_is_killed_with_requests_queued_durably() {
    const REQUESTS: u64 = 1000;
    const LENGTH: usize = 4096;
    let (served, pool) = served();
    for turn in 0..3_u8 {
        killed(|| {
            let files = pool.files().expect("a session");
            let (spool, replayed) = files.spool("spool", SIZE).expect("a spool");
            assert_eq!(replayed, NONE);
            let queues = Queues::new();
            let of = |path: &str| {
                let file = opened(&files, path);
                file.spooled_queue(&queues, deep(), &spool, path)
                    .expect("a queue")
            };
            let (blocks, lines) = (of("blocks"), of("lines"));
            for number in 0..REQUESTS {
                // The same places again and again: the last one stays.
                let bytes = vec![number as u8 ^ turn; LENGTH];
                let request = Request::write(number % 100 * LENGTH as u64, bytes);
                blocks.submit(request).expect("taken");
                if number % 10 == 0 {
                    let line = format!("{turn} {number}\n");
                    lines.submit(Request::append(line)).expect("taken");
                }
            }
            die();
        });
        let files = pool.files().expect("a session");
        let (spool, replayed) = files.spool("spool", SIZE).expect("a spool");
        println!("{replayed:?}");
        assert_eq!(replayed.dropped, 0);
        let found = files.read("blocks").expect("read");
        assert_eq!(found.len(), 100 * LENGTH);
        for (place, block) in found.chunks(LENGTH).enumerate() {
            let last = (REQUESTS - 100 + place as u64) as u8 ^ turn;
            assert!(block.iter().all(|&byte| byte == last), "block {place}");
        }
        let lines = files.read_to_string("lines").expect("read");
        let expected: String = (0..=turn)
            .flat_map(|turn| {
                (0..REQUESTS)
                    .step_by(10)
                    .map(move |number| format!("{turn} {number}\n"))
            })
            .collect();
        assert_eq!(lines, expected);
        drop(spool);
        // What was done is not done again.
        let (_, replayed) = files.spool("spool", SIZE).expect("a spool");
        assert_eq!(replayed, NONE);
    }
    assert_eq!(served.violations(), "");
}

/// Queues the name of each file at its beginning, and dies before that is done, nearly always.
fn queue_and_die(pool: &Pool, paths: &[&str], before_the_end: impl FnOnce(&Files)) {
    killed(|| {
        let files = pool.files().expect("a session");
        let (spool, _) = files.spool("spool", SIZE).expect("a spool");
        let queues = Queues::with_workers(std::num::NonZeroUsize::MIN);
        // The one worker is busy with a long write, unless the system keeps this thread from going on.
        let long = opened(&files, "long")
            .queue(&queues, deep())
            .expect("a queue");
        long.submit(Request::write(0, vec![1; 16 << 20]))
            .expect("taken");
        while files.metadata("long").expect("told").len() == 0 {
            std::thread::yield_now();
        }
        for path in paths {
            let queue = opened(&files, path).spooled_queue(&queues, deep(), &spool, path);
            let queue = queue.expect("a queue");
            let of = path.as_bytes();
            queue.submit(Request::write(0, of)).expect("taken");
            // To be dropped it would have to be done.
            std::mem::forget(queue);
        }
        before_the_end(&files);
        die();
    });
}

#[test]
fn files_that_were_moved_are_found_and_those_that_are_gone_are_dropped() {
    let (served, pool) = served();
    let files = pool.files().expect("a session");
    files.create_dir_all("a/b").expect("made");
    for name in ["moved", "removed", "replaced", "stays"] {
        files.write(name, "before").expect("written");
    }
    queue_and_die(&pool, &["moved", "removed", "replaced", "stays"], |files| {
        files.rename("moved", "a/b/elsewhere").expect("moved");
        files.remove_file("removed").expect("removed");
        files.rename("replaced", "a/old").expect("moved");
        files.write("replaced", "new").expect("written");
    });
    let (_spool, replayed) = files.spool("spool", SIZE).expect("a spool");
    let read = |path: &str| files.read_to_string(path).expect("read");
    assert_eq!(read("stays"), "stayse");
    assert_eq!(read("a/b/elsewhere"), "movede");
    assert_eq!(read("a/old"), "replaced");
    assert_eq!(read("replaced"), "new");
    assert!(!files.try_exists("removed").expect("looked"));
    // Unless the worker came to it.
    assert!(
        replayed.dropped <= 1 && replayed.requests <= 3,
        "{replayed:?}"
    );
    println!("{replayed:?}");
    assert_eq!(served.violations(), "");
}

/// A file whose last name this very session has taken away, which somebody still has open or not, is gone; a spool that was being made when the
/// program was killed is made anew.
#[test]
fn what_has_no_name_any_more_is_dropped() {
    for is_open in [false, true] {
        let (_served, pool) = served();
        let files = pool.files().expect("a session");
        files.write("f", "before").expect("written");
        files
            .write("spool", "ARCKMAKE, and no more")
            .expect("written");
        files
            .set_permissions("spool", &Permissions::from_mode(0o600))
            .expect("set");
        queue_and_die(&pool, &["f", "g"], |_| {});
        let open = is_open.then(|| opened(&files, "f"));
        files.remove_file("f").expect("removed");
        let (_spool, replayed) = files.spool("spool", SIZE).expect("a spool");
        // Unless the worker came to them.
        assert!(
            replayed.dropped <= 1 && replayed.requests <= 1,
            "{replayed:?}"
        );
        assert_eq!(files.read_to_string("g").expect("read"), "g");
        assert!(!files.try_exists("f").expect("looked"));
        drop(open);
    }
}

/// A spool is its parent's in a forked child, which could wait for its locks for ever; the parent's goes on.
#[test]
fn a_forked_child_has_no_spool() {
    let (_served, pool) = served();
    let files = pool.files().expect("a session");
    let (spool, _) = files.spool("spool", SIZE).expect("a spool");
    let queues = Queues::new();
    let open = |files: &Files, queues: &Queues| {
        opened(files, "f").spooled_queue(queues, deep(), &spool, "f")
    };
    let queue = open(&files, &queues).expect("a queue");
    killed(|| {
        let files = pool.files().expect("a session");
        let refused = open(&files, &Queues::new()).map(drop).unwrap_err();
        assert_eq!(errno(&refused), Some(libc::ESTALE));
        assert!(queue.submit(Request::append("child")).is_err());
        // Nor does it let go of the lock.
        let locked = files.spool("spool", SIZE).map(drop).unwrap_err();
        assert_eq!(errno(&locked), Some(libc::EBUSY));
        die();
    });
    queue.submit(Request::append("parent")).expect("taken");
    queue.close(Closing::Finish);
    assert_eq!(files.read_to_string("f").expect("read"), "parent");
}

#[test]
fn what_is_no_spool_of_ours_is_refused() {
    let (_served, pool) = served();
    let files = pool.files().expect("a session");
    let number = |of: &Files, path: &str| errno(&of.spool(path, SIZE).map(drop).unwrap_err());
    files.write("text", "some text").expect("written");
    files
        .set_permissions("text", &Permissions::from_mode(0o600))
        .expect("set");
    assert_eq!(number(&files, "text"), Some(libc::EBADMSG));
    assert_eq!(files.read_to_string("text").expect("read"), "some text");
    files.write("shared", "").expect("written");
    files
        .set_permissions("shared", &Permissions::from_mode(0o622))
        .expect("set");
    assert_eq!(number(&files, "shared"), Some(libc::EPERM));
    // One that does not come about leaves nothing.
    let small = files.spool("small", 1).map(drop).unwrap_err();
    assert_eq!(errno(&small), Some(libc::EINVAL));
    assert!(!files.try_exists("small").expect("looked"));
    let large = files.spool("large", 1 << 30).map(drop).unwrap_err();
    assert_eq!(errno(&large), Some(libc::ENOSPC));
    assert_eq!(files.metadata("large").expect("told").len(), 0);
    let (spool, _) = files.spool("spool", SIZE).expect("a spool");
    assert_eq!(
        files.metadata("spool").expect("told").permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(number(&files, "spool"), Some(libc::EBUSY));
    assert_eq!(
        number(&pool.files().expect("a session"), "spool"),
        Some(libc::EBUSY)
    );
    // A queue's file is the one of its path, and not the spool.
    let queues = Queues::new();
    let file = opened(&files, "f");
    let queue = |path: &str| file.spooled_queue(&queues, deep(), &spool, path).map(drop);
    queue("f").expect("a queue");
    queue("/f").expect("a queue");
    assert_eq!(errno(&queue("text").unwrap_err()), Some(libc::EINVAL));
    assert_eq!(errno(&queue("none").unwrap_err()), Some(libc::ENOENT));
    let own = opened(&files, "spool").spooled_queue(&queues, deep(), &spool, "spool");
    assert_eq!(errno(&own.map(drop).unwrap_err()), Some(libc::EINVAL));
    // It is open as long as a queue has it.
    let kept = file
        .spooled_queue(&queues, deep(), &spool, "f")
        .expect("a queue");
    drop(spool);
    assert_eq!(number(&files, "spool"), Some(libc::EBUSY));
    kept.submit(Request::append("done")).expect("taken");
    kept.close(Closing::Finish);
    drop(kept);
    let (_spool, replayed) = files.spool("spool", SIZE).expect("a spool");
    assert_eq!(replayed, NONE);
    assert_eq!(files.read_to_string("f").expect("read"), "done");
}

/// One that was filled in another pool is not done in this one, and not lost either.
#[test]
fn a_spool_of_another_pool_is_refused() {
    for _ in 0..50 {
        let (_one, pool) = served();
        let (_other, others) = served();
        queue_and_die(&pool, &["f"], |_| {});
        let (files, there) = (
            pool.files().expect("a session"),
            others.files().expect("a session"),
        );
        let bytes = files.read("spool").expect("read");
        there.write("spool", bytes).expect("written");
        there
            .set_permissions("spool", &Permissions::from_mode(0o600))
            .expect("set");
        there.write("f", "mine").expect("written");
        let told = there.spool("spool", SIZE).map(drop);
        let (_spool, replayed): (Spool, _) = files.spool("spool", SIZE).expect("a spool");
        assert_eq!(files.read_to_string("f").expect("read"), "f");
        assert_eq!(there.read_to_string("f").expect("read"), "mine");
        // The worker may have come to it.
        if replayed.requests == 1 {
            let refused = told.unwrap_err();
            assert_eq!(errno(&refused), Some(libc::EXDEV), "{refused}");
            return;
        }
        told.expect("nothing was left");
    }
    panic!("nothing was ever left in the spool");
}
