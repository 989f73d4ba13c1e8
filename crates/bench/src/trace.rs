//! Counts the system calls of a child from outside, by ptrace: whatever library makes them, in
//! whatever thread, each one is seen. And the instructions of one thread, by single steps, which no load of
//! the machine changes.
//!
//! # Invariants
//! * Phases begin and end with a marker: `prctl` with an option that does not exist, which no
//!   library makes and the kernel refuses, made by libc's `syscall`, which the preload library serves by
//!   its name: nothing of a marker is caught by the net. Markers are not counted.
//! * Calls outside of phases are not counted. Signals are handed on to the child.
//! * A system call that the preload library's net catches (SIGSYS) counts as what it costs: the
//!   call as it is redone, if it is, and the return from the signal; catches are told apart as
//!   well.
//! * A phase of steps ends with a signal that nobody else sends, since system calls are not seen in it. A
//!   string instruction counts as often as it repeats. Who wants to know more of the instructions than their number
//!   looks at the thread before each of them ([`Look`]).

use crate::outcome::Outcome;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// First argument of a marker.
const MARKER: libc::c_int = 0x4152_434b;
/// Ends a phase.
const END: u64 = u64::MAX;
/// With the number of a phase: of steps.
const STEPS: u64 = 1 << 32;

/// Looks at the thread that is stepped through, which is stopped before an instruction.
pub trait Look {
    /// A phase begins; `places` is what the child gave with it.
    fn begin(&mut self, phase: u64, process: libc::pid_t, places: [u64; 2]) -> Outcome<()>;
    fn look(&mut self, process: libc::pid_t) -> Outcome<()>;
}

/// In the child: what follows belongs to phase `phase`.
pub fn begin(phase: u64) {
    mark(phase, [0; 2]);
}

/// In the child: the phase is over.
pub fn end() {
    mark(END, [0; 2]);
}

/// In the child: this thread's instructions belong to phase `phase`; `places` is for who looks at them.
pub fn begin_steps(phase: u64, places: [u64; 2]) {
    mark(phase | STEPS, places);
}

/// In the child: the phase of steps is over.
pub fn end_steps() {
    // SAFETY: to this thread; who traces it takes the signal away.
    unsafe {
        libc::syscall(
            libc::SYS_tgkill,
            libc::getpid(),
            libc::gettid(),
            libc::SIGURG,
        )
    };
}

fn mark(phase: u64, [first, second]: [u64; 2]) {
    // SAFETY: an unknown option: the kernel answers EINVAL and touches nothing.
    unsafe { libc::syscall(libc::SYS_prctl, MARKER, phase, first, second, 0) };
}

/// What a phase did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Calls by number.
    pub calls: BTreeMap<u64, u64>,
    /// System calls caught by the preload library's net.
    pub caught: u64,
    /// Instructions, in a phase of steps.
    pub steps: u64,
}

impl Counted {
    pub fn all(&self) -> u64 {
        self.calls.values().sum()
    }
}

/// Runs a command to its end and counts, by phase.
pub fn run(command: &mut Command) -> Outcome<BTreeMap<u64, Counted>> {
    run_looking(command, None)
}

/// The same; `look` sees the thread before each instruction that is stepped through. Addresses are the same in every
/// run, since what hangs on them (how many lines a thing lies in, what a table of addresses does) is counted.
pub fn run_looking(
    command: &mut Command,
    look: Option<&mut dyn Look>,
) -> Outcome<BTreeMap<u64, Counted>> {
    let fixed = look.is_some();
    // SAFETY: ptrace(TRACEME) and personality take no pointers and may be called between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if fixed && libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let mut child = command
        .spawn()
        .map_err(|error| format!("starting a worker to trace (ptrace): {error}"))?;
    let result = follow(&child, look);
    if result.is_err() {
        let _ = child.kill();
    }
    // Reaped by `follow` already unless it failed; either way nothing is left behind.
    let _ = child.wait();
    result
}

fn ptrace(request: libc::c_uint, process: libc::pid_t, data: libc::c_long) -> Outcome<()> {
    // SAFETY: requests without memory of ours; the process is our tracee and stopped.
    let result = unsafe { libc::ptrace(request, process, 0, data) };
    if result < 0 {
        return Err(format!("ptrace: {}", std::io::Error::last_os_error()));
    }
    Ok(())
}

