//! What a directory that was reached is found by, and how long and deep what is remembered may be.

use std::sync::atomic::{AtomicU64, Ordering};

/// How much one entry has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of the directory part, which is shorter than that.
    pub bytes: usize,
    /// Directories on the way, the first and the last included.
    pub levels: usize,
}

impl Limits {
    /// As much of a directory part as one entry has room for: the longest that ends before a slash, or all of it. `None`:
    /// its first name is too long.
    pub fn first_piece(self, prefix: &[u8]) -> Option<&[u8]> {
        // Besides the names' there is the level of the directory in which they begin.
        let within = prefix.get(..self.bytes).unwrap_or(prefix);
        let slashes = within.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
        let mut ends = slashes.map(|(at, _)| at).chain([prefix.len()]);
        let fits = |&(names, end): &(usize, usize)| names + 2 <= self.levels && end < self.bytes;
        let last = ends.by_ref().enumerate().take_while(fits).last();
        last.map(|(_, end)| &prefix[..end])
    }
}

/// The directory part of a path and where it begins.
#[derive(Clone, Copy)]
pub struct Key<'p> {
    pub path: &'p [u8],
    /// The starting directory's number and generation.
    pub directory: (u32, u32),
}

/// The words of a path: whole ones, then the last eight bytes again, which overlap them; of one
/// shorter than a word, its bytes alone. Read where they stand: a copy put together from smaller
/// pieces would be waited for.
#[inline(always)]
fn words(path: &[u8]) -> impl Iterator<Item = u64> {
    let (chunks, rest) = path.as_chunks::<8>();
    let last = match path.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last),
        None => rest
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    chunks
        .iter()
        .map(|chunk| u64::from_le_bytes(*chunk))
        .chain([last])
}

impl<'p> Key<'p> {
    #[inline(always)]
    pub fn new(directory: (u32, u32), path: &'p [u8], limits: Limits) -> Option<Key<'p>> {
        (!path.is_empty() && path.len() < limits.bytes).then_some(Key { path, directory })
    }

    /// A number by which the key's place is found.
    pub fn hash(&self) -> u64 {
        let mut hash = u64::from(self.directory.0) ^ (self.path.len() as u64) << 32;
        for word in words(self.path) {
            hash = (hash ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
        hash
    }

    /// Whether these words are the path's, of which there are as many bytes.
    #[inline(always)]
    pub fn fits(&self, stored: &[AtomicU64]) -> bool {
        stored
            .iter()
            .zip(words(self.path))
            .all(|(word, wanted)| word.load(Ordering::Relaxed) == wanted)
    }

    pub fn store(&self, into: &[AtomicU64]) {
        for (word, value) in into.iter().zip(words(self.path)) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Limits = Limits {
        bytes: 96,
        levels: 10,
    };

    #[test]
    fn long_and_deep_parts_come_in_pieces() {
        let long = "n".repeat(SHORT.bytes - 1);
        let too_long = "n".repeat(SHORT.bytes);
        let deep = ["d"; SHORT.levels - 1].join("/");
        let cases = [
            ("a/b/c".to_owned(), Some("a/b/c".to_owned())),
            (long.clone(), Some(long.clone())),
            (too_long.clone(), None),
            (format!("{long}/a"), Some(long.clone())),
            (format!("a/{long}/b"), Some("a".to_owned())),
            (format!("a/{too_long}"), Some("a".to_owned())),
            (deep.clone(), Some(deep.clone())),
            (format!("{deep}/e/f"), Some(deep)),
        ];
        for (part, expected) in cases {
            let piece = SHORT.first_piece(part.as_bytes());
            assert_eq!(piece, expected.as_deref().map(str::as_bytes), "{part}");
        }
    }

    #[test]
    fn keys_tell_paths_apart() {
        let words = [const { AtomicU64::new(0) }; 12];
        let key = |path| Key::new((1, 7), path, SHORT);
        let stored = key(b"twelve/bytes").unwrap();
        stored.store(&words);
        assert!(stored.fits(&words));
        for other in [&b"twelve/byteS"[..], b"twelve/bytfs", b"Twelve/bytes"] {
            assert!(!key(other).unwrap().fits(&words), "{other:?}");
            assert_ne!(key(other).unwrap().hash(), stored.hash());
        }
        assert!(key(b"").is_none());
        assert!(key(&[b'x'; 95]).is_some());
        assert!(key(&[b'x'; 96]).is_none());
    }
}
