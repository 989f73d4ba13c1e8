//! Fold copies: what became of what operations stored that straddled a fold (DESIGN section 5).
//!
//! A fold copy outlives the controller that made it, since the operation that will ask for it does. It
//! is written to a file beside the arena before the fold is committed, which happens only where an
//! operation did not leave in time. So a controller that is started later can say of every fold
//! number that ended before it what the earlier one could have said: where the file has a fold copy, that;
//! where it has none, nothing straddled, and all that was stored was taken along.
//!
//! # Invariants
//! * Fold copies are in the file before the fold numbers end of which they tell.
//! * A fold copy of a fold number that did not end tells nothing, and goes: when the commit fails,
//!   and when the file is read.
//! * What had to go while somebody might have asked for it is lost: for that number and all below,
//!   nobody knows any more. The session table says so.
//! * The file is written with `write`, and never flushed: it need not survive the machine, after
//!   whose failure nobody is left to ask. The session never gets it.

use crate::pool::files::{Pool, numbered};
use crate::sessions::flights::Flights;
use arck_controller_state::sessions as session_table;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{InodeNumber, PAGE_SIZE, layout};
use arck_pm::record::{self, FileChange, file_id};
use arck_protocol::control::ControlMemory;
use arck_verifier::CopiedDelta;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Bytes of fold copies that are kept for a session at most, and so for operations that stay away
/// however long.
pub const FOLD_COPY_BYTES: usize = 64 << 20;
/// A file is written anew when it has so many bytes more than twice what is kept.
const WASTED: u64 = 1 << 20;

/// What a fold made of what an operation stored that straddled it.
#[derive(Clone, Debug)]
pub enum FoldCopy {
    /// Nothing was in flight: all that was stored was taken along.
    Whole,
    /// Taken along is what stands in this copy.
    Copy(Box<CopiedDelta>),
    /// The same, read from the file: pieces of the arena.
    Pieces(Vec<(u64, Vec<u8>)>),
    /// There was nothing to take along.
    Nothing,
    /// Nobody knows any more, or the delta was set aside.
    Lost,
}

impl FoldCopy {
    fn size(&self) -> usize {
        match self {
            FoldCopy::Copy(delta) => 256 + delta.pages.len() * 4200,
            FoldCopy::Pieces(pieces) => pieces.iter().map(|(_, bytes)| bytes.len() + 128).sum(),
            _ => 64,
        }
    }

    /// `length` bytes from byte `offset` of the arena as they were copied, if they were.
    pub fn arena_bytes(&self, offset: u64, length: usize) -> Option<&[u8]> {
        match self {
            FoldCopy::Copy(delta) => delta.arena_bytes(offset, length),
            FoldCopy::Pieces(pieces) => pieces.iter().find_map(|(start, bytes)| {
                let first = usize::try_from(offset.checked_sub(*start)?).ok()?;
                bytes.get(first..first.checked_add(length)?)
            }),
            _ => None,
        }
    }
}

/// What became of a delta: inode, the fold number that ended.
#[derive(Clone, Debug)]
pub struct KeptFoldCopy {
    pub inode: InodeNumber,
    pub fold: u64,
    pub kind: FoldCopy,
}

/// The fold copies of a fold that ended fold numbers while operations were in flight.
#[derive(Clone, Debug)]
struct KeptFold {
    /// Who may ask: until it begins another operation.
    flights: Flights,
    fold_copies: Vec<KeptFoldCopy>,
    /// At least as many as it takes here, and in the file.
    bytes: usize,
}

impl KeptFold {
    fn new(flights: Flights, fold_copies: Vec<KeptFoldCopy>) -> KeptFold {
        let sizes = fold_copies.iter().map(|kept| kept.kind.size());
        KeptFold {
            bytes: flights.size() + sizes.sum::<usize>(),
            flights,
            fold_copies,
        }
    }
}

/// Whose fold copies: the session, and its place in the session table.
#[derive(Clone, Copy, Debug)]
pub struct Whose {
    pub session: SessionNumber,
    pub index: usize,
}

/// All fold copies of a session.
#[derive(Default, Debug)]
pub struct FoldCopies {
    folds: VecDeque<KeptFold>,
    bytes: usize,
    /// Greatest fold number whose fold copy had to go while somebody might have asked for it.
    lost: u64,
    /// Bytes of the file.
    written: u64,
}

/// Name of the file with a session's fold copies.
pub fn name(session: SessionNumber) -> String {
    format!("{}.fold_copies", numbered(layout::ARENAS, session))
}

