//! Extended attributes by message: of what is mediated or mapped together, and of what is open and cannot be owned or mapped any more.
//!
//! # Invariant
//! Nothing is asked inside an operation or under a lock.

use crate::engine::Engine;
use crate::interface::Errno;
use arck_libfs_kit::format::InodeNumber;
use arck_libfs_kit::format::extended::Page;
use arck_libfs_kit::messages::{READ_MAX, Request, Response, extended};
use arck_libfs_kit::views::flag;

/// How often attributes are read that change meanwhile.
const ATTEMPTS: u32 = 100;
/// Bytes before what is read of them, which say of which it is.
const WHICH: usize = 8;

impl Engine {
    /// Has the controller set an attribute, or take it away (no value). Durable on return. `flags`: XATTR_CREATE, XATTR_REPLACE; `unseen`: whether
    /// the session cannot do it by itself. EEXIST, ENODATA, ENOSPC, EFAULT; E2BIG: they do not fit together; EBUSY, and it is known from then on: its owner is to do it.
    pub(crate) fn set_extended_by_message(
        &self,
        (inode, generation): (InodeNumber, u32),
        name: &[u8],
        value: Option<&[u8]>,
        flags: i32,
        unseen: bool,
    ) -> Result<(), Errno> {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let how = match value {
            None => extended::REMOVE,
            Some(_) => {
                bit(flags & libc::XATTR_CREATE != 0, extended::CREATE)
                    | bit(flags & libc::XATTR_REPLACE != 0, extended::REPLACE)
            }
        };
        let value = value.unwrap_or(&[]);
        let request = Request::SetExtended {
            inode,
            generation,
            name: name.to_vec(),
            how: how | bit(unseen, extended::UNSEEN),
            length: u32::try_from(value.len()).map_err(|_| Errno::INVAL)?,
        };
        let done = self.session.request_with(&request, value);
        if done.as_ref().err() == Some(&Errno::BUSY)
            && let Some(known) = self.kit().known(inode)
            && known.generation() == generation
        {
            known.set(flag::MEDIATED, false);
            known.set(flag::TOGETHER, false);
        }
        done.map(|_| ())
    }

    /// Extended attributes of an inode, as the controller tells of them: all, or their `names`. EACCES, ESTALE.
    #[cold]
    pub(crate) fn extended_by_message(
        &self,
        (inode, generation): (InodeNumber, u32),
        names: bool,
    ) -> Result<Page, Errno> {
        'again: for _ in 0..ATTEMPTS {
            let mut page = Page::default();
            let (mut seen, mut position) = (None, 0);
            loop {
                let request = Request::Extended {
                    inode,
                    generation,
                    position: position as u32,
                    names,
                };
                let Response::Bytes(told) = self.session.request(&request)? else {
                    return Err(Errno::PROTO);
                };
                let (which, part) = told.split_at_checked(WHICH).ok_or(Errno::PROTO)?;
                if *seen.get_or_insert_with(|| which.to_vec()) != which {
                    continue 'again;
                }
                let place = page.0.get_mut(position..position + part.len());
                place.ok_or(Errno::PROTO)?.copy_from_slice(part);
                position += part.len();
                if part.len() < READ_MAX - WHICH || position == page.0.len() {
                    return Ok(page);
                }
            }
        }
        Err(Errno::AGAIN)
    }
}
