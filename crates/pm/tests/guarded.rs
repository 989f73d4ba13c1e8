//! Guarded copies: a truncated file is an error, and any other SIGBUS goes
//! where it would have gone without the guard.

use arck_pm::copy::Stores;
use arck_pm::guarded::{self, KernelAction};
use arck_pm::{Error, MapOptions, Mapping};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::OwnedFd;

const PAGE: usize = 4096;

fn truncated(kept: usize, mapped: usize) -> (OwnedFd, Mapping) {
    let file = memfd_create("guarded", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, mapped as u64).unwrap();
    let mapping = Mapping::new(&file, 0, mapped, MapOptions::READ_WRITE).unwrap();
    // Some of these faults end the process that meets them, which is a child.
    // SAFETY: mapped just now.
    unsafe { arck_pm::forks::give_to_children(mapping.as_ptr(), mapped) }.unwrap();
    let pattern: Vec<u8> = (0..mapped).map(|index| (index % 251) as u8 + 1).collect();
    mapping.bytes().copy_from(0, &pattern).unwrap();
    ftruncate(&file, kept as u64).unwrap();
    (file, mapping)
}

fn copied(error: &Error) -> usize {
    match error {
        Error::Fault(fault) => fault.copied,
        other => panic!("not a fault: {other}"),
    }
}

#[test]
fn copying_out_stops_at_the_truncation() {
    let (_file, mapping) = truncated(PAGE, 4 * PAGE);
    for len in [1, 7, 8, 9, 31, 32, 33, 64, 100, 767, 768, 769, 4096, 8192] {
        for before in [0usize, 1, 8, 40, 600, 900] {
            let mut buffer = vec![0u8; len];
            let offset = PAGE - before;
            let outcome = mapping.bytes().try_copy_to(offset, &mut buffer);
            if len <= before {
                assert_eq!(outcome, Ok(()));
            } else {
                let copied = copied(&outcome.unwrap_err());
                // Exact but for the size of one step.
                assert!(
                    copied <= before && copied + 32 > before,
                    "{before} {len} {copied}"
                );
                for (index, byte) in buffer[..copied].iter().enumerate() {
                    assert_eq!(*byte, ((offset + index) % 251) as u8 + 1);
                }
            }
        }
    }
}

#[test]
fn storing_stops_at_the_truncation() {
    let (_file, mapping) = truncated(PAGE, 4 * PAGE);
    let source = vec![0xaa; 2 * PAGE];
    for stores in [Stores::Cached, Stores::Streaming] {
        for len in [8, 100, 1000, 2 * PAGE] {
            for before in [0usize, 3, 64, 130] {
                let offset = PAGE - before;
                let outcome = mapping
                    .bytes()
                    .try_copy_from(offset, &source[..len], stores);
                if len <= before {
                    assert_eq!(outcome, Ok(()));
                } else {
                    let copied = copied(&outcome.unwrap_err());
                    assert!(
                        copied <= before && copied + 64 > before,
                        "{before} {len} {copied}"
                    );
                }
            }
        }
    }
    // The ragged tail alone beyond the end, after whole lines before it.
    let error = mapping
        .bytes()
        .try_copy_from(PAGE - 128, &source[..130], Stores::Streaming);
    assert_eq!(copied(&error.unwrap_err()), 128);
}

#[test]
fn words_load_or_fault() {
    let (_file, mapping) = truncated(PAGE, 2 * PAGE);
    let expected = mapping
        .bytes()
        .load_u64(8, std::sync::atomic::Ordering::Relaxed)
        .unwrap();
    assert_eq!(mapping.bytes().try_load_u64(8), Ok(expected));
    assert_eq!(copied(&mapping.bytes().try_load_u64(PAGE).unwrap_err()), 0);
    let errors = [4, PAGE * 2 - 4, usize::MAX - 3].map(|at| mapping.bytes().try_load_u64(at));
    assert!(
        errors
            .iter()
            .all(|error| matches!(error, Err(Error::OutOfBounds { .. })))
    );
}

#[test]
fn works_again_after_a_fault_and_from_many_threads() {
    let (file, mapping) = truncated(PAGE, 2 * PAGE);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut buffer = [0; 64];
                for _ in 0..200 {
                    let error = mapping.bytes().try_copy_to(PAGE, &mut buffer).unwrap_err();
                    assert_eq!(error.errno(), rustix::io::Errno::IO);
                    mapping.bytes().try_copy_to(0, &mut buffer).unwrap();
                }
            });
        }
    });
    ftruncate(&file, 2 * PAGE as u64).unwrap();
    mapping.bytes().try_copy_to(PAGE, &mut [0; 64]).unwrap();
}

