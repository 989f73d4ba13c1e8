//! Installing the guard over a program's own handler; alone in its process,
//! because the guard is installed once per process.

use arck_pm::{MapOptions, Mapping, guarded};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::sync::atomic::{AtomicU32, Ordering};

static CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    // SIGUSR2 is in our mask, so it must be blocked here.
    let mut mask = 0u64;
    // SAFETY: reads the present mask into eight bytes.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, 0, 0, &raw mut mask, 8) };
    let usr2 = mask >> (libc::SIGUSR2 - 1) & 1;
    CALLS.fetch_add(1 + 100 * (1 - usr2 as u32), Ordering::Relaxed);
}

#[test]
fn the_handler_before_the_guard_is_called_on() {
    // SAFETY: an all-zero sigaction is valid, and `count` is a handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        libc::sigaddset(&mut action.sa_mask, libc::SIGUSR2);
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
    guarded::install_guard();
    guarded::install_guard();
    let file = memfd_create("chain", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 4096).unwrap();
    let mapping = Mapping::new(&file, 0, 4096, MapOptions::READ_ONLY).unwrap();
    ftruncate(&file, 0).unwrap();
    assert!(mapping.bytes().try_load_u64(0).is_err());
    assert_eq!(CALLS.load(Ordering::Relaxed), 0);
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    assert!(mapping.bytes().try_load_u64(0).is_err());
    // A handler that comes back leaves the mask as it was.
    let mut mask = u64::MAX;
    // SAFETY: as in `count`.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, 0, 0, &raw mut mask, 8) };
    assert_eq!(mask >> (libc::SIGUSR2 - 1) & 1, 0);
    assert_eq!(mask >> (libc::SIGBUS - 1) & 1, 0);
}
