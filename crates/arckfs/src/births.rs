//! Births: new inodes beside their first names, and the end of inodes that were never born.
//!
//! # Invariants
//! * A record with a birth becomes durable in one step with everything the new inode has: what
//!   it refers to (a symbolic link's target) is durable before.
//! * The number of an inode that dies unborn is used again only after its branch has durably
//!   ended, so that a new inode never inherits contents.

use crate::buckets::Whole;
use crate::engine::{Attempt, Confirmed, Context, Fix, Published, Stop};
use crate::interface::Errno;
use crate::overlay::Found;
use crate::state::{CachedInode, Lane, begun, flag, links};
use crate::time::now;
use arck_core_state::branch::StoredBranch;
use arck_core_state::directory::Dentry;
use arck_core_state::header::HeaderKind;
use arck_core_state::record::{Record, RecordRef, effect};
use arck_core_state::{FileKind, IndexRoot, InodeNumber, PAGE_SIZE};
use arck_libfs_kit::delta::{self, Branch, Tail};
use arck_pm::order;
use arck_protocol::operation::Expected;
use std::cell::Cell;
use std::sync::atomic::Ordering;

/// What is to be born.
#[derive(Clone, Copy)]
pub struct Birth<'t> {
    pub kind: FileKind,
    /// Permission bits, already masked.
    pub mode: u32,
    /// Of a symbolic link.
    pub target: &'t [u8],
    /// It is listed as open before anybody can find it: whoever takes the right to it away right after
    /// its birth leaves it to its maker.
    pub opens: bool,
}

