//! Many names of one directory at once, as a fold brings them: bucket by bucket, each page once.
//!
//! A directory that grows gets all of its new buckets at once: as many as bring what stands in a bucket to two thirds
//! of a page on average, which is where splitting one by one comes to ([`super::directory`]). So a fold of thousands
//! of names reads each bucket once, and writes each once. A name or two are not worth it.
//!
//! # Invariants
//! * As for single names: a name is in the bucket that its hash says under the directory's new size; split buckets go
//!   to new pages; empty overflow pages are freed.
//! * Growth takes no more metadata pages than splits may; where there are too few, names come one by one.
//! * Names are given in the order of buckets, so those of a bucket follow each other, whatever the size.

use crate::state::apply::directory::{self, CHAIN_FULL, edit, free_all};
use crate::state::apply::file::Setter;
use crate::state::change::Change;
use crate::state::tables::buckets;
use crate::state::working::Edited;
use arck_core_state::directory::{
    CHAIN_MAX, HashPage, MovedDentry, UNITS, bucket_of, bucket_order, find_in_page, next_page,
    units_for, units_used,
};
use arck_core_state::in_order::{self, Place, Sought};
use arck_core_state::{IndexRoot, Inode, PAGE_SIZE, PagePtr, Pages, Words, index};
use arck_verifier::ChangedName;
use rustix::io::Errno;

/// Fewer names come and go one by one.
const MANY: usize = 8;
/// Units of a bucket on average, of a directory that grows.
const UNITS_WANTED: u64 = UNITS as u64 * 2 / 3;
/// Buckets of which what is looked at first is asked for together.
const TOGETHER: usize = 16;
/// Buckets that are looked at for how full a directory is.
const SAMPLES: u64 = 8;

/// Names that are in the same one of so many buckets.
fn by_bucket<'n, 'a>(
    names: &'n [ChangedName<'a>],
    buckets: u64,
) -> impl Iterator<Item = (u64, &'n [ChangedName<'a>])> {
    let bucket = move |name: &ChangedName<'_>| bucket_of(name.hash, buckets);
    let runs = names.chunk_by(move |one, next| bucket(one) == bucket(next));
    runs.filter_map(move |run| Some((bucket(run.first()?), run)))
}

/// The pages of a bucket. EIO if the directory is damaged.
fn chain(change: &Change<'_>, root: IndexRoot, bucket: u64) -> Result<Vec<PagePtr>, Errno> {
    let mut pages = Vec::new();
    let mut at = index::lookup(change, root, bucket).ok_or(Errno::IO)?;
    while !at.is_null() {
        if pages.len() == CHAIN_MAX {
            return Err(Errno::IO);
        }
        pages.push(at);
        at = next_page(&change.seen(at).ok_or(Errno::IO)?);
    }
    Ok(pages)
}

/// Removes names that are there. The caller stores the inode. ENOENT.
pub fn remove_all(
    change: &mut Change<'_>,
    inode: &mut Inode,
    names: &[ChangedName<'_>],
) -> Result<(), Errno> {
    if names.len() < MANY {
        let mut names = names.iter();
        return names.try_for_each(|name| directory::remove(change, inode, &name.name));
    }
    if names.len() == inode.entries as usize {
        // Each is there, and once, as was verified.
        free_all(change, inode)?;
        inode.entries = 0;
        inode.root = IndexRoot::EMPTY;
        inode.size = PAGE_SIZE;
        return Ok(());
    }
    for_each_bucket(change, inode, names, remove_run)
}

/// A page of names, of which so many are to be changed: where these are many, its lines are copied one behind another,
/// which a processor fetches faster than what it is led to.
fn edit_for<'c>(
    change: &'c mut Change<'_>,
    page: PagePtr,
    names: usize,
) -> Result<HashPage<Edited<'c>>, Errno> {
    match in_order::are_many(names) {
        true => change.edit_much(page).map(HashPage),
        false => edit(change, page),
    }
}

