//! Passing signals on to the command.
//!
//! Invariants:
//! * A signal that another process sends to `arck run` reaches the command; one that the kernel
//!   sends (a key on the terminal) reached it already, being in the same process group.
//! * A signal that comes before the command exists waits for it; nothing is sent after its end
//!   was seen, so never to a process that took over its number.
//! * What was ignored at start-up (`nohup`) stays ignored, here and in the command.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Signals that are passed on.
const FORWARDED: [libc::c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGCONT,
];

/// [`CHILD`] before the command exists.
const NOT_STARTED: i32 = 0;
/// [`CHILD`] after its end.
const ENDED: i32 = -1;

/// Process of the command.
static CHILD: AtomicI32 = AtomicI32::new(NOT_STARTED);
/// Signals that came before it: bit *n* is signal *n*.
static PENDING: AtomicU64 = AtomicU64::new(0);

extern "C" fn pass_on(
    signal: libc::c_int,
    information: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    match CHILD.load(Ordering::SeqCst) {
        NOT_STARTED => {
            PENDING.fetch_or(1 << signal, Ordering::SeqCst);
        }
        ENDED => {}
        child => {
            // SAFETY: installed with SA_SIGINFO, so the kernel passes a valid structure.
            // `kill` may be called in a handler; errno is restored for the code interrupted.
            unsafe {
                if (*information).si_code <= 0 {
                    let errno = *libc::__errno_location();
                    libc::kill(child, signal);
                    *libc::__errno_location() = errno;
                }
            }
        }
    }
}

/// Has the kernel tell how children end, also where that was ignored at start-up, as some daemons leave it
/// to what they start: the command finds it ignored then. Before there are children.
pub fn notice_ends(command: &mut Command) {
    // SAFETY: no handler of anybody's is replaced: `exec` has left none.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    if before != libc::SIG_IGN {
        return;
    }
    let ignore_again = || {
        // SAFETY: a system call without memory, between fork and exec.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: see within.
    unsafe { command.pre_exec(ignore_again) };
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// A limit on the size of files that the command is to have is an error to `arck run` (EFBIG), and not its end. The
/// command does not inherit that: `exec` resets handlers.
pub fn outlive_size_limits() {
    let handler = nothing as *const () as usize;
    // SAFETY: a handler that does nothing; one that was ignored at start-up stays so.
    unsafe {
        if libc::signal(libc::SIGXFSZ, handler) == libc::SIG_IGN {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        }
    }
}

/// Installs the handlers. The command does not inherit them: `exec` resets handlers.
pub fn forward() {
    let handler = pass_on as *const () as usize;
    // SAFETY: it takes what SA_SIGINFO has the kernel pass, and only does what a handler may.
    unsafe { handle(&FORWARDED, handler, libc::SA_SIGINFO | libc::SA_RESTART) };
}

/// Has `handler` called for `signals`, but for those that are ignored: they stay so.
///
/// # Safety
/// `handler` is the address of a function that takes what `flags` has the kernel pass, and that does
/// only what a handler may, at any time until the program ends.
pub unsafe fn handle(signals: &[libc::c_int], handler: usize, flags: libc::c_int) {
    for &signal in signals {
        // SAFETY: plain structures, zeroed first; the handler is the caller's promise.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut before) != 0
                || before.sa_sigaction == libc::SIG_IGN
            {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = flags;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// The command runs: from now on signals go to it, those that came before first.
pub fn child_started(process: u32) {
    let Ok(child) = i32::try_from(process) else {
        return;
    };
    CHILD.store(child, Ordering::SeqCst);
    let pending = PENDING.swap(0, Ordering::SeqCst);
    for signal in FORWARDED {
        if pending & (1 << signal) != 0 {
            // SAFETY: no memory involved; our own child, not yet waited for.
            unsafe { libc::kill(child, signal) };
        }
    }
}

/// Waits until the command has ended, leaving its status to be collected. Blocks without bound.
pub fn wait_for_end(process: u32) -> io::Result<()> {
    loop {
        // SAFETY: `information` is a local of the right type.
        let result = unsafe {
            let mut information: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(
                libc::P_PID,
                process,
                &mut information,
                libc::WEXITED | libc::WNOWAIT,
            )
        };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The command has ended: signals are dropped while `arck run` tidies up, which is bounded.
pub fn child_ended() {
    CHILD.store(ENDED, Ordering::SeqCst);
}

/// Ends this process by a signal, as its command was, without a core file of its own. Returns
/// only if that signal cannot end it.
pub fn die_of(signal: i32) {
    // SAFETY: plain structures and calls; this thread is the only one that matters by now.
    unsafe {
        let no_core = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
    }
}
