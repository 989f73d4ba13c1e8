//! What this session may see or write and cannot map, by message: it was open when the right to it
//! went away, there is no class for those who may read it, or it may be written and not read.
//!
//! # Invariants
//! * Nothing is asked inside an operation or under a lock.
//! * What was told of an inode counts as long as its header's sequence is the one that came with it.

use crate::engine::{Engine, Recalled};
use crate::interface::Errno;
use arck_core_state::{Inode, InodeNumber};
use arck_pm::guarded::guarded_copy;
use arck_protocol::message::{READ_MAX, WRITE_MAX};
use arck_protocol::{Request, Response};
use zerocopy::FromBytes;

impl Engine {
    /// That the attributes of an inode can be mapped, or else what they are.
    #[cold]
    pub(crate) fn admit(&self, inode: InodeNumber, recalled: &Recalled) -> Result<(), Errno> {
        let denied = match self.session.ask(&Request::Admit {
            inode,
            contents: false,
        }) {
            Err(errno @ (Errno::ACCESS | Errno::NOSPC)) => errno,
            other => return other,
        };
        let Ok(Response::Bytes(bytes)) = self.session.request(&Request::Inspect { inode }) else {
            return Err(denied);
        };
        let told = bytes.split_first_chunk::<8>().and_then(|(sequence, rest)| {
            let inode = Inode::read_from_bytes(rest).ok()?;
            Some((u64::from_le_bytes(*sequence), inode))
        });
        recalled.note_told(told.ok_or(Errno::PROTO)?);
        Ok(())
    }

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
                Ok(Response::Bytes(at)) => {
                    let at = at.try_into().map_err(|_| Errno::PROTO)?;
                    end = u64::from_le_bytes(at);
                }
                Ok(_) => return Err(Errno::PROTO),
                Err(_) if done != 0 => break,
                Err(Errno::ACCESS | Errno::BUSY) => return Err(denied),
                Err(errno) => return Err(errno),
            }
            done += length;
        }
        Ok((done, end))
    }
}
