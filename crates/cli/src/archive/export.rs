//! A pool to a tar archive on standard output.
//!
//! # Invariant
//! A file's contents and attributes are those of one moment: the inode's sequence word, all that
//! its owner had changed having been folded, was the same before and after they were read.

use super::interrupt::{self, Until};
use super::members::Record;
use super::names::names;
use super::sparse::Map;
use super::told::{Told, Wrong, plain};
use arckfs::{At, Attributes, Errno, Failure, FileSystem, Handle, Subject, Timestamp};
use std::collections::HashMap;
use std::io::{self, BufWriter, Read as _, Seek, SeekFrom, Stdout, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tar::{Builder, EntryType, Header};
use tempfile::SpooledTempFile;

/// Contents beyond this many bytes are held in a file.
const HELD: usize = 64 << 20;
/// How often a file that changes is read again.
const AGAIN: usize = 20;
/// Longer than a lease: within one the controller need not fold again.
const LEASE: Duration = Duration::from_millis(2);

/// What is said then.
const INTERRUPTED: &str = "interrupted; the archive is not whole";

/// What was read of a file.
struct Read {
    found: Attributes,
    extended: Vec<(Vec<u8>, Vec<u8>)>,
    /// What stands in its parts, one behind the other.
    content: SpooledTempFile,
    map: Map,
}

struct Export<'f> {
    fs: &'f FileSystem,
    tar: Builder<BufWriter<Until<Stdout>>>,
    told: &'f mut Told,
    /// Files with several names, and the first of them.
    linked: HashMap<u64, Vec<u8>>,
}

/// Exports what is at `path` and beneath.
pub fn export(fs: &FileSystem, path: &Path, told: &mut Told) -> Result<(), String> {
    let top = path.as_os_str().as_bytes();
    let top = top.strip_prefix(b"/").unwrap_or(top).to_vec();
    // Before anything is written.
    fs.stat(At::Root, &top, libc::AT_SYMLINK_NOFOLLOW)
        .map_err(|failure| format!("{}: {}", arck_check::quoted(&top), plain(failure)))?;
    let mut export = Export {
        fs,
        tar: Builder::new(BufWriter::with_capacity(1 << 20, Until(io::stdout()))),
        told,
        linked: HashMap::new(),
    };
    let broken = |error: io::Error| match interrupt::happened() {
        true => INTERRUPTED.to_owned(),
        false => format!("writing the archive: {}", crate::run::plain(&error)),
    };
    let mut waiting = vec![top.clone()];
    while let Some(path) = waiting.pop() {
        if interrupt::happened() {
            return Err(INTERRUPTED.to_owned());
        }
        match export.entry(&path) {
            Ok(true) => match names(export.fs, &path) {
                Ok(names) => waiting.extend(names.into_iter().rev().map(|name| {
                    let mut below = path.clone();
                    if !below.is_empty() {
                        below.push(b'/');
                    }
                    below.extend_from_slice(&name);
                    below
                })),
                Err(failure) => export.told.wrong(&path, plain(failure)),
            },
            Ok(false) => {}
            // Gone since its directory was read.
            Err(Wrong::Pool(Failure::Errno(Errno::NOENT))) if path != top => {}
            Err(Wrong::Pool(failure)) => export.told.wrong(&path, plain(failure)),
            Err(Wrong::Kind(what)) => export.told.wrong(&path, what),
            Err(Wrong::Archive(error)) => return Err(broken(error)),
        }
    }
    let mut out = export.tar.into_inner().map_err(broken)?;
    out.flush().map_err(broken)
}

/// What an entry is called, and what it takes.
struct Entry<'t> {
    name: Vec<u8>,
    kind: EntryType,
    target: Option<&'t [u8]>,
    /// Bytes in the archive.
    size: u64,
}

/// The key of an extended attribute. What ends a key is written as GNU tar writes it.
fn attribute(name: &[u8]) -> Vec<u8> {
    let mut key = b"SCHILY.xattr.".to_vec();
    for &byte in name {
        match byte {
            b'%' => key.extend(b"%25"),
            b'=' => key.extend(b"%3D"),
            byte => key.push(byte),
        }
    }
    key
}