impl FoldCopies {
    /// The fold copy of the fold that ended fold number `fold` of `inode`.
    pub fn find(&self, inode: InodeNumber, fold: u64) -> &FoldCopy {
        let kept = self.folds.iter().rev().flat_map(|kept| &kept.fold_copies);
        let mut same = kept.filter(|kept| (kept.inode, kept.fold) == (inode, fold));
        match same.next() {
            Some(kept) => &kept.kind,
            None if fold <= self.lost => &FoldCopy::Lost,
            None => &FoldCopy::Whole,
        }
    }

    /// Keeps what a fold that is about to be committed makes of deltas, for the operations that
    /// straddle it (`flights`): as long as one of them may still ask, or until there is too much;
    /// the oldest go first.
    pub fn keep(
        &mut self,
        pool: &Pool,
        whose: Whose,
        control: Option<&ControlMemory>,
        flights: Flights,
        fold_copies: Vec<KeptFoldCopy>,
    ) {
        self.drop_asked(pool, whose, control);
        if fold_copies.is_empty() {
            return;
        }
        let fold = KeptFold::new(flights, fold_copies);
        let bytes = fold.bytes;
        self.write(pool, whose, &fold);
        self.bytes += bytes;
        self.folds.push_back(fold);
        while self.bytes > FOLD_COPY_BYTES && self.folds.len() > 1 {
            self.lose_oldest(pool, whose);
        }
        if self.written > 2 * self.bytes as u64 + WASTED {
            self.write_anew(pool, whose);
        }
    }

    /// Bytes of what is kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Folds of which fold copies are kept.
    pub fn len(&self) -> usize {
        self.folds.len()
    }

    /// Gives up the fold copies of the oldest fold; how many bytes that were.
    pub fn lose_oldest(&mut self, pool: &Pool, whose: Whose) -> usize {
        let Some(old) = self.folds.pop_front() else {
            return 0;
        };
        self.bytes -= old.bytes;
        let folds = old.fold_copies.iter().map(|kept| kept.fold);
        self.lost = folds.fold(self.lost, u64::max);
        store_lost(pool, whose, self.lost);
        old.bytes
    }

    /// The fold whose fold copies were kept last did not happen.
    pub fn take_back(&mut self, pool: &Pool, whose: Whose) {
        if let Some(last) = self.folds.pop_back() {
            self.bytes -= last.bytes;
            self.write_anew(pool, whose);
        }
    }

    /// An operation asks for the fold copy right after it has left: fold copies go once all who were
    /// in flight have begun another operation.
    pub fn drop_asked(&mut self, pool: &Pool, whose: Whose, control: Option<&ControlMemory>) {
        let Some(control) = control else { return };
        let bytes = &mut self.bytes;
        self.folds.retain(|fold| {
            let done = fold.flights.all_went_on(control);
            if done {
                *bytes -= fold.bytes;
            }
            !done
        });
        if self.folds.is_empty() && self.written != 0 {
            remove(pool, whose.session);
            self.written = 0;
        }
    }

    /// The session is back: whoever may still ask is inside an operation, or has left one.
    pub fn become_known(&mut self, control: &ControlMemory) {
        let may_ask = Flights::inside_or_left(control);
        for fold in &mut self.folds {
            fold.flights.become_known(&may_ask);
        }
    }

    fn write(&mut self, pool: &Pool, whose: Whose, fold: &KeptFold) {
        let bytes = encode(fold);
        match append(pool, whose.session, self.written, &bytes) {
            Ok(()) => self.written += bytes.len() as u64,
            Err(errno) => {
                tracing::warn!("fold copies of session {}: {errno}", whose.session);
                let folds = fold.fold_copies.iter().map(|kept| kept.fold);
                // This controller knows, but the next one will not.
                store_lost(pool, whose, folds.fold(self.lost, u64::max));
            }
        }
    }

    fn write_anew(&mut self, pool: &Pool, whose: Whose) {
        remove(pool, whose.session);
        self.written = 0;
        let folds: Vec<KeptFold> = self.folds.iter().cloned().collect();
        for fold in &folds {
            self.write(pool, whose, fold);
        }
    }

    /// What an earlier controller kept. `is_current`: whether a fold number of an inode has not
    /// ended.
    pub fn read(
        pool: &Pool,
        whose: Whose,
        lost: u64,
        is_current: impl Fn(InodeNumber, u64) -> bool,
    ) -> FoldCopies {
        let mut fold_copies = FoldCopies {
            lost,
            ..FoldCopies::default()
        };
        let bytes = read_file(pool, whose.session).unwrap_or_default();
        let mut rest = &bytes[..];
        while let Some((mut fold, behind)) = decode(rest) {
            fold.fold_copies
                .retain(|kept| !is_current(kept.inode, kept.fold));
            fold_copies.bytes += fold.bytes;
            fold_copies.folds.push_back(fold);
            rest = behind;
        }
        fold_copies.write_anew(pool, whose);
        fold_copies
    }
}

