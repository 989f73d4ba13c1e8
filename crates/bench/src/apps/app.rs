//! A program that is measured, and what it says of itself.

use super::side::Side;
use crate::outcome::Outcome;

/// What a program has measured of itself.
pub struct Figure {
    pub what: String,
    /// With which settings.
    pub setting: String,
    /// Nanoseconds an operation.
    pub each: f64,
    pub wanted: f64,
    /// What it says of its result, which has to be the same on both sides.
    pub result: String,
}

/// A program, and how much it does.
pub trait App {
    fn name(&self) -> &'static str;
    /// Runs it on a side, in an empty directory, and looks whether what it leaves is right.
    fn round(&self, side: &Side) -> Outcome<Vec<Figure>>;
}

/// With commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_grouped() {
        let cases = [
            (7, "7"),
            (200, "200"),
            (20_000, "20,000"),
            (1_234_567, "1,234,567"),
        ];
        for (number, text) in cases {
            assert_eq!(super::grouped(number), text);
        }
    }
}
