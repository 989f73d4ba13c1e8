//! Flush and fence, under the process-wide [`PersistPolicy`].
//!
//! Invariant: under [`PersistPolicy::Flush`], what was stored before
//! [`flush_range`] (or streamed with [`crate::copy`]) is durable once the *same
//! thread* has passed [`fence`]; under [`PersistPolicy::NoFlush`] the same calls
//! still keep the order in which other threads and processes see the stores.

use std::sync::atomic::{self, Ordering};

use crate::control::{self, Control};
pub use crate::control::{FlushInstruction, know_leaf_7};
pub use crate::lines::CACHE_LINE;
use crate::lines::lines_of;
use crate::{medium, record};

/// Whether this process flushes. One process serves one pool at a time with
/// one durability mode, so the policy belongs to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PersistPolicy {
    /// Execute flushes, fences and streaming stores.
    Flush,
    /// Flushes do nothing, the fence orders stores for the compiler only (the
    /// processor keeps the order of ordinary stores by itself), and streaming
    /// stores become ordinary ones, which need no fence.
    NoFlush,
}

/// Sets the policy for the whole process. The default is [`PersistPolicy::Flush`].
///
/// To be called before persistent memory is written: a streaming store made
/// under `Flush` and fenced under `NoFlush` would not be fenced at all.
pub fn set_policy(policy: PersistPolicy) {
    control::set_flushing(policy == PersistPolicy::Flush);
}

/// The policy in force.
pub fn policy() -> PersistPolicy {
    if control::load().flushes() {
        PersistPolicy::Flush
    } else {
        PersistPolicy::NoFlush
    }
}

/// The instruction this processor flushes with.
pub fn flush_instruction() -> FlushInstruction {
    control::load().instruction()
}

/// Starts writing back every cache line of `[address, address + len)`; durable
/// after the next [`fence`] of this thread. Does not wait.
///
/// # Safety
/// The range is mapped readable (a flush of an unmapped address faults).
#[inline(always)]
#[track_caller]
pub unsafe fn flush_range(address: *const u8, len: usize) {
    let control = control::load();
    if control.is_watched() {
        watched_flush(control, address, len);
    }
    if control.flushes() {
        // SAFETY: as this function's contract says.
        unsafe { flush_lines(control, address, len) };
    }
}

/// What a flush is besides itself: traced, and slow.
#[cold]
#[inline(never)]
#[track_caller]
fn watched_flush(control: Control, address: *const u8, len: usize) {
    if control.records() {
        record::flush(address, len);
    }
    if control.emulates() {
        medium::flushed(address, len);
    }
}

/// # Safety
/// As [`flush_range`].
#[inline(always)]
pub(crate) unsafe fn flush_lines(control: Control, address: *const u8, len: usize) {
    let (first, count) = lines_of(address as usize, len);
    let start = address.wrapping_sub(address as usize - first);
    let instruction = control.instruction();
    for index in 0..count {
        let line = start.wrapping_add(index * CACHE_LINE);
        // SAFETY: the line holds at least one byte of a mapped range, so it is mapped.
        unsafe { flush_line(instruction, line) };
    }
}

/// # Safety
/// `line` lies in mapped memory, and the processor has `instruction`.
#[cfg(not(miri))]
#[inline(always)]
unsafe fn flush_line(instruction: FlushInstruction, line: *const u8) {
    use std::arch::asm;
    // Without `nomem` the compiler keeps every earlier store before the flush.
    match instruction {
        FlushInstruction::Clwb => {
            // SAFETY: writes a mapped line back and changes nothing else.
            unsafe { asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)) }
        }
        FlushInstruction::Clflushopt => {
            // SAFETY: as above.
            unsafe { asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)) }
        }
        FlushInstruction::Clflush => {
            // SAFETY: as above.
            unsafe { asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)) }
        }
    }
}

#[cfg(miri)]
unsafe fn flush_line(_: FlushInstruction, _: *const u8) {}

/// Waits until everything this thread has flushed or streamed is durable.
#[inline(always)]
#[track_caller]
pub fn fence() {
    let control = control::load();
    if control.is_watched() {
        watched_fence(control);
        return;
    }
    bare_fence(control);
}

#[inline(always)]
fn bare_fence(control: Control) {
    if control.flushes() {
        store_fence();
    } else {
        // No instruction on x86-64: ordinary stores are seen in program order.
        atomic::fence(Ordering::Release);
    }
}

/// A fence that is traced, or slow.
#[cold]
#[inline(never)]
#[track_caller]
fn watched_fence(control: Control) {
    if control.records() {
        record::fence();
    }
    let begun = control.emulates().then(medium::fences).flatten();
    bare_fence(control);
    medium::fenced(begun);
}

/// The fence instruction itself, whatever the policy; orders streaming stores
/// before everything that follows.
#[inline(always)]
pub(crate) fn store_fence() {
    #[cfg(not(miri))]
    // SAFETY: sfence has no operands and needs nothing.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(miri)]
    atomic::fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_range() {
        assert_eq!(lines_of(128, 0).1, 0);
        assert_eq!(lines_of(128, 1), (128, 1));
        assert_eq!(lines_of(128, 64), (128, 1));
        assert_eq!(lines_of(128, 65), (128, 2));
        assert_eq!(lines_of(191, 2), (128, 2));
        assert_eq!(lines_of(190, 2), (128, 1));
    }

    #[test]
    #[cfg(not(miri))]
    fn finds_what_the_processor_offers() {
        let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
        let expected = if has("clwb") {
            FlushInstruction::Clwb
        } else if has("clflushopt") {
            FlushInstruction::Clflushopt
        } else {
            FlushInstruction::Clflush
        };
        assert_eq!(flush_instruction(), expected);
    }

    #[test]
    fn every_instruction_runs() {
        let line = [0u8; 256];
        for instruction in [FlushInstruction::Clflush, flush_instruction()] {
            // SAFETY: `line` is mapped, and the processor has both instructions.
            unsafe { flush_line(instruction, line.as_ptr()) };
        }
        // SAFETY: `line` is mapped.
        unsafe { flush_range(line.as_ptr(), line.len()) };
        fence();
    }
}
