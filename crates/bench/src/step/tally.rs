//! What is counted of an operation.

use serde::{Deserialize, Serialize};

/// See the module's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub instructions: u64,
    /// Of them, in the preload library, which ArckFS is part of; in libc and all other libraries. The rest is the
    /// program's own: with the Rust API, ArckFS is part of that.
    pub preload: u64,
    pub libc: u64,
    pub system_calls: u64,
    /// Distinct lines.
    pub lines_read: u64,
    pub lines_written: u64,
    /// Read or written.
    pub lines: u64,
    /// Of these, those of the pool's files.
    pub lines_pool: u64,
    pub flushes: u64,
    /// Stores past the cache, by instruction.
    pub streaming: u64,
    pub fences: u64,
    pub locked: u64,
}

impl Tally {
    const FIELDS: [fn(&mut Tally) -> &mut u64; 12] = [
        |tally| &mut tally.instructions,
        |tally| &mut tally.preload,
        |tally| &mut tally.libc,
        |tally| &mut tally.system_calls,
        |tally| &mut tally.lines_read,
        |tally| &mut tally.lines_written,
        |tally| &mut tally.lines,
        |tally| &mut tally.lines_pool,
        |tally| &mut tally.flushes,
        |tally| &mut tally.streaming,
        |tally| &mut tally.fences,
        |tally| &mut tally.locked,
    ];

    /// All but the instructions, as tables have them.
    pub fn beside(mut self) -> Vec<u64> {
        let fields = Tally::FIELDS.iter().skip(1);
        fields.map(|field| *field(&mut self)).collect()
    }

    /// Of each figure the one in the middle, and of two the smaller.
    pub fn middle(tallies: &[Tally]) -> Tally {
        let mut middle = Tally::default();
        for field in Tally::FIELDS {
            let of = |tally: &Tally| *field(&mut tally.clone());
            let mut figures: Vec<u64> = tallies.iter().map(of).collect();
            figures.sort_unstable();
            let place = figures.len().saturating_sub(1) / 2;
            *field(&mut middle) = figures.get(place).copied().unwrap_or(0);
        }
        middle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_a_middle_of_its_own() {
        let tally = |instructions, fences| Tally {
            instructions,
            fences,
            ..Tally::default()
        };
        let middle = Tally::middle(&[tally(9, 1), tally(5, 7), tally(6, 3)]);
        assert_eq!(middle, tally(6, 3));
        assert_eq!(Tally::middle(&[tally(4, 0), tally(2, 0)]).instructions, 2);
        assert_eq!(Tally::middle(&[]), Tally::default());
        assert_eq!(middle.beside().len(), 11);
    }
}
