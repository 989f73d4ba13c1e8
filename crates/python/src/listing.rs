//! Names in directories, as the kernel's call gives them.

use crate::errors::Refusal;
use arckfs::{At, FileSystem};

/// A dentry: its name, its type (`DT_*`) and its inode number.
pub type Listed = (std::ffi::OsString, u8, u64);

/// Bytes of a record before its name.
const HEAD: usize = 19;

/// What is in a directory, in no order, without itself and the one above it.
pub fn list(file_system: &FileSystem, path: &[u8]) -> Result<Vec<Listed>, Refusal> {
    use std::os::unix::ffi::OsStringExt;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let handle = file_system.open(At::Root, path, flags, 0)?;
    let mut listed = Vec::new();
    let mut buffer = vec![0; 32 << 10];
    let read = loop {
        let filled = match file_system.read_directory(handle, &mut buffer) {
            Ok(0) => break Ok(()),
            Ok(filled) => filled,
            Err(errno) => break Err(errno),
        };
        let mut records = &buffer[..filled];
        while let Some((inode, length, kind)) = head_of(records) {
            let (record, rest) = records.split_at(length.min(records.len()));
            let name = record[HEAD..].split(|&byte| byte == 0).next();
            match name {
                None | Some(b"." | b"..") => {}
                Some(name) => {
                    listed.push((std::ffi::OsString::from_vec(name.to_vec()), kind, inode))
                }
            }
            records = rest;
        }
    };
    file_system.close(handle);
    read?;
    Ok(listed)
}

/// Inode number, length and type of the first record.
fn head_of(records: &[u8]) -> Option<(u64, usize, u8)> {
    let inode = u64::from_ne_bytes(*records.first_chunk()?);
    let length = usize::from(u16::from_ne_bytes(*records.get(16..)?.first_chunk()?));
    (length > HEAD).then_some((inode, length, *records.get(18)?))
}
