//! Many names of a directory looked up at once: bucket by bucket, and so that what is not in the cache is waited for
//! together.
//!
//! A look-up waits for the tags of its page, and then for the unit that they lead to. Names in the order of buckets
//! share the tags; and the tags of some buckets, then the units of all their names, are asked for before any of them is
//! looked at.
//!
//! # Invariant
//! * What is found is what [`lookup`](crate::directory::lookup) finds. Asking ahead decides nothing.

use crate::cast;
use crate::directory::{
    CHAIN_MAX, Dentry, Found, TAGS_OFFSET, Torn, UNITS, bucket_of, entry_at, next_page, tag,
    unit_word, word,
};
use crate::geometry::PagePtr;
use crate::index::{self, IndexRoot};
use crate::{PageWords, Pages, Words};
use core::num::NonZeroU64;

/// Buckets whose first pages are asked for together.
const TOGETHER: usize = 16;
/// Names of a bucket from which on all of its first page is asked for: its lines follow each other, which a processor
/// fetches faster than what it is led to.
const WHOLE: usize = 4;

/// A name that is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'n> {
    pub hash: u64,
    pub name: &'n [u8],
}

/// The place of a dentry in a directory's pages: page and unit in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(NonZeroU64);

/// Bits of a unit.
const UNIT_BITS: u32 = 7;
const _: () = assert!(UNITS <= 1 << UNIT_BITS);

impl Place {
    /// `None` where nothing can stand.
    pub fn new(page: PagePtr, unit: usize) -> Option<Place> {
        let page = NonZeroU64::new(page.0.checked_mul(1 << UNIT_BITS)?)?;
        (unit < UNITS).then(|| Place(page | unit as u64))
    }

    pub fn page(self) -> PagePtr {
        PagePtr(self.0.get() >> UNIT_BITS)
    }

    pub fn unit(self) -> usize {
        cast::index(self.0.get() & ((1 << UNIT_BITS) - 1))
    }
}

impl Found {
    /// Where it stands.
    pub fn place(&self) -> Option<Place> {
        Place::new(self.page, self.unit)
    }
}

/// Units of a page that have a hash's tag, a bit each.
fn candidates(page: &PageWords, hash: u64) -> u128 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let wanted = u64::from(tag(hash)).wrapping_mul(EACH);
    let mut found = 0;
    for group in 0..UNITS / 8 {
        let tags = word(page, TAGS_OFFSET / 8 + group) ^ wanted;
        // The high bit of each byte that is zero, then those bits together.
        let zero = !((tags & (0x7f * EACH)).wrapping_add(0x7f * EACH) | tags) & (0x80 * EACH);
        let together = (zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        found |= u128::from(together) << (group * 8);
    }
    found
}

/// Whether so many names of a page are reason enough to fetch all of it.
pub fn are_many(names: usize) -> bool {
    names >= WHOLE
}

/// Has fetched what is looked at first where names of a page come or go: the way to the next page, the tags, and the
/// units that are known. Does not wait for it.
pub fn ask_for_names(pages: &impl Pages, page: &PageWords, units: impl Iterator<Item = usize>) {
    let tags = TAGS_OFFSET / 8;
    let first = [0, tags, tags + 8].into_iter();
    first.for_each(|index| pages.prefetch(page, index));
    let known = units.filter(|&unit| unit < UNITS);
    known.for_each(|unit| pages.prefetch(page, unit_word(unit)));
}

/// Those of the candidates that are the name.
fn find_among(page: &PageWords, mut candidates: u128, sought: &Sought<'_>) -> Option<usize> {
    while candidates != 0 {
        let unit = candidates.trailing_zeros() as usize;
        if entry_at(page, unit, sought.hash, sought.name).is_some() {
            return Some(unit);
        }
        candidates &= candidates - 1;
    }
    None
}

