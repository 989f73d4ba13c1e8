//! The faster net: system call sites of libc that trap often are rewritten to call this library.
//!
//! glibc makes most of its calls as `mov eax, NUMBER; syscall` (7 bytes). The `mov` is exactly as
//! long as a jump, so it is replaced by one to a stub nearby, and the `syscall` behind it stays
//! for whoever jumps straight to it. A stub for a call that has a handler saves what the kernel
//! would preserve and runs the handler; any other makes the call itself, from outside the net's
//! range. It comes back behind the original `syscall`.
//!
//! A site is rewritten at its [`OFTEN`]th trap, so a short program pays nothing, and only if the
//! system lets text be made writable; otherwise it goes on trapping.
//!
//! Invariants:
//! * Only bytes that are a `mov eax` of the trapped number right before the trapped `syscall`
//!   are replaced. While there are other threads this is one aligned 8-byte store, so that they
//!   see the old instruction or the new one; where that is impossible the site keeps trapping.
//! * Calls that return twice or elsewhere (clone, fork, sigreturn) keep trapping.
//! * Stubs are written before the jump to them, in memory that is never freed.

use crate::raw::{self, Arguments, syscall};
use crate::{calls, net, thread};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Traps of one site before it is rewritten.
const OFTEN: u64 = 24;
/// A page of stubs.
const STUBS_SIZE: usize = 32 * 1024;
/// Longest stub.
const STUB_SIZE: usize = 48;

/// Traps by site: address in the upper 48 bits, count in the lower 16.
static TRAPS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
static SITES: AtomicUsize = AtomicUsize::new(0);
static LOCK: AtomicBool = AtomicBool::new(false);
static REFUSED: AtomicBool = AtomicBool::new(false);
/// The stubs: where they run, and how many bytes are used.
static STUBS: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);

/// How many sites were rewritten.
pub fn sites() -> usize {
    SITES.load(Ordering::Relaxed)
}

/// Counts a trap of the `syscall` instruction that ends at `after`, and rewrites its site if it
/// has trapped often.
///
/// # Safety
/// `after` is the address behind a `syscall` instruction in libc's text.
pub unsafe fn trapped(number: usize, after: usize) {
    if REFUSED.load(Ordering::Relaxed) || net::kind() != net::Kind::Inclusive {
        return;
    }
    let key = (after as u64) << 16;
    let home = after.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    let found = (home..home + 8)
        .map(|i| &TRAPS[i % TRAPS.len()])
        .find_map(|slot| {
            let seen = slot.load(Ordering::Relaxed);
            if seen == 0 {
                let taken = slot.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
                return taken.is_ok().then_some((slot, key));
            }
            (seen & !0xffff == key).then_some((slot, seen))
        });
    let Some((slot, seen)) = found else { return };
    let count = seen & 0xffff;
    if count > OFTEN {
        return;
    }
    slot.store(seen + 1, Ordering::Relaxed);
    if count == OFTEN && is_simple(number) && !LOCK.swap(true, Ordering::Acquire) {
        let _inside = thread::enter();
        // SAFETY: the caller's promise; the lock is held.
        unsafe { rewrite(number, after) };
        LOCK.store(false, Ordering::Release);
    }
}

/// In a forked child: another thread of the parent may have held the lock.
pub fn forked() {
    LOCK.store(false, Ordering::Release);
}

fn is_simple(number: usize) -> bool {
    number < calls::COUNT
        && !matches!(
            number as i64,
            libc::SYS_rt_sigreturn
                | libc::SYS_clone
                | libc::SYS_clone3
                | libc::SYS_fork
                | libc::SYS_vfork
                | libc::SYS_exit
        )
}

unsafe fn rewrite(number: usize, after: usize) {
    let site = after - 7;
    // SAFETY: the eight bytes before the end of the instruction are libc's text.
    unsafe {
        let mut expected = [0xb8, 0, 0, 0, 0, 0x0f, 0x05];
        expected[1..5].copy_from_slice(&(number as u32).to_le_bytes());
        let found = std::slice::from_raw_parts(site as *const u8, 7);
        // A prefix would make it another register's mov.
        let before = *(site as *const u8).sub(1);
        if found != expected || (0x40..=0x4f).contains(&before) {
            return;
        }
        let alone = raw::is_single_threaded();
        if site % 8 > 3 && !alone {
            return;
        }
        let Some(stub) = make_stub(number, after) else {
            return;
        };
        let page = site & !0xfff;
        let length = (site + 4 - page) / 4096 * 4096 + 4096;
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        if syscall!(libc::SYS_mprotect, page, length, all) != 0 {
            REFUSED.store(true, Ordering::Relaxed);
            return;
        }
        let mut jump = [0xe9, 0, 0, 0, 0];
        jump[1..].copy_from_slice(&distance(site + 5, stub));
        if alone {
            std::ptr::copy_nonoverlapping(jump.as_ptr(), site as *mut u8, jump.len());
        } else {
            let word = (site & !7) as *const AtomicU64;
            let mut bytes = (*word).load(Ordering::Relaxed).to_le_bytes();
            bytes[site % 8..site % 8 + 5].copy_from_slice(&jump);
            (*word).store(u64::from_le_bytes(bytes), Ordering::Release);
        }
        syscall!(
            libc::SYS_mprotect,
            page,
            length,
            libc::PROT_READ | libc::PROT_EXEC
        );
        SITES.fetch_add(1, Ordering::Relaxed);
    }
}

