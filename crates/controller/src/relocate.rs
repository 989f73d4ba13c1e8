//! Moving what is in an inode to segments of its class (DESIGN section 3, "Read class").
//!
//! Where a page lies says who may read it. It is put right at birth; this is for what comes after:
//! somebody may read a file who cannot map it (its class became wider, or its data was written into
//! a segment of its writer's), or somebody still can map what he may not read any more.
//!
//! # Invariants
//! * Whoever is in the class of a page's segment may search every directory on one path to its
//!   inode, as the permissions are now, and, if it is not the inode itself, read the inode; or he
//!   is the user who wrote the page. Between a change of permissions and the end of
//!   [`Core::tighten`] no session is sent anything.
//! * What moves because a class became tighter leaves zeroes behind: metadata when the change is
//!   done; of data a hole is punched before the page is free, because its owner uses it again as
//!   soon as it is.
//! * An owner's delta is folded in the same step, and its fold number ends: a store of its own into
//!   a page that moves is made again.

use crate::apply::file::Setter;
use crate::change::{Change, Weight};
use crate::classes::{Class, Classes, Condition, NOBODY, Wish};
use crate::core::Core;
use crate::files::{CONTROLLER, HIDDEN, SegmentEntry, SegmentKind};
use crate::fold::{After, Failure, heavy_barrier};
use crate::maps;
use crate::ownership::Reply;
use crate::pool::numbered;
use crate::state::{State, buckets};
use arck_core_state::directory::{BucketPage, CHAIN_MAX, Dentry, for_each_in_bucket, next_page};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::superblock::Durability;
use arck_core_state::{
    FileKind, IndexRoot, Inode, InodeNumber, PAGE_SIZE, PagePtr, Pages, ROOT_INODE, SegmentNumber,
    index, layout,
};
use arck_pm::{MapOptions, Mapping};
use arck_protocol::Response;
use arck_verifier::{Changes, Credentials, VerifiedState};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;

/// An inode whose class may be tighter than it was.
#[derive(Clone, Copy, Debug)]
pub struct Touched {
    number: InodeNumber,
    /// A directory in which it has got a name.
    via: Option<InodeNumber>,
    /// It has lost a name, and has others.
    unlinked: bool,
    /// Its own mode or owner has changed.
    attributes: bool,
    /// Of a directory: with all that is beneath.
    deep: bool,
    /// What is in everything beneath is looked at, whether its place is right or not.
    whole: bool,
}

impl Touched {
    /// Its mode or owner has changed. `tighter`: so that fewer may search it, perhaps.
    pub fn attributes(number: InodeNumber, tighter: bool) -> Touched {
        Touched {
            number,
            via: None,
            unlinked: false,
            attributes: true,
            deep: tighter,
            whole: false,
        }
    }

    /// Everything, after a crash.
    pub fn all() -> Touched {
        Touched {
            whole: true,
            ..Touched::attributes(ROOT_INODE, true)
        }
    }

    /// It has a name in another directory.
    pub fn moved(dentry: Dentry, to: InodeNumber) -> Touched {
        Touched {
            number: dentry.inode,
            via: Some(to),
            unlinked: false,
            attributes: false,
            deep: dentry.kind == FileKind::Directory,
            whole: false,
        }
    }

    /// A name of it is gone, and others are left.
    fn unlinked(number: InodeNumber) -> Touched {
        Touched {
            number,
            via: None,
            unlinked: true,
            attributes: false,
            deep: false,
            whole: false,
        }
    }
}

/// A page of an inode's index.
struct IndexPage {
    pointer: PagePtr,
    /// 0: what the index leads to; above: index pages.
    level: u32,
    /// First page number that it covers.
    first: u64,
}

