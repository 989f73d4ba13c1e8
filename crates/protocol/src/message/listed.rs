//! What a [`List`](super::Request::List) gives: names of a directory, as they stand in its buckets.

use super::READ_MAX;
use crate::declare::messages;
#[cfg(any(test, feature = "testing"))]
use crate::wire::Draw;
use crate::wire::{self, Bytes, Coding, Malformed, Reader, WireError, Writer};
use arck_core_state::{InodeNumber, NAME_MAX};

/// Bytes before the first name.
const HEAD: usize = 32;
const _: () = assert!(Listed::LEAST == HEAD && Listed::MOST == READ_MAX);
/// Stands for the end, in place of a bucket.
const END: u64 = u64::MAX;

messages! {
/// A name, and what it leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedName {
    pub inode: InodeNumber,
    /// [`arck_core_state::FileKind`].
    pub kind: u8,
    pub name: Vec<u8> as Bytes<NAME_MAX>,
}

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Of the directory's header: while it stays the same, so do the names.
    pub sequence: u64,
    pub parent: InodeNumber,
    pub buckets: u64,
    /// Where to go on: bucket, and what to skip there; none at the end.
    pub next: Option<(u64, u32)> as Onward,
    pub names: Vec<ListedName> as ToTheEnd,
}
}

/// Bucket and what to skip; `END` and 0 at the end.
struct Onward;

impl Coding for Onward {
    type Value = Option<(u64, u32)>;
    const LEAST: usize = 12;
    const MOST: usize = 12;
    fn put(value: &Option<(u64, u32)>, w: &mut Writer<'_>) -> Result<(), WireError> {
        let (bucket, skip) = value.unwrap_or((END, 0));
        u64::put(&bucket, w)?;
        u32::put(&skip, w)
    }
    fn get(r: &mut Reader<'_>) -> Result<Option<(u64, u32)>, WireError> {
        match (u64::get(r)?, u32::get(r)?) {
            (END, 0) => Ok(None),
            (END, _) => Err(Malformed),
            next => Ok(Some(next)),
        }
    }
    #[cfg(any(test, feature = "testing"))]
    fn drawn(draw: &mut Draw) -> Option<(u64, u32)> {
        let next = (draw.number(END - 1), u32::drawn(draw));
        bool::drawn(draw).then_some(next)
    }
}

/// As many names as there is room for in what one request reads.
struct ToTheEnd;

impl Coding for ToTheEnd {
    type Value = Vec<ListedName>;
    const LEAST: usize = 0;
    const MOST: usize = READ_MAX - HEAD;
    fn put(value: &Vec<ListedName>, w: &mut Writer<'_>) -> Result<(), WireError> {
        value.iter().try_for_each(|name| ListedName::put(name, w))
    }
    fn get(r: &mut Reader<'_>) -> Result<Vec<ListedName>, WireError> {
        let mut names = Vec::new();
        while !r.is_empty() {
            names.push(ListedName::get(r)?);
        }
        Ok(names)
    }
    #[cfg(any(test, feature = "testing"))]
    fn drawn(draw: &mut Draw) -> Vec<ListedName> {
        let most = ToTheEnd::MOST / ListedName::MOST;
        (0..draw.length(most))
            .map(|_| ListedName::drawn(draw))
            .collect()
    }
}

impl Listed {
    /// Adds a name if there is room for it.
    pub fn push(&mut self, name: ListedName) -> bool {
        let size = |name: &ListedName| ListedName::LEAST + name.name.len();
        let used: usize = self.names.iter().map(size).sum();
        let fits = HEAD + used + size(&name) <= READ_MAX;
        if fits {
            self.names.push(name);
        }
        fits
    }

    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let mut buffer = [0; READ_MAX];
        let used = wire::encode::<Listed>(self, &mut buffer)?;
        Ok(buffer[..used].to_vec())
    }

    pub fn decode(bytes: &[u8]) -> Result<Listed, WireError> {
        wire::decode::<Listed>(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut listed = Listed {
            sequence: 2,
            parent: 3,
            buckets: 4,
            next: Some((5, 6)),
            names: Vec::new(),
        };
        let mut length = 0;
        let fits = |listed: &mut Listed, length: usize| {
            listed.push(ListedName {
                inode: length as u32,
                kind: 8,
                name: vec![b'x'; length],
            })
        };
        while fits(&mut listed, length) {
            length += 1;
        }
        assert!(length > 50);
        let bytes = listed.encode().unwrap();
        assert!(bytes.len() <= READ_MAX && bytes.len() + length + 7 > READ_MAX);
        assert_eq!(Listed::decode(&bytes), Ok(listed.clone()));
        assert_eq!(Listed::decode(&bytes[..bytes.len() - 1]), Err(Malformed));
        listed.next = None;
        listed.names.clear();
        let bytes = listed.encode().unwrap();
        assert_eq!(Listed::decode(&bytes), Ok(listed));
        assert_eq!(Listed::decode(&[]), Err(Malformed));
    }
}
