//! On which stack the LibFS runs: on the program's if that has room enough, else on an alternate one of this
//! library's. A program's signal handler may run on an alternate stack of 8 KiB, a thread on one of 16.
//!
//! Invariants:
//! * A alternate stack is in use only while its thread is inside the LibFS. So no handler of the program
//!   runs meanwhile (they are put off: `signals::kernel`), nobody is cancelled, and no panic leaves it
//!   (`backend`): it is never left but by its end, and can be another thread's the moment after.
//! * The program's stack has room where that is known: on the stack of the first thread, and on that of
//!   a thread whose size was told when it was made. Anywhere else (alternate stacks, coroutines) it has
//!   not.
//! * While a thread is on an alternate stack it has no alternate one if it came from there: to the kernel it
//!   has left it, and the next signal's frame would lie over the handler that it is to go back to. Nor
//!   do signals::kernel come that are not its own doing: there are moments before the one is gone, and after it
//!   is back.
//! * What is called before the LibFS is entered, and the kernel's frame of a signal, take the program's
//!   stack: `tests/programs/stacks.c` measures how much.

use crate::raw::{self, syscall};
use crate::signals::kernel;
use crate::thread::{self, Thread};
use std::arch::asm;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Bytes that the LibFS is given at least.
const NEED: usize = 128 * 1024;
/// Bytes of an alternate stack, the guard page included. What is not used takes no memory.
const ALTERNATE: usize = 512 * 1024;
const GUARD: usize = 4096;
/// Most of the first thread's stack that is counted on, wherever its limit is.
const FIRST: usize = 8 << 20;

/// Alternate stacks that nobody uses.
static SPARES: [AtomicPtr<u8>; 32] = [const { AtomicPtr::new(null_mut()) }; 32];

#[inline(always)]
fn here() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// Whether there is room for the LibFS on the stack that this thread runs on.
#[inline(always)]
pub fn has_room(thread: &Thread) -> bool {
    let from = thread.stack_from.load(Ordering::Relaxed) as usize;
    here().wrapping_sub(from) < thread.stack_room.load(Ordering::Relaxed) as usize
}

/// A stack from `low` up to `top` is this thread's.
fn know(thread: &Thread, low: usize, top: usize) {
    let from = low + NEED;
    thread.stack_from.store(from as u64, Ordering::Relaxed);
    let room = top.saturating_sub(from) as u64;
    thread.stack_room.store(room, Ordering::Relaxed);
}

/// At start-up, on the first thread. What the kernel has put there last, the program's name, is at the
/// top of its stack.
pub fn start() {
    // SAFETY: reads what the kernel has told the process.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as usize;
    let limit = raw::limit(libc::RLIMIT_STACK).map_or(FIRST, |limit| limit.min(FIRST));
    let here = here();
    // The name may be one that a program has put elsewhere.
    let top = match name > here && name - here < FIRST {
        true => name,
        false => here,
    };
    know(thread::current(), top.saturating_sub(limit), top);
}

/// On a new thread, whose stack ends at `top`; `size`: 0 if it is not known.
pub fn thread_started(top: usize, size: usize) {
    know(thread::current(), top - size.min(top), top);
}

/// # Safety
/// As the system call's, outside of the dispatch's signal handler, which sets it in its context.
pub unsafe fn sigaltstack(a: &raw::Arguments) -> isize {
    // SAFETY: the program's arguments.
    let result = unsafe { raw::call(libc::SYS_sigaltstack as usize, a) };
    if result == 0 && a[0] != 0 {
        alternate_was_set();
    }
    result
}

/// The program has set this thread's alternate stack. One that lies in its own is not to be taken for it.
pub fn alternate_was_set() {
    let thread = thread::current();
    let Some(alternate) = alternate() else { return };
    let from = thread.stack_from.load(Ordering::Relaxed) as usize;
    let end = from + thread.stack_room.load(Ordering::Relaxed) as usize;
    let start = alternate.ss_sp as usize;
    let is_apart = start + alternate.ss_size <= from - NEED.min(from) || start >= end;
    if alternate.ss_flags & libc::SS_DISABLE == 0 && !is_apart {
        thread.stack_room.store(0, Ordering::Relaxed);
    }
}

