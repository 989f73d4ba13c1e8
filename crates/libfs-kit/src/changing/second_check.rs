//! The second check: whether what an operation has published stands, or a fold got in between.
//!
//! # Invariants
//! * What was folded is told by the fold copy alone, after the operation has been left; never by the
//!   verified state, which others may have changed since (DESIGN section 5).
//! * What is known to be sealed stands, as if it had been done before the fold began.
//! * Of an operation on several inodes either all stands, or what was published is taken back, inside
//!   the operation, before it is made again.

use super::Changing;
use crate::attempt::ATTEMPTS_MAX;
use crate::delta::{Beginning, Branch, Commit};
use crate::need::{Attempt, Need};
use crate::ownership::{self, Straddled};
use crate::views::CachedInode;
use arck_pm::order::FlushedSet;
use arck_pm::{Durable, order};
use arck_protocol::operation::{Expected, is_sealed_with};
use rustix::io::Errno;

/// What [`Changing::confirm`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// The delta stands: auxiliary state is to be brought up to it.
    Standing,
    /// A fold took the operation along and ended the delta: auxiliary state will be rebuilt.
    Folded,
}

impl Changing<'_> {
    /// The second look, after publishing. The first of `inodes` is the one in whose delta the
    /// operation was published; `published` is the word by which it was, durably: `_committed`.
    #[inline]
    pub fn confirm(
        &self,
        inodes: &[(&CachedInode, Expected)],
        published: Published,
        _committed: Durable<Commit>,
    ) -> Attempt<Confirmed> {
        self.has_published();
        if self.all_hold(inodes)? {
            return Ok(Confirmed::Standing);
        }
        self.straddles(inodes, published)
    }

    /// Makes durable what was `changed` of an inode, by what does no harm when it is done once more, and looks
    /// a second time: the attempt is made again if a fold got in between. Gives the proofs.
    #[inline]
    #[track_caller]
    pub fn confirm_repeatable<S: FlushedSet>(
        &self,
        inode: &CachedInode,
        expected: &Expected,
        branch: &mut Beginning,
        changed: S,
    ) -> Attempt<S::Durable> {
        let durable = branch.fence(changed);
        match expected.still_holds(self.header(inode.number())?) {
            true => Ok(durable),
            false => Err(Need::Again.into()),
        }
    }

    /// Makes durable what fields of a branch were `changed` to, under the lock of the whole inode, and looks a
    /// second time, as [`Changing::confirm`]. What a fold has taken along is done, and is not made again: the
    /// path by which the call came may lead nowhere by then. Gives the proofs, too.
    #[inline]
    #[track_caller]
    pub fn confirm_fields<S: FlushedSet>(
        &self,
        inode: &CachedInode,
        expected: &Expected,
        branch: &mut Beginning,
        changed: S,
    ) -> Attempt<(Confirmed, S::Durable)> {
        let durable = branch.fence(changed);
        match expected.still_holds(self.header(inode.number())?) {
            true => Ok((Confirmed::Standing, durable)),
            false => Ok((self.fields_straddle(inode, expected, branch)?, durable)),
        }
    }

    /// A fold got in between: whether it took the branch along as it is now.
    #[cold]
    fn fields_straddle(
        &self,
        inode: &CachedInode,
        expected: &Expected,
        branch: &Branch<'_>,
    ) -> Attempt<Confirmed> {
        let header = self.header(inode.number())?;
        let stored = branch.content()?;
        let was_inside = self.is_inside();
        for _ in 0..ATTEMPTS_MAX {
            self.enter();
            if header.ownership().is_refused() {
                return Err(Need::Again.into());
            }
            if expected.still_holds(header) {
                return Ok(Confirmed::Standing);
            }
            self.leave();
            ownership::wait_unmarked(self.session, header)?;
            if was_inside && is_sealed_with(header, expected) {
                // As in `straddles`.
                self.enter();
                return Ok(Confirmed::Standing);
            }
            let (number, place) = (inode.number(), branch.offset_of(0));
            match ownership::straddled(self.session, header, number, expected, place, &stored) {
                Ok(Straddled::NotFolded) => {}
                Ok(Straddled::Included) => return Ok(Confirmed::Folded),
                // Where nobody knows any more it does no harm to do it again.
                Ok(Straddled::Missed) | Err(Errno::IO) => return Err(Need::Again.into()),
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::IO.into())
    }

    #[inline]
    fn all_hold(&self, inodes: &[(&CachedInode, Expected)]) -> Attempt<bool> {
        for (inode, expected) in inodes {
            if !expected.still_holds(self.header(inode.number())?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A fold got in between. What was published in the first inode's delta was folded, or
    /// missed, as the fold copy says. If another inode of the operation is not as it was, half of
    /// the operation may have gone without the other: it is taken back, inside the operation,
    /// and made again unless the first delta was folded as published.
    #[cold]
    fn straddles(
        &self,
        inodes: &[(&CachedInode, Expected)],
        published: Published,
    ) -> Attempt<Confirmed> {
        let Some((inode, expected)) = inodes.first() else {
            return Ok(Confirmed::Standing);
        };
        let header = self.header(inode.number())?;
        let mut last = published.word;
        let mut bytes = [0u8; RECORD_BYTES];
        let bytes = bytes.get_mut(..published.length).ok_or(Errno::IO)?;
        self.session
            .arena_at(published.offset as usize)
            .copy_to(published.offset as usize, bytes)
            .ok_or(Errno::IO)?;
        bytes[..8].copy_from_slice(&published.word.to_le_bytes());
        let mut last_bytes = [0u8; RECORD_BYTES];
        let last_bytes = &mut last_bytes[..published.length];
        last_bytes.copy_from_slice(bytes);
        // Whoever has been inside since before it published is waited for, by whatever fold has marked the first inode.
        let was_inside = self.is_inside();
        let mut is_waited_for = was_inside;
        let is_same = |other: &CachedInode| other.number() == inode.number();
        let is_alone = inodes.iter().all(|(other, _)| is_same(other));
        let others = if is_alone { &[] } else { &inodes[1..] };
        for _ in 0..ATTEMPTS_MAX {
            self.enter();
            // Nor does anything come on top of a delta that was refused.
            let others_hold = self.all_hold(others)? && !header.ownership().is_refused();
            if others_hold && last == published.word && expected.still_holds(header) {
                return Ok(Confirmed::Standing);
            }
            // Whoever has come in once more is not: where the first inode is marked, or its delta is not the one any more,
            // it may have been copied. Then the fold decides, and nothing may change beneath the mark.
            let ownership = header.ownership();
            let is_first_there = !ownership.is_marked() && header.fold() == expected.fold;
            if !others_hold && (is_waited_for || is_first_there) {
                // Whatever becomes of the first delta, half an operation must not stay in it.
                last = published.before;
                last_bytes[..8].copy_from_slice(&last.to_le_bytes());
                self.store_word(published.offset, last)?;
            }
            self.leave();
            is_waited_for = false;
            if is_alone && was_inside && last == published.word {
                ownership::wait_unmarked(self.session, header)?;
                if is_sealed_with(header, expected) {
                    // Its view is still that of the delta which was sealed: who brings it up to that needs the locks that
                    // the operation has. So it is shown there, and becomes part of what is sealed.
                    self.enter();
                    return Ok(Confirmed::Standing);
                }
            }
            match ownership::straddled_after(
                self.session,
                header,
                inode.number(),
                expected,
                published.offset,
                bytes,
                last_bytes,
            )? {
                Straddled::NotFolded if last != published.word => return Err(Need::Again.into()),
                Straddled::NotFolded => {}
                Straddled::Included => {
                    // The overlay still shows the names as they were before, and a link that was
                    // made and taken back unfolded moves no sequence.
                    self.begin_cut();
                    return Ok(Confirmed::Folded);
                }
                Straddled::Missed => return Err(Need::Again.into()),
            }
        }
        Err(Errno::IO.into())
    }

    fn store_word(&self, offset: u64, word: u64) -> Attempt<()> {
        let offset = usize::try_from(offset).map_err(|_| Errno::IO)?;
        let stored = self
            .session
            .arena_at(offset)
            .write_u64(offset, word)
            .ok_or(Errno::IO)?;
        order::drain(stored.flush());
        Ok(())
    }
}

/// The word of the arena that commits an operation.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Byte offset in the arena.
    pub offset: u64,
    pub word: u64,
    /// What to store there to take the operation back.
    pub before: u64,
    /// Bytes from `offset` on that have to be folded for the operation to be: all of a record,
    /// since a copy made while it was being stored may have its first word and not the rest.
    pub length: usize,
}

/// Bytes of the longest record.
const RECORD_BYTES: usize =
    arck_core_state::record::RECORD_UNITS_MAX * arck_core_state::record::RECORD_UNIT;
