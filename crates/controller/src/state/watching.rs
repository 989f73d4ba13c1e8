//! What of the verified state is watched, and what has happened to it: noted by each change as it is committed.
//!
//! Who watches, and how he is told, is a matter of [`crate::handed::watching`]. Here is only of which inodes anybody
//! wants to know, so that a change costs one look where nobody does.
//!
//! # Invariants
//! * Noted is what was committed, once, in the order in which it was.
//! * What a fold says by itself (names, data, attributes) is noted as that; of what the controller changes by
//!   itself, how the inodes differ.

use arck_core_state::directory::Dentry;
use arck_core_state::{FileKind, Inode, InodeNumber};
use foldhash::{HashMap, HashSet};
use std::collections::{BTreeMap, VecDeque};

/// A name that came or went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    pub directory: InodeNumber,
    pub name: Box<[u8]>,
    pub inode: InodeNumber,
    pub is_directory: bool,
}

impl Named {
    pub fn new(directory: InodeNumber, name: &[u8], dentry: Dentry) -> Named {
        Named {
            directory,
            name: name.into(),
            inode: dentry.inode,
            is_directory: dentry.kind == FileKind::Directory,
        }
    }
}

/// What became of an inode beside its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Became {
    /// Its contents are others.
    pub has_other_data: bool,
    /// Mode, owner, times that somebody has set, extended attributes.
    pub has_other_attributes: bool,
    /// It has another number of names.
    pub has_other_links: bool,
    /// It came to life: what there is of it is new.
    pub is_new: bool,
    /// It has no name any more.
    pub is_gone: bool,
    /// What it is, so far as that matters.
    pub is_file: bool,
}

/// What one change has done, of what is watched.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Happened {
    pub removed: Vec<Named>,
    pub added: Vec<Named>,
    pub inodes: Vec<(InodeNumber, Became)>,
    /// The how many-th it is of those that are told.
    pub number: u64,
}

/// What a change is about to do.
#[derive(Default)]
pub struct Noted {
    removed: Vec<Named>,
    added: Vec<Named>,
    /// What a fold says of inodes.
    pub said: HashMap<InodeNumber, Became>,
}

impl Noted {
    pub fn removes(&mut self, directory: InodeNumber, name: &[u8], dentry: Dentry) {
        self.removed.push(Named::new(directory, name, dentry));
    }

    pub fn adds(&mut self, directory: InodeNumber, name: &[u8], dentry: Dentry) {
        self.added.push(Named::new(directory, name, dentry));
    }
}

/// See the module's head.
#[derive(Default)]
pub struct Watching {
    /// Inodes of which somebody wants to know, and for how many reasons: that it is watched itself, and each name that it
    /// has in a directory that is.
    wanted: BTreeMap<InodeNumber, u32>,
    watched: HashSet<InodeNumber>,
    /// Inodes of which a name is among what has happened.
    coming: HashSet<InodeNumber>,
    happened: VecDeque<Happened>,
    /// How many have been put there.
    count: u64,
    /// The last one that was taken may not be told yet.
    is_taken: bool,
    /// Something was committed since this was taken, be it that somebody owns something else.
    has_moved: bool,
}

impl Watching {
    pub fn is_any(&self) -> bool {
        !self.watched.is_empty()
    }

    pub fn watch(&mut self, number: InodeNumber) {
        if self.watched.insert(number) {
            self.want(number);
        }
    }

    pub fn forget(&mut self, number: InodeNumber) {
        if self.watched.remove(&number) {
            self.want_no_more(number);
        }
    }

    /// It has another name in a directory that is watched, or something that is watched has a name in it. 0 is none.
    pub fn want(&mut self, number: InodeNumber) {
        if number == 0 {
            return;
        }
        *self.wanted.entry(number).or_default() += 1;
    }

    /// It has one less.
    pub fn want_no_more(&mut self, number: InodeNumber) {
        if let Some(reasons) = self.wanted.get_mut(&number) {
            *reasons = reasons.saturating_sub(1);
            if *reasons == 0 {
                self.wanted.remove(&number);
            }
        }
    }

