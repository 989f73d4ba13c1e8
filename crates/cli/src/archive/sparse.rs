//! Sparse files as GNU tar writes them in archives of the PAX format.
//!
//! Version 1.0, which is written: the size and the name stand in the entry's PAX header, and the
//! contents begin with a map, in decimal numbers on lines of their own: how many parts there are, and
//! of each where it begins and its length; filled up with zero bytes to a multiple of 512. Then come
//! the parts, one behind the other. Of versions 0.0 and 0.1, which are read too, the map stands in the
//! header.
//!
//! # Invariants
//! * Parts are in order, do not overlap, and end within the file's size; anything else is refused.
//! * The last part ends where the file does, if need be with a length of 0, so that the size is
//!   there for who does not know the header's.

use std::io::{self, Read};

/// A block of an archive.
const BLOCK: usize = 512;
/// Parts that a map can have here: more than any file of a pool has pages in a gigabyte.
const PARTS_MAX: u64 = 1 << 24;
/// Digits of a number, and its line's end.
const DIGITS_MAX: usize = 21;

/// Where there is something in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Of the whole file, bytes.
    pub size: u64,
    /// Where each part begins, and its length.
    pub parts: Vec<(u64, u64)>,
}

impl Map {
    pub fn has_holes(&self) -> bool {
        self.stored() < self.size
    }

    /// Bytes of all parts.
    pub fn stored(&self) -> u64 {
        self.parts.iter().map(|&(_, length)| length).sum()
    }

    /// As it stands before the parts.
    pub fn encode(&self) -> Vec<u8> {
        let mut parts = self.parts.clone();
        let end = parts.last().map_or(0, |&(at, length)| at + length);
        if end < self.size || parts.is_empty() {
            parts.push((self.size, 0));
        }
        let mut text = format!("{}\n", parts.len());
        for (at, length) in parts {
            text.push_str(&format!("{at}\n{length}\n"));
        }
        let mut bytes = text.into_bytes();
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    /// Reads a map that stands before the parts, and what fills it up.
    pub fn read(size: u64, from: &mut impl Read) -> io::Result<Map> {
        let mut read = 0;
        let mut number = || -> io::Result<u64> {
            let mut digits = Vec::new();
            loop {
                let mut byte = [0];
                from.read_exact(&mut byte)?;
                read += 1;
                match byte[0] {
                    b'\n' if !digits.is_empty() => break,
                    b'0'..=b'9' if digits.len() < DIGITS_MAX => digits.push(byte[0]),
                    _ => return Err(senseless()),
                }
            }
            let text = String::from_utf8(digits).map_err(|_| senseless())?;
            text.parse().map_err(|_| senseless())
        };
        let count = number()?;
        if count > PARTS_MAX {
            return Err(senseless());
        }
        let mut parts = Vec::new();
        for _ in 0..count {
            parts.push((number()?, number()?));
        }
        let rest = (read as usize).next_multiple_of(BLOCK) - read as usize;
        io::copy(&mut from.take(rest as u64), &mut io::sink())?;
        Map::checked(size, parts)
    }

    /// A map that stands in the header: numbers with commas between.
    pub fn of_header(size: u64, text: &str) -> io::Result<Map> {
        let numbers: Option<Vec<u64>> = text.split(',').map(|part| part.parse().ok()).collect();
        let numbers = numbers.ok_or_else(senseless)?;
        let (pairs, rest) = numbers.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(senseless());
        }
        Map::checked(
            size,
            pairs.iter().map(|&[at, length]| (at, length)).collect(),
        )
    }

    /// A map that stands in the header as records of their own: `None` for what is no number.
    pub fn of_numbers(size: u64, numbers: &[Option<u64>]) -> io::Result<Map> {
        let pairs = numbers.chunks(2).map(|pair| match *pair {
            [Some(at), Some(length)] => Ok((at, length)),
            _ => Err(senseless()),
        });
        Map::checked(size, pairs.collect::<io::Result<_>>()?)
    }

    /// Parts in order, within the file.
    pub fn checked(size: u64, mut parts: Vec<(u64, u64)>) -> io::Result<Map> {
        parts.retain(|&(_, length)| length > 0);
        let mut end = 0;
        for &(at, length) in &parts {
            let after = at.checked_add(length).filter(|&after| after <= size);
            match after {
                Some(after) if at >= end => end = after,
                _ => return Err(senseless()),
            }
        }
        Ok(Map { size, parts })
    }
}

fn senseless() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the map of a sparse file makes no sense",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_as_it_was_written() {
        for (size, parts) in [
            (0, vec![]),
            (1 << 40, vec![]),
            (10_000, vec![(0, 4096), (8192, 1808)]),
            (10_000, vec![(4096, 4096)]),
            (1 << 30, (0..2000).map(|n| (n * 8192, 4096)).collect()),
        ] {
            let map = Map { size, parts };
            let bytes = map.encode();
            assert_eq!(bytes.len() % BLOCK, 0);
            let mut from = &bytes[..];
            assert_eq!(Map::read(size, &mut from).unwrap(), map);
            assert!(from.is_empty());
        }
        let map = Map::of_header(100, "0,10,50,50").unwrap();
        assert_eq!(map.parts, [(0, 10), (50, 50)]);
        assert_eq!((map.stored(), map.has_holes()), (60, true));
        assert!(!Map::of_header(7, "0,7").unwrap().has_holes());
        let numbers = [0, 10, 50, 50].map(Some);
        assert_eq!(Map::of_numbers(100, &numbers).unwrap(), map);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "1\n0\n101\n",
            "2\n0\n10\n5\n10\n",
            "2\n50\n10\n0\n10\n",
            "1\n18446744073709551615\n1\n",
            "99999999999\n",
            "x\n",
            "\n",
            "-1\n",
            "1\n0\n",
            "1000000000000000000000000000\n",
        ] {
            let mut bytes = text.as_bytes().to_vec();
            if !text.starts_with("1\n0\n") || text.len() > 4 {
                bytes.resize(BLOCK, 0);
            }
            assert!(Map::read(100, &mut &bytes[..]).is_err(), "{text:?}");
        }
        for text in ["", "1", "0,200", "10,10,0,5", "a,b"] {
            assert!(Map::of_header(100, text).is_err(), "{text:?}");
        }
        for numbers in [&[Some(1)][..], &[Some(0), None], &[Some(99), Some(2)]] {
            assert!(Map::of_numbers(100, numbers).is_err(), "{numbers:?}");
        }
    }
}
