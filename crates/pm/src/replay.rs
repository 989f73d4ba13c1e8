//! What a crash may leave: replays a trace and keeps, for one region, what is
//! surely durable and what is in flight.
//!
//! The model is that of the x86-64 processor without a battery behind its
//! caches:
//!
//! * A store may reach memory at any time after it was made (a line may be
//!   evicted), and must have once its line was flushed after it and the flushing
//!   thread has fenced. Aligned words of 8 bytes are never torn; so a store
//!   is cut into [`Piece`]s at such boundaries.
//! * Ordinary stores to one line reach memory in order, so what a crash leaves of
//!   a line is a prefix of its ordinary pieces; streamed pieces are in no order
//!   until their thread fences.
//!
//! Invariant: the guaranteed image is the initial one plus all durable pieces in
//! the order of the trace; a piece is in flight from its store until it is durable
//! or wholly covered by a later durable piece.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Result};
use crate::flush::CACHE_LINE;
use crate::record::{Event, EventKind, FileId};
use crate::traced_maps::TracedMaps;

const LINE: u64 = CACHE_LINE as u64;

/// The memory to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// By address in the traced process; a multiple of 64.
    Memory {
        /// First byte.
        address: u64,
    },
    /// Part of a file, through whatever mappings the trace names. Stores to mappings
    /// that it does not name are missed.
    File {
        /// The file.
        file: FileId,
        /// First byte in it; a multiple of 64.
        offset: u64,
    },
}

/// Part of a store, at most one aligned word, that is not durable for sure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Index of the event that stored it, counted over all steps of the replay.
    pub event: usize,
    /// The thread that stored it.
    pub thread: u32,
    /// Byte offset in the region.
    pub offset: u64,
    /// What was stored: 1 to 8 bytes inside one aligned word.
    pub bytes: Vec<u8>,
    /// By a streaming store.
    pub streamed: bool,
    /// Flushed after it was stored, but not fenced (always so if streamed).
    pub flushed: bool,
}

impl Piece {
    fn covers(&self, other: &Piece) -> bool {
        self.offset <= other.offset
            && other.offset + other.bytes.len() as u64 <= self.offset + self.bytes.len() as u64
    }
}

/// A line with pieces in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineInFlight {
    /// Byte offset of the line in the region, a multiple of 64.
    pub offset: u64,
    /// The pieces in the order of their stores.
    pub pieces: Vec<Piece>,
}

/// The state at a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencePoint {
    /// Index of the fence in the trace.
    pub event: usize,
    /// The thread that fenced.
    pub thread: u32,
    /// What is durable for sure after it.
    pub durable: Vec<u8>,
    /// What else may have reached memory.
    pub in_flight: Vec<LineInFlight>,
}

#[derive(Debug)]
struct Stored {
    piece: Piece,
    durable: bool,
}

#[derive(Debug, Default)]
struct Line {
    stored: Vec<Stored>,
}

/// What a thread has flushed or streamed since its last fence: lines, and up to
/// which event their pieces will be durable (`None`: the thread's own streamed ones).
type Pending = Vec<(u64, Option<usize>)>;

/// A replay in progress; feed it events in order.
#[derive(Debug)]
pub struct Replay {
    region: Region,
    /// What is durable for sure, except durable pieces still in `lines`.
    settled: Vec<u8>,
    /// What the processors see.
    visible: Vec<u8>,
    lines: BTreeMap<u64, Line>,
    pending: HashMap<u32, Pending>,
    maps: TracedMaps<FileId>,
    next_event: usize,
    idle_flushes: Vec<usize>,
    idle_fences: Vec<usize>,
}

impl Replay {
    /// Watches a region whose contents, all durable, are `initial` when the trace
    /// begins; its length is the region's.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the region does not begin on a line.
    pub fn new(region: Region, initial: Vec<u8>) -> Result<Replay> {
        let (Region::Memory { address: start } | Region::File { offset: start, .. }) = region;
        if !start.is_multiple_of(LINE) {
            let len = initial.len();
            return Err(Error::OutOfBounds {
                offset: start as usize,
                len,
                size: len,
            });
        }
        Ok(Replay {
            region,
            visible: initial.clone(),
            settled: initial,
            lines: BTreeMap::new(),
            pending: HashMap::new(),
            maps: TracedMaps::default(),
            next_event: 0,
            idle_flushes: Vec::new(),
            idle_fences: Vec::new(),
        })
    }

    /// Takes the next event.
    pub fn step(&mut self, event: &Event) {
        let index = self.next_event;
        self.next_event += 1;
        match &event.kind {
            EventKind::Map {
                address,
                len,
                file,
                offset,
            } => {
                self.maps.map(*address, *len, *file, *offset);
            }
            EventKind::Unmap { address, len } => self.maps.unmap(*address, *len),
            EventKind::Store { address, bytes } => {
                self.store(index, event.thread, *address, bytes, false);
            }
            EventKind::Stream { address, bytes } => {
                self.store(index, event.thread, *address, bytes, true);
            }
            EventKind::Flush { line } => self.flush(index, event.thread, *line),
            EventKind::Fence => self.fence(index, event.thread),
            EventKind::File(_) | EventKind::Mark(_) => {}
        }
    }

    /// What is durable for sure now.
    pub fn durable_image(&self) -> Vec<u8> {
        self.image_with(|_| false)
    }

    /// What the processors see: the image after a crash that lost nothing.
    pub fn visible_image(&self) -> &[u8] {
        &self.visible
    }

