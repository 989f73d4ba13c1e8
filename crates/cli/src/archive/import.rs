//! A tar archive on standard input to a pool.
//!
//! # Invariants
//! * Nothing is made outside of the pool's root: paths with `..` are refused, and symbolic links
//!   on the way to an entry are not followed out of the pool.
//! * Modes and times of directories are set when all is in them.

use super::interrupt::{self, Until};
use super::members::{Broken, Member, Members};
use super::sparse::Map;
use super::told::{Told, Wrong, plain};
use arck_check::quoted;
use arckfs::{At, Errno, Failure, FileSystem, Handle, SetTime, Subject, Timestamp};
use std::io::{self, Read};
use std::path::Path;
use tar::EntryType;

/// Written at once; a multiple of a page.
const STEP: usize = 1 << 20;
const PAGE: usize = 4096;

/// What an entry has besides its contents.
struct Attributes {
    mode: u32,
    uid: u32,
    gid: u32,
    accessed: Option<Timestamp>,
    modified: Timestamp,
    extended: Vec<(Vec<u8>, Vec<u8>)>,
    sparse: Sparse,
}

/// What the header says of a sparse file.
#[derive(Default)]
struct Sparse {
    is: bool,
    major: u64,
    minor: u64,
    name: Option<Vec<u8>>,
    size: Option<u64>,
    map: Option<String>,
    /// Of version 0.0: where parts begin, and their lengths, in turn.
    numbers: Vec<Option<u64>>,
}

impl Sparse {
    fn note(&mut self, key: &[u8], value: &[u8], text: &str) {
        self.is = true;
        match key {
            b"major" => self.major = text.parse().unwrap_or(u64::MAX),
            b"minor" => self.minor = text.parse().unwrap_or(u64::MAX),
            b"name" => self.name = Some(value.to_vec()),
            b"realsize" | b"size" => self.size = text.parse().ok(),
            b"map" => self.map = Some(text.to_owned()),
            b"offset" | b"numbytes" => self.numbers.push(text.parse().ok()),
            _ => {}
        }
    }

    /// The map, of which the contents may begin with the rest; `None`: the file is not sparse.
    fn map(&self, from: &mut impl Read) -> Result<Option<Map>, Wrong> {
        if !self.is {
            return Ok(None);
        }
        match (self.major, self.minor, self.size, &self.map) {
            (1, 0, Some(size), _) => Ok(Some(Map::read(size, from)?)),
            (0, _, Some(size), Some(map)) => Ok(Some(Map::of_header(size, map)?)),
            (0, _, Some(size), None) => Ok(Some(Map::of_numbers(size, &self.numbers)?)),
            _ => Err(Wrong::Kind(
                "is sparse in a way that is not known; write it with --sparse-version=1.0",
            )),
        }
    }
}

struct Import<'f> {
    fs: &'f FileSystem,
    keeps_owners: bool,
    told: &'f mut Told,
    /// Directories, to be finished.
    directories: Vec<(Vec<u8>, Attributes)>,
}

/// Imports all of standard input; `pool`: as the user names it.
pub fn import(
    fs: &FileSystem,
    pool: &Path,
    keeps_owners: bool,
    told: &mut Told,
) -> Result<(), String> {
    let mut members = Members::new(io::BufReader::with_capacity(STEP, Until(io::stdin())));
    let mut import = Import {
        fs,
        keeps_owners,
        told,
        directories: Vec::new(),
    };
    let done = import.members(&mut members, pool);
    // Also of an archive that ends in the middle.
    for (path, attributes) in std::mem::take(&mut import.directories).into_iter().rev() {
        if let Err(failure) = import.finish(&path, &attributes, libc::AT_SYMLINK_NOFOLLOW) {
            import.told.wrong(&path, plain(failure));
        }
    }
    match done {
        Err(_) if interrupt::happened() => Err(format!(
            "interrupted; the first {} entries of the archive are in the pool",
            import.told.entries
        )),
        done => done,
    }
}

