//! Maps of files that sessions have: they keep their pages, and a writable one keeps other
//! sessions from changing the file.
//!
//! # Invariants
//! * A page that a fold takes from an inode of which another session has a map is not free: it
//!   goes to a *keeper*, an orphan made in the same change. Keepers are freed when no session has
//!   a map of the inode any more, and, as orphans are, when the pool is opened.
//! * A session lists a map, fences, and then looks whether the header is marked; here the header
//!   is marked, the heavy barrier issued, and then the tables are read. So either it waits for
//!   the fold, or the fold sees its map.
//! * While a session lists a writable map of a file that it may write, no other session becomes
//!   its owner. What it lists of anything else counts for nothing: anybody can claim anything. How
//!   many pages are kept for a user is bounded ([`crate::freeing::orphans`]).

use crate::sessions::Sessions;
use crate::sessions::session::Session;
use crate::space::number_set::NumberSet;
use crate::state::apply::file::Setter;
use crate::state::change::Change;
use crate::state::marks::heavy_barrier;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::{
    FileKind, IndexRoot, Inode, InodeNumber, Ownership, PAGE_SIZE, PagePtr, cast,
};
use arck_protocol::control::{MAP_WRITABLE, map_entry};
use arck_protocol::operation::mark;
use arck_verifier::VerifiedState;
use foldhash::HashMap;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{Ordering, fence};

/// Inodes with their generations, and the sessions that list maps of them.
pub type Mapped = HashMap<(InodeNumber, u32), Vec<SessionNumber>>;

/// An orphan that keeps pages, and the inode whose they were.
pub type Keeper = (InodeNumber, InodeNumber);

impl Sessions {
    /// Whether a session other than `session` lists a writable map of the inode. After a barrier.
    pub fn is_mapped_writable(&self, session: SessionNumber, number: InodeNumber) -> bool {
        let Some(generation) = self.generation(number) else {
            return false;
        };
        let wanted = map_entry(number, generation, true);
        others(&self.all, session)
            .any(|(who, entries)| entries.contains(&wanted) && self.may_map(who, number))
    }

    /// Whether a session's writable map of an inode is to be reckoned with: of directories and
    /// links there are none, and of files for those who may write them.
    fn may_map(&self, who: SessionNumber, number: InodeNumber) -> bool {
        let kind = self.state.inode(number).and_then(|inode| inode.kind());
        kind == Some(FileKind::File) && self.may_open(who, number, 0o2)
    }

    /// Those of the inodes of which any session says that it has a map, and which do. After a
    /// barrier.
    pub fn mapped(&self, wanted: &BTreeSet<(InodeNumber, u32)>) -> Mapped {
        // There is no session 0: all are others.
        if self.any_away() {
            let away = || self.all.values().filter(|s| s.is_away);
            let of = |&inode: &(InodeNumber, u32)| (inode, away().map(|s| s.number).collect());
            return wanted.iter().map(of).collect();
        }
        mapped(&self.all, 0, |number, generation| {
            wanted.contains(&(number, generation))
        })
    }

    fn generation(&self, number: InodeNumber) -> Option<u32> {
        Some(self.state.pool.header(number)?.generation())
    }
}

/// The inodes of a fold set of which sessions other than `session` have maps. After a barrier.
pub fn mapped_by_others(
    sessions: &BTreeMap<SessionNumber, Session>,
    session: SessionNumber,
    set: &NumberSet,
) -> Mapped {
    let mut found = mapped(sessions, session, |number, _| set.contains(number));
    let away = sessions
        .values()
        .filter(|s| s.is_away && s.number != session);
    for away in away {
        // It may have maps of any of them.
        for number in set.iter() {
            found.entry((number, 0)).or_default().push(away.number);
        }
    }
    found
}

fn others(
    sessions: &BTreeMap<SessionNumber, Session>,
    session: SessionNumber,
) -> impl Iterator<Item = (SessionNumber, Vec<u64>)> {
    sessions
        .iter()
        .filter(move |(number, _)| **number != session)
        .filter_map(|(&number, session)| Some((number, session.live.as_ref()?)))
        .map(|(number, live)| {
            let maps = live.control().maps().iter();
            let entries = maps.map(|entry| entry.load(Ordering::Acquire)).collect();
            (number, entries)
        })
}

