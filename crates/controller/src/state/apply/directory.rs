//! Names in verified directories: linear hashing, as the format says.
//!
//! A name that finds no room in its bucket's first page goes to an overflow page, and each time
//! that happens one bucket, the next in turn, is split (Litwin's rule without a load factor:
//! splits are as frequent as overflows, which keeps pages about two thirds full and chains
//! short whatever the lengths of the names). Where the pool is nearly full a split is left out: it
//! takes pages for the new halves while the old ones are not free yet; the next overflow is
//! another occasion. Where many names come at once there are many buckets at once: [`super::many`].
//!
//! # Invariants
//! * A name is in the bucket that its hash says under the directory's present size.
//! * Split buckets go to new pages; the index entry is what switches. An overflow page that
//!   becomes empty is unlinked and freed; a directory without names has no pages at all.
//! * A page of names that is free shows none: the directory may be closed later to those who can map it.

use crate::state::apply::file::Setter;
use crate::state::change::Change;
use crate::state::tables::buckets;
use crate::state::working::Edited;
use arck_core_state::directory::{
    CHAIN_MAX, Dentry, HashPage, Name, bucket_of, find_in_page, for_each_in_bucket, hash_name,
    next_page, room_in_page, units_for,
};
use arck_core_state::{IndexRoot, Inode, PAGE_SIZE, PagePtr, Pages, index};
use rustix::io::Errno;

/// Pages of a chain that the controller fills; a hostile choice of names ends here (ENOSPC).
pub(super) const CHAIN_FULL: usize = CHAIN_MAX / 2;

/// Looks a name up as the change leaves it. EIO if the directory is damaged.
pub fn find(change: &Change<'_>, inode: &Inode, name: &[u8]) -> Result<Option<Dentry>, Errno> {
    let hash = hash_of(change, name);
    arck_core_state::directory::lookup(change, inode.root, buckets(inode), hash, name)
        .map(|found| found.map(|found| found.dentry))
        .map_err(|_| Errno::IO)
}

fn hash_of(change: &Change<'_>, name: &[u8]) -> u64 {
    hash_name(change.state.pool.superblock().hash_seed, name)
}

/// The overflow page behind a hash page; null = none.
fn next(change: &Change<'_>, page: PagePtr) -> Result<PagePtr, Errno> {
    let page = change.seen(page).ok_or(Errno::IO)?;
    Ok(next_page(&page))
}

/// A page of names to be changed.
pub fn edit<'c>(change: &'c mut Change<'_>, page: PagePtr) -> Result<HashPage<Edited<'c>>, Errno> {
    change.edit(page).map(HashPage)
}

/// Adds a name that is not there. The caller stores the inode.
pub fn add(
    change: &mut Change<'_>,
    inode: &mut Inode,
    name: &[u8],
    dentry: Dentry,
) -> Result<(), Errno> {
    change.allocate_for(inode);
    let hash = hash_of(change, name);
    let bucket = bucket_of(hash, buckets(inode));
    let overflowed = insert(change, inode, bucket, hash, name, dentry)?;
    inode.entries = inode.entries.checked_add(1).ok_or(Errno::NOSPC)?;
    if overflowed {
        split(change, inode)?;
    }
    Ok(())
}

/// Puts a name into a bucket; true if it went to an overflow page.
fn insert(
    change: &mut Change<'_>,
    inode: &mut Inode,
    bucket: u64,
    hash: u64,
    name: &[u8],
    dentry: Dentry,
) -> Result<bool, Errno> {
    let need = units_for(name.len());
    let mut at = index::lookup(change, inode.root, bucket).ok_or(Errno::IO)?;
    let mut last = PagePtr::NULL;
    for depth in 0..CHAIN_FULL {
        if at.is_null() {
            at = change.new_page()?;
            edit(change, at)?.format(inode.number, bucket);
            if last.is_null() {
                let mut setter = Setter::new(inode.root);
                setter.set(change, bucket, at)?;
                inode.root = setter.root();
            } else {
                edit(change, last)?.set_next(at);
            }
        }
        let page = change.seen(at).ok_or(Errno::IO)?;
        if room_in_page(&page, need).is_some() {
            let added = edit(change, at)?.add(hash, name, dentry);
            added.ok_or(Errno::INVAL)?;
            return Ok(depth > 0);
        }
        last = at;
        at = next_page(&page);
    }
    Err(Errno::NOSPC)
}

