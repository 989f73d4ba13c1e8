//! What a file is created with, stored before it is.
//!
//! # Invariants
//! * What is stored goes back to the stock, unless a file has it or may have it.
//! * One branch at most leads to it. The number that an attempt conceived with it stays with it when that attempt
//!   is made again: a fold under way may have marked the number, and then its branch cannot be ended. Whoever
//!   drops what was never given ends the branch first.

use crate::Session;
use crate::changing::Expected;
use crate::delta;
use crate::delta::end_branch;
use crate::need::Attempt;
use crate::numbers::is_uncommitted;
use crate::ownership;
use crate::telling::misused;
use crate::views::Viewing;
use arck_core_state::index::FANOUT;
use arck_core_state::{IndexRoot, InodeNumber, PAGE_SIZE, PagePtr};
use arck_pm::{Durable, Flushed};
use rustix::io::Errno;

/// Pages of most files: their places are kept apart.
const FEW: usize = delta::FRONT;

/// Bytes on pages of their own, and the index that leads to them, which no file has yet. Dropped outside of
/// attempts.
pub struct Contents {
    session: &'static Session,
    few: [u64; FEW],
    many: Vec<u64>,
    count: usize,
    /// The arena page of the index; 0 = none.
    index: u32,
    size: u64,
    /// The number whose branch may lead to it; 0 = none.
    number: InodeNumber,
    /// A file has it, or may have.
    is_given: bool,
    /// Until it has been fenced, with what leads to it.
    pub(super) stored: Option<Flushed<delta::Contents>>,
    /// From then on, in later attempts too.
    pub(super) durable: Option<Durable<delta::Contents>>,
}

impl Contents {
    /// Stores bytes that a file is to hold, 2 MiB at most (EFBIG). What is lacking leaves nothing behind.
    /// Before a lock is taken.
    pub fn store(viewing: &Viewing<'_>, bytes: &[u8]) -> Attempt<Contents> {
        let session = viewing.session;
        let stock = session.state();
        let count = bytes.len().div_ceil(PAGE_SIZE as usize);
        if count as u64 > FANOUT {
            return Err(Errno::FBIG.into());
        }
        let mut contents = Contents {
            session,
            few: [0; FEW],
            many: if count > FEW {
                vec![0; count]
            } else {
                Vec::new()
            },
            count: 0,
            index: 0,
            size: bytes.len() as u64,
            number: 0,
            is_given: false,
            stored: None,
            durable: None,
        };
        contents.count = count;
        if let Err(need) = stock
            .data
            .take_all(session, viewing.slot(), contents.places())
        {
            contents.count = 0;
            return Err(need.into());
        }
        for (place, part) in bytes.chunks(PAGE_SIZE as usize).enumerate() {
            let page = PagePtr(contents.places()[place]);
            let bytes = session.page_bytes(page).ok_or(Errno::IO)?;
            let mut whole = [0; PAGE_SIZE as usize];
            let part = match part.len() == whole.len() {
                true => part,
                // Nothing of what the page held before is anybody's to read. In one piece: the line in which
                // the bytes end would be flushed twice.
                false => {
                    whole[..part.len()].copy_from_slice(part);
                    &whole
                }
            };
            contents.add(bytes.try_stream(0, part).map_err(|error| error.errno())?);
        }
        if count > 1 {
            let (page, is_clean) = stock.arena.take_for_index(session, viewing.slot())?;
            contents.index = page;
            let filled = delta::fill_index_page(session, page, contents.places(), is_clean)?;
            contents.add(filled);
        }
        Ok(contents)
    }

    /// The pages that there are.
    fn places(&mut self) -> &mut [u64] {
        match self.many.is_empty() {
            true => &mut self.few[..self.count],
            false => &mut self.many[..self.count],
        }
    }

    fn add(&mut self, token: Flushed) {
        self.stored = Some(token.describing().join_all(self.stored.take()));
    }

    /// Root and size, as a branch says them, and data pages; `None`: there is nothing to say.
    pub(super) fn said(&self) -> Option<Said> {
        let first = self.many.first().unwrap_or(&self.few[0]);
        let root = match self.index {
            0 => IndexRoot::new(*first, 0),
            index => IndexRoot::new(index.into(), 1),
        };
        (self.count != 0).then_some(Said {
            root,
            size: self.size,
            pages: self.count as u64,
        })
    }

    /// The number that is to have it: that of the attempt before, or one that is taken.
    pub(super) fn number(&mut self, viewing: &Viewing<'_>) -> Attempt<InodeNumber> {
        let is_kept =
            self.number != 0 && is_uncommitted(self.session, viewing.header(self.number)?);
        // One that is not ours any more has another epoch by now: its branch is none.
        let number = match is_kept {
            true => self.number,
            false => viewing.take_number()?,
        };
        if self.count != 0 {
            self.number = number;
        }
        Ok(number)
    }

    /// A file has it, or may have.
    pub(super) fn are_given(&mut self) {
        (self.count, self.index, self.number, self.is_given) = (0, 0, 0, true);
    }

    /// Durably ends the branch that may lead to it. False if that cannot be done.
    fn end(&self) -> bool {
        let (session, number) = (self.session, self.number);
        if number == 0 {
            return true;
        }
        let (Ok(own), Some(header)) = (session.thread(), session.header(number)) else {
            return false;
        };
        while !header.ownership().is_refused() {
            if header.ownership().is_marked()
                // The fold may be waiting for us.
                && (session.is_inside()
                    || ownership::wait_unmarked(session, header).is_err())
            {
                return false;
            }
            let _operation = own.enter();
            if !is_uncommitted(session, header) {
                return true;
            }
            let expected = Expected {
                ownership: header.ownership().bare(),
                fold: header.fold(),
            };
            if expected.still_holds(header) {
                let ended = end_branch(session, number, header);
                if ended {
                    session.state().numbers.give_back(own.slot(), number);
                }
                return ended;
            }
        }
        false
    }

    /// That no file has it: it is not given twice.
    pub(super) fn expect_own(&self) -> Attempt<()> {
        match self.is_given {
            false => Ok(()),
            true => Err(misused(
                "arck: a LibFS creates a file twice: what it publishes is the end of its attempt\n",
            )
            .into()),
        }
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        if !self.end() {
            // Until the session ends.
            return;
        }
        let (session, stock) = (self.session, self.session.state());
        for &mut page in self.places() {
            stock.data.release(session, PagePtr(page));
        }
        if self.index != 0
            && let Ok(thread) = session.thread()
        {
            match self.durable.is_some() && self.many.is_empty() {
                true => stock
                    .arena
                    .release_front(session, thread.slot(), self.index),
                false => stock.arena.release(session, thread.slot(), self.index),
            }
        }
    }
}

/// What the branch of a file about to be created says of its contents.
#[derive(Clone, Copy)]
pub(in crate::names) struct Said {
    pub root: IndexRoot,
    pub size: u64,
    pub pages: u64,
}
