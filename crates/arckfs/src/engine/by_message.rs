//! What this session may see or write and cannot map, by message: it was open when the right to it
//! went away, there is no class for those who may read it, or it may be written and not read.
//!
//! # Invariants
//! * Nothing is asked inside an operation or under a lock.
//! * What was told of an inode counts as long as its header's sequence is the one that came with it.

use crate::engine::Engine;
use crate::interface::Errno;
use crate::names::listing::push;
use arck_libfs_kit::format::NAME_MAX;
use arck_libfs_kit::format::{FileKind, InodeNumber};
use arck_libfs_kit::memory::guarded::guarded_copy;
use arck_libfs_kit::messages::Listed;
use arck_libfs_kit::messages::PIECE_MAX;
use arck_libfs_kit::messages::{ATTACHED_MAX, READ_MAX, WRITE_MAX, Written};
use arck_libfs_kit::messages::{Request, Response};
use arck_libfs_kit::views::flag;
use rustix::fd::BorrowedFd;
use std::collections::HashSet;
use std::ops::Range;

/// More than so many bytes are read in pieces, by the connection: that takes a few system calls, and a
/// message for each [`READ_MAX`] bytes none.
const PIECES_FROM: usize = 4 * READ_MAX;
/// A listing begins anew so often, if its directory is emptied time and again.
const LISTINGS_MAX: usize = 16;
/// A bucket is read anew so often, if the directory changes time and again; and whenever any was split.
const REREADS_MAX: usize = 8;

/// What is in buffers of a program's, one after the other, if it fits into one message and all of it is there.
pub(crate) fn gathered<'b>(buffers: impl Iterator<Item = &'b [u8]> + Clone) -> Option<Vec<u8>> {
    let lengths = buffers.clone().map(<[u8]>::len);
    let total = lengths.fold(0usize, usize::saturating_add);
    if total > ATTACHED_MAX {
        return None;
    }
    let mut all = vec![0; total];
    let mut done = 0;
    for buffer in buffers {
        let target = &mut all[done..done + buffer.len()];
        // SAFETY: the target is a slice's memory of as many bytes, which nobody else uses; the source is the program's
        // buffer, which need not be there.
        unsafe { guarded_copy(target.as_mut_ptr(), buffer.as_ptr(), buffer.len()) }.ok()?;
        done += buffer.len();
    }
    Some(all)
}

impl Engine {
    /// Reads, as the controller reads it out; `denied` is why it cannot be read in place, and what is
    /// told if it may not be read at all. EFAULT.
    #[cold]
    pub(crate) fn read_by_message(
        &self,
        (inode, generation): (InodeNumber, u32),
        buffer: &mut [u8],
        position: u64,
        denied: Errno,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        while done < buffer.len() {
            if buffer.len() - done > PIECES_FROM {
                let asked = (buffer.len() - done).min(PIECE_MAX);
                let target = &mut buffer[done..done + asked];
                let at = position + done as u64;
                match self.read_piece((inode, generation), target, at) {
                    Ok(read) if read < asked => return Ok(done + read),
                    Ok(read) => done += read,
                    Err(_) if done != 0 => break,
                    Err(Errno::ACCESS) => return Err(denied),
                    Err(errno) => return Err(errno),
                }
                continue;
            }
            let asked = (buffer.len() - done).min(READ_MAX);
            let request = Request::Read {
                inode,
                generation,
                position: position + done as u64,
                length: asked as u32,
            };
            let bytes = match self.session.request(&request) {
                Ok(Response::Bytes(bytes)) if bytes.len() <= asked => bytes,
                Ok(_) => return Err(Errno::PROTO),
                Err(_) if done != 0 => break,
                Err(Errno::ACCESS) => return Err(denied),
                Err(errno) => return Err(errno),
            };
            let target = buffer[done..].as_mut_ptr();
            // SAFETY: the target is a slice's memory of at least so many bytes, which nobody else
            // uses; the source is a vector of as many.
            let copied = unsafe { guarded_copy(target, bytes.as_ptr(), bytes.len()) };
            if let Err(fault) = copied {
                done += fault.copied;
                return if done == 0 {
                    Err(Errno::FAULT)
                } else {
                    Ok(done)
                };
            }
            done += bytes.len();
            if bytes.len() < asked {
                break;
            }
        }
        Ok(done)
    }

