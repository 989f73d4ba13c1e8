//! One process-wide byte that says what the primitives have to do: whether the
//! processor's flush instruction is known and which it is, whether to flush,
//! whether a trace is recorded, and whether a medium is emulated.
//!
//! Invariant: every primitive makes exactly one relaxed load of this byte. It
//! is relaxed because it carries no data: setting the policy or starting a
//! recording is done before the work it is meant for, and whoever needs the
//! two in order has a stronger synchronisation anyway.

use std::sync::atomic::{AtomicU8, Ordering};

const FLUSH: u8 = 1;
const RECORD: u8 = 1 << 1;
const EMULATE: u8 = 1 << 2;
/// Above this, 0 while the instruction is not known: asking the processor takes some microseconds in a
/// virtual machine, and who flushes nothing need not.
const INSTRUCTION_SHIFT: u32 = 3;

/// Until told otherwise the process flushes, the choice that loses nothing.
static CONTROL: AtomicU8 = AtomicU8::new(FLUSH);

/// Which instruction writes a cache line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushInstruction {
    /// Ordered, evicts the line: every x86-64 has it.
    Clflush = 1,
    /// Weakly ordered, evicts the line.
    Clflushopt,
    /// Weakly ordered, may keep the line in the cache.
    Clwb,
}

#[derive(Clone, Copy)]
pub(crate) struct Control(u8);

impl Control {
    #[inline(always)]
    pub(crate) fn flushes(self) -> bool {
        self.0 & FLUSH != 0
    }

    #[inline(always)]
    pub(crate) fn records(self) -> bool {
        self.0 & RECORD != 0
    }

    #[inline(always)]
    pub(crate) fn emulates(self) -> bool {
        self.0 & EMULATE != 0
    }

    /// Whether anything is to be done besides the access itself: one test, as long as there is not.
    #[inline(always)]
    pub(crate) fn is_watched(self) -> bool {
        self.0 & (RECORD | EMULATE) != 0
    }

    #[inline(always)]
    pub(crate) fn instruction(self) -> FlushInstruction {
        match self.0 >> INSTRUCTION_SHIFT {
            0 => find(),
            1 => FlushInstruction::Clflush,
            2 => FlushInstruction::Clflushopt,
            _ => FlushInstruction::Clwb,
        }
    }
}

#[inline(always)]
pub(crate) fn load() -> Control {
    Control(CONTROL.load(Ordering::Relaxed))
}

/// Finds the flush instruction, and notes it: every thread finds the same.
#[cold]
fn find() -> FlushInstruction {
    note(detect())
}

/// Notes it where nothing is noted yet; what is noted.
fn note(instruction: FlushInstruction) -> FlushInstruction {
    let noted = (instruction as u8) << INSTRUCTION_SHIFT;
    let is_new = |control: u8| (control >> INSTRUCTION_SHIFT == 0).then_some(control | noted);
    // Whoever was first has noted what counts.
    match CONTROL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_new) {
        Ok(_) => instruction,
        Err(control) => Control(control).instruction(),
    }
}

fn set(bit: u8, on: bool) {
    if on {
        CONTROL.fetch_or(bit, Ordering::Relaxed);
    } else {
        CONTROL.fetch_and(!bit, Ordering::Relaxed);
    }
}

pub(crate) fn set_flushing(on: bool) {
    set(FLUSH, on);
}

pub(crate) fn set_emulating(on: bool) {
    set(EMULATE, on);
}

pub(crate) fn set_recording(on: bool) {
    set(RECORD, on);
}

#[cfg(not(miri))]
fn detect() -> FlushInstruction {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    if __cpuid(0).eax < 7 {
        return FlushInstruction::Clflush;
    }
    of_leaf_7(__cpuid_count(7, 0).ebx)
}

/// `EBX` of the processor's leaf 7: bit 24 is clwb, bit 23 is clflushopt.
fn of_leaf_7(features: u32) -> FlushInstruction {
    if features & 1 << 24 != 0 {
        FlushInstruction::Clwb
    } else if features & 1 << 23 != 0 {
        FlushInstruction::Clflushopt
    } else {
        FlushInstruction::Clflush
    }
}

/// For who has been told already what the processor answers to leaf 7, in `EBX`: then it is not asked at the
/// first flush.
pub fn know_leaf_7(features: u32) {
    note(of_leaf_7(features));
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn each_processor_has_its_instruction() {
        let cases = [
            (0, FlushInstruction::Clflush),
            (1 << 23, FlushInstruction::Clflushopt),
            (1 << 24, FlushInstruction::Clwb),
            (1 << 24 | 1 << 23, FlushInstruction::Clwb),
            (!(1 << 23 | 1 << 24), FlushInstruction::Clflush),
        ];
        for (features, instruction) in cases {
            assert_eq!(of_leaf_7(features), instruction, "{features:#x}");
        }
        // What is known already stays, whoever comes to know something else.
        let known = load().instruction();
        assert_eq!(known, detect());
        know_leaf_7(0);
        assert_eq!(load().instruction(), known);
    }
}

#[cfg(miri)]
fn detect() -> FlushInstruction {
    FlushInstruction::Clflush
}
