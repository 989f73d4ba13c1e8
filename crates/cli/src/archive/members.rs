//! The members of a tar archive, one after the other: what comes before each (GNU's long names, PAX
//! records, the map of an old sparse file), and its contents.
//!
//! Of `tar` the headers' fields are taken. Its own walk over an archive takes the end of the input
//! within a member for the member's, and a line break in a PAX value for that of the record.
//!
//! # Invariants
//! * Whatever the bytes are, all of a member comes, or an error: an archive that ends before its end
//!   mark is cut off.
//! * What is held of an archive at once, but for contents, is at most [`HELD_MAX`] bytes.

use super::sparse::Map;
use std::io::{self, Read};
use tar::{EntryType, GnuExtSparseHeader, Header};

/// Bytes of a block.
const BLOCK: usize = 512;
/// Bytes of long names and PAX records before a member.
const HELD_MAX: u64 = 64 << 20;

/// Programs that compress archives: what their files begin with, what they are called, and what
/// undoes it.
const COMPRESSED: [(&[u8], &str, &str); 7] = [
    (b"\x1f\x8b", "gzip", "zcat"),
    (b"\xfd7zXZ\0", "xz", "xzcat"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"BZh", "bzip2", "bzcat"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4cat"),
    (b"LZIP", "lzip", "lzip -dc"),
    (b"\x1f\x9d", "compress", "zcat"),
];

/// A PAX record: key and value.
pub type Record = (Vec<u8>, Vec<u8>);

/// Why there is no more of an archive.
#[derive(Debug)]
pub enum Broken {
    /// It could not be read.
    Io(io::Error),
    /// It ends too early.
    Cut,
    /// It begins with something else.
    NoArchive,
    /// The same: with what that program makes, which the second one undoes.
    Compressed(&'static str, &'static str),
    /// Something in it cannot be.
    Senseless(&'static str),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Broken::Cut,
            _ => Broken::Io(error),
        }
    }
}

/// A member, without its contents.
pub struct Member {
    pub header: Header,
    pub name: Vec<u8>,
    /// What a link leads to.
    pub target: Option<Vec<u8>>,
    /// Bytes of it in the archive.
    pub size: u64,
    /// PAX records that hold for it, later ones before earlier ones of the same key.
    pub records: Vec<Record>,
    /// Of an old sparse file.
    pub map: Option<Map>,
}

/// See the module's head. Reads as the contents of the last member that was given.
pub struct Members<R> {
    from: R,
    /// Of the last member, bytes of its contents that were not read.
    rest: u64,
    /// Bytes behind the contents.
    filling: u64,
    /// PAX records for all that follow.
    global: Vec<Record>,
    is_first: bool,
}

impl<R: Read> Members<R> {
    pub fn new(from: R) -> Members<R> {
        Members {
            from,
            rest: 0,
            filling: 0,
            global: Vec::new(),
            is_first: true,
        }
    }

    /// Bytes of the last member's contents that have not been read.
    pub fn rest(&self) -> u64 {
        self.rest
    }

    /// The next member; `None` at the end mark.
    pub fn next(&mut self) -> Result<Option<Member>, Broken> {
        let (mut name, mut target) = (None, None);
        let mut records = Vec::new();
        loop {
            self.skip()?;
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let senseless = |_| Broken::Senseless("its size is no number");
            self.rest = header.entry_size().map_err(senseless)?;
            self.filling = filling(self.rest);
            match header.entry_type() {
                EntryType::GNULongName => name = Some(self.text()?),
                EntryType::GNULongLink => target = Some(self.text()?),
                EntryType::XHeader => records = parse(&self.held()?)?,
                EntryType::XGlobalHeader => {
                    let held = self.held()?;
                    self.global.extend(parse(&held)?);
                }
                _ => {
                    let mut all = self.global.clone();
                    all.extend(records);
                    return self.member(header, name, target, all).map(Some);
                }
            }
        }
    }

