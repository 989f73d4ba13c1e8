//! What is open: the session's open table, in control memory.
//!
//! # Invariants
//! * What is listed there is not freed, and stays this session's to use, until it is unlisted (DESIGN
//!   section 5, open table): an inode is listed first, and then looked at once more.
//! * [`CachedInode::opened`] counts the openings of an inode, and says where it is listed.

use crate::Session;
use crate::need::{Attempt, Need};
use crate::region::ThreadSlot;
use crate::views::reuse::ThreadNumbers;
use crate::views::{CachedInode, REFUSED, Viewing, Views};
use arck_core_state::InodeNumber;
use arck_core_state::header::HeaderKind;
use arck_protocol::Request;
use arck_protocol::control::{OPEN_SLOTS, open_entry, open_reserved};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

/// One opening of an inode that stands in the open table.
#[derive(Clone, Copy)]
pub struct Listed {
    pub number: InodeNumber,
    pub generation: u32,
    /// Of the auxiliary state that counts it. When that is built anew, what is counted are descriptions
    /// and maps.
    pub counted_in: u64,
}

/// A place of the open table that stands for what the controller is asked to make.
pub struct Reserved {
    pub place: u32,
    pub mark: u32,
    counted_in: u64,
}

/// Reservations of this process, which are told from each other, and from other members', by their marks.
static MARKS: AtomicU32 = AtomicU32::new(1);
const MEMBER_BITS: u32 = 12;

/// In [`CachedInode::opened`]: where the place begins.
const PLACE: u32 = 32;

/// Places of the open table in a cache line.
const OPEN_LINE: usize = 8;
const _: () = assert!(OPEN_SLOTS.is_multiple_of(OPEN_LINE));