fn mapped(
    sessions: &BTreeMap<SessionNumber, Session>,
    session: SessionNumber,
    is_wanted: impl Fn(InodeNumber, u32) -> bool,
) -> Mapped {
    let mut found = Mapped::default();
    for (who, entries) in others(sessions, session) {
        for entry in entries.into_iter().filter(|&entry| entry != 0) {
            let entry = entry & !MAP_WRITABLE;
            let (number, generation) = (cast::low(entry), cast::high(entry));
            if is_wanted(number, generation) {
                let sessions = found.entry((number, generation)).or_default();
                if sessions.last() != Some(&who) {
                    sessions.push(who);
                }
            }
        }
    }
    found
}

/// Gives the pages that mapped inodes lose to keepers, in the same change.
pub fn keep_pages(change: &mut Change<'_>) -> Result<Vec<Keeper>, Errno> {
    let mut keepers = Vec::new();
    for (of, pages) in change.take_kept() {
        let keeper = make_keeper(change, of, &pages)?;
        keepers.push((keeper, of));
    }
    Ok(keepers)
}

fn make_keeper(
    change: &mut Change<'_>,
    of: InodeNumber,
    pages: &[PagePtr],
) -> Result<InodeNumber, Errno> {
    let number = change.take_number()?;
    change.allocate_for_class(crate::state::classes::NOBODY);
    change.state.pool.allocate_headers(number)?;
    let fold = change.state.numbers.fold();
    let kept_generation = change.header(of)?.generation;
    let generation = change.header(number)?.generation.max(1);
    let mut setter = Setter::new(IndexRoot::EMPTY);
    for (place, &page) in pages.iter().enumerate() {
        setter.set(change, place as u64, page)?;
        change.set_data_page_used(page, true);
    }
    let address = change.place_inode(Inode {
        number,
        generation,
        mode: FileKind::File.mode_bits(),
        links: 0,
        uid: 0,
        gid: 0,
        size: pages.len() as u64 * PAGE_SIZE,
        root: setter.root(),
        accessed: 0,
        modified: 0,
        changed: 0,
        created: 0,
        pages: pages.len() as u64,
        // For a controller that comes after this one.
        parent: of,
        entries: kept_generation,
        mediation: 0,
        reserved0: 0,
        attributes: PagePtr::NULL,
        reserved: [0; 3],
    })?;
    let header = change.header(number)?;
    header.inode = address;
    header.kind = HeaderKind::Orphan;
    header.file_kind = Some(FileKind::File);
    header.generation = generation;
    header.ownership = Ownership::SHARED;
    header.branch_slot = 0;
    header.fold = fold;
    Ok(number)
}

/// Whose pages an orphan keeps, if it is a keeper: of files, only keepers have a parent.
pub fn kept_for(inode: &Inode) -> Option<(InodeNumber, u32)> {
    let is_keeper = inode.kind() == Some(FileKind::File) && inode.links == 0 && inode.parent != 0;
    is_keeper.then_some((inode.parent, inode.entries))
}

impl Sessions {
    /// EBUSY if an inode is in a writable shared map of a session that may write it: it keeps its
    /// pages, since what is stored through the map goes to them.
    pub(crate) fn refuse_moving(&self, number: InodeNumber) -> Result<(), Errno> {
        let header = self.state.header_copy(number);
        if header.is_none_or(|header| header.ownership.session() != 0) {
            // Whoever owns it may have listed a map this moment. Where nobody does, all that are listed were before the
            // message by which their session became its owner, or before the barrier by which it was that no longer.
            heavy_barrier();
        }
        // There is no session 0: any.
        match self.is_mapped_writable(0, number) {
            true => Err(Errno::BUSY),
            false => Ok(()),
        }
    }

    /// Whether any session has a map of an inode that is going to lose pages. One that nobody owns is marked from then on,
    /// until the [change](crate::access::Access::change_inode) is done: who maps it lists that, and then looks whether it is
    /// marked, so either he waits, or he is seen here. (One that is owned is marked by the fold that goes with the change.)
    pub(crate) fn is_mapped_before_change(&self, number: InodeNumber) -> bool {
        if let Some(header) = self.state.pool.header(number)
            && header.ownership().session() == 0
        {
            mark(header);
            fence(Ordering::SeqCst);
        }
        self.is_mapped(number)
    }

    /// Whether any session has a map of an inode. After a barrier.
    pub(crate) fn is_mapped(&self, number: InodeNumber) -> bool {
        let copy = self.state.header_copy(number);
        let generation = copy.map_or(0, |copy| copy.generation);
        !self
            .mapped(&BTreeSet::from([(number, generation)]))
            .is_empty()
    }
}
