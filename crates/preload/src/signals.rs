//! Signals: the program's handlers run through [`on_signal`], so that none runs while its thread
//! is inside the LibFS, and SIGSYS stays ours and unblocked.
//!
//! A signal that arrives inside the LibFS is put off: its information is kept in the thread's
//! block, everything is blocked in the interrupted context, and when the operation leaves the
//! LibFS the signal is queued again to the same thread and the old mask comes back. The same holds outside of it
//! while a thread [must not be broken](thread::unbroken). So a handler may use pool files, and `longjmp` out of a handler never skips LibFS code.
//!
//! Invariants:
//! * The kernel's handler for a signal that the program handles is `on_signal`; `ACTIONS` holds
//!   what the program asked for, and is what it is told when it asks back.
//! * For SIGBUS and SIGSEGV it is `on_signal` whatever the program asked for, from before its
//!   first instruction on: a fault of a guarded copy is recovered from and seen by nobody, any
//!   other goes where it would have gone without us.
//! * SIGSYS is never blocked and never handled by anybody else while the dispatch is up; the
//!   program's own SIGSYS handler sees those that are not the dispatch's.
//! * libc's cancellation signal (32) is put off like any other, so that a cancelled thread never
//!   unwinds out of the LibFS; its signal 33 is left alone.
//! * Every `SA_RESTORER` installed by us points into this library, outside the dispatch's range.

pub mod kernel;

use crate::backend;
use crate::descriptors::replacements;
use crate::dispatch::kind;
use crate::process::spawn;
use crate::raw::{self, Arguments, error, syscall};
use crate::thread::{self, OUTSIDE_DISPATCH, Thread};
use crate::{memory, settings};
use kernel::{KernelAction, OPEN, bit, change_mask, restorer, set_kernel_action, set_mask};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const SA_RESTORER: u64 = 0x0400_0000;
const SIGNALS: usize = 65;

