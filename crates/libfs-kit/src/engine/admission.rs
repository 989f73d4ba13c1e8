//! Being admitted to what this session may see and cannot map yet, or told of it by message.

use super::Engine;
use crate::attempt::Admission;
use arck_core_state::{Inode, InodeNumber};
use arck_protocol::{Request, Response};
use rustix::io::Errno;
use zerocopy::FromBytes;

impl Engine<'_> {
    /// That the attributes of an inode can be mapped, or else what they are.
    #[cold]
    pub(super) fn admit(&self, inode: InodeNumber, admission: &Admission) -> Result<(), Errno> {
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
        admission.note_told(told.ok_or(Errno::PROTO)?);
        Ok(())
    }
}