/// All pages of an index, those that lead to others first.
fn index_pages(pages: &impl Pages, root: IndexRoot) -> Result<Vec<IndexPage>, Errno> {
    let mut found = Vec::new();
    let mut waiting = vec![IndexPage {
        pointer: PagePtr(root.pointer()),
        level: root.height(),
        first: 0,
    }];
    while let Some(at) = waiting.pop() {
        if at.pointer.is_null() {
            continue;
        }
        if let Some(below) = at.level.checked_sub(1) {
            let step = index::capacity(below);
            let words = pages.page(at.pointer).ok_or(Errno::IO)?;
            for (slot, word) in words.iter().enumerate() {
                waiting.push(IndexPage {
                    pointer: PagePtr(word.load(Ordering::Relaxed)),
                    level: below,
                    first: at.first + slot as u64 * step,
                });
            }
        }
        found.push(at);
    }
    Ok(found)
}

/// The chain of a bucket.
fn chain(pages: &impl Pages, first: PagePtr) -> Result<Vec<PagePtr>, Errno> {
    let mut found = Vec::new();
    let mut at = first;
    while !at.is_null() && found.len() < CHAIN_MAX {
        found.push(at);
        let page = pages.page(at).ok_or(Errno::IO)?;
        at = next_page(page);
    }
    Ok(found)
}

/// All pages of what is in an inode: names or data, index, extended attributes.
fn contents(pages: &impl Pages, inode: &Inode) -> Result<Vec<PagePtr>, Errno> {
    let mut found = Vec::new();
    for page in index_pages(pages, inode.root)? {
        if page.level == 0 && inode.kind() == Some(FileKind::Directory) {
            found.extend(chain(pages, page.pointer)?);
        } else {
            found.push(page.pointer);
        }
    }
    if !inode.attributes.is_null() {
        found.push(inode.attributes);
    }
    Ok(found)
}

/// The segments of a file's data belong to its writer's user; those of another user's file go to
/// nobody else. For a change of owner.
pub fn note_user(change: &mut Change<'_>, inode: &Inode) -> Result<(), Errno> {
    if change.state.space.shared && inode.kind() != Some(FileKind::Directory) {
        for page in contents(change, inode)? {
            change.note_user(page, inode.uid);
        }
    }
    Ok(())
}

/// Copies data pages, through mappings of their segments.
#[derive(Default)]
struct Copier {
    from: HashMap<SegmentNumber, Mapping>,
    to: HashMap<SegmentNumber, Mapping>,
}

impl Copier {
    fn copy(&mut self, state: &State, from: PagePtr, to: PagePtr) -> Result<(), Errno> {
        let geometry = state.pool.geometry();
        let map = |page: PagePtr, flags, options: MapOptions| {
            let name = numbered(layout::SEGMENTS, geometry.segment_of(page));
            let file = state.pool.open_file(&name, flags)?;
            let length = usize::try_from(geometry.segment_size).map_err(|_| Errno::NOMEM)?;
            let dax = state.pool.durability() == Durability::Dax;
            Mapping::new(&file, 0, length, options.synchronous(dax)).map_err(|e| e.errno())
        };
        let source = match self.from.entry(geometry.segment_of(from)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(map(from, OFlags::RDONLY, MapOptions::READ_ONLY)?),
        };
        let target = match self.to.entry(geometry.segment_of(to)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(map(to, OFlags::RDWR, MapOptions::READ_WRITE)?),
        };
        let within = |page: PagePtr| (page.address() % geometry.segment_size) as usize;
        let mut bytes = [0u8; PAGE_SIZE as usize];
        // The session that has it may have truncated the file.
        source
            .bytes()
            .try_copy_to(within(from), &mut bytes)
            .map_err(|error| error.errno())?;
        let target = target.bytes();
        target
            .stream_from(within(to), &bytes)
            .and_then(|()| target.slice(within(to), bytes.len()))
            .map_or(Err(Errno::IO), |range| state.pool.write_back(range))
    }
}

/// Moves what is in an inode to a class.
struct Mover<'a> {
    /// To which.
    class: Option<Class>,
    /// Whether a data page may stay that has this label.
    stays: &'a dyn Fn(&State, u32) -> bool,
    copier: Copier,
    /// Data pages that the inode has left; they are not free yet.
    left: Vec<PagePtr>,
}

