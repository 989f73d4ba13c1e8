//! What a recovered pool holds, read from its files by their format alone, and whether it is one
//! whole: every name leads somewhere, counts agree, exactly what is reachable is marked as in use.
//!
//! # Invariant
//! Nothing here is the controller's code; what does not fit is told, never skipped.

use super::stage::{Stage, words};
use arck_core_state::directory::{self, UNITS, bucket_of};
use arck_core_state::header::{HEADER_SIZE, HeaderKind};
use arck_core_state::index::{self, FANOUT, capacity};
use arck_core_state::superblock::Superblock;
use arck_core_state::{
    FileKind, Geometry, Inode, InodeNumber, PAGE_SIZE, PagePtr, PageWords, Pages, layout,
};
use arck_pm::Mapping;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;

/// The pages of a file that are not all zeroes.
pub type Content = BTreeMap<u64, Vec<u8>>;

/// An inode as stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
    pub mode: u32,
    pub links: u32,
    pub size: u64,
    /// Nanoseconds: read, written, changed.
    pub times: [i64; 3],
    pub content: Content,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// All paths below the root ("" is the root), and what they lead to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    pub paths: BTreeMap<String, InodeNumber>,
    pub nodes: BTreeMap<InodeNumber, Node>,
    /// Of a model: the number of the node that was created last.
    pub last: InodeNumber,
    /// Of a model: what somebody has open, by the path that it was opened by.
    pub held: BTreeMap<String, InodeNumber>,
}

struct Reader<'s> {
    geometry: Geometry,
    segments: Vec<Option<&'s Mapping>>,
}

/// Pages that something leads to.
struct Used(Vec<bool>);

impl Used {
    /// False: something else leads there too, or it is outside the pool.
    fn insert(&mut self, page: u64) -> bool {
        let Some(used) = self.0.get_mut(page as usize) else {
            return false;
        };
        !std::mem::replace(used, true)
    }

    fn contains(&self, page: u64) -> bool {
        self.0.get(page as usize).copied().unwrap_or(false)
    }
}

impl Pages for Reader<'_> {
    fn page(&self, pointer: PagePtr) -> Option<&PageWords> {
        if !self.geometry.contains(pointer) {
            return None;
        }
        let segment = self.geometry.segment_of(pointer);
        let mapping = self.segments.get(segment as usize).copied().flatten()?;
        words(mapping, pointer.0 % self.geometry.pages_per_segment())
    }
}

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

fn bytes_of(page: &PageWords) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAGE_SIZE as usize);
    for word in page {
        bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    bytes
}

fn word(page: &PageWords, index: usize) -> u64 {
    page[index].load(Ordering::Relaxed)
}

