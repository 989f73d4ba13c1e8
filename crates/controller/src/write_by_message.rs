//! Writing by message: what a session may write and cannot own, or of which it cannot see what is
//! around. Its user could write the file when he opened it, and may not any more; or he may write it
//! and not read it.
//!
//! # Invariants
//! * Written by the controller, into pages of its own, in the same change as the inode that leads to
//!   them: whole or not at all, also after a crash. Data is durable before that is.
//! * What others have changed of the file is folded first, in the same change.
//! * What lies between the old end of the file and the bytes is zero.

use crate::apply::file::Setter;
use crate::change::Change;
use crate::core::Core;
use crate::mkfs::now;
use crate::ownership::Reply;
use crate::relocate::Copier;
use arck_core_state::geometry::{FILE_SIZE_MAX, SessionNumber};
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE};
use arck_protocol::Response;
use arck_protocol::message::WRITE_MAX;
use arck_verifier::Credentials;
use rustix::io::Errno;

impl Core {
    /// See [`arck_protocol::Request::Write`]; `position` none: at the end.
    pub fn write(
        &mut self,
        session: SessionNumber,
        file: (InodeNumber, u32),
        position: Option<u64>,
        bytes: &[u8],
    ) -> Reply {
        match self.try_write(session, file, position, bytes) {
            Ok(end) => Reply::Now(Response::Bytes(end.to_le_bytes().to_vec())),
            Err(errno) => errno.into(),
        }
    }

    fn try_write(
        &mut self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
        position: Option<u64>,
        bytes: &[u8],
    ) -> Result<u64, Errno> {
        if bytes.is_empty() || bytes.len() > WRITE_MAX {
            return Err(Errno::INVAL);
        }
        let header = self.state.header_copy(number).ok_or(Errno::STALE)?;
        if header.generation != generation {
            return Err(Errno::STALE);
        }
        let inode = self.may_be_told(session, number, 2)?;
        match inode.kind() {
            Some(FileKind::File) => {}
            Some(FileKind::Directory) => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        // What is stored through a map goes to the pages that are there.
        self.refuse_moving(number)?;
        let who = self.sessions.get(&session).ok_or(Errno::NOENT)?;
        let who = who.credentials.clone();
        self.note_kept();
        let keeps = self.is_mapped(number);
        let mut end = 0;
        self.change_inode(number, |change| {
            if keeps {
                change.keep_pages_of(number);
            }
            end = put(change, number, &who, position, bytes)?;
            Ok(())
        })?;
        Ok(end)
    }
}

/// The change; gives the position behind the bytes.
fn put(
    change: &mut Change<'_>,
    number: InodeNumber,
    who: &Credentials,
    position: Option<u64>,
    bytes: &[u8],
) -> Result<u64, Errno> {
    let mut inode = change.inode(number).ok_or(Errno::STALE)?;
    let size = inode.size;
    let position = position.unwrap_or(size);
    let end = position.saturating_add(bytes.len() as u64);
    if end > FILE_SIZE_MAX {
        return Err(Errno::FBIG);
    }
    let class = change.read_class(&inode);
    let label = change.state.label(class.as_ref());
    change.allocate_for_class(label);
    let last = (position > size && size % PAGE_SIZE != 0).then_some(size / PAGE_SIZE);
    let pages = position / PAGE_SIZE..=(end - 1) / PAGE_SIZE;
    let last = last.filter(|last| !pages.contains(last));
    let mut setter = Setter::new(inode.root);
    let mut copier = Copier::default();
    for page in last.into_iter().chain(pages) {
        let first = page * PAGE_SIZE;
        let new = change.new_data_page()?;
        let old = setter.set(change, page, new)?;
        let mut content = [0; PAGE_SIZE as usize];
        if old.is_null() {
            inode.pages += 1;
        } else {
            copier.read(change.state, old, &mut content)?;
            change.drop_data_page(number, old);
        }
        let of_page = |at: u64| at.saturating_sub(first).min(PAGE_SIZE) as usize;
        content[of_page(size)..].fill(0);
        let (from, to) = (of_page(position), of_page(end));
        if from < to {
            let skipped = (first + from as u64 - position) as usize;
            content[from..to].copy_from_slice(&bytes[skipped..skipped + to - from]);
        }
        copier.write(change.state, new, &content)?;
    }
    // What was written is durable by the first fence of the change, before anything leads to it.
    inode.root = setter.root();
    inode.size = size.max(end);
    if let Some(mode) = arck_verifier::mode_after_write(who, &inode) {
        inode.mode = (inode.mode & !0o7777) | mode;
    }
    inode.modified = now();
    inode.changed = inode.modified;
    change.set_inode(inode);
    Ok(end)
}