/// The operand of a jump; the stubs were placed so that it fits.
fn distance(from: usize, to: usize) -> [u8; 4] {
    (to.wrapping_sub(from) as i32).to_le_bytes()
}

/// Takes memory for stubs within reach of libc's text, at `near`; at start-up, before the LibFS
/// maps the neighbourhood.
fn reserve(near: usize) {
    for step in 1..64 {
        // Below libc, 16 MiB apart: within a signed 32-bit distance of all of its text.
        let Some(hint) = (near & !0xffff).checked_sub(step * 0x100_0000) else {
            break;
        };
        // SAFETY: takes the address only if nothing is there.
        let got = unsafe {
            syscall!(
                libc::SYS_mmap,
                hint,
                STUBS_SIZE,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1isize,
                0
            )
        };
        if got == hint as isize {
            STUBS.store(hint, Ordering::Release);
            return;
        }
        if got != raw::error(libc::EEXIST) {
            break;
        }
    }
    REFUSED.store(true, Ordering::Relaxed);
}

unsafe fn make_stub(number: usize, after: usize) -> Option<usize> {
    let area = STUBS.load(Ordering::Acquire);
    let used = USED.load(Ordering::Relaxed);
    if used + STUB_SIZE > STUBS_SIZE {
        return None;
    }
    let stub = area + used;
    let mut code = [0xccu8; STUB_SIZE];
    let mut length = 0;
    let mut push = |bytes: &[u8]| {
        code[length..length + bytes.len()].copy_from_slice(bytes);
        length += bytes.len();
        length
    };
    let number_bytes = (number as u32).to_le_bytes();
    if calls::is_handled(number) {
        // lea rsp, [rsp - 128]: past the red zone.
        push(&[0x48, 0x8d, 0x64, 0x24, 0x80]);
        // mov ecx, number
        push(&[0xb9]);
        push(&number_bytes);
        // mov r11, arck_patched; call r11
        push(&[0x49, 0xbb]);
        push(&(arck_patched as *const () as u64).to_le_bytes());
        push(&[0x41, 0xff, 0xd3]);
        // lea rsp, [rsp + 128]
        push(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
    } else {
        push(&[0xb8]);
        push(&number_bytes);
        push(&[0x0f, 0x05]);
    }
    // jmp after
    let end = push(&[0xe9]) + 4;
    push(&distance(stub + end, after));
    // SAFETY: within the area, whose first `used` bytes only are in use.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), stub as *mut u8, STUB_SIZE) };
    USED.store(used + STUB_SIZE, Ordering::Relaxed);
    Some(stub)
}

std::arch::global_asm!(
    // Called from a stub with the call's number in ecx: the kernel's calling convention, that
    // is, everything but rax, rcx and r11 is preserved, vector registers included (0xe6: SSE,
    // AVX and the AVX-512 parts, 2,752 bytes in the standard layout).
    ".globl arck_patched",
    ".hidden arck_patched",
    ".type arck_patched,@function",
    "arck_patched:",
    "push rbp",
    "mov rbp, rsp",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "mov rsi, rsp",
    "mov edi, ecx",
    "sub rsp, 2816",
    "and rsp, -64",
    "xor eax, eax",
    "mov [rsp + 512], rax",
    "mov [rsp + 520], rax",
    "mov [rsp + 528], rax",
    "mov [rsp + 536], rax",
    "mov [rsp + 544], rax",
    "mov [rsp + 552], rax",
    "mov [rsp + 560], rax",
    "mov [rsp + 568], rax",
    "xor edx, edx",
    "mov eax, 0xe6",
    "xsave64 [rsp]",
    "call {body}",
    "mov rcx, rax",
    "xor edx, edx",
    "mov eax, 0xe6",
    "xrstor64 [rsp]",
    "mov rax, rcx",
    "lea rsp, [rbp - 48]",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "pop rbp",
    "ret",
    body = sym answer,
);

unsafe extern "C" {
    fn arck_patched();
}

unsafe extern "C-unwind" fn answer(number: usize, a: &Arguments) -> isize {
    // SAFETY: the arguments of a call that libc made.
    unsafe { raw::uncancelled(|| handle(number, a)) }
}

/// Not inlined, for the same reason as in `net`.
#[inline(never)]
unsafe fn handle(number: usize, a: &Arguments) -> isize {
    // SAFETY: as in `answer`. The handlers may change errno on their way; a system call does not.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = calls::dispatch(number, a);
        *errno = before;
        result
    }
}

/// At start-up, with the address of libc's text. Without a processor that saves vector state as
/// `arck_patched` needs it, nothing is ever rewritten.
pub fn start(near: usize) {
    if std::arch::is_x86_feature_detected!("xsave") {
        reserve(near);
    } else {
        REFUSED.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_reach() {
        assert_eq!(distance(0x1000, 0x1005), 5i32.to_le_bytes());
        assert_eq!(distance(0x2000, 0x1000), (-0x1000i32).to_le_bytes());
    }

    #[test]
    fn calls_that_return_elsewhere_keep_trapping() {
        assert!(is_simple(libc::SYS_openat as usize) && is_simple(libc::SYS_futex as usize));
        assert!(
            !is_simple(libc::SYS_clone3 as usize) && !is_simple(libc::SYS_rt_sigreturn as usize)
        );
    }
}
