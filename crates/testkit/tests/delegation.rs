//! Large accesses that are delegated (OdinFS; Trio, section 4.5), or done by few at once: the same bytes, errors and lengths as without,
//! whoever copies.
//!
//! Invariant: nothing else in this process has delegates; one test does everything.

use arck_libfs_kit::memory::delegation;
use arck_libfs_kit::memory::medium::{Delegated, Way};
use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, Errno, FileSystem, Handle, Threads};
use std::sync::Barrier;

const THREADS: u64 = 6;
/// Bytes of the largest file.
const LARGEST: u64 = 3 << 20;

fn open(session: &FileSystem, path: &str) -> Handle {
    let flags = libc::O_CREAT | libc::O_RDWR;
    let handle = session.open(At::Root, path.as_bytes(), flags, 0o600);
    handle.expect("opened")
}

/// Random writes, reads and cuts of a file of its own, beside a model.
fn beside_a_model(session: &FileSystem, thread: u64) {
    let handle = open(session, &format!("/file-{thread}"));
    let mut random = Random::new(thread + 1);
    let mut known: Vec<u8> = Vec::new();
    for turn in 0..150 {
        let what = format!("thread {thread}, turn {turn}");
        // Below what is delegated, above it, across pages, over several stripes of a medium.
        let most = *random.pick(&[200, 5000, 70_000, 1 << 20]);
        let length = 1 + random.below(most) as usize;
        let at = random.below(LARGEST - length as u64);
        match random.below(8) {
            0 => {
                let size = random.below(LARGEST);
                session.truncate_handle(handle, size).expect("cut");
                known.resize(size as usize, 0);
            }
            1..=4 => {
                let bytes = random.bytes(length);
                assert_eq!(
                    session.write(handle, &bytes, Some(at)),
                    Ok(length),
                    "{what}"
                );
                known.resize(known.len().max(at as usize + length), 0);
                known[at as usize..at as usize + length].copy_from_slice(&bytes);
            }
            _ => {
                let mut read = vec![0; length];
                let count = session.read(handle, &mut read, Some(at)).expect("read");
                let end = known.len().min(at as usize + length);
                let expected = known.get(at as usize..end).unwrap_or(&[]);
                assert!(read[..count] == *expected, "{what}: {count} bytes at {at}");
            }
        }
    }
    session.close(handle);
}

/// A buffer of which a part is not there: what was there is written, or read, as without delegates.
fn bad_buffers(session: &FileSystem) {
    const HALF: usize = 64 * 4096;
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("half", flags).expect("a memory file");
    rustix::fs::ftruncate(&file, HALF as u64).expect("its length");
    // SAFETY: a new mapping, of which the second half is behind the file's end.
    let memory = unsafe {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let (protection, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        libc::mmap(std::ptr::null_mut(), 2 * HALF, protection, shared, fd, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    // SAFETY: it is handed to what is to look at it guarded, and only its first half is looked at here.
    let buffer = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u8>(), 2 * HALF) };
    buffer[..HALF].fill(7);
    let handle = open(session, "/bad");
    assert_eq!(session.write(handle, buffer, Some(100)), Ok(HALF));
    assert_eq!(
        session.stat_handle(handle).expect("there").size,
        100 + HALF as u64
    );
    assert_eq!(
        session.write(handle, &buffer[HALF..], Some(0)),
        Err(Errno::FAULT)
    );
    let whole = vec![9; 2 * HALF];
    assert_eq!(session.write(handle, &whole, Some(0)), Ok(2 * HALF));
    assert_eq!(session.read(handle, buffer, Some(0)), Ok(HALF));
    assert!(buffer[..HALF].iter().all(|&byte| byte == 9));
    assert_eq!(
        session.read(handle, &mut buffer[HALF..], Some(0)),
        Err(Errno::FAULT)
    );
    // Nothing of what lies behind what is not there is written.
    let before = session.get("/bad").expect("read");
    assert_eq!(
        session.write(handle, &buffer[HALF - 5000..], Some(0)),
        Ok(5000)
    );
    let after = session.get("/bad").expect("read");
    assert!(after[5000..] == before[5000..]);
    session.close(handle);
    // SAFETY: as mapped above.
    unsafe { libc::munmap(memory, 2 * HALF) };
}

/// Where the pool is full a write ends where it does, and no page is lost or another's.
fn until_it_is_full(session: &FileSystem) {
    let handle = open(session, "/full");
    let bytes = vec![5; 1 << 20];
    let mut written = 0;
    let stopped = loop {
        match session.write(handle, &bytes, Some(written)) {
            Ok(count) => written += count as u64,
            Err(errno) => break errno,
        }
    };
    assert_eq!(stopped, Errno::NOSPC);
    assert_eq!(session.stat_handle(handle).expect("there").size, written);
    let mut read = vec![0; 1 << 20];
    let mut at = 0;
    while at < written {
        let count = session.read(handle, &mut read, Some(at)).expect("read");
        assert!(
            count != 0 && read[..count].iter().all(|&byte| byte == 5),
            "at {at}"
        );
        at += count as u64;
    }
    session.close(handle);
    session.unlink(At::Root, b"/full", 0).expect("unlinked");
}

#[test]
fn what_few_do_is_as_what_all_do() {
    as_without(|session| {
        assert_eq!(session.delegate(0), Err(Errno::INVAL));
        session.delegate(3).expect("delegates");
        assert!(delegation::is_started());
    });
    as_without(|session| {
        assert_eq!(session.at_once(Threads::Number(0)), Err(Errno::INVAL));
        assert_eq!(session.at_once(Threads::Number(65)), Err(Errno::INVAL));
        for nothing in [Threads::Off, Threads::Auto] {
            assert_eq!(session.at_once(nothing), Ok(()));
            assert!(!delegation::is_wanted(Way::Write, 1 << 20));
        }
        assert_eq!(session.at_once(Threads::Number(2)), Ok(()));
        assert!(delegation::is_wanted(Way::Write, 4096));
        assert!(!delegation::is_wanted(Way::Write, 4095));
        assert!(!delegation::is_wanted(Way::Read, 1 << 20));
        // Reads, too.
        let few = Delegated {
            threads: 2,
            writes_from: 256,
            reads_from: 4096,
        };
        let gates = session.session().gates().expect("gates");
        delegation::at_once(gates, &few).expect("a gate");
    });
}

fn as_without(begin: fn(&FileSystem)) {
    let pool = TestPool::new(128 << 20);
    let session = pool.session();
    begin(&session);
    let barrier = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (session, barrier) = (&session, &barrier);
            scope.spawn(move || {
                barrier.wait();
                beside_a_model(session, thread);
            });
        }
    });
    bad_buffers(&session);
    until_it_is_full(&session);
    session.fold(false).expect("folded");
    // Another session, without any, sees the same.
    let seen: Vec<Vec<u8>> = (0..THREADS)
        .map(|n| session.get(&format!("/file-{n}")).expect("read"))
        .collect();
    delegation::stop();
    let other = pool.session();
    for (number, seen) in (0..).zip(&seen) {
        assert!(
            other.get(&format!("/file-{number}")).expect("read") == *seen,
            "{number}"
        );
    }
    drop((session, other));
    assert_eq!(pool.violations(), "");
}
