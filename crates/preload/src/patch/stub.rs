//! Stubs: how they are put together, and the entry that they call.
//!
//! Invariants:
//! * A stub preserves what the kernel would at a system call, as far as it can be alive there (see
//!   [`super`]).
//! * It calls the entry from the frame that [`unwinding`](super::unwinding) describes.

use super::places::{Area, STUB_SIZE, distance};
use super::unwinding;
use crate::calls;
use crate::raw::{self, Arguments};
use std::sync::atomic::{AtomicU32, Ordering};

/// Set beside a call's number that came from the cancellation point.
pub const CANCELLATION_POINT: usize = 1 << 16;

/// A stub being written.
pub(super) struct Code {
    bytes: [u8; STUB_SIZE],
    length: usize,
    start: usize,
    entry: usize,
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
        // mov r11, entry; call r11
        self.push(&[0x49, 0xbb]);
        self.push(&(self.entry as u64).to_le_bytes());
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
        entry: area.entry.load(Ordering::Relaxed),
    };
    fill(&mut code);
    // SAFETY: within the area, whose first `used` bytes only are in use.
    unsafe {
        std::ptr::copy_nonoverlapping(code.bytes.as_ptr(), code.start as *mut u8, STUB_SIZE);
    }
    area.used.store(used + STUB_SIZE, Ordering::Relaxed);
    Some(code.start)
}

/// The stub of a site outside of libc: the `mov` of the number at `site`, and the `syscall` that ends at `after`. Where it is, and what makes it as if
/// it were not, in place of its first eight bytes. `None` if there is no room.
///
/// # Safety
/// As [`write_stub`]; what is between may be copied.
pub(super) unsafe fn write_foreign(
    area: &Area,
    size: usize,
    number: usize,
    site: usize,
    after: usize,
) -> Option<(usize, u64)> {
    /// Of the move, which the jump behind it leaves standing where it was.
    const MOVE: usize = 5;
    let number = (number as u32).to_le_bytes();
    let mut tail = 0;
    // SAFETY: the caller's promise.
    let stub = unsafe {
        let between = site + MOVE..after - 2;
        let between = std::slice::from_raw_parts(between.start as *const u8, between.len());
        write_stub(area, size, |code| {
            // One instruction that does nothing.
            code.push(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]);
            code.push(between);
            code.push_entry(after, |code| {
                code.push(&[0xb9]);
                code.push(&number);
            });
            code.push_jump(after);
            tail = code.length;
            code.push_jump(site + MOVE);
        })?
    };
    // mov eax, number; a short jump to the tail; one byte that nobody comes to.
    let [a, b, c, d] = number;
    let nothing = [0xb8, a, b, c, d, 0xeb, u8::try_from(tail - 7).ok()?, 0xcc];
    Some((stub, u64::from_le_bytes(nothing)))
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
/// that is, everything but rax, rcx and r11 is preserved, as far as it can be alive there. The body is called by what stands in brackets, with
/// `$room` bytes on the stack, aligned to 64, for the vector registers to be kept in; `$flags` are kept around all of it.
macro_rules! entry {
    ($(#[$about:meta])* $name:ident, $body:path, $room:literal,
     flags [$($push:literal, $pop:literal)?], $saved:literal, [$($around:expr),+ $(,)?] $(, $operand:ident = $symbol:path)*) => {
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
                $($push,)?
                "push r9",
                "push r8",
                "push r10",
                "push rdx",
                "push rsi",
                "push rdi",
                "mov rsi, rsp",
                "mov edi, ecx",
                concat!("sub rsp, ", $room),
                "and rsp, -64",
                $($around,)+
                concat!("lea rsp, [rbp - ", $saved, "]"),
                "pop rdi",
                "pop rsi",
                "pop rdx",
                "pop r10",
                "pop r8",
                "pop r9",
                $($pop,)?
                "pop rbp",
                "ret",
                ".cfi_endproc",
                $($operand = sym $symbol,)*
                body = sym $body,
            )
        }
    };
}
entry!(
    /// Upper halves in all of which there are zeroes are not loaded: that would make them count as in use, and all code for
    /// SSE in the program slower, on processors that merge the halves, until something clears them.
    arck_patched_avx,
    answer,
    // Sixteen registers, and a note.
    "16*32 + 64",
    flags [],
    "48",
    [
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
    ]
);
entry!(
    arck_patched_sse,
    answer,
    "16*16",
    flags [],
    "48",
    [
        each_register!(store, "movdqa", "xmm", "16"),
        "call {body}",
        each_register!(load, "movdqa", "xmm", "16")
    ]
);

