//! The names of a directory: hash pages, units, hash places.
//!
//! # Invariant
//! A chain is followed for as many pages as the format allows, and into each page once.

use crate::finding::{Place, Rule, quoted};
use crate::inode::{Link, Look, Sink};
use arck_core_state::directory::{
    CHAIN_MAX, HASH_PAGE_MAGIC, Name, TAG_CONTINUED, TAG_FREE, TAGS_OFFSET, UNIT_SIZE, UNITS,
    UNITS_OFFSET, WORD_IDENTITY, WORD_MAGIC, bucket_of, hash_name, next_page, read_entry, tag,
    tags, units_for,
};
use arck_core_state::{FileKind, Inode, PAGE_SIZE, PagePtr, PageWords, Pages};
use std::sync::atomic::Ordering;

/// What the names of a bucket, and of the directory, add up to.
#[derive(Default)]
struct Sums {
    names: u64,
    subdirectories: u64,
    /// Hash and place of each name of the bucket at hand.
    bucket: Vec<(u64, PagePtr, usize)>,
}

impl<S: Sink> Look<'_, S> {
    /// Checks the names in the buckets (number and first page).
    pub fn names(&mut self, inode: &Inode, buckets: &[(u64, PagePtr)]) {
        let count = (inode.size / PAGE_SIZE).max(1);
        let mut sums = Sums::default();
        for &(bucket, page) in buckets {
            if self.sink.is_stopped() {
                return;
            }
            self.bucket(bucket, count, page, &mut sums);
        }
        if sums.names != u64::from(inode.entries) {
            let detail = format!("{} entries, and {} names", inode.entries, sums.names);
            self.of_entries(detail);
        }
        if sums.names == 0 && (!buckets.is_empty() || inode.root.pointer() != 0) {
            self.of_root("pages, and no name".into());
        }
        let links = 2 + sums.subdirectories;
        let is_orphan = inode.links == 0;
        if u64::from(inode.links) != links && !is_orphan {
            let detail = format!(
                "{} links, and {} directories in it",
                inode.links, sums.subdirectories
            );
            self.of_links(detail);
        }
    }

    fn bucket(&mut self, bucket: u64, count: u64, first: PagePtr, sums: &mut Sums) {
        sums.bucket.clear();
        let mut at = first;
        for depth in 0.. {
            let pool = self.pool;
            let Some(page) = pool.page(at) else {
                return;
            };
            self.hash_page(at, page, (bucket, count), sums);
            let next = next_page(page);
            if next.is_null() {
                break;
            }
            let place = self.place(at, 8);
            if depth + 1 >= CHAIN_MAX {
                let detail = format!("bucket {bucket} has more than {CHAIN_MAX} pages");
                self.report(Rule::Bucket, place, detail);
                break;
            }
            if !self.claim_overflow(next, &place) {
                break;
            }
            at = next;
        }
        self.twice(sums);
    }

    fn hash_page(
        &mut self,
        at: PagePtr,
        page: &PageWords,
        (bucket, count): (u64, u64),
        sums: &mut Sums,
    ) {
        let magic = page[WORD_MAGIC].load(Ordering::Relaxed);
        let identity = page[WORD_IDENTITY].load(Ordering::Relaxed);
        if magic != HASH_PAGE_MAGIC {
            let detail = format!("bucket {bucket} begins with {magic:#018x}");
            self.report(Rule::Bucket, self.place(at, 0), detail);
        }
        if identity != u64::from(self.number) | bucket << 32 {
            let detail = format!(
                "bucket {bucket} says that it is bucket {} of {}",
                identity >> 32,
                identity as u32
            );
            self.report(Rule::Bucket, self.place(at, 16), detail);
        }
        let tags = tags(page);
        let mut unit = 0;
        while unit < UNITS {
            let this = tags[unit];
            if this == TAG_FREE {
                unit += 1;
                continue;
            }
            let tag_place = self.place(at, (TAGS_OFFSET + unit) as u64);
            if this == TAG_CONTINUED {
                let detail = format!("unit {unit} continues nothing");
                self.report(Rule::Bucket, tag_place, detail);
                unit += 1;
                continue;
            }
            let rest = tags[unit + 1..].iter();
            let continued = rest.take_while(|&&tag| tag == TAG_CONTINUED).count();
            let unit_at = (UNITS_OFFSET + unit * UNIT_SIZE) as u64;
            match read_entry(page, unit) {
                None => {
                    let detail = format!("unit {unit} holds no name");
                    self.report(Rule::Bucket, self.place(at, unit_at), detail);
                }
                Some((dentry, low, name)) => {
                    let bytes = name.as_bytes();
                    let hash = hash_name(self.pool.superblock.hash_seed, bytes);
                    let need = units_for(bytes.len());
                    let place = self.place(at, unit_at);
                    if continued + 1 != need {
                        let detail = format!(
                            "name {} takes {need} units, and has {}",
                            quoted(bytes),
                            continued + 1
                        );
                        self.report(Rule::Bucket, tag_place.clone(), detail);
                    }
                    if this != tag(hash) || low != hash as u32 {
                        let detail = format!("name {} has another hash", quoted(bytes));
                        self.report(Rule::Name, place.clone(), detail);
                    }
                    self.well_formed(page, unit, &name, &place);
                    let wanted = bucket_of(hash, count);
                    if wanted != bucket {
                        let detail = format!(
                            "name {} is in bucket {bucket}, and belongs into {wanted} of {count}",
                            quoted(bytes)
                        );
                        self.report(Rule::Name, place, detail);
                    }
                    sums.names += 1;
                    sums.subdirectories += u64::from(dentry.kind == FileKind::Directory);
                    sums.bucket.push((hash, at, unit));
                    let link = Link {
                        directory: self.number,
                        target: dentry.inode,
                        generation: dentry.generation,
                        kind: dentry.kind,
                        page: at,
                        unit,
                    };
                    self.sink.name(link, bytes);
                }
            }
            unit += 1 + continued;
        }
    }

    fn well_formed(&mut self, page: &PageWords, unit: usize, name: &Name, place: &Place) {
        let bytes = name.as_bytes();
        if bytes.contains(&b'/') || bytes.contains(&0) || bytes == b"." || bytes == b".." {
            let detail = format!("{} is no name", quoted(bytes));
            self.report(Rule::Name, place.clone(), detail);
        }
        // A search compares whole words.
        let first = (UNITS_OFFSET + unit * UNIT_SIZE) / 8 + 2;
        let last = first + units_for(bytes.len()) * UNIT_SIZE / 8 - 2;
        let mut rest = (first..last).zip((0..).step_by(8)).filter(|&(_, from)| {
            let begins: usize = from;
            begins + 8 > bytes.len()
        });
        let is_zero = rest.all(|(index, from)| {
            let word = page.get(index).map_or(0, |w| w.load(Ordering::Relaxed));
            let own = bytes.len().saturating_sub(from) * 8;
            own >= 64 || word >> own == 0
        });
        if !is_zero {
            let detail = format!("name {} goes on behind its end", quoted(bytes));
            self.report(Rule::Name, place.clone(), detail);
        }
    }

    /// Looks for names that are twice in the bucket at hand.
    fn twice(&mut self, sums: &mut Sums) {
        sums.bucket.sort_unstable();
        let mut first = 0;
        for index in 1..=sums.bucket.len() {
            let hash = sums.bucket[first].0;
            if sums.bucket.get(index).map(|entry| entry.0) == Some(hash) {
                continue;
            }
            let same = first..index;
            first = index;
            if same.len() < 2 {
                continue;
            }
            // Of names with one hash, each is read again; there are hardly ever two.
            let mut names: Vec<(Vec<u8>, PagePtr, usize)> = Vec::new();
            for &(_, at, unit) in &sums.bucket[same] {
                let page = self.pool.page(at);
                let entry = page.and_then(|page| read_entry(page, unit));
                if let Some((_, _, name)) = entry {
                    names.push((name.as_bytes().to_vec(), at, unit));
                }
            }
            names.sort_unstable();
            for pair in names.windows(2) {
                if pair[0].0 == pair[1].0 {
                    let offset = (UNITS_OFFSET + pair[1].2 * UNIT_SIZE) as u64;
                    let place = self.place(pair[1].1, offset);
                    let detail = format!("name {} is there twice", quoted(&pair[1].0));
                    self.report(Rule::Name, place, detail);
                }
            }
        }
    }
}
