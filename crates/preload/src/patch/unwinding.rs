//! How to unwind out of a stub: a thread that is cancelled while it waits in a call made by one
//! must leave libc's functions, and the program's, as if it had been in the `syscall` that the
//! stub stands for, so that their clean-ups run.
//!
//! Invariant: where a stub calls the entry, the stack is [`FRAME`] bytes below what it was in
//! libc, and the address behind the original `syscall` lies [`RETURN`] bytes above its end. The
//! description covers whole areas of stubs and is registered once: at start-up, or when the unwinder
//! is loaded (see [`unwinder`](crate::unwinder)).

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// Bytes by which a stub that calls the entry lowers the stack: the red zone and 16 more.
pub const FRAME: u8 = 144;
/// Where in them the address to come back to is kept.
pub const RETURN: u8 = 8;

/// A description of one area, as in `.eh_frame`: what is common, the area, the end.
#[repr(C, align(8))]
struct Description(UnsafeCell<[u8; 80]>);

// SAFETY: written once, at start-up, before it is registered; afterwards only read.
unsafe impl Sync for Description {}

static NEAR: Description = Description(UnsafeCell::new([0; 80]));
static FAR: Description = Description(UnsafeCell::new([0; 80]));

/// The call frame information for stubs from `start` on.
fn describe(start: usize, size: usize) -> [u8; 80] {
    /// Registers by their number in DWARF.
    const STACK: u8 = 7;
    const RETURN_ADDRESS: u8 = 16;
    let mut bytes = [0u8; 80];
    let mut length = 0;
    let mut push = |more: &[u8]| {
        bytes[length..length + more.len()].copy_from_slice(more);
        length += more.len();
    };
    // What is common: 20 bytes, of which 4 name it; addresses are absolute.
    push(&20u32.to_le_bytes());
    push(&0u32.to_le_bytes());
    push(b"\x01zR\0");
    // Code in steps of 1, data in steps of -8, one byte of augmentation.
    push(&[1, 0x78, RETURN_ADDRESS, 1, 0]);
    // The frame begins FRAME bytes above the stack's end (a number in two parts of seven bits);
    // the return address lies so many steps below that.
    push(&[0x0c, STACK, 0x80 | FRAME & 0x7f, FRAME >> 7]);
    push(&[0x80 | RETURN_ADDRESS, (FRAME - RETURN) / 8]);
    push(&[0]);
    // The area, which refers to what is common 24 + 4 bytes before.
    push(&28u32.to_le_bytes());
    push(&28u32.to_le_bytes());
    push(&(start as u64).to_le_bytes());
    push(&(size as u64).to_le_bytes());
    push(&[0; 8]);
    // The end.
    push(&0u32.to_le_bytes());
    bytes
}

/// Whether the areas are described; how far telling the unwinder is; and by which function it is told,
/// where it was loaded before they were described.
static DESCRIBED: AtomicBool = AtomicBool::new(false);
static REGISTERED: AtomicU8 = AtomicU8::new(NOT_YET);
static FUNCTION: AtomicUsize = AtomicUsize::new(0);
const NOT_YET: u8 = 0;
const UNDER_WAY: u8 = 1;
const DONE: u8 = 2;

/// When the areas of stubs have their places: describes them.
///
/// # Safety
/// Called once, while no other thread runs.
pub unsafe fn start() {
    for (description, area, size) in [
        (&NEAR, &super::places::STUBS, super::places::STUBS_SIZE),
        (
            &FAR,
            &super::places::FAR_STUBS,
            super::places::FAR_STUBS_SIZE,
        ),
    ] {
        let start = area.start.load(Ordering::Relaxed);
        // SAFETY: nobody reads it yet.
        unsafe { *description.0.get() = describe(start, size) };
    }
    DESCRIBED.store(true, Ordering::Release);
    // A program in C++ has it from its start.
    // SAFETY: reads an address.
    let function = match unsafe { arck_register_frame() } {
        0 => FUNCTION.load(Ordering::Acquire),
        function => function,
    };
    register(function);
}

/// Whether the program has loaded the unwinder from its start.
pub fn is_loaded() -> bool {
    // SAFETY: reads an address.
    unsafe { arck_register_frame() != 0 }
}

// SAFETY: the function below, which takes nothing, changes no register but the one that it returns, and
// reads a word of this library's table of addresses.
unsafe extern "C" {
    fn arck_register_frame() -> usize;
}

std::arch::global_asm!(
    // The address of the unwinder's function, or 0 where the program has not loaded it: the symbol is
    // weak, so that this library does not need it.
    ".weak __register_frame",
    ".globl arck_register_frame",
    ".hidden arck_register_frame",
    ".type arck_register_frame,@function",
    "arck_register_frame:",
    "mov rax, [rip + __register_frame@GOTPCREL]",
    "ret",
    ".size arck_register_frame, . - arck_register_frame",
);

/// Tells the unwinder, by its function of this address, unless that is 0; once. When this returns it has
/// been told, by whichever thread, if there was anything to tell.
pub fn register(function: usize) {
    FUNCTION.store(function, Ordering::Release);
    if function == 0 || !DESCRIBED.load(Ordering::Acquire) {
        return;
    }
    let (acquire, release) = (Ordering::Acquire, Ordering::AcqRel);
    if REGISTERED
        .compare_exchange(NOT_YET, UNDER_WAY, release, acquire)
        .is_err()
    {
        while REGISTERED.load(Ordering::Acquire) != DONE {
            // SAFETY: no arguments.
            unsafe { crate::raw::syscall!(libc::SYS_sched_yield) };
        }
        return;
    }
    // SAFETY: `__register_frame`, which takes a description that lives for ever.
    unsafe {
        let function: unsafe extern "C" fn(*const u8) = std::mem::transmute(function);
        for (description, area) in [
            (&NEAR, &super::places::STUBS),
            (&FAR, &super::places::FAR_STUBS),
        ] {
            if area.start.load(Ordering::Relaxed) != 0 {
                function(description.0.get().cast_const().cast());
            }
        }
    }
    REGISTERED.store(DONE, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_agree() {
        let bytes = describe(0x1122_3344_5566_7788, 0x8000);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        // From record to record by their lengths.
        assert_eq!(word(4), 0);
        let area = 4 + word(0) as usize;
        assert_eq!(area + 4 - word(area + 4) as usize, 0);
        assert_eq!(
            bytes[area + 8..area + 16],
            0x1122_3344_5566_7788u64.to_le_bytes()
        );
        let end = area + 4 + word(area) as usize;
        assert_eq!(word(end), 0);
    }
}