/// The thread's alternate stack, as the kernel knows it.
fn alternate() -> Option<libc::stack_t> {
    // SAFETY: all zeroes is a value, and the kernel fills it.
    unsafe {
        let mut found: libc::stack_t = std::mem::zeroed();
        let result = syscall!(libc::SYS_sigaltstack, 0, &raw mut found);
        (!raw::failed(result)).then_some(found)
    }
}

fn set_alternate(stack: &libc::stack_t) {
    // SAFETY: the kernel reads it.
    unsafe { syscall!(libc::SYS_sigaltstack, &raw const *stack, 0) };
}

/// The alternate stack, if this thread runs on it now: as it is to be set again.
fn alternate_here() -> Option<libc::stack_t> {
    let mut found = alternate().filter(|found| found.ss_flags & libc::SS_ONSTACK != 0)?;
    found.ss_flags &= !libc::SS_ONSTACK;
    Some(found)
}

/// On an alternate stack: runs `body` without the alternate stack that the thread comes from.
fn without<R>(alternate: &libc::stack_t, body: impl FnOnce() -> R) -> R {
    set_alternate(&libc::stack_t {
        ss_flags: libc::SS_DISABLE,
        ..*alternate
    });
    let result = body();
    set_alternate(alternate);
    result
}

/// A alternate stack in use: its lowest address.
struct Alternate(*mut u8);

impl Alternate {
    /// One that nobody uses, or a new one; `None` if there is no memory.
    fn take() -> Option<Alternate> {
        for place in &SPARES {
            let alternate = place.swap(null_mut(), Ordering::Acquire);
            if !alternate.is_null() {
                return Some(Alternate(alternate));
            }
        }
        let lowest = raw::map_anonymous(ALTERNATE)?;
        // SAFETY: the lowest page of a mapping of our own.
        unsafe { syscall!(libc::SYS_mprotect, lowest, GUARD, libc::PROT_NONE) };
        Some(Alternate(lowest))
    }

    fn top(&self) -> usize {
        self.0 as usize + ALTERNATE
    }
}

impl Drop for Alternate {
    fn drop(&mut self) {
        for place in &SPARES {
            let kept =
                place.compare_exchange(null_mut(), self.0, Ordering::Release, Ordering::Relaxed);
            if kept.is_ok() {
                return;
            }
        }
        // SAFETY: its user has left it.
        unsafe { raw::unmap(self.0, ALTERNATE) };
    }
}

/// What is to be run on an alternate stack.
struct Job<B, R> {
    body: Option<B>,
    result: Option<R>,
    /// The alternate stack, if the thread comes from there.
    alternate: Option<libc::stack_t>,
}

extern "C" fn work<B: FnOnce() -> R, R>(job: *mut Job<B, R>) {
    // SAFETY: the caller of `arck_on_stack` waits for its job.
    let job = unsafe { &mut *job };
    let Some(body) = job.body.take() else { return };
    job.result = Some(match &job.alternate {
        None => body(),
        Some(alternate) => without(alternate, body),
    });
}