impl Viewing<'_> {
    /// Lists an inode as open, then looks at it once more: ESTALE if it is gone; another attempt
    /// if it ends uncommitted, or has.
    pub fn list_open(&self, inode: &'static CachedInode) -> Attempt<Listed> {
        loop {
            let opened = inode.opened.load(Ordering::SeqCst);
            if opened == REFUSED {
                return Err(Need::Busy(inode.number()).into());
            }
            if opened != 0 {
                if exchange(inode, opened, opened + 1) {
                    break;
                }
                continue;
            }
            let place = self.take_open_place(inode)?;
            if exchange(inode, 0, ((place as u64 + 1) << PLACE) | 1) {
                debug_assert!(is_listed(self.session, inode, place));
                break;
            }
            // Another thread has listed it.
            clear_open_place(self.session, self.views, self.slot(), place);
        }
        let header = self.header(inode.number())?;
        let is_gone =
            || header.generation() != inode.generation() || header.kind() == HeaderKind::Free;
        let mut gone = is_gone();
        if !gone && header.kind() == HeaderKind::Orphan {
            // The controller may have read the table before, and be freeing the inode: what it was
            // about to free when it is asked is free when it answers.
            let request = Request::Forget {
                inode: inode.number(),
            };
            if let Err(errno) = self.session.ask(&request) {
                close_once(self.session, self.views, self.slot(), inode);
                return Err(errno.into());
            }
            gone = is_gone();
        }
        let ended = inode.sequence.load(Ordering::SeqCst) == u64::MAX;
        if gone || ended {
            close_once(self.session, self.views, self.slot(), inode);
            return Err(if gone {
                Errno::STALE.into()
            } else {
                Need::Again.into()
            });
        }
        Ok(self.listed(inode))
    }

    /// The opening of an inode that is listed in this attempt.
    pub fn listed(&self, inode: &CachedInode) -> Listed {
        Listed {
            number: inode.number(),
            generation: inode.generation(),
            counted_in: self.session.region().build(),
        }
    }

    /// Lists what has been open all along, while the auxiliary state is built anew: without its view,
    /// which is made when somebody needs it. ESTALE if it is gone.
    pub fn list_again(
        &self,
        number: InodeNumber,
        generation: u32,
    ) -> Attempt<&'static CachedInode> {
        let header = self.header(number)?;
        if header.generation() != generation || header.kind() == HeaderKind::Free {
            return Err(Errno::STALE.into());
        }
        let inode = self.cached(number)?;
        let opened = inode.opened.load(Ordering::Relaxed);
        let more = match opened {
            0 => ((self.take_open_place(inode)? as u64 + 1) << PLACE) | 1,
            _ => opened + 1,
        };
        inode.opened.store(more, Ordering::SeqCst);
        Ok(inode)
    }

    /// The same, of an inode that is opened because of the rights that its view shows: they are still
    /// those when it is listed. Whoever takes a right away lets those keep it who list the inode then.
    pub fn list_open_as_seen(&self, inode: &'static CachedInode) -> Attempt<Listed> {
        let opened = self.list_open(inode)?;
        let header = self.header(inode.number())?;
        let seen = inode.sequence.load(Ordering::SeqCst);
        if header.sequence.load(Ordering::SeqCst) == seen {
            return Ok(opened);
        }
        self.close_again(inode);
        Err(Need::Again.into())
    }

    /// Takes a [`list_open`](Self::list_open) back of which nothing has come.
    pub fn close_again(&self, inode: &CachedInode) {
        close_once(self.session, self.views, self.slot(), inode);
    }

    /// Keeps a place of the open table for what the controller is to make: it stays, and may be reached, from when it has its
    /// name, until it is listed as everything is and the place [given up](Viewing::give_up_reserved). ENFILE.
    pub fn reserve_open(&self) -> Attempt<Reserved> {
        let build = self.session.region().build();
        let count = MARKS.fetch_add(1, Ordering::Relaxed);
        let mark = (count << MEMBER_BITS | u32::from(self.session.member())).max(1);
        Ok(Reserved {
            place: self.take_entry_place(open_reserved(mark))? as u32,
            mark,
            counted_in: build,
        })
    }

    /// Where nothing was made, or that is listed at another place by now.
    pub fn give_up_reserved(&self, reserved: &Reserved) {
        // Else it has gone with everything that no description keeps.
        if reserved.counted_in == self.session.region().build() {
            let place = reserved.place as usize;
            clear_open_place(self.session, self.views, self.slot(), place);
        }
    }

    fn take_open_place(&self, inode: &CachedInode) -> Result<usize, Errno> {
        self.take_entry_place(open_entry(inode.number(), inode.generation()))
    }

    fn take_entry_place(&self, entry: u64) -> Result<usize, Errno> {
        let table = &self.session.control().open;
        let opens = &self.session.control().header.opens;
        let take = |place: usize| {
            if opens.load(Ordering::Relaxed) <= place as u32 {
                opens.fetch_max(place as u32 + 1, Ordering::SeqCst);
            }
            table[place].load(Ordering::Relaxed) == 0
                && table[place]
                    .compare_exchange(0, entry, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
        };
        if let Some(place) =
            ThreadNumbers::of(self.views, self.slot()).and_then(ThreadNumbers::take_place)
            && take(place)
        {
            return Ok(place);
        }
        // Each thread has a cache line of the table, which no other writes while there is room.
        let line = usize::from(self.slot().holder().thread) * OPEN_LINE % OPEN_SLOTS;
        if let Some(place) = (line..line + OPEN_LINE).find(|&place| take(place)) {
            return Ok(place);
        }
        let hint = self.views.open_hint.load(Ordering::Relaxed) as usize;
        let place = (0..OPEN_SLOTS)
            .map(|step| (hint + step) % OPEN_SLOTS)
            .find(|&place| take(place))
            .ok_or(Errno::NFILE)?;
        let next = (place + 1) % OPEN_SLOTS;
        self.views.open_hint.store(next as u32, Ordering::Relaxed);
        Ok(place)
    }
}

/// Whether an inode stands at a place of the open table.
fn is_listed(session: &Session, inode: &CachedInode, place: usize) -> bool {
    let entry = session.control().open.get(place);
    let listed = open_entry(inode.number(), inode.generation());
    entry.is_some_and(|entry| entry.load(Ordering::Relaxed) == listed)
}

/// One opening less; true if it was the last.
#[inline]
pub(crate) fn close_once(
    session: &Session,
    views: &Views,
    slot: &ThreadSlot<'_>,
    inode: &CachedInode,
) -> bool {
    loop {
        let opened = inode.opened.load(Ordering::SeqCst);
        let count = opened as u32;
        if count == 0 {
            return false;
        }
        let next = if count == 1 { 0 } else { opened - 1 };
        if exchange(inode, opened, next) {
            if count == 1 {
                let place = (opened >> PLACE) as usize - 1;
                debug_assert!(is_listed(session, inode, place));
                clear_open_place(session, views, slot, place);
            }
            return count == 1;
        }
    }
}

fn clear_open_place(session: &Session, views: &Views, slot: &ThreadSlot<'_>, place: usize) {
    if let Some(entry) = session.control().open.get(place) {
        entry.store(0, Ordering::Release);
    }
    let own = ThreadNumbers::of(views, slot);
    if !own.is_some_and(|own| own.keep_place(place)) {
        // The lowest places are used again first: the table's end stays untouched.
        views.open_hint.fetch_min(place as u32, Ordering::Relaxed);
    }
}

fn exchange(inode: &CachedInode, old: u64, new: u64) -> bool {
    inode
        .opened
        .compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok()
}