/// What was asked for one signal.
struct Action {
    handler: AtomicUsize,
    flags: AtomicU64,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

impl Action {
    const fn new() -> Self {
        Action {
            handler: AtomicUsize::new(0),
            flags: AtomicU64::new(0),
            restorer: AtomicUsize::new(0),
            mask: AtomicU64::new(0),
        }
    }
    fn set(&self, action: &KernelAction) {
        self.flags.store(action.flags, Ordering::Relaxed);
        self.restorer.store(action.restorer, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        self.handler.store(action.handler, Ordering::Release);
    }
    fn get(&self) -> KernelAction {
        KernelAction {
            handler: self.handler.load(Ordering::Acquire),
            flags: self.flags.load(Ordering::Relaxed),
            restorer: self.restorer.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }
}

/// The program's.
static ACTIONS: [Action; SIGNALS] = [const { Action::new() }; SIGNALS];

/// A mask without SIGSYS.
pub const fn without_sigsys(mask: u64) -> u64 {
    mask & !bit(libc::SIGSYS)
}

fn trampoline() -> usize {
    on_signal as *const () as usize
}

/// `rt_sigaction`, in the kernel's layout.
///
/// # Safety
/// As the system call's.
pub unsafe fn rt_sigaction(a: &Arguments) -> isize {
    let signal = a[0] as i32;
    // SAFETY: pointers are null or valid by the call's contract.
    unsafe {
        if a[3] != 8 || !(1..SIGNALS as i32).contains(&signal) {
            return raw::call(libc::SYS_rt_sigaction as usize, a);
        }
        let new = match (a[1] != 0).then(|| memory::copy_in::<KernelAction>(a[1])) {
            None => None,
            Some(Ok(new)) => Some(new),
            Some(Err(_)) => return error(libc::EFAULT),
        };
        let mut old = KernelAction::default();
        let result = change(signal, new, &mut old);
        if result == 0 && a[2] != 0 && memory::copy_out(a[2], &old).is_err() {
            return error(libc::EFAULT);
        }
        result
    }
}

unsafe fn change(signal: i32, new: Option<KernelAction>, old: &mut KernelAction) -> isize {
    let index = signal as usize;
    // SAFETY: actions are the program's, or lead to `on_signal`.
    unsafe {
        if signal == libc::SIGSYS && kind::kind() != kind::Kind::None {
            *old = ACTIONS[index].get();
            let Some(new) =
                new.filter(|new| !replacements::is_spawned_child() || !is_no_change(index, new))
            else {
                return 0;
            };
            spawn::detach();
            ACTIONS[index].set(&new);
            return 0;
        }
        let result = set_kernel_action(signal, std::ptr::null(), old);
        if result != 0 {
            return result;
        }
        let through = old.handler == trampoline();
        if through {
            *old = ACTIONS[index].get();
        }
        let Some(new) = new else { return 0 };
        if replacements::is_spawned_child() {
            // What is noted here is its parent's, which has the handler still. The child's own is the
            // kernel's to know, where nothing has to be noted.
            let guarded = GUARDED.contains(&signal);
            if new.handler <= 1 && !guarded {
                return set_kernel_action(signal, &new, std::ptr::null_mut());
            }
            if guarded && is_no_change(index, &new) {
                return 0;
            }
            spawn::detach();
        }
        if new.handler > 1 {
            before_handler();
        }
        let reserved = !settings::ready() || thread::inside() || signal == 33;
        if !GUARDED.contains(&signal) && (reserved || new.handler <= 1) {
            let mut plain = new;
            if new.handler > 1 {
                plain.flags |= SA_RESTORER;
                plain.restorer = restorer();
                plain.mask = without_sigsys(plain.mask);
            }
            let result = set_kernel_action(signal, &plain, std::ptr::null_mut());
            if result == 0 {
                ACTIONS[index].set(&new);
            }
            return result;
        }
        let before = ACTIONS[index].get();
        ACTIONS[index].set(&new);
        let result = set_kernel_action(signal, &through_trampoline(&new), std::ptr::null_mut());
        if result != 0 {
            ACTIONS[index].set(&before);
        }
        result
    }
}

/// What is run before the program has a handler, as an address; 0: nothing.
static BEFORE_HANDLERS: AtomicUsize = AtomicUsize::new(0);

/// At start-up: what is to be done before the program has a handler.
pub fn before_handlers(run: fn()) {
    BEFORE_HANDLERS.store(run as *const () as usize, Ordering::Relaxed);
}

fn before_handler() {
    let run = BEFORE_HANDLERS.swap(0, Ordering::Relaxed);
    if run != 0 {
        // SAFETY: the address of a function of this type.
        unsafe { std::mem::transmute::<usize, fn()>(run)() };
    }
}

/// Whether there is no handler, and the same becomes of the signal as before.
fn is_no_change(index: usize, new: &KernelAction) -> bool {
    new.handler <= 1 && new.handler == ACTIONS[index].get().handler
}

fn through_trampoline(action: &KernelAction) -> KernelAction {
    KernelAction {
        handler: trampoline(),
        // SA_RESETHAND is done by `on_signal`, when the handler really runs.
        flags: (action.flags & !(libc::SA_RESETHAND as u32 as u64))
            | SA_RESTORER
            | libc::SA_SIGINFO as u64
            // Where the program has no handler, ours runs wherever there is room.
            | if action.handler <= 1 { libc::SA_ONSTACK as u64 } else { 0 },
        restorer: restorer(),
        mask: without_sigsys(action.mask),
    }
}

/// The signals of bad addresses.
const GUARDED: [i32; 2] = [libc::SIGBUS, libc::SIGSEGV];

/// Takes the signals of bad addresses, before the program runs.
pub fn guard() {
    thread::raise_by(raise_pending);
    for signal in GUARDED {
        let mut present = KernelAction::default();
        // SAFETY: the handler is `on_signal`, which passes on what is not ours.
        unsafe {
            // A runtime that is started before this library may have asked for a handler already.
            if set_kernel_action(signal, std::ptr::null(), &mut present) == 0
                && present.handler != trampoline()
            {
                ACTIONS[signal as usize].set(&present);
                set_kernel_action(signal, &through_trampoline(&present), std::ptr::null_mut());
            }
        }
    }
    arckfs::guarded::guarded_by_caller();
}

/// Whether the kernel reaps the process's children itself, and tells of each (SA_NOCLDWAIT).
pub fn children_end_unseen() -> bool {
    ACTIONS[libc::SIGCHLD as usize].get().flags & libc::SA_NOCLDWAIT as u64 != 0
}

/// Runs an exec, at which handlers are lost but what is ignored stays so.
pub fn executing(execute: impl FnOnce() -> isize) -> isize {
    let ignored = |signal: &i32| ACTIONS[*signal as usize].get().handler == libc::SIG_IGN;
    for signal in GUARDED.into_iter().filter(ignored) {
        let ignore = KernelAction {
            handler: libc::SIG_IGN,
            ..KernelAction::default()
        };
        // SAFETY: no handler.
        unsafe { set_kernel_action(signal, &ignore, std::ptr::null_mut()) };
    }
    let result = execute();
    for signal in GUARDED.into_iter().filter(ignored) {
        let ours = through_trampoline(&ACTIONS[signal as usize].get());
        // SAFETY: the handler is `on_signal`.
        unsafe { set_kernel_action(signal, &ours, std::ptr::null_mut()) };
    }
    result
}

type HandlerFunction =
    unsafe extern "C-unwind" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t);

fn is_synchronous(signal: i32, code: i32) -> bool {
    code > 0
        && matches!(
            signal,
            libc::SIGSEGV
                | libc::SIGBUS
                | libc::SIGFPE
                | libc::SIGILL
                | libc::SIGTRAP
                | libc::SIGSYS
        )
}

/// What the kernel calls for every signal that the program handles.
unsafe extern "C-unwind" fn on_signal(
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    let thread = thread::current();
    // SAFETY: the kernel's information and context; the handler is the program's own choice.
    unsafe {
        if GUARDED.contains(&signal) && arckfs::guarded::recover(information, context) {
            return;
        }
        let synchronous = is_synchronous(signal, (*information).si_code);
        if signal == libc::SIGBUS
            && synchronous
            && thread.depth.load(Ordering::Relaxed) == 0
            && is_there_by_now((*information).si_addr() as usize)
        {
            return;
        }
        if !synchronous && thread.puts_off() {
            put_off(thread, signal, information, context);
            return;
        }
        deliver(thread, signal, information, context);
    }
}

/// Whether there is something at an address where the program has found nothing: in a map of a file that another process
/// of the group has made longer since this one has called anything.
#[cold]
fn is_there_by_now(address: usize) -> bool {
    if !backend::has_maps(address, 1) {
        return false;
    }
    // SAFETY: the thread's own; the program is between two instructions, and finds it as it was.
    let errno = unsafe { *libc::__errno_location() };
    // In its handler the signal is blocked: a guarded look at nothing would end the program.
    let before = change_mask(libc::SIG_UNBLOCK, OPEN);
    let caught_up = backend::inside(|session| Ok(session.catch_up_with_maps(address)?));
    let is_there = caught_up.is_ok() && memory::is_readable(address);
    set_mask(before);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    is_there
}

/// Runs the program's action for a signal now.
///
/// # Safety
/// In a signal handler, with the kernel's arguments.
pub unsafe fn deliver(
    thread: &Thread,
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    let index = signal as usize % SIGNALS;
    let action = ACTIONS[index].get();
    // SAFETY: the caller's promise.
    unsafe {
        let synchronous = is_synchronous(signal, (*information).si_code);
        match action.handler {
            1 if !synchronous || signal == libc::SIGSYS => {}
            // A fault cannot be ignored, it would happen again for ever.
            0 | 1 => {
                let default = KernelAction::default();
                set_kernel_action(signal, &default, std::ptr::null_mut());
                if !synchronous || signal == libc::SIGSYS {
                    let thread_id = syscall!(libc::SYS_gettid);
                    syscall!(libc::SYS_tgkill, raw::process_id(), thread_id, signal);
                }
            }
            handler => {
                if action.flags & libc::SA_RESETHAND as u32 as u64 != 0 {
                    // What is noted is a parent's, in whose memory this may be.
                    if !replacements::is_spawned_child() {
                        ACTIONS[index].set(&KernelAction::default());
                    }
                    let default = KernelAction::default();
                    if signal != libc::SIGSYS {
                        set_kernel_action(signal, &default, std::ptr::null_mut());
                    }
                }
                if action.flags & libc::SA_RESTART as u32 as u64 == 0 {
                    thread.interruptions.fetch_add(1, Ordering::Relaxed);
                }
                // The handler is the program's code, wherever the thread was interrupted.
                let selector = thread
                    .selector
                    .swap(thread.armed.load(Ordering::Relaxed), Ordering::Relaxed);
                let cancellation = thread
                    .cancellation
                    .swap(OUTSIDE_DISPATCH, Ordering::Relaxed);
                thread.handlers.fetch_add(1, Ordering::Relaxed);
                call(handler, signal, information, context);
                thread.handlers.fetch_sub(1, Ordering::Relaxed);
                thread.cancellation.store(cancellation, Ordering::Relaxed);
                thread.selector.store(selector, Ordering::Relaxed);
            }
        }
    }
}

/// # Safety
/// `handler` is a signal handler's address.
unsafe fn call(
    handler: usize,
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: handlers of one argument ignore the other two in this calling convention.
    unsafe { std::mem::transmute::<usize, HandlerFunction>(handler)(signal, information, context) };
}

/// Where the kernel keeps the interrupted code's mask: 8 bytes, whatever libc's type says.
///
/// # Safety
/// The kernel's context, in its signal handler.
pub unsafe fn context_mask<'a>(context: *mut libc::ucontext_t) -> &'a mut u64 {
    // SAFETY: the field exists and is aligned to 8.
    unsafe { &mut *(&raw mut (*context).uc_sigmask).cast::<u64>() }
}

unsafe fn put_off(
    thread: &Thread,
    signal: i32,
    information: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: the kernel's pointers; everything asynchronous is blocked until
    // `raise_pending`, so there is only ever one signal put off.
    unsafe {
        for (i, word) in thread.pending_info.iter().enumerate() {
            word.store(
                information.cast::<u64>().add(i).read_unaligned(),
                Ordering::Relaxed,
            );
        }
        let mask = context_mask(context);
        thread.pending_mask.store(*mask, Ordering::Relaxed);
        *mask = !OPEN;
    }
    thread.pending.store(signal, Ordering::Relaxed);
}

/// Raises again what was put off; called when the thread has left the LibFS.
#[cold]
fn raise_pending(thread: &Thread) {
    let signal = thread.pending.swap(0, Ordering::Relaxed);
    let mut information = [0u64; 16];
    for (word, kept) in information.iter_mut().zip(&thread.pending_info) {
        *word = kept.load(Ordering::Relaxed);
    }
    let mask = thread.pending_mask.load(Ordering::Relaxed);
    // SAFETY: queues a signal to this very thread.
    unsafe {
        let thread_id = syscall!(libc::SYS_gettid);
        syscall!(
            libc::SYS_rt_tgsigqueueinfo,
            raw::process_id(),
            thread_id,
            signal,
            information.as_ptr()
        );
    }
    set_mask(mask);
}

/// `rt_sigprocmask` outside a signal handler: SIGSYS is left out of what is blocked.
///
/// # Safety
/// As the system call's.
pub unsafe fn rt_sigprocmask(a: &Arguments) -> isize {
    // SAFETY: the program's pointers.
    unsafe {
        let given = memory::copy_in::<u64>(a[1]).ok().filter(|_| a[3] == 8);
        let Some(mask) = given else {
            return raw::call(libc::SYS_rt_sigprocmask as usize, a);
        };
        let mask = if a[0] as i32 == libc::SIG_UNBLOCK {
            mask
        } else {
            without_sigsys(mask)
        };
        syscall!(libc::SYS_rt_sigprocmask, a[0], &raw const mask, a[2], 8)
    }
}

/// The same for code that was interrupted by the dispatch: its mask is in the context.
///
/// # Safety
/// As the system call's, with the kernel's context.
pub unsafe fn change_context_mask(a: &Arguments, context: *mut libc::ucontext_t) -> isize {
    // SAFETY: the program's pointers and the kernel's context.
    unsafe {
        let current = context_mask(context);
        if a[3] != 8 {
            return error(libc::EINVAL);
        }
        let before = *current;
        if a[1] != 0 {
            let mask = match memory::copy_in::<u64>(a[1]) {
                Ok(mask) => mask,
                Err(_) => return error(libc::EFAULT),
            };
            let never = bit(libc::SIGKILL) | bit(libc::SIGSTOP) | bit(libc::SIGSYS);
            *current = match a[0] as i32 {
                libc::SIG_BLOCK => before | mask,
                libc::SIG_UNBLOCK => before & !mask,
                libc::SIG_SETMASK => mask,
                _ => return error(libc::EINVAL),
            } & !never;
        }
        if a[2] != 0 && memory::copy_out(a[2], &before).is_err() {
            return error(libc::EFAULT);
        }
        0
    }
}

/// Calls that take a temporary mask by pointer in argument `AT`.
///
/// # Safety
/// As the system call's.
pub unsafe fn with_mask<const NUMBER: usize, const AT: usize>(a: &Arguments) -> isize {
    // SAFETY: the program's pointers.
    unsafe {
        let Ok(mask) = memory::copy_in::<u64>(a[AT]) else {
            return raw::blocking_call(NUMBER, a);
        };
        let mask = without_sigsys(mask);
        let mut changed = *a;
        changed[AT] = &raw const mask as usize;
        raw::blocking_call(NUMBER, &changed)
    }
}

/// `pselect6` and others, whose last argument points to the mask's address and size.
///
/// # Safety
/// As the system call's.
pub unsafe fn with_pair<const NUMBER: usize>(a: &Arguments) -> isize {
    // SAFETY: the program's pointers.
    unsafe {
        let Ok([address, size]) = memory::copy_in::<[usize; 2]>(a[5]) else {
            return raw::blocking_call(NUMBER, a);
        };
        let Ok(mask) = memory::copy_in::<u64>(address) else {
            return raw::blocking_call(NUMBER, a);
        };
        let mask = without_sigsys(mask);
        let pair = [&raw const mask as usize, size];
        let mut changed = *a;
        changed[5] = pair.as_ptr() as usize;
        raw::blocking_call(NUMBER, &changed)
    }
}