#[test]
fn a_race_with_truncation_never_kills() {
    let (file, mapping) = truncated(4 * PAGE, 4 * PAGE);
    let mut faults = 0;
    std::thread::scope(|scope| {
        let truncating = scope.spawn(|| {
            for _ in 0..3000 {
                ftruncate(&file, 0).unwrap();
                ftruncate(&file, 4 * PAGE as u64).unwrap();
            }
        });
        let mut buffer = vec![0; 4 * PAGE];
        while !truncating.is_finished() {
            faults += u32::from(mapping.bytes().try_copy_to(0, &mut buffer).is_err());
            let _ = mapping
                .bytes()
                .try_copy_from(1, &buffer[..9000], Stores::Streaming);
        }
    });
    println!("{faults} faults");
}

/// Runs `child` in a forked process and returns its wait status. The child only
/// makes system calls and touches memory, as it must after a fork among threads.
fn in_child(child: impl FnOnce()) -> i32 {
    // SAFETY: the child runs no code that takes locks or allocates.
    let process = unsafe { libc::fork() };
    assert!(process >= 0);
    if process == 0 {
        child();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(process, &mut status, 0) }, process);
    status
}

fn set_action(handler: usize, flags: i32) {
    // SAFETY: an all-zero sigaction is valid, and the handlers below are.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

extern "C" fn exit_42(_: i32) {
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(42) };
}

extern "C" fn exit_with_code(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's siginfo; _exit is async-signal-safe.
    unsafe { libc::_exit(100 + (*info).si_code) };
}

extern "C" fn do_nothing(_: i32) {}

fn touch_missing_page(mapping: &Mapping) {
    mapping
        .bytes()
        .load_u64(PAGE, std::sync::atomic::Ordering::Relaxed);
}

fn still_guarded(mapping: &Mapping) -> bool {
    mapping.bytes().try_load_u64(PAGE).is_err()
}

// The guard is installed once per process, so each of these forks before anything
// of this process's state matters: the child resets to what it needs through
// `set_next_action`, which chains exactly as installing over a handler does.
#[test]
fn other_faults_take_the_default_action() {
    let (_file, mapping) = truncated(PAGE, 2 * PAGE);
    guarded::install_guard();
    let status = in_child(|| {
        guarded::set_next_action(Some(KernelAction::default()));
        if still_guarded(&mapping) {
            touch_missing_page(&mapping);
        }
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS);
}

#[test]
fn a_signal_that_was_sent_takes_the_default_action() {
    guarded::install_guard();
    let status = in_child(|| {
        guarded::set_next_action(Some(KernelAction::default()));
        // SAFETY: sends a signal to ourselves.
        unsafe { libc::raise(libc::SIGBUS) };
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS);
    let status = in_child(|| {
        let ignore = libc::SIG_IGN as u64;
        guarded::set_next_action(Some(KernelAction {
            handler: ignore,
            ..Default::default()
        }));
        // SAFETY: as above.
        unsafe { libc::raise(libc::SIGBUS) };
    });
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
}

#[test]
fn handlers_named_later_get_what_is_theirs() {
    let (_file, mapping) = truncated(PAGE, 2 * PAGE);
    guarded::install_guard();
    let plain = KernelAction {
        handler: exit_42 as *const () as u64,
        ..Default::default()
    };
    let status = in_child(|| {
        let _ = guarded::set_next_action(Some(plain));
        if still_guarded(&mapping) && guarded::set_next_action(None) == plain {
            touch_missing_page(&mapping);
        }
    });
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42);
    let informed = KernelAction {
        handler: exit_with_code as *const () as u64,
        flags: libc::SA_SIGINFO as u64,
        ..Default::default()
    };
    let status = in_child(|| {
        guarded::set_next_action(Some(informed));
        touch_missing_page(&mapping);
    });
    const BUS_ADRERR: i32 = 2;
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 100 + BUS_ADRERR);
}

#[test]
fn a_handler_for_once_is_used_once() {
    let (_file, mapping) = truncated(PAGE, 2 * PAGE);
    guarded::install_guard();
    let once = KernelAction {
        handler: do_nothing as *const () as u64,
        flags: libc::SA_RESETHAND as u32 as u64,
        ..Default::default()
    };
    let status = in_child(|| {
        guarded::set_next_action(Some(once));
        // Returns from the handler, faults again, and then dies.
        touch_missing_page(&mapping);
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS);
}

#[test]
fn a_handler_installed_over_the_guard_takes_it_away() {
    let (_file, mapping) = truncated(PAGE, 2 * PAGE);
    guarded::install_guard();
    let status = in_child(|| {
        set_action(exit_42 as *const () as usize, 0);
        still_guarded(&mapping);
    });
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42);
}
