//! System calls made by this library itself, and nothing else.
//!
//! Invariant: every kernel call of this crate is issued by the `syscall` instruction in this
//! module (or in the assembly of `dispatch` and `patch`), which lies in this library's text. The dispatch
//! traps system calls by the address they are issued from, so calls made here are never trapped,
//! never counted, and never change the program's `errno`. Results are the kernel's own: a value,
//! or minus the error number.

use crate::thread::{self, CANCELLABLE, NOT_CANCELLABLE};
use std::arch::asm;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Arguments as the kernel takes them: rdi, rsi, rdx, r10, r8, r9.
pub type Arguments = [usize; 6];

/// # Safety
/// The call must be sound with these arguments: pointers valid for what the kernel does.
#[inline(always)]
pub unsafe fn call(number: usize, a: &Arguments) -> isize {
    let result: isize;
    // SAFETY: the kernel clobbers rax, rcx and r11 only; memory effects are the caller's promise.
    unsafe {
        asm!("syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// libc's `__libc_single_threaded`, once found; null means it is not known.
static SINGLE_THREADED: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

unsafe extern "C-unwind" {
    fn pthread_setcanceltype(kind: i32, before: *mut i32) -> i32;
}

/// At start-up.
pub fn find_single_threaded() {
    // SAFETY: a constant name.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    SINGLE_THREADED.store(address.cast(), Ordering::Relaxed);
}

/// Whether libc knows this process to have no other thread.
#[inline(always)]
pub fn is_single_threaded() -> bool {
    let single = SINGLE_THREADED.load(Ordering::Relaxed);
    // SAFETY: libc's variable lives for ever.
    !single.is_null() && unsafe { single.read_volatile() } != 0
}

/// A call that may block and whose libc function is a cancellation point: as there, the thread
/// can be cancelled while it waits. For a call that libc made, only if libc means it so.
///
/// # Safety
/// As for [`call`]. Nothing with a destructor may be alive in the callers that holds a lock.
#[inline(always)]
pub unsafe fn blocking_call(number: usize, a: &Arguments) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        if is_single_threaded()
            || thread::current().cancellation.load(Ordering::Relaxed) == NOT_CANCELLABLE
        {
            return call(number, a);
        }
        cancellable(number, a)
    }
}

/// A call that has no handler: a cancellation point only if libc made it and means it so.
///
/// # Safety
/// As for [`blocking_call`].
#[inline(always)]
pub unsafe fn other_call(number: usize, a: &Arguments) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        if thread::current().cancellation.load(Ordering::Relaxed) == CANCELLABLE {
            return cancellable(number, a);
        }
        call(number, a)
    }
}

/// Runs `handle` for a call that libc made, with asynchronous cancellation off: libc switches it
/// on around its cancellation points, and a cancelled thread must not unwind out of the middle of
/// a handler. What may block switches it on again for just that ([`blocking_call`]). A
/// cancellation that came meanwhile takes effect at the end. `point`: the call was made where
/// libc knows by the address that it can be cancelled, without switching anything on; there a
/// cancellation that came meanwhile waits for the next such call.
///
/// # Safety
/// The caller's frame needs no clean-up.
#[inline(always)]
pub unsafe fn uncancelled(point: bool, handle: impl FnOnce() -> isize) -> isize {
    if is_single_threaded() || thread::inside() {
        return handle();
    }
    let mut kind = DEFERRED;
    // SAFETY: libc's own function.
    unsafe {
        pthread_setcanceltype(DEFERRED, &mut kind);
        let state = &thread::current().cancellation;
        let asynchronous = kind == ASYNCHRONOUS;
        let before = state.swap(
            if asynchronous || point {
                CANCELLABLE
            } else {
                NOT_CANCELLABLE
            },
            Ordering::Relaxed,
        );
        let result = handle();
        // In a forked child too: the block is a copy.
        state.store(before, Ordering::Relaxed);
        if asynchronous {
            pthread_setcanceltype(ASYNCHRONOUS, std::ptr::null_mut());
        }
        result
    }
}

const DEFERRED: i32 = 0;
const ASYNCHRONOUS: i32 = 1;

/// Its own function, so that a forced unwinding starts in a frame without clean-up.
#[inline(never)]
unsafe extern "C-unwind" fn cancellable(number: usize, a: &Arguments) -> isize {
    let mut before = DEFERRED;
    // SAFETY: libc's own function, and the caller's promise.
    unsafe {
        if thread::inside() {
            return call(number, a);
        }
        pthread_setcanceltype(ASYNCHRONOUS, &mut before);
        let result = call(number, a);
        pthread_setcanceltype(before, std::ptr::null_mut());
        result
    }
}

/// `blocking!(number, arguments...)`: see [`blocking_call`].
macro_rules! blocking {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::raw::blocking_call($number as usize, &$crate::raw::pad([$($argument as usize),*]))
    };
}
pub(crate) use blocking;

/// `syscall!(number, arguments...)`: a raw call with the rest of the registers zero.
macro_rules! syscall {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::raw::call($number as usize, &$crate::raw::pad([$($argument as usize),*]))
    };
}
pub(crate) use syscall;

#[inline(always)]
pub fn pad<const N: usize>(arguments: [usize; N]) -> Arguments {
    let mut all = [0; 6];
    let mut i = 0;
    while i < N {
        all[i] = arguments[i];
        i += 1;
    }
    all
}

/// Minus an error number, as handlers return it.
#[inline(always)]
pub const fn error(number: i32) -> isize {
    -(number as isize)
}

/// Whether a raw result is an error.
#[inline(always)]
pub const fn failed(result: isize) -> bool {
    result < 0 && result >= -4095
}

