//! The guarded routines and the SIGBUS handler; see [`super`].

use std::arch::{asm, global_asm};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{KernelAction, NextAction};
use crate::control::{self, FlushInstruction};
use crate::error::Fault;
use crate::lines::{CACHE_LINE, lines_of};

// Every routine: rdi destination, rsi source, rdx bytes; returns in rax the
// bytes left, 0 if all went well; else rdx holds the address that faulted. Nothing between
// the labels uses the stack.
global_asm!(
    ".pushsection .text.arck_pm_guarded,\"ax\",@progbits",
    ".hidden arck_pm_guarded_start",
    ".globl arck_pm_guarded_start",
    ".hidden arck_pm_guarded_end",
    ".globl arck_pm_guarded_end",
    ".hidden arck_pm_guarded_recover",
    ".globl arck_pm_guarded_recover",
    ".hidden arck_pm_guarded_copy",
    ".globl arck_pm_guarded_copy",
    ".hidden arck_pm_guarded_stream",
    ".globl arck_pm_guarded_stream",
    ".hidden arck_pm_guarded_zero",
    ".globl arck_pm_guarded_zero",
    ".hidden arck_pm_guarded_load",
    ".globl arck_pm_guarded_load",
    ".hidden arck_pm_guarded_clwb",
    ".globl arck_pm_guarded_clwb",
    ".hidden arck_pm_guarded_clflushopt",
    ".globl arck_pm_guarded_clflushopt",
    ".hidden arck_pm_guarded_clflush",
    ".globl arck_pm_guarded_clflush",
    ".hidden arck_pm_restorer",
    ".globl arck_pm_restorer",
    ".p2align 6",
    "arck_pm_guarded_start:",
    // Copy. Long ones by rep movsb, which counts down rcx; the recovery
    // point moves it to rax.
    "arck_pm_guarded_copy:",
    "mov rax, rdx",
    "cmp rdx, {string_copy_from}",
    "jae 7f",
    "cmp rax, 32",
    "jb 3f",
    "2:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "add rsi, 32",
    "add rdi, 32",
    "sub rax, 32",
    "cmp rax, 32",
    "jae 2b",
    "3:",
    "cmp rax, 8",
    "jb 5f",
    "4:",
    "mov rcx, [rsi]",
    "mov [rdi], rcx",
    "add rsi, 8",
    "add rdi, 8",
    "sub rax, 8",
    "cmp rax, 8",
    "jae 4b",
    "5:",
    "test rax, rax",
    "jz 8f",
    "6:",
    "mov cl, [rsi]",
    "mov [rdi], cl",
    "inc rsi",
    "inc rdi",
    "dec rax",
    "jnz 6b",
    "8:",
    "ret",
    "7:",
    "mov rcx, rdx",
    ".globl arck_pm_guarded_string",
    ".hidden arck_pm_guarded_string",
    "arck_pm_guarded_string:",
    "rep movsb",
    "mov rax, rcx",
    "ret",
    // Whole lines, streaming; rdi aligned to 64, rdx a multiple of 64.
    ".p2align 4",
    "arck_pm_guarded_stream:",
    "mov rax, rdx",
    "test rax, rax",
    "jz 3f",
    "2:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movntps [rdi], xmm0",
    "movntps [rdi + 16], xmm1",
    "movntps [rdi + 32], xmm2",
    "movntps [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rax, 64",
    "jnz 2b",
    "3:",
    "ret",
    // Zeroes; rsi is not used.
    ".p2align 4",
    "arck_pm_guarded_zero:",
    "mov rcx, rdx",
    "xor eax, eax",
    ".globl arck_pm_guarded_fill",
    ".hidden arck_pm_guarded_fill",
    "arck_pm_guarded_fill:",
    "rep stosb",
    "mov rax, rcx",
    "ret",
    // One word from rsi to rdi.
    ".p2align 4",
    "arck_pm_guarded_load:",
    "mov eax, 8",
    "mov rcx, [rsi]",
    "mov [rdi], rcx",
    "xor eax, eax",
    "ret",
    // Flush rdx lines from rsi on.
    ".p2align 4",
    "arck_pm_guarded_clwb:",
    "mov rax, rdx",
    "2:",
    "clwb [rsi]",
    "add rsi, 64",
    "dec rax",
    "jnz 2b",
    "ret",
    ".p2align 4",
    "arck_pm_guarded_clflushopt:",
    "mov rax, rdx",
    "2:",
    "clflushopt [rsi]",
    "add rsi, 64",
    "dec rax",
    "jnz 2b",
    "ret",
    ".p2align 4",
    "arck_pm_guarded_clflush:",
    "mov rax, rdx",
    "2:",
    "clflush [rsi]",
    "add rsi, 64",
    "dec rax",
    "jnz 2b",
    "ret",
    "arck_pm_guarded_end:",
    "arck_pm_guarded_recover:",
    "ret",
    // The byte sequence by which unwinders and debuggers know a signal frame.
    ".p2align 4",
    "nop",
    "arck_pm_restorer:",
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05",
    ".popsection",
    string_copy_from = const crate::lines::STRING_COPY_FROM,
);