    fn member(
        &mut self,
        header: Header,
        name: Option<Vec<u8>>,
        target: Option<Vec<u8>>,
        records: Vec<Record>,
    ) -> Result<Member, Broken> {
        let record = |wanted: &[u8]| {
            let mut found = records.iter().rev();
            let found = found.find(|(key, value)| key == wanted && !value.is_empty());
            found.map(|(_, value)| value.clone())
        };
        let size = record(b"size").map(|text| {
            let text = String::from_utf8(text).ok();
            text.and_then(|text| text.parse().ok())
                .ok_or(Broken::Senseless("its size is no number"))
        });
        if let Some(size) = size.transpose()? {
            self.rest = size;
            self.filling = filling(size);
        }
        let map = match header.entry_type() {
            EntryType::GNUSparse => Some(self.old_map(&header)?),
            _ => None,
        };
        let of_header = || header.path_bytes().into_owned();
        Ok(Member {
            name: record(b"path").or(name).unwrap_or_else(of_header),
            target: record(b"linkpath")
                .or(target)
                .or_else(|| header.link_name_bytes().map(|name| name.into_owned())),
            size: self.rest,
            map,
            records,
            header,
        })
    }

    /// Of a sparse file of GNU's own format: the map begins in the header, and goes on in blocks
    /// behind it.
    fn old_map(&mut self, header: &Header) -> Result<Map, Broken> {
        const SENSELESS: Broken = Broken::Senseless("the map of a sparse file makes no sense");
        let gnu = header.as_gnu().ok_or(SENSELESS)?;
        let mut parts = Vec::new();
        let mut add = |entries: &[tar::GnuSparseHeader]| {
            for entry in entries.iter().filter(|entry| !entry.is_empty()) {
                match (entry.offset(), entry.length()) {
                    (Ok(at), Ok(length)) => parts.push((at, length)),
                    _ => return Err(SENSELESS),
                }
            }
            Ok(())
        };
        add(&gnu.sparse)?;
        let mut goes_on = gnu.is_extended();
        let mut held = 0;
        while goes_on {
            let mut more = GnuExtSparseHeader::new();
            self.from.read_exact(more.as_mut_bytes())?;
            add(more.sparse())?;
            goes_on = more.is_extended();
            held += BLOCK as u64;
            if held > HELD_MAX {
                return Err(SENSELESS);
            }
        }
        let size = gnu.real_size().map_err(|_| SENSELESS)?;
        Map::checked(size, parts).map_err(|_| SENSELESS)
    }

    /// Leaves what has not been read of the last member.
    fn skip(&mut self) -> Result<(), Broken> {
        let all = self.rest.saturating_add(self.filling);
        let skipped = io::copy(&mut (&mut self.from).take(all), &mut io::sink())?;
        (self.rest, self.filling) = (0, 0);
        match skipped == all {
            true => Ok(()),
            false => Err(Broken::Cut),
        }
    }

    /// The next header; `None`: the end mark.
    fn header(&mut self) -> Result<Option<Header>, Broken> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut read = 0;
        while read < BLOCK {
            match self.from.read(&mut block[read..]) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let is_first = std::mem::replace(&mut self.is_first, false);
        if is_first {
            let found = COMPRESSED
                .iter()
                .find(|(magic, ..)| block.starts_with(magic));
            if let Some((_, program, undone)) = found {
                return Err(Broken::Compressed(program, undone));
            }
        }
        if read < BLOCK {
            return Err(match is_first && read > 0 {
                true => Broken::NoArchive,
                false => Broken::Cut,
            });
        }
        if block.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        // The checksum's own bytes count as spaces.
        let sum: u32 = (0..)
            .zip(block.iter())
            .map(|(at, &byte)| match at {
                148..156 => u32::from(b' '),
                _ => u32::from(byte),
            })
            .sum();
        match header.cksum() {
            Ok(wanted) if wanted == sum => Ok(Some(header)),
            _ if is_first => Err(Broken::NoArchive),
            _ => Err(Broken::Senseless("a header's checksum is wrong")),
        }
    }

