//! A pool's directory in memory into which images are put, one after another, to be recovered.
//!
//! Putting an image there costs what it differs in from what is there: pages are shared between
//! images and compared by address, and what a recovery changed is known from its own trace.
//!
//! # Invariants
//! * `known` says of a page what the file holds, or nothing: then it is written again.
//! * The explorer keeps its files mapped writable, so that a recovery finds that somebody can
//!   write the arenas that are left, and leaves them there.

use super::image::{FileNumber, Memory, Page, PageKey, WORDS};
use arck_core_state::{PAGE_SIZE, PageWords, layout};
use arck_pm::record::{Event, EventKind, FileChange, FileId, file_id};
use arck_pm::traced_maps::TracedMaps;
use arck_pm::{MapOptions, Mapping};
use foldhash::HashMap;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;

struct StageFile {
    number: FileNumber,
    id: FileId,
    /// None: a small file that is written whole.
    mapping: Option<Mapping>,
    length: u64,
    /// Of a small file: what was written last.
    content: Option<Vec<u8>>,
}

/// See the module's head.
pub struct Stage {
    directory: tempfile::TempDir,
    files: BTreeMap<String, StageFile>,
    known: HashMap<PageKey, Option<Rc<Page>>>,
    /// Names that a recovery made.
    extra: Vec<String>,
    /// The number that a file got that a recovery made; they count down.
    last: FileNumber,
    zero: Rc<Page>,
}

fn is_mapped(name: &str) -> bool {
    (name.contains('/') && !name.contains('.'))
        || [
            layout::HEADERS,
            layout::PAGE_BITMAP,
            layout::SEGMENT_TABLE,
            layout::SESSION_TABLE,
            layout::JOURNAL,
        ]
        .contains(&name)
}

/// A page of a mapped file, as it stands.
pub fn words(mapping: &Mapping, page: u64) -> Option<&PageWords> {
    let offset = usize::try_from(page.checked_mul(PAGE_SIZE)?).ok()?;
    let bytes = mapping.bytes().slice(offset, PAGE_SIZE as usize)?;
    // SAFETY: inside the mapping, which lives as long as the borrow; aligned to a page; nothing
    // but atomics, for which every content is valid.
    Some(unsafe { &*bytes.as_ptr().cast::<PageWords>() })
}

impl Default for Stage {
    fn default() -> Stage {
        Stage::new()
    }
}