/// What is told of an archive that is broken. `last`: the member that was read last, of so many bytes,
/// of which so many have not come.
fn told(broken: Broken, last: Option<(&[u8], u64, u64)>, pool: &Path) -> String {
    let name = last.map(|(name, ..)| quoted(name)).unwrap_or_default();
    match (broken, last) {
        (Broken::Io(error), _) => format!("reading the archive: {}", crate::run::plain(&error)),
        (Broken::Compressed(program, undone), _) => format!(
            "the archive is compressed ({program}); send it through what undoes that: {undone} ARCHIVE | \
             arck import {}",
            pool.display()
        ),
        (Broken::NoArchive, _) => "what comes is no tar archive".to_owned(),
        (Broken::Cut, None) => "the archive is empty: it has not even an end mark".to_owned(),
        (Broken::Cut, Some((_, _, 0))) => format!(
            "the archive is cut off behind {name}: there is no end mark; what came before is in the pool"
        ),
        (Broken::Cut, Some((_, size, rest))) => format!(
            "the archive is cut off in {name}: {} of its {size} bytes are there; what came before it is \
             in the pool",
            size - rest
        ),
        (Broken::Senseless(what), None) => format!("the archive is damaged: {what}"),
        (Broken::Senseless(what), Some(_)) => {
            format!("the archive is damaged behind {name}: {what}; what came before is in the pool")
        }
    }
}

/// A path as the pool takes it; `None` if it leads out.
fn inside(path: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return None,
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}

/// The name of an extended attribute, in which GNU tar writes what would end it in another way.
fn attribute(key: &[u8]) -> Vec<u8> {
    let mut name = Vec::new();
    let mut rest = key;
    while let [first, behind @ ..] = rest {
        let (byte, behind) = match rest {
            [b'%', b'3', b'D', behind @ ..] => (b'=', behind),
            [b'%', b'2', b'5', behind @ ..] => (b'%', behind),
            _ => (*first, behind),
        };
        name.push(byte);
        rest = behind;
    }
    name
}

/// Seconds with or without a fraction.
fn time(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        return Some(Timestamp {
            seconds: seconds.checked_sub(1)?,
            nanoseconds: 1_000_000_000 - nanoseconds,
        });
    }
    Some(Timestamp {
        seconds,
        nanoseconds,
    })
}

/// What a member has besides its contents.
fn attributes(member: &Member) -> Result<Attributes, Wrong> {
    const SENSELESS: Wrong = Wrong::Kind("its header has something for a number that is none");
    let header = &member.header;
    let number = |value: io::Result<u64>| match value {
        Ok(value) => Ok(u32::try_from(value).unwrap_or(0)),
        Err(_) => Err(SENSELESS),
    };
    let modified = header.mtime().map_err(|_| SENSELESS)?;
    let mut attributes = Attributes {
        mode: header.mode().map_err(|_| SENSELESS)? & 0o7777,
        uid: number(header.uid())?,
        gid: number(header.gid())?,
        accessed: None,
        modified: Timestamp {
            seconds: i64::try_from(modified).unwrap_or(0),
            nanoseconds: 0,
        },
        extended: Vec::new(),
        sparse: Sparse::default(),
    };
    for (key, value) in &member.records {
        let text = std::str::from_utf8(value).unwrap_or_default();
        if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            attributes.extended.push((attribute(name), value.clone()));
            continue;
        }
        match &key[..] {
            b"mtime" => attributes.modified = time(text).unwrap_or(attributes.modified),
            b"atime" => attributes.accessed = time(text),
            b"uid" => attributes.uid = text.parse().unwrap_or(attributes.uid),
            b"gid" => attributes.gid = text.parse().unwrap_or(attributes.gid),
            _ => {
                if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    attributes.sparse.note(key, value, text);
                }
            }
        }
    }
    Ok(attributes)
}

/// The number of a device.
fn device(header: &tar::Header) -> Result<u64, Wrong> {
    const SENSELESS: Wrong = Wrong::Kind("a device of a number that there is not");
    let of = |number: io::Result<Option<u32>>| number.ok().flatten().ok_or(SENSELESS);
    let (major, minor) = (of(header.device_major())?, of(header.device_minor())?);
    // What `mknod` has room for.
    if major >= 1 << 12 || minor >= 1 << 20 {
        return Err(SENSELESS);
    }
    Ok(libc::makedev(major, minor))
}

