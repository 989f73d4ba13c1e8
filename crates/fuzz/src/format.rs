//! Stored structures and live pages: decoding ends, within bounds, whatever stands there.
//!
//! The first byte says which decoder. For live pages the next eight are the root (of an inode
//! its address), and the rest fills pages from number 1 on.

use crate::seed::Seed;
use arck_core_state::branch::StoredBranch;
use arck_core_state::directory::{
    CHAIN_MAX, Dentry, HashPage, TAG_FREE, UNITS, for_each_in_bucket, hash_name, lookup,
    read_entry, tags,
};
use arck_core_state::extended;
use arck_core_state::header::LiveHeader;
use arck_core_state::index::{self, HOLE, IndexRoot};
use arck_core_state::primitive::Ordering;
use arck_core_state::record::{Record, RecordRef, UNITS_PER_PAGE, effect, records, seal};
use arck_core_state::superblock::{Durability, Superblock};
use arck_core_state::{FileKind, Geometry, Inode, NAME_MAX, PagePtr, PageWords, Pages};
use std::sync::atomic::AtomicU64;
use zerocopy::IntoBytes;

const SUPERBLOCK: u8 = 0;
const BRANCH: u8 = 1;
const RECORDS: u8 = 2;
const EXTENDED: u8 = 3;
const INDEX: u8 = 4;
const DIRECTORY: u8 = 5;
const INODE: u8 = 6;
const HEADER: u8 = 7;

/// Where the records of a page stand: arena page, directory, fold number.
const PLACE: (u32, u32, u64) = (16_390, 10, 77);

pub fn run(bytes: &[u8]) {
    let Some((decoder, bytes)) = bytes.split_first() else {
        return;
    };
    match *decoder {
        SUPERBLOCK => {
            if let Ok(found) = Superblock::decode(bytes) {
                assert_eq!(Superblock::decode(&found.encode()), Ok(found));
            }
        }
        BRANCH => {
            let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
            if let (Some(number), Some(generation), Some(ownership_epoch), Some(low), Some(high)) =
                (word(0), word(4), word(8), word(16), word(20))
            {
                let fold = u64::from(low) | u64::from(high) << 32;
                if let Some(found) =
                    StoredBranch::decode(bytes, number, generation, ownership_epoch, fold)
                {
                    let again = found.as_bytes();
                    let again =
                        StoredBranch::decode(again, number, generation, ownership_epoch, fold);
                    assert_eq!(again, Some(found));
                }
            }
        }
        RECORDS => run_records(&mut page(bytes)),
        EXTENDED => run_extended(extended::Page(page(bytes))),
        INDEX => {
            let (root, live) = Live::new(bytes);
            let root = IndexRoot(root);
            for at in [0, 1, 511, 512, 1 << 18, u64::MAX] {
                let _ = index::lookup(&live, root, at);
            }
            if let Some(Some(found)) = index::next(&live, root, 3, 2000) {
                assert!((3..2000).contains(&found));
            }
        }
        DIRECTORY => run_directory(bytes),
        INODE => {
            let (address, live) = Live::new(bytes);
            if let Some(inode) = Inode::read(&live, address) {
                assert_eq!(inode.kind(), FileKind::from_mode(inode.mode));
            }
        }
        HEADER => {
            let (word, live) = Live::new(bytes);
            let header = LiveHeader::new_free();
            header.sequence.store(word & !1, Ordering::Relaxed);
            if let Some(words) = live.page(PagePtr(1)) {
                let load = |at: usize| words[at].load(Ordering::Relaxed);
                header.ownership.store(load(0), Ordering::Relaxed);
                header.identity.store(load(1), Ordering::Relaxed);
                header.state.store(load(2), Ordering::Relaxed);
            }
            let copy = header.copy();
            assert_eq!(copy.kind, header.kind());
            assert_eq!(copy.generation, header.generation());
            assert!(
                header
                    .read_begin()
                    .is_none_or(|begin| header.read_end(begin))
            );
        }
        _ => {}
    }
}

