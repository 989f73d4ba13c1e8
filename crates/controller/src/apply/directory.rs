//! Names in verified directories: linear hashing, as the format says.
//!
//! A name that finds no room in its bucket's first page goes to an overflow page, and each time
//! that happens one bucket, the next in turn, is split (Litwin's rule without a load factor:
//! splits are as frequent as overflows, which keeps pages about two thirds full and chains
//! short whatever the lengths of the names). Where the pool is nearly full a split is left out: it
//! takes pages for the new halves while the old ones are not free yet; the next overflow is
//! another occasion.
//!
//! # Invariants
//! * A name is in the bucket that its hash says under the directory's present size.
//! * Split buckets go to new pages; the index entry is what switches. An overflow page that
//!   becomes empty is unlinked and freed; a directory without names has no pages at all.

use crate::apply::file::Setter;
use crate::change::Change;
use crate::state::buckets;
use arck_core_state::directory::{
    BucketPage, CHAIN_MAX, Dentry, Name, bucket_of, find_in_page, for_each_in_bucket, hash_name,
};
use arck_core_state::{IndexRoot, Inode, PAGE_SIZE, PagePtr, Pages, index};
use rustix::io::Errno;

/// Pages of a chain that the controller fills; a hostile choice of names ends here (ENOSPC).
const CHAIN_FULL: usize = CHAIN_MAX / 2;

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

fn bucket_page(change: &Change<'_>, page: PagePtr) -> Result<BucketPage, Errno> {
    Ok(BucketPage::from_live(change.page(page).ok_or(Errno::IO)?))
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
    let mut at = index::lookup(change, inode.root, bucket).ok_or(Errno::IO)?;
    let mut last: Option<(PagePtr, BucketPage)> = None;
    for depth in 0..CHAIN_FULL {
        if at.is_null() {
            let page = change.new_page()?;
            let mut fresh = BucketPage::new(inode.number, bucket);
            fresh.add(hash, name, dentry).ok_or(Errno::INVAL)?;
            change.set_bucket(page, &fresh)?;
            match last {
                Some((before, mut content)) => {
                    content.set_next(page);
                    change.set_bucket(before, &content)?;
                }
                None => {
                    let mut setter = Setter::new(inode.root);
                    setter.set(change, bucket, page)?;
                    inode.root = setter.root();
                }
            }
            return Ok(depth > 0);
        }
        let mut content = bucket_page(change, at)?;
        if content.add(hash, name, dentry).is_some() {
            change.set_bucket(at, &content)?;
            return Ok(depth > 0);
        }
        let next = content.next();
        last = Some((at, content));
        at = next;
    }
    Err(Errno::NOSPC)
}

/// Splits the bucket whose turn it is, if there is room for that.
fn split(change: &mut Change<'_>, inode: &mut Inode) -> Result<(), Errno> {
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
        at = bucket_page(change, at)?.next();
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
            change.free_page(page);
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
    let mut pages: Vec<BucketPage> = Vec::new();
    for (name, hash, dentry) in entries {
        let mut placed = false;
        for page in &mut pages {
            placed = page.add(*hash, name.as_bytes(), *dentry).is_some();
            if placed {
                break;
            }
        }
        if !placed {
            let mut page = BucketPage::new(inode.number, bucket);
            page.add(*hash, name.as_bytes(), *dentry).ok_or(Errno::IO)?;
            pages.push(page);
        }
    }
    let mut next = PagePtr::NULL;
    for content in pages.iter_mut().rev() {
        content.set_next(next);
        let page = change.new_page()?;
        change.set_bucket(page, content)?;
        next = page;
    }
    Ok(next)
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
        let page = change.page(at).ok_or(Errno::IO)?;
        let Some((_, unit)) = find_in_page(page, hash, name) else {
            let next = bucket_page(change, at)?.next();
            before = Some(at);
            at = next;
            continue;
        };
        inode.entries = inode.entries.saturating_sub(1);
        if inode.entries == 0 {
            free_all(change, inode)?;
            inode.root = IndexRoot::EMPTY;
            inode.size = PAGE_SIZE;
            return Ok(());
        }
        let mut content = bucket_page(change, at)?;
        content.remove(unit).ok_or(Errno::IO)?;
        match before {
            Some(before) if content.is_empty() => {
                let mut former = bucket_page(change, before)?;
                former.set_next(content.next());
                change.set_bucket(before, &former)?;
                change.free_page(at);
            }
            _ => change.set_bucket(at, &content)?,
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
            let next = bucket_page(change, at)?.next();
            change.free_page(at);
            at = next;
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
