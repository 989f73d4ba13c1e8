//! Who is inside what is to be closed, so that whoever closes it can wait until they have left.
//!
//! Each thread has a line of memory of its own, where it says what it is inside of: threads that use the same things write no
//! memory of each other's. Whoever closes something has said so before he looks at these lines, and a thread that comes
//! in looks whether that was said after it has written its own. That takes a fence on one of both sides: on the side of
//! who closes, where the kernel has one for all threads of a process (membarrier).
//!
//! # Invariants
//! * After [`wait_until_left`] nobody is inside of what was said to be closed before.
//! * A thread is inside of one thing at a time. A handler of signals that interrupts it there comes into nothing:
//!   Arck's locks may be held beneath it. So whatever takes a lock is inside, if only of [`NOTHING`].
//! * To come in takes no lock and waits for nobody, in whatever moment a thread was interrupted or the process forked.
//! * In a forked child nobody is inside: see [`in_child`].

use crate::trouble::Trouble;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, compiler_fence, fence};
use std::time::Duration;

/// A thread's line: two cache lines, since processors fetch them in pairs.
#[repr(align(128))]
struct Line {
    /// What it is inside of, plus one.
    of: AtomicU32,
    is_taken: AtomicBool,
    /// Null at the end.
    next: AtomicPtr<Line>,
}

impl Line {
    const fn new() -> Line {
        Line {
            of: AtomicU32::new(0),
            is_taken: AtomicBool::new(false),
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }
}

/// The first of all lines. None is ever freed.
static FIRST: Line = Line::new();

/// What a call is inside of that opens or ends a session, or goes through all that is open.
pub const NOTHING: u32 = u32::MAX - 1;

fn lines() -> impl Iterator<Item = &'static Line> {
    std::iter::successors(Some(&FIRST), |line| {
        // SAFETY: null, or a line that is never freed, and was whole before it came here.
        unsafe { line.next.load(Ordering::Acquire).as_ref() }
    })
}

/// A line that no thread has, which one has now.
fn take() -> &'static Line {
    let is_free = |line: &&Line| !line.is_taken.swap(true, Ordering::AcqRel);
    if let Some(free) = lines().find(is_free) {
        return free;
    }
    let new = Line::new();
    new.is_taken.store(true, Ordering::Relaxed);
    let new = Box::into_raw(Box::new(new));
    let mut last = &FIRST;
    loop {
        let null = std::ptr::null_mut();
        let set = last
            .next
            .compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire);
        match set {
            // SAFETY: it is never freed.
            Ok(_) => return unsafe { &*new },
            // SAFETY: not null, and a line, as all that stand there.
            Err(other) => last = unsafe { &*other },
        }
    }
}

/// A thread's, to its end.
struct Own(&'static Line);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
    }
}

thread_local! {
    static OWN: Own = Own(take());
}

/// Inside until dropped.
pub struct Inside {
    line: &'static Line,
    /// It was taken for this once: the thread is ending.
    is_lent: bool,
}

/// Says that this thread is inside of one thing; what is to be looked at behind that is whether it is closed. EDEADLK.
#[inline(always)]
pub fn enter(what: u32) -> Result<Inside, Trouble> {
    let (line, is_lent) = match OWN.try_with(|own| own.0) {
        Ok(line) => (line, false),
        Err(_) => (take(), true),
    };
    if line.of.load(Ordering::Relaxed) != 0 {
        return Err(Trouble::interrupted());
    }
    line.of.store(what + 1, Ordering::Relaxed);
    barrier::of_comer();
    Ok(Inside { line, is_lent })
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        self.line.of.store(0, Ordering::Release);
        if self.is_lent {
            self.line.is_taken.store(false, Ordering::Release);
        }
    }
}

/// Waits until nobody is inside of what was said to be closed before. Blocks.
pub fn wait_until_left(what: u32) {
    barrier::of_closer();
    let mut pause = Duration::from_micros(20);
    while lines().any(|line| line.of.load(Ordering::Acquire) == what + 1) {
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(1));
    }
}

/// In a forked child, of whose threads only the one that forked is there, and that was inside of nothing.
pub fn in_child() {
    let own = OWN.try_with(|own| std::ptr::from_ref(own.0)).ok();
    for line in lines().filter(|&line| own != Some(std::ptr::from_ref(line))) {
        line.of.store(0, Ordering::Relaxed);
        line.is_taken.store(false, Ordering::Relaxed);
    }
}

/// The fence between what a thread says and what it looks at, on both sides.
pub mod barrier {
    use super::*;

    /// Whether who closes has the kernel make the fences of all threads.
    static IS_KERNELS: AtomicBool = AtomicBool::new(false);

    const REGISTER: libc::c_int = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
    const FENCE: libc::c_int = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED;

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: it reads and writes no memory of the process's.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    /// Before the first thread comes in.
    pub fn prepare() {
        if membarrier(REGISTER) && membarrier(FENCE) {
            IS_KERNELS.store(true, Ordering::SeqCst);
        }
    }

    #[inline(always)]
    pub fn of_comer() {
        match IS_KERNELS.load(Ordering::Relaxed) {
            true => compiler_fence(Ordering::SeqCst),
            false => fence(Ordering::SeqCst),
        }
    }

    pub fn of_closer() {
        fence(Ordering::SeqCst);
        if !IS_KERNELS.load(Ordering::Relaxed) || membarrier(FENCE) {
            return;
        }
        // It was promised, and is forbidden now: those who come in fence from now on, and those who are about to have had
        // time enough for what they have stored to be seen.
        if !(membarrier(REGISTER) && membarrier(FENCE)) {
            IS_KERNELS.store(false, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
