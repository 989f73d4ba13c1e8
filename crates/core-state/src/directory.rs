//! Verified directories: linear hashing over hash pages, searched in place.
//!
//! A directory's index (same shape as a file's) leads from bucket number to hash page; a
//! bucket that is full continues in overflow pages. With `n` buckets a name of hash `h` lives in
//! bucket `h mod 2^(L+1)` if that is below `n`, else `h mod 2^L`, where `2^L <= n < 2^(L+1)`
//! (Litwin's linear hashing). One page holds 120 units of 32 bytes behind a header of 256; a
//! dentry takes one unit for names up to 16 bytes and one more for every 32 bytes beyond. One
//! tag byte per unit (a fingerprint of the hash, 0 = free, 1 = continuation) lets a search touch
//! two cache lines before it touches a candidate.
//!
//! # Invariant
//! Within one directory every name appears once, in the bucket that its hash says.

use crate::cast;
use crate::geometry::{InodeNumber, NAME_MAX, PagePtr};
use crate::index::{self, IndexRoot};
use crate::inode::FileKind;
use crate::{EditWords, PageWords, Pages, Words};
use core::sync::atomic::Ordering;

/// Units in a hash page.
pub const UNITS: usize = 120;
/// Bytes in a unit.
pub const UNIT_SIZE: usize = 32;
/// Byte offset of the tags.
pub const TAGS_OFFSET: usize = 128;
/// Byte offset of unit 0.
pub const UNITS_OFFSET: usize = 256;
/// Name bytes in a dentry's first unit.
pub const FIRST_NAME: usize = 16;
/// Tag of a free unit.
pub const TAG_FREE: u8 = 0;
/// Tag of a unit that continues a name.
pub const TAG_CONTINUED: u8 = 1;
/// "BUCKET\0\0".
pub const HASH_PAGE_MAGIC: u64 = u64::from_le_bytes(*b"BUCKET\0\0");
/// Word offsets in the header of a hash page.
pub const WORD_MAGIC: usize = 0;
/// Next overflow page, 0 = none.
pub const WORD_NEXT: usize = 1;
/// Directory's inode number (low half), bucket number (high half).
pub const WORD_IDENTITY: usize = 2;
/// Most overflow pages that a search follows; the controller splits long before.
pub const CHAIN_MAX: usize = 64;
const _: () = assert!(UNITS_OFFSET + UNITS * UNIT_SIZE == 4096);
const _: () = assert!(TAGS_OFFSET + UNITS <= UNITS_OFFSET);

/// A name's hash; `seed` is the pool's.
pub fn hash_name(seed: u64, name: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(name, seed)
}

/// Tag byte of a hash: 2..=255.
pub fn tag(hash: u64) -> u8 {
    let byte = (hash >> 56) as u8;
    if byte < 2 { byte + 2 } else { byte }
}

/// Bucket of a hash among `buckets` (at least 1).
pub fn bucket_of(hash: u64, buckets: u64) -> u64 {
    let buckets = buckets.max(1);
    let level = 63 - buckets.leading_zeros();
    let wide = hash & ((2u64 << level) - 1);
    if wide < buckets {
        wide
    } else {
        hash & ((1u64 << level) - 1)
    }
}

/// In ascending order of this, hashes stand bucket by bucket, however many buckets there are: those of a bucket have
/// low bits in common, and when it is split one more.
pub fn bucket_order(hash: u64) -> u64 {
    hash.reverse_bits()
}

/// Units that a dentry with a name of `length` bytes takes.
pub fn units_for(length: usize) -> usize {
    1 + length.saturating_sub(FIRST_NAME).div_ceil(UNIT_SIZE)
}

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dentry {
    pub inode: InodeNumber,
    pub generation: u32,
    pub kind: FileKind,
}

/// A found dentry and where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub dentry: Dentry,
    pub page: PagePtr,
    pub unit: usize,
}