pub fn close(descriptor: isize) {
    // SAFETY: closing a descriptor that this library opened.
    unsafe { syscall!(libc::SYS_close, descriptor) };
}

/// Maps anonymous private memory, readable and writable. `None` if the kernel has none.
pub fn map_anonymous(length: usize) -> Option<*mut u8> {
    // SAFETY: a fresh anonymous mapping overlaps nothing.
    let address = unsafe {
        syscall!(
            libc::SYS_mmap,
            0,
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1isize,
            0
        )
    };
    (!failed(address)).then_some(address as *mut u8)
}

/// # Safety
/// The mapping is this library's own and nothing refers to it any more.
pub unsafe fn unmap(address: *mut u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { syscall!(libc::SYS_munmap, address, length) };
}

/// The soft limit of a resource of the process's; all ones = none. `None` if the kernel does not say.
pub fn limit(resource: u32) -> Option<usize> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills the structure.
    let result = unsafe { syscall!(libc::SYS_prlimit64, 0, resource, 0, &raw mut limit) };
    (!failed(result)).then_some(limit.rlim_cur as usize)
}

pub fn process_id() -> i32 {
    // SAFETY: no arguments.
    unsafe { syscall!(libc::SYS_getpid) as i32 }
}

/// `write` of what is not the program's own: as far as the descriptor takes it, and never with a signal.
/// Without this the limit on the size of files (SIGXFSZ), or a pipe that nobody reads (SIGPIPE), would end
/// a program for something that it did not do.
pub fn write_unsignalled(descriptor: usize, bytes: &[u8]) -> isize {
    const NONE: usize = 0;
    let signals = 1u64 << (libc::SIGXFSZ - 1) | 1 << (libc::SIGPIPE - 1);
    let (mut mask, mut pending) = (0u64, 0u64);
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: masks of 64 bits and a structure on the stack, and a slice that is valid for reading. The
    // mask of this thread is as before at the end.
    unsafe {
        syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            &raw const signals,
            &raw mut mask,
            8
        );
        syscall!(libc::SYS_rt_sigpending, &raw mut pending, 8);
        let written = syscall!(libc::SYS_write, descriptor, bytes.as_ptr(), bytes.len());
        // What was pending before is the program's own.
        let ours = signals & !pending;
        if written == error(libc::EFBIG) || written == error(libc::EPIPE) {
            syscall!(
                libc::SYS_rt_sigtimedwait,
                &raw const ours,
                NONE,
                &raw const at_once,
                8
            );
        }
        syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            NONE,
            8
        );
        written
    }
}

/// Writes all of `text` as far as the descriptor takes it; errors are ignored (there is nobody
/// to tell).
pub fn print(descriptor: i32, text: &[u8]) {
    let mut rest = text;
    while !rest.is_empty() {
        let n = write_unsignalled(descriptor as usize, rest);
        if n == error(libc::EINTR) {
            continue;
        }
        if n <= 0 {
            return;
        }
        rest = &rest[n as usize..];
    }
}

/// Text formatted into a fixed buffer on the stack: no allocation, cut off when full; always
/// followed by a NUL byte.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    pub const fn new() -> Self {
        Text {
            bytes: [0; N],
            length: 0,
        }
    }
    pub fn push(&mut self, bytes: &[u8]) -> &mut Self {
        let n = bytes.len().min(N - 1 - self.length);
        self.bytes[self.length..self.length + n].copy_from_slice(&bytes[..n]);
        self.length += n;
        self.bytes[self.length] = 0;
        self
    }
    pub fn number(&mut self, number: u64) -> &mut Self {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let start = at;
        self.push(&digits[start..])
    }
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
    pub fn pointer(&self) -> *const u8 {
        self.bytes.as_ptr()
    }
}

impl<const N: usize> std::fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Device and inode number of a file, by a system call that fills in its status.
pub fn identity(call: impl FnOnce(*mut libc::stat) -> isize) -> Option<[u64; 2]> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    if failed(call(status.as_mut_ptr())) {
        return None;
    }
    // SAFETY: all zeroes is a value, and what the kernel has made of it too.
    let status = unsafe { status.assume_init() };
    Some([status.st_dev, status.st_ino])
}

/// The same of an open descriptor.
pub fn identity_of(descriptor: usize) -> Option<[u64; 2]> {
    // SAFETY: a number, and a structure that the kernel fills.
    identity(|status| unsafe { syscall!(libc::SYS_fstat, descriptor, status) })
}

/// `/proc/self/fd/N`, NUL-terminated.
pub fn descriptor_path(descriptor: usize) -> Text<40> {
    let mut text = Text::new();
    text.push(b"/proc/self/fd/").number(descriptor as u64);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_off_and_terminated() {
        let mut text = Text::<8>::new();
        text.push(b"abc").number(1234567);
        assert_eq!(text.bytes(), b"abc1234");
        // SAFETY: the buffer is alive and NUL-terminated.
        assert_eq!(unsafe { *text.pointer().add(7) }, 0);
    }

    #[test]
    fn numbers() {
        assert_eq!(Text::<40>::new().number(0).bytes(), b"0");
        assert_eq!(
            Text::<40>::new().number(u64::MAX).bytes(),
            b"18446744073709551615"
        );
        assert_eq!(descriptor_path(17).bytes(), b"/proc/self/fd/17");
    }

    #[test]
    fn results_of_the_kernel() {
        assert!(failed(error(libc::ENOENT)));
        assert!(!failed(-5000));
        assert_eq!(process_id() as u32, std::process::id());
    }
}