/// The bytes at the start of a page.
fn page(bytes: &[u8]) -> [u8; 4096] {
    let mut page = [0; 4096];
    let length = bytes.len().min(page.len());
    page[..length].copy_from_slice(&bytes[..length]);
    page
}

/// Each unit is made a valid record first, if what stands there can be one.
fn run_records(page: &mut [u8; 4096]) {
    let (number, directory, fold) = PLACE;
    let mut at = 1;
    while at < UNITS_PER_PAGE {
        let seed = arck_core_state::record::Seed {
            directory,
            fold,
            unit: number * UNITS_PER_PAGE as u32 + at as u32,
        };
        let _ = seal(seed, &mut page[at * 64..]);
        match Record::decode(seed, &page[at * 64..]) {
            Some(record) => at += record.units(),
            None => break,
        }
    }
    let mut end = number * UNITS_PER_PAGE as u32 + 1;
    for (unit, record) in records(page, number, directory, fold) {
        assert_eq!(unit, end);
        assert!(record.name.len() <= NAME_MAX && record.source.len() <= NAME_MAX);
        end += record.units() as u32;
    }
    assert!(end <= (number + 1) * UNITS_PER_PAGE as u32);
}

fn run_extended(page: extended::Page) {
    let before: Vec<_> = page
        .entries()
        .map(|(n, v)| (n.to_vec(), v.to_vec()))
        .collect();
    for (name, value) in &before {
        assert!(name.starts_with(extended::PREFIX.as_bytes()) && name.len() <= extended::NAME_MAX);
        assert!(value.len() <= 4096);
    }
    assert_eq!(before.is_empty(), page.is_empty());
    if let Some(changed) = page.with(b"user.fuzz", Some(b"value")) {
        assert_eq!(changed.get(b"user.fuzz"), Some(&b"value"[..]));
        let removed = changed.with(b"user.fuzz", None);
        let rest = before.iter().filter(|(name, _)| name != b"user.fuzz");
        assert!(removed.is_some_and(|page| page.entries().count() == rest.count()));
    }
}

