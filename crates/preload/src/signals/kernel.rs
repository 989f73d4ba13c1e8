//! Actions and masks of signals, as the kernel is told them.

use crate::raw::syscall;

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct KernelAction {
    pub handler: usize,
    pub flags: u64,
    pub restorer: usize,
    pub mask: u64,
}

pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

std::arch::global_asm!(
    ".globl arck_restore",
    ".hidden arck_restore",
    ".type arck_restore,@function",
    "nop",
    "arck_restore:",
    // The very bytes by which unwinders recognize a signal frame: mov rax, 15; syscall.
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05",
    "ud2",
);

unsafe extern "C" {
    fn arck_restore();
}

/// The restorer's address.
pub fn restorer() -> usize {
    arck_restore as *const () as usize
}

/// # Safety
/// `action` and `old` are null or valid; a handler is sound to run.
pub unsafe fn set_kernel_action(
    signal: i32,
    action: *const KernelAction,
    old: *mut KernelAction,
) -> isize {
    // SAFETY: the caller's promise; the kernel's mask has 8 bytes.
    unsafe { syscall!(libc::SYS_rt_sigaction, signal, action, old, 8) }
}

/// Signals that code causes itself, which must stay possible; 33 is libc's own way of changing all
/// threads' credentials.
pub const OPEN: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS)
    | bit(33);

/// Changes the mask of this thread, as `how` says; gives the one before.
pub fn change_mask(how: i32, mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: masks of 8 bytes, in and out.
    unsafe {
        syscall!(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const mask,
            &raw mut before,
            8
        )
    };
    before
}

/// The mask of this thread from now on; gives the one before.
pub fn set_mask(mask: u64) -> u64 {
    change_mask(libc::SIG_SETMASK, mask)
}
