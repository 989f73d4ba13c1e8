//! Records that become valid together.
//!
//! # Invariant
//! They stand on pages of their own, durably, before the one word is stored that leads to the first of
//! these: what reads the tail finds all of them or none.

use super::*;

/// What [`append_linked`] has stored.
pub struct Linked {
    /// Of each record.
    pub references: Vec<RecordRef>,
    /// The word that leads to them: where it is, what it says, and what it said before.
    pub offset: u64,
    pub word: u64,
    pub before: u64,
    /// Of that word.
    pub stored: Flushed<Commit>,
}

/// How many pages [`append_linked`] needs for these records.
pub fn pages_for(records: &[Ready<'_>]) -> usize {
    let (mut pages, mut unit) = (0, UNITS_PER_PAGE);
    for record in records.iter().map(Ready::record) {
        if unit + record.units() > UNITS_PER_PAGE {
            pages += 1;
            unit = 1;
        }
        unit += record.units();
    }
    pages
}

/// Appends records behind `tail`, which is number `place` of the branch's, on `fresh` pages:
/// [`pages_for`] them. The beginning of the branch is durable first. They are valid, and committed, once the token is fenced.
#[allow(clippy::too_many_arguments)]
pub fn append_linked(
    session: &Session,
    branch: &mut Beginning,
    place: usize,
    tail: &mut Tail,
    fresh: &[u32],
    directory: InodeNumber,
    fold: u64,
    records: &[Ready<'_>],
) -> Result<Linked, Errno> {
    let mut references = Vec::with_capacity(records.len());
    let mut tokens: Option<Flushed> = None;
    let mut add = |token: Flushed| tokens = Some(token.join_all(tokens.take()));
    let mut pages = fresh.iter().copied().peekable();
    let first = *pages.peek().ok_or(OUTSIDE)?;
    let mut last = Tail {
        page: 0,
        unit: UNITS_PER_PAGE as u32,
    };
    for record in records.iter().map(Ready::record) {
        if !last.has_room(record.units()) {
            last = Tail {
                page: pages.next().ok_or(OUTSIDE)?,
                unit: 1,
            };
            let header = DeltaPageHeader {
                directory,
                next: pages.peek().copied().unwrap_or(0),
                fold,
                reserved: [0; 6],
            };
            let bytes = page_bytes(session, last.page)?;
            add(bytes.write(0, header.as_bytes()).ok_or(OUTSIDE)?.flush());
        }
        let unit = last.page * UNITS_PER_PAGE as u32 + last.unit;
        let seed = Seed {
            directory,
            fold,
            unit,
        };
        let mut room = RecordRoom::new();
        let encoded = record.encode_in(seed, &mut room);
        let encoded = encoded.ok_or(Errno::NAMETOOLONG)?;
        let written = page_bytes(session, last.page)?
            .write(last.unit as usize * RECORD_UNIT, encoded)
            .ok_or(OUTSIDE)?;
        add(written.flush());
        references.push(RecordRef {
            unit,
            sequence: record.sequence,
        });
        last.unit += record.units() as u32;
    }
    let (branch, durable) = branch.begun_with(tokens);
    let durable = durable.ok_or(OUTSIDE)?;
    let linked = match tail.page {
        0 => {
            // Two tails share a word; nobody else stores to either now.
            let field = offset::TAILS + place as u64 / 2 * 8;
            let before = branch.load(field);
            let word = before | u64::from(first) << (place % 2 * 32);
            Linked {
                references,
                offset: branch.offset_of(field),
                word,
                before,
                stored: branch.set(field, word, durable)?.describing(),
            }
        }
        page => {
            let before = u64::from(directory);
            let word = before | u64::from(first) << 32;
            let link = page_bytes(session, page)?.publish(0, word, durable);
            Linked {
                references,
                offset: u64::from(page) * PAGE_SIZE,
                word,
                before,
                stored: link.ok_or(OUTSIDE)?.flush().describing(),
            }
        }
    };
    *tail = last;
    Ok(linked)
}