fn run_directory(bytes: &[u8]) {
    let (root, live) = Live::new(bytes);
    let root = IndexRoot(root);
    let hash = hash_name(1, b"name");
    for buckets in [0, 1, 3, 1 << 35] {
        let _ = lookup(&live, root, buckets, hash, b"name");
    }
    let mut count = 0;
    let _ = for_each_in_bucket(&live, root, 0, |_, _, name, _, unit| {
        count += 1;
        assert!((1..=NAME_MAX).contains(&name.as_bytes().len()) && unit < UNITS);
    });
    assert!(count <= UNITS * CHAIN_MAX);
    if let Some(words) = live.page(PagePtr(1)) {
        for unit in 0..UNITS + 2 {
            let _ = read_entry(words, unit);
        }
        let copy = arck_core_state::zeroed_page();
        for (word, live) in copy.iter().zip(words) {
            word.store(live.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let bucket = HashPage(&copy);
        let dentry = Dentry {
            inode: 5,
            generation: 1,
            kind: FileKind::File,
        };
        let before = tags(&copy);
        if let Some(unit) = bucket.add(hash, b"name", dentry) {
            assert_eq!(before[unit], TAG_FREE);
            assert!(bucket.remove(unit).is_some());
            assert_eq!(tags(&copy), before);
        }
        for unit in 0..UNITS {
            let _ = bucket.remove(unit);
        }
    }
}

/// Pages 1, 2, ... of a pool.
struct Live(Vec<Box<PageWords>>);

impl Live {
    /// The first eight bytes as a number, the rest as pages.
    fn new(bytes: &[u8]) -> (u64, Live) {
        let (first, rest) = bytes.split_at(bytes.len().min(8));
        let mut number = [0; 8];
        number[..first.len()].copy_from_slice(first);
        let pages = rest.chunks(4096).map(|bytes| {
            let page = page(bytes);
            let (words, _) = page.as_chunks::<8>();
            let words: Vec<_> = words
                .iter()
                .map(|w| AtomicU64::new(u64::from_le_bytes(*w)))
                .collect();
            words.try_into().expect("512 words")
        });
        (u64::from_le_bytes(number), Live(pages.collect()))
    }
}

impl Pages for Live {
    fn page(&self, pointer: PagePtr) -> Option<&PageWords> {
        let at = usize::try_from(pointer.0.checked_sub(1)?).ok()?;
        self.0.get(at).map(|page| &**page)
    }
}

pub fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |decoder: u8, name: &str, parts: &[&[u8]]| {
        let mut bytes = vec![decoder];
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        seeds.push((name.to_owned(), bytes));
    };
    if let Some(geometry) = Geometry::for_pool_size(64 << 20) {
        let superblock = Superblock {
            uuid: [7; 16],
            geometry,
            durability: Durability::Volatile,
            clean: true,
            created: 1,
            hash_seed: 42,
            boot: [9; 16],
            uid: 1000,
        };
        add(SUPERBLOCK, "superblock", &[&superblock.encode()]);
    }
    let branch = StoredBranch::unchanged(5, 1, 2, 3);
    add(BRANCH, "branch", &[branch.as_bytes()]);

    let (number, directory, fold) = PLACE;
    let mut page = [0; 4096];
    let mut at = 1;
    for (name, source) in [
        (&b"a"[..], &b""[..]),
        (&[b'x'; 255], &[b'y'; 255]),
        (b"", b"b"),
    ] {
        let record = Record {
            state: effect::ADD | effect::REMOVE_SOURCE,
            sequence: at as u32,
            kind: FileKind::File,
            inode: 5,
            generation: 1,
            source_directory: 0,
            mode: 0o644,
            uid: 1,
            gid: 1,
            created: 1,
            changed: None,
            kills: [RecordRef::default(); 2],
            name,
            source,
        };
        let seed = arck_core_state::record::Seed {
            directory,
            fold,
            unit: number * UNITS_PER_PAGE as u32 + at as u32,
        };
        let _ = record.encode(seed, &mut page[at * 64..]);
        at += record.units();
    }
    add(RECORDS, "records", &[&page[..at * 64]]);

    let attributes = extended::Page::default()
        .with(b"user.a", Some(b"one"))
        .and_then(|page| page.with(b"user.b", Some(&[7; 100])));
    if let Some(attributes) = attributes {
        add(EXTENDED, "extended", &[&attributes.0[..200]]);
    }

    let root = |pointer, height| IndexRoot::new(pointer, height).0.to_le_bytes();
    let mut interior = [0; 4096];
    interior[..8].copy_from_slice(&2u64.to_le_bytes());
    interior[16..24].copy_from_slice(&1u64.to_le_bytes());
    let mut leaves = [0; 4096];
    leaves[8..16].copy_from_slice(&9u64.to_le_bytes());
    leaves[16..24].copy_from_slice(&HOLE.to_le_bytes());
    add(INDEX, "index-0", &[&root(1, 0)]);
    add(INDEX, "index-2", &[&root(1, 2), &interior, &leaves[..64]]);

    let words = arck_core_state::zeroed_page();
    let bucket = HashPage(&words);
    bucket.format(5, 0);
    for name in [&b"name"[..], &[b'z'; 255]] {
        let dentry = Dentry {
            inode: 9,
            generation: 1,
            kind: FileKind::Directory,
        };
        let _ = bucket.add(hash_name(1, name), name, dentry);
    }
    bucket.set_next(PagePtr(2));
    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
        .collect();
    add(
        DIRECTORY,
        "directory",
        &[&root(1, 0), &bytes, &bytes[..600]],
    );
    add(INODE, "inode", &[&4096u64.to_le_bytes(), &[8; 128]]);
    add(HEADER, "header", &[&2u64.to_le_bytes(), &[1; 24]]);
    seeds
}
