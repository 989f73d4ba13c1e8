//! What a [`List`](super::Request::List) gives: names of a directory, as they stand in its buckets.

use super::READ_MAX;
use crate::wire::{Malformed, Reader, Writer};
use arck_core_state::InodeNumber;

/// Bytes before the first name.
const HEAD: usize = 32;
/// Stands for the end, in place of a bucket.
const END: u64 = u64::MAX;

/// A name, and what it leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedName {
    pub inode: InodeNumber,
    /// [`arck_core_state::FileKind`].
    pub kind: u8,
    pub name: Vec<u8>,
}

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Of the directory's header: while it stays the same, so do the names.
    pub sequence: u64,
    pub parent: InodeNumber,
    pub buckets: u64,
    /// Where to go on: bucket, and what to skip there; none at the end.
    pub next: Option<(u64, u32)>,
    pub names: Vec<ListedName>,
}

impl Listed {
    /// Adds a name if there is room for it.
    pub fn push(&mut self, name: ListedName) -> bool {
        let size = |name: &ListedName| 7 + name.name.len();
        let used: usize = self.names.iter().map(size).sum();
        let fits = HEAD + used + size(&name) <= READ_MAX;
        if fits {
            self.names.push(name);
        }
        fits
    }

    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut buffer = [0; READ_MAX];
        let mut w = Writer::new(&mut buffer);
        let (bucket, skip) = self.next.unwrap_or((END, 0));
        w.u64(self.sequence)?;
        w.u32(self.parent)?;
        w.u64(self.buckets)?;
        w.u64(bucket)?;
        w.u32(skip)?;
        for name in &self.names {
            w.u32(name.inode)?;
            w.u8(name.kind)?;
            w.bytes(&name.name)?;
        }
        let used = w.used();
        Ok(buffer[..used].to_vec())
    }

    pub fn decode(bytes: &[u8]) -> Result<Listed, Malformed> {
        let mut r = Reader::new(bytes);
        let (sequence, parent, buckets) = (r.u64()?, r.u32()?, r.u64()?);
        let next = match (r.u64()?, r.u32()?) {
            (END, 0) => None,
            (END, _) => return Err(Malformed),
            next => Some(next),
        };
        let mut names = Vec::new();
        while !r.is_empty() {
            names.push(ListedName {
                inode: r.u32()?,
                kind: r.u8()?,
                name: r.bytes()?.to_vec(),
            });
        }
        Ok(Listed {
            sequence,
            parent,
            buckets,
            next,
            names,
        })
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
