//! Any value of a type, as a row of numbers says: for tests, and for the seeds of a fuzzer.

/// Numbers, over and over again. Zeroes alone draw the least of each value, `u64::MAX` alone the most.
pub struct Draw {
    numbers: Vec<u64>,
    at: usize,
}

impl Draw {
    /// Of no numbers: zeroes.
    pub fn new(numbers: Vec<u64>) -> Draw {
        Draw { numbers, at: 0 }
    }

    /// From 0 to `most`.
    pub fn number(&mut self, most: u64) -> u64 {
        let at = self.at % self.numbers.len().max(1);
        self.at += 1;
        match self.numbers.get(at).copied().unwrap_or(0) {
            u64::MAX => most,
            number => most.checked_add(1).map_or(number, |end| number % end),
        }
    }

    /// From 0 to `most`.
    #[allow(clippy::cast_possible_truncation, reason = "it is no greater")]
    pub fn length(&mut self, most: usize) -> usize {
        self.number(most as u64) as usize
    }
}
