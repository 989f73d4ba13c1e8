//! Children of `vfork` and `posix_spawn`, which run in their parent's memory until they execute
//! another program.
//!
//! Such a child costs a fraction of a forked one: nothing is copied, neither by the kernel nor, page by
//! page, by the faults of both. But whatever this library and the LibFS keep in that memory is the
//! parent's: its descriptors, its session, its locks. So a child does itself only what is the kernel's
//! alone and what leads to the next program ([`call`]): it closes and duplicates the kernel's
//! descriptors, changes its signals, executes a program of the host's, exits. Before anything else it
//! *comes apart* from its parent ([`come_apart`]): it becomes a forked child, with a copy of the memory
//! as it is at that moment, and goes on where it was.
//!
//! A process that runs in another's memory cannot be given its own. Coming apart makes a new one, of the
//! same parent, which has all that a child gets of the kernel; the first one waits until that has executed
//! or exited, as the parent would, and ends. The parent reaps it before it goes on, and takes the new
//! one for its child; it takes back the SIGCHLD that the first one sent.
//!
//! Invariants:
//! * Only a process with one thread makes such a child: nobody else looks at the memory meanwhile.
//! * A child never enters the LibFS, and changes nothing of this library's state but what its
//!   parent sets right when it goes on ([`Lent::returned`]). So it may be killed at any instant.
//! * What a child has done to its descriptors before it comes apart concerns numbers that are the
//!   kernel's before and after, so the table that it takes along is right.

use super::{SpawnRecord, hand_over, sharing};
use crate::descriptors::{self, replacements};
use crate::raw::{self, Arguments, error, syscall};
use crate::{backend, net, patch, report, settings, signals, thread};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// What a parent has lent to its child. One for the process, which has one thread.
struct Loan {
    /// The signal mask to go back to.
    mask: AtomicU64,
    /// The thread's selector byte, and how its calls can be cancelled.
    selector: AtomicU8,
    cancellation: AtomicU8,
    /// Whether the child is `posix_spawn`'s.
    spawning: AtomicU8,
    /// The child that came of the child when it came apart; 0 if it did not. Written by the kernel.
    apart: AtomicI32,
    /// Why that one executed nothing, for `posix_spawn`.
    record: AtomicPtr<SpawnRecord>,
    /// Memory mapped for the program that the child executes, to be unmapped afterwards.
    mapped: AtomicPtr<u8>,
    size: AtomicUsize,
}

static LOAN: Loan = Loan {
    mask: AtomicU64::new(0),
    selector: AtomicU8::new(0),
    cancellation: AtomicU8::new(0),
    spawning: AtomicU8::new(0),
    apart: AtomicI32::new(0),
    record: AtomicPtr::new(std::ptr::null_mut()),
    mapped: AtomicPtr::new(std::ptr::null_mut()),
    size: AtomicUsize::new(0),
};

/// Whether this process runs in its parent's memory.
#[inline(always)]
pub fn is_child() -> bool {
    replacements::count().is_of_vfork_child()
}

/// All signals but the net's.
const EVERY_SIGNAL: u64 = signals::without_sigsys(u64::MAX);

fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: numbers of 8 bytes, in and out.
    unsafe {
        syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut before,
            8
        )
    };
    before
}

/// A parent's memory, about to be its child's, too.
pub struct Lent(());

impl Lent {
    /// Hands over what the child needs. `None`: the child has to be a forked one. No signal is
    /// delivered from here on until [`returned`](Lent::returned), nor to the child until
    /// [`begin`].
    pub fn prepare(spawning: bool) -> Option<Lent> {
        if net::kind() == net::Kind::None
            || !settings::ready()
            || thread::inside()
            || backend::any_maps()
            || sharing::has_threads()
        {
            return None;
        }
        hand_over();
        LOAN.mask.store(set_mask(EVERY_SIGNAL), Ordering::Relaxed);
        let thread = thread::current();
        let selector = thread.selector.load(Ordering::Relaxed);
        LOAN.selector.store(selector, Ordering::Relaxed);
        let cancellation = thread.cancellation.load(Ordering::Relaxed);
        LOAN.cancellation.store(cancellation, Ordering::Relaxed);
        LOAN.spawning.store(u8::from(spawning), Ordering::Relaxed);
        LOAN.apart.store(0, Ordering::Relaxed);
        LOAN.record.store(std::ptr::null_mut(), Ordering::Relaxed);
        replacements::vfork_child(true);
        Some(Lent(()))
    }

    /// In the parent, which goes on because the child has executed a program, or ended: with
    /// what the system call told, which may become an error of the child's exec.
    pub fn returned(self, result: isize) -> isize {
        replacements::vfork_child(false);
        let thread = thread::current();
        let selector = LOAN.selector.load(Ordering::Relaxed);
        thread.selector.store(selector, Ordering::Relaxed);
        let cancellation = LOAN.cancellation.load(Ordering::Relaxed);
        thread.cancellation.store(cancellation, Ordering::Relaxed);
        forget_mapping(true);
        patch::rewrite_noted();
        let result = match LOAN.apart.swap(0, Ordering::Relaxed) {
            0 => result,
            child => came_apart(result, child),
        };
        set_mask(LOAN.mask.load(Ordering::Relaxed));
        result
    }
}

