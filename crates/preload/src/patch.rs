//! Rewriting of libc's system call sites, the faster net. Not done yet on any system: every
//! site is left to the trap.

/// How many sites were rewritten.
pub fn sites() -> usize {
    0
}
