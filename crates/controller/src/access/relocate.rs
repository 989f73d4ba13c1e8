//! Moving what is in an inode to segments of its class (DESIGN section 3, "Read class").
//!
//! Where a page lies says who may read it. It is put right at birth; this is for what comes after:
//! somebody may read a file who cannot map it (its class became wider, or its data was written into
//! a segment of its writer's), or somebody still can map what he may not read any more.
//!
//! # Invariants
//! * Whoever is in the class of a page's segment may search every directory on one path to its
//!   inode, as the permissions are now, and, if it is not the inode itself, read the inode; or he
//!   is the user who wrote the page. Between a change of permissions and the end of its
//!   [closing](closing) those who could may still do.
//! * What moves because a class became tighter leaves zeroes behind: metadata when the change is
//!   done; of data a hole is punched before the page is free, because its owner uses it again as
//!   soon as it is.
//! * An owner's delta is folded in the same step, and its fold number ends: a store of its own into
//!   a page that moves is made again.

mod admitting;
pub(crate) mod closing;
pub(crate) mod emptying;
mod leftovers;
mod pages;
mod parts;
pub(crate) mod tails;
#[cfg(test)]
mod tests;
mod tighten;

use crate::core::Core;
use crate::fold::folding::{After, Failure, heavy_barrier, unmark};
use crate::fold::ownership::Reply;
use crate::fold::refusals::UNSETTLED_MAX;
use crate::freeing::maps;
use crate::state::change::{Change, Weight};
use crate::state::classes::{Class, Condition, NOBODY, Wish};
use crate::state::tables::State;
pub(crate) use admitting::{NoRoom, Relabellings};
use arck_controller_state::segments::SegmentKind;
use arck_core_state::directory::Dentry;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, Inode, InodeNumber, PagePtr, ROOT_INODE};
use arck_protocol::Response;
use arck_protocol::operation::mark;
use arck_verifier::{Changes, Credentials, VerifiedState};
pub(crate) use pages::Copier;
use pages::{Mover, contents};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// An inode whose class may be tighter than it was.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    number: InodeNumber,
    /// 0: any.
    generation: u32,
    /// A directory in which it has a name, and which.
    via: Option<InodeNumber>,
    name: Box<[u8]>,
    /// It has lost a name, and has others.
    unlinked: bool,
    /// Its own mode or owner has changed.
    attributes: bool,
    /// As it was, if that has.
    old: Option<Inode>,
    /// Of a directory: with all that is beneath.
    deep: bool,
    /// What is in everything beneath is looked at, whether its place is right or not.
    whole: bool,
    /// Of a directory: the first of its buckets that has not been looked into.
    from: u64,
    /// What is in it alone, from there on (of a file: from that page on): the inode has its place.
    contents: bool,
    /// There was no room for its data: nobody is sent that from now on.
    hides: bool,
}

impl Touched {
    /// Its mode or owner has changed; it was `old`. `tighter`: so that fewer may search it, perhaps.
    pub fn attributes(number: InodeNumber, old: Option<Inode>, tighter: bool) -> Touched {
        Touched {
            number,
            old,
            attributes: true,
            deep: tighter,
            ..Touched::default()
        }
    }

    /// Everything, after a crash.
    pub fn all() -> Touched {
        Touched {
            whole: true,
            ..Touched::attributes(ROOT_INODE, None, true)
        }
    }

    /// It has a name in another directory.
    pub fn moved(dentry: Dentry, to: InodeNumber, name: &[u8]) -> Touched {
        Touched {
            number: dentry.inode,
            generation: dentry.generation,
            via: Some(to),
            name: name.into(),
            deep: dentry.kind == FileKind::Directory,
            ..Touched::default()
        }
    }

    /// What is in it is closed part by part: see [`parts`].
    fn contents(number: InodeNumber, generation: u32) -> Touched {
        Touched {
            number,
            generation,
            contents: true,
            ..Touched::default()
        }
    }