/// Looks up names that stand in the order of buckets: `each` is told of every one, with its place among them.
pub fn lookup_in_order(
    pages: &impl Pages,
    root: IndexRoot,
    buckets: u64,
    sought: &[Sought<'_>],
    mut each: impl FnMut(usize, Option<Found>),
) -> Result<(), Torn> {
    let bucket = |sought: &Sought<'_>| bucket_of(sought.hash, buckets);
    let mut runs = sought
        .chunk_by(|one, next| bucket(one) == bucket(next))
        .peekable();
    let mut at = 0;
    let mut asked: Vec<(PagePtr, &[Sought<'_>])> = Vec::with_capacity(TOGETHER);
    let mut masks: Vec<u128> = Vec::new();
    while runs.peek().is_some() {
        asked.clear();
        masks.clear();
        for run in runs.by_ref().take(TOGETHER) {
            let first = run.first().map_or(0, bucket);
            let pointer = index::lookup(pages, root, first).ok_or(Torn)?;
            if let Some(page) = pages.page(pointer).filter(|_| !pointer.is_null()) {
                match run.len() {
                    WHOLE.. => (0..page.len())
                        .step_by(8)
                        .for_each(|at| pages.prefetch(page, at)),
                    _ => (0..2).for_each(|line| pages.prefetch(page, TAGS_OFFSET / 8 + line * 8)),
                }
            }
            asked.push((pointer, run));
        }
        for &(pointer, run) in &asked {
            let page = pages.page(pointer).filter(|_| !pointer.is_null());
            masks.extend(run.iter().map(|sought| {
                let mask = page.map_or(0, |page| candidates(page, sought.hash));
                if let Some(page) = page.filter(|_| mask != 0) {
                    pages.prefetch(page, unit_word(mask.trailing_zeros() as usize));
                }
                mask
            }));
        }
        let mut masks = masks.iter();
        for &(first, run) in &asked {
            for sought in run {
                let mask = masks.next().copied().unwrap_or(0);
                let found = find_in_chain(pages, first, mask, sought)?;
                each(at, found);
                at += 1;
            }
        }
    }
    Ok(())
}

/// A name in a chain of pages; of the first one it is known where the tag stands.
fn find_in_chain(
    pages: &impl Pages,
    first: PagePtr,
    mask: u128,
    sought: &Sought<'_>,
) -> Result<Option<Found>, Torn> {
    let mut pointer = first;
    for depth in 0..CHAIN_MAX {
        if pointer.is_null() {
            return Ok(None);
        }
        let page = pages.page(pointer).ok_or(Torn)?;
        let mask = match depth {
            0 => mask,
            _ => candidates(page, sought.hash),
        };
        if let Some(unit) = find_among(page, mask, sought) {
            let dentry = entry_at(page, unit, sought.hash, sought.name).ok_or(Torn)?;
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

/// What a name leads to, if it stands at a unit of a page.
pub fn find_at(page: &(impl Words + ?Sized), unit: usize, sought: &Sought<'_>) -> Option<Dentry> {
    let has_tag = unit < UNITS && {
        let tags = word(page, TAGS_OFFSET / 8 + unit / 8).to_le_bytes();
        tags[unit % 8] == tag(sought.hash)
    };
    has_tag
        .then(|| entry_at(page, unit, sought.hash, sought.name))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{Dentry, HashPage, bucket_order, hash_name, lookup, units_for};
    use crate::{FileKind, zeroed_page};
    use core::sync::atomic::Ordering;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Pages in memory: page 1 is the index, the others hold names.
    struct World(Vec<Box<PageWords>>);

    impl Pages for World {
        fn page(&self, pointer: PagePtr) -> Option<&PageWords> {
            Some(
                self.0
                    .get(usize::try_from(pointer.0).ok()?.checked_sub(1)?)?,
            )
        }
    }

    /// A directory of so many buckets that holds the names; a bucket that is full goes on in another page.
    fn directory(names: &BTreeSet<Vec<u8>>, buckets: u64) -> World {
        let mut world = World(vec![zeroed_page()]);
        let mut last: Vec<Option<usize>> = vec![None; usize::try_from(buckets).unwrap()];
        for (number, name) in (2..).zip(names) {
            let hash = hash_name(7, name);
            let bucket = bucket_of(hash, buckets);
            let dentry = Dentry {
                inode: number,
                generation: 1,
                kind: FileKind::File,
            };
            let place = &mut last[usize::try_from(bucket).unwrap()];
            let put = |world: &World, page: usize| {
                HashPage(&world.0[page]).add(hash, name, dentry).is_some()
            };
            if place.is_some_and(|page| put(&world, page)) {
                continue;
            }
            let new = world.0.len();
            world.0.push(zeroed_page());
            HashPage(&world.0[new]).format(5, bucket);
            let pointer = PagePtr(new as u64 + 1);
            match *place {
                Some(before) => HashPage(&world.0[before]).set_next(pointer),
                None => {
                    world.0[0][usize::try_from(bucket).unwrap()].store(pointer.0, Ordering::Relaxed)
                }
            }
            *place = Some(new);
            assert!(put(&world, new), "{} units", units_for(name.len()));
        }
        world
    }

    fn names() -> impl Strategy<Value = BTreeSet<Vec<u8>>> {
        let name = prop::collection::vec(1u8..=255, 1..40usize);
        prop::collection::btree_set(name, 0..200)
    }

    proptest! {
        #[test]
        fn it_finds_what_single_look_ups_find(there in names(), others in names(), buckets in 1u64..20) {
            let world = directory(&there, buckets);
            let root = IndexRoot::new(1, 1);
            let all = there.iter().chain(&others);
            let mut sought: Vec<Sought<'_>> = all
                .map(|name| Sought { hash: hash_name(7, name), name })
                .collect();
            sought.sort_by_key(|sought| bucket_order(sought.hash));
            let mut told = 0;
            lookup_in_order(&world, root, buckets, &sought, |at, found| {
                assert_eq!(at, told, "each is told in its turn");
                told += 1;
                let Sought { hash, name } = sought[at];
                assert_eq!(found, lookup(&world, root, buckets, hash, name).unwrap());
                assert_eq!(found.is_some(), there.contains(name));
                let Some(found) = found else { return };
                let place = found.place().unwrap();
                assert_eq!((place.page(), place.unit()), (found.page, found.unit));
                // It is known again at its place, and nowhere else.
                let page = &world.0[usize::try_from(found.page.0).unwrap() - 1];
                for unit in 0..UNITS + 3 {
                    let dentry = find_at(page, unit, &sought[at]);
                    assert_eq!(dentry, (unit == found.unit).then_some(found.dentry));
                }
                // A name that has gone is not known any more.
                let tags = &page[TAGS_OFFSET / 8 + found.unit / 8];
                let before = tags.fetch_and(!(0xff << (found.unit % 8 * 8)), Ordering::Relaxed);
                assert_eq!(find_at(page, found.unit, &sought[at]), None);
                tags.store(before, Ordering::Relaxed);
            }).unwrap();
            prop_assert_eq!(told, sought.len());
        }
    }
}
