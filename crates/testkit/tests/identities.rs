//! Threads that find themselves in a session of who the process was: an error at once, and no answer that is
//! waited for in vain. (As root: threads become somebody else.)
//!
//! # Regression
//! `setuid` in a program of several threads took 30 or 60 s, one time in four on a busy machine: the controller
//! takes no word from who is not the one that connected, and gave no answer; and threads that were late in a
//! session that had been ended waited for answers in memory that nobody wrote any more.

use arck_libfs_kit::session::connect_socket;
use arck_protocol::socket::{self, Answer, Call};
use arck_testkit::{Shorthand, TestPool};
use arckfs::{Errno, Failure};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(3);

/// Runs it in a thread of its own that is another user: of what the kernel tells of who sends, the real ids count.
fn as_somebody_else<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: not by libc, which would change all threads: this one alone, which ends.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, 1234, -1, -1) };
            assert_eq!(
                changed,
                0,
                "run as root: {}",
                std::io::Error::last_os_error()
            );
            let began = Instant::now();
            let result = what();
            assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
            result
        });
        thread.join().expect("the thread")
    })
}

#[test]
fn a_session_is_not_for_who_the_process_is_now() {
    let pool = TestPool::new(64 << 20);
    let session = pool.session();
    session.put("file", b"text").unwrap();
    let handle = session.open_at_root("file", libc::O_RDWR).unwrap();
    let refused = as_somebody_else(|| session.receive_lock_file(handle).map(drop));
    assert_eq!(refused, Err(Errno::IO));
    assert!(session.receive_lock_file(handle).is_ok());
    session.close(handle);
    assert_eq!(session.get("file").unwrap(), b"text");
}

#[test]
fn the_controller_answers_the_process_that_connected() {
    let pool = TestPool::new(64 << 20);
    let socket = connect_socket(&pool.path()).unwrap();
    let ask = || socket::call(&socket, &Call::Status).unwrap().0;
    assert!(matches!(ask(), Answer::Status(_)));
    let refused = as_somebody_else(ask);
    let refusal = Errno::PERM.raw_os_error();
    assert!(
        matches!(refused, Answer::Error(errno, _) if errno == refusal),
        "{refused:?}"
    );
    assert!(matches!(ask(), Answer::Status(_)));
}

#[test]
fn who_is_late_in_a_session_that_has_ended_is_told_so() {
    let pool = TestPool::new(64 << 20);
    let session = pool.session();
    session.put("file", b"text").unwrap();
    session.end();
    let began = Instant::now();
    for name in ["file", "other"] {
        let put = session.put(name, b"more");
        assert!(matches!(put, Err(Failure::Errno(_))), "{put:?}");
        assert!(session.get(name).is_err());
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}
