//! What is in a large file or directory is moved part by part, between what others ask.
//!
//! # Invariants
//! * A part moves [`PART`] pages, and what is left of one chain of names, or looks at [`LOOKED_AT`] places.
//! * The inode has its new place before the first part moves: what a fold puts into it meanwhile is put
//!   where it belongs, and no part has to be looked at again.
//! * Until the last part has moved there are pages in it that belong to its old class. Whoever closes an
//!   inode goes on with a [`Touched`] of its own for the rest of it.

use crate::access::Access;
use crate::access::closings::Closing;
use crate::access::moving::was_lent;
use crate::fold::pages::{Copier, Mover, bucket, chain, shown};
use crate::fold::touched::Touched;
use crate::state::change::Change;
use crate::state::classes::{Condition, Wish};
use crate::state::tables::{State, buckets};
use arck_core_state::index::{FANOUT, capacity, slot};
use arck_core_state::{FileKind, IndexRoot, Inode, InodeNumber, PAGE_BYTES, PagePtr};
use rustix::io::Errno;
use std::cell::RefCell;

/// Pages that are moved in one step: 1 MiB, which takes a millisecond or two.
pub(super) const PART: u64 = 256;
/// Places of an index that are looked at in one step.
const LOOKED_AT: u64 = 32 * FANOUT;

/// Whether what is in an inode is more than is moved in one step.
pub fn is_large(inode: &Inode) -> bool {
    let pages = match inode.kind() {
        // Where buckets have not been split, their chains are as long as the names need.
        Some(FileKind::Directory) => buckets(inode).max(u64::from(inode.entries) / 64),
        _ => inode.pages,
    };
    pages > PART
}

/// What a part has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    /// Where the next one begins; `None`: there is no more.
    pub(super) next: Option<u64>,
    /// Pages that were moved.
    pub(super) moved: u64,
    /// Places that were looked at.
    looked_at: u64,
}

impl Part {
    fn is_full(&self) -> bool {
        self.moved >= PART || self.looked_at >= LOOKED_AT
    }
}

impl Mover<'_> {
    /// Moves what is in an inode from a page number (of a directory: a bucket) on, as much of it as is
    /// moved in one step, with the pages of its index that lead there; and, with its first part,
    /// extended attributes.
    pub(super) fn part(
        &mut self,
        change: &mut Change<'_>,
        number: InodeNumber,
        from: u64,
    ) -> Result<Part, Errno> {
        let mut inode = change.inode(number).ok_or(Errno::STALE)?;
        let label = change.state.label(self.class.as_ref());
        change.allocate_for_class(label);
        if from == 0 && !inode.attributes.is_null() {
            inode.attributes = self.data(change, inode.attributes, PAGE_BYTES)?;
        }
        let mut part = Part::default();
        let end = capacity(inode.root.height());
        let mut at = from;
        while at < end && !part.is_full() {
            at = match self.leaf(change, &mut inode.root, at, &mut part)? {
                Ok(leaf) => self.entries(change, &inode, leaf, at, &mut part)?,
                Err(next) => next,
            };
        }
        if inode.root.height() == 0 && from == 0 {
            let old = PagePtr(inode.root.pointer());
            if !old.is_null() {
                let new = self.entry(change, &inode, 0, old, &mut part)?;
                inode.root = IndexRoot::new(new.0, 0);
            }
        }
        part.next = (at < end).then_some(at);
        // What was copied is durable by the first fence of the change.
        change.set_inode(inode);
        Ok(part)
    }

    /// The page of an index that leads to a page number and its neighbours, moved with those above it;
    /// or, where there is none, the next number for which there may be one.
    fn leaf(
        &self,
        change: &mut Change<'_>,
        root: &mut IndexRoot,
        at: u64,
        part: &mut Part,
    ) -> Result<Result<PagePtr, u64>, Errno> {
        part.looked_at += 1;
        let height = root.height();
        if height == 0 || root.pointer() == 0 {
            return Ok(Err(capacity(height)));
        }
        let mut page = self.index_page(change, PagePtr(root.pointer()), part)?;
        *root = IndexRoot::new(page.0, height);
        for level in (2..=height).rev() {
            let place = slot(at, level);
            let below = PagePtr(change.word(page, place)?);
            if below.is_null() {
                let step = capacity(level - 1);
                return Ok(Err((at / step + 1) * step));
            }
            let moved = self.index_page(change, below, part)?;
            if moved != below {
                change.set_word(page, place, moved.0)?;
            }
            page = moved;
        }
        Ok(Ok(page))
    }

    /// Moves a page of an index, unless it may stay; gives where it is.
    fn index_page(
        &self,
        change: &mut Change<'_>,
        at: PagePtr,
        part: &mut Part,
    ) -> Result<PagePtr, Errno> {
        if self.fits(change, at) {
            return Ok(at);
        }
        let new = change.copy_page(at)?;
        change.move_page(at);
        part.moved += 1;
        Ok(new)
    }

    /// Whether a page may stay, as far as its class counts.
    fn fits(&self, change: &Change<'_>, page: PagePtr) -> bool {
        let state = &change.state;
        let label = state.space.label_of(page);
        state.classes.is_within(label, self.class.as_ref()) && !state.space.is_retired(page)
    }

    /// Moves what a leaf leads to, from a page number on; gives the number up to which it has.
    fn entries(
        &mut self,
        change: &mut Change<'_>,
        inode: &Inode,
        leaf: PagePtr,
        from: u64,
        part: &mut Part,
    ) -> Result<u64, Errno> {
        let end = (from / FANOUT + 1) * FANOUT;
        for at in from..end {
            if part.moved >= PART {
                return Ok(at);
            }
            part.looked_at += 1;
            let old = PagePtr(change.word(leaf, slot(at, 1))?);
            if old.is_null() {
                continue;
            }
            let new = self.entry(change, inode, at, old, part)?;
            if new != old {
                change.set_word(leaf, slot(at, 1), new.0)?;
            }
        }
        Ok(end)
    }

    /// Moves what an entry of a leaf leads to, unless it may stay; gives where it is.
    fn entry(
        &mut self,
        change: &mut Change<'_>,
        inode: &Inode,
        at: u64,
        old: PagePtr,
        part: &mut Part,
    ) -> Result<PagePtr, Errno> {
        if inode.kind() != Some(FileKind::Directory) {
            let new = self.data(change, old, shown(at, inode.size))?;
            part.moved += u64::from(new != old);
            return Ok(new);
        }
        let chain = chain(change, old)?;
        part.looked_at += chain.len() as u64;
        if chain.iter().all(|&page| self.fits(change, page)) {
            return Ok(old);
        }
        part.moved += chain.len() as u64;
        bucket(change, old)
    }
}

