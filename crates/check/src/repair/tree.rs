//! Which names count, what is cut off, and `lost+found`.
//!
//! # Invariants
//! * A name counts if it leads to what it says, is well formed and is the only one of that kind in
//!   its directory. Of a directory one name counts: the one in the directory that it calls its
//!   parent, if there is one.
//! * In the end every directory leads to the root, and every file has a name.

use super::names::{self, Name, is_name};
use super::{Repair, Saved};
use crate::error::Result;
use crate::finding::quoted;
use crate::pool::Header;
use arck_core_state::{FileKind, IndexRoot, Inode, InodeNumber, PAGE_SIZE, PagePtr, ROOT_INODE};
use foldhash::{HashMap, HashSet};
use std::collections::BTreeMap;

/// The directory for what has lost its place.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// The names of a directory, and whether it is written anew.
type Names = BTreeMap<InodeNumber, (Vec<Name>, bool)>;

impl Repair<'_, '_> {
    pub(super) fn settle_tree(&mut self, mut names: Names) -> Result<()> {
        self.settle_root(&mut names)?;
        let above = self.choose(&mut names);
        let lost = self.find_cut_off(&mut names, &above);
        self.adopt(&mut names, &lost)?;
        self.count(&names);
        self.write_directories(&names)
    }

    fn new_directory(&mut self, number: InodeNumber, parent: InodeNumber, mode: u32) -> Result<()> {
        let address = self.new_place()?;
        let header = self.pool.header(number);
        let times = self.pool.superblock.created;
        let group = self.saved.get(&ROOT_INODE).map_or(0, |root| root.inode.gid);
        self.saved.insert(
            number,
            Saved {
                address,
                inode: Inode {
                    number,
                    generation: header.generation().wrapping_add(1).max(1),
                    mode: FileKind::Directory.mode_bits() | mode,
                    links: 2,
                    uid: self.pool.superblock.uid,
                    gid: group,
                    size: PAGE_SIZE,
                    root: IndexRoot::EMPTY,
                    accessed: times,
                    modified: times,
                    changed: times,
                    created: times,
                    pages: 0,
                    parent,
                    entries: 0,
                    mediation: 0,
                    reserved0: 0,
                    attributes: PagePtr::NULL,
                    reserved: [0; 3],
                },
                kind: FileKind::Directory,
                sound: true,
                orphan: false,
            },
        );
        Ok(())
    }

    fn settle_root(&mut self, names: &mut Names) -> Result<()> {
        let is_there = |saved: &Saved| saved.kind == FileKind::Directory && !saved.orphan;
        if !self.saved.get(&ROOT_INODE).is_some_and(is_there) {
            if let Some(other) = self.saved.remove(&ROOT_INODE) {
                self.say(format!(
                    "gave up what was in the root's place ({:?})",
                    other.kind
                ));
            }
            self.new_directory(ROOT_INODE, ROOT_INODE, 0o755)?;
            names.insert(ROOT_INODE, (Vec::new(), true));
            self.say("made a new root directory".into());
        }
        if let Some(root) = self.saved.get_mut(&ROOT_INODE) {
            root.inode.parent = ROOT_INODE;
        }
        Ok(())
    }

