//! Answers as wholes, of calls that fill a buffer: for faces of ArckFS in languages that have vectors.
//!
//! Invariant: an answer is of one moment where the call's is; a directory's, as from the kernel, is of several.

use super::*;

/// Bytes of a record before its name.
const HEAD: usize = 19;
/// Bytes of records that are asked for at once.
const RECORDS: usize = 32 << 10;
/// Bytes of the longest target of a symbolic link.
const TARGET_MAX: usize = 4096;

/// Bytes that a call gives into a buffer, whose length it is asked for first. They may become more meanwhile.
fn whole(mut call: impl FnMut(&mut [u8]) -> Result<usize, Failure>) -> Result<Vec<u8>, Failure> {
    loop {
        let length = call(&mut [])?;
        let mut buffer = vec![0; length];
        if length == 0 {
            return Ok(buffer);
        }
        match call(&mut buffer) {
            Err(Failure::Errno(Errno::RANGE)) => {}
            other => {
                buffer.truncate(other?);
                return Ok(buffer);
            }
        }
    }
}

/// Inode number, length and type of the first record.
fn head_of(records: &[u8]) -> Option<(u64, usize, u8)> {
    let inode = u64::from_ne_bytes(*records.first_chunk()?);
    let length = usize::from(u16::from_ne_bytes(*records.get(16..)?.first_chunk()?));
    (length > HEAD).then_some((inode, length, *records.get(18)?))
}

impl FileSystem {
    /// What is in a directory, in no order, without itself and the one above it. As [`FileSystem::open`] and
    /// [`FileSystem::read_directory`].
    pub fn list(&self, at: At, path: &[u8]) -> Result<Vec<ListedName>, Failure> {
        let handle = self.open(at, path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        let mut listed = Vec::new();
        let mut buffer = vec![0; RECORDS];
        let read = loop {
            let filled = match self.read_directory(handle, &mut buffer) {
                Ok(0) => break Ok(()),
                Ok(filled) => filled,
                Err(errno) => break Err(errno),
            };
            let mut records = &buffer[..filled];
            while let Some((inode, length, kind)) = head_of(records) {
                let (record, rest) = records.split_at(length.min(records.len()));
                match record[HEAD..].split(|&byte| byte == 0).next() {
                    None | Some(b"." | b"..") => {}
                    Some(name) => listed.push(ListedName {
                        name: name.to_vec(),
                        kind,
                        inode,
                    }),
                }
                records = rest;
            }
        };
        self.close(handle);
        read?;
        Ok(listed)
    }

    /// The target of a symbolic link. As [`FileSystem::read_link`].
    pub fn link_target(&self, at: At, path: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut target = vec![0; TARGET_MAX];
        let length = self.read_link(at, path, &mut target)?;
        target.truncate(length);
        Ok(target)
    }

    /// The value of an extended attribute. As [`FileSystem::get_extended`].
    pub fn extended_value(&self, subject: Subject<'_>, name: &[u8]) -> Result<Vec<u8>, Failure> {
        whole(|buffer| self.get_extended(subject, name, buffer))
    }

    /// Names of extended attributes. As [`FileSystem::list_extended`].
    pub fn extended_names(&self, subject: Subject<'_>) -> Result<Vec<Vec<u8>>, Failure> {
        let all = whole(|buffer| self.list_extended(subject, buffer))?;
        let names = all.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }
}