    /// All of which somebody wants to know, in order, from a number on.
    pub fn wanted(&self, from: InodeNumber) -> impl Iterator<Item = InodeNumber> {
        self.wanted.range(from..).map(|(&number, _)| number)
    }

    /// What has happened next, once. Whoever takes it has told what he took before.
    pub fn take_next(&mut self) -> Option<Happened> {
        let next = self.happened.pop_front();
        self.is_taken = next.is_some();
        next
    }

    pub fn has_next(&self) -> bool {
        !self.happened.is_empty()
    }

    /// Whatever happens next has a number from this on.
    pub fn count(&self) -> u64 {
        self.count + 1
    }

    /// Whether anything was committed since this was asked last.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    /// A change was committed; what was noted of it, and what it said of inodes: as they were, and are.
    pub fn committed(
        &mut self,
        noted: Noted,
        inodes: impl Iterator<Item = (InodeNumber, Option<Inode>, Option<Inode>)>,
    ) {
        self.has_moved = true;
        if self.happened.is_empty() && !self.is_taken {
            self.coming.clear();
        }
        let Noted {
            mut removed,
            mut added,
            said,
        } = noted;
        // Names tell more together: of what is moved, the other end may be in a directory that nobody watches.
        let is_told = |name: &Named| {
            self.watched.contains(&name.directory) || self.watched.contains(&name.inode)
        };
        let told: HashSet<InodeNumber> = removed
            .iter()
            .chain(&added)
            .filter(|name| is_told(name))
            .map(|name| name.inode)
            .collect();
        removed.retain(|name| told.contains(&name.inode));
        added.retain(|name| told.contains(&name.inode));
        let mut of_inodes = Vec::new();
        for (number, old, new) in inodes {
            let is_wanted = self.wanted.contains_key(&number) || self.coming.contains(&number);
            if is_wanted || told.contains(&number) {
                let became = became(old, new, said.get(&number).copied(), told.contains(&number));
                if became != Became::default() {
                    of_inodes.push((number, became));
                }
            }
        }
        self.coming.extend(told);
        if !(removed.is_empty() && added.is_empty() && of_inodes.is_empty()) {
            self.count += 1;
            self.happened.push_back(Happened {
                removed,
                added,
                inodes: of_inodes,
                number: self.count,
            });
        }
    }
}

/// What became of an inode. `said`: what a fold says; `is_named`: names of it came or went.
fn became(old: Option<Inode>, new: Option<Inode>, said: Option<Became>, is_named: bool) -> Became {
    let is_file = |inode: &Inode| inode.kind() == Some(FileKind::File);
    let Some(new) = new else {
        return Became {
            is_gone: old.is_some(),
            ..Became::default()
        };
    };
    let Some(old) = old else {
        return Became {
            is_new: true,
            has_other_data: is_file(&new) && new.size > 0,
            is_file: is_file(&new),
            ..Became::default()
        };
    };
    let is_directory = new.kind() == Some(FileKind::Directory);
    let mut became = said.unwrap_or_else(|| Became {
        has_other_data: is_file(&new) && ((old.size, old.modified) != (new.size, new.modified)),
        ..Became::default()
    });
    let rights = |inode: &Inode| (inode.mode, inode.uid, inode.gid);
    // Nobody writes links.
    became.has_other_data &= is_file(&new);
    became.has_other_attributes |= rights(&old) != rights(&new)
        // Somebody has set something to what it was.
        || (said.is_none()
            && !is_directory
            && !is_named
            && old.links == new.links
            && old.changed != new.changed
            && !became.has_other_data);
    became.has_other_links = !is_directory && old.links != new.links;
    became.is_gone = old.links > 0 && new.links == 0;
    match became == Became::default() {
        true => became,
        false => Became {
            is_file: is_file(&new),
            ..became
        },
    }
}
