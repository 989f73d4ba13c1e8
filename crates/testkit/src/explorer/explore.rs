//! The images that a crash may leave, and what is asked of each.
//!
//! At each moment the lines with stores in flight have independent choices: of ordinary stores a
//! prefix, of streamed words any. Where there are few combinations, all are tried; else none, all,
//! each line alone, each line missing, and a seeded sample. Since a choice stays possible until the
//! next fence that concerns it, combinations are tried before each fence and when an operation
//! returns, and after each other store only the image without losses and the one with that store
//! alone.
//!
//! # Invariant
//! An image is recovered once per workload; what was found is asked again wherever it may be met.

mod left_out;

pub use self::left_out::{Recovery, sites};
use super::checking;
use super::image::{LineKey, Memory, Page, PageKey, Piece, Place, mix_change, page_of};
use super::recording::{Group, Moment, Part};
use super::spool;
use super::stage::Stage;
use super::tree::{self, Tree};
use crate::Random;
use arck_controller::{ASIDE, Controller, Error, Options, VIOLATIONS_LOG};
use arck_core_state::layout;
use arck_pm::PersistOption;
use arck_pm::record::{Event, EventKind, Recording};
use foldhash::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Combinations at one moment.
    pub combinations: usize,
    /// Whether each store is looked at, not only each fence and return.
    pub stores: bool,
    /// Of distinct images, one in so many is recovered with a second crash; 0: none.
    pub nested: usize,
    /// Moments of that recovery, and combinations at each.
    pub nested_moments: usize,
    /// Of what is recovered, one in so many is looked at by the whole-pool check too; 0: none.
    pub checks: u64,
    pub seed: u64,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Moments at which a crash was tried.
    pub moments: u64,
    /// Pairs of a moment and an image.
    pub states: u64,
    /// Images that were recovered.
    pub images: u64,
    /// Of states and images, those that a second crash left, during recovery.
    pub nested: u64,
    /// Of images, those that the whole-pool check has looked at when they were recovered.
    pub checked: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.moments += other.moments;
        self.states += other.states;
        self.images += other.images;
        self.nested += other.nested;
        self.checked += other.checked;
    }
}

/// What there is before mkfs is done.
const NO_POOL: &str = "no pool";

/// What a recovery left.
type Outcome = Rc<Result<Tree, String>>;

/// Recovers images; one per process, since it records.
pub struct Explorer<'r> {
    recording: &'r Recording,
    stage: Stage,
    /// The pool is served to all users.
    shared: bool,
    /// What sessions left is always folded inode by inode.
    in_slices: bool,
    random: Random,
    bounds: Bounds,
    pub counts: Counts,
    outcomes: HashMap<u64, Outcome>,
    /// Images that were found to be allowed, by what was returned and in flight.
    allowed: HashSet<(u64, usize, bool)>,
}

/// Which pieces of a line survive: so many of the ordinary ones, and of the free ones a mask.
#[derive(Clone, Copy, Debug)]
struct Choice {
    prefix: usize,
    free: u64,
}

const ALL: Choice = Choice {
    prefix: usize::MAX,
    free: u64::MAX,
};
const NONE: Choice = Choice { prefix: 0, free: 0 };

impl Choice {
    /// Calls `each` for the pieces that survive, in order.
    fn survivors(self, pieces: &[Piece]) -> impl Iterator<Item = &Piece> {
        let (mut ordered, mut free) = (0, 0);
        pieces.iter().filter(move |piece| {
            if piece.is_free() {
                free += 1;
                self.free == u64::MAX || self.free >> ((free - 1) % 63) & 1 == 1
            } else {
                ordered += 1;
                ordered <= self.prefix
            }
        })
    }
}

/// The pieces that are free, and those that are not.
fn counts(pieces: &[Piece]) -> (usize, usize) {
    let free = pieces.iter().filter(|piece| piece.is_free()).count();
    (free, pieces.len() - free)
}

/// The whole-pool check of what a recovery left, which nobody serves and which was not closed.
fn check_whole(pool: &Path) -> Result<(), String> {
    let options = arck_check::Options {
        threads: 1,
        ..arck_check::Options::default()
    };
    let report = arck_check::check(pool, &options).map_err(|error| format!("check: {error}"))?;
    match report.is_clean() && report.unfolded == 0 {
        true => Ok(()),
        false => Err(format!("check: {report:?}")),
    }
}

/// A moment of the trace: what has returned, and whether the next step is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    returned: usize,
    in_flight: bool,
}

