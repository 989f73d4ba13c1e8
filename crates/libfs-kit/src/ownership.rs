//! What to do when an inode is not, or no longer, as an operation believed it.
//!
//! # Invariants
//! * None of these functions is called inside an operation: a fold waits for operations.
//! * Whether a record that straddled a fold was folded is decided by the fold copy, never by the
//!   verified state, which others may have changed since (DESIGN section 5).

use crate::session::Session;
use arck_core_state::header::HeaderKind;
use arck_core_state::{InodeNumber, LiveHeader};
use arck_protocol::operation::{self, Expected};
use arck_protocol::{InodeList, Request};
use rustix::io::Errno;
use std::time::{Duration, Instant};

pub use arck_protocol::operation::Straddled;

/// Who may change an inode now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// This session, with what an operation is to expect.
    Us(Expected),
    Other,
    Nobody,
    /// The number is not alive (any more).
    Gone,
}

/// Looks at a header.
pub fn owner(session: &Session, header: &LiveHeader) -> Owner {
    let fold = header.fold();
    let ownership = header.ownership();
    if ownership.session() == session.number() {
        return Owner::Us(Expected {
            ownership: ownership.bare(),
            fold,
        });
    }
    match header.kind() {
        HeaderKind::Free | HeaderKind::Granted => Owner::Gone,
        HeaderKind::Alive | HeaderKind::Orphan if ownership.session() == 0 => Owner::Nobody,
        HeaderKind::Alive | HeaderKind::Orphan => Owner::Other,
    }
}

/// Waits, bounded, until no fold is under way on the inode. EAGAIN, EIO.
pub fn wait_unmarked(session: &Session, header: &LiveHeader) -> Result<(), Errno> {
    let mut rounds = 0u32;
    let mut since = None;
    while header.ownership().is_marked() {
        rounds += 1;
        if rounds < 200 {
            std::hint::spin_loop();
            continue;
        }
        session.pause(*since.get_or_insert_with(Instant::now))?;
    }
    Ok(())
}

/// Becomes the owner of all of these inodes, [`ASKED_FOR_MAX`](arck_protocol::message::ASKED_FOR_MAX) at most. EACCES, EPERM,
/// ESTALE.
pub fn acquire(session: &Session, numbers: &[InodeNumber]) -> Result<(), Errno> {
    let inodes = InodeList::new(numbers).ok_or(Errno::INVAL)?;
    session.ask(&Request::Acquire { inodes })
}

/// Has the controller fold what their owners have not folded yet, so that the verified state
/// is the newest there is.
pub fn recall(session: &Session, number: InodeNumber) -> Result<(), Errno> {
    let inodes = InodeList::new(&[number]).ok_or(Errno::INVAL)?;
    session.ask(&Request::Recall { inodes })
}

/// Folds this session's own deltas of these inodes.
pub fn commit(session: &Session, numbers: &[InodeNumber], release: bool) -> Result<(), Errno> {
    let inodes = InodeList::new(numbers).ok_or(Errno::INVAL)?;
    ask_until_quiescent(session, &Request::Commit { inodes, release })
}

/// As [`Session::ask`]; EAGAIN, which says that operations of other threads were in the middle
/// of something, is asked again for a while.
pub fn ask_until_quiescent(session: &Session, request: &Request) -> Result<(), Errno> {
    for _ in 0..QUIESCE_ATTEMPTS {
        match session.ask(request) {
            Err(Errno::AGAIN) => arck_protocol::wait::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
    session.ask(request)
}

/// Milliseconds for which a commit is asked again while operations are in flight.
const QUIESCE_ATTEMPTS: u32 = 100;

/// Finds out, after the operation has been left, whether the arena bytes `stored` at `offset`
/// were folded. EIO if the fold copy is gone: then nobody knows.
pub fn straddled(
    session: &Session,
    header: &LiveHeader,
    number: InodeNumber,
    expected: &Expected,
    offset: u64,
    stored: &[u8],
) -> Result<Straddled, Errno> {
    straddled_after(session, header, number, expected, offset, stored, stored)
}

/// As [`straddled`], of an operation that has taken back what it `published` by storing `last`
/// at the same place; see [`operation::straddled_after`].
pub fn straddled_after(
    session: &Session,
    header: &LiveHeader,
    number: InodeNumber,
    expected: &Expected,
    offset: u64,
    published: &[u8],
    last: &[u8],
) -> Result<Straddled, Errno> {
    wait_unmarked(session, header)?;
    operation::straddled_after(header, expected, published, last, |length| {
        session.request(&Request::FoldCopy {
            inode: number,
            fold: expected.fold,
            offset,
            length,
        })
    })
}