impl Access<'_> {
    /// Closes a part of what is in an inode whose place is closed; the rest waits for its turn.
    pub(super) fn close_part(&mut self, mut at: Touched, closing: &mut Closing) {
        let number = at.number;
        let Some(inode) = self.sessions.state.shadow(number).copied() else {
            return;
        };
        let place = self.sessions.state.label_of_inode(number);
        let class = self.sessions.state.classes.get(place).cloned();
        let class = match inode.kind() {
            Some(FileKind::Link) => class,
            _ => class.and_then(|class| class.and(Condition::of(&inode, Wish::Read))),
        };
        let stays_mapped =
            !self.retire_together(number, place) && self.sessions.refuse_moving(number).is_err();
        let hidden = RefCell::new(Vec::new());
        let stays = |state: &State, page: PagePtr| {
            let label = state.space.label_of(page);
            if state.classes.is_within(label, class.as_ref()) && !state.space.is_retired(page) {
                return true;
            }
            let stays =
                at.hides || stays_mapped && was_lent(state, page) && !state.space.is_retired(page);
            if stays {
                hidden.borrow_mut().push(page);
            }
            stays
        };
        let mut mover = Mover {
            class: class.clone(),
            stays: &stays,
            copier: Copier::default(),
            left: Vec::new(),
        };
        let mut part = Part::default();
        self.freeing().note_kept();
        let moved = self.change_inode(number, |change| {
            mover.left.clear();
            hidden.borrow_mut().clear();
            part = mover.part(change, number, at.from)?;
            Ok(())
        });
        let left = mover.left;
        let hidden = hidden.into_inner();
        match moved {
            Ok(()) => {
                let looked_at = part.looked_at / FANOUT;
                self.places
                    .closings
                    .note_work((part.moved + looked_at).max(1));
                self.hide_segments(&hidden);
                closing.emptying.extend(self.begin_emptying(&left));
                if let Some(next) = part.next {
                    at.from = next;
                    closing.waiting.push(at);
                }
            }
            Err(errno) => {
                tracing::error!("inode {number}: others may still read it: {errno}");
                if at.hides {
                    self.hide_contents(number);
                } else {
                    // No room for its data, perhaps, which somebody may have seen to. For metadata some
                    // is kept.
                    at.hides = true;
                    closing.waiting.push(at);
                }
            }
        }
    }
}