/// Runs the LibFS, on an alternate stack if there is little room on this one. Inside the LibFS; no panic
/// leaves `body`.
#[inline(never)]
pub fn run<R>(body: impl FnOnce() -> R) -> R {
    fn work_of<B: FnOnce() -> R, R>(_: &Job<B, R>) -> extern "C" fn(*mut Job<B, R>) {
        work::<B, R>
    }
    let thread = thread::current();
    if thread.on_alternate.load(Ordering::Relaxed) != 0 || has_room(thread) {
        return body();
    }
    let Some(alternate) = Alternate::take() else {
        // As far as the program's own goes.
        return body();
    };
    let pointer = here();
    let own = thread.stack_from.load(Ordering::Relaxed) as usize;
    let room = thread.stack_room.load(Ordering::Relaxed) as usize;
    let is_own = room != 0 && pointer.wrapping_sub(own - NEED) < NEED;
    let mut job = Job {
        body: Some(body),
        result: None,
        alternate: (!is_own).then(alternate_here).flatten(),
    };
    let work = work_of(&job) as *const ();
    let held = job.alternate.map(|_| kernel::set_mask(!kernel::OPEN));
    thread.on_alternate.store(1, Ordering::Relaxed);
    // SAFETY: the stack is nobody else's, the job lives here until it is done, and `work` is a function
    // of such a job.
    unsafe { arck_on_stack(alternate.top(), (&raw mut job).cast(), work) };
    thread.on_alternate.store(0, Ordering::Relaxed);
    if let Some(mask) = held {
        kernel::set_mask(mask);
    }
    drop(alternate);
    match job.result {
        Some(result) => result,
        None => std::process::abort(),
    }
}

/// Calls `work(job)` on the stack that ends at `top`.
#[unsafe(naked)]
unsafe extern "C" fn arck_on_stack(_top: usize, _job: *mut (), _work: *const ()) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rsi",
        "call rdx",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets what is known of this thread's stack, and puts it back.
    fn knowing<R>(room: u64, body: impl FnOnce() -> R) -> R {
        let thread = thread::current();
        let before =
            [&thread.stack_from, &thread.stack_room].map(|word| word.load(Ordering::Relaxed));
        thread
            .stack_from
            .store(here() as u64 - room / 2, Ordering::Relaxed);
        thread.stack_room.store(room, Ordering::Relaxed);
        let result = body();
        thread.stack_from.store(before[0], Ordering::Relaxed);
        thread.stack_room.store(before[1], Ordering::Relaxed);
        result
    }

    #[test]
    fn where_there_is_room_nothing_changes_its_place() {
        let outside = here();
        let inside = knowing(1 << 20, || run(here));
        assert!(outside.abs_diff(inside) < 4096, "{outside:x} {inside:x}");
    }

    #[test]
    fn where_there_is_not_an_alternate_stack_is_used_and_used_again() {
        let outside = here();
        let mut seen = Vec::new();
        for _ in 0..3 {
            let (one, other) = knowing(0, || run(|| (here(), run(here))));
            assert!(outside.abs_diff(one) > 8 << 20 || outside.abs_diff(one) > ALTERNATE);
            // What is called there stays there.
            assert!(one > other && one - other < ALTERNATE, "{one:x} {other:x}");
            seen.push(one);
        }
        assert_eq!(thread::current().on_alternate.load(Ordering::Relaxed), 0);
        let text = knowing(0, || run(|| vec!["a result"; 3]));
        assert_eq!(text, ["a result"; 3]);
    }

    #[test]
    fn several_threads_have_several() {
        let barrier = std::sync::Barrier::new(4);
        let places: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        knowing(0, || {
                            run(|| {
                                barrier.wait();
                                here()
                            })
                        })
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        for (at, place) in places.iter().enumerate() {
            for other in &places[..at] {
                assert!(place.abs_diff(*other) >= ALTERNATE - 65536, "{places:x?}");
            }
        }
    }

    #[test]
    fn whoever_comes_from_the_alternate_stack_has_none_meanwhile() {
        let mut room = vec![0u8; 1 << 16];
        let alternate_stack = libc::stack_t {
            ss_sp: room.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: room.len(),
        };
        set_alternate(&alternate_stack);
        let inside = without(&alternate_stack, || alternate().unwrap().ss_flags);
        assert_ne!(inside & libc::SS_DISABLE, 0);
        assert_eq!(alternate().unwrap().ss_sp, alternate_stack.ss_sp);
        assert!(alternate_here().is_none());
        set_alternate(&libc::stack_t {
            ss_flags: libc::SS_DISABLE,
            ..alternate_stack
        });
    }
}