/// Reads a pool that nobody serves. `Err`: what is wrong with it.
pub fn read(stage: &Stage) -> Result<Tree, String> {
    let superblock = std::fs::read(stage.path().join(layout::SUPERBLOCK))
        .map_err(|error| format!("superblock: {error}"))?;
    let superblock = Superblock::decode(&superblock).map_err(|error| error.to_string())?;
    let geometry = superblock.geometry;
    let reader = Reader {
        geometry,
        segments: (0..geometry.segment_count)
            .map(|segment| stage.mapping(&format!("{}/{segment:08x}", layout::SEGMENTS)))
            .collect(),
    };
    let mut used = Used(vec![false; geometry.page_count() as usize]);
    used.insert(0);
    let mut inodes: BTreeMap<InodeNumber, (Inode, HeaderKind)> = BTreeMap::new();
    let headers = stage.mapping(layout::HEADERS).ok_or("no headers")?;
    for page in stage.pages_of(layout::HEADERS) {
        let words = words(headers, page).ok_or("no page of headers")?;
        for (index, header) in words.chunks_exact(HEADER_SIZE / 8).enumerate() {
            let number = (page * (PAGE_SIZE / HEADER_SIZE as u64)) as u32 + index as u32;
            let header: Vec<u64> = header.iter().map(|w| w.load(Ordering::Relaxed)).collect();
            let kind = HeaderKind::from_u8(header[5] as u8)
                .ok_or_else(|| format!("kind of header {number}"))?;
            ensure!(header[3] & 1 == 0, "header {number} is marked");
            ensure!(header[0] & 1 == 0, "header {number} is odd");
            ensure!(
                header[3] == 0 || number == 0,
                "header {number} has the owner {:#x}",
                header[3]
            );
            ensure!(kind != HeaderKind::Granted, "header {number} is granted");
            if !matches!(kind, HeaderKind::Alive | HeaderKind::Orphan) {
                continue;
            }
            let inode = Inode::read(&reader, header[1])
                .ok_or_else(|| format!("inode {number} is not at {:#x}", header[1]))?;
            ensure!(
                inode.number == number,
                "inode {number} says {}",
                inode.number
            );
            ensure!(
                inode.generation == header[4] as u32,
                "generation of {number}"
            );
            ensure!(
                inode.kind().map(|k| k as u8) == Some((header[5] >> 8) as u8),
                "file kind of {number}"
            );
            ensure!(kind == HeaderKind::Alive, "{number} is an orphan");
            used.insert(header[1] / PAGE_SIZE);
            inodes.insert(number, (inode, kind));
        }
    }
    // A number that a session had is not given again.
    let sessions = stage
        .mapping(layout::SESSION_TABLE)
        .ok_or("no session table")?;
    let next = words(sessions, 0).map_or(0, |page| word(page, 0));
    for arena in stage.names_in(layout::ARENAS) {
        let Ok(number) = u64::from_str_radix(&arena, 16) else {
            continue;
        };
        ensure!(number < next, "session {number} is to be given again");
    }
    let mut tree = Tree::default();
    let mut names: HashMap<InodeNumber, u32> = HashMap::new();
    let mut subdirectories: HashMap<InodeNumber, u32> = HashMap::new();
    let mut children: BTreeMap<InodeNumber, BTreeMap<String, InodeNumber>> = BTreeMap::new();
    for (&number, (inode, _)) in &inodes {
        let mut node = Node {
            mode: inode.mode,
            links: inode.links,
            size: inode.size,
            times: [inode.accessed, inode.modified, inode.changed],
            ..Node::default()
        };
        if !inode.attributes.is_null() {
            ensure!(
                used.insert(inode.attributes.0),
                "attributes of {number} are something else too"
            );
            let page = reader.page(inode.attributes).ok_or("no attribute page")?;
            let mut copy = arck_core_state::extended::Page::default();
            copy.0.copy_from_slice(&bytes_of(page));
            node.attributes = copy
                .entries()
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect();
        }
        let leaves = walk(&reader, inode, &mut used)?;
        if inode.kind() == Some(FileKind::Directory) {
            node.size = 0;
            list(
                &reader,
                superblock.hash_seed,
                inode,
                &mut used,
                |name, target, kind| {
                    let (found, _) = inodes
                        .get(&target.0)
                        .ok_or_else(|| format!("{name:?} in {number} leads to {}", target.0))?;
                    ensure!(
                        (found.generation, found.kind()) == (target.1, Some(kind)),
                        "{name:?} in {number} leads to another generation or kind"
                    );
                    *names.entry(target.0).or_default() += 1;
                    if kind == FileKind::Directory {
                        ensure!(found.parent == number, "parent of {}", target.0);
                        *subdirectories.entry(number).or_default() += 1;
                    }
                    let before = children
                        .entry(number)
                        .or_default()
                        .insert(name.clone(), target.0);
                    ensure!(before.is_none(), "{name:?} twice in {number}");
                    Ok(())
                },
            )?;
        } else {
            ensure!(
                leaves.len() as u64 == inode.pages,
                "{number} has {} pages and says {}",
                leaves.len(),
                inode.pages
            );
            for (page, pointer) in leaves {
                ensure!(
                    page < inode.size.div_ceil(PAGE_SIZE),
                    "page {page} of {number} is beyond its end"
                );
                let bytes = bytes_of(reader.page(PagePtr(pointer)).ok_or("no data page")?);
                let kept = (inode.size - page * PAGE_SIZE).min(PAGE_SIZE) as usize;
                let mut shown = bytes[..kept].to_vec();
                shown.resize(PAGE_SIZE as usize, 0);
                if shown.iter().any(|&byte| byte != 0) {
                    node.content.insert(page, shown);
                }
            }
        }
        tree.nodes.insert(number, node);
    }
    for (&number, (inode, _)) in &inodes {
        let named = names.get(&number).copied().unwrap_or(0);
        if inode.kind() == Some(FileKind::Directory) {
            let below = subdirectories.get(&number).copied().unwrap_or(0);
            ensure!(inode.links == 2 + below, "links of directory {number}");
            ensure!(
                named == u32::from(number != 1),
                "names of directory {number}"
            );
        } else {
            ensure!(
                inode.links == named && named > 0,
                "{number} has {named} names and says {}",
                inode.links
            );
        }
    }
    let bitmap = stage.mapping(layout::PAGE_BITMAP).ok_or("no bitmap")?;
    for (part, chunk) in used.0.chunks(64).enumerate() {
        let words = words(bitmap, part as u64 / 512).ok_or("no page of the bitmap")?;
        let bits = word(words, part % 512);
        let wanted = chunk
            .iter()
            .enumerate()
            .fold(0u64, |sum, (bit, &is)| sum | u64::from(is) << bit);
        ensure!(
            bits == wanted,
            "of the 64 pages from {} on, {:#x} are in use and their bits say {bits:#x}",
            part * 64,
            wanted
        );
    }
    let mut waiting = vec![(String::new(), 1)];
    while let Some((path, number)) = waiting.pop() {
        tree.paths.insert(path.clone(), number);
        ensure!(tree.paths.len() < 10_000, "a circle of directories");
        for (name, &inode) in children.get(&number).into_iter().flatten() {
            let below = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}/{name}")
            };
            if inodes[&inode].0.kind() == Some(FileKind::Directory) {
                waiting.push((below, inode));
            } else {
                tree.paths.insert(below, inode);
            }
        }
    }
    let reached: BTreeSet<InodeNumber> = tree.paths.values().copied().collect();
    ensure!(
        reached.len() == inodes.len(),
        "{} inodes are out of reach",
        inodes.len() - reached.len()
    );
    Ok(tree)
}