impl Mover<'_> {
    fn contents(&mut self, change: &mut Change<'_>, number: InodeNumber) -> Result<(), Errno> {
        let mut inode = change.inode(number).ok_or(Errno::STALE)?;
        let label = change.state.classes.label(self.class.as_ref());
        change.allocate_for_class(label);
        let is_directory = inode.kind() == Some(FileKind::Directory);
        let mut setter = Setter::new(IndexRoot::EMPTY);
        let pages = index_pages(change, inode.root)?;
        for page in &pages {
            if page.level != 0 {
                continue;
            }
            let new = if is_directory {
                bucket(change, page.pointer)?
            } else {
                self.data(change, page.pointer)?
            };
            setter.set(change, page.first, new)?;
        }
        for page in pages.iter().filter(|page| page.level != 0) {
            change.move_page(page.pointer);
        }
        inode.root = setter.root();
        if !inode.attributes.is_null() {
            inode.attributes = self.data(change, inode.attributes)?;
        }
        arck_pm::fence();
        change.set_inode(inode);
        Ok(())
    }

    fn data(&mut self, change: &mut Change<'_>, old: PagePtr) -> Result<PagePtr, Errno> {
        if (self.stays)(change.state, change.state.space.label_of(old)) {
            return Ok(old);
        }
        let new = change.new_data_page()?;
        self.copier.copy(change.state, old, new)?;
        self.left.push(old);
        Ok(new)
    }
}

/// Moves the chain of a bucket.
fn bucket(change: &mut Change<'_>, first: PagePtr) -> Result<PagePtr, Errno> {
    let mut next = PagePtr::NULL;
    for &old in chain(change, first)?.iter().rev() {
        let new = change.copy_page(old)?;
        BucketPage(change.edit(new)?).set_next(next);
        change.move_page(old);
        next = new;
    }
    Ok(next)
}

/// What one run of [`Core::tighten`] knows already, so that its work follows from how much there is
/// to look at: not from how often it is named, nor from how deep it lies.
#[derive(Default)]
struct Seen {
    /// Who may search a directory and all above; as long as no rights change.
    search: HashMap<InodeNumber, Option<Class>>,
    /// Directories of which all that is in them has been looked at (`true`: whether its place is
    /// right or not), and who could search them then.
    within: HashMap<(InodeNumber, bool), Option<Class>>,
}

impl Seen {
    /// As [`Class::of_search`].
    fn search_class(&mut self, state: &State, directory: InodeNumber) -> Option<Class> {
        let mut above = Vec::new();
        let mut at = directory;
        let mut class = loop {
            if let Some(known) = self.search.get(&at) {
                break known.clone();
            }
            // Damage, a cycle too: nobody's.
            let inode = state.inode(at).filter(|_| above.len() < 1 << 20)?;
            above.push(inode);
            if at == ROOT_INODE {
                break Some(Class::world());
            }
            at = inode.parent;
        };
        for inode in above.iter().rev() {
            class = class.and_then(|class| class.and(Condition::of(inode, Wish::Search)));
            self.search.insert(inode.number, class.clone());
        }
        class
    }
}

impl Core {
    /// What is to stay free for folds, for who allocates pages of a class.
    pub fn note_kept(&mut self) {
        if !self.state.space.shared {
            return;
        }
        self.state.space.kept = self.kept_pages();
        if !self.state.space.has_segment_for_class() {
            // Room that sessions do not use keeps no class from having a segment.
            self.lower_rooms();
            self.state.space.kept = self.kept_pages();
        }
    }

    /// Space for what a user will make, while there is plenty: where the pool fills, what folds
    /// promise keeps classes from getting segments.
    pub fn prepare_classes(&mut self, who: &Credentials) {
        if !self.state.space.shared || self.state.is_privileged(who) {
            return;
        }
        for class in [Class::world(), Class::only(who.uid)] {
            self.note_kept();
            let label = self.state.classes.label(Some(&class));
            if label == NOBODY || !self.state.space.lacks(label) {
                continue;
            }
            let mut change = Change::new(&mut self.state);
            let added = change.add_segment_of(SegmentKind::Metadata, label);
            if let Err(errno) = added.and_then(|()| change.commit(Weight::Fold)) {
                tracing::warn!("no segment for what user {} makes: {errno}", who.uid);
            }
        }
    }