    /// A name of it is gone, and others are left.
    fn unlinked(number: InodeNumber) -> Touched {
        Touched {
            number,
            unlinked: true,
            ..Touched::default()
        }
    }
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
        if !self.state.space.has_segment_for_class() {
            self.give_back_segments();
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
            let label = self.state.label(Some(&class));
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
            let class = self.state.search_class(directory);
            let moved = self.move_place(dentry.inode, class.as_ref());
            if !self
                .state
                .admits(self.state.label_of_inode(dentry.inode), &who)
            {
                // Where there is no class or no room for it, it is told of by message.
                match moved {
                    Ok(()) | Err(Errno::NOSPC) => self.show(session, dentry.inode),
                    Err(errno) => return Err(errno),
                }
            }
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
                    _ => self.state.search_class(inode.parent),
                };
                self.move_place(number, class.as_ref())?;
            }
            match contents {
                true => self.admit_contents(&who, number),
                false => Ok(true),
            }
        });
        match admitted {
            Ok(true) => Ok(()).into(),
            // There is more of it than is moved at once.
            Ok(false) => Reply::Later(Instant::now()),
            Err(errno) => errno.into(),
        }
    }

    /// Moves an inode to a place of a class; ENOSPC if that class has none.
    fn move_place(&mut self, number: InodeNumber, class: Option<&Class>) -> Result<(), Errno> {
        self.note_kept();
        if let Some(inode) = self
            .state
            .directory(number)
            .is_none()
            .then(|| self.state.shadow(number))
            .flatten()
            .copied()
        {
            // Of a file with names in several classes: who has it open by another name goes on.
            self.note_leaving(&inode, &inode, class);
        }
        let label = self.state.label(class);
        let moved = self.change_inode(number, |change| {
            change.allocate_for_class(label);
            change.move_inode(number)
        });
        self.keep_rights();
        moved?;
        if self.state.label_of_inode(number) == label {
            Ok(())
        } else {
            Err(Errno::NOSPC)
        }
    }

    /// EBUSY if an inode is in a writable shared map of a session that may write it: it keeps its
    /// pages, since what is stored through the map goes to them.
    pub(crate) fn refuse_moving(&self, number: InodeNumber) -> Result<(), Errno> {
        heavy_barrier();
        // There is no session 0: any.
        match self.is_mapped_writable(0, number) {
            true => Err(Errno::BUSY),
            false => Ok(()),
        }
    }

    /// Whether any session has a map of an inode. After a barrier.
    pub(crate) fn is_mapped(&self, number: InodeNumber) -> bool {
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
        stays: &dyn Fn(&State, PagePtr) -> bool,
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

    /// A change of one inode, with the fold of what its owner has changed of it. If that is refused
    /// the verified state changes alone, when no operation is in flight that may yet store into
    /// pages that move; from an owner in the middle of one who does not come to an end, the inode is
    /// taken away, whose delta is set aside.
    pub(crate) fn change_inode(
        &mut self,
        number: InodeNumber,
        mut what: impl FnMut(&mut Change<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let header = self.state.header_copy(number).ok_or(Errno::STALE)?;
        let owner = header.ownership.session();
        if owner != 0 && matches!(header.kind, HeaderKind::Alive | HeaderKind::Orphan) {
            let mut unsettled = 0;
            loop {
                match self.fold_and(owner, &[number], After::Renew, |change, _| what(change)) {
                    Ok(()) => return Ok(()),
                    Err(Failure::Errno(errno)) => return Err(errno),
                    Err(Failure::Unsettled(_)) if unsettled < UNSETTLED_MAX => {
                        unsettled += 1;
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Err(failure @ Failure::Unsettled(_)) => {
                        self.take_away(owner, number, &failure);
                        break;
                    }
                    Err(Failure::Violation(_)) => {
                        if let Some(header) = self.state.pool.header(number) {
                            mark(header);
                        }
                        heavy_barrier();
                        let patience = self.options.patience;
                        if let Some(session) = self.sessions.get_mut(&owner) {
                            session.wait_in_flight(patience);
                        }
                        break;
                    }
                }
            }
        }
        let changed = self.change_verified(header.generation, &mut what);
        // Where the header does not change, the commit has left the mark.
        unmark(&self.state, &[number]);
        changed
    }

    fn change_verified(
        &mut self,
        generation: u32,
        what: &mut dyn FnMut(&mut Change<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
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
                    self.state.keepers.insert(keeper, (of, generation));
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
                touched.push(Touched::attributes(inode.inode, Some(*old), !wider));
            }
            for (_, dentry) in &inode.names_removed {
                // One that had no other name is an orphan now, or has got a name with the same fold.
                let others = self.state.shadow(dentry.inode).map_or(0, |old| old.links);
                if others > 1 && dentry.kind != FileKind::Directory {
                    unlinked.push(Touched::unlinked(dentry.inode));
                }
            }
            for (name, dentry) in &inode.names_added {
                // One that is born here is born in its class; a directory stays with its parent.
                let lives = self.state.shadow(dentry.inode).is_some();
                if lives && dentry.kind != FileKind::Directory {
                    touched.push(Touched::moved(*dentry, inode.inode, name));
                }
            }
        }
        touched.append(&mut unlinked);
        touched
    }
}
