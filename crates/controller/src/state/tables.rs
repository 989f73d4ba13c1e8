//! The verified state as the controller holds it: the pool's files, and tables in private memory.
//!
//! # Invariants
//! * The shadow inodes are what permission and structure are checked against. They equal the
//!   stored inodes whenever no [`Change`](crate::state::change::Change) is being committed.
//! * Everything here changes through a `Change`, or in [runs](crate::state::runs) where there is no inode,
//!   except marks of headers and sequence words.
//! * Fold numbers come from one counter and never repeat: at start it begins above every number
//!   that any header holds, and each number used is stored in a header.

use crate::pool::files::Pool;
use crate::pool::journal::Journal;
use crate::space::free_set::FreeSet;
use crate::space::number_set::NumberSet;
use crate::space::pages::Space;
use crate::space::slots::InodeSlots;
use crate::state::classes::{Class, Classes};
use crate::state::mediated::Mediated;
use crate::state::searches::Searches;
use crate::state::watching::Watching;
use arck_core_state::directory::{self, Dentry, Found};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::in_order::{self, Place, Sought};
use arck_core_state::{
    FileKind, HeaderCopy, Inode, InodeNumber, PAGE_SIZE, PagePtr, PageWords, Pages, index,
};
use arck_verifier::{Credentials, VerifiedState};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A test's hook, called at named points of a commit.
pub type CrashHook = Arc<dyn Fn(&'static str) + Send + Sync>;

/// See the module's head.
pub struct State {
    pub pool: Pool,
    pub journal: Journal,
    pub space: Space,
    pub classes: Classes,
    pub slots: InodeSlots,
    pub numbers: Numbers,
    /// Numbers that are granted and uncommitted: what they may come to need is kept free.
    pub granted: u64,
    /// Inodes without a name that some session still lists.
    pub orphans: NumberSet,
    /// Of them, the users who had each open when it lost its last name: see [`State::may_reach`].
    pub orphan_users: BTreeMap<InodeNumber, BTreeSet<u32>>,
    /// Of them, those that only keep pages of a mapped inode: which one, and its generation.
    pub keepers: BTreeMap<InodeNumber, (InodeNumber, u32)>,
    /// The request that is served now: where the session table says that it was done, and how.
    pub serving: Option<(u64, u64)>,
    /// Changes of names that were committed, or were about to be.
    pub(crate) names_changed: u64,
    /// What is watched, and has happened to it.
    pub watching: Watching,
    inodes: ShadowInodes,
    /// How many of them are mediated.
    pub mediated: Mediated,
    /// Who may search directories.
    pub(crate) searches: Searches,
    pub(crate) crash_hook: Option<CrashHook>,
}

/// Shadow inodes by number, in parts that are made on need.
#[derive(Default)]
struct ShadowInodes {
    parts: Vec<Option<Box<[Option<Inode>]>>>,
}

/// Inodes in a part.
pub const PART: usize = 1024;

impl ShadowInodes {
    fn get(&self, number: InodeNumber) -> Option<&Inode> {
        let number = number as usize;
        self.parts.get(number / PART)?.as_ref()?[number % PART].as_ref()
    }

    fn set(&mut self, number: InodeNumber, inode: Option<Inode>) {
        let number = number as usize;
        if self.parts.len() <= number / PART {
            self.parts.resize_with(number / PART + 1, || None);
        }
        let part = self.parts[number / PART].get_or_insert_with(|| vec![None; PART].into());
        part[number % PART] = inode;
    }
}

/// Inode numbers that are free, and the counter of fold numbers.
pub struct Numbers {
    free: FreeSet,
    /// No number from here on was ever used.
    next_unused: InodeNumber,
    end: InodeNumber,
    next_fold: u64,
}

impl Numbers {
    pub fn new(next_unused: InodeNumber, end: InodeNumber, next_fold: u64) -> Numbers {
        Numbers {
            free: FreeSet::default(),
            next_unused,
            end,
            next_fold,
        }
    }

    /// A fold number that was never used.
    pub fn fold(&mut self) -> u64 {
        let fold = self.next_fold;
        self.next_fold += 1;
        fold
    }

    /// A free inode number, taken.
    pub fn take(&mut self) -> Option<InodeNumber> {
        self.take_run(1).map(|(first, _)| first)
    }

    /// Free inode numbers that follow each other, no more than `most`: the first, and how many. Taken.
    pub fn take_run(&mut self, most: u32) -> Option<(InodeNumber, u32)> {
        self.free.take_run(most).or_else(|| {
            let first = self.next_unused;
            let count = most.min(self.end.saturating_sub(first));
            self.next_unused += count;
            (count > 0).then_some((first, count))
        })
    }

    pub fn give_back(&mut self, number: InodeNumber) {
        self.free.insert(number);
    }

    pub fn count_free(&self) -> u64 {
        self.free.count() + u64::from(self.end.saturating_sub(self.next_unused))
    }
}

impl State {
    pub fn new(
        pool: Pool,
        journal: Journal,
        space: Space,
        classes: Classes,
        crash_hook: Option<CrashHook>,
    ) -> State {
        State {
            numbers: Numbers::new(1, pool.geometry().inode_count, 1),
            pool,
            journal,
            space,
            classes,
            slots: InodeSlots::default(),
            granted: 0,
            orphans: NumberSet::default(),
            orphan_users: BTreeMap::new(),
            keepers: BTreeMap::new(),
            serving: None,
            names_changed: 0,
            watching: Watching::default(),
            inodes: ShadowInodes::default(),
            searches: Searches::default(),
            mediated: Mediated::default(),
            crash_hook,
        }
    }

    /// Whether a user passes every class: root, and the one whose the pool's files are.
    pub fn is_privileged(&self, who: &Credentials) -> bool {
        who.is_root() || who.uid == self.pool.superblock().uid
    }

    /// The label of the place where an inode is.
    pub fn label_of_inode(&self, number: InodeNumber) -> u32 {
        let address = self.header_copy(number).map_or(0, |copy| copy.inode);
        self.space.label_of(PagePtr::of_address(address))
    }

    /// The label of a class: see [`Classes::label`]. Where there are too many, numbers that are on
    /// no segment are used again.
    pub fn label(&mut self, class: Option<&Class>) -> u32 {
        if let Some(class) = class
            && self.classes.is_full_for(class)
            && self
                .classes
                .take_may_free(std::mem::take(&mut self.space.has_lost_labels))
        {
            self.classes.free_unused(&self.space.labels());
        }
        self.classes.label(class)
    }

    /// Whether a session may be sent what has this label.
    pub fn admits(&self, label: u32, who: &Credentials) -> bool {
        self.is_privileged(who) || self.classes.admits(label, who)
    }

    /// Who may search a directory and every directory above it: [`Searches::class`].
    pub fn search_class(&self, directory: InodeNumber) -> Option<Class> {
        self.searches.class(|number| self.shadow(number), directory)
    }

    /// Whether a user may search a directory and every directory above it.
    pub fn may_search(&self, who: &Credentials, directory: InodeNumber) -> bool {
        if !who.is_root()
            && let Some(class) = self.search_class(directory)
        {
            return class.admits(who);
        }
        // Root; or one of many conditions, that is no class.
        let mut at = directory;
        // Beyond any path; a cycle would be damage.
        for _ in 0..1 << 20 {
            let Some(inode) = self.shadow(at).filter(|inode| who.may(inode, 1)) else {
                return false;
            };
            if at == arck_core_state::ROOT_INODE {
                return true;
            }
            at = inode.parent;
        }
        false
    }

    /// Whether an inode is one that a user can get at: of a directory by its path, of anything
    /// else by the class of its place, which is that of a path to it. What has no name is got at
    /// by those alone who had it open when it had one: no path leads to it, and what its owner
    /// does to the directory in which it was says nothing of it any more.
    pub fn may_reach(&self, who: &Credentials, number: InodeNumber) -> bool {
        if !self.space.shared || self.is_privileged(who) {
            return true;
        }
        let Some(copy) = self.header_copy(number) else {
            return false;
        };
        if let Some(directory) = self.directory(number) {
            return number == arck_core_state::ROOT_INODE || self.may_search(who, directory.parent);
        }
        if self.orphans.contains(number) {
            // Of one that has not been looked at yet, whoever could a moment ago.
            if let Some(users) = self.orphan_users.get(&number) {
                return users.contains(&who.uid);
            }
        }
        let page = PagePtr::of_address(copy.inode);
        self.classes.admits(self.space.label_of(page), who)
    }

    /// The shadow inode; of orphans too.
    pub fn shadow(&self, number: InodeNumber) -> Option<&Inode> {
        self.inodes.get(number)
    }

    pub(crate) fn set_shadow(&mut self, number: InodeNumber, inode: Option<Inode>) {
        let old = self.inodes.get(number);
        self.searches.note(number, old, inode.as_ref());
        self.mediated.note(old, inode.as_ref());
        self.inodes.set(number, inode);
    }

    /// The header of an inode that is still the one that was meant. ESTALE.
    pub fn header_of(&self, number: InodeNumber, generation: u32) -> Result<HeaderCopy, Errno> {
        let copy = self.header_copy(number);
        copy.filter(|copy| copy.generation == generation)
            .ok_or(Errno::STALE)
    }

    pub fn header_copy(&self, number: InodeNumber) -> Option<HeaderCopy> {
        self.pool.header(number).map(|header| header.copy())
    }

    /// The header as it was for the delta of an inode that is to be folded next: the sealed one, if there is
    /// one.
    pub fn delta_to_fold(&self, number: InodeNumber) -> Option<HeaderCopy> {
        let header = self.header_copy(number)?;
        Some(header.of_sealed().unwrap_or(header))
    }

    /// A living directory's shadow inode.
    pub fn directory(&self, number: InodeNumber) -> Option<&Inode> {
        self.shadow(number)
            .filter(|inode| inode.kind() == Some(FileKind::Directory) && inode.links > 0)
    }

    pub fn is_alive(&self, number: InodeNumber) -> bool {
        self.header_copy(number)
            .is_some_and(|header| header.kind == HeaderKind::Alive)
    }

    pub(crate) fn crash_point(&self, name: &'static str) {
        if let Some(hook) = &self.crash_hook {
            hook(name);
        }
    }
}

impl Pages for State {
    fn page(&self, pointer: PagePtr) -> Option<&PageWords> {
        self.pool.page(pointer)
    }

    fn prefetch(&self, page: &PageWords, index: usize) {
        if let Some(word) = page.get(index) {
            arck_pm::copy::prefetch(word);
        }
    }
}

/// Buckets of a directory.
pub fn buckets(inode: &Inode) -> u64 {
    (inode.size / PAGE_SIZE).max(1)
}

impl VerifiedState for State {
    fn header(&self, number: InodeNumber) -> Option<HeaderCopy> {
        self.header_copy(number)
    }

    fn inode(&self, number: InodeNumber) -> Option<Inode> {
        self.shadow(number).copied()
    }

    fn hash(&self, name: &[u8]) -> u64 {
        directory::hash_name(self.pool.superblock().hash_seed, name)
    }

    fn lookup_hashed(&self, directory: InodeNumber, hash: u64, name: &[u8]) -> Option<Dentry> {
        let inode = self.directory(directory)?;
        match directory::lookup(self, inode.root, buckets(inode), hash, name) {
            Ok(found) => found.map(|found| found.dentry),
            Err(torn) => {
                tracing::error!("directory {directory}: {torn}");
                None
            }
        }
    }

    fn lookup_all(
        &self,
        directory: InodeNumber,
        sought: &[Sought<'_>],
        each: &mut dyn FnMut(usize, Option<(Dentry, Option<Place>)>),
    ) {
        // Those that nobody has been told of when a page turns out to be damaged are not there.
        let mut told = 0;
        if let Some(inode) = self.directory(directory) {
            let tell = |at, found: Option<Found>| {
                told = at + 1;
                each(at, found.map(|found| (found.dentry, found.place())));
            };
            let looked_up =
                in_order::lookup_in_order(self, inode.root, buckets(inode), sought, tell);
            if let Err(torn) = looked_up {
                tracing::error!("directory {directory}: {torn}");
            }
        }
        (told..sought.len()).for_each(|at| each(at, None));
    }

    fn revision(&self) -> Option<u64> {
        Some(self.names_changed)
    }

    fn data_page(&self, number: InodeNumber, page: u64) -> PagePtr {
        self.shadow(number)
            .filter(|inode| matches!(inode.kind(), Some(FileKind::File | FileKind::Link)))
            .and_then(|inode| index::lookup(self, inode.root, page))
            .unwrap_or(PagePtr::NULL)
    }

    fn page_in_use(&self, page: PagePtr) -> bool {
        self.space.is_used(page)
    }

    fn data_segment_owner(&self, page: PagePtr) -> Option<SessionNumber> {
        let geometry = self.pool.geometry();
        if !geometry.contains(page) {
            return None;
        }
        let entry = self.space.entry(geometry.segment_of(page))?;
        (entry.kind() == arck_controller_state::segments::SegmentKind::Data && entry.owner != 0)
            .then_some(entry.owner)
    }
}
