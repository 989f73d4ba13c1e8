//! Dispatch: system calls that libc makes itself (stdio, opendir, realpath ...) trap as SIGSYS by
//! Syscall User Dispatch and are answered by the same handlers as the symbols.
//!
//! Two forms. *Exclusive* (Linux 5.11 on): all calls but those from this library's text trap, also those
//! that a program makes by its own instructions, wherever they are, and however late they were loaded.
//! *Inclusive* (6.17 on): only those from libc's text, for who asks for it. Sites of libc that trap often
//! are rewritten with both (see `patch`). Each thread has its own selector byte in
//! its block (see `thread`); a new thread starts without dispatch and is armed before it runs
//! its first instruction of libc, a forked child right after the fork.
//!
//! Invariants:
//! * This library makes system calls only from its own text, so they never trap.
//! * SIGSYS's handler runs with the interrupted code's mask (SA_NODEFER, empty mask) and its
//!   restorer is ours, so a call made in it behaves as if made by the program: it blocks, is
//!   interrupted and restarts as usual.
//! * It runs on the stack of the call, as libc has room there; where a runtime has stacks of its own (Go's),
//!   on the alternate one that it has made for handlers ([`use_alternate_stacks`](arming::use_alternate_stacks)).
//! * State that returning from a signal handler restores (mask, alternate stack) is changed in
//!   the context, not in the kernel.

pub mod arming;
pub mod kind;
pub mod text;

use crate::process::spawn;
use crate::raw::{self, Arguments, error, syscall};
use crate::signals;
use crate::thread;
use crate::{backend, calls, memory, patch, process, settings, stack, unreached};
use arming::{PR_SET_SYSCALL_USER_DISPATCH, arm};
use kind::{Choice, Kind, kind};
use std::ffi::CStr;
use text::is_libcs;

const SYS_USER_DISPATCH: i32 = 2;

struct Search {
    /// An address in the object looked for; 0 = look for libc by name.
    address: usize,
    found: Option<(usize, usize)>,
}

unsafe extern "C" fn visit(
    information: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut libc::c_void,
) -> i32 {
    // SAFETY: the loader's description of one object, and our own search.
    unsafe {
        let (information, search) = (&*information, &mut *search.cast::<Search>());
        let name = if information.dlpi_name.is_null() {
            &[][..]
        } else {
            CStr::from_ptr(information.dlpi_name).to_bytes()
        };
        if search.address == 0 && !name.ends_with(b"/libc.so.6") {
            return 0;
        }
        for i in 0..usize::from(information.dlpi_phnum) {
            let header = &*information.dlpi_phdr.add(i);
            if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_X == 0 {
                continue;
            }
            let start = information.dlpi_addr as usize + header.p_vaddr as usize;
            let length = header.p_memsz as usize;
            if search.address == 0 || (start..start + length).contains(&search.address) {
                search.found = Some((start, length));
                return 1;
            }
        }
        0
    }
}

