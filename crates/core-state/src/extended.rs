//! Extended attributes: one page of an inode that has any.
//!
//! The page lies in a data segment, and like file data it is written by the session that may
//! write the file, without anybody checking its bytes: readers take it for what it may be. (By the controller, where it is asked
//! by message to do it.)
//!
//! # Invariants
//! * Entries stand one behind another from byte 0 on: length of the name (2 bytes, 6 to 255),
//!   length of the value (2 bytes), name, value. A name length of 0, or the end of the page, ends
//!   them. The rest is 0.
//! * Names are unique and begin with [`PREFIX`].
//! * Nothing here trusts a length: a page that is not so has the entries before the fault.

use crate::geometry::PAGE_BYTES;

/// What all names begin with.
pub const PREFIX: &str = "user.";
/// Longest name, in bytes, the prefix included.
pub const NAME_MAX: usize = 255;
/// Longest value that may be asked for, in bytes; what fits is less.
pub const VALUE_MAX: usize = 65536;
/// In a branch: the inode has no extended attributes any more.
pub const NONE: u32 = u32::MAX;

const PAGE: usize = PAGE_BYTES;
/// Bytes of an entry before its name.
const HEAD: usize = 4;

/// A private copy of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page(pub [u8; PAGE]);

impl Default for Page {
    /// Without entries.
    fn default() -> Page {
        Page([0; PAGE])
    }
}

impl Page {
    /// Names and values.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (name, value, end) = self.entry(at)?;
            at = end;
            Some((name, value))
        })
    }

    /// The entry that begins at `at`, and where the next one does.
    fn entry(&self, at: usize) -> Option<(&[u8], &[u8], usize)> {
        let head = self.0.get(at..at + HEAD)?;
        let name_length = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let value_length = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let name_end = at + HEAD + name_length;
        let end = name_end + value_length;
        let name = self.0.get(at + HEAD..name_end)?;
        let value = self.0.get(name_end..end)?;
        let is_long_enough = name_length > PREFIX.len() && name_length <= NAME_MAX;
        let sound = is_long_enough && name.starts_with(PREFIX.as_bytes()) && !name.contains(&0);
        sound.then_some((name, value, end))
    }

    /// The value of a name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.entries().find(|entry| entry.0 == name).map(|e| e.1)
    }

    /// Bytes of all entries, from the first on.
    pub fn length(&self) -> usize {
        self.entries()
            .map(|(name, value)| HEAD + name.len() + value.len())
            .sum()
    }

    /// The same names, with values that are empty.
    pub fn names(&self) -> Page {
        let (mut names, mut at) = (Page::default(), 0);
        for (name, _) in self.entries() {
            // They fit where they stood with their values.
            at = names.put(at, name, b"").unwrap_or(at);
        }
        names
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries().next().is_none()
    }

    /// The page with `name` set to `value`, or without it. `None` if that does not fit.
    pub fn with(&self, name: &[u8], value: Option<&[u8]>) -> Option<Page> {
        let mut page = Page::default();
        let mut at = 0;
        let others = self.entries().filter(|entry| entry.0 != name);
        for (name, value) in others.chain(value.map(|value| (name, value))) {
            at = page.put(at, name, value)?;
        }
        Some(page)
    }

    /// Writes an entry; gives where the next one begins. `None` if it does not fit.
    fn put(&mut self, at: usize, name: &[u8], value: &[u8]) -> Option<usize> {
        let end = at + HEAD + name.len() + value.len();
        let place = self.0.get_mut(at..end)?;
        place[..2].copy_from_slice(&u16::try_from(name.len()).ok()?.to_le_bytes());
        place[2..HEAD].copy_from_slice(&u16::try_from(value.len()).ok()?.to_le_bytes());
        place[HEAD..HEAD + name.len()].copy_from_slice(name);
        place[HEAD + name.len()..].copy_from_slice(value);
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_replaced_and_removed() {
        let page = Page::default();
        assert!(page.is_empty());
        let page = page.with(b"user.a", Some(b"one")).unwrap();
        let page = page.with(b"user.b", Some(b"")).unwrap();
        let page = page.with(b"user.a", Some(b"two")).unwrap();
        assert_eq!(page.get(b"user.a"), Some(&b"two"[..]));
        assert_eq!(page.get(b"user.b"), Some(&b""[..]));
        assert_eq!(page.get(b"user."), None);
        assert_eq!(page.entries().count(), 2);
        assert_eq!(page.length(), 2 * (HEAD + 6) + 3);
        let names = page.with(b"user.b", Some(b"")).unwrap();
        assert_eq!(page.names(), names.with(b"user.a", Some(b"")).unwrap());
        let page = page.with(b"user.a", None).unwrap();
        let page = page.with(b"user.b", None).unwrap();
        assert_eq!(page, Page::default());
    }

    #[test]
    fn a_page_fills_to_its_last_byte() {
        let value = [7; PAGE - HEAD - 6];
        let page = Page::default().with(b"user.a", Some(&value)).unwrap();
        assert_eq!(page.get(b"user.a"), Some(&value[..]));
        assert_eq!(page.with(b"user.b", Some(b"")), None);
        assert!(page.with(b"user.a", Some(&value[1..])).is_some());
        let longer = [7; PAGE - HEAD - 5];
        assert_eq!(Page::default().with(b"user.a", Some(&longer)), None);
    }

    #[test]
    fn anything_may_stand_there() {
        let mut seed = 1u64;
        for _ in 0..2000 {
            let mut page = Page::default();
            for byte in &mut page.0 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                // Mostly small, so that lengths are.
                *byte = if seed >> 60 == 0 {
                    (seed >> 32) as u8
                } else {
                    (seed >> 40) as u8 % 8
                };
            }
            assert!(page.entries().count() <= PAGE / HEAD);
            let page = page.with(b"user.x", Some(b"y"));
            assert!(page.is_none_or(|page| page.get(b"user.x") == Some(b"y")));
        }
        let mut other = Page::default().with(b"user.a", Some(b"one")).unwrap();
        other.0[HEAD] = b'U';
        assert!(other.is_empty(), "another prefix is no entry");
        let mut short = Page::default();
        short.0[0] = 5;
        short.0[HEAD..HEAD + 5].copy_from_slice(b"user.");
        assert!(short.is_empty(), "a prefix alone is no name");
    }
}