/// The parent's part of its child's coming apart: the first one is reaped, before anybody hears of it.
fn came_apart(first: isize, child: i32) -> isize {
    let record = LOAN.record.swap(std::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: waits for our children; the page is mapped, by the child in our memory, and
    // nobody else's.
    unsafe {
        while syscall!(libc::SYS_wait4, first, 0, libc::__WALL, 0) == error(libc::EINTR) {}
        take_back_signal(first);
        if !record.is_null() {
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

/// Takes the SIGCHLD of a child that nobody knows of, while signals are blocked. The kernel keeps one
/// SIGCHLD: where it is another child's, or there is another child whose signal it stood in the way
/// of, that one's is queued.
///
/// # Safety
/// None but that signals are blocked.
unsafe fn take_back_signal(child: isize) {
    let alone: u64 = 1 << (libc::SIGCHLD - 1);
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: structures on the stack, for which all zeroes are a value; the kernel fills them.
    unsafe {
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
            information = std::mem::zeroed();
            let any = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED;
            let look = libc::WNOHANG | libc::WNOWAIT;
            let into = &raw mut information;
            let found = syscall!(libc::SYS_waitid, libc::P_ALL, 0, into, any | look, 0);
            if raw::failed(found) || information.si_pid() == 0 {
                return;
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
    net::armed_again(cleared);
    report_of_vforks(report::Event::Start);
    set_mask(LOAN.mask.load(Ordering::Relaxed));
}

/// What becomes of a child of `vfork` is told; of one of `posix_spawn`, only what it executes.
fn report_of_vforks(event: report::Event) {
    if LOAN.spawning.load(Ordering::Relaxed) == 0 {
        report::write(event);
    }
}

/// A child has mapped memory for what it is about to execute.
pub fn note_mapping(memory: *mut u8, size: usize) {
    if is_child() {
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
    match come_apart() {
        Ok(()) => normal(),
        Err(error) => error,
    }
}

/// A child's call of one that has no handler: `Err` with its result if it is not to be made.
#[cold]
#[inline(never)]
pub fn other_call(number: usize) -> Result<(), isize> {
    match number as i64 {
        // They leave nothing behind that another process would not have, and do not tell which it is.
        libc::SYS_getuid
        | libc::SYS_geteuid
        | libc::SYS_getgid
        | libc::SYS_getegid
        | libc::SYS_getppid
        | libc::SYS_sched_yield
        | libc::SYS_brk
        | libc::SYS_rt_sigreturn
        | libc::SYS_sigaltstack
        | libc::SYS_clock_gettime
        | libc::SYS_gettimeofday
        | libc::SYS_futex
        | libc::SYS_exit => Ok(()),
        _ => come_apart(),
    }
}

/// Where this is a child in its parent's memory, it is a forked one with memory of its own when this
/// returns.
///
/// # Errors
/// Minus the error number of the kernel's refusal to make a process; it is what it was then.
pub fn come_apart() -> Result<(), isize> {
    if !is_child() {
        return Ok(());
    }
    let mut record = std::ptr::null_mut();
    if LOAN.spawning.load(Ordering::Relaxed) != 0 {
        record = SpawnRecord::map();
    }
    LOAN.record.store(record, Ordering::Relaxed);
    // Nothing may end this process between the making of the other and its own end.
    let mask = set_mask(EVERY_SIGNAL);
    // SAFETY: a process like by fork, but of the same parent; this one waits until it has executed or
    // exited. The kernel writes its number where this one and the parent find it.
    let result = unsafe {
        let flags = libc::CLONE_PARENT | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID;
        let number = LOAN.apart.as_ptr();
        syscall!(libc::SYS_clone, flags | libc::SIGCHLD, 0, number, 0, 0)
    };
    if raw::failed(result) {
        LOAN.apart.store(0, Ordering::Relaxed);
        LOAN.record.store(std::ptr::null_mut(), Ordering::Relaxed);
        if !record.is_null() {
            // SAFETY: mapped above, and nobody else's.
            unsafe { raw::unmap(record.cast(), PAGE_SIZE) };
        }
        set_mask(mask);
        return Err(result);
    }
    if result > 0 {
        report_of_vforks(report::Event::End);
        // SAFETY: ends this process, whose memory is its parent's.
        unsafe { syscall!(libc::SYS_exit_group, 0) };
    }
    LOAN.mapped.store(std::ptr::null_mut(), Ordering::Relaxed);
    super::came_apart(record);
    set_mask(mask);
    Ok(())
}

// The child would return from `vfork` and then overwrite what its parent finds on the stack. So the
// return address is kept in a register, which the kernel preserves for each of them, and the parent
// pushes it again; below it the parent has nothing.
std::arch::global_asm!(
    ".globl arck_vfork",
    ".hidden arck_vfork",
    ".type arck_vfork,@function",
    "arck_vfork:",
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {prepare}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "test eax, eax",
    "jz {fork}",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_register rip, rdi",
    "mov eax, {vfork}",
    "syscall",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rip, -8",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov rdi, rax",
    "call {returned}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".size arck_vfork, . - arck_vfork",
    prepare = sym prepare,
    fork = sym fork,
    returned = sym returned,
    vfork = const libc::SYS_vfork,
);

unsafe extern "C" {
    /// `vfork`, for a caller that is libc's of that name.
    pub fn arck_vfork() -> i32;
}

/// Whether memory is lent.
extern "C" fn prepare() -> i32 {
    if come_apart().is_err() {
        return 0;
    }
    i32::from(Lent::prepare(false).is_some())
}

extern "C" fn fork() -> i32 {
    // SAFETY: libc's own; its handlers prepare the hand-over.
    unsafe { libc::fork() }
}

/// In the child with 0, and then in the parent.
extern "C" fn returned(result: isize) -> isize {
    if result == 0 {
        begin(false);
        return 0;
    }
    let result = Lent(()).returned(result);
    if raw::failed(result) {
        // SAFETY: the thread's own errno.
        unsafe { *libc::__errno_location() = -result as i32 };
        return -1;
    }
    result
}