/// A name copied out of a page.
#[derive(Clone, Copy)]
pub struct Name {
    length: u8,
    bytes: [u8; NAME_MAX + 1],
}

impl Name {
    pub fn new(name: &[u8]) -> Option<Name> {
        let mut bytes = [0; NAME_MAX + 1];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(Name {
            length: u8::try_from(name.len()).ok()?,
            bytes,
        })
    }
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

pub(crate) fn word(page: &(impl Words + ?Sized), index: usize) -> u64 {
    page.word(index)
}

/// The tag bytes of a page.
pub fn tags(page: &(impl Words + ?Sized)) -> [u8; UNITS] {
    let mut tags = [0; UNITS];
    for (chunk, index) in tags.chunks_exact_mut(8).zip(TAGS_OFFSET / 8..) {
        chunk.copy_from_slice(&word(page, index).to_le_bytes());
    }
    tags
}

/// The first word of a unit, below [`UNITS`].
pub fn unit_word(unit: usize) -> usize {
    (UNITS_OFFSET + unit * UNIT_SIZE) / 8
}

/// The dentry and name that start at `unit`; `None` if what stands there is no dentry.
pub fn read_entry(page: &PageWords, unit: usize) -> Option<(Dentry, u32, Name)> {
    if unit >= UNITS {
        return None;
    }
    let at = unit_word(unit);
    let (w0, w1) = (word(page, at), word(page, at + 1));
    let dentry = Dentry {
        inode: cast::low(w0),
        generation: cast::high(w0),
        kind: FileKind::from_u8(cast::byte(w1, 5))?,
    };
    let length = cast::byte(w1, 4);
    if length == 0 || unit + units_for(usize::from(length)) > UNITS {
        return None;
    }
    let mut name = Name {
        length,
        bytes: [0; NAME_MAX + 1],
    };
    let words = usize::from(length).div_ceil(8);
    for i in 0..words {
        name.bytes[i * 8..i * 8 + 8].copy_from_slice(&word(page, at + 2 + i).to_le_bytes());
    }
    Some((dentry, cast::low(w1), name))
}

fn name_matches(page: &(impl Words + ?Sized), unit: usize, name: &[u8]) -> bool {
    let at = unit_word(unit) + 2;
    let mut words = (at..).zip(name.chunks(8));
    words.all(|(index, chunk)| index < 512 && word(page, index) == word_of(chunk))
}

/// The word that holds up to 8 bytes of a name, zeroes behind them. (Copying so few is a call for each.)
fn word_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(whole) => u64::from_le_bytes(*whole),
        None => {
            let rest = bytes.iter().rev();
            rest.fold(0, |word, &byte| word << 8 | u64::from(byte))
        }
    }
}

/// Searches one hash page.
pub fn find_in_page(
    page: &(impl Words + ?Sized),
    hash: u64,
    name: &[u8],
) -> Option<(Dentry, usize)> {
    let wanted = u64::from(tag(hash)).wrapping_mul(0x0101_0101_0101_0101);
    for group in 0..UNITS / 8 {
        let tags = word(page, TAGS_OFFSET / 8 + group) ^ wanted;
        // Bytes that are zero now are candidates (exact for the lowest, checked for the rest).
        let mut hits = tags.wrapping_sub(0x0101_0101_0101_0101) & !tags & 0x8080_8080_8080_8080;
        while hits != 0 {
            let unit = group * 8 + (hits.trailing_zeros() / 8) as usize;
            hits &= hits - 1;
            if let Some(dentry) = entry_at(page, unit, hash, name) {
                return Some((dentry, unit));
            }
        }
    }
    None
}

