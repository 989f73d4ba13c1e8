//! What a directory of a pool holds.
//!
//! Invariant: no record is believed to be longer than the buffer in which it lies.

use arckfs::{At, Failure, FileSystem};

/// The names in a directory, sorted, without `.` and `..`.
pub fn names(fs: &FileSystem, path: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let at = if path.is_empty() { &b"."[..] } else { path };
    let handle = fs.open(At::Root, at, flags, 0)?;
    let mut names = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let read = loop {
        let used = match fs.read_directory(handle, &mut buffer) {
            Ok(0) => break Ok(()),
            Ok(used) => used,
            Err(errno) => break Err(errno),
        };
        // Records as getdents64 gives them.
        let mut at = 0;
        while let Some(record) = buffer[..used].get(at..).filter(|rest| rest.len() > 19) {
            let length = usize::from(u16::from_ne_bytes([record[16], record[17]]));
            let name = record.get(19..length).unwrap_or_default();
            let end = name
                .iter()
                .position(|&byte| byte == 0)
                .unwrap_or(name.len());
            if !matches!(&name[..end], b"." | b"..") {
                names.push(name[..end].to_vec());
            }
            at += length.max(20);
        }
    };
    fs.close(handle);
    read?;
    names.sort_unstable();
    Ok(names)
}