unsafe extern "C" {
    static arck_pm_guarded_start: u8;
    static arck_pm_guarded_end: u8;
    static arck_pm_guarded_string: u8;
    static arck_pm_guarded_fill: u8;
    static arck_pm_guarded_recover: u8;
    static arck_pm_restorer: u8;
    fn arck_pm_guarded_copy(destination: *mut u8, source: *const u8, len: usize) -> Left;
    fn arck_pm_guarded_zero(destination: *mut u8, unused: usize, len: usize) -> Left;
    fn arck_pm_guarded_stream(destination: *mut u8, source: *const u8, len: usize) -> Left;
    fn arck_pm_guarded_load(destination: *mut u64, source: *const u64) -> Left;
    fn arck_pm_guarded_clwb(unused: usize, first: *const u8, lines: usize) -> Left;
    fn arck_pm_guarded_clflushopt(unused: usize, first: *const u8, lines: usize) -> Left;
    fn arck_pm_guarded_clflush(unused: usize, first: *const u8, lines: usize) -> Left;
}

/// What a routine gives back, in rax and rdx.
#[repr(C)]
struct Left {
    /// Bytes (or lines) not done; 0 if all went well.
    count: usize,
    /// Where it faulted, if `count` is not 0; 0 if the processor does not tell.
    address: usize,
}

const SA_RESTORER: u64 = 0x0400_0000;
const EVERY_SIGNAL: u64 = u64::MAX;
const SIGBUS: u64 = libc::SIGBUS as u64;
const SIGBUS_BIT: u64 = 1 << (libc::SIGBUS - 1);

static INSTALLED: AtomicBool = AtomicBool::new(false);
/// Spin lock of [`install_guard`], taken with all signals blocked.
static INSTALLING: AtomicBool = AtomicBool::new(false);
static NEXT: NextAction = NextAction::new();

/// Copies `len` bytes between ranges either of which may be a mapping of a file
/// that is being truncated. On a fault what was copied stays copied.
///
/// Installs the guard at the first use.
///
/// # Safety
/// Both ranges lie in memory that stays mapped (if perhaps without a page behind
/// it) for the access made, and they do not overlap.
#[inline(always)]
pub unsafe fn guarded_copy(
    destination: *mut u8,
    source: *const u8,
    len: usize,
) -> Result<(), Fault> {
    ensure_guard();
    // SAFETY: the ranges are the caller's; faults are recovered from.
    let left = unsafe { arck_pm_guarded_copy(destination, source, len) };
    outcome(len, left)
}

/// Fills with zeroes what may fault.
///
/// # Errors
/// [`Fault`]; what was filled before it stays so.
///
/// # Safety
/// As [`guarded_copy`].
#[inline(always)]
pub unsafe fn guarded_zero(destination: *mut u8, len: usize) -> Result<(), Fault> {
    ensure_guard();
    // SAFETY: the range is the caller's; faults are recovered from.
    let left = unsafe { arck_pm_guarded_zero(destination, 0, len) };
    outcome(len, left)
}

/// Loads one aligned word (as an acquire load would).
///
/// # Safety
/// `source` is aligned to 8 bytes and lies in memory that stays mapped.
#[inline(always)]
pub unsafe fn guarded_load_u64(source: *const u64) -> Result<u64, Fault> {
    ensure_guard();
    let mut value = 0u64;
    // SAFETY: the source is the caller's; faults are recovered from.
    let left = unsafe { arck_pm_guarded_load(&raw mut value, source) };
    outcome(8, left)?;
    Ok(value)
}

/// Streams whole lines.
///
/// # Safety
/// As [`guarded_copy`]; `destination` is aligned to 64 and `len` a multiple of 64.
#[inline(always)]
pub(crate) unsafe fn guarded_stream_lines(
    destination: *mut u8,
    source: *const u8,
    len: usize,
) -> Result<(), Fault> {
    ensure_guard();
    // SAFETY: the ranges are the caller's; faults are recovered from.
    let left = unsafe { arck_pm_guarded_stream(destination, source, len) };
    outcome(len, left)
}