/// Records as they stand in an archive, each with its whole length in front.
fn encode(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in records {
        // Key and value, and a space, `=` and a line break.
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        bytes.extend(format!("{length} ").bytes());
        bytes.extend(key);
        bytes.push(b'=');
        bytes.extend(value);
        bytes.push(b'\n');
    }
    bytes
}

/// Seconds with a fraction, as PAX headers have them.
fn decimal(time: Timestamp) -> String {
    if time.seconds < 0 && time.nanoseconds > 0 {
        // -1.5 s is second -2 and half a second.
        return format!(
            "-{}.{:09}",
            -(time.seconds + 1),
            1_000_000_000 - time.nanoseconds
        );
    }
    format!("{}.{:09}", time.seconds, time.nanoseconds)
}

impl Export<'_> {
    fn stat(&self, path: &[u8]) -> Result<Attributes, Failure> {
        self.fs.stat(At::Root, path, libc::AT_SYMLINK_NOFOLLOW)
    }

    /// Sequence word of an inode, and whether another session owns it.
    fn sequence(&self, inode: u64) -> (u64, bool) {
        let number = u32::try_from(inode).unwrap_or(0);
        self.fs
            .session()
            .header(number)
            .map_or((0, false), |header| {
                let is_owned = header.ownership().session() != 0;
                (header.sequence.load(Ordering::Acquire), is_owned)
            })
    }

    /// Writes one entry; true if it is a directory.
    fn entry(&mut self, path: &[u8]) -> Result<bool, Wrong> {
        let found = self.stat(path)?;
        let first = self.linked.get(&found.inode).cloned();
        let kind = found.mode & libc::S_IFMT;
        if let Some(first) = first {
            self.write(path, &found, EntryType::Link, Some(&first), Vec::new())?;
            return Ok(false);
        }
        match kind {
            libc::S_IFDIR => {
                let extended = self.extended(path);
                self.write(path, &found, EntryType::Directory, None, extended)?;
                return Ok(true);
            }
            libc::S_IFREG => self.file(path)?,
            libc::S_IFLNK => {
                let mut target = vec![0; 4096];
                let length = self.fs.read_link(At::Root, path, &mut target)?;
                target.truncate(length);
                self.write(path, &found, EntryType::Symlink, Some(&target), Vec::new())?;
            }
            libc::S_IFIFO => {
                self.write(path, &found, EntryType::Fifo, None, Vec::new())?;
            }
            libc::S_IFCHR => {
                self.write(path, &found, EntryType::Char, None, Vec::new())?;
            }
            libc::S_IFBLK => {
                self.write(path, &found, EntryType::Block, None, Vec::new())?;
            }
            _ => {
                self.told.wrong(path, "a socket is nothing for an archive");
                return Ok(false);
            }
        }
        if found.links > 1 {
            self.linked.insert(found.inode, path.to_vec());
        }
        Ok(false)
    }

    fn file(&mut self, path: &[u8]) -> Result<(), Wrong> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW;
        let handle = self.fs.open(At::Root, path, flags, 0)?;
        let read = self.read_at_rest(path, handle);
        self.fs.close(handle);
        let (mut read, at_rest) = read?;
        if !at_rest {
            self.told.wrong(
                path,
                "it changes all the time, and is as it was at several moments",
            );
        }
        let map = read.map.has_holes().then_some(&read.map);
        self.write_file(path, &read.found, read.extended, map, &mut read.content)
    }

    /// Attributes and contents; whether they are of one moment.
    fn read_at_rest(&mut self, path: &[u8], handle: Handle) -> Result<(Read, bool), Wrong> {
        let mut turn = 0;
        loop {
            turn += 1;
            let found = self.fs.stat_handle(handle)?;
            let (before, _) = self.sequence(found.inode);
            let (content, map) = self.read(handle, found.size)?;
            let extended = self.extended(path);
            let (_, is_owned) = self.sequence(found.inode);
            if is_owned {
                std::thread::sleep(LEASE);
            }
            let again = self.fs.stat_handle(handle)?;
            let (after, _) = self.sequence(found.inode);
            let at_rest = before == after && again == found && before & 1 == 0;
            if at_rest || turn == AGAIN {
                let read = Read {
                    found,
                    extended,
                    content,
                    map,
                };
                return Ok((read, at_rest));
            }
        }
    }

    /// Where there is something in the first `size` bytes.
    fn map(&self, handle: Handle, size: u64) -> Result<Map, Errno> {
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut at = 0;
        while at < size {
            let from = i64::try_from(at).map_err(|_| Errno::FBIG)?;
            let begin = match self.fs.seek(handle, from, libc::SEEK_DATA) {
                Ok(begin) if begin < size => begin.max(at),
                Ok(_) | Err(Errno::NXIO) => break,
                Err(errno) => return Err(errno),
            };
            let from = i64::try_from(begin).map_err(|_| Errno::FBIG)?;
            let end = match self.fs.seek(handle, from, libc::SEEK_HOLE) {
                Ok(end) => end.clamp(begin + 1, size),
                // It became shorter: then it is read again.
                Err(Errno::NXIO) => size,
                Err(errno) => return Err(errno),
            };
            match parts.last_mut() {
                Some((last, length)) if *last + *length == begin => *length += end - begin,
                _ => parts.push((begin, end - begin)),
            }
            at = end;
        }
        Ok(Map { size, parts })
    }

    fn read(&self, handle: Handle, size: u64) -> Result<(SpooledTempFile, Map), Wrong> {
        let map = self.map(handle, size)?;
        let mut content = SpooledTempFile::new(HELD);
        let mut buffer = vec![0; usize::try_from(size).unwrap_or(0).clamp(1, 1 << 20)];
        for &(begin, length) in &map.parts {
            let end = begin + length;
            let mut at = begin;
            while at < end {
                if interrupt::happened() {
                    return Err(io::Error::other("interrupted").into());
                }
                let wanted = usize::try_from(end - at)
                    .unwrap_or(usize::MAX)
                    .min(buffer.len());
                let count = self.fs.read(handle, &mut buffer[..wanted], Some(at))?;
                if count == 0 {
                    break;
                }
                content.write_all(&buffer[..count])?;
                at += count as u64;
            }
            // It became shorter: then it is read again, and the archive's size holds all the same.
            io::copy(&mut io::repeat(0).take(end - at), &mut content)?;
        }
        content.seek(SeekFrom::Start(0))?;
        Ok((content, map))
    }

    /// Extended attributes; those that cannot be read are told.
    fn extended(&mut self, path: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let subject = Subject::Path(At::Root, path, libc::AT_SYMLINK_NOFOLLOW);
        let mut names = vec![0; 1 << 16];
        let length = match self.fs.list_extended(subject, &mut names) {
            Ok(length) => length,
            Err(Failure::Errno(Errno::NOTSUP)) => 0,
            Err(failure) => {
                self.told
                    .wrong(path, format!("its attributes: {}", plain(failure)));
                0
            }
        };
        let mut found = Vec::new();
        for name in names[..length]
            .split(|&byte| byte == 0)
            .filter(|name| !name.is_empty())
        {
            let mut value = vec![0; 1 << 16];
            match self.fs.get_extended(subject, name, &mut value) {
                Ok(length) => {
                    value.truncate(length);
                    found.push((name.to_vec(), value));
                }
                Err(failure) => {
                    self.told
                        .wrong(path, format!("an attribute: {}", plain(failure)));
                }
            }
        }
        found
    }

    /// Writes the entry of a file: of a sparse one its map, and the parts.
    fn write_file(
        &mut self,
        path: &[u8],
        found: &Attributes,
        extended: Vec<(Vec<u8>, Vec<u8>)>,
        map: Option<&Map>,
        content: &mut dyn io::Read,
    ) -> Result<(), Wrong> {
        let mut more: Vec<Record> = extended
            .into_iter()
            .map(|(key, value)| (attribute(&key), value))
            .collect();
        let Some(map) = map else {
            let entry = Entry {
                name: path.to_vec(),
                kind: EntryType::Regular,
                target: None,
                size: found.size,
            };
            return self.write_entry(entry, found, more, content);
        };
        let before = map.encode();
        for (key, value) in [
            ("major", b"1".to_vec()),
            ("minor", b"0".to_vec()),
            ("name", path.to_vec()),
            ("realsize", map.size.to_string().into_bytes()),
        ] {
            more.push((format!("GNU.sparse.{key}").into_bytes(), value));
        }
        // For who does not know all that.
        let base = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let mut name = b"GNUSparseFile.0/".to_vec();
        name.extend(base.iter().filter(|byte| byte.is_ascii()).take(80));
        let entry = Entry {
            name,
            kind: EntryType::Regular,
            target: None,
            size: before.len() as u64 + map.stored(),
        };
        self.write_entry(entry, found, more, &mut before.chain(content))
    }

    /// Writes the entry of what is no file.
    fn write(
        &mut self,
        path: &[u8],
        found: &Attributes,
        kind: EntryType,
        target: Option<&[u8]>,
        extended: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<(), Wrong> {
        let more = extended
            .into_iter()
            .map(|(key, value)| (attribute(&key), value));
        let entry = Entry {
            name: path.to_vec(),
            kind,
            target,
            size: 0,
        };
        self.write_entry(entry, found, more.collect(), &mut io::empty())
    }

    /// Writes a PAX header with what an old one has no room for, `more` among it, and the entry.
    fn write_entry(
        &mut self,
        entry: Entry<'_>,
        found: &Attributes,
        extended: Vec<Record>,
        content: &mut dyn io::Read,
    ) -> Result<(), Wrong> {
        let Entry {
            name: path,
            kind,
            target,
            size,
        } = entry;
        let mut name = if path.is_empty() {
            b"./".to_vec()
        } else {
            path
        };
        if kind == EntryType::Directory && !name.ends_with(b"/") {
            name.push(b'/');
        }
        let mut header = Header::new_ustar();
        let mut more: Vec<Record> = Vec::new();
        if matches!(kind, EntryType::Char | EntryType::Block) {
            let device = u64::from(found.device);
            // A header has room for what a device's number is made of.
            header.set_device_major(libc::major(device))?;
            header.set_device_minor(libc::minor(device))?;
        }
        more.push(("mtime".into(), decimal(found.modified).into_bytes()));
        more.push(("atime".into(), decimal(found.accessed).into_bytes()));
        if let Some(fields) = header.as_ustar_mut() {
            let fits = |text: &[u8], room: usize| text.len() < room && text.is_ascii();
            let length = name.len().min(fields.name.len());
            fields.name[..length].copy_from_slice(&name[..length]);
            if !fits(&name, 100) {
                more.push(("path".into(), name.clone()));
            }
            if let Some(target) = target {
                let length = target.len().min(fields.linkname.len());
                fields.linkname[..length].copy_from_slice(&target[..length]);
                if !fits(target, 100) {
                    more.push(("linkpath".into(), target.to_vec()));
                }
            }
        }
        header.set_entry_type(kind);
        header.set_mode(found.mode & 0o7777);
        // The greatest numbers that the old header has room for.
        for (key, value, most) in [
            ("uid", u64::from(found.uid), 0o7777777),
            ("gid", u64::from(found.gid), 0o7777777),
            ("size", size, 0o77777777777),
        ] {
            if value > most {
                more.push((key.into(), value.to_string().into_bytes()));
            }
        }
        header.set_uid(found.uid.into());
        header.set_gid(found.gid.into());
        header.set_size(size);
        let seconds = u64::try_from(found.modified.seconds).unwrap_or(0);
        header.set_mtime(seconds.min(0o77777777777));
        header.set_cksum();
        more.extend(extended);
        let records = encode(&more);
        let mut before = Header::new_ustar();
        before.set_entry_type(EntryType::XHeader);
        if let Some(fields) = before.as_ustar_mut() {
            // For who takes it for a file.
            fields.name[..10].copy_from_slice(b"PaxHeaders");
        }
        before.set_mode(0o644);
        before.set_size(records.len() as u64);
        before.set_cksum();
        self.tar.append(&before, &records[..])?;
        self.tar.append(&header, content)?;
        self.told.entry(size);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_its_whole_length() {
        let record = |key: &[u8], length: usize| (key.to_vec(), vec![b'x'; length]);
        for length in (0..200).chain(980..1010).chain(9980..10_010) {
            let bytes = encode(&[record(b"path", length)]);
            let space = bytes.iter().position(|&byte| byte == b' ').unwrap();
            let said = std::str::from_utf8(&bytes[..space]).unwrap();
            assert_eq!(said.parse(), Ok(bytes.len()), "{length}");
        }
        let bytes = encode(&[record(&attribute(b"user.a=%\n"), 1)]);
        assert_eq!(bytes, b"32 SCHILY.xattr.user.a%3D%25\n=x\n");
    }
}