impl Import<'_> {
    fn members(&mut self, members: &mut Members<impl Read>, pool: &Path) -> Result<(), String> {
        let mut last: Option<(Vec<u8>, u64)> = None;
        loop {
            let member = match members.next() {
                Ok(Some(member)) => member,
                Ok(None) => return Ok(()),
                Err(broken) => {
                    let last = last.as_ref();
                    let last = last.map(|(name, size)| (&name[..], *size, members.rest()));
                    return Err(told(broken, last, pool));
                }
            };
            let mut named = member.name.clone();
            match self.member(&member, members, &mut named) {
                Ok(()) => self.told.entry(member.size),
                Err(Wrong::Archive(error)) => {
                    let last = (&named[..], member.size, members.rest());
                    return Err(told(error.into(), Some(last), pool));
                }
                Err(Wrong::Pool(Failure::Errno(Errno::NOSPC))) => {
                    return Err(format!("{}: the pool is full", quoted(&named)));
                }
                Err(Wrong::Pool(failure)) => self.told.wrong(&named, plain(failure)),
                Err(Wrong::Kind(what)) => self.told.wrong(&named, what),
            }
            last = Some((named, member.size));
        }
    }

    /// One member, whose contents come next; `named`: by what it is told of, its name in the archive
    /// at first.
    fn member(
        &mut self,
        member: &Member,
        contents: &mut Members<impl Read>,
        named: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        let kind = member.header.entry_type();
        let attributes = attributes(member)?;
        if let Some(name) = &attributes.sparse.name {
            named.clone_from(name);
        }
        let path = inside(named).ok_or(Wrong::Kind("leads out of the pool"))?;
        if path.is_empty() {
            // The root.
            self.directories.push((b".".to_vec(), attributes));
            return Ok(());
        }
        self.parents(&path)?;
        if kind == EntryType::Directory {
            match self.fs.make_directory(At::Root, &path, 0o700) {
                Ok(()) => {}
                Err(Failure::Errno(Errno::EXIST)) => self.is_directory(&path)?,
                Err(failure) => return Err(failure.into()),
            }
            self.directories.push((path, attributes));
            return Ok(());
        }
        if let Err(failure) = self.fs.unlink(At::Root, &path, 0)
            && !matches!(failure, Failure::Errno(Errno::NOENT))
        {
            return Err(failure.into());
        }
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW;
                let handle = self.fs.open(At::Root, &path, flags, 0o600)?;
                let written = self.content(member, contents, &attributes.sparse, handle);
                let is_whole = written.is_ok();
                self.fs.close(handle);
                if !is_whole {
                    // Nothing half: what is wrong with it is told.
                    let _ = self.fs.unlink(At::Root, &path, 0);
                }
                written?;
            }
            EntryType::Symlink | EntryType::Link => {
                let target = member.target.as_deref();
                let target = target.ok_or(Wrong::Kind("a link without a target"))?;
                if kind == EntryType::Link {
                    let target = inside(target).ok_or(Wrong::Kind("leads out of the pool"))?;
                    self.fs.link(At::Root, &target, At::Root, &path, 0)?;
                    return Ok(());
                }
                self.fs.symlink(target, At::Root, &path)?;
            }
            EntryType::Fifo => self
                .fs
                .make_node(At::Root, &path, libc::S_IFIFO | 0o600, 0)?,
            EntryType::Char | EntryType::Block => {
                let format = match kind {
                    EntryType::Char => libc::S_IFCHR,
                    _ => libc::S_IFBLK,
                };
                let device = device(&member.header)?;
                match self.fs.make_node(At::Root, &path, format | 0o600, device) {
                    Err(Failure::Errno(Errno::PERM)) => {
                        return Err(Wrong::Kind("a device, which is root's to make"));
                    }
                    made => made?,
                }
            }
            _ => return Err(Wrong::Kind("an entry of an unknown kind")),
        }
        self.finish(&path, &attributes, libc::AT_SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    fn is_directory(&self, path: &[u8]) -> Result<(), Wrong> {
        let found = self.fs.stat(At::Root, path, libc::AT_SYMLINK_NOFOLLOW)?;
        if found.mode & libc::S_IFMT == libc::S_IFDIR {
            Ok(())
        } else {
            Err(Wrong::Kind("there is something that is no directory"))
        }
    }

    /// Makes the directories above that the archive does not have.
    fn parents(&self, path: &[u8]) -> Result<(), Wrong> {
        for (end, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let above = &path[..end];
            match self.fs.stat(At::Root, above, libc::AT_SYMLINK_NOFOLLOW) {
                Ok(found) if found.mode & libc::S_IFMT == libc::S_IFDIR => {}
                Ok(_) => return Err(Wrong::Kind("is beneath what is no directory")),
                Err(Failure::Errno(Errno::NOENT)) => {
                    self.fs.make_directory(At::Root, above, 0o755)?;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(())
    }

    /// Writes the contents of a file.
    fn content(
        &self,
        member: &Member,
        contents: &mut Members<impl Read>,
        sparse: &Sparse,
        handle: Handle,
    ) -> Result<(), Wrong> {
        let map = match &member.map {
            Some(map) => Some(map.clone()),
            None => sparse.map(contents)?,
        };
        let Some(map) = map else {
            let size = self.part(contents, handle, 0, u64::MAX)?;
            return Ok(self.fs.truncate_handle(handle, size)?);
        };
        for &(at, length) in &map.parts {
            if self.part(contents, handle, at, length)? != length {
                let short = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(short.into());
            }
        }
        Ok(self.fs.truncate_handle(handle, map.size)?)
    }

    /// Writes at most `length` bytes from `start` on; gives how many there were. Pages of zeroes are
    /// left out.
    fn part(
        &self,
        from: &mut impl Read,
        handle: Handle,
        start: u64,
        length: u64,
    ) -> Result<u64, Wrong> {
        let mut from = from.take(length);
        let mut buffer = vec![0; usize::try_from(length).unwrap_or(STEP).clamp(1, STEP)];
        let mut at = start;
        loop {
            let mut have = 0;
            while have < buffer.len() {
                match from.read(&mut buffer[have..]) {
                    Ok(0) => break,
                    Ok(count) => have += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if have == 0 {
                return Ok(at - start);
            }
            let is_zero = |page: &[u8]| page.iter().all(|&byte| byte == 0);
            let mut done = 0;
            for same in buffer[..have]
                .chunks(PAGE)
                .collect::<Vec<_>>()
                .chunk_by(|one, other| is_zero(one) == is_zero(other))
            {
                let end = done + same.iter().map(|page| page.len()).sum::<usize>();
                let holes = same.first().is_some_and(|page| is_zero(page));
                while !holes && done < end {
                    let position = at + done as u64;
                    done += self.fs.write(handle, &buffer[done..end], Some(position))?;
                }
                done = end;
            }
            at += have as u64;
        }
    }

    /// Owner, attributes, mode and times, in this order: each may change what the next one sets.
    fn finish(&self, path: &[u8], attributes: &Attributes, flags: i32) -> Result<(), Failure> {
        if self.keeps_owners {
            let (uid, gid) = (attributes.uid, attributes.gid);
            self.fs.change_owner(At::Root, path, uid, gid, flags)?;
        }
        for (name, value) in &attributes.extended {
            // Others than the user's are not for a pool.
            if name.starts_with(b"user.") {
                let subject = Subject::Path(At::Root, path, flags);
                self.fs.set_extended(subject, name, value, 0)?;
            }
        }
        let is_link = self.fs.stat(At::Root, path, flags)?.mode & libc::S_IFMT == libc::S_IFLNK;
        if !is_link {
            self.fs.change_mode(At::Root, path, attributes.mode, 0)?;
        }
        let accessed = attributes.accessed.map_or(SetTime::Omit, SetTime::At);
        let modified = SetTime::At(attributes.modified);
        self.fs.set_times(At::Root, path, accessed, modified, flags)
    }
}