/// Flushes the lines of a range.
///
/// # Safety
/// As [`guarded_copy`].
pub(crate) unsafe fn guarded_flush(address: *const u8, len: usize) -> Result<(), Fault> {
    let (first, count) = lines_of(address as usize, len);
    if count == 0 {
        return Ok(());
    }
    ensure_guard();
    let routine = match control::load().instruction() {
        FlushInstruction::Clwb => arck_pm_guarded_clwb,
        FlushInstruction::Clflushopt => arck_pm_guarded_clflushopt,
        FlushInstruction::Clflush => arck_pm_guarded_clflush,
    };
    let start = address.wrapping_sub(address as usize - first);
    // SAFETY: the lines hold the caller's range; faults are recovered from.
    let left = unsafe { routine(0, start, count) };
    outcome(
        len,
        Left {
            count: left.count * CACHE_LINE,
            ..left
        },
    )
}

#[inline(always)]
fn outcome(len: usize, left: Left) -> Result<(), Fault> {
    if left.count == 0 {
        Ok(())
    } else {
        Err(Fault {
            copied: len.saturating_sub(left.count),
            address: left.address,
        })
    }
}

#[inline(always)]
fn ensure_guard() {
    if !INSTALLED.load(Ordering::Relaxed) {
        install_guard();
    }
}

/// Installs the SIGBUS handler, once; later calls return at once. Whatever handler
/// there is becomes the next one in the chain.
///
/// Allocates nothing, makes raw system calls only, and may be called from a
/// preload library's constructor. A program that later installs its own handler
/// of SIGBUS by a raw system call takes the guard away; one that calls
/// `sigaction` should be led to [`set_next_action`] instead.
#[cold]
pub fn install_guard() {
    if INSTALLED.load(Ordering::Acquire) {
        return;
    }
    with_signals_blocked(|| {
        while INSTALLING.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        if !INSTALLED.load(Ordering::Relaxed) {
            install_handler();
            INSTALLED.store(true, Ordering::Release);
        }
        INSTALLING.store(false, Ordering::Release);
    });
}

/// For whoever has handlers of SIGBUS and SIGSEGV of its own and calls [`recover`] from them:
/// [`install_guard`] does nothing from now on. To be called before there are other threads.
pub fn guarded_by_caller() {
    INSTALLED.store(true, Ordering::Release);
}

/// Only under the INSTALLING lock, with all signals blocked.
fn install_handler() {
    let ours = KernelAction {
        handler: on_sigbus as *const () as u64,
        flags: libc::SA_SIGINFO as u64 | libc::SA_ONSTACK as u64 | SA_RESTORER,
        restorer: (&raw const arck_pm_restorer) as u64,
        mask: 0,
    };
    // The chain must be complete before the handler can run, so ask first.
    // SAFETY: asking changes nothing.
    let present = unsafe { rt_sigaction(None) };
    if present.handler == ours.handler {
        return;
    }
    NEXT.replace(present);
    // SAFETY: `on_sigbus` is an async-signal-safe handler of three arguments
    // and the restorer returns from it.
    let replaced = unsafe { rt_sigaction(Some(&ours)) };
    if replaced != present && replaced.handler != ours.handler {
        NEXT.replace(replaced);
    }
}

/// Names the action a SIGBUS that is not ours is passed on to, and returns the
/// one before; for the `sigaction` of a preload library. `None` only asks.
/// Async-signal-safe.
pub fn set_next_action(action: Option<KernelAction>) -> KernelAction {
    install_guard();
    match action {
        None => NEXT.read(),
        Some(action) => with_signals_blocked(|| NEXT.replace(action)),
    }
}

/// # Safety
/// The handler and restorer of `new` are fit to be called by the kernel.
unsafe fn rt_sigaction(new: Option<&KernelAction>) -> KernelAction {
    let mut old = KernelAction::default();
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: rt_sigaction(SIGBUS, new, &mut old, 8) reads `new` and writes `old`.
    unsafe {
        syscall4(
            libc::SYS_rt_sigaction,
            SIGBUS,
            new as u64,
            (&raw mut old) as u64,
            size_of::<u64>() as u64,
        )
    };
    old
}

fn with_signals_blocked<R>(run: impl FnOnce() -> R) -> R {
    let every = EVERY_SIGNAL;
    let mut before = 0u64;
    // SAFETY: rt_sigprocmask reads one mask and writes the other.
    unsafe {
        syscall4(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK as u64,
            (&raw const every) as u64,
            (&raw mut before) as u64,
            8,
        )
    };
    let result = run();
    change_mask(libc::SIG_SETMASK, before);
    result
}