/// Of `ECX` of leaf 1: the system uses XSAVE.
pub(super) const OSXSAVE: u32 = 1 << 27;

/// What [`arck_patched_foreign`] keeps, of what the system lets programs use: vector registers, all of their halves, and masks.
static KEPT: AtomicU32 = AtomicU32::new(0);
/// SSE, AVX, masks, upper halves of sixteen, and sixteen more.
const KEPT_MOST: u64 = 0xe6;

/// Which registers the system keeps for programs (XCR0).
///
/// # Safety
/// It uses XSAVE.
pub(super) unsafe fn kept_by_system() -> u64 {
    use std::arch::x86_64::_xgetbv;
    #[target_feature(enable = "xsave")]
    fn register() -> u64 {
        // SAFETY: register 0 is there where there is XSAVE.
        unsafe { _xgetbv(0) }
    }
    // SAFETY: the caller's promise.
    unsafe { register() }
}

/// Whether the processor can keep them together, compactly (XSAVEC).
pub(super) fn choose_kept() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const XSAVEC: u32 = 1 << 1;
    const SSE: u64 = 1 << 1;
    if __cpuid(1).ecx & OSXSAVE == 0 || __cpuid_count(0xd, 1).eax & XSAVEC == 0 {
        return false;
    }
    // SAFETY: the system uses XSAVE.
    let kept = unsafe { kept_by_system() } & KEPT_MOST;
    KEPT.store(kept as u32, Ordering::Relaxed);
    kept & SSE != 0
}