/// What a name leads to, if it is the one at a unit where its tag stands.
pub(crate) fn entry_at(
    page: &(impl Words + ?Sized),
    unit: usize,
    hash: u64,
    name: &[u8],
) -> Option<Dentry> {
    let w1 = word(page, unit_word(unit) + 1);
    let is_it = cast::low(w1) == cast::low(hash)
        && usize::from(cast::byte(w1, 4)) == name.len()
        && unit + units_for(name.len()) <= UNITS
        && name_matches(page, unit, name);
    let w0 = word(page, unit_word(unit));
    let kind = FileKind::from_u8(cast::byte(w1, 5)).filter(|_| is_it)?;
    Some(Dentry {
        inode: cast::low(w0),
        generation: cast::high(w0),
        kind,
    })
}

/// Looks a name up in place. `Ok(None)`: not there. `Err(Torn)`: a pointer led outside the
/// pool; under the sequence check that means a change in between, for the controller damage.
pub fn lookup(
    pages: &impl Pages,
    root: IndexRoot,
    buckets: u64,
    hash: u64,
    name: &[u8],
) -> Result<Option<Found>, Torn> {
    let mut pointer = index::lookup(pages, root, bucket_of(hash, buckets)).ok_or(Torn)?;
    for _ in 0..CHAIN_MAX {
        if pointer.is_null() {
            return Ok(None);
        }
        let page = pages.page(pointer).ok_or(Torn)?;
        if let Some((dentry, unit)) = find_in_page(page, hash, name) {
            return Ok(Some(Found {
                dentry,
                page: pointer,
                unit,
            }));
        }
        pointer = next_page(page);
    }
    Err(Torn)
}

/// A pointer led outside the pool or in a circle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("directory pages changed or are damaged")]
pub struct Torn;

/// Calls `each` for every dentry of a bucket, overflow pages included.
pub fn for_each_in_bucket(
    pages: &impl Pages,
    root: IndexRoot,
    bucket: u64,
    mut each: impl FnMut(Dentry, u32, &Name, PagePtr, usize),
) -> Result<(), Torn> {
    let mut pointer = index::lookup(pages, root, bucket).ok_or(Torn)?;
    for _ in 0..CHAIN_MAX {
        if pointer.is_null() {
            return Ok(());
        }
        let page = pages.page(pointer).ok_or(Torn)?;
        for (unit, tag) in tags(page).into_iter().enumerate() {
            if tag > TAG_CONTINUED {
                let (dentry, hash, name) = read_entry(page, unit).ok_or(Torn)?;
                each(dentry, hash, &name, pointer, unit);
            }
        }
        pointer = next_page(page);
    }
    Err(Torn)
}

/// The overflow page that continues a hash page; null = none.
pub fn next_page(page: &(impl Words + ?Sized)) -> PagePtr {
    PagePtr(word(page, WORD_NEXT))
}

/// Units of a hash page that are not free.
pub fn units_used(page: &(impl Words + ?Sized)) -> usize {
    tags(page).iter().filter(|&&tag| tag != TAG_FREE).count()
}

/// Where a dentry that takes `need` units finds room in a hash page: the first run of free units
/// that is long enough.
pub fn room_in_page(page: &(impl Words + ?Sized), need: usize) -> Option<usize> {
    room_from(page, 0, need)
}

/// The same, from a unit on.
fn room_from(page: &(impl Words + ?Sized), from: usize, need: usize) -> Option<usize> {
    let mut free = 0;
    for group in from / 8..UNITS / 8 {
        let mut tags = word(page, TAGS_OFFSET / 8 + group);
        if group == from / 8 {
            // What lies before counts as used.
            tags |= (1u64 << (from % 8 * 8)) - 1;
        }
        // No byte of it is zero (exact where it is used: it says "none" or "perhaps").
        if tags.wrapping_sub(0x0101_0101_0101_0101) & !tags & 0x8080_8080_8080_8080 == 0 {
            free = 0;
            continue;
        }
        for (at, tag) in tags.to_le_bytes().into_iter().enumerate() {
            free = if tag == TAG_FREE { free + 1 } else { 0 };
            if free == need {
                return Some(group * 8 + at + 1 - need);
            }
        }
    }
    None
}

