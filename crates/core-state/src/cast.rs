//! Conversions between widths of numbers, by what they mean.
//!
//! The crates that read what others wrote do not narrow numbers by `as` (the lints that forbid it are on):
//! there a number that is cut off unseen is somebody's attack. What is meant is one of these.

const _: () = assert!(
    usize::BITS == 64,
    "a pool's addresses have 64 bits, and so have those of who maps it"
);

/// A number of the format as an index or a length in memory: all of it.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits")]
pub const fn index(number: u64) -> usize {
    number as usize
}

/// The lower half of a word that is made of two.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the other half is not meant"
)]
pub const fn low(word: u64) -> u32 {
    word as u32
}

/// The upper half of a word that is made of two.
#[inline]
pub const fn high(word: u64) -> u32 {
    low(word >> 32)
}

/// One of the eight bytes of a word, from its lowest on.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the other bytes are not meant"
)]
pub const fn byte(word: u64, index: u32) -> u8 {
    (word >> (8 * index)) as u8
}

/// A number of things of which there are never 2^32 or more, as who counts them makes sure of.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "asserted")]
pub const fn count(number: usize) -> u32 {
    debug_assert!(number <= u32::MAX as usize);
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_takes_its_part() {
        let word = 0x0807_0605_0403_0201;
        assert_eq!((low(word), high(word)), (0x0403_0201, 0x0807_0605));
        let bytes: Vec<u8> = (0..8).map(|index| byte(word, index)).collect();
        assert_eq!(bytes, word.to_le_bytes());
        assert_eq!(index(u64::MAX), usize::MAX);
        assert_eq!(count(0xffff_ffff), u32::MAX);
    }
}
