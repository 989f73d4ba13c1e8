//! Children of `posix_spawn` (and of `system`, `popen` and whatever else spawns by it), which run in their
//! parent's memory until they execute another program.
//!
//! Such a child costs a fraction of a forked one: nothing is copied, neither by the kernel nor, page by
//! page, by the faults of both. But whatever this library and the LibFS keep in that memory is the
//! parent's: its descriptors, its session, its locks. So a child does itself only what is the kernel's
//! alone and what leads to the next program ([`call`]): it closes and duplicates the kernel's
//! descriptors, changes its signals and ids, executes a program of the host's, exits. Before anything
//! else it *detaches* from its parent ([`detach`]): it becomes a forked child, with a copy of the
//! memory as it is at that moment, and goes on where it was.
//!
//! A process that runs in another's memory cannot be given its own. Detaching makes a new one, of the
//! same parent, which has all that a child gets of the kernel but the number; the first one waits until that has executed
//! or exited, as the parent would, and ends. The parent reaps it before it goes on, and takes the new
//! one for its child; it takes back the SIGCHLD that the first one sent. Where the kernel makes no such
//! process the first one ends too, and the parent forks.
//!
//! That is for libc's own code alone: it runs with all signals blocked, takes no locks there, and uses
//! no number of its process. A program's child of `vfork` may be in the middle of a function of libc's, whose
//! lock or half-done change would stay in its parent's memory when it detaches.
//!
//! Invariants:
//! * Only a process with one thread makes such a child: nobody else looks at the memory meanwhile.
//! * A child never enters the LibFS, takes no lock, and changes nothing of this library's state but
//!   counters and what its parent sets right when it goes on ([`Lent::returned`]). So it may be killed
//!   at any instant; a page that it has mapped may be lost then.
//! * It does not read its own number before it detaches: sites that are rewritten ask whether it is one.
//! * What a child has done to its descriptors before it detaches concerns numbers that are the
//!   kernel's before and after, so the table that it takes along is right.

use super::{SpawnRecord, hand_over, sharing};
use crate::descriptors::{self, replacements};
use crate::dispatch::arming;
use crate::dispatch::kind;
use crate::raw::{self, Arguments, error, syscall};
use crate::signals::kernel::{bit, set_mask};
use crate::{settings, thread};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering,
};

/// What a parent has lent to its child. One for the process, which has one thread.
struct Loan {
    /// The signal mask to go back to.
    mask: AtomicU64,
    /// The thread's selector byte, and how its calls can be cancelled.
    selector: AtomicU8,
    cancellation: AtomicU8,
    /// Whether another child had something to report before.
    reported: AtomicBool,
    /// The child that came of the child when it detached; 0 if it did not. Written by the kernel.
    apart: AtomicI32,
    /// It should have, and could not.
    refused: AtomicBool,
    /// Why that one executed nothing.
    record: AtomicPtr<SpawnRecord>,
    /// Memory mapped for the program that the child executes, to be unmapped afterwards.
    mapped: AtomicPtr<u8>,
    size: AtomicUsize,
}

static LOAN: Loan = Loan {
    mask: AtomicU64::new(0),
    selector: AtomicU8::new(0),
    cancellation: AtomicU8::new(0),
    reported: AtomicBool::new(false),
    apart: AtomicI32::new(0),
    refused: AtomicBool::new(false),
    record: AtomicPtr::new(std::ptr::null_mut()),
    mapped: AtomicPtr::new(std::ptr::null_mut()),
    size: AtomicUsize::new(0),
};

/// All signals but the dispatch's.
const EVERY_SIGNAL: u64 = !bit(libc::SIGSYS);

/// Which child has ended and is not reaped yet, if there is any, as its signal tells it.
fn ended_child() -> Option<libc::siginfo_t> {
    // SAFETY: a structure on the stack, for which all zeroes are a value; the kernel fills it, and
    // leaves the child as it is.
    unsafe {
        let mut information: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let into = &raw mut information;
        let found = syscall!(libc::SYS_waitid, libc::P_ALL, 0, into, how, 0);
        (!raw::failed(found) && information.si_pid() != 0).then_some(information)
    }
}

/// A parent's memory, about to be its child's, too.
pub struct Lent(());