    fn who(&self, session: SessionNumber) -> Result<Credentials, Errno> {
        let session = self.sessions.get(&session).ok_or(Errno::NOENT)?;
        Ok(session.credentials.clone())
    }

    /// See [`arck_protocol::Request::LookUp`].
    pub fn look_up(
        &mut self,
        session: SessionNumber,
        directory: InodeNumber,
        name: &[u8],
    ) -> Reply {
        match self.try_look_up(session, directory, name) {
            Ok(None) => Reply::Now(Response::Done),
            Ok(Some(dentry)) => Reply::Now(Response::Found {
                inode: dentry.inode,
                generation: dentry.generation,
                kind: dentry.kind as u8,
            }),
            Err(errno) => errno.into(),
        }
    }

    fn try_look_up(
        &mut self,
        session: SessionNumber,
        directory: InodeNumber,
        name: &[u8],
    ) -> Result<Option<Dentry>, Errno> {
        let who = self.who(session)?;
        let inode = *self.state.shadow(directory).ok_or(Errno::STALE)?;
        if inode.kind() != Some(FileKind::Directory) {
            return Err(Errno::NOTDIR);
        }
        if !self.state.may_search(&who, directory) {
            return Err(Errno::ACCESS);
        }
        let found = self.state.lookup(directory, name);
        if let Some(dentry) = found
            && !self
                .state
                .admits(self.state.label_of_inode(dentry.inode), &who)
        {
            let class = Class::of_search(|number| self.state.inode(number), directory);
            self.move_place(dentry.inode, class.as_ref())?;
        }
        if who.may(&inode, 4) {
            // Its names one by one will do, if it is full.
            let _ = self.admit_contents(&who, directory);
        }
        Ok(found)
    }

    /// See [`arck_protocol::Request::Admit`].
    pub fn admit(&mut self, session: SessionNumber, number: InodeNumber, contents: bool) -> Reply {
        let admitted = self.who(session).and_then(|who| {
            let inode = *self.state.shadow(number).ok_or(Errno::STALE)?;
            if !self.state.may_reach(&who, number) {
                return Err(Errno::ACCESS);
            }
            if !self.state.admits(self.state.label_of_inode(number), &who) {
                // A directory: of all else the class of its place has just been asked.
                let class = match number {
                    ROOT_INODE => Some(Class::world()),
                    _ => Class::of_search(|number| self.state.inode(number), inode.parent),
                };
                self.move_place(number, class.as_ref())?;
            }
            if contents {
                self.admit_contents(&who, number)?;
            }
            Ok(())
        });
        admitted.into()
    }

    /// Moves an inode to a place of a class; ENOSPC if that class has none.
    fn move_place(&mut self, number: InodeNumber, class: Option<&Class>) -> Result<(), Errno> {
        self.note_kept();
        let label = self.state.classes.label(class);
        self.change_inode(number, |change| {
            change.allocate_for_class(label);
            change.move_inode(number)
        })?;
        if self.state.label_of_inode(number) == label {
            Ok(())
        } else {
            Err(Errno::NOSPC)
        }
    }

    fn admit_contents(&mut self, who: &Credentials, number: InodeNumber) -> Result<(), Errno> {
        let inode = *self.state.shadow(number).ok_or(Errno::STALE)?;
        if self.state.is_privileged(who) {
            return Ok(());
        }
        if inode.kind() != Some(FileKind::Link) && !who.may(&inode, 4) {
            return Err(Errno::ACCESS);
        }
        let stays = |state: &State, label: u32| state.classes.admits(label, who);
        let outside = |page: &PagePtr| !stays(&self.state, self.state.space.label_of(*page));
        if !contents(&self.state, &inode)?.iter().any(outside) {
            return Ok(());
        }
        self.refuse_moving(number)?;
        self.move_contents(number, None, &stays).map(|_| ())
    }