    /// The same of a large piece at once. EFAULT.
    fn read_piece(
        &self,
        file: (InodeNumber, u32),
        buffer: &mut [u8],
        position: u64,
    ) -> Result<usize, Errno> {
        let wanted = buffer.len();
        let copy = |piece: BorrowedFd<'_>, at: u64, length: usize| {
            let mut copied = 0;
            while copied < length {
                // The kernel says EFAULT where the program's buffer is not there.
                match rustix::io::pread(piece, &mut buffer[copied..length], at + copied as u64) {
                    Ok(0) => return Err(Errno::IO),
                    Ok(more) => copied += more,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
            Ok(())
        };
        self.session.read_piece(file, position, wanted, copy)
    }

    /// Has the controller write a buffer, at the end of the file with `append`; gives the bytes written
    /// and the position behind them. `denied` is why it cannot be written in place, and what is told if
    /// it may not be written at all. Every [`WRITE_MAX`] bytes are one write. Durable on return. EFAULT.
    #[cold]
    pub(crate) fn write_by_message(
        &self,
        (inode, generation): (InodeNumber, u32),
        buffer: &[u8],
        position: Option<u64>,
        denied: Errno,
    ) -> Result<(usize, u64), Errno> {
        let mut done = 0;
        let mut end = position.unwrap_or(0);
        while done < buffer.len() {
            let mut bytes = vec![0; (buffer.len() - done).min(WRITE_MAX)];
            let source = buffer[done..].as_ptr();
            // SAFETY: the target is a vector of as many bytes, which nobody else uses; the source is as
            // much of the program's buffer, which need not be there.
            let copied = unsafe { guarded_copy(bytes.as_mut_ptr(), source, bytes.len()) };
            if let Err(fault) = copied {
                bytes.truncate(fault.copied);
            }
            if bytes.is_empty() {
                return if done == 0 {
                    Err(Errno::FAULT)
                } else {
                    Ok((done, end))
                };
            }
            let length = bytes.len();
            let request = Request::Write {
                inode,
                generation,
                position: end,
                append: position.is_none(),
                bytes,
            };
            match self.session.request(&request) {
                Ok(Response::Bytes(told)) => end = Written::decode(&told).ok_or(Errno::PROTO)?.end,
                Ok(_) => return Err(Errno::PROTO),
                Err(_) if done != 0 => break,
                Err(Errno::ACCESS | Errno::BUSY) => return Err(denied),
                Err(errno) => return Err(errno),
            }
            done += length;
        }
        Ok((done, end))
    }

    /// Whether writes of a file go by message, as far as is known: another process may know better.
    #[inline]
    pub(crate) fn is_mediated(&self, number: InodeNumber) -> bool {
        let known = self.kit().known(number);
        known.is_some_and(|inode| inode.has(flag::MEDIATED))
    }

    /// Has the controller write a buffer to a mediated file, [`ATTACHED_MAX`] bytes at most: one write, for everybody,
    /// and after a crash. Durable on return. Gives the position behind the bytes. EBUSY: a session has it
    /// mapped, and it is written by its owner. EFAULT.
    pub(crate) fn write_mediated(
        &self,
        (inode, generation): (InodeNumber, u32),
        buffer: &[u8],
        position: Option<u64>,
    ) -> Result<u64, Errno> {
        let request = Request::WriteAttached {
            inode,
            generation,
            position: position.unwrap_or(0),
            append: position.is_none(),
            length: u32::try_from(buffer.len()).map_err(|_| Errno::INVAL)?,
        };
        let Response::Bytes(told) = self.session.request_with(&request, buffer)? else {
            return Err(Errno::PROTO);
        };
        let written = Written::decode(&told).ok_or(Errno::PROTO)?;
        if !written.is_mediated
            && let Some(inode) = self.kit().known(inode)
            && inode.has(flag::MEDIATED)
        {
            inode.set(flag::TOGETHER, false);
            inode.set(flag::MEDIATED, false);
        }
        Ok(written.end)
    }

    /// Has the controller change the length of a file; `denied` as when it
    /// [writes](Self::write_by_message), but for EBUSY, which is told: a session has it mapped.
    #[cold]
    pub(crate) fn resize_by_message(
        &self,
        (inode, generation): (InodeNumber, u32),
        size: u64,
        denied: Errno,
    ) -> Result<(), Errno> {
        let request = Request::Resize {
            inode,
            generation,
            size,
        };
        match self.session.ask(&request) {
            Err(Errno::ACCESS) => Err(denied),
            other => other,
        }
    }

    /// The same of a range, as fallocate(2), where the file stays as long as it is: `how` is one of [`allocation`](arck_libfs_kit::messages::allocation).
    #[cold]
    pub(crate) fn allocate_by_message(
        &self,
        (inode, generation): (InodeNumber, u32),
        range: Range<u64>,
        how: u8,
    ) -> Result<(), Errno> {
        let mut position = range.start;
        while position < range.end {
            let request = Request::Allocate {
                inode,
                generation,
                position,
                length: range.end - position,
                how,
            };
            let told = match self.session.request(&request) {
                Ok(Response::Bytes(told)) => told,
                Ok(_) => return Err(Errno::PROTO),
                Err(Errno::BUSY) => return Err(Errno::ACCESS),
                Err(errno) => return Err(errno),
            };
            let reached = told.as_slice().try_into().map_err(|_| Errno::PROTO)?;
            match u64::from_le_bytes(reached) {
                reached if reached > position => position = reached,
                _ => return Err(Errno::PROTO),
            }
        }
        Ok(())
    }

    /// A [snapshot](crate::names::listing) of the names of a directory, as the controller tells them; `denied`
    /// is what is told if they may not be read at all. Names that come or go meanwhile may be in it or
    /// not, and no name twice.
    #[cold]
    pub(crate) fn list_by_message(
        &self,
        (inode, generation): (InodeNumber, u32),
        denied: Errno,
    ) -> Result<Vec<u8>, Errno> {
        for _ in 0..LISTINGS_MAX {
            if let Some(names) = self.try_list_by_message(inode, generation, denied)? {
                return Ok(names);
            }
        }
        Err(denied)
    }

    /// `None`: the directory was emptied meanwhile.
    fn try_list_by_message(
        &self,
        inode: InodeNumber,
        generation: u32,
        denied: Errno,
    ) -> Result<Option<Vec<u8>>, Errno> {
        let mut bytes = Vec::new();
        let mut seen = HashSet::new();
        let mut at = (0, 0);
        let mut before: Option<(u64, u64)> = None;
        let mut again = 0;
        loop {
            let (bucket, skip) = at;
            let request = Request::List {
                inode,
                generation,
                bucket,
                skip,
            };
            let listed = match self.session.request(&request) {
                Ok(Response::Bytes(bytes)) => Listed::decode(&bytes).map_err(|_| Errno::PROTO)?,
                Ok(_) => return Err(Errno::PROTO),
                Err(Errno::ACCESS) => return Err(denied),
                Err(errno) => return Err(errno),
            };
            let now = (listed.sequence, listed.buckets);
            if before.is_some_and(|(_, buckets)| listed.buckets < buckets) {
                return Ok(None);
            }
            let is_split = before.is_some_and(|(_, buckets)| listed.buckets != buckets);
            let has_moved = before.is_some_and(|before| before != now);
            before = Some(now);
            if skip != 0 && (is_split || has_moved && again < REREADS_MAX) {
                // What was behind these names may be before them now.
                again += 1;
                at = (bucket, 0);
                continue;
            }
            if bytes.is_empty() {
                push(&mut bytes, inode, FileKind::Directory, b".");
                push(&mut bytes, listed.parent, FileKind::Directory, b"..");
            }
            for name in listed.names {
                let kind = FileKind::from_u8(name.kind).ok_or(Errno::PROTO)?;
                if name.name.len() <= NAME_MAX && seen.insert(name.name.clone()) {
                    push(&mut bytes, name.inode, kind, &name.name);
                }
            }
            match listed.next {
                None => return Ok(Some(bytes)),
                Some(next) if next <= at => return Err(Errno::PROTO),
                Some(next) => {
                    if next.0 != bucket {
                        again = 0;
                    }
                    at = next;
                }
            }
        }
    }
}
