//! Paths of what was found, and of everything.
//!
//! Invariant: a path is put together from names as they stand, in no more steps than a path can
//! have names; where the tree is broken there is none.

use crate::finding::Finding;
use crate::inode::{Link, Look, Sink, Use};
use crate::leads::{Leads, leads_to};
use crate::pool::Pool;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, Inode, InodeNumber, PagePtr, ROOT_INODE};
use foldhash::{HashMap, HashSet};
use std::collections::BTreeMap;

/// Directories above each other that a path is followed through.
const DEPTH_MAX: usize = 4096;

/// Collects names of directories.
struct Names<'w> {
    /// `None`: all.
    wanted: Option<&'w HashSet<InodeNumber>>,
    pages: HashSet<PagePtr>,
    found: Vec<(Link, Vec<u8>)>,
}

impl Sink for Names<'_> {
    fn finding(&mut self, _: Finding) {}
    fn claim(&mut self, _: InodeNumber, page: PagePtr, what: Use) -> bool {
        matches!(what, Use::Index | Use::Bucket) && self.pages.insert(page)
    }
    fn name(&mut self, link: Link, name: &[u8]) {
        if self
            .wanted
            .is_none_or(|wanted| wanted.contains(&link.target))
        {
            self.found.push((link, name.to_vec()));
        }
    }
    fn is_stopped(&self) -> bool {
        false
    }
}

/// The inode of a living number.
fn inode(pool: &Pool, number: InodeNumber) -> Option<Inode> {
    let header = pool.header(number);
    let is_alive = header.kind() == HeaderKind::Alive as u8;
    let inode = is_alive
        .then(|| Inode::read(pool, header.inode))
        .flatten()?;
    (inode.number == number).then_some(inode)
}

fn directory(pool: &Pool, number: InodeNumber) -> Option<Inode> {
    inode(pool, number).filter(|inode| inode.kind() == Some(FileKind::Directory))
}

/// Gives findings paths, where names lead to their inodes.
pub(crate) fn name(pool: &Pool, findings: &mut [Finding]) {
    let mut wanted: HashSet<InodeNumber> = HashSet::default();
    for number in findings.iter().filter_map(|finding| finding.inode) {
        wanted.insert(number);
    }
    if wanted.is_empty() {
        return;
    }
    // Directories above are found by what they are called; of files that is not known.
    let mut names: HashMap<InodeNumber, (InodeNumber, Vec<u8>)> = HashMap::default();
    let mut sink = Names {
        wanted: Some(&wanted),
        pages: HashSet::default(),
        found: Vec::new(),
    };
    for number in pool.numbers().into_iter().flatten() {
        if directory(pool, number).is_some() {
            look(pool, &mut sink, number);
        }
    }
    for (link, name) in sink.found {
        if leads_to(pool, &link) == Leads::Well {
            names.entry(link.target).or_insert((link.directory, name));
        }
    }
    let mut seen = HashMap::default();
    for finding in findings {
        finding.path = finding
            .inode
            .and_then(|number| path(pool, &mut names, &mut seen, number));
    }
}

fn look<S: Sink>(pool: &Pool, sink: &mut S, number: InodeNumber) {
    let header = pool.header(number);
    let look = Look {
        pool,
        sink,
        number,
        header,
    };
    look.check();
}

/// The path of a number; `names` gains what had to be looked up, `seen` the directories that
/// were looked through.
fn path(
    pool: &Pool,
    names: &mut HashMap<InodeNumber, (InodeNumber, Vec<u8>)>,
    seen: &mut HashMap<InodeNumber, ()>,
    number: InodeNumber,
) -> Option<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut at = number;
    while at != ROOT_INODE {
        if parts.len() > DEPTH_MAX {
            return None;
        }
        if !names.contains_key(&at)
            && let Some(found) = directory(pool, at)
            && directory(pool, found.parent).is_some()
            && seen.insert(found.parent, ()).is_none()
        {
            let mut sink = Names {
                wanted: None,
                pages: HashSet::default(),
                found: Vec::new(),
            };
            look(pool, &mut sink, found.parent);
            for (link, name) in sink.found {
                if link.kind == FileKind::Directory {
                    names.entry(link.target).or_insert((link.directory, name));
                }
            }
        }
        let (above, name) = names.get(&at)?;
        parts.push(name.clone());
        at = *above;
    }
    let mut whole = Vec::new();
    for part in parts.iter().rev() {
        whole.push(b'/');
        whole.extend_from_slice(part);
    }
    if whole.is_empty() {
        whole.push(b'/');
    }
    Some(whole)
}

/// See [`crate::paths`].
pub(crate) fn all(pool: &Pool) -> BTreeMap<Vec<u8>, (InodeNumber, Inode)> {
    let mut all = BTreeMap::new();
    let Some(root) = directory(pool, ROOT_INODE) else {
        return all;
    };
    all.insert(Vec::new(), (ROOT_INODE, root));
    let mut sink = Names {
        wanted: None,
        pages: HashSet::default(),
        found: Vec::new(),
    };
    let mut waiting = vec![(Vec::new(), ROOT_INODE)];
    while let Some((above, number)) = waiting.pop() {
        // Once: in a damaged tree there are circles.
        look(pool, &mut sink, number);
        for (link, name) in std::mem::take(&mut sink.found) {
            let mut path: Vec<u8> = above.clone();
            path.push(b'/');
            path.extend_from_slice(&name);
            let Some(inode) = inode(pool, link.target) else {
                continue;
            };
            if inode.kind() == Some(FileKind::Directory) {
                waiting.push((path.clone(), link.target));
            }
            all.insert(path, (link.target, inode));
        }
    }
    all
}
