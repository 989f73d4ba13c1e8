//! What programs store through maps is flushed when they say so, by `msync` or `fsync`, of all pages that it may have
//! gone to and of few others; and never where stores are not flushed at all. A trace tells.

use arck_controller::Options;
use arck_pm::record::{EventKind, Recording};
use arck_pm::{PersistPolicy, set_policy};
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, FileSystem, Handle, MapRequest};
use std::collections::BTreeMap;

const PAGE: usize = 4096;
const PAGES: usize = 600;

/// A writable shared map of the whole file.
fn map(session: &FileSystem, handle: Handle) -> usize {
    let request = MapRequest {
        address: 0,
        length: PAGES * PAGE,
        protection: libc::PROT_READ | libc::PROT_WRITE,
        flags: libc::MAP_SHARED,
        offset: 0,
    };
    // SAFETY: where the kernel likes.
    unsafe { session.map(handle, &request).unwrap() }
}

fn store(address: usize, page: usize) {
    // SAFETY: a writable map of the test's own.
    unsafe { ((address + page * PAGE) as *mut u8).write_volatile(b's') }
}

/// Pages all of whose lines were flushed since this was asked last.
fn pages_flushed(recording: &Recording) -> usize {
    let mut lines = BTreeMap::new();
    for event in recording.take() {
        if let EventKind::Flush { line } = event.kind {
            *lines.entry(line / PAGE as u64).or_insert(0) += 1;
        }
    }
    lines.values().filter(|&&count| count == PAGE / 64).count()
}

/// Whose pages they are: the session's, or, where others may write the file, all sessions' together.
#[test]
fn what_was_stored_is_flushed_when_it_is_said_and_not_otherwise() {
    let recording = Recording::start().unwrap();
    for (mode, policy, flushed) in [
        (0o644, PersistPolicy::Flush, 1),
        (0o644, PersistPolicy::NoFlush, 0),
        (0o666, PersistPolicy::Flush, 1),
        (0o666, PersistPolicy::NoFlush, 0),
    ] {
        let options = Options {
            shared: true,
            ..Options::default()
        };
        let pool = TestPool::with_options(64 << 20, options);
        let session = pool.session();
        session.put("f", &vec![b'f'; PAGES * PAGE]).unwrap();
        session.change_mode(At::Root, b"f", mode, 0).unwrap();
        let handle = session.open_at_root("f", libc::O_RDWR).unwrap();
        session.sync(handle).unwrap();
        set_policy(policy);
        let told = |what: &str, pages: usize| {
            assert_eq!(
                pages_flushed(&recording),
                pages * flushed,
                "{what}, {policy:?}, {mode:o}"
            );
        };
        let _ = pages_flushed(&recording);
        session.sync(handle).unwrap();
        told("fsync of what was written by calls", 0);

        let address = map(&session, handle);
        let _ = pages_flushed(&recording);
        store(address, 5);
        let sync = |at: usize, length: usize, flags: i32| {
            // SAFETY: changes nothing.
            unsafe { session.sync_maps(address + at, length, flags).unwrap() }
        };
        sync(4 * PAGE, 3 * PAGE, libc::MS_SYNC);
        told("msync of three pages", 3);
        sync(4 * PAGE, 2 * PAGE + 1, libc::MS_ASYNC);
        told("msync of two pages and a byte", 3);
        sync(0, PAGES * PAGE, libc::MS_INVALIDATE);
        told("msync that says nothing of storing", 0);
        session.sync(handle).unwrap();
        told("fsync", PAGES);
        session.sync_all_maps().unwrap();
        told("sync", PAGES);
        store(address, 7);
        session.sync(handle).unwrap();
        told("fsync, while it is mapped", PAGES);

        store(address, 9);
        // SAFETY: mapped above, and not used below.
        unsafe { session.unmap(address, PAGES * PAGE).unwrap() };
        let _ = pages_flushed(&recording);
        session.sync(handle).unwrap();
        told("fsync, when the map is gone", PAGES);
        session.sync(handle).unwrap();
        told("fsync, when all is flushed", 0);
        session.sync_all_maps().unwrap();
        told("sync, without maps", 0);

        set_policy(PersistPolicy::Flush);
        let content = session.get("f").unwrap();
        assert_eq!(
            [content[5 * PAGE], content[7 * PAGE], content[9 * PAGE]],
            *b"sss"
        );
        session.close(handle);
        session.disconnect().unwrap();
        assert_eq!(pool.violations(), "");
    }
}
