//! What a forked child does not have: the memory that its parent has mapped here.
//!
//! What is mapped by [`Mapping`](crate::Mapping) and [`AddressSpace`](crate::AddressSpace) is a right of
//! the process that mapped it, and a child may become somebody else before it does anything. So the
//! kernel leaves it out of what it copies (MADV_DONTFORK): there the addresses are vacant. That
//! is said after each mapping, and whoever forks waits until it has been ([`hold`]).
//!
//! # Invariants
//! * Between a mapping and its advice no fork happens in a process that [`hold`]s before each.
//! * Nobody waits inside [`mapping`] for anything that one who forks may hold.

use rustix::mm::{Advice, madvise};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How many threads are inside [`mapping`]; with the top bit: a fork is under way.
static STATE: AtomicU32 = AtomicU32::new(0);
const FORKING: u32 = 1 << 31;

/// Runs what maps memory and keeps it from children, while nobody forks. Short; not from inside itself.
pub fn mapping<R>(work: impl FnOnce() -> R) -> R {
    struct Leaves;
    impl Drop for Leaves {
        fn drop(&mut self) {
            STATE.fetch_sub(1, Ordering::Release);
        }
    }
    loop {
        let state = STATE.load(Ordering::Relaxed);
        if state & FORKING != 0 {
            rustix::thread::sched_yield();
            continue;
        }
        let (new, old) = (Ordering::Acquire, Ordering::Relaxed);
        if STATE
            .compare_exchange_weak(state, state + 1, new, old)
            .is_ok()
        {
            break;
        }
    }
    let _leaves = Leaves;
    work()
}

/// The thread that holds; 0: none.
static HOLDER: AtomicU32 = AtomicU32::new(0);

/// Before a fork: nobody maps from here on until [`let_go`]. Waits for those who are at it, and for others
/// who fork. Not from inside [`mapping`]. A thread that holds already goes on.
pub fn hold() {
    let own = thread();
    if HOLDER.load(Ordering::Relaxed) == own {
        return;
    }
    while STATE.fetch_or(FORKING, Ordering::Acquire) & FORKING != 0 {
        rustix::thread::sched_yield();
    }
    while STATE.load(Ordering::Acquire) != FORKING {
        rustix::thread::sched_yield();
    }
    HOLDER.store(own, Ordering::Relaxed);
}

/// After the fork, in the process that forked; nothing of a thread that does not hold.
pub fn let_go() {
    if HOLDER.load(Ordering::Relaxed) == thread() {
        in_child();
    }
}

/// And in its child, whose thread has another number. There is one thread.
pub fn in_child() {
    HOLDER.store(0, Ordering::Relaxed);
    STATE.fetch_and(!FORKING, Ordering::Release);
}

/// What libc is asked once in a process to run around forks (`pthread_atfork`). A child that was forked while another
/// thread was asking asks itself, where a [`std::sync::Once`] would have it wait for a thread that it does not have. It may be the second
/// one that asks, if that fork fell between libc's noting it and its return: so what is asked does no harm if it is run twice for a fork.
pub struct Handlers {
    is_registered: AtomicBool,
    /// The process, a thread of which is asking; 0: none has.
    by: AtomicU32,
}

impl Handlers {
    #[expect(
        clippy::new_without_default,
        reason = "there is one for a set of functions, in a static"
    )]
    pub const fn new() -> Handlers {
        Handlers {
            is_registered: AtomicBool::new(false),
            by: AtomicU32::new(0),
        }
    }

    /// Asks, or waits for another thread of this process that does.
    pub fn register(&self, ask: impl FnOnce()) {
        let own = std::process::id();
        loop {
            if self.is_registered.load(Ordering::Acquire) {
                return;
            }
            let by = self.by.load(Ordering::Relaxed);
            let (new, old) = (Ordering::Acquire, Ordering::Relaxed);
            if by == own || self.by.compare_exchange(by, own, new, old).is_err() {
                rustix::thread::sched_yield();
                continue;
            }
            ask();
            self.is_registered.store(true, Ordering::Release);
            return;
        }
    }

    /// What runs before a fork says so: the child has what libc was asked, even if who asked has not been told yet.
    pub fn are_running(&self) {
        self.is_registered.store(true, Ordering::Release);
    }
}

/// The number of this thread in its process.
fn thread() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
}

/// No child has this range from now on, whatever it becomes. Where the kernel refuses (it has no room to
/// split what is mapped), nothing is mapped there that it does not have.
///
/// # Safety
/// The range is a whole mapping of the caller's.
///
/// # Errors
/// ENOMEM.
pub unsafe fn keep_from_children(base: *mut u8, len: usize) -> rustix::io::Result<()> {
    // SAFETY: it changes nothing for this process.
    unsafe { madvise(base.cast(), len, Advice::LinuxDontFork) }
}