    /// All of the contents.
    fn held(&mut self) -> Result<Vec<u8>, Broken> {
        if self.rest > HELD_MAX {
            return Err(Broken::Senseless("names or attributes of that size"));
        }
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A name, which ends with a zero.
    fn text(&mut self) -> Result<Vec<u8>, Broken> {
        let mut bytes = self.held()?;
        let end = bytes.iter().position(|&byte| byte == 0);
        bytes.truncate(end.unwrap_or(bytes.len()));
        Ok(bytes)
    }
}

impl<R: Read> Read for Members<R> {
    /// An archive that ends before the contents do is `UnexpectedEof`.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.rest).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(most);
        if wanted == 0 {
            return Ok(0);
        }
        match self.from.read(&mut buffer[..wanted])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.rest -= count as u64;
                Ok(count)
            }
        }
    }
}

/// Bytes that fill contents up to whole blocks.
fn filling(size: u64) -> u64 {
    let block = BLOCK as u64;
    (block - size % block) % block
}

/// PAX records: `LENGTH KEY=VALUE` and a line break each; the length is that of all of it.
fn parse(mut bytes: &[u8]) -> Result<Vec<Record>, Broken> {
    const SENSELESS: Broken = Broken::Senseless("a PAX record makes no sense");
    let mut records = Vec::new();
    // Some fill the rest up with zeroes.
    while bytes.first().is_some_and(|&byte| byte != 0) {
        let space = bytes.iter().position(|&byte| byte == b' ');
        let space = space.ok_or(SENSELESS)?;
        let length = std::str::from_utf8(&bytes[..space]).ok();
        let length: usize = length.and_then(|text| text.parse().ok()).ok_or(SENSELESS)?;
        let record = bytes.get(space + 1..length).ok_or(SENSELESS)?;
        let record = record.strip_suffix(b"\n").ok_or(SENSELESS)?;
        let equals = record.iter().position(|&byte| byte == b'=');
        let (key, value) = record.split_at(equals.ok_or(SENSELESS)?);
        records.push((key.to_vec(), value[1..].to_vec()));
        bytes = &bytes[length..];
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_as_long_as_they_say() {
        let records = parse(b"11 a=1\n2=3\n10 path=\xff\n\0\0").unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(records[0], (b"a".to_vec(), b"1\n2=3".to_vec()));
        assert_eq!(records[1], (b"path".to_vec(), b"\xff".to_vec()));
        for senseless in [
            &b"x"[..],
            b"5 a=1",
            b"99 a=1\n",
            b"6 a=1 \n",
            b"6 abc\n",
            b"-1 a=1\n",
            b"2 a=1\n",
            b"0 a=1\n",
            b" a=1\n",
        ] {
            assert!(parse(senseless).is_err(), "{senseless:?}");
        }
    }

    /// A member with a long name, records and contents, and one behind it.
    fn archive() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let value = b"one\ntwo".as_slice();
        let records = [
            ("SCHILY.xattr.user.a", value),
            ("path", b"na\nme".as_slice()),
        ];
        builder.append_pax_extensions(records).unwrap();
        for (name, content) in [("first", vec![7; 1000]), ("second", vec![])] {
            let mut header = Header::new_ustar();
            header.set_path(name).unwrap();
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, &content[..]).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn all_of_an_archive_comes() {
        let bytes = archive();
        let mut members = Members::new(&bytes[..]);
        let first = members.next().unwrap().unwrap();
        assert_eq!(first.name, b"na\nme");
        assert_eq!(first.records[0].1, b"one\ntwo");
        let mut content = Vec::new();
        members.read_to_end(&mut content).unwrap();
        assert_eq!(content, [7; 1000]);
        assert_eq!(members.next().unwrap().unwrap().name, b"second");
        assert!(members.next().unwrap().is_none());
    }

    #[test]
    fn wherever_it_is_cut_that_is_an_error() {
        let bytes = archive();
        // One block of the end mark is enough.
        for end in 0..bytes.len() - 512 {
            let mut members = Members::new(&bytes[..end]);
            let broken = loop {
                match members.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{end}: as if it were whole"),
                    Err(broken) => break broken,
                }
            };
            let is_told = matches!(broken, Broken::Cut | Broken::NoArchive);
            assert!(is_told, "{end}: {broken:?}");
        }
    }
}