    /// EBUSY if an inode is in a writable shared map of a session that may write it: it keeps its
    /// pages, since what is stored through the map goes to them.
    fn refuse_moving(&self, number: InodeNumber) -> Result<(), Errno> {
        heavy_barrier();
        // There is no session 0: any.
        match self.is_mapped_writable(0, number) {
            true => Err(Errno::BUSY),
            false => Ok(()),
        }
    }

    /// Whether any session has a map of an inode. After a barrier.
    fn is_mapped(&self, number: InodeNumber) -> bool {
        let copy = self.state.header_copy(number);
        let generation = copy.map_or(0, |copy| copy.generation);
        !self
            .mapped(&BTreeSet::from([(number, generation)]))
            .is_empty()
    }

    /// Moves an inode to `place`, if that is said, and what is in it to the class that follows
    /// from its place and mode. Gives the data pages that it left, which are not free.
    fn move_contents(
        &mut self,
        number: InodeNumber,
        place: Option<u32>,
        stays: &dyn Fn(&State, u32) -> bool,
    ) -> Result<Vec<PagePtr>, Errno> {
        self.note_kept();
        let mut mover = Mover {
            class: None,
            stays,
            copier: Copier::default(),
            left: Vec::new(),
        };
        let frees = place.is_none();
        let keeps = frees && self.is_mapped(number);
        self.change_inode(number, |change| {
            mover.left.clear();
            if keeps {
                change.keep_pages_of(number);
            }
            if let Some(label) = place {
                change.allocate_for_class(label);
                change.move_inode(number)?;
            }
            let inode = change.inode(number).ok_or(Errno::STALE)?;
            mover.class = change.read_class(&inode);
            mover.contents(change, number)?;
            if frees {
                for &page in &mover.left {
                    change.drop_data_page(number, page);
                }
            }
            Ok(())
        })?;
        Ok(mover.left)
    }

