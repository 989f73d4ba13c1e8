//! Looks at the files of a pool that nobody serves, and checks that they are one whole: every
//! name leads somewhere, counts agree, and exactly the pages that are reachable are marked as in
//! use. Written against the format, not against the controller.

use arck_core_state::directory::{self, UNITS, bucket_of};
use arck_core_state::header::{HEADER_SIZE, HeaderKind};
use arck_core_state::index::{FANOUT, capacity};
use arck_core_state::superblock::Superblock;
use arck_core_state::{
    FileKind, Geometry, Inode, InodeNumber, PAGE_SIZE, PagePtr, PageWords, Pages, layout,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

struct Loaded {
    geometry: Geometry,
    pages: BTreeMap<u64, Box<PageWords>>,
}

impl Pages for Loaded {
    fn page(&self, pointer: PagePtr) -> Option<&PageWords> {
        self.pages.get(&pointer.0).map(|page| &**page)
    }
}

/// What a check found: every path below the root, with its inode.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Tree {
    pub paths: BTreeMap<String, InodeNumber>,
    pub sizes: BTreeMap<String, u64>,
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let (chunks, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty());
    chunks.iter().map(|c| u64::from_le_bytes(*c)).collect()
}

/// Panics with what is wrong.
pub fn check(pool: &Path) -> Tree {
    let read = |name: &str| std::fs::read(pool.join(name)).unwrap();
    let superblock = Superblock::decode(&read(layout::SUPERBLOCK)).unwrap();
    let geometry = superblock.geometry;
    let bitmap = words(&read(layout::PAGE_BITMAP));
    let table = read(layout::SEGMENT_TABLE);
    let mut loaded = Loaded {
        geometry,
        pages: BTreeMap::new(),
    };
    for segment in 0..geometry.segment_count {
        // Kind: 1 = metadata.
        if table[segment as usize * 32] != 1 {
            continue;
        }
        let bytes = read(&format!("{}/{segment:08x}", layout::SEGMENTS));
        for (i, page) in bytes.chunks_exact(PAGE_SIZE as usize).enumerate() {
            let number = geometry.first_page(segment).0 + i as u64;
            if bitmap[(number / 64) as usize] >> (number % 64) & 1 == 1 {
                let live: Box<PageWords> = Box::new(std::array::from_fn(|w| {
                    AtomicU64::new(u64::from_le_bytes(
                        page[w * 8..w * 8 + 8].try_into().unwrap(),
                    ))
                }));
                loaded.pages.insert(number, live);
            }
        }
    }
    let headers = words(&read(layout::HEADERS));
    let mut used = BTreeSet::from([0u64]);
    let mut inodes: BTreeMap<InodeNumber, (Inode, HeaderKind)> = BTreeMap::new();
    for (number, header) in headers.chunks_exact(HEADER_SIZE / 8).enumerate() {
        let kind = HeaderKind::from_u8(header[5] as u8).unwrap();
        assert_eq!(header[3] & 1, 0, "header {number} is marked");
        assert_eq!(header[0] & 1, 0, "header {number} is odd");
        if !matches!(kind, HeaderKind::Alive | HeaderKind::Orphan) {
            continue;
        }
        let inode = Inode::read(&loaded, header[1])
            .unwrap_or_else(|| panic!("inode {number} at {:#x}", header[1]));
        assert_eq!(inode.number, number as u32);
        assert_eq!(inode.generation, header[4] as u32);
        assert_eq!(inode.kind().map(|k| k as u8), Some((header[5] >> 8) as u8));
        used.insert(header[1] / PAGE_SIZE);
        inodes.insert(number as u32, (inode, kind));
    }
    let mut names: BTreeMap<InodeNumber, u32> = BTreeMap::new();
    let mut subdirectories: BTreeMap<InodeNumber, u32> = BTreeMap::new();
    let mut children: BTreeMap<InodeNumber, Vec<(String, InodeNumber)>> = BTreeMap::new();
    for (&number, (inode, kind)) in &inodes {
        if !inode.attributes.is_null() {
            assert!(used.insert(inode.attributes.0), "attributes of {number}");
        }
        if inode.kind() != Some(FileKind::Directory) {
            let pages = walk(&loaded, inode, &mut used, true);
            assert_eq!(pages, inode.pages, "pages of {number}");
            continue;
        }
        walk(&loaded, inode, &mut used, false);
        let buckets = inode.size / PAGE_SIZE;
        assert!(buckets >= 1, "size of directory {number}");
        let mut entries = 0;
        for bucket in 0..buckets {
            let mut units = 0;
            directory::for_each_in_bucket(
                &loaded,
                inode.root,
                bucket,
                |dentry, hash, name, page, _| {
                    let name_bytes = name.as_bytes();
                    let is_name = (1..=255).contains(&name_bytes.len())
                        && !name_bytes.contains(&b'/')
                        && !name_bytes.contains(&0)
                        && name_bytes != b"."
                        && name_bytes != b"..";
                    assert!(is_name, "a name in {number}: {name:?}");
                    let full = directory::hash_name(superblock.hash_seed, name_bytes);
                    assert_eq!(full as u32, hash);
                    assert_eq!(bucket_of(full, buckets), bucket, "{name:?} in {number}");
                    assert!(used.contains(&page.0));
                    units += directory::units_for(name_bytes.len());
                    entries += 1;
                    let (target, _) = inodes.get(&dentry.inode).unwrap_or_else(|| {
                        panic!("{name:?} in {number} leads to {}", dentry.inode)
                    });
                    assert_eq!(target.generation, dentry.generation);
                    assert_eq!(target.kind(), Some(dentry.kind));
                    *names.entry(dentry.inode).or_default() += 1;
                    if dentry.kind == FileKind::Directory {
                        assert_eq!(target.parent, number, "parent of {}", dentry.inode);
                        *subdirectories.entry(number).or_default() += 1;
                    }
                    let text = String::from_utf8_lossy(name_bytes).into_owned();
                    let list = children.entry(number).or_default();
                    assert!(
                        list.iter().all(|(n, _)| *n != text) || list.len() > 2000,
                        "{text} twice"
                    );
                    list.push((text, dentry.inode));
                },
            )
            .unwrap();
            assert!(units <= UNITS * 64);
        }
        assert_eq!(entries, inode.entries, "entries of {number}");
        if *kind == HeaderKind::Orphan {
            assert_eq!(entries, 0);
        }
    }
    for (&number, (inode, kind)) in &inodes {
        let named = names.get(&number).copied().unwrap_or(0);
        let is_directory = inode.kind() == Some(FileKind::Directory);
        if *kind == HeaderKind::Orphan {
            assert_eq!((named, inode.links), (0, 0), "orphan {number}");
        } else if is_directory {
            let below = subdirectories.get(&number).copied().unwrap_or(0);
            assert_eq!(inode.links, 2 + below, "links of directory {number}");
            assert_eq!(named, u32::from(number != 1), "names of directory {number}");
        } else {
            assert_eq!(inode.links, named, "links of {number}");
            assert!(named > 0, "{number} has no name");
        }
    }
    for page in 0..geometry.page_count() {
        let is = bitmap[(page / 64) as usize] >> (page % 64) & 1 == 1;
        assert_eq!(is, used.contains(&page), "bit of page {page}");
    }
    let mut tree = Tree {
        paths: BTreeMap::new(),
        sizes: BTreeMap::new(),
    };
    let mut waiting = vec![(String::new(), 1)];
    let mut seen = 0;
    while let Some((path, number)) = waiting.pop() {
        seen += 1;
        assert!(seen < 10_000_000, "a cycle");
        for (name, inode) in children.get(&number).into_iter().flatten() {
            let path = format!("{path}/{name}");
            let (found, _) = &inodes[inode];
            tree.paths.insert(path.clone(), *inode);
            tree.sizes.insert(path.clone(), found.size);
            if found.kind() == Some(FileKind::Directory) {
                waiting.push((path, *inode));
            }
        }
    }
    tree
}

