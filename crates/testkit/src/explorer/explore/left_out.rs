//! What happens if something is left out of a trace: a place's flushes, its fences, that its
//! streaming stores go past the cache, its syncs, or the order of its stores within their lines.
//!
//! Two replays go side by side, one of the trace as it is. A line of which more is in flight where
//! something is left out is *late*. Only images that show less of late lines than what was stored
//! are new: the others are those of the trace as it is, and allowed. So only late lines have many
//! choices, and moments without any are passed over.
//!
//! # Invariant
//! Every image here is one that the trace with that left out may leave.

use super::{ALL, Choice, Explorer, LineKey, Memory, NONE, Outcome, Progress, counts};
use crate::explorer::image::{Dropped, Place};
use crate::explorer::recording::{Group, Moment, Part};
use arck_pm::record::{Event, EventKind, FileChange};
use foldhash::HashSet;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Stores behind the one since which lines are late at which a crash is tried.
const STORES: usize = 48;
/// And fences.
const FENCES: usize = 4;
/// Late lines that are looked at alone, at one of these fences; and after a store.
const ALONE: usize = 4;
const ALONE_AT_STORE: usize = 2;
/// Choices of one line.
const OF_ONE: usize = 16;

/// The recovery of a crash, of which something can be left out.
pub struct Recovery {
    memory: Memory,
    pub events: Vec<Event>,
    progress: Progress,
}

/// What of a trace can be left out.
pub fn sites(events: &[Event]) -> BTreeSet<Dropped> {
    let site = |event: &Event| {
        let place = Place::from(event.site);
        Some(match &event.kind {
            EventKind::Flush { .. } => Dropped::Flush(place),
            EventKind::Fence => Dropped::Fence(place),
            EventKind::Stream { .. } => Dropped::Stream(place),
            EventKind::Store { .. } => Dropped::Order(place),
            EventKind::File(FileChange::Synced { .. }) => Dropped::Sync(place),
            _ => return None,
        })
    };
    events.iter().filter_map(site).collect()
}

/// The lines that are late.
fn late(memory: &Memory, whole: &Memory) -> HashSet<LineKey> {
    let lines = memory.lines.iter();
    lines
        .filter(|(line, pieces)| whole.lines.get(line) != Some(pieces))
        .map(|(&line, _)| line)
        .collect()
}