impl Lent {
    /// Hands over what the child needs. `None`: the child has to be a forked one. No signal is
    /// delivered from here on until [`returned`](Lent::returned).
    pub fn prepare() -> Option<Lent> {
        if kind::kind() == kind::Kind::None
            || !settings::ready()
            || thread::inside()
            || sharing::has_threads()
            || sharing::is_apart_from_children()
        {
            return None;
        }
        hand_over();
        LOAN.mask.store(set_mask(EVERY_SIGNAL), Ordering::Relaxed);
        let reported = ended_child().is_some();
        LOAN.reported.store(reported, Ordering::Relaxed);
        let thread = thread::current();
        let selector = thread.selector.load(Ordering::Relaxed);
        LOAN.selector.store(selector, Ordering::Relaxed);
        let cancellation = thread.cancellation.load(Ordering::Relaxed);
        LOAN.cancellation.store(cancellation, Ordering::Relaxed);
        LOAN.apart.store(0, Ordering::Relaxed);
        LOAN.refused.store(false, Ordering::Relaxed);
        LOAN.record.store(std::ptr::null_mut(), Ordering::Relaxed);
        replacements::spawned_child(true);
        Some(Lent(()))
    }

    /// In the parent, which goes on because the child has executed a program, or ended: with
    /// what the system call told, which may become an error of the child's exec. `None`: the child has to
    /// be a forked one.
    pub fn returned(self, result: isize, then: fn()) -> Option<isize> {
        replacements::spawned_child(false);
        let thread = thread::current();
        let selector = LOAN.selector.load(Ordering::Relaxed);
        thread.selector.store(selector, Ordering::Relaxed);
        let cancellation = LOAN.cancellation.load(Ordering::Relaxed);
        thread.cancellation.store(cancellation, Ordering::Relaxed);
        // It was outside when it lent its memory.
        thread.depth.store(0, Ordering::Relaxed);
        thread.pending.store(0, Ordering::Relaxed);
        forget_mapping(true);
        then();
        let child = LOAN.apart.swap(0, Ordering::Relaxed);
        let refused = LOAN.refused.load(Ordering::Relaxed);
        let record = LOAN.record.swap(std::ptr::null_mut(), Ordering::Relaxed);
        if child != 0 || refused {
            reap(result);
        }
        if child == 0 && !record.is_null() {
            // SAFETY: mapped by the child in our memory, and nobody else's.
            unsafe { raw::unmap(record.cast(), PAGE_SIZE) };
        }
        let result = match child {
            0 if refused => None,
            0 => Some(result),
            child => Some(of_second(child, record)),
        };
        set_mask(LOAN.mask.load(Ordering::Relaxed));
        result
    }
}

/// What the parent is told of a child that came of another: its number, or why it executed nothing (if the
/// first was not killed while it waited: then the second exits with [`super::SPAWN_ERROR`]).
fn of_second(child: i32, record: *mut SpawnRecord) -> isize {
    if !record.is_null() {
        // SAFETY: mapped by the child in our memory, and nobody else's; waits for our child, which
        // exits.
        unsafe {
            let errno = (*record).errno.load(Ordering::Acquire);
            raw::unmap(record.cast(), PAGE_SIZE);
            if errno != 0 {
                syscall!(libc::SYS_wait4, child, 0, 0, 0);
                return error(errno);
            }
        }
    }
    child as isize
}

/// Reaps a child before anybody hears of it, and takes its SIGCHLD, while signals are blocked. The kernel
/// keeps one SIGCHLD: where that is another child's, or there is another child whose signal it stood
/// in the way of, that one's is queued.
fn reap(child: isize) {
    let alone: u64 = 1 << (libc::SIGCHLD - 1);
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: waits for a child that ends. Structures on the stack, for which all zeroes are a value; the
    // kernel fills them.
    unsafe {
        while syscall!(libc::SYS_wait4, child, 0, libc::__WALL, 0) == error(libc::EINTR) {}
        let mut information: libc::siginfo_t = std::mem::zeroed();
        let taken = syscall!(
            libc::SYS_rt_sigtimedwait,
            &raw const alone,
            &raw mut information,
            &raw const at_once,
            8
        );
        if raw::failed(taken) {
            return;
        }
        if information.si_pid() as isize == child {
            match ended_child().filter(|_| !LOAN.reported.load(Ordering::Relaxed)) {
                Some(other) => information = other,
                None => return,
            }
        }
        let process = raw::process_id();
        let information = &raw const information;
        syscall!(
            libc::SYS_rt_sigqueueinfo,
            process,
            libc::SIGCHLD,
            information
        );
    }
}

