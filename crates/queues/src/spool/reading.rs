//! What stands in a spool's file, as it is read, and how the file is written.
//!
//! # Invariants
//! * Nothing that a file says is trusted: each record is read once, then checked, then used.
//! * What is given as a record lies within the ring, and its checksum is right.

use super::layout::{self, HEADER_LENGTH, Head, Kind, Mark, Record};
use super::ring::Ring;
use crate::target::{FileIdentity, Target};
use rustix::io::Errno;

/// A write that was queued and not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// The name with which its queue was opened.
    pub name: Vec<u8>,
    /// The file that it was then.
    pub file: FileIdentity,
    /// Where it is to be written; `None`: at the file's end.
    pub position: Option<u64>,
    /// How many bytes.
    pub length: usize,
}

/// What a replay has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Writes and appends that were done.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that are dropped: their file is gone, or refuses them for ever, as it would have when they were queued (EFBIG, if not for
    /// RLIMIT_FSIZE of this process; EINVAL, EBADF, EISDIR, EPERM).
    pub dropped: u64,
}

/// Fills the buffer; EBADMSG if there is less.
pub fn read_whole(file: &dyn Target, buffer: &mut [u8], position: u64) -> Result<(), Errno> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read(&mut buffer[read..], position + read as u64)? {
            0 => return Err(Errno::BADMSG),
            length => read += length,
        }
    }
    Ok(())
}

/// Whether nothing stands in a file: it has no bytes, or is what is left of a spool that was being made.
pub fn is_nothing(file: &dyn Target) -> Result<bool, Errno> {
    let length = file.size()?;
    let mut begin = *layout::MAKING;
    let there = length.min(begin.len() as u64) as usize;
    read_whole(file, &mut begin[..there], 0)?;
    // It has not come further than to have a length, or than that.
    let has_no_more = length <= begin.len() as u64 && begin[..there].iter().all(|&byte| byte == 0);
    Ok(has_no_more || begin == *layout::MAKING)
}

pub fn head(file: &dyn Target) -> Result<Head, Errno> {
    let mut bytes = [0; layout::HEAD_LENGTH];
    read_whole(file, &mut bytes, 0)?;
    let head = Head::decode(&bytes).ok_or(Errno::BADMSG)?;
    match file.size()? >= layout::RING + head.size {
        true => Ok(head),
        false => Err(Errno::BADMSG),
    }
}

/// The later of the two marks that are whole.
pub fn mark(file: &dyn Target, head: &Head) -> Result<Mark, Errno> {
    let mut last: Option<Mark> = None;
    for offset in layout::MARKS {
        let mut bytes = [0; layout::MARK_LENGTH];
        read_whole(file, &mut bytes, offset)?;
        let mark = Mark::decode(&bytes, &head.identity);
        last = last.into_iter().chain(mark).max_by_key(|mark| mark.turn);
    }
    last.ok_or(Errno::BADMSG)
}

/// A record, all of it, and its header as it stands; nothing if there is none.
pub fn record(file: &dyn Target, head: &Head, at: u64) -> Result<Option<(Record, Vec<u8>)>, Errno> {
    let mut bytes = vec![0; HEADER_LENGTH];
    read_whole(file, &mut bytes, head.offset(at))?;
    let Some(record) = Record::decode(head, at, &bytes) else {
        return Ok(None);
    };
    bytes.resize(HEADER_LENGTH + record.payload() as usize, 0);
    let behind = head.offset(at) + layout::UNIT;
    read_whole(file, &mut bytes[HEADER_LENGTH..], behind)?;
    let is_right = layout::checksum_is_right(&head.identity, &bytes);
    Ok(is_right.then_some((record, bytes)))
}

/// Fills a ring that begins where the mark says with the records that are there.
pub fn find(file: &dyn Target, head: &Head, last_epoch: u64, ring: &mut Ring) -> Result<(), Errno> {
    let begin = ring.head();
    let mut epoch = 0;
    while let Some((record, bytes)) = record(file, head, ring.head())? {
        let at = ring.head();
        // One that an earlier opening has left behind what was written since; or the ring's beginning again.
        if record.epoch < epoch
            || record.epoch > last_epoch
            || at + record.total() - begin > head.size
        {
            break;
        }
        epoch = record.epoch;
        match record.kind {
            Kind::Skip => ring.skip(record.total()),
            Kind::Write | Kind::Append => ring.add(at, record.total()),
        }
        if layout::is_done(&head.identity, at, &bytes) {
            ring.done(at);
        }
    }
    Ok(())
}

/// Where a part is written (of much, or up to a limit), the rest is written after it, or it is said why not.
pub fn write_whole(file: &dyn Target, bytes: &[u8], position: u64) -> Result<(), Errno> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..], position + written as u64)? {
            0 => return Err(Errno::NOSPC),
            length => written += length,
        }
    }
    Ok(())
}

/// Makes durable what was written, where the write has not.
pub fn settle(file: &dyn Target) -> Result<(), Errno> {
    match file.is_durable() {
        true => Ok(()),
        false => file.sync(true),
    }
}
