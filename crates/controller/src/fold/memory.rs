//! What folds take of memory stays with the process for the next one.
//!
//! A fold of some thousand names takes some ten MiB for a few milliseconds: copies of deltas, what is said of each inode,
//! pages as they will be. An allocator that gives them back to the kernel, and is given them anew by the next fold, has
//! each page of them zeroed and mapped again: a tenth of the fold.
//!
//! # Invariant
//! * No more than [`KEPT`] or so is kept of what is free; what a large fold takes beyond that is given back.

use std::hint::black_box;

/// Twice this much memory that is free is kept.
const HALF: usize = 8 << 20;
/// See the module's head.
#[cfg(test)]
const KEPT: usize = 2 * HALF;

/// From now on memory is kept. glibc learns it from what it is given back: who has had a block of this size once is
/// taken to need such blocks again, and is left twice as much (malloc's dynamic thresholds). Nobody touches the block,
/// so it takes no memory; another allocator makes nothing of it.
pub fn keep() {
    drop(black_box(Vec::<u8>::with_capacity(HALF)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that this thread was given so far.
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // Behind the name, which may hold anything.
        let fields = stat.rsplit(')').next().unwrap();
        fields.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    /// As a fold: some large blocks, all of them touched.
    fn fold() {
        let blocks = (1..=4).map(|at| vec![black_box(1u8); KEPT * at / 16]);
        drop(black_box(blocks.collect::<Vec<_>>()));
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn what_one_fold_has_had_the_next_one_has_without_a_fault() {
        keep();
        let thread = std::thread::spawn(|| {
            fold();
            let before = faults();
            fold();
            faults() - before
        });
        let again = thread.join().unwrap();
        assert!(again < 200, "{again} faults");
    }
}