/// A dentry on its way to another page, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct MovedDentry {
    tag: u8,
    units: u8,
    words: [u64; MOVED_WORDS],
}

/// Words of the longest dentry.
const MOVED_WORDS: usize = (1 + (NAME_MAX - FIRST_NAME).div_ceil(UNIT_SIZE)) * UNIT_SIZE / 8;

impl MovedDentry {
    /// All dentries of a page, put behind others. `None` if one reaches beyond its end.
    pub fn take_all(page: &PageWords, moved: &mut Vec<MovedDentry>) -> Option<()> {
        for (unit, tag) in tags(page).into_iter().enumerate() {
            if tag <= TAG_CONTINUED {
                continue;
            }
            let at = unit_word(unit);
            let units = units_for(usize::from(cast::byte(word(page, at + 1), 4)));
            let mut words = [0; MOVED_WORDS];
            let live = page.get(at..at + units * UNIT_SIZE / 8)?;
            for (word, live) in words.iter_mut().zip(live) {
                *word = live.load(Ordering::Relaxed);
            }
            moved.push(MovedDentry {
                tag,
                units: u8::try_from(units).ok()?,
                words,
            });
        }
        Some(())
    }

    /// The low half of the name's hash.
    pub fn hash(&self) -> u32 {
        cast::low(self.words[1])
    }

    /// Units that it takes.
    pub fn units(&self) -> usize {
        usize::from(self.units)
    }
}

/// A hash page that the controller makes or changes: in private memory, by words as those of live pages, so that one
/// look-up serves both.
#[derive(Clone, Copy)]
pub struct HashPage<W>(pub W);

impl<W: EditWords> HashPage<W> {
    /// Makes a page that is all zeroes a hash page without names.
    pub fn format(&self, directory: InodeNumber, bucket: u64) {
        self.put(WORD_MAGIC, HASH_PAGE_MAGIC);
        self.put(WORD_IDENTITY, u64::from(directory) | bucket << 32);
    }
    fn put(&self, index: usize, value: u64) {
        self.0.set_word(index, value);
    }
    pub fn set_next(&self, next: PagePtr) {
        self.put(WORD_NEXT, next.0);
    }
    pub fn is_empty(&self) -> bool {
        tags(&self.0).iter().all(|&tag| tag == TAG_FREE)
    }
    fn set_tag(&self, unit: usize, tag: u8) {
        let (index, shift) = (TAGS_OFFSET / 8 + unit / 8, unit % 8 * 8);
        let others = word(&self.0, index) & !(0xff << shift);
        self.put(index, others | u64::from(tag) << shift);
    }

    /// Sets the tags of a dentry.
    fn set_tags(&self, first: usize, units: usize, tag: u8) {
        self.set_tag(first, tag);
        for unit in first + 1..first + units {
            self.set_tag(unit, TAG_CONTINUED);
        }
    }

    /// Adds a dentry where there is room; gives the unit. `None` if there is none, or it is no name.
    pub fn add(&self, hash: u64, name: &[u8], dentry: Dentry) -> Option<usize> {
        self.add_from(0, hash, name, dentry)
    }

    /// The same, in the first room from a unit on.
    pub fn add_from(&self, from: usize, hash: u64, name: &[u8], dentry: Dentry) -> Option<usize> {
        let first = room_from(&self.0, from, units_for(name.len()))?;
        self.add_at(first, hash, name, dentry)?;
        Some(first)
    }

    /// Adds a dentry at a unit from which there is room; gives the units that it takes. `None` if it is no name,
    /// or reaches beyond the page.
    pub fn add_at(&self, first: usize, hash: u64, name: &[u8], dentry: Dentry) -> Option<usize> {
        let need = units_for(name.len());
        if name.is_empty() || name.len() > NAME_MAX || first + need > UNITS {
            return None;
        }
        self.set_tags(first, need, tag(hash));
        let at = unit_word(first);
        self.put(
            at,
            u64::from(dentry.inode) | u64::from(dentry.generation) << 32,
        );
        self.put(
            at + 1,
            u64::from(cast::low(hash))
                | (name.len() as u64) << 32
                | u64::from(dentry.kind as u8) << 40,
        );
        let mut chunks = name.chunks(8);
        for index in at + 2..at + need * UNIT_SIZE / 8 {
            self.put(index, word_of(chunks.next().unwrap_or_default()));
        }
        Some(need)
    }