fn follow(child: &Child, mut look: Option<&mut dyn Look>) -> Outcome<BTreeMap<u64, Counted>> {
    let main = child.id() as libc::pid_t;
    let mut phases: BTreeMap<u64, Counted> = BTreeMap::new();
    let mut phase = None;
    let mut begun = false;
    let mut stepped = None;
    loop {
        let mut status = 0;
        // SAFETY: `status` is writable. __WALL: threads of the child as well.
        let process = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        if process < 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() == std::io::ErrorKind::Interrupted {
                continue;
            }
            return Err(format!("waitpid: {error}"));
        }
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            if process != main {
                continue;
            }
            return if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
                Ok(phases)
            } else {
                Err(format!("a worker failed (wait status {status:#x})"))
            };
        }
        let signal = libc::WSTOPSIG(status);
        let mut hand_on = 0;
        if stepped == Some(process) {
            match (signal, phase) {
                (libc::SIGTRAP, Some(phase)) => {
                    phases.entry(phase).or_default().steps += 1;
                    if let Some(look) = &mut look {
                        look.look(process)?;
                    }
                }
                (libc::SIGURG, _) => (stepped, phase) = (None, None),
                _ => hand_on = signal,
            }
        } else if !begun && process == main {
            begun = true;
            let options =
                libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
            ptrace(
                libc::PTRACE_SETOPTIONS,
                process,
                libc::c_long::from(options),
            )?;
        } else if signal == libc::SIGTRAP | 0x80 {
            if let Some((number, arguments)) = entered(process)? {
                let [first, second, ..] = arguments;
                if number == libc::SYS_prctl as u64 && first == MARKER as u64 {
                    phase = (second != END).then_some(second & !STEPS);
                    if second != END && second & STEPS != 0 {
                        stepped = Some(process);
                    }
                    if let Some(phase) = phase {
                        phases.entry(phase).or_default();
                        if let Some(look) = &mut look {
                            look.begin(phase, process, [arguments[2], arguments[3]])?;
                        }
                    }
                } else if let Some(phase) = phase {
                    let counted = phases.entry(phase).or_default();
                    *counted.calls.entry(number).or_default() += 1;
                }
            }
        } else if signal != libc::SIGTRAP && signal != libc::SIGSTOP {
            if signal == libc::SIGSYS
                && let Some(phase) = phase
            {
                phases.entry(phase).or_default().caught += 1;
            }
            hand_on = signal;
        }
        let goes_on = match stepped == Some(process) {
            true => libc::PTRACE_SINGLESTEP,
            false => libc::PTRACE_SYSCALL,
        };
        ptrace(goes_on, process, libc::c_long::from(hand_on))?;
    }
}

/// Number and arguments of the system call that a stopped thread is entering; `None` if it is leaving one.
fn entered(process: libc::pid_t) -> Outcome<Option<(u64, [u64; 6])>> {
    let mut information = std::mem::MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let size = size_of::<libc::ptrace_syscall_info>();
    // SAFETY: the kernel writes at most `size` bytes; all zeroes is a valid value, so the
    // structure is initialised whatever it writes.
    let information = unsafe {
        let result = libc::ptrace(
            libc::PTRACE_GET_SYSCALL_INFO,
            process,
            size,
            information.as_mut_ptr(),
        );
        if result < 0 {
            return Err(format!(
                "ptrace(PTRACE_GET_SYSCALL_INFO): {}",
                std::io::Error::last_os_error()
            ));
        }
        information.assume_init()
    };
    if information.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return Ok(None);
    }
    // SAFETY: `op` says that this is the variant that was written.
    let entry = unsafe { information.u.entry };
    Ok(Some((entry.nr, entry.args)))
}

/// Name of a system call that may be met here.
pub fn name(number: u64) -> String {
    let known: &[(libc::c_long, &str)] = &[
        (libc::SYS_futex, "futex"),
        (libc::SYS_sendmsg, "sendmsg"),
        (libc::SYS_recvmsg, "recvmsg"),
        (libc::SYS_poll, "poll"),
        (libc::SYS_ppoll, "ppoll"),
        (libc::SYS_read, "read"),
        (libc::SYS_write, "write"),
        (libc::SYS_open, "open"),
        (libc::SYS_openat, "openat"),
        (libc::SYS_close, "close"),
        (libc::SYS_dup3, "dup3"),
        (libc::SYS_mmap, "mmap"),
        (libc::SYS_munmap, "munmap"),
        (libc::SYS_mprotect, "mprotect"),
        (libc::SYS_madvise, "madvise"),
        (libc::SYS_fallocate, "fallocate"),
        (libc::SYS_ftruncate, "ftruncate"),
        (libc::SYS_memfd_create, "memfd_create"),
        (libc::SYS_fcntl, "fcntl"),
        (libc::SYS_brk, "brk"),
        (libc::SYS_sched_yield, "sched_yield"),
        (libc::SYS_clock_nanosleep, "clock_nanosleep"),
        (libc::SYS_nanosleep, "nanosleep"),
        (libc::SYS_clock_gettime, "clock_gettime"),
        (libc::SYS_membarrier, "membarrier"),
        (libc::SYS_rt_sigprocmask, "rt_sigprocmask"),
        (libc::SYS_rt_sigreturn, "rt_sigreturn"),
        (libc::SYS_getpid, "getpid"),
        (libc::SYS_gettid, "gettid"),
    ];
    known
        .iter()
        .find(|(known, _)| *known as u64 == number)
        .map_or_else(
            || format!("system call {number}"),
            |(_, name)| (*name).to_owned(),
        )
}
