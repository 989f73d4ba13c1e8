//! Moving what is in an inode to segments of its class (DESIGN section 3, "Read class").
//!
//! Where a page lies says who may read it. It is put right at creation; this is for what comes after:
//! somebody may read a file who cannot map it (its class became wider, or its data was written into
//! a segment of its writer's), or somebody still can map what he may not read any more.
//!
//! # Invariants
//! * Whoever is in the class of a page's segment may search every directory on one path to its
//!   inode, as the permissions are now, and, if it is not the inode itself, read the inode; or he
//!   is the user who wrote the page. Between a change of permissions and the end of its
//!   [closing](super::closing) those who could may still do.
//! * What moves because a class became tighter leaves zeroes behind: metadata when the change is
//!   done; of data a hole is punched before the page is free, because its owner uses it again as
//!   soon as it is.
//! * An owner's delta is folded in the same step, and its fold number ends: a store of its own into
//!   a page that moves is made again.

use crate::access::Access;
use crate::fold::folding::{After, Failure};
pub(crate) use crate::fold::pages::Copier;
use crate::fold::pages::{Mover, contents};
use crate::fold::refusals::QUIESCE_ATTEMPTS;
use crate::sessions::maps;
use crate::state::change::Change;
use crate::state::classes::Class;
use crate::state::marks::{heavy_barrier, unmark};
use crate::state::tables::State;
use arck_controller_state::segments::{CONTROLLER, HIDDEN, SegmentKind};
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, Inode, InodeNumber, Mediation, PagePtr};
use arck_protocol::operation::mark;
use rustix::io::Errno;
use std::time::Duration;

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

/// Whether a data page is in a segment that a session was sent to write.
pub fn was_lent(state: &State, page: PagePtr) -> bool {
    let segment = state.pool.geometry().segment_of(page);
    state.space.entry(segment).is_some_and(|entry| {
        entry.kind() == SegmentKind::Data && !matches!(entry.uid, CONTROLLER | HIDDEN)
    })
}

impl Access<'_> {
    /// Moves an inode to a place of a class; ENOSPC if that class has none.
    pub fn move_place(&mut self, number: InodeNumber, class: Option<&Class>) -> Result<(), Errno> {
        self.freeing().note_kept();
        if let Some(inode) = self
            .sessions
            .state
            .directory(number)
            .is_none()
            .then(|| self.sessions.state.shadow(number))
            .flatten()
            .copied()
        {
            // Of a file with names in several classes: who has it open by another name goes on.
            self.sessions.note_leaving(&inode, &inode, class);
        }
        let label = self.sessions.state.label(class);
        let moved = self.change_inode(number, |change| {
            change.allocate_for_class(label);
            change.move_inode(number)
        });
        self.sessions.keep_rights();
        moved?;
        if self.sessions.state.label_of_inode(number) == label {
            Ok(())
        } else {
            Err(Errno::NOSPC)
        }
    }

    /// Moves an inode to `place`, if that is said, and what is in it to the class that follows
    /// from its place and mode. Gives the data pages that it left, which are not free.
    pub fn move_contents(
        &mut self,
        number: InodeNumber,
        place: Option<u32>,
        stays: &dyn Fn(&State, PagePtr) -> bool,
    ) -> Result<Vec<PagePtr>, Errno> {
        self.freeing().note_kept();
        let mut mover = Mover {
            class: None,
            stays,
            copier: Copier::default(),
            left: Vec::new(),
        };
        let frees = place.is_none();
        let keeps = frees && self.sessions.is_mapped_before_change(number);
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
        let header = self
            .sessions
            .state
            .header_copy(number)
            .ok_or(Errno::STALE)?;
        let owner = header.ownership.session();
        if owner != 0 && matches!(header.kind, HeaderKind::Alive | HeaderKind::Orphan) {
            let mut attempts = 0;
            loop {
                match self.fold_and(owner, &[number], After::Renew, |change, _| what(change)) {
                    Ok(()) => return Ok(()),
                    Err(Failure::Errno(errno)) => return Err(errno),
                    Err(Failure::Quiescing(_)) if attempts < QUIESCE_ATTEMPTS => {
                        attempts += 1;
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Err(failure @ Failure::Quiescing(_)) => {
                        self.take_away(owner, number, &failure);
                        break;
                    }
                    Err(Failure::Violation(_)) => {
                        if let Some(header) = self.sessions.state.pool.header(number) {
                            mark(header);
                        }
                        heavy_barrier();
                        let patience = self.sessions.options.patience;
                        if let Some(session) = self.sessions.all.get_mut(&owner) {
                            session.wait_in_flight(patience);
                        }
                        break;
                    }
                }
            }
        }
        let changed = self.change_verified(header.generation, &mut what);
        // Where the header does not change, the commit has left the mark.
        unmark(&self.sessions.state, [number]);
        changed
    }

    /// Says how sessions share a file that write it.
    pub(crate) fn set_mediation(
        &mut self,
        number: InodeNumber,
        mediation: Mediation,
    ) -> Result<(), Errno> {
        self.change_inode(number, |change| {
            let mut inode = change.inode(number).ok_or(Errno::STALE)?;
            inode.set_mediation(mediation);
            change.set_inode(inode);
            Ok(())
        })
    }

    fn change_verified(
        &mut self,
        generation: u32,
        what: &mut dyn FnMut(&mut Change<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut keepers = Vec::new();
        let changed = self.folding().change_alone(|change, _| {
            what(change)?;
            keepers = maps::keep_pages(change)?;
            Ok(())
        });
        match changed {
            Ok(()) => {
                for (keeper, of) in keepers {
                    self.sessions.state.orphans.insert(keeper);
                    self.sessions.state.keepers.insert(keeper, (of, generation));
                }
                Ok(())
            }
            Err(Failure::Errno(errno)) => Err(errno),
            Err(_) => Err(Errno::IO),
        }
    }
}