impl Stage {
    pub fn new() -> Stage {
        let directory = tempfile::Builder::new()
            .prefix("arck-explorer-")
            .tempdir_in("/dev/shm")
            .expect("a directory in /dev/shm");
        for folder in [layout::SEGMENTS, layout::ARENAS] {
            fs::create_dir(directory.path().join(folder)).expect("a folder of the stage");
        }
        Stage {
            directory,
            files: BTreeMap::new(),
            known: HashMap::default(),
            extra: Vec::new(),
            last: FileNumber::MAX,
            zero: Rc::new([0; WORDS]),
        }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Puts an image there: the durable pages, and in place of some of them others.
    pub fn put(&mut self, memory: &Memory, changed: &HashMap<PageKey, Rc<Page>>) {
        self.put_names(memory);
        let content = |key: &PageKey| changed.get(key).or_else(|| memory.pages.get(key));
        let missing: Vec<PageKey> = self
            .known
            .iter()
            .filter(|(key, page)| match (content(key), page) {
                (Some(new), Some(old)) => !Rc::ptr_eq(new, old),
                (None, Some(old)) => !Rc::ptr_eq(&self.zero, old),
                (_, None) => true,
            })
            .map(|(&key, _)| key)
            .collect();
        let unknown: Vec<PageKey> = memory
            .pages
            .keys()
            .chain(changed.keys())
            .filter(|key| !self.known.contains_key(key))
            .copied()
            .collect();
        let numbers: HashMap<FileNumber, &StageFile> = self
            .files
            .values()
            .map(|file| (file.number, file))
            .collect();
        for key in missing.into_iter().chain(unknown) {
            let page = content(&key).unwrap_or(&self.zero).clone();
            let Some(file) = numbers.get(&key.0) else {
                continue;
            };
            if let Some(mapping) = &file.mapping
                && let Some(target) = words(mapping, key.1)
            {
                for (target, &word) in target.iter().zip(page.iter()) {
                    target.store(word, Ordering::Relaxed);
                }
            }
            self.known.insert(key, Some(page));
        }
        for (name, file) in &mut self.files {
            if file.mapping.is_some() {
                continue;
            }
            let length = memory.lengths.get(&file.number).copied().unwrap_or(0) as usize;
            let mut bytes = Vec::with_capacity(length);
            for page in 0..length.div_ceil(PAGE_SIZE as usize) {
                let key = (file.number, page as u64);
                let page = changed.get(&key).or_else(|| memory.pages.get(&key));
                for word in page.unwrap_or(&self.zero).iter() {
                    bytes.extend_from_slice(&word.to_le_bytes());
                }
            }
            bytes.truncate(length);
            if file.content.as_ref() != Some(&bytes) {
                fs::write(self.directory.path().join(name), &bytes).expect("a small file");
                file.content = Some(bytes);
            }
        }
    }

    /// The files are those that the image has names for.
    fn put_names(&mut self, memory: &Memory) {
        let path = |name: &str| self.directory.path().join(name);
        for name in std::mem::take(&mut self.extra) {
            if !self.files.contains_key(&name) {
                // It may have been renamed since.
                let _ = fs::remove_file(path(&name));
            }
        }
        let gone: Vec<String> = self
            .files
            .iter()
            .filter(|(name, file)| {
                memory.names.get(*name) != Some(&file.number)
                    || (is_mapped(name)
                        && memory.lengths.get(&file.number).copied().unwrap_or(0) != file.length)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            let Some(file) = self.files.remove(&name) else {
                continue;
            };
            let _ = fs::remove_file(path(&name));
            self.known.retain(|key, _| key.0 != file.number);
        }
        for (name, &number) in &memory.names {
            if self.files.contains_key(name) {
                continue;
            }
            let length = memory.lengths.get(&number).copied().unwrap_or(0);
            let place = path(name);
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&place)
                .expect("a file of the stage");
            file.set_len(length).expect("its length");
            let mapping = (is_mapped(name) && length > 0).then(|| {
                Mapping::new(&file, 0, length as usize, MapOptions::READ_WRITE).expect("its map")
            });
            let made = StageFile {
                number,
                id: file_id(&file),
                mapping,
                length,
                content: None,
            };
            self.files.insert(name.clone(), made);
        }
    }

    /// The numbers of the files, by what the kernel calls them here.
    pub fn ids(&self) -> HashMap<FileId, FileNumber> {
        self.files
            .values()
            .map(|file| (file.id, file.number))
            .collect()
    }

    /// Takes note of what a recovery did to the files.
    pub fn note(&mut self, events: &[Event]) {
        let ids = self.ids();
        let mut maps: TracedMaps<FileNumber> = TracedMaps::default();
        let known = &mut self.known;
        let mut dirty = |file, offset: u64, len: u64| {
            for page in offset / PAGE_SIZE..(offset + len).div_ceil(PAGE_SIZE) {
                known.insert((file, page), None);
            }
        };
        let mut changes = Vec::new();
        for event in events {
            match &event.kind {
                EventKind::Map {
                    address,
                    len,
                    file,
                    offset,
                } => match ids.get(file) {
                    Some(&number) => maps.map(*address, *len, number, *offset),
                    None => maps.unmap(*address, *len),
                },
                EventKind::Unmap { address, len } => maps.unmap(*address, *len),
                EventKind::Store { address, bytes } | EventKind::Stream { address, bytes } => {
                    if let Some((number, offset)) = maps.locate(*address) {
                        dirty(number, offset, bytes.len() as u64);
                    }
                }
                EventKind::File(change) => changes.push(change),
                _ => {}
            }
        }
        for change in changes {
            match change {
                FileChange::Punched { file, offset, len } => {
                    if let Some(&number) = ids.get(file) {
                        for page in offset / PAGE_SIZE..(offset + len).div_ceil(PAGE_SIZE) {
                            self.known.insert((number, page), None);
                        }
                    }
                }
                FileChange::Named { name, file } => {
                    if self.files.get(name).is_none_or(|other| other.id != *file) {
                        self.extra.push(name.clone());
                        if let Some(other) = self.files.get_mut(name) {
                            // Replaced: a small file, written again.
                            other.content = None;
                        }
                    }
                }
                FileChange::Removed { name } => {
                    if let Some(file) = self.files.remove(name) {
                        self.known.retain(|key, _| key.0 != file.number);
                    }
                }
                FileChange::Length { file, len } => {
                    if let Some(file) = self.files.values_mut().find(|other| other.id == *file) {
                        file.length = *len;
                    }
                }
                FileChange::Written { .. } | FileChange::Synced { .. } => {}
            }
        }
        self.map_made();
    }

    /// Maps the segments that a recovery made, or made as long as they have to be, to be read.
    fn map_made(&mut self) {
        let unmapped = |file: &StageFile| file.mapping.is_none();
        let shorter = self.files.iter().filter(|(_, file)| unmapped(file));
        let mut names: Vec<String> = shorter.map(|(name, _)| name.clone()).collect();
        names.extend(
            self.extra
                .iter()
                .filter(|name| !self.files.contains_key(*name))
                .cloned(),
        );
        for name in names.into_iter().filter(|name| is_mapped(name)) {
            let path = self.directory.path().join(&name);
            // It may be gone already.
            let Ok(file) = File::options().read(true).write(true).open(path) else {
                continue;
            };
            let length = file.metadata().map_or(0, |status| status.len());
            let mapped = Mapping::new(&file, 0, length as usize, MapOptions::READ_WRITE);
            // There is nothing to map in an empty one.
            let Ok(mapping) = mapped else {
                continue;
            };
            self.last -= 1;
            let number = self.files.get(&name).map_or(self.last, |file| file.number);
            let made = StageFile {
                number,
                id: file_id(&file),
                mapping: Some(mapping),
                length,
                content: None,
            };
            self.files.insert(name, made);
        }
    }

    /// The map of a file.
    pub fn mapping(&self, name: &str) -> Option<&Mapping> {
        self.files.get(name)?.mapping.as_ref()
    }

    /// The names of the files in a folder.
    pub fn names_in(&self, folder: &str) -> Vec<String> {
        let names = self.files.keys().filter_map(|name| {
            let (of, name) = name.split_once('/')?;
            (of == folder).then(|| name.to_owned())
        });
        names.collect()
    }

    /// The pages of a file that were ever put there or stored to, in order.
    pub fn pages_of(&self, name: &str) -> Vec<u64> {
        let Some(file) = self.files.get(name) else {
            return Vec::new();
        };
        let mut pages: Vec<u64> = self
            .known
            .keys()
            .filter(|key| key.0 == file.number)
            .map(|key| key.1)
            .collect();
        pages.sort_unstable();
        pages
    }
}
