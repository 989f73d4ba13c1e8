//! What a forked child may do to its parent's session: nothing.

use crate::POOL;
use arck_testkit::{Shorthand, TestPool, connect_as};
use arckfs::{At, FileSystem};

/// The number of the calling thread's place in the session.
fn place(fs: &FileSystem) -> u16 {
    let thread = fs.session().thread().expect("a place");
    thread.slot().holder().thread
}

/// A child of the calling thread that does nothing, but for what libc does when it ends.
fn child_ends(end: fn()) -> i32 {
    // SAFETY: the child ends itself.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        end();
        // SAFETY: ends the child, where that has not.
        unsafe { libc::_exit(99) };
    }
    let mut status = -1;
    // SAFETY: waits for the child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// A child that did nothing ran the destructors of its thread's variables when it ended, as libc does,
/// and so freed its parent's place in the shared memory of the group: the next thread, of this process or
/// another, had the same.
pub fn who_forks_keeps_its_place() {
    let pool = TestPool::new(POOL);
    let fs = connect_as(&pool.path(), b"g");
    fs.put("file", b"before").expect("put");
    // SAFETY: ends the child, with all that libc does then.
    let exits: fn() = || unsafe { libc::exit(3) };
    // In a thread: its end runs the same destructors.
    let returns: fn() = || {
        let thread = std::thread::spawn(|| ());
        thread.join().expect("a thread");
        // SAFETY: as above.
        unsafe { libc::exit(3) }
    };
    for end in [exits, returns] {
        let own = place(&fs);
        assert_eq!(libc::WEXITSTATUS(child_ends(end)), 3);
        std::thread::scope(|threads| {
            let other = threads.spawn(|| {
                fs.put("of another thread", b"x").expect("put");
                // The child of a thread that is not the first one.
                assert_eq!(libc::WEXITSTATUS(child_ends(end)), 3);
                let number = place(&fs);
                let third = std::thread::scope(|more| more.spawn(|| place(&fs)).join());
                assert_ne!(number, third.expect("a thread"));
                number
            });
            let other = other.join().expect("a thread");
            assert_ne!(own, other, "two threads in one place");
        });
        assert_eq!(own, place(&fs));
        let operation = &fs.session().control().threads[usize::from(own)];
        assert!(
            operation.is_of(fs.session().member()),
            "its operations are nobody's"
        );
    }
    fs.stat(At::Root, b"file", 0).expect("there");
    assert_eq!(pool.violations(), "");
}