const PAGE_SIZE: usize = 4096;

/// The first thing that a child does. `cleared`: its handlers were reset.
pub fn begin(cleared: bool) {
    arming::armed_again(cleared);
    set_mask(LOAN.mask.load(Ordering::Relaxed));
}

/// A child has mapped memory for what it is about to execute.
pub fn note_mapping(memory: *mut u8, size: usize) {
    if replacements::is_spawned_child() {
        LOAN.size.store(size, Ordering::Relaxed);
        LOAN.mapped.store(memory, Ordering::Relaxed);
    }
}

/// It is gone, or (`unmaps`) is to be.
pub fn forget_mapping(unmaps: bool) {
    let mapped = LOAN.mapped.swap(std::ptr::null_mut(), Ordering::Relaxed);
    if unmaps && !mapped.is_null() {
        // SAFETY: noted by a child that has executed another program, or has ended.
        unsafe { raw::unmap(mapped, LOAN.size.load(Ordering::Relaxed)) };
    }
}

/// A child's call of one that has a handler. `normal` runs that.
#[cold]
#[inline(never)]
pub fn call(number: i64, a: &Arguments, normal: &mut dyn FnMut() -> isize) -> isize {
    let is_kernels = |descriptor: usize| {
        let descriptor = descriptor as u32 as usize;
        descriptor >= descriptors::TABLE_SIZE || descriptors::is_free(descriptor)
    };
    let passes = match number {
        libc::SYS_close => is_kernels(a[0]),
        libc::SYS_dup2 | libc::SYS_dup3 => is_kernels(a[0]) && is_kernels(a[1]),
        libc::SYS_fcntl => matches!(a[1] as i32, libc::F_GETFD | libc::F_SETFD) && is_kernels(a[0]),
        // They are the process's, and who comes of it has them. It has no session to leave.
        libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_setgroups => true,
        // They know that they may be a child's.
        libc::SYS_execve
        | libc::SYS_execveat
        | libc::SYS_exit_group
        | libc::SYS_rt_sigaction
        | libc::SYS_rt_sigprocmask => return normal(),
        _ => false,
    };
    if passes {
        // SAFETY: the program's arguments; no descriptor among them is this library's or the pool's.
        return unsafe { raw::call(number as usize, a) };
    }
    detach();
    normal()
}

/// Before a child's call of one that has no handler.
#[cold]
#[inline(never)]
pub fn other_call(number: i64) {
    // They leave nothing behind that another process would not have, and do not tell which it is.
    let passes = matches!(
        number,
        libc::SYS_getuid
            | libc::SYS_geteuid
            | libc::SYS_getgid
            | libc::SYS_getegid
            | libc::SYS_getppid
            | libc::SYS_sched_yield
            | libc::SYS_exit
    );
    if !passes {
        detach();
    }
}

/// Where this is a child in its parent's memory, it is a forked one with memory of its own when this
/// returns. Where that is refused it does not return.
pub fn detach() {
    if !replacements::is_spawned_child() {
        return;
    }
    // Nothing may end this process between the making of the other and its own end.
    let mask = set_mask(EVERY_SIGNAL);
    let record = SpawnRecord::map();
    LOAN.record.store(record, Ordering::Relaxed);
    // SAFETY: a process like by fork, but of the same parent; this one waits until it has executed or
    // exited. The kernel writes its number where this one and the parent find it.
    let result = unsafe {
        let flags = libc::CLONE_PARENT | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID;
        let number = LOAN.apart.as_ptr();
        syscall!(libc::SYS_clone, flags | libc::SIGCHLD, 0, number, 0, 0)
    };
    if result != 0 {
        if raw::failed(result) {
            LOAN.apart.store(0, Ordering::Relaxed);
            LOAN.refused.store(true, Ordering::Relaxed);
        }
        loop {
            // SAFETY: ends this process, whose memory is its parent's.
            unsafe { syscall!(libc::SYS_exit_group, 0) };
        }
    }
    LOAN.mapped.store(std::ptr::null_mut(), Ordering::Relaxed);
    super::detached(record);
    set_mask(mask);
}