    /// Drops the names that do not count; gives the directory of each directory's name.
    fn choose(&mut self, names: &mut Names) -> HashMap<InodeNumber, InodeNumber> {
        let mut above: HashMap<InodeNumber, InodeNumber> = HashMap::default();
        let mut said = Vec::new();
        let mut living: HashSet<InodeNumber> = HashSet::default();
        // Those in the right directory first.
        for right in [true, false] {
            for (&directory, (found, _)) in names.iter() {
                for name in found.iter().filter(|name| name.target != ROOT_INODE) {
                    if let Some(saved) = self.saved.get(&name.target)
                        && saved.kind == FileKind::Directory
                        && saved.inode.generation == name.generation
                        && is_name(&name.bytes)
                        && (saved.inode.parent == directory) == right
                    {
                        above.entry(name.target).or_insert(directory);
                    }
                }
            }
        }
        let mut named: HashSet<InodeNumber> = HashSet::default();
        for (&directory, (found, anew)) in names.iter_mut() {
            let mut there: HashSet<Box<[u8]>> = HashSet::default();
            let before = found.len();
            let mut changed = false;
            found.retain_mut(|name| {
                let target = self.saved.get(&name.target);
                let counts = target.is_some_and(|saved| {
                    let is_directory = saved.kind == FileKind::Directory;
                    saved.inode.generation == name.generation
                        && name.target != ROOT_INODE
                        && (!is_directory
                            || (above.get(&name.target) == Some(&directory)
                                && !named.contains(&name.target)))
                });
                let counts = counts && is_name(&name.bytes) && there.insert(name.bytes.clone());
                if !counts {
                    said.push(format!(
                        "took the name {} (inode {}) from directory {directory}",
                        quoted(&name.bytes),
                        name.target
                    ));
                    return false;
                }
                if let Some(saved) = target {
                    changed |= saved.kind != name.kind;
                    name.kind = saved.kind;
                    if saved.kind == FileKind::Directory {
                        named.insert(name.target);
                    }
                }
                living.insert(name.target);
                true
            });
            *anew |= changed || found.len() != before;
        }
        above.retain(|number, _| named.contains(number));
        for (number, saved) in &mut self.saved {
            if living.contains(number) {
                saved.orphan = false;
            }
        }
        for line in said {
            self.say(line);
        }
        above
    }

    /// What does not lead to the root: directories, and files without a name.
    fn find_cut_off(
        &mut self,
        names: &mut Names,
        above: &HashMap<InodeNumber, InodeNumber>,
    ) -> Vec<InodeNumber> {
        let mut reached: HashSet<InodeNumber> = HashSet::default();
        let mut named: HashSet<InodeNumber> = HashSet::default();
        let reach = |reached: &mut HashSet<_>, named: &mut HashSet<_>, names: &Names, first| {
            let mut waiting = vec![first];
            while let Some(directory) = waiting.pop() {
                if !reached.insert(directory) {
                    continue;
                }
                for name in names.get(&directory).into_iter().flat_map(|entry| &entry.0) {
                    named.insert(name.target);
                    if name.kind == FileKind::Directory {
                        waiting.push(name.target);
                    }
                }
            }
        };
        reach(&mut reached, &mut named, names, ROOT_INODE);
        let mut lost = Vec::new();
        let directories: Vec<InodeNumber> = self
            .saved
            .iter()
            .filter(|(_, saved)| saved.kind == FileKind::Directory && !saved.orphan)
            .map(|(&number, _)| number)
            .collect();
        for number in directories {
            if reached.contains(&number) {
                continue;
            }
            // The topmost, or any of a circle.
            let mut way = HashSet::default();
            let mut top = number;
            while way.insert(top)
                && let Some(&next) = above.get(&top)
            {
                top = next;
            }
            if let Some(directory) = above.get(&top)
                && let Some((found, anew)) = names.get_mut(directory)
            {
                found.retain(|name| name.target != top);
                *anew = true;
            }
            lost.push(top);
            reach(&mut reached, &mut named, names, top);
        }
        for (&number, saved) in &self.saved {
            let is_file = saved.kind != FileKind::Directory;
            if is_file && !saved.orphan && !named.contains(&number) {
                lost.push(number);
            }
        }
        lost
    }

