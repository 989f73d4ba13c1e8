//! What `statfs` tells of the room that is left: to whoever has written or removed, and to others.

use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, FileSystem};

/// So large that nobody gives segments back: there is plenty.
const POOL: u64 = 256 << 20;
const MUCH: usize = 8 << 20;
const PAGES: u64 = MUCH as u64 / 4096;
/// A few segments of such a pool, and what a file's index takes.
const BOUND: u64 = 3 * 512;

fn free(session: &FileSystem) -> u64 {
    session.statistics().expect("statistics").pages_free
}

/// What a session has written is used at once, for itself to the page; what it has removed is free for
/// itself at once, and for others when it has ended.
#[test]
fn what_is_written_counts_as_used_and_what_is_removed_does_not() {
    let pool = TestPool::new(POOL);
    let (one, two) = (pool.session(), pool.session());
    one.put("small", b"a first segment").expect("put");
    let (one_before, two_before) = (free(&one), free(&two));
    one.put("big", &vec![7; MUCH]).expect("put");
    // Others before the session itself, which folds: what they see is what was granted.
    let used = two_before - free(&two);
    assert!(
        (PAGES - 512..PAGES + BOUND).contains(&used),
        "{used} of {PAGES}"
    );
    let used = one_before - free(&one);
    assert!(
        (PAGES..PAGES + 64).contains(&used),
        "{used} pages of {PAGES}"
    );
    // Overwritten in place or not, it is as much as before.
    one.put("big", &vec![8; MUCH]).expect("put");
    let used = one_before - free(&one);
    assert!(
        (PAGES..PAGES + 64).contains(&used),
        "{used} pages of {PAGES}"
    );

    one.unlink(At::Root, b"big", 0).expect("unlink");
    let left = one_before.saturating_sub(free(&one));
    assert!(
        left < 64,
        "{left} pages are still used for who removed them"
    );
    let kept = free(&one) - free(&two);
    assert!(
        kept >= PAGES,
        "{kept} pages of another's segments are free for others"
    );
    one.disconnect().expect("disconnect");
    let left = two_before.saturating_sub(free(&two));
    assert!(
        left < 64,
        "{left} pages are still used when their session has ended"
    );
    assert_eq!(pool.violations(), "");
}

/// Who asks for the numbers of the last fold causes none.
#[test]
fn the_last_folds_numbers_are_told_without_another() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("small", b"a first segment").expect("put");
    let before = free(&session);
    session.put("big", &vec![7; MUCH]).expect("put");
    let told = session.statistics_of_fold().pages_free;
    let used = before.saturating_sub(told);
    assert!(used < PAGES / 2, "{used} pages: there was a fold");
    let used = before - free(&session);
    assert!(used >= PAGES, "{used} pages of {PAGES}");
    assert_eq!(session.statistics_of_fold().pages_free, free(&session));
    assert_eq!(pool.violations(), "");
}

/// What a session holds free of its own is room for it, in a pool that has no other.
#[test]
fn room_of_its_own_is_enough_for_fallocate() {
    let pool = TestPool::new(64 << 20);
    let session = pool.session();
    let much = free(&session) / 4 * 3;
    let bytes = much * 4096;
    let flags = libc::O_CREAT | libc::O_RDWR;
    let handle = session.open_at_root("f", flags).expect("open");
    // What a hole frees is not given back.
    let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    for _ in 0..3 {
        session.allocate(handle, 0, 0, bytes).expect("allocate");
        let left = free(&session);
        assert!(left < much, "{left} pages are free, {much} are filled");
        session.allocate(handle, hole, 0, bytes).expect("punch");
    }
    assert!(free(&session) >= much);
    assert_eq!(pool.violations(), "");
}

/// A file that grows is folded by parts while its owner writes on, and asks nobody for that: whoever needs it then, or the
/// end of the session, does not wait for all of it.
#[test]
fn a_file_that_grows_is_folded_ahead() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("small", b"a first segment").expect("put");
    let flags = libc::O_CREAT | libc::O_WRONLY;
    let handle = session.open_at_root("large", flags).expect("open");
    let before = free(&session);
    let bytes = vec![7; 1 << 20];
    // Parts of 16 MiB, where tests run.
    for _ in 0..40 {
        assert_eq!(session.write(handle, &bytes, None), Ok(bytes.len()));
    }
    let since = std::time::Instant::now();
    while before - session.statistics_of_fold().pages_free < 2 * 4096 {
        let waited = since.elapsed();
        assert!(waited < std::time::Duration::from_secs(20), "never folded");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let other = pool.session();
    let size = other.stat(At::Root, b"large", 0).expect("stat").size;
    assert_eq!(size, 40 << 20);
    assert_eq!(pool.violations(), "");
}