impl Explorer<'_> {
    fn begin(&mut self, group: &Group) {
        self.outcomes.clear();
        self.allowed.clear();
        self.random = crate::Random::new(self.bounds.seed);
        self.shared = group.shared;
        // A part of what belongs together shows most.
        self.in_slices = true;
    }

    /// Tries crashes of a workload with something left out. `Err`: what was left is not allowed.
    pub fn leave_out(
        &mut self,
        group: &Group,
        part: &Part,
        dropped: Dropped,
    ) -> Result<(), String> {
        self.begin(group);
        let progress = Progress {
            returned: 0,
            in_flight: false,
        };
        let events = group.events.get(part.events.clone()).unwrap_or_default();
        let from = part.workload.from;
        self.leave_out_of(part, &part.memory, events, dropped, progress, from)
    }

    /// Tries crashes of a recovery with something left out.
    pub fn leave_out_of_recovery(
        &mut self,
        group: &Group,
        part: &Part,
        recovery: &Recovery,
        dropped: Dropped,
    ) -> Result<(), String> {
        self.begin(group);
        let Recovery {
            memory,
            events,
            progress,
        } = recovery;
        self.leave_out_of(part, memory, events, dropped, *progress, 0)
            .map_err(|error| format!("second crash: {error}"))
    }

    fn leave_out_of(
        &mut self,
        part: &Part,
        start: &Memory,
        events: &[Event],
        dropped: Dropped,
        mut progress: Progress,
        from: usize,
    ) -> Result<(), String> {
        let mut whole = start.clone();
        let mut memory = start.clone();
        memory.dropped = Some(dropped);
        let mut active = from == 0;
        let mut before = HashSet::default();
        let (mut stores, mut fences) = (0, 0);
        for event in events {
            let told = |progress: Progress, error: String| {
                let (name, place) = (&part.workload.name, Place::from(event.site));
                format!("{name}, at {place:?} ({progress:?}): {error}")
            };
            let moment = match &event.kind {
                EventKind::Mark(mark) => Moment::read(mark),
                _ => None,
            };
            let is_fence = matches!(event.kind, EventKind::Fence);
            if active && (is_fence || moment.is_some()) {
                let late = late(&memory, &whole);
                if !late.is_empty() {
                    let thorough = fences > 0 || moment.is_some();
                    fences -= usize::from(fences > 0);
                    self.lose(part, &memory, &late, progress, thorough)
                        .map_err(|error| told(progress, error))?;
                }
            }
            memory.step(event);
            whole.step(event);
            match moment {
                Some(Moment::Begin(step)) => {
                    active |= step >= from;
                    progress.in_flight = true;
                }
                Some(Moment::End(step)) => {
                    progress = Progress {
                        returned: step + 1,
                        in_flight: false,
                    };
                }
                _ => {}
            }
            let is_store = matches!(
                event.kind,
                EventKind::Store { .. } | EventKind::Stream { .. } | EventKind::File(_)
            );
            if active && is_store {
                let late = late(&memory, &whole);
                if late != before {
                    (stores, fences) = (STORES, FENCES);
                }
                if stores > 0 && !late.is_empty() {
                    stores -= 1;
                    self.lose(part, &memory, &late, progress, false)
                        .map_err(|error| told(progress, error))?;
                }
                before = late;
            }
        }
        let late = late(&memory, &whole);
        if active && !late.is_empty() {
            self.lose(part, &memory, &late, progress, true)
                .map_err(|error| format!("{}, at its end: {error}", part.workload.name))?;
        }
        Ok(())
    }

    /// Crashes at one moment that lose some of the late lines.
    fn lose(
        &mut self,
        part: &Part,
        memory: &Memory,
        late: &HashSet<LineKey>,
        progress: Progress,
        thorough: bool,
    ) -> Result<(), String> {
        self.counts.moments += 1;
        let others = |line: LineKey, rest: Choice, of_late: Choice| {
            if late.contains(&line) { of_late } else { rest }
        };
        self.state(part, memory, &|line| others(line, ALL, NONE), progress)?;
        self.state(part, memory, &|line| others(line, NONE, NONE), progress)?;
        let is_order = matches!(memory.dropped, Some(Dropped::Order(_)));
        let thorough = thorough || is_order;
        let mut lines: Vec<LineKey> = late.iter().copied().collect();
        lines.sort_unstable();
        while lines.len() > if thorough { ALONE } else { ALONE_AT_STORE } {
            let one = self.random.below(lines.len() as u64) as usize;
            lines.remove(one);
        }
        if !thorough {
            for one in lines {
                let missing = |line: LineKey| if line == one { NONE } else { ALL };
                self.state(part, memory, &missing, progress)?;
            }
            return Ok(());
        }
        for &one in &lines {
            for choice in self.choices(memory, one) {
                let alone = |line: LineKey| match line == one {
                    true => choice,
                    false => others(line, ALL, NONE),
                };
                self.state(part, memory, &alone, progress)?;
                let missing = |line: LineKey| if line == one { choice } else { ALL };
                self.state(part, memory, &missing, progress)?;
                if is_order {
                    let all_alone = |line: LineKey| if line == one { choice } else { NONE };
                    self.state(part, memory, &all_alone, progress)?;
                }
            }
        }
        Ok(())
    }

    /// What may survive of a line: everything, if that is little.
    fn choices(&mut self, memory: &Memory, line: LineKey) -> Vec<Choice> {
        let (free, ordered) = counts(&memory.lines[&line]);
        let all = 1usize
            .checked_shl(free as u32)
            .unwrap_or(usize::MAX)
            .saturating_mul(ordered + 1);
        if free < 20 && all <= OF_ONE {
            let choice = |number: usize| Choice {
                prefix: number % (ordered + 1),
                free: (number / (ordered + 1)) as u64,
            };
            return (0..all).map(choice).collect();
        }
        let mut choices = vec![ALL, NONE];
        choices.extend((0..free.min(4)).map(|one| Choice {
            prefix: 0,
            free: 1 << one,
        }));
        while choices.len() < OF_ONE / 2 {
            choices.push(Choice {
                prefix: self.random.below(ordered as u64 + 1) as usize,
                free: self.random.next_word() >> 1,
            });
        }
        choices
    }

    /// Recoveries of a workload's crashes, of which something can be left out: where each step
    /// has returned, with all that was stored, and where a journal entry has become durable.
    pub fn recoveries(&mut self, group: &Group, part: &Part) -> Vec<Recovery> {
        self.begin(group);
        let mut found = Vec::new();
        let mut memory = part.memory.clone();
        let mut progress = Progress {
            returned: 0,
            in_flight: false,
        };
        let mut seen = HashSet::default();
        for event in group.events.get(part.events.clone()).unwrap_or_default() {
            memory.step(event);
            let moment = match &event.kind {
                EventKind::Mark(mark) => Moment::read(mark),
                _ => None,
            };
            match moment {
                Some(Moment::Begin(_)) => progress.in_flight = true,
                Some(Moment::End(step)) => {
                    progress = Progress {
                        returned: step + 1,
                        in_flight: false,
                    };
                }
                _ => {}
            }
            let is_entry = matches!(event.kind, EventKind::Fence)
                && event
                    .site
                    .file()
                    .ends_with("controller/src/pool/journal.rs");
            if !is_entry && !matches!(moment, Some(Moment::End(_))) {
                continue;
            }
            let (hash, pages) = Self::build(&memory, &|_| ALL);
            if !seen.insert(hash) {
                continue;
            }
            let (outcome, events) = self.recover(&memory, &pages, hash);
            let outcome: Outcome = Rc::new(outcome);
            if Self::judge(part, &outcome, progress).is_err() || outcome.is_err() {
                // Told by the exploration of the trace as it is.
                continue;
            }
            let mut crashed = memory.clone();
            crashed.crash(&pages);
            crashed.rename_files(self.stage.ids());
            found.push(Recovery {
                memory: crashed,
                events,
                progress,
            });
        }
        found
    }
}
