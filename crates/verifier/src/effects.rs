//! What the records of a fold set amount to, before anybody asks whether it is allowed.
//!
//! # Invariant
//! An effect counts if its bit is set; ADD counts only if, besides, no record of the set whose
//! kill bit is set names it by place *and* sequence. A kill bit counts even in a record whose
//! own ADD is dead, so that chains of renames come out right in any order of tidying up. Kills
//! that find nothing are what was tidied up already.
//!
//! A record may say when it was made: that time belongs to each inode whose name comes or goes by one
//! of its effects that count, or by the end of a record that it kills.

use crate::copy::CopiedDelta;
use crate::rule::{Rule, Violation};
use arck_core_state::InodeNumber;
use arck_core_state::arena::is_delta_page;
use arck_core_state::cast;
use arck_core_state::geometry::NAME_MAX;
use arck_core_state::record::{RECORD_UNIT, Record, RecordRef, UNITS_PER_PAGE, effect};
use foldhash::HashMap;
use std::collections::BTreeSet;

/// A valid record with at least one state bit, in the delta of `directory`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedRecord<'a> {
    pub directory: InodeNumber,
    /// Arena byte offset divided by [`RECORD_UNIT`].
    pub unit: u32,
    pub record: Record<'a>,
}

impl<'a> PlacedRecord<'a> {
    /// Arena byte offset.
    pub fn offset(&self) -> u64 {
        u64::from(self.unit) * RECORD_UNIT as u64
    }

    pub fn has(&self, bits: u32) -> bool {
        self.record.state & bits != 0
    }

    /// The directory that `source` and `kills[0]` belong to.
    pub fn source_directory(&self) -> InodeNumber {
        match self.record.source_directory {
            0 => self.directory,
            other => other,
        }
    }

    /// Whether it changes something in a directory other than its own.
    pub fn reaches_elsewhere(&self) -> bool {
        self.has(effect::REMOVE_SOURCE | effect::KILL_SOURCE)
            && self.source_directory() != self.directory
    }

    /// The verified names that it removes: whether it is that of its source, directory, and name.
    pub fn removals(&self) -> impl Iterator<Item = (bool, InodeNumber, &'a [u8])> + use<'a> {
        let record = self.record;
        let source = self.has(effect::REMOVE_SOURCE).then_some((
            true,
            self.source_directory(),
            record.source,
        ));
        let target = self
            .has(effect::REPLACE)
            .then_some((false, self.directory, record.name));
        source.into_iter().chain(target)
    }

    pub fn violation(&self, rule: Rule, detail: impl Into<String>) -> Violation {
        Violation::new(rule, self.directory, self.offset(), detail)
    }
}

impl CopiedDelta {
    /// The inodes to which the delta adds names, each once, ascending.
    pub fn named_inodes(&self) -> Vec<InodeNumber> {
        let effects = Effects::gather(std::slice::from_ref(self));
        let named: BTreeSet<InodeNumber> =
            effects.adds().map(|placed| placed.record.inode).collect();
        named.into_iter().collect()
    }

    /// The inodes to which records of the delta add names, be they killed since: as often as there are such records.
    pub fn inodes_added(&self) -> impl Iterator<Item = InodeNumber> {
        let records = placed_records(self);
        let adds = records.filter(|placed| placed.has(effect::ADD));
        adds.map(|placed| placed.record.inode)
    }

    /// How many of its pages hold something that adds to the verified state: names, or pages of a file.
    pub fn pages_that_add(&self) -> usize {
        let is_directory = self.branch.tails.iter().any(|&page| page != 0);
        if !is_directory {
            return self.pages.len();
        }
        let pages = self
            .records_by_page()
            .filter_map(|mut records| records.find(|(_, record)| record.state & effect::ADD != 0));
        pages.count()
    }
}

/// The live records of a fold set.
#[derive(Debug, Default)]
pub(crate) struct Effects<'a> {
    pub records: Vec<PlacedRecord<'a>>,
    /// What is killed, and when last.
    killed: HashMap<(InodeNumber, RecordRef), Option<i64>>,
    /// The first record whose sequence another of its branch has.
    repeated: Option<PlacedRecord<'a>>,
}