/// Splits the bucket whose turn it is, if there is room for that.
pub fn split(change: &mut Change<'_>, inode: &mut Inode) -> Result<(), Errno> {
    let count = buckets(inode);
    let victim = count - (1u64 << (63 - count.leading_zeros()));
    let mut entries: Vec<(Name, u64, Dentry)> = Vec::new();
    let seed = change.state.pool.superblock().hash_seed;
    for_each_in_bucket(change, inode.root, victim, |dentry, _, name, _, _| {
        entries.push((*name, hash_name(seed, name.as_bytes()), dentry));
    })
    .map_err(|_| Errno::IO)?;
    let mut chain = Vec::new();
    let mut at = index::lookup(change, inode.root, victim).ok_or(Errno::IO)?;
    while !at.is_null() && chain.len() < CHAIN_MAX {
        chain.push(at);
        at = next(change, at)?;
    }
    let mut halves = [Vec::new(), Vec::new()];
    for entry in entries {
        let half = usize::from(bucket_of(entry.1, count + 1) == count);
        halves[half].push(entry);
    }
    // Pages are at least half full, but for the last of a chain; then the way to a new bucket.
    let most = 2 * chain.len() as u64 + 2 + 2 * u64::from(index::HEIGHT_MAX);
    change.within_splits(most, |change| {
        // First, so that those which this change has made are used again at once.
        for page in chain {
            change.free_names(page);
        }
        inode.size = (count + 1) * PAGE_SIZE;
        let mut setter = Setter::new(inode.root);
        for (bucket, half) in [victim, count].into_iter().zip(halves) {
            let first = write_chain(change, inode, bucket, &half)?;
            setter.set(change, bucket, first)?;
        }
        inode.root = setter.root();
        Ok(())
    })
}

/// Writes names into new pages; gives the first, null if there are no names.
fn write_chain(
    change: &mut Change<'_>,
    inode: &Inode,
    bucket: u64,
    entries: &[(Name, u64, Dentry)],
) -> Result<PagePtr, Errno> {
    let mut pages: Vec<PagePtr> = Vec::new();
    for (name, hash, dentry) in entries {
        let name = name.as_bytes();
        let mut placed = false;
        for &page in &pages {
            placed = edit(change, page)?.add(*hash, name, *dentry).is_some();
            if placed {
                break;
            }
        }
        if !placed {
            let page = change.new_page()?;
            let hash_page = edit(change, page)?;
            hash_page.format(inode.number, bucket);
            hash_page.add(*hash, name, *dentry).ok_or(Errno::IO)?;
            if let Some(&before) = pages.last() {
                edit(change, before)?.set_next(page);
            }
            pages.push(page);
        }
    }
    Ok(pages.first().copied().unwrap_or(PagePtr::NULL))
}

/// Removes a name that is there. The caller stores the inode. ENOENT.
pub fn remove(change: &mut Change<'_>, inode: &mut Inode, name: &[u8]) -> Result<(), Errno> {
    let hash = hash_of(change, name);
    let bucket = bucket_of(hash, buckets(inode));
    let mut at = index::lookup(change, inode.root, bucket).ok_or(Errno::IO)?;
    let mut before: Option<PagePtr> = None;
    for _ in 0..CHAIN_MAX {
        if at.is_null() {
            return Err(Errno::NOENT);
        }
        let page = change.seen(at).ok_or(Errno::IO)?;
        let Some((_, unit)) = find_in_page(&page, hash, name) else {
            before = Some(at);
            at = next_page(&page);
            continue;
        };
        inode.entries = inode.entries.saturating_sub(1);
        if inode.entries == 0 {
            free_all(change, inode)?;
            inode.root = IndexRoot::EMPTY;
            inode.size = PAGE_SIZE;
            return Ok(());
        }
        let content = edit(change, at)?;
        content.remove(unit).ok_or(Errno::IO)?;
        if let Some(before) = before
            && content.is_empty()
        {
            let behind = next_page(&content.0);
            edit(change, before)?.set_next(behind);
            change.free_names(at);
        }
        return Ok(());
    }
    Err(Errno::IO)
}

/// Replaces what a name leads to. ENOENT.
pub fn replace(
    change: &mut Change<'_>,
    inode: &mut Inode,
    name: &[u8],
    dentry: Dentry,
) -> Result<(), Errno> {
    remove(change, inode, name)?;
    add(change, inode, name, dentry)
}

/// Frees all pages of a directory.
pub fn free_all(change: &mut Change<'_>, inode: &Inode) -> Result<(), Errno> {
    for bucket in 0..buckets(inode) {
        let mut at = index::lookup(change, inode.root, bucket).ok_or(Errno::IO)?;
        for _ in 0..CHAIN_MAX {
            if at.is_null() {
                break;
            }
            let behind = next(change, at)?;
            change.free_names(at);
            at = behind;
        }
    }
    free_index(change, PagePtr(inode.root.pointer()), inode.root.height())
}

fn free_index(change: &mut Change<'_>, page: PagePtr, level: u32) -> Result<(), Errno> {
    if level == 0 || page.is_null() {
        return Ok(());
    }
    if level > 1 {
        let below: Vec<u64> = change
            .page(page)
            .ok_or(Errno::IO)?
            .iter()
            .map(|word| word.load(std::sync::atomic::Ordering::Relaxed))
            .filter(|&word| word != 0)
            .collect();
        for page in below {
            free_index(change, PagePtr(page), level - 1)?;
        }
    }
    change.free_page(page);
    Ok(())
}