/// The contrary: a map of the program's own.
///
/// # Safety
/// The range is mapped and the caller's.
///
/// # Errors
/// ENOMEM.
pub unsafe fn give_to_children(base: *mut u8, len: usize) -> rustix::io::Result<()> {
    // SAFETY: it changes nothing for this process.
    unsafe { madvise(base.cast(), len, Advice::LinuxDoFork) }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::mapping::PAGE;
    use crate::{AddressSpace, MapOptions, Mapping, placing};
    use std::sync::atomic::AtomicBool;

    /// Whether an address is mapped, asked of the kernel.
    fn is_mapped(address: *const u8) -> bool {
        // SAFETY: mincore only looks; the vector has a byte for the page.
        unsafe { libc::mincore(address.cast_mut().cast(), PAGE, [0u8; 1].as_mut_ptr()) == 0 }
    }

    /// What a child finds, as its exit status.
    fn in_child(look: impl FnOnce() -> i32) -> i32 {
        hold();
        // SAFETY: the child looks and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let found = look();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(found) };
        }
        let_go();
        let mut status = -1;
        // SAFETY: waits for the child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "{status:x}");
        libc::WEXITSTATUS(status)
    }

    /// A child that is forked while another thread is asking does not wait for that thread, and asks once more unless
    /// libc already runs what was asked.
    #[test]
    fn a_child_does_not_wait_for_who_is_asking() {
        for is_running in [false, true] {
            let handlers = Handlers::new();
            let (asking, is_asking) = std::sync::mpsc::channel();
            let (forked, has_forked) = std::sync::mpsc::channel::<()>();
            std::thread::scope(|scope| {
                let handlers = &handlers;
                scope.spawn(move || {
                    handlers.register(|| {
                        asking.send(()).unwrap();
                        has_forked.recv().unwrap();
                    });
                });
                is_asking.recv().unwrap();
                if is_running {
                    handlers.are_running();
                }
                let asked = in_child(|| {
                    // SAFETY: ends the child if it waits.
                    unsafe { libc::alarm(20) };
                    let mut asked = 0;
                    handlers.register(|| asked += 1);
                    handlers.register(|| asked += 1);
                    asked
                });
                assert_eq!(asked, i32::from(!is_running));
                forked.send(()).unwrap();
            });
            handlers.register(|| panic!("it is registered"));
        }
    }

    /// Where libc runs it twice for a fork, it holds once, and others who fork wait until it lets go.
    #[test]
    fn who_forks_holds_once() {
        for _ in 0..2 {
            hold();
            hold();
            let (sender, holds) = std::sync::mpsc::channel();
            let other = std::thread::spawn(move || {
                let_go();
                hold();
                sender.send(()).unwrap();
                let_go();
            });
            let early = holds.recv_timeout(std::time::Duration::from_millis(50));
            assert!(early.is_err(), "two hold");
            let_go();
            let_go();
            other.join().unwrap();
            assert_eq!(holds.recv(), Ok(()));
        }
        let held = in_child(|| {
            super::in_child();
            super::in_child();
            hold();
            let_go();
            0
        });
        assert_eq!(held, 0);
    }

    /// Threads that come together ask once, and none goes on before that is done.
    #[test]
    fn threads_ask_once() {
        let (handlers, asked) = (Handlers::new(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    handlers.register(|| {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        asked.fetch_add(1, Ordering::Relaxed);
                    });
                    assert_eq!(asked.load(Ordering::Relaxed), 1);
                });
            }
        });
    }

    #[test]
    fn children_have_the_programs_maps_and_no_others() {
        let file = tempfile::tempfile().unwrap();
        let size = 2 << 20;
        file.set_len(size as u64).unwrap();
        let own = Mapping::new(&file, 0, size, MapOptions::READ_WRITE).unwrap();
        let space = AddressSpace::reserve(4 * size).unwrap();
        let options = MapOptions::READ_WRITE;
        space.map(size, size, &file, 0, options).unwrap();
        space
            .map(2 * size, size, &file, 0, options.memory(true))
            .unwrap();
        own.bytes().store_u64(0, 7, Ordering::Relaxed);
        // SAFETY: a new range, used by this test alone.
        let map = unsafe {
            let map = placing::reserve(0, PAGE, 0).unwrap();
            let source = own.bytes().slice(0, PAGE).unwrap();
            let both = (libc::PROT_READ | libc::PROT_WRITE) as placing::Protection;
            placing::duplicate(source, both, map, both).unwrap();
            map as *const u64
        };
        let places = [
            own.as_ptr(),
            space.base(),
            space.base().wrapping_add(size),
            space.base().wrapping_add(2 * size),
            space.base().wrapping_add(4 * size - PAGE),
        ];
        assert!(places.iter().all(|place| is_mapped(*place)));
        let found = in_child(|| {
            let mapped = places.iter().filter(|place| is_mapped(**place)).count();
            // SAFETY: the program's own map, which the child has.
            let shown = unsafe { is_mapped(map.cast()) && map.read_volatile() == 7 };
            (mapped * 2) as i32 + i32::from(shown)
        });
        assert_eq!(found, 1);
    }

    #[test]
    fn what_is_being_mapped_is_in_no_child() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 * PAGE as u64).unwrap();
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let inode = rustix::fs::fstat(&file).unwrap().st_ino;
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    while !IS_OVER.load(Ordering::Relaxed) {
                        let options = MapOptions::READ_WRITE;
                        drop(Mapping::new(&file, 0, 16 * PAGE, options).unwrap());
                    }
                });
            }
            for _ in 0..200 {
                let found = in_child(|| {
                    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
                    let wanted = format!(" {inode} ");
                    maps.lines().filter(|line| line.contains(&wanted)).count() as i32
                });
                assert_eq!(found, 0);
            }
            IS_OVER.store(true, Ordering::Relaxed);
        });
    }
}