    /// Puts what is cut off into `lost+found`.
    fn adopt(&mut self, names: &mut Names, lost: &[InodeNumber]) -> Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let root = names.get(&ROOT_INODE).map(|entry| entry.0.as_slice());
        let there = root.unwrap_or_default();
        let is_it =
            |name: &&Name| *name.bytes == *LOST_AND_FOUND && name.kind == FileKind::Directory;
        let home = match there.iter().find(is_it) {
            Some(name) => name.target,
            None => {
                let taken: HashSet<&[u8]> = there.iter().map(|name| &*name.bytes).collect();
                let mut name = LOST_AND_FOUND.to_vec();
                let mut more = 1;
                while taken.contains(&name[..]) {
                    more += 1;
                    name = [LOST_AND_FOUND, format!(".{more}").as_bytes()].concat();
                }
                let number = self.free_number()?;
                self.new_directory(number, ROOT_INODE, 0o700)?;
                self.highest_fold += 1;
                let generation = self.saved.get(&number).map_or(1, |s| s.inode.generation);
                let entry = names.entry(ROOT_INODE).or_default();
                entry.0.push(Name {
                    bytes: name.into(),
                    target: number,
                    generation,
                    kind: FileKind::Directory,
                });
                entry.1 = true;
                names.insert(number, (Vec::new(), true));
                number
            }
        };
        let entry = names.entry(home).or_default();
        entry.1 = true;
        let mut taken: HashSet<Box<[u8]>> = entry.0.iter().map(|name| name.bytes.clone()).collect();
        for &number in lost {
            let Some(saved) = self.saved.get_mut(&number) else {
                continue;
            };
            if saved.kind == FileKind::Directory {
                saved.inode.parent = home;
            }
            let (kind, generation) = (saved.kind, saved.inode.generation);
            let mut name = format!("#{number}").into_bytes();
            while taken.contains(&name[..]) {
                name.push(b'~');
            }
            taken.insert(name.clone().into());
            self.say(format!(
                "put inode {number} ({kind:?}) into lost+found, as {}",
                quoted(&name)
            ));
            entry.0.push(Name {
                bytes: name.into(),
                target: number,
                generation,
                kind,
            });
        }
        Ok(())
    }

    fn free_number(&self) -> Result<InodeNumber> {
        let is_free = |number: &InodeNumber| {
            let header: Header = self.pool.header(*number);
            header.kind() == 0 && header.inode == 0 && !self.saved.contains_key(number)
        };
        let mut numbers = 2..self.pool.geometry.inode_count;
        numbers.find(is_free).ok_or_else(|| self.no_room())
    }

    /// Link counts, parents and numbers of entries, as the names say.
    fn count(&mut self, names: &Names) {
        let mut links: HashMap<InodeNumber, u32> = HashMap::default();
        let mut parents: HashMap<InodeNumber, InodeNumber> = HashMap::default();
        for (&directory, (found, _)) in names {
            for name in found {
                *links.entry(name.target).or_default() += 1;
                if name.kind == FileKind::Directory {
                    *links.entry(directory).or_default() += 1;
                    parents.insert(name.target, directory);
                }
            }
        }
        for (number, saved) in &mut self.saved {
            let counted = links.get(number).copied().unwrap_or(0);
            saved.inode.links = match saved.kind {
                _ if saved.orphan => 0,
                // Its own name counts for two: that of the root is nobody's.
                FileKind::Directory if *number == ROOT_INODE => counted + 2,
                FileKind::Directory => counted + 1,
                _ => counted,
            };
            if let Some(&parent) = parents.get(number) {
                saved.inode.parent = parent;
            }
        }
    }

    fn write_directories(&mut self, names: &Names) -> Result<()> {
        let seed = self.pool.superblock.hash_seed;
        for (&number, (found, anew)) in names {
            let Some(saved) = self.saved.get_mut(&number) else {
                continue;
            };
            saved.inode.entries = u32::try_from(found.len()).unwrap_or(u32::MAX);
            saved.inode.pages = 0;
            if !anew {
                continue;
            }
            // It gets new ones; these are not written to before all is done.
            for page in self.directory_pages.remove(&number).unwrap_or_default() {
                self.space.release(page);
            }
            let written = names::write(&mut self.plan, &mut self.space, seed, number, found);
            let Some((root, size)) = written else {
                return Err(self.no_room());
            };
            saved.inode.root = root;
            saved.inode.size = size;
            self.say(format!(
                "wrote directory {number} anew, with {} names",
                found.len()
            ));
        }
        Ok(())
    }
}
