//! In the child: where an operation begins and ends. Who steps through it knows both by their addresses.
//!
//! Invariant: both return at once and change nothing; they are not the same code, or a linker could make one of them.

use std::arch::naked_asm;

/// What follows belongs to an operation.
#[unsafe(naked)]
pub extern "C" fn operation_begins() {
    naked_asm!("ret");
}

/// The operation is over.
#[unsafe(naked)]
pub extern "C" fn operation_ends() {
    naked_asm!("nop", "ret");
}

/// The addresses, for [`crate::trace::begin_steps`].
pub fn both() -> [u64; 2] {
    [operation_begins, operation_ends].map(|place| place as extern "C" fn() as usize as u64)
}
