//! What a crash may leave of a pool's files: replays a trace over all of them at once.
//!
//! The model is that of [`arck_pm::replay`] (stores to a line reach the medium in order, a flush and
//! a fence of one thread make them durable, words of 8 bytes are whole, streamed words come in any
//! order until the fence), for many files, and kept so that an image costs what it differs in:
//!
//! * [`Memory`] holds the durable pages, shared between copies, and the pieces in flight.
//! * Names, lengths and punched ranges are durable when the system call returns; what a file
//!   system does to keep that promise is not looked at here. Bytes written by a system call are in
//!   flight until the file is synced.
//!
//! # Invariant
//! `hash` is the exclusive or over all words that are not zero of a mix of place and value, so two
//! images with the same hash are taken for the same.

use arck_pm::record::{Event, EventKind, FileChange, FileId, Site};
use arck_pm::traced_maps::TracedMaps;
use foldhash::HashMap;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Words in a page.
pub const WORDS: usize = 512;
const PAGE: u64 = 4096;
const LINE_WORDS: u64 = 8;

/// A page of a file.
pub type Page = [u64; WORDS];
/// A file of the pool, numbered by appearance in the trace.
pub type FileNumber = u32;
/// A page of a file: file, page in it.
pub type PageKey = (FileNumber, u64);

/// What of a trace is left out, to see whether anybody notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
pub enum Dropped {
    /// The flushes that a place asks for.
    Flush(Place),
    /// Its fences.
    Fence(Place),
    /// That its streaming stores go past the cache: ordinary stores that nobody flushes.
    Stream(Place),
    /// Its `fsync`s of files written by system calls.
    Sync(Place),
    /// The order of its ordinary stores within their lines.
    Order(Place),
}

/// A place in the source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub file: &'static str,
    pub line: u32,
    pub column: u32,
}

impl From<Site> for Place {
    fn from(site: Site) -> Place {
        Place {
            file: site.file(),
            line: site.line(),
            column: site.column(),
        }
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = self.file.strip_prefix("crates/").unwrap_or(self.file);
        write!(f, "{file}:{}:{}", self.line, self.column)
    }
}

/// Part of one word that was stored and is not durable for sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub event: usize,
    thread: u32,
    /// Which word of the line, and which bits of it.
    pub word: u8,
    mask: u64,
    value: u64,
    streamed: bool,
    /// Its place in the line's order of stores counts for nothing ([`Dropped::Order`]).
    unordered: bool,
    /// Written by a system call: durable with the next sync of the file.
    written: bool,
}

impl Piece {
    /// Whether it may reach the medium without the ordinary pieces before it in its line.
    pub fn is_free(&self) -> bool {
        self.streamed || self.unordered || self.written
    }

    /// The word as this piece leaves it.
    pub fn apply(&self, word: u64) -> u64 {
        word & !self.mask | self.value
    }
}

/// A line of a file: file, line in it.
pub type LineKey = (FileNumber, u64);

/// See the module's head.
#[derive(Clone, Default)]
pub struct Memory {
    pub pages: HashMap<PageKey, Rc<Page>>,
    pub lines: BTreeMap<LineKey, Vec<Piece>>,
    pub names: BTreeMap<String, FileNumber>,
    pub lengths: HashMap<FileNumber, u64>,
    pub hash: u64,
    ids: HashMap<FileId, FileNumber>,
    files: FileNumber,
    maps: TracedMaps<FileNumber>,
    pending: HashMap<u32, Vec<(LineKey, Option<usize>)>>,
    event: usize,
    pub dropped: Option<Dropped>,
    /// Counts changes of what is in flight.
    pub version: u64,
}