impl<'a> Context<'a> {
    /// Makes `name` in `directory`, which must not be there. Under the directory's lock, inside
    /// an operation, with `found` looked up under that lock.
    pub fn give_birth(
        &self,
        directory: &'static CachedInode,
        expected: &Expected,
        name: &[u8],
        found: &Found,
        birth: Birth<'_>,
    ) -> Attempt<&'static CachedInode> {
        let stock = self.session.state();
        let number = self.take_number()?;
        if self.header(number)?.ownership().session() != self.session.number() {
            // No longer granted to us: left for good.
            return Err(Fix::Again.into());
        }
        let unborn = Cell::new(true);
        let outcome = self.try_birth(directory, expected, name, found, birth, number, &unborn);
        if outcome.is_err() && unborn.get() && !self.spares.keep_number(self.slot(), number) {
            stock.numbers.give_back(self.slot(), number);
        }
        outcome
    }

    /// `unborn`: set to false as soon as the number may be somebody's, whatever comes of it.
    #[allow(clippy::too_many_arguments)]
    fn try_birth(
        &self,
        directory: &'static CachedInode,
        expected: &Expected,
        name: &[u8],
        found: &Found,
        birth: Birth<'_>,
        number: InodeNumber,
        unborn: &Cell<bool>,
    ) -> Attempt<&'static CachedInode> {
        let time = now();
        let prepared = self.prepare_overlay(name, found, true)?;
        let (inode, _locked) = self.conceive(directory, birth, number, time)?;
        let mode = inode.mode.load(Ordering::Relaxed) & 0o7777;
        let gid = inode.gid.load(Ordering::Relaxed);
        let record = Record {
            state: effect::ADD,
            sequence: 0,
            kind: birth.kind,
            inode: number,
            generation: inode.generation(),
            source_directory: 0,
            mode,
            uid: self.credentials.uid,
            gid,
            created: time,
            changed: None,
            kills: [RecordRef::default(); 2],
            name,
            source: b"",
        };
        let involved = [(directory, *expected)];
        if birth.opens {
            self.list_open(inode)?;
        }
        let committed = self.commit_record(directory, expected, record, &involved, time);
        let (reference, confirmed) = match committed {
            Ok(committed) => committed,
            Err(stop) => {
                if birth.opens {
                    self.close_again(inode);
                }
                // What stops an attempt takes its record back, or comes before it; what fails it
                // leaves open whether the record is there.
                let ended = inode.branch.load(Ordering::Relaxed) == begun::NOT
                    || matches!(stop, Stop::Fix(_)) && self.end_branch(inode).is_ok();
                unborn.set(matches!(stop, Stop::Fix(_)) && ended);
                if ended {
                    self.discard_delta(inode);
                }
                return Err(stop);
            }
        };
        unborn.set(false);
        if confirmed == Confirmed::Standing {
            let dentry = Dentry {
                inode: number,
                generation: inode.generation(),
                kind: birth.kind,
            };
            if birth.kind != FileKind::Directory {
                // Nobody finds it before it is in the overlay.
                inode.link_delta.store(links(1), Ordering::Relaxed);
                inode.is_counted();
            }
            self.set_overlay(directory, name, found, Some((dentry, reference)), prepared);
            self.count_names(directory, 1);
            if birth.kind == FileKind::Directory {
                directory.add_links(1);
            }
        }
        Ok(inode)
    }

    /// Makes the view of a number about to be born, as a name in `directory` would have it.
    /// Locked; nothing leads to it yet.
    fn conceive(
        &self,
        directory: &CachedInode,
        birth: Birth<'_>,
        number: InodeNumber,
        time: i64,
    ) -> Attempt<(&'static CachedInode, Whole)> {
        let header = self.header(number)?;
        let inode = self.cached(number)?;
        let own = Expected {
            ownership: header.ownership().bare(),
            fold: header.fold(),
        };
        let parent_mode = directory.mode.load(Ordering::Relaxed);
        let setgid = parent_mode & 0o2000 != 0;
        let gid = if setgid {
            directory.gid.load(Ordering::Relaxed)
        } else {
            self.credentials.gid
        };
        let inherited = if setgid && birth.kind == FileKind::Directory {
            0o2000
        } else {
            0
        };
        let mode = birth.mode & 0o7777 | inherited;
        // Others may be tidying up what an earlier life of the number left in its view.
        let locked = self.lock_now(inode)?;
        if !self.has_no_delta(inode) {
            self.discard_delta(inode);
        }
        prepare_unborn(inode, header.generation(), &own, directory.number());
        let relaxed = Ordering::Relaxed;
        inode.mode.store(birth.kind.mode_bits() | mode, relaxed);
        inode.uid.store(self.credentials.uid, relaxed);
        inode.gid.store(gid, relaxed);
        for field in [
            &inode.accessed,
            &inode.modified,
            &inode.changed,
            &inode.created,
        ] {
            field.store(time as u64, relaxed);
        }
        let directory_links = if birth.kind == FileKind::Directory {
            2
        } else {
            0
        };
        inode.base_links.store(directory_links, relaxed);
        if birth.kind == FileKind::Link {
            self.store_target(inode, &own, birth.target, time)?;
        }
        inode
            .sequence
            .store(header.sequence.load(Ordering::Acquire), Ordering::Release);
        Ok((inode, locked))
    }

    /// Makes a file without a name (O_TMPFILE), as if in `directory`, and lists it as open: it
    /// is of this session alone and ends when it is closed, unless a link is made to it.
    pub fn give_nameless_birth(
        &self,
        directory: &'static CachedInode,
        birth: Birth<'_>,
        linkable: bool,
    ) -> Attempt<&'static CachedInode> {
        let number = self.take_number()?;
        let attempt = || -> Attempt<&'static CachedInode> {
            if self.header(number)?.ownership().session() != self.session.number() {
                return Err(Fix::Again.into());
            }
            let (inode, _locked) = self.conceive(directory, birth, number, now())?;
            self.list_open(inode)?;
            inode.set(flag::LINKABLE, linkable);
            inode.set(flag::UNLINKED, true);
            Ok(inode)
        };
        let outcome = attempt();
        if outcome.is_err() && !self.spares.keep_number(self.slot(), number) {
            self.session.state().numbers.give_back(self.slot(), number);
        }
        outcome
    }

    /// Stores the target of a symbolic link about to be born, durably.
    fn store_target(
        &self,
        inode: &'static CachedInode,
        own: &Expected,
        target: &[u8],
        time: i64,
    ) -> Attempt<()> {
        let session = self.session;
        let slot = own
            .branch_slot(self.header(inode.number())?)
            .ok_or(Fix::Again)?;
        let stock = session.state();
        if !stock.arena.has_branch(slot) {
            return Err(Fix::BranchSlot(slot).into());
        }
        let page = stock
            .data
            .take(session, self.slot())
            .ok_or(Fix::DataPages)?;
        let root = IndexRoot::new(page.0, 0);
        let stored = || -> Attempt<()> {
            let bytes = session.page_bytes(page).ok_or(Errno::IO)?;
            let mut whole = [0u8; PAGE_SIZE as usize];
            let place = whole.get_mut(..target.len());
            place.ok_or(Errno::NAMETOOLONG)?.copy_from_slice(target);
            // In one piece: the line in which the target ends would be flushed twice.
            let data = bytes.try_stream(0, &whole).map_err(|error| error.errno())?;
            let mut content = StoredBranch::unchanged(
                inode.number(),
                inode.generation(),
                own.ownership.epoch(),
                own.fold,
            );
            content.root = root;
            content.size = target.len() as u64;
            content.modified = time;
            content.changed = time;
            content.parent = inode.parent.load(Ordering::Relaxed);
            // Nobody looks at page or branch before the inode is born, so one fence does for both.
            let branch = Branch::at(session, slot)?;
            session.bring_arena_near(branch.offset_of(0));
            let branch = branch.begin(&content)?;
            let _durable = order::fence((data, branch));
            Ok(())
        };
        if let Err(stop) = stored() {
            stock.data.release(session, page);
            return Err(stop);
        }
        inode.branch.store(begun::DURABLE, Ordering::Release);
        self.note_dirty(inode);
        inode.root.store(root.0, Ordering::Release);
        inode.size.store(target.len() as u64, Ordering::Relaxed);
        inode.pages.store(1, Ordering::Relaxed);
        Ok(())
    }

    /// That there is a place for a record, before anything is changed that goes with it.
    pub fn expect_place(
        &self,
        directory: &'static CachedInode,
        record: &Record<'_>,
    ) -> Attempt<()> {
        let own = self.own_lane(directory);
        if has_place(own.lane, &tail_of(own.lane), record) {
            return Ok(());
        }
        let arena = &self.session.state().arena;
        let page = arena
            .take(self.session, self.slot())
            .map_err(|short| Fix::short(short, 1))?;
        arena.release(self.session, self.slot(), page);
        Ok(())
    }

    /// Appends a record to a directory's delta, stamps the directory, makes both durable, and
    /// looks at the headers again. `involved`: the directory first, then what else the record
    /// speaks of. Under the locks of all of them.
    pub fn commit_record(
        &self,
        directory: &'static CachedInode,
        expected: &Expected,
        mut record: Record<'_>,
        involved: &[(&CachedInode, Expected)],
        time: i64,
    ) -> Attempt<(RecordRef, Confirmed)> {
        let session = self.session;
        let stock = session.state();
        self.expect_reached()?;
        let (branch, begun) = self.branch(directory, expected)?;
        let own = self.own_lane(directory);
        let lane = own.lane;
        let mut tail = tail_of(lane);
        let mut fresh = None;
        let adds = record.state & effect::ADD != 0;
        if !has_place(lane, &tail, &record) {
            // What only takes names away makes room, and must be possible where there is none.
            let taken = match adds {
                true => stock
                    .arena
                    .take(session, self.slot())
                    .map(|page| (page, true)),
                false => stock.arena.take_for_removal(session, self.slot()),
            };
            match taken {
                Ok((page, may_add)) => {
                    fresh = Some(page);
                    lane.removes.store(u32::from(!may_add), Ordering::Relaxed);
                }
                Err(short) => {
                    let _begun = order::fence(begun);
                    return Err(Fix::short(short, 1).into());
                }
            }
        }
        record.sequence = lane
            .sequence
            .load(Ordering::Relaxed)
            .wrapping_add(own.apart);
        lane.sequence.store(record.sequence, Ordering::Relaxed);
        let tails = if tail.page == 0 {
            self.lock_branch(directory)
        } else {
            None
        };
        let (reference, stored) = delta::append_record(
            session,
            &branch,
            own.place,
            &mut tail,
            fresh,
            directory.number(),
            expected.fold,
            &record,
            begun,
        )?;
        drop(tails);
        if lane.tail_first.load(Ordering::Relaxed) == 0 {
            lane.tail_first.store(tail.page, Ordering::Relaxed);
        }
        lane.tail_page.store(tail.page, Ordering::Relaxed);
        lane.tail_unit.store(tail.unit, Ordering::Relaxed);
        let stamped = self.stamp(directory, &branch, time)?;
        let _durable = order::fence((stored, stamped.stored));
        drop(own);
        directory.branch_is_durable();
        let offset = u64::from(reference.unit) * 64;
        let word = session
            .arena_at(offset as usize)
            .load_u64(offset as usize, Ordering::Acquire)
            .ok_or(Errno::IO)?;
        // A record without effects says nothing.
        let before = word & u64::from(u32::MAX);
        let confirmed = self.confirm(
            involved,
            Published {
                offset,
                word,
                before,
                length: record.units() * 64,
            },
        )?;
        if let Some(time) = stamped.time {
            directory.stamped(time);
        }
        Ok((reference, confirmed))
    }

    /// Durably ends the branch of an inode that dies unborn.
    fn end_branch(&self, inode: &CachedInode) -> Attempt<()> {
        let slot = inode
            .expected()
            .branch_slot(self.header(inode.number())?)
            .ok_or(Fix::Again)?;
        let _ended = order::fence(Branch::at(self.session, slot)?.end()?);
        Ok(())
    }

    /// A name of an inode is gone, or it is not open any more: if it has no name left, in this
    /// session's view, it is marked, and what was never born ends if nobody here has it open.
    pub fn dispose(&self, inode: &'static CachedInode) {
        let may_end = inode.has(flag::UNBORN) && !inode.is_open();
        let is_marked = inode.has(flag::UNLINKED);
        let has_none = || !inode.is_directory() && inode.links() == 0;
        if !(if is_marked { may_end } else { has_none() }) {
            return;
        }
        let _locked = self.lock_whole(inode);
        if !inode.is_directory() {
            if inode.links() == 0 {
                if !is_marked {
                    let pages = inode.pages.load(Ordering::Relaxed);
                    self.session.state().data.note_dropped(pages);
                }
                inode.set(flag::UNLINKED, true);
            } else {
                // A link was made meanwhile.
                if may_end {
                    inode.set(flag::UNLINKED, false);
                }
                return;
            }
        }
        // Decided under the lock: two threads may come here for one inode.
        let granted = self
            .header(inode.number())
            .is_ok_and(|header| header.kind() == HeaderKind::Granted);
        if !inode.has(flag::UNBORN) || !granted {
            return;
        }
        if self
            .lanes(inode)
            .any(|lane| lane.tail_first.load(Ordering::Relaxed) != 0)
        {
            // Its records may have removed names elsewhere: they count until a fold has taken
            // them; then the number comes back (see `refresh_if_folded`).
            return;
        }
        // If it is open, its last close comes here again.
        if !inode.refuse_openings() {
            return;
        }
        if inode.branch.load(Ordering::Relaxed) != begun::NOT && self.end_branch(inode).is_err() {
            // Nothing that the branch leads to may be used again.
            inode.allow_openings();
            return;
        }
        self.end_unborn(inode);
    }

    /// Forgets an inode that died unborn, and queues its number. Under its lock, with openings
    /// refused until there is no view that could be opened.
    pub fn end_unborn(&self, inode: &'static CachedInode) {
        self.discard_delta(inode);
        inode.flags.store(0, Ordering::Release);
        inode.sequence.store(u64::MAX, Ordering::Release);
        inode.allow_openings();
        self.queue_reuse(inode);
    }
}

