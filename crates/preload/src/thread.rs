//! What this library keeps for each thread: the dispatch's selector byte, how deep the thread is
//! inside the LibFS, and a signal put off until it comes out.
//!
//! Invariants:
//! * The block lies in initial-exec thread-local storage, reached by one load from `%fs`; no
//!   allocation, no `__tls_get_addr`, so it can be used in any signal handler.
//! * A signal that was put off is raised when the last of what it was put off for ends, `depth` and `unbroken` being 0.
//! * `depth > 0` exactly while LibFS code runs on this thread. Then `selector` is ALLOW: what
//!   libc does on behalf of the LibFS goes to the kernel, and our own entry points pass through.
//! * Only the thread itself and signal handlers on it touch the block; fields are atomics used
//!   with relaxed ordering and compiler fences, which is what signal handlers need.

use std::arch::{asm, global_asm};
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering, compiler_fence,
};

/// Value of the selector byte that lets system calls pass.
pub const ALLOW: u8 = 0;
/// Value that makes system calls in the dispatch's range trap.
pub const BLOCK: u8 = 1;

/// Not answering a call of libc's: the program called one of our symbols.
pub const OUTSIDE_DISPATCH: u8 = 0;
/// Answering a call of libc's that is no cancellation point.
pub const NOT_CANCELLABLE: u8 = 1;
/// Answering one that is.
pub const CANCELLABLE: u8 = 2;

/// The block; zero in a new thread.
#[repr(C, align(64))]
pub struct Thread {
    /// Read by the kernel at every system call from the dispatch's range.
    pub selector: AtomicU8,
    /// What `selector` is outside the LibFS: BLOCK once the dispatch is armed on this thread.
    pub armed: AtomicU8,
    /// Whether this thread is answering a call that libc made, and how that call can be
    /// cancelled; see `raw::uncancelled`.
    pub cancellation: AtomicU8,
    /// 1 while the LibFS runs on a stack of this library's; see `stack`.
    pub on_alternate: AtomicU8,
    /// Nested entries into the LibFS.
    pub depth: AtomicU32,
    /// Not 0 while signals are put off outside of it, too: see [`unbroken`].
    pub unbroken: AtomicU32,
    /// A signal that arrived inside the LibFS; 0 = none.
    pub pending: AtomicI32,
    /// The signal mask to go back to before `pending` is raised again.
    pub pending_mask: AtomicU64,
    /// Where on the thread's own stack there is room enough for the LibFS: the first address, and how
    /// many bytes from there on; 0 = it is not known. See `stack`.
    pub stack_from: AtomicU64,
    pub stack_room: AtomicU64,
    /// How many of the program's signal handlers have run that interrupt a call that waits
    /// (without SA_RESTART).
    pub interruptions: AtomicU32,
    /// Handlers of the program's that run, and those that were left by `longjmp`.
    pub handlers: AtomicU32,
    /// Its `siginfo_t`.
    pub pending_info: [AtomicU64; 16],
}

const BLOCK_SIZE: usize = 256;
const _: () = assert!(size_of::<Thread>() <= BLOCK_SIZE && size_of::<libc::siginfo_t>() == 128);

global_asm!(
    ".section .tbss.arck_thread,\"awT\",@nobits",
    ".balign 64",
    ".globl arck_thread",
    ".hidden arck_thread",
    ".type arck_thread,@object",
    ".size arck_thread, 256",
    "arck_thread:",
    ".zero 256",
    ".text",
);

/// This thread's block.
#[inline(always)]
pub fn current() -> &'static Thread {
    let block: *const Thread;
    // SAFETY: the thread-local block exists for the life of the thread and is only used by it;
    // the address is computed from %fs, no memory is written.
    unsafe {
        asm!("mov {0}, qword ptr [rip + arck_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) block, options(pure, nomem, nostack));
        &*block
    }
}

/// Some thread of the process has no block, or will have none: what it does is not seen.
static LACKS_BLOCK: AtomicBool = AtomicBool::new(false);

/// Before there is such a thread.
pub fn has_no_block() {
    LACKS_BLOCK.store(true, Ordering::SeqCst);
}

/// Whether there may be one.
pub fn is_one_unseen() -> bool {
    LACKS_BLOCK.load(Ordering::Relaxed)
}

/// Whether LibFS code is running on this thread right now.
#[inline(always)]
pub fn inside() -> bool {
    current().depth.load(Ordering::Relaxed) != 0
}

/// Whether a handler of the program's may run on this thread: what it has interrupted may be libc, with a lock held.
pub fn is_in_handler() -> bool {
    current().handlers.load(Ordering::Relaxed) != 0
}

/// Marks this thread as inside the LibFS until dropped.
pub struct Inside(&'static Thread);

#[inline(always)]
pub fn enter() -> Inside {
    let thread = current();
    thread
        .depth
        .store(thread.depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    thread.selector.store(ALLOW, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    Inside(thread)
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        let thread = self.0;
        compiler_fence(Ordering::SeqCst);
        let depth = thread.depth.load(Ordering::Relaxed) - 1;
        if depth == 0 {
            thread
                .selector
                .store(thread.armed.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        compiler_fence(Ordering::SeqCst);
        thread.depth.store(depth, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if depth == 0 && thread.pending.load(Ordering::Relaxed) != 0 {
            raise_outside(thread);
        }
    }
}

/// While it lives, no signal that somebody sends reaches a handler of the program's on this thread, which could jump out of what is
/// done. Those of faults do.
pub struct Unbroken(&'static Thread);

/// Begins it. Unlike [`enter`], it lets the calls that are served be served.
#[inline(always)]
pub fn unbroken() -> Unbroken {
    let thread = current();
    let count = thread.unbroken.load(Ordering::Relaxed);
    thread.unbroken.store(count + 1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    Unbroken(thread)
}

impl Drop for Unbroken {
    #[inline(always)]
    fn drop(&mut self) {
        let thread = self.0;
        compiler_fence(Ordering::SeqCst);
        let count = thread.unbroken.load(Ordering::Relaxed) - 1;
        thread.unbroken.store(count, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if thread.pending.load(Ordering::Relaxed) != 0 {
            raise_outside(thread);
        }
    }
}

impl Thread {
    /// Whether signals that somebody sends are put off.
    pub fn puts_off(&self) -> bool {
        self.depth.load(Ordering::Relaxed) != 0 || self.unbroken.load(Ordering::Relaxed) != 0
    }
}

/// Raises what was put off, unless more of what it was put off for is under way.
#[cold]
#[inline(never)]
fn raise_outside(thread: &Thread) {
    if !thread.puts_off() {
        raise(thread);
    }
}

/// What raises the signal again that was put off.
static RAISE: OnceLock<fn(&Thread)> = OnceLock::new();

/// At start-up, by who puts signals off.
pub fn raise_by(raise: fn(&Thread)) {
    RAISE.get_or_init(|| raise);
}

fn raise(thread: &Thread) {
    if let Some(raise) = RAISE.get() {
        raise(thread);
    }
}

/// Leaves what an [`enter`] whose guard was forgotten entered (around `fork`).
pub fn leave() {
    drop(Inside(current()));
}