fn mix(file: FileNumber, word: u64, value: u64) -> u64 {
    if value == 0 {
        return 0;
    }
    let mut x = value ^ (u64::from(file) << 48) ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..2 {
        x ^= x >> 32;
        x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    x ^ x >> 32
}

/// How a word's change changes the hash.
pub fn mix_change(line: LineKey, word: u8, before: u64, after: u64) -> u64 {
    let at = line.1 * LINE_WORDS + u64::from(word);
    mix(line.0, at, before) ^ mix(line.0, at, after)
}

/// The page of a line, and the first word of the line in it.
pub fn page_of(line: LineKey) -> (PageKey, usize) {
    let first = line.1 * LINE_WORDS;
    ((line.0, first / WORDS as u64), first as usize % WORDS)
}

impl Memory {
    /// The durable value of a word of a line.
    pub fn word(&self, line: LineKey, word: u8) -> u64 {
        let (key, first) = page_of(line);
        self.pages
            .get(&key)
            .map_or(0, |page| page[first + usize::from(word)])
    }

    /// The files by the numbers that the kernel gives them; another trace of the same files may
    /// have others.
    pub fn rename_files(&mut self, ids: HashMap<FileId, FileNumber>) {
        self.ids = ids;
        self.maps.clear();
        self.pending.clear();
    }

    /// What was in flight is gone, but for what these pages hold.
    pub fn crash(&mut self, pages: &HashMap<PageKey, Rc<Page>>) {
        self.lines.clear();
        self.pending.clear();
        for (&key, page) in pages {
            let before = self.pages.insert(key, page.clone());
            for (word, &after) in page.iter().enumerate() {
                let at = key.1 * WORDS as u64 + word as u64;
                let before = before.as_ref().map_or(0, |before| before[word]);
                self.hash ^= mix(key.0, at, before) ^ mix(key.0, at, after);
            }
        }
        self.version += 1;
    }

    /// Sets a durable word.
    fn settle_word(&mut self, line: LineKey, word: u8, piece: &Piece) {
        let (key, first) = page_of(line);
        let page = self.pages.entry(key).or_insert_with(|| Rc::new([0; WORDS]));
        let before = page[first + usize::from(word)];
        let after = piece.apply(before);
        if before != after {
            Rc::make_mut(page)[first + usize::from(word)] = after;
            self.hash ^= mix_change(line, word, before, after);
        }
    }

    /// Takes the next event.
    pub fn step(&mut self, event: &Event) {
        let index = self.event;
        self.event += 1;
        let place = Place::from(event.site);
        match &event.kind {
            EventKind::Map {
                address,
                len,
                file,
                offset,
            } => {
                // Of other files than the pool's nothing is known.
                match self.ids.get(file) {
                    Some(&file) => self.maps.map(*address, *len, file, *offset),
                    None => self.maps.unmap(*address, *len),
                }
            }
            EventKind::Unmap { address, len } => self.maps.unmap(*address, *len),
            EventKind::Store { address, bytes } => {
                let unordered = self.dropped == Some(Dropped::Order(place));
                if let Some((file, offset)) = self.maps.locate(*address) {
                    self.store(index, event.thread, file, offset, bytes, |piece| {
                        piece.unordered = unordered;
                    });
                }
            }
            EventKind::Stream { address, bytes } => {
                let streamed = self.dropped != Some(Dropped::Stream(place));
                if let Some((file, offset)) = self.maps.locate(*address) {
                    self.store(index, event.thread, file, offset, bytes, |piece| {
                        piece.streamed = streamed;
                    });
                }
            }
            EventKind::Flush { line } => {
                if self.dropped != Some(Dropped::Flush(place))
                    && self.dropped != Some(Dropped::Stream(place))
                    && let Some((file, offset)) = self.maps.locate(*line)
                {
                    self.pend(event.thread, (file, offset / 64), Some(index));
                }
            }
            EventKind::Fence => {
                if self.dropped != Some(Dropped::Fence(place)) {
                    self.fence(event.thread);
                }
            }
            EventKind::File(FileChange::Synced { .. })
                if self.dropped == Some(Dropped::Sync(place)) => {}
            EventKind::File(change) => self.change_file(index, event.thread, change),
            EventKind::Mark(_) => {}
        }
    }

    fn change_file(&mut self, index: usize, thread: u32, change: &FileChange) {
        match change {
            FileChange::Named { file, name } => {
                let number = *self.ids.entry(*file).or_insert_with(|| {
                    self.files += 1;
                    self.files
                });
                self.names.retain(|_, other| *other != number);
                self.names.insert(name.clone(), number);
                self.version += 1;
            }
            FileChange::Removed { name } => {
                self.names.remove(name);
                self.version += 1;
            }
            FileChange::Length { file, len } => {
                if let Some(&file) = self.ids.get(file) {
                    self.lengths.insert(file, *len);
                }
            }
            FileChange::Written {
                file,
                offset,
                bytes,
            } => {
                if let Some(&file) = self.ids.get(file) {
                    let end = offset + bytes.len() as u64;
                    let length = self.lengths.entry(file).or_insert(0);
                    *length = end.max(*length);
                    self.store(index, thread, file, *offset, bytes, |piece| {
                        piece.written = true;
                    });
                }
            }
            FileChange::Synced { file } => {
                if let Some(&file) = self.ids.get(file) {
                    let lines: Vec<LineKey> = self
                        .lines
                        .range((file, 0)..=(file, u64::MAX))
                        .map(|(&line, _)| line)
                        .collect();
                    for line in lines {
                        self.settle(line, |piece| piece.written);
                    }
                }
            }
            FileChange::Punched { file, offset, len } => {
                if let Some(&file) = self.ids.get(file) {
                    for page in offset / PAGE..(offset + len).div_ceil(PAGE) {
                        if let Some(old) = self.pages.remove(&(file, page)) {
                            for (word, &value) in old.iter().enumerate() {
                                let at = page * WORDS as u64 + word as u64;
                                self.hash ^= mix(file, at, value);
                            }
                        }
                        for line in page * 64..(page + 1) * 64 {
                            self.lines.remove(&(file, line));
                        }
                    }
                    self.version += 1;
                }
            }
        }
    }

    fn store(
        &mut self,
        event: usize,
        thread: u32,
        file: FileNumber,
        offset: u64,
        bytes: &[u8],
        adjust: impl Fn(&mut Piece),
    ) {
        self.version += 1;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % 8) as usize;
            let len = (8 - within).min(bytes.len() - done);
            let mut value = [0; 8];
            let mut mask = [0; 8];
            value[within..within + len].copy_from_slice(&bytes[done..done + len]);
            mask[within..within + len].fill(0xff);
            let line = (file, at / 64);
            let mut piece = Piece {
                event,
                thread,
                word: (at / 8 % LINE_WORDS) as u8,
                mask: u64::from_le_bytes(mask),
                value: u64::from_le_bytes(value),
                streamed: false,
                unordered: false,
                written: false,
            };
            adjust(&mut piece);
            self.lines.entry(line).or_default().push(piece);
            if piece.streamed {
                self.pend(thread, line, None);
            }
            done += len;
        }
    }

    fn pend(&mut self, thread: u32, line: LineKey, flushed_at: Option<usize>) {
        let pending = self.pending.entry(thread).or_default();
        if pending.last() != Some(&(line, flushed_at)) {
            pending.push((line, flushed_at));
        }
    }

    fn fence(&mut self, thread: u32) {
        for (line, flushed_at) in self.pending.remove(&thread).unwrap_or_default() {
            self.settle(line, |piece| match flushed_at {
                Some(at) => !piece.streamed && !piece.written && piece.event < at,
                None => piece.streamed && piece.thread == thread,
            });
        }
    }

    /// Makes pieces of a line durable.
    fn settle(&mut self, line: LineKey, is_durable: impl Fn(&Piece) -> bool) {
        let Some(mut pieces) = self.lines.remove(&line) else {
            return;
        };
        let mut index = 0;
        while index < pieces.len() {
            let piece = pieces[index];
            if !is_durable(&piece) {
                index += 1;
                continue;
            }
            pieces.remove(index);
            // What this one overwrites can be seen no more.
            let mut earlier = 0;
            while earlier < index {
                let other = &mut pieces[earlier];
                if other.word == piece.word {
                    other.mask &= !piece.mask;
                    other.value &= !piece.mask;
                    if other.mask == 0 {
                        pieces.remove(earlier);
                        index -= 1;
                        continue;
                    }
                }
                earlier += 1;
            }
            self.settle_word(line, piece.word, &piece);
            self.version += 1;
        }
        if !pieces.is_empty() {
            self.lines.insert(line, pieces);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use arck_pm::replay::{Region, Replay};
    use std::collections::BTreeSet;
    use std::panic::Location;

    const LENGTH: u64 = 2 * PAGE;
    const ADDRESS: u64 = 16 * PAGE;
    const FILE: FileId = FileId {
        device: 1,
        inode: 2,
    };

    /// Stores, flushes and fences of three threads, in few lines.
    fn random_event(random: &mut Random) -> Event {
        let line = ADDRESS + 64 * (random.below(4) + 62 * random.below(2));
        let address = line + random.below(60);
        let value = random.next_word();
        let bytes = value.to_le_bytes()[..1 + random.below(8) as usize].to_vec();
        Event {
            thread: random.below(3) as u32,
            site: Location::caller(),
            kind: match random.below(8) {
                0 | 1 => EventKind::Flush { line },
                2 => EventKind::Fence,
                3 | 4 => EventKind::Stream { address, bytes },
                _ => EventKind::Store { address, bytes },
            },
        }
    }

    fn image(memory: &Memory, survives: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut words = vec![0u64; (LENGTH / 8) as usize];
        for (&(_, page), content) in &memory.pages {
            let first = page as usize * WORDS;
            words[first..first + WORDS].copy_from_slice(&content[..]);
        }
        for (&(_, line), pieces) in &memory.lines {
            for piece in pieces.iter().filter(|piece| survives(piece.event)) {
                let word = &mut words[(line * LINE_WORDS) as usize + usize::from(piece.word)];
                *word = piece.apply(*word);
            }
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Two replays of one model, made for different uses, leave the same.
    #[test]
    fn images_are_those_of_the_other_replay() {
        let mut random = Random::new(7);
        for round in 0..200 {
            let site = Location::caller();
            let begin = [
                EventKind::File(FileChange::Named {
                    file: FILE,
                    name: "file".into(),
                }),
                EventKind::Map {
                    address: ADDRESS,
                    len: LENGTH,
                    file: FILE,
                    offset: 0,
                },
            ];
            let mut events: Vec<Event> = begin
                .into_iter()
                .map(|kind| Event {
                    thread: 0,
                    site,
                    kind,
                })
                .collect();
            events.extend((0..60).map(|_| random_event(&mut random)));
            let region = Region::File {
                file: FILE,
                offset: 0,
            };
            let mut memory = Memory::default();
            let mut replay = Replay::new(region, vec![0; LENGTH as usize]).unwrap();
            for (index, event) in events.iter().enumerate() {
                memory.step(event);
                replay.step(event);
                let told = || format!("round {round}, event {index}: {event:?}");
                assert!(
                    image(&memory, |_| false) == replay.durable_image(),
                    "{}",
                    told()
                );
                assert!(
                    image(&memory, |_| true) == replay.visible_image(),
                    "{}",
                    told()
                );
                let some: BTreeSet<usize> = (0..=index).filter(|_| random.percent(50)).collect();
                let other = replay.image_with(|piece| some.contains(&piece.event));
                assert!(
                    image(&memory, |event| some.contains(&event)) == other,
                    "{}",
                    told()
                );
            }
        }
    }
}