/// Calls `each` with name, target and kind of all that is in a directory.
fn list(
    reader: &Reader<'_>,
    seed: u64,
    inode: &Inode,
    used: &mut Used,
    mut each: impl FnMut(String, (InodeNumber, u32), FileKind) -> Result<(), String>,
) -> Result<(), String> {
    let number = inode.number;
    let buckets = inode.size / PAGE_SIZE;
    ensure!(buckets >= 1, "size of directory {number}");
    let mut entries = 0;
    for bucket in 0..buckets {
        let mut units = 0;
        let mut found = Vec::new();
        directory::for_each_in_bucket(reader, inode.root, bucket, |dentry, hash, name, page, _| {
            found.push((dentry, hash, name.as_bytes().to_vec(), page));
        })
        .map_err(|error| format!("directory {number}: {error}"))?;
        for (dentry, hash, name, page) in found {
            let is_name = (1..=255).contains(&name.len())
                && !name.contains(&b'/')
                && !name.contains(&0)
                && name != b"."
                && name != b"..";
            ensure!(is_name, "a name in {number}: {name:?}");
            let full = directory::hash_name(seed, &name);
            ensure!(full as u32 == hash, "hash of {name:?}");
            ensure!(
                bucket_of(full, buckets) == bucket,
                "{name:?} in another bucket of {number}"
            );
            ensure!(used.contains(page.0), "a page of directory {number}");
            units += directory::units_for(name.len());
            entries += 1;
            let name = String::from_utf8_lossy(&name).into_owned();
            each(name, (dentry.inode, dentry.generation), dentry.kind)?;
        }
        ensure!(units <= UNITS * 64, "a bucket of {number}");
    }
    ensure!(
        entries == inode.entries,
        "directory {number} has {entries} entries and says {}",
        inode.entries
    );
    Ok(())
}

/// Marks what an inode's index has as used; gives the leaves.
fn walk(reader: &Reader<'_>, inode: &Inode, used: &mut Used) -> Result<Vec<(u64, u64)>, String> {
    let mut leaves = Vec::new();
    if inode.root.pointer() == 0 {
        return Ok(leaves);
    }
    let is_directory = inode.kind() == Some(FileKind::Directory);
    ensure!(
        inode.root.height() <= index::HEIGHT_MAX,
        "height of {}",
        inode.number
    );
    let mut waiting = vec![(inode.root.pointer(), inode.root.height(), 0u64)];
    while let Some((pointer, level, first)) = waiting.pop() {
        ensure!(
            reader.geometry.contains(PagePtr(pointer)),
            "pointer {pointer:#x} of {}",
            inode.number
        );
        ensure!(used.insert(pointer), "page {pointer} is used twice");
        if level > 0 {
            let page = reader.page(PagePtr(pointer)).ok_or("no index page")?;
            for place in 0..FANOUT {
                let below = word(page, place as usize);
                if below != 0 {
                    waiting.push((below, level - 1, first + place * capacity(level - 1)));
                }
            }
            continue;
        }
        leaves.push((first, pointer));
        if is_directory {
            let page = |pointer| reader.page(PagePtr(pointer)).ok_or("no hash page");
            let mut next = word(page(pointer)?, directory::WORD_NEXT);
            while next != 0 {
                ensure!(used.insert(next), "overflow page {next} is used twice");
                next = word(page(next)?, directory::WORD_NEXT);
            }
        }
    }
    Ok(leaves)
}