/// An entry for code that may use any register: what is not the body's to preserve is kept, and flags. 2,624 bytes are as much as
/// [`KEPT_MOST`] can take (576, and 256, 64, 512 and 1,024, each at a multiple of 64).
macro_rules! foreign_entry {
    ($(#[$about:meta])* $name:ident, $body:path) => {
        entry!(
            $(#[$about])*
            $name,
            $body,
            "2816",
            flags ["pushfq", "popfq"],
            "56",
            [
                // What is not written of the head has to be zero when it is loaded.
                "xor eax, eax",
                ".irp n,0,1,2,3,4,5,6,7",
                "mov qword ptr [rsp + 512 + \\n*8], rax",
                ".endr",
                "mov eax, dword ptr [rip + {kept}]",
                "xor edx, edx",
                "xsavec [rsp]",
                "cld",
                "call {body}",
                "mov rcx, rax",
                "mov eax, dword ptr [rip + {kept}]",
                "xor edx, edx",
                "xrstor [rsp]",
                "mov rax, rcx",
            ],
            kept = KEPT
        );
    };
}
foreign_entry!(
    /// For sites outside of libc. [`choose_kept`] has been asked before.
    arck_patched_foreign,
    answer
);

unsafe extern "C-unwind" fn answer(number: usize, a: &Arguments) -> isize {
    let point = number & CANCELLATION_POINT != 0;
    let number = number & !CANCELLATION_POINT;
    // SAFETY: the arguments of a call that the site's code made.
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

#[cfg(test)]
mod tests {
    use super::*;

    foreign_entry!(
        /// With a body that changes all that it may.
        arck_patched_wiped,
        wipe
    );

    /// All vector registers, whole, and the masks.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[repr(C, align(64))]
    struct Everything([[u64; 8]; 32], [u64; 8], u64);

    /// The body of the entry in the test below: changes all that it may.
    unsafe extern "C-unwind" fn wipe(number: usize, _: &raw::Arguments) -> isize {
        // SAFETY: of a function's own registers; the processor has them where the test calls this.
        unsafe {
            if std::arch::is_x86_feature_detected!("avx512f") {
                std::arch::asm!(
                    ".irp n,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                    "vpternlogd zmm\\n, zmm\\n, zmm\\n, 255",
                    ".endr",
                    ".irp n,1,2,3,4,5,6,7",
                    "kxnorw k\\n, k\\n, k\\n",
                    ".endr",
                );
            }
            if std::arch::is_x86_feature_detected!("avx") {
                std::arch::asm!("vzeroall", "std", "cld");
            }
            std::arch::asm!("xor eax, eax", "xorps xmm0, xmm0", "xorps xmm15, xmm15", out("eax") _, out("xmm0") _, out("xmm15") _);
        }
        number as isize + 1
    }

    /// Code outside of libc may use whatever registers there are, and flags.
    #[test]
    fn entries_of_other_code_preserve_everything() {
        use std::arch::is_x86_feature_detected;
        assert!(
            choose_kept(),
            "this processor has no XSAVEC: run this on one of the last ten years"
        );
        let word = |register: usize, place: usize| (register as u64 + 1) << 32 | place as u64;
        let mut before = Everything([[0; 8]; 32], [0; 8], 0);
        let is_wide = is_x86_feature_detected!("avx512bw");
        let (registers, words) = match (is_wide, std::arch::is_x86_feature_detected!("avx")) {
            (true, _) => (32, 8),
            (false, true) => (16, 4),
            (false, false) => (16, 2),
        };
        for (register, place) in (0..registers).flat_map(|n| (0..words).map(move |w| (n, w))) {
            before.0[register][place] = word(register, place);
        }
        if is_wide {
            before.1 = std::array::from_fn(|mask| match mask {
                0 => 0,
                _ => word(mask, 77),
            });
        }
        let mut after = Everything([[0; 8]; 32], [0; 8], 0);
        let (result, flags): (u64, u64);
        macro_rules! call {
            ($load:literal, $store:literal) => {
                // SAFETY: the entry preserves what is not said to be changed; the processor has the registers.
                unsafe {
                    std::arch::asm!(
                        "lea rsp, [rsp - 144]",
                        $load,
                        "mov ecx, 41",
                        // Carry.
                        "stc",
                        "call {entry}",
                        "pushfq",
                        "pop {flags}",
                        "mov {result}, rax",
                        $store,
                        "lea rsp, [rsp + 144]",
                        before = in(reg) &raw const before,
                        after = in(reg) &raw mut after,
                        entry = sym arck_patched_wiped,
                        result = out(reg) result,
                        flags = out(reg) flags,
                        inout("rdi") 1u64 => _, inout("rsi") 2u64 => _, inout("rdx") 3u64 => _,
                        inout("r8") 4u64 => _, inout("r9") 5u64 => _, inout("r10") 6u64 => _,
                        out("rax") _, out("rcx") _, out("r11") _,
                        out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _,
                        out("zmm6") _, out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                        out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _,
                    )
                }
            };
        }
        match (is_wide, std::arch::is_x86_feature_detected!("avx")) {
            (true, _) => call!(
                ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\
                 vmovdqa64 zmm\\n, [{before} + \\n*64]\n.endr\n\
                 .irp n,1,2,3,4,5,6,7\nkmovq k\\n, [{before} + 2048 + \\n*8]\n.endr",
                ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n\
                 vmovdqa64 [{after} + \\n*64], zmm\\n\n.endr\n\
                 .irp n,1,2,3,4,5,6,7\nkmovq [{after} + 2048 + \\n*8], k\\n\n.endr"
            ),
            (false, true) => call!(
                ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nvmovdqa ymm\\n, [{before} + \\n*64]\n.endr",
                ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nvmovdqa [{after} + \\n*64], ymm\\n\n.endr"
            ),
            (false, false) => call!(
                ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nmovdqa xmm\\n, [{before} + \\n*64]\n.endr",
                ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nmovdqa [{after} + \\n*64], xmm\\n\n.endr"
            ),
        }
        assert_eq!((result, flags & 1), (42, 1));
        assert_eq!(after, before);
    }
}
