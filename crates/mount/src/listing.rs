//! What a directory holds, as one open directory sees it.
//!
//! Invariant: a listing is one state of the directory, made when its reading begins (and begins again, from position 0);
//! position `n` is behind its first `n` entries, whatever comes and goes meanwhile.

use arckfs::{Errno, FileSystem, Handle};
use fuser::FileType;

/// One name.
pub struct Entry {
    pub number: u32,
    pub kind: FileType,
    /// Where the name is in the listing's bytes.
    name: (u32, u16),
}

/// See the module's head.
#[derive(Default)]
pub struct Listing {
    entries: Vec<Entry>,
    names: Vec<u8>,
}

/// Bytes of a record before its name, and where its length and its kind are.
const NAME: usize = 19;
const LENGTH: std::ops::Range<usize> = 16..18;
const KIND: usize = 18;

impl Listing {
    /// Reads all of an open directory from its beginning.
    pub fn read(fs: &FileSystem, directory: Handle) -> Result<Listing, Errno> {
        fs.seek(directory, 0, libc::SEEK_SET)?;
        let mut listing = Listing::default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match fs.read_directory(directory, &mut buffer) {
                Ok(0) => return Ok(listing),
                Ok(used) => listing.add(&buffer[..used])?,
                // It was removed: it is empty.
                Err(Errno::NOENT) => return Ok(Listing::default()),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Adds what stands in records as getdents64 has them.
    fn add(&mut self, mut records: &[u8]) -> Result<(), Errno> {
        while !records.is_empty() {
            let length = records.get(LENGTH).ok_or(Errno::IO)?;
            let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
            let record = records.get(..length).filter(|record| record.len() > NAME);
            let record = record.ok_or(Errno::IO)?;
            let number = record[..8].try_into().map_err(|_| Errno::IO)?;
            let name = record[NAME..].split(|&byte| byte == 0).next();
            let name = name.unwrap_or_default();
            let begin = u32::try_from(self.names.len()).map_err(|_| Errno::NOMEM)?;
            self.names.extend_from_slice(name);
            self.entries.push(Entry {
                number: u64::from_ne_bytes(number) as u32,
                kind: crate::nodes::kind(u32::from(record[KIND]) << 12),
                name: (begin, name.len() as u16),
            });
            records = &records[length..];
        }
        Ok(())
    }

    /// The entries from a position on, each with the position behind it and its name.
    pub fn from(&self, position: u64) -> impl Iterator<Item = (u64, &Entry, &[u8])> {
        let skipped = usize::try_from(position).unwrap_or(usize::MAX);
        let entries = self.entries.iter().enumerate().skip(skipped);
        entries.map(|(index, entry)| {
            let (begin, length) = (entry.name.0 as usize, usize::from(entry.name.1));
            (index as u64 + 1, entry, &self.names[begin..begin + length])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64, kind: u8, name: &[u8]) -> Vec<u8> {
        let length = (NAME + name.len() + 1).next_multiple_of(8);
        let mut bytes = vec![0; length];
        bytes[..8].copy_from_slice(&number.to_ne_bytes());
        bytes[LENGTH].copy_from_slice(&(length as u16).to_ne_bytes());
        bytes[KIND] = kind;
        bytes[NAME..NAME + name.len()].copy_from_slice(name);
        bytes
    }

    #[test]
    fn positions_are_behind_entries() {
        let mut listing = Listing::default();
        let records = [
            record(1, libc::DT_DIR, b"."),
            record(9, libc::DT_REG, b"name"),
            record(10, libc::DT_LNK, b"x"),
        ];
        listing.add(&records.concat()).unwrap();
        let names = |from| {
            listing
                .from(from)
                .map(|(next, entry, name)| (next, entry.number, name))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(0),
            [(1, 1, &b"."[..]), (2, 9, b"name"), (3, 10, b"x")]
        );
        assert_eq!(names(2), [(3, 10, &b"x"[..])]);
        assert!(names(3).is_empty() && names(u64::MAX).is_empty());
        assert_eq!(listing.from(2).next().unwrap().1.kind, FileType::Symlink);
        assert_eq!(listing.add(&[0; 5]), Err(Errno::IO));
        assert_eq!(listing.add(&[0; 40]), Err(Errno::IO));
    }
}
