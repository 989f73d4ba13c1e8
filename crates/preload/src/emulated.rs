//! Whether this program's instructions are executed by valgrind, which makes its system calls in this process
//! by itself. They would be caught as the program's, in the middle of its own work, and it knows of no caught
//! one: so a program under it is left to the kernel, as those are that this library is not loaded into.
//!
//! Invariant: on a processor the question changes nothing but the answer's register. It costs five instructions.

use std::arch::asm;

/// What valgrind is asked: whether it is there. (`VG_USERREQ__RUNNING_ON_VALGRIND`)
const RUNNING: u64 = 0x1001;

pub fn by_valgrind() -> bool {
    // The question, and five arguments that it has not.
    let question = [RUNNING, 0, 0, 0, 0, 0];
    let mut answer = 0u64;
    // SAFETY: the rotations are by 128 bits in all, and a register is exchanged with itself. Valgrind knows the
    // sequence, reads the question, and writes the answer's register.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdi") 0u64 => _,
            in("rax") question.as_ptr(),
            inout("rdx") answer,
            options(nostack, readonly)
        );
    }
    answer != 0
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_processor_is_no_valgrind() {
        assert!(!super::by_valgrind());
    }
}