/// Makes a cached inode the view of a number about to be born.
fn prepare_unborn(inode: &CachedInode, generation: u32, own: &Expected, parent: InodeNumber) {
    inode.generation.store(generation, Ordering::Release);
    inode.flags.store(flag::UNBORN, Ordering::Release);
    inode.link_delta.store(0, Ordering::Relaxed);
    for field in [
        &inode.size,
        &inode.base_root,
        &inode.base_size,
        &inode.pages,
        &inode.root,
    ] {
        field.store(0, Ordering::Relaxed);
    }
    inode.limit.store(u64::MAX, Ordering::Relaxed);
    for field in [
        &inode.branch,
        &inode.entries,
        &inode.attributes,
        &inode.overlaid,
    ] {
        field.store(0, Ordering::Relaxed);
    }
    inode.parent.store(parent, Ordering::Relaxed);
    inode.expect(*own);
}

fn tail_of(lane: &Lane) -> Tail {
    Tail {
        page: lane.tail_page.load(Ordering::Relaxed),
        unit: lane.tail_unit.load(Ordering::Relaxed),
    }
}

/// Whether a record fits into the last page of a bucket's tail, and may stand there.
fn has_place(lane: &Lane, tail: &Tail, record: &Record<'_>) -> bool {
    let adds = record.state & effect::ADD != 0;
    tail.has_room(record.units()) && !(adds && lane.removes.load(Ordering::Relaxed) != 0)
}