/// The executable range of libc, or of the object that holds `address`.
fn text_range(address: usize) -> Option<(usize, usize)> {
    let mut search = Search {
        address,
        found: None,
    };
    // SAFETY: the callback gets our search, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// At start-up: puts up the best way of dispatch that the system allows, or the one asked for, on this thread.
pub fn start() {
    let mut wanted = settings::DISPATCH.get();
    if !matches!(wanted, b"" | b"sud-inclusive" | b"sud-exclusive" | b"none") {
        raw::print(
            2,
            b"arck: ARCK_DISPATCH is not sud-inclusive, sud-exclusive or none; taking the best there is\n",
        );
        wanted = b"";
    }
    let mut choice = if wanted.is_empty() {
        Choice::Best
    } else {
        Choice::Asked
    };
    for (kind, address) in [
        (Kind::Exclusive, start as *const () as usize),
        (Kind::Inclusive, 0),
    ] {
        if !wanted.is_empty() && wanted != kind.name().as_bytes() {
            continue;
        }
        if let Some(text) = text_range(address)
            && arming::put_up(kind, text, on_sigsys as *const () as usize)
        {
            break;
        }
        choice = Choice::Fallback;
    }
    kind::chosen(choice);
    if kind() == Kind::None {
        say_what_is_missing(choice);
    } else if let Some((start, length)) = text_range(0) {
        signals::before_handlers(patch::rewrite_known);
        text::is_libcs_text(start, length);
        patch::start(patch::places::Range {
            start,
            end: start + length,
        });
    }
}

/// Without dispatch what libc does inside its own functions goes to the kernel. That is said once,
/// by the first program; those that it executes find `ARCK_TOLD` in their environment.
fn say_what_is_missing(choice: Choice) {
    if settings::was_told() {
        return;
    }
    let why: &[u8] = match choice {
        Choice::Asked => b"ARCK_DISPATCH=none",
        _ => b"the kernel refuses Syscall User Dispatch",
    };
    let mut text = raw::Text::<512>::new();
    text.push(b"arck: no dispatch under libc (")
        .push(why)
        .push(b"): files of ")
        .push(settings::MOUNT.get())
        .push(
            b" are not seen by fopen and what else reads or writes streams, opendir, realpath, \
              glob, ftw, mkstemp, system, popen, posix_spawn\n",
        );
    raw::print(2, text.bytes());
    // SAFETY: constant strings, before there are other threads.
    unsafe { libc::setenv(c"ARCK_TOLD".as_ptr(), c"1".as_ptr(), 1) };
}

/// A system call from the dispatch's range. Asynchronous cancellation is off before anything else.
unsafe extern "C-unwind" fn on_sigsys(
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: the kernel's arguments.
    unsafe {
        let after = (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
        raw::uncancelled(patch::shared::is_cancellation_point(after), || {
            trapped(signal, information, context);
            0
        });
    }
}

/// Not inlined, so that `on_sigsys` has nothing to clean up and can be unwound from any
/// instruction.
#[inline(never)]
unsafe fn trapped(signal: i32, information: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel's arguments; the interrupted code's arguments are as for the system
    // call it made.
    unsafe {
        if (*information).si_code != SYS_USER_DISPATCH {
            signals::deliver(thread::current(), signal, information, context);
            return;
        }
        let errno = libc::__errno_location();
        let before = *errno;
        let registers = &mut (*context).uc_mcontext.gregs;
        let register = |index: i32| registers[index as usize] as usize;
        let number = register(libc::REG_RAX);
        let a: Arguments = [
            register(libc::REG_RDI),
            register(libc::REG_RSI),
            register(libc::REG_RDX),
            register(libc::REG_R10),
            register(libc::REG_R8),
            register(libc::REG_R9),
        ];
        patch::trapped(number, register(libc::REG_RIP));
        if number as i64 == libc::SYS_arch_prctl && a[0] == ARCH_SET_FS {
            give_up();
            *errno = before;
            // It is made again, by the program's own instruction, when nothing needs the old storage.
            (*context).uc_mcontext.gregs[libc::REG_RIP as usize] -= SYSCALL_LENGTH;
            return;
        }
        let result = answer(number, &a, context);
        *errno = before;
        (*context).uc_mcontext.gregs[libc::REG_RAX as usize] = result as i64;
    }
}

const ARCH_SET_FS: usize = 0x1002;
/// Bytes of a `syscall` instruction.
const SYSCALL_LENGTH: i64 = 2;

/// The thread is about to have storage that is not libc's, without this library's block: nothing can be
/// answered on it any more. Programs do that which use no libc although the loader has loaded one with this
/// library: some of Go's.
fn give_up() {
    unreached::say_of_this(unreached::Reason::OwnStorage);
    thread::has_no_block();
    patch::foreign::end();
    // SAFETY: switches this thread's dispatch off.
    unsafe { syscall!(libc::SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) };
}

unsafe fn answer(number: usize, a: &Arguments, context: *mut libc::ucontext_t) -> isize {
    // SAFETY: as in `on_sigsys`.
    unsafe {
        match number as i64 {
            libc::SYS_rt_sigreturn => {
                let frame = (*context).uc_mcontext.gregs[libc::REG_RSP as usize];
                std::arch::asm!("mov rsp, {frame}", "mov eax, 15", "syscall", "ud2",
                    frame = in(reg) frame, options(noreturn));
            }
            libc::SYS_rt_sigprocmask => signals::change_context_mask(a, context),
            libc::SYS_sigaltstack => {
                let from = (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
                if a[0] != 0 && !is_libcs(from) {
                    arming::use_alternate_stacks();
                }
                let result = raw::call(number, a);
                if result == 0 && a[0] != 0 {
                    (*context).uc_stack = (a[0] as *const libc::stack_t).read_unaligned();
                    stack::alternate_was_set();
                }
                result
            }
            libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
                clone(number, a, context)
            }
            _ => calls::dispatch(number, a),
        }
    }
}

/// The kernel's `struct clone_args`, first version and what followed.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;

impl CloneArguments {
    /// Whether it asks for a child as `vfork` makes it, on a stack of its own, and nothing more.
    fn is_plain_spawn(&self) -> bool {
        let vfork = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
        self.flags & !CLONE_CLEAR_SIGHAND == vfork
            && self.exit_signal == libc::SIGCHLD as u64
            && self.stack >= 4096
            && self.set_tid_size == 0
    }
}

/// Any way of making a thread or process. What shares memory and goes on beside its parent is a
/// thread; what `posix_spawn` makes is in [`spawn`]; all else becomes a fork, also `vfork`, since a child
/// in our memory would use our session's locks.
unsafe fn clone(number: usize, a: &Arguments, context: *mut libc::ucontext_t) -> isize {
    // SAFETY: as in `on_sigsys`.
    unsafe {
        spawn::detach();
        let mut given = CloneArguments::default();
        match number as i64 {
            libc::SYS_clone3 => {
                let size = a[1].min(size_of::<CloneArguments>());
                if a[0] < 4096 || a[1] < 64 {
                    return raw::call(number, a);
                }
                let to = (&raw mut given).cast::<u8>();
                std::ptr::copy_nonoverlapping(a[0] as *const u8, to, size);
                // From here on `stack` is the top, as clone has it.
                given.stack += given.stack_size;
            }
            libc::SYS_clone => {
                given.flags = a[0] as u64 & !0xff;
                given.exit_signal = a[0] as u64 & 0xff;
                given.stack = a[1] as u64;
                given.parent_tid = a[2] as u64;
                given.child_tid = a[3] as u64;
                given.tls = a[4] as u64;
            }
            libc::SYS_vfork => {
                given.flags = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
                given.exit_signal = libc::SIGCHLD as u64;
            }
            _ => given.exit_signal = libc::SIGCHLD as u64,
        }
        let has = |flag: i32| given.flags & flag as u32 as u64 != 0;
        if has(libc::CLONE_VM) && !has(libc::CLONE_VFORK) {
            if given.stack == 0 {
                return error(libc::EINVAL);
            }
            patch::before_threads();
            return clone_thread(number, a, &given, context);
        }
        let spawning = has(libc::CLONE_VM) && runs_libcs(number, &given, context);
        let cleared = given.flags & CLONE_CLEAR_SIGHAND != 0;
        if spawning
            && given.is_plain_spawn()
            && !backend::any_maps()
            && !signals::children_end_unseen()
            && let Some(lent) = spawn::Lent::prepare()
        {
            let own = if cleared { SPAWNED_CLEARED } else { SPAWNED };
            // There libc's `clone` has put what the child takes off, and writes over, before it may turn out
            // that another child is needed.
            let top = given.stack as *mut [u64; 2];
            let has_words = number as i64 == libc::SYS_clone;
            let kept = if has_words {
                top.read_unaligned()
            } else {
                [0; 2]
            };
            let result = clone_on_stack(number, a, &given, context, own);
            if let Some(result) = lent.returned(result, patch::rewrite_noted) {
                return result;
            }
            if has_words {
                top.write_unaligned(kept);
            }
        }
        let flags = process::sharing::apart(given.flags);
        let fork = process::fork::Fork::prepare(spawning);
        let result = if number as i64 == libc::SYS_clone3 {
            let mut changed = given;
            changed.flags = flags;
            changed.stack = 0;
            changed.stack_size = 0;
            syscall!(
                libc::SYS_clone3,
                &raw const changed,
                size_of::<CloneArguments>()
            )
        } else {
            syscall!(
                libc::SYS_clone,
                flags | given.exit_signal,
                0,
                given.parent_tid,
                given.child_tid,
                given.tls
            )
        };
        if result != 0 {
            return fork.parent(result);
        }
        fork.child(cleared);
        if given.stack != 0 {
            (*context).uc_mcontext.gregs[libc::REG_RSP as usize] = given.stack as i64;
        }
        0
    }
}

/// Whether a child that is made on a stack of its own runs a function of libc's: then it is
/// `posix_spawn`'s, and any other the program's.
///
/// # Safety
/// libc's arguments of a system call that makes a process, and its registers.
unsafe fn runs_libcs(
    number: usize,
    given: &CloneArguments,
    context: *mut libc::ucontext_t,
) -> bool {
    if given.stack < 4096 {
        return false;
    }
    // SAFETY: libc's `clone` has put the function on the child's stack, and `clone3` keeps it in a
    // register.
    let function = unsafe {
        match number as i64 {
            libc::SYS_clone3 => (*context).uc_mcontext.gregs[libc::REG_RDX as usize] as usize,
            _ => match memory::copy_in::<usize>(given.stack as usize) {
                Ok(function) => function,
                Err(_) => return false,
            },
        }
    };
    is_libcs(function)
}

std::arch::global_asm!(
    // fn arck_clone(registers: *const [u64; 13]) -> isize: makes the system call described by
    // the registers. The parent returns here; the child, on its new stack, arms its dispatch and goes
    // on at the address found below its stack's top, with the registers as they were.
    ".globl arck_clone",
    ".hidden arck_clone",
    ".type arck_clone,@function",
    "arck_clone:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov rax, [rdi]",
    "mov rsi, [rdi + 16]",
    "mov rdx, [rdi + 24]",
    "mov r10, [rdi + 32]",
    "mov r8, [rdi + 40]",
    "mov r9, [rdi + 48]",
    "mov rbx, [rdi + 56]",
    "mov rbp, [rdi + 64]",
    "mov r12, [rdi + 72]",
    "mov r13, [rdi + 80]",
    "mov r14, [rdi + 88]",
    "mov r15, [rdi + 96]",
    "mov rdi, [rdi + 8]",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    "2:",
    "lea rsp, [rsp - 32]",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "push r8",
    "push r9",
    "push rbp",
    "mov rbp, rsp",
    "lea rsi, [rsp + 88]",
    "mov rdi, [rsi - 16]",
    "mov rdx, [rsi - 24]",
    "and rsp, -16",
    "call {started}",
    "mov rsp, rbp",
    "pop rbp",
    "pop r9",
    "pop r8",
    "pop r10",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "xor eax, eax",
    "lea rsp, [rsp + 32]",
    "jmp qword ptr [rsp - 8]",
    started = sym thread_started,
);

unsafe extern "C" {
    fn arck_clone(registers: *const [u64; 13]) -> isize;
}

/// A thread that has thread-local storage of its own. (A task that shares its parent's cannot be armed,
/// since they would share the selector.)
const OWN: u64 = 1;
/// A child in its parent's memory, which waits for it.
const SPAWNED: u64 = 2;
/// One whose handlers were reset.
const SPAWNED_CLEARED: u64 = 3;

/// The first thing a new thread or child in this memory runs, with the top of its stack, and how large
/// that is: 0 if nobody has said so.
extern "C" fn thread_started(own: u64, top: usize, size: usize) {
    match own {
        OWN => {
            stack::thread_started(top, size);
            arm();
        }
        SPAWNED | SPAWNED_CLEARED => spawn::begin(own == SPAWNED_CLEARED),
        _ => {}
    }
}

unsafe fn clone_thread(
    number: usize,
    a: &Arguments,
    given: &CloneArguments,
    context: *mut libc::ucontext_t,
) -> isize {
    // SAFETY: the kernel's context.
    let from = unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize };
    // What others than libc give a thread for its storage has no block of this library's in it.
    let own = given.flags & libc::CLONE_SETTLS as u64 != 0 && is_libcs(from);
    if !own {
        thread::has_no_block();
        patch::foreign::end();
    }
    // SAFETY: as in `on_sigsys`.
    unsafe { clone_on_stack(number, a, given, context, if own { OWN } else { 0 }) }
}

/// Makes a thread or child in this memory, on a stack of its own, that goes on where the program made
/// the call. `own`: what [`thread_started`] is told.
unsafe fn clone_on_stack(
    number: usize,
    a: &Arguments,
    given: &CloneArguments,
    context: *mut libc::ucontext_t,
    own: u64,
) -> isize {
    // SAFETY: the words below the top of the child's stack are free: the child has not run.
    unsafe {
        let gregs = &(*context).uc_mcontext.gregs;
        let top = given.stack as *mut u64;
        top.sub(1).write(gregs[libc::REG_RIP as usize] as u64);
        top.sub(2).write(own);
        top.sub(3).write(given.stack_size);
        let saved = |index: i32| gregs[index as usize] as u64;
        let registers = [
            number as u64,
            a[0] as u64,
            a[1] as u64,
            a[2] as u64,
            a[3] as u64,
            a[4] as u64,
            a[5] as u64,
            saved(libc::REG_RBX),
            saved(libc::REG_RBP),
            saved(libc::REG_R12),
            saved(libc::REG_R13),
            saved(libc::REG_R14),
            saved(libc::REG_R15),
        ];
        arck_clone(&registers)
    }
}