impl<'a> Effects<'a> {
    /// Reads the records of all deltas; no rule is checked here.
    pub fn gather(deltas: &'a [CopiedDelta]) -> Effects<'a> {
        let mut effects = Effects::default();
        let about = deltas.iter().map(CopiedDelta::records_about).sum();
        effects.records.reserve(about);
        for delta in deltas {
            let mut sequences = Vec::with_capacity(delta.records_about());
            for placed in placed_records(delta) {
                sequences.push((placed.record.sequence, placed.unit));
                if placed.record.state == 0 {
                    continue;
                }
                for (bit, directory, killed) in [
                    (effect::KILL_SOURCE, placed.source_directory(), 0),
                    (effect::KILL_TARGET, placed.directory, 1),
                ] {
                    if placed.has(bit) {
                        let place = (directory, placed.record.kills[killed]);
                        let last = effects.killed.entry(place).or_default();
                        *last = placed.record.changed.max(*last);
                    }
                }
                effects.records.push(placed);
            }
            if effects.repeated.is_none() {
                effects.repeated = repeated(delta, sequences);
            }
        }
        effects
    }

    /// The records whose name stands.
    pub fn adds(&self) -> impl Iterator<Item = &PlacedRecord<'a>> {
        let adds = |placed: &&PlacedRecord<'a>| placed.has(effect::ADD);
        self.records
            .iter()
            .filter(adds)
            .filter(|placed| self.killed_at(placed).is_none())
    }

    /// The records that are killed by some that say when, with that time.
    pub fn timed_kills(&self) -> impl Iterator<Item = (&PlacedRecord<'a>, i64)> {
        let is_timed = self.killed.values().any(|time| time.is_some());
        let records = is_timed.then_some(&self.records).into_iter().flatten();
        records.filter_map(|placed| Some((placed, self.killed_at(placed)??)))
    }

    /// Whether a record is killed, and when, if that is said.
    fn killed_at(&self, placed: &PlacedRecord<'_>) -> Option<Option<i64>> {
        let place = RecordRef {
            unit: placed.unit,
            sequence: placed.record.sequence,
        };
        self.killed.get(&(placed.directory, place)).copied()
    }

    /// I1 for all records of all deltas.
    pub fn check_fields(&self) -> Result<(), Violation> {
        if let Some(placed) = &self.repeated {
            let detail = format!("sequence {} again", placed.record.sequence);
            return Err(placed.violation(Rule::Sequence, detail));
        }
        self.records.iter().try_for_each(check_fields)
    }
}

/// The first record whose sequence another has that stands before it. Of one tail they ascend.
fn repeated(delta: &CopiedDelta, mut sequences: Vec<(u32, u32)>) -> Option<PlacedRecord<'_>> {
    if sequences.is_sorted_by(|(one, _), (next, _)| one < next) {
        return None;
    }
    sequences.sort_unstable();
    let same = sequences.chunk_by(|(one, _), (next, _)| one == next);
    let again = same.filter_map(|same| Some(same.get(1)?.1)).min()?;
    placed_records(delta).find(|placed| placed.unit == again)
}

/// All valid records of a delta, dead ones too. The pages of a file hold no records.
pub(crate) fn placed_records(delta: &CopiedDelta) -> impl Iterator<Item = PlacedRecord<'_>> {
    delta.records().map(|(unit, record)| PlacedRecord {
        directory: delta.inode,
        unit,
        record,
    })
}

fn check_fields(placed: &PlacedRecord<'_>) -> Result<(), Violation> {
    let record = &placed.record;
    if record.state & !effect::ALL != 0 {
        let detail = format!("state {:#x}", record.state);
        return Err(placed.violation(Rule::StateBits, detail));
    }
    if placed.has(effect::ADD | effect::REPLACE) {
        check_name(placed, record.name)?;
    }
    if placed.has(effect::REMOVE_SOURCE) {
        check_name(placed, record.source)?;
    }
    for (bit, kill) in [effect::KILL_SOURCE, effect::KILL_TARGET]
        .into_iter()
        .zip(record.kills)
    {
        let page = kill.unit / cast::count(UNITS_PER_PAGE);
        let is_place = is_delta_page(page) && kill.unit % cast::count(UNITS_PER_PAGE) != 0;
        if placed.has(bit) && !is_place {
            let detail = format!("unit {} holds no record", kill.unit);
            return Err(placed.violation(Rule::KillReference, detail));
        }
    }
    Ok(())
}

fn check_name(placed: &PlacedRecord<'_>, name: &[u8]) -> Result<(), Violation> {
    let fits = (1..=NAME_MAX).contains(&name.len());
    let reserved = name == b"." || name == b"..";
    if !fits || reserved || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        let detail = format!("name \"{}\"", name.escape_ascii());
        return Err(placed.violation(Rule::Name, detail));
    }
    Ok(())
}