impl<'r> Explorer<'r> {
    pub fn new(recording: &'r Recording, bounds: Bounds) -> Explorer<'r> {
        Explorer {
            recording,
            stage: Stage::new(),
            shared: false,
            in_slices: false,
            random: Random::new(bounds.seed),
            bounds,
            counts: Counts::default(),
            outcomes: HashMap::default(),
            allowed: HashSet::default(),
        }
    }

    /// Tries more, or less, from now on.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Tries crashes of a workload. `Err`: the first that left what may not be.
    pub fn explore(&mut self, group: &Group, part: &Part) -> Result<(), String> {
        self.outcomes.clear();
        self.allowed.clear();
        self.random = Random::new(self.bounds.seed);
        self.shared = group.shared;
        self.in_slices = false;
        let mut memory = part.memory.clone();
        let mut progress = Progress {
            returned: 0,
            in_flight: false,
        };
        let mut active = part.workload.from == 0;
        let mut tried = u64::MAX;
        let events = group.events.get(part.events.clone()).unwrap_or_default();
        for (index, event) in (part.events.start..).zip(events) {
            let told = |error| {
                let name = &part.workload.name;
                let place = Place::from(event.site);
                format!("{name}, event {index} at {place:?} ({progress:?}): {error}")
            };
            let moment = match &event.kind {
                EventKind::Mark(mark) => Moment::read(mark),
                _ => None,
            };
            let is_fence = matches!(event.kind, EventKind::Fence);
            if active && (is_fence || moment.is_some()) && memory.version != tried {
                tried = memory.version;
                self.combinations(&memory, &mut |explorer, memory, choices| {
                    explorer.state(part, memory, choices, progress)
                })
                .map_err(told)?;
            }
            memory.step(event);
            match moment {
                Some(Moment::Begin(step)) => {
                    active |= step >= part.workload.from;
                    progress.in_flight = true;
                }
                Some(Moment::End(step)) => {
                    progress = Progress {
                        returned: step + 1,
                        in_flight: false,
                    };
                    // What had to be durable by now is looked for again.
                    tried = u64::MAX;
                }
                _ => {}
            }
            let is_store = matches!(
                event.kind,
                EventKind::Store { .. } | EventKind::Stream { .. } | EventKind::File(_)
            );
            if active && self.bounds.stores && is_store && memory.version != tried {
                self.store(part, &memory, index, progress)
                    .map_err(|error| {
                        let name = &part.workload.name;
                        let place = Place::from(event.site);
                        format!("{name}, event {index} at {place:?} ({progress:?}): {error}")
                    })?;
            }
        }
        // Whatever follows the last step.
        if memory.version != tried {
            self.combinations(&memory, &mut |explorer, memory, choices| {
                explorer.state(part, memory, choices, progress)
            })
            .map_err(|error| format!("{}, at its end: {error}", part.workload.name))?;
        }
        Ok(())
    }

    /// After a store: nothing lost, and of what is in flight that store alone.
    fn store(
        &mut self,
        part: &Part,
        memory: &Memory,
        event: usize,
        progress: Progress,
    ) -> Result<(), String> {
        self.counts.moments += 1;
        let lines: Vec<LineKey> = memory.lines.keys().copied().collect();
        self.state(part, memory, &|_| ALL, progress)?;
        let touched: HashSet<LineKey> = lines
            .into_iter()
            .filter(|line| memory.lines[line].iter().any(|piece| piece.event == event))
            .collect();
        if touched.is_empty() {
            return Ok(());
        }
        let alone = |line: LineKey| if touched.contains(&line) { ALL } else { NONE };
        self.state(part, memory, &alone, progress)
    }

    /// Calls `each` with choices for all lines in flight.
    #[allow(clippy::type_complexity)]
    fn combinations(
        &mut self,
        memory: &Memory,
        each: &mut dyn FnMut(&mut Self, &Memory, &dyn Fn(LineKey) -> Choice) -> Result<(), String>,
    ) -> Result<(), String> {
        self.counts.moments += 1;
        let lines: Vec<(LineKey, usize, usize)> = memory
            .lines
            .iter()
            .map(|(&line, pieces)| {
                let (free, ordered) = counts(pieces);
                (line, free, ordered)
            })
            .collect();
        let index: HashMap<LineKey, usize> = lines
            .iter()
            .enumerate()
            .map(|(index, &(line, ..))| (line, index))
            .collect();
        let options = |&(_, free, ordered): &(LineKey, usize, usize)| {
            let free = u32::try_from(free).unwrap_or(u32::MAX);
            2usize.saturating_pow(free).saturating_mul(ordered + 1)
        };
        let all = lines
            .iter()
            .map(options)
            .fold(1usize, usize::saturating_mul);
        let bound = self.bounds.combinations;
        if all <= bound {
            for number in 0..all {
                let mut rest = number;
                let choices: Vec<Choice> = lines
                    .iter()
                    .map(|line| {
                        let (_, free, ordered) = *line;
                        let choice = rest % options(line);
                        rest /= options(line);
                        Choice {
                            prefix: choice % (ordered + 1),
                            free: if choice / (ordered + 1) + 1 == 1 << free.min(63) {
                                u64::MAX
                            } else {
                                (choice / (ordered + 1)) as u64
                            },
                        }
                    })
                    .collect();
                each(self, memory, &|line| choices[index[&line]])?;
            }
            return Ok(());
        }
        each(self, memory, &|_| NONE)?;
        each(self, memory, &|_| ALL)?;
        let mut left = bound.saturating_sub(2);
        let chosen: Vec<LineKey> = if lines.len() <= bound / 4 {
            lines.iter().map(|line| line.0).collect()
        } else {
            (0..bound / 4).map(|_| self.random.pick(&lines).0).collect()
        };
        for &one in &chosen {
            each(self, memory, &|line| if line == one { ALL } else { NONE })?;
            each(self, memory, &|line| if line == one { NONE } else { ALL })?;
            left = left.saturating_sub(2);
        }
        for _ in 0..left {
            let share = *self.random.pick(&[10, 50, 90]);
            let choices: Vec<Choice> = lines
                .iter()
                .map(|&(_, _, ordered)| {
                    if self.random.percent(share) {
                        ALL
                    } else if self.random.percent(50) {
                        NONE
                    } else {
                        Choice {
                            prefix: self.random.below(ordered as u64 + 1) as usize,
                            free: self.random.next_word() >> 1,
                        }
                    }
                })
                .collect();
            each(self, memory, &|line| choices[index[&line]])?;
        }
        Ok(())
    }

    /// The image of a choice: its hash, and the pages that differ from the durable ones.
    fn build(
        memory: &Memory,
        choices: &dyn Fn(LineKey) -> Choice,
    ) -> (u64, HashMap<PageKey, Rc<Page>>) {
        let mut hash = memory.hash;
        let mut words: Vec<(LineKey, [u64; 8], [u64; 8])> = Vec::new();
        for (&line, pieces) in &memory.lines {
            let mut values: Option<([u64; 8], [u64; 8])> = None;
            for piece in choices(line).survivors(pieces) {
                let (_, after) = values.get_or_insert_with(|| {
                    let before = std::array::from_fn(|word| memory.word(line, word as u8));
                    (before, before)
                });
                let word = &mut after[usize::from(piece.word)];
                *word = piece.apply(*word);
            }
            let Some((before, after)) = values else {
                continue;
            };
            for word in 0..8u8 {
                let at = usize::from(word);
                if before[at] != after[at] {
                    hash ^= mix_change(line, word, before[at], after[at]);
                }
            }
            if before != after {
                words.push((line, before, after));
            }
        }
        let mut pages: HashMap<PageKey, Rc<Page>> = HashMap::default();
        for (line, _, after) in words {
            let (key, first) = page_of(line);
            let page = pages.entry(key).or_insert_with(|| {
                memory
                    .pages
                    .get(&key)
                    .map_or_else(|| Rc::new([0; 512]), |page| Rc::new(**page))
            });
            Rc::make_mut(page)[first..first + 8].copy_from_slice(&after);
        }
        // Names and lengths are part of the image.
        for (name, number) in &memory.names {
            let mut sum = u64::from(*number) ^ memory.lengths.get(number).unwrap_or(&0) << 20;
            for byte in name.bytes() {
                sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            hash = hash.wrapping_add(sum);
        }
        (hash, pages)
    }

    /// One image at one moment.
    fn state(
        &mut self,
        part: &Part,
        memory: &Memory,
        choices: &dyn Fn(LineKey) -> Choice,
        progress: Progress,
    ) -> Result<(), String> {
        self.counts.states += 1;
        let (hash, pages) = Self::build(memory, choices);
        let key = (hash, progress.returned, progress.in_flight);
        if self.allowed.contains(&key) {
            return Ok(());
        }
        let outcome = match self.outcomes.get(&hash) {
            Some(outcome) => outcome.clone(),
            None => {
                self.counts.images += 1;
                let (outcome, events) = self.recover(memory, &pages, hash);
                let outcome = Rc::new(outcome);
                self.outcomes.insert(hash, outcome.clone());
                let nested = self.bounds.nested;
                if nested != 0 && outcome.is_ok() && self.random.below(nested as u64) == 0 {
                    self.second_crash(part, memory, &pages, &events, progress)?;
                }
                outcome
            }
        };
        Self::judge(part, &outcome, progress)?;
        self.allowed.insert(key);
        Ok(())
    }

    fn judge(part: &Part, outcome: &Outcome, progress: Progress) -> Result<(), String> {
        let tree = match outcome.as_ref() {
            // It was being made.
            Err(error) if error == NO_POOL && progress.returned == 0 => return Ok(()),
            outcome => outcome.as_ref().map_err(String::clone)?,
        };
        let before = &part.states[progress.returned];
        let flight = progress.in_flight.then(|| checking::Flight {
            operation: &part.workload.steps[progress.returned].1,
            after: &part.states[progress.returned + 1],
            clock: &part.clocks[progress.returned],
        });
        checking::check(tree, before, flight)
    }

    /// Puts an image into the stage, recovers it and reads what is there.
    fn recover(
        &mut self,
        memory: &Memory,
        pages: &HashMap<PageKey, Rc<Page>>,
        hash: u64,
    ) -> (Result<Tree, String>, Vec<Event>) {
        self.stage.put(memory, pages);
        self.recording.take();
        let options = Options {
            // The trace says what it asks for.
            persist: PersistOption::Never,
            shared: self.shared,
            // Half of the time what a session left is folded inode by inode, as far as that goes:
            // with many, the slices fall anywhere.
            slice: if self.in_slices || hash & 1 == 1 {
                1
            } else {
                512
            },
            ..Options::default()
        };
        let path = self.stage.path().to_path_buf();
        let opened = Controller::open(&path, options);
        let events = self.recording.take();
        let opened = opened.map(drop);
        self.recording.take();
        self.stage.note(&events);
        let is_pool = memory.names.contains_key(layout::SUPERBLOCK);
        let outcome = match opened {
            Err(Error::Missing { .. }) if !is_pool => Err(NO_POOL.into()),
            Ok(()) if !is_pool => Err("a pool without a superblock".into()),
            Err(error) => Err(format!("recovery: {error}")),
            Ok(()) => match (path.join(VIOLATIONS_LOG), path.join(ASIDE)) {
                (log, _) if log.exists() => {
                    let text = std::fs::read_to_string(&log).unwrap_or_default();
                    Err(format!("refused: {}", text.trim_end()))
                }
                (_, aside) if aside.exists() => Err("something was set aside".into()),
                _ => tree::read(&self.stage).and_then(spool::replayed),
            },
        };
        let outcome = outcome.and_then(|tree| {
            if self.bounds.checks != 0 && (hash >> 8).is_multiple_of(self.bounds.checks) {
                self.counts.checked += 1;
                check_whole(&path)?;
            }
            Ok(tree)
        });
        if outcome.is_err() {
            // What it left besides must not be taken for the next one's.
            let _ = std::fs::remove_file(path.join(VIOLATIONS_LOG));
            let _ = std::fs::remove_dir_all(path.join(ASIDE));
        }
        (outcome, events)
    }

    /// Crashes the recovery of an image, and recovers again.
    fn second_crash(
        &mut self,
        part: &Part,
        memory: &Memory,
        pages: &HashMap<PageKey, Rc<Page>>,
        events: &[Event],
        progress: Progress,
    ) -> Result<(), String> {
        let mut memory = memory.clone();
        memory.crash(pages);
        memory.rename_files(self.stage.ids());
        let fences: Vec<usize> = events
            .iter()
            .enumerate()
            .filter(|(_, event)| matches!(event.kind, EventKind::Fence))
            .map(|(index, _)| index)
            .collect();
        let chosen: HashSet<usize> = (0..self.bounds.nested_moments.min(fences.len()))
            .map(|_| *self.random.pick(&fences))
            .collect();
        let bounds = self.bounds;
        for (index, event) in events.iter().enumerate() {
            if chosen.contains(&index) {
                self.bounds.combinations = 8;
                let outcome = self.combinations(&memory, &mut |explorer, memory, choices| {
                    explorer.counts.states += 1;
                    explorer.counts.nested += 1;
                    let (hash, pages) = Self::build(memory, choices);
                    // Where nothing was stored yet, the image is the first one's.
                    let outcome = match explorer.outcomes.get(&hash) {
                        Some(outcome) => outcome.clone(),
                        None => {
                            explorer.counts.images += 1;
                            let outcome = Rc::new(explorer.recover(memory, &pages, hash).0);
                            explorer.outcomes.insert(hash, outcome.clone());
                            outcome
                        }
                    };
                    Self::judge(part, &outcome, progress)
                });
                self.bounds = bounds;
                outcome.map_err(|error| format!("second crash, event {index}: {error}"))?;
            }
            memory.step(event);
        }
        Ok(())
    }
}