/// Removes a session's file; none is no error.
pub fn remove(pool: &Pool, session: SessionNumber) {
    pool.remove_file(&name(session));
}

fn store_lost(pool: &Pool, whose: Whose, lost: u64) {
    let entry = session_table::entry_offset(whose.index);
    // In range: the session has its place there.
    let _ =
        pool.session_table()
            .store_u64(entry + session_table::LOST_OFFSET, lost, Ordering::Release);
}

fn append(pool: &Pool, session: SessionNumber, at: u64, bytes: &[u8]) -> Result<(), Errno> {
    let file = pool.open_file(&name(session), OFlags::WRONLY | OFlags::CREATE)?;
    let mut done = 0;
    while done < bytes.len() {
        match pool.with_room(|| rustix::io::pwrite(&file, &bytes[done..], at + done as u64)) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(length) => done += length,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    record::file(|| FileChange::Written {
        file: file_id(&file),
        offset: at,
        bytes: bytes.to_vec(),
    });
    Ok(())
}

fn read_file(pool: &Pool, session: SessionNumber) -> Result<Vec<u8>, Errno> {
    let file = pool.open_file(&name(session), OFlags::RDONLY)?;
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match rustix::io::pread(&file, &mut buffer[..], bytes.len() as u64) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

const MAGIC: u32 = u32::from_le_bytes(*b"RCPT");
const UNKNOWN: u64 = u64::MAX;
const NOTHING: u64 = 0;
const LOST: u64 = 1;
const PIECES: u64 = 2;

/// A record of the file: magic, checksum of the rest, its length; flights; fold copies.
fn encode(fold: &KeptFold) -> Vec<u8> {
    let mut body: Vec<u8> = Vec::new();
    let word = |body: &mut Vec<u8>, word: u64| body.extend_from_slice(&word.to_le_bytes());
    if fold.flights.is_unknown {
        word(&mut body, UNKNOWN);
    } else {
        word(&mut body, fold.flights.waiting.len() as u64);
        for &(index, counter) in &fold.flights.waiting {
            word(&mut body, index as u64);
            word(&mut body, counter);
        }
    }
    word(&mut body, fold.fold_copies.len() as u64);
    for kept in &fold.fold_copies {
        word(&mut body, u64::from(kept.inode));
        word(&mut body, kept.fold);
        let pieces: Vec<(u64, &[u8])> = match &kept.kind {
            // Never kept: it is what is said of what is not there.
            FoldCopy::Whole | FoldCopy::Lost => {
                word(&mut body, LOST);
                continue;
            }
            FoldCopy::Nothing => {
                word(&mut body, NOTHING);
                continue;
            }
            FoldCopy::Pieces(pieces) => {
                pieces.iter().map(|(at, bytes)| (*at, &bytes[..])).collect()
            }
            FoldCopy::Copy(delta) => {
                let branch = (delta.branch_offset, &delta.branch_bytes[..]);
                let pages = delta.pages.iter();
                let pages = pages.map(|(&page, bytes)| (u64::from(page) * PAGE_SIZE, &bytes[..]));
                std::iter::once(branch).chain(pages).collect()
            }
        };
        word(&mut body, PIECES);
        word(&mut body, pieces.len() as u64);
        for (offset, bytes) in pieces {
            word(&mut body, offset);
            word(&mut body, bytes.len() as u64);
            body.extend_from_slice(bytes);
        }
    }
    let mut record = Vec::with_capacity(body.len() + 16);
    record.extend_from_slice(&MAGIC.to_le_bytes());
    record.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    record.extend_from_slice(&(body.len() as u64).to_le_bytes());
    record.append(&mut body);
    record
}

/// The first record, and what is behind it; `None` at the end, and of one that is not whole: the
/// controller died while it wrote it, so the fold did not happen.
fn decode(bytes: &[u8]) -> Option<(KeptFold, &[u8])> {
    let (head, rest) = bytes.split_at_checked(16)?;
    let (magic, checksum) = (head.get(..4)?, head.get(4..8)?);
    let length = usize::try_from(u64::from_le_bytes(head.get(8..16)?.try_into().ok()?)).ok()?;
    let (body, behind) = rest.split_at_checked(length)?;
    if magic != MAGIC.to_le_bytes() || checksum != crc32c::crc32c(body).to_le_bytes() {
        return None;
    }
    let mut body = body;
    let mut flights = Flights::default();
    match take(&mut body)? {
        UNKNOWN => flights.is_unknown = true,
        count => {
            for _ in 0..count {
                let index = usize::try_from(take(&mut body)?).ok()?;
                flights.waiting.push((index, take(&mut body)?));
            }
        }
    }
    let mut fold_copies = Vec::new();
    for _ in 0..take(&mut body)? {
        let inode = InodeNumber::try_from(take(&mut body)?).ok()?;
        let fold = take(&mut body)?;
        let kind = match take(&mut body)? {
            NOTHING => FoldCopy::Nothing,
            PIECES => {
                let mut pieces = Vec::new();
                for _ in 0..take(&mut body)? {
                    let offset = take(&mut body)?;
                    let length = usize::try_from(take(&mut body)?).ok()?;
                    let (piece, rest) = body.split_at_checked(length)?;
                    body = rest;
                    pieces.push((offset, piece.to_vec()));
                }
                FoldCopy::Pieces(pieces)
            }
            _ => FoldCopy::Lost,
        };
        fold_copies.push(KeptFoldCopy { inode, fold, kind });
    }
    Some((KeptFold::new(flights, fold_copies), behind))
}

/// The next word.
fn take(body: &mut &[u8]) -> Option<u64> {
    let (word, rest) = body.split_first_chunk::<8>()?;
    *body = rest;
    Some(u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(flights: Flights, kinds: Vec<FoldCopy>) -> KeptFold {
        let kept = |(at, kind): (usize, FoldCopy)| KeptFoldCopy {
            inode: at as u32 + 1,
            fold: at as u64 + 100,
            kind,
        };
        KeptFold::new(flights, kinds.into_iter().enumerate().map(kept).collect())
    }

    /// A session may have a thousand operations in flight at each of its folds.
    #[test]
    fn a_fold_that_is_kept_counts_for_what_it_takes() {
        for operations in [0, 1, 1024] {
            let flights = Flights {
                waiting: vec![(1, 1); operations],
                is_unknown: false,
            };
            for kinds in [
                vec![FoldCopy::Nothing],
                vec![FoldCopy::Pieces(vec![
                    (0, vec![1; 64]),
                    (4096, vec![1; 4096]),
                ])],
            ] {
                let kept = fold(flights.clone(), kinds);
                let (written, memory) = (encode(&kept).len(), operations * 16);
                assert!(
                    kept.bytes >= written.max(memory),
                    "{} of {written}",
                    kept.bytes
                );
            }
        }
    }

    #[test]
    fn records_come_back_and_half_ones_do_not() {
        let pieces = vec![(64, vec![1; 64]), (8192, vec![2; 4096])];
        let known = Flights {
            waiting: vec![(3, 7), (5, 9)],
            is_unknown: false,
        };
        let mut bytes = encode(&fold(
            known,
            vec![FoldCopy::Nothing, FoldCopy::Pieces(pieces)],
        ));
        let first = bytes.len();
        bytes.extend(encode(&fold(Flights::unknown(), vec![FoldCopy::Lost])));
        let (one, rest) = decode(&bytes).unwrap();
        assert_eq!(one.flights.waiting, [(3, 7), (5, 9)]);
        assert!(matches!(one.fold_copies[0].kind, FoldCopy::Nothing));
        assert_eq!(
            (one.fold_copies[1].inode, one.fold_copies[1].fold),
            (2, 101)
        );
        let copied = &one.fold_copies[1].kind;
        assert_eq!(copied.arena_bytes(8193, 4095), Some(&[2; 4095][..]));
        assert_eq!(copied.arena_bytes(64, 64), Some(&[1; 64][..]));
        assert_eq!(copied.arena_bytes(127, 2), None);
        assert_eq!(copied.arena_bytes(63, 1), None);
        let (two, rest) = decode(rest).unwrap();
        assert!(two.flights.is_unknown && rest.is_empty());
        assert!(matches!(two.fold_copies[0].kind, FoldCopy::Lost));
        for end in 0..first {
            assert!(decode(&bytes[..end]).is_none(), "{end}");
        }
        for at in 0..first {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_none(), "{at}");
        }
    }

    #[test]
    fn fold_copies_stay_until_whoever_may_ask_has_begun_something_else() {
        let control = ControlMemory::boxed();
        let barrier = arck_protocol::operation::LightBarrier::Fence;
        let [inside, left, ..] = &control.threads;
        for slot in [inside, left] {
            slot.thread.store(1, Ordering::SeqCst);
            slot.enter(barrier);
        }
        left.leave();
        let flights = Flights::inside_or_left(&control);
        assert!(!flights.all_went_on(&control));
        inside.leave();
        assert!(!flights.all_went_on(&control));
        inside.enter(barrier);
        assert!(!flights.all_went_on(&control));
        left.enter(barrier);
        assert!(flights.all_went_on(&control));
        assert!(!Flights::unknown().all_went_on(&control));
        let mut unknown = Flights::unknown();
        assert!(!unknown.all_left(&control));
        unknown.become_known(&Flights::inside(&control));
        assert_eq!(unknown.waiting.len(), 2);
    }
}