    /// A possible image after a crash: the durable one and the pieces in flight that
    /// `survives` picks. Which choices a processor could make is the caller's
    /// business: see the module's model.
    pub fn image_with(&self, mut survives: impl FnMut(&Piece) -> bool) -> Vec<u8> {
        let mut image = self.settled.clone();
        for line in self.lines.values() {
            for stored in &line.stored {
                if stored.durable || survives(&stored.piece) {
                    apply(&mut image, &stored.piece);
                }
            }
        }
        image
    }

    /// The lines in flight, by offset.
    pub fn in_flight(&self) -> Vec<LineInFlight> {
        self.lines
            .iter()
            .map(|(&offset, line)| LineInFlight {
                offset,
                pieces: line
                    .stored
                    .iter()
                    .filter(|stored| !stored.durable)
                    .map(|stored| stored.piece.clone())
                    .collect(),
            })
            .collect()
    }

    /// Flushes of lines of the region in which nothing was stored since their last
    /// flush: wasted.
    pub fn idle_flushes(&self) -> &[usize] {
        &self.idle_flushes
    }

    /// Fences of threads that had flushed and streamed nothing in the region: wasted,
    /// unless they were meant for another region.
    pub fn idle_fences(&self) -> &[usize] {
        &self.idle_fences
    }

    /// Where in the region an address lies.
    fn locate(&self, address: u64) -> Option<u64> {
        let offset = match self.region {
            Region::Memory { address: start } => address.checked_sub(start)?,
            Region::File {
                file,
                offset: start,
            } => {
                let (found, offset) = self.maps.locate(address)?;
                (found == file).then_some(offset)?.checked_sub(start)?
            }
        };
        (offset < self.settled.len() as u64).then_some(offset)
    }

    fn store(&mut self, event: usize, thread: u32, address: u64, bytes: &[u8], streamed: bool) {
        let mut done = 0;
        while done < bytes.len() {
            let at = address + done as u64;
            let word_left = (8 - at % 8) as usize;
            let len = word_left.min(bytes.len() - done);
            if let Some(offset) = self.locate(at) {
                // The region may end inside the word.
                let len = len.min(self.settled.len() - offset as usize);
                let piece = Piece {
                    event,
                    thread,
                    offset,
                    bytes: bytes[done..done + len].to_vec(),
                    streamed,
                    flushed: streamed,
                };
                apply(&mut self.visible, &piece);
                let line = offset & !(LINE - 1);
                self.lines.entry(line).or_default().stored.push(Stored {
                    piece,
                    durable: false,
                });
                if streamed {
                    let pending = self.pending.entry(thread).or_default();
                    if pending.last() != Some(&(line, None)) {
                        pending.push((line, None));
                    }
                }
            }
            done += len;
        }
    }

    fn flush(&mut self, event: usize, thread: u32, address: u64) {
        let Some(line) = self.locate(address) else {
            return;
        };
        let mut useful = false;
        if let Some(stored) = self.lines.get_mut(&line) {
            for stored in &mut stored.stored {
                useful |= !stored.piece.flushed;
                stored.piece.flushed = true;
            }
        }
        if !useful {
            self.idle_flushes.push(event);
        }
        // Pending even if another thread has flushed the line already: a fence waits
        // for the flushes of its own thread only.
        self.pending
            .entry(thread)
            .or_default()
            .push((line, Some(event)));
    }

    fn fence(&mut self, event: usize, thread: u32) {
        let Some(pending) = self.pending.remove(&thread) else {
            self.idle_fences.push(event);
            return;
        };
        for (offset, flushed_at) in pending {
            let Some(line) = self.lines.get_mut(&offset) else {
                continue;
            };
            for stored in &mut line.stored {
                stored.durable |= match flushed_at {
                    Some(flushed_at) => !stored.piece.streamed && stored.piece.event < flushed_at,
                    None => stored.piece.streamed && stored.piece.thread == thread,
                };
            }
            settle(line, &mut self.settled);
            if line.stored.is_empty() {
                self.lines.remove(&offset);
            }
        }
    }
}

/// Drops pieces that a later durable one covers, and moves durable ones that
/// nothing in flight precedes into the image.
fn settle(line: &mut Line, image: &mut [u8]) {
    let mut index = 0;
    while index < line.stored.len() {
        let (stored, later) = (&line.stored[index], &line.stored[index + 1..]);
        if later
            .iter()
            .any(|later| later.durable && later.piece.covers(&stored.piece))
        {
            line.stored.remove(index);
        } else {
            index += 1;
        }
    }
    let settled = line
        .stored
        .iter()
        .take_while(|stored| stored.durable)
        .count();
    for stored in line.stored.drain(..settled) {
        apply(image, &stored.piece);
    }
}

fn apply(image: &mut [u8], piece: &Piece) {
    let start = piece.offset as usize;
    if let Some(target) = image.get_mut(start..start + piece.bytes.len()) {
        target.copy_from_slice(&piece.bytes);
    }
}

/// Replays a whole trace and returns the state after each fence, and the state at
/// the end. Keeps an image per fence: for short traces and small regions;
/// otherwise use [`Replay::step`].
///
/// # Errors
/// As [`Replay::new`].
pub fn fence_points(
    events: &[Event],
    region: Region,
    initial: Vec<u8>,
) -> Result<(Vec<FencePoint>, Replay)> {
    let mut replay = Replay::new(region, initial)?;
    let mut points = Vec::new();
    for (index, event) in events.iter().enumerate() {
        replay.step(event);
        if event.kind == EventKind::Fence {
            points.push(FencePoint {
                event: index,
                thread: event.thread,
                durable: replay.durable_image(),
                in_flight: replay.in_flight(),
            });
        }
    }
    Ok((points, replay))
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