    /// A change of one inode, with the fold of what its owner has changed of it.
    fn change_inode(
        &mut self,
        number: InodeNumber,
        mut what: impl FnMut(&mut Change<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let header = self.state.header_copy(number).ok_or(Errno::STALE)?;
        let owner = header.ownership.session();
        if owner != 0 && header.kind == HeaderKind::Alive {
            match self.fold_and(owner, &[number], After::Renew, |change, _| what(change)) {
                Ok(()) => return Ok(()),
                Err(Failure::Errno(errno)) => return Err(errno),
                // Its delta is refused: the verified state changes alone.
                Err(Failure::Violation(_) | Failure::Unsettled(_)) => {}
            }
        }
        let mut keepers = Vec::new();
        let changed = self.change_alone(|change, _| {
            what(change)?;
            keepers = maps::keep_pages(change)?;
            Ok(())
        });
        match changed {
            Ok(()) => {
                for (keeper, of) in keepers {
                    self.state.orphans.insert(keeper);
                    self.state.keepers.insert(keeper, (of, header.generation));
                }
                Ok(())
            }
            Err(Failure::Errno(errno)) => Err(errno),
            Err(_) => Err(Errno::IO),
        }
    }

    /// What a fold is about to change that may tighten a class.
    pub(crate) fn touched_by(&self, changes: &Changes) -> Vec<Touched> {
        let mut touched = Vec::new();
        let mut unlinked = Vec::new();
        if !self.state.space.shared {
            return touched;
        }
        for inode in &changes.inodes {
            if let (Some(mode), Some(old)) = (inode.mode, self.state.shadow(inode.inode)) {
                let mut new = *old;
                new.mode = new.mode & !0o7777 | mode & 0o7777;
                let class = |inode| Class::world().and(Condition::of(inode, Wish::Search));
                let wider = match (class(old), class(&new)) {
                    (None, _) => true,
                    (Some(_), None) => false,
                    (Some(old), Some(new)) => old.implies(&new),
                };
                touched.push(Touched::attributes(inode.inode, !wider));
            }
            for (_, dentry) in &inode.names_removed {
                // One that had no other name is an orphan now, or has got a name with the same fold.
                let others = self.state.shadow(dentry.inode).map_or(0, |old| old.links);
                if others > 1 && dentry.kind != FileKind::Directory {
                    unlinked.push(Touched::unlinked(dentry.inode));
                }
            }
            for (_, dentry) in &inode.names_added {
                // One that is born here is born in its class; a directory stays with its parent.
                let lives = self.state.shadow(dentry.inode).is_some();
                if lives && dentry.kind != FileKind::Directory {
                    touched.push(Touched::moved(*dentry, inode.inode));
                }
            }
        }
        touched.append(&mut unlinked);
        touched
    }

    /// Puts what may have got a tighter class where only those in it can read it, directories with
    /// all that is beneath. Takes as long as there is to look at and to move.
    ///
    /// What moves is folded, which may make classes tighter in turn. That waits its turn here: a
    /// session can close thousands of directories within each other, and the stack is finite.
    pub(crate) fn tighten(&mut self, touched: Vec<Touched>) {
        if !self.state.space.shared {
            return;
        }
        self.touched.extend(touched);
        if std::mem::replace(&mut self.tightening, true) {
            return;
        }
        let mut seen = Seen::default();
        while let Some(at) = self.touched.pop() {
            let waiting = self.touched.len();
            if let Err(errno) = self.tighten_one(&at, &mut seen) {
                tracing::error!("inode {}: others may still read it: {errno}", at.number);
                self.hide_contents(at.number);
            }
            if self.touched.len() > waiting {
                seen.search.clear();
            }
            if at.deep {
                self.look_within(&at, &mut seen);
            }
        }
        self.tightening = false;
    }

    /// All that is in a directory is to be looked at, unless it has been since its class changed.
    fn look_within(&mut self, at: &Touched, seen: &mut Seen) {
        let Some(inode) = self.state.directory(at.number).copied() else {
            return;
        };
        let class = seen.search_class(&self.state, at.number);
        let key = (at.number, at.whole);
        if seen.within.get(&key) == Some(&class) {
            return;
        }
        seen.within.insert(key, class);
        let mut found = Vec::new();
        for place in 0..buckets(&inode) {
            // What is damaged has been logged.
            let _ = for_each_in_bucket(&self.state, inode.root, place, |dentry, _, _, _, _| {
                found.push(Touched {
                    attributes: at.whole,
                    whole: at.whole,
                    ..Touched::moved(dentry, at.number)
                });
            });
        }
        self.touched.append(&mut found);
    }

    fn tighten_one(&mut self, at: &Touched, seen: &mut Seen) -> Result<(), Errno> {
        let number = at.number;
        let Some(inode) = self.state.shadow(number).copied() else {
            return Ok(());
        };
        let label = self.state.label_of_inode(number);
        let parent = match inode.kind() {
            Some(FileKind::Directory) if number == ROOT_INODE => None,
            Some(FileKind::Directory) => Some(inode.parent),
            _ => at.via,
        };
        let place = match parent {
            Some(directory) => seen.search_class(&self.state, directory),
            // The root's, or the class that it had.
            None if number == ROOT_INODE => Some(Class::world()),
            // Who may read it by the names that are left is not known here: it is its owner's until
            // somebody asks by one of them.
            None if at.unlinked => {
                let class = self.state.classes.get(label).cloned();
                class.and_then(|class| class.and(Condition::only(inode.uid)))
            }
            None => self.state.classes.get(label).cloned(),
        };
        let moves = !self.state.classes.is_within(label, place.as_ref());
        if !moves && !at.attributes {
            return Ok(());
        }
        let read = match inode.kind() {
            Some(FileKind::Link) => place.clone(),
            _ => place
                .clone()
                .and_then(|class| class.and(Condition::of(&inode, Wish::Read))),
        };
        let within = |classes: &Classes, label| classes.is_within(label, read.as_ref());
        let outside =
            |page: &PagePtr| !within(&self.state.classes, self.state.space.label_of(*page));
        let has_outside = contents(&self.state, &inode)?.iter().any(outside);
        if !moves && !has_outside {
            return Ok(());
        }
        let new_label = match moves {
            true => self.state.classes.label(place.as_ref()),
            false => label,
        };
        let stays_mapped = has_outside && self.refuse_moving(number).is_err();
        if !has_outside || stays_mapped {
            if moves {
                self.note_kept();
                self.change_inode(number, |change| {
                    change.allocate_for_class(new_label);
                    change.move_inode(number)
                })?;
            }
            if stays_mapped {
                // Whoever can see it already goes on, as with any map; nobody else will.
                self.hide_contents(number);
            }
            return Ok(());
        }
        let stays = |state: &State, label: u32| within(&state.classes, label);
        match self.move_contents(number, Some(new_label), &stays) {
            Ok(left) => self.empty_and_free(&left),
            Err(Errno::NOSPC) => {
                // No room for its data, which somebody may have seen to. For metadata some is kept:
                // nobody is shown attributes and names any more, or let in by the inode's place.
                self.move_contents(number, Some(new_label), &|_, _| true)?;
                Err(Errno::NOSPC)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Punches pages that nothing refers to any more, so that even a mapping that was kept shows
    /// nothing, and then frees them. What fails with one page (a session can use up the memory of
    /// the pool's file system) leaves the others as they should be: that page stays out of use.
    fn empty_and_free(&mut self, pages: &[PagePtr]) -> Result<(), Errno> {
        if pages.is_empty() {
            return Ok(());
        }
        let geometry = self.state.pool.geometry();
        let file = |page: PagePtr| {
            let name = numbered(layout::SEGMENTS, geometry.segment_of(page));
            let file = self.state.pool.open_file(&name, OFlags::RDWR)?;
            Ok::<_, Errno>((file, page.address() % geometry.segment_size))
        };
        let punch = |page: PagePtr| {
            let (file, at) = file(page)?;
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, punch, at, PAGE_SIZE)
        };
        let allocate = |page: PagePtr| {
            let (file, at) = file(page)?;
            crate::pool::allocate(&file, at, PAGE_SIZE)
        };
        // All of them before any is allocated again, which is what can fail.
        let (mut empty, shown): (Vec<PagePtr>, Vec<PagePtr>) =
            pages.iter().partition(|&&page| punch(page).is_ok());
        let emptied = empty.len();
        empty.retain(|&page| allocate(page).is_ok());
        if empty.len() < pages.len() {
            tracing::error!(
                "{} pages that moved cannot be used again; of them, {} can still be read by who \
                 could before",
                pages.len() - empty.len(),
                pages.len() - emptied
            );
        }
        self.hide_segments(&shown);
        let mut change = Change::new(&mut self.state);
        for page in empty {
            change.set_data_page_used(page, false);
        }
        change.commit(Weight::Fold)
    }

    /// See [`hide_segments`](Self::hide_segments); of what is in an inode.
    fn hide_contents(&mut self, number: InodeNumber) {
        if let Some(inode) = self.state.shadow(number).copied() {
            let pages = contents(&self.state, &inode).unwrap_or_default();
            self.hide_segments(&pages);
        }
    }

    /// Where pages could not be moved: nobody is sent their data segments from now on, until they
    /// have been.
    fn hide_segments(&mut self, pages: &[PagePtr]) {
        let geometry = self.state.pool.geometry();
        let segments: BTreeSet<SegmentNumber> = pages
            .iter()
            .map(|&page| geometry.segment_of(page))
            .collect();
        if segments.is_empty() {
            return;
        }
        let mut change = Change::new(&mut self.state);
        for segment in segments {
            if let Some(entry) = change.state.space.entry(segment)
                && entry.kind() == SegmentKind::Data
                && entry.class != NOBODY
            {
                // Those who have it go on seeing it: nothing else is put there.
                let uid = match entry.uid {
                    CONTROLLER => HIDDEN,
                    uid => uid,
                };
                let hidden = SegmentEntry {
                    class: NOBODY,
                    uid,
                    ..entry
                };
                change.set_segment(segment, hidden);
            }
        }
        if let Err(errno) = change.commit(Weight::Fold) {
            tracing::error!("segments of what could not be moved stay as they are: {errno}");
        }
    }
}
