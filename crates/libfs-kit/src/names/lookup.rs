//! Looking names up: through the overlay, then in the verified directory.
//!
//! # Invariants
//! * A look-up takes no lock, and is validated by ownership, fold number and sequence afterwards.
//! * Who does not find a name that is between two places waits for the rename ([`Stripe::is_moving`](crate::views::Stripe::is_moving)).

use super::Context;
use crate::need::{Attempt, Need, Stop};
use crate::region::Offset;
use crate::views::verified::Seen;
use crate::views::{Directory, Viewing};
use arck_core_state::FileKind;
use arck_core_state::directory::{self, Dentry};
use arck_core_state::geometry::NAME_MAX;
use arck_core_state::record::RecordRef;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

pub use crate::views::overlay::Found;

/// What the names of a stripe were before one was looked up: the same under its lock, the answer
/// still holds. It moves behind each change of the overlay: whoever takes it while a change is
/// under way sees another one afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Before {
    seen: Seen,
    ownership: u64,
    names: u32,
}

impl Before {
    /// `hash`: of the name.
    #[inline(always)]
    pub fn of(viewing: &Viewing<'_>, directory: Directory, hash: u64) -> Before {
        let stripe = viewing.stripe(directory, hash);
        Before {
            names: stripe.names.load(Ordering::Acquire),
            ownership: directory.ownership.load(Ordering::Acquire),
            seen: viewing.seen(&directory),
        }
    }
}

impl Context<'_> {
    /// Looks a name up; ENAMETOOLONG. `directory` is a view that is up to date; an answer is
    /// given only if it still was when the search ended.
    #[inline(always)]
    pub fn lookup(&self, directory: Directory, name: &[u8]) -> Attempt<Found> {
        self.search(directory, name, self.hash(name))
    }

    /// As [`Context::lookup`], of a name whose hash is known.
    #[inline(always)]
    pub fn lookup_hashed(&self, directory: Directory, name: &[u8], hash: u64) -> Attempt<Found> {
        debug_assert_eq!(hash, self.hash(name), "of another name");
        self.search(directory, name, hash)
    }

    /// What a name leads to, as [`Context::lookup`].
    ///
    /// Inlined where paths are walked: the answer of a call, with its many small fields, comes
    /// through memory and is read there in other pieces than it was stored in, so that each read
    /// waits for the stores to leave the processor, longer than the search takes.
    #[inline(always)]
    pub fn dentry(&self, directory: Directory, name: &[u8]) -> Attempt<Option<Dentry>> {
        Ok(self.search(directory, name, self.hash(name))?.dentry)
    }

    #[inline(always)]
    fn search(&self, directory: Directory, name: &[u8], hash: u64) -> Attempt<Found> {
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let number = directory.number();
        let header = self.header(number)?;
        let expected = directory.expected();
        let sequence = directory.sequence.load(Ordering::Acquire);
        let mut found = Found {
            hash,
            dentry: None,
            entry: Offset::NULL,
            record: RecordRef::default(),
            verified: None,
        };
        let mut hidden = false;
        if directory.part().is_overlaid()
            && let Some((offset, entry)) = self.find_entry(number, hash, name)
        {
            found.entry = offset;
            let is_active = entry.is_active(directory.part().seals());
            let inode = entry.inode.load(Ordering::Acquire);
            if inode != 0 {
                let (generation, kind) = (entry.generation.load(Ordering::Relaxed), entry.kind());
                std::sync::atomic::fence(Ordering::Acquire);
                if entry.inode.load(Ordering::Relaxed) != inode {
                    // Hidden, and perhaps made to lead elsewhere, while it was read.
                    return Err(Need::Again.into());
                }
                found.dentry = Some(Dentry {
                    inode,
                    generation,
                    kind: kind.ok_or(Errno::IO)?,
                });
                if is_active {
                    found.record = RecordRef {
                        unit: entry.record_unit.load(Ordering::Relaxed),
                        sequence: entry.record_sequence.load(Ordering::Relaxed),
                    };
                }
            }
            hidden = true;
            if !is_active {
                // Sealed: as good as verified, also that there is no such name.
                let nothing = Dentry {
                    inode: 0,
                    generation: 0,
                    kind: FileKind::File,
                };
                found.verified = Some(found.dentry.unwrap_or(nothing));
            } else if entry.verified.load(Ordering::Relaxed) != 0 {
                found.verified = Some(Dentry {
                    inode: entry.verified_inode.load(Ordering::Relaxed),
                    generation: entry.verified_generation.load(Ordering::Relaxed),
                    kind: FileKind::File,
                });
            }
        }
        if !hidden && directory.verified_root().pointer() != 0 {
            found.verified = self.verified_dentry(directory, sequence, hash, name)?;
            found.dentry = found.verified;
        }
        if header.sequence.load(Ordering::Acquire) != sequence
            || header.fold() != expected.fold
            || header.ownership().bare() != expected.ownership
        {
            return Err(Need::Again.into());
        }
        if found.dentry.is_none() && self.stripe(directory, hash).is_moving() {
            return Err(Need::Busy(number).into());
        }
        Ok(found)
    }

    /// What the verified directory says of a name; `sequence` is the one that the view had when
    /// the search began.
    fn verified_dentry(
        &self,
        directory: Directory,
        sequence: u64,
        hash: u64,
        name: &[u8],
    ) -> Attempt<Option<Dentry>> {
        let buckets = directory.base_size.load(Ordering::Relaxed) / 4096;
        match directory::lookup(self.session, directory.verified_root(), buckets, hash, name) {
            Ok(verified) => Ok(verified.map(|found| found.dentry)),
            Err(directory::Torn) if self.session.take_denied() => {
                self.told_dentry(directory, sequence, name)
            }
            Err(directory::Torn) => Err(self.torn(directory, sequence)),
        }
    }

    /// A pointer of a verified directory led nowhere: it changed since the search began at
    /// `sequence`, or it is damaged. The view does not tell: another thread may have brought it
    /// up to date meanwhile, with this search still among the pages of before.
    #[cold]
    fn torn(&self, directory: Directory, sequence: u64) -> Stop {
        match self.header(directory.number()) {
            Ok(header) if header.sequence.load(Ordering::Acquire) == sequence => Errno::IO.into(),
            _ => Need::Again.into(),
        }
    }
}