    /// Puts a dentry that stood elsewhere at a unit from which there is room; gives the units that it takes.
    pub fn put_moved(&self, first: usize, moved: &MovedDentry) -> usize {
        let units = moved.units();
        self.set_tags(first, units, moved.tag);
        let at = unit_word(first);
        for (index, &word) in moved.words.iter().take(units * UNIT_SIZE / 8).enumerate() {
            self.put(at + index, word);
        }
        units
    }

    /// Removes the dentry at `unit`; gives the units that it took. `None` if there is none.
    pub fn remove(&self, unit: usize) -> Option<usize> {
        if unit >= UNITS {
            return None;
        }
        let tags = word(&self.0, TAGS_OFFSET / 8 + unit / 8);
        if cast::byte(tags, cast::count(unit % 8)) <= TAG_CONTINUED {
            return None;
        }
        let length = cast::byte(word(&self.0, unit_word(unit) + 1), 4);
        let end = (unit + units_for(usize::from(length))).min(UNITS);
        for unit in unit..end {
            self.set_tag(unit, TAG_FREE);
        }
        Some(end - unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn a_page_is_a_map(operations in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(1u8..=255, 1..=255usize)), 1..60)) {
            let words = crate::zeroed_page();
            let page = HashPage(&words);
            page.format(5, 0);
            let mut model: HashMap<Vec<u8>, Dentry> = HashMap::new();
            for (number, (add, name)) in operations.into_iter().enumerate() {
                let hash = hash_name(1, &name);
                if add && !model.contains_key(&name) {
                    let dentry = Dentry { inode: number as u32 + 2, generation: 3, kind: FileKind::File };
                    if page.add(hash, &name, dentry).is_some() {
                        model.insert(name, dentry);
                    }
                } else if let Some((_, unit)) = find_in_page(&words, hash, &name) {
                    prop_assert!(model.remove(&name).is_some());
                    prop_assert!(page.remove(unit).is_some());
                }
                for (name, dentry) in &model {
                    let found = find_in_page(&words, hash_name(1, name), name);
                    prop_assert_eq!(found.map(|f| f.0), Some(*dentry));
                }
                let listed = tags(&words).iter().filter(|&&t| t > TAG_CONTINUED).count();
                prop_assert_eq!(listed, model.len());
            }
            for name in model.keys() {
                let (_, unit) = find_in_page(&words, hash_name(1, name), name).unwrap();
                page.remove(unit);
            }
            prop_assert!(page.is_empty());
        }

        #[test]
        fn hashes_in_order_stand_bucket_by_bucket(
            mut hashes in prop::collection::vec(any::<u64>(), 0..300), buckets in 1u64..200) {
            hashes.sort_by_key(|&hash| bucket_order(hash));
            let mut seen = std::collections::HashSet::new();
            let mut last = None;
            for bucket in hashes.into_iter().map(|hash| bucket_of(hash, buckets)) {
                prop_assert!(last == Some(bucket) || seen.insert(bucket));
                last = Some(bucket);
            }
        }

        #[test]
        fn a_split_moves_only_its_own_bucket(hash: u64, buckets in 1u64..100_000) {
            let before = bucket_of(hash, buckets);
            let after = bucket_of(hash, buckets + 1);
            prop_assert!(before < buckets && after <= buckets);
            if after != before {
                prop_assert_eq!(after, buckets);
                let level = 63 - buckets.leading_zeros();
                prop_assert_eq!(before, buckets - (1u64 << level));
            }
        }
    }
}