/// Calls `each` with the names of each bucket. What it will look at first is asked for beforehand, of some buckets
/// together: where a directory is large, nothing of it is in the cache.
fn for_each_bucket<'n, 'a>(
    change: &mut Change<'_>,
    inode: &mut Inode,
    names: &'n [ChangedName<'a>],
    mut each: impl FnMut(&mut Change<'_>, &mut Inode, u64, &'n [ChangedName<'a>]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut runs = by_bucket(names, buckets(inode));
    let mut together = Vec::with_capacity(TOGETHER);
    loop {
        together.extend(runs.by_ref().take(TOGETHER));
        if together.is_empty() {
            return Ok(());
        }
        for &(bucket, run) in &together {
            let first = index::lookup(change, inode.root, bucket).ok_or(Errno::IO)?;
            if let Some(page) = change.state.pool.page(first).filter(|_| !first.is_null()) {
                let known = run.iter().filter_map(|name| name.place);
                let known = known.filter(|place| place.page() == first);
                in_order::ask_for_names(change, page, known.map(Place::unit));
            }
        }
        for (bucket, run) in together.drain(..) {
            each(change, inode, bucket, run)?;
        }
    }
}

/// Where a name stands in a page: where the verifier found it, if it is there still, and else wherever it is.
fn unit_in(page: &impl Words, at: PagePtr, name: &ChangedName<'_>) -> Option<usize> {
    let sought = Sought {
        hash: name.hash,
        name: &name.name,
    };
    let known = name.place.filter(|place| place.page() == at);
    known
        .map(Place::unit)
        .filter(|&unit| in_order::find_at(page, unit, &sought).is_some())
        .or_else(|| Some(find_in_page(page, name.hash, &name.name)?.1))
}

/// Removes names of one bucket, of which the directory has more.
fn remove_run(
    change: &mut Change<'_>,
    inode: &mut Inode,
    bucket: u64,
    names: &[ChangedName<'_>],
) -> Result<(), Errno> {
    let mut left: Vec<&ChangedName<'_>> = names.iter().collect();
    let mut before: Option<PagePtr> = None;
    for at in chain(change, inode.root, bucket)? {
        if left.is_empty() {
            break;
        }
        let is_known = |name: &&ChangedName<'_>| name.place.is_some_and(|place| place.page() == at);
        if !left.iter().any(is_known) {
            let page = change.seen(at).ok_or(Errno::IO)?;
            if left.iter().all(|name| unit_in(&page, at, name).is_none()) {
                before = Some(at);
                continue;
            }
        }
        let content = edit_for(change, at, left.len())?;
        let mut removed = Ok(());
        left.retain(|name| match unit_in(&content.0, at, name) {
            Some(unit) => {
                removed = removed.and(content.remove(unit).map(drop).ok_or(Errno::IO));
                false
            }
            None => true,
        });
        removed?;
        match before {
            Some(before) if content.is_empty() => {
                let behind = next_page(&content.0);
                edit(change, before)?.set_next(behind);
                change.free_names(at);
            }
            _ => before = Some(at),
        }
    }
    let gone = names.len() - left.len();
    inode.entries = u32::try_from(gone)
        .ok()
        .and_then(|gone| inode.entries.checked_sub(gone))
        .ok_or(Errno::IO)?;
    match left.is_empty() {
        true => Ok(()),
        false => Err(Errno::NOENT),
    }
}

/// Adds names that are not there. The caller stores the inode.
pub fn add_all(
    change: &mut Change<'_>,
    inode: &mut Inode,
    names: &[ChangedName<'_>],
) -> Result<(), Errno> {
    if names.len() >= MANY {
        change.allocate_for(inode);
        let wanted = buckets_wanted(change, inode, names)?;
        if wanted <= buckets(inode) {
            return insert_all(change, inode, names);
        }
        if let Some(most) = pages_for_growth(change, inode, wanted)? {
            let mut is_grown = false;
            change.within_splits(most, |change| {
                is_grown = true;
                grow(change, inode, wanted, names)
            })?;
            if is_grown {
                return Ok(());
            }
        }
    }
    let mut names = names.iter();
    names.try_for_each(|name| directory::add(change, inode, &name.name, name.dentry))
}

/// How many buckets a directory should have when these names have come.
fn buckets_wanted(
    change: &Change<'_>,
    inode: &Inode,
    names: &[ChangedName<'_>],
) -> Result<u64, Errno> {
    let count = buckets(inode);
    let samples = SAMPLES.min(count);
    let mut sampled = 0;
    for sample in 0..samples {
        for page in chain(change, inode.root, count * sample / samples)? {
            sampled += units_used(&change.seen(page).ok_or(Errno::IO)?) as u64;
        }
    }
    let come: u64 = names
        .iter()
        .map(|name| units_for(name.name.len()) as u64)
        .sum();
    let units = (sampled * count).div_ceil(samples) + come;
    Ok(units.div_ceil(UNITS_WANTED))
}

/// The buckets that a bucket is split into when there are `wanted` and not `count`: it, and others that follow each
/// other by the same step.
fn heirs(bucket: u64, count: u64, wanted: u64) -> impl Iterator<Item = u64> {
    let level = 63 - count.leading_zeros();
    // Those that have been split in this round, and their new halves, are told apart by one bit more.
    let is_split = bucket >= 1 << level || bucket + (1 << level) < count;
    let step = (1u64 << level) << u32::from(is_split);
    (bucket..wanted).step_by(usize::try_from(step).unwrap_or(usize::MAX))
}

/// Metadata pages that growing takes at most; `None`: a directory cannot have so many buckets.
fn pages_for_growth(change: &Change<'_>, inode: &Inode, wanted: u64) -> Result<Option<u64>, Errno> {
    let count = buckets(inode);
    if wanted > u64::from(u32::MAX) {
        return Ok(None);
    }
    let mut pages = 0;
    for bucket in 0..count {
        if heirs(bucket, count, wanted).nth(1).is_some() {
            // Pages are at least half full, but for the last of a chain.
            pages += 2 * chain(change, inode.root, bucket)?.len() as u64;
        }
    }
    // The first page of each new bucket, and of each that is split; then the way to them. Those that names which
    // come need behind the first are kept for them.
    let way = wanted / index::FANOUT + 2 * u64::from(index::HEIGHT_MAX);
    Ok(Some(pages + wanted.min(2 * (wanted - count)) + way))
}

/// Gives a directory its new buckets, with what stands in those that are split and the names that come.
fn grow(
    change: &mut Change<'_>,
    inode: &mut Inode,
    wanted: u64,
    names: &[ChangedName<'_>],
) -> Result<(), Errno> {
    let count = buckets(inode);
    let mut runs: Vec<(u64, &[ChangedName<'_>])> = by_bucket(names, count).collect();
    runs.sort_unstable_by_key(|&(bucket, _)| bucket);
    let mut runs = runs.into_iter().peekable();
    let mut setter = Setter::new(inode.root);
    for bucket in 0..count {
        let run = runs
            .next_if(|&(of, _)| of == bucket)
            .map_or(&[][..], |run| run.1);
        if heirs(bucket, count, wanted).nth(1).is_some() {
            // As it stood: what was set since leads to other buckets.
            let pages = chain(change, inode.root, bucket)?;
            split(change, inode, bucket, &pages, wanted, run, &mut setter)?;
        } else if !run.is_empty() {
            inode.root = setter.root();
            insert_run(change, inode, bucket, run)?;
            setter = Setter::new(inode.root);
        }
        inode.root = setter.root();
    }
    inode.size = wanted * PAGE_SIZE;
    count_added(inode, names)
}

fn count_added(inode: &mut Inode, names: &[ChangedName<'_>]) -> Result<(), Errno> {
    let added = u32::try_from(names.len()).map_err(|_| Errno::NOSPC)?;
    inode.entries = inode.entries.checked_add(added).ok_or(Errno::NOSPC)?;
    Ok(())
}

/// Writes what stands in the pages of a bucket, and the names that come to it, to the buckets that it is split into.
fn split(
    change: &mut Change<'_>,
    inode: &Inode,
    bucket: u64,
    pages: &[PagePtr],
    wanted: u64,
    names: &[ChangedName<'_>],
    setter: &mut Setter,
) -> Result<(), Errno> {
    let mut moved: Vec<MovedDentry> = Vec::new();
    for &page in pages {
        let page = change.page(page).ok_or(Errno::IO)?;
        MovedDentry::take_all(page, &mut moved).ok_or(Errno::IO)?;
    }
    // Stored are the low bits of a hash, which is all that a bucket is told by.
    let order = |moved: &MovedDentry| bucket_order(u64::from(moved.hash()));
    moved.sort_unstable_by_key(order);
    for &page in pages {
        change.free_names(page);
    }
    let mut heirs: Vec<u64> = heirs(bucket, buckets(inode), wanted).collect();
    heirs.sort_unstable_by_key(|&heir| bucket_order(heir));
    let (mut moved, mut names) = (&moved[..], names);
    for heir in heirs {
        let of_moved = moved
            .iter()
            .take_while(|moved| bucket_of(u64::from(moved.hash()), wanted) == heir);
        let (old, others) = moved.split_at(of_moved.count());
        moved = others;
        let of_names = names
            .iter()
            .take_while(|name| bucket_of(name.hash, wanted) == heir);
        let (new, others) = names.split_at(of_names.count());
        names = others;
        let first = write_chain(change, inode, heir, old, new)?;
        setter.set(change, heir, first)?;
    }
    debug_assert!(moved.is_empty() && names.is_empty(), "all have a bucket");
    Ok(())
}

/// Writes a bucket into new pages; gives the first, null if it is empty.
fn write_chain(
    change: &mut Change<'_>,
    inode: &Inode,
    bucket: u64,
    old: &[MovedDentry],
    new: &[ChangedName<'_>],
) -> Result<PagePtr, Errno> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    let mut pages: Vec<PagePtr> = Vec::new();
    while old.peek().is_some() || new.peek().is_some() {
        if pages.len() == CHAIN_FULL {
            return Err(Errno::NOSPC);
        }
        let at = change.new_page()?;
        let page = edit(change, at)?;
        page.format(inode.number, bucket);
        let mut unit = 0;
        while let Some(units) = old.next_if(|old| unit + old.units() <= UNITS) {
            unit += page.put_moved(unit, units);
        }
        if old.peek().is_none() {
            while let Some(name) = new.next_if(|new| unit + units_for(new.name.len()) <= UNITS) {
                let put = page.add_at(unit, name.hash, &name.name, name.dentry);
                unit += put.ok_or(Errno::INVAL)?;
            }
        }
        if let Some(&before) = pages.last() {
            edit(change, before)?.set_next(at);
        }
        pages.push(at);
    }
    Ok(pages.first().copied().unwrap_or(PagePtr::NULL))
}

/// Adds names to buckets as they are.
fn insert_all(
    change: &mut Change<'_>,
    inode: &mut Inode,
    names: &[ChangedName<'_>],
) -> Result<(), Errno> {
    for_each_bucket(change, inode, names, insert_run)?;
    count_added(inode, names)
}

/// Adds names to one bucket, where there is room in its pages, and behind them.
fn insert_run(
    change: &mut Change<'_>,
    inode: &mut Inode,
    bucket: u64,
    names: &[ChangedName<'_>],
) -> Result<(), Errno> {
    let pages = chain(change, inode.root, bucket)?;
    let mut left: Vec<&ChangedName<'_>> = names.iter().collect();
    for &at in &pages {
        if left.is_empty() {
            return Ok(());
        }
        if units_used(&change.seen(at).ok_or(Errno::IO)?) < UNITS {
            fill(edit_for(change, at, left.len())?, &mut left);
        }
    }
    let (mut last, mut length) = (pages.last().copied(), pages.len());
    while !left.is_empty() {
        if length >= CHAIN_FULL {
            return Err(Errno::NOSPC);
        }
        length += 1;
        let at = change.new_page()?;
        let page = edit(change, at)?;
        page.format(inode.number, bucket);
        fill(page, &mut left);
        match last {
            Some(last) => edit(change, last)?.set_next(at),
            None => {
                let mut setter = Setter::new(inode.root);
                setter.set(change, bucket, at)?;
                inode.root = setter.root();
            }
        }
        last = Some(at);
    }
    Ok(())
}

/// Puts into a page what there is room for, and leaves the others.
fn fill(page: HashPage<Edited<'_>>, left: &mut Vec<&ChangedName<'_>>) {
    // Where the search goes on: what lies before has been filled, or is too small for some.
    let mut from = 0;
    left.retain(|name| {
        let put = page.add_from(from, name.hash, &name.name, name.dentry);
        if let Some(unit) = put {
            from = unit + units_for(name.name.len());
        }
        put.is_none()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::change::Weight;
    use crate::testing::{TestCore, file, new_inode};
    use arck_core_state::directory::{Dentry, for_each_in_bucket, hash_name};
    use arck_core_state::header::HeaderKind;
    use arck_core_state::{FileKind, InodeNumber, ROOT_INODE};
    use std::collections::BTreeMap;

    const DENTRY: Dentry = Dentry {
        inode: 77,
        generation: 1,
        kind: FileKind::File,
    };

    fn directory() -> (TestCore, InodeNumber) {
        let mut test = TestCore::of_size(64 << 20);
        let made = Inode {
            mode: FileKind::Directory.mode_bits() | 0o755,
            parent: ROOT_INODE,
            ..file(0, 2, IndexRoot::EMPTY, PAGE_SIZE, 0)
        };
        let mut change = Change::new(&mut test.core.sessions.state);
        let (number, _) = new_inode(&mut change, HeaderKind::Alive, made);
        change.commit(Weight::Fold).unwrap();
        (test, number)
    }

    fn changed(seed: u64, names: &[Vec<u8>]) -> Vec<ChangedName<'_>> {
        let changed = names.iter().map(|name| ChangedName {
            name: name.into(),
            hash: hash_name(seed, name),
            dentry: DENTRY,
            place: None,
        });
        let mut changed: Vec<_> = changed.collect();
        changed.sort_by_key(|name| bucket_order(name.hash));
        changed
    }

    /// Says of some names where they stand, of others where another one does.
    fn with_places(test: &TestCore, number: InodeNumber, names: &mut [ChangedName<'_>]) {
        let state = &test.core.sessions.state;
        let sought = names.iter().map(|name| (name.hash, name.name.to_vec()));
        let sought: Vec<_> = sought.collect();
        let sought: Vec<_> = sought
            .iter()
            .map(|(hash, name)| Sought { hash: *hash, name })
            .collect();
        let mut last = None;
        arck_verifier::VerifiedState::lookup_all(state, number, &sought, &mut |at, found| {
            let (_, place) = found.expect("it is there");
            assert!(place.is_some());
            names[at].place = [place, last, None][at % 3];
            last = place;
        });
    }

    /// All names of the directory, each in its bucket, and its pages.
    fn listed(test: &TestCore, number: InodeNumber) -> (BTreeMap<Vec<u8>, Dentry>, usize) {
        let state = &test.core.sessions.state;
        let inode = *state.shadow(number).unwrap();
        let seed = state.pool.superblock().hash_seed;
        let (mut all, mut pages) = (BTreeMap::new(), std::collections::BTreeSet::new());
        for bucket in 0..buckets(&inode) {
            for_each_in_bucket(state, inode.root, bucket, |dentry, low, name, page, _| {
                let hash = hash_name(seed, name.as_bytes());
                assert_eq!(u64::from(low), hash & 0xffff_ffff);
                assert_eq!(bucket_of(hash, buckets(&inode)), bucket);
                assert_eq!(all.insert(name.as_bytes().to_vec(), dentry), None);
                assert!(state.space.is_used(page));
                pages.insert(page);
            })
            .unwrap();
        }
        assert_eq!(inode.entries as usize, all.len());
        (all, pages.len())
    }

    /// Names that come and go by tens and by thousands, in between one by one, are all there, and all others not;
    /// and in the end all pages are free.
    #[test]
    fn what_comes_and_goes_at_once_is_what_is_there() {
        let (mut test, number) = directory();
        let seed = test.core.sessions.state.pool.superblock().hash_seed;
        let headroom = test.core.sessions.state.space.metadata_headroom();
        let mut word = 0x0123_4567_89ab_cdef_u64;
        let mut random = move |bound: u64| {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            (word >> 20) % bound
        };
        let mut model: BTreeMap<Vec<u8>, Dentry> = BTreeMap::new();
        let mut made = 0;
        for step in 0..60 {
            let most = [6, 30, 400, 5000][random(4) as usize];
            let count = random(most) as usize;
            let goes = step % 3 == 2;
            let names: Vec<Vec<u8>> = match goes {
                true => {
                    let from = random(model.len().max(1) as u64) as usize;
                    model.keys().skip(from).take(count).cloned().collect()
                }
                false => (0..count)
                    .map(|_| {
                        made += 1;
                        let mut name = format!("{made}-").into_bytes();
                        let long = [4, 30, 250][random(3) as usize];
                        name.resize(name.len().max(random(long) as usize + 1), b'x');
                        name
                    })
                    .collect(),
            };
            let mut names_changed = changed(seed, &names);
            if goes {
                with_places(&test, number, &mut names_changed);
            }
            let mut change = Change::new(&mut test.core.sessions.state);
            let mut inode = change.inode(number).unwrap();
            match goes {
                true => remove_all(&mut change, &mut inode, &names_changed).unwrap(),
                false => add_all(&mut change, &mut inode, &names_changed).unwrap(),
            }
            change.set_inode(inode);
            change.commit(Weight::Fold).unwrap();
            for name in names {
                match goes {
                    true => model.remove(&name),
                    false => model.insert(name, DENTRY),
                };
            }
            assert_eq!(listed(&test, number).0, model, "step {step}");
        }
        assert!(made > 10_000, "{made} names: too few to show anything");
        let names: Vec<Vec<u8>> = model.into_keys().collect();
        let mut change = Change::new(&mut test.core.sessions.state);
        let mut inode = change.inode(number).unwrap();
        remove_all(&mut change, &mut inode, &changed(seed, &names)).unwrap();
        change.set_inode(inode);
        change.commit(Weight::Fold).unwrap();
        assert_eq!(
            test.core.sessions.state.shadow(number).unwrap().root,
            IndexRoot::EMPTY
        );
        assert_eq!(test.core.sessions.state.space.metadata_headroom(), headroom);
    }

    /// Pages of a directory that got `names`, `at_once` at a time. Each call makes a pool, whose hash seed is its own.
    fn pages_when_added(names: &[Vec<u8>], at_once: usize) -> usize {
        let (mut test, number) = directory();
        let seed = test.core.sessions.state.pool.superblock().hash_seed;
        for some in names.chunks(2_000.max(at_once)) {
            let mut change = Change::new(&mut test.core.sessions.state);
            let mut inode = change.inode(number).unwrap();
            for part in some.chunks(at_once) {
                add_all(&mut change, &mut inode, &changed(seed, part)).unwrap();
            }
            change.set_inode(inode);
            change.commit(Weight::Fold).unwrap();
        }
        let (all, pages) = listed(&test, number);
        assert_eq!(all.len(), names.len());
        pages
    }

    /// Growing at once gives about as many pages as growing by one bucket at a time. One directory of this size may
    /// have a tenth more or less by its seed, so each figure is the sum of eight.
    #[test]
    fn a_directory_is_as_large_whether_it_grew_at_once_or_not() {
        let names: Vec<Vec<u8>> = (0..12_000)
            .map(|at| format!("name-{at:012}").into())
            .collect();
        let pages = [1, 7, 100, 12_000].map(|at_once| {
            (0..8)
                .map(|_| pages_when_added(&names, at_once))
                .sum::<usize>() as f64
        });
        for at_once in &pages[1..] {
            assert!((0.75..1.25).contains(&(at_once / pages[0])), "{pages:?}");
        }
    }

    /// Where splits may take no pages, names come all the same.
    #[test]
    fn names_come_without_growth_where_there_is_no_room_for_it() {
        let (mut test, number) = directory();
        let seed = test.core.sessions.state.pool.superblock().hash_seed;
        let names: Vec<Vec<u8>> = (0..700).map(|at| format!("name-{at:03}").into()).collect();
        let mut change = Change::new(&mut test.core.sessions.state);
        change.limit_splits(2);
        let mut inode = change.inode(number).unwrap();
        add_all(&mut change, &mut inode, &changed(seed, &names)).unwrap();
        assert_eq!(buckets(&inode), 1);
        change.set_inode(inode);
        change.commit(Weight::Fold).unwrap();
        assert_eq!(listed(&test, number).0.len(), names.len());
    }
}
