//! Stubs: how they are put together, and the entry that they call.
//!
//! Invariants:
//! * A stub preserves what the kernel would at a system call, as far as it can be alive there (see
//!   [`super`]).
//! * It calls the entry from the frame that [`unwinding`](super::unwinding) describes.

use super::places::{Area, ENTRY, STUB_SIZE, distance};
use super::unwinding;
use crate::calls;
use crate::raw::{self, Arguments};
use std::sync::atomic::Ordering;

/// Set beside a call's number that came from the cancellation point.
pub const CANCELLATION_POINT: usize = 1 << 16;

/// A stub being written.
pub(super) struct Code {
    bytes: [u8; STUB_SIZE],
    length: usize,
    start: usize,
}

impl Code {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
    /// A jump to `target`.
    pub(super) fn push_jump(&mut self, target: usize) {
        self.push(&[0xe9]);
        let end = self.start + self.length + 4;
        self.push(&distance(end, target));
    }
    /// The call of the entry, from a frame that [`unwinding`] describes; `number` puts the call's
    /// number into ecx.
    pub(super) fn push_entry(&mut self, after: usize, number: impl FnOnce(&mut Code)) {
        let below = -i32::from(unwinding::FRAME);
        // lea rsp, [rsp - FRAME]
        self.push(&[0x48, 0x8d, 0xa4, 0x24]);
        self.push(&below.to_le_bytes());
        // mov r11, after; mov [rsp + RETURN], r11
        self.push(&[0x49, 0xbb]);
        self.push(&(after as u64).to_le_bytes());
        self.push(&[0x4c, 0x89, 0x5c, 0x24, unwinding::RETURN]);
        number(self);
        // mov r11, ENTRY; call r11
        self.push(&[0x49, 0xbb]);
        self.push(&(ENTRY.load(Ordering::Relaxed) as u64).to_le_bytes());
        self.push(&[0x41, 0xff, 0xd3]);
        // lea rsp, [rsp + FRAME]
        self.push(&[0x48, 0x8d, 0xa4, 0x24]);
        self.push(&(-below).to_le_bytes());
    }
}

/// Takes room for a stub in an area of `size` bytes and fills it. `None` if there is no room.
///
/// # Safety
/// The patch lock is held, or no other thread runs.
pub(super) unsafe fn write_stub(
    area: &Area,
    size: usize,
    fill: impl FnOnce(&mut Code),
) -> Option<usize> {
    let start = area.start.load(Ordering::Acquire);
    let used = area.used.load(Ordering::Relaxed);
    if start == 0 || used + STUB_SIZE > size {
        return None;
    }
    let mut code = Code {
        bytes: [0xcc; STUB_SIZE],
        length: 0,
        start: start + used,
    };
    fill(&mut code);
    // SAFETY: within the area, whose first `used` bytes only are in use.
    unsafe {
        std::ptr::copy_nonoverlapping(code.bytes.as_ptr(), code.start as *mut u8, STUB_SIZE);
    }
    area.used.store(used + STUB_SIZE, Ordering::Relaxed);
    Some(code.start)
}

/// Stores or loads sixteen vector registers, `size` bytes each.
macro_rules! each_register {
    (store, $move:literal, $register:literal, $size:literal) => {
        concat!(
            ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n",
            $move,
            " [rsp + \\n*",
            $size,
            "], ",
            $register,
            "\\n\n",
            ".endr"
        )
    };
    (load, $move:literal, $register:literal, $size:literal) => {
        concat!(
            ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n",
            $move,
            " ",
            $register,
            "\\n, [rsp + \\n*",
            $size,
            "]\n",
            ".endr"
        )
    };
}

/// An entry called from a stub with the call's number in ecx: the kernel's calling convention,
/// that is, everything but rax, rcx and r11 is preserved, as far as it can be alive there. `around` is the call of the
/// body with the vector registers kept.
macro_rules! entry {
    ($(#[$about:meta])* $name:ident, $($around:expr),+) => {
        $(#[$about])*
        #[unsafe(naked)]
        pub(super) unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "push r9",
                "push r8",
                "push r10",
                "push rdx",
                "push rsi",
                "push rdi",
                "mov rsi, rsp",
                "mov edi, ecx",
                // Sixteen registers, and a note.
                "sub rsp, 16*32 + 64",
                "and rsp, -64",
                $($around,)+
                "lea rsp, [rbp - 48]",
                "pop rdi",
                "pop rsi",
                "pop rdx",
                "pop r10",
                "pop r8",
                "pop r9",
                "pop rbp",
                "ret",
                ".cfi_endproc",
                body = sym answer,
            )
        }
    };
}
entry!(
    /// Upper halves in all of which there are zeroes are not loaded: that would make them count as in use, and all code for
    /// SSE in the program slower, on processors that merge the halves, until something clears them.
    arck_patched_avx,
    each_register!(store, "vmovdqa", "ymm", "32"),
    ".irp n,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "vorps ymm0, ymm0, ymm\\n",
    ".endr",
    "vextractf128 xmm0, ymm0, 1",
    "vptest xmm0, xmm0",
    "setnz byte ptr [rsp + 16*32]",
    "vzeroupper",
    "call {body}",
    "cmp byte ptr [rsp + 16*32], 0",
    "je 2f",
    each_register!(load, "vmovdqa", "ymm", "32"),
    "jmp 3f",
    "2:",
    each_register!(load, "vmovdqa", "xmm", "32"),
    "3:"
);
entry!(
    arck_patched_sse,
    each_register!(store, "movdqa", "xmm", "16"),
    "call {body}",
    each_register!(load, "movdqa", "xmm", "16")
);

unsafe extern "C-unwind" fn answer(number: usize, a: &Arguments) -> isize {
    let point = number & CANCELLATION_POINT != 0;
    let number = number & !CANCELLATION_POINT;
    // SAFETY: the arguments of a call that libc made.
    unsafe { raw::uncancelled(point, || handle(number, a)) }
}

/// Not inlined, for the same reason as in `dispatch`.
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
