//! In the child: code of which it is known what it does, instruction by instruction, to count the counting.

use super::places;
use crate::trace;
use std::arch::naked_asm;

/// By phase.
pub const NAMES: [&str; 2] = ["nothing", "some of each"];

/// Bytes that the code works on, on lines of their own.
#[repr(align(4096))]
struct Area([u8; 4096]);

/// On a line of its own, and not in the area.
#[repr(align(64))]
struct Word(#[allow(dead_code)] u64);
static WORD: Word = Word(7);

/// An operation of no instructions.
#[unsafe(naked)]
extern "C" fn nothing() {
    naked_asm!("sub rsp, 8", "call {begins}", "call {ends}", "add rsp, 8", "ret",
        begins = sym places::operation_begins, ends = sym places::operation_ends);
}

/// An operation of 19 instructions, in which
/// * two flush, one stores past the cache, two fence and two are locked, one of them without saying so,
/// * seven lines are read: 2, 4, 5, 8 and 9 of the area, and the word's; and the stack's,
/// * nine are written: 0, 1, 3, 4, 5, 16, 17 and 18 of the area; and the stack's,
/// * one calls the kernel.
#[unsafe(naked)]
extern "C" fn some_of_each(area: *mut u8) {
    naked_asm!(
        "push rbx",
        "mov rbx, rdi",
        "call {begins}",
        "mov rax, [rip + {word}]",
        "mov [rbx], rax",
        // Across two lines.
        "mov [rbx + 60], rax",
        "mov rax, [rbx + 128]",
        "movnti [rbx + 192], rax",
        "clflush [rbx]",
        "clflush [rbx + 64]",
        "sfence",
        "lock add qword ptr [rbx + 256], 1",
        "xchg [rbx + 320], rax",
        "mfence",
        "push rax",
        "pop rax",
        "lea rsi, [rbx + 512]",
        "lea rdi, [rbx + 1084]",
        "mov ecx, 128",
        "rep movsb",
        // getpid
        "mov eax, 39",
        "syscall",
        "call {ends}",
        "pop rbx",
        "ret",
        begins = sym places::operation_begins,
        ends = sym places::operation_ends,
        word = sym WORD,
    );
}

pub fn all() {
    let mut area = Box::new(Area([0; 4096]));
    let mut run = |phase, body: &mut dyn FnMut(*mut u8)| {
        trace::begin_steps(phase, places::both());
        for _ in 0..3 {
            body(area.0.as_mut_ptr());
        }
        trace::end_steps();
    };
    run(0, &mut |_| nothing());
    run(1, &mut |bytes| some_of_each(bytes));
}