fn change_mask(how: i32, mask: u64) {
    // SAFETY: rt_sigprocmask reads one mask and stores none.
    unsafe {
        syscall4(
            libc::SYS_rt_sigprocmask,
            how as u64,
            (&raw const mask) as u64,
            0,
            8,
        )
    };
}

/// A system call past libc, whose wrappers a preload library may interpose and
/// which would touch errno inside a handler.
///
/// # Safety
/// As the system call made.
unsafe fn syscall4(number: i64, a: u64, b: u64, c: u64, d: u64) -> i64 {
    let result;
    // SAFETY: the kernel changes rcx, r11 and rax only; memory as the call says.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Whether a signal is the fault of a guarded routine (SIGBUS, or SIGSEGV where the routine
/// was given memory that is not mapped or not mapped so); if it is, the interrupted code goes
/// on behind it once the handler returns. Async-signal-safe: it touches its arguments alone.
///
/// # Safety
/// Called by a signal handler with the kernel's arguments.
#[inline]
pub unsafe fn recover(info: *const libc::siginfo_t, context: *mut libc::ucontext_t) -> bool {
    // SAFETY: the kernel passes a valid siginfo.
    if unsafe { (*info).si_code } <= 0 {
        return false;
    }
    // SAFETY: the kernel passes a valid ucontext, the handler's alone.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize] as u64;
    let start = (&raw const arck_pm_guarded_start) as u64;
    let end = (&raw const arck_pm_guarded_end) as u64;
    if !(start..end).contains(&at) {
        return false;
    }
    let string = [
        &raw const arck_pm_guarded_string,
        &raw const arck_pm_guarded_fill,
    ];
    if string.iter().any(|&place| place as u64 == at) {
        // The string instructions keep their count in rcx.
        registers[libc::REG_RAX as usize] = registers[libc::REG_RCX as usize];
    }
    // SAFETY: a fault's siginfo has an address.
    registers[libc::REG_RDX as usize] = unsafe { (*info).si_addr() } as i64;
    registers[libc::REG_RIP as usize] = (&raw const arck_pm_guarded_recover) as i64;
    true
}

/// The handler. Async-signal-safe: it touches atomics, its arguments, and the
/// kernel.
unsafe extern "C" fn on_sigbus(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel's arguments.
    if unsafe { recover(info, context.cast()) } {
        return;
    }
    // SAFETY: the kernel passes a valid siginfo.
    let from_kernel = unsafe { (*info).si_code } > 0;
    // SAFETY: the arguments are the kernel's.
    unsafe { pass_on(signal, info, context, from_kernel) }
}

/// # Safety
/// The arguments are those the kernel gave to the handler.
unsafe fn pass_on(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    from_kernel: bool,
) {
    let next = NEXT.read();
    match next.handler as usize {
        libc::SIG_IGN if !from_kernel => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            let default = KernelAction {
                handler: libc::SIG_DFL as u64,
                ..KernelAction::default()
            };
            // SAFETY: the default action needs no handler.
            unsafe { rt_sigaction(Some(&default)) };
            if !from_kernel {
                // A fault happens again by itself; a signal that was sent does not.
                // SAFETY: plain system calls; the signal stays pending until
                // this handler returns.
                unsafe {
                    let process = syscall4(libc::SYS_getpid, 0, 0, 0, 0) as u64;
                    let thread = syscall4(libc::SYS_gettid, 0, 0, 0, 0) as u64;
                    syscall4(libc::SYS_tgkill, process, thread, SIGBUS, 0);
                }
            }
        }
        handler => {
            if next.flags & libc::SA_RESETHAND as u32 as u64 != 0 {
                with_signals_blocked(|| NEXT.replace(KernelAction::default()));
            }
            // Returning from our handler restores the mask of before.
            change_mask(libc::SIG_BLOCK, next.mask);
            if next.flags & libc::SA_NODEFER as u64 != 0 && next.mask & SIGBUS_BIT == 0 {
                change_mask(libc::SIG_UNBLOCK, SIGBUS_BIT);
            }
            if next.flags & libc::SA_SIGINFO as u64 != 0 {
                // SAFETY: the program installed this address as a handler of
                // three arguments.
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { std::mem::transmute(handler) };
                handler(signal, info, context);
            } else {
                // SAFETY: the program installed this address as a handler of
                // one argument.
                let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
                handler(signal);
            }
        }
    }
}