/// Marks index pages and leaves as used; counts the leaves.
fn walk(loaded: &Loaded, inode: &Inode, used: &mut BTreeSet<u64>, data: bool) -> u64 {
    if inode.root.pointer() == 0 {
        return 0;
    }
    let mut leaves = 0;
    let mut waiting = vec![(inode.root.pointer(), inode.root.height(), 0u64)];
    while let Some((pointer, level, first)) = waiting.pop() {
        assert!(
            loaded.geometry.contains(PagePtr(pointer)),
            "pointer {pointer}"
        );
        assert!(used.insert(pointer), "page {pointer} is used twice");
        if level > 0 {
            let page = loaded.page(PagePtr(pointer)).unwrap();
            for place in 0..FANOUT {
                let below = page[place as usize].load(Ordering::Relaxed);
                if below != 0 {
                    waiting.push((below, level - 1, first + place * capacity(level - 1)));
                }
            }
            continue;
        }
        leaves += 1;
        if data {
            assert!(
                first < inode.size.div_ceil(PAGE_SIZE),
                "page {first} beyond the end"
            );
            continue;
        }
        // Overflow pages of the bucket.
        let mut next =
            loaded.page(PagePtr(pointer)).unwrap()[directory::WORD_NEXT].load(Ordering::Relaxed);
        while next != 0 {
            assert!(used.insert(next), "overflow page {next} is used twice");
            next =
                loaded.page(PagePtr(next)).unwrap()[directory::WORD_NEXT].load(Ordering::Relaxed);
        }
    }
    leaves
}
